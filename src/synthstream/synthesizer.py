"""What is measured, and how rows are made of it: a mechanism joined with its fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from synthstream.fit.pooling import pooled
from synthstream.fit.population import Population, fit
from synthstream.kernel.counters import State
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate
from synthstream.kernel.marginals import Marginals
from synthstream.privacy import Claim
from synthstream.release import FloatArray, Measured
from synthstream.workload import IntArray, Workload

# Looks up what was measured at a tick.
History = Callable[[int], Measured]


class Mechanism(Protocol):
    """What synthesizers' mechanisms have in common; everything here follows from the configuration alone."""

    @property
    def workload(self) -> Workload:
        """The tables that it may measure."""

    def claim(self) -> Claim:
        """What it promises for its whole life."""

    def describe(self) -> str:
        """How it measures, in a few plain words."""

    def expected_variance(self, tick: int) -> FloatArray:
        """Variance of the best estimate of a cell of each running table after a tick, shape ``(marginals,)``."""

    def fingerprint(self) -> str:
        """Hash of every number that decides what is drawn and with how much noise."""

    def init(self) -> State:
        """The private state before the first tick."""

    def pack(self, measured: Measured) -> IntArray:
        """What passed the gate at one tick as integers."""

    def unpack(self, tick: int, released: IntArray) -> Measured:
        """The measurement that ``pack`` was given."""


class Synthesizer(Protocol):
    """Measures ticks and makes rows."""

    @property
    def mechanism(self) -> Mechanism:
        """What is measured, and what it costs."""

    def step(self, state: State, counts: IntArray, gate: Gate, last: Population | None) -> tuple[State, Measured]:
        """Close one tick: see ``step`` of the mechanisms. ``last`` are the rows of the newest release."""

    def fit(self, tick: int, history: History, last: Population | None, *, seed: int) -> Population:
        """Rows for a tick: a pure function of measurements, the rows before, and the seed."""


@dataclass(frozen=True, kw_only=True)
class Continual:
    """All tables at every tick, and a living population fitted to them."""

    mechanism: Marginals

    def step(self, state: State, counts: IntArray, gate: Gate, last: Population | None) -> tuple[State, Measured]:
        """See :class:`Synthesizer`."""
        return self.mechanism.step(state, counts, gate)

    def fit(self, tick: int, history: History, last: Population | None, *, seed: int) -> Population:
        """See :class:`Synthesizer`."""
        return fit(history(tick), start=last, seed=seed)


@dataclass(frozen=True, kw_only=True)
class InEpochs:
    """The total at every tick, other tables once an epoch, and a living population fitted to all epochs together."""

    mechanism: Epochs

    def step(self, state: State, counts: IntArray, gate: Gate, last: Population | None) -> tuple[State, Measured]:
        """See :class:`Synthesizer`."""
        return self.mechanism.step(state, counts, gate, lambda events: guessed(self.mechanism.workload, last, events))

    def fit(self, tick: int, history: History, last: Population | None, *, seed: int) -> Population:
        """See :class:`Synthesizer`."""
        ends = [t for t in self._ends(tick) if t != tick]
        # Epochs bring news, ticks between them none: there is no fresh noise to average out.
        known = pooled([*(history(t) for t in ends), history(tick)], signed=self.mechanism.unit.signed)
        return fit(known, start=last, seed=seed, memory=0.0)

    def _ends(self, tick: int) -> Sequence[int]:
        """Ticks up to this one at which an epoch ended."""
        ends, begin = [], self.mechanism.begin(tick + 1)
        while begin > 0:
            ends.append(begin - 1)
            begin = self.mechanism.begin(begin - 1)
        return ends[::-1]


def guessed(workload: Workload, rows: Population | None, events: float) -> FloatArray:
    """Tables of the rows over all cells, scaled to a number of events; uniform if there are no rows."""
    if rows is None or len(rows.codes) == 0:
        return np.asarray(np.repeat(events / workload.lengths, workload.lengths))
    return np.asarray(workload.count(rows.codes.astype(np.int32)) * (events / len(rows.codes)))
