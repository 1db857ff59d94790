"""Wasserstein distances against brute force, closed forms and the rules of a distance."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from benchmarks.distances import histogram, w1_sliced
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from synthstream.evaluate.wasserstein import w1_grid
from synthstream.workload import FloatArray


def assigned(a: FloatArray, b: FloatArray, metric: Literal["chebyshev", "euclidean"]) -> float:
    """W1 of as many points as others, all of one weight."""
    costs = cdist(a, b, metric)
    return float(costs[linear_sum_assignment(costs)].mean())


def transported(mass_a: FloatArray, mass_b: FloatArray) -> float:
    """W1 on a grid in the maximum norm, by the linear program over all pairs of cells."""
    side = len(mass_a)
    places = np.stack(np.divmod(np.arange(side**2), side), axis=1) / side
    costs = cdist(places, places, "chebyshev")
    leaving, arriving = np.kron(np.eye(side**2), np.ones(side**2)), np.kron(np.ones(side**2), np.eye(side**2))
    aims = np.concatenate([mass_a.ravel() / mass_a.sum(), mass_b.ravel() / mass_b.sum()])
    return float(linprog(costs.ravel(), A_eq=np.vstack([leaving, arriving]), b_eq=aims).fun or 0)


@pytest.mark.parametrize("seed", range(5))
def test_grid_against_assignment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.random((40, 2)), rng.beta(2, 5, (40, 2))
    near_a, near_b = ((np.floor(points * 16) + 0.5) / 16 for points in (a, b))
    assert w1_grid(histogram(a, 16), histogram(b, 16)) == pytest.approx(assigned(near_a, near_b, "chebyshev"))


@pytest.mark.parametrize("seed", range(5))
def test_grid_against_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.exponential(size=(5, 5)), rng.exponential(size=(5, 5)) * (rng.random((5, 5)) < 0.5)
    assert w1_grid(a, b) == pytest.approx(transported(a, b))


def test_a_shift_costs_its_longer_side() -> None:
    rng = np.random.default_rng(0)
    mass = np.zeros((32, 32))
    mass[2:10, 3:9] = rng.random((8, 6))
    for down, right in ((0, 0), (5, 0), (4, 7), (11, 3)):
        shifted = np.roll(mass, (down, right), axis=(0, 1))
        assert w1_grid(mass, 3 * shifted) == pytest.approx(max(down, right) / 32, abs=1e-12)


def test_grid_is_a_distance() -> None:
    rng = np.random.default_rng(1)
    a, b, c = rng.random((3, 12, 12)) ** 4
    assert w1_grid(a, b) == pytest.approx(w1_grid(b, a))
    assert w1_grid(a, c) <= w1_grid(a, b) + w1_grid(b, c) + 1e-12
    assert w1_grid(a, a) == 0


def test_grid_keeps_its_digits_where_the_distance_is_small() -> None:
    """A hundred-thousandth of the mass moves by one cell of 64 x 64."""
    mass = np.ones((64, 64))
    moved = mass.copy()
    moved[10, 10] -= 4096e-5
    moved[11, 11] += 4096e-5
    assert w1_grid(mass, moved) == pytest.approx(1e-5 / 64, rel=1e-6)


def test_a_flat_grid_is_the_line() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((2, 20))
    flat = np.zeros((2, 20, 20))
    flat[:, 7] = a, b
    centres = (np.arange(20) + 0.5) / 20
    assert w1_grid(*flat) == pytest.approx(wasserstein_distance(centres, centres, a, b))


def test_sliced_shift_is_the_mean_shadow() -> None:
    rng = np.random.default_rng(3)
    points = rng.random((200, 3)) * 0.5
    shift = np.array([0.3, 0.1, 0.2])
    length = float(np.linalg.norm(shift))
    found = w1_sliced(points, points + shift, directions=2000, rng=rng)
    assert found == pytest.approx(length / 2, rel=0.05)  # the mean of |cos| over the sphere
    lines = np.random.default_rng(4).normal(size=(8, 3))
    exact = np.abs(lines @ shift / np.linalg.norm(lines, axis=1)).mean()
    assert w1_sliced(points, points + shift, directions=8, rng=np.random.default_rng(4)) == pytest.approx(exact)


def test_sliced_is_below_the_euclidean_distance_and_takes_weights() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random((30, 3)), rng.beta(2, 5, (30, 3))
    found = w1_sliced(a, b, rng=np.random.default_rng(6))
    assert 0 < found < assigned(a, b, "euclidean")
    doubled = np.repeat(a, 2, axis=0)
    assert w1_sliced(doubled, b, rng=np.random.default_rng(6)) == pytest.approx(found)
    assert w1_sliced(a, b, rng=np.random.default_rng(6), weights_a=np.full(30, 7.0)) == pytest.approx(found)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_histogram_counts(dimension: int) -> None:
    rng = np.random.default_rng(7)
    points = np.vstack([rng.random((500, dimension)), np.ones((1, dimension)), np.zeros((1, dimension))])
    weights = rng.random(len(points))
    expected = np.histogramdd(points, bins=8, range=[(0, 1)] * dimension, weights=weights)[0] / weights.sum()
    np.testing.assert_allclose(histogram(points, 8, weights), expected)


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0, -1.0, 1.0], "at least 0"), ([0.0, 0.0, 0.0], "not all 0"), ([1.0], "3 numbers"), ([np.nan] * 3, "3 num")],
)
def test_wrong_weights_are_refused(weights: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        histogram(np.zeros((3, 1)), 2, np.array(weights))


def test_wrong_points_and_masses_are_refused() -> None:
    with pytest.raises(ValueError, match="no points"):
        histogram(np.zeros((0, 1)), 2)
    with pytest.raises(ValueError, match="one space"):
        w1_sliced(np.zeros((3, 2)), np.zeros((3, 3)), rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="at least 1"):
        w1_sliced(np.zeros((3, 2)), np.zeros((3, 2)), rng=np.random.default_rng(0), directions=0)
    with pytest.raises(ValueError, match="square grid"):
        w1_grid(np.ones((3, 4)), np.ones((3, 4)))
    with pytest.raises(ValueError, match="at least 0"):
        w1_grid(np.ones((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="unit cube"):
        histogram(np.array([[1.1]]), 2)
