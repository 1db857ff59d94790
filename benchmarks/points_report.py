"""Synthetic points by all methods side by side: make bench-points. Goes on where it stopped.

Every finished run is a line of ``results/points.jsonl``; ``results/points.md`` and the figures are made of these lines.

Runs of ``points`` by an older edition do not count as finished.

    python -m benchmarks.points_report                 # what is missing, then the document
    python -m benchmarks.points_report --seeds 0       # the document alone
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import matplotlib as mpl
import numpy as np
from rich.progress import track

from benchmarks.clouds import EARTHQUAKES, Cloud
from benchmarks.points import LARGE, METHODS, Setting
from synthstream.kinds import EDITION

mpl.use("Agg")
import matplotlib.pyplot as plt

Line = dict[str, Any]
RESULTS = Path(__file__).parent / "results"
DIMENSIONS = (1, 2)
NUMBERS = (10_000, 100_000, LARGE)
EPSILON = 1.0
DELTA = 0.0
BASIS = "offline-pmm"
# Ours: without a horizon, and with one that is the last tick of all.
OURS = ("points", "points-bounded")
# Side by side with the stream of Kumar, Strohmer, Vershynin 2024, at its moments.
RIVALS = ("points", "adaptive-tree", "offline-privtree")
_STREAMS: tuple[tuple[Cloud, int], ...] = (("circles", 50_000), ("earthquakes", 100_000))
# Methods not named here are drawn in the colours left over.
_COLOURS = {
    "points": "#1b6ca8",
    "points-bounded": "#6aa9dc",
    "hypercube": "#d1495b",
    "offline-pmm": "#edae49",
    "offline-haar": "#3c8d53",
    "uniform": "#888888",
}
_OTHERS = ("#7b5ea7", "#8c564b", "#17a2b8", "#e377c2")
_BESIDE = "points, points-bounded by the best offline"
_MARKS = {"points": "o", "points-bounded": "P", "hypercube": "s", "offline-pmm": "^", "offline-haar": "v"}

_INTRODUCTION = """# Synthetic points

Made by `make bench-points`; the lines are in `points.jsonl`. NOT PRIVATE: compared with the true data.

W1 is the distance of the synthetic measure to the true one after the last point, at epsilon = {epsilon:g} and
delta = {delta:g}: the mean over seeds, ± half the range; in brackets its ratio to `offline-pmm`. Lower is better.

- All methods: replace-one neighbours, unit one event, pure epsilon-DP. `points` (ours) and `hypercube` (paper 1) follow
  the stream, and may release at any time. `offline-pmm` (He, Vershynin, Zhu 2023) and `offline-haar` see all points at
  once and release once. `uniform` ignores the data.
- `points` has `horizon = "unbounded"`, `points-bounded` a horizon that is the last tick of all: its last epoch ends
  there ([decision 51](../../docs/decisions/0051-last-epoch-of-points.md)), so that the last release, which is the one
  compared, tells fine detail as it is. The first says what to expect of a stream that goes on, the second of one
  that ends, as all data of an offline release do.
- `hypercube` splits nodes by its consistency rule in proportion. With the paper's constants its sparse counters hardly
  ever fire: what it publishes is the last snapshot, and points that came since then are where the rule puts them.
- `points` is the default, `schedule = "adaptive"`: measured here, not covered by the accuracy theorem.
- `points` was measured with the editions of its defaults that stand beside its figures in `points.jsonl`: {editions}.
  Runs that are in there are not repeated, unless the edition is another one. Editions 13 and 14 are edition 15 with
  delta = 0, a public number of events, and no horizon, as in the runs that have them. Decision 8 has processor seconds
  of larger streams.
- Of two methods that see all points at once the better one is `offline-haar`, in every row; the last column says how
  many times its distance `points` has. Beside the stream of trees it is `offline-privtree`.
- `hypercube` publishes a snapshot whenever the number of points is a power of 2: its figures depend on how long ago
  that was. 100,000 lie far behind 2^16, 136,547 shortly behind 2^17.
- In one dimension W1 is exact. In two it is exact in the maximum norm between masses at the centres of 128 x 128 cells
  (256 x 256 from a million points); what happens within a cell is not seen.
