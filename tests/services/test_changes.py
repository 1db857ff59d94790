"""Changes of a table on a topic: running tables are those of the table itself, whatever happens in between."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from synthstream import Stream, StreamConfig
from synthstream.config.sources import KafkaConfig
from synthstream.errors import ConfigError
from synthstream.ingest import kafka as source_module
from synthstream.ingest.changes import Changes
from synthstream.ingest.kafka import KafkaSource
from tests.services.feeds import START, TOML, Hand, day
from tests.services.kafka import PARTITIONS, Cluster
from tests.services.postgres import Server
from tests.support.environments import Interrupting, When
from tests.support.gates import ExactGate

_NAMES = itertools.count()
CHANGES = Changes(op="op", time="seen")


@pytest.fixture
def topic(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> str:
    for key, value in cluster.environment().items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(source_module, "_SHORT", 0.1)  # the mock tells no ids
    return f"changes-{next(_NAMES)}"


def configured(folder: Path, topic: str) -> StreamConfig:
    folder.mkdir(exist_ok=True)
    source = f'kind = "kafka"\ntopic = "{topic}"\nformat = "debezium"'
    text = 'op = "op"\n' + TOML.format(unit='"event"', most=9, horizon=30, source=source)
    return StreamConfig.from_toml(text, base=folder)


def opened(config: StreamConfig, env: Any) -> Stream:
    return Stream(config, gates=lambda tick: ExactGate(), env=env)


def counted(stream: Stream) -> dict[str, int]:
    table = stream.table(["n"])
    return {str(n): int(m) for n, m in zip(table["n"], table["measured"], strict=True) if m}


# What Debezium writes of a table with REPLICA IDENTITY FULL, written by a trigger at the hour that a test says it is.
TABLE = """
CREATE TABLE {0} (id bigint PRIMARY KEY, n int, seen timestamptz);
CREATE TABLE {0}_log (place bigserial, event jsonb);
CREATE FUNCTION {0}_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO {0}_log (event) VALUES (jsonb_build_object(
    'op', CASE TG_OP WHEN 'INSERT' THEN 'c' WHEN 'UPDATE' THEN 'u' ELSE 'd' END,
    'before', CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END,
    'after', CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END,
    'source', jsonb_build_object(
      'connector', 'postgresql', 'lsn', pg_current_wal_insert_lsn() - '0/0',
      'ts_ms', (extract(epoch FROM current_setting('test.now')::timestamptz) * 1000)::bigint),
    'ts_ms', 1));
  RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {0} FOR EACH ROW EXECUTE FUNCTION {0}_note();
"""
CHANGE = """
SELECT setseed({2}); SET test.now = '{1}';
DO $$ DECLARE die float; one bigint; BEGIN
  FOR i IN 1 .. {3} LOOP
    die := random(); one := floor(random() * {3})::bigint;
    IF die < 0.5 THEN
      INSERT INTO {0} VALUES (one, CASE WHEN random() < 0.9 THEN floor(random() * 10)::int END, '{1}')
      ON CONFLICT DO NOTHING;
    ELSIF die < 0.8 THEN UPDATE {0} SET n = floor(random() * 10)::int WHERE id = one;
    ELSE DELETE FROM {0} WHERE id = one; END IF;
  END LOOP; END $$
