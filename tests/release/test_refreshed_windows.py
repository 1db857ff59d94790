"""Windows and comparisons of a stream whose larger tables are measured at refreshes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from synthstream import Releases, Stream, StreamConfig
from synthstream.constraints import Grids, Group
from synthstream.fit.aims import Earlier, aims
from synthstream.fit.population import Population, fit
from synthstream.fit.targets import independent_counts, past_of, rescaled, usual
from synthstream.measured import Measured
from synthstream.schema.naming import ANSWERS
from synthstream.stream.recovery import adopt
from synthstream.stream.verification import verify
from synthstream.synthesizers import windowing
from synthstream.synthesizers.fitting import PLAIN
from synthstream.workload import Workload
from tests.support.environments import At
from tests.support.streams import configured
from tests.support.visits import exact

ONES = np.ones(2)
START, LATER = datetime(2026, 1, 1), At(datetime(2100, 1, 1, tzinfo=UTC))


def run(folder: Path, ticks: range) -> StreamConfig:
    """A stream of one row more in each tick, without noise; refreshes end with ticks 0, 1, 3, 5, 8 and 11 of 12."""
    config = configured(folder, "refresh", until="2026-01-13")
    with Stream(config, gates=exact, env=LATER) as stream:
        for tick in ticks:
            when = [START + timedelta(days=tick, hours=1)] * (tick + 1)
            stream.update(pl.DataFrame({"when": when, "ward": ["A"] * (tick + 1), "x": [1.0] * (tick + 1)}))
            stream.release()
    return config


def day(tick: int) -> str:
    return str((START + timedelta(days=tick)).date())


def sums(releases: Releases, first: int, last: int) -> dict[int, tuple[float, int, int]]:
    """By number of columns: what was measured of a window, and the ticks that it counts."""
    window = releases.between(day(first), day(last + 1))
    found: dict[int, tuple[float, int, int]] = {}
    for columns in ([], ["ward"], ["ward", "x"]):
        table = window.table(columns)
        at = (int(table["since"][0]), int(table["measured_at"][0]))
        found[len(columns)] = (round(float(table["measured"].sum())), *at)
    return found


def true(first: int, last: int) -> int:
    return sum(range(first + 1, last + 2))


def test_larger_tables_are_counted_between_refreshes_and_say_which(tmp_path: Path) -> None:
    releases = Releases(run(tmp_path, range(12)))
    assert sums(releases, 4, 5) == {0: (11, 4, 5), 1: (11, 4, 5), 2: (true(4, 5), 4, 5)}
    assert sums(releases, 5, 6) == {0: (13, 5, 6), 1: (13, 5, 6), 2: (true(4, 8), 4, 8)}
    assert sums(releases, 10, 11) == {0: (23, 10, 11), 1: (23, 10, 11), 2: (true(9, 11), 9, 11)}
    asked = releases.between(day(6), day(8)).table([], where="ward = 'A'").row(0, named=True)
    assert (round(asked["measured"]), asked["since"], asked["measured_at"]) == (true(6, 7), 6, 7)  # of no pair
    table = releases.last.table(["ward", "x"])
    assert (table["measured_at"].unique().to_list(), round(table["measured"].sum())) == ([11], true(0, 11))
    assert releases.last.table(["ward"])["measured_at"].unique().to_list() == [11]


def test_windows_after_a_loss_count_the_segment_alone(tmp_path: Path) -> None:
    config = run(tmp_path, range(5))
    for path in (tmp_path / "state").iterdir():
        path.unlink()
    (tmp_path / "state").rmdir()
    adopt(config, gates=exact, env=LATER)
    run(tmp_path, range(5, 12))
    found = sums(Releases(config), 5, 7)
    assert found[0] == (true(5, 7), 5, 7)
    assert found[2] == (true(5, found[2][2]), 5, found[2][2])
    # Of the first segment, which was to be refreshed after tick 5, and ended with tick 4.
    assert sums(Releases(config), 4, 4) == {0: (5, 4, 4), 1: (5, 4, 4), 2: (true(2, 3), 2, 3)}


@pytest.mark.parametrize("lost", [False, True])
def test_a_burst_is_counted_in_larger_tables_at_once(tmp_path: Path, lost: bool) -> None:
    """After tick 6, of which 3,000 rows come, and not at its planned time, after tick 8; windows and errors know it."""
    config = run(tmp_path, range(6))
    if lost:
        shutil.rmtree(tmp_path / "state")
        adopt(config, gates=exact, env=LATER)
    burst = pl.DataFrame({"when": [START + timedelta(days=6)] * 3000, "ward": ["B"] * 3000, "x": [2.0] * 3000})
    with Stream(config, gates=exact, env=LATER) as stream:
        stream.update(burst)
        stream.release()
    run(tmp_path, range(7, 10))
    releases = Releases(config)
    assert releases.at(6).table(["ward", "x"])["measured_at"].unique().to_list() == [6]
    if not lost:
        assert sums(releases, 6, 6)[2] == (3000, 6, 6)
        assert sums(releases, 9, 9)[2] == (3000, 6, 6)
        assert [int(releases.at(t).table(["ward", "x"])["measured_at"][0]) for t in range(10)] == [
            0, 1, 1, 3, 3, 5, 6, 6, 6, 6
        ]  # fmt: skip
    covariance = releases.last.covariance
    assert covariance is not None
    if not lost:  # the window's larger tables are those of the tick of the burst
        stderr = releases.between(day(6), day(8)).table(["ward", "x"])["stderr"][0]
        noise = covariance(6, 6) + covariance(5, 5) - 2 * covariance(5, 6)
        assert stderr == pytest.approx(float(np.sqrt(noise[-1])), rel=1e-3)
    for tick, (place, columns) in product((6, 7, 9), ((1, ["ward"]), (-1, ["ward", "x"]))):
        stderr = releases.at(tick).table(columns)["stderr"][0]
        assert stderr == pytest.approx(float(np.sqrt(covariance(tick, tick)[place])), rel=1e-3)
    assert verify(config, rebuild=True)[2:] == ([], [])


def test_a_comparison_of_windows_knows_the_noise_they_share(tmp_path: Path) -> None:
    releases = Releases(run(tmp_path, range(12)))
    early, late = (releases.between(day(first), day(last + 1)) for first, last in ((2, 2), (4, 4)))
    compared = late.compare(early, ["ward", "x"])
    covariance = releases.last.covariance
    assert covariance is not None
    # Of ticks 2..3 and 4..5, at refreshes: R(5) - 2 R(3) + R(1), by the covariances of the three.
    weights, ticks = np.array([1.0, -2.0, 1.0]), (5, 3, 1)
    c = np.array([[covariance(s, t)[-1] for s in ticks] for t in ticks])
    assert compared["stderr"][0] == pytest.approx(float(np.sqrt(weights @ c @ weights)), rel=1e-3)
    # Tick 0 as it is, and tick 4 widened to 4..5: no change can be read off these.
    assert late.compare(releases.between(day(0), day(1)), ["ward", "x"])["z"].null_count() == 25
    assert late.compare(early, ["ward"])["z"].null_count() == 0


def test_a_comparison_says_which_ticks_are_measured_and_nothing_where_none_is(tmp_path: Path) -> None:
    releases = Releases(run(tmp_path, range(12)))
    new = releases.at(6).compare(releases.at(4), ["ward", "x"])
    # Rows came in ticks 5 and 6; what is measured is of ticks 4 and 5.
    assert new.select("measured_at_then", "measured_at").unique().rows() == [(3, 5)]
    assert round(new["measured"].sum()) == true(4, 5)
    both = releases.at(7).compare(releases.at(6))
    pairs, others = (both.filter(pl.col("column_2").is_null() == one) for one in (False, True))
    assert pairs.select("measured_at_then", "measured_at").unique().rows() == [(5, 5)]
    assert pairs.select("measured", "stderr", "z", "beyond_noise").null_count().row(0) == (pairs.height,) * 4
    assert others.select("measured_at_then", "measured_at").unique().rows() == [(6, 7)]
    assert others["z"].null_count() == 0
    early, late = (releases.between(day(first), day(last + 1)) for first, last in ((2, 2), (4, 4)))
    spans = late.compare(early, ["ward", "x"]).select("since_then", "measured_at_then", "since", "measured_at")
    assert spans.unique().rows() == [(2, 3, 4, 5)]


def test_rows_of_a_window_say_nothing_of_the_ticks_that_only_larger_tables_count(tmp_path: Path) -> None:
    """Those of ticks 6 and 7 count tick 8 as well, whose rows are all in another cell; nothing has noise."""
    config = configured(tmp_path, "refresh", until="2026-01-13")
    with Stream(config, gates=exact, env=LATER) as stream:
        for tick in range(12):
            when = [START + timedelta(days=tick, hours=1)] * 2000
            ward, x = (["B"] * 2000, [9.0] * 2000) if tick == 8 else (["A", "C"] * 1000, [1.0, 4.0] * 1000)
            stream.update(pl.DataFrame({"when": when, "ward": ward, "x": x}))
            stream.release()
    window = Releases(config).between(day(6), day(8))
    assert window.table(["ward", "x"])["measured_at"].unique().to_list() == [8]
    rows = window.rows()
    assert rows.height == pytest.approx(4000, rel=0.01)
    there = [pl.col("ward") == "B", (pl.col("ward") == "A") & (pl.col("x") < 2.5)]
    shares = [rows.filter(one).height / rows.height for one in there]
    assert shares[0] < 0.02  # .24 where margins of both are pooled
    assert shares[1] == pytest.approx(0.5, abs=0.03)


def test_a_window_fits_no_rows_that_it_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all events, of the ticks that larger tables count, and of its own; from the beginning as a release."""
    releases, seen = Releases(run(tmp_path, range(12))), list[Any]()

    def look(measured: Measured, **how: Any) -> Population:
        seen.append((how["memory"], how.get("fresh")))
        return fit(measured, **how)

    monkeypatch.setattr("synthstream.synthesizers.fitting.fit", look)
    for first in (0, 4):
        releases.between(day(first), day(9))
    assert seen == [(0.0, True), (0.0, None), (np.inf, None), (np.inf, None)]


