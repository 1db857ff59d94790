"""Events of an assumed shape, for forecasts. Nothing here knows of any data (docs/decisions/0012-forecast.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthstream.workload import CodeArray, FloatArray

# Rows: _CLASSES kinds of event, which follow Zipf's law; the share _TYPICAL of a row's cells is typical of its kind.
# The share of a column's r-th value falls like r to minus its exponent: from nearly even to one value that has nearly
# all.
_CLASSES, _TYPICAL = 10, 0.5
_EVEN, _STEEP = 0.5, 2.5
# Of a list of more values than this, such as products or diagnoses, no few have nearly all.
_LONG, _LESS_STEEP = 100, 1.25
# Cells that no list names: this share of a column's rows each.
_OWN = 0.01

# Points: so many clusters, which follow Zipf's law, how far they lie from a common middle, as the quarters of a town,
# the standard deviations of their points, and the share of points that lie anywhere.
_CLUSTERS, _APART, _NARROWEST, _WIDEST, _SCATTERED = 20, 0.1, 0.005, 0.08, 0.1
# How far a cluster wanders in each coordinate while the events double, and how unlike its share is from time to time:
# shape of a gamma law, small for bursts in which one cluster has most of the events.
_WANDERS, _CALM = 0.05, 0.1


class LatentClasses:
    """Rows of a few kinds. Shares of a column's values fall like a power of their rank, which depends on the kind.

    Args:
        sizes: number of codes of each column.
        own: how many of them, at the end, are for what no list names: ``other`` and ``missing``.
        rng: decides the shape.
    """

    def __init__(self, sizes: Sequence[int], own: Sequence[int], rng: np.random.Generator) -> None:
        self._weights = _zipf(_CLASSES)
        self._laws: list[FloatArray] = []
        for size, extra in zip(sizes, own, strict=True):
            power = rng.uniform(_EVEN, _STEEP if size <= _LONG else _LESS_STEEP)
            common, *kinds = (_column(size, extra, power, rng) for _ in range(1 + _CLASSES))
            self._laws.append((1 - _TYPICAL) * common + _TYPICAL * np.stack(kinds))

    def rows(self, number: int, rng: np.random.Generator) -> CodeArray:
        """Codes of ``number`` rows, int32, shape ``(number, columns)``."""
        kind = rng.choice(_CLASSES, size=number, p=self._weights)
        codes = np.empty((number, len(self._laws)), dtype=np.int32)
        for column, laws in enumerate(self._laws):
            steps = np.cumsum(laws, axis=1)
            steps[:, -1] = 1.0
            draws = rng.random(number)
            for k in range(_CLASSES):
                here = kind == k
                codes[here, column] = np.searchsorted(steps[k], draws[here], side="right")
        return codes


class Clusters:
    """Points of clusters that wander, and whose shares come in bursts, in the unit cube."""

    def __init__(self, dimension: int, rng: np.random.Generator) -> None:
        self._rng, self._dimension = rng, dimension
        self._shares = _zipf(_CLUSTERS)
        middle = rng.uniform(0.25, 0.75, dimension)
        self._centres = _reflected(middle + _APART * rng.normal(size=(_CLUSTERS, dimension)))
        spreads = np.exp(rng.uniform(np.log(_NARROWEST), np.log(_WIDEST), _CLUSTERS))
        self._spreads = rng.permutation(spreads)[:, None]

    def wander(self, doublings: float) -> None:
        """Let time go by, in which the number of events doubles ``doublings`` times."""
        step = self._rng.normal(size=self._centres.shape) * _WANDERS * np.sqrt(doublings)
        self._centres = _reflected(self._centres + step)

    def points(self, number: int) -> FloatArray:
        """So many points of one burst after another, shape ``(number, dimension)``, each in [0, 1)."""
        rng = self._rng
        shares = self._shares * rng.gamma(_CALM, size=_CLUSTERS) + 1e-12  # a gamma law this steep may draw 0
        cluster = rng.choice(_CLUSTERS, size=number, p=shares / shares.sum())
        found = self._centres[cluster] + self._spreads[cluster] * rng.normal(size=(number, self._dimension))
        scattered = rng.random(number) < _SCATTERED
        found[scattered] = rng.random((int(scattered.sum()), self._dimension))
        return np.asarray(np.clip(found, 0, np.nextafter(1, 0)))


def _zipf(number: int, power: float = 1.0) -> FloatArray:
    share = np.arange(1, number + 1) ** -power
    return np.asarray(share / share.sum())


def _column(size: int, own: int, power: float, rng: np.random.Generator) -> FloatArray:
    listed = size - own
    if listed < 1:
        return np.full(size, 1 / size)
    shares = np.concatenate([rng.permutation(_zipf(listed, power)) * (1 - _OWN * own), np.full(own, _OWN)])
    return np.asarray(shares / shares.sum())


def _reflected(places: FloatArray) -> FloatArray:
    """Places that have left the unit cube, mirrored at its walls."""
    folded = np.mod(places, 2)
    return np.asarray(np.where(folded > 1, 2 - folded, folded))
