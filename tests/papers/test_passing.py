"""Comparisons that pass in a row: their law, their exactness, and what the gates do with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from synthstream.errors import StateCorrupt
from synthstream.kernel.gate import Gate, SystemGate
from synthstream.papers import comparisons as passing
from synthstream.papers.comparisons import Comparisons, _exp_minus, _fixed_point, _hazard, _minus_log_rest
from synthstream.state.journal import JournalGate
from synthstream.state.store import Store
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray, IntArray
from tests.support.gates import ExactGate, ReplayingGate, TraceMismatch, TracingGate, path_cost

Runs = list[tuple[int, int]]


def fails(margin: int, scale: float) -> float:
    """P(noise > margin), by adding up the discrete Laplace law."""
    p = math.exp(-1 / scale)
    return math.fsum((1 - p) / (1 + p) * p ** abs(z) for z in range(margin + 1, max(margin, 0) + int(60 * scale) + 60))


def law(path: Runs, scale: float) -> FloatArray:
    """Probability of each number of passes."""
    chances, left = [], 1.0
    for margin, repeats in path:
        for _ in range(repeats):
            chances.append(left * fails(margin, scale))
            left *= 1 - fails(margin, scale)
    return np.array([*chances, left])


def batch(paths: list[Runs]) -> tuple[IntArray, IntArray, IntArray]:
    runs = [run for path in paths for run in path]
    starts = np.cumsum([0, *(len(path) for path in paths)])
    return (
        np.array([margin for margin, _ in runs], dtype=np.int64),
        np.array([repeats for _, repeats in runs], dtype=np.int64),
        starts.astype(np.int64),
    )


PATHS: list[Runs] = [
    [(3, 2), (1, 3), (0, 0), (-2, 2)],
    [(0, 1)],
    [(-1, 2), (2, 3)],
    [(9, 400), (8, 300), (7, 1)],
]


@pytest.mark.sparing(3)
@pytest.mark.parametrize("path", PATHS, ids=str)
@pytest.mark.parametrize("band", [passing._HAZARD_BAND, math.inf], ids=["floats", "exact"])
def test_the_law_on_small_paths(path: Runs, band: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "_HAZARD_BAND", band)
    n = 40_000 if band < 1 else 1000
    margins, repeats, starts = batch([path] * n)
    seen = Comparisons(margins, 1.5, repeats, starts).draw(SeededGate(f"law {path}").entropy)
    right, wrong = law(path, 1.5), law(path, 1.7)
    bins = np.minimum(np.cumsum(right) * 12, 11).astype(int)  # neighbours together, so that each bin has enough
    _, bins = np.unique(bins, return_inverse=True)
    counted = np.bincount(bins[seen], minlength=bins.max() + 1)
    assert chisquare(counted, n * np.bincount(bins, weights=right)).pvalue > 1e-4
    if band < 1 and path != [(0, 1)]:
        assert chisquare(counted, n * np.bincount(bins, weights=wrong)).pvalue < 1e-6


def test_floats_and_exact_arithmetic_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same digits, decided by floats and by intervals, for margins and numbers of all sizes."""
    random = np.random.default_rng(0)
    failed = 0
    for seed in range(300):
        scale = float(np.exp(random.uniform(-3, 12)))
        runs = int(random.integers(0, 12))
        margins = np.rint(random.normal(2 * scale * random.choice([0, 3, 12]), scale, size=runs)).astype(np.int64)
        repeats = random.integers(0, 10 ** random.integers(1, 12), size=runs)
        starts = np.array([0, runs])
        monkeypatch.setattr(passing, "_HAZARD_BAND", 2.0**-40)
        by_floats = Comparisons(margins, scale, repeats, starts).draw(SeededGate(seed).entropy)
        monkeypatch.setattr(passing, "_HAZARD_BAND", math.inf)
        assert Comparisons(margins, scale, repeats, starts).draw(SeededGate(seed).entropy) == by_floats
        failed += int(by_floats[0] < repeats.sum())
    assert 50 < failed < 250


def test_each_path_is_decided_with_its_own_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """By exact arithmetic too, which few paths meet."""
    margins, repeats, starts = batch([[(20, 30)]] * 3)
    paths = Comparisons(margins, np.array([0.5, 5.0, 50.0]), repeats, starts)
    found = []
    for band in (passing._HAZARD_BAND, math.inf):
        monkeypatch.setattr(passing, "_HAZARD_BAND", band)
        found.append(np.mean([paths.draw(SeededGate(seed).entropy) for seed in range(50)], axis=0))
    assert found[0].tolist() == found[1].tolist()
    assert found[0][0] == 30 > found[0][1] > found[0][2] + 5


