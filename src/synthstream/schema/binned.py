"""Columns of numbers and times in bins."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from numbers import Integral, Real
from typing import ClassVar, Literal

import numba
import numpy as np
import polars as pl
from typing_extensions import override

from synthstream.errors import SchemaError
from synthstream.leaning import along, steepness
from synthstream.schema.coercion import numbers, times
from synthstream.schema.columns import Column, Mask
from synthstream.workload import CodeArray, FloatArray

Part = Literal["minute", "hour", "weekday", "day", "week", "month", "quarter"]
_PARTS: dict[str, tuple[int, int]] = {
    "minute": (0, 59),
    "hour": (0, 23),
    "weekday": (1, 7),
    "day": (1, 31),
    "week": (1, 53),
    "month": (1, 12),
    "quarter": (1, 4),
}
_EPOCH = datetime(1970, 1, 1)
_LARGEST_SIZE = 100_000
_MOST_DECIMALS = 12


@dataclass(frozen=True, kw_only=True)
class Binned(Column):
    """Numbers in bins; out of range and infinities are clamped, what is no number is missing."""

    @property
    @abstractmethod
    def edges(self) -> tuple[float, ...]:
        """Increasing; bin i is [edges[i], edges[i + 1])."""

    @property
    def whole(self) -> bool:
        """Whether cells are whole numbers."""
        return self.type == "integer" or getattr(self, "part", None) is not None

    @property
    @override
    def ranges(self) -> dict[str, tuple[float, float]]:
        end = self.edges[-1]  # it is in no bin
        return {self.name: (self.edges[0], end - 1 if self.whole else math.nextafter(end, -math.inf))}

    def _numbers(self, series: pl.Series) -> FloatArray:
        return numbers(series)

    @property
    def missing_code(self) -> int:
        """Code of missing cells."""
        edges, place = np.asarray(self.edges), getattr(self, "missing", None)
        place = seconds_of(place) if isinstance(place, datetime) else place
        return len(edges) - 1 if place is None else int(bins_of(np.array([place]), edges, 0)[0])

    def encode(self, series: pl.Series) -> CodeArray:
        return bins_of(self._numbers(series), np.asarray(self.edges), self.missing_code)

    @override
    def outside(self, series: pl.Series) -> tuple[Mask, Mask]:
        values, end = self._numbers(series), self.edges[-1]
        # The end of the last bin belongs to it, unless bins are of whole numbers.
        return values < self.edges[0], (values > end) | ((values == end) & (end != getattr(self, "max", end)))

    @override
    def decode(self, codes: CodeArray, rng: np.random.Generator) -> pl.Series:
        """See :meth:`Column.decode`: nearer to the fuller of the bins beside its own."""
        edges, bins = np.asarray(self.edges), len(self.edges) - 1
        if self.whole and np.all(np.diff(edges) == 1):
            return self.at(codes, np.zeros(len(codes)))
        held = np.bincount(codes, minlength=bins)
        steep = np.zeros(held.size)
        steep[:bins] = steepness(held[:bins], np.diff(self._scaled(edges)))
        return self.at(codes, along(codes, steep, rng))

    def at(self, codes: CodeArray, share: FloatArray) -> pl.Series:
        """Cells at shares of the way through the codes' bins: 0 is the first number of a bin, 1 its last one."""
        edges = np.asarray(self.edges)
        missing = codes >= len(edges) - 1
        safe = np.where(missing, 0, codes)
        low, high = edges[safe], edges[safe + 1]
        # The draw may round up to the bin's end, which belongs to the next bin.
        made = self._made(np.minimum(self._between(low, high, share), np.nextafter(high, low)))
        return made.zip_with(pl.Series(~missing), pl.Series([None], dtype=made.dtype))

    def _made(self, values: FloatArray) -> pl.Series:
        return pl.Series(self.name, np.floor(values).astype(np.int64) if self.whole else values)

    def _between(self, low: FloatArray, high: FloatArray, share: FloatArray) -> FloatArray:
        return low + (high - low) * share

    def _scaled(self, edges: FloatArray) -> FloatArray:
        """Ends of bins on the scale on which rows lie in them."""
        return edges


