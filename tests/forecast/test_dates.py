"""Warnings of columns that are read from one cell."""

from __future__ import annotations

import pytest

from synthstream.config.config import StreamConfig
from synthstream.forecast.dates import of_dates
from tests.support.configs import GOOD

WEEKDAY = '[[columns]]\nname = "weekday"\ntype = "datetime"\nfrom = "at"\npart = "weekday"\n'


def day(bins: int = 14, start: str = "2026-01-01", end: str = "2026-01-15", more: str = "") -> str:
    return (
        f'[[columns]]\nname = "day"\ntype = "datetime"\nfrom = "at"\nmin = {start}\nmax = {end}\nbins = {bins}\n{more}'
    )


def told(*sections: str) -> dict[str, str]:
    return dict(of_dates(StreamConfig.from_toml("".join((GOOD, *sections)))))


def test_bins_that_fit_days_in_one_zone_are_not_warned_about() -> None:
    assert told(day(), WEEKDAY) == told(day(7), WEEKDAY) == told(day(14 * 24), WEEKDAY) == {}


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (day(10), "33.6 hours wide and do not begin with days"),
        (day(10), "tells less of weekday. Let min and max be at midnight, and say bins = 14, or a divisor of 14."),
        (day(start="2026-01-01T06:00:00", end="2026-01-15T06:00:00"), "24 hours wide"),
        (day(35), "9.6 hours wide"),
    ],
)
def test_bins_that_do_not_fit_days_are_told_beside_a_weekday(column: str, says: str) -> None:
    assert says in told(column, WEEKDAY)["columns.day"]
    assert told(column) == told(column, WEEKDAY.replace("weekday", "hour")) == {}


def test_one_time_on_two_walls_is_told() -> None:
    """They are not tied, which nobody sees in rows at once."""
    berlin = 'timezone = "Europe/Berlin"\n'
    words = told(day(), WEEKDAY + berlin)["columns.day"]
    assert words.startswith("'at' is read on the walls of several time zones: day in UTC, weekday in Europe/Berlin.")
    assert told(day(more=berlin), WEEKDAY + berlin) == {}


def test_columns_that_a_constraint_unties_are_told() -> None:
    section = '[[constraints]]\ncolumns = ["day", "weekday"]\nforbidden = [["2026-01-05T00:00:00", "1"]]\n'
    assert told(day(), WEEKDAY, section)["constraints"].startswith("day, weekday are read from one cell, but not tied")


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        ("2026-01-01", "2026-01-09", ""),
        ("2026-01-02", "2026-01-09", "Bins of 'day' begin with 2026-01-02, and the stream with 2026-01-01"),
        ("2025-12-01", "2026-01-08", "Bins of 'day' end with 2026-01-08, and the stream with 2026-01-09: all later"),
    ],
)
def test_dates_of_the_clock_that_do_not_last_as_long_as_the_stream_are_told(start: str, end: str, says: str) -> None:
    clock = 'name = "day"\ntype = "datetime"\nfrom = "when"\n'
    assert told(f"[[columns]]\n{clock}min = {start}\nmax = {end}\nbins = 2\n").get("columns.day", "").startswith(says)
    assert bool(told(f"[[columns]]\n{clock}min = {start}\nmax = {end}\nbins = 2\n")) == bool(says)
    endless = GOOD.replace("horizon = 8", 'horizon = "unbounded"').replace("until = 2026-01-06\n", "")
    text = f"{endless}[[columns]]\n{clock}min = 2026-01-01\nmax = 2026-01-03\nbins = 2\n"
    assert dict(of_dates(StreamConfig.from_toml(text))) == {}
