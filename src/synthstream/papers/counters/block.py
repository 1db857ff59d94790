"""The block counter of two levels: single ticks within a block, and whole blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

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

    theorem: ClassVar[str] = "nodes"

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
