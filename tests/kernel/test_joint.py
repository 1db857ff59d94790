"""Noise for several tables together: its law, exactly where that can be enumerated, its variance, and bad arguments."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from synthstream.fit.ahead import Ahead
from synthstream.kernel import joint
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Joint, Question, SystemGate
from synthstream.kernel.joint import LEAST_SCALE, MOST_CELLS, joint_laplace
from synthstream.kernel.sampling import LARGEST_SAMPLE, Entropy
from synthstream.measured import Measured
from synthstream.privacy import Budget
from synthstream.strategies.shares import together
from synthstream.strategies.variances import joint_variance
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray, Workload
from tests.support.epochs import PURE
from tests.support.gates import Call, ExactGate, TracingGate

CELLS = [(1,), (1, 1), (2, 1), (3,), (2, 2)]


def norm(z: tuple[int, ...], cells: tuple[int, ...]) -> int:
    """The largest sum of absolute values of a table."""
    ends = [0, *itertools.accumulate(cells)]
    return max(sum(map(abs, z[a:b])) for a, b in pairwise(ends))


def law(cells: tuple[int, ...], scale: float, reach: int) -> dict[tuple[int, ...], float]:
    """Probabilities as the theorem states them, of vectors up to a reach."""
    span = range(-reach, reach + 1)
    weights = {z: math.exp(-norm(z, cells) / scale) for z in itertools.product(span, repeat=sum(cells))}
    whole = sum(weights.values())
    return {z: weight / whole for z, weight in weights.items()}


def outcomes(draw: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> dict[str, Fraction]:
    """Exact probabilities of all that a draw may return, over all answers of ``_below``."""
    found, paths = dict[str, Fraction](), [list[int]()]
    while paths:
        path = paths.pop()
        asked = list[int]()

        def below(most: int, entropy: object, path: list[int] = path, asked: list[int] = asked) -> int:
            asked.append(most)
            if len(asked) > len(path):
                paths.extend([*path, other] for other in range(1, most))
                path.append(0)
            return path[len(asked) - 1]

        monkeypatch.setattr(joint, "_below", below)
        drawn = str(draw())
        found[drawn] = found.get(drawn, Fraction(0)) + Fraction(1, math.prod(asked))
    return found


@pytest.mark.parametrize(("cells", "most"), [(1, 0), (1, 4), (2, 3), (3, 2), (3, 3), (4, 1)])
def test_a_table_is_any_of_its_vectors_alike(cells: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = outcomes(lambda: joint._within(cells, most, SeededGate(0).entropy), monkeypatch)
    span = itertools.product(range(-most, most + 1), repeat=cells)
    there = [str(list(z)) for z in span if sum(map(abs, z)) <= most]
    assert found == dict.fromkeys(there, Fraction(1, len(there)))
    assert joint._vectors(cells, most) == len(there)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 256, 257])
def test_whole_numbers_below_another_are_alike(most: int) -> None:
    """Of all bytes that may come, as many lead to each."""
    size = -(-(most - 1).bit_length() // 8)
    found, stop = Counter[int](), RuntimeError()
    for code in range(256**size):
        answers = iter([code.to_bytes(size, "big")])

        def entropy(count: int, answers: Iterator[bytes] = answers) -> bytes:
            if (one := next(answers, None)) is None or len(one) != count:
                raise stop
            return one

        try:
            found[joint._below(most, entropy)] += 1
        except RuntimeError:
            continue
    assert sorted(found) == list(range(most))
    assert len(set(found.values())) == 1


@pytest.mark.parametrize("cells", CELLS)
def test_vectors_are_counted_for_any_bound(cells: tuple[int, ...]) -> None:
    parts = joint._parts(cells)
    assert all(part >= 0 for part in parts)
    for most in (0, 1, 2, 3, 9, 40):
        assert sum(c * math.comb(most, i) for i, c in enumerate(parts)) == math.prod(
            joint._vectors(n, most) for n in cells
        )


@pytest.mark.parametrize("bits", [1, 3, 64])
@pytest.mark.parametrize("scale", [2.0**-10, 0.4, 3.0, 2.0**36])
def test_the_part_is_that_of_its_uniform_number(bits: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few digits are drawn at once: sums of c_i t^i, with t to 200 digits, lie around the digits drawn."""
    monkeypatch.setattr(joint, "_BITS", bits)
    cells = (1, 2, 3)
    t = 1 / (_growth(scale) - 1)
    sums = list(itertools.accumulate(c * t**i for i, c in enumerate(joint._parts(cells))))
    honest, drawn = joint._below, list[int]()

    def noted(most: int, entropy: Entropy) -> int:
        drawn.append(honest(most, entropy))
        return drawn[-1]

    monkeypatch.setattr(joint, "_below", noted)
    gate, seen = SeededGate(bits), set[int]()
    for _ in range(12):
        drawn.clear()
        part = joint._part(cells, scale, gate.entropy)
        digits, length = int("".join(f"{d:0{bits}b}" for d in drawn), 2), bits * len(drawn)
        assert [Fraction(0), *sums][part] / sums[-1] <= Fraction(digits, 2**length) * (1 + Fraction(1, 10**150))
        assert sums[part] / sums[-1] >= Fraction(digits + 1, 2**length) * (1 - Fraction(1, 10**150))
        seen.add(part)
    assert len(seen) > 1 or scale in (2.0**-10, 2.0**36)  # none, and all cells, are all but certain there


