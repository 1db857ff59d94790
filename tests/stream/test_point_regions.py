"""Points within public polygons: none is published outside, what is empty is known, and odd events count nearby."""

from __future__ import annotations

import json
import re
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import shapely

from synthstream.config.config import StreamConfig, load
from synthstream.errors import ConfigError, StateMismatch
from synthstream.forecast.warnings import notes_of
from synthstream.publish.published import Releases
from synthstream.release.areas import polygon_of
from synthstream.release.points import PointRelease
from synthstream.schema import polygons
from synthstream.schema.coordinates import Coordinate
from synthstream.stream.stream import Stream
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.polygons import feature, geojson, rectangle
from tests.support.towns import TOML, rows

# The west of the box: land with a lake, and an island. It fills neither half of any halving of the box by latitude.
COAST = [(-119.7, 31.2), (-112.3, 30.4), (-110.9, 36.1), (-116.4, 37.9), (-119.7, 31.2)]
LAKE = [(-116.9, 32.7), (-116.1, 32.7), (-116.1, 33.4), (-116.9, 32.7)]
ISLAND = rectangle(-119.3, 38.2, -118.9, 38.6)
LAND = (feature(COAST, LAKE), feature(ISLAND))
POLYGONS = shapely.MultiPolygon([(COAST, [LAKE]), (ISLAND, [])])


def configured(folder: Path, text: str = TOML, *, region: str = "city.geojson") -> StreamConfig:
    return StreamConfig.from_toml(text.replace("depth = 12", f"depth = 12\nregion = {region!r}"), base=folder)


def opened(config: StreamConfig) -> Stream:
    return Stream(config, gates=lambda tick: SeededGate(f"0/{tick}"), seed=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    geojson(tmp_path, *LAND)
    rows().write_parquet(tmp_path / "rows.parquet")
    return tmp_path


def on_land(frame: pl.DataFrame) -> bool:
    return bool(shapely.intersects_xy(POLYGONS, frame["lon"].to_numpy(), frame["lat"].to_numpy()).all())


@pytest.mark.sparing(1)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("delta = 0", "delta = 1e-9"),
        ("depth = 12", 'depth = 12\nschedule = "fixed"'),
        ("epsilon = 4.0", "epsilon = 0.1"),
    ],
)
def test_no_point_falls_outside(folder: Path, old: str, new: str) -> None:
    """About a second each: 20 releases, all of whose points are looked at."""
    config = configured(folder, TOML.replace(old, new) if old else TOML)
    live = synthesizer_cells(config)
    with opened(config) as stream:
        for release in stream.run():
            assert isinstance(release, PointRelease)
            assert on_land(release.rows())
            cloud: Any = release.model
            assert not cloud.masses[~live[cloud.level]].any()
            assert not cloud.plain[~live[cloud.level]].any()
    assert on_land(release.rows(20_000))
    assert isinstance(release, PointRelease)
    # However coarse the tree is: no event lies in the sea, and all of them on land.
    assert [*release.mass({"lon": -110.5}).values()] == pytest.approx([0, 0, 0], abs=1e-3 * len(release.rows()))
    assert release.mass({}, {"lon": -110.5})["measured"] == pytest.approx(len(release.rows()), rel=1e-3, abs=1)


def test_no_point_falls_outside_where_events_go_again(folder: Path) -> None:
    """What came, less what went, is below nothing in some cells; none of that is made good in the sea."""
    config = configured(folder, 'op = "op"\n' + TOML)
    live = synthesizer_cells(config)
    with opened(config) as stream:
        for day in range(9):
            parts = [
                rows(300, seed=seed).with_columns(op=pl.lit(op)) for seed, op in ((day, 1), (day - 3, -1)) if seed >= 0
            ]
            stream.update(pl.concat(parts).with_columns(when=pl.lit(datetime(2026, 1, 1 + day))))
            release = stream.release()
            cloud: Any = release.model
            assert on_land(release.rows())
            assert not cloud.masses[~live[cloud.level]].any()


