"""Points between two moments: what came then, how far it may be off, what has changed, and series of a box."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream import Releases, Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.counts import Counts
from synthstream.errors import NotReleased, SchemaError
from synthstream.kernel.points import Points
from synthstream.kernel.turnstile import Turnstile
from synthstream.partition import Partition
from synthstream.privacy import Budget, Unit
from synthstream.release.points import PointRelease
from synthstream.release.window import PointWindow
from synthstream.strategies.levels import Schedule
from synthstream.stream.recovery import adopt
from synthstream.synthesizers.contract import Windowed
from synthstream.synthesizers.points import FromBothSides, FromNodes
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support import streams
from tests.support.gates import ExactGate
from tests.support.polygons import feature, geojson, rectangle
from tests.support.towns import TOML, rows

WEST = pl.col("lon") < -110


@pytest.fixture
def released(tmp_path: Path) -> Releases:
    """Twenty days without noise; the towns take turns: ten days at the one, ten at the other."""
    found = rows().with_columns(
        lat=pl.when(pl.col("when") < datetime(2026, 1, 11)).then(33.0).otherwise(38.0),
        lon=pl.when(pl.col("when") < datetime(2026, 1, 11)).then(-117.0).otherwise(-104.0),
    )
    found.write_parquet(tmp_path / "rows.parquet")
    (tmp_path / "stream.toml").write_text(TOML)
    config = StreamConfig.from_toml(TOML, base=tmp_path)
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        list(stream.run())
    return Releases(config)


def came(first: int, last: int) -> int:
    start, end = (datetime(2026, 1, 1) + timedelta(days=d) for d in (first, last + 1))
    return rows().filter(pl.col("when").is_between(start, end, closed="left")).height


def between(found: Releases, first: int, last: int) -> PointWindow:
    window = found.between(f"2026-01-{first + 1:02}", f"2026-01-{last + 2:02}")
    assert isinstance(window, PointWindow)
    return window


def test_a_window_holds_what_came_in_it(released: Releases) -> None:
    for first, last in ((0, 4), (2, 8), (11, 18), (0, 19)):
        window = between(released, first, last)
        assert f"ticks {first} to {last}" in window.about
        assert window.manifest()["since"] == first
        assert window.measured.events()[0] == came(first, last)
        assert not {"start", "end"} & {*window.tables.columns}  # as it is no tick
        assert window.tables["measured"].is_null().all()  # what was read of nodes is in no table of it
        assert window.tables["measured"].null_count() == len(window.tables)  # what was read of nodes is in no table
        assert window.mass({})["measured"] == pytest.approx(came(first, last))
        assert len(window.rows()) == pytest.approx(came(first, last), abs=1)
        west = window.mass({}, {"lon": -110})["measured"]
        assert west == pytest.approx(came(first, min(last, 9)) if first < 10 else 0, abs=0.05 * came(0, 19))
        assert window.rows().equals(between(released, first, last).rows())


def test_where_more_went_than_came_a_window_says_by_how_much(tmp_path: Path) -> None:
    frame = streams.rows(300, 3).with_columns(when=pl.lit(datetime(2026, 1, 1, 12)), op=pl.lit(1))
    gone = frame.head(200).with_columns(when=pl.lit(datetime(2026, 1, 6, 12)), op=pl.lit(-1))
    pl.concat([frame, gone]).write_parquet(tmp_path / "rows-1.parquet")
    config = streams.configured(tmp_path, "points-signed")
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        list(stream.run())
    found = Releases(config)
    window = between(found, 5, 5)
    number = window.mass({})
    assert number["measured"] == pytest.approx(number["count"]) == -200
    assert number["stderr"] < 150  # 0 would be off by 200
    assert window.rows().is_empty()
    assert found.series()["measured"][5] == pytest.approx(-200)
    place = str(tmp_path / "stream.toml")
    asked = ["table", place, "--between", "2026-01-06", "2026-01-07"], ["series", place], ["table", place]
    told = ["Rows may take events away" in CliRunner().invoke(app, words).stderr for words in asked]
    assert told == [True, True, False]


@pytest.mark.slow
def test_a_series_of_a_box_and_what_has_changed(released: Releases) -> None:
    each = released.series(upper={"lon": -110}, every="5d")
    assert each.columns == ["start", "end", "measured", "stderr", "whole"]
    assert each["start"].to_list() == [datetime(2026, 1, d) for d in (1, 6, 11, 16)]
    assert each["measured"][:2].sum() == pytest.approx(came(0, 9), abs=0.06 * came(0, 19))
    assert each["measured"][2:].sum() == pytest.approx(0, abs=0.06 * came(0, 19))
    assert released.series()["measured"].to_list() == pytest.approx([came(d, d) for d in range(20)])
    found = released.last.compare(released.at(9))
    assert found.columns[-7:] == ["then", "now", "difference", "measured", "stderr", "z", "beyond_noise"]
    sides = found.filter(pl.col("level") == 2).sort("lon from", "lat from")  # south and north, of west and east
    assert sides["difference"].to_list() == pytest.approx([0, 0, 0, came(10, 19)], abs=0.05 * came(0, 19))
    assert sides["beyond_noise"].to_list()[-1]
    with pytest.raises(SchemaError, match="leave them out"):
        released.last.compare(released.at(9), ["lat"])
    with pytest.raises(SchemaError, match="is not earlier"):
        released.at(3).compare(released.last)
    windows = [released.between(f"2026-01-{first:02}", f"2026-01-{first + 3:02}") for first in (1, 4)]
    with pytest.raises(SchemaError, match=r"such a difference is not known; ask each for the events in a box: .*--box"):
        windows[1].compare(windows[0])
    last = released.last
    assert isinstance(last, PointRelease)
    with pytest.raises(SchemaError, match="lat: it lies outside of the place, which goes from "):
        last.mass({"lat": 89.0})
    with pytest.raises(SchemaError, match="a stream of points has no tables of columns; leave the column out"):
        released.series("lat")
    place = str(released.config.base / "stream.toml")
    west = str(geojson(released.config.base, feature(rectangle(-120, 30, -110, 40), name="west")))
    for area in (["--box", "lon -120 -110"], ["--polygon", west, "--feature", "west"]):
        told = CliRunner().invoke(app, ["series", place, "--every", "5d", *area, "--csv"])
        assert told.exit_code == 0, told.output
        read = pl.read_csv(told.stdout.encode())
        assert read["measured"].to_list() == pytest.approx(each["measured"].to_list(), rel=1e-6, abs=1e-6)
        assert read["stderr"].to_list() == pytest.approx(each["stderr"].to_list(), rel=1e-6)
    assert released.series(lower=west, every="5d")["stderr"].to_list() == pytest.approx(each["stderr"].to_list())
    told = CliRunner().invoke(
        app, ["table", place, "--between", "2026-01-01", "2026-01-11", "--box", "lat 30 35", "--csv"]
    )
    count, measured, _ = told.stdout.splitlines()[1].split(",")
    assert told.stdout.splitlines()[0] == "count,measured,stderr"  # as of a place
    assert int(count) == round(float(measured)) == pytest.approx(came(0, 9), abs=0.06 * came(0, 19))
    told = CliRunner().invoke(app, ["table", place, "--csv"])  # all events
    assert float(told.stdout.splitlines()[1].split(",")[1]) == pytest.approx(came(0, 19), rel=0.01)
    told = CliRunner().invoke(app, ["table", place, "lat"])
    assert "or table --box 'lat " in str(told.exception) + told.output


def test_no_window_spans_the_loss_of_a_state(released: Releases) -> None:
    config = released.config
    shutil.rmtree(config.state)
    for tick in range(10, 20):
        shutil.rmtree(config.base / f"releases/{tick:06}")
    adopt(config, gates=lambda tick: ExactGate())
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        list(stream.run())
    found = Releases(config)
    with pytest.raises(NotReleased, match=r"anew at 2026-01-11\. Ask for windows on either side"):
        found.between("2026-01-08", "2026-01-15")
    for first, last in ((11, 13), (3, 6)):
        assert between(found, first, last).mass({})["measured"] == pytest.approx(came(first, last))


def _made(delta: float, *, signed: bool) -> FromNodes | FromBothSides:
    how: dict[str, Any] = {"unit": Unit(kind="event", signed=True)} if signed else {}
    partition, budget = Partition(dimension=2, depth=12), Budget(epsilon=2.0, delta=delta)
    side = Points(partition=partition, budget=budget, horizon=None, schedule=Schedule(dimension=2), **how)
    return FromBothSides(mechanism=Turnstile(side=side)) if signed else FromNodes(mechanism=side)


@pytest.mark.sparing(2, 1)
@pytest.mark.parametrize(
    ("delta", "signed", "tight"), [(0.0, False, False), (1e-6, False, False), (0.0, True, False), (0.0, False, True)]
)
def test_errors_of_windows_are_about_right(delta: float, signed: bool, tight: bool) -> None:
    """A cluster that wanders, any two of 40 ticks. A second: two whole streams.

    Spread: boxes of a quarter and a sixteenth. Tight: those, and boxes of a 64th, that hold over 2 % of the events;
    nearly all of a node then lies in one half, and readings bounded by their node's mass have larger errors than they
    tell (76 % within two).
    """
    made, deviations = _made(delta, signed=signed), list[float]()
    spread, elsewhere = (0.02, 0.0) if tight else (0.1, 0.3)
    for seed in range(2):
        rng, gate = np.random.default_rng(seed), SeededGate(seed)
        state, last, history, truth = made.mechanism.init(), None, dict[int, Any](), list[Any]()
        for tick in range(40):
            at = np.clip(0.3 + 0.4 * tick / 40 + spread * rng.standard_normal((200, 2)), 0, 1 - 1e-9)
            at[rng.random(200) < elsewhere] = rng.random(2)
            cells = made.partition.cells((at * 64).astype(np.int32))
            weights = np.where(rng.random(200) < 0.3, -1, 1) if signed else None
            counts: Counts = made.counted(cells, weights)
            state, history[tick], _ = made.step(state, counts, gate, last, {})
            last = made.fit(tick, history.__getitem__, last, {}, seed=0)
            truth.append(np.bincount(cells, weights, minlength=2**12))
        for _ in range(30):
            before, now = sorted(rng.choice(40, 2, replace=False).tolist())
            found: Windowed = made.between(before, now, history.__getitem__)
            assert np.isfinite(found.model.plain_errors).all()
            for level in (2, 4, 6) if tight else (2, 4):
                true = np.sum(truth[before + 1 : now + 1], axis=0).reshape(2**level, -1).sum(axis=1)
                if len(known := found.model.known(level + 1)) > level:
                    own = true > 0.02 * true.sum() if tight else np.full(true.size, True)
                    deviations += ((known[level][0] - true) / known[level][1])[own].tolist()
    assert (0.85 if tight else 0.9) <= np.mean(np.abs(deviations) < 2) <= 0.995
