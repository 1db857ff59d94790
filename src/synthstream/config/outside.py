"""What of a configuration lies outside of the stream: where events come from, where releases go, what portals show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from synthstream.kinds import Content
from synthstream.kinds import FileKind as SourceKind


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """Files to count.

    Args:
        path: a file or a pattern; absolute.
        root: the folder that names of files start from, if the path was configured relative to it: that of
            ``stream.toml``. ``None``: names are absolute.
        moved: the folder of the files, or the one file, as the state knows it from before it was moved.
        multiline: of CSV files: whether a cell in quotation marks may hold line ends.
    """

    kind: SourceKind
    path: Path
    root: Path | None
    moved: str | None = None
    multiline: bool = False


@dataclass(frozen=True, kw_only=True)
class SinkConfig:
    """Where releases go."""

    path: Path
    rows: Literal["total"] | int = "total"
    keep: int | None = None


@dataclass(frozen=True, kw_only=True)
class AlsoConfig:
    """Another place that gets a copy of each release.

    Args:
        place: a folder, absolute; or an address (``s3://...``); or a table, as SQL writes it.
        service: of a table: in the operator's ``pg_service.conf``; left out: the environment (``PGHOST``, ...).
    """

    kind: Literal["delta", "postgres"]
    place: str
    content: Content = "rows"
    service: str | None = None


@dataclass(frozen=True, kw_only=True)
class PublicationConfig:
    """What portals show beside the releases. May change at any time: no release depends on it.

    Args:
        contact: a mail address or a page.
        licence: of the releases: an SPDX identifier, such as ``CC-BY-4.0``, or a URL.
    """

    title: str | None = None
    description: str | None = None
    publisher: str | None = None
    contact: str | None = None
    homepage: str | None = None
    licence: str | None = None
    keywords: tuple[str, ...] = ()
