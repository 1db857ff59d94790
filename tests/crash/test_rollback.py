"""Old copies, forks, lost and swapped places: each is refused or adopted, and nothing published ever changes.

Real noise, real files; where two writers race, real processes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from synthstream import Stream, StreamConfig
from synthstream.environment import Env, T
from synthstream.errors import (
    RecoveryRefused,
    SinkError,
    StateCorrupt,
    StateError,
    StateLocked,
    StateRolledBack,
    SynthstreamError,
)
from synthstream.publish.folder import ParquetSink
from synthstream.stream.backups import backup
from synthstream.stream.recovery import adopt, republish
from synthstream.stream.verification import published as verify_published
from synthstream.stream.verification import verify
from tests.support.streams import configured, published, rows

RUNS = [pytest.param(2, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.soak)]


class World:
    """A stream in a folder, and everybody who has ever looked at its releases."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)  # noqa: S311 - what happens when, nothing more
        self.kind = self.chance.choice(["always", "epochs", "points"])
        folder.mkdir(parents=True)
        rows(60, seed).write_parquet(folder / "rows-1.parquet")
        self.seen: dict[str, bytes] = {}
        self.day = 1

    @property
    def config(self) -> StreamConfig:
        return configured(self.folder, self.kind, until=f"2026-01-{self.day:02d}")

    def run(self, days: int = 0) -> None:
        """Release that many days more; none: random, at least one."""
        self.day += days or self.chance.randint(1, 2)
        with Stream(self.config) as stream:
            list(stream.run())
        self.look()

    def look(self) -> None:
        """No byte that anyone has seen may differ."""
        now = published(self.folder / "releases")
        assert {name: now.get(name) for name in self.seen} == self.seen
        self.seen |= now

    def refused(self, error: type[SynthstreamError], match: str) -> None:
        """Running on is refused, and changes nothing; the message holds no count of anything private."""
        before = published(self.folder / "releases")
        self.day += 1
        with pytest.raises(error, match=match) as raised, Stream(self.config) as stream:
            list(stream.run())
        self.day -= 1
        said = str(raised.value).replace(str(self.folder), "")  # which may hold any number
        assert not re.search(r"\b60\b", said)
        assert published(self.folder / "releases") == before

    def adopted(self) -> None:
        """Going on from what was published; whatever was published stays, and all of it is sound."""
        assert adopt(self.config).segment
        self.run()
        assert verify(self.config).findings == []

    def edit(self, *statements: str) -> None:
        with contextlib.closing(sqlite3.connect(self.config.state / "store.db")) as db, db:
            for statement in statements:
                db.execute(statement)


def old_copy(world: World) -> None:
    """A store older than its sink."""
    world.run()
    shutil.copytree(world.config.state, world.folder / "copy")
    world.run()
    shutil.rmtree(world.config.state)
    shutil.move(world.folder / "copy", world.config.state)
    world.refused(StateRolledBack, "did not make")
    world.adopted()


def original_after_copy(world: World) -> None:
    """A copied folder goes on first; the first one is refused."""
    world.run()
    shutil.copytree(world.config.state, world.folder / "first")
    world.run()
    shutil.rmtree(world.config.state)
    shutil.move(world.folder / "first", world.config.state)
    world.refused(StateRolledBack, "did not make")


def two_at_once(world: World) -> None:
    """Two processes on one state."""
    world.run()
    with Stream(world.config):
        world.refused(StateLocked, "in use by this process")
    world.run()


def _race(folder: str, kind: str, until: str, state: str) -> None:
    text = configured(Path(folder), kind, until=until)
    config = StreamConfig(**{**text.__dict__, "state": Path(folder) / state})
    with contextlib.suppress(SinkError, StateRolledBack), Stream(config) as stream:
        list(stream.run())


