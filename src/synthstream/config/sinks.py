"""Where releases go, [sink] and [[mirror]]; what portals show of them, [publication]; what is watched, [status]."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, InstanceOf
from typing_extensions import override

from synthstream.config.keys import Name, Place, Section, Service, Texts
from synthstream.config.objects import ObjectPath, place_of, without_keys
from synthstream.config.tablenames import TableName
from synthstream.kinds import Content

# Ends the names of folders of a simulated run.
SIMULATED = "-simulated"

_URL = r"^https?://\S+$"


class SinkConfig(Section):
    """Keys of [sink]: where releases go."""

    kind: Literal["parquet"]
    path: Place
    rows: Literal["total"] | Annotated[int, Field(ge=0)] = "total"
    keep: int | None = Field(default=None, ge=1)


class DeltaMirror(Section):
    """A Delta table that gets a copy of each release.

    Args:
        path: a folder, or an address (``s3://...``).
    """

    kind: Literal["delta"]
    path: Annotated[Name, AfterValidator(without_keys)]
    content: Content = "rows"

    @property
    def folder(self) -> str | None:
        """The folder that it is, also if its address names one (``file://...``); ``None`` elsewhere."""
        if "://" not in self.path:
            return self.path
        address = urlsplit(self.path)
        return unquote(address.path) if address.scheme == "file" else None

    @override
    def within(self, base: Path) -> Self:
        return self if "://" in self.path else self.model_copy(update={"path": str(base / self.path)})


class PostgresMirror(Section):
    """A table of PostgreSQL that gets a copy of each release.

    Args:
        table: its name as SQL writes it.
        service: in the operator's ``pg_service.conf``; left out: the environment (``PGHOST``, ...).
    """

    kind: Literal["postgres"]
    table: Name
    service: Service | None = None
    content: Content = "rows"

    @override
    def within(self, base: Path) -> Self:
        """The same, with the name of the table as SQL prints it."""
        return self.model_copy(update={"table": str(TableName.read(self.table))})


def _objects(path: object) -> object:
    place = place_of(path, str) if isinstance(path, str) else path
    if isinstance(place, str):
        raise ValueError('use an address of an object store, such as s3://open/visits; a folder takes kind = "delta"')
    return place


class FilesMirror(Section):
    """A place in an object store that gets a copy of each release, file by file.

    Args:
        path: an address, such as ``s3://open/visits``.
    """

    kind: Literal["files"]
    path: Annotated[InstanceOf[ObjectPath], BeforeValidator(_objects)]


AnyMirror = DeltaMirror | PostgresMirror | FilesMirror
MirrorConfig = Annotated[AnyMirror, Field(discriminator="kind")]


class StatusConfig(Section):
    """Keys of [status]: what is to be told of the machine. No release depends on them.

    Args:
        free: bytes that ought to be free on the disks of state and releases, as in ``"10 GB"``.
    """

    free: ByteSize | None = None


class PublicationConfig(Section):
    """Keys of [publication]: what portals show beside the releases. None is needed, and no release depends on them.

    Args:
        contact: a mail address or a page.
        licence: of the releases: an SPDX identifier, such as ``CC-BY-4.0``, or a URL.
    """

    title: Name | None = None
    description: str | None = None
    publisher: Name | None = None
    contact: Name | None = None
    homepage: str | None = Field(default=None, pattern=_URL)
    licence: str | None = Field(default=None, pattern=rf"{_URL}|^[A-Za-z0-9][A-Za-z0-9.+-]*$")
    keywords: Texts = ()
