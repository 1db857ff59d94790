"""From frames to exact counts by tick, anywhere, in any order. All of it is private; it needs no state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from synthstream.config.config import StreamConfig
from synthstream.counts import Counts, Private
from synthstream.errors import ConfigError, CountsMismatch, FileDamaged, SchemaError, secretive
from synthstream.ingest.files import FileSource
from synthstream.kinds import kind_of
from synthstream.schema.clock import FURTHEST
from synthstream.schema.coercion import Frame, polars_frame, signs, texts
from synthstream.workload import CodeArray, IntArray

_T = TypeVar("_T")
_R = TypeVar("_R")

# Stands for the open tick, whichever it is: rows of earlier ticks, and of no readable time, count in it. They wait
# apart, since a successor takes none of them over.
LATE = -1

# Exact counts of rows, from their codes and weights.
Count = Callable[[CodeArray, IntArray | None], Counts]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class PrivateRows(Private):
    """Rows in numbers.

    Args:
        codes: shape ``(rows, columns)``.
        ticks: tick of each row by its own time; -1 for the tick that is open when it is counted.
        weights: +1 or -1 for each row; ``None`` in a stream without an op column, where each row adds an event.
        people: key of each row's person as text; ``None`` in a stream that protects events.
    """

    codes: CodeArray
    ticks: IntArray
    weights: IntArray | None = None
    people: pl.Series | None = None

    def content(self) -> tuple[bytes, ...]:
        """All that decides what these rows count for, as bytes."""
        numbers = tuple(part.tobytes() for part in (self.codes, self.ticks, self.weights) if part is not None)
        if self.people is None:
            return numbers
        keys = [key.encode() for key in self.people.to_list()]
        return (*numbers, np.array([len(key) for key in keys], dtype=np.int64).tobytes(), b"".join(keys))

    def where(self, kept: NDArray[np.bool_]) -> PrivateRows:
        """Some of them, as a mask says."""
        weights = None if self.weights is None else self.weights[kept]
        people = None if self.people is None else self.people.filter(pl.Series(kept))
        return PrivateRows(self.codes[kept], self.ticks[kept], weights, people)


def columns_of(config: StreamConfig, *, away: bool = False, timed: bool = True) -> tuple[str, ...]:
    """Every column that a frame must have: those of the schema, the time, the op, the person.

    Args:
        away: of rows that are taken away, which need no op.
        timed: with their time; rows that are taken away may come without.
    """
    when = (config.clock.column if timed else None, None if away else config.op)
    extra = [name for name in (*when, config.privacy.person) if name is not None]
    return tuple(dict.fromkeys([*config.schema.read_from, *extra]))


def forms_of(config: StreamConfig) -> dict[str, Sequence[str]]:
    """In which forms texts of the source write times, by the columns that times are read from."""
    source = config.source or config.log
    forms = {} if source is None else source.formats
    times = {config.clock.column, *(column.read_from for column in config.schema.columns if column.type == "datetime")}
    return {name: form for name in columns_of(config) if name in times and (form := forms.get(name, forms.get("*")))}


def files_of(config: StreamConfig) -> FileSource | None:
    """The files of the configured source; ``None`` if rows come from elsewhere."""
    source = config.source
    if source is None:
        return None
    return FileSource(
        kind=source.kind,
        path=source.path,
        columns=columns_of(config),
        dialect=source.dialect,
        numbers=frozenset(
            name
            for column in config.schema.columns
            if column.type in ("integer", "number", "place")
            for name in column.sources
        ),
        formats=forms_of(config),
    )


def refuse_other_columns(source: FileSource, paths: Iterable[Path]) -> None:
    """Raise ``SchemaError`` if the first file's header, which no row decides, lacks a column: the configuration, or its
    dialect, is wrong. If that file is empty or damaged, no other one decides in its place.
    """
    first = next(iter(paths), None)
    if first is None:
        return
    try:
        source.require_columns(first)
    except FileDamaged:
        return
    except SchemaError as error:
        raise SchemaError(
            f"{error} It is the first file of the source: correct the name in [[columns]], [clock], [privacy] or op, "
            "or how [source] reads the file. No tick was closed."
        ) from None


def file_of(config: StreamConfig, path: Path, **more: Any) -> FileSource:
    """How one file is read, wherever it lies: as the source's own are; its name says of which kind it is."""
    own = FileSource(kind="csv", path=path, columns=columns_of(config), formats=forms_of(config))
    files = files_of(config) or own
    return replace(files, kind=kind_of(path) or "parquet", path=path, **more)


