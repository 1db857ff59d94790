"""Budgets, units and claims; zCDP and its conversion to (epsilon, delta).

A budget is what the custodian allows; a claim is what a mechanism promises, and why. Both are public.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from synthstream.accounting.gaussian import keeps, largest_rho, least_epsilon
from synthstream.accounting.zcdp import BITS, LARGEST_DELTA, SMALLEST_DELTA, coarse, epsilon_for, rho_for
from synthstream.errors import BudgetExceeded
from synthstream.kinds import spelled

Neighbours = Literal["add-remove", "replace-one"]

# The theorem by which Gaussian noise may be smaller than zCDP allows.
EXACT = "exact-gaussian"

# Less than this for one event is no budget: noise of a million events, and conversions lose their digits.
_SMALLEST_EPSILON, _SMALLEST_RHO = 1e-6, 1e-12
# More than this promises nothing at all, and conversions leave the floats.
LARGEST_EPSILON = 1e6


# Factors that a scale of noise, or a cost, is rounded by: far more than what rounding of the few products that make it
# may take away, so that the exact claim stays within the budget.
WIDER, CHEAPER = 1 + 1e-12, 1 - 1e-12


def stated(value: float) -> str:
    """An epsilon or a delta in words: in six digits, or as many as it takes to promise no more than is kept.

    Rounded down it is off by no more than noise is wider than it has to be.

    Example:
        >>> stated(1.0), stated(1e-9), stated(math.log(2)), stated(math.log(3)), stated(0.1 + 0.2)
        ('1', '1e-09', '0.6931472', '1.0986123', '0.3')
    """
    texts = (f"{value:.{digits}g}" for digits in range(6, 18))
    return next(text for text in texts if float(text) >= value * CHEAPER)


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
        'all events of any one person that come to be counted within any one period of 30d (at most 20 count)'
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
    def limits(self) -> dict[str, Any]:
        """What limits a person, by the keys of claims and of settings; of an event nothing."""
        keys = ("max_events", "max_per_tick", "per") if self.of_persons else ()
        return {key: getattr(self, key) for key in keys}

    @property
    def in_a_tick(self) -> int:
        """How many events of one unit count in one tick at most."""
        return self.max_events if self.max_per_tick is None else min(self.max_per_tick, self.max_events)

    @property
    def events(self) -> int:
        """How many events of one unit count at most, for life or in one period: no more than its ticks let in."""
        return self.events_in(None)

    def events_in(self, ticks: int | None) -> int:
        """The same of a stream of so many ticks, which let no more in; ``None`` for no end."""
        spans = [span for span in (self.period, ticks) if span is not None]
        return min([self.max_events, *(span * self.in_a_tick for span in spans)])

    @property
    def words(self) -> str:
        """The unit in a few plain words."""
        if not self.of_persons:
            signs = ", adding or taking away; a row that is changed, or written anew, is two" if self.signed else ""
            return f"any single event (one row{signs})"
        when = "" if self.per is None else f" that come to be counted within any one period of {self.per}"
        tick = "" if self.max_per_tick is None else f", {self.in_a_tick} in a tick"
        return f"all events of any one person{when} (at most {self.max_events} count{tick})"

    @property
    def meaning(self) -> str:
        """What its protection means, and where it ends, in plain sentences."""
        if not self.of_persons:
            return (
                "Whoever sees all releases learns almost the same whether or not any one row was in the stream. "
                "Each row is protected, not each person: somebody with many rows is protected less."
            )
        tick = "" if self.max_per_tick is None else f", {self.in_a_tick} in a tick"
        signed = " A row that takes an event away counts as one of them." if self.signed else ""
        period = "" if self.per is None else " in a period"
        rows = "1 row counts" if self.max_events == 1 else f"{self.max_events} rows count"
        dropped = f"Of each person at most {rows}{period}{tick}; further ones are left out, and nobody is told.{signed}"
        learns = "Whoever sees all releases learns almost the same whether or not any one person was"
        if self.per is None:
            return f"{learns} in the stream, as long as a person has one key. {dropped}"
        return (
            f"{learns} there in any one period of {spelled(self.per)}, as long as a person has one key. Periods are "
            "fixed: they follow each other from the start of the clock, and a row that comes late belongs to the one "
            "in which it comes. A person who is there in k periods is protected less: epsilon counts k times, and with "
            f"delta above 0 more. {dropped}"
        )


EVENT = Unit()


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the whole stream may cost, for ever. ``delta = 0`` asks for pure epsilon-DP.

    Args:
        epsilon, delta: of the promise.
        exact: whether Gaussian noise is sized by its exact law where that allows more than zCDP does.
        of: if this is the share of one event: the budget of its group, and the sensitivity of the group divided by that
            of one event.

    Raises:
        ValueError: epsilon is not from 1e-6 to 1e6, or delta is neither 0 nor in [1e-100, 0.5).

    Example:
        >>> Budget(epsilon=1.0, delta=0.0).pure
        True
        >>> round(float(Budget(epsilon=1.0, delta=1e-9).rho), 5)
        0.01497
    """

    epsilon: float
    delta: float
    exact: bool = False
    of: tuple[Budget, Fraction] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            raise ValueError(
                f"epsilon must be from {_SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}, not {self.epsilon}: it bounds "
                "how much releases tell of one event or person, and the smaller it is, the larger the noise. 1 is usual"
            )
        if self.delta != 0 and not SMALLEST_DELTA <= self.delta < LARGEST_DELTA:
            raise ValueError(f"delta must be 0, or from 1e-100 to below 0.5, not {self.delta}")

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

    def spendable(self, unit: Fraction | None) -> Fraction:
        """The largest rho that discrete Gaussian noise may cost: that of zCDP, or more if ``exact``.

        Args:
            unit: the least variance of any draw, in units of its integers, if rho were 1; ``None`` if other noise is
                drawn too.

        Example:
            >>> round(float(Budget(epsilon=1.0, delta=1e-9, exact=True).spendable(Fraction(1000))), 5)
            0.01656
        """
        if not self.exact or self.pure or unit is None:
            return self.rho
        whole, factor = self.of or (self, Fraction(1))
        found = largest_rho(whole.epsilon, delta=whole.delta, unit=below(unit * factor**2))
        return max(self.rho, Fraction(below(Fraction(found) / factor**2)))

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
        while whole >= _SMALLEST_RHO and delta >= SMALLEST_DELTA:
            epsilon, step = epsilon_for(below(whole), delta=delta), 2.0**-BITS
            while epsilon >= _SMALLEST_EPSILON:
                epsilon = coarse(epsilon)
                found = replace(self, epsilon=epsilon, delta=delta, of=(self, factor))
                if found.rho <= whole:
                    return found
                epsilon, step = epsilon * (1 - step), min(2 * step, 0.5)
            delta **= 2  # so small a rho is within this delta by itself, and needs no epsilon
        raise ValueError(_too_little(self, factor))

    def covers(self, rho: Fraction, pure: Fraction | None, least: Fraction | None = None) -> bool:
        """Whether a cost stays within the budget: by pure epsilon, by rho, or by the law of Gaussian noise itself.

        The first two are compared in exact arithmetic, the last in floats with margins (theorem ``exact-gaussian``).

        Args:
            rho, pure, least: see :class:`Claim`.
        """
        if pure is not None and pure <= Fraction(self.epsilon):
            return True
        if self.pure or least is None or rho <= self.rho:
            return not self.pure and rho <= self.rho
        return keeps(above(rho), below(least), epsilon=self.epsilon, delta=self.delta)

    def charge(self, claim: Claim) -> None:
        """Charge a continual mechanism, once, for its whole life. There are no refunds, and there is no second charge.

        Raises:
            BudgetExceeded: the claim exceeds the budget; see :meth:`covers`.
        """
        if not claim.fits(self):
            raise BudgetExceeded(
                f"The ledger refuses this charge: the budget is epsilon = {stated(self.epsilon)}, "
                f"delta = {stated(self.delta)}, and this one would exceed it. No noise was drawn."
            )


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a mechanism promises for its whole life.

    Args:
        unit: who is protected.
        neighbours: ``add-remove`` (one unit more or less) or ``replace-one`` (one unit changed).
        rho: zCDP parameter, exact.
        pure: epsilon of pure DP, exact; ``None`` if the mechanism uses Gaussian noise.
        least: if all noise is discrete Gaussian, on integers, and on every path of outputs the changes that one unit
            makes cost rho together: the least variance of any draw that it may change, exact; otherwise ``None``.
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
    least: Fraction | None = None

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that this claim gives at ``delta``, rounded up."""
        found = [] if self.pure is None else [above(self.pure)]
        if delta or not found:
            found.append(epsilon_for(above(self.rho), delta=delta))
        if self.least is not None and self.rho:
            found.append(least_epsilon(above(self.rho), below(self.least), delta=delta))
        return min(found)

    def fits(self, budget: Budget) -> bool:
        """Whether the claim stays within the budget; see :meth:`Budget.covers`."""
        return budget.covers(self.rho, self.pure, self.least)

    def charged_to(self, budget: Budget) -> Claim:
        """The same, with the theorem by which it fits a budget if neither zCDP nor pure DP says so."""
        plain = budget.covers(self.rho, self.pure)
        return self if plain else replace(self, theorems=(*self.theorems, EXACT))

    def of_group(self, unit: Unit, factor: Fraction, *, theorem: str) -> Claim:
        """What the claim for one event promises for a group of them: ``unit``, who has at most ``unit.events``,
        and no more than all ticks let in.

        Pure DP costs as many times as much as there are events; rho costs ``factor**2`` times as much, and the noise
        is what it was. Theorem: group; participation, if ``factor`` is below the number of events.

        Raises:
            ValueError: the claim is not for one event more or less.
        """
        if self.unit.of_persons or self.neighbours != "add-remove":
            raise ValueError("only a claim for one event more or less can be carried over to a person")
        return replace(
            self,
            unit=unit,
            rho=self.rho * factor**2,
            pure=None if self.pure is None else self.pure * unit.events_in(self.horizon),
            theorems=(*self.theorems, theorem),
            trusts=(*self.trusts, "each person has one key in the person column; keyed hashes of keys do not collide"),
        )

    def words(self, budget: Budget) -> str:
        """One precise sentence."""
        span = "for ever" if self.horizon is None else f"over all {self.horizon} ticks"
        kind = (
            f"{stated(budget.epsilon)}-differential privacy (pure)"
            if budget.pure
            else f"({stated(budget.epsilon)}, {stated(budget.delta)})-differential privacy"
        )
        replaced = "replaced by another one of the same tick"
        change = {"add-remove": "added or removed", "replace-one": replaced}[self.neighbours]
        provided = "".join(f", provided that {fact}" for fact in self.provided)
        return f"All releases together, {span}, satisfy {kind} for {self.unit.words} being {change}{provided}."


def compose(claims: Iterable[Claim]) -> tuple[Fraction, Fraction | None, Fraction | None]:
    """What several claims on the same unit cost together: (rho, pure epsilon, least variance), or ``None`` for these.

    The first two simply add up. Source: Bun and Steinke 2016, Lemma 1.7 (zCDP); Dwork et al. 2006 (pure DP).
    """
    listed = list(claims)
    rho = sum((claim.rho for claim in listed), Fraction(0))
    parts = [claim.pure for claim in listed]
    pure = None if None in parts else sum((p for p in parts if p is not None), Fraction(0))
    return rho, pure, least_of(claim.least for claim in listed)


def least_of(variances: Iterable[Fraction | None]) -> Fraction | None:
    """The least of some variances; ``None`` if one is, or if there are none."""
    listed = list(variances)
    return None if None in listed else min((v for v in listed if v is not None), default=None)


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
