"""From discrete Gaussian noise to (epsilon, delta): beside the truth, found by adding up probabilities."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext, localcontext
from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.special import erfcx

from synthstream.accounting.gaussian import (
    _DIGITS,
    _OUTLIERS,
    delta_of_gaussian,
    keeps,
    largest_rho,
    least_epsilon,
    outliers,
    slack,
)
from synthstream.accounting.zcdp import epsilon_for, rho_for
from tests.support.integers import exact_delta, law

CASES = [(5.0, 1, 1), (30.0, 1, 1), (30.0, 1, 10), (400.0, 7, 2), (1000.0, 1, 30), (2.0, 1, 1), (1.2, 1, 40)]


@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize(("variance", "change", "draws"), CASES)
def test_the_truth_is_never_above_what_is_promised(variance: float, change: int, draws: int, delta: float) -> None:
    rho = draws * change**2 / (2 * variance)
    epsilon = least_epsilon(rho, variance, delta=delta)
    assert exact_delta(variance, change, draws, epsilon) <= delta
    assert keeps(rho, variance, epsilon=epsilon, delta=delta)
    assert not keeps(rho, variance, epsilon=epsilon * (1 - 1e-6), delta=delta)
    if variance >= 400 and epsilon > 1e-3:  # as good as the truth, and as the real Gaussian
        assert exact_delta(variance, change, draws, epsilon * 0.998) > delta
        assert delta_of_gaussian(math.sqrt(2 * rho), epsilon=epsilon * 0.998) > delta
        assert epsilon < epsilon_for(rho, delta=delta) * 0.96


@pytest.mark.parametrize(
    ("rho", "epsilon", "delta"), [(5479.12, 11090.476, 9.6e-35), (1e4, 1e5, 1e-9), (3434.0, 7721.0, 1e-100)]
)
def test_where_floats_end_nothing_is_promised(rho: float, epsilon: float, delta: float) -> None:
    """There a factor overflows, or another one underflows to 0."""
    assert not keeps(rho, 1.0, epsilon=epsilon, delta=delta)
    assert least_epsilon(rho, 1.0, delta=delta) == math.inf
    assert not keeps(1e-30, math.inf, epsilon=1.0, delta=delta)


def test_noise_on_few_integers_promises_less_than_real_noise() -> None:
    """Without what is charged for integers the promise would be broken."""
    rho, delta = 1 / 10, 1e-9
    real = next(e for e in np.arange(2, 3, 1e-3) if delta_of_gaussian(math.sqrt(2 * rho), epsilon=e) <= delta)
    assert exact_delta(5.0, 1, 1, float(real)) > 1.05 * delta


def test_a_second_draw_that_follows_the_first_is_covered() -> None:
    """After each first answer the analyst asks what hurts most: another scale, no change at all, or a larger one."""
    whole, first = 0.5, 8.0  # sum of change^2 / variance on every path; the first draw has 1/8
    left = whole - 1 / first
    reach = 40
    p, x = law(first, reach), np.arange(-reach, reach + 1)
    for delta, far in product((1e-2, 1e-5), (-3, 0, 3)):
        epsilon = least_epsilon(whole / 2, 4 / left / 1.5, delta=delta)
        truth = 0.0
        for probability, noise in zip(p, x, strict=True):
            spent = (2 * noise + 1) / (2 * first)
            if noise > far:  # the event is not in the second draw
                truth += probability * max(0.0, -math.expm1(epsilon - spent))
                continue
            change = 2 if noise % 2 else 4
            truth += probability * exact_delta(change**2 / left, change, 1, epsilon - spent)
        assert truth <= delta
    assert 4 / left / 1.5 < min(first, 4 / left)


@pytest.mark.parametrize("variance", [1.0, 1.3, 2.0, 5.0, 20.0])
def test_one_draw_differs_from_rounded_real_noise_by_no_more_than_is_charged(variance: float) -> None:
    """Step 1 of the proof, at every integer that has any probability, in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        s2 = Decimal(variance)
        t2 = s2 - Decimal(1) / 12
        w = 1 / t2
        number = 12 * math.ceil(math.sqrt(variance)) + 8
        z = sum((-Decimal(x * x) / (2 * s2)).exp() for x in range(-3 * number, 3 * number + 1))
        up, whole, both = map(Decimal, slack(0.5 / variance, variance, delta=1e-3))
        seldom, down = Decimal(min(outliers(float(w * (1 + w / 12)), 1.0, 1e-3 * _OUTLIERS))), both - up
        assert whole >= w
        more = Decimal("2.01") * (-2 * pi() ** 2 * s2).exp()
        for u in range(number):
            b = (u * w) ** 2
            rounded = tail((u - Decimal("0.5")) / t2.sqrt()) - tail((u + Decimal("0.5")) / t2.sqrt())
            ratio = ((-Decimal(u * u) / (2 * s2)).exp() / z / rounded).ln()
            assert ratio <= w**2 / 576 + min(b / 24, b**2 / 960)
            assert -ratio <= b * w / 288 + w**2 / 640 + more
            if b <= seldom:  # and so is what the code charges, also after a change of one
                assert ratio <= up
                assert -ratio <= down


