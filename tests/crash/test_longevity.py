"""A stream of ten years of days, stopped and opened again at random; and states of earlier versions."""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.config.config import load
from synthstream.errors import StateCorrupt, StateMismatch, StateRolledBack
from synthstream.kernel.gate import Gate
from synthstream.publish.published import Releases
from synthstream.release.release import TableRelease
from synthstream.stream.recovery import adopt, republish
from synthstream.stream.succession import succeed
from synthstream.stream.verification import verify
from synthstream.synthesizers.assembly import claim_facts
from synthstream.synthesizers.succession import promise_of
from tests.support.environments import At, Interrupting, When
from tests.support.gates import ExactGate
from tests.support.libraries import exponentials, inverses
from tests.support.streams import configured, text_of

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


# By state, what its numbers were made of, and that there: elsewhere it may be refused (docs/limits.md).
OF_LIBRARIES = {
    "format-3-points-zcdp": (exponentials, "f87a337d32a73043"),
    "format-4-points-zcdp": (exponentials, "f87a337d32a73043"),
    "format-4-refresh": (inverses, "60f3657bfb73935c"),
}


def refused(config: StreamConfig) -> bool:
    """Whether no run goes on with it. Then ``verify`` says so too, and nothing is drawn."""
    try:
        Stream(config).close()
    except (StateMismatch, StateCorrupt) as refusal:
        return "o noise was drawn" in str(refusal) and verify(config).findings != []
    return False


@pytest.mark.sparing(22)  # the newest formats
@pytest.mark.parametrize(
    "state", sorted((path.name for path in STATES.iterdir()), reverse=True) if STATES.is_dir() else []
)
def test_a_stored_state_of_an_earlier_version_goes_on(tmp_path: Path, state: str) -> None:
    """Made by ``python -m tests.crash.store_state``; kept for ever."""
    folder = stored(tmp_path, state)
    before = {p: p.read_bytes() for p in (folder / "releases").rglob("*.*")}
    config = StreamConfig.from_toml((folder / "stream.toml").read_text(), base=folder)
    found, there = OF_LIBRARIES.get(state, (str, ""))
    if found() != there and refused(config):
        assert {p: p.read_bytes() for p in before} == before
        pytest.skip(f"{found.__name__} of the libraries have other last bits than where this state was made")
    assert verify(config).findings == []
    with Stream(config, env=At(datetime(2100, 1, 1, tzinfo=UTC))) as stream:
        closed = stream.closed
        assert closed == 4
        stream.release()
        assert stream.closed == 5
    assert {p: p.read_bytes() for p in before} == before
    assert verify(config).findings == []
    kept = folder / "state/store.db.format-3"
    assert kept.exists() == state.startswith("format-3")  # what it was, as a backup
    if kept.exists():
        kept.replace(folder / "state/store.db")
        with pytest.raises(StateRolledBack, match="is a backup"):
            Stream(config)


def test_a_state_of_an_older_format_says_what_cannot_go_on(tmp_path: Path) -> None:
    """Rows that wait in it are not told apart as later formats tell them."""
    folder = stored(tmp_path, "format-3-always")
    text = (folder / "stream.toml").read_text()
    (folder / "new.toml").write_text(
        text.replace("epsilon = 2.0", "epsilon = 1.0") + '[after]\nconfig = "stream.toml"\n'
    )
    old, new = load(folder / "stream.toml"), load(folder / "new.toml")
    with pytest.raises(StateMismatch, match="began with an earlier version"):
        succeed(old, new)
    succeed(old, new, read_again=True)
    with Stream(new, env=At(datetime(2100, 1, 1, tzinfo=UTC))) as stream:
        assert stream.release().tick == 4
    assert verify(new, rebuild=True).findings == []


@pytest.mark.parametrize("step", ["copy old format", "commit newer format"])
def test_a_migration_that_ends_in_between_begins_again(tmp_path: Path, step: str) -> None:
    folder = stored(tmp_path, "format-3-epochs")
    config = load(folder / "stream.toml")

    def fail() -> None:
        raise RuntimeError

    when: When
    for when in ("before", "after"):
        with pytest.raises(RuntimeError):
            Stream(config, env=Interrupting(fail, at=step, when=when))
    with Stream(config) as stream:
        assert stream.closed == 4
    assert verify(config).findings == []


def test_a_stream_that_began_with_fewer_words_keeps_them_wherever_it_is_taken_up(tmp_path: Path) -> None:
    """Its chain covers the words of its claim; a new stream says more."""
    folder, later = stored(tmp_path, "format-3-hypercube"), At(datetime(2100, 1, 1, tzinfo=UTC))
    config = StreamConfig.from_toml((folder / "stream.toml").read_text(), base=folder)
    claims = [json.loads(path.read_text())["claim"] for path in folder.glob("releases/*/manifest.json")]
    assert len(claims) == 4
    assert claims[0]["words"].endswith("being replaced.")
    with Stream(config, env=later) as stream:
        assert stream.release().manifest()["claim"] == claims[0]
    shutil.rmtree(folder / "releases" / "000004")
    assert republish(config) == 1
    shutil.rmtree(folder / "state")
    assert adopt(config).start == 5
    with Stream(config, env=later) as stream:
        (spent,) = stream.status()["spent"]
        assert {key for key in spent if spent[key] != claims[0][key]} == {"theorems", "trusts"}  # of going on
        assert stream.release().manifest()["claim"]["words"] == claims[0]["words"]
    assert Releases(config).last.tick == 5
    assert verify(config).findings == []
    with Stream(configured(tmp_path / "new", "hypercube"), env=later) as stream:
        words = stream.release().manifest()["claim"]["words"]
    assert words == claims[0]["words"].replace("being replaced.", "being replaced by another one of the same tick.")


def test_a_stream_whose_rows_take_away_keeps_its_words_also_after_a_cut(tmp_path: Path) -> None:
    folder, later = stored(tmp_path, "format-4-points-signed"), At(datetime(2100, 1, 1, tzinfo=UTC))
    config = load(folder / "stream.toml")
    claim = json.loads((folder / "releases" / "000003" / "manifest.json").read_text())["claim"]
    assert "(one row, adding or taking away)" in claim["words"]
    with Stream(config, env=later) as stream:
        assert stream.release().manifest()["claim"] == claim
    found = promise_of(config)
    assert "(one row, adding or taking away; a row that is changed" in found.facts["words"]
    for parts in ("", " It is the largest of its parts"):
        written = {"words": claim["words"] + parts}
        assert claim_facts(found.claim, found.budget, written=[written])["words"] == claim["words"]