- There are {earthquakes:,} earthquakes; they are the same for all seeds, the noise is not.
- In the figures the grey line has the slope of the theory, -1 / dimension, and goes through `offline-pmm`.
"""


def settings(seeds: int, large_seeds: int) -> Iterator[Setting]:
    """The runs, quick ones first; a million points in two dimensions get fewer seeds, as each W1 takes minutes."""
    clouds = [cloud for cloud in get_args(Cloud) if cloud != "circles"]
    methods = [method for method in METHODS if method == "points" or method not in RIVALS]
    for number, dim, cloud, method in itertools.product(NUMBERS, DIMENSIONS, clouds, methods):
        actual = min(number, EARTHQUAKES) if cloud == "earthquakes" else number
        wanted = min(seeds, large_seeds) if dim == 2 and actual >= LARGE else seeds
        for seed in range(wanted):
            yield Setting(dim=dim, points=actual, epsilon=EPSILON, delta=DELTA, data=cloud, method=method, seed=seed)
    for (cloud, number), method, seed in itertools.product(_STREAMS, RIVALS, range(seeds)):
        one = Setting(dim=2, points=number, epsilon=EPSILON, delta=DELTA, data=cloud, method=method, seed=seed)
        yield replace(one, neighbours="add-remove", every=500, at=(0.1, 0.3, 0.6, 1.0))


def done(path: Path) -> dict[str, Line]:
    """Finished runs by their settings."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {key(line): line for line in lines}


def key(facts: Line) -> str:
    """The settings among the facts of a run, as one text, and of ours the edition: other methods have none."""
    fields = Setting.__dataclass_fields__.items()
    edition = facts.get("edition") if facts["method"] in OURS else None
    return json.dumps([{name: facts.get(name, field.default) for name, field in fields}, edition], sort_keys=True)


def newest(lines: Iterable[Line]) -> list[Line]:
    """Of each choice of settings, all seeds together, those of the newest edition that was run."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(key({**line, "seed": 0, "edition": None}), []).append(line)
    last = {name: max(line.get("edition") or 0 for line in found) for name, found in groups.items()}
    return [line for name, found in groups.items() for line in found if (line.get("edition") or 0) == last[name]]


def measured(setting: Setting) -> str:
    """The line of one run, made by a process of its own, so that memory and compiled code are its own."""
    options = [f"--{name}={value}" for name, value in (asdict(setting) | {"at": setting.shown}).items()]
    command = [sys.executable, "-m", "benchmarks.points", *options]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - our own module


def main() -> None:
    """Run what is missing, then write the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--large-seeds", type=int, default=1, help="of a million points in two dimensions")
    parser.add_argument("--method", nargs="+", choices=sorted(METHODS), default=list(METHODS), help="to run")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    path = RESULTS / "points.jsonl"
    known = done(path)
    wanted = [s for s in settings(args.seeds, args.large_seeds) if s.method in args.method]
    missing = [s for s in wanted if key({**asdict(s), "edition": EDITION}) not in known]
    with ThreadPoolExecutor(args.processes) as pool:
        running = [pool.submit(measured, setting) for setting in missing]
        for finished in track(as_completed(running), total=len(running), description="runs"):
            with path.open("a") as file:
                file.write(finished.result())
    write(newest(done(path).values()), RESULTS)


def write(lines: Sequence[Line], folder: Path) -> None:
    """``points.md``, a figure of W1 for each dimension, and one of speed."""
    used = sorted({line["edition"] for line in lines if line["method"] in OURS and "edition" in line})
    facts = {"epsilon": EPSILON, "delta": DELTA, "earthquakes": EARTHQUAKES}
    parts = [_INTRODUCTION.format(**facts, editions=" and ".join(map(str, used)) or "not known")]
    beside, lines = ([line for line in lines if bool(line.get("every")) is known] for known in (True, False))
    if beside:
        parts.append(f"## Beside a stream of trees\n\n{_moments(beside)}\n")
    for dim in sorted({line["dim"] for line in lines}):
        own = [line for line in lines if line["dim"] == dim]
        title = "One dimension" if dim == 1 else f"{('Two', 'Three')[dim - 2]} dimensions"
        parts.append(f"## {title}\n\n{_table(own)}\n![W1 against points]({_accuracy(dim, own, folder)})\n")
    parts.append(f"## Cost\n\n{_costs(lines)}\n![Points a second against points]({_speed(lines, folder)})\n")
    (folder / "points.md").write_text("\n".join(parts))


