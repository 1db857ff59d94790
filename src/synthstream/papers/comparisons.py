"""How many noisy comparisons in a row stay below a threshold: one uniform number a path, exactly.

A comparison with margin m passes if fresh discrete Laplace noise is at most m, and fails with probability
q(m) = P(noise > m). The first n of a path pass with probability prod (1 - q). So with E = -ln U and the hazards
h = -ln(1 - q), the number that pass is the largest n whose hazards sum to less than E.

A float decides where its proven error band and the first 63 digits of U leave one answer; elsewhere the same path is
decided in exact arithmetic of growing precision, with more digits of U (theorem ``passes``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

import numba
import numpy as np

from synthstream.kernel.gate import Question
from synthstream.kernel.sampling import _BAND, _LN2_HIGH, _LN2_LOW, Entropy, _bounds, _checked, _minus_log, _request
from synthstream.workload import IntArray

# More comparisons than this in one call are refused, so that sums of them stay within 64 bits.
LARGEST_TOTAL = 2**62

# Relative error band of a hazard; the theorem needs half. Widened in tests until all is decided exactly.
_HAZARD_BAND = 2.0**-40
# What each run of a path adds to the band, in bands: four units of rounding, of which the theorem needs one.
_PER_RUN = 2.0**-11
_INVERSE_LN2 = 1 / math.log(2)


@dataclass(frozen=True, repr=False, eq=False)
class Comparisons(Question):
    """Number of comparisons that each path passes before one fails; int64, shape ``(paths,)``.

    A comparison passes if fresh discrete Laplace noise is at most its margin: threshold minus count. All of a path
    are counted if none fails. The scale is one for all, or one for each path.

    Args:
        value: margin of each run of comparisons, int64, shape ``(runs,)``.
        repeats: how many comparisons a run has, at least 0, in the same type and shape.
        starts: path i is the runs ``starts[i]`` up to ``starts[i + 1]``; int64, shape ``(paths + 1,)``.

    Cost: that of the whole sequence, thresholds included; it is no sum over values (theorem ``hypercube``).

    Time: about 10 ns a path whose comparisons are unlikely to fail, and 50 ns a run of others.

    Raises:
        TypeError, ValueError: these are no paths; or, once it is drawn, the scale is out of range or of another shape.

    Example:
        >>> import os
        >>> margins, repeats = np.array([1000, -1000, 5]), np.array([7, 2, 1])
        >>> Comparisons(margins, 1.0, repeats, np.array([0, 2, 3])).draw(os.urandom).tolist()
        [7, 1]
    """

    kind = "passes"
    repeats: IntArray
    starts: IntArray

    def __post_init__(self) -> None:
        margins, repeats, starts = self.value, self.repeats, self.starts
        for name, array in (("margins", margins), ("repeats", repeats), ("starts", starts)):
            if array.dtype != np.int64:
                raise TypeError(f"{name}: the gate takes int64, not {array.dtype}")
            if array.ndim != 1:
                raise ValueError(f"{name}: the gate takes a vector, not shape {array.shape}")
        if margins.size != repeats.size:
            raise ValueError(f"repeats: one for each of {margins.size} margins, not {repeats.size}")
        if not starts.size or starts[0] != 0 or starts[-1] != margins.size or np.any(starts[1:] < starts[:-1]):
            raise ValueError(f"starts: must go from 0 to {margins.size} and never down")
        if np.any(repeats < 0) or not repeats.sum(dtype=np.float64) < LARGEST_TOTAL:
            raise ValueError("repeats: must be at least 0, and fewer than 2^62 together")

    @property
    def size(self) -> int:
        return len(self.starts) - 1

    def draw(self, entropy: Entropy) -> IntArray:
        scales = _checked("scale", self.scale, self.size)
        words = np.frombuffer(_request(entropy, 8 * self.size), dtype=np.int64)
        step = int(scales.size > 1)
        out: IntArray = _decided(words, self.value, self.repeats, self.starts, scales, step, _HAZARD_BAND)
        for i in np.flatnonzero(out < 0):
            path = slice(int(self.starts[i]), int(self.starts[i + 1]))
            runs = list(zip(self.value[path].tolist(), self.repeats[path].tolist(), strict=True))
            out[i] = _exact_passes(runs, Fraction(float(scales[i * step])), int(words[i]), entropy)
        return out

    def noiseless(self) -> IntArray:
        runs = self.value.size
        fails = np.append(np.where((self.value < 0) & (self.repeats > 0), np.arange(runs), runs), runs)
        next_fail = np.minimum.accumulate(fails[::-1])[::-1]
        before = np.concatenate([[0], np.cumsum(self.repeats)])
        passed: IntArray = before[np.minimum(next_fail[self.starts[:-1]], self.starts[1:])] - before[self.starts[:-1]]
        return passed


# -- by floats -----------------------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _power_of_half(halvings):  # type: ignore[no-untyped-def]
    """2^-floor(halvings), and 2^-1010 from there on."""
    return np.int64((1023 - np.int64(min(halvings, 1010.0))) << 52).view(np.float64)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _exp_minus(x):  # type: ignore[no-untyped-def]
    """exp(-x) for x >= 0, to a relative error of 2^-49; 0 above 700. Basic operations only, as ``_minus_log``."""
    if x > 700.0:
        return 0.0
    halvings = np.floor(x * _INVERSE_LN2 + 0.5)
    rest = (halvings * _LN2_HIGH - x) + halvings * _LN2_LOW
    total = 1.0
    for k in (14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1):
        total = total * rest * (1.0 / k) + 1.0
    return total * _power_of_half(halvings)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _minus_log_rest(q):  # type: ignore[no-untyped-def]
    """-ln(1 - q) for 0 <= q <= 1/2, to a relative error of 2^-45."""
    s = q / (2.0 - q)
    z = s * s
    total = 1.0 / 25
    for k in (23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1):
        total = total * z + 1.0 / k
    return 2.0 * s * total


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _hazard(margin, scale, p):  # type: ignore[no-untyped-def]
    """-ln P(noise <= margin), with p = exp(-1 / scale)."""
    if margin < 0:
        return -np.float64(margin) / scale + _minus_log_rest(p / (1.0 + p))
    return _minus_log_rest(_exp_minus((np.float64(margin) + 1.0) / scale) / (1.0 + p))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _decide(word, margins, repeats, first, last, scale, band):  # type: ignore[no-untyped-def]
    """Passes of one path, or -1 if floats, or the digits of the word, do not decide it."""
    digits = word & 0x7FFFFFFFFFFFFFFF
    if digits == 0:
        return np.int64(-1)
    x = np.float64(digits)
    exponential = _minus_log(x, 63)
    margin = _BAND * (1.0 + exponential)
    low, high = exponential - margin - 1.0 / x, exponential + margin
    p = _exp_minus(1.0 / scale)
    before, passed = 0.0, np.int64(0)
    for run in range(first, last):
        if repeats[run] == 0:
            continue
        slack = band * (1.0 + _PER_RUN * (run - first))
        number, hazard = np.float64(repeats[run]), _hazard(margins[run], scale, p)
        after = before + number * hazard
        if after * (1.0 + slack) < low:
            before = after
            passed += repeats[run]
            continue
        more = np.floor((exponential - before) / hazard)
        if not more > 0.0:  # also where it is not a number
            more = 0.0
        more = min(more, number - 1.0)
        if (before + more * hazard) * (1.0 + slack) < low and (before + (more + 1.0) * hazard) * (1.0 - slack) > high:
            return passed + np.int64(more)
        return np.int64(-1)
    return passed


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _decided(words, margins, repeats, starts, scales, step, band):  # type: ignore[no-untyped-def]
    """Passes of all paths. Most are decided here, without exponential or logarithm.

    -ln U >= 1 - U, and a hazard is at most 1.4 exp(-(margin + 1) / scale), so at most 1.4 times a power of a half.
    """
    out = np.empty(words.size, dtype=np.int64)
    for i in range(words.size):
        total, least = np.int64(0), np.int64(2**62)
        for run in range(starts[i], starts[i + 1]):
            if repeats[run] > 0:
                total += repeats[run]
                least = min(least, margins[run])
        most = 2.0 * total * _power_of_half((np.float64(least) + 1.0) / scales[i * step] * _INVERSE_LN2)
        above = np.float64(words[i] & 0x7FFFFFFFFFFFFFFF) * 2.0**-63 + 2.0**-49
        if least >= 0 and most * (1.0 + band) < 1.0 - above:
            out[i] = total
        else:
            out[i] = _decide(words[i], margins, repeats, starts[i], starts[i + 1], scales[i * step], band)
    return out


# -- one path, decided exactly -------------------------------------------------------------------------------


def _exact_passes(runs: list[tuple[int, int]], scale: Fraction, word: int, entropy: Entropy) -> int:
    """What floats would answer if they could, with as many further bits of U as it takes. Ends with probability 1."""
    bounds, digits = _bounds(word & (2**63 - 1), 63, entropy), 40
    while True:
        low, high = next(bounds)
        near = {margin: _fixed_point(margin, scale, digits) for margin, _ in runs}
        largest = [(near[margin] + 2, repeats) for margin, repeats in runs]
        smallest = [(max(near[margin] - 1, 0), repeats) for margin, repeats in runs]
        least = _before(largest, math.floor(low * 10**digits))
        most = _before(smallest, None if high is None else math.ceil(high * 10**digits))
        if least == most:
            return least
        digits += 20  # 64 further bits of U are 19.3 digits


def _before(runs: list[tuple[int, int]], bar: int | None) -> int:
    """Largest n so that the first n of the numbers, each repeated, sum to less than ``bar``; all if there is none."""
    passed = 0
    for number, repeats in runs:
        if bar is not None:
            if bar <= 0:
                return passed
            if number * repeats >= bar:
                return passed + (bar - 1) // number
            bar -= number * repeats
        passed += repeats
    return passed


def _fixed_point(margin: int, scale: Fraction, digits: int) -> int:
    """The hazard in units of 10^-digits, rounded down; off by less than one more unit to either side."""
    context = Context(prec=2 * digits, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)
    p = _small_exponential(1 / scale, context)
    beside = context.ln(context.add(1, p))
    if margin < 0:
        hazard = Fraction(beside) - Fraction(margin) / scale
    else:
        fails = _small_exponential(Fraction(margin + 1) / scale, context)
        hazard = Fraction(context.subtract(beside, context.ln(context.subtract(context.add(1, p), fails))))
    cut: int = math.floor(hazard * 10**digits)
    return cut


def _small_exponential(x: Fraction, context: Context) -> Decimal:
    """exp(-x), or 0 where that is less than 10^-(1.3 prec)."""
    if x > 3 * context.prec:
        return Decimal(0)
    quotient = context.divide(Decimal(x.numerator), Decimal(x.denominator))
    return context.exp(context.minus(quotient))
