"""The disk under a state: its lock, and what to say when it fails."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from synthstream.environment import words
from synthstream.errors import StateCorrupt, StateError

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


class Lock:
    """An open file; lets go of it by itself, should Ctrl-C come before anyone has it."""

    def __init__(self, handle: int) -> None:
        self.handle: int | None = handle

    def same(self, other: Lock) -> bool:
        """Whether both are open, and one file."""
        both = [os.fstat(one.handle) for one in (self, other) if one.handle is not None]
        return len(both) > 1 and os.path.samestat(*both)

    def close(self) -> None:
        """Let go of it."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    __del__ = close


def failed(folder: Path, error: OSError) -> StateError:
    """What to say when the operating system failed at the state folder."""
    return StateError(f"state folder {folder}: {words(error)}. What was committed is there. Mend that, and run again.")


def told(folder: Path, error: sqlite3.Error | UnicodeDecodeError) -> Exception:
    """The package's own error in place of SQLite's; a broken rule of the tables is a bug, and stays what it is."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # A header whose bits have flipped also says that nothing may be written.
    damaged = code == sqlite3.SQLITE_READONLY and os.access(folder / "store.db", os.W_OK) and os.access(folder, os.W_OK)
    if (trouble := _TROUBLE.get(code)) is not None and not damaged:
        return StateError(f"state folder {folder}: {trouble}, and run again. What was committed is there.")
    return StateCorrupt(
        f"{folder / 'store.db'} cannot be opened as a Synthstream state: it is damaged, or something else. If it is a "
        "copy, restore it whole; if it is something else, point 'state' to another folder."
    )
