"""Rows of persons that wait for their tick, and how many of each have counted. Private: as secret as the data."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import polars as pl

from synthstream.counts import Counts
from synthstream.errors import StateCorrupt
from synthstream.ingest.bounding import arrivals, counting, from_bytes, span_of, unused, window_of
from synthstream.ingest.counting import Count, PrivateRows
from synthstream.privacy import Unit
from synthstream.schema.coercion import CHUNK_ROWS
from synthstream.schema.mapping import SchemaMapping
from synthstream.state.store import Store
from synthstream.workload import IntArray

_MODULUS = 1 << 256

# Of a mapping that takes each code to one code; chance has no part in it.
_NOWHERE = np.random.default_rng(0)

_WAIT = """
INSERT INTO waiting (who, tick, rank, row, number) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET number = min(number + excluded.number, {most})
"""

# Periods of persons with more waiting rows than may count; only those that new rows came to can have become such.
_CROWDED = """
INSERT INTO temp.crowded
SELECT s.who, s.window, s.first, s.last, coalesce(p.used, 0) FROM (
    SELECT t.who, t.window, t.first, t.last, sum(w.number) AS together
    FROM temp.touched t CROSS JOIN waiting w ON w.who = t.who AND w.tick BETWEEN t.first AND t.last
    GROUP BY t.who, t.window, w.tick
) s LEFT JOIN person p ON p.window = s.window AND p.who = s.who
GROUP BY s.who, s.window HAVING sum(s.together) + coalesce(p.used, 0) > ? OR max(s.together) > ?
"""

_ROWS_OF_CROWDED = """
SELECT w.who, w.tick, w.rank, w.number, c.window, c.used
FROM temp.crowded c CROSS JOIN waiting w ON w.who = c.who AND w.tick BETWEEN c.first AND c.last
"""

# Persons of whom more waits for a tick than may count: a flipped bit can make more of a row.
_BEYOND = """
SELECT 1 FROM waiting w LEFT JOIN person p ON p.window = ? AND p.who = w.who
WHERE w.tick = ? GROUP BY w.who
HAVING sum(w.number) > ? OR sum(w.number) + coalesce(max(p.used), 0) > ? OR min(w.number) < 1 LIMIT 1
"""

# Both in the order of the persons: a list of those who wait would lie in memory.
_OF_TICK = """
SELECT p.who, p.window, p.used FROM (SELECT DISTINCT who FROM waiting WHERE tick = ?) w
CROSS JOIN person p ON p.window = ? AND p.who = w.who
"""

_AFTER = """
SELECT who, tick, rank, row FROM waiting WHERE (who, tick, rank) > (?, ?, ?) ORDER BY who, tick, rank LIMIT ?
"""

_COLUMNS = {
    "who": pl.Binary,
    "tick": pl.Int64,
    "rank": pl.Binary,
    "number": pl.Int64,
    "window": pl.Int64,
    "used": pl.Int64,
}

_USE = """
INSERT INTO person (who, window, used) SELECT who, ?, sum(number) FROM waiting WHERE tick = ? GROUP BY who
ON CONFLICT DO UPDATE SET used = used + excluded.used
"""


class Contributions:
    """The rows of persons in a store. At any time the rows that wait are those that would count if no others came.

    So at most ``unit.max_events`` rows of a person wait in a period, however many come, and when a tick closes all
    its rows count. Everything here happens within a transaction of the caller.

    Args:
        store: where rows wait. Its secret keys the hashes.
        cuts: see :func:`synthstream.ingest.bounding.arrivals`.

    Raises:
        StateCorrupt: some of those who have counted are lost, or are others: they might count twice as often.
    """

    def __init__(self, store: Store, unit: Unit, *, cuts: int = 0) -> None:
        self._store, self._db, self._key, self._unit, self._cuts = store, store.db, store.secret, unit, cuts
        if self._kept() != self._sum("SELECT who, window, used FROM person"):
            raise self._corrupt("has lost who has counted how often: persons could count again")
        self._db.execute("PRAGMA cache_size = -65536")  # KiB; persons come in no order
        self._db.execute(
            "CREATE TEMP TABLE touched (who BLOB, window INTEGER, first INTEGER, last INTEGER, "
            "PRIMARY KEY (who, window)) WITHOUT ROWID"
        )
        self._db.execute(
            "CREATE TEMP TABLE crowded (who BLOB, window INTEGER, first INTEGER, last INTEGER, used INTEGER)"
        )

    def add(self, rows: PrivateRows, open_tick: int) -> None:
        """Let rows wait for their tick, and let go at once of those that can never count."""
        new = arrivals(rows, open_tick=open_tick, key=self._key, cuts=self._cuts)
        # What has no place even without the rows before goes at once.
        new = counting(unused(new, self._unit), self._unit).filter(pl.col("kept") > 0)
        self._db.executemany(
            _WAIT.format(most=self._unit.max_events),
            (
                (who, tick, rank, self._store.seal(row, _place(who, tick, rank)), kept)
                for who, tick, rank, row, kept in new.select("who", "tick", "rank", "row", "kept").iter_rows()
            ),
        )
        self._let_go(new.select("who", "window").unique())

    def _let_go(self, touched: pl.DataFrame) -> None:
        """Delete rows that can never count, of persons whom new rows came to."""
        spans = ((who, window, *span_of(window, self._unit)) for who, window in touched.iter_rows())
        self._db.executemany("INSERT INTO temp.touched VALUES (?, ?, ?, ?)", spans)
        self._db.execute(_CROWDED, (self._unit.max_events, self._unit.in_a_tick))
        found = self._db.execute(_ROWS_OF_CROWDED).fetchall()
        if found:
            rows = counting(pl.DataFrame(found, schema=_COLUMNS, orient="row"), self._unit)
            fewer = rows.filter(pl.col("kept") < pl.col("number")).select("kept", "who", "tick", "rank")
            gone, rest = fewer.filter(pl.col("kept") == 0), fewer.filter(pl.col("kept") > 0)
            where = "WHERE who = ? AND tick = ? AND rank = ?"
            self._db.executemany(f"DELETE FROM waiting {where}", gone.drop("kept").iter_rows())  # noqa: S608 - as above
            self._db.executemany(f"UPDATE waiting SET number = ? {where}", rest.iter_rows())  # noqa: S608 - as above
        self._db.execute("DELETE FROM temp.touched")
        self._db.execute("DELETE FROM temp.crowded")

    def counts(self, tick: int, count: Count) -> Counts:
        """Exact counts of all rows that wait for a tick. Memory: one chunk of rows, and the counts.

        Raises:
            StateCorrupt: more rows of a person wait than may count.
        """
        limits = (window_of(tick, self._unit), tick, self._unit.in_a_tick, self._unit.max_events)
        if self._db.execute(_BEYOND, limits).fetchone() is not None:
            raise self._corrupt("is damaged: more rows of a person wait than may count")
        total = Counts(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        cursor = self._db.execute("SELECT row, number, who, rank FROM waiting WHERE tick = ?", (tick,))
        while part := cursor.fetchmany(CHUNK_ROWS):
            rows = [self._store.unseal(row, _place(who, tick, rank)) for row, _, who, rank in part]
            codes, signs = from_bytes(b"".join(rows), (len(rows[0]) - 1) // 4)
            number: IntArray = np.array([number for _, number, _, _ in part], dtype=np.int64)
            total = total.plus(count(codes, signs * number))
        return total

    def close(self, tick: int) -> None:
        """The rows that waited for a tick have counted. Persons of periods that are over are forgotten."""
        window, over = window_of(tick, self._unit), window_of(tick + 1, self._unit)
        kept = self._kept() - self._sum(_OF_TICK, tick, window)
        self._db.execute(_USE, (window, tick))
        kept += self._sum(_OF_TICK, tick, window)
        kept -= self._sum("SELECT who, window, used FROM person WHERE window < ?", over)
        self._db.execute("DELETE FROM waiting WHERE tick = ?", (tick,))
        self._db.execute("DELETE FROM person WHERE window < ?", (over,))
        self._store.put_meta("people", self._store.seal((kept % _MODULUS).to_bytes(32, "big"), "people").hex())

    def go_on(self, mapping: SchemaMapping | None) -> None:
        """Let rows that wait do so over a successor's columns; ``None`` forgets them. Who has counted stays."""
        if mapping is None:
            self._db.execute("DELETE FROM waiting")
            return
        last: tuple[bytes, int, bytes] = (b"", -1, b"")
        while part := self._db.execute(_AFTER, (*last, CHUNK_ROWS)).fetchall():
            for who, tick, rank, row in part:
                place = _place(who, tick, rank)
                old = self._store.unseal(row, place)
                codes, _ = from_bytes(old, (len(old) - 1) // 4)
                new = old[:1] + np.ascontiguousarray(mapping.rows(codes, _NOWHERE), dtype="<i4").tobytes()
                values = (self._store.seal(new, place), who, tick, rank)
                self._db.execute("UPDATE waiting SET row = ? WHERE who = ? AND tick = ? AND rank = ?", values)
            last = part[-1][:3]

    def _kept(self) -> int:
        """Sum of all rows of persons, as it was written down when the last tick was closed."""
        kept = self._store.meta("people")
        return 0 if kept is None else int.from_bytes(self._store.unseal(bytes.fromhex(kept), "people"), "big")

    def _sum(self, question: str, *values: int) -> int:
        """Sum of keyed hashes of rows of persons: none can be lost, or become another, unnoticed."""
        total = 0
        for who, window, used in self._db.execute(question, values):
            text = f"{who.hex()} {window} {used}".encode()
            mark = blake2b(text, digest_size=32, key=self._key, person=b"used").digest()
            total += int.from_bytes(mark, "big")
        return total % _MODULUS

    def _corrupt(self, what: str) -> StateCorrupt:
        return StateCorrupt(f"{self._store.folder} {what}. Restore the folder whole. No noise was drawn.")


def _place(who: bytes, tick: int, rank: bytes) -> str:
    return f"waiting {who.hex()} {tick} {rank.hex()}"
