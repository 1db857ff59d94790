"""The joint fit: integer rows that stay from release to release, and are changed one by one to fit all noisy tables.

A proposal gives one row another value in one column; it is taken if the weighted squared distance to the targets falls.
Rows live on from release to release, so that readers see small changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.fit.targets import MEMORY, Targets, targets
from synthstream.measured import Measured
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

# Proposals for each row of a population: at the start, and at each release after it.
_FIRST, _LATER = 40, 4
# A small population can change much from tick to tick, so it gets at least _AT_LEAST proposals. A very large one gets
# _AT_MOST, which take about a second.
_AT_LEAST, _AT_MOST = 20_000, 4_000_000


@dataclass(frozen=True, kw_only=True, repr=False)
class Population:
    """Integer rows.

    Args:
        workload: sizes of the columns.
        codes: shape ``(rows, columns)``, the smallest unsigned type that holds all codes.
    """

    workload: Workload
    codes: NDArray[Any]

    @classmethod
    def of(cls, workload: Workload, codes: CodeArray) -> Self:
        """Rows in the smallest type."""
        return cls(workload=workload, codes=codes.astype(np.min_scalar_type(max(workload.sizes) - 1)))

    def __repr__(self) -> str:
        return f"Population({self.number:,} rows, {len(self.workload.sizes)} columns)"

    @property
    def number(self) -> int:
        """Number of rows."""
        return len(self.codes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The rows, for the store."""
        return {"codes": self.codes}

    def moved_from(self, before: Population) -> float:
        return changed_share(before.codes, self.codes)

    def table(self, columns: Sequence[int]) -> IntArray:
        """Counts of the rows over some columns, in the shape of their sizes."""
        single = Workload(sizes=self.workload.sizes, marginals=(tuple(columns),))
        return single.count(self.codes.astype(np.int32)).reshape(single.shapes[0])


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
    both = np.ascontiguousarray(np.concatenate([old, new]))
    keys = both.view(np.dtype((np.void, both.dtype.itemsize * both.shape[1]))).reshape(-1)
    _, inverse = np.unique(keys, return_inverse=True)
    before = np.bincount(inverse[: len(old)], minlength=len(both))
    after = np.bincount(inverse[len(old) :], minlength=len(both))
    return float(np.maximum(before - after, 0).sum() / len(old))


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


def fit(measured: Measured, *, start: Population | None = None, seed: int, memory: float = MEMORY) -> Population:
    """Rows for a measurement. Deterministic: the same measurement, start and seed give the same rows.

    Time: 40 proposals a row without ``start``, 4 with it, each a pass over the marginals that hold one column; at most
    4 million.

    Args:
        measured: noisy tables of any order.
        start: the rows of the release before; they change little.
        seed: public; 0 or more, below 2^63.
        memory: share of past ticks that rows remember; 0 if the noise is not fresh at each tick.

    Raises:
        ValueError: ``start`` has columns of other sizes.
    """
    workload = measured.workload
    if start is not None and start.workload.sizes != workload.sizes:
        raise ValueError(f"start: sizes are {start.workload.sizes}, those measured {workload.sizes}")
    before = np.zeros((0, len(workload.sizes)), dtype=np.int32) if start is None else start.codes.astype(np.int32)
    aim = targets(measured, start=before, memory=memory)
    cumulative, layout = _cumulative(aim), _layout(workload)
    # If the number of rows has more than doubled, all new rows are drawn from the margins, as at the first release.
    first = 2 * len(before) < aim.rows
    codes = np.empty((aim.rows, len(workload.sizes)), dtype=np.int32)
    state = _resize(before, codes, cumulative, layout[0], first, np.uint64(seed))
    if aim.rows:
        proposals = min(max((_FIRST if first else _LATER) * aim.rows, _AT_LEAST), _AT_MOST)
        residual = workload.count(codes) - aim.cells
        _search(codes, residual, _weights(measured), cumulative, layout, proposals, np.uint64(state))
    return Population.of(workload, codes)


def _weights(measured: Measured) -> FloatArray:
    """Inverse variances, the largest 1, shape ``(marginals,)``."""
    variance = np.maximum(measured.variance, np.finfo(np.float64).tiny)
    return np.asarray(variance.min() / variance)


