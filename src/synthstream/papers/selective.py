"""Paper 2, main: at every tick a few tables are selected, counted on by their own counters, and fitted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from synthstream.kernel.counters import Counter, State
from synthstream.kernel.counters.base import inner, outer
from synthstream.kernel.gate import Gate
from synthstream.measured import Measured
from synthstream.papers.rounds import RESOLUTION, Fitting, InRounds, shares
from synthstream.strategies.variances import of_difference
from synthstream.workload import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Selective(InRounds):
    """Algorithm 3 of paper 2: one counter for every candidate, invoked at those ticks at which it is selected.

    Where a candidate was not selected, its counts are taken from the synthetic data. What departs from the text, and
    why, stands in ``docs/theorems/selective.md``: the total is private, the score is corrected, selections and
    measurements are exact draws.

    Privacy:
        Unit        one event; neighbours: add-remove (one cell of each table changes by one, in one tick) or
                    replace-one (a table changes by two in all, in one tick)
        Cost        the whole budget, once: the total's counter, and one tick's choices and measurements
        Theorem     selective, choose, and those of the counters
        Trusts      workload, number of picks, split and clock are public
    Accuracy:       not known beforehand: it depends on what was selected
    Time, memory:   O(picks) fits per tick; O(cells)

    Args:
        kind: which counter; ``auto`` takes ``simple``, because its increments have the least noise, and after a tick
            without selection only the increments of a counter are used.

    Example:
        >>> from synthstream.privacy import Budget
        >>> from synthstream.workload import Workload
        >>> workload = Workload.all_up_to(2, sizes=(2, 3, 4))
        >>> budget = Budget(epsilon=1.0, delta=0.0)
        >>> mechanism = Selective(workload=workload, budget=budget, horizon=100, picks=2)
        >>> len(mechanism.candidates)
        3
        >>> float(mechanism.claim().pure) <= 1
        True
    """

    theorem: ClassVar[str] = "selective"

    kind: str = "auto"

    @property
    def counters(self) -> tuple[Counter, ...]:
        return self.total_counter, self.counter

    @cached_property
    def total_counter(self) -> Counter:
        """The counter of the total."""
        return self.counted()

    @cached_property
    def counter(self) -> Counter:
        """The counter of every candidate."""
        kind = "simple" if self.kind == "auto" else self.kind
        return self.counted(kind)

    def variance(self, tick: int) -> FloatArray:
        """Noise variance of the total, shape ``(marginals,)``; NaN for all others. Public."""
        return self.covariance(tick, tick)

    def covariance(self, s: int, t: int) -> FloatArray:
        """Covariance of the noise in the total after ticks ``s`` and ``t``; NaN for all other tables. Public."""
        known = self.total_counter.covariance(s, t, multiplier=self.total_multiplier)
        return np.array([np.nan if marginal else known for marginal in self.workload.marginals])

    def init(self) -> State:
        nothing = np.zeros(self.workload.cells)
        return outer(self.total_counter.init(1), "total.") | {
            "t": np.array(0),
            "fitted": nothing,  # public: tables of the newest synthetic data
            "estimate": nothing,  # public: the same, or what was measured where a candidate was just selected
            "value": nothing,  # public: values of the candidates' counters
        }

    def step(self, state: State, counts: IntArray, gate: Gate, fitting: Fitting) -> tuple[State, Measured]:
        tick = int(state["t"])
        multiplier = np.array([self.total_multiplier])
        came = counts[self.workload.slice_of(())]
        after_total, released = self.total_counter.step(inner(state, "total."), came, gate, multiplier=multiplier)
        total = float(np.rint(released[0] / RESOLUTION) * RESOLUTION)
        fitting.begin(total)
        after = dict(state) | outer(after_total, "total.")
        after |= {"value": state["value"].copy()}

        def measure(position: int) -> FloatArray:
            """C_j + r of the paper: what was estimated before, and what the counter added."""
            cells = self.candidates.cells(position)
            before = after["value"][cells].copy()
            own = inner(after, f"{position}.") or self.counter.init(before.size)
            own, value = self.counter.step(own, counts[cells], gate, multiplier=np.full(before.size, self.multiplier))
            after["value"][cells] = value
            after.update(outer(own, f"{position}."))
            return np.asarray(state["estimate"][cells] + value - before)

        first = shares(state["fitted"], self.workload) * max(total, 0.0), state["fitted"]
        noise = self._noise(state, tick + 1)
        measured, fitted = self._rounds(counts, first, noise, gate, fitting, measure)
        estimate = fitted.copy()
        for position, values in measured.items():
            estimate[self.candidates.cells(position)] = values
        after |= {"t": np.array(tick + 1), "fitted": fitted, "estimate": estimate}
        return after, self._measured(tick, measured, total)

    def _noise(self, state: State, ticks: int) -> FloatArray:
        """Mean size of the noise that one more call of each candidate's counter adds, shape ``(candidates,)``.

        Divided by the square root of the number of ticks: what is not measured goes wrong the same way at every tick,
        and its errors add up, where noise of as many ticks adds up to the square root.
        """
        calls = [int(state.get(f"{position}.t", 0)) for position in range(len(self.candidates))]
        unique, inverse = np.unique(calls, return_inverse=True)
        added = np.array([_added(self.counter, int(t) - 1, int(t), multiplier=self.multiplier) for t in unique])
        return np.sqrt(2 / np.pi * added / ticks)[inverse]


_added = lru_cache(maxsize=100_000)(of_difference)
