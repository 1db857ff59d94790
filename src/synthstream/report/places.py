"""Maps: two columns of numbers, without anything from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from markupsafe import Markup
from numpy.typing import NDArray

from synthstream.publish.history import Cells, History, Steps, Tick
from synthstream.release.points import Masses
from synthstream.report.association import beyond_noise
from synthstream.report.charts import Bar, Table, bar_chart, density_map
from synthstream.report.distributions import kind_of, labels_of, latest, middle_chart, quantiles
from synthstream.report.page import until
from synthstream.report.scales import RANGE, linear, number, ranged, ranges
from synthstream.schema.binned import Number, open_ended
from synthstream.schema.columns import Boolean, Column
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.districts import Districts
from synthstream.schema.naming import LATITUDE, LONGITUDE, words_of
from synthstream.schema.places import View
from synthstream.schema.polygons import features_of
from synthstream.workload import FloatArray, IntArray

_BARS, _BOXES = 16, 4
# Values of a column that have a map of their own, at most.
_VALUES = 6
# Cells of a grid of which the explorer has series, at most.
_MOST_IN_SERIES = 256
# A cell with less than half an event is drawn empty.
_LEAST = 0.5


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Events by cell over two columns.

    Args:
        counts: shape ``(cells up, cells across)``.
        degrees: whether they are longitude and latitude.
        errors: standard errors in the same shape, and of the boxes of :func:`boxes`; ``None`` if they are not known.
        measured: counts with independent noise, and its standard errors, in the same shape; ``None`` as above.
        noise: cells that noise alone could fill, in the same shape; ``None`` if that is not known.
        outlines: an SVG path of public polygons, in cells from the upper left corner.
        span: the counts that colours stand for, where several maps share them.
    """

    across: Coordinate | Number
    up: Coordinate | Number
    counts: FloatArray
    degrees: bool
    errors: tuple[FloatArray, FloatArray] | None = None
    measured: tuple[FloatArray, FloatArray] | None = None
    noise: NDArray[np.bool_] | None = None
    outlines: str = ""
    span: tuple[float, float] | None = None


def axes_of(columns: Sequence[Column], *, any_pair: bool = False) -> tuple[int, int, bool] | None:
    """Positions of the columns to draw across and up, and whether they are longitude and latitude by their names.

    A word of the name is enough, as in ``pickup_longitude``; of several, the first of each.

    Args:
        any_pair: whether the first two will do if none are named so.

    Example:
        >>> named = [Number(name=n, min=0, max=1, bins=2) for n in ("fare", "Pickup Latitude", "pickup_lng")]
        >>> axes_of(named), axes_of(named[:1]), axes_of(named[:2], any_pair=True)
        ((2, 1, True), None, (0, 1, False))
    """
    numbers = [
        i
        for i, column in enumerate(columns)
        if isinstance(column, Coordinate) or (isinstance(column, Number) and column.even)
    ]
    words = {i: set(words_of(columns[i].name)) for i in numbers}
    latitude = [i for i in numbers if words[i] & LATITUDE]
    longitude = [i for i in numbers if words[i] & LONGITUDE]
    if latitude and longitude:
        return longitude[0], latitude[0], True
    return (numbers[0], numbers[1], False) if any_pair and len(numbers) > 1 else None


def grid_of_tables(found: History, newest: Cells) -> Grid | None:
    """Longitude and latitude of a stream of tables; ``None`` if it has none, or no table of both."""
    columns, workload = found.config.schema.columns, found.workload
    axes = axes_of(columns)
    if axes is None or (pair := tuple(sorted(axes[:2]))) not in workload.marginals:
        return None
    across, up, _ = axes
    table = workload.table(newest.count, workload.place[pair])
    table = table if pair[0] == up else table.T
    return _grid(columns, axes, table[: len(columns[up].value_labels), : len(columns[across].value_labels)])


def grids_of_places(found: History, newest: Cells) -> Iterator[tuple[str, Grid]]:
    """Places of a stream of tables: of all events, and of each of a few values of a column. Grids: :func:`_clearest`.

    The column is one of few values that is crossed with a grid of at least 16 cells; a boolean one if no other.
    """
    schema, workload = found.config.schema, found.workload
    several = sum(len(schema.columns[columns[0]].sources) == 2 for columns in schema.places.values()) > 1
    for place, columns in schema.places.items():
        views = [(c, view) for c in columns if isinstance(view := schema.columns[c], View) and len(view.bounds) == 2]
        whole = list[list[tuple[str, Grid]]]()
        for c, view in [one for one in views if (one[0],) in workload.marginals]:
            now, note = latest(found, (c,), newest)
            whole.append([(view.words.label or view.place, _of_cells(view, now, beyond_noise(now), told=not note))])
        fine = [one for one in views if one[1].depth > 1 and one[1].crossed]
        each = [[*_by_value(found, newest, c, view, crossed=fine[-1][1].crossed)] for c, view in fine]
        called = "".join({f"{view.words.label or place}, " for _, view in views if several})
        drawn = [*_clearest(whole), *((called + what, grid) for what, grid in _alike(_clearest(each)))]
        named = [one for one in schema.columns if isinstance(one, Districts) and one.finest.place == place]
        yield from ((what, replace(grid, outlines=outlines_of(named, grid))) for what, grid in drawn)


