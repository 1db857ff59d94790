"""Masses of the cells of a partition, and points drawn from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from synthstream.fit.walk import UNKNOWN
from synthstream.partition import Partition, Region, by_level, sums
from synthstream.workload import CodeArray, FloatArray, IntArray

# A node whose share in a region is that near to 0 or 1 is not cut by it: areas of polygons are rounded.
_WHOLE = 1e-9
# Of the mean mass, what a node without mass counts as where a point must lie somewhere.
_SOME = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Cloud:
    """Mass by cell.

    Args:
        partition: its depth says how fine codes of drawn points are.
        masses: float64, over the nodes of one level of the partition, shape ``(2**level,)``; below 0 only where rows
            may take events away.
        plain: masses estimated without shrinkage or bounds, in the same shape; some may be below 0. NaN if not known.
        plain_errors: as ``errors``, of these.
        errors: expected squared error of left minus right in node i of level j, at position 2^j + i; NaN if not known.
        total_variance: of the estimated number of events.
        moving: how far mass has moved between the two newest epochs, in widths of the cube.
        open_variance: of the number of events that no epoch's own number tells: what was not read
            of them may all lie in one place.
        uneven: variance of (left - right) / node where it is not known: 1 if all lie in one half.
    """

    partition: Partition
    masses: FloatArray
    plain: FloatArray
    plain_errors: FloatArray
    errors: FloatArray
    total_variance: float
    moving: float
    open_variance: float = 0.0
    uneven: float = UNKNOWN

    def __repr__(self) -> str:
        return f"Cloud({self.number:,} points, {self.partition.dimension} columns, {self.masses.size:,} cells)"

    @property
    def level(self) -> int:
        """Level of the nodes."""
        return int(self.masses.size).bit_length() - 1

    @property
    def nodes(self) -> Partition:
        """The partition down to these nodes; one cut along each coordinate at least."""
        return Partition(dimension=self.partition.dimension, depth=max(self.level, self.partition.dimension))

    @cached_property
    def held(self) -> FloatArray:
        """The masses that points are drawn from, at least 0, in the same shape.

        Masses below 0 are raised to 0, and the nearest other masses are lowered by as much. From the root down, each
        node divides its mass between its two halves: as close to their own masses as is possible with neither below 0.
        So noise below 0 in one place does not move points far away.
        """
        if self.masses.min() >= 0:
            return self.masses
        root, *levels = sums(self.masses)
        found = np.maximum(root, 0.0)
        for nodes in levels:
            own = nodes[0::2]
            left = np.clip(own + (found - own - nodes[1::2]) / 2, 0.0, found)
            found = np.stack([left, found - left], axis=1).reshape(-1)
        return found

    @property
    def number(self) -> int:
        """Number of published points: the masses' sum, rounded."""
        return round(float(self.held.sum()))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it but the partition, for the store."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)[1:]}

    @classmethod
    def from_arrays(cls, partition: Partition, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The cloud whose :meth:`arrays` these are."""
        kept: dict[str, Any] = {field.name: arrays.get(field.name, field.default) for field in fields(cls)[1:]}
        single = {name: float(kept[name]) for name in ("total_variance", "moving", "open_variance", "uneven")}
        return cls(partition=partition, **kept | single)

    def plus(self, other: Cloud) -> Cloud:
        """The masses of both, over the nodes of the finer one. How far mass moves is that of ``other``."""
        return self._with(other, 1, moving=other.moving)

    def minus(self, other: Cloud) -> Cloud:
        """The masses of this one without those of the other, over the nodes of the finer one; some may be below 0."""
        return self._with(other, -1, moving=max(self.moving, other.moving))

    def _with(self, other: Cloud, sign: int, *, moving: float) -> Cloud:
        level = max(self.level, other.level)
        one, two = self._down_to(level), other._down_to(level)
        return Cloud(
            partition=self.partition,
            masses=one.masses + sign * two.masses,
            plain=one.plain + sign * two.plain,
            errors=one.errors + two.errors,
            plain_errors=one.plain_errors + two.plain_errors,
            total_variance=one.total_variance + two.total_variance,
            open_variance=one.open_variance + two.open_variance,
            moving=moving,
            uneven=max(one.uneven, two.uneven),
        )

    def _down_to(self, level: int) -> Cloud:
        """The same masses, evenly in finer nodes: how a node's mass is divided is not known."""
        found, region = self, self.partition.region
        while found.level < level:
            unknown = found.masses**2 * self.uneven
            if region is not None:
                unknown[region.emptied(found.level)] = 0.0
            found = replace(
                found,
                masses=_halved(found.masses, region),
                plain=_halved(found.plain, region),
                errors=np.concatenate([found.errors, unknown]),
                plain_errors=np.concatenate([found.plain_errors, unknown]),
            )
        return found

    def moved_from(self, before: Cloud) -> float:
        """Share of the points before that have left their node, as far as masses tell; 0 if there were none."""
        old, new = before.held, self.held
        old, new = (_spread(masses, max(old.size, new.size), self.partition.region) for masses in (old, new))
        return float(np.maximum(old - new, 0.0).sum() / old.sum()) if old.sum() > 0 else 0.0

    def counts(self, n: int, rng: np.random.Generator) -> IntArray:
        """Whole numbers of points in each node, adding up to ``n``.

        One systematic pass in the order of the tree: any node, of any level, is less than 1 off its share.
        """
        total = float(self.held.sum())
        if total <= 0:
            return np.zeros(self.held.size, dtype=np.int64)
        steps = np.floor(np.cumsum(self.held) * (n / total) + rng.random()).astype(np.int64)
        last = -1 if self.partition.region is None else int(np.flatnonzero(self.held)[-1])
        steps[last:] = n
        return np.diff(np.minimum(steps, n), prepend=0)

    def points(self, n: int, rng: np.random.Generator) -> CodeArray:
        """Codes of ``n`` points, int32, shape ``(n, dimension)``, in random order; uniform within their node's region.

        Time: O(n (dimension + depth)) and one pass over the nodes. None if there is no mass.
        """
        nodes = np.repeat(np.arange(self.masses.size), self.counts(n, rng))
        rng.shuffle(nodes)
        return self._placed(nodes, rng)

    def within(self, level: int, each: int, rng: np.random.Generator) -> CodeArray:
        """Codes of so many points in each node of a level, int32, shape ``(2**level * each, dimension)``.

        They lie in it as its mass does, and anywhere in one that has none.
        """
        size = self.masses.size >> level
        upto = np.append(0.0, np.cumsum(self.held + _SOME * max(self.held.mean(), _SOME)))
        ends, first = upto[::size], size * np.arange(2**level)
        at = ends[:-1] + np.diff(ends) * rng.random((each, 2**level))
        nodes = np.clip(np.searchsorted(upto, at, side="right") - 1, first, first + size - 1)
        return self._placed(nodes.T.ravel(), rng)

    def _placed(self, nodes: IntArray, rng: np.random.Generator) -> CodeArray:
        """Codes of a point in each of some nodes, uniform within its region."""
        finer, region = self.partition.depth - self.level, self.partition.region
        cells = nodes << finer | rng.integers(0, 2**finer, size=nodes.size)
        if region is not None:
            cut = np.isin(nodes, region.cut[self.level])
            cells[cut] = region.drawn(nodes[cut], self.level, self.partition.depth, rng)
        return self.partition.codes(cells)

    def levels(self) -> list[FloatArray]:
        """Masses over the nodes of every level, the root's first."""
        return sums(self.held)

    @property
    def _anywhere(self) -> float:
        """Variance of the number as far as nobody knows where what it is off by lies: all of it, if none seems to be
        there, and next to nothing of a number that stands out of its noise.
        """
        number, variance = float(self.masses.sum()), self.total_variance
        return variance * (variance / (variance + number**2)) ** 2 if variance > 0 else 0.0

    def known(self, levels: int) -> list[tuple[FloatArray, FloatArray]]:
        """By level, the mass of each node without shrinkage, and its standard error; of at most so many levels.

        A half has half of its node, and half of left minus right: so half of both errors. Of a node whose other half is
        empty it has all.
        """
        variance, found = np.array([self.total_variance]), list[tuple[FloatArray, FloatArray]]()
        anywhere = self._anywhere
        region = self.partition.region
        errors = [*by_level(self.plain_errors), np.zeros(self.plain.size)]
        number = max(float(self.plain.sum()), 1.0)
        for level, (mass, error) in enumerate(zip(sums(self.plain)[:levels], errors, strict=False)):
            own = self.open_variance * np.maximum(np.abs(mass) / number - 2.0**-level, 0.0) ** 2
            own += anywhere * (1 - 2.0**-level) ** 2 * (variance > 0)  # in a sea there is none
            found.append((mass, np.sqrt(variance + own)))
            before, variance = variance, np.repeat((variance + error) / 4, 2)
            if region is not None and level < self.level:
                cut = region.cut[level]
                own = np.stack([1 + region.ratios[level], 1 - region.ratios[level]], axis=1) / 2
                variance[np.stack([2 * cut, 2 * cut + 1], axis=1)] = own**2 * before[cut, None] + error[cut, None] / 4
        return found

    def mass(self, inside: FloatArray, *, net: bool = False) -> tuple[float, float]:
        """Mass of a region, and its standard error.

        Args:
            inside: share of each node's volume that lies in the region, shape ``(2**level,)``; or of the nodes of any
                level above, for a region that is as even in each of them.
            net: whether it may be below 0: what came less what was taken away. Left out: it is what is there.

        The estimate without shrinkage is a sum over the tree: the share of the region in the root times all events, and
        in each node half the difference of its share in the left and right half times left minus right. So its variance
        is a sum too. Five things are added to it as error: how far shrinkage moved the mass; how far raising masses to
        0 moved it; what the number of the open epoch is off by, as if it lay here; the mass of nodes that lie in the
        region only in part: see :meth:`_cut`; and, where noise leaves hardly any number, all that it is off by, as if
        it lay here.
        """
        share = np.asarray(inside, dtype=np.float64)
        told = self.masses if net else self.held
        held, plain = (masses.reshape(share.size, -1).sum(axis=1) for masses in (told, self.plain))
        found = float(held @ share)
        variance = (found - float(plain @ share)) ** 2
        variance += self._cut(np.abs(held), share)
        noise, of_box = self._noise(share)
        variance += noise
        part = abs(found) / max(float(np.abs(held).sum()), 1.0)
        variance += self.open_variance * max(part - of_box, 0.0) ** 2
        variance += self._anywhere * (1 - of_box) ** 2 if of_box > 0 else 0.0
        return found, float(np.sqrt(variance))

    def mean(self, values: FloatArray) -> tuple[float, float]:
        """Mean of a function over all events, of which there are some, and its standard error.

        What the function differs by from that mean adds up to 0 over all events. The error of this sum, which is made
        as in :meth:`mass`, over the number of events is that of the mean; no mean is further off than any value. Where
        that number stands hardly out of its noise the error grows, so that twice it is what Fieller (1954) allows.

        Args:
            values: of the function at points as of :meth:`within`, shape ``(2**level, each)``.
        """
        of_node, spread = values.mean(axis=1), values.var(axis=1, ddof=1)
        held, plain = (masses.reshape(spread.size, -1).sum(axis=1) for masses in (self.held, self.plain))
        total = float(held.sum())
        found = float(held @ of_node) / total
        off = of_node - found
        noise, of_box = self._noise(off)
        variance = float(plain @ off) ** 2 + noise + self.open_variance * of_box**2
        variance += float((held * (1 + self.uneven * held)) @ spread)
        sure = np.maximum(1 - 4 * (self.total_variance + self.open_variance) / total**2, _WHOLE)
        return found, float(np.minimum(np.sqrt(variance / sure) / total, np.abs(off).max()))

    def _noise(self, weights: FloatArray) -> tuple[float, float]:
        """Variance of the weighted sum of all masses without shrinkage, and the mean of the weights over the box."""
        variance, region = 0.0, self.partition.region
        for level, error in reversed([*enumerate(by_level(self.plain_errors[: weights.size]))]):
            left, right = weights[0::2], weights[1::2]
            variance += float(error @ ((left - right) / 2) ** 2)
            weights = (left + right) / 2 if region is None else region.averaged(weights, level, np.arange(2**level))
        return variance + self.total_variance * float(weights[0]) ** 2, float(weights[0])

    def _cut(self, held: FloatArray, share: FloatArray) -> float:
        """Variance of what a region has of the nodes that lie in it only in part.

        Each node's events lie on the one side or the other, by chance and as unevenly as ``uneven`` says. If
        (left - right) / node is the same in all of them, their errors add up: that counts with the square root of how
        much of the region lies in such nodes. It is all of a strip along a road, and little of a large box.
        """
        parts = share * (1 - share)
        cut = np.flatnonzero(parts > _WHOLE)
        mass, part = held[cut], parts[cut]
        apart = float((mass * (1 + self.uneven * mass)) @ part)
        alike = 4 * self.uneven * float(mass @ part) ** 2
        within = float(share[cut].sum()) / float(share.sum()) if cut.size else 0.0
        return apart + float(np.sqrt(within)) * max(alike - apart, 0.0)


def _halved(masses: FloatArray, region: Region | None) -> FloatArray:
    """Over the halves of all nodes, in each as much as it has of the node, or of the node's part of a region."""
    return np.repeat(masses / 2, 2) if region is None else region.divided(masses, int(masses.size).bit_length() - 1)


def _spread(masses: FloatArray, size: int, region: Region | None) -> FloatArray:
    """Over so many nodes."""
    while masses.size < size:
        masses = _halved(masses, region)
    return masses
