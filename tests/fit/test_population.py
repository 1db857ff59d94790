"""The joint fit: recovers tables, lives on, and is a pure function of what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.metrics import table_errors
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream.constraints import Grids, Group
from synthstream.fit import population
from synthstream.fit.aims import aims
from synthstream.fit.moves import Effort, move
from synthstream.fit.population import Population, _resize, changed_share, fit
from synthstream.fit.targets import MEMORY, blend, past_of, simplex
from synthstream.measured import Measured
from synthstream.workload import CodeArray, IntArray, Workload
from tests.support.models import table_of

SIZES = (3, 4, 2, 5)


def correlated(n: int, seed: int = 0) -> CodeArray:
    rng = np.random.default_rng(seed)
    first = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    second = np.where(rng.random(n) < 0.8, first, rng.integers(0, 4, n))
    third = (first + second) % 2
    return np.stack([first, second, third, rng.integers(0, 5, n)], axis=1).astype(np.int32)


def measured(workload: Workload, counts: IntArray, sigma: float = 0.01, seed: int = 1) -> Measured:
    noise = np.random.default_rng(seed).normal(0, sigma, counts.size)
    variance = np.full(len(workload.marginals), sigma**2)
    return Measured(tick=0, workload=workload, values=counts + noise, variance=variance)


def error(model: Population, counts: IntArray) -> float:
    workload = model.workload
    found = workload.count(model.codes.astype(np.int32))
    return table_errors(workload, true=counts, synthetic=found, events=max(1, len(model.codes))).avg_rel_l1


@pytest.mark.parametrize("order", [1, 2, 3])
def test_nearly_exact_tables_are_recovered(order: int) -> None:
    workload = Workload.all_up_to(order, sizes=SIZES)
    counts = workload.count(correlated(3000))
    model = fit(measured(workload, counts), seed=1)
    assert len(model.codes) == 3000
    for _ in range(3):
        model = fit(measured(workload, counts), start=model, seed=2)
    assert error(model, counts) < 0.02
    independent = fit(
        measured(Workload.all_up_to(1, sizes=SIZES), Workload.all_up_to(1, sizes=SIZES).count(correlated(3000))), seed=1
    )
    far = workload.count(independent.codes.astype(np.int32))
    if order > 1:
        assert np.abs(far - counts).sum() > 10 * error(model, counts)


def test_counts_without_noise_are_recovered() -> None:
    workload = Workload.all_up_to(2, sizes=SIZES)
    counts = workload.count(correlated(3000))
    exact = Measured(tick=0, workload=workload, values=counts.astype(float), variance=np.zeros(len(workload.marginals)))
    assert np.allclose(aims(exact).cells, counts, atol=0.1)
    model = fit(exact, seed=1)
    for seed in range(2, 6):
        model = fit(exact, start=model, seed=seed)
    assert len(model.codes) == 3000
    assert error(model, counts) < 0.01


def test_a_planted_association_is_recovered_out_of_noise() -> None:
    workload = Workload.all_up_to(2, sizes=SIZES)
    data = correlated(20_000)
    model = fit(measured(workload, workload.count(data), sigma=100.0), seed=1)
    agree = float(np.mean(model.codes[:, 0] == model.codes[:, 1]))
    alone = float(np.sum(np.bincount(data[:, 0], minlength=4) * np.bincount(data[:, 1], minlength=4)) / 20_000**2)
    assert agree == pytest.approx(float(np.mean(data[:, 0] == data[:, 1])), abs=0.03)
    assert agree > alone + 0.2


def test_rows_are_dropped_at_random_and_copies_added() -> None:
    before = np.arange(1000, dtype=np.int32)[:, None]
    cumulative, places = np.linspace(0.001, 1, 1000), np.array([0, 1000])
    fewer, more = np.empty((400, 1), dtype=np.int32), np.empty((1500, 1), dtype=np.int32)
    _resize(before, fewer, cumulative, places, np.zeros(1), np.uint64(1))
    assert len(np.unique(fewer)) == 400
    assert 400 < fewer.mean() < 600
    _resize(before[:800], more, cumulative, places, np.zeros(1), np.uint64(1))
    assert np.array_equal(more[:800], before[:800])
    assert more.max() < 800
    assert 300 < more[800:].mean() < 500


def test_copies_draw_a_column_anew_as_often_as_it_is_alone() -> None:
    before = np.zeros((1000, 3), dtype=np.int32)
    codes = np.empty((5000, 3), dtype=np.int32)
    cumulative, places = np.array([0.5, 1.0] * 3), np.array([0, 2, 4, 6])
    _resize(before, codes, cumulative, places, np.array([0.0, 0.5, 1.0]), np.uint64(1))
    assert not codes[:1000].any()
    assert codes[1000:].mean(axis=0) == pytest.approx([0.0, 0.25, 0.5], abs=0.03)


@pytest.mark.parametrize(("fresh", "nested", "copied"), [(True, False, False), (None, False, True), (True, True, True)])
def test_what_goes_together_by_chance_is_not_copied(
    fresh: bool | None, nested: bool, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the tables the first two columns agree; in the rows before all three did. Rows with a place are copied."""
    monkeypatch.setattr("synthstream.fit.population.move", lambda *_, **__: None)
    workload = Workload.all_up_to(2, sizes=(2, 2, 2))
    first, third = np.random.default_rng(0).integers(0, 2, (2, 20_000))
    table = workload.count(np.stack([first, first, third], axis=1).astype(np.int32))
    start = Population.of(workload, np.repeat(first[:12_000, None], 3, axis=1).astype(np.int32))
    groups = [Group.of((0, 1), np.array([[0, 0], [1, 1]]), nests=[Grids((0, 1), (1, 1), 1)])] if nested else []
    known = measured(workload, table, sigma=300.0)
    rows = fit(known, start=start, seed=1, fresh=fresh, groups=groups).codes[12_000:]
    assert np.mean(rows[:, 0] == rows[:, 1]) > 0.9
    assert np.mean(rows[:, 0] == rows[:, 2]) == pytest.approx(1.0 if copied else 0.5, abs=0.1)


