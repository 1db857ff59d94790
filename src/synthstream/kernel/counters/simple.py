"""Fresh noise on every tick."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from synthstream.kernel.counters.base import State, root_above, rounded_up
from synthstream.kernel.counters.matrix import Encoded, MatrixCounter
from synthstream.kinds import Noise
from synthstream.workload import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Simple(MatrixCounter):
    """Running sums of noisy ticks: C = identity, B = A.

    Privacy:
        Unit        one event, in one tick and one cell; neighbours: add-remove
        Cost        epsilon = 1 / multiplier (Laplace), rho = 1 / (2 multiplier^2) (Gaussian), whole stream
        Theorem     simple
        Trusts      nothing
    Accuracy:       variance (t + 1) times that of one draw
    Time, memory:   O(cells) per tick
    Reference:      Chan, Shi, Song 2011, "Simple Counting Mechanism II"
    """

    theorem: ClassVar[str] = "simple"
    horizon: int | None = None
    noise: Noise = "laplace"

    def sensitivity(self, t: int = 0) -> float:
        """One event changes one tick's count by one."""
        return 1.0

    def participation(self, ticks: int) -> Fraction | None:
        """See :meth:`Counter.participation`: events in different ticks move different values."""
        return root_above(Fraction(ticks)) if self.noise == "gaussian" else None

    def init(self, cells: int) -> State:
        return {"t": np.array(0), "sum": np.zeros(cells)}

    def encode(self, state: State, counts: IntArray) -> Encoded:
        return Encoded(state, counts)

    def decode(self, state: State, released: IntArray) -> tuple[State, FloatArray]:
        total: FloatArray = state["sum"] + released
        return {"sum": total}, total

    def covariance(self, s: int, t: int, *, multiplier: float) -> float:
        return (min(s, t) + 1) * self.noise_variance(rounded_up(multiplier))
