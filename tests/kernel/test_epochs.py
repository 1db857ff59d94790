"""Epochs: schedule, claim, cost along exhaustive small neighbours, what is measured when, and the pooled estimate."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from synthstream.fit.ahead import Ahead
from synthstream.fit.pooling import pooled
from synthstream.fit.population import Population
from synthstream.kernel.choosing import GRID, distances, l1_scores
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate
from synthstream.measured import Measured
from synthstream.privacy import Budget, Neighbours, Unit
from synthstream.synthesizers.epochs import InEpochs
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import Candidates, IntArray, Workload
from tests.support.epochs import (
    PURE,
    SIZES,
    WORKLOAD,
    mechanism,
    run,
    worst_path_cost_on_exhaustive_neighbours,
)
from tests.support.gates import ExactGate, ReplayingGate, TracingGate, path_cost

PLAN = Ahead(workload=WORKLOAD)
ALL = Candidates.of_tables(WORKLOAD, range(7))


@pytest.mark.parametrize("growth", [1.01, 1.5, 2.0, 10.0])
def test_epochs_follow_one_another_and_grow(growth: float) -> None:
    m = Epochs(workload=WORKLOAD, budget=PURE, horizon=None, picks=1, growth=growth)
    ends = [t for t in range(3000) if m.times.ends(t)]
    assert ends[0] == 0
    for before, end in itertools.pairwise(ends):
        assert m.times.begin(end) == before + 1
        assert m.times.begin(before + 1) == before + 1
        assert end + 1 == max(before + 2, int(np.ceil((before + 1) * growth)))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("picks", [1, 2, 3, 99])
@pytest.mark.parametrize("horizon", [4, 1000, None])
def test_the_claim_spends_the_budget_and_not_more(neighbours: Neighbours, picks: int, horizon: int | None) -> None:
    claim = mechanism(picks=picks, neighbours=neighbours, horizon=horizon).claim()
    assert claim.fits(PURE)
    assert claim.pure is not None
    assert 1 - 1e-9 < float(claim.pure) <= 1
    assert ("choose" in claim.theorems) == (picks < 3)


def test_the_claim_is_the_formula_of_the_theorem() -> None:
    m = mechanism(picks=2, neighbours="replace-one")
    assert m.groups == [(1, 2, 3)]
    singles = 2 / Fraction(float(m.scales[2][1]))
    larger = 2 * (Fraction(m.choice_epsilon(2)) + 2 / Fraction(float(m.scales[2][m.order == 2][0])))
    assert m.claim().pure == 2 / Fraction(m.total_multiplier) + singles + larger


@pytest.mark.parametrize(
    "marginals", [((),), ((), (0,), (1,)), ((), (0, 1), (1, 2)), ((), (0, 1, 2), (2,))], ids=lambda m: str(len(m))
)
def test_any_workload_spends_the_budget(marginals: tuple[tuple[int, ...], ...]) -> None:
    m = mechanism(picks=1, workload=Workload(sizes=SIZES, marginals=marginals))
    pure = m.claim().pure
    assert pure is not None
    assert 1 - 1e-9 < float(pure) <= 1
    run(m, [np.zeros((2, 3), dtype=np.int64)] * 3, SeededGate(0))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("picks", [2, 3])
def test_worst_path_cost_on_exhaustive_neighbours(neighbours: Neighbours, picks: int) -> None:
    worst_path_cost_on_exhaustive_neighbours(neighbours, picks)


@pytest.mark.sparing(4)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("picks", [2, 3])
def test_worst_path_cost_of_signed_events_stays_within_the_claim(neighbours: Neighbours, picks: int) -> None:
    """A row whose sign turns moves one cell of each table by two, the total too; nothing costs more than the claim."""
    signed = Unit(signed=True)
    m = Epochs(workload=WORKLOAD, budget=PURE, horizon=4, neighbours=neighbours, picks=picks, unit=signed)
    claim = m.claim().pure
    assert claim is not None
    rows = [np.array([row], dtype=np.int32) for row in itertools.product(*map(range, SIZES))]
    made = InEpochs(mechanism=m)
    single = [made.count(row, np.array([sign])).dense(made.cells) for row in rows for sign in (1, -1)]
    none = np.zeros(made.cells, dtype=np.int64)
    others = single if neighbours == "replace-one" else [none]

    def traced(counts: IntArray, gate: Gate) -> None:
        state = m.init()
        for tick in range(4):
            state, _ = m.step(state, counts if tick == 1 else none, gate, PLAN)

    worst = Fraction(0)
    for one in single:
        tracing = TracingGate(SeededGate(1))
        traced(one, tracing)
        for other in others:
            replaying = ReplayingGate(tracing.trace)
            traced(other, replaying)
            worst = max(worst, path_cost(tracing.trace, replaying.trace)[1])
    assert worst <= claim * (1 + Fraction(1, 10**12))
    # Choices cost less than is charged for them: no candidate moves by the whole sensitivity while others stay. An
    # event in the place of another leaves the number of rows as it is.
    assert worst > claim * Fraction(9 if neighbours == "add-remove" else 8, 10)


def test_signs_are_part_of_the_numbers_a_stream_begins_with() -> None:
    plain = mechanism(neighbours="replace-one")
    signed = Epochs(
        workload=WORKLOAD, budget=PURE, horizon=4, neighbours="replace-one", picks=2, unit=Unit(signed=True)
    )
    assert plain.fingerprint() != signed.fingerprint()
    assert signed.claim().fits(PURE)


def test_rows_of_either_sign_are_counted_if_there_are_two() -> None:
    for signed in (False, True):
        m = replace(mechanism(), unit=Unit(signed=signed))
        assert m.running.size == 1 + signed
        assert m.running.tolist() == [m.total_multiplier] * m.running.size


def test_what_is_measured_when() -> None:
    m = mechanism(picks=2, horizon=None)
    row = np.zeros((3, 3), dtype=np.int64)
    measured = run(m, [row] * 8, ExactGate())
    assert [len(found.workload.marginals) for found in measured] == [6, 6, 6, 1, 6, 1, 1, 6]
    last = measured[7]
    assert last.since.tolist() == [0, 5, 5, 5, 5, 5]
    assert last.values[0] == 24  # the total runs
    assert last.marginal((0,))[0].tolist() == [9, 0]  # tables count their epoch
    assert m._larger(np.zeros(19, int), np.zeros(19), SeededGate(1), 2).size == 2
    for found in measured:
        made = InEpochs(mechanism=m)
        again = made.unpack(found.tick, made.pack(found))
        assert again.workload == found.workload
        assert np.array_equal(again.values, found.values)
        assert np.array_equal(again.since, found.since)
        assert np.array_equal(again.variance, found.variance)


def test_the_table_that_is_furthest_off_is_chosen() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (4000, 3))
    codes[:, 2] = codes[:, 0]
    m = Epochs(workload=WORKLOAD, budget=Budget(epsilon=20.0, delta=0.0), horizon=None, picks=1)
    for seed in range(20):
        found = run(m, [codes], SeededGate(seed))[0]
        assert found.workload.marginals == ((), (0,), (1,), (2,), (0, 2))


def test_signed_events_and_empty_ticks_are_counted_as_they_are() -> None:
    m = mechanism(picks=3)
    state = m.init()
    one = np.zeros((1, 3), dtype=np.int32)
    state, first = m.step(state, WORKLOAD.count(one, np.array([-1])), ExactGate(), PLAN)
    assert first.values[0] == -1
    assert first.marginal((0,))[0].tolist() == [-1, 0]
    state, empty = m.step(state, np.zeros(WORKLOAD.cells, dtype=np.int64), ExactGate(), PLAN)
    assert empty.values[0] == -1
    assert empty.marginal((0,))[0].tolist() == [0, 0]


def test_enormous_counts_neither_overflow_nor_raise() -> None:
    m = mechanism(picks=1, horizon=None)
    state = m.init()
    counts = np.full(WORKLOAD.cells, np.iinfo(np.int64).max)
    for _ in range(12):
        state, measured = m.step(state, counts, SeededGate(2), PLAN)
    assert np.all(measured.values > 0)


def test_distances_are_exact_and_move_by_one_grid_step_for_each_event() -> None:
    counts = np.arange(WORKLOAD.cells)
    guess = np.linspace(0.3, 9.7, WORKLOAD.cells)
    base = distances(ALL, counts, guess)
    assert base / GRID == pytest.approx(np.add.reduceat(np.abs(counts - guess), WORKLOAD.offsets[:-1]), abs=0.01)
    bias = ALL.expected_distances(guess, np.ones(7))
    scores = l1_scores(ALL, counts, guess, bias=bias)
    for cell in range(WORKLOAD.cells):
        for change in (-1, 1):
            other = counts.copy()
            other[cell] += change
            assert np.abs(distances(ALL, other, guess) - base).max() <= GRID
            assert np.abs(l1_scores(ALL, other, guess, bias=bias) - scores).max() <= GRID
    wild = distances(ALL, np.full(WORKLOAD.cells, 2**62), np.full(WORKLOAD.cells, -1e300))
    assert np.all(wild > 0)


def test_a_large_table_that_holds_much_is_chosen() -> None:
    """A column and a function of it have 1,200 cells, in most of which hardly an event is expected."""
    workload = Workload.all_up_to(2, sizes=(40, 30, 3, 3))
    rng, shares = np.random.default_rng(0), 1 / np.arange(1, 41)
    codes = rng.choice(40, size=(6_000, 2), p=shares / shares.sum()).astype(np.int32)
    small = rng.integers(0, 3, (6_000, 2))
    small[:, 1] = np.where(rng.random(6_000) < 0.1, small[:, 0], small[:, 1])
    rows = np.column_stack([codes[:, 0], codes[:, 0] * 3 // 4, small]).astype(np.int32)
    guess = np.column_stack([codes[:, 1], rows[:, 1:2], rng.permutation(small[:, 0]), small[:, 1]]).astype(np.int32)
    m = Epochs(workload=workload, budget=Budget(epsilon=0.2, delta=0.0), horizon=1, picks=2)
    plan = Ahead(workload=workload, rows=Population.of(workload, guess))
    _, measured = m.step(m.init(), workload.count(rows), ExactGate(), plan)
    found = {marginal for marginal in measured.workload.marginals if len(marginal) == 2}
    assert {(2, 3), (0, 1)} <= found


def test_noise_adds_all_of_it_or_what_just_stands_out_of_it() -> None:
    guess, noise = np.zeros(WORKLOAD.cells), np.full(7, 3.0)
    assert ALL.expected_distances(guess, noise).tolist() == [3, *[6] * 3, *[12] * 3]
    # Spread evenly, the squares add up to half a standard deviation of those of Laplace noise, taken as normal.
    even = ALL.expected_distances(guess, noise, shrunk=True) / ALL.lengths
    assert even**2 * ALL.lengths == pytest.approx(np.sqrt(2 * ALL.lengths) * (2 * 3.0**2) / 2)


BAD = [({"picks": 0}, "picks"), ({"growth": 1.0}, "growth"), ({"total": 0}, "total")]


@pytest.mark.parametrize(("settings", "message"), BAD)
def test_bad_settings_are_refused(settings: dict[str, float], message: str) -> None:
    marginals = WORKLOAD.marginals if settings.get("total", True) else WORKLOAD.marginals[1:]
    with pytest.raises(ValueError, match=message):
        Epochs(
            workload=Workload(sizes=SIZES, marginals=marginals),
            budget=Budget(epsilon=settings.get("epsilon", 1.0), delta=0.0),
            horizon=None,
            picks=int(settings.get("picks", 1)),
            growth=settings.get("growth", 1.5),
        )


def test_noise_that_cannot_be_drawn_is_refused() -> None:
    for columns, refused in ((3, False), (300, True)):
        workload = Workload.all_up_to(2, sizes=(2,) * columns)
        with pytest.raises(ValueError, match="too small") if refused else nullcontext():
            Epochs(workload=workload, budget=Budget(epsilon=1e-6, delta=0.0), horizon=None, picks=10**6)


def test_what_is_announced_as_error_is_what_is_seen() -> None:
    """The estimate of every running table over an even stream: its error has the variance that plan forecasts."""
    workload = Workload.all_up_to(1, sizes=(400, 300))
    m = Epochs(workload=workload, budget=Budget(epsilon=1.0, delta=0.0), horizon=None, picks=1)
    batch = np.random.default_rng(0).integers(0, 300, (20_000, 2)).astype(np.int32)
    state, history = m.init(), []
    counts = workload.count(batch)
    for tick in range(30):
        state, measured = m.step(state, counts, SeededGate(tick), Ahead(workload=workload))
        if m.times.ends(tick) or tick == 29:
            history.append(measured)
    estimate = pooled(history)
    expected = InEpochs(mechanism=m).expected_variance(29)
    for q, part in enumerate(np.split(estimate.values - 30 * counts, workload.offsets[1:-1])[1:], start=1):
        assert np.mean(part**2) == pytest.approx(expected[q], rel=0.25)
        assert estimate.variance[q] == pytest.approx(expected[q], rel=0.2)


def test_sums_of_larger_tables_make_single_columns_as_exact_as_announced() -> None:
    """Of 28 pairs eight are measured in each epoch: a column is told by its own table, and by two of them."""
    workload = Workload.all_up_to(2, sizes=(3,) * 8)
    m = Epochs(workload=workload, budget=Budget(epsilon=1.0, delta=0.0), horizon=30, picks=8)
    counts = workload.count(np.random.default_rng(0).integers(0, 3, (20_000, 8)).astype(np.int32))
    squares, told, order = [], [], m.order == 1
    for seed in range(10):
        state, history = m.init(), []
        for tick in range(30):
            state, measured = m.step(state, counts, SeededGate(f"{seed}/{tick}"), Ahead(workload=workload))
            if m.times.ends(tick):
                history.append(measured)
        estimate = pooled(history)
        single = estimate.workload.order == 1
        truth = 30 * np.concatenate([counts[workload.slice_of(one)] for one in estimate.workload.marginals])
        squares.append(np.mean((estimate.values - truth)[np.repeat(single, estimate.workload.lengths)] ** 2))
        told.append(np.mean(estimate.variance[single]))
    expected = InEpochs(mechanism=m).expected_variance(29)[order].mean()
    assert np.mean(told) == pytest.approx(expected, rel=0.1)
    assert np.mean(squares) == pytest.approx(expected, rel=0.3)
    parts = np.diff([0, *m.times.ended(30)]) / 30
    assert expected < 0.75 * m.variance(29)[order].mean() / np.sum(parts**2)  # what their own tables tell alone


def test_a_change_between_epochs_is_kept_and_noise_is_not() -> None:
    """A table whose shares turn round: the running count is what came, not the newest share times the total."""
    workload = Workload.all_up_to(1, sizes=(2,))
    m = Epochs(workload=workload, budget=Budget(epsilon=1.0, delta=0.0), horizon=None, picks=1)
    state, history, true = m.init(), [], np.zeros(3)
    for tick in range(41):
        code = 0 if tick < 11 else 1
        counts = workload.count(np.full((500, 1), code, dtype=np.int32))
        true += counts
        state, measured = m.step(state, counts, SeededGate(tick), Ahead(workload=workload))
        if m.times.ends(tick):
            history.append(measured)
    estimate = pooled(history)
    assert history[-1].tick == 40
    assert estimate.values == pytest.approx(true, abs=150)
    assert estimate.values[1] < 0.9 * estimate.values[0]


def test_every_epoch_ends_once() -> None:
    m = mechanism(horizon=None)
    for tick in range(60):
        assert m.times.ended(tick + 1) == [t + 1 for t in range(tick + 1) if m.times.ends(t)]


@pytest.mark.parametrize("horizon", [1, 2, 6, 8, 9, 60])
def test_the_last_epoch_ends_with_the_horizon(horizon: int) -> None:
    m, endless = mechanism(horizon=horizon), mechanism(horizon=None)
    assert m.times.ended(horizon) == sorted({*endless.times.ended(horizon), horizon})
    assert [t + 1 for t in range(horizon) if m.times.ends(t)] == m.times.ended(horizon)
    for tick in range(horizon):
        begin, end = m.times.span(tick)
        assert (begin, end) == (endless.times.begin(tick), min(endless.times.span(tick)[1], horizon))


def test_what_came_at_the_end_is_measured_at_the_end() -> None:
    row = np.zeros((3, 3), dtype=np.int64)
    measured = run(mechanism(picks=2, horizon=7), [row] * 7, ExactGate())
    assert [len(found.workload.marginals) for found in measured] == [6, 6, 6, 1, 6, 1, 6]
    assert measured[6].since.tolist() == [0, 5, 5, 5, 5, 5]
    assert measured[6].marginal((0,))[0].tolist() == [6, 0]


def signed_epochs(*epochs: tuple[float, float]) -> list[Measured]:
    """Measurements of a table of two cells and of the total, one epoch a tick, with a standard error of 5."""
    workload = Workload(sizes=(2,), marginals=((), (0,)))
    totals = np.cumsum([a + b for a, b in epochs])
    return [
        Measured(
            tick=t,
            workload=workload,
            values=np.array([total, *cells], dtype=np.float64),
            variance=np.array([25.0, 25.0]),
            since=np.array([0, t]),
        )
        for t, (total, cells) in enumerate(zip(totals, epochs, strict=True))
    ]


def test_totals_below_zero_leave_estimates_finite() -> None:
    for epochs in ([(-5.0, -9.0)], [(-500.0, 2.0), (0.0, 0.0), (0.0, -1.0)], [(0.0, 0.0)]):
        found = pooled(signed_epochs(*epochs))
        assert np.all(np.isfinite(found.values))
        assert np.all(np.isfinite(found.variance))
