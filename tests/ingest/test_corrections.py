"""When a file, or a row, was wrong: accepted as it is, retired, taken away. What was counted stays counted."""

from __future__ import annotations

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.errors import BatchConflict, ConfigError, FilesLeftOut, HorizonExhausted, SchemaError, SourceError
from synthstream.ingest.counting import PrivateRows
from synthstream.ingest.intake import Intake
from synthstream.kernel.gate import Gate
from synthstream.stream.recovery import adopt
from tests.support.aligned import Aligned, files
from tests.support.command import synthstream
from tests.support.environments import At
from tests.support.visits import TOML, exact, finish, total, visits

OP = TOML.replace("[privacy]", 'op = "op"\n[privacy]')


@pytest.fixture
def config(tmp_path: Path) -> StreamConfig:
    (tmp_path / "stream.toml").write_text(TOML)
    visits([1, 1, 2]).write_parquet(tmp_path / "visits-1.parquet")
    return StreamConfig.from_toml(TOML, base=tmp_path)


def opened(config: StreamConfig, day: int = 3) -> Stream:
    return Stream(config, gates=exact, env=At(datetime(2026, 1, day, tzinfo=UTC)))


def test_a_counted_file_is_accepted_as_it_is_and_counts_no_more(config: StreamConfig) -> None:
    path = config.base / "visits-1.parquet"
    with opened(config) as stream:
        list(stream.run())
        visits([1, 2, 2, 2]).write_parquet(path)
        with pytest.raises(FilesLeftOut, match="source accept"):
            list(stream.run())
        assert stream.corrections.listed() == [("visits-1.parquet", "changed")]
        assert stream.corrections.accept("visits-1.parquet") is True
        assert stream.corrections.accept(str(path)) is False
        assert stream.corrections.listed() == [("visits-1.parquet", "counted")]
    with opened(config, 6) as stream:
        assert stream.ingest() == 0
        assert stream.findings == {}
        assert round(total(finish(stream))) == 3


def test_a_file_that_was_moved_is_known_before_a_run_hears_of_it(config: StreamConfig) -> None:
    (config.base / "visits-0.parquet").symlink_to("visits-1.parquet")  # counts never
    with opened(config) as stream:
        list(stream.run())
        assert stream.corrections.listed() == [("visits-1.parquet", "counted")]
    (config.base / "visits-0.parquet").unlink()
    (config.base / "in").mkdir()
    shutil.move(config.base / "visits-1.parquet", config.base / "in")
    moved = TOML.replace('path = "visits', 'moved = "."\npath = "in/visits')
    with opened(StreamConfig.from_toml(moved, base=config.base)) as stream:
        assert stream.corrections.listed() == [("in/visits-1.parquet", "counted")]
        visits([1, 2]).write_parquet(config.base / "in" / "visits-1.parquet")
        assert stream.corrections.accept("in/visits-1.parquet") is True
        assert stream.ingest() == 0
        assert stream.findings == {}


@pytest.mark.parametrize("there", [True, False])
def test_a_retired_file_is_never_looked_at_again(config: StreamConfig, there: bool) -> None:
    path = config.base / "visits-1.parquet"
    with opened(config) as stream:
        list(stream.run())
        if there:
            visits([1]).write_parquet(path)
        else:
            path.unlink()
        visits([2]).write_parquet(config.base / "visits-2.parquet")
        assert stream.corrections.listed() == [
            ("visits-1.parquet", "changed" if there else "gone"),
            ("visits-2.parquet", "new"),
        ]
        assert stream.corrections.retire(str(path) if there else "visits-1.parquet") is True
        assert stream.corrections.retire("visits-1.parquet") is False
        with pytest.raises(SourceError, match="was retired" if there else "is not there"):
            stream.corrections.accept("visits-1.parquet")
    visits([1] * 9).write_parquet(path)  # one of this name comes again
    with opened(config, 6) as stream:
        assert stream.ingest() == 1
        assert stream.findings == {}
        assert round(total(finish(stream))) == 4
        assert dict(stream.corrections.listed())["visits-1.parquet"] == "retired"


