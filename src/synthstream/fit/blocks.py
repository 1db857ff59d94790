"""Moves of groups: a row takes another allowed combination of all columns that public constraints join.

As in :mod:`synthstream.fit.moves`, a row moves only for a gain beyond what noise makes by itself. Moves of one column
at a time would lead nowhere: between two allowed combinations there is often none that is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.constraints import ALL_OFFERED
from synthstream.fit.joints import Joint
from synthstream.fit.randomness import cumulative, share, step
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

# Of a group with more combinations than all are offered of, a row is offered some, in proportion to their counts.
_DRAWN = 64
# Joint counts pool several tables, of which each grid, or code, tells of the others: they have about half of the noise.
JOINT = 0.5


class Blocks(NamedTuple):
    """For the loops: all groups, one after the other.

    Args:
        first: of each group, its first column in ``columns`` and ``starts``; and their number.
        columns, sizes, starts: each column, its size, and where its values begin in a list of those of all columns.
        begin: of each group, its first combination in ``cumulative``; and the number of all.
        place, codes: where a group's combinations begin in ``codes``, which holds ``starts`` + code of each column.
        cumulative: expected counts of the combinations added up, ending at 1 in each group.
        alone, single: of each column of a group, its first entry in ``single``, and their number; the marginals that
            hold it and no other column of its group.
        several, tables: of each group, its first entry in ``tables``, and their number; the marginals that hold two
            columns of it or more.
        cells: how far each combination moves within each of ``tables``, a table after the other.
        where: of each of ``tables``, where its part of ``cells`` begins.
        ranges, mine, paces: of each of ``tables``, its columns of the group, and how far a step of them moves.
        rests, others, strides: columns of each of ``single`` and then ``tables`` that are not in the group.
        offsets: where each marginal begins among all cells.
        steps: how far a step of each of ``columns`` moves within each of ``single``.
    """

    first: IntArray
    columns: IntArray
    sizes: IntArray
    starts: IntArray
    begin: IntArray
    place: IntArray
    codes: IntArray
    cumulative: FloatArray
    alone: IntArray
    single: IntArray
    several: IntArray
    tables: IntArray
    cells: IntArray
    where: IntArray
    ranges: IntArray
    mine: IntArray
    paces: IntArray
    rests: IntArray
    others: IntArray
    strides: IntArray
    offsets: IntArray
    steps: IntArray


def blocks_of(joints: Sequence[Joint], workload: Workload) -> Blocks:
    """Groups for the loops."""
    parts: dict[str, list[Any]] = {name: [] for name in Blocks._fields}
    for name in ("first", "begin", "alone", "several", "where", "ranges", "rests"):
        parts[name].append(0)
    tables: list[tuple[int, tuple[int, ...]]] = []
    for joint in joints:
        columns, combinations = joint.group.columns, joint.group.combinations.astype(np.int64)
        sizes = [workload.sizes[c] for c in columns]
        starts = np.cumsum([0, *sizes])[:-1]
        parts["columns"] += columns
        parts["sizes"] += sizes
        parts["starts"] += starts.tolist()
        parts["first"].append(len(parts["columns"]))
        parts["begin"].append(parts["begin"][-1] + joint.group.number)
        parts["place"].append(sum(map(len, parts["codes"])))
        parts["codes"].append((combinations + starts).ravel())
        parts["cumulative"].append(cumulative(joint.counts))
        held = [(q, tuple(c for c in columns if c in m)) for q, m in enumerate(workload.marginals)]
        for c in columns:
            own = [q for q, mine in held if mine == (c,)]
            parts["single"] += own
            parts["steps"] += [int(workload.strides[q, c]) for q in own]
            parts["alone"].append(len(parts["single"]))
            for q in own:
                _add_rest(parts, workload, q, (c,))
        for q, mine in held:
            if len(mine) > 1:
                parts["cells"].append(combinations @ workload.strides[q, list(columns)])
                parts["where"].append(parts["where"][-1] + len(combinations))
                parts["mine"] += mine
                parts["paces"] += [int(workload.strides[q, c]) for c in mine]
                parts["ranges"].append(len(parts["mine"]))
                tables.append((q, mine))
        parts["several"].append(len(tables))
    for q, mine in tables:
        _add_rest(parts, workload, q, mine)
    parts |= {"tables": [q for q, _ in tables], "offsets": [workload.offsets]}
    kinds = {"cumulative": np.float64}
    return Blocks(**{name: _flat(parts[name], kinds.get(name, np.int64)) for name in Blocks._fields})


def _add_rest(parts: dict[str, list[Any]], workload: Workload, q: int, mine: Sequence[int]) -> None:
    """The columns of a marginal that are none of ``mine``."""
    rest = [b for b in workload.marginals[q] if b not in mine]
    parts["others"] += rest
    parts["strides"] += [int(workload.strides[q, b]) for b in rest]
    parts["rests"].append(len(parts["others"]))


def _flat(parts: Sequence[Any], kind: type) -> NDArray[Any]:
    return np.concatenate([*(np.atleast_1d(np.asarray(part, dtype=kind)) for part in parts), np.zeros(0, dtype=kind)])


def settle(codes: CodeArray, joints: Sequence[Joint], *, begin: int, state: int) -> None:
    """Draw a combination for rows from ``begin`` on, and for all whose combination is not allowed; changed in place."""
    for joint in joints:
        wrong = joint.group.places(codes) < 0
        wrong[begin:] = True
        places = np.flatnonzero(wrong)
        drawn = np.empty(len(places), dtype=np.int64)
        state = _drawn(drawn, cumulative(joint.counts), np.uint64(state))
        codes[np.ix_(places, np.array(joint.group.columns))] = joint.group.combinations[drawn]


@numba.njit(cache=True, nogil=True)
def _drawn(drawn, cumulative, state):  # type: ignore[no-untyped-def]
    for i in range(len(drawn)):
        state, bits = step(state)
        drawn[i] = np.searchsorted(cumulative, share(bits), side="right")
    return state


@numba.njit(cache=True, nogil=True)
def work(g, blocks):  # type: ignore[no-untyped-def]
    """About how much it takes to score one row, in vectors added."""
    total = 0
    for k in range(blocks.first[g], blocks.first[g + 1]):
        total += blocks.sizes[k] * (blocks.alone[k + 1] - blocks.alone[k])
    number = min(blocks.begin[g + 1] - blocks.begin[g], ALL_OFFERED)
    return total + number * (blocks.first[g + 1] - blocks.first[g] + blocks.several[g + 1] - blocks.several[g])


@numba.njit(cache=True, nogil=True)
def shift(g, begin, length, codes, residual, weights, blocks, effort, noises, state):  # type: ignore[no-untyped-def]
    """Offer other combinations of one group to some rows from ``begin`` on, in a circle; the number that moved."""
    rows, first, last = codes.shape[1], blocks.first[g], blocks.first[g + 1]
    scores, weight, noise = np.empty(blocks.sizes[first:last].sum()), np.zeros(last - first), np.zeros(last - first)
    for k in range(first, last):
        for h in range(blocks.alone[k], blocks.alone[k + 1]):
            weight[k - first] += weights[blocks.single[h]]
            noise[k - first] += noises[blocks.single[h]]
    tables = blocks.several[g + 1] - blocks.several[g]
    bases, here = np.empty(tables, dtype=np.int64), np.empty(tables, dtype=np.int64)
    old, moved, square = np.empty(last - first, dtype=np.int64), 0, effort.gain * effort.gain
    for i in range(begin, begin + length):
        row = i if i < rows else i - rows
        _score(g, codes[:, row], old, here, scores, bases, residual, weights, blocks)
        state, new = _offered(
            g, old, here, scores, weight, noise, bases, residual, weights, noises, blocks, square, state
        )
        if new < 0:
            continue
        _leave(g, new, codes[:, row], old, here, bases, residual, blocks)
        moved += 1
    return state, moved


@numba.njit(cache=True, inline="always")
def _base(entry, marginal, codes, blocks):  # type: ignore[no-untyped-def]
    """Where a row's cells of a table begin, its columns of the group left out."""
    cell = blocks.offsets[marginal]
    for o in range(blocks.rests[entry], blocks.rests[entry + 1]):
        cell += codes[blocks.others[o]] * blocks.strides[o]
    return cell


