"""The release of a points stream: rows in the user's own units, masses of boxes, means of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np
import polars as pl
from typing_extensions import override

from synthstream.errors import SchemaError
from synthstream.measured import NodeCounts, TreeMeasured, TurnstileMeasured
from synthstream.partition import Partition
from synthstream.release.areas import Bounds, Box, Inside, area_of, polygon_of
from synthstream.release.comparing import ordered
from synthstream.release.release import Release, seed_of
from synthstream.release.rows import Model
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.region import Domain
from synthstream.workload import CodeArray, FloatArray

# Nodes below this level are not listed in a release's table of nodes.
_LISTED = 12


class Masses(Model, Protocol):
    """A model that is masses of the cells of a partition: a :class:`synthstream.fit.cloud.Cloud`."""

    @property
    def partition(self) -> Partition:
        """Of the box."""

    @property
    def masses(self) -> FloatArray:
        """By node, shape ``(2**level,)``."""

    def levels(self) -> list[FloatArray]:
        """Masses over the nodes of every level, the root's first."""

    def points(self, n: int, rng: np.random.Generator) -> CodeArray:
        """Codes of ``n`` points, shape ``(n, columns)``."""

    def within(self, level: int, each: int, rng: np.random.Generator) -> CodeArray:
        """Codes of so many points in each node of a level, shape ``(2**level * each, columns)``."""

    def known(self, levels: int) -> list[tuple[FloatArray, FloatArray]]:
        """By level, at most so many: what was read of each node, and its standard error."""

    def mass(self, inside: FloatArray, *, net: bool = False) -> tuple[float, float]:
        """Mass of a region, given by the part of each node of any level that lies in it, and its standard error.

        ``net``: whether it may be below 0.
        """

    def mean(self, values: FloatArray) -> tuple[float, float]:
        """Mean of a function, given by its values there, shape ``(2**level, each)``, and its standard error."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PointRelease(Release):
    """What is published for one tick of a points stream. A pure function of what was committed.

    Args:
        measured: readings of this tick.
        model: the masses fitted to all readings.
    """

    # Whether a mass says by how much it changed, and may be below 0.
    net: ClassVar[bool] = False

    measured: TreeMeasured | TurnstileMeasured | NodeCounts
    model: Masses

    def _made(self, n: int | None, rng: np.random.Generator | None) -> pl.DataFrame:
        rng = rng or self._rng()
        return self.schema.decode(self.model.points(self.model.number if n is None else n, rng), rng)

    @override
    def table(
        self, columns: Sequence[str] | str, *, where: str | None = None, model_error: bool = False
    ) -> pl.DataFrame:
        """A points stream has no tables of columns: see :attr:`tables` and :meth:`mass`."""
        raise SchemaError(f"table: a stream of points has none; ask for {self._of_a_box}")

    @property
    def _of_a_box(self) -> str:
        """What of points can be asked for, in words: from Python, and from the command line."""
        first = self.coordinates[0]
        return f"the events in a box: mass(lower, upper), or table --box '{first.name} {first.min:g} {first.max:g}'"

    def count(self, where: str | None = None) -> NoReturn:  # noqa: ARG002
        """A points stream counts no conditions: see :meth:`mass`, and :meth:`rows` for rows that satisfy one."""
        raise SchemaError(
            "count: a stream of points has no tables. Ask for the events in a box: mass(lower, upper), or of all: "
            "mass({})"
        )

    @cached_property
    def tables(self) -> pl.DataFrame:
        """Nodes of the tree down to level 12, a row each.

        ``level`` and ``node``; for each column its range, ``<column> from`` and ``<column> to``; ``count``, the mass;
        ``measured``, what passed the gate at this tick, null where nothing did: left minus right over the open epoch
        (kind ``points``) or the node's noisy count (``hypercube``); ``stderr``, its standard error, null if not known.
        Where rows may take events away, these are of events that were added, and ``measured away`` and ``stderr away``
        of those that were taken away.
        """
        if self.files is not None:
            return self.files("tables.parquet")
        levels = [self._nodes(level, mass) for level, mass in enumerate(self.model.levels()[: _LISTED + 1])]
        return pl.concat(levels).with_columns(**self._dates())

    def _places(self, level: int) -> pl.DataFrame:
        """The nodes of a level, and the range of each in every column."""
        number = np.arange(2**level)
        partition = self.model.partition
        low = partition.codes(number << partition.depth - level)
        high = partition.codes((number + 1 << partition.depth - level) - 1)
        data = {"level": np.full(number.size, level), "node": number}
        for i, column in enumerate(self.coordinates):
            data |= {f"{column.name} from": column.at(low[:, i]), f"{column.name} to": column.at(high[:, i] + 1)}
        return pl.DataFrame(data)

    def _nodes(self, level: int, mass: FloatArray) -> pl.DataFrame:
        found = self._places(level).with_columns(count=pl.Series(mass))
        known = self.measured
        sides = {"": known.came, " away": known.gone} if isinstance(known, TurnstileMeasured) else {"": known}
        for side, measured in sides.items():
            values, stderr = measured.readings().get(level, (np.full(mass.size, np.nan), np.nan))
            found = found.with_columns(
                pl.Series(f"measured{side}", values).fill_nan(None),
                pl.Series(f"stderr{side}", np.full(mass.size, stderr)).fill_nan(None),
            )
        return found

    def compare(self, earlier: Release, columns: Sequence[str] | str | None = None) -> pl.DataFrame:
        """What has come, or gone, since an earlier release of the stream, by node of the tree down to level 12.

        Args:
            earlier: a release of the same stream.
            columns: a stream of points has no tables; leave it out.

        Returns:
            One row per node: ``level``, ``node`` and its ranges as in :attr:`tables`; ``then`` and ``now``, its masses
            in both, and their ``difference``; ``measured``, what was read of the events between them, its ``stderr``
            and ``z``, one divided by the other; ``beyond_noise``, whether z is beyond 3 either way. Largest z first.
            ``stderr`` is that of the noise between the two and of what no reading has divided, taken to lie anywhere:
            where all of it lies in one corner, ``stderr`` is too small.

        Raises:
            SchemaError: they are not of one stream, or not in this order, or such differences are not known.
        """
        then = self._comparable(earlier)
        if columns is not None:
            raise SchemaError("compare: a stream of points has no tables of columns; leave them out")
        if self.since is None:
            raise SchemaError(f"compare: the error of such a difference is not known; ask each for {self._of_a_box}")
        levels = zip(self.model.levels(), then.model.levels(), self.since(then.tick).known(_LISTED + 1), strict=False)
        found = [
            self._places(level).with_columns(then=old, now=new, difference=new - old, measured=known, stderr=stderr)
            for level, (new, old, (known, stderr)) in enumerate(levels)
        ]
        return ordered(pl.concat(found))

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """The columns."""
        return tuple(column for column in self.schema.columns if isinstance(column, Coordinate))

    def mass(self, lower: Inside, upper: Bounds | None = None) -> dict[str, Any]:
        """How many events lie in a box, or in polygons: ``measured``, its standard error ``stderr``, and ``count``.

        ``measured`` is estimated from all readings, and ``count`` is the same as a whole number.

        The error covers noise, events that no reading has counted yet, how far the estimate was moved towards what the
        data show elsewhere, and finest cells that lie in the box in part. In simulations 91 to 100 % of boxes were
        within two of it; of boxes that hold over 2 % of the events of a tight cluster, 86 to 100 %, and fewer (73 %) in
        windows of few events, whose deeper nodes no reading divides. Both are None for kind ``hypercube``, whose error
        is not known. Where rows may take events away, an estimate below 0 is raised to 0, and how far counts as error;
        that of a window says how the number changed, and may be below 0.

        Args:
            lower, upper: by column, in its own units; a column that is left out is not bounded. In the place of both:
                polygons, from :meth:`polygon`, or a GeoJSON file.

        Raises:
            SchemaError: a column does not exist, or a bound is no number, or a lower one is not below the upper one, or
                the box lies outside of the columns' bounds.
            ConfigError: as of :meth:`polygon`.

        Example: ``release.mass({"lat": 33.0}, {"lat": 34.0, "lon": -117.0})["measured"]``
        """
        area, region = area_of(self.coordinates, lower, upper), self.schema.region
        level = int(self.model.masses.size).bit_length() - 1
        if region is None:
            shares = area.at(level).shares(level) if isinstance(area, Domain) else area.shares(level)
        else:  # where the border of the region cuts a node, the share of what lies in the region counts
            held = region.shares(level)
            both = area.on(region) if isinstance(area, Box) else region.meeting(area.shape)
            shares = np.minimum(both.at(level).shares(level) / np.where(held > 0, held, 1.0), 1.0)
        found, stderr = self.model.mass(shares, net=self.net)
        known = {"measured": None, "stderr": None} if np.isnan(stderr) else {"measured": found, "stderr": stderr}
        return {"count": round(found), **known}

    def box(self, lower: Bounds, upper: Bounds) -> Box:
        """A box as :meth:`mass` takes it by its ends; its ``beyond`` is the share that lies outside of the bounds."""
        return Box(self.coordinates, lower, upper)

    def polygon(self, said: str | Path, *, feature: str | None = None) -> Domain:
        """Public polygons to ask :meth:`mass` about: what any polygon of a GeoJSON file holds.

        Args:
            said: the file, or what would stand in it.
            feature: only features that have a property of this value; or ``"key=value"``.

        Raises:
            ConfigError: the file cannot be read, has no such feature, or its polygons are not valid or lie outside of
                the box; the columns are no latitude and longitude by their names; or shapely is not installed.
        """
        return polygon_of(self.coordinates, said, feature)

    def mean(self, f: str | Callable[[pl.DataFrame], Any], *, points: int = 200_000) -> dict[str, Any]:
        """Estimated mean of a function over all events: ``mean``, and its standard error ``stderr``.

        The error covers what that of :meth:`mass` does. In simulations 90 to 100 % of means were within two of
        it, of 60 to 24,000 events, drifting or not; where events are few, or lie in one cluster, it is up to six times
        the error. It is None for kind ``hypercube``, whose error is not known.

        Args:
            f: a column; or what takes rows as a frame and returns one finite number for each, as
                ``lambda rows: rows["fare"] > 50``. It is asked about points everywhere within the columns' bounds.
            points: about how many.

        Raises:
            SchemaError: there is no such column.
            ValueError: the release has no points, ``points`` is below 1, or f returns something else.

        Example: ``release.mean("fare")["mean"]``
        """
        if points < 1:
            raise ValueError("mean: points must be at least 1")
        if isinstance(f, str) and f not in self.schema.names:
            raise SchemaError(f"mean: {self.schema.unknown(f)}")
        if not self.model.number:
            raise ValueError("mean: this release has no points")
        level = min(self.model.masses.size, max(points // 2, 1)).bit_length() - 1
        each, rng = max(points >> level, 2), np.random.default_rng(seed_of(self.head, "mean"))
        rows = self.schema.decode(self.model.within(level, each, rng), rng)
        try:
            values = np.asarray(rows[f] if isinstance(f, str) else f(rows), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"mean: f must return one number for each row ({error})") from error
        finite = values.shape == (rows.height,) and np.isfinite(values)
        if not np.all(finite):
            what = f"{values.size} for {rows.height}" if finite is False else f"e.g. {values[~finite][0]}"
            raise ValueError(f"mean: f must return one finite number for each row of a frame, not {what}")
        mean, stderr = self.model.mean(values.reshape(-1, each))
        return {"mean": mean, "stderr": None if np.isnan(stderr) else stderr}
