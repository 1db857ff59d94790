"""How every command behaves: quiet or verbose, what Ctrl-C and SIGTERM do, and what an exception becomes.

Exit statuses are in :data:`DONE` and below, and in ``synthstream --help``.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from synthstream.errors import FilesLeftOut, RowsRepeat, SynthstreamError

DONE, FOUND, REFUSED, UNEXPECTED, STOPPED, UNREAD = 0, 1, 2, 70, 130, 141

# Shows what an unexpected exception says. It may quote rows, so nothing but a person's own hand sets it.
DEBUG = "SYNTHSTREAM_DEBUG"

# What a terminal obeys, but for tabs and line ends.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only, and what --json asks for.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say on the error stream what is being done.")]


class Now:
    """How the command that runs was called, and what became of it so far.

    ``quiet``: only errors are printed. ``verbose``: what is being done is said. ``asked``: the signal that came to stop
    it, 0 for none. ``ending`` is called before an error is printed, such as what takes a progress bar off the screen.
    """

    quiet = verbose = False
    asked = 0
    named = ""
    ending: list[Callable[[], None]] = []  # noqa: RUF012 - there is one process, and one command in it
    words: Callable[[], str] = staticmethod(lambda: "Nothing was changed.")


class Asked(KeyboardInterrupt):
    """A signal asked the command to stop. Of a type of its own: where Python itself runs a text, as while dataclasses
    are loaded, it takes note of a plain ``KeyboardInterrupt``, and ``python -m`` ends by SIGINT, not with our status.
    """


def when_stopped(words: Callable[[], str]) -> None:
    """What to tell the user after Ctrl-C or SIGTERM: how things stand, and how to go on."""
    Now.words = staticmethod(words)


def stop_if_asked() -> None:
    """Raise ``KeyboardInterrupt`` if a signal came, and compiled code or a callback swallowed it."""
    if Now.asked:
        raise Asked


def mannered(command: Callable[..., None]) -> Callable[..., None]:
    """A command with ``-q`` and ``-v``, whose exceptions become a message and an exit status."""

    @wraps(command)
    def run(*, quiet: bool = False, verbose: bool = False, **arguments: Any) -> None:
        if quiet and verbose:
            raise SystemExit(fail("say --quiet or --verbose, not both."))
        Now.quiet, Now.verbose, Now.asked, Now.ending = quiet, verbose, 0, []
        Now.named = str(arguments.get("config", arguments.get("place", "")))
        when_stopped(lambda: "Nothing was changed.")
        with _listening():
            try:
                with _notices():
                    command(**arguments)
                sys.stdout.flush()
            except (SystemExit, typer.Exit):
                raise
            except BaseException as error:
                raise SystemExit(_told(error)) from None
            finally:
                Now.quiet = Now.verbose = False

    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    for name, kind in (("quiet", Quiet), ("verbose", Verbose)):
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@contextmanager
def _notices() -> Iterator[None]:
    """Say once that rows repeat, on the error stream, but for ``--quiet``."""
    said = set[str]()
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category is not RowsRepeat:
                others(message, category, *where, **more)
            elif not Now.quiet and str(message) not in said:
                said.add(str(message))
                typer.echo(f"Note: {message}.", err=True)

        warnings.simplefilter("always", RowsRepeat)
        warnings.showwarning = show
        yield


@contextmanager
def _listening() -> Iterator[None]:
    """Ctrl-C and SIGTERM are remembered, and raise ``KeyboardInterrupt``: what is not committed is rolled back."""

    def asked(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        Now.asked = number
        # Compiled code may keep Python from ending for seconds. A second signal is a kill, which is as safe.
        signal.signal(number, signal.SIG_DFL)
        raise Asked

    # Who starts a program in the background may have told it to ignore Ctrl-C.
    usual: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    ours = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
    if threading.current_thread() is not threading.main_thread():  # signals never come here
        ours = []
    for number in ours:
        signal.signal(number, asked)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, usual[number])


def named(words: str) -> str:
    """Words that advise a command, with the configuration's file as the user named it."""
    if not Now.named.endswith(".toml"):
        return words
    return re.sub(r"(synthstream( [a-z]+)+ )stream\.toml", lambda said: said[1] + shlex.quote(Now.named), words)


def fail(message: str) -> int:
    """Print an error; returns the exit status. What a file or a server is called must not write on the terminal."""
    typer.echo(_CONTROL.sub(lambda sign: ascii(sign[0])[1:-1], f"Error: {named(message)}"), err=True)
    return REFUSED


def stopped(words: str) -> int:
    """Say that a signal was heard, and how things stand; returns the exit status, as shells have it."""
    typer.echo(f"Stopped. {words}", err=True)
    return 128 + (Now.asked or signal.SIGINT)


def _told(error: BaseException) -> int:
    """Say what happened, in words that hold nothing private; returns the exit status."""
    for effect in Now.ending:
        effect()
    if isinstance(error, FilesLeftOut):
        for words in error.findings.values():
            fail(words)
        typer.echo(
            "Files that are not named here were counted, and all that is due is published. Do not show this, or the "
            "exit status, to others: both depend on what the files hold.",
            err=True,
        )
        return FOUND
    if isinstance(error, SynthstreamError):
        return fail(str(error))
    if _interrupted(error):
        words = "Run the same command again to go on."
        with suppress(Exception):  # what it needs may be a module that Ctrl-C left half loaded
            words = Now.words()
        return stopped(words)
    if isinstance(error, BrokenPipeError):
        # Whoever read has read enough. What is still in the buffer must not fail again when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    if isinstance(error, OSError):
        why = "it cannot be read or written" if error.errno is None else os.strerror(error.errno)
        return fail(f"{error.filename}: {why}." if error.filename else f"{why}.")
    if isinstance(error, MemoryError):
        return fail("there is not enough memory. What was committed is there. Make room, and run again.")
    kind = type(error).__name__
    fail(
        f"{kind} at {_place(error)}: this should not happen, and is an error of this program. What was committed is "
        f"there. Please report this line. {DEBUG}=1 shows more, which may quote rows: keep that to yourself."
    )
    return UNEXPECTED


def _interrupted(error: BaseException | None) -> bool:
    """Whether a signal is behind an exception: compiled code wraps it, or raises something else in its place."""
    if Now.asked:
        return True
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _place(error: BaseException) -> str:
    """File and line of this package where an exception came from."""
    package = Path(__file__).parents[1]
    stack = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in stack if Path(frame.filename).is_relative_to(package)]
    if not frames:
        return "an unknown place"
    return f"{Path(frames[-1].filename).relative_to(package)}:{frames[-1].lineno}"


def ignored(report: Any) -> None:
    """In place of what Python prints of an exception that nobody can catch: it may quote rows."""
    if isinstance(report.exc_value, KeyboardInterrupt):
        Now.asked = Now.asked or signal.SIGINT
    elif os.environ.get(DEBUG):
        sys.__unraisablehook__(report)
