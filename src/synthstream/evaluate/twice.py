"""PRIVATE. Files of a source that may count twice: the same bytes under two names. For the custodian's eyes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from synthstream.config.config import StreamConfig
from synthstream.config.objects import ObjectPath
from synthstream.ingest.counting import files_of
from synthstream.ingest.filenames import RETIRED, FileNames, counted, item_of
from synthstream.ingest.files import FileSource
from synthstream.state.looking import to_look_at


class Files(NamedTuple):
    """Files of a source, by what a state knows of their names.

    Args:
        new: not counted.
        known: counted.
        gone: names of those that were counted and are not there, but for retired ones.
    """

    new: list[Path]
    known: list[Path]
    gone: list[str]


def files_in(config: StreamConfig, source: FileSource) -> Files:
    """The files of the configured source."""
    files, own, store = source.files(), config.source, to_look_at(config.state)
    if store is None or own is None:
        return Files(files, [], [])
    names = FileNames(source=own, base=config.base)
    called = {path: {names.of(path), *names.formerly(path)} for path in files}
    with closing(store):
        were, there = counted(store), set[str]().union(*called.values())
        moved = names.moved(were - there, were)
        gone = {name for name in were - there if moved.get(name) not in there}
        gone = {name for name in gone if store.ingested(item_of(name)) != RETIRED}
    were.update(moved.values())
    new = [path for path in files if were.isdisjoint(called[path])]
    return Files(new, [path for path in files if path not in {*new}], sorted(gone))


def twice(config: StreamConfig, full: Sequence[Path], files: Files) -> Iterator[str]:
    """What to say of new files that may be others under a second name.

    Args:
        full: new ones that have rows.
    """
    source = files_of(config)
    if source is None:
        return
    sizes: dict[int, list[Path]] = {}
    for path in (*files.known, *full):
        if not isinstance(path, ObjectPath):
            sizes.setdefault(path.stat().st_size, []).append(path)
    for alike in sizes.values():
        first: dict[str, Path] = {}
        for path in alike if len(alike) > 1 else ():
            other = first.setdefault(source.fingerprint(path), path)
            if other != path and path in full:
                yield f"{path} has the same bytes as {other}: its rows would count twice."
    if files.gone and full:
        yield (
            f"{len(files.gone):,} file(s) that were counted are gone, such as {files.gone[0]}. One that was renamed is "
            "new, and counts twice: give it its name back; or, if the folder was moved, say in [source] what it was "
            f'called: moved = "{os.path.dirname(files.gone[0]) or os.curdir}". Of one that was deleted, say '
            "`synthstream source retire`."
        )
