"""What noise on integers tells, found by adding up probabilities."""

from __future__ import annotations

import math

import numpy as np

from synthstream.workload import FloatArray


def law(variance: float, reach: int) -> FloatArray:
    """Probabilities of the discrete Gaussian on -reach..reach."""
    x = np.arange(-reach, reach + 1)
    found = np.exp(-(x**2) / (2 * variance))
    return np.asarray(found / found.sum())


def exact_delta(variance: float, change: int, draws: int, epsilon: float) -> float:
    """delta of so many draws whose values change by as much: the privacy loss depends on the sum of the noise alone."""
    each = law(variance, math.ceil(14 * math.sqrt(variance)) + 10)
    total = each
    for _ in range(draws - 1):
        total = np.convolve(total, each)
    x = np.arange(total.size) - total.size // 2
    loss = change * (2 * x + change * draws) / (2 * variance)
    return float(np.sum(total * -np.expm1(np.minimum(0, epsilon - loss))))
