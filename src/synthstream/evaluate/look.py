"""PRIVATE. What private rows would do to a configuration, before it is opened: odd cells, times, persons, file by file.

For the custodian's eyes. Rows are counted here beside the stream: nothing is written, and no state is opened to write.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from synthstream.config.config import StreamConfig
from synthstream.config.sources import DeltaConfig
from synthstream.errors import ConfigError, FileDamaged, SchemaError, SourceError
from synthstream.evaluate.formats import alike, nobody, texts_of
from synthstream.evaluate.twice import Files, files_in, twice
from synthstream.ingest.bounding import unused
from synthstream.ingest.counting import columns_of, encode, file_of, files_of, in_threads
from synthstream.ingest.delta import DeltaSource
from synthstream.ingest.files import FileSource
from synthstream.schema.clock import Clock
from synthstream.schema.coercion import Frame, numbers, polars_frame, slices, texts
from synthstream.schema.columns import Category, Column, Mask
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.districts import Districts
from synthstream.schema.places import View
from synthstream.schema.schema import Schema
from synthstream.workload import THREADS, IntArray

# So many different texts of a column are kept, the most frequent ones.
_KEPT = 2_000
_PIECE = 1 << 22
# An encoding that files may have, and the configuration cannot name.
UTF_16 = "utf-16"
_OFFSET = r"(?:Z|[+-]\d\d:?\d\d)$"
# What is told in place of the text of such a cell, which has none.
_NESTED = "a list, a record or an interval; write it as one text"
_MIDNIGHT = r"[T ]00:00(?::00(?:\.0+)?)?(?:Z|[+-]00:?00)$"


@dataclass(frozen=True, kw_only=True, repr=False)
class Cells:
    """What the cells of one column are; all are numbers of rows. Adds up.

    Args:
        empty: without anything in them.
        unread: with something that cannot be read as what the column is.
        other: with a text that is not on the list.
        low, high: out of range, and clamped.
        listed: rows of each value of a list, shape ``(values,)``; empty for other columns.
        odd: the most frequent texts of those that are unread or ``other``: ``text`` and ``rows``.
        kinds: types that files say the column has.
    """

    empty: int = 0
    unread: int = 0
    other: int = 0
    low: int = 0
    high: int = 0
    listed: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    odd: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema={"text": pl.String, "rows": pl.Int64}))
    kinds: frozenset[str] = frozenset()

    def mostly_read(self, count: int) -> bool:
        """Whether most of so many rows that hold something are neither unread nor ``other``."""
        return 2 * (self.unread + self.other) < count - self.empty

    def __add__(self, more: Cells) -> Cells:
        ours, theirs = self.listed, more.listed  # those of no rows may be left out
        return Cells(
            **{name: getattr(self, name) + getattr(more, name) for name in ("empty", "unread", "other", "low", "high")},
            listed=ours + theirs if ours.size == theirs.size else max(ours, theirs, key=len),
            odd=_most(pl.concat([self.odd, more.odd]).group_by("text").agg(pl.col("rows").sum())),
            kinds=self.kinds | more.kinds,
        )


_NONE = Cells()


@dataclass(frozen=True, kw_only=True, repr=False)
class Rows:
    """What rows are; all are numbers of rows, of which ``count`` is all. Adds up.

    Args:
        columns: by name of the column.
        ticks: by the tick of their own time.
        time: of the clock's column.
        before: dated before the clock's start.
        aware, midnight: times that name an offset or a zone, and those of them that are midnight in UTC.
        outside: points with both coordinates that lie in no cell of the region.
        turned: points outside of the box that would lie in it if their two coordinates changed places.
        signs: texts of the op column that are neither 1 nor -1.
        people: rows of persons by ``who``, ``window`` and ``tick``.
    """

    count: int = 0
    columns: dict[str, Cells] = field(default_factory=dict)
    ticks: Counter[int] = field(default_factory=Counter)
    time: Cells = field(default_factory=Cells)
    before: int = 0
    aware: int = 0
    midnight: int = 0
    outside: int = 0
    turned: int = 0
    signs: Cells = field(default_factory=Cells)
    people: pl.DataFrame | None = None

    def __add__(self, more: Rows) -> Rows:
        known = [part.people for part in (self, more) if part.people is not None]
        plain = ("count", "ticks", "time", "before", "aware", "midnight", "outside", "turned", "signs")
        return Rows(
            **{name: getattr(self, name) + getattr(more, name) for name in plain},
            columns={n: self.columns.get(n, _NONE) + more.columns.get(n, _NONE) for n in self.columns | more.columns},
            people=pl.concat(known).group_by("who", "tick").agg(pl.col("rows").sum()) if known else None,
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Looked:
    """What was seen in files and frames.

    Args:
        files: that were read.
        frames: how many were looked at.
        refused: those that cannot be, with what stands against them, and keys that would mend it.
        encodings: of CSV files that are not UTF-8: what their bytes look like, as ``stream.toml`` names it, or UTF-16.
        twice: what to say of files that may be others under a second name.
        known: number of files of the source that were counted before.
        first: tick of the newest segment. If it is not 0, rows of earlier ticks, or without a time, count in none.
    """

    rows: Rows
    files: tuple[Path, ...]
    refused: dict[Path, tuple[str, dict[str, str]]]
    encodings: dict[Path, str]
    twice: tuple[str, ...] = ()
    known: int = 0
    frames: int = 0
    first: int = 0


@dataclass(frozen=True, kw_only=True, repr=False)
class Persons:
    """How many persons there are, of how many as many rows count as may, and how many rows have no person.

    Args:
        left_out: rows beyond the limits.
        in_a_tick: those of them that are beyond the limit for one tick.
        alike: groups of keys that may be one person.
        nobody: keys that people write where there is none, and how many rows have each.
    """

    number: int
    full: int
    left_out: int
    in_a_tick: int
    without: int
    alike: tuple[tuple[str, ...], ...]
    nobody: str


def look(
    config: StreamConfig, said: Sequence[Path | Frame], *, progress: Callable[[list[Any]], Iterable[Any]] = iter
) -> Looked:
    """Look at rows. Time: some seconds for a million. Memory: a chunk for each thread, and the keys of persons.

    Args:
        said: paths of files, and frames; none: files of the configured source that have not been counted.
        progress: wraps the loop over the files.

    Raises:
        ConfigError: the stream has no files of its own, and none is named.
        SourceError: the system cannot read a file.
        SchemaError: a frame lacks a column.
    """
    if config.log is not None and config.log.of_changes:
        config = replace(config, op=None)  # what somebody has are files of the table, which say nothing of changes
    found, read, full, frames = Rows(), list[Path](), list[Path](), 0
    refused, encodings = dict[Path, tuple[str, dict[str, str]]](), dict[Path, str]()
    files = Files([], [], []) if said else _of_source(config)
    new = list(said) or list[Path | Frame](files.new)
    for path in progress(new):
        if not isinstance(path, Path):
            found, frames = found + _all_of(config, None, slices(path)), frames + 1
            continue
        if path.is_dir():
            raise SourceError(f"{path}: is a folder. Name the files in it.")
        source = file_of(config, path) if said else files_of(config) or file_of(config, path)
        written = replace(source, formats={}, numbers=frozenset())  # without a look at what texts mean
        try:
            total = _all_of(config, source, written.read(path))
        except (FileDamaged, SchemaError) as error:
            refused[path] = (str(error), source.mended(path))
            continue
        found, read = found + total, [*read, path]
        full += [path] if total.count else []
        plain = path.suffix.lower() == ".csv" and source.dialect.encoding == "utf-8"
        if plain and (encoding := encoding_of(path)) is not None:
            encodings[path] = encoding
    return Looked(
        rows=found,
        files=tuple(read),
        refused=refused,
        encodings=encodings,
        twice=() if said else tuple(twice(config, full, files)),
        known=len(files.known),
        frames=frames,
    )


def _all_of(config: StreamConfig, source: FileSource | None, chunks: Iterator[Frame]) -> Rows:
    return sum(in_threads(partial(rows_of, config, source), chunks, threads=THREADS), start=Rows())


def _of_source(config: StreamConfig) -> Files:
    """Files of the source, by what the state knows of their names."""
    source = files_of(config)
    if isinstance(config.log, DeltaConfig):
        table = DeltaSource(config.log, ())
        raise ConfigError(
            f"{config.name} reads a Delta table: name those of its files to look at, as in "
            f"synthstream check stream.toml {config.log.path}/{table.pattern()}."
        )
    if source is None or config.source is None:
        raise ConfigError(f"{config.name} has no files in [source]: name those to look at, such as an export.")
    return files_in(config, source)


def rows_of(config: StreamConfig, source: FileSource | None, chunk: Frame) -> Rows:
    """What the rows of one frame are, as they are written, in a file of a source or by themselves. Total."""
    written = polars_frame(chunk, columns_of(config))
    frame = written if source is None else written.select(source.meant(series) for series in written)
    clock, ticks = config.clock, config.clock.ticks_of(frame)
    present, number = np.unique(ticks, return_counts=True)
    found = Rows(
        count=frame.height,
        columns={
            column.name: cells_of(column, _meant(column, frame, written), column.written(written))
            for column in config.schema.columns
        },
        ticks=Counter(dict(zip(present.tolist(), number.tolist(), strict=True))),
    )
    if clock.column is not None:
        found = _timed(found, clock, frame[clock.column], written[clock.column], ticks)
    if config.op is not None:
        neither = ~np.isin(numbers(frame[config.op]), (1.0, -1.0))
        found = replace(found, signs=_odd(frame[config.op], pl.Series(neither)))
    found = _located(found, config.schema, frame)
    if config.privacy.unit.of_persons:
        coded = encode(config, frame)
        people = pl.DataFrame({"who": coded.people, "tick": np.maximum(coded.ticks, 0)})
        found = replace(found, people=people.group_by("who", "tick").agg(rows=pl.len().cast(pl.Int64)))
    return found


def _meant(column: Column, frame: pl.DataFrame, written: pl.DataFrame) -> pl.Series:
    """Cells of one column as the dialect means them; coordinates that it cannot read are as they are written."""
    cells = column.written(frame)
    if not isinstance(column, View | Districts):
        return cells
    view = column if isinstance(column, View) else column.finest
    told = view.named(written, np.full(frame.height, len(view.values), dtype=np.int32), view.labels)
    return cells.zip_with(cells.is_not_null() | column.written(written).is_null(), told)


def _located(found: Rows, schema: Schema, frame: pl.DataFrame) -> Rows:
    """The same rows, with where points of two coordinates lie."""
    columns = [column for column in schema.columns if isinstance(column, Coordinate)]
    if len(columns) != 2:
        return found
    first, second = (numbers(frame[column.name]) for column in columns)
    within = [
        np.all([(at >= column.min) & (at <= column.max) for at, column in zip(given, columns, strict=True)], axis=0)
        for given in ((first, second), (second, first))
    ]
    outside = 0
    if schema.region is not None:
        codes = np.stack([column.read(frame) for column in columns], axis=1)
        outside = int((schema.region.outside(codes) & ~np.isnan(first) & ~np.isnan(second)).sum())
    return replace(found, outside=outside, turned=int((within[1] & ~within[0]).sum()))


def cells_of(column: Column, series: pl.Series, written: pl.Series) -> Cells:
    """What the cells of one column are, as the dialect means them, and as they are written."""
    if isinstance(column, Category):
        text, _ = column.said(series)
        listed = text.is_in(list(column.values)).fill_null(value=False)
        found = _odd(series, ~listed)
        seen = dict(text.filter(listed).value_counts(name="rows").iter_rows())
        rows = np.array([seen.get(value, 0) for value in column.values], dtype=np.int64)
        return replace(found, unread=0, other=found.unread, listed=rows)
    low, high = column.outside(series)
    return replace(_odd(written, pl.Series(_unread(column, series))), low=int(low.sum()), high=int(high.sum()))


def _odd(series: pl.Series, odd: pl.Series) -> Cells:
    """Of the cells that a mask names, which are empty and which say something else."""
    text, null = texts(series.filter(odd))
    empty = null | (text.str.strip_chars() == "").fill_null(value=False)
    said = text.filter(~empty).fill_null(_NESTED)
    most = _most(said.alias("text").value_counts(name="rows").with_columns(pl.col("rows").cast(pl.Int64)))
    return Cells(empty=text.len() - said.len(), unread=said.len(), odd=most, kinds=frozenset({str(series.dtype)}))


def _unread(column: Column, series: pl.Series) -> Mask:
    """Which cells have no value of their own, wherever the configuration puts them."""
    if isinstance(column, Coordinate):
        return np.asarray(np.isnan(numbers(series)), dtype=np.bool_)
    plain: Column = replace(column, missing=None)  # type: ignore[call-arg]  # all others have it
    return np.asarray(plain.encode(series) == plain.size - 1, dtype=np.bool_)


def counting_in(looked: Looked, open_tick: int) -> Counter[int]:
    """Rows by the tick that they would count in: their own, or the open one, where late and unreadable rows count."""
    held = Counter[int]()
    for tick, number in looked.rows.ticks.items():
        if tick >= looked.first or looked.first == 0:
            held[max(tick, open_tick)] += number
    return held


def persons_in(config: StreamConfig, looked: Looked) -> Persons | None:
    """Those of a stream that protects persons; ``None`` of another."""
    unit, people = config.privacy.unit, looked.rows.people
    if not unit.of_persons or people is None:
        return None
    counted = unused(people, unit).with_columns(kept=pl.col("rows").clip(upper_bound=unit.in_a_tick))
    periods = counted.group_by("who", "window").agg(pl.col("rows").sum(), pl.col("kept").sum())
    periods = periods.with_columns(kept=pl.col("kept").clip(upper_bound=unit.max_events))
    held = people.group_by(text="who").agg(pl.col("rows").sum())
    keys = held["text"]
    same = pl.DataFrame({"who": keys, "alike": alike(keys)}).group_by("alike").agg("who")
    groups = same.filter(pl.col("who").list.len() > 1).sort("alike")["who"].to_list()
    return Persons(
        number=keys.len(),
        full=periods.filter(pl.col("kept") >= unit.max_events)["who"].n_unique(),
        left_out=int(periods.select(pl.col("rows").sum() - pl.col("kept").sum()).item()),
        in_a_tick=0 if unit.max_per_tick is None else int((counted["rows"] - counted["kept"]).sum()),
        without=looked.rows.count - int(people["rows"].sum()),
        alike=tuple(tuple(sorted(group)) for group in groups),
        nobody=texts_of(_most(held.filter(nobody(keys)))),
    )


def _timed(found: Rows, clock: Clock, series: pl.Series, written: pl.Series, ticks: IntArray) -> Rows:
    """The same rows, with what their times are."""
    earlier = replace(clock, start=clock.boundary(-1), until=None, horizon=None)  # its first tick holds what is before
    zoned, midnight = _zones(written)
    return replace(
        found,
        time=_odd(written, pl.Series(ticks < 0)),
        before=int((earlier.ticks_of(pl.DataFrame({clock.column: series})) == 0).sum()),
        aware=zoned,
        midnight=midnight,
    )


def _zones(series: pl.Series) -> tuple[int, int]:
    """How many times name an offset or a zone, and how many of these are midnight in UTC."""
    if isinstance(series.dtype, pl.Datetime) and series.dtype.time_zone is not None:
        known = series.drop_nulls()
        return known.len(), int((known.dt.epoch("s") % 86_400 == 0).sum())
    if series.dtype != pl.String:
        return 0, 0
    zoned = series.str.strip_chars().str.contains(_OFFSET) & series.str.contains(":", literal=True)
    return int(zoned.sum() or 0), int(series.str.contains(_MIDNIGHT).sum() or 0)


def _most(counted: pl.DataFrame) -> pl.DataFrame:
    """The most frequent texts, by their numbers of rows; of those with as many any, so that they stand for all."""
    return counted.sort("rows", pl.col("text").hash(), descending=[True, False]).head(_KEPT)


def encoding_of(path: Path) -> str | None:
    """What the bytes of a text file look like; ``None`` for UTF-8. Reads all of it."""
    decoder, high = codecs.getincrementaldecoder("utf-8")(), False
    with path.open("rb") as file:
        if file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return UTF_16
        broken = False
        for piece in chain(iter(partial(file.read, _PIECE), b""), [b""]):  # the last one says that no more comes
            try:
                broken or decoder.decode(piece, final=not piece)
            except UnicodeDecodeError:
                broken = True
            high = high or b"\x81" in piece or b"\x8d" in piece or b"\x90" in piece  # undefined in windows-1252
    if not broken:
        return None
    return "iso-8859-1" if high else "windows-1252"
