"""How strong associations are, told by all tables together: against draws from its own prior, and at the ends."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream.constraints import Group
from synthstream.fit import aims as fit_aims
from synthstream.fit.aims import Earlier, aims
from synthstream.fit.beyond import Tables, beyond_noise, freedom, prior
from synthstream.fit.lowrank import NOTHING, Common
from synthstream.fit.ordered import Basis, shrunk
from synthstream.fit.population import Population, fit
from synthstream.fit.strengths import Noisy, doubted, moments, shrunk_together
from synthstream.measured import Measured
from synthstream.workload import FloatArray, Workload

SHARES = np.array([0.5, 0.3, 0.15, 0.05])
PART = prior(SHARES)
PRIOR = np.multiply.outer(PART, PART)
FREE = freedom((4, 4))
NOISE = 100.0


def drawn(strengths: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """True associations of tables, and measured ones. Cells are independent here: all of them are free."""
    rng = np.random.default_rng(seed)
    true = rng.normal(0, np.sqrt(strengths[:, None, None] * PRIOR))
    return true, true + rng.normal(0, np.sqrt(NOISE), true.shape)


def noisy(cells: FloatArray, free: int = PRIOR.size, prior: FloatArray = PRIOR, noise: float = NOISE) -> Noisy:
    return Noisy(cells, np.broadcast_to(prior, cells.shape), np.full((len(cells), 1, 1), noise), free)


def together(measured: FloatArray, left: float = 1.0) -> list[tuple[FloatArray, float]]:
    found = shrunk_together({tuple(range(len(measured))): noisy(measured)}, left)
    return [(found[q].mean, found[q].doubt) for q in range(len(measured))]


@pytest.mark.parametrize("strength", [0.0, 500.0, 20_000.0])
def test_squares_have_the_mean_and_variance_that_are_told(strength: float) -> None:
    measured = drawn(np.full(4000, strength), seed=1)[1]
    squares = noisy(measured).square
    ((mean,),), ((variance,),) = moments([noisy(measured[:1])], np.array([strength]))
    assert np.mean(squares) == pytest.approx(mean, abs=4 * np.sqrt(variance / 4000))
    assert np.var(squares) == pytest.approx(variance, rel=0.15)


def test_fewer_free_cells_tell_less() -> None:
    tables = [noisy(np.ones((1, 4, 4)), free) for free in (16, FREE)]
    whole, few = moments(tables, np.array([5.0]))[1].ravel()
    assert few == pytest.approx(whole * 16 / FREE)


def test_a_table_is_off_by_as_much_as_is_told() -> None:
    """Three tables of four show nothing, one of four much: together, and each of the two kinds by itself."""
    strengths = np.repeat([0.0, 30_000.0], [300, 100])
    true, measured = drawn(strengths, seed=2)
    means, doubts = zip(*together(measured), strict=True)
    off = np.mean((np.array(means) - true) ** 2, axis=(1, 2)) / NOISE
    assert off.mean() == pytest.approx(np.mean(doubts), rel=0.15)  # one sum tells less than all cells would
    assert off[:300].mean() == pytest.approx(np.mean(doubts[:300]), abs=0.03)
    assert off[300:].mean() == pytest.approx(np.mean(doubts[300:]), rel=0.15)


def test_tables_of_one_shape_are_told_what_each_would_be_beside_the_others() -> None:
    measured = drawn(np.repeat([0.0, 30_000.0], [150, 50]), seed=2)[1]
    each = shrunk_together({(q,): noisy(one[None]) for q, one in enumerate(measured)}, 1.0)
    for q, (mean, doubt) in enumerate(together(measured)):
        assert mean == pytest.approx(each[q].mean, abs=1e-3)
        assert doubt == pytest.approx(each[q].doubt, abs=1e-5)


def test_where_no_table_shows_anything_nothing_is_kept_of_any() -> None:
    measured = drawn(np.zeros(300), seed=3)[1]
    alone = [shrunk(one, [Basis(PART)] * 2, NOISE, 1.0).mean for one in measured]
    means, doubts = zip(*together(measured), strict=True)
    assert np.mean(np.square(means)) < np.mean(np.square(alone)) / 4
    assert np.quantile(doubts, 0.9) < 0.05


def test_a_strong_table_among_hundreds_that_show_nothing_is_kept() -> None:
    strengths = np.zeros(200)
    strengths[7] = 1e6
    true, measured = drawn(strengths, seed=4)
    mean, doubt = together(measured)[7]
    assert np.mean((mean - true[7]) ** 2) < 2 * NOISE
    assert doubt > 0.5


def test_of_noise_that_is_left_less_is_taken_away() -> None:
    measured = drawn(np.full(50, 3000.0), seed=5)[1]
    whole, part = (np.mean(np.square([mean for mean, _ in together(measured, left)])) for left in (1.0, 0.5))
    assert part > 1.1 * whole


def test_nothing_is_told_where_there_is_nothing_to_tell_from() -> None:
    one = np.ones((1, 4, 4))
    tables: dict[tuple[int, ...], Noisy] = {
        (3,): noisy(one, noise=0.0),
        (5,): noisy(one, prior=0 * PRIOR),
        (7,): noisy(one, prior=1e-90 * PRIOR),
    }
    found = shrunk_together(tables, 1.0)
    assert all(not found[q].mean.any() and found[q].doubt == 1.0 for (q,) in tables)
    assert shrunk_together({}, 1.0) == {}


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_whatever_tables_hold_doubts_are_finite_and_not_below_nothing(seed: int, number: int) -> None:
    """Noise and strengths of many orders of size, and columns that one code nearly fills."""
    rng, tables = np.random.default_rng(seed), dict[tuple[int, ...], Noisy]()
    for q in range(number):
        parts = [prior(rng.dirichlet(np.full(rng.integers(2, 9), 10 ** rng.uniform(-2, 1)))) for _ in range(2)]
        variances, noise = np.multiply.outer(*parts), float(10 ** rng.uniform(-6, 8))
        cells = rng.normal(0, np.sqrt(10 ** rng.uniform(-6, 12) * variances + noise))
        tables[q,] = noisy(cells[None], freedom(cells.shape), variances, noise)
    found = shrunk_together(tables, 0.6)
    for q, one in found.items():
        assert (np.abs(one.mean) <= np.abs(tables[q,].cells)).all()
        assert 0 <= one.doubt < np.inf


@pytest.mark.parametrize(
    ("seen", "expected"),
    [(0.9, 1.0), (0.2, 0.6), (0.001, 0.02)],
    ids=["most tables show something", "some do", "none does"],
)
def test_weights_of_tables_change_where_hardly_any_shows_anything(seen: float, expected: float) -> None:
    doubts = dict.fromkeys(range(8), 0.0001) | {8: seen, 9: seen}
    found = doubted(doubts)
    assert found[0] == pytest.approx(expected)
    assert found[9] == pytest.approx(max(seen, expected))
    assert doubted({}) == {}
    assert doubted({0: 1.3}) == {0: 1.0}


def test_rows_of_independent_columns_are_held_to_independence(monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights by noise alone, what the rows before went together in by chance stays."""
    rng = np.random.default_rng(6)
    workload, noise = Workload.all_up_to(2, sizes=(4,) * 12), 400.0
    codes, before = (rng.choice(4, (rows, 12), p=SHARES).astype(np.int32) for rows in (4000, 3000))
    before[:1500, 1] = before[:1500, 0]
    true = workload.count(codes)
    values = true + rng.normal(0, noise, workload.cells)
    measured = Measured(tick=9, workload=workload, values=values, variance=np.full(len(workload.marginals), noise**2))
    pairs = workload.order == 2
    told = aims(measured).doubts
    assert (told[pairs] < 0.3).all()
    assert (told[~pairs] == 1).all()

    def together() -> float:
        fit_aims._KEPT.clear()
        rows = fit(measured, start=Population.of(workload, before), seed=1, fresh=True, memory=0.0).codes
        table = np.histogram2d(rows[:, 0], rows[:, 1], bins=4)[0]
        return float(np.abs(table - np.outer(table.sum(axis=1), table.sum(axis=0)) / len(rows)).sum())

    held = together()
    monkeypatch.setattr(fit_aims, "doubted", lambda doubts: dict.fromkeys(doubts, 1.0))
    assert held < 0.3 * together()


