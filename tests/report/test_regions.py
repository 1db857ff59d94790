"""Regions: they lie where the file has them, a mile is as long in both directions, and what cannot be drawn is told."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from synthstream import StreamConfig
from synthstream.cli.app import app
from synthstream.errors import ConfigError
from synthstream.publish.history import Cells, Tick
from synthstream.report.association import beyond_noise
from synthstream.report.places import Grid, _clearest, axes_of_view, map_of, outlines_of
from synthstream.report.regions import Regions, map_of_regions, names_in, regions_of
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.districts import Districts
from tests.browser.streams import districts
from tests.support.configs import stream_toml
from tests.support.polygons import feature, geojson, rectangle

_DISTRICT = """
[[columns]]
name = "number"
type = "category"
values = ["1", "2", "3", "4"]
"""


def configured(folder: Path, content: Any = None, *, keys: str = 'regions = "districts.geojson"\n') -> StreamConfig:
    text = json.dumps(districts() if content is None else content)
    (folder / "districts.geojson").write_text(text)
    return StreamConfig.from_toml(stream_toml(_DISTRICT + keys), base=folder)


def drawn(config: StreamConfig) -> Regions:
    found = regions_of(config, config.schema.columns[0])
    assert found is not None
    return found


def area(ring: list[tuple[int, int]]) -> float:
    x, y = np.array(ring, dtype=float).T
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)


def test_regions_lie_as_the_file_has_them(tmp_path: Path) -> None:
    found = drawn(configured(tmp_path))
    assert sorted(found.shapes) == [0, 1, 2]  # texts, whole numbers and others name values; Elsewhere is none
    assert max(found.size) == 1000
    assert found.size[0] / found.size[1] == pytest.approx(6 / 4 * np.cos(np.radians(47.4)), rel=2e-3)
    assert [len(polygon) for polygon in found.shapes[2]] == [2, 1]  # with a lake, and an exclave
    outline, lake = found.shapes[2][0]
    assert (area(outline) > 0, area(lake) > 0) == (True, False)
    assert area(found.shapes[1][0][0]) > 0  # though it turns the other way
    assert -area(lake) / area(outline) == pytest.approx(1 / 6, rel=0.01)
    exclave = np.array(found.shapes[2][1][0])
    assert exclave.min(axis=0).tolist() == [0, 0]  # north is above, west to the left


def test_a_map_greys_what_noise_could_fill_and_names_what_is_not_on_it(tmp_path: Path) -> None:
    config = configured(tmp_path)
    counts = Cells(
        count=np.array([700.0, 200, 12, 5, 3, 0]),
        measured=np.array([690.0, 195, 9, 4, 2, -3]),
        stderr=np.full(6, 10.0),
        since=np.zeros(6),
    )
    page = map_of_regions(drawn(config), config.schema.columns[0], counts, what="Now <b>")
    paths = re.findall(r'<path class="m(\d)" d="M[^"]*"><title>([^<]*)</title>', page)
    assert paths == [
        ("7", "1: 700 rows, measured 690 (670 to 710)"),
        ("1", "2: 200 rows, measured 195 (175 to 215)"),
        ("0", "3: 12 rows, measured 9 (\u221211 to 29)"),
    ]
    assert "Not on the map: 4, other, missing." in page
    assert beyond_noise(counts).tolist() == [True, True, False, False, False, False]
    assert not beyond_noise(replace(counts, count=np.ones(6))).any()  # the rows that are drawn could be noise
    assert "<b>" not in page


def outline(left: int, top: int, right: int, bottom: int) -> list[tuple[int, int]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]


def test_names_are_written_where_they_fit_and_numbers_elsewhere() -> None:
    lakeside = [outline(0, 500, 400, 900), outline(10, 550, 390, 850)]
    shapes = {
        0: [[outline(0, 0, 600, 400)]],
        1: [[outline(600, 0, 660, 400)]],
        2: [lakeside],
        3: [[outline(700, 0, 705, 9)]],
    }
    labels = {0: "Wide", 1: "Narrow", 2: "Lakeside", 3: "Islet"}
    names, legend = names_in(labels, Regions(shapes=shapes, size=(1000, 1000)))
    assert [(x, name) for x, _, name in names] == [(300, "Wide"), (630, "1"), (200, "Lakeside")]
    assert names[0][1] == 200  # halfway up
    assert not 536 < names[2][1] < 864  # on land
    assert legend == "1 Narrow."


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"type": "Topology"}, "is TopoJSON"),
        ({"type": "FeatureCollection", "features": [7]}, "lists are no features"),
        ({"type": "FeatureCollection", "features": [{"properties": []}]}, "no feature has one"),
        ({"type": "FeatureCollection", "features": [{"properties": [1]}]}, "is no GeoJSON file"),
        ({"type": "Feature", "properties": [1]}, "is no GeoJSON file"),
        ({"type": "FeatureCollection", "features": [{"properties": {"zip": float("inf")}}]}, "region_key"),
        (
            {
                "type": "FeatureCollection",
                "features": [{"properties": {"number": 1}, "geometry": {"type": "Polygon", "coordinates": []}}],
            },
            "no Polygon or MultiPolygon",
        ),
        ({"type": "FeatureCollection", "features": [{"properties": {"zip": "1"}}]}, "region_key .* 'zip'"),
        ({"type": "FeatureCollection", "features": [{"properties": {"number": 1}}]}, "feature 1 has no geometry"),
    ],
)
def test_what_cannot_be_drawn_is_told(tmp_path: Path, content: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"column 'number': regions = 'districts.geojson'.*{says}"):
        drawn(configured(tmp_path, content))


def test_places_that_are_no_degrees_and_files_that_are_not_there_are_told(tmp_path: Path) -> None:
    feet = districts()
    feet["features"][0]["geometry"]["coordinates"] = [[[6e6, 2e6], [6e6, 3e6], [7e6, 2e6], [6e6, 2e6]]]
    with pytest.raises(ConfigError, match="WGS 84"):
        drawn(configured(tmp_path, feet))
    with pytest.raises(ConfigError, match="Name a GeoJSON file"):
        drawn(configured(tmp_path, keys='regions = "gone.geojson"\n'))
    with pytest.raises(ConfigError, match="region_key: has no effect without regions"):
        configured(tmp_path, keys='region_key = "number"\n')


@pytest.mark.parametrize("command", ["plan", "check"])
def test_a_file_that_cannot_be_drawn_is_told_before_a_stream_begins(tmp_path: Path, command: str) -> None:
    (tmp_path / "stream.toml").write_text(stream_toml(_DISTRICT + 'regions = "gone.geojson"\n'))
    result = CliRunner().invoke(app, [command, str(tmp_path / "stream.toml")])
    assert result.exit_code == 2
    assert "column 'number': regions = 'gone.geojson'" in " ".join(result.output.split())


def test_they_are_words_alone(tmp_path: Path) -> None:
    with_them, without = configured(tmp_path), configured(tmp_path, keys="")
    assert with_them.genesis == without.genesis
    assert "districts.geojson" not in with_them.settings
    assert regions_of(without, without.schema.columns[0]) is None


DAY = datetime(2026, 1, 1)
TICK = Tick(tick=0, start=DAY, end=DAY, rows=105, changed=None, has_rows=True, manifest={})
PLACE = """
[[columns]]
name = "spot"
type = "place"
coordinates = ["lat", "lon"]
bounds = [[40, 44], [10, 12]]
depth = 2
regions = "city.geojson"
"""


def test_a_grid_shows_districts_above_its_cells_and_greys_those_within_noise(tmp_path: Path) -> None:
    geojson(tmp_path, feature(rectangle(10, 41, 11.5, 45), name="North"))
    columns = StreamConfig.from_toml(stream_toml(PLACE), base=tmp_path).schema.columns
    (named,) = (column for column in columns if isinstance(column, Districts))
    counts = np.array([[0, 7, 9, 0], [9, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 80.0]])
    axes, (across, up, degrees) = named.finest.axes, axes_of_view(named.finest)
    grid = Grid(across=axes[across], up=axes[up], counts=counts, degrees=degrees, noise=counts == 9)
    outlines = outlines_of([named], grid)
    corners = [tuple(map(float, at.split())) for at in re.findall(r"[-\d.]+ [-\d.]+", outlines)]
    assert set(corners) == {(0, 3), (3, 3), (3, -1), (0, -1)}  # cells, from the upper left; the drawing ends at 0
    page = map_of(replace(grid, outlines=outlines), TICK, what="Spots")
    figure, _, _ = page.partition("</svg>")  # and not the legend
    drawn = dict(re.findall(r'<path class="(m\d|outline)" d="([^"]*)"/>', figure))
    assert drawn["outline"] == outlines
    assert drawn.keys() == {"m0", "m1", "m7", "outline"}
    assert "within noise" in page
    assert "within noise" not in map_of(replace(grid, noise=None), TICK, what="Spots")
    swatches = [
        re.findall(r'class="(m[1-7])" d="M0 0H10V6H0z"/></svg><span>(\d+)', map_of(one, TICK))
        for one in (replace(grid, noise=counts < 80), replace(grid, noise=counts > 0))
    ]
    assert swatches == [[("m7", "80")], []]  # one value has one colour, and without any there is no scale
    assert "coarser than the map" not in page
    assert "In 4 by 4 areas, coarser than the map." in map_of(replace(grid, counts=np.ones((8, 8)), noise=None), TICK)
    assert "logarithmic" not in map_of(replace(grid, noise=counts > 0), TICK)


def test_the_finest_grid_is_drawn_that_shows_more_than_noise() -> None:
    axis = Coordinate(name="x", min=0, max=1, missing=0, bits=1)

    def level(share: float) -> list[tuple[str, Grid]]:
        counts, noise = np.array([[100 * share, 100 * (1 - share)]]), np.array([[True, False]])
        return [(f"{share}", Grid(across=axis, up=axis, counts=counts, degrees=False, noise=noise))]

    shares = ((0.0, 0.5, 0.9), (0.6, 0.7, 0.9), (0.0, 0.1))
    assert [_clearest([level(s) for s in each])[0][0] for each in shares] == ["0.5", "0.6", "0.1"]
    assert _clearest([[], []]) == []
