"""How a stream ages: start-up, commits, state and memory over many ticks; memory for one huge batch.

    python -m benchmarks.longevity ticks --ticks 10000
    python -m benchmarks.longevity batch --rows 10000000

One JSON line each. Columns and tables are those of Adult: 14 columns, all tables of one and two of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.environments import At

from benchmarks.data import FOLDER
from benchmarks.environment import environment, peak_mb
from synthstream import Stream, StreamConfig
from synthstream.environment import T

LATER = datetime(2200, 1, 1, tzinfo=UTC)
KEEP = 10
CLOSING = ("commit measurement", "wipe log")


def config_of(folder: Path, *, sink: bool = True) -> StreamConfig:
    """Adult's columns, hourly ticks without end."""
    sizes = json.loads((FOLDER / "adult-domain.json").read_text())
    columns = [
        f'[[columns]]\nname = "{name}"\ntype = "category"\nvalues = {json.dumps([str(i) for i in range(size)])}\n'
        'missing = "0"\nother = "0"\n'
        for name, size in sizes.items()
    ]
    text = (
        'name = "adult"\nstate = "state"\n[privacy]\nepsilon = 1.0\ndelta = 1e-9\nunit = "event"\n'
        '[clock]\nstart = 2026-01-01\nevery = "1h"\nhorizon = "unbounded"\n'
        + "".join(columns)
        + (f'[sink]\nkind = "parquet"\npath = "releases"\nkeep = {KEEP}\n' if sink else "")
    )
    return StreamConfig.from_toml(text, base=folder)


class Timed(At):
    """The far future, with a clock on what closes a tick."""

    def __init__(self) -> None:
        super().__init__(LATER)
        self.seconds: dict[str, list[float]] = {}

    def do(self, name: str, effect: Callable[[], T]) -> T:
        """Do it, and write down how long it took."""
        start = time.perf_counter()
        try:
            return effect()
        finally:
            if name in CLOSING:
                self.seconds.setdefault(name, []).append(time.perf_counter() - start)


def resident_mb() -> float:
    """Memory of this process now, in megabytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise LookupError("no VmRSS")


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def rows(number: int, sizes: dict[str, int], rng: np.random.Generator) -> pl.DataFrame:
    """Rows of uniform codes, as texts."""
    return pl.DataFrame({name: rng.integers(0, size, number).astype(str) for name, size in sizes.items()})


def ticks(number: int, events: int) -> dict[str, Any]:
    """Many ticks with a few events each."""
    sizes, rng, env = json.loads((FOLDER / "adult-domain.json").read_text()), np.random.default_rng(0), Timed()
    with tempfile.TemporaryDirectory() as place:
        folder, memory = Path(place), dict[int, float]()
        config = config_of(folder)
        started = time.perf_counter()
        with Stream(config, env=env) as stream:
            cells = stream.mechanism.workload.cells
            for tick in range(1, number + 1):
                stream.update(rows(events, sizes, rng))
                stream.release()
                if tick in (100, 1000, number):
                    memory[tick] = resident_mb()
        seconds = time.perf_counter() - started
        again = subprocess.run(  # noqa: S603 - ourselves
            [sys.executable, "-m", "benchmarks.longevity", "open", "--folder", place],
            capture_output=True,
            text=True,
            check=True,
        )
        commits, wipes = (np.array(env.seconds[name][:number]) * 1000 for name in CLOSING)
        return {
            "bench": "longevity",
            "what": "ticks",
            "ticks": number,
            "cells": cells,
            "commit_ms": {"median": float(np.median(commits)), "p99": float(np.quantile(commits, 0.99))},
            "closing_ms_p99": float(np.quantile(commits + wipes, 0.99)),
            "state_kb_per_tick": size_of(config.state) / number / 1000,
            "releases_kb_per_tick": size_of(folder / "releases") / number / 1000,
            "memory_mb": memory,
            "seconds_per_tick": seconds / number,
            **json.loads(again.stdout),
        }


def opened(folder: Path) -> dict[str, Any]:
    """How long an old state takes to open, in a process of its own."""
    config = config_of(folder)
    start = time.perf_counter()
    with Stream(config, env=At(LATER)) as stream:
        return {"startup_seconds": time.perf_counter() - start, "at_tick": stream.closed}


def batch(number: int) -> dict[str, Any]:
    """One huge file, counted in one go."""
    sizes, rng = json.loads((FOLDER / "adult-domain.json").read_text()), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.parquet"
        part = rows(250_000, sizes, rng).to_arrow()
        with pq.ParquetWriter(path, part.schema) as writer:
            for _ in range(number // part.num_rows):
                writer.write_table(part)
        del part
        found = subprocess.run(  # noqa: S603 - ourselves
            [sys.executable, "-m", "benchmarks.longevity", "count", "--folder", place],
            capture_output=True,
            text=True,
            check=True,
        )
        return {
            "bench": "longevity",
            "what": "batch",
            "rows": number,
            "arrow": pa.__version__,
            **json.loads(found.stdout),
        }


def counted(folder: Path) -> dict[str, Any]:
    """Memory and time for a file, in a process of its own."""
    with Stream(config_of(folder, sink=False), env=At(LATER)) as stream:
        stream.update(rows(1000, json.loads((FOLDER / "adult-domain.json").read_text()), np.random.default_rng(1)))
        before, start = peak_mb(), time.perf_counter()
        stream.update(folder / "rows.parquet")
        return {"seconds": time.perf_counter() - start, "memory_mb_above": peak_mb() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ticks", "batch", "open", "count"])
    parser.add_argument("--ticks", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=2, help="events in a tick")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    if args.what in ("open", "count"):
        print(json.dumps(opened(args.folder) if args.what == "open" else counted(args.folder)))
        return
    found = ticks(args.ticks, args.events) if args.what == "ticks" else batch(args.rows)
    print(json.dumps(found | environment()))


if __name__ == "__main__":
    main()
