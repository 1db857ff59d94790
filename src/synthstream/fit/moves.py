"""The row search: exact column moves (coordinate descent over rows, one column at a time).

For a row and a column every value is scored in one pass. The gain of a value is how far the weighted squared distance
to the targets falls; noise in the tables makes gains of its own, whose standard deviation is known. So a row moves only
for a gain beyond a number of these, and the search ends by itself once hardly a row moves.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numba
import numpy as np

from synthstream.fit.aims import Targets
from synthstream.fit.blocks import JOINT, blocks_of, shift, work
from synthstream.fit.lanes import LANES, add_up, change_all
from synthstream.fit.randomness import below, share, step
from synthstream.fit.together import deciding, follow
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

# Rows are visited in blocks of a quarter of them, so that a search that finds nothing costs little; small populations
# have blocks of at least so many rows.
_BLOCKS, _AT_LEAST = 4, 2_048
# Work of one search at most, in vectors added, for each block of rows that it may visit: about a second at the
# releases of a stream, a few at the first one.
_AT_MOST = 40_000_000
# Counts of a smaller variance are exact: beside one of 10^-200, tables of 10^-6 would have no weight at all.
_EXACT = 1e-6
# With eased weights, a move's least gain: to follow noise there is not undone afterwards.
_EASED = 0.25
# Lines of so many rows are looked up together.
_TILE = 64


class Effort(NamedTuple):
    """How far a search goes.

    Args:
        gain: of a move, the least, in standard deviations of its noise.
        lean: towards common values: what a value e times as rare must gain more, in the same unit.
        still: the search ends after a block of which at most this share of the rows has moved.
        blocks: at most so many blocks of rows are visited.
        together: where several columns change together, the least gain of a move; see
            :func:`synthstream.fit.together.follow`.
        eased: whether rows first search with the square roots of all weights, for gains beyond ``_EASED``. A table that
            seems far more exact than others lets no row pass through a cell where it is one too many.
    """

    gain: float
    lean: float
    still: float
    blocks: int
    together: float = math.inf
    eased: bool = False


class _Layout(NamedTuple):
    """For the loops. A holder is a marginal together with one of its columns, all holders of a column side by side.
    Its lines are the cells that differ in this column alone.

    Args:
        first: of each column, its first holder; and the number of holders.
        marginal, offset, stride, lines: of each holder: which marginal; where it begins; how far a step of the column
            moves in it; its number of lines.
        start: of each holder, where its other columns begin in ``columns`` and ``steps``; and their number.
        columns, steps, strides: the other columns; how many lines, and how many cells, a step of each of them moves.
    """

    first: IntArray
    marginal: IntArray
    offset: IntArray
    stride: IntArray
    lines: IntArray
    start: IntArray
    columns: IntArray
    steps: IntArray
    strides: IntArray


def move(
    codes: CodeArray,
    counts: IntArray,
    aim: Targets,
    variance: FloatArray,
    workload: Workload,
    *,
    effort: Effort,
    state: int,
) -> IntArray:
    """Search from ``codes``, which change in place; gives their counts, shape ``(cells,)``.

    Args:
        counts: of the rows as they are.
        aim: its cells; the errors that are left in them; margins: of values that improve a row one is drawn in
            proportion to these; joints: their columns move together.
        variance: of a cell of each marginal as measured; weights are in inverse proportion to it.
        state: of the random numbers.

    One thread: a second one would have to see the moves of the first in an order that does not depend on its speed.
    """
    layout, sizes = _layout(workload), np.array(workload.sizes, dtype=np.int64)
    joints, residual = aim.joints, counts - aim.cells
    least = max(float(variance.min()), _EXACT)
    weights = least / np.maximum(variance, least)
    together = {c for joint in joints for c in joint.group.columns}
    movers = [*(c for c in range(len(sizes)) if c not in together), *(len(sizes) + g for g in range(len(joints)))]
    columns = np.ascontiguousarray(codes.astype(np.uint8 if max(workload.sizes) <= 256 else np.int32).T)
    blocks, visited = blocks_of(joints, workload), np.array(movers, dtype=np.int64)
    chances, budget, going = _chances(aim), _AT_MOST * min(effort.blocks, 32), state
    searches = [(weights, effort)]
    if effort.eased:
        searches.insert(0, (np.sqrt(weights), effort._replace(gain=max(effort.gain, _EASED))))
    for own, how in searches:
        going = _search(
            columns,
            residual,
            own,
            chances,
            sizes,
            layout,
            blocks,
            visited,
            how,
            aim.errors,
            budget,
            np.uint64(going),
        )
    if len(codes) and effort.together < math.inf:
        sets = deciding(aim.cells, workload, [joint.group.columns for joint in joints])
        least, noises = effort.together, weights**2 * aim.errors
        follow(columns, residual, aim.cells, weights, noises, sets, workload, least=least, state=state)
    codes[:] = columns.T
    return np.rint(residual + aim.cells).astype(np.int64)


def _chances(aim: Targets) -> FloatArray:
    """Expected rows of each code, column after column; -1 of those that no row may have."""
    chances = [margin.copy() for margin in aim.margins]
    for column, codes in aim.allowed.items():
        chances[column][np.setdiff1d(np.arange(chances[column].size), codes)] = -1.0
    return np.concatenate(chances)


@functools.lru_cache(maxsize=1)  # releases of a stream have one
def _layout(workload: Workload) -> _Layout:
    first, start, holders, others = [0], [0], [], []
    for c, size in enumerate(workload.sizes):
        for q, marginal in enumerate(workload.marginals):
            if c not in marginal:
                continue
            stride = int(workload.strides[q, c])
            holders.append((q, int(workload.offsets[q]), stride, int(workload.lengths[q]) // size))
            for b in marginal:
                if b != c:
                    step = int(workload.strides[q, b])
                    others.append((b, step // size if step > stride else step, step))
            start.append(len(others))
        first.append(len(holders))
    table = np.array(holders, dtype=np.int64).reshape(-1, 4)
    rest = np.array(others, dtype=np.int64).reshape(-1, 3)
    parts = [np.array(first), *table.T, np.array(start), *rest.T]
    return _Layout(*(np.ascontiguousarray(part, dtype=np.int64) for part in parts))


@numba.njit(cache=True, nogil=True)
def _search(  # type: ignore[no-untyped-def]
    codes, residual, weights, chances, sizes, layout, blocks, movers, effort, errors, budget, state
):
    """Visit blocks of rows in a circle, each column by column, until rows are still or the work is done.

    ``movers``: columns, and groups of them, which are numbered after all columns.
    """
    width, rows = codes.shape
    noises = 2.0 * JOINT * weights**2 * errors  # of the gain of a row that leaves one cell of a table for another
    places = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
    order = movers.copy()
    per_row = 0
    for c in movers:
        if c >= width:
            per_row += work(c - width, blocks)
            continue
        per_row += (layout.first[c + 1] - layout.first[c]) * ((sizes[c] + LANES - 1) // LANES)
    block = min(rows, max((rows + _BLOCKS - 1) // _BLOCKS, _AT_LEAST))
    length = max(1, min(block, budget // max(per_row, 1)))
    state, bits = step(state)
    begin = below(bits, rows)
    for _ in range(effort.blocks):
        budget -= length * per_row
        if budget < 0:
            break
        for i in range(len(order) - 1, 0, -1):
            state, bits = step(state)
            j = below(bits, i + 1)
            order[i], order[j] = order[j], order[i]
        moved = 0
        for c in order:
            if c >= width:
                state, found = shift(c - width, begin, length, codes, residual, weights, blocks, effort, noises, state)
                moved += found
                continue
            chance = chances[places[c] : places[c + 1]]
            state, found = _column(c, begin, length, codes, residual, weights, chance, layout, effort, errors, state)
            moved += found
        begin = (begin + length) % rows
        if moved <= effort.still * length:
            break
    return state


@numba.njit(cache=True, nogil=True)
def _column(c, begin, length, codes, residual, weights, chance, layout, effort, errors, state):  # type: ignore[no-untyped-def]
    """Score all values of one column for some rows from ``begin`` on, in a circle; move rows. Their number is returned.

    Residuals of each line are laid side by side, in single precision, where rows use lines again and again; lines of a
    table that has more lines than there are rows are read in place.
    """
    rows, size = codes.shape[1], len(chance)
    padded = (size + LANES - 1) // LANES * LANES
    first, last = layout.first[c], layout.first[c + 1]
    lines, exact, places = _side_by_side(first, last, size, padded, length, residual, weights, layout)
    lean, gain = _thresholds(layout.marginal[first:last], chance, padded, weights, errors, effort)
    holders = np.flatnonzero(places)
    steps, ones = weights[layout.marginal[first + holders]].astype(np.float32), np.ones(len(holders))
    scores, starts = np.empty(padded, dtype=np.float32), np.empty((len(holders), _TILE), dtype=np.uint32)
    change, apart, moved, done = np.zeros(padded), np.zeros(padded, dtype=np.float32), 0, 0
    in_place = len(holders) < last - first
    likely = chance + 1e-9
    while done < length:
        begun = (begin + done) % rows
        tile = min(_TILE, length - done, rows - begun)
        _look_up(codes[:, begun : begun + tile], first + holders, padded, places[holders], layout, starts)
        for i in range(tile):
            row = begun + i
            for v in range(0, padded, LANES):
                add_up(scores, lines, starts, i, lean, v)  # type: ignore[call-arg]
            if in_place:
                _add_in_place(scores, codes[:, row], first, last, places, size, residual, weights, layout)
            old = np.int64(codes[c, row])
            limit = scores[old] - gain
            improving = False
            for v in range(padded):
                improving |= scores[v] < limit
            if not improving:
                continue
            state, new = _chosen(scores, limit, likely, state)
            codes[c, row] = new
            moved += 1
            change[old], change[new], apart[old], apart[new] = -1.0, 1.0, -1.0, 1.0
            for v in range(0, padded, LANES):
                if v <= old < v + LANES or v <= new < v + LANES:
                    change_all(lines, starts, i, apart, steps, v)  # type: ignore[call-arg]
                    change_all(exact, starts, i, change, ones, v)
            change[old], change[new], apart[old], apart[new] = 0.0, 0.0, 0.0, 0.0
            if in_place:
                _change_in_place(residual, codes[:, row], old, new, first, last, places, layout)
        done += tile
    _told(residual, exact, first, last, places, size, padded, layout)
    return state, moved


@numba.njit(cache=True, nogil=True)
def _thresholds(marginals, chance, padded, weights, errors, effort):  # type: ignore[no-untyped-def]
    """What a value of a column must gain for its rarity; and any value."""
    total, spread = 0.0, 0.0
    for q in marginals:
        total += weights[q]
        spread += 2.0 * weights[q] ** 2 * errors[q]
    noise = np.sqrt(spread)
    lean = np.full(padded, np.inf, dtype=np.float32)
    likely = np.maximum(chance, 0.0)
    lean[: len(chance)] = effort.lean * noise * np.log((chance.max() + 1.0) / (likely + 1.0))
    lean[: len(chance)][chance < 0.0] = np.inf
    return lean, np.float32(total + effort.gain * noise)


@numba.njit(cache=True, nogil=True)
def _look_up(codes, holders, padded, places, layout, starts):  # type: ignore[no-untyped-def]
    """Where the lines of some rows begin, holder by holder: ``starts``, shape ``(holders, rows)``."""
    for k in range(len(holders)):
        own = starts[k]
        own[:] = places[k]
        for o in range(layout.start[holders[k]], layout.start[holders[k] + 1]):
            column, step = codes[layout.columns[o]], np.uint32(layout.steps[o] * padded)
            for i in range(codes.shape[1]):
                own[i] += column[i] * step


@numba.njit(cache=True, inline="always")
def _cell(codes, h, layout):  # type: ignore[no-untyped-def]
    """Where a row's line of a holder begins among all cells."""
    cell = layout.offset[h]
    for k in range(layout.start[h], layout.start[h + 1]):
        cell += codes[layout.columns[k]] * layout.strides[k]
    return cell


