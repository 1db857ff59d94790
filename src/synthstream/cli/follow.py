"""``synthstream run --follow``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from synthstream.cli.runtime import fail, stop_if_asked
from synthstream.errors import ConfigError, FilesLeftOut, MirrorError

if TYPE_CHECKING:
    from rich.console import Console

    from synthstream.release.release import Release
    from synthstream.schema.clock import Clock
    from synthstream.stream.stream import Stream

# What the operator is told; never how many rows there are, or whether there are any.
WAITS = (
    "a transaction that may write there has been open for more than ten seconds. What it writes, and what is written "
    "after it began, is read when it has ended, and counts then."
)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def follow_command(
    stream: Stream, shown: Console, *, until: datetime | None, poll: float, released: Callable[[Release], None]
) -> None:
    """Go on until Ctrl-C (exit status 130), SIGTERM (143), ``until`` or the horizon (0).

    Files that cannot be counted are told when what is due is published, and again after each release.
    """
    import time

    loaded, until = stream.config, first_of(stream.config.clock, until)
    shown.print(f"Following {'files' if loaded.log is None else loaded.log.name}. Ctrl-C stops; nothing counts twice.")
    told = set[str]()

    def rest(seconds: float) -> None:
        stop_if_asked()
        waits = {f"{loaded.log.name}: {WAITS}"} if loaded.log is not None and stream.waits else set()
        for words in sorted({*stream.findings.values(), *waits} - told):
            fail(f"{words} Following goes on.")
            told.add(words)
        time.sleep(seconds)

    follow = partial(stream.follow, until=until, poll=poll, rest=rest, failed=_going_on)
    for release in _all(stream, partial(follow, since=stream.opened)):  # opening takes its time
        stop_if_asked()
        told.clear()
        end = loaded.clock.begins(release.tick + 1)
        place = "" if loaded.sink is None else f": {loaded.sink.path}/{release.tick:06d}"
        released(release)
        shown.print(f"Released tick {release.tick}, events before {end}{place}")
    why = "" if stream.new or stream.closed == loaded.clock.horizon else bounded(loaded.clock, stream.closed, until)
    shown.print(f"{stream.new} new release(s), {stream.closed} in all. Nothing more will be due.{why}")


def first_of(clock: Clock, until: datetime | None) -> datetime | None:
    """What ``--until`` says to who follows a stream; ``None`` where the clock's own comes first: both are heeded."""
    own = clock.until
    return None if until is None or (own is not None and clock.moment(own) < clock.moment(until)) else until


def bounded(clock: Clock, closed: int, until: datetime | None) -> str:
    """What ``until`` keeps from being closed after so many ticks; empty if there is none.

    Args:
        until: of the command line; left out: the clock's own.
    """
    from synthstream.schema.clock import written

    end, where = (clock.until, "in [clock]") if until is None else (until, "of --until")
    if end is None:
        return ""
    if clock.moment(end) < clock.boundary(closed):
        newest = clock.begins(closed)
        what = f"the end of the newest release, {newest}" if closed else f"start = {newest}"
        return f" Nothing will be due: until = {written(end)} {where} lies before {what}."
    return f" Nothing is closed that ends after until = {written(end)} {where}."


def _all(stream: Stream, follow: Callable[[], Iterator[Release]]) -> Iterator[Release]:
    """All releases. If a mirror fails, its error is printed, and it is tried again with the next release."""
    try:
        stream.publish_copies()  # what it lacks from before
    except MirrorError as error:
        _going_on(error)
    with suppress(FilesLeftOut):  # told at the end
        yield from follow()
    stream.publish_copies()


def _going_on(error: MirrorError) -> None:
    fail(f"{error} Following goes on.")


def seconds_of(text: str | None) -> float:
    """Length of time from the command line, in seconds; left out: 5."""
    text = "5s" if text is None else text
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    if found is None or not 0.05 <= float(found[1]) * _SECONDS[found[2]] <= 86_400:
        raise ConfigError(f"--poll {text}: use a number and ms, s, m or h, from 50ms to 24h, as in 5s.")
    return float(found[1]) * _SECONDS[found[2]]
