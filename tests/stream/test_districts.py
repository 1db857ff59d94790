"""Places with districts: rows agree with their coordinates, tables speak of names, and bad files are told."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream.cli.answering import inside
from synthstream.cli.app import app
from synthstream.config.config import StreamConfig
from synthstream.config.places import words_of
from synthstream.errors import ConfigError, StateMismatch
from synthstream.report.regions import regions_of
from synthstream.schema.districts import Districts
from synthstream.schema.mapping import mapping_of
from synthstream.stream.stream import Stream
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.configs import SINK, category, source, stream_toml
from tests.support.polygons import feature, geojson, rectangle

# Of a box of 8 by 8: a triangle and what is west of it, an island in a gap, and a late one that overlaps the first.
WEST = [(0, 0), (4, 0), (2.3, 8), (0, 8), (0, 0)]
EAST = [(4, 0), (7, 0), (7, 5), (2.9375, 5), (4, 0)]
FEATURES = (
    feature(WEST, name="West"),
    feature(EAST, name="East"),
    feature(rectangle(5.1, 6.1, 5.9, 6.9), name="Isle"),
    feature(rectangle(6.8, 1, 8, 2), name="Cape"),
    feature(rectangle(7.2, 6.2, 7.4, 6.4), name="Isle"),
)
PLACE = """
[[columns]]
name = "at"
type = "place"
coordinates = ["lat", "lon"]
bounds = [[0, 8], [0, 8]]
depth = 3
regions = "districts.geojson"
"""
KIND = category("kind", "a", "b")
TOML = stream_toml(KIND, PLACE, source("rows.parquet"), SINK, until="2026-01-04")


def events(number: int = 6000, seed: int = 0) -> pl.DataFrame:
    """Many by the border of West and East, of two kinds."""
    rng = np.random.default_rng(seed)
    lat = rng.random(number) * 8
    lon = np.where(
        rng.random(number) < 0.6, 4 - lat * 1.7 / 8 + 0.4 * rng.standard_normal(number), rng.random(number) * 8
    )
    return pl.DataFrame(
        {
            "when": [datetime(2026, 1, 1 + day) for day in np.sort(rng.integers(0, 3, number)).tolist()],
            "lat": lat,
            "lon": lon,
            "kind": np.where(rng.random(number) < np.where(lon < 3, 0.8, 0.2), "a", "b"),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    geojson(tmp_path, *FEATURES, name="districts.geojson")
    events().write_parquet(tmp_path / "rows.parquet")
    (tmp_path / "stream.toml").write_text(TOML)
    return tmp_path


def configured(folder: Path, old: str = "", new: str = "") -> StreamConfig:
    assert old in TOML
    return StreamConfig.from_toml(TOML.replace(old, new, 1) if old else TOML, base=folder)


def opened(config: StreamConfig) -> Stream:
    return Stream(config, gates=lambda tick: SeededGate(f"0/{tick}"), seed=0)


def districts_of(config: StreamConfig, place: str) -> Districts:
    found, = (c for c in config.schema.columns if isinstance(c, Districts) and c.finest.place == place)  # fmt: skip
    return found


def districts(config: StreamConfig) -> Districts:
    found, = (column for column in config.schema.columns if isinstance(column, Districts))  # fmt: skip
    return found


def test_rows_are_read_one_by_one_and_the_first_polygon_has_them(folder: Path) -> None:
    column = districts(configured(folder))
    assert column.values == ("West", "East", "Isle", "Cape")
    rows = pl.DataFrame(
        {
            "lat": [1, 1.5, 1.5, 6.5, 6.3, 6.5, 9, None, float("nan"), 0],
            "lon": [1, 6.9, 7.5, 5.5, 7.3, 6.5, 1, 1, 1, 4],
        },
        strict=False,
    )
    said = ["West", "East", "Cape", "Isle", "Isle", "other", "other", "missing", "missing", "West"]
    codes = column.read(rows)
    assert [column.labels[code] for code in codes] == said
    alone = [int(column.read(rows[i : i + 1])[0]) for i in range(rows.height)]
    assert alone == codes.tolist()
    assert column.written(rows).to_list()[4:8] == ["Isle", "6.5 / 6.5", "9 / 1", None]


@pytest.mark.parametrize("delta", ["1e-9", "0"])
def test_rows_agree_with_their_coordinates_and_tables_with_the_events(folder: Path, delta: str) -> None:
    config = configured(folder, "delta = 1e-9", f"delta = {delta}\nneighbours = 'add-remove'")
    column, true = districts(config), events()
    with opened(config) as stream:
        for release in stream.run():
            found = release.rows()
            assert found.columns == ["kind", "at_region", "at_2", "at_3", "lat", "lon"]
            known = found.filter(pl.col("lat").is_not_null())
            assert column.read(known).tolist() == column.encode(known["at_region"]).tolist()
            assert column.finest.read(known).tolist() == column.finest.encode(known["at_3"]).tolist()
            assert release.rows().equals(found)
    assert known.height > 0.97 * found.height
    events_of = np.bincount(column.read(true), minlength=column.size)
    table = release.table("at_region")
    assert table["at_region"].to_list() == ["West", "East", "Isle", "Cape", "other", "missing"]
    assert table["count"].to_numpy() == pytest.approx(events_of, abs=350)
    if delta != "0":
        both = release.table(["kind", "at_region"])
        assert both.columns[:2] == ["kind", "at_region"]
        told = release.table("kind", where="at_region = 'West'")
        west = true.filter(pl.Series(column.read(true) == 0))
        assert told["count"].to_list()[:2] == pytest.approx(
            [west.filter(kind=kind).height for kind in ("a", "b")], abs=250
        )


ENDS = PLACE + PLACE.replace('"at"', '"to"').replace('"lat", "lon"', '"lat2", "lon2"') + 'with = ["at"]\n'


def test_districts_of_the_ends_of_a_trip_are_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trips from West end in East, mostly, and those from elsewhere where they began; three releases take long."""
    config = configured(folder, PLACE, ENDS)
    assert config.workload is not None
    pairs = [tuple(config.schema.names[c] for c in m) for m in config.workload.marginals if len(m) == 2]
    across = {pair for pair in pairs if pair[0].startswith("at") and pair[1].startswith("to")}
    assert across == {("at_region", "to_region"), ("at_2", "to_2")}
    assert "to_region with at_region" in words_of(config.schema)
    rows = events()
    begun = np.array(districts_of(config, "at").read(rows))
    leaves = (begun == 0) & (np.random.default_rng(1).random(rows.height) < 0.9)
    ends = {
        "lat2": pl.Series(np.where(leaves, 1.0, rows["lat"])),
        "lon2": pl.Series(np.where(leaves, 5.0, rows["lon"])),
    }
    rows.with_columns(**ends).write_parquet(folder / "rows.parquet")
    with opened(config) as stream:
        *_, last = stream.run()
    table = last.table(["at_region", "to_region"])
    of = {
        (a, b): (m, s, c)
        for a, b, m, s, c in table.select("at_region", "to_region", "measured", "stderr", "count").rows()
    }
    true = {("West", "East"): int(leaves.sum()), ("East", "West"): 0, ("East", "East"): int((begun == 1).sum())}
    for pair, number in true.items():
        measured, stderr, count = of[pair]
        assert abs(measured - number) < 4 * stderr
        assert abs(count - number) < 350
    for where, known in (("to_region = 'East'", 0), ("to_2 = '02'", 1), ("kind = 'a' AND to_2 = '02'", 0)):
        assert inside(last, {"lat": 0.0}, {"lat": 4.0}, where, config)["stderr"].count() == known
        assert ("by a grid of it that is crossed" in capsys.readouterr().err) == ("region" in where)
    assert inside(last, {"lat": 0.0}, {"lat": 4.0}, "at_region = 'East'", config)["stderr"].count() == 0
    assert (told := capsys.readouterr().err).endswith("of a part of one, ask for --polygon.\n")
    assert "another place" not in told


