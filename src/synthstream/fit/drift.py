"""Shares of values that drift: from tables of single columns, measured part by part, to smooth shares of every part.

A part is a run of ticks; the parts follow one another without a gap. Each column's shares take a Gaussian random walk
from part to part, whose steps have a variance of their own for each column, chosen by likelihood: without steps all
parts are pooled; with large ones each keeps its own counts, so that running tables add up exactly.
Post-processing of released values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthstream.fit.targets import simplex, sums_of
from synthstream.measured import Measured
from synthstream.workload import FloatArray, IntArray

# Variances of a step, in squared shares of a whole column, and the log likelihood that the best of them must gain over
# no steps: noise is Laplace noise, with longer tails than the likelihood of normal noise allows for.
_STEPS = np.concatenate([[0.0], np.geomspace(1e-6, 0.3, 14)])
_GAIN = 5.0
# A value's steps vary in proportion to its share; this part of the variance is the same for all values.
_EVEN = 0.1
# Shares before the first part: anything from 0 to 1.
_DIFFUSE = 1.0
_SMALLEST = 1e-6


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Tables of single columns, part by part, and the total. Public.

    Args:
        sizes: number of codes of each column.
        ends: last tick of each part, shape ``(parts,)``; the newest tick follows them, if no part ends there.
        totals: running total at these ticks and at the newest one, shape ``(times,)``.
        covariance: of the noise of these, shape ``(times, times)``.
        values: counts of all codes, column after column, in each part, shape ``(parts, codes)``.
        variance: of each of these, shape ``(parts, codes)``; infinite where a column was not measured.
        rows: of either sign, by the same ticks as the totals; ``None`` if rows only add.
        newest: the newest tick, if the number of events since the last part is drawn to that of the ticks before, as
            far as noise explains the difference (James and Stein 1961); ``None`` if it is not.
    """

    sizes: tuple[int, ...]
    ends: IntArray
    totals: FloatArray
    covariance: FloatArray
    values: FloatArray
    variance: FloatArray
    rows: FloatArray | None = None
    newest: int | None = None

    @cached_property
    def places(self) -> IntArray:
        """Position of each column's first code, shape ``(columns,)``."""
        return np.cumsum([0, *self.sizes[:-1]])

    @cached_property
    def column(self) -> IntArray:
        """Column of each code, shape ``(codes,)``."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """Whether each column was ever measured, shape ``(columns,)``."""
        return np.asarray(np.isfinite(self.variance[:, self.places]).any(axis=0))

    @cached_property
    def events(self) -> FloatArray:
        """Net number of events of each part and since the last one, shape ``(times,)``: generalised least squares, and
        with ``newest`` the last number drawn to the rate of before.

        Known of it are the running totals, whose noise goes together, and the sum of each measured column.
        """
        number, length = self.totals.size, np.array(self.sizes)[self.column]
        sums = np.ones((number, number)) * np.tri(number)
        # A counter that takes nodes away may know a sum of totals without noise: a little is added for all of them.
        noise = self.covariance + _SMALLEST * (1 + np.trace(self.covariance) / number) * np.eye(number)
        precision = sums.T @ np.linalg.solve(noise, sums)
        known = sums.T @ np.linalg.solve(noise, self.totals)
        weight = 1 / (self.variance * length)
        each = np.add.reduceat(self.values, self.places, axis=1)
        by_column = np.add.reduceat(weight, self.places, axis=1) / np.array(self.sizes)
        here = np.arange(self.ends.size)
        precision[here, here] += by_column.sum(axis=1)
        known[here] += (by_column * each).sum(axis=1)
        found = np.linalg.solve(precision, known)
        if self.newest is None or number == self.ends.size or not self.ends.size:
            return np.asarray(found)
        apart = self._from_before(self.newest)
        gap, noise = float(apart @ found), float(apart @ np.linalg.solve(precision, apart))
        real = max(gap**2 - noise, _SMALLEST * noise)  # the part of its square that noise does not explain
        return np.asarray(np.linalg.solve(precision + np.outer(apart, apart) / real, known))

    def _from_before(self, newest: int) -> FloatArray:
        """How far the number since the last part is from what came in as many ticks before, as weights of all numbers.

        Before: in the parts that begin in the second half of the time up to the last one's end, or in that one.
        """
        ends, apart = self.ends + 1, np.zeros(self.totals.size)
        begins = np.concatenate([[0], ends[:-1]])
        first = min(int(np.searchsorted(begins, ends[-1] / 2)), ends.size - 1)
        apart[first:-1] = -(newest + 1 - ends[-1]) / (ends[-1] - begins[first])
        apart[-1] = 1.0
        return apart

    @cached_property
    def size(self) -> FloatArray:
        """Rows of each part and since the last one, at least 1, shape ``(times,)``."""
        came = self.events if self.rows is None else np.maximum(np.diff(self.rows, prepend=0.0), np.abs(self.events))
        return np.maximum(came, 1.0)


def parts_of(history: Sequence[Measured], sizes: Sequence[int], covariance: FloatArray | None = None) -> Parts:
    """Parts, from what was measured at their last ticks, and at the newest tick if it ends none.

    Margins of larger tables, which count a whole epoch, are joined with the parts' own by inverse variance.

    Args:
        history: in order.
        sizes: number of codes of each column.
        covariance: of the noise of the running totals; left out: their variances.
    """
    ended = [m for m in history if len(m.workload.marginals) > 1]
    if len(ended) + 1 < len(history):
        raise ValueError("history: only the newest measurement may hold nothing but the total")
    totals = np.array([float(m.values[m.workload.slice_of(())][0]) for m in history])
    noise = np.array([m.variance[m.workload.place[()]] for m in history])
    codes = np.cumsum([0, *sizes])
    values, variance = np.zeros((len(ended), codes[-1])), np.full((len(ended), codes[-1]), np.inf)
    ends = np.array([m.tick for m in ended], dtype=np.int64)
    for p, measured in enumerate(ended):
        order = sorted(range(len(measured.workload.marginals)), key=lambda q: len(measured.workload.marginals[q]))
        for q in order:
            marginal, shape = measured.workload.marginals[q], measured.workload.shapes[q]
            table = measured.workload.table(measured.values, q)
            first = int(np.searchsorted(ends, measured.since[q]))
            for axis, column in enumerate(marginal):
                here = slice(int(codes[column]), int(codes[column + 1]))
                margin = sums_of(table, axis)
                margin_noise = max(float(measured.variance[q]), _SMALLEST) * table.size / shape[axis]
                _join(values[first : p + 1, here], variance[first : p + 1, here], margin, margin_noise)
    rows = None if history[-1].rows is None else np.array([m.rows for m in history], dtype=np.float64)
    return Parts(
        sizes=tuple(sizes),
        ends=ends,
        totals=totals,
        covariance=np.diag(noise) if covariance is None else covariance,
        values=values,
        variance=variance,
        rows=rows,
        newest=history[-1].tick if rows is None else None,
    )


def _join(values: FloatArray, variance: FloatArray, margin: FloatArray, noise: float) -> None:
    """Let the counts that some parts are known to sum to, with a variance ``noise``, tell of them, in place; that they
    then depend on each other is left out.
    """
    if not np.isfinite(variance).all():
        values[:], variance[:] = margin / len(values), noise * len(values)
        return
    each = variance.copy()
    around = each.sum(axis=0) + noise
    values += each / around * (margin - values.sum(axis=0))
    variance -= each**2 / around


class Seen(NamedTuple):
    """What was counted over time; times after the last count are those of which nothing is known yet.

    Args:
        size: what a share is of, at each time, not 0; shape ``(times, cells)`` or ``(times,)``.
        values: noisy counts, shape ``(counted, cells)``.
        variance: of each of these, the same shape; infinite where there is none.
    """

    size: FloatArray
    values: FloatArray
    variance: FloatArray


class Smooth(NamedTuple):
    """Shares of the codes of each column in every part.

    Args:
        shares: of the part's rows, shape ``(times, codes)``; of rows that take away, less those.
        steps: variance of a step of each column, shape ``(columns,)``; 0 if all parts are pooled.
        running: counts of all codes up to the newest tick, shape ``(codes,)``.
        variance: of the error of these, mean over each column's codes, shape ``(columns,)``.
    """

    shares: FloatArray
    steps: FloatArray
    running: FloatArray
    variance: FloatArray


def smooth(parts: Parts) -> Smooth:
    """Smoothed shares. Time: O(parts x codes).

    Source: the smoother of Rauch, Tung, Striebel 1965, for each code on its own.
    """
    size, sizes = parts.size, np.array(parts.sizes)
    weight = size[: parts.ends.size, None] ** 2 / parts.variance
    pooled = np.sum(weight * parts.values / size[: parts.ends.size, None], axis=0)
    pooled = np.abs(pooled / np.maximum(weight.sum(axis=0), _SMALLEST))
    pooled /= np.maximum(np.add.reduceat(pooled, parts.places), _SMALLEST)[parts.column]
    scale = (1 - _EVEN) * pooled + _EVEN / sizes[parts.column]
    seen = Seen(size, parts.values, parts.variance)
    start, spread = 1 / sizes[parts.column], np.full(scale.size, _DIFFUSE)
    gain = np.add.reduceat(likelihoods(seen, start, spread, _STEPS[:, None] * scale), parts.places, axis=1)
    best = np.argmax(gain, axis=0)
    steps = np.where(gain[best, np.arange(sizes.size)] - gain[0] >= _GAIN, _STEPS[best], 0.0)
    shares, variance = smoothed(seen, start, spread, scale * steps[parts.column])
    # No sum of parts is known better than one of them; and of enormous counts this difference is lost in rounding.
    variance = np.maximum(variance, parts.variance.min(axis=0, initial=np.inf))
    if parts.rows is not None and size.size > parts.ends.size:
        # What rows came and went since the last part leaves shares as they are, as far as is known.
        there = np.maximum(size[:-1] @ shares[:-1], 0.0)
        whole = np.maximum(np.add.reduceat(there, parts.places), 1.0)[parts.column]
        shares[-1] = there / whole * parts.events[-1] / size[-1]
    wanted = np.ones(size.size) if parts.rows is None else parts.events / size
    for column, place in enumerate(parts.places):
        here = slice(int(place), int(place + sizes[column]))
        if steps[column] > 0 and parts.rows is None:
            shares[:, here] = simplex(shares[:, here], np.ones(len(shares)))
        else:
            shares[:, here] += ((wanted - shares[:, here].sum(axis=1)) / sizes[column])[:, None]
    running = (parts.events if parts.rows is None else size) @ shares
    return Smooth(shares, steps, running, np.add.reduceat(variance, parts.places) / sizes)


def likelihoods(seen: Seen, start: FloatArray, spread: FloatArray, step: FloatArray) -> FloatArray:
    """Log likelihood of the counts of each cell for every variance of a step, shape ``(steps, cells)``.

    Args:
        start, spread: mean and variance of the shares before the first time, shape ``(cells,)``.
        step: variances of a step, shape ``(steps, cells)``.
    """
    mean, spread = np.broadcast_to(start, step.shape), np.broadcast_to(spread, step.shape)
    out = np.zeros(step.shape)
    for size, values, variance in zip(seen.size, seen.values, seen.variance, strict=False):
        noise = variance / size**2
        gap, around = values / size - mean, spread + noise
        out -= np.where(np.isfinite(noise), (np.log(around) + gap**2 / around) / 2, 0.0)
        kept = spread / around
        mean, spread = mean + kept * gap, spread * (1 - kept) + step
    return out


def smoothed(seen: Seen, start: FloatArray, spread: FloatArray, step: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Shares at all times, shape ``(times, cells)``, and the variance of the running table, for a known variance of
    each cell's steps.

    Args:
        start, spread: mean and variance of the shares before the first time, shape ``(cells,)``.
        step: variance of a step, the same shape.
    """
    number, ended = len(seen.size), len(seen.values)
    size, mean, both, whole = seen.size, start, np.zeros(start.size), np.zeros(start.size)
    means, spreads = np.empty((number, mean.size)), np.empty((number, mean.size))
    for p in range(number):
        # ``both`` and ``whole``: covariance of the newest share with the running table, and variance of that.
        both, whole = both + size[p] * spread, whole + 2 * size[p] * both + size[p] ** 2 * spread
        if p < ended:
            noise = seen.variance[p] / size[p] ** 2
            gap = seen.values[p] / size[p] - mean
            kept, moved = spread / (spread + noise), both / (spread + noise)
            mean = mean + kept * gap
            whole, both, spread = whole - moved * both, both * (1 - kept), spread * (1 - kept)
        means[p], spreads[p] = mean, spread
        spread = spread + step
    for p in range(number - 2, -1, -1):
        back = spreads[p] / np.maximum(spreads[p] + step, 1e-300)
        means[p] += back * (means[p + 1] - means[p])
    return means, whole
