"""The command line: parse, call the library, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream import care
from synthstream.errors import SynthstreamError

if TYPE_CHECKING:
    from rich.console import Console

    from synthstream.plan import Plan
    from synthstream.stream import Stream

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
schema_app = typer.Typer(no_args_is_help=True, help="Describe columns.")
app.add_typer(schema_app, name="schema")

ConfigPath = care.ConfigPath
Simulate = Annotated[
    bool,
    typer.Option("--simulate", help="Reproducible noise, own folders, releases stamped as not private."),
]


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"synthstream {version('synthstream')}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A synthetic copy of a private event stream, kept up to date under one privacy budget."""


@schema_app.command("init")
def schema_init(
    data: Annotated[Path, typer.Argument(help="A Parquet or CSV file; only its column types are read.")],
    op: Annotated[
        str | None, typer.Option(help="The column that says whether a row adds an event or takes one away (-1).")
    ] = None,
) -> None:
    """Draft a stream.toml from a file's column types. No value is read; every bound is left for you to fill in.

    Example: synthstream schema init trips.parquet > stream.toml
    """
    from synthstream.draft import draft

    typer.echo(draft(data, op=op), nl=False)


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
    console.print("           " + found.meaning.replace(". ", ".\n           "))
    if not found.tables:
        _print_distances(console, found)
        return
    tables = ", ".join(f"{n} of {k} column{'s' if k != 1 else ''}" for k, n in found.tables.items() if k)
    console.print(f"Tables     {tables}; {found.cells:,} cells")
    console.print(f"Measured   {found.how}")
    console.print(
        f"Memory     about {150 + found.state_bytes / 1e6:.0f} MB; on disk {found.state_bytes / 1e6:.1f} MB and "
        f"{found.tick_bytes / 1e3:.0f} KB more for each tick"
    )
    orders = [k for k in found.forecasts[0].stderr if k]
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
    if found.largest_words:
        console.print(found.largest_words)
    console.print(f"{found.caveat} Streams about the same people add up: two of these would cost twice the epsilon.")


