"""Bugs of the gate and its samplers."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from synthstream.kernel import gate
from synthstream.kernel.gate import Gaussian, Laplace, Question, SystemGate
from synthstream.stream import stream
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray
from tests.audit import suites
from tests.audit.broken import Patch, seen_by

Draw = Callable[..., IntArray]


def _around(patch: Patch, kind: str, change: Callable[[Draw, SystemGate, IntArray, Any], IntArray]) -> None:
    """Replace one of the gate's laws; the change is given the honest one."""
    honest, laws = SystemGate.answer, {"laplace": Laplace, "gaussian": Gaussian}

    def broken(self: SystemGate, question: Question) -> IntArray:
        if question.kind != kind:
            return honest(self, question)
        return change(lambda v, s: honest(self, laws[kind](v, s)), self, question.value, question.scale)

    patch.setattr(SystemGate, "answer", broken)


@seen_by("noise law", "audit")
def halved_noise(patch: Patch) -> None:
    """Laplace noise of half the scale: twice the epsilon."""
    _around(patch, "laplace", lambda draw, self, value, scale: draw(value, scale / 2))


@seen_by("noise law", "audit")
def halved_gaussian_noise(patch: Patch) -> None:
    """Gaussian noise of half the sigma: four times the rho."""
    _around(patch, "gaussian", lambda draw, self, value, sigma: draw(value, sigma / 2))


@seen_by("noise law")
def noise_a_little_too_small(patch: Patch) -> None:
    """A scale that is 5 % too small: less than an audit of so few runs can tell."""
    _around(patch, "laplace", lambda draw, self, value, scale: draw(value, scale * 0.95))


@seen_by("noise law", "audit")
def one_branch_halved(patch: Patch) -> None:
    """Noise below zero is halved, noise above is right."""

    def change(draw: Draw, self: SystemGate, value: IntArray, scale: Any) -> IntArray:
        noise = draw(np.zeros_like(value), scale)
        return value + np.where(noise < 0, noise // 2, noise)

    _around(patch, "laplace", change)


@seen_by("audit")
def again_until_it_is_not_negative(patch: Patch) -> None:
    """Draws anew while the noisy count is below 0, because a count cannot be: what is released tells of the retries."""

    def change(draw: Draw, self: SystemGate, value: IntArray, scale: Any) -> IntArray:
        answer = draw(value, scale)
        while np.any(answer < 0):
            answer = np.where(answer < 0, draw(value, scale), answer)
        return answer

    _around(patch, "laplace", change)


@seen_by("precision")
def noise_in_floats(patch: Patch) -> None:
    """The textbook's Laplace noise in floating point: its low bits tell the count (Mironov 2012)."""
    rng = np.random.default_rng()

    def change(draw: Draw, self: SystemGate, value: IntArray, scale: Any) -> IntArray:
        return np.asarray(value + rng.laplace(scale=scale, size=value.size))

    _around(patch, "laplace", change)


@seen_by("freshness")
def the_same_noise_at_every_tick(patch: Patch) -> None:
    """A new gate with one and the same seed for each tick: differences of releases are exact."""
    patch.setattr(SystemGate, "answer", lambda self, question: SeededGate(0).answer(question))


@seen_by("freshness")
def cells_share_their_noise(patch: Patch) -> None:
    """One draw for all cells of a call: differences of cells are exact."""

    def change(draw: Draw, self: SystemGate, value: IntArray, scale: Any) -> IntArray:
        one = draw(np.zeros(1, dtype=np.int64), float(np.max(scale)))
        return value + one

    _around(patch, "gaussian", change)


@seen_by("freshness")
def random_bytes_kept_across_a_fork(patch: Patch) -> None:
    """A buffer of random bytes in the process: its children draw the same noise."""
    buffer = bytearray(os.urandom(2**20))

    def buffered(count: int) -> bytes:
        taken = bytes(buffer[:count])
        del buffer[:count]
        return taken

    patch.setattr("synthstream.kernel.gate.os.urandom", buffered)


@seen_by("law of choices")
def epsilon_in_place_of_half(patch: Patch) -> None:
    """The exponential mechanism with exp(epsilon score / sensitivity), without the 2: twice the cost."""
    honest = gate.checked_choice

    def broken(scores: IntArray, sensitivity: int, epsilon: float) -> tuple[IntArray, Fraction]:
        exact, rate = honest(scores, sensitivity, epsilon)
        return exact, 2 * rate

    patch.setattr(gate, "checked_choice", broken)


@seen_by("stamps")
def a_gate_that_is_believed(patch: Patch) -> None:
    """Noise that anyone can repeat, in a release that does not say so, because the gate does not either."""
    patch.setattr(SeededGate, "secure", True, raising=False)
    patch.setattr(stream, "is_secure", lambda gate: getattr(gate, "secure", True))


@seen_by("lint")
def another_source_of_noise(patch: Patch) -> None:
    """A counter that draws its noise by itself, from NumPy."""
    honest = suites.kernel_sources()
    line = 'total: FloatArray = state["sum"] + released'
    assert line in honest["counters/simple.py"]
    broken = honest["counters/simple.py"].replace(line, line + " + np.random.default_rng().laplace(size=released.size)")
    patch.setattr(suites, "kernel_sources", lambda: honest | {"counters/simple.py": broken})
