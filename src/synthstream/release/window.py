"""Rows and tables of the events between two moments: last month, not everything."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, ClassVar

import numpy as np

from synthstream.errors import ConfigError, NotReleased
from synthstream.release.points import PointRelease
from synthstream.release.release import Release
from synthstream.release.tables import TableRelease
from synthstream.schema.clock import Clock, written

Moment = str | date | np.datetime64


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Spanning(Release):
    """What is known of the events of some ticks alone. Never published; a pure function of what was.

    Args:
        first: its first tick; ``tick`` is its last one.
    """

    first: int

    @property
    def about(self) -> str:
        return f"events from {written(self.start)} to before {written(self.end)}, ticks {self.first} to {self.tick}"

    def _dates(self) -> dict[str, Any]:
        return {}  # it is no tick

    def manifest(self) -> dict[str, Any]:
        """See :meth:`Release.manifest`; ``since`` is the first tick."""
        return {**super().manifest(), "since": self.first}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Window(Spanning, TableRelease):
    """Rows and tables of the events of some ticks alone.

    ``measured`` in its tables is the difference of two measurements, and ``stderr`` that difference's own, from the
    covariance of the counters. It has rows, tables, comparison and display as a release has.
    """

    running: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PointWindow(Spanning, PointRelease):
    """Points of the events of some ticks alone, masses of boxes and means.

    Masses rest on epochs of the number of events that began in the window, and on the difference of two readings of the
    one that it cuts; their errors tell what no reading has divided. What passed the gate is in no table of it.
    """

    net: ClassVar[bool] = True


def moment_of(moment: Moment, clock: Clock) -> datetime:
    """A moment with its zone: a date or time, or one in ISO 8601, by default on the clock's own wall.

    Raises:
        ConfigError: the text is no date.
        TypeError: it is something else.
    """
    if isinstance(moment, np.datetime64) and not np.isnat(moment):
        moment = moment.astype("M8[us]").item()
    try:
        found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        raise ConfigError(f"{moment!r} is no date; write it like 2026-01-31, or 2026-01-31T12:00:00.") from None
    if not isinstance(found, date) or found != found:  # one that is missing in pandas
        raise TypeError(f'a moment must be a date, as in "2026-01-31", not {type(found).__name__}')
    if not isinstance(found, datetime):
        found = datetime(found.year, found.month, found.day)
    return clock.moment(found)


def _begin(at: Moment | int, clock: Clock, newest: int) -> datetime:
    """A moment, or the one at which a tick begins."""
    if not isinstance(at, int | np.integer):
        return moment_of(at, clock)
    if not 0 <= at <= newest + 1:
        raise NotReleased(f"between: there is no tick {at}. Releases hold ticks 0 to {newest}.")
    return clock.boundary(int(at))


def ticks_between(clock: Clock, start: Moment | int, end: Moment | int, *, newest: int) -> tuple[int, int]:
    """First and last of the whole ticks that hold all from ``start`` to before ``end``.

    Raises:
        NotReleased: there are none, or they have not all been released.
    """
    begin, until = _begin(start, clock, newest), _begin(end, clock, newest)
    first, ticks = clock.ended_before(begin), clock.ended_before(until)
    if clock.boundary(ticks) < until:
        ticks += 1
    over = clock.boundary(newest + 1)
    if begin >= until:
        raise NotReleased(f"between {start} and {end}: nothing lies there. Say the earlier moment first.")
    if ticks <= 0:
        raise NotReleased(f"between {start} and {end}: nothing lies there. The stream begins {clock.begins(0)}.")
    if ticks - 1 > newest:
        raise NotReleased(
            f"between {start} and {end}: releases hold events before {written(over)} only. Ask for a "
            "window that ends there, or wait."
        )
    return first, ticks - 1
