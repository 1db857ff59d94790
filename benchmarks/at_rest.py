"""Time of a commit, of wiping the log, and of opening a state, at the size of the Adult data. See docs/reliability.md.

    python -m benchmarks.at_rest [ticks]

JSON lines: milliseconds of a tick, median and 99 % of ticks, and seconds to open a state of so many ticks.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environment import environment
from synthstream.counts import Counts
from synthstream.measured import Committed
from synthstream.state.store import Store
from synthstream.workload import IntArray

CELLS = 23_838  # all pairs of columns of Adult
VECTORS = 17  # of cells in the state of the counter for delta above 0 and an unbounded horizon; 1 for delta = 0
_COMMITS = 200


def main(ticks: int) -> None:
    """Print figures for a state without and with a key."""
    for key in (None, bytes(32)):
        name = "plain" if key is None else "encrypted"
        with tempfile.TemporaryDirectory() as folder:
            state = Path(folder) / "state"
            store = Store(state, key=key)
            times = np.array([_tick(store, tick) for tick in range(_COMMITS)]) * 1e3
            for label, column in zip(
                ("counts", "commit", "wipe", "commit + wipe"), (*times.T, times[:, 1:].sum(axis=1)), strict=True
            ):
                median, slow = np.percentile(column, [50, 99])
                _say(state=name, what=label, median_ms=round(median, 1), p99_ms=round(slow, 1))
            _add_ticks(store, _COMMITS, ticks)
            _add_files(store, ticks)
            store.close()
            size = (state / "store.db").stat().st_size / 1e6
            for attempt in ("first", "second"):
                begun = time.perf_counter()
                store = Store(state, key=key)
                store.last(), store.counter(), store.population()
                spent = time.perf_counter() - begun
                _say(state=name, what=f"opening, {attempt}", ticks=ticks, mb=round(size), seconds=round(spent, 2))
                store.close()
            if key is None:
                store = Store(state)
                begun = time.perf_counter()
                store.db.execute("PRAGMA quick_check(1)").fetchall()
                _say(state=name, what="quick_check of the whole file", seconds=round(time.perf_counter() - begun, 2))
                store.close()


def _say(**facts: Any) -> None:
    print(json.dumps({"bench": "at_rest", **facts, **environment()}), flush=True)


def _noisy(tick: int) -> IntArray:
    return np.random.default_rng(tick).normal(0, 3000, CELLS).astype(np.int64)


def _tick(store: Store, tick: int) -> tuple[float, float, float]:
    noisy = _noisy(tick)
    state = {"t": np.array(tick + 1), "sums": np.tile(noisy, (VECTORS, 1))}
    begun = time.perf_counter()
    with store.transaction("counts"):
        store.add_pending(tick, Counts.of(np.arange(CELLS)))
    counted = time.perf_counter()
    with store.transaction("measurement"):
        store.append_measurement(Committed(tick, noisy, f"{tick:064x}"))
        store.put_counter(state)
        store.drop_pending(tick)
        store.forget("answer", tick)
    committed = time.perf_counter()
    store.wipe()
    return counted - begun, committed - counted, time.perf_counter() - committed


def _add_ticks(store: Store, first: int, ticks: int) -> None:
    with store.transaction("test"):
        for tick in range(first, ticks):
            store.append_measurement(Committed(tick, _noisy(tick % 50), f"{tick:064x}"))


def _add_files(store: Store, number: int) -> None:
    with store.transaction("test"):
        for i in range(number):
            store.put_ingested(f"file data/day-{i:06d}.parquet", f"{i:064x}")
            store.put_ingested(f"content {i:064x}", f"{i:064x}")


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("ticks", type=int, nargs="?", default=10_000)
    main(asked.parse_args().ticks)
