"""What is known of the events between two moments, from what was measured up to each: last month, not everything.

All of it is post-processing of what was published, and needs no state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from synthstream.config.config import StreamConfig
from synthstream.errors import NotReleased
from synthstream.fit.population import Population
from synthstream.measured import Measured, stamped
from synthstream.publish.building import Builder
from synthstream.release.areas import Bounds, Inside
from synthstream.release.series import Step
from synthstream.release.window import Moment, PointWindow, Window, ticks_between
from synthstream.schema.clock import Clock
from synthstream.synthesizers.succession import known_since, not_recorded


def window(
    config: StreamConfig, builder: Builder, start: Moment | int, end: Moment | int, *, newest: int
) -> Window | PointWindow:
    """Rows, and tables or masses, of the events from ``start`` to before ``end``, widened to whole ticks.

    Args:
        start, end: moments, see :func:`moment_of`; or numbers of ticks, which stand for when these begin.

    Raises:
        NotReleased: not all of it has been released, or streams of this kind have no windows, or not this one.
    """
    return window_of(config, builder, *ticks_between(config.clock, start, end, newest=newest), newest=newest)


def window_of(config: StreamConfig, builder: Builder, first: int, last: int, *, newest: int) -> Window | PointWindow:
    """The same, of some ticks."""
    config, made = config.at(last), builder.synthesizer(last).first
    if made.no_window:
        raise NotReleased(
            f'between: streams of kind = "{config.synthesizer.kind}" have no windows: {made.no_window}. Take a release '
            'as a whole; streams of kind = "table" and "points" have windows.'
        )
    cuts = {"cuts": config.cuts} if config.cuts else {}
    found, head = builder.between(first, last, newest=newest)
    chain = {"previous": builder.previous(first), "head": head}
    facts: dict[str, Any] = {
        "name": config.name,
        "schema": config.schema,
        "start": config.clock.boundary(first),
        "end": config.clock.boundary(last + 1),
        "facts": {"claim": stamped(builder.claim_at(last), secure=builder.secure), "chain": chain, **cuts},
        "secure": builder.secure,
        "released": np.zeros(0, dtype=np.int64),
        "measured": found.measured,
        "first": first,
    }
    if not isinstance(found.measured, Measured):
        return PointWindow(model=found.model, **facts)
    model, workload = found.model, found.measured.workload if made.tables is None else made.tables.workload
    if first < builder.cut_before(last):  # rows have no value in a column that was not recorded when it begins
        codes = model.codes.astype(np.int32)
        for life in config.lives[len(config.at(first).lives) :]:
            codes = not_recorded(life, codes)
        model = replace(Population.of(workload, codes), weights=model.weights)
    covariance = partial(builder.covariance, at=last)
    return Window(workload=workload, model=model, covariance=covariance, dates=config.dates, **facts)


def known(config: StreamConfig, counted: Measured) -> Measured:
    """What was counted in a step, with NaN for values that rows could not have when the step began."""
    values, cells = counted.values.copy(), counted.cell_variance().copy()
    for marginal, since in zip(counted.workload.marginals, counted.since.tolist(), strict=True):
        if len(marginal) == 1:
            here = counted.workload.slice_of(marginal)
            unknown = known_since(config, config.schema.names[marginal[0]]) > since
            values[here][unknown] = cells[here][unknown] = np.nan
    return replace(counted, values=values, by_cell=cells)


def masses_by_step(
    config: StreamConfig, builder: Builder, spans: Iterable[Step], lower: Inside, upper: Bounds, *, newest: int
) -> pl.DataFrame:
    """Events of a stream of points that came into a box, or polygons, in each step: ``start``, ``end``, ``measured``,
    ``stderr`` and ``whole``. Raises as :func:`window_of`.
    """
    found = []
    for first, last, whole in spans:
        try:
            of_step = cast(PointWindow, window_of(config, builder, first, last, newest=newest))
        except NotReleased as error:
            raise NotReleased(f"series: {str(error).removeprefix('between: ')}") from None
        lower = of_step.polygon(lower) if isinstance(lower, str | Path) else lower
        told = of_step.mass(lower, upper)
        found.append((of_step.start, of_step.end, told["measured"], told["stderr"], whole))
    return _by_step(found)


def located_by_step(
    clock: Clock, masses: Iterable[tuple[Step, dict[str, Any]]], every: str | timedelta | None, recorded: int
) -> pl.DataFrame:
    """The same of a place, from its mass in each step: see :meth:`TableRelease.masses`.

    Args:
        every: length of a step; ``None``: a tick, or what was measured together with it.
        recorded: the first tick whose rows have the place; steps that begin before it are left out.

    Raises:
        NotReleased: a step is not known from its first tick on.
    """
    found = list[tuple[Any, ...]]()
    for (first, last, whole), told in masses:
        if every is not None and first < recorded:
            continue
        if every is not None and told["since"] != first:
            raise NotReleased(
                f"series: the place is not known at the end of every tick, so not for every {every}. Leave 'every' "
                "out: each line then says from when to when it counts."
            )
        if told["measured"] is not None:
            ends = clock.boundary(told["since"]), clock.boundary(last + 1)
            found.append((*ends, told["measured"], told["stderr"], whole))
    return _by_step(found)


def _by_step(found: Iterable[tuple[Any, ...]]) -> pl.DataFrame:
    lines = [(*(end.replace(tzinfo=None) for end in line[:2]), *line[2:]) for line in found]
    columns = ["start", "end", "measured", "stderr", "whole"]
    kinds = [pl.Datetime("us"), pl.Datetime("us"), pl.Float64(), pl.Float64(), pl.Boolean()]
    return pl.DataFrame(lines, schema=list(zip(columns, kinds, strict=True)), orient="row")
