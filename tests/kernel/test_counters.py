"""The contract that every counter keeps, and the cost of each, measured from the implementation."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from synthstream.errors import HorizonExhausted
from synthstream.kernel.counters import Blt, Counter, Kary, Restarted, Simple, State, Toeplitz, base, counter, restarted
from synthstream.kernel.counters.base import LARGEST_COUNT
from synthstream.kernel.counters.matrix import MatrixCounter
from synthstream.kernel.gate import Question
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.kinds import Noise
from synthstream.papers.counters import Binary, Block, Hybrid
from synthstream.papers.counters.nodes import NodeCounter
from synthstream.strategies.blt_parameters import PARAMETERS
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray, IntArray
from tests.support.counters import (
    COUNTERS,
    T,
    kary_noise_is_a_factorisation_with_the_claimed_sensitivity,
    name,
    responses,
    run,
)
from tests.support.gates import ExactGate, ReplayingGate, TracingGate, path_cost

MATRIX = [c for c in COUNTERS if isinstance(c, MatrixCounter)]


every = pytest.mark.parametrize("c", COUNTERS, ids=name)
matrix = pytest.mark.parametrize("c", MATRIX, ids=name)


@pytest.fixture(autouse=True)
def _short_gaussian_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restart the blt counter every 16 ticks, so that 40 ticks see it."""
    monkeypatch.setattr(restarted, "LONGEST", 16)
    restarted._inner.cache_clear()
    yield
    restarted._inner.cache_clear()


def example(ticks: int = T, cells: int = 3, low: int = 0, high: int = 50) -> IntArray:
    return np.random.default_rng(5).integers(low, high, size=(ticks, cells))


class Widest(ExactGate):
    """Adds nothing, and keeps the widest scale that it was asked for."""

    scale = 0.0

    def answer(self, question: Question) -> IntArray:
        self.scale = max(self.scale, float(np.max(question.scale)))
        return super().answer(question)


# -- the contract -----------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("low", [0, -50])
def test_without_noise_it_counts(c: Counter, low: int) -> None:
    stream = example(low=low)
    assert np.allclose(run(c, stream, ExactGate()), np.cumsum(stream, axis=0), atol=1e-3)


