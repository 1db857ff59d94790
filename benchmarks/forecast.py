"""What `synthstream plan` forecasts beside what is measured: all streams to tune on, and points; four ticks each.

    python -m benchmarks.forecast
    python -m benchmarks.forecast --stream switch seasonal --delta 0

NOT PRIVATE: this program sees the truth. It runs each stream with seeded noise, twice, tick by tick as a stream
does, and compares root mean squares (cells, boxes) and means (tables, distances) over the runs with the forecast of
`plan` for the same configuration. `plan` is told a rate of events, public knowledge or a round guess, and nothing else:
35 evictions a week, 200 people of the census a tick, 1,500 earthquakes a month. Prints JSON lines, puts them into
results/forecast.jsonl in the place of older ones of the same stream, and writes results/forecast.md. All streams take
half an hour on two cores.

Streams of tables are run twice: with delta = 1e-9, at refreshes; and with delta = 0, in epochs, where only tables of
one column are measured by all of them, so that measured cells of larger ones have no single standard error.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.data import EXAMPLES, STREAMS, TO_TUNE_ON
from benchmarks.environment import environment
from synthstream.config.config import StreamConfig, load
from synthstream.counts import Counts
from synthstream.evaluate.wasserstein import w1_grid
from synthstream.forecast.planning import Forecast, plan
from synthstream.ingest.counting import encode
from synthstream.partition import Partition
from synthstream.synthesizers.assembly import synthesizer_of
from synthstream.synthesizers.contract import Expected, Models, RowErrors, Synthesizer
from synthstream.synthesizers.epochs import InEpochs
from synthstream.synthesizers.points import FromNodes
from synthstream.synthesizers.simulation import points, tables
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.synthesizers.tables import AtRefreshes, Continual
from synthstream.workload import FloatArray, Workload

SEEDS = 2
RESULTS = Path(__file__).parent / "results"
# Cells along each side of the grid that distances are measured on, exactly.
_SIDE = 128

_TABLE = """
name = "table"
state = "state"
[privacy]
epsilon = 1.0
delta = {delta}
unit = "event"
[clock]
start = 2026-01-01
every = "1d"
horizon = {horizon}
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A stream to compare.

    Args:
        expect: the rate that `plan` is told.
        at: numbers of ticks to compare after.
        batches: codes of each tick's rows.
    """

    data: str
    config: StreamConfig
    expect: str
    at: tuple[int, ...]
    batches: list[Any]


def cases(streams: Sequence[str], deltas: Sequence[float]) -> Iterator[Case]:
    """Streams by name; ``points`` are earthquakes in a box."""
    for name in streams:
        if name == "points":
            yield _points()
            continue
        for delta in deltas:
            yield _tables(name, delta)


def _points() -> Case:
    path = EXAMPLES / "earthquakes" / "stream.toml"
    config = load(path)
    if config.source is None:
        raise SystemExit(f"{path} names no source")
    rows = encode(config, pl.read_parquet(config.source.path))
    at = (3, 12, 40, 79)
    batches = [rows.codes[rows.ticks == tick] for tick in range(max(at))]
    return Case(data="points", config=config, expect="1500/month", at=at, batches=batches)


def _tables(name: str, delta: float) -> Case:
    stream = STREAMS[name](0)
    columns = [
        f'[[columns]]\nname = "c{i}"\ntype = "integer"\nmin = 0\nmax = {size - 1}\nmissing = 0\n'
        for i, size in enumerate(stream.sizes)
    ]
    config = StreamConfig.from_toml(_TABLE.format(delta=delta, horizon=stream.declared) + "".join(columns))
    batches, ticks = np.split(stream.codes, stream.ends[:-1]), len(stream.ends)
    at = tuple(dict.fromkeys(max(1, round(ticks * part)) for part in (0.1, 0.25, 0.5, 1)))
    expect = f"{stream.expected:g}/tick"
    return Case(data=f"{name}, delta = {delta:g}", config=config, expect=expect, at=at, batches=batches)


def run(made: Synthesizer, batches: Iterable[Any], seed: int) -> Iterator[tuple[int, dict[int, Any], Models, Any]]:
    """Tick by tick: the number of ticks, all measurements so far, what was kept of them, the model."""
    state, last, models, history = made.mechanism.init(), None, dict[str, Any](), dict[int, Any]()
    for tick, codes in enumerate(batches):
        gate = SeededGate(f"{seed}/{tick}")
        state, history[tick], models = made.step(state, made.count(codes, None), gate, last, models)  # type: ignore[assignment]
        last = made.fit(tick, history.__getitem__, last, models, seed=seed * 1_000_003 + tick)
        yield tick + 1, history, models, last


def compared(case: Case) -> Iterator[dict[str, Any]]:
    """Forecast and measured errors, one line each."""
    forecasts = {f.ticks: f for f in plan(case.config, expect=case.expect, rows=True, at_ticks=case.at).forecasts}
    made = synthesizer_of(case.config)
    found: dict[int, list[dict[str, float]]] = {t: [] for t in case.at}
    for seed in range(SEEDS):
        for ticks, history, models, model in run(made, case.batches, seed):
            if ticks in found:
                found[ticks].append(_errors(made, case.batches[:ticks], history, models, model))
    events = np.cumsum([len(codes) for codes in case.batches])
    told = {t: _told(made, case, t, int(events[t - 1])) for t in case.at}
    for ticks, errors in found.items():
        forecast = _forecast(forecasts[ticks])
        for what in errors[0]:
            squares = what.endswith(("cell", "box"))
            each = np.array([e[what] for e in errors])
            measured = float(np.sqrt(np.mean(each**2)) if squares else each.mean())
            yield {
                "bench": "forecast",
                "data": case.data,
                "ticks": ticks,
                "events": int(events[ticks - 1]),
                "events_expected": round(forecasts[ticks].events),
                "error": what,
                "forecast": float(f"{forecast[what]:.4g}"),
                "measured": float(f"{measured:.4g}"),
                "ratio": round(forecast[what] / measured, 3),
                "ratio_told": round(told[ticks].get(what, forecast[what]) / measured, 3),
                "seeds": SEEDS,
            }


def _told(made: Synthesizer, case: Case, ticks: int, events: int) -> dict[str, float]:
    """The forecast of rows for somebody who knows how many events there were: what is left is the shape's fault."""
    pieces = made.simulations(Expected(case.config.schema, [ticks], events / ticks))
    return _named(pieces[0]()[ticks])