def _methods(lines: Iterable[Line]) -> list[str]:
    """Those that have lines, in the order of the colours."""
    found = {line["method"] for line in lines}
    return [m for m in _COLOURS if m in found] + sorted(found - set(_COLOURS))


def _grouped(lines: Iterable[Line], *names: str) -> dict[tuple[Any, ...], list[Line]]:
    groups: dict[tuple[Any, ...], list[Line]] = defaultdict(list)
    for line in lines:
        groups[tuple(line[name] for name in names)].append(line)
    return dict(sorted(groups.items()))


def _table(lines: Sequence[Line]) -> str:
    methods = _methods(lines)
    heads = ["data", "points", "seeds", *methods, _BESIDE]
    rows = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for cloud in get_args(Cloud):
        for (number,), found in _grouped([line for line in lines if line["data"] == cloud], "points").items():
            values = {m: [line["w1"] for line in found if line["method"] == m] for m in methods}
            basis = float(np.mean(values[BASIS])) if values.get(BASIS) else None
            cells = " | ".join(_cell(values[m], None if m == BASIS else basis) for m in methods)
            least = min(
                (float(np.mean(values[m])) for m in methods if m.startswith("offline") and values[m]), default=0
            )
            beside = ", ".join(f"{np.mean(values[m]) / least:.2f}" for m in OURS if least and values.get(m))
            rows.append(f"| {cloud} | {number:,} | {len({line['seed'] for line in found})} | {cells} | {beside} |")
    return "\n".join(rows) + "\n"


def _moments(lines: Sequence[Line]) -> str:
    rows = [
        "The first tenth of the points in one tick, then 500 at each; add-remove. `adaptive-tree` is the stream of",
        "Kumar, Strohmer and Vershynin 2024, `offline-privtree` one PrivTree over all points so far, with the whole",
        "budget. In brackets: W1 beside that of `adaptive-tree`. Two dimensions, the metric as below.\n",
        "| data | points | seeds | method | after 10 % | 30 % | 60 % | all |",
        "| --- " * 8 + "|",
    ]
    for (cloud, number), found in _grouped(lines, "data", "points").items():
        means = {m: np.mean([x["w1_at"] for x in found if x["method"] == m], axis=0) for m in _methods(found)}
        for method, mean in means.items():
            seeds = len({line["seed"] for line in found if line["method"] == method})
            shown = [f"{w1:.4f} ({w1 / rival:.2f})" for w1, rival in zip(mean, means["adaptive-tree"], strict=True)]
            rows.append(f"| {cloud} | {number:,} | {seeds} | {method} | {' | '.join(shown)} |")
    return "\n".join(rows) + "\n"


def _cell(values: Sequence[float], basis: float | None) -> str:
    if not values:
        return "?"
    mean = float(np.mean(values))
    # Two digits that count, three where the first is 1.
    digits = 2 if mean <= 0 else max(1 - int(np.floor(np.log10(mean / 2))), 2)
    shown = f"{mean:.{digits}f}"
    if len(values) > 1:
        shown += f" ±{(max(values) - min(values)) / 2:.{digits}f}"
    if not basis:
        return shown
    ratio = mean / basis
    return f"{shown} ({ratio:.2f})" if ratio < 10 else f"{shown} ({ratio:,.0f})"


def _costs(lines: Sequence[Line]) -> str:
    rows = [
        "Medians over data sets and seeds, on one core of a shared machine; memory is that of the whole process, the",
        "points and the libraries included.\n",
        "| dimension | points | method | points a second | seconds a release | peak MB |",
        "| --- " * 6 + "|",
    ]
    usual = [line for line in lines if line["data"] != "earthquakes"]
    for (dim, number), found in _grouped(usual, "dim", "points").items():
        for method in _methods(found):
            own = [line for line in found if line["method"] == method]
            speeds = [line["points_per_second"] for line in own if line["points_per_second"]]
            speed = f"{np.median(speeds):,.0f}" if speeds else ""
            release, memory = (np.median([line[name] for line in own]) for name in ("release_seconds", "peak_mb"))
            rows.append(f"| {dim} | {number:,} | {method} | {speed} | {release:.2g} | {memory:.0f} |")
    return "\n".join(rows) + "\n"


