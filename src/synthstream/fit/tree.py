"""From noisy differences in the nodes of a partition, epoch by epoch, to the mass of every cell. Post-processing.

For every epoch and node, from the top down, r = (left - right) / node is estimated; the halves of a node of mass m hold
m (1 + r) / 2 and m (1 - r) / 2. What is known of r before it is measured comes from other nodes (empirical Bayes; see
Morris 1983 for the method):

- r looks like that of the ancestor that was cut along the same coordinate, times one factor for the whole level;
- from epoch to epoch it moves by a random walk, of one step size for the whole level;
- what is left is around 0, of one variance for nodes of like mass;
- or one half is empty in all epochs: see :mod:`synthstream.fit.alone`;
- nodes that nobody read lean towards their fuller neighbours: see :mod:`synthstream.leaning`.

All of it is estimated by moments from the released differences. A Kalman filter and smoother (Rauch, Tung, Striebel
1965) over the epochs then weighs them against noise and chance, node by node. Chance is that of so many events, each of
which goes left or right on its own: where it is larger than the noise, an epoch's reading says more than the trend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from synthstream.fit.alone import alone
from synthstream.fit.halving import NEXT_TO_NONE, Levels, blended, divided, observed, spread_out
from synthstream.fit.walk import CAUTION, UNKNOWN, slope, smoothed
from synthstream.leaning import leant
from synthstream.partition import Region, halves
from synthstream.workload import FloatArray, IntArray

# With so many levels left, or fewer, nodes of which nobody read anything, here or below, are set aside.
_LAST = 10


class NodeReading(NamedTuple):
    """Left minus right in nodes of a level.

    Args:
        differences: shape ``(n,)``.
        variance: of the noise of each: one for all, or one for each node, infinite where nothing was read.
        events: number of events that they count, of those of their epoch.
        nodes: which, increasing, shape ``(n,)``; ``None`` for all.
    """

    differences: FloatArray
    variance: float | FloatArray
    events: float
    nodes: IntArray | None = None

    def read(self) -> tuple[IntArray, FloatArray, float | FloatArray]:
        """The nodes of which something was read, their differences, and the variance of each, or one for all."""
        if self.nodes is not None:
            return self.nodes, self.differences, self.variance
        if np.ndim(self.variance) == 0:
            return np.arange(self.differences.size), self.differences, self.variance
        nodes = np.flatnonzero(np.isfinite(self.variance))
        return nodes, self.differences[nodes], np.asarray(self.variance)[nodes]


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
        uneven: variance of (left - right) / node where nobody read, without shrinkage: that of the last level read.
    """

    masses: FloatArray
    errors: FloatArray
    moving: float
    uneven: float = UNKNOWN


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

    Time: O(2^depth) times the number of epochs that reach a level, which for epochs of growing depth is small. Memory:
    that of the result, and of what was read.
    """
    mass, last, epochs, spans = _begun(spans, depth, since)
    read = [_read(level, spans, region) for level in range(depth)]
    kept, aside, ratios = _kept(read, region), list[_Aside](), list[FloatArray]()
    slopes, left, newest = np.zeros((3, depth))
    levels = Levels(slopes, left, newest, shrink, np.array(epochs), not (shrink or bounded), since > 0)
    errors, moved = np.zeros(2**depth), np.zeros(depth)
    for level, nodes in enumerate(kept):
        above, at = np.zeros(mass.shape), np.searchsorted(nodes, read[level])
        if shrink and level >= dimension:
            above = ratios[-dimension][:, np.searchsorted(kept[level - dimension], nodes >> dimension)]
        if levels.raised:
            mass[(mass == 0) & (True if region is None else region.live(level))] = NEXT_TO_NONE
        known = _gathered(level, spans, read[level], partly=region is not None)
        own = known.beside(mass[:, at], 1.0)
        lean = None if region is None else known.beside(region.leaning(level, nodes[at])[None], 0.0)[0]
        guide = known.beside(above[:, at], 0.0)
        before = left[level - 1] if level else UNKNOWN
        how = _ratios(own, known, guide, caution, lean) if shrink else _plain(own, known, bounded, lean, before)
        slopes[level], left[level], newest[level] = unread = how[2:]
        fewer = epochs[level] - epochs[level + 1]
        theirs = _bordered(region, level, mass, above, at, how, shrink)
        r, mass, error, moved[level] = divided(mass, *theirs, np.ascontiguousarray(above), *unread, shrink, fewer)
        if region is not None:
            r[:, region.cut[level]] -= region.ratios[level]  # nodes below follow how far they are from even
        errors[2**level + nodes] = error
        ratios, spans = [one[fewer:] for one in [*ratios, r][-dimension:]], _merged(spans, epochs[level + 1])
        if level + 1 < depth:
            mass = _set_aside(mass, kept, level + 1, ratios if shrink else [], dimension, aside)
    found = np.empty(2**depth)
    found[halves(kept[-1]) if kept else slice(None)] = (mass[1:] if since else mass).sum(axis=0)
    for these in aside:
        spread_out(*these, levels, found, errors, moved)
    if shrink and region is None:
        found = leant(found, read, dimension)
    moved *= 2.0 ** -(np.arange(depth) // dimension) / 2
    uneven = UNKNOWN if shrink or not depth else float(left[-1])
    return Estimate(found, errors, float(moved.sum()) / last if shrink or bounded else 0.0, uneven)


def _begun(spans: Sequence[Span], depth: int, since: int) -> tuple[FloatArray, float, list[int], Sequence[Span]]:
    """Mass of each epoch, shape ``(epochs, 1)``, and of the last; how many epochs each level tells apart; the epochs,
    those taken together that no level tells apart.
    """
    mass = np.array([[max(span.events, 0.0)] for span in spans])
    last = max(float(mass[-1, 0]), 1e-9)
    epochs = [*_told_apart(spans, depth, since), len(spans) - since + 1 if since else 1]
    if epochs[0] < len(spans):
        done = len(spans) - epochs[0] + 1
        mass, spans = np.concatenate([mass[:done].sum(axis=0)[None], mass[done:]]), _merged(spans, epochs[0])
    return mass, last, epochs, spans


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


def _read(level: int, spans: Sequence[Span], region: Region | None) -> IntArray:
    """Nodes of which any epoch read something that is not known anyhow, increasing."""
    read = [span.readings[level].read()[0] for span in spans if level in span.readings]
    if region is not None:
        found = _any(level, read)
        return np.setdiff1d(found[region.live(level)[found]], region.emptied(level), assume_unique=True)
    whole = next((own for own in read if own.size == 2**level), None)
    return _any(level, read) if whole is None else whole


def _any(level: int, nodes: Sequence[IntArray]) -> IntArray:
    """Nodes of a level that are in any of several vectors, increasing."""
    found = np.zeros(2**level, dtype=np.bool_)
    for own in nodes:
        found[own] = True
    return np.flatnonzero(found)


def _kept(read: Sequence[IntArray], region: Region | None) -> list[IntArray]:
    """By level, the nodes that are kept by epoch: those that were read, and all on the way to them.

    Of a region all are: what nobody read below its border is not alike.
    """
    if region is not None:
        return [np.arange(2**level) for level in range(len(read))]
    found = [np.zeros(0, dtype=np.int64)]
    for level in reversed(range(len(read))):
        few = level > max(len(read) - _LAST, 0)
        found.append(_any(level, [read[level], found[-1] >> 1]) if few else np.arange(2**level))
    return found[:0:-1]


class _Aside(NamedTuple):
    """Nodes of which nothing was read, here or below: see :func:`spread_out`."""

    nodes: IntArray
    mass: FloatArray
    above: FloatArray
    level: int


def _set_aside(
    mass: FloatArray,
    kept: Sequence[IntArray],
    level: int,
    ratios: Sequence[FloatArray],
    dimension: int,
    aside: list[_Aside],
) -> FloatArray:
    """The masses of a level's nodes that are kept, of those of all halves of the level above; others go to ``aside``,
    with the ratios of the levels above, as many as there are coordinates.
    """
    both = halves(kept[level - 1])
    if kept[level].size == both.size:
        return mass
    at = np.searchsorted(both, kept[level])
    others = np.ones(both.size, dtype=np.bool_)
    others[at] = False
    nodes = both[others]
    above = np.zeros((dimension, len(mass), nodes.size if ratios else 0))
    for up, r in enumerate(reversed(ratios), 1):
        above[dimension - up] = r[:, np.searchsorted(kept[level - up], nodes >> up)]
    aside.append(_Aside(nodes, np.ascontiguousarray(mass[:, others]), above, level))
    return mass[:, at]


class _Known(NamedTuple):
    """What was read of the nodes of a level that any epoch read; most of a deep level are read by none.

    All that no epoch read are alike. Up to two stand for them, in the last places.

    Args:
        differences: shape ``(epochs, read)``; 0 where nothing was read.
        variance: in the same shape; infinite there.
        share: of each epoch's events, how many its readings count; 0 if it has none, shape ``(epochs,)``. Below 0 if
            they may hold more events of before than there are.
        missed: how many events at most its readings count too few, or too many; without end if it has none, in the
            same shape.
    """

    differences: FloatArray
    variance: FloatArray
    share: FloatArray
    missed: FloatArray

    def beside(self, values: FloatArray, other: float) -> FloatArray:
        """Values of the nodes that were read, and another one in the last places."""
        if values.shape == self.differences.shape:
            return values
        found = np.full(self.differences.shape, other)
        found[:, : values.shape[1]] = values
        return found


class _Halved(NamedTuple):
    """How nodes are divided.

    Args:
        ratios: (left - right) / node of the nodes that were read, shape ``(epochs, read)``.
        error: expected squared error of their left minus right, shape ``(read,)``.
        slope: of other nodes, the factor of their ancestors' ratios.
        left, newest: variance of their ratios, in all epochs together and in the newest one's own step.
    """

    ratios: FloatArray
    error: FloatArray
    slope: float
    left: float
    newest: float


def _gathered(level: int, spans: Sequence[Span], nodes: IntArray, *, partly: bool) -> _Known:
    # A single one would not do: sums over the epochs of one alone would be in another order.
    places = nodes.size + min(2, 2**level - nodes.size)
    differences, variance = np.zeros((len(spans), places)), np.full((len(spans), places), np.inf)
    share, missed = np.zeros(len(spans)), np.full(len(spans), np.inf)
    for e, span in enumerate(spans):
        if (reading := span.readings.get(level)) is not None:
            own, values, noise = reading.read()
            if partly:  # what is known without a reading is left out
                told = np.isin(own, nodes)
                own, values = own[told], values[told]
                noise = noise if np.ndim(noise) == 0 else np.asarray(noise)[told]
            at = slice(own.size) if own.size == nodes.size else np.searchsorted(nodes, own)
            differences[e, at], variance[e, at] = values, noise
            share[e], missed[e] = reading.events / max(span.events, 1e-9), max(span.events - reading.events, 0.0)
    return _Known(differences, variance, share, missed)


def _unevenness(mass: FloatArray, known: _Known, lean: FloatArray | None, above: float) -> float:
    """Variance of the ratios of nodes that nobody read: that of those that somebody read, by moments, where it is more.

    Events at a few addresses lie in one half or the other, at each level. Nodes have weight by how far their events
    stand out of the noise. ``above``: that of the level above, where nothing was read.
    """
    counted = mass * np.clip(known.share, 0.0, 1.0)[:, None]
    squares, told = np.maximum(counted, 0.0) ** 2, np.isfinite(known.variance)
    noise = np.where(told, known.variance + np.maximum(counted, 0.0), 1.0)
    weight = np.where(told, squares / np.maximum(squares + noise, np.finfo(np.float64).tiny), 0.0)
    gap = known.differences if lean is None else known.differences - counted * lean
    whole = float(np.sum(weight * squares))
    return min(max(float(np.sum(weight * (gap**2 - noise))) / whole, UNKNOWN), 1.0) if whole > 0 else above


def _plain(mass: FloatArray, known: _Known, bounded: bool, lean: FloatArray | None, above: float) -> _Halved:
    """Differences as they were read, in parts of the nodes' masses; other nodes are cut in halves."""
    uneven = _unevenness(mass, known, lean, above)
    # What may count more events of before than there are tells nothing.
    unknown = np.isinf(known.variance) | (known.share < 0)[:, None]
    d = np.where(unknown, 0.0, known.differences)
    r = np.divide(np.clip(d, -mass, mass) if bounded else d, mass, out=np.zeros_like(mass), where=mass != 0)
    r = r if lean is None else np.where(unknown, lean, r)
    noise = sum(np.where(unknown, 0.0, known.variance))
    share, missed = np.minimum(known.share, 1.0)[:, None], known.missed[:, None]
    # Of an epoch of next to no events a node may hold many times as many, by noise; not so of those that were missed.
    unread = np.where(unknown, mass, np.clip((1 - share) * mass, -missed, missed)).sum(axis=0)
    return _Halved(r, noise + uneven * unread**2, slope=0.0, left=uneven, newest=0.0)


