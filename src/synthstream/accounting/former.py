"""What the sensitivity of the buffered counter is made of, for streams that began before edition 10: to the last bit.

NumPy's functions give other last bits on processors with other vector units. From edition 10 on the kernel uses none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def powers(bases: Floats, exponents: NDArray[Any]) -> Floats:
    """Powers of numbers in (0, 1), each to 1e-12 of itself, shape ``(bases, exponents)``."""
    return np.asarray(np.exp(exponents * np.log(bases)[:, None]))


def geometric(gaps: Floats, first: NDArray[Any], number: NDArray[Any]) -> Floats:
    """Sums of ``number`` powers of 1 - ``gaps``, from the exponent ``first`` on, shape ``(gaps, first)``."""
    decay = np.log1p(-gaps)[:, None]
    return np.asarray(np.exp(first * decay) * np.expm1(number * decay) / np.expm1(decay))