@pytest.mark.sparing(1)
@pytest.mark.parametrize("region", [True, False])
def test_polygons_are_answered_as_boxes_are(folder: Path, region: bool) -> None:
    """Within a region and without: rectangles as boxes, and a slanted half of the box as the events in it."""
    config = configured(folder) if region else StreamConfig.from_toml(TOML, base=folder)
    with opened(config) as stream:
        *_, release = stream.run()
    assert isinstance(release, PointRelease)
    for west, south, east, north in ((-118.3, 31.7, -110.2, 34.1), (-117.4, 30.0, -103.0, 40.0)):
        shape = geojson(folder, feature(rectangle(west, south, east, north)), name="box.geojson")
        box = release.mass({"lat": south, "lon": west}, {"lat": north, "lon": east})
        assert release.mass(shape) == pytest.approx(box, rel=1e-6)
    corner = [(-120, 30), (-101, 30), (-120, 39), (-120, 30)]
    told = release.mass(release.polygon(geojson(folder, feature(corner), name="corner.geojson")))
    made = rows()
    if region:  # the other town is in the sea, and its events are moved to the coast, from which the polygon is cut off
        made = made.filter(pl.col("lon") < -110)
    true = shapely.intersects_xy(shapely.Polygon(corner), made["lon"].to_numpy(), made["lat"].to_numpy()).sum()
    assert abs(told["measured"] - true) < 3 * told["stderr"]
    assert told["stderr"] < 0.1 * true
    with pytest.raises(ConfigError, match=r"polygon '.*none\.geojson': No such file"):
        release.mass(folder / "none.geojson")


def test_a_sliver_of_a_cell_counts_for_who_asks_and_holds_no_events_as_a_region(tmp_path: Path) -> None:
    columns = StreamConfig.from_toml(TOML, base=tmp_path).schema.columns
    axes = [column for column in columns if isinstance(column, Coordinate)]
    west, south = -117.40001, 34.00001
    tiny = geojson(tmp_path, feature(rectangle(west, south, west + 1e-5, south + 1e-5)), name="tiny.geojson")
    asked = polygon_of(axes, tiny)
    assert asked.share < 1e-6 / 2 ** sum(column.bits for column in axes)
    assert asked.shares(4).sum() == pytest.approx(asked.share * 2**4)
    with pytest.raises(ConfigError, match="lies outside of the box"):
        configured(tmp_path, region="tiny.geojson")


def synthesizer_cells(config: StreamConfig) -> list[Any]:
    assert config.schema.region is not None
    return [config.schema.region.nodes.live(level) for level in range(13)]


def test_what_lies_outside_counts_in_the_nearest_cell(folder: Path) -> None:
    config = configured(folder)
    region = config.schema.region
    assert region is not None
    sea = pl.DataFrame(
        {"lat": [33.0, 38.9, 39.9, 32.95, None, 99.0], "lon": [-101.0, -118.0, -119.9, -116.5, -116.0, -1e9]}
    )
    codes = config.schema.encode(sea)
    assert config.schema.encode(sea[::-1])[::-1].tolist() == codes.tolist()  # each by itself
    spots = config.schema.decode(codes, np.random.default_rng(0))
    assert on_land(spots)
    widths = np.array([10, 20]) / 2**6
    for row, spot in zip([[33.0, -101.0], [38.9, -118.0], [39.9, -119.9]], spots.rows(), strict=False):
        to = shapely.distance(shapely.Point(row[1], row[0]), POLYGONS)
        assert np.hypot(*np.subtract(row, spot)) <= to + 2.5 * np.hypot(*widths)
    assert config.schema.encode(pl.DataFrame({"lat": [33.0], "lon": [-115.0]})).tolist() == [[19, 16]]  # land stays
    with opened(config) as stream:
        stream.update(sea.with_columns(when=datetime(2026, 1, 1)))
        counts = stream._store.pending(0)
    assert counts.numbers.sum() == 6
    assert region.nodes.live(12)[counts.cells].all()


def test_positions_fill_the_part_of_a_cell_that_is_land(folder: Path) -> None:
    config = configured(folder)
    region = config.schema.region
    assert region is not None
    with opened(config) as stream:
        *_, release = stream.run()
    cloud: Any = release.model
    nodes = np.repeat(region.nodes.cut[4], 4000)
    cells = region.nodes.drawn(nodes, 4, 12, np.random.default_rng(0))
    assert region.nodes.live(12)[cells].all()
    spots = config.schema.decode(cloud.partition.codes(cells), np.random.default_rng(1))
    assert on_land(spots)
    for node in region.nodes.cut[4].tolist():
        low = cloud.partition.codes(np.array([node << 8]))[0] / 2**6
        south, west = 30 + 10 * low[0], -120 + 20 * low[1]
        part = POLYGONS.intersection(shapely.box(west, south, west + 5, south + 2.5))
        own = spots.filter(pl.Series(nodes == node))
        middle = own["lon"].mean(), own["lat"].mean()
        assert middle == pytest.approx((part.centroid.x, part.centroid.y), abs=0.15)


