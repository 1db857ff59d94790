"""Columns that are read from the clock's own: no row lies in the future, as no event that was counted does."""

from __future__ import annotations

import re
import shutil
from datetime import date, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from synthstream import Releases, Stream, StreamConfig
from synthstream.fit.pooling import pooled
from synthstream.fit.population import Population
from synthstream.kernel.gate import Gate
from synthstream.release.tables import TableRelease
from synthstream.report.public import public_page
from synthstream.schema.binned import Datetime
from synthstream.schema.clock import Clock
from synthstream.schema.dates import Dates
from synthstream.stream.recovery import adopt
from synthstream.stream.verification import verify
from synthstream.synthesizers import fitting
from synthstream.synthesizers.assembly import synthesizer_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.synthesizers.tables import OfTables
from tests.support.halves import exact
from tests.support.streams import rows, text_of

# A bin for each day, of which most are never reached; times that cannot be read have one of their own.
DAY = """
[[columns]]
name = "day"
from = "when"
type = "datetime"
min = 2026-01-01
max = 2026-01-31
bins = 30
"""
HALF = 4


def loud(tick: int) -> Gate:
    return SeededGate(f"dates {tick}")


def config_of(
    folder: Path, kind: str, *, until: str, more: str = "", bins: int = 30, epsilon: float = 0.5
) -> StreamConfig:
    text = text_of(kind).replace("epsilon = 2.0", f"epsilon = {epsilon}").replace("2026-01-09", until)
    text += DAY.replace("bins = 30", f"bins = {bins}") + more
    (folder / f"{until}.toml").write_text(text)
    return StreamConfig.from_toml(text, base=folder)


def ahead(config: StreamConfig) -> list[int]:
    """How many rows of each release, and of windows in both segments, are dated after its end."""
    windows = [("2026-01-02", "2026-01-04"), ("2026-01-06", "2026-01-08")]
    found = [*Releases(config), *(Releases(config).between(*window) for window in windows)]
    return [one.rows().filter(pl.col("day") >= one.end.replace(tzinfo=None)).height for one in found]


def older(config: StreamConfig, begin: int, end: int) -> float:
    """What share of the rows of a window is dated before it."""
    days = Releases(config).between(begin, end).rows()["day"].dt.day()
    return int((days <= begin).sum()) / len(days)


@pytest.mark.sparing(2)
@pytest.mark.parametrize("kind", ["always", "refresh", "epochs"])
def test_no_row_lies_in_the_future(tmp_path: Path, kind: str) -> None:
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    config = config_of(tmp_path, kind, until="2026-01-05")
    with Stream(config, gates=loud) as stream:
        assert len(list(stream.run())) == HALF
    shutil.rmtree(config.state)
    adopt(config, gates=loud)
    with Stream(config := config_of(tmp_path, kind, until="2026-01-09"), gates=loud) as stream:
        list(stream.run())
        assert isinstance(stream.last, TableRelease)
        table, day = stream.last.table("day"), stream.last.schema.names.index("day")
        assert stream.last.replicates is not None
        again = [cast(Population, one).codes[:, day] for one in stream.last.replicates(2)]
    assert ahead(config) == [0] * 10
    assert [int(np.isin(codes, range(8, 30)).sum()) for codes in again] == [0] * len(again)
    # Noise is there all the same, and days that have come have rows.
    measured = table.tail(20)["measured"].drop_nulls()  # of epochs, none at this tick
    assert measured.is_empty() if kind == "epochs" else (measured.abs() > 1).any()
    assert table.head(8).filter(pl.col("count") > 0).height > HALF
    assert verify(config, rebuild=True).findings == []


def test_nor_does_one_within_the_bin_that_has_begun(tmp_path: Path) -> None:
    """Bins of ten days: after four of them rows lie within these, and later ones within as much of it as has passed."""
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    config = config_of(tmp_path, "refresh", until="2026-01-09", bins=3)
    with Stream(config, gates=loud) as stream:
        found = [release.rows()["day"].drop_nulls() for release in stream.run()]
    assert {days.dt.date().max() for days in found} == {date(2026, 1, day) for day in range(1, 9)}
    assert min(days.n_unique() / days.len() for days in found) > 0.9
    assert not any(ahead(config))
    assert Releases(config).between("2026-01-02", "2026-01-04").rows()["day"].len() > 0
    assert verify(config, rebuild=True).findings == []


def test_ticks_are_those_of_a_window_in_a_segment() -> None:
    """The first bin holds what lies before the column's bounds, too."""
    day = Datetime(name="day", min=datetime(2026, 1, 4), max=datetime(2026, 1, 8), bins=4)
    dates = Dates(clock=Clock(start=datetime(2026, 1, 1), every="1d", horizon=None, column="day"), columns={0: day})
    own = dates.since(2).since(1)
    assert [group.combinations.ravel().tolist() for group in own.possible(1)] == [[0, 1, 4]]
    assert own.shares(0, 1)[0].tolist() == [0.5, 0.5, 0, 0, 0]
    assert dates.shares(0, 3)[0].tolist() == [1, 0, 0, 0, 0]


