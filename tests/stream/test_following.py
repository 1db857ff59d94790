"""Following: the public clock alone closes ticks, after what the source holds was counted."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, TypeVar

import polars as pl
import pytest

from synthstream import Stream
from synthstream.cli.follow import seconds_of
from synthstream.environment import Env
from synthstream.errors import ConfigError
from tests.support.following import START, Hand
from tests.support.gates import ExactGate
from tests.support.streams import configured, rows

T = TypeVar("T")


def stream(folder: Path, env: Env, *, until: str = "2026-01-09") -> Stream:
    rows(50, 1).write_parquet(folder / "rows-1.parquet")
    return Stream(configured(folder, "always", until=until), gates=lambda tick: ExactGate(), env=env)


def test_it_waits_for_the_end_of_a_tick_and_never_sleeps_longer_than_the_poll(tmp_path: Path) -> None:
    env, slept = Hand(), list[float]()

    def rest(seconds: float) -> None:
        slept.append(seconds)
        env.moment += timedelta(seconds=seconds)

    with stream(tmp_path, env) as opened:
        env.moment = START + timedelta(days=2, hours=1)
        following = opened.follow(poll=50_000.0, rest=rest)
        assert [next(following).tick for _ in range(4)] == [0, 1, 2, 3]
    assert slept == [50_000.0, 23 * 3600 - 50_000.0, 50_000.0, 86_400 - 50_000.0]
    assert env.moment == START + timedelta(days=4)


def test_it_stops_at_until_even_between_two_ticks_and_counts_before(tmp_path: Path) -> None:
    env = Hand()
    ticks = []

    def rest(seconds: float) -> None:
        env.moment += timedelta(seconds=seconds)

    with stream(tmp_path, env) as opened:
        for release in opened.follow(until=datetime(2026, 1, 3, 12), poll=3600.0, rest=rest):
            ticks.append(release.tick)
            rows(10, 2 + release.tick).write_parquet(tmp_path / f"rows-{2 + release.tick}.parquet")
        assert ticks == [0, 1]
        assert opened.ingest() == 0  # the last look came after the last release
    assert env.moment == datetime(2026, 1, 3, 12, tzinfo=UTC)


def test_how_long_counting_takes_closes_no_tick(tmp_path: Path) -> None:
    """One row more takes longer to count; the clock is read before."""

    class Slow(Hand):
        def do(self, name: str, effect: Callable[[], T]) -> T:
            self.moment += timedelta(days=1) * (name == "commit counts")
            return effect()

    env = Slow()
    with stream(tmp_path, env) as opened:
        env.moment = START + timedelta(days=2, hours=1)
        assert [release.tick for release in opened.run()] == [0, 1]
        assert env.moment == START + timedelta(days=3, hours=1)
        assert [release.tick for release in opened.run()] == [2]


class Arriving(Hand):
    """Counting files for the first time takes a while, and one more file appears half a minute after the first tick."""

    def __init__(self, folder: Path, lasts: timedelta) -> None:
        super().__init__()
        self.late, self.arrives, self.lasts = folder / "rows-2.parquet", START + timedelta(days=1, seconds=30), lasts

    def pass_by(self, time: timedelta) -> None:
        self.moment += time
        if self.moment >= self.arrives and not self.late.exists():
            rows(10, 1).write_parquet(self.late)  # of the same days as the others

    def rest(self, seconds: float) -> None:
        """What was asked for until the file is there and was looked at; then it goes faster."""
        first = self.moment < START + timedelta(days=1, hours=1)
        self.pass_by(timedelta(seconds=seconds) if first else timedelta(hours=1))

    def do(self, name: str, effect: Callable[[], T]) -> T:
        if name == "commit counts":
            self.pass_by(self.lasts)
            self.lasts = timedelta()
        return effect()

    def appeared(self, path: Path) -> datetime:
        return self.arrives if path == self.late else START


@pytest.mark.parametrize("lasts", [timedelta(minutes=2), timedelta(days=2)])
def test_how_long_counting_takes_moves_no_row_into_another_tick(tmp_path: Path, lasts: timedelta) -> None:
    """A row more may keep a look until the tick is over, and a file that came meanwhile would be found too early."""

    def totals(folder: Path, env: Arriving) -> list[float]:
        folder.mkdir()
        with stream(folder, env, until="2026-01-05") as opened:
            env.moment = START + timedelta(hours=23, minutes=59)
            following = opened.follow(poll=60.0, rest=env.rest)
            return [sum(release.table(["ward"])["measured"]) for release in following]

    quick, slow = (Arriving(tmp_path / name, time) for name, time in (("quick", timedelta()), ("slow", lasts)))
    found = totals(tmp_path / "slow", slow)
    assert found == totals(tmp_path / "quick", quick)
    assert len(found) == 4
    assert slow.late.exists()


def test_a_file_that_came_later_decides_nothing(tmp_path: Path) -> None:
    """Neither by its columns nor by its content, if it is written anew while it is read."""

    class Dated(Hand):
        moments: ClassVar[list[datetime]] = []

        def appeared(self, path: Path) -> datetime:
            return self.moments.pop(0) if path.name == "rows-1.parquet" else START + timedelta(hours=1)

    with stream(tmp_path, Dated()) as opened:
        pl.DataFrame({"other": [1]}).write_parquet(tmp_path / "rows-0.parquet")
        Dated.moments = [START, START + timedelta(hours=1)]
        assert opened.ingest(before=START) == 0
        Dated.moments = [START, START]
        assert opened.ingest(before=START) == 1
        assert (opened.ingest(), list(opened.findings)) == (0, [tmp_path / "rows-0.parquet"])


def test_a_file_appears_when_it_gets_its_name(tmp_path: Path) -> None:
    """Its own time may be set to anything."""
    before = datetime.now(UTC) - timedelta(seconds=1)
    (tmp_path / "old").touch()
    os.utime(tmp_path / "old", (0, 0))
    assert before < Env().appeared((tmp_path / "old").rename(tmp_path / "new")) <= datetime.now(UTC)


@pytest.mark.parametrize(("until", "last"), [("2026-01-05", 3), ("2026-01-13", 11)])
def test_it_ends_at_the_configured_moment_and_at_the_horizon(tmp_path: Path, until: str, last: int) -> None:
    env = Hand()

    def rest(seconds: float) -> None:
        env.moment += timedelta(seconds=seconds)

    with stream(tmp_path, env, until=until) as opened:
        assert [release.tick for release in opened.follow(poll=86_400.0, rest=rest)] == list(range(last + 1))


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5.0), ("50ms", 0.05), ("1.5m", 90.0), ("24h", 86_400.0)])
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["5", "s", "-1s", "0s", "10ms", "25h", "5 s", "1d"])
def test_what_is_no_length_of_time_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--poll {text}: use a number"):
        seconds_of(text)


def test_a_run_that_nobody_iterates_is_told(tmp_path: Path) -> None:
    with Stream(configured(tmp_path, "always")) as stream:
        with pytest.warns(RuntimeWarning, match="not iterated: nothing was counted or released"):
            stream.run()
        assert stream.closed == 0
        assert len(list(stream.run())) == stream.closed == 8
