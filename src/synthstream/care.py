"""Commands that look after a stream: verify, backup, recover. See :mod:`synthstream.cli`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

ConfigPath = Annotated[Path, typer.Argument(help="The stream's configuration, stream.toml.", show_default=False)]


def no_core_dump() -> None:
    """A crash must not write exact counts to a file."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _bar(steps: Iterable[int]) -> Iterable[int]:
    """A progress bar on the error stream, if someone looks."""
    from rich.console import Console
    from rich.progress import track

    shown = Console(stderr=True)
    return track(list(steps), description="releases", console=shown, transient=True, disable=not shown.is_terminal)


def verify_command(
    config: ConfigPath,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Also build every release again, and compare all bytes. Slow.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Check chain, ledger, claims and every published file; say what is wrong, and where. Changes nothing.

    The exit status is 1 if anything is wrong.

    Example: synthstream verify stream.toml
    """
    from synthstream.config import load
    from synthstream.verification import verify

    loaded = load(config)
    found = verify(loaded, rebuild=rebuild, progress=_bar)
    if as_json:
        typer.echo(json.dumps({**found._asdict(), "findings": [finding._asdict() for finding in found.findings]}))
    else:
        for finding in found.findings:
            typer.echo(f"{finding.where}: {finding.what}")
        here = (loaded.state / "store.db").exists()
        state = (
            f"{found.ticks} measured tick(s)"
            if found.ticks or here
            else f"no state in {loaded.state}, only releases were checked"
        )
        typer.echo(
            f"{state}, {found.releases} release(s): "
            + (f"{len(found.findings)} thing(s) wrong." if found.findings else "all as it should be.")
        )
    if found.findings:
        raise typer.Exit(1)


def backup_command(
    config: ConfigPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="A folder that does not exist yet.")],
) -> None:
    """Copy a stream, also while it runs: public/ may be copied anywhere, private/ is as secret as the data.

    Example: synthstream backup stream.toml -o backup-2026-11-21
    """
    from synthstream.config import load
    from synthstream.recovery import backup

    no_core_dump()
    loaded = load(config)
    backup(loaded, output)
    typer.echo(f"{output}/public holds what was published and spent; copy it anywhere.")
    typer.echo(
        f"{output}/private is as secret as the data. To restore it, put it in the place of {loaded.state} and say\n"
        f"  synthstream recover {config} --adopt"
    )
    if loaded.sink is None or loaded.privacy.unit.of_persons or loaded.clock.column is None:
        typer.echo("This stream goes on only from a backup that is as new as its releases: make one after every run.")


def recover_command(
    config: ConfigPath,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Go on from what was published; the private state is lost or old.")
    ] = False,
    republish: Annotated[
        bool, typer.Option("--republish", help="Build lost releases again from the state, and publish them.")
    ] = False,
) -> None:
    """Go on after a loss, without ever drawing noise twice for a published tick.

    --adopt: the state is lost or an old copy, the releases are there. A new segment begins on top of the newest
    release; rows dated before it never count again. --republish: the state is there, releases are missing.

    Example: synthstream recover stream.toml --adopt
    """
    from synthstream.config import load
    from synthstream.recovery import adopt as adopt_published
    from synthstream.recovery import republish as republish_lost

    no_core_dump()
    if adopt == republish:
        typer.echo("Error: say --adopt or --republish (see --help).", err=True)
        raise SystemExit(2)
    loaded = load(config)
    if republish:
        typer.echo(f"{republish_lost(loaded, progress=_bar)} release(s) put back.")
        return
    found = adopt_published(loaded, progress=_bar)
    if not found.segment:
        typer.echo(f"The state is as new as the releases, and was taken as it is. Next: synthstream run {config}")
        return
    start = loaded.clock.boundary(found.start).isoformat()
    typer.echo(
        f"A new segment begins with tick {found.start}. Rows dated before {start} never count again, whether they "
        "counted before or not; rows without a readable time no longer count."
    )
    if found.aside is not None:
        typer.echo(f"The old state is in {found.aside}; it is as secret as ever. Delete it when you need it no more.")
    typer.echo(f"Next: synthstream run {config}")