def test_a_window_is_carried_by_the_noise_that_it_shares_with_its_larger_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases, seen = Releases(run(tmp_path, range(12))), list[Earlier | None]()

    def look(measured: Measured, *, then: Earlier | None = None, **how: Any) -> Population:
        seen.append(then)
        return fit(measured, then=then, **how)

    monkeypatch.setattr("synthstream.synthesizers.fitting.fit", look)
    releases.between(day(6), day(8))  # larger tables count ticks 6 to 8
    then, c = seen[-1], releases.last.covariance
    assert then is not None
    assert c is not None
    assert then.window
    assert then.shared == pytest.approx(c(7, 8) - c(5, 8) - c(7, 5) + c(5, 5), rel=1e-3)


def test_the_total_of_a_window_is_its_own() -> None:
    """That of running counts is drawn to what came before, as far as noise explains the difference."""
    workload = Workload.all_up_to(2, sizes=(3, 4))
    known, now = (
        Measured(
            tick=9,
            workload=workload,
            values=np.repeat(events / workload.lengths, workload.lengths),
            variance=np.full(len(workload.marginals), 1e4),
        )
        for events in (1000.0, 1030.0)
    )
    then = Earlier(known, np.zeros(len(workload.marginals)))
    assert aims(now, then=then._replace(window=True)).events == pytest.approx(1030)
    assert aims(now, then=then).events == pytest.approx(1000, abs=1)


