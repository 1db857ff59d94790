"""``synthstream table`` and ``synthstream series``: what they print, and what they refuse."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from synthstream import Stream
from synthstream.cli.answering import give, tell_of_steps, tell_of_window
from synthstream.cli.app import app
from synthstream.cli.reading import apart
from synthstream.config.config import load
from synthstream.errors import SynthstreamError
from synthstream.publish.published import releases
from synthstream.schema.clock import Clock
from tests.support.configs import number
from tests.support.gates import ExactGate
from tests.support.streams import PERSONS, configured, rows, text_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    rows(400, 1).write_parquet(folder / "rows-1.parquet")
    with Stream(configured(folder, "always"), gates=lambda _: ExactGate()) as stream:
        list(stream.run())
    return folder


def say(command: str, folder: Path, *words: str) -> Result:
    found = CliRunner().invoke(app, [command, str(folder / "stream.toml"), *words])
    if found.exception is not None and not isinstance(found.exception, SystemExit | SynthstreamError):
        raise found.exception
    return found


def test_a_table_to_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_TABLE_WIDTH", "20")  # no number is broken, however narrow the terminal
    found = say(
        "table", folder, "ward", "--where", "x < 5", "--where", "ward <> 'C'", "--between", "2026-01-02", "2026-01-05"
    )
    lines = found.stdout.splitlines()
    assert lines[1].split() == ["|", "ward", "count", "share", "measured", "stderr", "since", "measured_at", "|"]
    true = rows(400, 1).filter(
        pl.col("x") < 5, pl.col("when").is_between(pl.datetime(2026, 1, 2), pl.datetime(2026, 1, 5))
    )
    number = true.filter(pl.col("ward") == "A").height
    row = next(line.split() for line in lines if " A " in line)
    assert float(row[4]) == pytest.approx(number, abs=0.5)
    assert not any(" C " in line for line in lines)  # the condition excludes it
    assert "1 (from 2026-01-02)" in found.stdout
    assert "3 (before 2026-01-05)" in found.stdout
    assert "events from 2026-01-02 to before 2026-01-05" in found.stderr
    assert "NOT PRIVATE" in found.stderr
    assert "model_error" in say("table", folder, "ward", "x", "--model-error").stdout


def test_what_is_read_says_that_bins_at_the_ends_hold_more_and_files_keep_their_labels(
    folder: Path, tmp_path: Path
) -> None:
    windows = ("--then", "2026-01-01", "2026-01-04", "--now", "2026-01-04", "2026-01-08")
    for words in (("table", "x"), ("series", "x"), ("compare", "x", *windows), ("compare", *windows)):
        shown = say(words[0], folder, *words[1:]).stdout
        assert " and more |" in shown or "below " in shown, words
        say(words[0], folder, *words[1:], "-o", str(tmp_path / "out.csv"))
        written = (tmp_path / "out.csv").read_text()
        assert "and more" not in written, words
        assert "below" not in written, words


def test_shares_of_rare_values_are_told_with_three_digits(capsys: pytest.CaptureFixture[str]) -> None:
    shares = [0.334561, 0.000340123, 0.00002, 0.0, 1.0, None]
    found = pl.DataFrame({"ward": [*"ABCDEF"], "share": shares})
    give(found, None, "csv", csv=False, stamped=False, columns=[])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [line[2] for line in lines] == ["share", "0.335", "0.00034", "0.00002", "0.0", "1.0", "null"]


def test_columns_may_have_commas_between_them(folder: Path) -> None:
    plain = say("table", folder, "ward", "x", "--csv").stdout
    for words in (("ward,x",), ("ward,", "x"), ("ward , x",)):
        assert say("table", folder, *words, "--csv").stdout == plain
    windows = ("--then", "2026-01-01", "2026-01-05", "--now", "2026-01-05", "2026-01-09", "--csv")
    assert say("compare", folder, "ward,x", *windows).stdout == say("compare", folder, "ward", "x", *windows).stdout
    assert apart(["a,b"], ["a,b", "c"]) == ["a,b"]


def test_why_measured_is_empty(folder: Path) -> None:
    assert "measured: a condition must follow whole bins" in say("table", folder, "ward", "--where", "x > 5").stderr
    assert "measured: " not in say("table", folder, "ward", "--where", "x >= 5").stderr
    assert "no value satisfies it, so there is no line" not in say("table", folder, "ward", "--where", "x >= 5").stderr
    assert (
        "no value satisfies it, so there is no line"
        in say("table", folder, "ward", "--where", "ward = 'A' AND ward = 'B'").stderr
    )


def test_what_changed(folder: Path) -> None:
    first, second = ("2026-01-01", "2026-01-04"), ("2026-01-04", "2026-01-08")
    found = say("compare", folder, "ward", "--then", *first, "--now", *second)
    lines = [line.split()[1:-1] for line in found.stdout.splitlines() if line.startswith("| ")]
    assert lines[0] == [
        "ward",
        *("rows_then", "rows_now", "rows_difference"),
        *("measured_difference", "measured_stderr", "z", "beyond_noise"),
    ]

    def true(ward: str, since: str, until: str) -> int:
        dates = pl.lit(since).str.to_datetime(), pl.lit(until).str.to_datetime()
        kept = pl.col("when").is_between(*dates, closed="left") & (pl.col("ward") == ward)
        return rows(400, 1).filter(kept).height

    differences = {line[0]: float(line[4]) for line in lines[1:]}
    assert differences["A"] == pytest.approx(true("A", *second) - true("A", *first), abs=1)
    assert "ticks 0 to 2, beside events from 2026-01-04" in found.stderr
    assert "expected by chance" in found.stderr
    assert "then is 3 ticks long, now is 4: differences follow the lengths" in found.stderr
    assert "overlap" not in found.stderr
    found = say("compare", folder, "ward", "--then", "2026-01-01", "2026-01-05", "--now", "2026-01-03", "2026-01-07")
    assert "The periods overlap: ticks 2 to 3 count in both." in found.stderr
    assert "long" not in found.stderr
    found = say("compare", folder, "ward", "--then", "2026-01-01", "2026-01-04", "--now", "2026-01-03", "2026-01-06")
    assert "The periods overlap: tick 2 counts in both." in found.stderr
    assert "measured_...: what passed the gate, and its standard error" in found.stderr
    plain = say("compare", folder, "ward", "--then", *first, "--now", *second, "--csv").stdout
    assert plain.startswith("ward,then,now,difference,measured,stderr,z,beyond_noise\n")
    every = say("compare", folder, "--then", *first, "--now", *second)
    assert (every.stdout.count("\n| "), "The first 30 of 36 cells" in every.stderr) == (31, True)


def test_where_no_cell_can_be_compared_nothing_is_said_of_chance(tmp_path: Path) -> None:
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(configured(tmp_path, "refresh"), gates=lambda _: ExactGate()) as stream:
        list(stream.run())
    windows = ("--then", "2026-01-01", "2026-01-02", "--now", "2026-01-05", "2026-01-06")
    found = say("compare", tmp_path, "ward", "x", *windows)
    assert "cells are of tables that count other ticks in one of the two" in found.stderr
    assert "measured_at_then" in found.stdout
    asked = say("compare", tmp_path, "ward", *windows)
    assert "measured_at" not in asked.stdout + asked.stderr  # these are the dates asked for
    assert ",measured_at," in say("compare", tmp_path, "ward", *windows, "--csv").stdout
    assert "expected by chance" not in found.stderr
    near = found.stderr[found.stderr.index("--then") : found.stderr.index(" they can be compared")].split()
    assert near == ["--then", "2026-01-01", "2026-01-02", "--now", "2026-01-05", "2026-01-07"]
    assert "expected by chance" in say("compare", tmp_path, "ward", "x", *near).stderr
    assert "expected by chance" in say("compare", tmp_path, "ward", *windows).stderr
    # A cut between two refreshes: refreshes around it would overlap.
    found = say(
        "compare", tmp_path, "ward", "x", "--then", "2026-01-01", "2026-01-04", "--now", "2026-01-04", "2026-01-06"
    )
    assert "With --then 2026-01-01 2026-01-03 --now 2026-01-03 2026-01-07 they can" in found.stderr


def test_a_table_of_a_window_says_which_ticks_are_measured_and_where_rows_are_far_from_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    config = configured(tmp_path, "refresh")
    with Stream(config, gates=lambda _: ExactGate()) as stream:
        list(stream.run())
    dates = ("2026-01-05", "2026-01-06")
    told = say("table", tmp_path, "ward", "x", "--between", *dates).stderr
    assert "measured counts events from 2026-01-05 to before 2026-01-07, ticks 4 to 5: such" in told
    assert "measured counts" not in say("table", tmp_path, "ward", "--between", *dates).stderr
    assert "measured counts" not in say("table", tmp_path, "ward", "x").stderr
    window = releases(config).between(*dates)
    found = window.table(["ward"])
    first, stderr = pl.int_range(pl.len()) == 0, found["stderr"][0]
    for far, words in ((3.0, ""), (9.0, "stderr from measured in 1 line: there, trust measured.")):
        beside = pl.when(first).then(pl.col("measured") + far * stderr).otherwise("measured").alias("count")
        tell_of_window(found.with_columns(beside), window, config)
        told = capsys.readouterr().err
        assert words in told if words else not told


def test_tables_that_no_tick_measures_are_not_said_to_count_other_ticks(tmp_path: Path) -> None:
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    (tmp_path / "stream.toml").write_text(text_of("refresh") + number("y", "bins = 3", high=10))
    with Stream(load(tmp_path / "stream.toml"), gates=lambda _: ExactGate()) as stream:
        list(stream.run())
    windows = ("--then", "2026-01-01", "2026-01-04", "--now", "2026-01-04", "2026-01-09")
    told = say("compare", tmp_path, "ward", "x", "y", *windows).stderr
    assert "100 cells are of tables that were not measured in all of both periods." in told
    assert "refreshes" not in told


def test_what_changed_between_epochs(tmp_path: Path) -> None:
    """Noise is Laplace's whatever delta is, and not every larger table is measured in each epoch."""
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    text = (
        text_of("epochs").replace("delta = 0\n", "delta = 1e-9\n").replace("picks = 1", 'picks = 1\nmeasure = "epochs"')
    )
    (tmp_path / "stream.toml").write_text(text + number("y", "bins = 3", high=10))
    with Stream(load(tmp_path / "stream.toml"), gates=lambda _: ExactGate()) as stream:
        list(stream.run())
    windows = ("--then", "2026-01-01", "2026-01-04", "--now", "2026-01-04", "2026-01-09")
    assert "5 measured cells beyond noise; 0.06 expected" in say("compare", tmp_path, "ward", *windows).stderr
    told = say("compare", tmp_path, "ward").stderr
    assert "--then and --now: give both. This stream measures its tables once an epoch" in told
    assert "Choose two of: 2026-01-01, " in told
    told = say("compare", tmp_path, "ward", "x", *windows).stderr
    assert "25 cells are of tables that were not measured in all of both periods." in told
    told = say("table", tmp_path, "ward", "x", "--between", "2026-01-01", "2026-01-09").stderr
    assert "Such tables are measured in some epochs alone" in told
    assert "at this tick" not in told
    told = say("table", tmp_path, "ward", "--at", "2026-01-08").stderr
    assert "counts one epoch alone, so that none tells of all events. Ask for whole epochs" in told
    assert "--between 2026-01-01 and the end of one" in told


