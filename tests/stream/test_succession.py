"""Going on with other settings: what counts where, what is refused, and what readers see."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tomllib
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

import synthstream
from synthstream import Counting, Stream
from synthstream.cli.app import app
from synthstream.config.config import StreamConfig, load
from synthstream.errors import (
    BatchConflict,
    ConfigError,
    CountsMismatch,
    RecoveryRefused,
    SchemaError,
    StateError,
    StateMismatch,
    StateRolledBack,
)
from synthstream.forecast.planning import plan
from synthstream.publish.published import Releases
from synthstream.release.tables import TableRelease
from synthstream.schema.clock import written as moment
from synthstream.stream import succession
from synthstream.stream.opening import begun
from synthstream.stream.recovery import adopt
from synthstream.stream.succession import changes_of, planned, succeed
from synthstream.stream.verification import verify
from tests.support.configs import SINK, WARD, source, stream_toml
from tests.support.configs import number as of_numbers
from tests.support.environments import At
from tests.support.halves import HALF, exact, half_run
from tests.support.streams import KINDS, PERSONS, TICKS, configured, published, text_of
from tests.support.successors import CUT, NEW, OLD, PAID, events, half, renamed, written


def count(release: object, columns: list[str]) -> dict[Any, float]:
    assert isinstance(release, TableRelease)
    table = release.table(columns)
    keys = table.select(columns).rows() if columns else [()]
    return dict(zip(keys, table["measured"].round(3).to_list(), strict=True))


def test_a_successor_from_keywords_names_the_configuration_that_it_goes_on_from(tmp_path: Path) -> None:
    old, of_file = half(tmp_path, events()), written(tmp_path, NEW, "new.toml")
    said = tomllib.loads(NEW)
    after = said.pop("after")
    new = StreamConfig.of(**said, after={**after, "config": old}, base=tmp_path)
    assert new.own_hash == of_file.own_hash
    third = StreamConfig.of(
        **{**said, "privacy": {**said["privacy"], "epsilon": 2.0}}, after={"config": new}, base=tmp_path
    )
    assert [life.own_hash for life in third.lives[:2]] == [old.own_hash, new.own_hash]
    assert third.lives[0].kept == old.kept
    assert plan(new, rows=False).words == plan(of_file, rows=False).words
    assert synthstream.succeed(old, new, gates=exact).cuts[0]["tick"] == CUT
    with Stream(new, gates=exact) as stream:
        assert stream.closed == CUT
        list(stream.run())
    assert Releases(new).last.head == Releases(of_file).last.head
    assert not verify(new).findings


def test_a_succession_is_tried_with_simulated_noise(tmp_path: Path) -> None:
    old, new = written(tmp_path), written(tmp_path, NEW, "new.toml")
    with Stream(old, simulate=7) as stream:
        stream.update(events())
        list(stream.run())
    assert succeed(old, new, simulate=7).state.name == "state-simulated"
    with Stream(new, simulate=7) as stream:
        assert stream.closed == CUT
    assert not (tmp_path / "state").exists()


def test_rows_that_wait_go_on_exactly_once_and_late_ones_never(tmp_path: Path) -> None:
    frame = events()
    old = half(tmp_path, frame)
    late = frame.head(30).with_columns(when=pl.lit(datetime(2026, 1, 2)))
    undated = frame.head(20).with_columns(when=pl.lit(None, dtype=pl.Datetime))
    with Stream(old, gates=exact) as stream:
        stream.update(pl.concat([late, undated]))  # they wait for tick 4, and end with the old stream
    config = succeed(old, written(tmp_path, NEW, "new.toml"), gates=exact)
    assert config.cuts[0]["tick"] == CUT
    with Stream(written(tmp_path, NEW, "new.toml"), gates=exact) as stream:
        stream.update(renamed(pl.concat([late, undated])))
        more = renamed(events(100, 2))
        stream.update(more)
        list(stream.run())
        release = stream.last
    assert isinstance(release, TableRelease)
    after = more.filter(pl.col("when") >= datetime(2026, 1, 1 + CUT))
    whole = pl.concat([renamed(frame), after])
    assert count(release, []) == {(): len(whole)}
    wards = dict(whole["ward"].value_counts().rows())
    found = count(release, ["ward"])
    assert {key[0]: n for key, n in found.items() if n} == pytest.approx(wards)
    pairs = whole.with_columns(x=(pl.col("x") >= 5)).group_by("ward", "x").len().sort("ward", "x")["len"].to_list()
    assert sorted(n for n in count(release, ["ward", "x"]).values() if n) == pytest.approx(sorted(pairs))
    paid = release.table(["paid"])
    assert paid["since"].to_list() == [CUT] * 3
    waiting = frame.filter(pl.col("when") >= datetime(2026, 1, 1 + CUT))
    truth = [int((~after["paid"]).sum()), int(after["paid"].sum()), len(waiting)]  # what waited came without it
    assert paid["measured"].to_list() == pytest.approx(truth)
    assert verify(config, rebuild=True) == (8, 8, [], [])


# -- what may count, and what may not --------------------------------------------------------------------------------


def through(
    folder: Path, before: pl.DataFrame, after: pl.DataFrame, *, read_again: bool = False
) -> list[dict[Any, float]]:
    """Tables of the ward after each tick: ``before`` comes to the old stream, ``after`` to the successor."""
    folder.mkdir()
    old = half(folder, before)
    succeed(old, written(folder, NEW, "new.toml"), gates=exact, read_again=read_again)
    with Stream(written(folder, NEW, "new.toml"), gates=exact) as stream:
        stream.update(after)
        list(stream.run())
    return [count(release, ["ward"]) for release in Releases(written(folder, NEW, "new.toml"))]


def difference(ours: list[dict[Any, float]], theirs: list[dict[Any, float]]) -> list[dict[Any, int]]:
    found = list[dict[Any, int]]()
    for own, other in zip(ours, theirs, strict=True):
        apart = {
            key: round(own[key] - other[key]) for key in own.keys() | other.keys() if own.get(key) != other.get(key)
        }
        found.append({key: n for key, n in apart.items() if n})
    return found


def event(day: int | None, ward: str = "A") -> pl.DataFrame:
    when = None if day is None else datetime(2026, 1, day, 12)
    return pl.DataFrame(
        {"when": pl.Series([when], dtype=pl.Datetime), "ward": [ward], "x": [1.0], "paid": [True]},
    )


COLUMNS = ["when", "ward", "x", "paid"]


def test_the_attackers_event_counts_on_one_side_alone_whenever_it_comes(tmp_path: Path) -> None:
    """One event more, handed to the old stream, to the successor, or to both; dated before the cut, after it, never."""
    base = events(60).select(COLUMNS)
    later = renamed(events(60, 2)).select(COLUMNS)
    without = through(tmp_path / "without", base, later)
    always = [{("A",): 1}] * 8
    second = [dict[Any, int]()] * CUT + [{("A",): 1}] * 4
    first = [{}, *always[1:]]
    for name, x, sides, expected in [
        ("old", event(2), "old", first),  # before the cut: in the old part, for ever
        ("late", event(2), "new", [{}] * 8),  # late: it never counts in the successor
        ("twice", event(2), "both", first),
        ("waiting", event(CUT + 1), "old", second),  # it waits, and goes over once
        ("new", event(CUT + 1), "new", second),
        ("undated", event(None), "old", always),
        ("undated, late", event(None), "new", [{}] * 8),
    ]:
        before = pl.concat([base, x]) if sides in ("old", "both") else base
        after = pl.concat([later, x]) if sides in ("new", "both") else later
        assert difference(through(tmp_path / name, before, after), without) == expected, name


def test_an_event_moved_across_the_cut_is_two_units(tmp_path: Path) -> None:
    base, later = events(60).select(COLUMNS), renamed(events(60, 2)).select(COLUMNS)
    before = through(tmp_path / "before", pl.concat([base, event(2)]), later)
    after = through(tmp_path / "after", base, pl.concat([later, event(CUT + 2)]))
    moved = difference(before, after)
    assert moved[:2] == [{}, {("A",): 1}]  # one less in the old part
    assert moved[-1] == {}  # one more in the new one
    words = str(Releases(written(tmp_path / "after", NEW, "new.toml")).last.facts["claim"]["words"])
    assert "changes two events" in words


def test_deleting_an_old_event_counts_in_no_successor(tmp_path: Path) -> None:
    head = 'op = "op"\n'
    old, new = head + OLD, head + NEW
    frame = events(60).select(COLUMNS).with_columns(op=pl.lit(1))
    config = half(tmp_path, frame, old)
    succeed(config, written(tmp_path, new, "new.toml"), gates=exact)
    gone = [event(2).with_columns(op=pl.lit(-1)), event(CUT + 1).with_columns(op=pl.lit(-1))]
    with Stream(written(tmp_path, new, "new.toml"), gates=exact) as stream:
        stream.update(pl.concat(gone))
        list(stream.run())
        assert count(stream.last, []) == {(): len(frame) - 1}  # the later deletion is an event of its own


@pytest.mark.parametrize("read_again", [False, True])
def test_requests_to_forget_count_on_one_side_alone_and_once(tmp_path: Path, read_again: bool) -> None:
    head, files = 'op = "op"\n', source("rows-*.parquet")
    frame = events(60).select(COLUMNS).with_columns(op=pl.lit(1))
    frame.write_parquet(tmp_path / "rows-1.parquet")
    old = written(tmp_path, head + OLD + files)
    with Stream(old, gates=exact) as stream:
        list(stream.run())
        event(2).write_parquet(tmp_path / "waits.parquet")
        stream.corrections.forget(tmp_path / "waits.parquet", request="waits")  # no tick of the old stream takes it in
        stream.corrections.retire("rows-1.parquet")
    succeed(old, written(tmp_path, head + NEW + files, "new.toml"), gates=exact, read_again=read_again)
    dated = pl.concat([event(None), *(event(day) for day in (1, CUT, CUT + 1, CUT + 2))])  # two since the cut
    dated.write_parquet(tmp_path / "request.parquet")
    with Stream(written(tmp_path, head + NEW + files, "new.toml"), gates=exact) as stream:
        assert stream.corrections.listed() == [("rows-1.parquet", "retired")]
        stream.corrections.forget(tmp_path / "waits.parquet", request="waits")  # it is known
        for _ in range(2):
            stream.corrections.forget(tmp_path / "request.parquet", request="R1")
        list(stream.run())
        assert stream.findings == {}
        inside = pl.col("when") < datetime(2026, 1, 1 + CUT)  # what waits is forgotten, to be read again
        truth = frame.filter(inside).height if read_again else len(frame)
        assert count(stream.last, []) == {(): truth - 2}
        dated.drop("when").write_parquet(tmp_path / "request.parquet")
        with pytest.raises(SchemaError, match="'when' is missing"):
            stream.corrections.forget(tmp_path / "request.parquet", request="R2")


def asked(folder: Path, request: pl.DataFrame, *, persons: bool = False) -> tuple[StreamConfig, str]:
    """A stream with op that took a request before its last ticks were released, and the text of a successor."""
    unit = 'unit = { person = "who", max_events = 2 }' if persons else 'unit = "event"'
    old, new = ('op = "op"\n' + text.replace('unit = "event"', unit) for text in (OLD, NEW))
    config = written(folder, old)
    with Stream(config, gates=exact) as stream:
        stream.update(events(60).with_columns(op=pl.lit(1), who=pl.int_range(60).cast(pl.String)))
        stream.corrections.forget(request, request="R1")
        list(stream.run())
    return config, new


BEFORE_CUT = events(60).filter(pl.col("when") < datetime(2026, 1, 1 + CUT)).height


@pytest.mark.parametrize("read_again", [False, True])
def test_a_request_without_times_is_never_taken_again_after_a_cut(tmp_path: Path, read_again: bool) -> None:
    request = event(CUT + 2)  # it counts before the cut, since nobody said when it was
    old, new = asked(tmp_path, request.drop("when", "paid"))
    succeed(old, written(tmp_path, new, "new.toml"), gates=exact, read_again=read_again)
    with Stream(written(tmp_path, new, "new.toml"), gates=exact) as stream:
        with pytest.raises(SchemaError, match="'when' is missing"):
            stream.corrections.forget(request.drop("when"), request="R1")
        stream.corrections.forget(request, request="R1")
        list(stream.run())
        assert count(stream.last, []) == {(): (BEFORE_CUT if read_again else 60) - 1}


@pytest.mark.parametrize("read_again", [False, True])
def test_what_a_request_takes_away_after_the_cut_is_taken_once(tmp_path: Path, read_again: bool) -> None:
    request = pl.concat([event(2), event(CUT + 2)])
    old, new = asked(tmp_path, request)
    succeed(old, written(tmp_path, new, "new.toml"), gates=exact, read_again=read_again)
    with Stream(written(tmp_path, new, "new.toml"), gates=exact) as stream:
        for _ in range(2):  # what waited went over, or comes again, as batches do
            stream.corrections.forget(request, request="R1")
        if read_again:
            with pytest.raises(BatchConflict):
                stream.corrections.forget(request.head(1), request="R1")
        list(stream.run())
        assert count(stream.last, []) == {(): (BEFORE_CUT if read_again else 60) - 2}


def test_a_request_of_a_person_comes_again_when_all_is_read_again(tmp_path: Path) -> None:
    request = pl.concat([event(2), event(CUT + 2)]).with_columns(who=pl.Series(["a", "b"]))
    old, new = asked(tmp_path, request, persons=True)
    succeed(old, written(tmp_path, new, "new.toml"), gates=exact, read_again=True)
    with Stream(written(tmp_path, new, "new.toml"), gates=exact) as stream:
        for _ in range(2):
            stream.corrections.forget(request, request="R1")
        cells = stream._synthesizer.cells
        waits = [int(stream._intake.pending(tick).dense(cells)[0]) for tick in (CUT, CUT + 1)]
        assert waits == [0, -1]


def test_a_request_waits_over_one_cut_and_comes_again_after_the_next(tmp_path: Path) -> None:
    request = event(CUT + 2)
    old, new = asked(tmp_path, request)
    new = new.replace("until = 2026-01-09", "until = 2026-01-06")
    config = succeed(old, written(tmp_path, new, "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
        assert stream.closed == CUT + 1
        inside = count(stream.last, [])[()]
    third = new.partition("[after]")[0].replace("until = 2026-01-06", "until = 2026-01-09")
    last = written(tmp_path, f'{third}[after]\nconfig = "new.toml"\n', "last.toml")
    with Stream(succeed(config, last, gates=exact, read_again=True), gates=exact) as stream:
        for _ in range(2):
            stream.corrections.forget(request, request="R1")
        list(stream.run())
        assert count(stream.last, []) == {(): inside - 1}


def test_a_request_that_an_earlier_version_took_stays_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a one may have counted in the open tick, whatever its rows' times."""
    request = event(CUT + 2)
    with monkeypatch.context() as earlier:
        earlier.setattr("synthstream.ingest.intake.DATED", "")
        old, new = asked(tmp_path, request)
        with Stream(old, gates=exact) as stream:
            stream.corrections.forget(request, request="R1")
    with Stream(old, gates=exact) as stream:
        stream.corrections.forget(request, request="R1")
    succeed(old, written(tmp_path, new, "new.toml"), gates=exact, read_again=True)
    with Stream(written(tmp_path, new, "new.toml"), gates=exact) as stream:
        stream.corrections.forget(request, request="R1")
        list(stream.run())
        assert count(stream.last, []) == {(): BEFORE_CUT}


