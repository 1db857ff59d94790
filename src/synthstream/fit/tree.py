"""From noisy differences in the nodes of a partition, epoch by epoch, to the mass of every cell. Post-processing.

For every epoch and node, from the top down, r = (left - right) / node is estimated; the halves of a node of mass m hold
m (1 + r) / 2 and m (1 - r) / 2. What is known of r before it is measured comes from other nodes (empirical Bayes; see
Morris 1983 for the method):

- r looks like that of the ancestor that was cut along the same coordinate, times one factor for the whole level;
- from epoch to epoch it moves by a random walk, of one step size for the whole level;
- what is left is around 0, of one variance for nodes of like mass.

All three are estimated by moments from the released differences. A Kalman filter and smoother (Rauch, Tung, Striebel
1965) over the epochs then weighs them against noise and chance, node by node. Chance is that of so many events, each of
which goes left or right on its own: where it is larger than the noise, an epoch's reading says more than the trend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from synthstream.fit.walk import CAUTION, UNKNOWN, slope, smoothed
from synthstream.partition import Region
from synthstream.workload import FloatArray, IntArray

# For a node without mass whose halves are not bounded by it: what was read is told in parts of its mass.
_NEXT_TO_NONE = 1e-12


class NodeReading(NamedTuple):
    """Left minus right in every node of a level.

    Args:
        differences: shape ``(2**level,)``.
        variance: of the noise of each: one for all, or one for each node, infinite where nothing was read.
        events: number of events that they count, of those of their epoch.
    """

    differences: FloatArray
    variance: float | FloatArray
    events: float


@dataclass(frozen=True, kw_only=True)
class Span:
    """One epoch.

    Args:
        events: estimated number.
        readings: by level; levels may be missing.
    """

    events: float
    readings: Mapping[int, NodeReading]


class Estimate(NamedTuple):
    """What the readings of all epochs say together.

    Args:
        masses: of cells, float64, shape ``(2**depth,)``, adding up to the mass of the root; at least 0 if bounded.
        errors: expected squared error of left minus right in each node, as far as this model knows it; node i of level
            j at position 2^j + i, so that shape is ``(2**depth,)`` and position 0 is empty.
        moving: a bound on the Wasserstein distance between the two newest epochs, in widths of the cube.
    """

    masses: FloatArray
    errors: FloatArray
    moving: float


def masses(
    spans: Sequence[Span],
    *,
    depth: int,
    dimension: int,
    shrink: bool = True,
    bounded: bool = True,
    caution: float = CAUTION,
    since: int = 0,
    region: Region | None = None,
) -> Estimate:
    """Mass of every cell over all epochs.

    Args:
        spans: epochs in order.
        depth: number of levels of the result; levels without any reading are cut in halves.
        dimension: number of coordinates; splits take turns.
        shrink: whether differences are weighed against noise and each other; otherwise each epoch is taken as it was
            read (theorem ``points-accuracy``).
        bounded: of epochs taken as they were read, whether no half is below 0. Otherwise masses are unbiased, and their
            errors hold also where nearly all of a node lies in one half; how far mass has moved is then not told.
        caution: a variance counts as real only beyond this number of standard deviations of its own noise.
        since: number of first epochs that inform the others, but whose own mass does not count; less than all.
        region: the part of the box that holds all events. What lies outside of it is empty, whatever was read, and a
            node that its border cuts is taken to be even in its part, where nothing else is known.

    Time, memory: O(2^depth) times the number of epochs that reach a level, which for epochs of growing depth is small.
    """
    mass = np.array([[max(span.events, 0.0)] for span in spans])
    last, moved, errors = max(float(mass[-1, 0]), 1e-9), 0.0, np.zeros(2**depth)
    epochs = [*_told_apart(spans, depth, since), len(spans) - since + 1 if since else 1]
    if epochs[0] < len(spans):
        done = len(spans) - epochs[0] + 1
        mass, spans = np.concatenate([mass[:done].sum(axis=0)[None], mass[done:]]), _merged(spans, epochs[0])
    ratios, work = list[FloatArray](), _Work(epochs, depth)
    for level in range(depth):
        above = ratios[level - dimension] if shrink and level >= dimension else np.zeros((len(spans), 1))
        known = _gathered(level, spans, region)
        if not (shrink or bounded):
            mass[(mass == 0) & (True if region is None else region.live(level))] = _NEXT_TO_NONE
        at = mass[:, known.nodes]
        how = _ratios(at, known, above[:, known.nodes >> dimension], caution) if shrink else _plain(at, known, bounded)
        # Nodes below are guessed from these ratios; how far mass has moved is told by those of the newest two epochs.
        guides = shrink and level + dimension < depth
        r = np.empty(mass.shape) if guides else work.newest(level, len(spans))
        halves, error = work.halves(level), errors[2**level : 2 ** (level + 1)]
        if known.nodes.size < 2**level:
            _guessed(mass, above, dimension, *how[2:], r, halves, error)
        _placed(mass, known.nodes, how.ratios, how.error, r, halves, error)
        if region is not None:
            _bordered(mass, region, level, known, above, dimension, how.slope, r, halves, error)
        if len(spans) > 1 and (shrink or bounded):
            moved += 2.0 ** -(level // dimension) / 2 * float(mass[-1] @ work.apart(r)) / last
        ratios = [*ratios, r if guides else np.empty((0, 0))]
        if level >= dimension:
            ratios[level - dimension] = np.empty((0, 0))  # no longer needed
        fewer = len(spans) - epochs[level + 1]
        mass, spans, ratios = halves, _merged(spans, epochs[level + 1]), [r[fewer:] for r in ratios]
    return Estimate((mass[1:] if since else mass).sum(axis=0), errors, moved)


def _told_apart(spans: Sequence[Span], depth: int, since: int) -> list[int]:
    """By level, how many epochs are left if the first ones that have no reading from it on are taken together."""
    among = spans[: since or -1]
    deepest = [max(span.readings, default=-1) for span in among] + [depth] * (len(spans) - len(among))
    firsts = (next(e for e, deep in enumerate(deepest) if deep >= level) for level in range(depth))
    return [len(spans) - max(first, 1) + 1 for first in firsts]


def _merged(spans: Sequence[Span], epochs: int) -> Sequence[Span]:
    """The first ones together, so that so many are left."""
    done = len(spans) - epochs + 1
    return [Span(events=sum(span.events for span in spans[:done]), readings={}), *spans[done:]] if done > 1 else spans


class _Work:
    """Memory for the masses of one level after the other: to be given fresh pages takes longer than all arithmetic.

    Args:
        epochs: told apart in each level, and below the last one.
    """

    def __init__(self, epochs: Sequence[int], depth: int) -> None:
        self._epochs, self._depth = epochs, depth
        sizes = [epochs[level] * 2**level for level in range(1, depth)]
        self._turns = [np.empty(max(sizes[turn::2], default=0)) for turn in (0, 1)]
        self._newest, self._apart = np.empty(2**depth), np.empty(2 ** max(depth - 1, 0))

    def halves(self, level: int) -> FloatArray:
        """For the masses of the halves of a level's nodes, shape ``(epochs, 2**(level + 1))``."""
        epochs, nodes = self._epochs[level + 1], 2 ** (level + 1)
        flat = np.empty(epochs * nodes) if level + 1 == self._depth else self._turns[level % 2][: epochs * nodes]
        return flat.reshape(epochs, nodes)

    def newest(self, level: int, epochs: int) -> FloatArray:
        """For the ratios of the newest two epochs."""
        kept = min(epochs, 2)
        return self._newest[: kept * 2**level].reshape(kept, 2**level)

    def apart(self, r: FloatArray) -> FloatArray:
        """How far the ratios of the newest two epochs are apart, node by node."""
        found = np.subtract(r[-1], r[-2], out=self._apart[: r.shape[1]])
        return np.asarray(np.abs(found, out=found))


