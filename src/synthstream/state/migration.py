"""A state of an older format is brought forward in place: step by step, all of it in one transaction, a copy first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from synthstream.state import database
from synthstream.state.database import Database, Do
from synthstream.state.folder import STORE
from synthstream.state.sums import RowSums

# A public setting: the format that a state began with, if it was an older one.
BEGAN = "began with format"


def _to_4(rows: RowSums) -> None:
    """From format 4 on, rows that are late wait apart, and rows beyond the horizon each for a tick of their own."""
    rows.put("meta", BEGAN, "3")


_STEPS: dict[int, Callable[[RowSums], None]] = {3: _to_4}


def migrate(folder: Path, db: Database, rows: RowSums, *, newest: int, do: Do) -> None:
    """Bring a state forward to the newest format; a backup that was put back is left as it is until it is adopted.

    What it was is kept beside it, marked as a backup: as secret as the state, and to be deleted when it is not needed.
    """
    found = database.version(db)
    if database.is_copy(db) or found == newest:
        return
    aside = folder / f"{STORE}.format-{found}"
    do("clear old format", partial(aside.unlink, missing_ok=True))
    do("copy old format", partial(database.copy, db, aside))
    with database.transaction(db, "newer format", do):
        rows.begin()
        for step in range(found, newest):
            _STEPS[step](rows)
        rows.finish()
        db.execute(f"PRAGMA user_version = {newest}")
