"""Total conversions of a column of private rows: whatever a cell holds, it becomes a value or null. None raises."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from synthstream.errors import SchemaError
from synthstream.schema.cells import LAST_SECOND, handed_out, library_of, one_by_one, plain, text_of_float, within_range
from synthstream.schema.conditions import first
from synthstream.workload import FloatArray, IntArray

# What to do with the text of a file. Readers that infer types of columns let one row decide how all others are read.
AS_TEXT = (
    "Pass the path of its file, or read it with every column as text: "
    "polars.read_csv(io.StringIO(text), infer_schema=False)"
)

Frame = Any  # a polars or pandas DataFrame, or a pyarrow Table or RecordBatch; pandas is not a dependency

CHUNK_ROWS = 250_000  # of a frame or a file, that are worked on at once

_NESTED = pl.List(pl.Null)

# Types whose cells lie at places that the data themselves name, and how the same bytes are looked at as no text.
_BYTES = {
    **{kind: kind for kind in (pa.binary(), pa.large_binary(), pa.binary_view())},
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}

# Explicit formats: polars' own guess raises where no cell can be read.
_TIME_FORMATS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M")


def polars_frame(frame: Frame, columns: Sequence[str]) -> pl.DataFrame:
    """A polars frame of some columns of the same rows.

    How a cell is read depends on that cell and on the column's declared type, never on other cells. Whoever makes the
    frame must declare types, not infer them: of a CSV file, read every column as text. Raises
    ``SchemaError`` if ``frame`` is not a frame of a kind that is known, or lacks a column, or has it twice.
    """
    if isinstance(frame, pl.DataFrame):
        require(columns, frame.columns)
        return pl.DataFrame([frame[name] for name in columns])  # select would read some names as patterns
    kind = library_of(frame)
    if kind == "pyarrow" and hasattr(frame, "column"):
        require(columns, frame.schema.names)
        return pl.DataFrame([_arrow_column(name, frame.column(name)) for name in columns])
    if kind == "pandas" and hasattr(frame, "columns"):
        found = [str(name) for name in frame.columns]  # a name may be a number there
        if inside := [name for name in columns if name in frame.index.names and name not in found]:
            raise SchemaError(f"{_named(inside)} in the frame's index: say .reset_index() first. Nothing was counted.")
        require(columns, found)
        return pl.DataFrame([_pandas_column(name, frame.iloc[:, found.index(name)]) for name in columns])
    hint = ""
    if isinstance(frame, pl.LazyFrame):
        hint = ". Say .collect() first"
    elif isinstance(frame, list | tuple) and frame and hasattr(frame[0], "columns"):
        hint = " of frames. Say the same of each, or join them first, as with pl.concat"
    elif isinstance(frame, dict | list):
        hint = ". Wrap it in pl.DataFrame(...)"
    elif isinstance(frame, str | PathLike):
        text = "read the file with every column as text: polars.read_csv(path, infer_schema=False)"
        raise SchemaError(f"rows must be a frame here, not a path or a text: {text}")
    elif isinstance(frame, bytes):
        hint = f". {AS_TEXT}"
    elif isinstance(frame, Iterator):
        hint = ". Say the same of each frame of it"
    elif type(frame).__name__.endswith(("Series", "Array")):
        hint = ", which is one column. Give the frame"
    raise SchemaError(f"rows must be a polars, pandas or pyarrow frame, or a path; found {type(frame).__name__}{hint}")


def names_of(frame: Frame) -> list[str]:
    """Names of a frame's columns, and of pandas' index, which is refused elsewhere; of what is no frame, none."""
    kind = library_of(frame)
    if kind == "pyarrow" and hasattr(frame, "column"):
        return list(frame.schema.names)
    if kind == "pandas" and hasattr(frame, "columns"):
        inside = [name for name in frame.index.names if name is not None]
        return [str(name) for name in (*frame.columns, *inside)]
    return frame.columns if isinstance(frame, pl.DataFrame) else []


def is_indexed(frame: Frame) -> bool:
    """Whether pandas' index may be a column: it has a name, or is no whole numbers. Of what is no such frame, no."""
    index = getattr(frame, "index", None) if library_of(frame) == "pandas" else None
    return index is not None and (index.names != [None] or index.dtype.kind not in "iu")


