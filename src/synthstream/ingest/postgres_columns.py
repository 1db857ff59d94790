"""What PostgreSQL's catalogue says of a table's columns: types, and the values that ``CHECK`` and ``ENUM`` allow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from synthstream.config.servers import Unreachable, connected
from synthstream.errors import SourceError
from synthstream.ingest.codebooks import Codebook, Known, Type, text_of

_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT a.attnum, a.attname, a.atttypid AS kind, a.attidentity <> '' AS numbered, a.attrelid, 0::oid AS domain
    FROM pg_attribute a
    WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v'
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
        SourceError: the server cannot be reached, or has no such table.
    """
    try:
        with connected(service) as connection:
            found = connection.execute(_COLUMNS, {"table": table}).fetchall()
    except Unreachable as error:
        raise SourceError(f"postgres {table}: {error}.") from None
    if not found:
        raise SourceError(f"postgres {table}: there is no such table. Write it as SQL does, as in public.visits.")
    numbered = next((str(row[0]) for row in found if row[3]), None)
    source: dict[str, Any] = {"table": table, **({} if numbered is None else {"sequence": numbered})}
    source |= {} if service is None else {"service": service}
    return Codebook(columns=tuple(_of_row(*row) for row in found if row[0] != numbered), source=source)


def _of_row(
    name: str,
    kind: str,
    category: str,
    _: bool,
    labels: Sequence[str],
    checks: Sequence[str],
    words: str | None,
) -> Known:
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
    return Known(name=name, type=type_, values=values, low=low, high=high, description=text_of(words))
