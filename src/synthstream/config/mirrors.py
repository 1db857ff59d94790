"""Other places of publication, [[also]]: what is impossible there, and what they are called in a simulated run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from synthstream.config import tablenames
from synthstream.config.outside import AlsoConfig
from synthstream.config.secrecy import apart
from synthstream.config.tablenames import MANIFEST, TableName, refuse_columns
from synthstream.errors import ConfigError

if TYPE_CHECKING:
    from synthstream.config.sections import AlsoSection, File

# Ends the names of folders of a simulated run.
SIMULATED = "-simulated"


def also_of(file: File, base: Path, section: AlsoSection) -> AlsoConfig:
    """A place that gets copies, from its section.

    Raises:
        ConfigError: there is nothing to copy, or the place is another one too.
    """
    section.check()
    if file.sink is None:
        raise ConfigError("also: gets copies of what [sink] publishes; name a [sink] too")
    if section.kind == "postgres":
        return _table(file, section)
    path = section.path or ""
    if "://" in path:
        return AlsoConfig(kind=section.kind, place=path, content=section.content)
    lie_apart(base, file.state, path)
    place = Path(os.path.normpath(base / path))
    folders = [other.path for other in file.also if other is not section and other.path is not None]
    for other in (file.sink.path, *folders):
        taken = Path(os.path.normpath(base / other))
        if place.is_relative_to(taken) or taken.is_relative_to(place):
            raise ConfigError(f"path = {path!r}: {other!r} is another place; neither may lie in the other")
    return AlsoConfig(kind=section.kind, place=str(base / path), content=section.content)


def _table(file: File, section: AlsoSection) -> AlsoConfig:
    """A table of PostgreSQL. Two services may be one database, so only the names of tables tell them apart."""
    name = TableName.read(section.table or "", room=len(tablenames.SIMULATED + MANIFEST))
    others = [other for other in file.also if other.kind == "postgres" and other is not section]
    for other in others:
        if other.service == section.service and _meet(name, TableName.read(other.table or "")):
            raise ConfigError(
                f"table = {section.table!r}: {other.table!r} is another place, and they, or the tables beside them "
                f"({MANIFEST}, {tablenames.SIMULATED}), may be one table. Name another one, each with its schema"
            )
    source = file.source
    if source is not None and source.kind == "postgres" and source.service == section.service:
        try:
            read = TableName.read(source.table or "", room=0)
        except ConfigError:  # no such name: the source says so when it is read
            read = None
        if read is not None and any(read.may_be(mine) for mine in _all(name)):
            raise ConfigError(
                f"table = {section.table!r}: is the table of [source], or may be, or one beside it is. Events are "
                "never overwritten: name another one, each with its schema"
            )
    names = [column.name for column in file.columns]
    if section.content == "tables":
        names = [f"{name} from" for name in names] if file.synthesizer.points else []
    refuse_columns(names)
    return AlsoConfig(kind=section.kind, place=str(name), content=section.content, service=section.service)


def _all(name: TableName) -> list[TableName]:
    """All tables that are written, in real and in simulated runs."""
    return [name.ending(simulated + beside) for simulated in ("", tablenames.SIMULATED) for beside in ("", MANIFEST)]


def _meet(one: TableName, other: TableName) -> bool:
    return any(mine.may_be(theirs) for mine in _all(one) for theirs in _all(other))


def lie_apart(base: Path, state: str, place: str) -> None:
    """Raise unless the state and a place of publication, both real and simulated, lie apart."""
    for secret in (state, os.path.normpath(state) + SIMULATED):
        for public in (place, os.path.normpath(place) + SIMULATED):
            apart(base, secret, public)


def aside(also: AlsoConfig) -> AlsoConfig:
    """The place that a simulated run has in the place of this one."""
    if also.kind == "postgres":
        return replace(also, place=str(TableName.read(also.place).ending(tablenames.SIMULATED)))
    return replace(also, place=also.place.rstrip("/") + SIMULATED)
