"""What all pairs of columns have in common: a hidden variable shows in every table, and in none of them above noise.

The associations of all pairs side by side are one symmetric matrix over the values of all columns. What few hidden
variables explain of it has low rank, and grows with the number of columns; noise spreads over all directions, and grows
with the square root of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthstream.workload import FloatArray, Workload

# Directions that are looked for at most, and steps of the search for them.
_RANK, _STEPS = 32, 12
# The search ends early where nothing comes near the edge of the noise.
_LOOK, _NEAR = 4, 0.7
# Tables of a column with itself are not known: found directions fill them in, so many times.
_FILLS = 3
# At least this share of all pairs must be known.
_KNOWN = 0.5


class Common(NamedTuple):
    """What the pairs have in common.

    Args:
        means: by position in the workload, the part of a pair's association that is explained.
        share: of the noise of a cell that is left in it.
    """

    means: dict[int, FloatArray]
    share: float


def common(workload: Workload, associations: dict[int, FloatArray], variance: FloatArray) -> Common:
    """Explained parts of the pairs' associations: none where nothing stands out of the noise.

    Args:
        associations: of each pair, by position in the workload; all sums over rows and columns 0.
        variance: of the noise of a cell, of each marginal.
    """
    pairs = {q: workload.marginals[q] for q in associations if len(workload.marginals[q]) == 2}
    columns = sorted({c for pair in pairs.values() for c in pair})
    if len(columns) < 3 or len(pairs) < _KNOWN * len(columns) * (len(columns) - 1) / 2:
        return Common({}, 0.0)
    ends = np.cumsum([workload.sizes[c] for c in columns])
    place = {c: slice(int(end) - workload.sizes[c], int(end)) for c, end in zip(columns, ends, strict=True)}
    matrix, known = np.zeros((ends[-1], ends[-1])), np.zeros((ends[-1], ends[-1]), dtype=np.bool_)
    for q, (a, b) in pairs.items():
        # Every cell in units of its noise.
        matrix[place[a], place[b]] = associations[q] / np.sqrt(variance[q])
        matrix[place[b], place[a]] = matrix[place[a], place[b]].T
        known[place[a], place[b]] = known[place[b], place[a]] = True
    # The largest eigenvalue of noise alone: Wigner's edge, and a little for its own variation (Tracy and Widom 1994).
    freedom = sum(workload.sizes[c] - 1 for c in columns)
    edge = 2 * np.sqrt(freedom) * (1 + 2 * max(freedom, 1) ** (-2 / 3))
    values, vectors = _outstanding(matrix, edge, _start(len(matrix)))
    if values.size == 0:
        return Common({}, 0.0)
    for _ in range(_FILLS):
        filled = np.where(known, matrix, (vectors * values) @ vectors.T)
        values, vectors = _outstanding(filled, edge, _start(len(matrix)))
        if values.size == 0:
            return Common({}, 0.0)
    means = {}
    for q, (a, b) in pairs.items():
        found = (vectors[place[a]] * values) @ vectors[place[b]].T
        # Rounded: the last bits of a matrix product depend on the number of threads.
        means[q] = np.round(found * 64) / 64 * np.sqrt(variance[q])
    return Common(means, min(1.0, 2 * values.size / freedom))


def _start(size: int) -> FloatArray:
    """Vectors in directions of no meaning, the same at each call, shape ``(size, _RANK)`` or less."""
    rank = min(_RANK, size)
    return np.asarray(np.cos(np.arange(1, size * rank + 1) ** 2 % 1013).reshape(size, rank))


def _outstanding(matrix: FloatArray, edge: float, vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues beyond the edge, less what noise adds to them, and their vectors, by subspace iteration."""
    for step in range(_STEPS):
        vectors = np.linalg.qr(matrix @ vectors)[0]
        if step == _LOOK and np.abs(np.linalg.eigvalsh(vectors.T @ matrix @ vectors)).max() < _NEAR * edge:
            break
    values, turn = np.linalg.eigh(vectors.T @ matrix @ vectors)
    beyond = np.abs(values) > edge
    less = np.sign(values) * np.sqrt(np.maximum(values**2 - edge**2, 0.0))
    return less[beyond], (vectors @ turn)[:, beyond]