def test_floats_decide_nearly_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact branch takes a hundred times as long: it must be rare, also where comparisons fail."""

    def refuse(*arguments: object) -> int:
        raise AssertionError

    monkeypatch.setattr(passing, "_exact_passes", refuse)
    margins, repeats, starts = batch([[(9, 40), (8, 3), (-2, 1)], [(60, 10**6), (40, 10**6)]] * 20_000)
    passed = Comparisons(margins, 2.5, repeats, starts).draw(SeededGate("rare").entropy)
    assert np.mean(passed[::2] < 44) > 0.5
    assert 0.01 < np.mean(passed[1::2] < 2 * 10**6) < 0.99


@pytest.mark.sparing(3)
@pytest.mark.parametrize("scale", [0.02, 0.7, 1.0, 33.3, 5e3, 2.0**36])
def test_the_band_holds_with_room_to_spare(scale: float) -> None:
    """Floats beside 40 digits: a quarter of the band is the theorem's own claim."""
    random = np.random.default_rng(1)
    p = _exp_minus(1 / scale)
    far = int(690 * scale)
    for margin in [0, -1, 1, far, *random.integers(-far - 2, far + 1, size=30).tolist()]:
        hazard = Fraction(_fixed_point(margin, Fraction(scale), 330), 10**330)
        assert abs(Fraction(float(_hazard(margin, scale, p))) / hazard - 1) < Fraction(passing._HAZARD_BAND) / 4
    assert _exp_minus(701.0) == 0.0
    assert _minus_log_rest(0.5) == pytest.approx(math.log(2), rel=1e-13)


@pytest.mark.parametrize("margin", [-3, -1, 0, 2, 40])
def test_the_exact_hazard(margin: int) -> None:
    expected = -math.log1p(-fails(margin, 2.5))
    assert _fixed_point(margin, Fraction(5, 2), 40) / 10**40 == pytest.approx(expected, rel=1e-11)


def test_no_digits_at_all_are_decided_by_the_next_ones() -> None:
    """A word of zeros means an enormous E, still unknown."""
    answers = iter([bytes(8), b"\xff" * 8])
    margins, repeats, starts = batch([[(-70, 1), (-1, 1)]])
    assert Comparisons(margins, 1.0, repeats, starts).draw(lambda count: next(answers)).tolist() == [0]
    answers = iter([bytes(8), bytes(7) + b"\x01"])
    assert Comparisons(margins, 1.0, repeats, starts).draw(lambda count: next(answers)).tolist() == [2]


def test_a_tiny_exponential_meets_a_tiny_hazard() -> None:
    """63 digits one, then zeros: E is 2^-63, 5.2 hazards of 2.1e-20. Floats cannot know."""
    answers = iter([b"\xff" * 8, bytes(8)])
    margins, repeats, starts = batch([[(100, 2**40), (44, 2**61)]])
    passed = Comparisons(margins, 1.0, repeats, starts).draw(lambda count: next(answers))
    assert passed.tolist() == [2**40 + 5]


def test_enormous_numbers_of_comparisons() -> None:
    margins, repeats, starts = batch([[(10**6, 2**61)], [(2**62, 2**60), (-(2**62), 1)], [], [(5, 0)]])
    for scale in (1.0, 1e-300, 5e-324, np.array([1.0, 2.0, 3.0, 4.0])):
        passed = Comparisons(margins, scale, repeats, starts).draw(SeededGate(2).entropy)
        assert passed.tolist() == [2**61, 2**60, 0, 0]


def test_a_scale_for_each_path() -> None:
    margins, repeats, starts = batch([[(20, 10)], [(20, 10)]])
    seen = [SeededGate(k).answer(asked((margins, repeats, starts), scale=np.array([0.5, 1e6]))) for k in range(200)]
    assert np.mean(seen, axis=0)[0] == 10
    assert np.mean(seen, axis=0)[1] < 2


GATES: list[Gate] = [SystemGate(), ExactGate(), SeededGate(3), TracingGate(SystemGate())]


def asked(paths: tuple[IntArray, IntArray, IntArray], scale: float | FloatArray) -> Comparisons:
    margins, repeats, starts = paths
    return Comparisons(margins, scale, repeats, starts)


