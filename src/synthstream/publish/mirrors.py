"""Mirrors, other places of publication: copies of what the sink has published, in order, each release once.

Object stores and Delta tables are here, PostgreSQL is in ``postgres_table.py``: it is imported where it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import polars as pl

from synthstream.config.objects import ObjectPath
from synthstream.environment import REAL, Env
from synthstream.errors import SinkError, StateRolledBack
from synthstream.kinds import Content
from synthstream.publish.folder import ParquetSink


class Copied(NamedTuple):
    """The newest release that a mirror holds. No head: the mirror no longer tells it."""

    tick: int
    head: str | None


class Mirror(Protocol):
    """A place that gets copies of releases."""

    name: str  # for messages
    history: bool  # whether it keeps older releases; without, it only needs the newest

    def newest(self) -> Copied | None:
        """What it holds. Raises ``SinkError`` if it holds something else, or cannot be read."""

    def copy(self, sink: ParquetSink, tick: int) -> bool:
        """Take a release of a sink whole, or not at all; do nothing if it, or a newer one, is there.

        Returns:
            Whether it was taken; ``False`` if the sink no longer has what the mirror wants of it.

        Raises:
            SinkError: it cannot be read there, or written here.
        """


class OfFrames:
    """A mirror that takes rows or tables of a release, as one frame."""

    _content: Content

    def put(self, frame: pl.DataFrame, *, tick: int, manifest: dict[str, Any]) -> None:
        """Take a release whole, or not at all; do nothing if it, or a newer one, is there. Raises ``SinkError``."""
        raise NotImplementedError

    def copy(self, sink: ParquetSink, tick: int) -> bool:
        name = f"{self._content}.parquet"
        if name == "rows.parquet" and not (sink.place(tick) / name).exists():  # they were dropped (``keep``)
            return False
        self.put(sink.read(tick, name), tick=tick, manifest=sink.manifest(tick))
        return True


# Chain heads by tick, of what a state or a sink has; ``None`` where it has nothing.
Heads = Callable[[int], str | None]


def refuse_fork(mirror: Mirror, known: Copied, heads: Heads) -> None:
    """Raise unless the newest release that a mirror holds is of a chain.

    Raises:
        StateRolledBack: it is not, whoever made it.
        SinkError: the mirror does not tell.
    """
    own = heads(known.tick)
    if own is None or known.head not in (own, None):
        raise StateRolledBack(
            f"{mirror.name} holds a release of tick {known.tick} that is not known here: state and releases are lost "
            "or old copies, or another copy of them goes on elsewhere. Drawing that tick here spends the budget "
            "twice for its events. Use the newest state and releases. If they are lost, this stream ends; another "
            "one, with a name, state and sink of its own, has its own budget. To copy to another mirror, or to none, "
            "undoes nothing: it only hides that the budget is spent twice. Nothing was copied there, and no more noise "
            "was drawn."
        )
    if known.head is None:
        raise SinkError(
            f"{mirror.name}: its history no longer tells which release of tick {known.tick} it holds. Copy to another "
            "mirror, once you know that no other copy of this state has run: otherwise the budget was spent twice."
        )


def asked(mirror: Mirror, heads: Heads, *, held: bool) -> Copied | None:
    """What a mirror holds. Raises as :func:`refuse_fork`; and ``SinkError`` if it holds nothing, although it has held
    the stream: what it could testify is elsewhere.
    """
    known = mirror.newest()
    if known is not None:
        refuse_fork(mirror, known, heads)
    elif held:
        raise SinkError(
            f"{mirror.name} holds nothing, although this stream was copied to it. Bring it back: is its disk mounted, "
            "and is it the right server? If it was emptied or dropped on purpose, say --unchecked: it is made anew."
        )
    return known


def catch_up(sink: ParquetSink, mirror: Mirror, *, held: bool = False) -> int:
    """Copy every release that a mirror does not hold yet, from what the sink has published; returns their number.

    A mirror without history gets the newest one, if it does not hold it. A release whose rows the sink has dropped
    (``keep``) is left out where rows are wanted.

    Args:
        held: it has held the stream, and must not be made anew.

    Raises:
        SinkError: the mirror holds something else, or cannot be read or written.
        StateRolledBack: it holds releases of another state.
    """
    last, known = sink.last(), asked(mirror, sink.head, held=held)
    first, end = 0 if known is None else known.tick + 1, 0 if last is None else last.tick + 1
    return sum(mirror.copy(sink, tick) for tick in range(first if mirror.history else max(first, end - 1), end))


class ObjectFolder:
    """A folder of an object store that gets each release file by file: others read it as a sink.

    Its releases are those that have a manifest, which is written last. A copy that was cut short has none, is no
    release for any reader, and is written again. Every object is written whole or not at all; stores promise that, and
    that what was written is read.

    Args:
        place: the folder.
        stream: what tells this stream from all others: the head of its chain before the first tick.
    """

    history = True

    def __init__(self, place: ObjectPath, *, stream: str, env: Env = REAL) -> None:
        self._place, self._stream, self._env = place, stream, env
        self.name = f"files {place}"

    def newest(self) -> Copied | None:
        published = ParquetSink(self._place)
        ticks = published.ticks()
        if not ticks:
            return None
        first, last = published.manifest(ticks[0]), published.manifest(ticks[-1])
        if first["tick"] == 0 and first["chain"].get("previous") != self._stream:
            raise SinkError(f"{self.name} holds another stream's releases. Nothing was changed; name a new place.")
        return Copied(ticks[-1], str(last["chain"]["head"]))

    def copy(self, sink: ParquetSink, tick: int) -> bool:
        place, files = self._place / sink.place(tick).name, sink.files(tick)
        try:
            for name, content in files.items():
                self._env.do(f"put {name}", partial((place / name).put, content))
        except OSError as error:
            raise SinkError(f"{self.name}: {error.strerror}.") from None
        return True


# A release is never forgotten unless its owner says so.
_FOR_EVER = "interval 36500 days"
_TICK, _HEAD, _MANIFEST = "synthstream.tick", "synthstream.head", "synthstream.manifest"


class DeltaTable(OfFrames):
    """A Delta table; every release is one commit that takes the place of all rows.

    The commit names stream and tick as an application's transaction, so that a release is committed once, whatever
    happens in between; its metadata hold the manifest.

    Args:
        place: a folder, or an address that the package deltalake knows; its credentials come from the environment.
        stream: what tells this stream from all others: the head of its chain before the first tick.

    Raises:
        SinkError: the package deltalake is not installed.
    """

    history = True

    def __init__(self, place: str, *, stream: str, content: Content = "rows", env: Env = REAL) -> None:
        try:
            import deltalake
        except ImportError:
            raise SinkError("Delta Lake is not installed here. Say: pip install 'synthstream[delta]'") from None
        self._lake: Any = deltalake
        self.name = f"Delta table {place}"
        self._place, self._content, self._env = place, content, env
        self._application = f"synthstream/{stream}/{content}"

    def newest(self) -> Copied | None:
        try:
            table = self._lake.DeltaTable(self._place)
        except self._lake.exceptions.TableNotFoundError:
            return None
        except (self._lake.exceptions.DeltaError, OSError) as error:
            raise self._failed("read", error) from None
        tick = table.transaction_version(self._application)
        if tick is None:
            raise SinkError(f"{self.name} is another table, not this stream's. Nothing was changed; name a new place.")
        head = next((entry.get(_HEAD) for entry in table.history() if entry.get(_TICK) == str(tick)), None)
        return Copied(int(tick), None if head is None else str(head))

    def put(self, frame: pl.DataFrame, *, tick: int, manifest: dict[str, Any]) -> None:
        facts = {_TICK: str(tick), _HEAD: str(manifest["chain"]["head"])}
        facts |= {_MANIFEST: json.dumps(manifest, sort_keys=True)}
        transaction = self._lake.Transaction(self._application, tick)
        write = partial(
            self._lake.write_deltalake,
            self._place,
            frame.to_arrow(),
            mode="overwrite",
            schema_mode="overwrite",  # a successor may have other columns
            configuration={"delta.logRetentionDuration": _FOR_EVER, "delta.deletedFileRetentionDuration": _FOR_EVER},
            commit_properties=self._lake.CommitProperties(custom_metadata=facts, app_transactions=[transaction]),
        )
        try:
            self._env.do("commit to Delta", write)
        except (self._lake.exceptions.DeltaError, OSError) as error:
            raise self._failed("write", error) from None

    def _failed(self, what: str, error: Exception) -> SinkError:
        # The package's own texts may hold addresses with secrets in them.
        return SinkError(
            f"{self.name}: cannot be used ({what}: {type(error).__name__}). Check that the place is there, and that it "
            "can be read and written."
        )
