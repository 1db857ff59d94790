"""What all pairs of columns have in common: a hidden variable shows in every table, and in none of them above noise.

The associations of all pairs side by side are one symmetric matrix over the values of all columns. What few hidden
variables explain of it has low rank, and grows with the number of columns; noise spreads over all directions, and grows
with the square root of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthstream.fit.targets import SMALLEST
from synthstream.workload import FloatArray, Workload

# Directions that are looked for at most, and steps of the search for them.
_RANK, _STEPS = 32, 12
# The search ends early where nothing comes near the edge of the noise.
_LOOK, _NEAR = 4, 0.7
# Rows of a matrix that are made orthonormal at once.
_TALL = 128
# Tables of a column with itself are not known: found directions fill them in, so many times.
_FILLS = 3
# Parts of a direction are rounded to so many steps.
_PRECISION = 2**20
# At least this share of all pairs must be known.
_KNOWN = 0.5


class Common(NamedTuple):
    """What the pairs have in common.

    Args:
        means: by position in the workload, the part of a pair's association that is explained.
        errors: variance of the noise that is left in a cell of it.
    """

    means: dict[int, FloatArray]
    errors: dict[int, float]


NOTHING = Common({}, {})


def slope(margin: FloatArray) -> FloatArray:
    """The direction along which a column's part in an association lies if it rises or falls evenly with the codes.

    That is what grades, bins of a number and parts of a date do that go along with a hidden variable. Shape ``(size,
    1)``, of length 1 and with the sum 0, but for rounding; all 0 if there is but one code.

    Example:
        >>> slope(np.array([1.0, 1.0, 1.0])).ravel().round(3).tolist()
        [-0.707, 0.0, 0.707]
    """
    codes = np.arange(margin.size)
    weights = np.maximum(margin, 0.0) / max(float(np.maximum(margin, 0.0).sum()), SMALLEST)
    found = weights * (codes - float(weights @ codes))
    found /= max(float(np.sqrt(found @ found)), SMALLEST)
    return np.asarray(np.round(found * _PRECISION) / _PRECISION)[:, None]  # for the reason below


def common(
    workload: Workload,
    associations: dict[int, FloatArray],
    variance: FloatArray,
    *,
    along: Sequence[FloatArray] | None = None,
    caution: float = 2.0,
) -> Common:
    """Explained parts of the pairs' associations: none where nothing stands out of the noise.

    Args:
        associations: of each pair, by position in the workload; all sums over rows and columns 0.
        variance: of the noise of a cell, of each marginal.
        along: of each column, orthonormal directions that associations are looked at along, shape ``(size, number)``;
            left out: all. Noise of the fewer directions hides less.
        caution: how far beyond the noise's edge an eigenvalue must lie. At 2 noise alone hardly ever does, at .5 in one
            look of twenty.
    """
    pairs = {q: workload.marginals[q] for q in associations if len(workload.marginals[q]) == 2}
    columns = sorted({c for pair in pairs.values() for c in pair})
    if len(columns) < 3 or len(pairs) < _KNOWN * len(columns) * (len(columns) - 1) / 2:
        return NOTHING
    number = {c: workload.sizes[c] if along is None else along[c].shape[1] for c in columns}
    ends = np.cumsum([number[c] for c in columns])
    place = {c: slice(int(end) - number[c], int(end)) for c, end in zip(columns, ends, strict=True)}
    matrix, known = np.zeros((ends[-1], ends[-1])), np.zeros((ends[-1], ends[-1]), dtype=np.bool_)
    for q, (a, b) in pairs.items():
        # Every cell in units of its noise.
        seen = associations[q] if along is None else along[a].T @ associations[q] @ along[b]
        matrix[place[a], place[b]] = seen / np.sqrt(variance[q])
        matrix[place[b], place[a]] = matrix[place[a], place[b]].T
        known[place[a], place[b]] = known[place[b], place[a]] = True
    # The largest eigenvalue of noise alone: Wigner's edge, and something for its own variation (Tracy and Widom 1994).
    freedom = sum(number[c] - (along is None) for c in columns)  # of all of a column's codes the sum is known
    edge = 2 * np.sqrt(freedom) * (1 + caution * max(freedom, 1) ** (-2 / 3))
    values, vectors = _outstanding(matrix, edge, _start(len(matrix)))
    if values.size == 0:
        return NOTHING
    for _ in range(_FILLS):
        filled = np.where(known, matrix, (vectors * values) @ vectors.T)
        values, vectors = _outstanding(filled, edge, _start(len(matrix)))
        if values.size == 0:
            return NOTHING
    means, errors, share = {}, {}, min(1.0, 2 * values.size / freedom)
    for q, (a, b) in pairs.items():
        found = (vectors[place[a]] * values) @ vectors[place[b]].T
        errors[q] = share * variance[q] * (found.size / associations[q].size)
        # Rounded: the last bits of a matrix product depend on the number of threads.
        means[q] = np.round(found * 64) / 64 * np.sqrt(variance[q])
        if along is not None:
            means[q] = along[a] @ means[q] @ along[b].T
    return Common(means, errors)


def _start(size: int) -> FloatArray:
    """Vectors in directions of no meaning, the same at each call, shape ``(size, _RANK)`` or less."""
    rank = min(_RANK, size)
    return np.asarray(np.cos(np.arange(1, size * rank + 1) ** 2 % 1013).reshape(size, rank))


def orthonormal(vectors: FloatArray) -> FloatArray:
    """Orthonormal vectors that span the same, shape ``(size, number)``; the number is far below ``_TALL``.

    Few rows at a time, then what is left of each (TSQR; Demmel and others 2012): of a tall matrix a library of matrices
    gives the smallest steps to threads, and beside another busy process each of these waits.
    """
    size, number = vectors.shape
    if size <= _TALL:
        return np.linalg.qr(vectors)[0]
    parts = np.zeros((-(-size // _TALL) * _TALL, number))
    parts[:size] = vectors
    each, rest = np.linalg.qr(parts.reshape(-1, _TALL, number))
    return np.asarray((each @ orthonormal(rest.reshape(-1, number)).reshape(rest.shape)).reshape(parts.shape)[:size])


def _outstanding(matrix: FloatArray, edge: float, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues beyond the edge, less what noise adds to them, and their vectors, by subspace iteration."""
    for step in range(_STEPS):
        vectors = orthonormal(matrix @ vectors)
        if step == _LOOK and np.abs(np.linalg.eigvalsh(vectors.T @ matrix @ vectors)).max() < _NEAR * edge:
            break
    values, turn = np.linalg.eigh(vectors.T @ matrix @ vectors)
    beyond = np.abs(values) > edge
    less = np.sign(values) * np.sqrt(np.maximum(values**2 - edge**2, 0.0))
    return less[beyond], (vectors @ turn)[:, beyond]
