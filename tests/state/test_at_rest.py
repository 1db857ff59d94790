"""The state at rest: who can reach it, what is left in its files, and what a damaged piece does."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.counts import Counts
from synthstream.errors import ConfigError, StateCorrupt, StateError
from synthstream.state.blobs import packed, unpacked, unpacked_ints
from synthstream.state.database import _worded
from synthstream.state.folder import file_system, is_state
from synthstream.state.store import Store
from tests.support.at_rest import TOML, canary, close_tick, fill, in_files, opened, plant, story
from tests.support.environments import At

FILES = ("store.db", "store.db-wal", "store.db-shm", "lock")


# -- who can reach it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177])
def test_modes_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = Store(tmp_path / "state")
        with store.transaction("test"):
            store.add_pending(0, Counts.of(np.array([1])))
        found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.folder.iterdir()}
    finally:
        os.umask(before)
    store.close()
    assert found == dict.fromkeys(FILES, 0o600)
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_others_can_reach_is_refused(tmp_path: Path, name: str, mode: int, read_only: bool) -> None:
    store = Store(tmp_path / "state")
    os.chmod(store.folder / name, mode)
    if not read_only:
        store.close()
        (store.folder / name).touch()
        os.chmod(store.folder / name, mode)
    with pytest.raises(StateError, match=f"chmod 600 .*{name}"):
        Store(store.folder, read_only=read_only)
    store.close()


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o711])
def test_a_folder_that_others_can_reach_is_refused_by_status_too(tmp_path: Path, mode: int) -> None:
    Store(tmp_path / "state").close()
    (tmp_path / "state").chmod(mode)
    for read_only in (False, True):
        with pytest.raises(StateError, match="chmod 700"):
            Store(tmp_path / "state", read_only=read_only)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    Store(tmp_path / "state").close()
    path = tmp_path / "state" / name
    if path.exists():
        path.rename(tmp_path / "moved")
    if kind == "link":
        path.symlink_to(tmp_path / "moved")
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.mkdir(mode=0o700)
    with pytest.raises(StateError, match="Symbolic links" if kind == "link" else "not a file"):
        Store(tmp_path / "state")
    assert path.is_symlink() == (kind == "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", [".", "store.db", "lock"])
def test_what_belongs_to_another_user_is_refused(tmp_path: Path, name: str) -> None:
    Store(tmp_path / "state").close()
    os.chown(tmp_path / "state" / name, 12345, -1)
    with pytest.raises(StateError, match="another user"):
        Store(tmp_path / "state")


def test_network_file_systems_are_known_and_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    places = ("far", r"my\040home")  # a blank, as the system writes it
    shares = "".join(f"box:/{n} {tmp_path}/{name} nfs4 rw 0 0\n" for n, name in enumerate(places))
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\n{shares}")
    assert file_system(tmp_path / "near", mounts.read_text()) == "ext4"
    for name in ("far", "my home"):
        assert file_system(tmp_path / name / "state", mounts.read_text()) == "nfs4"
    assert file_system(tmp_path / "farther", mounts.read_text()) == "ext4"
    monkeypatch.setattr("synthstream.state.folder._MOUNTS", mounts)
    Store(tmp_path / "near").close()
    with pytest.raises(StateError, match=r"network file system \(nfs4\)"):
        Store(tmp_path / "far" / "state")


def test_the_command_line_leaves_no_core_dump(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text(TOML.replace("horizon = 8", "horizon = 8\nuntil = 2026-01-02"))
    code = """
