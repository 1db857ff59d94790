"""Public polygons from GeoJSON: read, checked, and written again as part of a stream's settings.

Geometry is that of shapely, which is an extra: reading alone needs none of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from synthstream.environment import words
from synthstream.errors import ConfigError
from synthstream.schema.conditions import like
from synthstream.schema.naming import coordinates_of
from synthstream.workload import FloatArray

# Corners of all polygons together, at most: they travel with the settings of a stream.
_MOST_CORNERS = 200_000
# If a larger share of polygons lies outside of a box, people are told.
BEYOND = 0.001
_EXPORT = "Export it as GeoJSON, in UTF-8"

# Rings of longitudes and latitudes, shape (corners, 2), of each polygon: the outline, then holes.
Rings = list[list[FloatArray]]


class Feature(NamedTuple):
    """A feature of a GeoJSON file.

    Args:
        where: what to call it in messages.
        properties, geometry: as they stand in the file.
    """

    where: str
    properties: dict[str, Any]
    geometry: Any

    def text_of(self, key: str) -> str | None:
        """A property as a category is written: numbers by their text, whole ones without a point."""
        value = self.properties.get(key)
        whole = isinstance(value, float) and value.is_integer()
        return None if value is None else str(int(value) if whole else value)

    def rings(self) -> Rings:
        """Rings of each of its polygons. Raises ``ConfigError`` unless it has polygons of degrees."""
        found, where = self.geometry, self.where
        if found is None:
            raise ConfigError(f"{where} has no geometry: take it out, or draw its polygon")
        kind = found.get("type") if isinstance(found, dict) else None
        if kind in ("Point", "MultiPoint", "LineString", "MultiLineString", "GeometryCollection"):
            raise ConfigError(f"{where} is a {kind}, no Polygon or MultiPolygon: take it out, or draw its polygon")
        try:
            single = {"Polygon": True, "MultiPolygon": False}[found["type"]]
            parts = [found["coordinates"]] if single else found["coordinates"]
            rings = [[np.array([point[:2] for point in ring], dtype=np.float64) for ring in part] for part in parts]
            if not (parts and all(parts)) or any(ring.ndim != 2 for part in rings for ring in part):
                raise ValueError
            most = np.max([np.abs(ring).max(axis=0) for part in rings for ring in part], axis=0)
            turned = most[0] <= 90 < most[1] <= 180
            if not turned and not (most <= (180, 90)).all():
                raise ValueError
        except (KeyError, TypeError, ValueError, IndexError):
            raise ConfigError(
                f"{where} holds a shape that is no Polygon or MultiPolygon of degrees (longitude, latitude). Write it "
                "again in WGS 84, as GeoJSON has it"
            ) from None
        if turned:
            raise ConfigError(
                f"{where} has the latitude first, and GeoJSON the longitude: exchange them, as the tool of QGIS called "
                "Swap X and Y coordinates does"
            )
        return rings


@cache
def geometry() -> Any:
    """The module shapely. Raises ``ConfigError`` if it is not installed."""
    try:
        return import_module("shapely")
    except ImportError:
        raise ConfigError("polygons need shapely. Say: pip install 'synthstream[polygons]'") from None


def features_of(base: Path, said: str, where: str) -> list[Feature]:
    """Features of a GeoJSON file, or of GeoJSON itself.

    Args:
        base: folder that relative paths start from.
        said: a path; or what would stand in the file, which begins with a brace.
        where: what to call it in messages.

    Raises:
        ConfigError: it cannot be read, or is no GeoJSON of features or of a geometry.
    """
    inline = said.lstrip().startswith("{")
    try:
        data = json.loads(said if inline else (base / said).expanduser().read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{where}: {words(error)}. Name a GeoJSON file, or leave it out") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: is not UTF-8. {_EXPORT}") from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{where}: is no JSON: {error.msg}, {at}. {_EXPORT}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{where}: is no GeoJSON file: it is nested too deeply, or has too long a number") from None
    kind = data.get("type") if isinstance(data, dict) else None
    if kind in ("Feature", "Polygon", "MultiPolygon"):
        data = {"features": [data if kind == "Feature" else {"geometry": data}]}
    elif kind != "FeatureCollection":
        what = "is TopoJSON" if kind == "Topology" else "is no GeoJSON file with a FeatureCollection"
        raise ConfigError(f"{where}: {what}. {_EXPORT}")
    found = data.get("features")
    if not found:
        raise ConfigError(f"{where}: has a FeatureCollection without features. {_EXPORT}")
    sound = isinstance(found, list) and all(
        isinstance(one, dict) and isinstance(one.get("properties") or {}, dict) for one in found
    )
    if not sound:
        raise ConfigError(f"{where}: is no GeoJSON file: what its FeatureCollection lists are no features. {_EXPORT}")
    return [
        Feature(f"{where}: feature {number:,}", one.get("properties") or {}, one.get("geometry"))
        for number, one in enumerate(found, start=1)
    ]


def named(features: Sequence[Feature], name: str | None, where: str) -> Sequence[Feature]:
    """Features of which a property is a name; all of them without a name.

    Args:
        name: the value of a property; or ``key=value``, where several properties have such values.

    Raises:
        ConfigError: there is none, or a name is that of two properties, which tell of different features.
    """
    if name is None:
        return features
    keys = dict.fromkeys(key for one in features for key in one.properties)
    key, _, value = name.partition("=")
    pairs = [(key, value)] if key in keys else [(key, name) for key in keys]
    found = {key: [one for one in features if one.text_of(key) == value] for key, value in pairs}
    found = {key: ones for key, ones in found.items() if ones}
    if not found:
        known = list(dict.fromkeys(text for one in features for key in keys if (text := one.text_of(key))))
        raise ConfigError(
            f"{where}: has no feature {name!r} (--feature).{like(name, known)} Its properties are {sorted(keys)}"
        )
    first, *others = found.values()
    if any(other != first for other in others):
        said = " or ".join(repr(f"{key}={name}") for key in found)
        raise ConfigError(f"{where}: {name!r} is several features by different properties. Say {said} (--feature)")
    return first


def properties_of(features: Sequence[Feature]) -> str:
    """The properties that all of them have, for messages."""
    held = set.intersection(*({key for key in one.properties if one.text_of(key)} for one in features))
    return ", ".join(map(repr, sorted(held))) or "none that all have"


def misplaced(
    bounds: tuple[float, float, float, float],
    x: tuple[str, float, float],
    y: tuple[str, float, float],
    *,
    asked: bool = False,
) -> str:
    """Where polygons lie that miss a box, and what to do: coordinates that have changed places are told.

    Args:
        bounds: west, south, east and north of the polygons.
        x, y: name and ends of the box's longitudes and latitudes.
        asked: whether a reader asks about them, who cannot widen the box.
    """
    west, south, east, north = bounds
    said = (
        f"Its longitudes are {west:g} to {east:g} and its latitudes {south:g} to {north:g}; {x[0]!r} has {x[1]:g} to "
        f"{x[2]:g}, and {y[0]!r} {y[1]:g} to {y[2]:g}. "
    )
    if not (west < y[2] and east > y[1] and south < x[2] and north > x[1]):
        return f"{said}{'Name' if asked else 'Widen the box, or name'} another file"
    if max(abs(y[1]), abs(y[2])) > 90:
        return f"{said}No latitude is beyond 90: the ends of the box have changed places, not those of the file"
    return (
        f"{said}They would meet if longitude and latitude changed places: in the file, where GeoJSON has the longitude "
        "first, or in the ends of the box, which stand in the order of its columns"
    )


def shape_of(rings: Rings, where: str) -> Any:
    """The polygons as one geometry of shapely, in longitudes and latitudes.

    Raises:
        ConfigError: one is not valid: it has fewer than three corners, crosses itself, or overlaps another one.
    """
    shapely = geometry()
    try:
        shape = shapely.MultiPolygon([(part[0], part[1:]) for part in rings])
    except (ValueError, shapely.errors.ShapelyError):
        raise ConfigError(
            f"{where}: holds a ring that is no closed line of four points or more. Mend the file"
        ) from None
    if not shape.is_valid:
        why = shapely.is_valid_reason(shape)
        raise ConfigError(
            f"{where}: holds a polygon that is not valid: {why}. Mend the file, as shapely.make_valid or the tool of "
            "QGIS called Fix geometries does"
        )
    return shape


def union_of(rings: Rings) -> Any:
    """What any of some polygons holds: those that touch each other are joined."""
    shapely = geometry()
    return shapely.union_all([shapely.Polygon(part[0], part[1:]) for part in rings])


def written(features: Sequence[tuple[dict[str, str], Rings]], where: str) -> str:
    """GeoJSON of polygons and properties, the same for the same corners. ``ConfigError`` if these are too many."""
    corners = sum(len(ring) for _, rings in features for part in rings for ring in part)
    if corners > _MOST_CORNERS:
        raise ConfigError(
            f"{where}: {corners:,} corners are too many; at most {_MOST_CORNERS:,} are served. Simplify the polygons: "
            "corners that lie nearer than a cell is wide tell nothing"
        )
    listed = [
        {
            "type": "Feature",
            "properties": properties,
            "geometry": {"type": "MultiPolygon", "coordinates": [[ring.tolist() for ring in part] for part in rings]},
        }
        for properties, rings in features
    ]
    data = {"type": "FeatureCollection", "features": listed}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def in_order(names: Sequence[str], where: str, fix: str) -> tuple[int, int]:
    """Positions of longitude and latitude among two names. Raises ``ConfigError``, with a fix, unless they tell."""
    found = coordinates_of(names)
    if len(names) != 2 or len(found) != 1:
        raise ConfigError(
            f"{where}: polygons have a longitude and a latitude. There must be two columns, whose names say which is "
            f"which, as in lat and lon; found {', '.join(map(repr, names))}. {fix}"
        )
    return names.index(found[0][2]), names.index(found[0][1])
