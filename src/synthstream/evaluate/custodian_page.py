"""NOT PRIVATE. The custodian's page: releases beside the true events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from markupsafe import Markup
from scipy.stats import wasserstein_distance

from synthstream.config.config import StreamConfig
from synthstream.errors import ConfigError
from synthstream.evaluate.custodian import (
    STAMP,
    Errors,
    Truth,
    epochs_of,
    errors,
    truth_of_points,
    truth_of_tables,
    yardsticks,
)
from synthstream.evaluate.wasserstein import w1_grid
from synthstream.publish.history import Cells, History, Steps, Tick, added_up, history_of
from synthstream.report.charts import Bar, Series, Table, bar_chart, line_chart
from synthstream.report.distributions import kind_of, labels_of
from synthstream.report.page import render, until
from synthstream.report.places import coarse, grid_of_nodes, map_of, masses_of
from synthstream.report.scales import dates, linear, logarithmic, number
from synthstream.schema.columns import Category
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.schema import cells
from synthstream.synthesizers.assembly import synthesizer_of
from synthstream.synthesizers.contract import Expected, RowErrors
from synthstream.workload import FloatArray, IntArray, Workload

_WORST, _LISTED, _SIDE, _DISTANCES = 25, 12, 32, 20
# Why a measured count cannot be compared with all events, by how tables are measured.
_GAPS = {
    "refresh": "larger tables are measured only when the stream has grown",
    "epochs": "what an epoch measures counts its own events, not all",
}
_GAP = "not every table is measured over all events, with a known error"


def custodian_page(config: StreamConfig, *, progress: Steps) -> str:
    """The comparison of all releases with the true events, as HTML. NOT PRIVATE: it shows the data.

    Args:
        config: with a [sink] that holds releases, and the [source] that they were made of.

    Raises:
        ConfigError: there is no [sink] or no [source], or the releases were made with other settings.
        SinkError: there is no release, or a file is not what was published.
        SourceError, SchemaError: the true events cannot be read.
    """
    found = history_of(config, progress=progress)
    if any(cut["schema"] != found.config.schema.hash for cut in found.config.cuts):
        raise ConfigError(
            f"{config.name}: its columns changed at a cut, and the true events are read with the newest ones. There is "
            "no comparison with the true data for such a stream; the public report works."
        )
    parts = _of_points(found, progress) if config.workload is None else _of_tables(found, progress)
    return render(
        "custodian.html",
        title="Comparison with the true data",
        name=config.name,
        stamp=STAMP,
        simulated=found.warning,
        newest=found.newest,
        persons=config.privacy.unit.of_persons,
        has_times=config.clock.column is not None,
        op=config.op is not None,
        **parts,
    )


def _of_tables(found: History, progress: Steps) -> dict[str, Any]:
    workload = found.workload
    truth = truth_of_tables(found, progress=progress)
    steps = progress(list(range(len(truth.ticks))), "reading releases")
    history = [found.cells(truth.ticks[i]) for i in steps]
    by_order = {
        order: [errors(workload, truth.counts[i], history[i], tick, order=order) for i, tick in enumerate(truth.ticks)]
        for order in sorted({len(m) for m in workload.marginals})
    }
    compared = all(e.measured is not None for listed in by_order.values() for e in listed)
    true, newest = truth.counts[-1], history[-1]
    whole = () if () in workload.marginals else workload.marginals[0]
    return {
        "events": truth.events,
        "counted": int(true[workload.slice_of(whole)].sum()),
        "summary": [*(_summary(_words(o), listed[-1]) for o, listed in by_order.items()), *_in_epochs(found, truth)],
        "yardsticks": [_yardsticks(workload, true, newest, order) for order in by_order if order],
        "charts": [_over_time(order, listed) for order, listed in by_order.items() if len(listed) > 1],
        "worst": _worst(found, true, newest),
        "cards": [_card(found, i, true, newest) for i in range(len(workload.sizes)) if (i,) in workload.marginals],
        "maps": [],
        "gaps": "" if compared else _GAPS.get(found.config.measures, _GAP),
    }


def _words(order: int) -> str:
    known = {0: "The total", 1: "Tables of one column", 2: "Tables of two columns"}
    return known.get(order, f"Tables of {order} columns")


def _yardsticks(workload: Workload, true: IntArray, newest: Cells, order: int) -> list[str]:
    found = yardsticks(workload, true, newest, order=order)
    bars = "–" if found.coverage is None else f"{100 * found.coverage:.1f} %"
    return [_words(order), f"{found.k_marginal:.0f}", f"{100 * found.impossible:.1f} %", bars]


def _in_epochs(found: History, truth: Truth) -> list[list[str]]:
    """Errors of tables of one column whose measurements of several epochs add up to all events."""
    chain = found.measured_chain(table := epochs_of(found))
    if len(chain) < 2 or len(table) != 1:
        return []
    tick, measured = added_up(chain)
    true = truth.counts[[t.tick for t in truth.ticks].index(tick.tick)]
    error = errors(found.workload, true, measured, tick, order=1)
    what = f"Tables of one column, {len(chain)} epochs added up, until {tick.end:%Y-%m-%d}"
    return [_summary(what, error)]


def _summary(what: str, newest: Errors) -> list[str]:
    ratio = f"{newest.measured / newest.forecast:.2f}" if newest.measured is not None and newest.forecast else "–"
    return [what, number(newest.forecast), number(newest.measured), ratio, number(newest.rows)]


def _over_time(order: int, listed: Sequence[Errors]) -> Markup:
    """Forecast and errors of tables of one size, release by release."""
    x = [e.tick.end.timestamp() for e in listed]
    lines = [
        Series(name="measured counts", x=x, y=[e.measured for e in listed]),
        Series(name="forecast of the noise", x=x, y=[e.forecast for e in listed]),
        Series(name="synthetic rows", x=x, y=[e.rows for e in listed]),
    ]
    values = [v for line in lines for v in line.y if v is not None]
    rows = [[until(e.tick.end), number(e.forecast), number(e.measured), number(e.rows)] for e in listed]
    return line_chart(
        lines,
        title=_words(order),
        description=f"At the newest release: forecast {number(listed[-1].forecast)}, measured counts off by "
        f"{number(listed[-1].measured)}, synthetic rows off by {number(listed[-1].rows)} events.",
        x=dates(listed[0].tick.end, listed[-1].tick.end, marks=4),
        y=linear(0, max([*values, 1.0])),
        y_label="root mean square error of a cell, in events",
        table=Table(headings=["Events up to", "Forecast", "Measured counts", "Synthetic rows"], rows=rows),
    )


def _worst(found: History, true: IntArray, newest: Cells) -> Table:
    """Cells where the synthetic rows are furthest from the truth."""
    gap = np.abs(newest.count - true)
    order = np.argsort(-gap, kind="stable")[:_WORST]
    named = cells(found.config.schema, found.workload)[order.tolist()]
    rows = []
    for cell, names in zip(order.tolist(), named.iter_rows(), strict=True):
        pairs = zip(names[::2], names[1::2], strict=True)
        parts = [f"{column} = {value}" for column, value in pairs if column is not None]
        whole = newest.since[cell] == 0 and np.isfinite(newest.measured[cell])
        rows.append(
            [
                ", ".join(parts) or "all events",
                number(int(true[cell])),
                number(newest.count[cell]),
                number(newest.count[cell] - true[cell]),
                number(round(newest.measured[cell])) if whole else "–",
                number(newest.stderr[cell]) if whole else "–",
            ]
        )
    headings = ["Cell", "True", "Synthetic", "Difference", "Measured", "Standard error"]
    return Table(headings=headings, rows=rows)


def _card(found: History, position: int, true: IntArray, newest: Cells) -> dict[str, Any]:
    """True and synthetic counts of one column: bars, and a circle at the truth."""
    column, here = found.config.schema.columns[position], found.workload.slice_of((position,))
    labels, values = labels_of(column), len(column.value_labels)
    bars = [
        Bar(
            label=label,
            value=float(rows),
            at=float(there),
            muted=i >= values,
            note=f"{label}: {number(int(there))} true, {number(rows)} synthetic",
        )
        for i, (label, rows, there) in enumerate(zip(labels, newest.count[here], true[here], strict=True))
    ]
    if isinstance(column, Category):
        bars = sorted(bars[:values], key=lambda bar: -max(bar.value, bar.at or 0.0)) + bars[values:]
    head = bars if len(bars) <= _LISTED + 2 else bars[:_LISTED]
    gap = np.abs(newest.count[here] - true[here]).sum() / 2
    return {
        "name": column.title,
        "kind": f"{kind_of(column)}; {number(float(gap))} of {number(int(true[here].sum()))} events misplaced",
        "chart": bar_chart(head, more=bars[len(head) :], title="Synthetic and true"),
    }


# -- points ----------------------------------------------------------------------------------------------------------


def _of_points(found: History, progress: Steps) -> dict[str, Any]:
    truth = truth_of_points(found, progress=progress)
    columns = [c for c in found.config.schema.columns if isinstance(c, Coordinate)]
    names = [f"{column.name} from" for column in columns]
    synthetic = found.nodes(found.newest).sort(names)
    true = synthetic.with_columns(count=pl.Series(truth.counts[-1], dtype=pl.Float64))
    shape = tuple(synthetic[name].n_unique() for name in names)
    # Both maps in the same colours.
    frames = {"Synthetic events": synthetic, "True events": true}
    grids = {what: grid for what, frame in frames.items() if (grid := grid_of_nodes(found, frame)) is not None}
    top = max([2.0, *(float(grid.counts.max()) for grid in grids.values())])
    return {
        "events": truth.events,
        "counted": int(truth.counts[-1].sum()),
        "summary": [],
        "yardsticks": [],
        "charts": [chart for chart in [_distances(found, truth, shape, progress)] if chart is not None],
        "worst": None,
        "cards": [_point_card(column, masses_of(synthetic, column), masses_of(true, column)) for column in columns],
        "maps": [map_of(grid, found.newest, what=what, span=(1.0, top)) for what, grid in grids.items()],
        "gaps": "",
    }


def _point_card(column: Coordinate, synthetic: FloatArray, true: FloatArray) -> dict[str, Any]:
    pairs = zip(coarse(column, synthetic), coarse(column, true), strict=True)
    bars = [Bar(label=label, value=round(value), at=there) for (label, value), (_, there) in pairs]
    return {
        "name": column.title,
        "kind": f"{number(float(np.abs(synthetic - true).sum() / 2))} of {number(float(true.sum()))} events misplaced",
        "chart": bar_chart(bars, title="Synthetic and true"),
    }


def _distances(found: History, truth: Truth, shape: tuple[int, ...], progress: Steps) -> Markup | None:
    """Wasserstein distance between true and synthetic points over time, in one and two dimensions."""
    if len(shape) > 2:
        return None
    names = [f"{column.name} from" for column in found.config.schema.columns]
    places = np.unique(np.linspace(0, len(truth.ticks) - 1, min(_DISTANCES, len(truth.ticks))).round().astype(int))
    x, y = [], []
    for i in progress(places.tolist(), "measuring distances"):
        nodes, true = found.nodes(truth.ticks[i]).sort(names), truth.counts[i].astype(np.float64)
        synthetic = nodes["count"].to_numpy().astype(np.float64)
        x.append(truth.ticks[i].end.timestamp())
        comparable = nodes.height == true.size and synthetic.sum() > 0 and true.sum() > 0  # it may list coarser nodes
        y.append(_distance(synthetic, true, shape) if comparable else None)
    forecasts = _forecasts(found, [truth.ticks[i] for i in places], progress)
    numbers = [v for v in [*y, *(v for line in forecasts for v in line.y)] if v is not None]
    if len(numbers) < 2:
        return None
    return line_chart(
        [Series(name="error against the true events", x=x, y=y), *forecasts],
        title="Distance W1 between true and synthetic points",
        description=f"From {number(numbers[0])} to {number(numbers[-1])} widths of the box.",
        x=dates(found.ticks[0].end, found.newest.end, marks=5),
        y=logarithmic(max(min(numbers), 1e-6), max(numbers)),
        y_label="in widths of the box; 0.05 means that points are off by 5 % of the range on average",
        note=f"On a grid of {' by '.join(str(min(s, _SIDE)) for s in shape)} cells; smaller distances do not show. The "
        "forecast is that of plan for as many events: a simulation, which assumes a public shape of the data.",
    )


def _forecasts(found: History, ticks: Sequence[Tick], progress: Steps) -> list[Series]:
    """What ``plan`` would have said of as many events as were published; nothing where it says nothing of points.

    A simulation brings events evenly, so that each release stands where its number of events is reached, at the end at
    most: noise can make an older one the largest. Where rows may take events away, noise grows with how many came and
    went, which no release tells.
    """
    newest = ticks[-1]
    if newest.rows <= 0 or found.config.op is not None:
        return []
    rate = newest.rows / (newest.tick + 1)
    places = [min(max(round(tick.rows / rate), 1), newest.tick + 1) if tick.rows > 0 else None for tick in ticks]
    expected = Expected(found.config.schema, sorted({p for p in places if p}), rate)
    pieces = synthesizer_of(found.config).simulations(expected)
    errors: dict[int, RowErrors] = {}
    for i in progress(list(range(len(pieces))), "forecasting distances"):
        errors |= pieces[i]()
    y = [errors[p].distance if p in errors else None for p in places]
    return [Series(name="forecast", x=[tick.end.timestamp() for tick in ticks], y=y)] if any(y) else []


def _distance(synthetic: FloatArray, true: FloatArray, shape: tuple[int, ...]) -> float:
    if len(shape) == 1:
        centres = (np.arange(shape[0]) + 0.5) / shape[0]
        return float(wasserstein_distance(centres, centres, np.maximum(synthetic, 0), np.maximum(true, 0)))
    side = min(*shape, _SIDE)  # coarser cells, as many a side
    parts = (part.reshape(side, shape[0] // side, side, shape[1] // side) for part in (synthetic, true))
    return w1_grid(*(np.maximum(part.sum(axis=(1, 3)), 0) for part in parts))
