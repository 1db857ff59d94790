"""The public part of a box in which all points of a stream lie, such as a city without the sea beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.errors import ConfigError
from synthstream.partition import Partition, Region
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.polygons import features_of, geometry, in_order, misplaced, named, shape_of, written
from synthstream.workload import CodeArray, FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.spatial import KDTree

# A cell of which a smaller share lies in the polygons counts as outside of them; one of which more does, as inside.
_SLIVER, _WHOLE = 1e-6, 1 - 1e-9
# Positions are drawn again so often at most, until they lie in the polygons; then a point that does is taken.
_TRIES = 100
# Rows of cells that are looked at together.
_BLOCK = 512
# What to do if names of columns do not tell which is which: as settings are made, and as they are read.
_RENAME = 'A column of another name is read by name = "lat", from = "its name"'
_ASK = "Ask for a box, or give the columns such names in a stream to come"


class _Cut(NamedTuple):
    """Cells that the border cuts, by the part of each that lies in the polygons.

    Args:
        cells: increasing.
        pieces: geometries, as shares of the way through the box.
        low, high: ends of each piece, shape ``(cells, 2)``.
    """

    cells: IntArray
    pieces: NDArray[Any]
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Domain:
    """Polygons that hold all points of a stream of two coordinates. Public.

    A private point that lies in no cell of theirs counts in the nearest one, by the centres of cells. That depends on
    the point and on public geometry alone, so it changes nothing in what one event changes.

    Args:
        text: GeoJSON, as :func:`synthstream.schema.polygons.written` writes it.
        columns: the two coordinates.
        axes: positions of longitude and latitude among them.
        shape: the polygons, in longitudes and latitudes.
        least: a cell of which a smaller share lies in them is outside.
    """

    text: str
    columns: tuple[Coordinate, ...]
    axes: tuple[int, int]
    shape: Any
    least: float = _SLIVER

    @classmethod
    def read(
        cls,
        said: str,
        columns: Sequence[Coordinate],
        base: Path,
        *,
        asked: str | None = None,
        feature: str | None = None,
    ) -> Domain:
        """From a GeoJSON file, or GeoJSON itself: what any of its polygons holds.

        Args:
            asked: what a reader who asks about it calls it, to whom each sliver of a cell counts; left out: it is the
                key ``region`` of settings.
            feature: only features of this name; see :func:`synthstream.schema.polygons.named`.

        Raises:
            ConfigError: it cannot be read, has no such feature, a polygon is not valid or lies outside of the box, or
                the columns are no longitude and latitude.
        """
        where = asked or ("region" if said.lstrip().startswith("{") else f"region = {said!r}")
        axes = in_order([column.name for column in columns], where, _RENAME if asked is None else _ASK)
        rings = [one.rings() for one in named(features_of(base, said, where), feature, where)]
        shape = geometry().union_all([shape_of(one, where) for one in rings])
        found = cls(
            text=written([({}, one) for one in rings], where),
            columns=tuple(columns),
            axes=axes,
            shape=shape,
            least=_SLIVER if asked is None else 0.0,
        )
        if found._empty:
            x, y = ((found.columns[axis].name, *found.ends[axis]) for axis in axes)
            raise ConfigError(
                f"{where}: lies outside of the box. {misplaced(shape.bounds, x, y, asked=asked is not None)}"
            )
        return found

    @property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """Ends of the box."""
        return tuple((column.min, column.max) for column in self.columns)

    def boxed(self, ends: Sequence[tuple[float, float]]) -> Domain:
        """What lies in a box, too: lower and upper ends in the order of the columns."""
        (west, east), (south, north) = (ends[axis] for axis in self.axes)
        return self.meeting(geometry().box(west, south, east, north))

    def meeting(self, shape: Any) -> Domain:
        """What lies in another shape, too."""
        return replace(self, shape=geometry().intersection(self.shape, shape), least=0.0)

    def at(self, level: int) -> Domain:
        """The same, of a partition of so many splits."""
        bits = Partition(dimension=2, depth=max(level, 2)).bits
        columns = (replace(column, bits=own) for column, own in zip(self.columns, bits, strict=True))
        return replace(self, columns=tuple(columns))

    def shares(self, level: int) -> FloatArray:
        """Share of each node of a level that lies in the polygons, shape ``(2**level,)``."""
        if self._empty:
            return np.zeros(2**level)
        held = np.array([self.share])
        for above in range(level):
            held = self.nodes.divided(held, above)
        return np.asarray(np.clip(held * 2**level, 0, 1))

    @property
    def _empty(self) -> bool:
        return self.nodes.cut[0].size > 0 and not np.isfinite(self.nodes.ratios[0]).all()

    def holds(self, at: FloatArray) -> NDArray[np.bool_]:
        """Which positions lie in the polygons, their borders included; shape ``(positions, 2)``, as the columns are."""
        geometry().prepare(self.shape)
        return np.asarray(geometry().intersects_xy(self.shape, at[:, self.axes[0]], at[:, self.axes[1]]))

    @property
    def beyond(self) -> float:
        """Share of the polygons that lies outside of the box."""
        return max(1 - float(self.boxed(self.ends).shape.area / self.shape.area), 0.0)

    @cached_property
    def name(self) -> str:
        """SHA-256 of the polygons' corners, hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def partition(self) -> Partition:
        """Of the box."""
        return Partition(dimension=2, depth=sum(column.bits for column in self.columns), region=self.nodes)

    @cached_property
    def nodes(self) -> Region:
        """What the nodes of a partition of the box have of the polygons. A ratio is not a number where that is none."""
        return self._found[0]

    @cached_property
    def _found(self) -> tuple[Region, _Cut]:
        shapely, depth = geometry(), sum(column.bits for column in self.columns)
        low, size = np.array([[0.0, 0.0]]), np.array([1.0, 1.0])
        inside = shapely.transform(self.shape, self._shares)
        shapely.prepare(inside)
        nodes, pieces = np.zeros(1, dtype=np.int64), shapely.intersection([inside], shapely.box(0, 0, 1, 1))
        levels, kinds = [nodes], list[FloatArray]()
        for level in range(depth):
            axis = level % 2
            size[axis] /= 2
            low = np.repeat(low, 2, axis=0)
            low[1::2, axis] += size[axis]
            boxes = shapely.box(*low.T, *(low + size).T)
            pieces = shapely.intersection(np.repeat(pieces, 2), boxes)
            share = shapely.area(pieces) / (size[0] * size[1])
            share[share > _WHOLE] = np.where(shapely.covers(inside, boxes[share > _WHOLE]), 1.0, _WHOLE)
            share[share < (self.least if level + 1 == depth else 1e-300)] = 0.0
            cut = (share > 0) & (share < 1)
            kinds.append(np.where(cut, np.nan, share))
            nodes = (2 * np.repeat(nodes, 2) + np.tile([0, 1], nodes.size))[cut]
            low, pieces, share = low[cut], pieces[cut], share[cut]
            levels.append(nodes)
        region = _region(self.name, levels, kinds, share)
        ends = shapely.bounds(pieces).reshape(-1, 4)
        return region, _Cut(nodes, pieces, ends[:, :2], ends[:, 2:])

    def _shares(self, corners: FloatArray) -> FloatArray:
        """Longitudes and latitudes as shares of the way through the box, in the order of the columns."""
        return np.stack(
            [(corners[:, self.axes.index(i)] - c.min) / (c.max - c.min) for i, c in enumerate(self.columns)], axis=1
        )

    @cached_property
    def _live(self) -> NDArray[np.bool_]:
        return self.nodes.live(self.partition.depth)

    @cached_property
    def share(self) -> float:
        """Share of the box that lies in the polygons."""
        shapely = geometry()
        inside = shapely.intersection(shapely.transform(self.shape, self._shares), shapely.box(0, 0, 1, 1))
        return float(shapely.area(inside))

    @cached_property
    def _shore(self) -> tuple[IntArray, KDTree]:
        """Cells that have a neighbour without any part of the polygons, and their centres."""
        from scipy.ndimage import binary_erosion  # here: every command loads this file, and only regions need them
        from scipy.spatial import KDTree

        sides = [2**column.bits for column in self.columns]
        grid = np.empty(sides, dtype=np.bool_)
        for begin in range(0, sides[0], _BLOCK):
            rows = np.arange(begin, min(begin + _BLOCK, sides[0]), dtype=np.int32)
            codes = np.stack(np.meshgrid(rows, np.arange(sides[1], dtype=np.int32), indexing="ij"), axis=-1)
            grid[rows] = self._live[self.partition.cells(codes.reshape(-1, 2))].reshape(rows.size, -1)
        codes = np.argwhere(grid & ~binary_erosion(grid, border_value=1)).astype(np.int32)
        return self.partition.cells(codes), KDTree(self._centres(codes))

    def _centres(self, codes: CodeArray) -> FloatArray:
        widths = [(column.max - column.min) / 2**column.bits for column in self.columns]
        return np.asarray((codes + 0.5) * np.array(widths))

    def outside(self, codes: CodeArray) -> NDArray[np.bool_]:
        """Which points lie in no cell of the polygons, shape ``(points,)``."""
        return np.asarray(~self._live[self.partition.cells(codes)])

    def kept(self, codes: CodeArray) -> CodeArray:
        """Codes of private points, those outside of the polygons moved to the nearest cell; shape ``(points, 2)``."""
        outside = np.flatnonzero(self.outside(codes))
        if not outside.size:
            return codes
        cells, tree = self._shore
        unlike, which = np.unique(codes[outside], axis=0, return_inverse=True)
        nearest = cells[tree.query(self._centres(unlike))[1]]
        moved = codes.copy()
        moved[outside] = self.partition.codes(nearest)[which.reshape(-1)]
        return moved

    def placed(self, codes: CodeArray, cells: Sequence[pl.Series], rng: np.random.Generator) -> list[pl.Series]:
        """Positions of drawn points, those in cells that the border cuts drawn again until they lie in the polygons.

        Args:
            codes: shape ``(points, 2)``.
            cells: of each column, positions that lie evenly in the cells.
        """
        shapely, cut = geometry(), self._found[1]
        if not cut.cells.size:
            return list(cells)
        own = self.partition.cells(codes)
        piece = np.minimum(np.searchsorted(cut.cells, own), cut.cells.size - 1)
        todo = np.flatnonzero(cut.cells[piece] == own)
        at = np.stack([series.to_numpy() for series in cells], axis=1)
        for _ in range(_TRIES):
            if not todo.size:
                break
            low, high = cut.low[piece[todo]], cut.high[piece[todo]]
            at[todo] = self._positions(low + (high - low) * rng.random((todo.size, 2)))
            todo = todo[~self.holds(at[todo])]
        if todo.size:
            at[todo] = self._positions(shapely.get_coordinates(shapely.point_on_surface(cut.pieces[piece[todo]])))
        return [pl.Series(series.name, at[:, i]) for i, series in enumerate(cells)]

    def _positions(self, shares: FloatArray) -> FloatArray:
        """Shares of the way through the box in the columns' own units."""
        ends = np.array(self.ends)
        return np.asarray(np.clip(ends[:, 0] + (ends[:, 1] - ends[:, 0]) * shares, ends[:, 0], ends[:, 1]))


def _region(name: str, levels: Sequence[IntArray], kinds: Sequence[FloatArray], share: FloatArray) -> Region:
    """Ratios of all nodes that are cut, from the last level up.

    Args:
        levels: by level, nodes that the border cuts.
        kinds: by level, the shares of the halves of its nodes; not a number for halves that are cut.
        share: of the last level's nodes.
    """
    cut, ratios = [levels[-1]], list[FloatArray]()
    for nodes, both in zip(levels[-2::-1], kinds[::-1], strict=True):
        halves = both.copy()
        halves[np.isnan(both)] = share
        left, right = halves[0::2], halves[1::2]
        share = (left + right) / 2
        held = (share > 0) | (nodes == 0)
        kept = held & ((left < 1) | (right < 1))
        with np.errstate(invalid="ignore"):
            ratio = (left - right) / (left + right)
        cut.append(nodes[kept])
        ratios.append(ratio[kept])
    return Region(name=name, cut=tuple(cut[::-1]), ratios=tuple(ratios[::-1]))
