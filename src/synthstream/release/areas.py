"""What a question of where may name: a box, or public polygons; and which share of each cell lies in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from synthstream.errors import SchemaError
from synthstream.partition import Partition
from synthstream.schema.conditions import unknown
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.region import Domain
from synthstream.workload import FloatArray

Bounds = Mapping[str, float]
# Lower ends of a box; or polygons, or the GeoJSON file that holds them.
Inside = Bounds | Domain | str | Path


@dataclass(frozen=True)
class Box:
    """From lower to upper ends of coordinates; one that is left out is not bounded.

    Raises:
        SchemaError: an end is of no coordinate, or is no number, or a lower one is not below the upper one; or the box
            lies where no event can be counted: its answer would be 0, without an error.
    """

    columns: tuple[Coordinate, ...]
    lower: Bounds
    upper: Bounds

    def __post_init__(self) -> None:
        refuse_no_ends(self.lower, self.upper)
        names, lower, upper = [column.name for column in self.columns], self.lower, self.upper
        for name, bound in [*lower.items(), *upper.items()]:
            if name not in names:
                raise SchemaError(f"box: {unknown(name, names)}")
            if not isinstance(bound, int | float | np.number) or np.isnan(bound):
                raise SchemaError(f"box: {name}: a bound must be a number, not {bound!r}")
        for name in lower.keys() & upper.keys():
            low, high = lower[name], upper[name]
            if low > high:
                raise SchemaError(f"box: {name}: its lower bound {low:g} is above its upper one {high:g}")
            if low == high:
                raise SchemaError(f"box: {name}: it has no width: both bounds are {low:g}")
        for c in self.columns:
            if lower.get(c.name, c.min) >= c.max or upper.get(c.name, c.max) <= c.min:
                ends = f"from {c.min:g} to {c.max:g}.{self._swapped}"
                raise SchemaError(f"box: {c.name}: it lies outside of the place, which goes {ends}")

    @property
    def _swapped(self) -> str:
        """Of two coordinates, what was said of one may have been meant of the other."""
        pairs = list(zip(self.columns, reversed(self.columns), strict=True))
        inside = len(pairs) == 2 and all(
            c.min <= self.lower.get(a.name, c.min) < self.upper.get(a.name, c.max) <= c.max for a, c in pairs
        )
        return f" It lies inside if {' and '.join(c.name for c in self.columns)} change places." if inside else ""

    @property
    def beyond(self) -> float:
        """Share of the box that lies outside of the coordinates' ranges; an end without bound is that of the range."""
        inside = 1.0
        for c in self.columns:
            low, high = self.lower.get(c.name, c.min), self.upper.get(c.name, c.max)
            low, high = (end if np.isfinite(end) else bound for end, bound in ((low, c.min), (high, c.max)))
            inside *= max(min(high, c.max) - max(low, c.min), 0.0) / (high - low) if high > low else 0.0
        return float(1 - inside)

    def shares(self, level: int) -> FloatArray:
        """Share of each node of a level of the coordinates' partition that lies in it, shape ``(2**level,)``."""
        partition = Partition(dimension=len(self.columns), depth=max(level, len(self.columns)))
        codes = partition.codes(np.arange(partition.cells_number))
        inside = np.ones(len(codes))
        for i, column in enumerate(self.columns):
            edges = np.arange(2 ** partition.bits[i] + 1) / 2 ** partition.bits[i]
            low = column.share_of(self.lower.get(column.name, column.min))
            high = column.share_of(self.upper.get(column.name, column.max))
            width = np.minimum(edges[1:], high) - np.maximum(edges[:-1], low)
            inside *= (np.maximum(width, 0.0) * 2 ** partition.bits[i])[codes[:, i]]
        return np.asarray(inside.reshape(2**level, -1).mean(axis=1))

    def holds(self, at: FloatArray) -> NDArray[np.bool_]:
        """Which positions, shape ``(positions, coordinates)``, lie in it, ends included. NaN lies nowhere."""
        low, high = (
            np.array([bounds.get(column.name, end) for column in self.columns])
            for bounds, end in ((self.lower, -np.inf), (self.upper, np.inf))
        )
        return np.asarray(np.all((at >= low) & (at <= high), axis=1))

    def on(self, region: Domain) -> Domain:
        """As polygons, of the coordinates of a region."""
        ends = [(self.lower.get(c.name, c.min), self.upper.get(c.name, c.max)) for c in self.columns]
        return region.boxed(ends)


def refuse_no_ends(*ends: object) -> None:
    """Raise ``TypeError`` unless these are what a box or polygons are asked by."""
    for one in ends:
        if not isinstance(one, Mapping | Domain | str | Path | None):
            raise TypeError(f'box: name the coordinate of each end, as in {{"lat": 33.0}}, not {type(one).__name__}')


def area_of(columns: Sequence[Coordinate], inside: Inside, upper: Bounds | None) -> Box | Domain:
    """A box or polygons.

    Raises:
        SchemaError: see :class:`Box`; or there is an upper end beside polygons, or these are of other coordinates.
        ConfigError: see :func:`polygon_of`.
    """
    refuse_no_ends(inside, upper)
    if isinstance(inside, Mapping):
        return Box(tuple(columns), inside, upper or {})
    if upper:
        raise SchemaError("polygons: they have no upper ends. Leave upper out, or say a box by lower and upper")
    found = inside if isinstance(inside, Domain) else polygon_of(columns, inside)
    if found.columns != tuple(columns):
        raise SchemaError("polygons: they were read for other coordinates; read them by polygon() of this release")
    return found


def polygon_of(columns: Sequence[Coordinate], said: str | Path, feature: str | None = None) -> Domain:
    """What any polygon of a GeoJSON file holds, or of those of its features that have a name.

    Raises:
        ConfigError: see :meth:`synthstream.schema.region.Domain.read`.
    """
    text = str(said)
    asked = "polygon" if text.lstrip().startswith("{") else f"polygon {text!r}"
    return Domain.read(text, columns, Path(), asked=asked, feature=feature)
