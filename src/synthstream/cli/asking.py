"""Before a stream is opened: what that costs for good, and nobody's word but a person's, or ``--yes``, opens it."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from synthstream.cli.common import cautioned, program
from synthstream.cli.runtime import Now
from synthstream.environment import REAL
from synthstream.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from synthstream.config.config import StreamConfig


def ask_first(shown: Console, path: Path, *, until: datetime | None, yes: bool, follow: bool = False) -> bool:
    """End here unless the stream was opened before, or somebody says that it may be; whether it was asked.

    On a terminal the promise, the ticks that are over and the files are shown, and ``yes`` is waited for. Elsewhere
    nobody can answer. All that is shown is public: names of files, the clock and the configuration.

    Raises:
        TickNotOver: ``until`` lies in the future, and nobody would ``follow`` the stream up to there.
        ConfigError: there is no yes, or ``until`` lies before the start: then the stream was opened for nothing.
    """
    from synthstream.cli.follow import first_of
    from synthstream.cli.status import facts
    from synthstream.config.config import load
    from synthstream.schema.clock import due, written

    loaded, now = load(path), REAL.now()
    found = facts(loaded)
    if found["started"] or found["lost"]:  # what is lost is refused when it is opened
        return False
    if until is not None and loaded.clock.moment(until) <= loaded.clock.boundary(0):
        raise ConfigError(
            f"--until {written(until)}: must lie after start, which is {loaded.clock.begins(0)}: no tick ends before. "
            "Nothing was opened, and nothing was spent."
        )
    until = first_of(loaded.clock, until) if follow else until
    over = loaded.clock.over(now, until=until) if follow else due(loaded.clock, until=until, now=now)
    files = _files(loaded)
    if yes:
        return False
    named = "" if loaded.log is None else " FILE"
    look = f"Look first: {program()} check {path}{named} - it looks at {_looked_at(loaded, files)}, and spends nothing"
    told = [found["claim"]["words"], _over(loaded, over, until), look]
    if over and files == 0:
        told.insert(2, "No file fits [source] path yet: all that is released now would be empty.")
    if _nobody_can_answer():
        raise ConfigError(
            f"{loaded.name} was never opened. Opening it spends its budget for good. {' '.join(told)}. Then open it "
            f"with: {program()} run {path} --yes"
        )
    _show(shown, loaded, told)
    _answered("Open it?")
    return True


def sure(what: str) -> None:
    """End here unless somebody on a terminal says yes to what cannot be undone."""
    if _nobody_can_answer():
        raise ConfigError(f"{what}. Nobody can be asked here: say --yes.")
    typer.echo(f"{what}.")
    _answered("Go on?")


def _nobody_can_answer() -> bool:
    return Now.quiet or not (sys.stdin.isatty() and sys.stdout.isatty())


def _answered(question: str) -> None:
    signal.siginterrupt(signal.SIGINT, True)  # once polars is loaded, who waits for a line goes on waiting otherwise
    try:
        answer = input(f"{question} Type yes: ")
    except EOFError:
        answer = ""
    if answer.strip().lower() != "yes":
        raise ConfigError("nothing was opened, and nothing was spent.")


def _files(config: StreamConfig) -> int | None:
    """Number of files of the source, of which the first has all columns; ``None`` for other sources.

    A path or a log that is not there, or a header that does not fit, is refused before there is a state.
    """
    from synthstream.ingest.counting import files_of, refuse_other_columns
    from synthstream.ingest.logs import files_in

    files, source = files_in(config), files_of(config)
    if files is None or source is None:
        return None
    refuse_other_columns(source, files)
    return len(files)


def _show(shown: Console, config: StreamConfig, told: list[str]) -> None:
    from synthstream.forecast.warnings import weak_budget

    shown.print(f"{config.name} was never opened. Opening it spends its budget for good.", style="bold")
    shown.print(replace(config.privacy.unit, signed=config.op is not None).meaning)
    for words in told[:-1]:
        shown.print(words)
    shown.print(f"{told[-1]}.")
    cautioned(shown, weak_budget(config))


def _over(config: StreamConfig, over: int, until: datetime | None) -> str:
    """How many ticks are released at once, and by whose clock."""
    clock = config.clock
    if not over:
        return f"No tick is over; the first ends {clock.begins(1)}."
    first, last = (clock.boundary(tick).date().isoformat() for tick in (1, over))
    words = f"1 tick is over, which ended {first}: it is released at once, whether it has events or not."
    if over > 1:
        words = f"{over:,} ticks are over, of which the first ended {first} and the last {last}: all of them are"
        words += " released at once, whether they have events or not."
    if until is None and clock.until is None:
        words += " By the machine's clock: where the data end earlier, say so as until in [clock]."
    if over == clock.horizon:
        words += f" That is all of the horizon of {over:,} ticks: afterwards the stream has ended."
    return words


def _looked_at(config: StreamConfig, files: int | None) -> str:
    """What ``check`` reads, in words; names of files are public."""
    if files is None or config.source is None:
        return "the files that you name" if config.log is None else "files that you name, not at the log"
    return f"{files:,} file{'' if files == 1 else 's'} ({config.source.path})"