def _ratios(mass: FloatArray, known: _Known, ancestors: FloatArray, caution: float, lean: FloatArray | None) -> _Halved:
    """All readings of a level weighed against noise and each other. ``lean``: ratios of nodes even in a region."""
    variance = np.maximum(known.variance, 1e-9)
    counted = mass * np.clip(known.share, 0.0, 1.0)[:, None]
    y, noise = observed(known.differences, variance, counted)
    factor = slope(y if lean is None else y - lean, noise, ancestors)
    guess = ancestors * factor if lean is None else ancestors * factor + lean
    walk = smoothed(y - guess, noise, caution)
    one = alone(y, counted, variance, guess, walk.prior)
    r, error = blended(y, walk.values + guess, mass, counted, variance, walk.left, walk.newest, one)
    return _Halved(r, error, slope=factor, left=float(walk.left[-1]), newest=float(walk.newest[-1]))


def _bordered(
    region: Region | None,
    level: int,
    mass: FloatArray,
    above: FloatArray,
    at: IntArray,
    how: _Halved,
    chance: bool,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """The nodes of a level that were read, or that the border of a region cuts, with their ratios and errors."""
    if region is None:
        return at, np.ascontiguousarray(how.ratios), how.error
    cut, lean = region.cut[level], region.ratios[level]
    own = ~np.isin(cut, at)
    nodes, even = cut[own], lean[own]
    guess = np.clip(even + how.slope * above[:, nodes], -1.0, 1.0)
    known = np.abs(even) == 1
    guess[:, known] = even[known]
    total, last = mass[:, nodes].sum(axis=0), mass[-1, nodes]
    error = np.where(known, 0.0, (total if chance else 0.0) + total**2 * how.left + last**2 * how.newest)
    every = np.concatenate([at, nodes])
    order = np.argsort(every)
    ratios = np.concatenate([how.ratios[:, : at.size], guess], axis=1)[:, order]
    return every[order], np.ascontiguousarray(ratios), np.concatenate([how.error[: at.size], error])[order]