@numba.njit(cache=True, nogil=True)
def _score(g, codes, old, here, scores, bases, residual, weights, blocks):  # type: ignore[no-untyped-def]
    """Weighted residuals for each value of each column, over the tables that hold no other column of the group.

    Of the other tables: where the row's cells begin, and how far its cell is from there.
    """
    first = blocks.first[g]
    for k in range(first, blocks.first[g + 1]):
        start, size = blocks.starts[k], blocks.sizes[k]
        old[k - first] = start + codes[blocks.columns[k]]
        scores[start : start + size] = 0.0
        for h in range(blocks.alone[k], blocks.alone[k + 1]):
            marginal, stride = blocks.single[h], blocks.steps[h]
            cell, weight = _base(h, marginal, codes, blocks), weights[marginal]
            for v in range(size):
                scores[start + v] += weight * residual[cell + v * stride]
    for t in range(blocks.several[g], blocks.several[g + 1]):
        j = t - blocks.several[g]
        bases[j] = _base(len(blocks.single) + t, blocks.tables[t], codes, blocks)
        here[j] = 0
        for e in range(blocks.ranges[t], blocks.ranges[t + 1]):
            here[j] += codes[blocks.mine[e]] * blocks.paces[e]


@numba.njit(cache=True, nogil=True)
def _offered(g, old, here, scores, weight, noise, bases, residual, weights, noises, blocks, clear, state):  # type: ignore[no-untyped-def]
    """One of the combinations that improve a row enough, in proportion to their counts; -1 if there is none."""
    begin, end = blocks.begin[g], blocks.begin[g + 1]
    few = end - begin <= ALL_OFFERED
    new, chance = -1, 0.0
    for n in range(end - begin if few else _DRAWN):
        k = n
        if not few:
            state, bits = step(state)
            k = np.searchsorted(blocks.cumulative[begin:end], share(bits), side="right")
        gain, own = _gain(g, k, old, here, scores, weight, noise, bases, residual, weights, noises, blocks)
        if gain <= 0.0 or gain * gain <= clear * own:
            continue
        if not few:
            return state, k
        part = blocks.cumulative[begin + k] - (blocks.cumulative[begin + k - 1] if k else 0.0) + 1e-12
        chance += part
        state, bits = step(state)
        if share(bits) * chance < part:
            new = k
    return state, new


