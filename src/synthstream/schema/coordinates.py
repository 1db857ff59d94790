"""A number column of a points stream: as many binary digits of it as the partition asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from synthstream.errors import SchemaError
from synthstream.schema.coercion import numbers
from synthstream.schema.columns import Column, Mask
from synthstream.workload import CodeArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Coordinate(Column):
    """A number from ``min`` to ``max`` in ``2**bits`` equal cells; numbers out of range are clamped.

    Args:
        bits: binary digits, at most 30.

    Raises:
        SchemaError: the range is empty, infinite, or too narrow to tell numbers apart; or ``missing`` is not in it.

    Example:
        >>> lat = Coordinate(name="lat", min=32, max=36, missing=32, bits=2)
        >>> lat.encode(pl.Series([33.5, 99.0, -1.0, None, float("nan"), float("inf")])).tolist()
        [1, 3, 0, 0, 0, 3]
    """

    type: ClassVar[str] = "number"
    min: float
    max: float
    missing: float
    bits: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.min) and math.isfinite(self.max) and self.min < self.max):
            raise SchemaError(f"column {self.name!r}: min must be below max, and both finite")
        width = (self.max - self.min) / 2**self.bits
        if not width > 4 * np.spacing(max(abs(self.min), abs(self.max))) or math.isinf(width):
            raise SchemaError(f"column {self.name!r}: its range is too narrow or too wide for so many cells")
        if not self.min <= self.missing <= self.max:  # refuses NaN too
            raise SchemaError(f"column {self.name!r}: missing: must lie between min and max")

    @property
    def value_labels(self) -> tuple[str, ...]:
        """None: there are too many cells to name them."""
        return ()

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        return {self.name: (self.min, self.max)}

    @property
    def size(self) -> int:
        """Number of codes."""
        return int(2**self.bits)

    def share_of(self, value: float) -> float:
        """Where a number lies between min, 0, and max, 1; clamped."""
        return min(max((value - self.min) / (self.max - self.min), 0.0), 1.0)

    def at(self, codes: IntArray | CodeArray) -> FloatArray:
        """Lower ends of cells, in the column's own units."""
        return np.asarray(self.min + (self.max - self.min) * (codes / 2**self.bits))

    def encode(self, series: pl.Series) -> CodeArray:
        values = numbers(series)
        values = np.clip(np.where(np.isnan(values), self.missing, values), self.min, self.max)
        codes = np.floor((values - self.min) / (self.max - self.min) * 2.0**self.bits)
        return np.asarray(np.minimum(codes, 2**self.bits - 1).astype(np.int32))

    def outside(self, series: pl.Series) -> tuple[Mask, Mask]:
        values = numbers(series)
        return values < self.min, values > self.max

    def decode(self, codes: CodeArray, rng: np.random.Generator) -> pl.Series:
        """See :meth:`Column.decode`: uniform within the cell."""
        values = self.min + (self.max - self.min) * ((codes + rng.random(codes.size)) / 2.0**self.bits)
        return pl.Series(self.name, np.minimum(values, self.max))
