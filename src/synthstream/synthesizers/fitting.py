"""How rows are fitted to what was measured, and what is known of their dates before. Post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from synthstream.constraints import Group, joined
from synthstream.fit.changes import as_often
from synthstream.fit.pooling import pooled
from synthstream.fit.population import Population, fit
from synthstream.fit.targets import SMALLEST, total_of
from synthstream.measured import Measured
from synthstream.schema.dates import Dates
from synthstream.workload import FloatArray


class RowFitting(NamedTuple):
    """How rows are fitted: see :func:`synthstream.fit.population.fit`.

    Args:
        groups: public constraints, which published rows satisfy; what is measured does not depend on them.
        most: rows at most, which stand for more events each where there are more; ``None``: a row for each event.
        dates: columns in which no row lies in the future.
    """

    groups: tuple[Group, ...] = ()
    most: int | None = None
    dates: Dates | None = None

    def at(self, tick: int) -> RowFitting:
        """The same at a tick, of those that are measured: with what its dates allow among the groups."""
        if self.dates is None:
            return self
        return self._replace(groups=joined([*self.groups, *self.dates.possible(tick)]))

    def pooled(self, history: Sequence[Measured], **known: Any) -> Measured:
        """What epochs tell together: see :func:`synthstream.fit.pooling.pooled`."""
        if self.dates is None:
            return pooled(history, groups=self.groups, **known)
        return pooled(history, groups=self.groups, expected=self.dates.tables, again=self.dates.parts, **known)

    def expected(self, first: int, last: int, known: Measured, ever: tuple[int, int]) -> dict[int, FloatArray]:
        """Shares that codes of dates are expected to have among rows that come in some ticks in time.

        Parts of the calendar, and bins that are tied to them, have rows in proportion to their time in these ticks, and
        to how many there were in as much of it before, as far as noise lets it be told.

        Args:
            known: what was measured of the events of some ticks before.
            ever: the first and the last of these.
        """
        if self.dates is None:
            return {}
        often, total, tied = dict[int, FloatArray](), total_of(known), {c: g for g in self.groups for c in g.columns}
        for c, time in self.dates.passed(*ever).items() if self.dates.parts else ():
            often[c] = np.ones(time.size)
            if (c,) in known.workload.place:
                counts, error = known.marginal((c,))
                often[c] = as_often(counts, total * time, error**2)
        found = self.dates.expected(first, last)
        for c, time in found.items():
            factor = often.get(c, tied[c].product(c, time.size, often) if c in tied else 1.0)
            # Where nothing ever came in such time, all that is known is the time.
            likely = time * factor if np.any(time * factor > 0) else time
            found[c] = likely / max(float(np.sum(likely)), SMALLEST)
        return found

    def fit(self, measured: Measured, **how: Any) -> Population:
        """Rows for a measurement: see :func:`synthstream.fit.population.fit`."""
        return fit(measured, groups=self.groups, most=self.most, **how)


PLAIN = RowFitting()
