"""What the commands share. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from synthstream.cli.runtime import Now, stop_if_asked
from synthstream.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from synthstream.forecast.warnings import Caution

T = TypeVar("T")

ConfigPath = Annotated[Path, typer.Argument(help="The stream's configuration, stream.toml.", show_default=False)]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="Reproducible noise, own folders, releases stamped as not private.")
]
Unchecked = Annotated[
    bool,
    typer.Option(
        "--unchecked",
        help="Go on although a mirror ([[mirror]]) cannot be asked, or holds nothing any more; manifests say so.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]

AHEAD = (
    "The newest release ends {}, and that is not over: the machine's clock is wrong, or was wrong then. Until that "
    "time no tick is due, and rows count in the tick after it."
)


def console() -> Console:
    """Where a command prints; nowhere, with ``--quiet``."""
    from rich.console import Console

    class Shown(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    # No markup: names and paths are the user's, and may hold brackets.
    return Shown(soft_wrap=True, highlight=False, markup=False, quiet=Now.quiet)


def say(text: str) -> None:
    """Print a line, but for ``--quiet``."""
    if not Now.quiet:
        typer.echo(text)


def note(text: str) -> None:
    """What is being done, on the error stream, with ``--verbose``. Public facts only, and no durations: how long rows
    take tells how many there are.
    """
    if Now.verbose:
        typer.echo(text, err=True)


def program() -> str:
    """The command as the user can type it again."""
    typed = Path(sys.argv[0])
    if typed.name != "synthstream" or shutil.which("synthstream") == str(typed):
        return "synthstream"
    return os.path.relpath(typed)


def warn(shown: Console) -> None:
    """Say that noise is simulated."""
    shown.print("NOT PRIVATE: simulated noise; folders end in -simulated.", style="bold red")


def cautioned(shown: Console, cautions: Iterable[Caution]) -> None:
    """Print warnings."""
    for caution in cautions:
        shown.print(f"Warning: {caution.about}: {caution.words}", style="bold")


def check_output(
    config: Path, output: Path, *, page: bool, in_state: bool | None = None, private: bool = False
) -> None:
    """Raise ``ConfigError`` unless a file can be written without harm to the stream.

    Not over the configuration or a file of the source, nor as a new one that would count, and not among the releases,
    real or simulated. A page ends in ``.html``, and replaces pages alone.

    Args:
        private: whether it is for the custodian alone, and so never in a site or a copy of releases.
        in_state: whether it may lie in the state; left out: pages may, other files may not.
    """
    from synthstream.config.config import load
    from synthstream.config.sources import fitting, may_fit
    from synthstream.publish.outlets import public_folder, simulated
    from synthstream.report.page import check_place

    check_place(output)
    place, real = output.resolve(), load(config)
    sources = [] if real.source is None else fitting(str(real.source.path))
    if any(place == Path(own).resolve() for own in (str(config), *sources)):
        raise ConfigError(f"-o {output}: is one of the stream's own files. Name another.")
    if real.source is not None and may_fit(real.source.path, output):
        raise ConfigError(f"-o {output}: fits the path of [source], so its rows would count as events. Name another.")
    for one in (real, simulated(real)):
        if one.sink is not None and place.is_relative_to(one.sink.path.resolve()):
            raise ConfigError(
                f"-o {output}: lies in the folder of releases, which holds releases alone. Put it beside it, as in "
                f"{one.sink.path.parent / output.name}."
            )
        if not (page if in_state is None else in_state) and place.is_relative_to(one.state.resolve()):
            raise ConfigError(f"-o {output}: lies in {one.state}, which is the program's own. Name another place.")
    if private and (public := public_folder(real, place.parent)):
        raise ConfigError(f"-o {output}: lies in {public}, which is published. Name another place.")
    if page and output.suffix not in (".html", ".htm"):
        raise ConfigError(f"-o {output}: a page's name ends in .html.")
    if page and output.exists() and not output.read_bytes()[:15].lower().startswith(b"<!doctype html"):
        raise ConfigError(f"-o {output}: is there already, and is no page. Name another.")
    check_writable(output, aside=page)


def check_writable(output: Path, *, aside: bool = False) -> None:
    """Raise ``ConfigError`` unless a file can be written; where there is none yet, that is tried.

    Args:
        aside: whether it is written beside, and takes the place of what is there.
    """
    try:
        if output.exists() and not aside:  # what may be a pipe
            may = os.access(output, os.W_OK)
        else:  # a system may refuse those whom it does not name
            tempfile.TemporaryFile(dir=output.resolve().parent).close()
            may = True
    except OSError:
        may = False
    if not may:
        raise unwritable(output)


def unwritable(output: Path) -> ConfigError:
    """What to say of a file that cannot be written."""
    if not output.absolute().parent.is_dir():
        return ConfigError(f"-o {output}: there is no folder {output.parent}.")
    return ConfigError(f"-o {output}: cannot be written there. Choose a folder that you may write to.")


def no_core_dump() -> None:
    """A crash must not write exact counts to a file, nor hand them to a program that collects crashes.

    Linux asks no limit before it does that (apport, systemd-coredump); of a process that is not dumpable it does not.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def bar(steps: Iterable[T], doing: str = "release", *, timed: bool = False) -> Iterator[T]:
    """Steps, under a progress bar on the error stream, if someone looks.

    Ctrl-C takes effect between two of them, wherever it came.

    Args:
        steps: a known number of them; public facts.
        doing: what is done with one, in a word or two.
        timed: whether to say how much time is left; only for work on nothing private. See :func:`note`.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    everything = list(steps)
    shown = Console(stderr=True)
    hidden = not shown.is_terminal or Now.quiet or Now.verbose
    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TimeRemainingColumn()] if timed else []
    with Progress(*columns, console=shown, transient=True, disable=hidden) as progress:
        Now.ending.append(progress.stop)
        task = progress.add_task(doing, total=len(everything))
        for step in everything:
            stop_if_asked()
            note(f"{doing} {step}")
            yield step
            progress.advance(task)
    stop_if_asked()
