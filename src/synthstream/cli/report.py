"""``synthstream report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthstream.cli.common import ConfigPath, Simulate, bar, check_output, console, no_core_dump, warn


def report_command(
    config: ConfigPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write, an .html file.")],
    custodian: Annotated[
        bool, typer.Option("--custodian", help="Compare with the true data instead. NOT PRIVATE: for your eyes alone.")
    ] = False,
    simulate: Simulate = False,
) -> None:
    """Write a page about what was published, safe to publish beside it; it works offline.

    With --custodian the page compares the releases with the true data. It is not private, and readable by you alone.

    Examples: synthstream report stream.toml -o report.html

    synthstream report stream.toml --custodian -o custodian.html
    """
    from synthstream.publish.outlets import configured
    from synthstream.report.page import write_page

    loaded = configured(config, simulate=simulate)
    check_output(config, output, page=True, private=custodian)
    shown = console()
    if simulate:
        warn(shown)
    if custodian:
        from synthstream.evaluate.custodian import STAMP
        from synthstream.evaluate.custodian_page import custodian_page

        no_core_dump()
        write_page(output, custodian_page(loaded, progress=bar), private=True)
        shown.print(f"{output}: {STAMP}", style="bold red")
        return
    from synthstream.report.public import public_page

    write_page(output, public_page(loaded, output, progress=bar))
    shown.print(f"{output}: made from published releases alone.")
    sink = None if loaded.sink is None else loaded.sink.path.resolve()
    if sink is not None and not sink.is_relative_to(output.absolute().parent.resolve()):
        shown.print(
            f"It names files without links: they do not lie below its folder. Write it to {sink.parent} for links."
        )
