"""zCDP and its conversion to (epsilon, delta)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from scipy.optimize import brentq, minimize_scalar

# Relative safety margin for the float evaluation of the conversions below: their terms are at most a few
# hundred, each correct to about 1e-15, and the exponent is exponentiated once.
MARGIN = 1e-9
# Binary digits that are kept of what a search finds: see :func:`coarse`.
BITS = 26

# A delta outside of this promises nothing, or is beyond what floats can tell from none.
SMALLEST_DELTA, LARGEST_DELTA = 1e-100, 0.5


def delta_for(rho: float, *, epsilon: float) -> float:
    """The smallest delta known to follow from rho-zCDP at ``epsilon``, rounded up.

    Every order alpha > 1 gives a valid bound, so the minimiser need not be exact.
    Source: Canonne, Kamath, Steinke 2020, Proposition 12.
    """
    if rho == 0:
        return 0.0

    def log_delta(log_order: float) -> float:
        above = math.exp(log_order)  # alpha - 1
        order = above + 1
        return above * (order * rho - epsilon) - order * math.log1p(1 / above) - log_order

    return min(1.0, math.exp(_least(log_delta, rho, epsilon)) * (1 + MARGIN))


def _sought(rho: float, epsilon: float) -> float:
    """Nearly :func:`delta_for`, to look for a root with. At large orders, so at small epsilon, its digits cancel.

    Running streams were given their noise by a search in this form. Another form gives noise that differs in the last
    digits, so that these streams would be refused. What it finds counts only once :func:`delta_for` has confirmed it.
    """

    def log_delta(log_order: float) -> float:
        above = math.exp(log_order)  # alpha - 1
        order = above + 1
        return above * (order * rho - epsilon) + order * (log_order - math.log1p(above)) - log_order

    return max(min(1.0, math.exp(_least(log_delta, rho, epsilon)) * (1 + MARGIN)), 1e-300)


def _least(log_delta: Callable[[float], float], rho: float, epsilon: float) -> float:
    """About the least value of a bound on log delta over orders, given as log(alpha - 1)."""
    best = minimize_scalar(log_delta, bounds=(-20.0, 60.0), method="bounded", options={"xatol": 1e-12})
    # The bounded search may settle on a shelf; the order that is best without the last two terms is a good second try.
    guess = math.log(max((epsilon + rho) / (2 * rho) - 1, 1e-8))
    near = minimize_scalar(log_delta, bounds=(guess - 3, guess + 3), method="bounded", options={"xatol": 1e-12})
    return float(min(best.fun, near.fun))


def coarse(value: float) -> float:
    """The largest number of 26 binary digits that is no larger: of what a search finds, platforms differ in the last.

    Example:
        >>> coarse(0.1) <= 0.1 < coarse(0.1) * (1 + 2**-25), coarse(1 / 3) * 2**27 % 1
        (True, 0.0)
    """
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.floor(math.ldexp(mantissa, BITS)), exponent - BITS)


@cache
def rho_for(epsilon: float, *, delta: float) -> float:
    """The largest rho whose zCDP implies (epsilon, delta)-DP by :func:`delta_for`, rounded down; see :func:`coarse`.

    Example:
        >>> round(rho_for(4.0, delta=1e-9), 3)
        0.206
    """
    _refuse_useless(delta)

    def gap(log_rho: float) -> float:
        return math.log(_sought(math.exp(log_rho), epsilon)) - math.log(delta)

    # rho = epsilon implies nothing useful at small delta; far below, delta vanishes.
    high = math.log(epsilon + 10 + math.log(1 / (1 - delta)))
    rho = math.exp(brentq(gap, high - 80, high, xtol=1e-14, rtol=1e-14)) * (1 - MARGIN)
    while delta_for(rho, epsilon=epsilon) > delta:
        rho *= 1 - MARGIN
    return coarse(rho)


def epsilon_for(rho: float, *, delta: float) -> float:
    """The smallest epsilon that rho-zCDP is known to imply at ``delta``, rounded up."""
    if rho == 0:
        return 0.0
    _refuse_useless(delta)
    # Bun and Steinke 2016, Proposition 1.3 bounds it from above.
    high = rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-9
    if delta_for(rho, epsilon=0.0) <= delta:
        return 0.0
    # Where the two forms disagree at 0, there is no root to look for, and next to nothing is enough.
    near_none = _sought(rho, 0.0) <= delta
    found = 1e-15 if near_none else brentq(lambda e: math.log(_sought(rho, e)) - math.log(delta), 0.0, high)
    epsilon = found * (1 + MARGIN)
    while delta_for(rho, epsilon=epsilon) > delta:
        epsilon *= 1 + MARGIN
    return float(epsilon)


def _refuse_useless(delta: float) -> None:
    if not SMALLEST_DELTA <= delta < LARGEST_DELTA:
        raise ValueError(f"delta must be between 1e-100 and 0.5 for zCDP, not {delta}")
