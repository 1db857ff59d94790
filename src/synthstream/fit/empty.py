"""Cells of a table that hold nobody: two values that never go together. Post-processing.

Where one column decides another, most cells of their table are empty. The prior of an association is normal, so no
estimate of it says that a cell is: rows are left in each of them, up to a standard error of noise, and are missing
elsewhere. So it is asked of each cell whether it is more likely than not that nobody is in it. If so, rows are to leave
it: of all counts the median of what may be true is the one that the least absolute error is expected of.
"""

from __future__ import annotations

import math

import numpy as np

from synthstream.workload import FloatArray

# The variance of what cells hold is in proportion to this power of what independent columns would have, times one of
# these, all in standard errors.
_POWER, _FACTORS = 0.75, 4.0 ** np.arange(-2, 6)[:, None]
# That some cells are empty must make a table e to this power times as likely: one number more is estimated for it
# (Akaike 1974).
_MORE = 1.0
# Cells of which less was expected than the first number, in standard errors, say nothing of how many are empty; nor do
# tables with fewer cells than the second that are free, once margins are known.
_TELLS, _FREE = 0.25, 3
# Steps of expectation and maximisation, and the share of cells that are taken to be empty before the first one.
_STEPS, _FIRST = 8, 0.2
# Rows are to leave an empty cell as if they were so many standard errors too many: for less, none moves.
_AWAY = 2.0
# Ratios of likelihoods are bounded: exponentials of more would overflow.
_MOST = 50.0


def emptied(mean: FloatArray, found: FloatArray, independent: FloatArray, noise: float) -> FloatArray:
    """The estimate of an association; far below what can be in cells that are more likely than not to be empty.

    What a cell holds is nothing, or is normal around what independent columns would have. How often it is nothing, and
    the variance, are what makes the table most likely (empirical Bayes by the EM algorithm of Dempster, Laird and Rubin
    1977).

    Args:
        mean: the estimate.
        found: the association as it was measured.
        independent: what independent columns would have.
        noise: variance of that of a cell of ``found``.
    """
    free = math.prod(size - 1 for size in mean.shape)
    unit = math.sqrt(noise)
    telling = independent > _TELLS * unit
    if free < _FREE or not telling.any():
        return mean
    counts, expected = (independent + found) / unit, np.maximum(independent, 0.0) / unit
    likely, ratios = _normal(counts[telling], expected[telling])
    empty = np.full(_FACTORS.shape, _FIRST)
    for _ in range(_STEPS):
        empty = np.mean(empty * ratios / (empty * ratios + 1 - empty), axis=1, keepdims=True)
    gains = np.sum(np.log(empty * ratios + 1 - empty), axis=1)
    best = int(np.argmax(likely + gains))
    # Given the margins, fewer cells are free than were looked at.
    if (likely[best] + gains[best] - likely.max()) * free / mean.size <= _MORE:
        return mean
    _, ratios = _normal(counts.ravel(), expected.ravel())
    nobody = (empty[best] * ratios[best] > 1 - empty[best]).reshape(mean.shape)
    return np.asarray(np.where(nobody, np.minimum(mean, -independent) - _AWAY * unit, mean))


def _normal(counts: FloatArray, expected: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log likelihood of all counts for each factor of the variance, if none of them is of an empty cell; and how many
    times as likely each is if it is of one, shape ``(factors, counts)``.
    """
    variance = 1 + _FACTORS * expected**_POWER
    logs = np.log(variance) + (counts - expected) ** 2 / variance
    return -np.sum(logs, axis=1) / 2, np.exp(np.clip((logs - counts**2) / 2, -_MOST, _MOST))
