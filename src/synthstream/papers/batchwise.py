"""Paper 2, baseline: an offline method run on every batch afresh, and the results added up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from typing_extensions import override

from synthstream.kernel.counters import Counter, State
from synthstream.kernel.counters.base import clip
from synthstream.kernel.counters.simple import Simple
from synthstream.kernel.gate import Gate
from synthstream.measured import Measured
from synthstream.papers.rounds import Fitting, InRounds
from synthstream.workload import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Batchwise(InRounds):
    """Algorithm 2 of paper 2: select, measure and fit (Algorithm 1) on the rows of every tick, each tick on its own.

    With ``horizon = 1`` it is Algorithm 1 itself. What departs from the text, and why, stands in
    ``docs/theorems/batchwise.md``: the batch's size is private, choices cost what is said, scores are corrected.

    Privacy:
        Unit        one event; neighbours: add-remove (one cell of each table changes by one, in one tick) or
                    replace-one (a table changes by two in all, in one tick)
        Cost        the whole budget, once: one tick's total, choices and measurements
        Theorem     batchwise, choose
        Trusts      workload, number of picks, split and clock are public
    Accuracy:       variance(t) for each measured cell of a batch
    Time, memory:   O(picks) fits per tick; O(1)

    Example:
        >>> from synthstream.privacy import Budget
        >>> from synthstream.workload import Workload
        >>> workload = Workload.all_up_to(2, sizes=(2, 3, 4))
        >>> budget = Budget(epsilon=1.0, delta=0.0)
        >>> mechanism = Batchwise(workload=workload, budget=budget, horizon=1, picks=2)
        >>> round(mechanism.multiplier, 1)
        4.2
    """

    theorem: ClassVar[str] = "batchwise"
    afresh: ClassVar[bool] = True

    @property
    def counters(self) -> tuple[Counter, ...]:
        return (self.counter,)

    @cached_property
    def counter(self) -> Counter:
        """Begun anew for every measurement: one call of it is one draw."""
        return Simple(horizon=self.horizon, noise=self.noise)

    @override
    def variance(self, tick: int) -> FloatArray:
        """Noise variance of a cell of each table, if it is measured at a tick, shape ``(marginals,)``. Public."""
        total = self.counter.variance(0, multiplier=self.total_multiplier)
        each = self.counter.variance(0, multiplier=self.multiplier)
        return np.array([each if marginal else total for marginal in self.workload.marginals])

    def covariance(self, s: int, t: int) -> FloatArray:
        """Covariance of the noise in sums of batches up to ticks ``s`` and ``t``, shape ``(marginals,)``. Public.

        Of tables that were measured in every batch: each has noise of its own, so it is that of the batches in both.
        """
        return (min(s, t) + 1) * self.variance(0)

    def init(self) -> State:
        return {"t": np.array(0)}

    def step(self, state: State, counts: IntArray, gate: Gate, fitting: Fitting) -> tuple[State, Measured]:
        """See :class:`InRounds`. A batch of more deletions than events is fitted with its sign turned; its rows are to
        be taken away.
        """
        tick = self.counter.tick_of(state)
        exact = clip(counts)
        total = float(self._draw(exact[self.workload.slice_of(())], self.total_multiplier, gate)[0])
        sign = self._sign(total)
        fitting.begin(abs(total))

        def measure(position: int) -> FloatArray:
            return sign * self._draw(exact[self.candidates.cells(position)], self.multiplier, gate)

        uniform = np.repeat(abs(total) / self.workload.lengths, self.workload.lengths)
        # Of all batches together, for the reason given in selective.py.
        size = np.sqrt(2 / np.pi * self.counter.variance(0, multiplier=self.multiplier) / (tick + 1))
        noise = np.full(len(self.candidates), size)
        first = uniform, np.zeros_like(uniform)
        measured, _ = self._rounds(sign * exact, first, noise, gate, fitting, measure)
        signed = {position: sign * values for position, values in measured.items()}
        return {"t": np.array(tick + 1)}, self._measured(tick, signed, total)

    def _draw(self, exact: IntArray, multiplier: float, gate: Gate) -> FloatArray:
        """Counts with fresh noise."""
        begun = self.counter.init(exact.size)
        return self.counter.step(begun, exact, gate, multiplier=np.full(exact.size, multiplier))[1]
