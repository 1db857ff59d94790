"""Events with places: one JSON line for each stream, method and seed.

    python -m benchmarks.places --data made quakes evictions --epsilon 1 --delta 1e-9 --seeds 3

Methods: ``places``, categories and a place in one stream; ``table``, a stream of the categories alone, and ``points``,
a stream of the places alone, each with the whole budget; ``ignores-value``, the true places of all events, without
noise, for those of each value.

Data: ``quakes``, Southern California by month, with magnitude, depth and hour; ``evictions``, San Francisco by month,
with 19 causes; ``made``, 60,000 events in 100 ticks: twelve normal clusters, each with its own weights for the eight
kinds of events, which grow or shrink over time; a source (five values) that depends on the kind, and a shift (four)
that depends on the source.

At the last tick: ``avg_we``, errors over pairs of categories (benchmarks.metrics); ``w1``, distance of all places;
``w1_by_value``, mean distance of the places of one value, over the most frequent eight of the first category, or of
all flags, where they are yes, and ``w1_without_value``, that of all rows from them; ``*_box``, over 200 boxes and 200
more with one value each: ``coverage``, share of ``measured`` of ``release.mass`` within two of its standard errors,
``bias``, its mean error, ``rms`` and ``rms_rows``, errors of ``measured`` and of the rows in events, ``stderr``, the
mean one, ``told``, share of boxes with an error; ``*_polygon``, the same of concave polygons with radii from 0.03 to
0.4 of the box, where coordinates are degrees. Distances are in widths of the box, on a grid of 64 x 64 cells. NOT
PRIVATE.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import shapely

from benchmarks.data import EXAMPLES, FOLDER
from benchmarks.distances import histogram
from benchmarks.environment import environment
from benchmarks.metrics import table_errors
from synthstream.config.config import StreamConfig, load
from synthstream.release.tables import TableRelease
from synthstream.synthesizers.assembly import synthesizer_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.synthesizers.simulation.transport import w1
from synthstream.workload import FloatArray, Workload

_GRID, _BOXES, _VALUES = 64, 200, 8
_RADII = (0.03, 0.08, 0.2, 0.4)
_START = datetime(2020, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Data:
    """A stream.

    Args:
        rows: ``time``, coordinates and categories.
        columns: sections of the categories.
        coordinates, bounds: of the place.
        clock: its section.
        values: columns and values whose places are looked at.
    """

    rows: pl.DataFrame
    columns: list[dict[str, Any]]
    coordinates: tuple[str, str]
    bounds: tuple[tuple[float, float], tuple[float, float]]
    clock: dict[str, Any]
    values: list[tuple[str, Any]]

    def config(self, method: str, epsilon: float, delta: float, **place: Any) -> StreamConfig:
        """Of a stream of this data."""
        ends = [[float(end) for end in both] for both in self.bounds]
        where = {"name": "place", "type": "place", "coordinates": list(self.coordinates), "bounds": ends, **place}
        numbers = [
            {"name": name, "type": "number", "min": low, "max": high, "missing": low}
            for name, (low, high) in zip(self.coordinates, ends, strict=True)
        ]
        columns = {"places": [*self.columns, where], "table": self.columns, "points": numbers}[method]
        return StreamConfig.of(
            name="benchmark",
            state="state",
            privacy={"epsilon": epsilon, "delta": delta, "unit": "event"},
            clock=self.clock,
            columns=columns,
            synthesizer={"kind": "points" if method == "points" else "table"},
        )


def made(seed: int) -> Data:
    """Twelve clusters; see above."""
    rng, number, ticks = np.random.default_rng(seed), 60_000, 100
    centres, spreads = 0.1 + 0.8 * rng.random((12, 2)), rng.uniform(0.01, 0.06, 12)
    first, trend = rng.normal(0, 1.5, (8, 12)), rng.normal(0, 1, (8, 12))
    kind = rng.choice(8, number, p=np.arange(8, 0, -1) / 36)
    when = np.sort(rng.random(number))
    weights = np.exp(first[kind] + trend[kind] * when[:, None])
    ends = np.cumsum(weights, axis=1)
    cluster = (rng.random(number)[:, None] * ends[:, -1:] > ends).sum(axis=1)
    at = np.clip(centres[cluster] + spreads[cluster, None] * rng.normal(size=(number, 2)), 0, 1)
    source = (kind + rng.choice(5, number, p=[0.5, 0.2, 0.1, 0.1, 0.1])) % 5
    shift = (source + rng.choice(4, number, p=[0.6, 0.2, 0.1, 0.1])) % 4
    days = pl.Series((when * ticks * 86_400 * 1000).astype(np.int64)).cast(pl.Duration("ms"))
    codes = {"kind": kind, "source": source, "shift": shift}
    rows = pl.DataFrame({"x": at[:, 0], "y": at[:, 1], **{name: code.astype(str) for name, code in codes.items()}})
    rows = rows.with_columns(time=pl.lit(_START) + days)
    columns = [
        {"name": name, "type": "category", "values": [str(v) for v in range(int(code.max()) + 1)]}
        for name, code in codes.items()
    ]
    return Data(
        rows=rows,
        columns=columns,
        coordinates=("x", "y"),
        bounds=((0, 1), (0, 1)),
        clock={"start": _START, "every": "1d", "column": "time", "horizon": ticks},
        values=[("kind", str(v)) for v in range(8)],
    )


def quakes(_seed: int) -> Data:
    """Earthquakes; magnitudes and depths are categories of bins."""
    rows = pl.read_parquet(FOLDER / "socal_earthquakes_2020_2026.parquet")
    cuts: dict[str, list[float]] = {"mag": [0.5, 0.75, 1, 1.25, 1.5, 2, 2.5], "depth": [1, 3, 5, 7, 9, 11, 13, 16]}
    binned = {
        name: rows["mag" if name == "mag" else "depth_km"].cut(at, labels=[str(i) for i in range(len(at) + 1)])
        for name, at in cuts.items()
    }
    rows = rows.with_columns(**{name: series.cast(pl.String) for name, series in binned.items()})
    columns: list[dict[str, Any]] = [
        {"name": name, "type": "category", "values": [str(i) for i in range(len(at) + 1)]} for name, at in cuts.items()
    ]
    columns.append({"name": "hour", "type": "datetime", "from": "time", "part": "hour"})
    frequent = rows["depth"].value_counts(sort=True)["depth"].head(_VALUES)
    return Data(
        rows=rows,
        columns=columns,
        coordinates=("lat", "lon"),
        bounds=((32, 37), (-122, -114)),
        clock={"start": _START, "every": "1mo", "column": "time", "horizon": 80},
        values=[("depth", value) for value in frequent],
    )


def evictions(_seed: int) -> Data:
    """Eviction notices with a place."""
    config = load(EXAMPLES / "evictions" / "stream.toml")
    rows = pl.read_parquet(FOLDER / "sf_evictions_2011_2015.parquet").filter(pl.col("lat").is_not_null())
    flags = [column.name for column in config.schema.columns if column.type == "boolean"]
    rows = rows.with_columns(time=pl.col("File Date").cast(pl.Datetime("us")))
    counts = {name: int(rows[name].cast(pl.String).str.to_lowercase().is_in(["true"]).sum()) for name in flags}
    return Data(
        rows=rows,
        columns=[{"name": name, "type": "boolean", "missing": False} for name in flags],
        coordinates=("lat", "lon"),
        bounds=((37.70, 37.82), (-122.52, -122.36)),
        clock={"start": datetime(2011, 1, 1), "every": "1mo", "column": "time", "horizon": 60},
        values=[(name, True) for name in sorted(flags, key=lambda name: -counts[name])[:_VALUES]],
    )


DATA = {"made": made, "quakes": quakes, "evictions": evictions}


def released(config: StreamConfig, rows: pl.DataFrame, seed: int, *, number: int | None = None) -> tuple[Any, float]:
    """The last release of a stream, or the last one of a number, and the mean number of seconds of one, without the
    first, which compiles.
    """
    engine = synthesizer_of(config)
    codes, ticks = config.schema.encode(rows), config.clock.ticks_of(rows)
    state, models, last = engine.mechanism.init(), dict[str, Any](), None
    history, seconds = list[Any](), list[float]()
    number = number or cast(int, config.clock.horizon)
    for tick in range(number):
        counts, gate = engine.count(codes[ticks == tick], None), SeededGate(f"{seed}/{tick}")
        begin = time.perf_counter()
        state, measured, found = engine.step(state, counts, gate, last, models)
        models = dict(found)
        history.append(measured)
        last = engine.fit(tick, history.__getitem__, last, models, seed=seed + tick)
        seconds.append(time.perf_counter() - begin)
    release = engine.release(
        name=config.name,
        schema=config.schema,
        measured=engine.whole(number - 1, history.__getitem__),
        model=last,
        start=_START,
        end=_START + timedelta(days=1),
        facts={"chain": {"head": str(seed)}},
        secure=False,
        released=np.zeros(0, dtype=np.int64),
    )
    return release, float(np.mean(seconds[1:]))


def spread(data: Data, rows: pl.DataFrame) -> FloatArray:
    """Masses of places on a grid."""
    known = rows.select(data.coordinates).drop_nulls().to_numpy().astype(np.float64)
    low, high = np.array(data.bounds, dtype=np.float64).T
    return histogram(np.clip((known - low) / (high - low), 0, 1), _GRID) if len(known) else np.zeros((_GRID, _GRID))


def of(rows: pl.DataFrame, column: str, value: object) -> pl.DataFrame:
    """Rows of one value."""
    if isinstance(value, bool):
        return rows.filter(pl.col(column).cast(pl.String).str.to_lowercase() == str(value).lower())
    return rows.filter(pl.col(column) == value)


def errors(release: TableRelease, data: Data) -> float:
    """AvgWE over pairs of categories."""
    names = [column["name"] for column in data.columns]
    columns = [release.schema.names.index(name) for name in names]
    pairs = Workload(sizes=release.schema.sizes, marginals=tuple(combinations(columns, 2)))
    true, events = pairs.count(release.schema.encode(data.rows)), data.rows.height
    return table_errors(pairs, true=true, synthetic=release.model.counts(pairs), events=events).avg_we


def boxes(release: TableRelease, data: Data, seed: int, *, by_value: bool, polygons: bool = False) -> dict[str, float]:
    """Errors of the numbers of events in random boxes, or polygons."""
    rng, found = np.random.default_rng((seed, by_value, *([1] if polygons else []))), list[tuple[float, ...]]()
    clock = data.config("table", 1.0, 1e-9).clock
    low, high = np.array(data.bounds, dtype=np.float64).T
    for number in range(_BOXES):
        rows, where = data.rows, None
        if by_value:
            column, value = data.values[number % len(data.values)]
            rows, where = of(data.rows, column, value), f'"{column}" = ' + ("TRUE" if value is True else f"'{value}'")
        at = rows.select(data.coordinates).to_numpy().astype(np.float64)
        held = np.all((at >= low) & (at <= high), axis=1)
        if polygons:
            shape = star(rng, low, high, _RADII[number % len(_RADII)])
            told = release.mass(json.dumps(shapely.geometry.mapping(shape)), where=where)
            held &= shapely.intersects_xy(shape, at[:, 1], at[:, 0])
        else:
            lower, upper = dict[str, float](), dict[str, float]()
            for i, name in enumerate(data.coordinates):
                share = rng.uniform(0.05, 0.5)
                lower[name] = low[i] + (high[i] - low[i]) * rng.uniform(0, 1 - share)
                upper[name] = lower[name] + (high[i] - low[i]) * share
                held &= (at[:, i] >= lower[name]) & (at[:, i] <= upper[name])
            told = release.mass(lower, upper, where=where)
        inside = rows.filter(pl.Series(held))
        if told["measured"] is not None:  # of the events up to the tick at which it was
            then = int((clock.ticks_of(inside) <= told["measured_at"]).sum())
            found.append((told["measured"] - then, told["count"] - inside.height, told["stderr"]))
    if not found:
        return {"told": 0.0}
    off, off_rows, stderr = np.array(found).T
    return {
        "told": len(found) / _BOXES,
        "coverage": float(np.mean(np.abs(off) <= 2 * stderr)),
        "bias": float(np.mean(off)),
        "rms": float(np.sqrt(np.mean(off**2))),
        "rms_rows": float(np.sqrt(np.mean(off_rows**2))),
        "stderr": float(np.mean(stderr)),
    }


def star(rng: np.random.Generator, low: FloatArray, high: FloatArray, radius: float) -> Any:
    """A polygon of 5 to 40 corners, mostly concave, with its centre in the box; the radius in widths of the box."""
    turn = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(5, 41)))
    far = radius * rng.uniform(0.4, 1, turn.size)[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    at = low + (high - low) * (far + rng.uniform(0.1, 0.9, 2))
    return shapely.make_valid(shapely.Polygon(at[:, ::-1]))


def lines(name: str, epsilon: float, delta: float, seed: int, **place: Any) -> list[dict[str, Any]]:
    """Results of all methods."""
    data = DATA[name](seed)
    facts = {"bench": "places", "data": name, "epsilon": epsilon, "delta": delta, "seed": seed}
    whole, found = spread(data, data.rows), []
    by_value = [(one, spread(data, of(data.rows, *one))) for one in data.values]
    apart = float(np.mean([w1(mass, whole) for _, mass in by_value]))
    found.append({"method": "ignores-value", "w1_by_value": apart})
    for method in ("table", "points", "places"):
        config = data.config(
            method, epsilon, delta, **({"events": data.rows.height} | place if method == "places" else {})
        )
        release, seconds = released(config, data.rows, seed)
        line: dict[str, Any] = {"method": method, "seconds": seconds}
        if method != "points":
            line["avg_we"] = errors(release, data)
        if method != "table":
            rows = release.rows()
            line["w1"] = w1(spread(data, rows), whole)
        if method == "places":
            line["w1_by_value"] = float(np.mean([w1(spread(data, of(rows, *one)), mass) for one, mass in by_value]))
            line["w1_without_value"] = float(np.mean([w1(spread(data, rows), mass) for _, mass in by_value]))
            line["worse_than_ignoring"] = sum(
                w1(spread(data, of(rows, *one)), mass) > w1(whole, mass) for one, mass in by_value
            )
            line["views"] = [len(column.labels) for column in config.schema.columns if column.type == "place"]
            line["tables"] = len(config.workload.marginals) if config.workload is not None else 0
            if hasattr(release, "mass"):
                line |= {f"{key}_box": value for key, value in boxes(release, data, seed, by_value=False).items()}
                line |= {f"{key}_value_box": value for key, value in boxes(release, data, seed, by_value=True).items()}
                if "lat" in data.coordinates:
                    told = boxes(release, data, seed, by_value=False, polygons=True)
                    line |= {f"{key}_polygon": value for key, value in told.items()}
                    told = boxes(release, data, seed, by_value=True, polygons=True)
                    line |= {f"{key}_value_polygon": value for key, value in told.items()}
        found.append(line)
    return [{**facts, **line, **environment()} for line in found]


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--depth", type=int, help="of the finest grid; left out: by the rule")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for name in args.data:
        for seed in range(args.seeds):
            place = {} if args.depth is None else {"depth": args.depth}
            for line in lines(name, args.epsilon, args.delta, seed, **place):
                print(json.dumps(line), flush=True)
                if args.out is not None:
                    with args.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
