"""The disk under a state and its releases: names that outlast a loss of power, and what to say when it fails."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

from synthstream.errors import StateCorrupt, StateError

# By the low byte of SQLite's code. Its own texts are not passed on: a message is made of fixed words alone.
_TROUBLE = {
    sqlite3.SQLITE_FULL: "there is no space left on its disk, or its quota is used up. Make room",
    sqlite3.SQLITE_IOERR: "its disk fails to read or write, or is full. Check the disk, and that it has room",
    sqlite3.SQLITE_READONLY: "it cannot be written. Check its permissions, and that its disk is mounted for writing",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened. Check its permissions",
    sqlite3.SQLITE_BUSY: "another program has it open. Close that program",
}
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def words(error: OSError) -> str:
    """What the operating system says about a failure, without names of files or anything read from them."""
    return "it cannot be read or written" if error.errno is None else os.strerror(error.errno)


def sync(path: Path) -> None:
    """On return, a file's content, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_parent(path: Path) -> None:
    """On return, a name is on disk; where a folder may not be listed, this is left to the system."""
    with suppress(PermissionError):
        sync(path.absolute().parent)


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Create a folder, and its parents with their names on disk, unless it exists. Its own name is not synced."""
    for parent in reversed(folder.absolute().parents):
        if not parent.exists():
            parent.mkdir(exist_ok=True)
            sync_parent(parent)
    folder.mkdir(mode=mode, exist_ok=True)


class Lock:
    """An open file; lets go of it by itself, should Ctrl-C come before anyone has it."""

    def __init__(self, handle: int) -> None:
        self.handle: int | None = handle

    def close(self) -> None:
        """Let go of it."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    __del__ = close


class Connection(sqlite3.Connection):
    """A connection whose failures are this package's: SQLite's texts, tracebacks and data stay inside.

    Raises:
        StateError: the disk is full or fails, or the file cannot be opened or written. What was committed is there.
        StateCorrupt: the file is damaged, or no database.
    """

    folder: Path

    def execute(self, *args: Any) -> sqlite3.Cursor:
        """See :meth:`sqlite3.Connection.execute`."""
        try:
            return super().execute(*args)
        except sqlite3.DatabaseError as error:
            if (told := _told(self.folder, error)) is error:
                raise
            raise told from error


def connect(path: Path, *, read_only: bool) -> Connection:
    """A connection to a state's file. Transactions begin and end as they are told to."""
    try:
        database = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
        connection = sqlite3.connect(database, uri=True, isolation_level=None, factory=Connection)
    except sqlite3.DatabaseError as error:
        raise _told(path.parent, error) from error
    connection.folder = path.parent
    return connection


def failed(folder: Path, error: OSError) -> StateError:
    """What to say when the operating system failed at the state folder."""
    return StateError(f"state folder {folder}: {words(error)}. What was committed is there. Mend that, and run again.")


def _told(folder: Path, error: sqlite3.DatabaseError) -> Exception:
    """The package's own error in place of SQLite's; a broken rule of the tables is a bug, and stays what it is."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGED:
        return StateCorrupt(
            f"{folder / 'store.db'} cannot be opened as a Synthstream state: it is damaged, or something else. If it "
            "is a copy, restore it whole; if it is something else, point 'state' to another folder."
        )
    if not isinstance(error, sqlite3.OperationalError):
        return error
    trouble = _TROUBLE.get(code, "its file cannot be used. Close every program that uses it")
    return StateError(f"state folder {folder}: {trouble}, and run again. What was committed is there.")
