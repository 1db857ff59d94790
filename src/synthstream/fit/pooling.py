"""From measurements of epochs to one estimate of every running table. Post-processing of released values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthstream.constraints import Group
from synthstream.fit.carried import Running, running_tables
from synthstream.fit.drift import parts_of, smooth
from synthstream.measured import Measured
from synthstream.workload import FloatArray, Workload


def pooled(
    history: Sequence[Measured],
    *,
    covariance: FloatArray | None = None,
    groups: Sequence[Group] = (),
) -> Measured:
    """Estimated running counts of every table that was ever measured, with their variances.

    See :mod:`synthstream.fit.drift` for tables of single columns, :mod:`synthstream.fit.carried` for others.

    Args:
        history: measurements of all ticks at which epochs ended, and of the newest tick, in order. Each holds the
            running total ``()``.
        covariance: of the noise of the running totals at these ticks; left out: their variances alone.
        groups: public constraints.
    """
    now = history[-1]
    parts = parts_of(history, now.workload.sizes, covariance)
    found = smooth(parts)
    tables: list[Running] = [
        Running((), np.array([max(parts.events.sum(), 0.0)]), float(now.variance[now.workload.place[()]]))
    ]
    for column, known in enumerate(parts.known):
        if known:
            own = found.running[parts.column == column]
            tables.append(Running((column,), own, float(found.variance[column])))
    tables += running_tables(parts, found, history, groups)
    return Measured(
        tick=now.tick,
        workload=Workload(sizes=now.workload.sizes, marginals=tuple(marginal for marginal, *_ in tables)),
        values=np.concatenate([values for _, values, _ in tables]),
        variance=np.array([variance for *_, variance in tables]),
    )
