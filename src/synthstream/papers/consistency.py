"""Noisy counts of a binary tree to non-negative whole ones that add up (Algorithm 4 of He, Vershynin, Zhu 2024).

Post-processing of released values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthstream.workload import IntArray

# Larger counts are cut, so that sums of two stay within 64 bits.
LARGEST_COUNT = 2**61


def consistent(levels: Sequence[IntArray], total: int) -> list[IntArray]:
    """Counts of all levels that are at least 0, and where the two halves of each node sum to it.

    From the root down, the noisy counts n of two halves are cut at 0 and moved to m so that they sum to their node's m,
    both up or both down: (m_0 - n_0)(m_1 - n_1) >= 0. The paper leaves open which of such pairs is taken: each half
    gets the share it has of n_0 + n_1, rounded to whole counts, so that empty nodes stay empty. Two halves without a
    point are equal.

    Args:
        levels: noisy counts of levels 1, 2, ...; int64, shapes ``(2,)``, ``(4,)``, ...
        total: the root's count, from 0 to 2^61.

    Returns:
        Levels 0, 1, 2, ...; the first is ``[total]``.

    Example:
        >>> [m.tolist() for m in consistent([np.array([7, -2]), np.array([1, 3, 0, 5])], 8)]
        [[8], [8, 0], [2, 6, 0, 0]]
    """
    found = [np.array([total], dtype=np.int64)]
    for noisy in levels:
        counts = np.clip(noisy, 0, LARGEST_COUNT)
        found.append(_split(found[-1], counts[::2], counts[1::2]))
    return found


def _split(whole: IntArray, first: IntArray, second: IntArray) -> IntArray:
    """Both halves of each node, side by side: a wish for the first half, cut to where the conditions hold."""
    both = first + second
    grows = whole >= both
    low = np.where(grows, first, np.maximum(whole - second, 0))
    high = np.where(grows, whole - second, np.minimum(first, whole))
    # A float is near enough: every whole number between the two ends keeps the conditions.
    share = np.where(both > 0, first / np.maximum(both, 1), 0.5)
    wish = np.floor(whole * share + 0.5).astype(np.int64)
    chosen = np.clip(wish, low, high)
    return np.stack([chosen, whole - chosen], axis=1).reshape(-1)