@every
def test_the_widest_draw_is_known_before_the_first(c: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the edge of what can be drawn, every tick can be closed; just beyond, the counter says that it cannot."""
    monkeypatch.setattr(base, "LAST_TICK", T - 1)
    edge = LARGEST_SCALE / c.reach(T - 1) * (1 - 2.0**-49)
    for multiplier, fits in ((edge, True), (edge * (1 + 2.0**-40), False)):
        gate = Widest()
        run(c, example(cells=1), gate, multiplier=multiplier)
        assert c.draws(multiplier) is fits
        assert (gate.scale <= LARGEST_SCALE) is fits


@every
def test_a_step_leaves_its_inputs_alone(c: Counter) -> None:
    stream, gate, state = example(), SeededGate(1), c.init(3)
    for counts in stream:
        before = {key: np.copy(value) for key, value in state.items()}
        same = counts.copy()
        after, _ = c.step(state, counts, gate, multiplier=np.ones(3))
        assert np.array_equal(counts, same)
        assert all(np.array_equal(before[key], state[key]) for key in before)
        state = after


@every
def test_it_can_be_saved_and_restored_at_every_tick(c: Counter) -> None:
    stream = example()
    expected = run(c, stream, SeededGate(2))
    gate, state = SeededGate(2), c.init(3)
    for counts, wanted in zip(stream, expected, strict=True):
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **state)
        buffer.seek(0)
        with np.load(buffer, allow_pickle=False) as stored:
            state, released = c.step(dict(stored), counts, gate, multiplier=np.ones(3))
        assert np.array_equal(released, wanted)


@every
def test_variance_and_covariance_are_those_of_the_implementation(c: Counter) -> None:
    grid = 2**c.grid_bits
    effect = responses(c, amount=grid) * grid
    # Effect of one grid step of noise, times the standard deviation of one draw in grid steps.
    scales = draws(c)
    cov = (effect * scales**2) @ effect.T
    claimed = np.array([[c.covariance(s, t, multiplier=3.0) for t in range(T)] for s in range(T)])
    assert np.allclose(cov, claimed, rtol=1e-6, atol=1e-9 * cov.max())
    assert claimed[7, 7] == c.variance(7, multiplier=3.0)


def draws(c: Counter) -> FloatArray:
    """Standard deviation of every draw of a run with multiplier 3, in counts."""
    gate = TracingGate(ExactGate())
    run(c, np.zeros((T, 1), dtype=np.int64), gate, multiplier=3.0)
    return np.array([np.sqrt(c.noise_variance(float(np.ravel(call.scale)[0]))) / 2**c.grid_bits for call in gate.trace])


@pytest.mark.slow
@every
def test_empirical_variance_agrees_and_a_wrong_one_would_not(c: Counter) -> None:
    cells = 20_000
    noise = run(c, np.zeros((T, cells), dtype=np.int64), SeededGate(3), multiplier=5.0)
    claimed = np.array([c.variance(t, multiplier=5.0) for t in range(T)])
    ratio = noise.var(axis=1) / claimed
    assert np.all(np.abs(ratio - 1) < 0.08)  # about 5 standard errors, Laplace tails included
    assert not np.all(np.abs(ratio * 1.2 - 1) < 0.08)


@pytest.mark.parametrize("c", [c for c in COUNTERS if c.horizon], ids=name)
def test_the_horizon_ends_it(c: Counter) -> None:
    state = c.init(1)
    for _ in range(T):
        state, _ = c.step(state, np.zeros(1, dtype=np.int64), ExactGate(), multiplier=np.ones(1))
    with pytest.raises(HorizonExhausted, match="40 ticks"):
        c.step(state, np.zeros(1, dtype=np.int64), ExactGate(), multiplier=np.ones(1))


# -- what it costs ----------------------------------------------------------------------------------------------


def strategy(c: MatrixCounter, at: int, background: IntArray) -> FloatArray:
    """Change at the gate, in counts, when one event is added at tick ``at``."""
    values = []
    for extra in (0, 1):
        stream = background.copy()
        stream[at, 0] += extra
        gate = TracingGate(ExactGate())
        run(c, stream, gate)
        values.append(np.array([call.value[0] for call in gate.trace]))
    return np.asarray((values[1] - values[0]) / 2.0**c.grid_bits)


@matrix
@pytest.mark.parametrize("busy", [False, True])
def test_sensitivity_is_the_largest_change_at_the_gate(c: MatrixCounter, busy: bool) -> None:
    background = example(high=10**6) if busy else np.zeros((T, 3), dtype=np.int64)
    order = 1 if c.noise == "laplace" else 2
    norms = [np.linalg.norm(strategy(c, i, background), ord=order) for i in range(T)]
    assert max(norms) <= c.sensitivity()
    assert max(norms) >= c.sensitivity() * (1 - 1e-3)


@every
def test_worst_path_cost_equals_the_claim(c: Counter) -> None:
    """Exhaustive small neighbours through a tracing and a replaying gate."""
    if isinstance(c, Kary | Restarted) and c.noise == "laplace":
        pytest.skip("keeps its noise: tested by impulses below")
    ticks, worst = 5, Fraction(0)
    multiplier = 2.0
    for bits in itertools.product((0, 1, 3), repeat=ticks):
        stream = np.array(bits, dtype=np.int64)[:, None]
        tracing = TracingGate(SeededGate(4))
        releases = run(c, stream, tracing, multiplier=multiplier)
        for at in range(ticks):
            neighbour = stream.copy()
            neighbour[at, 0] += 1
            replaying = ReplayingGate(tracing.trace)
            assert np.array_equal(run(c, neighbour, replaying, multiplier=multiplier), releases)
            rho, epsilon = path_cost(tracing.trace, replaying.trace)
            worst = max(worst, epsilon if c.noise == "laplace" else rho)
    claim = Fraction(1, 2) if c.noise == "laplace" else Fraction(1, 8)
    assert worst <= claim
    if isinstance(c, Simple):
        assert float(worst) == pytest.approx(float(claim), rel=1e-12)


@pytest.mark.parametrize(
    "c", [Block(horizon=31), Block(horizon=None), Binary(horizon=31), Binary(horizon=8), Hybrid()], ids=name
)
def test_spans_cover_every_prefix_and_cost_at_most_one(c: NodeCounter) -> None:
    ticks = c.horizon or 60
    for n in range(1, ticks + 1):
        cover = c.cover(n)
        assert [s.start for s in cover] == [1, *(s.end + 1 for s in cover[:-1])]
        assert cover[-1].end == n
    drawn = [c.cover(n)[-1] for n in range(1, ticks + 1)]
    costs = [sum(Fraction(1, s.factor) for s in drawn if s.start <= i <= s.end) for i in range(1, ticks + 1)]
    assert max(costs) <= 1
    if not isinstance(c, Hybrid):  # its first segments have fewer levels than they pay for
        assert max(costs) == 1


@pytest.mark.parametrize("horizon", [1, 2, 5, 12])
def test_a_whole_toeplitz_stream_costs_exactly_its_claim(horizon: int) -> None:
    c = Toeplitz(horizon=horizon)
    traces = []
    for first in (0, 1):
        stream = np.zeros((horizon, 1), dtype=np.int64)
        stream[0] = first
        gate = TracingGate(ExactGate())
        run(c, stream, gate, multiplier=2.0)
        traces.append(gate.trace)
    assert float(path_cost(*traces)[0]) == pytest.approx(1 / 8, rel=1e-12)


@pytest.mark.parametrize("horizon", [1, 4, 13, 40, 121])
def test_kary_noise_is_a_factorisation_with_the_claimed_sensitivity(horizon: int) -> None:
    kary_noise_is_a_factorisation_with_the_claimed_sensitivity(horizon)


def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halved noise costs four times the claim; the trace says so."""
    c = Toeplitz(horizon=5)
    honest = c.sensitivity()
    monkeypatch.setattr(Toeplitz, "sensitivity", lambda self, t=0: honest / 2)
    traces = []
    for first in (0, 1):
        stream = np.zeros((5, 1), dtype=np.int64)
        stream[0] = first
        gate = TracingGate(ExactGate())
        run(c, stream, gate, multiplier=2.0)
        traces.append(gate.trace)
    assert path_cost(*traces)[0] > Fraction(1, 8)


# -- arithmetic -------------------------------------------------------------------------------------------------


def test_blt_is_exact_to_a_grid_step_even_for_huge_counts() -> None:
    c = Blt(horizon=64)
    stream = example(ticks=64, low=-(2**31), high=2**31 + 1)
    state = c.init(3)
    r, mu = ([Fraction(int(v), 2**64) for v in part] for part in c._c)
    for t, counts in enumerate(stream):
        state, value = c.encode(state, counts)
        ideal = (
            [
                sum(
                    (a * sum((m ** (t - j) * int(stream[j, cell]) for j in range(t + 1)), Fraction(0)))
                    for a, m in zip(r, mu, strict=True)
                )
                for cell in range(3)
            ]
            if t % 16 == 15
            else []
        )
        for cell, wanted in enumerate(ideal):
            assert -1 - 1e-6 <= int(value[cell]) - wanted * 2**c.grid_bits <= 1e-6


@pytest.mark.parametrize("horizon", PARAMETERS)
def test_no_parameters_can_overflow(horizon: int) -> None:
    c = Blt(horizon=horizon)
    assert float(c.coefficients.sum()) * 2.0 ** (31 + c.grid_bits) < 2.0**62
    assert c.sensitivity() < np.sqrt(np.sum(c.coefficients**2)) * 1.001
    assert np.all(c.coefficients > 0)
    assert np.all(np.diff(c.coefficients) < 0)


def test_counts_are_clipped_where_sums_could_overflow() -> None:
    c = Simple(horizon=2, noise="laplace")
    released = run(c, np.array([[2**40], [-(2**40)]]), ExactGate())
    assert released[:, 0].tolist() == [LARGEST_COUNT, 0]


# -- figures and choice -----------------------------------------------------------------------------------------


def rms(c: Counter, ticks: int) -> float:
    # At a wide scale the discrete laws have the variance of the continuous ones, which the literature quotes.
    wide = 50.0
    quoted = 1.0 if c.noise == "laplace" else 1 / np.sqrt(2 * 0.01497306)
    return float(np.sqrt(np.mean([c.variance(t, multiplier=wide) for t in range(ticks)]))) / wide * quoted


@pytest.mark.parametrize(
    ("c", "expected"),
    [
        (Simple(horizon=100, noise="laplace"), 10.1),
        (Kary(horizon=100), 7.6),
        (Kary(horizon=977), 13.0),
        (Block(horizon=977), 15.5),
        (Binary(horizon=977), 31.3),
        (Toeplitz(horizon=100), 13.7),
        (Toeplitz(horizon=977), 17.9),
        (Blt(horizon=977), 17.7),
    ],
    ids=name,
)
def test_accuracy_is_what_the_literature_gives(c: Counter, expected: float) -> None:
    assert rms(c, c.horizon or 0) == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize(
    ("horizon", "noise", "expected"),
    [
        (24, "laplace", Simple),
        (25, "laplace", Kary),
        (None, "laplace", Restarted),
        (31, "gaussian", Toeplitz),
        (32, "gaussian", Blt),
        (520, "gaussian", Blt),
        (None, "gaussian", Restarted),
    ],
)
def test_auto_chooses(horizon: int | None, noise: Noise, expected: type[Counter]) -> None:
    assert isinstance(counter("auto", horizon=horizon, noise=noise), expected)


def test_auto_is_never_much_worse_than_the_others() -> None:
    kinds: tuple[str, ...] = ("toeplitz", "blt", "simple")
    for horizon in (4, 16, 31, 32, 64, 200):
        auto = rms(counter("auto", horizon=horizon, noise="gaussian"), horizon)
        for kind in kinds:
            assert auto <= 1.02 * rms(counter(kind, horizon=horizon, noise="gaussian"), horizon)


@pytest.mark.parametrize(
    ("kind", "horizon", "noise", "says"),
    [
        ("kary", 10, "gaussian", "delta = 0"),
        ("blt", 10, "laplace", "delta above 0"),
        ("toeplitz", None, "gaussian", "needs a horizon"),
        ("binary", None, "laplace", "use 'hybrid'"),
        ("block", 10, "gaussian", "delta = 0"),
        ("toeplitz", 10**6, "gaussian", "from 1 to 8192"),
        ("toeplitz", 0, "gaussian", "ticks, not 0"),
        ("blt", 0, "gaussian", "from 1 to"),
    ],
)
def test_a_kind_that_does_not_serve_is_refused(kind: str, horizon: int | None, noise: Noise, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        counter(kind, horizon=horizon, noise=noise)


def test_states_hold_arrays_only() -> None:
    for c in COUNTERS:
        state: State = c.init(2)
        assert all(isinstance(value, np.ndarray | np.generic) for value in state.values())


def test_parameters_that_could_overflow_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARAMETERS, 2**20, ((5.3,), (0.8, 1e-5)))
    with pytest.raises(ArithmeticError, match="64 bits"):
        Blt(horizon=2**20).sensitivity()