def test_the_only_file_may_be_gone_once_it_was_counted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    config = StreamConfig.from_toml(TOML.replace("visits*.parquet", "in/visits.parquet"), base=tmp_path)
    with opened(config) as stream:
        with pytest.raises(SourceError, match="there is no such file"):
            stream.corrections.listed()
        visits([1]).write_parquet(tmp_path / "in/visits.parquet")
        list(stream.run())
        (tmp_path / "in/visits.parquet").unlink()
        assert stream.corrections.listed() == [("in/visits.parquet", "gone")]
        with pytest.raises(SourceError, match="say `synthstream source retire`"):
            stream.corrections.accept("in/visits.parquet")
        assert stream.corrections.retire("in/visits.parquet") is True
        assert stream.corrections.listed() == [("in/visits.parquet", "retired")]
        (tmp_path / "in").rmdir()
        with pytest.raises(SourceError, match="whether a disk or a server is away"):
            stream.corrections.listed()


def test_a_retired_file_that_is_gone_asks_no_question(tmp_path: Path) -> None:
    toml = TOML.replace('path = "visits*.parquet"', 'path = "in/visits*.parquet"')
    config = StreamConfig.from_toml(toml, base=tmp_path)
    (tmp_path / "in" / "2025").mkdir(parents=True)
    visits([1]).write_parquet(tmp_path / "in" / "visits-1.parquet")
    with opened(config) as stream:
        list(stream.run())
        stream.corrections.retire("in/visits-1.parquet")
    shutil.rmtree(tmp_path / "in")
    (tmp_path / "old").mkdir()
    visits([1]).write_parquet(tmp_path / "old" / "visits-1.parquet")
    with opened(StreamConfig.from_toml(toml.replace("in/", "old/"), base=tmp_path)) as stream:
        assert stream.ingest() == 1


def test_a_file_that_is_named_without_its_folder_is_proposed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    visits([1]).write_parquet(tmp_path / "in" / "visits-1.parquet")
    toml = TOML.replace('path = "visits*.parquet"', 'path = "in/visits*.parquet"')
    with opened(StreamConfig.from_toml(toml, base=tmp_path)) as stream:
        stream.ingest()
        visits([1]).write_parquet(tmp_path / "in" / "visits-2.parquet")
        with pytest.raises(SourceError, match=r"was counted\. Did you mean 'in/visits-1\.parquet'\?"):
            stream.corrections.accept("visits-1.parquet")
        with pytest.raises(SourceError, match=r"was counted\. `synthstream"):
            stream.corrections.accept("visits-2.parquet")


@pytest.mark.parametrize("what", ["accept", "retire"])
def test_what_was_never_counted_is_refused(config: StreamConfig, what: str) -> None:
    with opened(config) as stream, pytest.raises(SourceError, match="no file of this name was counted"):
        getattr(stream.corrections, what)("visits-1.parquet")


# -- forget ----------------------------------------------------------------------------------------------------------


def signed(folder: Path, *, horizon: int = 8) -> StreamConfig:
    folder.mkdir(exist_ok=True)
    text = OP.replace("horizon = 8", f"horizon = {horizon}")
    (folder / "stream.toml").write_text(text)
    visits([1, 1, 2]).with_columns(op=1).write_parquet(folder / "visits-1.parquet")
    return StreamConfig.from_toml(text, base=folder)


def test_rows_are_taken_away_once_at_the_open_tick(tmp_path: Path) -> None:
    config, request = signed(tmp_path, horizon=5), tmp_path / "request.csv"
    visits([1]).drop("when").write_csv(request)
    with opened(config) as stream:
        list(stream.run())
        assert round(total(finish(stream))) == 3
        stream.corrections.forget(request, request="R1")
        stream.corrections.forget(visits([1]).drop("when").to_pandas(), request="R1")  # the same rows, in a frame
    with opened(config, 4) as stream:
        assert round(total(finish(stream))) == 2
        with pytest.raises(BatchConflict, match="'R1' came before with other rows"):
            stream.corrections.forget(visits([1], ward="B"), request="R1")
        stream.corrections.forget(request, request="R1")
        visits([1], ward="B").write_csv(request)
        with pytest.raises(BatchConflict, match="'R1' came before with other rows"):
            stream.corrections.forget(request, request="R1")
        request.write_text("ward\nA\n")
        with pytest.raises(SchemaError, match="'age' is missing"):
            stream.corrections.forget(request, request="R2")
    visits([1]).write_csv(request)
    with opened(config, 6) as stream:
        assert round(total(finish(stream))) == 2
        with pytest.raises(HorizonExhausted, match="none is open"):
            stream.corrections.forget(request, request="R3")


