"""The hybrid counter: binary trees on ever longer segments, for streams without end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from synthstream.papers.counters.binary import dyadic
from synthstream.papers.counters.nodes import NodeCounter, Span


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

    theorem: ClassVar[str] = "nodes"
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
