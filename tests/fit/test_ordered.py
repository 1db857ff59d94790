"""Columns whose codes have an order: it is found, used where it helps, and left alone where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from synthstream.constraints import Grids, Group
from synthstream.fit import aims as aims_module
from synthstream.fit import beyond
from synthstream.fit.aims import Earlier, aims
from synthstream.fit.ordered import Basis, Shrunk, Table, _along, _risk, _spectrum, evened, in_order, shrunk
from synthstream.fit.population import fit
from synthstream.fit.rare import within
from synthstream.measured import Measured
from synthstream.workload import CodeArray, FloatArray, Workload

SIZES = (60, 4, 3, 2)
NOISE = 40.0


def people(seed: int = 0) -> CodeArray:
    """An age, and three columns that change slowly with it."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.gamma(6, 5, 20_000), 0, 59).astype(np.int64)
    level = np.clip((age + rng.normal(0, 8, age.size)) // 15, 0, 3).astype(np.int64)
    state = (rng.random(age.size) * 60 < age).astype(np.int64) + (rng.random(age.size) < 0.2)
    return np.stack([age, level, state, rng.random(age.size) < age / 90], axis=1).astype(np.int32)


def shuffled(codes: CodeArray) -> CodeArray:
    """The same with the codes of the first column in no order."""
    return np.column_stack([np.random.default_rng(3).permutation(SIZES[0])[codes[:, 0]], codes[:, 1:]]).astype(np.int32)


def noisy(codes: CodeArray, seed: int = 0) -> Measured:
    workload = Workload.all_up_to(2, sizes=SIZES)
    values = workload.count(codes) + np.random.default_rng(seed).normal(0, NOISE, workload.cells)
    variance = np.full(len(workload.marginals), NOISE**2)
    return Measured(tick=0, workload=workload, values=values, variance=variance)


def distance(cells: FloatArray, codes: CodeArray) -> float:
    """Of the three tables of the first column and another one."""
    workload = Workload.all_up_to(2, sizes=SIZES)
    parts = [workload.slice_of((0, c)) for c in (1, 2, 3)]
    return float(sum(np.abs(cells - workload.count(codes))[part].sum() for part in parts))


@pytest.fixture
def unemptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets of cells that hold hardly anybody are estimates, too: see test_empty."""
    monkeypatch.setattr(aims_module, "emptied", lambda mean, *_: mean)


@pytest.mark.usefixtures("unemptied")
def test_tables_of_an_ordered_column_are_known_better(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = people()
    measured = noisy(codes)
    along = distance(aims(measured).cells, codes)
    aims_module._KEPT.clear()
    monkeypatch.setattr(beyond, "in_order", lambda *_: {})
    assert along < 0.75 * distance(aims(measured).cells, codes)


@pytest.mark.usefixtures("unemptied")
def test_an_order_that_is_not_there_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = noisy(shuffled(people()))
    looked = aims(measured)
    aims_module._KEPT.clear()
    monkeypatch.setattr(beyond, "in_order", lambda *_: {})
    assert np.array_equal(aims(measured).cells, looked.cells)


def test_counts_are_drawn_to_their_neighbours() -> None:
    rng = np.random.default_rng(0)
    true = 300 * np.exp(-(((np.arange(80) - 30) / 15) ** 2))
    counts = true + rng.normal(0, 30, 80)
    found, left = evened(counts, 900.0)
    assert np.abs(found - true).mean() < 0.6 * np.abs(counts - true).mean()
    assert left == pytest.approx(np.mean((found - true) ** 2), rel=0.5)
    assert found.sum() == pytest.approx(counts.sum(), rel=0.01)


def test_another_processor_evens_counts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last bits of eigenvalues differ between processors: rows that are made again there must not."""
    counts = 300 * np.exp(-(((np.arange(80) - 30) / 15) ** 2)) + np.random.default_rng(0).normal(0, 30, 80)
    here, usual = evened(counts, 900.0), _spectrum

    def elsewhere(size: int, length: float) -> tuple[FloatArray, FloatArray]:
        values, vectors = usual(size, length)
        return values * (1 + 1e-13), vectors * (1 - 1e-13)

    monkeypatch.setattr("synthstream.fit.ordered._spectrum", elsewhere)
    found, left = evened(counts, 900.0)
    assert (found.tolist(), left) == (here[0].tolist(), here[1])


@pytest.mark.parametrize("size", [7, 80, 513])
def test_counts_without_an_order_stay(size: int) -> None:
    counts = np.random.default_rng(0).permutation(np.geomspace(1000, 1, size))
    found, left = evened(counts, 100.0)
    assert (found.tolist(), left) == (counts.tolist(), 100.0)


def test_counts_that_are_alike_are_drawn_to_their_mean() -> None:
    """Countries of a panel, hours of a sensor: no order, and nearly as many of each."""
    rng = np.random.default_rng(0)
    true = 300 + rng.normal(0, 20, 60)
    counts = true + rng.normal(0, 100, 60)
    found, left = evened(counts, 10_000.0)
    assert np.abs(found - true).mean() < 0.4 * np.abs(counts - true).mean()
    assert left < 0.3 * 10_000
    assert found.sum() == pytest.approx(counts.sum(), rel=0.01)


@pytest.mark.parametrize("true", [np.repeat([300.0, 0.0], 30), np.repeat([2_000.0, 20.0], [5, 55]), np.full(60, 30.0)])
def test_counts_of_lists_that_may_be_partly_empty_stay(true: FloatArray) -> None:
    rng = np.random.default_rng(0)
    counts = rng.permutation(true) + rng.normal(0, 100, 60)
    found, left = evened(counts, 10_000.0)
    assert (found.tolist(), left) == (counts.tolist(), 10_000.0)


def test_exact_counts_stay() -> None:
    counts = 300 + 100 * np.sin(np.arange(80) / 10)
    found, left = evened(counts, 0.0)
    assert (found.tolist(), left) == (counts.tolist(), 0.0)


def test_codes_that_their_neighbours_tell_of_are_not_taken_for_empty_ones() -> None:
    """Ages beside a list that is mostly empty: noise hides most of them, one by one."""
    rng, workload = np.random.default_rng(0), Workload.all_up_to(1, sizes=(80, 400))
    ages = 10_000 * np.exp(-((np.arange(80) - 20.0) ** 2) / 800)
    true = np.array([10_000, *(10_000 * ages / ages.sum()), *np.repeat([2_500.0, 0], [4, 396])])
    values = true + rng.normal(0, [1, *[40] * 480])
    found = aims(Measured(tick=0, workload=workload, values=values, variance=np.array([1.0, 1600, 1600])))
    counts, _ = evened(values[1:81], 1600.0)
    off = [np.abs(one - true[1:81]).sum() for one in (found.margins[0], counts)]
    assert off[0] < 1.1 * off[1]


def centred(table: FloatArray) -> FloatArray:
    return np.asarray(table - table.mean(0) - table.mean(1)[:, None] + table.mean())


@pytest.mark.parametrize("ordered", [False, True])
def test_the_risk_is_that_of_the_squares(ordered: bool) -> None:
    """Stein's estimate, less the noise of all cells, is on average the distance from the truth."""
    rng, rows, columns = np.random.default_rng(0), 24, 30
    scale, flat = np.full(rows, 1.0), Basis(np.full(columns, 1.0))
    own = _along(scale, 4.0) if ordered else Basis(scale)
    true = centred(10 * np.sin(np.arange(rows) / 4)[:, None] * rng.normal(0, 1, columns))
    noise = 100 * (1 - 1 / rows) * (1 - 1 / columns)
    independent = np.full(true.shape, 1000.0)
    estimated, real = [], []
    for _ in range(400):
        seen = true + centred(rng.normal(0, 10, true.shape))
        one = shrunk(seen, [own, flat], noise, 1.0)
        estimated.append(noise * (_risk(one, Table((0, 1), seen, independent, noise)) - true.size))
        real.append(np.sum((one.mean - true) ** 2))
    # What is left is that the factor of the prior is estimated, too.
    assert np.mean(estimated) == pytest.approx(np.mean(real), rel=0.15)


def test_a_table_to_which_an_order_does_not_matter_does_without() -> None:
    """Codes in order have like values of most columns; of one, each has a value of its own."""
    rng, size = np.random.default_rng(0), 40
    truths = [np.sin(np.arange(size) / 8 + turn)[:, None] * np.linspace(-60, 60, 5) for turn in range(6)]
    truths.append(900 * (np.eye(size)[rng.permutation(size)] - 1 / size))
    tables = {}
    for q, truth in enumerate(truths):
        seen = centred(truth) + centred(rng.normal(0, 30, truth.shape))
        freedom = (1 - 1 / truth.shape[0]) * (1 - 1 / truth.shape[1])
        tables[q] = Table((0, q + 1), seen, np.full(truth.shape, 40_000 / truth.size), 900 * freedom)
    sizes = [size, *(truth.shape[1] for truth in truths)]
    scales = [np.full(n, 1 / n) for n in sizes]
    bases = [Basis(scale) for scale in scales]
    found = in_order(tables, bases, scales, 1.0)
    assert set(found) >= set(range(7))
    alone = {q: shrunk(tables[q].association, [bases[0], bases[q + 1]], tables[q].noise, 1.0).mean for q in tables}
    assert np.array_equal(found[6].mean, alone[6])
    away = [[np.abs(one - centred(truths[q])).sum() for one in (found[q].mean, alone[q])] for q in range(6)]
    assert sum(a for a, _ in away) < 0.8 * sum(b for _, b in away)


@pytest.mark.parametrize("fresh", [None, True], ids=["at every tick", "at refreshes"])
def test_order_is_looked_for_however_often_tables_are_measured(
    monkeypatch: pytest.MonkeyPatch, fresh: bool | None
) -> None:
    codes = people()
    measured, workload, off = noisy(codes), Workload.all_up_to(2, sizes=SIZES), list[float]()
    for _ in range(2):
        off.append(distance(fit(measured, seed=0, fresh=fresh).counts(workload).astype(np.float64), codes))
        aims_module._KEPT.clear()
        monkeypatch.setattr(beyond, "in_order", lambda *_: {})
    assert off[0] < 0.9 * off[1]


def test_grids_of_a_place_have_no_order_but_other_columns_beside_them_do(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, sizes = np.random.default_rng(1), (4, 64, 2, 12)
    cell = np.clip(rng.normal(30, 6, 8000), 0, 63).astype(np.int64)
    age = rng.integers(0, 12, 8000)
    rows = np.column_stack([cell // 16, cell, rng.random(8000) < (cell + age) / 80, age]).astype(np.int32)
    marginals = ((), (0,), (1,), (2,), (3,), (0, 2), (1, 2), (2, 3))
    workload = Workload(sizes=sizes, marginals=marginals)
    values = workload.count(rows) + rng.normal(0, NOISE, workload.cells)
    measured = Measured(tick=0, workload=workload, values=values, variance=np.full(8, NOISE**2))
    group = Group.of((0, 1), np.array([[k // 16, k] for k in range(64)]), nests=[Grids((0, 1), (2, 6), 2)])
    looked: list[set[Any]] = []

    def evened_here(counts: FloatArray, *args: Any) -> tuple[FloatArray, float]:
        looked[-1].add(len(counts))
        return evened(counts, *args)

    def in_order_here(tables: Mapping[int, Table], *args: Any) -> dict[int, Shrunk]:
        looked[-1].update(one.columns for one in tables.values())
        return in_order(tables, *args)

    monkeypatch.setattr("synthstream.fit.joints.evened", evened_here)
    monkeypatch.setattr("synthstream.fit.beyond.in_order", in_order_here)
    for groups in ([group], []):
        looked.append(set())
        assert fit(measured, seed=0, fresh=True, groups=groups).number > 7000
    assert looked == [{2, 12, (2, 3)}, {*sizes, (0, 2), (1, 2), (2, 3)}]


@pytest.mark.parametrize("taken", [1.0, 1e-4], ids=["running counts", "epochs"])
def test_rows_follow_counts_that_are_alike_for_less_than_their_measured_noise(taken: float) -> None:
    rng, workload = np.random.default_rng(0), Workload.all_up_to(1, sizes=(60, 8))
    true = np.array([18_000.0, *np.full(60, 300.0), *np.geomspace(8_000, 100, 8)])
    measured = Measured(
        tick=0, workload=workload, values=true + rng.normal(0, 100, true.size), variance=np.full(3, taken * 10_000.0)
    )
    errors = aims(measured, taken=taken).errors
    assert errors[2] == pytest.approx(taken * 10_000)
    assert errors[1] < 0.3 * errors[2]


def test_codes_that_no_row_may_have_leave_what_was_counted_to_the_others() -> None:
    allowed = np.array([0, 1, 3])
    found, noise = evened(np.array([10.0, 20.0, 7.0, -1.0]), 4.0, allowed)
    assert found.tolist() == pytest.approx([10 + 7 / 3, 20 + 7 / 3, 0, -1 + 7 / 3])
    assert noise == 4
    assert within({1: allowed}, [np.ones(2), np.array([2.0, 1.0, 1.0, 1.0])], 8)[1].tolist() == [4, 2, 0, 2]


def test_no_row_is_aimed_at_codes_that_none_may_have() -> None:
    """At a refresh, and after it, when more codes are allowed and the others have noise of their own."""
    workload = Workload.all_up_to(2, sizes=(6, 2))
    exact = workload.count(np.repeat([[0, 0], [1, 1], [5, 0]], 300, axis=0).astype(np.int32)).astype(float)
    noise = 30 * np.abs(np.random.default_rng(0).standard_normal(workload.cells))
    then = Measured(tick=3, workload=workload, values=exact + noise, variance=np.full(len(workload.marginals), 900.0))
    early, late = (Group.of([0], np.array([[code] for code in codes])) for codes in ((0, 1, 5), (0, 1, 2, 5)))
    now = replace(then, tick=4, values=1.25 * then.values)
    now.values[workload.slice_of((0,))][3] += 200
    earlier = Earlier(then, np.zeros(len(workload.marginals)), groups=(early,))
    for found, none in ((aims(then, groups=[early]), [2, 3, 4]), (aims(now, groups=[late], then=earlier), [3, 4])):
        assert not found.margins[0][none].any()
        assert found.margins[0].sum() == pytest.approx(found.rows)