def test_growing_keeps_what_the_rows_know_beyond_the_tables() -> None:
    workload = Workload.all_up_to(1, sizes=(2, 2))
    twins = np.repeat([[0, 0], [1, 1]], 500, axis=0).astype(np.uint8)
    values = np.array([1800.0, 900, 900, 900, 900])
    m = Measured(tick=3, workload=workload, values=values, variance=np.full(3, 0.1))
    grown = fit(m, start=Population(workload=workload, codes=twins), seed=0)
    assert np.mean(grown.codes[:, 0] == grown.codes[:, 1]) > 0.9


def test_what_is_new_is_not_measured_by_what_is_remembered() -> None:
    workload = Workload.all_up_to(1, sizes=SIZES)
    m = measured(workload, workload.count(correlated(2000)))
    late = Measured(tick=10_000, workload=workload, values=m.values, variance=m.variance)
    assert past_of(late, correlated(2000), 2000, MEMORY).pull < 0.01
    assert past_of(late, correlated(1500), 2000, MEMORY).pull == pytest.approx(0.25, abs=0.01)
    assert past_of(late, correlated(1500), 2000, np.inf).pull == 0  # a window's, of which there are fewer


def test_remembering_lowers_noise_that_is_fresh_at_each_tick() -> None:
    workload = Workload.all_up_to(2, sizes=SIZES)
    counts = workload.count(correlated(5000))
    alone, living = [], None
    for tick in range(60):
        m = measured(workload, counts, sigma=80.0, seed=tick)
        living = fit(Measured(tick=tick, workload=workload, values=m.values, variance=m.variance), start=living, seed=1)
        if tick >= 50:
            alone.append(error(fit(m, seed=1), counts))
    assert living is not None
    assert error(living, counts) < 0.75 * np.mean(alone)


def test_a_real_change_is_followed_at_once() -> None:
    workload = Workload.all_up_to(2, sizes=SIZES)
    old, new = correlated(10_000), correlated(10_000)
    new[:, 0] = 2 - new[:, 0]
    start = fit(measured(workload, workload.count(old), sigma=5.0), seed=0)
    m = measured(workload, workload.count(new), sigma=5.0)
    late = Measured(tick=1000, workload=workload, values=m.values, variance=m.variance)
    aim = aims(late, start=start.codes.astype(np.int32))
    left = np.abs(aim.cells - workload.count(new)).sum()
    assert left < 0.05 * np.abs(workload.count(old) - workload.count(new)).sum()


