"""The state folder and the places of publication."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from pathlib import Path

import numpy as np
import pytest

from synthstream.counts import Counts
from synthstream.errors import StateCorrupt, StateError, StateLocked
from synthstream.measured import Committed
from synthstream.state.blobs import packed_ints, unpacked_ints
from synthstream.state.store import FORMAT, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


def test_only_the_owner_can_reach_it(store: Store) -> None:
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    for path in store.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path.name


def test_a_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(StateError, match="chmod 700"):
        Store(folder)


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "state").symlink_to(tmp_path / "real")
    with pytest.raises(StateError, match="Symbolic links"):
        Store(tmp_path / "state")


def test_two_writers_are_refused(store: Store) -> None:
    with pytest.raises(StateLocked, match=rf"this process \({os.getpid()}\)"):
        Store(store.folder)
    store.close()
    with (store.folder / "lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StateLocked, match="another process"):
            Store(store.folder)
    Store(store.folder).close()


def test_a_lock_that_is_deleted_lets_no_other_writer_in(store: Store) -> None:
    """Two that look for new files at once would both count one of them: each row in it would count twice."""
    (store.folder / "lock").unlink()
    with pytest.raises(StateLocked, match=rf"this process \({os.getpid()}\)"):
        Store(store.folder)
    store.close()
    Store(store.folder).close()


def test_reading_needs_no_lock(store: Store) -> None:
    with store.transaction("test"):
        store.append_ledger({"words": "one"})
    reader = Store(store.folder, read_only=True)
    assert reader.ledger() == [{"words": "one"}]
    reader.close()


def test_something_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "store.db").write_bytes(b"not a database at all, and long enough to have a header" * 30)
    (folder / "store.db").chmod(0o600)
    with pytest.raises(StateCorrupt):
        Store(folder)
    os.remove(folder / "store.db")
    Store(folder).close()  # the refusal let go of the lock


def test_another_application_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    with sqlite3.connect(folder / "store.db") as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    (folder / "store.db").chmod(0o600)
    with pytest.raises(StateCorrupt, match=f"format {FORMAT}"):
        Store(folder)


def test_a_failed_transaction_leaves_nothing(store: Store) -> None:
    def fail() -> None:
        with store.transaction("test"):
            store.add_pending(0, Counts.of(np.array([1, 2])))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert store.pending(0).dense(2).tolist() == [0, 0]


def test_waiting_counts_add_up_and_are_forgotten(store: Store) -> None:
    with store.transaction("test"):
        store.add_pending(3, Counts.of(np.array([1, 0, 5])))
        store.add_pending(3, Counts.of(np.array([1, 0, -5])))
    assert store.pending(3).dense(3).tolist() == [2, 0, 0]
    with store.transaction("test"):
        store.drop_pending(3)
    assert store.pending(3).dense(3).tolist() == [0, 0, 0]


def test_of_a_state_of_counters_what_differs_alone_is_written(store: Store) -> None:
    for number in (1, 2):
        state = {"t": np.array(number), "sums": np.zeros(100_000, dtype=np.int64)}
        with store.transaction("test"):
            store.put_counter(state)
        written = (store.folder / "store.db-wal").stat().st_size
        store.wipe()
        assert (written > 100_000) == (number == 1)
    found = store.counter()
    assert found is not None
    assert int(found.exact["t"]) == 2


@pytest.mark.parametrize("table", ["ledger", "measurement"])
@pytest.mark.parametrize("change", ["UPDATE {} SET {} = 1", "DELETE FROM {}"])
def test_history_is_append_only(store: Store, table: str, change: str) -> None:
    with store.transaction("test"):
        store.append_ledger({"words": "one"})
        store.append_measurement(Committed(0, np.array([1, 2]), "head"))
    column = {"ledger": "claim", "measurement": "head"}[table]
    with pytest.raises(sqlite3.IntegrityError, match="append only"):
        store.db.execute(change.format(table, column))
    with pytest.raises(sqlite3.IntegrityError), store.transaction("test"):
        store.append_measurement(Committed(0, np.array([3]), "other"))


def test_measurements_come_back_as_they_were(store: Store) -> None:
    values = np.array([0, -1, 2**40, -(2**40), 7])
    with store.transaction("test"):
        store.append_measurement(Committed(0, values, "a"))
        store.append_measurement(Committed(1, -values, "b"))
    assert store.measurement(5) is None
    first, last = store.measurement(0), store.last()
    assert first is not None
    assert last is not None
    assert np.array_equal(first.released, values)
    assert (last.tick, last.head) == (1, "b")
    assert np.array_equal(unpacked_ints(packed_ints(values)), values)


def test_commits_reach_the_disk(store: Store) -> None:
    assert store.db.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL
    assert store.db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
