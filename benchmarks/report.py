"""The document and the figures of ``benchmarks.tables``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from benchmarks.published import PUBLISHED, Figures

mpl.use("Agg")
import matplotlib.pyplot as plt

Line = dict[str, Any]
METRICS = ("avg_we", "max_we", "avg_rel_l1", "max_rel_l1")
_WORDS = {"avg_we": "AvgWE", "max_we": "MaxWE", "avg_rel_l1": "AvgRelL1", "max_rel_l1": "MaxRelL1"}
# Our figures' places among the paper's four: AvgRelWE, AvgWE, MaxRelWE, MaxWE.
_PLACE = {"avg_we": 1, "max_we": 3, "avg_rel_l1": 0, "max_rel_l1": 2}
_COLOURS = {"marginals": "#1b6ca8", "selective": "#d1495b", "stream-mwem": "#edae49", "independent": "#888888"}

_INTRODUCTION = Path(__file__).parent / "tables.in.md"


def write(lines: Sequence[Line], folder: Path) -> None:
    """``tables.md`` and one figure for each stream."""
    streams = list(dict.fromkeys(line["stream"] for line in lines if line["stream"] in PUBLISHED))
    parts = [_INTRODUCTION.read_text(), _verdicts(lines)]
    for stream in streams:
        own = [line for line in lines if line["stream"] == stream]
        parts.append(f"## {stream}\n\n{_table(stream, own)}\n![Errors over time]({_plot(stream, own, folder)})\n")
    parts.append(_times(lines))
    (folder / "tables.md").write_text("\n".join(parts))


def _grouped(lines: Iterable[Line]) -> dict[tuple[Any, ...], list[Line]]:
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        groups[line["stream"], line["epsilon"], line["delta"], line["method"], _variant(line)].append(line)
    return groups


def _variant(line: Line) -> str:
    """What sets a run apart from the usual one of its method; nothing for the usual one."""
    parts = [line["counter"] if line["counter"] != "auto" else "", f"k = {line['k']}" if line["k"] else ""]
    return ", ".join(part for part in parts if part)


def _cell(lines: Sequence[Line], metric: str) -> str:
    values = [line[metric] for line in lines]
    digits = 4 if metric.endswith("we") else 3
    spread = f" ±{(max(values) - min(values)) / 2:.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _table(stream: str, lines: Sequence[Line]) -> str:
    rows = [
        f"| epsilon | method | delta | k | {' | '.join(_WORDS[m] for m in METRICS)} | seconds a release | seeds |",
        "| --- " * (len(METRICS) + 6) + "|",
    ]
    groups = _grouped(lines)
    for epsilon in sorted({line["epsilon"] for line in lines}):
        for name, figures in PUBLISHED[stream][epsilon].items():
            cells = " | ".join(f"{figures[_PLACE[m]]:.{4 if m.endswith('we') else 3}f}" for m in METRICS)
            rows.append(f"| {epsilon:g} | *published: {name}* | 0 | ? | {cells} | | |")
        for (_, e, delta, method, variant), found in sorted(groups.items(), key=lambda item: (item[0][2], item[0][3])):
            if e == epsilon and (method != "independent"):
                edition = found[0].get("edition") if method == "marginals" else None
                label = ", ".join(filter(None, [method, variant, f"edition {edition}" if edition else ""]))
                cells = " | ".join(_cell(found, m) for m in METRICS)
                seconds = np.median([line["seconds_per_release"] for line in found])
                k = found[0].get("picks") or ""
                rows.append(f"| {e:g} | {label} | {delta:g} | {k} | {cells} | {seconds:.3f} | {len(found)} |")
    for line in (line for line in lines if line["method"] == "independent"):
        rows.append(f"| | independent, no noise | | | {' | '.join(_cell([line], m) for m in METRICS)} | | |")
    return "\n".join(rows) + "\n"


def _verdicts(lines: Sequence[Line]) -> str:
    """What the issue asks to be shown, row by row, counted from the lines."""
    groups = _grouped(lines)

    def mean(stream: str, epsilon: float, delta: float, method: str, metric: str) -> float | None:
        found = groups.get((stream, epsilon, delta, method, ""))
        return None if not found else float(np.mean([line[metric] for line in found]))

    rows = [
        "## In short\n",
        "| stream | epsilon | published / ours at delta = 1e-9, AvgWE | selective / ours in pure DP: AvgWE, MaxWE, "
        "AvgRelL1 | selective / published AvgWE |",
        "| --- | --- | --- | --- | --- |",
    ]
    for stream, by_epsilon in PUBLISHED.items():
        for epsilon, figures in by_epsilon.items():
            best = min((f for name, f in figures.items() if name != "baseline"), key=lambda f: f[1])
            rows.append(_verdict(stream, epsilon, best, mean))
    return "\n".join(rows) + "\n"


def _verdict(stream: str, epsilon: float, best: Figures, mean: Any) -> str:
    zcdp = mean(stream, epsilon, 1e-9, "marginals", "avg_we")
    ratios = []
    for metric in METRICS[:3]:
        ours, theirs = (mean(stream, epsilon, 0.0, method, metric) for method in ("marginals", "selective"))
        ratios.append("?" if ours is None or theirs is None else f"{theirs / ours:.1f}")
    selective = mean(stream, epsilon, 0.0, "selective", "avg_we")
    first = "?" if zcdp is None else f"{best[1] / zcdp:.1f}"
    last = "?" if selective is None else f"{selective / best[1]:.1f}"
    return f"| {stream} | {epsilon:g} | {first} | {', '.join(ratios)} | {last} |"


def _times(lines: Sequence[Line]) -> str:
    rows = ["## Seconds a release\n", "Median over all ticks, on one core of a shared machine.\n"]
    rows += ["| stream | " + " | ".join(list(_COLOURS)[:3]) + " |", "| --- | --- | --- | --- |"]
    for stream in PUBLISHED:
        cells = []
        for method in list(_COLOURS)[:3]:
            own = [x["seconds_per_release"] for x in lines if x["stream"] == stream and x["method"] == method]
            cells.append(f"{min(own):.3f} to {max(own):.3f}" if own else "?")
        rows.append(f"| {stream} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _plot(stream: str, lines: Sequence[Line], folder: Path) -> str:
    """Errors over time, seed 0: a row of panels for each metric, a column for each epsilon."""
    epsilons = sorted({line["epsilon"] for line in lines if line["method"] != "independent"})
    figure, axes = plt.subplots(3, len(epsilons), figsize=(3.4 * len(epsilons), 7.6), sharex=True, sharey="row")
    axes = np.asarray(axes).reshape(3, -1)
    for row, metric in enumerate(METRICS[:3]):
        for column, epsilon in enumerate(epsilons):
            axis = axes[row, column]
            for line in lines:
                if "curve" in line and (line["epsilon"] == epsilon or line["method"] == "independent"):
                    _draw(axis, line, metric)
            axis.set_yscale("log")
            axis.grid(alpha=0.3, which="major")
            if row == 0:
                axis.set_title(f"epsilon = {epsilon:g}")
            if row == 2:
                axis.set_xlabel("tick")
        axes[row, 0].set_ylabel(_WORDS[metric])
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False)
    figure.suptitle(stream)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    name = f"{stream.lower()}.png"
    figure.savefig(folder / name, dpi=110)
    plt.close(figure)
    return name


def _draw(axis: Any, line: Line, metric: str) -> None:
    points = [p for p in line["curve"] if p["tick"] > 0]
    variant = _variant(line)
    label = f"{line['method']}, {variant}" if variant else line["method"]
    if line["method"] != "independent":
        label += ", pure" if line["delta"] == 0 else f", delta = {line['delta']:g}"
    style = ":" if line["method"] == "independent" else "-" if line["delta"] == 0 else "--"
    axis.plot(
        [p["tick"] + 1 for p in points],
        [p[metric] for p in points],
        style,
        color=_COLOURS[line["method"]],
        linewidth=1.0 if variant else 1.6,
        alpha=0.6 if variant else 1.0,
        label=label,
    )
