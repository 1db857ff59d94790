"""Rows and tables of the events between two moments, from what was measured up to each: last month, not everything.

All of it is post-processing of what was published, and needs no state.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import numpy as np

from synthstream.config.config import StreamConfig
from synthstream.errors import NotReleased
from synthstream.fit.population import Population
from synthstream.measured import Reading
from synthstream.publish.building import Builder
from synthstream.release.release import seed_of
from synthstream.release.window import Moment, Window, ticks_between
from synthstream.schema.clock import Clock, written
from synthstream.synthesizers.succession import not_recorded
from synthstream.workload import FloatArray


class _Past:
    """What was measured before: see :class:`synthstream.synthesizers.contract.Past`."""

    def __init__(self, builder: Builder, clock: Clock, last: int) -> None:
        self._builder, self._clock, self._last = builder, clock, last
        self.start = builder.synthesizer(last).start
        self.cut = builder.cut_before(last)
        tables = builder.synthesizer(last).first.tables
        self.tables = () if tables is None else tables.workload.marginals

    def own(self, tick: int) -> Any:
        return self._builder.synthesizer(tick).own(self._builder.measured(tick))

    def whole(self, tick: int) -> Reading:
        return self._builder.seen(tick, at=self._last)

    def variance(self, first: int, last: int) -> FloatArray:
        covariance = partial(self._builder.covariance, at=self._last)
        variance = covariance(last, last)
        if first:
            variance = variance - 2 * covariance(first - 1, last) + covariance(first - 1, first - 1)
        return np.maximum(variance, 0.0)

    def seed(self, tick: int) -> int:
        return seed_of(self._builder.previous(tick + 1), "fit")

    def begins(self, tick: int) -> str:
        return written(self._clock.boundary(tick))


def window(config: StreamConfig, builder: Builder, start: Moment, end: Moment, *, newest: int) -> Window:
    """Rows and tables of the events from ``start`` to before ``end``, widened to whole ticks.

    Args:
        start, end: moments; see :func:`moment_of`.

    Raises:
        NotReleased: not all of it has been released, or streams of this kind have no windows, or not this one.
    """
    made = builder.newest.first
    if made.no_window:
        raise NotReleased(
            f'between: streams of kind = "{config.synthesizer.kind}" have no windows: {made.no_window}. Take a release '
            'as a whole; a stream of kind = "table" has windows.'
        )
    first, last = ticks_between(config.clock, start, end, newest=newest)
    config, made = config.at(last), builder.synthesizer(last).first
    before, after = builder.previous(first), builder.previous(last + 1)
    head = hashlib.sha256(f"between {before} {after}".encode()).hexdigest()
    past = _Past(builder, config.clock, last)
    cuts = {"cuts": config.cuts} if config.cuts else {}
    found = made.window(past, first, last, newest=newest, seed=seed_of(head, "fit"))
    model, workload = found.model, found.measured.workload if made.tables is None else made.tables.workload
    if first < past.cut:  # of tables: rows have no value in a column that was not recorded when the window begins
        codes = model.codes.astype(np.int32)
        for life in config.lives[len(config.at(first).lives) :]:
            codes = not_recorded(life, codes)
        model = Population.of(workload, codes)
    return Window(
        name=config.name,
        schema=config.schema,
        workload=workload,
        measured=found.measured,
        model=model,
        start=config.clock.boundary(first),
        end=config.clock.boundary(last + 1),
        facts={"claim": builder.claim_at(last), "chain": {"previous": before, "head": head}, **cuts},
        secure=builder.secure,
        released=np.zeros(0, dtype=np.int64),
        covariance=partial(builder.covariance, at=last),
        first=first,
    )