def test_where_a_table_may_be_weak_or_strong_it_may_be_off_by_more() -> None:
    """Half of the tables show nothing, half of them as much as their noise: of few can it be told which they are."""
    strengths = np.repeat([0.0, 3_000.0], [500, 500])
    true, measured = drawn(strengths, seed=8)
    means, doubts = zip(*together(measured), strict=True)
    off = np.mean((np.array(means) - true) ** 2, axis=(1, 2)) / NOISE
    assert off.mean() == pytest.approx(np.mean(doubts), rel=0.03)


def test_noise_that_rows_leave_behind_is_no_doubt() -> None:
    measured = drawn(np.full(50, 1e6), seed=9)[1]
    whole, part = (np.mean([doubt for _, doubt in together(measured, left)]) for left in (1.0, 0.5))
    assert part == pytest.approx(0.5 * whole, rel=0.1)


def test_a_table_without_any_association_is_a_table_like_others() -> None:
    mean, doubt = together(np.concatenate([np.zeros((1, 4, 4)), drawn(np.zeros(9), seed=10)[1]]))[0]
    assert not mean.any()
    assert 0 <= doubt < 1


def few_rows() -> tuple[Workload, Measured]:
    workload = Workload.all_up_to(2, sizes=(4,) * 8)
    rng = np.random.default_rng(11)
    values = workload.count(rng.choice(4, (4000, 8), p=SHARES).astype(np.int32)) + rng.normal(0, 120, workload.cells)
    return workload, Measured(tick=4, workload=workload, values=values, variance=np.full(len(values), 120.0**2)[:37])


