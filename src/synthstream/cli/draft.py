"""``synthstream schema init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthstream.cli.common import say
from synthstream.cli.runtime import fail


def schema_init(
    data: Annotated[Path, typer.Argument(help="A Parquet or CSV file; only its column types are read.")],
    op: Annotated[
        str | None, typer.Option(help="The column that says whether a row adds an event or takes one away (-1).")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A new .toml file; left out: the terminal, as if for this folder."),
    ] = None,
) -> None:
    """Draft a stream.toml from a file's column types. No value is read; every bound is left for you to fill in.

    Examples:
    synthstream schema init trips.parquet -o stream.toml
    synthstream schema init trips.csv > stream.toml
    """
    from synthstream.ingest.draft import draft

    text = draft(data, op=op, base=None if output is None else output.parent)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SystemExit(fail(f"-o {output} is there already, and is not written over. Name a new file.")) from None
    except FileNotFoundError:
        raise SystemExit(fail(f"-o {output}: there is no folder {output.parent}.")) from None
    say(f"A draft is in {output}. Fill in every TODO-public; then: synthstream plan {output}")
