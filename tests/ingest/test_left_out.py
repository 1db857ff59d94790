"""Files that cannot be counted: they are left out alone, everything due is published, and then the operator is told."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream import Counting, CountsByTick, Release, Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.cli.follow import follow_command
from synthstream.cli.runtime import FOUND
from synthstream.environment import REAL, Env
from synthstream.errors import ConfigError, FilesLeftOut, SourceError, StateMismatch
from synthstream.ingest.draft import draft
from synthstream.ingest.intake import Elsewhere
from synthstream.stream.following import tell
from tests.support.environments import Recording
from tests.support.following import START, Hand
from tests.support.gates import ExactGate
from tests.support.streams import PERSONS, TICKS, configured, rows, text_of
from tests.support.visits import TOML, visits

BROKEN = b"PAR1SECRETPAR1"


def opened(config: StreamConfig, env: Env = REAL) -> Stream:
    return Stream(config, gates=lambda tick: ExactGate(), env=env)


def total(stream: Stream) -> int:
    assert stream.last is not None
    return round(float(stream.last.measured.values[0]))


@pytest.mark.parametrize("kind", ["always", PERSONS])
def test_a_file_that_is_mended_counts_later_and_the_others_at_once(tmp_path: Path, kind: str) -> None:
    config = configured(tmp_path, kind)
    rows(60, 1).write_parquet(tmp_path / "rows-1.parquet")
    rows(60, 2).write_parquet(tmp_path / "rows-2.parquet", row_group_size=10)
    whole = (tmp_path / "rows-2.parquet").read_bytes()
    (tmp_path / "rows-2.parquet").write_bytes(whole[: len(whole) // 2])
    rows(60, 3).drop("x").write_parquet(tmp_path / "rows-3.parquet")
    with opened(config) as stream:
        assert stream.ingest() == 1
        assert sorted(path.name for path in stream.findings) == ["rows-2.parquet", "rows-3.parquet"]
        (tmp_path / "rows-2.parquet").write_bytes(whole)
        assert stream.ingest() == 1
        rows(60, 3).write_parquet(tmp_path / "rows-3.parquet")
        assert (stream.ingest(), stream.findings) == (1, {})
        assert sum(1 for _ in stream.run()) == TICKS
    with opened(configured(tmp_path / "twin", kind)) as twin:
        for seed in (1, 2, 3):
            twin.update(rows(60, seed))
        assert sum(1 for _ in twin.run()) == TICKS
        if kind != PERSONS:  # of a person, a key decides which rows count
            assert total(twin) == total(stream) == 180


def test_a_file_counts_in_the_commit_that_notes_that_it_has_counted(tmp_path: Path) -> None:
    """Whoever is killed between two commits would count it again."""
    config, env = configured(tmp_path, "always"), Recording()
    for seed in (1, 2):
        rows(60, seed).write_parquet(tmp_path / f"rows-{seed}.parquet")
    with opened(config, env=env) as stream:
        assert stream.ingest() == 2
    assert env.names.count("commit counts") == 2


def test_the_command_publishes_first_and_then_tells(tmp_path: Path) -> None:
    configured(tmp_path, "always")
    rows(60, 1).write_parquet(tmp_path / "rows-1.parquet")
    (tmp_path / "rows-0.parquet").write_bytes(BROKEN)
    command = ["run", str(tmp_path / "stream.toml"), "--yes", "--until"]
    found = CliRunner().invoke(app, [*command, "2026-01-03"])
    assert found.exit_code == FOUND
    assert found.output.index("2 new release(s)") < found.output.index("rows-0.parquet cannot be read as parquet")
    assert "SECRET" not in found.output
    assert (tmp_path / "releases" / "000001").is_dir()
    rows(60, 9).write_parquet(tmp_path / "rows-1.parquet")
    found = CliRunner().invoke(app, [*command, "2026-01-05", "--follow"])
    assert found.exit_code == FOUND
    assert found.output.index("Released tick 3") < found.output.index("rows-1.parquet is not what it was")
    assert (tmp_path / "releases" / "000003").is_dir()
    status = CliRunner().invoke(app, ["status", str(tmp_path / "stream.toml")])
    assert status.exit_code == 0
    assert "rows-" not in status.output
    rows(60, 1).write_parquet(tmp_path / "rows-1.parquet")
    rows(60, 2).write_parquet(tmp_path / "rows-0.parquet")
    found = CliRunner().invoke(app, [*command, "2026-01-05"])
    assert found.exit_code == 0, found.output
    assert "1 new file(s) counted, 0 new release(s)" in found.output


def test_a_stream_that_opens_without_a_readable_file_says_so_in_its_line(tmp_path: Path) -> None:
    configured(tmp_path, "always")
    (tmp_path / "rows-0.parquet").write_bytes(BROKEN)
    found = CliRunner().invoke(app, ["run", str(tmp_path / "stream.toml"), "--yes", "--until", "2026-01-02"])
    assert "0 new file(s) counted, 1 could not be, 1 new release(s); 1 in all" in found.output


def test_following_goes_on_and_tells_again_after_each_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env = Hand()
    (tmp_path / "rows-1.parquet").write_bytes(BROKEN)

    def sleep(seconds: float) -> None:
        env.moment += timedelta(seconds=seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    said = []
    with opened(configured(tmp_path, "always", until="2026-01-04"), env=env) as stream:

        def released(_: Release) -> None:
            said.append(capsys.readouterr().err.count("rows-1.parquet cannot be read"))

        from rich.console import Console

        follow_command(stream, Console(quiet=True), until=None, poll=6 * 3600.0, released=released)
        with pytest.raises(FilesLeftOut, match=r"rows-1\.parquet"):
            tell(stream)
        assert stream.closed == 3
    assert env.moment >= START + timedelta(days=3)
    assert said == [1, 1, 1]  # once before each release, at the first look after the one before it


@pytest.mark.parametrize("away", ["folder", "file", "unreadable"])
def test_what_is_away_stops_a_run_before_a_tick_is_closed(tmp_path: Path, away: str) -> None:
    place = {"folder": "gone/rows-*.parquet", "file": "gone.parquet", "unreadable": "rows-*.parquet"}[away]
    (tmp_path / "stream.toml").write_text(text_of("always").replace("rows-*.parquet", place))
    (tmp_path / "rows-1.parquet").mkdir()  # the system cannot read it, whatever it holds
    found = CliRunner().invoke(app, ["run", str(tmp_path / "stream.toml"), "--yes", "--until", "2026-01-04"])
    assert found.exit_code == 2
    assert not (tmp_path / "releases" / "000000").exists()
    with opened(StreamConfig.from_toml((tmp_path / "stream.toml").read_text(), base=tmp_path / "x")) as stream:
        if away == "folder":
            with pytest.raises(SourceError, match="whether a disk or a server is away"):
                stream.ingest()


def test_an_engine_that_leaves_out_files_is_asked_again_for_the_others(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        rows(20, number).write_parquet(tmp_path / f"rows-{number}.parquet")
    config, asked = configured(tmp_path, "always"), []

    def elsewhere(paths: Sequence[Path]) -> CountsByTick:
        asked.append([path.stem for path in paths])
        if "rows-2" in asked[-1]:
            raise FilesLeftOut({tmp_path / "rows-2.parquet": "rows-2 is damaged"})
        return Counting(config).count_all(map(pl.read_parquet, paths))

    def helpless(paths: Sequence[Path]) -> CountsByTick:
        raise FilesLeftOut({tmp_path / "another.parquet": "who asked for it?"})

    with opened(config) as stream:
        assert stream.ingest(elsewhere=Elsewhere(elsewhere)) == 2
        assert asked == [["rows-1", "rows-2", "rows-3"], ["rows-1", "rows-3"]]
        assert list(stream.findings) == [tmp_path / "rows-2.parquet"]
        with pytest.raises(FilesLeftOut, match="who asked"):
            stream.ingest(elsewhere=Elsewhere(helpless))
        assert sum(1 for _ in stream.run()) == TICKS
        assert total(stream) == 60


# -- multiline -------------------------------------------------------------------------------------------------------


def with_csv(folder: Path, more: str = "") -> StreamConfig:
    folder.mkdir(exist_ok=True)
    text = (
        text_of("always").replace('kind = "parquet"', f'kind = "csv"\n{more}', 1).replace("rows-*.parquet", "rows.csv")
    )
    (folder / "stream.toml").write_text(text)
    return StreamConfig.from_toml(text, base=folder)


def test_the_promise_says_that_quotation_marks_must_be_closed_where_a_row_may_have_many_lines(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('when,ward,x\n2026-01-02,"A\nB",1\n')
    config = with_csv(tmp_path, "multiline = true")
    with opened(config) as stream:
        assert sum(1 for _ in stream.run()) == TICKS
        assert total(stream) == 1
    claim = json.loads((tmp_path / "releases" / "000000" / "manifest.json").read_text())["claim"]
    precondition = "every quotation mark of a CSV file is closed within its row"
    assert claim["words"].endswith(f"being added or removed, provided that {precondition}.")
    assert precondition in claim["trusts"]
    plan = CliRunner().invoke(app, ["plan", str(tmp_path / "stream.toml")])
    assert precondition in " ".join(plan.output.split())
    with pytest.raises(StateMismatch, match=r"other settings: source\.multiline: was true, is not set\."):
        opened(with_csv(tmp_path))


def test_without_the_key_nothing_of_a_stream_changes(tmp_path: Path) -> None:
    public = configured(tmp_path, "always").public_json()
    assert with_csv(tmp_path).public_json() == with_csv(tmp_path, "multiline = false").public_json() == public
    assert "multiline" not in public
    with pytest.raises(ConfigError, match='multiline: has no effect with kind = "parquet"'):
        StreamConfig.from_toml(text_of("always").replace('path = "rows-', 'multiline = true\npath = "rows-'))


def test_a_path_that_is_pushed_is_read_as_the_source_is(tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text('when,ward,x\n2026-01-02,"A\nB",1\n')
    for more, number in (("multiline = true", 1), ("", 2)):
        with opened(with_csv(tmp_path / str(number), more)) as stream:
            stream.update(tmp_path / "more.csv")
            stream.release()
            stream.release()
            assert total(stream) == number


def test_a_draft_reads_the_first_line_alone(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('ward,"age\nSECRET,7\n')
    text = draft(tmp_path / "x.csv")
    assert "SECRET" not in text
    assert 'name = "age"' in text


def test_a_column_that_no_file_has_stops_the_first_run(tmp_path: Path) -> None:
    """Headers are public, and whoever writes the configuration is told before a tick is spent."""
    (tmp_path / "stream.toml").write_text(TOML.replace('name = "ward"', 'name = "wart"'))
    visits([1, 2]).write_parquet(tmp_path / "visits-1.parquet")
    found = CliRunner().invoke(app, ["run", str(tmp_path / "stream.toml"), "--yes"])
    assert found.exit_code == 2
    assert "wart" in found.output
    assert "No tick was closed" in found.output
    assert not (tmp_path / "releases").exists()


@pytest.mark.parametrize("more", [[], ["--follow"]])
def test_a_pattern_that_nothing_fits_is_told_at_the_first_run(tmp_path: Path, more: list[str]) -> None:
    """And not refused: which releases exist must not hang on a file that may be there for one row."""
    (tmp_path / "stream.toml").write_text(TOML)
    found = CliRunner().invoke(app, ["run", str(tmp_path / "stream.toml"), "--yes", *more])
    assert found.exit_code == 0
    assert "no file fits this pattern. Ticks that are over are released" in " ".join(found.output.split())


def test_a_pattern_that_was_mistyped_later_is_told_too(tmp_path: Path) -> None:
    path = tmp_path / "stream.toml"
    path.write_text(TOML)
    visits([1, 2]).write_parquet(tmp_path / "visits-1.parquet")
    found = CliRunner().invoke(app, ["run", str(path), "--yes"])
    assert "no file fits" not in found.output
    path.write_text(TOML.replace("*.parquet", "*.parqet"))
    found = CliRunner().invoke(app, ["run", str(path)])
    assert found.exit_code == 0
    assert "no file fits this pattern" in " ".join(found.output.split())
