"""How strong the associations of all tables are, told by all of them together.

The noise of one table hides whether its columns go together. A hundred tables side by side show how many of them do,
and how strongly: where hardly one does, what stands out in a single table is noise. Post-processing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import compress
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, xlogy

from synthstream.fit.ordered import Shrunk, nothing
from synthstream.fit.targets import SMALLEST, in_parts, lines, mixing
from synthstream.workload import FloatArray

# Strengths that are tried beside none at all; and how often their frequencies are estimated anew.
_STRENGTHS, _STEPS = 40, 299
# The weakest of them, in units of the least noise, and the strongest, in units of the largest that a table shows.
_WEAKEST, _STRONGEST = 1e-3, 4.0
# A table of which so small a part of what others may hold is expected, in squared prior variances, holds no
# association: one code has all events but a few.
_HARDLY = 1e-12
# So many shares of cells are worked out at once, about: they lie in a core's second cache.
_AT_ONCE = 2**15
# A table may be off by no less than this share of the variance of its noise; and by no less than so many times the
# share of a table that shows more than nine of ten do. So weights change where hardly any table shows anything.
_LEAST, _SEEN, _TENTH = 0.02, 3.0, 0.9


class Noisy(NamedTuple):
    """Associations of one shape, as measured.

    Args:
        cells: shape ``(tables, ...)``; all sums over an axis of a table are 0.
        prior: variances of the cells, but for a factor: the strength.
        noise: variance of that of a cell, shape ``(tables, 1, ...)``, or of each.
        free: number of cells of a table that are free once all smaller tables are known.
    """

    cells: FloatArray
    prior: FloatArray
    noise: FloatArray
    free: int

    @property
    def spread(self) -> FloatArray:
        return np.asarray(lines(self.prior**2).sum(axis=1))

    @property
    def square(self) -> FloatArray:
        """Of each association, weighted by the prior: it grows with the strength (Morris 1983)."""
        return np.asarray(np.maximum(lines(self.prior * self.cells**2).sum(axis=1), SMALLEST * self.usual))

    @property
    def usual(self) -> FloatArray:
        """Mean of the variance of each table's noise."""
        return np.asarray(lines(self.noise).mean(axis=1))


def moments(tables: Collection[Noisy], strengths: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means and variances of their squares, for true strengths, shape ``(tables, strengths)``."""
    powers = ((1, 1), (2, 0), (4, 0), (3, 1), (2, 2))
    sums = np.hstack([[lines(one.prior**p * one.noise**n).sum(axis=1) for p, n in powers] for one in tables])
    noise, signal, *squares = sums[:, :, None]
    cells = np.concatenate([np.full((len(one.cells), 1), one.cells[0].size / one.free) for one in tables])
    whole = squares[0] * strengths**2 + 2 * squares[1] * strengths + squares[2]
    return signal * strengths + noise, 2 * whole * cells


def shrunk_together(tables: Mapping[tuple[int, ...], Noisy], left: float) -> dict[int, Shrunk]:
    """What is left of each association: the posterior mean, if all strengths come from one distribution.

    That is any distribution over some strengths: the one that makes all squares most likely (empirical Bayes; Kiefer
    and Wolfowitz 1956, by expectation and maximization).

    Args:
        tables: by their positions in the workload.
        left: the share of the noise that is still there once rows have been fitted.
    """
    found, seen, told = dict[int, Shrunk](), dict[tuple[int, ...], Noisy](), []
    each = [one.spread for one in tables.values()]
    least = _HARDLY * max((float(spread.max()) for spread in each), default=0.0)
    for (positions, one), spread in zip(tables.items(), each, strict=True):
        found |= dict.fromkeys(positions, nothing(one.cells.shape[1:]))
        usual = one.usual
        some = (usual > 0) & (spread > least)
        if some.any():
            own = Noisy(one.cells[some], one.prior[some], one.noise[some], one.free)
            seen[tuple(compress(positions, some))] = own
            told.append((own.square, spread[some], usual[some], np.full(len(own.cells), own.cells[0].size)))
    if not seen:
        return found
    squares, spreads, noises, sizes = np.hstack(told)[:, :, None]
    units = noises / np.sqrt(spreads / sizes)
    ends = _WEAKEST * units.min(), _STRONGEST * max((squares / spreads).max(), units.max())
    strengths = np.concatenate([[0.0], np.geomspace(*ends, _STRENGTHS)])
    mean, variance = moments(seen.values(), strengths)
    # A sum of squares is nearly a gamma variate of the same mean and variance (Satterthwaite 1946).
    shape, scale = mean**2 / variance, variance / mean
    scaled = squares / scale
    likely = _posterior(np.asarray(xlogy(shape - 1, scaled) - scaled - gammaln(shape) - np.log(scale)))
    for positions, one in seen.items():
        found |= zip(positions, _shrunk(one, likely[: len(positions)], strengths, left), strict=True)
        likely = likely[len(positions) :]
    return found


def _shrunk(tables: Noisy, likely: FloatArray, strengths: FloatArray, left: float) -> Iterator[Shrunk]:
    """The same of each of some tables; ``likely``: how likely each strength is, shape ``(tables, strengths)``."""
    step = max(1, _AT_ONCE // (strengths.size * tables.cells[0].size))
    for begin in range(0, len(likely), step):
        own, part = likely[begin : begin + step], slice(begin, begin + step)
        cells, prior, noise = (lines(values[part]) for values in tables[:3])
        some = np.flatnonzero(own.any(axis=0))
        signals = strengths[some, None] * prior[:, None]
        each = signals / np.maximum(signals + left * noise[:, None], SMALLEST)
        weights = own[:, None, some]
        kept = in_parts(weights @ each)
        apart, kept = lines(weights @ (each - kept) ** 2), lines(kept)
        doubt = left * kept.mean(axis=1) + np.mean(apart * cells**2, axis=1) / noise.mean(axis=1)
        shaped = (values.reshape(tables.cells[part].shape) for values in (kept * cells, kept**2 * noise, kept * noise))
        yield from map(Shrunk, *shaped, in_parts(doubt).tolist())


def _posterior(logs: FloatArray) -> FloatArray:
    """How likely each strength is for each table, shape ``(tables, strengths)``, from logarithms of likelihoods."""
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    tables, strengths = logs.shape
    joint = chances * mixing(chances, np.full(tables, 1 / tables), np.full(strengths, 1 / strengths), _STEPS)
    found = in_parts(joint / joint.sum(axis=1, keepdims=True))
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def doubted(doubts: Mapping[int, float]) -> dict[int, float]:
    """By what share of its noise's variance each table is taken to be off, from what it may be off itself."""
    least = max(_LEAST, _SEEN * float(np.quantile(list(doubts.values()), _TENTH))) if doubts else 1.0
    return {q: min(max(doubt, least), 1.0) for q, doubt in doubts.items()}
