"""Readers see one history: releases, windows, comparisons and the page, across a cut."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import deltalake
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.errors import NotReleased, SchemaError
from synthstream.kernel.seeded import SeededGate
from synthstream.publish.history import history_of
from synthstream.publish.published import Releases
from synthstream.release.release import TableRelease
from synthstream.stream.opening import system_gate
from synthstream.stream.succession import succeed
from tests.support.halves import HALF, exact, half_run
from tests.support.streams import text_of
from tests.support.successors import CUT, NEW, OLD, events, half, renamed, written


def gone_on(folder: Path, frame: pl.DataFrame) -> StreamConfig:
    """A stream and its successor without noise; what waits goes over."""
    old = half(folder, frame)
    config = succeed(old, written(folder, NEW, "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    return config


def wards(frame: pl.DataFrame) -> dict[str, float]:
    return {ward: float(n) for ward, n in renamed(frame)["ward"].value_counts().rows()}


def measured(found: TableRelease, columns: list[str]) -> dict[str, float]:
    table = found.table(columns)
    return {key: round(n, 6) for key, n in zip(table[columns[0]], table["measured"], strict=True) if n}


def between(frame: pl.DataFrame, first: int, end: int) -> pl.DataFrame:
    start, stop = (datetime(2026, 1, 1 + tick) for tick in (first, end))
    return frame.filter((pl.col("when") >= start) & (pl.col("when") < stop))


def test_each_release_has_its_own_columns_and_windows_and_comparisons_cross_the_cut(tmp_path: Path) -> None:
    frame = events()
    releases = Releases(gone_on(tmp_path, frame))
    assert [release.schema.names for release in releases] == [("ward", "x")] * CUT + [("ward", "x", "paid")] * 4
    for first, end in [(1, 3), (2, 6), (0, 6), (5, 8)]:  # before the cut, across it, from the start, after it
        window = releases.between(f"2026-01-0{1 + first}", f"2026-01-0{1 + end}")
        rows = between(frame, first, end)
        truth = dict(rows["ward"].value_counts().rows()) if end <= CUT else wards(rows)
        assert measured(window, ["ward"]) == pytest.approx(truth), (first, end)
        if first < CUT < end:
            assert window.table(["paid"])["measured"].null_count() == 3
            assert window.rows()["paid"].null_count() == window.model.number  # not recorded
    last, early = releases.last, releases.at(2)
    assert isinstance(last, TableRelease)
    assert isinstance(early, TableRelease)
    found = last.compare(early, ["ward"])
    truth = wards(between(frame, 3, 8))
    told = {ward: n for ward, n in found.select("ward", "measured").rows() if n}
    assert told == pytest.approx(truth)
    assert last.compare(early).height == last.tables.height
    with pytest.raises(SchemaError, match="not earlier"):
        early.compare(last)


@pytest.mark.slow
def test_errors_of_merged_and_kept_cells_are_those_of_the_sums(tmp_path: Path) -> None:
    """Over seeded runs the errors of running tables are as large as their stated errors, in every cell."""
    frame = events(200)
    off, said = [], []
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()

        def gates(tick: int, seed: int = seed) -> SeededGate:
            return SeededGate(f"{seed}/{tick}")

        old = written(folder)
        with Stream(old, gates=gates, seed=seed) as stream:
            stream.update(frame)
            list(stream.run())
        config = succeed(old, written(folder, NEW, "new.toml"), gates=gates, seed=seed)
        with Stream(config, gates=gates, seed=seed) as stream:
            list(stream.run())
            assert isinstance(stream.last, TableRelease)
            table = stream.last.table(["ward"])
        truth = [wards(frame).get(ward, 0.0) for ward in table["ward"]]
        off.append((table["measured"].to_numpy() - truth) / table["stderr"].to_numpy())
        said.append(table["stderr"].to_numpy())
    stderr = dict(zip(table["ward"], said[0], strict=True))
    assert stderr["BC"] > stderr["A"] > stderr["D"]  # two old cells, one, none
    assert float(np.sqrt(np.mean(np.square(off)))) == pytest.approx(1.0, abs=0.1)


def test_the_report_tells_one_history(tmp_path: Path) -> None:
    frame = events()
    config = gone_on(tmp_path, frame)
    history = history_of(config, progress=lambda ticks, _: ticks)
    here = history.workload.slice_of((0,))
    counts = [history.cells(tick).measured[here][0] for tick in history.ticks]
    truth = [len(between(frame, 0, tick + 1).filter(ward="A")) for tick in range(8)]
    assert counts == pytest.approx(truth)
    page = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["report", str(tmp_path / "new.toml"), "-o", str(page)])
    assert result.exit_code == 0, result.output
    text = " ".join(page.read_text().split())
    assert "It is the largest of its parts" in text
    assert "On 2026-01-05 the stream went on with other settings; counts before" in text
    for tick, names in (("2026-01-03", ["ward", "x"]), ("2026-01-08", ["ward", "x", "paid"])):
        target = tmp_path / f"{tick}.parquet"
        command = ["sample", str(tmp_path / "new.toml"), "--at", tick, "-n", "20", "-o", str(target)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        assert pl.read_parquet(target).columns == names


@pytest.mark.parametrize("kind", ["refresh", "epochs", "selective", "stream-mwem"])
def test_windows_of_other_kinds_cross_a_cut_or_say_why_not(tmp_path: Path, kind: str) -> None:
    old = half_run(tmp_path, kind)
    text = text_of(kind).replace("epsilon = 2.0", "epsilon = 1.0") + '[after]\nconfig = "stream.toml"\n'
    config = succeed(old, written(tmp_path, text, "new.toml"), gates=system_gate)
    with Stream(config) as stream:
        list(stream.run())
    releases = Releases(config)
    if kind == "refresh":
        window = releases.between(f"2026-01-0{HALF}", "2026-01-08")
        assert (window.first, window.tick) == (HALF - 1, 6)
        return
    with pytest.raises(NotReleased, match="between: "):
        releases.between(f"2026-01-0{HALF}", "2026-01-08")


def test_a_delta_mirror_takes_the_new_columns(tmp_path: Path) -> None:
    mirror = '[[mirror]]\nkind = "delta"\npath = "copy"\n'
    old = half(tmp_path, events(60), OLD + mirror)
    config = succeed(old, written(tmp_path, NEW.replace("[after]", f"{mirror}[after]"), "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    copy = deltalake.DeltaTable(tmp_path / "copy")
    assert [field.name for field in copy.schema().fields] == ["ward", "x", "paid"]
    assert copy.version() == 7