class _Known(NamedTuple):
    """What was read of the nodes of a level that any epoch read; most of a deep level are read by none.

    Args:
        nodes: increasing, shape ``(read,)``; two that none read are among them, if there are any.
        unread: position of one of these; 0 if there are none.
        differences: shape ``(epochs, read)``; 0 where nothing was read.
        variance: in the same shape; infinite there.
        share: of each epoch's events, how many its readings count; 0 if it has none, shape ``(epochs,)``.
        lean: the ratios of nodes that lie evenly in the region, shape ``(read,)``; ``None`` if there is none.
    """

    nodes: IntArray
    unread: int
    differences: FloatArray
    variance: FloatArray
    share: FloatArray
    lean: FloatArray | None


class _Halved(NamedTuple):
    """How nodes are divided.

    Args:
        ratios: (left - right) / node of the nodes that were read, shape ``(epochs, read)``.
        error: expected squared error of their left minus right, shape ``(read,)``.
        slope: of other nodes, the factor of their ancestors' ratios.
        chance: whether chance adds to their error.
        left, newest: variance of their ratios, in all epochs together and in the newest one's own step.
    """

    ratios: FloatArray
    error: FloatArray
    slope: float
    chance: bool
    left: float
    newest: float


def _gathered(level: int, spans: Sequence[Span], region: Region | None) -> _Known:
    read = [span.readings.get(level) for span in spans]
    found = np.zeros(2**level, dtype=np.bool_)
    for reading in read:
        if reading is not None:
            found |= np.isfinite(reading.variance)
    if region is not None:
        known = ~region.live(level)
        known[region.emptied(level)] = True
        found &= ~known
    # All that no epoch read are alike. Two stand for them: sums over the epochs of one alone would be in another order.
    alike = np.flatnonzero(~found)[:2]
    found[alike] = True
    at = np.flatnonzero(found)
    unread = int(np.searchsorted(at, alike[0])) if alike.size else 0
    differences, variance = np.zeros((len(spans), at.size)), np.full((len(spans), at.size), np.inf)
    for e, reading in enumerate(read):
        if reading is not None:
            differences[e] = reading.differences[at]
            variance[e] = reading.variance if np.ndim(reading.variance) == 0 else np.asarray(reading.variance)[at]
    lean = None
    if region is not None:
        lean, hidden = region.leaning(level, at), known[at]
        differences[:, hidden], variance[:, hidden] = 0.0, np.inf
    pairs = zip(read, spans, strict=True)
    share = np.array([0.0 if reading is None else reading.events / max(span.events, 1e-9) for reading, span in pairs])
    return _Known(at, unread, differences, variance, share, lean)


