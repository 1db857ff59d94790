"""Charts of one column: its synthetic distribution now, with error bars, and how it came about."""

from __future__ import annotations

import calendar
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from synthstream.publish.history import Cells, History, Tick, added_up
from synthstream.report.association import beyond_noise
from synthstream.report.charts import Bar, Series, Table, bar_chart, line_chart
from synthstream.report.page import until
from synthstream.report.scales import RANGE, REACH, dates, linear, number, ranged, ranges
from synthstream.schema.binned import Datetime, Integer, Number, open_ended
from synthstream.schema.columns import Boolean, Category, Column
from synthstream.synthesizers.succession import known_since
from synthstream.workload import FloatArray

# Parts of dates whose numbers have names.
_PARTS = {
    "hour": [f"{hour:02d}:00" for hour in range(24)],
    "weekday": ["", *calendar.day_name],
    "month": [*calendar.month_name],
}
_SHOWN, _LARGEST, _MOST_BARS = 8, 4, 24
QUANTILES = (0.1, 0.5, 0.9)


def card(found: History, position: int, history: Sequence[tuple[Tick, Cells]]) -> dict[str, Any] | None:
    """The charts of one column of a stream of tables; ``None`` if no table of it alone is published.

    Args:
        history: sampled releases, oldest first, the newest last.
    """
    workload, column = found.workload, found.config.schema.columns[position]
    if (position,) not in workload.marginals:
        return None
    now, note = latest(found, (position,), history[-1][1])
    over_time = counts_over_time(found, position, history)
    # Numbers or dates in bins, enough of them to speak of a middle.
    ordered = not isinstance(column, Category | Boolean) and len(column.value_labels) > 7
    charts = _middle(column, over_time) if ordered else _multiples(column, over_time)
    possible = () if (known := found.config.dates) is None else known.possible(found.newest.tick)
    begun = next((group.combinations[:, 0].tolist() for group in possible if group.columns == (position,)), None)
    return {
        "name": column.title,
        "kind": kind_of(column) + ("" if begun is None else "; those that have not begun are left out"),
        "description": column.words.description,
        "now": _bars(column, now, begun),
        "history": charts if len(history) > 1 else [],
        "note": note,
    }


def counts_over_time(found: History, position: int, history: Sequence[tuple[Tick, Cells]]) -> list[tuple[Tick, Cells]]:
    """Counts of a column in each release; of a value that rows could not have before a cut nothing was measured."""
    here, since = found.workload.slice_of((position,)), known_since(found.config, found.config.schema.names[position])
    return [(tick, running(cells, here, known=since <= tick.tick)) for tick, cells in history]


def latest(found: History, marginal: tuple[int, ...], newest: Cells) -> tuple[Cells, str]:
    """Counts of a table in the newest release with the newest measurement of all ticks before, and a remark on it."""
    here = found.workload.slice_of(marginal)
    now = running(newest, here)
    if now.known.all():
        return now, ""
    chain = found.measured_chain(marginal)
    if not chain:
        nothing = np.full(now.count.size, np.nan)
        return replace(now, measured=nothing, stderr=nothing), "No error is known for this table."
    at, together = added_up(chain)
    note = "" if at.tick == found.newest.tick else f"Last measured with the release up to {until(at.end)}."
    return replace(now, measured=together.measured[here], stderr=together.stderr[here]), note


def running(cells: Cells, here: slice, *, known: NDArray[np.bool_] | bool = True) -> Cells:
    """Counts of a table in one release; measured ones where they are known and count all ticks from the first."""
    own = cells.at(here)
    measured, stderr = (np.where((own.since == 0) & known, each, np.nan) for each in (own.measured, own.stderr))
    return replace(own, measured=measured, stderr=stderr)


def kind_of(column: Column) -> str:
    """The kind of column in plain words."""
    values = len(column.value_labels)
    if isinstance(column, Boolean):
        return "true or false"
    if isinstance(column, Datetime):
        return f"{column.part} of a date" if column.part else f"dates in {values} bins, named by where they begin"
    return f"{values} values" if isinstance(column, Category) else f"numbers in {values} bins"


