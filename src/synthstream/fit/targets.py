"""Of what the aim of rows is made: one total, one-column margins, tables, and how far noise explains them.

Where rows of a release before are given, targets lie between their tables and the new ones: counters answer anew at
each tick, and part of their noise is fresh, so that remembering lowers it. All of it is post-processing of released
values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from synthstream.measured import Measured
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

# Only variation beyond this number of standard deviations of the noise counts (docs/decisions/0003-joint-fit.md).
_CAUTION = 0.5
# MEMORY: the rows remember this share of all past ticks, unless one cell has moved by more than ALONE standard errors,
# or all cells of a table together by more than TOGETHER times what noise explains.
MEMORY = 0.06
ALONE, TOGETHER = 2.5, 1.5
# An association is carried to other margins in proportion to what independent columns would give, up to this factor.
_MOST = 2.0
# If rows remember past ticks, about this share of the noise's variance is left.
LEFT = 0.6
# Exact counts are taken to have this variance, far below that of rounding to whole rows.
SMALLEST = 1e-6
# Estimated shares are rounded to such parts: last bits of exponentials, and of products of matrices, depend on the
# processor.
PARTS = 2**20


class Remembered(NamedTuple):
    """Tables of the rows of the release before, scaled to the new number of rows.

    Args:
        margins: counts of each column's codes.
        cells: counts over all cells of the workload.
        pull: the least share of the way from these to the new tables, from 0, where rows remember without end, to 1.
    """

    margins: list[FloatArray]
    cells: FloatArray
    pull: float


def total_of(measured: Measured) -> float:
    """Inverse-variance mean of all marginals' sums: each is a noisy number of rows."""
    sums = np.add.reduceat(measured.values, measured.workload.offsets[:-1])
    precision = 1 / (np.maximum(measured.variance, SMALLEST) * measured.workload.lengths)
    return float(np.sum(precision * sums) / np.sum(precision))


def margins_of(measured: Measured, total: float) -> tuple[list[FloatArray], list[float]]:
    """Each column's counts and the variance of a count; a column that no marginal holds is taken to be uniform.

    Inverse-variance mean over all marginals that hold the column, moved to sum to ``total``.
    """
    workload, variance = measured.workload, np.maximum(measured.variance, SMALLEST)
    weighted = [np.zeros(size) for size in workload.sizes]
    precision = np.zeros(len(workload.sizes))
    for q, (marginal, shape) in enumerate(zip(workload.marginals, workload.shapes, strict=True)):
        table = workload.table(measured.values, q)
        for axis, column in enumerate(marginal):
            weight = shape[axis] / (variance[q] * workload.lengths[q])
            weighted[column] += weight * sums_of(table, axis)
            precision[column] += weight
    margins, errors = [], []
    for size, sums, weight in zip(workload.sizes, weighted, precision, strict=True):
        mean = sums / weight if weight > 0 else np.full(size, total / size)
        margins.append(mean + (total - mean.sum()) / size)
        errors.append(float(1 / weight) if weight > 0 else 0.0)
    return margins, errors


def past_of(
    measured: Measured, start: CodeArray, rows: int, memory: float, counts: IntArray | None = None
) -> Remembered:
    """What the rows of the release before say about the new number of rows; ``counts``: theirs, over all cells."""
    workload, scale = measured.workload, rows / len(start)
    counts = workload.count(start) if counts is None else counts
    single = {m[0]: counts[workload.slice_of(m)] for m in workload.marginals if len(m) == 1}
    margins = [
        np.asarray((single[c] if c in single else np.bincount(start[:, c], minlength=size)) * scale, dtype=np.float64)
        for c, size in enumerate(workload.sizes)
    ]
    new_share = abs(rows - len(start)) / max(rows, len(start))
    pull = 0.0 if math.isinf(memory) else min(1.0, 1 / (1 + memory * measured.tick) + new_share)
    return Remembered(margins, np.asarray(counts * scale, dtype=np.float64), pull)


def drawn(past: Remembered, margins: Sequence[FloatArray], variances: Sequence[float], rows: int) -> list[FloatArray]:
    """Margins of so many rows, moved to those of the past as far as noise of these variances explains what differs."""
    found = [
        blend(old, new, noise, past.pull, new.size - 1)
        for old, new, noise in zip(past.margins, margins, variances, strict=True)
    ]
    return [margin * (rows / max(float(margin.sum()), SMALLEST)) for margin in found]


def usual(
    past: Remembered, workload: Workload, positions: Iterable[int], margins: Sequence[FloatArray], rows: int
) -> Iterator[tuple[int, FloatArray]]:
    """Associations that tables would have with these margins if they were as in the past, with their positions."""
    tables = zip(*(independent_tables(workload, positions, one, rows) for one in (margins, past.margins)), strict=True)
    for (q, new), (_, old) in tables:
        yield q, rescaled(workload.table(past.cells, q) - old, old, new, 0.0)


def rescaled(association: FloatArray, old: FloatArray, new: FloatArray, least: float) -> FloatArray:
    """What an association is with other margins: in proportion to what independent columns would give, by a factor
    from ``least`` to 2.
    """
    return np.asarray(association * np.clip(new / np.maximum(old, SMALLEST), least, _MOST))


