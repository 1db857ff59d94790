"""Rows of a store, and a keyed sum of all of them: none can be lost, added, exchanged or brought back unnoticed."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from synthstream.state.database import Database
from synthstream.state.sealing import FIRST, Seal, damaged, framed

# Tables whose rows are all in the sum, with their keys.
KEYS = {
    "measurement": ("tick",),
    "meta": ("key",),
    "ledger": ("id",),
    "ingested": ("item",),
    "pending": ("tick",),
    "counter": ("id",),
    "population": ("id",),
    "answer": ("tick", "call"),
    "models": ("id",),
    "segment": ("start",),
    "published": ("tick",),
}
# How a row of some of them is read for the sum: of a blob, only the first bytes.
_SHORT = {
    "measurement": f"tick, substr(released, 1, {FIRST}), head",
    "pending": f"tick, substr(counts, 1, {FIRST})",
    "counter": f"id, substr(state, 1, {FIRST})",
    "population": f"id, tick, substr(codes, 1, {FIRST})",
    "answer": f"tick, call, question, substr(drawn, 1, {FIRST})",
    "models": f"id, tick, substr(arrays, 1, {FIRST})",
    "segment": f"start, substr(model, 1, {FIRST})",
}
_MODULUS = 1 << 256


class RowSums:
    """Writes and deletes rows, and keeps the sum.

    Args:
        seal: of the sum. Sums are secret, or with two of them an attacker could do without a row.
        secret: key of the sum.
    """

    def __init__(self, db: Database, seal: Seal, secret: bytes) -> None:
        self._db, self._seal, self._secret = db, seal, secret
        self._sum = 0

    def put(self, table: str, *row: Any) -> None:
        """Write a row, in the place of one with the same key."""
        self.drop(table, *row[: len(KEYS[table])])
        self.add(table, *row)

    def put_counter(self, state: bytes) -> None:
        """Write the state of the counters. In place of one as long SQLite writes what differs alone."""
        found = f"SELECT {_SHORT['counter']} FROM counter WHERE length(state) = ?"  # noqa: S608 - our own names
        if (old := self._db.execute(found, (len(state),)).fetchone()) is None:
            self.put("counter", 0, state)
        else:
            self._db.execute("UPDATE counter SET state = ?", (state,))
            self._sum += self._mark("counter", (0, state)) - self._mark("counter", old)

    def add(self, table: str, *row: Any) -> None:
        """Write a row that is new."""
        self._db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - our own names
        self._sum += self._mark(table, row)

    def drop(self, table: str, *key: Any) -> None:
        """Delete the rows whose key begins so."""
        where = " AND ".join(f"{name} = ?" for name in KEYS[table][: len(key)])
        found = f"SELECT {_SHORT.get(table, '*')} FROM {table} WHERE {where}"  # noqa: S608 - our own names
        for row in self._db.execute(found, key).fetchall():
            self._sum -= self._mark(table, row)
        self._db.execute(f"DELETE FROM {table} WHERE {where}", key)  # noqa: S608 - our own names

    def begin(self) -> None:
        """A transaction begins."""
        self._sum = self._stored()

    def finish(self) -> None:
        """A transaction is about to be committed."""
        sealed = self._seal.seal((self._sum % _MODULUS).to_bytes(32, "big"), "digest")
        self._db.execute("INSERT OR REPLACE INTO digest VALUES (0, ?)", (sealed,))

    def verify(self) -> None:
        """Raise ``StateCorrupt`` unless the rows are those that were written."""
        total = 0
        for table in KEYS:
            for row in self._db.execute(f"SELECT {_SHORT.get(table, '*')} FROM {table}"):  # noqa: S608 - our own names
                total += self._mark(table, row)
        if total % _MODULUS != self._stored():
            raise damaged("a row is missing, or is another")

    def _stored(self) -> int:
        found = self._db.execute("SELECT sum FROM digest").fetchone()
        if found is None:
            raise damaged("digest")
        return int.from_bytes(self._seal.open(found[0], "digest"), "big")

    def _mark(self, table: str, row: tuple[Any, ...]) -> int:
        """A row's part of the sum; of a blob, its checksum or tag stands for it."""
        mark = hmac.new(self._secret, table.encode(), hashlib.sha256)
        for value in row:
            mark.update(framed(value[:FIRST] if isinstance(value, bytes) else repr(value).encode()))
        return int.from_bytes(mark.digest(), "big")
