"""Kinds of columns: cells to integer codes and back.

Encoding is total: whatever a row holds, it gets a code, and no row can raise. A missing value gets a cell of its own,
``missing``, or is folded into a value; a category outside the public list gets ``other``, or is folded; numbers and
dates out of range are clamped to the edge bins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from typing_extensions import override

from synthstream.errors import SchemaError
from synthstream.schema.cells import is_number, text_as_typed
from synthstream.schema.coercion import texts
from synthstream.workload import CodeArray

MISSING, OTHER = "missing", "other"
# Codes of booleans by what they may be written as, in small letters.
_TRUTH = dict.fromkeys(("true", "yes", "t", "y", "1"), 1) | dict.fromkeys(("false", "no", "f", "n", "0"), 0)
Mask = NDArray[np.bool_]
# What settings are called in stream.toml, and so in hashes, where a dataclass cannot call them so.
CALLED = {"source": "from", "cuts": "edges", "crossed": "with"}


@dataclass(frozen=True, kw_only=True)
class Words:
    """What people are told of a column. It defines nothing, and may change.

    Args:
        regions: a GeoJSON file with a shape for each value.
        region_key: the property that names the value; left out: the one of the column's name.

    Example:
        >>> Category("zone", values=("A", "B"), words=Words(label="Zone of the fare")).title
        'Zone of the fare'
    """

    label: str | None = None
    description: str | None = None
    unit: str | None = None
    regions: str | None = None
    region_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """A column and its codes. The last codes are its own cells ``other`` and ``missing``, where it has them.

    Args:
        source: the column of private rows that it is read from; left out: the one of its own name.
    """

    type: ClassVar[str]
    name: str = field(kw_only=False)
    source: str | None = None
    words: Words = field(default_factory=Words, compare=False)

    @property
    def read_from(self) -> str:
        """The column of private rows that it is read from."""
        return self.name if self.source is None else self.source

    @property
    def sources(self) -> tuple[str, ...]:
        """All columns of private rows that it is read from."""
        return (self.read_from,)

    @property
    def title(self) -> str:
        """What people call it, with its unit."""
        return (self.words.label or self.name) + (f" ({self.words.unit})" if self.words.unit else "")

    @property
    @abstractmethod
    def value_labels(self) -> tuple[str, ...]:
        """Labels of the public values or bins, without own cells."""

    @property
    def own_cells(self) -> tuple[str, ...]:
        """Own cells, in the order of their codes."""
        return (MISSING,) if getattr(self, "missing", None) is None else ()

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """One label per code."""
        return (*self.value_labels, *self.own_cells)

    @property
    def size(self) -> int:
        """Number of codes."""
        return len(self.value_labels) + len(self.own_cells)

    @abstractmethod
    def encode(self, series: pl.Series) -> CodeArray:
        """Codes of cells, int32, shape ``(rows,)``. Total."""

    def read(self, rows: pl.DataFrame) -> CodeArray:
        """Codes of private rows, int32, shape ``(rows,)``. Total."""
        return self.encode(rows[self.read_from])

    def written(self, rows: pl.DataFrame) -> pl.Series:
        """Cells of private rows, as its encoding takes them."""
        return rows[self.read_from]

    @abstractmethod
    def decode(self, codes: CodeArray, rng: np.random.Generator) -> pl.Series:
        """Cells for codes; ``missing`` becomes null."""

    def further(self, codes: CodeArray) -> list[pl.Series]:  # noqa: ARG002
        """More columns of published rows that follow from its codes."""
        return []

    def ends(self, codes: CodeArray) -> list[pl.Series]:  # noqa: ARG002
        """Where the cells of its codes begin and end, beside their labels; of places."""
        return []

    def outside(self, series: pl.Series) -> tuple[Mask, Mask]:
        """Which cells are clamped: those below the first bin, and those above the last."""
        return np.zeros(len(series), dtype=np.bool_), np.zeros(len(series), dtype=np.bool_)

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that published cells may hold; none if they hold other values."""
        return ()

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The lowest and highest number, or second since 1970, of cells; by the columns of published rows it makes."""
        return {}

    def _require(self, kind: Any, called: str, *keys: str) -> None:
        """Raise ``SchemaError`` unless all of these settings that are said are of a type; what they say is not told."""
        for key in keys:
            found = getattr(self, key)
            if found is not None and (not isinstance(found, kind) or isinstance(found, bool)):
                raise SchemaError(f"column {self.name!r}: {key} must be {called}, not {type(found).__name__}")

    def settings(self) -> dict[str, Any]:
        """All settings by their keys in ``stream.toml``."""
        return {CALLED.get(f.name, f.name): getattr(self, f.name) for f in fields(self) if f.name != "words"}

    def to_dict(self) -> dict[str, Any]:
        """All settings, for JSON."""
        # What is None is left out, and nothing else: a running stream is refused if its columns say a word more than
        # when it began. So a new key has the default None, never False (tests/schema/test_kept_settings.py).
        said = {key: value for key, value in self.settings().items() if value is not None}
        return {"type": self.type} | {k: v.isoformat() if isinstance(v, datetime) else v for k, v in said.items()}


@dataclass(frozen=True, kw_only=True)
class Category(Column):
    """One of a public list of texts. Anything else is ``other``; numbers are compared by their text.

    A cell that is a number or a boolean, which cannot be written as 007 or True, is read as such a value all the same:
    7 is 007, unless another value says 7 as well. Whether a frame has numbers or texts may follow from other rows.

    Args:
        missing, other: a value to fold such cells into; left out: cells of their own.

    Example:
        >>> colour = Category(name="colour", values=("red", "blue"), missing="red")
        >>> colour.encode(pl.Series(["blue", None, "green"])).tolist()
        [1, 0, 2]
    """

    type: ClassVar[str] = "category"
    values: tuple[str, ...]
    missing: str | None = None
    other: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.values, list | tuple) or not all(isinstance(value, str) for value in self.values):
            raise SchemaError(f"column {self.name!r}: values must be a list of texts (str), which becomes public")
        distinct(f"column {self.name!r}", self.values, shown=False)
        if not self.values:
            raise SchemaError(f"column {self.name!r}: values must list at least one value")
        for key in (MISSING, OTHER):
            fold = getattr(self, key)
            if fold is None and key in self.values:
                raise SchemaError(
                    f'column {self.name!r}: {key!r} is one of its values, so it needs {key} = "{key}" to say that '
                    f"{key} cells belong to it"
                )
            if fold is not None and fold not in self.values:
                raise SchemaError(
                    f"column {self.name!r}: {key} is not one of its values. Add it there, or name one of them"
                )

    @property
    def value_labels(self) -> tuple[str, ...]:
        return self.values

    @property
    def own_cells(self) -> tuple[str, ...]:
        return tuple(key for key in (OTHER, MISSING) if getattr(self, key) is None)

    @property
    def texts(self) -> tuple[str, ...]:
        return (*self.values, *(key for key in self.own_cells if key != MISSING))

    @cached_property
    def _typed(self) -> dict[str, str]:
        """Values by the text that they have in a column of numbers or booleans, where it is theirs alone."""
        known = [text_as_typed(value) for value in self.values]
        often = Counter(known)
        return {text: value for text, value in zip(known, self.values, strict=True) if often[text] == 1}

    def said(self, series: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Each cell as its list of values would write it, and whether it is missing."""
        text, missing = texts(series)
        if series.dtype == pl.Object:
            here = pl.Series(list(map(is_number, series.to_list())), dtype=pl.Boolean)
            return text.replace(self._typed).zip_with(here, text), missing
        typed = series.dtype.is_numeric() or series.dtype == pl.Boolean
        return text.replace(self._typed) if typed else text, missing

    def encode(self, series: pl.Series) -> CodeArray:
        text, missing = self.said(series)
        fallback = self.labels.index(self.other or OTHER)
        codes = text.replace_strict(
            list(self.values), list(range(len(self.values))), default=fallback, return_dtype=pl.Int32
        )
        codes = codes.fill_null(fallback).zip_with(~missing, pl.Series([self.labels.index(self.missing or MISSING)]))
        return codes.to_numpy().astype(np.int32)

    @override
    def decode(self, codes: CodeArray, rng: np.random.Generator) -> pl.Series:
        own = (None if label == MISSING else label for label in self.own_cells)
        return pl.Series(self.name, [*self.values, *own], dtype=pl.String).gather(codes)


