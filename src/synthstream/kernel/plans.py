"""Checks of plans, which are made outside the kernel, before anything is drawn by them."""

from __future__ import annotations

import numpy as np

from synthstream.partition import LEAST
from synthstream.workload import IntArray


def checked_parts(units: IntArray, levels: int, left: int) -> IntArray:
    """A copy of the parts of a budget that a planner gives to each level: it may use its array again.

    Raises ``ValueError`` unless they are whole numbers, one for each level, each at least ``LEAST``, that add up to at
    most ``left``.
    """
    kept = np.array(units)
    whole = kept.dtype == np.int64 and kept.shape == (levels,) and all(part >= LEAST for part in kept.tolist())
    if not whole or sum(kept.tolist()) > left:
        raise ValueError(f"a plan has no parts for each of {levels} levels, or they add up to more than is left")
    return kept


def checked_nodes(units: IntArray, left: IntArray) -> IntArray:
    """A copy of the parts of a budget that a planner gives to each node of a level: it may use its array again.

    Raises ``ValueError`` unless they are whole numbers, one for each node, each 0 or at least ``LEAST``, and none above
    what is left below its ancestors.
    """
    kept = np.array(units)
    if kept.dtype != np.int64 or kept.shape != left.shape or np.any((kept < LEAST) & (kept != 0)):
        raise ValueError(f"a plan has no parts for each of {left.size} nodes")
    if np.any(kept > left):
        raise ValueError("a plan's parts add up to more than is left on the way to a node")
    return kept
