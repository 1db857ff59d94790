"""Static files for any web server: the report, the explorer, all releases, and the newest one under a stable name.

    SITE/index.html        leads to latest/
    SITE/latest/           the report, the explorer, the newest release as Parquet and CSV, its descriptions, the
                           series of all ticks, a list of all releases, and hashes of all that lies there
    SITE/releases/000007/  a release as it was published, and what the explorer reads of it; CSV too, if asked for

A release is written aside and renamed; it never changes, but for what the explorer reads of it. ``latest`` is written
aside whole, and takes the place of the one before in one step. So a process that ends anywhere leaves the old site or
the new one. All of it is made of releases and the configuration; the state is never opened.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from synthstream.config.config import StreamConfig
from synthstream.config.secrecy import apart
from synthstream.config.sources import may_fit
from synthstream.environment import REAL, Env, exchange, exchanged, make_folder, sync, words
from synthstream.errors import ConfigError, SinkError
from synthstream.forecast.warnings import limited
from synthstream.publish.catalogue import descriptions
from synthstream.publish.folder import CELLS, LATEST, write_aside
from synthstream.publish.history import History, Steps, Tick, history_of
from synthstream.publish.readme import LISTED, SUMS, less
from synthstream.report import extras
from synthstream.report.explorer import Explorer
from synthstream.report.page import render
from synthstream.report.public import links, public_page, stamp_of
from synthstream.report.scales import size_of

_ROOT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="Synthstream">
<meta http-equiv="refresh" content="0; url=latest/index.html"><title>Synthetic data</title></head>
<body><p><a href="latest/index.html">The newest release</a></p></body></html>
"""
_LOCK = ".publishing"  # there while a process writes
# Files of each kind and depth that are in a site.
_COUNTABLE = ("index.html", "latest/rows.csv", "releases/000000/rows.csv", "releases/000000/rows.parquet")


def publish_site(config: StreamConfig, folder: Path, *, progress: Steps, csv: bool = False, env: Env = REAL) -> bool:
    """Bring a site up to the newest release; tells whether anything changed.

    Args:
        config: with a [sink] that holds releases.
        folder: made if it is not there. What else lies in it stays as it is.
        csv: whether older releases have CSV files too, beside the newest; some fifteen times the size.

    Raises:
        ConfigError: the folder cannot be public, or holds something else under the site's names.
        SinkError: there is no release, one cannot be read, or the folder cannot be written.
    """
    check_place(config, folder)
    found = history_of(config, progress=progress)
    if found.config.cuts:
        raise ConfigError(
            f"{config.name}: went on with other settings at tick {found.config.cuts[0]['tick']}, and the explorer has "
            "one set of tables for all releases. Nothing was written: `synthstream report` works across the cut."
        )
    try:
        env.do("make site", partial(make_folder, folder, mode=_mode(found)))
        with _alone(folder):
            return _Site(found, folder, env, csv=csv).publish(progress)
    except OSError as error:
        raise SinkError(f"{folder}: {words(error)}. Say the same again: until then pages may be old ones.") from error


