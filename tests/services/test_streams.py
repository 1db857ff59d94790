"""Streams that read a table or a topic: each event counts once, in its tick, whatever fails; nothing tells how many."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from synthstream import Stream
from synthstream.cli.app import app
from synthstream.errors import ConfigError, SourceError
from synthstream.ingest import kafka as kafka_module
from synthstream.ingest import postgres as postgres_module
from synthstream.ingest.logs import answers
from synthstream.stream.recovery import adopt
from tests.services.feeds import Feed, Hand, Table, Topic, config_of, day
from tests.services.postgres import Server
from tests.support.environments import Interrupting, When
from tests.support.gates import ExactGate


@pytest.fixture(params=["postgres", "kafka"])
def feed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """A new table or topic, and its reader's environment."""
    found: Feed
    if request.param == "postgres":
        found = Table(request.getfixturevalue("server"))
    else:
        found = Topic(request.getfixturevalue("cluster"))
    for key, value in found.environment().items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(kafka_module, "_SHORT", 0.1)
    yield found
    found.end()


def opened(config: Any, env: Any = None) -> Stream:
    return Stream(config, gates=lambda tick: ExactGate(), env=env or Hand())


def counted(stream: Stream, feed: Feed) -> dict[str, int]:
    """Exact counts up to now, without the rows that a topic began with."""
    table = stream.table(["n"])
    found = {str(n): int(m) for n, m in zip(table["n"], table["measured"], strict=True) if m}
    if isinstance(feed, Topic) and "0" in found:
        found["0"] -= feed.before
    return {n: m for n, m in found.items() if m}


def test_events_count_once_in_the_later_of_their_tick_and_the_open_one(feed: Feed, tmp_path: Path) -> None:
    env = Hand()
    arrivals: dict[int, list[dict[str, Any]]] = {
        0: [{"n": 1, "seen": day(0.2)}, {"n": 2, "seen": day(2.5)}, {"n": 3, "seen": day(99)}],
        1: [{"n": 1, "seen": day(0.3)}, {"n": 1, "seen": day(1.5)}],  # the first is late
        2: [{"n": 4, "seen": "yesterday"}, {"n": 77, "seen": day(1.9)}, {"n": None, "seen": None}],
        3: [],
    }
    found = []

    def rest(seconds: float) -> None:
        """Time passes, and events are written before the tick is over."""
        feed.put(arrivals[int(env.days)])
        env.days = int(env.days) + 1

    with opened(config_of(feed, tmp_path), env) as stream:
        for _ in stream.follow(until=env.now().replace(day=5), rest=rest):
            found.append(counted(stream, feed))
    assert found == [
        {"1": 1},
        {"1": 3},
        {"1": 3, "2": 1, "4": 1, "9": 1, "missing": 1},
        {"1": 3, "2": 1, "4": 1, "9": 1, "missing": 1},
    ]


