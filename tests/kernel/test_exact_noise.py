"""What a mechanism says of its noise, and what it may spend for it, beside what passes the gate."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthstream import Stream
from synthstream.accounting.gaussian import least_epsilon
from synthstream.accounting.zcdp import epsilon_for
from synthstream.kernel.gate import Gate
from synthstream.kernel.points import Points
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.partition import Partition
from synthstream.privacy import EXACT, Budget, Unit, compose
from synthstream.strategies.levels import Schedule
from synthstream.synthesizers.assembly import claim_facts, claim_of, synthesizer_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.synthesizers.succession import across
from synthstream.workload import Workload
from tests.support.gates import Call, TracingGate
from tests.support.streams import KINDS, PERSONS, TICKS, configured, rows

GAUSSIAN = {"always", "refresh", "points-zcdp", PERSONS}
WORKLOAD = Workload.all_up_to(2, sizes=(2, 3, 4))
BUDGET = Budget(epsilon=1.0, delta=1e-9, exact=True)


@pytest.mark.parametrize("kind", [*KINDS, PERSONS])
def test_the_least_variance_is_that_of_a_draw_and_only_gaussian_noise_has_one(kind: str, tmp_path: Path) -> None:
    """From files to the gate: whatever is asked, no scale is below what the claim says."""
    config, traces = configured(tmp_path, kind), list[list[Call]]()

    def gates(tick: int) -> Gate:
        gate = TracingGate(SeededGate(tick))
        traces.append(gate.trace)
        return gate

    with Stream(config, gates=gates) as stream:
        stream.update(rows(300, 1))
        for _ in range(TICKS):
            stream.release()
    calls = [call for trace in traces for call in trace]
    claim = claim_of(config, synthesizer_of(config).mechanism)
    assert {call.kind for call in calls} == {"gaussian"} or claim.least is None
    assert (claim.least is not None) == (kind in {*GAUSSIAN, "places"}) == (EXACT in claim.theorems)
    facts = claim_facts(claim, config.privacy.budget)
    assert ("least_variance" in facts) == (kind in {*GAUSSIAN, "places"})
    if claim.least is not None:
        least = min(Fraction(float(s)) ** 2 for call in calls for s in np.ravel(call.scale))
        assert facts["least_variance"] <= claim.least <= least
        # Of points the draw with the least noise comes later than these ticks. Of refreshes it is taken to have the
        # multiplier of one counter and the sensitivity of the other: these differ by how their matrices are rounded.
        late, near = kind == "points-zcdp", 10**4 if kind in ("refresh", "places") else 10**9
        assert late or least < claim.least * Fraction(near + 1, near), "and no smaller than it is"
        assert claim.fits(config.privacy.budget)
        assert not replace(claim, least=None).fits(config.privacy.budget)
        assert not replace(claim, rho=claim.rho * Fraction(10**7 + 1, 10**7)).fits(config.privacy.budget)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("make", [Marginals, Refreshed])
def test_what_the_law_allows_is_spent_to_the_last_part(make: Any, signed: bool, neighbours: Any) -> None:
    facts = {"workload": WORKLOAD, "horizon": 40, "unit": Unit(signed=signed), "neighbours": neighbours}
    claim = make(budget=BUDGET, **facts).claim()
    assert claim.fits(BUDGET)
    assert 1 - 1e-6 < least_epsilon(float(claim.rho), float(claim.least), delta=1e-9) <= 1
    assert claim.epsilon(1e-9) <= 1 < epsilon_for(float(claim.rho), delta=1e-9)
    plain = make(budget=replace(BUDGET, exact=False), **facts).claim()
    assert 1.105 < float(claim.rho / plain.rho) < 1.106  # noise is 4.9 % smaller
    assert plain.epsilon(1e-9) < 0.96


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_table_of_least_noise_decides_what_all_may_spend(epsilon: float) -> None:
    """Where noise is so little that it matters that it is on integers."""
    budget, workload = Budget(epsilon=epsilon, delta=1e-9, exact=True), Workload.all_up_to(1, sizes=(2,))
    few = Marginals(workload=workload, budget=budget, horizon=20, kind="simple")
    assert few.multipliers[0] > 2 * few.multipliers[1]
    assert few.claim().fits(budget)


def test_a_group_spends_what_the_law_allows_for_the_group() -> None:
    factor = Fraction(7)
    each = BUDGET.per_event(factor)
    claim = Marginals(workload=WORKLOAD, budget=each, horizon=40).claim()
    person = Unit(kind="person", max_events=7)
    whole = claim.of_group(person, factor, theorem="group")
    assert whole.fits(BUDGET)
    assert whole.least == claim.least
    assert 1 - 1e-6 < whole.epsilon(1e-9) <= 1
    assert whole.charged_to(BUDGET).theorems == (*whole.theorems, EXACT)


def test_where_zcdp_asks_for_less_noise_it_decides() -> None:
    """One table, one tick, whole counts: noise of few integers."""
    budget = Budget(epsilon=8.0, delta=1e-9, exact=True)
    tables = Marginals(workload=Workload(sizes=(2,), marginals=((0,),)), budget=budget, horizon=None, kind="simple")
    claim = tables.claim()
    assert claim.least is not None
    assert claim.least < 2
    assert budget.spendable(claim.least * claim.rho) == budget.rho
    assert claim.charged_to(budget) == claim
    assert claim.epsilon(1e-9) == pytest.approx(8.0, rel=1e-6)


def test_points_with_laplace_noise_have_no_least_variance_even_without_a_counter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under replace-one the number of events is public; a schedule may measure no level while an epoch is open."""
    monkeypatch.setattr(Points, "_levels", {})
    points = Points(
        partition=Partition(dimension=2, depth=6),
        budget=Budget(epsilon=1.0, delta=0.0),
        horizon=40,
        neighbours="replace-one",
        schedule=Schedule(dimension=2, kind="fixed"),
    )
    assert points._counters == []
    assert points.claim().least is None


def test_a_stream_that_goes_on_has_the_largest_cost_and_the_least_variance_of_its_parts() -> None:
    budgets = [BUDGET, replace(BUDGET, epsilon=0.5)]
    claims = [Marginals(workload=WORKLOAD, budget=b, horizon=40).claim().charged_to(b) for b in budgets]
    budget, whole = across(list(zip(budgets, claims, strict=True)), horizon=80)
    assert (whole.rho, whole.least) == (claims[0].rho, claims[0].least)
    assert EXACT in whole.theorems
    assert whole.fits(replace(budget, exact=False))
    person = Unit(kind="person", max_events=1)
    persons = [claim.of_group(person, Fraction(1), theorem="group") for claim in claims]
    budget, whole = across(list(zip(budgets, persons, strict=True)), horizon=80)
    assert whole.rho == claims[0].rho + claims[1].rho
    assert whole.fits(budget)


def test_claims_side_by_side_have_the_least_variance_of_all() -> None:
    one = Marginals(workload=WORKLOAD, budget=BUDGET, horizon=40).claim()
    other, laplace = replace(one, least=Fraction(5)), replace(one, least=None)
    assert compose([one, other])[2] == 5
    assert compose([one, laplace])[2] is None
    assert compose([])[2] is None
