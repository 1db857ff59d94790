"""Coupling of whole streams in which things happen: epochs end, tables are chosen, counts renewed, persons limited.

With the same answers of the gate any other stream looks the same, not only a neighbour: so one event is put in the
place of another, and then nearly all of them. A few seconds for each kind: 10,000 events and 32 ticks make it happen.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from tests.rows.aligned import Aligned, Run
from tests.rows.observing import Observed, observe
from tests.support.gates import Call
from tests.support.streams import PERSONS, text_of

TICKS, EVENTS, PEOPLE = 32, 10_000, 700
OPEN = "epochs-open"  # each names how many tables it measures
KINDS = ("always", "epochs", OPEN, "selective-mw", "stream-mwem", "points", "points-zcdp", "hypercube", PERSONS)
QUICK = ("points",)  # a node is opened; the others are slow


def events(seed: int) -> pl.DataFrame:
    """As many in every tick, for kinds that tell their number; drifting, for those that look at how they move."""
    rng, number = np.random.default_rng(seed), np.arange(EVENTS)
    tick = number * TICKS // EVENTS
    start = datetime(2026, 1, 1)
    return pl.DataFrame(
        {
            "when": [start + timedelta(days=int(day), hours=12) for day in tick],
            "ward": rng.choice(["A", "B", "C"], EVENTS, p=[0.6, 0.3, 0.1]),
            "x": rng.beta(1 + tick, TICKS, EVENTS) * 10,
            "y": rng.beta(5, 2, EVENTS) * 10,
            "up": rng.random(EVENTS) < 0.2,
            "who": rng.integers(0, PEOPLE, EVENTS),
        }
    )


def neighbour(kind: str, rows: pl.DataFrame) -> pl.DataFrame:
    """One event in the place of another; of persons, one without any of theirs, which were more than count."""
    if kind == PERSONS:
        return rows.filter(pl.col("who") != 7)
    changed = pl.int_range(pl.len()) == EVENTS // 3
    return rows.with_columns(
        ward=pl.when(changed).then(pl.lit("C")).otherwise("ward"), x=pl.when(changed).then(9.9).otherwise("x")
    )


def unlike(kind: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Other events, and fewer if their number is private."""
    found = events(99).with_columns(x=10 - pl.col("x"), ward=pl.lit("B"))
    return found if kind == "hypercube" else found.gather_every(3)


def run_of(config: StreamConfig, rows: pl.DataFrame, gates: Callable[[int], object]) -> None:
    with pytest.MonkeyPatch.context() as patch:  # the same persons' rows count in every run
        patch.setattr("secrets.token_bytes", lambda size: b"\x33" * size)
        stream = Stream(config, gates=gates)  # type: ignore[arg-type]
    with stream:
        stream.update(rows, batch_id="all")
        while stream.due():
            print(stream.release(), stream.status())
        if config.privacy.unit.of_persons:
            _persons_were_limited(config.state)


def _persons_were_limited(state: Path) -> None:
    with contextlib.closing(sqlite3.connect(state / "store.db")) as db:
        used = Counter(number for (number,) in db.execute("SELECT used FROM person"))
    assert used[3] > 100


def seen(
    folder: Path, kind: str, rows: pl.DataFrame, aligned: Aligned, run: Run, capfd: pytest.CaptureFixture[str]
) -> Observed:
    folder.mkdir()
    text = text_of("epochs" if kind == OPEN else kind)
    text = text.replace("horizon = 12", 'horizon = "unbounded"').replace("2026-01-09", "2026-02-02")
    text = text.replace('path = "releases"', 'path = "releases"\nrows = 20\nkeep = 1').replace(
        'per = "4d"', 'per = "60d"'
    )
    if kind == "hypercube":
        text = text.replace("epsilon = 2.0", "epsilon = 30.0")  # or no count is renewed within so few events
    if kind == OPEN:
        text = text.replace("picks = 1\n", "").replace("epsilon = 2.0", "epsilon = 0.7")
    if "points" not in kind and kind != "hypercube":
        text += '[[columns]]\nname = "up"\ntype = "boolean"\n'  # so that there are tables to choose from
    config = StreamConfig.from_toml(text, base=folder)
    with aligned.kary(run):
        return observe(folder, lambda: run_of(config, rows, partial(aligned.gate, run)), capfd)


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k in QUICK else [pytest.mark.slow]) for k in KINDS])
def test_streams_in_which_much_happens_cannot_be_told_apart(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, aligned = events(1), Aligned(5)
    one = seen(tmp_path / "x", kind, rows, aligned, "one", capfd)
    assert one.ending == "returned None"
    calls = aligned.traces("one")
    assert list(calls) == list(range(TICKS))
    _something_happened(kind, calls)
    for other in (neighbour(kind, rows), unlike(kind, rows)):
        two = seen(tmp_path / "x", kind, other, aligned, "two", capfd)
        assert two == one
        assert [len(calls) for calls in aligned.traces("two").values()] == [len(trace) for trace in calls.values()]


def _something_happened(kind: str, calls: dict[int, list[Call]]) -> None:
    choices = sum(call.kind == "choose" for trace in calls.values() for call in trace)
    widest = [max((call.value.size for call in trace), default=0) for trace in calls.values()]
    widths = Counter(widest)
    if kind == OPEN:  # one of three tables, two, or all without a choice
        assert {sum(call.kind == "choose" for call in trace) for trace in calls.values()} == {0, 1, 2}
        tables = [[call for call in trace if call.kind != "choose" and call.value.size > 1] for trace in calls.values()]
        assert max(map(len, tables)) == 1 + 3  # those of one column are one question
    if kind == "epochs":
        assert choices >= 5
        assert widths[0] + widths[1] >= 10  # the total alone, of which not every tick draws something
    elif kind in ("selective-mw", "stream-mwem"):
        assert choices == TICKS
    elif kind.startswith("points"):
        # While an epoch is open, all nodes of a level are read, or of a few in turn; at its end mostly some of a level.
        ended = [not all(_whole_levels(call.value.size) for call in trace) for trace in calls.values()]
        assert sum(ended) >= 3
        assert sum(width > 1 and not end for width, end in zip(widest, ended, strict=True)) >= 10
    elif kind == "hypercube":
        fired = [call for trace in calls.values() for call in trace if call.kind == "laplace" and call.value.any()]
        assert len(fired) >= 20  # counts were renewed


def _whole_levels(nodes: int) -> bool:
    """Whether so many are all nodes of levels next to each other: a sum of powers of two without a gap, as 4 + 8."""
    return "0" not in f"{nodes:b}".rstrip("0")
