"""What counters have in common that add up noisy sums of spans of ticks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from synthstream.kernel.counters.base import Counter, State, clip, rounded_up
from synthstream.kernel.gate import Gate
from synthstream.kinds import Noise
from synthstream.workload import FloatArray, IntArray


class Span(NamedTuple):
    """Ticks ``start..end``, 1-based and inclusive, whose sum passes the gate once, when it is complete.

    Args:
        factor: scale of its noise, in multipliers.
        settled: it will be part of every later cover; otherwise a longer span may take its place.
    """

    start: int
    end: int
    factor: int
    settled: bool


@dataclass(frozen=True, kw_only=True)
class NodeCounter(Counter):
    """Running sums as sums of noisy spans. Exactly one span is complete after each tick, and passes the gate then.

    A subclass says which spans cover a prefix. Its cost is the largest sum of 1 / factor over the spans that hold one
    tick, and must be at most 1 (theorem ``nodes``).
    """

    theorem: ClassVar[str] = "nodes"

    noise: Noise = "laplace"

    def __post_init__(self) -> None:
        if self.noise != "laplace":
            raise ValueError(f"counter {type(self).__name__.lower()!r}: noise must be laplace")

    @abstractmethod
    def cover(self, n: int) -> list[Span]:
        """Spans that make up the first ``n`` ticks, in order, settled ones first; the last one ends at ``n``."""

    @abstractmethod
    def factor(self, n: int) -> int:
        """Largest factor of a span that ends within the first ``n`` ticks."""

    @override
    def sensitivity(self, t: int = 0) -> float:
        """Cost of one event in units of 1 / multiplier: the factors are chosen so that this is at most one."""
        return 1.0

    def init(self, cells: int) -> State:
        none = np.zeros((0, cells), dtype=np.int64)
        return {"t": np.array(0), "settled": np.zeros(cells, dtype=np.int64), "exact": none, "noisy": none}

    def step(self, state: State, counts: IntArray, gate: Gate, *, multiplier: FloatArray) -> tuple[State, FloatArray]:
        t = self.tick_of(state)
        new = self.cover(t + 1)[-1]
        kept = sum(not span.settled and span.start < new.start for span in self.cover(t))
        exact = clip(counts) + state["exact"][kept:].sum(axis=0)
        noisy = gate.laplace(exact, scale=rounded_up(new.factor * multiplier))
        after = {"t": np.array(t + 1), "exact": state["exact"][:kept], "noisy": state["noisy"][:kept]}
        if new.settled:
            after["settled"] = state["settled"] + noisy
        else:
            after["settled"] = state["settled"]
            after["exact"] = np.concatenate([after["exact"], exact[None]])
            after["noisy"] = np.concatenate([after["noisy"], noisy[None]])
        released = after["settled"] + after["noisy"].sum(axis=0)
        return after, np.asarray(released, dtype=np.float64)

    def covariance(self, s: int, t: int, *, multiplier: float) -> float:
        common = set(self.cover(s + 1)) & set(self.cover(t + 1))
        scales = [rounded_up(span.factor * multiplier) for span in common]
        return float(sum(self.noise_variance(scale) for scale in scales))

    def reach(self, last: int) -> float:
        return float(self.factor(last + 1))

    def widest(self, t: int, *, multiplier: float) -> float:
        return rounded_up(max(span.factor for span in self.cover(t + 1)) * multiplier)
