"""The joint fit: integer rows that stay from release to release, and are changed one by one to fit all noisy tables.

A row gets another value in one column where the weighted squared distance to the targets falls. Rows live on from
release to release, so that readers see small changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.constraints import Group
from synthstream.fit.aims import Earlier, Targets, aims, of_rows
from synthstream.fit.blocks import settle
from synthstream.fit.moves import Effort, move
from synthstream.fit.nested import grids_of
from synthstream.fit.randomness import below, draw, share, step, steps_of
from synthstream.fit.targets import MEMORY, total_of
from synthstream.measured import Measured
from synthstream.workload import THREADS, CodeArray, FloatArray, IntArray, Workload

# Further blocks of rows that a release may visit if all its rows are new.
_GROWN = 16
# Tables of one column of at most so many codes say how many rows lie elsewhere, where epochs end: in fine grids of
# places rows lie apart from what they aim at by chance alone.
_FEW_CODES = 64
# At refreshes rows move for a gain of so many standard deviations of its noise, at least and at most: the first number
# and so many times the share of associations that noise explains (decision 53); and where there is a place.
_CLEAR, _UNSURE = (0.5, 1.5), (0.25, 2.5)
_NESTED = 0.5
# Where several columns change together a row moves for a gain of so many standard deviations, at least; of twice as
# many in epochs, whose noise comes again and again (decision 83).
_TOGETHER = 0.5


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Population:
    """Integer rows, which stand for events.

    Args:
        workload: sizes of the columns.
        codes: shape ``(rows, columns)``, the smallest unsigned type that holds all codes.
        weights: for how many events each row stands, int64, shape ``(rows,)``; ``None``: for one.
        known: counts of the rows over all cells of the workload, if they are known.
    """

    workload: Workload
    codes: NDArray[Any]
    weights: IntArray | None = None
    known: IntArray | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls, workload: Workload, codes: CodeArray, *, events: int | None = None, known: IntArray | None = None
    ) -> Self:
        """Rows in the smallest type, which stand for some number of events: all for as many, the first for one more or
        less where that is no whole number.
        """
        codes, rows, weights = codes.astype(np.min_scalar_type(max(workload.sizes) - 1)), len(codes), None
        if events is not None and rows and events != rows:
            each = round(events / rows)
            weights = np.full(rows, each, dtype=np.int64)
            weights[: abs(events - each * rows)] += np.sign(events - each * rows)
        return cls(workload=workload, codes=codes, weights=weights, known=known)

    def __repr__(self) -> str:
        return f"Population({self.number:,} rows, {len(self.workload.sizes)} columns)"

    @property
    def number(self) -> int:
        """Number of events that the rows stand for."""
        return len(self.codes) if self.weights is None else int(self.weights.sum())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The rows, for the store."""
        return {"codes": self.codes} | ({} if self.weights is None else {"weights": self.weights})

    def counts(self, workload: Workload) -> IntArray:
        """Events over all cells of a workload, shape ``(cells,)``."""
        if self.weights is None:
            return self.rows(workload)
        return workload.count(self.codes.astype(np.int32), self.weights, threads=THREADS)

    def rows(self, workload: Workload) -> IntArray:
        """Rows over all cells of a workload, whatever they stand for, shape ``(cells,)``."""
        if self.known is not None and workload == self.workload:
            return self.known.copy()
        return workload.count(self.codes.astype(np.int32), threads=THREADS)

    def moved_from(self, before: Population) -> float:
        return changed_share(before.codes, self.codes)


def changed_share(old: NDArray[Any], new: NDArray[Any]) -> float:
    """Share of the old rows without an equal row among the new ones, counted with multiplicity; 0 if there are none.

    Args:
        old, new: codes of one type, shape ``(rows, columns)``.

    Example:
        >>> changed_share(np.array([[0, 1], [0, 1]]), np.array([[0, 1], [2, 2]]))
        0.5
    """
    if len(old) == 0 or len(new) == 0:
        return float(len(old) > 0)
    whole, same = len(old), min(len(old), len(new))
    moved = (old[:same] != new[:same]).any(axis=1)  # rows that stay where they are need no search
    old, new = (np.concatenate([rows[:same][moved], rows[same:]]) for rows in (old, new))
    both = np.ascontiguousarray(np.concatenate([old, new]))
    keys = both.view(np.dtype((np.void, both.dtype.itemsize * both.shape[1]))).reshape(-1)
    _, inverse = np.unique(keys, return_inverse=True)
    before = np.bincount(inverse[: len(old)], minlength=len(both))
    after = np.bincount(inverse[len(old) :], minlength=len(both))
    return float(np.maximum(before - after, 0).sum() / whole)


