"""Where releases go. Publishing is idempotent, and a reader never sees half a release."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from synthstream.config.objects import ObjectPath
from synthstream.config.settings import SETTINGS
from synthstream.config.sinks import SIMULATED
from synthstream.environment import REAL, Env, make_folder, sync, sync_parent, words, write_new
from synthstream.errors import SinkError
from synthstream.measured import NOT_PRIVATE, Committed
from synthstream.release.release import Release

# What a release is made of, beside its manifest.
FILES = ("rows.parquet", "tables.parquet", "measured.parquet")

# What streams of tables add to it.
SERIES = "series.parquet"

# What tells portals and readers of the releases, beside them, and is no part of any: ``publish.catalogue``.
DESCRIPTIONS = ("datapackage.json", "croissant.json", "deployment.yaml", SETTINGS, "README.md")
# What a site lays beside the files of a release: copies of what is in them, which no hash of the manifest covers.
CELLS = "cells.js"
COPIES = (CELLS, "rows.csv", "series.csv", "tables.csv")
# Of a site: the folder that holds the newest release again, at an address that stays.
LATEST = "latest"

_BACK = "Where its state is, move this away and say `synthstream recover stream.toml --republish`: it is made again."


class Newest(NamedTuple):
    """The newest release that a sink holds; ``name``: of its stream, if the sink knows it."""

    tick: int
    head: str
    manifest: str
    name: str | None = None


class ParquetSink:
    """A folder with one folder per release.

    It holds ``rows.parquet``, ``tables.parquet``, ``measured.parquet`` (what passed the gate, for machines),
    ``series.parquet`` (the numbers of its tick, of new streams of tables) and ``manifest.json``.

    A release is written aside, synced, and renamed into place. A file that is there is never written again.

    Args:
        folder: created if it does not exist.
        rows: ``"total"`` publishes as many rows as the noisy total; a number publishes that many.
        keep: how many releases keep their rows; older ones keep tables and manifest. ``None`` keeps all.
    """

    def __init__(self, folder: Path, *, rows: str | int = "total", keep: int | None = None, env: Env = REAL) -> None:
        self.folder, self._env = folder, env
        self._rows = None if rows == "total" else int(rows)
        self._keep = keep

    def place(self, tick: int) -> Path:
        """The folder of a tick's release."""
        return self.folder / f"{tick:06d}"

    def where(self, tick: int | None = None) -> str:
        """What to call the folder of a tick's release, or that of all, in messages."""
        return str(self.folder if tick is None else self.place(tick))

    @property
    def empty(self) -> str:
        """What to say if there is no release."""
        if self.folder.name.endswith(SIMULATED):
            return (
                f"{self.where()} holds no release yet. `synthstream run --simulate` makes them, beside the true ones."
            )
        return (
            f"{self.where()} holds no release yet. `synthstream run` makes them; if there were some, "
            "`synthstream recover stream.toml --republish` makes them again."
        )

    def ticks(self) -> list[int]:
        """Numbers of the releases that are there, rising. In an object store a release has its manifest."""
        if isinstance(self.folder, ObjectPath):
            try:
                places = [path.parent.name for path in self.folder.glob("*/manifest.json")]
            except OSError as error:
                raise SinkError(f"{self.folder}: {error.strerror}.") from None
            return sorted(int(name) for name in places if name.isdecimal())
        return sorted(int(p.name) for p in self.folder.glob("[0-9]*") if p.name.isdecimal() and p.is_dir())

    def last(self) -> Newest | None:
        """The newest release it holds."""
        ticks = self.ticks()
        return self._newest(ticks[-1]) if ticks else None

    def _newest(self, tick: int) -> Newest:
        manifest = self.manifest(tick)
        name = None if "name" not in manifest else str(manifest["name"])
        return Newest(int(manifest["tick"]), str(manifest["chain"]["head"]), self.fingerprint(tick), name)

    def manifest(self, tick: int) -> dict[str, Any]:
        """The manifest of a tick's release. Raises ``SinkError`` if there is none."""
        path = self.place(tick) / "manifest.json"
        try:
            manifest = json.loads(path.read_bytes())
            int(manifest["tick"]), str(manifest["chain"]["head"]), tuple(manifest.get("unchecked", ()))
            return dict(manifest)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"{path} cannot be read as a Synthstream manifest. {_BACK} If the folder is another program's, publish "
                "to an empty one."
            ) from error

    def fingerprint(self, tick: int) -> str:
        """SHA-256 of the manifest of a tick's release, hexadecimal; through it, of all its files."""
        return hashlib.sha256((self.place(tick) / "manifest.json").read_bytes()).hexdigest()

    def measured(self, tick: int) -> Committed | None:
        """What was measured at a tick, as published; ``None`` if it cannot be read."""
        try:
            measured = pl.read_parquet((self.place(tick) / "measured.parquet").read_bytes())
            return as_published(tick, measured, self.manifest(tick))
        except (OSError, SinkError, pl.exceptions.PolarsError):
            return None

    def head(self, tick: int) -> str | None:
        """The chain head after a tick, as published; ``None`` if there is no such release."""
        return str(self.manifest(tick)["chain"]["head"]) if self.place(tick).is_dir() else None

    def segments(self, tick: int) -> list[int]:
        """First ticks of segments after the first, up to a tick."""
        return [int(start) for start in self.manifest(tick).get("segments", [])]

    @property
    def of_site(self) -> bool:
        """Whether these are the releases of a site that ``publish`` wrote."""
        return (self.folder.parent / LATEST / SETTINGS).is_file()

    def strangers(self) -> list[str]:
        """Names in the folder that are no releases and describe none, but for those that are being written."""
        if not self.folder.is_dir():
            return []
        written = (".writing-", *(f".{name}-" for name in DESCRIPTIONS))
        names = sorted(path.name for path in self.folder.iterdir() if not path.name.startswith(written))
        names = [name for name in names if name not in DESCRIPTIONS]
        return [name for name in names if not (name.isdecimal() and self.place(int(name)).name == name)]

    def clear(self) -> None:
        """Remove what was left unfinished: another state may draw its ticks. Raises ``SinkError`` if that fails."""
        try:
            for aside in self.folder.glob(".writing-*"):
                self._env.do("clear aside", partial(shutil.rmtree, aside))
        except OSError as error:
            raise SinkError(f"sink {self.folder}: {words(error)}. Remove {aside.name} there, and try again.") from error

    def publish(self, release: Release, *, key: bytes | None = None, newest: int = 0) -> str:
        """Publish a release, or do nothing if the very same one is there. Raises ``SinkError`` if another is.

        Args:
            key: of the state, secret: makes the name of what is unfinished; left out: a random one.
            newest: tick of the newest release that there ever was, if this one is made again: its rows may be too old.

        Returns:
            SHA-256 of the manifest, hexadecimal.
        """
        final, do = self.place(release.tick), self._env.do
        try:
            if not final.exists():
                dropped = self._keep is not None and release.tick <= newest - self._keep
                self._put(final, release, _aside(release, key), dropped=dropped)
            elif self._newest(release.tick).head != release.head:
                raise SinkError(
                    f"{final} holds another release of this tick. Two states publish to one folder, or one is an old "
                    "copy. Nothing was changed; use the state that published it, or another folder."
                )
            # Also of a release that was there: the process that put it there may have ended before it came to this.
            do("sync sink", partial(sync, self.folder))
            if self._keep is not None:
                old = self.place(release.tick - self._keep) / "rows.parquet"
                do("drop old rows", partial(old.unlink, missing_ok=True))
            return self._newest(release.tick).manifest
        except OSError as error:
            raise SinkError(
                f"sink {self.folder}: {words(error)}. The release is committed and will be published, unchanged, "
                "when you run again."
            ) from error

    def _put(self, final: Path, release: Release, name: str, *, dropped: bool) -> None:
        aside, write = self.folder / name, partial(self._write, release=release, dropped=dropped)
        # Who knows the seed of simulated noise, or guesses it, takes it away: nobody but the owner may read that.
        mode = 0o777 if release.secure else 0o700
        write_aside(aside, write, self._env, mode=mode)
        self._env.do("rename release", partial(aside.rename, final))

    def files(self, tick: int) -> dict[str, bytes]:
        """All files of a tick's release, as they were published; rows only if they were not dropped. Manifest last.

        Raises:
            SinkError: one is not there, or is not what was published; or the manifest names another file. Whoever
                copies them writes where the name says, and the manifest may be a stranger's.
        """
        files = self.manifest(tick)["files"]
        if others := sorted({*files} - {*FILES, SERIES}):
            raise SinkError(
                f"{self.place(tick)}: its manifest names {others[0]!r}, which is no file of a release. {_BACK}"
            )
        known = [name for name in files if name != "rows.parquet" or (self.place(tick) / name).exists()]
        found = {name: self._published(tick, name) for name in known}
        return found | {"manifest.json": (self.place(tick) / "manifest.json").read_bytes()}

    def read(self, tick: int, name: str, *, columns: list[str] | None = None) -> pl.DataFrame:
        """One of the files of a tick's release, if it is what was published.

        Args:
            columns: which of them; left out: all.

        Raises:
            SinkError: it cannot be read, or is something else, or the release no longer has its rows.
        """
        path = self.place(tick) / name
        if name == "rows.parquet" and path.parent.is_dir() and not path.exists():
            raise SinkError(f"The rows of tick {tick} were dropped ('keep' in [sink]); its tables are still there.")
        try:
            return pl.read_parquet(self._published(tick, name), columns=columns)
        except pl.exceptions.PolarsError as error:
            raise SinkError(f"{path} cannot be read by this version of Synthstream. {_BACK}") from error

    def _published(self, tick: int, name: str) -> bytes:
        """Content of a file of a release, if it is what was published. Raises ``SinkError`` as :meth:`read` does."""
        path = self.place(tick) / name
        try:
            content = path.read_bytes()
            known = json.loads((path.parent / "manifest.json").read_text())["files"][path.name]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SinkError(f"{path.parent} cannot be read as a release. {_BACK}") from error
        if hashlib.sha256(content).hexdigest() != known:
            raise SinkError(f"{path} is not what was published: its hash differs from the manifest's. {_BACK}")
        return content

    def _write(self, folder: Path, *, release: Release, dropped: bool) -> None:
        """``dropped``: without its rows, so that nobody sees them even if the process ends before it is through."""
        hashes: dict[str, str] = {}
        measured = pl.DataFrame({"released": release.released})
        rows = release.published if self._rows is None else release.rows(self._rows)
        frames = {"rows": rows, "tables": release.tables, "measured": measured}
        for name, frame in (frames | ({} if release.counted is None else {"series": release.series})).items():
            path = folder / f"{name}.parquet"
            self._env.do(f"write {name}", partial(write_parquet, path, frame, None if release.secure else NOT_PRIVATE))
            hashes[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        manifest: dict[str, Any] = {**release.manifest(), "files": hashes}
        path = folder / "manifest.json"
        self._env.do("write manifest", partial(path.write_text, json.dumps(manifest, indent=2) + "\n"))
        for name in (*hashes, path.name):
            self._env.do(f"sync {name}", partial(sync, folder / name))
        if dropped:
            self._env.do("drop old rows", (folder / "rows.parquet").unlink)


class Anchor:
    """A small file beside the state of a stream without a sink: enough to notice an old copy of the state. What it does
    is done as by :class:`ParquetSink`.

    Args:
        path: outside the state folder.
    """

    def __init__(self, path: Path, *, env: Env = REAL) -> None:
        self.path, self._env = path, env

    def last(self) -> Newest | None:
        try:
            content = self.path.read_bytes()
            found = json.loads(content)
            return Newest(int(found["tick"]), str(found["head"]), hashlib.sha256(content).hexdigest())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SinkError(f"{self.path} is not a Synthstream anchor file. Restore it.") from error

    def clear(self) -> None:
        try:
            if self._writing.exists():
                self._env.do("clear aside", self._writing.unlink)
        except OSError as error:
            raise SinkError(f"anchor {self._writing}: {words(error)}. Remove it, and try again.") from error

    @property
    def _writing(self) -> Path:
        return self.path.with_suffix(".writing")

    def publish(self, release: Release, *, key: bytes | None = None) -> str:  # noqa: ARG002
        """Move the anchor to this release."""
        last = self.last()
        if last is not None and (last.tick > release.tick or (last.tick == release.tick and last.head != release.head)):
            raise SinkError(f"{self.path} stands at another release. The state is an old copy; use the newest one.")
        aside = self._writing
        text = json.dumps({"tick": release.tick, "head": release.head}) + "\n"
        do = self._env.do
        try:
            do("write anchor", partial(write_new, aside, text.encode(), mode=0o600))
            do("sync anchor", partial(sync, aside))
            do("rename anchor", partial(aside.replace, self.path))
            do("sync anchor folder", partial(sync, self.path.parent))
        except OSError as error:
            raise SinkError(
                f"anchor {self.path}: {words(error)}. The release is committed; run again to go on."
            ) from error
        return hashlib.sha256(text.encode()).hexdigest()


Sink = ParquetSink | Anchor


def write_aside(aside: Path, write: Callable[[Path], None], env: Env, *, mode: int = 0o777) -> None:
    """Make a folder anew under the name of what is unfinished, with its content on disk; the caller renames it.

    Args:
        write: fills the folder, and syncs each file.
        mode: who may reach it, and the folder that it lies in if that is new, less what the process's umask forbids.
    """
    do = env.do
    do("make sink", partial(make_folder, aside.parent, mode=mode))
    do("sync sink's name", partial(sync_parent, aside.parent))
    do("clear aside", partial(shutil.rmtree, aside, ignore_errors=True))
    do("make aside", partial(aside.mkdir, mode=mode))
    write(aside)
    do("sync aside", partial(sync, aside))


def as_published(tick: int, measured: pl.DataFrame, manifest: Mapping[str, Any]) -> Committed:
    """What was committed for a tick, as its release tells it."""
    released = measured["released"].to_numpy().astype(np.int64)
    unchecked, wait = tuple(manifest.get("unchecked", ())), manifest.get("wait")
    return Committed(tick, released, str(manifest["chain"]["head"]), unchecked, wait)


def _aside(release: Release, key: bytes | None) -> str:
    """The name of a release that is not yet published: it tells nothing of what was drawn, not even its hash.

    Nobody without the state's key can try counts against it. Another draw of the same tick, by a copy of the state, has
    another name: two writers never write two releases to one folder.
    """
    drawn = f"aside {release.tick} {release.head}".encode()
    name = secrets.token_hex(8) if key is None else hmac.new(key, drawn, hashlib.sha256).hexdigest()[:16]
    return f".writing-{release.tick:06d}-{name}"


def write_parquet(path: Path | BinaryIO, frame: pl.DataFrame, stamp: str | None) -> None:
    """Write a frame; a stamp stands in the file."""
    table = frame.to_arrow()
    if stamp is not None:
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), b"synthstream": stamp.encode()})
    pq.write_table(table, path, compression="zstd")
