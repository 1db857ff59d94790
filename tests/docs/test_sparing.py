"""Which cases of a large grid run with the quick tests, and which tests run in one process."""

from __future__ import annotations

from itertools import product

import pytest

from tests.conftest import spread


def test_few_cases_of_a_grid_hold_all_values() -> None:
    grid = [{("kind", str(i)), ("days", str(j))} for i, j in product(range(5), range(3))]
    chosen = spread(grid, 5)
    assert len(set(chosen)) == 5
    assert set().union(*(grid[i] for i in chosen)) == set().union(*grid)
    three = [{("a", a), ("b", b), ("c", c)} for a, b, c in product("xy", repeat=3)]
    held = [dict(three[i]) for i in spread(three, 6)]
    assert all(len({(case[one], case[two]) for case in held}) == 4 for one, two in ("ab", "ac", "bc"))
    assert spread(grid, 99) != chosen
    assert sorted(spread(grid, 99)) == list(range(15))


@pytest.mark.sparing(1)
@pytest.mark.parametrize("case", range(3))
def test_three(case: int, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("slow") is not None) == (case > 0)


@pytest.mark.sparing(1, 1)
@pytest.mark.parametrize("case", range(3))
def test_a_third_of_three(case: int, request: pytest.FixtureRequest) -> None:
    marks = [request.node.get_closest_marker(name) is not None for name in ("slow", "soak")]
    assert marks == [case == 1, case == 2]


@pytest.mark.sparing(2, 1)
@pytest.mark.parametrize("row", "ab")
@pytest.mark.parametrize("column", "ab")
def test_the_second_case_has_other_values_than_the_first(row: str, column: str, request: pytest.FixtureRequest) -> None:
    marks = [request.node.get_closest_marker(name) is not None for name in ("slow", "soak")]
    assert marks == {"aa": [False, False], "bb": [False, False], "ab": [True, False], "ba": [False, True]}[column + row]


@pytest.fixture(scope="module")
def shared() -> None:
    """What tests of a module share."""


def test_tests_that_share_run_in_one_process(shared: None, request: pytest.FixtureRequest) -> None:
    group = request.node.get_closest_marker("xdist_group")
    assert group.args == (__name__,)
    # By the end of its name pytest-xdist knows a test's group; some versions of pytest keep the name as it was.
    assert request.node.nodeid.endswith(f"@{__name__}") == request.config.getoption("loadgroup", default=False)
