"""Kinds of columns: cells to integer codes and back.

Encoding is total: whatever a row holds, it gets a code, and no row can raise. A missing value gets a cell of its own,
``missing``, or is folded into a value; a category outside the public list gets ``other``, or is folded; numbers and
dates out of range are clamped to the edge bins.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from typing_extensions import override

from synthstream.errors import SchemaError
from synthstream.schema.binning import bins_of
from synthstream.schema.coercion import numbers, texts, times
from synthstream.workload import CodeArray, FloatArray

MISSING, OTHER = "missing", "other"
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Part = Literal["hour", "weekday", "day", "month"]
_PARTS: dict[str, tuple[int, int]] = {"hour": (0, 23), "weekday": (1, 7), "day": (1, 31), "month": (1, 12)}
_EPOCH = datetime(1970, 1, 1)
_LARGEST_SIZE = 100_000


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """A column and its codes. The last codes are its own cells ``other`` and ``missing``, where it has them."""

    type: ClassVar[str]
    name: str

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

    @abstractmethod
    def decode(self, codes: CodeArray, rng: np.random.Generator) -> pl.Series:
        """Cells for codes; ``missing`` becomes null."""

    def outside(self, series: pl.Series) -> tuple[Mask, Mask]:
        """Which cells are clamped: those below the first bin, and those above the last."""
        return np.zeros(len(series), dtype=np.bool_), np.zeros(len(series), dtype=np.bool_)

    def to_dict(self) -> dict[str, Any]:
        """All settings, for JSON."""
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"type": self.type} | {key: _plain(value) for key, value in settings.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, kw_only=True)
class Category(Column):
    """One of a public list of texts. Anything else is ``other``; numbers are compared by their text.

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
        distinct(self.name, self.values)
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
                raise SchemaError(f"column {self.name!r}: {key} = {fold!r} is not one of its values")

    @property
    def value_labels(self) -> tuple[str, ...]:
        return self.values

    @property
    def own_cells(self) -> tuple[str, ...]:
        return tuple(key for key in (OTHER, MISSING) if getattr(self, key) is None)

    def encode(self, series: pl.Series) -> CodeArray:
        text, missing = texts(series)
        fallback = self.labels.index(self.other or OTHER)
        codes = text.replace_strict(
            list(self.values), list(range(len(self.values))), default=fallback, return_dtype=pl.Int32
        )
        codes = codes.fill_null(fallback).zip_with(~missing, pl.Series([self.labels.index(self.missing or MISSING)]))
        return codes.to_numpy().astype(np.int32)

    @override
    def decode(self, codes: CodeArray, rng: np.random.Generator) -> pl.Series:
        labels = [None if own and label == MISSING else label for label, own in self._owned()]
        return pl.Series(self.name, labels, dtype=pl.String).gather(codes)

    def _owned(self) -> list[tuple[str, bool]]:
        return [(label, i >= len(self.values)) for i, label in enumerate(self.labels)]


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

    def encode(self, series: pl.Series) -> CodeArray:
        text, missing = texts(series)
        text = text.str.strip_chars().str.to_lowercase()
        place = 2 if self.missing is None else int(self.missing)
        codes = np.full(len(series), place, dtype=np.int32)
        codes[text.is_in(["true", "yes", "t", "y", "1"]).fill_null(value=False).to_numpy()] = 1
        codes[text.is_in(["false", "no", "f", "n", "0"]).fill_null(value=False).to_numpy()] = 0
        codes[missing.to_numpy()] = place
        return codes

    @override
    def decode(self, codes: CodeArray, rng: np.random.Generator) -> pl.Series:
        return pl.Series(self.name, [False, True, None], dtype=pl.Boolean).gather(codes)


