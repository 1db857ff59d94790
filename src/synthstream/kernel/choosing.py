"""One of several candidates: scores in whole numbers, and the largest of them with exponential noise, exactly.

The winner is decided from the first 63 binary digits of each uniform number wherever these, and a float's proven
error band, leave one candidate; further digits are drawn only for candidates that are too close, in the interval
arithmetic of ``kernel/sampling.py``. So the law is exact (theorem ``choose``).
"""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np

from synthstream.kernel.sampling import _BAND, Entropy, _bounds, _minus_log, _request
from synthstream.workload import Candidates, FloatArray, IntArray

# Larger scores are clipped, which moves no two of them further apart, so that differences stay within 64 bits.
LARGEST_SCORE = 2**60
# Guesses are rounded to this fraction of an event, so that scores are exact integers.
GRID = 2**10


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


def distances(candidates: Candidates, exact: IntArray, guess: FloatArray) -> IntArray:
    """Sum of absolute differences over each candidate's cells, in units of 1 / ``GRID``; shape ``(candidates,)``.

    One cell that changes by one moves a distance by at most ``GRID``, whatever the guess: exact counts and rounded
    guesses are limited, which brings no two counts further apart, and a guess that is no number counts as 0.
    """
    limit = 2**59 // (GRID * int(candidates.lengths.max()))  # no sum of a candidate leaves 64 bits
    rounded = np.rint(np.clip(np.nan_to_num(guess, nan=0.0), -limit, limit) * GRID).astype(np.int64)
    gaps = np.abs(np.clip(exact, -limit, limit) * GRID - rounded)
    return candidates.sums(gaps)


def l1_scores(candidates: Candidates, exact: IntArray, guess: FloatArray, *, bias: FloatArray) -> IntArray:
    """How much measuring each candidate would tell: its distance from the guess, less ``bias``, the expected distance.

    In units of 1 / ``GRID``. Sensitivity: ``GRID`` times the sum over a candidate's cells of the change one unit makes.
    """
    units = np.rint(np.clip(np.nan_to_num(bias, nan=0.0), 0, 2.0**50 / GRID) * GRID).astype(np.int64)
    return np.asarray(distances(candidates, exact, guess) - units)
