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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np

from synthstream.workload import FloatArray

# An estimated variance counts as real only beyond this number of standard deviations of its own noise, where all nodes
# of a level are read.
CAUTION = 3.0
# The square of a Laplace draw has a variance of 5 times its squared mean.
_SQUARE = 5.0
# For error bars, variances are taken to be this number of standard deviations higher than estimated.
_LIKELY = 1.0
# Classes of nodes by precision, from 2^-8 and less to 2^24 and more.
_CLASSES = 33
# Variance of a ratio between -1 and 1 of which nothing is known.
_UNKNOWN = 1 / 3


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
        masses: of cells, float64, shape ``(2**depth,)``, at least 0, adding up to the mass of the root.
        errors: expected squared error of left minus right in each node, as far as this model knows it; node i of level
            j at position 2^j + i, so that shape is ``(2**depth,)`` and position 0 is empty.
        moving: a bound on the Wasserstein distance between the two newest epochs, in widths of the cube.
    """

    masses: FloatArray
    errors: FloatArray
    moving: float


def masses(
    spans: Sequence[Span], *, depth: int, dimension: int, shrink: bool = True, caution: float = CAUTION
) -> Estimate:
    """Mass of every cell over all epochs.

    Args:
        spans: epochs in order.
        depth: number of levels of the result; levels without any reading are cut in halves.
        dimension: number of coordinates; splits take turns.
        shrink: whether differences are weighed against noise and each other; otherwise each epoch is taken as it was
            read (theorem ``points-accuracy``).
        caution: a variance counts as real only beyond this number of standard deviations of its own noise.

    Time, memory: O(2^depth) times the number of epochs that reach a level, which for epochs of growing depth is small.
    """
    mass = np.array([[max(span.events, 0.0)] for span in spans])
    ratios: list[FloatArray] = []
    moved, last, errors = 0.0, max(float(mass[-1, 0]), 1e-9), [np.zeros(1)]
    for level in range(depth):
        done = max(_without_readings(spans, level), 1)
        if done > 1:  # from here on nothing tells these epochs apart
            mass = np.concatenate([mass[:done].sum(axis=0, keepdims=True), mass[done:]])
            spans = [Span(events=sum(span.events for span in spans[:done]), readings={}), *spans[done:]]
            ratios = [r[done - 1 :] for r in ratios]
        if shrink:
            ancestors = ratios[level - dimension] if level >= dimension else None
            r, error = _ratios(level, mass, spans, ancestors, dimension, caution)
        else:
            r, error = _plain(level, mass, spans)
        errors.append(error)
        ratios.append(r)
        if len(spans) > 1:
            moved += 2.0 ** -(level // dimension) / 2 * float(mass[-1] @ np.abs(r[-1] - r[-2])) / last
        if len(ratios) > dimension:
            ratios[level - dimension] = np.empty(0)  # no longer needed
        mass = _halves(mass, r)
    return Estimate(mass.sum(axis=0), np.concatenate(errors), moved)


def _without_readings(spans: Sequence[Span], level: int) -> int:
    """How many of the first epochs, the last one left out, have no reading from a level on."""
    deep = [any(read >= level for read in span.readings) for span in spans[:-1]]
    return deep.index(True) if True in deep else len(deep)


def _plain(level: int, mass: FloatArray, spans: Sequence[Span]) -> tuple[FloatArray, FloatArray]:
    """Differences as they were read, in parts of the nodes' masses, ``(epochs, nodes)``; their error, ``(nodes,)``."""
    read = [span.readings.get(level) for span in spans]
    d = np.array([np.zeros(2**level) if reading is None else reading.differences for reading in read])
    r = np.divide(np.clip(d, -mass, mass), mass, out=np.zeros_like(mass), where=mass > 0)
    variance = [np.inf if reading is None else reading.variance for reading in read]
    noise = sum(np.where(np.isinf(one), 0.0, one) for one in variance)
    parts = [0.0 if x is None else min(x.events / max(y.events, 1e-9), 1.0) for x, y in zip(read, spans, strict=True)]
    share = np.array([np.where(np.isinf(v), 0.0, p) + np.zeros(2**level) for v, p in zip(variance, parts, strict=True)])
    unread = ((1 - share) * mass).sum(axis=0)
    return r, noise + _UNKNOWN * unread**2


