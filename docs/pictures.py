"""Plots of the documentation, made from public facts and from what the evictions example publishes: ``make images``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes

from synthstream.kernel.counters import Counter, counter
from synthstream.privacy import Budget

sys.path.insert(0, str(Path(__file__).parent))
import drawings

ROOT = Path(__file__).parents[1]
RELEASES = ROOT / "examples" / "evictions" / "releases"
TICKS = 1_000
# Colours that a colour-blind reader tells apart (Okabe and Ito), lighter on dark pages.
COLORS = {
    "light": ["#0072B2", "#D55E00", "#00795c", "#a3528a", "#8a6d00", "#52606d"],
    "dark": ["#56B4E9", "#ff9e57", "#35d0a5", "#e6a3cf", "#f0e442", "#b0bec5"],
}
_DASHES = (":", "-.", "--", (0, (1, 3)))


@contextmanager
def page(look: drawings.Look) -> Iterator[list[str]]:
    """Settings of one kind of page; gives its colours."""
    settings: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "synthstream",
        "font.family": "sans-serif",
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
        "grid.alpha": 0.25,
        **dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], look.ink),
        "grid.color": look.faint,
    }
    with mpl.rc_context(settings):
        yield COLORS[look.name]


def save(name: str, look: drawings.Look, *, below: float = 0.0) -> None:
    """Write the open figure, without a date, so that the same picture is the same file.

    Args:
        below: share of its height that is kept free at the bottom.
    """
    plt.tight_layout(rect=(0, below, 1, 1))
    plt.savefig(drawings.IMAGES / f"{name}-{look.name}.svg", metadata={"Date": None})
    plt.close()


# -- error over time, from the counters' exact variance ---------------------------------------------------------------


def errors(made: Counter, ticks: np.ndarray[Any, Any], multiplier: float) -> list[float]:
    """Standard error of one running count after each of the ticks."""
    return [float(np.sqrt(made.variance(int(t) - 1, multiplier=multiplier))) for t in ticks]


def error_over_time(look: drawings.Look) -> None:
    """Standard error by tick of every counter, for one table at epsilon = 1."""
    ticks = np.unique(np.geomspace(1, TICKS, 160).astype(int))
    gaussian = 1 / np.sqrt(2 * float(Budget(epsilon=1.0, delta=1e-9).rho))
    panels: list[tuple[str, str, float, list[tuple[str, int | None]]]] = [
        (
            "epsilon = 1, delta = 0 (Laplace noise)",
            "laplace",
            1.0,
            [("simple", TICKS), ("block", TICKS), ("binary", TICKS), ("hybrid", None), ("kary", TICKS), ("auto", None)],
        ),
        (
            "epsilon = 1, delta = 1e-9 (Gaussian noise)",
            "gaussian",
            gaussian,
            [("simple", TICKS), ("toeplitz", TICKS), ("blt", TICKS), ("auto", None)],
        ),
    ]
    with page(look) as colors:
        _, axes = plt.subplots(1, 2, figsize=(9, 3.9), sharey=True)
        for axis, (title, noise, multiplier, kinds) in zip(axes, panels, strict=True):
            for k, (kind, horizon) in enumerate(kinds):
                made = counter(kind, horizon=horizon, noise=noise)  # type: ignore[arg-type]
                label = "auto, unbounded" if kind == "auto" else kind
                style = "--" if horizon is None else "-"
                found = errors(made, ticks, multiplier)
                axis.plot(ticks, found, style, color=colors[k], label=label, drawstyle="steps-post")
            axis.set(xscale="log", yscale="log", title=title, xlabel="ticks")
            axis.grid(visible=True)
            axis.legend(fontsize=9, ncols=2, loc="upper left")
            axis.set_ylim(1, 500)
        axes[0].set_ylabel("standard error, in events")
        save("error-over-time", look)


# -- yardsticks, from what benchmarks.utility printed -----------------------------------------------------------------


def utility(look: drawings.Look) -> None:
    """Yardsticks of a stream by tick, beside what sees all rows at once and releases once."""
    text = (ROOT / "benchmarks" / "results" / "utility.jsonl").read_text()
    found = [json.loads(line) for line in text.splitlines()]
    ours = [line for line in found if line["method"] == "synthstream"]
    stream, once = [line for line in ours if line["ticks"] > 1], [line for line in ours if line["ticks"] == 1]
    levels = {"real rows": "the true rows", "aim": "AIM, all rows at once", "mst": "MST, all rows at once"}
    levels |= {"independent columns": "independent columns"}
    known = {name: [line for line in found if line["method"] == method] for method, name in levels.items()}
    panels = [
        ("k_marginal_3", "k-marginal score, 3 columns", 1),
        ("impossible", "impossible pairs, % of rows", 100),
        ("tstr_auc", "AUC, trained on them", 1),
    ]
    with page(look) as colors:
        figure, axes = plt.subplots(1, 3, figsize=(9, 3.9))
        for axis, (key, title, scale) in zip(axes, panels, strict=True):
            ticks = [line["tick"] + 1 for line in stream]
            axis.plot(ticks, [scale * line[key] for line in stream], "o-", color=colors[0], label="ours, 20 releases")
            held = [line for line in found if line["method"] == "held-out rows" and key in line]
            at, shown = [line["tick"] + 1 for line in held], [scale * line[key] for line in held]
            axis.plot(at, shown, "x:", color=colors[5], label="true rows, held out")
            alone = [scale * line[key] for line in once]
            axis.plot(ticks[-1:], alone, "D", color=colors[0], mfc="none", label="ours, one release")
            for (name, (line,)), color, style in zip(known.items(), [colors[5], *colors[1:4]], _DASHES, strict=True):
                axis.axhline(scale * line[key], color=color, ls=style, label=name)
            axis.set_title(title, fontsize=11)
            axis.set(xlabel="ticks released", xscale="log")
            axis.set_xticks(ticks, map(str, ticks), minor=False)
            axis.minorticks_off()
            axis.grid(visible=True)
        figure.legend(*axes[0].get_legend_handles_labels(), fontsize=9, ncols=3, loc="lower center")
        save("utility", look, below=0.14)


# -- what the evictions example publishes -----------------------------------------------------------------------------


def published() -> pl.DataFrame:
    """One-column tables of every release of the example."""
    folders = sorted(path for path in RELEASES.glob("[0-9]*") if (path / "manifest.json").exists())
    if len(folders) < 261:
        raise SystemExit("The pictures show the example's releases: make demo first.")
    return pl.concat(
        pl.read_parquet(folder / "tables.parquet")
        .filter(pl.col("column_1").is_not_null() & pl.col("column_2").is_null())
        .select("column_1", "value_1", "count", "measured", "stderr", tick=pl.lit(int(folder.name)))
        for folder in folders
    )


def evictions(tables: pl.DataFrame) -> Callable[[drawings.Look], None]:
    """Running counts by ground for eviction, with what their noise may be."""
    grounds = ["Nuisance", "Breach", "Owner Move In", "Ellis Act WithDrawal"]

    def draw(look: drawings.Look) -> None:
        with page(look) as colors:
            axis: Axes
            _, axis = plt.subplots(figsize=(9, 4.2))
            dates = np.datetime64("2011-01-08") + np.arange(261) * np.timedelta64(7, "D")
            for color, ground in zip(colors, grounds, strict=False):
                one = tables.filter((pl.col("column_1") == ground) & (pl.col("value_1") == "true")).sort("tick")
                measured, error = one["measured"].to_numpy(), one["stderr"].to_numpy()
                axis.fill_between(dates, measured - 2 * error, measured + 2 * error, color=color, alpha=0.15, lw=0)
                axis.plot(dates, measured, color=color, lw=0.8, alpha=0.7)
                axis.plot(dates, one["count"], color=color, lw=2.2, label=ground)
            axis.axhline(0, color=look.faint, lw=0.8)
            axis.set(ylabel="eviction notices since 2011", xlim=(dates[0], dates[-1]))
            axis.grid(visible=True, axis="y")
            axis.yaxis.set_major_formatter("{x:,.0f}")
            axis.legend(loc="upper left", title="ground for eviction", alignment="left")
            save("evictions", look)

    return draw


def rows_and_measured(tables: pl.DataFrame) -> Callable[[drawings.Look], None]:
    """One table of the newest release: what was measured, and what the rows say."""
    newest = tables.filter((pl.col("tick") == pl.col("tick").max()) & (pl.col("column_1") == "Supervisor District"))

    def draw(look: drawings.Look) -> None:
        with page(look) as colors:
            _, axis = plt.subplots(figsize=(9, 3.6))
            at = np.arange(len(newest))
            axis.bar(at, newest["count"], color=colors[0], alpha=0.55, label="count: in the synthetic rows")
            axis.errorbar(
                at,
                newest["measured"],
                yerr=2 * newest["stderr"],
                fmt="o",
                color=colors[1],
                capsize=3,
                label="measured, with two standard errors",
            )
            axis.axhline(0, color=look.faint, lw=0.8)
            axis.set_xticks(at, newest["value_1"].to_list())
            axis.set(xlabel="Supervisor District", ylabel="eviction notices")
            axis.grid(visible=True, axis="y")
            axis.yaxis.set_major_formatter("{x:,.0f}")
            axis.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2)  # above: bars may be anywhere
            save("rows-and-measured", look)

    return draw


def main() -> None:
    """Make all."""
    drawings.draw()
    tables = published()
    for look in drawings.LOOKS:
        error_over_time(look)
        utility(look)
        evictions(tables)(look)
        rows_and_measured(tables)(look)


if __name__ == "__main__":
    main()
