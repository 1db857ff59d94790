"""A counter and a synthesizer from outside the package, through the registries alone: from plan to verify."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import tests.plugins.independent
import tests.plugins.weeks
from synthstream.cli.app import app
from synthstream.kernel.counters import Served
from synthstream.kernel.counters import register as register_counter
from synthstream.synthesizers.assembly import register
from tests.support.configs import AGE, SINK, category, source, stream_toml

TOML = stream_toml(
    category("ward", "A", "B"),
    AGE,
    '[synthesizer]\nkind = "independent"\norder = 1\ncounter = "sevens"\n',
    source("visits.parquet"),
    SINK,
    epsilon=5.0,
    delta=0.0,
    until="2026-01-10",
    horizon=20,
)


@pytest.fixture(name="config")
def written(tmp_path: Path) -> Path:
    days = [f"2026-01-{1 + i % 9:02d}" for i in range(900)]
    rows = {"when": days, "ward": ["A", "B", "A"] * 300, "age": [10.0, 60.0, 90.0] * 300}
    pl.DataFrame(rows).write_parquet(tmp_path / "visits.parquet")
    (tmp_path / "stream.toml").write_text(TOML)
    return tmp_path / "stream.toml"


def said(*words: object) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_kinds_from_outside_go_all_the_way(config: Path, tmp_path: Path) -> None:
    assert json.loads(said("plan", config, "--json"))["claim"]["theorems"] == ["marginals", "nodes"]
    said("run", config, "--yes")
    said("sample", config, "-n", "50", "-o", tmp_path / "rows.parquet")
    assert pl.read_parquet(tmp_path / "rows.parquet").height == 50
    said("report", config, "-o", tmp_path / "report.html")
    said("verify", config)
    tables = pl.read_parquet(tmp_path / "releases/000008/tables.parquet")
    total = tables.row(0, named=True)
    assert abs(total["measured"] - 900) < 10 * total["stderr"] < 300


def test_an_unknown_kind_is_refused_and_known_ones_are_named(config: Path) -> None:
    config.write_text(TOML.replace('"independent"', '"independant"').replace('"sevens"', '"savens"'))
    found = CliRunner().invoke(app, ["plan", str(config)])
    assert found.exit_code == 2
    assert "'independent'" in found.output
    assert "'sevens'" in found.output


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="already"):
        register("independent", tests.plugins.independent.make)
    with pytest.raises(ValueError, match="already"):
        register_counter("simple", Served(lambda horizon, noise: None, ("laplace",)))  # type: ignore[arg-type,return-value]