def blend(old: FloatArray, new: FloatArray, noise: FloatArray | float, pull: float, free: int) -> FloatArray:
    """Old values moved towards new ones: by the share ``pull``, further where the change is real, never beyond.

    Real is what stands out of the noise: of all cells together (James and Stein 1961), or of one cell (Breiman's
    garrote, 1995). So a stream that changes is followed as soon as its change can be seen. A table of few ``free``
    cells must stand out further: one cell is all that it is.
    """
    gap, beyond = new - old, TOGETHER + (ALONE**2 - TOGETHER) / max(free, 1)
    square = np.maximum(gap * gap, SMALLEST)
    noises = np.broadcast_to(noise, gap.shape).sum(axis=-1, keepdims=True)
    together = 1 - beyond * noises / square.sum(axis=-1, keepdims=True)
    alone = 1 - ALONE**2 * noise / square
    return np.asarray(old + gap * np.maximum(np.maximum(pull, together), alone))


def independent_counts(margins: Sequence[FloatArray], rows: int) -> FloatArray:
    """Counts of a table whose columns are independent and have these margins; or of many, of shape ``(tables, size)``
    each.
    """
    out = np.array(float(max(rows, 1)))
    for axis, margin in enumerate(margins):
        out = out[..., None] * (margin / max(rows, 1)).reshape(*margin.shape[:-1], *[1] * axis, margin.shape[-1])
    return out


def lines(tables: FloatArray | Sequence[FloatArray]) -> FloatArray:
    """Of tables of one shape the cells of each in one line, shape ``(tables, cells)``."""
    return np.asarray(tables).reshape(len(tables), -1)


def of_columns(known: Sequence[FloatArray], workload: Workload, alike: Sequence[int]) -> list[FloatArray]:
    """What is known of each column, by axis of some tables of one shape: each of shape ``(tables, size)``."""
    return [np.array([known[c] for c in axis]) for axis in zip(*(workload.marginals[q] for q in alike), strict=True)]


def independent_tables(
    workload: Workload, positions: Iterable[int], margins: Sequence[FloatArray], rows: int
) -> Iterator[tuple[int, FloatArray]]:
    """Counts of tables whose columns are independent, with their positions; those of one shape follow each other."""
    for alike in workload.alike(positions):
        yield from zip(alike, independent_counts(of_columns(margins, workload, alike), rows), strict=True)


def with_margins(tables: FloatArray, margins: Sequence[FloatArray]) -> FloatArray:
    """The nearest tables with these margins, one for each axis, shape ``(tables, size)``; they agree on their sum."""
    size = tables[0].size
    off = lines(tables).sum(axis=1) - margins[0].sum(axis=1)
    moved = tables + np.expand_dims((len(margins) - 1) * off / size, tuple(range(1, tables.ndim)))
    for axis, margin in enumerate(margins, 1):
        others = tuple(a for a in range(1, tables.ndim) if a != axis)
        moved = moved + np.expand_dims((margin - tables.sum(axis=others)) * margin.shape[1] / size, others)
    return np.asarray(moved)


def sums_of(table: FloatArray, axis: int) -> FloatArray:
    """Sums over all columns of a table but one."""
    return np.asarray(table.sum(axis=tuple(a for a in range(table.ndim) if a != axis)))


def share_kept(values: FloatArray, prior: FloatArray, noise: float, left: float = 1.0) -> FloatArray:
    """Share of each value that a posterior mean around 0 keeps.

    The factor of the prior variance is estimated by moments, weighted by the prior (Morris 1983).

    Args:
        prior: variance of each value but for the factor, in the same shape.
        noise: variance of that of a value, above 0.
        left: the share of the noise that is still there once rows have been fitted.
    """
    spread = float(np.sum(prior**2))
    if spread == 0:
        return np.zeros_like(values)
    excess = float(np.sum(prior * (values**2 - noise))) - _CAUTION * noise * np.sqrt(2 * spread)
    signal = max(0.0, excess / spread) * prior
    return np.asarray(signal / (signal + left * noise))


def mixing(likely: FloatArray, weights: FloatArray, start: FloatArray, steps: int) -> FloatArray:
    """How often each of some values occurs, so that what was observed is most likely: by expectation and maximization.

    Args:
        likely: of each observation if it comes of a value, but for a factor of its own; shape ``(observed, values)``.
        weights: how often each was observed, with the sum 1.
        start: what is taken before the first step, with the sum 1.
    """
    found = start
    for _ in range(steps):
        found = found * ((weights / (likely @ found)) @ likely)
    return found


def in_parts(shares: FloatArray) -> FloatArray:
    """Rounded to ``PARTS``."""
    return np.asarray(np.round(shares * PARTS) / PARTS)


def simplex(values: FloatArray, total: FloatArray | float) -> FloatArray:
    """The nearest non-negative vector that sums to ``total``. Source: Held, Wolfe, Crowder 1974.

    Args:
        values: shape ``(..., size)``; each of its vectors has a total of its own, shape ``(...)``.
    """
    totals = np.asarray(total, dtype=np.float64)[..., None]
    if not (totals > 0).any():
        return np.zeros_like(values)
    ordered, numbers = np.sort(values)[..., ::-1], np.arange(1, values.shape[-1] + 1)
    excess = np.cumsum(ordered, axis=-1) - totals
    # A total below the last bits of the largest leaves that one alone.
    above = np.where(ordered * numbers > excess, numbers, 1).max(axis=-1, keepdims=True)
    level = np.take_along_axis(excess, above - 1, axis=-1) / above
    return np.where(totals > 0, np.maximum(values - level, 0.0), 0.0)