@numba.njit(cache=True, nogil=True)
def _side_by_side(first, last, size, padded, length, residual, weights, layout):  # type: ignore[no-untyped-def]
    """Residuals of the holders' lines, weighted and as they are, padded; where each holder's lines begin.

    A holder with more lines than there are rows is read in place: it has a line of zeros, the first.
    """
    places = np.zeros(last - first, dtype=np.int64)
    end = padded
    for h in range(first, last):
        if layout.lines[h] <= length:
            places[h - first] = end
            end += layout.lines[h] * padded
    lines, exact = np.zeros(end, dtype=np.float32), np.zeros(end)
    for h in range(first, last):
        place = places[h - first]
        if place == 0:
            continue
        stride, weight = layout.stride[h], weights[layout.marginal[h]]
        for line in range(layout.lines[h]):
            cell = layout.offset[h] + line // stride * stride * size + line % stride
            for v in range(size):
                exact[place + line * padded + v] = residual[cell + v * stride]
                lines[place + line * padded + v] = weight * residual[cell + v * stride]
    return lines, exact, places


@numba.njit(cache=True, nogil=True)
def _told(residual, exact, first, last, places, size, padded, layout):  # type: ignore[no-untyped-def]
    """Bring residuals back from where they lay side by side."""
    for h in range(first, last):
        place, stride = places[h - first], layout.stride[h]
        if place == 0:
            continue
        for line in range(layout.lines[h]):
            cell = layout.offset[h] + line // stride * stride * size + line % stride
            for v in range(size):
                residual[cell + v * stride] = exact[place + line * padded + v]


