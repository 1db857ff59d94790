"""A first stream.toml from a file's column types. No value of any row is read."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from synthstream.config.problems import PUBLIC_BOUND
from synthstream.errors import SourceError
from synthstream.ingest.files import cells_of
from synthstream.schema.coercion import require

_HEAD = """# A draft from the column types of {file}; no value was read.
# Replace every {todo} by what is publicly known, never by what the data show. Drop columns that nobody needs.
name = "{name}"
state = "state"                     # exact counts live here: keep it as secret as the data
{op}
[privacy]
epsilon = {todo}               # the promise; 1.0 is common
delta = 1e-9                        # 0 asks for pure epsilon-DP
unit = "event"                      # one row is protected, not one person: see docs/limits.md
# unit = {{ person = "column", max_events = 20 }}   # protects a person; of each, at most so many rows count

[clock]
{column}start = {todo}                 # a date, such as 2026-01-01
# Times are read as ISO 8601, such as 2026-01-31 or 2026-01-31T12:00:00. What cannot be read counts in the open tick.
every = "1w"
# until = {todo}               # where the data end; left out, ticks are closed up to today, and paid for
horizon = {todo}               # how many ticks the budget covers, or "unbounded"

[synthesizer]
kind = "table"
{points}
[source]
kind = "{kind}"
path = "{place}"

[sink]
kind = "parquet"
path = "releases"
"""


# A CSV file does not say which column holds times, and neither does a Parquet file that keeps them as texts.
_UNKNOWN_CLOCK = f"""column = {PUBLIC_BOUND}                # which column holds a row's time? No type says it.
                                    # Without one, remove this line: rows then count when they are first seen
"""

# Stands below ``kind`` if it may as well be the other one.
_POINTS = """# kind = "points"                   # all columns are numbers: points in a box, as fine as data allow. Each
                                    # column then has type "number", and missing = ... in place of bins
"""


def draft(path: Path, *, op: str | None = None, base: Path | None = None) -> str:
    """Text of a ``stream.toml`` for a Parquet or CSV file; it does not load until every open place is filled in.

    Args:
        op: the column that says whether a row adds an event or takes one away, if there is one.
        base: the folder that the configuration will be in; left out: the current one. A relative path is written so
            that it holds from there.

    Raises:
        SchemaError: there is no column ``op``.
        SourceError: the file is missing, broken, or neither Parquet nor CSV.
    """
    kind = path.suffix.removeprefix(".").lower()
    try:
        if kind == "parquet":
            types = [(field.name, field.type) for field in pq.read_schema(path)]
        elif kind == "csv":
            with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
                types = [(name, None) for name in cells_of(file.readline())]
        else:
            raise SourceError(f"{path}: only files that end in .parquet or .csv can be drafted from")
    except (pa.ArrowException, OSError) as error:
        why = getattr(error, "strerror", None) or "it may be truncated or of another kind"
        raise SourceError(f"{path} cannot be read as {kind}: {why}.") from None
    if not types:
        raise SourceError(f"{path} has no columns; a CSV file needs a header")
    if op is not None:
        require([op], [name for name, _ in types])
    types = [(name, kind_of) for name, kind_of in types if name != op]
    if kind == "csv" and len(types) == 1 and any(sign in types[0][0] for sign in ";\t|"):
        raise SourceError(f"{path}: its header is one cell. Commas part the cells of a CSV file; convert it first.")
    clocks = [name for name, kind_of in types if kind_of is not None and pa.types.is_temporal(kind_of)]
    column = f"column = {_quoted(clocks[0])}\n" if clocks else _UNKNOWN_CLOCK
    sign = "" if op is None else f"op = {_quoted(op)}                # -1 there: the row takes an event away\n"
    rest = [(name, kind_of) for name, kind_of in types if name not in clocks[:1]]
    numbers = bool(rest) and all(_is_number(kind_of) for _, kind_of in rest)
    head = _HEAD.format(
        file=_toml_text(path.name),
        place=_toml_text(str(path) if path.is_absolute() or base is None else os.path.relpath(path, base)),
        name=_toml_text(path.stem),
        kind=kind,
        todo=PUBLIC_BOUND,
        column=column,
        op=sign,
        points=_POINTS if numbers else "",
    )
    return head + "".join(_column(name, kind_of) for name, kind_of in rest)


def _is_number(kind: pa.DataType | None) -> bool:
    return kind is not None and any(
        is_one(kind) for is_one in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    )


def _column(name: str, kind: pa.DataType | None) -> str:
    lines = ["", "[[columns]]", f"name = {_quoted(name)}"]
    if kind is None:
        lines += [
            f"type = {PUBLIC_BOUND}                  # category (with values), boolean, integer, number or datetime"
        ]
    elif pa.types.is_boolean(kind):
        lines += ['type = "boolean"']
    elif pa.types.is_integer(kind):
        lines += ['type = "integer"', f"min = {PUBLIC_BOUND}", f"max = {PUBLIC_BOUND}"]
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        lines += ['type = "number"', f"min = {PUBLIC_BOUND}", f"max = {PUBLIC_BOUND}", "bins = 20"]
    elif pa.types.is_temporal(kind):
        lines += ['type = "datetime"', 'part = "weekday"                    # or min, max and bins']
    else:
        lines += ['type = "category"', f"values = [{PUBLIC_BOUND}]"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A TOML basic string."""
    return f'"{_toml_text(text)}"'


def _toml_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped)
