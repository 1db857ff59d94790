"""After how many ticks to forecast."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from synthstream.errors import ConfigError
from synthstream.schema.clock import Clock

AT_DAYS = (1, 30, 365, 3650)


def moments_of(clock: Clock, at_ticks: Sequence[int] | None) -> dict[int, str]:
    """Numbers of ticks, in order, and what each was asked as. Of days after the horizon it has the horizon alone."""
    asked: dict[int, list[str]] = {}
    if at_ticks is not None:
        if not at_ticks or min(at_ticks) < 1:
            raise ConfigError("at_ticks: say after how many ticks, each 1 or more, as in 10,100")
        wanted = [(ticks, f"tick {ticks:,}") for ticks in sorted(set(at_ticks))]
    else:
        wanted = [(_ticks_by(clock, days), f"day {days:,}") for days in AT_DAYS]
        if clock.horizon is not None and wanted[-1][0] > clock.horizon:
            wanted = [one for one in wanted if one[0] < clock.horizon] + [(clock.horizon, "horizon")]
    for ticks, name in wanted:
        asked.setdefault(ticks if clock.horizon is None else min(ticks, clock.horizon), []).append(name)
    return {ticks: ", ".join(names) for ticks, names in sorted(asked.items())}


def _ticks_by(clock: Clock, days: int) -> int:
    """Number of ticks that have ended ``days`` days after the start, whatever the horizon; 1 if none has."""
    try:
        return max(1, replace(clock, horizon=None, until=None).ended_before(clock.boundary(0) + timedelta(days=days)))
    except OverflowError:
        return 1


def until(clock: Clock, ticks: int) -> datetime | None:
    """When the last of the first ``ticks`` ticks ends; ``None`` after the year 9999."""
    with suppress(OverflowError, ValueError):
        return clock.boundary(ticks)
    return None
