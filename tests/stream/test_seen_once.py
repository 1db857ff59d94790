"""What somebody may have seen is never drawn again, and what may be drawn again is shown to nobody."""

from __future__ import annotations

import contextlib
import errno
import itertools
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.environment import REAL, Env
from synthstream.errors import ConfigError, RecoveryRefused, SinkError, StateError, StateRolledBack
from synthstream.release.release import Release
from synthstream.state.store import Store
from synthstream.stream.backups import backup
from synthstream.stream.recovery import adopt, republish
from synthstream.stream.verification import verify
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.environments import failing
from tests.support.halves import HALF, half_run
from tests.support.streams import KINDS, configured, published, rows

T = TypeVar("T")


class Ends(Env):
    """Ends with an error before a side effect."""

    def __init__(self, at: str) -> None:
        self.at = at

    def do(self, name: str, effect: Callable[[], T]) -> T:
        """See :meth:`Env.do`."""
        if name == self.at:
            raise OSError(28, "no space")
        return effect()


@pytest.mark.sparing(8, 8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("again", [False, True])
def test_a_draw_that_could_not_be_written_down_whole_is_not_made_again(tmp_path: Path, kind: str, again: bool) -> None:
    """As on a disk that is too full for what this draw compresses to: another draw would favour those that fit."""

    def run(folder: Path, env: Env, first: int) -> Stream:
        """Every time that a gate is asked for, another one comes."""
        gates, config = itertools.count(first), configured(folder, kind)
        rows(200, 1).write_parquet(folder / "rows-1.parquet")
        return Stream(config, gates=lambda tick: SeededGate(f"{tick} {next(gates)}"), env=env)

    with run(tmp_path / "whole", REAL, 0) as stream:
        stream.ingest()
        expected = stream.release().measured.numbers()
    found: Release | None = None
    broken = failing(errno.ENOSPC, at="commit measurement")
    with run(tmp_path / "broken", broken, 0) as stream:
        stream.ingest()
        with pytest.raises(StateError, match="space"):
            stream.release()
        if again:
            found = stream.release()
    if not again:
        with run(tmp_path / "broken", REAL, 7) as stream:
            found = stream.last
    assert found is not None
    assert found.tick == 0
    assert [part.tobytes() for part in found.measured.numbers()] == [part.tobytes() for part in expected]


def test_what_is_written_of_an_answer_is_as_large_whatever_was_drawn(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "state", key=bytes(32))) as store:
        sizes = set()
        for tick, drawn in enumerate((0, -1, 2**62, 123_456_789)):
            with store.transaction("answer"):
                store.put_answer(tick, 0, "question", np.full(100, drawn))
                store.put_answer(tick, 1, "question", np.array([drawn]))
            sizes.add(tuple(store.db.execute("SELECT length(drawn) FROM answer WHERE tick = ?", (tick,)).fetchall()))
        assert len(sizes) == 1


def drawn_but_not_published(folder: Path, *, at: str) -> StreamConfig:
    """A stream that has released 4 ticks, and drawn a fifth that its sink had no room for."""
    half_run(folder, "always")
    config = configured(folder, "always", until="2026-01-06")
    with Stream(config, env=Ends(at)) as stream, pytest.raises(SinkError):
        list(stream.run())
    return config


@pytest.mark.sparing(3)
@pytest.mark.parametrize("lost", [1, 2, HALF - 1])
@pytest.mark.parametrize("copy", [False, True])
def test_a_state_that_is_newer_than_the_releases_is_not_replaced(tmp_path: Path, lost: int, copy: bool) -> None:
    config = half_run(tmp_path, "always")
    before = published(tmp_path / "releases")
    if copy:
        backup(config, tmp_path / "backup")
        shutil.rmtree(config.state)
        shutil.move(tmp_path / "backup/private", config.state)
    for tick in range(HALF - lost, HALF):
        shutil.rmtree(tmp_path / f"releases/{tick:06d}")
    with pytest.raises(RecoveryRefused, match="--republish"):
        adopt(config)
    assert republish(config, unchecked=copy) == lost
    assert published(tmp_path / "releases") == before
    if copy:
        with pytest.raises(StateRolledBack, match="is a backup"):
            Stream(config)
        assert adopt(config) == (HALF, False, None)
    with Stream(config) as stream:
        list(stream.run())
    assert verify(config, rebuild=True).findings == []


