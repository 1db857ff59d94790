"""``synthstream schema init``, ``plan`` and ``ledger``: before anything is spent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.cli.common import AsJson, ConfigPath, bar, check_output, console, say, unwritable
from synthstream.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from synthstream.forecast.planning import Forecast, Plan


def schema_init(
    data: Annotated[str, typer.Argument(help="A Parquet, CSV or JSON-lines file, or postgres:TABLE; no row is read.")],
    op: Annotated[
        str | None, typer.Option(help="The column that says whether a row adds an event or takes one away (-1).")
    ] = None,
    codebook: Annotated[
        Path | None, typer.Option(help="What is publicly known of the columns: a Table Schema, or a datapackage.json.")
    ] = None,
    service: Annotated[str | None, typer.Option(help="Of PostgreSQL, in your pg_service.conf.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A new .toml file; left out: the terminal, as if for this folder."),
    ] = None,
) -> None:
    """Draft a stream.toml from names, types and a codebook. No row is read; unknown bounds are left for you to fill in.

    Examples:
    synthstream schema init trips.parquet -o stream.toml
    synthstream schema init trips.csv --codebook datapackage.json > stream.toml
    synthstream schema init postgres:public.trips > stream.toml
    """
    from synthstream.config.problems import PUBLIC_BOUND
    from synthstream.ingest.draft import draft

    text = draft(data, op=op, base=None if output is None else output.parent, codebook=codebook, service=service)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"-o {output} is there already, and is not written over. Name a new file.") from None
    except OSError:
        raise unwritable(output) from None
    say(f"A draft is in {output}. Fill in every {PUBLIC_BOUND}; then: synthstream plan {output}")


def plan_command(
    config: ConfigPath,
    expect: Annotated[str | None, typer.Option(help="A public guess of the rate of events: 500/day, 35/tick.")] = None,
    at_ticks: Annotated[str | None, typer.Option(help="After how many ticks, instead of days: 10,100.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write a page with plots: plan.html.")] = None,
    as_json: AsJson = False,
    after: Annotated[Path | None, typer.Option(help="The stream that this one would go on from.")] = None,
    rows: Annotated[
        bool | None,
        typer.Option(help="Simulate published rows too; left out: where that takes less than half a minute."),
    ] = None,
) -> None:
    """Say what a configuration promises and how exact it will be. Touches no data, spends nothing.

    Examples:
    synthstream plan stream.toml --expect 500/day -o plan.html
    synthstream plan new.toml --after stream.toml
    """
    from rich.measure import Measurement

    from synthstream.config.config import load
    from synthstream.forecast.planning import plan
    from synthstream.report.regions import check_regions
    from synthstream.stream.opening import begun
    from synthstream.stream.succession import planned

    if output is not None:
        check_output(config, output, page=True)
    loaded = load(config) if after is None else planned(load(after), load(config))
    check_regions(loaded)
    loaded = begun(loaded) if after is None else loaded
    found = plan(
        loaded,
        expect=expect,
        at_ticks=_ticks(at_ticks),
        rows=rows,
        track=lambda work: (work[i] for i in bar(range(len(work)), "simulating releases", timed=True)),
    )
    if output is not None:
        from synthstream.report.page import write_page
        from synthstream.report.plan_page import plan_page

        write_page(output, plan_page(found))
    if as_json:
        typer.echo(json.dumps(found.facts(), indent=2, allow_nan=False))
        return
    shown = console()
    _print_promise(shown, found)
    wide = shown.options.update(max_width=1000)
    for table in _tables(found):  # each as wide as it is: a number that is cut off would be another number
        shown.width = max(shown.width, Measurement.get(shown, wide, table).maximum)
        shown.print(table)
    _print_rest(shown, found)
    if output is not None:
        shown.print(f"Written to {output}.")


def _ticks(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part.replace("_", "")) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--at-ticks {text}: say numbers of ticks, as in --at-ticks 10,100") from None


def _print_promise(shown: Console, found: Plan) -> None:
    """And what it needs."""
    from synthstream.privacy import stated
    from synthstream.report.plan_page import when_of
    from synthstream.report.scales import size_of

    shown.print(found.name, style="bold")
    shown.print("For the person in the data")
    shown.print("           " + found.meaning.replace(". ", ".\n           "))
    shown.print("For the statistician")
    shown.print(f"           {found.words}")
    if found.tables:
        tables = ", ".join(f"{n} of {k} column{'s' if k != 1 else ''}" for k, n in found.tables.items() if k)
        shown.print(f"Tables     {tables}; {found.cells:,} cells")
    else:
        shown.print(f"Cells      at most {found.cells:,}")
    shown.print(f"Measured   {found.how}")
    shown.print(
        f"Memory     about {found.memory_bytes / 1e6:,.0f} MB; on disk up to {size_of(found.state_bytes)} and "
        f"{size_of(found.tick_bytes)} more for each tick"
    )
    if found.release_seconds is not None:
        shown.print(
            f"Time       about {float(f'{found.release_seconds:.2g}'):,g} s to compute the release of the last line "
            "below, measured on this machine"
        )
    assumed = " (assumed; with a guess of yours, --expect 500/day, errors are told in per cent, too)"
    shown.print(f"Events     {found.expected.words}{assumed if found.assumed else ''}")
    shown.print(f"Errors     after {'; '.join(when_of(forecast) for forecast in found.forecasts)}")
    if len(found.budgets) > 1:
        own = stated(found.budget.epsilon)
        shown.print(f"           eps {own} is what this stream has; other lines are to compare")


def _tables(found: Plan) -> Iterator[Table]:
    """Errors of measured counts, and of published rows."""
    unit = "in events" + ("" if found.assumed else ", and in per cent of all by then")
    yield from _table(found, f"Errors of measured counts, {'exact' if found.exact else 'forecast'}: {unit}", _measured)
    yield from _table(found, f"Errors of published rows, simulated: {unit}", _published)


def _measured(found: Plan, forecast: Forecast) -> dict[str, str]:
    """Errors of measured counts by heading."""
    orders = [k for k in forecast.stderr if k]
    texts = {"total": _events(forecast.stderr[0])} if 0 in forecast.stderr else {}
    texts |= {f"{k}-way cell": _events(forecast.stderr[k]) for k in orders}
    texts |= {f"{k}-way table": _said(found, forecast, forecast.table_error[k]) for k in orders}
    return texts if forecast.box is None else {**texts, "box": _said(found, forecast, forecast.box)}


def _published(found: Plan, forecast: Forecast) -> dict[str, str]:
    """Errors of published rows by heading."""
    rows = forecast.rows
    if rows is None:
        return {}
    texts = {f"{k}-way table": _said(found, forecast, rows.table_error[k]) for k in sorted(rows.table_error)}
    texts["box"] = _said(found, forecast, rows.box)
    return texts if rows.distance is None else {**texts, "W1": f"{rows.distance:.4f}"}


def _table(found: Plan, title: str, errors: Callable[[Plan, Forecast], dict[str, str]]) -> Iterator[Table]:
    """Errors by time and budget, three lines for each time; nothing if there are none."""
    from rich import box
    from rich.table import Table

    from synthstream.privacy import stated

    headings = dict.fromkeys(heading for forecast in found.forecasts for heading in errors(found, forecast))
    if not headings:
        return
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("after", "eps", *headings):
        table.add_column(heading, justify="right", no_wrap=True)
    for i, mine in enumerate(found.forecasts):
        for k, budgeted in enumerate(found.budgets):
            texts = errors(found, budgeted.forecasts[i])
            table.add_row(
                "" if k else mine.asked,
                stated(budgeted.epsilon),
                *(texts.get(heading, "-") for heading in headings),
                style="bold" if budgeted.forecasts is found.forecasts else None,
                end_section=k + 1 == len(found.budgets),
            )
    yield table


def _said(found: Plan, forecast: Forecast, value: float) -> str:
    """An error in events; in per cent too, if somebody said how many events to expect."""
    return _events(value) if found.assumed else f"{_events(value)} ({forecast.percent(value)})"


def _events(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _print_rest(shown: Console, found: Plan) -> None:
    from synthstream.forecast.warnings import deviation

    notes = [f"{_OF_TABLES} {found.caveat}"] if found.tables else []
    if any(f.rows is not None for f in found.forecasts):
        shape = f"{_SHAPE} {deviation(found.tables)}"
        notes.append(shape if found.tables else f"{_OF_POINTS} {shape}")
    notes += filter(None, (found.largest_words, found.unforeseen, *found.notes))
    for words in notes:
        shown.print(f"- {words}")
    if found.proposal is not None:
        shown.print(f"Fewer pairs: {found.proposal.words}\n\n{found.proposal.toml}", markup=False)
    for caution in found.cautions:
        shown.print(f"Warning    {caution.about}: {caution.words}")


_OF_TABLES = (
    "total, cell: standard error of one count. table: sum of absolute errors over its cells, mean over tables. box: "
    "error of the number of events in a quarter of a two-way table: half of the values of each of its columns."
)
_OF_POINTS = (
    "box: error of the number of events in a box of half of each side. W1: how far points are off on average, in "
    "widths of the whole box (0.05: by 5 % of the range)."
)
_SHAPE = "Simulations assume a public shape of the data."


def ledger_command(
    configs: Annotated[list[Path], typer.Argument(help="The stream.toml of each stream.")], as_json: AsJson = False
) -> None:
    """List what several streams promise, for whom, and what that adds up to. Reads no private value, changes nothing.

    A stream that went on with other settings is named by its newest file alone.

    Example: synthstream ledger visits.toml trips.toml
    """
    from synthstream.config.config import load
    from synthstream.forecast.ledger import NOTE, ledgers
    from synthstream.privacy import stated
    from synthstream.stream.opening import begun

    found = ledgers([(path, load(path)) for path in configs], begun)
    if as_json:
        typer.echo(json.dumps(found.facts(), indent=2, allow_nan=False))
        return
    shown = console()
    for line in found.lines:
        shown.print(line.name, style="bold", end="  ")
        shown.print(str(line.path))
        shown.print(f"  {line.promise.facts['words']}")
    for total in found.sums if len(found.lines) > 1 else ():
        shown.print(f"Sum for {total.unit}, {total.neighbours}: {', '.join(total.streams)}", style="bold")
        shown.print(
            f"  epsilon = {_up(total.epsilon)} at delta = {stated(total.delta)} (rho = {_up(total.rho)}); "
            f"simply added up, epsilon = {stated(total.plain[0])} at delta = {stated(total.plain[1])}"
        )
    for path in found.left_out:
        shown.print(f"Not counted again: {path}, which another one of these goes on from, or is the same.")
    if len(found.lines) > 1:
        shown.print(NOTE)


def _up(value: float) -> str:
    """A promise in four digits, never less than it is."""
    return f"{Context(prec=4, rounding=ROUND_CEILING).create_decimal_from_float(value):g}"
