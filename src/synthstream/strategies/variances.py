"""Variances of the laws of noise. They are what is said of a draw; none depends on them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Protocol

import numpy as np

from synthstream.kinds import Noise
from synthstream.workload import FloatArray, IntArray

# Released values are rounded to a power of two at most this share of their smallest standard error.
_RESOLUTION = 1 / 32


class Series(Protocol):
    """A running sum whose noise has a known covariance; see ``Counter`` of the kernel."""

    def covariance(self, s: int, t: int, *, multiplier: float) -> float:
        """Covariance of the noise in two of its values, by their numbers."""

    def __hash__(self) -> int: ...


def laplace_variance(scale: float) -> float:
    """Variance of the discrete Laplace law: 2 p / (1 - p)^2 with p = exp(-1 / scale).

    Example:
        >>> round(laplace_variance(1.0), 4)
        1.8413
    """
    return 2 * math.exp(-1 / scale) / math.expm1(-1 / scale) ** 2


def joint_variance(cells: IntArray, scale: float) -> FloatArray:
    """Variance of a cell of each of several tables that get noise together (:mod:`synthstream.kernel.joint`).

    As over real numbers: 2 scale^2 (D + 1) (D + 2) / ((n + 1) (n + 2)) for a table of n cells, of D in all. Over whole
    numbers it is this to a percent from a scale of 3 on, and an order of size if the scale is far below 1.

    Args:
        cells: of each table, shape ``(tables,)``.

    Example:
        >>> joint_variance(np.array([3, 3, 3]), 10.0).tolist()
        [1100.0, 1100.0, 1100.0]
    """
    whole = float(np.sum(cells))
    return np.asarray(2 * scale * scale * (whole + 1) * (whole + 2) / ((cells + 1) * (cells + 2)))


def gaussian_variance(sigma: float) -> float:
    """Variance of the discrete Gaussian law; at most sigma^2 (Canonne, Kamath, Steinke 2020, Corollary 9).

    From sigma = 2 on sigma^2 itself: by Poisson summation the difference is below 10^-30.

    Example:
        >>> gaussian_variance(100.0), round(gaussian_variance(0.5), 4)
        (10000.0, 0.215)
    """
    if sigma >= 2:
        return sigma * sigma
    weights = [math.exp(-x * x / 2 / sigma / sigma) for x in range(1, 25)]
    total = 1 + 2 * math.fsum(weights)
    return min(2 * math.fsum(x * x * w for x, w in enumerate(weights, 1)) / total, sigma * sigma)


def variance_of(noise: Noise, scale: float) -> float:
    """Variance of the discrete law of a name, ``laplace`` or ``gaussian``."""
    return laplace_variance(scale) if noise == "laplace" else gaussian_variance(scale)


def shared(series: Series, s: int, t: int, *, multiplier: float = 1.0) -> float:
    """Covariance of the noise in two values of a series, in any order of their numbers; newest answers are kept."""
    return _kept(series, min(s, t), max(s, t), multiplier)


@lru_cache(2**14)
def _kept(series: Series, s: int, t: int, multiplier: float) -> float:
    """It takes the longer the more ticks there are, and is asked for again by each tick until the next refresh."""
    return series.covariance(s, t, multiplier=multiplier)


def of_difference(series: Series, before: int, after: int, *, multiplier: float) -> float:
    """Variance of the noise in what was added after one value of a series up to another; -1: since the beginning."""
    found = series.covariance(after, after, multiplier=multiplier)
    if before >= 0:
        found += series.covariance(before, before, multiplier=multiplier)
        found -= 2 * series.covariance(before, after, multiplier=multiplier)
    return found


def resolution_for(smallest: float) -> float:
    """The power of two that values are rounded to, if this is the smallest variance of a cell."""
    # At an enormous epsilon the variance may vanish; counts are then kept to a millionth.
    return float(2.0 ** math.floor(math.log2(max(math.sqrt(smallest) * _RESOLUTION, 1e-6))))
