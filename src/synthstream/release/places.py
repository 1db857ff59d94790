"""How many events lie in a box, or in polygons: from rows, and from cells of all grids of a place, with an error."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.errors import SchemaError
from synthstream.measured import Measured
from synthstream.release.answers import MeasuredSums, satisfied, sums
from synthstream.release.areas import Bounds, Box, Inside, area_of, polygon_of, refuse_no_ends
from synthstream.schema.conditions import like
from synthstream.schema.places import View
from synthstream.schema.region import Domain
from synthstream.schema.schema import Schema
from synthstream.workload import CodeArray, FloatArray, IntArray

# How far the share of a cell's events that lie in a box may be off, in standard deviations of one event's place, where
# rows lie evenly around: 0.5 if events lie in four places, 0.1 in a hundred. Calibrated on crowded and on even streams
# (docs/synthesizers/places.md).
_OFF = 0.4
# A share of a cell that differs from all of it, or from none, by less is rounded.
_NEAR = 1e-9
# A grid, and how many rows each of its cells has, in all and in an area.
Held = tuple[View, FloatArray, FloatArray]


class Located:
    """What a release of tables answers about places."""

    schema: Schema
    measured: Measured
    listed: tuple[pl.DataFrame, NDArray[Any] | None]
    running: ClassVar[bool]

    def mass(
        self, lower: Inside, upper: Bounds | None = None, *, place: str | None = None, where: str | None = None
    ) -> dict[str, Any]:
        """How many events lie in a box of a place, or in polygons, ends included, and satisfy a condition.

        A dict; of a stream of points it is two numbers, see :class:`PointRelease`.

        Args:
            lower, upper: by coordinate, in its own units; one that is left out is not bounded. In the place of both:
                polygons, from :meth:`polygon`, or a GeoJSON file. What lies outside of the place is not counted.
            place: which one is meant, where that does not follow from coordinates.
            where: see :meth:`rows`; it may name no coordinate.

        Returns:
            ``count`` in the published rows; ``measured``, what passed the gate, with its ``stderr``, from tick
            ``since`` to ``measured_at``: of a window, those between the nearest refreshes, as in :meth:`table`. These
            are null if no table of all events holds a grid and the columns of the condition, or a cell lies in the
            condition in part.

            Cells of the coarsest grid that lie in the box are added up, then those of finer ones. A cell of the last
            grid that the box cuts gives a share of what was measured of it, the one that its published rows have in
            the box, and how far that may be off counts as error: the further, the more unevenly rows lie around it.
            Which grid is the last one is decided by the smallest error. Rows say nothing else of what was measured.

        Raises:
            SchemaError: a coordinate does not exist, a bound is no number, a lower one is not below its upper one, the
                box lies outside of the place's bounds, it is not told which place is meant, or the condition cannot be
                read.
            ConfigError: as of :meth:`polygon`.

        Example: ``release.mass({"lat": 33.0}, {"lat": 34.0, "lon": -117.0}, where="mag > 3")``
        """
        grids, shares, mass = self._asked(lower, upper, place, where)
        told = self._told(grids, self.measured, where, running=self.running)
        return {"count": round(mass), **_answer(told, shares)}

    def masses(
        self, counted: Iterable[Measured], lower: Inside, upper: Bounds | None = None
    ) -> Iterator[dict[str, Any]]:
        """As :meth:`mass`, of what was counted in each of several steps: ``measured``, ``stderr``, ``since`` and
        ``measured_at``, null where nothing is known.

        The rows of this release say which share of a cell that the area cuts lies in it, at all steps. Where events
        move on, that is off by more, as far as finer grids tell: see :func:`drift_of`.

        Args:
            counted: of each step: see :meth:`synthstream.publish.building.Builder.counted`.
        """
        grids, shares, _ = self._asked(lower, upper, None, None)
        each = [self._told(grids, own, None, running=False) for own in counted]
        off = min(max(_OFF, drift_of(each)), 1.0)
        yield from (_answer(told, shares, off) for told in each)

    def _asked(
        self, lower: Inside, upper: Bounds | None, place: str | None, where: str | None
    ) -> tuple[list[Held], FloatArray, float]:
        """Grids of the place that an area lies in, coarsest first, with the rows that satisfy a condition; the area's
        share of each cell of the finest one; and how many of these rows lie in the area.
        """
        views = self._views(_names(lower, upper), place, polygons=isinstance(lower, str | Path))
        finest = views[-1]
        area = area_of(finest.axes, lower, upper)
        rows, weights = self.listed
        known = np.ones(rows.height) if weights is None else weights.astype(np.float64)
        if where is not None:
            known = known * satisfied(rows, where)
        inside = known * area.holds(rows.select(finest.coordinates).to_numpy())
        codes, grids = finest.encode(rows[finest.name]), list[Held]()
        for view in views:
            own = finest.within(view)[codes]
            held, cut = (np.bincount(own, weights=part, minlength=view.size) for part in (known, inside))
            grids.append((view, held.astype(np.float64), cut.astype(np.float64)))
        return grids, _shares(area, finest), float(inside.sum())

    def _told(self, grids: Sequence[Held], measured: Measured, where: str | None, *, running: bool) -> list[Grid]:
        """What was measured of each grid, where it counts the same ticks as the coarsest one: all, if ``running``."""
        tables = list[Grid]()
        for view, rows, inside in grids:
            found = sums(self.schema, measured, (self.schema.names.index(view.name),), where)
            # Tables that count an epoch alone, and such as count other ticks than the coarsest grid, are of no use.
            if found is None or (running and found.since) or (tables and found.ticks != tables[0].known.ticks):
                continue
            tables.append(Grid(view, found, rows, inside))
        return tables

    def box(self, lower: Bounds, upper: Bounds, *, place: str | None = None) -> Box:
        """A box as :meth:`mass` takes it by its ends; its ``beyond`` is the share that lies outside of the place."""
        return Box(self._views(_names(lower, upper), place)[-1].axes, lower, upper)

    def polygon(self, said: str | Path, *, feature: str | None = None, place: str | None = None) -> Domain:
        """Public polygons to ask :meth:`mass` about: what any polygon of a GeoJSON file holds.

        Args:
            said: the file, or what would stand in it.
            feature: only features that have a property of this value; or ``"key=value"``.
            place: see :meth:`mass`.

        Raises:
            SchemaError: there is no place, or it is not told which one is meant.
            ConfigError: the file cannot be read, has no such feature, or its polygons are not valid or lie outside of
                the place; the place has no latitude and longitude by their names; or shapely is not installed.

        Example: ``release.mass(release.polygon("districts.geojson", feature="Mission"), where="mag > 3")``
        """
        return polygon_of(self._views((), place, polygons=True)[-1].axes, said, feature)

    def _views(self, asked: Sequence[str], place: str | None, *, polygons: bool = False) -> list[View]:
        """The grids of the place that has the coordinates, coarsest first; polygons lie in one of two coordinates."""
        views = [column for column in self.schema.columns if isinstance(column, View)]
        if not views:
            raise SchemaError('box: this stream has no place: a column of type = "place"')
        known = {name: view.place for view in views for name in view.coordinates}
        for name in asked:
            if name not in known:
                raise SchemaError(
                    f"box: {name!r} is not a coordinate.{like(name, list(known))} Coordinates are {', '.join(known)}."
                )
        all_places = list(dict.fromkeys(known.values()))
        if place is not None and place not in all_places:
            raise SchemaError(f"place: {place!r} is none.{like(place, all_places)} Places are {', '.join(all_places)}.")
        meant = [one for one in all_places if polygons and list(known.values()).count(one) == 2] or all_places
        places = {known[name] for name in asked} or {place or meant[0]}
        if len(places) > 1:
            words = f"it lies in one place, not in {len(places)}.{self._crossed(places)}"
            raise SchemaError(f"box: {', '.join(sorted(set(asked)))}: {words}")
        if place is not None and place not in places:
            raise SchemaError(f"place: {asked[0]!r} is a coordinate of {known[asked[0]]!r}, not of {place!r}")
        if not asked and place is None and len(meant) > 1:
            raise SchemaError(
                f"place: say which one is meant, as place = {meant[0]!r} (--place {meant[0]}). Places are "
                f"{', '.join(meant)}."
            )
        return [view for view in views if view.place in places]

    def _crossed(self, places: Collection[str]) -> str:
        """How a condition says where the other place of two is, if grids of both are counted together."""
        grids = {c.name: c for c in self.schema.columns if isinstance(c, View) and c.place in places}
        for grid in grids.values():
            if any(name in grids for name in grid.crossed):
                return f" Say where {grid.place} is by a condition, as in {grid.name} = '{grid.values[0]}'."
        return " No table tells of both: ask about one of them."


class Grid(NamedTuple):
    """What was measured of a grid's cells, and the rest as in :data:`Held`."""

    view: View
    known: MeasuredSums
    rows: FloatArray
    inside: FloatArray


