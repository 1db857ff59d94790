"""The forecast of ``synthstream plan`` as a page. It knows the configuration and simulations, and no data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from markupsafe import Markup

from synthstream.forecast.planning import Forecast, Plan
from synthstream.forecast.warnings import deviation
from synthstream.privacy import stated
from synthstream.report.charts import Series, Table, line_chart
from synthstream.report.page import moment, render, small
from synthstream.report.promise import promise_of
from synthstream.report.scales import logarithmic, number, size_of

# An error of a forecast; ``None`` where there is none.
Error = Callable[[Forecast], float | None]

# A range of the values of two columns at once; the command prints it as "box".
_BOX = "A box: a quarter of a table"


def plan_page(found: Plan) -> str:
    """One self-contained page, light and dark, with a chart of each error and all numbers."""
    return render(
        "plan.html",
        title=f"Forecast: {found.name}",
        name="Synthstream",
        stamp="",
        plan=found,
        promise=promise_of(found.promise),
        facts=list(_facts(found)),
        deviation=deviation(found.tables),
        measured=[_chart(found, title, note, error) for title, note, error in _measured(found)],
        rows=[_chart(found, title, note, error) for title, note, error in _rows(found)],
        table=_table(found),
    )


def _facts(found: Plan) -> Iterator[tuple[str, str, str]]:
    """The page's key figures: what, how much, and a remark."""
    epsilon, delta = found.promise["epsilon"], found.promise["delta"]
    remark = f"delta {small(delta)}" if delta else "pure"
    parts = f"; epsilon {stated(found.budget.epsilon)} from the cut on" if "parts" in found.promise else ""
    yield "Budget", f"epsilon {stated(epsilon)}", f"{remark}, for everything that is ever published{parts}"
    yield "Protected", "a person" if found.claim.unit.of_persons else "one event", found.claim.unit.words
    yield "Cells", f"{found.cells:,}", f"in {sum(found.tables.values()):,} tables" if found.tables else "at most"
    disk = f"on disk up to {size_of(found.state_bytes)}, and {size_of(found.tick_bytes)} a tick"
    yield "Memory", f"{found.memory_bytes / 1e6:,.0f} MB", disk
    if found.release_seconds is not None:
        time = f"{float(f'{found.release_seconds:.2g}'):,g} s"
        yield "Time", time, "to compute the release of the last line, on this machine"
    guess = "assumed: no rate was given" if found.assumed else "a public guess"
    yield "Events", f"{found.expected.number:,g} a {found.expected.per}", guess


def _measured(found: Plan) -> Iterator[tuple[str, str, Error]]:
    """Errors of measured counts: title, note, and where they stand."""
    orders = sorted(k for k in found.forecasts[0].stderr if k)
    alike = all(math.isclose(f.stderr[k], f.stderr[orders[0]], rel_tol=1e-6) for f in found.forecasts for k in orders)
    if 0 in found.forecasts[0].stderr:
        yield "The number of all events", "Standard error of the running total.", partial(_stderr, 0)
    for k in orders[:1] if alike else orders:
        title = "One cell of any table" if alike else f"One cell of a {_table_of(k)}"
        note = "A cell is one count: of a value, or of values together. Its standard error."
        yield title, note, partial(_stderr, k)
    if any(f.box is not None for f in found.forecasts):
        note = "A box is half of the values of each of two columns. Standard error of the sum of its cells."
        yield _BOX, note, lambda f: f.box


def _rows(found: Plan) -> Iterator[tuple[str, str, Error]]:
    """Errors of published rows, in events, and in per cent if somebody said how many there will be."""
    first = next((f.rows for f in found.forecasts if f.rows is not None), None)
    if first is None:
        return
    for k in sorted(first.table_error):
        note = "Sum of absolute errors over all cells, mean over tables."
        yield f"A {_table_of(k)}", note, partial(_table_error, k)
    title, note = "A box: half of each column", "A box is half of the range of each column."
    if found.tables:
        title, note = _BOX, "A box is half of the values of each of two columns; counted in the rows."
    yield title, note, lambda f: None if f.rows is None else f.rows.box
    if first.distance is not None:
        note = "How far points are off on average, as a part of a column's range (Wasserstein distance). 0.05: by 5%."
        yield "Distance", note, lambda f: None if f.rows is None else f.rows.distance


def _table_of(order: int) -> str:
    """What is called a k-way table elsewhere."""
    columns = {1: "one column", 2: "two columns", 3: "three columns"}.get(order, f"{order} columns")
    return f"table of {columns}"


def _stderr(order: int, forecast: Forecast) -> float:
    return forecast.stderr[order]


def _table_error(order: int, forecast: Forecast) -> float | None:
    return None if forecast.rows is None else forecast.rows.table_error[order]


def _chart(found: Plan, title: str, note: str, error: Error) -> Markup:
    """Error against the number of ticks, a line for each budget."""
    values = [[error(f) for f in budgeted.forecasts] for budgeted in found.budgets]
    positive = [v for line in values for v in line if v is not None and v > 0]
    ticks = [float(f.ticks) for f in found.forecasts]
    series = [
        Series(name=_budget(found, b.epsilon), x=ticks, y=[v if v else None for v in line])
        for b, line in zip(found.budgets, values, strict=True)
    ]
    rows = [[when_of(f), *(_said(found, title, f, line[i]) for line in values)] for i, f in enumerate(found.forecasts)]
    begin, end = (_said(found, title, f, error(f)) for f in (found.forecasts[0], found.forecasts[-1]))
    return line_chart(
        series,
        title=title,
        description=f"{title}: {begin} after {ticks[0]:,.0f} ticks, {end} after {ticks[-1]:,.0f}, at the configured "
        "budget.",
        x=logarithmic(ticks[0], ticks[-1]),
        y=logarithmic(min(positive, default=1.0), max(positive, default=1.0)),
        x_label="ticks",
        y_label="parts of the range" if title == "Distance" else "error in events",
        table=Table(headings=["After", *(_budget(found, b.epsilon) for b in found.budgets)], rows=rows),
        note=note,
    )


def _budget(found: Plan, epsilon: float) -> str:
    return f"epsilon {stated(epsilon)}" + (" (configured)" if epsilon == found.budget.epsilon else "")


def when_of(forecast: Forecast) -> str:
    """What was asked for, which tick that is, and when this ends."""
    known = [] if "tick" in forecast.asked else [f"tick {forecast.ticks:,}"]
    known += [] if forecast.until is None else [moment(forecast.until)]
    return f"{forecast.asked} ({', '.join(known)})" if known else forecast.asked


def _said(found: Plan, title: str, forecast: Forecast, value: float | None) -> str:
    """An error, and what part of all events that is, as the command prints it; not of cells, nor of distances."""
    if value is None or found.assumed or title == "Distance" or "cell" in title:
        return number(value)
    return f"{number(value)} ({forecast.percent(value)})"


def _table(found: Plan) -> Table:
    charts = [("rows", chart) for chart in _rows(found)] + [("measured", chart) for chart in _measured(found)]
    headings = ["After", "Events", *(f"{title}, {of}" for of, (title, _, _) in charts)]
    rows = []
    for forecast in found.forecasts:
        errors = [_said(found, title, forecast, error(forecast)) for _, (title, _, error) in charts]
        rows.append([when_of(forecast), number(round(forecast.events)), *errors])
    return Table(headings=headings, rows=rows)
