"""Places: two coordinates, or one, as nested grids of cells. Each grid is a column of codes; together they are a place.

A cell is named by the digits of its code, the coarsest first, so the name of a coarser cell begins that of each cell in
it. Nothing private decides where a cell lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Any, ClassVar

import numpy as np
import polars as pl
from typing_extensions import override

from synthstream.errors import SchemaError
from synthstream.leaning import leant
from synthstream.partition import Partition, sums
from synthstream.schema.coercion import numbers, texts
from synthstream.schema.columns import MISSING, OTHER, Category, Mask
from synthstream.schema.coordinates import Coordinate
from synthstream.workload import CodeArray, FloatArray, IntArray

# Bits of the finest grid, at most.
FINEST = 14
# Wider boxes are refused: what lies as far outside again is still a number.
_WIDEST = 2.0**1021
# Between coordinates, where cells of a place are written.
SIDES = " / "
# For one and for two coordinates, steps of a sequence that fills a square, or a cube of four dimensions, evenly: two a
# coordinate, for the half of a cell and for where in it. Powers of 1 / x, where x^3 = x + 1, or x^5 = x + 1.
_STEPS = (
    (0.7548776662466927, 0.5698402909980532),
    (0.8566748838545029, 0.733891856627126, 0.6287067210378087, 0.5385972572236101),
)
# What the steps of a place are, in those of the place before it.
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, kw_only=True)
class View(Category):
    """A place on one grid: a category whose values are cells.

    A row has a cell if all coordinates are numbers in the box; the upper ends of the box belong to it. It is
    ``missing`` if a coordinate is missing, and ``other`` else: outside of the box, or no number.

    Args:
        place: the name of the place; columns of one place differ in ``depth`` and are determined by the finest.
        coordinates: columns of private rows, one or two.
        bounds: the box, lower and upper end for each coordinate.
        depth: how often each coordinate is halved; a cell has as many digits.
        crossed: columns that are counted together with it.
        located: whether published rows get coordinates from it: the finest of its place.

    Raises:
        SchemaError: the box has no width, or its cells are too many or too narrow.

    Example:
        >>> view = View(name="at_1", place="at", coordinates=("lat", "lon"), bounds=((0, 4), (0, 8)), depth=1)
        >>> view.values, view.own_cells
        (('0', '1', '2', '3'), ('other', 'missing'))
        >>> view.read(pl.DataFrame({"lat": [1, 3, 3, None, 9], "lon": ["1", "8", "two", "1", "1"]})).tolist()
        [0, 3, 4, 5, 4]
    """

    type: ClassVar[str] = "place"
    place: str
    coordinates: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    depth: int
    crossed: tuple[str, ...] = ()
    located: bool = False
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        here = f"column {self.place!r}"
        if len(self.coordinates) not in (1, 2) or len(set(self.coordinates)) != len(self.bounds):
            raise SchemaError(f'{here}: coordinates: name two columns, as in ["lat", "lon"], or one; bounds for each')
        if self.depth < 1 or self.depth * len(self.coordinates) > FINEST:
            raise SchemaError(f"{here}: depth = {self.depth}: must be from 1 to {FINEST // len(self.coordinates)}")
        for name, (low, high) in zip(self.coordinates, self.bounds, strict=True):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise SchemaError(
                    f"{here}: bounds: of {name!r}, the lower end must be below the upper one, and both finite"
                )
            if not 4 * np.spacing(max(abs(low), abs(high))) < (high - low) / 2**self.depth <= _WIDEST / 2**self.depth:
                raise SchemaError(f"{here}: bounds: the range of {name!r} is too narrow or too wide for so many cells")
        digits = [str(digit) for digit in range(2 ** len(self.coordinates))]
        object.__setattr__(self, "values", tuple(map("".join, product(digits, repeat=self.depth))))

    @property
    @override
    def title(self) -> str:
        return f"{self.words.label or self.place}, {len(self.values):,} cells"

    @property
    @override
    def sources(self) -> tuple[str, ...]:
        return self.coordinates

    @property
    def axes(self) -> tuple[Coordinate, ...]:
        """The coordinates, each in as many cells as the grid has along it."""
        return tuple(
            Coordinate(name=name, min=low, max=high, missing=low, bits=self.depth)
            for name, (low, high) in zip(self.coordinates, self.bounds, strict=True)
        )

    @override
    def to_dict(self) -> dict[str, Any]:
        """See :class:`Column`; the cells follow from the rest."""
        return {key: value for key, value in super().to_dict().items() if key != "values"}

    @override
    def read(self, rows: pl.DataFrame) -> CodeArray:
        (low, high), sides = np.array(self.bounds, dtype=np.float64).T, 2**self.depth
        # Outside of the box, below 0 or above 1: no cell may overflow, and be told.
        shares = (np.clip(self.positions(rows), low - (high - low), high + (high - low)) - low) / (high - low)
        inside = ((shares >= 0) & (shares <= 1)).all(axis=1)
        places = np.minimum(np.where(inside[:, None], shares, 0) * sides, sides - 1).astype(np.int32)
        codes = np.where(inside, self._partition.cells(places), len(self.values))
        missing = np.any([_empty(rows[name]) for name in self.coordinates], axis=0)
        return np.where(missing, len(self.values) + 1, codes).astype(np.int32)

    @override
    def written(self, rows: pl.DataFrame) -> pl.Series:
        """See :class:`Column`: cells by their names, and what has none as the coordinates are written."""
        return self.named(rows, self.read(rows), self.labels).alias(self.name)

    def named(self, rows: pl.DataFrame, codes: CodeArray, labels: Sequence[str]) -> pl.Series:
        """Labels of codes, null for ``missing``; for ``other`` the coordinates as they are written."""
        texts_of = [texts(rows[name])[0].fill_null("") for name in self.coordinates]
        told = texts_of[0] if len(texts_of) == 1 else texts_of[0] + SIDES + texts_of[1]
        named = pl.Series(labels, dtype=pl.String).gather(codes)
        named = named.zip_with(pl.Series(codes != labels.index(OTHER)), told)
        return named.set(pl.Series(codes == labels.index(MISSING)), None)

    def positions(self, rows: pl.DataFrame) -> FloatArray:
        """Coordinates of private rows, shape ``(rows, coordinates)``; NaN where there is no number."""
        return np.stack([numbers(rows[name]) for name in self.coordinates], axis=1)

    def steps_of_rows(self, nth: int) -> FloatArray:
        """How far a row lies in a cell beyond the row before, modulo 1: first along each coordinate, in cells.

        Of the nth place of a stream: two would lie at the same spot of their cells, if they had the same steps.
        """
        return math.prod([_GOLDEN] * nth) * np.array(_STEPS[len(self.bounds) - 1])

    @override
    def further(self, codes: CodeArray, nth: int = 0) -> list[pl.Series]:
        """See :class:`Column`: coordinates, null outside of the box.

        A cell leans towards its fuller neighbours, as far as all rows do so. In which half of it a row lies depends on
        that and on the row's number, and where in the half on its number alone: so nearly all rows that stay lie where
        they lay. Numbers in order fill a cell evenly whose neighbours are alike.
        """
        if not self.located:
            return []
        low, high = self.box(np.minimum(codes, len(self.values) - 1))
        numbers = np.arange(1, len(codes) + 1)[:, None] * self.steps_of_rows(nth)
        shares, within = np.split(numbers % 1.0, 2, axis=1)
        at = np.minimum(low + (high - low) * (self._halves(codes, shares) + within) / 2, np.nextafter(high, low))
        known = pl.Series(codes < len(self.values))
        return [pl.Series(name, at[:, k]).set(~known, None) for k, name in enumerate(self.coordinates)]

    def _halves(self, codes: CodeArray, shares: FloatArray) -> IntArray:
        """In which half of its cell each row lies along each coordinate: in the lower one, 0, if the row's share is
        below what that holds.
        """
        cells, number = len(self.values), len(self.bounds)
        held = np.bincount(codes, minlength=self.size)[:cells] / 2**number
        told = [np.arange(2**level) for level in range(number * self.depth)]
        levels = sums(leant(np.repeat(held, 2**number), told, number))[number * self.depth :]
        node, found = np.minimum(codes, cells - 1).astype(np.int64), np.zeros(shares.shape, dtype=np.int64)
        for k, (whole, halves) in enumerate(pairwise(levels)):
            found[:, k] = shares[:, k] * whole[node] >= halves[2 * node]
            node = 2 * node + found[:, k]
        return found

    @override
    def ends(self, codes: CodeArray) -> list[pl.Series]:
        corners = zip(("from", "to"), self.box(np.minimum(codes, len(self.values) - 1)), strict=True)
        found = [(name, end, at[:, k]) for end, at in corners for k, name in enumerate(self.coordinates)]
        unknown = pl.Series(codes >= len(self.values))
        return [
            pl.Series(f"{name} {end}", at).set(unknown, None) for name, end, at in sorted(found, key=lambda x: x[:2])
        ]

    @cached_property
    def _partition(self) -> Partition:
        return Partition(dimension=len(self.coordinates), depth=self.depth * len(self.coordinates))

    def steps(self, codes: CodeArray) -> CodeArray:
        """How many cells lie below each cell, along each coordinate; shape ``(cells, coordinates)``."""
        return self._partition.codes(codes.astype(np.int64))

    def box(self, codes: CodeArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper corners of cells, each of shape ``(cells, coordinates)``."""
        places, (low, high) = self.steps(codes), np.array(self.bounds, dtype=np.float64).T
        return low + (high - low) * (places / 2**self.depth), low + (high - low) * ((places + 1) / 2**self.depth)

    def within(self, coarser: View) -> CodeArray:
        """For each code, that of a coarser view of the same place; own cells go to own cells."""
        inside = np.arange(len(self.values)) >> len(self.coordinates) * (self.depth - coarser.depth)
        return np.append(inside, len(coarser.values) + np.arange(2)).astype(np.int32)


def _empty(series: pl.Series) -> Mask:
    text, missing = texts(series)
    return (missing | (text.str.strip_chars() == "").fill_null(value=False)).to_numpy()
