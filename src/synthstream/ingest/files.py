"""Where rows come from: files, read in chunks of bounded memory."""

from __future__ import annotations

import csv
import glob
import hashlib
import io
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from synthstream.config.objects import ObjectPath
from synthstream.config.sources import Dialect, fitting
from synthstream.errors import FileDamaged, SchemaError, SourceError
from synthstream.ingest.lines import cell_of, lines_of, object_of, opened, rows_of
from synthstream.kinds import FileKind, is_text, kind_of
from synthstream.schema.coercion import AS_TEXT, CHUNK_ROWS, bare, polars_frame, require
from synthstream.schema.dialects import plain_numbers, times_as

_CHUNK_BYTES = 64_000_000  # of a chunk, and of a batch by what its file says
_CELL_BYTES = 16  # of a cell's place in its row and its column
_BATCH_ROWS = 4096  # a file may say less than it holds: a value that is stored once counts once
_DELIMITERS = (";", "\t", "|", ",")
# How files begin that have no header there, byte by byte, and what to do about them. It is as public as a header.
_NO_HEADER = {
    "\x1f\x8b": "This is gzip: name it {}.gz, and change path with it.",
    "\x28\xb5\x2f\xfd": "This is zstd: name it {}.zst, and change path with it.",
    "PK\x03\x04": "This is a zip archive, or a workbook: unpack it, or save it as CSV.",
    "PAR1": 'This is Parquet: name it .parquet, and say kind = "parquet".',
    "{": 'This is JSON: say kind = "jsonl", if each line is an object.',
    "[{": 'This is JSON: write each object on a line of its own, and say kind = "jsonl".',
    "sep=": "Its first line names the separator alone: say header = 2 in [source], for all files.",
    "\xff\xfe": "This is UTF-16: convert it, iconv -f UTF-16 -t UTF-8.",
    "\xfe\xff": "This is UTF-16: convert it, iconv -f UTF-16 -t UTF-8.",
}
_RENAMED = (
    " As long as the stream has not begun, mend the name in stream.toml; afterwards write this file anew with the "
    "names that stand there."
)
_Row = list[str | None]
_TOO_MUCH = (pa.ArrowNotImplementedError, pa.ArrowCapacityError, pa.ArrowMemoryError)  # for one batch