def test_an_older_copy_that_is_newer_than_the_releases_is_not_replaced(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always")
    shutil.copytree(config.state, tmp_path / "old")
    with Stream(configured(tmp_path, "always", until="2026-01-07")) as stream:
        list(stream.run())
    shutil.rmtree(config.state)
    shutil.move(tmp_path / "old", config.state)
    for tick in range(HALF - 1, 6):
        shutil.rmtree(tmp_path / f"releases/{tick:06d}")
    with pytest.raises(RecoveryRefused, match=f"up to tick {HALF - 1}, but the newest one there is tick {HALF - 2}"):
        adopt(config)


def test_what_was_not_published_is_in_no_public_part_of_a_backup(tmp_path: Path) -> None:
    config = drawn_but_not_published(tmp_path, at="make aside")
    backup(config, tmp_path / "backup")
    kept = pl.read_parquet(tmp_path / "backup/public/measurements.parquet")
    assert kept["tick"].to_list() == list(range(HALF))


@pytest.mark.parametrize("restored", [False, True])
def test_a_release_that_was_left_unfinished_is_removed_before_its_tick_is_drawn_again(
    tmp_path: Path, restored: bool
) -> None:
    config = half_run(tmp_path, "always")
    backup(config, tmp_path / "backup")
    with (
        Stream(configured(tmp_path, "always", until="2026-01-06"), env=Ends("rename release")) as stream,
        pytest.raises(SinkError),
    ):
        list(stream.run())
    (left,) = (tmp_path / "releases").glob(".writing-*")
    assert (left / "tables.parquet").exists()
    shutil.rmtree(config.state)
    if restored:
        shutil.move(tmp_path / "backup/private", config.state)
    assert adopt(config)[:2] == (HALF, not restored)
    assert not left.exists()
    with Stream(config) as stream:
        list(stream.run())
    assert sorted(path.name for path in (tmp_path / "releases").iterdir()) == [f"{t:06d}" for t in range(8)]


def test_an_unfinished_first_release_is_removed_before_a_stream_begins_anew(tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    rows(100, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config, env=Ends("rename release")) as stream, pytest.raises(SinkError):
        stream.release()
    assert [path.name[:15] for path in (tmp_path / "releases").iterdir()] == [".writing-000000"]
    shutil.rmtree(config.state)
    with Stream(config) as stream:
        stream.release()
    assert [path.name for path in (tmp_path / "releases").iterdir()] == ["000000"]


def test_where_an_unfinished_release_cannot_be_removed_nothing_is_adopted(tmp_path: Path) -> None:
    config = drawn_but_not_published(tmp_path, at="rename release")
    shutil.rmtree(config.state)
    with pytest.raises(SinkError, match=r"\.writing-000004"):
        adopt(config, env=Ends("clear aside"))
    assert not config.state.exists()


def test_neither_a_backup_nor_a_key_lies_among_the_releases(tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    rows(10, 1).write_parquet(tmp_path / "rows-1.parquet")
    Stream(config).close()
    with pytest.raises(StateError, match="which is published"):
        backup(config, tmp_path / "releases/backup")
    assert not (tmp_path / "releases").exists()
    other = (tmp_path / "stream.toml").read_text().replace('path = "rows-', 'path = "in/**/')
    with pytest.raises(StateError, match=r"fits the path of \[source\]"):
        backup(StreamConfig.from_toml(other, base=tmp_path), tmp_path / "in/backup")
    text = (tmp_path / "stream.toml").read_text() + '[encryption]\nkey_file = "releases/key"\n'
    with pytest.raises(ConfigError, match=r"the key .* is secret"):
        StreamConfig.from_toml(text, base=tmp_path)


@pytest.mark.parametrize("lost", [False, True])
def test_persons_go_on_with_their_newest_state_alone(tmp_path: Path, lost: bool) -> None:
    """With another one each could count as often as allowed, and then again."""
    config = half_run(tmp_path, "always")
    text = (tmp_path / "stream.toml").read_text().replace('unit = "event"', 'unit = { person = "who", max_events = 2 }')
    shutil.rmtree(config.state)
    shutil.rmtree(tmp_path / "releases")
    config = StreamConfig.from_toml(text, base=tmp_path)
    (tmp_path / "rows-1.parquet").unlink()
    with Stream(config) as stream:
        stream.update(rows(20, 1).with_columns(who=pl.lit("x")))
        stream.release()
        backup(config, tmp_path / "backup")
        stream.release()
    shutil.rmtree(config.state)
    if not lost:
        shutil.move(tmp_path / "backup/private", config.state)
    with pytest.raises(RecoveryRefused, match="how many events of each person have counted"):
        adopt(config)
    backup_is_there = (config.state / "store.db").exists()
    assert backup_is_there != lost


class Killed(BaseException):
    """The process ends."""


class Kills(Env):
    """Ends the process before or after one side effect, or counts them."""

    def __init__(self, at: int, *, after: bool = False) -> None:
        self.at, self.after, self.done = at, after, 0

    def do(self, name: str, effect: Callable[[], T]) -> T:
        """See :meth:`Env.do`."""
        self.done += 1
        if self.done != self.at:
            return effect()
        if self.after:
            effect()
        raise Killed


@pytest.mark.sparing(1, 3)
@pytest.mark.parametrize("state", ["old", "lost", "restored"])
@pytest.mark.parametrize("after", [False, True])
def test_an_adoption_killed_anywhere_is_taken_up_again(tmp_path: Path, state: str, after: bool) -> None:
    first = tmp_path / "first"
    first.mkdir()
    config = half_run(first, "always", number=50)
    shutil.copytree(config.state, first / "old")
    with Stream(configured(first, "always", until="2026-01-06")) as stream:
        list(stream.run())
    backup(config, first / "backup")
    before, at, killed = published(first / "releases"), 0, True
    shutil.rmtree(config.state)
    if state != "lost":
        shutil.move(first / ("old" if state == "old" else "backup/private"), config.state)
    while killed:
        at += 1
        folder = tmp_path / str(at)
        shutil.copytree(first, folder)
        config = StreamConfig.from_toml((folder / "stream.toml").read_text(), base=folder)
        kills = Kills(at, after=after)
        with contextlib.suppress(Killed):
            adopt(config, env=kills)
        killed = kills.done == at
        with contextlib.suppress(RecoveryRefused):  # it was done
            adopt(config)
        with Stream(config) as stream:
            list(stream.run())
        found = published(folder / "releases")
        assert {name: found[name] for name in before} == before
        assert verify(config).findings == []
    assert at > 4
