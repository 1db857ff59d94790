"""Budgets, units and claims; zCDP and its conversion to (epsilon, delta).

A budget is what the custodian allows; a claim is what a mechanism promises, and why. Both are public.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from scipy.optimize import brentq, minimize_scalar

Neighbours = Literal["add-remove", "replace-one"]

# Relative safety margin for the float evaluation of the conversions below: their terms are at most a few
# hundred, each correct to about 1e-15, and the exponent is exponentiated once.
_MARGIN = 1e-9

# A delta outside of this promises nothing, or is beyond what floats can tell from none.
_SMALLEST_DELTA, _LARGEST_DELTA = 1e-100, 0.5


def moved_by(neighbours: Neighbours) -> int:
    """How far one unit moves a table, as a sum over its cells: 1 if a row comes or goes, 2 if it is replaced."""
    return 1 if neighbours == "add-remove" else 2


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Who is protected: a single ``event``, one row of the stream.

    Args:
        signed: whether a row may take an event away. Then a row put in the place of another may move one count by two.
    """

    kind: Literal["event"] = "event"
    signed: bool = False

    @property
    def words(self) -> str:
        """The unit in a few plain words."""
        return "any single event (one row, adding or taking away)" if self.signed else "any single event (one row)"


EVENT = Unit()


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the whole stream may cost, for ever. ``delta = 0`` asks for pure epsilon-DP.

    Raises:
        ValueError: epsilon is not a positive finite number, or delta is neither 0 nor in [1e-100, 0.5).

    Example:
        >>> Budget(epsilon=1.0, delta=0.0).pure
        True
        >>> round(float(Budget(epsilon=1.0, delta=1e-9).rho), 5)
        0.01497
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ValueError(f"epsilon must be a finite number above 0, not {self.epsilon}")
        if self.delta != 0 and not _SMALLEST_DELTA <= self.delta < _LARGEST_DELTA:
            raise ValueError(f"delta must be 0, or between 1e-100 and 0.5, not {self.delta}")

    @property
    def pure(self) -> bool:
        """Whether the budget asks for pure epsilon-DP."""
        return self.delta == 0

    @property
    def rho(self) -> Fraction:
        """The largest zCDP parameter that (epsilon, delta) allows; for a pure budget epsilon^2 / 2."""
        if self.pure:
            return Fraction(self.epsilon) ** 2 / 2
        return Fraction(rho_for(self.epsilon, delta=self.delta))

    def covers(self, rho: Fraction, pure: Fraction | None) -> bool:
        """Whether a cost stays within the budget, in exact arithmetic. Either currency may vouch for the whole."""
        by_pure = pure is not None and pure <= Fraction(self.epsilon)
        return by_pure or (not self.pure and rho <= self.rho)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a mechanism promises for its whole life.

    Args:
        unit: who is protected.
        neighbours: ``add-remove`` (one unit more or less) or ``replace-one`` (one unit changed).
        rho: zCDP parameter, exact.
        pure: epsilon of pure DP, exact; ``None`` if the mechanism uses Gaussian noise.
        horizon: number of ticks covered; ``None`` for no end.
        theorems: ids of files in ``docs/theorems``.
        trusts: what the proof takes for granted.
    """

    unit: Unit
    neighbours: Neighbours
    rho: Fraction
    pure: Fraction | None
    horizon: int | None
    theorems: tuple[str, ...]
    trusts: tuple[str, ...] = ()

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that this claim gives at ``delta``, rounded up."""
        if self.pure is not None and delta == 0:
            return above(self.pure)
        tight = epsilon_for(above(self.rho), delta=delta)
        return tight if self.pure is None else min(tight, above(self.pure))

    def fits(self, budget: Budget) -> bool:
        """Whether the claim stays within the budget, in exact arithmetic."""
        return budget.covers(self.rho, self.pure)

    def words(self, budget: Budget) -> str:
        """One precise sentence."""
        span = "for ever" if self.horizon is None else f"over all {self.horizon} ticks"
        kind = (
            f"{budget.epsilon:g}-differential privacy (pure)"
            if budget.pure
            else f"({budget.epsilon:g}, {budget.delta:g})-differential privacy"
        )
        change = {"add-remove": "added or removed", "replace-one": "replaced"}[self.neighbours]
        return f"All releases together, {span}, satisfy {kind} for {self.unit.words} being {change}."


def compose(claims: Iterable[Claim]) -> tuple[Fraction, Fraction | None]:
    """What several claims on the same unit cost together: (rho, pure epsilon or ``None``). Both simply add up.

    Source: Bun and Steinke 2016, Lemma 1.7 (zCDP); Dwork et al. 2006 (pure DP).
    """
    listed = list(claims)
    rho = sum((claim.rho for claim in listed), Fraction(0))
    parts = [claim.pure for claim in listed]
    pure = None if None in parts else sum((p for p in parts if p is not None), Fraction(0))
    return rho, pure


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
        return above * (order * rho - epsilon) + order * (log_order - math.log1p(above)) - log_order

    best = minimize_scalar(log_delta, bounds=(-20.0, 60.0), method="bounded", options={"xatol": 1e-12})
    # The bounded search may settle on a shelf; the order that is best without the last two terms is a good second try.
    guess = math.log(max((epsilon + rho) / (2 * rho) - 1, 1e-8))
    near = minimize_scalar(log_delta, bounds=(guess - 3, guess + 3), method="bounded", options={"xatol": 1e-12})
    return min(1.0, math.exp(min(best.fun, near.fun)) * (1 + _MARGIN))


def rho_for(epsilon: float, *, delta: float) -> float:
    """The largest rho whose zCDP implies (epsilon, delta)-DP by :func:`delta_for`, rounded down.

    Example:
        >>> round(rho_for(4.0, delta=1e-9), 3)
        0.206
    """
    _refuse_useless(delta)

    def gap(log_rho: float) -> float:
        return math.log(max(delta_for(math.exp(log_rho), epsilon=epsilon), 1e-300)) - math.log(delta)

    # rho = epsilon implies nothing useful at small delta; far below, delta vanishes.
    high = math.log(epsilon + 10 + math.log(1 / (1 - delta)))
    rho = math.exp(brentq(gap, high - 80, high, xtol=1e-14, rtol=1e-14)) * (1 - _MARGIN)
    while delta_for(rho, epsilon=epsilon) > delta:
        rho *= 1 - _MARGIN
    return rho


def epsilon_for(rho: float, *, delta: float) -> float:
    """The smallest epsilon that rho-zCDP is known to imply at ``delta``, rounded up."""
    if rho == 0:
        return 0.0
    _refuse_useless(delta)
    # Bun and Steinke 2016, Proposition 1.3 bounds it from above.
    high = rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-9
    if delta_for(rho, epsilon=0.0) <= delta:
        return 0.0
    found = brentq(lambda e: math.log(max(delta_for(rho, epsilon=e), 1e-300)) - math.log(delta), 0.0, high)
    epsilon = found * (1 + _MARGIN)
    while delta_for(rho, epsilon=epsilon) > delta:
        epsilon *= 1 + _MARGIN
    return float(epsilon)


def _refuse_useless(delta: float) -> None:
    if not _SMALLEST_DELTA <= delta < _LARGEST_DELTA:
        raise ValueError(f"delta must be between 1e-100 and 0.5 for zCDP, not {delta}")


def above(value: Fraction) -> float:
    """The smallest float that is at least ``value``."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