@dataclass(frozen=True, kw_only=True)
class Number(Binned):
    """A number in ``bins`` bins from ``min`` to ``max``; on the way back anywhere in its bin, nearer to fuller ones.

    Args:
        scale: ``"log"`` for bins that are equally wide on a logarithmic scale, with ends of three digits; numbers lean
            on that scale. Left out: all bins are equally wide.
        cuts: all ends of bins, from ``min`` to ``max``; ``edges`` in ``stream.toml`` and in ``StreamConfig.of``.
        missing: the number that missing cells count as; left out: a cell of their own.
        decimals: numbers come back with at most so many, rounded down, or as the low end of their bin; left out: as
            drawn. So with 2 a bin from 0 to 0.01 comes back as 0.

    Example:
        >>> age = Number("age", min=0, max=100, bins=4)
        >>> age.encode(pl.Series([10.0, 99.0, 1e9, None])).tolist()
        [0, 3, 3, 4]
    """

    type: ClassVar[str] = "number"
    min: float
    max: float
    bins: int
    missing: float | None = None
    scale: Literal["log"] | None = None
    cuts: tuple[float, ...] | None = None
    decimals: int | None = None

    def __post_init__(self) -> None:
        self._require(Real, "a number", "min", "max", "missing")
        self._require(Integral, "a whole number (int)", "bins", "decimals")
        _check_bins(self.name, self.min, self.max, self.bins, scale=self.scale, cuts=self.cuts)
        _range(self.name, self.min, self.max, self.bins)
        if any(a >= b for a, b in pairwise(self.edges)):
            raise SchemaError(f"column {self.name!r}: its bins are narrower than numbers can be told apart; use fewer")
        if self.missing is not None and math.isnan(self.missing):
            raise SchemaError(f"column {self.name!r}: missing must be a number that has a bin")
        if self.decimals is not None and not 0 <= self.decimals <= _MOST_DECIMALS:
            raise SchemaError(f"column {self.name!r}: decimals must be from 0 to {_MOST_DECIMALS}, not {self.decimals}")

    @property
    def even(self) -> bool:
        """Whether all bins are equally wide."""
        return self.cuts is None and self.scale is None

    @cached_property
    def edges(self) -> tuple[float, ...]:
        if self.cuts is not None:
            return tuple(map(float, self.cuts))
        if self.scale == "log":
            return (float(self.min), *_geometric(self.min, self.max, self.bins), float(self.max))
        return tuple(float(edge) for edge in np.linspace(self.min, self.max, self.bins + 1))

    @override
    def _scaled(self, edges: FloatArray) -> FloatArray:
        return edges if self.scale is None else np.asarray(np.log(edges))

    @override
    def _between(self, low: FloatArray, high: FloatArray, share: FloatArray) -> FloatArray:
        found = super()._between(low, high, share) if self.scale is None else low * (high / low) ** share
        if self.decimals is None:
            return np.asarray(found)
        unit = 10.0**self.decimals
        # A number that rounding would take out of its bin is the bin's low end.
        return np.maximum(np.floor(np.minimum(found, np.nextafter(high, low)) * unit) / unit, low)

    @cached_property
    def value_labels(self) -> tuple[str, ...]:
        return tuple(f"[{a:g}, {b:g})" for a, b in pairwise(self.edges))