def _ratios(
    level: int, mass: FloatArray, spans: Sequence[Span], ancestors: FloatArray | None, dimension: int, caution: float
) -> tuple[FloatArray, FloatArray]:
    """(left - right) / node of every epoch and node, ``(epochs, nodes)``; error of left - right, ``(nodes,)``."""
    read = [span.readings.get(level) for span in spans]
    known = [np.inf if reading is None else np.maximum(reading.variance, 1e-9) for reading in read]
    variance = np.array([np.broadcast_to(one, 2**level) for one in known])
    pairs = zip(read, spans, strict=True)
    share = np.array([0.0 if reading is None else reading.events / max(span.events, 1e-9) for reading, span in pairs])
    counted = mass * np.clip(share, 0.0, 1.0)[:, None]
    d = np.array([np.zeros(2**level) if reading is None else reading.differences for reading in read])
    y, noise = _observed(d, variance, counted)
    guess = np.zeros_like(mass) if ancestors is None else np.repeat(ancestors, 2**dimension, axis=1)
    guess *= _slope(y, noise, guess)
    x, left, newest = _smoothed(y - guess, noise, caution)
    return _blended(y, x + guess, mass, counted, variance, left, newest)  # type: ignore[no-any-return]


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
def _halves(mass, r):  # type: ignore[no-untyped-def]
    """Masses of the halves of all nodes, side by side."""
    out = np.empty((mass.shape[0], 2 * mass.shape[1]))
    for e in range(mass.shape[0]):
        for i in range(mass.shape[1]):
            out[e, 2 * i] = mass[e, i] * (1.0 + r[e, i]) / 2.0
            out[e, 2 * i + 1] = mass[e, i] - out[e, 2 * i]
    return out


def _slope(y: FloatArray, noise: FloatArray, guess: FloatArray) -> float:
    """Factor by which ancestors predict a level: least squares, between 0 and 1."""
    top, bottom = (float(total) for total in _products(y, noise, guess))
    if bottom <= 0:
        return 0.0
    # sd of the estimate is 1 / sqrt(bottom)
    return min(max((top - math.sqrt(bottom)) / bottom, 0.0), 1.0)


@numba.njit(cache=True, nogil=True)
def _products(y, noise, guess):  # type: ignore[no-untyped-def]
    """Weighted sums of y times guess, and of guess squared."""
    top = bottom = 0.0
    for e in range(y.shape[0]):
        for i in range(y.shape[1]):
            weighted = guess[e, i] / noise[e, i]
            top += weighted * y[e, i]
            bottom += weighted * guess[e, i]
    return top, bottom


