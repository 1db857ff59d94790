"""A stream that goes on: it looks for new events again and again, and closes each tick when it is over."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from synthstream.config.config import StreamConfig
from synthstream.errors import FilesLeftOut, MirrorError
from synthstream.release.release import Release
from synthstream.release.window import Moment

# Clocks of file systems move in steps of at most 10 ms, and may be so much behind.
_STEP = timedelta(seconds=0.1)


class Followed(Protocol):
    """A :class:`synthstream.stream.stream.Stream`."""

    @property
    def config(self) -> StreamConfig: ...
    @property
    def closed(self) -> int: ...
    @property
    def last(self) -> Release | None: ...
    @property
    def findings(self) -> dict[Path, str]: ...
    def due(self, *, until: Moment | None = None) -> int: ...
    def ingest(self, *, before: datetime | None = None) -> int: ...
    def release(self, *, until: Moment | None = None) -> Release: ...
    def publish_copies(self) -> int: ...


def released(
    stream: Followed, ticks: int, *, until: Moment | None = None, count: Callable[[], None] = lambda: None
) -> Iterator[Release]:
    """Close ``ticks`` ticks, which are due. A mirror that fails delays none of them.

    Args:
        ticks: how many; if none, what mirrors lack is copied all the same.
        count: what is to be done before each.

    Raises:
        MirrorError: at the end, if a mirror still lacks something.
    """
    failed: MirrorError | None = None
    if not ticks:
        stream.publish_copies()
    for _ in range(ticks):
        failed = None
        count()
        try:
            stream.release(until=until)
        except MirrorError as error:
            failed = error.with_traceback(None)  # its frames are those of this generator, which goes on
        if stream.last is not None:
            yield stream.last
    if failed is not None:
        raise failed


def run(stream: Followed, *, until: Moment | None = None) -> Iterator[Release]:
    """See :meth:`synthstream.stream.stream.Stream.run`."""
    upto = stream.closed + stream.due(until=until)  # by the clock before rows are counted, which takes its time
    stream.ingest()
    yield from released(stream, max(0, upto - stream.closed), until=until)
    tell(stream)


class Asked(Iterator[Release]):
    """Releases that are made as they are asked for. Whoever forgets to ask is told: nothing was made."""

    def __init__(self, made: Iterator[Release]) -> None:
        self._made, self._asked = made, False

    def __next__(self) -> Release:
        self._asked = True
        return next(self._made)

    def __del__(self) -> None:
        if not self._asked:
            warnings.warn(
                "run() or follow() was called, and not iterated: nothing was counted or released. Write it as "
                "`for release in stream.run(): ...`, or list(stream.run())",
                RuntimeWarning,
                stacklevel=2,
            )


def tell(stream: Followed) -> None:
    """Raise ``FilesLeftOut`` if files were left out when the stream last looked; say it when all else is done."""
    if stream.findings:
        raise FilesLeftOut(stream.findings)


def follow(
    stream: Followed,
    *,
    now: Callable[[], datetime],
    until: datetime | None = None,
    poll: float = 5.0,
    rest: Callable[[float], object] = time.sleep,
    failed: Callable[[MirrorError], None] | None = None,
    since: datetime | None = None,
) -> Iterator[Release]:
    """Count what comes, and close each tick when it is over, for ever or up to a moment.

    When a tick is over, what the source holds is counted before the tick is closed; an event that is written later
    counts in the next one. Of files, those count before it that had appeared by then, however late the look comes:
    how long the look before it took, which depends on rows, decides nothing. A source that cannot be read stops it,
    before the tick is closed, and a mirror that fails stops it after all that is due was published: the same call
    goes on. Files that cannot be counted stop nothing; ``stream.findings`` has them after each look, and they are
    told when it ends.

    Args:
        until: stop when it has come and its ticks are closed; without a zone it is on the clock's wall. The configured
            ``until``, if there is one, is heeded as well, and so is the horizon.
        poll: seconds between two looks; the end of a tick is never overslept.
        failed: is told of a mirror that fails, and following goes on; without it, the error is raised.
        since: when following began; by default the moment of the call.

    Raises:
        SourceError, SchemaError, SinkError, StateError: as :meth:`Stream.ingest` and :meth:`Stream.release` do.
        FilesLeftOut: at the end, if some files could not be counted.
    """
    clock = stream.config.clock
    begun = now() if since is None else since
    while True:
        moment = now()
        ends = [clock.moment(end) for end in (until, clock.until) if end is not None]
        over = bool(ends) and moment >= clock.waited(min(ends))
        upto = stream.closed + stream.due(until=min(ends) if over else None)
        count = _counting(stream, begun)
        count()
        if stream.closed < upto:
            try:
                yield from released(stream, upto - stream.closed, until=min(ends) if over else None, count=count)
            except MirrorError as error:
                if failed is None:
                    raise
                failed(error)
        if over or stream.closed == clock.horizon:
            tell(stream)
            return
        left = (min([clock.closes(stream.closed), *map(clock.waited, ends)]) - now()).total_seconds()
        rest(min(poll, max(left, 0.0)))


def _counting(stream: Followed, begun: datetime) -> Callable[[], None]:
    """Counts what had appeared when the open tick closes, or when following began; once for each such moment."""
    counted = set[datetime]()

    def count() -> None:
        ended = stream.closed == stream.config.clock.horizon
        closes = begun if ended else stream.config.clock.closes(stream.closed).astimezone(UTC)
        if (before := begun if closes <= begun else closes - _STEP) not in counted:
            counted.add(before)
            stream.ingest(before=before)

    return count