def test_a_series_to_read_and_to_keep(folder: Path, tmp_path: Path) -> None:
    assert "Steps" not in say("series", folder, "--every", "2d").stderr
    assert "not a whole number of ticks of '1d'" in say("series", folder, "--every", "36h").stderr
    lines = say("series", folder, "--every", "4d").stdout.splitlines()
    assert lines[1].split() == ["|", "start", "end", "measured", "stderr", "whole", "|"]
    assert lines[3].split()[1:3] == ["2026-01-01", "2026-01-05"]
    output = tmp_path / "wards.csv"
    said = say("series", folder, "ward", "-o", str(output))
    assert said.stdout == f"40 lines in {output}\n"
    kept = pl.read_csv(output)
    assert kept.columns == ["start", "end", "value", "measured", "stderr"]
    assert kept.filter(pl.col("value") == "A")["measured"].sum() == pytest.approx(
        rows(400, 1).filter(pl.col("ward") == "A").height, abs=1
    )


def test_steps_of_several_lengths_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    weeks = Clock(start=datetime(2026, 1, 1), every="1w", horizon=None)
    tell_of_steps(cast(Any, SimpleNamespace(config=SimpleNamespace(clock=weeks), last=SimpleNamespace(tick=20))), "1mo")
    assert "Steps have 4 to 5 ticks: a tick belongs to" in capsys.readouterr().err