@cache
def tail(x: Decimal) -> Decimal:
    """Probability that a standard normal is above x, by a series whose terms are all of one sign."""
    with localcontext() as context:
        context.prec = 260
        term = total = +x
        k = 1
        while abs(term) > Decimal(10) ** -250:
            term *= x * x / (2 * k + 1)
            total += term
            k += 1
        return Decimal("0.5") - (-x * x / 2).exp() * total / (2 * pi()).sqrt()


@cache
def pi() -> Decimal:
    """By Machin's formula, to 260 digits."""
    with localcontext() as context:
        context.prec = 270

        def arctan_of_one_over(x: int) -> Decimal:
            return sum((Decimal((-1) ** k) / ((2 * k + 1) * Decimal(x) ** (2 * k + 1)) for k in range(200)), Decimal(0))

        return 16 * arctan_of_one_over(5) - 4 * arctan_of_one_over(239)


@pytest.mark.parametrize(
    ("mu", "epsilon"),
    [(0.1819, 1.0), (1e-7, 5e-7), (1.5e-3, 3e-2), (2.0, 10.0), (12.0, 100.0), (0.3, 0.01), (0.05, 1.0), (1.3, 0.9)],
)
def test_the_curve_of_real_noise_is_rounded_up_by_little(mu: float, epsilon: float) -> None:
    with localcontext() as context:
        context.prec = 200
        m, e = Decimal(mu), Decimal(epsilon)
        exact = tail(e / m - m / 2) - e.exp() * tail(e / m + m / 2)
        found = Decimal(delta_of_gaussian(mu, epsilon=epsilon))
        assert exact <= found <= exact * (1 + Decimal("2e-5"))


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("delta", [1e-100, 1e-30, 1e-9, 1e-5, 0.1, 0.49])
@pytest.mark.parametrize("unit", [1e12, 10.0, 0.5])
def test_what_may_be_spent_keeps_the_promise_and_hardly_more_would(epsilon: float, delta: float, unit: float) -> None:
    rho = largest_rho(epsilon, delta=delta, unit=unit)
    assert keeps(rho, unit / rho, epsilon=epsilon, delta=delta)
    assert not keeps(rho * (1 + 1e-6), unit / rho / (1 + 1e-6), epsilon=epsilon, delta=delta)
    if unit / rho > 1.001:  # otherwise integers are too coarse for more, whatever epsilon
        assert 0.99 * epsilon < least_epsilon(rho, unit / rho, delta=delta) <= epsilon * (1 + 1e-6)
    assert math.frexp(rho)[0] * 2**26 % 1 == 0, "platforms that differ in the last digits find the same"
    if unit > 1e9:
        assert rho / rho_for(epsilon, delta=delta) > 1.005


def test_the_noise_of_streams_that_run_stays_the_same_to_the_last_digit() -> None:
    found = [largest_rho(epsilon, delta=1e-9, unit=1e6) for epsilon in (0.5, 1.0, 4.0)]
    assert found == [0.004388305940665305, 0.016556435264647007, 0.22586893290281296]