def _no_file(path: Path) -> bool:
    """Whether it is something else than a file; of what the system tells nothing, whoever reads it says so."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def path_of(rows: str | Path) -> Path:
    """Where a file of rows lies. Raises ``SourceError``, which repeats nothing, if it may be rows themselves."""
    name = str(rows)
    pattern = glob.has_magic(name) and kind_of(Path(name)) is not None and not is_text(name)
    if os.path.isdir(name) or (pattern and not os.path.exists(name)):
        raise SourceError("rows: give one file at a time; patterns stand in [source], as path. Nothing was counted.")
    if not os.path.exists(name) and (is_text(name) or kind_of(Path(name)) is None):
        what = "this is text, not a path;" if is_text(name) else "there is no such file. If this is text, not a path,"
        raise SourceError(f"rows: {what} {AS_TEXT[0].lower()}{AS_TEXT[1:]}. Nothing was counted.")
    return Path(rows).absolute()


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """Parquet, CSV, or an object of JSON in each line; text may be packed (``.gz``, ``.zst``).

    In a file of text every cell is text: no cell can be of a wrong type, and each is read by itself. A line is a row; a
    quotation mark that its line does not close holds the rest of that line. A row with too few cells has null in the
    others; of a row with too many the surplus is ignored; bytes that are not of the encoding are replaced. So no row of
    such a file, and no cell of a Parquet file that is what its own schema says, can keep another row from being read
    (theorem availability).

    Args:
        path: a file, or a pattern such as ``visits-*.csv``; absolute.
        columns: what to read; other columns are never looked at.
        dialect: of CSV files. If its cells may hold line ends (``multiline``), a quotation mark that is never closed
            joins all later rows of its file into one.
        numbers: columns whose texts are numbers, as the dialect writes them.
        formats: in which forms texts of columns write times; where there is none, they stay texts.
    """

    kind: FileKind
    path: Path
    columns: tuple[str, ...]
    dialect: Dialect = field(default_factory=Dialect)
    numbers: frozenset[str] = frozenset()
    formats: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def files(self, *, gone: bool = False) -> list[Path]:
        """The files, sorted by name. A pattern that nothing fits has none, if its folder is there.

        A folder that fits it is passed over, unless its name ends as those of files do: such a one may hold rows.

        Args:
            gone: whether the same holds for the one file, if no pattern is named.

        Raises:
            SourceError: the one file, or the folder that the pattern begins with, is not there or cannot be read; or
                something that fits is no file: whoever read it might wait for ever.
        """
        if isinstance(self.path, ObjectPath):
            return self._objects(self.path, gone=gone)
        fits = sorted(map(Path, fitting(str(self.path))))
        found = [path for path in fits if kind_of(path) is not None or not path.is_dir()]
        if not found and self.path.exists():
            found = [self.path]
        if found == [self.path] and self.path.is_dir():
            raise SourceError(
                f"source.path = {self.path}: is a folder. Name its files, as in {self.path.name}/*.{self.kind}"
            )
        if not found and not gone and not glob.has_magic(str(self.path)):
            raise SourceError(f"source.path = {self.path}: there is no such file. Check the path.")
        if odd := next(filter(_no_file, found), None):
            what = "a folder: name the files in it" if odd.is_dir() else "a pipe, a socket or a device: take it away"
            raise SourceError(f"{odd}: is no file, but {what}. No tick was closed.")
        if not found:  # in a folder that is away a pattern finds nothing, and says nothing
            folder = next(folder for folder in self.path.parents if not glob.has_magic(str(folder)))
            try:
                os.scandir(folder).close()
            except OSError as error:
                raise SourceError(
                    f"source.path = {self.path}: the folder {folder} cannot be read: {error.strerror}. Check the "
                    "pattern, and whether a disk or a server is away. No tick was closed."
                ) from None
        return found

    def _objects(self, path: ObjectPath, *, gone: bool) -> list[Path]:
        """The same in an object store. A folder there is no more than a part of names: one without objects is empty."""
        fixed = next((n for n, part in enumerate(path.parts) if glob.has_magic(part)), len(path.parts) - 1)
        pattern = "/".join(path.parts[fixed:])
        try:
            found: list[Path] = list(ObjectPath(*path.parts[:fixed]).glob(pattern))
        except OSError as error:
            raise SourceError(f"source.path = {path}: {error.strerror}. No tick was closed.") from None
        if not found and not gone and not glob.has_magic(pattern):
            raise SourceError(f"source.path = {path}: there is no such object. Check the path.")
        return found

    def fingerprint(self, path: Path) -> str:
        """SHA-256 of a file's content, hexadecimal; of an object its size and ETag, which need no reading."""
        try:
            if isinstance(path, ObjectPath):
                return path.version()
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}.") from error

    def parts(self, path: Path) -> int:
        """Number of parts of a file that can be read apart: its row groups; a file of text is one part."""
        with self._told(path):
            return int(pq.read_metadata(for_arrow(path)).num_row_groups) if self.kind == "parquet" else 1

    def read(self, path: Path, *, part: int | None = None) -> Iterator[pl.DataFrame]:
        """Rows of one file, at most ``CHUNK_ROWS`` at a time, and fewer if they are long.

        Args:
            part: only this one of its :meth:`parts`.

        Raises:
            FileDamaged: its bytes are no such file, or end before their end.
            SourceError: the system cannot read it.
            SchemaError: a column is missing. Checked before any row is handed out.
        """
        with self._told(path):
            if self.kind == "parquet":
                yield from self._parquet(path, part)
            else:
                yield from (self._csv if self.kind == "csv" else self._jsonl)(path)

    @contextmanager
    def _told(self, path: Path) -> Iterator[None]:
        """What is wrong with a file becomes our own words."""
        try:
            yield
        except SchemaError as error:
            raise SchemaError(f"{path}: {error}{self._advice(path)}") from None
        except FileNotFoundError:
            raise SourceError(f"{path}: there is no such file. Check the path. Nothing of it was counted.") from None
        except (pa.ArrowException, pl.exceptions.PolarsError, csv.Error, OSError) as error:
            # For a damaged file pyarrow raises OSError too, without an errno; its own text may quote the file.
            if why := getattr(error, "strerror", None):
                raise SourceError(f"{path} cannot be read: {why}. Nothing of it was counted.") from None
            odd = self.kind == "parquet" and path.suffix != ".parquet"
            why = "it may be truncated or of another kind" + " (names of texts end in .csv or .jsonl)" * odd
            what = f"{path} cannot be read as {self.kind}: {why}"
            raise FileDamaged(f"{what}. Nothing of it was counted; replace it and run again.") from None

    def _parquet(self, path: Path, part: int | None) -> Iterator[pl.DataFrame]:
        with pq.ParquetFile(for_arrow(path)) as file:
            schema = file.schema_arrow
            require(self.columns, schema.names)
        # Such a column is made by pyarrow of what the file stores: it may refuse a cell in doing so.
        kinds = [schema.field(name).type for name in self.columns]
        plain = any(pa.types.is_nested(kind) or "dictionary" in str(kind) for kind in kinds)
        # Of types with 32 bits nested cells of a batch could hold 2^31 bytes of text in all: one row would decide.
        wide = {"binary_type": pa.large_binary(), "list_type": pa.LargeListType} if plain else {}
        with pq.ParquetFile(for_arrow(path), metadata=_as_if_plain(path) if plain else None, **wide) as file:
            groups = range(file.num_row_groups) if part is None else [part]
            batches = chain.from_iterable(_batches(file, group, self.columns) for group in groups)
            for rows in together(batches):
                yield polars_frame(_with_durations(rows, schema) if plain else rows, self.columns)

    def names(self, path: Path) -> list[str]:
        """Names of the columns that a file says it has; of objects of JSON, which say none beforehand, those asked for.

        Raises:
            FileDamaged: it has no header, or its bytes are no such file.
            SourceError: the system cannot read it.
        """
        with self._told(path):
            if self.kind == "parquet":
                return list(pq.read_schema(for_arrow(path)).names)
            if self.kind == "jsonl":
                return list(self.columns)
            with opened(path, self.dialect.encoding) as file:
                return _there(path, rows_of(file, self.dialect)[0])

    def require_columns(self, path: Path) -> None:
        """Raise ``SchemaError`` unless a file has all columns, as far as its header says; and as :meth:`names`."""
        with self._told(path):
            require(self.columns, self.names(path))

    def mended(self, path: Path) -> dict[str, str]:
        """Keys of [source], and what to write there, with which the header of a CSV file has all columns, if any do."""
        for encoding in (self.dialect.encoding, "utf-8", "windows-1252") if self.kind == "csv" else ():
            for delimiter in (self.dialect.delimiter, *_DELIMITERS):
                keys = {"delimiter": delimiter, "encoding": encoding}
                other = replace(self, dialect=self.dialect.model_copy(update=keys))
                with suppress(SchemaError, SourceError):
                    require(self.columns, other.names(path))
                    return {key: json.dumps(said) for key, said in keys.items() if said != getattr(self.dialect, key)}
        return {}

    def _advice(self, path: Path) -> str:
        """Keys that would let the header be read, if there are some: of what the header's own line holds."""
        if self.kind != "csv" or isinstance(self.dialect.header, tuple):
            return "" if self.kind == "csv" else _RENAMED
        with opened(path, "iso8859-1") as file:
            begins = file.read(4)
        if said := next((words for start, words in _NO_HEADER.items() if begins.startswith(start)), None):
            return f" {said.format(path.name)}"
        if keys := self.mended(path):
            said = " and ".join(f"{key} = {value}" for key, value in keys.items())
            other = "If others are not so, write this one anew as they are."
            return f" Its header has all columns with {said} in [source], for all files. {other}"
        names = self.names(path)
        if "\N{REPLACEMENT CHARACTER}" in "".join(names):
            return f" The line of its header is no text in {self.dialect.encoding}."
        if not set(map(bare, self.columns)).isdisjoint(map(bare, names)):
            return _RENAMED
        return (
            " If its first line is a row, write the names above it; or, if no file has them, say them in [source]: "
            "header = [...]. If in all files they stand further down, say in which line: header = 3."
        )

    def _csv(self, path: Path) -> Iterator[pl.DataFrame]:
        with opened(path, self.dialect.encoding) as file:
            found, rows = rows_of(file, self.dialect)
            header = _there(path, found)
            require(self.columns, header)
            places = [header.index(name) for name in self.columns]
            if len(header) > 1:  # a blank line is no row, unless an empty cell is all that a row has
                rows = filter(None, rows)
            cells = ([row[place] or None if place < len(row) else None for place in places] for row in rows)
            yield from map(self._texts, _chunks(cells))

    def _jsonl(self, path: Path) -> Iterator[pl.DataFrame]:
        with opened(path, "utf-8") as file:
            rows = map(object_of, filter(str.strip, lines_of(file)))
            cells = ([cell_of(row.get(name)) for name in self.columns] for row in rows)
            yield from map(self._texts, _chunks(cells))

    def _texts(self, rows: list[_Row]) -> pl.DataFrame:
        """Cells as the dialect means them: what it writes in its own way as everybody does, and times as times."""
        named = ((name, [row[place] for row in rows]) for place, name in enumerate(self.columns))
        return pl.DataFrame([self.meant(pl.Series(name, cells, dtype=pl.String)) for name, cells in named])

    def meant(self, text: pl.Series) -> pl.Series:
        """Texts of a column as the dialect means them."""
        if text.dtype != pl.String:
            return text
        if text.name in self.formats:
            return times_as(text, self.formats[text.name])
        if text.name in self.numbers and (self.dialect.decimal, self.dialect.thousands) != (".", ""):
            return plain_numbers(text, decimal=self.dialect.decimal, thousands=self.dialect.thousands)
        return text


