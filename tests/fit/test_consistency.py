"""Counts that add up: the conditions of the paper's Algorithm 4, and both rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream.papers.consistency import LARGEST_COUNT, Rule, consistent
from synthstream.workload import IntArray

rules = pytest.mark.parametrize("rule", ["proportional", "equal"])


def levels(*counts: list[int]) -> list[IntArray]:
    return [np.array(level, dtype=np.int64) for level in counts]


@st.composite
def trees(draw: st.DrawFn) -> list[IntArray]:
    largest = draw(st.sampled_from([3, 50, 10**6, 2**63 - 1]))
    count = st.integers(-largest, largest)
    return levels(*(draw(st.lists(count, min_size=2**j, max_size=2**j)) for j in range(1, draw(st.integers(1, 4)) + 1)))


@settings(deadline=None)
@given(
    trees(), st.sampled_from([0, 1, 2, 7, 1000, 10**9 + 7, LARGEST_COUNT]), st.sampled_from(["proportional", "equal"])
)
def test_the_conditions_of_the_paper(noisy: list[IntArray], total: int, rule: Rule) -> None:
    found = consistent(noisy, total, rule=rule)
    assert found[0].tolist() == [total]
    for j, level in enumerate(noisy, 1):
        whole, m = found[j - 1].tolist(), found[j].tolist()
        n = [min(max(x, 0), LARGEST_COUNT) for x in level.tolist()]
        for theta in range(len(whole)):
            m0, m1, n0, n1 = m[2 * theta], m[2 * theta + 1], n[2 * theta], n[2 * theta + 1]
            assert min(m0, m1) >= 0
            assert m0 + m1 == whole[theta]
            assert (m0 - n0) * (m1 - n1) >= 0


@rules
def test_counts_that_add_up_stay(rule: Rule) -> None:
    noisy = levels([3, 7], [1, 2, 7, 0])
    found = consistent(noisy, 10, rule=rule)
    assert all(np.array_equal(a, b) for a, b in zip(found[1:], noisy, strict=True))


@pytest.mark.parametrize(
    ("pair", "total", "proportional", "equal"),
    [
        ([1, 3], 8, [2, 6], [3, 5]),
        ([6, 2], 4, [3, 1], [4, 0]),
        ([6, 2], 2, [2, 0], [2, 0]),
        ([9, -5], 3, [3, 0], [3, 0]),
        ([5, 0], 9, [9, 0], [7, 2]),
        ([0, 0], 5, [3, 2], [2, 3]),
        ([-4, -1], 0, [0, 0], [0, 0]),
        ([4, 4], 7, [4, 3], [3, 4]),
    ],
)
def test_the_two_rules(pair: list[int], total: int, proportional: list[int], equal: list[int]) -> None:
    assert consistent(levels(pair), total)[1].tolist() == proportional
    assert consistent(levels(pair), total, rule="equal")[1].tolist() == equal


def test_a_root_alone() -> None:
    assert [m.tolist() for m in consistent([], 5)] == [[5]]


@pytest.mark.parametrize("total", [-1, LARGEST_COUNT + 1])
def test_bad_totals(total: int) -> None:
    with pytest.raises(ValueError, match="total"):
        consistent([], total)


def test_bad_levels() -> None:
    with pytest.raises(ValueError, match="level 2 has 4"):
        consistent(levels([1, 2], [1, 2]), 3)
