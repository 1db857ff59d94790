"""The best matrix for a few answers at public times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from synthstream.kernel.counters.base import State
from synthstream.kernel.counters.matrix import Encoded, GaussianCounter, in_int64
from synthstream.strategies.matrices import inverse, of_least_variance, product
from synthstream.workload import FloatArray, IntArray

# The more answers, the more counts are remembered; and 2^31 times this times the grid's 2^12 stays far below 2^62.
MOST_ANSWERS = 2**9


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
