"""Noise of a second run that hides what its rows differ: its gates repeat the answers of the first run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

import numpy as np
import pytest

from synthstream.kernel.counters.base import State
from synthstream.kernel.counters.kary import Kary
from synthstream.kernel.gate import Gate
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray, IntArray
from tests.support.gates import Call, ReplayingGate, TraceMismatch, TracingGate

Run = Literal["one", "two"]
_RUNS: tuple[Run, Run] = ("one", "two")
_kary_step = Kary.step


class Aligned:
    """Gates of two runs: the second repeats the answers of the first.

    That aligns everything that adds noise to an exact value. Only a k-ary counter draws noise by itself and adds it
    later, to sums that still grow. What it adds is the same in both runs, which is checked; its estimates are then
    those of the first run, as noise that is moved by what each of its nodes differs would make them (theorem kary).
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._traces: dict[Run, dict[int, list[list[Call]]]] = {"one": {}, "two": {}}
        self._estimates: list[tuple[FloatArray, FloatArray]] = []
        self._repeated = 0

    def gate(self, run: Run, tick: int) -> Gate:
        """The gate of a tick."""
        gate: TracingGate | ReplayingGate
        if run == "one":
            gate = TracingGate(SeededGate(f"{self._seed}/{tick}"))
        else:
            gate = ReplayingGate(_together(self._traces["one"].get(tick, [])))
        self._traces[run].setdefault(tick, []).append(gate.trace)
        return gate

    @contextlib.contextmanager
    def kary(self, run: Run) -> Iterator[None]:
        """While it lasts, estimates of k-ary counters are noted in the first run, and repeated in every other one."""
        self._repeated, self._traces[run] = 0, {}

        def step(
            counter: Kary, state: State, counts: IntArray, gate: Gate, *, multiplier: FloatArray
        ) -> tuple[State, FloatArray]:
            after, estimate = _kary_step(counter, state, counts, gate, multiplier=multiplier)
            noise = estimate - after["sum"]
            if run == "one":
                self._estimates.append((noise, estimate.copy()))
                return after, estimate
            if self._repeated >= len(self._estimates):
                raise TraceMismatch("there are more estimates in the second run")
            known, repeated = self._estimates[self._repeated]
            self._repeated += 1
            if not np.array_equal(noise, known):
                raise TraceMismatch("the noise of a k-ary counter differs")
            return after, repeated.copy()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Kary, "step", step)
            yield

    def traces(self, run: Run) -> dict[int, list[Call]]:
        """Calls of each tick of a run, the newest one of its name."""
        return {tick: _together(traces) for tick, traces in self._traces[run].items()}

    def calls(self) -> tuple[dict[int, int], dict[int, int]]:
        """Number of calls at each tick of each run."""
        one, two = ({t: len(_together(traces)) for t, traces in self._traces[run].items()} for run in _RUNS)
        return one, two


def _together(traces: list[list[Call]]) -> list[Call]:
    """A tick is drawn once, but a gate is also made to ask whether it is secure."""
    return [call for trace in traces for call in trace]
