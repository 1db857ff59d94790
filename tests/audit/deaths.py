"""What a crash may not change: no answer is drawn twice once anyone could have seen it. Suites of ``suites.py``."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from synthstream import Stream
from synthstream.environment import Env
from synthstream.state.store import Store
from tests.audit.streams import configured, published
from tests.support.selective import DAYS, Interrupted, mortal_system
from tests.support.selective import config as selective
from tests.support.selective import visits as selective_visits
from tests.support.visits import visits

T = TypeVar("T")


class Dies(Env):
    """The process ends before, or right after, an effect of some name happens for the n-th time."""

    def __init__(self, name: str, *, after: bool, times: int = 1) -> None:
        self._name, self._after, self._left = name, after, times

    def do(self, name: str, effect: Callable[[], T]) -> T:
        """See :class:`synthstream.environment.Env`."""
        self._left -= name == self._name
        dies = name == self._name and self._left == 0
        if dies and not self._after:
            raise Interrupted
        done = effect()
        if dies:
            raise Interrupted
        return done


class Watching(Env):
    """Asserts, at the moment a release appears, that its measurement can already be read back from the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def do(self, name: str, effect: Callable[[], T]) -> T:
        """See :class:`synthstream.environment.Env`."""
        if name == "rename release":
            there = len(list((self._folder / "releases").glob("[0-9]*")))
            assert len(measured(self._folder)) > there, "published before it was committed"
        return effect()


def measured(folder: Path) -> list[tuple[int, bytes]]:
    """What is committed of every tick, as another process sees it."""
    with contextlib.closing(sqlite3.connect(folder / "state" / "store.db")) as db:
        return db.execute("SELECT tick, released FROM measurement ORDER BY tick").fetchall()


def redraws(folder: Path) -> None:
    """A process that ends anywhere: what was visible stays, nothing is visible that was not committed."""
    deaths = [
        ("draw", True),
        ("commit measurement", False),
        ("commit measurement", True),
        ("rename release", False),
        ("rename release", True),
        ("commit publication", False),
    ]
    for number, (name, after) in enumerate(deaths):
        here = folder / str(number)
        config = configured(here)
        with Stream(config) as stream:
            stream.update(visits([1, 1, 2, 3]))
            stream.release()
        seen, known = published(here), measured(here)
        with pytest.raises(Interrupted), Stream(config, env=Dies(name, after=after)) as stream:
            stream.release()
        if (name, after) in (("draw", True), ("commit measurement", False)):
            assert published(here) == seen, "visible before it was committed"
        seen, known = published(here), measured(here)
        try:
            with Stream(config, env=Watching(here)) as stream:
                stream.release()
        finally:  # also if what was drawn again cannot be built
            assert measured(here)[: len(known)] == known, "drawn again"
        now = published(here)
        assert {path: now.get(path) for path in seen} == seen, "a published file changed"


def interrupted_ticks(folder: Path) -> None:
    """A tick of several draws that is interrupted goes on from those that were drawn."""
    drawn: list[int] = []
    config = selective(folder)
    with Stream(config) as stream:
        stream.update(selective_visits(DAYS))
    for _ in range(4):
        with contextlib.suppress(Interrupted), mortal_system(3, drawn), Stream(config) as stream:
            if stream.closed == 0:
                stream.release()
    assert len(drawn) == 5, "a total, and two choices and measurements"


def durability(folder: Path) -> None:
    """A commit is on the disk when it returns: the setting, as the open file has it."""
    store = Store(folder / "state")
    try:
        assert store.db.execute("PRAGMA synchronous").fetchone()[0] >= 2
        assert store.db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        store.db.execute("INSERT INTO measurement VALUES (0, x'00', 'a')")
        with pytest.raises(sqlite3.IntegrityError):
            store.db.execute("DELETE FROM measurement")
    finally:
        store.close()