def slices(frame: Frame) -> Iterator[Frame]:
    """A frame in parts of at most ``CHUNK_ROWS`` rows, at least one part; anything else is yielded as it is."""
    kind = library_of(frame)
    if kind not in ("polars", "pyarrow", "pandas") or isinstance(frame, pl.LazyFrame) or len(frame) <= CHUNK_ROWS:
        yield frame
        return
    for start in range(0, len(frame), CHUNK_ROWS):
        yield frame.iloc[start : start + CHUNK_ROWS] if kind == "pandas" else frame.slice(start, CHUNK_ROWS)


def refuse_no_times(frame: Frame, column: str) -> None:
    """Raise ``SchemaError`` if the type of a frame's column, which no row decides, can hold no time.

    Floats are let in: of a column in which every cell is missing, readers that guess make floats.
    """
    if column not in names_of(frame):
        return
    nothing = frame.iloc[:0] if library_of(frame) == "pandas" else frame.slice(0, 0)
    kind = polars_frame(nothing, [column])[column].dtype
    if kind.is_integer() or kind in (pl.Boolean, pl.Duration, pl.Time):
        raise SchemaError(
            f"column {column!r} is to hold times, and its type is {kind}: all rows would count in the open tick. "
            "Convert it, as with pl.from_epoch or pandas.to_datetime(..., unit='s'). Nothing was counted."
        )


def require(columns: Sequence[str], found: Sequence[str], *, of: str = "") -> None:
    """Raise ``SchemaError``, which begins with what it speaks ``of``, unless a frame has each column once.

    Names in the frame are repeated in the message only if some of them are the schema's: otherwise they may be no
    names at all, but the first row of a file without a header.
    """
    missing = [name for name in columns if name not in found]
    if missing:
        hint = _meant(missing, columns, found)
        raise SchemaError(f"{of}{_named(missing)} missing.{hint} Nothing was counted.")
    doubled = [name for name in columns if list(found).count(name) > 1]
    if doubled:
        raise SchemaError(f"{of}{_named(doubled)} there twice. Rename all but one. Nothing was counted.")


def _read_twice(name: str, found: Sequence[str]) -> list[str]:
    """A name that is nearly the same, though another column is read from it already: not one of another number."""
    return difflib.get_close_matches(name, [one for one in found if _digits(one) == _digits(name)], n=1, cutoff=0.85)


def _digits(name: str) -> list[str]:
    return [letter for letter in name if letter.isdigit()]


def _meant(missing: Sequence[str], columns: Sequence[str], found: Sequence[str]) -> str:
    """Which names of a frame may be meant by those that it lacks; if none is like them, what other names it has."""
    others, strangers = [name for name in found if name not in columns], len(missing) == len(columns)
    near = dict[str, str]()
    for name in missing:
        meant = [other for other in found if bare(other) == bare(name)]
        if not meant and not strangers:
            meant = difflib.get_close_matches(name, others, n=1, cutoff=0.5) or _read_twice(name, found)
        if meant and meant[0] not in near.values():
            near[name] = meant[0]
    if near:
        said = [repr(other) if len(missing) == 1 else f"{other!r} for {name!r}" for name, other in near.items()]
        return f" Did you mean {', '.join(said)}?"
    if strangers or not others:
        return ""
    return f" Other columns there: {first(list(map(repr, others)))}."


def bare(name: str) -> str:
    """A name of a column without what people write differently: capitals, and blanks around it."""
    return name.strip().casefold()


def _named(columns: Sequence[str]) -> str:
    """Columns as the subject of a sentence."""
    names = ", ".join(map(repr, columns))
    return f"column {names} is" if len(columns) == 1 else f"columns {names} are"


def _pandas_column(name: str, column: Any) -> pl.Series:
    # Never let a guess at the type of the whole column, or of all its categories, decide what a cell is.
    if object in (column.dtype, getattr(getattr(column.dtype, "categories", None), "dtype", None)):
        return _objects(name, len(column), column.tolist().__getitem__)
    try:
        arrow = pa.array(column, from_pandas=True)
    except Exception:  # a type that pyarrow does not know
        return _objects(name, len(column), column.iloc.__getitem__)
    shown = arrow.type.value_type if pa.types.is_dictionary(arrow.type) else arrow.type
    if isinstance(shown, pa.BaseExtensionType):  # what it stores is not what it shows
        return _objects(name, len(column), column.iloc.__getitem__)
    return _arrow_column(name, arrow)


