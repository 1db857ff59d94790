"""A stream under public constraints: nothing private consults them, and no published row violates one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from synthstream import Releases, Stream, StreamConfig
from synthstream.errors import StateMismatch
from synthstream.report.public import public_page
from synthstream.stream.recovery import adopt
from synthstream.stream.verification import verify
from synthstream.synthesizers.assembly import claim_of, synthesizer_of
from tests.support.halves import HALF, exact
from tests.support.streams import rows, text_of

MEASURES = {"refresh": "", "always": 'measure = "always"', "epochs": ""}
ALLOWED = """
[[constraints]]
columns = ["ward", "x"]
allowed = [["A", 1], ["A", 3.5], ["B", 1], ["C", 9], ["C", 6]]
"""


def config_of(folder: Path, measure: str, *, constraints: str = ALLOWED, until: str = "2026-01-09") -> StreamConfig:
    folder.mkdir(exist_ok=True)
    text = text_of("epochs" if measure == "epochs" else "always") + constraints
    text = (
        text.replace('measure = "always"\n', "")
        .replace('kind = "table"', f'kind = "table"\n{MEASURES[measure]}')
        .replace("2026-01-09", until)
    )
    rows(400, 1).write_parquet(folder / "rows-1.parquet")
    return StreamConfig.from_toml(text, base=folder)


def impossible(config: StreamConfig, found: pl.DataFrame) -> int:
    (group,) = config.constraints.groups
    return int((group.places(config.schema.encode(found)) < 0).sum())


@pytest.mark.sparing(2)
@pytest.mark.parametrize("measure", MEASURES)
def test_rows_hold_allowed_combinations_alone(tmp_path: Path, measure: str) -> None:
    config = config_of(tmp_path, measure, until="2026-01-05")
    with Stream(config, gates=exact) as stream:
        assert len(list(stream.run())) == HALF
    shutil.rmtree(config.state)
    config = config_of(tmp_path, measure)
    adopt(config, gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
        assert stream.last is not None
        table = stream.last.table(["ward", "x"])
    releases = Releases(config)
    published = [release.rows() for release in releases]
    windows = [releases.between("2026-01-02", "2026-01-04").rows()]
    assert sum(found.height for found in published) > 400
    assert [impossible(config, found) for found in (*published, *windows)] == [0] * 9
    assert impossible(config, rows(400, 1)) > 50
    # What violates a constraint is measured in its own cell all the same, but has no row.
    if measure != "epochs":
        cell = table.filter((pl.col("ward") == "B") & (pl.col("x") == "[2.5, 5)"))
        assert cell["count"].item() == 0
        assert cell["measured"].item() > 5
    assert verify(config, rebuild=True).findings == []


@pytest.mark.parametrize("measure", MEASURES)
def test_what_is_measured_does_not_depend_on_them(tmp_path: Path, measure: str) -> None:
    found = []
    for name, constraints in (("with", ALLOWED), ("without", "")):
        config = config_of(tmp_path / name, measure, constraints=constraints)
        made = synthesizer_of(config)
        with Stream(config, gates=exact) as stream:
            list(stream.run())
        last = pl.read_parquet(tmp_path / name / "releases/000000/measured.parquet")["released"].to_numpy()
        found.append((made.mechanism.fingerprint(), claim_of(config, made.mechanism), last))
    assert found[0][:2] == found[1][:2]
    assert np.array_equal(found[0][2], found[1][2])


def test_they_cannot_change_under_a_running_stream(tmp_path: Path) -> None:
    with Stream(config_of(tmp_path, "always"), gates=exact) as stream:
        stream.release()
    for constraints in ("", ALLOWED.replace('["C", 6]', '["C", 6], ["B", 6]')):
        with pytest.raises(StateMismatch, match="other settings: constraints"):
            Stream(config_of(tmp_path, "always", constraints=constraints), gates=exact)


def test_what_no_successor_changes_is_not_said_to_be_one_s(tmp_path: Path) -> None:
    config = config_of(tmp_path, "always")
    with Stream(config) as stream:
        stream.release()
    moved = replace(config, clock=replace(config.clock, timezone="Europe/Rome"))
    with pytest.raises(StateMismatch, match=r"A successor keeps clock\.timezone, too: .* budget of its own\.$"):
        Stream(moved)
    with pytest.raises(StateMismatch, match=r"Or keep the old file, .* `synthstream succeed old\.toml new\.toml`"):
        Stream(config_of(tmp_path, "always", constraints=""))


def test_the_report_counts_impossible_rows(tmp_path: Path) -> None:
    config = config_of(tmp_path, "always")
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    page = public_page(config, tmp_path / "report.html", progress=lambda work, _: work)
    assert "18 of 25 combinations of ward, x are allowed" in page
    assert "No row of the newest release is impossible." in page
