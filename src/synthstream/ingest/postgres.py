"""A table of PostgreSQL as a log: rows in the order of the numbers that their inserts drew from a sequence.

A number is drawn before its row can be seen, so a higher one may be visible while a lower one is not yet: reading on
from the highest would skip it for ever. So reading goes only up to a bound below which nobody can write any more. It is
found as ``CREATE INDEX CONCURRENTLY`` finds that nobody writes without the index:

1. Read the sequence's last value: the bound B.
2. Note which transactions hold a lock on the table (or a part of it) that writers need.
3. Wait until none of these holds one any more. Writers are never made to wait.
4. In a statement that begins after that, read the numbers up to B.

Why that is enough: an insert locks the table before it draws a number, and the lock is held until its transaction ends.
Whoever drew a number up to B had drawn it before step 1, so in step 2 they were either noted or had ended; and who has
ended is visible, because a transaction lets go of its locks after it became visible. Later ones draw numbers above B.
``pg_locks`` also lists locks that were taken on the fast path: these it reads first, and a lock only ever moves from
there to the main table, which is read at one moment. A transaction that is prepared for two-phase commit changes its
name and keeps its locks; so where somebody was noted, any prepared transaction counts as one of them.

If some of step 2 go on for longer than ten seconds, the bound of an earlier look that has been proven since is taken,
or nothing is read this time: late, never twice, and never skipped. Earlier looks are remembered by a process that goes
on (``run --follow``).

What it takes on trust: the insert itself draws the number (no application draws numbers ahead), and rows that were
inserted are not changed, given another number, or moved into the table with the numbers of another one. That the
sequence keeps no numbers back for a session (``CACHE 1``), counts upwards and does not cycle is seen in the catalogue,
and so is whether this is a standby, which does not know who writes, or the table a copy that a subscription fills.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import polars as pl
import psycopg
from psycopg import errors, sql

from synthstream.config.servers import Unreachable, connected, oid_of
from synthstream.config.sources import PostgresConfig
from synthstream.errors import SourceError
from synthstream.ingest.cursors import cursor_of, place_in
from synthstream.schema.coercion import require
from synthstream.schema.dialects import Forms, dated

_PAGE_ROWS = 50_000
_LONGEST = 4096  # characters of a cell; of a longer one, the first. Memory is bounded, whatever stands in a cell.
_TIMES = ("timestamptz", "timestamp", "date")
_LARGEST = 2**17  # stored bytes of any other cell; a larger one is missing, because a server cannot always write it out
_TEXTS = ("text", "varchar", "bpchar", "bool")  # of these any cell has a text, or the beginning of one
_PATIENCE = 10.0  # seconds that writers are waited for
_LOOK = 0.02  # seconds between two looks
_LOOKS = 100  # earlier bounds that are remembered at most
_FIRST = -(2**63)  # below every number that a sequence gives

_SESSION = """
SET default_transaction_read_only = on; SET row_security = off; SET TIME ZONE 'UTC'; SET DateStyle = 'ISO, YMD';
SET enable_sort = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;
SELECT set_config(name, '0', false) FROM pg_settings
WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_session_timeout', 'lock_timeout')
"""  # Without statistics, each page would be sorted out of all that is left; and compiling costs more than it saves.
# If a statement, or the counting of a page, had to end in time, the size of rows would decide whether they are read.

_SERVER = """
SELECT pg_is_in_recovery(), getdatabaseencoding(), d.oid, s.system_identifier
FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()
"""

_TABLE = "SELECT c.oid, n.nspname, c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "

# Whether logical replication writes to a table, to a part of it, or to what it is a part of.
_SUBSCRIBED = """
SELECT 1 FROM pg_subscription_rel WHERE srrelid = %(table)s OR srrelid IN (
    SELECT relid FROM pg_partition_tree(%(table)s) UNION SELECT pg_partition_ancestors(%(table)s)
) LIMIT 1
"""

# Columns of a table and the type that each is stored as, beneath any domains; without columns that are computed when
# they are read, because a row could make that fail.
_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT a.attnum, a.attname, a.atttypid AS kind FROM pg_attribute a
    WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v'
    UNION ALL
    SELECT b.attnum, b.attname, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.kind WHERE t.typbasetype <> 0
)
SELECT b.attname, b.attnum, t.typname FROM base b JOIN pg_type t ON t.oid = b.kind WHERE t.typbasetype = 0
ORDER BY b.attnum
"""

