"""Logs that tests write to and streams read: one interface over a table, a topic and a Delta table."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import deltalake
import pyarrow as pa

from synthstream import Stream, StreamConfig
from synthstream.environment import Env
from synthstream.ingest.cursors import CursorSource
from tests.services.kafka import Cluster
from tests.services.postgres import Server
from tests.support.gates import ExactGate

START = datetime(2026, 1, 1, tzinfo=UTC)
_NAMES = itertools.count()

S = TypeVar("S", bound=CursorSource)


class Reader(Generic[S]):
    """Reads a source on, and remembers what came."""

    def __init__(self, source: S) -> None:
        self.source = source
        self.after: bytes | None = None

    def more(self) -> list[Any]:
        """What is new, in the first column."""
        found: list[Any] = []
        for frame, after in self.source.read(self.after):
            found += frame.to_series(0).to_list()
            self.after = after
        return found


TOML = """
name = "events"
state = "state"
[privacy]
epsilon = 1.0
delta = 0
unit = {unit}
[clock]
column = "seen"
start = 2026-01-01
every = "1d"
horizon = {horizon}
[[columns]]
name = "n"
type = "integer"
min = 0
max = {most}
[synthesizer]
measure = "always"
[source]
{source}
[sink]
kind = "parquet"
path = "releases"
"""

Row = Mapping[str, Any]  # keys n, seen, who


class Feed(Protocol):
    """A log."""

    source: str  # its section of stream.toml
    top: str  # what stands before all sections

    def environment(self) -> dict[str, str]:
        """Variables that a reader connects with."""

    def put(self, rows: Sequence[Row]) -> None:
        """Write rows, and wait until they are there."""

    def end(self) -> None:
        """Remove it."""


class Table:
    """A table of PostgreSQL."""

    def __init__(self, server: Server) -> None:
        self.server, self.name = server, f"events_{next(_NAMES)}"
        self.source, self.top = f'kind = "postgres"\ntable = "{self.name}"\nsequence = "id"', ""
        columns = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n text, seen text, who text"
        grant = "GRANT SELECT ON @, @_id_seq TO reader"
        self.server.execute(f"CREATE TABLE @ ({columns}); {grant}".replace("@", self.name))
        self.insert = "INSERT INTO @ (n, seen, who) VALUES (%s, %s, %s)".replace("@", self.name)

    def environment(self) -> dict[str, str]:
        """See :class:`Feed`."""
        return self.server.environment()

    def put(self, rows: Sequence[Row]) -> None:
        """See :class:`Feed`."""
        with self.server.connect() as connection:
            connection.cursor().executemany(self.insert, [cells(row) for row in rows])

    def end(self) -> None:
        """See :class:`Feed`."""
        self.server.execute("DROP TABLE @".replace("@", self.name))


class Topic:
    """A topic of Kafka."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.name = cluster, f"events-{next(_NAMES)}"
        self.source, self.top = f'kind = "kafka"\ntopic = "{self.name}"', ""
        for partition in range(4):  # there from now on, and with a place that is not 0
            cluster.send(self.name, b'{"n": "0", "seen": "2026-01-01"}', partition=partition)
        self.before = 4

    def environment(self) -> dict[str, str]:
        """See :class:`Feed`."""
        return self.cluster.environment()

    def put(self, rows: Sequence[Row]) -> None:
        """See :class:`Feed`."""
        self.cluster.send(self.name, *(message(row) for row in rows))

    def end(self) -> None:
        """See :class:`Feed`."""


class Lake:
    """A Delta table that tells of changes."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.source, self.top = f'kind = "delta"\nformat = "changes"\npath = "{place}"', 'op = "op"\n'
        self.put([])

    def environment(self) -> dict[str, str]:
        """See :class:`Feed`."""
        return {}

    def put(self, rows: Sequence[Row]) -> None:
        """See :class:`Feed`."""
        found = pa.table(
            {"n": pa.array([row["n"] for row in rows], pa.int64()), "seen": [str(row["seen"]) for row in rows]},
            schema=pa.schema({"n": pa.int64(), "seen": pa.string()}),
        )
        told = {"delta.enableChangeDataFeed": "true"}
        deltalake.write_deltalake(str(self.place), found, mode="append", configuration=told)

    def end(self) -> None:
        """See :class:`Feed`."""


def cells(row: Row) -> tuple[Any, ...]:
    """A row of the table."""
    return tuple(None if row.get(name) is None else str(row[name]) for name in ("n", "seen", "who"))


def message(row: Row) -> bytes:
    """A message of the topic."""
    return json.dumps({name: None if value is None else str(value) for name, value in row.items()}).encode()


def text_of(feed: Feed, *, unit: str = '"event"', most: int = 9, horizon: int = 30) -> str:
    """A configuration that reads a feed."""
    return feed.top + TOML.format(unit=unit, most=most, horizon=horizon, source=feed.source)


def config_of(feed: Feed, folder: Path, **more: Any) -> StreamConfig:
    """As :func:`text_of`, written to the folder too."""
    (folder / "stream.toml").write_text(text_of(feed, **more))
    return StreamConfig.from_toml(text_of(feed, **more), base=folder)


def day(number: float) -> str:
    """A moment of a tick, as text."""
    return (START + timedelta(days=number)).isoformat()


class Hand(Env):
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.days = 0.0

    def now(self) -> datetime:
        """See :class:`Env`."""
        return START + timedelta(days=self.days)


def counted(config: StreamConfig) -> Counter[str]:
    """The running table of n, once all that is there was counted and every tick closed."""
    with Stream(config, gates=lambda tick: ExactGate(), env=Later()) as stream:
        stream.ingest()
        while stream.due():
            stream.release()
        table = stream.table(["n"])
    return +Counter({str(n): int(m) for n, m in zip(table["n"], table["measured"], strict=True)})


class Later(Env):
    """Two days from now: whatever was written is over."""

    def now(self) -> datetime:
        """See :class:`Env`."""
        return datetime.now(UTC) + timedelta(days=2)


def commit(place: Path, version: int) -> Path:
    """The file of a version in the log of a Delta table."""
    return place / "_delta_log" / f"{version:020}.json"
