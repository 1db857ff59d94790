"""The k-ary tree counter with subtraction, for pure differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from synthstream.kernel.counters.base import Counter, State, clip, rounded_up
from synthstream.kernel.gate import Gate
from synthstream.kinds import Noise
from synthstream.strategies.matrices import best_arity, nodes_of_prefix
from synthstream.workload import FloatArray, IntArray

N = TypeVar("N", int, IntArray)


@dataclass(frozen=True, kw_only=True)
class Kary(Counter):
    """Running sums written in signed base-k digits: nodes left of the boundary added, nodes right of it taken away.

    Write n = t + 1 = sum_l d_l k^l with odd k and |d_l| <= r = (k - 1) / 2. At level l the nodes are spans of k^l
    ticks. A positive digit adds the d_l nodes after the nearest multiple of k; a negative one takes away the
    |d_l| nodes before it, some of whose ticks lie in the future. The sum of those nodes is the prefix, exactly;
    each node carries one noise, drawn when it is first needed and kept until it no longer is.

    Privacy:
        Unit        one event, in one tick and one cell; neighbours: add-remove
        Cost        epsilon = 1 / multiplier, whole stream
        Theorem     kary
        Trusts      the state stays secret: it holds the noise of nodes in use, which the released sums hide
    Accuracy:       variance (sum_l |d_l|) times that of one draw of scale levels * multiplier
    Time, memory:   O(cells) amortised per tick; state at most (r + 1) levels + 1 numbers a cell
    Reference:      Andersson, Pagh, Steiner, Torkamani 2025 (arXiv 2408.07021)
    """

    theorem: ClassVar[str] = "kary"
    horizon: int
    noise: Noise = "laplace"

    def __post_init__(self) -> None:
        if not 1 <= self.horizon <= 2**40:
            raise ValueError("horizon must be between 1 and 2^40 for one run of the kary counter")
        if self.noise != "laplace":
            raise ValueError("noise must be laplace for the kary counter")

    @cached_property
    def arity(self) -> int:
        """k: the one with the smallest mean variance over the horizon. If it were even, an event could cost more."""
        if (k := best_arity(self.horizon, _digits, _levels)) < 3 or k % 2 == 0:
            raise ArithmeticError(f"kary: the arity must be odd and at least 3, not {k}")
        return k

    @cached_property
    def levels(self) -> int:
        """h: the smallest number of digits that reaches the horizon."""
        return _levels(self.arity, self.horizon)

    def facts(self) -> list[Any]:
        return [*super().facts(), self.arity, self.levels]

    def sensitivity(self, t: int = 0) -> float:
        """One event lies in at most one node of each level."""
        return float(self.levels)

    def digits(self, n: int) -> list[int]:
        """Signed digits of ``n``, lowest first."""
        return _digits(n, self.arity, self.levels)

    def init(self, cells: int) -> State:
        return {
            "t": np.array(0),
            "sum": np.zeros(cells, dtype=np.int64),
            "left": np.zeros((self.levels, cells), dtype=np.int64),
            "right": np.zeros((self.levels, self.arity // 2, cells), dtype=np.int64),
        }

    def step(self, state: State, counts: IntArray, gate: Gate, *, multiplier: FloatArray) -> tuple[State, FloatArray]:
        t = self.tick_of(state)
        total = state["sum"] + clip(counts)
        left, right = state["left"].copy(), state["right"].copy()
        scale = rounded_up(self.levels * multiplier)
        before, after = self.digits(t), self.digits(t + 1)
        for level, (old, new) in enumerate(zip(before, after, strict=True)):
            if new == old:
                break  # digits above the last carry do not change
            self._move(level, new, left, right, gate, scale)
        noise = np.zeros_like(total)
        for level, d in enumerate(after):
            noise += left[level] if d > 0 else -right[level].sum(axis=0)
        released = gate.perturb(total, noise)
        return {"t": np.array(t + 1), "sum": total, "left": left, "right": right}, released.astype(np.float64)

    def _move(self, level: int, digit: int, left: IntArray, right: IntArray, gate: Gate, scale: FloatArray) -> None:
        """Bring one level's noise in line with its new digit: draw for nodes first needed, forget the others."""
        r, cells = right.shape[1:]
        if digit > 0:
            left[level] += gate.noise(cells, scale=scale)
            return
        left[level] = 0
        if digit == -r:
            right[level] = [gate.noise(cells, scale=scale) for _ in range(r)]
        right[level, : r + digit] = 0  # these spans are behind the prefix now

    def covariance(self, s: int, t: int, *, multiplier: float) -> float:
        scale = rounded_up(self.levels * multiplier)
        if s == t:
            return sum(map(abs, self.digits(t + 1))) * self.noise_variance(scale)
        first, last = (nodes_of_prefix(self.digits(n + 1), self.arity) for n in (s, t))
        return len(first & last) * self.noise_variance(scale)


def _digits(n: N, k: int, levels: int) -> list[N]:
    """Signed digits in base ``k``, lowest first."""
    found = []
    for _ in range(levels):
        d = (n + k // 2) % k - k // 2
        found.append(d)
        n = (n - d) // k
    return found


def _levels(k: int, horizon: int) -> int:
    h = 1
    while k**h // 2 < horizon:
        h += 1
    return h
