"""Killed anywhere while a stream goes on with other settings: either the old stream is open, or the new one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from synthstream import Stream, StreamConfig
from synthstream.environment import Env
from synthstream.errors import StateError
from synthstream.state.store import Store
from synthstream.stream import succession
from synthstream.stream.succession import succeed
from synthstream.stream.verification import verify
from tests.support.environments import Interrupting
from tests.support.halves import exact
from tests.support.successors import CUT, NEW, OLD, events, half, written

EFFECTS = {
    "make state folder", "sync state's name", "lock state", "make store", "choose write-ahead log",
    "commit succession", "wipe log", "close store",
}  # fmt: skip


# Before every effect is after the one before it: half of all moments leave what all leave.
@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.soak)])
def test_killed_at_every_side_effect_one_of_the_two_is_open_and_no_tick_is_drawn_twice(
    tmp_path: Path, step: int
) -> None:
    """Some 15 kills, or 30, and as many streams that are completed."""
    command = [sys.executable, "-m", "tests.crash.succeeding", str(tmp_path), str(step)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()  # noqa: S603
    sides = set()
    for place, status, found in map(json.loads, lines):
        assert status == 9, place
        assert isinstance(found, dict), (place, found)
        sides.add(tuple(found.pop("open")))
        expected = {"ticks": list(range(CUT, 8)), "redrawn": [], "total": len(events()), "wrong": []}
        assert found == expected, place
    assert {line.split('"')[1].split(" ", 1)[1].rpartition(" ")[0] for line in lines} == EFFECTS
    assert sides == {(True, False), (False, True)}  # either, never both or none


def test_a_tick_that_was_drawn_and_not_published_is_published_before_the_cut(tmp_path: Path) -> None:
    half(tmp_path, events())
    old = written(tmp_path, OLD.replace("until = 2026-01-05", "until = 2026-01-06"))

    def fail() -> None:
        raise RuntimeError

    env: Env = Interrupting(fail, at="rename release")
    with pytest.raises(RuntimeError), Stream(old, gates=exact, env=env) as stream:
        stream.release()
    assert not (tmp_path / "releases/000004").exists()
    config = succeed(old, written(tmp_path, NEW, "new.toml"), gates=exact)
    assert (tmp_path / "releases/000004").exists()
    assert config.cuts[0]["tick"] == CUT + 1
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    assert verify(config, rebuild=True).findings == []


def test_a_tick_that_another_process_has_begun_to_draw_is_in_the_way_of_a_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did so after the old stream was closed, and before its end was written down."""
    old, new, ended = half(tmp_path, events()), written(tmp_path, NEW, "new.toml"), succession._ended

    def later(config: StreamConfig, store: Store) -> object:
        with store.transaction("answer"):
            store.put_answer(CUT, 0, "question", np.zeros(1, dtype=np.int64))
        return ended(config, store)

    monkeypatch.setattr(succession, "_ended", later)
    with pytest.raises(StateError, match="another process has just drawn a tick"):
        succeed(old, new, gates=exact)
