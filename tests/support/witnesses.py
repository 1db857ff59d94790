"""Streams with a mirror, snapshots of them, and what must draw no noise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest

from synthstream import Stream, StreamConfig
from synthstream.kernel.gate import SystemGate
from synthstream.state.store import Store
from tests.support.streams import rows, text_of

MIRROR = '\n[[mirror]]\nkind = "delta"\npath = "{place}"\n'
EARLY, LATE = 2, 4


def prepared(folder: Path, kind: str = "always", *, place: str = "lake") -> StreamConfig:
    folder.mkdir(exist_ok=True)
    rows(60, 1).write_parquet(folder / "rows-1.parquet")
    text = text_of(kind) + MIRROR.format(place=place)
    (folder / "stream.toml").write_text(text)
    return StreamConfig.from_toml(text, base=folder)


def run(config: StreamConfig, ticks: int, **how: Any) -> None:
    """Release until so many ticks are closed."""
    with Stream(config, **how) as stream:
        list(stream.run(until=datetime(2026, 1, 1 + ticks, tzinfo=UTC)))
        assert stream.closed == ticks


def kept(config: StreamConfig, folder: Path) -> Callable[[], None]:
    """Copy state and releases; calling what is returned puts them back in place of what is there then."""
    for name in ("state", "releases"):
        shutil.copytree(config.base / name, folder / name)

    def restore() -> None:
        for name in ("state", "releases"):
            shutil.rmtree(config.base / name)
            shutil.copytree(folder / name, config.base / name)
        config.state.chmod(0o700)

    return restore


def drawn(config: StreamConfig) -> tuple[int, int]:
    """How many ticks a state has measured, and whether another one was begun."""
    store = Store(config.state, read_only=True)
    try:
        last = store.last()
        closed = 0 if last is None else last.tick + 1
        return closed, int(store.half_drawn(closed))
    finally:
        store.close()


@contextmanager
def no_noise() -> Iterator[None]:
    """No noise may be drawn. The system's own gate is told so: another one would be another kind of run."""

    def refused(self: SystemGate, *_: object, **__: object) -> NoReturn:
        raise AssertionError("was asked for noise")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemGate, "answer", refused)
        yield


def block(config: StreamConfig) -> Path:
    """Put the table away, and something else in its way."""
    lake, away = config.base / "lake", config.base / "away"
    if lake.exists():
        lake.rename(away)
    lake.write_text("in the way")
    return away


def manifests(config: StreamConfig) -> list[Any]:
    found = [json.loads(p.read_text()) for p in sorted((config.base / "releases").glob("0*/manifest.json"))]
    return [manifest.get("unchecked") for manifest in found]
