"""NOT PRIVATE. Errors of synthetic tables against the true ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthstream.workload import IntArray, Workload


@dataclass(frozen=True, kw_only=True)
class TableErrors:
    """Errors over a set of marginals, relative to the number of true events.

    Args:
        avg_we, max_we: mean and maximum over marginals of the mean absolute error of a cell (workload error).
        avg_rel_l1, max_rel_l1: mean and maximum over marginals of the sum of absolute errors.
    """

    avg_we: float
    max_we: float
    avg_rel_l1: float
    max_rel_l1: float


def table_errors(workload: Workload, *, true: IntArray, synthetic: IntArray, events: int) -> TableErrors:
    """Errors of all marginals of a workload.

    Args:
        true, synthetic: counts over all cells, shape ``(cells,)``.
        events: number of true events, at least 1.

    Example:
        >>> workload = Workload(sizes=(2,), marginals=((0,),))
        >>> table_errors(workload, true=np.array([3, 1]), synthetic=np.array([2, 2]), events=4).avg_rel_l1
        0.5
    """
    distance = np.abs(true - synthetic)
    sums = np.array([part.sum() for part in np.split(distance, workload.offsets[1:-1])]) / events
    means = sums / workload.lengths
    return TableErrors(
        avg_we=float(means.mean()),
        max_we=float(means.max()),
        avg_rel_l1=float(sums.mean()),
        max_rel_l1=float(sums.max()),
    )