def without(rows: CodeArray, drop: CodeArray, rng: np.random.Generator) -> CodeArray:
    """Rows less others: for each of these an equal row goes, or, where there is none, one at random.

    Example:
        >>> rows = np.array([[0], [1], [1], [2]], dtype=np.int32)
        >>> without(rows, rows[1:3], np.random.default_rng(0)).ravel().tolist()
        [0, 2]
    """
    if len(drop) >= len(rows):
        return rows[:0]
    order = rng.permutation(len(rows))
    _, key = np.unique(np.concatenate([rows[order], drop]), axis=0, return_inverse=True)
    key = key.reshape(-1)
    asked = np.bincount(key[len(rows) :], minlength=key.max() + 1)
    by_key = np.argsort(key[: len(rows)], kind="stable")  # rows of one kind side by side, each kind in random order
    first = np.searchsorted(key[by_key], key[by_key])
    gone = np.zeros(len(rows), dtype=np.bool_)
    gone[order[by_key]] = np.arange(len(rows)) - first < asked[key[by_key]]
    kept = np.flatnonzero(~gone)
    left = np.sort(rng.choice(kept, size=len(rows) - len(drop), replace=False))
    return np.asarray(rows[left], dtype=np.int32)


def fit(
    measured: Measured,
    *,
    start: Population | None = None,
    seed: int,
    memory: float = MEMORY,
    fresh: bool | None = None,
    then: Earlier | None = None,
    groups: Sequence[Group] = (),
    most: int | None = None,
    taken: float = 1.0,
    eased: bool = False,
) -> Population:
    """Rows for a measurement. Deterministic: the same measurement, start and seed give the same rows.

    Time: see :mod:`synthstream.fit.moves`. About a second at most, ``eased`` two.

    Args:
        measured: noisy tables of any order.
        start: the rows of the release before; they change little.
        seed: public; 0 or more, below 2^63.
        memory: share of past ticks that rows remember; 0 if the noise is not fresh at each tick.
        fresh: of a stream that measures tables of several columns at some ticks only, whether this is such a tick. If
            not, rows change little: to the fresh total and margins. None: of other streams.
        then: what was measured when tables of several columns were, if that was not at this tick: ``measured`` has
            the same tables.
        groups: public constraints: every row has one of their combinations.
        most: so many rows at most; where there are more events, each stands for a whole number of them, as many as it
            takes. ``None``: a row for each event.
        taken: variances of ``measured`` are so many times those of its errors.
        eased: whether rows search once more, before, with weights that differ less: see ``Effort``.

    Raises:
        ValueError: ``start`` has columns of other sizes.
    """
    workload = measured.workload
    if start is not None and start.workload.sizes != workload.sizes:
        raise ValueError(f"start: sizes are {start.workload.sizes}, those measured {workload.sizes}")
    before = np.zeros((0, len(workload.sizes)), dtype=np.int32) if start is None else start.codes.astype(np.int32)
    nested = bool(grids_of(groups))
    settled = fresh is not None or taken != 1.0
    looked: dict[str, Any] = {"settled": settled, "groups": groups, "taken": taken}
    each = _events_per_row(measured, most)
    if each > 1:
        measured, then = of_rows(measured, each), None if then is None else then.of_rows(each)
    known = np.zeros(workload.cells, dtype=np.int64) if start is None else start.rows(workload)
    aim = aims(measured, start=before, counts=known, memory=memory, then=then, **looked)
    # If rows have more than doubled, new ones are drawn from margins, as at first; a window's begin as those of all.
    first = 2 * len(before) < aim.rows and not (len(before) and math.isinf(memory))
    codes = np.empty((aim.rows, len(workload.sizes)), dtype=np.int32)
    # Where all tables are measured at every tick, added rows are copied. So are rows with a place: little is known of
    # each cell of a fine grid, and yet events of a kind lie where others of it lay.
    alone = np.zeros_like(aim.alone) if nested or not settled else aim.alone
    state = _resize(before, codes, *steps_of(aim.margins), np.ones_like(alone) if first else alone, np.uint64(seed))
    if aim.rows == 0:
        return Population.of(workload, codes)
    kept = min(len(before), aim.rows)
    settle(codes, aim.joints, begin=kept if first else aim.rows, state=state)
    known = _recounted(known, before, codes, workload)
    effort = _effort(aim, known, workload, before=len(before), first=first, fresh=fresh, memory=memory, taken=taken)
    effort, variance = effort._replace(eased=eased), measured.variance * aim.doubts
    known = move(codes, known, aim, variance, workload, effort=effort, state=state)
    return Population.of(workload, codes, events=round(each * aim.events) if each > 1 else None, known=known)