def check_place(config: StreamConfig, folder: Path) -> None:
    """Raise ``ConfigError`` unless a site may lie there: apart from state, sources, key and releases."""
    sink, site = config.sink, folder.resolve()
    apart(config.base, config.state.resolve(), site)
    source = config.source
    # Whatever lies where one of these sections says is private.
    for path in (value for section in (config.log, source, config.encryption) for _, value in section or ()):
        if isinstance(path, Path) and path.resolve().is_relative_to(site):
            raise ConfigError(f"{folder}: holds {path}, which is private. Name a folder of the site's own.")
    if source and any(may_fit(source.path, site / name) for name in _COUNTABLE):
        words = "what lies there fits the path of [source], and would count as events"
        raise ConfigError(f"{folder}: {words}. Name a folder that the path does not reach.")
    if sink is not None:
        own = sink.path.resolve()
        if own.is_relative_to(site) or site.is_relative_to(own):
            raise ConfigError(f"{folder}: the folder of releases and the site may not lie in each other. Name another.")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While no other process writes this site. Whoever can read a file may lock it: this one only its owner can."""
    path = folder / _LOCK
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(handle).st_nlink:  # who had it took it away; another one may have made it anew
            raise BlockingIOError
        try:
            yield
        finally:
            path.unlink()
    except BlockingIOError:
        raise SinkError(f"{folder}: another process writes this site. Wait for it, and say the same again.") from None
    finally:
        os.close(handle)


def _mode(found: History) -> int:
    """Who may reach what is made of releases: of simulated ones the owner alone."""
    return 0o700 if found.warning else 0o777


class _Site:
    def __init__(self, found: History, folder: Path, env: Env, *, csv: bool) -> None:
        self._found, self._folder, self._do, self._env, self._csv = found, folder, env.do, env, csv
        self._latest, self._releases, self._mode = folder / LATEST, folder / "releases", _mode(found)
        self._explorer = Explorer(found)

    def publish(self, progress: Steps) -> bool:
        self._do("mend", partial(exchanged, self._latest))
        for pattern in (".writing-*", "releases/.writing-*", "releases/*/.writing-*"):
            for aside in sorted(self._folder.glob(pattern)):
                self._do("clear aside", partial(shutil.rmtree if aside.is_dir() else Path.unlink, aside))
        self._refuse_others()
        new = [place for place, tick in enumerate(self._found.ticks) if not self._is_there(tick)]
        self._lay_out_anew([tick for place, tick in enumerate(self._found.ticks) if place not in new])
        for place in progress(new, "publishing"):
            self._put_release(self._found.ticks[place])
        # Of the CSV files of a release ``tables`` is the last one that is written.
        texts = [self._releases / f"{tick.tick:06d}" / "tables.csv" for tick in self._found.ticks]
        plain = [place for place, text in enumerate(texts) if self._csv and not text.exists()]
        for place in progress(plain, "writing CSV"):  # beside a release's own files, which stay as they are
            tick, folder = self._found.ticks[place].tick, texts[place].parent
            for name, data in extras.texts_of(self._found.sink.files(tick), self._found.config.clock, tick).items():
                self._put(folder / name, data)
            self._do("sync releases", partial(sync, folder))
        changed = self._put_latest() or bool(new or plain)
        if not (root := self._folder / "index.html").exists():
            self._put(root, _ROOT.encode())
            self._do("sync site", partial(sync, self._folder))
        self._drop_rows()
        return changed

    def _is_there(self, tick: Tick) -> bool:
        """Whether this very release is in the site; raises if another one is."""
        place = self._releases / f"{tick.tick:06d}"
        if not place.exists():
            return False
        ours = self._found.sink.place(tick.tick) / "manifest.json"
        if (place / "manifest.json").read_bytes() != ours.read_bytes():
            raise ConfigError(f"{place}: is another release of this tick. Name a folder of this stream's own.")
        return True

    def _refuse_others(self) -> None:
        """Raise if the folder holds what this stream has not published, under the names that the site needs."""
        known = {f"{tick.tick:06d}" for tick in self._found.ticks}
        others = sorted(path.name for path in self._releases.glob("*") if path.name not in known)
        root = self._folder / "index.html"
        if others:
            what = f"is no release of {self._found.sink.folder}. If it is another stream's, name another folder."
            raise ConfigError(f"{self._releases / others[0]}: {what}")
        if self._latest.exists() and not (self._latest / "manifest.json").exists():
            raise ConfigError(f"{self._latest}: is there already, and is no part of a site. Name another folder.")
        if root.exists() and root.read_text(errors="replace") != _ROOT:
            raise ConfigError(f"{root}: is there already, and is no page of this program's. Name another folder.")

    # -- releases ------------------------------------------------------------------------------------------------

    def _put_release(self, tick: Tick) -> None:
        final = self._releases / f"{tick.tick:06d}"
        content = self._found.sink.files(tick.tick) | {CELLS: self._explorer.cells(tick).encode()}
        aside = final.with_name(f".writing-{final.name}")
        write_aside(aside, partial(self._write, content=content), self._env, mode=self._mode)
        self._do("rename release", partial(aside.rename, final))
        self._do("sync releases", partial(sync, self._releases))

    def _lay_out_anew(self, there: list[Tick]) -> None:
        """Write what the explorer reads of releases again, where points had other ranges when they were published."""
        facts = self._latest / "facts.js"
        before = facts.read_text(encoding="utf-8") if facts.is_file() else None
        if self._found.config.workload is None and not self._explorer.lays_out_as(before):
            for tick in there:
                self._put(self._releases / f"{tick.tick:06d}" / CELLS, self._explorer.cells(tick).encode())

    def _write(self, folder: Path, *, content: dict[str, bytes]) -> None:
        for name, data in content.items():
            self._do("write file", partial((folder / name).write_bytes, data))
            self._do("sync file", partial(sync, folder / name))

    def _put(self, path: Path, data: bytes) -> None:
        aside = path.with_name(f".writing-{path.name}")
        self._do("write file", partial(aside.write_bytes, data))
        self._do("sync file", partial(sync, aside))
        self._do("rename file", partial(aside.rename, path))

    def _drop_rows(self) -> None:
        """Of releases that no longer have them (``keep`` in [sink])."""
        for tick in self._found.ticks:
            for name in () if tick.has_rows else ("rows.parquet", "rows.csv"):
                rows = self._releases / f"{tick.tick:06d}" / name
                if rows.exists():
                    self._do("drop old rows", rows.unlink)

    # -- the newest ----------------------------------------------------------------------------------------------

    def _put_latest(self) -> bool:
        content = self._newest()
        if {path.name: path.read_bytes() for path in self._latest.glob("*") if path.is_file()} == content:
            return False
        aside = self._folder / ".writing-latest"
        write_aside(aside, partial(self._write, content=content), self._env, mode=self._mode)
        if self._latest.exists():
            self._do("exchange latest", partial(exchange, aside, self._latest))
        else:
            self._do("rename latest", partial(aside.rename, self._latest))
        self._do("sync site", partial(sync, self._folder))
        self._do("clear aside", partial(shutil.rmtree, aside, ignore_errors=True))
        return True

    def _newest(self) -> dict[str, bytes]:
        """All files of ``latest``, by name."""
        found, script = self._found, library_name()
        before = {name: path.read_bytes() for name in (script, "facts.js") if (path := self._latest / name).is_file()}
        content = found.sink.files(found.newest.tick)
        content |= extras.history(found, self._latest) | {LISTED: extras.listed(found)}
        content |= extras.texts_of(content, found.config.clock, found.newest.tick)
        content |= {name: text.encode() for name, text in descriptions(found.config, beside=True).items()}
        content |= {script: before.get(script) or library()}
        facts = self._explorer.facts(before.get("facts.js", b"").decode())
        name = found.config.publication.title or found.config.name
        texts = {
            "index.html": public_page(
                found.config,
                self._latest / "index.html",
                progress=lambda steps, _: steps,
                found=found,
                listed=links({file: len(data) for file, data in content.items()}),
                explorer="explorer.html",
            ),
            "explorer.html": render(
                "explorer.html",
                title=f"Explore: {name}",
                name=name,
                stamp=stamp_of(found),
                library=script,
                size=size_of(len(content[script]) + len(facts)),
                newest=found.newest,
                claim=found.newest.manifest["claim"],
                limited=limited(found.config.privacy.unit),
                less=less(found.config),
            ),
            "explorer.js": files("synthstream.report").joinpath("templates", "explorer.js").read_text(encoding="utf-8"),
            "facts.js": facts,
        }
        content |= {name: text.encode() for name, text in texts.items()}
        return content | {SUMS: extras.sums(content)}


def library_name() -> str:
    """The name of the library's script, which has its version. Raises as :func:`library`."""
    found = _converter()
    return f"vega-{found.get_vega_version()}-lite-{found.get_vegalite_versions()[-1]}.js"


@cache
def library() -> bytes:
    """The charts' library as one script: Vega, Vega-Lite and Vega-Embed. It takes some seconds.

    Raises:
        SinkError: the extra ``site`` is not installed.
    """
    return str(_converter().javascript_bundle()).encode()


def _converter() -> Any:
    try:
        return import_module("vl_convert")
    except ImportError:
        raise SinkError("vl-convert-python is not installed here. Say: pip install 'synthstream[site]'") from None
