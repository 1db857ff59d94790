"""The row search of edition 1: a proposal gives one row another value in one column.

It is taken if the weighted squared distance to the targets falls. Streams of edition 1 keep it, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from synthstream.fit.randomness import below, draw, step, steps_of
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

# Proposals for each row of a population: at the start, and at each release after it.
_FIRST, _LATER = 40, 4
# A small population can change much from tick to tick, so it gets at least _AT_LEAST proposals. A very large one gets
# _AT_MOST, which take about a second.
_AT_LEAST, _AT_MOST = 20_000, 4_000_000


def propose(
    codes: CodeArray,
    residual: FloatArray,
    variance: FloatArray,
    margins: Sequence[FloatArray],
    workload: Workload,
    *,
    first: bool,
    state: int,
) -> None:
    """Search from ``codes``; they and ``residual``, which is their tables less the targets, change in place.

    Args:
        variance: of a cell of each marginal; weights are in inverse proportion to it.
        margins: counts of each column's codes; values are drawn in proportion to them.
        first: whether the rows are new.
        state: of the random numbers.
    """
    proposals = min(max((_FIRST if first else _LATER) * len(codes), _AT_LEAST), _AT_MOST)
    least = np.maximum(variance, np.finfo(np.float64).tiny)
    _search(codes, residual, least.min() / least, *steps_of(margins), _layout(workload), proposals, np.uint64(state))


def _layout(workload: Workload) -> tuple[IntArray, ...]:
    """For the loops: which marginals hold a column; their columns and strides."""
    holders = [[q for q, m in enumerate(workload.marginals) if c in m] for c in range(len(workload.sizes))]
    holder_starts = np.concatenate([[0], np.cumsum([len(h) for h in holders])]).astype(np.int64)
    holder_list = np.array([q for h in holders for q in h], dtype=np.int64)
    starts, columns, steps, offsets = workload._flat  # noqa: SLF001
    return holder_starts, holder_list, starts, columns, steps, offsets, workload.strides


@numba.njit(cache=True, nogil=True)
def _search(codes, residual, weights, cumulative, places, layout, proposals, state):  # type: ignore[no-untyped-def]
    """Propose, accept if the weighted squared residual falls; ``codes`` and ``residual`` change in place."""
    holder_starts, holder_list, starts, columns, steps, offsets, strides = layout
    rows, width = codes.shape
    cells = np.empty(holder_list.size, dtype=np.int64)
    for _ in range(proposals):
        state, bits = step(state)
        row = below(bits, rows)
        column = np.int64((bits & np.uint64(0xFFFFFFFF)) * np.uint64(width) >> np.uint64(32))
        state, bits = step(state)
        new = draw(bits, cumulative, places, column)
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
