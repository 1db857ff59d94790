"""A stream of points from the user's side: configuration, rows in their own units, boxes, means, resuming."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import synthstream
from synthstream.cli.app import app
from synthstream.config.config import StreamConfig
from synthstream.config.synthesis import SynthesizerConfig, partition_of
from synthstream.errors import ConfigError, HorizonExhausted, SchemaError, StateError
from synthstream.fit.cloud import Cloud
from synthstream.kernel.gate import Gate, Question
from synthstream.release.points import PointRelease
from synthstream.strategies.times import NumberTimes
from synthstream.stream.stream import Stream
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray
from tests.support.selective import Interrupted, Mortal
from tests.support.streams import published
from tests.support.towns import TOML, rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows().write_parquet(tmp_path / "rows.parquet")
    (tmp_path / "stream.toml").write_text(TOML)
    return tmp_path


def changed(**changes: str) -> str:
    text = TOML
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    return text


def opened(folder: Path, **changes: str) -> Stream:
    config = StreamConfig.from_toml(changed(**changes), base=folder)
    return Stream(config, gates=lambda tick: SeededGate(f"0/{tick}"), seed=0)


def test_rows_come_back_in_their_own_units_and_where_they_were(folder: Path) -> None:
    with opened(folder) as stream:
        for release in stream.run():
            assert isinstance(release, PointRelease)
        found = release.rows()
        assert found.columns == ["lat", "lon"]
        assert abs(len(found) - 4000) < 400
        assert found["lat"].is_between(30, 40).all()
        assert found["lon"].is_between(-120, -100).all()
        south = found.filter(pl.col("lat") < 35.5)
        assert len(south) / len(found) == pytest.approx(0.7, abs=0.05)
        assert south["lon"].median() == pytest.approx(-117, abs=0.3)
        assert release.rows().equals(found)
        assert len(release.rows(17)) == 17
        assert release.rows(0).columns == ["lat", "lon"]
        assert len(release.rows(100_000, seed=np.random.default_rng(1))) == 100_000
        with pytest.raises(ValueError, match="at least 0"):
            release.rows(-1)


def test_a_box_holds_what_it_should(folder: Path) -> None:
    true = rows()
    with opened(folder) as stream:
        *_, release = stream.run()
        assert isinstance(release, PointRelease)
        assert release.mass({})["measured"] == pytest.approx(release.model.masses.sum())
        for lower, upper in (
            ({"lat": 32.0}, {"lat": 34.0}),
            ({"lat": 37.0, "lon": -110.0}, {}),
            ({}, {"lon": -112.3}),
        ):
            inside = pl.lit(value=True)
            for name, bound in lower.items():
                inside &= pl.col(name) >= bound
            for name, bound in upper.items():
                inside &= pl.col(name) < bound
            told = release.mass(lower, upper)
            assert told["count"] == round(told["measured"])
            assert 0 < told["stderr"] < 200
            assert abs(told["measured"] - true.filter(inside).height) < 4 * told["stderr"] + 100
        # A box finer than the finest nodes takes its share of their volume.
        thin, wide = (release.mass({"lat": 33.0}, {"lat": end})["measured"] for end in (33.001, 33.002))
        assert wide == pytest.approx(2 * thin, rel=1e-6)
        with pytest.raises(SchemaError, match="'height' is not a column"):
            release.mass({"height": 1.0}, {})
        with pytest.raises(SchemaError, match="lat: its lower bound 34 is above its upper one 33"):
            release.mass({"lat": 34}, {"lat": 33})
        with pytest.raises(SchemaError, match="lat: it has no width: both bounds are 35"):
            release.mass({"lat": 35.0}, {"lat": 35.0})
        bounds: list[Any] = [float("nan"), "33", None]
        for bound in bounds:
            with pytest.raises(SchemaError, match="lat: a bound must be a number"):
                release.mass({"lat": bound}, {})
        with pytest.raises(
            SchemaError, match=r"ask for the events in a box: mass\(lower, upper\), or table --box 'lat"
        ):
            release.table(["lat"])
        with pytest.raises(SchemaError, match=r"count: .* no tables.* mass\(lower, upper\), or of all: mass\({}\)"):
            release.count("lat > 33")
        assert release.mass({}) == release.mass({}, {})
        with pytest.raises(TypeError, match="name the coordinate of each end"):
            release.mass(33, 34)  # type: ignore[arg-type]


def test_a_mean_comes_with_its_error(folder: Path) -> None:
    true = rows()
    with opened(folder) as stream:
        *_, release = stream.run()
        assert isinstance(release, PointRelease)
        told = release.mean(lambda frame: frame["lat"].to_numpy())
        assert told["mean"] == pytest.approx(release.rows()["lat"].mean(), abs=0.02)
        assert told["mean"] == pytest.approx(true["lat"].to_numpy().mean(), abs=2 * told["stderr"])
        assert release.mean(lambda frame: frame["lat"]) == release.mean("lat") == told
        with pytest.raises(SchemaError, match="mean: 'height' is not a column"):
            release.mean("height")
        assert 0 < told["stderr"] < 0.2
        coarse = release.mean(lambda frame: frame["lat"], points=100)  # within nodes, points lie as all do
        assert coarse["mean"] == pytest.approx(told["mean"], abs=0.2)
        assert coarse["stderr"] > told["stderr"]
        step, told = release.mean(lambda frame: frame["lat"] >= 35), release.mass({"lat": 35})
        whole = release.mass({})["measured"]
        assert step["mean"] == pytest.approx(told["measured"] / whole, abs=1e-9)
        assert step["stderr"] < told["stderr"] / whole  # noise of the number of all events is no part of it
        assert release.mean(lambda frame: frame["lat"] * 0 + 7) == pytest.approx({"mean": 7, "stderr": 0})
        with pytest.raises(ValueError, match="points must be at least 1"):
            release.mean(lambda frame: frame["lat"], points=0)
        # Of a number that is as good as unknown the mean is too.
        held, steps = cast(Cloud, release.model), np.repeat(np.linspace(0, 1, 16)[:, None], 2, axis=1)
        unsure, (mean, stderr) = replace(held, total_variance=float(held.held.sum()) ** 2 / 4), held.mean(steps)
        assert stderr < 0.1
        assert unsure.mean(steps) == pytest.approx((mean, max(mean, 1 - mean)))
        wrong: list[Callable[[pl.DataFrame], Any]] = [
            lambda frame: frame.to_numpy(),
            lambda frame: frame["lat"][:3],
            lambda frame: 5.0,
            lambda frame: frame["lat"] * float("nan"),
            lambda frame: ["text"] * len(frame),
            lambda frame: None,
        ]
        for f in wrong:
            with pytest.raises(ValueError, match="f must return one"):
                release.mean(f)
        with pytest.raises(ValueError, match=r"each row of a frame, not .* nan"):
            release.mean(lambda frame: frame["lat"] * float("nan"))


def test_nodes_are_published_with_their_ranges(folder: Path) -> None:
    with opened(folder) as stream:
        releases = list(stream.run())
    tables = releases[-1].tables
    assert tables.columns[:6] == ["level", "node", "lat from", "lat to", "lon from", "lon to"]
    top = tables.filter(pl.col("level") == 1)
    assert top["lat from"].to_list() == [30, 35]
    assert top["lat to"].to_list() == [35, 40]
    assert top["lon to"].to_list() == [-100, -100]
    for level in tables["level"].unique():
        assert tables.filter(pl.col("level") == level)["count"].sum() == pytest.approx(tables["count"][0])
    read = [release.tables.drop_nulls("measured") for release in releases]
    assert any(frame.height for frame in read)
    assert all((frame["stderr"] > 0).all() for frame in read)


def test_a_stream_that_stops_goes_on_as_if_it_had_not(folder: Path) -> None:
    with opened(folder) as stream:
        whole = [release.head for release in stream.run()]
        final = stream.rows()
    other = folder / "other"
    other.mkdir()
    rows().write_parquet(other / "rows.parquet")
    heads = []
    for day in (3, 9, 21):
        with opened(other) as stream:
            heads += [r.head for r in stream.run(until=datetime(2026, 1, day, tzinfo=UTC))]
            assert stream.last is not None
            last = stream.last.rows()
        with opened(other) as stream:
            assert stream.rows().equals(last)
    assert heads == whole
    assert last.equals(final)


def test_bad_cells_have_their_places(folder: Path) -> None:
    values: list[Any] = [None, float("nan"), float("inf"), -float("inf"), 1e300, 35.0]
    frame = pl.DataFrame({"when": [datetime(2026, 1, 1)] * 6, "lat": values, "lon": [-110.0] * 6})
    with opened(folder) as stream:
        stream.update(frame)
        stream.update(frame.select(pl.all().cast(pl.String)))
        counts = stream._store.pending(0)
    assert counts.numbers.sum() == 12
    partition = stream.mechanism.partition
    found = dict(zip(partition.codes(counts.cells)[:, 0].tolist(), counts.numbers.tolist(), strict=True))
    assert found == {0: 6, 32: 2, 63: 4}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("max = 40\n", "max = 30\n", "min must be below max"),
        ("min = 30\n", "min = 41\n", "min must be below max, and both finite"),
        ("max = 40\n", "max = inf\n", "finite"),
        ("missing = 30\n", "", "missing: say as which number"),
        ("missing = 30\n", "missing = nan\n", "missing"),
        ("missing = 30\n", "missing = 41\n", "missing: must lie between"),
        ("missing = 30\n", "missing = 30\nbins = 4\n", "bins: has no effect"),
        ("min = 30\nmax = 40\n", "edges = [30, 40]\n", "edges: has no effect"),
        ("depth = 12\n", "depth = 31\n", "30"),
        ("depth = 12\n", "depth = 27\n", 'depth = 27: kind = "points" serves at most 26'),
        ("depth = 12\n", "depth = 1\n", "2 columns need at least 2 cuts"),
        ("depth = 12\n", "order = 2\n", 'order: has no effect with kind = "points"'),
        ('kind = "points"\n', 'kind = "points"\npicks = 2\n', "picks: has no effect"),
        ('type = "number"\nmin = 30', 'type = "integer"\nmin = 30', "takes numbers only"),
        ("epsilon = 4.0", "epsilon = 1e-9", r"from 1e-06 to 1e\+06, not 1e-09"),
    ],
)
def test_settings_that_cannot_be_are_named(folder: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        opened(folder, **{old: new})


def test_the_state_of_the_papers_points_fits_a_database() -> None:
    """40 bytes a node, and 8 a cell in one dimension; what else it holds grows with segments that ended."""
    assert partition_of(SynthesizerConfig(kind="hypercube", depth=21), 1).depth == 21
    assert 2**22 * (40 + 12 * 16) + 2**21 * 8 < 10**9
    with pytest.raises(ConfigError, match='depth = 22: kind = "hypercube" serves at most 21'):
        partition_of(SynthesizerConfig(kind="hypercube", depth=22), 2)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('kind = "points"', 'kind = "point"', "points"),
        ("depth = 12", "depth = 0", "depth"),
        ('unit = "event"', 'unit = "event"\nneighbours = "replace"', "replace-one"),
        ("missing = 30\n", "", "missing"),
        ("min = 30", 'min = "30"', "min"),
    ],
)
def test_one_mistake_brings_no_others(folder: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        opened(folder, **{old: new})
    text = str(caught.value)
    assert says in text
    assert "bins" not in text
    assert "at least one column" not in text


def test_a_number_of_a_table_needs_bins(folder: Path) -> None:
    with pytest.raises(ConfigError, match="in how many equal bins"):
        opened(folder, **{'kind = "points"\ndepth = 12\n': 'kind = "table"\n'})


def test_from_the_command_line(folder: Path) -> None:
    def said(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, str(folder / "stream.toml")])
        assert result.exit_code == 0, result.output
        return result.output

    assert "W1: how far points are off" in said("plan")
    assert "20 new release(s)" in said("run", "--yes")
    assert "20 release(s)" in said("status")
    assert "lat,lon" in said("sample", "-n", "3")
    with synthstream.open(folder / "stream.toml") as stream:
        assert len(stream.rows(5)) == 5


def test_no_release_comes_after_the_horizon_or_before_its_time(folder: Path) -> None:
    for changes in ({}, {"epsilon = 4.0": 'epsilon = 4.0\nneighbours = "replace-one"'}, LITERAL):
        shorter = {**changes, "horizon = 20": "horizon = 2", "until = 2026-01-21": "until = 2026-01-03"}
        place = folder / str(len(changes)) / str(changes == LITERAL)
        place.mkdir(parents=True)
        rows().write_parquet(place / "rows.parquet")
        with opened(place, **shorter) as stream:
            assert len(list(stream.run())) == 2
            with pytest.raises(HorizonExhausted):
                stream.release()
            assert stream.closed == 2


class Broken(Gate):
    """Fails at one call of the gate, after it has answered those before."""

    def __init__(self, gate: Gate, fails_at: int) -> None:
        self._gate, self._left = gate, fails_at

    def answer(self, question: Question) -> IntArray:
        self._left -= 1
        if self._left < 0:
            raise OSError("no more")
        return self._gate.answer(question)


@pytest.mark.parametrize("literal", [False, True])
def test_a_tick_that_fails_is_finished_from_what_was_drawn(folder: Path, literal: bool) -> None:
    """Whatever fails after the first draw: the tick is never drawn again, and rows that come later wait."""
    config = StreamConfig.from_toml(changed(**LITERAL) if literal else TOML, base=folder)
    at, draws, left = (4 if literal else 3), 0, [3]

    def gates(tick: int) -> Any:
        return Broken(CountingGate(), left[0]) if tick == at else SeededGate(tick)

    class CountingGate(SeededGate):
        def __init__(self) -> None:
            super().__init__(3)

        def answer(self, question: Question) -> IntArray:
            nonlocal draws
            draws += 1
            return super().answer(question)

    with Stream(config, gates=gates, seed=0) as stream, pytest.raises(StateError):
        list(stream.run())
    before = draws
    assert before
    left[0] = 10**9
    with Stream(config, gates=gates, seed=0) as stream:
        # Finished when it was opened: the committed answers were taken, and repeated by the simulated gate alone.
        assert stream.closed == at + 1
        answers = draws - before
    assert answers >= before


@pytest.mark.parametrize("signed", [False, True])
def test_the_last_tick_of_all_is_finished_from_what_was_drawn(tmp_path: Path, signed: bool) -> None:
    """The epoch ends there, whatever came; each of its answers is the last of a process once."""

    def run(place: Path, lives: int | None) -> bool:
        """Whether all three ticks were released, by a process that ends with so many answers of a tick."""
        gates = [Mortal(SeededGate(f"{tick}"), 99 if lives is None else lives, []) for tick in range(3)]
        config = StreamConfig.from_toml(text, base=place)
        with contextlib.suppress(Interrupted), Stream(config, gates=gates.__getitem__) as one:
            return len(list(one.run())) > 0 or one.closed == 3
        return False

    text = changed(**{"horizon = 20": "horizon = 3", "until = 2026-01-21": "until = 2026-01-04"})
    text = ('op = "op"\n' if signed else "") + text
    frame = rows(6000).with_columns(op=pl.Series([1, 1, -1] * 2000))
    late = pl.col("when").dt.day() == 3  # too few events to end an epoch
    for place in (tmp_path / "whole", tmp_path / "broken"):
        place.mkdir()
        frame.filter(~late | (pl.int_range(pl.len()) % 20 == 0)).write_parquet(place / "rows.parquet")
    assert run(tmp_path / "whole", None)
    deaths = next(lives for lives in range(99) if run(tmp_path / "broken", lives))
    assert deaths > (8 if signed else 4)
    assert published(tmp_path / "broken/releases") == published(tmp_path / "whole/releases")
    releases = synthstream.releases(StreamConfig.from_toml(text, base=tmp_path / "whole"))
    last: Any = releases.at(2).measured
    for side in [last.came, last.gone] if signed else [last]:
        times = NumberTimes(epsilon=4.0, epochs=2)
        assert side.closing
        assert side.blocks
        assert times.epoch_of(side.total) == times.epoch_of(side.begun)  # by its number it would have gone on


LITERAL = {
    "epsilon = 4.0": 'epsilon = 4.0\nneighbours = "replace-one"',
    'kind = "points"': 'kind = "hypercube"',
}


def test_the_papers_own_gives_as_many_rows_as_there_are_events(folder: Path) -> None:
    true = rows()
    with opened(folder, **LITERAL) as stream:
        for release in stream.run():
            end = release.end.replace(tzinfo=None)
            assert len(release.rows()) == true.filter(pl.col("when") < end).height
        assert isinstance(release, PointRelease)
        south = release.rows().filter(pl.col("lat") < 35.5)
        assert len(south) / 4000 == pytest.approx(0.7, abs=0.15)
        told = release.mass({"lat": 33.0})
        assert (told["measured"], told["stderr"]) == (None, None)
        assert told["count"] == pytest.approx(release.rows().filter(pl.col("lat") >= 33).height, abs=40)
        assert release.mean(lambda frame: frame["lat"])["stderr"] is None
        assert release.tables.filter(pl.col("level") == 3)["measured"].dtype == pl.Float64
        assert "the number of points" in stream.status()["spent"][0]["trusts"][0]


def test_the_papers_own_goes_on_where_it_stopped(folder: Path) -> None:
    with opened(folder, **LITERAL) as stream:
        whole = [release.head for release in stream.run()]
    other = folder / "other"
    other.mkdir()
    rows().write_parquet(other / "rows.parquet")
    heads = []
    for day in (5, 14, 21):
        with opened(other, **LITERAL) as stream:
            heads += [r.head for r in stream.run(until=datetime(2026, 1, day, tzinfo=UTC))]
    assert heads == whole


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({'kind = "points"': 'kind = "hypercube"'}, 'Say neighbours = "replace-one"'),
        (LITERAL | {'state = "state"': 'state = "state"\nop = "sign"'}, "without op"),
        (LITERAL | {"delta = 0": "delta = 1e-9"}, "no use for delta"),
        (LITERAL | {"depth = 12": 'depth = 12\nschedule = "fixed"'}, "schedule: has no effect"),
    ],
)
def test_the_papers_own_says_what_it_needs(folder: Path, changes: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        opened(folder, **changes)
