"""A tick that waits for late rows: it is closed so long after its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from typing_extensions import override

from synthstream import Stream, StreamConfig
from synthstream.cli.status import facts
from synthstream.errors import TickNotOver
from synthstream.forecast.planning import plan
from synthstream.publish.published import Releases
from synthstream.stream.verification import verify
from tests.support.following import Hand
from tests.support.visits import TOML, exact, total, visits

T = TypeVar("T")
WAITING = TOML.replace("until = 2026-01-06", 'wait = "3d"')


class Killed(BaseException):
    """The process ends."""


class Fatal(Hand):
    """Ends the process once, in place of an effect."""

    def __init__(self, effect: str) -> None:
        super().__init__()
        self.effect = effect

    @override
    def do(self, name: str, effect: Callable[[], T]) -> T:
        if name == self.effect:
            self.effect = ""
            raise Killed
        return effect()


def later(config: StreamConfig, env: Fatal, day: int, rows: list[int]) -> list[int]:
    """Totals that are released on a day of January, when a file with rows of some days has come."""
    env.moment = datetime(2026, 1, day, tzinfo=UTC)
    visits(rows).write_parquet(config.base / f"visits-{day}.parquet")
    fatal = bool(env.effect)
    try:
        with Stream(config, gates=exact, env=env) as stream:
            list(stream.run())
    except Killed:
        assert fatal
    with Stream(config, gates=exact, env=env) as stream:
        list(stream.run())
        return [round(total(Releases(config).at(tick))) for tick in range(stream.closed)]


@pytest.mark.sparing(2)
@pytest.mark.parametrize("effect", ["", "commit counts", "draw", "commit measurement", "rename release"])
def test_rows_count_in_their_own_tick_while_it_waits_and_then_in_the_open_one(tmp_path: Path, effect: str) -> None:
    config, env = StreamConfig.from_toml(WAITING, base=tmp_path), Fatal(effect)
    assert later(config, env, 2, [1, 1]) == []
    assert later(config, env, 4, [1, 2]) == []  # the first is two days late, and the second one
    assert later(config, env, 5, [4]) == [3]
    assert later(config, env, 7, [1]) == [3, 5, 5]  # five days late: with that of the second day
    assert later(config, env, 8, []) == [3, 5, 5, 6]
    assert env.effect == ""


def test_it_is_named_and_may_change_while_the_stream_runs(tmp_path: Path) -> None:
    env = Fatal("")
    config = StreamConfig.from_toml(WAITING, base=tmp_path)
    assert any("closed 3d after its end" in note for note in plan(config, rows=False).notes)
    later(config, env, 2, [1])
    with (
        Stream(config, gates=exact, env=env) as stream,
        pytest.raises(TickNotOver, match="closed 3d later, 2026-01-05"),
    ):
        stream.release(until=datetime(2026, 1, 2))
    later(config, env, 5, [1])
    for text, day in ((WAITING.replace("3d", "12h"), 6), (WAITING.replace('wait = "3d"', ""), 7)):
        config = StreamConfig.from_toml(text, base=tmp_path)
        later(config, env, day, [1])
    manifests = [json.loads(path.read_text()) for path in sorted((tmp_path / "releases").glob("0*/manifest.json"))]
    assert [manifest.get("wait") for manifest in manifests] == ["3d", "12h", "12h", "12h", None, None]
    assert verify(config, rebuild=True).findings == []
    assert facts(config)["next"]["closes"] == "2026-01-08T00:00:00+00:00"
    path = tmp_path / "releases" / "000001" / "manifest.json"
    path.write_text(path.read_text().replace('"12h"', '"1h"'))
    assert any("head is not that" in fault.what for fault in verify(config).findings)


def test_following_closes_a_tick_when_it_has_waited(tmp_path: Path) -> None:
    env = Hand()
    visits([1]).write_parquet(tmp_path / "visits.parquet")

    def rest(seconds: float) -> None:
        env.moment = datetime.fromtimestamp(env.moment.timestamp() + seconds, UTC)

    config = StreamConfig.from_toml(WAITING, base=tmp_path)
    with Stream(config, gates=exact, env=env) as stream:
        closed = []
        for release in stream.follow(until=datetime(2026, 1, 3), poll=86_400.0, rest=rest):
            closed.append((release.tick, env.moment.day))
    assert closed == [(0, 5), (1, 6)]