# The sequence behind a column: its identity's, or the one whose next value, and nothing made from it, is the default.
_SEQUENCE = r"""
SELECT q.seqrelid::oid, q.seqcache, q.seqincrement, q.seqcycle, q.seqrelid::regclass::text,
       has_sequence_privilege(q.seqrelid, 'SELECT'),
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = %(table)s AND i.indkey[0] = %(number)s AND i.indisvalid)
FROM pg_sequence q WHERE q.seqrelid IN (
    SELECT objid FROM pg_depend WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass
    AND refobjid = %(table)s AND refobjsubid = %(number)s AND deptype = 'i'
    UNION ALL
    SELECT d.refobjid FROM pg_depend d JOIN pg_attrdef f ON f.oid = d.objid
    WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
    AND f.adrelid = %(table)s AND f.adnum = %(number)s
    AND regexp_replace(pg_get_expr(f.adbin, f.adrelid), '^\((.*)\)::(bigint|integer|smallint)$', '\1')
        = format('nextval(%%L::regclass)', d.refobjid::regclass)
)
"""

# Transactions that may write to a table or a part of it. An insert holds RowExclusiveLock.
_WRITERS = """
WITH RECURSIVE part AS (
    SELECT %(table)s::oid AS oid
    UNION
    SELECT i.inhrelid FROM pg_inherits i JOIN part p ON p.oid = i.inhparent
)
SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND granted
AND database = %(database)s AND relation IN (SELECT oid FROM part)
AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
_PREPARED = "-1/"  # begins the name of a transaction that is prepared for two-phase commit

Writers = frozenset[str]


class _Table(NamedTuple):
    """What the catalogue says, and so nothing that depends on a row."""

    oid: int
    database: int
    origin: str
    name: sql.Identifier
    kinds: dict[str, str]
    sequence: sql.Identifier
    codec: str | None


class PostgresSource:
    """Reads a table by the numbers of its rows. Memory: a page of rows.

    All cells are read as text, so that none can be of a wrong type: times as ISO 8601 with their offset, NaN and
    infinite numbers as such. What has no such text (``infinity`` as a date, years before Christ) is unreadable. Large
    binary and nested cells are missing.

    Args:
        columns: what to read; other columns are never looked at.
        clock: the one of them that tells when a row was, if there is one.
        forms: in which forms texts of columns write times.
    """

    def __init__(
        self, log: PostgresConfig, columns: Sequence[str], *, clock: str | None = None, forms: Forms | None = None
    ) -> None:
        self.name, self._log, self._columns = log.name, log, tuple(columns)
        self._clock, self._forms = clock, forms
        self._connection: psycopg.Connection[Any] | None = None
        self._looks: list[tuple[int, Writers]] = []  # bounds that are not proven yet, and who could write below them
        self.waits = False

    def look(self) -> None:
        with self._told():
            self._look_up()

    def read(self, after: bytes | None) -> Iterator[tuple[pl.DataFrame, bytes]]:
        with self._told():
            table = self._look_up()
            last = place_in(after, table.origin, name=self.name, moved=self._log.moved, movable="its numbers")
            last = _FIRST if last is None else int(last)
            bound = self._bound(table, last)
            while True:  # also if there is nothing new: what is refused must not depend on that
                rows = self._page(table, last, bound)
                if rows:
                    yield self._frame(rows, table.codec), cursor_of(table.origin, last := int(rows[-1][0]))
                if len(rows) < _PAGE_ROWS:
                    return

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._looks.clear()  # the next server may be another one, which knows less
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            try:
                self._connection = connected(self._log.service)
            except Unreachable as error:
                raise SourceError(f"{self.name}: {error}. Nothing was lost; run again to go on.") from None
            self._connection.execute(_SESSION)
        return self._connection

    def _ask(self, question: str | sql.Composed, **values: Any) -> list[tuple[Any, ...]]:
        return self._connected().execute(question, values or None).fetchall()

    # -- the catalogue ------------------------------------------------------------------------------------------

    def _look_up(self) -> _Table:
        standby, encoding, database, system = self._ask(_SERVER)[0]
        if standby:
            raise SourceError(f"{self.name}: a standby does not know who is still writing. Connect to the primary.")
        found = self._ask(_TABLE + "WHERE c.oid = %(oid)s", oid=oid_of(self._connected(), self._log.table))
        if not found:
            raise SourceError(
                f"{self.name}: there is no such table in this database. Check source.table, as in public.visits, or in "
                "'public.\"Visits\"' if its name has capitals, and which database the connection settings name."
            )
        oid, schema, name, kind = found[0]
        if kind not in ("r", "p"):
            raise SourceError(f"{self.name}: is not a table. Name the table that rows are inserted into.")
        if self._ask(_SUBSCRIBED, table=oid):
            raise SourceError(
                f"{self.name}: a subscription fills it, with numbers that were drawn on another server: its own "
                "sequence does not tell which rows are there. Connect to the server where rows are inserted."
            )
        columns = self._ask(_COLUMNS, table=oid)
        require((*self._columns, self._log.sequence), [column for column, _, _ in columns], of=f"{self.name}: ")
        number, kind = next(rest for column, *rest in columns if column == self._log.sequence)
        if kind not in ("int2", "int4", "int8"):
            raise SourceError(f"{self.name}: source.sequence = {self._log.sequence}: must be a column of integers.")
        self._require_times({column: kind for column, _, kind in columns})
        return _Table(
            oid=oid,
            database=database,
            origin=f"postgres {system}/{database}/{oid}",
            name=sql.Identifier(schema, name),
            kinds={column: kind for column, _, kind in columns},
            sequence=self._sequence(oid, number),
            codec=self._codec(encoding),
        )

    def _require_times(self, kinds: dict[str, str]) -> None:
        """Raise if a column whose times count could hold none, by its type: all its rows would be of the open tick."""
        forms = self._forms or {}
        for name in filter(None, dict.fromkeys([self._clock, *forms])):
            kind, said = kinds.get(name, "text"), name in forms
            if kind in _TIMES and said:
                mend = "times of this type are read as they are. Name the columns that datetime_format is for"
            elif kind in (*_TIMES, *_TEXTS) or said:
                continue
            else:
                mend = 'if it counts from 1970, say so in [source], as in datetime_format = "milliseconds"'
            role = "the column of [clock], " if name == self._clock else ""
            raise SourceError(
                f"{self.name}: no time could be read from {name!r}, {role}of type {kind}: {mend}. Nothing was counted."
            )

    def _sequence(self, table: int, number: int) -> sql.Identifier:
        """The sequence that numbers the rows, if it is one that numbers them in order."""
        found = self._ask(_SEQUENCE, table=table, number=number)
        column = f"{self.name}: source.sequence = {self._log.sequence}"
        if len(found) != 1:
            raise SourceError(
                f"{column}: no sequence fills it. It must be an identity, or its default nextval of a sequence: "
                "numbers from elsewhere do not tell which rows are new."
            )
        oid, cache, step, cycles, name, allowed, indexed = found[0]
        if cache != 1 or step < 1 or cycles:
            raise SourceError(
                f"{column}: its sequence gives numbers out of order, so late ones would be skipped. Mend it: "
                f"ALTER SEQUENCE {name} CACHE 1 INCREMENT 1 NO CYCLE; then begin new sessions."
            )
        if not allowed:
            raise SourceError(f"{column}: its sequence may not be read. GRANT SELECT ON SEQUENCE {name} TO this user.")
        if not indexed:
            raise SourceError(
                f"{column}: has no index, so every look would read the whole table. CREATE INDEX CONCURRENTLY ON "
                f"{self._log.table} ({self._log.sequence})."
            )
        return sql.Identifier(*self._ask(_TABLE + "WHERE c.oid = %(oid)s", oid=oid)[0][1:3])

    def _codec(self, encoding: str) -> str | None:
        """Python's name of an encoding of PostgreSQL; ``None`` if text can be sent as it is.

        Of other encodings the server would refuse to convert some cells.
        """
        if encoding == "UTF8":
            return None
        known = {"SQL_ASCII": "utf-8", "EUC_CN": "gb2312", "EUC_JIS_2004": "euc_jis_2004"}
        try:
            return codecs.lookup(known.get(encoding, re.sub("^win", "cp", encoding.lower()))).name
        except LookupError:
            raise SourceError(f"{self.name}: Python cannot read the database's encoding, {encoding}.") from None

    # -- rows ---------------------------------------------------------------------------------------------------

    def _bound(self, table: _Table, last: int) -> int:
        """The highest number below which no more rows can appear; at least ``last``. See the module's docstring."""
        newest, drawn = self._ask(sql.SQL("SELECT last_value, is_called FROM {}").format(table.sequence))[0]
        newest = newest if drawn else _FIRST
        if newest < last:
            raise SourceError(
                f"{self.name}: its sequence stands before what was counted: it was set back, or the server is an old "
                "copy. Rows with numbers that were given before would never count. Set it on beyond the highest number "
                "that was ever given (setval), and run again."
            )
        self._looks.append((newest, self._writers(table)))
        deadline = time.monotonic() + _PATIENCE
        while True:
            now = self._writers(table)
            prepared = any(name.startswith(_PREPARED) for name in now)
            proven = [i for i, (_, old) in enumerate(self._looks) if not old & now and not (old and prepared)]
            late = time.monotonic() > deadline
            self.waits = len(self._looks) - 1 not in proven  # whether rows were written or none: who writes decides
            if proven and (late or proven[-1] == len(self._looks) - 1):
                bound = self._looks[proven[-1]][0]
                del self._looks[: proven[-1] + 1]
                return max(bound, last)
            if late:
                if len(self._looks) > _LOOKS:
                    del self._looks[1:-1:2]
                return last
            time.sleep(_LOOK)

    def _writers(self, table: _Table) -> Writers:
        return frozenset(name for (name,) in self._ask(_WRITERS, table=table.oid, database=table.database))

    def _page(self, table: _Table, last: int, bound: int) -> list[tuple[Any, ...]]:
        """The next rows; rows of one number are never parted. Cells as text, or bytes in the database's encoding."""
        number = sql.Identifier(self._log.sequence)
        cells = [_cell(name, table.kinds[name], as_stored=table.codec is not None) for name in self._columns]
        question = sql.SQL(
            "SELECT {number}::int8, {cells} FROM {table} WHERE {number} > {last} AND {number} <= {bound} "
            "AND to_regclass({name}) = {oid} ORDER BY {number} FETCH FIRST {rows} ROWS WITH TIES"
        ).format(
            number=number,
            cells=sql.SQL(", ").join(cells),
            table=table.name,
            name=sql.Literal(table.name.as_string()),  # another table may have this name by now: none of its rows
            oid=sql.Literal(table.oid),
            last=sql.Literal(last),
            bound=sql.Literal(bound),
            rows=sql.Literal(_PAGE_ROWS),
        )
        with self._connected().cursor(binary=True) as cursor:
            return cursor.execute(question).fetchall()

    def _frame(self, rows: Sequence[Sequence[Any]], codec: str | None) -> pl.DataFrame:
        cells: Sequence[Sequence[Any]] = list(zip(*rows, strict=True))[1:]
        if codec is not None:
            cells = [[None if cell is None else cell.decode(codec, "replace") for cell in column] for column in cells]
        named = zip(self._columns, cells, strict=True)
        return dated(pl.DataFrame([pl.Series(name, column, dtype=pl.String) for name, column in named]), self._forms)

    # -- errors -------------------------------------------------------------------------------------------------

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the server says becomes our own words: its own may quote rows, or settings of the connection."""
        try:
            yield
        except psycopg.Error as error:
            self.close()
            raise self._worded(error) from None
        except BaseException:  # Ctrl-C may have come in the middle of a question
            self.close()
            raise

    def _worded(self, error: psycopg.Error) -> SourceError:
        if isinstance(error, errors.InsufficientPrivilege):
            grants = f"GRANT SELECT ON {self._log.table} TO this user, and USAGE ON its SCHEMA"
            what = f"may not be read, or a policy hides rows. {grants}"
        elif isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
            what = "was changed while it was read"
        elif error.sqlstate is None or error.sqlstate.startswith(("08", "57")):
            what = "the connection was lost, or the server shuts down"
        else:
            what = f"the server refused, with SQLSTATE {error.sqlstate}. Check source.table"
        return SourceError(f"{self.name}: {what}. What was counted is committed; run again to go on.")


def _cell(name: str, kind: str, *, as_stored: bool) -> sql.Composed:
    """A cell as text that does not depend on who asks; ``as_stored``: in bytes that the server has not converted."""
    column = sql.SQL("{}::text").format(sql.Identifier(name))
    if kind not in _TEXTS:
        large = sql.SQL("CASE WHEN pg_column_size({0}) <= {1} THEN format('%s', {0}) END")
        column = large.format(sql.Identifier(name), sql.Literal(_LARGEST))
    if kind == "timestamptz":  # the session is in UTC, and its offset is written with minutes
        column = sql.SQL("{} || ':00'").format(column)
    text = sql.SQL("left({}, {})").format(column, sql.Literal(_LONGEST))
    return sql.SQL("convert_to({}, getdatabaseencoding())").format(text) if as_stored else text