def _clearest(levels: Sequence[list[tuple[str, Grid]]]) -> list[tuple[str, Grid]]:
    """Of maps on ever finer grids those on the finest where noise could fill the cells of half of the events at most.

    If there is none, those on the coarsest.
    """
    drawn = [maps for maps in levels if maps]
    for maps in reversed(drawn):
        grey = sum(grid.counts[grid.noise].sum() for _, grid in maps if grid.noise is not None)
        if 2 * grey <= sum(grid.counts.sum() for _, grid in maps):
            return maps
    return drawn[0] if drawn else []


def _alike(maps: list[tuple[str, Grid]]) -> list[tuple[str, Grid]]:
    """Maps of which a colour means the same count in each."""
    shown = np.concatenate([grid.counts[~grid.noise] if grid.noise is not None else [] for _, grid in maps] or [[]])
    shown = shown[shown >= _LEAST]
    span = (float(shown.min()), float(shown.max())) if shown.size else None
    return [(what, replace(grid, span=span)) for what, grid in maps]


def _by_value(
    found: History, newest: Cells, c: int, view: View, *, crossed: Sequence[str]
) -> Iterator[tuple[str, Grid]]:
    """Of the crossed column with the fewest values, or of a boolean one, the most frequent ones."""
    columns, workload = found.config.schema.columns, found.workload
    names = [column.name for column in columns]
    beside = [i for i in map(names.index, crossed) if not isinstance(columns[i], View)]
    chosen = min((i for i in beside if (min(i, c), max(i, c)) in workload.marginals), default=None,
                 key=lambda i: (isinstance(columns[i], Boolean), len(columns[i].value_labels), i))  # fmt: skip
    if chosen is None:
        return
    pair = (min(chosen, c), max(chosen, c))
    now, note = latest(found, pair, newest)
    at = np.arange(now.count.size).reshape([workload.sizes[p] for p in pair])
    at, clear = at if chosen < c else at.T, beyond_noise(now)
    table = now.count[at]
    frequent = np.argsort(-table[: len(columns[chosen].value_labels)].sum(axis=1), kind="stable")[:_VALUES]
    for k in sorted(frequent.tolist()):
        yield (
            f"{columns[chosen].title} {labels_of(columns[chosen])[k]}",
            _of_cells(view, now.at(at[k]), clear[at[k]], told=not note),
        )


def axes_of_view(view: View) -> tuple[int, int, bool]:
    """Which coordinate of a place is drawn across and which up: see :func:`axes_of`."""
    return axes_of(view.axes, any_pair=True) or (0, 1, False)


def in_series(columns: Sequence[Column], held: Sequence[int]) -> bool:
    """Whether the explorer has a series of each cell of a table: not of fine grids, of tens of kilobytes a tick."""
    views = [column for c, column in enumerate(columns) if c in held and isinstance(column, View)]
    return all(len(view.values) <= _MOST_IN_SERIES for view in views)


def facts_of(column: Column) -> dict[str, Any]:
    """What the explorer draws a grid of a place by; the names of its cells follow from the depth."""
    if not isinstance(column, View):
        return {}
    found: dict[str, Any] = {} if in_series([column], [0]) else {"series": False}
    if len(column.bounds) == 2:
        axes, (across, up, degrees) = column.axes, axes_of_view(column)
        sides = [[axes[k].title, axes[k].min, axes[k].max] for k in (across, up)]
        found["grid"] = {"depth": column.depth, "sides": sides, "across": across, "degrees": degrees}
        found |= {"labels": column.own_cells, "values": len(column.values)}
        found |= {"edges": [], "ordered": True, "kind": kind_of(column)}
    return found


def outlines_of(named: Sequence[Districts], grid: Grid) -> str:
    """Polygons of districts on a grid of degrees, to a twentieth of a cell."""
    ends, cells = np.array([[c.min, c.max] for c in (grid.across, grid.up)]), np.array(grid.counts.shape[::-1])
    path = ""
    for column in named if grid.degrees else ():
        for feature in features_of(Path(), column.text, column.name):
            for ring in (ring for part in feature.rings() for ring in part):
                at = (np.asarray(ring)[:, :2] - ends[:, 0]) / (ends[:, 1] - ends[:, 0]) * cells
                at = np.round(20 * np.stack([at[:, 0], cells[1] - at[:, 1]], axis=1)) / 20
                at = at[np.append(True, (np.diff(at, axis=0) != 0).any(axis=1))]
                path += "M" + "L".join(f"{x:g} {y:g}" for x, y in at) + "z"
    return path