def _cumulative(aim: Targets) -> FloatArray:
    """Cumulative margins of all columns, each scaled to end at 1, one after the other."""
    parts = []
    for margin in aim.margins:
        total = margin.sum()
        share = margin / total if total > 0 else np.full(margin.size, 1 / margin.size)
        cumulative = np.cumsum(share)
        cumulative[-1] = 1.0
        parts.append(cumulative)
    return np.concatenate(parts)


def _layout(workload: Workload) -> tuple[IntArray, ...]:
    """For the loops: where a column's cumulative margin starts; which marginals hold it; their columns and strides."""
    places = np.concatenate([[0], np.cumsum(workload.sizes)]).astype(np.int64)
    holders = [[q for q, m in enumerate(workload.marginals) if c in m] for c in range(len(workload.sizes))]
    holder_starts = np.concatenate([[0], np.cumsum([len(h) for h in holders])]).astype(np.int64)
    holder_list = np.array([q for h in holders for q in h], dtype=np.int64)
    starts, columns, steps, offsets = workload._flat  # noqa: SLF001
    return places, holder_starts, holder_list, starts, columns, steps, offsets, workload.strides


@numba.njit(cache=True, inline="always")
def _next(state):  # type: ignore[no-untyped-def]
    """One step of xorshift64*: a public stream of 64-bit numbers."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    return state, state * np.uint64(2685821657736338717)


@numba.njit(cache=True, inline="always")
def _below(bits, limit):  # type: ignore[no-untyped-def]
    """A number in ``range(limit)`` from the upper 32 bits."""
    return np.int64((bits >> np.uint64(32)) * np.uint64(limit) >> np.uint64(32))


@numba.njit(cache=True, inline="always")
def _value(bits, cumulative, places, column):  # type: ignore[no-untyped-def]
    """A code drawn from the column's margin."""
    share = np.float64(bits >> np.uint64(11)) / 9007199254740992.0
    return np.searchsorted(cumulative[places[column] : places[column + 1]], share, side="right")


@numba.njit(cache=True, nogil=True)
def _resize(before, codes, cumulative, places, afresh, seed):  # type: ignore[no-untyped-def]
    """Fill ``codes`` with the rows before; drop some at random, or add copies of some or rows drawn from the margins.

    Copies keep relations that no measured table holds, and keep all tables in proportion.
    """
    state = seed * np.uint64(2) + np.uint64(0x9E3779B97F4A7C15)
    kept, rows = min(len(before), len(codes)), len(codes)
    codes[:kept] = before[:kept]
    for i in range(rows, len(before)):
        state, bits = _next(state)
        slot = _below(bits, i + 1)
        if slot < rows:
            codes[slot] = before[i]
    for i in range(kept, rows):
        if not afresh:
            state, bits = _next(state)
            codes[i] = before[_below(bits, kept)]
            continue
        for column in range(codes.shape[1]):
            state, bits = _next(state)
            codes[i, column] = _value(bits, cumulative, places, column)
    return state


@numba.njit(cache=True, nogil=True)
def _search(codes, residual, weights, cumulative, layout, proposals, state):  # type: ignore[no-untyped-def]
    """Propose, accept if the weighted squared residual falls; ``codes`` and ``residual`` change in place."""
    places, holder_starts, holder_list, starts, columns, steps, offsets, strides = layout
    rows, width = codes.shape
    cells = np.empty(holder_list.size, dtype=np.int64)
    for _ in range(proposals):
        state, bits = _next(state)
        row = _below(bits, rows)
        column = np.int64((bits & np.uint64(0xFFFFFFFF)) * np.uint64(width) >> np.uint64(32))
        state, bits = _next(state)
        new = _value(bits, cumulative, places, column)
        old = codes[row, column]
        if new == old:
            continue
        change = 0.0
        first, last = holder_starts[column], holder_starts[column + 1]
        for h in range(first, last):
            q = holder_list[h]
            cell = offsets[q]
            for k in range(starts[q], starts[q + 1]):
                cell += codes[row, columns[k]] * steps[k]
            cells[h] = cell
            change += weights[q] * (1.0 - residual[cell] + residual[cell + (new - old) * strides[q, column]])
        if change < 0.0:
            codes[row, column] = new
            for h in range(first, last):
                residual[cells[h]] -= 1.0
                residual[cells[h] + (new - old) * strides[holder_list[h], column]] += 1.0
