"""Streams that drift: shares that walk, associations that are carried, what is guessed of an epoch."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest

from synthstream.constraints import Grids, Group
from synthstream.counts import Counts
from synthstream.fit import beyond, drift, pooling, population
from synthstream.fit.ahead import Ahead, raked
from synthstream.fit.aims import aims
from synthstream.fit.moves import move
from synthstream.fit.pooling import pooled
from synthstream.fit.population import Population
from synthstream.fit.targets import simplex
from synthstream.kernel.epochs import Epochs
from synthstream.measured import Measured
from synthstream.privacy import Budget, Unit
from synthstream.synthesizers.epochs import InEpochs
from synthstream.synthesizers.fitting import RowFitting
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray, IntArray, Workload
from tests.support.models import table_of

SIZES = (2, 3)
WORKLOAD = Workload.all_up_to(2, sizes=SIZES)


def looks(*parts: tuple[FloatArray, bool], noise: float = 25.0, seed: int = 0) -> list[Measured]:
    """Exact tables of two columns, one part a tick, measured with some noise; the pair only where it is said."""
    rng, out, total, begun = np.random.default_rng(seed), list[Measured](), 0.0, 0
    for tick, (table, with_pair) in enumerate(parts):
        total += float(table.sum())
        marginals = WORKLOAD.marginals if with_pair else WORKLOAD.marginals[:3]
        exact = [np.array([total]), table.sum(axis=1), table.sum(axis=0), table.reshape(-1)][: len(marginals)]
        values = np.concatenate(exact)
        since = np.array([0, tick, tick, begun][: len(marginals)])
        out.append(
            Measured(
                tick=tick,
                workload=Workload(sizes=SIZES, marginals=marginals),
                values=values + rng.normal(size=values.size) * np.sqrt(noise),
                variance=np.full(len(marginals), noise),
                since=since,
            )
        )
        begun = tick + 1 if with_pair else begun
    return out


def table(events: float, first: float, lift: float = 0.0) -> FloatArray:
    """A table with ``first`` of the events in the first row, and an association of relative size ``lift``."""
    even = np.outer([first, 1 - first], [0.5, 0.3, 0.2]) * events
    return np.asarray(
        even * (1 + lift * np.array([[1, -1, -1], [-1, 1, 1]]) * np.array([[1.0], [first / (1 - first)]]))
    )


def test_shares_that_stay_are_pooled_and_those_that_move_add_up() -> None:
    for shares, moves in (([0.5] * 12, False), (np.linspace(0.1, 0.9, 12).tolist(), True)):
        parts = drift.parts_of(looks(*((table(1000.0, s), False) for s in shares)), SIZES)
        found = drift.smooth(parts)
        assert (found.steps[0] > 0) == moves
        assert found.steps[1] == 0
        assert found.shares[:, 0] == pytest.approx(shares, abs=0.03)
        assert found.shares[:, :2].sum(axis=1) == pytest.approx(parts.events / parts.size)
        true = 1000 * np.array([np.sum(shares), 12 - np.sum(shares)])
        assert found.running[:2] == pytest.approx(true, abs=70)
        assert np.sqrt(found.variance[0]) == pytest.approx(5 * np.sqrt(12), rel=0.5)


def test_the_variance_of_a_running_table_is_what_is_seen() -> None:
    """With known steps: over many streams drawn from the walk itself."""
    rng, gaps, said = np.random.default_rng(1), [], []
    for seed in range(300):
        shares = 0.5 + np.cumsum(rng.normal(size=10) * 0.05)
        parts = drift.parts_of(looks(*((table(200.0, s), False) for s in shares), seed=seed, noise=400.0), SIZES)
        seen = drift.Seen(parts.size, parts.values, parts.variance)
        means, variance = drift.smoothed(seen, np.full(5, 0.5), np.ones(5), np.full(5, 0.05**2))
        gaps.append(float((parts.size @ means)[0] - 200 * shares.sum()))
        said.append(variance[0])
    assert np.var(gaps) == pytest.approx(np.mean(said), rel=0.35)


def test_the_open_part_takes_the_last_share() -> None:
    history = looks(*((table(1000.0, s), False) for s in (0.1, 0.1, 0.1, 0.9, 0.9, 0.9)))
    now = Measured(
        tick=9,
        workload=Workload(sizes=SIZES, marginals=((),)),
        values=np.array([8000.0]),
        variance=np.array([25.0]),
        since=np.array([0]),
    )
    found = pooled([*history, now])
    assert found.values[0] == pytest.approx(8000, abs=30)
    assert found.marginal((0,))[0] == pytest.approx([300 + 2700 + 1800, 3200], abs=120)


@pytest.mark.parametrize(("newest", "kept"), [(2150.0, 0.0), (2600.0, 0.85)])
def test_the_open_part_is_as_large_as_those_before_unless_noise_does_not_explain_it(newest: float, kept: float) -> None:
    """Parts that end at ticks 0, 4 and 9, of 100 events a tick; then ten ticks, with noise of 200 events."""
    totals, noise = np.array([100.0, 500.0, 1000.0, newest]), 200.0**2
    parts = drift.Parts(
        sizes=(2,),
        ends=np.array([0, 4, 9]),
        totals=totals,
        covariance=np.diag([noise] * 4),
        values=np.array([[50.0, 50.0], [200.0, 200.0], [250.0, 250.0]]),
        variance=np.full((3, 2), 1e-3),
        newest=19,
    )
    plain = replace(parts, newest=None)
    assert plain.events[-1] == pytest.approx(newest - 1000, abs=1)
    gap = newest - 2000
    assert kept == pytest.approx(max(0.0, 1 - noise / gap**2), abs=0.05)
    assert parts.events[-1] == pytest.approx(1000 + max(0.0, 1 - noise / gap**2) * gap, rel=0.01)
    assert parts.events[:-1] == pytest.approx([100, 400, 500], abs=1)


def test_an_association_is_carried_and_shares_are_not() -> None:
    """A pair is measured while its first column is rare; later the column is frequent."""
    parts = [(table(2000.0, 0.2, 0.5), True)] * 3 + [(table(2000.0, 0.6), False)] * 6
    true = np.asarray(3 * table(2000.0, 0.2, 0.5) + 6 * table(2000.0, 0.6, 0.5))
    found = pooled(looks(*parts)).marginal((0, 1))[0]
    plain = np.outer(true.sum(axis=1), true.sum(axis=0)) / true.sum()
    assert np.abs(found - true).sum() < 0.45 * np.abs(plain - true).sum()


def test_without_an_association_nothing_but_independent_columns_is_left() -> None:
    found = pooled(looks(*[(table(2000.0, 0.3), True)] * 4))
    rows, columns = (found.marginal((c,))[0] for c in (0, 1))
    assert found.marginal((0, 1))[0] == pytest.approx(np.outer(rows, columns) / found.values[0], rel=1e-6)


def test_an_association_that_moves_leaves_tables_of_single_columns_as_they_are() -> None:
    """Grades depend on kinds as ever, and kinds change: relative to independent columns their association moves."""
    given = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    tables = [2000 * np.array([[1 - s], [s]]) * given for s in (0.05, 0.1, 0.3, 0.5, 0.7, 0.9)]
    true, found = sum(tables), pooled(looks(*((t, True) for t in tables)))
    values, stderr = found.marginal((0, 1))
    off = np.abs(values - true).sum()
    assert off < 200
    assert 6 * stderr > off / 2
    assert np.abs(values.sum(axis=1) - true.sum(axis=1)).sum() < 100


def test_how_far_associations_move_is_told_halfway_by_what_is_usual() -> None:
    """Two tables move, and of one that was measured seldom little is said to be known; a third one stays."""
    known = {(0, 1): (400.0, True), (0, 2): (6400.0, True), (1, 2): (100.0, False)}
    workload, given = Workload.all_up_to(2, sizes=(2, 2, 2)), iter(sorted(known.items()))

    def found(looks: pooling.Looks, alone: FloatArray, shape: object) -> pooling.Association:
        _, (variance, moves) = next(given)
        return pooling.Association(alone, np.full(alone.size, variance), 0.0, moves)

    counts = workload.count(np.indices((2, 2, 2)).reshape(3, -1).T.astype(np.int32)).astype(np.float64) * 250
    measured = Measured(tick=0, workload=workload, values=counts, variance=np.ones(7), since=np.zeros(7, dtype=int))
    with patch.object(pooling, "association", found):
        told = pooled([measured])
    assert [told.variance[told.workload.place[pair]] for pair in known] == pytest.approx([1166.19, 4664.76, 100.0])


@pytest.mark.parametrize("moving", [False, True])
def test_an_association_says_whether_it_moves(moving: bool) -> None:
    tables = [table(2000.0, 0.5, lift=0.1 * t if moving else 0.5) for t in range(8)]
    found = looks(*((t, True) for t in tables))
    alone = np.array([np.outer(t.sum(axis=1), t.sum(axis=0)).reshape(-1) / t.sum() for t in tables])
    seen = np.array([known.marginal((0, 1))[0].reshape(-1) for known in found])
    known = pooling.Looks(alone, seen, np.full(8, 25.0), np.full(8, 1 / 64 / 25))
    assert pooling.association(known, alone.sum(axis=0), SIZES).moves == moving


def test_pairs_that_were_never_measured_follow_from_the_times_of_both_columns() -> None:
    """Two columns change at the same time: they depend on each other, though no table says so."""
    tables = [np.outer([1 - s, s], [1 - s, s / 2, s / 2]) * 1000 for s in (0.05,) * 6 + (0.95,) * 6]
    found = pooled(looks(*((t, False) for t in tables)))
    assert (0, 1) in found.workload.marginals
    assert found.marginal((0, 1))[0] == pytest.approx(sum(tables), abs=250)
    assert (0, 1) not in pooled(looks(*[(table(1000.0, 0.3), False)] * 6)).workload.marginals


def test_the_open_part_has_the_dates_of_its_own_ticks() -> None:
    """Two ticks a day, of which the newest day was not measured; the other column goes from .1 to .9 on the second."""

    def expected(first: int, last: int) -> dict[tuple[int, ...], FloatArray]:
        return {(1,): np.bincount(np.arange(first, last + 1) // 2, minlength=3) / (last + 1 - first)}

    firsts = (0.1, 0.1, 0.9, 0.9, 0.9, 0.9)
    tables = [np.outer([f, 1 - f], np.arange(3) == tick // 2) * 1000.0 for tick, f in enumerate(firsts)]
    *history, now = looks(*((one, False) for one in tables), noise=400.0)
    alone = Workload(sizes=SIZES, marginals=((),))
    now = replace(now, workload=alone, values=now.values[:1], variance=now.variance[:1], since=now.since[:1])
    found = pooled([*history[:4], now], expected=expected)
    assert found.marginal((1,))[0] == pytest.approx(np.full(3, 2000.0), abs=100)
    assert found.marginal((0, 1))[0] == pytest.approx(sum(tables), abs=150)
    # Beside a share below 0 a pair would seem to be as good as unknown.
    days = np.array([expected(tick, min(tick, now.tick))[1,] for tick in range(4)] + [expected(4, now.tick)[1,]])
    smooth = pooling._beside(drift.parts_of([*history[:4], now], SIZES), {1: days}, (), ())
    assert smooth.shares[:, 2:].min() >= 0
    assert smooth.steps[1] > 0
    assert pooled([*history[:4], now]).marginal((1,))[0][2] < 1000


def test_columns_that_constraints_join_are_not_taken_to_be_independent() -> None:
    """Grids of one place drift together: in no part are they independent, as no row is."""
    tables = [np.array([[1 - s, 0, 0], [0, s / 4, 3 * s / 4]]) * 1000 for s in (0.05,) * 6 + (0.95,) * 6]
    grids = Group.of([0, 1], np.array([[0, 0], [1, 1], [1, 2]]))
    never = pooled(looks(*((t, False) for t in tables)), groups=[grids])
    assert (0, 1) not in never.workload.marginals
    found = pooled(looks(*((t, True) for t in tables), noise=2500.0), groups=[grids])
    assert not found.marginal((0, 1))[0][[0, 0, 1], [1, 2, 0]].any()


def test_the_prior_is_bounded_by_chi_square() -> None:
    alone = np.array([1.0, 9.0, 90.0, 900.0])
    assert np.all(pooling.prior(alone, (2, 2), 1e9) * alone.size * alone / alone.sum() <= 1 + 1e-3)
    assert np.all(np.diff(pooling.prior(alone, (2, 2), 1e-4)) < 0)


def test_margins_of_pairs_join_over_all_parts_of_their_epoch() -> None:
    """Two parts of 1,000 rows; the pair of both says 2,400 in all."""
    values, variance = np.full((2, 2), 500.0), np.full((2, 2), 100.0)
    drift._join(values, variance, np.array([1200.0, 1000.0]), 200.0)
    assert values[:, 0] == pytest.approx([550, 550])
    assert values[:, 1] == pytest.approx([500, 500])
    assert variance[:, 0] == pytest.approx([75, 75])


def test_shares_on_the_simplex() -> None:
    rng = np.random.default_rng(0)
    shares = rng.normal(size=(50, 6))
    found = simplex(shares, np.ones(50))
    assert np.all(found >= 0)
    assert found.sum(axis=1) == pytest.approx(np.ones(50))
    for other in rng.dirichlet(np.ones(6), 200):
        assert np.all(np.sum((found - shares) ** 2, axis=1) <= np.sum((other - shares) ** 2, axis=1) + 1e-12)


def test_raking_keeps_odds_and_takes_margins() -> None:
    start = np.array([[4.0, 1.0], [2.0, 3.0]])
    found = raked(start, [np.array([30.0, 70.0]), np.array([50.0, 50.0])])
    assert found.sum(axis=1) == pytest.approx([30, 70], rel=1e-3)
    assert found.sum(axis=0) == pytest.approx([50, 50], rel=1e-3)
    assert found[0, 0] * found[1, 1] / found[0, 1] / found[1, 0] == pytest.approx(6)
    empty = raked(np.array([[0.0, 0.0], [2.0, 3.0]]), [np.array([10.0, 10.0]), np.array([8.0, 12.0])])
    assert empty.sum(axis=1) == pytest.approx([10, 10], rel=0.05)


def test_a_guess_has_the_margins_of_the_epoch_and_the_association_of_the_rows() -> None:
    history = looks(*((table(1000.0, 0.2), False) for _ in range(6)))
    rows = Population.of(
        WORKLOAD, np.array([[0, 0]] * 10 + [[0, 1]] * 5 + [[1, 1]] * 10 + [[1, 2]] * 15, dtype=np.int32)
    )
    ahead = Ahead(
        workload=WORKLOAD,
        rows=rows,
        known=lambda: drift.parts_of(history, SIZES),
        begun=6,
        before=4,
        variance=np.full(2, 25.0),
    )
    now = table(3000.0, 0.7)
    found = ahead.guess(3200.0, np.concatenate([now.sum(axis=1), now.sum(axis=0)]))  # by a noisy total
    own = found[WORKLOAD.slice_of((0, 1))].reshape(SIZES)
    assert own.sum(axis=1) == pytest.approx([2100, 900], rel=0.05)
    assert own[0, 2] == 0
    assert own[1, 0] == 0
    assert ahead.parts() == 1
    assert Ahead(workload=WORKLOAD).parts() == 1
    moving = looks(*((table(1000.0, s), False) for s in (0.1, 0.9, 0.1, 0.9, 0.1, 0.9)))
    many = Ahead(workload=WORKLOAD, known=lambda: drift.parts_of(moving, SIZES), variance=np.full(2, 25.0))
    assert many.parts() == 4


def test_tables_of_epochs_are_not_shrunk_once_more() -> None:
    values = np.array([100.0, 60, 40, 50, 30, 20, 30, 20, 10, 20, 10, 10])
    known = Measured(tick=0, workload=WORKLOAD, values=values, variance=np.full(4, 1e-3))
    with patch.object(beyond, "shrunk_together", side_effect=AssertionError):
        assert aims(known, taken=1e-4).rows == 100


def test_coarse_grids_of_a_place_are_followed_as_far_as_their_own_noise_allows() -> None:
    """Tables of epochs are taken as they are, by variances of next to nothing; joint counts look at the real ones."""
    fine = np.arange(64)
    grids = Group.of((0, 1), np.stack([fine // 16, fine], axis=1), nests=[Grids((0, 1), (2, 6), 2)])
    workload = Workload(sizes=(4, 64), marginals=((), (0,), (1,)))
    mechanism = Epochs(workload=workload, budget=Budget(epsilon=1.0, delta=0.0), horizon=20)
    made, looked = InEpochs(mechanism=mechanism, how=RowFitting(groups=(grids,))), Mock(wraps=aims)
    counts, gate = Counts.of(np.zeros(69, dtype=np.int64)), SeededGate("0")
    _, measured, models = made.step(made.mechanism.init(), counts, gate, None, {})
    with patch.object(population, "aims", looked):
        made.fit(0, [measured].__getitem__, None, models, seed=0)
    (seen,), how = looked.call_args
    known = made.known(0, [measured].__getitem__, models)
    assert np.allclose(seen.variance / how["taken"], known.variance)
    assert how["taken"] < 0.01


# -- whole streams ----------------------------------------------------------------------------------------------


def errors(
    batches: list[IntArray], sizes: tuple[int, ...], seed: int, **settings: object
) -> list[tuple[float, float, float]]:
    """At each quarter, mean over pairs of the sum of absolute errors a row.

    Of the rows, of what the program's own tables of single columns would give, and of exact ones without noise.
    """
    workload = Workload.all_up_to(2, sizes=sizes)
    made = InEpochs(mechanism=Epochs(workload=workload, budget=Budget(epsilon=1.0, delta=0.0), horizon=40, **settings))  # type: ignore[arg-type]
    state, last, models, history, out = made.mechanism.init(), None, dict[str, Any](), list[Measured](), []
    true = np.zeros(workload.cells, dtype=np.int64)
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    for tick, codes in enumerate(batches):
        counts = workload.count(codes.astype(np.int32))
        true += counts
        state, measured, models = made.step(state, Counts.of(counts), SeededGate(f"{seed}/{tick}"), last, models)  # type: ignore[assignment]
        history.append(measured)
        last = made.fit(tick, history.__getitem__, last, models, seed=tick)
        if (tick + 1) % 10 == 0:
            known, rows = made.known(tick, history.__getitem__, models), float(true[0])
            own = [np.maximum(known.marginal((c,))[0], 0) for c in range(len(sizes))]
            exact = [true[workload.slice_of((c,))] for c in range(len(sizes))]
            gaps = [
                [
                    np.abs(found - true[workload.slice_of(pair)].reshape(found.shape)).sum() / rows
                    for found in (
                        table_of(last, pair),
                        np.outer(own[pair[0]], own[pair[1]]) / max(known.values[0], 1.0),
                        np.outer(exact[pair[0]], exact[pair[1]]) / rows,
                    )
                ]
                for pair in pairs
            ]
            a, b, c = np.mean(gaps, axis=0)
            out.append((float(a), float(b), float(c)))
    return out


def people(seed: int, rows: int = 20_000) -> IntArray:
    """Five columns that depend on each other in a row."""
    rng = np.random.default_rng(seed)
    columns = [rng.choice(6, rows, p=[0.3, 0.25, 0.2, 0.1, 0.1, 0.05])]
    for size in (5, 4, 6, 3):
        columns.append(np.where(rng.random(rows) < 0.6, columns[-1] % size, rng.integers(0, size, rows)))
    return np.stack(columns, axis=1)


def sorted_stream(seed: int) -> list[IntArray]:
    rows = people(seed)
    return np.array_split(rows[np.argsort(rows[:, 0], kind="stable")], 40)


def switching(seed: int) -> list[IntArray]:
    rows = people(seed)
    rows[len(rows) // 2 :] = (np.array([5, 4, 3, 5, 2]) - rows)[len(rows) // 2 :]
    return np.array_split(rows, 40)


def seasonal(seed: int) -> list[IntArray]:
    rows = people(seed)
    upper = rows[:, 0] + rows[:, 1] > 3
    season = np.sin(np.arange(len(rows)) / len(rows) * 6 * np.pi) > 0
    order = np.lexsort((np.random.default_rng(seed).random(len(rows)), season != upper))
    return np.array_split(rows[np.argsort(np.argsort(season != season[0], kind="stable"))[np.argsort(order)]], 40)


@pytest.mark.sparing(1)
@pytest.mark.parametrize("stream", [sorted_stream, switching, seasonal, lambda seed: np.array_split(people(seed), 40)])
def test_rows_of_streams_that_drift_are_never_worse_than_independent_columns(stream: object) -> None:
    for seed in (0, 1):
        found = errors(stream(seed), (6, 5, 4, 6, 3), seed)  # type: ignore[operator]
        for rows, own, _ in found:
            assert rows < 1.05 * own
        for rows, _, exact in found[1:]:
            assert rows < exact


def test_rows_search_with_eased_weights_at_the_end_of_an_epoch_alone() -> None:
    """Between, and where tables of one column alone were measured, they move once."""
    made = InEpochs(
        mechanism=Epochs(workload=WORKLOAD, budget=Budget(epsilon=1.0, delta=0.0), horizon=20), how=RowFitting()
    )
    codes = np.indices(SIZES).reshape(2, -1).T.astype(np.int32).repeat(20, axis=0)
    state, last, models, history = made.mechanism.init(), None, dict[str, Any](), list[Measured]()
    for tick in range(14):
        counts = made.count(codes.repeat(50 if tick == 9 else 1, axis=0), None)  # a burst ends a part
        state, measured, models = made.step(state, counts, SeededGate(tick), last, models)  # type: ignore[assignment]
        history.append(measured)
        with patch.object(population, "move", wraps=move) as moved:
            last = made.fit(tick, history.__getitem__, last, models, seed=tick)
        assert moved.call_args.kwargs["effort"].eased == made.mechanism.times.ends(tick)
    assert {len(known.workload.marginals) for known in history} == {1, 3, 4}


def test_signed_rows_that_move_leave_their_old_value() -> None:
    """20,000 rows come in 20 ticks and then move to another value in 20 more: their number stands still."""
    workload = Workload.all_up_to(2, sizes=(2, 3))
    unit, budget = Unit(signed=True), Budget(epsilon=1.0, delta=0.0)
    made = InEpochs(mechanism=Epochs(workload=workload, budget=budget, horizon=40, unit=unit))
    state, last, models, history = made.mechanism.init(), None, dict[str, Any](), list[Measured]()
    for tick in range(40):
        old = np.zeros((1000, 2), dtype=np.int32)
        old[:, 1] = np.arange(1000) % 3
        new = old + np.array([1, 0], dtype=np.int32)
        codes = old if tick < 20 else np.concatenate([old, new])
        weights = np.ones(1000) if tick < 20 else np.repeat([-1, 1], 1000)
        counts = made.count(codes, weights.astype(np.int64))
        state, measured, models = made.step(state, counts, SeededGate(tick), last, models)  # type: ignore[assignment]
        history.append(measured)
        last = made.fit(tick, history.__getitem__, last, models, seed=tick)
    assert last is not None
    assert sum(table_of(last, (0,))) == pytest.approx(20_000, abs=1500)
    assert table_of(last, (0,))[0] < 4_000


MARGINALS = [((), (0,), (1,), (0, 1)), ((), (0, 1)), ((), (0, 1, 2), (1,)), ((),)]


@pytest.mark.sparing(12)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("marginals", MARGINALS, ids=len)
@pytest.mark.parametrize("rows", [0, 1, 3000])
def test_whatever_comes_estimates_are_finite_and_no_larger_than_what_came(
    marginals: tuple[tuple[int, ...], ...], rows: int, signed: bool
) -> None:
    """Also where noise is larger than all that came, and numbers of events are negative."""
    rng = np.random.default_rng(rows)
    for epsilon in (0.01, 50.0):
        made = InEpochs(
            mechanism=Epochs(
                workload=Workload(sizes=(3, 2, 2), marginals=marginals),
                budget=Budget(epsilon=epsilon, delta=0.0),
                horizon=None,
                unit=Unit(signed=signed),
            )
        )
        state, last, models, history = made.mechanism.init(), None, dict[str, Any](), list[Measured]()
        for tick in range(9):
            codes = np.stack([rng.integers(0, size, rows) for size in (3, 2, 2)], axis=1).astype(np.int32)
            counts = made.count(codes, rng.choice([1, -1], rows) if signed else None)
            state, measured, models = made.step(state, counts, SeededGate(tick), last, models)  # type: ignore[assignment]
            history.append(measured)
            known = made.known(tick, history.__getitem__, models)
            noise = float(np.sqrt(max(m.variance.max() for m in history)))
            assert np.all(np.isfinite(known.values))
            assert np.all(known.variance > 0)
            assert np.abs(known.values).max() < 9 * rows + 60 * noise
            last = made.fit(tick, history.__getitem__, last, models, seed=tick)
