"""The counters of the papers that add up noisy spans of ticks: which spans cover the first n of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from typing_extensions import override

from synthstream.papers.counters.nodes import NodeCounter, Span


@dataclass(frozen=True, kw_only=True)
class Block(NodeCounter):
    """Noisy ticks since the last complete block, and noisy complete blocks.

    With a horizon all blocks have about sqrt(horizon) ticks. Without one there are b blocks of b ticks for
    b = 2, 3, 4, ... (paper 2, Algorithm 4).

    Privacy:
        Unit        one event, in one tick and one cell; neighbours: add-remove
        Cost        epsilon = 1 / multiplier, whole stream
        Theorem     nodes
        Trusts      nothing
    Accuracy:       variance (complete blocks + ticks since) times that of one draw of scale 2 * multiplier; standard
                    error grows as t^(1/4) with the horizon known, and as t^(1/3), not t^(1/4), without end: after
                    t ticks there are about (3 t)^(2/3) / 2 blocks
    Time, memory:   O(cells) amortised per tick; state 2 numbers a cell for each tick of the open block
    Reference:      Chan, Shi, Song 2011, "Two-Level Counting Mechanism"; Kumar, Strohmer, Vershynin, Algorithm 4
    """

    @override
    def factor(self, n: int) -> int:
        return 2

    def cover(self, n: int) -> list[Span]:
        spans: list[Span] = []
        start, size, left = 1, 2, 2
        if self.horizon is not None:
            size, left = max(1, math.isqrt(self.horizon)), self.horizon
        while start + size - 1 <= n:
            spans.append(Span(start, start + size - 1, 2, settled=True))
            start += size
            left -= 1
            if left == 0:
                size += 1
                left = size
        spans += [Span(tick, tick, 2, settled=False) for tick in range(start, n + 1)]
        return spans


def dyadic(n: int, *, first: int, factor: int) -> list[Span]:
    """Spans of powers of two that cover ``n`` ticks from tick ``first`` on: the binary digits of ``n``."""
    spans = []
    start = first
    for level in reversed(range(n.bit_length())):
        if n >> level & 1:
            spans.append(Span(start, start + 2**level - 1, factor, settled=False))
            start += 2**level
    return spans


@dataclass(frozen=True, kw_only=True)
class Binary(NodeCounter):
    """Noisy sums of spans of 1, 2, 4, ... ticks; a prefix is the spans of its binary digits.

    Privacy:
        Unit        one event, in one tick and one cell; neighbours: add-remove
        Cost        epsilon = 1 / multiplier, whole stream
        Theorem     nodes
        Trusts      nothing
    Accuracy:       variance (binary ones of t + 1) times that of one draw of scale levels * multiplier, with
                    levels = floor(log2(horizon)) + 1
    Time, memory:   O(cells) amortised per tick; state 2 levels numbers a cell
    Reference:      Chan, Shi, Song 2011, "Binary Mechanism"; Dwork, Naor, Pitassi, Rothblum 2010
    """

    horizon: int

    def cover(self, n: int) -> list[Span]:
        return dyadic(n, first=1, factor=self.factor(n))

    @override
    def factor(self, n: int) -> int:
        """See :meth:`NodeCounter.factor`: one for each level."""
        return self.horizon.bit_length()


@dataclass(frozen=True, kw_only=True)
class Hybrid(NodeCounter):
    """Segments of 1, 2, 4, 8, ... ticks: half of the budget for each segment's total, half for a binary tree within.

    Privacy:
        Unit        one event, in one tick and one cell; neighbours: add-remove
        Cost        epsilon = 1 / multiplier, whole stream
        Theorem     nodes
        Trusts      nothing
    Accuracy:       variance of one draw of scale 2 * multiplier for each closed segment, and in segment k, of 2^k
                    ticks, of one draw of scale 2 k * multiplier for each binary one of the ticks since its start
    Time, memory:   O(cells) amortised per tick; state 2 log2(t) numbers a cell
    Reference:      Chan, Shi, Song 2011, "Hybrid Mechanism"
    """

    horizon: int | None = None

    def cover(self, n: int) -> list[Span]:
        spans: list[Span] = []
        start, exponent = 1, 0
        while start + 2**exponent - 1 <= n:
            spans.append(Span(start, start + 2**exponent - 1, 2, settled=True))
            start += 2**exponent
            exponent += 1
        # The whole segment is never a node of its tree, so the tree has ``exponent`` levels.
        return spans + dyadic(n - start + 1, first=start, factor=self.factor(n))

    def factor(self, n: int) -> int:
        """See :meth:`NodeCounter.factor`: that of the tree in the last segment that has begun."""
        return 2 * max(1, n.bit_length() - 1)
