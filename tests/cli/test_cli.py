"""The command line, as a newcomer types it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from tests.support.command import synthstream
from tests.support.visits import TOML, visits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stream.toml").write_text(TOML)
    visits([1, 1, 2, 5] * 100).write_parquet(tmp_path / "visits-1.parquet")  # more than the noise can hide
    return tmp_path


def test_the_whole_story(folder: Path) -> None:
    plan = synthstream("plan", "stream.toml", cwd=folder)
    assert plan.returncode == 0
    assert "differential privacy for any single event" in plan.stdout
    assert "eps  total  1-way cell  2-way cell" in plan.stdout
    assert "after day 1 (tick 1, 2026-01-02); " in plan.stdout
    assert "With probability 95%, no cell of any table of one release is off by more" in plan.stdout
    assert not (folder / "state").exists()

    run = synthstream("run", "stream.toml", "--yes", cwd=folder)
    assert run.returncode == 0, run.stderr
    assert "1 new file(s) counted, 5 new release(s); 5 in all of 8 paid for." in run.stdout
    assert "Spent: epsilon = 1, delta = 1e-09" in run.stdout
    assert "synthstream sample" in run.stdout

    again = synthstream("run", "stream.toml", "--yes", cwd=folder)
    assert "0 new file(s) counted, 0 new release(s); 5 in all" in again.stdout
    assert "Nothing was due: tick 5 ends 2026-01-07" in again.stdout
    earlier = synthstream("run", "stream.toml", "--until", "2026-01-03", cwd=folder).stdout
    assert "Nothing will be due: until = 2026-01-03 of --until lies before the end of the newest release" in earlier

    status = synthstream("status", "stream.toml", cwd=folder)
    assert "5 release(s), 8 paid for" in status.stdout
    assert "tick 5 ends 2026-01-07" in status.stdout

    sample = synthstream("sample", "stream.toml", "-n", "3", "--seed", "1", "-o", "rows.parquet", cwd=folder)
    assert sample.returncode == 0, sample.stderr
    assert pl.read_parquet(folder / "rows.parquet").shape == (3, 2)
    first = synthstream("sample", "stream.toml", "-n", "2", "--seed", "5", cwd=folder).stdout
    assert first.startswith("ward,age\n")
    assert first == synthstream("sample", "stream.toml", "-n", "2", "--seed", "5", cwd=folder).stdout


def test_how_long_a_state_takes_to_open_closes_no_tick(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "stream.toml").write_text("".join(line for line in TOML.splitlines(keepends=True) if "until" not in line))

    def now(_: object) -> datetime:
        return datetime(2026, 1, 5 if (folder / "state").exists() else 3, 12, tzinfo=UTC)

    monkeypatch.setattr("synthstream.environment.Env.now", now)
    assert "2 new release(s); 2 in all" in synthstream("run", "stream.toml", "--yes", cwd=folder).stdout
    assert "2 new release(s); 4 in all" in synthstream("run", "stream.toml", "--yes", cwd=folder).stdout


def test_a_simulation_says_so_and_needs_its_seed_switch(folder: Path) -> None:
    told = synthstream("status", "stream.toml", "--simulate", cwd=folder).stdout
    assert "run stream.toml --simulate" in told
    simulated = synthstream("run", "stream.toml", "--simulate", "--seed", "3", cwd=folder)
    assert "NOT PRIVATE" in simulated.stdout
    assert not (folder / "releases").exists()
    assert "NOT PRIVATE" in synthstream("status", "stream.toml", "--simulate", cwd=folder).stdout
    told = json.loads(synthstream("status", "stream.toml", "--simulate", "--json", cwd=folder).stdout)
    assert all(claim["words"].startswith("NOT PRIVATE") for claim in (told["claim"], *told["spent"]))
    refused = synthstream("run", "stream.toml", "--seed", "3", cwd=folder)
    assert refused.returncode == 2
    assert "real noise has no seed" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "nowhere.toml"], "nowhere.toml"),
        (["run", "stream.toml", "--poll", "5s"], "--poll is for --follow only"),
        (["run", "stream.toml", "--until", "tomorrow"], "--until 2016-01-02"),
        (["sample", "stream.toml"], "no release yet"),
        (["sample", "stream.toml", "--at", "3"], "no release yet"),
        (["schema", "init", "nowhere.csv"], "No such file"),
        (["run", "stream.toml", "--until", "2999-01-01"], "lies in the future"),
        (["sample", "stream.toml", "-o", "rows.xlsx"], "must end in one of .csv, .parquet, .jsonl"),
    ],
)
def test_mistakes_get_one_message_and_status_2(folder: Path, arguments: list[str], says: str) -> None:
    result = synthstream(*arguments, cwd=folder)
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("epsilon = 1.0", "epsilom = 1.0", "epsilon"),
        ("bins = 4", "", "bins"),
        ("max = 100", "", "max"),
        ("epsilon = 1.0", "epsilon = -1.0", "epsilon"),
        ("delta = 1e-9", "delta = 1.5", "delta"),
        ('unit = "event"', 'unit = "person"', "unit"),
        ('"1d"', '"1 fortnight"', "every"),
        ('kind = "parquet"\npath = "visits', 'kind = "parket"\npath = "visits', "parquet"),
    ],
)
def test_a_config_error_names_the_key(folder: Path, old: str, new: str, says: str) -> None:
    assert old in TOML
    (folder / "stream.toml").write_text(TOML.replace(old, new))
    result = synthstream("plan", "stream.toml", cwd=folder)
    assert result.returncode == 2
    assert says in result.stderr
    assert "stream.toml" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("content", "says", "status"),
    [
        (b"", "visits-1.parquet", 1),
        (b"PAR1 this is no parquet file PAR1", "visits-1.parquet", 1),
        (None, "ward", 2),  # by its header; no other file has the column
    ],
)
def test_a_broken_file_is_named_and_nothing_is_counted(
    folder: Path, content: bytes | None, says: str, status: int
) -> None:
    path = folder / "visits-1.parquet"
    if content is None:
        visits([1]).drop("ward").write_parquet(path)
    else:
        path.write_bytes(content)
    result = synthstream("run", "stream.toml", "--yes", cwd=folder)
    assert result.returncode == status
    released = "0 new file(s) counted, 1 could not be, 5 new release(s)" in result.stdout
    assert released == (status == 1)  # what a file holds decides about no release, unless no header fits
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    visits([1, 1]).write_parquet(path)
    assert synthstream("run", "stream.toml", "--yes", cwd=folder).returncode == 0


CANARY = "XCANARYX"


def test_no_output_carries_a_value_of_a_row(folder: Path) -> None:
    odd = pl.DataFrame(
        {"when": [datetime(2026, 1, 1)] * 2, "ward": [CANARY] * 2, "age": [CANARY] * 2, "more": [CANARY] * 2}
    )
    odd.write_parquet(folder / "visits-2.parquet")
    outputs = [synthstream("run", "stream.toml", "--yes", cwd=folder), synthstream("status", "stream.toml", cwd=folder)]
    odd.write_parquet(folder / "visits-1.parquet")
    outputs.append(synthstream("run", "stream.toml", "--yes", cwd=folder))
    for result in outputs:
        assert CANARY not in result.stdout + result.stderr
    for path in (folder / "releases").rglob("*.*"):
        assert CANARY.encode() not in path.read_bytes()


def test_an_edited_config_shows_in_the_status(folder: Path) -> None:
    synthstream("run", "stream.toml", "--yes", cwd=folder)
    (folder / "stream.toml").write_text(TOML.replace("horizon = 8", "horizon = 80"))
    status = synthstream("status", "stream.toml", cwd=folder).stdout
    assert "differs from the running stream: clock.horizon: was" in status
    assert "8 paid for" in status
    assert "successor" in synthstream("run", "stream.toml", "--yes", cwd=folder).stderr
    (folder / "stream.toml").write_text(TOML.replace('"C"', '"C", "D"').replace("2026-01-01", "2025-12-31"))
    shown = synthstream("status", "stream.toml", cwd=folder)
    assert "; column" in shown.stdout, shown.stderr
    assert "events before 2026-01-06" in shown.stdout, "the dates of what was published"
    (folder / "releases" / "settings.toml").write_text("damaged")
    assert "8 paid for" in synthstream("status", "stream.toml", cwd=folder).stdout


def test_where_nothing_can_be_written(folder: Path) -> None:
    synthstream("run", "stream.toml", "--yes", cwd=folder)
    result = synthstream("sample", "stream.toml", "-o", "nowhere/rows.csv", cwd=folder)
    assert result.returncode == 2
    assert "there is no folder nowhere" in result.stderr


def test_the_version(folder: Path) -> None:
    assert synthstream("--version", cwd=folder).stdout.startswith("synthstream 0.")


def test_help_is_quick_and_has_examples(folder: Path) -> None:
    for command in ("plan", "run", "status", "sample"):
        assert f"synthstream {command} stream.toml" in synthstream(command, "--help", cwd=folder).stdout
