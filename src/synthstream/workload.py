"""The workload: which marginals are counted, and how their cells are laid out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.cover import cover, sources

# Fewer rows are counted faster in the marginals themselves.
_MANY_ROWS = 30_000

IntArray = NDArray[np.int64]
CodeArray = NDArray[np.int32]


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
        return cls(
            sizes=tuple(sizes),
            marginals=tuple(m for k in range(order + 1) for m in combinations(columns, k)),
        )

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Number of codes of each column, for each marginal."""
        return tuple(tuple(self.sizes[c] for c in marginal) for marginal in self.marginals)

    @cached_property
    def lengths(self) -> IntArray:
        """Number of cells of each marginal, shape ``(marginals,)``."""
        return np.array([int(np.prod(shape, dtype=np.int64)) for shape in self.shapes], dtype=np.int64)

    @cached_property
    def offsets(self) -> IntArray:
        """Position of each marginal's first cell, and the number of cells; shape ``(marginals + 1,)``."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @property
    def cells(self) -> int:
        """Number of cells of all marginals together."""
        return int(self.offsets[-1])

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

    def slice_of(self, marginal: Iterable[int]) -> slice:
        """Where the cells of one marginal lie. Raises ``ValueError`` if it is not part of the workload."""
        q = self.marginals.index(tuple(marginal))
        return slice(int(self.offsets[q]), int(self.offsets[q + 1]))

    def count(self, codes: CodeArray, weights: IntArray | None = None) -> IntArray:
        """Count rows over all cells.

        Args:
            codes: shape ``(rows, columns)``, each code in ``range(sizes[column])``.
            weights: shape ``(rows,)``: +1 adds an event, -1 takes one away; left out: all +1.

        Returns:
            int64, shape ``(cells,)``. Linear in the rows: counts of parts add up to the counts of the whole.
        """
        if weights is None:
            weights = np.ones(len(codes), dtype=np.int64)
        if len(codes) and not (codes.min() >= 0 and np.all(codes.max(axis=0) < self.sizes)):
            raise ValueError("codes: not from this workload's schema")  # an encoder never gives such codes
        out = np.zeros(self.cells, dtype=np.int64)
        codes = np.ascontiguousarray(codes, dtype=np.int32)
        if len(codes) >= _MANY_ROWS and self._cover[0].cells <= 4 * len(codes):
            self._count_many(codes, weights, out)
        else:
            _count(codes, weights, *self._flat, out)
        return out

    def _count_many(self, codes: CodeArray, weights: IntArray, out: IntArray) -> None:
        """Count in fewer, larger tables, and sum these: the same numbers."""
        groups, order, froms = self._cover
        flat = np.zeros(groups.cells, dtype=np.int64)
        _count(codes, weights, *groups._flat, flat)
        parts = np.split(flat, groups.offsets[1:-1])
        tables = {m: part.reshape(shape) for m, part, shape in zip(groups.marginals, parts, groups.shapes, strict=True)}
        for q in order:
            marginal, source = self.marginals[q], froms[q]
            if marginal not in tables:
                axes = tuple(a for a, c in enumerate(source) if c not in marginal)
                tables[marginal] = np.asarray(tables[source].sum(axis=axes))
            out[self.offsets[q] : self.offsets[q + 1]] = tables[marginal].reshape(-1)

    @cached_property
    def _cover(self) -> tuple[Workload, list[int], list[tuple[int, ...]]]:
        """Larger tables; the marginals, larger ones first; and for each a table that it is a sum of."""
        groups = Workload(sizes=self.sizes, marginals=cover(self.marginals, self.sizes))
        order = sorted(range(len(self.marginals)), key=lambda q: (-int(self.lengths[q]), -len(self.marginals[q])))
        return groups, order, sources(self.marginals, groups.marginals, self.sizes)

    @cached_property
    def _flat(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Per marginal: where its columns start in one flat list; the list; their strides; the cell offsets."""
        starts = np.cumsum([0, *(len(m) for m in self.marginals)]).astype(np.int64)
        columns = np.array([c for m in self.marginals for c in m], dtype=np.int64)
        steps = np.array([self.strides[q, c] for q, m in enumerate(self.marginals) for c in m], dtype=np.int64)
        return starts, columns, steps, self.offsets


@numba.njit(cache=True, nogil=True)
def _count(codes, weights, starts, columns, steps, offsets, out):  # type: ignore[no-untyped-def]
    for i in range(codes.shape[0]):
        weight = weights[i]
        for q in range(offsets.size - 1):
            cell = offsets[q]
            for k in range(starts[q], starts[q + 1]):
                cell += codes[i, columns[k]] * steps[k]
            out[cell] += weight
