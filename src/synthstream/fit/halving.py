"""Masses of nodes are divided between their halves, epoch by epoch: compiled, in an order of sums that never changes.

First what was read of a node is weighed, then the node is divided.
Halves that are no longer told apart by epoch are summed up as they are made: if ``told`` of the first epochs have no
reading further down, their halves and those of the next one are one row.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from synthstream.workload import FloatArray, IntArray

# For a node without mass whose halves are not bounded by it: what was read is told in parts of its mass.
NEXT_TO_NONE = 1e-12
# Cells of subtrees that are divided at the same time: their masses in all epochs fit into a core's own cache.
_AT_ONCE = 2**12


class Levels(NamedTuple):
    """How nodes that nobody read are divided, by level.

    Args:
        slopes: factor of their ancestors' ratios, shape ``(depth,)``.
        left, newest: variance of their ratios, in all epochs together and in the newest one's own step; same shape.
        chance: whether chance adds to their error.
        epochs: told apart in each level, and below the last one, shape ``(depth + 1,)``.
        raised: whether masses of 0 count as next to none.
        since: whether the first epoch informs the others alone, and its mass does not count.
    """

    slopes: FloatArray
    left: FloatArray
    newest: FloatArray
    chance: bool
    epochs: IntArray
    raised: bool
    since: bool


@numba.njit(cache=True, nogil=True)
def divided(mass, read, ratios, errors, above, slope, left, newest, chance, told):  # type: ignore[no-untyped-def]
    """Divides nodes of a level: those at positions ``read`` by their own ratios, others by their ancestors'.

    Returns the ratios and the masses of the halves, shapes ``(epochs, nodes)`` and ``(epochs - told, 2 * nodes)``; the
    expected squared error of left minus right; how far the newest two epochs are apart, times the newest mass. All but
    the mass come in the order of C: for each other order in memory, all of this is compiled anew.
    """
    epochs, nodes = mass.shape
    r, halves, error = np.empty_like(mass), np.empty((epochs - told, 2 * nodes)), np.empty(nodes)
    apart, k = 0.0, 0
    for i in range(nodes):
        own = k < read.size and read[k] == i
        total = 0.0
        for e in range(epochs):
            m = mass[e, i]
            x = min(max(slope * above[e, i], -1.0), 1.0) if slope > 0 else 0.0
            if own:
                x = ratios[e, k]
            half = m * (1.0 + x) / 2.0
            r[e, i] = x
            total += m
            if 0 < e <= told:
                halves[0, 2 * i] += half
                halves[0, 2 * i + 1] += m - half
            else:
                halves[max(e - told, 0), 2 * i] = half
                halves[max(e - told, 0), 2 * i + 1] = m - half
        last = mass[epochs - 1, i]
        if own:
            error[i] = errors[k]
            k += 1
        else:
            error[i] = (total if chance else 0.0) + total * total * left + last * last * newest
        if epochs > 1:
            apart += last * abs(r[epochs - 1, i] - r[epochs - 2, i])
    return r, halves, error, apart


@numba.njit(cache=True, nogil=True)
def spread_out(nodes, mass, above, level, levels, masses, errors, apart):  # type: ignore[no-untyped-def]
    """Divides nodes of which nothing was read, down to the cells. In one such node all of a level have one ratio.

    Args:
        nodes: of ``level``, shape ``(n,)``.
        mass: shape ``(epochs, n)``.
        above: ratios of their ancestors in the levels just above, one for each coordinate, shape
            ``(dimension, epochs, n)``; empty if no level has a slope.
        levels: a :class:`Levels`.
        masses: of cells, to be filled in.
        errors: of nodes of all levels, to be filled in.
        apart: by level, how far the newest two epochs are apart, times the newest mass: to be added to.
    """
    slopes, left, newest, chance, epochs, raised, since = levels
    depth, most = slopes.size, mass.shape[0]
    deeper, dimension = depth - level, above.shape[0]
    # Several at a time, side by side: loops over few numbers take longer than their arithmetic.
    many = max(_AT_ONCE >> deeper, 1)
    turns, total = np.empty((2, most, many << deeper)), np.empty(many << deeper)
    ratios, even = np.zeros((deeper, most, many)), not np.any(slopes[level:] > 0)
    for begin in range(0, nodes.size, many):
        here, width = nodes[begin : begin + many], 1
        n = here.size
        now, after = turns[0], turns[1]
        now[:, :n] = mass[:, begin : begin + n]
        for j in range(deeper):
            rows, slope = epochs[level + j], slopes[level + j]
            first, told = most - rows, rows - epochs[level + j + 1]
            if slope > 0:
                for e in range(first, most):
                    for i in range(n):
                        guide = above[j, e, begin + i] if j < dimension else ratios[j - dimension, e, i]
                        ratios[j, e, i] = min(max(slope * guide, -1.0), 1.0)
                if rows > 1:
                    for i in range(n):
                        moved = abs(ratios[j, most - 1, i] - ratios[j, most - 2, i])
                        apart[level + j] += mass[most - 1, begin + i] * moved
            if raised:
                _raised(now[:rows], width * n)
            _erred(now[:rows], width * n, left[level + j], newest[level + j], chance, total)
            _placed(total, here, width, 2**j, errors[2 ** (level + j) : 2 ** (level + j + 1)])
            _halved(now[:rows], n, 0 if even else width, ratios[j, first:], told, after)
            now, after, width = after, now, width if even else 2 * width
        total[: width * n] = now[1 if since else 0, : width * n]
        for e in range(2 if since else 1, epochs[depth]):
            for k in range(width * n):
                total[k] += now[e, k]
        _placed(total, here, width, 2**deeper, masses)


@numba.njit(cache=True, nogil=True)
def _raised(mass, size):  # type: ignore[no-untyped-def]
    for e in range(mass.shape[0]):
        for k in range(size):
            if mass[e, k] == 0:
                mass[e, k] = NEXT_TO_NONE


@numba.njit(cache=True, nogil=True)
def _erred(mass, size, left, newest, chance, out):  # type: ignore[no-untyped-def]
    """Expected squared errors of nodes by their masses."""
    out[:size] = 0.0
    for e in range(mass.shape[0]):
        for k in range(size):
            out[k] += mass[e, k]
    for k in range(size):
        total, last = out[k], mass[mass.shape[0] - 1, k]
        out[k] = (total if chance else 0.0) + total * total * left + last * last * newest


@numba.njit(cache=True, nogil=True)
def _halved(mass, n, width, ratios, told, out):  # type: ignore[no-untyped-def]
    """Halves of ``width`` nodes in each of ``n`` subtrees; if that is 0 both halves are the same, and one will do."""
    for e in range(mass.shape[0]):
        own, halves, again = mass[e], out[max(e - told, 0)], 0 < e <= told
        factors = 1.0 + ratios[e, :n]
        if not again:
            halves[: max(2 * width, 1) * n] = 0.0  # a mass added to 0 is that mass
        for w in range(max(width, 1)):
            left, right = halves[2 * w * n : (2 * w + 1) * n], halves[(2 * w + 1) * n : (2 * w + 2) * n]
            here = own[w * n : (w + 1) * n]
            if width:
                for i in range(n):
                    half = here[i] * factors[i] / 2.0
                    left[i] += half
                    right[i] += here[i] - half
            else:
                for i in range(n):
                    left[i] += here[i] * factors[i] / 2.0


@numba.njit(cache=True, nogil=True)
def _placed(values, nodes, width, size, out):  # type: ignore[no-untyped-def]
    """Values of ``width`` nodes, or of one for all ``size``, in each subtree, to where they belong in their level."""
    for i in range(nodes.size):
        own = out[nodes[i] * size : (nodes[i] + 1) * size]
        if width == size:
            for w in range(size):
                own[w] = values[w * nodes.size + i]
        else:
            own[:] = values[i]


@numba.njit(cache=True, nogil=True)
def observed(differences, variance, counted):  # type: ignore[no-untyped-def]
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
def blended(y, trend, mass, counted, variance, left, newest, alone):  # type: ignore[no-untyped-def]
    """Moves the trend of each node towards its reading, by the part of the variance that is chance and not noise; and
    to where all is in one half, by the chance that it is: there is no chance in how its events are divided.
    """
    epochs, nodes = y.shape
    r, error = np.empty_like(y), np.empty(nodes)
    for i in range(nodes):
        foretold = squared = last = expected = guess = 0.0
        sided, mixed = alone[0, i] - alone[1, i], 1.0 - alone[0, i] - alone[1, i]
        for e in range(epochs):
            m, c = mass[e, i], counted[e, i] if variance[e, i] < np.inf else 0.0
            guess = min(max(trend[e, i], -1.0), 1.0)
            expected = sided + mixed * guess
            own = c * mixed / (c * mixed + variance[e, i]) if c > 0 else 0.0
            r[e, i] = expected
            if own > 0:
                r[e, i] = min(max(expected + own * (y[e, i] - expected) * c / m, -1.0), 1.0)
                squared += own * variance[e, i]
            squared += m - c
            last = m - own * c
            foretold += last
        doubt = 1.0 - mixed + mixed * guess**2 - expected**2  # between the kinds that it may be of, in the last epoch
        error[i] = squared + foretold * foretold * (mixed * left[i] + doubt) + last * last * newest[i]
    return r, error