def _chunks(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    """Rows in lists that are bounded by rows and by bytes; at least one list."""
    chunk: list[_Row] = []
    total = 0
    for row in rows:
        chunk.append(row)
        total += _CELL_BYTES * len(row) + sum(map(str.__sizeof__, filter(None, row)))
        if len(chunk) == CHUNK_ROWS or total >= _CHUNK_BYTES:
            yield chunk
            chunk, total = [], 0
    yield chunk


def _there(path: Path, header: list[str] | None) -> list[str]:
    if header is None:
        what = "Nothing of it was counted; replace it, or take it away."
        raise FileDamaged(f"{path} is empty: it has not even a header. {what}")
    return header


def together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in fewer, larger tables, which are counted faster: bounded by rows and by bytes."""
    parts: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if parts and (rows + batch.num_rows > CHUNK_ROWS or size + batch.nbytes > _CHUNK_BYTES):
            yield pa.Table.from_batches(parts)
            parts, rows, size = [], 0, 0
        parts.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if parts:
        yield pa.Table.from_batches(parts)


def _batches(file: pq.ParquetFile, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a row group, each once and in order. No batch decides: one that holds too much is read in halves."""
    known = file.metadata.row_group(group)
    rows = min(CHUNK_ROWS, _BATCH_ROWS, max(1, _CHUNK_BYTES * known.num_rows // max(1, known.total_byte_size)))
    done = 0
    while True:
        start = 0
        try:
            for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=list(columns)):
                end = start + batch.num_rows
                if end > done:
                    yield batch.slice(max(0, done - start))
                start, done = end, max(done, end)
            return
        except _TOO_MUCH:
            if rows == 1:
                raise
            rows //= 2


def for_arrow(path: Path) -> Any:
    """What pyarrow reads a file from."""
    return path.open("rb") if isinstance(path, ObjectPath) else path


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


def _with_durations(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns that are durations by the Arrow types of a file, which Parquet itself knows as whole numbers."""
    for place, name in enumerate(table.column_names):
        if pa.types.is_duration(kind := schema.field(name).type):
            table = table.set_column(place, name, table.column(name).cast(kind))
    return table
