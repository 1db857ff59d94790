"""The durable state of a stream: one SQLite file in a folder of its own, one writer.

One transaction holds cursor, counter state, noisy measurement and hash-chain head. The tables ``pending``,
``counter`` and ``answer`` hold exact counts, or noise from which they follow: they are as secret as the rows.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import secrets
import sqlite3
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from synthstream.counts import Counts
from synthstream.environment import REAL, Env
from synthstream.errors import StateCorrupt, StateError, StateLocked
from synthstream.io.disk import Lock, connect, failed, make_folder, sync_parent, words
from synthstream.workload import IntArray

FORMAT = 3
_APPLICATION_ID = 0x53594E53  # "SYNS"
T = TypeVar("T")
Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE ledger (id INTEGER PRIMARY KEY, claim TEXT NOT NULL) STRICT;
CREATE TABLE ingested (item TEXT PRIMARY KEY, mac TEXT NOT NULL) STRICT;
CREATE TABLE pending (tick INTEGER PRIMARY KEY, counts BLOB NOT NULL) STRICT;
CREATE TABLE counter (id INTEGER PRIMARY KEY CHECK (id = 0), state BLOB NOT NULL) STRICT;
CREATE TABLE measurement (tick INTEGER PRIMARY KEY, released BLOB NOT NULL, head TEXT NOT NULL) STRICT;
CREATE TABLE population (id INTEGER PRIMARY KEY CHECK (id = 0), tick INTEGER NOT NULL, codes BLOB NOT NULL) STRICT;
CREATE TABLE answer (
    tick INTEGER, call INTEGER, question TEXT NOT NULL, drawn BLOB NOT NULL, PRIMARY KEY (tick, call)
) STRICT;
CREATE TABLE models (id INTEGER PRIMARY KEY CHECK (id = 0), tick INTEGER NOT NULL, arrays BLOB NOT NULL) STRICT;
CREATE TABLE segment (start INTEGER PRIMARY KEY, model BLOB NOT NULL) STRICT;
CREATE TABLE published (tick INTEGER PRIMARY KEY, manifest TEXT NOT NULL) STRICT;
CREATE TRIGGER ledger_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER ledger_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER measurement_update BEFORE UPDATE ON measurement BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER measurement_delete BEFORE DELETE ON measurement BEGIN SELECT RAISE(ABORT, 'append only'); END;
"""


class Committed(NamedTuple):
    """One row of the public history: a tick, its released integers and the chain head after it."""

    tick: int
    released: IntArray
    head: str


