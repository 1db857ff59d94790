"""Readers see one history: releases, windows, comparisons and the page, across a cut."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import deltalake
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.errors import NotReleased, SchemaError
from synthstream.forecast.planning import plan
from synthstream.publish.history import history_of
from synthstream.publish.published import Releases
from synthstream.release.release import Release
from synthstream.release.tables import TableRelease
from synthstream.report.distributions import counts_over_time
from synthstream.stream.opening import system_gate
from synthstream.stream.succession import succeed
from synthstream.stream.verification import verify
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.halves import HALF, exact, half_run
from tests.support.streams import text_of
from tests.support.successors import CUT, NEW, OLD, events, half, renamed, written


def gone_on(folder: Path, frame: pl.DataFrame) -> StreamConfig:
    """A stream and its successor without noise; what waits goes over."""
    old = half(folder, frame)
    config = succeed(old, written(folder, NEW, "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    return config


def wards(frame: pl.DataFrame) -> dict[str, float]:
    return {ward: float(n) for ward, n in renamed(frame)["ward"].value_counts().rows()}


def measured(found: Release, columns: list[str]) -> dict[str, float]:
    table = found.table(columns)
    return {key: round(n, 6) for key, n in zip(table[columns[0]], table["measured"], strict=True) if n}


def between(frame: pl.DataFrame, first: int, end: int) -> pl.DataFrame:
    start, stop = (datetime(2026, 1, 1 + tick) for tick in (first, end))
    return frame.filter((pl.col("when") >= start) & (pl.col("when") < stop))


def test_each_release_has_its_own_columns_and_windows_and_comparisons_cross_the_cut(tmp_path: Path) -> None:
    frame = events()
    releases = Releases(gone_on(tmp_path, frame))
    assert [release.schema.names for release in releases] == [("ward", "x")] * CUT + [("ward", "x", "paid")] * 4
    # Before the cut, across it, from the start, after it, from it on.
    for first, end in [(1, 3), (2, 6), (0, 6), (5, 8), (CUT, 6)]:
        window = releases.between(f"2026-01-0{1 + first}", f"2026-01-0{1 + end}")
        rows = between(frame, first, end)
        truth = dict(rows["ward"].value_counts().rows()) if end <= CUT else wards(rows)
        assert measured(window, ["ward"]) == pytest.approx(truth), (first, end)
        if first < CUT < end:
            assert window.table(["paid"])["measured"].null_count() == 3
            assert window.rows()["paid"].null_count() == window.model.number  # not recorded
        if first == CUT:
            assert measured(window, ["paid"]) == pytest.approx({"missing": rows.height})  # they waited without it
    last, early = releases.last, releases.at(2)
    assert isinstance(last, TableRelease)
    assert isinstance(early, TableRelease)
    found = last.compare(early, ["ward"])
    truth = wards(between(frame, 3, 8))
    told = {ward: n for ward, n in found.select("ward", "measured").rows() if n}
    assert told == pytest.approx(truth)
    assert last.compare(early).height == last.tables.height
    with pytest.raises(SchemaError, match="not earlier"):
        early.compare(last)
    after, before = (releases.between(f"2026-01-0{day}", f"2026-01-0{day + 2}") for day in (1 + CUT, 1))
    with pytest.raises(SchemaError, match=f"settings of '.*' changed at tick {CUT}. Compare windows on one side"):
        after.compare(before)


@pytest.mark.slow
def test_errors_of_merged_and_kept_cells_are_those_of_the_sums(tmp_path: Path) -> None:
    """Over seeded runs the errors of running tables are as large as their stated errors, in every cell."""
    frame = events(200)
    off, said = [], []
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()

        def gates(tick: int, seed: int = seed) -> SeededGate:
            return SeededGate(f"{seed}/{tick}")

        old = written(folder)
        with Stream(old, gates=gates, seed=seed) as stream:
            stream.update(frame)
            list(stream.run())
        config = succeed(old, written(folder, NEW, "new.toml"), gates=gates, seed=seed)
        with Stream(config, gates=gates, seed=seed) as stream:
            list(stream.run())
            assert isinstance(stream.last, TableRelease)
            table = stream.last.table(["ward"])
        truth = [wards(frame).get(ward, 0.0) for ward in table["ward"]]
        off.append((table["measured"].to_numpy() - truth) / table["stderr"].to_numpy())
        said.append(table["stderr"].to_numpy())
    stderr = dict(zip(table["ward"], said[0], strict=True))
    assert stderr["BC"] > stderr["A"] > stderr["D"]  # two old cells, one, none
    assert float(np.sqrt(np.mean(np.square(off)))) == pytest.approx(1.0, abs=0.1)


def test_the_report_tells_one_history(tmp_path: Path) -> None:
    frame = events()
    config = gone_on(tmp_path, frame)
    history = history_of(config, progress=lambda ticks, _: ticks)
    here = history.workload.slice_of((0,))
    counts = [history.cells(tick).measured[here][0] for tick in history.ticks]
    truth = [len(between(frame, 0, tick + 1).filter(ward="A")) for tick in range(8)]
    assert counts == pytest.approx(truth)
    page = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["report", str(tmp_path / "new.toml"), "-o", str(page)])
    assert result.exit_code == 0, result.output
    text = " ".join(page.read_text().split())
    assert "It is the largest of its parts" in text
    assert "No tick is missing. On 2026-01-05 the stream went on with other settings; counts before" in text
    for tick, names in (("2026-01-03", ["ward", "x"]), ("2026-01-08", ["ward", "x", "paid"])):
        target = tmp_path / f"{tick}.parquet"
        command = ["sample", str(tmp_path / "new.toml"), "--at", tick, "-n", "20", "-o", str(target)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        assert pl.read_parquet(target).columns == names


@pytest.mark.parametrize("kind", ["refresh", "epochs", "selective", "stream-mwem"])
def test_windows_of_other_kinds_cross_a_cut_or_say_why_not(tmp_path: Path, kind: str) -> None:
    old = half_run(tmp_path, kind)
    text = text_of(kind).replace("epsilon = 2.0", "epsilon = 1.0") + '[after]\nconfig = "stream.toml"\n'
    config = succeed(old, written(tmp_path, text, "new.toml"), gates=system_gate)
    with Stream(config) as stream:
        list(stream.run())
    releases = Releases(config)
    if kind == "refresh":
        window = releases.between(f"2026-01-0{HALF}", "2026-01-08")
        assert (window.first, window.tick) == (HALF - 1, 6)
        return
    with pytest.raises(NotReleased, match="between: "):
        releases.between(f"2026-01-0{HALF}", "2026-01-08")


def test_a_delta_mirror_takes_the_new_columns(tmp_path: Path) -> None:
    mirror = '[[mirror]]\nkind = "delta"\npath = "copy"\n'
    old = half(tmp_path, events(60), OLD + mirror)
    config = succeed(old, written(tmp_path, NEW.replace("[after]", f"{mirror}[after]"), "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    copy = deltalake.DeltaTable(tmp_path / "copy")
    assert [field.name for field in copy.schema().fields] == ["ward", "x", "paid"]
    assert copy.version() == 7


def by_tick(frame: pl.DataFrame, column: str) -> dict[tuple[int, str], int]:
    tick = (pl.col("when") - datetime(2026, 1, 1)).dt.total_days().alias("tick")
    return {(t, str(v)): n for t, v, n in frame.group_by(tick, column).len().iter_rows()}


def told(lines: pl.DataFrame) -> dict[tuple[int, str], float]:
    tick = (pl.col("start") - datetime(2026, 1, 1)).dt.total_days().alias("tick")
    return {(t, v): n for t, v, n in lines.select(tick, "value", "measured").iter_rows() if round(n or 0)}


def test_series_are_over_the_newest_columns_and_files_over_their_own(tmp_path: Path) -> None:
    frame = events()
    releases = Releases(gone_on(tmp_path, frame))
    assert told(releases.series("ward")) == pytest.approx(by_tick(renamed(frame), "ward"))
    after = frame.filter(pl.col("when") >= datetime(2026, 1, 1 + CUT)).with_columns(paid=pl.lit("missing"))
    assert told(releases.series("paid")) == pytest.approx(by_tick(after, "paid"))  # what waited came without it
    steps = releases.series("ward", every="6d")  # one across the cut, and one after it
    assert steps["start"].n_unique() == 2
    sums = dict(steps.group_by("value").agg(pl.col("measured").sum()).rows())
    assert {ward: n for ward, n in sums.items() if round(n)} == pytest.approx(wards(frame))
    assert releases.series("paid", every="2d")["start"].unique().sort().dt.day().to_list() == [CUT + 1, CUT + 3]
    with pytest.raises(NotReleased, match="no step of 8d lies after 'paid'"):
        releases.series("paid", every="8d")
    for release in releases:
        ward = release.series.filter(pl.col("column") == "ward")
        assert ("BC" in ward["value"].to_list()) == (release.tick >= CUT)
        rows = frame if release.tick < CUT else renamed(frame)
        truth = {key: n for key, n in by_tick(rows, "ward").items() if key[0] == release.tick}
        assert told(ward.filter(pl.col("span") == "tick")) == pytest.approx(truth)


def test_errors_of_steps_across_a_cut_are_those_of_releases_and_windows(tmp_path: Path) -> None:
    releases = Releases(gone_on(tmp_path, events()))
    for every, first, same in (("6d", 1, releases.at(5)), ("3d", 4, releases.between("2026-01-04", "2026-01-07"))):
        lines = releases.series("ward", every=every).filter(pl.col("start") == datetime(2026, 1, first))
        stderr, own = dict(lines.select("value", "stderr").rows()), dict(same.table("ward")["ward", "stderr"].rows())
        assert stderr["BC"] >= stderr["A"] > 0
        assert stderr.pop("D") is None  # no row could have it when the step began
        assert own.pop("D") is not None
        assert stderr == pytest.approx(own)
    assert stderr["BC"] == stderr["A"]  # of a difference: the largest of the table, for all of its cells


def test_errors_of_a_comparison_across_a_cut_are_those_of_the_largest_merged_cell(tmp_path: Path) -> None:
    """Of two old cells that became one the noise counts twice, before the cut alone; what both ticks share, too."""
    releases = Releases(gone_on(tmp_path, events()))
    last, early, covariance = releases.last, releases.at(2), releases.at(CUT - 1).covariance
    assert isinstance(last, TableRelease)
    assert covariance is not None
    ends = ((2, 2, 1), (CUT - 1, CUT - 1, 1), (2, CUT - 1, -2))
    before = sum(sign * float(covariance(s, t)[1]) for s, t, sign in ends)  # of the first column
    own = releases.between(f"2026-01-0{1 + CUT}", "2026-01-09").table(["ward"])["stderr"][0] ** 2
    found = last.compare(early, ["ward"])
    assert found.filter(pl.col("ward") == "BC")["stderr"][0] == pytest.approx((2 * before + own) ** 0.5, rel=1e-3)


def test_a_value_that_none_became_is_not_known_before_the_cut(tmp_path: Path) -> None:
    frame = events()
    late = frame.filter(pl.col("when") >= datetime(2026, 1, 1 + CUT)).with_columns(ward=pl.lit("D"))
    old = half(tmp_path, frame.filter(pl.col("when") < datetime(2026, 1, 1 + CUT)))
    config = succeed(old, written(tmp_path, NEW, "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        stream.update(late)
        list(stream.run())
    releases, unknown = Releases(config), pl.col("measured").is_null() & pl.col("stderr").is_null()
    for every, days in ((None, [1, 2, 3, 4]), ("3d", [1, 4])):  # the second of the longer steps holds the cut
        lines = releases.series("ward", every=every)
        assert lines.filter(pl.col("value") == "D", unknown)["start"].dt.day().to_list() == days
        assert lines.filter(pl.col("value") != "D")["stderr"].null_count() == 0
        counts = releases.counts(every=every).filter(pl.col("column") == "ward")
        assert counts.select(lines.columns).equals(lines) if every else counts.drop("column", "whole").equals(lines)
    known = releases.series("ward").filter(pl.col("value") == "D").drop_nulls().select("start", "measured")
    assert dict(known.rows()) == dict(late.group_by(pl.col("when").dt.truncate("1d")).len().rows())
    history = history_of(config, progress=lambda ticks, _: ticks)
    each = counts_over_time(history, 0, [(tick, history.cells(tick)) for tick in history.ticks])
    code = config.schema.columns[0].labels.index("D")
    assert [bool(np.isnan(counts.measured[code])) for _, counts in each] == [True] * CUT + [False] * 4
    place = str(tmp_path / "new.toml")
    said = CliRunner().invoke(app, ["series", place, "ward"])
    assert "ward = D: not known before 2026-01-05, so null in steps that begin earlier." in said.stderr
    told = CliRunner().invoke(app, ["table", place, "ward"]).stderr
    assert "ward = D: not known before 2026-01-05, whatever since says of the table." in told
    (waits,) = [words for words in plan(config, rows=False).notes if "wait for a tick" in words]
    assert "know no value that is new (ward = D): for good they count as they were read" in waits
    shown = [line.replace("|", " ").split()[-3:] for line in said.stdout.splitlines()]
    assert shown.count(["D", "null", "null"]) == CUT
    assert CliRunner().invoke(app, ["series", place, "ward", "--csv"]).stdout.count(",D,,\n") == CUT
    assert CliRunner().invoke(app, ["series", place, "ward", "-o", str(tmp_path / "wards.jsonl")]).exit_code == 0
    assert (tmp_path / "wards.jsonl").read_text().count('"value":"D","measured":null,"stderr":null') == CUT
    said = CliRunner().invoke(app, ["series", place, "paid"])
    assert said.stderr.startswith("paid was not recorded before 2026-01-05: there are no steps that begin earlier.\n")


def test_rows_that_stand_for_several_events_keep_their_weights(tmp_path: Path) -> None:
    few, frame = "[synthesizer]\npopulation = 1000\n", events(4000)
    old = half(tmp_path, frame, OLD + few)
    config = succeed(old, written(tmp_path, NEW + few, "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    releases = Releases(config)
    before, after = releases.at(CUT - 1), releases.last
    assert isinstance(before, TableRelease)
    assert isinstance(after, TableRelease)
    assert before.model.weights is not None
    assert len(before.model.codes) <= 1000
    assert len(after.model.codes) <= 2000  # those of both sides
    assert after.model.number == len(frame)
    assert after.compare(before, ["ward"])["then"].sum() == before.model.number
    assert releases.between("2026-01-03", "2026-01-07").model.number == between(frame, 2, 6).height
    assert not verify(config, rebuild=True).findings


def test_a_site_is_refused_and_the_report_is_not(tmp_path: Path) -> None:
    gone_on(tmp_path, events())
    said = CliRunner().invoke(app, ["publish", str(tmp_path / "new.toml"), str(tmp_path / "site")])
    assert said.exit_code == 2
    assert "went on with other settings at tick 4" in " ".join(said.output.split())
    assert not (tmp_path / "site").exists()
    page = tmp_path / "report.html"
    assert CliRunner().invoke(app, ["report", str(tmp_path / "new.toml"), "-o", str(page)]).exit_code == 0


def test_a_series_of_a_box_begins_with_the_first_whole_step_of_its_place(tmp_path: Path) -> None:
    frame = events().with_columns(z=pl.col("x"))
    place = '[[columns]]\nname = "at"\ntype = "place"\ncoordinates = ["z"]\nbounds = [[0, 10]]\ndepth = 4\n'
    old = half(tmp_path, frame.filter(pl.col("when") < datetime(2026, 1, 1 + CUT)))
    config = succeed(old, written(tmp_path, NEW.replace("[after]", place + "[after]"), "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        stream.update(frame.filter(pl.col("when") >= datetime(2026, 1, 1 + CUT)))
        list(stream.run())
    found = Releases(config).series(lower={"z": 0}, upper={"z": 5}, every="3d")  # the cut lies within the second step
    assert found["start"].to_list() == [datetime(2026, 1, 7)]
    inside = between(frame, 6, 8).filter(pl.col("z") < 5)
    assert found["measured"].to_list() == pytest.approx([inside.height], abs=1)