def _plain(mass: FloatArray, known: _Known, bounded: bool) -> _Halved:
    """Differences as they were read, in parts of the nodes' masses; other nodes are cut in halves."""
    d, unknown = known.differences, np.isinf(known.variance)
    r = np.divide(np.clip(d, -mass, mass) if bounded else d, mass, out=np.zeros_like(mass), where=mass != 0)
    r = r if known.lean is None else np.where(unknown, known.lean, r)
    noise = sum(np.where(unknown, 0.0, known.variance))
    share = np.where(unknown, 0.0, np.minimum(known.share, 1.0)[:, None])
    unread = ((1 - share) * mass).sum(axis=0)
    return _Halved(r, noise + UNKNOWN * unread**2, slope=0.0, chance=False, left=UNKNOWN, newest=0.0)


def _ratios(mass: FloatArray, known: _Known, ancestors: FloatArray, caution: float) -> _Halved:
    """All readings of a level weighed against noise and each other.

    Args:
        mass, ancestors: masses of the nodes that were read, and ratios of their ancestors, shape ``(epochs, read)``.
    """
    variance = np.maximum(known.variance, 1e-9)
    counted = mass * np.clip(known.share, 0.0, 1.0)[:, None]
    y, noise = _observed(known.differences, variance, counted)
    factor = slope(y if known.lean is None else y - known.lean, noise, ancestors)
    guess = ancestors * factor if known.lean is None else ancestors * factor + known.lean
    x, left, newest = smoothed(y - guess, noise, caution)
    r, error = _blended(y, x + guess, mass, counted, variance, left, newest)
    own = known.unread
    return _Halved(r, error, slope=factor, chance=True, left=float(left[own]), newest=float(newest[own]))


@numba.njit(cache=True, nogil=True)
def _observed(differences, variance, counted):  # type: ignore[no-untyped-def]
    """Ratios as they were read, and the variance of noise and chance: of c events each goes left or right, 1 / c."""
    y, noise = np.zeros_like(counted), np.full_like(counted, np.inf)
    for e in range(counted.shape[0]):
        for i in range(counted.shape[1]):
            c = counted[e, i]
            if c > 0 and variance[e, i] < np.inf:
                y[e, i] = differences[e, i] / c
                noise[e, i] = (variance[e, i] + c) / c / c
    return y, noise


