"""From discrete Gaussian noise to (epsilon, delta) by its law itself, where zCDP knows no more than its moments.

Symbols are those of ``docs/theorems/exact-gaussian.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from scipy.special import erfcx

from synthstream.accounting.zcdp import BITS

# Relative margin for what is computed in floats: sums and products of a few positive terms, each correct to about
# 1e-15, and one exponential of at most a few hundred.
_MARGIN = 1e-9
# More than the relative error of SciPy's erfcx (Johnson's Faddeeva package: below 1e-13; a test compares it with many
# digits), and of its argument's rounding. Two of its values are subtracted.
_DIGITS = 1e-13
# The part of delta that is left to outcomes so far out that noise on integers and on reals may differ there.
_OUTLIERS = 2.0**-10
# With less variance, integers are too coarse for this comparison.
_COARSE = 1.0
# The largest charge for integers that is looked at, exp(300): no factor overflows. Where the other one underflows it is
# below 1e-290, so both together are below 1e-150; no delta is.
_MOST = 300.0
# Searches end when this part of the number is left.
_SETTLED = 1e-10


def keeps(rho: float, least: float, *, epsilon: float, delta: float) -> bool:
    """Whether discrete Gaussian noise gives (epsilon, delta)-DP. Theorem: exact-gaussian.

    Args:
        rho: an upper bound, on every path, of half of the sum of change^2 / variance over all draws; above 0.
        least: at most the variance parameter of any draw whose value one unit may change, in units of its integers.
        epsilon: of the promise, above 0.
        delta: of the promise, above 0 and below 0.5.
    """
    if not _COARSE <= least < math.inf:
        return False
    ratio, whole, spent = slack(rho, least, delta=delta)
    left = epsilon - spent
    if not (left > 0 and ratio <= _MOST):
        return False
    return math.exp(ratio) * delta_of_gaussian(math.sqrt(whole), epsilon=left) <= delta * (1 - _OUTLIERS)


def slack(rho: float, least: float, *, delta: float) -> tuple[float, float, float]:
    """What it costs that noise is on integers: (a, M, a + a'), each rounded up. See :func:`keeps`.

    P <= e^a H and H' <= e^a' P' but for outcomes of probability ``delta / 1024``, where P and P' are the laws of all
    draws in two neighbouring worlds, and H and H' those with real noise, rounded, of total shift sqrt(M).
    """
    v = 1 / (least - 1 / 12)
    k = 1 + v / 12
    whole = 2 * rho * k * (1 + _MARGIN)
    v = min(v, whole)  # a draw that changes at all changes by 1 or more
    most, each = outliers(v * k, whole / v, _OUTLIERS * delta)
    shifted = (math.sqrt(most) + math.sqrt(v * whole)) ** 2
    up = v * whole / 576 + min(most / 24, most * min(each, most) / 960)
    down = v * shifted / 288 + v * whole / 640 + 2.01 * whole * least * math.exp(-2 * math.pi**2 * least)
    return up * (1 + _MARGIN), whole, (up + down) * (1 + _MARGIN)


def outliers(y: float, n: float, rare: float) -> tuple[float, float]:
    """(B, x): but for a probability of ``rare``, all b_i add up to at most B, and none is above x."""
    tail = math.log(2 / rare)
    return n * y + 2 * y * math.sqrt(n * tail) + 2 * y * tail, 2 * y * (math.log(2 * n) + tail)


def delta_of_gaussian(mu: float, *, epsilon: float) -> float:
    """Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), rounded up: of real noise and a shift of mu sigma.

    Source: Balle and Wang 2018, Theorem 8.
    """
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if low < -1:
        return 1.0  # beyond 0.6 for certain, and erfcx grows without bound
    # With Phi(-x) = exp(-x^2 / 2) erfcx(x / sqrt 2) / 2 both terms have the factor exp(-low^2 / 2).
    tails = erfcx(low / math.sqrt(2)) * (1 + _DIGITS) - erfcx(high / math.sqrt(2)) * (1 - _DIGITS)
    return math.exp(-low * low / 2) * float(tails) / 2 * (1 + _MARGIN)


@cache
def largest_rho(epsilon: float, *, delta: float, unit: float) -> float:
    """The largest rho that keeps (epsilon, delta) where the least variance is ``unit / rho``, rounded down; or 0.

    Example:
        >>> round(largest_rho(1.0, delta=1e-9, unit=1e6), 5), round(largest_rho(1.0, delta=1e-9, unit=0.5), 5)
        (0.01656, 0.01636)
    """

    def fits(rho: float) -> bool:
        return keeps(rho, unit / rho, epsilon=epsilon, delta=delta)

    low, high = min(1e-20, epsilon**2), (math.sqrt(2 * epsilon) + 2) ** 2 / 2  # low < -1 in delta_of_gaussian
    if not fits(low):
        return 0.0
    found = _border(fits, low, high)
    exponent = math.frexp(found)[1] - BITS
    whole = math.floor(math.ldexp(found * (1 - _MARGIN), -exponent))
    while not fits(math.ldexp(whole, exponent)):
        whole -= 1
    return math.ldexp(whole, exponent)


def least_epsilon(rho: float, least: float, *, delta: float) -> float:
    """The smallest epsilon that such noise is known to keep at ``delta``, rounded up; infinite if there is none."""

    def fails(epsilon: float) -> bool:
        return not keeps(rho, least, epsilon=epsilon, delta=delta)

    high = 4 * (rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-9)  # zCDP keeps a quarter
    low = high * 1e-12
    if not fails(low):
        return low
    if fails(high):
        return math.inf
    found = _border(fails, low, high)
    while fails(found):
        found *= 1 + _MARGIN
    return found


def _border(holds: Callable[[float], bool], low: float, high: float) -> float:
    """About the last number at which something holds that holds at ``low``, and not at ``high``."""
    while high / low > 1 + _SETTLED:
        middle = low * math.sqrt(high / low)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
