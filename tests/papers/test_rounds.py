"""The methods of paper 2: claims, worst path cost on exhaustive neighbours, scores, estimates, odd batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest

from synthstream.counts import Counts
from synthstream.kernel.choosing import GRID, l1_scores
from synthstream.kernel.gate import Gate
from synthstream.kinds import COUNTERS, FitKind, Queries, Score
from synthstream.measured import Measured
from synthstream.papers.batchwise import Batchwise
from synthstream.papers.fit.rounds import Mixture, Rounds
from synthstream.papers.rounds import InRounds
from synthstream.papers.selective import Selective
from synthstream.privacy import Budget, Neighbours, Unit
from synthstream.synthesizers.contract import Models, Synthesizer
from synthstream.synthesizers.papers import FromBatches, FromSelection
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import Candidates, IntArray, Workload
from tests.support.gates import ExactGate, ReplayingGate, TracingGate, path_cost

SIZES = (2, 3, 2)
WORKLOAD = Workload.all_up_to(2, sizes=SIZES)
PURE, APPROXIMATE = Budget(epsilon=1.0, delta=0.0), Budget(epsilon=1.0, delta=1e-9)
ROWS = [np.array(row) for row in itertools.product(*map(range, SIZES))]
NONE = np.zeros((0, 3), dtype=np.int64)
NO_MODELS: Models = {}


DEFAULTS: dict[str, Any] = {"workload": WORKLOAD, "budget": PURE, "horizon": 4, "picks": 2}


def selective(**settings: Any) -> Selective:
    return Selective(**DEFAULTS | settings)


def batchwise(**settings: Any) -> Batchwise:
    return Batchwise(**DEFAULTS | settings)


MAKERS = [selective, batchwise]


def synthesizer(mechanism: InRounds, kind: FitKind = "mw") -> Synthesizer:
    if isinstance(mechanism, Selective):
        return FromSelection(mechanism=mechanism, kind=kind)
    assert isinstance(mechanism, Batchwise)
    return FromBatches(mechanism=mechanism, kind=kind)


def run(
    mechanism: InRounds,
    stream: Sequence[IntArray],
    gate: Gate,
    kind: FitKind = "mw",
    signs: Sequence[int | Sequence[int]] | None = None,
) -> list[Measured]:
    """Signed rows through a mechanism, with models carried from tick to tick as a stream carries them."""
    made = synthesizer(mechanism, kind)
    state, models, out = mechanism.init(), NO_MODELS, []
    for t, rows in enumerate(stream):
        weights = np.full(len(rows), 1) if signs is None else np.broadcast_to(signs[t], len(rows))
        counts = mechanism.workload.count(rows.astype(np.int32).reshape(-1, 3), weights)
        state, measured, models = made.step(state, Counts.of(counts), gate, None, models)
        out.append(measured)
        assert np.array_equal(mechanism.unpack(t, mechanism.pack(measured)).values, measured.values, equal_nan=True)
    return out


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("budget", [PURE, APPROXIMATE])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("picks", [1, 3])
def test_the_claim_spends_the_budget_and_not_more(
    make: Any, budget: Budget, neighbours: Neighbours, picks: int
) -> None:
    claim = make(budget=budget, neighbours=neighbours, picks=picks).claim()
    assert claim.fits(budget)
    spent = claim.pure / Fraction(budget.epsilon) if budget.pure else claim.rho / budget.rho
    assert 1 - 1e-9 < float(spent) <= 1
    assert "choose" in claim.theorems


@pytest.mark.sparing(2, 6)
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("queries", get_args(Queries))
@pytest.mark.parametrize("score", get_args(Score))
@pytest.mark.parametrize("budget", [PURE, APPROXIMATE])
def test_worst_path_cost_of_one_event_on_exhaustive_neighbours(
    make: Any, queries: Queries, score: Score, budget: Budget
) -> None:
    """Given the same answers, one event more or fewer, or one deletion more, never costs more than the claim."""
    mechanism = make(queries=queries, score=score, budget=budget, horizon=3)
    worst = Fraction(0)
    for seed, base in enumerate([NONE, np.array([(0, 1, 1), (1, 1, 0)])]):
        for tick, sign in itertools.product(range(3), (1, -1)):
            stream, signs = [NONE, NONE, NONE], [1, 1, 1]
            stream[tick], signs[tick] = base, sign
            tracing = TracingGate(SeededGate(seed))
            releases = run(mechanism, stream, tracing, signs=signs)
            for row in ROWS:
                replaying = ReplayingGate(tracing.trace)
                other = [np.concatenate([base, [row]]) if t == tick else s for t, s in enumerate(stream)]
                again = run(mechanism, other, replaying, signs=signs)
                assert all(
                    np.array_equal(a.values, b.values, equal_nan=True) for a, b in zip(releases, again, strict=True)
                )
                worst = max(worst, _cost(tracing, replaying, budget))
    claim = mechanism.claim()
    limit = claim.pure if budget.pure else claim.rho
    assert worst <= limit * (1 + Fraction(1, 10**12))
    assert worst > Fraction(1, 2) * limit  # the claim is not far above what a neighbour can cost


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("queries", get_args(Queries))
@pytest.mark.parametrize("score", get_args(Score))
@pytest.mark.parametrize("budget", [PURE, APPROXIMATE])
def test_worst_path_cost_of_one_event_in_the_place_of_another(
    make: Any, queries: Queries, score: Score, budget: Budget
) -> None:
    """Replace-one: a choice moves by twice as much as with one event more, and is charged for it."""
    settings = {"queries": queries, "score": score, "neighbours": "replace-one", "unit": Unit(signed=True)}
    mechanism = make(budget=budget, horizon=2, **settings)
    worst, choice = Fraction(0), Fraction(0)
    base = np.array([(0, 1, 1), (1, 1, 0)])
    tracing = TracingGate(SeededGate(0))
    releases = run(mechanism, [base, np.concatenate([base, ROWS[:1]])], tracing)
    for row, sign in itertools.product(ROWS, (1, -1)):
        replaying = ReplayingGate(tracing.trace)
        again = run(mechanism, [base, np.concatenate([base, [row]])], replaying, signs=[1, [1, 1, sign]])
        for one, two in zip(releases, again, strict=True):
            assert np.array_equal(one.values, two.values, equal_nan=True)
        worst = max(worst, _cost(tracing, replaying, budget))
        pairs = zip(tracing.trace, replaying.trace, strict=True)
        choice = max([choice, *(path_cost([a], [b])[1] for a, b in pairs if a.kind == "choose")])
    claim, charged = mechanism.claim(), Fraction(mechanism.choice_epsilon)
    assert worst <= (claim.pure if budget.pure else claim.rho) * (1 + Fraction(1, 10**12))
    assert choice <= charged * (1 + Fraction(1, 10**12))
    assert choice > charged / 3  # single cells, and means of cells, move by less than what is charged


def _cost(tracing: TracingGate, replaying: ReplayingGate, budget: Budget) -> Fraction:
    rho, pure = path_cost(tracing.trace, replaying.trace)
    if budget.pure:
        assert rho == 0
        return pure
    # Choices are pure; each of them counts half its square in zCDP.
    squares = Fraction(0)
    for a, b in zip(tracing.trace, replaying.trace, strict=True):
        if a.kind == "choose":
            squares += path_cost([a], [b])[1] ** 2 / 2
    return rho + squares


@pytest.mark.sparing(3)
@pytest.mark.parametrize("kind", [kind for kind in COUNTERS if kind not in ("toeplitz", "blt")])
def test_every_counter_of_pure_dp_serves(kind: str) -> None:
    mechanism = selective(kind=kind, horizon=40, picks=3)
    rng = np.random.default_rng(3)
    stream = [np.stack([rng.integers(0, s, 30) for s in SIZES], axis=1) for _ in range(40)]
    exact = run(mechanism, stream, ExactGate())
    true = WORKLOAD.count(np.concatenate(stream).astype(np.int32))
    for marginal in exact[-1].workload.marginals:  # all tables are picked at every tick: the counters' own values
        assert exact[-1].marginal(marginal)[0].ravel() == pytest.approx(true[WORKLOAD.slice_of(marginal)], abs=0.01)
    assert run(mechanism, stream, SeededGate(1))[-1].tick == 39


def test_a_table_that_was_not_selected_goes_on_from_the_synthetic_data() -> None:
    mechanism = selective(picks=1, horizon=None)
    made = synthesizer(mechanism)
    rng = np.random.default_rng(0)
    state, models = mechanism.init(), NO_MODELS
    for _ in range(12):
        counts = WORKLOAD.count(np.stack([rng.integers(0, s, 50) for s in SIZES], axis=1).astype(np.int32))
        before = state
        state, measured, models = made.step(state, Counts.of(counts), ExactGate(), None, models)
        (table,) = [m for m in measured.workload.marginals if m]
        place = WORKLOAD.slice_of(table)
        # m_j = C_j + r: what was estimated before, and the tick's counts.
        assert measured.marginal(table)[0].ravel() == pytest.approx(before["estimate"][place] + counts[place], abs=0.01)
        others = np.ones(WORKLOAD.cells, dtype=bool)
        others[place] = False
        assert np.array_equal(state["estimate"][others], state["fitted"][others])


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", ["mw", "pgm"])
def test_odd_batches_are_counted_silently(make: Any, kind: FitKind) -> None:
    """Only deletions, a deletion without an event, nothing at all: rows stay rows, and nothing is raised."""
    mechanism = make(horizon=None)
    made = synthesizer(mechanism, kind)
    rng = np.random.default_rng(0)
    for seed, size in itertools.product(range(3), (0, 1, -1, -30, 30, 2**40, -(2**40))):
        state, models, last, history = mechanism.init(), NO_MODELS, None, list[Measured]()
        for t in range(4):
            counts = WORKLOAD.count(np.stack([rng.integers(0, s, 1) for s in SIZES], axis=1).astype(np.int32)) * size
            state, measured, models = made.step(state, Counts.of(counts), SeededGate(f"{seed}/{t}"), last, models)
            history.append(measured)
            if abs(size) < 100:
                last = made.fit(t, history.__getitem__, last, models, seed=t)
                assert np.all(last.codes < np.array(SIZES))
        assert all(np.isfinite(array).all() for array in models.values() if array.dtype.kind == "f")


def test_batches_that_take_rows_away() -> None:
    mechanism = batchwise(horizon=None, budget=Budget(epsilon=1e6, delta=0.0), picks=3)
    made = synthesizer(mechanism)
    row = np.array([[1, 2, 0]], dtype=np.int32)
    state, models, last, history = mechanism.init(), NO_MODELS, None, list[Measured]()
    for t, size in enumerate((40, 60, -90)):
        state, measured, models = made.step(state, Counts.of(WORKLOAD.count(row) * size), SeededGate(t), last, models)
        history.append(measured)
        last = made.fit(t, history.__getitem__, last, models, seed=1)
    assert last is not None
    assert len(last.codes) == 10


def test_the_score_of_the_paper_prefers_small_tables_and_ours_large_errors() -> None:
    workload = Workload(sizes=(2, 2, 20, 20), marginals=((), (0, 1), (2, 3)))
    rows = np.array([[0, 1, 7, 7]] * 200, dtype=np.int32)
    for score, expected in (("corrected", (2, 3)), ("paper", (0, 1))):
        mechanism = selective(workload=workload, score=score, picks=1, budget=Budget(epsilon=400.0, delta=0.0))
        rounds = Rounds(workload, "mw")
        first = rows[:, [0, 1, 2, 3]].copy()
        first[:, :2] = np.random.default_rng(0).integers(0, 2, (200, 2))  # as the guess says
        _, measured = mechanism.step(mechanism.init(), workload.count(first), ExactGate(), rounds)
        assert measured.workload.marginals[1] == expected


def test_mixtures_are_stored_and_give_rows() -> None:
    rounds = Rounds(WORKLOAD, "mw")
    rounds.begin(50.0)
    rounds.add(WORKLOAD.marginals.index((0, 1)), 0, np.array([5.0, 0, 0, 0, 45.0, 0]))
    rounds.add(WORKLOAD.marginals.index((1, 2)), 3, np.array([30.0]))
    mixture = rounds.result()
    again = Mixture.from_arrays(SIZES, mixture.arrays())
    assert np.array_equal(mixture.rows(31, np.random.default_rng(0)), again.rows(31, np.random.default_rng(0)))
    assert len(mixture.rows(31, np.random.default_rng(0))) == 31


BAD = [
    ({"picks": 4}, "between 1 and 3"),
    ({"picks": 0}, "picks"),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("settings", "message"), BAD)
def test_bad_settings_are_refused(make: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**settings)


def test_a_guess_that_is_no_number_moves_no_sensitivity() -> None:
    candidates = Candidates.of_tables(WORKLOAD, [4, 5, 6])
    rng = np.random.default_rng(0)
    for wild in (np.nan, np.inf, -np.inf, 1e300):
        guess = rng.uniform(0, 9, WORKLOAD.cells)
        guess[::2] = wild
        for bias in (np.zeros(3), np.full(3, wild)):
            counts = rng.integers(-5, 9, WORKLOAD.cells)
            base = l1_scores(candidates, counts, guess, bias=bias)
            for cell, change in itertools.product(range(WORKLOAD.cells), (-1, 1)):
                other = counts.copy()
                other[cell] += change
                assert np.abs(l1_scores(candidates, other, guess, bias=bias) - base).max() <= GRID


@pytest.mark.slow  # a fit for each of 200 measurements; quick: one fit of 800, in test_weights
def test_many_measurements_in_a_tick_leave_finite_weights() -> None:
    rounds = Rounds(Workload(sizes=(2,) * 4, marginals=((), (0, 1), (2, 3))), "mw")
    rounds.begin(1.0)
    for i in range(200):
        answers = rounds.add(1 + i % 2, 0, np.array([1e9, -1e9, 1e9, -1e9]))
        assert np.all(np.isfinite(answers))
    assert len(rounds.result().rows(5, np.random.default_rng(0))) == 5


@pytest.mark.parametrize("epsilon", [1e-5, 1e-6])
def test_noise_that_cannot_be_drawn_is_refused_before_anything_is_charged(epsilon: float) -> None:
    with pytest.raises(ValueError, match="too small"):
        selective(budget=Budget(epsilon=epsilon, delta=1e-9), horizon=100, kind="blt")


@pytest.mark.parametrize("make", MAKERS)
def test_many_single_cells_of_a_tiny_budget_are_refused(make: Any) -> None:
    workload, budget = Workload.all_up_to(2, sizes=(210, 210)), Budget(epsilon=1e-6, delta=0.0)
    assert make(workload=workload, budget=budget, queries="single", picks=1)
    with pytest.raises(ValueError, match="too small"):
        make(workload=workload, budget=budget, queries="single", picks=40_000)
