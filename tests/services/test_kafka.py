"""The Kafka source over the real protocol: each message is one row, whatever it holds; clear errors without secrets."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, Uuid

from synthstream.config.sources import KafkaConfig
from synthstream.errors import SourceError
from synthstream.ingest import kafka as source_module
from synthstream.ingest import lines as lines_module
from synthstream.ingest.cursors import cursor_of, origin_of
from synthstream.ingest.kafka import KafkaSource
from tests.services import feeds
from tests.services.kafka import PARTITIONS, Cluster

_NAMES = itertools.count()
_OPEN: list[KafkaSource] = []


@pytest.fixture
def topic(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A topic's name, and the environment of its reader."""
    for key, value in cluster.environment().items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(source_module, "_SHORT", 0.1)  # the mock tells no ids
    yield f"topic-{next(_NAMES)}"
    while _OPEN:
        _OPEN.pop().close()


def source(topic: str, *columns: str, **more: Any) -> KafkaSource:
    made = KafkaSource(KafkaConfig(kind="kafka", topic=topic, **more), columns or ("v",))
    _OPEN.append(made)
    return made


class Reader(feeds.Reader[KafkaSource]):
    def __init__(self, topic: str, *columns: str, **more: Any) -> None:
        super().__init__(source(topic, *columns, **more))

    def more(self) -> list[Any]:
        """What is new, in the order of texts: partitions have no order among themselves."""
        return sorted(super().more(), key=str)


def values(*numbers: int) -> list[bytes]:
    return [json.dumps({"v": f"{number:03d}", "other": 1}).encode() for number in numbers]


