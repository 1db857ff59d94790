"""Where rows come from: files, read in chunks of bounded memory."""

from __future__ import annotations

import csv
import glob
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from synthstream.errors import SchemaError, SourceError
from synthstream.kinds import FileKind
from synthstream.reading import polars_frame, require


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """Parquet or CSV files.

    In a CSV file every cell is text: no cell can be of a wrong type. A row with too few cells has null in the
    others; of a row with too many the surplus is ignored; bytes that are not UTF-8 are replaced.

    Args:
        kind: ``parquet`` or ``csv``.
        path: a file, or a pattern such as ``visits-*.csv``; absolute.
        columns: what to read; other columns are never looked at.
    """

    kind: FileKind
    path: Path
    columns: tuple[str, ...]

    def files(self) -> list[Path]:
        """The files, sorted by name. Raises ``SourceError`` if there is none."""
        found = sorted(Path(p) for p in glob.glob(str(self.path), recursive=True))
        if not found and self.path.exists():
            found = [self.path]
        if found == [self.path] and self.path.is_dir():
            raise SourceError(
                f"source.path = {self.path}: is a folder. Name its files, as in {self.path.name}/*.{self.kind}"
            )
        if not found:
            raise SourceError(f"source.path = {self.path}: there is no such file. Check the path or the pattern.")
        return found

    def fingerprint(self, path: Path) -> str:
        """SHA-256 of a file's content, hexadecimal."""
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}.") from error

    def parts(self, path: Path) -> int:
        """Number of parts of a file that can be read apart: its row groups; a CSV file is one part."""
        if self.kind == "csv":
            return 1
        try:
            return int(pq.read_metadata(path).num_row_groups)
        except (pa.ArrowException, OSError) as error:
            raise self._broken(path, error) from None

    def read(self, path: Path, *, chunk_rows: int, part: int | None = None) -> Iterator[pl.DataFrame]:
        """Rows of one file, at most ``chunk_rows`` at a time.

        Args:
            part: only this one of its :meth:`parts`.

        Raises:
            SourceError: the file is empty, broken or unreadable.
            SchemaError: a column is missing. Checked before any row is handed out.
        """
        try:
            if self.kind == "parquet":
                yield from self._parquet(path, chunk_rows, part)
            else:
                yield from self._csv(path, chunk_rows)
        except SchemaError as error:
            raise SchemaError(f"{path}: {error}") from None
        except (pa.ArrowException, pl.exceptions.PolarsError, csv.Error, OSError) as error:
            raise self._broken(path, error) from None

    def _broken(self, path: Path, error: Exception) -> SourceError:
        # For a damaged file pyarrow raises OSError too, without an errno; its own text may quote the file.
        why = getattr(error, "strerror", None) or "it may be truncated or of another kind"
        return SourceError(
            f"{path} cannot be read as {self.kind}: {why}. Nothing of it was counted; replace it and run again."
        )

    def _parquet(self, path: Path, chunk_rows: int, part: int | None) -> Iterator[pl.DataFrame]:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            require(self.columns, schema.names)
        plain = any("dictionary" in str(schema.field(name).type) for name in self.columns)
        with pq.ParquetFile(path, metadata=_as_if_plain(path) if plain else None) as file:
            groups = None if part is None else [part]
            for batch in file.iter_batches(batch_size=chunk_rows, row_groups=groups, columns=list(self.columns)):
                yield polars_frame(_with_durations(batch, schema) if plain else batch, self.columns)

    def _csv(self, path: Path, chunk_rows: int) -> Iterator[pl.DataFrame]:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.reader(_without_nulls(file))
            header = next(reader, None)
            if header is None:
                raise SourceError(f"{path} is empty: it has not even a header. Nothing was counted.")
            require(self.columns, header)
            places = [header.index(name) for name in self.columns]
            chunk: list[list[str]] = []
            for row in reader:
                if row or len(header) == 1:  # a blank line is no row, unless an empty cell is all that a row has
                    chunk.append(row)
                if len(chunk) == chunk_rows:
                    yield self._texts(chunk, places)
                    chunk = []
            yield self._texts(chunk, places)

    def _texts(self, rows: Sequence[Sequence[str]], places: Sequence[int]) -> pl.DataFrame:
        return pl.DataFrame(
            {
                name: pl.Series([row[place] or None if place < len(row) else None for row in rows], dtype=pl.String)
                for name, place in zip(self.columns, places, strict=True)
            }
        )


def _as_if_plain(path: Path) -> pq.FileMetaData:
    """What a Parquet file says about itself, but for the Arrow types that it was made of.

    Of what was a dictionary, pyarrow makes one again, and refuses the whole file if one cell in it is not UTF-8.
    Without those types it reads plain cells, whatever they are.
    """
    with path.open("rb") as file:
        file.seek(-8, io.SEEK_END)
        size = file.read(4)
        file.seek(-8 - int.from_bytes(size, "little"), io.SEEK_END)
        footer = file.read(int.from_bytes(size, "little"))
    footer = footer.replace(b"ARROW:schema", b"(left aside)")
    return pq.read_metadata(io.BytesIO(b"PAR1" + footer + size + b"PAR1"))


def _with_durations(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Columns that are durations by the Arrow types of a file, which Parquet itself knows as whole numbers."""
    table = pa.table(batch)
    for place, name in enumerate(table.column_names):
        if pa.types.is_duration(kind := schema.field(name).type):
            table = table.set_column(place, name, table.column(name).cast(kind))
    return table


def _without_nulls(file: io.TextIOBase) -> Iterator[str]:
    for line in file:
        yield line.replace("\0", "�")


# A cell may be long: nothing about a row may raise.
csv.field_size_limit(2**31 - 1)
