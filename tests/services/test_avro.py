"""Messages in Avro: each cell has one text or none, and no message ends a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from synthstream import Stream, StreamConfig
from synthstream.errors import SourceError
from synthstream.ingest import kafka as source_module
from synthstream.ingest.avro import ADDRESS, AvroMessages
from tests.services import registry as registries
from tests.services.feeds import TOML, Hand
from tests.services.kafka import Cluster
from tests.services.registry import Registry, head
from tests.support.gates import ExactGate

_NAMES = itertools.count()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with registries.served() as found:
        yield found


def messages(registry: Registry, **more: str) -> AvroMessages:
    """Those of a topic without a subject of the usual name, of which some fields are read."""
    found = AvroMessages("kafka visits", {"url": registry.url, **more})
    found.look("unnamed", ["v", "w", "x"], None)
    return found


def record(*fields: Any, name: str = "Visit") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


LONG = 2**62
KINDS: list[tuple[Any, Any, Any]] = [
    ("string", "A", "A"),
    ("string", b"\xff\0".decode("latin-1"), "\xff\0"),
    ("boolean", True, True),
    ("int", -7, "-7"),
    ("long", LONG, str(LONG)),
    ("double", 0.1, "0.1"),
    ("double", float("nan"), "nan"),
    ("float", 0.1, "0.1"),
    (["null", "int"], None, None),
    (["null", "int"], 5, "5"),
    (["int", "string", "boolean"], 5, "5"),
    (["int", "string", "boolean"], False, False),
    ("bytes", b"A", None),
    ({"type": "enum", "name": "Ward", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "array", "items": "int"}, [1, 2], None),
    ({"type": "map", "values": "null"}, {"a": None}, None),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, b"\xff\x85", "-1.23"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, b"\x01" * 65, None),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1_000, "1970-01-01T00:00:01+00:00"),
    ({"type": "long", "logicalType": "timestamp-micros"}, -1, "1969-12-31T23:59:59.999999+00:00"),
    ({"type": "long", "logicalType": "timestamp-millis"}, LONG, None),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, 1_000_000, "1970-01-01T00:00:01"),
    ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, 1_000, "1970-01-01T00:00:01"),
    ({"type": "long", "connect.name": "io.debezium.time.NanoTimestamp"}, 1_000_000_000, "1970-01-01T00:00:01"),
    ({"type": "int", "logicalType": "date"}, 31, "1970-02-01"),
    ({"type": "int", "logicalType": "date"}, 2**31 - 1, None),
    ({"type": "int", "logicalType": "nonsense"}, 3, "3"),
]


@pytest.mark.sparing(14)
@pytest.mark.parametrize(("kind", "value", "text"), KINDS)
def test_a_cell_has_one_text_or_none(registry: Registry, kind: Any, value: Any, text: Any) -> None:
    """Values are written as they lie in a message, without what their type says of them."""
    plain = {key: k for key, k in kind.items() if key != "logicalType"} if isinstance(kind, dict) else kind
    written = registry.message(registry.add(record(("v", plain), ("w", "string"))), {"v": value, "w": "x"})
    read = registry.add(record(("v", kind), ("w", "string")))
    assert messages(registry).object_of(head(read) + written[5:]) == {"v": text, "w": "x"}


def doubled(levels: int) -> dict[str, Any]:
    """Records of two fields of the record before: a value of no bytes, and of 2**levels values."""
    schema = record(("v", "null"), name="R0")
    for level in range(1, levels):
        schema = record(("a", schema), ("b", f"R{level - 1}"), name=f"R{level}")
    return schema


def test_schemas_that_could_take_all_memory_or_depth_are_not_read(registry: Registry) -> None:
    nothing = record(name="Nothing")
    for schema in (
        record(("v", ["null", "Visit"])),
        record(("v", {"type": "array", "items": "null"})),
        record(("v", {"type": "array", "items": nothing})),
        record(("v", {"type": "map", "values": {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}})),
        record(("v", "Elsewhere")),
        # Marks by which the library takes a schema for one that it has parsed itself, and reads another one.
        record(("v", "ns.Z"))
        | {"__fastavro_parsed": True, "__named_schemas": {"ns.Z": record(("v", ["null", "ns.Z"]), name="ns.Z")}},
        doubled(40),
        {"type": "record", "name": "Wide", "fields": [{"name": f"f{i}", "type": "null"} for i in range(20_000)]},
        "string",
        '"string"',
        "[]",
        "{",
        "[" * 100_000,
    ):
        number = registry.add(schema, "visits-value")
        # A list of 2**62 values, and a chain of a million records.
        for content in (b"\x80" * 8 + b"\x80\x01", b"\2" * 1_000_000):
            assert messages(registry).object_of(head(number) + content) == {}
        with pytest.raises(SourceError, match="the newest schema of visits-value cannot be read"):
            messages(registry).look("visits", ["v"], None)


def test_what_cannot_be_read_has_no_cells(registry: Registry) -> None:
    number = registry.add(record(("v", "string"), ("w", ["null", "int"]), ("x", {"type": "array", "items": "long"})))
    good, reader = registry.message(number, {"v": "A", "w": 3, "x": [1, 2]}), messages(registry)
    assert reader.object_of(good) == {"v": "A", "w": "3", "x": None}
    for broken in (
        None,
        b"",
        b"\0",
        good[:5],
        b"\1" + good[1:],
        good + b"\0",
        head(99) + good[5:],
        head(2**32 - 1) + b"1",
    ):
        assert reader.object_of(broken) == {}
    for length in range(5, len(good)):
        assert reader.object_of(good[:length]) == {}
    for place, byte in itertools.product(range(5, len(good)), (0, 1, 127, 128, 255)):
        assert isinstance(reader.object_of(good[:place] + bytes([byte]) + good[place + 1 :]), dict)
    assert reader.object_of(head(number) + b"\2\xff\0\0")["v"] == "\ufffd"


@pytest.mark.parametrize("scale", [None, True, "2", 2.5, [1], -1, 10**9])
@pytest.mark.parametrize("meaning", ["logicalType", "connect.name"])
def test_a_decimal_of_no_scale_is_missing(registry: Registry, scale: Any, meaning: str) -> None:
    number = registry.add(record(("v", {"type": "bytes", meaning: "decimal", "precision": 4, "scale": scale})))
    assert messages(registry).object_of(head(number) + b"\2\7").get("v") is None


def test_of_lists_no_more_is_read_than_memory_can_hold(registry: Registry) -> None:
    flags = record(*((f"f{i}", "null") for i in range(300)), ("a", "boolean"), name="Flags")
    number = registry.add(record(("v", {"type": "array", "items": flags}), ("w", "string")))
    value = [{f"f{i}": None for i in range(300)} | {"a": True}]
    few, many = (registry.message(number, {"v": value * n, "w": "x"}) for n in (1_000, 5_000))
    assert [messages(registry).object_of(message) for message in (few, many)] == [{"v": None, "w": "x"}, {}]


@pytest.mark.parametrize("status", [401, 403, 400, 429, 500, 307, 200])
def test_what_a_message_names_does_not_decide_whether_anything_is_read(registry: Registry, status: int) -> None:
    good = registry.add(record(("v", "string")))
    registry.of[f"/schemas/ids/{good + 1}"] = status
    reader = messages(registry)
    assert [reader.object_of(head(n) + b"\2A") for n in (good + 1, good, good + 1)] == [{}, {"v": "A"}, {}]
    assert sum("ids/2" in path for path, _ in registry.asked) == 1  # until the next look
    registry.status = 500
    assert reader.object_of(head(good) + b"\2A") == {"v": "A"}
    with pytest.raises(SourceError, match="answers 500"):
        reader.object_of(head(9) + b"\2A")


@pytest.mark.parametrize(("status", "says"), [(404, "answers 404"), (200, "but not as a schema registry does")])
def test_an_address_that_is_no_registry_is_told(registry: Registry, status: int, says: str) -> None:
    """Else every event would count as one whose columns are missing."""
    registry.status = status
    with pytest.raises(SourceError, match=says):
        messages(registry)


def test_each_schema_is_asked_for_once_and_an_unknown_number_may_be_given_later(registry: Registry) -> None:
    reader = messages(registry, **{"basic.auth.user.info": "me:secret"})
    schema = record(("v", "string"))
    late = head(1) + b"\2A"
    assert [reader.object_of(late) for _ in range(3)] == [{}] * 3
    assert registry.add(schema) == 1
    reader.look("unnamed", ["v"], None)
    assert [reader.object_of(late) for _ in range(3)] == [{"v": "A"}] * 3
    asked = [path for path, user in registry.asked if user == "Basic bWU6c2VjcmV0"]
    look, schema_1 = "/subjects/unnamed-value/versions/latest?format=resolved", "/schemas/ids/1?format=resolved"
    assert asked == [look, schema_1, look, schema_1]


@pytest.mark.parametrize(
    ("status", "says"), [(401, "refused user or password"), (307, "answers 307"), (500, "answers 500")]
)
def test_a_registry_that_does_not_answer_ends_the_run_without_a_secret(
    registry: Registry, status: int, says: str
) -> None:
    reader = messages(registry, **{"basic.auth.user.info": "me:secret"})
    registry.status = status
    for ask in (lambda: reader.look("visits", [], None), lambda: reader.object_of(head(1) + b"\2A")):
        with pytest.raises(SourceError, match=says) as error:
            ask()
        assert "secret" not in str(error.value)
    assert not any("elsewhere" in path for path, _ in registry.asked)


def test_nobody_answers() -> None:
    with pytest.raises(SourceError, match="the schema registry does not answer"):
        AvroMessages("kafka visits", {"url": "http://127.0.0.1:1"}).look("visits", [], None)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "no schema registry is named. Set KAFKA_SCHEMA_REGISTRY_URL"),
        ({"url": "registry:8081"}, "no schema registry is named"),
        ({"url": "https://me:secret@registry"}, "a user goes into"),
        ({"url": "https://registry", "ssl.ca.location": "/none"}, "there are no certificates in this file"),
        ({"url": "https://registry", "pasword": "secret"}, '"schema.registry.pasword" is not read'),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, str], says: str) -> None:
    with pytest.raises(SourceError, match=says) as error:
        AvroMessages("kafka visits", settings)
    assert "secret" not in str(error.value)


def test_a_field_that_the_newest_schema_lacks_is_told(registry: Registry) -> None:
    registry.add(record(("ward", "string")), "visits-value")
    reader = messages(registry)
    reader.look("visits", ["ward"], None)
    reader.look("other", ["word"], None)  # subjects may have other names
    with pytest.raises(SourceError, match=r"has no field 'word'; its fields are \['ward'\]"):
        reader.look("visits", ["word"], None)


def envelope() -> dict[str, Any]:
    seen = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
    value = record(("n", ["null", "int"]), ("seen", seen), name="Value")
    return record(
        ("before", ["null", value]),
        ("after", ["null", "Value"]),
        ("source", record(("ts_ms", "long"), name="Source")),
        ("op", "string"),
        name="Envelope",
    )


def test_a_stream_of_changes_in_avro(
    cluster: Cluster, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in cluster.environment().items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(source_module, "_SHORT", 0.1)
    topic = f"avro-{next(_NAMES)}"
    source = f'kind = "kafka"\ntopic = "{topic}"\nformat = "debezium"\nencoding = "avro"'
    text = 'op = "op"\n' + TOML.format(unit='"event"', most=9, horizon=30, source=source)
    config = StreamConfig.from_toml(text, base=tmp_path)

    def opened() -> Stream:
        return Stream(config, gates=lambda tick: ExactGate(), env=env)

    number, env = registry.add(envelope(), f"{topic}-value"), Hand()
    at = 1_000_000 * 86_400 * 20_454  # 2026-01-01, in microseconds

    def change(op: str, before: int | None, after: int | None) -> bytes:
        cells = [None if n is None else {"n": n, "seen": at} for n in (before, after)]
        return registry.message(
            number, {"op": op, "before": cells[0], "after": cells[1], "source": {"ts_ms": at // 1000}}
        )

    cluster.send(topic, change("c", None, 1), change("c", None, 2), change("u", 2, 3), change("d", 1, None), None, b"?")
    with opened() as stream, pytest.raises(SourceError, match="no schema registry is named"):
        stream.ingest()
    monkeypatch.setenv(ADDRESS, registry.url)
    env.days = 1
    with opened() as stream:
        stream.ingest()
        stream.release()
        table = stream.table(["n"])
        assert {n: m for n, m in zip(table["n"], table["measured"], strict=True) if m} == {"3": 1, "missing": 1}
    registry.add(record(("after", record(("m", "int"), name="Value"))), f"{topic}-value")
    with opened() as stream, pytest.raises(SourceError, match="has no field 'n'"):
        stream.ingest()
