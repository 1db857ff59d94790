"""Rows and tables of the events between two moments, from what was measured up to each: last month, not everything.

All of it is post-processing of what was published, and needs no state.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np

from synthstream.config.config import StreamConfig
from synthstream.errors import NotReleased
from synthstream.fit.population import Population
from synthstream.publish.building import Builder
from synthstream.release.release import seed_of
from synthstream.release.window import Moment, Window, ticks_between
from synthstream.synthesizers.succession import not_recorded


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
    past = builder.past(last)
    cuts = {"cuts": config.cuts} if config.cuts else {}
    found = made.window(past, first, last, newest=newest, seed=seed_of(head, "fit"))
    model, workload = found.model, found.measured.workload if made.tables is None else made.tables.workload
    if first < past.cut:  # of tables: rows have no value in a column that was not recorded when the window begins
        codes = model.codes.astype(np.int32)
        for life in config.lives[len(config.at(first).lives) :]:
            codes = not_recorded(life, codes)
        model = replace(Population.of(workload, codes), weights=model.weights)
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