every = pytest.mark.parametrize("gate", GATES, ids=lambda g: type(g).__name__)


@every
def test_gates_stop_at_the_hopeless_comparison(gate: Gate) -> None:
    margins, repeats, starts = batch([[(999, 5), (-999, 2)], [], [(-999, 0), (999, 4)], [(-999, 1)], [(999, 3)]])
    passed = gate.answer(asked((margins, repeats, starts), scale=1.0))
    assert passed.dtype == np.int64
    assert passed.tolist() == [5, 0, 4, 0, 3]


@every
@pytest.mark.parametrize(
    ("margins", "repeats", "starts", "error"),
    [
        (np.array([1.0]), np.array([1]), np.array([0, 1]), TypeError),
        (np.array([1]), np.array([1.0]), np.array([0, 1]), TypeError),
        (np.array([1]), np.array([1]), np.array([0.0, 1.0]), TypeError),
        (np.array([[1]]), np.array([1]), np.array([0, 1]), ValueError),
        (np.array([1]), np.array([1, 1]), np.array([0, 1]), ValueError),
        (np.array([1]), np.array([-1]), np.array([0, 1]), ValueError),
        (np.array([1, 1]), np.array([2**61, 2**61]), np.array([0, 2]), ValueError),
        (np.array([1, 1]), np.array([2**62, 2**62]), np.array([0, 2]), ValueError),
        (np.array([1]), np.array([1]), np.array([], dtype=np.int64), ValueError),
        (np.array([1]), np.array([1]), np.array([1, 1]), ValueError),
        (np.array([1]), np.array([1]), np.array([0, 0]), ValueError),
        (np.array([1, 1]), np.array([1, 1]), np.array([0, 2, 1, 2]), ValueError),
    ],
)
def test_bad_paths(gate: Gate, margins: IntArray, repeats: IntArray, starts: IntArray, error: type[Exception]) -> None:
    with pytest.raises(error):
        gate.answer(asked((margins, repeats, starts), scale=1.0))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, 2.0**37, np.array([1.0, 1.0])])
def test_bad_scales(scale: float | FloatArray) -> None:
    with pytest.raises(ValueError, match="scale"):
        SystemGate().answer(asked(batch([[(1, 1)]]), scale=scale))


def test_traces_of_paths() -> None:
    """Answers are replayed whatever the runs are; a difference in paths has no cost of its own."""
    first = TracingGate(SeededGate(1))
    answer = first.answer(asked(batch([[(2, 3)], [(0, 2)]]), scale=2.0))
    same = ReplayingGate(first.trace)
    assert np.array_equal(same.answer(asked(batch([[(2, 3)], [(0, 2)]]), scale=2.0)), answer)
    assert path_cost(first.trace, same.trace) == (Fraction(0), Fraction(0))
    other = ReplayingGate(first.trace)
    assert np.array_equal(other.answer(asked(batch([[(2, 1), (1, 2)], [(0, 2)]]), scale=2.0)), answer)
    with pytest.raises(TypeError, match="no sum"):
        path_cost(first.trace, other.trace)
    refused: list[tuple[Callable[[Gate], IntArray], str]] = [
        (lambda gate: gate.answer(asked(batch([[(2, 3)], [(0, 2)]]), scale=2.5)), "scale"),
        (lambda gate: gate.answer(asked(batch([[(2, 3)]]), scale=2.0)), "2 answers"),
        (lambda gate: gate.laplace(np.zeros(2, dtype=np.int64), scale=2.0), "passes in one run"),
    ]
    for ask, message in refused:
        with pytest.raises(TraceMismatch, match=message):
            ask(ReplayingGate(first.trace))


def test_answers_that_were_written_down_are_not_drawn_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    paths = batch([[(0, 9)], [(1, 9)], [(2, 9)]])
    answer = JournalGate(SystemGate(), store, 0).answer(asked(paths, scale=3.0))
    changed = batch([[(0, 4), (1, 5)], [(1, 9)], [(2, 9)]])
    assert np.array_equal(JournalGate(SystemGate(), store, 0).answer(asked(changed, scale=3.0)), answer)
    for other, scale in ((paths, 4.0), (batch([[(0, 9)]]), 3.0), (batch([]), 3.0)):
        with pytest.raises(StateCorrupt):
            JournalGate(SystemGate(), store, 0).answer(asked(other, scale=scale))
    store.close()
