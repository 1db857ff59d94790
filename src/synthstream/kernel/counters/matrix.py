"""What counters by matrices share: encode, pass the gate, decode.

Symbols: x_t counts of tick t; A lower-triangular ones; C encodes, B decodes, A = B C; z noise.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from synthstream.kernel.counters.base import LAST_TICK, Counter, State, clip, rounded_up
from synthstream.kernel.gate import Gate
from synthstream.kinds import Noise
from synthstream.workload import FloatArray, IntArray


class Encoded(NamedTuple):
    """A state, and the exact integers to pass through the gate, in units of ``2**-grid_bits`` counts."""

    state: State
    value: IntArray

    def __repr__(self) -> str:
        return "Encoded(private)"


@dataclass(frozen=True, kw_only=True)
class MatrixCounter(Counter):
    """A counter that is encode -> gate -> decode. Privacy lives in ``encode`` alone."""

    @abstractmethod
    def encode(self, state: State, counts: IntArray) -> Encoded:
        """One row of C x, exact, on the grid."""

    @abstractmethod
    def decode(self, state: State, released: IntArray) -> tuple[State, FloatArray]:
        """One row of B y, in counts."""

    def least(self, multiplier: float) -> Fraction | None:
        """See :meth:`Counter.least`. Rounded up, as :meth:`step` does, the scale is no smaller."""
        last = LAST_TICK if self.horizon is None else self.horizon - 1
        scale = min(self.sensitivity(0), self.sensitivity(last)) * 2.0**self.grid_bits * multiplier
        return Fraction(scale) ** 2 if self.noise == "gaussian" else None

    def step(self, state: State, counts: IntArray, gate: Gate, *, multiplier: FloatArray) -> tuple[State, FloatArray]:
        """Close one tick: encode, pass the gate, decode. See :meth:`Counter.step`."""
        t = self.tick_of(state)
        encoded = self.encode(state, clip(counts))
        scale = rounded_up(self.sensitivity(t) * 2.0**self.grid_bits * multiplier)
        released = gate.noisy(encoded.value, noise=self.noise, scale=scale)
        after, estimate = self.decode(encoded.state, released)
        after["t"] = np.array(t + 1)
        return after, estimate


@dataclass(frozen=True, kw_only=True)
class GaussianCounter(MatrixCounter):
    """A matrix counter for Gaussian noise, all of whose draws have one standard deviation."""

    noise: Noise = "gaussian"

    def __post_init__(self) -> None:
        if self.noise != "gaussian":
            raise ValueError(f"counter {self.theorem!r}: noise must be gaussian")

    def covariance(self, s: int, t: int, *, multiplier: float) -> float:
        (s, t), sigma = sorted((s, t)), rounded_up(self.sensitivity() * multiplier)
        return sigma**2 * self.shared(s, t)

    @abstractmethod
    def shared(self, s: int, t: int) -> float:
        """Inner product of the rows of B after ticks ``s`` and ``t``, ``s`` at most ``t``."""


def in_int64(coefficients: IntArray, history: IntArray) -> IntArray:
    """Sum of rows, each times its coefficient, row by row: NumPy has no fast integer matrix product."""
    value = np.zeros(history.shape[1], dtype=np.int64)
    for coefficient, counts in zip(coefficients, history, strict=True):
        value += coefficient * counts
    return value
