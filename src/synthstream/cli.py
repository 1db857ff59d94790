"""The command line: parse, call the library, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.errors import SynthstreamError

if TYPE_CHECKING:
    from rich.console import Console

    from synthstream.config import StreamConfig

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="A synthetic copy of a private event stream, kept up to date under one privacy budget.",
)
schema_app = typer.Typer(no_args_is_help=True, help="Describe columns.")
app.add_typer(schema_app, name="schema")

ConfigPath = Annotated[Path, typer.Argument(help="The stream's configuration, stream.toml.", show_default=False)]
Simulate = Annotated[
    bool,
    typer.Option("--simulate", help="Reproducible noise, own folders, every output stamped as not private."),
]


@schema_app.command("init")
def schema_init(
    data: Annotated[Path, typer.Argument(help="A Parquet or CSV file; only its column types are read.")],
) -> None:
    """Draft a stream.toml from a file's column types. No value is read; every bound is left for you to fill in.

    Example: synthstream schema init trips.parquet > stream.toml
    """
    from synthstream.draft import draft

    typer.echo(draft(data), nl=False)


@app.command("plan")
def plan_command(config: ConfigPath) -> None:
    """Say what a configuration promises and how exact its tables will be. Touches no data, spends nothing.

    Example: synthstream plan stream.toml
    """
    from rich.table import Table

    from synthstream.config import load
    from synthstream.plan import plan

    loaded = load(config)
    found = plan(loaded)
    console = _console()
    console.print(f"[bold]{loaded.name}[/bold]")
    console.print(f"Guarantee  {found.words}")
    console.print(
        "           Whoever sees all releases learns almost the same whether or not any one row was in the stream.\n"
        "           Someone with many rows is protected less: the promise is for each row."
    )
    tables = ", ".join(f"{n} of {k} column{'s' if k != 1 else ''}" for k, n in found.tables.items() if k)
    console.print(f"Tables     {tables}; {found.cells:,} cells; counter {found.counter}")
    console.print(
        f"Memory     about {150 + found.state_bytes / 1e6:.0f} MB; on disk {found.state_bytes / 1e6:.1f} MB and "
        f"{found.tick_bytes / 1e3:.0f} KB more for each tick"
    )
    orders = [k for k in found.tables if k]
    table = Table(title="Standard error of one cell, and expected error of a whole table, in events")
    for title in (
        "ticks",
        "until",
        *(f"{k}-way cell" for k in orders),
        *(f"{k}-way table" for k in orders),
    ):
        table.add_column(title, justify="right", no_wrap=True)
    whole_days = loaded.clock.every[-1] not in "hm"
    for row in found.forecasts:
        table.add_row(
            f"{row.ticks:,}",
            loaded.clock.boundary(row.ticks).strftime("%Y-%m-%d" if whole_days else "%Y-%m-%d %H:%M"),
            *(f"± {row.stderr[k]:,.1f}" for k in orders),
            *(f"{row.table_error[k]:,.0f}" for k in orders),
        )
    console.print(table)
    console.print(
        "Errors are those of the measured tables; the rows are fitted to all of them and are usually closer. Streams "
        "about the same people add up: two of these would cost twice the epsilon."
    )


@app.command("run")
def run_command(
    config: ConfigPath,
    until: Annotated[
        str | None,
        typer.Option(help="Close ticks that ended before this time (ISO), in place of the clock's."),
    ] = None,
    simulate: Simulate = False,
    seed: Annotated[int, typer.Option(help="Seed of the simulated noise; only with --simulate.")] = 0,
) -> None:
    """Count new files, and publish one release for every tick that has ended. Resumes where it stopped.

    Example: synthstream run stream.toml
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from synthstream import stream as streams

    console = _console()
    if seed and not simulate:
        raise SystemExit(_fail("--seed is for --simulate only: real noise has no seed."))
    moment = _moment(until)
    with streams.open(config, simulate=seed if simulate else None) as stream:
        if simulate:
            _warn(console)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("counting files", total=None)
            stream.ingest()
            done, due = stream.closed, stream.due(until=moment)
            progress.update(task, description="releasing", total=done + due, completed=done)
            for _ in stream.run(until=moment):
                progress.advance(task)
        _summary(console, stream.config, config, closed=stream.closed, new=stream.closed - done)


