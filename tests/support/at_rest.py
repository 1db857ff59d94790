"""A stream whose files are searched for canaries."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from synthstream import Stream, StreamConfig
from synthstream.counts import Counts
from synthstream.state.store import Store
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray
from tests.support.configs import WARD, stream_toml
from tests.support.environments import At

TOML = stream_toml(WARD, column=None, until=None)


def opened(folder: Path, *, toml: str = TOML, days: int = 5) -> Stream:
    config = StreamConfig.from_toml(toml, base=folder)
    return Stream(
        config, gates=lambda tick: SeededGate(f"rest/{tick}"), seed=1, env=At(datetime(2026, 1, 1 + days, tzinfo=UTC))
    )


def fill(stream: Stream, ticks: int) -> None:
    for _ in range(ticks):
        rows = pl.DataFrame({"ward": ["A"] * 20 + ["B"] * (5 + stream.closed)})
        stream.update(rows, batch_id=f"day {stream.closed}")
        stream.release()


def in_files(folder: Path, canary: bytes) -> set[str]:
    """Files that hold any of the numbers of a canary."""
    numbers = np.sort(np.frombuffer(canary, dtype="<i8"))
    found = set()
    for path in folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        for shift in range(8):  # a page may begin anywhere in a blob
            words = np.frombuffer(data[shift : shift + (len(data) - shift) // 8 * 8], dtype="<i8")
            if (numbers[np.searchsorted(numbers, words).clip(max=len(numbers) - 1)] == words).any():
                found.add(path.name)
    return found


def canary(numbers: int = 1000) -> IntArray:
    """Counts of 62 bits that nothing else could have written."""
    return np.frombuffer(secrets.token_bytes(8 * numbers), dtype="<i8").astype(np.int64) >> 1


def plant(store: Store, tick: int) -> list[bytes]:
    """A thousand unmistakable counts in each private table; the second state of the counters replaces the first."""
    values = [canary() for _ in range(4)]
    pending, answer, first, second = values
    with store.transaction("counts"):
        store.add_pending(tick, Counts(np.arange(1000), pending))
        store.put_counter({"t": np.array(tick), "sums": first})
    with store.transaction("counter"):
        store.put_counter({"t": np.array(tick), "sums": second})
    with store.transaction("answer"):
        store.put_answer(tick, 0, "question", answer)
    return [value.tobytes() for value in values]


def close_tick(store: Store, tick: int) -> None:
    with store.transaction("measurement"):
        store.put_counter({"t": np.array(tick + 1), "sums": np.zeros(1000, np.int64)})
        store.drop_pending(tick)
        store.forget("answer", tick)
    store.wipe()


def story(folder: Path, toml: str) -> tuple[int, list[str]]:
    """Ends a stream. Returns the number of ticks and all that was committed and published."""
    with opened(folder, toml=toml) as stream:
        fill(stream, 5 - stream.closed)
        stream.update(pl.DataFrame({"ward": ["A"] * 20 + ["B"] * 5}), batch_id="day 0")  # came before
        committed = [stream._store.measurement(tick) for tick in range(5)]
        heads = [f"{c.head} {c.released.tolist()}" for c in committed if c is not None]
        return stream.closed, [*heads, json.dumps(stream.status()), json.dumps(stream.rows().to_dicts())]


def reached_by_others(*places: Path) -> list[Path]:
    """Files that other users can read: those in places, themselves or below, if each folder on the way lets them in."""
    found = list[Path]()
    for place in places:
        for path in [place, *place.rglob("*")]:
            way = [folder for folder in path.parents if folder.is_relative_to(place)]
            if path.is_file() and path.stat().st_mode & 0o044 and all(f.stat().st_mode & 0o011 for f in way):
                found.append(path)
    return found
