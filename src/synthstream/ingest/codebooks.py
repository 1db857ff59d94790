"""What is publicly known of columns before any row is read: names, declared types, codebooks, catalogues."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from synthstream.config.sources import Dialect
from synthstream.errors import SourceError
from synthstream.ingest.files import FileSource
from synthstream.schema.conditions import first
from synthstream.schema.dialects import holds

Type = Literal["category", "boolean", "integer", "number", "datetime"]
_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a column; ``None`` and nothing where it is not.

    Args:
        form: how texts write its times.
    """

    name: str
    type: Type | None = None
    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    form: str | None = None
    label: str | None = None
    description: str | None = None


@dataclass(frozen=True, kw_only=True)
class Codebook:
    """Columns, and the keys of ``[source]`` that say how they are written."""

    columns: tuple[Known, ...]
    source: Mapping[str, Any] = field(default_factory=dict)


# -- files -----------------------------------------------------------------------------------------------------------


def of_parquet(path: Path) -> Codebook:
    """Names and types of a Parquet file's columns. Raises as pyarrow does."""
    return Codebook(columns=tuple(Known(name=one.name, type=_type_of(one.type)) for one in pq.read_schema(path)))


def _type_of(kind: pa.DataType) -> Type:
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "datetime" if pa.types.is_temporal(kind) else "category"


def of_header(path: Path) -> Codebook:
    """Names in the first line of a CSV file, and what parts them. Raises as :meth:`FileSource.names`."""
    found: dict[tuple[str, str], list[str]] = {}
    for encoding in ("utf-8", "windows-1252"):
        for delimiter in _DELIMITERS:
            dialect = Dialect(delimiter=delimiter, encoding=encoding)
            found[encoding, delimiter] = FileSource(kind="csv", path=path, columns=(), dialect=dialect).names(path)
        if not any("\N{REPLACEMENT CHARACTER}" in name for name in found[encoding, ","]):
            break
    delimiter = max(_DELIMITERS, key=lambda one: len(found[encoding, one]))
    if trouble := _no_header(found[encoding, delimiter]):
        raise SourceError(f"{path}: {trouble}.")
    source = {"delimiter": delimiter} if delimiter != "," else {}
    source |= {} if encoding == "utf-8" else {"encoding": encoding}
    return Codebook(columns=tuple(Known(name=name) for name in found[encoding, delimiter]), source=source)


def _no_header(names: Sequence[str]) -> str:
    """What is wrong with a first line as names, and how to mend it; it may be a row, and is not quoted."""
    if any("\N{REPLACEMENT CHARACTER}" in name for name in names):
        return "its first line is no text in UTF-8 or windows-1252. Unpack it, or save it as UTF-8"
    if names and names[0].lstrip().startswith(("{", "[{")):
        return "its first line is JSON, no header: name a file of an object in each line .jsonl, and a --codebook"
    if names and names[0].startswith("sep="):
        return (
            "its first line names the separator alone. Take it out for the draft; header = 2 in [source] passes it over"
        )
    row = "write a line with a name for each column above it; later, header = [...] in [source] names them as well"
    if 2 * sum(any(map(str.isalpha, name)) for name in names) < len(names):
        return f"its first line seems to be a row, since most of its names have no letter: {row}"
    times = Counter(names)
    if again := [str(n) for n, name in enumerate(names, start=1) if times[name] > 1]:
        return (
            f"names in its first line are there twice, or several are empty (columns {first(again)}). If it is a "
            "header, give each column a name of its own in the file: one whose name is there twice cannot be counted. "
            f"If it is a row, {row}"
        )
    return ""


# -- Table Schema ----------------------------------------------------------------------------------------------------

_TYPES: dict[str, Type] = {
    "boolean": "boolean",
    "integer": "integer",
    "year": "integer",
    "number": "number",
    "date": "datetime",
    "datetime": "datetime",
    "time": "datetime",
}


def of_table_schema(book: Path, data: Path) -> Codebook:
    """A codebook: a Table Schema, or a data package that has one for a file (of its name, or the only one).

    Raises:
        SourceError: it is neither, or has none for the file.
    """
    try:
        found = json.loads(book.read_text(encoding="utf-8-sig"))
        resources = found.get("resources", [{"schema": found}])
        named = [one for one in resources if Path(str(one.get("path", ""))).name == data.name]
        (resource,) = named[:1] or resources
        fields = [dict(one) for one in resource["schema"]["fields"]]
        columns = tuple(_of_field(one) for one in fields)
    except OSError as error:
        raise SourceError(f"{book} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise SourceError(
            f"{book}: is no Table Schema, and no data package with a schema for {data.name}. It must have fields, each "
            "with a name and a type."
        ) from None
    dialect = dict(resource.get("dialect") or {})
    signs = {
        "delimiter": dialect.get("delimiter"),
        "quote": dialect.get("quoteChar"),
        "encoding": resource.get("encoding"),
        "decimal": _first(fields, "decimalChar"),
        "thousands": _first(fields, "groupChar"),
    }
    said = {key: value for key, value in signs.items() if isinstance(value, str)}
    source: dict[str, Any] = {key: value for key, value in said.items() if value.lower() != getattr(Dialect(), key)}
    if dialect.get("header") is False:
        source["header"] = [column.name for column in columns]
    return Codebook(columns=columns, source=source)