def of_two_columns(number: int) -> Population:
    """Rows of which both columns nearly always have the same code."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 4, number)
    second = np.where(rng.random(number) < 0.9, first, rng.integers(0, 4, number))
    return Population.of(
        Workload.all_up_to(2, sizes=(4, 4)), np.stack([first, second], axis=1, dtype=np.int32, casting="unsafe")
    )


@pytest.mark.parametrize("noise", [20.0, 200.0])
def test_what_goes_together_in_a_window_is_as_in_all_events_where_noise_hides_it(noise: float) -> None:
    """Rows of a window are neither independent, nor a few rows at random of all that came."""
    every = of_two_columns(10_000)
    workload, counts = every.workload, every.workload.count(every.codes)
    variance = np.array([100.0, 100.0, 100.0, noise**2])
    for seed in range(4):
        rng = np.random.default_rng(seed)
        there = workload.count(every.codes[rng.choice(10_000, 500, replace=False)])
        values = there + rng.normal(size=workload.cells) * np.repeat(np.sqrt(variance), workload.lengths)
        measured = Measured(tick=9, workload=workload, values=values, variance=variance)
        found = fit(measured, start=every, seed=1, memory=np.inf).codes
        assert 400 < len(found) < 600
        assert np.abs(workload.count(found) / len(found) - counts / 10_000).max() < 0.02  # of 500 at random: .05


@pytest.mark.parametrize("noise", [10.0, 150.0])
def test_what_goes_with_a_place_in_a_window_is_as_in_all_events(noise: float) -> None:
    """Grids of two and of four cells; nearly all events of a kind lie in one cell."""
    cells = np.array([[0, 0], [0, 1], [1, 2], [1, 3]])
    place = Group.of((0, 1), cells, nests=[Grids((0, 1), (1, 2), 1)])
    kinds = of_two_columns(10_000).codes
    workload = Workload.all_up_to(2, sizes=(2, 4, 4))
    every = Population.of(workload, np.column_stack([kinds[:, 0] // 2, kinds]))
    rng, variance = np.random.default_rng(2), np.where(workload.order < 2, 100.0, noise**2)
    there = workload.count(every.codes[rng.choice(10_000, 500, replace=False)])
    values = there + rng.normal(size=workload.cells) * np.repeat(np.sqrt(variance), workload.lengths)
    measured = Measured(tick=9, workload=workload, values=values, variance=variance)
    found = fit(measured, start=every, seed=1, memory=np.inf, groups=[place]).codes
    assert np.mean(found[:, 1] == found[:, 2]) == pytest.approx(np.mean(kinds[:, 0] == kinds[:, 1]), abs=0.04)


def test_what_is_known_of_a_window_is_not_taken_for_what_is_known_of_others() -> None:
    """The newest answer to what tables say is kept, but not that which depends on rows of all events."""
    every = of_two_columns(2000)
    apart = Population.of(every.workload, np.column_stack([every.codes[:, 0], np.roll(every.codes[:, 1], 7)]))
    measured = Measured(
        tick=9, workload=every.workload, values=every.workload.count(every.codes) / 4.0, variance=np.full(4, 1e4)
    )
    release = fit(measured, start=apart, seed=1).codes
    windows = [fit(measured, start=start, seed=1, memory=np.inf).codes for start in (every, apart)]
    assert np.mean(windows[0][:, 0] == windows[0][:, 1]) > 0.85
    assert np.mean(windows[1][:, 0] == windows[1][:, 1]) < 0.4
    assert (fit(measured, start=apart, seed=1).codes == release).all()


def test_what_goes_together_has_no_cell_below_0_with_other_margins() -> None:
    every = of_two_columns(1000)
    past = past_of(exactly(every), every.codes, 1000, np.inf)
    margins = [np.array([700.0, 100, 100, 100]), np.array([10.0, 10, 10, 970])]
    ((_, found),) = usual(past, every.workload, [3], margins, 1000)
    cells = found + independent_counts(margins, 1000)
    assert cells.min() >= 0
    assert cells[0, 0] / cells[0, 1] > 5 * cells[1, 0] / cells[1, 1]  # odds stay


def test_what_goes_together_is_carried_to_other_margins_by_twice_at_most() -> None:
    with_margins = rescaled(np.array([3.0, 3.0, 3.0]), np.array([1.0, 4.0, 0.0]), np.array([10.0, 2.0, 0.0]), 0.0)
    assert with_margins.tolist() == [6.0, 1.5, 0.0]


@pytest.mark.parametrize(("part", "most"), [(0.25, 0.15), (4.0, 0.05)])
def test_larger_tables_of_other_ticks_than_a_windows_go_together_as_in_all_events(part: float, most: float) -> None:
    """However many more, or fewer, events those are."""
    every = of_two_columns(10_000)
    workload, variance = every.workload, np.array([1.0, 100.0, 100.0, 200.0**2])
    shares, rng, off = workload.count(every.codes) / 10_000, np.random.default_rng(0), list[float]()
    small = np.repeat(workload.order < 2, workload.lengths)
    for seed in range(4):
        noise = rng.normal(size=(2, workload.cells)) * np.repeat(np.sqrt(variance), workload.lengths)
        larger = Measured(tick=9, workload=workload, values=1000 * shares + noise[0], variance=variance)
        own = replace(
            larger,
            values=np.where(small, 1000 * part * shares + noise[1], larger.values * part),
            variance=np.where(workload.order < 2, variance, variance * part**2),
        )
        then = Earlier(larger, np.zeros(4), window=True)
        found = fit(own, start=every, seed=seed, memory=np.inf, then=then).codes
        assert len(found) == pytest.approx(1000 * part, abs=10)
        off.append(float(np.abs(workload.count(found) / len(found) - shares)[9:].sum()))
    assert np.mean(off) < most


def exactly(rows: Population) -> Measured:
    return Measured(
        tick=9, workload=rows.workload, values=rows.workload.count(rows.codes).astype(float), variance=np.ones(4)
    )


def test_what_goes_together_in_a_window_is_followed_where_it_stands_out() -> None:
    every = of_two_columns(10_000)
    other = np.column_stack([every.codes[:2000, 0], 3 - every.codes[:2000, 1]])
    measured = Measured(
        tick=9, workload=every.workload, values=every.workload.count(other).astype(float), variance=np.full(4, 100.0)
    )
    found = fit(measured, start=every, seed=1, memory=np.inf).codes
    assert np.mean(found[:, 0] == 3 - found[:, 1]) == pytest.approx(np.mean(other[:, 0] == 3 - other[:, 1]), abs=0.03)


def test_a_window_of_many_more_rows_than_it_begins_with_has_copies_of_these() -> None:
    """Where rows stand for several events, or larger tables count few ticks of the window."""
    few = of_two_columns(400)
    workload = few.workload
    values, variance = 5 * workload.count(few.codes).astype(float), np.array([1.0, 1e4, 1e4, 1e8])
    found = fit(Measured(tick=9, workload=workload, values=values, variance=variance), start=few, seed=1, memory=np.inf)
    assert len(found.codes) == 2000
    assert np.abs(workload.count(found.codes) / 2000 - workload.count(few.codes) / 400).max() < 0.03


@pytest.mark.parametrize("more", [500.0, -500.0, 0.0])
def test_where_larger_tables_count_no_rows_a_window_may_have_some(more: float) -> None:
    """By noise, or where rows take events away, the ticks that larger tables count may have none."""
    workload = Workload.all_up_to(2, sizes=(2, 2))
    codes = np.random.default_rng(1).integers(0, 2, (1000, 2)).astype(np.int32)
    counts, variance = workload.count(codes).astype(float), np.full(4, 4.0)
    every, beside, own = (
        Measured(tick=9, workload=workload, values=counts * share, variance=variance)
        for share in (1.0, -0.1, more / 1000)
    )
    asked: Any = SimpleNamespace(seed=3)
    found = windowing._rows(asked, PLAIN, own, every, Earlier(beside, variance, window=True))
    assert found.number == pytest.approx(max(more, 0.0), abs=5)


def test_no_new_column_is_called_as_a_column_of_answers(tmp_path: Path) -> None:
    releases = Releases(run(tmp_path, range(8)))
    early, late = (releases.between(day(first), day(last + 1)) for first, last in ((2, 2), (4, 4)))
    table = releases.last.table(["ward"], model_error=True)
    frames = [table, releases.last.compare(releases.at(4), ["ward"]), late.compare(early, ["ward"])]
    assert {name for frame in frames for name in frame.columns} == {"ward", *ANSWERS}


def test_rows_look_back_to_the_refresh_before_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Any]()

    def look(measured: Measured, *, then: Earlier | None = None, **how: Any) -> Population:
        seen.append(then and (then.measured.tick, then.before and then.before.tick))
        return fit(measured, then=then, **how)

    monkeypatch.setattr("synthstream.synthesizers.fitting.fit", look)
    run(tmp_path, range(12))
    own = [None, None, (1, 0), None, (3, 1), None, (5, 3), (5, 3), None, (8, 5), (8, 5), None]
    assert seen == own
