"""A counter without end: bounded counters one after the other, each starting from the last estimate."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar

import numpy as np

from synthstream.kernel.counters.base import Counter, State, inner, outer
from synthstream.kernel.counters.blt import LONGEST, Blt
from synthstream.kernel.counters.kary import Kary
from synthstream.kernel.gate import Gate
from synthstream.kinds import Noise
from synthstream.workload import FloatArray, IntArray

# Kary segments: 15 ticks, then ten times as many each time (figures in docs/theorems/restarted.md).
_FIRST, _GROWTH = 15, 10


@dataclass(frozen=True, kw_only=True)
class Restarted(Counter):
    """Running sums for ever: a segment of ticks to each bounded counter, the last estimate of each carried on.

    Laplace noise: k-ary counters on segments of 15, 150, 1500, ... ticks. Gaussian noise: blt counters on segments
    of 2^20 ticks, because a rounded counter has finite sensitivity only over finitely many ticks.

    Privacy:
        Unit        one event, in one tick and one cell; neighbours: add-remove
        Cost        epsilon = 1 / multiplier (Laplace), rho = 1 / (2 multiplier^2) (Gaussian), whole stream
        Theorem     restarted
        Trusts      what its segments trust
    Accuracy:       variance of the closed segments' last values plus that of the open one
    Time, memory:   those of the open segment
    """

    theorem: ClassVar[str] = "restarted"
    horizon: None = None
    noise: Noise = "laplace"

    @property
    def grid_bits(self) -> int:
        return self.inner(0).grid_bits

    def length(self, segment: int) -> int:
        """Number of ticks of a segment."""
        return LONGEST if self.noise == "gaussian" else _FIRST * _GROWTH**segment

    def inner(self, segment: int) -> Counter:
        """The bounded counter of a segment."""
        return _inner(self.noise, self.length(segment))

    def locate(self, t: int) -> tuple[int, int]:
        """The segment of a tick, and the tick's number within it."""
        if self.noise == "gaussian":  # all are alike
            return divmod(t, self.length(0))
        segment = 0
        while t >= self.length(segment):
            t -= self.length(segment)
            segment += 1
        return segment, t

    def facts(self) -> list[Any]:
        return [*super().facts(), *(self.inner(segment).facts() for segment in range(3))]

    def sensitivity(self, t: int = 0) -> float:
        """That of the segment in which the event lies."""
        return self.inner(self.locate(t)[0]).sensitivity()

    def participation(self, ticks: int) -> Fraction | None:
        """See :class:`Counter`: that of one segment, if it is too long for events in two to move more."""
        return self.inner(0).participation(ticks) if self.noise == "gaussian" and 3 * ticks <= self.length(0) else None

    def init(self, cells: int) -> State:
        none = np.zeros(cells)
        return {"t": np.array(0), "carried": none, "last": none, **outer(self.inner(0).init(cells), "inner/")}

    def step(self, state: State, counts: IntArray, gate: Gate, *, multiplier: FloatArray) -> tuple[State, FloatArray]:
        t = self.tick_of(state)
        segment, within = self.locate(t)
        counter, carried, inside = self.inner(segment), state["carried"], inner(state, "inner/")
        if within == 0 and t > 0:
            carried, inside = state["last"], counter.init(counts.size)
        inside, estimate = counter.step(inside, counts, gate, multiplier=multiplier)
        released = carried + estimate
        after = {"t": np.array(t + 1), "carried": carried, "last": released, **outer(inside, "inner/")}
        return after, released

    def least(self, multiplier: float) -> Fraction | None:
        """See :meth:`Counter.least`: with Gaussian noise all segments are alike."""
        return self.inner(0).least(multiplier)

    def covariance(self, s: int, t: int, *, multiplier: float) -> float:
        (first, s), (last, t) = sorted([self.locate(s), self.locate(t)])
        closed = sum(self.inner(i).variance(self.length(i) - 1, multiplier=multiplier) for i in range(first))
        end = t if first == last else self.length(first) - 1
        return closed + self.inner(first).covariance(s, end, multiplier=multiplier)


@cache
def _inner(noise: Noise, length: int) -> Counter:
    return Blt(horizon=length) if noise == "gaussian" else Kary(horizon=length)