@given(
    st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)), min_size=1, max_size=10),
    st.floats(1e-6, 1e6),
    st.floats(0.01, 1),
    st.integers(0, 9),
)
def test_a_blend_lies_between(pairs: list[tuple[float, float]], noise: float, pull: float, free: int) -> None:
    old, new = np.array(pairs).T
    found = blend(old, new, noise, pull, free)
    assert np.all(np.abs(found - old) >= pull * np.abs(new - old) - 1e-6)
    assert np.all((found - old) * (new - found) >= -1e-6)


def test_a_start_with_other_columns_is_refused() -> None:
    m = measured(Workload.all_up_to(1, sizes=(2, 3)), np.ones(6, dtype=np.int64))
    other = Population(workload=Workload.all_up_to(1, sizes=(2, 4)), codes=np.zeros((3, 2), dtype=np.uint8))
    with pytest.raises(ValueError, match="sizes"):
        fit(m, start=other, seed=0)


def test_the_codes_take_the_smallest_type() -> None:
    for size, kind in ((2, np.uint8), (256, np.uint8), (257, np.uint16)):
        workload = Workload(sizes=(size,), marginals=((),))
        model = fit(Measured(tick=0, workload=workload, values=np.array([50.0]), variance=np.ones(1)), seed=2)
        assert model.codes.dtype == kind
        assert model.codes.shape == (50, 1)


def test_more_noise_is_shrunk_to_independence() -> None:
    workload = Workload.all_up_to(2, sizes=SIZES)
    counts = workload.count(correlated(2000))
    wild = Measured(
        tick=0,
        workload=workload,
        values=counts
        + np.random.default_rng(3).normal(0, 1, counts.size)
        * np.repeat([1.0, 1, 1, 1, 1, *[5000.0] * 6], workload.lengths),
        variance=np.array([1.0] * 5 + [5000.0**2] * 6),
    )
    rows = fit(wild, seed=0).counts(workload)
    for a, b in (m for m in workload.marginals if len(m) == 2):
        one, other, both = (rows[workload.slice_of(m)] for m in ((a,), (b,), (a, b)))
        assert np.abs(both - np.outer(one, other).reshape(-1) / rows[0]).sum() < 0.1 * rows[0]


def test_a_marginal_of_huge_variance_is_ignored() -> None:
    workload = Workload(sizes=(2,), marginals=((), (0,)))
    lying = Measured(tick=0, workload=workload, values=np.array([10_000.0, 70.0, 30.0]), variance=np.array([1e12, 1.0]))
    assert len(fit(lying, seed=0).codes) == 100


def test_a_table_of_huge_variance_is_ignored() -> None:
    workload = Workload.all_up_to(2, sizes=(2, 2))
    values = np.array([1000.0, 700, 300, 600, 400, 1e5, -1e5, -1e5, 1e5])
    lying = Measured(tick=0, workload=workload, values=values, variance=np.array([1.0, 1.0, 1.0, 1e12]))
    model = fit(lying, seed=0)
    again = fit(lying, start=model, seed=1)
    for found in (model, again):
        assert np.abs(table_of(found, [0]) - [700, 300]).max() <= 2
        assert np.abs(table_of(found, [1]) - [600, 400]).max() <= 2
        assert np.abs(table_of(found, [0, 1]) - [[420, 280], [180, 120]]).max() <= 40


def test_the_same_inputs_give_the_same_rows() -> None:
    workload = Workload.all_up_to(2, sizes=SIZES)
    m = measured(workload, workload.count(correlated(500)), sigma=5.0)
    first = fit(m, seed=4)
    assert np.array_equal(first.codes, fit(m, seed=4).codes)
    assert not np.array_equal(first.codes, fit(m, seed=5).codes)
    before = first.codes.copy()
    second = fit(m, start=first, seed=6)
    assert np.array_equal(first.codes, before)
    assert np.array_equal(second.codes, fit(m, start=Population(workload=workload, codes=before), seed=6).codes)


def test_rows_live_on() -> None:
    workload = Workload.all_up_to(2, sizes=SIZES)
    data = correlated(21_000)
    model = fit(measured(workload, workload.count(data[:20_000])), seed=0)
    later = fit(measured(workload, workload.count(data)), start=model, seed=1)
    assert len(later.codes) == 21_000
    assert changed_share(model.codes, later.codes) < 0.3
    assert changed_share(model.codes, model.codes[::-1]) == 0.0
    assert changed_share(model.codes, model.codes[:10_000]) == pytest.approx(0.5)


