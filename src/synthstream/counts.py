"""Exact counts of the cells that are not empty. Private."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from synthstream.workload import IntArray


class Counts(NamedTuple):
    """Counts by cell.

    Args:
        cells: int64, shape ``(n,)``, strictly increasing.
        numbers: int64, shape ``(n,)``.

    Example:
        >>> counts = Counts.of(np.array([0, 3, 0, -1]))
        >>> counts.cells.tolist(), counts.dense(4).tolist()
        ([1, 3], [0, 3, 0, -1])
        >>> counts.plus(Counts.of(np.array([0, -3, 1, 0]))).dense(4).tolist()
        [0, 0, 1, -1]
    """

    cells: IntArray
    numbers: IntArray

    @classmethod
    def of(cls, dense: IntArray) -> Self:
        """Counts from a vector over all cells."""
        cells = np.flatnonzero(dense)
        return cls(cells, dense[cells])

    @classmethod
    def at(cls, cells: IntArray, weights: IntArray | None = None) -> Self:
        """Counts of events that lie in cells, each of weight 1 or as given."""
        found, place = np.unique(cells, return_inverse=True)
        numbers = np.zeros(found.size, dtype=np.int64)
        np.add.at(numbers, place.reshape(-1), 1 if weights is None else weights)
        kept = numbers != 0
        return cls(found[kept].astype(np.int64), numbers[kept])

    def plus(self, other: Counts) -> Self:
        """Sums, cell by cell.

        Raises:
            OverflowError: a sum leaves 64 bits. No number of rows that can be counted is so large.
        """
        cells = np.concatenate((self.cells, other.cells))
        cells.sort(kind="stable")  # two runs that are in order: this merges them
        cells = cells[np.append(True, cells[1:] != cells[:-1])[: cells.size]]
        ours, theirs = (np.zeros(cells.size, dtype=np.int64) for _ in range(2))
        ours[np.searchsorted(cells, self.cells)] = self.numbers
        theirs[np.searchsorted(cells, other.cells)] = other.numbers
        total = ours + theirs
        if np.any((ours ^ total) & (theirs ^ total) < 0):
            raise OverflowError("counts leave 64 bits: they are not those of rows")
        kept = total != 0
        return type(self)(cells[kept], total[kept])

    def within(self, size: int) -> bool:
        """Whether these are counts of some of so many cells, each once and in order, none of them 0 or beyond rows."""
        cells, numbers = self.cells, self.numbers
        return bool(
            cells.shape == numbers.shape
            and cells.size
            and np.all(np.diff(cells) > 0)
            and cells[0] >= 0
            and cells[-1] < size
            and np.all(numbers != 0)
        )

    def dense(self, size: int) -> IntArray:
        """A vector over all cells."""
        out = np.zeros(size, dtype=np.int64)
        out[self.cells] = self.numbers
        return out