def _objects(name: str, number: int, cell: Callable[[int], object]) -> pl.Series:
    """Python objects as they are; null for what cannot be handed out. Each is read by itself."""
    # Polars goes by the first one: a plain one.
    return pl.Series(name, [object(), *handed_out(number, cell)], dtype=pl.Object)[1:]


def _arrow_column(name: str, column: Any) -> pl.Series:
    """A column of Arrow data, which nobody has validated: polars trusts it, and a bad cell would end the process."""
    try:
        _check(column)
    except (pa.ArrowInvalid, IndexError):  # its text may quote a cell
        raise SchemaError(f"column {name!r} of the frame is no valid Arrow data. Nothing was counted.") from None
    column = _laid_out(column)
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):  # only whether it is null is ever looked at
        return pl.Series(name, [[] if valid else None for valid in column.is_valid().to_pylist()], dtype=_NESTED)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.large_binary())
        try:
            column = column.cast(pa.large_string())  # refuses what is not UTF-8
        except pa.ArrowInvalid:
            return one_by_one(name, len(column), column.to_pylist().__getitem__)
    elif pa.types.is_timestamp(kind):
        # The same moments: polars does not know every zone.
        column = _thousandfold(column.cast(pa.timestamp(kind.unit, kind.tz and "UTC")))
    elif pa.types.is_duration(kind):
        column = _thousandfold(column)
    elif pa.types.is_decimal256(kind):
        column = column.cast(pa.string())
    try:
        return pl.Series(name, pl.from_arrow(column))
    except (Exception, pl.exceptions.PanicException):  # a type that polars does not know
        return one_by_one(name, len(column), lambda i: column[i].as_py())


def _laid_out(column: Any) -> Any:
    """The same cells as they are stored: without dictionary, run lengths, or a type that others have made."""
    while True:
        kind = column.type
        try:
            if isinstance(kind, pa.BaseExtensionType):
                column = pa.chunked_array([chunk.storage for chunk in _chunks(column)], kind.storage_type)
            elif pa.types.is_dictionary(kind):
                wide = _wide(kind.value_type)  # before rows are made of it: a cast of the whole makes them first
                each = [chunk.dictionary.cast(wide).take(chunk.indices) for chunk in _chunks(column)]
                column = pa.chunked_array(each, wide)
            elif pa.types.is_run_end_encoded(kind):
                wide = _wide(kind.value_type)  # Arrow itself decodes few types: runs are told by their numbers
                each = [chunk.values.cast(wide).take(pc.run_end_decode(_runs(chunk))) for chunk in _chunks(column)]
                column = pa.chunked_array(each, wide)
            else:
                return column
        except pa.ArrowNotImplementedError:  # for lists, and for dictionaries inside
            return column


def _chunks(column: Any) -> Sequence[Any]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _wide(kind: Any) -> Any:
    """A type that holds the same texts however long all of them are together: a column of rows repeats its texts."""
    if kind in (pa.string(), pa.string_view()):
        return pa.large_string()
    return pa.large_binary() if kind in (pa.binary(), pa.binary_view()) else kind


def _runs(array: Any) -> Any:
    """The same runs, of their own numbers."""
    numbered = pa.RunEndEncodedArray.from_arrays(array.run_ends, pa.array(np.arange(len(array.values))))
    return numbered.slice(array.offset, len(array))


def _check(column: Any) -> None:
    """Raise ``ArrowInvalid`` or ``IndexError`` unless the places that a column names lie within it."""
    for chunk in _chunks(column):
        kind = chunk.type
        if isinstance(kind, pa.BaseExtensionType):
            _check(chunk.storage)
        elif pa.types.is_dictionary(kind):
            _check(chunk.dictionary)
            pa.DictionaryArray.from_arrays(chunk.indices, pa.nulls(len(chunk.dictionary)))
        elif pa.types.is_run_end_encoded(kind):
            _check(chunk.values)
            _runs(chunk).validate(full=True)
        elif kind in _BYTES:
            chunk.cast(_BYTES[kind]).validate(full=True)


