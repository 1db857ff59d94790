"""Budgets, units and claims at their edges: where a limit lies, what counts, and which way numbers are rounded."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest

from synthstream import privacy
from synthstream.accounting import zcdp
from synthstream.accounting.zcdp import delta_for, epsilon_for, rho_for
from synthstream.privacy import (
    EVENT,
    Budget,
    Claim,
    Unit,
    above,
    below,
    l1_sensitivity,
    stated,
)

PERSON = Unit(kind="person", max_events=20)
CLAIM = Claim(
    unit=EVENT,
    neighbours="add-remove",
    rho=Fraction(1, 50),
    pure=Fraction(1, 5),
    horizon=10,
    theorems=("simple",),
    trusts=("the clock",),
)


def test_a_row_that_is_replaced_moves_a_table_twice() -> None:
    assert l1_sensitivity("add-remove") == 1
    assert l1_sensitivity("replace-one") == 2


@pytest.mark.parametrize("promise", [EVENT, Budget(epsilon=1.0, delta=0.0), CLAIM], ids=lambda p: type(p).__name__)
def test_what_was_promised_stays_and_is_said_by_name(promise: Any) -> None:
    field = fields(promise)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(promise, field, getattr(promise, field))
    with pytest.raises(TypeError):
        type(promise)(getattr(promise, field))
    assert all(field.kw_only for field in fields(promise))


@pytest.mark.parametrize("name", ["max_events", "max_per_tick", "period"])
def test_limits_begin_at_one(name: str) -> None:
    few: dict[str, Any] = {name: 1}
    assert getattr(Unit(kind="person", **few), name) == 1
    for number in (0, -1):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, not {number}"):
            Unit(kind="person", **few | {name: number})


def test_an_event_is_one_row_that_comes() -> None:
    assert Unit(kind="event", signed=False, max_events=1, max_per_tick=None, per=None, period=None) == EVENT
    assert (EVENT.of_persons, EVENT.in_a_tick, EVENT.events) == (False, 1, 1)
    assert (PERSON.of_persons, PERSON.in_a_tick, PERSON.events) == (True, 20, 20)


@pytest.mark.parametrize(
    ("most", "tick", "period", "in_a_tick", "events"),
    [(20, 3, None, 3, 20), (3, 20, None, 3, 3), (20, 3, 5, 3, 15), (20, None, 5, 20, 20), (20, 5, 5, 5, 20)],
)
def test_so_many_events_of_a_person_count(
    most: int, tick: int | None, period: int | None, in_a_tick: int, events: int
) -> None:
    unit = Unit(kind="person", max_events=most, max_per_tick=tick, period=period)
    assert (unit.in_a_tick, unit.events) == (in_a_tick, events)


def test_units_in_words() -> None:
    assert EVENT.words == "any single event (one row)"
    assert replace(EVENT, signed=True).words == (
        "any single event (one row, adding or taking away; a row that is changed, or written anew, is two)"
    )
    assert PERSON.words == "all events of any one person (at most 20 count)"
    capped = replace(PERSON, max_per_tick=2, per="30d", period=30)
    assert capped.words.endswith("that come to be counted within any one period of 30d (at most 20 count, 2 in a tick)")
    assert "belongs to the one in which it comes" in capped.meaning
    assert "in any one period of 30 days, as long" in capped.meaning
    assert EVENT.meaning.endswith("somebody with many rows is protected less.")
    assert "Someone with many rows" not in PERSON.meaning
    assert "Of each person at most 20 rows count; further ones are left out, and nobody is told." in PERSON.meaning
    assert PERSON.meaning.endswith("nobody is told.")
    assert "whether or not any one person was in the stream, as long as a person has one key" in PERSON.meaning
    assert "at most 20 rows count in a period, 2 in a tick; further" in capped.meaning
    assert "epsilon counts k times, and with delta above 0 more" in capped.meaning
    assert "at most 1 row counts;" in replace(PERSON, max_events=1).meaning
    assert "A row that takes an event away counts as one of them." in replace(PERSON, signed=True).meaning


@pytest.mark.parametrize("number", [math.log(3), 2.0000049, 1 / 3, 10.00004, 1.0000049e-9, 1 - 2**-20])
def test_words_promise_no_less_than_the_budget_is(number: float) -> None:
    """ln 3 in six digits is less than it is: 1.09861."""
    assert number * (1 - 1e-12) <= float(stated(number)) < number * (1 + 1e-6)
    epsilon, delta = (number, 0.0) if number > 1e-3 else (1.0, number)
    words = CLAIM.words(Budget(epsilon=epsilon, delta=delta))
    assert f"{stated(number)}-diff" in words if delta == 0 else f"(1, {stated(number)})-diff" in words


@pytest.mark.parametrize("number", [1.0, 0.3, 0.1 + 0.2, 1e-9, 1e-06, 4.25, 50.0, 0.0])
def test_six_digits_are_said_as_they_are_and_rounding_of_a_sum_is_not(number: float) -> None:
    assert stated(number) == f"{number:g}"


def test_a_delta_may_be_none_or_from_its_smallest_on() -> None:
    assert Budget(epsilon=1.0, delta=0.0).pure
    assert not Budget(epsilon=1.0, delta=1e-100).pure
    assert Budget(epsilon=3.0, delta=0.0).rho == Fraction(9, 2)
    for delta in (0.9e-100, 0.5, 0.7):
        with pytest.raises(ValueError, match="delta must be"):
            Budget(epsilon=1.0, delta=delta)
        with pytest.raises(ValueError, match="delta must be"):
            epsilon_for(0.1, delta=delta)
    assert epsilon_for(0.1, delta=1e-100) > epsilon_for(0.1, delta=0.49)


def test_a_budget_covers_what_reaches_it_and_no_more() -> None:
    little = Fraction(1, 2**200)
    pure, zcdp = Budget(epsilon=1.0, delta=0.0), Budget(epsilon=1.0, delta=1e-9)
    assert pure.covers(Fraction(1, 2), Fraction(1))
    assert not pure.covers(Fraction(0), Fraction(1) + little)
    assert not pure.covers(Fraction(0), None)
    assert zcdp.covers(zcdp.rho, None)
    assert not zcdp.covers(zcdp.rho + little, None)
    assert zcdp.covers(zcdp.rho, Fraction(3))  # either currency may vouch
    assert zcdp.covers(Fraction(1), Fraction(1))
    assert not zcdp.covers(zcdp.rho + little, Fraction(1) + little)
    assert replace(CLAIM, pure=Fraction(1)).fits(pure)
    assert not replace(CLAIM, pure=Fraction(1) + little).fits(pure)


def test_a_group_divides_a_pure_budget() -> None:
    pure = Budget(epsilon=1.0, delta=0.0)
    third = pure.per_event(Fraction(3))
    assert 3 * Fraction(third.epsilon) <= 1 < 3 * Fraction(math.nextafter(third.epsilon, 1))
    assert third.delta == 0
    assert Budget(epsilon=1.0, delta=1e-9).per_event(Fraction(4), by_pure=True) == Budget(epsilon=0.25, delta=1e-9)
    assert pure.per_event(Fraction(1)) is pure
    for factor in (Fraction(0), Fraction(99, 100)):
        with pytest.raises(ValueError, match="factor must be at least 1"):
            pure.per_event(factor)
    assert pure.per_event(Fraction(10**5)).epsilon == pytest.approx(1e-5)
    assert Budget(epsilon=4 * 1e-6, delta=0.0).per_event(Fraction(4)).epsilon == 1e-6  # the least of all
    for budget in (pure, Budget(epsilon=1.0, delta=1e-9)):
        with pytest.raises(ValueError, match="max_events: epsilon = 1 for a person leaves too little"):
            budget.per_event(Fraction(10**6 + 1), by_pure=True)


@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.3])
@pytest.mark.parametrize("factor", [Fraction(11, 10), Fraction(2), Fraction(20), Fraction(500)])
def test_a_group_divides_rho_and_spends_what_it_has(delta: float, factor: Fraction) -> None:
    whole = Budget(epsilon=1.0, delta=delta)
    each = whole.per_event(factor)
    assert each.rho * factor**2 <= whole.rho
    assert each.rho * factor**2 > whole.rho * Fraction(999, 1000)
    assert each.delta <= delta


def test_what_is_too_little_for_rho_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves too little for one event"):
        Budget(epsilon=1.0, delta=1e-9).per_event(Fraction(10**6))


def test_a_group_costs_its_factor_squared_and_its_events() -> None:
    unit = replace(PERSON, max_events=4)
    found = CLAIM.of_group(unit, Fraction(3), theorem="participation")
    assert (found.unit, found.rho, found.pure) == (unit, Fraction(9, 50), Fraction(4, 5))
    assert found.theorems == ("simple", "participation")
    assert found.trusts[0] == "the clock"
    assert "one key" in found.trusts[1]
    assert replace(CLAIM, pure=None).of_group(unit, Fraction(4), theorem="group").pure is None
    for other in (replace(CLAIM, neighbours="replace-one"), replace(CLAIM, unit=unit)):
        with pytest.raises(ValueError, match="one event more or less"):
            other.of_group(unit, Fraction(4), theorem="group")


def test_a_claim_gives_the_smaller_epsilon_rounded_up() -> None:
    third = replace(CLAIM, pure=Fraction(1, 3), rho=Fraction(10))
    assert third.epsilon(0.0) == third.epsilon(1e-9) == above(Fraction(1, 3))
    cheap = replace(CLAIM, pure=Fraction(50), rho=Fraction(1, 1000))
    assert cheap.epsilon(0.0) == 50
    assert cheap.epsilon(1e-9) == epsilon_for(above(Fraction(1, 1000)), delta=1e-9) < 1
    assert replace(cheap, pure=None).epsilon(1e-9) == cheap.epsilon(1e-9)


def test_a_claim_in_words() -> None:
    words = CLAIM.words(Budget(epsilon=2.0, delta=0.0))
    assert words == (
        "All releases together, over all 10 ticks, satisfy 2-differential privacy (pure) for any single event "
        "(one row) being added or removed."
    )
    endless = replace(CLAIM, horizon=None, neighbours="replace-one").words(Budget(epsilon=2.0, delta=1e-9))
    assert endless.startswith("All releases together, for ever, satisfy (2, 1e-09)-differential privacy for")
    assert "replaced" in endless


@pytest.mark.parametrize("value", [Fraction(1, 3), Fraction(2, 3), Fraction(1, 10), Fraction(7, 10)])
def test_floats_are_rounded_the_safe_way_and_to_the_nearest_one(value: float) -> None:
    high, low = above(Fraction(value)), below(Fraction(value))
    assert Fraction(low) < value < Fraction(high)
    assert math.nextafter(low, math.inf) == high
    assert above(Fraction(high)) == below(Fraction(high)) == high


@pytest.mark.parametrize("rho", [1e-6, 0.01, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-6, 0.1])
def test_conversions_lose_no_more_than_their_margin(rho: float, delta: float) -> None:
    """Rounded up, and by little: what is paid for is what is used."""
    epsilon = epsilon_for(rho, delta=delta)
    assert delta_for(rho, epsilon=epsilon) <= delta
    if epsilon > 0:
        assert delta_for(rho, epsilon=epsilon * (1 - 1e-7)) > delta * (1 - 1e-6)
        assert rho_for(epsilon, delta=delta) == pytest.approx(rho, rel=1e-6)
    else:
        assert delta_for(rho, epsilon=0.0) <= delta


def test_no_delta_is_above_one() -> None:
    assert delta_for(100.0, epsilon=0.0) == 1.0


@pytest.mark.parametrize(("rho", "epsilon"), [(0.015, 1.0), (0.5, 3.0), (2.0, 10.0), (1e-5, 0.02)])
def test_delta_is_above_what_exact_arithmetic_gives(rho: float, epsilon: float) -> None:
    """The bound at its best order, in 60 digits: a float may be above it, by its margin, and never below."""

    def bound(order: Decimal) -> Decimal:
        power = (order - 1) * (order * Decimal(rho) - Decimal(epsilon)) + order * (1 - 1 / order).ln()
        return power - (order - 1).ln()

    with localcontext(prec=60):
        low, high = Decimal("1.000001"), Decimal(10**6)
        for _ in range(200):  # it falls, and then it rises
            third = (high - low) / 3
            low, high = (low + third, high) if bound(low + third) > bound(high - third) else (low, high - third)
        least = bound(low).exp()
    found = Decimal(delta_for(rho, epsilon=epsilon))
    assert least <= found <= least * Decimal("1.00000001")


def test_delta_is_never_above_one() -> None:
    assert delta_for(1e9, epsilon=0.0) == 1.0


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_where_both_forms_disagree_next_to_no_epsilon_is_enough(part: float) -> None:
    """Rounded up, delta at epsilon = 0 is a little above what is sought there: a delta between the two has no root."""
    rho = 1e-12
    low, high = zcdp._sought(rho, 0.0), delta_for(rho, epsilon=0.0)
    assert low < high
    found = epsilon_for(rho, delta=low + part * (high - low))
    assert 0 < found < 1e-9
    assert delta_for(rho, epsilon=found) <= low + part * (high - low)


def test_a_replaced_row_moves_two_cells_or_one_by_two() -> None:
    found = [privacy.squared_l2(n, signed=s) for n in ("add-remove", "replace-one") for s in (False, True)]
    assert found == [1, 1, 2, 4]


def test_scales_and_costs_are_rounded_by_one_factor_each() -> None:
    assert (privacy.WIDER, privacy.CHEAPER) == (1 + 1e-12, 1 - 1e-12)


@pytest.mark.parametrize("delta", [1e-5, 1e-7, 1e-9, 1e-12])
def test_26_digits_of_a_rho_are_a_little_less_than_all_that_were_found(
    delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [rho_for.__wrapped__(epsilon, delta=delta) for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)]
    monkeypatch.setattr(zcdp, "coarse", lambda found: found)
    found = [rho_for.__wrapped__(epsilon, delta=delta) for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)]
    assert all(fine * (1 - 2**-25) < coarsely <= fine for fine, coarsely in zip(found, kept, strict=True))
