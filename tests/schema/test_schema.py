"""Columns: declared places for everything, and back again."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from synthstream.errors import SchemaError
from synthstream.schema.binned import Datetime, Integer, Number
from synthstream.schema.columns import Boolean, Category, Column
from synthstream.schema.schema import Schema

RNG = np.random.default_rng(0)
WARD = Category(name="ward", values=("1", "2", "true"))


def labels(column: Column, values: object, **kind: object) -> list[str]:
    series = values if isinstance(values, pl.Series) else pl.Series("x", values, **kind)  # type: ignore[arg-type]
    return [column.labels[code] for code in column.encode(series)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pl.Series(["1", "x", None, "", " 1"]), ["1", "other", "missing", "other", "other"]),
        (pl.Series([1, 2, 3, None]), ["1", "2", "other", "missing"]),
        (pl.Series([1.0, 1.5, float("nan"), float("inf")]), ["1", "other", "missing", "other"]),
        (pl.Series([True, False]), ["true", "other"]),
        (pl.Series(["1", None], dtype=pl.Categorical), ["1", "missing"]),
        (pl.Series(["1"], dtype=pl.Enum(["1"])), ["1"]),
        (pl.Series([b"1", b"\xff"]), ["1", "other"]),
        (pl.Series([Decimal("1.5"), Decimal("2")]), ["other", "other"]),
        (pl.Series([[1], [2]]), ["other", "other"]),
        (pl.Series([{"a": 1}]), ["other"]),
        (pl.Series([dt.date(2026, 1, 1)]), ["other"]),
        (pl.Series([dt.timedelta(1)]), ["other"]),
        (pl.Series([None, None]), ["missing", "missing"]),
        (pl.Series([object(), 1, None], dtype=pl.Object), ["other", "1", "missing"]),
        (pl.Series(["1" * 1_000_000]), ["other"]),
        (pl.Series([], dtype=pl.String), []),
    ],
    ids=lambda v: str(v.dtype) if isinstance(v, pl.Series) else None,
)
def test_any_cell_of_a_category_has_its_place(values: pl.Series, expected: list[str]) -> None:
    assert labels(WARD, values) == expected


def test_folding() -> None:
    column = Category(name="c", values=("a", "b"), missing="a", other="b")
    assert column.size == 2
    assert labels(column, ["z", None, "a"]) == ["b", "a", "a"]
    with pytest.raises(SchemaError, match="not one of its values"):
        Category(name="c", values=("a",), missing="z")
    with pytest.raises(SchemaError, match='needs other = "other"'):
        Category(name="c", values=("a", "other"))
    assert Category(name="c", values=("a", "other"), other="other").labels == ("a", "other", "missing")
    with pytest.raises(SchemaError, match="listed twice"):
        Category(name="c", values=("a", "a"))
    with pytest.raises(SchemaError, match="at least one"):
        Category(name="c", values=())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pl.Series([0, 49, 50, 100, -5, 10**18, None]), [0, 1, 2, 3, 0, 3, 4]),
        (pl.Series([float("nan"), float("inf"), float("-inf")]), [4, 3, 0]),
        (pl.Series(["12", " 60 ", "x", "", "1e400", None]), [0, 2, 4, 4, 3, 4]),
        (pl.Series([True, False]), [0, 0]),
        (pl.Series([dt.date(2026, 1, 1)]), [4]),
        (pl.Series([[1]]), [4]),
        (pl.Series([Decimal("99.5")]), [3]),
        (pl.Series([2**70, None], dtype=pl.Object), [3, 4]),
    ],
    ids=lambda v: str(v.dtype) if isinstance(v, pl.Series) else None,
)
def test_any_cell_of_a_number_has_its_place(values: pl.Series, expected: list[int]) -> None:
    assert Number(name="n", min=0, max=100, bins=4).encode(values).tolist() == expected


def test_numbers_fold_missing_and_come_back_within_their_bin() -> None:
    column = Number(name="n", min=-1, max=1, bins=8, missing=0)
    assert column.size == 8
    codes = np.repeat(np.arange(8, dtype=np.int32), 1000)
    back = column.decode(codes, RNG)
    assert np.array_equal(column.encode(back), codes)
    first = back[:1000].to_numpy()
    assert first.min() < -0.99
    assert first.max() > -0.76


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (0, float("inf"))])
def test_impossible_ranges(low: float, high: float) -> None:
    with pytest.raises(SchemaError, match="min must be below max"):
        Number(name="n", bins=2, min=low, max=high)


@pytest.mark.parametrize(
    ("kind", "said", "says"),
    [
        (Category, {"values": [1, 2]}, "values must be a list of texts"),
        (Category, {"values": np.array(["a", "b"])}, "values must be a list of texts"),
        (Category, {"values": "abc"}, "values must be a list of texts"),
        (Number, {"min": "7", "max": 9, "bins": 2}, "min must be a number, not str"),
        (Number, {"min": 0, "max": 9, "bins": 2.0}, r"bins must be a whole number \(int\), not float"),
        (Integer, {"min": 0.5, "max": 9}, r"min must be a whole number \(int\), not float"),
        (Datetime, {"min": dt.date(2026, 1, 1), "max": 0, "bins": 2}, "min must be a datetime, not date"),
    ],
)
def test_settings_of_another_type_are_refused_by_name(kind: Any, said: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaError, match=f"column 'x': {says}"):
        kind("x", **said)


def test_bins_must_fit() -> None:
    with pytest.raises(SchemaError, match="bins must be at least 1"):
        Number(name="n", min=0, max=1, bins=0)
    with pytest.raises(SchemaError, match="more than the whole numbers"):
        Integer(name="n", min=0, max=3, bins=5)


def test_integers() -> None:
    column = Integer(name="i", min=1, max=5)
    assert column.labels == ("1", "2", "3", "4", "5", "missing")
    assert column.encode(pl.Series([0.0, 1.9, 5.0, 99.0, None])).tolist() == [0, 0, 4, 4, 5]
    binned = Integer(name="i", min=0, max=9, bins=3)
    assert binned.labels == ("0..3", "4..7", "8..9", "missing")
    codes = np.array([0, 1, 2, 3] * 50, dtype=np.int32)
    assert np.array_equal(binned.encode(binned.decode(codes, RNG)), codes)


@pytest.mark.parametrize("value", ["TRUE", " yes", "1", "t"])
def test_booleans_read_common_words(value: str) -> None:
    assert Boolean(name="b").encode(pl.Series([value, "maybe", None])).tolist() == [1, 2, 2]
    assert Boolean(name="b", missing=False).encode(pl.Series([value, "maybe", None])).tolist() == [1, 0, 0]


def test_booleans_read_other_types() -> None:
    column = Boolean(name="b")
    assert column.encode(pl.Series([True, False, None])).tolist() == [1, 0, 2]
    assert column.encode(pl.Series([1.0, 0.0, 7.0, float("nan")])).tolist() == [1, 0, 2, 2]
    assert column.encode(pl.Series([[True]])).tolist() == [2]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pl.Series([dt.datetime(2026, 1, 5, 7, 59), None]), ["7", "missing"]),
        (pl.Series([dt.date(2026, 1, 5)]), ["0"]),
        (pl.Series(["2026-01-05 23:00:00", "2026-01-05T23:10", "2026-01-05", "soon"]), ["23", "23", "0", "missing"]),
        (pl.Series(["2026-01-05T23:00:00Z", "2026-01-05T23:00:00+02:00"]), ["23", "21"]),
        (pl.Series([5, 6]), ["missing", "missing"]),
        (pl.Series([dt.datetime(2026, 1, 5, 7)]).dt.replace_time_zone("America/New_York"), ["12"]),
    ],
)
def test_hours(values: pl.Series, expected: list[str]) -> None:
    assert labels(Datetime(name="d", part="hour"), values) == expected


def test_dates_in_bins() -> None:
    column = Datetime(name="d", min=dt.datetime(2026, 1, 1), max=dt.datetime(2026, 1, 5), bins=4)
    days = pl.Series([dt.date(1900, 1, 1), dt.date(2026, 1, 2), dt.date(2999, 1, 1), None])
    assert column.encode(days).tolist() == [0, 1, 3, 4]
    assert column.labels[1] == "2026-01-02T00:00:00"
    codes = np.array([0, 1, 2, 3, 4] * 20, dtype=np.int32)
    assert np.array_equal(column.encode(column.decode(codes, RNG)), codes)
    with pytest.raises(SchemaError, match="either part"):
        Datetime(name="d")
    with pytest.raises(SchemaError, match="either part"):
        Datetime(name="d", part="hour", bins=3)


SCHEMA = Schema(columns=(WARD, Number(name="age", min=0, max=100, bins=4), Boolean(name="ok")))


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow"])
def test_frames_of_any_kind_give_the_same_codes(kind: str) -> None:
    frame = pl.DataFrame({"ok": [True, None], "more": [1, 2], "ward": ["1", None], "age": [30.0, None]})
    other: object = {"polars": frame, "pandas": frame.to_pandas(), "arrow": frame.to_arrow()}[kind]
    assert SCHEMA.encode(other).tolist() == [[0, 1, 1], [4, 4, 2]]


def test_a_pandas_column_of_mixed_objects() -> None:
    frame = pd.DataFrame(
        {"ward": [1, "2", None, b"2", object()], "age": ["5", 7, {}, None, 3.5], "ok": [1, "no", [], None, True]}
    )
    codes = SCHEMA.encode(frame)
    assert codes[:, 0].tolist() == [0, 1, 4, 1, 3]
    assert codes[:, 1].tolist() == [0, 0, 4, 4, 0]
    assert codes[:, 2].tolist() == [1, 0, 2, 2, 1]


def test_a_record_batch() -> None:
    batch = pa.RecordBatch.from_pydict({"ward": ["1"], "age": [1], "ok": [False]})
    assert SCHEMA.encode(batch).tolist() == [[0, 0, 0]]


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(SchemaError, match="found list"):
        SCHEMA.encode([1, 2])


def test_a_missing_column_is_named_with_its_neighbours() -> None:
    with pytest.raises(SchemaError, match=r"'ward' is missing.*'wards'"):
        SCHEMA.encode(pl.DataFrame({"wards": ["SECRET"], "age": [1], "ok": [True]}))


def test_json_and_hash() -> None:
    assert SCHEMA.hash == Schema(columns=SCHEMA.columns).hash
    assert Schema(columns=SCHEMA.columns[::-1]).hash != SCHEMA.hash
    with pytest.raises(SchemaError, match="at least one"):
        Schema(columns=())
    with pytest.raises(SchemaError, match="twice"):
        Schema(columns=(WARD, WARD))


def test_rows_come_back_with_nulls_for_missing() -> None:
    rows = SCHEMA.decode(np.array([[4, 4, 2], [3, 0, 1]], dtype=np.int32), RNG)
    assert rows.row(0) == (None, None, None)
    assert rows["ward"][1] == "other"
    assert rows["ok"][1] is True


MIXED: list[object] = [
    True, False, 1, 2.0, 1.5, "x", b"\xff", None, float("nan"), pd.NA, pd.NaT, Decimal("1.00"), Decimal("0.001"), 2**70,
    dt.datetime(2026, 1, 1), dt.date(2026, 1, 1), dt.timedelta(1), {"a": 1}, [1], object(),
    1j, "\ud800", np.float64(1), np.bool_(True),
]  # fmt: skip


@pytest.mark.sparing(12)
@pytest.mark.parametrize("extra", MIXED, ids=lambda v: type(v).__name__ + ascii(v)[:12])
def test_no_row_changes_what_another_row_becomes(extra: object) -> None:
    """A pandas column of objects is read cell by cell; a guess at its type would let one row recode all others."""
    schema = Schema(
        columns=(
            Category(name="c", values=("true", "1", "2", "1.5", "x")),
            Boolean(name="b"),
            Number(name="n", min=0, max=4, bins=4),
            Datetime(name="d", part="hour"),
        )
    )
    for rows in ([True, False], [1, 2], [1.0, 2.0], ["x", "1"], [dt.datetime(2026, 1, 1, 5)], [Decimal("1.00")], MIXED):
        alone = pd.DataFrame({name: pd.Series(rows, dtype=object) for name in schema.names})
        joined = pd.DataFrame({name: pd.Series([*rows, extra], dtype=object) for name in schema.names})
        assert np.array_equal(schema.encode(joined)[:-1], schema.encode(alone))


def test_arrow_text_that_is_not_utf8() -> None:
    bad = pa.array([b"1", b"\xff\xfe", b"true"], type=pa.binary()).view(pa.string())
    table = pa.table({"ward": bad, "age": [1, 2, 3], "ok": bad})
    assert SCHEMA.encode(table)[:, 0].tolist() == [0, 3, 2]
    assert SCHEMA.encode(table)[:, 2].tolist() == [1, 2, 1]


def odd_arrow_columns() -> dict[str, pa.Array]:
    """Data that Arrow stores without complaint, and that polars cannot be given as it is."""
    bad = pa.array([b"1", b"\xff\xfe", None, b"true"], type=pa.binary())
    text = bad.view(pa.string())
    far = pa.array([2**62, 0, None], type=pa.int64())
    return {
        "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None], type=pa.int8()), text),
        "view": bad.cast(pa.binary_view()).view(pa.string_view()),
        "nested": pa.ListArray.from_arrays(pa.array([0, 2, 4], type=pa.int32()), text),
        "offset": far.cast(pa.timestamp("us", "+05:30")),
        "unknown zone": far.cast(pa.timestamp("s", "Nowhere/X")),
        "decimal": pa.array([1, 2, None]).cast(pa.decimal256(60, 2)),
    }


@pytest.mark.parametrize("form", ["arrow", "pandas"])
@pytest.mark.parametrize("kind", odd_arrow_columns())
def test_odd_arrow_data_is_read_cell_by_cell(kind: str, form: str, capfd: pytest.CaptureFixture[str]) -> None:
    array = odd_arrow_columns()[kind]
    schema = Schema(columns=(Boolean(name="x"), Datetime(name="y", part="day"), WARD))
    table = pa.table(dict.fromkeys(schema.names, array))
    frame: object = table.to_pandas(types_mapper=pd.ArrowDtype) if form == "pandas" else table
    codes = schema.encode(frame)
    alone = [schema.encode(table.slice(i, 1))[0].tolist() for i in range(len(array))]
    assert codes.tolist() == alone
    assert np.all((codes >= 0) & (codes < schema.sizes))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("extra", [None, "zz", 1, 1.5, pd.NaT, b"\xff", [1]], ids=lambda v: type(v).__name__)
@pytest.mark.parametrize(
    "rows", [[True, False], [1, 2], [1.0, 1.5], [pd.Timestamp(2026, 1, 5)], [pd.Timedelta(1, "D")], ["a", "1"]], ids=str
)
def test_what_pandas_makes_of_a_column_changes_no_cell(rows: list[object], extra: object) -> None:
    """One odd row makes pandas store the whole column otherwise; the other rows must keep their codes."""
    columns = (
        Category(name="c", values=("1", "1.5", "true", "2026-01-05 00:00:00")),
        Boolean(name="b"),
        Number(name="n", min=0, max=4, bins=4),
        Datetime(name="d", part="day"),
    )
    schema = Schema(columns=columns)
    joined = schema.encode(pd.DataFrame({name: pd.Series([*rows, extra]) for name in schema.names}))
    alone = schema.encode(pd.DataFrame({name: pd.Series(rows) for name in schema.names}))
    assert np.array_equal(joined[:-1], alone)


def test_a_pandas_column_may_be_named_by_a_number() -> None:
    schema = Schema(columns=(Category(name="7", values=("a",)),))
    assert schema.encode(pd.DataFrame({7: ["a", "b"]})).tolist() == [[0], [1]]


@pytest.mark.parametrize("bounds", [(2**60, 2**60 + 3), (0, 10**400), (-(2**53), 0)], ids=["high", "huge", "low"])
def test_whole_numbers_that_floats_cannot_tell_apart_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(SchemaError, match="within 2\\^53"):
        Integer(name="i", min=bounds[0], max=bounds[1])


def test_ranges_that_floats_cannot_cut_are_refused() -> None:
    with pytest.raises(SchemaError, match="too wide"):
        Number(name="n", min=-1.7e308, max=1.7e308, bins=2)
    with pytest.raises(SchemaError, match="use fewer"):
        Number(name="n", min=1.0, max=1.0 + 1e-15, bins=10)
    with pytest.raises(SchemaError, match="missing must be"):
        Number(name="n", min=0, max=1, bins=2, missing=float("nan"))


def test_a_column_that_is_there_twice_is_refused() -> None:
    frame = pd.DataFrame([["1", "2", 1, True]], columns=["ward", "ward", "age", "ok"])
    with pytest.raises(SchemaError, match=r"^column 'ward' is there twice. Rename all but one."):
        SCHEMA.encode(frame)
    with pytest.raises(SchemaError, match=r"^columns 'age', 'ok' are missing"):
        SCHEMA.encode(pl.DataFrame({"ward": ["1"], "size": [1]}))


def test_a_header_that_is_no_header_is_not_repeated() -> None:
    with pytest.raises(SchemaError) as caught:
        SCHEMA.encode(pl.DataFrame({"ward_HIV": ["1"], "31": [2]}))
    assert "HIV" not in str(caught.value)
    assert "31" not in str(caught.value)
