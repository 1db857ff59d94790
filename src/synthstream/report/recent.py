"""What came in each step: the total and the values that stand out, with bands, and the newest beside last year's."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import polars as pl
from markupsafe import Markup

from synthstream.errors import ConfigError
from synthstream.kinds import span
from synthstream.publish.history import History
from synthstream.release.comparing import BEYOND
from synthstream.release.series import steps
from synthstream.report.charts import Series, Table, line_chart
from synthstream.report.distributions import labels_of
from synthstream.report.page import period
from synthstream.report.scales import RANGE, REACH, dates, linear, number, ranged
from synthstream.schema.columns import Boolean
from synthstream.schema.places import View

# So many steps are drawn: of the shortest of these lengths at which most totals stand out of their noise.
_FEWEST, _MOST, _CALENDAR = 5, 64, ("1mo", "1q", "1y")
_CLEAR = 3.0
# Charts of single values: those that stand out of their noise most clearly.
_VALUES = 6
_PARTLY = {True: "", False: " (not whole)"}


def recent(found: History) -> dict[str, Any] | None:
    """What the section tells of a stream of tables: the length of a step in words, charts, and the newest step beside
    as much a year before. ``None`` if the stream's total is not known step by step, or releases are missing.
    """
    ticks, clock = found.ticks, found.config.clock
    if len(ticks) < 3 or ticks[-1].tick + 1 != len(ticks) or () not in found.workload.marginals:
        return None
    counts = total = pl.DataFrame()
    for every in _steps(found):
        counts = found.releases.counts(every=every)
        total = counts.filter(pl.col("column").is_null())
        if total["stderr"].null_count() or total.height < 2:
            return None
        if (total["measured"] > _CLEAR * total["stderr"]).mean() > 0.5:  # type: ignore[operator]
            break
    pure = found.config.measures == "epochs"  # values are known of epochs, few of which are one step long
    beside = found.releases.beside_last_year(every=every)
    last = beside.row(0, named=True) if beside.height else total.row(-1, named=True)
    rows = [_row(row, _says(found, row["column"], row["value"])) for row in beside.iter_rows(named=True)]
    nearest = f"{span(clock.every)}s" if span(clock.every).isalpha() else "ticks"
    return {
        "step": span(every or clock.every),
        "nearest": nearest if every in _CALENDAR and (total["start"].dt.day() > 1)[1:].any() else "",
        "total": _chart(total, "All events", small=False),
        "others": [] if pure else [_chart(part, name, small=True) for name, part in _standing_out(found, counts)],
        "pure": pure,
        "beside": [row for row in rows if row],
        "start": last["start"],
        "end": last["end"],
        "then": [last[key] for key in ("start_then", "end_then") if key in last],
        "differing": sum(bool(row and row["beyond"]) for row in rows),
        "beyond": number(BEYOND),
    }


def _steps(found: History) -> list[str | None]:
    """Lengths of steps that may be drawn, the shortest first: neither too many nor too few."""
    newest, lengths = found.newest.tick, list[str | None]([None] if found.newest.tick < _MOST else [])
    for every in ("1d", "1w", *_CALENDAR):
        with suppress(ConfigError):  # no whole number of ticks
            if _FEWEST <= len(steps(found.config.clock, every, newest=newest)) <= min(_MOST, newest):
                lengths.append(every)
    return lengths or [None]


def _says(found: History, column: str | None, value: str | None) -> str:
    """What a line counts, in words; empty for ``false``, which says no more than ``true``."""
    if column is None:
        return "All events"
    kind = next(one for one in found.config.schema.columns if one.name == column)
    if isinstance(kind, View):  # a map says it
        return ""
    if isinstance(kind, Boolean):
        return kind.title if value == "true" else ""
    return f"{kind.title}: {labels_of(kind)[kind.labels.index(str(value))]}"


def _standing_out(found: History, counts: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    known = counts.filter(pl.col("column").is_not_null(), pl.col("stderr") > 0)
    best = (
        known.group_by("column", "value")
        .agg(z=(pl.col("measured") / pl.col("stderr")).mean())
        .sort("z", "column", "value", descending=[True, False, False])
    )
    chosen: list[tuple[str, pl.DataFrame]] = []
    for column, value, z in best.iter_rows():
        name = _says(found, column, value)
        if name and z > 1 and len(chosen) < _VALUES:
            chosen.append((name, known.filter(pl.col("column") == column, pl.col("value") == value)))
    return chosen


def _chart(part: pl.DataFrame, name: str, *, small: bool) -> Markup:
    """A line with its band, each step where it begins; steps that are not whole are dots beside it."""
    starts, values, reach = part["start"].to_list(), part["measured"].to_list(), (REACH * part["stderr"]).to_list()
    low = [v - r for v, r in zip(values, reach, strict=True)]
    high = [v + r for v, r in zip(values, reach, strict=True)]
    whole = part["whole"].to_list()
    rows = [
        [period(start, end), f"{ranged(value, error)}{_PARTLY[all_of_it]}"]
        for start, end, value, error, all_of_it in zip(starts, part["end"], values, part["stderr"], whole, strict=True)
    ]
    gaps = [i for i in range(1, len(whole)) if not (whole[i] and whole[i - 1])]
    x, y, lows, highs = (
        np.insert(np.array(each, dtype=object), gaps, gap).tolist()
        for each, gap in (
            ([start.timestamp() for start in starts], starts[0].timestamp()),
            *((v, None) for v in (values, low, high)),
        )
    )
    return line_chart(
        [Series(name=name, x=x, y=y, low=lows, high=highs)],
        title=name,
        description=f"{name}: {ranged(values[-1], part['stderr'][-1])} in the newest of {len(values)} steps"
        f"{_PARTLY[whole[-1]]}; lowest {number(round(min(values)))}, highest {number(round(max(values)))}.",
        x=dates(starts[0], starts[-1], marks=3 if small else 6),
        y=linear(min(0.0, *low), max(1.0, *high), marks=3 if small else 5),
        y_label="" if small else "events",
        table=None if small else Table(headings=["Counted", RANGE], rows=rows[::-1]),
        note="" if small or all(whole) else "A dot apart from the line is a step that is not complete.",
        small=small,
    )


def _row(row: dict[str, Any], name: str) -> dict[str, Any] | None:
    if not name or row["z"] is None:
        return None
    texts = {
        key: ranged(row[value], row[error])
        for key, value, error in (
            ("now", "measured", "stderr"),
            ("then", "then", "stderr_then"),
            ("difference", "difference", "stderr_difference"),
        )
    }
    return {"name": name, "beyond": abs(row["z"]) > BEYOND, **texts}