def test_each_side_waits_as_its_own_settings_say(tmp_path: Path) -> None:
    old, wait = half(tmp_path, events()), 'wait = "3d"\nhorizon = 20'
    config = succeed(old, written(tmp_path, NEW.replace("horizon = 20", wait), "new.toml"), gates=exact)
    with Stream(config, gates=exact, env=At(datetime(2026, 1, 10, tzinfo=UTC))) as stream:
        assert len(list(stream.run())) == 2  # ticks 4 and 5: of tick 6 three days have not passed
    manifests = [json.loads((tmp_path / f"releases/{tick:06d}/manifest.json").read_text()) for tick in range(CUT + 2)]
    assert [manifest.get("wait") for manifest in manifests] == [None] * CUT + ["3d"] * 2
    assert not verify(config, rebuild=True).findings


def test_a_stream_whose_rows_have_no_time_has_no_successor(tmp_path: Path) -> None:
    old, new = (text.replace('column = "when"\n', "") for text in (OLD, NEW))
    config = half(tmp_path, events(), old)
    with pytest.raises(ConfigError, match=r"clock\.column: rows have no time"):
        succeed(config, written(tmp_path, new, "new.toml"), gates=exact)


def test_read_again_takes_new_columns_from_the_files_and_counts_each_row_once(tmp_path: Path) -> None:
    frame = events()
    files = source("rows-*.parquet")
    frame.write_parquet(tmp_path / "rows-1.parquet")
    old = written(tmp_path, OLD + files)
    with Stream(old, gates=exact) as stream:
        list(stream.run())
    renamed(frame).write_parquet(tmp_path / "rows-1.parquet")
    succeed(old, written(tmp_path, NEW + files, "new.toml"), gates=exact, read_again=True)
    with Stream(written(tmp_path, NEW + files, "new.toml"), gates=exact) as stream:
        list(stream.run())
        assert count(stream.last, []) == {(): len(frame)}
        after = frame.filter(pl.col("when") >= datetime(2026, 1, 1 + CUT))
        truth = [int((~after["paid"]).sum()), int(after["paid"].sum()), 0]
        assert stream.last is not None
        assert stream.last.table(["paid"])["measured"].to_list() == pytest.approx(truth)