def race_of_copies(world: World) -> None:
    """Two copies run at the same time and publish to one place: each tick is published once, by one of them."""
    world.run(1)
    shutil.copytree(world.config.state, world.folder / "twin")
    context = multiprocessing.get_context("spawn")
    args = [(str(world.folder), world.kind, "2026-01-05", state) for state in ("state", "twin")]
    racers = [context.Process(target=_race, args=arg) for arg in args]
    for racer in racers:
        racer.start()
    while any(racer.is_alive() for racer in racers):
        world.look()
        time.sleep(0.01)
    assert [racer.exitcode for racer in racers] == [0, 0]
    world.look()
    world.day = 5
    # The published chain is whole, whoever won each tick; a state that lost one is refused from now on.
    assert published_findings(world.config) == []
    with contextlib.suppress(StateRolledBack), Stream(world.config) as stream:
        list(stream.run())
    world.look()


def published_findings(config: StreamConfig) -> list[str]:
    """What is wrong with the releases alone."""
    place = config.sink
    assert place is not None
    return [finding.what for finding in verify_published(config, ParquetSink(place.path))]


def sink_lost(world: World) -> None:
    """The releases are gone; the state builds them again, byte for byte."""
    world.run()
    shutil.rmtree(world.folder / "releases")
    with pytest.raises(StateRolledBack, match="place of publication is empty"):
        Stream(world.config)
    republish(world.config)
    world.look()
    world.run()


def newest_release_lost(world: World) -> None:
    """The newest release is gone."""
    world.run(2)
    shutil.rmtree(world.folder / f"releases/{world.day - 2:06d}")
    world.refused(StateRolledBack, "Restore the missing ones")
    republish(world.config)
    world.look()
    world.run()


def sink_swapped(world: World) -> None:
    """Somebody else's releases lie in the place of publication."""
    world.run()
    other = World(world.folder / "other", 1000 + world.chance.randint(0, 999))
    other.kind = world.kind
    other.run(world.day - 1)
    shutil.move(world.folder / "releases", world.folder / "aside")
    shutil.copytree(other.folder / "releases", world.folder / "releases")
    with pytest.raises(StateRolledBack, match="did not make"):
        Stream(world.config)
    shutil.rmtree(world.folder / "releases")
    shutil.move(world.folder / "aside", world.folder / "releases")
    world.run()


def state_swapped(world: World) -> None:
    """The state of another run of the same configuration."""
    world.run()
    other = World(world.folder / "other", 1000 + world.chance.randint(0, 999))
    other.kind = world.kind
    other.run(world.day - 1)
    shutil.move(world.config.state, world.folder / "aside")
    shutil.copytree(other.config.state, world.config.state)
    world.refused(StateRolledBack, "did not make")
    shutil.rmtree(world.config.state)
    shutil.move(world.folder / "aside", world.config.state)
    world.run()


def edited_measurement(world: World) -> None:
    """Somebody edits the newest measurement in the store."""
    world.run(2)
    world.edit(
        "DROP TRIGGER measurement_update",
        "UPDATE measurement SET released = (SELECT released FROM measurement WHERE tick = 0) "
        "WHERE tick = (SELECT max(tick) FROM measurement)",
    )
    with pytest.raises(StateCorrupt):
        Stream(world.config)
    world.look()


def edited_manifest(world: World) -> None:
    """Somebody edits the newest manifest."""
    world.run()
    path = world.folder / f"releases/{world.day - 2:06d}/manifest.json"
    whole = path.read_text()
    path.write_text(whole.replace('"rows": ', '"rows": 1'))
    world.refused(StateRolledBack, "is not what was published")
    path.write_text(whole)
    world.run()


def edited_rows(world: World) -> None:
    """Somebody edits published rows: verify finds the file."""
    world.run(2)
    place = f"{world.chance.randint(0, 1):06d}"
    path = world.folder / "releases" / place / world.chance.choice(["rows.parquet", "tables.parquet"])
    content = bytearray(path.read_bytes())
    content[world.chance.randrange(len(content))] ^= 1 << world.chance.randrange(8)
    path.write_bytes(content)
    assert [f.where for f in verify(world.config).findings] == [place]


def state_lost(world: World) -> None:
    """The state is gone."""
    world.run()
    shutil.rmtree(world.config.state)
    world.refused(StateRolledBack, "There is no state")
    world.adopted()


