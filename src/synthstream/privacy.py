"""Budgets, units and claims; zCDP and its conversion to (epsilon, delta).

A budget is what the custodian allows; a claim is what a mechanism promises, and why. Both are public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Literal

from scipy.optimize import brentq, minimize_scalar

Neighbours = Literal["add-remove", "replace-one"]

# Relative safety margin for the float evaluation of the conversions below: their terms are at most a few
# hundred, each correct to about 1e-15, and the exponent is exponentiated once.
_MARGIN = 1e-9

# A delta outside of this promises nothing, or is beyond what floats can tell from none.
_SMALLEST_DELTA, _LARGEST_DELTA = 1e-100, 0.5

# What a row is replaced by; earlier versions left it to the theorems.
_SAME_TICK = " by another one of the same tick"

# Less than this for one event is no budget: noise of a million events, and conversions lose their digits.
_SMALLEST_EPSILON, _SMALLEST_RHO = 1e-6, 1e-12


# Factors that a scale of noise, or a cost, is rounded by: far more than what rounding of the few products that make it
# may take away, so that the exact claim stays within the budget.
WIDER, CHEAPER = 1 + 1e-12, 1 - 1e-12


def l1_sensitivity(neighbours: Neighbours) -> int:
    """How far one unit moves a table, as a sum over its cells: 1 if a row comes or goes, 2 if it is replaced."""
    return 1 if neighbours == "add-remove" else 2


def squared_l2(neighbours: Neighbours, *, signed: bool) -> int:
    """The same as a sum of squares: a row that is replaced moves two cells by one, or one by two if its sign turns."""
    return l1_sensitivity(neighbours) ** 2 if signed else l1_sensitivity(neighbours)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Who is protected: a single ``event``, one row of the stream; or a ``person`` with all events that count.

    Args:
        signed: whether a row may take an event away. Then a row put in the place of another may move one count by two.
        max_events: of one person, how many events count at most; 1 for an event.
        max_per_tick: of one person, how many count in one tick at most; ``None`` for no such limit.
        per: the length of a period as it was configured; ``None`` if ``max_events`` is for life.
        period: the same in ticks.

    Raises:
        ValueError: a limit is below 1.

    Example:
        >>> Unit(kind="person", max_events=20, per="30d", period=30).words
        'all events of any one person that fall within any one period of 30d (at most 20 count)'
    """

    kind: Literal["event", "person"] = "event"
    signed: bool = False
    max_events: int = 1
    max_per_tick: int | None = None
    per: str | None = None
    period: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_events", "max_per_tick", "period"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")

    @property
    def of_persons(self) -> bool:
        """Whether it is a person."""
        return self.kind == "person"

    @property
    def in_a_tick(self) -> int:
        """How many events of one unit count in one tick at most."""
        return self.max_events if self.max_per_tick is None else min(self.max_per_tick, self.max_events)

    @property
    def events(self) -> int:
        """How many events of one unit count at most, for life or in one period: no more than its ticks let in."""
        return self.max_events if self.period is None else min(self.max_events, self.period * self.in_a_tick)

    @property
    def words(self) -> str:
        """The unit in a few plain words."""
        if not self.of_persons:
            return "any single event (one row, adding or taking away)" if self.signed else "any single event (one row)"
        when = "" if self.per is None else f" that fall within any one period of {self.per}"
        tick = "" if self.max_per_tick is None else f", {self.in_a_tick} in a tick"
        return f"all events of any one person{when} (at most {self.max_events} count{tick})"

    @property
    def meaning(self) -> str:
        """What its protection means, and where it ends, in plain sentences."""
        if not self.of_persons:
            return (
                "Whoever sees all releases learns almost the same whether or not any one row was in the stream. "
                "Someone with many rows is protected less: the promise is for each row."
            )
        tick = "" if self.max_per_tick is None else f", {self.in_a_tick} in a tick"
        signed = " A row that takes an event away counts as one of them." if self.signed else ""
        period = "" if self.per is None else " in a period"
        rows = "1 row counts" if self.max_events == 1 else f"{self.max_events} rows count"
        dropped = f"Of each person at most {rows}{tick}{period}; further ones are left out, and nobody is told.{signed}"
        learns = "Whoever sees all releases learns almost the same whether or not any one person was"
        if self.per is None:
            return f"{learns} in the stream, as long as a person has one key. {dropped}"
        return (
            f"{learns} there in any one period of {self.per}, as long as a person has one key. Periods are fixed: they "
            "follow each other from the start of the clock. A person who is there in k periods is protected k times "
            f"less than this says. {dropped}"
        )


