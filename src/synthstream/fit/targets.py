"""From noisy counts to what rows should aim at: one total, one-column margins, and shrunk tables around them.

All of it is post-processing of released values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthstream.release import Measured
from synthstream.workload import Workload

FloatArray = NDArray[np.float64]

# Associations are taken to vary like the expected count of their cell to this power, and only what stands out of the
# noise by so many of its standard deviations counts as variation (docs/decisions/0003-joint-fit.md).
_POWER = 0.5
_CAUTION = 0.5


class Targets(NamedTuple):
    """What rows should aim at.

    Args:
        rows: number of rows.
        margins: for each column the expected number of rows per code, non-negative, summing to ``rows``.
        cells: expected counts over all cells of the workload, shape ``(cells,)``.
    """

    rows: int
    margins: tuple[FloatArray, ...]
    cells: FloatArray


def targets(measured: Measured) -> Targets:
    """Estimate total, margins and tables.

    A table is first moved so that its margins are the pooled ones, which removes the noise of its main effects. What is
    left, the association between its columns, is shrunk towards independence, cell by cell, by as much as its noise
    explains (empirical Bayes).
    """
    total = _total(measured)
    rows = max(0, round(total))
    margins = _margins(measured, total)
    shares = tuple(_simplex(margin, float(rows)) for margin in margins)
    cells = np.concatenate(
        [_table(measured, q, rows, margins, shares) for q in range(len(measured.workload.marginals))]
    )
    return Targets(rows, shares, cells)


def _total(measured: Measured) -> float:
    """Inverse-variance mean of all marginals' sums: each is a noisy number of rows."""
    sums = np.add.reduceat(measured.values, measured.workload.offsets[:-1])
    precision = 1 / (measured.variance * measured.workload.lengths)
    return float(np.sum(precision * sums) / np.sum(precision))


def _margins(measured: Measured, total: float) -> list[FloatArray]:
    """Inverse-variance mean of each column's counts over all marginals that hold it, moved to sum to ``total``."""
    workload = measured.workload
    weighted = [np.zeros(size) for size in workload.sizes]
    precision = np.zeros(len(workload.sizes))
    for q, (marginal, shape) in enumerate(zip(workload.marginals, workload.shapes, strict=True)):
        table = measured.values[workload.offsets[q] : workload.offsets[q + 1]].reshape(shape)
        for axis, column in enumerate(marginal):
            sums = table.sum(axis=tuple(a for a in range(len(shape)) if a != axis))
            weight = shape[axis] / (measured.variance[q] * workload.lengths[q])
            weighted[column] += weight * sums
            precision[column] += weight
    out = []
    for size, sums, weight in zip(workload.sizes, weighted, precision, strict=True):
        mean = sums / weight if weight > 0 else np.full(size, total / size)
        out.append(mean + (total - mean.sum()) / size)
    return out


def _table(
    measured: Measured, q: int, rows: int, margins: list[FloatArray], shares: tuple[FloatArray, ...]
) -> FloatArray:
    """Expected counts of one marginal's cells, flat."""
    workload: Workload = measured.workload
    marginal, shape = workload.marginals[q], workload.shapes[q]
    if len(marginal) == 0:
        return np.array([float(rows)])
    if len(marginal) == 1:
        return shares[marginal[0]]
    table = measured.values[workload.offsets[q] : workload.offsets[q + 1]].reshape(shape)
    independent = np.full(shape, float(max(rows, 1)))
    moved = table + (len(marginal) - 1) * (table.sum() - margins[marginal[0]].sum()) / table.size
    for axis, column in enumerate(marginal):
        view = tuple(-1 if a == axis else 1 for a in range(len(shape)))
        others = tuple(a for a in range(len(shape)) if a != axis)
        independent = independent * (shares[column] / max(rows, 1)).reshape(view)
        moved = moved + ((margins[column] - table.sum(axis=others)) * shape[axis] / table.size).reshape(view)
    freedom = table.size - 1 - sum(size - 1 for size in shape)
    # Chi-square over rows is at most the smallest size less one: a bound on the mean square of associations.
    largest = independent * rows * (min(shape) - 1) / table.size
    kept = _shrunk(moved - independent, independent, measured.variance[q] * freedom / table.size, largest)
    return _simplex((independent + kept).reshape(-1), float(rows))


def _shrunk(association: FloatArray, independent: FloatArray, noise: float, largest: FloatArray) -> FloatArray:
    """Posterior mean of associations whose prior variance is proportional to a power of the expected count.

    The factor is estimated by moments, weighted by the prior; see Morris 1983 for the method. The prior variance is
    kept below ``largest``, which matters where the noise is wild.
    """
    prior = independent**_POWER
    spread = float(np.sum(prior**2))
    if spread == 0 or noise == 0:
        return np.zeros_like(association)
    excess = float(np.sum(prior * (association**2 - noise))) - _CAUTION * noise * np.sqrt(2 * spread)
    signal = np.minimum(max(0.0, excess / spread) * prior, largest)
    return np.asarray(association * signal / (signal + noise))


def _simplex(values: FloatArray, total: float) -> FloatArray:
    """The nearest non-negative vector that sums to ``total``. Source: Held, Wolfe, Crowder 1974."""
    if total <= 0:
        return np.zeros_like(values)
    ordered = np.sort(values)[::-1]
    excess = np.cumsum(ordered) - total
    last = int(np.flatnonzero(ordered * np.arange(1, values.size + 1) > excess)[-1])
    return np.asarray(np.maximum(values - excess[last] / (last + 1), 0.0))