@dataclass(frozen=True, kw_only=True)
class Integer(Binned):
    """A whole number from ``min`` to ``max``, both included; one code each, or ``bins`` of them together.

    Fractions are rounded down. On the way back any of the whole numbers of the bin, nearer to fuller bins.

    Args:
        bins: number of bins of equal width (a last one may be narrower); left out: one for each whole number.
        width: whole numbers in a bin, in place of ``bins``; a last one may hold fewer.
        scale, cuts: as of :class:`Number`; ends of bins are whole numbers, the last one ``max + 1``.
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
    width: int | None = None
    scale: Literal["log"] | None = None
    cuts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        self._require(Integral, "a whole number (int)", "min", "max", "bins", "width", "missing")
        if max(abs(self.min), abs(self.max)) >= 2**53:
            raise SchemaError(f"column {self.name!r}: min and max must be whole numbers within 2^53 of 0")
        _check_bins(self.name, self.min, self.max + 1, self.bins, scale=self.scale, cuts=self.cuts)
        _range(self.name, self.min, self.max + 1, self.bins if self.bins is not None else self.max - self.min + 1)
        if self.bins is not None and self.bins > self.max - self.min + 1:
            raise SchemaError(f"column {self.name!r}: bins = {self.bins} is more than the whole numbers it has")
        if self.width is not None and (self.bins is not None or self.scale is not None or self.width < 1):
            raise SchemaError(
                f"column {self.name!r}: width: must be at least 1, and has no bins, edges and scale beside it"
            )
        if any(a >= b for a, b in pairwise(self.edges)):
            raise SchemaError(f"column {self.name!r}: its bins are narrower than one whole number; use fewer")

    @cached_property
    def edges(self) -> tuple[float, ...]:
        count = self.max - self.min + 1
        if self.cuts is not None:
            return tuple(map(float, self.cuts))
        if self.scale == "log" and self.bins is not None:
            inner = _geometric(self.min, self.max + 1, self.bins)
            return (float(self.min), *(float(round(edge)) for edge in inner), float(self.max + 1))
        width = self.width or math.ceil(count / (self.bins or count))
        return (*(float(edge) for edge in range(self.min, self.max + 1, width)), float(self.max + 1))

    @cached_property
    def value_labels(self) -> tuple[str, ...]:
        pairs = pairwise(self.edges)
        return tuple(f"{a:.0f}" if b - a == 1 else f"{a:.0f}..{b - 1:.0f}" for a, b in pairs)


@dataclass(frozen=True, kw_only=True)
class Datetime(Binned):
    """A time: a calendar ``part`` of it, or one of ``bins`` equal bins from ``min`` to ``max``.

    Parts: minute 0-59, hour 0-23, weekday 1-7 (Monday is 1), day 1-31, week 1-53 (ISO 8601), month 1-12, quarter 1-4;
    they come back as whole numbers, bins as times within the bin, nearer to fuller ones. Times are read on the wall
    clock of ``timezone``.

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
        self._require(datetime, "a datetime", "min", "max")
        self._require(Integral, "a whole number (int)", "bins")
        given = (self.min, self.max, self.bins)
        if (self.part is None) == (given == (None, None, None)) or (self.part is None and None in given):
            raise SchemaError(f"column {self.name!r}: give either part, or all of min, max and bins")
        if self.part is not None and self.part not in _PARTS:
            raise SchemaError(f"column {self.name!r}: part must be one of {', '.join(_PARTS)}; found {self.part!r}")
        if self.min is not None and self.max is not None:
            _range(self.name, seconds_of(self.min), seconds_of(self.max), self.bins or 0)

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """Whole numbers for a part, seconds since 1970 for bins."""
        if self.min is not None and self.max is not None and self.bins is not None:
            return tuple(float(e) for e in np.linspace(seconds_of(self.min), seconds_of(self.max), self.bins + 1))
        low, high = _PARTS[str(self.part)]
        return tuple(float(edge) for edge in range(low, high + 2))

    @cached_property
    def value_labels(self) -> tuple[str, ...]:
        if self.part is not None:
            return tuple(f"{edge:.0f}" for edge in self.edges[:-1])
        return tuple((_EPOCH + timedelta(seconds=edge)).isoformat() for edge in self.edges[:-1])

    def _numbers(self, series: pl.Series) -> FloatArray:
        local = times(series, timezone=self.timezone)
        found = getattr(local.dt, self.part)() if self.part else local.dt.epoch("us").cast(pl.Float64) / 1e6
        return np.array(found.cast(pl.Float64).fill_null(np.nan).to_numpy(), dtype=np.float64)

    @override
    def _made(self, values: FloatArray) -> pl.Series:
        if self.part is not None:
            return super()._made(values)
        return pl.Series(self.name, np.floor(values * 1e6).astype(np.int64)).cast(pl.Datetime("us"))