def labels_of(column: Column) -> list[str]:
    """Labels of the codes as people read them."""
    if isinstance(column, Number | Integer):
        return [*open_ended(_bins(column), whole=column.whole), *column.own_cells]
    if isinstance(column, Datetime) and column.part is not None:
        names = _PARTS.get(column.part)
        return [*(names[int(label)] if names else label for label in column.value_labels), *column.own_cells]
    if isinstance(column, Datetime):  # where a bin begins; to the day, if it is as long
        digits = 10 if column.edges[1] - column.edges[0] >= 86_400 else 16
        return [*(label[:digits].replace("T", " ") for label in column.value_labels), *column.own_cells]
    return list(column.labels)


def _bins(column: Number | Integer) -> list[str]:
    return [label.replace("..", " to ") for label in column.value_labels] if column.whole else ranges(column.edges)


def _bars(column: Column, now: Cells, begun: Sequence[int] | None) -> Markup:
    """Bars of one column: bins in their order, others from the largest, which is never folded away.

    Args:
        begun: codes that rows may have; ``None``: all.
    """
    names, values, natural = labels_of(column), len(column.value_labels), not isinstance(column, Category)
    codes = range(len(names)) if begun is None else begun
    count = sum(code == place < values for place, code in enumerate(codes))
    groups = [[code] for code in codes]
    if natural and count > _MOST_BARS:
        width = math.ceil(count / _MOST_BARS)
        together = [list(range(i, min(i + width, count))) for i in range(0, count, width)]
        bins = _bins(column) if isinstance(column, Number | Integer) else names
        spans = [_span(column, bins, g) for g in together]
        spans = open_ended(spans, whole=column.whole) if isinstance(column, Number | Integer) else spans
        names, groups = [*spans, *(names[code] for code in codes[count:])], [*together, *groups[count:]]
    else:
        groups = groups if natural else sorted(groups, key=lambda group: -now.count[group[0]])
        names = [names[group[0]] for group in groups]
    drawn = _grouped(now, groups)
    bars = [_bar(name, drawn, i, muted=groups[i][0] >= values) for i, name in enumerate(names)]
    head = bars if natural or len(bars) <= _SHOWN + 2 else bars[:_SHOWN]
    table = numbers(column, names, drawn, beyond_noise(drawn)) if np.isfinite(drawn.stderr).any() else None
    return bar_chart(head, more=bars[len(head) :], title=f"{column.title} now", table=table)


def _grouped(now: Cells, groups: Sequence[Sequence[int]]) -> Cells:
    """Counts of groups of cells of one table, whose noise is independent."""
    return Cells(
        count=np.array([now.count[group].sum() for group in groups]),
        measured=np.array([now.measured[group].sum() for group in groups]),
        stderr=np.array([np.sqrt((now.stderr[group] ** 2).sum()) for group in groups]),
        since=np.array([now.since[group].max() for group in groups]),
    )


def numbers(column: Column, names: Sequence[str], now: Cells, clear: NDArray[np.bool_]) -> Table:
    """Counts as a table, and what was measured, as far as it is known; ``clear``: which are beyond noise."""
    rows = [
        [name, number(rows), ranged(measured, stderr) if told else "–", "–" if not told else "no" if beyond else "yes"]
        for name, rows, measured, stderr, told, beyond in zip(
            names, now.count.tolist(), now.measured.tolist(), now.stderr.tolist(), now.known, clear, strict=True
        )
    ]
    if not now.known.any():
        return Table(headings=[column.title, "Synthetic rows"], rows=[row[:2] for row in rows])
    return Table(headings=[column.title, "Synthetic rows", RANGE, "Within noise"], rows=rows)


def _bar(label: str, now: Cells, i: int, *, muted: bool) -> Bar:
    count, measured, stderr = (float(values[i]) for values in (now.count, now.measured, now.stderr))
    if not (math.isfinite(measured) and math.isfinite(stderr)):
        return Bar(label=label, value=count, muted=muted)
    said = f"measured {number(round(measured))}{' (below 0)' if measured < 0 else ''}"
    return Bar(
        label=label,
        value=count,
        at=measured,
        low=max(measured - REACH * stderr, 0.0),
        high=max(measured + REACH * stderr, 0.0),
        muted=muted,
        note=f"{label}: {number(count)} rows; {said}, standard error {number(stderr)}",
    )


def _span(column: Column, labels: Sequence[str], codes: list[int]) -> str:
    first, last = labels[codes[0]], labels[codes[-1]]
    if first == last or isinstance(column, Datetime):
        return first
    return f"{first.split(' to ')[0]} to {last.split(' to ')[-1]}"