def test_what_a_limit_of_persons_leaves_out_is_told_beside_every_answer(folder: Path, tmp_path: Path) -> None:
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(configured(tmp_path, PERSONS), gates=lambda _: ExactGate()) as stream:
        list(stream.run())
    months = ("--then", "2026-01-01", "2026-01-03", "--now", "2026-01-03", "2026-01-05")
    for command in (("table", "ward"), ("series", "ward"), ("compare", "ward", *months)):
        told = [say(command[0], where, *command[1:]).stderr for where in (folder, tmp_path)]
        assert ["further ones are left out" in words for words in told] == [False, True]
        over_time = command[0] != "table"
        assert ["so that a series can fall though nothing changed." in words for words in told] == [False, over_time]


@pytest.mark.parametrize(
    ("command", "words", "says"),
    [
        ("table", ["wart"], "Did you mean 'ward'"),
        ("table", ["ward", "--where", "wart = 1"], "is not a column"),
        ("table", ["ward", "--at", "1", "--between", "2026-01-01", "2026-01-03"], "give one of them"),
        ("table", ["ward", "--between", "2026-13-01", "2026-01-03"], "--between: '2026-13-01' is no date"),
        (
            "table",
            ["--where", "when > 3"],
            "--where: when is the time of events, which rows do not have. Say",
        ),
        ("sample", ["--where", "when > 3"], "--where: when is the time of events"),
        ("table", ["ward", "--at", "x"], "--at: 'x' is no date"),
        ("table", ["ward", "-o", "t.txt"], "must end in one of"),
        (
            "compare",
            ["ward", "--now", "2026-01-05", "2027-01-07", "--then", "2026-01-01", "2026-01-02"],
            "--now: between 2026-01-05 and 2027-01-07: releases hold events before",
        ),
        ("compare", ["ward"], "as in --then 2026-01-01 2026-01-05 --now 2026-01-05 2026-01-09"),
        (
            "compare",
            ["ward", "--now", "2026-01-01", "2026-01-03", "--then", "2026-01-05", "2026-01-07"],
            "must end before --now does",
        ),
        ("series", ["Ward"], "Did you mean 'ward'"),
        ("series", ["--box", "x 1 2"], "this stream has no place"),
        ("table", ["--box", "x 1 2", "--box", "x 3 4"], "--box: gives x twice; give it once"),
        ("table", ["--box", "1", "2", "3", "4"], "as in --box 'lat 33 34'"),
        ("table", ["--box", " "], "as in --box 'lat 33 34'"),
        ("table", ["--where", "ward", "=", "A"], "put the whole condition in quotes"),
        ("series", ["ward", "x"], "takes one column"),
        ("series", ["ward,x"], "takes one column"),
        ("series", ["ward=A"], "name the column alone; each of its values has lines of its own"),
        ("series", ["--box", "1", "2", "3"], "as in --box 'lat 33 34'"),
        ("series", ["ward", "--every", "1h"], "shorter than a tick"),
        ("series", ["ward", "--every", "month"], "use a number and"),
    ],
)
def test_what_is_refused(folder: Path, command: str, words: list[str], says: str) -> None:
    found = say(command, folder, *words)
    assert (found.exit_code, says in found.stderr) == (2, True)


