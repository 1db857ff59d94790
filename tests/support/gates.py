"""Gates for tests and simulations. None of them protects anyone, and every release of theirs says so.

A tracing and a replaying gate give the privacy cost of a path without statistics: run a stream through the
first, a neighbouring stream through the second, which repeats the answers, and compare what each passed to
the gate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from synthstream.kernel.gate import Gate, Question, Scale
from synthstream.workload import IntArray


class TraceMismatch(AssertionError):
    """Two runs did not ask the gate for the same: number, kind, shape or scale of calls depended on data."""


class Call(NamedTuple):
    """One call of a gate: what it was given, and what it answered.

    The scale of a choice is sensitivity / epsilon: what a change of one in the scores costs is 1 / scale. The value of
    paths of comparisons is their margins, repeats and starts, one after the other. Tables that get noise together have
    so many cells each.
    """

    kind: str
    value: IntArray
    scale: Scale
    answer: IntArray
    cells: tuple[int, ...] = ()


class ExactGate(Gate):
    """Adds nothing, and chooses the largest score, the first if there are several."""

    def answer(self, question: Question) -> IntArray:
        return question.noiseless()


class TracingGate(Gate):
    """Hands each question to another gate and records it in ``trace``."""

    def __init__(self, inner: Gate) -> None:
        self.trace: list[Call] = []
        self._inner = inner

    def answer(self, question: Question) -> IntArray:
        answer = self._inner.answer(question)
        self.trace.append(_call(question, answer))
        return answer


class ReplayingGate(Gate):
    """Gives the answers of a recorded trace again, and records the values it is now asked about in ``trace``.

    Raises:
        TraceMismatch: a call differs from the recorded one in kind, shape or scale, or there is none left.
    """

    def __init__(self, recorded: Sequence[Call]) -> None:
        self.trace: list[Call] = []
        self._recorded = tuple(recorded)

    def answer(self, question: Question) -> IntArray:
        number = len(self.trace)
        if number >= len(self._recorded):
            raise TraceMismatch(f"call {number}: the recorded run made only {number} calls")
        answer = self._recorded[number].answer
        call = _call(question, answer)
        _compare(number, self._recorded[number], call)
        if answer.size != question.size:
            raise TraceMismatch(f"call {number}: {answer.size} answers in one run, {question.size} in the other")
        self.trace.append(call)
        return answer.copy()


def _call(question: Question, answer: IntArray) -> Call:
    # The caller may go on to change its arrays in place.
    scale = question.scale.copy() if isinstance(question.scale, np.ndarray) else question.scale
    about = [part for name, part in vars(question).items() if isinstance(part, np.ndarray) and name != "scale"]
    return Call(question.kind, np.concatenate(about), scale, answer.copy(), getattr(question, "cells", ()))


def path_cost(trace_a: Sequence[Call], trace_b: Sequence[Call]) -> tuple[Fraction, Fraction]:
    """What an observer learns at most about which of two runs took place, given the same answers; exact.

    Returns:
        rho: sum of (v - v')^2 / (2 sigma^2) over all elements of all Gaussian calls.
        epsilon: sum of |v - v'| / scale over all elements of all Laplace calls, of the largest |v - v'| / scale of
            every choice, and of the largest such sum over a table of tables that get noise together.

    Raises:
        TraceMismatch: the runs differ in the number, kind, shape or scale of calls.
        TypeError: the runs differ in a path of comparisons, whose cost is no sum over calls (theorem ``hypercube``).

    Example:
        >>> def trace(value: int) -> list[Call]:
        ...     gate = TracingGate(ExactGate())
        ...     gate.gaussian(np.array([value]), sigma=2.0)
        ...     gate.laplace(np.array([value]), scale=4.0)
        ...     return gate.trace
        >>> path_cost(trace(5), trace(6))
        (Fraction(1, 8), Fraction(1, 4))
    """
    if len(trace_a) != len(trace_b):
        raise TraceMismatch(f"one run made {len(trace_a)} calls, the other {len(trace_b)}")
    # Numerators are collected by scale first: fractions with many different denominators grow when added.
    squares: defaultdict[float, int] = defaultdict(int)
    sizes: defaultdict[float, int] = defaultdict(int)
    for number, (a, b) in enumerate(zip(trace_a, trace_b, strict=True)):
        _compare(number, a, b)
        if a.kind == "passes":
            if not np.array_equal(a.value, b.value):
                raise TypeError(f"call {number}: the paths differ; what comparisons cost is no sum over calls")
            continue
        if a.kind == "choose":
            sizes[float(np.max(a.scale))] += max(abs(int(x) - int(y)) for x, y in zip(a.value, b.value, strict=True))
            continue
        if a.kind == "joint":
            off = np.abs(a.value - b.value)
            sizes[float(np.max(a.scale))] += max(int(table.sum()) for table in np.split(off, np.cumsum(a.cells)[:-1]))
            continue
        scales = np.broadcast_to(a.scale, a.value.shape)
        for i in np.flatnonzero(a.value != b.value):
            change = int(a.value[i]) - int(b.value[i])
            if a.kind == "gaussian":
                squares[float(scales[i])] += change**2
            else:
                sizes[float(scales[i])] += abs(change)
    rho = sum((square / (2 * Fraction(sigma) ** 2) for sigma, square in squares.items()), Fraction(0))
    epsilon = sum((size / Fraction(scale) for scale, size in sizes.items()), Fraction(0))
    return rho, epsilon


def _compare(number: int, a: Call, b: Call) -> None:
    if a.kind != b.kind:
        raise TraceMismatch(f"call {number}: {a.kind} in one run, {b.kind} in the other")
    # A path has a run more for each arrival: only the number of paths is public.
    if a.value.shape != b.value.shape and a.kind != "passes":
        raise TraceMismatch(f"call {number}: shape {a.value.shape} in one run, {b.value.shape} in the other")
    if not np.array_equal(a.scale, b.scale) or a.cells != b.cells:
        raise TraceMismatch(f"call {number}: the scale differs between the runs")
