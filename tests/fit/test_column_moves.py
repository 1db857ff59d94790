"""The joint fit converges, leaves noise alone, and finds what all pairs have in common."""

from __future__ import annotations

import hashlib
import itertools
import math
import tracemalloc

import numpy as np
import pytest
from benchmarks.metrics import table_errors

from synthstream.fit import rare as rare_codes
from synthstream.fit.aims import Earlier, Targets, aims
from synthstream.fit.changes import lately, standing_out, towards
from synthstream.fit.lowrank import common, orthonormal
from synthstream.fit.moves import Effort, _layout, move
from synthstream.fit.population import Population, fit
from synthstream.fit.rare import possible_margins, rare
from synthstream.fit.targets import simplex
from synthstream.measured import Measured
from synthstream.workload import CodeArray, FloatArray, Workload
from tests.support.models import table_of

SIZES = (3, 4, 2, 5)
SEARCH = Effort(gain=0.0, lean=0.0, still=0.0, blocks=40)


def related(n: int, seed: int = 0) -> CodeArray:
    """Each column but the last is nearly a function of the one before."""
    rng = np.random.default_rng(seed)
    first = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    second = np.where(rng.random(n) < 0.97, 3 - first, rng.integers(0, 4, n))
    third = np.where(rng.random(n) < 0.97, second % 2, rng.integers(0, 2, n))
    return np.stack([first, second, third, rng.integers(0, 5, n)], axis=1).astype(np.int32)


def noisy(workload: Workload, codes: CodeArray, sigma: float, seed: int = 0) -> Measured:
    noise = np.random.default_rng(seed).normal(0, sigma, workload.cells)
    variance = np.full(len(workload.marginals), sigma**2)
    return Measured(tick=0, workload=workload, values=workload.count(codes) + noise, variance=variance)


def error(model: Population, codes: CodeArray) -> float:
    workload = Workload.all_up_to(2, sizes=model.workload.sizes)
    counts = workload.count(model.codes.astype(np.int32))
    return table_errors(workload, true=workload.count(codes), synthetic=counts, events=len(codes)).avg_rel_l1


def aimed(rows: int, margins: tuple[FloatArray, ...], cells: FloatArray, errors: FloatArray) -> Targets:
    return Targets(rows, margins, cells, errors, (), float(rows), np.zeros(len(margins)), np.ones(len(errors)))


def searched(workload: Workload, cells: FloatArray, codes: CodeArray, effort: Effort = SEARCH) -> FloatArray:
    """Counts that come of the residual that is kept in the loop, less ``cells``; ``codes`` change."""
    margins = tuple(np.full(size, len(codes) / size) for size in workload.sizes)
    variance = np.ones(len(workload.marginals))
    aim = aimed(len(codes), margins, cells, variance)
    return move(codes, workload.count(codes), aim, variance, workload, effort=effort, state=7) - cells


def test_rows_are_what_they_were() -> None:
    """The fit of streams that run: what changes it makes a new edition."""
    found = hashlib.sha256()
    for order in (1, 2, 3):
        workload = Workload.all_up_to(order, sizes=SIZES)
        # Rows and noise that no version of NumPy changes.
        n = np.arange(3000)
        rows = np.stack([n % 7 % 3, n % 3 + n % 2, n % 2, n * n % 11 % 5], axis=1).astype(np.int32)
        last = None
        for tick in range(4):
            noise = (np.arange(workload.cells) * (7919 + tick) % 1009) / 1009 * 40 - 20
            values = workload.count(rows[: 2000 + 300 * tick]) + noise
            m = Measured(tick=tick, workload=workload, values=values, variance=np.full(len(workload.marginals), 133.0))
            last = fit(m, start=last, seed=tick)
            found.update(last.codes.tobytes())
    assert found.hexdigest() == "71763dc8e5dba936eb725b1bf8830bb65a2f9c5dd73219a80f2212b9712e16dc"


