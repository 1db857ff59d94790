"""The binary tree counter for a bounded horizon, and its extension without end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from synthstream.papers.counters.nodes import NodeCounter, Span


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

    theorem: ClassVar[str] = "nodes"
    horizon: int

    def cover(self, n: int) -> list[Span]:
        return dyadic(n, first=1, factor=self.factor(n))

    @override
    def factor(self, n: int) -> int:
        """See :meth:`NodeCounter.factor`: one for each level."""
        return self.horizon.bit_length()
