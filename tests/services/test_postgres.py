"""The PostgreSQL source against a real server: nothing skipped, nothing twice, no cell that raises, clear errors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest

from synthstream.config.sources import PostgresConfig
from synthstream.errors import SchemaError, SourceError
from synthstream.ingest import postgres as source_module
from synthstream.ingest.codebooks import of_catalogue
from synthstream.ingest.postgres import PostgresSource
from synthstream.publish.postgres_table import PostgresTable
from tests.services import feeds
from tests.services.postgres import Server

_NAMES = itertools.count()
_OPEN: list[PostgresSource] = []


@pytest.fixture
def table(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A table that the reader may read, and the reader's environment."""
    for key, value in server.environment().items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(source_module, "_PATIENCE", 0.1)
    name = f"t{next(_NAMES)}"
    server.execute(
        f"CREATE TABLE {name} (id bigserial PRIMARY KEY, v text); GRANT SELECT ON {name}, {name}_id_seq TO reader"
    )
    yield name
    while _OPEN:
        _OPEN.pop().close()
    server.execute(f"DROP TABLE IF EXISTS {name} CASCADE")


def source(table: str, *columns: str, **more: Any) -> PostgresSource:
    made = PostgresSource(PostgresConfig(kind="postgres", table=table, sequence="id", **more), columns or ("v",))
    _OPEN.append(made)
    return made


def at(table: str, text: str) -> str:
    """A statement about a table, for which @ stands."""
    return text.replace("@", table)


class Reader(feeds.Reader[PostgresSource]):
    def __init__(self, table: str, *columns: str, **more: Any) -> None:
        super().__init__(source(table, *columns, **more))


