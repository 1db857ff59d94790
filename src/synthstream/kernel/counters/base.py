"""What a counter is. Ticks are 0-based; the value after tick t is the private running sum over ticks 0..t."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from synthstream.errors import HorizonExhausted
from synthstream.kernel.gate import Gate
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.kinds import Noise
from synthstream.strategies.variances import variance_of
from synthstream.workload import FloatArray, IntArray

Real = TypeVar("Real", float, FloatArray)
State = dict[str, NDArray[Any]]

# A tick's count of one cell is clipped to this size before it is encoded, so that no sum can leave 64 bits.
# One event changes a clipped count by at most one, as it does the count itself.
LARGEST_COUNT = 2**31

# No tick of any stream comes later.
LAST_TICK = 10**11


@dataclass(frozen=True, kw_only=True)
class Counter(ABC):
    """A private running sum over a vector of cells.

    ``step`` takes ``multiplier``, the noise per unit of sensitivity of each cell: standard deviation for
    Gaussian noise, scale for Laplace noise. A cell with multiplier m costs rho = 1 / (2 m^2), or epsilon = 1 / m,
    for the whole stream and one event.

    Args:
        horizon: number of ticks; ``None`` for no end.
        noise: law of the noise.

    Attributes:
        theorem: id of the file in ``docs/theorems`` that proves the cost.
    """

    theorem: ClassVar[str]
    horizon: int | None
    noise: Noise

    @property
    def grid_bits(self) -> int:
        """Values at the gate are in units of ``2**-grid_bits`` counts."""
        return 0

    def facts(self) -> list[Any]:
        """Every number that decides how counts are encoded, for a fingerprint: plain numbers and texts."""
        return [type(self).__name__, self.horizon, self.noise, self.grid_bits, self.sensitivity(0)]

    @abstractmethod
    def sensitivity(self, t: int = 0) -> float:
        """Norm of the change that one event at tick ``t`` makes to all values at the gate, in counts, rounded up.

        L2 for Gaussian noise, L1 for Laplace noise.
        """

    def participation(self, ticks: int) -> Fraction | None:
        """Upper bound on the norm of the change to one cell's values by ``ticks`` events, each in a tick of its own.

        In counts, rounded up; ``None`` if nothing better is known than the sum of their sensitivities. A counter
        returns a number only if an event moves the value of each later tick by at most an amount that depends on the
        age of the event alone, and does not grow with it (theorem ``participation``).
        """
        return None

    @abstractmethod
    def init(self, cells: int) -> State:
        """The state before the first tick."""

    @abstractmethod
    def step(self, state: State, counts: IntArray, gate: Gate, *, multiplier: FloatArray) -> tuple[State, FloatArray]:
        """Close one tick.

        Args:
            state: what the last step returned; it is not changed.
            counts: the tick's exact counts, int64, shape ``(cells,)``.
            gate: the source of noise.
            multiplier: noise per unit of sensitivity, float64, shape ``(cells,)``.

        Returns:
            The next state, and the released running sums, float64, shape ``(cells,)``.

        Raises:
            HorizonExhausted: all ticks have been released. Depends on the number of ticks alone.
        """

    @abstractmethod
    def covariance(self, s: int, t: int, *, multiplier: float) -> float:
        """Covariance of the noise in the values after ticks ``s`` and ``t`` of a cell. Public."""

    def variance(self, t: int, *, multiplier: float) -> float:
        """Variance of the noise in the value after tick ``t`` of a cell. Public."""
        return self.covariance(t, t, multiplier=multiplier)

    def widest(self, t: int, *, multiplier: float) -> float:
        """Scale of the widest draw of noise in the value after tick ``t`` of a cell, in counts. Public."""
        return rounded_up(self.reach(t) / 2.0**self.grid_bits * multiplier)

    def draws(self, multiplier: float) -> bool:
        """Whether all noise of the stream's whole life has scales that the sampler can draw. Public.

        This is checked before a stream begins: a draw refused in the middle would reveal how far the stream has come.
        """
        last = LAST_TICK if self.horizon is None else self.horizon - 1
        return rounded_up(self.reach(last) * multiplier) <= LARGEST_SCALE

    def reach(self, last: int) -> float:
        """Scale of the widest draw up to tick ``last`` for a multiplier of 1, as it is asked of the gate. Public."""
        return max(self.sensitivity(0), self.sensitivity(last)) * 2.0**self.grid_bits

    def least(self, multiplier: float) -> Fraction | None:
        """Least variance of any draw, in units of the grid, exact; ``None`` unless all are Gaussian. Public."""
        return None

    def noise_variance(self, scale: float) -> float:
        """Variance of one draw of this counter's noise."""
        return variance_of(self.noise, scale)

    def tick_of(self, state: State) -> int:
        """Number of ticks closed so far; raises ``HorizonExhausted`` if there is none left."""
        t = int(state["t"])
        refuse_beyond(self.horizon, t)
        return t


def outer(state: State, prefix: str) -> State:
    """The entries of a state with a prefix, as a part of a larger state."""
    return {prefix + name: array for name, array in state.items()}


def inner(state: State, prefix: str) -> State:
    """The entries of a state under a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


def refuse_beyond(horizon: int | None, tick: int) -> None:
    """Raise ``HorizonExhausted`` if a tick, 0-based, lies beyond the horizon. Depends on public facts alone."""
    if horizon is not None and tick >= horizon:
        raise HorizonExhausted(
            f"All {horizon} ticks of this stream have been released. Its budget covers no more: "
            "go on with `succeed`, or open another stream with a budget of its own."
        )


def clip(counts: IntArray, limit: int = LARGEST_COUNT) -> IntArray:
    """Counts limited in size. 1-Lipschitz in each count."""
    return np.minimum(np.maximum(counts, -limit), limit)  # far faster than np.clip for few


def root_above(square: Fraction) -> Fraction:
    """A little above the square root, by integers alone.

    Example:
        >>> 2 <= root_above(Fraction(2)) ** 2 < 2 + Fraction(1, 2**60)
        True
    """
    unit = 2**64
    return Fraction(math.isqrt(math.ceil(square * unit**2)) + 1, unit)


def rounded_up(value: Real) -> Real:
    """A little above ``value``: covers the rounding of the two products that make a noise scale."""
    return value * (1 + 2.0**-50)
