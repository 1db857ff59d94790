"""PostgreSQL: a table that holds the newest release, and one beside it for the manifest. It takes psycopg."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import polars as pl
import psycopg
from psycopg import sql

from synthstream.config.servers import Unreachable, connected
from synthstream.config.tablenames import MANIFEST, TableName
from synthstream.environment import REAL, Env
from synthstream.errors import SinkError
from synthstream.kinds import Content
from synthstream.publish.mirrors import Copied, OfFrames, refuse_fork

_Connection = psycopg.Connection[Any]

_PART = 50_000  # rows that are written out at a time

# Read committed: who has waited for another writer must see what that one wrote. Row security off: where a policy
# hides rows, an error is better than to leave them there.
_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL row_security = off; SET LOCAL lock_timeout = '60s'
"""

# Writers take turns, also when the tables are not there yet. Readers never wait. Types are as PostgreSQL's own function
# takes them, here and below: one that somebody made for others would be called in its place, with this user's rights.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended('synthstream ' || %s, 0::bigint))"

# What a table's owner attached to it, such as a trigger, runs with the rights of who writes to it. So the owner must be
# this user, or one who has the schema's owner's rights anyway (a superuser has).
_FIND = """
SELECT c.oid, c.relkind, pg_get_userbyid(c.relowner) = current_user OR pg_has_role(c.relowner, n.nspowner, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped
"""
_VISIBLE = """
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = %s AND pg_table_is_visible(c.oid)
"""

_FACTS = {"stream": "text", "content": "text", "tick": "bigint", "head": "text", "manifest": "jsonb"}

_KINDS = {
    pl.String(): "text",
    pl.Boolean(): "boolean",
    pl.Int64(): "bigint",
    pl.Float64(): "double precision",
    pl.Datetime("us"): "timestamp without time zone",
}

# What to do, by the SQLSTATE or its class. What the server says itself may quote rows or settings.
_LOST = "the connection was lost, or the server shuts down"
_READ_ONLY = "it cannot be written to: it is a standby. Connect to the primary"
_WHY = {
    "25006": _READ_ONLY,
    "55P03": "somebody has held the table, or written to it, for more than a minute. Wait until they have finished",
    "57014": "it took longer than the user's statement_timeout, or was cancelled. Raise that",
    "53100": "the server's disk is full. Make room there",
    "55000": "it is in a publication of logical replication. ALTER TABLE ... REPLICA IDENTITY FULL, for both tables",
    "22021": "the database's encoding lacks a character. Use a database in UTF-8",
    "22P05": "the database's encoding lacks a character. Use a database in UTF-8",
    "08": _LOST,
    "57": _LOST,
    "53": "the server has no memory, connections or room left. Free some",
    "23": "a constraint that somebody added to the table refuses the rows. Drop it",
}


