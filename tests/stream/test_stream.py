"""The stream end to end: resume, exactly once, late rows, refusals, and what a release holds."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

import synthstream
from synthstream import Releases, Stream, StreamConfig
from synthstream.errors import (
    BatchConflict,
    ConfigError,
    FilesLeftOut,
    HorizonExhausted,
    SchemaError,
    SinkError,
    SourceError,
    StateCorrupt,
    StateError,
    StateMismatch,
    StateRolledBack,
    TickNotOver,
)
from synthstream.kernel.gate import Gate, SystemGate
from synthstream.measured import NOT_PRIVATE
from tests.support.environments import At
from tests.support.gates import ExactGate
from tests.support.visits import TOML, exact, finish, seeded, total, visits

NEW_YORK = ZoneInfo("America/New_York")
Open = Callable[..., Stream]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stream.toml").write_text(TOML)
    return tmp_path


@pytest.fixture
def config(folder: Path) -> StreamConfig:
    return StreamConfig.from_toml(TOML, base=folder)


def test_files_become_releases(folder: Path, config: StreamConfig) -> None:
    visits([1, 1, 2, 5] * 100).write_parquet(folder / "visits-1.parquet")  # more than noise hides
    with Stream(config, gates=exact) as stream:
        releases = list(stream.run())
    assert [round(total(r)) for r in releases] == [200, 300, 300, 300, 400]
    assert sorted(p.name for p in (folder / "releases").iterdir()) == [f"{t:06d}" for t in range(5)]
    rows = pl.read_parquet(folder / "releases" / "000004" / "rows.parquet")
    assert rows.columns == ["ward", "age"]
    assert rows["ward"].to_list() == ["A"] * 400
    assert rows["age"].is_between(25, 50).all()
    manifest = json.loads((folder / "releases" / "000004" / "manifest.json").read_text())
    assert manifest["claim"]["epsilon"] == 1.0
    assert manifest["end"].startswith("2026-01-06")
    assert 0 <= manifest["changed_rows"] <= 1
    assert set(manifest["files"]) == {"rows.parquet", "tables.parquet", "measured.parquet", "series.parquet"}


def test_tables_hold_measured_count_and_stderr(folder: Path, config: StreamConfig) -> None:
    visits([1, 1, 2] * 100).write_parquet(folder / "visits-1.parquet")
    with Stream(config, gates=exact) as stream:
        release = list(stream.run())[-1]
        table = stream.table(["age", "ward"])
    assert table.columns == ["age", "ward", "count", "share", "measured", "stderr", "since", "measured_at"]
    assert len(table) == 5 * 5  # four bins and missing, three wards and other and missing
    found = table.filter(pl.col("measured") > 1).row(0, named=True)
    assert found["ward"] == "A"
    assert found["count"] == 300
    assert found["stderr"] == pytest.approx(np.sqrt(release.measured.variance[-1]))
    published = pl.read_parquet(folder / "releases" / "000004" / "tables.parquet")
    names = ["column_1", "value_1", "column_2", "value_2", "count", "measured", "stderr", "since", "measured_at"]
    names += ["start", "end"]
    assert published.columns == names
    assert len(published) == 1 + 5 + 5 + 25
    assert published.row(0)[:4] == (None,) * 4
    with pytest.raises(SchemaError, match="named once"):
        release.table(["ward", "ward"])
    with pytest.raises(SchemaError, match="wrad"):
        release.table(["wrad"])


def test_it_resumes_where_it_stopped_and_changes_nothing_published(folder: Path, config: StreamConfig) -> None:
    visits([1, 1, 2, 5]).write_parquet(folder / "visits-1.parquet")
    with Stream(config) as stream:
        run = stream.run()
        next(run), next(run)
    before = {p: p.read_bytes() for p in (folder / "releases").rglob("*.*")}
    with Stream(config) as stream:
        assert stream.closed == 2
        assert len(list(stream.run())) == 3
    assert len(list((folder / "releases").iterdir())) == 5
    assert all(p.read_bytes() == content for p, content in before.items())
    with Stream(config) as stream:
        assert list(stream.run()) == []


@pytest.mark.parametrize("gate", [exact, seeded])
def test_stopping_anywhere_changes_no_release(folder: Path, gate: Callable[[int], Gate]) -> None:
    """The same stream in one go, and reopened before every tick: the same bytes."""
    visits([1, 1, 2, 3, 3, 3, 5]).write_parquet(folder / "visits-1.parquet")
    results = []
    for name, pieces in (("whole", 1), ("pieces", 5)):
        config = StreamConfig.from_toml(
            TOML.replace('"state"', f'"{name}-state"').replace('"releases"', f'"{name}"'), base=folder
        )
        for _ in range(pieces):
            with Stream(config, gates=gate) as stream:
                for done, _release in enumerate(stream.run(), 1):
                    if pieces > 1 and done == 1:
                        break
        paths = sorted((folder / name).rglob("*.*"))
        results.append({str(p.relative_to(folder / name)): p.read_bytes() for p in paths})
    assert len(results[0]) == 25
    assert results[0] == results[1]


def test_a_committed_release_is_published_after_a_crash_without_a_second_draw(
    folder: Path, config: StreamConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = []

    def counted(tick: int) -> Gate:
        draws.append(tick)
        return SystemGate()

    stream = Stream(config, gates=counted)
    with monkeypatch.context() as broken:
        broken.setattr(stream._sink, "publish", lambda release, **more: (_ for _ in ()).throw(SinkError("disk full")))
        with pytest.raises(SinkError):
            stream.release()
    stream.close()
    draws.clear()
    with Stream(config, gates=counted) as stream:
        assert stream.closed == 1
        assert stream.last is not None
        assert stream.last.tick == 0
    assert draws == [0]  # asked once whether the gate is secure, never for noise of tick 0
    assert (folder / "releases" / "000000").is_dir()


def test_a_sink_that_failed_is_caught_up_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for name in ("smooth", "rough"):
        text = TOML.replace('"state"', f'"{name}-state"').replace('"releases"', f'"{name}"')
        with Stream(StreamConfig.from_toml(text, base=folder), gates=seeded) as stream:
            stream.update(visits([1, 1, 2, 3, 4]))
            stream.release()
            if name == "rough":
                with monkeypatch.context() as broken:
                    broken.setattr(
                        stream._sink, "publish", lambda release, **more: (_ for _ in ()).throw(SinkError("full"))
                    )
                    for _ in range(2):
                        with pytest.raises(SinkError):
                            stream.release()
                assert stream.closed == 2
            finish(stream)
        results.append({p.parent.name + p.name: p.read_bytes() for p in (folder / name).rglob("*.*")})
    assert len(results[0]) == 25
    assert results[0] == results[1]


def test_a_crash_before_the_commit_loses_nothing(config: StreamConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with Stream(config, gates=exact) as stream:
        stream.update(visits([1, 1]))
        with monkeypatch.context() as broken:
            broken.setattr(stream._store, "put_counter", lambda state: (_ for _ in ()).throw(OSError(28, "no space")))
            with pytest.raises(StateError, match="No space left"):
                stream.release()
        assert stream.closed == 0
        assert round(total(stream.release())) == 2


def test_late_rows_count_in_the_open_tick_and_early_ones_wait(config: StreamConfig) -> None:
    with Stream(config, gates=exact) as stream:
        stream.update(visits([3]))
        stream.release()
        stream.update(visits([1]))
        assert round(total(stream.release())) == 1
        assert round(total(stream.release())) == 2


def test_rows_before_the_start_after_the_end_and_without_a_time(config: StreamConfig) -> None:
    odd = pl.DataFrame(
        {
            "when": [datetime(1999, 1, 1), datetime(2999, 1, 1), None],
            "ward": ["A"] * 3,
            "age": [1.0] * 3,
        }
    )
    with Stream(config, gates=exact) as stream:
        stream.update(odd)
        assert round(total(stream.release())) == 2
        assert round(total(finish(stream))) == 2


def test_bad_rows_have_their_place(config: StreamConfig) -> None:
    when = [datetime(2026, 1, 1)] * 6
    odd = pl.DataFrame(
        {
            "when": when,
            "ward": ["A", "Z", None, "A", "A", "A"],
            "age": [float("nan"), float("inf"), -5.0, 1e300, None, 50.0],
        }
    )
    with Stream(config, gates=exact) as stream:
        stream.update(odd)
        table = stream.release().table(["ward"])
        ages = stream.table(["age"])
    assert dict(zip(table["ward"], table["measured"].round(), strict=True)) == {
        "A": 4, "B": 0, "C": 0, "other": 1, "missing": 1,
    }  # fmt: skip
    assert ages["measured"].round().to_list() == [1, 0, 1, 2, 2]


def test_a_stream_that_runs_is_not_begun_elsewhere(folder: Path, config: StreamConfig) -> None:
    elsewhere = replace(config, state=folder / "misspelt")
    with pytest.raises(StateError, match=rf"There is no stream in {elsewhere.state}. With begin=False none is begun"):
        Stream(elsewhere, begin=False)
    with pytest.raises(StateError, match="no stream in"):
        synthstream.open(folder / "stream.toml", begin=False)
    assert sorted(path.name for path in folder.iterdir()) == ["stream.toml"]
    with synthstream.open(folder / "stream.toml", begin=True):
        pass
    with synthstream.open(folder / "stream.toml", begin=False) as stream:
        assert stream.closed == 0


def test_the_same_batch_counts_once(config: StreamConfig) -> None:
    with Stream(config, gates=exact) as stream:
        stream.update(visits([1]), batch_id="a")
        stream.update(visits([1]), batch_id="a")
        stream.update(visits([1]), batch_id="b")
        both = pl.concat([visits([1]), visits([1], ward="B")])
        stream.update(both, batch_id="both")
        for rows, name in ((visits([1], ward="B"), "a"), (both.reverse(), "both")):
            with pytest.raises(BatchConflict, match=f"'{name}'.* in another order.* Give no new id to rows"):
                stream.update(rows, batch_id=name)
        assert round(total(stream.release())) == 4


def test_an_id_is_text_and_nothing_else_is_stored_or_repeated(config: StreamConfig) -> None:
    with Stream(replace(config, op="op"), gates=exact) as stream:
        for given in (
            partial(stream.update, visits([1]), batch_id={"name": "Mustermann"}),  # type: ignore[arg-type]
            partial(stream.add, synthstream.Counting(stream.config).nothing, batch_id=7),  # type: ignore[arg-type]
            partial(stream.corrections.forget, "a.csv", request=visits([1])),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError, match=r"must be text, not (dict|int|DataFrame)$"):
                given()
        assert stream.batches() == []


def test_other_frames_are_welcome(config: StreamConfig) -> None:
    frame = visits([1])
    with Stream(config, gates=exact) as stream:
        stream.update(frame.to_pandas())
        stream.update(frame.to_arrow())
        for other, says in (
            (frame.lazy(), "LazyFrame. Say .collect() first"),
            (frame["ward"], "Series, which is one column. Give the frame"),
            (frame["ward"].to_pandas(), "Series, which is one column"),
            (frame["ward"].to_arrow(), "which is one column"),
            (frame.to_dict(), "dict. Wrap it in pl.DataFrame(...)"),
            (frame.to_dicts(), "list. Wrap it"),
            ([frame, frame.to_pandas()], "list of frames. Say the same of each, or join them first, as with pl.concat"),
            (frame.to_pandas().set_index("ward"), "column 'ward' is in the frame's index: say .reset_index() first"),
            ((part for part in [frame]), "generator. Say the same of each frame of it"),
        ):
            with pytest.raises(SchemaError, match=re.escape(says)):
                stream.update(other)
        assert round(total(stream.release())) == 2


def test_a_path_can_be_pushed(folder: Path, config: StreamConfig) -> None:
    visits([1, 1]).write_csv(folder / "more.csv")
    with Stream(config, gates=exact) as stream:
        stream.update(folder / "more.csv", batch_id="more")
        assert round(total(stream.release())) == 2


def test_rows_as_text_are_no_path_and_are_not_repeated(folder: Path, config: StreamConfig) -> None:
    lines, name = "Mustermann,A\nnext,B\n", "Mustermann,1980"
    with Stream(replace(config, op="op"), gates=exact) as stream:
        corrections = stream.corrections
        for text in (lines, name, '{"name": "Mustermann"}', "Mustermann" * 50 + ".csv", "\0Mustermann.csv"):
            refused: list[Callable[[str], object]] = [
                stream.update,
                partial(corrections.forget, request="r"),
                corrections.accept,
            ]
            for given in refused[: 2 if text == name else 3]:
                with pytest.raises(SourceError, match="text") as told:
                    given(text)
                assert "Mustermann" not in str(told.value)
        with pytest.raises(TypeError, match="must be text, not NoneType"):
            corrections.forget(visits([1]), request=None)  # type: ignore[arg-type]
        with pytest.raises(SourceError, match=r"gone.csv: there is no such file"):
            stream.update(folder / "gone.csv")
        for several in (folder, str(folder / "visits*.parquet")):
            with pytest.raises(SourceError, match=r"one file at a time; patterns stand in \[source\]"):
                stream.update(several)
        for other in (lines, lines.encode()):
            with pytest.raises(SchemaError, match=r"every column as text: .* infer_schema=False\)$") as found:
                synthstream.Counting(config).count(other)
            assert "Mustermann" not in str(found.value)


def test_new_files_are_picked_up_and_changed_ones_left_out(folder: Path, config: StreamConfig) -> None:
    visits([1]).write_parquet(folder / "visits-1.parquet")
    with Stream(config, gates=exact) as stream:
        list(stream.run())
        visits([5]).write_parquet(folder / "visits-2.parquet")
        stream.ingest()
        assert round(total(stream.release(until=datetime(2026, 1, 7, tzinfo=UTC)))) == 2
        visits([1, 1]).write_parquet(folder / "visits-1.parquet")
        assert stream.ingest() == 0
        assert "not what it was" in stream.findings[folder / "visits-1.parquet"]
        with pytest.raises(FilesLeftOut, match="not what it was"):
            list(stream.run())
        assert (stream.closed, stream.due()) == (6, 0)


@pytest.mark.parametrize(
    ("take", "given", "says"),
    [
        (synthstream.open, {}, "the path of a stream.toml, or a StreamConfig, is asked for, not dict"),
        (Stream, "no.toml", "no.toml: No such file or directory"),
        (synthstream.Counting, "no.toml", "no.toml: No such file or directory"),
        (StreamConfig.from_toml, Path("stream.toml"), "Path. Of a file: from_toml(path.read_text(), base="),
    ],
)
def test_what_is_no_configuration(take: Callable[..., object], given: object, says: str) -> None:
    with pytest.raises((TypeError, ConfigError), match=re.escape(says)):
        take(given)


@pytest.mark.parametrize("text", ["when,ward\n2026-01-01,secret\n", "secret," * 60, "secret\0", '{"ward": "secret"}'])
@pytest.mark.parametrize("take", [synthstream.open, Stream, synthstream.Counting, synthstream.plan, synthstream.check])
def test_text_in_place_of_a_path_is_not_repeated(take: Callable[[str], object], text: str) -> None:
    """It may be rows."""
    with pytest.raises(ConfigError, match="this is text") as refusal:
        take(text)
    assert "secret" not in str(refusal.value)


def test_a_missing_column_is_named_and_nothing_is_counted(folder: Path, config: StreamConfig) -> None:
    with Stream(config, gates=exact) as stream:
        with pytest.raises(SchemaError, match="ward"):
            stream.update(visits([1]).drop("ward"), batch_id="a")
        stream.update(visits([1]), batch_id="a")
        assert round(total(stream.release())) == 1


def test_a_clock_of_numbers_is_refused_by_its_type_and_nothing_is_counted(config: StreamConfig) -> None:
    seconds, floats = pl.col("when").dt.epoch("s"), pl.lit(None, dtype=pl.Float64)
    with Stream(config, gates=exact) as stream:
        for whole in (seconds, seconds > 0, seconds.cast(pl.Duration("us"))):
            numbers = visits([1, 2]).with_columns(when=whole)
            for frame in (numbers, numbers.to_arrow(), numbers.to_pandas(), numbers.head(0)):
                with pytest.raises(SchemaError, match="'when' is to hold times, and its type is"):
                    stream.update(frame, batch_id="a")
        stream.update(visits([1]), batch_id="a")
        # Where a reader guesses types, one that holds nothing is of floats; objects are told one by one.
        stream.update(visits([1]).with_columns(when=floats), batch_id="b")
        stream.update(visits([1]).to_pandas().astype({"when": object}), batch_id="c")
        assert round(total(stream.release())) == 3


@pytest.mark.parametrize("column", [True, False])
def test_after_the_horizon_rows_wait_for_a_successor_or_are_refused_where_there_can_be_none(
    config: StreamConfig, column: bool
) -> None:
    """Whether they are is told by the clock and by ids alone; a batch that comes again is known for good."""
    clock = replace(config.clock, horizon=1, until=None, column=config.clock.column if column else None)
    config = replace(config, clock=clock)
    rows, counts = visits([1] * 9), synthstream.Counting(config).count(visits([1] * 9))
    with Stream(config, gates=exact) as stream:
        stream.update(rows, batch_id="one")
        stream.release()
        stream.update(rows, batch_id="one")
        for take in (partial(stream.update, rows), partial(stream.update, rows, batch_id="two")):
            refused(take, unless=column)
        refused(partial(stream.add, counts, batch_id="three"), unless=column)
        assert stream.batches() == (["one", "three", "two"] if column else ["one"])
        with pytest.raises(BatchConflict):
            stream.update(visits([1] * 8), batch_id="one")


def refused(take: Callable[[], None], *, unless: bool) -> None:
    if unless:
        take()
    else:
        with pytest.raises(HorizonExhausted, match=r"All 1 ticks .* would count in no release. Nothing was counted"):
            take()


def test_the_clock_closes_ticks_and_nothing_else(config: StreamConfig) -> None:
    with Stream(config, gates=exact, env=At(datetime(2030, 1, 1, tzinfo=UTC))) as stream:
        finish(stream)
        with pytest.raises(TickNotOver, match=r"Tick 5 ends 2026-01-07.* after until = 2026-01-06; wait"):
            stream.release()
        assert stream.due(until=datetime(2026, 1, 9, 23, tzinfo=UTC)) == 3
        for _ in range(3):
            stream.release(until=datetime(2027, 1, 1, tzinfo=UTC))
        assert stream.closed == 8
        with pytest.raises(HorizonExhausted):
            stream.release()
        assert stream.due(until=datetime(2028, 1, 1, tzinfo=UTC)) == 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("epsilon = 1.0", "epsilon = 2.0", "epsilon"),
        ('"1d"', '"1w"', "every"),
        ('"C"]', '"C", "D"]', "ward"),
        ("horizon = 8", "horizon = 9", "horizon"),
    ],
)
def test_an_edited_config_is_refused(folder: Path, config: StreamConfig, old: str, new: str, says: str) -> None:
    Stream(config).close()
    edited = StreamConfig.from_toml(TOML.replace(old, new), base=folder)
    with pytest.raises(StateMismatch, match=says):
        Stream(edited)


def test_a_state_from_which_nothing_was_released_may_be_deleted(folder: Path, config: StreamConfig) -> None:
    Stream(config).close()
    other = StreamConfig.from_toml(TOML.replace('column = "when"', 'column = "time"'), base=folder)
    with pytest.raises(StateMismatch, match="Nothing has been released from it: delete"):
        Stream(other)


def test_until_may_move(folder: Path, config: StreamConfig) -> None:
    Stream(config).close()
    Stream(StreamConfig.from_toml(TOML.replace("until = 2026-01-06", ""), base=folder)).close()


def test_an_old_copy_of_the_state_draws_nothing(folder: Path, config: StreamConfig) -> None:
    with Stream(config) as stream:
        stream.release()
    shutil.copytree(folder / "state", folder / "backup")
    with Stream(config) as stream:
        stream.release()
    shutil.rmtree(folder / "state")
    shutil.copytree(folder / "backup", folder / "state")
    (folder / "state").chmod(0o700)
    with pytest.raises(StateRolledBack, match="old copy"):
        Stream(config)


def test_a_lost_or_foreign_place_of_publication_is_refused(folder: Path, config: StreamConfig) -> None:
    with Stream(config) as stream:
        stream.release()
    (folder / "releases").rename(folder / "away")
    with pytest.raises(StateRolledBack, match="empty"):
        Stream(config)
    other = StreamConfig.from_toml(TOML.replace('"state"', '"other"').replace('"releases"', '"away"'), base=folder)
    with pytest.raises(StateRolledBack, match="There is no state"):
        Stream(other)
    assert not (folder / "other").exists()
    with pytest.raises(StateRolledBack, match=r"holds releases of another stream, .*, up to tick 0") as error:
        Stream(replace(other, name="another"))
    assert "recover" not in str(error.value)


def test_missing_newest_releases_are_noticed(folder: Path, config: StreamConfig) -> None:
    with Stream(config) as stream:
        stream.release()
        stream.release()
    shutil.rmtree(folder / "releases" / "000001")
    with pytest.raises(StateRolledBack, match="Restore the missing"):
        Stream(config)


def test_two_streams_never_publish_to_one_place(folder: Path, config: StreamConfig) -> None:
    other = StreamConfig.from_toml(TOML.replace('"state"', '"other"'), base=folder)
    Stream(other).close()
    with Stream(config) as stream:
        stream.release()
    with pytest.raises(StateRolledBack, match="did not make"):
        Stream(other)


def test_no_tick_is_closed_before_it_is_over(config: StreamConfig) -> None:
    with Stream(config, gates=exact, env=At(datetime(2026, 1, 3, 12, tzinfo=UTC))) as stream:
        assert stream.due() == 2  # the configured until, 2026-01-06, has not come yet
        with pytest.raises(TickNotOver, match="lies in the future"):
            stream.due(until=datetime(2026, 1, 4, tzinfo=UTC))


def test_a_file_without_rows_is_a_quiet_week(folder: Path) -> None:
    text = TOML.replace('kind = "parquet"\npath = "visits*.parquet"', 'kind = "csv"\npath = "*.csv"')
    (folder / "quiet.csv").write_text("when,ward,age\n")
    with Stream(StreamConfig.from_toml(text, base=folder), gates=exact) as stream:
        assert round(total(list(stream.run())[-1])) == 0
        stream.update(visits([]))


def test_a_damaged_release_is_noticed_when_it_is_read(folder: Path, config: StreamConfig) -> None:
    with Stream(config) as stream:
        stream.release()
    found = Releases(config)
    found.last.rows()
    (folder / "releases" / "000000" / "rows.parquet").write_bytes(b"else")
    with pytest.raises(SinkError, match="not what was published"):
        found.last.rows()


def test_a_sink_that_is_taken_out_is_to_be_put_back(folder: Path, config: StreamConfig) -> None:
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    with pytest.raises(StateRolledBack, match=r"no \[sink\] in the configuration. If there was one, put it back"):
        Stream(replace(config, sink=None), gates=exact)


def test_without_a_sink_an_anchor_notices_an_old_copy(folder: Path) -> None:
    bare = StreamConfig.from_toml(TOML.split("[source]")[0], base=folder)
    with Stream(bare) as stream:
        stream.release()
    shutil.copytree(folder / "state", folder / "backup")
    with Stream(bare) as stream:
        stream.release()
    shutil.rmtree(folder / "state")
    shutil.copytree(folder / "backup", folder / "state")
    (folder / "state").chmod(0o700)
    with pytest.raises(StateRolledBack):
        Stream(bare)


def test_simulated_noise_is_stamped_and_kept_apart(folder: Path) -> None:
    visits([1]).write_parquet(folder / "visits-1.parquet")
    for _ in range(2):
        with synthstream.open(folder / "stream.toml", simulate=7) as stream:
            list(stream.run())
    assert not (folder / "state").exists()
    first = folder / "releases-simulated" / "000000"
    assert json.loads((first / "manifest.json").read_text())["warning"] == NOT_PRIVATE
    assert first.stat().st_mode & 0o077 == 0, "who knows the seed takes the noise away"
    for name in ("rows", "tables"):
        metadata = pl.read_parquet_metadata(first / f"{name}.parquet")
        assert metadata["synthstream"] == NOT_PRIVATE
    again = folder / "again"
    shutil.copytree(folder / "releases-simulated", again)
    shutil.rmtree(folder / "state-simulated")
    with pytest.raises(StateRolledBack, match=r"Delete .*releases-simulated, too, and simulate again\.$"):
        synthstream.open(folder / "stream.toml", simulate=7)
    shutil.rmtree(folder / "releases-simulated")
    with synthstream.open(folder / "stream.toml", simulate=7) as stream:
        list(stream.run())
    alone = replace(StreamConfig.from_toml(TOML.replace('"state"', '"alone"'), base=folder), sink=None)
    with Stream(alone, simulate=7) as stream:
        stream.release()
    shutil.rmtree(folder / "alone-simulated")
    with pytest.raises(StateRolledBack, match=r"Delete .*alone-simulated\.anchor\.json, too, and simulate again\.$"):
        Stream(alone, simulate=7)
    for path in again.rglob("*.*"):
        assert path.read_bytes() == (folder / "releases-simulated" / path.relative_to(again)).read_bytes()


def test_a_configuration_is_tried_as_its_file_is(folder: Path, config: StreamConfig) -> None:
    text = '[[mirror]]\nkind = "delta"\npath = "copy"\n'
    visits([1]).write_parquet(folder / "visits-1.parquet")
    with Stream(StreamConfig.from_toml(TOML + text, base=folder), simulate=7) as stream:
        (release, *_) = stream.run()
        assert (stream.config.state.name, stream.config.mirrors) == ("state-simulated", ())
    assert not (folder / "state").exists()
    assert not release.secure
    assert (folder / "releases-simulated" / "000000").stat().st_mode & 0o077 == 0
    with synthstream.open(folder / "stream.toml", simulate=7) as stream:
        assert stream.status()["head"] == synthstream.releases(config, simulate=True).last.head


def test_simulated_and_real_runs_never_share_a_state(config: StreamConfig) -> None:
    Stream(config, gates=seeded).close()
    with pytest.raises(StateMismatch, match="simulated"):
        Stream(config)


def test_a_simulation_goes_on_with_its_own_seed_and_settings(folder: Path) -> None:
    visits([1, 2, 3]).write_parquet(folder / "visits-1.parquet")
    with synthstream.open(folder / "stream.toml", simulate=1) as stream:
        assert len(list(stream.run())) == 5
    with pytest.raises(StateMismatch, match="another seed"):
        synthstream.open(folder / "stream.toml", simulate=2)
    (folder / "stream.toml").write_text(TOML.replace("bins = 4", "bins = 5"))
    with pytest.raises(StateMismatch, match="simulate again"):
        synthstream.open(folder / "stream.toml", simulate=1)


def test_a_real_release_carries_no_stamp(folder: Path, config: StreamConfig) -> None:
    with Stream(config) as stream:
        stream.release()
    assert "warning" not in json.loads((folder / "releases" / "000000" / "manifest.json").read_text())


def test_the_chain_links_every_release(folder: Path, config: StreamConfig) -> None:
    with Stream(config) as stream:
        finish(stream)
    manifests = [json.loads(p.read_text()) for p in sorted((folder / "releases").rglob("manifest.json"))]
    for before, after in pairwise(manifests):
        assert after["chain"]["previous"] == before["chain"]["head"]
    assert len({m["chain"]["head"] for m in manifests}) == 5


def test_drawing_rows(config: StreamConfig) -> None:
    with Stream(config, gates=exact) as stream:
        stream.update(visits([1] * 10))
        release = stream.release()
    assert release.rows().equals(release.rows())
    assert len(release.rows(3)) == 3
    assert len(release.rows(25)) == 25
    first = release.rows(5, seed=np.random.default_rng(1))
    assert first.equals(release.rows(5, seed=np.random.default_rng(1)))
    assert first.equals(release.rows(5, seed=1))
    with pytest.raises(ValueError, match="n must be"):
        release.rows(-1)


def test_keep_drops_old_rows_and_nothing_else(folder: Path) -> None:
    config = StreamConfig.from_toml(TOML + "keep = 2\n", base=folder)
    with Stream(config) as stream:
        finish(stream)
    kept = [(folder / "releases" / f"{t:06d}" / "rows.parquet").exists() for t in range(5)]
    assert kept == [False, False, False, True, True]
    assert len(list((folder / "releases").rglob("tables.parquet"))) == 5


def test_a_fixed_number_of_rows(folder: Path) -> None:
    config = StreamConfig.from_toml(TOML + "rows = 7\n", base=folder)
    with Stream(config, gates=exact) as stream:
        stream.update(visits([1] * 3))
        stream.release()
    assert len(pl.read_parquet(folder / "releases" / "000000" / "rows.parquet")) == 7


def test_a_push_stream_needs_no_time_column(folder: Path) -> None:
    bare = TOML.split("[source]")[0].replace('column = "when"\n', "")
    with Stream(StreamConfig.from_toml(bare, base=folder), gates=exact) as stream:
        stream.update(visits([1, 5]).drop("when"))
        assert round(total(stream.release())) == 2


def test_the_claim_in_the_ledger_is_charged_once(folder: Path, config: StreamConfig) -> None:
    for _ in range(3):
        with Stream(config) as stream:
            status = stream.status()
    assert len(status["spent"]) == 1
    assert status["spent"][0]["epsilon"] == 1.0


def test_a_budget_too_small_for_the_noise_to_be_drawn_is_refused_before_anything_is_made(folder: Path) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        Stream(StreamConfig.from_toml(TOML.replace("epsilon = 1.0", "epsilon = 1e-12"), base=folder))
    assert not (folder / "state").exists()


def test_a_name_that_tables_of_counts_need_is_refused_where_a_stream_begins(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StreamConfig.from_toml(TOML.replace('name = "ward"', 'name = "count"\nfrom = "ward"'), base=folder)
    with pytest.raises(ConfigError, match=r"name = 'count' .* name = \"my_count\", from = \"count\""):
        Stream(config)
    assert not (folder / "state").exists()
    monkeypatch.setattr("synthstream.stream.opening.clash", lambda _: "")
    Stream(config, gates=exact).close()
    monkeypatch.undo()
    Stream(config, gates=exact).close()  # one that began before goes on


def test_what_a_release_cannot_tell_of_a_closed_stream_is_told_by_those_that_were_published(folder: Path) -> None:
    config = StreamConfig.from_toml(TOML, base=folder)
    visits([1, 2]).write_parquet(folder / "visits-1.parquet")
    with Stream(config, gates=exact) as stream:
        first, *_, last = stream.run()
    with pytest.raises(StateError, match=r"synthstream.releases\("):
        last.compare(first, "ward")
    assert Releases(config).last.compare(Releases(config).at(0), "ward")["z"].null_count() == 0


@pytest.mark.sparing(6)
@pytest.mark.parametrize("rows", [0, 1, 9, 10, 11, 20])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_number_of_rows_in_a_file_shows_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rows: int, kind: str
) -> None:
    """Chunks may end where the file ends."""
    monkeypatch.setattr("synthstream.ingest.files.CHUNK_ROWS", 10)
    frame = visits([1] * rows)
    frame = frame.cast({"ward": pl.String, "age": pl.Float64, "when": pl.Datetime("us")})
    frame.write_csv(folder / "v.csv") if kind == "csv" else frame.write_parquet(folder / "v.parquet")
    config = StreamConfig.from_toml(
        TOML.replace('kind = "parquet"\npath = "visits*.parquet"', f'kind = "{kind}"\npath = "v.*"'), base=folder
    )
    with Stream(config, gates=exact) as stream:
        assert round(total(list(stream.run())[-1])) == rows


def test_a_file_counts_once_for_its_name_whatever_links_lead_to_it(folder: Path, config: StreamConfig) -> None:
    visits([1]).write_parquet(folder / "visits-1.parquet")
    with Stream(config, gates=exact) as stream:
        assert stream.ingest() == 1
        (folder / "visits-3.parquet").symlink_to(folder / "visits-1.parquet")
        assert stream.ingest() == 0
        assert round(total(stream.release())) == 1


def test_no_row_of_one_file_decides_whether_another_counts(folder: Path) -> None:
    """Two files that are equal, and the same with one row more in the second: totals differ by that row."""
    totals = []
    for name, more in (("equal", []), ("more", [1])):
        place = folder / name
        place.mkdir()
        visits([1, 2, 3]).write_parquet(place / "visits-1.parquet")
        visits([1, 2, 3, *more]).write_parquet(place / "visits-2.parquet")
        with Stream(StreamConfig.from_toml(TOML, base=place), gates=exact) as stream:
            stream.ingest()
            totals.append(sum(int(n[:1].sum()) for n in (stream._store.pending(t).numbers for t in range(4))))
    assert totals[1] - totals[0] == 1


def test_the_gate_cannot_change_its_kind_between_ticks(config: StreamConfig) -> None:
    with Stream(config, gates=lambda tick: SystemGate() if tick == 0 else ExactGate()) as stream:
        stream.release()
        with pytest.raises(StateError, match="stays real"):
            stream.release()
        assert stream.closed == 1


def test_a_state_goes_on_only_with_its_own_numbers(config: StreamConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    Stream(config).close()
    monkeypatch.setattr("synthstream.privacy.rho_for", lambda epsilon, *, delta: 0.02)
    with pytest.raises(StateMismatch, match="other coefficients"):
        Stream(config)


def test_counters_of_another_tick_draw_nothing(config: StreamConfig) -> None:
    with Stream(config, gates=exact) as stream:
        stream.release()
        with stream._store.transaction("test"):
            stream._store.put_counter(stream.mechanism.init())
    with Stream(config, gates=exact) as stream, pytest.raises(StateCorrupt, match="or holds that of another tick"):
        stream.release()


def test_a_fixed_number_of_rows_from_none(folder: Path) -> None:
    config = StreamConfig.from_toml(TOML + "rows = 7\n", base=folder)
    with Stream(config, gates=exact) as stream:
        assert len(stream.release().rows(7)) == 0
    assert len(Releases(config).last.rows(3)) == 0


def test_a_failed_commit_can_be_tried_again(config: StreamConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit may fail, or succeed and be interrupted: afterwards the stream stands where the disk says."""
    with Stream(config, gates=exact) as stream:
        stream.update(visits([1, 1]))
        honest = stream._store.drop_pending
        with monkeypatch.context() as broken:
            broken.setattr(stream._store, "drop_pending", lambda tick: (honest(tick), 1 / 0))
            with pytest.raises(ZeroDivisionError):
                stream.release()
        assert stream.closed == 0
        assert round(total(stream.release())) == 2
        assert stream.closed == 1