def test_rows_come_in_pages_once_each(server: Server, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_PAGE_ROWS", 7)
    reader = Reader(table)
    assert reader.more() == []
    server.execute(at(table, "INSERT INTO @ (v) SELECT g::text FROM generate_series(1, 50) g"))
    frames = list(source(table).read(None))
    assert [len(frame) for frame, _ in frames] == [7] * 7 + [1]
    assert reader.more() == [str(i) for i in range(1, 51)]
    assert reader.more() == []
    server.execute(at(table, "INSERT INTO @ (v) VALUES ('new')"))
    assert reader.more() == ["new"]
    for i, (_, cursor) in list(enumerate(frames))[::3]:  # from every cursor, what is left
        again = Reader(table)
        again.after = cursor
        assert len(again.more()) == max(50 - 7 * (i + 1), 0) + 1


def test_rows_of_one_number_are_not_parted(server: Server, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server.execute(at(table, "ALTER TABLE @ DROP CONSTRAINT @_pkey; CREATE INDEX ON @ (id)"))
    server.execute(at(table, "INSERT INTO @ (v) SELECT 'x' FROM generate_series(1, 4); UPDATE @ SET id = 2"))
    monkeypatch.setattr(source_module, "_PAGE_ROWS", 3)
    assert [len(frame) for frame, _ in source(table).read(None)] == [4]


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK"])
def test_who_commits_late_is_not_skipped(server: Server, table: str, ending: str) -> None:
    reader = Reader(table)
    with server.connect() as late:
        late.execute(at(table, "BEGIN; INSERT INTO @ (v) VALUES ('late')"))
        server.execute(at(table, "INSERT INTO @ (v) VALUES ('soon')"))
        assert reader.more() == []
        assert reader.source.waits
        late.execute(ending)
    assert reader.more() == (["late", "soon"] if ending == "COMMIT" else ["soon"])
    assert not reader.source.waits
    assert reader.more() == []


def test_that_test_can_fail(server: Server, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresSource, "_writers", lambda self, table: frozenset())
    reader = Reader(table)
    with server.connect() as late:
        late.execute(at(table, "BEGIN; INSERT INTO @ (v) VALUES ('late')"))
        server.execute(at(table, "INSERT INTO @ (v) VALUES ('soon')"))
        assert reader.more() == ["soon"]
        late.execute("COMMIT")
    assert reader.more() == []  # skipped for ever


def test_what_was_proven_safe_earlier_is_read_while_others_still_write(server: Server, table: str) -> None:
    reader = Reader(table)
    with server.connect() as first, server.connect() as second:
        first.execute(at(table, "BEGIN; INSERT INTO @ (v) VALUES ('first')"))
        server.execute(at(table, "INSERT INTO @ (v) VALUES ('between')"))
        assert reader.more() == []
        second.execute(at(table, "BEGIN; INSERT INTO @ (v) VALUES ('second')"))
        server.execute(at(table, "INSERT INTO @ (v) VALUES ('after')"))
        first.execute("COMMIT")
        assert reader.more() == ["first", "between"]
        assert reader.more() == []
        second.execute("COMMIT")
    assert reader.more() == ["second", "after"]


def test_writers_that_end_soon_are_waited_for_and_none_is_made_to_wait(
    server: Server, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_PATIENCE", 30.0)
    with server.connect() as late:
        late.execute(at(table, "BEGIN; INSERT INTO @ (v) VALUES ('late')"))

        def rest(seconds: float) -> None:
            late.execute(at(table, "INSERT INTO @ (v) VALUES ('later'); COMMIT"))
            server.execute(at(table, "INSERT INTO @ (v) VALUES ('not yet')"))

        monkeypatch.setattr(time, "sleep", rest)
        reader = Reader(table)
        assert reader.more() == ["late"]
        assert reader.more() == ["later", "not yet"]


def test_a_prepared_transaction_is_still_one_of_those_that_were_seen(server: Server, table: str) -> None:
    reader = Reader(table)
    with server.connect() as late:
        late.execute(at(table, "BEGIN; INSERT INTO @ (v) VALUES ('late')"))
        server.execute(at(table, "INSERT INTO @ (v) VALUES ('soon')"))
        assert reader.more() == []
        late.execute(at(table, "PREPARE TRANSACTION '@'"))
    assert reader.more() == []
    server.execute(at(table, "COMMIT PREPARED '@'"))
    assert reader.more() == ["late", "soon"]


def test_many_looks_are_not_all_remembered(server: Server, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_PATIENCE", 0.0)
    monkeypatch.setattr(source_module, "_LOOKS", 4)
    reader = Reader(table)
    with server.connect() as late:
        late.execute(at(table, "BEGIN; INSERT INTO @ (v) VALUES ('late')"))
        for _ in range(9):
            server.execute(at(table, "INSERT INTO @ (v) VALUES ('soon')"))
            assert reader.more() == []
        assert len(reader.source._looks) <= 5
        late.execute("COMMIT")
    assert reader.more() == ["late", *["soon"] * 9]


def test_who_writes_to_a_part_is_seen(server: Server, table: str) -> None:
    server.execute(
        at(
            table,
            "DROP TABLE @; CREATE SEQUENCE @_s; GRANT SELECT ON SEQUENCE @_s TO reader; "
            "CREATE TABLE @ (id bigint NOT NULL DEFAULT nextval('@_s'), v text) PARTITION BY LIST (v); "
            "CREATE INDEX ON @ (id); CREATE TABLE @_a PARTITION OF @ FOR VALUES IN ('a'); "
            "CREATE TABLE @_b PARTITION OF @ FOR VALUES IN ('b'); GRANT SELECT ON @ TO reader",
        )
    )
    reader = Reader(table)
    with server.connect() as late:
        late.execute(at(table, "BEGIN; INSERT INTO @_a (v) VALUES ('a')"))
        server.execute(at(table, "INSERT INTO @ (v) VALUES ('b')"))
        assert reader.more() == []
        late.execute("COMMIT")
    assert reader.more() == ["a", "b"]


CELLS = {
    "text": [("red", "red"), ("it''s \\ \n, \"q\"", 'it\'s \\ \n, "q"'), ("", ""), ("é😀", "é😀")],
    "varchar(5)": [("red", "red")],
    "integer": [("7", "7"), ("-1", "-1")],
    "numeric": [("1.50", "1.50"), ("NaN", "NaN"), ("-Infinity", "-Infinity"), ("1e200", "1" + "0" * 200)],
    "float8": [("0.1", "0.1"), ("NaN", "NaN"), ("Infinity", "Infinity"), ("1e300", "1e+300")],
    "boolean": [("t", "true"), ("f", "false")],
    "date": [("2026-01-31", "2026-01-31"), ("infinity", "infinity"), ("0044-03-15 BC", "0044-03-15 BC")],
    "timestamp": [("2026-01-31 12:30:00.25", "2026-01-31 12:30:00.25"), ("-infinity", "-infinity")],
    "timestamptz": [
        ("2026-01-31 12:30:00+05:30", "2026-01-31 07:00:00+00:00"),
        ("infinity", "infinity:00"),
        ("0044-03-15 12:00+00 BC", "0044-03-15 12:00:00+00 BC:00"),
        ("294276-12-31 00:00+00", "294276-12-31 00:00:00+00:00"),
    ],
    "moment": [("2026-01-31 12:30:00+05:30", "2026-01-31 07:00:00+00:00")],
    "interval": [("1 day", "1 day")],
    "bytea": [("\\x00ff", "\\x00ff")],
    "jsonb": [('{"a": [1]}', '{"a": [1]}')],
    "int[]": [("{1,NULL}", "{1,NULL}")],
    "uuid": [("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000")],
    "int4range": [("[1,5)", "[1,5)")],
    "mood": [("sad", "sad")],
}


def test_every_type_is_text_and_no_cell_raises(server: Server, table: str) -> None:
    server.execute("CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN day AS timestamptz; CREATE DOMAIN moment AS day")
    kinds = list(CELLS)
    columns = ", ".join(f'"Ä {i}" {kind}' for i, kind in enumerate(kinds))
    server.execute(f"DROP TABLE {table}; CREATE TABLE {table} (id serial PRIMARY KEY, {columns})")
    server.execute(at(table, "GRANT SELECT ON @, @_id_seq TO reader; ALTER ROLE reader SET datestyle = 'SQL, DMY'"))
    for i, kind in enumerate(kinds):
        for cell, _ in CELLS[kind]:
            server.execute(at(table, "INSERT INTO @ (%) VALUES ('$')").replace("%", f'"Ä {i}"').replace("$", cell))
    server.execute(at(table, "INSERT INTO @ DEFAULT VALUES; INSERT INTO @ (\"Ä 0\") VALUES (repeat('x', 10000000))"))
    frame = pl.concat(frame for frame, _ in source(table, *(f"Ä {i}" for i in range(len(kinds)))).read(None))
    assert set(frame.dtypes) == {pl.String}
    expected = [(f"Ä {i}", text) for i, kind in enumerate(kinds) for _, text in CELLS[kind]]
    for row, (name, text) in zip(frame.iter_rows(named=True), expected, strict=False):
        assert {key: cell for key, cell in row.items() if cell is not None} == {name: text}
    assert set(frame.row(-2)) == {None}
    assert frame.row(-1)[0] == "x" * 4096


LARGE = [
    ("bytea", "decode(repeat('ab', 200000), 'hex')", "decode('ab', 'hex')", "\\xab"),
    ("text[]", "ARRAY[repeat('\"', 200000)]", "ARRAY['\"']", '{"\\""}'),
    ("jsonb", "to_jsonb(repeat(chr(1), 200000))", "to_jsonb(1)", "1"),
]


@pytest.mark.parametrize(("kind", "large", "small", "read"), LARGE, ids=[kind for kind, *_ in LARGE])
def test_a_large_cell_that_is_no_text_is_missing(
    server: Server, table: str, kind: str, large: str, small: str, read: str
) -> None:
    """Of half a gigabyte and more the server could not make a text, and would refuse the page for ever."""
    server.execute(at(table, f"ALTER TABLE @ ALTER v TYPE {kind} USING NULL, ALTER v SET STORAGE EXTERNAL"))
    for cell in (large, small):
        server.execute(at(table, "INSERT INTO @ (v) VALUES ($)").replace("$", cell))
    assert Reader(table).more() == [None, read]


def test_a_type_whose_text_its_owner_computes_does_not_raise(server: Server, table: str) -> None:
    server.execute(
        "CREATE TYPE pair AS (a text); CREATE FUNCTION bad(pair) RETURNS text LANGUAGE sql AS 'SELECT (1/0)::text'; "
        "CREATE CAST (pair AS text) WITH FUNCTION bad(pair)"
    )
    server.execute(at(table, "ALTER TABLE @ ADD w pair; INSERT INTO @ (w) VALUES (ROW('x'))"))
    assert Reader(table, "w").more() == ["(x)"]
    server.execute("DROP TYPE pair CASCADE")


def test_a_column_that_is_computed_when_it_is_read_is_none(
    server: Server, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual columns are newer than some servers: here stored ones stand for them."""
    server.execute(at(table, "ALTER TABLE @ ADD w int GENERATED ALWAYS AS (10 / length(v)) STORED"))
    assert Reader(table, "w").more() == []
    monkeypatch.setattr(source_module, "_COLUMNS", source_module._COLUMNS.replace("<> 'v'", "<> 's'"))
    with pytest.raises(SchemaError, match="column 'w' is missing"):
        Reader(table, "w").more()


@pytest.mark.parametrize(
    ("encoding", "bad", "read"),
    [("SQL_ASCII", "\\xff41", "\ufffdA"), ("WIN1252", "\\x8141", "\ufffdA")],
)
def test_no_encoding_makes_a_cell_raise(
    server: Server, table: str, encoding: str, bad: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"db_{encoding.lower()}"
    server.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
    server.execute(
        "CREATE TABLE t (id serial PRIMARY KEY, v text); GRANT SELECT ON t, t_id_seq TO reader; "
        "INSERT INTO t (v) VALUES (convert_from('@', getdatabaseencoding())), ('plain'), (NULL)".replace("@", bad),
        name,
    )
    monkeypatch.setenv("PGDATABASE", name)
    assert Reader("t").more() == [read, "plain", None]


def test_an_encoding_that_nobody_reads_is_refused(server: Server, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server.execute("CREATE DATABASE mule ENCODING 'MULE_INTERNAL' TEMPLATE template0")
    monkeypatch.setenv("PGDATABASE", "mule")
    with pytest.raises(SourceError, match="cannot be read as UTF-8"):
        Reader("t").more()
    server.execute("CREATE DATABASE taiwan ENCODING 'EUC_TW' TEMPLATE template0")
    server.execute("CREATE TABLE t (id serial PRIMARY KEY, v text); GRANT SELECT ON t, t_id_seq TO reader", "taiwan")
    monkeypatch.setenv("PGDATABASE", "taiwan")
    with pytest.raises(SourceError, match="EUC_TW"):
        Reader("t").more()


REFUSED = [
    ("DROP TABLE {t}", "there is no such table", SourceError),
    ("ALTER TABLE {t} RENAME COLUMN v TO vv", "column 'v' is missing. Did you mean 'vv'", SchemaError),
    ("ALTER TABLE {t} RENAME COLUMN id TO number", "column 'id' is missing", SchemaError),
    ("ALTER TABLE {t} DROP COLUMN v", "column 'v' is missing", SchemaError),
    ("REVOKE SELECT ON {t} FROM reader", "GRANT SELECT ON {t} TO this user, and USAGE ON its SCHEMA", SourceError),
    ("ALTER TABLE {t} RENAME TO \"{t}_Old\"", "'public.\"Visits\"' if its name has capitals", SourceError),
    ("REVOKE SELECT ON SEQUENCE {t}_id_seq FROM reader", "GRANT SELECT ON SEQUENCE public.{t}_id_seq", SourceError),
    ("ALTER SEQUENCE {t}_id_seq CACHE 20", "ALTER SEQUENCE public.{t}_id_seq CACHE 1", SourceError),
    ("ALTER SEQUENCE {t}_id_seq CYCLE", "NO CYCLE", SourceError),
    ("ALTER SEQUENCE {t}_id_seq INCREMENT -1 MINVALUE -5", "INCREMENT 1", SourceError),
    ("ALTER TABLE {t} ALTER id DROP DEFAULT", "no sequence fills it", SourceError),
    ("ALTER TABLE {t} ALTER id SET DEFAULT 5 + nextval('{t}_id_seq')", "no sequence fills it", SourceError),
    ("ALTER TABLE {t} ALTER id SET DEFAULT -nextval('{t}_id_seq')", "no sequence fills it", SourceError),
    ("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey", "CREATE INDEX CONCURRENTLY ON {t} \\(id\\)", SourceError),
    ("ALTER TABLE {t} ALTER id TYPE numeric", "must be a column of integers", SourceError),
    ("ALTER TABLE {t} RENAME TO {t}_old; CREATE VIEW {t} AS SELECT * FROM {t}_old", "is not a table", SourceError),
    ("ALTER TABLE {t} ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON {t} USING (v <> 'b')", "a policy", SourceError),
    ("ALTER SEQUENCE {t}_id_seq RESTART; INSERT INTO {t} (id, v) VALUES (90, 'c')", "was set back", SourceError),
    ("DROP TABLE {t}; CREATE TABLE {t} (id bigserial PRIMARY KEY, v text); INSERT INTO {t} (v) VALUES ('a'), ('b'); "
     "GRANT SELECT ON {t}, {t}_id_seq TO reader", "from another log", SourceError),
]  # fmt: skip


# What somebody may make who may create in a schema that is on everybody's path, as all may up to PostgreSQL 14. Each
# fits the types of a call better than what PostgreSQL brings.
_TRAPS = {
    "format(text, text)": "text",
    "format(text, integer)": "text",
    "format(text, regclass)": "text",
    "pg_column_size(integer)": "integer",
    "pg_partition_tree(smallint)": "oid",
    "pg_partition_tree(integer)": "oid",
    "hashtextextended(text, integer)": "bigint",
    "same(oid, smallint)": "boolean",
    "same(oid, integer)": "boolean",
    "same(oid, regclass)": "boolean",
}


def test_nothing_is_called_that_others_have_made(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would run with the rights of the user of a source, a draft or a mirror."""
    server.execute("CREATE DATABASE shared")
    server.execute("CREATE TABLE t (id bigserial PRIMARY KEY, age integer); INSERT INTO t (age) VALUES (40)", "shared")
    server.execute("GRANT SELECT ON t, t_id_seq TO reader; CREATE SCHEMA open AUTHORIZATION reader", "shared")
    for name, kind in _TRAPS.items():
        body = "BEGIN RAISE EXCEPTION 'called'; END"
        server.execute(f"CREATE FUNCTION {name} RETURNS {kind} LANGUAGE plpgsql AS $${body}$$", "shared")
    for kind in ("smallint", "integer", "regclass"):
        server.execute(f"CREATE OPERATOR = (LEFTARG = oid, RIGHTARG = {kind}, FUNCTION = same)", "shared")
    for key, value in server.environment(database="shared").items():
        monkeypatch.setenv(key, value)
    assert [frame.rows() for frame, _ in source("t", "age").read(None)] == [[("40",)]]
    assert [column.name for column in of_catalogue("t", service=None).columns] == ["id", "age"]
    mirror = PostgresTable("open.copy", stream="s")
    mirror.put(pl.DataFrame({"age": ["40"]}), tick=0, manifest={"name": "s", "chain": {"head": "h"}})
    assert mirror.newest() == (0, "h")
    while _OPEN:
        _OPEN.pop().close()


@pytest.mark.parametrize(("change", "says", "kind"), REFUSED, ids=[says[:25] for _, says, _ in REFUSED])
def test_what_the_catalogue_shows_is_told_with_its_fix(
    server: Server, table: str, change: str, says: str, kind: type[Exception]
) -> None:
    server.execute(at(table, "INSERT INTO @ (v) VALUES ('a'), ('b')"))
    reader = Reader(table)
    assert reader.more() == ["a", "b"]
    server.execute(change.format(t=table))
    with pytest.raises(kind, match=says.format(t=table)) as caught:
        reader.more()
    assert str(caught.value).startswith(at(table, "postgres @: "))
    assert server.password not in str(caught.value)
    server.execute(at(table, "DROP TABLE IF EXISTS @_old CASCADE"))


def test_a_default_that_is_cast_numbers_rows_all_the_same(server: Server, table: str) -> None:
    server.execute(at(table, """CREATE SEQUENCE "It's @"; GRANT SELECT ON "It's @" TO reader"""))
    server.execute(at(table, """ALTER TABLE @ ALTER id SET DEFAULT nextval('"It''s @"')::int"""))
    server.execute(at(table, "INSERT INTO @ (v) VALUES ('a'), ('b')"))
    assert Reader(table).more() == ["a", "b"]
    server.execute(at(table, """DROP SEQUENCE "It's @" CASCADE"""))


def test_a_table_that_takes_the_name_while_it_is_read_gives_no_row(
    server: Server, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute(
        at(
            table,
            "CREATE TABLE @_new (LIKE @ INCLUDING ALL); INSERT INTO @ (v) SELECT 'old' FROM generate_series(1, 5); "
            "INSERT INTO @_new SELECT g, 'new' FROM generate_series(1, 9) g; GRANT SELECT ON @_new TO reader",
        )
    )
    monkeypatch.setattr(source_module, "_PAGE_ROWS", 2)
    reader, found = Reader(table), list[str]()
    for frame, after in reader.source.read(None):
        found += frame["v"].to_list()
        reader.after = after
        if len(found) == 2:
            server.execute(at(table, "ALTER TABLE @ RENAME TO @_old; ALTER TABLE @_new RENAME TO @"))
    assert found == ["old"] * 2
    with pytest.raises(SourceError, match="from another log"):
        reader.more()
    server.execute(at(table, "ALTER TABLE @ RENAME TO @_new; ALTER TABLE @_old RENAME TO @"))
    assert reader.more() == ["old"] * 3
    server.execute(at(table, "DROP TABLE @_new"))


def test_a_renamed_table_is_the_same_one(server: Server, table: str) -> None:
    server.execute(at(table, "INSERT INTO @ (v) VALUES ('a')"))
    reader = Reader(table)
    assert reader.more() == ["a"]
    server.execute(at(table, 'ALTER TABLE @ RENAME TO "New @"; INSERT INTO "New @" (v) VALUES (\'b\')'))
    reader.source = source(at(table, 'public."New @"'))
    assert reader.more() == ["b"]
    server.execute(at(table, 'DROP TABLE "New @"'))


def test_a_table_that_was_moved_is_read_on_if_the_operator_says_so(server: Server, table: str) -> None:
    server.execute(at(table, "INSERT INTO @ (v) VALUES ('a')"))
    reader = Reader(table)
    assert reader.more() == ["a"]
    server.execute(
        at(
            table,
            "CREATE TABLE @_copy (LIKE @ INCLUDING ALL); INSERT INTO @_copy SELECT * FROM @; "
            "GRANT SELECT ON @_copy TO reader; INSERT INTO @_copy (v) VALUES ('b')",
        )
    )
    reader.source = source(at(table, "@_copy"))
    with pytest.raises(SourceError, match="moved with its numbers") as caught:
        reader.more()
    moved = str(caught.value).partition('moved = "')[2].partition('"')[0]
    reader.source = source(at(table, "@_copy"), moved=moved)
    assert reader.more() == ["b"]
    server.execute(at(table, "INSERT INTO @_copy (v) VALUES ('c'); ALTER TABLE @_copy ALTER id DROP DEFAULT"))
    server.execute(at(table, "CREATE SEQUENCE s@ START 9 OWNED BY @_copy.id; GRANT SELECT ON s@ TO reader"))
    server.execute(at(table, "ALTER TABLE @_copy ALTER id SET DEFAULT nextval('s@')"))
    server.execute(at(table, "INSERT INTO @_copy (v) VALUES ('d')"))
    reader.source = source(at(table, "@_copy"))  # it is known by now
    assert reader.more() == ["c", "d"]
    server.execute(at(table, "DROP TABLE @_copy"))


def test_no_connection_is_told_without_a_secret(
    server: Server, table: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    services = tmp_path / "pg_service.conf"
    services.write_text(f"[mine]\nhost={server.folder}\nuser=reader\npassword=CANARY\ndbname=postgres\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    monkeypatch.delenv("PGPASSWORD")
    for key in ("PGHOST", "PGUSER", "PGDATABASE"):
        monkeypatch.delenv(key)
    cases: list[tuple[dict[str, str], str | None, str]] = [
        ({}, "mine", "refused this user or password"),
        ({}, "other", 'there is no service "other"'),
        ({"PGHOST": str(tmp_path)}, None, "no server answers there"),
        ({"PGHOST": "127.0.0.1", "PGPORT": "1"}, None, "no server answers there"),
        ({"PGHOST": str(server.folder), "PGUSER": "reader"}, None, "refused this user or password, or there is none"),
        (server.environment(database="CANARYdb"), None, "no such database"),
        (server.environment(user="nobody-CANARY"), None, "refused this user or password"),
    ]
    for settings, service, says in cases:
        with monkeypatch.context() as patch:
            for key, value in settings.items():
                patch.setenv(key, value)
            with pytest.raises(SourceError, match=says) as caught:
                Reader(table, service=service).more()
        assert "CANARY" not in str(caught.value)
        assert caught.value.__suppress_context__
    services.write_text(services.read_text().replace("CANARY", server.password))
    assert Reader(table, service="mine").more() == []


@pytest.mark.slow
def test_a_server_that_stops_is_told_and_read_on_afterwards(
    server: Server, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute(at(table, "INSERT INTO @ (v) SELECT g::text FROM generate_series(1, 30) g"))
    monkeypatch.setattr(source_module, "_PAGE_ROWS", 10)
    reader, found = Reader(table), list[str]()
    frames = reader.source.read(None)
    for frame, reader.after in itertools.islice(frames, 1):
        found += frame["v"].to_list()
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'")
    with pytest.raises(SourceError, match="run again to go on"):
        next(frames)
    assert found == [str(i) for i in range(1, 11)]
    server.stop()
    with pytest.raises(SourceError, match="no server answers there"):
        reader.more()
    server.start()
    assert reader.more() == [str(i) for i in range(11, 31)]


CLOCKS = [  # the clock's type, whether a form of times is said, and what is wrong
    ("bigint", False, 'datetime_format = "milliseconds"'),
    ("numeric", False, 'datetime_format = "milliseconds"'),
    ("jsonb", False, "of type jsonb"),
    ("bigint", True, None),
    ("text", False, None),
    ("text", True, None),
    ("date", False, None),
    ("timestamptz", True, "Name the columns that datetime_format is for"),
]


@pytest.mark.parametrize(("kind", "said", "wrong"), CLOCKS)
def test_a_clock_whose_type_holds_no_times_is_refused_by_the_catalogue(
    server: Server, table: str, kind: str, said: bool, wrong: str | None
) -> None:
    server.execute(at(table, f"ALTER TABLE @ ADD t {kind}"))
    forms = {"t": ["milliseconds"]} if said else {}
    reading = PostgresSource(source(table)._log, ("v", "t"), clock="t", forms=forms)
    _OPEN.append(reading)
    if wrong is None:
        reading.look()
        return
    with pytest.raises(SourceError, match=wrong):
        reading.look()


def test_a_form_for_a_column_that_holds_times_by_its_type_is_refused(server: Server, table: str) -> None:
    """As a form for all columns is: all cells of such a column would be missing, and nothing told."""
    server.execute(at(table, "ALTER TABLE @ ADD t bigint; ALTER TABLE @ ADD seen timestamptz"))
    forms = {"t": ["milliseconds"], "seen": ["milliseconds"]}
    reading = PostgresSource(source(table)._log, ("v", "t", "seen"), clock="t", forms=forms)
    _OPEN.append(reading)
    with pytest.raises(SourceError, match="'seen', of type timestamptz"):
        reading.look()


def test_numbers_since_1970_are_times_where_they_are_said_to_be(server: Server, table: str) -> None:
    server.execute(at(table, "ALTER TABLE @ ADD t bigint"))
    server.execute(at(table, "INSERT INTO @ (t) VALUES (1767225600000), (NULL), (-9223372036854775808)"))
    reading = PostgresSource(source(table)._log, ("v", "t"), clock="t", forms={"t": ["milliseconds"]})
    _OPEN.append(reading)
    ((frame, _),) = reading.read(None)
    assert frame["t"].to_list() == [datetime(2026, 1, 1, tzinfo=UTC), None, None]


def test_a_standby_is_refused(server: Server, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_SERVER", source_module._SERVER.replace("pg_is_in_recovery()", "true"))
    with pytest.raises(SourceError, match="Connect to the primary"):
        Reader(table).more()


def test_no_limit_to_the_time_of_a_statement_or_of_its_rows_ends_a_look(
    server: Server, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute(at(table, "INSERT INTO @ (v) VALUES ('a')"))
    monkeypatch.setenv("PGOPTIONS", "-c statement_timeout=100 -c idle_session_timeout=100")
    reader = Reader(table)
    reader.source._ask("SELECT pg_sleep(0.2)")
    time.sleep(0.3)  # as if the rows of a page took long to count
    assert reader.more() == ["a"]


@pytest.mark.parametrize("parted", ["", "all", "a part"])
def test_a_table_that_a_subscription_fills_is_refused(server: Server, table: str, parted: str) -> None:
    """Its rows bring the numbers of another server; its own sequence stands still, and none would ever be read."""
    if parted:
        server.execute(
            at(table, "DROP TABLE @; CREATE TABLE @ (id bigserial PRIMARY KEY, v text) PARTITION BY RANGE (id);")
            + at(table, "CREATE TABLE @_1 PARTITION OF @ DEFAULT; GRANT SELECT ON @, @_1, @_id_seq TO reader")
        )
    read = f"{table}_1" if parted == "a part" else table
    Reader(read).more()
    place = f"host={server.folder} user=owner password={server.password} dbname=postgres"
    server.execute(at(table, "CREATE PUBLICATION p@ FOR TABLE @ WITH (publish_via_partition_root = true)"))
    options = "enabled = false, create_slot = false, slot_name = NONE, copy_data = false"
    server.execute(at(table, f"CREATE SUBSCRIPTION s@ CONNECTION '{place}' PUBLICATION p@ WITH ({options})"))
    with pytest.raises(SourceError, match="Connect to the server where rows are inserted"):
        Reader(read).more()
    server.execute(at(table, "DROP SUBSCRIPTION s@"))
    server.execute(at(table, "DROP PUBLICATION p@"))


def test_it_never_writes(server: Server, table: str) -> None:
    connection = source(table)._connected()
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        connection.execute(at(table, "DELETE FROM @"))