def encode(config: StreamConfig, frame: Frame, *, away: bool = False, timed: bool = True) -> PrivateRows:
    """Rows of a frame in numbers. Total: no row can raise.

    Where persons are protected, rows without a person are left out: null, NaN, empty text, and cells that are no text
    and no number. That looks at each row alone.

    Args:
        away: each row takes an event away, and no op is read.
        timed: their own time is read; otherwise none has a time that can be read.

    Raises:
        SchemaError: a column is missing.
    """
    rows, weights = polars_frame(frame, columns_of(config, away=away, timed=timed)), None
    codes = config.schema.encode(rows)
    ticks = config.clock.ticks_of(rows) if timed else np.full(len(codes), -1, dtype=np.int64)
    if config.op is not None:
        weights = -np.ones_like(ticks) if away else signs(rows[config.op])
    if config.privacy.person is None:
        return PrivateRows(codes, ticks, weights)
    keys, missing = texts(rows[config.privacy.person])
    known = (~missing & keys.is_not_null() & (keys != "").fill_null(value=False)).to_numpy()
    return PrivateRows(codes, ticks, weights, keys).where(known)


@dataclass(frozen=True, kw_only=True)
class CountsByTick(Private):
    """Exact counts of rows, by tick. Private.

    However rows are split, and in whatever order the parts are merged, the whole is the same, and so are its bytes.

    Args:
        stream: hash of the stream's public settings: counts of others cannot be merged with these.
        cells: number of cells of one tick.
        ticks: counts by the rows' own tick, without empty ones; -1 stands for rows whose time cannot be read.
    """

    stream: str
    cells: int
    ticks: Mapping[int, Counts] = field(default_factory=dict, repr=False)

    def merge(self, other: CountsByTick) -> Self:
        """Counts of both together.

        Raises:
            CountsMismatch: they belong to streams with other settings.
            OverflowError: a sum leaves 64 bits. No number of rows that can be counted is so large.
        """
        if self.stream != other.stream:
            raise CountsMismatch(
                f"counts of the stream {other.stream[:12]} cannot go with those of the stream {self.stream[:12]}: "
                "privacy, clock, columns and synthesizer must be the same. Count the rows again."
            )
        if self.cells != other.cells:
            raise CountsMismatch("these counts were made by another version. Count the rows again.")
        both = dict(self.ticks)
        for tick, counts in other.ticks.items():
            both[tick] = both[tick].plus(counts) if tick in both else counts
        kept = {tick: both[tick] for tick in sorted(both) if both[tick].cells.size}
        return type(self)(stream=self.stream, cells=self.cells, ticks=kept)

    def to_bytes(self) -> bytes:
        """An Arrow stream, a row per tick: ``tick``; ``cell``, null if ``count`` is a number for every cell."""
        rows: dict[str, list[object]] = {"tick": [], "cell": [], "count": []}
        for tick, counts in self.ticks.items():
            dense = 2 * counts.cells.size > self.cells
            rows["tick"].append(tick)
            rows["cell"].append(None if dense else counts.cells)
            rows["count"].append(counts.dense(self.cells) if dense else counts.numbers)
        schema = _ARROW.with_metadata({"stream": self.stream, "cells": str(self.cells), "format": "1"})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(pa.table(rows, schema=schema))
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What :meth:`to_bytes` was called on. Raises ``CountsMismatch`` if these are no such bytes."""
        try:
            table = pa.ipc.open_stream(data).read_all().combine_chunks()
            facts = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
            cells, ticks = int(facts["cells"]), table["tick"].to_pylist()
            lists = (
                [one.values.to_numpy().astype(np.int64) if one.is_valid else None for one in table[name]]
                for name in ("cell", "count")
            )
            found = [Counts.of(n) if cell is None else Counts(cell, n) for cell, n in zip(*lists, strict=True)]
            made = cls(stream=facts["stream"], cells=cells, ticks=dict(zip(ticks, found, strict=True)))
        except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise CountsMismatch(_NO_COUNTS) from error
        if len(set(ticks)) != len(ticks) or not made.sound:
            raise CountsMismatch(_NO_COUNTS)
        return made

    @property
    def sound(self) -> bool:
        """Whether rows could have made these counts, as far as ticks and cells tell."""
        return all(
            isinstance(tick, int) and -1 <= tick <= FURTHEST and counts.within(self.cells)
            for tick, counts in self.ticks.items()
        )

    def pending(self, *, first: int, open_tick: int) -> dict[int, Counts]:
        """Counts by the tick that they wait for: their own, or ``LATE`` for the open one if that is later.

        Args:
            first: those of earlier ticks, and of no readable time, are left out; 0 leaves out nothing.
        """
        found: dict[int, Counts] = {}
        for tick, counts in self.ticks.items():
            if tick >= first or first == 0:
                place = tick if tick >= open_tick else LATE
                found[place] = found[place].plus(counts) if place in found else counts
        return found


_NO_COUNTS = "these are not counts of Synthstream; take what count() and merge() gave, or to_bytes()."
_ARROW = pa.schema([("tick", pa.int64()), ("cell", pa.list_(pa.int64())), ("count", pa.list_(pa.int64()))])


class BatchCounting:
    """Counts rows with a function that it is handed. See :class:`synthstream.Counting`."""

    def __init__(self, config: StreamConfig, *, count: Count, cells: int) -> None:
        if config.privacy.unit.of_persons:
            raise ConfigError(
                "rows of a stream that protects persons cannot be counted apart from it: who has counted how often "
                "stands in its state. Use Stream.update or `synthstream run`."
            )
        self._config, self._count, self._cells = config, count, cells
        self._stream = config.own_hash

    @property
    def nothing(self) -> CountsByTick:
        """Counts of no rows."""
        return CountsByTick(stream=self._stream, cells=self._cells)

    @secretive
    def count(self, frame: Frame) -> CountsByTick:
        """Exact counts of the rows of a frame. Total: no row can raise.

        The types of its columns must be declared, not inferred from rows: of a CSV file, read all columns as text.

        Raises:
            SchemaError: a column is missing.
        """
        return self.of(encode(self._config, frame))

    def of(self, rows: PrivateRows) -> CountsByTick:
        """Exact counts of rows in numbers, by the tick of their own time, ticks in order."""
        order, found = np.argsort(rows.ticks, kind="stable"), dict[int, Counts]()
        present, starts = np.unique(rows.ticks[order], return_index=True)
        for tick, here in zip(present.tolist(), np.split(order, starts)[1:], strict=True):
            counts = self._count(rows.codes[here], None if rows.weights is None else rows.weights[here])
            if counts.cells.size:
                found[tick] = counts
        return CountsByTick(stream=self._stream, cells=self._cells, ticks=found)

    def count_all(self, frames: Iterable[Frame], *, threads: int = 1) -> CountsByTick:
        """Exact counts of the rows of many frames. Memory: one frame for each thread, and the counts."""
        total = self.nothing
        for counts in in_threads(self.count, frames, threads=threads):
            total = total.merge(counts)
        return total


def in_threads(work: Callable[[_T], _R], parts: Iterable[_T], *, threads: int) -> Iterator[_R]:
    """What ``work`` makes of each part, in their order. At most one part more than there are threads is at hand."""
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[_R]] = deque()
        for part in parts:
            running.append(pool.submit(work, part))
            if len(running) > threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
