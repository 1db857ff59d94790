"""What executors do: encode and count rows, and merge counts. They never see the state, the sink or a key."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from synthstream.config import StreamConfig
from synthstream.counting import CountsByTick, Rows, columns_of, encode
from synthstream.counting_elsewhere import Counting
from synthstream.errors import ConfigError, EngineError, SynthstreamError
from synthstream.io.sources import FileSource

# Rows that are counted together by a task.
_CHUNK_ROWS = 250_000
# What a task gives: counts, or what is wrong.
RESULT = "counts binary, error string"
_ARROW = pa.schema([("counts", pa.binary()), ("error", pa.string())])
# A task of files to read.
TASK = "path string, part int"

Batches = Iterator[pa.RecordBatch]

_known: dict[str, Counting] = {}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What executors are told: the public settings, and which version of this package they must have."""

    config: StreamConfig
    version: str

    @classmethod
    def of(cls, config: StreamConfig) -> Job:
        nowhere = Path(os.sep)
        bare = replace(config, state=nowhere, base=nowhere, sink=None, encryption=None)
        return cls(config=bare, version=version("synthstream"))

    def check(self) -> None:
        """Raise ``EngineError`` where another version of this package is installed."""
        if version("synthstream") != self.version:
            raise EngineError(
                f"an executor has synthstream {version('synthstream')}, the driver {self.version}. Install the same."
            )

    @property
    def counting(self) -> Counting:
        """Made once in a worker."""
        self.check()
        key = self.config.genesis
        if key not in _known:
            _known[key] = Counting(self.config)
        return _known[key]


def _answer(counts: Callable[[], CountsByTick | None]) -> Batches:
    """The one row that a task gives. Errors of this package go to the driver as what they are."""
    try:
        found = counts()
    except SynthstreamError as error:
        yield pa.RecordBatch.from_pydict({"counts": [None], "error": [str(error)]}, schema=_ARROW)
        return
    if found is not None:
        yield pa.RecordBatch.from_pydict({"counts": [found.to_bytes()], "error": [None]}, schema=_ARROW)


def count_rows(job: Job, batches: Batches) -> Batches:
    """Counts of a task's rows."""
    return _answer(lambda: job.counting.count_all(_together(batches)))


def encode_rows(job: Job, batches: Batches) -> Batches:
    """A task's rows in numbers, with the keys of their persons."""
    job.check()
    for table in _together(batches):
        yield from table_of(encode(job.config, table)).to_batches()


def encoded(columns: int) -> str:
    """What :func:`encode_rows` gives, as Spark names it, for so many columns."""
    return ", ".join(["who string", "tick bigint", "weight tinyint", *(f"c{i} int" for i in range(columns))])


def table_of(rows: Rows) -> pa.Table:
    """Rows in numbers as a table."""
    weights = np.ones(len(rows.codes)) if rows.weights is None else rows.weights
    people = [] if rows.people is None else rows.people.to_list()
    columns = {"who": pa.array(people, pa.string()), "tick": rows.ticks, "weight": weights.astype(np.int8)}
    return pa.table(columns | {f"c{i}": codes.astype(np.int32) for i, codes in enumerate(rows.codes.T)})


def rows_of(table: pa.Table, *, signed: bool) -> Rows:
    """What :func:`table_of` was given, in an order that does not depend on how the rows came."""
    frame = pl.DataFrame(table)
    frame = frame.sort(frame.columns)
    weights = frame["weight"].cast(pl.Int64).to_numpy() if signed else None
    codes = frame.select(frame.columns[3:]).to_numpy(order="c")
    return Rows(codes, frame["tick"].to_numpy(), weights, frame["who"])


def _together(batches: Batches) -> Iterator[pa.Table]:
    """The same rows in fewer, larger tables: they are counted faster."""
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        parts.append(batch)
        if sum(part.num_rows for part in parts) >= _CHUNK_ROWS:
            yield pa.Table.from_batches(parts)
            parts = []
    if parts:
        yield pa.Table.from_batches(parts)


def count_files(job: Job, batches: Batches) -> Batches:
    """Counts of files, read as they are read without Spark, so that every cell means the same."""
    source = job.config.source
    if source is None:
        raise ConfigError("the stream has no [source]")
    files = FileSource(kind=source.kind, path=source.path, columns=columns_of(job.config))

    def frames() -> Iterator[Any]:
        for batch in batches:
            for path, part in zip(batch["path"].to_pylist(), batch["part"].to_pylist(), strict=True):
                yield from files.read(Path(path), chunk_rows=_CHUNK_ROWS, part=part)

    return _answer(lambda: job.counting.count_all(frames()))


def merge(batches: Batches) -> Batches:
    """All that reaches a task, merged."""
    return _answer(lambda: _merged((batch["counts"], batch["error"]) for batch in batches))


def _merged(parts: Iterable[tuple[Any, Any]]) -> CountsByTick | None:
    total: CountsByTick | None = None
    for counts, errors in parts:
        for data, error in zip(counts.to_pylist(), errors.to_pylist(), strict=True):
            if error is not None:
                raise EngineError(error)
            found = CountsByTick.from_bytes(data)
            total = found if total is None else total.merge(found)
    return total