def test_until_is_a_moment_and_without_a_zone_it_is_on_the_clocks_wall(folder: Path) -> None:
    zoned = StreamConfig.from_toml(TOML.replace("[clock]", '[clock]\ntimezone = "America/New_York"'), base=folder)
    with Stream(zoned, env=At(datetime(2030, 1, 1, tzinfo=UTC))) as stream:
        with pytest.raises(TypeError, match=r"a moment must be a date, .*, not int"):
            stream.release(until=20260102)  # type: ignore[arg-type]
        found = [stream.due(until=datetime(2026, 1, 3, 2, tzinfo=zone)) for zone in (None, NEW_YORK, UTC)]
        assert found == [2, 2, 1]
        assert [stream.due(until=end) for end in (date(2026, 1, 3), "2026-01-03", "2026-01-03T02:00Z")] == [2, 2, 1]
        with pytest.raises(TickNotOver, match="none that ends after until = 2026-01-01; wait, and say a later until"):
            stream.release(until="2026-01-01")
        assert [release.tick for release in stream.follow(until="2026-01-03")] == [0, 1]


def test_a_closed_stream_says_so(folder: Path, config: StreamConfig) -> None:
    with Stream(config) as stream:
        pass
    stream.close()
    for use in (stream.release, stream.ingest, stream.status):
        with pytest.raises(StateError, match="was closed"):
            use()
    with Stream(config) as again:
        assert again.closed == 0
