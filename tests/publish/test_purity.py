"""Purity: releases follow from what was measured, and from nothing else; verify says when one does not."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.errors import StateRolledBack
from synthstream.publish.building import Builder
from synthstream.publish.folder import ParquetSink
from synthstream.state.store import Store
from synthstream.stream.verification import verify
from tests.support.streams import KINDS, PERSONS, TICKS, configured, published, rows

# All that is secret, and all that could be made again.
_FORGET = (
    "DELETE FROM pending",
    "DELETE FROM counter",
    "DELETE FROM answer",
    "DELETE FROM ingested",
    "DELETE FROM population",
    "DELETE FROM models",
    "DELETE FROM published",
    "UPDATE meta SET value = '' WHERE key = 'secret'",
)


def edit(config: StreamConfig, *statements: str) -> None:
    """Change a store behind its back; the rules that forbid it are there again afterwards."""
    with contextlib.closing(sqlite3.connect(config.state / "store.db")) as db, db:
        rules = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid").fetchall()
        for name, _ in rules:
            db.execute(f"DROP TRIGGER {name}")
        for statement in (*statements, *(sql for _, sql in rules)):
            db.execute(statement)


@pytest.mark.sparing(4, 5)
@pytest.mark.parametrize("kind", [*KINDS, PERSONS])
def test_every_release_is_built_again_from_what_was_measured(tmp_path: Path, kind: str) -> None:
    """A whole stream with real noise; state and rows deleted but for measurements: every published byte comes back."""
    config = configured(tmp_path, kind)
    rows(400, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        assert len(list(stream.run())) == TICKS
    before = published(tmp_path / "releases")
    (tmp_path / "rows-1.parquet").unlink()
    edit(config, *_FORGET)
    shutil.rmtree(tmp_path / "releases")
    with contextlib.closing(Store(config.state, read_only=True)) as store:
        builder = Builder(config, store.measurement, secure=True)
        for _, release, _ in builder.again(TICKS):
            ParquetSink(tmp_path / "releases").publish(release)
    assert published(tmp_path / "releases") == before


@pytest.mark.sparing(3, 6)
@pytest.mark.parametrize("kind", [*KINDS, PERSONS])
def test_a_sound_stream_verifies_with_and_without_its_state(tmp_path: Path, kind: str) -> None:
    config = configured(tmp_path, kind)
    rows(300, 2).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        list(stream.run())
    assert verify(config, rebuild=True) == (TICKS, TICKS, [], [])
    shutil.rmtree(config.state)
    assert verify(config, rebuild=True) == (0, TICKS, [], [])


@pytest.fixture
def made(tmp_path: Path) -> StreamConfig:
    config = configured(tmp_path, "always")
    rows(300, 3).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        list(stream.run())
    return config


def changed_json(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2) + "\n")


def flipped(path: Path, at: int = 40) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "rows": (lambda f: flipped(f / "releases/000003/rows.parquet"), "000003", "rows.parquet is not what was published"),
    "tables": (lambda f: flipped(f / "releases/000002/tables.parquet"), "000002", "tables.parquet is not what was"),
    "measured": (lambda f: flipped(f / "releases/000001/measured.parquet"), "000001", "measured.parquet is not what"),
    "missing": (lambda f: (f / "releases/000004/tables.parquet").unlink(), "000004", "tables.parquet is missing"),
    "more": (lambda f: (f / "releases/000004/notes.txt").write_text("x"), "000004", "notes.txt is no part"),
    "stranger": (lambda f: (f / "releases/extra").mkdir(), "extra", "is no part of a release"),
    "no release": (lambda f: shutil.rmtree(f / "releases/000005"), "000005", "its manifest is missing"),
    "claim": (
        lambda f: changed_json(f / "releases/000003/manifest.json", lambda m: m["claim"].update(epsilon=0.1)),  # type: ignore[attr-defined]
        "000003",
        "claim is not that of this stream",
    ),
    "end": (
        lambda f: changed_json(f / "releases/000003/manifest.json", lambda m: m.update(end="2027-01-01")),
        "000003",
        "end is not that of this stream",
    ),
    "number of rows": (
        lambda f: changed_json(f / "releases/000003/manifest.json", lambda m: m.update(rows=1)),
        "000003",
        "manifest.json is not what was published",
    ),
    "head": (
        lambda f: changed_json(f / "releases/000003/manifest.json", lambda m: m["chain"].update(head="0" * 64)),  # type: ignore[attr-defined]
        "000003",
        "its head is not that of what was measured",
    ),
    "two swapped": (
        lambda f: [
            (f / "releases/000002").rename(f / "aside"),
            (f / "releases/000003").rename(f / "releases/000002"),
            (f / "aside").rename(f / "releases/000003"),
        ],
        "000002",
        "tick is not that of this stream",
    ),
}


@pytest.mark.sparing(6)
@pytest.mark.parametrize("damage", DAMAGES)
def test_verify_says_what_is_wrong_and_where(tmp_path: Path, made: StreamConfig, damage: str) -> None:
    assert verify(made).findings == []
    harm, where, what = DAMAGES[damage]
    harm(tmp_path)
    findings = verify(made).findings
    assert any(f.where == where and what in f.what for f in findings), findings
    assert damage != "no release" or len(findings) == 1, "what follows from it is no fault of the next one"


STATE_DAMAGES = {
    "measurement": (
        "UPDATE measurement SET released = zeroblob(99) WHERE tick = 3",
        "tick 3 is not what was committed",
    ),
    "head": ("UPDATE measurement SET head = 'x' WHERE tick = 3", "tick 3 is not what was committed"),
    "hole": ("DELETE FROM measurement WHERE tick = 3", "tick 3 is missing"),
    "ledger": ("UPDATE ledger SET claim = '{}'", "the ledger does not match"),
    "marked": ("UPDATE population SET tick = 99", "population 99"),
    "another table": ("CREATE TABLE t (x)", "its tables are not those of Synthstream"),
}


@pytest.mark.parametrize("damage", STATE_DAMAGES)
def test_verify_looks_into_the_state(made: StreamConfig, damage: str) -> None:
    statement, what = STATE_DAMAGES[damage]
    edit(made, statement)
    assert any(f.where == "state" and what in f.what for f in verify(made).findings)


def test_a_change_of_the_settings_is_said_and_not_what_follows_at_every_release(made: StreamConfig) -> None:
    budget = replace(made.privacy.budget, epsilon=made.privacy.budget.epsilon * 2)
    other = replace(made, privacy=replace(made.privacy, budget=budget))
    state, releases = verify(other).findings
    assert "belongs to other settings: privacy.epsilon" in state.what
    assert (releases.where, "were made with other settings" in releases.what) == ("releases", True)
    shutil.rmtree(made.state)
    assert verify(other).findings == [releases]


def test_the_newest_manifest_is_compared_at_every_start(tmp_path: Path, made: StreamConfig) -> None:
    changed_json(tmp_path / f"releases/{TICKS - 1:06d}/manifest.json", lambda m: m.update(rows=1))
    with pytest.raises(StateRolledBack, match="is not what was published"):
        Stream(made)


def test_the_command_says_it_in_words_and_for_machines(tmp_path: Path, made: StreamConfig) -> None:
    config = str(tmp_path / "stream.toml")
    sound = CliRunner().invoke(app, ["verify", config])
    assert (sound.exit_code, sound.output) == (
        0,
        f"{TICKS} measured tick(s), {TICKS} release(s): all as it should be.\n",
    )
    frame = pl.read_parquet(tmp_path / "releases/000000/rows.parquet")
    frame.head(1).write_parquet(tmp_path / "releases/000000/rows.parquet")
    broken = CliRunner().invoke(app, ["verify", config, "--json"])
    assert broken.exit_code == 1
    assert json.loads(broken.output)["findings"] == [
        {"where": "000000", "what": "rows.parquet is not what was published"}
    ]
    told = CliRunner().invoke(app, ["verify", config]).output
    assert "--republish` builds releases again that are gone. Of one that is not what was published move" in told


def test_verify_misses_the_newest_releases_too(tmp_path: Path, made: StreamConfig) -> None:
    shutil.rmtree(tmp_path / f"releases/{TICKS - 1:06d}")
    (finding,) = verify(made).findings
    assert finding.where == "releases"
    assert "1 of the newest are missing" in finding.what
