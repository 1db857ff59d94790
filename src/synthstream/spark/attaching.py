"""Structured Streaming: micro-batches counted into a stream, each once; ticks closed by the public clock."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from synthstream.errors import BatchConflict, EngineError, SynthstreamError
from synthstream.ingest.counting import PrivateRows
from synthstream.release.release import Release
from synthstream.spark.counting import count, of_persons, selected
from synthstream.spark.sessions import INTERVAL, refuse
from synthstream.state.turns import turn
from synthstream.stream.following import released
from synthstream.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_OTHERWISE = (
    "Spark brought batch {} again with other rows than before. Its source does not keep what it gave (a file was "
    "changed or removed, a topic was cut, a socket cannot be read again). It counts as it came first; all others were "
    "counted, and all that is due is published. Bring what is new in a new file."
)


@dataclass(frozen=True, kw_only=True)
class Attached:
    """A query that counts into a stream.

    Args:
        query: Spark's own, running.
        stream: which it counts into.
        every: how often it looks for rows; ``None`` if it ends when all rows that there are have been counted.
    """

    query: StreamingQuery
    stream: Stream
    every: str | None
    _failures: list[SynthstreamError] = field(repr=False)

    def releases(self, *, until: datetime | None = None) -> Iterator[Release]:
        """Close ticks by the public clock, until the query ends.

        A query that ends by itself: every tick that is due, when all rows are counted. A query that goes on: every
        tick that is over, as soon as Spark has finished what it began to look for after the tick's end, whether
        there were rows or not.

        Args:
            until: see :meth:`Stream.due`.

        Raises:
            EngineError: the query failed, or somebody stopped it before it had counted all. What was counted stays
                counted; what was not was not.
            BatchConflict: at the end: a batch came again with other rows. It counts as it came first; all others count.
            MirrorError: a mirror failed, after all that is due was published. The query goes on:
                iterate again.
        """
        while not self._over():
            if self.every is not None:
                yield from self._closed(until)
        if self.every is not None:
            yield from self._closed(until)
        # One that is stopped ends without an error too, but has not found that there is nothing more to read.
        elif not self.query._jsq.streamingQuery().noNewData():
            raise EngineError(
                "the query was stopped before it had counted all rows that are there. What it counted stays counted, "
                "and no tick was closed: attach again to go on."
            )
        else:
            yield from released(self.stream, self.stream.due(until=until), until=until)
        if self._failures:  # what a batch holds decides about no release, so this is raised last
            raise self._failures[0]

    def _over(self) -> bool:
        """Whether the query has ended, or does within a second."""
        from pyspark.errors import StreamingQueryException

        try:
            return bool(self.query.awaitTermination(1))
        except StreamingQueryException:  # its text may quote a row, and a traceback would show it
            ends = [failure for failure in self._failures if not isinstance(failure, BatchConflict)]
            if ends:
                raise ends[0] from None
            raise EngineError(
                "Spark ended the query; its own log says why. What was counted stays counted: attach again to go on."
            ) from None

    def _closed(self, until: datetime | None) -> Iterator[Release]:
        progress, clock = self.query.lastProgress, self.stream.config.clock
        if progress is None:
            return
        looked = datetime.fromisoformat(str(progress["timestamp"]))
        over = min(self.stream.due(until=until), clock.over(looked) - self.stream.closed)
        if over > 0:
            yield from released(self.stream, over, until=until)


def attach(
    frame: DataFrame,
    stream: Stream,
    *,
    checkpoint: str | Path | None = None,
    every: str | None = None,
    anew: bool = False,
) -> Attached:
    """Count the rows of a Structured Streaming frame into a stream. Iterate over ``releases()`` of it to publish.

    Each micro-batch is committed under the id ``spark/<query>/<batch>``. One that Spark brings again, after a crash, is
    known by its id and counts once. Executors encode and count, and only counts reach the driver; of a stream that
    protects persons they encode, and the rows of a micro-batch, in numbers, reach the driver, whose state alone knows
    which of a person's rows count. Its memory bounds the micro-batch then (``maxFilesPerTrigger`` and the like).

    The source must be one that Spark can read again (files, Kafka, Delta; not a socket). Spark knows files by their
    full path: ones that were moved count again. Leave a link where they were. Its watermark decides nothing: a row
    counts in its own tick, or in the open one if that is later.

    Args:
        frame: streaming, with the columns of the stream.
        stream: open; it must stay open while the query runs.
        checkpoint: where Spark keeps how far it is; as secret as the data. Left out: within the stream's state folder.
        every: as in ``"10 seconds"``: look for rows so often, for ever. Left out: count what is there, and end.
        anew: this query begins although the stream has counted batches of another one, whose checkpoint is not this.

    Raises:
        ConfigError: it matters in this stream when a row arrives.
        SchemaError: a column is missing.
        EngineError: the frame is not a streaming one; Spark would tell late of looks that find nothing; or the
            checkpoint is another stream's, or newer than the state.

    Example:
        A folder of files, as they come (not run here: it needs Java)::

            spark = synthstream.spark.session()
            frame = spark.readStream.schema(schema).parquet("/data/visits")
            with synthstream.open("stream.toml") as stream:
                for release in synthstream.spark.attach(frame, stream).releases():
                    print(release.tick)
    """
    config = stream.config
    refuse(config)
    _refuse_frame(frame, every)
    place = str(checkpoint) if checkpoint is not None else (config.state.absolute() / "spark").as_uri()
    query: Future[str] = Future()
    failures: list[SynthstreamError] = []
    taker = _Taker(stream=stream, query=query, anew=anew, failures=failures)
    writer = selected(frame, config).writeStream.foreachBatch(taker).option("checkpointLocation", place)
    trigger = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    done = _noted_as_done(frame.sparkSession, place)
    running = trigger.start()
    query.set_result(str(running.id))
    try:  # also if there are no new rows: ticks are closed all the same
        taker.refuse_gap(f"spark/{running.id}/", done)
    except EngineError:
        running.stop()
        raise
    return Attached(query=running, stream=stream, every=every, _failures=failures)


def _refuse_frame(frame: DataFrame, every: str | None) -> None:
    """Raise ``EngineError`` unless a frame is a streaming one, whose query tells in time of looks that find nothing."""
    if not frame.isStreaming:
        raise EngineError("this frame is no stream: read it with spark.readStream, or add count(frame, config) once")
    if every is not None and frame.sparkSession.conf.get(INTERVAL, None) != "0":
        raise EngineError(
            "Spark would tell late of looks that find nothing, so that the moment of a release told whether rows came: "
            f'say spark.conf.set("{INTERVAL}", "0") before the query is attached'
        )


def _noted_as_done(spark: SparkSession, checkpoint: str) -> int:
    """How many micro-batches a checkpoint says are done: one more than the number of the last."""
    java, settings = spark._jvm, spark._jsc.hadoopConfiguration()
    if java is None:
        raise EngineError("Spark Connect is not supported: begin with a session that runs its driver here")
    commits = java.org.apache.hadoop.fs.Path(checkpoint, "commits")
    files = commits.getFileSystem(settings)
    names = [found.getPath().getName() for found in files.listStatus(commits)] if files.exists(commits) else []
    return max((int(name) + 1 for name in names if name.isdecimal()), default=0)


@dataclass(kw_only=True)
class _Taker:
    """Counts a micro-batch, and commits it."""

    stream: Stream
    query: Future[str]
    anew: bool
    failures: list[SynthstreamError]
    _fits: bool = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            place = f"spark/{self.query.result()}/"
            if not self._fits:
                self.refuse_gap(place, batch)
            config = self.stream.config
            # Of persons come rows: the state must choose among those of each.
            found = of_persons(frame, config) if config.privacy.unit.of_persons else count(frame, config)
            with turn(self.stream):
                if not self._fits:  # another query may have begun in the meantime
                    self.refuse_gap(place, batch)
                try:
                    if isinstance(found, PrivateRows):
                        self.stream.update(found, batch_id=f"{place}{batch}")
                    else:
                        self.stream.add(found, batch_id=f"{place}{batch}")
                except BatchConflict:
                    self.failures.append(BatchConflict(_OTHERWISE.format(f"{place}{batch}")))
            self._fits = True
        except SynthstreamError as error:
            self.failures.append(error)
            raise

    def refuse_gap(self, place: str, batch: int) -> None:
        """Raise unless this state has counted all that the checkpoint says was counted, and nothing by another."""
        if batch and f"{place}{batch - 1}" not in self.stream.batches(f"{place}{batch - 1}"):
            raise EngineError(
                "the checkpoint says that rows were counted which this state has not counted: it belongs to another "
                "stream, or the state is older than it. Use the two that belong together; or a new checkpoint, which "
                "reads the source from its beginning. Nothing was counted."
            )
        known = self.stream.batches("spark/")
        if not self.anew and known and not any(found.startswith(place) for found in known):
            raise EngineError(
                "this stream has counted batches of another query, whose checkpoint is not this one: rows that this "
                "query reads from the beginning would count again. Use that checkpoint; or, if the source holds only "
                "rows that have not counted, say anew=True. Nothing was counted."
            )
