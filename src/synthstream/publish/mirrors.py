"""Mirrors, other places of publication: copies of what the sink has published, in order, each release once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import polars as pl

from synthstream.errors import SinkError, StateRolledBack
from synthstream.kinds import Content
from synthstream.publish.folder import ParquetSink


class Copied(NamedTuple):
    """The newest release that a mirror holds. No head: the mirror no longer tells it."""

    tick: int
    head: str | None


class Mirror(Protocol):
    """A place that gets copies of releases."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def history(self) -> bool:
        """Whether it keeps older releases. Without, it only needs the newest."""

    def newest(self) -> Copied | None:
        """What it holds. Raises ``SinkError`` if it holds something else, or cannot be read."""

    def copy(self, sink: ParquetSink, tick: int) -> bool:
        """Take a release of a sink whole, or not at all; do nothing if it, or a newer one, is there.

        Returns:
            Whether it was taken; ``False`` if the sink no longer has what the mirror wants of it.

        Raises:
            SinkError: it cannot be read there, or written here.
        """


class OfFrames:
    """A mirror that takes rows or tables of a release, as one frame."""

    _content: Content

    def put(self, frame: pl.DataFrame, *, tick: int, manifest: dict[str, Any]) -> None:
        """Take a release whole, or not at all; do nothing if it, or a newer one, is there. Raises ``SinkError``."""
        raise NotImplementedError

    def copy(self, sink: ParquetSink, tick: int) -> bool:
        """See :meth:`Mirror.copy`."""
        frame = sink.content(tick, self._content)
        if frame is not None:
            self.put(frame, tick=tick, manifest=sink.manifest(tick))
        return frame is not None


# Chain heads by tick, of what a state or a sink has; ``None`` where it has nothing.
Heads = Callable[[int], str | None]


def refuse_fork(mirror: Mirror, known: Copied | None, heads: Heads) -> None:
    """Raise unless the newest release that a mirror holds is of a chain.

    Raises:
        StateRolledBack: it is not, whoever made it.
        SinkError: the mirror does not tell.
    """
    if known is None:
        return
    own = heads(known.tick)
    if own is None or known.head not in (own, None):
        raise StateRolledBack(
            f"{mirror.name} holds a release of tick {known.tick} that is not known here: state and releases are lost "
            "or old copies, or another copy of them goes on elsewhere. Drawing that tick here spends the budget "
            "twice for its events. Use the newest state and releases. If they are lost, this stream ends; a successor "
            "with another 'name', 'state' and sink has a budget of its own. To copy to another mirror, or to none, "
            "undoes nothing: it only hides that the budget is spent twice. Nothing was copied there, and no more noise "
            "was drawn."
        )
    if known.head is None:
        raise SinkError(
            f"{mirror.name}: its history no longer tells which release of tick {known.tick} it holds. Copy to another "
            "mirror, once you know that no other copy of this state has run: otherwise the budget was spent twice."
        )


def refuse_emptied(mirror: Mirror, known: Copied | None) -> None:
    """Raise ``SinkError`` if a mirror that has held the stream holds nothing: what it could testify is elsewhere."""
    if known is None:
        raise SinkError(
            f"{mirror.name} holds nothing, although this stream was copied to it. Bring it back: is its disk mounted, "
            "and is it the right server? If it was emptied or dropped on purpose, say --unchecked: it is made anew."
        )


def catch_up(sink: ParquetSink, mirror: Mirror, *, held: bool = False) -> int:
    """Copy every release that a mirror does not hold yet, from what the sink has published; returns their number.

    A mirror without history gets the newest one, if it does not hold it. A release whose rows the sink has dropped
    (``keep``) is left out where rows are wanted.

    Args:
        held: it has held the stream, and must not be made anew.

    Raises:
        SinkError: the mirror holds something else, or cannot be read or written.
        StateRolledBack: it holds releases of another state.
    """
    last, known = sink.last(), mirror.newest()
    if held:
        refuse_emptied(mirror, known)
    refuse_fork(mirror, known, sink.head)
    first, end = 0 if known is None else known.tick + 1, 0 if last is None else last.tick + 1
    return sum(mirror.copy(sink, tick) for tick in range(first if mirror.history else max(first, end - 1), end))
