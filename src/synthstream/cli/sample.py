"""``synthstream sample``."""

from __future__ import annotations

import os
import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.cli.common import ConfigPath, Simulate, check_output, console
from synthstream.cli.runtime import fail

if TYPE_CHECKING:
    import polars as pl

    from synthstream.publish.published import Releases
    from synthstream.release.release import Release

_FORMATS = ("csv", "parquet", "jsonl")


def sample_command(
    config: ConfigPath,
    n: Annotated[
        int | None,
        typer.Option("-n", "--rows", min=0, help="How many; left out: all. More than there are: with repetition."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Only rows that satisfy a condition, in SQL: \"age >= 60 AND zone = 'A'\"; of several, all."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="DATE|TICK",
            help="The release of a tick, from 0, or the newest one that ended by a date; left out: the newest.",
        ),
    ] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="FROM TO", help="Only events from one date to before another, widened to whole ticks."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the draw; it has nothing to do with privacy.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A .csv, .parquet or .jsonl file; left out: CSV to standard output."),
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="csv|parquet|jsonl", help="Left out: as the file is called.")
    ] = None,
    simulate: Simulate = False,
) -> None:
    """Draw synthetic rows from a published release. Free: any number of times, at no privacy cost.

    Example: synthstream sample stream.toml -n 1000 --seed 7 -o rows.parquet

    Last month only: synthstream sample stream.toml --between 2015-12-01 2016-01-01

    Some rows only: synthstream sample stream.toml --at 2015-06-30 --where "age >= 60" --format jsonl
    """
    import numpy as np

    from synthstream.publish.published import releases

    form = _format(format_, output)
    if output is not None:
        check_output(config, output, page=False)
    if at is not None and between is not None:
        raise SystemExit(fail("--at and --between: give one of them; --between says by itself which events it means."))
    release = _chosen(releases(config, simulate=simulate), at, between)
    # All rows are always the same, in their own order; only a draw is fresh each time.
    condition = _all_of(where or [])
    rows = release.rows(n, where=condition, rng=None if n is None else np.random.default_rng(seed))
    if at is not None or between is not None:
        typer.echo(f"{release.name}: {release.about}", err=True)
    if rows.is_empty() and n != 0:
        typer.echo(_empty(condition, release), err=True)
    _write(rows, output, form, stamped=not release.secure)


def _all_of(conditions: list[str]) -> str | None:
    """One condition that says all of some."""
    return " AND ".join(f"({one})" for one in conditions) if len(conditions) > 1 else next(iter(conditions), None)


def _empty(condition: str | None, release: Release) -> str:
    """That there are no rows, and what may be wrong with the condition, as far as the public schema tells."""
    from synthstream.schema.columns import MISSING, Boolean, Category
    from synthstream.schema.conditions import doubts

    values = {
        column.name: [*column.value_labels, *(own for own in column.own_cells if own != MISSING)]
        if isinstance(column, Boolean | Category)
        else []
        for column in release.schema.columns
    }
    if condition is None:
        return f"{release.name}: there are no rows; what is written is empty."
    return f"{release.name}: no row satisfies {condition!r}; what is written is empty.{doubts(condition, values)}"


def _format(named: str | None, output: Path | None) -> str:
    """How to write, checked before anything is read."""
    if named is not None and named not in _FORMATS:
        raise SystemExit(fail(f"--format {named}: must be one of {', '.join(_FORMATS)}."))
    if output is None:
        if named == "parquet" and sys.stdout.isatty():
            raise SystemExit(fail("--format parquet: is not for a terminal; say -o rows.parquet, or redirect it."))
        return named or "csv"
    if not output.absolute().parent.is_dir():
        raise SystemExit(fail(f"-o {output}: there is no folder {output.parent}."))
    if named is None and output.suffix.removeprefix(".") not in _FORMATS:
        endings = ", ".join(f".{ending}" for ending in _FORMATS)
        raise SystemExit(fail(f"-o {output}: the name must end in one of {endings}, or say --format."))
    return named or output.suffix.removeprefix(".")


def _chosen(found: Releases, at: str | None, between: tuple[str, str] | None) -> Release:
    if between is not None:
        return found.between(*between)
    if at is None:
        return found.last
    return found.at(int(at) if at.isdecimal() else at)


def _write(rows: pl.DataFrame, output: Path | None, form: str, *, stamped: bool) -> None:
    from synthstream.measured import NOT_PRIVATE

    target = BytesIO() if output is None else output
    if form == "csv":
        rows.write_csv(target)
    elif form == "jsonl":
        rows.write_ndjson(target)
    else:
        rows.write_parquet(target, metadata={"synthstream": NOT_PRIVATE} if stamped else None)
    if stamped:
        typer.echo("NOT PRIVATE: rows made with simulated noise.", err=True)
    if output is not None:
        console().print(f"{len(rows):,} synthetic row{'' if len(rows) == 1 else 's'} in {output}", markup=False)
    if isinstance(target, BytesIO):
        _to_standard_output(target.getvalue())


def _to_standard_output(content: bytes) -> None:
    """Write, and end quietly if the reader, such as ``head``, has enough."""
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
