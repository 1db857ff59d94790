"""The laws of the system's gate from a seed, for simulations. It protects nobody, and no release takes it for real."""

from __future__ import annotations

import hashlib
from itertools import count

from synthstream.kernel.gate import Gate, Question
from synthstream.workload import IntArray


class SeededGate(Gate):
    """The laws of the system's gate, from a seed: the same calls give the same answers."""

    def __init__(self, seed: int | str) -> None:
        self._seed = str(seed).encode()
        self._requests = count()

    def entropy(self, size: int) -> bytes:
        """The next ``size`` bytes: SHAKE-256 of the seed and the number of the request."""
        return hashlib.shake_256(b"%s/%d" % (self._seed, next(self._requests))).digest(size)

    def answer(self, question: Question) -> IntArray:
        return question.draw(self.entropy)
