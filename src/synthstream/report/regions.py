"""Regions on a map: shapes from a public GeoJSON file, one for each value of a column.

They are drawn as they lie, so that a mile is as long in both directions at their middle latitude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count, product

import numpy as np
from markupsafe import Markup

from synthstream.config.config import StreamConfig
from synthstream.errors import ConfigError
from synthstream.publish.history import Cells
from synthstream.report.association import beyond_noise
from synthstream.report.charts import SHADES, shade_of
from synthstream.report.distributions import labels_of, numbers
from synthstream.report.page import macro
from synthstream.report.scales import class_labels, classes, number, ranged
from synthstream.schema.columns import Category, Column
from synthstream.schema.polygons import features_of, properties_of
from synthstream.workload import FloatArray

# Width of a drawing in its own units, or height if that is more; points that fall on one place are one.
_SIZE = 1000
# Height and width of a letter there.
_LETTER, _WIDTH = 34, 19
_NONE = np.empty((0, 2, 2))
# Rings by polygon: the outline, then holes.
Shape = list[list[list[tuple[int, int]]]]


@dataclass(frozen=True, kw_only=True)
class Regions:
    """Shapes by code of their value.

    Args:
        size: width and height that they fill.
    """

    shapes: dict[int, Shape]
    size: tuple[int, int]


def regions_of(config: StreamConfig, column: Column) -> Regions | None:
    """The regions of a column, drawn to scale; ``None`` if its section names none.

    Raises:
        ConfigError: the file cannot be read, is no GeoJSON in degrees, or names none of the values.
    """
    about = column.words
    if about.regions is None or not isinstance(column, Category):
        return None
    where = f"column {column.name!r}: regions = {about.regions!r}"
    key, found = about.region_key or column.name, dict[int, list[list[FloatArray]]]()
    features = features_of(config.base, about.regions, where)
    for feature in features:
        value = feature.text_of(key)
        if value in column.values:
            found.setdefault(column.values.index(value), []).extend(feature.rings())
    if not found:
        raise ConfigError(
            f"{where}: no feature has one of the column's values as its property {key!r}. Set region_key to the "
            f"property that names them; there are {properties_of(features)}"
        )
    return _drawn(found)


def check_regions(config: StreamConfig) -> None:
    """Raise ``ConfigError`` if a column's regions cannot be drawn: better before a stream begins than at its report."""
    for column in config.schema.columns:
        regions_of(config, column)


def _drawn(found: dict[int, list[list[FloatArray]]]) -> Regions:
    """On whole places of a drawing: across by the cosine of the middle latitude, north above."""
    points = np.concatenate([ring for parts in found.values() for part in parts for ring in part])
    (west, south), (east, north) = points.min(axis=0), points.max(axis=0)
    narrow = math.cos(math.radians((south + north) / 2))
    scale = _SIZE / max((east - west) * narrow, north - south, 1e-9)

    def place(ring: FloatArray, *, hole: bool) -> list[tuple[int, int]]:
        at = np.stack([(ring[:, 0] - west) * narrow * scale, (north - ring[:, 1]) * scale], axis=1).round().astype(int)
        at = at[np.append(True, (np.diff(at, axis=0) != 0).any(axis=1))]
        turn = (at[:-1, 0] * at[1:, 1] - at[1:, 0] * at[:-1, 1]).sum()
        return [(int(x), int(y)) for x, y in (at if (turn > 0) != hole else at[::-1])]

    shapes = {
        code: [
            [drawn for i, ring in enumerate(part) if len(drawn := place(ring, hole=i > 0)) > 3 or i == 0]
            for part in parts
        ]
        for code, parts in sorted(found.items())
    }
    return Regions(shapes=shapes, size=(round((east - west) * narrow * scale), round((north - south) * scale)))


