"""Nodes that have all of their events in one half: how likely each is one of them, by what was read. Post-processing.

Half a node is often empty: a sea, a forest, a price that nobody asks. The law that :mod:`synthstream.fit.walk` takes
ratios to have knows nothing of it, and leaves events where there are none. So here the prior has four parts: (left -
right) / node is 1 in all epochs; it is -1 in all epochs; one half holds little, some standard errors of what was read;
or it is what that law says. The third part keeps thin tails from being taken for nothing: what is not far from empty is
not called empty where many other nodes hold little. How many of a level's nodes are of which part is estimated from its
readings (empirical Bayes by the EM algorithm of Dempster, Laird and Rubin 1977; for priors with an atom see Johnstone
and Silverman 2004).

Noise is taken to have the t law of 7 degrees of freedom. Its tails are longer than those of the noise, so that a
single reading far off does not make a half empty; and it takes no exponential, whose last bits differ from machine
to machine.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from synthstream.workload import FloatArray

# What is thought of a level beforehand counts as one node: the chance that it has all in one half, and that it has
# nearly all there. The search begins with the second number.
_BEFORE, _FIRST = 0.1, 0.25
# How far ratios of the third part are from 1 or -1, in standard errors.
_NEAR = (2.0, 4.0)
# Of nodes with more noise than this, as a variance of ratios, nothing is told: all left is not far from even.
_MOST = 0.25
# A half is not empty if one epoch's reading is so many standard errors from that: events may have moved there.
_FAR = 5.0
# At most; fewer if the share of nodes moves by no more than this.
_ROUNDS, _STILL = 50, 1e-4


def alone(y: FloatArray, counted: FloatArray, variance: FloatArray, guess: FloatArray, prior: FloatArray) -> FloatArray:
    """Chance that all events of a node lie in its left half, and in its right half; shape ``(2, nodes)``.

    Args:
        y: ratios as they were read, shape ``(epochs, nodes)``.
        counted: events that each counts; 0 where nothing was read.
        variance: of the noise of left minus right.
        guess: the ratios that the law is around.
        prior: its variance, shape ``(nodes,)``.
    """
    found: FloatArray = _shared(_evidence(y, counted, variance, guess, prior))
    return found


@numba.njit(cache=True, nogil=True)
def _evidence(y, counted, variance, guess, prior):  # type: ignore[no-untyped-def]
    """Densities of what was read of each node, if all is left, if all is right, if nearly all is on one side, and
    otherwise; all 0 if too little was read.

    A node's readings are pooled by the precision that they have if there is no chance in them.
    """
    out = np.zeros((4, y.shape[1]))
    for i in range(y.shape[1]):
        precision = ratio = lead = chance = right = left = 0.0
        for e in range(y.shape[0]):
            c = counted[e, i]
            if c > 0 and variance[e, i] < np.inf:
                weight = c * c / variance[e, i]
                precision += weight
                ratio += weight * y[e, i]
                lead += weight * guess[e, i]
                chance += weight * weight / c
                left = max(left, weight * (y[e, i] - 1.0) ** 2)
                right = max(right, weight * (y[e, i] + 1.0) ** 2)
        if precision * _MOST > 1.0:
            noise, mean = 1.0 / precision, ratio / precision
            apart = mean - min(max(lead / precision, -1.0), 1.0)
            out[0, i] = _density(mean - 1.0, noise) if left <= _FAR**2 else 0.0
            out[1, i] = _density(mean + 1.0, noise) if right <= _FAR**2 else 0.0
            for far in _NEAR:
                out[2, i] += _density(abs(mean) - 1.0 + far * math.sqrt(noise), noise) / len(_NEAR)
            out[3, i] = _density(apart, noise + chance * noise * noise + prior[i])
    return out


@numba.njit(cache=True, nogil=True)
def _density(x, variance):  # type: ignore[no-untyped-def]
    """Of the t law of 7 degrees of freedom with this variance, up to a factor."""
    square = 1.0 + x * x / (5.0 * variance)
    square *= square
    return 1.0 / (math.sqrt(variance) * square * square)


@numba.njit(cache=True, nogil=True)
def _shared(density):  # type: ignore[no-untyped-def]
    """Chance of each node to be of the first two of four kinds, which are equally many; how many there are of the
    kinds is estimated.
    """
    out, number = np.zeros((2, density.shape[1])), float(np.sum(density[3] > 0))
    whole = nearly = _FIRST
    for _ in range(_ROUNDS):
        first = second = 0.0
        for i in range(density.shape[1]):
            if density[3, i] > 0:
                left, right, near = whole * density[0, i], whole * density[1, i], nearly * density[2, i]
                total = left + right + near + 2.0 * (1.0 - whole - nearly) * density[3, i]
                out[0, i], out[1, i] = left / total, right / total
                first += out[0, i] + out[1, i]
                second += near / total
        before, whole, nearly = whole, (first + _BEFORE) / (number + 1.0), (second + _BEFORE) / (number + 1.0)
        if abs(whole - before) <= _STILL:
            break
    return out
