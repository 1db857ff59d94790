"""The public clock: which tick a time belongs to, and which ticks have ended."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.errors import ConfigError, TickNotOver
from synthstream.schema.coercion import Frame, polars_frame, times
from synthstream.workload import IntArray

_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MONTHS = {"mo": 1, "q": 3, "y": 12}
EVERY = re.compile(r"([1-9][0-9]*)(mo|m|h|d|w|q|y)")
_WAIT = re.compile(r"([1-9][0-9]{0,5})(m|h|d|w)")
_LONGEST_WAIT = timedelta(days=3660)
# What people call them otherwise. A small m is minutes, as everywhere here.
_CALLED = {"minute": "m", "min": "m", "hour": "h", "day": "d", "week": "w", "month": "mo", "quarter": "q", "year": "y"}
_CALLED |= {"daily": "d", "m": "m", "M": "mo", "mo": "mo", **{letter: letter.lower() for letter in "hdwqyHDWQY"}}

# Ticks of rows dated further ahead than this are not told apart; they wait together.
FURTHEST = 2**40


@lru_cache(maxsize=64)
def known_zone(name: str) -> bool:
    """Whether a time zone is known to Python, which reckons boundaries, and to polars, which reckons rows."""
    try:
        ZoneInfo(name)
        pl.Series([0], dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone(name)
    except (KeyError, OSError, ValueError, pl.exceptions.PolarsError):
        return False
    return True


def no_zone(name: str) -> str:
    """What to say of a time zone that is not known: the zone that is meant, if it names its place.

    Example:
        >>> no_zone("new york"), no_zone("Mars/X")
        ("not a known zone. Did you mean 'America/New_York'?", 'not a known zone; use a name such as "UTC"')
    """
    zones = {zone.rpartition("/")[2].casefold(): zone for zone in sorted(available_timezones())}
    near = difflib.get_close_matches(name.rpartition("/")[2].replace(" ", "_").casefold(), zones, n=1, cutoff=0.8)
    usable = [zones[one] for one in near if known_zone(zones[one])]
    return "not a known zone" + (f". Did you mean {usable[0]!r}?" if usable else '; use a name such as "UTC"')


def no_length(said: str, example: str) -> str:
    """What to say of a length of time that cannot be read: how one is written, and which one may be meant.

    Example:
        >>> no_length("1 month", "1w")
        'use a number and m (minutes), h, d, w, mo (months), q or y, as in "1w". Did you mean "1mo"?'
        >>> no_length("weekly", "30d")[-20:]
        '. Did you mean "1w"?'
    """
    found = re.fullmatch(r"([1-9][0-9]*)? ?([A-Za-z]+)", said.strip())
    word = found[2] if found else ""
    unit = _CALLED.get(word) or _CALLED.get(word.lower().removesuffix("s").removesuffix("ly") if len(word) > 2 else "")
    meant = f'. Did you mean "{found[1] or 1}{unit}"?' if found and unit else ""
    return f'use a number and m (minutes), h, d, w, mo (months), q or y, as in "{example}"{meant}'


def _length(said: str) -> tuple[int, int]:
    """Months and seconds of a length of time as ``EVERY`` has it: one of the two is 0."""
    unit = said.lstrip("0123456789")
    number = int(said.removesuffix(unit))
    return number * _MONTHS.get(unit, 0), number * _SECONDS.get(unit, 0)


def length_of(span: timedelta) -> str | None:
    """A length of time as settings write it, in days, hours or minutes; ``None`` if it is no whole number of these.

    Example:
        >>> length_of(timedelta(days=7)), length_of(timedelta(hours=36)), length_of(timedelta(seconds=90))
        ('7d', '36h', None)
    """
    units = [u for u in "dhm" if span > timedelta() and not span % timedelta(seconds=_SECONDS[u])]
    return f"{span // timedelta(seconds=_SECONDS[units[0]])}{units[0]}" if units else None


def written(moment: datetime) -> str:
    """A moment on its own wall as people write it: without its zone, and a midnight as a date.

    Example:
        >>> written(datetime(2026, 1, 31)), written(datetime(2026, 1, 31, 12))
        ('2026-01-31', '2026-01-31 12:00:00')
    """
    wall = moment.replace(tzinfo=None)
    return str(wall if wall.time() != time() else wall.date())


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Ticks of equal length on the wall clock of a time zone. Tick i is [boundary(i), boundary(i + 1)).

    Days and longer are calendar units: in a zone with summer time a day has 23, 24 or 25 hours. Hours and minutes are
    those that the wall clock shows, so a repeated hour falls into one tick.

    Args:
        start: beginning of tick 0; a time without a zone is on the wall clock of ``timezone``.
        every: length of a tick: a number and one of m (minutes), h, d, w, mo (months), q, y.
        column: where a row's time stands; left out: rows count in the tick that is open when they come.
        until: the public moment up to which ticks are closed; left out: the machine's clock.
        horizon: number of ticks covered; ``None`` for no end.
        wait: how long after its end a tick is closed, as in ``"3d"`` (a day has 24 hours); left out: at once. Rows that
            come until then count in their own tick. It defines no release, and may change.

    Raises:
        ConfigError: a setting is impossible.

    Example:
        >>> clock = Clock(start=datetime(2026, 1, 1), every="1w", horizon=None)
        >>> clock.boundary(1).isoformat()
        '2026-01-08T00:00:00+00:00'
        >>> clock.ended_before(datetime(2026, 1, 20, tzinfo=ZoneInfo("UTC")))
        2
    """

    start: datetime
    every: str
    horizon: int | None
    column: str | None = None
    until: datetime | None = None
    timezone: str = "UTC"
    wait: str | None = None

    def __post_init__(self) -> None:
        if not EVERY.fullmatch(self.every):
            raise ConfigError(f"clock.every = {self.every!r}: {no_length(self.every, '1w')}")
        if not known_zone(self.timezone):
            raise ConfigError(f"clock.timezone = {self.timezone!r}: {no_zone(self.timezone)}")
        if self._months and self._origin.day > 28:
            raise ConfigError("clock.start: months, quarters and years must start on a day up to the 28th")
        if self.horizon is not None and self.horizon < 1:
            raise ConfigError(f"clock.horizon = {self.horizon}: must be at least 1 tick")
        if self.horizon is not None and self.horizon > FURTHEST:
            raise ConfigError(f'clock.horizon: at most {FURTHEST} ticks; say "unbounded" for no end')
        try:
            self.boundary(1)
        except (OverflowError, ValueError):
            raise ConfigError(
                f"clock.every = {self.every!r}: the first tick would end after the year 9999; use a shorter one"
            ) from None
        if self.until is not None and self._wall(self.until) <= self._origin:
            raise ConfigError(
                f"clock.until = {written(self.until)}: must lie after clock.start, which is {written(self.start)}"
            )
        if self.wait is None:
            return
        if not _WAIT.fullmatch(self.wait):
            raise ConfigError(f'clock.wait = {self.wait!r}: use a number and m, h, d or w, as in "3d"; or leave it out')
        if self.column is None:
            raise ConfigError(
                "clock.wait: needs clock.column. Without it rows count in the tick that is open when they come, so "
                "none is late: leave wait out, or name the column that holds a row's time"
            )
        if self._lag > _LONGEST_WAIT:
            raise ConfigError(f"clock.wait = {self.wait!r}: must be at most {_LONGEST_WAIT.days} days")

    @cached_property
    def _lag(self) -> timedelta:
        return timedelta() if self.wait is None else timedelta(seconds=_length(self.wait)[1])

    @cached_property
    def _origin(self) -> datetime:
        return self._wall(self.start)

    @cached_property
    def _months(self) -> int:
        """Months per tick; 0 if a tick is a number of seconds."""
        return _length(self.every)[0]

    @cached_property
    def _seconds(self) -> int:
        return _length(self.every)[1]

    @property
    def seconds(self) -> float:
        """Mean length of a tick, in seconds."""
        return self._seconds + self._months * 365.25 / 12 * 86_400

    def _wall(self, moment: datetime) -> datetime:
        """A moment on the clock's own wall, without its zone."""
        zone = ZoneInfo(self.timezone)
        return moment.astimezone(zone).replace(tzinfo=None) if moment.tzinfo else moment

    def ticks_in(self, per: str, *, what: str = "per") -> int:
        """Number of ticks in a length of time that is written like ``every``.

        Args:
            what: the key that says so, for messages.

        Raises:
            ConfigError: it is written otherwise, or is not a whole number of ticks.

        Example:
            >>> Clock(start=datetime(2026, 1, 1), every="1d", horizon=None).ticks_in("30d")
            30
        """
        if not EVERY.fullmatch(per):
            raise ConfigError(f"{what} = {per!r}: {no_length(per, '30d')}")
        months, seconds = _length(per)
        ticks, rest = divmod(months, self._months) if self._months else divmod(seconds, self._seconds)
        if (rest or ticks < 1) and seconds and not self._months:
            unit, near = per[-1], max(round(seconds / self._seconds), 1) * self._seconds
            fits = f'; the nearest is "{near // _SECONDS[unit]}{unit}"' if near % _SECONDS[unit] == 0 else ""
            raise ConfigError(f"{what} = {per!r}: is not a whole number of ticks of {self.every!r}{fits}")
        if rest or ticks < 1:
            raise ConfigError(
                f"{what} = {per!r}: is not a whole number of ticks of {self.every!r}. Days have no fixed number in a "
                "month: with ticks of days or weeks say days or weeks, with ticks of months say months"
            )
        return ticks

    def boundary(self, tick: int) -> datetime:
        """When a tick begins, with its zone."""
        if self._months:
            total = self._origin.year * 12 + self._origin.month - 1 + tick * self._months
            wall = self._origin.replace(year=total // 12, month=total % 12 + 1)
        else:
            wall = self._origin + timedelta(seconds=tick * self._seconds)
        return wall.replace(tzinfo=ZoneInfo(self.timezone))

    def begins(self, tick: int) -> str:
        """The same as people write it."""
        return written(self.boundary(tick))

    def moment(self, when: datetime) -> datetime:
        """A moment with its zone; one without a zone is on the clock's own wall."""
        return when if when.tzinfo else when.replace(tzinfo=ZoneInfo(self.timezone))

    def cuts(self, tick: int) -> bool:
        """Whether ``until`` lies within a tick, which is then never closed."""
        return self.until is not None and self.boundary(tick) < self.moment(self.until) < self.boundary(tick + 1)

    def waited(self, moment: datetime) -> datetime:
        """When what ended at a moment may be closed: ``wait`` later; with a zone."""
        there = self.moment(moment)
        return (there.astimezone(UTC) + self._lag).astimezone(there.tzinfo)

    def closes(self, tick: int) -> datetime:
        """When a tick is closed, with its zone: ``wait`` after its end."""
        return self.waited(self.boundary(tick + 1))

    def ending(self, tick: int) -> str:
        """When a tick ends and is closed, in words."""
        zone = f" ({self.timezone})" if self.timezone != "UTC" else ""
        closed = "" if self.wait is None else f" and is closed {self.wait} later, {written(self.closes(tick))}"
        return f"ends {self.begins(tick + 1)}{closed}{zone}"

    def why_open(self, tick: int, *, until: datetime | None = None) -> str:
        """Why a tick is not closed yet, in words; ``until`` as in ``over``."""
        end = self.until if until is None else until
        said = f"Tick {tick} {self.ending(tick)}. A tick is closed by the clock alone"
        if end is None or self.moment(end) >= self.boundary(tick + 1):
            return f"{said}; wait."
        return f"{said}, and none that ends after until = {written(end)}; wait, and say a later until."

    def over(self, now: datetime, *, until: datetime | None = None) -> int:
        """Number of ticks that may be closed: they ended before ``until``, and at least ``wait`` before ``now``.

        Args:
            until: in place of the configured one, which is heeded if this is left out.

        Example:
            >>> day = Clock(start=datetime(2026, 1, 1), every="1d", horizon=None, column="at", wait="3d")
            >>> day.over(datetime(2026, 1, 5, tzinfo=UTC)), day.closes(0).isoformat()
            (1, '2026-01-05T00:00:00+00:00')
        """
        ends = [now.astimezone(UTC) - self._lag]
        if (end := self.until if until is None else until) is not None:
            ends.append(self.moment(end))
        return self.ended_before(min(ends))

    def ended_before(self, moment: datetime) -> int:
        """Number of ticks whose end is at or before a moment, at most the horizon."""
        ended = max(0, int(self._index(np.array([self._wall(moment)], dtype="M8[us]"))[0]))
        return ended if self.horizon is None else min(ended, self.horizon)

    def ticks_of(self, frame: Frame) -> IntArray:
        """Tick of each row by its time, int64, shape ``(rows,)``. Total.

        Times before the start belong to tick 0; a row without a readable time gets -1, the tick that is open when it is
        counted. Times beyond the horizon have ticks of their own: a successor may come to them.

        Raises:
            SchemaError: the frame has no such column.
        """
        if self.column is None:
            return np.full(len(frame), -1, dtype=np.int64)
        wall = times(polars_frame(frame, [self.column])[self.column], timezone=self.timezone)
        ticks = np.clip(self._index(wall.fill_null(self._origin).to_numpy()), 0, FURTHEST)
        return np.where(wall.is_null().to_numpy(), np.int64(-1), ticks).astype(np.int64)

    def _index(self, wall: NDArray[np.datetime64]) -> IntArray:
        """Tick of wall-clock times in microseconds, negative before the start."""
        origin = np.datetime64(self._origin, "us")
        if not self._months:
            return np.asarray((wall - origin) // np.timedelta64(self._seconds, "s"), dtype=np.int64)
        month, first = wall.astype("M8[M]"), origin.astype("M8[M]")
        early = wall - month < origin - first  # in its month, than the start in its own
        return np.asarray(((month - first).astype(np.int64) - early) // self._months, dtype=np.int64)


def due(clock: Clock, *, until: datetime | None, now: datetime) -> int:
    """Number of ticks that may be closed, closed ones too: see :meth:`Clock.over`.

    Raises ``TickNotOver`` if ``until`` lies in the future. A configured ``until`` may.
    """
    if until is not None and (end := clock.moment(until)) > now:
        raise TickNotOver(f"until = {end.isoformat()} lies in the future; a tick is closed when it is over.")
    return clock.over(now, until=until)
