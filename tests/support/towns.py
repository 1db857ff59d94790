"""A stream of points: events around two towns, over twenty days."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl

from tests.support.configs import SINK, number, source, stream_toml

TOML = stream_toml(
    number("lat", "missing = 30", low=30, high=40),
    number("lon", "missing = -120", low=-120, high=-100),
    '[synthesizer]\nkind = "points"\ndepth = 12\n',
    source("rows.parquet"),
    SINK,
    name="places",
    epsilon=4.0,
    delta=0,
    until="2026-01-21",
    horizon=20,
)


def rows(number: int = 4000, seed: int = 0) -> pl.DataFrame:
    """Two towns."""
    rng = np.random.default_rng(seed)
    town = rng.random(number) < 0.7
    when = [datetime(2026, 1, 1) + timedelta(days=float(d)) for d in np.sort(rng.random(number)) * 20]
    return pl.DataFrame(
        {
            "when": when,
            "lat": np.where(town, 33, 38) + 0.3 * rng.standard_normal(number),
            "lon": np.where(town, -117, -104) + 0.3 * rng.standard_normal(number),
        }
    )
