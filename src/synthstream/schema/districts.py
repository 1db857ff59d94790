"""Districts of a place: a category whose values are the names of public polygons, read from coordinates."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from typing_extensions import override

from synthstream.errors import ConfigError
from synthstream.schema.columns import MISSING, OTHER, Category
from synthstream.schema.places import View
from synthstream.schema.polygons import (
    BEYOND,
    Rings,
    features_of,
    geometry,
    in_order,
    misplaced,
    properties_of,
    shape_of,
    union_of,
    written,
)
from synthstream.workload import CodeArray, FloatArray, IntArray

# The property of a feature that names it, where nothing is said, and in settings for readers.
NAME = "name"
# What is a smaller share of a cell is none of it, and of a polygon no overlap.
_SLIVER = 1e-6
# Positions are looked for so often; then a point that surely lies right is taken.
_TRIES = 200
_RENAME = "Let the columns that coordinates names have such names"
# Steps of a sequence that fills a square evenly, from one try to the next: square roots of 2 and of 3, less 1.
_AGAIN = np.array([0.41421356237309515, 0.7320508075688772])


class _Pieces(NamedTuple):
    """What districts have of the cells of a grid: of each cell and district that meet, in order of ``keys``.

    Args:
        keys: the cell's code times the number of codes of districts, and the district's code.
        whole: whether all of the cell lies in it, and no other one touches it.
        shapes: geometries in longitudes and latitudes.
        low, high: ends of each, longitude and latitude, shape ``(keys, 2)``.
    """

    keys: IntArray
    whole: NDArray[np.bool_]
    shapes: NDArray[Any]
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, kw_only=True)
class Districts(Category):
    """Which polygon a place lies in: the first one of the file, if several hold it.

    It is ``missing`` if a coordinate is missing, and ``other`` if no polygon holds it, if it lies outside of the
    place's bounds, or is no number.

    Args:
        finest: the finest grid of the place.
        text: GeoJSON with a feature for each value, named by ``name``.
        crossed: columns that are counted together with it.
    """

    type: ClassVar[str] = "districts"
    finest: View
    text: str
    crossed: tuple[str, ...] = ()

    @classmethod
    def read_file(cls, said: str, key: str, base: Path, *, name: str, finest: View) -> Districts:
        """From a GeoJSON file, or GeoJSON itself; features of one name are one district.

        Raises:
            ConfigError: it cannot be read, a polygon is not valid, has no name, or lies outside of the bounds.
        """
        where = "regions" if said.lstrip().startswith("{") else f"regions = {said!r}"
        x, y = in_order(finest.coordinates, where, _RENAME)
        found: dict[str, Rings] = {}
        features = features_of(base, said, where)
        for feature in features:
            label, here = feature.text_of(key), feature.where
            if not label and key in feature.properties:
                raise ConfigError(f"{here} has an empty {key!r}. Give it one, or take it out")
            if not label:
                raise ConfigError(
                    f"{here} has no property {key!r}. Set region_key to the property that names the polygons; there "
                    f"are {properties_of(features)}"
                )
            if label in (OTHER, MISSING):
                raise ConfigError(f"{here} is named {label!r}, which has another meaning. Rename it")
            rings = feature.rings()
            shape_of(rings, f"{where}: {label!r}")
            found.setdefault(label, []).extend(rings)
        text = written([({NAME: label}, rings) for label, rings in found.items()], where)
        made = cls(name=name, finest=finest, text=text, values=tuple(found))
        for label, shape in zip(made.values, made.shapes, strict=True):
            if geometry().area(geometry().intersection(shape, made._box)) == 0:
                ends = ((finest.coordinates[axis], *finest.bounds[axis]) for axis in (x, y))
                raise ConfigError(
                    f"{where}: {label!r} lies outside of bounds, so no event could be there; take it out of the file, "
                    f"if it is right. {misplaced(shape.bounds, *ends)}"
                )
        return made

    @property
    def place(self) -> str:
        """The name of the place."""
        return self.finest.place

    @cached_property
    def _axes(self) -> tuple[int, int]:
        """Positions of longitude and latitude among the coordinates."""
        return in_order(self.finest.coordinates, self.name, _RENAME)

    @property
    @override
    def title(self) -> str:
        number = len(self.values)
        return f"{self.words.label or self.place}, {number:,} region{'' if number == 1 else 's'}"

    @property
    @override
    def sources(self) -> tuple[str, ...]:
        return self.finest.coordinates

    @override
    def to_dict(self) -> dict[str, Any]:
        """See :class:`Column`: the polygons by a hash of their corners."""
        kept = {key: value for key, value in super().to_dict().items() if key not in ("text", "finest")}
        return {**kept, "finest": self.finest.to_dict(), "regions": hashlib.sha256(self.text.encode()).hexdigest()}

    @cached_property
    def shapes(self) -> NDArray[Any]:
        """The polygons of each value, in longitudes and latitudes; they may overlap."""
        shapes = np.array([union_of(one.rings()) for one in features_of(Path(), self.text, self.name)])
        geometry().prepare(shapes)
        return shapes

    def called(self, shape: Any) -> str | None:
        """The district that a shape is, if it is one, and no part of it lies in another."""
        area = geometry().area
        inside = area(geometry().intersection(self.shapes, shape))
        met = np.flatnonzero(inside > BEYOND * area(shape))
        same = met.size == 1 and inside[met[0]] > (1 - BEYOND) * max(area(shape), area(self.shapes[met[0]]))
        return self.values[met[0]] if same else None

    def holding(self, at: FloatArray) -> CodeArray:
        """Codes of positions in the order of coordinates, shape ``(positions, 2)``; ``other`` where no polygon is."""
        found = np.full(len(at), len(self.values), dtype=np.int32)
        x, y = (np.ascontiguousarray(at[:, axis]) for axis in self._axes)
        for code in range(len(self.values) - 1, -1, -1):  # the first of the file is the last to have its way
            west, south, east, north = geometry().bounds(self.shapes[code])
            near = np.flatnonzero((x >= west) & (x <= east) & (y >= south) & (y <= north))
            found[near[geometry().intersects_xy(self.shapes[code], x[near], y[near])]] = code
        return found

    @override
    def read(self, rows: pl.DataFrame) -> CodeArray:
        cells = self.finest.read(rows)
        codes = self._of_cells[cells]
        cut = np.flatnonzero(codes < 0)
        codes[cut] = self.holding(self.finest.positions(rows)[cut])
        return codes

    @cached_property
    def _of_cells(self) -> CodeArray:
        """Of each cell of the finest grid the district that has all of it, -1 where several meet; own cells last."""
        found = np.full(self.finest.size, -1, dtype=np.int32)
        keys = self.pieces.keys[self.pieces.whole]
        found[keys // self.size] = keys % self.size
        found[-2:] = np.arange(self.size - 2, self.size)
        return found

    @override
    def written(self, rows: pl.DataFrame) -> pl.Series:
        """See :class:`Column`: names, and what has none as the coordinates are written."""
        return self.finest.named(rows, self.read(rows), self.labels).alias(self.name)

    @cached_property
    def pieces(self) -> _Pieces:
        """What each district, and what lies in none, has of the cells of the finest grid."""
        shapely, cells = geometry(), np.arange(len(self.finest.values), dtype=np.int32)
        x, y = self._axes
        low, high = self.finest.box(cells)
        boxes = shapely.box(low[:, x], low[:, y], high[:, x], high[:, y])
        area, left = shapely.area(boxes), boxes.copy()
        keys, parts, wholes = list[IntArray](), list[NDArray[Any]](), list[NDArray[np.bool_]]()
        meet = np.zeros(cells.size, dtype=np.int64)
        for code, shape in enumerate(self.shapes):
            met = np.flatnonzero(shapely.intersects(shape, boxes))
            meet[met] += 1
            part = shapely.intersection(shape, left[met])
            held = shapely.area(part) > _SLIVER * area[met]
            left[met] = shapely.difference(left[met], shape)
            keys.append(met[held] * self.size + code)
            parts.append(part[held])
            wholes.append(shapely.covers(shape, boxes[met[held]]))
        rest = np.flatnonzero(shapely.area(left) > _SLIVER * area)
        keys.append(rest * self.size + len(self.values))
        parts.append(left[rest])
        wholes.append(np.ones(rest.size, dtype=np.bool_))
        order = np.argsort(np.concatenate(keys))
        own, shapes, whole = (np.concatenate(found)[order] for found in (keys, parts, wholes))
        alone = meet[own // self.size] == np.where(own % self.size == len(self.values), 0, 1)
        ends = shapely.bounds(shapes).reshape(-1, 4)
        return _Pieces(own, whole & alone, shapes, ends[:, :2], ends[:, 2:])

    def pairs(self) -> IntArray:
        """Codes of districts and cells of the finest grid that meet, shape ``(pairs, 2)``; own cells with own cells."""
        keys = self.pieces.keys
        own = [[len(self.values) + i, len(self.finest.values) + i] for i in range(2)]
        return np.concatenate([np.stack([keys % self.size, keys // self.size], axis=1), own])

    def placed(self, codes: CodeArray, cells: CodeArray, at: list[pl.Series], nth: int = 0) -> list[pl.Series]:
        """Positions of published rows, those in cells of several districts moved into their own.

        Where such a row lies depends on its number, its cell and its district alone.

        Args:
            codes: of districts.
            cells: of the finest grid.
            at: coordinates within these cells, null outside of the box.
            nth: which place of the stream it is.
        """
        pieces, axes = self.pieces, np.array(self._axes)
        keys = cells.astype(np.int64) * self.size + codes
        own = np.minimum(np.searchsorted(pieces.keys, keys), pieces.keys.size - 1)
        todo = np.flatnonzero((pieces.keys[own] == keys) & ~pieces.whole[own])
        spots = np.stack([series.fill_null(0).to_numpy() for series in at], axis=1)
        number = (todo[:, None] + 1) * self.finest.steps_of_rows(nth)[:2]
        for _ in range(_TRIES):
            if not todo.size:
                break
            low, high = pieces.low[own[todo]], pieces.high[own[todo]]
            spots[np.ix_(todo, axes)] = low + (high - low) * (number[:, axes] % 1.0)
            right = self.holding(spots[todo]) == codes[todo]
            todo, number = todo[~right], number[~right] + _AGAIN
        if todo.size:
            inner = geometry().point_on_surface(pieces.shapes[own[todo]])
            spots[np.ix_(todo, axes)] = geometry().get_coordinates(inner)
        return [pl.Series(s.name, spots[:, i]).set(s.is_null(), None) for i, s in enumerate(at)]

    def gaps_and_overlaps(self) -> tuple[float, list[tuple[str, str]]]:
        """The share of the box that no polygon holds, and names of polygons that overlap."""
        shapely, box = geometry(), self._box
        held = shapely.area(shapely.intersection(shapely.union_all(self.shapes), box))
        first, second = shapely.STRtree(self.shapes).query(self.shapes, predicate="intersects")
        first, second = first[first < second], second[first < second]
        both = shapely.area(shapely.intersection(self.shapes[first], self.shapes[second]))
        area = shapely.area(self.shapes)
        over = both > _SLIVER * np.minimum(area[first], area[second])
        named = [(self.values[a], self.values[b]) for a, b in zip(first[over], second[over], strict=True)]
        return 1 - float(held / shapely.area(box)), sorted(named)

    def beyond(self) -> dict[str, float]:
        """Polygons that reach out of the box by a share of their area that is told, and that share; most first."""
        area = geometry().area
        shares = 1 - area(geometry().intersection(self.shapes, self._box)) / area(self.shapes)
        found = {name: float(s) for name, s in zip(self.values, shares, strict=True) if s > BEYOND}
        return dict(sorted(found.items(), key=lambda one: -one[1]))

    @property
    def _box(self) -> Any:
        (west, east), (south, north) = (self.finest.bounds[axis] for axis in self._axes)
        return geometry().box(west, south, east, north)


OfPlace = View | Districts