def _events_per_row(measured: Measured, most: int | None) -> int:
    """How many events each row stands for, if there are to be so many rows at most."""
    if most is None:
        return 1
    return max(1, math.ceil(total_of(measured) / most))


def _recounted(counts: IntArray, before: CodeArray, after: CodeArray, workload: Workload) -> IntArray:
    """Counts of rows, of which most are as they were: ``counts`` are those of the rows before."""
    kept = min(len(before), len(after))
    moved = (before[:kept] != after[:kept]).any(axis=1)
    if 2 * int(moved.sum()) + len(before) + len(after) - 2 * kept >= len(after):
        return workload.count(after, threads=THREADS)
    gone, come = (np.concatenate([rows[:kept][moved], rows[kept:]]) for rows in (before, after))
    signs = np.repeat(np.array([-1, 1]), [len(gone), len(come)])
    return counts + workload.count(np.concatenate([gone, come]), signs, threads=THREADS)


def _elsewhere(counts: IntArray, margins: Sequence[FloatArray], workload: Workload) -> float:
    """Share of the rows that have another code than margins say: of the column of few codes of which that says most."""
    found = 0.0
    for column, margin in enumerate(margins):
        if margin.size <= _FEW_CODES and (column,) in workload.place:
            own = counts[workload.slice_of((column,))]
            found = max(found, float(np.abs(own - margin).sum()) / 2 / max(float(own.sum()), 1.0))
    return found


def _gain(aim: Targets) -> float:
    """Least gain of a move at a refresh, in standard deviations of its noise: the less of associations noise explains,
    the more of a small gain is true.

    Columns that go with what all have in common count as if noise explained all; where columns move together, by public
    constraints, nothing tells. Where there is a place what its tables hold was shrunk together (decision 56).
    """
    if aim.joints:
        return _NESTED if any(joint.group.nests for joint in aim.joints) else _CLEAR[1]
    noisy = np.where(aim.alone > 0, aim.alone, 1.0)
    return min(max(_UNSURE[0] + _UNSURE[1] * math.fsum(noisy) / noisy.size, _CLEAR[0]), _CLEAR[1])


def _effort(
    aim: Targets,
    counts: IntArray,
    workload: Workload,
    *,
    before: int,
    first: bool,
    fresh: bool | None,
    memory: float,
    taken: float,
) -> Effort:
    """How far a release may go: see docs/decisions/0020-column-moves.md. ``before``: rows of the release before."""
    if first:
        gain, still, blocks = 0.6, 0.1, 64
    elif fresh is not None:
        gain, still, blocks = _gain(aim) if fresh else _CLEAR[1], 0.03, 8 if fresh else 1
    else:
        # Where targets remember their own noise is low; where they come of epochs the same noise comes again and again.
        gain, still, new = 0.1 if memory > 0 else 0.0, 0.03, abs(1 - before / aim.rows)
        if memory in (0, math.inf):  # of windows, rows of all events are what there is to begin with
            new = max(new, _elsewhere(counts, aim.margins, workload))
        # One block, unless much of the rows is new, copies of others, or fewer than there were; or is to lie elsewhere.
        blocks = 1 + round(_GROWN * min(new, 1.0))
    least = _TOGETHER if taken == 1.0 else 2 * _TOGETHER
    together = math.inf if fresh is False else max(gain, least) / math.sqrt(taken)
    return Effort(gain=gain, lean=0.02, still=still, blocks=blocks, together=together)


@numba.njit(cache=True, nogil=True)
def _resize(before, codes, cumulative, places, alone, seed):  # type: ignore[no-untyped-def]
    """Fill ``codes`` with the rows before; drop some at random, or add copies of some or rows drawn from the margins.

    Copies keep relations that no measured table holds, and keep all tables in proportion. They also keep what the rows
    that are copied go together in by chance; so ``alone``, by column, is how often it is drawn from its margin instead.
    """
    state = seed * np.uint64(2) + np.uint64(0x9E3779B97F4A7C15)
    kept, rows = min(len(before), len(codes)), len(codes)
    codes[:kept] = before[:kept]
    for i in range(rows, len(before)):
        state, bits = step(state)
        slot = below(bits, i + 1)
        if slot < rows:
            codes[slot] = before[i]
    copied = np.min(alone) < 1.0
    for i in range(kept, rows):
        if copied:
            state, bits = step(state)
            codes[i] = before[below(bits, kept)]
        for column in range(codes.shape[1]):
            if 0.0 < alone[column] < 1.0:
                state, bits = step(state)
                if share(bits) >= alone[column]:
                    continue
            if alone[column] > 0.0:
                state, bits = step(state)
                codes[i, column] = draw(bits, cumulative, places, column)
    return state
