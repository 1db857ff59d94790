"""The binary partition of a box: halves of halves, one coordinate after the other. Public geometry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.measured import NUMBER, Block
from synthstream.workload import CodeArray, FloatArray, IntArray

# Cells are numbered in 32 bits where rows are kept one by one, and vectors over all cells must fit in memory.
DEEPEST = 30

# The budget of an epoch is divided into so many equal parts; no level gets fewer than this of them.
WHOLE, LEAST = 2**20, 2**7


@dataclass(frozen=True, kw_only=True)
class Region:
    """Which part of the unit cube can hold events, as the nodes of its partition see it. Public geometry.

    Args:
        name: a hash of its shape, which decides all the rest.
        cut: by level, from the root's to the last cells', nodes that lie in it in part, increasing.
        ratios: by level, not of the cells: of each of these nodes, the volume in its left half less that in its right
            half, over both; 1 or -1 where one half is empty. A node that has no ancestor among them lies in it.

    Example:
        >>> half = Region(name="left", cut=(np.array([0]), np.array([], int)), ratios=(np.array([1.0]),))
        >>> half.divided(np.array([8.0]), 0).tolist(), half.emptied(0).tolist()
        ([8.0, 0.0], [0])
    """

    name: str
    cut: tuple[IntArray, ...] = field(compare=False)
    ratios: tuple[FloatArray, ...] = field(compare=False)

    def emptied(self, level: int) -> IntArray:
        """Nodes of a level of which one half is empty and the other is not."""
        return np.asarray(self.cut[level][np.abs(self.ratios[level]) == 1])

    def leaning(self, level: int, nodes: IntArray) -> FloatArray:
        """The ratios of some nodes of a level; 0 for those that are not cut."""
        cut, found = self.cut[level], np.zeros(nodes.shape)
        if cut.size:
            at = np.minimum(np.searchsorted(cut, nodes), cut.size - 1)
            found = np.where(cut[at] == nodes, self.ratios[level][at], 0.0)
        return found

    def divided(self, masses: FloatArray, level: int) -> FloatArray:
        """Masses of the halves of a level's nodes if each lies evenly in its part of the region."""
        halves, cut, ratios = np.repeat(masses / 2, 2), self.cut[level], self.ratios[level]
        halves[2 * cut] = masses[cut] * (1 + ratios) / 2
        halves[2 * cut + 1] = masses[cut] * (1 - ratios) / 2
        return halves

    def averaged(self, values: FloatArray, level: int, nodes: IntArray) -> FloatArray:
        """Means over nodes of a level of values of their halves, each as much as it has of the region.

        Args:
            values: shape ``(..., 2 * nodes)``.
            nodes: shape ``(..., nodes)``.
        """
        lean = self.leaning(level, nodes)
        return np.asarray((values[..., 0::2] * (1 + lean) + values[..., 1::2] * (1 - lean)) / 2)

    def live(self, depth: int) -> NDArray[np.bool_]:
        """Whether each node of a level has any part of the region, shape ``(2**depth,)``."""
        found = np.ones(1, dtype=np.bool_)
        for level in range(depth):
            found = np.repeat(found, 2)
            found[2 * self.cut[level][self.ratios[level] == 1] + 1] = False
            found[2 * self.cut[level][self.ratios[level] == -1]] = False
        return found

    def drawn(self, nodes: IntArray, level: int, depth: int, rng: np.random.Generator) -> IntArray:
        """For each node of a level, drawn evenly from its part of the region, a node of a deeper level."""
        for at in range(level, depth):
            nodes = 2 * nodes + (rng.random(nodes.size) >= (1 + self.leaning(at, nodes)) / 2)
        return nodes

    def folded(self, cells: IntArray, depth: int) -> IntArray:
        """Cells of a level, those without any part of the region moved to the other half of what emptied them."""
        for level in range(depth):
            nodes, below = cells >> depth - level, depth - level - 1
            lean = self.leaning(level, nodes)
            wrong = np.abs(lean) == 1
            cells = np.where(wrong, cells & ~(1 << below) | ((lean < 0).astype(np.int64) << below), cells)
        return cells


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Halves of the unit cube, down to ``depth`` splits; split j is along coordinate ``j % dimension``.

    The node at level j that holds a point has the first j bits of the point's cell as its number, so that its halves
    are ``2 * node`` (the lower one) and ``2 * node + 1``. A cell is a node of level ``depth``.

    Args:
        dimension: number of coordinates.
        depth: number of splits, from ``dimension`` to 30.
        region: the part that holds all events; left out: all of the cube.

    Example:
        >>> partition = Partition(dimension=2, depth=3)
        >>> partition.bits
        (2, 1)
        >>> partition.cells(np.array([[3, 0], [0, 1]], dtype=np.int32)).tolist()
        [5, 2]
        >>> partition.codes(np.array([5, 2])).tolist()
        [[3, 0], [0, 1]]
    """

    dimension: int
    depth: int
    region: Region | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= self.depth <= DEEPEST:
            raise ValueError(
                f"a partition in {self.dimension} dimensions needs a depth from {max(self.dimension, 1)} to {DEEPEST}, "
                f"not {self.depth}"
            )

    @property
    def cells_number(self) -> int:
        """Number of cells."""
        return int(2**self.depth)

    @property
    def facts(self) -> list[str]:
        """What beside dimension and depth tells it from others."""
        return [] if self.region is None else [self.region.name]

    def leaning(self, level: int, nodes: IntArray) -> FloatArray:
        """See :meth:`Region.leaning`; 0 where there is no region."""
        return np.zeros(nodes.shape) if self.region is None else self.region.leaning(level, nodes)

    def most(self, joint: int, left: int) -> int:
        """How many levels are read together of so many that are left: in a region, of which parts are empty, one."""
        return max(min(joint, left), 1) if self.region is None else 1

    @cached_property
    def bits(self) -> tuple[int, ...]:
        """Binary digits of each coordinate, shape ``(dimension,)``; coordinate c has ``2**bits[c]`` codes."""
        return tuple((self.depth - c + self.dimension - 1) // self.dimension for c in range(self.dimension))

    def diameter(self, level: int) -> float:
        """Longest side of a node of a level, where the cube's is 1: the largest distance in the maximum norm."""
        return float(2.0 ** -(level // self.dimension))

    def cells(self, codes: CodeArray) -> IntArray:
        """Cells of points.

        Args:
            codes: shape ``(points, dimension)``, each in ``range(2**bits[c])``: the coordinate's first binary digits.

        Returns:
            int64, shape ``(points,)``.
        """
        return _interleave(np.ascontiguousarray(codes, dtype=np.int32), self._spread, np.array(self.bits))  # type: ignore[no-any-return]

    @cached_property
    def _spread(self) -> IntArray:
        """For each coordinate, place and value of a byte of its code, what the byte adds to the number of the cell."""
        found = np.zeros((self.dimension, 4, 256), dtype=np.int64)
        for level in range(self.depth):
            c = level % self.dimension
            place, bit = divmod(self.bits[c] - 1 - level // self.dimension, 8)
            found[c, place] |= (np.arange(256) >> bit & 1) << (self.depth - 1 - level)
        return found

    def codes(self, cells: IntArray) -> CodeArray:
        """Codes of the coordinates of cells, int32, shape ``(points, dimension)``; undoes :meth:`cells`."""
        return _separate(np.ascontiguousarray(cells, dtype=np.int64), self.dimension, self.depth)  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)
def _interleave(codes, spread, bits):  # type: ignore[no-untyped-def]
    points, dimension = codes.shape
    out = np.zeros(points, dtype=np.int64)
    for i in range(points):
        for c in range(dimension):
            for place in range(bits[c] + 7 >> 3):
                out[i] |= spread[c, place, codes[i, c] >> 8 * place & 255]
    return out


@numba.njit(cache=True, nogil=True)
def _separate(cells, dimension, depth):  # type: ignore[no-untyped-def]
    out = np.zeros((cells.size, dimension), dtype=np.int32)
    for i in range(cells.size):
        for level in range(depth):
            c = level % dimension
            out[i, c] = out[i, c] << 1 | (cells[i] >> (depth - 1 - level)) & 1
    return out


@numba.njit(cache=True, nogil=True)
def counted(cells, depth):  # type: ignore[no-untyped-def]
    """Counts of every node of the first ``depth`` levels and the one below, from counts of all cells, int64.

    Node i of level j is at position 2^j + i, so that shape is ``(2**(depth + 1),)`` and position 0 is empty.
    """
    found, last, width = np.empty(2 ** (depth + 1), dtype=np.int64), 2**depth, cells.size >> depth
    for i in range(last):
        number = 0
        for k in range(i * width, (i + 1) * width):
            number += cells[k]
        found[last + i] = number
    for i in range(last - 1, 0, -1):
        found[i] = found[2 * i] + found[2 * i + 1]
    found[0] = 0
    return found


def differences(counts: IntArray) -> IntArray:
    """Left minus right in every node that is not of the last level, node i of level j at position 2^j + i; 0: nothing.

    Args:
        counts: of :func:`counted`.
    """
    return counts[0::2] - counts[1::2]


def parts_of(counts: IntArray, level: int, nodes: IntArray, joint: int) -> IntArray:
    """Counts of the parts of nodes of a level, int64, shape ``(nodes, 2**joint)``; for one level left minus right.

    Args:
        counts: of :func:`counted`.
    """
    found: IntArray = counts[2 ** (level + joint) + halves(nodes, joint)].reshape(nodes.size, -1)
    return found if joint > 1 else found[:, :1] - found[:, 1:]


def by_level(nodes: NDArray[Any]) -> list[NDArray[Any]]:
    """Values of nodes, node i of level j at position 2^j + i, by level: shapes ``(1,)``, ``(2,)``, ..."""
    return [nodes[2**level : 2 ** (level + 1)] for level in range(int(nodes.size).bit_length() - 1)]


def halves(nodes: IntArray, levels: int = 1) -> IntArray:
    """Both halves of nodes, in order; of more levels, the halves of these, and so on."""
    return np.asarray(((nodes[:, None] << levels) + np.arange(1 << levels)).reshape(-1))


def unfolded(parts: FloatArray) -> list[FloatArray]:
    """Left minus right in nodes, in their halves, and so on, by level, from counts of the parts of each node.

    Args:
        parts: shape ``(nodes, 2**levels)``; ``(nodes, 1)``: left minus right itself.

    Example:
        >>> [values.tolist() for values in unfolded(np.array([[5.0, 3.0, 2.0, 1.0]]))]
        [[5.0], [2.0, 1.0]]
    """
    found = [parts[:, 0]] if parts.shape[1] == 1 else []
    while parts.shape[1] > 1:
        left, right = parts[:, 0::2], parts[:, 1::2]
        found, parts = [(left - right).reshape(-1), *found], left + right
    return found


def halved(
    nodes: IntArray, mass: FloatArray, values: FloatArray, lean: FloatArray, room: IntArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Halves of nodes, but for those that a region leaves empty; their masses; their room.

    Args:
        values: noisy differences of the nodes.
        lean: their ratios in the region; 1 or -1 tells a difference without noise.
        room: parts of a budget that are left below each node.
    """
    held = np.flatnonzero(np.stack([lean != -1, lean != 1], axis=1))
    found = divided(mass, np.where(np.abs(lean) == 1, lean * mass, values))
    return halves(nodes)[held], found[held], room[held // 2]


def descended(
    nodes: IntArray,
    mass: FloatArray,
    lean: FloatArray,
    room: IntArray,
    at: IntArray,
    told: Sequence[FloatArray],
) -> tuple[IntArray, FloatArray, IntArray]:
    """Nodes some levels below; their masses; their room. See :func:`halved`; ``lean`` is 0 if it is several levels.

    Args:
        at: positions of the nodes that were read.
        told: noisy differences in these, in their halves, and so on, by level.
    """
    for values in told:
        known = np.zeros(nodes.size)
        known[at] = values
        nodes, mass, room = halved(nodes, mass, known, lean, room)
        at, lean = halves(at), np.zeros(nodes.size)
    return nodes, mass, room


def sums(masses: FloatArray) -> list[FloatArray]:
    """Sums over the nodes of every level, the root's first, from those of the last one."""
    found = [masses]
    while found[-1].size > 1:
        found.append(found[-1][0::2] + found[-1][1::2])
    return found[::-1]


@numba.njit(cache=True, nogil=True)
def divided(mass, values):  # type: ignore[no-untyped-def]
    """Masses of the halves of nodes, by their noisy differences."""
    out = np.empty(2 * mass.size)
    for i in range(mass.size):
        half = min(max(values[i], -mass[i]), mass[i])
        out[2 * i], out[2 * i + 1] = (mass[i] + half) / 2, (mass[i] - half) / 2
    return out


def blocks_of(
    level: int,
    values: FloatArray | IntArray,
    variance: FloatArray,
    nodes: IntArray | None = None,
    *,
    summed: bool = False,
) -> list[Block]:
    """What one reading of nodes of a level says of it, and of levels below.

    Args:
        values: noisy differences, shape ``(n, 1)``, or noisy counts of the parts of each node, ``(n, 2**levels)``.
        variance: of the noise of each value of a node, shape ``(n,)``, or ``(1,)``: one for all.
        nodes: that were read, increasing; ``None``: all of the level.
        summed: whether counts of the root's parts also say how many events there are: the last block.
    """
    parts, found = values.shape[1], list[Block]()
    for deeper, told in enumerate(unfolded(values.astype(np.float64))):
        # That of two sums of so many counts. Sums and differences of the same counts are not correlated.
        own, each, those = variance * max(parts >> deeper, 1), None, None
        if nodes is not None:
            each, those = np.repeat(own, 2**deeper), halves(nodes, deeper)
        found.append(
            Block(level=level + deeper, values=told, variance=float(own[0]) if each is None else each, nodes=those)
        )
    if summed and level == 0 and parts > 1:
        found.append(
            Block(level=NUMBER, values=values.sum(axis=1, dtype=np.float64), variance=parts * float(variance[0]))
        )
    return found
