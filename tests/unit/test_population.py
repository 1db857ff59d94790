"""The joint fit: recovers tables, lives on, and is a pure function of what it is given."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream.evaluate.metrics import table_errors
from synthstream.fit.population import Population, changed_share, fit
from synthstream.fit.targets import _simplex, targets
from synthstream.release import Measured
from synthstream.workload import CodeArray, IntArray, Workload

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
    aim = targets(wild)
    for q, (a, b) in enumerate(m for m in workload.marginals if len(m) == 2):
        cells = aim.cells[workload.offsets[5 + q] : workload.offsets[6 + q]]
        independent = np.outer(aim.margins[a], aim.margins[b]).reshape(-1) / aim.rows
        assert np.abs(cells - independent).sum() < 0.35 * aim.rows


def test_a_marginal_of_huge_variance_is_ignored() -> None:
    workload = Workload(sizes=(2,), marginals=((), (0,)))
    lying = Measured(tick=0, workload=workload, values=np.array([10_000.0, 70.0, 30.0]), variance=np.array([1e12, 1.0]))
    assert len(fit(lying, seed=0).codes) == 100


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


@pytest.mark.parametrize("total", [-50.0, 0.0, 0.4, 1.0, 7.0])
def test_few_or_no_rows(total: float) -> None:
    workload = Workload.all_up_to(2, sizes=(2, 1))
    values = np.array([total, total / 2, total / 2, total, total / 2, total / 2])
    m = Measured(tick=0, workload=workload, values=values, variance=np.ones(4))
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
    again = fit(m, start=model, seed=2)
    for found in (model, again):
        assert len(found.codes) == targets(m).rows
        assert np.all(found.codes < np.array(sizes))


def test_the_table_of_a_model_counts_its_rows() -> None:
    workload = Workload.all_up_to(1, sizes=SIZES)
    codes = correlated(50).astype(np.uint8)
    table = Population(workload=workload, codes=codes).table([0, 3])
    assert table.shape == (3, 5)
    assert table[1, 2] == np.sum((codes[:, 0] == 1) & (codes[:, 3] == 2))


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.floats(0.1, 500))
def test_the_projection_is_the_nearest_point(values: list[float], total: float) -> None:
    point = np.array(values)
    nearest = _simplex(point, total)
    assert nearest.min() >= 0
    assert nearest.sum() == pytest.approx(total)
    other = np.random.default_rng(0).dirichlet(np.ones(len(values))) * total
    assert np.sum((point - nearest) ** 2) <= np.sum((point - other) ** 2) + 1e-6