def _growth(scale: float) -> Fraction:
    """exp(1 / scale), by its series."""
    y, term, whole, k = 1 / Fraction(scale), Fraction(1), Fraction(0), 0
    halvings = max(0, math.ceil(y).bit_length())
    y /= 2**halvings
    while term > Fraction(1, 10**300):
        whole, k = whole + term, k + 1
        term = (term * y / k).limit_denominator(10**400)
    for _ in range(halvings):
        whole = (whole * whole).limit_denominator(10**400)
    return whole


def test_whole_numbers_add_up_that_are_not_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the two-sided law that are not negative follow the one-sided law; no more are taken than asked for."""
    drawn, asked = iter([[-1, 4, -3, 0, -7, -2], [5, 6, 9, 1]]), list[tuple[float, int]]()

    def noted(scale: float, size: int, *, entropy: Entropy) -> IntArray:
        asked.append((scale, size))
        return np.array(next(drawn))

    monkeypatch.setattr(joint, "discrete_laplace", noted)
    assert joint._geometric(3, 2.0, SeededGate(0).entropy) == 4 + 0 + 5
    assert asked == [(2.0, 6), (2.0, 2)]


def test_both_draws_of_the_largest_table_have_the_scale_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[object, float]]()

    def noted(value: object, scale: float, entropy: Entropy) -> int:
        asked.append((value, scale))
        return 2

    monkeypatch.setattr(joint, "_part", noted)
    monkeypatch.setattr(joint, "_geometric", noted)
    joint_laplace((3, 1), 0.7, entropy=SeededGate(0).entropy)
    assert asked == [((1, 3), 0.7), (3, 0.7)]


@pytest.mark.parametrize(("cells", "scale", "reach"), [((2, 1), 0.7, 9), ((1, 1), 2.0, 40), ((3,), 0.4, 6)])
def test_samples_follow_the_law(cells: tuple[int, ...], scale: float, reach: int) -> None:
    runs, gate, expected = 2000, SeededGate("law"), law(cells, scale, reach)
    found = Counter(tuple(joint_laplace(cells, scale, entropy=gate.entropy).tolist()) for _ in range(runs))
    often = [z for z, p in expected.items() if p * runs > 5]
    square = sum((found[z] - runs * expected[z]) ** 2 / (runs * expected[z]) for z in often)
    assert len(often) > 8
    assert square < len(often) + 4 * math.sqrt(2 * len(often))
    assert max(map(abs, itertools.chain(*found))) <= reach


@pytest.mark.parametrize("cells", CELLS)
@pytest.mark.parametrize(("scale", "rel"), [(0.4, 0.7), (3.0, 0.02)])
def test_variances_are_those_of_the_law(cells: tuple[int, ...], scale: float, rel: float) -> None:
    """By the number of vectors whose largest table is k, and the squares of a cell of these. Small ones are less."""
    weights, squares = np.zeros(150), np.zeros(150)
    for k in range(150):
        own, rest = cells[0], math.prod(joint._vectors(n, k) for n in cells[1:])
        weights[k] = joint._vectors(own, k) * rest * math.exp(-k / scale)
        squares[k] = 2 * sum(m * m * joint._vectors(own - 1, k - m) for m in range(k + 1)) * rest * math.exp(-k / scale)
    told, true = joint_variance(np.array(cells), scale)[0], squares.sum() / weights.sum()
    assert true * 0.995 < told < true * (1 + rel)


def test_many_small_tables_have_far_less_noise_than_each_alone() -> None:
    together, alone = joint_variance(np.array([3] * 20), 1000.0)[0], 2 * (20 * 1000.0) ** 2
    assert together < 0.48 * alone


def test_what_would_be_too_large_stays_in_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "_geometric", lambda *_: 2**70)
    found = joint_laplace((2, 1), 2.0**36, entropy=SeededGate(0).entropy)
    assert np.abs(found).max() == LARGEST_SAMPLE


@pytest.mark.parametrize(
    ("cells", "scale", "said"),
    [
        ((), 1.0, "cells"),
        ((2, 0), 1.0, "cells"),
        ((MOST_CELLS, 1), 1.0, "cells"),
        ((2,), 0.0, "scale"),
        ((2,), 2.0**-11, "scale"),
        ((2,), 2.0**37, "scale"),
        ((2,), math.nan, "scale"),
    ],
)
def test_arguments_out_of_range_are_named(cells: tuple[int, ...], scale: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        joint_laplace(cells, scale, entropy=SeededGate(0).entropy)


def test_too_few_random_bytes_are_refused() -> None:
    with pytest.raises(OSError, match="returned 3 bytes"):
        joint_laplace((2,), 1.0, entropy=lambda count: b"abc" if count > 3 else bytes(count))


VALUE: IntArray = np.array([5, 0, 2], dtype=np.int64)


def test_the_gate_adds_the_noise_to_tables_in_their_order() -> None:
    assert (
        SeededGate(4).joint(VALUE, cells=(2, 1), scale=3.0).tolist()
        == (VALUE + joint_laplace((2, 1), 3.0, entropy=SeededGate(4).entropy)).tolist()
    )
    assert ExactGate().joint(VALUE, cells=(2, 1), scale=3.0).tolist() == VALUE.tolist()
    assert SystemGate().joint(VALUE, cells=[1, 2], scale=0.001).tolist() == VALUE.tolist()
    for cells in ((2,), (2, 2)):
        with pytest.raises(ValueError, match="cells"):
            SystemGate().joint(VALUE, cells=cells, scale=3.0)


def test_an_answer_is_not_taken_for_that_of_other_tables_or_noise() -> None:
    words = list[str]()

    class Noting(ExactGate):
        def answer(self, question: Question) -> IntArray:
            words.append(question.words)
            return super().answer(question)

    for scale, cells, more in itertools.product((1.0, 2.0), ([1, 2], [2, 1], [3]), (0, 1)):
        Noting().joint(VALUE + more, cells=cells, scale=scale)
    assert words[::2] == words[1::2]
    assert len(set(words)) == 6
    assert repr(Joint(VALUE, 1.0, (1, 2))) == "Joint(private)"


# -- in epochs: which tables, in which order, at which cost ------------------------------------------------------


def measured(sizes: tuple[int, ...]) -> tuple[Epochs, list[Call], Measured, IntArray]:
    """An epoch of one tick, with other counts in every cell, and what the gate was asked."""
    workload = Workload.all_up_to(1, sizes=sizes)
    m = Epochs(workload=workload, budget=PURE, horizon=9)
    tracing, counts = TracingGate(ExactGate()), np.arange(workload.cells, dtype=np.int64)
    return m, tracing.trace, m.step(m.init(), counts, tracing, Ahead(workload=workload))[1], counts


def test_tables_of_unlike_sizes_are_asked_for_and_told_as_they_are() -> None:
    m, trace, found, counts = measured((3, 40, 2))
    assert m.groups == [(1, 3), (2,)]
    assert [(call.kind, call.cells, call.value.tolist()) for call in trace[1:]] == [
        ("joint", (3, 2), [1, 2, 3, 44, 45]),
        ("laplace", (), list(range(4, 44))),
    ]
    assert found.values.tolist() == counts.tolist()
    assert m.spreads[0][[1, 3]] == pytest.approx(np.sqrt(m.variance(0, 0)[[1, 3]] / 2))
    assert m.spreads[0][2] == m.scales[0][2]
    assert "joint-laplace" in m.claim().theorems


def test_all_tables_of_a_sample_have_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[int, int]]()

    def within(cells: int, most: int, entropy: Entropy) -> list[int]:
        asked.append((cells, most))
        return [len(asked)] * cells

    monkeypatch.setattr(joint, "_within", within)
    assert joint_laplace((3, 1, 2), 4.0, entropy=SeededGate(0).entropy).tolist() == [1, 1, 1, 2, 3, 3]
    assert [cells for cells, _ in asked] == [3, 1, 2]
    assert len({most for _, most in asked}) == 1


def test_groups_are_part_of_the_numbers_a_stream_begins_with() -> None:
    one, other = (Epochs(workload=Workload.all_up_to(1, sizes=(2,) * 4), budget=PURE, horizon=9) for _ in range(2))
    other.__dict__["groups"] = [(1, 2), (3, 4)]
    assert one.fingerprint() != other.fingerprint()


def test_next_to_no_noise_is_drawn_and_told() -> None:
    workload = Workload.all_up_to(2, sizes=(2, 3, 2))
    m = Epochs(workload=workload, budget=Budget(epsilon=1e6, delta=0.0), horizon=9)
    state = m.init()
    for _ in range(3):
        state, found = m.step(
            state, workload.count(np.zeros((9, 3), dtype=np.int32)), SystemGate(), Ahead(workload=workload)
        )
    assert np.all(np.isfinite(state["shown"]))
    assert found.values.max() == 27
    assert min(scales.min() for scales in m.scales.values()) == LEAST_SCALE


def test_more_cells_than_a_sample_has_are_refused_before_the_first_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthstream.kernel.epochs.MOST_CELLS", 4)
    with pytest.raises(ValueError, match="noise together"):
        Epochs(workload=Workload.all_up_to(1, sizes=(2, 3)), budget=PURE, horizon=9)


def test_weights_decide_who_gets_noise_together() -> None:
    workload = Workload.all_up_to(1, sizes=(2, 3, 40, 40, 4))
    m = Epochs(workload=workload, budget=PURE, horizon=9, weights=(1, 1, 1, 0.05, 1, 1))
    assert m.groups == [(1, 2, 5), (3,), (4,)]
    assert m.scales[0][3] / m.scales[0][4] == pytest.approx(20)
    assert 1 - 1e-9 < float(m.claim().pure or 0) <= 1


def test_parts_are_in_proportion_to_the_roots_of_the_noise() -> None:
    both = (3 / math.sqrt(4 * 5) + 2 / math.sqrt(3 * 4)) * math.sqrt(6 * 7)
    groups, parts = together(Workload.all_up_to(1, sizes=(3, 40, 2)))
    assert groups == [(1, 3), (2,)]
    assert parts == pytest.approx([0, math.sqrt(both), math.sqrt(40), math.sqrt(both)])
    assert max(map(len, together(Workload.all_up_to(1, sizes=(1,) * 257))[0])) <= MOST_CELLS


def test_counts_at_the_end_of_their_range_are_clipped() -> None:
    found = SystemGate().joint(np.array([2**63 - 1, -(2**63)]), cells=(1, 1), scale=1.0)
    assert found[0] > 2**61
    assert found[1] < -(2**61)


@pytest.mark.parametrize("bits", [1, 64, 640])
@pytest.mark.parametrize("scale", [2.0**-10, 0.4, 2.0**36])
def test_bounds_lie_around_what_they_bound(bits: int, scale: float) -> None:
    t = 1 / (_growth(scale) - 1)
    sums = list(itertools.accumulate(c * t**i for i, c in enumerate(joint._parts((1, 2, 3)))))
    low, high = joint._cumulated((1, 2, 3), scale, bits)
    tiny = 1 + Fraction(1, 10**250)
    for own, below, above in zip(sums[:-1], low, high, strict=False):
        share, first, last = own / sums[-1], Fraction(below, low[-1]), Fraction(above, high[-1])
        assert last <= share * tiny
        assert share <= first * tiny
        assert first - last < Fraction(1, 2**bits)