def _names(lower: Inside, upper: Bounds | None) -> list[str]:
    """Coordinates that a box, or polygons that were read before, are of."""
    refuse_no_ends(lower, upper)
    if isinstance(lower, Domain):
        return [column.name for column in lower.columns]
    return [*(lower if isinstance(lower, Mapping) else ()), *(upper or ())]


def _shares(area: Box | Domain, finest: View) -> FloatArray:
    """Shares of the cells of the finest grid: ends of cells are rounded, and an area that names one must not cut it."""
    shares = area.shares(finest.depth * len(finest.coordinates))
    near = np.where(shares > 1 - _NEAR, 1.0, shares)
    return np.where(near > _NEAR * near.max(), near, 0.0)


def drift_of(steps: Sequence[Sequence[Grid]]) -> float:
    """How far the shares of cells at each step are from those of the rows, in the unit of :data:`_OFF`.

    By moments: the square of what was measured of a cell, less its share of what was measured of the coarser cell
    around it, less the noise of both, over the square that a share of ``s`` may err by, ``s (1 - s)`` times the coarser
    cell's square. Cells have weight by how many rows they hold and by their noise, which no draw of it decides.
    """
    above, below = 0.0, _NEAR
    for grids in steps:
        for coarse, fine in pairwise(grids):
            inner, outer = np.arange(len(fine.view.values), dtype=np.int32), len(coarse.view.values)
            around = fine.view.within(coarse.view)[inner]
            rows = np.bincount(around, weights=fine.rows[inner], minlength=outer)[around]
            parts = np.bincount(around, minlength=outer)[around]
            share = (fine.rows[inner] + 0.5) / (rows + 0.5 * parts)
            events, noise = coarse.known.values[around], coarse.known.variance[around]
            drawn = fine.known.variance[inner] + share**2 * noise
            expected = (max(coarse.known.values[:outer].sum(), 0) * rows / max(fine.rows[inner].sum(), 1)) ** 2
            weight = expected * share * (1 - share)
            weight /= (drawn + 0.1 * weight + _NEAR) ** 2
            above += float((weight * ((fine.known.values[inner] - share * events) ** 2 - drawn)).sum())
            below += float((weight * (events**2 - noise) * share * (1 - share)).sum())
    return math.sqrt(max(above, 0) / below) if below > 0 else 0.0


