"""Exact laws of the noise, and whether samples follow them."""

from __future__ import annotations

import numpy as np
from scipy import stats

from synthstream.workload import FloatArray, IntArray


def laplace_law(scale: float) -> tuple[IntArray, FloatArray]:
    """Support, to where nothing is left, and probabilities."""
    x = np.arange(-int(45 * scale) - 45, int(45 * scale) + 46)
    weights = np.exp(-np.abs(x) / scale)
    return x, weights / weights.sum()


def gaussian_law(sigma: float) -> tuple[IntArray, FloatArray]:
    """Support, to where nothing is left, and probabilities."""
    x = np.arange(-int(12 * sigma) - 12, int(12 * sigma) + 13)
    weights = np.exp(-((x / sigma) ** 2) / 2)
    return x, weights / weights.sum()


def p_value(samples: IntArray, law: tuple[IntArray, FloatArray]) -> float:
    """Chi-square against a law, over at most 200 bins of neighbouring integers, each expecting 25 samples or more."""
    support, chance = law
    least = max(25 / len(samples), 1 / 200)
    bins = np.floor(np.cumsum(chance) / least).astype(np.int64)
    _, bins = np.unique(bins, return_inverse=True)
    expected = np.bincount(bins, weights=chance) * len(samples)
    inside = np.clip(samples, support[0], support[-1]) - support[0]
    observed = np.bincount(bins[inside], minlength=expected.size).astype(np.float64)
    while expected.size > 2 and expected[-1] < 25:
        expected = np.append(expected[:-2], expected[-2:].sum())
        observed = np.append(observed[:-2], observed[-2:].sum())
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, expected.size - 1))
