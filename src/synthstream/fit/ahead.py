"""What releases say of an epoch before its larger tables are measured: what they may hold, and how fast shares drift.

Post-processing of released values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from synthstream.fit.drift import Parts, smooth
from synthstream.fit.population import Population
from synthstream.workload import FloatArray, Workload

# Rounds of iterative proportional fitting.
_ROUNDS = 6
_MOST_PARTS = 4
# Drift is worth another part where it moves an epoch's counts by about so many times the noise of measuring them.
_WORTH = 4.0


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """Plans for the mechanism of epochs (:class:`synthstream.kernel.epochs.Plan`).

    Args:
        workload: all tables.
        rows: of the newest release; ``None`` if there is none.
        known: tables of single columns of all parts that have ended; ``None`` if none has, or they are not to be used.
        begun, before: first ticks of the epoch that is open, or begins, and of the one before it.
        variance: of each cell of a table of one column, shape ``(columns,)``; infinite where there is none.
    """

    workload: Workload
    rows: Population | None = None
    known: Callable[[], Parts] | None = None
    begun: int = 0
    before: int = 0
    variance: FloatArray | None = None

    def parts(self) -> int:
        """The square of what drift moves in half an epoch, by the noise of measuring it: its root is the number.

        The epoch is taken to bring half as many events as all before it.
        """
        if self.known is None or self.variance is None:
            return 1
        known, measured = self.known(), np.isfinite(self.variance)
        noise = float(np.sum((self.variance * known.sizes)[measured]))
        if noise <= 0:
            return 1
        step = float(np.sum(smooth(known).steps)) * max(int(np.sum(known.ends >= self.before)), 1)
        drift = (float(known.size.sum()) / 2) ** 2 * step
        return int(np.clip(round(float(np.sqrt(drift / (_WORTH * noise)))), 1, _MOST_PARTS))

    def guess(self, events: float, singles: FloatArray) -> FloatArray:
        """Tables of the rows over all cells, with the epoch's own margins; uniform if there are no rows.

        Args:
            events: of the epoch.
            singles: tables of one column of its last part, in the order of the workload; empty if not measured yet.
        """
        events, workload = max(events, 1.0), self.workload
        if self.rows is None or self.rows.number == 0:
            return np.asarray(np.repeat(events / workload.lengths, workload.lengths))
        tables = np.asarray(self.rows.counts(workload) * (events / self.rows.number))
        known = self.known() if self.known is not None and singles.size else None
        if known is None or known.rows is not None or self.variance is None:
            return tables
        margins = self._margins(known, events, singles, self.variance)
        for q, marginal in enumerate(workload.marginals):
            table = workload.table(tables, q)
            table[...] = raked(table, [margins[c] for c in marginal])
        return tables

    def _margins(self, known: Parts, events: float, singles: FloatArray, noise: FloatArray) -> list[FloatArray]:
        """Smoothed counts of each column's codes over the epoch."""
        before = int(np.sum(known.ends < self.begun))
        values, variance = np.zeros(known.column.size), np.full(known.column.size, np.inf)
        place = 0
        for marginal in self.workload.marginals:
            if len(marginal) == 1:
                column = known.column == marginal[0]
                values[column] = singles[place : place + column.sum()]
                variance[column] = noise[marginal[0]]
                place += int(column.sum())
        total = (float(known.totals[before - 1]) if before else 0.0) + events
        of_totals = np.append(np.diag(known.covariance), known.covariance[-1, -1])
        parts = replace(
            known,
            ends=np.append(known.ends, known.ends[-1] + 1),
            totals=np.append(known.totals, total),
            covariance=np.diag(of_totals),
            values=np.vstack([known.values, values]),
            variance=np.vstack([known.variance, variance]),
        )
        counts = np.maximum((smooth(parts).shares * parts.size[:, None])[before:].sum(axis=0), 0.0)
        sums = np.maximum(np.add.reduceat(counts, parts.places), 1.0)
        return np.split(counts * (events / sums)[parts.column], parts.places[1:])


def raked(table: FloatArray, margins: Sequence[FloatArray]) -> FloatArray:
    """A table moved to other margins, its associations kept: iterative proportional fitting.

    Source: Deming and Stephan 1940.
    """
    for _ in range(_ROUNDS):
        for axis, margin in enumerate(margins):
            other = tuple(a for a in range(table.ndim) if a != axis)
            now = table.sum(axis=other, keepdims=True)
            wanted = margin.reshape(now.shape)
            # A code that no row has is spread evenly.
            even = wanted / (table.size / margin.size)
            table = np.where(now > 0, table * (wanted / np.where(now > 0, now, 1.0)), even)
    return table
