"""What tables of nested grids say together about another column: level by level, from coarse cells to fine ones.

Sums over a finer grid are one more measurement of the coarser one. What a grid adds to the one above it, its detail, is
shrunk towards none on its own, so that rows aim at one thing on all grids. How large details are is told by those of
all columns on a grid, as far as they do not differ by more than noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from synthstream.constraints import Group
from synthstream.fit.beyond import Tables
from synthstream.fit.targets import SMALLEST
from synthstream.workload import FloatArray, IntArray, Workload

# Only variation beyond this number of standard deviations of the noise counts. More than of other tables: there are
# many of these, most hold little, and what noise puts there moves whole districts.
_CAUTION = 1.0


class Nest(NamedTuple):
    """Grids that contain each other, and the tables that cross them.

    Args:
        columns: of the grids that are crossed, coarsest first.
        parents: of each grid but the first, in which cell of the grid before a cell lies.
        tables: for each set of other columns these, and the tables' positions in the workload, one for each grid.
    """

    columns: tuple[int, ...]
    parents: tuple[IntArray, ...]
    tables: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


class _Detail(NamedTuple):
    """What a grid adds, the variance of its noise, and its prior variance but for a factor; ``(others, cells)``."""

    values: FloatArray
    noise: FloatArray
    prior: FloatArray


def grids_of(groups: Sequence[Group]) -> set[int]:
    """Columns that are grids of a place."""
    return {c for group in groups for grids in group.nests for c in grids.columns}


def nests_of(workload: Workload, groups: Sequence[Group]) -> list[Nest]:
    """All tables that cross one grid of a nest with columns of none, by the grids that a set of these is crossed with.

    Example:
        >>> from synthstream.constraints import Grids
        >>> grids = Group.of([1, 2], np.array([[0, 0], [0, 1], [1, 2]]), nests=[Grids((1, 2), (0, 1), 1)])
        >>> nest, = nests_of(Workload(sizes=(5, 2, 3), marginals=((0, 1), (0, 2), (1,))), [grids])
        >>> nest.columns, nest.parents, nest.tables
        ((1, 2), (array([0, 0, 1]),), (((0,), (0, 1)),))
    """
    nested, found = grids_of(groups), []
    for group in groups:
        for grids in group.nests:
            crossed: dict[tuple[int, ...], dict[int, int]] = {}
            for q, marginal in enumerate(workload.marginals):
                others = tuple(c for c in marginal if c not in nested)
                if others and len(others) == len(marginal) - 1 and set(marginal) & {*grids.columns}:
                    grid, = set(marginal) - set(others)  # fmt: skip
                    crossed.setdefault(others, {})[grid] = q
            by_grids: dict[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
            for others, tables in crossed.items():
                held = tuple(c for c in grids.columns if c in tables)
                by_grids.setdefault(held, []).append((others, tuple(tables[c] for c in held)))
            for held, listed in by_grids.items():
                parents = tuple(_parents(group, *both, workload.sizes) for both in pairwise(held))
                found.append(Nest(held, parents, tuple(listed)))
    return found


def _parents(group: Group, coarse: int, fine: int, sizes: Sequence[int]) -> IntArray:
    up = np.zeros(sizes[fine], dtype=np.int64)
    up[group.combinations[:, group.columns.index(fine)]] = group.combinations[:, group.columns.index(coarse)]
    return up


def of_nest(
    nest: Nest, associations: Mapping[int, FloatArray], tables: Tables
) -> Iterator[tuple[int, FloatArray, FloatArray]]:
    """Posterior means of a nest's associations, and the variance of their noise, by position of a table.

    Those of a finer grid add up to those of a coarser one.

    Args:
        associations: what tables hold beyond independent columns, by position.
        tables: what else is known of them.
    """
    workload, margins, priors = tables.workload, tables.margins, tables.priors
    known = [_pooled(nest, workload, associations, tables.noises, k) for k in range(len(nest.tables))]
    alike = [_alike(own, margin / tables.rows) for own, margin in zip(priors, margins, strict=True)]
    outer = [functools.reduce(np.multiply.outer, [alike[c] for c in others]).ravel() for others, _ in nest.tables]
    above: list[tuple[FloatArray, FloatArray]] = []
    for level, grid in enumerate(nest.columns):
        up = nest.parents[level - 1] if level else np.zeros(workload.sizes[grid], dtype=np.int64)
        part = _parts(margins[grid], up) if level else np.full(len(up), 1 / len(up))
        prior = priors[grid] * (1 - part) if level else priors[grid]
        details = []
        for (values, noise), others in zip((levels[level] for levels in known), outer, strict=True):
            # A cell less its part of the cell around it; of the coarsest grid, less its part of all of them.
            rest = np.maximum(noise * (1 - 2 * part) + part**2 * np.bincount(up, noise)[up], 0.0)
            own = values - part * _sums(values, up)[:, up] if level else values
            details.append(_Detail(own, np.broadcast_to(rest, own.shape), np.multiply.outer(others, prior)))
        found = []
        for k, (detail, factor) in enumerate(zip(details, _factors(details), strict=True)):
            signal = factor * detail.prior
            kept = signal / np.maximum(signal + tables.left * detail.noise, SMALLEST)
            mean, error = kept * detail.values, kept**2 * detail.noise
            if level:
                mean += part * (above[k][0] - _sums(mean, up, len(above[k][0].T)))[:, up]
                error = error + part**2 * above[k][1][:, up]
            found.append((mean, error))
            q = nest.tables[k][1][level]
            yield q, _back(mean, workload, q, grid), _back(error, workload, q, grid)
        above = found


def _alike(prior: FloatArray, shares: FloatArray) -> FloatArray:
    """Prior variances of a column's codes, scaled so that columns of one factor have relative associations of one size.

    What goes with a rare value is then taken to be small: with twice as many events a cell is off by twice as many.
    """
    return prior * (float(np.sum((shares * (1 - shares)) ** 2)) / max(float(prior.sum()), SMALLEST))


def _pooled(
    nest: Nest, workload: Workload, associations: Mapping[int, FloatArray], noises: Mapping[int, float], k: int
) -> list[tuple[FloatArray, FloatArray]]:
    """A set's associations on each grid, ``(others, cells)``, with the sums of finer grids, and variances by cell."""
    found: list[tuple[FloatArray, FloatArray]] = []
    for level in range(len(nest.columns) - 1, -1, -1):
        q, grid = nest.tables[k][1][level], nest.columns[level]
        size = workload.sizes[grid]
        values = np.moveaxis(associations[q], workload.marginals[q].index(grid), -1).reshape(-1, size)
        noise = np.full(size, noises[q] * size / max(size - 1, 1))  # without what known margins take from it
        if found:
            up = nest.parents[level]
            sums, theirs = _sums(found[-1][0], up, size), np.bincount(up, found[-1][1], size)
            share = theirs / (theirs + noise)
            values, noise = share * values + (1 - share) * sums, share * noise
        found.append((values, noise))
    return found[::-1]