def test_rows_of_a_window_are_expected_in_its_own_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    config = config_of(tmp_path, "epochs", until="2026-01-05")
    with Stream(config, gates=loud) as stream:
        list(stream.run())
    found = list[int]()

    def pooled_here(history: Any, *, expected: Any, groups: Any, **known: Any) -> Any:
        found.extend(shares.argmax() for shares in expected(0, 0).values())
        assert [group.number for group in groups] == [len(["1", "2", "3", "missing"])]
        return pooled(history, expected=expected, groups=groups, **known)

    monkeypatch.setattr(fitting, "pooled", pooled_here)
    Releases(config).between("2026-01-02", "2026-01-04")
    assert found == [1, 0]  # of the window, and of all events


@pytest.mark.parametrize("kind", ["refresh", "epochs"])
def test_the_newest_day_has_rows_before_its_table_is_measured(tmp_path: Path, kind: str) -> None:
    """Rows that come are of the days since; drawn to what was there, they would be older."""
    frame = rows(4000, 1)
    frame.write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config_of(tmp_path, kind, until="2026-01-09"), gates=exact) as stream:
        found = [release.rows()["day"].dt.day() for release in stream.run()]
    days = [int((one == tick).sum()) for tick, one in enumerate(found, 1)]
    assert days == pytest.approx(frame["when"].dt.day().value_counts().sort("when")["count"].to_list(), rel=0.2)


def test_the_report_shows_the_days_that_have_begun(tmp_path: Path) -> None:
    """Of three years of days one bar would hold all that there is."""
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    three_years = DAY.replace("2026-01-31\nbins = 30", "2029-01-01\nbins = 1096")
    config = StreamConfig.from_toml(text_of("refresh") + three_years, base=tmp_path)
    with Stream(config, gates=loud) as stream:
        list(stream.run())
    page = public_page(config, tmp_path / "r.html", progress=lambda steps, text: steps)
    assert "named by where they begin; those that have not begun are left out" in page
    bars = re.findall(r'"row">(20\d\d-\d\d-\d\d)</th><td class="bar">', page)
    assert bars == [f"2026-01-0{day}" for day in range(1, 9)]


@pytest.mark.parametrize(("kind", "begin"), [("always", 7), ("refresh", 7), ("epochs", 5)])
def test_rows_of_a_window_are_dated_in_it(tmp_path: Path, kind: str, begin: int) -> None:
    """Drawn to the days of all events, most would be older."""
    rows(4000, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config := config_of(tmp_path, kind, until="2026-01-09"), gates=loud) as stream:
        list(stream.run())
    assert older(config, begin, 8) < 0.1


def of_part(folder: Path, kind: str, part: str, *, until: str) -> StreamConfig:
    config_of(folder, kind, until=until)
    text = (
        (folder / f"{until}.toml")
        .read_text()
        .replace("min = 2026-01-01\nmax = 2026-01-31\nbins = 30", f'part = "{part}"')
    )
    return StreamConfig.from_toml(text, base=folder)


@pytest.mark.parametrize(("kind", "begin"), [("always", 7), ("refresh", 7), ("epochs", 5)])
@pytest.mark.parametrize("part", ["day", "weekday"])
def test_rows_of_a_window_have_its_parts_of_the_calendar(tmp_path: Path, kind: str, begin: int, part: str) -> None:
    """Drawn to those of all events, most would be of other days; half of the events of a day more come on the 6th."""
    more = rows(4000, 1).filter(pl.col("when").dt.day() == 6).head(250)
    pl.concat([rows(4000, 1), more]).write_parquet(tmp_path / "rows-1.parquet")
    config = of_part(tmp_path, kind, part, until="2026-01-09")
    with Stream(config, gates=loud) as stream:
        list(stream.run())
    found = Releases(config).between(begin, 8).rows()["day"]
    first = begin + 1 if part == "day" else (begin + 3) % 7 + 1  # tick 0 is January 1st, a Thursday
    days = {(first + k - 1) % (31 if part == "day" else 7) + 1 for k in range(8 - begin)}
    assert int(found.is_in([*days]).sum()) > 0.75 * len(found)
    assert found.n_unique() >= len(days)


WEEKDAY = """
[[columns]]
name = "weekday"
from = "when"
type = "datetime"
part = "weekday"
"""


@pytest.mark.parametrize("kind", ["always", "refresh", "epochs"])
def test_rows_have_the_weekday_of_their_day(tmp_path: Path, kind: str) -> None:
    """In releases and in windows, which have their own days all the same."""
    rows(4000, 1).write_parquet(tmp_path / "rows-1.parquet")
    config = config_of(tmp_path, kind, until="2026-01-09", more=WEEKDAY)
    with Stream(config, gates=loud) as stream:
        list(stream.run())
    windows = [Releases(config).between(5, 8)] if kind == "epochs" else [Releases(config).between(n, 8) for n in (3, 7)]
    found = [one.rows() for one in [*Releases(config), *windows]]
    assert [one.filter(pl.col("day").dt.weekday().ne_missing(pl.col("weekday"))).height for one in found] == [0] * len(
        found
    )
    assert not any(ahead(config)) if kind != "epochs" else True
    begin = 5 if kind == "epochs" else 7
    assert older(config, begin, 8) < 0.2
    assert found[-1]["day"].drop_nulls().len() > 0.9 * len(found[-1])
    assert verify(config, rebuild=True).findings == []


