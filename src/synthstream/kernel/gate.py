"""The gate: the one place where exact counts become released numbers. Every use of it is a call ``gate.``."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Protocol

import numpy as np

from synthstream.kernel.comparisons import checked_paths, passes
from synthstream.kernel.permute_and_flip import LARGEST_SCORE, noisy_max
from synthstream.kernel.sampling import FloatArray, IntArray, discrete_gaussian, discrete_laplace

# Larger values are clipped before noise is added. Noise is never larger than 2^62 - 1 (kernel/sampling.py),
# so their sum stays within 64 bits, and no value can cause an error.
LARGEST_VALUE = 2**62


class Gate(Protocol):
    """Adds integer noise to exact integers: fresh in every call, independent in every element.

    A scale is a float, one for all, or float64, shape ``(n,)``, one for each element: above 0 and at most
    2^36, in the unit of the values. It must be public.
    """

    def gaussian(self, value: IntArray, *, sigma: float | FloatArray) -> IntArray:
        """``value`` plus discrete Gaussian noise; int64, shape ``(n,)``.

        Cost: rho = sum over elements of change^2 / (2 sigma^2) (theorem ``discrete-gaussian``).
        """

    def laplace(self, value: IntArray, *, scale: float | FloatArray) -> IntArray:
        """``value`` plus discrete Laplace noise; int64, shape ``(n,)``.

        Cost: epsilon = sum over elements of |change| / scale (theorem ``discrete-laplace``).
        """

    def choose(self, scores: IntArray, *, sensitivity: int, epsilon: float) -> int:
        """Position of one candidate, those of large score more likely.

        Args:
            scores: int64, shape ``(n,)``, at least one.
            sensitivity: one unit changes no score by more than this.
            epsilon: what the choice costs.

        Cost: epsilon * largest change / sensitivity, at most epsilon (theorem ``choose``).
        """

    def passes(self, margins: IntArray, repeats: IntArray, starts: IntArray, *, scale: float | FloatArray) -> IntArray:
        """Number of comparisons that each path passes before one fails; int64, shape ``(paths,)``.

        A comparison passes if fresh discrete Laplace noise is at most its margin: threshold minus count. All of a path
        are counted if none fails. Path i is the runs ``starts[i]`` up to ``starts[i + 1]``, and a run is ``repeats``
        comparisons with one margin. The scale is one for all, or one for each path.

        Cost: that of the whole sequence, thresholds included; it is no sum over values (theorem ``hypercube``).
        """


class SystemGate:
    """The gate of every real stream.

    It has no state: each call asks the operating system for random bytes of its own, and keeps none. So no
    seed can repeat its noise, and two processes that were one cannot share it.

    Privacy:
        Unit        one change of the values passed in one call
        Cost        that of :class:`Gate`
        Theorem     discrete-laplace, discrete-gaussian, choose, passes
        Trusts      ``os.urandom`` returns independent uniform bytes

    Raises:
        ValueError: a scale is out of range, or shapes do not fit; depends on public facts alone.
        TypeError: the values are not int64.
        OSError, NotImplementedError: the system has no random bytes.

    Example:
        >>> gate = SystemGate()
        >>> gate.laplace(np.array([10, 20, 30]), scale=2.0).shape
        (3,)
    """

    __slots__ = ()  # nobody can put another method into one of them

    def gaussian(self, value: IntArray, *, sigma: float | FloatArray) -> IntArray:
        exact = within_range(value)
        return exact + discrete_gaussian(sigma, exact.size, entropy=os.urandom)

    def laplace(self, value: IntArray, *, scale: float | FloatArray) -> IntArray:
        exact = within_range(value)
        return exact + discrete_laplace(scale, exact.size, entropy=os.urandom)

    def choose(self, scores: IntArray, *, sensitivity: int, epsilon: float) -> int:
        exact, rate = checked_choice(scores, sensitivity, epsilon)
        return noisy_max(exact, rate=rate, entropy=os.urandom)

    def passes(self, margins: IntArray, repeats: IntArray, starts: IntArray, *, scale: float | FloatArray) -> IntArray:
        checked_paths(margins, repeats, starts)
        return passes(margins, repeats, starts, scale=scale, entropy=os.urandom)


def is_secure(gate: Gate) -> bool:
    """Whether noise is real: whether the gate is the system's own. Every release of any other says that it is not.

    No gate is asked, so none can vouch for itself: not a subclass, and not one that hands its calls on.

    Example:
        >>> class Better(SystemGate):
        ...     pass
        >>> is_secure(SystemGate()), is_secure(Better())
        (True, False)
    """
    return type(gate) is SystemGate


def within_range(value: IntArray) -> IntArray:
    """Values clipped to ``LARGEST_VALUE`` in size, which moves no two of them further apart.

    Raises ``TypeError`` if they are not int64, ``ValueError`` if they are not a vector.
    """
    if value.dtype != np.int64:
        raise TypeError(f"value: the gate takes int64, not {value.dtype}")
    if value.ndim != 1:
        raise ValueError(f"value: the gate takes a vector, not shape {value.shape}")
    return np.minimum(np.maximum(value, -LARGEST_VALUE), LARGEST_VALUE)


def checked_choice(scores: IntArray, sensitivity: int, epsilon: float) -> tuple[IntArray, Fraction]:
    """Scores clipped to ``LARGEST_SCORE`` in size, and their weight in units of the exponential noise.

    Raises ``TypeError`` or ``ValueError`` if the arguments are not what :meth:`Gate.choose` takes.
    """
    if scores.dtype != np.int64:
        raise TypeError(f"scores: the gate takes int64, not {scores.dtype}")
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"scores: the gate takes a vector of at least one, not shape {scores.shape}")
    if sensitivity < 1 or not 0 < epsilon < float("inf"):
        raise ValueError(f"a choice needs a sensitivity of at least 1 and a finite epsilon above 0, not {epsilon}")
    return np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE), Fraction(epsilon) / (2 * sensitivity)
