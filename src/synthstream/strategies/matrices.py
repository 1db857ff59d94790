"""Factorisations A = B C of running sums that are accurate. The kernel computes what their C costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from scipy.optimize import brentq

from synthstream.accounting.powers import powers
from synthstream.kinds import Noise
from synthstream.strategies.blt_parameters import PARAMETERS
from synthstream.workload import FloatArray, IntArray

# Below these horizons the plainer counter is as good or better (docs/decisions/0002-counters.md).
_SIMPLE_PURE, _TOEPLITZ = 24, 32
# Far finer than any grid that C is rounded to, so that libraries that differ in the last digits make the same C of it.
_STEPS, _SETTLED, _ROUNDING, _NEAR = 500, 1e-13, 1e-9, 0.5


def best_counter(horizon: int | None, noise: Noise) -> str:
    """The kind of counter that is the most accurate for a horizon in ticks (``None``: no end) and a law of noise."""
    if noise == "laplace":
        return "simple" if horizon is not None and horizon <= _SIMPLE_PURE else "kary"
    return "toeplitz" if horizon is not None and horizon < _TOEPLITZ else "blt"


@cache
def best_arity(
    horizon: int, digits: Callable[[IntArray, int, int], list[IntArray]], levels: Callable[[int, int], int]
) -> int:
    """Odd k in 3..59 with the smallest mean variance, which grows as h^2 mean_n sum_l |d_l(n)|.

    The mean is taken over at most 4,096 evenly spread prefixes.

    Args:
        digits: the digits d of numbers n in base k, h of them.
        levels: h, by k and the horizon.
    """
    prefixes = np.unique(np.linspace(1, horizon, 4096).astype(np.int64))

    def mean_variance(k: int) -> float:
        h = levels(k, horizon)
        return h * h * sum(float(np.abs(d).mean()) for d in digits(prefixes, k, h))

    return min(range(3, 61, 2), key=mean_variance)


def nodes_of_prefix(digits: Sequence[int], arity: int) -> set[tuple[int, int]]:
    """Nodes, as (level, number), whose noise a prefix carries; a node's sign never changes, so this is enough.

    Args:
        digits: of the number of ticks of the prefix, signed, in base ``arity``, lowest first.
    """
    nodes, boundary = set[tuple[int, int]](), 0  # in nodes of this level
    for level in reversed(range(len(digits))):
        start, boundary = boundary * arity, boundary * arity + digits[level]
        nodes |= {(level, j) for j in range(min(start, boundary), max(start, boundary))}
    return nodes


def leaky_decoder(horizon: int) -> tuple[FloatArray, FloatArray]:
    """Weights w_k and decays lambda_k of b(x) = 1 + sum_k w_k / (1 - lambda_k x), for about so many ticks.

    In increasing order of the decays; the last one is 1. The first column of B has b as its generating function.
    """
    nearest = min(PARAMETERS, key=lambda size: abs(math.log(size / horizon)))
    times, weights = PARAMETERS[nearest]
    decays = np.array([*(math.exp(-1 / time) for time in times), 1.0])
    order = np.argsort(decays)
    return np.array(weights)[order], decays[order]


def leaky_encoder(weights: FloatArray, decays: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights r_i and decays mu_i of 1 / ((1 - x) b(x)) = sum_i r_i / (1 - mu_i x); b: see :func:`leaky_decoder`.

    The first column of C has it as its generating function.
    """

    def b_at(y: float) -> float:
        """b(1 / y); its zeros are the decays of C, one below each decay of B."""
        return float(1 + np.sum(weights * y / (y - decays)))

    edge = 8 * np.finfo(float).eps  # keeps the search off the poles
    lower = [0.0, *decays[:-1]]
    mu = np.array([brentq(b_at, a + edge, b - edge, xtol=1e-300) for a, b in zip(lower, decays, strict=True)])
    x = 1 / mu
    slope = np.array([np.sum(weights * decays / (1 - decays * at) ** 2) for at in x])
    return -mu / ((1 - x) * slope), mu


def leaky_column(weights: FloatArray, decays: FloatArray, ticks: int) -> FloatArray:
    """First column of B, shape ``(ticks,)``, for what is in :func:`leaky_decoder`."""
    column = np.asarray(np.sum(weights[:, None] * powers(decays, ticks), axis=0))
    column[0] += 1
    return column


def column_of_decoder(column: FloatArray) -> FloatArray:
    """First column of B = A C^-1 for a lower-triangular Toeplitz C of this first column, in its shape."""
    b = np.zeros(column.size)
    for j in range(column.size):
        b[j] = (1.0 - product(column[1 : j + 1], b[:j][::-1])) / column[0]
    return b


def product(a: FloatArray, b: FloatArray) -> float:
    """Inner product of two vectors: the rounded sum of the rounded products, on every processor the same."""
    return math.fsum(a * b)


def inverse(matrix: FloatArray) -> FloatArray:
    """That of a lower-triangular matrix, row by row, in one order."""
    found = np.eye(len(matrix))
    for i, row in enumerate(matrix):
        found[i] = (found[i] - np.sum(row[:i, None] * found[:i], axis=0)) / row[i]
    return found


@cache
def of_least_variance(weights: tuple[float, ...]) -> FloatArray:
    """The lower-triangular C with columns of norm 1 that has the least sum of weights times variances of A C^-1 z.

    With M = W^(1/2) A the problem is convex in X = C' C. At its optimum v = diag(R), where R is the square root of
    V^(1/2) M' M V^(1/2) and V = diag(v), and X = V^(-1/2) R V^(-1/2). So v is a fixed point: it is found by Newton's
    method in log v, begun by repetition. Source: Yuan, Yang, Zhang, Hao 2016 (the matrix mechanism's optimal strategy).
    """
    share = np.sqrt(np.array(weights) / np.sum(weights))
    m = share[:, None] * np.tril(np.ones((share.size, share.size)))
    log_v, last = np.log(np.sum(m**2, axis=0)), math.inf
    for _ in range(_STEPS):
        # Singular values, as the square of M would lose half of the digits of the small ones.
        _, r, rows = np.linalg.svd(m * np.exp(log_v / 2))
        root = (rows.T * r) @ rows
        gap = np.log(np.diag(root)) - log_v
        now = float(np.max(np.abs(gap)))
        if now < _SETTLED or last <= now < _ROUNDING:
            break
        # In the basis of R, entry i, j of its derivative is that of log V times (r_i^2 + r_j^2) / (2 (r_i + r_j)).
        factors = (r[:, None] ** 2 + r**2) / (r[:, None] + r) / 2
        products = (rows[:, k, None] * rows for k in range(r.size))
        slopes = np.array([np.sum(p * (factors @ p), axis=0) for p in products]) / np.diag(root)[:, None]
        log_v = log_v + (np.linalg.solve(np.eye(r.size) - slopes, gap) if now < min(last, _NEAR) else gap)
        last = now
    v = np.diag(root)
    x = root / np.sqrt(np.outer(v, v))
    return np.asarray(np.linalg.cholesky(x[::-1, ::-1])[::-1, ::-1].T)
