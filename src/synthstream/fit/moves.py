"""The row search of edition 2: exact column moves (coordinate descent over rows, one column at a time).

For a row and a column every value is scored in one pass. The gain of a value is how far the weighted squared distance
to the targets falls; noise in the tables makes gains of its own, whose standard deviation is known. So a row moves only
for a gain beyond a number of these, and the search ends by itself once hardly a row moves.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from synthstream.fit.blocks import blocks_of, shift, work
from synthstream.fit.lanes import LANES, add_up
from synthstream.fit.randomness import below, share, step
from synthstream.fit.targets import Targets
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

# Rows are visited in blocks of a quarter of them, so that a search that finds nothing costs little; small populations
# have blocks of at least so many rows.
_BLOCKS, _AT_LEAST = 4, 2_048
# Work of one search at most, in vectors added, for each block of rows that it may visit: about a second at the
# releases of a stream, a few at the first one.
_AT_MOST = 40_000_000
# Counts of a smaller variance are exact: beside one of 10^-200, tables of 10^-6 would have no weight at all.
_EXACT = 1e-6
# So many moves are kept before tables hear of them.
_NEWS = 64


class Effort(NamedTuple):
    """How far a search goes.

    Args:
        calm, lively: least gain of a move, in standard deviations of its noise: of a row that is as it was before, and
            of one that was copied, drawn or moved, which changes it anyway.
        lean: towards common values: what a value e times as rare must gain more, in the same unit.
        still: the search ends after a block of which at most this share of the rows has moved.
        blocks: at most so many blocks of rows are visited.
    """

    calm: float
    lively: float
    lean: float
    still: float
    blocks: int


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
    kept: int,
    effort: Effort,
    state: int,
) -> IntArray:
    """Search from ``codes``, which change in place; gives their counts, shape ``(cells,)``.

    Args:
        counts: of the rows as they are.
        aim: its cells; the errors that are left in them; margins: of values that improve a row one is drawn in
            proportion to these; joints: their columns move together.
        variance: of a cell of each marginal as measured; weights are in inverse proportion to it.
        kept: this many rows, the first ones, are as they were before.
        state: of the random numbers.

    One thread: a second one would have to see the moves of the first in an order that does not depend on its speed.
    """
    layout, sizes = _layout(workload), np.array(workload.sizes, dtype=np.int64)
    joints, residual = aim.joints, counts - aim.cells
    least = max(float(variance.min()), _EXACT)
    weights = least / np.maximum(variance, least)
    touched = np.arange(len(codes)) >= kept
    chances = np.concatenate(aim.margins)
    together = {c for joint in joints for c in joint.group.columns}
    movers = [*(c for c in range(len(sizes)) if c not in together), *(len(sizes) + g for g in range(len(joints)))]
    _search(
        codes,
        residual,
        weights,
        chances,
        sizes,
        touched,
        layout,
        blocks_of(joints, workload),
        np.array(movers, dtype=np.int64),
        effort,
        aim.errors,
        least,
        _AT_MOST * min(effort.blocks, 32),
        np.uint64(state),
    )
    return np.rint(residual + aim.cells).astype(np.int64)


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
    codes, residual, weights, chances, sizes, touched, layout, blocks, movers, effort, errors, least, budget, state
):
    """Visit blocks of rows in a circle, each column by column, until rows are still or the work is done.

    ``movers``: columns, and groups of them, which are numbered after all columns.
    """
    rows, width = codes.shape
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
                state, found = shift(
                    c - width, begin, length, codes, residual, weights, touched, blocks, effort, least, state
                )
                moved += found
                continue
            chance = chances[places[c] : places[c + 1]]
            state, found = _column(
                c, begin, length, codes, residual, weights, chance, touched, layout, effort, errors, state
            )
            moved += found
        begin = (begin + length) % rows
        if moved <= effort.still * length:
            break
    return state


@numba.njit(cache=True, nogil=True)
def _column(c, begin, length, codes, residual, weights, chance, touched, layout, effort, errors, state):  # type: ignore[no-untyped-def]
    """Score all values of one column for some rows from ``begin`` on, in a circle; move rows. Their number is returned.

    Residuals of each line are laid side by side, in single precision, where rows use lines again and again; lines of a
    table that has more lines than there are rows are read in place.
    """
    rows, size = len(codes), len(chance)
    padded = (size + LANES - 1) // LANES * LANES
    first, last = layout.first[c], layout.first[c + 1]
    lines, places = _side_by_side(first, last, size, padded, length, residual, weights, layout)
    total, spread = 0.0, 0.0
    for q in layout.marginal[first:last]:
        total += weights[q]
        spread += 2.0 * weights[q] ** 2 * errors[q]
    noise = np.sqrt(spread)
    lean = (effort.lean * noise * np.log((chance.max() + 1.0) / (chance + 1.0))).astype(np.float32)
    calm, lively = np.float32(total + effort.calm * noise), np.float32(total + effort.lively * noise)
    holders, bases, terms = _terms(first, padded, places, layout)
    steps = weights[layout.marginal[first + holders]].astype(np.float32)
    scores, used = np.empty(padded, dtype=np.float32), np.empty(len(holders), dtype=np.int64)
    in_place = len(holders) < last - first
    news, number, moved = np.empty((3, _NEWS), dtype=np.int64), 0, 0
    for i in range(begin, begin + length):
        row = i if i < rows else i - rows
        _look_up(codes[row], bases, terms, used)
        for v in range(0, padded, LANES):
            add_up(scores, lines, used, v)  # type: ignore[call-arg]
        for v in range(size):
            scores[v] += lean[v]
        if in_place:
            _add_in_place(scores, codes[row], first, last, places, size, residual, weights, layout)
        old = codes[row, c]
        limit = scores[old] - (lively if touched[row] else calm)
        improving = False
        for v in range(size):
            improving |= scores[v] < limit
        if not improving:
            continue
        state, new = _chosen(scores, limit, chance, state)
        codes[row, c] = new
        touched[row] = True
        moved += 1
        for k in range(len(used)):
            lines[used[k] + old] -= steps[k]
            lines[used[k] + new] += steps[k]
        news[0, number], news[1, number], news[2, number] = row, old, new
        number += 1
        if in_place or number == _NEWS:
            _tell(news[:, :number], codes, residual, first, last, layout)
            number = 0
    _tell(news[:, :number], codes, residual, first, last, layout)
    return state, moved


@numba.njit(cache=True, nogil=True)
def _terms(first, padded, places, layout):  # type: ignore[no-untyped-def]
    """Which holders are side by side, where the lines of each begin, and what each code of a row adds to that.

    A term is a holder, a column, and how far a step of this column moves; shape ``(3, terms)``.
    """
    holders = np.flatnonzero(places)
    number = 0
    for h in first + holders:
        number += layout.start[h + 1] - layout.start[h]
    terms = np.empty((3, number), dtype=np.uint64)
    t = 0
    for k in range(len(holders)):
        for o in range(layout.start[first + holders[k]], layout.start[first + holders[k] + 1]):
            terms[0, t], terms[1, t], terms[2, t] = k, layout.columns[o], layout.steps[o] * padded
            t += 1
    return holders, places[holders], terms


@numba.njit(cache=True, inline="always")
def _look_up(codes, bases, terms, used):  # type: ignore[no-untyped-def]
    """Where a row's lines begin."""
    used[:] = bases
    for t in range(terms.shape[1]):
        used[terms[0, t]] += np.int64(codes[terms[1, t]]) * np.int64(terms[2, t])


