"""What releases say of an epoch before its larger tables are measured: what they may hold, and how fast shares drift.

Post-processing of released values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from synthstream.fit.drift import Parts, smooth
from synthstream.fit.population import Population
from synthstream.fit.targets import sums_of
from synthstream.workload import FloatArray, Workload

# Larger tables are taken to be so far from what is guessed, the sum of absolute differences of shares: each, where an
# epoch hardly shows it, and the farthest of all before the first epoch. Squared distances are taken to fall with their
# rank, to a power between two; before the first epoch to a power of 1.
_APART, _FARTHEST, _FLAT, _STEEP = 0.3, 1.4, 0.5, 2.0
_TINY = 1e-12  # variance of noise that is next to none
_LEAST = 1e-3  # of the square of that distance
# So much of its variance noise counts where the number of tables is decided: what later epochs find is pooled with it.
_POOLED = 0.5
# Fewer are not measured, unless tables of one column need the budget: what one epoch shows of so few says little.
_FEW = 8
# Where all noise in a table of one column, in relation to the events, is more than this, larger ones get less; and
# where that of half of them is more than this part of what the farthest larger ones were off, next to nothing.
_NOISY, _DROWNED = 0.18, 0.5
# Rounds of iterative proportional fitting.
_ROUNDS = 6
_MOST_PARTS = 4
# Drift is worth another part where it moves an epoch's counts by about so many times the noise of measuring them.
_WORTH = 4.0


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """Plans for the mechanism of epochs (:class:`synthstream.strategies.times.EpochPlanner`).

    Args:
        workload: all tables.
        rows: of the newest release; ``None`` if there is none.
        known: tables of single columns of all parts that have ended; ``None`` if none has, or they are not to be used.
        begun, before: first ticks of the epoch that is open, or begins, and of the one before it.
        variance: of each cell of a table of one column, shape ``(columns,)``; infinite where there is none.
    """

    workload: Workload
    rows: Population | None = None
    known: Callable[[], Parts] | None = None
    begun: int = 0
    before: int = 0
    variance: FloatArray | None = None

    def parts(self) -> int:
        """The square of what drift moves in half an epoch, by the noise of measuring it: its root is the number.

        The epoch is taken to bring half as many events as all before it.
        """
        if self.known is None or self.variance is None:
            return 1
        known, measured = self.known(), np.isfinite(self.variance)
        noise = float(np.sum((self.variance * known.sizes)[measured]))
        if noise <= 0:
            return 1
        step = float(np.sum(smooth(known).steps)) * max(int(np.sum(known.ends >= self.before)), 1)
        drift = (float(known.size.sum()) / 2) ** 2 * step
        return int(np.clip(round(float(np.sqrt(drift / (_WORTH * noise)))), 1, _MOST_PARTS))

    def number(self, scales: Mapping[int, FloatArray], events: float, shown: FloatArray, *, whole: bool) -> int:
        """See :class:`EpochPlanner`: the number for which what is gained is largest, all tables together.

        Where a table of squared distance d from the guess is measured with noise of variance v in all, and both are
        weighed by their size, d v / (d + v) is left of d: d^2 / (d + v) is gained. The noise of each grows with their
        number. Distances are a power of their rank, through the means of the upper and of the lower half of those that
        the epoch before measured.

        Where tables of one column are noisy beside the events, larger ones get less of the budget in proportion. Where
        the farthest tables were hardly farther off than that noise, it is worth more to lower it: one of them is
        measured, which tells when that changes.
        """
        numbers, cells, larger = np.array(list(scales)), self._cells, self.workload.order == 2
        each = np.array([scale[larger].max() for scale in scales.values()])
        noise = _POOLED * cells * 2 * (each / events) ** 2
        known = self._noises(scales[int(numbers[-1])]) / events
        if whole and known.size:
            if shown[0] and _DROWNED * np.sqrt(cells * shown[1]) < np.median(known):
                return int(numbers[0])
            part = numbers / each
            few = max(int(np.sum(part <= _NOISY / known.mean() * part.max())), 1)
            numbers, noise = numbers[:few], noise[:few]
        distances = _FARTHEST**2 / cells / np.arange(1, numbers.max() + 1)
        if shown[0]:
            measured, upper, lower = shown.tolist()
            power = float(np.clip(np.log(upper / lower) / np.log(3), _FLAT, _STEEP)) if measured > 1 else 1.0
            middle = max(0.25 * measured, 1.0)  # rank of the upper half's
            distances = upper * np.minimum((middle * distances / distances[0]) ** power, 3.0)
        gains = [np.sum(distances[:n] ** 2 / (distances[:n] + v)) for n, v in zip(numbers, noise, strict=True)]
        return int(max(numbers[np.argmax(gains)], min(_FEW, numbers[-1])))

    def shown(self, found: Mapping[int, FloatArray], guessed: FloatArray, scales: FloatArray) -> FloatArray:
        """See :class:`EpochPlanner`: how many tables, and the mean of their squared distances, by halves.

        Distances are of shares of the events, beyond what their columns alone are off, noise and chance; each mean is
        drawn to what is taken for granted by as much as its own noise says.
        """
        before, scale, guesses = self.usual[1], scales[list(found)], [self.workload.table(guessed, q) for q in found]
        each = [_beyond_columns(v.reshape(g.shape) - g, g) for v, g in zip(found.values(), guesses, strict=True)]
        squares, cells, chance = np.array(each).T
        events = np.maximum([guess.sum() for guess in guesses], 1.0)
        distances = (squares - 2 * cells * scale**2 - events * chance) / events**2
        noise = (20 * cells * scale**4 + 8 * scale**2 * np.maximum(distances, before) * events**2) / events**4
        order = np.argsort(distances)[::-1]
        means = []
        for half in (order[: max(len(found) // 2, 1)], order[len(found) // 2 :]):
            weights = np.array([half.size / noise[half].mean(), 1 / before**2])
            means.append(max(float(np.average([distances[half].mean(), before], weights=weights)), _LEAST * before))
        return np.array([len(found), max(means), means[1]])

    def _noises(self, scales: FloatArray) -> FloatArray:
        """Sum of the sizes of all noise in each table of one column."""
        return np.asarray(np.sqrt(2) * (self.workload.lengths * scales)[self.workload.order == 1])

    @property
    def usual(self) -> FloatArray:
        """What an epoch shows, as far as it is taken for granted; see :meth:`shown`."""
        return np.array([1.0, *[_APART**2 / self._cells] * 2])

    @property
    def _cells(self) -> float:
        """Of a larger table: the root mean square, since most noise is in the large ones."""
        return float(np.sqrt(np.mean(self.workload.lengths[self.workload.order == 2] ** 2.0)))

    def guess(self, events: float, singles: FloatArray) -> FloatArray:
        """Tables of the rows over all cells, with the epoch's own margins; of independent columns if there are no rows.

        Args:
            events: of the epoch.
            singles: tables of one column of its last part, in the order of the workload; empty if not measured yet.
        """
        events, workload = max(events, 1.0), self.workload
        if self.rows is None or self.rows.number == 0:
            return self._independent(events, singles)
        tables = np.asarray(self.rows.counts(workload) * (events / self.rows.number))
        known = self.known() if self.known is not None and singles.size else None
        if known is None or known.rows is not None or self.variance is None:
            return tables
        margins = self._margins(known, events, singles, self.variance)
        for q, marginal in enumerate(workload.marginals):
            table = workload.table(tables, q)
            table[...] = raked(table, [margins[c] for c in marginal])
        return tables

    def _independent(self, events: float, singles: FloatArray) -> FloatArray:
        """Products of the epoch's own margins; a column that has none is uniform."""
        workload, begin = self.workload, 0
        margins = [np.full(size, 1.0 / size) for size in workload.sizes]
        for marginal in workload.marginals if singles.size else ():
            if len(marginal) == 1:
                counts = np.maximum(singles[begin : begin + workload.sizes[marginal[0]]], 0.0)
                begin += counts.size
                if counts.any():
                    margins[marginal[0]] = counts / counts.sum()
        tables = np.zeros(workload.cells)
        for q, marginal in enumerate(workload.marginals):
            table = workload.table(tables, q)
            table[...] = events * reduce(np.multiply.outer, [margins[c] for c in marginal], np.array(1.0))
        return tables

    def _margins(self, known: Parts, events: float, singles: FloatArray, noise: FloatArray) -> list[FloatArray]:
        """Smoothed counts of each column's codes over the epoch, of as many events as all its tables say together."""
        before = int(np.sum(known.ends < self.begun))
        values, variance = np.zeros(known.column.size), np.full(known.column.size, np.inf)
        place = 0
        for marginal in self.workload.marginals:
            if len(marginal) == 1:
                column = known.column == marginal[0]
                values[column] = singles[place : place + column.sum()]
                variance[column] = max(float(noise[marginal[0]]), _TINY)
                place += int(column.sum())
        total = (float(known.totals[before - 1]) if before else 0.0) + events
        of_totals = np.append(np.diag(known.covariance), known.covariance[-1, -1])
        parts = replace(
            known,
            ends=np.append(known.ends, known.ends[-1] + 1),
            totals=np.append(known.totals, total),
            covariance=np.diag(of_totals),
            values=np.vstack([known.values, values]),
            variance=np.vstack([known.variance, variance]),
        )
        counts = np.maximum((smooth(parts).shares * parts.size[:, None])[before:].sum(axis=0), 0.0)
        sums = np.maximum(np.add.reduceat(counts, parts.places), 1.0)
        came = parts.size[before:].sum()  # the total's counter alone may be off by a third of an epoch
        return np.split(counts * (came / sums)[parts.column], parts.places[1:])


