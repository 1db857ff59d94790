"""What is known of the dates of rows before a look: fast, without a stream."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from synthstream.fit.population import Population
from synthstream.measured import Measured
from synthstream.schema.alike import of_one_cell
from synthstream.schema.binned import Datetime
from synthstream.schema.clock import Clock
from synthstream.schema.dates import Dates
from synthstream.synthesizers.fitting import RowFitting
from synthstream.synthesizers.windowing import _dated, _in_window, _late
from synthstream.workload import Workload

START, WEEKS = datetime(2026, 1, 5), 4  # a Monday
DAYS = 7 * WEEKS
DAY = Datetime(name="day", source="at", min=START, max=START + timedelta(days=DAYS), bins=DAYS)
WEEKDAY = Datetime(name="weekday", source="at", part="weekday")
DATES = Dates(clock=Clock(start=START, every="1d", horizon=DAYS, column="at"), columns={0: DAY}, parts={1: WEEKDAY})
HOW = RowFitting(groups=tuple(of_one_cell([DAY, WEEKDAY])), dates=DATES)
WORKLOAD = Workload.all_up_to(2, sizes=(DAY.size, WEEKDAY.size))
SUNDAY = DAYS - 1


def of_workdays(rows: int) -> Measured:
    """What noise makes of events on Monday to Saturday: fewer than none on Sundays."""
    days = np.where(np.arange(DAY.size) % 7 == 6, 0.0, rows / 24) * (np.arange(DAY.size) < DAYS)
    week = np.append(np.where(np.arange(7) == 6, -30.0, rows / 6), 0.0)
    values = np.concatenate([[rows], days, week, np.zeros(DAY.size * WEEKDAY.size)])
    return Measured(tick=SUNDAY, workload=WORKLOAD, values=values, variance=np.full(4, 100.0))


@pytest.mark.parametrize(("first", "days"), [(SUNDAY, [1.0]), (SUNDAY - 1, [1.0, 0.0]), (SUNDAY - 2, [0.5, 0.5, 0.0])])
def test_of_time_in_which_nothing_ever_came_the_time_is_known(first: int, days: list[float]) -> None:
    """A window of a Sunday has its day, if anything; among other days it has nothing."""
    known = of_workdays(24_000)
    found = HOW.expected(first, SUNDAY, known, (0, SUNDAY))
    assert found[0][first:DAYS] == pytest.approx(days)
    assert [shares.sum() for shares in found.values()] == pytest.approx([1.0, 1.0])


def test_rows_by_noise_on_such_days_give_a_window_no_shares_that_are_no_numbers() -> None:
    """Of a window of a Sunday and a Monday larger tables have counted the Sunday alone."""
    asked = cast(Any, SimpleNamespace(first=13, last=14, start=0))
    rows = Population(workload=WORKLOAD, codes=np.array([[13, 6], [3, 3]], dtype=np.int32))
    found = _in_window(DATES, HOW, rows, of_workdays(24_000), asked, 13)
    assert found[0][0][12:16].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert found[1][0].tolist() == [1.0, *[0.0] * 7]
    # A row of the Sunday is in time all the same.
    assert [np.flatnonzero(held).tolist() for _, held in found.values()] == [[13, 14], [0, 6]]


@pytest.mark.parametrize("found", [list(range(7)), [6]], ids=["of all weekdays", "of others"])
def test_rows_of_a_window_after_the_last_bin_have_its_weekday(found: list[int]) -> None:
    """The last bin holds what lies beyond, of all weekdays. Windows are of a Wednesday."""
    asked = cast(Any, SimpleNamespace(first=DAYS + 2, last=DAYS + 2, start=0, seed=0))
    rows = Population(workload=WORKLOAD, codes=np.array([[DAYS - 1, w] for w in found] * 20, dtype=np.int32))
    dated, shares = _dated(rows, rows, of_workdays(100), of_workdays(100), HOW, asked, None)
    assert np.unique(dated.codes, axis=0).tolist() == [[DAYS - 1, 2]]
    assert shares[1][2] == 1.0


def test_rows_of_a_week_after_the_last_bin_have_its_weekdays() -> None:
    """However few of all rows in that bin have them: nothing came on Sundays."""
    asked = cast(Any, SimpleNamespace(first=DAYS, last=DAYS + 6, start=0, seed=0))
    rows = Population(workload=WORKLOAD, codes=np.array([[DAYS - 1, w] for w in (1, 2, 2, 2)] * 150, dtype=np.int32))
    dated, shares = _dated(rows, rows, of_workdays(24_000), of_workdays(600), HOW, asked, None)
    assert np.unique(dated.codes[:, 0]).tolist() == [DAYS - 1]
    assert shares[1] == pytest.approx([*[1 / 6] * 6, 0, 0], abs=0.05)


def test_rows_of_a_window_of_an_end_have_its_own_weekday_if_any_is_held() -> None:
    """Two days, of which the first is the first bin: no row there says the weekday of the second."""
    asked = cast(Any, SimpleNamespace(first=0, last=1, start=0, seed=0))
    rows = Population(workload=WORKLOAD, codes=np.array([[9, 2]] * 100, dtype=np.int32))
    dated, _ = _dated(rows, rows, of_workdays(100), of_workdays(100), HOW, asked, None)
    assert {*map(tuple, dated.codes.tolist())} <= {(0, 0), (1, 1), (9, 2)}
    assert {(0, 0), (1, 1)} <= {*map(tuple, dated.codes.tolist())}


@pytest.mark.parametrize(("errors", "late"), [(1.5, False), (4.0, True)])
def test_rows_are_late_only_where_noise_cannot_say_so(errors: float, late: bool) -> None:
    """A total of 1,000 of which a window's days hold less, by so many standard errors."""
    own, held = of_workdays(1000), np.arange(DAY.size) < DAYS
    noise = np.sqrt(100.0 * (1 + DAYS))
    own.values[1] -= errors * noise
    assert (_late(own, 0, held) > 0) == late


def test_a_window_in_a_segment_knows_how_often_weekdays_had_rows_before_it() -> None:
    """What was measured counts the days before the segment, too."""
    rows = Population(workload=WORKLOAD, codes=np.array([[13, 6], [3, 3]], dtype=np.int32))
    found = []
    for start in (0, 9):
        dates = DATES.since(start)
        asked = cast(Any, SimpleNamespace(first=15, last=20, start=start))
        own = _in_window(dates, HOW._replace(dates=dates), rows, of_workdays(24_000), asked, 13)
        found.append([shares.tolist() for shares, _ in own.values()])
    assert found[0] == found[1]


def test_what_noise_explains_is_not_expected_again() -> None:
    """Weekdays that differ by less than one standard error of a count."""
    noisy = of_workdays(7000)
    noisy.values[1 + DAY.size : 1 + DAY.size + 7] = 1000.0 + 80.0 * (-1.0) ** np.arange(7)
    noisy.variance[:] = 100.0**2
    assert HOW.expected(0, 6, noisy, (0, SUNDAY))[1][:7] == pytest.approx(np.full(7, 1 / 7), abs=1e-3)