def test_doubts_hold_until_the_next_refresh() -> None:
    _, measured = few_rows()
    then = Earlier(measured, shared=measured.variance)
    later = replace(measured, tick=5, values=measured.values + 1)
    assert np.array_equal(aims(later, then=then).doubts, aims(measured).doubts)


def test_tables_within_a_constraint_weigh_as_their_noise_says() -> None:
    workload, measured = few_rows()
    group = Group.of((0, 1, 2), np.array([[a, b, c] for a in range(4) for b in range(4) for c in range(4) if a != b]))
    told = aims(measured, groups=[group]).doubts
    within = np.array([len(m) < 2 or set(m) <= {0, 1, 2} for m in workload.marginals])
    assert (told[within] == 1).all()
    assert (told[~within] < 1).all()


def test_with_a_place_all_tables_weigh_as_their_noise_says(monkeypatch: pytest.MonkeyPatch) -> None:
    _, measured = few_rows()
    assert (aims(measured).doubts < 1).any()
    fit_aims._KEPT.clear()
    monkeypatch.setattr(fit_aims, "grids_of", lambda _: {7})
    assert (aims(measured).doubts == 1).all()


def test_what_many_tables_have_in_common_may_be_off_too() -> None:
    workload = Workload(sizes=(4,) * 3, marginals=((0, 1), (0, 2)))
    whole = dict(enumerate(drawn(np.zeros(2), seed=12)[1]))
    known = Tables(workload, np.full(2, NOISE), {0: NOISE, 1: NOISE}, [500 * SHARES] * 3, [PART] * 3, 500, 1.0, True)
    some = Common({1: np.zeros((4, 4))}, {1: 20.0})
    alone, beside = (beyond_noise(whole, known, before).doubts for before in (NOTHING, some))
    assert beside[0] == alone[0]
    assert beside[1] == pytest.approx(alone[1] + 20 / NOISE)


@pytest.mark.parametrize(("hidden", "noise"), [(0.02, 40.0), (2.0, 300.0)], ids=["all is seen", "little is seen"])
def test_a_column_of_one_code_changes_no_weight(hidden: float, noise: float) -> None:
    """Nothing goes with it. All others go with a hidden variable."""
    rng, codes = np.random.default_rng(13), np.zeros((20_000, 9), dtype=np.int32)
    codes[:, :8] = np.clip(5 * (rng.random((20_000, 1)) + hidden * rng.normal(size=(20_000, 8))), 0, 4)
    beside = Workload.all_up_to(2, sizes=(*(5,) * 8, 1))
    values = beside.count(codes) + rng.normal(0, noise, beside.cells)
    alone = Workload.all_up_to(2, sizes=(5,) * 8)
    same = np.concatenate([values[beside.slice_of(m)] for m in alone.marginals])
    told = [
        aims(Measured(tick=4, workload=one, values=own, variance=np.full(len(one.marginals), noise**2))).doubts
        for one, own in ((alone, same), (beside, values))
    ]
    assert told[1][[beside.place[m] for m in alone.marginals]] == pytest.approx(told[0], abs=0.02)
