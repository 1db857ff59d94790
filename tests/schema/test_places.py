"""Places: which cell a point has, where a cell lies, and where published rows lie in it."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream.errors import SchemaError
from synthstream.schema.places import View
from synthstream.schema.schema import Schema
from synthstream.workload import FloatArray, IntArray

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
    # Whoever asks, a row lies at the same place, and nearly each one where its cell holds a little more or less.
    assert schema.decode(both, np.random.default_rng(2)).equals(rows)
    others = np.roll(both, 100, axis=0)
    others[100:] = both[100:]
    others[:100] = others[100]
    again = schema.decode(others, np.random.default_rng(2))
    moved = (again["lat"] != rows["lat"]) | (again["lon"] != rows["lon"])
    assert 0 < moved[100:].sum() < 250


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, float("inf"), 5e-324, "1e999"])
@pytest.mark.parametrize("width", [1e-3, 5.0, 2.0**1020])
def test_no_coordinate_is_so_large_that_it_is_told(value: object, width: float) -> None:
    """A quotient that overflows would be a warning, and here warnings are errors."""
    grid = view(1, bounds=((0.0, width), (-width, width)))
    rows = pl.DataFrame({"lat": [value], "lon": [value]}, strict=False)
    assert grid.labels[int(grid.read(rows)[0])] == ("other" if str(value) != "5e-324" else "1")


@pytest.mark.parametrize("width", [2.0**-1000, 2.0**1021])
def test_rows_of_the_narrowest_and_widest_boxes_lie_in_their_cells(width: float) -> None:
    grid = view(7, bounds=((0.0, width), (-width, 0.0)), located=True)
    codes = np.arange(grid.size, dtype=np.int32)
    rows = pl.DataFrame(dict(zip(("lat", "lon"), grid.further(codes), strict=True)))
    assert grid.read(rows)[:-2].tolist() == codes[:-2].tolist()


@pytest.mark.parametrize("nth", range(4))
@pytest.mark.parametrize("dimension", [1, 2])
def test_rows_of_a_cell_fill_it_evenly(dimension: int, nth: int) -> None:
    grid = view(1, coordinates=("lat", "lon")[:dimension], bounds=BOUNDS[:dimension], located=True)
    codes = np.arange(1024 * 2**dimension, dtype=np.int32) // 1024
    at = np.stack([one.to_numpy() for one in grid.further(codes, nth)], axis=1)[:1024]
    low, high = grid.box(np.zeros(1, dtype=np.int32))
    share = (at - low) / (high - low)
    side = 8 if dimension == 2 else 64
    counts = np.bincount(np.ravel_multi_index(tuple((share * side).astype(int).T), (side,) * dimension), minlength=64)
    assert counts.min() >= 9  # of 16 in each of 64 parts; drawn at random, about 7
    assert counts.max() <= 23  # about 27


@pytest.mark.parametrize("dimension", [1, 2])
def test_two_places_do_not_lie_at_one_spot_of_their_cells(dimension: int) -> None:
    """Ends of trips within a cell: all were the same point twice."""
    made = [
        View(
            name=f"{at}_1",
            place=at,
            coordinates=(at, f"{at}2")[:dimension],
            bounds=((0, 2),) * dimension,
            depth=1,
            located=True,
        )
        for at in "abc"
    ]
    codes = np.arange(4096 * 2**dimension, dtype=np.int32)[:, None] // 4096
    rows, alone = (Schema(columns=tuple(one)).decode(codes.repeat(len(one), axis=1), None) for one in (made, made[:1]))
    assert rows[made[0].coordinates].equals(alone[made[0].coordinates])
    for first, second in combinations([name for one in made for name in one.coordinates], 2):
        counts = np.histogram2d(rows[first][:4096], rows[second][:4096], bins=8, range=((0, 1), (0, 1)))[0]
        assert counts.min() >= 40  # of 64 in each of 64 parts


def halves(held: IntArray) -> FloatArray:
    """Of the cells of a line with so many rows each, the shares of rows in their lower halves."""
    depth = len(held).bit_length() - 1
    grid = view(depth, coordinates=("lat",), bounds=((0.0, float(len(held))),), located=True)
    at = grid.further(np.repeat(np.arange(len(held)), held).astype(np.int32))[0].to_numpy()
    assert np.array_equal(np.bincount(at.astype(int), minlength=len(held)), held)
    return np.bincount(at.astype(int), at % 1 < 0.5, len(held)) / np.maximum(held, 1)


def test_cells_lean_towards_fuller_neighbours() -> None:
    """(Before - after) / (before + 2 cell + after) is how much more the lower half holds; nothing is beyond an end."""
    rising = np.array([1000, 2000, 3000, 4000])
    assert halves(rising) == pytest.approx([0.4, 3 / 8, 5 / 12, 6 / 13], abs=0.01)
    assert halves(rising[::-1]) == pytest.approx(1 - np.array([6 / 13, 5 / 12, 3 / 8, 0.4]), abs=0.01)


def test_cells_of_few_addresses_hardly_lean() -> None:
    rng = np.random.default_rng(2)
    held = np.where(rng.random(256) < 0.3, rng.integers(100, 1000, 256), 0)
    assert np.std(halves(held)[held > 0]) < 0.1  # by all that neighbours say, 0.2


def test_rows_lie_nearer_to_events_than_evenly_in_their_cells() -> None:
    """Three towns, on a grid of 16 by 16 cells: how many events lie in each of its quarters."""
    rng = np.random.default_rng(4)
    town = np.array([[33.0, -121.0], [34.2, -117.1], [36.1, -118.4]])[rng.integers(0, 3, 30_000)]
    true = town + rng.normal(0, 0.35, town.shape)
    grid, fine = view(4, located=True), view(5)
    events = pl.DataFrame(true, schema=["lat", "lon"])
    codes = grid.read(events)
    codes = codes[codes < 256]
    rows = pl.DataFrame(dict(zip(("lat", "lon"), grid.further(codes), strict=True)))
    wanted, found = (np.bincount(fine.read(frame), minlength=1026)[:1024] for frame in (events, rows))
    even = np.repeat(np.bincount(codes, minlength=256) / 4, 4)
    assert np.abs(found - wanted).sum() < 0.6 * np.abs(even - wanted).sum()


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