@numba.njit(cache=True, nogil=True)
def _tell(news, codes, residual, first, last, layout):  # type: ignore[no-untyped-def]
    """Set residuals right for some rows that have moved, in their order: table by table, so that each stays at hand."""
    for h in range(first, last):
        stride = layout.stride[h]
        for m in range(news.shape[1]):
            cell = _cell(codes[news[0, m]], h, layout)
            residual[cell + news[1, m] * stride] -= 1.0
            residual[cell + news[2, m] * stride] += 1.0


@numba.njit(cache=True, inline="always")
def _cell(codes, h, layout):  # type: ignore[no-untyped-def]
    """Where a row's line of a holder begins among all cells."""
    cell = layout.offset[h]
    for k in range(layout.start[h], layout.start[h + 1]):
        cell += codes[layout.columns[k]] * layout.strides[k]
    return cell


@numba.njit(cache=True, nogil=True)
def _side_by_side(first, last, size, padded, length, residual, weights, layout):  # type: ignore[no-untyped-def]
    """Weighted residuals of the holders' lines, padded, after a line of zeros; where each holder's lines begin.

    A holder with more lines than there are rows is read in place: it has that line of zeros.
    """
    places = np.zeros(last - first, dtype=np.int64)
    end = padded
    for h in range(first, last):
        if layout.lines[h] <= length:
            places[h - first] = end
            end += layout.lines[h] * padded
    lines = np.zeros(end, dtype=np.float32)
    for h in range(first, last):
        place = places[h - first]
        if place == 0:
            continue
        stride, weight = layout.stride[h], weights[layout.marginal[h]]
        for line in range(layout.lines[h]):
            cell = layout.offset[h] + line // stride * stride * size + line % stride
            for v in range(size):
                lines[place + line * padded + v] = weight * residual[cell + v * stride]
    return lines, places


@numba.njit(cache=True, nogil=True)
def _add_in_place(scores, codes, first, last, places, size, residual, weights, layout):  # type: ignore[no-untyped-def]
    """Add the lines that are not side by side."""
    for h in range(first, last):
        if places[h - first] == 0:
            stride, weight, cell = layout.stride[h], weights[layout.marginal[h]], _cell(codes, h, layout)
            for v in range(size):
                scores[v] += np.float32(weight * residual[cell + v * stride])


@numba.njit(cache=True, nogil=True)
def _chosen(scores, limit, chance, state):  # type: ignore[no-untyped-def]
    """One of the values that improve a row enough. Always the best one would cost randomness where little is known."""
    total = 0.0
    for v in range(len(chance)):
        if scores[v] < limit:
            total += chance[v] + 1e-9
    state, bits = step(state)
    left, new = share(bits) * total, -1
    for v in range(len(chance)):
        if scores[v] < limit:
            new = v
            left -= chance[v] + 1e-9
            if left < 0.0:
                break
    return state, new
