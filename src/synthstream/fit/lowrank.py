"""What all pairs of columns have in common: a hidden variable shows in every table, and in none of them above noise.

The associations of all pairs side by side are one symmetric matrix over the values of all columns. What few hidden
variables explain of it has low rank, and grows with the number of columns; noise spreads over all directions, and grows
with the square root of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthstream.fit.targets import SMALLEST, in_parts
from synthstream.workload import FloatArray, IntArray, Workload

# Directions that are looked for at most, and steps of the search for them.
_RANK, _STEPS = 32, 12
# The search ends early where nothing comes near the edge of the noise.
_LOOK, _NEAR = 4, 0.7
# Rows of a matrix that are made orthonormal at once.
_TALL = 128
# Columns with so many values in all are kept as one dense matrix.
_SHORT = 512
# Tables of a column with itself are not known: found directions fill them in, so many times.
_FILLS = 3
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
    return in_parts(found)[:, None]


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
    # Every cell in units of its noise.
    blocks = {
        (a, b): (associations[q] if along is None else along[a].T @ associations[q] @ along[b]) / np.sqrt(variance[q])
        for q, (a, b) in pairs.items()
    }
    matrix = _Blocks(blocks, number)
    # The largest eigenvalue of noise alone: Wigner's edge, and something for its own variation (Tracy and Widom 1994).
    freedom = sum(number[c] - (along is None) for c in columns)  # of all of a column's codes the sum is known
    edge = 2 * np.sqrt(freedom) * (1 + caution * max(freedom, 1) ** (-2 / 3))
    start = _start(matrix.size)
    values, vectors = _outstanding(matrix.times, edge, start)
    for _ in range(_FILLS):
        if values.size:
            values, vectors = _outstanding(matrix.filled(values, vectors), edge, start)
    if values.size == 0:
        return NOTHING
    means, errors, share, place = {}, {}, min(1.0, 2 * values.size / freedom), matrix.place
    for q, (a, b) in pairs.items():
        found = (vectors[place[a]] * values) @ vectors[place[b]].T
        errors[q] = share * variance[q] * (found.size / associations[q].size)
        # Rounded: the last bits of a matrix product depend on the number of threads.
        means[q] = np.round(found * 64) / 64 * np.sqrt(variance[q])
        if along is not None:
            means[q] = along[a] @ means[q] @ along[b].T
    return Common(means, errors)


class _Strip(NamedTuple):
    """Some rows of a symmetric matrix, as far as they are known.

    Args:
        rows: which.
        near, far: indices of columns that are kept, and of all others, of which nothing is known.
        cells: shape ``(rows, near)``; 0 where ``known`` is false.
    """

    rows: slice
    near: IntArray
    far: IntArray
    cells: FloatArray
    known: NDArray[np.bool_]


class _Blocks:
    """A symmetric matrix of which the blocks of some pairs of columns are known, and all others are 0 until filled in.

    Of a long list its pairs are kept alone: its block with itself would have a hundred million cells for 10,000 values.

    Args:
        blocks: by columns a < b, shape ``(size of a, size of b)``.
        sizes: of each column, in order.
    """

    def __init__(self, blocks: Mapping[tuple[int, int], FloatArray], sizes: Mapping[int, int]) -> None:
        ends = np.cumsum(list(sizes.values()))
        self.size = int(ends[-1])
        self.place = {c: slice(int(end) - sizes[c], int(end)) for c, end in zip(sizes, ends, strict=True)}
        both = dict(blocks) | {(b, a): block.T for (a, b), block in blocks.items()}
        self._strips = [self._strip(group, both) for group in _together(sizes)]

    def _strip(self, group: list[int], both: Mapping[tuple[int, int], FloatArray]) -> _Strip:
        known = [(a, b) for a in group for b in self.place if (a, b) in both]
        seen, before = np.zeros(self.size, dtype=np.bool_), dict[int, int]()
        for b in sorted({b for _, b in known}):
            before[b] = int(seen.sum())
            seen[self.place[b]] = True
        near, rows = np.flatnonzero(seen), slice(self.place[group[0]].start, self.place[group[-1]].stop)
        shape = rows.stop - rows.start, near.size
        strip = _Strip(rows, near, np.flatnonzero(~seen), np.zeros(shape), np.zeros(shape, dtype=np.bool_))
        for a, b in known:
            down, across = self.place[a].start - rows.start, before[b]
            at = slice(down, down + len(both[a, b])), slice(across, across + both[a, b].shape[1])
            strip.cells[at], strip.known[at] = both[a, b], True
        return strip

    def times(self, vectors: FloatArray) -> FloatArray:
        """The matrix times vectors, shape ``(size, number)``."""
        return np.vstack([strip.cells @ vectors[strip.near] for strip in self._strips])

    def filled(self, values: FloatArray, found: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The same with blocks that are not known as these eigenvalues and eigenvectors have them."""
        scaled = found * values
        near = [np.where(s.known, s.cells, scaled[s.rows] @ found[s.near].T) for s in self._strips]

        def times(vectors: FloatArray) -> FloatArray:
            return np.vstack(
                [
                    cells @ vectors[s.near] + scaled[s.rows] @ (found[s.far].T @ vectors[s.far])
                    for s, cells in zip(self._strips, near, strict=True)
                ]
            )

        return times


def _together(sizes: Mapping[int, int]) -> list[list[int]]:
    """Columns whose rows are kept side by side: neighbours of few values in all."""
    groups: list[list[int]] = []
    for column, size in sizes.items():
        if groups and sum(sizes[c] for c in groups[-1]) + size <= _SHORT:
            groups[-1].append(column)
        else:
            groups.append([column])
    return groups


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


def _outstanding(
    times: Callable[[FloatArray], FloatArray], edge: float, vectors: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues beyond the edge, less what noise adds to them, and their vectors, by subspace iteration.

    ``times``: a symmetric matrix times vectors.
    """
    for step in range(_STEPS):
        vectors = orthonormal(times(vectors))
        if step == _LOOK and np.abs(np.linalg.eigvalsh(vectors.T @ times(vectors))).max() < _NEAR * edge:
            break
    values, turn = np.linalg.eigh(vectors.T @ times(vectors))
    beyond = np.abs(values) > edge
    less = np.sign(values) * np.sqrt(np.maximum(values**2 - edge**2, 0.0))
    return less[beyond], (vectors @ turn)[:, beyond]
