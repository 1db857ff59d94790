"""Rows of windows beside the true events of the same ticks: one JSON line for each stream and seed, and a table.

    python -m benchmarks.windows --seeds 2
    python -m benchmarks.windows --stream dependent earthquakes --delta 0 --out /tmp/windows.jsonl
    python -m benchmarks.windows --show /tmp/before.jsonl /tmp/after.jsonl

A stream of ``benchmarks.data`` runs through the Python API, as users run it, with simulated noise. At a half and at
nine tenths of its ticks rows are asked for of the newest fiftieth, twentieth, seventh and two fifths of all ticks; with
delta = 0, where windows are whole epochs, of the newest one, two, three and five epochs. Errors are ``single`` and
``pairs``: the L1 distance between shares of the rows and of the true events of those ticks, mean over all tables of one
and of two columns. Beside them those of rows of all events so far (``all_single``, ``all_pairs``), which tell nothing
of the window, and of its own rows with columns shuffled (``independent_pairs``). ``--show`` runs nothing: with two
files it prints the ratios of the second to the first. NOT PRIVATE.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.data import STREAMS, Batches
from benchmarks.environment import environment
from benchmarks.modes import add_runs, all_of, category
from benchmarks.streams import read
from synthstream import Stream, StreamConfig
from synthstream.strategies.times import EpochTimes
from synthstream.workload import CodeArray, FloatArray, Workload

_START = datetime(2020, 1, 1)
_STREAMS = ("dependent", "switch", "flags", "evictions-fortnightly", "earthquakes", "bursts")
_MOMENTS, _PARTS, _EPOCHS = (0.5, 0.9), (0.02, 0.05, 0.15, 0.4), (1, 2, 3, 5)


def run(name: str, epsilon: float, delta: float, seed: int) -> dict[str, Any]:
    """One stream: errors of each of its windows."""
    batches, found = STREAMS[name](seed), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        config = _configured(batches, epsilon, delta, Path(folder) / "state")
        with Stream(config, simulate=seed) as stream:
            stream.update(_frame(batches))
            for end, begins in _windows(len(batches.ends), pure=delta == 0).items():
                *_, newest = stream.run(until=_day(end))
                every = config.schema.encode(newest.rows())
                for begin in begins:
                    true = batches.codes[batches.ends[begin - 1] : batches.ends[end - 1]]
                    own = config.schema.encode(stream.between(_day(begin), _day(end)).rows())
                    off = _errors(Workload.all_up_to(2, sizes=batches.sizes), true, own, every)
                    found.append({"from": begin, "to": end, "events": len(true), **off})
    facts = {"bench": "windows", "stream": name, "epsilon": epsilon, "delta": delta, "seed": seed}
    return {**facts, "windows": found, **environment()}


def _day(tick: int) -> datetime:
    return _START + timedelta(days=tick)


def _windows(ticks: int, *, pure: bool) -> dict[int, list[int]]:
    """By the tick before which windows end, those with which they begin."""
    found: dict[int, list[int]] = {}
    for moment in _MOMENTS:
        if pure:
            ends = [0, *EpochTimes(1.5, ticks).ended(ticks)]
            last = max(k for k, end in enumerate(ends) if end <= max(ticks * moment, 2))
            end, begins = ends[last], [ends[last - number] for number in _EPOCHS if number < last]
        else:
            end = round(ticks * moment)
            begins = [end - max(1, round(ticks * part)) for part in _PARTS]
        found[end] = list(dict.fromkeys(begin for begin in begins if begin > 0))
    return found


def _configured(batches: Batches, epsilon: float, delta: float, state: Path) -> StreamConfig:
    return StreamConfig.of(
        name="windows",
        state=str(state),
        privacy={"epsilon": epsilon, "delta": delta, "unit": "event"},
        clock={"column": "time", "start": _START, "every": "1d", "horizon": len(batches.ends)},
        columns=[category(f"c{i}", size) for i, size in enumerate(batches.sizes)],
    )


def _frame(batches: Batches) -> pl.DataFrame:
    """Its rows, each at the middle of its tick's day."""
    tick = np.searchsorted(batches.ends, np.arange(len(batches.codes)), side="right")
    when = np.datetime64(_START, "ms") + tick * np.timedelta64(1, "D") + np.timedelta64(12, "h")
    return pl.DataFrame({f"c{i}": column.astype(str) for i, column in enumerate(batches.codes.T)} | {"time": when})


def _errors(workload: Workload, true: CodeArray, own: CodeArray, every: CodeArray) -> dict[str, float]:
    """Distances from the true events; see above."""
    rng = np.random.default_rng(0)
    shuffled = np.column_stack([rng.permutation(column) for column in own.T])
    shares = workload.count(true) / max(len(true), 1)
    found = {}
    for prefix, rows in (("", own), ("all_", every), ("independent_", shuffled)):
        off = np.abs(workload.count(rows) / max(len(rows), 1) - shares)
        tables = np.add.reduceat(off, workload.offsets[:-1])
        for what, order in (("single", 1), ("pairs", 2)):
            found[prefix + what] = round(float(tables[workload.order == order].mean()), 5)
    return found


def shown(lines: Sequence[Mapping[str, Any]], beside: Sequence[Mapping[str, Any]] = ()) -> str:
    """A row for each stream and delta, its windows side by side; with ``beside``, the ratios of those to these."""
    kinds = ("single", "all_single", "pairs", "all_pairs", "independent_pairs") if not beside else ("single", "pairs")
    found = ["| stream | delta | events | " + " | ".join(kinds) + " |", "| --- " * (3 + len(kinds)) + "|"]
    for name, delta in dict.fromkeys((line["stream"], line["delta"]) for line in lines):
        own = [[x for x in some if (x["stream"], x["delta"]) == (name, delta)] for some in (lines, beside)]
        means, others = map(_means, own)
        cells = [f"`{name}`", f"{delta:g}", " ".join(f"{events:.0f}" for events in means["events"])]
        for kind in kinds:
            values = others[kind] / means[kind] if beside else means[kind]
            cells.append(" ".join(f"{value:.2f}" if beside else f"{value:.3f}" for value in values))
        found.append(f"| {' | '.join(cells)} |")
    return "\n".join(found)


def _means(lines: Sequence[Mapping[str, Any]]) -> dict[str, FloatArray]:
    """Of each figure, by window, the mean over seeds."""
    keys = lines[0]["windows"][0] if lines else ()
    return {key: np.mean([[window[key] for window in line["windows"]] for line in lines], axis=0) for key in keys}


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stream", nargs="+", choices=list(STREAMS), default=list(_STREAMS))
    add_runs(parser)
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="one file, or two that have the same runs")
    args = parser.parse_args()
    if args.show:
        print(shown(*map(read, args.show[:2])))
    else:
        print(shown(all_of(run, args.stream, args)))


if __name__ == "__main__":
    main()
