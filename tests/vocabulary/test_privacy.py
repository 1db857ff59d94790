"""Budgets, claims and the conversion between zCDP and (epsilon, delta)."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from synthstream.accounting.zcdp import delta_for, epsilon_for, rho_for
from synthstream.errors import BudgetExceeded
from synthstream.privacy import Budget, Claim, Unit, compose


def claim(*, rho: float = 0.0, pure: float | None = None) -> Claim:
    return Claim(
        unit=Unit(),
        neighbours="add-remove",
        rho=Fraction(rho),
        pure=None if pure is None else Fraction(pure),
        horizon=10,
        theorems=("marginals",),
    )


def brute_force_delta(rho: float, epsilon: float) -> float:
    """The same bound on a grid of orders: an independent, slower evaluation."""
    best = 1.0
    for k in range(1, 200_000):
        order = 1 + k / 500
        log_delta = (order - 1) * (order * rho - epsilon) + order * math.log1p(-1 / order) - math.log(order - 1)
        best = min(best, math.exp(min(log_delta, 0.0)))
    return best


@pytest.mark.parametrize(("rho", "epsilon"), [(0.015, 1.0), (0.5, 3.0), (2.0, 10.0), (0.001, 0.1)])
def test_delta_is_the_minimum_over_orders(rho: float, epsilon: float) -> None:
    brute = brute_force_delta(rho, epsilon)
    assert delta_for(rho, epsilon=epsilon) == pytest.approx(brute, rel=1e-3)
    assert delta_for(rho, epsilon=epsilon) <= brute * (1 + 1e-8)


@pytest.mark.parametrize(
    ("epsilon", "rho"), [(0.5, 0.00395), (1.0, 0.01497), (2.0, 0.0561), (4.0, 0.206)]
)  # published figures of the tight conversion at delta = 1e-9
def test_rho_of_a_budget(epsilon: float, rho: float) -> None:
    assert rho_for(epsilon, delta=1e-9) == pytest.approx(rho, rel=3e-3)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 7.0, 40.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-5, 0.01])
def test_conversions_are_inverse_and_on_the_safe_side(epsilon: float, delta: float) -> None:
    rho = rho_for(epsilon, delta=delta)
    assert delta_for(rho, epsilon=epsilon) <= delta
    assert delta_for(rho * 1.001, epsilon=epsilon) > delta
    assert epsilon_for(rho, delta=delta) == pytest.approx(epsilon, rel=1e-6)


def exact_delta(rho: float, epsilon: float) -> Decimal:
    """The bound at its best order, to 40 digits: in decimals that no cancellation can reach."""
    with localcontext() as context:
        context.prec = 60
        r, e = Decimal(rho), Decimal(epsilon)

        def log_delta(log_above: Decimal) -> Decimal:
            above = log_above.exp()
            return above * ((above + 1) * r - e) + (above + 1) * (log_above - (above + 1).ln()) - log_above

        middle = ((e + (e * e + 8 * r).sqrt()) / (4 * r)).ln()
        low, high = middle - 7, middle + 1
        for _ in range(60):  # it falls, then rises
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, right) if log_delta(left) < log_delta(right) else (left, high)
        return log_delta((low + high) / 2).exp()


@pytest.mark.parametrize("epsilon", [1e-6, 3e-6, 1e-5, 1e-4, 1e-3, 0.03, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("delta", [1e-100, 1e-30, 1e-12, 1e-9, 1e-6, 1e-3])
def test_delta_is_never_below_the_exact_bound_however_small_epsilon_is(epsilon: float, delta: float) -> None:
    rho = rho_for(epsilon, delta=delta)
    exact = exact_delta(rho, epsilon)
    assert exact <= Decimal(delta_for(rho, epsilon=epsilon)) <= exact * (1 + Decimal("3e-9"))
    assert exact <= Decimal(delta)
    assert exact_delta(rho, epsilon_for(rho, delta=delta)) <= Decimal(delta)


def test_the_noise_of_running_streams_stays_the_same_to_the_last_digit() -> None:
    """What is stored was measured with these numbers, and a stream goes on with no others."""
    assert float(Budget(epsilon=1.0, delta=1e-9).rho) == 0.014973057433962822
    assert float(Budget(epsilon=2.0, delta=1e-9).rho) == 0.05613050144165754
    assert float(Budget(epsilon=0.01, delta=1e-12).rho) == 1.3578467985553289e-06
    person = Budget(epsilon=1.0, delta=1e-9).per_event(Fraction(20))
    assert (person.epsilon, float(person.rho)) == (0.044685318134725094, 3.7432641875057016e-05)


def test_no_cost_and_no_delta() -> None:
    assert epsilon_for(0.0, delta=1e-9) == 0.0
    assert delta_for(0.0, epsilon=0.1) == 0.0
    with pytest.raises(ValueError, match="delta must be between"):
        rho_for(1.0, delta=0.0)


@pytest.mark.parametrize(
    ("epsilon", "delta", "says"),
    [
        (0.0, 0.0, "epsilon"),
        (-1.0, 0.0, "epsilon"),
        (math.inf, 0.0, "epsilon"),
        (1.001e6, 1e-9, "epsilon must be from 1e-06 to 1e\\+06, not 1001000.0"),
        (math.nan, 0.0, "epsilon"),
        (9.999e-7, 0.0, "from 1e-06 to 1e\\+06, not 9.999e-07"),
        (9.999e-7, 1e-9, "from 1e-06 to 1e\\+06, not 9.999e-07"),
        (1.0, 1.0, "delta"),
        (1.0, 0.5, "delta"),
        (1.0, 1e-200, "delta"),
        (1.0, -1e-9, "delta"),
        (1.0, math.nan, "delta"),
    ],
)
def test_an_impossible_budget_is_refused(epsilon: float, delta: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Budget(epsilon=epsilon, delta=delta)


def test_claims_add_up() -> None:
    assert compose([claim(rho=0.25), claim(rho=0.5)]) == (Fraction(3, 4), None, None)
    assert compose([claim(rho=0.125, pure=0.5), claim(rho=0.125, pure=0.5)]) == (Fraction(1, 4), Fraction(1), None)
    assert compose([claim(rho=0.125, pure=0.5), claim(rho=0.5)]) == (Fraction(5, 8), None, None)


def test_a_budget_refuses_a_charge_beyond_it() -> None:
    budget = Budget(epsilon=1.0, delta=0.0)
    budget.charge(claim(rho=0.25, pure=1.0))
    with pytest.raises(BudgetExceeded, match=r"delta = 0, and this one would exceed it. No noise was drawn"):
        budget.charge(claim(rho=0.25, pure=1.0 + 2.0**-40))


def test_a_pure_budget_takes_no_gaussian_claim() -> None:
    with pytest.raises(BudgetExceeded):
        Budget(epsilon=100.0, delta=0.0).charge(claim(rho=1e-9))


def test_a_zcdp_budget_is_compared_in_rho() -> None:
    budget = Budget(epsilon=1.0, delta=1e-9)
    budget.charge(claim(rho=float(budget.rho)))
    with pytest.raises(BudgetExceeded):
        budget.charge(claim(rho=float(budget.rho) + 1e-12))


def test_what_a_claim_says() -> None:
    assert claim(rho=0.5, pure=1.0).epsilon(0.0) == 1.0
    assert claim(rho=0.5, pure=1.0).epsilon(1e-9) == 1.0
    assert claim(rho=0.01497).epsilon(1e-9) == pytest.approx(1.0, rel=1e-3)
    words = claim(pure=1.0).words(Budget(epsilon=1.0, delta=0.0))
    assert "over all 10 ticks" in words
    assert "(pure)" in words
    assert "added or removed" in words
