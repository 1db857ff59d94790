"""The joint fit: a living population of integer rows, nudged towards all noisy tables at once.

A proposal gives one row another value in one column; it is taken if the weighted squared distance to the targets falls.
Rows live on from release to release, so that readers see small changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.fit.targets import FloatArray, Targets, targets
from synthstream.release import Measured
from synthstream.workload import IntArray, Workload

# Proposals for each row of a population: at the start, and at each release after it.
_FIRST, _LATER = 40, 2
# Small populations move fast in relation to their size; they get at least this many proposals.
_AT_LEAST = 20_000


@dataclass(frozen=True, kw_only=True)
class Population:
    """Integer rows.

    Args:
        workload: sizes of the columns.
        codes: shape ``(rows, columns)``, the smallest unsigned type that holds all codes.
    """

    workload: Workload
    codes: NDArray[Any]

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


def fit(measured: Measured, *, start: Population | None = None, seed: int) -> Population:
    """Rows for a measurement. Deterministic: the same measurement, start and seed give the same rows.

    Args:
        measured: noisy tables of any order.
        start: the rows of the release before; they change little.
        seed: public.
    """
    workload, aim = measured.workload, targets(measured)
    rng = np.random.default_rng(seed)
    cumulative = _cumulative(aim)
    codes = _rows(workload, aim, start, rng)
    proposals = max((_FIRST if start is None else _LATER) * len(codes), _AT_LEAST)
    if len(codes):
        counts = workload.count(codes)
        weights = measured.variance.min() / measured.variance
        residual = counts - aim.cells
        _search(codes, residual, weights, cumulative, _layout(workload), proposals, seed)
    return Population(workload=workload, codes=codes.astype(_smallest(workload)))


def _smallest(workload: Workload) -> Any:
    return np.min_scalar_type(max(workload.sizes) - 1)


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


def _rows(workload: Workload, aim: Targets, start: Population | None, rng: np.random.Generator) -> Any:
    """The predecessor's rows, cut or filled up to the new number with rows drawn from the margins."""
    kept = np.zeros((0, len(workload.sizes)), dtype=np.int32) if start is None else start.codes.astype(np.int32)
    if len(kept) > aim.rows:
        kept = np.delete(kept, rng.choice(len(kept), size=len(kept) - aim.rows, replace=False), axis=0)
    missing = aim.rows - len(kept)
    new = np.empty((missing, len(workload.sizes)), dtype=np.int32)
    for column, margin in enumerate(aim.margins):
        total = margin.sum()
        share = margin / total if total > 0 else np.full(margin.size, 1 / margin.size)
        new[:, column] = rng.choice(margin.size, size=missing, p=share / share.sum())
    return np.ascontiguousarray(np.concatenate([kept, new]))


def _layout(workload: Workload) -> tuple[IntArray, ...]:
    """For the loop: where a column's cumulative margin starts; which marginals hold it; columns and strides of each."""
    places = np.concatenate([[0], np.cumsum(workload.sizes)]).astype(np.int64)
    holders = [[q for q, m in enumerate(workload.marginals) if c in m] for c in range(len(workload.sizes))]
    holder_starts = np.concatenate([[0], np.cumsum([len(h) for h in holders])]).astype(np.int64)
    holder_list = np.array([q for h in holders for q in h], dtype=np.int64)
    starts, columns, steps, offsets = workload._flat
    return places, holder_starts, holder_list, starts, columns, steps, offsets, workload.strides


@numba.njit(cache=True, inline="always")
def _next(state):  # type: ignore[no-untyped-def]
    """One step of xorshift64*: a public stream of 64-bit numbers."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    return state, state * np.uint64(2685821657736338717)


@numba.njit(cache=True, nogil=True)
def _search(codes, residual, weights, cumulative, layout, proposals, seed):  # type: ignore[no-untyped-def]
    """Propose, accept if the weighted squared residual falls; ``codes`` and ``residual`` change in place."""
    places, holder_starts, holder_list, starts, columns, steps, offsets, strides = layout
    rows, width = codes.shape
    state = np.uint64(seed) * np.uint64(2) + np.uint64(0x9E3779B97F4A7C15)
    cells = np.empty(holder_list.size, dtype=np.int64)
    for _ in range(proposals):
        state, bits = _next(state)
        row = np.int64((bits >> np.uint64(32)) * np.uint64(rows) >> np.uint64(32))
        column = np.int64((bits & np.uint64(0xFFFFFFFF)) * np.uint64(width) >> np.uint64(32))
        state, bits = _next(state)
        share = np.float64(bits >> np.uint64(11)) / 9007199254740992.0
        new = np.searchsorted(cumulative[places[column] : places[column + 1]], share, side="right")
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
            there = cell + (new - old) * strides[q, column]
            cells[h] = cell
            change += weights[q] * (1.0 - residual[cell] + residual[there])
        if change < 0.0:
            codes[row, column] = new
            for h in range(first, last):
                residual[cells[h]] -= 1.0
                residual[cells[h] + (new - old) * strides[holder_list[h], column]] += 1.0
