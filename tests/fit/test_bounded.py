"""Rows that stand for several events each: no more of them than allowed, totals exact, errors hardly larger."""

from __future__ import annotations

import numpy as np
import pytest

from synthstream.fit.aims import Earlier
from synthstream.fit.population import Population, fit
from synthstream.measured import Measured
from synthstream.workload import CodeArray, Workload
from tests.support.models import table_of

WORKLOAD = Workload.all_up_to(2, sizes=(3, 4, 5))


def rows(n: int) -> CodeArray:
    rng = np.random.default_rng(0)
    first = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    return np.stack([first, np.where(rng.random(n) < 0.8, first, 3), rng.integers(0, 5, n)], axis=1).astype(np.int32)


def measured(n: int, sigma: float = 20.0, tick: int = 0) -> Measured:
    values = WORKLOAD.count(rows(n)) + np.random.default_rng(n).normal(0, sigma, WORKLOAD.cells)
    variance = np.full(len(WORKLOAD.marginals), sigma**2)
    return Measured(tick=tick, workload=WORKLOAD, values=values, variance=variance)


def error(found: Population, n: int) -> float:
    return float(np.abs(found.counts(WORKLOAD) - WORKLOAD.count(rows(n))).sum() / n)


@pytest.mark.parametrize("n", [9_990, 10_300, 57_123])
def test_no_more_rows_than_allowed_stand_for_all_events(n: int) -> None:
    known = measured(n)
    free, bounded = (fit(known, seed=1, most=most) for most in (None, 10_000))
    assert len(bounded.codes) <= 10_000
    assert abs(bounded.number - free.number) <= 1  # one is rounded before, one after it is made smaller
    assert int(bounded.counts(WORKLOAD)[0]) == bounded.number
    assert (bounded.weights is None) == (n < 10_000)
    assert error(bounded, n) < 1.1 * error(free, n) + 0.01
    if bounded.weights is not None:
        assert np.ptp(bounded.weights) <= 1


def test_rows_live_on_when_they_begin_to_stand_for_more() -> None:
    small, large = measured(9_900), measured(10_500, tick=1)
    before = fit(small, seed=1, most=10_000)
    after = fit(large, start=before, seed=2, most=10_000)
    assert before.weights is None
    assert after.weights is not None
    assert len(after.codes) == 5_250
    assert error(after, 10_500) < 0.1
    kept = {row.tobytes() for row in before.codes}
    assert np.mean([row.tobytes() in kept for row in after.codes]) > 0.9


def test_what_was_measured_earlier_is_counted_in_rows_too() -> None:
    small, large = measured(50_000), measured(55_000, tick=1)
    start = fit(small, seed=1, most=10_000)
    shared = np.full(len(WORKLOAD.marginals), 100.0)
    found = fit(large, start=start, seed=2, memory=0.0, fresh=False, then=Earlier(small, shared), most=10_000)
    assert abs(found.number - 55_000) < 200
    assert error(found, 55_000) < 0.1


def test_counts_of_a_column_are_in_events() -> None:
    found = Population.of(WORKLOAD, rows(4), events=11)
    assert found.weights is not None
    assert sorted(found.weights.tolist()) == [2, 3, 3, 3]
    assert table_of(found, [0]).sum() == found.number == 11
    assert found.arrays().keys() == {"codes", "weights"}
