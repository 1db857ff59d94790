"""NOT PRIVATE. What was published beside the true events, for the custodian's eyes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from synthstream.config.config import StreamConfig
from synthstream.counts import Private
from synthstream.errors import ConfigError, FileDamaged, SchemaError
from synthstream.ingest.bounding import arrivals, counting, from_bytes, unused
from synthstream.ingest.counting import encode, files_of
from synthstream.ingest.files import FileSource
from synthstream.publish.history import Cells, History, Steps, Tick, evenly
from synthstream.schema.coordinates import Coordinate
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

STAMP = "NOT PRIVATE: secret, shows true data. For the custodian alone; do not publish"
# Numbers that may be held for all sampled ticks together.
_LARGEST = 40_000_000
# Any key will do: which rows of a person count is not compared, only how many.
_KEY = b"custodian"
# How many standard errors hold 95 % of normal noise.
_NORMAL = 1.96

Count = Callable[[CodeArray, IntArray | None], IntArray]


@dataclass(frozen=True, kw_only=True, repr=False)
class Truth(Private):
    """True counts, as far as the source still tells.

    Args:
        ticks: releases that they are compared with, oldest first.
        counts: of all events up to each of them, shape ``(ticks, cells)``.
        events: number of all rows up to the newest, whether they count or not.
    """

    ticks: tuple[Tick, ...]
    counts: IntArray
    events: int


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of tables of a number of columns in one release, in events; root mean squares over their cells.

    Args:
        forecast: what the noise foresees for a measured count; ``None`` if nothing comparable was measured.
    """

    tick: Tick
    forecast: float | None
    measured: float | None
    rows: float


@dataclass(frozen=True, kw_only=True)
class Yardsticks:
    """Of the tables of a number of columns.

    Args:
        k_marginal: NIST's score (Task, Bhagat, and Howarth 2023): 1000 less 1000 times the mean total variation
            distance between the shares of the synthetic rows and those of the true events; 1000 if they agree.
        impossible: mean share of the synthetic rows in cells that hold no true event.
        coverage: share of measured cells whose bar of 1.96 standard errors holds the true count; ``None`` if no error
            is known.
    """

    k_marginal: float
    impossible: float
    coverage: float | None