def test_districts_are_crossed_with_districts_alone_and_not_too_many() -> None:
    """14 districts, which have 16 codes, are not crossed with the 16 cells of another place either."""

    def crossed(number: int) -> set[tuple[str, ...]]:
        squares = [feature(rectangle(i / 16, 0, (i + 1) / 16, 8), name=str(i)) for i in range(number)]
        text = json.dumps({"type": "FeatureCollection", "features": squares})
        said = ENDS.replace('"districts.geojson"', json.dumps(text))
        config = StreamConfig.from_toml(stream_toml(KIND, said))
        assert config.workload is not None
        tables = [[config.schema.names[c] for c in m] for m in config.workload.marginals if len(m) == 2]
        return {(a, b) for a, b in tables if a.startswith("at") and b.startswith("to")}

    assert crossed(14) == crossed(62) == {("at_region", "to_region"), ("at_2", "to_2")}
    assert crossed(63) == {("at_2", "to_2")}


def test_positions_fill_what_a_district_has_of_a_cell(folder: Path) -> None:
    column = districts(configured(folder))
    keys = np.repeat(column.pieces.keys, 500)
    codes, cells = (keys % column.size).astype(np.int32), (keys // column.size).astype(np.int32)
    at = column.placed(codes, cells, column.finest.further(cells))
    spots = pl.DataFrame(at)
    assert column.read(spots).tolist() == codes.tolist()
    assert column.finest.read(spots).tolist() == cells.tolist()
    middles = np.array([(piece.centroid.y, piece.centroid.x) for piece in column.pieces.shapes])
    found = spots.to_numpy().reshape(-1, 500, 2).mean(axis=1)
    assert np.abs(found - middles).max() < 0.06


def test_which_tables_there_are(folder: Path) -> None:
    def tables(config: StreamConfig) -> set[tuple[str, ...]]:
        assert config.workload is not None
        return {tuple(config.schema.names[c] for c in marginal) for marginal in config.workload.marginals}

    both = configured(folder, KIND, KIND + category("more", "x", "y"))
    assert {("kind", "at_region"), ("more", "at_region"), ("kind", "at_2")} <= tables(both)
    one = configured(folder, KIND, KIND + category("more", "x", "y")).schema
    assert not any(
        {"at_region", name} <= set(table)
        for table in tables(both)
        for name in one.names
        if "at_" in name[:3] and name != "at_region"
    )
    said = configured(folder, "depth = 3", "depth = 3\nwith = []")
    assert not any("at_region" in table and len(table) > 1 for table in tables(said))
    assert configured(folder, 'regions = "districts.geojson"\n', "").schema.names == ("kind", "at_1", "at_2", "at_3")


def test_grids_are_as_fine_as_all_pairs_can_be_offered(folder: Path) -> None:
    def finest(rest: str) -> int:
        return districts(configured(folder, "depth = 3", f"events = 100_000_000\n{rest}")).finest.depth

    assert (finest(""), finest("depth = 6")) == (5, 6)


def test_what_everybody_knows_is_said_before_a_stream_begins(folder: Path) -> None:
    words = words_of(configured(folder).schema)
    assert "at_region: 4 regions; 30.4 % of the box lies in none and counts as other." in words
    assert "Some overlap ('East' and 'Cape'): what lies in two counts in the first of the file." in words
    told = CliRunner().invoke(app, ["check", str(folder / "stream.toml")])
    assert "of the rows" in told.output
    assert "lie in no region" in " ".join(told.output.split())
    geojson(folder, feature(rectangle(0, 0, 0.1, 0.1), name="Spot"), name="districts.geojson")
    assert "at_region: 1 region; 100 % of the box lies in none" in words_of(configured(folder).schema)
    assert "reach out" not in words
    thirds = [0, 8 / 3, 16 / 3, 8]  # a gap of rounding alone is none
    strips = [feature(rectangle(a, 0, b, 8), name=f"{a}") for a, b in itertools.pairwise(thirds)]
    geojson(folder, *strips, name="districts.geojson")
    assert "at_region: 3 regions; they fill the box." in words_of(configured(folder).schema)
    geojson(folder, feature(rectangle(-1, 0, 3, 8), name="Sea"), *FEATURES, name="districts.geojson")
    assert "1 of them reach out of bounds ('Sea' by 25 %)" in words_of(configured(folder).schema)


def test_ends_of_a_box_that_have_changed_places_are_told(folder: Path) -> None:
    geojson(folder, feature(rectangle(-120, 33, -118, 35), name="County"), name="districts.geojson")
    text = TOML.replace("bounds = [[0, 8], [0, 8]]", "bounds = [[-122, -114], [32, 37]]")
    with pytest.raises(ConfigError, match="No latitude is beyond 90: the ends of the box have changed places"):
        StreamConfig.from_toml(text, base=folder)


def test_maps_draw_districts_and_readers_need_no_file(folder: Path) -> None:
    config = configured(folder)
    with opened(config) as stream:
        *_, release = stream.run()
        head = release.head
    (folder / "districts.geojson").unlink()
    reader = StreamConfig.from_toml(config.settings, base=folder)
    assert reader.genesis == config.genesis
    drawn = regions_of(reader, districts(reader))
    assert drawn is not None
    assert sorted(drawn.shapes) == [0, 1, 2, 3]
    assert [len(drawn.shapes[code]) for code in range(4)] == [1, 1, 2, 1]
    geojson(folder, *FEATURES, name="districts.geojson")
    with opened(configured(folder)) as stream:
        assert stream.last is not None
        assert stream.last.head == head
    geojson(folder, *FEATURES[:3], name="districts.geojson")
    with pytest.raises(StateMismatch, match=r"columns\.at\.regions: the polygon file is another one\. "):
        opened(configured(folder))


def test_districts_that_move_are_no_column_of_a_successor(folder: Path) -> None:
    old = configured(folder).schema
    assert mapping_of(old, old).exact
    geojson(folder, *FEATURES[1:], feature(rectangle(0, 0, 2, 8), name="West"), name="districts.geojson")
    with pytest.raises(ConfigError, match=r"columns\.at\.regions: this is another kind of column"):
        mapping_of(old, configured(folder).schema)


EAST_LINE = FEATURES[1] | {"geometry": {"type": "LineString", "coordinates": EAST}}
BOW = [(1, 1), (3, 3), (3, 1), (1, 3), (1, 1)]


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ((feature(BOW, name="Bow"),), "'Bow': holds a polygon that is not valid: Self-intersection"),
        ((*FEATURES[:2], feature(WEST, title="x")), "feature 3 has no property 'name'. Set region_key to the property"),
        ((feature(rectangle(20, 20, 21, 21), name="Far"),), "'Far' lies outside of bounds, so no event could be there"),
        ((feature(rectangle(0, 91, 8, 99), name="Up"),), "feature 1 has the latitude first, and GeoJSON the longitude"),
        ((feature(WEST, name="other"),), "feature 1 is named 'other', which has another meaning. Rename it"),
        ((*FEATURES[:2], feature(WEST, name=None)), "feature 3 has an empty 'name'. Give it one, or take it out"),
        ((feature(WEST, title="x"), feature(EAST, title="y", code=1)), "there are 'title'$"),
        ((FEATURES[0] | {"geometry": None},), "feature 1 has no geometry: take it out"),
        ((*FEATURES[:1], EAST_LINE), "feature 2 is a LineString"),
        ((), "has a FeatureCollection without features. Export it as GeoJSON, in UTF-8"),
    ],
)
def test_districts_that_cannot_be_are_named(folder: Path, features: Any, says: str) -> None:
    geojson(folder, *features, name="districts.geojson")
    with pytest.raises(ConfigError, match=says):
        configured(folder)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"name": "Größe"}'.encode("latin-1"), "is not UTF-8. Export"),
        (b'{"type":\n 7,}', r"is no JSON: .*, line 2, column \d+\. Export"),
        (b'{"type": "Topology", "objects": {}}', "is TopoJSON. Export"),
        (b"[1]", "is no GeoJSON file with a FeatureCollection. Export"),
        (b'{"type": "FeatureCollection", "features": [7]}', "lists are no features. Export"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_files_that_are_no_geojson_are_told_apart(folder: Path, content: bytes, says: str) -> None:
    (folder / "districts.geojson").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"regions = 'districts.geojson': .*{says}"):
        configured(folder)