def test_rows_know_their_counts_where_a_column_has_more_codes_than_a_byte() -> None:
    """Over 1 s once: the search is compiled for larger codes."""
    sizes = (300, 3)
    workload, n = Workload.all_up_to(2, sizes=sizes), np.arange(3000)
    codes = np.stack([n * n % 300, n % 300 // 100], axis=1).astype(np.int32)
    model = fit(noisy(workload, codes, 0.0), seed=1)
    assert model.known is not None
    assert np.array_equal(model.known, workload.count(model.codes.astype(np.int32)))
    assert np.abs(model.known - workload.count(codes)).sum() < 0.05 * 4 * len(codes)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_exact_tables_are_met_at_once(order: int) -> None:
    workload, codes = Workload.all_up_to(order, sizes=SIZES), related(3000)
    counts = workload.count(codes)
    model = fit(noisy(workload, codes, 0.0), seed=1)
    assert np.abs(workload.count(model.codes.astype(np.int32)) - counts).sum() < 0.01 * counts.sum()


def test_related_columns_are_met() -> None:
    workload, codes = Workload.all_up_to(2, sizes=SIZES), related(3000)
    assert error(fit(noisy(workload, codes, 0.0), seed=1), codes) < 0.005


def test_a_workload_without_all_pairs_and_with_a_column_that_nothing_holds() -> None:
    workload = Workload(sizes=(2, 3, 2), marginals=((), (0, 1)))
    codes = np.array([[0, 2, 0]] * 300 + [[1, 1, 1]] * 100, dtype=np.int32)
    model = fit(noisy(workload, codes, 0.0), seed=0)
    assert np.abs(table_of(model, [0, 1]) - workload.count(codes)[1:].reshape(2, 3)).sum() <= 4
    assert 100 < table_of(model, [2])[0] < 300


def test_the_residual_kept_in_the_loop_is_that_of_the_rows() -> None:
    # One table of three columns has more lines than there are rows: it is read in place.
    sizes = (9, 20, 11, 3)
    workload = Workload(sizes=sizes, marginals=((), (0,), (1, 3), (0, 1, 2), (2, 3)))
    rng = np.random.default_rng(0)
    codes, goal = (rng.integers(0, sizes, (60, 4)).astype(np.int32) for _ in range(2))
    cells = workload.count(goal).astype(np.float64)
    before = float(np.sum((workload.count(codes) - cells) ** 2))
    residual = searched(workload, cells, codes)
    assert np.allclose(residual, workload.count(codes) - cells)
    assert np.sum(residual**2) < 0.3 * before


def test_no_single_move_is_left_that_would_gain() -> None:
    workload = Workload.all_up_to(3, sizes=SIZES)
    cells = workload.count(related(80)) + np.random.default_rng(1).normal(0, 1, workload.cells)
    codes = np.zeros((80, 4), dtype=np.int32)
    residual = searched(workload, cells, codes)
    best = float(np.sum(residual**2))
    for row in range(0, 80, 5):
        for column, size in enumerate(SIZES):
            for value in range(size):
                other = codes.copy()
                other[row, column] = value
                assert np.sum((workload.count(other) - cells) ** 2) >= best - 1e-3


def test_a_row_does_not_move_where_that_overshoots() -> None:
    workload = Workload(sizes=(2,), marginals=((0,),))
    before = np.array([[0]] * 5 + [[1]] * 4, dtype=np.int32)
    for zeros, moved in ((4.6, 0), (4.4, 1)):
        codes = before.copy()
        searched(workload, np.array([zeros, 9 - zeros]), codes)
        assert np.sum(codes != before) == moved


def test_a_holder_knows_its_lines() -> None:
    workload = Workload(sizes=(2, 3, 4), marginals=((0, 1, 2),))
    layout = _layout(workload)
    assert layout.lines.tolist() == [12, 8, 6]
    assert layout.stride.tolist() == [12, 4, 1]
    assert layout.steps.tolist() == [4, 1, 4, 1, 3, 1]


def test_tables_of_more_weight_win() -> None:
    workload = Workload(sizes=(2, 1), marginals=((0,), (0, 1)))
    for variance, zeros in ((np.array([1.0, 100.0]), 100), (np.array([100.0, 1.0]), 0)):
        codes = np.array([[i % 2, 0] for i in range(100)], dtype=np.int32)
        margins = (np.array([50.0, 50.0]), np.array([100.0]))
        aim = aimed(100, margins, np.array([100.0, 0.0, 0.0, 100.0]), variance)
        move(codes, workload.count(codes), aim, variance, workload, effort=SEARCH, state=1)
        assert np.sum(codes[:, 0] == 0) == pytest.approx(zeros, abs=2)


@pytest.mark.parametrize("eased", [False, True])
def test_gains_that_noise_explains_move_no_row(eased: bool) -> None:
    workload = Workload.all_up_to(2, sizes=SIZES)
    codes = related(2000)
    cells = workload.count(codes) + np.random.default_rng(0).normal(0, 1, workload.cells)
    before, careful = codes.copy(), SEARCH._replace(gain=6.0, eased=eased)
    searched(workload, cells * 1.0, codes, careful)
    assert np.array_equal(codes, before)
    searched(workload, cells, codes)
    assert not np.array_equal(codes, before)


def test_a_common_value_is_taken_where_both_would_do() -> None:
    workload = Workload(sizes=(3,), marginals=((0,),))
    codes = np.zeros((100, 1), dtype=np.int32)
    aim = aimed(100, (np.array([10.0, 89.0, 1.0]),), np.array([0.0, 50.0, 50.0]), np.ones(1))
    move(codes, workload.count(codes), aim, np.ones(1), workload, effort=SEARCH._replace(lean=5.0), state=3)
    ones, twos = np.sum(codes == 1), np.sum(codes == 2)
    assert ones > twos + 5


def test_the_same_rows_again_and_few_of_them_change_without_news() -> None:
    workload, codes = Workload.all_up_to(2, sizes=SIZES), related(5000)
    m = noisy(workload, codes, 30.0)
    first = fit(m, seed=4)
    assert np.array_equal(first.codes, fit(m, seed=4).codes)
    assert not np.array_equal(first.codes, fit(m, seed=5).codes)
    again = fit(m, start=first, seed=5, memory=0.0, fresh=False)
    assert np.any(again.codes != first.codes, axis=1).mean() < 0.015


@pytest.mark.parametrize("size", [1, 8, 9, 300])
def test_a_column_of_any_width(size: int) -> None:
    workload = Workload.all_up_to(2, sizes=(size, 2))
    n = np.arange(900)
    codes = np.stack([n % size, n % size % 2], axis=1).astype(np.int32)
    model = fit(noisy(workload, codes, 0.0), seed=0)
    assert model.codes.dtype == np.min_scalar_type(size - 1)
    assert np.abs(workload.count(model.codes.astype(np.int32)) - workload.count(codes)).sum() <= 0.04 * 4 * 900


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_next_to_no_rows_and_a_single_column(rows: int) -> None:
    workload = Workload.all_up_to(1, sizes=(3,))
    codes = np.full((rows, 1), 2, dtype=np.int32)
    assert np.array_equal(fit(noisy(workload, codes, 0.0), seed=0).codes, codes)


def test_rare_codes_that_never_occur_are_told_from_those_that_do() -> None:
    rng = np.random.default_rng(0)
    truth = [np.array([500.0, 480, 510, 490, 0, 0]) for _ in range(50)]
    counts = [column + rng.normal(0, 20, 6) for column in truth]
    counts = [column + (1980 - column.sum()) / 6 for column in counts]
    found = possible_margins(counts, [400.0] * 50, 1980)
    assert all(margin.sum() == pytest.approx(1980) for margin in found)
    never = sum(float(margin[4:].sum()) for margin in found)
    assert never < 0.2 * sum(float(simplex(column, 1980.0)[4:].sum()) for column in counts)
    # Where rare codes do occur, they stay.
    seen = rare([np.array([500.0, 60, 61, 62, 59, 63])], [20.0])[0]
    assert seen.real.min() > 0.9
    assert seen.clear.tolist() == [True, *[False] * 5]
    assert seen.slack == pytest.approx([20.0] * 6)


def test_what_is_lost_in_noise_of_a_long_list_is_not_given_to_its_frequent_codes() -> None:
    rng, noise = np.random.default_rng(0), 40.0
    shares = 1 / np.arange(1.0, 3001)
    truth = np.round(48_000 * shares / shares.sum())
    rows = int(truth.sum())
    counts = truth + rng.normal(0, noise, truth.size)
    (found,) = possible_margins([counts], [noise**2], rows)
    assert (found.sum(), found.min() >= 0) == (pytest.approx(rows), True)
    frequent = counts > 5 * noise
    assert frequent.sum() > 10
    assert found[frequent] == pytest.approx(counts[frequent], abs=noise)
    assert found[~frequent].max() < 5.5 * noise


def test_margins_do_not_depend_on_last_bits_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrix products and exp have others on other processors."""
    rng = np.random.default_rng(0)
    counts = [4000 / np.arange(1.0, size + 1) + rng.normal(0, 40, size) for size in (3000, 50, 7)]
    known = [possible_margins([each], [1600.0], round(each.sum()))[0] for each in counts]
    own, density = np.exp, rare_codes._density
    monkeypatch.setattr(np, "exp", lambda values: np.nextafter(own(values), np.inf))
    monkeypatch.setattr(rare_codes, "_density", lambda scores: np.asfortranarray(density(scores)))  # adds otherwise
    for each, margin in zip(counts, known, strict=True):
        (found,) = possible_margins([each], [1600.0], round(each.sum()))
        assert found.tobytes() == margin.tobytes()


def hidden(n: int, columns: int) -> CodeArray:
    rng = np.random.default_rng(0)
    return ((rng.integers(0, 4, (n, 1)) + rng.integers(0, 2, (n, columns))) % 4).astype(np.int32)


def test_a_hidden_variable_is_seen_in_all_pairs_together() -> None:
    codes = hidden(2000, 30)
    workload = Workload.all_up_to(2, sizes=(4,) * 30)
    counts, cells = workload.count(codes), aims(noisy(workload, codes, 250.0)).cells
    pairs = slice(int(workload.offsets[31]), None)
    assert np.abs(cells - counts)[pairs].sum() < 0.9 * np.abs(2000 / 16 - counts)[pairs].sum()


def test_a_long_list_is_kept_as_its_pairs_alone() -> None:
    """The matrix over all values of a list of 20,000 would have 3 GB."""
    workload, rng = Workload.all_up_to(2, sizes=(20_000, 5, 4)), np.random.default_rng(2)
    pairs = [q for q, marginal in enumerate(workload.marginals) if len(marginal) == 2]
    noise = {q: rng.normal(size=workload.shapes[q]) for q in pairs}
    tracemalloc.start()
    found = common(workload, noise, np.ones(len(workload.marginals)))
    assert tracemalloc.get_traced_memory()[1] < 2**27
    tracemalloc.stop()
    assert not found.means


def test_independent_columns_have_nothing_in_common() -> None:
    rng = np.random.default_rng(0)
    workload = Workload.all_up_to(2, sizes=(5,) * 20)
    for _ in range(5):
        noise = {}
        for q, marginal in enumerate(workload.marginals):
            if len(marginal) == 2:
                table = rng.normal(0, 3, (5, 5))
                noise[q] = table - table.mean(0) - table.mean(1)[:, None] + table.mean()
        assert not common(workload, noise, np.full(len(workload.marginals), 9.0)).means


@pytest.mark.parametrize("size", [8, 128, 129, 1000])
def test_directions_become_orthonormal_few_rows_at_a_time(size: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(size, 8)) * np.geomspace(1, 1e6, 8)
    vectors[:, 1] = 0.0
    found = orthonormal(vectors)
    assert found.shape == vectors.shape
    assert np.allclose(found.T @ found, np.eye(8))
    assert np.allclose(found @ (found.T @ vectors), vectors)


def test_few_known_pairs_are_not_completed() -> None:
    workload = Workload(sizes=(2,) * 6, marginals=((0, 1), (2, 3)))
    strong = np.array([[1e6, -1e6], [-1e6, 1e6]])
    assert not common(workload, {0: strong, 1: strong}, np.ones(2)).means


def test_old_tables_are_carried_to_fresh_margins() -> None:
    workload, codes = Workload.all_up_to(2, sizes=(2, 2)), np.repeat([[0, 0], [1, 1]], [600, 400], axis=0)
    then, now = codes.astype(np.int32), np.repeat([[0, 0], [1, 1]], [1800, 200], axis=0).astype(np.int32)
    values = np.concatenate([workload.count(now)[:5], workload.count(then)[5:]]).astype(np.float64)
    m = Measured(tick=9, workload=workload, values=values, variance=np.ones(4))
    old = Measured(tick=4, workload=workload, values=workload.count(then).astype(np.float64), variance=np.ones(4))
    earlier = Earlier(old, np.full(4, 0.5))
    aim = aims(m, then=earlier)
    assert aim.rows == 2000
    # Of 1,000 new events 800 more than in proportion: drawn back a little, as so much is hardly ever real.
    assert np.allclose(aim.margins[0], [1800, 200], atol=30)
    model = fit(m, seed=0, then=earlier)
    assert np.abs(table_of(model, [0]) - [1800, 200]).max() < 40
    table = table_of(model, [0, 1])
    # The old table held 240 events more in each of these cells than independent columns would.
    assert table[1, 1] > 60


def test_rare_codes_do_not_follow_the_noise_of_a_column_that_changes() -> None:
    expected, change, rng = (
        np.array([27_000.0, 3_000.0, *[30.0] * 4]),
        np.array([500.0, *[0.0] * 5]),
        np.random.default_rng(0),
    )
    off = np.zeros((2, 6))
    for _ in range(400):
        gap = change + rng.normal(0, 140, 6)
        for k, known in enumerate((None, expected)):
            off[k] += (standing_out(gap, 140.0**2, expected=known) - change) ** 2 / 400
    assert off[1, 2:].mean() < 0.5 * off[0, 2:].mean()
    assert off[1, 0] < off[0, 0]
    # What noise cannot be is followed, also where nothing was expected and nothing else moves.
    sudden = np.zeros(100)
    sudden[7] = 1500.0
    assert standing_out(sudden, 140.0**2, expected=np.where(sudden > 0, 0.0, 1000.0))[7] > 1200


def test_what_is_not_sure_is_followed_by_no_more_than_a_bound() -> None:
    gap, expected = 300.0 * np.array([1.0, -1, 1, -1]), np.full(4, 1e6)
    bounded, free = (standing_out(gap, 100.0**2, most, expected) for most in (10.0**2, math.inf))
    assert np.sum(free**2) > 200**2
    assert np.sum(bounded**2) <= 10**2


@pytest.mark.parametrize("signed", [False, True])
def test_codes_change_places_while_no_row_comes_only_where_rows_take_away(signed: bool) -> None:
    workload = Workload.all_up_to(1, sizes=(4,))
    counts, change = np.array([5000.0, 4000, 3000, 2000]), 300.0 * np.array([1.0, -1, 1, -1])
    then, now = (
        Measured(tick=t, workload=workload, values=np.array([14_000.0, *c]), variance=np.array([1.0, 100.0**2]))
        for t, c in ((100_000, counts), (100_001, counts + change))
    )
    margins = aims(now, then=Earlier(then, np.zeros(2), signed=signed)).margins[0]
    assert (np.abs(margins - counts).sum() > 400) == signed
    assert (np.abs(margins - counts).sum() < 40) == (not signed)


def test_where_rows_become_fewer_nothing_is_expected_of_new_ones() -> None:
    workload = Workload.all_up_to(1, sizes=(3,))
    first, last, now = (
        Measured(tick=t, workload=workload, values=np.array([sum(c), *c]), variance=np.array([1.0, noise]))
        for t, c, noise in ((9, [800.0, 150, 50], 1.0), (19, [820.0, 150, 230], 1.0), (20, [615.0, 112, 173], 1e4))
    )
    found = [aims(now, then=Earlier(last, np.zeros(2), True, before)).margins[0] for before in (None, first)]
    assert found[0].tolist() == found[1].tolist()


@pytest.mark.parametrize("steady", [False, True])
def test_new_events_are_taken_to_be_as_those_between_the_last_refreshes(steady: bool) -> None:
    """So rows of a stream that drifts need not wait for what stands out of noise. Of a drift that ends news tell."""
    workload, off = Workload.all_up_to(1, sizes=(4,)), np.zeros((2, 20))
    counts = np.array([[8_000.0, 1_000, 500, 500], [8_100.0, 1_900, 500, 500], [8_160.0, 2_440, 500, 500]])
    counts[2] = counts[1] * 1.05 if steady else counts[2]
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(0, 1, (3, 4)) * np.array([[60], [60], [180]])
        first, last, now = (
            Measured(tick=t, workload=workload, values=np.array([c.sum(), *(c + n)]), variance=np.array([1.0, n_var]))
            for t, c, n, n_var in zip((79, 87, 91), counts, noise, (3600.0, 3600.0, 32400.0), strict=True)
        )
        for k, before in enumerate((None, first)):
            margins = aims(now, then=Earlier(last, np.zeros(2), before=before)).margins[0]
            off[k, seed] = np.abs(margins - counts[2])[:2].sum()
    least, most = (0.9, 2.5) if steady else (0.0, 0.75)
    assert least < off[1].mean() / off[0].mean() < most


def test_shares_between_two_measurements_are_those_of_what_came_between() -> None:
    workload = Workload.all_up_to(1, sizes=(3,))
    first = Measured(tick=4, workload=workload, values=np.array([1000.0, 800, 150, 50]), variance=np.ones(2))
    (found,) = lately(1200.0, [np.array([820.0, 150.0, 230.0])], [1.0], first)
    assert found == pytest.approx([0.1, 0.0, 0.9], abs=0.02)
    assert lately(1000.2, [np.array([800.0, 150.0, 50.0])], [1.0], first) == []
    # Noise says nothing: as among all.
    (even,) = lately(1200.0, [np.array([1000.0, 150.0, 50.0])], [1e4], first)
    assert even == pytest.approx([1000 / 1200, 150 / 1200, 50 / 1200], abs=1e-9)
    # Nor where the earlier measurement is the one that says nothing.
    wild = Measured(tick=4, workload=workload, values=first.values, variance=np.array([1.0, 1e4]))
    (even,) = lately(1200.0, [np.array([820.0, 150.0, 230.0])], [1.0], wild)
    assert even == pytest.approx(np.array([820, 150, 230]) / 1200, abs=1e-9)
    earlier = Earlier(first, np.ones(2), before=first).of_rows(10)
    assert earlier.before is not None
    assert (earlier.before.values[0], earlier.before.variance[0]) == (100, 0.01)


@pytest.mark.parametrize(("news", "expected"), [(0.0, 0.0), (5.0, 5.0), (10.0, 10.0), (-90.0, 0.0), (900.0, 10.0)])
def test_what_is_expected_lies_between_two_guesses(news: float, expected: float) -> None:
    found = towards(np.array([news, 3.0]), np.array([0.0, 3.0]), np.array([10.0, 3.0]), 1e-9)
    assert found == pytest.approx([expected, 3.0], abs=1e-6)
    assert towards(np.array([news, 3.0]), np.zeros(2), np.full(2, 10.0), 1e12) == pytest.approx([5.0, 5.0], abs=1e-3)


def test_a_table_of_two_by_two_is_not_followed_at_its_noise() -> None:
    workload = Workload.all_up_to(2, sizes=(2, 2))
    codes = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], [1000] * 4, axis=0).astype(np.int32)
    moved = []
    for seed in range(40):
        m = noisy(workload, codes, 60.0, seed)
        late = Measured(tick=1000, workload=workload, values=m.values, variance=m.variance)
        cells = aims(late, start=codes).cells[5:]
        moved.append(abs(cells @ [1, -1, -1, 1]) / 4)
    # The noise of one tick has a standard error of 30.
    assert np.mean(moved) < 2


@pytest.mark.parametrize("eased", [False, True])
def test_exact_tables_bar_no_way_where_weights_are_eased(eased: bool) -> None:
    """Two equal columns say which half a third one is in, and rows of half of its codes have the wrong one in both.

    The table of the two is exact. To change one of them first costs more there than the others, hardly known, gain.
    """
    workload, code = Workload.all_up_to(2, sizes=(8, 2, 2)), np.arange(1600, dtype=np.int32) % 8
    cells = workload.count(np.stack([code, code % 2, code % 2], axis=1)).astype(np.float64)
    wrong = np.where(code < 4, 1 - code % 2, code % 2)
    codes = np.stack([code, wrong, wrong], axis=1)
    variance = np.array([900.0 if marginal in {(0, 1), (0, 2)} else 1.0 for marginal in workload.marginals])
    aim = aimed(1600, tuple(cells[workload.slice_of((c,))] for c in range(3)), cells, variance)
    found = move(codes, workload.count(codes), aim, variance, workload, effort=SEARCH._replace(eased=eased), state=7)
    off = np.abs(found - cells)[workload.slice_of((0, 1))].sum() / 1600
    assert (off < 0.1) if eased else off == 1.0


def test_where_weights_are_eased_first_exact_tables_are_met_as_well_and_little_noise_is_followed() -> None:
    """Rows are right as they are. Pairs are hardly known; a row that leaves them for their noise is not moved back."""
    workload, exact, moved = Workload.all_up_to(2, sizes=SIZES), {False: 0.0, True: 0.0}, list[float]()
    variance = np.array([1.0 if len(marginal) < 2 else 400.0 for marginal in workload.marginals])
    single = np.repeat([len(marginal) == 1 for marginal in workload.marginals], workload.lengths)
    for seed, eased in itertools.product(range(4), (False, True)):
        true = related(2000, seed)
        noise = np.random.default_rng(seed).normal(size=workload.cells) * np.repeat(np.sqrt(variance), workload.lengths)
        aim = aimed(2000, tuple(np.full(s, 2000 / s) for s in SIZES), workload.count(true) + noise, variance)
        codes, effort = true.copy(), SEARCH._replace(eased=eased)
        found = move(codes, workload.count(codes), aim, variance, workload, effort=effort, state=7)
        exact[eased] += np.abs(found - aim.cells)[single].sum()
        moved += [float(np.mean(np.any(codes != true, axis=1)))] if eased else []
    assert exact[True] < 1.1 * exact[False]
    assert np.mean(moved) < 0.1