def _thousandfold(column: Any) -> Any:
    """Moments or durations; seconds are moved into what polars, which stores thousandths, can hold."""
    if column.type.unit != "s":
        return column
    seconds = pc.max_element_wise(column.cast(pa.int64()), -LAST_SECOND, skip_nulls=False)
    return pc.min_element_wise(seconds, LAST_SECOND, skip_nulls=False).cast(column.type)


def texts(series: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Text of each cell, and whether it is missing: as :func:`synthstream.schema.cells.text_of` has it of each alone.

    Whole floats of 64 bits read like integers; moments with a zone are written in UTC; times and durations are cut to
    microseconds. Nested cells have null text.
    """
    nested = series.dtype.is_nested()
    missing = series.is_null()
    series = plain(series)
    if not nested:
        missing = missing | series.is_null()
    if series.dtype.is_float():
        missing = missing | series.is_nan().fill_null(value=False)
        whole = series.cast(pl.Int64, strict=False)
        same = (whole.cast(series.dtype) == series).fill_null(value=False)
        text = series.cast(pl.String).zip_with(~same, whole.cast(pl.String))
        odd = text.str.contains("e", literal=True).fill_null(value=False)  # few: very large or very small
        return text.scatter(odd.arg_true(), list(map(text_of_float, series.filter(odd).to_numpy()))), missing
    if isinstance(series.dtype, pl.Datetime | pl.Time):  # as Python writes it
        form = "%H:%M:%S%.6f" if series.dtype == pl.Time else "%Y-%m-%d %H:%M:%S%.6f"
        shown = _on_wall(series, "UTC").dt.to_string(form).str.replace(".000000", "", literal=True)
        return shown + ("" if getattr(series.dtype, "time_zone", None) is None else "+00:00"), missing
    return series.cast(pl.String, strict=False), missing


def numbers(series: pl.Series) -> FloatArray:
    """Each cell as float64, NaN where it is missing or no number. Text is parsed; dates and durations are none."""
    series = plain(series)
    if series.dtype == pl.String:
        # A column of booleans with one gap is a column of objects in pandas: both must read the same.
        text = series.str.strip_chars().replace({"true": "1", "false": "0"})
        series = text.cast(pl.Float64, strict=False)
    elif series.dtype.is_numeric() or series.dtype == pl.Boolean:
        series = series.cast(pl.Float64, strict=False)
    else:
        return np.full(len(series), np.nan)
    return series.fill_null(np.nan).to_numpy().astype(np.float64)


def signs(series: pl.Series) -> IntArray:
    """-1 for each cell that :func:`numbers` reads as the number -1, and +1 for every other one, missing ones too."""
    return np.where(numbers(series) == -1.0, np.int64(-1), np.int64(1))


def times(series: pl.Series, *, timezone: str) -> pl.Series:
    """Each cell as a wall-clock time of ``timezone`` (microseconds, no zone), null where it is missing or no time.

    Naive times are taken as they are; times with a zone or an offset are converted; text is read as ISO 8601.
    """
    series = plain(series)
    if series.dtype == pl.String:
        return _parsed(series.str.strip_chars(), timezone)
    if series.dtype == pl.Date:
        return series.cast(pl.Datetime("us"))
    if isinstance(series.dtype, pl.Datetime):
        return _on_wall(series, timezone).cast(pl.Datetime("us"))
    return pl.Series(series.name, [None] * len(series), dtype=pl.Datetime("us"))


def _on_wall(series: pl.Series, timezone: str) -> pl.Series:
    """Times with a zone as times without one, on the wall clock of ``timezone``; others as they are."""
    if isinstance(series.dtype, pl.Datetime) and series.dtype.time_zone is not None:
        return series.dt.convert_time_zone(timezone).dt.replace_time_zone(None)
    return series


def _parsed(text: pl.Series, timezone: str) -> pl.Series:
    found = within_range(text.str.to_date("%Y-%m-%d", strict=False)).cast(pl.Datetime("us"))
    for form in _TIME_FORMATS:
        read = within_range(text.str.to_datetime(form, time_unit="us", strict=False))
        found = found.zip_with(found.is_not_null(), read)
    aware = text.str.replace("Z$", "+00:00").str.replace(" ", "T")
    zoned = within_range(aware.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", time_unit="us", strict=False))
    return found.zip_with(found.is_not_null(), _on_wall(zoned, timezone))
