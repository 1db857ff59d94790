"""Markdown of runs side by side, from the lines of ``benchmarks.tabular``; means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from synthstream.workload import FloatArray

Line = Mapping[str, Any]

COLUMNS = (
    "run",
    "seeds",
    "AvgWE x 1000 at 25, 50, 75, 100 % of the ticks",
    "AvgRelL1",
    "AvgRelL1 of independent columns",
    "AvgRelL1 over all ticks",
    "changed rows",
    "median ms",
    "slowest ms",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n" + "| --- " * len(COLUMNS) + "|"


def table(runs: Mapping[str, Sequence[Line]]) -> str:
    """A row for each run that has lines."""
    return "\n".join([HEAD, *(row(name, lines) for name, lines in runs.items() if lines)])


def row(name: str, lines: Sequence[Line]) -> str:
    """One run: errors at each quarter, beside those of independent columns without noise, stability and time."""
    changed = [line["changed_second_half"] for line in lines if "changed_second_half" in line]
    cells = [
        f"{name} | {len(lines)}",
        _row(quarters(lines, "avg_we") * 1000, 2),
        _row(quarters(lines, "avg_rel_l1"), 3),
        _row(quarters(lines, "independent_avg_rel_l1"), 3),
        f"{np.mean([line['all_ticks']['avg_rel_l1'] for line in lines]):.3f}",
        f"{np.mean(changed):.1%}" if changed else "",
        f"{1000 * np.median([line['seconds_per_release'] for line in lines]):.0f}",
        f"{1000 * max(line['slowest_release'] for line in lines):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def ratio(first: Sequence[Line], second: Sequence[Line]) -> str:
    """Errors of the second run by those of the first, in a row of the table; below 1 the second is better."""
    names = ("avg_we", "avg_rel_l1")
    cells = [_row(quarters(second, name) / np.maximum(quarters(first, name), 1e-12), 3) for name in names]
    return f"| *second / first* | | {' | '.join(cells)} | | | | | |"


def quarters(lines: Sequence[Line], key: str) -> FloatArray:
    """A figure at 25, 50, 75 and 100 % of the ticks, mean over the lines."""
    return np.asarray(np.mean([[quarter[key] for quarter in line["quarters"]] for line in lines], axis=0))


def _row(values: FloatArray, digits: int) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)
