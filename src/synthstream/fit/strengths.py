"""How strong the associations of all tables are, told by all of them together.

The noise of one table hides whether its columns go together. A hundred tables side by side show how many of them do,
and how strongly: where hardly one does, what stands out in a single table is noise. Post-processing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from scipy.stats import gamma

from synthstream.fit.ordered import Shrunk, nothing
from synthstream.fit.targets import SMALLEST, in_parts, mixing
from synthstream.workload import FloatArray

# Strengths that are tried beside none at all; and how often their frequencies are estimated anew.
_STRENGTHS, _STEPS = 40, 299
# The weakest of them, in units of the least noise, and the strongest, in units of the largest that a table shows.
_WEAKEST, _STRONGEST = 1e-3, 4.0
# A table of which so small a part of what others may hold is expected, in squared prior variances, holds no
# association: one code has all events but a few.
_HARDLY = 1e-12
# A table may be off by no less than this share of the variance of its noise; and by no less than so many times the
# share of a table that shows more than nine of ten do. So weights change where hardly any table shows anything.
_LEAST, _SEEN, _TENTH = 0.02, 3.0, 0.9


class Noisy(NamedTuple):
    """An association as measured.

    Args:
        cells: all sums are 0.
        prior: variances of the cells, but for a factor: the strength.
        noise: variance of that of a cell, or of each.
        free: number of cells that are free once all smaller tables are known.
    """

    cells: FloatArray
    prior: FloatArray
    noise: FloatArray | float
    free: int

    @property
    def spread(self) -> float:
        return float(np.sum(self.prior**2))

    @property
    def square(self) -> float:
        """Of the association, weighted by the prior: it grows with the strength (Morris 1983)."""
        return max(float(np.sum(self.prior * self.cells**2)), SMALLEST * self.usual)

    @property
    def usual(self) -> float:
        """Mean of the variance of the noise."""
        return float(np.mean(self.noise))


def moments(tables: Collection[Noisy], strengths: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means and variances of their squares, for true strengths, shape ``(tables, strengths)``."""
    powers = ((1, 1), (2, 0), (4, 0), (3, 1), (2, 2))
    sums = np.array([[np.sum(table.prior**p * table.noise**n) for p, n in powers] for table in tables])
    noise, signal, *squares = sums.T[:, :, None]
    cells = np.array([[table.cells.size / table.free] for table in tables])
    whole = squares[0] * strengths**2 + 2 * squares[1] * strengths + squares[2]
    return signal * strengths + noise, 2 * whole * cells


def shrunk_together(tables: Mapping[int, Noisy], left: float) -> dict[int, Shrunk]:
    """What is left of each association: the posterior mean, if all strengths come from one distribution.

    That is any distribution over some strengths: the one that makes all squares most likely (empirical Bayes; Kiefer
    and Wolfowitz 1956, by expectation and maximization).

    Args:
        tables: by position in the workload.
        left: the share of the noise that is still there once rows have been fitted.
    """
    found = {q: nothing(table.cells.shape) for q, table in tables.items()}
    least = _HARDLY * max((table.spread for table in tables.values()), default=0.0)
    seen = {q: table for q, table in tables.items() if table.usual > 0 and table.spread > least}
    if not seen:
        return found
    told = np.array([(table.square, table.spread, table.usual, table.cells.size) for table in seen.values()])
    squares, spreads, noises, sizes = told.T[:, :, None]
    units = noises / np.sqrt(spreads / sizes)
    ends = _WEAKEST * units.min(), _STRONGEST * max((squares / spreads).max(), units.max())
    strengths = np.concatenate([[0.0], np.geomspace(*ends, _STRENGTHS)])
    mean, variance = moments(seen.values(), strengths)
    # A sum of squares is nearly a gamma variate of the same mean and variance (Satterthwaite 1946).
    likely = _posterior(np.asarray(gamma.logpdf(squares, mean**2 / variance, scale=variance / mean)))
    for (q, table), own in zip(seen.items(), likely, strict=True):
        some = np.flatnonzero(own)
        signals = np.multiply.outer(strengths[some], table.prior)
        each = signals / np.maximum(signals + left * table.noise, SMALLEST)
        kept = in_parts(np.tensordot(own[some], each, axes=1))
        apart = np.tensordot(own[some], (each - kept) ** 2, axes=1)
        doubt = left * kept.mean() + np.mean(apart * table.cells**2) / table.usual
        found[q] = Shrunk(kept * table.cells, kept**2 * table.noise, kept * table.noise, float(in_parts(doubt)))
    return found


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
