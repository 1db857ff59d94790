"""What examples of docstrings stand in: a folder with the ``stream.toml`` of docs/api.md, and trips for it to read."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import synthstream

_PAGE = Path(__file__).parent / "docs" / "api.md"


def _trips(rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "start": [datetime(2026, 1, 5) + timedelta(hours=float(h)) for h in rng.uniform(0, 28 * 24, rows)],
            "zone": rng.choice(["north", "south", "harbour"], rows, p=[0.5, 0.3, 0.2]),
            "minutes": rng.gamma(4.0, 5.0, rows),
        }
    )


@pytest.fixture(autouse=True)
def _folder_of_trips(request: pytest.FixtureRequest) -> None:
    """For examples that name ``stream.toml``."""
    item = request.node
    if (
        isinstance(item, pytest.DoctestItem)
        and item.dtest is not None
        and "stream.toml" in (item.dtest.docstring or "")
    ):
        folder = request.getfixturevalue("tmp_path")
        found = re.search(r"^```toml\n(.*?)^```$", _PAGE.read_text(), re.DOTALL | re.MULTILINE)
        assert found is not None
        (folder / "stream.toml").write_text(found.group(1))
        after = '[after]\nconfig = "stream.toml"\n'
        (folder / "next.toml").write_text(found.group(1).replace("horizon = 52", "horizon = 104") + after)
        _trips(8_000).write_parquet(folder / "trips.parquet")
        request.getfixturevalue("monkeypatch").chdir(folder)
        item.dtest.globs["synthstream"] = synthstream  # of this example alone: others say what they import
