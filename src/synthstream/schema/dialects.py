"""Numbers and times as the texts of a file write them: cell by cell, whatever stands in other cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Literal

import polars as pl

_SAMPLE = datetime(2026, 11, 23, 14, 5, 6)
Forms = Mapping[str, Sequence[str]]
# Forms that are numbers since 1970, in UTC: microseconds of each.
_SINCE_1970 = {"seconds": 1_000_000, "%s": 1_000_000, "%s%.f": 1_000_000, "milliseconds": 1_000, "microseconds": 1}


def plain_numbers(series: pl.Series, *, decimal: str, thousands: str) -> pl.Series:
    """Texts of numbers with a decimal point and without groups; what is written otherwise becomes null.

    Args:
        series: texts.
        decimal: stands before the fraction.
        thousands: stands between groups of three digits (or two, as in India); empty: nothing does.

    Example:
        >>> texts = pl.Series(["1.234,5", "1.5", "-7", "12.34.567", "3,5", None])
        >>> plain_numbers(texts, decimal=",", thousands=".").to_list()
        ['1234.5', None, '-7', '1234567', '3.5', None]
    """
    text = series.str.strip_chars()
    if thousands:
        group, point = re.escape(thousands), re.escape(decimal)
        grouped = text.str.contains(rf"^[+-]?\d{{1,3}}(?:{group}\d{{2,3}})*{group}\d{{3}}(?:{point}\d*)?$")
        joined = text.str.replace_all(thousands, "", literal=True)
        text = _where(grouped | ~text.str.contains(thousands, literal=True), joined)
    if decimal != ".":
        text = _where(~text.str.contains(".", literal=True), text).str.replace(decimal, ".", literal=True)
    return text


def _where(kept: pl.Series, text: pl.Series) -> pl.Series:
    return text.zip_with(kept.fill_null(value=False), pl.Series([None], dtype=pl.String))


def times_as(series: pl.Series, forms: Sequence[str]) -> pl.Series:
    """Times that texts write in one of some forms, the first that fits; null for what is written otherwise.

    Args:
        series: texts.
        forms: of the crate chrono, as ``strftime`` in other languages; see :func:`holds`. A time of day without a date
            falls on 1970-01-01. Or ``seconds``, ``milliseconds`` or ``microseconds``: a number since 1970, in UTC. All
            are :func:`zoned`, or none.

    Returns:
        Microseconds; with the zone UTC if the forms are zoned.

    Example:
        >>> times_as(pl.Series(["01.02.2010", "2010-02-01", "31.02.2010"]), ["%d.%m.%Y"]).to_list()
        [datetime.datetime(2010, 2, 1, 0, 0), None, None]
        >>> str(times_as(pl.Series(["1790812800000", "2026-10-01"]), ["milliseconds"])[0])
        '2026-10-01 00:00:00+00:00'
    """
    text, (first, *others) = series.str.strip_chars(), forms
    found = _as(text, first)
    for form in others:
        found = found.zip_with(found.is_not_null(), _as(text, form))
    return found


def dated(frame: pl.DataFrame, forms: Forms | None) -> pl.DataFrame:
    """Texts, with times in place of those that have forms."""
    return frame.with_columns(times_as(frame[name], form).alias(name) for name, form in (forms or {}).items())


def _as(text: pl.Series, form: str) -> pl.Series:
    if form in _SINCE_1970:
        count = (text.cast(pl.Float64, strict=False) * _SINCE_1970[form]).floor()  # exact up to the year 2255
        return count.cast(pl.Int64, strict=False).cast(pl.Datetime("us", "UTC"))
    if holds(form) == "time":
        return (text.str.to_time(form, strict=False).to_physical() // 1000).cast(pl.Datetime("us"))
    return text.str.to_datetime(form, time_unit="us", strict=False)


@cache
def zoned(form: str) -> bool:
    """Whether texts in a form tell a moment, whatever the zone: by an offset, or as a number since 1970.

    Example:
        >>> zoned("%d.%m.%Y %H:%M%z"), zoned("milliseconds"), zoned("%d.%m.%Y %H:%M")
        (True, True, False)
    """
    return getattr(_as(pl.Series([None], dtype=pl.String), form).dtype, "time_zone", None) is not None


@cache
def holds(form: str) -> Literal["date", "time"] | None:
    """Whether times in a form have a date, or a time of day alone; ``None`` if it is no form that can be read.

    Example:
        >>> holds("%d.%m.%Y %H:%M"), holds("%H:%M"), holds("%d.%m."), holds("DD.MM.YYYY")
        ('date', 'time', None, None)
    """
    if form in _SINCE_1970:
        return "date"
    try:
        written = pl.Series([_SAMPLE]).dt.replace_time_zone("UTC").dt.to_string(form.replace("%#z", "%z"))
        if (date := written.str.to_datetime(form, strict=False)[0]) is not None and date.year == _SAMPLE.year:
            return "date"
        time = written.str.to_time(form, strict=False)[0]
    except (Exception, pl.exceptions.PanicException):  # of forms that the crate refuses
        return None
    return None if time is None or time.hour != _SAMPLE.hour else "time"
