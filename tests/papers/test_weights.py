"""Multiplicative weights: the update against brute force, convergence, rows, edges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from synthstream.papers.fit.weights import LARGEST_DOMAIN, Weights, fit_weights
from synthstream.workload import Workload

Floats = NDArray[np.float64]

SIZES = (2, 3, 1, 4)
CLIQUES = [(), (0,), (1, 3), (0, 2), (0, 1, 3), (2,), (0, 1, 2, 3), (1, 2)]


def random_weights(seed: int, total: float = 100.0, sizes: tuple[int, ...] = SIZES) -> Weights:
    shares = np.random.default_rng(seed).dirichlet(np.full(int(np.prod(sizes)), 0.7))
    return Weights(sizes=sizes, total=total, shares=shares)


def brute_table(weights: Weights, clique: tuple[int, ...]) -> Floats:
    out = np.zeros([weights.sizes[c] for c in clique])
    for x, share in zip(itertools.product(*map(range, weights.sizes)), weights.shares, strict=True):
        out[tuple(x[c] for c in clique)] += share * weights.total
    return out


@pytest.mark.parametrize("clique", CLIQUES)
def test_tables_are_sums_over_the_domain(clique: tuple[int, ...]) -> None:
    weights = random_weights(1)
    assert weights.table(clique).shape == tuple(SIZES[c] for c in clique)
    np.testing.assert_allclose(weights.table(clique), brute_table(weights, clique))


def test_answers_are_the_tables_of_a_workload() -> None:
    weights = random_weights(2)
    workload = Workload.all_up_to(3, sizes=SIZES)
    answers = weights.answers(workload)
    assert answers.shape == (workload.cells,)
    for marginal in workload.marginals:
        np.testing.assert_allclose(answers[workload.slice_of(marginal)], brute_table(weights, marginal).ravel())


def brute_update(weights: Weights, clique: tuple[int, ...], value: Floats, cell: int | None) -> Floats:
    """One literal update of the paper, combination by combination."""
    estimate, grown = brute_table(weights, clique), []
    for x, share in zip(itertools.product(*map(range, weights.sizes)), weights.shares, strict=True):
        place = tuple(x[c] for c in clique)
        position = np.ravel_multi_index(place, estimate.shape) if clique else 0
        if cell is None:
            measured = value[place]
        elif cell == position:
            measured = value[()]
        else:
            grown.append(share)
            continue
        grown.append(share * np.exp(np.clip((measured - estimate[place]) / (2 * weights.total), -1, 1)))
    return np.asarray(np.array(grown) / sum(grown))


@pytest.mark.parametrize("whole", [True, False])
def test_one_pass_is_the_paper_update(whole: bool) -> None:
    rng = np.random.default_rng(5)
    start = random_weights(3)
    expected = start
    values: list[Floats] = []
    cells: list[int | None] = []
    for clique in CLIQUES:
        shape = tuple(SIZES[c] for c in clique)
        cells.append(None if whole else int(rng.integers(np.prod(shape, dtype=int))))
        values.append(rng.normal(30, 60, size=shape if whole else ()))
        shares = brute_update(expected, clique, values[-1], cells[-1])
        expected = Weights(sizes=SIZES, total=100.0, shares=shares)
    found = fit_weights(SIZES, CLIQUES, values, 100.0, start=start, iterations=1, cells=cells)
    np.testing.assert_allclose(found.shares, expected.shares, rtol=1e-9, atol=1e-14)


def test_exact_tables_are_reached() -> None:
    truth = random_weights(7, 500.0)
    cliques = [(0, 1), (1, 3), (0, 3)]
    values = [truth.table(clique) for clique in cliques]
    errors = []
    for iterations in (50, 500, 5000):
        fitted = fit_weights(SIZES, cliques, values, 500.0, iterations=iterations)
        errors.append(max(np.abs(fitted.table(c) - v).max() for c, v in zip(cliques, values, strict=True)))
    assert errors[0] > errors[1] > errors[2]
    assert errors[0] < 25
    assert errors[2] < 0.02


@pytest.mark.parametrize("seed", range(20))
def test_no_update_overshoots_at_the_largest_rate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = random_weights(seed, 100.0)
    cell = None if seed % 2 else int(rng.integers(6))
    noisy = rng.normal(20, 60, size=(2, 3)) if cell is None else np.array(rng.normal(20, 60))
    after = fit_weights(SIZES, [(0, 1)], [noisy], 100.0, start=start, iterations=1, rate=4.0, cells=[cell])

    def error(weights: Weights) -> float:
        table = weights.table((0, 1)).ravel()
        return float(np.sum((table - noisy.ravel()) ** 2) if cell is None else (table[cell] - noisy) ** 2)

    assert error(after) <= error(start)


def test_a_larger_rate_does_the_work_of_more_passes() -> None:
    truth = random_weights(7, 500.0)
    cliques = [(0, 1), (1, 3), (0, 3)]
    values = [truth.table(clique) for clique in cliques]
    slow = fit_weights(SIZES, cliques, values, 500.0, iterations=400)
    fast = fit_weights(SIZES, cliques, values, 500.0, iterations=100, rate=4.0)
    np.testing.assert_allclose(fast.table((1, 3)), slow.table((1, 3)), atol=0.5)


def test_single_cells_reach_their_counts() -> None:
    truth = random_weights(8, 200.0)
    cells = list(range(12))
    values = [float(v) for v in truth.table((1, 3)).ravel()]
    fitted = fit_weights(SIZES, [(1, 3)] * 12, values, 200.0, iterations=4000, cells=cells)
    np.testing.assert_allclose(fitted.table((1, 3)), truth.table((1, 3)), atol=0.1)


def test_noisy_counts_of_one_table_end_at_their_projection_on_the_simplex() -> None:
    noisy = np.array([60.0, 50.0, -30.0, 20.0])
    fitted = fit_weights((4,), [(0,)], [noisy], 100.0, iterations=20_000)
    level = 10.0  # 50 + 40 + 0 + 10 = 100
    np.testing.assert_allclose(fitted.table((0,)), np.maximum(noisy - level, 0), atol=0.01)
    assert fitted.shares.min() > 0


def test_the_same_input_gives_the_same_weights() -> None:
    truth = random_weights(9)
    fits = [fit_weights(SIZES, [(0, 1)], [truth.table((0, 1))], 90.0) for _ in range(2)]
    assert np.array_equal(fits[0].shares, fits[1].shares)


@pytest.mark.parametrize("total", [0.0, -5.0])
def test_no_events(total: float) -> None:
    fitted = fit_weights(SIZES, [(0,)], [np.array([3.0, -4.0])], total)
    assert fitted.total == 0
    assert np.all(fitted.answers(Workload.all_up_to(2, sizes=SIZES)) == 0)
    assert fitted.rows(10, np.random.default_rng(0)).shape == (0, 4)


@pytest.mark.sparing(3)
@pytest.mark.parametrize("value", [1e300, -1e300, 0.0])
@pytest.mark.parametrize("total", [1e-200, 1.0, 1e12])
def test_absurd_counts_leave_finite_weights(value: float, total: float) -> None:
    fitted = fit_weights(SIZES, [(0,)], [np.array([value, 1.0])], total, iterations=2000)
    assert np.all(np.isfinite(fitted.shares))
    assert fitted.shares.min() > 0
    assert fitted.shares.sum() == pytest.approx(1.0)
    again = fit_weights(SIZES, [(0,)], [np.array([0.5, 0.5]) * total], total, start=fitted, iterations=2000)
    np.testing.assert_allclose(again.table((0,)), [total / 2] * 2, rtol=1e-3)


def test_many_measurements_in_one_fit_leave_finite_weights() -> None:
    cliques = [((0, 1), (2, 3))[i % 2] for i in range(800)]  # each update may multiply by e
    values = [np.array([[1e9, -1e9], [1e9, -1e9]])] * len(cliques)
    fitted = fit_weights((2,) * 4, cliques, values, 1.0, iterations=2, rate=4.0)
    assert np.all(np.isfinite(fitted.shares))
    assert fitted.shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("n", [1, 7, 100, 12345])
def test_rows_come_as_often_as_expected(n: int) -> None:
    weights = random_weights(10)
    rows = weights.rows(n, np.random.default_rng(n))
    assert rows.shape == (n, 4)
    assert rows.dtype == np.int32
    workload = Workload(sizes=SIZES, marginals=((0, 1, 2, 3), (0,)))
    counts = workload.count(rows)
    expected = weights.scaled(n).answers(workload)
    assert np.abs(counts - expected)[:-2].max() < 1
    assert np.abs(counts - expected)[-2:].max() <= 1.0000001


def test_rounding_is_fair() -> None:
    weights = random_weights(11)
    rng = np.random.default_rng(0)
    workload = Workload(sizes=SIZES, marginals=((0, 1, 2, 3),))
    mean = np.mean([workload.count(weights.rows(5, rng)) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(mean, weights.scaled(5).answers(workload), atol=0.04)


def test_arrays_bring_weights_back() -> None:
    weights = random_weights(12)
    again = Weights.from_arrays(SIZES, weights.arrays())
    assert again.total == weights.total
    assert np.array_equal(again.shares, weights.shares)


def test_large_domains_are_refused_by_their_number_of_cells() -> None:
    assert Weights.uniform((2,) * 22, 1.0).shares.size == LARGEST_DOMAIN
    with pytest.raises(ValueError, match=r"8,388,608 .* at most 4,194,304"):
        Weights.uniform((2,) * 23, 1.0)
    with pytest.raises(ValueError, match="combinations"):
        fit_weights((10,) * 30, [(0,)], [np.ones(10)], 10.0)
