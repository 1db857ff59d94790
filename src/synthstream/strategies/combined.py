"""Two noisy series of one count put together: one of every tick, and a better one that comes at refreshes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthstream.strategies.times import RefreshTimes
from synthstream.strategies.variances import Series
from synthstream.workload import FloatArray, IntArray


class Combined(NamedTuple):
    """Tables of one column, from both series; of others one series is all there is.

    Args:
        order: of each table, shape ``(marginals,)``: see ``Workload``.
        times: when there are refreshes.
        ticks, refreshes: variances of the noise per unit of sensitivity of each table in the two series; 0: not in it.
        counter, singles, larger: the series: at every tick, tables of one column at refreshes, larger ones there.
    """

    order: IntArray
    times: RefreshTimes
    ticks: FloatArray
    refreshes: FloatArray
    counter: Series
    singles: Series
    larger: Series

    def covariance(self, s: int, t: int) -> FloatArray:
        """Covariance of the noise in a cell's values as they are known after two ticks, shape ``(marginals,)``."""
        (k, i), (m, j), a, b = self.times.last(s), self.times.last(t), self.pull(s), self.pull(t)
        own = self._at(s, t) - b * self._at(s, m) - a * self._at(k, t) + a * b * self._at(k, m)
        small = self.ticks * own + a * b * self.refreshes * self.singles.covariance(i, j, multiplier=1.0)
        return np.where(self.order == 2, self.refreshes * self.larger.covariance(i, j, multiplier=1.0), small)

    def pull(self, tick: int) -> FloatArray:
        """How far each count is moved by what the last refresh found at its tick, by the least variance; 0 to 1."""
        last, number = self.times.last(tick)
        found = self.refreshes * self.singles.covariance(number, number, multiplier=1.0)
        pull = self._at(last, tick) * self.ticks / (self._at(last, last) * self.ticks + found + (self.order != 1))
        return np.where(self.order == 1, pull, 0.0)

    def _at(self, s: int, t: int) -> float:
        return self.counter.covariance(s, t, multiplier=1.0)
