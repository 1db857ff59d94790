"""What can be simulated of each kind of stream, in pieces of a second or so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from synthstream.foresight import points, tables
from synthstream.foresight.shapes import LatentClasses
from synthstream.point_synthesizers import FromNodes, FromSparseCounts
from synthstream.schema import Schema
from synthstream.synthesizer import Continual, InEpochs, Synthesizer

# Draws or runs to average over: for the configured budget, and for others.
_RUNS, _RUNS_OF_OTHERS = 4, 2
# Ticks whose numbers of events are within this factor are looked at in one run, beyond what is simulated in full.
_TOGETHER = 30.0

# Errors by number of ticks.
Piece = Callable[[], dict[int, "RowErrors"]]


@dataclass(frozen=True, kw_only=True)
class RowErrors:
    """Expected errors of published rows.

    Args:
        table_error: order of a table -> expected sum of absolute errors over its cells, in events; empty for points.
        box: error of the number of events in a box, in events: root mean square over boxes.
        distance: of points, Wasserstein distance W1 to the true events, in widths of the box; ``None`` where it is not
            known.
    """

    table_error: dict[int, float]
    box: float
    distance: float | None = None

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "table_error": {str(k): value for k, value in self.table_error.items()},
            "box": self.box,
            "distance": self.distance,
        }


def pieces(
    made: Synthesizer, schema: Schema, *, ticks: Sequence[int], events_per_tick: float, careful: bool
) -> list[Piece]:
    """Simulations of a stream, each of which answers for some of the ticks.

    Args:
        ticks: numbers of ticks, increasing.
        careful: whether to average over several draws.

    Returns:
        Nothing for a stream that cannot be simulated: see :func:`unforeseen`.
    """
    runs = _RUNS if careful else _RUNS_OF_OTHERS
    if isinstance(made, Continual):
        return [partial(_always, made, schema, t, events_per_tick, runs) for t in ticks]
    if isinstance(made, InEpochs):
        return [
            partial(_in_epochs, made, schema, some, events_per_tick, runs) for some in _groups(ticks, events_per_tick)
        ]
    if isinstance(made, FromNodes | FromSparseCounts) and points.digits_of(made.partition.dimension):
        return [partial(_points, made, some, events_per_tick, runs) for some in _groups(ticks, events_per_tick)]
    return []


def unforeseen(made: Synthesizer) -> str:
    """What cannot be forecast of a kind of stream, and why; empty if all can be."""
    if isinstance(made, Continual | InEpochs):
        return ""
    if isinstance(made, FromNodes | FromSparseCounts):
        if points.digits_of(made.partition.dimension):
            return ""
        return "The error of points in so many columns is not forecast: no grid over them is fine enough to compare on."
    return (
        "Only the error of the total is known. That of a table depends on which tables are selected, and so on the "
        "data; how such streams did on public data stands in benchmarks/results/tables.md."
    )


def seconds(made: Synthesizer, schema: Schema, *, ticks: int, events_per_tick: float) -> float | None:
    """Seconds to compute one release on this machine, after so many ticks; ``None`` if that is not simulated."""
    if isinstance(made, Continual | InEpochs):
        shape = _shape(schema)
        return tables.seconds_per_release(made.mechanism, shape, events=ticks * events_per_tick, batch=events_per_tick)
    if isinstance(made, FromNodes | FromSparseCounts) and points.digits_of(made.partition.dimension):
        run = points.Run(made, ticks=[ticks], events_per_tick=events_per_tick)
        run.errors()
        return run.seconds
    return None


def _shape(schema: Schema) -> LatentClasses:
    return LatentClasses.of(schema.columns, np.random.default_rng(0))


def _always(made: Continual, schema: Schema, ticks: int, events_per_tick: float, runs: int) -> dict[int, RowErrors]:
    found = tables.at_every_tick(
        made.mechanism, _shape(schema), tick=ticks - 1, events=ticks * events_per_tick, draws=runs
    )
    return {ticks: RowErrors(table_error=found.table_error, box=found.box)}


def _in_epochs(
    made: InEpochs, schema: Schema, ticks: Sequence[int], events_per_tick: float, runs: int
) -> dict[int, RowErrors]:
    shape = _shape(schema)
    each = [tables.in_epochs(made, shape, ticks=ticks, events_per_tick=events_per_tick, seed=s) for s in range(runs)]
    means = {t: tables.mean_of([one[t] for one in each]) for t in ticks}
    return {t: RowErrors(table_error=mean.table_error, box=mean.box) for t, mean in means.items()}


def _points(
    made: FromNodes | FromSparseCounts, ticks: Sequence[int], events_per_tick: float, runs: int
) -> dict[int, RowErrors]:
    """Geometric means over runs whose rates lie within one doubling around the guess.

    Points are measured afresh when their number has doubled, and the error falls then. No guess is so good that it
    tells when, so all times within a doubling count alike.
    """
    each = []
    for k in range(runs):
        rate = events_per_tick * 2 ** ((k + 0.5) / runs - 0.5)
        each.append(points.Run(made, ticks=ticks, events_per_tick=rate, seed=k).errors())
    return {
        t: RowErrors(
            table_error={},
            box=_typical([one[t].box for one in each]),
            distance=_typical([one[t].distance for one in each]),
        )
        for t in ticks
    }


def _typical(values: Sequence[float]) -> float:
    return math.exp(float(np.mean(np.log(np.maximum(values, 1e-12)))))


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
