"""Real processes, real kills. What is published never changes, and an interrupted run ends with every release.

With real noise a second draw for a published tick would show as a changed file. With simulated noise, which has a seed
for each tick, an interrupted run must also end with the releases of an uninterrupted one, byte for byte: nothing lost,
nothing counted twice.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TICKS = 16


WITHOUT_CONSTRAINTS = {  # which are for kind = "table"
    """[[constraints]]
columns = ["Eviction Notice Source Zipcode", "Supervisor District", "Neighborhoods - Analysis Boundaries"]
allowed = "crosswalk.csv"
""": ""
}
KINDS = {
    "table": ("evictions", {}),
    "selective": ("evictions", {'kind = "table"': 'kind = "selective"\npicks = 3', **WITHOUT_CONSTRAINTS}),
    "points": ("earthquakes", {"depth = 20": "depth = 14"}),
    "hypercube": (
        "earthquakes",
        {
            "depth = 20": "depth = 10",
            'kind = "points"': 'kind = "hypercube"',
            'unit = "event"': 'unit = "event"\nneighbours = "replace-one"',
        },
    ),
}
UNTIL = {
    "evictions": ("until = 2016-01-02", "until = 2011-04-23"),
    "earthquakes": ("until = 2026-08-01", "until = 2021-05-01"),
}


def prepared(folder: Path, kind: str) -> Path:
    """A copy of an example that ends after ``TICKS`` ticks."""
    example, changes = KINDS[kind]
    shutil.copytree(EXAMPLES / example, folder / example, ignore=shutil.ignore_patterns("state*", "releases*"))
    (folder / "data").mkdir()
    for path in (EXAMPLES / "data").glob("s*.parquet"):
        shutil.copy(path, folder / "data")
    path = folder / example / "stream.toml"
    text = path.read_text()
    for old, new in [UNTIL[example], *changes.items()]:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path


def start(config: Path, *switches: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-c",
        "from synthstream.cli.app import main; main()",
        "run",
        str(config),
        "--yes",
        *switches,
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603


def published(folder: Path) -> dict[str, bytes]:
    # What describes the newest release for portals is no part of one, and changes with it.
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("0*/*.*") if ".writing" not in str(p)}


SIMULATED = ("--simulate", "--seed", "5")
CASES = [
    pytest.param(kind, switches, id=f"{kind}-{'simulated' if switches else 'real'}")
    for kind in KINDS
    for switches in ((), SIMULATED)
]


@pytest.mark.soak  # with make slow: test_crashes kills small streams of every kind, and test_live the command
@pytest.mark.parametrize(("kind", "switches"), CASES)
def test_killed_again_and_again_it_ends_the_same(tmp_path: Path, kind: str, switches: tuple[str, ...]) -> None:
    config = prepared(tmp_path / "broken", kind)
    releases = config.parent / ("releases-simulated" if switches else "releases")
    wait = random.Random(11)  # noqa: S311 - when to kill, nothing more
    kills, seen, patience = 0, dict[str, bytes](), 1.4  # about when it has begun
    for _ in range(200):
        process = start(config, *switches)
        try:
            process.wait(timeout=wait.uniform(patience, patience + 0.6))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        now = published(releases)
        assert {name: now.get(name) for name in seen} == seen, "a published file changed"
        patience *= 1.0 if len(now) > len(seen) else 1.2  # until it gets somewhere, on any machine
        seen = now
        if process.returncode == 0:
            break
    assert process.returncode == 0
    assert kills >= 4
    assert len(seen) == (5 * TICKS if KINDS[kind][0] == "evictions" else 4 * TICKS)
    if switches:
        whole = prepared(tmp_path / "whole", kind)
        assert start(whole, *switches).wait(timeout=120) == 0
        assert seen == published(whole.parent / "releases-simulated")
