"""Coupling: of neighbouring streams whose noise hides the difference, nothing that can be seen differs.

The noise of the second run is that of the first, moved by the difference of the exact values, so that both measure the
same. Whatever still differs has not passed the gate.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.rows.coupling import Seen, see
from tests.rows.streams import FILES, KINDS, Kind, Pair, Way, random_pair


def differences(
    folder: Path, seed: int, capfd: pytest.CaptureFixture[str], kind: Kind | None = None, way: Way | None = None
) -> tuple[Pair, Seen]:
    rng = np.random.default_rng([731, seed])
    pair = random_pair(kind or KINDS[seed % len(KINDS)], rng, way=way)
    return pair, see(folder / "x", pair, seed, capfd)


def check(folder: Path, seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    pair, seen = differences(folder, seed, capfd)
    assert seen.differs() == [], f"seed {seed}\n{pair}\n{seen.one}\n{seen.two}"
    # Runs that fail alike would look alike.
    exits = [*["run: exit 0"] * len(pair.one), "status: exit 0", *["sample: exit 0"] * ("[sink]" in pair.text)]
    ending = f"returned {exits if pair.way in FILES else None}"
    assert seen.one.ending == ending, f"seed {seed}: {pair.text}\n{seen.one.err}"
    assert seen.one.files, f"seed {seed}: nothing was published"


@pytest.mark.sparing(9)
@pytest.mark.parametrize("seed", range(24))
def test_neighbours_cannot_be_told_apart(seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check(tmp_path, seed, capfd)


@pytest.mark.sparing(0, 1)
@pytest.mark.parametrize("block", range(2))
def test_40_neighbours_cannot_be_told_apart(block: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for seed in range(1000 + block * 20, 1020 + block * 20):
        check(tmp_path, seed, capfd)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(100))
def test_10000_neighbours_cannot_be_told_apart(block: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for seed in range(10_000 + block * 100, 10_100 + block * 100):
        check(tmp_path, seed, capfd)
