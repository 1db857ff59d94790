"""The default mechanisms for tables as running counts: all at every tick, or larger ones at refreshes alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from synthstream.kernel.counters import Counter, State
from synthstream.kernel.counters.base import clip, inner, outer
from synthstream.kernel.counters.dense import Dense
from synthstream.kernel.gate import Gate
from synthstream.kernel.spending import Mechanism
from synthstream.kinds import Split
from synthstream.measured import Measured, fingerprint_of
from synthstream.privacy import Claim, least_of
from synthstream.strategies.combined import Combined
from synthstream.strategies.shares import at_every_tick, at_refreshes
from synthstream.strategies.times import Refreshes, RefreshTimes, refuse_growth
from synthstream.strategies.variances import resolution_for
from synthstream.workload import FloatArray, IntArray, Workload


@dataclass(frozen=True, kw_only=True)
class TableMechanism(Mechanism, ABC):
    """A mechanism that measures tables.

    Args:
        workload: the tables and their cells.
        kind: which counter counts at every tick; ``auto`` takes the most accurate.
    """

    workload: Workload
    kind: str = "auto"

    @property
    def order(self) -> IntArray:
        """See :class:`Workload`."""
        return self.workload.order

    @cached_property
    def counter(self) -> Counter:
        """The counter of what is measured at every tick."""
        return self.counted(self.kind)

    def refuse_too_wide(self, fits: bool) -> None:
        """See :meth:`refuse_unless`."""
        tables = f"{len(self.workload.marginals)} tables, the total among them"
        self.refuse_unless(fits, tables, ". Measure fewer tables, or allow more.")

    @abstractmethod
    def variance(self, tick: int) -> FloatArray:
        """Noise variance of a cell of each table that is measured at a tick, ``(marginals,)``; NaN if not known."""

    def measured(self, tick: int, positions: list[int], values: FloatArray, **more: Any) -> Measured:
        """What was measured at a tick: tables at these positions of the workload, their values, and more facts."""
        more = {"variance": self.variance(tick)[positions]} | more
        return Measured(tick=tick, workload=self.workload.only(positions), values=values, **more)


@dataclass(frozen=True, kw_only=True)
class Marginals(TableMechanism):
    """All marginals of a workload, one counter over all their cells, the budget split by a public key.

    Privacy:
        Unit        one event; neighbours: add-remove (one cell of each marginal changes by one, in one tick) or
                    replace-one (two cells of each marginal change by one, in one tick; if events are signed, also
                    one cell by two)
        Cost        the whole budget, once: sum over marginals of epsilon_q or rho_q
        Theorem     marginals, and that of the counter
        Trusts      the workload, the split and the clock are public
    Accuracy:       variance(t) of the counter, for each marginal at its share of the budget
    Time, memory:   those of the counter over all cells

    Args:
        workload: the marginals and their cells.
        budget: what all releases together may cost.
        horizon: number of ticks; ``None`` for no end.
        split: ``equal``, every marginal the same share; ``sqrt-cells``, in proportion to the square root of the cells;
            ``by-order``, 2 % for the total, 58 % for marginals of one column by the square root of their cells, 40 %
            for larger ones, each the same; ``auto``, by-order for pure DP, and for zCDP equal, but a tenth at most for
            the total.
        weights: of each marginal beside others of its order, before the split; left out: all the same.

    Raises:
        ValueError: the counter does not serve the horizon or the kind of budget, or the budget is too small.

    Example:
        >>> from synthstream.privacy import Budget
        >>> workload = Workload.all_up_to(1, sizes=(2, 3))
        >>> mechanism = Marginals(workload=workload, budget=Budget(epsilon=1.0, delta=1e-9), horizon=100)
        >>> mechanism.claim().rho <= mechanism.budget.rho
        True
        >>> round(mechanism.variance(99)[1] ** 0.5)
        22
    """

    theorem: ClassVar[str] = "marginals"

    split: Split = "auto"
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        self.refuse_too_wide(self.counter.draws(float(self.multipliers.max())))

    @cached_property
    def shares(self) -> FloatArray:
        """Share of the budget of each marginal, shape ``(marginals,)``; they add up to 1."""
        return at_every_tick(self.workload, self.split, pure=self.budget.pure, weights=self.weights)

    @cached_property
    def multipliers(self) -> FloatArray:
        """Noise per unit of sensitivity for each marginal, shape ``(marginals,)``, rounded up to fit the budget."""
        least = self.counter.least(float(np.sqrt(self.squared / (2 * self.shares.max()))))
        return self.multipliers_of(self.shares, self.whole(least))

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        cost = self.cost_of(self.multipliers.tolist())
        least, public = self.counter.least(float(self.multipliers.min())), "schema, workload, clock and budget split"
        return self.claimed(cost, [self.counter.theorem], public=public, least=least)

    def variance(self, tick: int) -> FloatArray:
        """Noise variance of each cell of each marginal after a tick, shape ``(marginals,)``. Public."""
        return self.covariance(tick, tick)

    def covariance(self, s: int, t: int) -> FloatArray:
        """Covariance of the noise in a cell's values after ticks ``s`` and ``t``, shape ``(marginals,)``. Public.

        So the count of what came after tick s, up to tick t, has the variance of both less twice this. Rounding to the
        resolution is taken to be independent between ticks.
        """
        unique, inverse = np.unique(self.multipliers, return_inverse=True)
        noise = np.array([self.counter.covariance(s, t, multiplier=float(m)) for m in unique])[inverse]
        return noise + self.resolution**2 / 12 if s == t else noise

    @cached_property
    def resolution(self) -> float:
        """Released values are whole multiples of this power of two."""
        return resolution_for(self.counter.variance(0, multiplier=float(self.multipliers.min())))

    def fingerprint(self) -> str:
        """Hash of every number that decides how values are encoded and how much noise they get: SHA-256, hexadecimal.

        A stream may only go on with the numbers it began with: the proofs hold for one fixed encoder.
        """
        facts = [self.multipliers.tolist(), self.counter.facts(), self.resolution, self.workload.marginals]
        return fingerprint_of([*facts, *(["signed"] if self.unit.signed else [])])

    def init(self) -> State:
        """The state before the first tick."""
        return self.counter.init(self.workload.cells)

    def step(self, state: State, counts: IntArray, gate: Gate) -> tuple[State, Measured]:
        """Close one tick.

        Args:
            state: what the last step returned; it is not changed.
            counts: the tick's exact counts, int64, shape ``(cells,)``.
            gate: the source of noise.

        Raises:
            HorizonExhausted: all ticks have been released.
        """
        tick = int(state["t"])
        multiplier = np.repeat(self.multipliers, self.workload.lengths)
        after, estimate = self.counter.step(state, counts, gate, multiplier=multiplier)
        return after, self.unpacked(tick, np.rint(estimate / self.resolution).astype(np.int64))

    def unpacked(self, tick: int, released: IntArray) -> Measured:
        """What was measured at a tick, from released values in units of the resolution."""
        return self.measured(tick, list(range(self.order.size)), released * np.float64(self.resolution))


@dataclass(frozen=True, kw_only=True)
class Refreshed(TableMechanism):
    """The total and tables of one column at every tick; at refreshes these, better, and all larger tables.

    A refresh comes when the stream is ``growth`` times as old as at the one before. Some may come early, after a tick
    in which the released total moved by as much. Between refreshes, a table of one column is what it was at the last
    refresh, plus what has come since.

    Privacy:
        Unit        one event; neighbours: add-remove or replace-one, as in :class:`Marginals`
        Cost        the whole budget, once: sum over tables of rho at every tick and of rho at refreshes
        Theorem     refreshed, marginals, dense, and that of the counter at every tick
        Trusts      the workload, the parts and the clock are public
    Accuracy:       variance(t)
    Time, memory:   O(cells refreshes) at a refresh; 16 cells refreshes bytes of state

    Args:
        workload: the tables; the total ``()`` and at least one larger than one column are among them.
        budget: what all releases together may cost; delta is above 0.
        horizon: number of ticks; ``None`` for no end.
        growth: how much older the stream is at a refresh than at the one before; above 1.
        weights: of each table within its part of the budget; left out: all the same, or what ``at_refreshes`` says.
        early: so many refreshes, at most, may have come before their time; 0: all come when the clock says so.

    Raises:
        ValueError: an argument is out of range, or the budget is too small.

    Example:
        >>> from synthstream.privacy import Budget
        >>> workload = Workload.all_up_to(2, sizes=(2, 3))
        >>> mechanism = Refreshed(workload=workload, budget=Budget(epsilon=1.0, delta=1e-9), horizon=20)
        >>> [tick for tick in range(20) if mechanism.times.comes(tick)]
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 18, 19]
        >>> float(mechanism.claim().rho / mechanism.budget.rho) <= 1
        True
    """

    theorem: ClassVar[str] = "refreshed"

    growth: float = 1.1
    weights: tuple[float, ...] | None = None
    early: int = 0

    def __post_init__(self) -> None:
        if () not in self.workload.marginals or not np.any(self.order == 2):
            only = 'for tables of one column alone use measure = "always"'
            raise ValueError(f"workload: the total () and a table of two columns or more must be measured; {only}")
        if self.budget.pure:
            raise ValueError("delta must be above 0: tables that are refreshed are measured with Gaussian noise")
        refuse_growth(self.growth)
        widest, counters = float(max(*self.at_ticks, *self.at_refreshes)), (self.counter, self.larger, self.singles)
        self.refuse_too_wide(all(how.draws(widest) for how in counters))

    # -- public facts -------------------------------------------------------------------------------------------

    @cached_property
    def times(self) -> RefreshTimes:
        """When there are refreshes, if none comes early."""
        return RefreshTimes(self.growth, self.horizon, self.early)

    @cached_property
    def singles(self) -> Dense:
        """The counter of tables of one column at refreshes."""
        return self._dense(0)

    @cached_property
    def larger(self) -> Dense:
        """The counter of larger tables."""
        return self._dense(int(np.sum(self.order == 2)))

    def _dense(self, larger: int) -> Dense:
        weights = self.times.weights(larger)
        return Dense(weights=weights, horizon=None if self.horizon is None else len(weights))

    @cached_property
    def _shares(self) -> tuple[FloatArray, FloatArray]:
        """Shares of the budget of each table, at every tick and at refreshes."""
        return at_refreshes(self.workload, weights=self.weights)

    @cached_property
    def at_ticks(self) -> FloatArray:
        """Noise per unit of sensitivity of each table at every tick, shape ``(marginals,)``; 0 where it has none."""
        return self.multipliers_of(self._shares[0], self._rho)

    @cached_property
    def at_refreshes(self) -> FloatArray:
        """The same at refreshes."""
        return self.multipliers_of(self._shares[1], self._rho)

    @cached_property
    def _rho(self) -> float:
        """What all tables together may cost."""
        return self.whole(self._least(*(self.multipliers_of(part, 1.0) for part in self._shares)))

    def _least(self, at_ticks: FloatArray, at_refreshes: FloatArray) -> Fraction | None:
        """Least variance of any draw, of all three counters."""
        parts = ((self.counter, at_ticks), (self.singles, at_refreshes), (self.larger, at_refreshes))
        return least_of(how.least(float(drawn[drawn > 0].min())) for how, drawn in parts)

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        cost = self.cost_of(m for m in [*self.at_ticks.tolist(), *self.at_refreshes.tolist()] if m > 0)
        theorems = ["marginals", self.larger.theorem, self.counter.theorem]
        public = "schema, workload, clock, refreshes and budget split"
        return self.claimed(cost, theorems, public=public, least=self._least(self.at_ticks, self.at_refreshes))

    def variance(self, tick: int, came: Refreshes | None = None) -> FloatArray:
        """Noise variance of each cell of each table as it is known after a tick, shape ``(marginals,)``. Public.

        Args:
            came: refreshes as they came; left out: as planned.
        """
        return np.asarray(self.covariance(tick, tick, came) + self.resolution**2 / 12)

    def covariance(self, s: int, t: int, came: Refreshes | None = None) -> FloatArray:
        """Covariance of the noise in a cell's values as they are known after two ticks, shape ``(marginals,)``. Public.

        Rounding to the resolution is taken to be independent between ticks.
        """
        return self.combined._replace(came=came).covariance(s, t)

    @cached_property
    def combined(self) -> Combined:
        """How counts at every tick and at refreshes are put together, each series by its variance."""
        noise = self.at_ticks**2, self.at_refreshes**2
        return Combined(self.order, self.times, *noise, self.counter, self.singles, self.larger)

    @cached_property
    def resolution(self) -> float:
        """Released values are whole multiples of this power of two."""
        return resolution_for(float(min(self.covariance(0, 0))))

    def fingerprint(self) -> str:
        """Hash of every number that decides how values are encoded and how much noise they get."""
        facts = [self.at_ticks.tolist(), self.at_refreshes.tolist(), self.growth, self.singles.facts()]
        facts += [self.larger.facts(), self.counter.facts(), self.resolution, self.workload.marginals, self.unit.signed]
        return fingerprint_of([*facts, *([self.early] if self.early else [])])

    # -- drawing ------------------------------------------------------------------------------------------------

    @cached_property
    def _cells(self) -> tuple[IntArray, IntArray, IntArray]:
        """Positions of the cells of the total, of tables of one column, and of larger ones."""
        order = np.repeat(self.order, self.workload.lengths)
        return np.flatnonzero(order == 0), np.flatnonzero(order == 1), np.flatnonzero(order == 2)

    def init(self) -> State:
        """The state before the first tick."""
        total, singles, larger = self._cells
        state = {"t": np.array(0), "open": np.zeros(self.workload.cells, dtype=np.int64), "gap": np.zeros(singles.size)}
        state |= outer(self.counter.init(total.size + singles.size), "ticks.")
        state |= outer(self.singles.init(singles.size), "singles.") | outer(self.larger.init(larger.size), "larger.")
        return state | ({"came": np.zeros(0, dtype=np.int64), "total": np.array(0.0)} if self.early else {})

    def step(self, state: State, counts: IntArray, gate: Gate) -> tuple[State, Measured]:
        """Close one tick: see :meth:`Marginals.step`. Whether larger tables are measured depends on releases alone."""
        tick, (total, singles, larger) = int(state["t"]), self._cells
        often = np.concatenate([total, singles])
        at_ticks, anew = np.repeat((self.at_ticks, self.at_refreshes), self.workload.lengths, axis=1)
        ticks, known = self.counter.step(inner(state, "ticks."), counts[often], gate, multiplier=at_ticks[often])
        before = Refreshes(tuple(state["came"].tolist())) if self.early else self.times.up_to(tick - 1)
        came = self.combined.after(tick, before, (float(state.get("total", 0.0)), float(known[0])))
        after = state | outer(ticks, "ticks.") | {"t": np.array(tick + 1), "open": state["open"] + clip(counts)}
        after |= {"came": np.array(came.ticks), "total": known[0]} if self.early else {}
        values = np.zeros(self.workload.cells)
        values[often] = known
        if refresh := came != before:
            found = np.zeros(self.workload.cells)
            for name, dense, cells in (("singles.", self.singles, singles), ("larger.", self.larger, larger)):
                part, found[cells] = dense.step(inner(state, name), after["open"][cells], gate, multiplier=anew[cells])
                after |= outer(part, name)
            values[larger] = found[larger]
            after |= {"open": np.zeros_like(after["open"]), "gap": (found - values)[singles]}
        pull = np.repeat(self.combined._replace(came=came).pull(tick), self.workload.lengths)
        values[singles] += pull[singles] * after["gap"]
        shown = (self.order < 2) | refresh
        units = np.rint(values[np.repeat(shown, self.workload.lengths)] / self.resolution).astype(np.int64)
        return after, self.known(tick, np.flatnonzero(shown).tolist(), units * np.float64(self.resolution), came)

    def known(self, tick: int, positions: list[int], values: FloatArray, came: Refreshes) -> Measured:
        """What was measured at a tick, and when larger tables were, up to it."""
        at, tables = np.array(came.ticks) if self.early else None, self.workload.only(positions)
        variance = self.variance(tick, came)[positions]
        return Measured(tick=tick, workload=tables, values=values, variance=variance, refreshed=at)
