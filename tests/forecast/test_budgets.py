"""Errors of several budgets side by side: none rises with the budget."""

from __future__ import annotations

import pytest

from synthstream.forecast.budgets import never_rising
from synthstream.synthesizers.contract import RowErrors


def errors(box: float, distance: float | None, *tables: float) -> dict[int, RowErrors]:
    return {30: RowErrors(table_error=dict(enumerate(tables, start=1)), box=box, distance=distance)}


def test_errors_that_fall_stay_and_others_are_pooled_by_their_runs() -> None:
    """The first budget, the middle one, has twice as many runs as each of the others."""
    mine, half, double = never_rising(
        [errors(10.0, 0.2, 5.0, 6.0), errors(16.0, 0.1, 4.0, 9.0), errors(13.0, 0.05, 1.0, 7.0)], [1.0, 0.5, 2.0]
    )
    # A box: 16 stays, 10 and 13 become (2 * 10 + 13) / 3. A distance: .2 and .1 become .5 / 3.
    assert [one[30].box for one in (half, mine, double)] == [16.0, 11.0, 11.0]
    assert [one[30].distance for one in (half, mine, double)] == pytest.approx([0.5 / 3, 0.5 / 3, 0.05])
    assert [one[30].table_error for one in (half, mine, double)] == [
        pytest.approx({1: 14 / 3, 2: 9.0}),
        pytest.approx({1: 14 / 3, 2: 19 / 3}),
        pytest.approx({1: 1.0, 2: 19 / 3}),
    ]


def test_a_distance_that_is_not_known_stays_so() -> None:
    (one,) = never_rising([errors(10.0, None)], [1.0])
    assert one == errors(10.0, None)
