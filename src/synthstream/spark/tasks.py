"""What executors do: encode and count rows, and merge counts. They never see the state, the sink or a key."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa

from synthstream.config.config import StreamConfig
from synthstream.config.objects import place_of
from synthstream.errors import EngineError, FileDamaged, FilesLeftOut, SchemaError, SynthstreamError
from synthstream.ingest.counting import CountsByTick, PrivateRows, encode, files_of
from synthstream.ingest.files import FileSource, together
from synthstream.stream.counting_elsewhere import Counting

# What a task gives: counts, or what is wrong, or with which files: JSON.
RESULT = "counts binary, error string, left string"
_ARROW = pa.schema([("counts", pa.binary()), ("error", pa.string()), ("left", pa.string())])
# A task of files to read.
TASK = "path string, part int"
# What a task says of files: their fingerprints, or why there is none.
FINGERPRINTS = "path string, fingerprint string, error string"

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
    def files(self) -> FileSource:
        """How the files of the stream's source are read."""
        return cast(FileSource, files_of(self.config))

    @property
    def counting(self) -> Counting:
        """Made once in a worker."""
        self.check()
        key = self.config.own_hash
        if key not in _known:
            _known[key] = Counting(self.config)
        return _known[key]


def _answer(counts: Callable[[], CountsByTick | None]) -> Batches:
    """The one row that a task gives. Errors of this package go to the driver as what they are."""
    found, why, left = None, None, dict[str, str]()
    try:
        found = counts()
    except FilesLeftOut as error:
        left = {str(path): said for path, said in error.findings.items()}
    except SynthstreamError as error:
        why = str(error)
    row = {"counts": None if found is None else found.to_bytes(), "error": why, "left": json.dumps(left)}
    if found is not None or why is not None or left:
        yield pa.RecordBatch.from_pylist([row], schema=_ARROW)


def count_rows(job: Job, batches: Batches) -> Batches:
    """Counts of a task's rows."""
    return _answer(lambda: job.counting.count_all(together(batches)))


def encode_rows(job: Job, batches: Batches) -> Batches:
    """A task's rows in numbers, with the keys of their persons."""
    job.check()
    for table in together(batches):
        yield from table_of(encode(job.config, table)).to_batches()


def encoded(columns: int) -> str:
    """Spark's schema of what :func:`encode_rows` gives, for this number of columns."""
    return ", ".join(["who string", "tick bigint", "weight tinyint", *(f"c{i} int" for i in range(columns))])


def table_of(rows: PrivateRows) -> pa.Table:
    """Rows in numbers as a table."""
    weights = np.ones(len(rows.codes)) if rows.weights is None else rows.weights
    people = [] if rows.people is None else rows.people.to_list()
    columns = {"who": pa.array(people, pa.string()), "tick": rows.ticks, "weight": weights.astype(np.int8)}
    return pa.table(columns | {f"c{i}": codes.astype(np.int32) for i, codes in enumerate(rows.codes.T)})


def rows_of(table: pa.Table, *, signed: bool) -> PrivateRows:
    """What :func:`table_of` was given, in an order that does not depend on how the rows came."""
    frame = pl.DataFrame(table)
    frame = frame.sort(frame.columns)
    weights = frame["weight"].cast(pl.Int64).to_numpy() if signed else None
    codes = frame.select(frame.columns[3:]).to_numpy(order="c")
    return PrivateRows(codes, frame["tick"].to_numpy(), weights, frame["who"])


def count_files(job: Job, batches: Batches) -> Batches:
    """Counts of files, read as they are read without Spark, so that every cell means the same.

    If some cannot be counted, their names go to the driver, which asks again for the others.
    """
    files = job.files

    def frames() -> Iterator[Any]:
        left = dict[Path, str]()
        for batch in batches:
            for name, part in zip(batch["path"].to_pylist(), batch["part"].to_pylist(), strict=True):
                path = place_of(name, Path)
                try:
                    yield from files.read(path, part=part)
                except (FileDamaged, SchemaError) as error:
                    left[path] = str(error)
        if left:
            raise FilesLeftOut(left)

    return _answer(lambda: job.counting.count_all(frames()))


def fingerprint_files(job: Job, batches: Batches) -> Batches:
    """Fingerprints of files, as the driver would make them."""
    job.check()
    files = job.files
    for batch in batches:
        for path in batch["path"].to_pylist():
            found = {"path": path, "fingerprint": None, "error": None}
            try:
                found["fingerprint"] = files.fingerprint(place_of(path, Path))
            except SynthstreamError as error:
                found["error"] = str(error)
            yield pa.RecordBatch.from_pylist([found], pa.schema([(name, pa.string()) for name in found]))


def merge(batches: Batches) -> Batches:
    """All that reaches a task, merged."""
    return _answer(lambda: merged(row for batch in batches for row in batch.to_pylist()))


def merged(rows: Iterable[Any]) -> CountsByTick | None:
    """What tasks gave, merged.

    Args:
        rows: with ``counts``, ``error`` and ``left``.

    Raises:
        FilesLeftOut: some files could not be counted.
        EngineError: a task could not do its work.
    """
    total, left = None, dict[Path, str]()
    for row in rows:
        if row["error"] is not None:
            raise EngineError(row["error"])
        left |= {place_of(path, Path): why for path, why in json.loads(row["left"]).items()}
        if row["counts"] is not None:
            found = CountsByTick.from_bytes(bytes(row["counts"]))
            total = found if total is None else total.merge(found)
    if left:
        raise FilesLeftOut(left)
    return total
