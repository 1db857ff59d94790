"""Columns that are read from the clock's own: what is known of them without a look. Decision 87."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import combinations

import numpy as np
import polars as pl

from synthstream.constraints import Group
from synthstream.schema.binned import Datetime, seconds_of
from synthstream.schema.clock import Clock
from synthstream.schema.columns import Column
from synthstream.workload import FloatArray

# At so many moments, at most, it is looked which parts of the calendar they are in.
_MOMENTS = 100_000


@dataclass(frozen=True, kw_only=True)
class Dates:
    """Columns of bins that are read from the clock's own: a row counts in a tick only once its time has come.

    Args:
        clock: of the stream.
        columns: by position, on the clock's own wall.
        parts: columns that hold a calendar part of it, such as the weekday, likewise. Any row may have any code.
        begun: the tick of the stream from which ticks are counted.

    Example:
        >>> day = Datetime(name="at", min=datetime(2026, 1, 1), max=datetime(2026, 1, 8), bins=7)
        >>> dates = Dates(clock=Clock(start=day.min, every="36h", horizon=None, column="at"), columns={3: day})
        >>> [group.combinations.ravel().tolist() for group in dates.possible(1)]
        [[0, 1, 2, 7]]
        >>> dates.shares(1, 1)[3].round(2).tolist()
        [0.0, 0.33, 0.67, 0.0, 0.0, 0.0, 0.0, 0.0]
    """

    clock: Clock
    columns: Mapping[int, Datetime]
    parts: Mapping[int, Datetime] = field(default_factory=dict)
    begun: int = 0

    @classmethod
    def of(cls, clock: Clock, columns: Sequence[Column]) -> Dates | None:
        """Those of a stream; ``None`` if there are none."""
        found = {
            c: column
            for c, column in enumerate(columns)
            if isinstance(column, Datetime)
            if (column.read_from, column.timezone) == (clock.column, clock.timezone)
        }
        parts = {c: column for c, column in found.items() if column.part is not None}
        whole = {c: column for c, column in found.items() if c not in parts}
        return cls(clock=clock, columns=whole, parts=parts) if found else None

    def possible(self, tick: int) -> list[Group]:
        """For each column of which some are not, the codes that a row may have that was counted up to a tick."""
        found = []
        for c, column in self.columns.items():
            reached = np.searchsorted(np.asarray(column.edges[1:-1]), self._at(tick + 1)) + 1
            codes = np.union1d(np.arange(reached), [column.missing_code])
            found += [Group.of([c], codes[:, None])] if codes.size < column.size else []
        return found

    def shares(self, first: int, last: int) -> dict[int, FloatArray]:
        """What shares each code has, by column, if all rows that count in some ticks come in time and evenly."""
        found, (start, end) = {}, (self._at(first), self._at(last + 1))
        for c, column in self.columns.items():
            parts = np.diff(np.clip([-math.inf, *column.edges[1:-1], math.inf], start, end)) / (end - start)
            found[c] = np.append(parts, np.zeros(column.size - parts.size))
        return found

    def passed(self, first: int, last: int) -> dict[int, FloatArray]:
        """What share of the time of some ticks has each code of a calendar part, by column.

        Args:
            first, last: ticks; below 0 for those of the stream before ``begun``.

        Example:
            >>> weekday = Datetime(name="weekday", part="weekday")
            >>> clock = Clock(start=datetime(2026, 1, 1), every="1d", horizon=None, column="at")
            >>> Dates(clock=clock, columns={}, parts={0: weekday}).passed(0, 1)[0].tolist()  # Thursday and Friday
            [0.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 0.0]
        """
        return {c: _passed(self._at(first), self._at(last + 1), column) for c, column in self.parts.items()}

    def expected(self, first: int, last: int) -> dict[int, FloatArray]:
        """Shares of the time of some ticks, of all columns: of bins as :meth:`shares`, of parts as :meth:`passed`."""
        return self.shares(first, last) | self.passed(first, last)

    def tables(self, first: int, last: int) -> dict[tuple[int, ...], FloatArray]:
        """The same by the columns of a table, flat: of each of them, and of each two parts of the calendar."""
        found: dict[tuple[int, ...], FloatArray] = {(c,): shares for c, shares in self.expected(first, last).items()}
        for (a, one), (b, other) in combinations(self.parts.items(), 2):
            found[a, b] = _passed(self._at(first), self._at(last + 1), one, other)
        return found

    def in_time(self, end: datetime, cells: Sequence[pl.Series]) -> list[pl.Series]:
        """Cells of all columns of rows before a moment of the clock: in the bin that it cuts, earlier in proportion."""
        found, now = list(cells), seconds_of(end)
        for c, column in self.columns.items():
            k = int(np.searchsorted(column.edges, now)) - 1
            if 0 <= k < len(column.edges) - 1:
                low, high = column.edges[k : k + 2]
                at = cells[c].dt.epoch("us")
                part = (at - round(low * 1e6)) / ((high - low) * 1e6)
                # The end itself belongs to the next tick.
                early = ((low + (now - low) * part) * 1e6).floor().clip(upper_bound=round(now * 1e6) - 1)
                cut = ((part >= 0) & (part < 1)).fill_null(value=False)
                found[c] = early.cast(pl.Int64).cast(cells[c].dtype).zip_with(cut, cells[c]).alias(column.name)
        return found

    def since(self, tick: int) -> Dates:
        """The same with ticks counted from a later one on."""
        return replace(self, begun=self.begun + tick)

    def _at(self, tick: int) -> float:
        """When a tick begins, in seconds as those of the columns' edges."""
        return seconds_of(self.clock.boundary(self.begun + tick))


@lru_cache(maxsize=4096)  # each tick asks for all epochs before
def _passed(start: float, end: float, *columns: Datetime) -> FloatArray:
    """What share of the time from one second since 1970 to another has each cell of a table of calendar parts, flat."""
    finest = 60.0 if any(column.part == "minute" for column in columns) else 3600.0
    step = max(finest, (end - start) / _MOMENTS)
    at = np.arange(start + min(step, end - start) / 2, end, step)
    moments, sizes = pl.Series((at * 1e6).astype(np.int64)).cast(pl.Datetime("us")), [c.size for c in columns]
    cells = np.ravel_multi_index([column.encode(moments) for column in columns], sizes)
    found = np.bincount(cells, minlength=math.prod(sizes)) / at.size
    found.flags.writeable = False
    return found
