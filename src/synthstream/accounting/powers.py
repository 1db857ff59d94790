"""Powers of which the buffered counter, and its sensitivity, are made.

NumPy's functions of one number give other last bits on processors with other vector units: here each power is a
product, rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def powers(bases: Floats, number: int) -> Floats:
    """Powers of numbers above 0, at most 1, for the exponents 0, 1, ..., shape ``(bases, number)``.

    Each to 2 ``number`` 2^-53 of itself, or below 1e-300.
    """
    return np.asarray(np.cumprod(np.where(np.arange(number) > 0, bases[:, None], 1.0), axis=1))


def geometric(bases: NDArray[np.uint64], first: NDArray[Any], number: NDArray[Any]) -> Floats:
    """Sums of ``number`` powers from the exponent ``first`` on, shape ``(bases, first)``. No digits cancel.

    Args:
        bases: in units of 2^-64.
        first, number: each shape ``(n,)``; their largest sum is n at most.
    """
    found = powers(bases / 2.0**64, first.size)
    return np.asarray(found[:, first] * np.cumsum(found, axis=1)[:, number - 1])
