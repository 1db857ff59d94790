"""Exact samples of the discrete Laplace and the discrete Gaussian law, from random bytes.

A trial takes one random word: its sign bit, and the first 63 binary digits of a uniform U in (0, 1). All
further digits exist, but are drawn only if a decision needs them. With E = -ln U, floor(b E) is geometric
with ratio exp(-1/b); with a sign, and (negative, 0) rejected, that is the discrete Laplace law of scale b.
The Gaussian accepts such a proposal with the right probability (Canonne, Kamath, Steinke 2020, "The Discrete
Gaussian for Differential Privacy", Algorithm 3).

A float decides only where its proven error band, added to the interval in which U is known to lie, leaves one
answer. Everywhere else the same trial is decided in interval arithmetic of growing precision, with more
digits of U. So the law is exact for the binary fraction that a float scale is. The proofs, and the error band
of the logarithm, are in ``docs/theorems/discrete-laplace.md`` and ``docs/theorems/discrete-gaussian.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numba
import numpy as np

from synthstream.workload import FloatArray, IntArray

Entropy = Callable[[int], bytes]

# Above this scale the samples would still be exact, but a sum of them could come near the end of 64 bits.
LARGEST_SCALE = 2.0**36
# No sample is larger in absolute value. A larger one would need U < exp(-2^26): more than 2^26 zero bits in a row.
LARGEST_SAMPLE = 2**62 - 1

# Error band: 2^-49 is 16 units of rounding; the theorems need less than 10. Passed to the loops as an argument,
# so that a test can widen it until every trial is decided exactly.
_BAND = 2.0**-49
# Trials per request for random bytes; keeps one request and its words within the processor's cache.
_CHUNK = 2**15

# ln 2 in two parts. The first has 32 significant bits, so its product with a number below 64 is exact.
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
# Bits of the float next to sqrt(1/2): a mantissa is taken between sqrt(1/2) and sqrt(2).
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD


def discrete_laplace(scale: float | FloatArray, size: int, *, entropy: Entropy) -> IntArray:
    """Independent samples with P(x) proportional to exp(-|x| / scale), over all integers x.

    Args:
        scale: above 0 and at most 2^36; one for all, or float64, shape ``(size,)``.
        size: number of samples.
        entropy: returns as many uniform random bytes as it is asked for; ``os.urandom`` outside of tests.

    Returns:
        int64, shape ``(size,)``, exact in law (theorem ``discrete-laplace``).

    Raises:
        ValueError: the scale is out of range or of the wrong shape; the message names it.
        OSError: ``entropy`` returned another number of bytes.

    Time: 25 to 50 ns a sample, most of it for random bytes; 8 bytes per trial, at most 2 trials a sample on
    average. It depends on the random bits alone.

    Example:
        >>> import os
        >>> noise = discrete_laplace(1000.0, 5, entropy=os.urandom)
        >>> noise.dtype, noise.shape
        (dtype('int64'), (5,))
    """
    return _draw(_LAPLACE, _checked("scale", scale, size), size, entropy)


def discrete_gaussian(sigma: float | FloatArray, size: int, *, entropy: Entropy) -> IntArray:
    """Independent samples with P(x) proportional to exp(-x^2 / (2 sigma^2)), over all integers x.

    Args:
        sigma: above 0 and at most 2^36; one for all, or float64, shape ``(size,)``.
        size: number of samples.
        entropy: returns as many uniform random bytes as it is asked for; ``os.urandom`` outside of tests.

    Returns:
        int64, shape ``(size,)``, exact in law (theorem ``discrete-gaussian``).

    Raises:
        ValueError: sigma is out of range or of the wrong shape; the message names it.
        OSError: ``entropy`` returned another number of bytes.

    Time: 65 to 150 ns a sample; 12 bytes per trial, 1.3 trials a sample for large sigma and 3 for small. It
    depends on the random bits alone.

    Example:
        >>> import os
        >>> discrete_gaussian(np.array([1.0, 2.5]), 2, entropy=os.urandom).shape
        (2,)
    """
    return _draw(_GAUSSIAN, _checked("sigma", sigma, size), size, entropy)


# -- the loop over trials ------------------------------------------------------------------------------------


class _Law(NamedTuple):
    """How one law is drawn: the compiled loop, the exact decision of a trial, the random bytes of a trial."""

    loop: Any
    exact: Callable[[int, int, float, Entropy], int | None]
    width: int


def _draw(law: _Law, scales: FloatArray, size: int, entropy: Entropy) -> IntArray:
    out = np.empty(size, dtype=np.int64)
    filled, step = 0, int(scales.size > 1)
    while filled < size:
        left = size - filled
        trials = min(left + left // 2 + 16, _CHUNK)
        random = _request(entropy, trials * law.width)
        words = np.frombuffer(random, dtype=np.int64, count=trials)
        coins = np.frombuffer(random, dtype=np.uint32, offset=8 * trials)
        used = 0
        while filled < size and used < trials:
            filled, used = law.loop(words, coins, scales, step, out, filled, used, _BAND)
            if filled < size and used < trials:  # the loop stopped at a trial that floats cannot decide
                coin = int(coins[used]) if coins.size else 0
                sample = law.exact(int(words[used]), coin, float(scales[filled * step]), entropy)
                used += 1
                if sample is not None:
                    out[filled] = sample
                    filled += 1
    return out


def _request(entropy: Entropy, count: int) -> bytes:
    random = entropy(count)
    if len(random) != count:
        raise OSError(f"the source of random bytes returned {len(random)} bytes, not {count}")
    return random


def _checked(name: str, value: float | FloatArray, size: int) -> FloatArray:
    """The scale as float64, shape ``(1,)`` or ``(size,)``."""
    if size < 0:
        raise ValueError(f"size: must be at least 0, not {size}")
    scales = np.ascontiguousarray(value, dtype=np.float64)
    if np.ndim(value) and scales.shape != (size,):
        raise ValueError(f"{name}: one number, or one for each of {size} samples; found shape {scales.shape}")
    if not np.all((scales > 0) & (scales <= LARGEST_SCALE)):  # refuses NaN too
        raise ValueError(f"{name}: must be above 0 and at most 2^36")
    return scales.reshape(-1)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _minus_log(x, bits):  # type: ignore[no-untyped-def]
    """-ln(x / 2^bits) for a float x from 1 to 2^bits; off by at most 2^-51 (1 + result).

    Only + - * / and integer operations on a float's own bits, so that the bound holds on every IEEE machine.
    Error analysis: ``docs/theorems/discrete-laplace.md``.
    """
    code = np.float64(x).view(np.int64)
    exponent = (code - _SQRT_HALF_BITS) >> 52
    mantissa = np.int64(code - (exponent << 52)).view(np.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    tail = 2.0 / 21
    for k in (19, 17, 15, 13, 11, 9, 7, 5, 3):
        tail = tail * z + 2.0 / k
    log_mantissa = 2.0 * s + s * z * tail
    halvings = np.float64(bits - exponent)
    return halvings * _LN2_HIGH - (log_mantissa - halvings * _LN2_LOW)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _magnitude(word, scale, band):  # type: ignore[no-untyped-def]
    """floor(scale * E) for the 63 bits of ``word``; -1 if they, or floats, do not decide it."""
    digits = word & 0x7FFFFFFFFFFFFFFF
    if digits == 0:
        return np.int64(-1)
    x = np.float64(digits)
    exponential = _minus_log(x, 63)
    value = scale * exponential
    margin = band * scale * (1.0 + exponential)
    # U is in [digits, digits + 1) / 2^63: E is at most -ln of the lower end, and less by at most 1 / digits.
    floor = np.floor(value + margin)
    if value - margin - scale / x >= floor:
        return np.int64(floor)
    return np.int64(-1)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _laplace_loop(words, coins, scales, step, out, filled, used, band):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Fill ``out`` from ``filled`` with the words from ``used`` on; stop where floats cannot decide.

    Returns the new ``filled`` and ``used``.
    """
    while filled < out.size and used < words.size:
        word = words[used]
        magnitude = _magnitude(word, scales[filled * step], band)
        if magnitude < 0:
            break
        used += 1
        if word < 0:
            if magnitude > 0:
                out[filled] = -magnitude
                filled += 1
        else:
            out[filled] = magnitude
            filled += 1
    return filled, used


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _gaussian_loop(words, coins, scales, step, out, filled, used, band):  # type: ignore[no-untyped-def]
    """As :func:`_laplace_loop`: propose a Laplace of scale floor(sigma) + 1, accept it if E' > g."""
    while filled < out.size and used < words.size:
        word = words[used]
        coin = np.float64(coins[used])
        sigma = scales[filled * step]
        scale = np.floor(sigma) + 1.0
        magnitude = _magnitude(word, scale, band)
        if magnitude < 0 or coin == 0.0:
            break
        if magnitude == 0 and word < 0:
            used += 1
            continue
        away = (magnitude - sigma * (sigma / scale)) / sigma
        reach = magnitude / sigma + 1.0
        exponential = _minus_log(coin, 32)
        gap = exponential - 0.5 * away * away
        margin = band * (reach * reach + 1.0 + exponential)
        if gap > margin + 1.0 / coin:
            used += 1
            out[filled] = -magnitude if word < 0 else magnitude
            filled += 1
        elif gap < -margin:
            used += 1
        else:  # too close, or not a number because sigma is so small that magnitude / sigma overflows
            break
    return filled, used


