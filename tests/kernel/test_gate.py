"""The gates: what they add, what they refuse, and what traces of them cost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthstream import Stream
from synthstream.errors import RecoveryRefused, StateMismatch
from synthstream.kernel.gate import LARGEST_VALUE, Gate, SystemGate, is_secure, within_range
from synthstream.kernel.sampling import LARGEST_SAMPLE
from synthstream.stream.recovery import adopt
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray
from tests.support.children import noise_of_a_child
from tests.support.gates import Call, ExactGate, ReplayingGate, TraceMismatch, TracingGate, path_cost
from tests.support.streams import configured

VALUE = np.array([0, 5, -7, 10**12], dtype=np.int64)
GATES: list[Gate] = [SystemGate(), ExactGate(), SeededGate(1), TracingGate(SystemGate())]
every = pytest.mark.parametrize("gate", GATES, ids=lambda g: type(g).__name__)


@every
def test_answers_are_fresh_integers_of_the_same_shape(gate: Gate) -> None:
    kept = VALUE.copy()
    for answer in (gate.gaussian(VALUE, sigma=2.0), gate.laplace(VALUE, scale=np.array([1.0, 2.0, 3.0, 4.0]))):
        assert answer.dtype == np.int64
        assert answer.shape == VALUE.shape
        assert answer is not VALUE
        assert np.abs(answer - VALUE).max() < 1000
    assert np.array_equal(VALUE, kept)


@every
def test_no_value_overflows(gate: Gate) -> None:
    ends = np.array([np.iinfo(np.int64).min, -LARGEST_VALUE - 1, LARGEST_VALUE, np.iinfo(np.int64).max])
    for _ in range(50):
        for answer in (gate.gaussian(ends, sigma=2.0**36), gate.laplace(ends, scale=2.0**36)):
            assert np.array_equal(np.sign(answer), [-1, -1, 1, 1])
            assert np.abs(np.abs(answer) - LARGEST_VALUE).max() < 2**43


def test_values_are_kept_up_to_the_largest_and_clipped_beyond() -> None:
    values = np.array([2**62 + 1, 2**62, 2**62 - 1, 0, 1 - 2**62, -(2**62), -(2**62) - 1])
    kept = [2**62, 2**62, 2**62 - 1, 0, 1 - 2**62, -(2**62), -(2**62)]
    assert within_range(values).tolist() == kept


@every
def test_noise_that_was_kept_is_added(gate: Gate) -> None:
    assert gate.perturb(np.array([10, -3, 2**62 + 9]), np.array([4, 5, -6])).tolist() == [14, 2, 2**62 - 6]


def test_the_largest_value_and_the_largest_noise_fit_together() -> None:
    assert np.iinfo(np.int64).max >= LARGEST_VALUE + LARGEST_SAMPLE


@every
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (np.array([1.0]), TypeError),
        (np.array([1], dtype=np.int32), TypeError),
        (np.array([1], dtype=np.uint64), TypeError),
        (np.array([[1]], dtype=np.int64), ValueError),
        (np.array(1, dtype=np.int64), ValueError),
    ],
)
def test_other_values_are_refused(gate: Gate, value: IntArray, error: type[Exception]) -> None:
    with pytest.raises(error, match="value"):
        gate.gaussian(value, sigma=1.0)
    with pytest.raises(error, match="value"):
        gate.laplace(value, scale=1.0)


class Boasting(SystemGate):
    """Adds nothing, and calls itself secure."""

    secure = True

    def gaussian(self, value: IntArray, *, sigma: Any) -> IntArray:
        return value


class Veiled(ExactGate):
    """Adds nothing, and says that it is the system's."""

    secure = True
    __class__ = SystemGate  # type: ignore[assignment]


INSECURE = [ExactGate(), SeededGate(1), TracingGate(SystemGate()), ReplayingGate([]), Boasting(), Veiled()]


@pytest.mark.parametrize("gate", INSECURE, ids=lambda gate: type(gate).__name__)
def test_only_the_systems_own_gate_is_secure(gate: Gate) -> None:
    assert is_secure(SystemGate())
    assert not is_secure(gate)


@pytest.mark.parametrize("gate", [Boasting(), Veiled()], ids=lambda gate: type(gate).__name__)
def test_a_gate_that_calls_itself_secure_is_stamped_all_the_same(tmp_path: Path, gate: Gate) -> None:
    config = configured(tmp_path, "always")
    with Stream(config, gates=lambda tick: gate) as stream:
        assert "NOT PRIVATE" in stream.release().manifest()["warning"]
        assert stream.status()["secure"] is False
    with pytest.raises(StateMismatch):
        Stream(config)
    shutil.rmtree(config.state)
    with pytest.raises(RecoveryRefused, match="cannot go on"):
        adopt(config)
    assert adopt(config, gates=lambda tick: gate).segment


def test_the_systems_gate_has_nothing_to_remember_and_takes_no_other_method() -> None:
    assert not hasattr(SystemGate(), "__dict__")
    with pytest.raises(AttributeError):
        SystemGate().gaussian = ExactGate().gaussian  # type: ignore[method-assign]