def _style(method: str, methods: Sequence[str]) -> dict[str, Any]:
    others = [m for m in methods if m not in _COLOURS]
    colour = _COLOURS.get(method) or _OTHERS[others.index(method) % len(_OTHERS)]
    mark = _MARKS.get(method, "x")
    ours = method in (*OURS, "hypercube")
    line = "-" if ours else ":" if method == "uniform" else "--"
    return {"color": colour, "marker": mark, "linestyle": line, "linewidth": 1.8 if ours else 1.3, "markersize": 5}


def _accuracy(dim: int, lines: Sequence[Line], folder: Path) -> str:
    """W1 against the number of points, a panel for each data set, with lines of the theory's slope."""
    clouds = [c for c in get_args(Cloud) if any(line["data"] == c for line in lines)]
    methods = _methods(lines)
    figure, axes = plt.subplots(
        1, len(clouds), figsize=(3.3 * len(clouds) + 0.6, 4.0), squeeze=False, sharex=True, sharey=True
    )
    for axis, cloud in zip(axes[0], clouds, strict=True):
        own = [line for line in lines if line["data"] == cloud]
        for method in methods:
            groups = _grouped([line for line in own if line["method"] == method], "points")
            means = [float(np.mean([line["w1"] for line in found])) for found in groups.values()]
            axis.plot([number for (number,) in groups], means, label=method, **_style(method, methods))
        _slope(axis, dim, [line for line in own if line["method"] == BASIS] or own)
        _log(axis, cloud)
    axes[0, 0].set_ylabel("W1")
    _finish(figure, axes[0, 0], f"{dim}-D, epsilon = {EPSILON:g}")
    return _saved(figure, folder, f"points-{dim}d.png")


def _slope(axis: Any, dim: int, lines: Sequence[Line]) -> None:
    """The theory's slope, through the geometric mean of a method's figures."""
    number, w1 = (np.array([line[name] for line in lines], dtype=float) for name in ("points", "w1"))
    level = np.exp(np.mean(np.log(w1) + np.log(number) / dim))
    ends = np.array([number.min() / 1.5, number.max() * 1.5])
    label = "slope -1" if dim == 1 else f"slope -1/{dim}"
    axis.plot(ends, level * ends ** (-1 / dim), color="#cccccc", linewidth=4, zorder=0, label=label)


def _speed(lines: Sequence[Line], folder: Path) -> str:
    """Points a second against the number of points, a panel for each dimension: median over data sets and seeds."""
    dims = sorted({line["dim"] for line in lines})
    timed = [line for line in lines if line["points_per_second"] and line["data"] != "earthquakes"]
    methods = _methods(timed)
    figure, axes = plt.subplots(1, len(dims), figsize=(4.2 * len(dims) + 0.6, 4.0), sharey=True, squeeze=False)
    for axis, dim in zip(axes[0], dims, strict=True):
        for method in methods:
            groups = _grouped([x for x in timed if x["dim"] == dim and x["method"] == method], "points")
            medians = [float(np.median([x["points_per_second"] for x in found])) for found in groups.values()]
            axis.plot([number for (number,) in groups], medians, label=method, **_style(method, methods))
        _log(axis, f"{dim}-D")
    axes[0, 0].set_ylabel("points a second")
    _finish(figure, axes[0, 0], "Taking points in, one core")
    return _saved(figure, folder, "points-speed.png")


def _log(axis: Any, title: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.grid(alpha=0.3, which="major")
    axis.set_title(title)
    axis.set_xlabel("points")


def _finish(figure: Any, axis: Any, title: str) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=8, frameon=False)
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0.07, 1, 1))


def _saved(figure: Any, folder: Path, name: str) -> str:
    figure.savefig(folder / name, dpi=110)
    plt.close(figure)
    return name


if __name__ == "__main__":
    main()