def _summary(console: Console, loaded: StreamConfig, path: Path, *, closed: int, new: int) -> None:
    budget, horizon = loaded.privacy.budget, loaded.clock.horizon
    console.print(f"{new} new release(s); {closed} in all" + (f" of {horizon} paid for." if horizon else "."))
    console.print(
        f"Spent: epsilon = {budget.epsilon:g}, delta = {budget.delta:g}, once, for "
        + ("all ticks for ever." if horizon is None else f"all {horizon} ticks. Nothing more is charged later.")
    )
    if horizon is not None and closed >= horizon:
        console.print("The horizon is reached: this stream is complete. Go on with a successor and its own budget.")
    if loaded.sink is not None:
        console.print(f"Releases: {loaded.sink.path}/{closed - 1:06d}" if closed else "Nothing is due yet.")
        console.print(f"Next: {_program()} sample {path} -n 5\n      {_program()} status {path}")


@app.command("status")
def status_command(config: ConfigPath, simulate: Simulate = False) -> None:
    """Show what was spent and how far the stream is. Public facts only; works while `run` is at it.

    Example: synthstream status stream.toml
    """
    from synthstream.assembly import simulated
    from synthstream.config import load
    from synthstream.io.store import Store

    loaded = load(config)
    loaded = simulated(loaded) if simulate else loaded
    console = _console()
    if not (loaded.state / "store.db").exists():
        console.print(f"{loaded.name}: not started. Next: {_program()} run {config}")
        return
    store = Store(loaded.state, read_only=True)
    try:
        last, ledger = store.last(), store.ledger()
    finally:
        store.close()
    closed = 0 if last is None else last.tick + 1
    if simulate:
        _warn(console)
    ahead = "no end" if loaded.clock.horizon is None else f"{loaded.clock.horizon} paid for"
    console.print(f"[bold]{loaded.name}[/bold]: {closed} release(s), {ahead}")
    for claim in ledger:
        console.print(f"Spent    {claim['words']}")
    if last is not None:
        console.print(f"Last     tick {last.tick}, events before {loaded.clock.boundary(closed).isoformat()}")
        console.print(f"Chain    {last.head}")
    console.print(f"Next     tick {closed} ends {loaded.clock.boundary(closed + 1).isoformat()}")


@app.command("sample")
def sample_command(
    config: ConfigPath,
    n: Annotated[int | None, typer.Option("-n", help="How many rows; left out: all that were published.")] = None,
    at: Annotated[int | None, typer.Option(help="Which tick's release; left out: the newest.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the draw; it has nothing to do with privacy.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", help="A .parquet or .csv file; left out: CSV to the terminal.")
    ] = None,
    simulate: Simulate = False,
) -> None:
    """Draw synthetic rows from a published release. Free: any number of times, at no privacy cost.

    Example: synthstream sample stream.toml -n 1000 --seed 7 -o rows.parquet
    """
    from synthstream.assembly import simulated
    from synthstream.config import load
    from synthstream.io.sinks import ParquetSink

    loaded = load(config)
    loaded = simulated(loaded) if simulate else loaded
    if loaded.sink is None:
        raise SystemExit(_fail("This configuration has no [sink]; use Stream.rows() from Python."))
    rows = ParquetSink(loaded.sink.path).sample(n, tick=at, seed=seed)
    if output is None:
        sys.stdout.write(rows.write_csv())
    elif output.suffix == ".parquet":
        rows.write_parquet(output)
    elif output.suffix == ".csv":
        rows.write_csv(output)
    else:
        raise SystemExit(_fail(f"-o {output}: the name must end in .parquet or .csv."))
    if output is not None:
        _console().print(f"{len(rows):,} synthetic rows in {output}")


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SystemExit(_fail(f"--until {text}: not an ISO date or time. Example: --until 2016-01-02")) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _console() -> Console:
    from rich.console import Console

    return Console(soft_wrap=True, highlight=False)


def _program() -> str:
    """The command as the user can type it again."""
    typed = Path(sys.argv[0])
    if typed.name != "synthstream" or shutil.which("synthstream") == str(typed):
        return "synthstream"
    return os.path.relpath(typed)


def _warn(console: Console) -> None:
    console.print("[bold red]NOT PRIVATE[/bold red]: simulated noise; folders end in -simulated.")


def _fail(message: str) -> int:
    typer.echo(f"Error: {message}", err=True)
    return 2


def main() -> None:
    """Entry point: errors of this package become one message and exit status 2."""
    try:
        app()
    except SynthstreamError as error:
        sys.exit(_fail(str(error)))
    except KeyboardInterrupt:
        typer.echo("Stopped. What was committed is safe; run the same command again to go on.", err=True)
        sys.exit(130)