@pytest.mark.parametrize(("day", "before", "after"), [(5, [2, 3, 3], 2), (1, [2, 2, 2], 2), (3, [2, 3, 2], 2)])
def test_a_request_that_comes_again_after_a_loss_counts_in_one_segment(
    tmp_path: Path, day: int, before: list[int], after: int
) -> None:
    """Its rows count as other rows do, in the later of their own tick and the open one (theorem segments)."""
    config, request, totals = signed(tmp_path), visits([day]), list[int]()
    with opened(config, 4) as stream:
        stream.ingest()
        totals.append(round(total(stream.release())))
        stream.corrections.forget(request, request="R1")
        totals += [round(total(release)) for release in stream.run()]
    assert totals == before
    shutil.rmtree(config.state)
    assert adopt(config, gates=exact, env=At(datetime(2026, 1, 4, tzinfo=UTC))).segment
    with opened(config, 9) as stream:
        stream.corrections.forget(request, request="R1")  # its id was lost
        stream.corrections.forget(request, request="R1")
        assert round(total(finish(stream))) == after


def test_a_request_without_times_counts_in_the_first_segment_alone(tmp_path: Path) -> None:
    config, request = signed(tmp_path), visits([6])
    request.drop("when").write_csv(tmp_path / "request.csv")
    with opened(config, 3) as stream:
        stream.ingest()
        stream.corrections.forget(tmp_path / "request.csv", request="R1")
        with pytest.raises(BatchConflict):
            stream.corrections.forget(request, request="R1")  # with times they are other rows
        assert round(total(finish(stream))) == 2
        with pytest.raises(SchemaError, match="Did you mean 'When'"):  # not taken for one without times
            stream.corrections.forget(request.rename({"when": "When"}), request="R2")
        with pytest.raises(SchemaError, match="reset_index"):
            stream.corrections.forget(request.to_pandas().set_index("when"), request="R2")
        with pytest.raises(SchemaError, match="rows must be a polars"):
            stream.corrections.forget([1], request="R2")
    shutil.rmtree(config.state)
    adopt(config, gates=exact, env=At(datetime(2026, 1, 3, tzinfo=UTC)))
    with opened(config, 9) as stream:
        for rows in (tmp_path / "request.csv", request.drop("when"), pl.DataFrame({"ward": ["A"]}).to_arrow()):
            with pytest.raises(SchemaError, match=r"'when' is missing.*give it none now"):
                stream.corrections.forget(rows, request="R1")
        assert round(total(finish(stream))) == 2


@pytest.mark.parametrize("unit", ['"event"', '{ person = "who", max_events = 2 }'])
def test_rows_that_are_taken_away_wait_for_their_own_tick(tmp_path: Path, unit: str) -> None:
    config = StreamConfig.from_toml(OP.replace('unit = "event"', f"unit = {unit}"), base=tmp_path)
    with opened(config) as stream:
        stream.corrections.forget(visits([1, 4, 4]).with_columns(who=pl.Series(["a", "b", "a"])), request="R1")
        cells = stream._synthesizer.cells
        assert [int(stream._intake.pending(tick).dense(cells)[0]) for tick in (0, 3)] == [-1, -2]


LIMITED = OP.replace('unit = "event"', 'unit = { person = "who", max_events = 3 }')


def test_of_a_person_no_more_is_taken_away_than_the_limit_leaves(tmp_path: Path) -> None:
    config = StreamConfig.from_toml(LIMITED, base=tmp_path)
    events = visits([1, 1, 2]).with_columns(who=pl.Series(["a", "a", "b"]))
    with opened(config) as stream:
        stream.update(events.with_columns(op=1))
        assert round(total(finish(stream))) == 3
        stream.corrections.forget(events, request="R1")
    with opened(config, 5) as stream:
        assert round(total(finish(stream))) == 1  # one of the two of a


