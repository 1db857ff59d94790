"""Leaky sums in fixed point of 64 + 64 bits: exact enough to bound, fast enough for every tick.

A number is hi + lo / 2^64, with hi a signed and lo an unsigned 64-bit integer. A factor in [0, 1) is m / 2^64. A
product is cut off below 2^-64: its error is in [0, 2^-64), whatever its size.
"""

from __future__ import annotations

import numba
import numpy as np

NDArrayU64 = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@numba.njit(cache=True, inline="always")
def _high(a, b):  # type: ignore[no-untyped-def]
    """Upper 64 bits of the 128-bit product of two unsigned integers."""
    a1, a0 = a >> _HALF, a & _LOW
    b1, b0 = b >> _HALF, b & _LOW
    mid = a1 * b0 + ((a0 * b0) >> _HALF)
    other = a0 * b1 + (mid & _LOW)
    return a1 * b1 + (mid >> _HALF) + (other >> _HALF)


@numba.njit(cache=True, inline="always")
def scaled(hi, lo, m):  # type: ignore[no-untyped-def]
    """(hi + lo / 2^64) m / 2^64, rounded down to 2^-64: returns (hi, lo)."""
    bits = np.uint64(hi)
    top = np.int64(_high(bits, m))
    if hi < 0:
        top -= np.int64(m)
    low = bits * m
    total = low + _high(lo, m)
    if total < low:
        top += np.int64(1)
    return top, total


@numba.njit(cache=True, nogil=True)
def advance(hi, lo, decay, weight, counts, grid_bits, value):  # type: ignore[no-untyped-def]
    """One tick of leaky sums: Z_i <- decay_i Z_i + x; value = floor(2^grid_bits sum_i weight_i Z_i). In place.

    Args:
        hi, lo: the sums, int64 and uint64, shape ``(buffers, cells)``.
        decay, weight: factors in units of 2^-64, uint64, shape ``(buffers,)``.
        counts: int64, shape ``(cells,)``.
        value: int64, shape ``(cells,)``; overwritten.
    """
    up = np.uint64(grid_bits)
    down = np.uint64(64 - grid_bits)
    for cell in range(counts.size):
        sum_hi = np.int64(0)
        sum_lo = np.uint64(0)
        for i in range(decay.size):
            z_hi, z_lo = scaled(hi[i, cell], lo[i, cell], decay[i])
            z_hi += counts[cell]
            hi[i, cell] = z_hi
            lo[i, cell] = z_lo
            p_hi, p_lo = scaled(z_hi, z_lo, weight[i])
            sum_hi += p_hi
            before = sum_lo
            sum_lo += p_lo
            if sum_lo < before:
                sum_hi += np.int64(1)
        value[cell] = sum_hi * (np.int64(1) << np.int64(up)) + np.int64(sum_lo >> down)
