"""Other places of publication: copies of what the sink has published, in order, each release once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import polars as pl

from synthstream.errors import PlaceError, SinkError
from synthstream.io.sinks import ParquetSink
from synthstream.kinds import Content


class Copied(NamedTuple):
    """The newest release that a place holds."""

    tick: int
    head: str


class Place(Protocol):
    """A place that gets copies of releases."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def content(self) -> Content:
        """What it gets."""

    @property
    def history(self) -> bool:
        """Whether it keeps older releases. Without, it only needs the newest."""

    def newest(self) -> Copied | None:
        """What it holds. Raises ``SinkError`` if it holds something else, or cannot be read."""

    def put(self, frame: pl.DataFrame, *, tick: int, manifest: dict[str, Any]) -> None:
        """Take a release whole, or not at all; do nothing if it, or a newer one, is there. Raises ``SinkError``."""


def catch_up(sink: ParquetSink, place: Place) -> int:
    """Copy every release that a place does not hold yet, from what the sink has published.

    A place that keeps no history gets the newest one, if it does not hold it. A release whose rows the sink has dropped
    (``keep``) is left out where rows are wanted.

    Args:
        sink: what is published.
        place: what gets copies.

    Returns:
        Number of releases that were copied.

    Raises:
        SinkError: the place holds releases of another stream or state, or cannot be read or written.
    """
    last, known = sink.last(), place.newest()
    if known is not None and (last is None or known.tick > last.tick or _head(sink.manifest(known.tick)) != known.head):
        raise SinkError(
            f"{place.name} holds a release of tick {known.tick} that {sink.folder} does not: another state or stream "
            "writes there, or releases are missing here. Nothing was copied. Restore them, or copy to another place."
        )
    first, end = 0 if known is None else known.tick + 1, 0 if last is None else last.tick + 1
    copied = 0
    for tick in range(first if place.history else max(first, end - 1), end):
        frame = sink.content(tick, place.content)
        if frame is not None:
            place.put(frame, tick=tick, manifest=sink.manifest(tick))
            copied += 1
    return copied


def copy_all(sink: ParquetSink, places: Sequence[Place]) -> int:
    """As :func:`catch_up`, for every place, also if one before it fails.

    Raises:
        PlaceError: what the first one that failed said.
    """
    copied, failed = 0, list[SinkError]()
    for place in places:
        try:
            copied += catch_up(sink, place)
        except SinkError as error:
            failed.append(error)
    if failed:
        raise PlaceError(str(failed[0])) from failed[0]
    return copied


def _head(manifest: dict[str, Any]) -> str:
    return str(manifest["chain"]["head"])


def manifest_text(manifest: dict[str, Any]) -> str:
    """A manifest as text, always the same."""
    return json.dumps(manifest, sort_keys=True)
