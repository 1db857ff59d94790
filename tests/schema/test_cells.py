"""A cell has one text, whatever type its column holds it in: the type may follow from other rows."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address
from typing import Any, Literal, NamedTuple
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthstream.schema.cells import text_as_typed
from synthstream.schema.coercion import polars_frame, texts
from synthstream.schema.columns import Category

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_901)
Unit = Literal["ms", "us", "ns"]
EAST = timezone(timedelta(hours=1))


def text(column: Any) -> list[str | None]:
    """Texts of the cells of a column: of polars, pandas or Arrow."""
    frame = pa.table({"x": column}) if isinstance(column, pa.Array) else type(column).__module__.partition(".")[0]
    if isinstance(frame, str):
        frame = pd.DataFrame({"x": column}) if frame == "pandas" else pl.DataFrame({"x": column})
    return list(texts(polars_frame(frame, ["x"])["x"])[0])


def objects(*cells: object) -> pd.Series:
    return pd.Series(list(cells), dtype=object)


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_floats_are_written_as_python_objects_are(cells: list[float]) -> None:
    wanted = text(objects(*cells))
    assert text(pl.Series(cells)) == text(pd.Series(cells)) == text(pa.array(cells)) == wanted
    assert [float(str(found)) for found in wanted] == cells


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1))
def test_narrow_floats_too(cells: list[float]) -> None:
    narrow = np.array(cells, dtype=np.float32)
    assert text(pl.Series(narrow)) == text(objects(*narrow))


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        (7, "7"),
        (7.0, "7"),
        (-0.0, "0"),
        (1.5, "1.5"),
        (0.00001, "0.00001"),
        (2.5e-6, "0.0000025"),
        (1e-7, "1e-7"),
        (1e15, "1000000000000000"),
        (1e22, "1e+22"),
        (1.25e300, "1.25e+300"),
        (float("-inf"), "-inf"),
        (True, "true"),
        ("007", "007"),
        ("1e-05", "1e-05"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2), "2026-01-02 00:00:00"),
        (MOMENT, "2026-01-02 03:04:05.678901"),
        (MOMENT.replace(tzinfo=UTC), "2026-01-02 03:04:05.678901+00:00"),
        (MOMENT.replace(tzinfo=EAST), "2026-01-02 02:04:05.678901+00:00"),
        (time(3, 4), "03:04:00"),
        (time(3, 4, 5, 600), "03:04:05.000600"),
        (timedelta(days=1, microseconds=5), "86400000005us"),
        (Decimal("7.00"), "7.00"),
        (Decimal("0.0000001"), "0.0000001"),
    ],
)
def test_any_cell_has_one_text(cell: object, wanted: str) -> None:
    columns = [objects(cell), objects(cell, "another type").head(1), pl.Series([cell]), pa.array([cell])]
    assert [text(column) for column in columns] == [[wanted]] * 4


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+01:00"])
def test_moments_are_the_same_in_any_unit_and_zone(unit: Unit, zone: str | None) -> None:
    moment = pd.Timestamp("2026-07-01 12:00:00.123", tz=zone).as_unit(unit)
    wanted = text(objects(moment))
    hour = {None: "12", "UTC": "12", "Europe/Berlin": "10", "+01:00": "11"}[zone]
    assert wanted == [f"2026-07-01 {hour}:00:00.123000{'' if zone is None else '+00:00'}"]
    assert text(pd.Series([moment])) == text(pa.array([moment], pa.timestamp(unit, zone))) == wanted
    if zone != "+01:00":
        assert text(pl.Series([moment.to_pydatetime()], dtype=pl.Datetime(unit, zone))) == wanted


def test_nanoseconds_are_cut_to_microseconds() -> None:
    moment, span = pd.Timestamp("2026-07-01 12:00:00.123456789"), pd.Timedelta(1_999, unit="ns")
    bare = moment.to_datetime64()
    assert text(pd.Series([moment])) == text(objects(moment)) == text(objects(bare)) == ["2026-07-01 12:00:00.123456"]
    assert text(pd.Series([span])) == text(objects(span)) == text(objects(span.to_timedelta64())) == ["1us"]
    assert text(objects(np.datetime64("2026-07-01"))) == ["2026-07-01"]


def test_durations_are_microseconds_in_any_unit() -> None:
    spans = [timedelta(days=-1), timedelta(milliseconds=5)]
    wanted = [["-86400000000us", "5000us"]] * 3
    assert [text(pl.Series(spans, dtype=pl.Duration(unit))) for unit in ("ms", "us", "ns")] == wanted
    assert text(pl.Series([2**62], dtype=pl.Int64).cast(pl.Duration("ms"))) == [f"{(2**63 - 1) // 1000 * 1000}us"]


def test_a_decimal_that_would_be_long_is_not_written_out() -> None:
    assert text(objects(Decimal("1E+999999"), Decimal("NaN"))) == ["1E+999999", "NaN"]


def test_a_whole_number_that_would_take_long_to_write_is_octal() -> None:
    least = 2**2000
    assert text(objects(least - 1, least, -least)) == [str(least - 1), f"0{least:o}", f"-0{least:o}"]
    assert text(objects(2**1_000_002)) == ["01" + 333_334 * "0"]


class Pair(NamedTuple):
    a: int
    b: int


class Named(str, Enum):  # noqa: UP042 - no StrEnum: it says its name
    RED = "red"


class Louder(str):
    def __str__(self) -> str:
        return self.upper()


class Alike:
    """Equal to all others, and shown as the place where it lies."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize("cell", [Alike(), [1], {"a": 1}, (1, 2), {3}, 1j, np.array([1]), Alike, len])