@numba.njit(cache=True, nogil=True)
def _gain(g, k, old, here, scores, weight, noise, bases, residual, weights, noises, blocks):  # type: ignore[no-untyped-def]
    """How far half of the weighted squared distance falls; and the noise of that, of the tables whose cell changes."""
    width = blocks.first[g + 1] - blocks.first[g]
    at = blocks.place[g] + k * width
    gain, total, own = 0.0, 0.0, 0.0
    for j in range(width):
        value = blocks.codes[at + j]
        if value != old[j]:
            gain += scores[old[j]] - scores[value]
            total += weight[j]
            own += noise[j]
    for t in range(blocks.several[g], blocks.several[g + 1]):
        j = t - blocks.several[g]
        cell = blocks.cells[blocks.where[t] + k]
        if cell != here[j]:
            one = weights[blocks.tables[t]]
            gain += one * (residual[bases[j] + here[j]] - residual[bases[j] + cell])
            total += one
            own += noises[blocks.tables[t]]
    return gain - total, own


@numba.njit(cache=True, nogil=True)
def _leave(g, new, codes, old, here, bases, residual, blocks):  # type: ignore[no-untyped-def]
    """Give a row another combination, and set the residuals right."""
    first = blocks.first[g]
    at = blocks.place[g] + new * (blocks.first[g + 1] - first)
    for t in range(blocks.several[g], blocks.several[g + 1]):
        j = t - blocks.several[g]
        residual[bases[j] + here[j]] -= 1.0
        residual[bases[j] + blocks.cells[blocks.where[t] + new]] += 1.0
    for k in range(first, blocks.first[g + 1]):
        value = blocks.codes[at + k - first]
        for h in range(blocks.alone[k], blocks.alone[k + 1]):
            cell, stride = _base(h, blocks.single[h], codes, blocks), blocks.steps[h]
            residual[cell + (old[k - first] - blocks.starts[k]) * stride] -= 1.0
            residual[cell + (value - blocks.starts[k]) * stride] += 1.0
    for k in range(first, blocks.first[g + 1]):
        codes[blocks.columns[k]] = blocks.codes[at + k - first] - blocks.starts[k]
