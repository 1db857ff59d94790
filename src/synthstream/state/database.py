"""One SQLite file that may have been damaged, or made by a stranger: opened with care, its errors put in our words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from synthstream.errors import StateCorrupt, StateError, StateRolledBack, StateUnbegun
from synthstream.state.folder import STORE, make_file

_APPLICATION_ID = 0x53594E53  # "SYNS"

# Up to this size the whole file is checked at opening, in about a tenth of a second; beyond, all but the history.
_CHECKED_WHOLE = 256_000_000

_CAREFUL = (
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "temp_store = MEMORY",  # a statement that spills would leave counts in a file elsewhere
)
_DURABLE = (
    "synchronous = FULL",  # NORMAL may forget a commit at power loss, and draw a published tick again
    "secure_delete = ON",
    "recursive_triggers = ON",  # without it REPLACE gets around the triggers that keep history as it is
    "wal_autocheckpoint = 16000",  # 64 MB; a tick's commit should not wait for one, the log is emptied after it anyway
)

# By the low byte of SQLite's code. Its own texts are not passed on: a message is made of fixed words alone.
_TROUBLE = {
    sqlite3.SQLITE_FULL: "there is no space left on its disk, or its quota is used up. Make room",
    sqlite3.SQLITE_IOERR: "its disk fails to read or write, or is full. Check the disk, and that it has room",
    sqlite3.SQLITE_READONLY: "it cannot be written. Check its permissions, and that its disk is mounted for writing",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened. Check its permissions",
    sqlite3.SQLITE_NOMEM: "there is not enough memory. Close other programs",
    sqlite3.SQLITE_PERM: "it cannot be opened. Check its permissions",
    sqlite3.SQLITE_BUSY: "another program has it open. Close that program",
}

T = TypeVar("T")

# Does a side effect under its name: see :meth:`synthstream.environment.Env.do`.
Do = Callable[[str, Callable[[], object]], object]


class Database(sqlite3.Connection):
    """A connection whose errors are of this package: SQLite's texts, tracebacks and data stay inside.

    Raises:
        StateError: the disk is full or fails, or the file cannot be opened or written. What was committed is there.
        StateCorrupt: the file is damaged, or no database.
        sqlite3.IntegrityError: what is append-only was to be changed.
    """

    folder: Path

    def execute(self, *args: Any) -> Cursor:
        """Run a statement; its rows come with errors of this package, too."""
        return self.cursor(Cursor).execute(*args)

    def executemany(self, *args: Any) -> Cursor:
        """Run a statement for each of many rows."""
        return self.cursor(Cursor).executemany(*args)


class Cursor(sqlite3.Cursor):
    """Rows of a :class:`Database`."""

    connection: Database

    def _told(self, step: Callable[[], T]) -> T:
        return _told(self.connection.folder, step)

    def execute(self, *args: Any) -> Cursor:
        return self._told(partial(super().execute, *args))

    def executemany(self, *args: Any) -> Cursor:
        return self._told(partial(super().executemany, *args))

    def fetchmany(self, *args: Any) -> list[Any]:
        return self._told(partial(super().fetchmany, *args))

    def fetchone(self) -> Any:
        return self._told(super().fetchone)

    def fetchall(self) -> list[Any]:
        return self._told(super().fetchall)

    def __next__(self) -> Any:
        return self._told(super().__next__)


def _told(folder: Path, step: Callable[[], T]) -> T:
    try:
        return step()
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):  # a broken rule of the tables is a bug
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _worded(folder, error) from error


def _worded(folder: Path, error: sqlite3.Error | UnicodeDecodeError) -> StateError:
    """The package's own error in place of SQLite's."""
    code, store = getattr(error, "sqlite_errorcode", 0) & 0xFF, folder / STORE
    # A header whose bits have flipped also says that nothing may be written. Of its log and index a file is made with
    # the mode that the store has then.
    files = (folder, *folder.glob(f"{STORE}*"))
    damaged = code == sqlite3.SQLITE_READONLY and all(os.access(path, os.W_OK) for path in files)
    if (trouble := _TROUBLE.get(code)) is not None and not damaged:
        return StateError(f"state folder {folder}: {trouble}, and run again. What was committed is there.")
    return StateCorrupt(
        f"{store} cannot be opened as a Synthstream state: it is damaged, or something else. If it is a copy, restore "
        "it whole; if it is something else, point 'state' to another folder."
    )


def _connected(path: Path, location: str, *, uri: bool) -> Database:
    made: Database = _told(
        path.parent,
        lambda: sqlite3.connect(
            location,
            uri=uri,
            isolation_level=None,
            factory=Database,
            check_same_thread=False,  # a stream lets one thread at a time in
        ),
    )
    made.folder = path.parent
    return made


def opened(
    path: Path, schema: str, version: int, *, read_only: bool, copies: bool, do: Do, fill: Callable[[Database], None]
) -> Database:
    """A checked connection; nothing of the file is believed before its schema is ours, to the letter.

    Args:
        path: the file; created, unless read-only, in a folder that nobody else can reach.
        schema: of an empty store.
        version: of the format.
        copies: take a backup that was put back, too.
        fill: writes into a store that has just been made, in the same transaction.

    Raises:
        StateRolledBack: it is a backup that was put back.
        StateCorrupt: it is no store of this format, or is damaged.
    """
    if not read_only:
        do("make store", lambda: os.close(make_file(path)))
    location = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    database = _connected(path, location, uri=True)
    try:
        for pragma in (*_CAREFUL, *(() if read_only else _DURABLE)):
            database.execute(f"PRAGMA {pragma}")
        if not read_only:
            do("choose write-ahead log", lambda: database.execute("PRAGMA journal_mode = WAL"))
        if _is_new(database):
            if read_only:
                raise StateUnbegun(f"{path.parent}: the first run ended before anything was written down. Run again.")
            with transaction(database, "format", do):
                for statement in statements(schema):
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                database.execute(f"PRAGMA user_version = {version}")
                fill(database)
        _check(database, path, schema, version, copies=copies)
    except BaseException:
        database.close()
        raise
    return database


def _is_new(database: Database) -> bool:
    return not any(
        database.execute(question).fetchone()[0]
        for question in ("SELECT count(*) FROM sqlite_schema", "PRAGMA application_id", "PRAGMA user_version")
    )


def is_copy(database: Database) -> bool:
    """Whether it was made by :func:`copy`: its version is negative."""
    return bool(database.execute("PRAGMA user_version").fetchone()[0] < 0)


def version(database: Database) -> int:
    """The format, of a copy too."""
    return abs(int(database.execute("PRAGMA user_version").fetchone()[0]))


def take(database: Database) -> None:
    """Make a copy an ordinary store."""
    database.execute(f"PRAGMA user_version = {version(database)}")


def copy(database: Database, path: Path) -> None:
    """Write a consistent copy to a new file, mode 0600, marked as one."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    with closing(_connected(path, str(path), uri=False)) as made:
        _told(path.parent, lambda: database.backup(made))
        made.execute("PRAGMA journal_mode = DELETE")
        made.execute(f"PRAGMA user_version = {-version(made)}")


