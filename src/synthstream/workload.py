"""The workload: which marginals are counted, and how their cells are laid out."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Self, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

# Rows that are counted together: in one table after the other, so that rows and table lie in the fastest cache.
_BLOCK_ROWS = 512
# A thread that counts fewer rows is not worth its start.
_WORTH = 4_096
# Threads for work of which no result depends on their number; more of them would wait for each other's memory.
THREADS = min(4, os.cpu_count() or 1)

IntArray = NDArray[np.int64]
CodeArray = NDArray[np.int32]
FloatArray = NDArray[np.float64]

Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A set of marginals over coded columns. All their cells lie in one vector, marginal after marginal.

    Within a marginal the cells are in C order: the last of its columns changes fastest. The empty marginal
    ``()`` has one cell, the total.

    Args:
        sizes: number of codes of each column, shape ``(columns,)``.
        marginals: tuples of column positions, each strictly increasing, no tuple twice.

    Example:
        >>> workload = Workload.all_up_to(2, sizes=(2, 3))
        >>> workload.marginals
        ((), (0,), (1,), (0, 1))
        >>> workload.cells
        12
        >>> codes = np.array([[0, 2], [1, 1]], dtype=np.int32)
        >>> workload.count(codes).tolist()
        [2, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0]
    """

    sizes: tuple[int, ...]
    marginals: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError("sizes: at least one column, each with at least one code")
        if len(set(self.marginals)) != len(self.marginals):
            raise ValueError("marginals: a marginal is listed twice")
        for marginal in self.marginals:
            if list(marginal) != sorted(set(marginal)):
                raise ValueError(f"marginals: {marginal} is not strictly increasing")
            if marginal and not (marginal[0] >= 0 and marginal[-1] < len(self.sizes)):
                raise ValueError(f"marginals: {marginal} names a column that does not exist")

    @classmethod
    def all_up_to(cls, order: int, *, sizes: Sequence[int]) -> Workload:
        """The total and all marginals of 1 to ``order`` columns."""
        columns = range(len(sizes))
        return cls(sizes=tuple(sizes), marginals=tuple(m for k in range(order + 1) for m in combinations(columns, k)))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Number of codes of each column, for each marginal."""
        return tuple(tuple(self.sizes[c] for c in marginal) for marginal in self.marginals)

    @cached_property
    def order(self) -> IntArray:
        """0 for the total, 1 for tables of one column, 2 for all larger ones; shape ``(marginals,)``."""
        return np.array([min(len(marginal), 2) for marginal in self.marginals])

    def only(self, positions: Iterable[int]) -> Self:
        """Some of its marginals, alone."""
        kept = tuple(self.marginals[q] for q in positions)
        return self if kept == self.marginals else type(self)(sizes=self.sizes, marginals=kept)

    def alike(self, positions: Iterable[int]) -> list[tuple[int, ...]]:
        """Positions of marginals, those of one shape together."""
        found: dict[tuple[int, ...], list[int]] = {}
        for q in positions:
            found.setdefault(self.shapes[q], []).append(q)
        return [tuple(one) for one in found.values()]

    @cached_property
    def lengths(self) -> IntArray:
        """Number of cells of each marginal, shape ``(marginals,)``."""
        return np.array([math.prod(shape) for shape in self.shapes], dtype=np.int64)

    def cells_to(self, power: float) -> FloatArray:
        """Number of cells of each marginal to a power, shape ``(marginals,)``.

        To six decimals: the last digits depend on library and processor, and shares of a budget must not.
        """
        return np.round(self.lengths**power, 6)

    @cached_property
    def offsets(self) -> IntArray:
        """Position of each marginal's first cell, and the number of cells; shape ``(marginals + 1,)``."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @cached_property
    def cells(self) -> int:
        """Number of cells of all marginals together, however large: what is too large is refused by it."""
        return sum(math.prod(shape) for shape in self.shapes)

    @cached_property
    def strides(self) -> IntArray:
        """``strides[q, c]``: how far one step of column ``c`` moves within marginal ``q``; 0 if it has no ``c``."""
        strides = np.zeros((len(self.marginals), len(self.sizes)), dtype=np.int64)
        for q, (marginal, shape) in enumerate(zip(self.marginals, self.shapes, strict=True)):
            step = 1
            for column, size in zip(reversed(marginal), reversed(shape), strict=True):
                strides[q, column] = step
                step *= size
        return strides

    @cached_property
    def place(self) -> dict[tuple[int, ...], int]:
        """Position of each marginal among all."""
        return {marginal: q for q, marginal in enumerate(self.marginals)}

    def table(self, values: FloatArray, q: int) -> FloatArray:
        """The cells of the marginal at a position, of all, in the shape of its columns."""
        return values[self.offsets[q] : self.offsets[q + 1]].reshape(self.shapes[q])

    def cells_of(self, alike: Sequence[int]) -> IntArray:
        """Which of all cells those of some marginals of one shape are, shape ``(marginals, *shape)``."""
        cells = self.offsets[list(alike), None] + np.arange(self.lengths[alike[0]])
        return cells.reshape(-1, *self.shapes[alike[0]])

    def slice_of(self, marginal: Iterable[int]) -> slice:
        """Where the cells of one marginal lie. Raises ``KeyError`` if it is not part of the workload."""
        return self.slice_at(self.place[tuple(marginal)])

    def slice_at(self, q: int) -> slice:
        """Where the cells of the marginal at a position lie."""
        return slice(int(self.offsets[q]), int(self.offsets[q + 1]))

    def count(self, codes: CodeArray, weights: IntArray | None = None, *, threads: int = 1) -> IntArray:
        """Count rows over all cells.

        Args:
            codes: shape ``(rows, columns)``, each code in ``range(sizes[column])``.
            weights: shape ``(rows,)``: +1 adds an event, -1 takes one away; left out: all +1.
            threads: among these many rows are divided; each has cells of its own, and whole numbers add up to the same
                in any order.

        Returns:
            int64, shape ``(cells,)``. Linear in the rows: counts of parts add up to the counts of the whole.

        Raises:
            ValueError: codes, their shape or that of the weights are not these. Nothing else keeps compiled code from
                memory that is not its own.
        """
        if weights is None:
            weights = np.ones(len(codes), dtype=np.int64)
        if codes.shape != (len(codes), len(self.sizes)) or weights.shape != (len(codes),):
            raise ValueError("codes: a code of each column for each row, and a weight, if there are weights")
        if self.cells >= 2**32:
            raise ValueError(f"{self.cells} cells cannot be numbered in 32 bits")
        numbers = np.ascontiguousarray(codes, dtype=np.int32)
        whole = codes.dtype == np.int32 or np.array_equal(numbers, codes)
        sizes, flat = np.array(self.sizes, dtype=np.uint32), self.flat
        parts = max(1, min(threads, len(codes) // _WORTH, len(codes) * len(self.marginals) // self.cells))
        out = np.zeros((parts, self.cells), dtype=np.int64)

        def work(part: int) -> bool:
            rows = slice(part * len(codes) // parts, (part + 1) * len(codes) // parts)
            return bool(_count(numbers[rows], weights[rows], sizes, *flat, out[part]))

        with ThreadPoolExecutor(parts) if parts > 1 else nullcontext() as pool:
            known = list((pool.map if pool else map)(work, range(parts)))
        if not (whole and all(known)):
            raise ValueError("codes: not from this workload's schema")  # an encoder never gives such codes
        return np.asarray(out[0] if parts == 1 else out.sum(axis=0))

    @cached_property
    def flat(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Per marginal: where its columns start in one flat list; the list; their strides; the cell offsets."""
        starts = np.cumsum([0, *(len(m) for m in self.marginals)]).astype(np.int64)
        columns = np.array([c for m in self.marginals for c in m], dtype=np.int64)
        steps = np.array([self.strides[q, c] for q, m in enumerate(self.marginals) for c in m], dtype=np.int64)
        return starts, columns, steps, self.offsets


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What may be chosen: runs of cells, each within one table.

    Args:
        tables: position in the workload of the table of each candidate, shape ``(candidates,)``.
        starts, lengths: its cells, shape ``(candidates,)``.
    """

    tables: IntArray
    starts: IntArray
    lengths: IntArray

    @classmethod
    def of_tables(cls, workload: Workload, positions: Sequence[int] | IntArray) -> Candidates:
        """Whole tables."""
        tables = np.asarray(positions, dtype=np.int64)
        return cls(tables=tables, starts=workload.offsets[tables], lengths=workload.lengths[tables])

    @classmethod
    def of_cells(cls, workload: Workload, positions: Sequence[int] | IntArray) -> Candidates:
        """Every cell of some tables on its own: single queries."""
        tables = np.asarray(positions, dtype=np.int64)
        starts = np.concatenate([np.arange(workload.offsets[q], workload.offsets[q + 1]) for q in tables])
        return cls(tables=np.repeat(tables, workload.lengths[tables]), starts=starts, lengths=np.ones_like(starts))

    def __len__(self) -> int:
        return len(self.tables)

    def cells(self, position: int) -> slice:
        """Where the cells of one candidate lie."""
        return slice(int(self.starts[position]), int(self.starts[position] + self.lengths[position]))

    def sums(self, values: NDArray[Number]) -> NDArray[Number]:
        """Sum of each candidate's cells, shape ``(candidates,)``."""
        # Differences of running sums: integers may pass 64 bits on the way, and come back.
        running = np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values)])
        sums: NDArray[Number] = running[self.starts + self.lengths] - running[self.starts]
        return sums

    def expected_distances(self, guess: FloatArray, noise: FloatArray, *, shrunk: bool = False) -> FloatArray:
        """How far each candidate's cells are from a guess, by chance alone, and how far noise moves them; events.

        A cell of mean n varies by about sqrt(2 n / pi), and never by more than 2 n. Noise adds the mean size ``noise``
        of a draw in every cell (McKenna, Mullins, Sheldon, Miklau 2022, "AIM", section 3.2).

        Args:
            guess: expected counts over all cells of the workload.
            noise: shape ``(candidates,)``.
            shrunk: whether a table is followed only as far as it stands out of its noise. Then noise adds no more than
                what just stands out: half a standard deviation of the sum of squares of c Laplace draws, which is
                sqrt(2 c) noise^2, spread evenly.
        """
        mean = np.maximum(guess, 0.0)
        chance = np.minimum(np.sqrt(2 / np.pi * mean), 2 * mean)
        moved = np.sqrt(self.lengths * np.sqrt(2 * self.lengths)) if shrunk else self.lengths
        return np.asarray(self.sums(chance) + noise * moved)


@numba.njit(cache=True, nogil=True)
def _count(codes, weights, sizes, starts, columns, steps, offsets, out):  # type: ignore[no-untyped-def]
    """Whether all codes are those of the columns; if not, only rows of blocks before them are counted."""
    rows, width = codes.shape
    block = np.empty((width, _BLOCK_ROWS), dtype=np.uint32)
    cells = np.empty(_BLOCK_ROWS, dtype=np.uint32)
    for first in range(0, rows, _BLOCK_ROWS):
        number = min(_BLOCK_ROWS, rows - first)
        known = True
        for i in range(number):
            for c in range(width):
                block[c, i] = codes[first + i, c]
                known &= block[c, i] < sizes[c]  # negative ones are large here
        if not known:
            return False
        for q in range(offsets.size - 1):
            cells[:number] = 0
            for k in range(starts[q], starts[q + 1]):
                column, step = block[columns[k]], np.uint32(steps[k])
                for i in range(number):
                    cells[i] += column[i] * step
            table = out[offsets[q] : offsets[q + 1]]
            for i in range(number):
                table[cells[i]] += weights[first + i]
    return True
