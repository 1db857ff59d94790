"""What a claim says after a loss: the theorem that it rests on from then on, and what that takes for granted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import synthstream
from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.publish.history import history_of
from synthstream.report.public import ledger
from synthstream.stream.recovery import adopt, republish
from synthstream.stream.verification import verify
from tests.support.halves import HALF, half_run
from tests.support.streams import TICKS, configured, published


def claims(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text())["claim"] for p in sorted((folder / "releases").glob("0*/manifest.json"))]


def named(folder: Path) -> list[bool]:
    """Of each tick, whether its claim names the theorem and what it trusts: both, or none."""
    found = []
    for claim in claims(folder):
        trusts = [trust for trust in claim["trusts"] if "state was lost" in trust]
        assert bool(trusts) == ("segments" in claim["theorems"])
        found.append(bool(trusts))
    return found


def lost(config: StreamConfig) -> None:
    shutil.rmtree(config.state)
    assert adopt(config).segment


def run(config: StreamConfig) -> None:
    with Stream(config) as stream:
        list(stream.run())


@pytest.mark.parametrize("kind", ["always", "points"])
def test_the_claim_names_the_theorem_from_the_segment_on(tmp_path: Path, kind: str) -> None:
    config = half_run(tmp_path, kind, number=60)
    before = claims(tmp_path)[-1]
    lost(config)
    run(config)
    assert named(tmp_path) == [False] * HALF + [True] * (TICKS - HALF)
    after = claims(tmp_path)[-1]
    assert {k for k in after if after[k] != before[k]} == {"theorems", "trusts"}, "it promises the same"
    assert sorted(after["theorems"]) == sorted([*before["theorems"], "segments"])
    assert verify(config, rebuild=True).findings == []
    with Stream(config) as stream:
        assert stream.status()["spent"] == [after]
    status = CliRunner().invoke(app, ["status", str(tmp_path / "stream.toml"), "--json"])
    assert json.loads(status.stdout)["claim"] == after
    assert (
        CliRunner().invoke(app, ["report", str(tmp_path / "stream.toml"), "-o", str(tmp_path / "r.html")]).exit_code
        == 0
    )
    assert "<dt><code>segments</code>" in (tmp_path / "r.html").read_text()
    assert len(ledger(history_of(config, progress=lambda steps, _: steps))) == 1, "charged once"
    releases = synthstream.releases(tmp_path / "stream.toml")
    assert [release.facts["claim"] for release in releases] == claims(tmp_path)
    if kind == "always":
        assert releases.between("2026-01-02", "2026-01-08").facts["claim"] == after
        assert releases.at("2026-01-08").compare(releases.at("2026-01-02"), ["ward"]).height > 0, "still one stream"


def test_the_name_is_chained(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always", number=60)
    lost(config)
    run(config)
    first = claims(tmp_path)[0]
    for tick in range(HALF, TICKS):  # as if there were no segment
        path = tmp_path / f"releases/{tick:06d}/manifest.json"
        manifest = {**json.loads(path.read_text()), "claim": first}
        del manifest["segments"]
        path.write_text(json.dumps(manifest, indent=2) + "\n")
    shutil.rmtree(config.state)
    assert verify(config).findings == [
        (f"{tick:06d}", "its head is not that of what was measured") for tick in range(HALF, TICKS)
    ]


def test_a_second_loss_changes_nothing_of_what_is_out(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always", number=60)
    for until in ("2026-01-07", "2026-01-08"):
        lost(config)
        run(configured(tmp_path, "always", until=until))
    lost(config)
    run(config)
    assert named(tmp_path) == [False] * HALF + [True] * (TICKS - HALF)
    assert json.loads((tmp_path / "releases/000007/manifest.json").read_text())["segments"] == [HALF, 6, 7]
    assert verify(config, rebuild=True).findings == []
    before = published(tmp_path / "releases")
    shutil.rmtree(tmp_path / "releases")
    assert republish(config) == TICKS
    assert published(tmp_path / "releases") == before
    (tmp_path / "releases/000004/manifest.json").unlink()
    found = verify(config).findings
    assert "000004" in {finding.where for finding in found}
    assert not [finding for finding in found if "claim" in finding.what], "nobody else's is blamed"