def test_dates_to_compare_are_named_as_far_as_there_are_any(tmp_path: Path) -> None:
    """By ticks of hours, and after one of them."""
    text = text_of("always").replace('every = "1d"', 'every = "6h"').replace("until = 2026-01-09\n", "")
    (tmp_path / "stream.toml").write_text(text)
    with Stream(tmp_path / "stream.toml", simulate=1) as stream:
        stream.release()
        one = say("compare", tmp_path, "ward", "--simulate")
        stream.release()
    two = say("compare", tmp_path, "ward", "--simulate")
    assert (one.exit_code, "has one release, and nothing later to compare" in one.stderr) == (2, True)
    asked = "--then 2026-01-01 2026-01-01T06:00:00 --now 2026-01-01T06:00:00 2026-01-01T12:00:00"
    assert (two.exit_code, asked in two.stderr) == (2, True)
    assert say("compare", tmp_path, "ward", "--simulate", *asked.split()).exit_code == 0


def test_nothing_is_written_among_releases(folder: Path) -> None:
    for place in ("stream.toml", "releases"):
        output = folder / "releases" / "table.csv"
        found = CliRunner().invoke(app, ["table", str(folder / place), "ward", "-o", str(output)])
        assert found.exit_code == 2
        assert not output.exists()


def test_the_papers_points_have_no_error_and_no_windows(tmp_path: Path) -> None:
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(configured(tmp_path, "hypercube"), gates=lambda _: ExactGate()) as stream:
        list(stream.run())
    assert say("table", tmp_path, "--csv").stdout == "count,measured,stderr\n400,,\n"
    assert 'Error: series: streams of kind = "hypercube" have no windows' in say("series", tmp_path).stderr
