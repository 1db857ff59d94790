"""Multiplicative weights over every combination of codes: the fit of MWEM, for small domains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthstream.workload import CodeArray, FloatArray, Workload

# 32 MB of weights. Beyond it a pass over a dozen tables would take a good part of a second.
LARGEST_DOMAIN = 2**22

# Smallest share that the weights of all cells together may fall to, so that later counts can bring any cell back.
_FLOOR = 1e-12


# Updates between two normalisations: each changes a share by a factor of e at most, so that none leaves the range, or
# the sum the precision, of a float.
_TOGETHER = 16


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A distribution over all combinations of codes, and how many events it stands for.

    Args:
        sizes: number of codes of each column, shape ``(columns,)``.
        total: number of events; negative ones become 0, which makes all tables zero and leaves no rows.
        shares: share of each combination, float64, shape ``(cells,)`` in C order, none negative; they add up to 1.
    """

    sizes: tuple[int, ...]
    total: float
    shares: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", max(float(self.total), 0.0))

    @classmethod
    def uniform(cls, sizes: Sequence[int], total: float) -> Weights:
        """Every combination the same. Raises as :func:`domain`."""
        cells = domain(sizes)
        return cls(sizes=tuple(sizes), total=total, shares=np.full(cells, 1 / cells))

    def scaled(self, total: float) -> Weights:
        """The same distribution for another number of events."""
        return Weights(sizes=self.sizes, total=total, shares=self.shares)

    def table(self, columns: Sequence[int]) -> FloatArray:
        """Expected counts of a marginal, in events, in the shape of its columns, which are strictly increasing."""
        view = _View.of(self.sizes, columns)
        return np.asarray(view.sums(self.shares) * self.total).reshape([self.sizes[c] for c in columns])

    def answers(self, workload: Workload) -> FloatArray:
        """Expected counts of all cells of a workload, in events, float64, shape ``(workload.cells,)``."""
        return np.concatenate([self.table(marginal).ravel() for marginal in workload.marginals])

    def rows(self, n: int, rng: np.random.Generator) -> CodeArray:
        """``n`` rows, int32, shape ``(n, columns)``, in random order; none if ``total`` is 0.

        Each combination comes as often as expected, rounded up or down: first the whole parts, then the rest by
        systematic sampling along the C order of the cells, which keeps the sums over the first columns close too.
        """
        if n <= 0 or self.total <= 0:
            return np.zeros((0, len(self.sizes)), dtype=np.int32)
        expected = n * (self.shares / self.shares.sum())
        counts = np.floor(expected).astype(np.int64)
        left = n - int(counts.sum())
        if left > 0:
            reach = np.cumsum(expected - counts)
            points = (np.arange(left) + rng.random()) * (reach[-1] / left)
            np.add.at(counts, np.minimum(np.searchsorted(reach, points, side="right"), counts.size - 1), 1)
        held = np.flatnonzero(counts)
        cells = rng.permutation(np.repeat(held, counts[held]))[:n]
        return np.stack(np.unravel_index(cells, self.sizes), axis=1).astype(np.int32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What :meth:`from_arrays` needs, for a store."""
        return {"shares": self.shares, "total": np.array(self.total)}

    @classmethod
    def from_arrays(cls, sizes: Sequence[int], arrays: Mapping[str, NDArray[Any]]) -> Weights:
        """Weights that were stored."""
        shares = np.asarray(arrays["shares"], dtype=np.float64)
        return cls(sizes=tuple(sizes), total=float(arrays["total"]), shares=shares)


def fit_weights(
    sizes: Sequence[int],
    cliques: Sequence[tuple[int, ...]],
    values: Sequence[FloatArray | float],
    total: float,
    *,
    start: Weights | None = None,
    iterations: int = 50,
    rate: float = 1.0,
    cells: Sequence[int | None] | None = None,
) -> Weights:
    """Weights that answer like the measurements: w(x) grows by exp(q(x) (measured - estimate) / (2 total)).

    Each pass makes this update for one measurement after another, for all cells of a marginal at once.

    Departures from the paper: ``total`` is an estimate, as the exact number is private; all measurements are passed
    over ``iterations`` times, as its authors recommend; the last weights are returned, not a mean; an exponent is
    limited to size 1, which the proof takes for granted, and no share falls below 1e-12 / number of cells: one at zero
    could never rise again.

    Args:
        cliques: columns of each measured marginal, strictly increasing; a marginal may come more than once.
        values: noisy counts in events, each in the shape of its marginal or flat; of a single cell, one number.
        total: number of events; if it is not above 0, the start is returned for 0 events.
        start: where to begin; left out: uniform.
        iterations: number of passes: the more noise, the fewer.
        rate: size of a step in units of the paper's, at most 4: up to there no update overshoots. For the change d of
            a marginal's shares, which adds up to 0, |d|_2^2 <= |d|_1^2 / 2 <= KL (Pinsker), so that twice the plain
            gradient, 4 of the paper's steps, is a step of mirror descent at its guaranteed size.
        cells: for each measurement the one cell of the marginal that was measured, as its position in C order, or
            ``None`` for the whole marginal; left out: whole marginals.

    Raises:
        ValueError: more than ``LARGEST_DOMAIN`` combinations of codes.

    Cost: two passes over the domain for each measurement and iteration, about 2 ns a combination; deterministic.
    Source: Hardt, Ligett, McSherry 2012, "A Simple and Practical Algorithm for Differentially Private Data Release",
    Figure 1 and section 2.2; Kumar, Strohmer, Vershynin, section 4.2.1.

    Example:
        >>> fitted = fit_weights((2, 2), [(0,), (1,)], [np.array([9.0, 1.0]), np.array([4.0, 6.0])], 10.0)
        >>> np.round(fitted.table((0, 1)), 1).tolist()
        [[3.6, 5.4], [0.4, 0.6]]
    """
    start = Weights.uniform(sizes, total) if start is None else start
    measurements = _measurements(tuple(sizes), cliques, values, cells, total)
    after = start.scaled(total)
    if after.total <= 0 or not measurements:
        return after
    shares = after.shares.copy()
    for _ in range(iterations):
        _pass(shares, measurements, rate)
    return Weights(sizes=after.sizes, total=after.total, shares=shares)


def _pass(shares: FloatArray, measurements: Sequence[_Measurement], rate: float) -> None:
    """Update shares in place by one measurement after another."""
    for first in range(0, len(measurements), _TOGETHER):
        mass = 1.0
        for measurement in measurements[first : first + _TOGETHER]:
            mass = measurement.update(shares, mass, rate)
        np.maximum(shares, _FLOOR / shares.size * mass, out=shares)
        shares /= shares.sum()


def domain(sizes: Sequence[int]) -> int:
    """Number of combinations of codes. Raises ``ValueError`` above ``LARGEST_DOMAIN``."""
    cells = math.prod(int(size) for size in sizes)
    if cells > LARGEST_DOMAIN:
        raise ValueError(
            f"{cells:,} combinations of codes are too many for weights over all of them: at most {LARGEST_DOMAIN:,}. "
            'Use fit = "pgm", fewer columns, or fewer bins and values'
        )
    return cells


@dataclass(frozen=True)
class _View:
    """The domain as an array in which neighbouring columns that a marginal sums out are one axis.

    Args:
        summed: axes that the marginal sums out.
        kept: its shape with 1 for these, to be broadcast over the array.
    """

    shape: tuple[int, ...]
    summed: tuple[int, ...]
    kept: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sequence[int], columns: Sequence[int]) -> _View:
        shape, summed = list[int](), list[int]()
        for held, run in groupby(range(len(sizes)), key=set(columns).__contains__):
            lengths = [sizes[column] for column in run]
            if held:
                shape += lengths
            elif math.prod(lengths) > 1:
                summed.append(len(shape))
                shape.append(math.prod(lengths))
        kept = tuple(1 if axis in summed else size for axis, size in enumerate(shape))
        return cls(tuple(shape), tuple(summed), kept)

    def sums(self, shares: FloatArray) -> FloatArray:
        """The marginal, in an array of shape ``kept``."""
        return np.asarray(shares.reshape(self.shape).sum(axis=self.summed, keepdims=True))


@dataclass(frozen=True)
class _Measurement:
    """One marginal, or one cell of it, and its noisy shares."""

    view: _View
    place: tuple[slice | int, ...]
    target: FloatArray

    def update(self, shares: FloatArray, mass: float, rate: float) -> float:
        """Make the update in place on shares that add up to ``mass``; returns what they add up to then."""
        part = shares.reshape(self.view.shape)[self.place]
        axes = None if self.place else self.view.summed
        estimate = part.sum(axis=axes, keepdims=True)
        factor = np.exp(np.clip(rate * 0.5 * (self.target - estimate / mass), -1.0, 1.0))
        part *= factor
        return mass + float(np.sum(estimate * (factor - 1)))


def _measurements(
    sizes: tuple[int, ...],
    cliques: Sequence[tuple[int, ...]],
    values: Sequence[FloatArray | float],
    cells: Sequence[int | None] | None,
    total: float,
) -> list[_Measurement]:
    cells = [None] * len(cliques) if cells is None else cells
    found = []
    for clique, value, cell in zip(cliques, values, cells, strict=True):
        view = _View.of(sizes, clique)
        # Limits against overflow; steps have their own.
        target = np.clip(np.asarray(value, dtype=np.float64), -1e15, 1e15) / max(total, 1e-15)
        place: tuple[slice | int, ...] = ()
        if cell is not None:
            codes = iter(np.unravel_index(cell, [sizes[c] for c in clique]) if clique else ())
            # Slices keep the axes, so that a part is a view whatever the marginal.
            starts = [None if axis in view.summed else int(next(codes)) for axis in range(len(view.shape))]
            place = tuple(slice(None) if s is None else slice(s, s + 1) for s in starts)
        shape = view.kept if cell is None else (1,) * len(view.shape)
        found.append(_Measurement(view, place, target.reshape(shape)))
    return found
