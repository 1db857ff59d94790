"""Real processes, real kills, real files: nothing lost, nothing counted twice, nothing drawn again, nothing to repair.

How many: a few with the quick tests, 230 with ``-m slow``, 14,000 with ``-m soak``. Where there are few, streams are
short: of 30 ticks one or two would take all kills, and no other kind had one. The controls are wrong on purpose, and
must be found out.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.crash import power
from tests.crash.report import RUNS, run

needs_compiler = pytest.mark.skipif(power.compiler() is None, reason="no C compiler for the disk that may forget")
SOME = pytest.param(1, id="some", marks=pytest.mark.slow)
MANY = pytest.param(2, id="many", marks=pytest.mark.soak)
SHORT = (("--ticks", "6"), ("--ticks", "6"), ())


def clean(counted: dict[str, Any]) -> None:
    """No harm was done, in any way that the harness can see."""
    harm = {key: counted[key] for key in ("lost", "duplicated", "redrawn", "repairs", "unlike")}
    assert harm == dict.fromkeys(harm, 0), json.dumps(counted, indent=1)


@pytest.mark.parametrize("size", [pytest.param(0, id="few"), SOME, MANY])
def test_killed_anywhere_a_stream_ends_the_same(size: int) -> None:
    number = (6, 150, 10_000)[size]
    _, counted = run(number, *RUNS["kills"][1], *SHORT[size], *(() if size else ("--kinds", "table")), seed=size)
    clean(counted)
    assert counted["kills"] >= number
    assert counted["streams"] >= (10 if size else 1)  # each kind with real noise and with none
    if size:
        points = {f"{when} {name}" for name in counted["names"] for when in ("before", "after")}
        assert points <= counted["failpoints"].keys()


@needs_compiler
@pytest.mark.parametrize("size", [SOME, MANY])
def test_loss_of_power_changes_nothing_that_was_visible(size: int) -> None:
    number = (0, 50, 2_000)[size]
    _, counted = run(number, *RUNS["power loss"][1], *SHORT[size], seed=size)
    clean(counted)
    assert counted["kills"] >= number
    assert counted["streams"] >= 4


@pytest.mark.parametrize("size", [SOME, MANY])
def test_a_disk_that_is_full_or_fails_is_told_in_fixed_words_and_loses_nothing(size: int) -> None:
    number = (0, 30, 2_000)[size]
    _, counted = run(number, *RUNS["full and failing disks"][1], *SHORT[size], seed=size)
    clean(counted)
    assert counted["streams"] >= 10
    assert counted["errors"] == []
    assert counted["faults"] >= number
    for message in counted["told"]:
        assert message == "KeyboardInterrupt: " or ("FOLDER/" in message and "run again" in message), message
    assert len(counted["told"]) <= 30


@pytest.mark.soak  # with make slow: it finds commits that are not synced
def test_the_harness_finds_a_stream_that_publishes_before_it_commits() -> None:
    control = ("--control", "publish-first-unchecked", "--kinds", "table", "--at-random", "0")
    _, counted = run(12, *control, "--ticks", "6")
    assert counted["redrawn"] > 0


@pytest.mark.slow
def test_a_release_that_was_published_first_is_noticed_when_the_state_is_opened_again() -> None:
    _, counted = run(20, "--control", "publish-first", "--kinds", "table", "--at-random", "0", "--ticks", "6")
    assert counted["repairs"] > 0
    assert all("StateRolledBack" in error or "SinkError" in error for error in counted["errors"])


@pytest.mark.slow
@needs_compiler
def test_the_harness_finds_commits_that_are_not_synced() -> None:
    _, counted = run(30, "--power", "normal", "--kinds", "table,points", "--at-random", "0", "--ticks", "6")
    assert counted["redrawn"] > 0
    assert counted["repairs"] > 0
