"""PRIVATE. The state of a stream, to look at: for commands that write nothing."""

from __future__ import annotations

from pathlib import Path

from synthstream.errors import StateUnbegun
from synthstream.state.folder import is_state
from synthstream.state.store import Store


def to_look_at(folder: Path) -> Store | None:
    """The state of a stream that was opened in a folder: its budget stands in the ledger. Writes nothing; close it."""
    if not is_state(folder):
        return None
    try:
        store = Store(folder, read_only=True)
    except StateUnbegun:
        return None
    if store.ledger():
        return store
    store.close()
    return None


def began(folder: Path) -> bool:
    """Whether a stream was opened in a folder. Writes nothing."""
    store = to_look_at(folder)
    if store is not None:
        store.close()
    return store is not None
