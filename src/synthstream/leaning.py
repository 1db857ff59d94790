"""Nodes that nobody read, and bins, lean towards the fuller of their neighbours. Post-processing.

A node that holds too little to be read would be cut as its ancestors are. Around a town most such nodes are its edge:
their events lie in the half next to it. So what the nodes on both sides say of (left - right) / node, times one factor,
is added to what the ancestors say: as logarithms of odds, so that a half that is empty stays so. The nodes that were
read, above and on this level, tell the factor by least squares. It is about 0 where events lie at a few addresses,
whose neighbours know nothing of them.

Within a bin of numbers the density rises or falls exponentially, as the bins on both sides say. Tails mostly do, and no
share of a bin can become negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numba
import numpy as np

from synthstream.partition import sums
from synthstream.workload import CodeArray, FloatArray, IntArray

# Nodes that were read are the fuller ones, and their ratios are shrunk: those that were not lean so many times as much,
# but no more than their neighbours say.
_MORE, _MOST = 2.0, 1.0
# Beforehand the neighbours are thought to be right: as if so much had been read of it, in squares of ratios.
_BEFORE = 0.5
# How often a node's own mass counts beside its neighbours'.
_BETWEEN = 2.0
# Halvings of a bin that lean, each half as steeply as the one before; what is left is filled evenly.
_HALVINGS = 8
# Densities of two bins beside each other differ at most by e to this: an empty bin says no more than that.
_FARTHEST = 4.0
# Nor is a law steeper than this in the wider of the two, of which a tenth has nearly all then.
_STEEPEST = 20.0
# A bin so many times as wide as one beside it is told nothing by that: it holds some value, such as 0, alone.
_WIDER = 100.0
_FLAT = 1e-12
# Least width of a bin, as a part of the widest one's: what is below holds as little, in floats.
_NARROWEST = 1e-100
# Rows whose digits are drawn at once.
_AT_ONCE = 2**16


def leant(cells: FloatArray, read: Sequence[IntArray], dimension: int) -> FloatArray:
    """Masses of cells whose unread nodes lean towards their fuller neighbours; nodes that were read keep their ratios.

    Args:
        cells: masses, at least 0, shape ``(2**depth,)``.
        read: by level from the root's on, as far as any was read, the nodes that were, increasing.
        dimension: number of coordinates; splits take turns.

    Time: O(2^depth).

    Example:
        >>> leant(np.array([9.0, 9.0, 1.0, 1.0]), [np.array([0]), np.array([0])], 1).round(2).tolist()
        [9.0, 9.0, 1.57, 0.43]
    """
    levels = sums(cells)
    found, top, bottom = levels[0], 0.0, 0.0
    for level, (mass, halves) in enumerate(pairwise(levels)):
        own = np.zeros(mass.size, dtype=np.bool_)
        own[read[level] if level < len(read) else []] = True
        if level >= dimension:
            above, below = _told(mass, halves, own, found, dimension)
            top, bottom = top + above, bottom + below
        factor = min(max((_MORE * top + _BEFORE) / (bottom + _BEFORE), 0.0), _MOST) if level >= dimension else 0.0
        found = _divided(mass, halves, own, found, dimension, factor)
    return found


def halved(masses: FloatArray, dimension: int, factor: float) -> FloatArray:
    """Halves of nodes of one level of which nothing else is known: each leans so many times as its neighbours say."""
    none = np.zeros(masses.size, dtype=np.bool_)
    return np.asarray(_divided(masses, np.repeat(masses / 2, 2), none, masses, dimension, factor))


def steepness(held: IntArray, widths: FloatArray) -> FloatArray:
    """Logarithm of the last density in a bin by the first, shape ``(bins,)``, by how many rows each bin holds.

    Each bin and the next tell a rate: that of the exponential law with which they would hold as much. As many rows more
    as there are bins lie evenly over all. Where the rates on both sides of a bin have one sign, it has their harmonic
    mean; where one side tells nothing, as at an end, the other rate; elsewhere 0: a peak does not lean.

    Example:
        >>> steepness(np.array([799, 399, 199]), np.ones(3)).round(2).tolist()
        [-0.69, -0.69, -0.69]
        >>> steepness(np.array([9, 99, 9]), np.ones(3)).round(1).tolist()
        [2.3, 0.0, -2.3]
    """
    if held.size < 2:
        return np.zeros(held.size)
    widths = np.maximum(widths / widths.max(), _NARROWEST)  # no unit matters, nor is any too small or large for floats
    rates = _rates(np.diff(np.log(held / widths + 1 / widths.mean())), widths[:-1], widths[1:])
    before = np.append(np.nan, np.where(widths[:-1] * _WIDER < widths[1:], np.nan, rates))
    after = np.append(np.where(widths[1:] * _WIDER < widths[:-1], np.nan, rates), np.nan)
    before, after = (np.nan_to_num(np.where(np.isnan(a), b, a)) for a, b in ((before, after), (after, before)))
    mean = np.divide(2 * before * after, before + after, out=np.zeros(held.size), where=before * after > 0)
    return np.asarray(mean * widths)


def _rates(apart: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Rates of exponential laws whose mean densities in two bins beside each other have logarithms so far apart."""
    apart = np.clip(apart, -_FARTHEST, _FARTHEST)
    high = _STEEPEST / np.maximum(left, right)
    low = -high
    for _ in range(60):
        middle = (low + high) / 2
        small = _log_mean(middle * right) - _log_mean(-middle * left) < apart
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return np.asarray((low + high) / 2)


