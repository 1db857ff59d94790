"""Counts that add up: the conditions of the paper's Algorithm 4, and the rule among what they allow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream.papers.consistency import LARGEST_COUNT, consistent
from synthstream.workload import IntArray


def levels(*counts: list[int]) -> list[IntArray]:
    return [np.array(level, dtype=np.int64) for level in counts]


@st.composite
def trees(draw: st.DrawFn) -> list[IntArray]:
    largest = draw(st.sampled_from([3, 50, 10**6, 2**63 - 1]))
    count = st.integers(-largest, largest)
    return levels(*(draw(st.lists(count, min_size=2**j, max_size=2**j)) for j in range(1, draw(st.integers(1, 4)) + 1)))


@settings(deadline=None)
@given(trees(), st.sampled_from([0, 1, 2, 7, 1000, 10**9 + 7, LARGEST_COUNT]))
def test_the_conditions_of_the_paper(noisy: list[IntArray], total: int) -> None:
    found = consistent(noisy, total)
    assert found[0].tolist() == [total]
    for j, level in enumerate(noisy, 1):
        whole, m = found[j - 1].tolist(), found[j].tolist()
        n = [min(max(x, 0), LARGEST_COUNT) for x in level.tolist()]
        for theta in range(len(whole)):
            m0, m1, n0, n1 = m[2 * theta], m[2 * theta + 1], n[2 * theta], n[2 * theta + 1]
            assert min(m0, m1) >= 0
            assert m0 + m1 == whole[theta]
            assert (m0 - n0) * (m1 - n1) >= 0


def test_counts_that_add_up_stay() -> None:
    noisy = levels([3, 7], [1, 2, 7, 0])
    found = consistent(noisy, 10)
    assert all(np.array_equal(a, b) for a, b in zip(found[1:], noisy, strict=True))


@pytest.mark.parametrize(
    ("pair", "total", "expected"),
    [
        ([1, 3], 8, [2, 6]),
        ([6, 2], 4, [3, 1]),
        ([6, 2], 2, [2, 0]),
        ([9, -5], 3, [3, 0]),
        ([5, 0], 9, [9, 0]),
        ([0, 0], 5, [3, 2]),
        ([-4, -1], 0, [0, 0]),
        ([4, 4], 7, [4, 3]),
    ],
)
def test_shares_are_kept(pair: list[int], total: int, expected: list[int]) -> None:
    assert consistent(levels(pair), total)[1].tolist() == expected


def test_a_root_alone() -> None:
    assert [m.tolist() for m in consistent([], 5)] == [[5]]
