"""What can be simulated of each kind of stream, in pieces of a second or so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.partition import Partition
from synthstream.schema.schema import Schema
from synthstream.synthesizers.contract import Piece, RowErrors
from synthstream.synthesizers.simulation import points, tables
from synthstream.synthesizers.simulation.shapes import LatentClasses

# Draws or runs to average over: for the configured budget, and for others.
_RUNS, _RUNS_OF_OTHERS = 4, 2
# Ticks whose numbers of events are within this factor are looked at in one run, beyond what is simulated in full.
_TOGETHER = 30.0


def of_tables(
    errors: Callable[..., RowErrors],
    mechanism: Marginals | Refreshed,
    schema: Schema,
    ticks: Sequence[int],
    events_per_tick: float,
    *,
    careful: bool,
) -> list[Piece]:
    """Of tables that are measured at known times, and a living population, by a function of ``simulation.tables``."""

    def after(t: int) -> dict[int, RowErrors]:
        found = errors(mechanism, _shape(schema), tick=t - 1, events=t * events_per_tick, draws=_runs(careful))
        return {t: found}

    return [partial(after, t) for t in ticks]


def in_epochs(made: Any, schema: Schema, ticks: Sequence[int], events_per_tick: float, *, careful: bool) -> list[Piece]:
    """Of tables that are measured once an epoch."""

    def after(some: Sequence[int]) -> dict[int, RowErrors]:
        shape, seeds = _shape(schema), range(_runs(careful))
        each = [tables.in_epochs(made, shape, ticks=some, events_per_tick=events_per_tick, seed=s) for s in seeds]
        return {t: tables.mean_of([one[t] for one in each]) for t in some}

    return [partial(after, some) for some in _groups(ticks, events_per_tick)]


def of_points(made: Any, ticks: Sequence[int], events_per_tick: float, *, careful: bool) -> list[Piece]:
    """Of points; nothing where there are too many columns: see :func:`unforeseen_of_points`."""
    if not points.digits_of(made.partition.dimension):
        return []
    # The error of a box depends on where clusters lie: as a mean of fewer runs it rose with epsilon at times.
    runs = 2 * _runs(careful)
    return [partial(_points, made, some, events_per_tick, runs) for some in _groups(ticks, events_per_tick)]


def unforeseen_of_points(partition: Partition) -> str:
    """Why the error of points in a box is not forecast; empty if it is."""
    if points.digits_of(partition.dimension):
        return ""
    return "The error of points in so many columns is not forecast: no grid over them is fine enough to compare on."


def seconds_of_points(made: Any, ticks: int, events_per_tick: float) -> float | None:
    """Seconds of one release of points; ``None`` where they are not simulated."""
    if not points.digits_of(made.partition.dimension):
        return None
    run = points.Run(made, ticks=[ticks], events_per_tick=events_per_tick)
    run.errors()
    return run.seconds


def _runs(careful: bool) -> int:
    return _RUNS if careful else _RUNS_OF_OTHERS


def _shape(schema: Schema) -> LatentClasses:
    return LatentClasses.of(schema.columns, np.random.default_rng(0))


def _points(made: Any, ticks: Sequence[int], events_per_tick: float, runs: int) -> dict[int, RowErrors]:
    """Over runs whose rates lie within one doubling around the guess: geometric means of distances, which lie around
    one size, and root mean squares of errors of boxes, which are that of the rare bursts.

    Points are measured afresh when their number has grown by a factor, and the error falls then. No guess is so good
    that it tells when, so all times within a doubling count alike.
    """
    each = []
    for k in range(runs):
        rate = events_per_tick * 2 ** ((k + 0.5) / runs - 0.5)
        each.append(points.Run(made, ticks=ticks, events_per_tick=rate, seed=k).errors())
    return {
        t: RowErrors(
            table_error={},
            box=math.sqrt(float(np.mean([one[t].box ** 2 for one in each]))),
            distance=math.exp(float(np.mean(np.log([max(one[t].distance or 0.0, 1e-12) for one in each])))),
        )
        for t in ticks
    }


def _groups(ticks: Sequence[int], events_per_tick: float) -> list[list[int]]:
    """Ticks that one run looks at: a run that simulates many events in proportion shows little of its beginning."""
    groups: list[list[int]] = [[]]
    for t in ticks:
        first = groups[-1][0] if groups[-1] else t
        in_full = t * events_per_tick <= tables.MOST_ROWS
        if groups[-1] and not in_full and t > _TOGETHER * first and t * events_per_tick > _TOGETHER * 100:
            groups.append([])
        groups[-1].append(t)
    return groups
