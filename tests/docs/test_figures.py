"""Figures on the pages that follow from public facts alone are what the program computes; the reference is whole."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import synthstream
from synthstream.kernel.counters import counter
from synthstream.kinds import COUNTERS, Noise
from synthstream.privacy import Budget

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "synthesizers" / "counters.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| (\S+) \| (.*?) " + r"\| ([\d.]+) " * 4 + r"\|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:3]))
def test_standard_errors_of_counters(row: tuple[str, ...]) -> None:
    kind, delta, horizons, *figures = row
    noise: Noise = "laplace" if delta == "0" else "gaussian"
    budget = Budget(epsilon=1.0, delta=float(delta))
    multiplier = 1.0 if delta == "0" else 1 / float(np.sqrt(2 * float(budget.rho)))
    for horizon in horizons.split(" or "):
        made = counter(as_kind(kind), horizon=None if horizon == "-" else int(horizon.replace(",", "")), noise=noise)
        found = [f"{np.sqrt(made.variance(t - 1, multiplier=multiplier)):.1f}" for t in (1, 10, 100, 1_000)]
        assert found == figures


def as_kind(name: str) -> str:
    return next(kind for kind in COUNTERS if kind == name)


def test_every_counter_is_in_the_table() -> None:
    assert {row[0] for row in ROWS} == set(COUNTERS) - {"auto", "weeks", "sevens"}  # the guide and a test add theirs
    assert len(ROWS) == 11


def test_the_reference_names_all_that_is_public() -> None:
    listed = set(
        re.findall(r"^::: synthstream\.(?:\w+\.)*(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    )
    assert set(synthstream.__all__) - {"SynthstreamError"} <= listed
    assert "errors" in listed  # which holds SynthstreamError