def test_messages_of_all_partitions_come_in_pages_once_each(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        cluster.send(topic, *values(number), partition=number % PARTITIONS)
    monkeypatch.setattr(source_module, "_PAGE_ROWS", 7)
    frames = list(source(topic).read(None))
    assert all(len(frame) <= 7 for frame, _ in frames)
    seen = sorted(cell for frame, _ in frames for cell in frame["v"])
    assert seen == [f"{number:03d}" for number in range(60)]
    reader = Reader(topic)
    assert reader.more() == seen
    assert reader.more() == []
    cluster.send(topic, *values(60, 61))
    assert reader.more() == ["060", "061"]
    handed = 0
    for frame, cursor in frames[:-1:3]:  # from each cursor, what is left; another process would not know more
        again = Reader(topic)
        again.after = cursor
        handed = sum(len(f) for f, c in frames[: 1 + [c for _, c in frames].index(cursor)])
        assert len(again.more()) == 62 - handed
        assert len(frame) == 7


def test_a_partition_that_is_new_is_read_from_its_beginning(cluster: Cluster, topic: str) -> None:
    for partition in range(PARTITIONS):
        cluster.send(topic, *values(partition), partition=partition)
    reader = Reader(topic)
    reader.more()
    known = json.loads(reader.after or b"")
    del known["place"]["3"]
    reader.after = cursor_of(known["origin"], known["place"])
    assert reader.more() == ["003"]


POISON: list[tuple[bytes | None, list[str | None]]] = [
    (None, [None, None]),
    (b"", [None, None]),
    (b"CANARY", [None, None]),
    (b"{", [None, None]),
    (b"[]", [None, None]),
    (b"7", [None, None]),
    (b'"v"', [None, None]),
    (b"null", [None, None]),
    (b"{}", [None, None]),
    (b"\xff\xfe", [None, None]),
    (b"[" * 200_000, [None, None]),
    (b'{"v": ' + b"[" * 200_000, [None, None]),
    (b'{"v": "a"} {"v": "b"}', [None, None]),
    (b'{"v": null, "w": []}', [None, None]),
    (b'{"v": {"v": 1}, "w": "x"}', [None, "x"]),
    (b'{"V": 1, "w": ""}', [None, ""]),
    (b'\xef\xbb\xbf{"v": "bom"}', ["bom", None]),
    (b'{"v": "\xff"}', ["\ufffd", None]),
    (b'{"v": "\\ud800"}', ["?", None]),
    (b'{"v": "\\u0000"}', ["\0", None]),
    (b'{"v": 1e999, "w": -0.0}', ["1e999", "-0.0"]),
    (b'{"v": NaN, "w": Infinity}', ["NaN", "Infinity"]),
    (b'{"v": ' + b"9" * 6000 + b', "w": 1}', ["9" * 4096, "1"]),
    (b'{"v": true, "w": false}', ["true", "false"]),
    (b'{"v": "first", "v": "last"}', ["last", None]),
    (b'{"v": "' + b"x" * 900_000 + b'"}', ["x" * 4096, None]),
]


def test_a_message_that_is_too_large_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    message = b'{"v": "a"}'
    monkeypatch.setattr(lines_module, "_LARGEST", len(message))
    frame = source("any")._frame([message, message + b" ", message])
    assert frame["v"].to_list() == ["a", None, "a"]


def test_what_messages_hold_besides_is_not_kept() -> None:
    message = b'{"v": "a", "w": [' + b"[]," * 2**16 + b"[]]}"
    tracemalloc.start()
    try:
        assert source("any")._frame([message] * 20)["v"].to_list() == ["a"] * 20
        assert tracemalloc.get_traced_memory()[1] < 60 * len(message)
    finally:
        tracemalloc.stop()


def test_numbers_since_1970_are_times_where_they_are_said_to_be(cluster: Cluster, topic: str) -> None:
    cluster.send(topic, b'{"v": 1767225600000}', b'{"v": "1767225600000"}', b'{"v": {}}', b"[", None, partition=0)
    reading = KafkaSource(KafkaConfig(kind="kafka", topic=topic), ("v",), forms={"v": ["milliseconds"]})
    _OPEN.append(reading)
    ((frame, _),) = reading.read(None)
    assert frame["v"].to_list() == [datetime(2026, 1, 1, tzinfo=UTC)] * 2 + [None] * 3


def test_a_poisoned_message_is_one_row(cluster: Cluster, topic: str) -> None:
    cluster.send(topic, *(message for message, _ in POISON), partition=0)
    rows = [list(row) for frame, _ in source(topic, "v", "w").read(None) for row in frame.iter_rows()]
    for (message, cells), row in zip(POISON, rows, strict=True):
        assert row == cells, (message or b"")[:40]


def test_what_is_no_longer_kept_is_passed_over_silently(cluster: Cluster, topic: str) -> None:
    cluster.send(topic, *values(1), partition=0)
    reader = Reader(topic)
    assert reader.more() == ["001"]
    big = [json.dumps({"v": f"{number:03d}", "pad": "x" * 500_000}).encode() for number in range(2, 30)]
    cluster.send(topic, *big, partition=0)  # the mock keeps five megabytes of a partition
    found = reader.more()
    assert "029" in found
    assert len(found) < 28
    assert reader.more() == []


def test_a_topic_that_went_back_is_refused(cluster: Cluster, topic: str) -> None:
    cluster.send(topic, *values(1), partition=0)
    reader = Reader(topic)
    reader.more()
    reader.after = cursor_of(origin_of(reader.after or b""), {"0": 5})
    with pytest.raises(SourceError, match="partition 0 ends before what was counted") as caught:
        reader.more()
    assert "5" not in str(caught.value).replace(topic, "")


def test_a_checkpoint_of_another_log_is_refused(cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.send(topic, *values(1))
    cluster.send(f"{topic}-2", *values(1))
    reader = Reader(topic)
    reader.more()
    other = Reader(f"{topic}-2")
    other.after = reader.after
    with pytest.raises(SourceError, match=r"from another log .* open another stream"):
        other.more()
    monkeypatch.setattr(KafkaSource, "_topic_id", lambda self: "id-1")
    named = Reader(topic)
    named.after = reader.after  # from before the brokers told ids
    assert named.more() == []
    fresh = Reader(topic)
    assert fresh.more() == ["001"]
    monkeypatch.setattr(KafkaSource, "_topic_id", lambda self: "id-2")
    made_again = Reader(topic)
    made_again.after = fresh.after
    with pytest.raises(SourceError, match="dropped and made again"):
        made_again.more()
    monkeypatch.setattr(KafkaSource, "_topic_id", lambda self: "-")  # not told this time
    untold = Reader(topic)
    untold.after = fresh.after
    assert untold.more() == []
    cluster.send(topic, *values(2))
    assert untold.more() == ["002"]
    assert origin_of(untold.after or b"").endswith("/id-1")


def test_a_topic_that_is_made_again_while_it_is_followed_is_refused(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ["id-1", "-", "id-2"]  # in between the brokers were too busy to tell
    monkeypatch.setattr(KafkaSource, "_topic_id", lambda self: told.pop(0))
    reader = Reader(topic)
    cluster.send(topic, *values(1))
    assert reader.more() == ["001"]
    cluster.send(topic, *values(2))
    assert reader.more() == ["002"]
    assert origin_of(reader.after or b"").endswith("/id-1")
    cluster.send(topic, *values(3))
    with pytest.raises(SourceError, match="dropped and made again"):
        reader.more()


def test_brokers_that_know_no_ids_may_learn_to_tell_them(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = Described()
    monkeypatch.setattr(source_module, "AdminClient", lambda *_, **__: described)
    cluster.send(topic, *values(1))
    reader = Reader(topic)
    assert reader.more() == ["001"]
    described.topic_id = Uuid(1, 2)
    reader.source = source(topic)
    cluster.send(topic, *values(2))
    assert reader.more() == ["002"]


class Described:
    """Describes any topic."""

    topic_id = Uuid(0, 0)

    def describe_topics(self, topics: TopicCollection, **_: object) -> dict[str, Any]:
        """Itself, for each."""
        return dict.fromkeys(topics.topic_names, self)

    def result(self) -> Described:
        """Itself."""
        return self


def test_no_connection_is_told_without_a_secret(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(source_module, "_PATIENCE", 1.0)
    file = tmp_path / "kafka.properties"
    cases = [
        ("", None, "no server is named. Set KAFKA_BOOTSTRAP_SERVERS"),
        ("", "127.0.0.1:1", "no broker answers"),
        ("sasl.pasword=CANARY", "127.0.0.1:1", '"sasl.pasword" is no setting'),
        ("security.protocol=CANARY", "127.0.0.1:1", "a setting has a value that cannot be"),
        ("# comment\n\nCANARY", "127.0.0.1:1", "line 3: use key=value"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=me\nsasl.password=CANARY",
         cluster.servers, "user or password|no broker answers"),
    ]  # fmt: skip
    for text, servers, says in cases:
        file.write_text(text)
        monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
        if servers is not None:
            monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", servers)
        with pytest.raises(SourceError, match=says) as caught:
            Reader(topic, config_file=file).more()
        assert "CANARY" not in str(caught.value)
        assert caught.value.__cause__ is None
    with pytest.raises(SourceError, match="No such file"):
        Reader(topic, config_file=tmp_path / "none").more()
    file.write_text(f"bootstrap.servers = {cluster.servers}\nenable.auto.commit=true\n")
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS")
    cluster.send(topic, *values(1))
    assert Reader(topic, config_file=file).more() == ["001"]
    assert "CANARY" not in "".join(capfd.readouterr())


def test_a_topic_that_is_missing_is_told(cluster: Cluster, topic: str) -> None:
    with pytest.raises(SourceError, match=r"there is no such topic. Check source\.topic"):
        Reader(topic).more()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Allow READ and DESCRIBE"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "refused user or password"),
        (KafkaError._SSL, "ssl settings"),
        (KafkaError._BAD_MSG, "_BAD_MSG"),
    ],
)
def test_what_a_broker_refuses_is_told(
    cluster: Cluster, topic: str, code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.send(topic, *values(1))
    reader = Reader(topic)

    def refuse(*_: object) -> None:
        raise KafkaException(KafkaError(code))

    with monkeypatch.context() as patch:
        patch.setattr(KafkaSource, "_ends", refuse)
        with pytest.raises(SourceError, match=says):
            reader.more()
    assert reader.more() == ["001"]


def test_a_broker_that_falls_silent_is_told(cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.send(topic, *values(1))
    reader = Reader(topic)
    with monkeypatch.context() as patch:
        patch.setattr(source_module, "_STALLED", 0.2)
        patch.setattr(source_module, "Consumer", Silent)
        with pytest.raises(SourceError, match="no broker answers"):
            reader.more()
    assert reader.more() == ["001"]


class Silent(Consumer):
    """Hears nothing."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Nothing, at once."""
        return []
