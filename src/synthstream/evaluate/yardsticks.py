"""NOT PRIVATE. Yardsticks of released tables that officials know, from true and synthetic counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthstream.publish.history import Cells
from synthstream.workload import IntArray, Workload

# How many standard errors hold 95 % of normal noise.
_NORMAL = 1.96


@dataclass(frozen=True, kw_only=True)
class Yardsticks:
    """Of the tables of a number of columns.

    Args:
        k_marginal: NIST's score (Task, Bhagat, and Howarth 2023): 1000 less 1000 times the mean total variation
            distance between the shares of the synthetic rows and those of the true events; 1000 if they agree.
        impossible: mean share of the synthetic rows in cells that hold no true event.
        coverage: share of measured cells whose bar of 1.96 standard errors holds the true count; ``None`` if no error
            is known.
    """

    order: int
    k_marginal: float
    impossible: float
    coverage: float | None


def yardsticks(workload: Workload, true: IntArray, cells: Cells, *, order: int) -> Yardsticks:
    """Those of all tables of ``order`` columns, in one release.

    Args:
        true: counts of all events up to it, over all cells, shape ``(cells,)``.

    Example:
        >>> count, nothing = np.array([3.0, 1.0]), np.full(2, np.nan)
        >>> one = Cells(count=count, measured=nothing, stderr=nothing, since=nothing)
        >>> table = Workload(sizes=(2,), marginals=((0,),))
        >>> yardsticks(table, np.array([4, 0]), one, order=1)
        Yardsticks(order=1, k_marginal=750.0, impossible=0.25, coverage=None)
    """
    distances, shares, held = list[float](), list[float](), list[np.ndarray]()
    for marginal in workload.marginals:
        if len(marginal) != order:
            continue
        here = workload.slice_of(marginal)
        ours, theirs = cells.count[here], true[here].astype(np.float64)
        gap = ours / max(ours.sum(), 1.0) - theirs / max(theirs.sum(), 1.0)
        distances.append(float(np.abs(gap).sum() / 2))
        shares.append(float(ours[theirs <= 0].sum() / max(ours.sum(), 1.0)))
        known = np.isfinite(cells.measured[here]) & np.isfinite(cells.stderr[here]) & (cells.since[here] == 0)
        held.append((np.abs(cells.measured[here] - theirs) <= _NORMAL * cells.stderr[here])[known])
    inside = np.concatenate(held) if held else np.zeros(0)
    return Yardsticks(
        order=order,
        k_marginal=1000 * (1 - float(np.mean(distances))),
        impossible=float(np.mean(shares)),
        coverage=float(inside.mean()) if inside.size else None,
    )