def test_a_file_that_has_changed_is_refused_and_readers_need_none(folder: Path) -> None:
    """About a second: a stream of 20 releases, a window and a comparison."""
    with opened(configured(folder)) as stream:
        *_, release = stream.run()
        head = release.head
    geojson(folder, *json.loads(json.dumps(LAND)), name="again.geojson")
    (folder / "again.geojson").write_text(json.dumps(json.loads((folder / "again.geojson").read_text()), indent=3))
    with opened(configured(folder, region="again.geojson")) as stream:  # the same corners, written otherwise
        assert stream.last is not None
        assert stream.last.head == head
    (folder / "releases" / "settings.toml").write_text(configured(folder).settings)
    (folder / "city.geojson").unlink()
    settings = load(folder / "releases")
    assert settings.genesis == configured(folder, region="again.geojson").genesis
    reader = Releases(settings)
    assert on_land(reader.between("2026-01-05", "2026-01-15").rows())
    found = reader.last.compare(reader.at(9))
    assert found.filter(pl.col("lon from") >= -110)["measured"].abs().max() == 0
    geojson(folder, feature(COAST), feature(ISLAND))
    with pytest.raises(StateMismatch, match=r"synthesizer\.region"):
        opened(configured(folder))


def test_a_successor_keeps_the_polygons(folder: Path) -> None:
    """Points that were published outside of new ones would vanish from boxes, without an error."""
    within, after = TOML.replace("depth = 12", "depth = 12\nregion = {!r}"), '\n[after]\nconfig = "stream.toml"\n'
    (folder / "stream.toml").write_text(within.format("city.geojson"))
    assert StreamConfig.from_toml(within.format("city.geojson") + after, base=folder).after is not None
    geojson(folder, feature(ISLAND), name="island.geojson")
    for other in (within.format("island.geojson"), TOML):
        with pytest.raises(ConfigError, match=r"synthesizer\.region: points that were published") as told:
            StreamConfig.from_toml(other + after, base=folder)
        assert re.search("[0-9a-f]{64}", str(told.value)) is None


def test_how_much_of_the_box_it_is_is_said_before_a_stream_begins(folder: Path) -> None:
    note, = (note for note in notes_of(configured(folder)) if note.startswith("Region"))  # fmt: skip
    assert float(note.split()[1]) == pytest.approx(100 * POLYGONS.area / 200, abs=1)  # of a box of 10 by 20
    assert "% of the box lies in the polygons" in note
    geojson(folder, feature(rectangle(-120, 30, -100, 50)))
    assert "Region: 50 % of the polygons' area lies outside" in " ".join(notes_of(configured(folder)))
    geojson(folder, feature(rectangle(-120, 30, -100, 40)))
    assert "Region: 100 % of the box" in " ".join(notes_of(configured(folder)))


BOW = [(-118.0, 31.0), (-112.0, 36.0), (-112.0, 31.0), (-118.0, 36.0), (-118.0, 31.0)]


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ((feature(BOW),), "region = 'city.geojson': holds a polygon that is not valid: Self-intersection"),
        ((feature(BOW[:2]),), "no closed line of four points"),
        (
            (feature(rectangle(2, 48, 3, 49)),),
            "lies outside of the box. Its longitudes are 2 to 3 and its latitudes 48",
        ),
        ((feature(rectangle(32, -119, 36, -101)),), "feature 1 has the latitude first, and GeoJSON the longitude"),
        ((feature(rectangle(500, 0, 600, 9)),), "no Polygon or MultiPolygon of degrees"),
        ((), "a FeatureCollection without features"),
        ((LAND[0], LAND[1] | {"geometry": None}), "region = 'city.geojson': feature 2 has no geometry: take it out"),
    ],
)
def test_polygons_that_cannot_be_are_named(folder: Path, features: Any, says: str) -> None:
    geojson(folder, *features)
    with pytest.raises(ConfigError, match=says):
        configured(folder)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("city.geojson", "town.geojson", "region = 'town.geojson': No such file or directory. Name a GeoJSON file"),
        ('name = "lat"', 'name = "y"', "whose names say which is which, as in lat and lon; found 'y', 'lon'"),
        ('kind = "points"', 'kind = "hypercube"', 'region: has no effect with kind = "hypercube"'),
    ],
)
def test_settings_that_do_not_go_with_a_region_are_named(folder: Path, old: str, new: str, says: str) -> None:
    text = TOML.replace("depth = 12", 'depth = 12\nregion = "city.geojson"')
    with pytest.raises(ConfigError, match=says):
        StreamConfig.from_toml(text.replace(old, new), base=folder)


def test_what_is_not_installed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        if name == "shapely":
            raise ImportError
        return import_module(name)

    polygons.geometry.cache_clear()
    monkeypatch.setattr(polygons, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'synthstream\[polygons\]'"):
        configured(folder)
