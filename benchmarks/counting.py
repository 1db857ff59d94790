"""Rows counted a second, and memory: codes, a Parquet file in chunks by one and by two threads, and merging.

    python -m benchmarks.counting

UCI Census Income again and again, ten million rows: 14 columns, the total, 14 tables of one and 91 of two. Every
line is a process of its own, so that its peak memory is its own; "above" is what it takes more than before it began.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from benchmarks.data import adult
from benchmarks.environment import environment, peak_mb
from synthstream import Counting, CountsByTick, StreamConfig, Workload
from synthstream.ingest.files import FileSource

ROWS, CHUNK = 10_000_000, 250_000
WHAT = ("codes", "codes, 2 threads", "file", "file, 2 threads", "merge and bytes")


def config() -> StreamConfig:
    """A stream of Census Income."""
    _, sizes = adult("by-row-number")
    columns = "".join(
        f'[[columns]]\nname = "c{i}"\ntype = "integer"\nmin = 0\nmax = {size - 1}\nmissing = 0\n'
        for i, size in enumerate(sizes)
    )
    return StreamConfig.from_toml(
        'name = "adult"\nstate = "state"\nprivacy = { epsilon = 1.0, delta = 1e-9, unit = "event" }\n'
        f'clock = {{ start = 2026-01-01, every = "1d", horizon = 365 }}\n{columns}'
    )


def write(path: Path) -> None:
    """Ten million rows as Parquet."""
    codes, _ = adult("random")
    names = [f"c{i}" for i in range(codes.shape[1])]
    part = pl.DataFrame(codes, schema=names).to_arrow()
    with pq.ParquetWriter(path, part.schema) as writer:
        for _ in range(ROWS // len(codes) + 1):
            writer.write_table(part)


def seconds(what: str, path: Path) -> tuple[float, int]:
    """Time of one kind of counting, and its number of rows, compiled code being there already."""
    counting, codes = Counting(config()), adult("random")[0]
    workload = Workload.all_up_to(2, sizes=adult("by-row-number")[1])
    threads = 2 if "2 threads" in what else 1
    if what.startswith("codes"):
        from synthstream.ingest.counting import in_threads

        parts = [np.tile(codes, (6, 1))[:CHUNK]] * 20
        workload.count(parts[0])
        start = time.perf_counter()
        for _ in in_threads(workload.count, parts, threads=threads):
            pass
        return time.perf_counter() - start, CHUNK * len(parts)
    source = FileSource(kind="parquet", path=path, columns=tuple(f"c{i}" for i in range(codes.shape[1])))
    chunks = source.read(path)
    part = counting.count(next(chunks))
    if what.startswith("merge"):
        start = time.perf_counter()
        for _ in range(20):
            part = part.merge(CountsByTick.from_bytes(part.to_bytes()))
        return (time.perf_counter() - start) / 20, 0
    start = time.perf_counter()
    counting.count_all(chunks, threads=threads)
    return time.perf_counter() - start, pq.ParquetFile(path).metadata.num_rows - CHUNK


def one(what: str, path: Path) -> None:
    """Print one line."""
    counting = Counting(config())
    counting.count(pl.DataFrame({f"c{i}": [0] * 60_000 for i in range(14)}))  # compiles
    before = peak_mb()
    took, rows = seconds(what, path)
    line: dict[str, Any] = {"bench": "counting", "what": what, "rows": rows, "seconds": round(took, 4)}
    if rows:
        line["million_rows_a_second"] = round(rows / took / 1e6, 2)
    print(json.dumps({**line, "mb_above": round(peak_mb() - before), **environment()}), flush=True)


def main() -> None:
    """All lines, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", choices=WHAT, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one, args.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path)
        for what in WHAT:
            command = [sys.executable, "-m", "benchmarks.counting", "--one", what, "--file", str(path)]
            subprocess.run(command, check=True)  # noqa: S603 - this module


if __name__ == "__main__":
    main()