# -- one trial, decided exactly ------------------------------------------------------------------------------


def _bounds(digits: int, bits: int, entropy: Entropy) -> Iterator[tuple[Fraction, Fraction | None]]:
    """Ever closer rational bounds of E = -ln U, where U lies in [digits, digits + 1) / 2^bits.

    Each step draws 64 further bits of U. There is no upper bound while all bits are 0. The arithmetic error
    is far below the width of the interval: a quotient rounded outwards, then decimal's logarithm, which is
    correctly rounded, moved outwards by one unit.
    """
    while True:
        down, up = (Context(bits + 20, rounding, MIN_EMIN, MAX_EMAX) for rounding in (ROUND_FLOOR, ROUND_CEILING))
        one, high = Decimal(2**bits), None
        low = max(Decimal(0), down.next_minus(down.ln(down.divide(one, Decimal(digits + 1)))))
        if digits:
            high = Fraction(up.next_plus(up.ln(up.divide(one, Decimal(digits)))))
        yield Fraction(low), high
        digits = digits << 64 | int.from_bytes(_request(entropy, 8), "big")
        bits += 64


def _exact_magnitude(word: int, scale: Fraction, entropy: Entropy) -> int:
    """floor(scale * E), with as many further bits of U as it takes. Ends with probability 1."""
    bounds = _bounds(word & (2**63 - 1), 63, entropy)
    while True:
        low, high = next(bounds)
        floor = math.floor(scale * low)
        if high is not None and math.floor(scale * high) == floor:
            return min(floor, LARGEST_SAMPLE)


def _exact_laplace(word: int, coin: int, scale: float, entropy: Entropy) -> int | None:  # noqa: ARG001
    """What the loop would do with this trial, without floats; None if the trial is rejected."""
    magnitude = _exact_magnitude(word, Fraction(scale), entropy)
    if word >= 0:
        return magnitude
    return -magnitude or None


def _exact_gaussian(word: int, coin: int, sigma: float, entropy: Entropy) -> int | None:
    """What the loop would do with this trial, without floats; None if the trial is rejected."""
    variance, scale = Fraction(sigma) ** 2, math.floor(sigma) + 1
    proposal = _exact_laplace(word, coin, scale, entropy)
    if proposal is None:
        return None
    bar = (abs(proposal) - variance / scale) ** 2 / (2 * variance)
    bounds = _bounds(coin, 32, entropy)
    while True:
        low, high = next(bounds)
        if low > bar:
            return proposal
        if high is not None and high <= bar:
            return None


_LAPLACE = _Law(loop=_laplace_loop, exact=_exact_laplace, width=8)
_GAUSSIAN = _Law(loop=_gaussian_loop, exact=_exact_gaussian, width=12)
