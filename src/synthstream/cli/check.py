"""``synthstream check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthstream.cli.common import ConfigPath, bar, check_output, console, no_core_dump
from synthstream.environment import REAL


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
    from synthstream.cli.status import facts
    from synthstream.config.config import load
    from synthstream.evaluate.check_page import STAMP, check_page, lines_of
    from synthstream.evaluate.findings import Level, checked
    from synthstream.evaluate.look import look
    from synthstream.report.page import write_page
    from synthstream.report.regions import check_regions
    from synthstream.stream.opening import begun

    if output is not None:
        check_output(config, output, page=True, in_state=False, private=True)
    no_core_dump()
    loaded = begun(load(config))
    check_regions(loaded)
    looked = look(loaded, [path.absolute() for path in files or []], progress=lambda known: bar(known, "reading"))
    known = facts(loaded)
    found = checked(loaded, looked, now=REAL.now(), open_tick=known["ticks"], changed=known["changed"])
    shown = console()
    for line in lines_of(found):
        style = "bold" if line.startswith("DO NOT OPEN") or "Verdict" in line else None
        shown.print(f"PRIVATE  {line}", style=style)
    if output is not None:
        write_page(output, check_page(found), private=True)
        shown.print(f"PRIVATE  {output}: {STAMP}.", style="bold red")
    if found.verdict is not Level.FINE:
        shown.print("PRIVATE  Change how files are read, never values, bounds or limits by what the data show.")
