"""A random walk over epochs for every node of a level, seen through noise: see :mod:`synthstream.fit.tree`."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
UNKNOWN = 1 / 3


def slope(y: FloatArray, noise: FloatArray, guess: FloatArray) -> float:
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


class Smoothed(NamedTuple):
    """Estimates of a random walk over epochs.

    Args:
        values: shape ``(epochs, nodes)``.
        left, newest: roughly, the variance that remains in all epochs together, and in the newest epoch's own step,
            shapes ``(nodes,)``.
        prior: variance of each node's values before anything was read of it, shape ``(nodes,)``.
    """

    values: FloatArray
    left: FloatArray
    newest: FloatArray
    prior: FloatArray


def smoothed(y: FloatArray, noise: FloatArray, caution: float) -> Smoothed:
    """Estimates from noisy values, shape ``(epochs, nodes)``; noise is infinite where there is none."""
    none = np.zeros(y.shape[1])
    known = [e for e in range(len(y)) if np.isfinite(noise[e]).any()]
    if not known:
        return Smoothed(np.zeros_like(y), none + UNKNOWN, none, none)
    walk = _walk(y, noise, known, caution)
    prior, highest = _prior(y, noise, known, caution)
    left = 1 / (1 / highest + (1 / noise[known]).sum(axis=0))
    if walk == 0 and not prior.any():
        return Smoothed(np.zeros_like(y), left, none, prior)
    newest = none if walk == 0 else 1 / (1 / walk + 1 / noise[-1])
    return Smoothed(_kalman(y, noise, prior, walk), left, newest, prior)


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
    excess, weights = (float(total) for total in _changes(y, noise, pairs))
    if weights <= 0:
        return 0.0
    return max(0.0, (excess - caution * math.sqrt(_SQUARE * weights)) / weights)


@numba.njit(cache=True, nogil=True)
def _changes(y, noise, pairs):  # type: ignore[no-untyped-def]
    """Sums over nodes and pairs of epochs, each weighted by its squared precision: squared changes less noise; the
    weights, which are also the squares of weighted noise.
    """
    excess = weights = 0.0
    for k in range(pairs.shape[0]):
        a, b = pairs[k, 0], pairs[k, 1]
        for i in range(y.shape[1]):
            explained = noise[a, i] + noise[b, i]
            if explained < np.inf:
                precision = 1.0 / explained
                change = y[b, i] - y[a, i]
                excess += precision * precision * (change * change - explained)
                weights += precision * precision
    return excess, weights


def _prior(y: FloatArray, noise: FloatArray, known: Sequence[int], caution: float) -> tuple[FloatArray, FloatArray]:
    """Variance of a node's ratio around its guess, by moments over nodes of like precision, and the highest that the
    readings allow; shape ``(nodes,)``.
    """
    bins, excess, number, squares = _pooled(y, noise, np.array(known))
    spread = np.sqrt(_SQUARE * squares)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(number > 0, (excess - caution * spread) / number, 0.0)
        high = np.where(number > 0, (excess + _LIKELY * spread) / number, UNKNOWN)
    return np.clip(low, 0.0, 1.0)[bins], np.clip(high, 1e-12, UNKNOWN)[bins]


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
