"""A stream by a method of paper 2 that is interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.kernel.gate import Gate, Question, SystemGate
from synthstream.workload import IntArray
from tests.support.configs import AGE, SINK, URGENT, WARD, stream_toml

TOML = stream_toml('[synthesizer]\nkind = "selective"\npicks = 2\n', WARD, AGE, URGENT, SINK, delta=0.0)


def config(folder: Path, kind: str = "selective", fit: str = "mw", *, more: str = "", text: str = TOML) -> StreamConfig:
    text = text.replace('kind = "selective"', f'kind = "{kind}"\nfit = "{fit}"\n{more}')
    return StreamConfig.from_toml(text, base=folder)


def visits(days: list[int]) -> pl.DataFrame:
    rng = np.random.default_rng(len(days))
    return pl.DataFrame(
        {
            "when": [datetime(2026, 1, d, 12) for d in days],
            "ward": rng.choice(["A", "B"], len(days)),
            "age": rng.integers(0, 100, len(days)),
            "urgent": rng.choice([True, False], len(days)),
        }
    )


DAYS = [1] * 30 + [2] * 50 + [4] * 20 + [5] * 40


class Interrupted(Exception):
    """Stands for the end of a process."""


class Mortal(Gate):
    """A gate that ends the process before, or right after, the n-th call, and counts what was really drawn."""

    def __init__(self, inner: Gate, dies_at: int, drawn: list[int]) -> None:
        self._inner, self._left, self._drawn = inner, dies_at, drawn

    def answer(self, question: Question) -> IntArray:
        if self._left == 0:
            raise Interrupted
        self._left -= 1
        self._drawn.append(1)
        return self._inner.answer(question)


@contextmanager
def mortal_system(dies_at: int, drawn: list[int]) -> Iterator[None]:
    """The system's own gate is as :class:`Mortal`: in the place of it none would count as real."""
    with pytest.MonkeyPatch.context() as patch:
        honest = SystemGate.answer  # kept apart, so that it answers as it did
        mortal = Mortal(type("Honest", (Gate,), {"answer": honest})(), dies_at, drawn)
        patch.setattr(SystemGate, "answer", staticmethod(mortal.answer))
        yield


def lived_one_answer_at_a_time(mine: StreamConfig, drawn: list[int]) -> None:
    """All ticks that are due, by processes that each end after one new answer; ``drawn`` grows by one for each."""
    for _ in range(100):
        try:
            with mortal_system(1, drawn), Stream(mine) as stream:
                while stream.due():
                    stream.release()
            break
        except Interrupted:
            continue