def open_ended(labels: Sequence[str], *, whole: bool = False) -> list[str]:
    """Labels of bins to read, of which the first and the last say that they hold what lies beyond, too.

    Example:
        >>> open_ended(["0 to 20", "20 to 40", "40 to 60"]), open_ended(["0..4", "5..9"], whole=True)
        (['below 20', '20 to 40', '40 and more'], ['up to 4', '5 and more'])
    """
    if len(labels) < 2:
        return list(labels)
    low, high = (re.split(r" to |\.\.|, ", label.strip("[)")) for label in (labels[0], labels[-1]))
    return [f"{'up to' if whole else 'below'} {low[-1]}", *labels[1:-1], f"{high[0]} and more"]


def _range(name: str, low: float, high: float, bins: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SchemaError(f"column {name!r}: min must be below max, and both finite")
    if math.isinf(high - low):
        raise SchemaError(f"column {name!r}: the range from min to max is too wide")
    if bins < 1:
        raise SchemaError(f"column {name!r}: bins must be at least 1")
    if bins > _LARGEST_SIZE:
        raise SchemaError(f"column {name!r}: its cells are too many; cut it into at most {_LARGEST_SIZE:,} bins")


def _check_bins(
    name: str, low: float, high: float, bins: int | None, *, scale: str | None, cuts: Sequence[float] | None
) -> None:
    """Raise ``SchemaError`` unless ``scale`` and ``cuts`` go with the other settings."""
    if cuts is None:
        if scale is not None and (bins is None or low <= 0):
            raise SchemaError(f'column {name!r}: scale = "log" needs bins, and a min above 0')
        return
    if any(a >= b for a, b in pairwise(cuts)) or not all(map(math.isfinite, cuts)):
        raise SchemaError(
            f"column {name!r}: edges must be finite, and each above the one before; max lies above the last"
        )
    if scale is not None or (bins or len(cuts) - 1) != len(cuts) - 1 or (low, high) != (cuts[0], cuts[-1]):
        raise SchemaError(
            f"column {name!r}: edges say where each bin begins, from the lowest number on: leave out min, bins, width "
            "and scale. max says where the last bin ends; left out, the last edge does"
        )


def _geometric(low: float, high: float, bins: int) -> list[float]:
    """Ends of bins that are equally wide on a logarithmic scale, in three digits, without the first and the last."""
    return [float(f"{edge:.3g}") for edge in np.geomspace(low, high, bins + 1)[1:-1]]


def seconds_of(moment: datetime) -> float:
    """Seconds since 1970 on the moment's own wall."""
    return (moment.replace(tzinfo=None) - _EPOCH).total_seconds()


def bins_of(values: FloatArray, edges: FloatArray, missing: int) -> CodeArray:
    """Bins of numbers, int32, shape ``(numbers,)``; those out of range, infinities too, lie in the nearest bin.

    Args:
        values: shape ``(numbers,)``.
        edges: increasing; bin i is [edges[i], edges[i + 1]). Fastest if they are about equally far apart.
        missing: the code of NaN.
    """
    widths = np.diff(edges)
    if widths.max() > 2 * widths.min():  # to step from a guess would take long
        places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(widths) - 1)
        return np.where(np.isnan(values), missing, places).astype(np.int32)
    return _bins(np.ascontiguousarray(values), edges, np.int32(missing))  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)
def _bins(values, edges, missing):  # type: ignore[no-untyped-def]
    last = edges.size - 2
    low, high = edges[0], edges[last + 1]
    per_width = (last + 1) / (high - low)
    out = np.empty(values.size, dtype=np.int32)
    for i in range(values.size):
        value = values[i]
        if value != value:
            out[i] = missing
        elif value < low:
            out[i] = 0
        elif value >= edges[last]:
            out[i] = last
        else:
            # Within range, so that the product is: a guess, which comparisons then set right.
            place = min(np.int64((value - low) * per_width), last)
            while value < edges[place]:
                place -= 1
            while value >= edges[place + 1]:
                place += 1
            out[i] = place
    return out