def _of_cells(view: View, now: Cells, clear: NDArray[np.bool_], *, told: bool) -> Grid:
    """A map of a grid; latitude and longitude are told by their names. ``told``: what was measured is of today."""
    axes, (across, up, degrees) = view.axes, axes_of_view(view)
    steps = view.steps(np.arange(len(view.values), dtype=np.int32))
    where = np.zeros((2**view.depth, 2**view.depth), dtype=np.int64)
    where[steps[:, up], steps[:, across]] = np.arange(len(view.values))
    drawn = now.at(where)
    measured = (drawn.measured, drawn.stderr)
    return Grid(
        across=axes[across],
        up=axes[up],
        counts=drawn.count,
        degrees=degrees,
        noise=~clear[where],
        measured=measured if told and np.isfinite(measured).all() else None,
    )


def grid_of_nodes(found: History, nodes: pl.DataFrame, model: Masses | None = None) -> Grid | None:
    """Two columns of a stream of points; ``None`` if it has but one.

    Args:
        nodes: see :meth:`History.nodes`.
        model: knows the errors of these nodes.
    """
    columns = found.config.schema.columns
    axes = axes_of(columns, any_pair=True)
    if axes is None:
        return None
    names = [f"{columns[axis].name} from" for axis in (axes[1], axes[0])]
    summed = nodes.group_by(names).agg(pl.col("count").sum()).sort(names)
    shape = (summed[names[0]].n_unique(), summed[names[1]].n_unique())
    grid = _grid(columns, axes, summed["count"].to_numpy().reshape(shape))
    if model is None or len(columns) > 2:  # of more columns, a cell is several nodes, whose errors go together
        return grid
    return replace(grid, errors=_errors(model, nodes.sort("node"), names))


def _errors(model: Masses, nodes: pl.DataFrame, names: Sequence[str]) -> tuple[FloatArray, FloatArray] | None:
    """Of each node, by two columns, and of coarse boxes; how far fitting moved a mass counts as error."""
    level, (up, across) = int(nodes["level"][0]), (nodes[name].to_numpy() for name in names)
    plain, stderr = model.known(level + 1)[level]
    each = np.hypot(stderr, model.levels()[level] - plain)
    if not np.isfinite(each).all():
        return None
    rows, places = (np.unique(at) for at in (up, across))
    inside = (
        [np.isin(up, rows[i]) & np.isin(across, places[j]) for j in _blocks(places.size)] for i in _blocks(rows.size)
    )
    coarse = np.array([[model.mass(box.astype(np.float64))[1] for box in line] for line in inside])
    return each[np.lexsort((across, up))].reshape(rows.size, places.size), coarse


def _grid(columns: Sequence[Column], axes: tuple[int, int, bool], counts: FloatArray) -> Grid:
    across, up = (cast(Number | Coordinate, columns[axis]) for axis in axes[:2])
    return Grid(across=across, up=up, counts=counts, degrees=axes[2])


def map_of(
    grid: Grid, tick: Tick, *, what: str = "Synthetic events", span: tuple[float, float] | None = None
) -> Markup:
    """The map, with coarse boxes as a table. ``span``: see :func:`synthstream.report.charts.density_map`."""
    x, y = grid.across, grid.up
    width, height = x.max - x.min, y.max - y.min
    aspect = 1.0
    if grid.degrees and abs(y.min) <= 90 and abs(y.max) <= 90:  # a mile is as long in both directions in the middle
        aspect = width * math.cos(math.radians((y.min + y.max) / 2)) / height
    top = np.unravel_index(int(grid.counts.argmax()), grid.counts.shape)
    north, east = (_range(c, int(i), size) for c, i, size in zip((y, x), top, grid.counts.shape, strict=True))
    up, across = grid.counts.shape
    return density_map(
        np.where(grid.counts >= _LEAST, grid.counts, 0),
        noise=grid.noise,
        outlines=grid.outlines,
        title=f"{what} up to {until(tick.end)}, in {across} by {up} cells",
        description=f"{number(float(grid.counts.sum()))} events in {grid.counts.size} cells. The fullest is at "
        f"{y.title} {north}, {x.title} {east}.{_said(grid)}",
        x=linear(x.min, x.max, tight=True),
        y=linear(y.min, y.max, tight=True),
        aspect=min(max(aspect, 0.25), 4.0),
        x_label=f"{x.title} (°)" if grid.degrees and not x.words.unit else x.title,
        y_label=f"{y.title} (°)" if grid.degrees and not y.words.unit else y.title,
        scale=f"events in a cell, on a logarithmic scale{', the same for all values' if grid.span else ''}",
        span=span or grid.span,
        note=_said(grid).strip(),
        table=boxes(grid),
    )


