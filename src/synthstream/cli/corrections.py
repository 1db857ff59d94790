"""``synthstream source`` and ``synthstream forget``: what to do when a file, or a row, was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.cli.common import ConfigPath, no_core_dump, say
from synthstream.cli.runtime import when_stopped
from synthstream.errors import ConfigError

if TYPE_CHECKING:
    from synthstream.stream.stream import Stream

File = Annotated[str, typer.Argument(help="A file of the source, as `source list` names it.", show_default=False)]
_STAYS = (
    "What was counted of it stays counted, in all later releases; nothing that was released changes, and the budget is "
    "the same."
)


@contextmanager
def _opened(config: Path) -> Iterator[Stream]:
    """A stream that has begun."""
    from synthstream.config.config import load
    from synthstream.state.looking import began
    from synthstream.stream import stream as streams

    no_core_dump()
    when_stopped(lambda: "Run the same command again: it does nothing twice.")
    if not began(load(config).state):
        raise ConfigError(f"{config}: this stream has not begun, and nothing was counted.")
    with streams.open(config) as stream:
        yield stream


def source_list(config: ConfigPath) -> None:
    """List the files of the source, and how each stands: counted, changed, gone, retired or new. For you alone.

    Example: synthstream source list stream.toml
    """
    with _opened(config) as stream:
        for name, stands in stream.corrections.listed():
            typer.echo(f"{stands:8} {name}")


def source_accept(config: ConfigPath, file: File) -> None:
    """Take a counted file as it is now: it was redacted or corrected. No row of it is counted again.

    Example: synthstream source accept stream.toml visits-2026-01.csv
    """
    with _opened(config) as stream:
        changed = stream.corrections.accept(file)
    say(f"{file} is accepted as it is now. {_STAYS}" if changed else f"{file} is as it was when it was counted.")
    if changed:
        say("Rows that were added to it do not count: put them into a new file.")


def source_retire(config: ConfigPath, file: File) -> None:
    """Never look at a counted file again: it was deleted, or will be.

    Example: synthstream source retire stream.toml visits-2026-01.csv
    """
    with _opened(config) as stream:
        anew = stream.corrections.retire(file)
    retired = f"{file} is retired: a file of this name never counts again. {_STAYS}"
    say(retired if anew else f"{file} was retired before.")


def forget_command(
    config: ConfigPath,
    rows: Annotated[Path, typer.Argument(help="A file with the rows to take away, written as those of the source.")],
    request: Annotated[
        str,
        typer.Option(
            "--id",
            help="What to call this request: a number, nobody's name, for it stays in the state. The same again does "
            "nothing; under another id, rows are taken away again.",
        ),
    ],
) -> None:
    """Take rows away, as an erasure request asks. Needs op in stream.toml.

    They count in the open tick, or in the later tick of their own time.
    Nobody is told whether a row had counted. What was released stays released.
    After `succeed` or `recover --adopt`, rows need their time, and those dated before stay.

    Example: synthstream forget stream.toml rows-of-a-person.csv --id 2026-11/3
    """
    with _opened(config) as stream:
        stream.corrections.forget(rows, request=request)
        clock, tick, cuts = stream.config.clock, stream.closed, stream.config.cuts
        limited = stream.config.privacy.unit.of_persons
    if cuts:
        say(f"Rows dated before {clock.begins(cuts[-1]['tick'])}, where the stream went on, stay.")
    say(
        f"Request {request}: its rows are taken away once, with tick {tick}, which {clock.ending(tick)}, or with that "
        "of their own time if it is later. Whether they had counted is not looked up. Releases before that tick stay "
        "as they are."
    )
    if limited:
        say("They count towards max_events of their persons: where no more rows can count, they are not taken away.")
    say(f"Delete {rows}, and erase the rows from the source; then `synthstream source accept` its files.")