def effort_of(monkeypatch: pytest.MonkeyPatch, m: Measured, start: Population, **more: Any) -> Effort:
    """How far a release may go."""
    seen = list[Effort]()

    def moved(*args: Any, effort: Effort, **named: Any) -> IntArray:
        seen.append(effort)
        return move(*args, effort=effort, **named)

    monkeypatch.setattr(population, "move", moved)
    fit(m, start=start, seed=1, **more)
    (found,) = seen
    return found


def blocks(monkeypatch: pytest.MonkeyPatch, m: Measured, start: Population, **more: Any) -> int:
    """Blocks of rows that a release may visit."""
    return effort_of(monkeypatch, m, start, **more).blocks


def test_rows_move_for_less_at_a_refresh_where_associations_are_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not between refreshes, and not where columns move together."""
    workload = Workload.all_up_to(2, sizes=SIZES[:3])
    counts = workload.count(correlated(4_000)[:, :3])
    model = fit(measured(workload, counts), seed=0, memory=0.0)

    def least(sigma: float, **more: Any) -> float:
        how = {"memory": 0.0, "fresh": True} | more
        found = effort_of(monkeypatch, measured(workload, counts, sigma), model, **how)
        return found.gain

    gains = [least(sigma) for sigma in (1.0, 200.0, 3_000.0)]
    assert gains[0] == 0.5 < gains[1] < gains[2] == 1.5
    assert least(1.0, fresh=False) == 1.5
    every = np.array(list(np.ndindex(*SIZES[:2])), dtype=np.int32)
    assert least(1.0, groups=[Group(columns=(0, 1), combinations=every)]) == 1.5


def test_rows_may_go_far_where_an_epochs_end_says_that_most_lie_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """With delta = 0, and of windows, which begin with rows of all events; their number is what it was."""
    workload, data = Workload.all_up_to(2, sizes=SIZES), correlated(4_000)
    model = fit(measured(workload, workload.count(data)), seed=0, memory=0.0)
    same = measured(workload, workload.count(data), sigma=1.0)
    data[:, 3] = np.where(np.arange(4_000) % 4 > 0, 2, data[:, 3])
    other = measured(workload, workload.count(data), sigma=1.0)
    assert blocks(monkeypatch, same, model, memory=0.0) == 1
    assert 9 < blocks(monkeypatch, other, model, memory=0.0) < 13  # three fifths of sixteen more
    assert 9 < blocks(monkeypatch, other, model, memory=np.inf) < 13
    assert blocks(monkeypatch, other, model, memory=MEMORY) == 1  # noise that is fresh at each tick says so too
    assert [blocks(monkeypatch, other, model, memory=0.0, fresh=fresh) for fresh in (False, True)] == [1, 8]


@pytest.mark.parametrize(("codes", "may"), [(64, True), (65, False)])
def test_fine_grids_do_not_tell_how_many_rows_lie_elsewhere(
    codes: int, may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, n = Workload.all_up_to(2, sizes=(codes, 2)), np.arange(4_000)
    rows = np.stack([n % 5, n % 2], axis=1).astype(np.int32)
    model = fit(measured(workload, workload.count(rows)), seed=0, memory=0.0)
    moved = measured(workload, workload.count(rows + np.array([10, 0], dtype=np.int32)))
    assert blocks(monkeypatch, moved, model, memory=0.0) == (17 if may else 1)


def test_rows_that_should_lie_elsewhere_get_there() -> None:
    """All columns change at once, as where another part of a table begins, and the number of rows hardly."""
    workload, n = Workload.all_up_to(2, sizes=(20, 20, 8)), np.arange(6_000)
    before = np.stack([n % 3, n % 3, n % 2], axis=1).astype(np.int32)
    after = np.stack([5 + n % 13, 5 + n % 13, 2 + n % 5], axis=1).astype(np.int32)
    model = fit(measured(workload, workload.count(before)), seed=0, memory=0.0)
    found = fit(measured(workload, workload.count(after)), start=model, seed=1, memory=0.0)
    assert error(found, workload.count(after)) <= 0.01


def test_rows_of_all_events_follow_a_window_that_has_other_values() -> None:
    """As months do, of which each window has others; a block of rows is a quarter of them."""
    workload, n = Workload.all_up_to(2, sizes=(12, 3)), np.arange(12_000)
    every, own = (np.stack([n % 12 // part, n % 3], axis=1).astype(np.int32) for part in (1, 6))
    start = fit(measured(workload, workload.count(every)), seed=0, memory=0.0)
    found = fit(measured(workload, workload.count(own), sigma=20.0), start=start, seed=1, memory=np.inf)
    assert error(found, workload.count(own)) <= 0.05  # with one block .6


@pytest.mark.parametrize("total", [-50.0, 0.0, 0.4, 1.0, 7.0])
def test_few_or_no_rows(total: float) -> None:
    workload = Workload.all_up_to(2, sizes=(2, 1))
    values = np.array([total, total / 2, total / 2, total, total / 2, total / 2])
    m = Measured(tick=0, workload=workload, values=values, variance=np.ones(4))  # the second column has one code
    start = Population(workload=workload, codes=np.zeros((5, 2), dtype=np.uint8))
    for model in (fit(m, seed=0), fit(m, start=start, seed=0)):
        assert model.codes.shape == (max(0, round(total)), 2)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_workload_and_any_noise(data: st.DataObject) -> None:
    sizes = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    every = Workload.all_up_to(len(sizes), sizes=sizes).marginals
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    workload = Workload(sizes=sizes, marginals=tuple(chosen))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    scale = data.draw(st.sampled_from([0.1, 10.0, 1e4]))
    m = Measured(
        tick=0,
        workload=workload,
        values=rng.normal(20, scale, workload.cells),
        variance=rng.uniform(0.1, 2, len(chosen)) * scale**2,
    )
    model = fit(m, seed=1)
    less = Measured(tick=5, workload=workload, values=m.values / 3, variance=m.variance)
    again = fit(m, start=model, seed=2)
    fewer = fit(less, start=again, seed=3)
    more = fit(m, start=fewer, seed=4)
    for found, of in ((model, m), (again, m), (fewer, less), (more, m)):
        sums = np.add.reduceat(of.values, workload.offsets[:-1])
        best = np.average(sums, weights=1 / (of.variance * workload.lengths))
        assert len(found.codes) == max(0, round(best))
        assert found.codes.shape[1] == len(sizes)
        assert np.all(found.codes < np.array(sizes))


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.floats(0.1, 500))
def test_the_projection_is_the_nearest_point(values: list[float], total: float) -> None:
    point = np.array(values)
    nearest = simplex(point, total)
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(total)
    other = np.random.default_rng(0).dirichlet(np.ones(len(values))) * total
    assert np.sum((point - nearest) ** 2) <= np.sum((point - other) ** 2) + 1e-6


@pytest.mark.parametrize("grown", [1.1, 0.8, 3.0])
def test_any_number_of_threads_gives_the_same_rows_which_know_their_counts(
    monkeypatch: pytest.MonkeyPatch, grown: float
) -> None:
    workload = Workload.all_up_to(2, sizes=(3, 4, 2, 5))
    rows = np.random.default_rng(0).integers(0, workload.sizes, (40_000, 4)).astype(np.int32)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr("synthstream.fit.population.THREADS", threads)
        last = Population(workload=workload, codes=np.zeros((0, 4), dtype=np.uint8))
        for tick, number in enumerate((10_000, round(10_000 * grown))):
            values = workload.count(rows[:number]) + np.random.default_rng(tick).normal(0, 30, workload.cells)
            variance = np.full(len(workload.marginals), 900.0)
            last = fit(Measured(tick=tick, workload=workload, values=values, variance=variance), start=last, seed=tick)
        assert last.known is not None
        assert np.array_equal(last.known, workload.count(last.codes.astype(np.int32)))
        found.append(last.codes.tobytes())
    assert found[0] == found[1]
    again = Population(workload=workload, codes=last.codes)  # as it comes from a file
    assert np.array_equal(again.rows(workload), last.rows(workload))


def test_rows_are_counted_in_any_number_of_threads() -> None:
    workload, rng = Workload.all_up_to(2, sizes=(2, 3)), np.random.default_rng(0)
    codes = rng.integers(0, workload.sizes, (20_001, 2)).astype(np.int32)
    weights = rng.choice([-1, 1], len(codes))
    one = workload.count(codes, weights)
    assert all(np.array_equal(workload.count(codes, weights, threads=threads), one) for threads in (2, 3, 99))
    codes[-1, 1] = 3
    with pytest.raises(ValueError, match="not from this workload"):
        workload.count(codes, threads=3)
