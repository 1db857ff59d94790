"""A small stream of visits to wards, and how tests run it."""

from __future__ import annotations

from datetime import datetime

import polars as pl

import synthstream
from synthstream import Stream
from synthstream.kernel.gate import Gate
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.configs import AGE, SINK, WARD, source, stream_toml
from tests.support.gates import ExactGate

TOML = stream_toml(WARD, AGE, source("visits*.parquet"), SINK)


def visits(days: list[int], *, ward: str = "A", age: float = 30.0) -> pl.DataFrame:
    """One row per given day of January 2026."""
    when = [datetime(2026, 1, d, 12) for d in days]
    return pl.DataFrame({"when": when, "ward": [ward] * len(days), "age": [age] * len(days)})


def exact(_: int) -> Gate:
    return ExactGate()


def seeded(tick: int) -> Gate:
    return SeededGate(f"test/{tick}")


def finish(stream: Stream) -> synthstream.Release:
    """Close every tick that is due, without looking for files."""
    while stream.due():
        stream.release()
    assert stream.last is not None
    return stream.last


def total(release: synthstream.Release) -> float:
    return float(release.measured.values[0])
