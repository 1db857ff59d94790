"""Public polygons for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Ring = Sequence[tuple[float, float]]


def rectangle(west: float, south: float, east: float, north: float) -> list[tuple[float, float]]:
    """A closed ring."""
    return [(west, south), (east, south), (east, north), (west, north), (west, south)]


def feature(*rings: Ring, **properties: Any) -> dict[str, Any]:
    """One polygon: its outline, then holes."""
    return {"type": "Feature", "properties": properties, "geometry": {"type": "Polygon", "coordinates": list(rings)}}


def geojson(folder: Path, *features: Mapping[str, Any], name: str = "city.geojson") -> Path:
    """A file of these features."""
    path = folder / name
    path.write_text(json.dumps({"type": "FeatureCollection", "features": list(features)}))
    return path