def test_the_systems_gate_does_not_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(count: int) -> bytes:
        raise NotImplementedError

    monkeypatch.setattr(os, "urandom", none)
    with pytest.raises(NotImplementedError):
        SystemGate().laplace(VALUE, scale=1.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_processes_share_no_noise() -> None:
    zeros = np.zeros(8, dtype=np.int64)

    def answers(gate: Gate) -> list[bytes]:
        gate.gaussian(zeros, sigma=1e9)

        def draw() -> IntArray:
            return gate.gaussian(zeros, sigma=1e9)

        return [noise_of_a_child(draw), noise_of_a_child(draw), draw().tobytes()]

    assert len(set(answers(SystemGate()))) == 3
    assert len(set(answers(SeededGate(1)))) == 1  # what the test would see if the gate kept anything


# -- test gates -----------------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_answers_again() -> None:
    def answers(seed: int | str) -> list[int]:
        gate = SeededGate(seed)
        return [*gate.laplace(VALUE, scale=50.0).tolist(), *gate.gaussian(VALUE, sigma=50.0).tolist()]

    assert answers(7) == answers(7)
    assert answers("7/1") == answers("7/1")
    assert answers("7/1") != answers("7/2")
    # Pinned: a change here changes every simulated release.
    assert answers(7) == [33, 33, 12, 999999999955, -7, 4, -99, 1000000000055]


def test_a_trace_keeps_what_was_asked_even_if_the_arrays_change() -> None:
    gate, value, scale = TracingGate(ExactGate()), VALUE.copy(), np.full(4, 2.0)
    gate.laplace(value, scale=scale)
    value += 1
    scale += 1
    (call,) = gate.trace
    assert isinstance(call, Call)
    assert call.kind == "laplace"
    assert np.array_equal(call.value, VALUE)
    assert np.array_equal(call.answer, VALUE)
    assert np.array_equal(call.scale, np.full(4, 2.0))


def test_replaying_answers_alike_and_records_the_new_values() -> None:
    tracing = TracingGate(SeededGate(3))
    answers = [tracing.gaussian(VALUE, sigma=9.0), tracing.laplace(VALUE, scale=9.0)]
    replaying = ReplayingGate(tracing.trace)
    assert np.array_equal(replaying.gaussian(VALUE + 1, sigma=9.0), answers[0])
    assert np.array_equal(replaying.laplace(VALUE + 2, scale=9.0), answers[1])
    assert [call.value[0] for call in replaying.trace] == [1, 2]
    with pytest.raises(TraceMismatch, match="only 2 calls"):
        replaying.laplace(VALUE, scale=9.0)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda gate: gate.laplace(VALUE, scale=9.0), "gaussian in one run"),
        (lambda gate: gate.gaussian(VALUE[:2], sigma=9.0), "shape"),
        (lambda gate: gate.gaussian(VALUE, sigma=9.5), "scale"),
        (lambda gate: gate.gaussian(VALUE, sigma=np.full(4, 9.0)), "scale"),
    ],
)
def test_replaying_refuses_other_questions(ask: Callable[[Gate], IntArray], message: str) -> None:
    tracing = TracingGate(ExactGate())
    tracing.gaussian(VALUE, sigma=9.0)
    with pytest.raises(TraceMismatch, match=message):
        ask(ReplayingGate(tracing.trace))


def trace(*, gaussian: list[int], laplace: list[int]) -> list[Call]:
    gate = TracingGate(ExactGate())
    gate.gaussian(np.array(gaussian), sigma=np.array([0.1, 2.0]))
    gate.laplace(np.array(laplace, dtype=np.int64), scale=0.75)
    return gate.trace


def test_path_cost_is_exact() -> None:
    a, b = trace(gaussian=[3, 4], laplace=[0, 0, 9]), trace(gaussian=[4, 2], laplace=[1, -1, 9])
    rho, epsilon = path_cost(a, b)
    assert rho == 1 / (2 * Fraction(0.1) ** 2) + Fraction(4, 2 * 4)  # 0.1 is the fraction that the float stores
    assert epsilon == 2 / Fraction(3, 4)
    assert path_cost(a, a) == (Fraction(0), Fraction(0))
    assert path_cost(b, a) == (rho, epsilon)


def test_path_cost_of_values_far_apart() -> None:
    rho, _ = path_cost(trace(gaussian=[0, 2**62], laplace=[]), trace(gaussian=[0, -(2**62)], laplace=[]))
    assert rho == Fraction(2**126, 8)


def test_path_cost_refuses_runs_that_differ_in_shape() -> None:
    a = trace(gaussian=[0, 0], laplace=[0])
    with pytest.raises(TraceMismatch, match="2 calls"):
        path_cost(a, a[:1])
    with pytest.raises(TraceMismatch, match="shape"):
        path_cost(a, trace(gaussian=[0, 0], laplace=[0, 0]))
    with pytest.raises(TraceMismatch, match="gaussian"):
        path_cost(a, a[::-1])


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: type(gate).__name__)
def test_noise_that_was_kept_is_added_to_several_values(gate: Gate) -> None:
    noise = gate.noise(3, scale=50.0)
    assert noise.dtype == np.int64
    assert noise.shape == (3,)
    one, two = np.array([1, 2, 3]), np.array([2**62 + 9, -5, 0])
    assert (gate.perturb(one, noise) - noise).tolist() == [1, 2, 3]
    assert (gate.perturb(two, np.array([-1, 4, 0]))).tolist() == [2**62 - 1, -1, 0]
    wrong: list[Any] = [noise[:2], noise.astype(np.float64), noise[:1]]
    for other in wrong:
        with pytest.raises(ValueError, match="noise"):
            gate.perturb(one, other)
