"""The default mechanism for tables under zCDP: small ones at every tick, larger ones whenever the stream has grown."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from synthstream.kernel.counters import Counter, State, counter
from synthstream.kernel.counters.base import clip, inner, outer, too_wide
from synthstream.kernel.counters.dense import Dense
from synthstream.kernel.gate import Gate
from synthstream.kernel.marginals import resolution_for
from synthstream.measured import Measured, fingerprint_of
from synthstream.privacy import EVENT, WIDER, Budget, Claim, Neighbours, Unit, least_of, squared_l2_sensitivity
from synthstream.workload import FloatArray, IntArray, Workload

# Parts of the budget: the total and tables of one column at every tick; tables of one column and larger ones at
# refreshes. Tables of one column get shares of a part in proportion to their cells to the one power at every tick, and
# to the other at refreshes.
_PARTS, _POWERS = (0.02, 0.11, 0.22, 0.65), (0.0, 0.6)
# The variance of a refresh counts in proportion to the ticks that it serves. That of larger tables also in proportion
# to their number so far, if this many tables or fewer are larger: the noise of many hides what they have in common, and
# late exactness cannot bring that back.
_FEW = 100
# A stream without end is served by so many refreshes, and begins anew with so many.
_ENDLESS = 64


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """The total and tables of one column at every tick; at refreshes these, better, and all larger tables.

    A refresh comes when the stream is ``growth`` times as old as at the one before. Between refreshes, a table of one
    column is what it was at the last refresh, plus what has come since.

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
        weights: of each table within its part of the budget; left out: all the same.

    Raises:
        ValueError: an argument is out of range, or the budget is too small.

    Example:
        >>> workload = Workload.all_up_to(2, sizes=(2, 3))
        >>> mechanism = Refreshed(workload=workload, budget=Budget(epsilon=1.0, delta=1e-9), horizon=20)
        >>> [tick for tick in range(20) if mechanism.refreshes(tick)]
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 18]
        >>> float(mechanism.claim().rho / mechanism.budget.rho) <= 1
        True
    """

    theorem: ClassVar[str] = "refreshed"

    workload: Workload
    budget: Budget
    horizon: int | None
    unit: Unit = EVENT
    neighbours: Neighbours = "add-remove"
    growth: float = 1.1
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if () not in self.workload.marginals or not np.any(self.order == 2):
            raise ValueError(
                "workload: the total () and a table of two columns or more must be measured at refreshes; for tables "
                'of one column alone use measure = "always"'
            )
        if self.budget.pure:
            raise ValueError("delta must be above 0: tables that are refreshed are measured with Gaussian noise")
        if not 1 < self.growth <= 100:
            raise ValueError(f"growth must be above 1 and at most 100, not {self.growth}")
        widest = float(max(self.at_ticks.max(), self.at_refreshes.max()))
        if not self.counter.draws(widest) or not self.larger.draws(widest) or not self.singles.draws(widest):
            raise too_wide(self.budget.epsilon, len(self.workload.marginals))

    # -- public facts -------------------------------------------------------------------------------------------

    @property
    def order(self) -> IntArray:
        """See :class:`Workload`."""
        return self.workload.order

    @cached_property
    def counter(self) -> Counter:
        """The counter at every tick."""
        return counter("auto", horizon=self.horizon, noise="gaussian")

    @cached_property
    def singles(self) -> Dense:
        """The counter of tables of one column at refreshes."""
        return self._dense(late=0.0)

    @cached_property
    def larger(self) -> Dense:
        """The counter of larger tables."""
        return self._dense(late=min(1.0, _FEW / int(np.sum(self.order == 2))))

    def _dense(self, *, late: float) -> Dense:
        if self.horizon is None:
            return Dense(weights=(1.0,) * _ENDLESS, horizon=None)
        weights = [(end - begin) * float(begin) ** late for begin, end in pairwise([*self._schedule, self.horizon + 1])]
        return Dense(weights=tuple(weights), horizon=len(weights))

    @cached_property
    def _schedule(self) -> tuple[int, ...]:
        """Ages in ticks at which tables are refreshed, up to the horizon: the last is as near to it as to the next."""
        age, found = float(round((self.horizon or 1) / math.sqrt(self.growth))), {1}
        while age >= 1:
            found.add(round(age))
            age /= self.growth
        return tuple(sorted(found))

    def refreshes(self, tick: int) -> bool:
        """Whether larger tables are measured at the end of this tick."""
        return self.refreshed(tick) == tick

    def refreshed(self, tick: int) -> int:
        """The newest tick up to this one at which larger tables were measured."""
        return self._last(tick)[0]

    def _last(self, tick: int) -> tuple[int, int]:
        """The newest refresh up to a tick: its tick, and its number from 0 on."""
        if self.horizon is not None:
            number = bisect_right(self._schedule, tick + 1) - 1
            return self._schedule[number] - 1, number
        age, number = 1, 0
        while (after := max(age + 1, math.ceil(age * self.growth))) <= tick + 1:
            age, number = after, number + 1
        return age - 1, number

    @cached_property
    def _parts(self) -> tuple[FloatArray, FloatArray]:
        """Shares of the budget of each table, at every tick and at refreshes; together they add up to 1."""
        weights = np.ones(self.order.size) if self.weights is None else np.array(self.weights)
        cells = [np.where(self.order == 1, weights * self.workload.lengths**power, 0.0) for power in _POWERS]
        often, singles = (each / (each.sum() or 1.0) for each in cells)
        larger = np.where(self.order == 2, weights / weights[self.order == 2].sum(), 0.0)
        ticks = np.where(self.order == 0, _PARTS[0], _PARTS[1] * often)
        refreshes = _PARTS[2] * singles + _PARTS[3] * larger
        whole = ticks.sum() + refreshes.sum()
        return ticks / whole, refreshes / whole

    @cached_property
    def at_ticks(self) -> FloatArray:
        """Noise per unit of sensitivity of each table at every tick, shape ``(marginals,)``; 0 where it has none."""
        return self._multipliers(self._parts[0], self._rho)

    @cached_property
    def at_refreshes(self) -> FloatArray:
        """The same at refreshes."""
        return self._multipliers(self._parts[1], self._rho)

    @cached_property
    def _rho(self) -> float:
        """What all tables together may cost."""
        return float(self.budget.spendable(self._least(*(self._multipliers(part, 1.0) for part in self._parts))))

    def _multipliers(self, shares: FloatArray, whole: float) -> FloatArray:
        squared = squared_l2_sensitivity(self.neighbours, signed=self.unit.signed)
        rho = np.where(shares > 0, whole * shares, np.inf)
        return np.asarray(np.sqrt(squared / (2 * rho)) * WIDER)

    def _least(self, at_ticks: FloatArray, at_refreshes: FloatArray) -> Fraction | None:
        """Least variance of any draw, of all three counters."""
        parts = ((self.counter, at_ticks), (self.singles, at_refreshes), (self.larger, at_refreshes))
        return least_of(how.least(float(drawn[drawn > 0].min())) for how, drawn in parts)

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        squared = squared_l2_sensitivity(self.neighbours, signed=self.unit.signed)
        drawn = [m for m in [*self.at_ticks.tolist(), *self.at_refreshes.tolist()] if m > 0]
        return Claim(
            unit=self.unit,
            neighbours=self.neighbours,
            rho=sum((squared / (2 * Fraction(m) ** 2) for m in drawn), Fraction(0)),
            pure=None,
            least=self._least(self.at_ticks, self.at_refreshes),
            horizon=self.horizon,
            theorems=(self.theorem, "marginals", self.larger.theorem, self.counter.theorem),
            trusts=("schema, workload, clock, refreshes and budget split are public",),
        )

    def variance(self, tick: int) -> FloatArray:
        """Noise variance of each cell of each table as it is known after a tick, shape ``(marginals,)``. Public."""
        return np.asarray(self.covariance(tick, tick) + self.resolution**2 / 12)

    def covariance(self, s: int, t: int) -> FloatArray:
        """Covariance of the noise in a cell's values as they are known after two ticks, shape ``(marginals,)``. Public.

        Rounding to the resolution is taken to be independent between ticks.
        """
        ticks, refreshes = self.at_ticks**2, self.at_refreshes**2
        (k, i), (m, j), a, b = self._last(s), self._last(t), self._pull(s), self._pull(t)
        own = self._at_ticks(s, t) - b * self._at_ticks(s, m) - a * self._at_ticks(k, t) + a * b * self._at_ticks(k, m)
        small = ticks * own + a * b * refreshes * self.singles.covariance(i, j, multiplier=1.0)
        return np.where(self.order == 2, refreshes * self.larger.covariance(i, j, multiplier=1.0), small)

    def _pull(self, tick: int) -> FloatArray:
        """How far each count is moved by what the last refresh found at its tick, by the least variance; 0 to 1."""
        (last, number), ticks = self._last(tick), self.at_ticks**2
        found = self.at_refreshes**2 * self.singles.variance(number, multiplier=1.0)
        pull = self._at_ticks(last, tick) * ticks / (self._at_ticks(last, last) * ticks + found + (self.order != 1))
        return np.where(self.order == 1, pull, 0.0)

    def _at_ticks(self, s: int, t: int) -> float:
        return self.counter.covariance(s, t, multiplier=1.0)

    @cached_property
    def resolution(self) -> float:
        """Released values are whole multiples of this power of two."""
        return resolution_for(float(min(self.covariance(0, 0))))

    def fingerprint(self) -> str:
        """Hash of every number that decides how values are encoded and how much noise they get."""
        facts = [self.at_ticks.tolist(), self.at_refreshes.tolist(), self.growth, self.singles.facts()]
        facts += [self.larger.facts(), self.counter.facts()]
        return fingerprint_of([*facts, self.resolution, self.workload.marginals, self.unit.signed])

    # -- drawing ------------------------------------------------------------------------------------------------

    @cached_property
    def _cells(self) -> tuple[IntArray, IntArray, IntArray]:
        """Positions of the cells of the total, of tables of one column, and of larger ones."""
        order = self._per_cell(self.order)
        return np.flatnonzero(order == 0), np.flatnonzero(order == 1), np.flatnonzero(order == 2)

    def init(self) -> State:
        """The state before the first tick."""
        total, singles, larger = self._cells
        return {
            "t": np.array(0),
            "open": np.zeros(self.workload.cells, dtype=np.int64),
            "gap": np.zeros(singles.size),
            **outer(self.counter.init(total.size + singles.size), "ticks."),
            **outer(self.singles.init(singles.size), "singles."),
            **outer(self.larger.init(larger.size), "larger."),
        }

    def step(self, state: State, counts: IntArray, gate: Gate) -> tuple[State, Measured]:
        """Close one tick.

        Args:
            state: what the last step returned; it is not changed.
            counts: the tick's exact counts, int64, shape ``(cells,)``.
            gate: the source of noise.

        Raises:
            HorizonExhausted: all ticks have been released.
        """
        tick, refresh = int(state["t"]), self.refreshes(int(state["t"]))
        total, singles, larger = self._cells
        often = np.concatenate([total, singles])
        at_ticks, at_refreshes, pull = map(self._per_cell, (self.at_ticks, self.at_refreshes, self._pull(tick)))
        ticks, known = self.counter.step(inner(state, "ticks."), counts[often], gate, multiplier=at_ticks[often])
        after = state | outer(ticks, "ticks.") | {"t": np.array(tick + 1), "open": state["open"] + clip(counts)}
        values = np.zeros(self.workload.cells)
        values[often] = known
        if refresh:
            found = np.zeros(self.workload.cells)
            for name, dense, cells in (("singles.", self.singles, singles), ("larger.", self.larger, larger)):
                exact, noise = after["open"][cells], at_refreshes[cells]
                part, found[cells] = dense.step(inner(state, name), exact, gate, multiplier=noise)
                after |= outer(part, name)
            values[larger] = found[larger]
            after |= {"open": np.zeros_like(after["open"]), "gap": (found - values)[singles]}
        values[singles] += pull[singles] * after["gap"]
        shown = (self.order < 2) | refresh
        released = np.rint(values[self._per_cell(shown)] / self.resolution).astype(np.int64) * self.resolution
        return after, self.measured(tick, np.flatnonzero(shown).tolist(), released)

    def _per_cell(self, each: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(each, self.workload.lengths)

    def measured(self, tick: int, positions: list[int], values: FloatArray) -> Measured:
        """What was measured at a tick: tables at these positions of the workload, and their values."""
        workload, variance = self.workload.only(positions), self.variance(tick)[positions]
        return Measured(tick=tick, workload=workload, values=values, variance=variance)
