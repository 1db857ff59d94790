"""Releases read without ``stream.toml``: from a folder, from a site, from a web server."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import synthstream
from synthstream import Releases, Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.config.config import load
from synthstream.config.settings import SETTINGS
from synthstream.errors import ConfigError, NotReleased, SinkError
from synthstream.kernel.gate import Gate
from synthstream.publish.addresses import fetched
from synthstream.publish.catalogue import describe
from synthstream.publish.outlets import simulated
from synthstream.stream.succession import succeed
from synthstream.stream.verification import verify
from tests.support.gates import ExactGate
from tests.support.streams import KINDS, TICKS, configured, rows
from tests.support.successors import CUT, NEW, events, half, written

STATES = Path(__file__).parents[1] / "crash/states"
EXAMPLES = Path(__file__).parents[2] / "examples"


def exact(tick: int) -> Gate:
    return ExactGate()


class Served(SimpleHTTPRequestHandler):
    """Files alone: no folder is listed. Every path that was asked for is kept."""

    asked: list[str] = []  # noqa: RUF012 - of the one server of this module

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.endswith("/broken/settings.toml"):
            self.send_error(500)
        elif self.path == "/short":
            self.send_response(200)
            self.send_header("Content-Length", "9")
            self.end_headers()
            self.wfile.write(b"some")
        elif self.path.endswith("/"):
            self.send_error(404)
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a publisher has: the stream's own folder; ``public`` is all that a reader gets."""
    folder = tmp_path_factory.mktemp("publisher")
    config = configured(folder, "refresh")
    rows(400, 1).write_parquet(folder / "rows-1.parquet")
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    describe(config)
    shutil.copytree(folder / "releases", folder / "public/here")
    shutil.copytree(folder / "releases", folder / "public/site/releases")
    (folder / "public/site/latest").mkdir()
    (folder / "public/site/releases" / SETTINGS).rename(folder / "public/site/latest" / SETTINGS)
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Served, directory=str(folder / "public")))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.sparing(2)
@pytest.mark.parametrize("place", ["here", "here/", "site", "site/releases"])
def test_a_reader_with_an_address_alone_gets_the_same(folder: Path, address: str, place: str) -> None:
    own, theirs = Releases(StreamConfig.from_toml((folder / "stream.toml").read_text(), base=folder)), None
    theirs = synthstream.releases(f"{address}/{place}")
    assert len(theirs) == len(own) == TICKS
    for tick in (0, 4, -1):
        assert theirs[tick].tables.equals(own[tick].tables)
        assert theirs[tick].rows().equals(own[tick].rows())
        assert theirs[tick].series.equals(own[tick].series)
    assert theirs.last.table(["ward", "x"]).equals(own.last.table(["ward", "x"]))
    assert theirs.last.compare(theirs[3], "ward").equals(own.last.compare(own[3], ["ward"]))
    assert theirs.series("ward", every="4d").equals(own.series("ward", every="4d"))
    window = ("2026-01-03", "2026-01-06")
    assert theirs.between(*window).tables.equals(own.between(*window).tables)
    assert repr(theirs).startswith(f"Releases('refresh', 8 in {address}/")


def test_a_configuration_does_as_well_as_its_file(folder: Path) -> None:
    config = StreamConfig.from_toml((folder / "stream.toml").read_text(), base=folder)
    assert repr(synthstream.releases(config)) == repr(synthstream.releases(folder / "stream.toml"))
    assert len(synthstream.releases(config, copy=folder / "public/here")) == TICKS
    assert synthstream.releases(config, simulate=True).config.sink == simulated(config).sink
    with pytest.raises(NotReleased, match=r"no \[sink\].* rows, table, between and last; a \[sink\] keeps earlier"):
        synthstream.releases(replace(config, sink=None))
    with pytest.raises(TypeError, match="a path, an address or a StreamConfig, not dict"):
        synthstream.releases({})  # type: ignore[arg-type]


def test_a_folder_of_releases_needs_nothing_else(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "public/here", tmp_path / "copy")
    (tmp_path / "copy" / SETTINGS).unlink()
    with pytest.raises(ConfigError, match=r"settings\.toml.*synthstream\.describe\(config\)"):
        synthstream.releases(tmp_path / "copy")
    config = load(folder / "stream.toml")
    assert config.sink is not None
    copied = replace(config, sink=config.sink.model_copy(update={"path": tmp_path / "copy"}))
    assert synthstream.describe(copied)
    found = synthstream.releases(tmp_path / "copy")
    assert found.last.tables.equals(synthstream.releases(folder / "stream.toml").last.tables)
    assert not (verified := verify(found.config)).findings
    assert verified.releases == TICKS
    said = CliRunner().invoke(app, ["verify", str(tmp_path / "copy")])
    assert (said.exit_code, "only releases were checked" in said.stdout) == (0, True)
    page = tmp_path / "r.html"
    assert CliRunner().invoke(app, ["report", str(tmp_path / "copy"), "-o", str(page)]).exit_code == 0
    assert "refresh" in page.read_text()


