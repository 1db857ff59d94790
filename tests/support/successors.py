"""A small stream and its successor, with other columns, bins, values, budget and horizon."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from synthstream import Stream, StreamConfig
from tests.support.configs import SINK, WARD, number, stream_toml
from tests.support.halves import exact
from tests.support.streams import rows

OLD = stream_toml(WARD, number("x", "bins = 4", high=10), SINK, epsilon=1.0, until="2026-01-05", horizon=6)
PAID = '[[columns]]\nname = "paid"\ntype = "boolean"\n'
NEW = stream_toml(
    WARD.replace('"B", "C"', '"BC", "D"'),
    number("x", "bins = 2", high=10),
    PAID,
    SINK,
    '[after]\nconfig = "stream.toml"\nvalues = { ward = { B = "BC", C = "BC" } }\n',
    epsilon=0.5,
    until="2026-01-09",
    horizon=20,
)
CUT = 4


def written(folder: Path, text: str = OLD, name: str = "stream.toml") -> StreamConfig:
    """A configuration, in a file too."""
    (folder / name).write_text(text)
    return StreamConfig.from_toml(text, base=folder)


def events(number: int = 400, seed: int = 1) -> pl.DataFrame:
    """Rows over all ticks, with the column that the old stream does not know."""
    frame = rows(number, seed)
    return frame.with_columns(paid=pl.Series(np.random.default_rng(seed).random(number) < 0.3))


def renamed(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows as the successor's values name them."""
    return frame.with_columns(ward=pl.col("ward").replace({"B": "BC", "C": "BC"}))


def half(folder: Path, frame: pl.DataFrame, old: str = OLD) -> StreamConfig:
    """The old stream, without noise, up to the cut; rows of later ticks wait in it."""
    config = written(folder, old)
    with Stream(config, gates=exact) as stream:
        stream.update(frame)
        list(stream.run())
    return config
