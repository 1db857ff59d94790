"""Mirrors: every release once, in order, whatever happens in between."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.errors import ConfigError, MirrorError, SinkError, StateRolledBack
from synthstream.publish.folder import ParquetSink
from synthstream.publish.mirrors import DeltaTable, catch_up
from tests.support.environments import failing
from tests.support.mirrors import opened, prepared
from tests.support.streams import TICKS, configured, rows, text_of

MIRROR = """
[[mirror]]
kind = "delta"
path = "lake/rows"
[[mirror]]
kind = "delta"
path = "lake/tables"
content = "tables"
"""


def released(config: StreamConfig, tick: int, name: str) -> pl.DataFrame:
    return pl.read_parquet(config.base / "releases" / f"{tick:06d}" / f"{name}.parquet")


@pytest.mark.parametrize("kind", ["always", "points"])
def test_every_release_is_one_version_of_the_table(tmp_path: Path, kind: str) -> None:
    config = prepared(tmp_path, MIRROR, kind)
    with opened(config) as stream:
        for _ in stream.run():
            pass
    for name in ("rows", "tables"):
        table = deltalake.DeltaTable(tmp_path / "lake" / name)
        assert table.version() == TICKS - 1
        for tick in range(TICKS):
            found = pl.read_delta(str(tmp_path / "lake" / name), version=tick)
            assert found.equals(released(config, tick, name))
        facts = table.history(1)[0]
        manifest = json.loads((tmp_path / "releases" / f"{TICKS - 1:06d}" / "manifest.json").read_text())
        assert json.loads(facts["synthstream.manifest"]) == manifest


def test_duckdb_reads_the_newest_rows(tmp_path: Path) -> None:
    config = prepared(tmp_path, MIRROR)
    with opened(config) as stream:
        *_, last = stream.run()
    found = duckdb.arrow(deltalake.DeltaTable(tmp_path / "lake" / "rows").to_pyarrow_table())
    assert found.aggregate("count(*)").fetchall() == [(last.model.number,)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_mirror_that_fails_is_caught_up_and_nothing_comes_twice(tmp_path: Path, when: str) -> None:
    """Failing after the commit: it was made, and reported as failed."""
    config = prepared(tmp_path, MIRROR)
    env = failing(5, at="commit to Delta", number=5, when=when)  # type: ignore[arg-type]
    with opened(config, env) as stream:
        stream.ingest()
        for _ in range(2):
            stream.release()
        with pytest.raises(MirrorError, match="will be copied when you run again"):
            stream.release()
        assert stream.closed == 3, "the release is out"
    with opened(config) as stream:
        assert stream.publish_copies() == (1 if when == "before" else 0), "the other mirror was not made to wait"
        assert stream.publish_copies() == 0
        list(stream.run())
        assert stream.publish_copies() == 0
    for name in ("rows", "tables"):
        assert deltalake.DeltaTable(tmp_path / "lake" / name).version() == TICKS - 1


def test_a_mirror_that_fails_delays_no_release(tmp_path: Path) -> None:
    config = prepared(tmp_path, MIRROR)
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "rows").write_text("in the way")
    for _ in range(2):
        with opened(config, unchecked=True) as stream, pytest.raises(MirrorError, match="will be copied"):
            list(stream.run())
        assert stream.closed == TICKS
    assert deltalake.DeltaTable(tmp_path / "lake" / "tables").version() == TICKS - 1
    (tmp_path / "lake" / "rows").unlink()
    with opened(config) as stream:
        assert list(stream.run()) == []
    assert deltalake.DeltaTable(tmp_path / "lake" / "rows").version() == TICKS - 1


@pytest.mark.parametrize("more", [[], ["--follow"]])
def test_the_command_tells_of_a_mirror_that_fails_when_all_releases_are_out(tmp_path: Path, more: list[str]) -> None:
    prepared(tmp_path, MIRROR)
    (tmp_path / "stream.toml").write_text(text_of("always") + MIRROR)
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "rows").write_text("in the way")
    command = ["run", str(tmp_path / "stream.toml"), "--yes", "--until", "2026-01-04", *more]
    refused = CliRunner().invoke(app, command)
    assert (refused.exit_code, "with --unchecked" in refused.output) == (2, True)
    assert not (tmp_path / "state").exists(), "nothing was made, nothing was charged"
    for _ in range(2):
        found = CliRunner().invoke(app, [*command, "--unchecked"])
        assert "Warning: [[mirror]] delta 1 could not be asked" in found.output
        assert found.exit_code == 2
        assert "cannot be used" in found.output
        assert (tmp_path / "releases" / "000002").is_dir()
    assert deltalake.DeltaTable(tmp_path / "lake" / "tables").version() == 2
    (tmp_path / "lake" / "rows").unlink()
    assert CliRunner().invoke(app, command).exit_code == 0, "nothing is due, and it is copied"
    assert deltalake.DeltaTable(tmp_path / "lake" / "rows").version() == 2
    stream = str(tmp_path / "stream.toml")
    told = CliRunner().invoke(app, ["verify", stream])
    assert told.exit_code == 0
    assert "3 release(s), the first at tick 0, were drawn while a mirror could not be asked" in told.stdout
    assert json.loads(CliRunner().invoke(app, ["verify", stream, "--json"]).stdout)["unchecked"] == [0, 1, 2]
    assert CliRunner().invoke(app, ["report", stream, "-o", str(tmp_path / "page.html")]).exit_code == 0
    assert "3 releases, the first at tick 0. A mirror holds copies" in (tmp_path / "page.html").read_text()


def test_a_mirror_that_failed_once_is_no_error_when_the_next_release_has_mended_it(tmp_path: Path) -> None:
    config = prepared(tmp_path, MIRROR)
    with opened(config, failing(5, at="commit to Delta", number=5)) as stream:
        assert [release.tick for release in stream.run()] == list(range(TICKS))
    for name in ("rows", "tables"):
        assert deltalake.DeltaTable(tmp_path / "lake" / name).version() == TICKS - 1


def test_a_mirror_that_is_added_later_gets_all_releases_that_have_rows(tmp_path: Path) -> None:
    config = prepared(tmp_path, "")
    config = replace(config, sink=config.sink and config.sink.model_copy(update={"keep": 3}))
    with opened(config) as stream:
        list(stream.run())
    with opened(replace(prepared(tmp_path, MIRROR), sink=config.sink)) as stream:
        assert stream.publish_copies() == 3 + TICKS
    assert pl.read_delta(str(tmp_path / "lake" / "rows"), version=0).equals(released(config, TICKS - 3, "rows"))


def test_what_belongs_to_another_is_refused(tmp_path: Path) -> None:
    ours, theirs = prepared(tmp_path / "ours", MIRROR), prepared(tmp_path / "theirs", MIRROR)
    for config in (ours, theirs):
        with opened(config) as stream:
            stream.ingest()
            stream.release()
    mirror = DeltaTable(str(tmp_path / "ours" / "lake" / "rows"), stream="another")
    with pytest.raises(SinkError, match="is another table"):
        catch_up(ParquetSink(tmp_path / "theirs" / "releases"), mirror)
    rows(300, 2).write_parquet(tmp_path / "theirs" / "rows-2.parquet")
    with opened(theirs) as stream:
        stream.ingest()
        stream.release(until=datetime(2026, 1, 3, tzinfo=UTC))
    with pytest.raises(StateRolledBack, match="holds a release of tick 1 that is not known here"):
        opened(replace(ours, mirrors=theirs.mirrors))
    (tmp_path / "broken" / "_delta_log").mkdir(parents=True)
    (tmp_path / "broken" / "_delta_log" / f"{0:020d}.json").write_text("no log")
    with pytest.raises(SinkError, match="cannot be used"):
        catch_up(ParquetSink(tmp_path / "ours" / "releases"), DeltaTable(str(tmp_path / "broken"), stream="x"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[[mirror]]\nkind = "delta"\npath = "state/lake"', "neither may lie in the other"),
        ('[[mirror]]\nkind = "delta"\npath = "releases/lake"', "'releases' is another place"),
        ('[[mirror]]\nkind = "delta"\npath = "a"\n[[mirror]]\nkind = "delta"\npath = "a/b"', "another place"),
        ('[[mirror]]\nkind = "delta"\npath = "a"\nplace = "b"', "there is no such key"),
        ('[[mirror]]\nkind = "delter"\npath = "a"', "'delta'"),
    ],
)
def test_mirrors_that_cannot_be_are_refused(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StreamConfig.from_toml(text_of("always") + more, base=tmp_path)


def test_a_copy_needs_a_sink_and_addresses_are_left_as_they_are(tmp_path: Path) -> None:
    text = text_of("always")
    without = text[: text.index("[sink]")] + text[text.index("[[columns]]") :]
    with pytest.raises(ConfigError, match=r"name a \[sink\] too"):
        StreamConfig.from_toml(without + MIRROR, base=tmp_path)
    config = StreamConfig.from_toml(text + '[[mirror]]\nkind = "delta"\npath = "s3://open/rows"', base=tmp_path)
    assert config.mirrors[0].model_dump()["path"] == "s3://open/rows"
    assert config.public_json() == configured(tmp_path, "always").public_json()


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SinkError, match=r"pip install 'synthstream\[delta\]'"):
        opened(prepared(tmp_path, MIRROR))
    assert not (tmp_path / "state").exists(), "nothing was made, nothing was charged"


def test_files_of_a_release_are_all_there_but_for_rows_that_were_dropped(tmp_path: Path) -> None:
    config = configured(tmp_path, "always", until="2026-01-02")
    rows(50, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        list(stream.run())
    sink, place = ParquetSink(tmp_path / "releases"), tmp_path / "releases" / "000000"
    names = list(sink.files(0))
    assert (names[-1], set(names)) == ("manifest.json", {path.name for path in place.iterdir()})
    (place / "rows.parquet").unlink()
    assert list(sink.files(0)) == [name for name in names if name != "rows.parquet"]
    (place / "tables.parquet").unlink()
    with pytest.raises(SinkError, match="cannot be read as a release"):
        sink.files(0)
