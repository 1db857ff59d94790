"""Distances between clouds of points that only benchmarks use: along random lines, and histograms for grids."""

from __future__ import annotations

import numpy as np
from scipy.stats import wasserstein_distance

from synthstream.evaluate.wasserstein import normalised
from synthstream.workload import FloatArray


def w1_sliced(
    a: FloatArray,
    b: FloatArray,
    *,
    rng: np.random.Generator,
    directions: int = 64,
    weights_a: FloatArray | None = None,
    weights_b: FloatArray | None = None,
) -> float:
    """Sliced W1: the mean of W1 of the points' shadows on lines of random directions.

    It needs no grid and so serves three and more dimensions. It is at most the W1 of the Euclidean distance; how far
    below depends on the data. Compare its values with each other alone.

    Args:
        a, b: shapes ``(points_a, dimension)`` and ``(points_b, dimension)``.
        rng: for the directions, uniform on the unit sphere.
        directions: how many.
        weights_a, weights_b: at least 0, not all 0; left out: all equal.

    Raises ``ValueError`` if there are no points, weights are none, or the dimensions differ.
    """
    if np.ndim(a) != 2 or np.ndim(b) != 2 or np.shape(a)[1] != np.shape(b)[1]:
        raise ValueError(f"points of shapes {np.shape(a)} and {np.shape(b)} are not in one space")
    if directions < 1:
        raise ValueError(f"directions must be at least 1, not {directions}")
    lines = rng.normal(size=(directions, np.shape(a)[1]))
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    return float(np.mean([wasserstein_distance(a @ line, b @ line, weights_a, weights_b) for line in lines]))


def histogram(points: FloatArray, bins: int, weights: FloatArray | None = None) -> FloatArray:
    """Shares of points in the cells of a grid over the unit cube; a share stands for mass at its cell's centre.

    Args:
        points: shape ``(points, dimension)``, in the unit cube; a coordinate of 1 belongs to the last cell.
        bins: cells along each coordinate.
        weights: at least 0, not all 0; left out: all equal.

    Returns:
        Shape ``(bins,) * dimension``; adds up to 1.

    Raises:
        ValueError: a point lies outside, or weights are none.

    Example:
        >>> histogram(np.array([[0.1, 0.9], [0.2, 1.0]]), 2).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    if np.ndim(points) != 2 or not np.all((points >= 0) & (points <= 1)):
        raise ValueError("points must lie in the unit cube, one a row")
    number, dimension = np.shape(points)
    if number == 0:
        raise ValueError("there are no points")
    places = np.minimum((points * bins).astype(np.int64), bins - 1)
    shape = (bins,) * dimension
    cells = np.ravel_multi_index(tuple(places.T), shape)
    mass = normalised(np.ones(number) if weights is None else weights, number)
    return np.bincount(cells, weights=mass, minlength=bins**dimension).reshape(shape)
