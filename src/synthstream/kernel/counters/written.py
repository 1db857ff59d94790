"""Counters by matrices that are written out: the identity, the square root, and the best one for a few answers."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from synthstream.kernel.counters.base import Encoded, GaussianCounter, MatrixCounter, State, root_above, rounded_up
from synthstream.kinds import Noise
from synthstream.strategies.matrices import column_of_decoder, inverse, of_least_variance, product
from synthstream.workload import FloatArray, IntArray

# The more answers, the more counts are remembered; and 2^31 times this times the grid's 2^12 stays far below 2^62.
MOST_ANSWERS = 2**9
# Beyond this, remembering every tick's counts costs more than it gains over the buffered counter.
LONGEST = 2**13


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


@dataclass(frozen=True, kw_only=True)
class ToeplitzCounter(GaussianCounter):
    """One over a bounded horizon whose B and C are Toeplitz, on a grid of 2^-20."""

    longest: ClassVar[int]
    horizon: int

    def __post_init__(self) -> None:
        if not 1 <= self.horizon <= self.longest:
            raise ValueError(
                f"counter {self.theorem!r} serves horizons from 1 to {self.longest} ticks, not {self.horizon}; "
                'longer streams use horizon = "unbounded"'
            )
        super().__post_init__()

    @property
    def grid_bits(self) -> int:
        return 20

    @property
    @abstractmethod
    def decoder(self) -> FloatArray:
        """First column of B, shape ``(horizon,)``."""

    def shared(self, s: int, t: int) -> float:
        return math.fsum(self.decoder[: s + 1] * self.decoder[t - s : t + 1])


@dataclass(frozen=True, kw_only=True)
class Toeplitz(ToeplitzCounter):
    """Running sums by the square root of A, with coefficients binom(2j, j) / 4^j rounded to 2^-20.

    Privacy:
        Unit        one event, in one tick and one cell; neighbours: add-remove
        Cost        rho = 1 / (2 multiplier^2), whole stream
        Theorem     toeplitz
        Trusts      nothing
    Accuracy:       variance sensitivity^2 multiplier^2 sum_{j <= t} c_j^2
    Time, memory:   O(cells t) per tick; keeps every tick's counts: 8 cells horizon bytes of private state
    Reference:      Fichtenberger, Henzinger, Upadhyay 2023 (arXiv 2202.11205)
    """

    theorem: ClassVar[str] = "toeplitz"
    longest: ClassVar[int] = LONGEST

    @cached_property
    def coefficients(self) -> IntArray:
        """First column of C in units of 2^-20, exact integers, shape ``(horizon,)``."""
        j = np.arange(1, self.horizon, dtype=np.float64)
        column = np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])
        return np.asarray(np.rint(column * 2**self.grid_bits), dtype=np.int64)

    @cached_property
    def decoder(self) -> FloatArray:
        """First column of B = A C^-1 for the rounded C, shape ``(horizon,)``."""
        return column_of_decoder(self.coefficients / 2**self.grid_bits)

    def facts(self) -> list[Any]:
        return [*super().facts(), *self.coefficients.tolist()]

    def sensitivity(self, t: int = 0) -> float:
        """The L2 norm of the rounded first column, from an exact integer sum."""
        squares = sum(int(c) ** 2 for c in self.coefficients)
        return math.nextafter(math.sqrt(squares), math.inf) / 2.0**self.grid_bits

    def participation(self, ticks: int) -> Fraction | None:
        """See :meth:`Counter.participation`: the norm of the sum of the first columns, from exact integers."""
        sums: list[int] = [0, *accumulate(self.coefficients.tolist())]
        moved = [sums[t + 1] - sums[max(0, t + 1 - ticks)] for t in range(self.horizon)]
        return root_above(Fraction(sum(value * value for value in moved), 4**self.grid_bits))

    def init(self, cells: int) -> State:
        nothing = np.zeros((0, cells), dtype=np.int64)
        return {"t": np.array(0), "counts": nothing, "released": nothing}

    def encode(self, state: State, counts: IntArray) -> Encoded:
        history = np.concatenate([state["counts"], counts[None]])
        value = in_int64(self.coefficients[: len(history)][::-1], history)
        return Encoded(state | {"counts": history}, value)

    def decode(self, state: State, released: IntArray) -> tuple[State, FloatArray]:
        history = np.concatenate([state["released"], released[None]])
        estimate = self.decoder[: len(history)][::-1] @ history / 2**self.grid_bits
        return state | {"released": history}, estimate


def in_int64(coefficients: IntArray, history: IntArray) -> IntArray:
    """Sum of rows, each times its coefficient, row by row: NumPy has no fast integer matrix product."""
    value = np.zeros(history.shape[1], dtype=np.int64)
    for coefficient, counts in zip(coefficients, history, strict=True):
        value += coefficient * counts
    return value


@dataclass(frozen=True, kw_only=True)
class Dense(GaussianCounter):
    """Running sums by A = B C, C lower-triangular with columns of norm 1, least in the weighted mean of variances.

    A tick of this counter is one answer: what calls it decides from public facts when that is.

    Privacy:
        Unit        one event, in one tick and one cell; neighbours: add-remove
        Cost        rho = 1 / (2 multiplier^2), whole stream
        Theorem     dense
        Trusts      nothing
    Accuracy:       variance sensitivity^2 multiplier^2 sum_j B_tj^2
    Time, memory:   O(cells t) per answer; keeps the counts of every answer: 16 cells answers bytes of private state

    Args:
        weights: of the variance of each answer in the mean that is least, above 0, shape ``(answers,)``.
        horizon: number of answers; ``None``: after the last it begins anew on top of its estimate, for ever.

    Example:
        >>> plain, best = Dense(weights=(1.0,) * 8, horizon=8), Dense(weights=(0.01,) * 7 + (1.0,), horizon=8)
        >>> round(plain.variance(7, multiplier=1.0), 2), round(best.variance(7, multiplier=1.0), 2)
        (2.67, 1.25)
    """

    theorem: ClassVar[str] = "dense"
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        answers = len(self.weights)
        if not 1 <= answers <= MOST_ANSWERS or self.horizon not in {None, answers}:
            raise ValueError(f"1 to {MOST_ANSWERS} answers, as many as the horizon says, not {answers}")
        super().__post_init__()

    @property
    def grid_bits(self) -> int:
        return 12

    @cached_property
    def coefficients(self) -> IntArray:
        """C in units of 2^-12, exact integers, shape ``(answers, answers)``."""
        rounded = np.rint(of_least_variance(self.weights) * 2**self.grid_bits)
        if not np.all(np.abs(rounded) <= 2**self.grid_bits):
            raise ArithmeticError("a matrix with entries above 1 would let a sum leave 64 bits")
        return np.asarray(rounded, dtype=np.int64)

    @cached_property
    def decoder(self) -> FloatArray:
        """B = A C^-1 for the rounded C, shape ``(answers, answers)``."""
        return np.cumsum(inverse(self.coefficients / 2**self.grid_bits), axis=0)

    def facts(self) -> list[Any]:
        return [*super().facts(), self.coefficients.tolist()]

    def sensitivity(self, t: int = 0) -> float:
        """Norm of the largest column of the rounded C, from exact integers."""
        return self._norm

    @cached_property
    def _norm(self) -> float:
        largest = max(sum(int(c) ** 2 for c in column) for column in self.coefficients.T)
        return math.nextafter(math.sqrt(largest), math.inf) / 2.0**self.grid_bits

    def init(self, cells: int) -> State:
        nothing = np.zeros((0, cells), dtype=np.int64)
        return {"t": np.array(0), "counts": nothing, "released": nothing, "carried": np.zeros(cells)}

    def encode(self, state: State, counts: IntArray) -> Encoded:
        k = int(state["t"]) % len(self.weights)
        if k == 0 and int(state["t"]):
            carried = state["carried"] + self._estimate(state["released"])
            state = self.init(counts.size) | {"t": state["t"], "carried": carried}
        history = np.concatenate([state["counts"], counts[None]])
        return Encoded(state | {"counts": history}, in_int64(self.coefficients[k, : k + 1], history))

    def decode(self, state: State, released: IntArray) -> tuple[State, FloatArray]:
        history = np.concatenate([state["released"], released[None]])
        return state | {"released": history}, state["carried"] + self._estimate(history)

    def _estimate(self, released: IntArray) -> FloatArray:
        k = len(released)
        return np.asarray(self.decoder[k - 1, :k] @ released / 2**self.grid_bits)

    def shared(self, s: int, t: int) -> float:
        (first, s), (last, t) = divmod(s, len(self.weights)), divmod(t, len(self.weights))
        rows = self.decoder
        return first * product(rows[-1], rows[-1]) + product(rows[s], rows[t if first == last else -1])