class _Off(NamedTuple):
    """How far a table is from what was guessed, beyond what its columns alone are.

    Args:
        square: sum over cells of the square.
        cells: how many times the variance of a cell's noise is part of that: the squared Frobenius norm of the matrix
            that takes away what columns alone change. Of even columns it is the number of cells that are then free.
        chance: how many times the number of events is, by chance, if columns are independent.
    """

    square: float
    cells: float
    chance: float


def _beyond_columns(off: FloatArray, guess: FloatArray) -> _Off:
    """What is left of ``off`` without what shares of its columns alone would change in a table of independent ones."""
    axes = range(off.ndim)
    counts = [np.maximum(sums_of(guess, axis), _TINY) for axis in axes]
    shares = [own / own.sum() for own in counts]
    left = off - off.sum() * reduce(np.multiply.outer, shares)
    for axis in axes:
        moved = sums_of(off, axis) - off.sum() * shares[axis]
        left = left - reduce(np.multiply.outer, [moved if a == axis else shares[a] for a in axes])
    even, sizes = np.array([np.sum(share**2) for share in shares]), np.array(off.shape)
    whole, apart, free = np.prod(sizes * even), 1 / (sizes * even) - 1, (sizes - 2) / (sizes * even) + 1
    cells = off.size - 2 * (1 + np.sum(sizes - 1)) + whole * ((1 + apart.sum()) ** 2 + np.sum(free - apart**2))
    chance = 1 - np.prod(even) * (1 + np.sum(1 / even - 1))
    return _Off(float(np.sum(left**2)), float(cells), float(chance))


def raked(table: FloatArray, margins: Sequence[FloatArray]) -> FloatArray:
    """A table moved to other margins, its associations kept: iterative proportional fitting.

    Source: Deming and Stephan 1940.
    """
    for _ in range(_ROUNDS):
        for axis, margin in enumerate(margins):
            other = tuple(a for a in range(table.ndim) if a != axis)
            now = table.sum(axis=other, keepdims=True)
            wanted = margin.reshape(now.shape)
            # A code that no row has is spread evenly.
            even = wanted / (table.size / margin.size)
            table = np.where(now > 0, table * (wanted / np.where(now > 0, now, 1.0)), even)
    return table
