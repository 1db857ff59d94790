"""Bounds on the largest error: against exact laws, and by simulation; the rule for the number of picks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from synthstream.fit.ahead import Ahead
from synthstream.kernel.counters import Blt, Counter, Kary, Restarted, Simple, Toeplitz
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.tables import Marginals
from synthstream.kinds import Noise
from synthstream.papers.counters import Binary, Block, Hybrid
from synthstream.privacy import Budget
from synthstream.strategies.variances import laplace_variance
from synthstream.synthesizers.bounds import (
    BETA,
    CellNoise,
    bound,
    noise_of,
    of_an_epoch,
    of_running_counts,
    picks_rule,
    theorem_5_1,
)
from synthstream.synthesizers.contract import Synthesizer
from synthstream.synthesizers.epochs import InEpochs
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.synthesizers.tables import Continual
from synthstream.workload import Workload
from tests.support.gates import ExactGate, TracingGate

Floats = NDArray[np.float64]


def exact_tail(scales: Sequence[float], xs: Sequence[int]) -> Floats:
    """P(|S| > x) for a sum of discrete Laplace draws, by convolution of their laws."""
    reach = 4096
    law = np.zeros(2 * reach + 1)
    law[reach] = 1.0
    x = np.abs(np.arange(-reach, reach + 1))
    for scale in scales:
        p = np.exp(-1 / scale)
        law = np.convolve(law, (1 - p) / (1 + p) * p**x, mode="same")
    return np.array([law[x > at].sum() for at in xs])


@pytest.mark.parametrize(
    "scales",
    [[10.0], [0.3], [10.0] * 2, [10.0] * 5, [3.0] * 40, [0.4] * 10, [20.0, 5.0, 1.0], [8.0] * 3 + [2.0] * 20],
)
def test_the_tail_of_a_sum_is_never_below_the_exact_one(scales: list[float]) -> None:
    variance = sum(laplace_variance(scale) for scale in scales)
    noise = CellNoise(cells=1, variance=variance, widest=max(scales), noise="laplace")
    xs = [int(k * np.sqrt(variance)) for k in (0, 1, 2, 3, 4, 5, 6, 8)]
    exact = exact_tail(scales, xs)
    found = np.array([noise.tail(x) for x in xs])
    assert np.all(found >= exact * (1 - 1e-9) - 1e-13)
    x = bound([noise], beta=1e-6)  # and it is not far above
    assert exact_tail(scales, [int(x / 1.35) - 1])[0] > 1e-6


@pytest.mark.parametrize(("scale", "s"), [(0.5, 0.9), (3.0, 0.2), (50.0, 0.01)])
def test_the_moment_generating_function(scale: float, s: float) -> None:
    p = np.exp(-1 / scale)
    x = np.arange(-20_000, 20_001)
    law = np.log((1 - p) / (1 + p)) - np.abs(x) / scale
    assert np.exp(law + s * x).sum() == pytest.approx(1 / (1 - laplace_variance(scale) * (np.cosh(s) - 1)))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_discrete_gaussian_noise_is_at_most_so_much_above_the_rounded_normal_law(sigma: float) -> None:
    k = np.arange(-60, 61)
    discrete = np.exp(-(k**2) / (2 * sigma**2))
    discrete /= discrete.sum()
    rounded = norm.cdf(k + 0.5, scale=sigma) - norm.cdf(k - 0.5, scale=sigma)
    near = np.abs(k) < 6 * sigma  # further out the difference of two numbers near one is nothing but rounding
    assert np.all(discrete[near] <= np.exp(1 / (24 * sigma**2)) * rounded[near] * (1 + 1e-6))


def test_tails_of_extreme_noise() -> None:
    for noise in ("laplace", "gaussian"):
        law: Noise = "laplace" if noise == "laplace" else "gaussian"
        assert CellNoise(cells=1, variance=0.0, widest=1e-9, noise=law).tail(0.5) == 0.0
        assert CellNoise(cells=1, variance=1.0, widest=1.0, noise=law).tail(0.0) == 1.0
        assert CellNoise(cells=1, variance=9.0, widest=1.0, noise=law, slack=0.5).tail(0.4) == 1.0
    wide = CellNoise(cells=1, variance=20 * laplace_variance(2.0**36), widest=2.0**36, noise="laplace")
    assert 0 < wide.tail(6 * np.sqrt(wide.variance)) < 1e-4


TICKS = 33
COUNTERS: list[Counter] = [
    Simple(horizon=TICKS, noise="laplace"),
    Simple(horizon=TICKS, noise="gaussian"),
    Block(horizon=TICKS),
    Block(horizon=None),
    Binary(horizon=TICKS),
    Hybrid(),
    Kary(horizon=TICKS),
    Restarted(noise="laplace"),
    Toeplitz(horizon=TICKS),
    Blt(horizon=TICKS),
]


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda c: f"{type(c).__name__}-{c.noise}-{c.horizon}")
def test_releases_keep_the_bound_and_it_is_not_far_off(counter: Counter) -> None:
    """2,000 runs of 20 cells: at least 95 % keep the bound, and it is close to what 95 % of them need."""
    runs, cells = 2000, 20
    multiplier = np.full(runs * cells, 5.0)
    state, gate = counter.init(runs * cells), SeededGate(1)
    for tick in range(TICKS):
        state, released = counter.step(state, np.zeros(runs * cells, dtype=np.int64), gate, multiplier=multiplier)
        if tick in (0, 6, TICKS - 1):
            largest = np.abs(released).reshape(runs, cells).max(axis=1)
            alike = noise_of(counter, tick, 5.0, cells)
            x = bound([alike], beta=0.05)
            assert np.mean(largest > x) <= 0.05 + 3 * np.sqrt(0.05 / runs)
            single = alike.variance == counter.noise_variance(alike.widest)
            loose = 1.05 if single or counter.grid_bits else 1.25 if counter.noise == "gaussian" else 1.65
            assert x / np.quantile(largest, 0.95) < loose


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda c: f"{type(c).__name__}-{c.noise}-{c.horizon}")
def test_the_widest_draw_is_one_that_was_made(counter: Counter) -> None:
    gate, state = TracingGate(ExactGate()), counter.init(1)
    for tick in range(TICKS):
        state, _ = counter.step(state, np.zeros(1, dtype=np.int64), gate, multiplier=np.ones(1))
        scales = [float(np.max(call.scale)) / 2**counter.grid_bits for call in gate.trace]
        widest = counter.widest(tick, multiplier=1.0)
        assert any(abs(widest / scale - 1) < 1e-12 for scale in scales)
        if counter.noise == "laplace":
            assert counter.variance(tick, multiplier=1.0) >= laplace_variance(widest) * (1 - 1e-12)


@pytest.mark.parametrize(("delta", "loose"), [(1e-9, 1.25), (0.0, 1.6)])
def test_marginals_keep_the_bound_over_all_tables(delta: float, loose: float) -> None:
    workload = Workload.all_up_to(2, sizes=(2, 3, 4))
    mechanism = Marginals(workload=workload, budget=Budget(epsilon=1.0, delta=delta), horizon=12)
    none, largest = np.zeros(workload.cells, dtype=np.int64), []
    for run in range(600):
        state, gate = mechanism.init(), SeededGate(run)
        for _ in range(12):
            state, measured = mechanism.step(state, none, gate)
        largest.append(np.abs(measured.values).max())
    x = of_running_counts(mechanism, 11)
    assert np.mean(np.array(largest) > x) <= 0.05
    assert x / np.quantile(largest, 0.95) < loose


@pytest.mark.parametrize("picks", [1, 3])
def test_epochs_keep_the_bound_over_what_an_epoch_measures(picks: int) -> None:
    workload = Workload.all_up_to(2, sizes=(2, 3, 4))
    mechanism = Epochs(workload=workload, budget=Budget(epsilon=1.0, delta=0.0), horizon=12, picks=picks)
    none, largest = np.zeros(workload.cells, dtype=np.int64), []
    for run in range(1500):
        _, measured = mechanism.step(mechanism.init(), none, SeededGate(run), Ahead(workload=workload))
        largest.append(np.abs(measured.values).max())
    x = of_an_epoch(mechanism, 0)
    assert np.mean(np.array(largest) > x) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1500)  # nearly all by the one total
    assert x / np.quantile(largest, 0.95) < 1.25
    assert "that epoch alone" in InEpochs(mechanism=mechanism).bound_covers


def test_beta_is_checked_and_smaller_ones_cost_more() -> None:
    mechanism = Marginals(
        workload=Workload.all_up_to(1, sizes=(2, 3)), budget=Budget(epsilon=1.0, delta=1e-9), horizon=9
    )
    found = [of_running_counts(mechanism, 8, beta=beta) for beta in (0.5, 0.05, 1e-6)]
    assert 0 < found[0] < found[1] < found[2]
    with pytest.raises(ValueError, match="beta must be between 0 and 1"):
        of_running_counts(mechanism, 8, beta=1.0)


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("epsilon", [1e-2, 1.0, 300.0, 3000.0, 1e6])
@pytest.mark.parametrize("horizon", [1, 50, None])
def test_any_budget_has_a_bound(epsilon: float, delta: float, horizon: int | None) -> None:
    workload = Workload.all_up_to(2, sizes=(2, 3))
    budget = Budget(epsilon=epsilon, delta=delta)
    made: list[Synthesizer] = [Continual(mechanism=Marginals(workload=workload, budget=budget, horizon=horizon))]
    if budget.pure:
        made.append(InEpochs(mechanism=Epochs(workload=workload, budget=budget, horizon=horizon, picks=1)))
    for synthesizer in made:
        found = [synthesizer.error_bound(0 if horizon == 1 else tick, beta=BETA) for tick in (0, 30)]
        assert all(x is not None and 0 <= x * min(epsilon, 2.0) < 1e4 for x in found)


def test_the_rule_for_picks_minimises_the_bound_of_theorem_5_1() -> None:
    sizes, facts = (4, 4, 4), {"queries": 60, "events": 20_000.0, "ticks": 5, "epsilon": 2.0}
    best = picks_rule(sizes, **facts)  # type: ignore[arg-type]
    near, far = theorem_5_1(sizes, **facts, beta=BETA)  # type: ignore[arg-type]
    bounds = {k: near / math.sqrt(k) + far * k for k in range(1, 61)}
    assert min(bounds, key=bounds.__getitem__) == pytest.approx(best, abs=1)
    assert picks_rule(sizes, queries=3, events=1e9, ticks=5, epsilon=2.0) == 3
    assert picks_rule(sizes, queries=3, events=1e-9, ticks=5, epsilon=2.0) == 1
    with pytest.raises(ValueError, match="above 0"):
        picks_rule(sizes, queries=3, events=0, ticks=5, epsilon=2.0)
