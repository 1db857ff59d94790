"""What a forecast is asked for: how many events to expect, a public guess; and after how many ticks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from synthstream.errors import ConfigError
from synthstream.schema.clock import Clock

_DAY = 86_400.0
_SECONDS = {
    "minute": 60.0,
    "hour": 3600.0,
    "day": _DAY,
    "week": 7 * _DAY,
    "month": 365.25 / 12 * _DAY,
    "year": 365.25 * _DAY,
}
_SHORT = {"m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
_WRITTEN = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[0-9]+)?)\s*/\s*([a-z]+?)s?\s*", re.IGNORECASE)
_FIX = "use a number and a time, as in 500/day; times are tick, minute, hour, day, week, month and year"
AT_DAYS = (1, 30, 365, 3650)


@dataclass(frozen=True, kw_only=True)
class Rate:
    """So many events in a length of time, or in a tick. Public: never look it up in the private data.

    Args:
        number: of events, above 0.
        per: ``tick``, ``minute``, ``hour``, ``day``, ``week``, ``month`` or ``year``.

    Example:
        >>> from datetime import datetime
        >>> clock = Clock(start=datetime(2026, 1, 1), every="1w", horizon=None)
        >>> Rate.parse("500/day").per_tick(clock), Rate.parse("35/tick").per_tick(clock)
        (3500.0, 35.0)
    """

    number: float
    per: str

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Read ``500/day``, ``500/d``, ``1,000/week`` or ``35/tick``.

        Raises:
            ConfigError: it is written otherwise, or is not above 0.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None and re.fullmatch(r"\s*[0-9][0-9_,.]*\s*", text):
            bare = text.strip()
            raise ConfigError(f"expect = {bare}: in what time? Say {bare}/day, /hour, /week, /month, /year or /tick")
        per = "" if found is None else found[2].lower()
        per = _SHORT.get(per, per)
        if found is None or per not in (*_SECONDS, "tick"):
            raise ConfigError(f"expect = {text}: {_FIX}")
        number = float(found[1].replace(",", "").replace("_", ""))
        if not 0 < number < 1e15:
            raise ConfigError(f"expect = {text}: must be above 0, and below 10^15")
        return cls(number=number, per=per)

    def per_tick(self, clock: Clock) -> float:
        """Events that a tick of a clock brings; months and years count as their mean length."""
        return self.number if self.per == "tick" else self.number * clock.seconds / _SECONDS[self.per]

    @property
    def words(self) -> str:
        """As a person would say it.

        Example:
            >>> Rate(number=1500, per="day").words
            '1,500 events a day'
        """
        events = f"{self.number:,g} event{'' if self.number == 1 else 's'}"
        return f"{events} {'an' if self.per == 'hour' else 'a'} {self.per}"


def moments_of(clock: Clock, at_ticks: Sequence[int] | None) -> dict[int, str]:
    """Numbers of ticks, in order, and what each was asked as. Of what lies after the horizon it has that alone."""
    asked: dict[int, list[str]] = {}
    if at_ticks is not None:
        if not isinstance(at_ticks, Sequence) or not all(isinstance(one, int) for one in at_ticks):
            raise TypeError(f"at_ticks: must be a list of whole numbers, as in [10, 100], not {at_ticks!r}")
        if not at_ticks or min(at_ticks) < 1:
            raise ConfigError("at_ticks: say after how many ticks, each 1 or more, as in 10,100")
        last = clock.horizon or max(at_ticks)
        wanted = [(ticks, f"tick {ticks:,}" if ticks <= last else "horizon") for ticks in sorted(set(at_ticks))]
    else:
        ended = [(_ticks_by(clock, days), days) for days in AT_DAYS]
        wanted = [(ticks, f"day {days:,}") if ticks else (1, "tick 1") for ticks, days in ended]
        if clock.horizon is not None and wanted[-1][0] > clock.horizon:
            wanted = [one for one in wanted if one[0] < clock.horizon] + [(clock.horizon, "horizon")]
    for ticks, name in wanted:
        asked.setdefault(ticks if clock.horizon is None else min(ticks, clock.horizon), []).append(name)
    return {ticks: ", ".join(dict.fromkeys(names)) for ticks, names in sorted(asked.items())}


def _ticks_by(clock: Clock, days: int) -> int:
    """Number of ticks that have ended ``days`` days after the start, whatever the horizon."""
    try:
        return replace(clock, horizon=None, until=None).ended_before(clock.boundary(0) + timedelta(days=days))
    except OverflowError:
        return 0


def until(clock: Clock, ticks: int) -> datetime | None:
    """When the last of the first ``ticks`` ticks ends; ``None`` after the year 9999."""
    with suppress(OverflowError, ValueError):
        return clock.boundary(ticks)
    return None