@numba.njit(cache=True, nogil=True)
def _add_in_place(scores, codes, first, last, places, size, residual, weights, layout):  # type: ignore[no-untyped-def]
    """Add the lines that are not side by side."""
    for h in range(first, last):
        if places[h - first] == 0:
            stride, weight, cell = layout.stride[h], weights[layout.marginal[h]], _cell(codes, h, layout)
            for v in range(size):
                scores[v] += np.float32(weight * residual[cell + v * stride])


@numba.njit(cache=True, nogil=True)
def _change_in_place(residual, codes, old, new, first, last, places, layout):  # type: ignore[no-untyped-def]
    """Set residuals right where lines are not side by side, for a row that has moved."""
    for h in range(first, last):
        if places[h - first] == 0:
            stride, cell = layout.stride[h], _cell(codes, h, layout)
            residual[cell + old * stride] -= 1.0
            residual[cell + new * stride] += 1.0


@numba.njit(cache=True, inline="always")
def _chosen(scores, limit, likely, state):  # type: ignore[no-untyped-def]
    """One of the values that improve a row enough. Always the best one would cost randomness where little is known."""
    total = 0.0
    for v in range(len(likely)):
        total += likely[v] if scores[v] < limit else 0.0
    state, bits = step(state)
    left, new = share(bits) * total, 0
    for v in range(len(likely)):  # no branch depends on a draw: that would cost more than all of it
        improves = scores[v] < limit
        new = v if improves and left >= 0.0 else new
        left -= likely[v] if improves else 0.0
    return state, new