def _forecast(found: Forecast) -> dict[str, float]:
    """A forecast by the names of :func:`_errors`."""
    named = {f"measured {k}-way cell": value for k, value in found.stderr.items()}
    named |= {f"measured {k}-way table": value for k, value in found.table_error.items()}
    if found.box is not None:
        named["measured box"] = found.box
    if found.rows is not None:
        named |= _named(found.rows)
    return named


def _named(rows: RowErrors) -> dict[str, float]:
    tables_of_rows = {f"rows {k}-way table": value for k, value in rows.table_error.items()}
    return tables_of_rows | {"rows box": rows.box, "rows W1": rows.distance or 0.0}


def _errors(
    made: Synthesizer, batches: list[Any], history: dict[int, Any], models: Models, model: Any
) -> dict[str, float]:
    """Measured errors after the newest tick."""
    codes = np.concatenate(batches)
    if isinstance(made, FromNodes):
        return _of_points(made.partition, codes, model.masses)
    if isinstance(made, Continual):
        workload = made.mechanism.workload
        gap: FloatArray = history[len(batches) - 1].values - workload.count(codes)
        return _of_counts(workload, gap, (1, 2)) | _of_rows(workload, codes, model)
    if isinstance(made, AtRefreshes):
        workload, last = made.mechanism.workload, made.mechanism.times.last(len(batches) - 1)[0] + 1
        known = made.whole(len(batches) - 1, history.__getitem__)
        small = np.repeat(made.mechanism.order < 2, workload.lengths)
        true = np.where(small, workload.count(codes), workload.count(np.concatenate(batches[:last])))
        return _of_counts(workload, known.values - true, (1, 2)) | _of_rows(workload, codes, model)
    if isinstance(made, InEpochs):
        known = made.known(len(batches) - 1, history.__getitem__, models)
        gap = known.values - known.workload.count(codes)
        return _of_counts(known.workload, gap, (1,)) | _of_rows(made.mechanism.workload, codes, model)
    raise SystemExit(f"no errors are measured of {type(made).__name__}")


