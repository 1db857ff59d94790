"""The laws of the system's gate from a seed, for simulations. It protects nobody, and no release takes it for real."""

from __future__ import annotations

import hashlib
from itertools import count

from synthstream.kernel.comparisons import checked_paths, passes
from synthstream.kernel.gate import checked_choice, within_range
from synthstream.kernel.permute_and_flip import noisy_max
from synthstream.kernel.sampling import FloatArray, IntArray, discrete_gaussian, discrete_laplace


class SeededGate:
    """The laws of the system's gate, from a seed: the same calls give the same answers.

    Example:
        >>> import numpy as np
        >>> value = np.zeros(3, dtype=np.int64)
        >>> bool(np.all(SeededGate(7).laplace(value, scale=9.0) == SeededGate(7).laplace(value, scale=9.0)))
        True
    """

    def __init__(self, seed: int | str) -> None:
        self._seed = str(seed).encode()
        self._requests = count()

    def entropy(self, size: int) -> bytes:
        """The next ``size`` bytes: SHAKE-256 of the seed and the number of the request."""
        return hashlib.shake_256(b"%s/%d" % (self._seed, next(self._requests))).digest(size)

    def gaussian(self, value: IntArray, *, sigma: float | FloatArray) -> IntArray:
        return within_range(value) + discrete_gaussian(sigma, value.size, entropy=self.entropy)

    def laplace(self, value: IntArray, *, scale: float | FloatArray) -> IntArray:
        return within_range(value) + discrete_laplace(scale, value.size, entropy=self.entropy)

    def choose(self, scores: IntArray, *, sensitivity: int, epsilon: float) -> int:
        exact, rate = checked_choice(scores, sensitivity, epsilon)
        return noisy_max(exact, rate=rate, entropy=self.entropy)

    def passes(self, margins: IntArray, repeats: IntArray, starts: IntArray, *, scale: float | FloatArray) -> IntArray:
        checked_paths(margins, repeats, starts)
        return passes(margins, repeats, starts, scale=scale, entropy=self.entropy)