def _log_mean(steep: FloatArray) -> FloatArray:
    """Logarithm of the mean of exp over 0 to ``steep``."""
    steep = np.where(np.abs(steep) < _FLAT, _FLAT, steep)
    return np.asarray(np.log(np.expm1(steep) / steep))


def along(codes: CodeArray, steep: FloatArray, rng: np.random.Generator) -> FloatArray:
    """How far into its bin each row lies, from 0 to 1, shape ``(rows,)``.

    Of intervals of one width in a bin each has its halves in the same ratio, wherever it lies. So the digits of where a
    row lies are drawn one by one, the first for the halves of the bin. A row has draws of its own, by its number: if it
    stays in its bin it moves only where a draw lies between the share of a half before and that of now.

    Args:
        steep: see :func:`steepness`; 0 for codes without a bin; shape ``(codes,)``.
    """
    upper = 1 / (1 + np.exp(-steep[:, None] / 2.0 ** np.arange(1, _HALVINGS + 1)))
    found = np.empty(len(codes))
    for begin in range(0, len(codes), _AT_ONCE):
        some = codes[begin : begin + _AT_ONCE]
        found[begin : begin + len(some)] = _digits(rng.random((len(some), _HALVINGS + 1)), some, upper)
    return found


@numba.njit(cache=True, nogil=True)
def _digits(draws, codes, upper):  # type: ignore[no-untyped-def]
    """Numbers of which each digit is 1 with the probability of the row's code; the last draw is what follows them."""
    found = draws[:, -1].copy()
    for i in range(codes.size):
        for k in range(upper.shape[1] - 1, -1, -1):
            found[i] = ((draws[i, k] < upper[codes[i], k]) + found[i]) / 2
    return found


@numba.njit(cache=True, nogil=True)
def _told(mass, halves, read, found, dimension):  # type: ignore[no-untyped-def]
    """Sums over the nodes that were read: what their neighbours say times their ratio, and its square."""
    along, top, bottom = _along(mass.size, dimension), 0.0, 0.0
    for i in range(mass.size):
        if read[i] and mass[i] > 0 and found[i] > 0:
            lean = _lean(found, i, along, dimension)
            top += lean * (halves[2 * i] - halves[2 * i + 1]) / mass[i]
            bottom += lean * lean
    return top, bottom


@numba.njit(cache=True, nogil=True)
def _divided(mass, halves, read, found, dimension, factor):  # type: ignore[no-untyped-def]
    """Halves of the masses found: by the ratios of before, and of nodes that nobody read as they lean."""
    along, out = _along(mass.size, dimension), np.zeros(2 * mass.size)
    for i in range(mass.size):
        m = found[i]
        if m > 0:
            ratio = (halves[2 * i] - halves[2 * i + 1]) / mass[i] if mass[i] > 0 else 0.0
            if factor > 0 and not read[i] and -1.0 < ratio < 1.0:
                lean = factor * _lean(found, i, along, dimension)
                ratio = (ratio + lean) / (1.0 + ratio * lean)
            left = m * (1.0 + ratio) / 2.0
            out[2 * i] = left
            out[2 * i + 1] = m - left
    return out


@numba.njit(cache=True, nogil=True)
def _along(nodes, dimension):  # type: ignore[no-untyped-def]
    """The digits of a node's number that say where it lies along the coordinate at which its level is cut."""
    digit, along = 2 ** (dimension - 1), 0
    while digit < nodes:
        along |= digit
        digit <<= dimension
    return along


@numba.njit(cache=True, nogil=True)
def _lean(found, i, along, dimension):  # type: ignore[no-untyped-def]
    """(left - right) / node by the masses of the nodes on both sides; at the end of the box nothing is known beyond."""
    m, place, others, step = found[i], i & along, i & ~along, 2 ** (dimension - 1)
    before = found[((place - step) & along) | others] if place > 0 else m
    after = found[(((i | ~along) + step) & along) | others] if place < along else m
    return (before - after) / (before + _BETWEEN * m + after)
