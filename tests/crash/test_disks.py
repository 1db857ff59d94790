"""Disks that are full or fail at one chosen place, and what comes of first openings, leftovers and interruptions."""

from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from synthstream.cli.app import app
from synthstream.environment import Env
from synthstream.errors import SinkError, StateError, StateLocked
from synthstream.state.store import Store
from synthstream.stream.stream import Stream
from tests.crash import world
from tests.support.environments import Interrupting, Recording, When, Within, failing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    world.prepare(tmp_path, "table")
    (tmp_path / "stream.toml").write_text(world.KINDS["table"])
    return tmp_path


def opened(folder: Path, env: Env | None = None) -> Stream:
    return Stream(world.config_of(folder, "table"), gates=world.gates(True), env=env or Env())


def released(stream: Stream, folder: Path) -> int:
    """The total after one more tick."""
    world.deliver(stream, folder)
    return round(float(stream.release().tables["count"][0]))


def limited(at: str) -> Within:
    """A world in which no file may grow beyond 100 bytes during one side effect; the system itself sees to it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def enter() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))

    return Within(enter, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before), at=at)


@pytest.mark.parametrize("at", ["commit counts", "commit measurement", "write rows", "write manifest"])
def test_a_write_that_stops_in_the_middle_is_told_and_taken_up_again(folder: Path, at: str) -> None:
    with opened(folder, limited(at)) as stream:
        with pytest.raises(SinkError if at.startswith("write") else StateError, match="run again"):
            released(stream, folder)
        world.deliver(stream, folder)
        if stream.closed == 0:
            stream.release()
    with opened(folder) as stream:
        assert released(stream, folder) == world.totals()[1]


def test_sqlite_itself_may_find_no_room(folder: Path) -> None:
    with opened(folder) as stream:
        pages = stream._store.db.execute("PRAGMA page_count").fetchone()[0]
        stream._store.db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StateError, match="no space left"):
            all(released(stream, folder) for _ in range(world.TICKS))
        closed = stream.closed
        stream._store.db.execute("PRAGMA max_page_count = 100000")
        total = released(stream, folder)  # and of a tick before, if that was drawn in part when there was no room
        assert stream.closed in (closed + 1, closed + 2)
        assert total == world.totals()[stream.closed - 1]


@pytest.mark.sparing(5)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", ["drop old rows", "sync sink", "rename release", "make sink", "sync sink's name"])
def test_a_sink_that_fails_is_a_sink_error_and_is_caught_up(folder: Path, at: str, when: When) -> None:
    with opened(folder, failing(errno.EIO, at=at, when=when)) as stream:
        with pytest.raises(SinkError, match="Input/output error"):
            released(stream, folder)
        assert stream.last is None
        assert released(stream, folder) == world.totals()[1]


def test_a_release_that_was_renamed_and_not_synced_is_synced_before_it_counts_as_published(folder: Path) -> None:
    """Otherwise a loss of power could take it away after the state said that it was there."""
    with opened(folder, failing(errno.EIO, at="sync sink")) as stream, pytest.raises(SinkError):
        released(stream, folder)
    assert (folder / "releases" / "000000").is_dir()
    again = Recording()
    opened(folder, again).close()
    assert "rename release" not in again.names
    assert again.names.index("sync sink") < again.names.index("commit publication")


def test_old_rows_whose_removal_failed_are_removed_later(folder: Path) -> None:
    with opened(folder, failing(errno.EIO, at="drop old rows", number=4)) as stream:
        for _ in range(3):
            released(stream, folder)
        with pytest.raises(SinkError):
            released(stream, folder)
        assert (folder / "releases" / "000000" / "rows.parquet").exists()
    opened(folder).close()
    assert not (folder / "releases" / "000000" / "rows.parquet").exists()


@pytest.mark.sparing(5)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", ["commit counts", "draw", "commit measurement", "rename release", "commit publication"])
def test_an_interrupted_side_effect_can_be_tried_again_with_the_same_stream(folder: Path, at: str, when: When) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with opened(folder, Interrupting(interrupt, at=at, when=when)) as stream:
        with pytest.raises(KeyboardInterrupt):
            released(stream, folder)
        world.deliver(stream, folder)
        if stream.closed == 0:
            stream.release()
        assert released(stream, folder) == world.totals()[1]


def test_an_empty_folder_in_place_of_a_release_is_not_replaced(folder: Path) -> None:
    with opened(folder) as stream:
        (folder / "releases" / "000000").mkdir(parents=True)
        with pytest.raises(SinkError, match="cannot be read as a Synthstream manifest"):
            released(stream, folder)
    assert list((folder / "releases" / "000000").iterdir()) == []


WHEN: tuple[When, ...] = ("before", "after")
FIRST = ["make state folder", "lock state", "make store", "choose write-ahead log", "commit format", "commit settings"]


@pytest.mark.sparing(6)
@pytest.mark.parametrize(("at", "when"), [(at, w) for at in FIRST for w in WHEN if (at, w) != ("lock state", "after")])
def test_a_first_opening_that_failed_is_begun_again_and_status_says_so(folder: Path, at: str, when: When) -> None:
    with pytest.raises(StateError, match="run again"):
        opened(folder, failing(errno.ENOSPC, at=at, when=when))
    said = CliRunner().invoke(app, ["status", str(folder / "stream.toml")])
    assert said.exit_code in (0, 2)
    if said.exit_code:
        assert "Run again" in said.output
    with opened(folder) as stream:
        assert released(stream, folder) == world.totals()[0]


def test_status_reads_a_log_that_a_killed_run_left(folder: Path) -> None:
    code = (
        "from pathlib import Path; from tests.support.environments import killed; from tests.crash import world; "
        f"world.drive(Path({str(folder)!r}), 'table', exact=False, env=killed(at='close store'), ticks=2)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL  # noqa: S603
    assert (folder / "state" / "store.db-wal").stat().st_size > 0
    store = Store(folder / "state", read_only=True)
    last = store.last()
    store.close()
    assert last is not None
    assert last.tick == 1


def test_two_first_openings_at_once_leave_one_stream(folder: Path) -> None:
    """The second comes between the first's lock and its file."""
    seen: list[type[Exception]] = []

    def other() -> None:
        try:
            opened(folder).close()
        except StateLocked as error:
            seen.append(type(error))

    for at in ("lock state", "make store", "commit format", "commit settings"):
        Stream(
            world.config_of(folder, "table"), gates=world.gates(True), env=Interrupting(other, at=at, when="after")
        ).close()
        if at == "lock state":
            assert seen == [StateLocked]
    with opened(folder) as stream:
        assert released(stream, folder) == world.totals()[0]
        assert len(stream.status()["spent"]) == 1


def test_the_command_line_shows_no_traceback_of_a_full_disk(folder: Path) -> None:
    """The process's own limit on the size of files stops every write of the store."""
    main = "from synthstream.cli.app import main; main()"
    command = [sys.executable, "-c", main, "run", str(folder / "stream.toml"), "--yes"]
    done = subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("Error: state folder")
    assert "run again" in done.stderr
