"""Spark counts what the local engine counts, each batch once; what is released depends on the public clock alone."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from synthstream import Counting, CountsByTick, Stream, StreamConfig, releases
from synthstream.config.config import load
from synthstream.errors import BatchConflict, ConfigError, EngineError, FilesLeftOut, SchemaError, SourceError
from synthstream.ingest.counting import encode
from synthstream.ingest.files import FileSource
from synthstream.spark import attach, attaching, count, ingest, session
from synthstream.spark import rows as spark_rows
from synthstream.spark.counting import total_of
from synthstream.spark.sessions import INTERVAL
from synthstream.spark.tasks import RESULT, Job, count_files, count_rows, encode_rows, merge, merged, rows_of, table_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.spark import job
from tests.support.gates import ExactGate
from tests.support.streams import PERSONS, TICKS, configured, published, rows, text_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.xdist_group("spark"),  # one Spark is enough
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROOT = Path(__file__).parents[2]
EVICTIONS = ROOT / "examples" / "evictions" / "stream.toml"
SCHEMA = "when timestamp_ntz, ward string, x double, y double, who bigint"


def opened(config: StreamConfig) -> Stream:
    return Stream(config, gates=lambda tick: SeededGate(f"5/{tick}"), seed=5)


def files(folder: Path, *, count: int = 3) -> None:
    for number in range(count):
        rows(200, number).write_parquet(folder / f"rows-{number}.parquet")


def local(folder: Path, kind: str = "always") -> dict[str, bytes]:
    """What the local engine publishes from the same files."""
    config = configured(folder / "local", kind)
    files(folder / "local")
    with opened(config) as stream:
        assert sum(1 for _ in stream.run()) == TICKS
    return published(folder / "local" / "releases")


def streaming(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "rows-*.parquet"))


# -- what executors do, without executors ----------------------------------------------------------------------------


def batches(frame: pl.DataFrame, size: int) -> Iterator[Any]:
    return iter(frame.to_arrow().to_batches(max_chunksize=size))


@pytest.mark.parametrize("kind", ["always", "points"])
def test_tasks_count_and_merge_to_the_same_bytes(tmp_path: Path, kind: str) -> None:
    config, frame = configured(tmp_path, kind), rows(500, 3)
    job = Job.of(config)
    parts = [part for third in (0, 1, 2) for part in count_rows(job, batches(frame[third::3], 40))]
    (whole,) = merge(iter(parts))
    assert bytes(whole["counts"][0].as_py()) == Counting(config).count(frame).to_bytes()
    assert list(merge(iter([]))) == []


def test_what_is_wrong_in_a_task_reaches_the_driver_in_our_words(tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    job = Job.of(config)
    task = pa.RecordBatch.from_pydict({"path": [str(tmp_path / "gone.parquet")], "part": [0]})
    (found,) = count_files(job, iter([task]))
    assert "gone.parquet: there is no such file" in str(found["error"][0])
    (whole,) = merge(iter([found]))
    assert "gone.parquet" in str(whole["error"][0])
    (other,) = count_rows(replace(job, version="0"), batches(rows(1, 1), 1))
    assert "the driver 0. Install the same" in str(other["error"][0])


def test_files_that_cannot_be_counted_reach_the_driver_by_name(tmp_path: Path) -> None:
    job, (good, bad) = Job.of(configured(tmp_path, "always")), (tmp_path / "good.parquet", tmp_path / "bad.parquet")
    rows(5, 1).write_parquet(good)
    bad.write_bytes(b"PAR1")
    tasks = [pa.RecordBatch.from_pydict({"path": [str(path)], "part": [0]}) for path in (good, bad)]
    parts = [part for task in tasks for part in count_files(job, iter([task]))]
    (together,) = count_files(job, iter(tasks))
    for found in (merge(iter(parts)), iter([together])):
        with pytest.raises(FilesLeftOut, match=r"bad\.parquet cannot be read as parquet") as caught:
            merged(row for part in merge(found) for row in part.to_pylist())
        assert [*caught.value.findings] == [bad]


@pytest.mark.parametrize("signed", [False, True])
def test_rows_of_persons_come_to_the_driver_in_numbers_and_in_one_order(tmp_path: Path, signed: bool) -> None:
    config = configured(tmp_path, PERSONS)
    frame = rows(300, 1).with_columns(op=pl.Series(["add", "remove", "add"] * 100))
    if signed:
        config = replace(config, op="op")
    expected = encode(config, frame)
    found = []
    for part in (frame, frame.reverse()):
        given = encode_rows(Job.of(config), batches(part, 40))
        found.append(rows_of(pa.Table.from_batches(given), signed=signed))
    assert found[0].content() == found[1].content()
    assert (found[0].weights is None) == (not signed)
    several = [pl.DataFrame(table_of(each)).sort(pl.all()) for each in (expected, found[0])]
    assert several[0].equals(several[1])


def test_executors_learn_no_place_and_no_key(tmp_path: Path) -> None:
    found = Job.of(configured(tmp_path, "always")).config
    assert (found.state, found.sink, found.encryption) == (Path("/"), None, None)


def test_what_cannot_be_counted_apart_is_refused_with_the_reason(tmp_path: Path) -> None:
    nothing: Any = None
    with Stream(configured(tmp_path / "who", PERSONS)) as stream:
        for call in (lambda: ingest(stream), lambda: count(nothing, stream.config)):
            with pytest.raises(ConfigError, match=r"which of them count.*Use synthstream\.spark\.attach"):
                call()
    logs = replace(configured(tmp_path / "logs", "always"), source=None)
    with Stream(logs) as stream, pytest.raises(ConfigError, match="Leave --engine out"):
        ingest(stream)
    with Stream(configured(tmp_path / "cube", "hypercube")) as stream:
        with pytest.raises(ConfigError, match="publishes exactly how many events"):
            ingest(stream)
        with pytest.raises(ConfigError, match="publishes exactly how many events"):
            attach(nothing, stream)


def test_of_two_queries_that_begin_at_once_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(tmp_path, "always")
    counts = Counting(config).count(rows(20, 1))
    with opened(config) as stream:
        first, second = (attaching._Taker(stream=stream, query=Future(), anew=False, failures=[]) for _ in range(2))
        first.query.set_result("first")
        second.query.set_result("second")

        def counted(frame: Any, _: StreamConfig) -> CountsByTick:
            if frame == "first":  # while it counts, the other one begins and is done
                second(cast(Any, "second"), 0)
            return counts

        monkeypatch.setattr(attaching, "count", counted)
        with pytest.raises(EngineError, match="batches of another query"):
            first(cast(Any, "first"), 0)
        assert stream.batches() == ["spark/second/0"]
        second(cast(Any, "second"), 1)


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "pyspark.errors", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EngineError, match=r"pip install 'synthstream\[spark\]'"):
        session()


# -- with executors --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_evictions_are_counted_alike_from_a_frame_and_from_files(spark: SparkSession, tmp_path: Path) -> None:
    config = replace(load(EVICTIONS), state=tmp_path / "state", sink=None)
    assert config.source is not None
    some = pl.read_parquet(config.source.path).gather_every(10)
    some.write_parquet(tmp_path / "some.parquet")
    whole = Counting(config).count(some)
    assert len(whole.ticks) > 250
    assert (
        count(spark.read.parquet(str(tmp_path / "some.parquet")).repartition(3), config).to_bytes() == whole.to_bytes()
    )
    with pytest.raises(SchemaError, match="'File Date' are missing"):
        count(spark.range(1).toDF("x"), config)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["always", "points"])
def test_files_give_the_same_releases_and_count_once_whichever_engine(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    expected = local(tmp_path, kind)
    config = configured(tmp_path / "spark", kind)
    files(tmp_path / "spark", count=2)
    with opened(config) as stream:
        assert ingest(stream) == 2
        assert (ingest(stream), stream.ingest()) == (0, 0)
        files(tmp_path / "spark")
        assert stream.ingest() == 1
        assert ingest(stream) == 0
        assert sum(1 for _ in stream.run()) == TICKS
        rows(9, 9).write_parquet(tmp_path / "spark" / "rows-0.parquet")
        assert ingest(stream) == 0
        assert "is not what it was" in stream.findings[tmp_path / "spark" / "rows-0.parquet"]
    assert published(tmp_path / "spark" / "releases") == expected


@pytest.mark.slow
def test_executors_make_the_fingerprints(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that Spark starts knows nothing of what is replaced here."""
    files(tmp_path, count=2)
    with opened(configured(tmp_path, "always")) as stream:
        monkeypatch.setattr(FileSource, "fingerprint", None)
        assert [ingest(stream, spark) for _ in range(2)] == [2, 0]
        monkeypatch.undo()
        assert stream.ingest() == 0
        away = tmp_path / "rows-0.parquet"
        monkeypatch.setattr(FileSource, "files", lambda _: [away])
        away.unlink()
        away.mkdir()
        with pytest.raises(SourceError, match=r"rows-0\.parquet cannot be read"):
            ingest(stream, spark, new_files=True)


