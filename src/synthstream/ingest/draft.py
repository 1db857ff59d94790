"""A first stream.toml from what is known of columns without reading a row."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa

from synthstream.config.problems import PUBLIC_BOUND
from synthstream.config.settings import written
from synthstream.errors import SourceError
from synthstream.ingest.codebooks import (
    Codebook,
    Known,
    of_catalogue,
    of_header,
    of_parquet,
    of_table_schema,
)
from synthstream.kinds import COMPRESSED, kind_of
from synthstream.schema.coercion import require
from synthstream.schema.dialects import holds
from synthstream.schema.naming import coordinates_of, identifies, names_a_moment, names_a_person

_POSTGRES = "postgres:"

_HEAD = """# A draft from what is known of the columns of {file}; no row was read.
# Replace every {todo} by what is publicly known, never by what the data show. Drop columns that nobody needs.
name = {name}
state = "state"                     # exact counts live here: keep it as secret as the data
{op}
[privacy]
epsilon = {todo}               # the promise; 1.0 is common
delta = 1e-9                        # 0 asks for pure epsilon-DP
unit = {todo}                  # "event" protects one row; this protects a person:
# unit = {{ person = {person}, max_events = {todo} }}     # of each, at most so many rows count

[clock]
{column}start = {todo}                 # a date, such as 2026-01-01
# A time that cannot be read counts in the open tick.
every = "1w"
# wait = "3d"                       # how long rows may be late, and still count in their own tick
# timezone = "Europe/Berlin"        # whose wall clock ticks follow; left out: UTC
# until = {todo}               # where the data end; left out, ticks are closed up to today, and paid for
horizon = {todo}               # how many ticks the budget covers, or "unbounded"

[synthesizer]
{kind}
[source]
{source}
[sink]
kind = "parquet"
path = "releases"

# By noise some rows may be "other" or "missing" in a column. Where nothing is, say as which value odd and empty cells
# count: missing = "...", and for a category other = "...".
"""


# A CSV file does not say which column holds times, and neither does a Parquet file that keeps them as texts.
_UNKNOWN_CLOCK = f"""column = {PUBLIC_BOUND}                # which column holds a row's time? No type says it.
                                    # Without one, remove this line: rows then count when they are first seen
"""

_UNKNOWN_TYPE = f"type = {PUBLIC_BOUND}                  # category (with values), boolean, integer, number or datetime"

# Stands below ``kind`` if it may as well be the other one.
_POINTS = """kind = "table"
# kind = "points"                   # all columns are numbers: points in a box, as fine as data allow. Each
                                    # column then has type "number", and missing = ... in place of bins