def unpublished_tick_comes_back(world: World) -> None:
    """A tick was drawn and not published; the state is lost, adopted, and the lost one comes back."""
    world.run()
    (world.folder / "releases").rename(world.folder / "away")
    (world.folder / "releases").write_text("no folder")
    world.day += 1
    with pytest.raises((SinkError, StateError)), Stream(world.config) as stream:
        list(stream.run())
    (world.folder / "releases").unlink()
    (world.folder / "away").rename(world.folder / "releases")
    with contextlib.suppress(SynthstreamError):
        shutil.move(world.config.state, world.folder / "lost")
    adopt(world.config)
    with Stream(world.config) as stream:
        list(stream.run())
    world.look()
    shutil.rmtree(world.config.state)
    shutil.move(world.folder / "lost", world.config.state)
    world.refused(StateRolledBack, "did not make")


def backup_put_back(world: World) -> None:
    """The private part of a backup is put in the place of the state."""
    world.run()
    backup(world.config, world.folder / "backup")
    late = world.chance.random() < 0.5
    if late:
        world.run()
    shutil.rmtree(world.config.state)
    shutil.move(world.folder / "backup/private", world.config.state)
    world.refused(StateRolledBack, "is a backup")
    assert adopt(world.config).segment == late
    world.run()
    assert verify(world.config).findings == []


class _Stops(Env):
    """Ends at the n-th side effect."""

    def __init__(self, after: int) -> None:
        self._left = after

    def do(self, name: str, effect: Callable[[], T]) -> T:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return effect()


def adopting_is_interrupted(world: World) -> None:
    """Adopting stops anywhere; said again, it goes through."""
    world.run()
    if world.chance.random() < 0.5:
        shutil.rmtree(world.config.state)
    else:
        shutil.copytree(world.config.state, world.folder / "copy")
        world.run()
        shutil.rmtree(world.config.state)
        shutil.move(world.folder / "copy", world.config.state)
    for stop in range(world.chance.randint(0, 3), 99, 3):
        try:
            adopt(world.config, env=_Stops(stop))
            break
        except KeyboardInterrupt:
            world.look()
        except RecoveryRefused:  # it had gone through before it was interrupted; what follows would show if not
            break
    world.run()
    assert verify(world.config).findings == []


def counters_lost(world: World) -> None:
    """The private state inside of the store is gone."""
    world.run()
    world.edit("DELETE FROM counter")
    world.refused(StateCorrupt, "a row is missing")


def anchor_ahead(world: World) -> None:
    """A stream without a sink, put back from an old copy."""

    def sinkless(day: int) -> StreamConfig:
        world.day = day
        return StreamConfig(**{**world.config.__dict__, "sink": None})

    for day in (2, 3):
        with Stream(sinkless(day)) as stream:
            list(stream.run())
        if day == 2:
            shutil.copytree(world.config.state, world.folder / "copy")
    shutil.rmtree(world.config.state)
    shutil.move(world.folder / "copy", world.config.state)
    with pytest.raises(StateRolledBack, match="did not make"):
        Stream(sinkless(3))


SCENARIOS = (
    old_copy,
    original_after_copy,
    two_at_once,
    race_of_copies,
    sink_lost,
    newest_release_lost,
    sink_swapped,
    state_swapped,
    edited_measurement,
    edited_manifest,
    edited_rows,
    state_lost,
    unpublished_tick_comes_back,
    backup_put_back,
    adopting_is_interrupted,
    counters_lost,
    anchor_ahead,
)


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if s is not race_of_copies], ids=lambda s: s.__name__)
def test_scenario(tmp_path: Path, scenario: Callable[[World], None]) -> None:
    scenario(World(tmp_path / "world", 7))


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_scenario_again_and_again(tmp_path: Path, scenario: Callable[[World], None], runs: int) -> None:
    for seed in range(4, 4 + runs):  # of the first two, the first has a stream of tables, the second one of points
        scenario(World(tmp_path / str(seed), seed))
        shutil.rmtree(tmp_path / str(seed))