def _smoothed(y: FloatArray, noise: FloatArray, caution: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Estimates of a random walk over epochs from noisy values, shape ``(epochs, nodes)``. Also, roughly, the variance
    that remains in all epochs together, and in the newest epoch's own step, shapes ``(nodes,)``.
    """
    none = np.zeros(y.shape[1])
    known = [e for e in range(len(y)) if np.isfinite(noise[e]).any()]
    if not known:
        return np.zeros_like(y), none + _UNKNOWN, none
    walk = _walk(y, noise, known, caution)
    prior, highest = _prior(y, noise, known, caution)
    left = 1 / (1 / highest + (1 / noise[known]).sum(axis=0))
    if walk == 0 and not prior.any():
        return np.zeros_like(y), left, none
    out = _kalman(y, noise, prior, walk)
    return out, left, none if walk == 0 else 1 / (1 / walk + 1 / noise[-1])


@numba.njit(cache=True, nogil=True)
def _kalman(y, noise, prior, walk):  # type: ignore[no-untyped-def]
    """Filter forward, smooth backward, node by node."""
    epochs, nodes = y.shape
    out, means, variances = np.empty_like(y), np.empty(epochs), np.empty(epochs)
    for i in range(nodes):
        mean, variance = 0.0, prior[i]
        for e in range(epochs):
            if e > 0:
                variance += walk
            gain = variance / (variance + noise[e, i]) if variance > 0 else 0.0
            mean += gain * (y[e, i] - mean)
            variance *= 1.0 - gain
            means[e], variances[e] = mean, variance
        out[epochs - 1, i] = mean
        for e in range(epochs - 2, -1, -1):
            reach = variances[e] + walk
            back = variances[e] / reach if reach > 0 else 1.0
            out[e, i] = means[e] + back * (out[e + 1, i] - means[e])
    return out


def _walk(y: FloatArray, noise: FloatArray, known: Sequence[int], caution: float) -> float:
    """Variance of a step of the walk, from differences between neighbouring epochs."""
    pairs = np.array(list(pairwise(known)), dtype=np.int64).reshape(-1, 2)
    excess, weights, squares = (float(total) for total in _changes(y, noise, pairs))
    if weights <= 0:
        return 0.0
    return max(0.0, (excess - caution * math.sqrt(_SQUARE * squares)) / weights)


@numba.njit(cache=True, nogil=True)
def _changes(y, noise, pairs):  # type: ignore[no-untyped-def]
    """Sums over nodes and pairs of epochs, each weighted by its squared precision: squared changes less noise; the
    weights; the squares of weighted noise.
    """
    excess = weights = squares = 0.0
    for k in range(pairs.shape[0]):
        a, b = pairs[k, 0], pairs[k, 1]
        for i in range(y.shape[1]):
            explained = noise[a, i] + noise[b, i]
            if explained < np.inf:
                precision = 1.0 / explained
                change = y[b, i] - y[a, i]
                excess += precision * precision * (change * change - explained)
                weights += precision * precision
                squares += precision * precision
    return excess, weights, squares


def _prior(y: FloatArray, noise: FloatArray, known: Sequence[int], caution: float) -> tuple[FloatArray, FloatArray]:
    """Variance of a node's ratio around its guess, by moments over nodes of like precision, and the highest that the
    readings allow; shape ``(nodes,)``.
    """
    bins, excess, number, squares = _pooled(y, noise, np.array(known))
    spread = np.sqrt(_SQUARE * squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(number > 0, (excess - caution * spread) / number, 0.0)
        high = np.where(number > 0, (excess + _LIKELY * spread) / number, _UNKNOWN)
    return np.clip(low, 0.0, 1.0)[bins], np.clip(high, 1e-12, _UNKNOWN)[bins]


@numba.njit(cache=True, nogil=True)
def _pooled(y, noise, known):  # type: ignore[no-untyped-def]
    """Class of each node by the precision of its pooled ratio, in powers of two; by class, the sum of squared
    ratios less noise, the number of nodes, the sum of squared noise.
    """
    nodes = y.shape[1]
    bins, excess = np.zeros(nodes, dtype=np.int64), np.zeros(_CLASSES)
    number, squares = np.zeros(_CLASSES), np.zeros(_CLASSES)
    for i in range(nodes):
        precision = weighted = 0.0
        for e in known:
            precision += 1.0 / noise[e, i]
            weighted += y[e, i] / noise[e, i]
        if precision > 0:
            bins[i] = min(max(math.frexp(precision)[1] - 1 + 8, 0), _CLASSES - 1)
            explained, ratio = 1.0 / precision, weighted / precision
            excess[bins[i]] += ratio * ratio - explained
            number[bins[i]] += 1.0
            squares[bins[i]] += explained * explained
    return bins, excess, number, squares