@pytest.mark.parametrize("text", [OP, LIMITED])
def test_the_answer_to_a_request_names_the_limit_of_persons(tmp_path: Path, text: str) -> None:
    (tmp_path / "stream.toml").write_text(text)
    Stream(StreamConfig.from_toml(text, base=tmp_path)).close()
    visits([1]).with_columns(who=pl.lit("a")).write_csv(tmp_path / "rows.csv")
    said = CliRunner().invoke(app, ["forget", str(tmp_path / "stream.toml"), str(tmp_path / "rows.csv"), "--id", "R1"])
    assert said.exit_code == 0
    assert ("where no more rows can count, they are not taken away" in " ".join(said.output.split())) is (text != OP)


def test_a_thread_that_pushes_waits_until_a_request_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, request, add = signed(tmp_path), tmp_path / "request.csv", Intake._add
    visits([1]).drop("when").write_csv(request)
    with opened(config) as stream, ThreadPoolExecutor(1) as pool:
        corrections, push, pushes = stream.corrections, visits([3]).with_columns(op=1), list[Future[None]]()

        def slow(intake: Intake, rows: PrivateRows, open_tick: int) -> None:
            if not pushes:
                pushes.append(pool.submit(stream.update, push))
                with pytest.raises(TimeoutError):
                    pushes[0].result(timeout=0.1)
            add(intake, rows, open_tick)

        list(stream.run())
        monkeypatch.setattr(Intake, "_add", slow)
        corrections.forget(request, request="R1")  # at the tick that is open now, not when they were asked for
        pushes[0].result()
        assert stream._intake.pending(stream.closed).dense(stream._synthesizer.cells)[0] == 0  # one came, one went


def test_without_op_it_says_what_would_have_been_needed(config: StreamConfig) -> None:
    with opened(config) as stream, pytest.raises(ConfigError, match="needs from its beginning a column"):
        stream.corrections.forget("nowhere.csv", request="R1")


def test_nobody_is_told_whether_a_row_had_counted(tmp_path: Path) -> None:
    """Two worlds, in one of which the row that is taken away never came; the noise hides the difference."""
    aligned, told = Aligned(), []
    for folder, days, gates in ((tmp_path / "a", [1, 1, 2], aligned.record), (tmp_path / "b", [1, 2], aligned.replay)):
        config = signed(folder)
        visits(days).with_columns(op=1).write_parquet(folder / "visits-1.parquet")
        visits([1]).write_csv(folder / "request.csv")

        def gate(tick: int, gates: object = gates) -> Gate:
            return gates(tick)  # type: ignore[operator, no-any-return]

        with Stream(config, gates=gate, seed=1, env=At(datetime(2026, 1, 5, tzinfo=UTC))) as stream:
            stream.ingest()
            stream.release()
            stream.corrections.forget(folder / "request.csv", request="R1")
            told.append((str(stream.status()), finish(stream).about, files(folder / "releases")))
    assert told[0] == told[1]


def test_the_commands_say_what_they_did(tmp_path: Path) -> None:
    signed(tmp_path)

    def say(*words: str) -> str:
        found = synthstream(*words[:2], "stream.toml", *words[2:], cwd=tmp_path)
        return found.stdout if found.returncode == 0 else f"status {found.returncode}: {found.stderr}"

    assert "has not begun" in say("source", "list")
    assert synthstream("run", "-q", "--yes", "stream.toml", cwd=tmp_path).returncode == 0
    assert say("source", "list") == "counted  visits-1.parquet\n"
    visits([1]).with_columns(op=1).write_parquet(tmp_path / "visits-1.parquet")
    assert "accepted as it is now" in say("source", "accept", "visits-1.parquet")
    assert "is as it was" in say("source", "accept", "visits-1.parquet")
    assert "is retired" in say("source", "retire", "visits-1.parquet")
    assert "was retired before" in say("source", "retire", "visits-1.parquet")
    visits([1]).write_csv(tmp_path / "rows.csv")
    answers = list[str]()
    for rows in (visits([1]), visits([1] * 5000, ward="nowhere")):  # however many, and whatever they are
        rows.write_csv(tmp_path / "rows.csv")
        command = ("forget", "stream.toml", "rows.csv", "--id", f"R{len(answers)}")
        answers.append(synthstream(*command, cwd=tmp_path).stdout.replace(command[-1], "R"))
    assert answers[0] == answers[1]
    assert "taken away once, with tick 5" in answers[0]