def map_of_regions(regions: Regions, column: Column, now: Cells, *, what: str, note: str = "") -> Markup:
    """Events by region, in colours on a logarithmic scale; those that noise alone could fill are grey.

    Args:
        now: of the column, by code.
        what: title.
        note: on what was measured.
    """
    labels = labels_of(column)
    known, clear, shown = np.isfinite(now.stderr), beyond_noise(now), list(regions.shapes)
    coloured = [float(now.count[code]) for code in regions.shapes if now.count[code] > 0 and clear[code]]
    bounds, drawn = classes(coloured, SHADES) if coloured else [], []
    legend, top = class_labels(bounds, max(coloured)) if coloured else ([], "")
    for code, shape in regions.shapes.items():
        rows = float(now.count[code])
        error = f", measured {ranged(now.measured[code], now.stderr[code])}" if known[code] else ""
        shade = shade_of(rows, bounds) if clear[code] else 0
        path = "".join("M" + "L".join(f"{x} {y}" for x, y in ring) + "z" for part in shape for ring in part)
        drawn.append((shade, path, f"{labels[code]}: {number(rows)} rows{error}"))
    least, most = (find(shown, key=lambda code: now.count[code]) for find in (min, max))
    ends = [f"{labels[code]} ({number(float(now.count[code]))})" for code in (most, least)]
    names, marks = names_in({code: labels[code] for code in regions.shapes}, regions)
    away = [label for code, label in enumerate(labels) if code not in regions.shapes]
    return macro(
        "regions",
        regions=drawn,
        names=names,
        size=regions.size,
        title=what,
        description=f"{len(drawn)} regions of {column.title}: most in {ends[0]}, fewest in {ends[1]}; "
        f"{len(shown) - int(clear[shown].sum())} within noise.",
        bounds=legend,
        top=top,
        note=" ".join(filter(None, [note, marks, f"Not on the map: {', '.join(away)}." if away else ""])),
        table=numbers(column, [labels[code] for code in shown], now.at(np.array(shown)), clear[shown]),
    )


def names_in(labels: dict[int, str], regions: Regions) -> tuple[list[tuple[int, int, str]], str]:
    """Where each name is written, or a number where there is no room for it; and what the numbers mean."""
    written, meant = list[tuple[int, int, str]](), list[str]()
    numbers = (str(n) for n in count(1) if str(n) not in labels.values())
    for code, name in labels.items():
        mark, (x, y, room) = name, _room(regions.shapes[code], _WIDTH * len(name))
        if _WIDTH * len(name) > room:
            x, y, room = _room(regions.shapes[code], 2 * _WIDTH)
            if room < _WIDTH or len(name) < 3:  # the numbers below the map have it
                continue
            mark = next(numbers)
            meant.append(f"{mark} {name}")
        written.append((round(x), round(y), mark))
    return written, f"{', '.join(meant)}." if meant else ""


def _room(shape: Shape, wanted: float) -> tuple[float, float, float]:
    """The middle of a line of letters within a shape, and how wide that can be: near the shape's middle if it is as
    wide as wanted.
    """
    best = (0.0, 0.0, 0.0)
    for part in shape:
        edges = np.concatenate([np.stack([ring[:-1], ring[1:]], axis=1) for ring in part if len(ring) > 1] or [_NONE])
        heights = np.linspace(edges[:, :, 1].min(initial=_SIZE), edges[:, :, 1].max(initial=0), 41)
        for y in sorted(heights, key=lambda height: abs(height - heights[20])):
            spans = [_within(edges, y + up) for up in (-_LETTER / 2, 0.0, _LETTER / 2)]
            for lines in product(*spans):
                left, right = max(a for a, _ in lines), min(b for _, b in lines)
                found = ((left + right) / 2, float(y), right - left)
                best = max(best, found, key=lambda one: min(one[2], wanted))
    return best


def _within(edges: FloatArray, y: float) -> list[tuple[float, float]]:
    """From where to where a horizontal line lies within a polygon."""
    (x, top), (end, bottom) = edges[:, 0].T, edges[:, 1].T
    cut = (top <= y) != (bottom <= y)
    across = np.sort((x + (end - x) * (y - top) / np.where(cut, bottom - top, 1))[cut]).tolist()
    return list(zip(across[::2], across[1::2], strict=False))