def test_objects_of_other_types_have_no_text(cell: object) -> None:
    pair = pd.DataFrame({"x": pd.Series([cell, None], dtype=object)})
    column = polars_frame(pair, ["x"])["x"]
    assert [list(found) for found in texts(column)] == [["", None], [False, True]]  # as nested cells are
    assert Category(name="x", values=("1",)).encode(column).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (ip_address("10.0.0.7"), "10.0.0.7"),
        (pd.Period("2026-01", "M"), "2026-01"),
        (pd.Interval(0, 10), "(0, 10]"),
        (np.int16(7), "7"),
        (np.array(7.0), "7"),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), "a"),
        (Named.RED, "Named.RED"),
        (Louder("a"), "a"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_else_has_a_text(cell: object, wanted: str) -> None:
    assert text(objects(cell)) == text(pl.Series([cell], dtype=pl.Object)) == [wanted]


@pytest.mark.parametrize("cell", [pd.Interval(0, 10), pd.Period("2026-01", "M")])
def test_a_category_of_pandas_reads_as_its_values_do(cell: pd.Interval | pd.Period) -> None:
    frame = pd.DataFrame({"x": pd.Categorical([cell, None])})
    assert [list(found) for found in texts(polars_frame(frame, ["x"])["x"])] == [[str(cell), None], [False, True]]


def text_in(cell: bytes) -> bool:
    return cell.decode(errors="ignore").encode() == cell


@given(st.lists(st.binary(max_size=8) | st.sampled_from([b"\\xff", b"\xff", b"\\\xff", b"\\xfe\xff", b"\xfe\\xff"])))
def test_bytes_have_one_text_and_share_it_with_no_others(cells: list[bytes]) -> None:
    wanted = text(objects(*cells))
    assert text(pl.Series(cells, dtype=pl.Binary)) == text(pa.array(cells, pa.binary())) == wanted
    assert text(objects(*map(bytearray, cells))) == text(objects(*[memoryview(cell) for cell in cells])) == wanted
    readable = [cell for cell in cells if text_in(cell)]
    assert text(objects(*readable)) == [cell.decode() for cell in readable]
    others = {cell for cell in cells if not text_in(cell)}
    assert len(set(text(objects(*others)))) == len(others)


# -- categories whose values a column of numbers cannot write ----------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "cells", "odd"),
    [
        (("007", "008", "A1"), ["007"] * 9 + ["008"], "A1"),
        (("007", "7", "A1"), ["7"] * 9, "A1"),
        (("1.50", "2.00"), ["1.50", "2.00"], "none"),
        (("01", "10"), ["01", "10", ""], "x"),
        (("TRUE", "FALSE"), ["TRUE", "FALSE"], "unknown"),
        (("+5", "1e3"), ["+5", "1e3"], "?"),
    ],
)
def test_a_row_that_makes_a_column_texts_moves_no_other(values: tuple[str, ...], cells: list[str], odd: str) -> None:
    """As readers guess types: polars and pandas, of rows without and with one that is no number."""
    column = Category(name="x", values=values)
    for read in (lambda text: pl.read_csv(text), lambda text: pd.read_csv(text)):
        with_it, without = (
            column.read(polars_frame(read(io.StringIO("\n".join(["x,y", *(f"{cell},1" for cell in rows)]))), ["x"]))
            for rows in ([*cells, odd], cells)
        )
        assert with_it.tolist()[:-1] == without.tolist()


