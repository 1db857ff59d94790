"""Total conversions of a column of private rows: whatever a cell holds, it becomes a value or null. None raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from synthstream.errors import SchemaError

Frame = Any  # a polars or pandas DataFrame, or a pyarrow Table or RecordBatch; pandas is not a dependency

# Explicit formats: polars' own guess raises where no cell can be read.
_TIME_FORMATS = (
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
)


def polars_frame(frame: Frame) -> pl.DataFrame:
    """A polars frame of the same rows. Columns of mixed Python objects become text.

    Raises:
        SchemaError: ``frame`` is not a frame of a kind that is known.
    """
    if isinstance(frame, pl.DataFrame):
        return frame
    kind = type(frame).__module__.partition(".")[0]
    if kind == "pyarrow":
        converted = pl.from_arrow(frame)
        return converted if isinstance(converted, pl.DataFrame) else pl.DataFrame(converted)
    if kind == "pandas":
        return pl.DataFrame([_pandas_column(str(name), frame[name]) for name in frame.columns])
    raise SchemaError(f"rows must be a polars, pandas or pyarrow frame, or a path; found {type(frame).__name__}")


def _pandas_column(name: str, column: Any) -> pl.Series:
    try:
        return pl.Series(name, pl.from_pandas(column))
    except Exception:  # mixed objects: each becomes its own text
        return pl.Series(name, [_text_of(value) for value in column.tolist()], dtype=pl.String)


def _text_of(value: object) -> str | None:
    """Text of one Python object; null for nothing and for what refuses to be text."""
    if value is None or (isinstance(value, float) and value != value):
        return None
    try:
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    except Exception:
        return None


def _one_by_one(series: pl.Series) -> pl.Series:
    """Text cell by cell: slow, but no cell can spoil another. For types that polars cannot cast."""
    found: list[str | None] = []
    for i in range(len(series)):
        try:
            found.append(_text_of(series[i]))
        except (Exception, pl.exceptions.PanicException):
            found.append(None)
    return pl.Series(series.name, found, dtype=pl.String)


def _plain(series: pl.Series) -> pl.Series:
    """As text, number, boolean, date or time; every other type becomes text, or null if it is nested."""
    kind = series.dtype
    if kind.is_nested():
        return pl.Series(series.name, [None] * len(series), dtype=pl.String)
    if isinstance(kind, pl.Categorical | pl.Enum):
        return series.cast(pl.String)
    if kind.is_numeric() or kind in (pl.String, pl.Boolean, pl.Date) or isinstance(kind, pl.Datetime):
        return series
    return _one_by_one(series)


def texts(series: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Text of each cell, and whether it is missing. Whole floats read like integers; nested cells have null text."""
    nested = series.dtype.is_nested()
    missing = series.is_null()
    series = _plain(series)
    if not nested:
        missing = missing | series.is_null()
    if series.dtype.is_float():
        missing = missing | series.is_nan().fill_null(value=False)
        whole = series.cast(pl.Int64, strict=False)
        same = (whole.cast(series.dtype) == series).fill_null(value=False)
        return series.cast(pl.String).zip_with(~same, whole.cast(pl.String)), missing
    return series.cast(pl.String, strict=False), missing


def numbers(series: pl.Series) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Each cell as float64, NaN where it is missing or no number. Text is parsed; dates are no numbers."""
    series = _plain(series)
    if series.dtype == pl.String:
        series = series.str.strip_chars().cast(pl.Float64, strict=False)
    elif series.dtype.is_numeric() or series.dtype == pl.Boolean:
        series = series.cast(pl.Float64, strict=False)
    else:
        return np.full(len(series), np.nan)
    return series.fill_null(np.nan).to_numpy().astype(np.float64)


def times(series: pl.Series, *, timezone: str) -> pl.Series:
    """Each cell as a wall-clock time of ``timezone`` (microseconds, no zone), null where it is missing or no time.

    Naive times are taken as they are; times with a zone or an offset are converted; text is read as ISO 8601.
    """
    series = _plain(series)
    if series.dtype == pl.String:
        return _parsed(series.str.strip_chars(), timezone)
    if series.dtype == pl.Date:
        return series.cast(pl.Datetime("us"), strict=False)
    if isinstance(series.dtype, pl.Datetime):
        if series.dtype.time_zone is not None:
            series = series.dt.convert_time_zone(timezone).dt.replace_time_zone(None)
        return series.cast(pl.Datetime("us"), strict=False)
    return pl.Series(series.name, [None] * len(series), dtype=pl.Datetime("us"))


def _parsed(text: pl.Series, timezone: str) -> pl.Series:
    found = text.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us"))
    for form in _TIME_FORMATS:
        found = found.zip_with(found.is_not_null(), text.str.to_datetime(form, time_unit="us", strict=False))
    aware = text.str.replace("Z$", "+00:00").str.replace(" ", "T")
    zoned = aware.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", time_unit="us", strict=False)
    local = zoned.dt.convert_time_zone(timezone).dt.replace_time_zone(None)
    return found.zip_with(found.is_not_null(), local)
