"""No frame of any type can make the encoding raise, leave its range, or look at another row."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing.parametric import series

from synthstream.schema.binned import Datetime, Integer, Number
from synthstream.schema.clock import Clock
from synthstream.schema.columns import Boolean, Category, Column

COLUMNS: list[Column] = [
    Category(name="x", values=("a", "1", "true")),
    Category(name="x", values=("a", "b"), missing="a", other="b"),
    Boolean(name="x"),
    Boolean(name="x", missing=True),
    Integer(name="x", min=-3, max=3),
    Integer(name="x", min=0, max=1000, bins=7, missing=5),
    Number(name="x", min=-1e6, max=1e6, bins=5),
    Number(name="x", min=0, max=1, bins=3, missing=0.5),
    Datetime(name="x", part="weekday"),
    Datetime(
        name="x", min=dt.datetime(2000, 1, 1), max=dt.datetime(2030, 1, 1), bins=6, missing=dt.datetime(2010, 1, 1)
    ),
]
CLOCKS = [
    Clock(start=dt.datetime(2020, 1, 1), every="1w", column="x", horizon=100),
    Clock(start=dt.datetime(2020, 1, 1, 5), every="3mo", column="x", horizon=None, timezone="Europe/Berlin"),
]


@settings(max_examples=60, deadline=None)
@given(values=series(name="x", max_size=8), cut=st.integers(0, 8))
def test_encoding_is_total_in_range_and_row_by_row(values: pl.Series, cut: int) -> None:
    for column in COLUMNS:
        codes = column.encode(values)
        assert codes.shape == (len(values),)
        assert codes.dtype == np.int32
        assert np.all((codes >= 0) & (codes < column.size))
        parts = np.concatenate([column.encode(values[:cut]), column.encode(values[cut:])])
        assert np.array_equal(parts, codes)


@settings(max_examples=60, deadline=None)
@given(values=series(name="x", max_size=8))
def test_the_clock_is_total(values: pl.Series) -> None:
    for clock in CLOCKS:
        ticks = clock.ticks_of(values.to_frame())
        assert ticks.shape == (len(values),)
        assert np.all((ticks >= -1) & (ticks <= 2**40))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.none(), st.text(), st.binary(), st.integers(), st.floats(), st.booleans(), st.dates()), max_size=6
    )
)
def test_mixed_python_objects_are_total(values: list[object]) -> None:
    mixed = pl.Series("x", values, dtype=pl.Object)
    for column in COLUMNS:
        codes = column.encode(mixed)
        assert np.all((codes >= 0) & (codes < column.size))
    for clock in CLOCKS:
        clock.ticks_of(mixed.to_frame())


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_codes_survive_the_way_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for column in COLUMNS:
        if isinstance(column, Datetime) and column.part is not None:
            continue  # a part comes back as a number, which is no time
        codes = rng.integers(0, column.size, 30).astype(np.int32)
        assert np.array_equal(column.encode(column.decode(codes, rng)), codes)


def extremes() -> list[pl.Series]:
    """Values at the ends of what the types can store; many of them lie outside of what a calendar can show."""
    found = []
    for unit in ("ms", "us", "ns"):
        for value in (2**63 - 1, -(2**63) + 1, 2**62, 253402300800 * 10**6, -(10**17)):
            moment = pl.Series("x", [value, None], dtype=pl.Int64).cast(pl.Datetime(unit))
            found += [moment, moment.dt.replace_time_zone("UTC")]
            found.append(pl.Series("x", [value], dtype=pl.Int64).cast(pl.Duration(unit)))
    found.append(pl.Series("x", [2**31 - 1, -(2**31)], dtype=pl.Int32).cast(pl.Date))
    found.append(pl.Series("x", [2**127 - 1, -(2**127)], dtype=pl.Int128))
    found.append(pl.Series("x", [2**64 - 1], dtype=pl.UInt64))
    found.append(pl.Series("x", [1e300, -1e300, 5e-324, float("nan")]))
    texts = [
        "9999-12-31T23:59:59+14:00", "0001-01-01T00:00:00-14:00", "0000-00-00", "99999-01-01", "+262142-01-01",
        "2026-01-01T00:00:00.123456789Z", "1e999", "nan", "-inf", "0x10", "１２", "\x00", "2026-02-30",
    ]  # fmt: skip
    return [*found, pl.Series("x", texts)]


@pytest.mark.parametrize("values", extremes(), ids=lambda s: f"{s.dtype}{s.to_physical()[0]}"[:60])
def test_no_extreme_value_raises_or_prints(values: pl.Series, capfd: pytest.CaptureFixture[str]) -> None:
    for column in COLUMNS:
        codes = column.encode(values)
        assert np.all((codes >= 0) & (codes < column.size))
    for clock in CLOCKS:
        ticks = clock.ticks_of(values.to_frame())
        assert np.all((ticks >= -1) & (ticks <= 2**40))
    assert capfd.readouterr() == ("", "")
