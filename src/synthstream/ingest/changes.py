"""Changes of a table, as Debezium or Delta write them, as rows that add events and rows that take events away.

An insertion, or a row of the first snapshot, adds a row; a deletion takes away the row that was there; an update does
both, and is two events. A message of Debezium's without a value follows each deletion, for Kafka's own use: it is none.
Neither is one that is not about a row (``TRUNCATE``, a logical message). What cannot be read as a change adds one row
in which every column is missing, as any message that cannot be read does.

What is inserted has its own time. What is taken away, and what an update or an overwrite puts in its place, has the
time of the change: a row that counted long ago cannot be uncounted then. What was there is known only if the table has
REPLICA IDENTITY FULL; without, each column that is not told of a row that is taken away is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl

from synthstream.schema.coercion import texts

Cells = Mapping[str, Any]

# What is read of a change besides the columns.
CHANGE = ("before", "after", "op", "source", "ts_ms")

_NO_ROW = ("t", "m")  # TRUNCATE, and a message of an application's own
# What a Delta table calls the sides of a change: that of an insertion, and the others with what they do to a count.
_INSERTED, _CHANGED = "insert", {"update_preimage": "-1", "delete": "-1", "update_postimage": "1"}


@dataclass(frozen=True, kw_only=True)
class Changes:
    """How changes become rows.

    Args:
        op: the column that says -1 of a row that is taken away.
        time: the column of the clock, if there is one.
    """

    op: str
    time: str | None

    def rows(self, content: bytes | None, found: Cells) -> Iterator[Cells]:
        """The rows of a message: none, one, or two.

        Args:
            content: of the message.
            found: the object in it, numbers as text; without keys if it holds none.

        Example:
            >>> changes = Changes(op="op", time="seen")
            >>> told = {"op": "u", "before": {"n": "1"}, "after": {"n": "2"}, "source": {"ts_ms": "0"}}
            >>> [(row["op"], row["n"], row["seen"][:10]) for row in changes.rows(b"{...}", told)]
            [('-1', '1', '1970-01-01'), ('1', '2', '1970-01-01')]
        """
        if content is None:
            return
        inside = found.get("payload")
        told = inside if isinstance(inside, dict) and "schema" in found else found
        kind, source = told.get("op"), told.get("source")
        at = moment((source if isinstance(source, dict) else told).get("ts_ms"))
        if kind in ("u", "d"):
            yield self._row(told.get("before"), "-1", at)
        if kind == "u":
            yield self._row(told.get("after"), "1", at)
        elif kind in ("c", "r"):
            yield self._row(told.get("after"), "1", None)
        elif kind != "d" and kind not in _NO_ROW:
            yield self._row(None, "1", None)

    def sides(
        self, rows: pl.DataFrame, kinds: pl.Series, at: str | None, *, inserted: bool, anew: bool
    ) -> pl.DataFrame:
        """Rows of a table of changes with ``op``, apart by whether they have their own time.

        Args:
            rows: without ``op``.
            kinds: what each row is, in Delta's words; cells of any kind.
            at: the moment of their change.
            inserted: only what was inserted, and in place of what is no change a row in which every column is missing.
                Otherwise all else.
            anew: whether what was inserted took the place of other rows, and so has the moment of the change.
        """
        found = texts(kinds)[0]
        found = found.replace(_INSERTED, "update_postimage") if anew else found
        if inserted:
            odd = int((~found.is_in([_INSERTED, *_CHANGED])).fill_null(value=True).sum())
            own = rows.filter((found == _INSERTED).fill_null(value=False))
            return pl.concat([own, rows.clear(odd)]).with_columns(pl.lit("1").alias(self.op))
        there = found.is_in(list(_CHANGED)).fill_null(value=False)
        own = rows.filter(there).with_columns(found.filter(there).replace(_CHANGED).alias(self.op))
        return own if self.time is None or at is None else own.with_columns(pl.lit(at).alias(self.time))

    def _row(self, cells: object, op: str, at: str | None) -> Cells:
        """A row, at the moment of its change if that is told."""
        row = {**(cells if isinstance(cells, dict) else {}), self.op: op}
        return row if self.time is None or at is None else {**row, self.time: at}


def moment(milliseconds: object) -> str | None:
    """A number of milliseconds since 1970, as text, as ISO 8601; ``None`` if it is no such number."""
    try:
        return datetime.fromtimestamp(int(str(milliseconds)) / 1000, tz=UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None
