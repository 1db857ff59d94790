"""How many events lie in a box: from the rows, and from the cells of all grids of a place, with a standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.errors import SchemaError
from synthstream.measured import Measured
from synthstream.release.answers import Sums, satisfied, sums
from synthstream.schema.places import View
from synthstream.schema.schema import Schema
from synthstream.workload import CodeArray, FloatArray

# How far the share of a cell's events that lie in a box may be off, in standard deviations of one event's place: 0.5 if
# they lie in four places, 0.1 in a hundred. Calibrated on crowded and on even streams (docs/synthesizers/places.md).
_OFF = 0.3
# Ends of a box and of a cell are one, if they differ by less than this share of the cell's width.
_NEAR = 1e-9

Bounds = Mapping[str, float]


class Located:
    """What a release of tables answers about places."""

    schema: Schema
    measured: Measured
    listed: tuple[pl.DataFrame, NDArray[Any] | None]

    def mass(self, lower: Bounds, upper: Bounds, *, where: str | None = None) -> dict[str, Any]:
        """How many events lie in a box of a place, ends included, and satisfy a condition.

        Args:
            lower, upper: by coordinate, in its own units; one that is left out is not bounded.
            where: see :meth:`rows`; it may name no coordinate.

        Returns:
            ``count`` in the published rows; ``measured``, what passed the gate, with its ``stderr``, from tick
            ``since`` to ``measured_at``: of a window, those between the nearest refreshes, as in :meth:`table`. These
            are null if no table of all events holds a grid and the columns of the condition, or a cell lies in the
            condition in part.

            Cells of the coarsest grid that lie in the box are added up, then those of finer ones. A cell of the last
            grid that the box cuts gives a share of what was measured of it, the one that its published rows have in
            the box, and how far that may be off counts as error. Which grid is the last one is decided by the smallest
            error. Rows say nothing else: they lie flatter than events do while a stream is young.

        Raises:
            SchemaError: a coordinate does not exist, a bound is no number, a lower one is not below its upper one, the
                box lies outside of the place's bounds, or the condition cannot be read.

        Example: ``release.mass({"lat": 33.0}, {"lat": 34.0, "lon": -117.0}, where="mag > 3")``
        """
        views = _views(self.schema, [*lower, *upper])
        finest = views[-1][1]
        check_box(finest.coordinates, lower, upper)
        _check_inside(finest, lower, upper)
        low, high = (
            np.array([bounds.get(name, end[side]) for name, end in zip(finest.coordinates, finest.bounds, strict=True)])
            for side, bounds in enumerate((lower, upper))
        )
        rows, weights = self.listed
        known = np.ones(rows.height) if weights is None else weights.astype(np.float64)
        if where is not None:
            known = known * satisfied(rows, where)
        at = rows.select(finest.coordinates).to_numpy()
        inside = known * np.all((at >= low) & (at <= high), axis=1)
        codes = finest.encode(rows[finest.name])
        tables, first = list[_Grid](), getattr(self, "first", None)
        for c, view in views:
            found = sums(self.schema, self.measured, (c,), where)
            # Tables that count an epoch alone, and such as count other ticks than the coarsest grid, are of no use.
            if found is None or (first is None and found.since) or (tables and found[2:] != tables[0].known[2:]):
                continue
            own = finest.within(view)[codes]
            rows_of, rows_in = (
                np.bincount(own, weights=part, minlength=view.size).astype(np.float64) for part in (known, inside)
            )
            tables.append(_Grid(view, found, rows_of, rows_in))
        return {"count": round(inside.sum()), **_answer(tables, low, high)}


class _Grid(NamedTuple):
    """A grid, what was measured of its cells, and how many rows each has, in all and in the box."""

    view: View
    known: Sums
    rows: FloatArray
    inside: FloatArray


def _check_inside(view: View, lower: Bounds, upper: Bounds) -> None:
    """Raise ``SchemaError`` if a box lies where no event of the place can: its answer would be 0, without an error."""
    for name, (start, end) in zip(view.coordinates, view.bounds, strict=True):
        if lower.get(name, start) >= end or upper.get(name, end) <= start:
            raise SchemaError(f"mass: {name}: the box lies outside of the place, which goes from {start:g} to {end:g}")


def _views(schema: Schema, asked: Sequence[str]) -> list[tuple[int, View]]:
    """The grids of the place that has the coordinates, coarsest first, and their positions."""
    views = [(c, column) for c, column in enumerate(schema.columns) if isinstance(column, View)]
    if not views:
        raise SchemaError('mass: this stream has no place: a column of type = "place"')
    known = {name: view.place for _, view in views for name in view.coordinates}
    for name in asked:
        if name not in known:
            raise SchemaError(f"mass: {name!r} is not a coordinate; coordinates are {list(known)}")
    places = {known[name] for name in asked} or {views[0][1].place}
    if len(places) > 1:
        raise SchemaError(f"mass: {', '.join(sorted(set(asked)))}: a box lies in one place, not in {len(places)}")
    return [(c, view) for c, view in views if view.place in places]


def check_box(names: Sequence[str], lower: Bounds, upper: Bounds) -> None:
    """Raise ``SchemaError`` unless bounds are of these coordinates, numbers, and in order."""
    for name, bound in [*lower.items(), *upper.items()]:
        if name not in names:
            raise SchemaError(f"mass: {name!r} is not a column; columns are {list(names)}")
        if not isinstance(bound, int | float | np.number) or np.isnan(bound):
            raise SchemaError(f"mass: {name}: a bound must be a number, not {bound!r}")
    for name in lower.keys() & upper.keys():
        if lower[name] > upper[name]:
            raise SchemaError(f"mass: {name}: its lower bound {lower[name]:g} is above its upper one {upper[name]:g}")
        if lower[name] == upper[name]:
            raise SchemaError(f"mass: {name}: the box has no width: both bounds are {lower[name]:g}")


def _answer(grids: Sequence[_Grid], low: FloatArray, high: FloatArray) -> dict[str, Any]:
    """The sum over cells with the smallest error, of all grids that may be the last."""
    value = variance = 0.0
    parent: tuple[View, NDArray[np.bool_]] | None = None
    best: tuple[float, float, Sums] | None = None
    for grid in grids:
        view, known = grid.view, grid.known
        cells = np.arange(len(view.values), dtype=np.int32)
        at_low, at_high = view.box(cells)
        near = _NEAR * (at_high - at_low)  # ends of cells are rounded: a box that names one must not cut the cell
        whole = np.all((at_low >= low - near) & (at_high <= high + near), axis=1)
        part = np.all((at_high > low + near) & (at_low < high - near), axis=1) & ~whole
        if parent is not None:
            whole &= ~parent[1][view.within(parent[0])[cells]]
        value += known.values[cells][whole].sum()
        variance += known.variance[cells][whole].sum()
        cut = cells[part]
        added, more = _cut(grid, cut, at_low[cut], at_high[cut], low, high)
        if best is None or variance + more < best[1]:
            best = (value + added, variance + more, known)
        taken = whole if parent is None else whole | parent[1][view.within(parent[0])[cells]]
        parent = (view, taken)
    if best is None:
        return dict.fromkeys(("measured", "stderr", "since", "measured_at"))
    ticks = {"since": best[2].since, "measured_at": best[2].measured_at}
    return {"measured": float(best[0]), "stderr": float(np.sqrt(best[1])), **ticks}


def _cut(
    grid: _Grid, cut: CodeArray, at_low: FloatArray, at_high: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[float, float]:
    """What cells that a box cuts hold of it, and the variance of that."""
    area = np.prod(np.clip(np.minimum(at_high, high) - np.maximum(at_low, low), 0, None) / (at_high - at_low), axis=1)
    rows, events, noise = grid.rows[cut], grid.known.values[cut], grid.known.variance[cut]
    share = np.where(rows > 0, grid.inside[cut] / np.maximum(rows, 1), area)
    even = (grid.inside[cut] + 0.5) / (rows + 1)  # rows that lie on one side do not tell that all events do
    # What was measured may be 0 by chance: a cell may well hold as many events as one standard error.
    off = _OFF**2 * (np.maximum(events, 0) ** 2 + noise) * even * (1 - even)
    return float((share * events).sum()), float((share**2 * noise + off).sum())