@pytest.mark.sparing(2)
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_fails_at_a_commit_counts_once(
    feed: Feed, tmp_path: Path, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (kafka_module, postgres_module):
        monkeypatch.setattr(module, "_PAGE_ROWS", 4)
    config = config_of(feed, tmp_path)
    feed.put([{"n": n % 9 + 1, "seen": day(0.5)} for n in range(36)])

    def stop() -> None:
        raise KeyboardInterrupt

    for number in (1, 3):
        with opened(config, Interrupting(stop, at="commit counts", number=number, when=when)) as stream:
            with pytest.raises(KeyboardInterrupt):
                stream.ingest()
            stream.ingest()  # the same process goes on
            stream.ingest()
        feed.put([{"n": 9, "seen": day(0.5)}] * 40)
    env = Hand()
    env.days = 1
    with opened(config, env) as stream:
        assert stream.ingest() == 0
        stream.release()
        assert counted(stream, feed) == {str(n): 4 for n in range(1, 9)} | {"9": 84}


def test_of_each_person_so_many_events_count(feed: Feed, tmp_path: Path) -> None:
    config = config_of(feed, tmp_path, unit='{ person = "who", max_events = 2 }')
    feed.put([{"n": 5, "seen": day(0.5), "who": who} for who in ("a", "b", "a", "a", "c", None, "")])
    env = Hand()
    with opened(config, env) as stream:
        stream.ingest()
    feed.put([{"n": 5, "seen": day(0.5), "who": who} for who in ("a", "b", "b", "d")])
    env.days = 1
    with opened(config, env) as stream:
        stream.ingest()
        stream.release()
        assert counted(stream, feed) == {"5": 6}


def test_after_the_state_was_lost_all_is_read_again_and_old_rows_never_count(feed: Feed, tmp_path: Path) -> None:
    config = config_of(feed, tmp_path)
    env = Hand()
    feed.put([{"n": 1, "seen": day(0.5)}, {"n": 2, "seen": day(1.5)}])
    env.days = 1
    with opened(config, env) as stream:
        stream.ingest()
        stream.release()
    shutil.rmtree(config.state)
    assert adopt(config, gates=lambda tick: ExactGate()).segment
    feed.put([{"n": 1, "seen": day(0.9)}, {"n": 3, "seen": day(1.5)}])
    env.days = 2
    with opened(config, env) as stream:
        stream.ingest()
        stream.release()
        assert counted(stream, feed) == {"1": 1, "2": 1, "3": 1}


def test_the_cursor_is_encrypted_if_there_is_a_key(feed: Feed, tmp_path: Path) -> None:
    feed.put([{"n": 1, "seen": day(0.5)}])
    for name in ("open", "closed"):
        folder = tmp_path / name
        folder.mkdir()
        text = (config_of(feed, folder), (folder / "stream.toml").read_text())[1]
        if name == "closed":
            (tmp_path / "key").write_bytes(os.urandom(32))
            (tmp_path / "key").chmod(0o600)
            text += f'[encryption]\nkey_file = "{tmp_path}/key"\n'
        config = type(config_of(feed, folder)).from_toml(text, base=folder)
        with opened(config) as stream:
            stream.ingest()
        state = b"".join(path.read_bytes() for path in config.state.iterdir())
        assert (b'"place"'.hex().encode() in state) == (name == "open")


def test_a_stream_reads_on_only_from_its_own_log(feed: Feed, tmp_path: Path) -> None:
    config = config_of(feed, tmp_path)
    feed.put([{"n": 1, "seen": day(0.5)}])
    with opened(config) as stream:
        stream.ingest()
    other: Feed = Table(feed.server) if isinstance(feed, Table) else Topic(feed.cluster)  # type: ignore[attr-defined]
    with opened(config_of(other, tmp_path)) as stream, pytest.raises(SourceError, match="from another log"):
        stream.ingest()
    other.end()


def test_a_missing_library_is_named(feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = "postgres" if isinstance(feed, Table) else "kafka"
    for name in ("psycopg", "confluent_kafka"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"synthstream.ingest.{kind}")
    with opened(config_of(feed, tmp_path)) as stream, pytest.raises(ConfigError, match=rf"'synthstream\[{kind}\]'"):
        stream.ingest()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from synthstream.cli.app import main; main()", *arguments]


def test_no_output_tells_how_many_rows_came(feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = []
    for number in (3, 400):
        feed.put([{"n": 1, "seen": "CANARY"}] * number)
        folder = tmp_path / f"{number:03d}"
        folder.mkdir()
        config_of(feed, folder)
        monkeypatch.chdir(folder)
        done = CliRunner().invoke(app, ["run", "stream.toml", "--yes", "--until", "2026-01-03"])
        assert done.exit_code == 0
        outputs.append(re.sub(str(folder), "", done.output))
        assert b'"place"' not in b"".join(path.read_bytes() for path in (folder / "releases").rglob("*.json"))
    assert outputs[0] == outputs[1]
    assert "was read, 2 new release(s)" in outputs[0]
    assert "CANARY" not in outputs[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_a_follower_stops_when_told_to(server: Any, tmp_path: Path, number: signal.Signals) -> None:
    feed = Table(server)
    config_of(feed, tmp_path)
    (tmp_path / "stream.toml").write_text((tmp_path / "stream.toml").read_text().replace("= 30", '= "unbounded"'))
    text = (tmp_path / "stream.toml").read_text().replace('"1d"', '"1y"').replace("2026-01-01", "2024-01-01")
    (tmp_path / "stream.toml").write_text(text)
    line = command("run", "stream.toml", "--yes", "--follow", "--poll", "100ms")
    environment = os.environ | feed.environment() | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(  # noqa: S603
        line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said = ""
        while "Released tick 1" not in said:
            assert process.stdout is not None
            said += process.stdout.readline()
        process.send_signal(number)
        said += process.communicate(timeout=60)[0]
    assert process.returncode == 128 + number
    assert said.startswith(f"Following postgres {feed.name}.")
    assert "Stopped" in said
    assert "Run the same command again to go on" in said
    assert "Traceback" not in said
    feed.end()


def test_a_monitor_learns_whether_a_log_answers(feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(feed, tmp_path)
    assert answers(config) is True
    for key in ("PGPASSWORD", "KAFKA_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(key, raising=False)
    assert answers(config) is False


def test_run_says_that_rows_wait_for_a_writer_and_never_how_many(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_PATIENCE", 0.0)
    feed = Table(server)
    for key, value in feed.environment().items():
        monkeypatch.setenv(key, value)
    Stream(config_of(feed, tmp_path)).close()
    said = set()
    with server.connect() as late:
        late.execute(f"BEGIN; LOCK TABLE {feed.name} IN ROW EXCLUSIVE MODE")
        for number in (0, 5):
            feed.put([{"n": 1, "seen": day(0.5)}] * number)
            told = CliRunner().invoke(app, ["run", str(tmp_path / "stream.toml"), "--yes", "--until", "2026-01-01"])
            said.add(told.stdout)
        late.execute("COMMIT")
    assert len(said) == 1
    assert "has been open for more than ten seconds" in said.pop()
    told = CliRunner().invoke(app, ["run", str(tmp_path / "stream.toml"), "--yes", "--until", "2026-01-01"])
    assert "has been open" not in told.stdout
    feed.end()
