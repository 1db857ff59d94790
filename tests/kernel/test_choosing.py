"""Choosing the largest of scores with exponential noise: its law, its cost, its exactness, what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from synthstream.kernel import choosing
from synthstream.kernel.choosing import LARGEST_SCORE, noisy_max
from synthstream.kernel.gate import Gate, SystemGate, checked_choice
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray
from tests.support.choices import law
from tests.support.gates import ExactGate, ReplayingGate, TraceMismatch, TracingGate, path_cost


def draws(scores: list[int], rate: Fraction, n: int, seed: str = "law") -> IntArray:
    entropy = SeededGate(seed).entropy
    found = [noisy_max(np.array(scores), rate=rate, entropy=entropy) for _ in range(n)]
    return np.bincount(found, minlength=len(scores))


@pytest.mark.parametrize("scores", [[0, 1, 2], [5, 5, 5, 5], [-3, 0, -1, 0, -10], [7]])
def test_the_law_is_that_of_permute_and_flip(scores: list[int]) -> None:
    expected = law(scores, 0.5) * 20_000
    assert expected.sum() == pytest.approx(20_000)
    seen = draws(scores, Fraction(1, 2), 20_000)
    if len(scores) > 1:
        assert chisquare(seen, expected).pvalue > 1e-4
        wrong = law(scores, 0.6) * 20_000
        assert len(set(scores)) == 1 or chisquare(seen, wrong).pvalue < 1e-4  # a wrong rate would be seen


def test_the_exact_decision_has_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "_BAND", 1e6)  # floats decide nothing any more
    seen = draws([0, 1, 2], Fraction(1, 2), 2000)
    assert chisquare(seen, law([0, 1, 2], 0.5) * 2000).pvalue > 1e-4


def test_floats_and_exact_arithmetic_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same first words, decided by floats and then by intervals, give the same winner."""
    random = np.random.default_rng(0)

    def words(seed: int) -> Callable[[int], bytes]:
        source = np.random.default_rng(seed)
        return lambda count: source.bytes(count)

    for seed in range(200):
        scores = random.integers(-50, 50, size=6)
        rate = Fraction(float(random.uniform(0.001, 3)))
        monkeypatch.setattr(choosing, "_BAND", 2.0**-49)
        by_floats = noisy_max(scores, rate=rate, entropy=words(seed))
        monkeypatch.setattr(choosing, "_BAND", 1e6)
        assert noisy_max(scores, rate=rate, entropy=words(seed)) == by_floats


def test_floats_bound_the_noisy_scores() -> None:
    """U lies between two neighbouring multiples of 2^-63, so -ln U between two numbers 1 / word apart at most."""
    rate, band = 0.75, 0.125
    for word, gap in ((1, 0), (2, -1), (3, -7), (2**40, -2), (2**62, 0), (2**63 - 1, -3)):
        (low,), (high,) = choosing._intervals(np.array([word]), np.array([gap]), rate, band)
        exponential, shift = 63 * math.log(2) - math.log(word), rate * gap
        margin = band * (1 + exponential - shift)
        assert low == pytest.approx(exponential + shift - margin - 1 / word, rel=1e-12)
        assert high == pytest.approx(exponential + shift + margin, rel=1e-12)
    low, high = choosing._intervals(np.array([0, 0]), np.array([0, -1]), rate, band)
    assert low.tolist() == [0, -math.inf]
    assert high.tolist() == [math.inf, math.inf]


def test_scores_are_clipped_at_two_to_the_60() -> None:
    exact, _ = checked_choice(np.array([2**62, 2**60, 2**60 - 1, -(2**61)]), 1, 1.0)
    assert exact.tolist() == [2**60, 2**60, 2**60 - 1, -(2**60)]


def test_no_digits_at_all_are_decided_by_the_next_ones() -> None:
    """A word of zeros means an enormous E, still unknown; more digits settle it."""
    answers = iter([bytes(16), b"\xff" * 8, b"\x01" + bytes(7)])
    assert noisy_max(np.array([0, 0]), rate=Fraction(1), entropy=lambda count: next(answers)) == 1


