"""One-shot measures of all points at once, for comparison: benchmarks, not releases.

The noise comes from NumPy and is not fit for a release. The number of points is public and neighbours replace a point.
A method returns masses over the cells of ``Partition(dimension=d, depth=depth_for(...))``, in points.

Source: He, Vershynin, Zhu 2023, Algorithmically effective differentially private synthetic data.
"""

from __future__ import annotations

from math import floor, log2

import numpy as np

from synthstream.partition import DEEPEST, Partition
from synthstream.workload import FloatArray, IntArray


def depth_for(number: int, dimension: int, epsilon: float) -> int:
    """``floor(log2(epsilon * number))``, between what a partition needs and what it can."""
    return min(max(floor(log2(max(epsilon * number, 1))), dimension), DEEPEST)


def partition_for(points: FloatArray, epsilon: float) -> Partition:
    """The partition whose cells a method fills."""
    number, dimension = points.shape
    return Partition(dimension=dimension, depth=depth_for(number, dimension, epsilon))


def count(points: FloatArray, partition: Partition) -> IntArray:
    """Points in each cell, shape ``(cells,)``."""
    sides = 2 ** np.array(partition.bits)
    codes = np.minimum((points * sides).astype(np.int32), sides - 1)
    return np.bincount(partition.cells(codes), minlength=partition.cells_number)


def shares(partition: Partition) -> FloatArray:
    """Share of the budget for each level from 1, shape ``(depth,)``: proportional to ``sqrt(2^j diameter(j - 1))``.

    Noise at one of the 2^j nodes of level j moves mass within its parent. So the bound on W1 is a sum over levels of
    2^j diameter(j - 1) / epsilon_j, which these shares make least for a given sum of the epsilon_j.
    """
    levels = range(1, partition.depth + 1)
    roots: FloatArray = np.sqrt([2.0**j * partition.diameter(j - 1) for j in levels])
    return roots / float(roots.sum())


def pmm(counts: IntArray, partition: Partition, *, epsilon: float, rng: np.random.Generator) -> FloatArray:
    """The private measure mechanism: noise on both halves of each node, which are then made to fit.

    A replaced point changes two counts of a level by 1 each, so level j spends twice its epsilon_j. From the top, noisy
    halves are clipped at 0; half of what they exceed or miss their node by is taken off or added to each, as far as
    neither falls below 0.
    """
    budget = epsilon / 2 * shares(partition)
    mass = np.array([counts.sum()], dtype=np.float64)
    for level in range(1, partition.depth + 1):
        true = counts.reshape(2**level, -1).sum(axis=1)
        noisy = np.maximum(true + _laplace(2**level, 1 / budget[level - 1], rng), 0).reshape(-1, 2)
        mass = _split(mass, noisy[:, 0] - noisy[:, 1])
    return mass


def haar(counts: IntArray, partition: Partition, *, epsilon: float, rng: np.random.Generator) -> FloatArray:
    """Noise on the difference of the halves of each node.

    A replaced point changes the differences of a level by 2 in all: one of them by 2, or two by 1 each.
    """
    budget = epsilon * shares(partition)
    mass = np.array([counts.sum()], dtype=np.float64)
    for level in range(1, partition.depth + 1):
        true = counts.reshape(2**level, -1).sum(axis=1).reshape(-1, 2)
        difference = true[:, 0] - true[:, 1] + _laplace(len(true), 2 / budget[level - 1], rng)
        mass = _split(mass, difference)
    return mass


def uniform(partition: Partition, number: int) -> FloatArray:
    """Ignores the data; takes any ``number`` of points to be spread evenly."""
    return np.full(partition.cells_number, number / partition.cells_number)


def _split(mass: FloatArray, difference: FloatArray | IntArray) -> FloatArray:
    left = np.clip((mass + difference) / 2, 0, mass)
    return np.stack([left, mass - left], axis=1).reshape(-1)


def _laplace(size: int, scale: float, rng: np.random.Generator) -> IntArray:
    """Discrete Laplace noise: the difference of two geometric variables."""
    p = -np.expm1(-1 / scale)
    return rng.geometric(p, size) - rng.geometric(p, size)


def centres(partition: Partition) -> FloatArray:
    """Centres of all cells, shape ``(cells, dimension)``; with the masses as weights, a synthetic measure."""
    codes = partition.codes(np.arange(partition.cells_number))
    return (codes + 0.5) / 2.0 ** np.array(partition.bits)


def on_grid(masses: FloatArray, partition: Partition, bins: int) -> FloatArray:
    """Masses on a grid, shape ``(bins,) * dimension``, where ``bins`` is a power of 2.

    Smaller cells are added up, larger ones spread evenly.
    """
    sides = 2 ** np.array(partition.bits)
    codes = partition.codes(np.arange(partition.cells_number))
    grid = np.zeros(tuple(sides))
    grid[tuple(codes.T)] = masses
    for axis, side in enumerate(sides):
        if side > bins:
            grid = np.add.reduceat(grid, np.arange(0, side, side // bins), axis=axis)
        else:
            grid = np.repeat(grid, bins // side, axis=axis) * (side / bins)
    return grid