def truth_of_tables(found: History, *, progress: Steps) -> Truth:
    """True counts of a stream of tables over all cells of its workload. Raises as :func:`truth`."""
    most = max(2, _LARGEST // found.workload.cells)
    ticks = found.sampled()
    chain = found.measured_chain(epochs_of(found))
    if chain:
        ticks = tuple(sorted({tick.tick: tick for tick in (*ticks, chain[0][0])}.values(), key=lambda t: t.tick))
    if len(ticks) > most and not chain:
        ticks = evenly(ticks, most)
    return truth(found.config, ticks, count=found.workload.count, cells=found.workload.cells, progress=progress)


def epochs_of(found: History) -> tuple[int, ...]:
    """The table whose measurements tell when epochs ended: the first of one column, or else the first."""
    return next((m for m in found.workload.marginals if len(m) == 1), found.workload.marginals[0])


def truth_of_points(found: History, *, progress: Steps) -> Truth:
    """True counts of a stream of points over the finest nodes that the newest release lists, in C order of columns."""
    columns = [c for c in found.config.schema.columns if isinstance(c, Coordinate)]
    nodes = found.nodes(found.newest)
    sides = [nodes[f"{column.name} from"].n_unique() for column in columns]
    shifts = [column.bits - (side.bit_length() - 1) for column, side in zip(columns, sides, strict=True)]

    def count(codes: CodeArray, weights: IntArray | None) -> IntArray:
        places = np.ravel_multi_index([codes[:, i] >> s for i, s in enumerate(shifts)], sides)
        return np.bincount(places, weights=weights, minlength=nodes.height).round().astype(np.int64)

    return truth(found.config, found.sampled(), count=count, cells=nodes.height, progress=progress)


def truth(config: StreamConfig, ticks: tuple[Tick, ...], *, count: Count, cells: int, progress: Steps) -> Truth:
    """True counts of all events up to the end of each tick.

    A row counts in the tick of its own time, or in the first if that cannot be read; where the clock has no column, all
    count. Rows that came late counted later in the stream: their tick is not known any more. Of persons, as many rows
    count as in the stream, but others may be chosen among a person's rows of one tick.

    Args:
        count: from codes and weights to counts over cells, int64, shape ``(cells,)``; linear.

    Raises:
        ConfigError: there is no [source].
        SourceError, SchemaError: a file cannot be read.
    """
    files = files_of(config)
    if files is None:
        raise ConfigError(f"{config.name}: a comparison with the true data needs the files of [source]")
    ends = np.array([tick.tick for tick in ticks])
    sums, events, waiting = np.zeros((len(ticks), cells), dtype=np.int64), 0, []

    def add(codes: CodeArray, weights: IntArray | None, own: IntArray) -> None:
        place = np.searchsorted(ends, own)
        for i in np.unique(place[place < len(ends)]).tolist():
            here = place == i
            sums[i] += count(codes[here], None if weights is None else weights[here])

    paths = files.files()
    for i in progress(list(range(len(paths))), "reading the true events"):
        for chunk in _chunks(files, paths[i]):
            rows = encode(config, chunk)
            rows = rows.where(rows.ticks <= ends[-1])
            events += len(rows.codes)
            if rows.people is not None:
                waiting.append(arrivals(rows, open_tick=0, key=_KEY))
            else:
                add(rows.codes, rows.weights, np.maximum(rows.ticks, 0))
    if waiting:
        add(*_bounded(config, pl.concat(waiting)))
    return Truth(ticks=ticks, counts=np.cumsum(sums, axis=0), events=events)


def _chunks(files: FileSource, path: Path) -> Iterator[pl.DataFrame]:
    try:
        yield from files.read(path)
    except (FileDamaged, SchemaError) as error:
        more = "The page needs all files of [source]: bring this one whole, or move it away if it was never counted."
        raise type(error)(f"{error} {more}") from None


def _bounded(config: StreamConfig, waiting: pl.DataFrame) -> tuple[CodeArray, IntArray, IntArray]:
    """Codes, weights and ticks of the rows of persons that count."""
    unit = config.privacy.unit
    together = waiting.group_by("who", "tick", "rank", "row").agg(pl.col("number").sum())
    kept = counting(unused(together, unit), unit).filter(pl.col("kept") > 0)
    codes, weights = from_bytes(b"".join(kept["row"].to_list()), len(config.schema.columns))
    return codes, weights * kept["kept"].to_numpy(), kept["tick"].to_numpy().astype(np.int64)


def errors(workload: Workload, true: IntArray, cells: Cells, tick: Tick, *, order: int) -> Errors:
    """Errors of all tables of ``order`` columns in one release.

    Only running counts are compared with the forecast: a count of some ticks alone has another truth.

    Args:
        true: counts of all events up to that release, shape ``(cells,)``.

    Example:
        >>> workload = Workload(sizes=(2,), marginals=((0,),))
        >>> cells = Cells(count=np.array([3.0, 1.0]), measured=np.array([6.0, 2.0]), stderr=np.array([3.0, 3.0]),
        ...               since=np.zeros(2))
        >>> found = errors(workload, np.array([3, 2]), cells, tick=None, order=1)
        >>> round(found.rows, 2), round(found.measured, 2), found.forecast
        (0.71, 2.12, 3.0)
    """
    at = np.flatnonzero(np.repeat([len(marginal) == order for marginal in workload.marginals], workload.lengths))
    known = at[cells.known[at] & (cells.since[at] == 0)]
    return Errors(
        tick=tick,
        forecast=_rms(cells.stderr[known]) if known.size else None,
        measured=_rms(cells.measured[known] - true[known]) if known.size else None,
        rows=_rms(cells.count[at] - true[at]),
    )


def yardsticks(workload: Workload, true: IntArray, cells: Cells, *, order: int) -> Yardsticks:
    """Those of all tables of ``order`` columns, in one release.

    Args:
        true: counts of all events up to it, over all cells, shape ``(cells,)``.
    """
    distances, shares, held = list[float](), list[float](), list[np.ndarray]()
    for marginal in workload.marginals:
        if len(marginal) != order:
            continue
        here = workload.slice_of(marginal)
        ours, theirs = cells.at(here), true[here].astype(np.float64)
        gap = ours.count / max(ours.count.sum(), 1.0) - theirs / max(theirs.sum(), 1.0)
        distances.append(float(np.abs(gap).sum() / 2))
        shares.append(float(ours.count[theirs <= 0].sum() / max(ours.count.sum(), 1.0)))
        held.append((np.abs(ours.measured - theirs) <= _NORMAL * ours.stderr)[ours.known & (ours.since == 0)])
    inside = np.concatenate(held) if held else np.zeros(0)
    return Yardsticks(
        k_marginal=1000 * (1 - float(np.mean(distances))),
        impossible=float(np.mean(shares)),
        coverage=float(inside.mean()) if inside.size else None,
    )


def _rms(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
