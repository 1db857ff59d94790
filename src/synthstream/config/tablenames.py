"""Names of tables as SQL writes them: ``evictions``, ``open.evictions``, ``open."Evictions 2026"``."""

from __future__ import annotations

import re
from typing import NamedTuple

from synthstream.errors import ConfigError
from synthstream.schema.conditions import quoted

_PART = r'([A-Za-z_][A-Za-z0-9_$]*|"(?:[^"\x00]|"")+")'
_NAME = re.compile(rf"(?:{_PART}\.)?{_PART}")

# Ends the name of the table beside a table that holds its manifest.
MANIFEST = "_manifest"

# PostgreSQL cuts off what is longer, and then two names are one.
_LONGEST = 63

# Columns that every table of PostgreSQL has by itself.
_SYSTEM = ("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid")


class TableName(NamedTuple):
    """Schema, if it is named, and table, as the catalogue holds them."""

    schema: str | None
    table: str

    @classmethod
    def read(cls, text: str, *, room: int = len(MANIFEST)) -> TableName:
        """From SQL: what is not in double quotes is in lower case.

        Args:
            room: how many bytes the names of the tables beside it are longer.

        Raises:
            ConfigError: it is no such name, or leaves no room for the names of the tables beside it.
        """
        found = _NAME.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"table = {text!r}: is not the name of a table. Write it as SQL does, as in open.evictions; a name "
                "with other characters than letters, digits and _ stands in double quotes"
            )
        name = cls(None if found[1] is None else _folded(found[1]), _folded(found[2]))
        if len(name.table.encode()) > _LONGEST - room or len((name.schema or "").encode()) > _LONGEST:
            raise ConfigError(
                f"table = {text!r}: is too long. PostgreSQL has {_LONGEST} bytes for a name, and {room} of "
                "them are for the names of the tables beside it"
            )
        return name

    def ending(self, end: str) -> TableName:
        """The table beside it whose name goes on with ``end``."""
        return self._replace(table=self.table + end)

    def may_be(self, other: TableName) -> bool:
        """Whether both may name one table: where no schema is named, the server chooses it."""
        return self.table == other.table and (None in (self.schema, other.schema) or self.schema == other.schema)

    def __str__(self) -> str:
        """As SQL writes it."""
        parts = (part for part in self if part is not None)
        return ".".join(part if re.fullmatch("[a-z_][a-z0-9_]*", part) else quoted(part) for part in parts)


def refuse_columns(names: list[str]) -> None:
    """Raise ``ConfigError`` if a table cannot have columns of these names. They are in quotes, so few cannot be."""
    for name in names:
        if name in _SYSTEM:
            raise ConfigError(f"column {name!r}: PostgreSQL has a column of its own of that name. Rename it")
        if len(name.encode()) > _LONGEST:
            raise ConfigError(f"column {name!r}: is too long for PostgreSQL, which has {_LONGEST} bytes. Rename it")


def _folded(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part.lower()
