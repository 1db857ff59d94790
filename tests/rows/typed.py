"""Bad rows whose cells have a type: every type of polars, Arrow and pandas, in every kind of column."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from tests.rows.places import FIRST, HIGH, LAST, LOW, NOTHING, UNREADABLE, Place, at, when


class Typed(NamedTuple):
    """A column of one cell and its place. The maker is given the canary, a whole number of ten digits.

    The column is a polars or pandas series, or an Arrow array.
    """

    name: str
    make: Callable[[int], Any]
    place: Place = UNREADABLE


OPAQUE = pa.opaque(pa.string(), "canary", "7319")
JANUARY_2 = dt.datetime(2026, 1, 2, 5)
FIVE = when(JANUARY_2)
FAR = dt.datetime(2262, 4, 11, 23, 47, 16, 854775)  # the last that fits into nanoseconds
NEAR = dt.datetime(1677, 9, 21, 0, 12, 43, 145224)  # the first


def _polars(values: Any, kind: Any = None) -> Callable[[int], pl.Series]:
    return lambda n: pl.Series([n if values == "@" else values], dtype=kind)


def _physical(value: int, kind: Any) -> Callable[[int], pl.Series]:
    physical = pl.Int32 if kind == pl.Date else pl.Int64
    return lambda n: pl.Series([value], dtype=physical).cast(kind)


def _arrow(values: Any, kind: Any) -> Callable[[int], pa.Array]:
    return lambda n: (
        pa.array([n if values == "@" else values]).cast(kind) if values == "@" else pa.array([values], kind)
    )


def _moment(value: int, kind: Any) -> Callable[[int], pa.Array]:
    physical = pa.int32() if kind == pa.date32() else pa.int64()
    return lambda n: pa.array([value], physical).cast(kind)


def _bad_utf8(kind: pa.DataType) -> Callable[[int], pa.Array]:
    binary = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}[kind]
    return lambda n: pa.array([b"\xff\xfe" + str(n).encode()], pa.binary()).cast(binary).view(kind)


def _low(kind: Any) -> Callable[[int], pl.Series]:
    return lambda n: pl.Series([-n], dtype=kind)


def _decimal(kind: pa.DataType) -> Callable[[int], pa.Array]:
    return lambda n: pa.array([Decimal(n)], kind)


def _bytes(kind: pa.DataType) -> Callable[[int], pa.Array]:
    return lambda n: pa.array([b"\xff" + str(n).encode()], kind)


def _dictionary(n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), _bad_utf8(pa.string())(n))


def _union(n: int) -> pa.Array:
    children = [pa.array([n]), pa.array([], pa.string())]
    return pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), children)


def _run_end(n: int) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([n]))


def _pandas(value: Any, kind: Any) -> Callable[[int], pd.Series[Any]]:
    return lambda n: pd.Series([n if isinstance(value, str) and value == "@" else value], dtype=kind)


POLARS = [
    *(Typed(f"{kind}", _polars("@", kind), HIGH) for kind in (pl.Int64, pl.UInt64, pl.Int128, pl.Float64, pl.Float32)),
    *(Typed(f"{kind} low", _low(kind), LOW) for kind in (pl.Int64, pl.Int128, pl.Float64)),
    *(
        Typed(f"{k} null", _polars(None, k), NOTHING)
        for k in (pl.Null, pl.Int8, pl.String, pl.Date, pl.Float64, pl.Boolean)
    ),
    *(Typed(f"{k} nan", _polars(float("nan"), k), NOTHING) for k in (pl.Float32, pl.Float64)),
    *(Typed(f"{k} inf", _polars(float("inf"), k), HIGH) for k in (pl.Float32, pl.Float64)),
    *(Typed(f"{k} -inf", _polars(float("-inf"), k), LOW) for k in (pl.Float32, pl.Float64)),
    Typed("Int8", _polars(-128, pl.Int8), LOW),
    Typed("UInt8", _polars(255, pl.UInt8), HIGH),
    Typed("Int16", _polars(-(2**15), pl.Int16), LOW),
    Typed("UInt16", _polars(2**16 - 1, pl.UInt16), HIGH),
    Typed("Int32", _polars(2**31 - 1, pl.Int32), HIGH),
    Typed("UInt32", _polars(2**32 - 1, pl.UInt32), HIGH),
    Typed("Int64 first", _polars(-(2**63), pl.Int64), LOW),
    Typed("Int64 last", _polars(2**63 - 1, pl.Int64), HIGH),
    Typed("UInt64 last", _polars(2**64 - 1, pl.UInt64), HIGH),
    Typed("Int128 last", _polars(2**127 - 1, pl.Int128), HIGH),
    Typed("Int128 first", _polars(-(2**127), pl.Int128), LOW),
    Typed("largest float", _polars(1.7e308), HIGH),
    Typed("smallest float", _polars(5e-324), at(5e-324, written="")),
    Typed("minus nought", _polars(-0.0), at(-0.0, written="0")),
    Typed("fraction", lambda n: pl.Series([n + 0.5]), HIGH),
    Typed("Decimal", lambda n: pl.Series([Decimal(n)]), HIGH),
    Typed("Decimal of 38 digits", lambda n: pl.Series([Decimal("9" * 38)], dtype=pl.Decimal(38, 0)), HIGH),
    Typed("Decimal null", _polars(None, pl.Decimal(10, 2)), NOTHING),
    Typed("Binary", lambda n: pl.Series([b"\xff\x00" + str(n).encode()])),
    Typed("Binary digits", lambda n: pl.Series([str(n).encode()]), HIGH),
    Typed("Binary empty", _polars(b"")),
    Typed("Date", _polars(dt.date(2999, 1, 2)), when(dt.datetime(2999, 1, 2))),
    Typed("Date last", _physical(2**31 - 1, pl.Date), LAST),
    Typed("Date first", _physical(-(2**31), pl.Date), when(dt.datetime(1, 1, 3))),
    Typed("Datetime ms last", _physical(2**63 - 1, pl.Datetime("ms")), LAST),
    Typed("Datetime ms first", _physical(-(2**63) + 1, pl.Datetime("ms")), FIRST),
    Typed("Datetime us last", _physical(2**63 - 1, pl.Datetime("us")), LAST),
    Typed("Datetime us first", _physical(-(2**63) + 1, pl.Datetime("us", "UTC")), FIRST),
    Typed("Datetime ns last", _physical(2**63 - 1, pl.Datetime("ns")), when(FAR)),
    Typed("Datetime ns first", _physical(-(2**63) + 1, pl.Datetime("ns")), when(NEAR)),
    Typed(
        "Datetime zone",
        _polars(JANUARY_2.replace(tzinfo=ZoneInfo("Asia/Kathmandu"))),
        when(dt.datetime(2026, 1, 1, 23)),
    ),
    Typed("Time", _polars(dt.time(5))),
    Typed("Duration", _polars(dt.timedelta(days=1))),
    Typed("Duration last", _physical(2**63 - 1, pl.Duration("ns"))),
    Typed("List", lambda n: pl.Series([[f"canary {n}"]])),
    Typed("List of nothing", _polars([], pl.List(pl.Null))),
    Typed("List null", _polars(None, pl.List(pl.Int8)), NOTHING),
    Typed("Array", lambda n: pl.Series([[n, n]], dtype=pl.Array(pl.Int64, 2))),
    Typed("Struct", lambda n: pl.Series([{"red": n}])),
    Typed("Categorical", lambda n: pl.Series([f"canary {n}"], dtype=pl.Categorical)),
    Typed("Categorical null", _polars(None, pl.Categorical), NOTHING),
    Typed("Enum", lambda n: pl.Series([f"canary {n}"], dtype=pl.Enum([f"canary {n}"]))),
    Typed("Enum digits", lambda n: pl.Series([str(n)], dtype=pl.Enum([str(n)])), HIGH),
    Typed("Boolean", _polars(True), Place(boolean="true", integer=1, number=2)),
]

ARROW = [
    *(Typed(f"{kind}", _arrow("@", kind), HIGH) for kind in (pa.int64(), pa.uint64(), pa.float64())),
    *(
        Typed(f"{k} null", _arrow(None, k), NOTHING)
        for k in (pa.null(), pa.int8(), pa.string(), pa.date32(), pa.bool_())
    ),
    *(Typed(f"{k} bad UTF-8", _bad_utf8(k)) for k in (pa.string(), pa.large_string(), pa.string_view())),
    *(Typed(f"{k}", _decimal(k), HIGH) for k in (pa.decimal128(38, 2), pa.decimal256(60, 2))),
    *(Typed(f"{k}", _bytes(k)) for k in (pa.binary(), pa.large_binary(), pa.binary_view())),
    Typed("float32", lambda n: pa.array([float(n)], pa.float32()), HIGH),
    Typed("float16", _arrow(np.float16("inf"), pa.float16()), HIGH),
    Typed("float16 nan", _arrow(np.float16("nan"), pa.float16()), NOTHING),
    Typed("decimal32", lambda n: pa.array([Decimal("9999999")], pa.decimal32(7, 0)), HIGH),
    Typed("decimal64", lambda n: pa.array([Decimal(-n)], pa.decimal64(18, 2)), LOW),
    Typed("fixed_size_binary", lambda n: pa.array([b"\x80" + str(n).encode()], pa.binary(11))),
    Typed("dictionary bad UTF-8", _dictionary),
    Typed("dictionary of numbers", lambda n: pa.array([n]).dictionary_encode(), HIGH),
    Typed("dictionary null", lambda n: pa.array([None], pa.string()).dictionary_encode(), NOTHING),
    Typed("timestamp s last", _moment(2**62, pa.timestamp("s")), LAST),
    Typed("timestamp s first", _moment(-(2**63) + 1, pa.timestamp("s")), FIRST),
    Typed("timestamp ms first", _moment(-(2**62), pa.timestamp("ms")), FIRST),
    Typed("timestamp offset", _moment(1767330000, pa.timestamp("s", "+05:30")), FIVE),
    Typed("timestamp of an unknown zone", _moment(1767330000, pa.timestamp("s", "Nowhere/X")), FIVE),
    Typed("date32 last", _moment(2**31 - 1, pa.date32()), LAST),
    Typed("date64", _moment(86_400_000 * 10**6, pa.date64()), when(dt.datetime(4707, 11, 29))),
    Typed("time32", _arrow(dt.time(5), pa.time32("s"))),
    Typed("time64", _arrow(dt.time(5), pa.time64("ns"))),
    Typed("duration", _moment(2**62, pa.duration("s"))),
    Typed("month_day_nano_interval", lambda n: pa.array([pa.MonthDayNano([1, 2, n])])),
    Typed("list", lambda n: pa.array([[n]])),
    Typed(
        "list of bad UTF-8", lambda n: pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), _bad_utf8(pa.string())(n))
    ),
    Typed("large_list", lambda n: pa.array([[n]], pa.large_list(pa.int64()))),
    Typed("list_view", lambda n: pa.array([[n]], pa.list_view(pa.int64()))),
    Typed("fixed_size_list", lambda n: pa.array([[n, n]], pa.list_(pa.int64(), 2))),
    Typed("struct", lambda n: pa.array([{"red": n}])),
    Typed("struct null", _arrow(None, pa.struct([("red", pa.int64())])), NOTHING),
    Typed("map", lambda n: pa.array([[("red", n)]], pa.map_(pa.string(), pa.int64()))),
    Typed("union", _union),
    Typed("run_end_encoded", _run_end, HIGH),
    Typed(
        "run_end_encoded null",
        lambda n: pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([None], pa.int64())),
        NOTHING,
    ),
    Typed("uuid", lambda n: pa.array([b"\xff" + str(n).encode() + b"67890"], pa.uuid())),
    Typed("json", lambda n: pa.array([f'{{"red": "{n}"}}'], pa.json_(pa.string()))),
    Typed(
        "bool8",
        lambda n: pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
        Place(boolean="true", integer=1, number=2),
    ),
    Typed("json bad UTF-8", lambda n: pa.ExtensionArray.from_storage(pa.json_(pa.string()), _bad_utf8(pa.string())(n))),
    Typed("opaque bad UTF-8", lambda n: pa.ExtensionArray.from_storage(OPAQUE, _bad_utf8(pa.string())(n))),
    Typed("dictionary of lists", lambda n: pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([[n]]))),
    Typed(
        "dictionary of nothing",
        lambda n: pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([None])),
        NOTHING,
    ),
    Typed(
        "run_end_encoded dictionary",
        lambda n: pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([str(n)]).dictionary_encode()),
        HIGH,
    ),
    Typed(
        "union of nothing",
        lambda n: pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([None], pa.int8())]),
        NOTHING,
    ),
    Typed("date64 within a day", lambda n: pa.array([1], pa.int64()).view(pa.date64()), when(dt.datetime(1970, 1, 1))),
    Typed("time32 after midnight", lambda n: pa.array([10**9], pa.int32()).view(pa.time32("s")), NOTHING),
    Typed("time64 before midnight", lambda n: pa.array([-5], pa.int64()).view(pa.time64("ns")), NOTHING),
    Typed("duration first", _moment(-(2**63) + 1, pa.duration("s"))),
    Typed("decimal of tens", lambda n: pa.array([Decimal("1E+10")], pa.decimal128(5, -8)), HIGH),
    Typed("chunked", lambda n: pa.chunked_array([pa.array([], pa.int64()), pa.array([n])]), HIGH),
]

PANDAS = [
    *(
        Typed(f"{kind}", _pandas("@", kind), HIGH)
        for kind in ("int64", "uint64", "float64", "Int64", "UInt64", "Float64")
    ),
    *(
        Typed(f"{kind} null", _pandas(None, kind), NOTHING)
        for kind in ("Int8", "Float32", "boolean", "string", "float64")
    ),
    Typed("string of python", lambda n: pd.Series([f"canary {n}"], dtype="string[python]")),
    Typed("string of arrow", lambda n: pd.Series([f"canary {n}"], dtype="string[pyarrow]")),
    Typed("category", lambda n: pd.Series([f"canary {n}"], dtype="category")),
    Typed("category of numbers", lambda n: pd.Series([n], dtype="category"), HIGH),
    Typed("category null", lambda n: pd.Series([None], dtype=pd.CategoricalDtype([str(n)])), NOTHING),
    Typed("float32 inf", _pandas(float("-inf"), "float32"), LOW),
    Typed("float16", _pandas(float("inf"), "float16"), HIGH),
    Typed("complex", lambda n: pd.Series([complex(n, 1)])),
    Typed("datetime64[ns]", _pandas(pd.Timestamp.max, "datetime64[ns]"), when(FAR)),
    Typed("datetime64[s]", lambda n: pd.Series(np.array(["9999-12-30"], "datetime64[s]")), LAST),
    Typed(
        "datetime64 of a zone",
        lambda n: pd.Series([pd.Timestamp("2026-01-02 05:00", tz="Etc/GMT+12")]),
        when(dt.datetime(2026, 1, 2, 17)),
    ),
    Typed("datetime64 null", lambda n: pd.Series([pd.NaT], dtype="datetime64[us]"), NOTHING),
    Typed("timedelta64", lambda n: pd.Series([pd.Timedelta(n, "ns")])),
    Typed("timedelta64 null", lambda n: pd.Series([pd.NaT], dtype="timedelta64[ns]"), NOTHING),
    Typed("period", lambda n: pd.Series([pd.Period("2026-01", "M")])),
    Typed("interval", lambda n: pd.Series([pd.Interval(0, n)])),
    Typed("sparse", lambda n: pd.Series(pd.arrays.SparseArray([n])), HIGH),
    Typed("arrow list", lambda n: pd.Series([[n]], dtype=pd.ArrowDtype(pa.list_(pa.int64())))),
    Typed("arrow decimal", lambda n: pd.Series([Decimal(n)], dtype=pd.ArrowDtype(pa.decimal128(20, 2))), HIGH),
    Typed(
        "arrow opaque bad UTF-8",
        lambda n: pd.Series(
            pd.arrays.ArrowExtensionArray(pa.ExtensionArray.from_storage(OPAQUE, _bad_utf8(pa.string())(n)))
        ),
        NOTHING,
    ),
    Typed("arrow bad UTF-8", lambda n: pd.Series(pd.arrays.ArrowExtensionArray(_bad_utf8(pa.string())(n)))),
]

TYPED = [*POLARS, *ARROW, *PANDAS]