EVENT = Unit()


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the whole stream may cost, for ever. ``delta = 0`` asks for pure epsilon-DP.

    Raises:
        ValueError: epsilon is not a finite number of at least 1e-6, or delta is neither 0 nor in [1e-100, 0.5).

    Example:
        >>> Budget(epsilon=1.0, delta=0.0).pure
        True
        >>> round(float(Budget(epsilon=1.0, delta=1e-9).rho), 5)
        0.01497
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon >= _SMALLEST_EPSILON):
            raise ValueError(
                f"epsilon must be a finite number of at least {_SMALLEST_EPSILON:g}, not {self.epsilon}: with less, "
                "the noise would be larger than a million events"
            )
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

    def per_event(self, factor: Fraction, *, by_pure: bool = False) -> Budget:
        """The budget of one event, if a group that costs ``factor`` times as much in norm may spend the whole.

        Args:
            factor: at least 1: number of events in the group; with Gaussian noise it may be less.
            by_pure: whether the mechanism spends epsilon alone, although delta would be allowed.

        Returns:
            A budget of ``epsilon / factor``, or one whose rho is ``rho / factor**2``, at the same delta if that is
            possible; rounded down, so that ``factor`` times (squared, for rho) what it allows is covered exactly.

        Raises:
            ValueError: so little is left for one event that it cannot be told from nothing.

        Example:
            >>> Budget(epsilon=1.0, delta=0.0).per_event(Fraction(4)).epsilon
            0.25
        """
        if factor < 1:
            raise ValueError(f"factor must be at least 1, not {factor}")
        if factor == 1:
            return self
        epsilon = below(Fraction(self.epsilon) / factor)
        if self.pure or by_pure:
            if not epsilon >= _SMALLEST_EPSILON:
                raise ValueError(_too_little(self, factor))
            return Budget(epsilon=epsilon, delta=self.delta)
        whole, delta = self.rho / factor**2, self.delta
        while whole >= _SMALLEST_RHO and delta >= _SMALLEST_DELTA:
            epsilon, step = epsilon_for(below(whole), delta=delta), 2 * _MARGIN
            while epsilon >= _SMALLEST_EPSILON:
                found = Budget(epsilon=epsilon, delta=delta)
                if found.rho <= whole:
                    return found
                epsilon, step = epsilon * (1 - step), min(2 * step, 0.5)
            delta **= 2  # so small a rho is within this delta by itself, and needs no epsilon
        raise ValueError(_too_little(self, factor))

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
        provided: what must hold of the data; part of the promise in words.
    """

    unit: Unit
    neighbours: Neighbours
    rho: Fraction
    pure: Fraction | None
    horizon: int | None
    theorems: tuple[str, ...]
    trusts: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that this claim gives at ``delta``, rounded up."""
        if self.pure is not None and delta == 0:
            return above(self.pure)
        tight = epsilon_for(above(self.rho), delta=delta)
        return tight if self.pure is None else min(tight, above(self.pure))

    def fits(self, budget: Budget) -> bool:
        """Whether the claim stays within the budget, in exact arithmetic."""
        return budget.covers(self.rho, self.pure)

    def of_group(self, unit: Unit, factor: Fraction, *, theorem: str) -> Claim:
        """What the claim for one event promises for a group of them: ``unit``, who has at most ``unit.events``.

        Pure DP costs as many times as much as there are events; rho costs ``factor**2`` times as much. Theorem: group;
        participation, if ``factor`` is below the number of events.

        Raises:
            ValueError: the claim is not for one event more or less.
        """
        if self.unit.of_persons or self.neighbours != "add-remove":
            raise ValueError("only a claim for one event more or less can be carried over to a person")
        return replace(
            self,
            unit=unit,
            rho=self.rho * factor**2,
            pure=None if self.pure is None else self.pure * unit.events,
            theorems=(*self.theorems, theorem),
            trusts=(*self.trusts, "each person has one key in the person column; keyed hashes of keys do not collide"),
        )

    def words(self, budget: Budget) -> str:
        """One precise sentence."""
        span = "for ever" if self.horizon is None else f"over all {self.horizon} ticks"
        kind = (
            f"{budget.epsilon:g}-differential privacy (pure)"
            if budget.pure
            else f"({budget.epsilon:g}, {budget.delta:g})-differential privacy"
        )
        change = {"add-remove": "added or removed", "replace-one": f"replaced{_SAME_TICK}"}[self.neighbours]
        provided = "".join(f", provided that {fact}" for fact in self.provided)
        return f"All releases together, {span}, satisfy {kind} for {self.unit.words} being {change}{provided}."

    def wordings(self, budget: Budget) -> tuple[str, ...]:
        """The sentence as it is said now, and as earlier versions said it: their streams keep theirs, in the chain."""
        now = self.words(budget)
        return tuple(dict.fromkeys([now, now.replace(_SAME_TICK, "")]))


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
        return above * (order * rho - epsilon) - order * math.log1p(1 / above) - log_order

    return min(1.0, math.exp(_least(log_delta, rho, epsilon)) * (1 + _MARGIN))


