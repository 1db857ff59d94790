"""Rows and tables of the events between two moments, from what was measured up to each: last month, not everything.

All of it is post-processing of what was published, and needs no state.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from synthstream.config.config import StreamConfig
from synthstream.errors import NotReleased
from synthstream.measured import Reading
from synthstream.publish.building import Builder
from synthstream.release.release import seed_of
from synthstream.release.window import Moment, Window, ticks_between
from synthstream.schema.clock import Clock, written
from synthstream.workload import FloatArray


class _Past:
    """What was measured before: see :class:`synthstream.synthesizers.contract.Past`."""

    def __init__(self, builder: Builder, clock: Clock, last: int) -> None:
        self._builder, self._clock = builder, clock
        self.start = builder.synthesizer(last).start

    def own(self, tick: int) -> Any:
        return self._builder.synthesizer(tick).own(self._builder.measured(tick))

    def whole(self, tick: int) -> Reading:
        return self._builder.whole(tick)

    def variance(self, first: int, last: int) -> FloatArray:
        covariance = self._builder.covariance
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
    before, after = builder.previous(first), builder.previous(last + 1)
    head = hashlib.sha256(f"between {before} {after}".encode()).hexdigest()
    past = _Past(builder, config.clock, last)
    found = made.window(past, first, last, newest=newest, seed=seed_of(head, "fit"))
    return Window(
        name=config.name,
        schema=config.schema,
        workload=found.measured.workload if made.tables is None else made.tables.workload,
        measured=found.measured,
        model=found.model,
        start=config.clock.boundary(first),
        end=config.clock.boundary(last + 1),
        facts={"claim": builder.claim_at(last), "chain": {"previous": before, "head": head}},
        secure=builder.secure,
        released=np.zeros(0, dtype=np.int64),
        covariance=builder.covariance,
        first=first,
    )
