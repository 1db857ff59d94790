"""One of several candidates, the better ones more likely: the largest of scores with exponential noise, exactly.

The winner is decided from the first 63 binary digits of each uniform number wherever these, and a float's proven
error band, leave one candidate; further digits are drawn only for candidates that are too close, in the interval
arithmetic of ``kernel/sampling.py``. So the law is exact (theorem ``choose``).
"""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np

from synthstream.kernel.sampling import _BAND, Entropy, _bounds, _minus_log, _request
from synthstream.workload import FloatArray, IntArray

# Larger scores are clipped, which moves no two of them further apart, so that differences stay within 64 bits.
LARGEST_SCORE = 2**60


def noisy_max(scores: IntArray, *, rate: Fraction, entropy: Entropy) -> int:
    """Position of the largest of ``rate * scores[i] + E_i`` with independent standard exponential E_i.

    The law is that of permute-and-flip (Ding et al. 2021, "The Permute-and-Flip Mechanism is Identical to
    Report-Noisy-Max with Exponential Noise"), never worse than the exponential mechanism (McKenna, Sheldon 2020).

    Args:
        scores: int64, shape ``(n,)``, at least one.
        rate: above 0.
        entropy: returns as many uniform random bytes as it is asked for.

    Time: one pass over the candidates, whatever their scores, but for about one call in 2^40.

    Example:
        >>> import os
        >>> noisy_max(np.array([0, 1000, 0]), rate=Fraction(1), entropy=os.urandom)
        1
    """
    gaps = scores - scores.max()
    words = np.frombuffer(_request(entropy, 8 * scores.size), dtype=np.int64) & np.int64(2**63 - 1)
    low, high = _intervals(words, gaps, float(rate), _BAND)
    left = np.flatnonzero(high >= low.max())
    if left.size == 1:
        return int(left[0])
    return _closest(left, gaps, words, rate, entropy)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _intervals(words, gaps, rate, band):  # type: ignore[no-untyped-def]
    """Floats below and above ``rate * gap - ln U``, for all U that begin with the digits of the word."""
    low, high = np.empty(words.size), np.empty(words.size)
    for i in range(words.size):
        if words[i] == 0:
            low[i], high[i] = 0.0, np.inf
            if gaps[i] < 0:
                low[i] = -np.inf
            continue
        x = np.float64(words[i])
        exponential = _minus_log(x, 63)
        shift = rate * np.float64(gaps[i])
        margin = band * (1.0 + exponential - shift)
        low[i] = exponential + shift - margin - 1.0 / x
        high[i] = exponential + shift + margin
    return low, high


def _closest(left: IntArray | FloatArray, gaps: IntArray, words: IntArray, rate: Fraction, entropy: Entropy) -> int:
    """The winner among a few candidates, with as many further bits as it takes. Ends with probability 1."""
    racing = {int(i): _bounds(int(words[i]), 63, entropy) for i in left}
    while len(racing) > 1:
        reach = {}
        for i, bounds in racing.items():
            below, above = next(bounds)
            shift = rate * int(gaps[i])
            reach[i] = (below + shift, None if above is None else above + shift)
        best = max(below for below, _ in reach.values())
        racing = {i: racing[i] for i, (_, above) in reach.items() if above is None or above >= best}
    return next(iter(racing))
