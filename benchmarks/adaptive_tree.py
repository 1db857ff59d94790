"""PrivTree, and the stream made of it: rivals of :mod:`benchmarks.points`. NOT PRIVATE: the noise comes from NumPy.

Sources: Zhang, Xiao, Xie 2016, PrivTree; Kumar, Strohmer, Vershynin 2024, An Algorithm for Streaming Differentially
Private Data (PHDStream; what the text leaves open is as in the authors' program, github.com/k-girish/phdstream).

Half of epsilon decides at every tick which nodes are leaves (PrivTree, on this tick's points and all that was released
before), half counts this tick's points in the leaves. A tick costs epsilon for its own points; so does the stream. A
node that was a leaf at some ticks keeps what it counted then, and hands half of it to each half while it is split. Its
counter adds noisy counts: of the paper's counters the best here (blocks of 8 ticks had 1.3 to 3 times the
error, when that was tried; no command does it again).
Nodes are numbered as in a heap: 1 is the root, the halves of v are 2v and 2v + 1.
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
from synthstream.workload import FloatArray, IntArray

# Of the authors' program: no node is deeper.
DEPTH = 20


@dataclass(frozen=True, kw_only=True)
class AdaptiveTree:
    """The stream; after one tick it is PrivTree.

    Args:
        dimension: number of coordinates.
        epsilon: of the whole stream.
        neighbours: under ``replace-one`` two points change, so that all noise is twice as wide.
        seed: of the noise.
    """

    dimension: int
    epsilon: float
    neighbours: Neighbours = "add-remove"
    seed: int = 0
    _counts: IntArray = field(default_factory=lambda: np.zeros(2 ** (DEPTH + 1), dtype=np.int64))

    @cached_property
    def partition(self) -> Partition:
        """The deepest nodes."""
        return Partition(dimension=self.dimension, depth=DEPTH)

    @cached_property
    def _values(self) -> FloatArray:
        """Columns: what the node counted, what it has of nodes above it, what nodes below it counted."""
        _seeded(self.seed)
        return np.zeros((2 ** (DEPTH + 1), 3))

    @cached_property
    def _leaf(self) -> NDArray[np.bool_]:
        return np.zeros(2 ** (DEPTH + 1), dtype=np.bool_)

    def take(self, cells: IntArray) -> None:
        """Close a tick with points in these cells."""
        values, half = self._values, self.epsilon / 2 / l1_sensitivity(self.neighbours)
        self._leaf[:] = False
        _add(self._counts, cells, DEPTH, 1)
        _tick(self._counts, values, self._leaf, DEPTH, 3 / half, 3 / half * math.log(2), 1 / half)
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
def _tick(counts, values, leaf, depth, width, bias, noise):  # type: ignore[no-untyped-def]
    inner, waiting = [0], [1]
    while waiting:
        node = waiting.pop()
        level = int(math.log2(node))
        noisy = max(counts[node] + values[node].sum() - level * bias, -bias)
        noisy += np.random.laplace(0, width)  # noqa: NPY002
        if level < depth and noisy > 0:
            inner.append(node)
            for half in (2 * node + 1, 2 * node):
                values[half, 1] = (values[node, 0] + values[node, 1]) / 2
                waiting.append(half)
        else:
            leaf[node] = True
            values[node, 0] += counts[node] + np.random.laplace(0, noise)  # noqa: NPY002
    for i in range(len(inner) - 1, 0, -1):
        node, below = inner[i], 0.0
        for half in (2 * node, 2 * node + 1):
            below += values[half, 0] + values[half, 2]
        values[node, 2] = below


@numba.njit(cache=True)
def _spread(values, leaf, depth):  # type: ignore[no-untyped-def]
    out = np.zeros(2**depth)
    for node in np.flatnonzero(leaf):
        finer = depth - int(math.log2(node))
        start = (node << finer) - 2**depth
        out[start : start + 2**finer] = max(values[node].sum(), 0.0) / 2**finer
    return out
