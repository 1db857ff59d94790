"""PrivTree, and the stream made of it: rivals of :mod:`benchmarks.points`. NOT PRIVATE: the noise comes from NumPy.

Sources: Zhang, Xiao, Xie 2016, PrivTree; Kumar, Strohmer, Vershynin 2024, An Algorithm for Streaming Differentially
Private Data (PHDStream; what the text leaves open is as in the authors' program, github.com/k-girish/phdstream).

Half of epsilon decides at every tick which nodes are leaves (PrivTree, on this tick's points and all that was released
before), half counts this tick's points in the leaves. A tick costs epsilon for its own points, so that the whole stream
does. A node that was a leaf at other ticks too has a counter of its own; it hands half of what it counted to each half
when it is split again. Nodes are numbered as in a heap: 1 is the root, the halves of v are 2v and 2v + 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.partition import Partition
from synthstream.privacy import Neighbours, l1_sensitivity
from synthstream.workload import IntArray

FloatArray = NDArray[np.float64]
# Of the authors' program: no deeper, no threshold but the bias, this many steps of a counter share one block.
DEPTH, BLOCK = 20, 8


@dataclass(frozen=True, kw_only=True)
class AdaptiveTree:
    """A stream, or with ``block = 0`` and one tick PrivTree itself.

    Args:
        dimension: number of coordinates.
        epsilon: of the whole stream.
        neighbours: under ``replace-one`` two points change, so that all noise is twice as wide.
        block: steps in a block of a counter; 0: each step is one noisy count.
        seed: of the noise.
    """

    dimension: int
    epsilon: float
    neighbours: Neighbours = "add-remove"
    block: int = BLOCK
    seed: int = 0
    _counts: IntArray = field(default_factory=lambda: np.zeros(2 ** (DEPTH + 1), dtype=np.int64))

    @cached_property
    def partition(self) -> Partition:
        """The deepest nodes."""
        return Partition(dimension=self.dimension, depth=DEPTH)

    @cached_property
    def _values(self) -> FloatArray:
        """Columns: the counter, its blocks, the true count of the open block, counted above, counted below, steps."""
        _seeded(self.seed)
        return np.zeros((2 ** (DEPTH + 1), 6))

    @cached_property
    def _leaf(self) -> NDArray[np.bool_]:
        return np.zeros(2 ** (DEPTH + 1), dtype=np.bool_)

    def take(self, cells: IntArray) -> None:
        """Close a tick with points in these cells. The first one is PrivTree: its counts are in no block."""
        values, half = self._values, self.epsilon / 2 / l1_sensitivity(self.neighbours)
        block = self.block if self._leaf.any() else 0
        self._leaf[:] = False
        _add(self._counts, cells, DEPTH, 1)
        _tick(self._counts, values, self._leaf, DEPTH, 3 / half, 3 / half * math.log(2), 1 / half, block)
        _add(self._counts, cells, DEPTH, -1)

    def masses(self) -> FloatArray:
        """Masses of the deepest cells, at least 0; a leaf's is even within it."""
        return _spread(self._values, self._leaf, DEPTH)  # type: ignore[no-any-return]


@numba.njit(cache=True)
def _seeded(seed):  # type: ignore[no-untyped-def]
    np.random.seed(seed)  # noqa: NPY002 - compiled code draws from no other


@numba.njit(cache=True)
def _add(counts, cells, depth, number):  # type: ignore[no-untyped-def]
    for cell in cells:
        node = cell + 2**depth
        while node:
            counts[node] += number
            node >>= 1


@numba.njit(cache=True)
def _tick(counts, values, leaf, depth, width, bias, noise, block):  # type: ignore[no-untyped-def]
    inner, waiting = [0], [1]
    while waiting:
        node = waiting.pop()
        level = int(math.log2(node))
        held = counts[node] + values[node, 0] + values[node, 3] + values[node, 4]
        noisy = max(held - level * bias, -bias) + np.random.laplace(0, width)
        if level < depth and noisy > 0:
            inner.append(node)
            for half in (2 * node + 1, 2 * node):
                values[half, 3] = (values[node, 0] + values[node, 3]) / 2
                waiting.append(half)
        else:
            leaf[node] = True
            _count(values[node], counts[node], noise, block)
    for i in range(len(inner) - 1, 0, -1):
        node, below = inner[i], 0.0
        for half in (2 * node, 2 * node + 1):
            below += values[half, 0] + values[half, 4]
        values[node, 4] = below


@numba.njit(cache=True)
def _count(row, number, noise, block):  # type: ignore[no-untyped-def]
    """One step: a noisy count, or, at the end of a block, one of the block; then both have half of the budget."""
    if block == 0:
        row[1] += number + np.random.laplace(0, noise)
        row[0] = row[1]
        return
    row[5] += 1
    row[2] += number
    if row[5] % block == 0:
        row[1] += row[2] + np.random.laplace(0, 2 * noise)
        row[0], row[2] = row[1], 0.0
    else:
        row[0] += number + np.random.laplace(0, 2 * noise)


@numba.njit(cache=True)
def _spread(values, leaf, depth):  # type: ignore[no-untyped-def]
    out = np.zeros(2**depth)
    for node in np.flatnonzero(leaf):
        finer = depth - int(math.log2(node))
        start = (node << finer) - 2**depth
        held = values[node, 0] + values[node, 3] + values[node, 4]
        out[start : start + 2**finer] = max(held, 0.0) / 2**finer
    return out
