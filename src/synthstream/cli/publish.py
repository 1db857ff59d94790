"""``synthstream report``, ``publish`` and ``describe``: what is made of published releases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthstream.cli.common import ConfigPath, Simulate, bar, check_output, console, no_core_dump, say, warn
from synthstream.cli.runtime import when_stopped


def report_command(
    config: ConfigPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write, an .html file.")],
    custodian: Annotated[
        bool, typer.Option("--custodian", help="Compare with the true data instead. NOT PRIVATE: for your eyes alone.")
    ] = False,
    simulate: Simulate = False,
) -> None:
    """Write a page about what was published, safe to publish beside it; it works offline.

    With --custodian the page compares the releases with the true data. It is readable by you alone: it shows true data.

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

    write_page(output, public_page(loaded, output, progress=bar), private=simulate)
    shown.print(f"{output}: made from published releases alone.")
    sink = None if loaded.sink is None else loaded.sink.path.resolve()
    if sink is not None and not sink.is_relative_to(output.absolute().parent.resolve()):
        shown.print(
            f"It names files without links: they do not lie below its folder. Write it to {sink.parent} for links."
        )


def publish_command(
    config: ConfigPath,
    site: Annotated[Path, typer.Argument(help="The folder of the site; made if it is not there.", show_default=False)],
    csv: Annotated[
        bool, typer.Option("--csv", help="CSV files beside older releases too, not the newest alone.")
    ] = False,
    simulate: Simulate = False,
) -> None:
    """Write a site of static files about what was published: report, explorer, releases, downloads.

    For any web server, a bucket or a git repository. Say it again after each release; it adds what is new.

    Example: synthstream publish stream.toml site
    """
    from synthstream.publish.folder import LATEST
    from synthstream.publish.outlets import configured
    from synthstream.report.scales import size_of
    from synthstream.report.site import publish_site

    loaded = configured(config, simulate=simulate)
    if simulate:
        warn(console())
    when_stopped(lambda: "Say the same again: until then pages may be old ones.")
    changed = publish_site(loaded, site, csv=csv, progress=bar)
    say(f"{site / 'index.html'}: {'made from published releases alone' if changed else 'is up to date'}.")
    say(f"{site / LATEST / 'explorer.html'}: the explorer; it opens without a web server, too.")
    parts = (site / "index.html", *(site / LATEST).glob("*"), *(site / "releases").glob("*/*"))
    sizes = {path: path.stat().st_size for path in parts}
    rows = sum(size for path, size in sizes.items() if path.stem == "rows" and path.parent.parent.name == "releases")
    say(f"{site}: {len(sizes):,} files, {size_of(sum(sizes.values()))}.")
    if loaded.sink is not None and loaded.sink.keep is None and 2 * rows > sum(sizes.values()):
        say(
            f"Rows of single releases are {size_of(rows)} of it. From the next release on, keep = 12 in [sink] keeps "
            "those of the newest 12 alone, here and where the releases are; the others keep their tables."
        )


def describe_command(config: ConfigPath, simulate: Simulate = False) -> None:
    """Describe the releases, beside them; `run` does so too.

    README.md is for people, datapackage.json and croissant.json are for open-data portals, deployment.yaml is an entry
    for the registry of deployments that OpenDP keeps, and settings.toml is for readers with this program.

    Title, publisher, licence and the like are those of [publication] in stream.toml.

    Example: synthstream describe stream.toml
    """
    from synthstream.publish.catalogue import describe, wanted
    from synthstream.publish.folder import DESCRIPTIONS
    from synthstream.publish.outlets import configured

    loaded = configured(config, simulate=simulate)
    when_stopped(lambda: "Say the same again; releases are never touched.")
    written = describe(loaded)
    folder = None if loaded.sink is None else loaded.sink.path
    say(f"{', '.join(DESCRIPTIONS)} in {folder} {'describe' if written else 'described already'} the newest release.")
    if missing := wanted(loaded):
        say(f"Portals also ask for {', '.join(missing)}: say them in [publication] of {config}.")
