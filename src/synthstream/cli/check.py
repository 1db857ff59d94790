"""``synthstream check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthstream.cli.common import ConfigPath, bar, check_output, console, no_core_dump


def check_command(
    config: ConfigPath,
    files: Annotated[list[Path] | None, typer.Argument(help="Files to look at; left out: the new ones.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write a page, too, readable by you.")] = None,
) -> None:
    """Look at the private rows before anything is spent: dates that cannot be read, values off the list, empty ticks.

    PRIVATE, for the custodian's eyes: every line says so. Nothing is counted, and no state is changed. Its exit
    status is 0 whatever it finds.

    Examples:
    synthstream check stream.toml
    synthstream check stream.toml visits-2026-11.csv -o check.html
    """
    from synthstream.config.config import load
    from synthstream.evaluate.check_page import STAMP, check_page, lines_of, look_now
    from synthstream.report.page import write_page

    if output is not None:
        check_output(config, output, page=True, in_state=False, private=True)
    no_core_dump()
    paths = [path.absolute() for path in files or []]
    found = look_now(load(config), paths, progress=lambda known: bar(known, "reading"))
    shown = console()
    for line in lines_of(found):
        style = "bold" if line.startswith("DO NOT") or "Verdict" in line else None
        shown.print(f"PRIVATE  {line}", style=style)
    if output is not None:
        write_page(output, check_page(found), private=True)
        shown.print(f"PRIVATE  {output}: {STAMP}.", style="bold red")
