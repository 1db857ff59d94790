"""A stream of ten years of days, stopped and opened again at random; and states of earlier versions."""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.kernel.gate import Gate
from synthstream.release.tables import TableRelease
from synthstream.stream.verification import verify
from tests.support.environments import At
from tests.support.gates import ExactGate
from tests.support.streams import text_of

DAYS, RESTARTS = 3650, 200
STATES = Path(__file__).parent / "states"


def exact(tick: int) -> Gate:
    return ExactGate()


def ten_years(folder: Path, days: int) -> StreamConfig:
    """Daily ticks for ten years; rows of a release are kept for ten days."""
    text = text_of("always").replace("until = 2026-01-09\n", "").replace("horizon = 12", f"horizon = {days}")
    return StreamConfig.from_toml(text.replace('path = "releases"', 'path = "releases"\nkeep = 10'), base=folder)


def live(folder: Path, *, days: int, restarts: int, seed: int) -> int:
    """Run it; the number of events that came."""
    chance, rng = random.Random(seed), np.random.default_rng(seed)  # noqa: S311 - when to restart, nothing more
    stops = set(chance.sample(range(days), restarts))
    config, env, came = ten_years(folder, days), At(datetime(2100, 1, 1, tzinfo=UTC)), 0
    stream = Stream(config, gates=exact, env=env)
    for day in range(days):
        number = int(rng.poisson(3))
        when = datetime(2026, 1, 1) + timedelta(days=day + float(rng.normal(0, 2)))  # early, in time, or late
        frame = pl.DataFrame({"when": [when] * number, "ward": ["A"] * number, "x": [1.0] * number})
        stream.update(frame, batch_id=str(day))
        if day in stops:
            stream.close()
            stream = Stream(config, gates=exact, env=env)
            stream.update(frame, batch_id=str(day))  # who was interrupted sends it again
        stream.release()
        came += number if when < config.clock.boundary(days).replace(tzinfo=None) else 0
    with stream:
        assert isinstance(stream.last, TableRelease)
        assert round(float(stream.last.table([])["measured"][0])) == came
    assert verify(config).findings == []
    kept = len(list((folder / "releases").glob("*/rows.parquet")))
    assert kept == 10
    return came


def test_restarts_lose_and_double_nothing(tmp_path: Path) -> None:
    assert live(tmp_path, days=60, restarts=20, seed=1) > 60


@pytest.mark.soak
def test_ten_years_of_days(tmp_path: Path) -> None:
    assert live(tmp_path, days=DAYS, restarts=RESTARTS, seed=2) > DAYS


def stored(place: Path, state: str) -> Path:
    """A copy of one."""
    folder = place / state
    shutil.copytree(STATES / state, folder)
    folder.joinpath("state").chmod(0o700)
    for path in folder.joinpath("state").iterdir():
        path.chmod(0o600)
    return folder


@pytest.mark.sparing(22)  # the newest formats
@pytest.mark.parametrize(
    "state", sorted((path.name for path in STATES.iterdir()), reverse=True) if STATES.is_dir() else []
)
def test_a_stored_state_of_an_earlier_version_goes_on(tmp_path: Path, state: str) -> None:
    """Made by ``python -m tests.crash.store_state``; kept for ever."""
    folder = stored(tmp_path, state)
    before = {p: p.read_bytes() for p in (folder / "releases").rglob("*.*")}
    config = StreamConfig.from_toml((folder / "stream.toml").read_text(), base=folder)
    assert verify(config).findings == []
    with Stream(config, env=At(datetime(2100, 1, 1, tzinfo=UTC))) as stream:
        closed = stream.closed
        assert closed == 4
        stream.release()
        assert stream.closed == 5
    assert {p: p.read_bytes() for p in before} == before
    assert verify(config).findings == []