def _parts(margin: FloatArray, up: IntArray) -> FloatArray:
    """Which part of the cell around it each cell holds; equal ones where that is empty."""
    whole, number = np.bincount(up, margin), np.bincount(up)
    return np.where(whole[up] > 0, margin / np.maximum(whole[up], SMALLEST), 1 / number[up])


def _sums(values: FloatArray, up: IntArray, size: int = 0) -> FloatArray:
    """Sums over each cell around, for each of the other columns' values."""
    return np.stack([np.bincount(up, row, size) for row in values])


def _back(values: FloatArray, workload: Workload, q: int, grid: int) -> FloatArray:
    """In the shape of a table."""
    axis = workload.marginals[q].index(grid)
    others = [size for a, size in enumerate(workload.shapes[q]) if a != axis]
    return np.moveaxis(values.reshape(*others, values.shape[1]), -1, axis)


def _factors(details: Sequence[_Detail]) -> FloatArray:
    """Of the prior variance of each detail: its own estimate, drawn to the mean of all by the noise of both.

    Own ones are by moments, weighted by the prior (Morris 1983); how far they differ, by DerSimonian and Laird 1986.
    """
    spread = np.array([float(np.sum(one.prior**2)) for one in details])
    noise = np.array([float(np.sum((one.prior * one.noise) ** 2)) for one in details])
    clear = (spread > 0) & (noise > 0)
    factors = np.zeros(len(details))
    if not clear.any():
        return factors
    excess = np.array([float(np.sum(one.prior * (one.values**2 - one.noise))) for one in details])
    own, variance = excess[clear] / spread[clear], 2 * noise[clear] / spread[clear] ** 2
    weight = 1 / variance
    mean = float(np.sum(weight * own) / np.sum(weight))
    free = float(np.sum(weight) - np.sum(weight**2) / np.sum(weight))
    beyond = float(np.sum(weight * (own - mean) ** 2)) - (len(own) - 1)
    between = max(beyond, 0.0) / free if len(own) > 1 and math.isfinite(free) and free > 0 else 0.0
    if len(own) == 1:
        factors[clear] = np.maximum(own - _CAUTION * np.sqrt(variance), 0.0)
        return factors
    weight = 1 / (between + variance)
    mean, error = max(float(np.sum(weight * own) / np.sum(weight)), 0.0), 1 / float(np.sum(weight))
    share = between / (between + variance)
    caution = _CAUTION * np.sqrt(share * variance + (1 - share) ** 2 * error)
    factors[clear] = np.maximum(mean + share * (own - mean) - caution, 0.0)
    return factors
