"""Whatever matrices, shares and times the kernel is handed: what it claims is what it does."""

from __future__ import annotations

import numpy as np
import pytest

from synthstream.errors import BudgetExceeded
from synthstream.fit.ahead import Ahead
from synthstream.kernel import counters
from synthstream.kernel.counters import kary
from synthstream.kernel.counters.dense import Dense
from synthstream.kernel.counters.kary import Kary
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.privacy import Budget
from synthstream.strategies.shares import EpochShares
from synthstream.strategies.times import EpochTimes, RefreshTimes
from synthstream.workload import FloatArray, Workload
from tests.support.gates import ExactGate

WORKLOAD = Workload.all_up_to(2, sizes=(2, 3, 2))
PURE, ZCDP = Budget(epsilon=1.0, delta=0.0), Budget(epsilon=1.0, delta=1e-9)
TICKS = 9


def other_matrix(weights: tuple[float, ...]) -> FloatArray:
    """Not the best one: C of entries between -1 and 1, lower-triangular."""
    found = np.tril(np.random.default_rng(3).uniform(-1, 1, (len(weights), len(weights))))
    np.fill_diagonal(found, 1)
    return found


def test_the_sensitivity_is_that_of_any_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters.dense, "of_least_variance", other_matrix)
    dense = Dense(weights=(1.0,) * TICKS, horizon=TICKS)
    for at in range(TICKS):
        state, moved = dense.init(1), 0.0
        for tick in range(TICKS):
            encoded = dense.encode(state, np.array([int(tick == at)]))
            state, _ = dense.decode(encoded.state, encoded.value)
            state["t"] = np.array(tick + 1)
            moved += float(encoded.value[0] / 2**dense.grid_bits) ** 2
        assert moved**0.5 <= dense.sensitivity()
    assert dense.sensitivity() > 1.2  # that of the best matrix is 1


def test_a_matrix_that_could_leave_64_bits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for factor in (1.5, np.nan):
        monkeypatch.setattr(counters.dense, "of_least_variance", lambda weights, by=factor: by * other_matrix(weights))
        with pytest.raises(ArithmeticError, match="leave 64 bits"):
            Dense(weights=(1.0,) * TICKS, horizon=TICKS).sensitivity()


@pytest.mark.parametrize("arity", [1, 2, 4, 6])
def test_an_arity_with_which_an_event_would_cost_more_is_refused(arity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With four an event costs twice what is claimed of two ticks."""
    monkeypatch.setattr(kary, "best_arity", lambda *_: arity)
    with pytest.raises(ArithmeticError, match="odd"):
        Kary(horizon=TICKS).init(1)


def test_shares_that_are_more_than_the_budget_are_claimed_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    each = np.where(WORKLOAD.order == 0, 0.0, 0.4)
    monkeypatch.setattr("synthstream.kernel.tables.at_every_tick", lambda *_, **__: each + 0.4)
    monkeypatch.setattr("synthstream.kernel.tables.at_refreshes", lambda *_, **__: (0.4 - each, each))
    monkeypatch.setattr("synthstream.kernel.epochs.in_epochs", lambda *_, **__: {3: EpochShares(0.4, 0.4, each)})
    for kind, budget in ((Marginals, PURE), (Marginals, ZCDP), (Refreshed, ZCDP), (Epochs, PURE)):
        mechanism = kind(workload=WORKLOAD, budget=budget, horizon=TICKS)
        with pytest.raises(BudgetExceeded):
            budget.charge(mechanism.claim())


def test_larger_tables_of_an_epoch_are_claimed_at_what_the_dearest_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are chosen is open; here one of the three has nearly all of the budget."""
    tables = np.array([0, 0.01, 0.01, 0.01, 0.01, 0.9, 0.01])
    monkeypatch.setattr("synthstream.kernel.epochs.in_epochs", lambda *_, **__: {1: EpochShares(0.01, 0.01, tables)})
    mechanism = Epochs(workload=WORKLOAD, budget=PURE, horizon=TICKS, picks=1)
    assert mechanism.claim().pure == pytest.approx(0.01 + 0.01 + 0.01 + 0.9)  # single columns get noise together


@pytest.mark.parametrize("ends", [(1, 2, 7), (9,), (3, 4, 5, 6, 9)])
def test_an_event_is_measured_once_whenever_epochs_end(ends: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def span(_: EpochTimes, tick: int) -> tuple[int, int]:
        return max((e for e in ends if e <= tick), default=0), min((e for e in ends if e > tick), default=10**9)

    monkeypatch.setattr(EpochTimes, "span", span)
    mechanism = Epochs(workload=WORKLOAD, budget=PURE, horizon=TICKS, picks=3)
    codes = np.zeros((1, 3), dtype=np.int32)
    for at in range(ends[-1]):
        state, seen = mechanism.init(), np.zeros(len(WORKLOAD.marginals))
        for tick in range(TICKS):
            counts = WORKLOAD.count(codes[: int(tick == at)])
            state, measured = mechanism.step(state, counts, ExactGate(), Ahead(workload=WORKLOAD))
            for marginal in measured.workload.marginals:
                seen[WORKLOAD.marginals.index(marginal)] += measured.marginal(marginal)[0].sum()
        assert np.all(seen[1:] == 1)  # the total is a running count


@pytest.mark.parametrize("refreshes", [(0, 3, 4), (0, 8), (0, 1, 2, 3, 4, 5, 6, 7, 8)])
def test_an_event_is_counted_once_whenever_refreshes_come(
    refreshes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ages = tuple(tick + 1 for tick in refreshes)
    monkeypatch.setattr(RefreshTimes, "ages", property(lambda _: ages))
    mechanism, codes = Refreshed(workload=WORKLOAD, budget=ZCDP, horizon=TICKS), np.zeros((1, 3), dtype=np.int32)
    for at in range(refreshes[-1] + 1):
        state = mechanism.init()
        for tick in range(TICKS):
            state, measured = mechanism.step(state, WORKLOAD.count(codes[: int(tick == at)]), ExactGate())
            larger = [m for m in measured.workload.marginals if len(m) == 2]
            assert bool(larger) == (tick in refreshes)
            for marginal in larger:
                counted = measured.marginal(marginal)[0].sum()
                assert counted == pytest.approx(int(at <= tick), abs=2 * mechanism.resolution)


def test_refreshes_that_a_state_remembers_are_those_of_the_horizon_and_of_bursts() -> None:
    assert [RefreshTimes(1.1, horizon).remembered for horizon in (1, 3, 365, None)] == [1, 3, 48, 78]
    assert [RefreshTimes(1.1, horizon, 2).remembered for horizon in (1, 3, 365, None)] == [1, 3, 50, 78]
    assert RefreshTimes(1.4, 10**9).remembered == 62
    assert RefreshTimes(1.01, None).remembered == 96  # then the counter begins anew