def _answer(grids: Sequence[Grid], shares: FloatArray, off: float = _OFF) -> dict[str, Any]:
    """The sum over cells with the smallest error, of all grids that may be the last.

    Args:
        shares: of each cell of the finest grid, how much of it lies in the area that is asked for.
        off: how far the share of a cell's events may be off, as :data:`_OFF`.
    """
    value, variance, least = 0.0, 0.0, np.inf
    coarser: View | None = None
    taken, uneven = np.zeros(1, dtype=np.bool_), np.zeros(1)
    best: tuple[float, float, MeasuredSums] | None = None
    for grid in grids:
        view, known = grid.view, grid.known
        cells = np.arange(len(view.values), dtype=np.int32)
        around = np.zeros_like(cells) if coarser is None else view.within(coarser)[cells]
        share = shares.reshape(cells.size, -1).mean(axis=1)
        taken = taken[around]
        whole, cut = (share == 1) & ~taken, np.flatnonzero((share > 0) & (share < 1))
        value += known.values[cells][whole].sum()
        variance += known.variance[cells][whole].sum()
        split = _unevenness(grid.rows[cells], around)
        # Two splits: those who crowd around a corner of four cells lie evenly in these.
        own = np.maximum(off**2, np.maximum(split, uneven)[around])
        added, more, alike = _cut(grid, cut, share[cut], own[cut])
        if variance + more < least:
            # An area that is drawn along the events, as a strip along a fault or a street, has hardly any whole cell,
            # and all those that it cuts hold more of it than their rows say.
            part = share[cut].sum() / max(share.sum(), _NEAR)
            least, best = variance + more, (value + added, variance + more + part**3 * alike, known)
        coarser, taken, uneven = view, taken | whole, split[around]
    if best is None:
        return dict.fromkeys(("measured", "stderr", "since", "measured_at"))
    ticks = {"since": best[2].since, "measured_at": best[2].measured_at}
    return {"measured": float(best[0]), "stderr": float(np.sqrt(best[1])), **ticks}


def _unevenness(rows: FloatArray, around: CodeArray) -> FloatArray:
    """How unevenly the rows of each coarser cell lie in the cells within it: from 0, evenly, to 1, all in one.

    Within a cell events are taken to lie as unevenly: a share of ``s`` then has the variance ``s (1 - s)`` times this,
    as of a Dirichlet law.

    Args:
        rows, around: of each cell its rows, and the coarser cell that it lies in.
    """
    parts, held = np.bincount(around), rows + 1.0  # a row more in each: few rows lie unevenly by chance
    squares = np.bincount(around, weights=held**2) / np.bincount(around, weights=held) ** 2
    return np.asarray((parts * squares - 1) / np.maximum(parts - 1, 1))


def _cut(grid: Grid, cut: IntArray, area: FloatArray, off: FloatArray) -> tuple[float, float, float]:
    """What cells that an area cuts hold of it, the variance of that, and how much larger it is if all err alike.

    ``off``: of each, the square of how far its share may be off.
    """
    rows, events, noise = grid.rows[cut], grid.known.values[cut], grid.known.variance[cut]
    share = np.where(rows > 0, grid.inside[cut] / np.maximum(rows, 1), area)
    even = (grid.inside[cut] + 0.5) / (rows + 1)  # rows that lie on one side do not tell that all events do
    # What was measured may be 0 by chance: a cell may well hold as many events as one standard error.
    wrong = off * (np.maximum(events, 0) ** 2 + noise) * even * (1 - even)
    alike = np.sqrt(wrong).sum() ** 2 - wrong.sum()
    # Rows say no more of a part than its own noise lets them: where they have none of it, noise may hide some.
    drawn = np.maximum(share**2 * noise + wrong, area * noise)
    return float((share * events).sum()), float(drawn.sum()), float(alike)
