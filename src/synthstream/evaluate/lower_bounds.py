"""Lower bounds on a privacy loss from repeated runs: how often an event happened with one event more, and without.

A bound holds with the confidence that is asked for, whatever the mechanism. It is never the proof of a claim: small
probabilities are never seen, and only the events that are looked at count.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import beta, norm

from synthstream.workload import FloatArray, IntArray


def limits(hits: IntArray, runs: int, *, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Clopper-Pearson limits of a probability; each of the two is wrong with probability at most ``alpha / 2``.

    Args:
        hits: in how many runs the event happened, shape ``(n,)``.
        runs: number of independent runs.

    Returns:
        Lower and upper limits, each of shape ``(n,)``.

    Source: Clopper and Pearson 1934.
    """
    hits = np.asarray(hits)
    low = np.where(hits > 0, beta.ppf(alpha / 2, np.maximum(hits, 1), runs - hits + 1), 0.0)
    high = np.where(hits < runs, beta.isf(alpha / 2, hits + 1, np.maximum(runs - hits, 1)), 1.0)
    return low, high


def epsilon_seen(without: FloatArray, present: FloatArray, shift: FloatArray, *, alpha: float) -> FloatArray:
    """Lower bounds on the epsilon of independent readings; all of them hold together but with probability ``alpha``.

    The events are {reading >= shift} and {reading <= 0}: the likeliest ones at which the ratio of two shifted discrete
    Laplace laws is as large as it can be, and so the best ones for a claim of pure DP.

    Args:
        without, present: readings of runs without the event and with it, shape ``(runs, readings)``; NaN for one that
            was not taken.
        shift: by how much the event moves each reading, above 0, shape ``(readings,)``.

    Returns:
        At least 0, shape ``(readings,)``. If the readings' noise is independent, their sum is a bound on all together.

    Source: Jagielski, Ullman, Oprea 2020; Nasr et al. 2021 for the two directions.
    """
    runs, each = len(without), alpha / (4 * shift.size)

    def ratio(likely: NDArray[np.bool_], seldom: NDArray[np.bool_]) -> FloatArray:
        low, _ = limits(likely.sum(axis=0), runs, alpha=2 * each)
        _, high = limits(seldom.sum(axis=0), runs, alpha=2 * each)
        return np.log(np.maximum(low, 1e-300) / high)

    above = ratio(present >= shift, without >= shift)
    below = ratio(without <= 0, present <= 0)
    return np.maximum(np.maximum(above, below), 0.0)


def mu_seen(without: FloatArray, present: FloatArray, shift: FloatArray, *, alpha: float) -> FloatArray:
    """Lower bounds on the mu of Gaussian DP of independent readings; the threshold is half of the shift.

    With false positives at most FPR and false negatives at most FNR, a mu-GDP mechanism has
    mu >= z(1 - FPR) - z(FNR). Arguments and result as for :func:`epsilon_seen`; the squares of independent ones add up.

    Source: Nasr et al. 2023, "Tight Auditing of Differentially Private Machine Learning"; Dong, Roth, Su 2022.
    """
    runs, each = len(without), alpha / shift.size
    _, false_positive = limits((without > shift / 2).sum(axis=0), runs, alpha=each)
    _, false_negative = limits(runs - (present > shift / 2).sum(axis=0), runs, alpha=each)
    return np.maximum(norm.isf(false_positive) - norm.ppf(false_negative), 0.0)


def delta_of(mu: float, epsilon: float) -> float:
    """The smallest delta for which a mu-GDP mechanism is (epsilon, delta)-DP.

    Source: Dong, Roth, Su 2022, Corollary 2.13; Balle and Wang 2018.
    """
    return float(norm.sf(epsilon / mu - mu / 2) - math.exp(epsilon + norm.logsf(epsilon / mu + mu / 2)))


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon that a mu-GDP mechanism has at ``delta``; 0 if delta alone is enough."""
    if mu <= 0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    high = mu * mu / 2 + mu * float(norm.isf(delta))
    return float(brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0.0, high))


def lattice(sigma: float, shift: float) -> float:
    """How much more than shift / sigma the discrete Gaussian of whole numbers lets one see with a threshold.

    At sigma = 1 it is told apart from itself moved by 1 as well as a Gaussian that is moved by 1.046; at sigma = 10 by
    1.0004. A zCDP claim covers that, a Gaussian-DP claim would not.

    For the best threshold; at least 1.
    """
    if sigma > 100:
        return 1.0
    x = np.arange(-int(12 * sigma + shift) - 3, int(12 * sigma + shift) + 4)
    law = np.exp(-((x / sigma) ** 2) / 2)
    above = np.cumsum(law[::-1])[::-1] / law.sum()
    steps = round(shift)
    positive, negative = above[steps:], 1 - above[: x.size - steps]
    inside = (positive > 1e-9) & (negative > 1e-9)
    seen = norm.isf(positive[inside]) - norm.ppf(negative[inside])
    return max(1.0, float(seen.max()) * sigma / steps) if seen.size else 1.0
