"""What was drawn and is not yet published is nowhere outside of the state: neither it, nor the hash that binds it."""

from __future__ import annotations

import json
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.errors import ConfigError, SinkError
from synthstream.state.store import Store
from synthstream.stream.backups import backup
from synthstream.stream.recovery import adopt
from synthstream.stream.verification import verify
from tests.support.environments import failing
from tests.support.streams import configured, rows

SHORTEST = 6  # so many hexadecimal digits of a head tell two draws apart
BEFORE = ("make aside", "write rows", "write manifest")  # stops at which no manifest has been written
AFTER = ("sync aside", "rename release")  # stops at which the unfinished release lies beside the others, whole
RELEASED = 2


def prepared(folder: Path, *, sink: bool = True) -> StreamConfig:
    configured(folder, "always")
    rows(60, 1).write_parquet(folder / "rows-1.parquet")
    text = (folder / "stream.toml").read_text()
    if not sink:
        text = text.replace('[sink]\nkind = "parquet"\npath = "releases"\n', "")
    (folder / "stream.toml").write_text(text)
    config = StreamConfig.from_toml(text, base=folder)
    with Stream(config) as stream:
        stream.ingest()
        for _ in range(RELEASED):
            stream.release()
    return config


def secret(config: StreamConfig) -> str:
    """The head of the tick that was drawn and not published."""
    store = Store(config.state, read_only=True)
    try:
        last, marked = store.last(), store.population()
        assert last is not None
        assert marked is not None
        assert (last.tick, marked[0]) == (RELEASED, RELEASED - 1)
        return last.head
    finally:
        store.close()


def outside(config: StreamConfig) -> Iterator[tuple[Path, bytes]]:
    """Every name and byte beside the state."""
    for path in sorted(config.base.rglob("*")):
        if not path.is_relative_to(config.state):
            yield path.relative_to(config.base), path.read_bytes() if path.is_file() else b""


def told(config: StreamConfig, stream: Stream, folder: Path) -> str:
    """All that Python and the commands say of a stream that is open."""
    said = [str(stream.status()), repr(stream), str(stream.last), repr(stream.last and stream.last.facts)]
    said += [str(stream.rows(3)), str(verify(config))]
    path = str(config.base / "stream.toml")
    commands = [["status", path], ["status", path, "--json"], ["verify", path], ["verify", path, "--json"]]
    if config.sink is not None:
        commands += [["sample", path, "-n", "3"], ["describe", path], ["report", path, "-o", str(folder / "r.html")]]
    for command in commands:
        for how in ([], ["-v"]):
            done = CliRunner().invoke(app, [*command, *how])
            assert done.exit_code == 0, done.output
            said.append(done.output)
    if config.sink is not None:
        said.append((folder / "r.html").read_text())
    backup(config, folder / "backup")
    said += [p.read_bytes().hex() + repr(p.read_bytes()) for p in (folder / "backup/public").iterdir()]
    shutil.rmtree(folder / "backup")
    return "\n".join(said)


def stopped(config: StreamConfig, at: str, look: Callable[[Stream, str], None]) -> None:
    """Draw a tick that the sink has no room for; look while the stream is open."""
    env = failing(28, at=at)
    with Stream(config, env=env) as stream:
        with pytest.raises(SinkError) as raised:
            stream.release()
        look(stream, str(raised.value))


@pytest.mark.sparing(2)
@pytest.mark.parametrize("at", [*BEFORE, *AFTER])
def test_the_head_of_what_is_not_published_is_told_nowhere(tmp_path: Path, at: str) -> None:
    config = prepared(tmp_path / "s")
    published = json.loads((tmp_path / "s/releases/000001/manifest.json").read_text())

    def look(stream: Stream, message: str) -> None:
        head = secret(config)[:SHORTEST]
        status = stream.status()
        assert (status["released"], status["head"]) == (RELEASED, published["chain"]["head"])
        assert status["last_end"] == published["end"]
        assert head not in told(config, stream, tmp_path) + message
        for path, content in outside(config):
            assert head not in str(path)
            assert at in AFTER or head.encode() not in content, path
            assert head.encode() not in content or path.parent.name.startswith(".writing-"), path

    stopped(config, at, look)
    with Stream(config) as stream:  # goes on, with the very same draw, in the very same place
        assert stream.status()["released"] == RELEASED + 1
    assert sorted(p.name for p in (tmp_path / "s/releases").iterdir() if p.is_dir()) == ["000000", "000001", "000002"]


def test_without_a_sink_the_anchor_that_is_being_written_is_for_its_owner_alone(tmp_path: Path) -> None:
    config = prepared(tmp_path / "s", sink=False)

    def look(stream: Stream, message: str) -> None:
        head = secret(config)[:SHORTEST]
        assert stream.status()["released"] == RELEASED
        assert head not in told(config, stream, tmp_path) + message
        for path, content in outside(config):
            assert head.encode() not in content or path.name == "state.anchor.writing"
        assert stat.S_IMODE((tmp_path / "s/state.anchor.writing").stat().st_mode) == 0o600

    stopped(config, "rename anchor", look)
    shutil.rmtree(config.state)
    (tmp_path / "s/state.anchor.json").unlink()
    with Stream(config):  # another state may draw that tick
        assert not (tmp_path / "s/state.anchor.writing").exists()


def test_the_place_of_what_is_unfinished_is_that_of_one_draw_and_of_one_state(tmp_path: Path) -> None:
    """Tried again it is the same; another draw, or another state, has another one: nobody can try heads against it."""
    prepared(tmp_path / "s")
    shutil.copytree(tmp_path / "s", tmp_path / "t")
    places = []
    for folder in ("s", "s", "t"):
        other = StreamConfig.from_toml((tmp_path / folder / "stream.toml").read_text(), base=tmp_path / folder)
        other.state.chmod(0o700)
        with pytest.raises(SinkError), Stream(other, env=failing(28, at="rename release")) as stream:
            stream.release()
        places.append([p.name for p in (tmp_path / folder / "releases").glob(".writing-*")])
    assert places[0] == places[1] != places[2]
    assert all(re.fullmatch(r"\.writing-000002-[0-9a-f]{16}", name) for (name,) in places)


@pytest.mark.parametrize("what", ["state", "key", "releases", "mirror"])
def test_no_link_hides_what_is_secret_among_what_is_published(tmp_path: Path, what: str) -> None:
    configured(tmp_path, "always")
    text = (tmp_path / "stream.toml").read_text()
    (tmp_path / "releases").mkdir()
    (tmp_path / "data").symlink_to("releases")
    if what == "state":
        text = text.replace('state = "state"', 'state = "data/state"')
    elif what == "key":
        text += '[encryption]\nkey_file = "data/key"\n'
    else:
        (tmp_path / "state").mkdir(mode=0o700)
        (tmp_path / "data").unlink()
        (tmp_path / "data").symlink_to("state")
        mirror = '[[mirror]]\nkind = "delta"\npath = "data/copy"\n'
        text = text + mirror if what == "mirror" else text.replace('path = "releases"', 'path = "data/releases"')
    config = StreamConfig.from_toml(text, base=tmp_path)
    before = sorted(tmp_path.rglob("*"))
    opens: list[Callable[[StreamConfig], object]] = [Stream, adopt]
    for use in opens:
        with pytest.raises(ConfigError, match=f"the {'key' if what == 'key' else 'state'} .* is secret: neither may"):
            use(config)
    assert sorted(tmp_path.rglob("*")) == before
