"""Releases in a table of a real PostgreSQL: the newest one whole, nobody's table touched, no secret told."""

# ruff: noqa: S608  # the names are those of the tests' own tables

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psycopg
import pytest
from typer.testing import CliRunner

from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.config import servers
from synthstream.environment import REAL, Env
from synthstream.errors import MirrorError, RecoveryRefused, SinkError, StateRolledBack
from synthstream.publish import postgres_table as place_module
from synthstream.publish.mirrors import Copied
from synthstream.publish.postgres_table import PostgresTable
from synthstream.stream.recovery import adopt
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.services.postgres import Server
from tests.support.environments import Interrupting, Recording, When, failing
from tests.support.mirrors import opened, prepared
from tests.support.streams import TICKS, text_of

_NUMBERS = itertools.count()
_ROLE = "publisher"

# Texts that a careless writer of COPY would change.
TEXTS = [
    "plain",
    "\\N",
    "\\.",
    'q"uo"te',
    "com,ma",
    "semi;colon",
    "it's",
    "\\\\ \\t",
    "%s %",
    "NULL",
    "é",
    "😀",
    " ",
    "ʼ",
]


@pytest.fixture
def schema(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A schema of the role that publishes, and its environment."""
    if not server.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{_ROLE}'"):
        server.execute(f"CREATE ROLE {_ROLE} LOGIN PASSWORD '{server.password}'")
    for key, value in server.environment(_ROLE).items():
        monkeypatch.setenv(key, value)
    name = f"open_{next(_NUMBERS)}"
    server.execute(f"CREATE SCHEMA {name} AUTHORIZATION {_ROLE}")
    yield name
    server.execute(f"DROP SCHEMA {name} CASCADE")


def mirror(schema: str, *, tables: bool = True) -> str:
    """Sections for both contents."""
    text = f'\n[[mirror]]\nkind = "postgres"\ntable = "{schema}.open rows"\n'.replace("open rows", '\\"Open Rows\\"')
    return text + (f'[[mirror]]\nkind = "postgres"\ntable = "{schema}.t"\ncontent = "tables"\n' if tables else "")


ROWS = '"Open Rows"'


def run(config: StreamConfig, env: Env | None = None, *, unchecked: bool = False) -> None:
    with opened(config, env, unchecked=unchecked) as stream:
        list(stream.run())


def released(config: StreamConfig, name: str, tick: int = TICKS - 1) -> pl.DataFrame:
    return pl.read_parquet(config.base / "releases" / f"{tick:06d}" / f"{name}.parquet")


def manifest(config: StreamConfig, tick: int = TICKS - 1) -> Any:
    return json.loads((config.base / "releases" / f"{tick:06d}" / "manifest.json").read_text())


def same(server: Server, table: str, frame: pl.DataFrame) -> bool:
    """Whether a table holds the rows of a frame, in any order, with their types."""
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in frame.columns)
    found = pl.DataFrame(server.execute(f"SELECT {columns} FROM {table}"), schema=frame.schema, orient="row")
    return found.sort(pl.all()).equals(frame.sort(pl.all()))


MIXED = """
[[columns]]
name = "Odd \\"name\\", é %s"
type = "category"
values = [{texts}]
[[columns]]
name = "Open"
type = "boolean"
[[columns]]
name = "rooms"
type = "integer"
min = 1
max = 3
[[columns]]
name = "select"
type = "datetime"
min = 1900-01-01
max = 2100-01-01
bins = 3
[[columns]]
name = "hour"
type = "datetime"
part = "hour"
[[columns]]
name = "small"
type = "number"
min = -1e-300
max = 1e-300
bins = 2
"""


def mixed(folder: Path, more: str) -> StreamConfig:
    """A stream with columns of every kind."""
    rng, number = np.random.default_rng(1), 3000
    times = [datetime(2026, 1, 1) + timedelta(hours=float(h)) for h in rng.uniform(0, 24 * TICKS, number)]
    folder.mkdir(exist_ok=True)
    pl.DataFrame(
        {
            "when": times,
            'Odd "name", é %s': [([*TEXTS, None])[i] for i in rng.integers(0, len(TEXTS) + 1, number)],
            "Open": [[True, False, None][i] for i in rng.integers(0, 3, number)],
            "rooms": [[1, 2, None][i] for i in rng.integers(0, 3, number)],
            "select": [None if i % 7 == 0 else at for i, at in enumerate(times)],
            "hour": times,
            "small": rng.uniform(-1e-300, 1e-300, number),
        },
        strict=False,
    ).write_parquet(folder / "rows-1.parquet")
    text = text_of("always")
    quoted = ", ".join("'''" + t + "'''" for t in TEXTS)
    return StreamConfig.from_toml(text[: text.index("[[columns]]")] + MIXED.format(texts=quoted) + more, base=folder)


@pytest.mark.sparing(1, 2)
@pytest.mark.parametrize("kind", ["mixed", "always", "epochs", "points", "persons"])
def test_both_tables_hold_the_newest_release_and_its_manifest(
    server: Server, schema: str, tmp_path: Path, kind: str
) -> None:
    config = mixed(tmp_path, mirror(schema)) if kind == "mixed" else prepared(tmp_path, mirror(schema), kind)
    with opened(config) as stream:
        for release in stream.run():
            for table, name in ((ROWS, "rows"), ("t", "tables")):
                assert same(server, f"{schema}.{table}", released(config, name, release.tick))
            found = server.execute(f"SELECT tick, head, manifest FROM {schema}.t_manifest")
            assert found == [(release.tick, release.head, manifest(config, release.tick))]
        assert stream.publish_copies() == 0
    frame = released(config, "rows")
    if kind == "mixed":
        assert set(TEXTS) <= set(frame.to_series(0)), "every text has been there"
        assert all(frame[name].null_count() for name in frame.columns[:4]), "and so have missing cells"
        types = server.execute(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attnum > 0 AND attrelid = "
            f"'{schema}.{ROWS}'::regclass ORDER BY attnum"
        )
        expected = ["text", "boolean", "bigint", "timestamp without time zone", "bigint", "double precision"]
        assert [kind for (kind,) in types] == expected
    said = server.execute(f"SELECT obj_description('{schema}.{ROWS}'::regclass)")[0][0]
    assert said.startswith("Made with simulated noise: NOT PRIVATE.")
    assert said.endswith("Its manifest: Open Rows_manifest.")


# -- tables alone ------------------------------------------------------------------------------------------------------


def facts(tick: int, head: str | None = None) -> dict[str, Any]:
    """As much of a manifest as a mirror looks at."""
    return {"name": "s", "tick": tick, "chain": {"head": head or f"head {tick}"}}


def frame_of(tick: int, number: int = 10) -> pl.DataFrame:
    """The rows of a tick."""
    values = {"tick": [tick] * number, "v": [float(i) for i in range(number)]}
    return pl.DataFrame(values, schema={"tick": pl.Int64, "v": pl.Float64})


def place(schema: str, table: str = "t", *, stream: str = "genesis", env: Env = REAL, **more: Any) -> PostgresTable:
    return PostgresTable(f"{schema}.{table}", stream=stream, env=env, **more)


def put(where: PostgresTable, tick: int, frame: pl.DataFrame | None = None) -> None:
    where.put(frame_of(tick) if frame is None else frame, tick=tick, manifest=facts(tick))


def ticks(server: Server, schema: str) -> tuple[set[int], int]:
    """Ticks of the rows in the table, and the one of the manifest."""
    found = {tick for (tick,) in server.execute(f"SELECT tick FROM {schema}.t")}
    return found, server.execute(f"SELECT tick FROM {schema}.t_manifest")[0][0]


def test_numbers_that_are_none_and_empty_releases_are_kept(server: Server, schema: str) -> None:
    odd = pl.DataFrame({"tick": [0] * 5, "v": [float("nan"), float("inf"), float("-inf"), None, 5e-324]})
    put(place(schema), 0, odd)
    assert same(server, f"{schema}.t", odd)
    put(place(schema), 1, frame_of(1, 0))
    assert server.execute(f"SELECT count(*) FROM {schema}.t") == [(0,)]
    put(place(schema), 2, frame_of(2, 120_001))
    assert server.execute(f"SELECT count(*), sum(v) FROM {schema}.t") == [(120_001, 120_000 * 120_001 / 2)]
    with pytest.raises(SinkError, match="column 'v' is List"):
        put(place(schema), 3, pl.DataFrame({"tick": [3], "v": [[1]]}))
    assert place(schema).newest() == Copied(2, "head 2")


def test_readers_see_one_release_whole_and_wait_for_none(server: Server, schema: str) -> None:
    put(place(schema), 0)
    with server.connect() as early, server.connect() as late:
        early.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        question = f"SELECT DISTINCT t.tick, m.tick FROM {schema}.t t, {schema}.t_manifest m"
        assert early.execute(question).fetchall() == [(0, 0)]
        seen: list[Any] = []
        late.execute("SET statement_timeout = '10s'")  # fails the test, if it has to wait
        env = Interrupting(lambda: seen.extend(late.execute(question).fetchall()), at="commit to PostgreSQL")
        put(place(schema, env=env), 1)
        assert seen == [(0, 0)], "all is written, and nothing can be seen yet"
        assert late.execute(question).fetchall() == [(1, 1)]
        assert early.execute(question).fetchall() == [(0, 0)], "also where it had been read before"
        early.execute("COMMIT")
        assert early.execute(question).fetchall() == [(1, 1)]


def test_views_grants_and_more_columns_survive(server: Server, schema: str) -> None:
    put(place(schema), 0)
    server.execute(
        f"CREATE VIEW {schema}.seen AS SELECT tick FROM {schema}.t; GRANT SELECT ON {schema}.t TO reader; "
        f"ALTER TABLE {schema}.t ADD twice double precision GENERATED ALWAYS AS (2 * v) STORED"
    )
    put(place(schema), 1)
    assert server.execute(f"SELECT DISTINCT tick FROM {schema}.seen") == [(1,)]
    assert server.execute(f"SELECT has_table_privilege('reader', '{schema}.t', 'SELECT')") == [(True,)]
    assert server.execute(f"SELECT max(twice) FROM {schema}.t") == [(18.0,)]


def test_an_older_release_is_never_put_back(server: Server, schema: str) -> None:
    put(place(schema), 5)
    put(place(schema), 4)
    put(place(schema), 5)
    assert ticks(server, schema) == ({5}, 5)
    with pytest.raises(StateRolledBack, match="tick 5 that is not known here"):
        place(schema).put(frame_of(5), tick=5, manifest=facts(5, "other"))
    assert ticks(server, schema) == ({5}, 5)


@pytest.mark.parametrize("there", [True, False], ids=["table", "no table yet"])
@pytest.mark.parametrize("second", [4, 6])
def test_two_writers_take_turns_and_the_newest_release_stays(
    server: Server, schema: str, there: bool, second: int
) -> None:
    if there:
        put(place(schema), 3)
    failed: list[BaseException] = []

    def write() -> None:
        try:
            put(place(schema), second)
        except BaseException as error:
            failed.append(error)

    other = threading.Thread(target=write)

    def meanwhile() -> None:
        other.start()
        for _ in range(500):
            if server.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
                return
            time.sleep(0.02)
        raise AssertionError("the second writer did not wait")

    put(place(schema, env=Interrupting(meanwhile, at="commit to PostgreSQL")), 5)
    other.join(timeout=60)
    assert not failed
    assert ticks(server, schema) == ({max(5, second)}, max(5, second))


# -- refusals ----------------------------------------------------------------------------------------------------------


def untouched(server: Server, schema: str, table: str = "t") -> str:
    """All that is in a table, and what it is."""
    oid = server.execute(f"SELECT '{schema}.{table}'::regclass::oid")
    return f"{oid} {server.execute(f'SELECT * FROM {schema}.{table}')}"


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TABLE {s}.t (tick bigint, v float8); INSERT INTO {s}.t VALUES (1, 2)",
        "CREATE TABLE {s}.t (tick bigint); CREATE TABLE {s}.t_manifest (stream text, content text)",
        "CREATE TABLE {s}.a (tick bigint); CREATE VIEW {s}.t AS SELECT * FROM {s}.a",
        "CREATE TABLE {s}.t (tick bigint) PARTITION BY LIST (tick)",
        "CREATE TABLE {s}.t (tick bigint); CREATE TABLE {s}.t_manifest "
        "(stream text, content text, tick bigint, head text, manifest jsonb)",
    ],
)
def test_a_table_of_others_is_refused_and_not_touched(server: Server, schema: str, made: str) -> None:
    server.execute(f"SET ROLE {_ROLE}; {made.format(s=schema)}; RESET ROLE")
    before = untouched(server, schema)
    for act in (place(schema).newest, lambda: put(place(schema), 0)):
        with pytest.raises(SinkError, match=r"is another table, not this stream's.*name a new one"):
            act()
    assert untouched(server, schema) == before


@pytest.mark.parametrize("planted", ["t", "t_manifest"])
def test_a_table_that_another_user_planted_runs_nothing(server: Server, schema: str, planted: str) -> None:
    put(place(schema), 0)
    server.execute(f"GRANT ALL ON SCHEMA {schema} TO reader; CREATE TABLE {schema}.seen (who text)")
    server.execute(f"GRANT INSERT ON {schema}.seen TO {_ROLE}; GRANT ALL ON {schema}.{planted} TO {_ROLE}")
    server.execute(
        f"CREATE FUNCTION {schema}.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO {schema}.seen "
        f"VALUES (current_user); RETURN NEW; END'; CREATE TRIGGER g BEFORE INSERT ON {schema}.{planted} FOR EACH ROW "
        f"EXECUTE FUNCTION {schema}.f(); ALTER TABLE {schema}.{planted} OWNER TO reader"
    )
    for act in (place(schema).newest, lambda: put(place(schema), 1)):
        with pytest.raises(SinkError, match=rf"{schema}\.{planted} belongs to another user.*ALTER TABLE"):
            act()
    assert server.execute(f"SELECT * FROM {schema}.seen") == []
    server.execute(f"ALTER TABLE {schema}.{planted} OWNER TO {_ROLE}")
    put(place(schema), 1)
    assert ticks(server, schema) == ({1}, 1)


def test_another_stream_or_content_is_refused(server: Server, schema: str) -> None:
    put(place(schema), 0)
    server.execute(f"CREATE TABLE {schema}.x AS TABLE {schema}.t; ALTER TABLE {schema}.x OWNER TO {_ROLE}")
    others = [place(schema, stream="another"), place(schema, content="tables"), place(schema, "t_manifest")]
    for other in (*others, place(schema, "x")):
        with pytest.raises(SinkError, match="is another table"):
            other.newest()
        with pytest.raises(SinkError, match="is another table"):
            put(other, 1)
    assert ticks(server, schema) == ({0}, 0)
    server.execute(f"DROP TABLE {schema}.t")  # the manifest still says whose it is
    with pytest.raises(SinkError, match="is another table"):
        put(place(schema, stream="another"), 1)


def test_a_table_that_was_dropped_is_made_anew(server: Server, schema: str) -> None:
    put(place(schema), 3)
    server.execute(f"DROP TABLE {schema}.t")
    assert place(schema).newest() is None
    put(place(schema), 3)
    assert ticks(server, schema) == ({3}, 3)


def test_a_stream_whose_table_was_dropped_goes_on_when_told_so(tmp_path: Path, server: Server, schema: str) -> None:
    config = prepared(tmp_path, mirror(schema, tables=False))
    run(config)
    server.execute(f"DROP TABLE {schema}.{ROWS}")
    with pytest.raises(MirrorError, match=r"holds nothing, although.*say --unchecked"):
        run(config)
    run(config, unchecked=True)
    assert same(server, f"{schema}.{ROWS}", released(config, "rows"))
    run(config)


def test_a_name_without_schema_is_found_and_made_where_the_server_looks(server: Server, schema: str) -> None:
    with pytest.raises(SinkError, match=r"this user may not write there\. GRANT USAGE, CREATE ON SCHEMA"):
        put(PostgresTable("t", stream="genesis"), 0)
    server.execute(f"ALTER ROLE {_ROLE} SET search_path = {schema}")
    try:
        put(PostgresTable("t", stream="genesis"), 0)
        assert ticks(server, schema) == ({0}, 0)
        assert place(schema).newest() == PostgresTable("t", stream="genesis").newest() == Copied(0, "head 0")
        server.execute(f"ALTER ROLE {_ROLE} SET search_path = ''")
        with pytest.raises(SinkError, match="names no schema"):
            PostgresTable("t", stream="genesis").newest()
    finally:
        server.execute(f"ALTER ROLE {_ROLE} RESET search_path")


CHANGES = [
    ("ALTER TABLE {s}.t DROP v", "column 'v' must be there as double precision"),
    ("ALTER TABLE {s}.t ALTER v TYPE integer", "column 'v' must be there as double precision"),
    ("ALTER TABLE {s}.t ADD CHECK (tick = 0)", "a constraint that somebody added"),
    ("ALTER TABLE {s}.t OWNER TO owner", "GRANT SELECT, INSERT, DELETE ON {s}.t, {s}.t_manifest"),
    ("ALTER TABLE {s}.t_manifest OWNER TO owner", "GRANT SELECT, INSERT, DELETE ON {s}.t, {s}.t_manifest"),
    ("ALTER TABLE {s}.t OWNER TO owner; GRANT ALL ON {s}.t TO publisher; ALTER TABLE {s}.t ENABLE ROW LEVEL SECURITY; "
     "CREATE POLICY p ON {s}.t USING (v > 3)", "policies that hide rows"),
    ("CREATE RULE r AS ON DELETE TO {s}.t DO INSTEAD NOTHING", "a trigger or rule that somebody added"),
    ("CREATE FUNCTION {s}.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
     "CREATE TRIGGER g BEFORE INSERT ON {s}.t FOR EACH ROW WHEN (new.v > 3) EXECUTE FUNCTION {s}.f()",
     "a trigger or rule that somebody added"),
    ("CREATE PUBLICATION pub FOR TABLE {s}.t", "REPLICA IDENTITY FULL"),
    ("ALTER ROLE publisher SET statement_timeout = '1ms'; CREATE FUNCTION {s}.f() RETURNS trigger LANGUAGE plpgsql AS "
     "'BEGIN PERFORM pg_sleep(1); RETURN NEW; END'; CREATE TRIGGER g BEFORE INSERT ON {s}.t FOR EACH ROW EXECUTE "
     "FUNCTION {s}.f()", "statement_timeout"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("change", "says"), CHANGES, ids=[change[:40] for change, _ in CHANGES])
def test_what_somebody_changed_is_told_with_its_fix_and_the_old_release_stays(
    server: Server, schema: str, change: str, says: str
) -> None:
    put(place(schema), 0)
    server.execute(change.format(s=schema))
    before = untouched(server, schema)
    try:
        with pytest.raises(SinkError) as caught:
            put(place(schema), 1)
    finally:
        server.execute("ALTER ROLE publisher RESET statement_timeout; DROP PUBLICATION IF EXISTS pub")
    assert says.format(s=schema) in str(caught.value)
    assert untouched(server, schema) == before


def test_roles_that_read_only_by_default_or_serialize_publish_all_the_same(server: Server, schema: str) -> None:
    server.execute(
        "ALTER ROLE publisher SET default_transaction_read_only = on; "
        "ALTER ROLE publisher SET default_transaction_isolation = 'serializable'"
    )
    try:
        put(place(schema), 0)
        put(place(schema), 1)
    finally:
        server.execute("ALTER ROLE publisher RESET ALL")
    assert ticks(server, schema) == ({1}, 1)


def test_a_server_where_backslashes_escape_in_statements_gets_the_same_texts(server: Server, schema: str) -> None:
    frame = pl.DataFrame({"n": range(len(TEXTS) + 2), "v": [*TEXTS, "", None]})
    server.execute("ALTER ROLE publisher SET standard_conforming_strings = off")
    try:
        put(place(schema), 0, frame)
    finally:
        server.execute("ALTER ROLE publisher RESET ALL")
    assert same(server, f"{schema}.t", frame)


@pytest.mark.parametrize("change", ["tick = NULL", "head = NULL", "tick = -1"])
def test_a_manifest_that_names_no_release_is_told_with_its_fix(server: Server, schema: str, change: str) -> None:
    put(place(schema), 0)
    server.execute(f"UPDATE {schema}.t_manifest SET {change}")
    before = untouched(server, schema)
    for act in (place(schema).newest, lambda: put(place(schema), 1)):
        with pytest.raises(
            SinkError, match=rf"names no release. Drop {schema}\.t, and run with --unchecked: it is made"
        ):
            act()
    assert untouched(server, schema) == before
    server.execute(f"DROP TABLE {schema}.t")
    put(place(schema), 1)
    assert place(schema).newest() == Copied(1, "head 1")


def test_a_table_that_is_held_is_not_waited_for_for_ever(
    server: Server, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place(schema), 0)
    monkeypatch.setattr(place_module, "_BEGIN", place_module._BEGIN.replace("60s", "50ms"))
    with server.connect() as other:
        other.execute(f"BEGIN; INSERT INTO {schema}.t VALUES (7, 7)")
        with pytest.raises(SinkError, match="somebody has held the table"):
            put(place(schema), 1)
        other.execute("COMMIT")
    put(place(schema), 1)
    assert ticks(server, schema) == ({1}, 1), "also without the row of the other"


def test_a_standby_and_a_poor_encoding_are_told(server: Server, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    server.execute(f"CREATE SCHEMA {schema} AUTHORIZATION {_ROLE}", "latin")
    monkeypatch.setenv("PGDATABASE", "latin")
    put(place(schema, "a"), 0, pl.DataFrame({"v": ["é"]}))
    with pytest.raises(SinkError, match="Use a database in UTF-8"):
        put(place(schema, "b"), 0, pl.DataFrame({"v": ["😀"]}))
    with pytest.raises(SinkError, match="Use a database in UTF-8"):
        put(place(schema, "b"), 0, pl.DataFrame({"v": ["\x00"]}))
    monkeypatch.setattr(place_module, "_rows", lambda *_: [(True,)])
    with pytest.raises(SinkError, match="Connect to the primary"):
        place(schema, "a").newest()


# -- connections -------------------------------------------------------------------------------------------------------


def test_no_connection_is_told_without_a_secret(
    server: Server, schema: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    services = tmp_path / "pg_service.conf"
    text = f"[mine]\nhost={server.folder}\nuser={_ROLE}\npassword=CANARY\ndbname=postgres\n"
    services.write_text(text)
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    for key in ("PGHOST", "PGUSER", "PGDATABASE", "PGPASSWORD"):
        monkeypatch.delenv(key)
    cases: list[tuple[dict[str, str], str | None, str]] = [
        ({}, "mine", "refused this user or password"),
        ({}, "other", 'there is no service "other"'),
        ({"PGSERVICE": "CANARY"}, None, "there is no such service"),
        ({"PGHOST": str(tmp_path / "CANARY")}, None, "no server answers there"),
        ({"PGHOST": "127.0.0.1", "PGPORT": "1"}, None, "no server answers there"),
        (server.environment(_ROLE, database="CANARYdb"), None, "no such database"),
        (server.environment("nobody-CANARY"), None, "refused this user or password"),
    ]
    for settings, service, says in cases:
        with monkeypatch.context() as patch:
            for key, value in settings.items():
                patch.setenv(key, value)
            for act in (place(schema, service=service).newest, lambda s=service: put(place(schema, service=s), 0)):
                with pytest.raises(SinkError, match=says) as caught:
                    act()
        for secret in ("CANARY", str(server.folder), str(tmp_path), "127.0.0.1"):
            assert secret not in str(caught.value)
        assert caught.value.__suppress_context__
    services.write_text(text.replace("CANARY", server.password))
    put(place(schema, service="mine"), 0)
    with pytest.raises(SinkError, match=r"there is no such schema. Say CREATE SCHEMA nowhere"):
        put(place("nowhere", service="mine"), 0)
    server.execute(f"ALTER ROLE {_ROLE} CONNECTION LIMIT 0")
    try:
        with pytest.raises(SinkError, match="all connections of the server are taken"):
            put(place(schema, service="mine"), 1)
    finally:
        server.execute(f"ALTER ROLE {_ROLE} CONNECTION LIMIT -1")
    assert not caplog.records, "psycopg's own log would name host and user"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("FATAL:  the database system is starting up", "just starting"),
        ("FATAL:  the database system is shutting down", "shutting down"),
        ('FATAL:  no pg_hba.conf entry for host "h", user "u", database "d", no encryption', "pg_hba.conf"),
        ('could not translate host name "database" to address: Name or service not known', "Check PGHOST"),
        ('connection to server at "password-role", port 5432 failed: Connection refused', "no server answers"),
        ('FATAL:  database "too many" does not exist', "no such database"),
        ('FATAL:  role "database" does not exist', "no such user"),
    ],
)
def test_what_a_server_or_host_is_called_does_not_change_why_it_fails(text: str, says: str) -> None:
    assert says in servers._why(text, None)


def test_a_connection_that_is_lost_leaves_the_old_release(
    server: Server, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(place(schema), 0)
    ask = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{_ROLE}'"

    def end() -> None:
        server.execute(ask)

    with pytest.raises(SinkError, match="the connection was lost"):
        put(place(schema, env=Interrupting(end, at="commit to PostgreSQL")), 1)
    assert ticks(server, schema) == ({0}, 0)
    put(place(schema), 1)
    assert ticks(server, schema) == ({1}, 1)
    assert not caplog.records


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.sparing(2)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", ["write to PostgreSQL", "commit to PostgreSQL"])
def test_a_mirror_that_fails_is_caught_up_and_nothing_comes_twice(
    server: Server, schema: str, tmp_path: Path, when: When, at: str
) -> None:
    config = prepared(tmp_path, mirror(schema))
    with opened(config, failing(5, at=at, number=5, when=when)) as stream:
        stream.ingest()
        for _ in range(2):
            stream.release()
        with pytest.raises(MirrorError, match="will be copied when you run again"):
            stream.release()
        assert stream.closed == 3, "the release is out"
    with opened(config) as stream:
        assert stream.publish_copies() == (0 if (at, when) == ("commit to PostgreSQL", "after") else 1)
        assert stream.publish_copies() == 0
        assert same(server, f"{schema}.{ROWS}", released(config, "rows", 2))
        list(stream.run())
    assert same(server, f"{schema}.{ROWS}", released(config, "rows"))


KILLED = """
import sys
from pathlib import Path
from tests.support.environments import killed
from tests.services.test_postgres_mirror import opened, prepared
_, folder, more, at, when = sys.argv
with opened(prepared(Path(folder), more), killed(at=at, number=5, when=when)) as stream:
    list(stream.run())
"""


@pytest.mark.parametrize(
    ("at", "when", "missing"),
    [
        pytest.param("write to PostgreSQL", "after", 2, marks=pytest.mark.slow),
        pytest.param("commit to PostgreSQL", "before", 2, marks=pytest.mark.slow),
        ("commit to PostgreSQL", "after", 1),
    ],
)
def test_a_process_that_is_killed_goes_on_where_it_stopped(
    server: Server, schema: str, tmp_path: Path, at: str, when: str, missing: int
) -> None:
    config = prepared(tmp_path, mirror(schema))
    command = [sys.executable, "-c", KILLED, str(tmp_path), mirror(schema), at, when]
    assert subprocess.run(command, check=False).returncode == -9  # noqa: S603
    held = 2 if missing == 1 else 1
    assert same(server, f"{schema}.{ROWS}", released(config, "rows", held)), "one release, whole"
    with opened(config) as stream:
        assert stream.publish_copies() == missing
        list(stream.run())
    assert same(server, f"{schema}.{ROWS}", released(config, "rows"))


@pytest.mark.parametrize("keep", [None, 1])
def test_after_weeks_without_the_mirror_only_the_newest_release_is_copied(
    server: Server, schema: str, tmp_path: Path, keep: int | None
) -> None:
    config = prepared(tmp_path, "")
    config = replace(config, sink=config.sink and config.sink.model_copy(update={"keep": keep}))
    run(config)
    env = Recording()
    with opened(replace(prepared(tmp_path, mirror(schema)), sink=config.sink), env) as stream:
        assert stream.publish_copies() == 2
    assert env.names.count("commit to PostgreSQL") == 2
    assert same(server, f"{schema}.{ROWS}", released(config, "rows"))
    assert server.execute(f"SELECT tick FROM {schema}.t_manifest") == [(TICKS - 1,)]


def test_a_server_that_is_down_delays_no_release_however_often_it_is_tried(
    server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = prepared(tmp_path, mirror(schema))
    host = server.environment()["PGHOST"]
    monkeypatch.setenv("PGHOST", str(tmp_path / "nowhere"))
    with pytest.raises(MirrorError, match=r"no server answers there.*with --unchecked"):
        run(config)
    assert not (tmp_path / "state").exists(), "nothing was made, nothing was charged"
    for _ in range(2):
        with pytest.raises(MirrorError, match=r"no server answers there.*will be copied when you run again"):
            run(config, unchecked=True)
        assert manifest(config)["unchecked"] == ["postgres 1", "postgres 2"]
        assert released(config, "rows", TICKS - 1).height
    monkeypatch.setenv("PGHOST", host)
    run(config)
    assert same(server, f"{schema}.{ROWS}", released(config, "rows"))


def test_the_command_makes_all_releases_and_says_what_is_wrong(
    server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(tmp_path, "")
    (tmp_path / "stream.toml").write_text(text_of("always") + mirror(schema))
    command = ["run", str(tmp_path / "stream.toml"), "--yes", "--until", "2026-01-04"]
    with monkeypatch.context() as patch:
        patch.setenv("PGPASSWORD", "CANARY")
        for _ in range(2):
            found = CliRunner().invoke(app, [*command, "--unchecked"])
            assert found.exit_code == 2
            said = " ".join(found.output.split())
            assert "refused this user or password" in said
            assert "CANARY" not in said
            assert (tmp_path / "releases" / "000002").is_dir()
            assert "3 in all" in said
    assert server.execute(f"SELECT to_regclass('{schema}.t')") == [(None,)]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert server.execute(f"SELECT tick FROM {schema}.t_manifest") == [(2,)]


def test_what_a_snapshot_forgot_is_not_drawn_again(server: Server, schema: str, tmp_path: Path) -> None:
    config = prepared(tmp_path / "s", mirror(schema))
    with opened(config) as stream:
        stream.ingest()
        stream.release()
        for name in ("state", "releases"):
            shutil.copytree(tmp_path / "s" / name, tmp_path / name)
        stream.release()
    for name in ("state", "releases"):
        shutil.rmtree(tmp_path / "s" / name)
        shutil.move(tmp_path / name, tmp_path / "s" / name)
    for unchecked in (False, True):
        with pytest.raises(StateRolledBack, match=r'Open Rows" holds a release of tick 1 that is not known here'):
            run(config, unchecked=unchecked)
    shutil.rmtree(config.state)
    with pytest.raises(RecoveryRefused, match="tick 1 that is not known here"):
        adopt(config, gates=lambda tick: SeededGate(f"5/{tick}"), seed=5)
    assert not (tmp_path / "s/releases/000001").exists()
    assert ticks_of(server, schema) == [(1,)]


def ticks_of(server: Server, schema: str) -> Any:
    return server.execute(f"SELECT tick FROM {schema}.t_manifest")


def test_the_table_of_the_source_is_never_emptied(
    server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the configuration cannot tell: the same database under the name of a service."""
    services = tmp_path / "pg_service.conf"
    settings = server.environment(_ROLE)
    services.write_text(
        f"[mine]\nhost={settings['PGHOST']}\nuser={_ROLE}\npassword={server.password}\ndbname=postgres\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    server.execute(
        f'SET ROLE {_ROLE}; CREATE TABLE {schema}.events (id bigserial PRIMARY KEY, "when" text, ward text, x text); '
        f"INSERT INTO {schema}.events (\"when\", ward, x) VALUES ('2026-01-01', 'A', '1'); RESET ROLE"
    )
    text = text_of("always").replace(
        'kind = "parquet"\npath = "rows-*.parquet"',
        f'kind = "postgres"\ntable = "{schema}.events"\nsequence = "id"',
    )
    more = f'[[mirror]]\nkind = "postgres"\ntable = "{schema}.events"\nservice = "mine"\n'
    config = StreamConfig.from_toml(text + more, base=tmp_path)
    for unchecked in (False, True):
        with pytest.raises(SinkError, match="is another table, not this stream's"):
            run(config, unchecked=unchecked)
    assert server.execute(f"SELECT ward FROM {schema}.events") == [("A",)]
    assert released(config, "rows", 0).height >= 0, "the release is out"


def test_without_the_package_nothing_is_made_and_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make: Callable[[], Stream] = lambda: opened(prepared(tmp_path, mirror("open")))  # noqa: E731
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "synthstream.publish.postgres_table")
    with pytest.raises(SinkError, match=r"pip install 'synthstream\[postgres\]'"):
        make()
    assert not (tmp_path / "state").exists(), "nothing was made, nothing was charged"


def test_it_is_a_transaction_of_psycopg_that_is_rolled_back(server: Server, schema: str) -> None:
    """Whatever happens in between: also what is no error."""

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        put(place(schema, env=Interrupting(stop, at="commit to PostgreSQL")), 0)
    assert server.execute(f"SELECT to_regclass('{schema}.t')") == [(None,)]
    with pytest.raises(psycopg.errors.UndefinedTable):
        server.execute(f"SELECT FROM {schema}.t_manifest")