@numba.njit(cache=True, nogil=True)
def _blended(y, trend, mass, counted, variance, left, newest):  # type: ignore[no-untyped-def]
    """Moves the trend of each node towards its reading, by the part of the variance that is chance and not noise."""
    epochs, nodes = y.shape
    r, error = np.empty_like(y), np.empty(nodes)
    for i in range(nodes):
        foretold = squared = last = 0.0
        for e in range(epochs):
            m, c = mass[e, i], counted[e, i] if variance[e, i] < np.inf else 0.0
            expected = min(max(trend[e, i], -1.0), 1.0)
            own = c / (c + variance[e, i]) if c > 0 else 0.0
            r[e, i] = expected
            if own > 0:
                r[e, i] = min(max(expected + own * (y[e, i] - expected) * c / m, -1.0), 1.0)
                squared += own * variance[e, i]
            squared += m - c
            last = m - own * c
            foretold += last
        error[i] = squared + foretold * foretold * left[i] + last * last * newest[i]
    return r, error


@numba.njit(cache=True, nogil=True)
def _guessed(mass, ancestors, dimension, slope, chance, left, newest, r, halves, error):  # type: ignore[no-untyped-def]
    """Divides all nodes of a level by their ancestors' ratios: what is right where nothing was read.

    Of ``r`` and ``halves`` the last rows are those of the newest epochs; the first of ``halves`` sums up all before.
    """
    epochs, nodes = mass.shape
    kept, told = epochs - r.shape[0], epochs - halves.shape[0]
    error[:] = 0.0
    for e in range(epochs):
        out, again = halves[max(e - told, 0)], 0 < e <= told
        for i in range(nodes):
            m = mass[e, i]
            x = min(max(slope * ancestors[e, i >> dimension], -1.0), 1.0) if slope > 0 else 0.0
            half = m * (1.0 + x) / 2.0
            out[2 * i] = out[2 * i] + half if again else half
            out[2 * i + 1] = out[2 * i + 1] + (m - half) if again else m - half
            error[i] += m
            if e >= kept:
                r[e - kept, i] = x
    for i in range(nodes):
        total, last = error[i], mass[epochs - 1, i]
        error[i] = (total if chance else 0.0) + total * total * left + last * last * newest


@numba.njit(cache=True, nogil=True)
def _placed(mass, at, ratios, errors, r, halves, error):  # type: ignore[no-untyped-def]
    """Divides the nodes that were read by their own ratios."""
    epochs = mass.shape[0]
    kept, told = epochs - r.shape[0], epochs - halves.shape[0]
    for k in range(at.size):
        i = at[k]
        error[i] = errors[k]
        for e in range(epochs):
            m, x, to = mass[e, i], ratios[e, k], max(e - told, 0)
            half = m * (1.0 + x) / 2.0
            again = 0 < e <= told
            halves[to, 2 * i] = (halves[to, 2 * i] if again else 0.0) + half
            halves[to, 2 * i + 1] = (halves[to, 2 * i + 1] if again else 0.0) + (m - half)
            if e >= kept:
                r[e - kept, i] = x


def _bordered(
    mass: FloatArray,
    region: Region,
    level: int,
    known: _Known,
    above: FloatArray,
    dimension: int,
    slope: float,
    r: FloatArray,
    halves: FloatArray,
    error: FloatArray,
) -> None:
    """Divides the nodes that the border of the region cuts: by what everybody knows, where nothing was read.

    In ``r`` is left how far their ratios are from those of an even spread in the region, for nodes below to follow.
    """
    cut, lean = region.cut[level], region.ratios[level]
    emptied = np.abs(lean) == 1
    own = emptied | ~np.isin(cut, known.nodes)
    at, even = cut[own], lean[own]
    trend = slope * above[:, at >> dimension] if slope > 0 else np.zeros((len(mass), at.size))
    guess = np.clip(even + trend, -1.0, 1.0)
    guess[:, emptied[own]] = even[emptied[own]]
    errors = np.where(emptied[own], 0.0, error[at])
    _placed(mass, at, guess, errors, r, halves, error)
    r[:, cut] -= lean
