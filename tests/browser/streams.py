"""A small real stream with columns of all kinds, and the pages that are made of it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from typer.testing import CliRunner

from synthstream import Stream, StreamConfig
from synthstream.cli.app import app

_TEXT = """
name = "city-calls"
state = "state"
[privacy]
epsilon = 4.0
delta = 1e-9
unit = "event"
[clock]
column = "when"
start = 2026-01-01
every = "1w"
until = 2026-03-26
horizon = 520
[source]
kind = "parquet"
path = "calls.parquet"
[sink]
kind = "parquet"
path = "releases"
[[columns]]
name = "what the call was about, in the words of the dispatcher"
type = "category"
values = ["Noise", "Water main break", "Fallen tree across a road or a path", "Street light", "Parking", "Graffiti",
  "Pothole", "Abandoned vehicle", "Overflowing bin", "Illegal dumping", "Lost property", "Other requests"]
[[columns]]
name = "urgent"
type = "boolean"
missing = false
[[columns]]
name = "hour"
type = "datetime"
part = "hour"
[[columns]]
name = "due"
type = "datetime"
min = 2026-01-01
max = 2026-07-01
bins = 26
[[columns]]
name = "latitude"
type = "number"
min = 47
max = 48
bins = 12
[[columns]]
name = "longitude"
type = "number"
min = 8
max = 10
bins = 12
[[columns]]
name = "district"
label = "District"
type = "category"
values = ["1", "2", "3", "4"]
regions = "districts.geojson"
region_key = "number"
"""


def districts() -> dict[str, Any]:
    """A city of 0.06 by 0.04 degrees at 47.4 north: three districts in a row, of which the third has an exclave and
    lies around a lake; the fourth is not there, but a place of another city is. Rings turn either way.
    """

    def ring(west: float, south: float, east: float, north: float) -> list[list[float]]:
        corners = [(west, south), (east, south), (east, north), (west, north), (west, south)]
        return [[8.5 + x / 100, 47.38 + y / 100] for x, y in corners]

    shapes: list[tuple[Any, str, Any]] = [
        (1, "Polygon", [ring(0, 0, 2, 3)]),
        (2.0, "Polygon", [ring(2, 0, 4, 4)[::-1]]),
        ("3", "MultiPolygon", [[ring(4, 0, 6, 3), ring(4.5, 1, 5.5, 2)], [ring(0, 3.2, 1, 4)]]),
        ("Elsewhere", "Polygon", [ring(900, 0, 901, 1)]),
    ]
    features = [
        {"type": "Feature", "properties": {"number": number, "area": 1}, "geometry": {"type": kind, "coordinates": c}}
        for number, kind, c in shapes
    ]
    return {"type": "FeatureCollection", "features": features}


def made(folder: Path, *, delta: float = 1e-9) -> StreamConfig:
    """The stream in a folder, with its releases."""
    text = _TEXT.replace("delta = 1e-9", f"delta = {delta}")
    (folder / "stream.toml").write_text(text)
    (folder / "districts.geojson").write_text(json.dumps(districts()))
    config = StreamConfig.from_toml(text, base=folder)
    rng, number = np.random.default_rng(11), 6000
    place = rng.integers(0, 2, number)
    what = rng.choice(12, number, p=np.arange(12, 0, -1) / 78)
    when = [datetime(2026, 1, 1) + timedelta(hours=float(h)) for h in rng.uniform(0, 12 * 7 * 24, number)]
    pl.DataFrame(
        {
            "when": when,
            config.schema.names[0]: np.array(config.schema.labels[0])[what],
            "urgent": (what < 3) & (rng.random(number) < 0.8),
            "hour": when,
            "due": [
                moment + timedelta(days=float(d)) for moment, d in zip(when, rng.gamma(2, 10, number), strict=True)
            ],
            "latitude": 47.3 + 0.4 * place + rng.normal(0, 0.08, number),
            "longitude": 8.5 + 0.9 * place + rng.normal(0, 0.15, number),
            "district": rng.choice(["1", "2", "3", "4"], number, p=[0.5, 0.2, 0.29, 0.01]),
        }
    ).write_parquet(folder / "calls.parquet")
    with Stream(config) as stream:
        stream.ingest()
        for _ in range(stream.due()):
            stream.release()
    return config


def page(folder: Path, kind: str) -> Path | None:
    """One of the pages about the stream in a folder, made by its command; ``None`` if no command makes it."""
    output = folder / f"{kind}.html"
    if kind == "plan":
        if "--output" not in CliRunner().invoke(app, ["plan", "--help"], env={"COLUMNS": "200"}).output:
            return None
        command = ["plan", str(folder / "stream.toml"), "-o", str(output)]
    elif kind == "check":
        command = ["check", str(folder / "stream.toml"), str(folder / "calls.parquet"), "-o", str(output)]
    else:
        extra = ["--custodian"] if kind == "custodian" else []
        command = ["report", str(folder / "stream.toml"), "-o", str(output), *extra]
    result = CliRunner().invoke(app, command)
    if result.exit_code:
        raise RuntimeError(result.output)
    return output