def _check(database: Database, path: Path, schema: str, version: int, *, copies: bool) -> None:
    found = tuple(database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    ours = found[0] == _APPLICATION_ID and abs(found[1]) == version
    if ours and found[1] < 0:
        if not copies:
            raise StateRolledBack(
                f"The state in {path.parent} is a backup: what was drawn after it was made is not in it. Say "
                "`synthstream recover stream.toml --adopt`: it takes the backup if it is as new as what was published, "
                "and says what can be done if not. No noise was drawn."
            )
    elif not ours:
        raise StateCorrupt(
            f"{path} is not a Synthstream state of format {version}. Point 'state' to another folder, or use the "
            "version of Synthstream that wrote it."
        )
    rows = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid"
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(schema)
        tables = empty.execute(rows).fetchall()
    if database.execute(rows).fetchall() != tables:
        raise StateCorrupt(f"{path}: its tables are not those of Synthstream. Restore the folder whole.")
    whole = path.stat().st_size <= _CHECKED_WHOLE
    names = [row[1] for row in tables if row[0] == "table" and row[1] != "measurement"]
    for question in ["PRAGMA quick_check(1)"] if whole else [f"PRAGMA quick_check({name})" for name in names]:
        if database.execute(question).fetchall() != [("ok",)]:
            raise StateCorrupt(f"{path} is damaged. Restore the folder whole.")


@contextmanager
def transaction(database: Database, what: str, do: Do) -> Iterator[None]:
    """All or nothing; on return it is on disk. ``what``: is committed, in a word."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        do(f"commit {what}", lambda: database.execute("COMMIT"))
    except BaseException:
        if database.in_transaction:
            with suppress(StateError):  # the disk that failed may fail again; what was not committed is not there
                database.execute("ROLLBACK")
        raise


def statements(script: str) -> Iterator[str]:
    """Statements of a script; a trigger holds a semicolon of its own, so lines are joined until complete."""
    text = ""
    for line in script.strip().splitlines():
        text += line + "\n"
        if sqlite3.complete_statement(text):
            yield text
            text = ""


class Closed:
    """In place of the file of a store that was closed."""

    def __getattr__(self, _: str) -> Any:
        raise StateError(
            "This stream was closed. Open it again; what was committed is there. Its releases can be asked for "
            'everything without it: synthstream.releases("stream.toml").last'
        )
