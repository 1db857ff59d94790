"""Moves of columns of which one decides the others: a row takes the codes that another row has in all of them.

Moves of one column at a time stop there: between two combinations that occur lie some that do not, and to pass them
costs. A row that lies where hardly one should is offered what other rows have. That is allowed by public constraints,
as columns that these join change together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.fit.randomness import below, step
from synthstream.workload import FloatArray, IntArray, Workload

# A column decides another one if who knows it guesses the other wrongly less often, by this share at least.
_DECIDES = 0.75
# A row is offered what so many others have, at most.
_OFFERED = 8
# Work of one release at most, in cells looked up: some tenths of a second.
_AT_MOST = 20_000_000


class _Tables(NamedTuple):
    """For the loops.

    Args:
        tables: marginals that hold a column of the set; first, ``within`` of them, those that hold no other.
        starts, places, steps: where each marginal's columns begin in ``places``; how far a step of them moves.
        offsets: where each marginal begins among all cells.
        chosen: of each column, whether it is in the set.
    """

    tables: IntArray
    within: int
    starts: IntArray
    places: IntArray
    steps: IntArray
    offsets: IntArray
    chosen: NDArray[np.bool_]


def deciding(cells: FloatArray, workload: Workload, groups: Sequence[Sequence[int]] = ()) -> list[tuple[int, ...]]:
    """Sets of columns: each column that decides others, with these. ``groups`` of columns are never divided."""
    decided = [{c} for c in range(len(workload.sizes))]
    for alike in workload.alike(q for q, marginal in enumerate(workload.marginals) if len(marginal) == 2):
        tables = np.maximum(cells[workload.cells_of(alike)], 0.0)
        for axis in (0, 1):
            for k in np.flatnonzero(_saved(tables, axis) >= _DECIDES).tolist():
                marginal = workload.marginals[alike[k]]
                decided[marginal[axis]].add(marginal[1 - axis])
    found = {
        tuple(sorted(own.union(*(group for group in groups if not own.isdisjoint(group)))))
        for own in decided
        if len(own) > 1
    }
    # Columns of one group alone are moved together anyway.
    return sorted(found.difference(tuple(sorted(group)) for group in groups))


def _saved(tables: FloatArray, axis: int) -> FloatArray:
    """How much less often who knows one column guesses the other wrongly, as a share, shape ``(tables,)``: lambda of
    Goodman and Kruskal (1954).

    Args:
        tables: of pairs of columns, of one shape.
        axis: of the column that is known, 0 or 1.
    """
    total, other = tables.sum(axis=(1, 2)), 2 - axis
    wrong = total - tables.sum(axis=1 + axis).max(axis=1)
    left = total - tables.max(axis=other).sum(axis=1)
    saved = 1.0 - np.divide(left, wrong, out=np.ones(len(tables)), where=wrong > 0.5)
    return np.asarray(saved.round(6))  # the last bits of sums depend on the processor


def follow(
    codes: NDArray[np.uint8 | np.int32],
    residual: FloatArray,
    aim: FloatArray,
    weights: FloatArray,
    noises: FloatArray,
    sets: Sequence[tuple[int, ...]],
    workload: Workload,
    *,
    least: float,
    state: int,
) -> None:
    """Offer rows other codes of each of some sets of columns; ``codes``, shape ``(columns, rows)``, and ``residual``
    change in place.

    Args:
        aim: counts, over all cells, that the rows should have.
        noises: for each marginal, variance of the noise of a cell, weighted.
        least: what a move must gain, and by how much a cell is too full, in standard deviations of this noise.
    """
    starts, places, steps, offsets = workload.flat
    found = []
    for columns in sets:
        chosen = np.isin(np.arange(len(workload.sizes)), columns)
        held = [chosen[list(marginal)] for marginal in workload.marginals]
        within = [q for q, mine in enumerate(held) if mine.size and mine.all()]
        tables = np.array([*within, *(q for q, mine in enumerate(held) if mine.any() and not mine.all())])
        found.append(_Tables(tables, len(within), starts, places, steps, offsets, chosen))
    length = min(codes.shape[1], _AT_MOST // max(sum(len(one.tables) for one in found), 1))
    for one in found:
        state = _follow(length, codes, residual, aim, weights, noises, one, least, np.uint64(state))


@numba.njit(cache=True, nogil=True)
def _follow(length, codes, residual, aim, weights, noises, known, least, state):  # type: ignore[no-untyped-def]
    """For some rows, in a circle. One of the first others that would do is followed: what is common is drawn often."""
    rows = codes.shape[1]
    state, bits = step(state)
    begin = below(bits, rows)
    for i in range(length):
        row = (begin + i) % rows
        if not _misplaced(row, codes, residual, aim, weights, noises, known, least):
            continue
        for _ in range(_OFFERED):
            state, bits = step(state)
            other = below(bits, rows)
            gain, noise = 0.0, 0.0
            for q in known.tables:
                way = _way(q, codes, row, other, known)
                if way != 0:
                    cell = _cell(q, codes, row, known)
                    gain += weights[q] * (residual[cell] - residual[cell + way] - 1.0)
                    noise += noises[q]
            if gain > 0.0 and gain * gain > least * least * noise:
                _take(row, other, codes, residual, known)
                break
    return state


@numba.njit(cache=True, nogil=True)
def _misplaced(row, codes, residual, aim, weights, noises, known, least):  # type: ignore[no-untyped-def]
    """Whether a row lies in a cell that holds more than twice what it should, and more than noise explains."""
    for t in range(known.within):
        q = known.tables[t]
        cell = _cell(q, codes, row, known)
        if residual[cell] > max(aim[cell], 0.5) and weights[q] * residual[cell] > least * np.sqrt(noises[q]):
            return True
    return False


@numba.njit(cache=True, inline="always")
def _cell(q, codes, row, known):  # type: ignore[no-untyped-def]
    """Where a row lies among all cells."""
    cell = known.offsets[q]
    for k in range(known.starts[q], known.starts[q + 1]):
        cell += codes[known.places[k], row] * known.steps[k]
    return cell


@numba.njit(cache=True, inline="always")
def _way(q, codes, row, other, known):  # type: ignore[no-untyped-def]
    """How far a row moves in a marginal when it takes the set's codes of another."""
    way = 0
    for k in range(known.starts[q], known.starts[q + 1]):
        column = known.places[k]
        if known.chosen[column]:
            way += (np.int64(codes[column, other]) - np.int64(codes[column, row])) * known.steps[k]
    return way


@numba.njit(cache=True, nogil=True)
def _take(row, other, codes, residual, known):  # type: ignore[no-untyped-def]
    """Give a row the set's codes of another, and set the residuals right."""
    for q in known.tables:
        cell = _cell(q, codes, row, known)
        residual[cell] -= 1.0
        residual[cell + _way(q, codes, row, other, known)] += 1.0
    for column in np.flatnonzero(known.chosen):
        codes[column, row] = codes[column, other]