class Store:
    """The state folder, opened by one process at a time.

    Args:
        folder: created with mode 0700 if it does not exist.
        read_only: look without the lock, while another process may be writing.
        env: does the side effects.

    Raises:
        StateLocked: another process has it open.
        StateError: it can be read by group or others, is a symbolic link, or cannot be written.
        StateCorrupt: it is not a Synthstream state, is of another format, or is damaged.
    """

    def __init__(self, folder: Path, *, read_only: bool = False, env: Env = REAL) -> None:
        self.folder, self._env = folder, env
        self._lock: Lock | None = None
        path = folder / "store.db"
        if not read_only:
            self._do("make state folder", partial(_private_folder, folder))
            self._do("sync state's name", partial(sync_parent, folder))
            self._lock = self._do("lock state", partial(_locked, folder / "lock"))
        try:
            if read_only:
                self._db = connect(path, read_only=True)
                self._check_format()
            else:
                self._do("make store", lambda: os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)))
                self._db = connect(path, read_only=False)
                self._prepare()
        except BaseException:
            self._unlock()
            raise

    def _do(self, name: str, effect: Callable[[], T]) -> T:
        try:
            return self._env.do(name, effect)
        except OSError as error:
            raise failed(self.folder, error) from error

    def _prepare(self) -> None:
        for pragma in (
            "trusted_schema = OFF",
            "cell_size_check = ON",
            "synchronous = FULL",  # NORMAL may forget a commit at power loss, and draw a published tick again
            "secure_delete = ON",
        ):
            self._db.execute(f"PRAGMA {pragma}")
        self._do("choose write-ahead log", lambda: self._db.execute("PRAGMA journal_mode = WAL"))
        if not self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            with self.transaction("format"):
                for statement in _statements(_SCHEMA):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {FORMAT}")
                self.put_meta("secret", secrets.token_hex(32))
        self._check_format()

    def _check_format(self) -> None:
        found = self._db.execute("PRAGMA application_id").fetchone()[0]
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found == version == 0 and not self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise StateError(f"{self.folder}: the first run ended before anything was written down. Run again.")
        if found != _APPLICATION_ID or version != FORMAT:
            raise StateCorrupt(
                f"{self.folder / 'store.db'} is not a Synthstream state of format {FORMAT}. Point 'state' to another "
                "folder, or use the version of Synthstream that wrote it."
            )

    def close(self) -> None:
        """Close the file and let go of the lock."""
        try:
            self._do("close store", self._db.close)
        finally:
            self._db = _Closed()  # type: ignore[assignment]
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @contextmanager
    def transaction(self, what: str) -> Iterator[None]:
        """All or nothing; on return it is on disk. ``what``: is committed, in a word."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._do(f"commit {what}", lambda: self._db.execute("COMMIT"))
        except BaseException:
            if self._db.in_transaction:
                with suppress(StateError):  # the disk that failed may fail again; what was not committed is not there
                    self._db.execute("ROLLBACK")
            raise

    # -- public facts ------------------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        """A public setting, or ``None``."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put_meta(self, key: str, value: str) -> None:
        """Set a public setting."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def drop_meta(self, key: str) -> None:
        """Forget a public setting."""
        self._db.execute("DELETE FROM meta WHERE key = ?", (key,))

    def ledger(self) -> list[dict[str, Any]]:
        """All charges, oldest first."""
        rows = self._db.execute("SELECT claim FROM ledger ORDER BY id").fetchall()
        return [json.loads(row[0]) for row in rows]

    def append_ledger(self, claim: dict[str, Any]) -> None:
        """Write down a charge; it can never be changed."""
        self._db.execute("INSERT INTO ledger (claim) VALUES (?)", (json.dumps(claim, sort_keys=True),))

    def last(self) -> Committed | None:
        """The newest measurement."""
        row = self._db.execute("SELECT tick, released, head FROM measurement ORDER BY tick DESC LIMIT 1").fetchone()
        return None if row is None else Committed(row[0], _unpacked_ints(row[1]), row[2])

    def measurement(self, tick: int) -> Committed | None:
        """The measurement of a tick."""
        row = self._db.execute("SELECT tick, released, head FROM measurement WHERE tick = ?", (tick,)).fetchone()
        return None if row is None else Committed(row[0], _unpacked_ints(row[1]), row[2])

    def append_measurement(self, committed: Committed) -> None:
        """Write down what passed the gate; it can never be changed."""
        blob = _packed_ints(committed.released)
        self._db.execute("INSERT INTO measurement VALUES (?, ?, ?)", (committed.tick, blob, committed.head))

    def population(self) -> tuple[int, Arrays] | None:
        """The newest published tick and the rows fitted to it."""
        row = self._db.execute("SELECT tick, codes FROM population").fetchone()
        return None if row is None else (int(row[0]), _unpacked(row[1]))

    def put_population(self, tick: int, arrays: Arrays) -> None:
        """Mark a tick as published, with its rows."""
        self._db.execute("INSERT OR REPLACE INTO population VALUES (0, ?, ?)", (tick, _packed(arrays)))

    def segments(self) -> list[tuple[int, Arrays]]:
        """First ticks of the segments after the first, in order, and the models that they go on from."""
        rows = self._db.execute("SELECT start, model FROM segment ORDER BY start").fetchall()
        return [(int(start), _unpacked(blob)) for start, blob in rows]

    def append_segment(self, start: int, model: Arrays) -> None:
        """Begin a segment."""
        self._db.execute("INSERT INTO segment VALUES (?, ?)", (start, _packed(model)))

    def published(self, tick: int) -> str | None:
        """SHA-256 of the manifest under which a tick was published, or ``None``."""
        row = self._db.execute("SELECT manifest FROM published WHERE tick = ?", (tick,)).fetchone()
        return None if row is None else str(row[0])

    def put_published(self, tick: int, manifest: str) -> None:
        """Remember what was published for a tick."""
        self._db.execute("INSERT OR REPLACE INTO published VALUES (?, ?)", (tick, manifest))

    def models(self) -> tuple[int, Arrays] | None:
        """The newest committed tick whose models are kept, and these."""
        row = self._db.execute("SELECT tick, arrays FROM models").fetchone()
        return None if row is None else (int(row[0]), _unpacked(row[1]))

    def put_models(self, tick: int, arrays: Arrays) -> None:
        """Keep what was fitted while a tick was drawn."""
        self._db.execute("INSERT OR REPLACE INTO models VALUES (0, ?, ?)", (tick, _packed(arrays)))

    # -- private ------------------------------------------------------------------------------------------------

    def ingested(self, item: str) -> str | None:
        """The fingerprint under which a file or batch was counted, or ``None`` if it was not."""
        row = self._db.execute("SELECT mac FROM ingested WHERE item = ?", (item,)).fetchone()
        return None if row is None else str(row[0])

    def put_ingested(self, item: str, mac: str) -> None:
        """Remember that a file or batch was counted."""
        self._db.execute("INSERT INTO ingested VALUES (?, ?)", (item, mac))

    def sound(self) -> bool:
        """Whether the file is a sound database, page by page."""
        try:
            return bool(self._db.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",))
        except (sqlite3.DatabaseError, StateError):
            return False

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy of the whole store to a new file, mode 0600, marked as a copy."""
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
        with closing(sqlite3.connect(path, isolation_level=None)) as copy:
            self._db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            copy.execute("INSERT OR REPLACE INTO meta VALUES ('copy', 'yes')")

    def untouched(self) -> bool:
        """Whether nothing was ever counted or drawn."""
        tables = ("pending", "ingested", "answer", "measurement")
        return not any(self._db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() for name in tables)  # noqa: S608

    def half_drawn(self, tick: int) -> bool:
        """Whether some answers of a tick were drawn although it is not closed."""
        return self._db.execute("SELECT 1 FROM answer WHERE tick = ? LIMIT 1", (tick,)).fetchone() is not None

    def answer(self, tick: int, call: int, question: str) -> IntArray | None:
        """What the gate answered to one call of a tick that is not yet closed, or ``None``; empty if the question was
        another. Private: with the counts it tells the noise of open tree nodes.
        """
        found = self._db.execute(
            "SELECT question, drawn FROM answer WHERE tick = ? AND call = ?", (tick, call)
        ).fetchone()
        if found is None:
            return None
        return np.frombuffer(found[1], dtype="<i8").astype(np.int64) if found[0] == question else np.zeros(0, np.int64)

    def put_answer(self, tick: int, call: int, question: str, drawn: IntArray) -> None:
        """Write down what the gate answered; it can never be drawn again. Not compressed: its size tells nothing."""
        blob = np.ascontiguousarray(drawn, dtype="<i8").tobytes()
        self._db.execute("INSERT INTO answer VALUES (?, ?, ?, ?)", (tick, call, question, blob))

    def drop_answers(self, tick: int) -> None:
        """Forget the single answers of a tick that has been closed."""
        self._db.execute("DELETE FROM answer WHERE tick = ?", (tick,))

    def pending(self, tick: int) -> Counts:
        """Exact counts that wait for a tick to close. Private."""
        row = self._db.execute("SELECT counts FROM pending WHERE tick = ?", (tick,)).fetchone()
        if row is None:
            return Counts(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        sparse = _unpacked(row[0])
        return Counts(sparse["cell"], sparse["count"])

    def add_pending(self, tick: int, counts: Counts) -> None:
        """Add exact counts to those that wait for a tick. Private."""
        total = self.pending(tick).plus(counts)
        blob = _packed({"cell": total.cells, "count": total.numbers})
        self._db.execute("INSERT OR REPLACE INTO pending VALUES (?, ?)", (tick, blob))

    def drop_pending(self, tick: int) -> None:
        """Forget the exact counts of a tick that has been closed."""
        self._db.execute("DELETE FROM pending WHERE tick = ?", (tick,))

    def counter(self) -> Arrays | None:
        """State of the counters. Private."""
        row = self._db.execute("SELECT state FROM counter").fetchone()
        return None if row is None else _unpacked(row[0])

    def put_counter(self, state: Arrays) -> None:
        """Replace the state of the counters. Private."""
        self._db.execute("INSERT OR REPLACE INTO counter VALUES (0, ?)", (_packed(state),))


class _Closed:
    """In place of the file of a store that was closed."""

    def __getattr__(self, name: str) -> Any:
        if name == "close":
            return lambda: None
        raise StateError("This stream was closed. Open it again; what was committed is there.")


def _private_folder(folder: Path) -> None:
    try:
        make_folder(folder, mode=0o700)
        mode = folder.lstat().st_mode
    except OSError as error:
        raise StateError(f"state folder {folder}: {words(error)}. Choose a folder that can be written.") from error
    if not stat.S_ISDIR(mode):
        raise StateError(f"state folder {folder} is not a folder. Symbolic links are not followed; name it itself.")
    if mode & 0o077:
        raise StateError(
            f"state folder {folder} can be reached by other users (mode {mode & 0o777:03o}); it will hold exact "
            f"counts. Run: chmod 700 {folder}"
        )


def _locked(path: Path) -> Lock:
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    lock = Lock(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise StateLocked(
            f"state folder {path.parent} is in use by another process. Wait for it to end; two writers would draw "
            "noise twice."
        ) from error
    except OSError:
        lock.close()
        raise
    return lock


def _statements(script: str) -> Iterator[str]:
    """Statements of a script; a trigger holds a semicolon of its own, so lines are joined until complete."""
    text = ""
    for line in script.strip().splitlines():
        text += line + "\n"
        if sqlite3.complete_statement(text):
            yield text
            text = ""


def _packed(arrays: Arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _unpacked(blob: bytes) -> Arrays:
    with np.load(io.BytesIO(blob), allow_pickle=False) as stored:
        return dict(stored)


def _packed_ints(values: IntArray) -> bytes:
    """Integers as bytes, low bytes of all first, so that the high ones compress."""
    planes = np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(-1, 8).T
    return zlib.compress(np.ascontiguousarray(planes).tobytes(), 1)


def _unpacked_ints(blob: bytes) -> IntArray:
    planes = np.frombuffer(zlib.decompress(blob), dtype=np.uint8).reshape(8, -1)
    return np.ascontiguousarray(planes.T).view("<i8").reshape(-1).astype(np.int64)
