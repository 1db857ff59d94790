"""A first stream.toml from what is known of columns without reading a row."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa

from synthstream.config.problems import PUBLIC_BOUND
from synthstream.config.settings import written
from synthstream.config.texts import filled
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
from synthstream.schema.naming import ANSWERS, coordinates_of, identifies, names_a_moment, names_a_person

_POSTGRES = "postgres:"


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
    where = str(path) if path.is_absolute() or base is None else os.path.relpath(path, base)
    located = {column.name for pair in places.values() for column in pair}
    return filled(
        "ingest",
        "draft.toml.jinja",
        todo=PUBLIC_BOUND,
        toml=_toml,
        bound=_bound,
        holds=holds,
        file=_toml(table or path.name)[1:-1],
        name=table or path.name.split(".")[0],
        op=op,
        person=next(filter(names_a_person, left), "person"),
        clock=next(iter(clocks), None),
        points=points,
        answers=ANSWERS,
        numbers_alone=bool(rest) and all(column.type in ("integer", "number") for column in rest),
        source=_source(kind, None if table is not None else where, known, columns),
        beside=None if table is not None else _beside(where),
        columns=[column for column in rest if column.name not in located],
        places=places,
        left=left,
    )


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


def _source(kind: str, path: str | None, known: Codebook, columns: Sequence[Known]) -> dict[str, Any]:
    """The keys of [source]; a table has no path."""
    source: dict[str, Any] = {"kind": kind, **({} if path is None else {"path": path}), **known.source}
    forms = {column.name: column.form for column in columns if column.form is not None}
    return source | ({"datetime_format": forms} if forms else {})


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


def _toml(value: Any) -> str:
    """A value as TOML writes it, without a sign that does what it likes to a terminal."""
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in written(value))


def _bound(value: float | None, *, whole: bool = False) -> str:
    return PUBLIC_BOUND if value is None else str(int(value) if whole else value)
