"""``synthstream sample``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.cli.common import Simulate, console
from synthstream.cli.reading import At, Between, Place, Where, all_of, chosen, format_of, write

if TYPE_CHECKING:
    from synthstream.release.release import Release


def sample_command(
    place: Place,
    n: Annotated[
        int | None,
        typer.Option("-n", "--rows", min=0, help="How many; left out: all. More than there are: with repetition."),
    ] = None,
    where: Where = None,
    at: At = None,
    between: Between = None,
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

    form = format_of(format_, output, place=place)
    release = chosen(releases(place, simulate=simulate), at, between)
    # All rows are always the same, in their own order; only a draw is fresh each time.
    condition = all_of(where)
    rows = release.rows(n, where=condition, rng=None if n is None else np.random.default_rng(seed))
    if at is not None or between is not None:
        typer.echo(f"{release.name}: {release.about}", err=True)
    if rows.is_empty() and n != 0:
        typer.echo(_empty(condition, release), err=True)
    write(rows, output, form, stamped=not release.secure)
    if output is not None:
        console().print(f"{len(rows):,} synthetic row{'' if len(rows) == 1 else 's'} in {output}", markup=False)


def _empty(condition: str | None, release: Release) -> str:
    """That there are no rows, and what may be wrong with the condition, as far as the public schema tells."""
    from synthstream.schema.conditions import in_single_quotes

    if condition is None:
        return f"{release.name}: there are no rows; what is written is empty."
    advice = in_single_quotes(condition, release.schema.names)
    return f"{release.name}: no row satisfies {condition!r}; what is written is empty.{advice}"