@pytest.mark.slow
def test_what_spark_says_of_a_row_is_in_no_traceback(spark: SparkSession, tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    word = "SECRET"[::-1]
    frame = spark.sql(f"SELECT now() when, x ward, 1.0 x, cast(x AS double) y, 1 who FROM VALUES ('{word}') AS v(x)")  # noqa: S608
    with pytest.raises(EngineError, match="its own log says why") as caught:
        count(frame, config)
    assert word not in "".join(traceback.format_exception(caught.value))


@pytest.mark.slow
def test_a_session_of_ours_shows_nothing_on_the_terminal_and_the_network(spark: SparkSession) -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    assert (settings["spark.ui.enabled"], settings["spark.ui.showConsoleProgress"]) == ("false", "false")


@pytest.mark.slow
def test_a_file_that_cannot_be_counted_leaves_out_itself_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Damage that the driver sees, damage that an executor meets after it has counted a row group, and no column."""
    expected = local(tmp_path)
    with opened(configured(tmp_path / "spark", "always")) as stream:
        files(tmp_path / "spark")
        (tmp_path / "spark" / "rows-a.parquet").write_bytes(b"PAR1")
        rows(9, 9).drop("x").write_parquet(tmp_path / "spark" / "rows-b.parquet")
        rows(2000, 9).write_parquet(tmp_path / "spark" / "rows-c.parquet", row_group_size=500, compression="snappy")
        content = bytearray((tmp_path / "spark" / "rows-c.parquet").read_bytes())
        group = pq.read_metadata(tmp_path / "spark" / "rows-c.parquet").row_group(2)
        (page,) = (group.column(i).data_page_offset for i in range(5) if group.column(i).path_in_schema == "x")
        content[page : page + 16] = b"\xff" * 16
        (tmp_path / "spark" / "rows-c.parquet").write_bytes(content)
        assert ingest(stream) == 3
        assert sorted(path.stem for path in stream.findings) == ["rows-a", "rows-b", "rows-c"]
        with pytest.raises(FilesLeftOut):
            list(stream.run())
        assert stream.closed == TICKS
    assert published(tmp_path / "spark" / "releases") == expected


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "multiline = true\n"])
def test_a_csv_file_is_read_as_without_spark(spark: SparkSession, tmp_path: Path, more: str) -> None:
    text = text_of("always").replace('kind = "parquet"\n', f'kind = "csv"\n{more}', 1)
    text = text.replace("rows-*.parquet", "rows-*.csv")
    for name in ("local", "spark"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows-1.csv").write_text(
            'when,ward,x\n2026-01-02,"A\nB",1\n2026-01-03,B\n,,"7""\n2026-01-04,A,NaN,5\n2026-01-05,C,3\n'
        )
        with opened(StreamConfig.from_toml(text, base=tmp_path / name)) as stream:
            assert (ingest(stream) if name == "spark" else stream.ingest()) == 1
            assert sum(1 for _ in stream.run()) == TICKS
    assert published(tmp_path / "spark" / "releases") == published(tmp_path / "local" / "releases")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["always", PERSONS])
def test_a_query_counts_once_and_releases_by_the_public_clock(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "spark"
    config = configured(folder, kind)
    with opened(config):  # one key for both: it decides which rows of a person count
        pass
    configured(tmp_path / "local", kind)
    shutil.copytree(config.state, tmp_path / "local" / "state")
    expected = local(tmp_path, kind)
    files(folder, count=2)
    with opened(config) as stream:
        found = attach(streaming(spark, folder), stream)
        found.query.awaitTermination()
        assert stream.closed == 0, "rows alone close no tick"
        batches = stream.batches("spark/")
        assert batches == [f"spark/{found.query.id}/{number}" for number in (0, 1)]
    files(folder)
    (folder / "state" / "spark" / "commits" / "1").unlink()  # as if Spark had ended before it noted the second batch
    (folder / "state" / "spark" / "commits" / ".1.crc").unlink()
    with opened(config) as stream:
        assert [release.tick for release in attach(streaming(spark, folder), stream).releases()] == list(range(TICKS))
        assert len(stream.batches("spark/")) == 3
    assert published(folder / "releases") == expected


@pytest.mark.slow
def test_a_query_that_was_stopped_has_not_counted_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark ends it without an error, as it ends one that has read everything; the ticks stay open for what is left."""
    config = configured(tmp_path, "always")
    files(tmp_path)
    found = list[Any]()
    add = Stream.add

    def stopped(self: Stream, *arguments: Any, **more: Any) -> None:
        add(self, *arguments, **more)
        Thread(target=next(iter(spark.streams.active)).stop).start()  # another handle, as from outside
        sleep(1)

    with opened(config) as stream:
        with monkeypatch.context() as patched:
            patched.setattr(Stream, "add", stopped)
            with pytest.raises(EngineError, match="stopped before it had counted all"):
                found += attach(streaming(spark, tmp_path), stream).releases()
        assert (found, stream.closed, len(stream.batches())) == ([], 0, 1)
        found += attach(streaming(spark, tmp_path), stream).releases()
        assert (len(found), len(stream.batches())) == (TICKS, 3)
        assert not list(attach(streaming(spark, tmp_path), stream).releases())  # nothing new is no reason to refuse


@pytest.mark.slow
def test_a_query_that_goes_on_closes_empty_ticks_too(spark: SparkSession, tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    files(tmp_path, count=1)
    with opened(config) as stream:
        attached = attach(streaming(spark, tmp_path), stream, every="1 second")
        for release in attached.releases(until=datetime(2026, 1, 4, tzinfo=UTC)):
            if release.tick == 2:
                attached.query.stop()
        assert stream.closed == 3
        assert stream.batches() == [f"spark/{attached.query.id}/0"]


@pytest.mark.slow
def test_spark_tells_at_once_of_a_look_that_finds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Or the moment of a release would tell whether rows came."""
    config = configured(tmp_path, "always")
    files(tmp_path, count=1)
    assert spark.conf.get(INTERVAL) == "0"
    with opened(config) as stream:
        attached = attach(streaming(spark, tmp_path), stream, every="1 second")
        told = set[str]()
        deadline = monotonic() + 60
        while len(told) < 5 and monotonic() < deadline:
            progress = attached.query.lastProgress
            if progress is not None and progress["numInputRows"] == 0:
                told.add(progress["timestamp"])
            sleep(0.1)
        attached.query.stop()
        moments = sorted(map(datetime.fromisoformat, told))
        assert moments[-1] - moments[0] < timedelta(seconds=9)  # five looks, where Spark's own is one in ten seconds
        spark.conf.set(INTERVAL, "10000")
        try:
            with pytest.raises(EngineError, match="told whether rows came"):
                attach(streaming(spark, tmp_path), stream, every="1 second")
        finally:
            spark.conf.set(INTERVAL, "0")


@pytest.mark.slow
def test_a_checkpoint_that_does_not_belong_to_the_state_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    config = configured(tmp_path / "one", "always")
    files(tmp_path / "one", count=2)
    frame = streaming(spark, tmp_path / "one")
    with opened(config) as stream:
        attach(frame, stream).query.awaitTermination()
        with pytest.raises(EngineError, match="batches of another query"):
            list(attach(frame, stream, checkpoint=tmp_path / "fresh").releases())
        assert len(stream.batches()) == 2
    copied = tmp_path / "copied"
    shutil.copytree(config.state / "spark", copied)
    with opened(configured(tmp_path / "two", "always")) as other:
        for _ in range(2):  # whether the source has new rows, or none
            with pytest.raises(EngineError, match="which this state has not counted"):
                attach(frame, other, checkpoint=copied)
            files(tmp_path / "one")
        assert (other.batches(), other.closed) == ([], 0)
        with pytest.raises(EngineError, match="this frame is no stream"):
            attach(spark.range(1).toDF("x"), other)
        with pytest.raises(SchemaError, match="is missing"):
            attach(frame.drop("x"), other)


@pytest.mark.slow
def test_a_source_that_gives_other_rows_again_stops_no_release(spark: SparkSession, tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    files(tmp_path, count=1)
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        attach(streaming(spark, tmp_path), stream).query.awaitTermination()
        counted = pl.read_parquet(tmp_path / "rows-0.parquet").height
        rows(50, 77).write_parquet(tmp_path / "rows-0.parquet")
        for name in ("0", ".0.crc"):
            (config.state / "spark" / "commits" / name).unlink()
        rows(7, 78).write_parquet(tmp_path / "rows-1.parquet")
        before = stream.closed
        with pytest.raises(BatchConflict, match="again with other rows than before"):
            list(attach(streaming(spark, tmp_path), stream).releases())
        assert (before, stream.closed) == (0, TICKS)
        assert stream.last is not None
        assert round(float(stream.last.measured.values[0])) == counted + 7


@pytest.mark.slow
def test_rows_of_a_release_do_not_depend_on_who_draws_them(spark: SparkSession, tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    files(tmp_path, count=1)
    with opened(config) as stream:
        *_, last = stream.run()
    one, two = (spark_rows(last, 250_000, seed=seed, spark=spark) for seed in (1, 2))
    assert one.columns == ["ward", "x"]
    first = pl.DataFrame(one.toArrow())
    again = pl.DataFrame(spark_rows(last, 250_000, seed=1, spark=spark).repartition(5).toArrow())
    assert first.height == 250_000
    assert first.sort("ward", "x").equals(again.sort("ward", "x"))
    assert not first.equals(pl.DataFrame(two.toArrow()))
    shares = first["ward"].value_counts(normalize=True).sort("ward")["proportion"].to_numpy()
    published_rows = last.rows()["ward"].value_counts(normalize=True).sort("ward")["proportion"].to_numpy()
    assert np.allclose(shares, published_rows, atol=0.01)
    assert spark_rows(last, 0, spark=spark).count() == 0
    read = releases(tmp_path / "stream.toml").last
    assert read.rows().equals(last.rows())
    assert pl.DataFrame(spark_rows(read, 1000, spark=spark).toArrow()).height == 1000


@pytest.mark.slow
def test_the_command_counts_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    from synthstream.cli.app import app

    config = configured(tmp_path, "always")
    files(tmp_path, count=1)
    done = CliRunner().invoke(app, ["run", str(tmp_path / "stream.toml"), "--engine", "spark", "--yes"])
    assert done.exit_code == 0, done.output
    assert "1 new file(s) counted, 8 new release(s)" in done.output
    with Stream(config) as stream:
        assert stream.ingest() == 0


@pytest.mark.slow
def test_the_command_asks_about_files_that_seem_to_be_moved(spark: SparkSession, tmp_path: Path) -> None:
    from synthstream.cli.app import app

    def said(path: str, more: str = "", *options: str, status: int = 0) -> str:
        text = text_of("always").replace('path = "rows-*.parquet"', f'path = "{path}/*.parquet"{more}')
        (tmp_path / "stream.toml").write_text(text)
        done = CliRunner().invoke(app, ["run", str(tmp_path / "stream.toml"), "--engine", "spark", "--yes", *options])
        assert done.exit_code == status, done.output
        return done.output

    (tmp_path / "old").mkdir()
    files(tmp_path / "old", count=1)
    assert "1 new file(s) counted, 2 new release(s)" in said("old", "", "--until", "2026-01-03")
    (tmp_path / "old").rename(tmp_path / "new")
    assert 'moved = "old"' in said("new", status=2)
    assert len(releases(tmp_path / "stream.toml")) == 2
    files(tmp_path / "new", count=2)  # the second one is new indeed
    assert "1 new file(s) counted, 1 new release(s)" in said("new", '\nmoved = "old"', "--until", "2026-01-04")
    (tmp_path / "new").rename(tmp_path / "newer")
    assert "2 new file(s) counted, 5 new release(s)" in said("newer", "", "--new-files")


@pytest.mark.slow
def test_counts_of_any_number_of_tasks_are_merged_in_a_tree(spark: SparkSession, tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    parts = [rows(30, seed) for seed in range(20)]
    expected = reduce(CountsByTick.merge, (Counting(config).count(part) for part in parts)).to_bytes()
    frame = spark.createDataFrame(pl.concat(parts).to_arrow().cast(_spark_types(parts[0]))).repartition(20)
    job = Job.of(config)
    found = frame.mapInArrow(lambda batches: count_rows(job, batches), RESULT)
    assert total_of(Counting(config), found, tasks=20).to_bytes() == expected


@pytest.mark.slow
def test_killed_twice_and_restarted_every_tick_counts_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Killed once between its own commit and Spark's, once between a measurement's commit and its publication."""
    config = configured(tmp_path / "local", "always")
    files(tmp_path / "local", count=4)
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        assert sum(1 for _ in stream.run()) == TICKS
    expected = published(tmp_path / "local" / "releases")
    configured(tmp_path / "spark", "always")
    files(tmp_path / "spark", count=4)
    seen: dict[str, bytes] = {}
    for at in ("commit counts:2", "commit measurement:3", None):
        command = [sys.executable, "-W", "ignore", "-m", "tests.spark.job", str(tmp_path / "spark"), str(at)]
        if at is None:  # the Spark that is there: another one begins in some ten seconds
            job.count(spark, tmp_path / "spark")
        else:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)  # noqa: S603
            assert done.returncode == -signal.SIGKILL, done.stderr
        now = published(tmp_path / "spark" / "releases")
        assert seen.items() <= now.items(), "what was published stays as it was"
        seen = now
    assert seen == expected
    with Stream(configured(tmp_path / "spark", "always"), gates=lambda tick: ExactGate()) as stream:
        assert len(stream.batches("spark/")) == 4


def _spark_types(frame: pl.DataFrame) -> Any:
    fields = frame.to_arrow().schema
    return pa.schema([pa.field(f.name, pa.string() if pa.types.is_large_string(f.type) else f.type) for f in fields])
