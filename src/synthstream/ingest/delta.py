"""A Delta table as a log: its rows as they are when it is first read, then the change data of version after version.

The table must keep change data (``delta.enableChangeDataFeed``). A version never changes, and neither does a file of
one: so a place in the log is a version, and how many parts of it were counted. The first version that is read is the
newest one there is then; its parts are its files. Those of a later version are what it took away, and what it added.

Without changes, rows that are inserted count, and nothing else: what is updated or deleted later stays as it counted.
With them, an insertion adds a row at its own time; a deletion takes one away, and an update does both, at the time of
the version: a row that counted long ago cannot be uncounted then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import deltalake
import polars as pl
import pyarrow as pa
from deltalake.exceptions import DeltaError

from synthstream.errors import SchemaError, SourceError
from synthstream.ingest.changes import Changes
from synthstream.ingest.cursors import cursor_of, place_in
from synthstream.schema.coercion import require

_KEPT = "delta.enableChangeDataFeed"
_KIND, _AT = "_change_type", "_commit_timestamp"
# Parts of a version: a kind of change, what it is for the op column, and whether it has the time of the version.
_KINDS = (
    ("insert", "1", False),
    ("delete", "-1", True),
    ("update_preimage", "-1", True),
    ("update_postimage", "1", True),
)

Part = Callable[[], pl.DataFrame]


class DeltaSource:
    """Reads a Delta table by its versions. Memory: a file of the first version, or what a later one changed.

    Args:
        path: a folder, or an address that the package deltalake knows; its credentials come from the environment.
        name: what it is called in messages.
        columns: what to read; other columns are never looked at.
        changes: what becomes of changes; left out: rows that are inserted count, and nothing else.
    """

    def __init__(self, *, path: str, name: str, columns: Sequence[str], changes: Changes | None = None) -> None:
        self.name, self.waits = name, False
        self._path, self._changes = path, changes
        self._columns = [column for column in columns if changes is None or column != changes.op]

    def look(self) -> None:
        self._table()

    def read(self, after: bytes | None) -> Iterator[tuple[pl.DataFrame, bytes]]:
        table = self._table()
        origin, newest = f"delta {table.metadata().id}", table.version()
        place = place_in(after, origin, name=self.name)
        first, version, done = place or (newest, newest, 0)
        while version <= newest:
            parts = self._files(version) if version == first else self._changed(table, version)
            for number, part in enumerate(parts):
                if number >= done:
                    with self._told(f"read its version {version}"):
                        frame = part()
                    ended = number == len(parts) - 1
                    yield frame, cursor_of(origin, [first, version + 1, 0] if ended else [first, version, number + 1])
            version, done = version + 1, 0

    def close(self) -> None:
        """Nothing is open."""

    def _table(self) -> deltalake.DeltaTable:
        """The table as it is now, if it can be read on later."""
        with self._told("be opened"):
            table = deltalake.DeltaTable(self._path)
            names = [field.name for field in table.schema().fields]
        try:
            require(self._columns, names)
        except SchemaError as error:
            raise SchemaError(f"{self.name}: {error}") from None
        if table.metadata().configuration.get(_KEPT) != "true":
            raise SourceError(
                f"{self.name}: keeps no change data, so what is new cannot be told. Set its property "
                f"{_KEPT} = true, as in ALTER TABLE ... SET TBLPROPERTIES ('{_KEPT}' = 'true')."
            )
        return table

    def _files(self, version: int) -> list[Part]:
        """All rows of a version, by file."""
        with self._told(f"read its version {version}"):
            found = deltalake.DeltaTable(self._path, version=version).to_pyarrow_dataset()
            files = sorted(found.get_fragments(), key=lambda file: str(file.path))

        def part(read: Callable[[], pa.Table]) -> pl.DataFrame:
            return self._rows(pl.DataFrame(read()), "1", moved=False)

        reads = [partial(file.to_table, schema=found.schema, columns=self._columns) for file in files]
        return [partial(part, read) for read in reads or [found.schema.empty_table]]

    def _changed(self, table: deltalake.DeltaTable, version: int) -> list[Part]:
        """What a version added, and what it took away or put in its place."""

        def part(kind: str, op: str, *, moved: bool) -> pl.DataFrame:
            read = table.load_cdf(version, version, columns=[*self._columns, _KIND, _AT])
            return self._rows(pl.DataFrame(pa.table(read)).filter(pl.col(_KIND) == kind), op, moved=moved)

        kinds = _KINDS if self._changes is not None else _KINDS[:1]
        return [partial(part, kind, op, moved=moved) for kind, op, moved in kinds]

    def _rows(self, frame: pl.DataFrame, op: str, *, moved: bool) -> pl.DataFrame:
        """Rows as they are counted: whether one adds or takes away, and at the time of its version if it moved."""
        own, changes = frame.select(self._columns), self._changes
        if changes is None:
            return own
        if moved and changes.time is not None:
            own = own.with_columns(frame[_AT].dt.replace_time_zone("UTC").alias(changes.time))
        return own.with_columns(pl.lit(op).alias(changes.op))

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError, pa.ArrowException) as error:
            # The package's own texts may hold addresses with secrets in them, and cells.
            raise SourceError(
                f"{self.name}: cannot {what} ({type(error).__name__}). Nothing was lost. Check that the table is there "
                "and may be read. Versions are needed until they are counted: let its log, and files that were "
                "removed, be kept for longer than this stream ever pauses."
            ) from None
