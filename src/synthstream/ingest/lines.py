"""Lines of text files as rows: each line by itself, so that none can change how another one is read."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from synthstream.config.sources import Dialect
from synthstream.kinds import COMPRESSED

_BLOCK = 1 << 20  # bytes of a compressed file that are unpacked at once
# Of a line, as much is looked at as fits in memory whatever it holds: an empty list takes 3 bytes there, and 64 here.
_LARGEST = 2**24  # bytes of an object of JSON; a larger one has no cells
# Delimiters of a line, beyond which all is surplus; parts of an object of JSON, which has no cells if it has more.
_PARTS = 2**18
_LONGEST = 4096  # characters of a cell of JSON; of a longer one, the first
_MOST = _LARGEST + 1  # characters of a line with its end; of a longer one, the first
_NOTHING: dict[str, Any] = {}


def opened(path: Path, encoding: str) -> TextIO:
    """A text file; unpacked, if its name ends so. What is not of the encoding is replaced.

    Raises:
        OSError: the system cannot read it. Reading raises it too, without an errno, if what is packed is damaged.
    """
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding
    if path.suffix.lower() not in COMPRESSED:
        return path.open(encoding=encoding, errors="replace", newline="")
    unpacked: Any = pa.input_stream(path.open("rb"), compression=pa.Codec.detect(path.name.lower()).name)
    return io.TextIOWrapper(io.BufferedReader(unpacked, _BLOCK), encoding=encoding, errors="replace", newline="")


def rows_of(file: TextIO, dialect: Dialect) -> tuple[list[str] | None, Iterator[list[str]]]:
    """Names of the columns of a CSV file, and its rows after them; no names if the file ends before they come."""
    if dialect.multiline:
        # No line is cut: what lies beyond may close a quotation mark.
        lines: Iterator[str] = iter(file)
        rows: Iterator[list[str]] = csv.reader(map(_without_nulls, lines), **_as_csv_knows(dialect))
    else:
        lines = lines_of(file)
        rows = map(splitter(dialect), lines)
    if isinstance(dialect.header, tuple):
        return list(dialect.header), rows
    for _ in range(dialect.header - 1):
        next(lines, None)
    return next(rows, None), rows


def lines_of(file: TextIO) -> Iterator[str]:
    """Lines of a text, each with its end; of one that is longer than is looked at, its beginning.

    No more of a line is in memory, wherever it ends: a packed file of a megabyte may hold one of gigabytes.
    """
    line = file.readline(_MOST)
    while line:
        yield line
        while len(line) == _MOST and line[-1] not in "\r\n":
            line = file.readline(_MOST)
        parted = len(line) == _MOST and line[-1] == "\r"  # what ends it may be two signs
        line = file.readline(_MOST)
        if parted and line == "\n":
            line = file.readline(_MOST)


def splitter(dialect: Dialect) -> Callable[[str], list[str]]:
    r"""What parts one line of a CSV file into cells, whatever stands in other lines. Total; a blank line has none.

    Example:
        >>> cells = splitter(Dialect())
        >>> cells('red,"a, b",\n'), cells('red,"never closed, 5\n')
        (['red', 'a, b', ''], ['red', 'never closed, 5'])
        >>> splitter(Dialect(delimiter=";"))("1,5;x\n")
        ['1,5', 'x']
    """
    known, quote, delimiter = _as_csv_knows(dialect), dialect.quote, dialect.delimiter

    def cells(line: str) -> list[str]:
        if line.count(delimiter) > _PARTS:
            line = line[: -len(line.split(delimiter, _PARTS + 1)[-1]) - 1]
        line = _without_nulls(line).rstrip("\r\n")
        if quote and quote in line:
            return next(csv.reader((line,), **known))
        return line.split(delimiter) if line else []  # what the reader gives too, for a third of the time

    return cells


def _as_csv_knows(dialect: Dialect) -> dict[str, Any]:
    if not dialect.quote:
        return {"delimiter": dialect.delimiter, "quoting": csv.QUOTE_NONE}
    return {"delimiter": dialect.delimiter, "quotechar": dialect.quote}


def _without_nulls(line: str) -> str:
    return line.replace("\0", "\N{REPLACEMENT CHARACTER}")


def object_of(text: str | bytes | None) -> dict[str, Any]:
    """The object of JSON that a message, or a line, holds; without any keys if it holds none.

    Numbers stay as they are written.

    Example:
        >>> object_of(b'{"age": 1e400, "ward": "A"}')
        {'age': '1e400', 'ward': 'A'}
        >>> object_of("[1]"), object_of("{"), object_of(None)
        ({}, {}, {})
    """
    if text is None or len(text) > _LARGEST:
        return _NOTHING
    text = text.decode("utf-8-sig", "replace") if isinstance(text, bytes) else text
    if sum(map(text.count, "[{,")) > _PARTS:
        return _NOTHING
    try:
        found = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return _NOTHING
    return found if isinstance(found, dict) else _NOTHING


def cell_of(value: object) -> str | None:
    """A cell of such an object as text; half characters are replaced. Lists and objects have none."""
    if isinstance(value, str):
        return value[:_LONGEST].encode("utf-8", "replace").decode()
    return {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None


# A cell may be long: nothing about a row may raise.
csv.field_size_limit(sys.maxsize)
