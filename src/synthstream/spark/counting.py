"""Rows of frames and files, counted by executors and merged on the way to the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from synthstream.config.config import StreamConfig
from synthstream.errors import ConfigError, EngineError, FileDamaged, FilesLeftOut, SourceError
from synthstream.ingest.counting import CountsByTick, PrivateRows, columns_of, files_of
from synthstream.ingest.files import FileSource
from synthstream.ingest.intake import Elsewhere
from synthstream.schema.coercion import require
from synthstream.spark.sessions import refuse, refuse_persons, session
from synthstream.spark.tasks import (
    FINGERPRINTS,
    RESULT,
    TASK,
    Job,
    count_files,
    count_rows,
    encode_rows,
    encoded,
    fingerprint_files,
    merge,
    merged,
    rows_of,
)
from synthstream.stream.counting_elsewhere import Counting
from synthstream.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Parts that one task merges.
_FAN_IN = 8
_FAILED = (
    "Spark could not count; its own log says why. Nothing of this was counted: run again. If its workers lack this "
    "package, set PYSPARK_PYTHON to a Python that has it, or begin with synthstream.spark.session()."
)


def total_of(counting: Counting, parts: DataFrame, *, tasks: int | None = None) -> CountsByTick:
    """Counts of all tasks, merged in a tree by the executors until few are left, and these by the driver.

    Args:
        counting: of the stream.
        parts: what tasks gave.
        tasks: about how many there are; left out: as many as Spark runs at once.

    Raises:
        FilesLeftOut: some files cannot be counted; ask again for the others.
        EngineError: Spark fails.
    """
    width = tasks or parts.sparkSession.sparkContext.defaultParallelism
    while True:
        width = -(-width // _FAN_IN)
        parts = parts.repartition(width).mapInArrow(merge, RESULT)
        if width <= _FAN_IN:
            break
    with _without_rows():
        found = parts.collect()
    total = merged(found)
    return counting.nothing if total is None else total


def count(frame: DataFrame, config: StreamConfig) -> CountsByTick:
    """Exact counts of the rows of a Spark frame, made by its executors.

    Args:
        frame: not a streaming one.
        config: of the stream.

    Raises:
        ConfigError: the stream's rows cannot be counted apart from its state.
        SchemaError: a column is missing.
        EngineError: Spark fails.
    """
    refuse(config)
    refuse_persons(config)
    parts = selected(frame, config).mapInArrow(partial(count_rows, Job.of(config)), RESULT)
    return total_of(Counting(config), parts)


def of_persons(frame: DataFrame, config: StreamConfig) -> PrivateRows:
    """Rows of a Spark frame, encoded by its executors, on the driver: whose rows count is decided there.

    Memory: all rows of the frame, 4 bytes a cell, and the keys of their persons.
    """
    columns = len(config.schema.columns)
    parts = selected(frame, config).mapInArrow(partial(encode_rows, Job.of(config)), encoded(columns))
    with _without_rows():
        table = parts.toArrow()
    return rows_of(table, signed=config.op is not None)


def selected(frame: DataFrame, config: StreamConfig) -> DataFrame:
    """The columns of a frame that the configuration names."""
    columns = columns_of(config)
    require(columns, frame.columns)
    return frame.select(*("`" + name.replace("`", "``") + "`" for name in columns))


def ingest(stream: Stream, spark: SparkSession | None = None, *, new_files: bool = False) -> int:
    """Count every file of the configured source that was not counted before, as :meth:`Stream.ingest` does.

    A file counts once under its name, whichever engine counted it. Executors read the files under the same path as the
    driver: from a file system that all share. Each row group of a Parquet file is a task, and each CSV file.

    Args:
        stream: open.
        spark: left out: the active session, or a new one on this machine.
        new_files: see :meth:`Stream.ingest`.

    Returns:
        Number of files that were new.

    Raises:
        ConfigError: the stream's rows cannot be counted apart from its state.
        SourceError: a file, or the folder of the source, is away; or files seem to be moved.
        EngineError: Spark does not start or fails, or the system cannot read a file.
    """
    config = stream.config
    refuse(config)
    refuse_persons(config)
    source = files_of(config)
    if source is None:
        raise ConfigError(
            "source: Spark counts files here, of kind parquet or csv. Leave --engine out; or feed the stream from "
            "Spark's own sources, by synthstream.spark.attach"
        )
    elsewhere = Elsewhere(partial(_counted, config, source, spark), partial(_fingerprints, config, spark))
    return stream.ingest(elsewhere=elsewhere, new_files=new_files)


def _counted(
    config: StreamConfig, source: FileSource, spark: SparkSession | None, paths: Sequence[Path]
) -> CountsByTick:
    """Counts of files. Raises ``FilesLeftOut`` if some cannot be counted."""
    tasks, left = [], dict[Path, str]()
    for path in paths:
        try:
            tasks += [(str(path), part) for part in range(source.parts(path))]
        except FileDamaged as error:
            left[path] = str(error)
    if left:
        raise FilesLeftOut(left)
    parts = _spread(tasks, config, spark).mapInArrow(partial(count_files, Job.of(config)), RESULT)
    return total_of(Counting(config), parts)


def _fingerprints(config: StreamConfig, spark: SparkSession | None, paths: Sequence[Path]) -> Iterator[str]:
    if not paths:
        return
    tasks = _spread([(str(path), 0) for path in paths], config, spark)
    with _without_rows():
        told = tasks.mapInArrow(partial(fingerprint_files, Job.of(config)), FINGERPRINTS).toArrow()
    found = {row["path"]: row for row in told.to_pylist()}
    for path in paths:
        if (why := found[str(path)]["error"]) is not None:
            raise SourceError(why)
        yield found[str(path)]["fingerprint"]


def _spread(tasks: Sequence[tuple[str, int]], config: StreamConfig, spark: SparkSession | None) -> DataFrame:
    """Tasks, each to a part of its own while there are few."""
    running = spark or session(f"synthstream {config.name}")
    most = 4 * running.sparkContext.defaultParallelism
    return running.createDataFrame(tasks, TASK).repartition(max(1, min(len(tasks), most)))


@contextmanager
def _without_rows() -> Iterator[None]:
    """Spark's errors in our words: its text may quote a row, and a traceback would show it."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException:
        raise EngineError(_FAILED) from None
