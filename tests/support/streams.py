"""Small streams of every kind, for tests that must hold for all of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from synthstream import Stream, StreamConfig
from synthstream.kernel.gate import Gate
from synthstream.stream.recovery import adopt
from tests.support.configs import SINK, WARD, number, source, stream_toml

_TABLE = WARD + number("x", "bins = 4", high=10)
_POINTS = number("x", "missing = 0", high=10) + number("y", "missing = 0", high=10)
_LINE = number("x", "missing = 0", high=10)
_PLACES = (
    WARD + '[[columns]]\nname = "spot"\ntype = "place"\ncoordinates = ["x", "y"]\nbounds = [[0, 10], [0, 10]]\n'
    'views = [1, 2]\ndepth = 3\nwith = ["ward"]\n'
)

_KINDS = {
    "always": ('kind = "table"\nmeasure = "always"', 1e-9, "add-remove", _TABLE),
    "refresh": ('kind = "table"\nmeasure = "refresh"\ngrowth = 1.6', 1e-9, "add-remove", _TABLE),
    "places": ('kind = "table"', 1e-9, "add-remove", _PLACES),
    "epochs": ('kind = "table"\npicks = 1', 0, "add-remove", _TABLE),
    "selective": ('kind = "selective"\npicks = 1', 0, "add-remove", _TABLE),
    "selective-mw": ('kind = "selective"\npicks = 1\nfit = "mw"', 1e-9, "add-remove", _TABLE),
    "selective-single": ('kind = "selective"\npicks = 4\nqueries = "single"', 0, "add-remove", _TABLE),
    "stream-mwem": ('kind = "stream-mwem"\npicks = 1\nfit = "mw"', 0, "add-remove", _TABLE),
    "stream-mwem-single": ('kind = "stream-mwem"\npicks = 4\nqueries = "single"', 0, "add-remove", _TABLE),
    "points": ('kind = "points"\ndepth = 8', 0, "add-remove", _POINTS),
    "points-zcdp": ('kind = "points"\ndepth = 8\nevents_per_tick = 1e6', 1e-9, "add-remove", _LINE),
    "points-signed": ('kind = "points"\ndepth = 8', 0, "add-remove", _POINTS),
    "hypercube": ('kind = "hypercube"\ndepth = 8', 0, "replace-one", _POINTS),
}
KINDS = tuple(_KINDS)  # that protect events
PERSONS = "persons"
TICKS = 8


def text_of(kind: str) -> str:
    """The configuration of a kind."""
    synthesizer, delta, neighbours, columns = _KINDS["always" if kind == PERSONS else kind]
    unit = '{ person = "who", max_events = 3, max_per_tick = 1, per = "4d" }' if kind == PERSONS else '"event"'
    sections = (f"[synthesizer]\n{synthesizer}\n", source("rows-*.parquet"), SINK, columns)
    head = stream_toml(
        *sections,
        name=kind,
        epsilon=2.0,
        delta=delta,
        unit=unit,
        neighbours=neighbours,
        until="2026-01-09",
        horizon=12,
    )
    return ('op = "op"\n' if kind == "points-signed" else "") + head


def configured(folder: Path, kind: str, *, until: str = "2026-01-09") -> StreamConfig:
    """The configuration of a kind in a folder; writes it there too."""
    folder.mkdir(exist_ok=True)
    text = text_of(kind).replace("until = 2026-01-09", f"until = {until}")
    (folder / "stream.toml").write_text(text)
    return StreamConfig.from_toml(text, base=folder)


def rows(number: int, seed: int) -> pl.DataFrame:
    """Rows over all ticks, for any kind."""
    rng = np.random.default_rng(seed)
    start = datetime(2026, 1, 1)
    return pl.DataFrame(
        {
            "when": [start + timedelta(hours=float(h)) for h in rng.uniform(0, 24 * TICKS, number)],
            "ward": rng.choice(["A", "B", "C"], number, p=[0.6, 0.3, 0.1]),
            "x": rng.beta(2, 5, number) * 10,
            "y": rng.beta(5, 2, number) * 10,
            "who": rng.integers(0, max(number // 4, 1), number),
            "op": rng.choice([1, -1], number, p=[0.8, 0.2]),
        }
    )


def published(folder: Path) -> dict[str, bytes]:
    """Every published byte; not what is still being written."""
    places = [p for p in folder.iterdir() if not p.name.startswith(".writing-")] if folder.exists() else []
    paths = [p for place in places for p in ([place] if place.is_file() else place.rglob("*")) if p.is_file()]
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(paths)}


def adopted(folder: Path, kind: str, gates: Callable[[int], Gate]) -> StreamConfig:
    """A stream that lost its state after four ticks, went on from its releases, and ended at the last tick."""
    config = configured(folder, kind, until="2026-01-05")
    rows(400, 1).write_parquet(folder / "rows-1.parquet")
    with Stream(config, gates=gates) as stream:
        list(stream.run())
    shutil.rmtree(config.state)
    adopt(config, gates=gates)
    with Stream(config := configured(folder, kind), gates=gates) as stream:
        list(stream.run())
    return config
