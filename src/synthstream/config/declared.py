"""Columns from what a frame declares: types, and the categories of an ``Enum``. No value of any row is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import polars as pl

from synthstream.errors import SchemaError
from synthstream.schema.cells import library_of
from synthstream.schema.conditions import like

_OCCURRED = (
    "{name!r} is a {kind}: its categories are those that occurred in the rows, which are private. Declare the public "
    'list: cast it to pl.Enum([...]), or say columns={{"{name}": {{"values": [...]}}}}'
)


def columns_of(
    frame: Any, known: Mapping[str, Mapping[str, Any]], *, elsewhere: Collection[object] = ()
) -> list[dict[str, Any]]:
    """The sections ``[[columns]]`` for the columns of a frame.

    Args:
        frame: a polars, pandas or pyarrow frame, of which types alone are looked at, or a polars schema.
        known: by column, keys of its section that no type declares: bounds, bins, lists of values. A column that is
            read ``from`` another one comes after those of the frame.
        elsewhere: columns that have another use, as a person's key has; they are left out, unless they are ``known``.

    Raises:
        SchemaError: the categories of a column are those that occurred, or no type of column fits.
    """
    kinds = _types_of(frame)
    names = [name for name in kinds if name in known or name not in elsewhere]
    found, told = list[dict[str, Any]](), list[str]()
    for name in (*names, *(name for name in known if name not in kinds)):
        one = known.get(name, {})
        if (read := one.get("from", name)) not in kinds:
            raise SchemaError(f"columns: {read!r} is no column of the frame.{like(read, list(kinds))}")
        try:
            found.append({"name": name, **_declared(name, kinds[read], one)})
        except SchemaError as error:
            told.append(str(error))
    if told:
        raise SchemaError("\n".join(told))
    return found


def _types_of(frame: Any) -> dict[str, Any]:
    """Polars types by name; a text for what is a category of another library's, which lists what occurred."""
    if isinstance(frame, pl.Schema):
        return dict(frame)
    library = library_of(frame)
    if library not in ("polars", "pandas", "pyarrow"):
        raise SchemaError(f"frame: must be a polars, pandas or pyarrow frame, or a polars schema, not {type(frame)}")
    empty = frame[:0]  # not one row is read
    types: dict[str, Any] = dict(empty.schema if library == "polars" else pl.DataFrame(empty).schema)
    if library == "pandas":
        listed = zip(frame.columns, frame.dtypes, strict=True)
        types |= {str(name): "pandas category" for name, one in listed if one == "category"}
    if library == "pyarrow":
        types |= {one.name: "dictionary" for one in frame.schema if str(one.type).startswith("dictionary")}
    return types


def _declared(name: str, kind: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    if "type" in known:
        return dict(known)
    if isinstance(kind, pl.Enum):
        return {"type": "category", "values": kind.categories.to_list(), **known}
    if "values" in known:
        return {"type": "category", **known}
    if isinstance(kind, str) or kind == pl.Categorical:
        raise SchemaError(_OCCURRED.format(name=name, kind=kind if isinstance(kind, str) else "pl.Categorical"))
    if kind == pl.Boolean:
        return {"type": "boolean", **known}
    if kind.is_integer() or kind.is_numeric():
        return {"type": "integer" if kind.is_integer() else "number", **known}
    if kind.is_temporal():
        return {"type": "datetime", **known}
    raise SchemaError(
        f"{name!r} holds {kind}: nothing declares its values. Cast it to pl.Enum([...]), or say "
        f'columns={{"{name}": {{"values": [...]}}}}, or "type" and bounds of numbers and times that are texts there; '
        "or leave it out of the frame"
    )