"""
DAYS, STATEMENTS = 5, 4500


@pytest.fixture
def table(server: Server) -> Iterator[str]:
    name = f"changed_{next(_NAMES)}"
    server.execute(TABLE.format(name))
    yield name
    server.execute(f"DROP TABLE {name}, {name}_log; DROP FUNCTION {name}_note")


def changed(server: Server, table: str, number: int) -> tuple[list[bytes], dict[str, int]]:
    """The changes of a day of a real table, and what is in it then."""
    with server.connect() as connection:
        at = (START + timedelta(days=number + 0.5)).isoformat()
        connection.execute(CHANGE.format(table, at, 1 / (number + 2), STATEMENTS))
        found = connection.execute(f"DELETE FROM {table}_log RETURNING place, event::text").fetchall()  # noqa: S608
        true = connection.execute(f"SELECT n, count(*) FROM {table} GROUP BY n").fetchall()  # noqa: S608
    return [event.encode() for _, event in sorted(found)], {"missing" if n is None else str(n): c for n, c in true}


@pytest.mark.slow
def test_running_tables_are_those_of_the_table(
    cluster: Cluster, server: Server, topic: str, table: str, tmp_path: Path
) -> None:
    """10,000 random insertions, updates and deletions in a real PostgreSQL take over a second."""
    env, kinds = Hand(), Counter[str]()
    cluster.send(topic, None)  # there from now on
    with opened(configured(tmp_path, topic), env) as stream:
        for number in range(DAYS):
            events, true = changed(server, table, number)
            kinds.update(json.loads(event)["op"] for event in events)
            for partition in range(PARTITIONS):
                mine = [e for e in events if json.loads(e)["source"]["lsn"] % PARTITIONS == partition]
                cluster.send(topic, *itertools.chain(*((e, None) for e in mine)), partition=partition)
            env.days = number + 1
            stream.ingest()
            stream.release()
            assert counted(stream) == true
    assert kinds.total() > 10_000
    assert min(kinds["c"], kinds["u"], kinds["d"]) > 1000


@pytest.mark.sparing(3, 3)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_what_ends_anywhere_counts_each_change_once(
    cluster: Cluster, topic: str, tmp_path: Path, number: int, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten ends, each at another commit."""
    monkeypatch.setattr(source_module, "_PAGE_ROWS", 4)
    cells = [{"n": n % 9 + 1, "seen": day(0.5)} for n in range(20)]
    first = [{"op": "c", "before": None, "after": row} for row in cells]
    then = [{"op": "d", "before": row, "after": None, "source": {"ts_ms": 0}} for row in cells[:10]]
    cluster.send(topic, *(json.dumps(event).encode() for event in (*first, *then)), partition=0)
    config, env = configured(tmp_path, topic), Hand()

    def stop() -> None:
        raise KeyboardInterrupt

    ending = Interrupting(stop, at="commit counts", number=number, when=when)
    with opened(config, ending) as stream, pytest.raises(KeyboardInterrupt):
        stream.ingest()
    env.days = 1
    with opened(config, env) as stream:
        stream.ingest()
        stream.release()
        assert counted(stream) == {str(n): 1 for n in (1, 3, 4, 5, 6, 7, 8, 9)} | {"2": 2}


AFTER = {"n": 3, "seen": "2026-01-01T12:00:00Z"}
OWN, AT = "2026-01-01T12:00:00Z", "2026-01-02T03:04:05.678000+00:00"
SOURCE = {"ts_ms": 1767323045678}
MESSAGES: list[tuple[Any, list[tuple[str, str | None, str | None]]]] = [
    ({"op": "c", "after": AFTER, "source": SOURCE}, [("1", "3", OWN)]),
    ({"op": "r", "after": AFTER, "source": SOURCE}, [("1", "3", OWN)]),
    ({"op": "d", "before": AFTER, "source": SOURCE}, [("-1", "3", AT)]),
    ({"op": "d", "before": AFTER, "ts_ms": 1767323045678}, [("-1", "3", AT)]),
    ({"op": "u", "before": AFTER, "after": {"n": 4}, "source": SOURCE}, [("-1", "3", AT), ("1", "4", AT)]),
    ({"op": "u", "before": None, "after": {"n": 4}, "source": SOURCE}, [("-1", None, AT), ("1", "4", AT)]),
    ({"schema": {}, "payload": {"op": "d", "before": AFTER, "source": SOURCE}}, [("-1", "3", AT)]),
    ({"op": "d", "before": [AFTER], "source": [SOURCE]}, [("-1", None, None)]),
    ({"op": "d", "before": AFTER, "source": {"ts_ms": 10**40}}, [("-1", "3", OWN)]),
    ({"op": "d", "before": AFTER, "source": {"ts_ms": "soon"}}, [("-1", "3", OWN)]),
    ({"op": "c", "after": {"op": "-1", "n": 3}}, [("1", "3", None)]),
    ({"op": "t", "source": SOURCE}, []),
    ({"op": "m"}, []),
    (None, []),
    ({"op": ["c"]}, [("1", None, None)]),
    ({"schema": 1, "payload": None}, [("1", None, None)]),
    ({"n": 3, "seen": OWN}, [("1", None, None)]),
    ("CANARY", [("1", None, None)]),
]


@pytest.mark.parametrize(("message", "expected"), MESSAGES)
def test_each_message_has_its_rows_whatever_it_holds(message: Any, expected: list[Any]) -> None:
    source = KafkaSource(KafkaConfig(kind="kafka", topic="any"), ("op", "n", "seen"), changes=CHANGES)
    frame = source._frame([None if message is None else json.dumps(message).encode()])
    assert frame.rows() == expected


def test_changes_need_an_op_column(tmp_path: Path) -> None:
    text = TOML.format(unit='"event"', most=9, horizon=30, source='kind = "kafka"\ntopic = "t"\nformat = "debezium"')
    with pytest.raises(ConfigError, match="changes of a table take rows away, too"):
        StreamConfig.from_toml(text, base=tmp_path)
    running = StreamConfig.from_toml('op = "op"\n' + text, base=tmp_path)
    other = StreamConfig.from_toml('op = "op"\n' + text.replace("debezium", "json"), base=tmp_path)
    assert other.differences(running.public_json()) == ['source.format: was "debezium", is not set']
    assert StreamConfig.from_toml(running.settings, base=tmp_path).genesis == running.genesis
