"""Which cases of a large grid run with the quick tests."""

from __future__ import annotations

from itertools import product

import pytest

from tests.conftest import spread


def test_few_cases_of_a_grid_hold_all_values() -> None:
    grid = [{("kind", i), ("days", j)} for i, j in product(range(5), range(3))]
    chosen = spread(grid, 5)
    assert len(set(chosen)) == 5
    assert set().union(*(grid[i] for i in chosen)) == set().union(*grid)
    assert spread(grid, 99) != chosen
    assert sorted(spread(grid, 99)) == list(range(15))


@pytest.mark.sparing(1)
@pytest.mark.parametrize("case", range(3))
def test_three(case: int, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("slow") is not None) == (case > 0)
