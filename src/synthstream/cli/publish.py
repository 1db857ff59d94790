"""``synthstream publish``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from synthstream.cli.common import ConfigPath, Simulate, bar, console, say, warn
from synthstream.cli.runtime import when_stopped


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
    from synthstream.publish.outlets import configured
    from synthstream.report.site import publish_site

    loaded = configured(config, simulate=simulate)
    if simulate:
        warn(console())
    when_stopped(lambda: "The site is as it was, or as it should be. Say the same again.")
    changed = publish_site(loaded, site, csv=csv, progress=bar)
    say(f"{site / 'index.html'}: {'made from published releases alone' if changed else 'is up to date'}.")
    say(f"{site / 'latest' / 'explorer.html'}: the explorer; it opens without a web server, too.")
    _size(site, keeps_all=loaded.sink is not None and loaded.sink.keep is None)


def _size(site: Path, *, keeps_all: bool) -> None:
    """How large it is, and what would make it much smaller."""
    from synthstream.report.public import size_of

    parts = (site / "index.html", *(site / "latest").glob("*"), *(site / "releases").glob("*/*"))
    sizes = {path: path.stat().st_size for path in parts}
    rows = sum(size for path, size in sizes.items() if path.stem == "rows" and path.parent.parent.name == "releases")
    say(f"{site}: {len(sizes):,} files, {size_of(sum(sizes.values()))}.")
    if keeps_all and 2 * rows > sum(sizes.values()):
        say(
            f"Rows of single releases are {size_of(rows)} of it. From the next release on, keep = 12 in [sink] keeps "
            "those of the newest 12 alone, here and where the releases are; the others keep their tables."
        )
