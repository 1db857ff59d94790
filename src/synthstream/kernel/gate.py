"""The gate: the one place where exact counts become released numbers. A search for ``gate.`` finds every call.

One number passes beside it, and the claim says so: paper 1's ``hypercube`` publishes the exact number of events.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np

from synthstream.kernel.choosing import LARGEST_SCORE, noisy_max
from synthstream.kernel.joint import joint_laplace
from synthstream.kernel.sampling import Entropy, discrete_gaussian, discrete_laplace
from synthstream.kinds import Noise
from synthstream.workload import FloatArray, IntArray

# Larger values are clipped before noise is added. Noise is never larger than 2^62 - 1 (kernel/sampling.py),
# so their sum stays within 64 bits, and no value can cause an error.
LARGEST_VALUE = 2**62


Scale = float | FloatArray


@dataclass(frozen=True, repr=False, eq=False)
class Question(ABC):
    """Exact integers, and the law by which they are released. No question shows what it is about.

    Args:
        value: int64, shape ``(n,)``; private.
        scale: of the noise; public. A float, one for all, or float64, one for each element: above 0 and at most 2^36.
        about: what is asked, where earlier answers decide it; public. An answer is not taken for another question's.

    Attributes:
        kind: name of the law.
    """

    kind: ClassVar[str]
    value: IntArray
    scale: Scale
    about: bytes = field(default=b"", kw_only=True)

    @property
    def size(self) -> int:
        """How many integers are released. Public."""
        return self.value.size

    @property
    def words(self) -> str:
        """What is asked, by its public facts alone."""
        return f"{self.kind} {hashlib.sha256(np.asarray(self.scale, np.float64).tobytes() + self.about).hexdigest()}"

    @abstractmethod
    def draw(self, entropy: Entropy) -> IntArray:
        """The answer, by its law; int64, shape ``(size,)``."""

    def noiseless(self) -> IntArray:
        """The answer if there were no noise, for tests; int64, shape ``(size,)``."""
        return within_range(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private)"


class Gaussian(Question):
    """``value`` plus discrete Gaussian noise."""

    kind = "gaussian"

    def draw(self, entropy: Entropy) -> IntArray:
        return within_range(self.value) + discrete_gaussian(self.scale, self.size, entropy=entropy)


class Laplace(Question):
    """``value`` plus discrete Laplace noise."""

    kind = "laplace"

    def draw(self, entropy: Entropy) -> IntArray:
        return within_range(self.value) + discrete_laplace(self.scale, self.size, entropy=entropy)


@dataclass(frozen=True, repr=False, eq=False)
class Joint(Question):
    """``value`` plus noise for several tables together.

    Args:
        scale: a float.
        cells: of each table, in the order of ``value``.

    Raises ``ValueError`` unless ``cells`` add up to all values.
    """

    kind = "joint"
    cells: tuple[int, ...]

    def __post_init__(self) -> None:
        if sum(self.cells) != self.size:
            raise ValueError(f"cells: {sum(self.cells)} in all tables together, for {self.size} values")

    @property
    def words(self) -> str:
        return f"{super().words} {self.cells}"

    def draw(self, entropy: Entropy) -> IntArray:
        return within_range(self.value) + joint_laplace(self.cells, float(self.scale), entropy=entropy)


@dataclass(frozen=True, repr=False, eq=False)
class Choice(Question):
    """Position of one of several scores, the larger ones more likely.

    Args:
        value: the scores, clipped.
        scale: what a change of one in the scores costs is 1 / scale.
        sensitivity, epsilon: see :meth:`Gate.choose`.
        rate: weight of the scores in units of the exponential noise.
    """

    kind = "choose"
    sensitivity: int
    epsilon: float
    rate: Fraction

    @property
    def size(self) -> int:
        return 1

    @property
    def words(self) -> str:
        return f"choose {len(self.value)} {self.sensitivity} {self.epsilon!r}"

    def draw(self, entropy: Entropy) -> IntArray:
        return np.array([noisy_max(self.value, rate=self.rate, entropy=entropy)])

    def noiseless(self) -> IntArray:
        return np.array([np.argmax(self.value)])


class Gate(ABC):
    """Adds integer noise to exact integers: fresh in every call, independent in every element but for :meth:`joint`.

    A mechanism calls the methods below; a gate answers their questions.
    """

    __slots__ = ()

    @abstractmethod
    def answer(self, question: Question) -> IntArray:
        """The answer to a question; int64. Its cost is that of the question's law."""

    def gaussian(self, value: IntArray, *, sigma: Scale) -> IntArray:
        """``value`` plus discrete Gaussian noise; int64, shape ``(n,)``.

        Cost: rho = sum over elements of change^2 / (2 sigma^2) (theorem ``discrete-gaussian``).
        """
        return self.answer(Gaussian(value, sigma))

    def laplace(self, value: IntArray, *, scale: Scale) -> IntArray:
        """``value`` plus discrete Laplace noise; int64, shape ``(n,)``.

        Cost: epsilon = sum over elements of |change| / scale (theorem ``discrete-laplace``).
        """
        return self.answer(Laplace(value, scale))

    def joint(self, value: IntArray, *, cells: Sequence[int], scale: float) -> IntArray:
        """``value``, several tables one after the other, plus noise for all together; int64, shape ``(n,)``.

        Cost: epsilon = largest sum of |change| in a table / scale (theorem ``joint-laplace``).
        """
        return self.answer(Joint(value, scale, tuple(map(int, cells))))

    def noisy(self, value: IntArray, *, noise: Noise, scale: Scale, about: bytes = b"") -> IntArray:
        """``value`` plus noise of a law: see :meth:`gaussian`, :meth:`laplace` and :class:`Question`."""
        return self.answer((Gaussian if noise == "gaussian" else Laplace)(value, scale, about=about))

    def choose(self, scores: IntArray, *, sensitivity: int, epsilon: float) -> int:
        """Position of one candidate, those of large score more likely.

        Args:
            scores: int64, shape ``(n,)``, at least one.
            sensitivity: one unit changes no score by more than this.
            epsilon: what the choice costs.

        Cost: epsilon * largest change / sensitivity, at most epsilon (theorem ``choose``).
        """
        exact, rate = checked_choice(scores, sensitivity, epsilon)
        return int(self.answer(Choice(exact, sensitivity / epsilon, sensitivity, epsilon, rate))[0])

    def noise(self, size: int, *, scale: Scale) -> IntArray:
        """Discrete Laplace noise alone; int64, shape ``(size,)``. Secret: :meth:`perturb` adds it to several values.

        Costs nothing by itself; what its values cost together is for the mechanism's theorem to say.
        """
        return self.laplace(np.zeros(size, dtype=np.int64), scale=scale)

    def perturb(self, value: IntArray, noise: IntArray) -> IntArray:
        """``value`` plus noise from :meth:`noise` that was kept; int64, shape ``(n,)``. No trace shows it.

        Raises ``ValueError`` unless there is a whole number of noise for each value.
        """
        if noise.dtype != np.int64 or noise.shape != value.shape:
            raise ValueError(f"noise: int64, one for each value, not {noise.dtype} of shape {noise.shape}")
        return within_range(value) + noise