@pytest.mark.parametrize("read_again", [False, True])
def test_a_batch_that_comes_again_after_the_cut_counts_once(tmp_path: Path, read_again: bool) -> None:
    frame, old, new = events(), written(tmp_path), written(tmp_path, NEW, "new.toml")
    with Stream(old, gates=exact) as stream:
        stream.update(frame, batch_id="a")
        counted = Counting(old).count(frame)
        stream.add(counted, batch_id="b")
        list(stream.run())
    succeed(old, new, gates=exact, read_again=read_again)
    with Stream(new, gates=exact) as stream:
        for _ in range(2):
            stream.update(renamed(frame), batch_id="a")
            stream.add(Counting(new).count(renamed(frame)), batch_id="b")
        with pytest.raises(CountsMismatch):
            stream.add(counted)
        list(stream.run())
        assert count(stream.last, []) == {(): 2 * len(frame)}


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("was", "becomes", "field"),
    [
        ('name = "visits"', 'name = "other"', "name: was visits"),
        ('state = "state"', 'state = "elsewhere"', "state: was"),
        ('path = "releases"', 'path = "others"', "sink: was"),
        (
            'unit = "event"',
            'unit = { person = "who", max_events = 3 }',
            'privacy.unit: was "event" and is { person = "who", max_events = 3 };',
        ),
        ('unit = "event"', 'unit = "event"\nneighbours = "replace-one"', "privacy.neighbours: was add-remove"),
        ("start = 2026-01-01", "start = 2026-01-02", "clock.start"),
        ('every = "1d"', 'every = "1w"', "clock.every"),
        ('column = "when"', 'column = "seen"', "clock.column: was when"),
        ("[after]", '[synthesizer]\nkind = "selective"\npicks = 1\n[after]', "synthesizer.kind: was table"),
        (', C = "BC" }', "}", "the old value 'C' has no place"),
        ('C = "BC" }', 'C = "E" }', "'E' is no new value"),
        ('C = "BC" }', 'C = "BC", Z = "A" }', "after.values.ward: 'Z' was no value"),
        ("values = {", 'fill = { x = "0" }\nvalues = {', "after.fill: 'x' is not a new column"),
        ('config = "stream.toml"', 'config = "nowhere.toml"', "No such file"),
        ('config = "stream.toml"', 'config = "new.toml"', r"^[^:]*: after: config = 'new.toml': it goes on from it"),
    ],
)
def test_what_cannot_change_is_refused_with_its_field(tmp_path: Path, was: str, becomes: str, field: str) -> None:
    written(tmp_path)
    with pytest.raises(ConfigError, match=field):
        written(tmp_path, NEW.replace(was, becomes), "new.toml")


