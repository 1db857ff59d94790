"""One SQLite file that may have been damaged, or made by a stranger: opened with care, its errors put in our words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from synthstream.environment import Env
from synthstream.errors import StateCorrupt, StateError, StateRolledBack
from synthstream.io.folder import make_file

_APPLICATION_ID = 0x53594E53  # "SYNS"

# The machine's fault, not the file's.
_OUTSIDE = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
}

# Up to this size the whole file is checked at opening, in about a tenth of a second; beyond, all but the history.
_CHECKED_WHOLE = 256_000_000

_CAREFUL = (
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "temp_store = MEMORY",  # a statement that spills would leave counts in a file elsewhere
)
_DURABLE = (
    "journal_mode = WAL",
    "synchronous = FULL",  # NORMAL may forget a commit at power loss, and draw a published tick again
    "secure_delete = ON",
    "recursive_triggers = ON",  # without it REPLACE gets around the triggers that keep history as it is
    "wal_autocheckpoint = 16000",  # 64 MB; a tick's commit should not wait for one, the log is emptied after it anyway
)

T = TypeVar("T")


class Database(sqlite3.Connection):
    """A connection whose errors are of this package; ``IntegrityError`` (append only) stays as it is."""

    def execute(self, *args: Any) -> _Cursor:
        """Run a statement; its rows come with errors of this package, too."""
        return self.cursor(_Cursor).execute(*args)

    def executemany(self, *args: Any) -> _Cursor:
        """Run a statement for each of many rows."""
        return self.cursor(_Cursor).executemany(*args)


class _Cursor(sqlite3.Cursor):
    def execute(self, *args: Any) -> _Cursor:
        return _translated(partial(super().execute, *args))

    def executemany(self, *args: Any) -> _Cursor:
        return _translated(partial(super().executemany, *args))

    def fetchmany(self, *args: Any) -> list[Any]:
        return _translated(partial(super().fetchmany, *args))

    def fetchone(self) -> Any:
        return _translated(super().fetchone)

    def fetchall(self) -> list[Any]:
        return _translated(super().fetchall)

    def __next__(self) -> Any:
        return _translated(super().__next__)


def _translated(step: Callable[[], T]) -> T:
    try:
        return step()
    except sqlite3.IntegrityError:
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OUTSIDE:
            name = getattr(error, "sqlite_errorname", "")
            raise StateError(
                f"The state could not be read or written ({name}). What was committed before is there. Make room, or "
                "mend the disk, and run again."
            ) from error
        raise StateCorrupt(
            f"The state is damaged, or is something else ({type(error).__name__}). If it is a copy, restore it whole; "
            "if it is something else, point 'state' to another folder."
        ) from error


def opened(
    path: Path,
    schema: str,
    version: int,
    *,
    read_only: bool,
    copies: bool,
    env: Env,
    fill: Callable[[Database], None],
) -> Database:
    """A checked connection; nothing of the file is believed before its schema is ours, to the letter.

    Args:
        path: the file; created, unless read-only, in a folder that nobody else can reach.
        schema: of an empty store.
        version: of the format.
        read_only: look only.
        copies: take a backup that was put back, too.
        env: does the side effects.
        fill: writes into a store that has just been made, in the same transaction.

    Raises:
        StateRolledBack: it is a backup that was put back.
        StateCorrupt: it is no store of this format, or is damaged.
    """
    if not read_only:
        env.do("make store", lambda: os.close(make_file(path)))
    location = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    database: Database = _translated(
        lambda: sqlite3.connect(location, uri=True, isolation_level=None, factory=Database)
    )
    try:
        for pragma in (*_CAREFUL, *(() if read_only else _DURABLE)):
            database.execute(f"PRAGMA {pragma}")
        if not read_only and _is_new(database):
            with transaction(database, "format", env):
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


def take(database: Database) -> None:
    """Make a copy an ordinary store."""
    version = abs(database.execute("PRAGMA user_version").fetchone()[0])
    database.execute(f"PRAGMA user_version = {version}")


def copy(database: Database, path: Path) -> None:
    """Write a consistent copy to a new file, mode 0600, marked as one."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    with closing(sqlite3.connect(path, isolation_level=None, factory=Database)) as made:
        _translated(lambda: database.backup(made))
        made.execute("PRAGMA journal_mode = DELETE")
        made.execute(f"PRAGMA user_version = {-abs(made.execute('PRAGMA user_version').fetchone()[0])}")


def _check(database: Database, path: Path, schema: str, version: int, *, copies: bool) -> None:
    found = tuple(database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if found == (_APPLICATION_ID, -version):
        if not copies:
            raise StateRolledBack(
                f"The state in {path.parent} is a backup: what was drawn after it was made is not in it. Say "
                "`synthstream recover --adopt` to go on from what was published. No noise was drawn."
            )
    elif found != (_APPLICATION_ID, version):
        raise StateCorrupt(
            f"{path} is not a Synthstream state of format {version}. Point 'state' to another folder, or use the "
            "version of Synthstream that wrote it."
        )
    rows = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid"
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(schema)
        ours = empty.execute(rows).fetchall()
    if database.execute(rows).fetchall() != ours:
        raise StateCorrupt(f"{path}: its tables are not those of Synthstream. Restore the folder whole.")
    whole = path.stat().st_size <= _CHECKED_WHOLE
    tables = [row[1] for row in ours if row[0] == "table" and row[1] != "measurement"]
    for question in ["PRAGMA quick_check(1)"] if whole else [f"PRAGMA quick_check({name})" for name in tables]:
        if database.execute(question).fetchall() != [("ok",)]:
            raise StateCorrupt(f"{path} is damaged. Restore the folder whole.")


@contextmanager
def transaction(database: Database, what: str, env: Env) -> Iterator[None]:
    """All or nothing; on return it is on disk. ``what``: is committed, in a word."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        env.do(f"commit {what}", lambda: database.execute("COMMIT"))
    except BaseException:
        if database.in_transaction:
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