def _first(fields: Iterable[Mapping[str, Any]], key: str) -> Any:
    return next((one[key] for one in fields if key in one), None)


def _of_field(one: Mapping[str, Any]) -> Known:
    limits, type_ = dict(one.get("constraints") or {}), _TYPES.get(str(one.get("type", "string")), "category")
    listed = limits.get("enum") or [
        kind.get("value") if isinstance(kind, dict) else kind for kind in one.get("categories") or []
    ]
    values = tuple(str(value) for value in listed)
    numbers = type_ in ("integer", "number")
    form = one.get("format") if type_ == "datetime" else None
    return Known(
        name=str(one["name"]),
        type="category" if values and type_ != "boolean" else type_,
        values=values,
        low=_number(limits.get("minimum")) if numbers else None,
        high=_number(limits.get("maximum")) if numbers else None,
        form=form if isinstance(form, str) and "%" in form and holds(form) is not None else None,
        label=_text_of(one.get("title")),
        description=_text_of(one.get("description")),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float | str) else None


def _text_of(value: object) -> str | None:
    """A text in one line; nothing for an empty one, and for what is no text."""
    return " ".join(value.split()) or None if isinstance(value, str) else None


# -- PostgreSQL ------------------------------------------------------------------------------------------------------

_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT a.attnum, a.attname, a.atttypid AS kind, a.attidentity <> '' AS numbered, a.attrelid, 0::oid AS domain
    FROM pg_attribute a
    WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v'
    UNION ALL
    SELECT b.attnum, b.attname, t.typbasetype, b.numbered, b.attrelid, t.oid
    FROM base b JOIN pg_type t ON t.oid = b.kind WHERE t.typbasetype <> 0
)
SELECT b.attname, t.typname, t.typcategory, b.numbered,
    ARRAY(SELECT enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY enumsortorder),
    ARRAY(SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c WHERE c.contype = 'c' AND (
        (c.conrelid = b.attrelid AND c.conkey = ARRAY[b.attnum])
        OR c.contypid IN (SELECT d.domain FROM base d WHERE d.attnum = b.attnum AND d.domain <> 0))),
    col_description(b.attrelid, b.attnum)
FROM base b JOIN pg_type t ON t.oid = b.kind WHERE t.typbasetype = 0 ORDER BY b.attnum
"""
_LIST = re.compile(r"= ANY \(+ARRAY\[(.*?)\]")
_LITERAL = re.compile(r"'((?:[^']|'')*)'")
_BOUND = re.compile(r"(>=|<=|>|<) \(*'?(-?\d+(?:\.\d+)?)'?")
_BY_CATEGORY: dict[str, Type] = {"B": "boolean", "D": "datetime"}


def of_catalogue(table: str, *, service: str | None) -> Codebook:
    """Columns of a table of PostgreSQL, with what ``CHECK`` and ``ENUM`` say of them. No row is read.

    Raises:
        SourceError: psycopg is not installed, the server cannot be reached, or it has no such table.
    """
    try:
        from synthstream.config.servers import Unreachable, connected, oid_of
    except ImportError:
        raise SourceError("psycopg is not installed here. Say: pip install 'synthstream[postgres]'") from None
    try:
        with connected(service) as connection:
            found = connection.execute(_COLUMNS, {"table": oid_of(connection, table)}).fetchall()
    except Unreachable as error:
        raise SourceError(f"postgres {table}: {error}.") from None
    if not found:
        raise SourceError(f"postgres {table}: there is no such table. Write it as SQL does, as in public.visits.")
    numbered = next((str(row[0]) for row in found if row[3]), None)
    source: dict[str, Any] = {"table": table, **({} if numbered is None else {"sequence": numbered})}
    source |= {} if service is None else {"service": service}
    return Codebook(columns=tuple(_of_row(row) for row in found if row[0] != numbered), source=source)


def _of_row(row: Sequence[Any]) -> Known:
    name, kind, category, _, labels, checks, words = row
    values, low, high = tuple(labels), None, None
    whole = kind in ("int2", "int4", "int8")
    for check in checks:
        if " OR " in check or "NOT " in check:
            continue
        if listed := _LIST.search(check):
            values = tuple(one.replace("''", "'") for one in _LITERAL.findall(listed[1]))
        for sign, text in _BOUND.findall(check):
            number = float(text) + (whole and {">": 1, "<": -1}.get(sign, 0))
            low, high = (number, high) if sign[0] == ">" else (low, number)
    other: Type = "integer" if whole else "number" if category == "N" else "category"
    type_: Type = "category" if values else _BY_CATEGORY.get(category, other)
    return Known(name=name, type=type_, values=values, low=low, high=high, description=_text_of(words))