def test_a_horizon_that_is_over_and_another_predecessor_are_refused(tmp_path: Path) -> None:
    old = half(tmp_path, events(60))
    short = NEW.replace("horizon = 20", "horizon = 4").replace("until = 2026-01-09", "until = 2026-01-05")
    with pytest.raises(ConfigError, match=r"clock.horizon = 4: 4 ticks have been released"):
        succeed(old, written(tmp_path, short, "new.toml"), gates=exact)
    with pytest.raises(ConfigError, match="the new file must say which stream"):
        succeed(old, old, gates=exact)
    with pytest.raises(ConfigError, match="the other way round"):
        planned(written(tmp_path, NEW, "new.toml"), old)
    written(tmp_path, OLD.replace("epsilon = 1.0", "epsilon = 2.0"), "other.toml")
    with pytest.raises(ConfigError, match="names another stream"):
        succeed(old, written(tmp_path, NEW.replace("stream.toml", "other.toml"), "new.toml"), gates=exact)
    with Stream(old, gates=exact) as stream:  # nothing was changed
        assert stream.closed == CUT
    shutil.rmtree(old.state)
    with pytest.raises(StateError, match=r"There is no state.* recover stream\.toml --adopt.* one more tick must"):
        succeed(old, written(tmp_path, NEW, "new.toml"), gates=exact)
    assert not old.state.exists()


@pytest.mark.parametrize(("horizon", "how"), [(6, "Release that tick first"), (CUT, "It never will, since")])
def test_a_part_that_has_released_nothing_has_no_successor(tmp_path: Path, horizon: int, how: str) -> None:
    old = half(tmp_path, events(60), OLD.replace("horizon = 6", f"horizon = {horizon}"))
    shutil.rmtree(old.state)
    adopt(old, gates=exact)
    new = written(tmp_path, NEW, "new.toml")
    with pytest.raises(StateError, match=f"a segment begins with tick 4, and has released nothing. {how}"):
        succeed(old, new, gates=exact)
    with pytest.raises(StateMismatch, match="has not begun"):
        verify(new)


