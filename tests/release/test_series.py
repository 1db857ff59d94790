"""The numbers of single ticks and of longer steps: what they count, how far they may be off, and how they are kept."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from synthstream import Budget, Clock, Releases, Stream, StreamConfig
from synthstream.errors import ConfigError, NotReleased, SchemaError
from synthstream.kernel.counters import Toeplitz
from synthstream.kernel.gate import Gate
from synthstream.kernel.tables import Refreshed
from synthstream.measured import Measured
from synthstream.publish.folder import ParquetSink
from synthstream.release.series import Step, counted, steps
from synthstream.strategies.variances import _kept
from synthstream.stream.verification import verify
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import Workload
from tests.support.gates import ExactGate
from tests.support.streams import TICKS, adopted, configured, rows


def exact(tick: int) -> Gate:
    return ExactGate()


def seeded(tick: int) -> Gate:
    return SeededGate(f"series/{tick}")


def ran(folder: Path, kind: str, *, gates: object = exact) -> StreamConfig:
    config = configured(folder, kind)
    rows(400, 1).write_parquet(folder / "rows-1.parquet")
    with Stream(config, gates=gates) as stream:  # type: ignore[arg-type]
        list(stream.run())
    return config


def truth() -> dict[tuple[int, str], int]:
    """True counts by tick and ward."""
    frame = rows(400, 1).select(tick=(pl.col("when") - datetime(2026, 1, 1)).dt.total_days(), ward="ward")
    return {(tick, ward): n for tick, ward, n in frame.group_by("tick", "ward").len().iter_rows()}


def lines_of(config: StreamConfig, span: str) -> pl.DataFrame:
    assert config.sink is not None
    whole = pl.read_parquet(sorted(config.sink.path.glob("*/series.parquet")))
    return whole.filter(pl.col("span") == span, pl.col("column") == "ward", pl.col("value").is_in(["A", "B", "C"]))


# -- what is published ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["always", "refresh"])
def test_each_release_has_the_numbers_of_its_own_tick(tmp_path: Path, kind: str) -> None:
    config, true = ran(tmp_path, kind), truth()
    ticks, running = lines_of(config, "tick"), lines_of(config, "running")
    assert ticks.height == running.height == 3 * TICKS
    for tick, start, end, ward, measured in ticks.select("tick", "start", "end", "value", "measured").iter_rows():
        assert (start, end) == (datetime(2026, 1, 1 + tick), datetime(2026, 1, 2 + tick))
        assert measured == pytest.approx(true.get((tick, ward), 0), abs=0.2)
    assert running["start"].unique().to_list() == [datetime(2026, 1, 1)]
    summed = ticks.sort("tick").with_columns(pl.col("measured").cum_sum().over("value"))
    assert np.allclose(summed.sort("tick", "value")["measured"], running.sort("tick", "value")["measured"])
    release = Releases(config).at(3)
    assert release.series.filter(pl.col("tick") != 3).is_empty()
    own = release.table(["ward"]).select("measured", "stderr")
    last = release.series.filter(pl.col("span") == "running", pl.col("column") == "ward")
    assert last.select("measured", "stderr").equals(own)


@pytest.mark.parametrize("kind", ["always", "refresh", "epochs"])
def test_a_series_reads_each_release_once(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked, read = Releases(ran(tmp_path, kind, gates=seeded)), list[tuple[int, str]](), ParquetSink.read

    def reading(self: ParquetSink, tick: int, name: str) -> pl.DataFrame:
        asked.append((tick, name))
        return read(self, tick, name)

    monkeypatch.setattr(ParquetSink, "read", reading)
    found.series("ward")
    assert asked == [(tick, "measured.parquet") for tick in range(TICKS)]


def test_what_a_tick_shares_with_others_is_reckoned_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, asked, shared = Releases(ran(tmp_path, "refresh", gates=seeded)), list[tuple[int, int]](), Toeplitz.shared

    def reckoned(self: Toeplitz, s: int, t: int) -> float:
        asked.append((s, t))
        return shared(self, s, t)

    _kept.cache_clear()
    monkeypatch.setattr(Toeplitz, "shared", reckoned)
    found.series("ward")
    assert len(asked) == len({*asked}) <= 3 * TICKS  # with itself, with the tick before, with the last refresh


def test_in_pure_dp_a_line_of_a_column_is_an_epoch(tmp_path: Path) -> None:
    """Epochs of this stream begin with ticks 0, 1, 2, 3, 5, 8."""
    config, true = ran(tmp_path, "epochs"), truth()
    one = lines_of(config, "tick").filter(pl.col("value") == "A")
    assert [(start.day - 1, end.day - 2) for start, end in one.select("start", "end").iter_rows()] == [
        (0, 0), (1, 1), (2, 2), (3, 4), (5, 7),
    ]  # fmt: skip
    assert one["measured"].to_list() == [
        sum(true.get((tick, "A"), 0) for tick in range(start.day - 1, end.day - 1))
        for start, end in one.select("start", "end").iter_rows()
    ]
    found = Releases(config)
    assert found.series().height == TICKS  # the total is known at every tick
    assert found.series("ward").filter(pl.col("value") == "A")["measured"].equals(one["measured"])
    with pytest.raises(NotReleased, match="Leave 'every' out"):
        found.series("ward", every="2d")


@pytest.mark.parametrize("kind", ["points", "hypercube"])
def test_releases_of_points_hold_none(tmp_path: Path, kind: str) -> None:
    config = ran(tmp_path, kind)
    with pytest.raises(SchemaError, match="streams of points"):
        _ = Releases(config).last.series
    with pytest.raises(NotReleased, match="points has no tables; ask series"):
        Releases(config).counts()
    if kind == "hypercube":
        with pytest.raises(NotReleased, match="have no windows"):
            Releases(config).series()
    assert not (tmp_path / "releases/000000/series.parquet").exists()


def test_a_series_is_a_function_of_what_was_measured(tmp_path: Path) -> None:
    config = ran(tmp_path, "refresh", gates=seeded)
    shutil.rmtree(config.state)
    assert not verify(config, rebuild=True).findings
    path = tmp_path / "releases/000003/series.parquet"
    path.write_bytes(path.read_bytes()[:-9] + b"123456789")
    assert [fault.what for fault in verify(config).findings] == ["series.parquet is not what was published"]


@pytest.mark.parametrize("kind", ["always", "refresh"])
def test_a_series_goes_on_after_a_lost_state(tmp_path: Path, kind: str) -> None:
    config = adopted(tmp_path, kind, exact)
    found = Releases(config).series("ward").filter(pl.col("value") == "A")
    assert found["measured"].to_list() == pytest.approx([truth().get((t, "A"), 0) for t in range(TICKS)], abs=0.2)
    total = Releases(config).series()["stderr"]
    assert total[4] == pytest.approx(total[0], rel=1e-5)  # a segment has its own noise


# -- steps ----------------------------------------------------------------------------------------------------------


def test_a_step_has_the_error_of_its_own_window(tmp_path: Path) -> None:
    found = Releases(ran(tmp_path, "always", gates=seeded))
    series = found.series("ward", every="3d")
    for start, end in series.select("start", "end").unique().iter_rows():
        window = found.between(start, end).table(["ward"])
        one = series.filter(pl.col("start") == start)
        assert one.select("value", "measured", "stderr").equals(
            window.select(pl.col("ward").alias("value"), "measured", "stderr")
        )
    assert [end.day for end in series["end"].unique().sort()] == [4, 7, 9]
    assert series.filter(pl.col("value") == "A")["whole"].to_list() == [True, True, False]
    assert found.counts(every="3d").filter(~pl.col("whole"))["end"].dt.day().unique().to_list() == [9]
    assert "whole" not in found.series("ward").columns
    days = found.series("ward").filter(pl.col("value") == "A")
    whole = found.series("ward", every="8d").filter(pl.col("value") == "A")
    assert days["measured"].sum() == pytest.approx(whole["measured"][0])


def test_steps_are_whole_ticks() -> None:
    weeks = Clock(start=datetime(2025, 11, 1), every="1w", horizon=None)
    # The year begins with the tick of 2026-01-03; the quarter before it began a month before the stream.
    assert steps(weeks, "1y", newest=12) == [Step(0, 8, whole=False), Step(9, 12, whole=False)]
    assert steps(weeks, "1q", newest=20) == [Step(0, 8, whole=False), Step(9, 20, whole=False)]
    assert steps(weeks, "1q", newest=21)[-1] == Step(9, 21)  # 13 weeks, and the next tick begins on 2026-04-04
    assert steps(weeks, "1mo", newest=4) == [Step(0, 4)]  # no tick could have begun in November before the first
    assert steps(weeks, "4w", newest=8) == [Step(0, 3), Step(4, 7), Step(8, 8, whole=False)]
    assert steps(weeks, timedelta(28), newest=8) == steps(weeks, "4w", newest=8)
    assert steps(weeks, None, newest=1) == [Step(0, 0), Step(1, 1)]
    for every, says in (
        ("3d", "shorter than a tick"),
        ("month", "use a number"),
        ("10d", "series: every = '10d': is not a whole number of ticks of '1w'; the nearest is \"7d\""),
        (timedelta(seconds=90), 'as in "4w"'),
        (timedelta(3), "shorter than a tick"),
        (4, 'as in "4w"'),
    ):
        with pytest.raises(ConfigError, match=says):
            steps(weeks, every, newest=1)  # type: ignore[arg-type]


def test_what_is_no_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="Did you mean 'ward'"):
        Releases(ran(tmp_path, "always")).series("Ward")


# -- how far they may be off ----------------------------------------------------------------------------------------


def test_bands_hold_at_their_nominal_rate() -> None:
    """With refreshes: of each tick, of four ticks and of all, over 1,500 values whose noise is independent."""
    workload = Workload(sizes=(1500, 2), marginals=((), (0,), (1,), (0, 1)))
    mechanism = Refreshed(workload=workload, budget=Budget(epsilon=1.0, delta=1e-9), horizon=20)
    state, seen, nothing = mechanism.init(), list[Measured](), np.zeros(workload.cells, dtype=np.int64)
    for tick in range(20):
        state, measured = mechanism.step(state, nothing, SeededGate(f"series/{tick}"))
        seen.append(measured)
    for length in (1, 4, 20):
        off: list[float] = []
        for first in range(0, 20, length):
            last, before = first + length - 1, seen[first - 1] if first else None
            variance = mechanism.covariance(last, last)
            if first:
                variance = variance - 2 * mechanism.covariance(first - 1, last)
                variance = variance + mechanism.covariance(first - 1, first - 1)
            step = counted(first, seen[last], before, variance, workload)
            off += (step.values / np.sqrt(np.repeat(step.variance, step.workload.lengths))).tolist()
        assert np.mean(np.abs(off) <= 1.96) == pytest.approx(0.95, abs=0.015), length
        assert np.mean(np.abs(off) <= 0.8 * 1.96) < 0.92, length  # errors a fifth smaller would be told