def test_commands_for_readers_take_an_address(folder: Path, address: str, tmp_path: Path) -> None:
    places = str(folder / "stream.toml"), f"{address}/here"
    asked = (["table", "ward", "x"], ["series", "ward"], ["sample", "-n", "9", "--seed", "1"])
    for command, *words in asked:
        csv = [] if command == "sample" else ["--csv"]
        own, theirs = (CliRunner().invoke(app, [command, place, *words, *csv]) for place in places)
        assert (theirs.exit_code, theirs.stdout) == (0, own.stdout)
        assert len(theirs.stdout.splitlines()) > 5
    output = tmp_path / "table.parquet"
    done = CliRunner().invoke(app, ["table", f"{address}/here", "ward", "--where", "x < 5", "-o", str(output)])
    assert done.exit_code == 0
    assert pl.read_parquet(output)["measured"].null_count() == 0


def test_settings_of_a_successor_hold_those_of_all_before_it(tmp_path: Path) -> None:
    """Releases on both sides of two cuts, from a folder and from a server."""
    config = succeed(half(tmp_path, events()), written(tmp_path, NEW, "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    third = NEW[: NEW.index("[after]")].replace("01-09", "01-11").replace("epsilon = 0.5", "epsilon = 0.25")
    (tmp_path / "third.toml").write_text(third + '[after]\nconfig = "new.toml"\n')
    with Stream(succeed(config, load(tmp_path / "third.toml"), gates=exact), gates=exact) as stream:
        list(stream.run())
    own = synthstream.releases(tmp_path / "third.toml")
    describe(own.config)
    shutil.copytree(tmp_path / "releases", tmp_path / "public/here")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Served, directory=str(tmp_path / "public")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for place in (tmp_path / "public/here", f"http://127.0.0.1:{server.server_address[1]}/here"):
            theirs = synthstream.releases(place)
            assert len(theirs) == 10
            for tick in (0, CUT, -1):
                assert theirs[tick].tables.equals(own[tick].tables)
            assert theirs.series("ward").equals(own.series("ward"))
            assert theirs.last.compare(theirs[1], "ward").equals(own.last.compare(own[1], "ward"))
    finally:
        server.shutdown()
        server.server_close()
    assert not verify(synthstream.releases(tmp_path / "public/here").config).findings


def test_a_successor_that_has_released_nothing_leaves_readers_what_they_have(tmp_path: Path) -> None:
    old = half(tmp_path, events())
    describe(old)
    told = [tmp_path / "releases" / name for name in (SETTINGS, "datapackage.json", "deployment.yaml")]
    before = [path.read_text() for path in told]
    config = succeed(old, written(tmp_path, NEW, "new.toml"), gates=exact)
    describe(config)
    assert [path.read_text() for path in told] == before
    assert len(synthstream.releases(tmp_path / "releases").series("ward", every="2d")) > 0
    with Stream(config, gates=exact) as stream:
        stream.release()
    with pytest.raises(ConfigError, match="went on with other settings at tick 4"):
        synthstream.releases(tmp_path / "releases")
    describe(config)
    assert len(synthstream.releases(tmp_path / "releases")) == CUT + 1


def test_a_server_does_not_fill_the_memory(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder / "public/large"
    shutil.copytree(folder / "releases", place)
    monkeypatch.setattr("synthstream.publish.addresses._MOST", 1 << 20)
    for name in (SETTINGS, "000000/manifest.json"):
        before = (place / name).read_bytes()
        (place / name).write_bytes(b" " * (1 << 20) + b" ")
        with pytest.raises(SinkError, match=f"large/{name}: the server sends more than 1 MiB"):
            synthstream.releases(f"{address}/large")
        (place / name).write_bytes(before)
    assert len(synthstream.releases(f"{address}/large")) == 8


def test_an_answer_that_breaks_off_is_told(address: str) -> None:
    for most in (None, 1 << 20):
        with pytest.raises(SinkError, match="cannot be read"):
            fetched(f"{address}/short", most=most)


def test_only_what_is_needed_is_fetched(address: str) -> None:
    Served.asked.clear()
    synthstream.releases(f"{address}/here").last.table("ward")
    assert not any("rows.parquet" in path or path.endswith("/") for path in Served.asked if "000007" not in path)
    there = [path for path in Served.asked if "000008" not in path]  # asked again: there may be a newer one by now
    assert len(there) == len(set(there)) < 25  # releases are found without a list of them


def test_a_changed_file_is_refused_wherever_it_is(folder: Path, address: str) -> None:
    place = folder / "public/changed"
    shutil.copytree(folder / "releases", place)
    pl.read_parquet(place / "000007/tables.parquet").reverse().write_parquet(place / "000007/tables.parquet")
    with pytest.raises(SinkError, match="is not what was published"):
        _ = synthstream.releases(f"{address}/changed").last.tables
    text = (place / SETTINGS).read_text()
    (place / SETTINGS).write_text(text.replace("epsilon = 2.0", "epsilon = 0.1"))
    for where in (place, f"{address}/changed"):
        with pytest.raises(ConfigError, match="made with other settings"):
            _ = synthstream.releases(where).last


def test_what_is_not_there_is_told(folder: Path, address: str, tmp_path: Path) -> None:
    for place in (f"{address}/nothing", tmp_path):
        with pytest.raises(ConfigError, match=r"there is no settings\.toml\. .* `synthstream describe"):
            synthstream.releases(place)
    with pytest.raises(ConfigError, match=r"nowhere: there is no such folder\. Name one of published releases"):
        synthstream.releases(tmp_path / "nowhere")
    with pytest.raises(SinkError, match="the server answers 500"):
        synthstream.releases(f"{address}/broken")
    with pytest.raises(SinkError, match="cannot be read"):
        synthstream.releases("http://127.0.0.1:9/x")
    with pytest.raises(NotReleased, match=f"{address}/site/nix: no releases are found at this address"):
        _ = synthstream.releases(f"{address}/site/nix").last
    found = synthstream.releases(f"{address}/here")
    with pytest.raises(NotReleased, match=f"{address}/here holds releases up to tick 7"):
        found.at(8)
    with pytest.raises(IndexError, match="holds 8 releases"):
        found[8]
    assert [release.tick for release in found[-2:]] == [6, 7]


@pytest.mark.parametrize(
    "path",
    [*sorted(EXAMPLES.glob("*/stream.toml")), *sorted(STATES.glob("*/stream.toml"))],
    ids=lambda path: path.parent.name,
)
def test_settings_say_all_that_the_chain_begins_with(path: Path, tmp_path: Path) -> None:
    config = StreamConfig.from_toml(path.read_text(), base=path.parent)
    again = StreamConfig.from_toml(config.settings, base=tmp_path / "releases")
    assert again.genesis == config.genesis
    assert (again.source, again.log, again.encryption, again.mirrors) == (None, None, None, ())
    assert "source" not in config.settings.split("\n", 2)[2]
    assert again.settings == config.settings


@pytest.mark.parametrize("kind", KINDS)
def test_settings_of_every_kind(tmp_path: Path, kind: str) -> None:
    config = configured(tmp_path, kind)
    assert StreamConfig.from_toml(config.settings, base=tmp_path / "releases").genesis == config.genesis


def test_settings_of_odd_names_and_files(tmp_path: Path) -> None:
    text = """
name = "odd \\"name\\" \\\\"
state = "state"
privacy = { epsilon = 1.0, delta = 1e-9, unit = { person = "wh\\"o", max_events = 2 } }
clock = { column = "t", start = 2026-01-01T05:00:00, every = "1d", horizon = "unbounded", until = 2026-02-01 }
source = { kind = "csv", path = "x.csv", multiline = true }
columns = [
  { name = "a b", type = "category", values = ["x, y", "é", "#"] },
  { name = "c", type = "category", values = ["1", "2"] },
  { name = "d", type = "datetime", min = 2026-01-01, max = 2026-03-01, bins = 4 },
]
[[constraints]]
columns = ["a b", "c"]
allowed = "pairs.csv"
"""
    (tmp_path / "pairs.csv").write_text('c,a b\n1,"x, y"\n2,é\n1,#\n')
    config = StreamConfig.from_toml(text, base=tmp_path)
    again = StreamConfig.from_toml(config.settings, base=tmp_path / "elsewhere")
    assert again.genesis == config.genesis
    assert again.constraints.groups == config.constraints.groups or again.public_json() == config.public_json()
    assert "2026-02-01" not in config.settings