class SystemGate(Gate):
    """The gate of every real stream.

    It has no state: each call asks the operating system for random bytes of its own, and keeps none. So no
    seed can repeat its noise, and two processes that were one cannot share it.

    Privacy:
        Unit        one change of the values passed in one call
        Cost        that of :class:`Gate`
        Theorem     discrete-laplace, discrete-gaussian, joint-laplace, choose, passes
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

    def answer(self, question: Question) -> IntArray:
        return question.draw(os.urandom)


def is_secure(gate: Gate) -> bool:
    """Whether noise is real: whether the gate is the system's own. Every release of any other says that it is not.

    No gate is asked, so none can vouch for itself: not a subclass, and not one that hands its calls on. The law is the
    question's: a mechanism that asks a question of its own is trusted with it, as it is with the exact counts.

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

    Raises ``TypeError`` or ``ValueError`` if the arguments are not what :class:`Choice` takes.
    """
    if scores.dtype != np.int64:
        raise TypeError(f"scores: the gate takes int64, not {scores.dtype}")
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"scores: the gate takes a vector of at least one, not shape {scores.shape}")
    if not (isinstance(sensitivity, int | np.integer) and sensitivity >= 1 and 0 < epsilon < float("inf")):
        raise ValueError(f"a choice needs a whole sensitivity of 1 or more and a finite epsilon above 0, not {epsilon}")
    return np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE), Fraction(epsilon) / (2 * sensitivity)