def _multiples(column: Column, history: Sequence[tuple[Tick, Cells]]) -> list[Markup]:
    """A small chart for each of the largest values, all on one scale; of a boolean, for ``true`` alone."""
    newest, values, labels = history[-1][1], len(column.value_labels), labels_of(column)
    if isinstance(column, Boolean):
        chosen = [1]
    else:
        order = np.argsort(-newest.count[:values], kind="stable")[:_LARGEST]
        chosen = [int(i) for i in order if newest.count[i] > 0] or [0]
    names = [column.title, column.title] if isinstance(column, Boolean) else labels  # "true" would say nothing
    lines = {i: over_time(history, i, names[i]) for i in chosen}
    top = max((v for line in lines.values() for v in [*line.y, *(line.high or ())] if v is not None), default=1.0)
    return [
        line_chart(
            [line],
            title=f"{line.name}, running total",
            description=f"{line.name}, all up to each of {len(line.y)} releases: from {number(line.y[0])} to "
            f"{number(line.y[-1])} events.",
            x=dates(history[0][0].end, history[-1][0].end, marks=3),
            y=linear(0, max(top, 1.0), marks=3),
            small=True,
        )
        for line in lines.values()
    ]


def over_time(history: Sequence[tuple[Tick, Cells]], code: int, name: str) -> Series:
    """Counts of one code, with a band around what was measured."""
    bands = [(c.measured[code], REACH * c.stderr[code]) for _, c in history]
    known = [math.isfinite(m) and math.isfinite(s) for m, s in bands]
    return Series(
        name=name,
        x=[tick.end.timestamp() for tick, _ in history],
        y=[float(c.count[code]) for _, c in history],
        low=[max(m - s, 0.0) if k else None for (m, s), k in zip(bands, known, strict=True)],
        high=[max(m + s, 0.0) if k else None for (m, s), k in zip(bands, known, strict=True)],
    )


def _middle(column: Column, history: Sequence[tuple[Tick, Cells]]) -> list[Markup]:
    edges = [float(edge) for edge in getattr(column, "edges", ())]
    values = len(column.value_labels)
    points = [(tick, quantiles(np.maximum(c.count[:values], 0), edges)) for tick, c in history]
    dated = isinstance(column, Datetime) and column.part is None
    return [middle_chart(points, low=edges[0], high=edges[-1], dated=dated)]


def _date_form(value: float | None) -> str:
    return "–" if value is None else str(np.datetime64(int(value), "s").astype("datetime64[D]"))


def quantiles(counts: FloatArray, edges: Sequence[float]) -> tuple[float, ...] | None:
    """The 10 %, 50 % and 90 % points of counts in bins, even within a bin; ``None`` if there is nothing.

    Example:
        >>> quantiles(np.array([10.0, 10.0]), [0.0, 1.0, 2.0])
        (0.2, 1.0, 1.8)
    """
    total = counts.sum()
    if total <= 0:
        return None
    return tuple(np.interp(QUANTILES, np.concatenate([[0.0], np.cumsum(counts) / total]), edges).tolist())


def middle_chart(
    points: Sequence[tuple[Tick, tuple[float, ...] | None]], *, low: float, high: float, dated: bool = False
) -> Markup:
    """The median over time, with the middle 80 % of rows as a band; of a column that goes from low to high."""
    narrow = math.floor(math.log10(max(abs(low), abs(high)) / (high - low)))  # so many digits all numbers share
    form = _date_form if dated else partial(number, digits=3 + max(narrow, 0))
    parts = [(None, None, None) if p is None else p for _, p in points]
    line = Series(
        name="median",
        x=[tick.end.timestamp() for tick, _ in points],
        y=[p[1] for p in parts],
        low=[p[0] for p in parts],
        high=[p[2] for p in parts],
    )
    known = [v for p in parts for v in p if v is not None]
    ends = (min(known), max(known)) if known else (low, high)
    rows = [[until(tick.end), *(form(v) for v in p)] for (tick, _), p in zip(points, parts, strict=True)]
    return line_chart(
        [line],
        title="Median over time, and the middle 80 % of rows",
        description=f"The median goes from {form(line.y[0])} to {form(line.y[-1])}.",
        x=dates(points[0][0].end, points[-1][0].end, marks=4),
        y=dates(*(datetime.fromtimestamp(e, UTC) for e in ends), marks=3) if dated else linear(*ends, marks=3),
        table=Table(headings=["Events up to", "10 %", "Median", "90 %"], rows=rows),
        small=True,
    )
