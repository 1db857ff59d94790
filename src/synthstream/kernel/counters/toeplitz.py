"""Matrices that are alike along each diagonal, and the square root of running sums among them."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from synthstream.kernel.counters.base import State, root_above
from synthstream.kernel.counters.matrix import Encoded, GaussianCounter, in_int64
from synthstream.strategies.matrices import column_of_decoder
from synthstream.workload import FloatArray, IntArray

# Beyond this, remembering every tick's counts costs more than it gains over the buffered counter.
LONGEST = 2**13


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