@dataclass(frozen=True, kw_only=True)
class Boolean(Column):
    """True or false. Reads booleans, 0 and 1, and the texts true, false, yes, no, t, f, y, n, 0, 1 in any case.

    Args:
        missing: the value that missing and unreadable cells count as; left out: a cell of their own.

    Example:
        >>> Boolean(name="ok").encode(pl.Series(["yes", "No", "?"])).tolist()
        [1, 0, 2]
    """

    type: ClassVar[str] = "boolean"
    missing: bool | None = None

    @property
    def value_labels(self) -> tuple[str, ...]:
        return ("false", "true")

    @property
    def texts(self) -> tuple[str, ...]:
        return self.value_labels

    def encode(self, series: pl.Series) -> CodeArray:
        place = 2 if self.missing is None else int(self.missing)
        text = texts(series)[0].str.strip_chars().str.to_lowercase()
        codes = text.replace_strict(_TRUTH, default=place, return_dtype=pl.Int32)
        return codes.fill_null(place).to_numpy().astype(np.int32)

    @override
    def decode(self, codes: CodeArray, rng: np.random.Generator) -> pl.Series:
        return pl.Series(self.name, [False, True, None], dtype=pl.Boolean).gather(codes)


def distinct(where: str, names: Sequence[str], *, shown: bool = True) -> None:
    """Raise ``SchemaError`` if a name is listed twice, or cannot be printed; without ``shown``, its number tells."""
    first: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        called = repr(name) if shown else f"number {number} of its values"
        if not name.isprintable():
            raise SchemaError(f"{where}: {called} holds characters that cannot be printed; leave them out")
        if first.setdefault(name, number) < number:
            where_else = "" if shown else f", first as number {first[name]}"
            raise SchemaError(f"{where}: {called} is listed twice{where_else}. Leave one of them")
