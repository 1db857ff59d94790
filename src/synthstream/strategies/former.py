"""Numbers of streams that began before edition 10, to the last bit, on the kind of processor that they began on.

The order in which NumPy and BLAS multiply and add, and the last bits of their powers, depend on the vector units of a
processor. From edition 10 on no fingerprint and no variance in the hash chain comes from such a function.
"""

from __future__ import annotations

import numpy as np

from synthstream.workload import FloatArray, IntArray


def powers(bases: FloatArray, exponents: FloatArray) -> FloatArray:
    """Powers of numbers in (0, 1), shape ``(bases, exponents)``."""
    return np.asarray(np.exp(exponents * np.log(bases)[:, None]))


def geometric(gaps: FloatArray, first: IntArray, number: IntArray) -> FloatArray:
    """Sums of so many powers of 1 - ``gaps``, from the exponent ``first`` on, shape ``(gaps, first)``."""
    decay = np.log1p(-gaps)[:, None]
    return np.asarray(np.exp(first * decay) * np.expm1(number * decay) / np.expm1(decay))


def inverse(matrix: FloatArray) -> FloatArray:
    """That of a lower-triangular matrix."""
    return np.tril(np.linalg.inv(matrix))
