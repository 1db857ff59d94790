"""Copies of a stream, to go on from if its state is lost."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import polars as pl

from synthstream.config.config import StreamConfig
from synthstream.config.sources import may_fit
from synthstream.environment import make_folder, sync, sync_parent, words
from synthstream.errors import StateError
from synthstream.publish.outlets import public_folder
from synthstream.state.folder import STORE, is_state
from synthstream.state.store import Store
from synthstream.stream.opening import begun
from synthstream.stream.verification import Progress

_PUBLIC = ("measurements.parquet", "ledger.json", "settings.json")


def backup(config: StreamConfig, folder: Path, *, progress: Progress = iter) -> None:
    """Copy a stream, also while it runs: ``public`` holds what was measured and spent, ``private`` the state.

    Restoring means adopting: put ``private`` in the place of the state, and say
    ``synthstream recover stream.toml --adopt``.

    Args:
        folder: must not exist.

    Raises:
        StateError: there is no state, or the folder cannot be written.
    """
    if not is_state(config.state):
        raise StateError(f"There is no state in {config.state} to back up.")
    config = begun(config)
    _refuse_place(config, folder)
    store = Store(config.state, read_only=True)
    try:
        make_folder(folder)
        (folder / "public").mkdir()
        (folder / "private").mkdir(mode=0o700)
        store.copy_to(folder / "private" / STORE)
        marked = store.population()  # what was drawn and not yet published is private: it may be drawn again
        rows = [store.measurement(tick) for tick in progress(range(0 if marked is None else marked[0] + 1))]
        frame = pl.DataFrame(
            [(row.tick, row.head, row.released.tolist()) for row in rows if row is not None],
            schema={"tick": pl.Int64, "head": pl.String, "released": pl.List(pl.Int64)},
            orient="row",
        )
        frame.write_parquet(content := BytesIO())  # what polars raises for a full disk is no error of the system
        measured, ledger, settings = (folder / "public" / name for name in _PUBLIC)
        measured.write_bytes(content.getvalue())
        ledger.write_text(json.dumps(store.ledger(), indent=2) + "\n")
        settings.write_text((store.meta("config") or "{}") + "\n")
        for path in [*folder.rglob("*"), folder]:
            sync(path)
        sync_parent(folder)
    except (OSError, StateError) as error:
        why = f"{words(error)}." if isinstance(error, OSError) else f"{error}"
        left = " The backup there is incomplete: delete it." if folder.exists() else ""
        raise StateError(f"backup {folder}: {why}{left}") from error
    finally:
        store.close()


def _refuse_place(config: StreamConfig, folder: Path) -> None:
    """Raise if a backup would lie where it is published, or where it is lost together with the state."""
    if folder.exists():
        raise StateError(f"-o {folder} is there already. Name a folder that does not exist yet.")
    place = folder.resolve()
    if public := public_folder(config, place):
        raise StateError(
            f"-o {folder} lies in {public}, which is published; a backup is as secret as the data. Name another "
            "folder. Nothing was written."
        )
    files = [folder / "private" / STORE, *(folder / "public" / name for name in _PUBLIC)]
    if config.source is not None and any(may_fit(config.source.path, file) for file in files):
        raise StateError(f"-o {folder} fits the path of [source]: a run would read it. Name another folder.")
    if place.is_relative_to(config.state.resolve()):
        raise StateError(
            f"-o {folder} lies in the state folder, and would be lost with it. Name another folder. "
            "Nothing was written."
        )
