"""A topic of Kafka as a log of JSON objects, or of records in Avro (``avro.py``).

The offsets that were counted stand in the stream's own state, in the transaction of the counts. Nothing is ever
committed to the broker, and there is no group: the one process that holds the state reads every partition, from the
offsets that it finds there. So nothing is rebalanced, nothing can be read by two at once, and a kill between reading
and counting only means to read again. Partitions that are added later are found at the next look, and read from their
beginning.

Every message is one row, whatever is in it: what cannot be read, and what is deleted by key (a tombstone), is a row
in which every column is missing. Two messages of one content are two rows: Kafka cannot tell a producer's second try
from a second event, unless the producer is idempotent. Of transactions, only what was committed is read.

Where messages are changes of a table (``changes.py``), one is a row, or two, or none.

Messages that the topic no longer keeps never count, and nothing says that there were any: keep them for longer than the
longest pause of the stream.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import polars as pl
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient

from synthstream.config.sources import KafkaConfig
from synthstream.errors import SourceError
from synthstream.ingest.avro import ADDRESS, PREFIX, AvroMessages
from synthstream.ingest.changes import Cells, Changes
from synthstream.ingest.cursors import cursor_of, origin_of, place_in
from synthstream.ingest.lines import cell_of, object_of
from synthstream.schema.dialects import Forms, dated

_PAGE_ROWS = 50_000
_PAGE_BYTES = 64 * 2**20
_AT_ONCE = 5_000
_SHORT = 3.0  # seconds for what is good to know
_PATIENCE = 10.0  # seconds for an answer about the topic
_UNKNOWN = "-"  # in place of a topic's id, where brokers tell none
_NO_ID = str(Uuid(0, 0))  # the id of every topic at a broker without topic ids
_STALLED = 60.0  # seconds without anything from a broker that has more to give

_SERVERS = "KAFKA_BOOTSTRAP_SERVERS, as in KAFKA_BOOTSTRAP_SERVERS=broker:9092"

# What a settings file may not change: what is read must not depend on what a broker remembers.
_OURS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "receive.message.max.bytes": 2**31 - 1,  # no message is too large to be read
}
_DEFAULTS: dict[str, Any] = {
    "group.id": "synthstream",
    "client.id": "synthstream",
    "queued.max.messages.kbytes": 16384,
    "fetch.wait.max.ms": 100,
}

_SILENT = logging.getLogger("synthstream.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class KafkaSource:
    """Reads all partitions of a topic. Memory: a page of messages, and one message.

    Numbers and texts are read as they are written, ``true`` and ``false`` as such; ``null``, and what is nested, is
    missing. Of a key that comes twice, the last counts. In a message of more than 16 MiB every column is missing.

    Args:
        columns: keys to read; others are never looked at.
        changes: how messages that are changes of a table become rows; left out: a message is a row.
        forms: in which forms texts of columns write times.
    """

    def __init__(
        self, log: KafkaConfig, columns: Sequence[str], *, changes: Changes | None = None, forms: Forms | None = None
    ) -> None:
        self.name, self._topic, self._config_file = log.name, log.topic, log.config_file
        self._columns, self._changes, self._in_avro = tuple(columns), changes, log.encoding == "avro"
        self._forms = forms
        self._avro: AvroMessages | None = None
        self._consumer: Consumer | None = None
        self._admin: AdminClient | None = None
        self._id = ""
        self._refusals: set[int] = set()  # codes of what brokers refused, in the background
        self.waits = False  # messages of a transaction that is open come after the end

    def look(self) -> None:
        with self._told():
            consumer = self._connected()
            self._ends(consumer, self._look_up(consumer)[1], {})

    def read(self, after: bytes | None) -> Iterator[tuple[pl.DataFrame, bytes]]:
        with self._told():
            consumer = self._connected()
            cluster, partitions = self._look_up(consumer)
            origin = self._origin(cluster, after)
            offsets = {int(p): int(o) for p, o in (place_in(after, origin, name=self.name) or {}).items()}
            ends = self._ends(consumer, partitions, offsets)
            for messages in self._pages(consumer, offsets, ends):
                yield self._frame(messages), cursor_of(origin, {str(p): o for p, o in offsets.items()})

    def close(self) -> None:
        consumer, self._consumer, self._admin, self._avro = self._consumer, None, None, None
        if consumer is not None:
            with suppress(KafkaException, RuntimeError):
                consumer.close()

    # -- connecting ---------------------------------------------------------------------------------------------

    def _connected(self) -> Consumer:
        if self._consumer is None:
            settings, registry = self._settings()
            if self._in_avro:
                self._avro = AvroMessages(self.name, registry)
            self._refusals = set()
            settings["error_cb"] = lambda error: self._refusals.add(error.code())
            try:
                self._consumer = Consumer(settings, logger=_SILENT)
            except (KafkaException, TypeError, ValueError) as error:
                named = re.search(r'No such configuration property: "([\w.]+)"', str(error))
                which = f'"{named[1]}" is no setting of librdkafka' if named else "a setting has a value that cannot be"
                raise SourceError(f"{self.name}: {which}. Check {self._config_file or _SERVERS}.") from None
        return self._consumer

    def _settings(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Those of librdkafka, and those of the schema registry without their prefix."""
        found = dict(_DEFAULTS)
        if self._config_file is not None:
            try:
                lines = self._config_file.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "not a text file in UTF-8"
                raise SourceError(f"{self.name}: config_file {self._config_file}: {why}.") from None
            for number, line in enumerate(lines, 1):
                key, equals, value = (part.strip() for part in line.partition("="))
                if key and not key.startswith("#"):
                    if not equals:
                        raise SourceError(
                            f"{self.name}: config_file {self._config_file}, line {number}: use key=value."
                        )
                    found[key] = value
        if servers := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
            found["bootstrap.servers"] = servers
        if address := os.environ.get(ADDRESS):
            found[f"{PREFIX}url"] = address
        if not found.get("bootstrap.servers"):
            raise SourceError(f"{self.name}: no server is named. Set {_SERVERS}.")
        registry = {key.removeprefix(PREFIX): found.pop(key) for key in list(found) if key.startswith(PREFIX)}
        return found | _OURS, registry

    def _look_up(self, consumer: Consumer) -> tuple[str, list[int]]:
        """The cluster's id, and the partitions of the topic. The registry answers, too."""
        if self._avro is not None:
            op = self._changes and self._changes.op
            self._avro.look(self._topic, [name for name in self._columns if name != op], "after" if op else None)
        metadata = consumer.list_topics(self._topic, timeout=_PATIENCE)
        topic = metadata.topics[self._topic]
        if topic.error is not None:
            raise KafkaException(topic.error)
        if self._id != _UNKNOWN:  # asked each time: it may have been made again since
            told = self._topic_id()
            self._id = told if told != _UNKNOWN else self._id or _UNKNOWN
        return str(metadata.cluster_id), sorted(topic.partitions)

    def _topic_id(self) -> str:
        """Of a topic that is deleted and made again it is another one. Old brokers give none."""
        consumers_own = {*_OURS, *_DEFAULTS} - {"receive.message.max.bytes"}
        settings = {key: value for key, value in self._settings()[0].items() if key not in consumers_own}
        try:
            self._admin = self._admin or AdminClient(settings, logger=_SILENT)
            found = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=_SHORT)
            told = str(found[self._topic].result().topic_id)
        except (KafkaException, ValueError):
            return _UNKNOWN
        return _UNKNOWN if told == _NO_ID else told

    def _origin(self, cluster: str, after: bytes | None) -> str:
        """What a cursor of this topic is marked with. Where either does not know the topic's id, its name decides."""
        topic, known = f"kafka {cluster}/{self._topic}/", None if after is None else origin_of(after)
        if known is not None and known.startswith(topic) and _UNKNOWN in (self._id, known.removeprefix(topic)):
            return known
        return topic + self._id

    # -- reading ------------------------------------------------------------------------------------------------

    def _ends(self, consumer: Consumer, partitions: Sequence[int], offsets: dict[int, int]) -> dict[int, int]:
        """Where each partition ends now; puts ``offsets`` to what is there.

        One that has nothing new is asked for it all the same: what is refused must not depend on that.
        """
        ends = {}
        for partition in partitions:
            first, end = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_PATIENCE)
            if end < offsets.get(partition, 0):
                raise SourceError(
                    f"{self.name}: partition {partition} ends before what was counted: the brokers lost messages, or "
                    "the topic was made again. Messages at offsets that were given before would never count. Restore "
                    "it; or write to a new topic, and open another stream for it."
                )
            offsets[partition] = max(first, offsets.get(partition, 0))
            ends[partition] = end
        return ends

    def _pages(self, consumer: Consumer, offsets: dict[int, int], ends: dict[int, int]) -> Iterator[list[bytes | None]]:
        """Contents of messages up to the ends; ``offsets`` stand behind those that were handed out."""
        consumer.assign([TopicPartition(self._topic, partition, offsets[partition]) for partition in ends])
        page: list[bytes | None] = []
        size, heard = 0, time.monotonic()
        while ends:
            events = consumer.consume(min(_AT_ONCE, _PAGE_ROWS - len(page)), timeout=0.5)
            if events:
                heard = time.monotonic()
            elif time.monotonic() - heard >= _STALLED:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            for event in events:
                for content in self._taken(event, offsets, ends):
                    page.append(content)
                    size += len(content or b"")
            if len(page) >= _PAGE_ROWS or size > _PAGE_BYTES:
                yield page
                page, size, heard = [], 0, time.monotonic()
        consumer.unassign()
        if page:
            yield page

    def _taken(self, event: Message, offsets: dict[int, int], ends: dict[int, int]) -> Iterator[bytes | None]:
        """Content of a message, unless it is none, or came after the end. Moves offsets and ends."""
        partition, offset, error = event.partition(), event.offset(), event.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if partition not in ends or offset is None or partition is None:
            return
        end = ends[partition]
        if error is not None or offset + 1 >= end:
            del ends[partition]
        if error is not None or offset >= end:
            return
        offsets[partition] = offset + 1
        value = event.value()
        yield value.encode() if isinstance(value, str) else value

    def _frame(self, messages: Sequence[bytes | None]) -> pl.DataFrame:
        read = object_of if self._avro is None else self._avro.object_of
        cells: list[list[str | None]] = []
        for message in messages:  # one by one: what a message holds besides may be large
            found = read(message)
            rows: Iterable[Cells] = (found,) if self._changes is None else self._changes.rows(message, found)
            cells += [[cell_of(row.get(name)) for name in self._columns] for row in rows]
        return dated(pl.DataFrame(cells, schema=dict.fromkeys(self._columns, pl.String), orient="row"), self._forms)

    # -- errors -------------------------------------------------------------------------------------------------

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What brokers say becomes our own words."""
        try:
            yield
        except KafkaException as error:
            self.close()
            raise self._worded(error.args[0]) from None
        except SourceError:
            self.close()
            raise

    def _worded(self, error: KafkaError) -> SourceError:
        codes, again = {error.code(), *self._refusals}, "What was counted is committed; run again to go on."
        if codes & {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}:
            what = "the brokers refused user or password. Check the sasl settings in config_file"
        elif codes & {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
            what = "this user may not read it. Allow READ and DESCRIBE on the topic"
        elif codes & {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}:
            what = "there is no such topic. Check source.topic, and which servers are named"
        elif codes & {KafkaError._SSL}:
            what = "no secure connection. Check the ssl settings in config_file"
        elif codes & {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}:
            what = f"no broker answers. Start it, or check {_SERVERS}"
        else:
            what = f"the brokers refused ({error.name()})"
        return SourceError(f"{self.name}: {what}. {again}")