@pytest.mark.parametrize(
    ("rho", "least", "delta"),
    [(0.1, 1.0, 0.1), (0.5, 5.0, 1e-9), (3.0, 1e4, 1e-5), (1e-4, 2.0, 0.4), (1.0, 1.0, 1e-40)],
)
def test_what_is_charged_is_what_the_theorem_says(rho: float, least: float, delta: float) -> None:
    v0 = 1 / (least - 1 / 12)
    k = 1 + v0 / 12
    whole = 2 * rho * k
    v = min(v0, whole)
    y, n, tail = v * k, whole / v, math.log(2 * 1024 / delta)
    most = k * whole + 2 * y * math.sqrt(n * tail) + 2 * y * tail
    each = 2 * y * (math.log(2 * n) + tail)
    a = v * whole / 576 + min(most / 24, most * min(each, most) / 960)
    other = v / 288 * (math.sqrt(most) + math.sqrt(v * whole)) ** 2 + v * whole / 640
    other += 2.01 * whole * least * math.exp(-2 * math.pi**2 * least)
    found = slack(rho, least, delta=delta)
    assert found == pytest.approx((a, whole, a + other), rel=1e-8)
    assert all(one > exact * (1 + 1e-10) for one, exact in zip(found, (a, whole, a + other), strict=True)), "rounded up"


def test_less_noise_or_more_changes_is_never_cheaper() -> None:
    for rho, least in product(np.geomspace(1e-6, 10, 12), np.geomspace(1, 1e8, 12)):
        here = slack(rho, least, delta=1e-9)
        for other in (slack(rho * 1.1, least, delta=1e-9), slack(rho, least * 0.9, delta=1e-9)):
            assert all(b >= a for a, b in zip(here, other, strict=True))


def test_integers_too_coarse_or_an_epsilon_that_is_used_up_keep_nothing() -> None:
    assert not keeps(1e-9, 0.999, epsilon=1.0, delta=0.1)
    assert keeps(1e-9, 1.0, epsilon=1.0, delta=0.1)
    assert not keeps(1.0, 1.0, epsilon=0.1, delta=0.1)
    assert least_epsilon(0.1, 0.9, delta=1e-9) == math.inf
    assert largest_rho(1.0, delta=1e-9, unit=1e-21) == 0.0
    assert delta_of_gaussian(5.0, epsilon=0.1) == 1.0
    assert delta_of_gaussian(3.0, epsilon=0.1) == 1.0, "from one standard deviation on"


@pytest.mark.parametrize("rare", [2.0**-4, 2.0**-12])
def test_outcomes_far_out_have_their_part_of_delta(rare: float) -> None:
    """Step 4 of the proof: what lies beyond B or x, for three draws of one variance, by adding up."""
    v = 1 / (2 - 1 / 12)
    most, each = outliers(v * (1 + v / 12), 3.0, rare)
    p, b = law(2.0, 25), (np.arange(-25, 26) * v) ** 2
    sums = np.add.outer(np.add.outer(b, b), b)
    largest = np.maximum.outer(np.maximum.outer(b, b), b)
    together = np.multiply.outer(np.multiply.outer(p, p), p)
    assert 0 < float(together[sums > most].sum()) <= rare / 2
    assert 0 < float(together[largest > each].sum()) <= rare / 2
    assert _OUTLIERS == 2.0**-10


def arctan(x: Decimal) -> Decimal:
    """By its series, in the precision of the context."""
    term, total, n = x, x, 0
    while abs(term) > Decimal(10) ** -getcontext().prec:
        n += 1
        term *= -x * x
        total += term / (2 * n + 1)
    return total


@pytest.mark.parametrize("x", [-0.7, -0.1, 0.0, 1e-3, 0.3, 1.0, 2.5, 5.0, 9.0, 14.0, 21.0, 26.0])
def test_the_error_of_what_cancels_is_as_small_as_is_taken_for_granted(x: float) -> None:
    """erfcx(x) = exp(x^2) (1 - erf(x)), by the series of erf with enough digits for what cancels there."""
    with localcontext() as context:
        context.prec = 60 + int(2 * x * x)
        exact, square = Decimal(x), Decimal(x) ** 2
        # pi by Machin's formula.
        pi = 4 * (4 * arctan(Decimal(1) / 5) - arctan(Decimal(1) / 239))
        term, total, n = exact, exact, 0
        while abs(term) > Decimal(10) ** -context.prec:
            n += 1
            term *= -square / n
            total += term / (2 * n + 1)
        true = square.exp() * (1 - 2 * total / pi.sqrt())
        assert abs(Decimal(float(erfcx(x))) / true - 1) < Decimal(_DIGITS) / 2
