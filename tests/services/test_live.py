"""Followers that are killed again and again while others write: every event counts exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.services import live
from tests.services.feeds import Feed, Lake, Table, Topic
from tests.services.postgres import Server


@pytest.mark.parametrize("kills", [pytest.param(3, marks=pytest.mark.slow), pytest.param(10, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["postgres", "kafka", "delta"])
def test_killed_again_and_again_each_event_counts_once(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, kills: int
) -> None:
    feeds: dict[str, Callable[[], Feed]] = {
        "postgres": lambda: Table(request.getfixturevalue("server")),
        "kafka": lambda: Topic(request.getfixturevalue("cluster")),
        "delta": lambda: Lake(tmp_path / "lake"),
    }
    feed = feeds[kind]()
    beyond = 100 if kind == "delta" else 1000
    found: dict[str, Any] = live.run(feed, tmp_path, kills, 1, beyond=beyond)
    assert found["kills"] == kills
    assert (found["lost"], found["doubled"]) == (0, 0)
    assert found["events"] > beyond
    if kind == "postgres":
        assert found["rolled_back"] > 100


@pytest.mark.soak  # quick: test_postgres loses rows where nobody is asked who is still writing
def test_that_test_can_fail(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(live.CARELESS, "1")
    found = live.run(Table(server), tmp_path, 3, 5)
    assert found["lost"] > 0
    assert found["doubled"] == 0
