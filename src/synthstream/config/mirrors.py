"""Mirrors, [[mirror]]: what is impossible, because it is another place of the configuration too."""

from __future__ import annotations

import os
from pathlib import Path

from synthstream.config.objects import ObjectPath
from synthstream.config.secrecy import apart
from synthstream.config.sections import File
from synthstream.config.sinks import SIMULATED, AnyMirror, DeltaMirror, FilesMirror, PostgresMirror
from synthstream.config.sources import Files, may_fit
from synthstream.config.tablenames import MANIFEST, TableName, refuse_columns
from synthstream.errors import ConfigError


def check_mirror(file: File, base: Path, mirror: AnyMirror) -> None:
    """Raise ``ConfigError`` if there is nothing to copy, or the place is another one too."""
    if file.sink is None:
        raise ConfigError("mirror: gets copies of what [sink] publishes; name a [sink] too")
    if isinstance(mirror, PostgresMirror):
        _check_table(file, mirror)
    elif isinstance(mirror, FilesMirror):
        _check_objects(file, mirror)
    elif mirror.folder is not None:
        lie_apart(base, file, mirror.folder, rows="rows.parquet")
        place = Path(os.path.normpath(base / mirror.folder))
        others = [other.folder for other in file.mirror if isinstance(other, DeltaMirror) and other is not mirror]
        for other in filter(None, (str(file.sink.path), *others)):
            taken = Path(os.path.normpath(base / other))
            if place.is_relative_to(taken) or taken.is_relative_to(place):
                raise ConfigError(f"path = {mirror.path!r}: {other!r} is another place; neither may lie in the other")


def _check_objects(file: File, mirror: FilesMirror) -> None:
    """Raise if the place is another one too, or holds what is read."""
    place = str(mirror.path)
    if mirror.path.bucket:
        raise ConfigError(f"path = {place!r}: is a bucket whole. Name a folder in it, as in {place}/open")
    others = [other.path for other in file.mirror if isinstance(other, FilesMirror) and other is not mirror]
    if isinstance(file.source, Files) and isinstance(file.source.path, ObjectPath):
        others.append(ObjectPath(str(file.source.path.parent)))
    if any(mirror.path.is_relative_to(other) or other.is_relative_to(mirror.path) for other in others):
        raise ConfigError(f"path = {place!r}: is another place too, or one lies in the other. Name another one")


def _check_table(file: File, mirror: PostgresMirror) -> None:
    """Raise if the table is another one too. Two services may be one database: only names of tables tell them apart."""
    ours = _written(mirror)
    for other in file.mirror:
        if not isinstance(other, PostgresMirror) or other is mirror or other.service != mirror.service:
            continue
        if any(mine.may_be(theirs) for mine in ours for theirs in _written(other)):
            raise ConfigError(
                f"table = {mirror.table!r}: {other.table!r} is another place, and they, or the tables beside them "
                f"({MANIFEST}), may be one table. Name another one, each with its schema"
            )
    source = file.source
    if source is not None and source.kind == "postgres" and source.service == mirror.service:
        try:
            read = TableName.read(source.table, room=0)
        except ConfigError:  # no such name: the source says so when it is read
            read = None
        if read is not None and any(read.may_be(mine) for mine in ours):
            raise ConfigError(
                f"table = {mirror.table!r}: is the table of [source], or may be, or one beside it is. Events are "
                "never overwritten: name another one, each with its schema"
            )
    names = [column.name for column in file.columns]
    if mirror.content == "tables":
        names = [f"{name} from" for name in names] if file.synthesizer.points else []
    refuse_columns(names)


def _written(mirror: PostgresMirror) -> list[TableName]:
    name = TableName.read(mirror.table)
    return [name, name.ending(MANIFEST)]


def lie_apart(base: Path, file: File, place: str | Path, *, rows: str = "000000/rows.parquet") -> None:
    """Raise unless state and place of publication, real and simulated, lie apart, and no source lies in the place, nor
    would count what is published there.

    Args:
        rows: such a file, from the place on.
    """
    for secret in (str(file.state), os.path.normpath(file.state) + SIMULATED):
        for public in (str(place), os.path.normpath(place) + SIMULATED):
            apart(base, secret, public)
    if isinstance(file.source, Files) and not isinstance(file.source.path, ObjectPath):
        read, published = (Path(os.path.normpath(base / path)) for path in (file.source.path, place))
        if read.is_relative_to(published):
            raise ConfigError(
                f"{str(place)!r} is public, and the files of [source], {str(file.source.path)!r}, are private: "
                "they may not lie in it. Name a folder of its own"
            )
        if may_fit(read, published / rows):
            raise ConfigError(
                f"what is published in {str(place)!r} fits the path of [source], {str(file.source.path)!r}, and would "
                "count as events. Name a path that does not reach it"
            )