def test_a_damaged_state_that_alone_knows_of_a_cut_is_not_adopted(tmp_path: Path) -> None:
    """A segment would begin at the cut with rows of other columns, and a claim that does not name its theorem."""
    frame = events(60)
    old, new = half(tmp_path, frame), written(tmp_path, NEW, "new.toml")
    succeed(old, new, gates=exact)
    with closing(sqlite3.connect(old.state / "store.db")) as db, db:
        assert db.execute("UPDATE counter SET state = x'00'").rowcount == 1
    before = published(tmp_path)
    with pytest.raises(RecoveryRefused, match=f"other settings at tick {CUT}, and has released nothing since"):
        adopt(new, gates=exact)
    assert published(tmp_path) == before
    old.state.rename(tmp_path / "damaged")
    assert adopt(old, gates=exact).start == CUT
    with Stream(written(tmp_path, OLD.replace("2026-01-05", "2026-01-06")), gates=exact) as stream:
        list(stream.run())
    old = written(tmp_path, OLD.replace("2026-01-05", "2026-01-06"))
    config = succeed(old, new, gates=exact)
    with Stream(new, gates=exact) as stream:
        list(stream.run())
        assert stream.last is not None
        assert {"segments", "succession"} <= set(stream.last.facts["claim"]["theorems"])
    assert verify(config, rebuild=True).findings == []


def test_whether_rows_can_go_on_is_decided_by_settings_alone(tmp_path: Path) -> None:
    """The same refusal, whether anything waits or not."""
    thirds = NEW.replace("bins = 2", "bins = 3")
    for name, frame in {"empty": events(60).clear(), "full": events(60)}.items():
        (tmp_path / name).mkdir()
        old = half(tmp_path / name, frame)
        new = written(tmp_path / name, thirds, "new.toml")
        with pytest.raises(StateMismatch, match="columns: a bin was cut"):
            succeed(old, new, gates=exact)
        succeed(old, new, gates=exact, read_again=True)


def test_each_file_is_for_its_own_side_of_the_cut(tmp_path: Path) -> None:
    old = half(tmp_path, events(60))
    new = written(tmp_path, NEW, "new.toml")
    with pytest.raises(StateMismatch, match="synthstream succeed"):
        Stream(new, gates=exact)
    first = f"no release yet. Its first one is of the tick that ends {moment(old.clock.boundary(CUT + 1))}, once"
    with pytest.raises(ConfigError, match=first):
        Releases(new).last  # noqa: B018
    succeed(old, new, gates=exact)
    with pytest.raises(ConfigError, match=first):
        Releases(new).last  # noqa: B018
    for _ in range(2):  # before its first release, and after it
        with pytest.raises(ConfigError, match="went on with other settings at tick 4"):
            Stream(old, gates=exact)
        with Stream(new, gates=exact) as stream:
            list(stream.run())
    with pytest.raises(ConfigError, match="went on with other settings at tick 4"):
        Releases(old).last  # noqa: B018


def test_an_old_copy_of_either_state_is_refused_and_the_first_to_publish_a_tick_wins(tmp_path: Path) -> None:
    old = half(tmp_path, events(60))
    new = written(tmp_path, NEW, "new.toml")
    shutil.copytree(old.state, tmp_path / "first")
    succeed(old, new, gates=exact)
    shutil.copytree(old.state, tmp_path / "second")
    with Stream(new, gates=exact) as stream:
        stream.release()
        stream.release()
    seen = published(tmp_path / "releases")
    for copy, config in (("first", old), ("second", new)):
        shutil.rmtree(old.state)
        shutil.copytree(tmp_path / copy, old.state)
        with pytest.raises(StateRolledBack, match="did not make"):
            Stream(config, gates=exact)
    shutil.rmtree(old.state)
    shutil.copytree(tmp_path / "first", old.state)
    with pytest.raises(RecoveryRefused, match="from before tick 4"):
        adopt(new, gates=exact)
    shutil.rmtree(tmp_path / "releases/000004")
    shutil.rmtree(tmp_path / "releases/000005")
    longer = written(tmp_path, OLD.replace("until = 2026-01-05", "until = 2026-01-06"))
    with Stream(longer, gates=exact) as stream:  # as if it had been faster
        stream.release()
    shutil.rmtree(old.state)
    shutil.copytree(tmp_path / "second", old.state)
    with pytest.raises(StateError):
        Stream(new, gates=exact)
    assert {name: seen[name] for name in seen if name < "000004"}.items() <= published(tmp_path / "releases").items()