def test_a_byte_order_mark_is_no_matter(folder: Path) -> None:
    path, before = folder / "districts.geojson", configured(folder).genesis
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert configured(folder).genesis == before


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("districts.geojson", "wards.geojson", "No such file"),
        ('["lat", "lon"]', '["y", "x"]', "Let the columns that coordinates names have such names"),
        (
            'coordinates = ["lat", "lon"]\nbounds = [[0, 8], [0, 8]]',
            'coordinates = ["lat"]\nbounds = [[0, 8]]',
            "two columns",
        ),
        ('regions = "districts.geojson"', 'region_key = "title"', "region_key: has no effect without regions"),
        ('regions = "districts.geojson"', 'regions = "districts.geojson"\nregion_key = "title"', "no property 'title'"),
    ],
)
def test_settings_that_do_not_go_with_districts_are_named(folder: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        configured(folder, old, new)


def test_a_polygon_that_the_stream_counts_itself_is_told_with_the_better_question(folder: Path) -> None:
    """Of two places, the one that was asked about."""
    (folder / "stream.toml").write_text(TOML.replace(PLACE, ENDS))
    events().with_columns(lat2="lat", lon2="lon").write_parquet(folder / "rows.parquet")
    with opened(configured(folder, PLACE, ENDS)) as stream:
        next(stream.run())
    geojson(folder, feature(rectangle(5, 6, 6, 7), name="Isle"), name="other.geojson")

    def said(file: str, name: str, command: str = "table") -> str:
        polygon = ["--polygon", str(folder / file), "--feature", name, "--place", "at"]
        return " ".join(CliRunner().invoke(app, [command, str(folder / "stream.toml"), *polygon]).stderr.split())

    hint = "The stream counts this district itself: --where \"at_region = 'Isle'\" has the smaller error."
    assert hint in (found := said("districts.geojson", "Isle"))
    assert "to_region" not in found
    assert f"itself: synthstream series {folder}/stream.toml at_region has" in said(
        "districts.geojson", "Isle", "series"
    )
    assert "itself" not in said("other.geojson", "Isle")
    assert "itself" not in said("districts.geojson", "Cape"), "part of it counts as East"
