"""Exact counts of the cells that are not empty. Private."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numba
import numpy as np

from synthstream.workload import IntArray


class Private:
    """What is exact: no array, no sequence and no number, so that what plans noise or publishes cannot take it by
    mistake. Code that means to opens it by name: ``numbers``, ``dense``; docs/trust.md lists the files that do.
    """

    __slots__ = ()
    __array_ufunc__ = None  # arithmetic with arrays is refused

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{self} is opened in the call of a mechanism alone")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private)"  # a line in a log would show it, or how much there is


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Counts(Private):
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
        if weights is None:  # much faster: places need not be sorted along
            return cls(*_counted(cells.astype(np.int64)))
        found, place = np.unique(cells, return_inverse=True)
        numbers = np.zeros(found.size, dtype=np.int64)
        np.add.at(numbers, place.reshape(-1), weights)
        kept = numbers != 0
        return cls(found[kept].astype(np.int64), numbers[kept])

    def plus(self, other: Counts) -> Self:
        """Sums, cell by cell.

        Raises:
            OverflowError: a sum leaves 64 bits. No number of rows that can be counted is so large.
        """
        cells, numbers, fits = _merged(self.cells, self.numbers, other.cells, other.numbers)
        if not fits:
            raise OverflowError("counts leave 64 bits: they are not those of rows")
        return type(self)(cells, numbers)

    def split(self, border: int) -> tuple[Self, Self]:
        """Counts of cells below a border, and of the others, which are numbered from it on."""
        at = np.searchsorted(self.cells, border)
        own = type(self)
        return own(self.cells[:at], self.numbers[:at]), own(self.cells[at:] - border, self.numbers[at:])

    def within(self, size: int) -> bool:
        """Whether there are cells, all below ``size``, listed once and in order, and no count is 0."""
        cells, numbers = self.cells, self.numbers
        return bool(
            cells.shape == numbers.shape
            and cells.size
            and np.all(cells[1:] > cells[:-1])  # differences might wrap
            and cells[0] >= 0
            and cells[-1] < size
            and np.all(numbers != 0)
        )

    def add_to(self, sums: IntArray, *, finer: int = 0, limit: int | None = None) -> None:
        """Adds to sums, in place.

        Args:
            sums: of nodes, int64, shape ``(nodes,)``.
            finer: how many levels above the cells they are.
            limit: each sum is clipped to this size; without one, sums past 64 bits wrap around.
        """
        _add(sums, self.cells, self.numbers, finer, limit)

    def dense(self, size: int) -> IntArray:
        """A vector over all cells."""
        out = np.zeros(size, dtype=np.int64)
        out[self.cells] = self.numbers
        return out


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Sums(Private):
    """What counters have added up, between two ticks.

    Args:
        exact: the state of a mechanism; handed to its ``step`` alone.
    """

    exact: dict[str, np.ndarray[Any, np.dtype[Any]]]


@numba.njit(cache=True, nogil=True)
def _add(sums, cells, numbers, finer, limit):  # type: ignore[no-untyped-def]
    for i in range(cells.size):
        node = cells[i] >> finer
        sums[node] += numbers[i]
        if limit is not None:
            sums[node] = min(max(sums[node], -limit), limit)


@numba.njit(cache=True, nogil=True)
def _counted(cells):  # type: ignore[no-untyped-def]
    """Different cells of a vector, none below 0, in order, and how often each is there. The vector is used up."""
    shift, highest = 0, 0
    for cell in cells:
        highest = max(highest, cell)
    into, ends = np.empty_like(cells), np.empty(2048, dtype=np.int64)
    while highest >> shift:  # sorted by eleven binary digits after the other, the lowest first
        ends[:] = 0
        for cell in cells:
            ends[cell >> shift & 2047] += 1
        ends[1:] = np.cumsum(ends)[:-1]
        ends[0] = 0
        for cell in cells:
            digit = cell >> shift & 2047
            into[ends[digit]] = cell
            ends[digit] += 1
        cells, into, shift = into, cells, shift + 11
    found, numbers = np.empty(cells.size, dtype=np.int64), np.empty(cells.size, dtype=np.int64)
    n = 0
    for i in range(cells.size):
        if n and found[n - 1] == cells[i]:
            numbers[n - 1] += 1
        else:
            found[n], numbers[n] = cells[i], 1
            n += 1
    return found[:n].copy(), numbers[:n].copy()


@numba.njit(cache=True, nogil=True)
def _merged(ours, our_numbers, theirs, their_numbers):  # type: ignore[no-untyped-def]
    """Cells of both in order, their sums without those that are 0, and whether all sums fit."""
    cells = np.empty(ours.size + theirs.size, dtype=np.int64)
    numbers = np.empty(cells.size, dtype=np.int64)
    i = j = n = 0
    while i < ours.size or j < theirs.size:
        first = j == theirs.size or (i < ours.size and ours[i] <= theirs[j])
        second = i == ours.size or (j < theirs.size and theirs[j] <= ours[i])
        a, b = our_numbers[i] if first else 0, their_numbers[j] if second else 0
        if (a ^ (a + b)) & (b ^ (a + b)) < 0:
            return cells[:n], numbers[:n], False
        cells[n], numbers[n] = ours[i] if first else theirs[j], a + b
        n += a + b != 0
        i, j = i + first, j + second
    return cells[:n].copy(), numbers[:n].copy(), True
