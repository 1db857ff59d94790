"""Sources that are read from where one stopped: logs that only ever grow, such as a table of inserts or a topic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Protocol

import polars as pl

from synthstream.errors import SourceError


class CursorSource(Protocol):
    """A log. Where one stopped is a cursor: bytes that are as secret as the rows, for they tell how many there are.

    A cursor belongs into the same transaction as the counts of the rows before it. Then each row counts exactly once,
    whenever the process ends.
    """

    name: str  # public: what it is called in messages
    waits: bool  # whether the last look stopped before the log's end, because somebody who writes had not ended yet

    def look(self) -> None:
        """Raise as :meth:`read` does, if the log cannot be read now. Reads no row."""

    def read(self, after: bytes | None) -> Iterator[tuple[pl.DataFrame, bytes]]:
        """Rows after a cursor, up to where the log ends now, in frames of bounded size, each with the cursor after it.

        Args:
            after: a cursor of this log; ``None`` reads from its beginning.

        Raises:
            SourceError: the log cannot be reached, or the cursor is of another log. No message depends on a row.
            SchemaError: the log lacks a column, by its catalogue.
        """

    def close(self) -> None:
        """Let go of connections."""


def cursor_of(origin: str, place: Any) -> bytes:
    """A cursor.

    Args:
        origin: of which log; another one can never have the same.
        place: where in it, as JSON.
    """
    return json.dumps({"origin": origin, "place": place}, sort_keys=True).encode()


def place_in(after: bytes | None, origin: str, *, name: str, moved: str | None = None, movable: str = "") -> Any:
    """The place that a cursor tells; ``None`` without a cursor.

    Args:
        origin: of the log that is to be read.
        name: of that log, for messages.
        moved: the :func:`short` name of another origin, whose places are those of this log too.
        movable: what such a log is moved with; empty if it cannot be moved.

    Raises:
        SourceError: it is a cursor of another log.
    """
    if after is None:
        return None
    found = json.loads(after)
    if found["origin"] == origin or short(found["origin"]) == moved:
        return found["place"]
    old = short(found["origin"])
    move = f' If it is the same one, moved with {movable}, say moved = "{old}" in [source].' if movable else ""
    raise SourceError(
        f"{name}: the checkpoint of this stream is from another log ({old}) than this one "
        f"({short(origin)}): another server, or it was dropped and made again. Nothing was counted. Point [source] "
        f"back to the one that was read before.{move} For other events, open another stream, with a name, state "
        "and sink of its own."
    )


def origin_of(cursor: bytes) -> str:
    """Of which log a cursor is."""
    return str(json.loads(cursor)["origin"])


def short(origin: str) -> str:
    """An origin, short enough to be typed; it tells nothing of the server.

    Example:
        >>> short("postgres 7/8/9")
        '831e5561bfbf'
    """
    return hashlib.sha256(origin.encode()).hexdigest()[:12]
