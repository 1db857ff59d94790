"""Columns that are read from one cell: which codes it can have together."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pytest

from synthstream.schema.alike import of_one_cell
from synthstream.schema.binned import Binned, Datetime, Integer, Number, seconds_of
from synthstream.schema.clock import Clock
from synthstream.schema.columns import Category, Column
from synthstream.schema.dates import Dates
from synthstream.schema.schema import Schema

START, END = datetime(2024, 2, 1), datetime(2024, 5, 11)


def date(name: str, **keys: object) -> Datetime:
    return Datetime(name=name, source="at", **keys)  # type: ignore[arg-type]


DAY, HALF = date("day", min=START, max=END, bins=100), date("half", min=START, max=END, bins=200)
WEEKS = date("weeks", min=START, max=datetime(2024, 4, 11), bins=10)
WEEKDAY, MONTH, HOUR, MINUTE = (date(part, part=part) for part in ("weekday", "month", "hour", "minute"))
QUARTER, IN_MONTH = date("quarter", part="quarter", missing=1), date("in_month", part="day")
DATES = [
    [DAY, WEEKDAY, MONTH, HOUR],
    [HALF, WEEKDAY, HOUR],
    [DAY, WEEKS, QUARTER],
    [WEEKS, WEEKDAY, MONTH],
    [MONTH, QUARTER, IN_MONTH, WEEKDAY],
]


def of(columns: list[Binned], cells: pl.Series) -> np.ndarray:
    return np.stack([column.encode(cells) for column in columns], axis=1)


@pytest.mark.parametrize("columns", DATES, ids=lambda columns: "+".join(c.name for c in columns))
def test_every_date_is_allowed_and_what_no_date_is_is_not(columns: list[Binned]) -> None:
    """Of 40,000 dates within all bins each combination is met that is usual, and no other."""
    rng = np.random.default_rng(0)
    end = max((column.max for column in columns if isinstance(column, Datetime) and column.max), default=END)
    within = rng.integers(int(START.timestamp()), int(end.timestamp()), 40_000)
    beyond = rng.integers(-(10**10), 10**10, 20_000)
    dates = pl.Series([*within, *beyond, None]).cast(pl.Int64).cast(pl.Duration("ms")) * 1000 + datetime(1970, 1, 1)
    codes = of(columns, dates)
    for group in of_one_cell(columns):
        assert (group.places(codes) >= 0).all()
        missing = int(group.places(codes[-1:])[0])
        if group.usual is not None:
            assert {*group.places(codes[: within.size]).tolist(), missing} == {*np.flatnonzero(group.usual).tolist()}


@pytest.mark.parametrize(
    ("columns", "tied"),
    [
        (DATES[0], [(0, 1, 2)]),
        (DATES[1], [(0, 1, 2)]),
        (DATES[2], [(0, 1, 2)]),
        (DATES[3], [(0, 2)]),
        (DATES[4], [(0, 1, 2)]),
        ([HOUR, MINUTE, WEEKDAY], []),
        ([DAY], []),
    ],
)
def test_only_columns_that_tell_of_each_other_are_tied(columns: list[Binned], tied: list[tuple[int, ...]]) -> None:
    assert [group.columns for group in of_one_cell(columns)] == tied


def test_other_columns_stand_alone() -> None:
    """Of another column of rows, on another wall, or of texts."""
    others: list[Column] = [
        Datetime(name="weekday", source="until", part="weekday"),
        date("abroad", part="weekday", timezone="Asia/Tokyo"),
        Category("text", source="at", values=("2026-01-01",)),
    ]
    assert of_one_cell([DAY, *others]) == []


def test_numbers_in_bins_of_two_kinds() -> None:
    ages: list[Binned] = [
        Integer("age", source="years", min=0, max=99, width=10),
        Number("old", source="years", min=0, max=120, bins=2, cuts=(0, 65, 120), missing=0),
    ]
    (group,) = of_one_cell(ages)
    cells = pl.Series([*np.linspace(-50, 200, 5000), None, float("inf")])
    assert {*map(tuple, group.combinations.tolist())} == {*map(tuple, of(ages, cells).tolist())}
    assert group.usual is None


def test_parts_of_a_day_are_left_out_where_there_would_be_too_many_combinations() -> None:
    fine = date("fine", min=START, max=datetime(2024, 3, 31), bins=59 * 1440)
    assert [group.columns for group in of_one_cell([fine, MINUTE])] == [(0, 1)]
    assert of_one_cell([fine, date("finer", min=START, max=datetime(2024, 3, 31), bins=99_999)]) == []
    quarters = date("quarters", min=START, max=END, bins=9600)
    (group,) = of_one_cell([quarters, MINUTE, HOUR, WEEKDAY, MONTH, IN_MONTH])
    assert group.columns == (0, 3, 4, 5)


def test_what_lies_beyond_all_bins_is_unusual() -> None:
    (group,) = of_one_cell([DAY, WEEKDAY])
    assert group.usual is not None
    known = dict.fromkeys(map(tuple, group.as_usual.combinations.tolist()))
    assert len(known) == 101  # February 1st is a Thursday; the last one is for what cannot be read
    assert {(0, 3), (99, 4), (100, 7)} <= {*known}
    assert {tuple(codes) for codes in group.combinations[~group.usual].tolist()} == {
        (end, w) for end in (0, 99) for w in range(7) if (end, w) not in known
    }


def test_pairs_are_looked_at_in_either_order() -> None:
    for a, b in combinations([DAY, HALF, WEEKS, WEEKDAY, MONTH, HOUR, QUARTER], 2):
        one, other = of_one_cell([a, b]), of_one_cell([b, a])
        assert [g.number for g in one] == [g.number for g in other], (a.name, b.name)


WHOLE = date("whole", min=datetime(2024, 2, 1, 6), max=datetime(2024, 5, 11, 6), bins=100)


@pytest.mark.parametrize(
    "columns",
    [
        [DAY, WEEKDAY, HOUR, MINUTE],
        [WEEKS, HALF, QUARTER],
        [WEEKS, WEEKDAY, MONTH, HOUR],
        [date("months", min=START, max=END, bins=3), IN_MONTH, MONTH, WEEKDAY, MINUTE],
        [WHOLE, HOUR, DAY],
        [date("before", min=datetime(1960, 1, 1), max=datetime(1960, 3, 1), bins=8), WEEKDAY, HOUR, MINUTE],
    ],
    ids=lambda columns: "+".join(c.name for c in columns),
)
def test_rows_say_one_moment(columns: list[Binned]) -> None:
    """Of codes that moments have: the finest date lies in all bins, and on all parts, that its row says."""
    rng, of_bins = np.random.default_rng(1), [c for c in columns if isinstance(c, Datetime) and c.part is None]
    low, high = (pick([seconds_of(end) for end in ends]) for pick, ends in _ends(of_bins))
    moments = pl.Series((rng.uniform(low, high, 5000) * 1e6).astype(np.int64)).cast(pl.Datetime("us"))
    codes = of(columns, moments)
    found = Schema(columns=tuple(columns)).decode(codes, None)
    finest = max(of_bins, key=lambda column: column.size)
    # Bins that begin within a day have two days of which each holds a part of the hours.
    least = 0.9 if (seconds_of(finest.max or END) - low) / (finest.bins or 1) % 86_400 and MINUTE in columns else 1.0
    for place, column in enumerate(columns):
        assert (column.encode(found[finest.name]) == codes[:, place]).mean() >= least
        if column in of_bins:
            assert column.encode(found[column.name]).tolist() == codes[:, place].tolist()
    assert found[finest.name].n_unique() > 4900


def _ends(columns: list[Datetime]) -> list[tuple[Any, list[datetime]]]:
    """Where moments must begin and end that lie in all of them."""
    return [(max, [c.min for c in columns if c.min]), (min, [c.max for c in columns if c.max])]


@pytest.mark.parametrize(("hours", "possible"), [(24 * 4 + 12, True), (-1, False)])
def test_a_moment_of_the_bin_that_has_begun_is_before_its_end(hours: int, possible: bool) -> None:
    """In a week of which four and a half days are over, on a day and at an hour that has been, if there is any."""
    columns = (WEEKS, WEEKDAY, HOUR)
    end = START + timedelta(hours=hours)  # a Monday at noon
    clock = Clock(start=START - timedelta(days=30), every="12h", horizon=None, column="at")
    pairs = np.array([(weekday, hour) for weekday in range(7) for hour in range(24)])
    codes = np.column_stack([np.zeros(len(pairs)), pairs]).astype(np.int32)
    dates = Dates(clock=clock, columns={0: WEEKS})
    found = Schema(columns=columns).decode(codes, None, dates, end)
    assert (found["weeks"] < end).all() == possible
    agree = (found["weeks"].dt.weekday() - 1 == codes[:, 1]) & (found["weeks"].dt.hour() == codes[:, 2])
    begun = {
        (day.weekday(), day.hour) for day in (START + timedelta(hours=h) for h in range(hours if possible else 168))
    }
    assert agree.to_list() == [(w, h) in begun for w, h in pairs.tolist()]


def test_rows_of_wide_bins_have_the_number_of_fine_ones() -> None:
    ages = (
        Number("age", source="years", min=0, max=100, bins=20),
        Number("old", source="years", min=0, max=100, bins=2, missing=0),
        Integer("whole", source="years", min=0, max=99, width=50),
    )
    codes = of([*ages], pl.Series([*np.random.default_rng(0).uniform(0, 100, 500), None]))
    found = Schema(columns=ages).decode(codes, None)
    assert found["old"][:-1].to_list() == found["age"][:-1].to_list()
    assert 0 <= found["old"][-1] < 50  # a missing cell counts there
    assert found["whole"].dtype == pl.Int64
    contradicts = codes.copy()
    contradicts[:, 1] = 1 - contradicts[:, 1]
    assert ages[1].encode(Schema(columns=ages).decode(contradicts, None)["old"]).tolist() == contradicts[:, 1].tolist()
