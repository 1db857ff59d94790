"""The public clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from synthstream.errors import ConfigError, SchemaError
from synthstream.schema.clock import FURTHEST, Clock


def clock(
    every: str = "1w", *, start: datetime = datetime(2011, 1, 1), horizon: int | None = None, zone: str = "UTC"
) -> Clock:
    return Clock(start=start, every=every, column="at", horizon=horizon, timezone=zone)


def ticks(c: Clock, *moments: object) -> list[int]:
    return [int(tick) for tick in c.ticks_of(pl.DataFrame({"at": list(moments)}))]


@pytest.mark.parametrize("every", ["1m", "90m", "1h", "1d", "1w", "2w", "1mo", "1q", "5mo", "1y"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_boundaries_and_ticks_agree(every: str, zone: str) -> None:
    c = clock(every, start=datetime(2015, 2, 10, 6, 30), zone=zone)
    for i in (0, 1, 2, 7, 50, 999):
        wall = c.boundary(i).replace(tzinfo=None)
        assert ticks(c, wall, wall + timedelta(seconds=1)) == [i, i]
        if i:
            assert ticks(c, wall - timedelta(seconds=1)) == [i - 1]
        assert c.ended_before(c.boundary(i)) == i
        assert c.ended_before(c.boundary(i) - timedelta(microseconds=1)) == max(i - 1, 0)
        assert c.ended_before(c.boundary(i) + timedelta(seconds=1)) in (i, i)


def test_days_with_summer_time_have_23_or_25_hours() -> None:
    c = clock("1d", start=datetime(2026, 3, 28), zone="Europe/Berlin")
    length = c.boundary(2).astimezone(UTC) - c.boundary(1).astimezone(UTC)
    assert length == timedelta(hours=23)


def test_rows_without_a_readable_time_go_to_the_open_tick() -> None:
    assert clock().ticks_of(pl.DataFrame({"at": ["x", None, "2011-01-09"]})).tolist() == [-1, -1, 1]
    assert clock().ticks_of(pl.DataFrame({"at": [1, 2]})).tolist() == [-1, -1]


def test_early_and_far_rows() -> None:
    assert ticks(clock(), date(1900, 1, 1)) == [0]
    assert ticks(clock(horizon=10), date(2999, 1, 1)) == [51551]
    assert (
        ticks(clock("1m"), datetime(9999, 12, 31)) == [4201401599 - 0]
        or ticks(clock("1m"), datetime(9999, 12, 31))[0] < FURTHEST
    )


def test_a_wait_is_a_length_of_time_whatever_the_wall_clock_does() -> None:
    c = Clock(start=datetime(2026, 3, 28), every="1d", column="at", horizon=None, timezone="Europe/Berlin", wait="2d")
    assert c.closes(0) == datetime(2026, 3, 30, 23, tzinfo=UTC)  # 48 hours after midnight; that night had one fewer
    assert [c.over(c.closes(0) - timedelta(seconds=s)) for s in (0, 1)] == [1, 0]
    assert c.over(datetime(2026, 5, 1, tzinfo=UTC), until=datetime(2026, 3, 30)) == 2


def test_why_a_tick_is_open_asks_for_another_until_where_that_one_keeps_it_open() -> None:
    c = Clock(start=datetime(2026, 1, 1), every="1d", column="at", horizon=None, until=datetime(2026, 1, 3))
    assert [("until" in c.why_open(tick), c.why_open(tick).endswith("; wait.")) for tick in (1, 2)] == [
        (False, True),  # it ends as ``until`` does
        (True, False),
    ]
    assert c.why_open(2, until=c.boundary(3)).endswith("; wait.")
    assert "say a later until" in c.why_open(2, until=c.boundary(3) - timedelta(seconds=1))


@pytest.mark.parametrize("wait", ["0d", "3", "3 d", "1mo", "-1d", "3661d", ""])
def test_a_wait_that_is_none_is_told(wait: str) -> None:
    with pytest.raises(ConfigError, match=r"clock\.wait = "):
        Clock(start=datetime(2026, 1, 1), every="1d", column="at", horizon=None, wait=wait)
    with pytest.raises(ConfigError, match=r"clock\.wait: needs clock\.column"):
        Clock(start=datetime(2026, 1, 1), every="1d", horizon=None, wait="1d")


def test_times_with_a_zone_are_converted() -> None:
    c = clock("1d", start=datetime(2026, 1, 1), zone="America/New_York")
    assert ticks(c, datetime(2026, 1, 2, 3, tzinfo=UTC)) == [0]
    assert c.ended_before(datetime(2026, 1, 2, 4, 59, tzinfo=UTC)) == 0
    assert c.ended_before(datetime(2026, 1, 2, 5, tzinfo=UTC)) == 1


def test_the_horizon_ends_it() -> None:
    assert clock(horizon=3).ended_before(datetime(2030, 1, 1, tzinfo=UTC)) == 3
    assert clock().ended_before(datetime(2000, 1, 1, tzinfo=UTC)) == 0


def test_without_a_column_every_row_is_of_the_open_tick() -> None:
    bare = Clock(start=datetime(2026, 1, 1), every="1d", horizon=None)
    assert bare.ticks_of(pl.DataFrame({"x": [1, 2]})).tolist() == [-1, -1]
    with pytest.raises(SchemaError, match="'at' is missing"):
        clock().ticks_of(pl.DataFrame({"x": [1]}))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"every": "1 week"}, 'every .* Did you mean "1w"'),
        ({"every": "1 month"}, r'mo \(months\).* Did you mean "1mo"'),
        ({"every": "1M"}, 'Did you mean "1mo"'),
        ({"every": "3 Months"}, 'Did you mean "3mo"'),
        ({"every": "1ms"}, r'as in "1w"$'),
        ({"every": "monthly"}, r'Did you mean "1mo"\?$'),
        ({"every": "0d"}, "every"),
        ({"every": "-1d"}, "every"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"every": "1mo", "start": datetime(2026, 1, 31)}, "28th"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 10**30}, "unbounded"),
        ({"every": "99999999999999w"}, "year 9999"),
        ({"every": "9000y"}, "year 9999"),
        ({"start": datetime(9999, 12, 31)}, "year 9999"),
        ({"timezone": "Factory"}, "timezone"),
        ({"until": datetime(2000, 1, 1)}, "until"),
    ],
)
def test_impossible_clocks_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Clock(**({"start": datetime(2026, 1, 1), "every": "1d", "horizon": None} | settings))  # type: ignore[arg-type]


def test_the_data_of_the_demo() -> None:
    assert clock().ended_before(datetime(2016, 1, 2, tzinfo=ZoneInfo("UTC"))) == 261
