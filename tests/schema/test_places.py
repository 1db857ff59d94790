"""Places: which cell a point has, where a cell lies, and where published rows lie in it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream.errors import SchemaError
from synthstream.schema.places import View
from synthstream.schema.schema import Schema

BOUNDS = ((32.0, 37.0), (-122.0, -114.0))


def view(depth: int, **settings: Any) -> View:
    given = {"coordinates": ("lat", "lon"), "bounds": BOUNDS} | settings
    return View(name=f"at_{depth}", place="at", depth=depth, **given)


@settings(max_examples=25)  # of many points each, in all depths
@given(st.lists(st.tuples(st.floats(32, 37), st.floats(-122, -114)), min_size=10, max_size=40))
def test_a_point_lies_in_its_cell_and_coarser_codes_are_prefixes(points: list[tuple[float, float]]) -> None:
    rows = pl.DataFrame(points, schema=["lat", "lon"], orient="row")
    named = []
    for depth in range(1, 8):
        grid = view(depth)
        codes = grid.read(rows)
        low, high = grid.box(codes)
        # Shares are computed with rounding: a point may lie by a few units of the last place on the other side.
        assert np.all((low <= rows.to_numpy() + 1e-12) & (rows.to_numpy() <= high + 1e-12))
        assert codes.tolist() == grid.encode(grid.written(rows)).tolist()
        named.append([grid.labels[code] for code in codes])
    for coarse, fine in pairwise(named):
        assert all(
            long.startswith(short) and len(long) == len(short) + 1 for short, long in zip(coarse, fine, strict=True)
        )


def test_grids_are_nested_and_their_cells_tile_the_box() -> None:
    fine, coarse = view(3), view(2)
    inside = fine.within(coarse)
    assert np.bincount(inside).tolist() == [4] * 16 + [1, 1]
    assert [coarse.labels[code] for code in inside[64:]] == ["other", "missing"]
    assert all(fine.labels[k].startswith(coarse.labels[code]) for k, code in enumerate(inside[:64]))
    low, high = fine.box(np.arange(64, dtype=np.int32))
    assert np.prod(high - low, axis=1).sum() == pytest.approx(5 * 8)
    assert len(np.unique(low, axis=0)) == 64
    assert (low.min(axis=0).tolist(), high.max(axis=0).tolist()) == ([32.0, -122.0], [37.0, -114.0])


@pytest.mark.parametrize(
    ("lat", "lon", "label"),
    [
        (32.0, -122.0, "0"),
        (37.0, -114.0, "3"),
        (34.5, -118.000001, "2"),
        ("33.1", " -115 ", "1"),
        (37.0001, -118.0, "other"),
        (-118.0, 34.0, "other"),
        (float("inf"), -118.0, "other"),
        ("34,1", "-118,2", "other"),
        ("north", -118.0, "other"),
        (None, -118.0, "missing"),
        (float("nan"), "x", "missing"),
        ("", "-118", "missing"),
        (None, None, "missing"),
    ],
)
def test_every_row_has_a_cell(lat: object, lon: object, label: str) -> None:
    grid, rows = view(1), pl.DataFrame({"lat": [lat], "lon": [lon]}, strict=False)
    assert grid.labels[grid.read(rows)[0]] == label
    assert grid.labels[grid.encode(grid.written(rows))[0]] == label


def test_published_rows_lie_in_their_cells_and_stay_there() -> None:
    schema = Schema(columns=(view(2), view(4, located=True)))
    codes = np.random.default_rng(0).integers(0, 258, 5000).astype(np.int32)
    both = np.stack([schema.columns[1].within(schema.columns[0])[codes], codes], axis=1)  # type: ignore[attr-defined]
    rows = schema.decode(both, np.random.default_rng(1))
    assert rows.columns == ["at_2", "at_4", "lat", "lon"] == list(schema.published)
    known = codes < 256
    assert schema.encode(rows)[known].tolist() == both[known].tolist()
    assert rows["lat"].is_null().to_list() == rows["lon"].is_null().to_list() == (~known).tolist()
    # The same row in the same cell lies at the same place, whatever others do, and whoever asks.
    others = both.copy()
    others[::2] = both[::-1][::2]
    again = schema.decode(others, np.random.default_rng(2))
    assert again[1::2].equals(rows[1::2])


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, float("inf"), 5e-324, "1e999"])
@pytest.mark.parametrize("width", [1e-3, 5.0, 2.0**1020])
def test_no_coordinate_is_so_large_that_it_is_told(value: object, width: float) -> None:
    """A quotient that overflows would be a warning, and here warnings are errors."""
    grid = view(1, bounds=((0.0, width), (-width, width)))
    rows = pl.DataFrame({"lat": [value], "lon": [value]}, strict=False)
    assert grid.labels[int(grid.read(rows)[0])] == ("other" if str(value) != "5e-324" else "1")


@pytest.mark.parametrize("dimension", [1, 2])
def test_rows_of_a_cell_fill_it_evenly(dimension: int) -> None:
    grid = view(1, coordinates=("lat", "lon")[:dimension], bounds=BOUNDS[:dimension], located=True)
    at = np.stack([one.to_numpy() for one in grid.further(np.zeros(1024, dtype=np.int32))], axis=1)
    low, high = grid.box(np.zeros(1, dtype=np.int32))
    share = (at - low) / (high - low)
    side = 8 if dimension == 2 else 64
    counts = np.bincount(np.ravel_multi_index(tuple((share * side).astype(int).T), (side,) * dimension), minlength=64)
    assert counts.min() >= 12  # of 16 in each of 64 parts; drawn at random, about 7
    assert counts.max() <= 20


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bounds": ((32, 32), (-122, -114))}, "of 'lat', the lower end must be below the upper one"),
        ({"bounds": ((37, 32), (-122, -114))}, "and both finite"),
        ({"bounds": ((32, 37), (-122, float("inf")))}, "of 'lon', the lower end must be below"),
        ({"bounds": ((32, 37), (-1.7e308, 1.7e308))}, "of 'lon' is too narrow or too wide"),
        ({"bounds": ((1.0, 1.0 + 1e-15), (0, 1))}, "the range of 'lat' is too narrow"),
        ({"coordinates": ("lat", "lat")}, "name two columns"),
        ({"coordinates": ("a", "b", "c"), "bounds": ((0, 1),) * 3}, "or one"),
        ({"depth": 8}, "depth = 8: must be from 1 to 7"),
        ({"depth": 0}, "depth = 0: must be from 1 to 7"),
    ],
)
def test_a_box_that_cannot_be_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SchemaError) as error:
        view(**({"depth": 2} | settings))
    assert said in str(error.value)
