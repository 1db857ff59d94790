"""Two noisy series of one count put together: one of every tick, and a better one that comes at refreshes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthstream.strategies.times import Refreshes, RefreshTimes
from synthstream.strategies.variances import Series, shared
from synthstream.workload import FloatArray, IntArray

# A burst stands out of the noise by so many standard deviations.
_BEYOND = 4.0


class Combined(NamedTuple):
    """Tables of one column, from both series; of others one series is all there is.

    Args:
        order: of each table, shape ``(marginals,)``: see ``Workload``.
        plan: when there are to be refreshes.
        ticks, refreshes: variances of the noise per unit of sensitivity of each table in the two series; 0: not in it.
        counter, singles, larger: the series: at every tick, tables of one column at refreshes, larger ones there.
        came: refreshes as they came; left out: as planned.
    """

    order: IntArray
    plan: RefreshTimes
    ticks: FloatArray
    refreshes: FloatArray
    counter: Series
    singles: Series
    larger: Series
    came: Refreshes | None = None

    @property
    def times(self) -> RefreshTimes | Refreshes:
        """When there are refreshes."""
        return self.plan if self.came is None else self.came

    def covariance(self, s: int, t: int) -> FloatArray:
        """Covariance of the noise in a cell's values as they are known after two ticks, shape ``(marginals,)``."""
        (k, i), (m, j), a, b = self.times.last(s), self.times.last(t), self.pull(s), self.pull(t)
        own = self._at(s, t) - b * self._at(s, m) - a * self._at(k, t) + a * b * self._at(k, m)
        small = self.ticks * own + a * b * self.refreshes * shared(self.singles, i, j)
        return np.where(self.order == 2, self.refreshes * shared(self.larger, i, j), small)

    def pull(self, tick: int) -> FloatArray:
        """How far each count is moved by what the last refresh found at its tick, by the least variance; 0 to 1."""
        last, number = self.times.last(tick)
        found = self.refreshes * shared(self.singles, number, number)
        pull = self._at(last, tick) * self.ticks / (self._at(last, last) * self.ticks + found + (self.order != 1))
        return np.where(self.order == 1, pull, 0.0)

    def after(self, tick: int, before: Refreshes, totals: tuple[float, float]) -> Refreshes:
        """Refreshes up to a tick.

        A burst may bring one early: a tick in which the total moves by as large a part as it grows by from one planned
        refresh to the next, beyond its noise.

        Args:
            before: those before the tick.
            totals: what was released of the total before this tick, and at it.
        """
        if not tick or not self.plan.spare:
            return self.plan.after(tick, before, burst=False)
        far = (self.plan.growth - 1) * abs(totals[0]) + _BEYOND * self._deviation(tick)
        return self.plan.after(tick, before, burst=abs(totals[1] - totals[0]) > far)

    def _deviation(self, tick: int) -> float:
        """Standard deviation of the noise in how far the total moves in a tick above 0."""
        moved = self._at(tick, tick) - 2 * self._at(tick - 1, tick) + self._at(tick - 1, tick - 1)
        return float(np.sqrt(moved * self.ticks[self.order == 0].max()))

    def _at(self, s: int, t: int) -> float:
        return shared(self.counter, s, t)
