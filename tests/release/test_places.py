"""Places in releases: tables of grids, rows that lie in their cells, how many events lie in a box, or in a polygon."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import shapely
from benchmarks.places import released as in_memory
from typer.testing import CliRunner

from synthstream import Releases, Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.errors import ConfigError, NotReleased, SchemaError
from synthstream.kernel.gate import Gate
from synthstream.release.answers import MeasuredSums
from synthstream.release.areas import Box
from synthstream.release.places import Grid, Located, _answer, drift_of
from synthstream.release.tables import TableRelease
from synthstream.schema.places import View
from synthstream.schema.schema import Schema
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.command import synthstream
from tests.support.configs import SINK, source, stream_toml
from tests.support.gates import ExactGate
from tests.support.polygons import feature, geojson, rectangle

_FLAG = '[[columns]]\nname = "new"\ntype = "boolean"\nmissing = false\n'
_KIND = '[[columns]]\nname = "kind"\ntype = "category"\nvalues = ["a", "b"]\n'
_PLACE = (
    '[[columns]]\nname = "spot"\ntype = "place"\ncoordinates = ["x", "y"]\nbounds = [[0, 8], [0, 8]]\n'
    'views = [1, 2]\ndepth = 3\nwith = ["kind"]\n'
)


@cache
def events(number: int = 6000) -> pl.DataFrame:
    """Two clusters, one for each kind; some rows without a place, some outside of the box."""
    rng = np.random.default_rng(3)
    kind = rng.integers(2, size=number)
    at = np.where(kind[:, None] == 0, (2.3, 5.1), (6.2, 1.7)) + rng.normal(size=(number, 2)) * 0.8
    hours = rng.integers(0, 24 * 8, number)
    found = pl.DataFrame(
        {
            "when": [datetime(2026, 1, 1) + timedelta(hours=int(h)) for h in hours],
            "kind": np.array(["a", "b"])[kind],
            "new": rng.random(number) < 0.3,
            "x": np.clip(at[:, 0], 0, 8),
            "y": np.clip(at[:, 1], 0, 8),
        }
    )
    return found.with_columns(
        x=pl.when(pl.int_range(number) % 50 == 0)
        .then(None)
        .when(pl.int_range(number) % 50 == 1)
        .then(99.0)
        .otherwise("x")
    )


def exact(tick: int) -> Gate:
    return ExactGate()


def _seeded(seed: int, tick: int) -> Gate:
    return SeededGate(f"{seed}/{tick}")


def made(
    folder: Path, gates: Any = exact, *, place: str = _PLACE, delta: float = 1e-9, measure: str = "auto"
) -> StreamConfig:
    how = f'[synthesizer]\nkind = "table"\nmeasure = "{measure}"\n'
    text = stream_toml(_KIND, _FLAG, place, how, source("rows.parquet"), SINK, until="2026-01-09", delta=delta)
    folder.mkdir(exist_ok=True)
    (folder / "stream.toml").write_text(text)
    config = StreamConfig.from_toml(text, base=folder)
    events().with_columns(lat="y", lon="x").write_parquet(folder / "rows.parquet")
    with Stream(config, gates=gates) as stream:
        list(stream.run())
    return config


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> StreamConfig:
    return made(tmp_path_factory.mktemp("places"))


@pytest.fixture(scope="module")
def release(config: StreamConfig) -> TableRelease:
    found = Releases(config).last
    assert isinstance(found, TableRelease)
    return found


EVERY = pl.lit(value=True)


def true(where: pl.Expr = EVERY, **box: tuple[float, float]) -> int:
    inside = [pl.col(name).is_between(low, high) for name, (low, high) in box.items()]
    placed = pl.col("x").is_between(0, 8) & pl.col("y").is_between(0, 8)
    return events().filter(where, placed, *inside).height


def test_tables_of_grids_say_where_their_cells_lie(release: TableRelease) -> None:
    found = release.table(["spot_1", "kind"])
    assert found.columns[:6] == ["spot_1", "kind", "x from", "x to", "y from", "y to"]
    one = found.filter(pl.col("spot_1") == "1", pl.col("kind") == "a").row(0, named=True)
    assert [one[f"{name} {end}"] for name in "xy" for end in ("from", "to")] == [0.0, 4.0, 4.0, 8.0]
    resolution = 0.5  # of what is measured without noise
    assert one["measured"] == pytest.approx(true(pl.col("kind") == "a", x=(0, 4), y=(4, 8)), abs=resolution)
    outside = release.table("spot_2").filter(pl.col("spot_2").is_in(["other", "missing"]))
    assert outside["measured"].to_list() == pytest.approx([120, 120], abs=20)
    assert outside["x from"].null_count() == 2


def test_rows_have_coordinates_in_their_cells(release: TableRelease) -> None:
    rows = release.rows()
    placed = rows.filter(pl.col("x").is_not_null())
    assert rows.height - placed.height == pytest.approx(240, abs=80)
    assert release.schema.encode(placed).tolist() == release.model.codes[rows["x"].is_not_null().to_numpy()].tolist()
    assert placed.select(pl.col("spot_3").str.starts_with(pl.col("spot_2")).all()).item()
    assert placed.select(pl.col("spot_2").str.starts_with(pl.col("spot_1")).all()).item()
    near = release.rows(where="x BETWEEN 1 AND 4 AND y > 4")
    assert near.filter(pl.col("kind") == "a").height > 20 * near.filter(pl.col("kind") == "b").height


@pytest.mark.parametrize("box", [((0, 4), (4, 8)), ((2, 6), (0, 8)), ((0, 8), (0, 8)), ((-9, 4), (-9, 99))])
@pytest.mark.parametrize("kind", [None, "a"])
def test_a_box_of_whole_cells_is_a_sum_of_what_was_measured(
    release: TableRelease, box: tuple[tuple[float, float], ...], kind: str | None
) -> None:
    (x, y), where = box, None if kind is None else f"kind = '{kind}'"
    found = release.mass({"x": x[0], "y": y[0]}, {"x": x[1], "y": y[1]}, where=where)
    expected = true(EVERY if kind is None else pl.col("kind") == kind, x=x, y=y)
    assert found["measured"] == pytest.approx(expected, abs=5)
    assert found["count"] == pytest.approx(expected, rel=0.05, abs=20)
    assert found["since"] == 0
    # Few coarse cells, rather than all fine ones: one cell of the coarsest grid has the error of one cell.
    if box == ((0, 4), (4, 8)):
        table = release.table("spot_1" if kind is None else ["spot_1", "kind"])
        assert found["stderr"] == pytest.approx(table["stderr"][0])


def test_cells_that_a_box_cuts_cost_an_error_and_give_the_share_of_the_rows(release: TableRelease) -> None:
    whole = release.mass({"x": 2.0, "y": 5.0}, {"x": 3.0, "y": 6.0})
    cut = release.mass({"x": 2.2, "y": 5.2}, {"x": 2.9, "y": 5.9})
    expected = true(x=(2.2, 2.9), y=(5.2, 5.9))
    assert cut["stderr"] > whole["stderr"] * 0.5
    assert abs(cut["measured"] - expected) < 2 * cut["stderr"]
    assert 0 < cut["measured"] < whole["measured"]


def test_what_no_table_tells_is_null(release: TableRelease) -> None:
    for where in ("new", "kind = 'a' AND new"):  # not crossed with the place
        found = release.mass({"x": 1.0}, {"x": 4.0}, where=where)
        assert set(found.values()) == {None, found["count"]}
        assert found["count"] > 0
    found = release.count("x > 4")
    assert found["measured"] is None
    assert found["count"] == pytest.approx(true(x=(4, 8)), rel=0.05)


@pytest.mark.parametrize(
    ("lower", "upper", "where", "said"),
    [
        ({"lat": 1.0}, {}, None, "'lat' is not a coordinate. Coordinates are x, y."),
        ({"x": 9.0}, {"x": 12.0}, None, "x: it lies outside of the place, which goes from 0 to 8"),
        ({}, {"y": -1.0}, None, "y: it lies outside of the place"),
        ({"x": 3.0}, {"x": 2.0}, None, "its lower bound 3 is above its upper one 2"),
        ({"x": 3.0}, {"x": 3.0}, None, "it has no width: both bounds are 3"),
        ({"x": float("nan")}, {}, None, "a bound must be a number"),
        ({"x": 1.0}, {}, "kin = 'a'", "'kin' is not a column"),
    ],
)
def test_mistakes_are_told(release: TableRelease, lower: Any, upper: Any, where: str | None, said: str) -> None:
    with pytest.raises(SchemaError) as error:
        release.mass(lower, upper, where=where)
    assert said in str(error.value)


@pytest.mark.parametrize("ends", [((1, 2), (3, 4)), (10, 20), ({"lat": 33}, 34), ([33.0],)])
def test_ends_without_names_are_refused(release: TableRelease, ends: Any) -> None:
    for ask in (release.mass, release.box) if len(ends) > 1 else (release.mass,):
        with pytest.raises(
            TypeError, match=r'name the coordinate of each end, as in \{"lat": 33.0\}, not (tuple|int|list)'
        ):
            ask(*ends)


def test_coordinates_that_changed_places_are_told() -> None:
    view = View(name="at_1", place="at", coordinates=("lat", "lon"), bounds=((32, 37), (-122, -114)), depth=1)
    with pytest.raises(SchemaError, match=r"lat: it lies outside .* It lies inside if lat and lon change places"):
        Box(view.axes, {"lat": -118.0, "lon": 33.0}, {"lat": -117.0, "lon": 34.0})
    with pytest.raises(SchemaError, match=r"from 32 to 37\.$"):
        Box(view.axes, {"lat": 50.0}, {})


def test_a_place_is_no_column(release: TableRelease) -> None:
    with pytest.raises(SchemaError, match=r"'spot' is a place\. Name one of its columns, .*spot_1"):
        release.table("spot")
    with pytest.raises(SchemaError, match=r"'x' is a coordinate of 'spot'\. Name one of its columns, .*spot_1"):
        release.table("x")


@pytest.mark.parametrize(
    ("lower", "upper", "beyond"),
    [({}, {}, 0), ({"x": -8.0}, {}, 0.5), ({"x": -8.0}, {"y": 16.0}, 0.75), ({"x": -np.inf}, {"y": 1e300}, 1)],
)
def test_a_box_knows_what_of_it_lies_outside(
    release: TableRelease, lower: dict[str, float], upper: dict[str, float], beyond: float
) -> None:
    assert release.box(lower, upper).beyond == pytest.approx(beyond)


def test_what_of_a_box_lies_outside_is_told(config: StreamConfig) -> None:
    def said(box: str) -> str:
        path = str(config.base / "stream.toml")
        return " ".join(CliRunner().invoke(app, ["table", path, "--box", box]).stderr.split())

    assert f"50 % of the area of the box lies outside of {config.name}'s bounds: events there are" in said("x 4 12")
    assert said("x -1993 8").startswith("99.6 % of the area")  # it was 100 %, of a box that holds all events
    assert "of the area" not in said("x 4 8")
    assert "of the area" not in said("x 40 80")


@pytest.mark.parametrize("x", [(0.0, 4.0), (0.3, 3.6)])  # whole cells, and such as are cut
@pytest.mark.parametrize("days", [(1, 4), (2, 6), (0, 5)])
def test_a_window_answers_for_the_ticks_that_it_names(
    config: StreamConfig, days: tuple[int, int], x: tuple[float, float]
) -> None:
    start, end = (datetime(2026, 1, 1) + timedelta(days=day) for day in days)
    window = Releases(config).between(start, end)
    assert isinstance(window, TableRelease)
    found = window.mass({"x": x[0], "y": 4.0}, {"x": x[1], "y": 8.0}, where="kind = 'a'")
    first, last = (datetime(2026, 1, 1) + timedelta(days=day) for day in (found["since"], found["measured_at"] + 1))
    counted = pl.col("when").is_between(first, last, closed="left") & (pl.col("kind") == "a")
    assert abs(found["measured"] - true(counted, x=x, y=(4, 8))) < max(2 * found["stderr"], 5)
    assert abs(found["measured"] - true(counted, x=x, y=(4, 8))) < 0.2 * found["measured"]
    both = pl.col("when").is_between(start, end, closed="left") & (pl.col("kind") == "a")
    assert found["count"] == pytest.approx(true(both, x=x, y=(4, 8)), rel=0.4, abs=20)


def test_the_command_answers_as_the_release_does(config: StreamConfig, release: TableRelease) -> None:
    path, box = str(config.base / "stream.toml"), ["--box", "x 0 4", "--box", "y 4 8"]
    done = synthstream("table", path, *box, "--where", "kind = 'a'", "--csv", cwd=config.base)
    assert done.returncode == 0, done.stderr
    assert "where count is more than two stderr away, trust measured" in " ".join(done.stderr.split())
    found = pl.read_csv(done.stdout.encode()).row(0, named=True)
    told = release.mass({"x": 0.0, "y": 4.0}, {"x": 4.0, "y": 8.0}, where="kind = 'a'")
    assert {key: found[key] for key in told} == pytest.approx(told)
    read = synthstream("table", path, *box, "--between", "2026-01-06", "2026-01-08", cwd=config.base)
    assert re.search(r"\d \(from 2026-01-0\d\) +\d \(before 2026-01-0\d\)", read.stdout)
    unknown = synthstream("table", path, *box, "--where", "new", cwd=config.base)
    assert (unknown.returncode, "null" in unknown.stdout) == (0, True), unknown.stderr
    refused = synthstream("table", path, "kind", *box, cwd=config.base)
    assert refused.returncode == 2
    assert "--box: counts all events in it" in refused.stderr
    refused = synthstream("table", path, "--box", "x 0", cwd=config.base)
    assert "say a coordinate and two numbers" in refused.stderr


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> list[Releases]:
    """Several draws of the noise; whole streams, so slow."""
    folder = tmp_path_factory.mktemp("noisy")
    return [Releases(made(folder / str(seed), partial(_seeded, seed))) for seed in range(4)]


def box_of(rng: np.random.Generator) -> tuple[dict[str, float], dict[str, float]]:
    (x, y), (across, up) = rng.uniform(0, 5, 2), rng.uniform(0.5, 3, 2)
    return {"x": x, "y": y}, {"x": x + across, "y": y + up}


def test_errors_of_boxes_hold(noisy: list[Releases]) -> None:
    """About 95 % of boxes lie within two standard errors, over several draws of the noise."""
    off = []
    for seed, releases in enumerate(noisy):
        found, rng = releases.last, np.random.default_rng(seed)
        assert isinstance(found, TableRelease)
        for _ in range(40):
            lower, upper = box_of(rng)
            told = found.mass(lower, upper)
            expected = true(x=(lower["x"], upper["x"]), y=(lower["y"], upper["y"]))
            off.append((told["measured"] - expected) / told["stderr"])
    within = np.mean(np.abs(off) <= 2)
    assert within >= 0.88, off
    assert np.std(off) > 0.4  # errors that are far too large would hold, too


def test_errors_of_series_hold(noisy: list[Releases]) -> None:
    """The same of single days."""
    off = list[float]()
    for seed, releases in enumerate(noisy):
        rng = np.random.default_rng(seed)
        for _ in range(5):
            lower, upper = box_of(rng)
            inside = events().filter(*(pl.col(c).is_between(lower[c], upper[c]) for c in "xy"))
            days = (inside["when"] - datetime(2026, 1, 1)).dt.total_days().to_numpy()
            told = releases.series(lower=lower, upper=upper)
            counted = np.bincount(days, minlength=len(told))
            off += ((told["measured"].to_numpy() - counted) / told["stderr"].to_numpy()).tolist()
    assert np.mean(np.abs(off) <= 2) >= 0.9, off
    assert np.std(off) > 0.4


@pytest.mark.parametrize("noise", [0.0, 20.0])
@pytest.mark.parametrize(("held", "off"), [((25.0, 25.0, 25.0, 25.0), 0.0), ((100.0, 0.0, 0.0, 0.0), 1.0)])
def test_how_far_events_have_moved_from_the_rows(held: tuple[float, ...], off: float, noise: float) -> None:
    """Rows lie evenly, 1,000 in each of four cells; so do events, or all lie in the first quarter of each."""
    rng, steps = np.random.default_rng(1), list[list[Grid]]()
    for _ in range(100):
        steps.append([])
        for depth, rows, events in ((2, 1000.0, [100.0] * 4), (4, 250.0, [*held] * 4)):
            view = View(name=f"at_{depth}", place="at", coordinates=("x",), bounds=((0, 8),), depth=depth)
            counts = np.array([*events, 0.0, 0.0])
            counts += noise * rng.normal(size=counts.size)
            known = MeasuredSums(counts, np.full(counts.size, noise**2), 0, 0)
            steps[-1].append(Grid(view, known, np.full(counts.size, rows), np.zeros(counts.size)))
    assert drift_of(steps) == pytest.approx(off, abs=0.1 if noise else 1e-6)


def test_the_error_of_an_area_is_that_of_whole_cells_and_of_those_that_it_cuts() -> None:
    """Whole cells have their noise; of others a share, how far that may be off, and more where all err alike."""
    view = View(name="at_2", place="at", coordinates=("x",), bounds=((0, 8),), depth=2)
    counts, noise = np.array([100.0, 40.0, 8.0, 9.0, 0.0, 0.0]), np.array([9.0, 16.0, 25.0, 4.0, 1.0, 1.0])
    rows, inside = np.array([10.0, 10.0, 0.0, 10.0, 0.0, 0.0]), np.array([10.0, 3.0, 0.0, 0.0, 0.0, 0.0])
    grid, area = Grid(view, MeasuredSums(counts, noise, 0, 5), rows, inside), np.array([1.0, 0.5, 0.25, 0.0])
    found = _answer([grid], area, off=0.5)
    assert found["measured"] == pytest.approx(100 + 0.3 * 40 + 0.25 * 8)
    drawn = 9 + 0.3**2 * 16 + 0.25**2 * 25
    first, second = (0.5**2 * (n**2 + v) * share * (1 - share) for n, v, share in ((40, 16, 3.5 / 11), (8, 25, 0.5)))
    alike = 2 * (first * second) ** 0.5 * (0.75 / 1.75) ** 3
    assert found["stderr"] == pytest.approx((drawn + first + second + alike) ** 0.5)
    assert (found["since"], found["measured_at"]) == (0, 5)
    # The finer of two grids, if its error is less; cells that the coarser one has in whole are taken from it.
    coarse = View(name="at_1", place="at", coordinates=("x",), bounds=((0, 8),), depth=1)
    known = MeasuredSums(np.array([150.0, 17.0, 0.0, 0.0]), np.array([4.0, 64.0, 1.0, 1.0]), 0, 5)
    above = Grid(coarse, known, np.array([20.0, 10.0, 0.0, 0.0]), np.array([20.0, 5.0, 0.0, 0.0]))
    both = _answer([above, grid], np.array([1.0, 1.0, 1.0, 0.0]), off=0.5)
    assert both["measured"] == pytest.approx(150 + 8)
    assert both["stderr"] == pytest.approx((4 + 25) ** 0.5)


def test_a_part_of_a_cell_of_which_rows_hold_none_may_hold_what_its_noise_hides() -> None:
    view = View(name="at_1", place="at", coordinates=("x",), bounds=((0, 8),), depth=1)
    known = MeasuredSums(np.array([300.0, 0.0, 0.0, 0.0]), np.full(4, 100.0**2), 0, 5)
    rows = np.array([300.0, 0.0, 0.0, 0.0])
    found = _answer([Grid(view, known, rows, np.zeros(4))], np.array([0.25, 0.0]))
    assert found["measured"] == 0
    assert found["stderr"] == pytest.approx(50)


def test_shares_of_cells_may_be_further_off_where_rows_lie_unevenly_around() -> None:
    """Within a cell, events may lie as unevenly as rows do in the cell around it, or in the one around that."""
    grids = []
    for depth, rows in ((1, [0.0, 800.0]), (2, [0.0, 0.0, 400.0, 400.0])):
        view = View(name=f"at_{depth}", place="at", coordinates=("x",), bounds=((0, 8),), depth=depth)
        held = np.array([*rows, 0.0, 0.0])
        grids.append(Grid(view, MeasuredSums(held, np.zeros_like(held), 0, 5), held, held / 2))
    uneven = 2 * (801**2 + 1) / 802**2 - 1
    for told, share in ((grids, uneven), (grids[1:], 1 / 3 * (4 * (2 + 2 * 401**2) / 804**2 - 1))):
        found = _answer(told, np.array([0.0, 0.0, 0.5, 0.0]), off=0.1)
        assert found["measured"] == pytest.approx(200)
        assert found["stderr"] == pytest.approx(400 * (share * 0.5 * 0.5) ** 0.5)
    assert _answer(grids[1:], np.array([0.0, 0.0, 0.5, 0.0]), off=0.9)["stderr"] == pytest.approx(400 * 0.9 * 0.5)


# Ends of a line that events lie along.
FAULT = np.array([[8.48, 47.34], [8.58, 47.42]])


def made_young(
    seed: int, *, fault: float | None = None, town: tuple[float, float] | None = None
) -> tuple[TableRelease, pl.DataFrame]:
    """The sixth release of many to come, of 8,000 events in three clusters near a corner of cells, and the events.

    Args:
        fault: how far from a line events lie, if there is one, and no clusters.
        town: the centre of the one place where six events of ten lie, the others being anywhere, and no clusters.
    """
    rng, number, ticks = np.random.default_rng(seed), 8000, 6
    centres = np.array([[47.37, 8.54], [47.39, 8.52], [47.38, 8.5]])
    at = centres[rng.integers(3, size=number)] + rng.normal(0, 0.008, (number, 2))
    if fault is not None:
        at = (FAULT[0] + rng.random((number, 1)) * (FAULT[1] - FAULT[0]))[:, ::-1] + rng.normal(0, fault, (number, 2))
    if town is not None:
        crowd = town + rng.normal(0, 0.04, (number, 2)) * (0.2, 0.3)
        at = np.where(rng.random((number, 1)) < 0.6, crowd, rng.uniform((47.3, 8.4), (47.5, 8.7), (number, 2)))
    start = datetime(2026, 1, 1)
    weeks = [start + timedelta(weeks=event % ticks) for event in range(number)]
    rows = pl.DataFrame({"lat": at[:, 0], "lon": at[:, 1], "time": weeks, "kind": "a"})
    place = {"name": "spot", "type": "place", "coordinates": ["lat", "lon"], "bounds": [[47.3, 47.5], [8.4, 8.7]]}
    config = StreamConfig.of(
        name="young",
        state="state",
        privacy={"epsilon": 1.0, "delta": 1e-9, "unit": "event"},
        clock={"start": start, "every": "1w", "column": "time", "horizon": 104},
        columns=[
            {"name": "kind", "type": "category", "values": ["a", "b"]},
            {**place, "events": 60_000 if town is None else 8_000},
        ],
        synthesizer={"kind": "table"},
    )
    release, _ = in_memory(config, rows, seed, number=ticks)
    assert isinstance(release, TableRelease)
    return release, rows


Young = Callable[..., tuple[TableRelease, pl.DataFrame]]


@pytest.fixture(scope="module")
def young() -> Young:
    """See :func:`made_young`: each is made once."""
    return cache(made_young)


def test_a_box_that_names_a_cell_is_the_cell(young: Young) -> None:
    """Ends of cells are rounded: the cell from 47.35 on begins at 47.349999999999994."""
    release, rows = young(0)
    inside = pl.col("lat").is_between(47.35, 47.4) & pl.col("lon").is_between(8.475, 8.55)
    told = release.mass({"lat": 47.35, "lon": 8.475}, {"lat": 47.4, "lon": 8.55})
    cell = release.table("spot_2").filter(pl.col("lat from").round(6) == 47.35, pl.col("lon from").round(6) == 8.475)
    ends = [{name: cell[f"{name} {end}"].item() for name in ("lat", "lon")} for end in ("from", "to")]
    assert told == pytest.approx(release.mass(*ends))
    assert abs(told["measured"] - rows.filter(inside).height) < 3 * told["stderr"]


@pytest.mark.slow
def test_errors_of_boxes_hold_where_events_crowd_and_the_stream_is_young(young: Young) -> None:
    """Rows lie flatter than such events: what cut cells hold is what was measured of them, not their rows."""
    off, same = [], []
    for seed in range(5):
        (release, rows), rng = young(seed), np.random.default_rng(seed)
        for _ in range(40):
            (lat, lon), (up, across) = rng.uniform((47.34, 8.46), (47.39, 8.54)), rng.uniform(0.01, 0.06, 2)
            upper = {"lat": lat + up, "lon": lon + 1.5 * across}
            told = release.mass({"lat": lat, "lon": lon}, upper)
            inside = pl.col("lat").is_between(lat, upper["lat"]) & pl.col("lon").is_between(lon, upper["lon"])
            assert told["stderr"] > 0
            off.append((told["measured"] - rows.filter(inside).height) / told["stderr"])
            same.append(round(told["measured"]) == told["count"])
    assert np.mean(np.abs(off) <= 2) >= 0.88, off
    assert np.std(off) > 0.4
    assert np.mean(same) < 0.1


@pytest.mark.sparing(1)
@pytest.mark.parametrize("town", [(47.413, 8.513), (47.4, 8.55)])
def test_errors_of_boxes_hold_around_a_town_that_is_smaller_than_a_cell(
    young: Young, town: tuple[float, float]
) -> None:
    """Within a cell, or where four cells of all grids meet: rows lie flatter than the town, and errors say so."""
    off = []
    for seed in range(2):
        (release, rows), rng = young(seed, town=town), np.random.default_rng(seed)
        for half in np.repeat([0.03, 0.06, 0.09, 0.12], 5):
            centre, far = town + rng.uniform(-0.3, 0.3, 2) * half * (0.2, 0.3), half * np.array([0.2, 0.3])
            lower, upper = ({"lat": float(lat), "lon": float(lon)} for lat, lon in (centre - far, centre + far))
            told = release.mass(lower, upper)
            inside = [pl.col(name).is_between(lower[name], upper[name]) for name in lower]
            off.append((told["measured"] - rows.filter(inside).height) / told["stderr"])
    assert np.mean(np.abs(off) <= 2) >= 0.9, off
    assert np.std(off) > 0.3


# -- polygons ------------------------------------------------------------------------------------------------

# A wedge across cells, two rectangles of which one is the cell "1" of four, and one that leaves the box.
_WEDGE = [(1.0, 3.5), (5.5, 4.5), (2.0, 7.0), (1.0, 3.5)]
_FEATURES = (
    feature(_WEDGE, name="wedge", ward=1),
    feature(rectangle(4, 0, 8, 4), name="cell", ward=2),
    feature(rectangle(6, 6, 10, 7), name="far", ward=2, rank=1),
)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> tuple[StreamConfig, TableRelease]:
    """The same events on latitudes and longitudes, and a file of polygons beside them."""
    folder = tmp_path_factory.mktemp("mapped")
    config = made(folder, place=_PLACE.replace('["x", "y"]', '["lat", "lon"]'))
    geojson(folder, *_FEATURES)
    found = Releases(config).last
    assert isinstance(found, TableRelease)
    return config, found


def of_shape(shape: Any, where: pl.Expr = EVERY) -> int:
    rows = events().filter(where, pl.col("x").is_between(0, 8))
    return int(shapely.intersects_xy(shape, rows["x"].to_numpy(), rows["y"].to_numpy()).sum())


@pytest.mark.parametrize("ends", [(0.0, 4.0, 4.0, 8.0), (0.3, 1.0, 3.7, 7.7), (-5.0, 2.2, 2.4, 99.0)])
@pytest.mark.parametrize("where", [None, "kind = 'a'"])
def test_a_polygon_that_is_a_box_is_answered_as_one(
    mapped: tuple[StreamConfig, TableRelease], ends: tuple[float, ...], where: str | None
) -> None:
    (_, release), (west, south, east, north) = mapped, ends
    box = release.mass({"lat": south, "lon": west}, {"lat": north, "lon": east}, where=where)
    turned = shapely.geometry.mapping(shapely.box(west, south, east, min(north, 89)))
    assert release.mass(json.dumps(turned), where=where) == pytest.approx(box)


def test_polygons_are_answered_with_holes_windows_and_conditions(mapped: tuple[StreamConfig, TableRelease]) -> None:
    config, release = mapped
    path = config.base / "city.geojson"
    wedge, cell = shapely.Polygon(_WEDGE), release.polygon(path, feature="cell")
    told = release.mass(release.polygon(path, feature="name=wedge"), where="kind = 'a'")
    # How rows lie within cells follows the chain, and with it every setting: one draw of many.
    assert abs(told["measured"] - of_shape(wedge, pl.col("kind") == "a")) < 3 * told["stderr"]
    assert told["count"] == pytest.approx(of_shape(wedge, pl.col("kind") == "a"), rel=0.2)
    holed = shapely.Polygon(rectangle(0, 0, 8, 8), [rectangle(2, 4, 4, 6)])
    rest = release.mass(json.dumps(shapely.geometry.mapping(holed)))
    assert rest["measured"] == pytest.approx(of_shape(holed), abs=8)
    assert release.mass(cell)["measured"] == pytest.approx(of_shape(shapely.box(4, 0, 8, 4)), abs=3)
    both = release.mass(release.polygon(path, feature="ward=2"))["measured"]
    far = release.mass(release.polygon(path, feature="far"))["measured"]
    assert both == pytest.approx(release.mass(cell)["measured"] + far, abs=20)
    start = datetime(2026, 1, 2)
    window = Releases(config).between(start, start + timedelta(days=4))
    assert isinstance(window, TableRelease)
    found = window.mass(cell)
    first, last = (datetime(2026, 1, 1) + timedelta(days=day) for day in (found["since"], found["measured_at"] + 1))
    counted = pl.col("when").is_between(first, last, closed="left")
    assert found["measured"] == pytest.approx(of_shape(shapely.box(4, 0, 8, 4), counted), abs=20)


@pytest.mark.parametrize(
    ("polygon", "said"),
    [
        (rectangle(20, 20, 30, 30), "'lon' has 0 to 8, and 'lat' 0 to 8. Name another file"),
        (rectangle(3, 100, 5, 120), "feature 1 has the latitude first, and GeoJSON the longitude: exchange them"),
        ([(0, 0), (4, 4), (4, 0), (0, 4), (0, 0)], "not valid: Self-intersection"),
        (rectangle(300, 300, 400, 400), "no Polygon or MultiPolygon of degrees"),
    ],
)
def test_polygons_that_cannot_be_are_told(
    mapped: tuple[StreamConfig, TableRelease], tmp_path: Path, polygon: Any, said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        mapped[1].mass(geojson(tmp_path, feature(polygon)))
    assert said in str(error.value)


def test_polygons_far_away_are_told_to_who_asks_without_a_box_to_widen(
    mapped: tuple[StreamConfig, TableRelease],
) -> None:
    with pytest.raises(ConfigError, match=r"polygon: lies outside of the box\. Its longitudes .*\. Name another file$"):
        mapped[1].polygon(json.dumps(shapely.geometry.mapping(shapely.box(100, 10, 101, 11))))


def test_coordinates_that_have_changed_places_are_told(young: Young) -> None:
    """Both fit degrees: neither the file nor the stream is known to be right."""
    with pytest.raises(ConfigError, match=r"They would meet if longitude and latitude changed places: in the file"):
        young(0)[0].mass(json.dumps(shapely.geometry.mapping(shapely.box(47.3, 8.4, 47.4, 8.5))))


@pytest.mark.parametrize(
    ("feature_", "said"),
    [
        (
            "Wedge",
            "has no feature 'Wedge' (--feature). Did you mean 'wedge'? Its properties are ['name', 'rank', 'ward']",
        ),
        ("1", "'1' is several features by different properties. Say 'ward=1' or 'rank=1'"),
        ("ward=7", "city.geojson': has no feature 'ward=7' (--feature)."),
    ],
)
def test_features_that_there_are_not_are_told(
    mapped: tuple[StreamConfig, TableRelease], feature_: str, said: str
) -> None:
    config, release = mapped
    with pytest.raises(ConfigError) as error:
        release.polygon(config.base / "city.geojson", feature=feature_)
    assert said in str(error.value)


def test_places_without_degrees_have_boxes_alone(release: TableRelease) -> None:
    with pytest.raises(ConfigError, match=r"found 'x', 'y'\. Ask for a box"):
        release.mass(json.dumps(shapely.geometry.mapping(shapely.box(0, 0, 1, 1))))
    with pytest.raises(SchemaError, match=r"'spt' is none\. Did you mean 'spot'"):
        release.mass({}, place="spt")


def test_of_two_places_a_box_lies_in_one_and_a_condition_says_the_other() -> None:
    located = Located()
    begin, end = (
        View(name=f"{name}_1", place=name, coordinates=(name,), bounds=((0, 8),), depth=1, located=True)
        for name in "ab"
    )
    located.schema = Schema(columns=(begin, replace(end, crossed=("a_1",))))
    with pytest.raises(SchemaError, match=r"in one place, not in 2\. Say where b is by a condition, as in b_1 = '0'\."):
        located.mass({"a": 1, "b": 2})
    located.schema = Schema(columns=(begin, end))
    with pytest.raises(SchemaError, match=r"in one place, not in 2\. No table tells of both: ask"):
        located.mass({"a": 1, "b": 2})


def test_a_box_of_another_place_than_the_one_that_is_named_is_refused() -> None:
    located = Located()
    views = (View(name=f"{c}_1", place=c, coordinates=(c,), bounds=((0, 8),), depth=1, located=True) for c in "ab")
    located.schema = Schema(columns=tuple(views))
    with pytest.raises(SchemaError, match="place: 'a' is a coordinate of 'a', not of 'b'"):
        located.mass({"a": 1}, place="b")


def test_polygons_lie_in_the_place_of_two_coordinates_without_its_name() -> None:
    """Beside an amount that is a place, too."""
    located = Located()
    fare, at, to = (
        View(name=f"{name}_1", place=name, coordinates=both, bounds=((0, 8),) * len(both), depth=1, located=True)
        for name, both in {"fare": ("fare",), "at": ("lat", "lon"), "to": ("to_lat", "to_lon")}.items()
    )
    square = json.dumps(shapely.geometry.mapping(shapely.box(0, 0, 1, 1)))
    located.schema = Schema(columns=(fare, at))
    assert [axis.name for axis in located.polygon(square).columns] == ["lat", "lon"]
    located.schema = Schema(columns=(fare, at, to))
    with pytest.raises(SchemaError, match=r"as place = 'at' \(--place at\)\. Places are at, to\."):
        located.polygon(square)


def test_the_command_answers_about_polygons(mapped: tuple[StreamConfig, TableRelease]) -> None:
    (config, release), path = mapped, "city.geojson"
    table = ("table", str(config.base / "stream.toml"))
    done = synthstream(*table, "--polygon", path, "--feature", "far", "--where", "kind = 'a'", "--csv", cwd=config.base)
    assert done.returncode == 0, done.stderr
    assert "50 % of the area of the polygons lies outside" in done.stderr
    found = pl.read_csv(done.stdout.encode()).row(0, named=True)
    told = release.mass(release.polygon(config.base / path, feature="far"), where="kind = 'a'")
    assert {key: found[key] for key in told} == pytest.approx(told)
    for more, said in (
        (("--polygon", path, "--box", "lat 0 4"), "--polygon: counts all events in it; leave out --box and columns"),
        (("--feature", "far"), "name the polygons, too: --polygon districts.geojson"),
        (("--polygon", "none.geojson"), "No such file"),
    ):
        refused = synthstream(*table, *more, cwd=config.base)
        assert refused.returncode == 2
        assert said in refused.stderr
    strip = synthstream(*table, "--box", "lat 1 2", "--csv", cwd=config.base)
    assert "lon: no --box, so the box goes from end to end of it." in strip.stderr


def star(rng: np.random.Generator, radius: float) -> Any:
    """A polygon of many corners, concave, around a place where events crowd."""
    turn = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(6, 40)))
    far = radius * rng.uniform(0.4, 1, turn.size)[:, None] * np.stack([1.5 * np.cos(turn), np.sin(turn)], axis=1)
    return shapely.make_valid(shapely.Polygon(far + rng.uniform((8.48, 47.35), (8.56, 47.41))))


@pytest.mark.sparing(1, 1)
@pytest.mark.parametrize("radius", [0.01, 0.03, 0.08])
def test_errors_of_polygons_hold(young: Young, radius: float) -> None:
    """Of several sizes, over several draws of the noise: the releases are those of the boxes above, and kept."""
    off = []
    for seed in range(5):
        (release, rows), rng = young(seed), np.random.default_rng(seed)
        for _ in range(40):
            shape = star(rng, radius)
            told = release.mass(json.dumps(shapely.geometry.mapping(shape)))
            true = shapely.intersects_xy(shape, rows["lon"].to_numpy(), rows["lat"].to_numpy()).sum()
            off.append((told["measured"] - true) / told["stderr"])
    assert np.mean(np.abs(off) <= 2) >= 0.93, off
    assert np.std(off) > 0.3


@pytest.mark.sparing(1)
@pytest.mark.parametrize("width", [0.001, 0.003, 0.008])
def test_errors_of_a_strip_along_a_fault_hold(young: Young, width: float) -> None:
    """All cells that it cuts hold more of it than their rows say, so that their errors do not cancel."""
    off = []
    for seed in range(3):
        (release, rows), rng = young(seed, fault=0.004), np.random.default_rng(seed)
        for _ in range(20):
            share = np.sort(rng.random(2))[:, None]
            strip = shapely.LineString(FAULT[0] + share * (FAULT[1] - FAULT[0])).buffer(width)
            told = release.mass(json.dumps(shapely.geometry.mapping(strip)))
            true = shapely.intersects_xy(strip, rows["lon"].to_numpy(), rows["lat"].to_numpy()).sum()
            off.append((told["measured"] - true) / told["stderr"])
    assert np.mean(np.abs(off) <= 2) >= 0.9, off


# -- series --------------------------------------------------------------------------------------------------


def came(shape: Any, first: int, last: int) -> int:
    """Events of some days in a polygon."""
    start, end = (datetime(2026, 1, 1) + timedelta(days=day) for day in (first, last + 1))
    return of_shape(shape, pl.col("when").is_between(start, end, closed="left"))


def test_a_series_counts_the_events_of_an_area_in_each_step(mapped: tuple[StreamConfig, TableRelease]) -> None:
    config, release = mapped
    found, cell, path = Releases(config), shapely.box(4, 0, 8, 4), config.base / "city.geojson"
    each = found.series(lower=release.polygon(path, feature="cell"))
    assert each.columns == ["start", "end", "measured", "stderr"]
    assert each["start"].to_list() == [datetime(2026, 1, 1 + day) for day in range(8)]
    assert each["measured"].to_list() == pytest.approx([came(cell, day, day) for day in range(8)], abs=2)
    longer = found.series(lower={"lat": 0, "lon": 4}, upper={"lat": 4, "lon": 8}, every="4d")
    assert longer["measured"].to_list() == pytest.approx([came(cell, 0, 3), came(cell, 4, 7)], abs=2)
    assert longer["whole"].all()
    all_of = found.series(lower=path, every="8d")  # what it cuts is a share of what was measured
    whole = release.mass(path)
    assert all_of.select("measured", "stderr").row(0) == pytest.approx((whole["measured"], whole["stderr"]))
    with pytest.raises(SchemaError, match="leave the column out"):
        found.series("kind", lower=path)
    command = ("series", str(config.base / "stream.toml"), "--every", "4d", "--csv")
    done = synthstream(*command, "--polygon", "city.geojson", "--feature", "cell", cwd=config.base)
    assert done.returncode == 0, done.stderr
    assert pl.read_csv(done.stdout.encode())["measured"].to_list() == pytest.approx(longer["measured"].to_list())
    refused = synthstream(*command, "--feature", "cell", cwd=config.base)
    assert refused.returncode == 2
    assert "name the polygons, too" in refused.stderr


@pytest.mark.parametrize("delta", [0, 1e-9])
def test_a_series_of_what_is_measured_once_an_epoch_says_which_days_it_counts(tmp_path: Path, delta: float) -> None:
    found, (lower, upper) = (
        Releases(made(tmp_path, delta=delta, measure="epochs")),
        ({"x": 0, "y": 4}, {"x": 4, "y": 8}),
    )
    each = found.series(lower=lower, upper=upper)
    assert each["start"].to_list() == [datetime(2026, 1, 1), *each["end"].to_list()[:-1]]
    assert 1 < each.height < 8
    spans = [pl.col("when").is_between(a, b, closed="left") for a, b in each.select("start", "end").iter_rows()]
    assert each["measured"].to_list() == pytest.approx([true(span, x=(0, 4), y=(4, 8)) for span in spans])
    with pytest.raises(NotReleased, match="Leave 'every' out"):
        found.series(lower=lower, upper=upper, every="2d")
    asked = ["table", str(tmp_path / "stream.toml"), "--box", "x 0 4", "--box", "y 4 8"]
    told = CliRunner().invoke(app, asked)
    assert "each table of this stream counts one epoch alone" in told.stderr
    ends = [f"{end:%Y-%m-%d}" for end in each["end"]]
    added = CliRunner().invoke(app, [*asked, "--between", "2026-01-01", ends[1], "--csv"])
    assert pl.read_csv(added.stdout.encode())["measured"].item() == pytest.approx(each["measured"][:2].sum())
    two = CliRunner().invoke(app, [*asked, "--where", "kind = 'a' AND new", "--between", "2026-01-01", ends[1]])
    assert "tell of a window only if each of its epochs has them" in two.stderr, two.stderr
    refused = CliRunner().invoke(app, [*asked, "--between", "2026-01-01", "2026-01-08"])
    assert "--between: this stream measures its tables once an epoch" in refused.stderr, refused.stderr