def _said(grid: Grid) -> str:
    """What errors of cells say of the map; empty if they are not known."""
    if grid.errors is None:
        return ""
    clear = int((grid.counts > 2 * grid.errors[0]).sum())
    middle = number(float(f"{np.median(grid.errors[0]):.2g}"))
    return (
        f" A cell has a standard error of {middle} in the middle; {number(clear)} cells hold more than twice theirs. "
        "What the others show may be noise."
    )


def boxes(grid: Grid) -> Table:
    """Events in a few coarse boxes, as far as is known with how exact that is."""
    rows = []
    up_cuts, across_cuts = map(_blocks, grid.counts.shape)
    for k, i in reversed([*enumerate(up_cuts)]):
        for m, j in enumerate(across_cuts):
            ranges = (_range(grid.up, i, grid.counts.shape[0]), _range(grid.across, j, grid.counts.shape[1]))
            box, more = np.ix_(i, j), list[str]()
            count = float(grid.counts[box].sum())
            if grid.measured is not None:
                more = [ranged(float(grid.measured[0][box].sum()), math.hypot(*grid.measured[1][box].ravel()))]
            told = number(round(count)) if grid.errors is None else ranged(count, float(grid.errors[1][k, m]))
            rows.append([*ranges, told, *more])
    what = "Synthetic rows" if grid.errors is None else "Synthetic rows (2 standard errors to both sides)"
    headings = [grid.up.title, grid.across.title, what, *([] if grid.measured is None else [RANGE])]
    coarser = grid.counts.shape != (len(up_cuts), len(across_cuts))
    caption = f"In {len(across_cuts)} by {len(up_cuts)} areas, coarser than the map." if coarser else ""
    return Table(headings=headings, rows=rows, caption=caption)


def _blocks(side: int) -> list[IntArray]:
    """Cells of one side of a grid in coarse parts."""
    return np.array_split(np.arange(side), min(_BOXES, side))


def _range(column: Coordinate | Number, cells: Any, size: int) -> str:
    """The range that neighbouring cells cover together; ``size`` is the number of all cells."""
    first, last = (cells, cells) if isinstance(cells, int) else (int(cells[0]), int(cells[-1]))
    step = (column.max - column.min) / size
    return ranges([column.min + first * step, column.min + (last + 1) * step])[0]


def point_cards(found: History, *, progress: Steps) -> list[dict[str, Any]]:
    """Charts of each column of a stream of points, from the nodes of sampled releases."""
    ticks = list(found.sampled())
    nodes = [found.nodes(ticks[i]) for i in progress(list(range(len(ticks))), "reading releases")]
    cards = []
    for column in found.config.schema.columns:
        if not isinstance(column, Coordinate):
            continue
        masses = [masses_of(frame, column) for frame in nodes]
        bars = [Bar(label=label, value=round(value)) for label, value in coarse(column, masses[-1])]
        points = [
            (tick, quantiles(np.maximum(mass, 0), np.linspace(column.min, column.max, mass.size + 1).tolist()))
            for tick, mass in zip(ticks, masses, strict=True)
        ]
        cards.append(
            {
                "name": column.title,
                "kind": f"numbers from {number(column.min, 12)} to {number(column.max, 12)}",
                "description": column.words.description,
                "now": bar_chart(bars, title="Now"),
                "history": [middle_chart(points, low=column.min, high=column.max)] if len(ticks) > 1 else [],
                "note": "",
            }
        )
    return cards


def masses_of(nodes: pl.DataFrame, column: Coordinate) -> FloatArray:
    """Events by the finest ranges of one column that a release lists."""
    name = f"{column.name} from"
    return nodes.group_by(name).agg(pl.col("count").sum()).sort(name)["count"].to_numpy().astype(np.float64)


def over(masses: FloatArray, size: int) -> FloatArray:
    """Masses over so many ranges along the first axis: coarser ones are spread evenly, finer ones added up."""
    own = len(masses)
    if own <= size:
        return np.repeat(masses, size // own, axis=0) * (own / size)
    return np.add.reduceat(masses, np.arange(0, own, own // size), axis=0)


def coarse(column: Coordinate, mass: FloatArray) -> list[tuple[str, float]]:
    """Events in at most 16 ranges of a column, each with its label."""
    parts = np.array_split(np.arange(mass.size), min(_BARS, mass.size))
    cuts = [column.min + (column.max - column.min) * at / mass.size for at in [*(int(p[0]) for p in parts), mass.size]]
    return [(label, float(mass[part].sum())) for label, part in zip(open_ended(ranges(cuts)), parts, strict=True)]
