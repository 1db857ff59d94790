"""A gate that writes down every answer before anyone sees it, and never draws one twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.metadata import version

import numpy as np

from synthstream.errors import StateCorrupt
from synthstream.kernel.gate import Gate, is_secure
from synthstream.kernel.sampling import FloatArray
from synthstream.state.store import Store
from synthstream.workload import IntArray


class JournalGate:
    """The gate of a tick that is being closed.

    What comes after a draw may fail because of what was drawn: a fit, or a disk that is too full for what compresses
    badly. Drawing again would then favour some answers, which no theorem covers. So each answer is committed when it is
    drawn, in a place whose size is public, and a tick that was interrupted goes on from what was committed. An answer
    is kept with its question, and is taken for no other one.

    Args:
        gate: where new answers come from.
        store: where answers are kept until the tick is closed.
        tick: the tick that is being closed.
    """

    def __init__(self, gate: Gate, store: Store, tick: int) -> None:
        self._gate, self._store, self._tick = gate, store, tick
        self._calls = 0
        # Another version may offer other candidates in the same number.
        self._version = version("synthstream")

    def gaussian(self, value: IntArray, *, sigma: float | FloatArray) -> IntArray:
        return self._answer(f"gaussian {_public(sigma)}", len(value), lambda: self._gate.gaussian(value, sigma=sigma))

    def laplace(self, value: IntArray, *, scale: float | FloatArray) -> IntArray:
        return self._answer(f"laplace {_public(scale)}", len(value), lambda: self._gate.laplace(value, scale=scale))

    def choose(self, scores: IntArray, *, sensitivity: int, epsilon: float) -> int:
        chosen = self._answer(
            f"choose {len(scores)} {sensitivity} {epsilon!r}",
            1,
            lambda: np.array([self._gate.choose(scores, sensitivity=sensitivity, epsilon=epsilon)]),
        )
        if not 0 <= chosen[0] < len(scores):
            raise self._corrupt()
        return int(chosen[0])

    def passes(self, margins: IntArray, repeats: IntArray, starts: IntArray, *, scale: float | FloatArray) -> IntArray:
        return self._answer(
            f"passes {_public(scale)}",
            len(starts) - 1,
            lambda: self._gate.passes(margins, repeats, starts, scale=scale),
        )

    def _answer(self, question: str, size: int, draw: Callable[[], IntArray]) -> IntArray:
        call, self._calls = self._calls, self._calls + 1
        asked = hashlib.sha256(f"{self._version} {size} {question}".encode()).hexdigest()
        known = self._store.answer(self._tick, call, asked)
        if known is None:
            drawn = draw()
            with self._store.transaction("answer"):
                self._store.put_answer(self._tick, call, asked, drawn)
            return drawn
        if len(known) != size:  # none, if the question was another
            raise self._corrupt()
        if not is_secure(self._gate):
            draw()  # a simulated gate counts its calls: what follows is as if nothing had been interrupted
        return known

    def _corrupt(self) -> StateCorrupt:
        return StateCorrupt(
            f"{self._store.folder}: an answer that was written down for tick {self._tick} does not fit what is asked. "
            "Finish the tick with the version of Synthstream that began it, or restore the folder whole. No noise was "
            "drawn."
        )


def _public(scale: float | FloatArray) -> str:
    return hashlib.sha256(np.asarray(scale, dtype=np.float64).tobytes()).hexdigest()
