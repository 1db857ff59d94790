"""Public constraints: which combinations of values are possible, in codes. Private rows never consult them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthstream.workload import CodeArray, FloatArray, IntArray

# Every row of a group may become any of its combinations, so all of them are listed.
MOST_COMBINATIONS = 100_000
# Up to so many are all offered to every row; of more, some that are drawn, with which rows fit less well.
ALL_OFFERED = 4096


class Grids(NamedTuple):
    """Columns of one place, of which each is decided by the next one.

    Args:
        columns: coarsest first.
        levels: how often the box is halved for each: it has ``2**level`` cells, numbered as nodes of a partition
            (:mod:`synthstream.partition`), and then codes of what lies outside.
        coordinates: how many take turns in being halved.
    """

    columns: tuple[int, ...]
    levels: tuple[int, ...]
    coordinates: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Columns that public constraints join, and all combinations of their codes that are allowed.

    Args:
        columns: positions, increasing.
        combinations: codes, shape ``(combinations, columns)``; distinct, in lexicographic order.
        nests: grids of places.
        usual: which combinations are taken to have rows, unless counts clearly say that others have; ``None``: all.
    """

    columns: tuple[int, ...]
    combinations: CodeArray
    nests: tuple[Grids, ...] = ()
    usual: NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls,
        columns: Sequence[int],
        combinations: NDArray[Any],
        *,
        nests: Sequence[Grids] = (),
        usual: NDArray[np.bool_] | None = None,
    ) -> Group:
        """From columns and combinations in any order.

        Example:
            >>> Group.of([2, 0], np.array([[1, 0], [0, 0], [1, 0]])).combinations.tolist()
            [[0, 0], [0, 1]]
        """
        order = np.argsort(columns)
        listed = np.asarray(combinations, dtype=np.int32).reshape(-1, len(order))
        codes, place = np.unique(listed[:, order], axis=0, return_inverse=True)
        if usual is not None:
            usual = np.bincount(place.reshape(-1), weights=usual, minlength=len(codes)) > 0
        return cls(columns=tuple(sorted(columns)), combinations=codes, nests=tuple(nests), usual=usual)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and (self.columns, self.hash) == (other.columns, other.hash)

    @property
    def number(self) -> int:
        """Number of allowed combinations."""
        return len(self.combinations)

    def possible(self, sizes: Sequence[int]) -> int:
        """Number of all combinations."""
        return math.prod(sizes[c] for c in self.columns)

    @cached_property
    def as_usual(self) -> Group:
        """Its usual combinations alone; all, where other constraints leave none of these."""
        if self.usual is None or not self.usual.any():
            return self
        return Group(columns=self.columns, combinations=self.combinations[self.usual], nests=self.nests)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the allowed combinations, hexadecimal."""
        return hashlib.sha256(np.ascontiguousarray(self.combinations, dtype="<i4").tobytes()).hexdigest()

    def restricts(self, pair: Sequence[int]) -> bool:
        """Whether two of its columns may not take all combinations of the values that each of them may take.

        Example:
            >>> group = Group.of([0, 1, 2], np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]]))
            >>> group.restricts([0, 1]), group.restricts([1, 2]), group.restricts([0, 5])
            (True, False, False)
        """
        if not set(pair) <= set(self.columns):
            return False
        both = self.combinations[:, [self.columns.index(c) for c in pair]]
        return len(np.unique(both, axis=0)) < math.prod(len(np.unique(each)) for each in both.T)

    def product(self, column: int, size: int, factors: Mapping[int, FloatArray]) -> FloatArray:
        """For each code of a column the mean, over its usual combinations, of the product of factors of other codes.

        Args:
            size: number of its codes; those that are in no combination get 1.
            factors: by column, shape ``(codes,)``; of columns that are not in the group, or left out, 1.
        """
        usual = self.as_usual
        found = np.ones(usual.number)
        for place, c in enumerate(self.columns):
            if c != column and c in factors:
                found *= factors[c][usual.combinations[:, place]]
        codes = usual.combinations[:, self.columns.index(column)]
        sums, number = (np.bincount(codes, weights=w, minlength=size) for w in (found, None))
        return np.where(number > 0, sums / np.maximum(number, 1), 1.0)

    def places(self, codes: CodeArray) -> IntArray:
        """Which combination each row has, -1 where it is none of these; shape ``(rows,)``.

        Args:
            codes: of all columns, shape ``(rows, columns)``.
        """
        return self.among(codes[:, list(self.columns)])

    def among(self, combinations: CodeArray) -> IntArray:
        """The same of codes of its own columns alone, shape ``(rows, columns)``."""
        rows = combinations.astype(np.int64)
        spans = np.maximum(self.combinations.max(axis=0, initial=0), rows.max(axis=0, initial=0)).astype(np.int64) + 1
        if math.prod(spans.tolist()) >= 2**62:  # no number tells all combinations apart
            _, inverse = np.unique(np.concatenate([self.combinations, rows]), axis=0, return_inverse=True)
            known, asked = np.split(inverse.reshape(-1).astype(np.int64), [self.number])
        else:
            steps = np.append(np.cumprod(spans[:0:-1])[::-1], 1)
            known, asked = self.combinations.astype(np.int64) @ steps, rows @ steps
        found = np.minimum(np.searchsorted(known, asked), self.number - 1)
        return np.asarray(np.where(known[found] == asked, found, -1), dtype=np.int64)


def joined(constraints: Sequence[Group]) -> tuple[Group, ...]:
    """Constraints that share columns, directly or by way of others, as one group each.

    Raises:
        ValueError: a group has more than ``MOST_COMBINATIONS`` allowed combinations.

    Example:
        >>> a = Group.of([0, 1], np.array([[0, 0], [1, 1]]))
        >>> b = Group.of([1, 2], np.array([[0, 0], [0, 1]]))
        >>> [(group.columns, group.combinations.tolist()) for group in joined([a, b])]
        [((0, 1, 2), [[0, 0, 0], [0, 0, 1]])]
    """
    left, groups = list(constraints), []
    while left:
        found = left.pop(0)
        while near := [other for other in left if set(other.columns) & set(found.columns)]:
            # First those that bring the fewest new columns: they can only take combinations away.
            nearest = min(near, key=lambda other: (len(set(other.columns) - set(found.columns)), other.number))
            left = [other for other in left if other is not nearest]
            found = _join(found, nearest, 10 * MOST_COMBINATIONS)
        if found.number > MOST_COMBINATIONS:
            most = f"at most {MOST_COMBINATIONS:,} are served"
            raise ValueError(f"{found.number:,} allowed combinations are too many; {most}")
        groups.append(found)
    return tuple(sorted(groups, key=lambda group: group.columns))


def _join(a: Group, b: Group, most: int) -> Group:
    """All combinations of both groups' columns whose parts both allow."""
    shared = [c for c in a.columns if c in b.columns]
    new = [c for c in b.columns if c not in a.columns]
    ours = a.combinations[:, [a.columns.index(c) for c in shared]]
    theirs = b.combinations[:, [b.columns.index(c) for c in shared]]
    _, inverse = np.unique(np.concatenate([ours, theirs]), axis=0, return_inverse=True)
    left, right = np.split(inverse.reshape(-1), [a.number])
    by_key = np.argsort(right, kind="stable")
    begin = np.searchsorted(right[by_key], left, side="left")
    count = np.searchsorted(right[by_key], left, side="right") - begin
    total = int(count.sum())
    if total > most:
        raise ValueError(f"more than {most:,} combinations of the columns at {(*a.columns, *new)} are allowed")
    repeated = np.repeat(np.arange(a.number), count)
    within = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    partner = by_key[np.repeat(begin, count) + within]
    added = b.combinations[partner][:, [b.columns.index(c) for c in new]]
    codes = np.concatenate([a.combinations[repeated], added], axis=1)
    usual = None
    if a.usual is not None or b.usual is not None:
        first, second = (np.ones(g.number, dtype=np.bool_) if g.usual is None else g.usual for g in (a, b))
        usual = np.repeat(first, count) & second[partner]
    return Group.of([*a.columns, *new], codes, nests=(*a.nests, *b.nests), usual=usual)