def test_a_part_of_the_calendar_forbids_no_row(tmp_path: Path) -> None:
    """A row may be late by a year, and its time from before the stream."""
    made = synthesizer_of(of_part(tmp_path, "refresh", "month", until="2026-01-05"))
    assert isinstance(made, OfTables)
    assert made.how.dates is not None
    assert made.how.dates.possible(3) == []
    assert made.how.at(3).groups == ()


def test_time_that_passes_has_parts_of_the_calendar() -> None:
    clock = Clock(start=datetime(2025, 12, 30), every="12h", horizon=None, column="when", timezone="Europe/Berlin")
    parts = {k: Datetime(name=part, part=part) for k, part in enumerate(("minute", "hour", "month", "weekday"))}  # type: ignore[arg-type]
    dates = Dates(clock=clock, columns={}, parts=parts, begun=2)
    found = dates.passed(-2, 3)  # three days, on the clock's own wall
    assert found[0][:60] == pytest.approx(np.full(60, 1 / 60))
    assert found[1][:24] == pytest.approx(np.full(24, 1 / 24))
    assert found[2][[0, 11]] == pytest.approx([1 / 3, 2 / 3])
    assert found[3][[1, 2, 3]] == pytest.approx([1 / 3] * 3)
    assert [one[-1] for one in found.values()] == [0.0] * 4  # missing
    together = dates.tables(-2, 3)[2, 3].reshape(13, 8)  # Tuesday and Wednesday are in December
    assert together[[11, 11, 0], [1, 2, 3]] == pytest.approx([1 / 3] * 3)
    assert dates.tables(-2, 3)[1,] is found[1]


@pytest.mark.parametrize("kind", ["always", "refresh", "epochs"])
def test_rows_of_a_window_are_older_where_most_came_late(tmp_path: Path, kind: str) -> None:
    frame, day = rows(4000, 1), pl.col("when").dt.day()
    late = pl.concat([frame.filter(day == 3).head(100), frame.filter(day == 2).head(300)])
    with Stream(config := config_of(tmp_path, kind, until="2026-01-04", epsilon=5.0), gates=exact) as stream:
        for counted in (frame.filter(day == 1), frame.filter(day == 2), late):
            stream.update(counted)
            stream.release()
    assert older(config, 2, 3) == pytest.approx(0.75, abs=0.15)


@pytest.mark.parametrize(
    ("said", "becomes"),
    [
        ('from = "when"', 'from = "other"'),
        ("bins = 30", 'bins = 30\ntimezone = "Asia/Tokyo"'),
    ],
    ids=["another column", "another zone"],
)
def test_columns_of_which_the_clock_does_not_tell_are_left_alone(tmp_path: Path, said: str, becomes: str) -> None:
    text = text_of("refresh") + DAY
    for here, known in ((text, True), (text.replace(said, becomes), False)):
        made = synthesizer_of(StreamConfig.from_toml(here, base=tmp_path))
        assert isinstance(made, OfTables)
        assert (made.how.dates is not None) is known


def test_rows_that_take_others_away_may_count_before_their_time(tmp_path: Path) -> None:
    made = synthesizer_of(StreamConfig.from_toml('op = "op"\n' + text_of("epochs") + DAY, base=tmp_path))
    assert isinstance(made, OfTables)
    assert made.how.dates is None


def test_a_constraint_of_the_column_is_kept_as_well(tmp_path: Path) -> None:
    days = [f"2026-01-{day:02}T00:00:00" for day in range(1, 31)]
    cells = ", ".join(f'["{ward}", "{day}"]' for ward, since in (("A", 0), ("B", 2), ("C", 2)) for day in days[since:])
    allowed = f'\n[[constraints]]\ncolumns = ["ward", "day"]\nallowed = [{cells}]\n'
    config = config_of(tmp_path, "refresh", until="2026-01-05", more=allowed)
    made = synthesizer_of(config)
    assert isinstance(made, OfTables)
    ((whole,), (second,), (third,)) = (
        config.constraints.groups,
        made.how.at(1).groups,
        made.from_tick(2).how.at(0).groups,
    )
    assert second.columns == third.columns == whole.columns
    day = whole.columns.index(config.schema.names.index("day"))
    for tick, group in ((1, second), (2, third)):
        kept = whole.combinations[(whole.combinations[:, day] <= tick) | (whole.combinations[:, day] == len(days))]
        assert group.combinations.tolist() == kept.tolist()
