"""Fewer, larger tables from which the tables of a workload follow by summing: many rows are counted faster in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

# Cells of one larger table at most: it stays in the processor's cache.
_LARGEST = 2**14

Marginal = tuple[int, ...]
Mask = NDArray[np.bool_]


def cover(marginals: Iterable[Marginal], sizes: Sequence[int]) -> tuple[Marginal, ...]:
    """Groups of columns such that each marginal lies in one of them; few of them, none larger than it must be.

    Greedy: it begins with the largest marginal that no group holds yet, and adds columns as long as they bring in more
    marginals and the group stays small, those first that bring in the most for their size.

    Example:
        >>> cover([(), (0,), (0, 1), (0, 2), (1, 2)], (2, 3, 4))
        ((0, 1, 2),)
    """
    found = sorted(dict.fromkeys(marginals), key=lambda m: (-math.prod(sizes[c] for c in m), m))
    holds = np.array([[c in m for c in range(len(sizes))] for m in found], dtype=np.bool_)
    left = np.ones(len(found), dtype=np.bool_)
    groups: list[Marginal] = []
    while left.any():
        group = holds[int(np.argmax(left))].copy()
        while (column := _next(group, holds[left], sizes)) is not None:
            group[column] = True
        groups.append(tuple(np.flatnonzero(group).tolist()))
        left &= (holds & ~group).any(axis=1)
    return tuple(groups)


def _next(group: Mask, holds: Mask, sizes: Sequence[int]) -> int | None:
    """The column that brings in the most marginals for the logarithm of its size; ``None`` if none can be added."""
    lacks = holds & ~group
    gains = lacks[lacks.sum(axis=1) == 1].sum(axis=0) / np.log(np.maximum(sizes, 1.01))
    gains[math.prod(np.array(sizes)[group].tolist()) * np.array(sizes) > _LARGEST] = 0.0
    best = int(np.argmax(gains))
    return best if gains[best] > 0 else None


def sources(marginals: Sequence[Marginal], groups: Sequence[Marginal], sizes: Sequence[int]) -> list[Marginal]:
    """For each marginal the smallest table that holds it: a group or a larger marginal; itself if it is a group."""
    tables = sorted({*marginals, *groups}, key=lambda m: (math.prod(sizes[c] for c in m), m))
    holds = np.array([[c in m for c in range(len(sizes))] for m in tables], dtype=np.bool_)
    length = holds.sum(axis=1)
    given = set(groups)
    return [m if m in given else tables[_smallest(m, holds, length)] for m in marginals]


def _smallest(marginal: Marginal, holds: Mask, length: NDArray[np.int64]) -> int:
    """The first table that holds a marginal and more."""
    return int(np.argmax(holds[:, list(marginal)].all(axis=1) & (length > len(marginal))))