"""

# Stands there if all columns but the clock's are a latitude and a longitude.
_ALL_POINTS = """kind = "points"                     # points in a box, as fine as data allow: all columns are numbers
"""


def draft(
    data: Path | str,
    *,
    op: str | None = None,
    base: Path | None = None,
    codebook: Path | None = None,
    service: str | None = None,
) -> str:
    """Text of a ``stream.toml`` for a file or a table; it does not load until every open place is filled in.

    It is made of names, declared types and what a codebook or a catalogue says: no row is read. Columns whose names say
    that they identify somebody are left out, and named in a comment.

    Args:
        data: a Parquet, CSV or JSON-lines file; or ``postgres:`` and the name of a table.
        op: the column that says whether a row adds an event or takes one away, if there is one.
        base: the folder that the configuration will be in; left out: the current one. A relative path is written so
            that it holds from there.
        codebook: a Table Schema, or a data package that has one for the file.
        service: of PostgreSQL, in the operator's ``pg_service.conf``.

    Raises:
        SchemaError: there is no column ``op``.
        SourceError: the file is missing, broken or of another kind; so is the codebook, or the server does not answer.
    """
    table = str(data).removeprefix(_POSTGRES) if str(data).startswith(_POSTGRES) else None
    path = Path(data)
    kind = "postgres" if table is not None else kind_of(path) or "parquet"
    known = of_catalogue(table, service=service) if table is not None else _of_file(path, kind, codebook)
    known = _with_book(known, path, codebook, op)
    others = [column for column in known.columns if column.name != op]
    left = [column.name for column in others if column.type != "boolean" and identifies(column.name)]  # no flag does
    columns = [column for column in others if column.name not in left]
    clocks = [column.name for column in columns if column.type == "datetime"] or _clock_of_points(columns)
    rest = [column for column in columns if column.name not in clocks[:1]]
    places = _places(rest, taken={column.name for column in known.columns})
    points = len(rest) == 2 and bool(coordinates_of(column.name for column in rest if column.type in (None, "number")))
    numbers_alone = bool(rest) and all(column.type in ("integer", "number") for column in rest)
    where = str(path) if path.is_absolute() or base is None else os.path.relpath(path, base)
    head = _HEAD.format(
        file=_toml(table or path.name)[1:-1],
        name=_toml(table or path.name.split(".")[0]),
        todo=PUBLIC_BOUND,
        column=f"column = {_toml(clocks[0])}\n" if clocks else _UNKNOWN_CLOCK,
        op="" if op is None else f"op = {_toml(op)}                # -1 there: the row takes an event away\n",
        person=_toml(next(filter(names_a_person, left), "person")),
        kind=_ALL_POINTS if points else _POINTS if numbers_alone else 'kind = "table"\n',
        source=_source(kind, None if table is not None else where, known, columns),
    )
    located = {column.name for pair in places.values() for column in pair}
    parts = [_column(column, points=points) for column in rest if column.name not in located]
    parts += [_place(*place) for place in places.items()]
    parts += [f"\n# Left out, since its name says that it identifies somebody: {_toml(name)}\n" for name in left]
    return head + "".join(parts)


def _with_book(known: Codebook, path: Path, codebook: Path | None, op: str | None) -> Codebook:
    """What is known of the columns, with what a codebook adds. Raises if there are none, or not ``op``."""
    if codebook is not None:
        book = of_table_schema(codebook, path)
        named = {column.name: column for column in book.columns}
        better = tuple(named.get(column.name, column) for column in known.columns) or book.columns
        known = Codebook(columns=better, source={**known.source, **book.source})
    if not known.columns:
        raise SourceError(f"{path} has no columns; a CSV file needs a header")
    if op is not None:
        require([op], [column.name for column in known.columns])
    return known


def _source(kind: str, path: str | None, known: Codebook, columns: Sequence[Known]) -> str:
    """The keys of [source]; a table has no path."""
    source: dict[str, Any] = {"kind": kind, **({} if path is None else {"path": path}), **known.source}
    if forms := {column.name: column.form for column in columns if column.form is not None}:
        source["datetime_format"] = forms
    lines = [f"{key} = {_toml(value)}\n" for key, value in source.items()]
    lines += [f"sequence = {PUBLIC_BOUND}\n"] if path is None and "sequence" not in source else []
    # What no header tells of where files are and how texts are written: to be said where it is otherwise.
    if path is not None:
        pattern = f"{_toml(_beside(path))} ".ljust(28)
        lines.append(f"# path = {pattern}# a pattern: files that come later count, too\n")
    if kind in ("csv", "jsonl") and not forms:
        lines.append(
            '# datetime_format = "%d.%m.%Y"      # where times are not written as 2026-01-31 or 2026-01-31T12:00:00\n'
        )
    if kind == "csv" and "decimal" not in source:
        lines.append('# decimal = ","                     # where fractions are written as 1,5\n')
    if kind == "csv":
        lines.append("# multiline = true                  # where cells in quotation marks hold line ends\n")
    return "".join(lines)


def _beside(path: str) -> str:
    """A pattern of all files beside one whose names end as its own does."""
    folder, name = os.path.split(path)
    ends = [end for end in PurePath(name).suffixes[-2:] if end.lower() in COMPRESSED or kind_of(PurePath(f"x{end}"))]
    return os.path.join(folder, "*" + "".join(ends))


def _clock_of_points(columns: Sequence[Known]) -> list[str]:
    """The only column beside a latitude and a longitude, if no type is known but its name says that it holds times."""
    located = {name for _, *pair in coordinates_of(column.name for column in columns) for name in pair}
    rest = [column for column in columns if column.name not in located]
    alone = len(columns) == 3 and len(rest) == 1 and rest[0].type is None and names_a_moment(rest[0].name)
    return [rest[0].name] if alone else []


def _of_file(path: Path, kind: str, codebook: Path | None) -> Codebook:
    if not path.exists():
        one = (
            "This is a pattern: name one of its files, as a shell does without quotes"
            if "*" in path.name
            else "Name one that holds the columns"
        )
        raise SourceError(f"{path}: No such file. {one}; no row of it is read.")
    if (path / "_delta_log").is_dir():
        raise SourceError(
            f'{path} is a Delta table. Name one of its Parquet files, then say kind = "delta" in [source].'
        )
    try:
        if kind == "csv":
            return of_header(path)
        if kind == "jsonl" and codebook is not None:
            return Codebook(columns=())
        if kind == "parquet" and path.suffix.lower() == ".parquet":
            return of_parquet(path)
    except (pa.ArrowException, OSError) as error:
        why = getattr(error, "strerror", None) or "it may be truncated or of another kind"
        raise SourceError(f"{path} cannot be read as {kind}: {why}.") from None
    if kind == "jsonl":
        raise SourceError(
            f"{path}: lines of JSON have no header, and no row is read. Name a --codebook; or "
            "draft from a CSV file that holds the names of the keys alone, and change kind and path."
        )
    if path.is_dir():
        raise SourceError(f"{path}: this is a folder. Name one of the files in it; no row is read.")
    raise SourceError(f"{path}: only files that end in .parquet, .csv or .jsonl can be drafted from")


def _places(columns: Sequence[Known], taken: Set[str]) -> dict[str, list[Known]]:
    """Latitudes and longitudes by what they are of, beside other columns: on their own they are a stream of points."""
    known = {column.name: column for column in columns if column.type in (None, "number")}
    found = dict[str, list[Known]]()
    for what, *pair in coordinates_of(known):
        name = f"{what}_place".strip("_")
        while name in taken or name in found:
            name += "2"
        found[name] = [known[one] for one in pair]
    return found if 2 * len(found) < len(columns) else {}


def _place(name: str, pair: Sequence[Known]) -> str:
    return (
        f'\n[[columns]]\nname = {_toml(name)}\ntype = "place"\ncoordinates = {_toml([one.name for one in pair])}\n'
        f"bounds = [{', '.join(f'[{_bound(one.low)}, {_bound(one.high)}]' for one in pair)}]"
        "   # of each: lower and upper end of the region\n"
        "# events = 50_000    # a public guess of how many there will be: cells are as fine as it allows\n"
    )


def _column(column: Known, *, points: bool = False) -> str:
    lines = ["", "[[columns]]", f"name = {_toml(column.name)}"]
    words = {"label": column.label, "description": column.description}
    lines += [f"{key} = {_toml(text)}" for key, text in words.items() if text is not None]
    if points:
        column = replace(column, type="number")
    if column.type is None:
        return "\n".join([*lines, _UNKNOWN_TYPE]) + "\n"
    lines.append(f'type = "{column.type}"')
    if column.type in ("integer", "number"):
        whole = column.type == "integer"
        bounds = {"min": column.low, "max": column.high}
        lines += [f"{key} = {_bound(int(end) if whole and end is not None else end)}" for key, end in bounds.items()]
        lines += [f"missing = {PUBLIC_BOUND}      # where a cell without a number counts"] if points else []
        lines += [] if whole or points else ["bins = 20"]
    elif column.type == "datetime":
        part = "hour" if column.form is not None and holds(column.form) == "time" else "weekday"
        lines.append(f'part = "{part}"                    # or min, max and bins')
    elif column.type == "category":
        lines.append(f"values = {_toml(list(column.values)) if column.values else f'[{PUBLIC_BOUND}]'}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML writes it, without a sign that does what it likes to a terminal."""
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in written(value))


def _bound(value: float | None) -> str:
    return PUBLIC_BOUND if value is None else str(value)