@pytest.mark.sparing(2)
@pytest.mark.parametrize("measure", ["always", "refresh", "epochs"])
def test_columns_change_in_every_way_of_measuring(tmp_path: Path, measure: str) -> None:
    how = f'[synthesizer]\nkind = "table"\nmeasure = "{measure}"\n'
    delta = "delta = 0" if measure == "epochs" else "delta = 1e-9"
    old, new = (text.replace("delta = 1e-9", delta) for text in (OLD + how, NEW.replace("[after]", f"{how}[after]")))
    frame = events()
    config = succeed(half(tmp_path, frame, old), written(tmp_path, new, "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
        assert count(stream.last, []) == {(): len(frame)}
        assert stream.last is not None
        assert stream.last.rows().columns == ["ward", "x", "paid"]
    assert verify(config, rebuild=True) == (8, 8, [], [])
    assert Releases(config).last.tick == 7


# -- one life --------------------------------------------------------------------------------------------------------


@pytest.mark.sparing(3)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_goes_on_with_another_budget_and_its_releases_are_built_again(tmp_path: Path, kind: str) -> None:
    old = half_run(tmp_path, kind)
    text = text_of(kind).replace("epsilon = 2.0", "epsilon = 1.0").replace("horizon = 12", "horizon = 16")
    new = written(tmp_path, text + '[after]\nconfig = "stream.toml"\n', "new.toml")
    config = succeed(old, new)
    with Stream(new) as stream:
        list(stream.run())
        assert stream.closed == TICKS
    assert verify(config, rebuild=True) == (TICKS, TICKS, [], [])
    manifest = json.loads((tmp_path / "releases/000007/manifest.json").read_text())
    claim = manifest["claim"]
    assert manifest["segments"] == [HALF]
    assert [cut["tick"] for cut in manifest["cuts"]] == [HALF]
    assert (claim["epsilon"], claim["horizon"], claim["theorems"][-1]) == (2.0, 16, "succession")
    assert [(part["from"], part["epsilon"]) for part in claim["parts"]] == [(0, 2.0), (HALF, 1.0)]
    assert {f"{tick:06d}" for tick in range(TICKS)} <= {p.name for p in (tmp_path / "releases").iterdir()}


def test_a_successor_of_a_successor_and_a_loss_on_top_of_one(tmp_path: Path) -> None:
    frame = events()
    old = half(tmp_path, frame)
    new = written(tmp_path, NEW.replace("2026-01-09", "2026-01-07"), "new.toml")
    succeed(old, new, gates=exact)
    with Stream(new, gates=exact) as stream:
        list(stream.run())
    shutil.rmtree(new.state)
    assert adopt(new, gates=exact).start == 6
    with Stream(written(tmp_path, NEW.replace("2026-01-09", "2026-01-08"), "new.toml"), gates=exact) as stream:
        stream.update(renamed(frame))  # what waited was lost
        list(stream.run())
    new = written(tmp_path, NEW.replace("2026-01-09", "2026-01-08"), "new.toml")
    third = NEW.replace(PAID, "").replace('"BC", "D"', '"R"').replace("epsilon = 0.5", "epsilon = 2.0")
    third = (
        third[: third.index("[after]")] + '[after]\nconfig = "new.toml"\nvalues = { ward = { BC = "R", D = "R" } }\n'
    )
    config = succeed(new, written(tmp_path, third, "third.toml"), gates=exact)
    with Stream(written(tmp_path, third, "third.toml"), gates=exact) as stream:
        list(stream.run())
        assert stream.last is not None
        wards = renamed(frame)["ward"].replace({"BC": "R"}).value_counts()
        found = {key[0]: n for key, n in count(stream.last, ["ward"]).items() if n}
        assert found == pytest.approx(dict(wards.rows()))
        claim = stream.last.facts["claim"]
        spent = stream.status()["spent"]
    assert (claim["epsilon"], claim["rho"]) == (2.0, max(part["rho"] for part in claim["parts"]))
    assert [part["from"] for part in claim["parts"]] == [0, 4, 7]
    assert {"segments", "succession"} <= set(claim["theorems"])
    assert [entry["epsilon"] for entry in spent] == [1.0, 1.0, 2.0]
    assert verify(config, rebuild=True) == (8, 8, [], [])


def test_what_no_end_costs_a_successor_is_told_from_its_own_first_tick(tmp_path: Path) -> None:
    old = half(tmp_path, events())
    new = written(tmp_path, NEW.replace("horizon = 20", 'horizon = "unbounded"'), "new.toml")
    (told,) = [one.words for one in plan(planned(old, new), at_ticks=[100]).cautions if one.about == "clock.horizon"]
    assert told.startswith("An unbounded horizon costs accuracy: after 100 ticks")
    assert told.endswith(f"those of a stream with horizon = {CUT + 100}, which would end there.")


def test_persons_pay_the_sum_and_rows_that_wait_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthstream.ingest.persons.CHUNK_ROWS", 3)  # rows that wait go on some at a time
    old = half_run(tmp_path, PERSONS, gates=True)
    text = text_of(PERSONS).replace("epsilon = 2.0", "epsilon = 1.0").replace('"B", "C"', '"BC"')
    text += '[after]\nconfig = "stream.toml"\nvalues = { ward = { B = "BC", C = "BC" } }\n'
    new = written(tmp_path, text, "new.toml")
    promised = plan(planned(old, new), rows=False)
    assert promised.promise["epsilon"] == 3.0
    asked = CliRunner().invoke(app, ["succeed", str(tmp_path / "stream.toml"), str(tmp_path / "new.toml")])
    assert "satisfy (3, 2e-09)-differential privacy" in " ".join(asked.output.split())  # before anybody says yes
    assert "It is the sum of its parts, (2, 1e-09) from tick 0 on, (1, 1e-09) from tick 4 on" in promised.words
    config = succeed(old, new, gates=exact)
    with Stream(new, gates=exact) as stream:
        list(stream.run())
        assert stream.last is not None
        claim, total = stream.last.facts["claim"], count(stream.last, [])[()]
    assert (claim["epsilon"], claim["delta"]) == (3.0, 2e-9)
    assert claim["rho"] == pytest.approx(sum(part["rho"] for part in claim["parts"]))
    assert verify(config, rebuild=True).findings == []
    (tmp_path / "whole").mkdir()
    alone = configured(tmp_path / "whole", PERSONS)
    (tmp_path / "whole/rows-1.parquet").write_bytes((tmp_path / "rows-1.parquet").read_bytes())
    with Stream(alone, gates=exact) as stream:  # the same rows without a cut: the same persons, as often
        list(stream.run())
        assert count(stream.last, [])[()] == total


def test_a_successor_whose_ticks_let_fewer_events_in_measures_tables_otherwise_and_says_so(tmp_path: Path) -> None:
    """Ten ticks that are left let in ten times as many events as one; six do not."""
    unit = '{ person = "who", max_events = 20, max_per_tick = 1 }'
    parts = (of_numbers("x", "bins = 4", high=10), SINK, source("rows-*.parquet"))
    frame = events().with_columns(who=pl.Series([str(one % 60) for one in range(400)]))
    frame.write_parquet(tmp_path / "rows-1.parquet")

    def life(name: str, horizon: int, *more: str) -> StreamConfig:
        made = stream_toml(WARD, *parts, *more, unit=unit, horizon=horizon, until=None)
        return written(tmp_path, made, name)

    def run(config: StreamConfig, until: int) -> Stream:
        with Stream(config, gates=exact) as stream:
            list(stream.run(until=config.clock.boundary(until)))
            return stream

    first = life("stream.toml", 14)
    run(first, 4)
    second = life("new.toml", 14, PAID, '[after]\nconfig = "stream.toml"\n')
    assert (first.measures, second.measures, planned(first, second).measures) == ("always", "always", "always")
    run(cut := succeed(first, second, gates=exact), 8)
    third = life("third.toml", 14, PAID, '[after]\nconfig = "new.toml"\n')
    told = "tables: were measured all at every tick, are measured the larger ones at refreshes"
    assert changes_of(planned(second, third)) == [told]
    asked = CliRunner().invoke(app, ["succeed", str(tmp_path / "new.toml"), str(tmp_path / "third.toml")])
    assert f"What changes: {told}" in " ".join(asked.output.split())
    guessed, expected = (plan(one, rows=False) for one in (third, planned(second, third)))
    assert [any("The cut is not known here" in note for note in found.notes) for found in (guessed, expected)] == [
        True,
        False,
    ]
    (words,) = [caution.words for caution in expected.cautions if "no effect above 6" in caution.words]
    assert "what is left of the stream has 6 ticks" in words
    assert "Say max_events" not in words  # a successor keeps its unit
    config = succeed(second, third, gates=exact)
    assert [life.measures for life in config.lives] == ["always", "always", "refresh"]
    assert [life.own_hash for life in config.lives[1:]] == [cut.own_hash, begun(third).own_hash]
    stream = run(third, 12)
    assert stream.last is not None
    assert stream.last.facts["claim"]["rho"] == expected.promise["rho"]
    assert verify(third, rebuild=True).findings == []
    assert Releases(third).config.measures == "refresh"


# -- before anything is spent, and at the command line ---------------------------------------------------------------


def test_plan_says_the_promise_of_the_whole_life_before_and_changes_nothing(tmp_path: Path) -> None:
    half(tmp_path, events(60))
    written(tmp_path, NEW, "new.toml")
    before = published(tmp_path)
    command = ["plan", str(tmp_path / "new.toml"), "--after", str(tmp_path / "stream.toml")]
    result = CliRunner().invoke(app, command)
    text = " ".join(result.output.split())
    assert "over all 20 ticks, satisfy (1, 1e-09)-differential privacy for any single event" in text
    assert "(1, 1e-09) from tick 0 on, (0.5, 1e-09) from tick 4 on: an event counts in one of them alone" in text
    assert "All errors are those of what is counted from the cut at tick 4 on" in text
    page = tmp_path / "plan.html"
    assert CliRunner().invoke(app, [*command, "-o", str(page)]).exit_code == 0
    assert "epsilon 0.5 from the cut on" in page.read_text()
    page.unlink()
    planned_claim = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)["claim"]
    after = published(tmp_path)
    assert {name: after[name] for name in before} == before
    config = succeed(load(tmp_path / "stream.toml"), load(tmp_path / "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        stream.release()
    manifest = json.loads((tmp_path / "releases/000004/manifest.json").read_text())
    assert {**planned_claim, "words": ""} == {**manifest["claim"], "words": ""}
    assert manifest["claim"]["words"].endswith(planned_claim["words"])  # stamped as simulated


@pytest.mark.parametrize(("delta", "columns"), [(1e-9, ["ward"]), (0.0, list[str]())])
def test_plan_says_how_far_running_counts_are_off_with_the_noise_of_all_parts(
    tmp_path: Path, delta: float, columns: list[str]
) -> None:
    def part(number: int, until: str, epsilon: float) -> StreamConfig:
        after = f'[after]\nconfig = "{number - 1}.toml"\n' if number else ""
        text = stream_toml(WARD, SINK, after, horizon=20, until=until, epsilon=epsilon, delta=delta)
        return written(tmp_path, text, f"{number}.toml")

    def off_by(stream: Stream) -> float:
        assert isinstance(stream.last, TableRelease)
        return float(np.sqrt((stream.last.table(columns)["stderr"] ** 2).to_numpy().mean()))

    old, errors, told = part(0, "2026-01-04", 1.0), list[float](), ""
    for number, (until, epsilon) in enumerate([("2026-01-06", 0.5), ("2026-01-09", 2.0)], 1):
        with Stream(old, gates=exact) as stream:
            list(stream.run())
            errors.append(off_by(stream))
        new = part(number, until, epsilon)
        (told,) = [note for note in plan(planned(old, new), at_ticks=[3]).notes if note.startswith("Running counts")]
        old = succeed(old, new, gates=exact)
    with Stream(old, gates=exact) as stream:
        list(stream.run())
        errors.append(off_by(stream))
    assert errors == sorted(errors)
    assert f"is off by {errors[1]:,.3g} at the cut already (standard error), and by {errors[2]:,.3g} after 3" in told
    if not columns:
        return
    new = written(tmp_path, stream_toml(PAID, SINK, '[after]\nconfig = "2.toml"\n', horizon=20), "3.toml")
    assert not any("Running counts keep" in note for note in plan(planned(old, new), at_ticks=[3]).notes)


@pytest.mark.parametrize(("until", "goes_on"), [("2026-01-15", True), ("2026-01-16", False), ("2026-01-17", True)])
def test_plan_says_when_larger_tables_begin_anew(tmp_path: Path, until: str, goes_on: bool) -> None:
    columns = WARD + PAID
    old = written(tmp_path, stream_toml(columns, SINK, horizon=20, until=until))
    new = written(
        tmp_path, stream_toml(columns, SINK, '[after]\nconfig = "stream.toml"\n', horizon=30, until=None), "new.toml"
    )
    with Stream(old, gates=exact) as stream:  # no rows, so no burst
        list(stream.run())
    told = [note for note in plan(planned(old, new), at_ticks=[3]).notes if note.startswith("Larger tables")]
    succeed(old, new, gates=exact)
    with Stream(new, gates=exact) as stream:
        assert isinstance(release := stream.release(), TableRelease)
    assert (release.table(["ward", "paid"])["since"].unique().to_list() == [0]) == goes_on
    assert [note.partition("begin anew there. ")[2] for note in told] == (
        []
        if goes_on
        else [
            "They would go on from a cut after tick 15, at which they are measured again, or after one that brings a "
            "burst."
        ]
    )


def test_the_commands_go_on_with_real_noise(tmp_path: Path) -> None:
    run = partial(CliRunner().invoke, app)
    old, new = str(tmp_path / "stream.toml"), str(tmp_path / "new.toml")
    events().write_parquet(tmp_path / "rows-1.parquet")
    written(tmp_path, OLD + source("rows-*.parquet"))
    written(tmp_path, NEW + source("rows-*.parquet"), "new.toml")
    assert run(["run", old, "--yes"]).exit_code == 0
    written(tmp_path, NEW.partition("[after]")[0], "bare.toml")
    refused = run(["succeed", old, str(tmp_path / "bare.toml")])  # before it asks
    assert (refused.exit_code, "[after], and below it config =" in " ".join(refused.output.split())) == (2, True)
    asked = run(["succeed", old, new])  # and nobody can answer
    assert (asked.exit_code, "Running counts keep the noise of before" in " ".join(asked.output.split())) == (2, True)
    assert "What changes: clock.horizon: was 6, is 20; columns.paid: is a new column" in asked.output
    written(tmp_path, OLD + source("rows-*.parquet") + f"\n[after]\nconfig = {old!r}\n", "same.toml")
    asked = run(["succeed", old, str(tmp_path / "same.toml")])
    assert (asked.exit_code, "What changes: nothing that is counted" in asked.output) == (2, True)
    result = run(["succeed", old, new, "--yes"])
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "goes on" in text
    assert "from tick 4, 2026-01-05" in text
    assert "It is the largest of its parts" in text
    assert run(["run", new]).exit_code == 0
    assert run(["verify", new, "--rebuild"]).exit_code == 0
    status = json.loads(run(["status", new, "--json"]).output)
    assert (status["ticks"], status["horizon"], len(status["spent"])) == (8, 20, 2)
    assert run(["run", old]).exit_code == 2
    entry = yaml.safe_load((tmp_path / "releases/deployment.yaml").read_text())["deployment"]
    assert entry["privacy_loss"]["privacy_parameters"]["epsilon"] == 1.0
    assert "From tick 4 on it has other settings." in entry["privacy_loss"]["privacy_parameters_description"]
    assert entry["dp_flavor"]["name"] == "Zero-concentrated DP"


def test_a_simulation_goes_on_with_its_own_state_and_releases(tmp_path: Path) -> None:
    run = partial(CliRunner().invoke, app)
    old, new = str(tmp_path / "stream.toml"), str(tmp_path / "new.toml")
    written(tmp_path)
    written(tmp_path, NEW, "new.toml")
    assert run(["run", old, "--simulate", "--seed", "3"]).exit_code == 0
    said = run(["succeed", old, new, "--simulate", "--seed", "3"])
    assert said.exit_code == 0
    assert "Rows that were read already" in said.output, "a trial says what the stream would"
    assert run(["run", new, "--simulate", "--seed", "3"]).exit_code == 0
    assert len(list((tmp_path / "releases-simulated").glob("0*"))) == 8
    assert not (tmp_path / "releases").exists()


@pytest.mark.parametrize("head", ["", 'op = "op"\n'])
def test_the_command_says_that_requests_must_be_said_again(tmp_path: Path, head: str) -> None:
    run = partial(CliRunner().invoke, app)
    written(tmp_path, head + OLD)
    written(tmp_path, head + NEW, "new.toml")
    assert run(["run", str(tmp_path / "stream.toml"), "--simulate"]).exit_code == 0
    command = ["succeed", str(tmp_path / "stream.toml"), str(tmp_path / "new.toml"), "--simulate", "--read-again"]
    text = " ".join(run(command).output.split())
    assert "goes on with" in text
    assert ("say them again, under the same ids" in text) == bool(head)


def test_rows_that_are_read_again_are_read_with_the_same_times(tmp_path: Path) -> None:
    """Otherwise a row without a readable time counts before the cut, and with its own time after it."""

    text = stream_toml(WARD, source("rows-*.csv").replace("parquet", "csv"))
    old, new = (
        StreamConfig.from_toml(one, base=tmp_path)
        for one in (text, text.replace("[source]\n", '[source]\ndatetime_format = "%d.%m.%Y"\n'))
    )
    for base in (tmp_path, tmp_path / "elsewhere"):
        moved = StreamConfig.from_toml(text.replace("rows-*", "later-*"), base=base)
        succession._refuse_to_read_otherwise(old, moved)
    with pytest.raises(ConfigError, match="they must have the time that they had"):
        succession._refuse_to_read_otherwise(old, new)
    lines = text.replace("csv", "jsonl")
    days, months = (
        StreamConfig.from_toml(
            lines.replace("[source]\n", f"[source]\ndatetime_format = {{ {forms} }}\n"), base=tmp_path
        )
        for forms in ('when = "%d.%m.%Y", "*" = "%m.%d.%Y"', 'when = "%m.%d.%Y", "*" = "%d.%m.%Y"')
    )
    with pytest.raises(ConfigError, match="they must have the time that they had"):
        succession._refuse_to_read_otherwise(days, months)
