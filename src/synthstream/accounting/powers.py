"""Powers of which the buffered counter, and its sensitivity, are made.

NumPy's functions give other last bits on processors with other vector units. They serve streams that began before
edition 10, which go on with the numbers that they began with; from then on each power is a product, rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def powers(bases: Floats, number: int, *, products: bool) -> Floats:
    """Powers of numbers above 0, at most 1, for the exponents 0, 1, ..., shape ``(bases, number)``.

    Each to 2 ``number`` 2^-53 of itself, or to 1e-12 if they are no ``products``, or below 1e-300.
    """
    exponents = np.arange(number, dtype=np.float64)
    if products:
        return np.asarray(np.cumprod(np.where(exponents > 0, bases[:, None], 1.0), axis=1))
    return np.asarray(np.exp(exponents * np.log(bases)[:, None]))


def geometric(bases: NDArray[np.uint64], first: NDArray[Any], number: NDArray[Any], *, products: bool) -> Floats:
    """Sums of ``number`` powers from the exponent ``first`` on, shape ``(bases, first)``. No digits cancel.

    Args:
        bases: in units of 2^-64.
        first, number: each shape ``(n,)``; their largest sum is n at most.
    """
    if products:
        found = powers(bases / 2.0**64, first.size, products=True)
        return np.asarray(found[:, first] * np.cumsum(found, axis=1)[:, number - 1])
    decay = np.log1p(-np.array([2**64 - int(base) for base in bases]) / 2.0**64)[:, None]
    return np.asarray(np.exp(first * decay) * np.expm1(number * decay) / np.expm1(decay))