import ctypes, resource, sys
from synthstream.cli.app import main
control = getattr(ctypes.CDLL(None), "prctl", lambda *_: 0)  # of Linux: 4 sets whether it is dumpable, 3 says so
for words in (["status"], ["run", "--yes"], ["backup", "-o", "copy"]):
    resource.setrlimit(resource.RLIMIT_CORE, (4096, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    control(4, 1, 0, 0, 0)
    sys.argv = ["synthstream", *words, "stream.toml"]
    try:
        main()
    except SystemExit as end:
        assert not end.code
    dumpable = control(3, 0, 0, 0, 0) == 1
    print("dumpable" if dumpable else "core", *words, resource.getrlimit(resource.RLIMIT_CORE)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603
    left = [line for line in done.stdout.splitlines() if line.startswith(("core ", "dumpable "))]
    status = "dumpable" if sys.platform == "linux" else "core"
    assert left == [f"{status} status 4096", "core run --yes 0", "core backup -o copy 0"]


# -- what is left in its files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reopened", [False, True])
def test_closed_counts_are_in_no_file(tmp_path: Path, reopened: bool) -> None:
    store = Store(tmp_path / "state")
    for tick in range(25):  # a hundred canaries
        canaries = plant(store, tick)
        seen = [in_files(store.folder, canary) for canary in canaries]
        assert all(seen), "the test must be able to see what is there"
        if reopened:
            store.close()
            store = Store(tmp_path / "state")
        close_tick(store, tick)
        assert [in_files(store.folder, canary) for canary in canaries] == [set()] * 4
    store.close()


def test_without_wiping_they_would_stay(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    canaries = plant(store, 0)
    with store.transaction("measurement"):
        store.drop_pending(0)
    assert in_files(store.folder, canaries[0]) == {"store.db-wal"}
    store.close()
    assert in_files(store.folder, canaries[0]) == set()


def test_counts_of_a_failed_transaction_are_wiped_with_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    counts = canary(300_000)

    def fail() -> None:
        with store.transaction("counts"):
            store.add_pending(0, Counts(np.arange(len(counts)), counts))  # more than SQLite keeps in memory
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert in_files(store.folder, counts[:1000].tobytes()) == {"store.db-wal"}
    close_tick(store, 0)
    assert in_files(store.folder, counts[:1000].tobytes()) == set()
    store.close()


def test_a_stream_wipes_at_each_close(tmp_path: Path) -> None:
    names = list[str]()

    class Listening(At):
        def do(self, name, effect):  # type: ignore[no-untyped-def]
            names.append(name)
            return effect()

    config = StreamConfig.from_toml(TOML, base=tmp_path)
    with Stream(config, env=Listening(datetime(2026, 1, 4, tzinfo=UTC))) as stream:
        fill(stream, 3)
    assert names.count("wipe log") == 3
    assert all(names[i - 1] == "commit measurement" for i, name in enumerate(names) if name == "wipe log")


# -- damage ----------------------------------------------------------------------------------------------------------


def flips(tmp_path: Path, toml: str, number: int, seed: int) -> dict[str, int]:
    """Flip bits of a state that waits for its next rows, one at a time; count what happens."""
    whole = tmp_path / "whole"
    whole.mkdir()
    with opened(whole, toml=toml) as stream:
        fill(stream, 3)
        stream.update(pl.DataFrame({"ward": ["C"] * 9}), batch_id="more")
        with stream._store.transaction("test"):  # counts of a later day
            stream._store.add_pending(4, Counts.of(np.array([0, 3, 1])))
    shutil.copytree(whole, tmp_path / "told")
    right = story(tmp_path / "told", toml)
    data = (whole / "state" / "store.db").read_bytes()
    chance, outcomes = random.Random(seed), {"detected": 0, "harmless": 0}  # noqa: S311 - where to damage, no more
    written = [i for i, byte in enumerate(data) if byte]
    for i in range(number):  # every other one where something is written
        bit = 8 * (chance.choice(written) if i % 2 else chance.randrange(len(data))) + chance.randrange(8)
        folder = tmp_path / "flipped"
        shutil.copytree(whole, folder)
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        (folder / "state" / "store.db").write_bytes(damaged)
        try:
            assert story(folder, toml) == right, f"bit {bit} changed what is released"
            outcomes["harmless"] += 1
        except StateCorrupt:
            outcomes["detected"] += 1
        except ConfigError:  # a bit of the word that names the edition: another one, it says
            outcomes["detected"] += 1
        shutil.rmtree(folder)
    return outcomes


@pytest.mark.parametrize(
    "number", [50, pytest.param(250, marks=pytest.mark.slow), pytest.param(2000, marks=pytest.mark.soak)]
)
def test_a_flipped_bit_is_detected_or_harmless(tmp_path: Path, number: int) -> None:
    outcomes = flips(tmp_path, TOML, number, seed=number)
    print(outcomes)
    assert outcomes["detected"] > number / 5
    assert outcomes["harmless"] > number / 5


def test_a_header_that_seems_to_forbid_writing_is_damage(tmp_path: Path) -> None:
    with opened(tmp_path) as stream:
        fill(stream, 3)
    path = tmp_path / "state" / "store.db"
    data = bytearray(path.read_bytes())
    assert data[18] == 2  # the version of the format of those who write; later ones may only be read
    data[18] = 3
    path.write_bytes(data)
    with pytest.raises(StateCorrupt, match="it is damaged"):
        story(tmp_path, TOML)


def test_a_folder_that_another_user_may_not_look_into_is_told_as_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a first run by root, of whom a service does the others."""

    def refused(_: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    Store(tmp_path / "state").close()
    monkeypatch.setattr(Path, "exists", refused)
    with pytest.raises(StateError, match=r"Permission denied\. What was committed is there\. Mend that"):
        is_state(tmp_path / "state")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(StateError, match=r"belongs to another user\. Run as its owner"):
        is_state(tmp_path / "state")


def test_a_file_beside_the_store_that_may_not_be_written_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite makes the index of its log with the mode that the store has, and that may have been mended since."""
    Store(tmp_path / "state").close()
    (index := tmp_path / "state" / "store.db-shm").touch()
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != index)
    refused = sqlite3.OperationalError()
    refused.sqlite_errorcode = sqlite3.SQLITE_READONLY
    assert "it cannot be written. Check its permissions" in str(_worded(index.parent, refused))


def changed(folder: Path, sql: str) -> None:
    with sqlite3.connect(folder / "store.db") as db:
        db.executescript(sql)
    db.close()


DELETED = "DROP TRIGGER measurement_delete; DELETE FROM measurement WHERE tick = 0; CREATE TRIGGER measurement_delete "
STRANGE = {
    "another table": "CREATE TABLE extra (x)",
    "a trigger": "CREATE TRIGGER more AFTER INSERT ON pending BEGIN SELECT 1; END",
    "no trigger": "DROP TRIGGER ledger_update",
    "a view": "DROP TABLE models; CREATE VIEW models AS SELECT 0 AS id, 0 AS tick, x'00' AS arrays",
    "no file": "DELETE FROM ingested",
    "another file": "UPDATE ingested SET item = 'batch other' WHERE item = 'batch more'",
    "a tick moved": "UPDATE pending SET tick = tick + 1",
    "a tick missing": "DELETE FROM pending",
    "a charge": "INSERT INTO ledger VALUES (1, '{}')",
    "another secret": "UPDATE meta SET value = replace(value, 'a', 'b') WHERE key = 'secret'",
    "another name": "UPDATE meta SET value = 'x' WHERE key = 'id'",
    "a stranger's seal": "UPDATE meta SET value = 'rot13' WHERE key = 'encryption'",
    "no sum": "DELETE FROM digest",
    "no history": DELETED + "BEFORE DELETE ON measurement BEGIN SELECT RAISE(ABORT, 'append only'); END",
    "another format": "PRAGMA user_version = 99",
}


@pytest.mark.parametrize("what", STRANGE)
def test_what_we_did_not_write_is_refused(tmp_path: Path, what: str) -> None:
    with opened(tmp_path) as stream:
        fill(stream, 2)
        stream.update(pl.DataFrame({"ward": ["C"] * 9}), batch_id="more")
    changed(tmp_path / "state", STRANGE[what])
    with pytest.raises(StateCorrupt):
        opened(tmp_path)


def test_damage_in_the_middle_of_a_run_is_told_in_our_words(tmp_path: Path) -> None:
    with opened(tmp_path) as stream:
        fill(stream, 1)
        changed(tmp_path / "state", "DROP TABLE models")
        with pytest.raises(StateCorrupt, match="it is damaged, or something else"):
            stream.release()


def test_a_full_disk_is_no_damage(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    pages = store.db.execute("PRAGMA page_count").fetchone()[0]
    store.db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StateError, match="no space left on its disk") as caught, store.transaction("test"):
        store.add_pending(0, Counts(np.arange(9000), canary(9000)))
    assert not isinstance(caught.value, StateCorrupt)
    with store.transaction("test"):
        store.put_ingested("file", "mac")  # what fits is still written, and the sum is right
    store.close()
    store = Store(tmp_path / "state")
    assert store.ingested("file") == "mac"
    store.close()


def bombs() -> Iterator[bytes]:
    good = packed({"cell": np.arange(50), "count": np.arange(50)})
    yield b""
    yield good[:-30]
    yield good.replace(b"(50,)", b"(5e9,)")
    yield good.replace(b"(50,), }   ", b"(99999999999,), }"[:11].ljust(11))
    yield good.replace(b"<i8", b"|O8")
    for write in (np.savez_compressed, np.save):
        buffer = io.BytesIO()
        write(buffer, np.zeros(1_000_000, np.int64))
        yield buffer.getvalue()


@pytest.mark.parametrize("blob", list(bombs()), ids=range(7))
def test_what_is_no_array_is_one_error(blob: bytes) -> None:
    with pytest.raises(StateCorrupt, match="arrays"):
        unpacked(blob)
    with pytest.raises(StateCorrupt, match="arrays"):
        unpacked_ints(blob)
