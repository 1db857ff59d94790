"""Private cells one by one: in plain types, and as text. No cell is read by what another one holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import polars as pl

T = TypeVar("T")

# Days since 1970 of 0001-01-03 and 9998-12-30: with room for any time zone.
_FIRST_DAY, _LAST_DAY = -719_160, 2_932_530

# More have no number of thousandths in 64 bits.
LAST_SECOND = (2**63 - 1) // 1000

# Python may refuse to write longer integers in decimal digits, and would take the square of their length.
_MOST_BITS = 2000

# A decimal with more would take much more room written out.
_MOST_DIGITS = 400

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


def library_of(value: object) -> str:
    """The package that a type comes from: of pandas, which is no dependency, nothing is imported to ask."""
    return type(value).__module__.partition(".")[0]


def plain(series: pl.Series) -> pl.Series:
    """As text, number, boolean, date or time; every other type becomes text, or null if it is nested."""
    kind = series.dtype
    if kind.is_nested():
        return pl.Series(series.name, [None] * len(series), dtype=pl.String)
    if isinstance(kind, pl.BaseExtension):
        return plain(series.ext.storage())
    if isinstance(kind, pl.Categorical | pl.Enum):
        return series.cast(pl.String)
    if kind.is_temporal():
        return within_range(series)
    if kind.is_numeric() or kind in (pl.String, pl.Boolean, pl.Null):
        return series
    cells = series.to_list() if kind == pl.Object else series  # slow, but no cell can spoil another
    return one_by_one(series.name, len(series), cells.__getitem__)


def within_range(series: pl.Series) -> pl.Series:
    """Dates and times moved into the years 1 to 9998: outside of them polars panics. Durations become text."""
    kind, count = series.dtype, series.to_physical()
    if kind == pl.Date:
        return count.clip(_FIRST_DAY, _LAST_DAY).cast(pl.Date)
    if kind == pl.Time:
        return count.clip(0, 86_400 * 10**9 - 1).cast(pl.Time)
    if isinstance(kind, pl.Duration):
        if kind.time_unit != "us":
            count = count // 1000 if kind.time_unit == "ns" else count.clip(-LAST_SECOND, LAST_SECOND) * 1000
        return count.cast(pl.String) + "us"  # no number
    if not isinstance(kind, pl.Datetime):
        return count
    per_day = 86_400 * {"ms": 10**3, "us": 10**6, "ns": 10**9}[kind.time_unit]
    first, last = (max(-(2**63) + 1, min(2**63 - 1, day * per_day)) for day in (_FIRST_DAY, _LAST_DAY))
    return count.clip(first, last).cast(kind)


def one_by_one(name: str, number: int, cell: Callable[[int], object]) -> pl.Series:
    """Text cell by cell, each by a rule that looks at nothing else; null for nothing, and for what raises.

    Args:
        cell: hands out the cell at a place.
    """

    def text(i: int) -> str | None:
        found = text_of(cell(i))
        # Of a class of its own, a text may answer with anything: ask the built-in type.
        return None if found is None else str.encode(found, errors="backslashreplace").decode()

    return pl.Series(name, handed_out(number, text), dtype=pl.String)


def handed_out(number: int, cell: Callable[[int], T]) -> list[T | None]:
    """The cell at each place, asked for by itself; ``None`` for what raises."""
    found: list[T | None] = []
    for i in range(number):
        try:
            found.append(cell(i))
        except (Exception, pl.exceptions.PanicException):  # a private cell must not raise, whatever it is
            found.append(None)
    return found


def text_of(value: object) -> str | None:
    """Text of one Python object; nothing for nothing. May raise: an object may do anything when it is asked.

    Equal cells have one text, so only types that are known have any: others may print the place where they lie, which
    is new in each row. They are empty texts, as nested cells are: nobody's key, and no value of a category.
    """
    if type(value) is str:  # nearly all are
        return value
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.isnat(value):
            return None
        day = isinstance(value, np.datetime64) and np.datetime_data(value)[0] == "D"
        value = value.astype(f"{value.dtype.kind}8[{'D' if day else 'us'}]").item()
    if isinstance(value, float | np.floating):
        return None if value != value else text_of_float(value)
    if isinstance(value, str | int | np.integer | Decimal):
        return _text_or_number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        whole = memoryview(value).tobytes()
        with suppress(UnicodeDecodeError):
            return whole.decode()
        # What is no text is escaped, and so are backslashes: no two look alike.
        return whole.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    return _text_of_moment(value)


def _text_or_number(value: str | int | np.integer[Any] | Decimal) -> str:
    """As the built-in type writes it, whatever a class of its own would say. Members of enumerations as they say."""
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Decimal):
        written_out = value.is_finite() and abs(value.adjusted()) < _MOST_DIGITS
        return Decimal.__format__(value, "f") if written_out else Decimal.__str__(value)
    whole = int.__index__(value) if isinstance(value, int) else int(value)
    if whole.bit_length() <= _MOST_BITS:
        return int.__repr__(whole)
    return f"{'-' if whole < 0 else ''}0{abs(whole):o}"  # octal: no less a number, and as long to write as it is


def _text_of_moment(value: object) -> str:
    """Text of dates, times, spans and identifiers; empty for all other objects."""
    if isinstance(value, datetime):
        return datetime.isoformat(value if value.utcoffset() is None else value.astimezone(UTC), " ")
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)}us"
    if isinstance(value, date):
        return date.isoformat(value)
    if isinstance(value, time):
        return time.isoformat(value)
    kind = type(value)
    of_pandas = library_of(value) == "pandas" and kind.__name__ in ("Period", "Interval")
    return str(value) if of_pandas or kind in (UUID, IPv4Address, IPv6Address) else ""


def is_number(value: object) -> bool:
    """Whether a Python object is what a column of numbers or of booleans holds. Asks the object nothing."""
    return type(value) is not str and issubclass(type(value), int | float | Decimal | np.number | np.bool_)


def text_of_float(value: float | np.floating[Any]) -> str:
    """Text of a float that is a number: in as few digits as tell it, and a whole one of 64 bits as a whole number.

    Very large and very small ones have an exponent.

    Example:
        >>> text_of_float(7.0), text_of_float(0.00001), text_of_float(1.5e-9), text_of_float(1e22)
        ('7', '0.00001', '1.5e-9', '1e+22')
    """
    wide = float(value)
    if not math.isfinite(wide):
        return str(wide)
    if wide.is_integer() and -(2**63) <= wide < 2**63:
        return str(int(wide))
    narrow = isinstance(value, np.float16 | np.float32)
    number = Decimal(str(np.float32(value)) if narrow else repr(wide)).normalize()
    power = number.adjusted()
    return f"{number:f}" if -7 < power < 16 else f"{number.scaleb(-power):f}e{power:+d}"


def text_as_typed(text: str) -> str:
    """Text of the same cell in a column of numbers, or of booleans, if its text says one; otherwise as it is.

    Example:
        >>> [text_as_typed(text) for text in ("007", "1.50", "True", "A1")]
        ['7', '1.5', 'true', 'A1']
    """
    if text.lower() in ("true", "false"):
        return text.lower()
    if len(text) > _MOST_DIGITS or not _NUMBER.fullmatch(text):
        return text
    return str(int(text)) if text.lstrip("+-").isdigit() else text_of_float(float(text))
