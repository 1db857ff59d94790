"""A counter that the package does not know: single days since the last full week, and full weeks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from synthstream.kernel.counters import Served, register
from synthstream.papers.counters.nodes import NodeCounter, Span

_DAYS = 7


@dataclass(frozen=True, kw_only=True)
class Weeks(NodeCounter):
    """Noisy days since the last full week, and noisy full weeks: a day lies in two spans at most."""

    theorem: ClassVar[str] = "nodes"

    def factor(self, n: int) -> int:
        """See :meth:`NodeCounter.factor`."""
        return 2

    def cover(self, n: int) -> list[Span]:
        """See :meth:`NodeCounter.cover`."""
        full = n // _DAYS
        weeks = [Span(_DAYS * k + 1, _DAYS * k + _DAYS, 2, settled=True) for k in range(full)]
        return weeks + [Span(day, day, 2, settled=False) for day in range(_DAYS * full + 1, n + 1)]


register("sevens", Served(lambda horizon, noise: Weeks(horizon=horizon), ("laplace",)))
