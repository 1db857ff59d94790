"""Each way to run a stream beside its own simpler form: one JSON line for each, and the ratio of their errors.

    python -m benchmarks.modes --delta 0 1e-9 --seeds 2
    python -m benchmarks.modes --mode function persons place --delta 0 --out /tmp/modes.jsonl

A constraint can only add knowledge; a place alone is a stream of points; a horizon of ten years should not spoil the
first months; dates of the clock's own column are known better than those of a copy. Where a ratio is far above what the
mode must cost (last column of the table), look for a fault: four were found so (decisions 45, 46, 47 and 23). 30,000
events in 48 daily ticks through the Python API, as users run it, with simulated noise: kinds drift, grades and groups
depend on them, codes decide groups, amounts are log-normal and depend on grades, places are clusters by group and move.

Errors at 25, 50, 75 and 100 % of the ticks, of the rows: ``l1_single`` and ``l1_pairs``, the sum of all errors of a
table by the number of events, mean over the tables that both forms have; ``w1``, distance of places or amounts, in
widths of the box. NOT PRIVATE.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from benchmarks.distances import histogram
from benchmarks.environment import environment
from synthstream import Stream, StreamConfig
from synthstream.synthesizers.simulation.transport import w1
from synthstream.workload import FloatArray, Workload

_START, _TICKS, _GRID = datetime(2020, 1, 1), 48, 64
_QUARTERS = (12, 24, 36, 48)
_BOX = [[0.0, 1.0], [0.0, 1.0]]


def category(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "type": "category", "values": [str(i) for i in range(size)], "other": "0", "missing": "0"}


def _point(name: str) -> dict[str, Any]:
    return {"name": name, "type": "number", "min": 0, "max": 1, "missing": 0}


_LOW = {"name": "low", "type": "integer", "min": 0, "max": 9, "width": 1, "missing": 0}
_DAY = {"name": "day", "type": "datetime", "bins": 96, "min": _START, "max": _START + timedelta(days=10 * _TICKS)}
_KIND, _GRADE = category("kind", 5), category("grade", 4)
_TABLE = [
    _KIND,
    _GRADE,
    category("group", 8),
    category("code", 40),
    {"name": "flag", "type": "boolean", "missing": False},
    {"name": "amount", "type": "number", "min": 0, "max": 1000, "bins": 12, "missing": 0},
    _LOW,
    {**_LOW, "name": "high"},
]
_PLACE = {"name": "place", "type": "place", "coordinates": ["x", "y"], "bounds": _BOX}
_MONEY = {"name": "money", "type": "place", "coordinates": ["z"], "bounds": _BOX[:1]}
_XY, _Z = [_point("x"), _point("y")], [_point("z")]
_POINTS = {"kind": "points"}
_FUNCTION = {"column": "group", "function_of": "code", "lookup": {str(c): str(c // 5) for c in range(40)}}
_ORDER = {"less_or_equal": ["low", "high"]}


class Mode(NamedTuple):
    """A way to run a stream.

    Args:
        columns: their sections.
        than: the mode that it is held against; empty for none.
        cost: about what it must cost, as a ratio of errors.
        settings: of :func:`configured`.
    """

    columns: Sequence[Mapping[str, Any]]
    than: str = ""
    cost: float = 1.0
    settings: Mapping[str, Any] = {}


MODES = {
    "table": Mode(_TABLE),
    "always": Mode(_TABLE, "table", 1.2, {"synthesizer": {"measure": "always"}}),
    "replace-one": Mode(_TABLE, "table", 1.4, {"neighbours": "replace-one"}),
    "unbounded": Mode(_TABLE, "table", 1.2, {"horizon": "unbounded"}),
    "long-horizon": Mode(_TABLE, "table", 1.5, {"horizon": 5000}),
    "function": Mode(_TABLE, "table", 1.0, {"constraints": [_FUNCTION]}),
    "order": Mode(_TABLE, "table", 1.0, {"constraints": [_ORDER]}),
    "both": Mode(_TABLE, "table", 1.0, {"constraints": [_ORDER, _FUNCTION]}),
    "persons": Mode(_TABLE, "table", 1.0, {"unit": {"person": "own", "max_events": 1}}),
    "persons-of-five": Mode(_TABLE, "table", 5.0, {"unit": {"person": "five", "max_events": 5}}),
    "signed": Mode(_TABLE, "table", 1.5, {"op": "op"}),
    "hourly": Mode(_TABLE, "table", 1.3, {"every": "2h", "horizon": 12 * _TICKS}),
    "copied-dates": Mode([*_TABLE, {**_DAY, "from": "copy"}], "", 1.0, {"horizon": 10 * _TICKS}),
    "dates": Mode([*_TABLE, {**_DAY, "from": "time"}], "copied-dates", 1.0, {"horizon": 10 * _TICKS}),
    "few-columns": Mode([_KIND, _GRADE]),
    "one-column": Mode([_KIND], "few-columns", 1.0),
    "singles": Mode(_TABLE, "table", 1.0, {"synthesizer": {"order": 1}}),
    "points": Mode(_XY, "", 1.0, {"synthesizer": _POINTS}),
    "points-unbounded": Mode(_XY, "points", 1.2, {"synthesizer": _POINTS, "horizon": "unbounded"}),
    "points-signed": Mode(_XY, "points", 2.0, {"synthesizer": _POINTS, "op": "op"}),
    "place-alone": Mode([_PLACE], "points", 1.5),
    "place": Mode([_KIND, _PLACE], "place-alone", 1.5),
    "place-always": Mode([_KIND, _PLACE], "place", 1.5, {"synthesizer": {"measure": "always"}}),
    "place-signed": Mode([_KIND, _PLACE], "place", 1.5, {"op": "op"}),
    "place-and-table": Mode([*_TABLE, _PLACE], "table", 1.3),
    "line": Mode(_Z, "", 1.0, {"synthesizer": _POINTS}),
    "money-alone": Mode([_MONEY], "line", 1.5),
    "money": Mode([_KIND, _MONEY], "money-alone", 1.5),
}


def world(seed: int, number: int = 30_000) -> pl.DataFrame:
    """The events; see above."""
    rng = np.random.default_rng(seed)
    when = np.sort(rng.random(number))
    old, new = (
        rng.choice(5, number, p=[0.4, 0.3, 0.15, 0.1, 0.05]),
        rng.choice(5, number, p=[0.05, 0.1, 0.15, 0.3, 0.4]),
    )
    kind = np.where(rng.random(number) < 0.6 * when, new, old)
    grade = np.clip(np.round(0.7 * kind + rng.normal(0, 0.8, number)), 0, 3).astype(int)
    group = (kind + rng.choice(8, number, p=[0.5, 0.2, 0.1, 0.05, 0.05, 0.04, 0.03, 0.03])) % 8
    code = 5 * group + np.minimum(rng.geometric(np.where(when > 0.5, 0.6, 0.4)), 5) - 1
    amount = np.clip(np.exp(rng.normal(3 + 0.5 * grade, 0.8)), 0, 999.9)
    low = rng.integers(0, 10, number)
    centres, spreads = rng.uniform(0.15, 0.85, (8, 2)), rng.uniform(0.01, 0.06, 8)
    at = centres[group] + spreads[group, None] * rng.normal(size=(number, 2)) + when[:, None] * [0.15, 0]
    at = np.clip(at, 0, 0.9999)
    return (
        pl.DataFrame(
            {
                "kind": kind.astype(str),
                "grade": grade.astype(str),
                "group": group.astype(str),
                "code": code.astype(str),
                "flag": rng.random(number) < np.where(kind == 4, 0.15, 0.02),
                "amount": amount,
                "low": low,
                "high": np.minimum(low + rng.geometric(0.5, number) - 1, 9),
                "x": at[:, 0],
                "y": at[:, 1],
                "z": amount / 1000,
                "own": np.arange(number).astype(str),
                "five": (rng.permutation(number) // 5).astype(str),
            }
        )
        .with_columns(
            time=pl.lit(_START) + pl.Series((when * _TICKS * 86_400_000).astype(np.int64)).cast(pl.Duration("ms"))
        )
        .with_columns(copy="time")
    )


def signed(rows: pl.DataFrame) -> pl.DataFrame:
    """The same; every fourth event is taken back five days later."""
    back = rows.gather_every(4).with_columns(time=pl.col("time") + pl.duration(days=5), op=pl.lit("-1"))
    both = pl.concat([rows.with_columns(op=pl.lit("1")), back]).sort("time", maintain_order=True)
    return both.filter(pl.col("time") < _START + timedelta(days=_TICKS))


def configured(folder: Path, mode: Mode, epsilon: float, delta: float) -> StreamConfig:
    """A stream in a folder. Settings: ``neighbours``, ``unit``; ``every``, ``horizon``; and keys of the whole file."""
    own = dict(mode.settings)
    privacy = {"epsilon": epsilon, "delta": delta, "unit": "event"}
    privacy |= {key: own.pop(key) for key in ("neighbours", "unit") if key in own}
    clock = {"start": _START, "every": "1d", "column": "time", "horizon": _TICKS}
    clock |= {key: own.pop(key) for key in ("every", "horizon") if key in own}
    columns = [dict(column) for column in mode.columns]
    return StreamConfig.of(name="mode", state=str(folder), privacy=privacy, clock=clock, columns=columns, **own)


def errors(config: StreamConfig, rows: pl.DataFrame, published: pl.DataFrame) -> dict[str, Any]:
    """Of one release. ``rows``: all events so far; those that take away say so in ``op``."""
    sign = np.where(rows["op"].to_numpy() == "-1", -1, 1) if "op" in rows.columns else np.ones(rows.height, dtype=int)
    net, found = max(int(sign.sum()), 1), dict[str, Any]()
    names = config.schema.names
    plain = [c for c, column in enumerate(config.schema.columns) if not hasattr(column, "place")]
    if config.workload is not None and plain:
        tables = tuple((c,) for c in plain) + tuple(combinations(plain, 2))
        workload = Workload(sizes=config.schema.sizes, marginals=tables)
        true = workload.count(config.schema.encode(rows), sign.astype(np.int64))
        read = [pl.col(c.name).alias(c.read_from) for c in config.schema.columns if not hasattr(c, "place")]
        off = np.abs(workload.count(config.schema.encode(published.with_columns(read))) - true) / net
        found["tables"] = {"+".join(names[c] for c in m): float(off[workload.slice_of(m)].sum()) for m in tables}
    for coordinates in (["x", "y"], ["z"]):
        if set(coordinates) <= {*published.columns}:
            found["w1"] = _distance(rows.select(coordinates), sign, published.select(coordinates))
    return found


def _distance(rows: pl.DataFrame, sign: FloatArray, published: pl.DataFrame) -> float:
    """W1 of published places from those of the net events, on a grid; of one coordinate, on one of its own."""
    true, ours = (np.clip(frame.drop_nulls().to_numpy(), 0, 0.99999) for frame in (rows, published))
    if true.shape[1] == 1:
        masses = [np.histogram(true[:, 0], 512, (0, 1), weights=sign)[0], np.histogram(ours[:, 0], 512, (0, 1))[0]]
        one, other = (np.cumsum(mass / max(mass.sum(), 1)) for mass in masses)
        return float(np.abs(one - other).mean())
    came, gone = (true[sign == s] for s in (1, -1))
    mass = histogram(came, _GRID) * len(came) - (histogram(gone, _GRID) * len(gone) if len(gone) else 0)
    return float(w1(histogram(ours, _GRID), mass / mass.sum()))


def run(name: str, epsilon: float, delta: float, seed: int) -> dict[str, Any]:
    """A whole stream: its errors at each quarter."""
    mode, rows, begun, found = MODES[name], world(seed), time.perf_counter(), []
    rows = signed(rows) if "op" in mode.settings else rows
    with tempfile.TemporaryDirectory() as folder:
        config = configured(Path(folder) / "state", mode, epsilon, delta)
        with Stream(config, simulate=seed) as stream:
            stream.update(rows)
            for days in _QUARTERS:
                end = _START + timedelta(days=days)
                *_, release = stream.run(until=end)
                found.append(errors(config, rows.filter(pl.col("time") < end), release.rows()))
    facts = {"bench": "modes", "mode": name, "epsilon": epsilon, "delta": delta, "seed": seed}
    return {**facts, "quarters": found, "seconds": round(time.perf_counter() - begun, 1), **environment()}


def figures(lines: Sequence[Mapping[str, Any]], tables: Sequence[str]) -> dict[str, FloatArray]:
    """Errors at each quarter, mean over lines, by their names: of these tables, and of places if there are any."""
    found = dict[str, FloatArray]()
    for key, columns in (("l1_single", 1), ("l1_pairs", 2)):
        if names := [name for name in tables if name.count("+") == columns - 1]:
            each = [[[quarter["tables"][n] for n in names] for quarter in line["quarters"]] for line in lines]
            found[key] = np.mean(each, axis=(0, 2))
    if "w1" in lines[0]["quarters"][0]:
        found["w1"] = np.mean([[quarter["w1"] for quarter in line["quarters"]] for line in lines], axis=0)
    return found


def shown(lines: Sequence[Mapping[str, Any]]) -> str:
    """A row for each mode and delta, of what it and the mode that it is held against both have."""
    head = ["mode", "delta", "what", "at the quarters", "than", "ratio", "must cost"]
    found = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for name, mode in MODES.items():
        for delta in sorted({line["delta"] for line in lines}):
            own, than = ([x for x in lines if (x["mode"], x["delta"]) == (n, delta)] for n in (name, mode.than or name))
            if not own:
                continue
            theirs = than[0]["quarters"][0].get("tables", ())
            tables = [table for table in own[0]["quarters"][0].get("tables", ()) if table in theirs]
            beside = figures(than, tables)
            for key, values in figures(own, tables).items():
                if key not in beside:
                    continue
                cells = [name, f"{delta:g}", key, " ".join(f"{v:.4f}" for v in values), mode.than]
                ratios = values / np.maximum(beside[key], 1e-9)
                cells += [" ".join(f"{r:.2f}" for r in ratios), f"{mode.cost:g}"] if mode.than else ["", ""]
                found.append(f"| {' | '.join(cells)} |")
    return "\n".join(found)


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Options that say which runs there are of each name."""
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, nargs="+", default=[0.0, 1e-9])
    parser.add_argument("--seeds", type=int, default=1, help="of data and simulated noise")
    parser.add_argument("--out", type=Path)


def all_of(
    run: Callable[[str, float, float, int], dict[str, Any]], names: Sequence[str], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Lines of all runs that options ask for, each written to the file as it is there."""
    lines = []
    for name, delta, seed in product(names, args.delta, range(args.seeds)):
        lines.append(run(name, args.epsilon, delta, seed))
        if args.out is not None:
            with args.out.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    return lines


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", nargs="+", choices=list(MODES), help="left out: all; what they are held against too")
    add_runs(parser)
    args = parser.parse_args()
    wanted = {*(args.mode or MODES)}
    while more := {MODES[name].than for name in wanted} - wanted - {""}:
        wanted |= more
    print(shown(all_of(run, [name for name in MODES if name in wanted], args)))


if __name__ == "__main__":
    main()
