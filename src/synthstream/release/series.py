"""The numbers of single ticks, and of longer steps: what was counted in each, and how far it may be off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from synthstream.errors import ConfigError
from synthstream.measured import Measured
from synthstream.schema.clock import EVERY, Clock, length_of, no_length
from synthstream.schema.schema import Schema
from synthstream.workload import FloatArray, Workload

Span = Literal["tick", "running"]

_CALENDAR = ("mo", "q", "y")
# Calendar steps that readers choose, beside the tick.
CALENDAR = {"month": "1mo", "quarter": "1q", "year": "1y"}


def small(measured: Measured) -> Measured:
    """The total and tables of one column alone, as far as they were measured at its tick."""
    now = (measured.workload.order < 2) & (measured.until == measured.tick)
    return only(measured, np.flatnonzero(now).tolist())


def only(measured: Measured, places: list[int]) -> Measured:
    """Some of its tables."""
    workload = measured.workload
    kept = workload.only(places)

    def cells_of(all_cells: FloatArray) -> FloatArray:
        return np.concatenate([np.zeros(0), *(all_cells[workload.slice_of(m)] for m in kept.marginals)])

    return replace(
        measured,
        workload=kept,
        values=cells_of(measured.values),
        variance=measured.variance[places],
        since=measured.since[places],
        measured_at=None if measured.measured_at is None else measured.measured_at[places],
        by_cell=None if measured.by_cell is None else cells_of(measured.by_cell),
    )


def counted(first: int, now: Measured, before: Measured | None, variance: FloatArray, tables: Workload) -> Measured:
    """What was counted in ticks ``first`` to that of ``now``: the total and tables of one column.

    A running count is known as a difference, also one that began at a cut. What else counts the events since a later
    tick stands as it is, since then: with delta = 0 that is an epoch, or a part of one.

    Args:
        now, before: what was measured up to the last tick, and up to the one before the first; ``None`` if there is
            none.
        variance: of the differences, for each table of ``tables``, shape ``(marginals,)``.
    """
    now, then = small(now), None if before is None else small(before)
    found, cells = dict[int, tuple[FloatArray, FloatArray, int]](), now.cell_variance()
    for q, marginal in enumerate(now.workload.marginals):
        here, begun = now.workload.slice_of(marginal), int(now.since[q])
        own, past = now.values[here], None if then is None else then.workload.place.get(marginal)
        if then is not None and past is not None and then.since[past] == begun:
            difference = own - then.values[then.workload.slice_of(marginal)]
            found[q] = difference, np.full(own.size, variance[tables.place[marginal]]), first
        elif begun or not first:  # else it was not measured before
            found[q] = own, cells[here], begun
    values, variances = ([np.zeros(0), *(one[part] for one in found.values())] for part in (0, 1))
    return replace(
        only(now, [*found]),
        values=np.concatenate(values),
        variance=np.array([each.max() for _, each, _ in found.values()]),
        since=np.array([begun for _, _, begun in found.values()], dtype=np.int64),
        by_cell=None if now.by_cell is None else np.concatenate(variances),
    )


def running(measured: Measured) -> Measured:
    """The total and tables of one column that count all events so far, as far as they were measured at its tick."""
    return since(small(measured), 0)


def since(measured: Measured, first: int) -> Measured:
    """The tables that count all events from a tick on."""
    return only(measured, np.flatnonzero(measured.since == first).tolist())


def lines(schema: Schema, found: Sequence[Measured], moment: Callable[[int], datetime], *, span: Span) -> pl.DataFrame:
    """A line for each cell of small tables, of one tick after the other: see :attr:`Release.series`.

    Args:
        moment: when a tick begins.
    """
    tables = [(one, q) for one in found for q in range(len(one.workload.marginals))]
    of_columns = [one.workload.marginals[q] for one, q in tables]
    each = np.repeat(np.arange(len(tables)), np.array([one.workload.lengths[q] for one, q in tables], dtype=np.int64))
    labels: list[tuple[str | None, ...]] = [schema.labels[m[0]] if m else (None,) for m in of_columns]

    def of_table(values: Iterable[Any], kind: Any) -> pl.Series:
        return pl.Series(values, dtype=kind).gather(each)

    def of_cell(values: Iterable[FloatArray]) -> pl.Series:
        return pl.Series(np.concatenate([np.zeros(0), *values]), dtype=pl.Float64, nan_to_null=True)

    ends = {one.tick: moment(one.tick + 1).replace(tzinfo=None) for one in found}
    return pl.DataFrame(
        {
            "tick": of_table([one.tick for one, _ in tables], pl.Int64),
            "start": of_table([moment(int(one.since[q])).replace(tzinfo=None) for one, q in tables], pl.Datetime("us")),
            "end": of_table([ends[one.tick] for one, _ in tables], pl.Datetime("us")),
            "column": of_table([schema.names[m[0]] if m else None for m in of_columns], pl.String),
            "value": pl.Series([*chain(*labels)], dtype=pl.String),
            "measured": of_cell(one.values for one in found),
            "stderr": of_cell(np.sqrt(one.cell_variance()) for one in found),
            "span": pl.Series([span]).new_from_index(0, each.size),
        }
    )


def steps_of_calendar(clock: Clock, *, newest: int) -> dict[str, list[Step]]:
    """Months, quarters and years: those which are longer than a tick, and of which there is more than one."""
    found = dict[str, list[Step]]()
    for name, every in CALENDAR.items():
        with suppress(ConfigError):  # a tick is longer
            each = steps(clock, every, newest=newest)
            found |= {} if len(each) in (1, newest + 1) else {name: each}
    return found


class Step(NamedTuple):
    """First and last tick of a step; not whole: it began before the stream, or is not over."""

    first: int
    last: int
    whole: bool = True


def steps(clock: Clock, every: str | timedelta | None, *, newest: int) -> list[Step]:
    """First and last ticks of steps of equal length, up to the newest release.

    A tick belongs to the step that it begins in, and is never divided. Months, quarters and years are those of the
    calendar; other steps begin with the stream. The last one goes on to the newest release.

    Args:
        every: length of a step, as in ``[clock]``, or a ``timedelta``; left out: each tick is one.

    Raises:
        ConfigError: ``every`` is none, or is shorter than a tick, or, but of the calendar, no whole number of ticks.
    """
    if every is None:
        return [Step(tick, tick) for tick in range(newest + 1)]
    if isinstance(every, timedelta):
        every = length_of(every) or every
    if not isinstance(every, str) or not (found := EVERY.fullmatch(every)):
        raise ConfigError(f"series: every = {every!r}: {no_length(str(every), '4w')}")
    start = clock.boundary(0).replace(tzinfo=None)
    if found[2] in _CALENDAR:
        start = datetime(start.year, 1, 1)
    coarse = Clock(start=start, every=every, horizon=None, timezone=clock.timezone)
    if coarse.boundary(1) - coarse.boundary(0) < clock.boundary(1) - clock.boundary(0):
        raise ConfigError(f"series: every = {every!r} is shorter than a tick, which is {clock.every}")
    if found[2] not in _CALENDAR:
        clock.ticks_in(every, what="series: every")  # else some steps would have more ticks than others
    groups, at = dict[int, list[int]](), 0
    for tick in range(newest + 1):
        while coarse.boundary(at + 1) <= clock.boundary(tick):
            at += 1
        groups.setdefault(at, []).append(tick)
    over = coarse.boundary(at + 1) <= clock.boundary(newest + 1)
    begun = coarse.boundary(min(groups)) + (clock.boundary(1) - clock.boundary(0)) > clock.boundary(0)
    return [
        Step(group[0], group[-1], whole=(step > min(groups) or begun) and (step < at or over))
        for step, group in groups.items()
    ]