def _print_distances(console: Console, found: Plan) -> None:
    """The forecast of a points stream."""
    from rich.table import Table

    console.print(f"Measured   {found.how}")
    console.print(f"Memory     about {150 + 2 * found.state_bytes / 1e6:.0f} MB for at most {found.cells:,} cells")
    if not found.distances:
        console.print(found.caveat)
        return
    table = Table(title="Distance W1 to the true events, in widths of the box: at most about")
    for title in ("events", "W1"):
        table.add_column(title, justify="right", no_wrap=True)
    for events, distance in found.distances:
        table.add_row(f"{events:,}", f"{distance:.4f}")
    console.print(table)
    console.print(
        "0.05 means that points are off by 5 % of the range on average; so is the mean of a column, at most.\n"
        f"{found.caveat} Streams about the same people add up: two of these would cost twice the epsilon."
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

    if seed and not simulate:
        raise SystemExit(_fail("--seed is for --simulate only: real noise has no seed."))
    moment = _moment(until)
    console = _console()
    care.no_core_dump()
    with streams.open(config, simulate=seed if simulate else None) as stream:
        if simulate:
            _warn(console)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        try:
            with Progress(*columns, console=console, transient=not sys.stdout.isatty()) as progress:
                task = progress.add_task("counting files", total=None)
                files = stream.ingest()
                due = stream.due(until=moment)
                progress.update(task, description="releasing", total=due, visible=due > 0)
                for _ in range(due):
                    stream.release(until=moment)
                    progress.advance(task)
        except (KeyboardInterrupt, SystemError) as error:
            # Compiled code that is interrupted wraps it.
            if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            console.print(f"Stopped after {stream.new} new release(s). Run the same command again to go on.")
            raise SystemExit(130) from None
        _summary(console, stream, config, files=files, new=stream.new, simulate=simulate)


def _summary(console: Console, stream: Stream, path: Path, *, files: int, new: int, simulate: bool) -> None:
    loaded, closed = stream.config, stream.closed
    budget, horizon = loaded.privacy.budget, loaded.clock.horizon
    console.print(
        f"{files} new file(s) counted, {new} new release(s); {closed} in all"
        + (f" of {horizon} paid for." if horizon else ".")
    )
    if not simulate:
        console.print(
            f"Spent: epsilon = {budget.epsilon:g}, delta = {budget.delta:g}, once, for "
            + ("all ticks for ever." if horizon is None else f"all {horizon} ticks. Nothing more is charged later.")
        )
    if horizon is not None and closed >= horizon:
        console.print("The horizon is reached: this stream is complete. Go on with a successor and its own budget.")
    elif new == 0:
        console.print(f"Nothing was due: tick {closed} ends {loaded.clock.boundary(closed + 1).isoformat()}.")
    if loaded.sink is not None and closed:
        switch = " --simulate" if simulate else ""
        console.print(f"Newest release: {loaded.sink.path}/{closed - 1:06d}")
        console.print(f"Next: {_program()} sample {path} -n 5{switch}\n      {_program()} status {path}{switch}")


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
        if loaded.sink is not None and any(loaded.sink.path.glob("[0-9]*/manifest.json")):
            console.print(
                f"{loaded.name}: there are releases in {loaded.sink.path}, but no state in {loaded.state}. "
                "Put it back, or check 'state'; `run` says what else can be done."
            )
        else:
            console.print(f"{loaded.name}: not started. Next: {_program()} run {config}")
        return
    store = Store(loaded.state, read_only=True)
    try:
        published, ledger = store.population(), store.ledger()
        last = None if published is None else store.measurement(published[0])
        changed = loaded.differences(store.meta("config") or loaded.public_json())
    finally:
        store.close()
    closed = 0 if last is None else last.tick + 1
    if simulate:
        _warn(console)
    if changed:
        console.print(
            f"[bold]{config} differs from the running stream in {', '.join(changed)}; `run` will refuse.[/bold]"
        )
    horizon = ledger[0]["horizon"] if ledger else loaded.clock.horizon
    ahead = "no end" if horizon is None else f"{horizon} paid for"
    console.print(f"[bold]{loaded.name}[/bold]: {closed} release(s), {ahead}")
    for claim in ledger:
        console.print(f"{'With real noise' if simulate else 'Spent   '} {claim['words']}")
    if last is not None:
        console.print(f"Last     tick {last.tick}, events before {loaded.clock.boundary(closed).isoformat()}")
        console.print(f"Chain    {last.head}")
    if horizon is not None and closed >= horizon:
        console.print("Complete: all ticks that were paid for have been released.")
    else:
        console.print(f"Next     tick {closed} ends {loaded.clock.boundary(closed + 1).isoformat()}")


@app.command("sample")
def sample_command(
    config: ConfigPath,
    n: Annotated[
        int | None, typer.Option("-n", "--rows", help="How many; left out: all. More than there are: with repetition.")
    ] = None,
    at: Annotated[int | None, typer.Option(help="Which tick's release, from 0; left out: the newest.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the draw; it has nothing to do with privacy.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .parquet or .csv file; left out: CSV to the terminal.")
    ] = None,
    simulate: Simulate = False,
) -> None:
    """Draw synthetic rows from a published release. Free: any number of times, at no privacy cost.

    Example: synthstream sample stream.toml -n 1000 --seed 7 -o rows.parquet
    """
    from synthstream.assembly import simulated
    from synthstream.config import load
    from synthstream.io.sinks import ParquetSink
    from synthstream.release import NOT_PRIVATE

    loaded = load(config)
    loaded = simulated(loaded) if simulate else loaded
    if loaded.sink is None:
        raise SystemExit(_fail("This configuration has no [sink]; use Stream.rows() from Python."))
    rows = ParquetSink(loaded.sink.path).sample(n, tick=at, seed=seed)
    if simulate:
        typer.echo("NOT PRIVATE: rows made with simulated noise.", err=True)
    if output is not None and not output.absolute().parent.is_dir():
        raise SystemExit(_fail(f"-o {output}: there is no folder {output.parent}."))
    if output is None:
        sys.stdout.write(rows.write_csv())
    elif output.suffix == ".parquet":
        rows.write_parquet(output, metadata={"synthstream": NOT_PRIVATE} if simulate else None)
    elif output.suffix == ".csv":
        rows.write_csv(output)
    else:
        raise SystemExit(_fail(f"-o {output}: the name must end in .parquet or .csv."))
    if output is not None:
        _console().print(f"{len(rows):,} synthetic rows in {output}")


app.command("verify")(care.verify_command)
app.command("backup")(care.backup_command)
app.command("recover")(care.recover_command)


@app.command("audit")
def audit_command(
    config: ConfigPath,
    runs: Annotated[
        int, typer.Option(min=10, help="Simulated runs on each side. More see more: 100000 for 97 %.")
    ] = 10_000,
    ticks: Annotated[int, typer.Option(min=1, help="Ticks of a simulated stream, at most.")] = 64,
    confidence: Annotated[float, typer.Option(help="That no bound exceeds the truth, all together.")] = 0.999,
    as_json: Annotated[bool, typer.Option("--json", help="Findings as JSON.")] = False,
) -> None:
    """Measure how much one event tells at least, on simulated neighbours with real noise. Reads no data.

    Ends with status 1 if more can be seen than is claimed.

    Example: synthstream audit stream.toml --runs 100000
    """
    from synthstream.config import load
    from synthstream.evaluate.verdict import report

    if not 0 < confidence < 1:
        raise SystemExit(_fail(f"--confidence {confidence:g}: must lie between 0 and 1. Example: --confidence 0.999"))
    found = report(load(config), _console(), runs=runs, ticks=ticks, confidence=confidence, as_json=as_json)
    if found.refuted:
        raise SystemExit(1)


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
    except OSError as error:
        sys.exit(_fail(f"{error.filename or ''} {error.strerror or error}".strip()))