@dataclass(frozen=True, kw_only=True)
class Binned(Column):
    """Numbers in bins; out of range and infinities are clamped, what is no number is missing."""

    @property
    @abstractmethod
    def edges(self) -> tuple[float, ...]:
        """Increasing; bin i is [edges[i], edges[i + 1])."""

    def _numbers(self, series: pl.Series) -> np.ndarray[Any, np.dtype[np.float64]]:
        return numbers(series)

    @property
    def _missing_number(self) -> float | None:
        return getattr(self, "missing", None)

    def encode(self, series: pl.Series) -> CodeArray:
        place, edges = self._missing_number, np.asarray(self.edges)
        code = len(edges) - 1 if place is None else int(bins_of(np.array([place]), edges, 0)[0])
        return bins_of(self._numbers(series), edges, code)

    @override
    def outside(self, series: pl.Series) -> tuple[Mask, Mask]:
        values, end = self._numbers(series), self.edges[-1]
        # The end of the last bin belongs to it, unless bins are of whole numbers.
        return values < self.edges[0], (values > end) | ((values == end) & (end != getattr(self, "max", end)))

    @override
    def decode(self, codes: CodeArray, rng: np.random.Generator) -> pl.Series:
        return self.at(codes, rng.random(len(codes)))

    @abstractmethod
    def at(self, codes: CodeArray, share: FloatArray) -> pl.Series:
        """Cells at shares of the way through the codes' bins: 0 is the first number of a bin, 1 its last one."""

    def _numbers_at(self, codes: CodeArray, share: FloatArray) -> tuple[Any, Any]:
        """The number there, and whether the code is ``missing``."""
        edges = np.asarray(self.edges)
        missing = codes >= len(edges) - 1
        safe = np.where(missing, 0, codes)
        low, high = edges[safe], edges[safe + 1]
        # The draw may round up to the bin's end, which belongs to the next bin.
        return np.minimum(low + (high - low) * share, np.nextafter(high, low)), missing


