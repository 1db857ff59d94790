"""``synthstream schema init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthstream.cli.common import say
from synthstream.cli.runtime import fail


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
    from synthstream.ingest.draft import draft

    text = draft(data, op=op, base=None if output is None else output.parent, codebook=codebook, service=service)
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