def _of_counts(workload: Workload, gap: FloatArray, orders: tuple[int, ...]) -> dict[str, float]:
    order = np.array([len(m) for m in workload.marginals])
    squares = np.add.reduceat(gap**2, workload.offsets[:-1]) / workload.lengths  # of a cell, mean over each table
    found = {f"measured {k}-way cell": float(np.sqrt(squares[order == k].mean())) for k in orders}
    errors = tables.errors_of(workload, gap)
    found |= {f"measured {k}-way table": errors.table_error[k] for k in orders}
    return found | ({"measured box": errors.box} if 2 in orders else {})


def _of_rows(workload: Workload, codes: Any, model: Any) -> dict[str, float]:
    gap = np.asarray(workload.count(model.codes.astype(np.int32)) - workload.count(codes), dtype=np.float64)
    errors = tables.errors_of(workload, gap)
    return {f"rows {k}-way table": value for k, value in errors.table_error.items()} | {"rows box": errors.box}


def _of_points(partition: Partition, codes: Any, masses: FloatArray) -> dict[str, float]:
    counts = Counts.at(partition.cells(codes)).dense(partition.cells_number).astype(np.float64)
    boxes = points.errors_of(points.grid_of(counts, 2), points.grid_of(masses, 2)).box
    sides = [points.grid_of(each, 2, cells=_SIDE**2) for each in (counts, masses)]
    return {"rows box": boxes, "rows W1": w1_grid(sides[0], sides[1])}


def page(lines: list[dict[str, Any]]) -> str:
    """The lines as tables in Markdown."""
    ratios = np.array([line["ratio"] for line in lines])
    within = float(np.mean((ratios <= 1.5) & (ratios >= 1 / 1.5)))
    text = [
        "# Forecast and measurement",
        "",
        "Made by `python -m benchmarks.forecast`, which says what is compared. Errors in events, W1 in widths of",
        "the box;",
        f"{SEEDS} runs with seeded noise. Forecasts of measured counts are exact, those of rows are simulations on an",
        "assumed shape (docs/decisions/0012-forecast.md).",
        "",
        f"{within:.0%} of {len(lines)} forecasts are within a factor of 1.5. The ratio is forecast by measured;",
        "under *told*, that of somebody who knew the number of events.",
    ]
    for data in dict.fromkeys(line["data"] for line in lines):
        mine = [line for line in lines if line["data"] == data]
        text += ["", f"## {data}", "", "| error | ticks | events (told) | forecast | measured | ratio | told |"]
        text += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
        for line in sorted(mine, key=lambda one: (one["error"], one["ticks"])):
            bold = "" if 1 / 1.5 <= line["ratio"] <= 1.5 else "**"
            text.append(
                f"| {line['error']} | {line['ticks']} | {line['events']:,} ({line['events_expected']:,}) | "
                f"{line['forecast']:,g} | {line['measured']:,g} | {bold}{line['ratio']:.2f}{bold} | "
                f"{line['ratio_told']:.2f} |"
            )
    return "\n".join(text) + "\n"


def main() -> None:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stream", nargs="+", choices=[*STREAMS, "points"], default=[*TO_TUNE_ON, "points"])
    parser.add_argument("--delta", type=float, nargs="+", default=[1e-9, 0.0])
    args = parser.parse_args()
    path = RESULTS / "forecast.jsonl"
    for case in cases(args.stream, args.delta):
        mine = [{**line, **environment()} for line in compared(case)]
        print("".join(json.dumps(line) + "\n" for line in mine), end="", flush=True)
        known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        lines = [*(line for line in known if line["data"] != case.data), *mine]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        (RESULTS / "forecast.md").write_text(page(lines))


if __name__ == "__main__":
    main()
