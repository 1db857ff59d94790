"""``synthstream sample``: which rows it draws, how it writes them, and what it says when it cannot."""

from __future__ import annotations

import json
from io import BytesIO, StringIO
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from synthstream import Releases, Stream
from synthstream.cli.app import app
from synthstream.errors import SynthstreamError
from synthstream.kernel.gate import Gate
from tests.support.command import synthstream
from tests.support.gates import ExactGate
from tests.support.streams import configured, rows


def exact(tick: int) -> Gate:
    return ExactGate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    config = configured(folder, "always")
    rows(400, 1).write_parquet(folder / "rows-1.parquet")
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    return folder


def sample(folder: Path, *options: str) -> Result:
    found = CliRunner().invoke(app, ["sample", str(folder / "stream.toml"), *options])
    if found.exception is not None and not isinstance(found.exception, SystemExit | SynthstreamError):
        raise found.exception
    return found


def test_all_rows_as_they_are_published(folder: Path) -> None:
    found = sample(folder)
    expected = pl.read_parquet(folder / "releases/000007/rows.parquet")
    assert pl.read_csv(StringIO(found.stdout)).equals(expected)


def test_three_ways_to_write(folder: Path, tmp_path: Path) -> None:
    options = ("-n", "20", "--seed", "7")
    frame = pl.read_csv(StringIO(sample(folder, *options).stdout))
    assert frame.height == 20
    lines = sample(folder, *options, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == frame.to_dicts()
    piped = BytesIO(sample(folder, *options, "--format", "parquet").stdout_bytes)
    assert pl.read_parquet(piped).equals(frame)
    for name, read in (("a.csv", pl.read_csv), ("a.parquet", pl.read_parquet), ("a.jsonl", pl.read_ndjson)):
        said = sample(folder, *options, "-o", str(tmp_path / name))
        assert said.stdout == f"20 synthetic rows in {tmp_path / name}\n"
        assert read(tmp_path / name).equals(frame)
    sample(folder, *options, "-o", str(tmp_path / "rows.txt"), "--format", "jsonl")
    assert pl.read_ndjson(tmp_path / "rows.txt").equals(frame)
    stamped = pq.read_metadata(tmp_path / "a.parquet").metadata[b"synthstream"]
    assert stamped.startswith(b"NOT PRIVATE")  # the exact gate is no private one


def test_a_condition(folder: Path) -> None:
    found = pl.read_csv(StringIO(sample(folder, "--where", 'ward == "A" AND x > 2.5', "-n", "500").stdout))
    assert found.height == 500
    assert set(found["ward"]) == {"A"}
    none = sample(folder, "--where", "x > 2.5 AND x < 2.5", "-n", "500")
    assert (none.exit_code, none.stdout) == (0, "ward,x\n")
    assert "always: no row satisfies 'x > 2.5 AND x < 2.5'; what is written is empty.\n" in none.stderr
    misspelt = synthstream("sample", "stream.toml", "--where", "ward = 'a'", cwd=folder)
    assert (misspelt.returncode, misspelt.stdout) == (2, "")
    assert "'a' is none of the values of ward. Did you mean 'A'? Its values are A, B, C, other" in misspelt.stderr


def test_several_conditions_hold_together(folder: Path) -> None:
    both = pl.read_csv(StringIO(sample(folder, "--where", "ward = 'A' OR ward = 'B'", "--where", "x > 2.5").stdout))
    rows = pl.read_parquet(folder / "releases/000007/rows.parquet")
    expected = rows.filter(pl.col("ward").is_in(["A", "B"]), pl.col("x") > 2.5)
    assert both.equals(expected)
    assert 0 < expected.height < rows.filter(pl.col("x") > 2.5).height


def test_one_row_is_one(folder: Path, tmp_path: Path) -> None:
    assert (
        sample(folder, "-n", "1", "-o", str(tmp_path / "a.csv")).stdout == f"1 synthetic row in {tmp_path / 'a.csv'}\n"
    )


def test_a_release_by_tick_or_date(folder: Path) -> None:
    by_tick, by_date = sample(folder, "--at", "3"), sample(folder, "--at", "2026-01-05")
    assert by_tick.stdout == by_date.stdout
    assert by_date.stderr.startswith("always: tick 3, events before 2026-01-05\n")
    assert pl.read_csv(StringIO(by_tick.stdout)).equals(pl.read_parquet(folder / "releases/000003/rows.parquet"))


def test_between_two_dates(folder: Path) -> None:
    found = sample(folder, "--between", "2026-01-03T07:00:00", "2026-01-05T12:00:00")
    assert found.stderr.startswith("always: events from 2026-01-03 to before 2026-01-06, ticks 2 to 4\n")
    window = Releases(configured(folder, "always")).between("2026-01-03", "2026-01-06")
    assert found.stdout == sample(folder, "--between", "2026-01-03", "2026-01-06").stdout
    frame = pl.read_csv(StringIO(found.stdout))
    assert frame["ward"].to_list() == window.rows()["ward"].to_list()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--at", "99"], "none of tick 99"),
        (["--at", "2025-12-31"], "No release had ended by 2025-12-31"),
        (["--at", "yesterday"], "is no date"),
        (["--between", "2026-01-03", "2026-02-01"], "events before 2026-01-09 only"),
        (["--between", "2026-01-03", "2026-01-04", "--at", "3"], "give one of them"),
        (["--where", "wart = 'A'"], "Did you mean 'ward'?"),
        (["--where", "ward > 5"], "a text is compared with a number"),
        (["-o", "rows.xlsx"], "must end in one of .csv, .parquet, .jsonl"),
        (["-o", "rows.parquet", "--format", "csv"], "the name says parquet, --format csv: leave one out, or change it"),
        (["-o", "rows.csv.gz", "--format", "csv"], "packed files are not written. Leave .gz out"),
        (["-o", "nowhere/rows.csv"], "there is no folder nowhere"),
        (["--format", "excel"], "must be one of csv, parquet, jsonl"),
    ],
)
def test_mistakes(folder: Path, options: list[str], says: str) -> None:
    found = sample(folder, *options)
    assert found.exit_code != 0
    assert says in found.stderr + str(found.exception)
    assert found.stdout == ""


def test_a_negative_number_of_rows_or_seed(folder: Path) -> None:
    assert sample(folder, "-n", "-1").exit_code == 2
    assert sample(folder, "-n", "1", "--seed", "-1").exit_code == 2


def test_an_error_is_one_line_and_status_2(folder: Path) -> None:
    found = synthstream("sample", "stream.toml", "--where", "wart = 'A'", cwd=folder)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("Error: where: 'wart' is not a column.")
    assert found.stderr.count("\n") == 1
