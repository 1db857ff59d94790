"""No frame of any type can make the encoding raise, leave its range, or look at another row."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing.parametric import series

from synthstream.clock import Clock
from synthstream.columns import Boolean, Category, Column, Datetime, Integer, Number

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


@settings(max_examples=150, deadline=None)
@given(values=series(name="x", max_size=8), cut=st.integers(0, 8))
def test_encoding_is_total_in_range_and_row_by_row(values: pl.Series, cut: int) -> None:
    for column in COLUMNS:
        codes = column.encode(values)
        assert codes.shape == (len(values),)
        assert codes.dtype == np.int32
        assert np.all((codes >= 0) & (codes < column.size))
        parts = np.concatenate([column.encode(values[:cut]), column.encode(values[cut:])])
        assert np.array_equal(parts, codes)


@settings(max_examples=150, deadline=None)
@given(values=series(name="x", max_size=8))
def test_the_clock_is_total(values: pl.Series) -> None:
    for clock in CLOCKS:
        ticks = clock.ticks_of(values.to_frame())
        assert ticks.shape == (len(values),)
        assert np.all((ticks >= -1) & (ticks <= (clock.horizon or 2**40)))


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