@pytest.mark.parametrize("scores", [[0, 0, 1], [3, -2, 0, 1]])
def test_a_change_of_all_scores_by_one_costs_at_most_epsilon(scores: list[int]) -> None:
    """Exact, over all changes by at most the sensitivity; and the worst of them is not far from epsilon."""
    worst = 0.0
    for signs in np.ndindex(*(3,) * len(scores)):
        changed = [s + d - 1 for s, d in zip(scores, signs, strict=True)]
        worst = max(worst, float(np.abs(np.log(law(scores, 0.5) / law(changed, 0.5))).max()))
    assert 0.5 < worst <= 1.0 + 1e-12


@pytest.mark.parametrize(
    "gate", [SystemGate(), SeededGate(3), TracingGate(SystemGate())], ids=lambda g: type(g).__name__
)
def test_gates_choose_the_far_better_candidate(gate: Gate) -> None:
    scores = np.array([-(2**62), 0, 2**62, 5])
    assert gate.choose(scores, sensitivity=1, epsilon=1.0) == 2
    assert ExactGate().choose(scores, sensitivity=1, epsilon=1.0) == 2
    assert LARGEST_SCORE < 2**62
    assert gate.choose(scores[:1], sensitivity=1, epsilon=1e300) == 0


@pytest.mark.parametrize("gate", [SystemGate(), ExactGate(), SeededGate(3)], ids=lambda g: type(g).__name__)
@pytest.mark.parametrize(
    ("scores", "sensitivity", "epsilon", "error"),
    [
        (np.array([1.0]), 1, 1.0, TypeError),
        (np.zeros(0, dtype=np.int64), 1, 1.0, ValueError),
        (np.zeros((1, 1), dtype=np.int64), 1, 1.0, ValueError),
        (np.zeros(1, dtype=np.int64), 0, 1.0, ValueError),
        (np.zeros(1, dtype=np.int64), 1, 0.0, ValueError),
        (np.zeros(1, dtype=np.int64), 1, math.inf, ValueError),
        (np.zeros(1, dtype=np.int64), 1, math.nan, ValueError),
    ],
)
def test_bad_arguments(gate: Gate, scores: IntArray, sensitivity: int, epsilon: float, error: type[Exception]) -> None:
    with pytest.raises(error):
        gate.choose(scores, sensitivity=sensitivity, epsilon=epsilon)


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1, 1.0), (3, 0.5), (1024, 7.0)])
def test_a_choice_is_weighed_by_half_of_epsilon_for_each_unit_of_sensitivity(sensitivity: int, epsilon: float) -> None:
    scores = np.array([LARGEST_SCORE + 1, 5, -LARGEST_SCORE - 1])
    exact, rate = checked_choice(scores, sensitivity, epsilon)
    assert rate == Fraction(epsilon) / (2 * sensitivity)
    assert exact.tolist() == [LARGEST_SCORE, 5, -LARGEST_SCORE]
    with pytest.raises(ValueError, match="a vector of at least one"):
        checked_choice(scores[:0], sensitivity, epsilon)


def test_a_trace_gives_the_cost_of_a_choice() -> None:
    first = TracingGate(ExactGate())
    answer = first.choose(np.array([4, 0, 1]), sensitivity=2, epsilon=0.5)
    second = ReplayingGate(first.trace)
    assert second.choose(np.array([3, 2, 1]), sensitivity=2, epsilon=0.5) == answer
    assert path_cost(first.trace, second.trace) == (Fraction(0), Fraction(1, 2))
    with pytest.raises(TraceMismatch):
        ReplayingGate(first.trace).choose(np.array([3, 2, 1]), sensitivity=1, epsilon=0.5)


def test_the_last_digit_of_a_word_counts() -> None:
    """Words of 5 and 4: the second uniform number is the smaller one, whatever digits follow."""
    answers = iter([np.array([5, 4]).tobytes(), bytes(8), b"\xff" * 8, *[bytes(8)] * 20])
    assert noisy_max(np.array([0, 0]), rate=Fraction(1), entropy=lambda count: next(answers)) == 1
