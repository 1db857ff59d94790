"""What tables of nested grids say together about another column: level by level, from coarse cells to fine ones.

Sums over a finer grid are one more measurement of the coarser one. What a grid adds to the one above it, its detail, is
shrunk towards none on its own, so that rows aim at one thing on all grids. How large details are is told by those of
all columns and grids together (:mod:`synthstream.fit.strengths`). No cell holds less than nothing, and what all values
of a column have in a cell is what the grid alone says.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from synthstream.constraints import Group
from synthstream.fit.beyond import Tables, freedom
from synthstream.fit.strengths import Noisy, shrunk_together
from synthstream.fit.targets import SMALLEST, independent_counts
from synthstream.workload import FloatArray, IntArray, Workload

# Rounds of iterative proportional fitting.
_ROUNDS = 4


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


class _Step(NamedTuple):
    """From a grid to the next one: in which cell each lies, which part of that it holds, and its prior variance."""

    up: IntArray
    part: FloatArray
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


def of_nests(
    nests: Sequence[Nest], associations: Mapping[int, FloatArray], tables: Tables
) -> Iterator[tuple[int, FloatArray, FloatArray]]:
    """Posterior means of associations with nested grids, and the variance of their noise, by position of a table.

    Those of a finer grid add up to those of a coarser one.

    Args:
        associations: what tables hold beyond independent columns, by position.
        tables: what else is known of them.
    """
    workload, steps = tables.workload, [_steps(nest, tables) for nest in nests]
    details = dict[tuple[int, ...], Noisy]()
    for nest, own in zip(nests, steps, strict=True):
        for others, positions in nest.tables:
            values = _pooled(nest, workload, associations, tables.noises, positions)
            details |= zip(((q,) for q in positions), _details(others, own, values, tables), strict=True)
    each = shrunk_together(details, tables.left)
    for nest, own in zip(nests, steps, strict=True):
        for others, positions in nest.tables:
            independent = independent_counts([tables.margins[c] for c in others], tables.rows).reshape(-1, 1)
            mean, error, above = np.zeros((1, 1)), np.zeros((1, 1)), independent
            if len(others) > 1:  # they go together by themselves, too
                above = np.maximum(above + each[positions[0]].mean.sum(axis=1, keepdims=True), 0.0)
            for level, (q, grid, step) in enumerate(zip(positions, nest.columns, own, strict=True)):
                around = mean - _sums(each[q].mean, step.up, len(mean.T)) if level else mean
                error = each[q].error + step.part**2 * error[:, step.up]
                usual, margin = independent * (tables.margins[grid] / tables.rows), tables.margins[grid]
                above = _possible(usual + each[q].mean + step.part * around[:, step.up], step.up, above, margin)
                mean = above - usual
                yield q, _back(mean, workload, q, grid), _back(error, workload, q, grid)


def _possible(cells: FloatArray, up: IntArray, above: FloatArray, margin: FloatArray) -> FloatArray:
    """Counts at least 0 that add up to those of the cells around them, and nearly to the grid's own.

    By iterative proportional fitting (Deming and Stephan 1940). Rows cannot follow a target below 0, and would have too
    many events elsewhere for it.

    Args:
        cells: of each other value and cell, ``(others, cells)``.
        up, above: in which cell each lies, and counts of those, ``(others, cells around)``.
        margin: counts of the grid's cells.
    """
    cells = np.maximum(cells, 0.0)
    for _ in range(_ROUNDS):
        cells = cells * _factor(margin, cells.sum(axis=0))
        cells = cells * _factor(above, _sums(cells, up, len(above.T)))[:, up]
    return cells


def _factor(wanted: FloatArray, found: FloatArray) -> FloatArray:
    return np.where(found > 0, wanted / np.maximum(found, SMALLEST), 1.0)


def _steps(nest: Nest, tables: Tables) -> list[_Step]:
    """Of each grid what tables of any other columns have in common."""
    steps = []
    for level, grid in enumerate(nest.columns):
        prior = tables.priors[grid]
        if level:
            up = nest.parents[level - 1]
            part = _parts(tables.margins[grid], up)
            steps.append(_Step(up, part, prior * (1 - part)))
        else:
            up = np.zeros(prior.size, dtype=np.int64)
            steps.append(_Step(up, np.full(prior.size, 1 / prior.size), prior))
    return steps


def _details(
    others: tuple[int, ...], steps: Sequence[_Step], levels: Sequence[tuple[FloatArray, FloatArray]], tables: Tables
) -> Iterator[Noisy]:
    """What each grid adds to tables of other columns, ``(others, cells)``: a cell less its part of the cell around it;
    of the coarsest grid, less its part of all of them.
    """
    alike = [_alike(tables.priors[c], tables.margins[c] / tables.rows) for c in others]
    outer, around = functools.reduce(np.multiply.outer, alike).ravel(), 1
    free = freedom(tuple(one.size for one in alike))
    for level, ((up, part, prior), (values, noise)) in enumerate(zip(steps, levels, strict=True)):
        rest = np.maximum(noise * (1 - 2 * part) + part**2 * np.bincount(up, noise)[up], 0.0)
        own = values - part * _sums(values, up)[:, up] if level else values
        cells = np.broadcast_to(rest, own.shape)
        yield Noisy(own[None], np.multiply.outer(outer, prior)[None], cells[None], free * max(up.size - around, 1))
        around = up.size


def _alike(prior: FloatArray, shares: FloatArray) -> FloatArray:
    """Prior variances of a column's codes, scaled so that columns of one factor have relative associations of one size.

    What goes with a rare value is then taken to be small: with twice as many events a cell is off by twice as many.
    """
    return prior * (float(np.sum((shares * (1 - shares)) ** 2)) / max(float(prior.sum()), SMALLEST))


def _pooled(
    nest: Nest,
    workload: Workload,
    associations: Mapping[int, FloatArray],
    noises: Mapping[int, float],
    positions: Sequence[int],
) -> list[tuple[FloatArray, FloatArray]]:
    """A set's associations on each grid, ``(others, cells)``, with the sums of finer grids, and variances by cell."""
    found: list[tuple[FloatArray, FloatArray]] = []
    for level in range(len(nest.columns) - 1, -1, -1):
        q, grid = positions[level], nest.columns[level]
        size = workload.sizes[grid]
        values = np.moveaxis(associations[q], workload.marginals[q].index(grid), -1).reshape(-1, size)
        noise = np.full(size, noises[q] * size / max(size - 1, 1))  # without what known margins take from it
        if found:
            up = nest.parents[level]
            sums, theirs = _sums(found[-1][0], up, size), np.bincount(up, found[-1][1], size)
            share = np.divide(theirs, theirs + noise, out=np.zeros(size), where=noise > 0)  # of one code: no noise
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
