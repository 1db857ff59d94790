"""Columns that are read from one cell: which of their codes go together, whatever the cell holds. Decision 92."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.constraints import MOST_COMBINATIONS, Group
from synthstream.schema.binned import Binned, Datetime, Integer, Number, Part, seconds_of
from synthstream.schema.columns import Column
from synthstream.workload import CodeArray, FloatArray, IntArray

_DAY = 86_400.0
# Parts of the time of a day, in seconds from one to the next, and their number: any day has all of them.
_OF_A_DAY = {"minute": (60.0, 60), "hour": (3600.0, 24)}
_OF_A_DATE: tuple[Part, ...] = ("weekday", "day", "week", "month", "quarter")
# After so many days the calendar comes again.
_CYCLE = 146_097
# So many moments are looked at, at most.
_MOST_MOMENTS = 2_000_000


def of_one_cell(columns: Sequence[Column]) -> list[Group]:
    """Of numbers and of dates that are read from the same column of rows: the combinations that one cell can have.

    Only columns of which one tells something of another are joined: a weekday and a date in bins of a day, not a
    weekday and an hour. A first or last bin holds what lies beyond its end, too, and goes with all parts of the
    calendar. Parts of a day's time are left out where there would be too many combinations.

    Example:
        >>> day = Datetime(name="day", source="at", min=datetime(2026, 1, 1), max=datetime(2026, 1, 5), bins=4)
        >>> weekday = Datetime(name="weekday", source="at", part="weekday")
        >>> (group,) = of_one_cell([day, weekday])
        >>> [codes for codes in group.combinations.tolist() if codes[0] in (1, 2, 4)]  # Friday, Saturday, missing
        [[1, 4], [2, 5], [4, 7]]
    """
    return [group for each in _families(columns) for group in _groups(each)]


def agreeing(
    columns: Sequence[Column], codes: CodeArray, cells: Sequence[pl.Series], ends: Mapping[int, float]
) -> list[pl.Series]:
    """Cells of rows, moved within their bins so that those of one cell are of one moment, or number, as far as can be.

    A date lies at the hour and minute, and on the weekday and so on, that its row says in other columns; a date or
    number in wide bins is that of the finest ones. Where bins and parts contradict each other cells stay.

    Args:
        codes: of the rows, shape ``(rows, columns)``.
        cells: of each column, in its bin.
        ends: of some columns, in seconds since 1970 on their wall, when cells must have ended; they all have.

    Example:
        >>> day = Datetime(name="day", source="at", min=datetime(2026, 1, 1), max=datetime(2026, 1, 5), bins=4)
        >>> hour = Datetime(name="hour", source="at", part="hour")
        >>> cells = [pl.Series("day", [datetime(2026, 1, 2, 9, 20)]), pl.Series("hour", [17])]
        >>> agreeing([day, hour], np.array([[1, 17]]), cells, {})[0].to_list()
        [datetime.datetime(2026, 1, 2, 17, 20)]
    """
    found = list(cells)
    for family in _families(columns):
        finest, *wider = sorted((c for c in family if not _part(family[c])), key=lambda c: -family[c].size) or [-1]
        if finest < 0 or len(family) == 1:
            continue
        column, parts = family[finest], {c: part for c, part in family.items() if _part(part)}
        if parts:
            now = ends.get(finest, math.inf)
            now = now if now > column.edges[0] else math.inf  # what lies before all bins is in the first one
            found[finest] = _on_time(column, codes[:, finest], parts, codes, found[finest], now)
        for c in wider:
            like = family[c]
            if (like.type, getattr(like, "decimals", None)) == (column.type, getattr(column, "decimals", None)):
                fits = pl.Series(like.encode(found[finest]) == codes[:, c]) & found[finest].is_not_null()
                found[c] = found[finest].zip_with(fits, found[c]).alias(like.name)
    return found


def _on_time(
    column: Binned, bins: CodeArray, parts: Mapping[int, Binned], codes: CodeArray, cells: pl.Series, end: float
) -> pl.Series:
    """Dates in bins, moved within these, and before an end, to the parts of the calendar that rows say."""
    of_date = {c: part for c, part in parts.items() if _part(part) in _OF_A_DATE}
    units = {_part(part): c for c, part in parts.items() if _part(part) in _OF_A_DAY}
    at = cells.dt.epoch("us").fill_null(0).to_numpy()
    if of_date:
        at = _on_date(column, bins, of_date, codes, at, end)
    low, high = (np.round(np.asarray(column.edges)[np.minimum(bins, len(column.edges) - 2) + k] * 1e6) for k in (0, 1))
    new, high = at.copy(), np.minimum(high, end * 1e6)
    for part, (seconds, whole) in _OF_A_DAY.items():
        if part in units:
            step, code = int(seconds * 1e6), codes[:, units[part]]
            new = np.where(code < whole, new + (code - new // step % whole) * step, new)
    # A bin that begins within a day may have that hour on the day before or after; best is the same day.
    for shift in (0,) if of_date else (1, -1, 0):
        other = new + shift * int(_DAY * 1e6)
        at = np.where((other >= low) & (other < high), other, at)
    return pl.Series(at.astype(np.int64)).cast(cells.dtype).zip_with(cells.is_not_null(), cells).alias(cells.name)


def _on_date(
    column: Binned, bins: CodeArray, parts: Mapping[int, Binned], codes: CodeArray, at: IntArray, end: float
) -> IntArray:
    """Moments in microseconds, moved to a day of their bin that has the parts that rows say, at their time of day."""
    edges, day = np.unique(np.round(np.minimum(column.edges, end) * 1e6).astype(np.int64)), int(_DAY * 1e6)
    if (edges[-1] - edges[0]) / day > _MOST_MOMENTS:
        return at
    begins = np.union1d(edges[:-1], np.arange(-(-edges[0] // day), -(-edges[-1] // day)) * day)
    ends = np.append(begins[1:], edges[-1])
    days, sizes = pl.Series(begins).cast(pl.Datetime("us")), [column.size, *(part.size for part in parts.values())]
    keys = np.ravel_multi_index([column.encode(days), *(part.encode(days) for part in parts.values())], sizes)
    asked = np.ravel_multi_index([bins, *(codes[:, c] for c in parts)], sizes)
    order = np.argsort(keys, kind="stable")
    first, last = (np.searchsorted(keys[order], asked, side=side) for side in ("left", "right"))
    where = np.searchsorted(begins, at, side="right") - 1
    wrong = (last > first) & (keys[np.maximum(where, 0)] != asked)
    # Which of the days that fit follows from the time of the day, which is left as it is as far as the bin allows.
    nth = first + (at % 1_000_003) % np.maximum(last - first, 1)
    chosen = order[np.minimum(nth, len(order) - 1)]
    moved = np.clip(begins[chosen] // day * day + at % day, begins[chosen], ends[chosen] - 1)
    return np.where(wrong, moved, at)


def _families(columns: Sequence[Column]) -> list[dict[int, Binned]]:
    """Numbers, and dates on one wall, by the column of rows that they are read from."""
    alike: dict[tuple[str, str], dict[int, Binned]] = {}
    for c, column in enumerate(columns):
        if isinstance(column, Datetime | Integer | Number):
            wall = column.timezone if isinstance(column, Datetime) else ""
            alike.setdefault((column.read_from, wall), {})[c] = column
    return [*alike.values()]


def _groups(columns: Mapping[int, Binned]) -> list[Group]:
    left, groups = list(columns), list[Group]()
    tied = [pair for pair in combinations(columns, 2) if _tied(*(columns[c] for c in pair))]
    while left:
        found = {left.pop(0)}
        while more := {c for pair in tied if found & set(pair) for c in pair} - found:
            found |= more
        left = [c for c in left if c not in found]
        for without in ((), ("minute",), ("minute", "hour")):
            chosen = sorted(c for c in found if _part(columns[c]) not in without)
            if len(chosen) > 1 and (known := _together([columns[c] for c in chosen])) is not None:
                groups.append(Group.of(chosen, known.codes, usual=known.usual))
                break
    return groups


def _part(column: Binned) -> str:
    """Which part of the calendar it holds; empty if it has bins."""
    return str(column.part or "") if isinstance(column, Datetime) else ""


def _tied(a: Binned, b: Binned) -> bool:
    """Whether a value of one column does not go with all values of the other."""
    for one, other in ((a, b), (b, a)):
        step, number = _OF_A_DAY.get(_part(one), (0.0, 0))
        if number and (_part(other) or np.diff(other.edges).min() >= step * number):
            return False
    known = _together([a, b])
    codes = np.empty((0, 2)) if known is None else known.codes
    values = np.unique(codes[(codes < [len(a.value_labels), len(b.value_labels)]).all(axis=1)], axis=0)
    return bool(len(values) < np.prod([len(np.unique(each)) for each in values.T]))


class _Known(NamedTuple):
    """Combinations of codes that one cell can have, and which of them are not those of moments beyond all bins."""

    codes: CodeArray
    usual: NDArray[np.bool_] | None = None


def _together(columns: Sequence[Binned]) -> _Known | None:
    """All of them, some more than once; ``None`` if they are too many."""
    edges = np.unique(np.concatenate([[], *(column.edges for column in columns if not _part(column))]))
    if not isinstance(columns[0], Datetime):
        codes = _codes(columns, pl.Series([edges[0] - 1.0, *edges, None], dtype=pl.Float64))
        return _Known(codes) if len(codes) <= MOST_COMBINATIONS else None
    inside, beyond = _inside(columns, edges), _beyond(columns, edges)
    if inside is None or beyond is None or len(inside) + len(beyond) > MOST_COMBINATIONS:
        return None
    codes = np.concatenate([_codes(columns, pl.Series([None], dtype=pl.Datetime("us"))), inside, beyond])
    return _Known(codes, np.arange(len(codes)) <= len(inside) if len(inside) else None)


def _inside(columns: Sequence[Binned], edges: FloatArray) -> CodeArray | None:
    """Combinations of moments within the bins, of which ``edges`` are all ends."""
    if not edges.size:
        return np.empty((0, len(columns)), dtype=np.int32)
    step = min((_OF_A_DAY.get(part, (_DAY, 0))[0] for part in map(_part, columns) if part), default=np.inf)
    if (edges[-1] - edges[0]) / step > _MOST_MOMENTS:
        return None
    steps = np.arange(np.ceil(edges[0] / step), np.ceil(edges[-1] / step)) * step if np.isfinite(step) else edges[:-1]
    return np.unique(_codes(columns, _times(np.union1d(edges[:-1], steps))), axis=0)


def _beyond(columns: Sequence[Binned], edges: FloatArray) -> CodeArray | None:
    """Combinations of moments before and after all bins; without bins of all moments."""
    parts = [_part(column) for column in columns]
    dates = np.unique(_calendar()[:, [_OF_A_DATE.index(part) for part in parts if part in _OF_A_DATE]], axis=0)
    times = list(product(*(range(_OF_A_DAY[part][1]) for part in parts if part in _OF_A_DAY)))
    ends = _codes(columns, _times(np.array([edges[0] - 1.0, edges[-1]]))) if edges.size else np.zeros((1, len(parts)))
    if len(ends) * len(dates) * len(times) > MOST_COMBINATIONS:
        return None
    found = np.repeat(ends, len(dates) * len(times), axis=0).astype(np.int32)
    each = np.tile(np.repeat(np.arange(len(dates)), len(times)), len(ends))
    found[:, [part in _OF_A_DATE for part in parts]] = dates[each]
    found[:, [part in _OF_A_DAY for part in parts]] = np.tile(np.array(times), (len(found) // len(times), 1))
    return found


@lru_cache(maxsize=1)
def _calendar() -> CodeArray:
    """Codes of the parts of a date that go together on any day, shape ``(combinations, parts)``."""
    days = _times(seconds_of(datetime(2000, 1, 1)) + _DAY * np.arange(_CYCLE, dtype=np.float64))
    return np.unique(_codes([Datetime(name=part, part=part) for part in _OF_A_DATE], days), axis=0)


def _times(seconds: FloatArray) -> pl.Series:
    """Moments in seconds since 1970, on the columns' own wall."""
    return pl.Series(np.ceil(seconds * 1e6).astype(np.int64)).cast(pl.Datetime("us"))


def _codes(columns: Sequence[Binned], cells: pl.Series) -> CodeArray:
    return np.stack([column.encode(cells) for column in columns], axis=1)