@dataclass(frozen=True, kw_only=True)
class Number(Binned):
    """A number in ``bins`` equal bins from ``min`` to ``max``; on the way back uniform within its bin.

    Args:
        missing: the number that missing cells count as; left out: a cell of their own.

    Example:
        >>> age = Number(name="age", min=0, max=100, bins=4)
        >>> age.encode(pl.Series([10.0, 99.0, 1e9, None])).tolist()
        [0, 3, 3, 4]
    """

    type: ClassVar[str] = "number"
    min: float
    max: float
    bins: int
    missing: float | None = None

    def __post_init__(self) -> None:
        _range(self.name, self.min, self.max, self.bins)
        if any(a >= b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise SchemaError(f"column {self.name!r}: its bins are narrower than numbers can be told apart; use fewer")
        if self.missing is not None and math.isnan(self.missing):
            raise SchemaError(f"column {self.name!r}: missing must be a number that has a bin")

    @cached_property
    def edges(self) -> tuple[float, ...]:
        return tuple(float(edge) for edge in np.linspace(self.min, self.max, self.bins + 1))

    @cached_property
    def value_labels(self) -> tuple[str, ...]:
        return tuple(f"[{a:g}, {b:g})" for a, b in zip(self.edges, self.edges[1:], strict=False))

    def at(self, codes: CodeArray, share: FloatArray) -> pl.Series:
        values, missing = self._numbers_at(codes, share)
        return pl.Series(self.name, values).set(pl.Series(missing), None)


@dataclass(frozen=True, kw_only=True)
class Integer(Binned):
    """A whole number from ``min`` to ``max``, both included; one code each, or ``bins`` of them together.

    Fractions are rounded down. On the way back uniform over the whole numbers of the bin.

    Args:
        bins: number of bins of equal width (a last one may be narrower); left out: one for each whole number.
        missing: the number that missing cells count as; left out: a cell of their own.

    Example:
        >>> Integer(name="rooms", min=1, max=3, missing=1).encode(pl.Series([0.0, 2.9, 3.0, None])).tolist()
        [0, 1, 2, 0]
    """

    type: ClassVar[str] = "integer"
    min: int
    max: int
    bins: int | None = None
    missing: int | None = None

    def __post_init__(self) -> None:
        if max(abs(self.min), abs(self.max)) >= 2**53:
            raise SchemaError(f"column {self.name!r}: min and max must be whole numbers within 2^53 of 0")
        _range(self.name, self.min, self.max + 1, self.bins if self.bins is not None else self.max - self.min + 1)
        if self.bins is not None and self.bins > self.max - self.min + 1:
            raise SchemaError(f"column {self.name!r}: bins = {self.bins} is more than the whole numbers it has")

    @cached_property
    def edges(self) -> tuple[float, ...]:
        count = self.max - self.min + 1
        width = math.ceil(count / (self.bins or count))
        return (*(float(edge) for edge in range(self.min, self.max + 1, width)), float(self.max + 1))

    @cached_property
    def value_labels(self) -> tuple[str, ...]:
        pairs = zip(self.edges, self.edges[1:], strict=False)
        return tuple(f"{a:.0f}" if b - a == 1 else f"{a:.0f}..{b - 1:.0f}" for a, b in pairs)

    def at(self, codes: CodeArray, share: FloatArray) -> pl.Series:
        values, missing = self._numbers_at(codes, share)
        return pl.Series(self.name, np.floor(values).astype(np.int64)).set(pl.Series(missing), None)


@dataclass(frozen=True, kw_only=True)
class Datetime(Binned):
    """A time: a calendar ``part`` of it, or one of ``bins`` equal bins from ``min`` to ``max``.

    Parts: hour 0-23, weekday 1-7 (Monday is 1), day 1-31, month 1-12; they come back as whole numbers, bins as times
    uniform within the bin. Times are read on the wall clock of ``timezone``.

    Example:
        >>> Datetime(name="at", part="hour").encode(pl.Series(["2026-01-01T07:30:00", "soon"])).tolist()
        [7, 24]
    """

    type: ClassVar[str] = "datetime"
    part: Part | None = None
    min: datetime | None = None
    max: datetime | None = None
    bins: int | None = None
    missing: datetime | int | None = None
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        given = (self.min, self.max, self.bins)
        if (self.part is None) == (given == (None, None, None)) or (self.part is None and None in given):
            raise SchemaError(f"column {self.name!r}: give either part, or all of min, max and bins")
        if self.part is not None and self.part not in _PARTS:
            raise SchemaError(f"column {self.name!r}: part must be one of {', '.join(_PARTS)}; found {self.part!r}")
        if self.min is not None and self.max is not None:
            _range(self.name, _seconds(self.min), _seconds(self.max), self.bins or 0)

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """Whole numbers for a part, seconds since 1970 for bins."""
        if self.part is not None:
            low, high = _PARTS[self.part]
            return tuple(float(edge) for edge in range(low, high + 2))
        if self.min is None or self.max is None or self.bins is None:
            raise SchemaError(f"column {self.name!r}: give either part, or all of min, max and bins")
        return tuple(float(e) for e in np.linspace(_seconds(self.min), _seconds(self.max), self.bins + 1))

    @cached_property
    def value_labels(self) -> tuple[str, ...]:
        if self.part is not None:
            return tuple(f"{edge:.0f}" for edge in self.edges[:-1])
        return tuple((_EPOCH + timedelta(seconds=edge)).isoformat() for edge in self.edges[:-1])

    @property
    def _missing_number(self) -> float | None:
        return _seconds(self.missing) if isinstance(self.missing, datetime) else self.missing

    def _numbers(self, series: pl.Series) -> np.ndarray[Any, np.dtype[np.float64]]:
        local = times(series, timezone=self.timezone)
        if self.part is None:
            return (local.dt.epoch("us").cast(pl.Float64) / 1e6).fill_null(np.nan).to_numpy().astype(np.float64)
        part: pl.Series = getattr(local.dt, self.part)()
        return part.cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)

    def at(self, codes: CodeArray, share: FloatArray) -> pl.Series:
        values, missing = self._numbers_at(codes, share)
        if self.part is not None:
            return pl.Series(self.name, np.floor(values).astype(np.int64)).set(pl.Series(missing), None)
        moments = pl.Series(self.name, np.floor(values * 1e6).astype(np.int64)).cast(pl.Datetime("us"))
        return moments.zip_with(pl.Series(~missing), pl.Series([None], dtype=pl.Datetime("us")))


def distinct(where: str, names: Sequence[str]) -> None:
    """Raise ``SchemaError`` if a name is listed twice, or cannot be printed."""
    for name in names:
        if not name.isprintable():
            raise SchemaError(f"{where}: {name!r} holds characters that cannot be printed; leave them out")
    doubled = sorted({name for name in names if list(names).count(name) > 1})
    if doubled:
        raise SchemaError(f"{where}: {', '.join(map(repr, doubled))} listed twice")


def _range(name: str, low: float, high: float, bins: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SchemaError(f"column {name!r}: min must be below max, and both finite")
    if math.isinf(high - low):
        raise SchemaError(f"column {name!r}: the range from min to max is too wide")
    if bins < 1:
        raise SchemaError(f"column {name!r}: bins must be at least 1")
    if bins > _LARGEST_SIZE:
        raise SchemaError(
            f"column {name!r}: {bins:,.0f} cells are too many; cut it into at most {_LARGEST_SIZE:,} bins"
        )


def _seconds(moment: datetime) -> float:
    return (moment.replace(tzinfo=None) - _EPOCH).total_seconds()
