"""By which name the state knows each file of the source, and whether files that it knows were moved.

A file is known by its path as it is configured: relative to the folder of ``stream.toml`` or absolute, links not
followed. Whether files were moved is judged by names and their absence alone: no row has a part in it.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from synthstream.config.sources import Files
from synthstream.errors import SourceError
from synthstream.state.store import Store

_ITEM = "file "
# In place of a fingerprint: the operator has said that the file is never to be looked at again.
RETIRED = "retired"
# In the state: hashes of the names that were new, or gone, when the operator said that files hold new events.
_ANSWERED = "new files"
# A setting of the state: whether the source was files or a log when it was last read.
_SOURCE = "source"
_UP = ".."
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def item_of(name: str) -> str:
    """What the state calls a file of this name. One that is not UTF-8 never counts, but may be asked for."""
    return _ITEM + name.encode(errors="backslashreplace").decode()


def counted(store: Store) -> set[str]:
    """Names of all files that were counted."""
    return {item[len(_ITEM) :] for item in store.items(_ITEM)}


def settle_kind(store: Store, kind: Literal["files", "log"], name: str, *, late: bool, new_files: bool) -> None:
    """Stop to ask the operator if a source of the other kind was counted, whose events this one may hold again.

    Args:
        name: of the source, in messages.
        late: ticks were closed in this segment: so what counted in them came from elsewhere, if no source was read yet.
        new_files: do not ask: it holds new events.

    Raises:
        SourceError: it must be asked. What decides is names of files, kinds of sources, and ticks, not rows.
    """
    last = store.meta(_SOURCE)
    if last == kind:
        return
    files = kind == "log" and (last is not None or bool(counted(store)))
    if not new_files and (last is not None or late or files):
        other = "files" if files else "a table or topic" if last else "elsewhere, or none at all,"
        raise SourceError(
            f"{name}: this stream has counted events from {other} until now. Those that are here, too, would count "
            "twice, and be protected half as well. If all events here are new ones, say `synthstream run --new-files`. "
            "Nothing was counted, and no tick was closed."
        )
    with store.transaction("names"):
        store.put_meta(_SOURCE, kind)


@dataclass(frozen=True, kw_only=True)
class FileNames:
    """Names of the files of a source.

    Args:
        source: says where files are, and what they were called before they were moved.
        base: the folder of ``stream.toml``; absolute.
    """

    source: Files
    base: Path

    def of(self, path: Path) -> str:
        """The name of a file, or of a folder."""
        root = self.source.root
        return os.path.normpath(path if root is None else path.relative_to(root))

    def formerly(self, path: Path) -> list[str]:
        """What else the same file may be called in a state: with links followed, as was done once; or as it would be
        if the configured path were absolute in place of relative, or the other way.
        """
        real, root, absolute = Path(os.path.realpath(path)), self.base.resolve(), os.path.normpath(path)
        followed = str(real.relative_to(root)) if real.is_relative_to(root) else str(real)
        return [followed, absolute, os.path.relpath(absolute, self.base)]

    @cached_property
    def place(self) -> str:
        """The name of the folder that the configured path, or pattern, begins with."""
        parts = Path(self.of(self.source.path)).parts
        fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
        return str(Path(*parts[:fixed]))

    @cached_property
    def places(self) -> set[str]:
        """That name, and what else the folder may be called in a state."""
        return {self.place, *self.formerly((self.source.root or Path()) / self.place)}

    def settle(self, store: Store, files: Sequence[Path], *, new_files: bool) -> dict[Path, str]:
        """The files that count, with their names; the state is told the names of what it knew by others.

        Of several links to one file, and the file, one counts.

        Args:
            store: knows names of files that were counted, some of which may be gone.
            new_files: do not ask whether files were moved: those that are not known are new.

        Raises:
            SourceError: it must be asked. Nothing was changed.
        """
        names = {path: self.of(path) for path in files}
        there = set(names.values())
        before = counted(store)
        renamed = self.renamed(names, before)
        known = before - renamed.keys() | set(renamed.values())
        ours = one_of_each(names, known)
        retired = {name for name in known - there if store.ingested(item_of(name)) == RETIRED}
        gone, answered = known - there - retired, set(json.loads(store.meta(_ANSWERED) or "[]"))
        # Such a name could not be kept in the state, or would write what its maker likes into messages and logs.
        if odd := sorted(filter(_UNPRINTABLE.search, set(ours.values()) - known)):
            raise SourceError(
                f"{odd[0]!a}: the name of this file holds characters that cannot be printed, or is not UTF-8. Rename "
                "it. Nothing was counted, and no tick was closed."
            )
        new = {one for one in set(ours.values()) - known if _hash(one) not in answered}
        asked = self._asked(new, known, gone, elsewhere={one for one in gone if _hash(one) not in answered})
        if asked is not None and not new_files:
            raise SourceError(asked)
        if renamed or asked is not None:
            with store.transaction("names"):
                for old, name in renamed.items():
                    store.rename_ingested(item_of(old), item_of(name))
                if asked is not None:
                    store.put_meta(_ANSWERED, json.dumps(sorted(answered.union(map(_hash, gone | new)))))
        return ours

    def renamed(self, names: Mapping[Path, str], before: Set[str]) -> dict[str, str]:
        """Names in the state of files that have others now, and these."""
        found = dict(self._known_otherwise(names, before))
        return found | self.moved(before - set(names.values()) - found.keys(), before | set(found.values()))

    def _known_otherwise(self, names: Mapping[Path, str], before: Set[str]) -> Iterator[tuple[str, str]]:
        """Names in the state of files that are there, and how these are called now."""
        there = set(names.values())
        left = set(before) - there
        for path, name in names.items():
            found = None if name in before else next((old for old in self.formerly(path) if old in left), None)
            if found is not None:
                left.remove(found)
                yield found, name

    def moved(self, gone: Iterable[str], taken: Set[str]) -> dict[str, str]:
        """New names for those in a state that lie where the files were before the operator moved them.

        What lies in the configured folder already is there, though that may lie in the old one.
        """
        old, renamed = self.source.moved, dict[str, str]()
        if old is None:
            return renamed
        inside = _below(self.place, old) is not None
        for name in sorted(gone):
            rest = _below(name, old)
            if name == old and not glob.has_magic(self.of(self.source.path)):
                new = self.of(self.source.path)
            elif rest is not None and not (inside and _below(name, self.place) is not None):
                new = os.path.normpath(os.path.join(self.place, rest))
            else:
                continue
            if new not in taken:
                renamed[name] = new
        return renamed

    def _asked(self, new: Set[str], known: Set[str], gone: Set[str], *, elsewhere: Set[str]) -> str | None:
        """What to ask the operator, if files that were counted may have come again in another place.

        They may if new ones have the same path below the configured folder as ones that are gone, wherever those were;
        or if none that was counted, of whatever name, was in that folder, and some went elsewhere that were not gone
        when it was answered; or if the source is one file, and another one was counted. An answer covers the new names
        of then, and no file that comes later as one that is gone.
        """
        if not new or not gone:
            return None
        found, alone = self._same(new, gone), new == {self.of(self.source.path)}
        if found is None and not alone and (not elsewhere or any(map(self._here, known))):
            return None
        here, there, old = found or (min(new), min(gone), os.path.dirname(min(gone)) or os.curdir)
        how, what = "under the same names" if found else "in another folder", "their folder was"
        if found is None and any(map(self._here, known)):
            how, what, old = "under another name", "it was", there
        said = self.source.moved
        return (
            f"{len(gone)} file(s) that were counted are gone, such as {there}, and {len(new)} that were not are there, "
            f"{how}, such as {here}."
            + ("" if said is None else f' moved = "{said}" does not say what these were called.')
            + f' If they were moved, say what {what} called, in [source]: moved = "{old}". If they hold new '
            "events, say `synthstream run --new-files`. Nothing was counted, and no tick was closed."
        )

    def _here(self, name: str) -> bool:
        """Whether a name in the state lies in the configured folder."""
        return any(_below(name, place) is not None for place in self.places)

    def _same(self, new: Set[str], gone: Set[str]) -> tuple[str, str, str] | None:
        """A new name and one that is gone with the same path below their folders, and the latter's folder."""
        below = {rest: name for name in sorted(new, reverse=True) if (rest := _below(name, self.place))}
        for name in sorted(gone):
            for end in _ends(name):
                if end in below:
                    folder = name.removesuffix(end)
                    return below[end], name, folder.rstrip(os.sep) or folder or os.curdir
        ends = {end: name for name in sorted(new, reverse=True) for end in _ends(name)}
        for name in sorted(gone):
            for place in self.places:
                if (rest := _below(name, place)) in ends:
                    return ends[rest], name, place
        return None


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()


def one_of_each(names: Mapping[Path, str], known: Set[str]) -> dict[Path, str]:
    """Of the paths that lead to one file the one that is known, or else no link."""
    best: dict[str, tuple[bool, bool, str]] = {}
    for path, name in names.items():
        real, rank = os.path.realpath(path), (name not in known, os.path.islink(path), name)
        best[real] = min(rank, best.get(real, rank))
    chosen = {name for _, _, name in best.values()}
    return {path: name for path, name in names.items() if name in chosen}


def _below(name: str, place: str) -> str | None:
    """What follows after a folder in a name that lies in it."""
    start = "" if place == os.curdir else place.rstrip(os.sep) + os.sep
    rest = name[len(start) :]
    outside = not name.startswith(start) or rest.startswith(os.sep) or rest.split(os.sep)[0] == _UP
    return None if outside else rest


def _ends(name: str) -> Iterator[str]:
    """The last part of a name, the last two, and so on."""
    parts = [part for part in name.split(os.sep) if part]
    return (os.sep.join(parts[i:]) for i in range(len(parts) - 1, -1, -1))
