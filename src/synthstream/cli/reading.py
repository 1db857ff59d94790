"""What commands for readers share: where releases are, which one is meant, and how an answer is written."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.cli.common import check_output, check_writable, unwritable
from synthstream.cli.runtime import fail
from synthstream.errors import ConfigError, NotReleased
from synthstream.kinds import COMPRESSED

if TYPE_CHECKING:
    import polars as pl

    from synthstream.publish.published import Releases
    from synthstream.release.release import Release
    from synthstream.release.window import PointWindow, Window

_FORMATS = ("csv", "parquet", "jsonl")

Place = Annotated[
    str,
    typer.Argument(
        metavar="RELEASES", help="A stream.toml, a folder of releases, or the http address of one.", show_default=False
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(help="Only rows that satisfy a condition, in SQL: \"age >= 60 AND zone = 'A'\"; of several, all."),
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="DATE|TICK",
        help="The release of a tick, from 0, or the newest one that ended by a date; left out: the newest.",
    ),
]


def two_dates(option: str, found: str = "") -> str:
    """What to say of an option that did not get its two dates."""
    return f"{f'{option} {found}'.strip()}: say two dates with a blank between, as in {option} 2026-01-01 2026-02-01."


def pair(param: typer.CallbackParam, value: tuple[str, str] | None) -> tuple[str, str] | None:
    """The two dates of an option, refused here if it took another option for one of them."""
    if value is not None and any(word.startswith("-") for word in value):
        found = "" if value[0].startswith("-") else value[0]
        raise SystemExit(fail(two_dates(param.opts[0], found)))
    return value


Between = Annotated[
    tuple[str, str] | None,
    typer.Option(
        metavar="FROM TO",
        callback=pair,
        help="Only events from one date to before another, widened to whole ticks. Where tables are measured once "
        "an epoch (see plan), whole epochs alone; a refusal lists them.",
    ),
]


def all_of(conditions: list[str] | None, found: Releases) -> str | None:
    """One condition that says all of some. Rows have no time: who asks for one is told how."""
    from synthstream.schema.conditions import is_column, tokenised

    given, clock = conditions or [], found.config.clock.column
    absent = [] if clock is None or clock in found.last.schema.published else [clock]
    if any(is_column(token, absent) for one in given for token in tokenised(one)):
        raise ConfigError(
            f"--where: {clock} is the time of events, which rows do not have. Say --between FROM TO, or --at."
        )
    return " AND ".join(f"({one})" for one in given) if len(given) > 1 else next(iter(given), None)


def apart(columns: list[str] | None, known: Iterable[str]) -> list[str]:
    """Columns that were named: with commas too, as in SQL, where no column has one in its name."""
    if any("," in name for name in known):
        return columns or []
    return [name.strip() for one in columns or [] for name in one.split(",") if name.strip()]


def chosen(found: Releases, at: str | None, between: tuple[str, str] | None) -> Release:
    """The release, or window, that is meant."""
    if at is not None and between is not None:
        raise ConfigError("--at and --between: give one of them; --between says by itself which events it means.")
    if between is not None:
        return window(found, "--between", between)
    if at is None:
        return found.last
    with _by("--at"):
        return found.at(int(at) if at.isdecimal() else at)


def window(found: Releases, option: str, dates: tuple[str, str]) -> Window | PointWindow:
    """The window between two dates that an option gives."""
    with _by(option):
        return found.between(*dates)


@contextmanager
def _by(option: str) -> Iterator[None]:
    """Say of which option it is that a moment is none, or was not released."""
    try:
        yield
    except (ConfigError, NotReleased) as error:
        raise type(error)(f"{option}: {str(error).removeprefix('between: ')}") from None


def format_of(named: str | None, output: Path | None, *, place: str) -> str:
    """How to write, and whether that can be, checked before anything is read.

    Raises:
        ConfigError: a file there would harm the stream.
    """
    if named is not None and named not in _FORMATS:
        raise ConfigError(f"--format {named}: must be one of {', '.join(_FORMATS)}.")
    if output is None:
        if named == "parquet" and sys.stdout.isatty():
            raise ConfigError("--format parquet: is not for a terminal; say -o rows.parquet, or redirect it.")
        return named or "csv"
    if not output.absolute().parent.is_dir():
        raise unwritable(output)
    ending = output.suffix.removeprefix(".").lower()
    if f".{ending}" in COMPRESSED:
        raise ConfigError(f"-o {output}: packed files are not written. Leave .{ending} out, and pack it afterwards.")
    if named is not None and ending in _FORMATS and ending != named:
        raise ConfigError(f"-o {output}: the name says {ending}, --format {named}: leave one out, or change it.")
    if named is None and ending not in _FORMATS:
        endings = ", ".join(f".{ending}" for ending in _FORMATS)
        raise ConfigError(f"-o {output}: the name must end in one of {endings}, or say --format.")
    if Path(place).exists():
        check_output(Path(place), output, page=False)
    else:
        check_writable(output)
    return named or ending


def write(frame: pl.DataFrame, output: Path | None, form: str, *, stamped: bool) -> None:
    """Write an answer to a file, or to the standard output.

    Args:
        stamped: whether it was made with simulated noise: it must say so, and its owner alone may read the file.
    """
    from polars.exceptions import ComputeError

    from synthstream.measured import NOT_PRIVATE

    target = BytesIO() if output is None or stamped else output
    try:
        if form == "csv":
            frame.write_csv(target)
        elif form == "jsonl":
            frame.write_ndjson(target)
        else:
            frame.write_parquet(target, metadata={"synthstream": NOT_PRIVATE} if stamped else None)
    except (OSError, ComputeError):  # of a full disk polars says neither a number nor the file
        raise ConfigError(f"-o {output}: could not be written whole. Is there room? Say the same again.") from None
    if stamped:
        typer.echo("NOT PRIVATE: made with simulated noise.", err=True)
    if output is not None and isinstance(target, BytesIO):
        _write_for_owner(output, target.getvalue())
    elif isinstance(target, BytesIO):
        try:
            sys.stdout.buffer.write(target.getvalue())
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the reader, such as ``head``, has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_for_owner(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read, also if it is there; what is no file, such as a pipe, is left as it
    is.
    """
    handle = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as file:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            os.fchmod(handle, 0o600)
            file.truncate(0)
        file.write(content)
