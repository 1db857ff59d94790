"""The sections [[constraints]]: which combinations of values are possible. Public knowledge, never found in rows."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, PlainValidator
from pydantic_core import PydanticCustomError

from synthstream.config.keys import Section, Texts
from synthstream.config.problems import Problems
from synthstream.constraints import MOST_COMBINATIONS, Group, joined
from synthstream.errors import ConfigError
from synthstream.schema.alike import of_one_cell
from synthstream.schema.binned import Binned, Datetime
from synthstream.schema.columns import Column
from synthstream.schema.conditions import first, like
from synthstream.schema.schema import Schema
from synthstream.workload import CodeArray

_Value = str | int | float | bool | date
_FORMS: dict[tuple[str, ...], str] = {
    ("columns", "allowed"): "columns and allowed",
    ("column", "function_of", "lookup"): "column, function_of and lookup",
    ("columns", "forbidden"): "columns and forbidden",
    ("less_or_equal",): "less_or_equal",
}
# So many pairs of bins are listed at most, before anything is joined.
_MOST_LISTED = 10 * MOST_COMBINATIONS


def _either(kind: type, says: str) -> PlainValidator:
    """A file, or what would stand in it."""

    def read(value: object) -> object:
        if isinstance(value, str) and value:
            return Path(value).expanduser()
        if isinstance(value, Path | kind):
            return value
        raise PydanticCustomError("either", "{says}", {"says": says})

    return PlainValidator(read)


_Listed = Annotated[Path | list[Any] | None, _either(list, 'use [["x", "y"], ...], or a CSV file')]


class ConstraintSection(Section):
    """Keys of one of [[constraints]]: one of four forms."""

    columns: Annotated[Texts, Field(min_length=2, max_length=3)] | None = None
    allowed: _Listed = None
    forbidden: _Listed = None
    column: str | None = None
    function_of: str | None = None
    lookup: Annotated[Path | dict[str, Any] | None, _either(dict, 'use { y = "x" }, or a CSV file')] = None
    less_or_equal: Annotated[Texts, Field(min_length=2, max_length=2)] | None = None

    def check(self) -> tuple[str, ...]:
        """The keys of its form. Raises ``ConfigError`` if it has none, or keys of two."""
        given = {key for key in type(self).model_fields if getattr(self, key) is not None}
        for keys in _FORMS:
            if given == set(keys):
                return keys
        raise ConfigError(f"say {', or '.join(_FORMS.values())}; found {', '.join(sorted(given)) or 'nothing'}")


class Known(NamedTuple):
    """What constraints come to.

    Args:
        groups: of columns that belong together.
        in_order: pairs of columns of which the first is never above the second.
        said: groups by what is said of columns, without what follows from one cell: a public setting of its own.
        untied: columns that are read from one cell, and that constraints do not let be tied.
    """

    groups: tuple[Group, ...] = ()
    in_order: tuple[tuple[int, int], ...] = ()
    said: tuple[Group, ...] = ()
    untied: tuple[tuple[int, ...], ...] = ()

    def words(self, schema: Schema) -> str:
        """How much they allow, in sentences; empty if there are none."""
        return " ".join(
            f"{group.number:,} of {group.possible(schema.sizes):,} combinations of "
            f"{', '.join(schema.names[c] for c in group.columns)}{'' if group in self.said else ' (of one cell)'} are "
            "allowed, other and missing included."
            for group in self.groups
            if not schema.of_one_place(group.columns)  # its grids contain each other, and districts meet them
        )

    def public(self, schema: Schema) -> dict[str, Any]:
        """For the chain: a change of an allowed combination changes it."""
        groups = [([schema.names[c] for c in group.columns], group.number, group.hash) for group in self.said]
        pairs = [[schema.names[c] for c in pair] for pair in self.in_order]
        return {"constraints": json.loads(json.dumps([groups, pairs]))} if groups else {}


NOTHING = Known()


def constraints_of(
    sections: Sequence[ConstraintSection],
    kind: str,
    schema: Schema,
    base: Path,
    problems: Problems,
    *,
    nested: Sequence[Group],
) -> Known:
    """Groups of columns and their allowed combinations; problems are noted.

    What follows of columns that are read from one cell is left out where constraints contradict it, or where too many
    combinations come of both; what follows of other columns stays.

    Args:
        base: folder that relative paths start from.
        nested: groups of places, complete.
    """
    if sections and kind != "table":
        problems.add(
            ("constraints",),
            f'constraints: have no effect with kind = "{kind}"; they belong to kind = "table". Remove them',
        )
        return NOTHING
    listed: list[Group] = []
    pairs: set[tuple[int, int]] = set()
    for i, section in enumerate(sections):
        read = problems.attempt(f"constraints.{i}", partial(_read, section, schema, base))
        if read is None:
            continue
        columns, codes = read
        if section.less_or_equal is not None:
            pairs.add((columns[0], columns[1]))
        listed.append(Group.of(columns, codes))
    listed += nested
    try:
        order = _closed(pairs, schema)
        implied = [Group.of(pair, _ordered(*pair, schema)) for pair in sorted(order - pairs)]
        said = groups = _complete(listed, implied, schema)
    except ValueError as error:
        problems.add(("constraints",), f"constraints: {error}")
        return NOTHING
    untied = list[tuple[int, ...]]()
    for follows in of_one_cell(schema.columns) if kind == "table" else ():
        try:
            groups = _complete([*listed, follows], implied, schema)
        except ValueError:
            untied.append(follows.columns)
        else:
            listed.append(follows)
    return Known(groups, tuple(sorted(order)), said, tuple(untied))


def _complete(listed: Sequence[Group], implied: Sequence[Group], schema: Schema) -> tuple[Group, ...]:
    """Constraints that share columns, as one group each; raises ``ValueError`` if they are too many, or contradict."""
    own: dict[int, set[int]] = {}
    for group in listed:
        for place, c in enumerate(group.columns):
            own.setdefault(c, set()).update(np.unique(group.combinations[:, place]).tolist())
    groups = joined([_with_own_cells(group, schema) for group in (*listed, *implied)])
    for group in groups:
        _refuse_what_cannot_be(group, own, schema)
    return groups


def _read(section: ConstraintSection, schema: Schema, base: Path) -> tuple[list[int], CodeArray]:
    """Columns, and the combinations that are listed."""
    keys = section.check()
    if keys == ("less_or_equal",):
        columns = [_place(name, "less_or_equal", schema) for name in section.less_or_equal or ()]
        return columns, _ordered(columns[0], columns[1], schema)
    key = keys[-1]
    names = [str(section.column), str(section.function_of)] if key == "lookup" else list(section.columns or ())
    given = section.allowed or section.lookup or section.forbidden
    columns = [_place(name, "column or function_of" if key == "lookup" else "columns", schema) for name in names]
    if len(set(columns)) < len(columns):
        raise ConfigError(f"{names[0]!r} is named twice")
    rows: list[Any] = given if isinstance(given, list) else []
    if isinstance(given, Path):
        rows = _from_file(base / given, names, key)
    elif isinstance(given, Mapping):
        rows = [(x, y) for y, x in given.items()]
    if not rows:
        raise ConfigError(f"{key}: lists nothing. List combinations, or leave the constraint out")
    codes = np.empty((len(rows), len(columns)), dtype=np.int32)
    for i, row in enumerate(rows):
        if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != len(columns):
            raise ConfigError(f"{key}: {row!r} must be a value for each of {', '.join(map(repr, names))}")
        codes[i] = [_code(schema.columns[c], value, key) for c, value in zip(columns, row, strict=True)]
    if key == "forbidden":
        codes = _all_but(codes, [schema.columns[c] for c in columns])
    if key == "lookup":
        inputs, count = np.unique(np.unique(codes, axis=0)[:, 1], return_counts=True)
        if (count > 1).any():
            twice, name = schema.columns[columns[1]].labels[int(inputs[count > 1][0])], names[1]
            raise ConfigError(f"lookup: {twice!r} of {name!r} has two values. Leave one, or say columns and allowed")
    for c, found in reversed(list(zip(columns, codes.T, strict=True))):
        if label := _unlisted(schema.columns[c], found):
            do = "Forbid fewer of its combinations" if key == "forbidden" else f"List it in {key}"
            what = "nothing maps to it" if key == "lookup" and c == columns[0] else "it has no allowed combination"
            out = f"{do}, or take it out of the values of {schema.names[c]!r}"
            raise ConfigError(f"{key}: {label} could never be published: {what}. {out}")
    return columns, codes


def inlined(section: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """A section as it was read, with the content of its CSV file in place of the path."""
    found = dict(section)
    for *names, key in _FORMS:
        if isinstance(section.get(key), str):
            asked = [name for of in names for name in ([section[of]] if isinstance(section[of], str) else section[of])]
            rows = _from_file(base / Path(section[key]).expanduser(), asked, key)
            found[key] = rows if key != "lookup" else {of: value for value, of in rows}
    return found


def _place(name: str, key: str, schema: Schema) -> int:
    if name not in schema.names:
        raise ConfigError(f"in {key}, {name!r} is not a column.{like(name, schema.names)} Name one of [[columns]]")
    return schema.names.index(name)


def _from_file(path: Path, names: Sequence[str], key: str) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            table = list(csv.reader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or "not a CSV file in UTF-8"
        raise ConfigError(f"{key}: {path}: {why}. Say where the combinations are") from None
    header = table[0] if table else []
    if lacking := [name for name in names if name not in header]:
        raise ConfigError(f"{key}: {path}: has no column {lacking[0]!r}. Its first line must name {', '.join(names)}")
    at = [header.index(name) for name in names]
    short = [number for number, row in enumerate(table, 1) if row and len(row) <= max(at)]
    if short:
        raise ConfigError(f"{key}: {path}: line {short[0]} has too few cells")
    return [[row[place] for place in at] for row in table[1:] if row]


def _code(column: Column, value: Any, key: str) -> int:
    """The code of a public value: by its label, or the bin of a number."""
    if not isinstance(value, _Value):
        raise ConfigError(f"{key}: {value!r} is no value of a column")
    text = value.isoformat() if isinstance(value, date) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    if text in column.labels:
        return column.labels.index(text)
    if isinstance(column, Binned) and not isinstance(value, date | bool):
        try:
            number = float(value)
        except ValueError:
            number = np.nan
        if column.edges[0] <= number < column.edges[-1]:
            return int(np.searchsorted(column.edges, number, side="right")) - 1
    near = like(text, column.labels) or f" Its values are {first(column.labels)}"
    raise ConfigError(f"{key}: {text!r} is not a value of {column.name!r}.{near}")


def _all_but(codes: CodeArray, columns: Sequence[Column]) -> CodeArray:
    """All combinations of public values but some."""
    sizes = [len(column.value_labels) for column in columns]
    if (codes >= sizes).any():
        raise ConfigError("forbidden: other and missing say nothing of a column. Name values")
    if math.prod(sizes) > _MOST_LISTED:
        raise ConfigError(f"forbidden: {math.prod(sizes):,} combinations are too many; fewer values, or wider bins")
    possible = np.ones(sizes, dtype=np.bool_)
    possible[tuple(codes.T)] = False
    return np.argwhere(possible).astype(np.int32)


def _unlisted(column: Column, codes: CodeArray) -> str:
    """The first public value that no code stands for, as messages call it; empty if there is none."""
    left = set(range(len(column.value_labels))) - set(codes.tolist())
    return f"{column.labels[min(left)]!r} of {column.name!r}" if left else ""


def _ordered(a: int, b: int, schema: Schema) -> CodeArray:
    """Bins of two columns in which the first can be at most the second."""
    low, high = schema.columns[a], schema.columns[b]
    for column in (low, high):
        if not isinstance(column, Binned):
            raise ConfigError(f"less_or_equal: {column.name!r} has no order. Name numbers or times")
    if not (isinstance(low, Binned) and isinstance(high, Binned)) or _scale(low) != _scale(high) or a == b:
        raise ConfigError(
            f"less_or_equal: {low.name!r} and {high.name!r} cannot be compared. Name two columns of one type, of one "
            "part or timezone"
        )
    rows, width = len(low.value_labels), len(high.value_labels)
    if rows * width > _MOST_LISTED:
        raise ConfigError(f"less_or_equal: {low.name!r} and {high.name!r} have too many bins; cut them into fewer")
    first = low.at(np.arange(rows, dtype=np.int32), np.zeros(rows))
    last = high.at(np.arange(width, dtype=np.int32), np.ones(width))
    possible = first.to_numpy()[:, None] <= last.to_numpy()[None, :]
    codes = np.argwhere(possible).astype(np.int32)
    for column, found in ((low, codes[:, 0]), (high, codes[:, 1])):
        if label := _unlisted(column, found):
            raise ConfigError(
                f"less_or_equal: {label} could never be published: the other column has no bin for it. Give both "
                "columns the same range"
            )
    return codes


def _scale(column: Binned) -> tuple[str, ...]:
    if isinstance(column, Datetime):
        return (column.type, str(column.part), column.timezone)
    return (column.type,)


def _closed(pairs: set[tuple[int, int]], schema: Schema) -> set[tuple[int, int]]:
    """The pairs, and those that follow from them."""
    closed = set(pairs)
    while more := {(a, d) for a, b in closed for c, d in closed if b == c} - closed:
        closed |= more
    if circle := sorted(a for a, b in closed if a == b):
        raise ConfigError(f"less_or_equal: {schema.names[circle[0]]!r} would have to be at most itself. Leave one out")
    return closed


def _with_own_cells(group: Group, schema: Schema) -> Group:
    """Also ``other`` and ``missing`` in the place of any values, unless the constraint lists them itself.

    What is unknown of one column says nothing: the other columns still belong together as they are listed.
    """
    if group.usual is not None:  # it lists them
        return group
    codes = group.combinations
    for place, c in enumerate(group.columns):
        column = schema.columns[c]
        own = set(range(len(column.value_labels), column.size)) - set(group.combinations[:, place].tolist())
        parts = [codes]
        for code in own:
            unknown = codes.copy()
            unknown[:, place] = code
            parts.append(np.unique(unknown, axis=0))
        codes = np.concatenate(parts)
    return Group.of(group.columns, codes, nests=group.nests)


def _refuse_what_cannot_be(group: Group, listed: Mapping[int, set[int]], schema: Schema) -> None:
    """Raise if constraints contradict each other: alone, or for one public value."""
    names = ", ".join(repr(schema.names[c]) for c in group.columns)
    known = [np.isin(group.combinations[:, i], sorted(listed[c])) for i, c in enumerate(group.columns)]
    sound = group.combinations[np.all(known, axis=0)]
    if len(sound) == 0:
        raise ConfigError(f"together they leave no combination of {names}. Allow more of them")
    for i, c in enumerate(group.columns):
        if label := _unlisted(schema.columns[c], sound[:, i]):
            raise ConfigError(
                f"{label} could never be published: together they leave no combination of {names} for it. Allow one, "
                "or take it out of its values"
            )
