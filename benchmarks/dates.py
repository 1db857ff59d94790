"""Columns that are read from one date beside the true events: one JSON line for each run, and a table.

    python -m benchmarks.dates --seeds 4
    python -m benchmarks.dates --stream daily --delta 0 --out /tmp/dates.jsonl

20,000 events in 120 days, half as many at weekends, of a kind that depends on the day, and a grade that depends on the
hour. Their date is read as a day, a weekday, a month and an hour (``daily``); as the last three alone (``parts``); from
a copy of the clock's column (``copied``); and, with three rows in ten late by some days, as of ``daily`` (``late``).
After a tenth, a quarter, a half, three quarters and all of the days: the share of rows whose day and weekday or month
do not go together (``apart``), and L1 distances to the true events, of the columns of the date (``date``), of their
pairs (``tied``), of a pair of one of them and a kind or grade (``with others``) and of others (``others``). With delta
above 0 also of windows of a day, a week and a fortnight before the third, but for ``parts``. NOT PRIVATE.
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

from benchmarks.environment import environment
from benchmarks.modes import add_runs, all_of, category
from synthstream import Stream, StreamConfig
from synthstream.schema.binned import Datetime
from synthstream.workload import CodeArray, Workload

_START, _DAYS, _EVENTS = datetime(2026, 1, 1), 120, 20_000
_MOMENTS, _WINDOWS, _MIDDLE = (12, 30, 60, 90, 120), (1, 7, 14), 90
_STREAMS = ("daily", "parts", "copied", "late")
_DATES = ("day", "weekday", "month", "hour")
_KINDS = ("apart", "date", "tied", "with others", "others")


def world(seed: int, *, late: bool) -> tuple[pl.DataFrame, pl.Series]:
    """Events, and the day on which each comes."""
    rng = np.random.default_rng(seed)
    days = np.arange(_DAYS)
    often = np.where((days + 3) % 7 >= 5, 0.5, 1.0) * (1 + days / _DAYS)
    day = np.sort(rng.choice(days, _EVENTS, p=often / often.sum()))
    weekend = (day + 3) % 7 >= 5
    peak = np.where(weekend, 14, np.where(rng.random(_EVENTS) < 0.5, 8, 17))
    hour = np.clip(rng.normal(peak, np.where(weekend, 4, 2)), 0, 23.9)
    kind = np.where(
        weekend, rng.choice(4, _EVENTS, p=[0.1, 0.2, 0.3, 0.4]), rng.choice(4, _EVENTS, p=[0.5, 0.3, 0.1, 0.1])
    )
    grade = np.where(hour < 12, rng.choice(3, _EVENTS, p=[0.6, 0.3, 0.1]), rng.choice(3, _EVENTS, p=[0.2, 0.3, 0.5]))
    time = pl.lit(_START) + pl.Series(((day * 24 + hour) * 3_600_000).astype(np.int64)).cast(pl.Duration("ms"))
    rows = (
        pl.DataFrame({"kind": kind.astype(str), "grade": grade.astype(str)})
        .with_columns(time=time)
        .with_columns(copy="time")
    )
    delay = np.where(rng.random(_EVENTS) < 0.3 * late, rng.exponential(4, _EVENTS), 0.0)
    return rows, pl.Series(np.floor(day + hour / 24 + delay).astype(np.int64))


def run(name: str, epsilon: float, delta: float, seed: int) -> dict[str, Any]:
    """One stream: errors at its moments, and of its windows."""
    (rows, comes), found, done = world(seed, late=name == "late"), dict[str, Any](), 0
    source = "copy" if name == "copied" else "time"
    with tempfile.TemporaryDirectory() as folder:
        config = StreamConfig.of(
            name="dates",
            state=str(Path(folder) / "state"),
            privacy={"epsilon": epsilon, "delta": delta, "unit": "event"},
            clock={"column": "time", "start": _START, "every": "1d", "horizon": _DAYS},
            columns=[category("kind", 4), category("grade", 3), *_dates(source)[name == "parts" :]],
        )
        with Stream(config, simulate=seed) as stream:
            for end in _MOMENTS:
                for day in range(done, end):
                    stream.update(rows.filter(comes == day))
                    *_, release = stream.run(until=_START + timedelta(days=day + 1))
                done = end
                found[f"to {end}"] = _errors(config, rows.filter(comes < end), release.rows())
                for days in _WINDOWS if delta > 0 and end == _MIDDLE and name != "parts" else ():
                    window = stream.between(_START + timedelta(days=end - days), _START + timedelta(days=end))
                    true = rows.filter((comes < end) & (comes >= end - days))
                    found[f"last {days}"] = _errors(config, true, window.rows())
    facts = {"bench": "dates", "stream": name, "epsilon": epsilon, "delta": delta, "seed": seed}
    return {**facts, "errors": found, **environment()}


def _dates(source: str) -> list[dict[str, Any]]:
    date = {"type": "datetime", "from": source}
    day = {"name": "day", **date, "min": _START, "max": _START + timedelta(days=_DAYS), "bins": _DAYS}
    return [day, *({"name": part, **date, "part": part} for part in _DATES[1:])]


def _errors(config: StreamConfig, rows: pl.DataFrame, published: pl.DataFrame) -> dict[str, float]:
    """Of one release, or window; see above."""
    columns, names = config.schema.columns, config.schema.names
    tables = Workload.all_up_to(2, sizes=config.schema.sizes)
    own = np.stack([_codes(column, published[column.name]) for column in columns], axis=1).astype(np.int32)
    ours, true = (tables.count(c) / max(len(c), 1) for c in (own, config.schema.encode(rows)))
    off = np.add.reduceat(np.abs(ours - true), tables.offsets[:-1])
    of_date = [len({names[c] for c in m} & {*_DATES[:3]}) for m in tables.marginals]
    sorts = {"date": (1, 1), "tied": (2, 2), "with others": (2, 1), "others": (2, 0)}
    found = {
        sort: float(
            np.mean([e for e, m, n in zip(off, tables.marginals, of_date, strict=True) if (len(m), n) == which])
        )
        for sort, which in sorts.items()
    }
    apart = 0.0
    if "day" in published.columns:
        day = pl.col("day").dt
        off_date = day.weekday().ne_missing(pl.col("weekday")) | day.month().ne_missing(pl.col("month"))
        apart = float(published.select(off_date.mean()).item())
    return {key: round(value, 5) for key, value in {"apart": apart, **found}.items()}


def _codes(column: Any, cells: pl.Series) -> CodeArray:
    """Codes of published cells: parts of a date are whole numbers there."""
    if isinstance(column, Datetime) and column.part is not None:
        return (cells - int(column.edges[0])).fill_null(column.missing_code).to_numpy()
    codes: CodeArray = column.encode(cells)
    return codes


def shown(lines: Sequence[Mapping[str, Any]]) -> str:
    """A row for each stream, delta, and moment or window: means over seeds."""
    found = ["| stream | delta | days | " + " | ".join(_KINDS) + " |", "| --- " * (3 + len(_KINDS)) + "|"]
    for name, delta in dict.fromkeys((line["stream"], line["delta"]) for line in lines):
        own = [line["errors"] for line in lines if (line["stream"], line["delta"]) == (name, delta)]
        for moment in own[0]:
            means = [np.mean([errors[moment][kind] for errors in own]) for kind in _KINDS]
            found.append(f"| `{name}` | {delta:g} | {moment} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")
    return "\n".join(found)


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stream", nargs="+", choices=_STREAMS, default=list(_STREAMS))
    add_runs(parser)
    args = parser.parse_args()
    print(shown(all_of(run, args.stream, args)))


if __name__ == "__main__":
    main()