class PostgresTable(OfFrames):
    """A table of PostgreSQL whose rows are those of the newest release; one transaction replaces them all.

    Rows are deleted and written, not truncated, and the table is never dropped or renamed: who is reading keeps what
    they see, and views and grants stay.

    Args:
        table: its name as SQL writes it.
        stream: what tells this stream from all others: the head of its chain before the first tick.
        service: in the operator's ``pg_service.conf``; left out: the environment (``PGHOST``, ``PGPASSWORD``, ...).

    Raises:
        ConfigError: that is no name of a table.
    """

    history = False

    def __init__(
        self, table: str, *, stream: str, service: str | None = None, content: Content = "rows", env: Env = REAL
    ) -> None:
        self._table = TableName.read(table)
        self.name = f"PostgreSQL table {self._table}"
        self._beside = self._table.ending(MANIFEST)
        self._stream, self._service, self._content, self._env = stream, service, content, env

    def newest(self) -> Copied | None:
        with self._session() as connection:
            return self._held(connection, self._schema(connection))

    def put(self, frame: pl.DataFrame, *, tick: int, manifest: dict[str, Any]) -> None:
        with self._session() as connection:
            schema = self._schema(connection)
            connection.execute(_TURN, [str(TableName(schema, self._table.table))])
            held = self._held(connection, schema)  # another writer may have been faster
            if held is not None and held.tick >= tick:
                if held.tick == tick:
                    refuse_fork(self, held, lambda _: str(manifest["chain"]["head"]))
                return
            self._env.do("write to PostgreSQL", partial(self._write, connection, schema, frame, tick, manifest))
            self._env.do("commit to PostgreSQL", partial(connection.execute, "COMMIT"))

    # -- what is there ------------------------------------------------------------------------------------------

    def _schema(self, connection: _Connection) -> str:
        """Where the table is, or will be made."""
        if self._table.schema is not None:
            if not _rows(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", self._table.schema):
                raise SinkError(
                    f"{self.name}: there is no such schema. Say CREATE SCHEMA {TableName(None, self._table.schema)} "
                    "there, or check which database the connection settings name."
                )
            return self._table.schema
        found = _rows(connection, _VISIBLE, self._table.table) or _rows(connection, "SELECT current_schema()")
        if found[0][0] is None:
            raise SinkError(f"{self.name}: the user's search_path names no schema: write table = schema.table.")
        return str(found[0][0])

    def _columns(self, connection: _Connection, schema: str, table: str) -> dict[str, str] | None:
        """Columns of a table and their types; ``None`` if there is none."""
        found = _rows(connection, _FIND, schema, table)
        if not found:
            return None
        oid, kind, trusted = found[0]
        if kind != "r":
            raise self._other()
        if not trusted:
            mine = TableName(schema, table)
            raise SinkError(
                f"{self.name}: {mine} belongs to another user, whose triggers would run as this one. Nothing was "
                f"changed. If that is meant, ALTER TABLE {mine} OWNER TO this user or the schema's owner; or name a "
                "table in a schema where only they may create"
            )
        return dict(_rows(connection, _COLUMNS, oid))

    def _held(self, connection: _Connection, schema: str) -> Copied | None:
        """What is there. Raises ``SinkError`` if it is not this stream's."""
        table = self._columns(connection, schema, self._table.table)
        beside = self._columns(connection, schema, self._beside.table)
        if table is None and beside is None:
            return None
        if beside is None or not beside.items() >= _FACTS.items():
            raise self._other()
        question = sql.SQL("SELECT stream, content, tick, head FROM ONLY {}")
        found = connection.execute(question.format(_in(schema, self._beside))).fetchall()
        if [row[:2] for row in found] != [(self._stream, self._content)]:
            raise self._other()
        if table is None:
            return None  # made anew for whoever dropped it, once they say so
        tick, head = found[0][2:]
        if tick is None or tick < 0 or head is None:
            raise SinkError(
                f"{self.name}: somebody changed {self._beside}: it names no release. Drop {self._table}, and "
                "run with --unchecked: it is made anew."
            )
        return Copied(tick, head)

    def _other(self) -> SinkError:
        return SinkError(
            f"{self.name} is another table, not this stream's: {self._beside} does not say that it is. Nothing was "
            "changed; name a new one."
        )

    # -- writing ------------------------------------------------------------------------------------------------

    def _write(
        self, connection: _Connection, schema: str, frame: pl.DataFrame, tick: int, manifest: Mapping[str, Any]
    ) -> None:
        """All but the commit."""
        about = "Made with simulated noise: NOT PRIVATE." if "warning" in manifest else "Synthetic data."
        about = f"{about} The newest release of the stream {manifest['name']!r} of Synthstream; every release replaces "
        about += f"all rows. Its manifest: {self._beside.table}."
        for name, kind in frame.schema.items():
            if kind not in _KINDS:
                raise SinkError(f"{self.name}: column {name!r} is {kind}, which has no type there.")
        kinds = {name: _KINDS[kind] for name, kind in frame.schema.items()}
        self._make(connection, schema, self._table, kinds, about)
        self._replace(connection, schema, self._table, frame)
        facts: dict[str, Any] = {"stream": self._stream, "content": self._content, "tick": tick}
        facts |= {"head": manifest["chain"]["head"], "manifest": json.dumps(manifest, sort_keys=True)}
        self._make(connection, schema, self._beside, _FACTS, f"The manifest of what {self._table.table} holds.")
        self._replace(connection, schema, self._beside, pl.DataFrame([facts]))

    def _make(
        self, connection: _Connection, schema: str, name: TableName, kinds: Mapping[str, str], about: str
    ) -> None:
        """Create a table, if there is none; raise ``SinkError`` if it has other columns. More of them are not ours."""
        found = self._columns(connection, schema, name.table)
        for column, kind in {} if found is None else kinds.items():
            if found is not None and found.get(column) != kind:
                raise SinkError(
                    f"{self.name}: somebody changed it: column {column!r} must be there as {kind}. Change it back, "
                    f"or drop {self._table}, and run with --unchecked: it is made anew."
                )
        if found is None:
            columns = [sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind)) for column, kind in kinds.items()]
            place = _in(schema, name)
            connection.execute(sql.SQL("CREATE TABLE {} ({})").format(place, sql.SQL(", ").join(columns)))
            connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(place, sql.Literal(about)))

    def _replace(self, connection: _Connection, schema: str, name: TableName, frame: pl.DataFrame) -> None:
        place = _in(schema, name)
        # Nobody else writes meanwhile; readers never wait.
        connection.execute(sql.SQL("LOCK TABLE ONLY {} IN SHARE ROW EXCLUSIVE MODE").format(place))
        connection.execute(sql.SQL("DELETE FROM ONLY {}").format(place))
        columns = sql.SQL(", ").join(sql.Identifier(column) for column in frame.columns)
        order = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, NULL 'NULL')").format(place, columns)
        with connection.cursor().copy(order) as copy:
            for part in frame.iter_slices(_PART):
                # All texts are in quotes, so that none is read as missing, or as the end. What stands for missing has
                # no backslash: some servers let it escape what follows, also in statements.
                copy.write(part.write_csv(include_header=False, null_value="NULL", quote_style="non_numeric"))
        counted = connection.execute(sql.SQL("SELECT count(*) FROM ONLY {}").format(place)).fetchall()
        if counted != [(frame.height,)]:
            raise SinkError(
                f"{self.name}: holds other rows than were written: a trigger or rule that somebody added changes them. "
                "Nothing was changed; drop it."
            )

    # -- connection and errors ----------------------------------------------------------------------------------

    @contextmanager
    def _session(self) -> Iterator[_Connection]:
        """A transaction that is rolled back unless it commits."""
        try:
            with closing(connected(self._service)) as connection:
                if _rows(connection, "SELECT pg_is_in_recovery()") == [(True,)]:
                    raise SinkError(f"{self.name}: {_READ_ONLY}.")
                connection.execute(_BEGIN)
                yield connection
        except Unreachable as error:
            raise SinkError(f"{self.name}: {error}.") from None
        except (psycopg.Error, OSError) as error:
            raise SinkError(f"{self.name}: {self._why(error)}.") from None

    def _why(self, error: psycopg.Error | OSError) -> str:
        state = error.sqlstate if isinstance(error, psycopg.Error) else None
        if state is None:
            return _LOST
        if state == "42501":
            where = "..." if self._table.schema is None else str(TableName(None, self._table.schema))
            return (
                f"this user may not write there. GRANT USAGE, CREATE ON SCHEMA {where} to it before the first release, "
                f"or GRANT SELECT, INSERT, DELETE ON {self._table}, {self._beside}, without policies that hide rows"
            )
        return _WHY.get(state) or _WHY.get(state[:2]) or f"the server refused, with SQLSTATE {state}"


def _rows(connection: _Connection, question: str, *values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(question.encode(), values or None).fetchall()


def _in(schema: str, name: TableName) -> sql.Identifier:
    return sql.Identifier(schema, name.table)