def _sought(rho: float, epsilon: float) -> float:
    """Nearly :func:`delta_for`, to look for a root with. At large orders, so at small epsilon, its digits cancel.

    Running streams were given their noise by a search in this form. A search in another one ends a few last digits
    beside it, and would not know them again. What it finds counts only once :func:`delta_for` has confirmed it.
    """

    def log_delta(log_order: float) -> float:
        above = math.exp(log_order)  # alpha - 1
        order = above + 1
        return above * (order * rho - epsilon) + order * (log_order - math.log1p(above)) - log_order

    return max(min(1.0, math.exp(_least(log_delta, rho, epsilon)) * (1 + _MARGIN)), 1e-300)


def _least(log_delta: Callable[[float], float], rho: float, epsilon: float) -> float:
    """About the least value of a bound on log delta over orders, given as log(alpha - 1)."""
    best = minimize_scalar(log_delta, bounds=(-20.0, 60.0), method="bounded", options={"xatol": 1e-12})
    # The bounded search may settle on a shelf; the order that is best without the last two terms is a good second try.
    guess = math.log(max((epsilon + rho) / (2 * rho) - 1, 1e-8))
    near = minimize_scalar(log_delta, bounds=(guess - 3, guess + 3), method="bounded", options={"xatol": 1e-12})
    return float(min(best.fun, near.fun))


@cache
def rho_for(epsilon: float, *, delta: float) -> float:
    """The largest rho whose zCDP implies (epsilon, delta)-DP by :func:`delta_for`, rounded down.

    Example:
        >>> round(rho_for(4.0, delta=1e-9), 3)
        0.206
    """
    _refuse_useless(delta)

    def gap(log_rho: float) -> float:
        return math.log(_sought(math.exp(log_rho), epsilon)) - math.log(delta)

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
    # Where the two forms disagree at 0, there is no root to look for, and next to nothing is enough.
    near_none = _sought(rho, 0.0) <= delta
    found = 1e-15 if near_none else brentq(lambda e: math.log(_sought(rho, e)) - math.log(delta), 0.0, high)
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


def below(value: Fraction) -> float:
    """The largest float that is at most ``value``."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def _too_little(budget: Budget, factor: Fraction) -> str:
    return (
        f"max_events: epsilon = {budget.epsilon:g} for a person leaves too little for one event, with noise for "
        f"{float(factor):.4g} of them. Let fewer events of a person count, or allow more"
    )
