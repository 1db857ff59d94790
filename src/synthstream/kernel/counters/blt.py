"""The buffered linear Toeplitz counter: a few leaky sums in place of the whole history."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from synthstream.accounting.powers import geometric, powers
from synthstream.kernel.counters.base import State
from synthstream.kernel.counters.matrix import Encoded
from synthstream.kernel.counters.toeplitz import ToeplitzCounter
from synthstream.kernel.leaky import NDArrayU64, advance
from synthstream.strategies.matrices import leaky_column, leaky_decoder, leaky_encoder
from synthstream.workload import FloatArray, IntArray

# The longest span one factorisation serves; longer streams restart it (see restarted.py).
LONGEST = 2**20
# Counts of 2^31 times this times the grid's 2^20 stay below 2^62 (theorem blt, no overflow).
_LARGEST_SUM = 2**11


@dataclass(frozen=True, kw_only=True)
class Blt(ToeplitzCounter):
    """Running sums by A = B C with b(x) = 1 + sum_k w_k / (1 - lambda_k x), one lambda being 1.

    C has the generating function 1 / ((1 - x) b(x)) = sum_i r_i / (1 - mu_i x): its rows are a few leaky sums of
    the counts, kept in 64 + 64 bit fixed point.

    Privacy:
        Unit        one event, in one tick and one cell; neighbours: add-remove
        Cost        rho = 1 / (2 multiplier^2), whole stream
        Theorem     blt
        Trusts      nothing
    Accuracy:       variance sensitivity^2 multiplier^2 sum_{j <= t} b_j^2
    Time, memory:   O(cells buffers) per tick and of state
    Reference:      Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024 (arXiv 2404.16706)
    """

    theorem: ClassVar[str] = "blt"
    longest: ClassVar[int] = LONGEST

    @cached_property
    def _b(self) -> tuple[FloatArray, FloatArray]:
        """Weights w_k and decays lambda_k of B for this horizon."""
        return leaky_decoder(self.horizon)

    @cached_property
    def _c(self) -> tuple[NDArrayU64, NDArrayU64]:
        """Weights r_i and decays mu_i of C, each a multiple of 2^-64, in those units."""
        r, mu = leaky_encoder(*self._b)
        if not np.all((r > 0) & (r < 1) & (mu > 0) & (mu < 1)):
            raise ArithmeticError("blt parameters give a strategy that is not completely monotone")
        return _fractions(r), _fractions(mu)

    @cached_property
    def coefficients(self) -> FloatArray:
        """First column of C before rounding to the grid, shape ``(horizon,)``."""
        r, mu = (part.astype(np.float64) / 2.0**64 for part in self._c)
        return np.asarray(np.sum(r[:, None] * powers(mu, self.horizon), axis=0))

    @cached_property
    def _norm(self) -> float:
        """L2 sensitivity: norm of the column, its float error, and the worst that fixed point can add."""
        if not float(self.coefficients.sum()) < _LARGEST_SUM:
            raise ArithmeticError(
                "blt parameters would let a sum leave 64 bits; the proof of the sensitivity needs it in"
            )
        norm = math.sqrt(math.fsum(self.coefficients**2))
        return norm * (1 + 1e-9) + math.sqrt(self.horizon) * self._slack

    @cached_property
    def _slack(self) -> float:
        """The most that fixed point can add to what one event moves the value of one tick."""
        _, mu = self._c
        slowest = 1 / (1 - float(mu.max()) / 2.0**64)
        return 2.0**-self.grid_bits + 2 * mu.size * (slowest + 1) * 2.0**-64

    def facts(self) -> list[Any]:
        return [*super().facts(), *(part.tolist() for part in self._c)]

    def sensitivity(self, t: int = 0) -> float:
        """L2 norm of the first column over the horizon, rounding included."""
        return self._norm

    def participation(self, ticks: int) -> Fraction | None:
        """See :meth:`Counter.participation`: the norm of the sum of the first columns, what rounding may add included.

        Geometric sums, all terms positive: no digits cancel.
        """
        r, t = self._c[0].astype(np.float64) / 2.0**64, np.arange(self.horizon)
        events = np.minimum(t + 1, ticks)
        terms = geometric(self._c[1], t + 1 - events, events)
        moved = np.sum(r[:, None] * terms, axis=0)
        norm = math.sqrt(math.fsum(moved**2)) * (1 + 1e-9)
        return Fraction(norm + ticks * math.sqrt(self.horizon) * self._slack * (1 + 1e-9))

    @cached_property
    def decoder(self) -> FloatArray:
        """First column of B, shape ``(horizon,)``."""
        return leaky_column(*self._b, self.horizon)

    def init(self, cells: int) -> State:
        sums = np.zeros((self._b[0].size, cells))
        return {"t": np.array(0), "hi": sums.astype(np.int64), "lo": sums.astype(np.uint64), "decoded": sums}

    def encode(self, state: State, counts: IntArray) -> Encoded:
        r, mu = self._c
        hi, lo, value = state["hi"].copy(), state["lo"].copy(), np.empty_like(counts)
        advance(hi, lo, mu, r, counts, self.grid_bits, value)
        return Encoded(state | {"hi": hi, "lo": lo}, value)

    def decode(self, state: State, released: IntArray) -> tuple[State, FloatArray]:
        w, lam = self._b
        y = released / 2.0**self.grid_bits
        sums = lam[:, None] * state["decoded"] + y
        return state | {"decoded": sums}, y + w @ sums


def _fractions(values: FloatArray) -> NDArrayU64:
    """Numbers in (0, 1) as multiples of 2^-64."""
    return np.array([int(value * 2.0**64) for value in values], dtype=np.uint64)
