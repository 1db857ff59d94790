"""How many events lie in each cell of a place, from noisy counts of nested grids: from coarse cells to fine ones.

What a grid adds to the one above it is its detail: how the events of a cell lie in the cells of the next grid. Most of
it is noise. So it is drawn towards what the neighbours say: a cell leans to its fuller neighbours, as far as all cells
of a grid do so. What is left is drawn to none as far as noise explains it, grid by grid (empirical Bayes).
Post-processing. Nothing here is a matrix product, or a power: their last bits depend on processor and threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthstream.constraints import Grids, Group
from synthstream.fit.targets import SMALLEST, simplex
from synthstream.leaning import halved
from synthstream.workload import FloatArray

# Of a grid that no table holds nothing is known: as if its counts had this variance.
_UNKNOWN = 1e15
# Beforehand the neighbours are thought to be right: as if so much had been read of it, in variances of noise.
_BEFORE = 0.5


def with_grids(
    groups: Sequence[Group], counts: Sequence[FloatArray], variances: Sequence[float], rows: int, *, summed: bool
) -> list[FloatArray]:
    """Counts of all columns, of which those of grids are estimates from all grids of a place together.

    Args:
        groups: whose places are meant.
        counts, variances: of each column's codes, noisy; and the variance of one, by column.
        rows: how many there are in all.
        summed: whether sums of all finer grids tell of a coarser one, or those of the next one alone. Counts that are
            smoothed over epochs take a little from full cells and give it to others, which adds up.
    """
    found = list(counts)
    for grids in (grids for group in groups for grids in group.nests):
        for c, cells in zip(grids.columns, smoothed(grids, counts, variances, rows, summed=summed), strict=True):
            found[c] = cells
    return found


def smoothed(
    grids: Grids, counts: Sequence[FloatArray], variances: Sequence[float], rows: int, *, summed: bool = True
) -> list[FloatArray]:
    """Counts of all codes of each grid, at least 0: those of a finer grid add up to those of a coarser one."""
    noises = [variances[c] or _UNKNOWN for c in grids.columns]
    cells = [counts[c][: 2**level] for c, level in zip(grids.columns, grids.levels, strict=True)]
    known = _pooled(cells, noises, summed=summed)
    aside = [counts[c][2**level :] for c, level in zip(grids.columns, grids.levels, strict=True)]
    outside = np.maximum(np.average(aside, 0, 1 / np.array(noises)), 0.0)
    outside *= min(rows / max(float(outside.sum()), 1.0), 1.0)
    mass, found = np.array([max(rows - float(outside.sum()), 0.0)]), []  # by its last bits the sum may be above rows
    for own, noise in known:
        mass = _finer(mass, own, noise, grids.coordinates)
        found.append(np.concatenate([mass, outside]))
    return found


def _pooled(counts: Sequence[FloatArray], noises: Sequence[float], *, summed: bool) -> list[tuple[FloatArray, float]]:
    """Counts of each grid's cells together with the sums of finer ones, and the variance of one."""
    found: list[tuple[FloatArray, float]] = []
    for k in reversed(range(len(counts))):
        own, noise = counts[k], noises[k]
        if found:
            cells, error = found[-1] if summed else (counts[k + 1], noises[k + 1])
            finer = _parts(cells, len(own))
            error *= finer.shape[1]
            share = error / (error + noise)
            own, noise = share * own + (1 - share) * finer.sum(axis=1), share * noise
        found.append((own, noise))
    return found[::-1]


def _finer(mass: FloatArray, own: FloatArray, noise: float, coordinates: int) -> FloatArray:
    """Masses of the cells of a finer grid."""
    parts = len(own) // len(mass)
    even, noise = np.repeat(mass / parts, parts), noise * (1 - 1 / parts)
    detail = own - np.repeat(_parts(own, len(mass)).mean(axis=1), parts)
    way = _leaning(mass, parts, coordinates, 1.0) - even
    before, along, square = _BEFORE * noise, float(np.sum(way * detail)), float(np.sum(way * way))
    factor = min(max((along + before) / max(square + before, SMALLEST), 0.0), 1.0)
    way = _leaning(mass, parts, coordinates, factor) - even
    # The variance of details is taken to be in proportion to the power 3/2 of what an even spread would give a cell.
    prior, rest = even * np.sqrt(even), detail - way
    spread = float(np.sum(prior * prior))
    signal = max(float(np.sum(prior * (rest**2 - noise))) / spread, 0.0) * prior if spread > 0 else prior
    kept = signal / np.maximum(signal + noise, SMALLEST)
    return simplex(_parts(even + way + kept * rest, len(mass)), mass).ravel()


def _leaning(mass: FloatArray, parts: int, coordinates: int, factor: float) -> FloatArray:
    """What neighbours say of the cells of a finer grid."""
    for _ in range(parts.bit_length() - 1):
        mass = halved(mass, coordinates, factor)
    return mass


def _parts(values: FloatArray, cells: int) -> FloatArray:
    return values.reshape(cells, -1)
