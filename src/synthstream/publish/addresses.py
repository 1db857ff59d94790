"""Published releases wherever they are: beside a ``stream.toml``, in a folder alone, or behind a web server.

Only files that are published are read, and nothing is sent but their names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from weakref import finalize

import polars as pl
from typing_extensions import override

from synthstream.config.config import StreamConfig, load
from synthstream.config.settings import SETTINGS
from synthstream.config.sinks import SinkConfig
from synthstream.errors import ConfigError, SinkError
from synthstream.kinds import is_text
from synthstream.publish.folder import LATEST, Newest, ParquetSink
from synthstream.publish.outlets import configured, parquet_sink, refuse_no_sink

_SCHEMES = ("http://", "https://")
_SECONDS = 60
# What servers say of a file that is not there; some say that nobody may read it.
_ABSENT = (403, 404, 410)
_MOST = 64 << 20  # bytes of settings, and of a manifest: no server may fill the memory


def located(place: str | Path | StreamConfig, *, simulate: bool = False) -> tuple[StreamConfig, ParquetSink]:
    """A stream's public settings, and its releases, at a place: see :func:`synthstream.releases`."""
    served = isinstance(place, str) and place.startswith(_SCHEMES)
    if simulate and not isinstance(place, StreamConfig) and (served or Path(place).is_dir()):
        raise ConfigError(
            f"{place}: simulate belongs to a stream.toml. Leave it out; releases say themselves what they are."
        )
    if served:
        return _behind(str(place).rstrip("/"))
    known = isinstance(place, StreamConfig) or Path(place).suffix or is_text(str(place)) or os.path.exists(place)
    if not known:
        raise ConfigError(f"{place}: there is no such folder. Name one of published releases, or a stream.toml.")
    if isinstance(place, StreamConfig) or not Path(place).is_dir():
        config = configured(place, simulate=simulate)
        return config, parquet_sink(refuse_no_sink(config))
    for settings, releases in _candidates(str(Path(place).absolute())):
        if Path(settings, SETTINGS).is_file():
            return _at(load(Path(settings, SETTINGS)), Path(releases)), ParquetSink(Path(releases))
    raise _unknown(str(place))


def _candidates(place: str) -> Iterator[tuple[str, str]]:
    """Where settings and releases may lie: together, or in a site."""
    yield place, place
    yield f"{place}/{LATEST}", f"{place}/releases"
    yield f"{place.rpartition('/')[0]}/{LATEST}", place


def _behind(address: str) -> tuple[StreamConfig, ParquetSink]:
    for settings, releases in _candidates(address):
        text = fetched(f"{settings}/{SETTINGS}", most=_MOST)
        if text is not None:
            sink = Served(releases)
            sink.last()  # fetches the newest manifest: it names the cuts, if the stream goes on from another
            config = StreamConfig.from_toml(text.decode(errors="replace"), base=sink.folder, origin=settings)
            return _at(config, sink.folder), sink
    raise _unknown(address)


def _at(config: StreamConfig, folder: Path) -> StreamConfig:
    """Settings that others wrote: they say nothing of the reader's own files. Below a file there is no state."""
    sink, state = config.sink or SinkConfig(kind="parquet", path=folder), config.base / SETTINGS / "state"
    return replace(config, sink=sink.model_copy(update={"path": folder}), state=state, encryption=None, mirrors=())


def _unknown(place: str) -> ConfigError:
    return ConfigError(
        f"{place}: there is no {SETTINGS}. Name the folder or address of published releases; their publisher writes "
        "that file with `synthstream describe stream.toml`, or synthstream.describe(config)"
    )


def fetched(address: str, *, most: int | None = None) -> bytes | None:
    """What a web server has at an address; ``None`` if it has nothing there.

    Args:
        most: how many bytes that may be.

    Raises:
        SinkError: it does not answer, or in another way, or with more.
    """
    try:
        with urlopen(Request(address, headers={"User-Agent": "synthstream"}), timeout=_SECONDS) as answer:  # noqa: S310
            content: bytes = b"" if most is None else answer.read(most + 1)
            if most is None or len(content) <= most:
                content += answer.read()  # which tells of an answer that broke off
                return content
    except HTTPError as error:
        if error.code in _ABSENT:
            return None
        raise SinkError(f"{address}: the server answers {error.code} {error.reason}. Try again later.") from None
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", error)
        raise SinkError(f"{address}: cannot be read ({why}). Check the address, and that you are online.") from None
    raise SinkError(f"{address}: the server sends more than {most >> 20} MiB. This is no such file; check the address.")


class Served(ParquetSink):
    """The releases behind a web server, which need not list its folders. Files are fetched when they are needed.

    What was fetched is kept in a folder of its own until the object is gone; a release never changes.

    Args:
        address: of the folder of releases, without a slash at its end.
    """

    def __init__(self, address: str) -> None:
        super().__init__(Path(mkdtemp(prefix="synthstream-")))
        finalize(self, rmtree, self.folder, ignore_errors=True)
        self.address, self._upto = address, -1

    @override
    def last(self) -> Newest | None:
        step = 1
        while self._fetch(self._upto + step, "manifest.json"):  # ever further, then back: releases have no gaps
            self._upto, step = self._upto + step, 2 * step
        while step > 1:
            step //= 2
            if self._fetch(self._upto + step, "manifest.json"):
                self._upto += step
        return None if self._upto < 0 else self._newest(self._upto)

    @override
    def manifest(self, tick: int) -> dict[str, Any]:
        self._fetch(tick, "manifest.json")
        return super().manifest(tick)

    @override
    def read(self, tick: int, name: str, *, columns: list[str] | None = None) -> pl.DataFrame:
        self.manifest(tick)
        self._fetch(tick, name)
        return super().read(tick, name, columns=columns)

    @override
    def where(self, tick: int | None = None) -> str:
        return self.address if tick is None else f"{self.address}/{tick:06d}"

    @property
    @override
    def empty(self) -> str:
        return f"{self.address}: no releases are found at this address. Check it."

    def _fetch(self, tick: int, name: str) -> bool:
        """Whether a file of a release is there."""
        path = self.place(tick) / name
        if not path.exists():
            content = fetched(f"{self.where(tick)}/{name}", most=_MOST if name == "manifest.json" else None)
            if content is None:
                return False
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        return True
