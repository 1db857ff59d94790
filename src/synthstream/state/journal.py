"""A gate that writes down every answer before anyone sees it, and never draws one twice."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version

from synthstream.errors import StateCorrupt
from synthstream.kernel.gate import Choice, Gate, Question, is_secure
from synthstream.state.store import Store
from synthstream.workload import IntArray

_installed = cache(version)  # reading it takes longer than a draw


class JournalGate(Gate):
    """The gate of a tick that is being closed.

    What comes after a draw may fail because of what was drawn: a fit, or a disk that is too full for what compresses
    badly. Drawing again would then favour some answers, which no theorem covers. So each answer is committed when it is
    drawn, in a place whose size is public, and a tick that was interrupted goes on from what was committed. An answer
    is kept with its question, and is taken for no other one.

    Args:
        gate: where new answers come from.
        store: where answers are kept until the tick is closed.
    """

    def __init__(self, gate: Gate, store: Store, tick: int) -> None:
        self._gate, self._store, self._tick = gate, store, tick
        self._calls = 0
        # Another version may offer other candidates in the same number.
        self._version = _installed("synthstream")

    def answer(self, question: Question) -> IntArray:
        call, self._calls = self._calls, self._calls + 1
        asked = hashlib.sha256(f"{self._version} {question.size} {question.words}".encode()).hexdigest()
        kept = self._store.answer(self._tick, call)
        if kept is None:
            drawn = self._gate.answer(question)
            with self._store.transaction("answer"):
                self._store.put_answer(self._tick, call, asked, drawn)
            return drawn
        before, known = kept
        if before != asked or len(known) != question.size:
            raise self._corrupt()
        if isinstance(question, Choice) and not 0 <= known[0] < len(question.value):
            raise self._corrupt()
        if not is_secure(self._gate):
            self._gate.answer(question)  # a simulated gate counts its calls: what follows is as if never interrupted
        return known

    def _corrupt(self) -> StateCorrupt:
        return StateCorrupt(
            f"{self._store.folder}: an answer that was written down for tick {self._tick} does not fit what is asked. "
            "Finish the tick with the version of Synthstream, and on the type of machine, that began it, or restore "
            "the folder whole. No noise was drawn."
        )