NUMBERS: list[tuple[tuple[str, ...], list[Any]]] = [
    (("007", "008", "A1"), [7, 8, 7, 9]),
    (("True", "False"), [True, False]),
    (("1.50", "2.00"), [1.5, 2.0, 2.5]),
    (("1.5", "2"), [Decimal("1.50"), Decimal("2.00")]),
    (("1.50", "02"), [Decimal("1.5"), Decimal("2.0")]),
    (("1e3", "07"), [np.int16(1000), np.int16(7)]),
    (("00.1", "true"), [np.float32(0.1), np.float32(1)]),
]


@pytest.mark.parametrize(("values", "cells"), NUMBERS)
@pytest.mark.parametrize("more", [[], [None], ["A1"], [MOMENT, b"7", [7]], [Alike(), float("nan"), pd.NA]])
def test_a_number_among_objects_is_read_as_in_a_column_of_numbers(
    values: tuple[str, ...], cells: list[Any], more: list[Any]
) -> None:
    column = Category(name="x", values=values)
    wanted = column.read(pl.DataFrame({"x": pl.Series(cells)})).tolist()
    mixed = [*cells, *more]
    for made in (objects(*cells), objects(*mixed), pl.Series(mixed, dtype=pl.Object)):
        frame = pl.DataFrame({"x": made}) if isinstance(made, pl.Series) else pd.DataFrame({"x": made})
        assert column.read(polars_frame(frame, ["x"])).tolist()[: len(cells)] == wanted


def test_categories_of_pandas_are_read_one_by_one() -> None:
    column = Category(name="x", values=("007", "A1"))
    for cells in ([7, 8], [7, "A1"], [7, None, "A1", MOMENT]):
        frame = pd.DataFrame({"x": pd.Series(cells, dtype=object).astype("category")})
        assert column.read(polars_frame(frame, ["x"])).tolist()[0] == 0


@pytest.mark.parametrize(
    ("cell", "odd"),
    [
        (Decimal("1.5"), Decimal("2.25")),
        (7, Decimal("7.5")),
        (UUID(int=3), "x"),
        (MOMENT.replace(tzinfo=EAST), MOMENT),
        (MOMENT.date(), MOMENT),
        ((1, 2), 3),
    ],
)
def test_no_category_of_pandas_decides_how_others_are_read(cell: Any, odd: Any) -> None:
    """Arrow would guess one type of all of them."""
    wanted = text(objects(cell))
    for cells in ([cell], [cell, odd], [odd, cell]):
        assert text(objects(*cells).astype("category"))[cells.index(cell)] == wanted[0]


@dataclass(frozen=True)
class Record:
    """Polars makes structs of a column that begins with one."""

    who: str


def test_the_first_object_decides_nothing() -> None:
    for first in (Record("a"), Pair(1, 2), pl.Series([1]), {"a": 1}):
        assert text(objects(first, 7, "7", None)) == ["", "7", "7", None]


def test_of_two_values_that_say_one_number_neither_is_guessed() -> None:
    column = Category(name="x", values=("07", "007", "1.0", "1"))
    assert column.encode(pl.Series([7, 1])).tolist() == [4, 3]
    assert column.encode(pl.Series([7.0, 1.0])).tolist() == [4, 3]
    assert Category(name="x", values=("True", "TRUE")).encode(pl.Series([True])).tolist() == [2]
    assert Category(name="x", values=("true", "A")).encode(pl.Series([True, False])).tolist() == [0, 2]
    assert Category(name="x", values=("007",)).encode(pl.Series(["7", "007"])).tolist() == [1, 0]  # texts are texts


@given(st.from_regex(r"[+-]?[0-9]{1,20}(\.[0-9]{1,9})?(e[+-]?[0-9]{1,2})?", fullmatch=True))
def test_a_text_is_written_as_readers_write_it(written: str) -> None:
    frame = pl.read_csv(io.StringIO(f"x\n{written}\n"))
    if frame["x"].dtype.is_numeric():
        assert text(frame["x"]) == [text_as_typed(written)]
