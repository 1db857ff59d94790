"""What is foreseen of an epoch: what its tables hold, and how many of the larger ones are worth their noise."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pytest

from synthstream.fit.ahead import Ahead, _beyond_columns
from synthstream.workload import FloatArray, Workload

SIZES = (2, 3, 4)
WORKLOAD = Workload.all_up_to(2, sizes=SIZES)
WIDE = Ahead(workload=Workload.all_up_to(2, sizes=(10,) * 30))  # 435 pairs of 100 cells
CELLS = WIDE.workload.cells
NUMBERS = (3, 6, 12, 24, 48, 96, 192, 384)
FLAT, STEEP = np.array([20.0, 1e-3, 1e-3]), np.array([20.0, 1e-3, 1e-4])


def scales(epsilon: float, numbers: Sequence[int] = NUMBERS) -> dict[int, FloatArray]:
    return {number: np.full(WIDE.workload.order.size, number / epsilon) for number in numbers}


def test_before_any_rows_columns_are_guessed_to_be_independent() -> None:
    singles = np.array([90.0, 10.0, 50.0, 30.0, 20.0, -5.0, 0.0, 60.0, 40.0])
    found = Ahead(workload=WORKLOAD).guess(100.0, singles)
    pair = found[WORKLOAD.slice_of((0, 1))].reshape(2, 3)
    assert found[WORKLOAD.slice_of(())] == pytest.approx([100])
    assert pair == pytest.approx(np.outer([0.9, 0.1], [50, 30, 20]))
    assert found[WORKLOAD.slice_of((2,))] == pytest.approx([0, 0, 60, 40])
    none = Ahead(workload=WORKLOAD).guess(100.0, np.zeros(0))
    assert none[WORKLOAD.slice_of((1, 2))] == pytest.approx(np.full(12, 100 / 12))


@pytest.mark.parametrize("shown", [np.zeros(3), FLAT, STEEP], ids=["nothing", "flat", "steep"])
def test_more_events_and_more_budget_measure_more_tables(shown: FloatArray) -> None:
    found = [WIDE.number(scales(1.0), events, shown, whole=False) for events in (10.0, 1e3, 1e4, 1e5, 1e8)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (8, NUMBERS[-1])
    assert WIDE.number(scales(4.0), 2500.0, shown, whole=False) == WIDE.number(scales(1.0), 1e4, shown, whole=False)


def test_before_the_first_epoch_the_farthest_table_is_taken_to_be_far_off() -> None:
    """The last of k tables is 1.4 / sqrt(k) off, in sum: measured, each has noise of about that size."""
    number = WIDE.number(scales(1.0, range(1, 400)), 1e4, np.zeros(3), whole=False)
    assert 0.2 < (100 * 2 * (number / 1e4) ** 2 / 2) / (1.4**2 / 100 / number) < 1
    assert number > WIDE.number(scales(1.0, range(1, 400)), 1e4, WIDE.usual, whole=False)


def test_a_few_large_tables_among_small_ones_decide_how_much_noise_there_is() -> None:
    def number(sizes: tuple[int, ...]) -> int:
        ahead = Ahead(workload=Workload.all_up_to(2, sizes=sizes))
        noise = {k: np.full(ahead.workload.order.size, float(k)) for k in range(1, 200)}
        return ahead.number(noise, 1e4, np.zeros(3), whole=False)

    assert number((2,) * 20 + (30,)) < number((2,) * 21) / 2


def test_few_tables_are_measured_where_few_are_off() -> None:
    assert WIDE.number(scales(1.0), 2e4, STEEP, whole=False) < WIDE.number(scales(1.0), 2e4, FLAT, whole=False)


def test_the_number_gains_the_most_where_all_tables_are_equally_off() -> None:
    """Up to the power of their rank that is taken for granted: noise has about the size of what is to be found."""
    number = WIDE.number(scales(1.0, range(1, 400)), 2e4, FLAT, whole=False)
    left = 1e-3 * (0.75 * 20 / number) ** 0.5  # of the last one
    noise = 100 * 2 * (number / 2e4) ** 2 / 2
    assert 0.2 < noise / left < 1


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_how_far_tables_were_off_is_told_beyond_noise_and_chance(scale: float) -> None:
    rng, events = np.random.default_rng(0), 1e4
    guessed = np.full(100, events / 100)
    signs = np.multiply.outer(*[np.where(np.arange(10) % 2, 1, -1)] * 2).ravel()
    off = signs * np.sqrt(np.repeat([4e-4, 1e-4], 10) / 100)[:, None] * events
    found = {31 + q: rng.poisson(guessed + own) + rng.laplace(0, scale, 100) for q, own in enumerate(off)}
    number, upper, lower = WIDE.shown(found, np.full(CELLS, events / 100), scales(1 / scale, [1])[1])
    assert number == 20
    assert [upper, lower] == pytest.approx([4e-4, 1e-4], rel=0.25)


def test_where_noise_hides_all_it_is_what_was_taken_for_granted() -> None:
    rng = np.random.default_rng(0)
    found = {31 + q: rng.laplace(0, 500, 100) for q in range(6)}
    assert WIDE.shown(found, np.zeros(CELLS), scales(1 / 500, [1])[1])[1:] == pytest.approx([9e-4, 9e-4], rel=1e-3)


def test_what_columns_alone_are_off_is_no_association() -> None:
    """Nor is a number of events that was guessed too high: of skewed columns, too."""
    one, other = np.array([0.9, *[0.1 / 9] * 9]), np.array([0.5, 0.3, *[0.2 / 8] * 8])
    guess = np.zeros(CELLS)
    tables = range(31, 36)
    for q in tables:
        WIDE.workload.table(guess, q)[...] = 2e4 * np.outer(one, other)
    moved = 1e4 * np.outer(np.roll(one, 1) * 0.05 + one * 0.95, other)
    rng = np.random.default_rng(0)
    found = {q: rng.poisson(moved).ravel() + rng.laplace(0, 5, 100) for q in tables}
    _, upper, _ = WIDE.shown(found, guess, scales(1 / 5, [1])[1])
    assert upper < 1e-5
    held = 2e4 * np.outer(one, other) + 100 * np.multiply.outer(*[np.array([1, -1, *[0] * 8])] * 2)
    together = {q: rng.poisson(held).ravel() + rng.laplace(0, 5, 100) for q in tables}
    _, upper, lower = WIDE.shown(together, guess, scales(1 / 5, [1])[1])
    assert [upper, lower] == pytest.approx([4 * (100 / 2e4) ** 2] * 2, rel=0.3)


@pytest.mark.parametrize("sizes", [(6, 4), (6, 4, 3)])
def test_noise_and_chance_of_what_is_beyond_columns_are_what_they_are_taken_to_be(
    sizes: tuple[int, ...],
) -> None:
    rng = np.random.default_rng(0)
    shares = [rng.dirichlet(np.ones(size)) for size in sizes]
    guess = 500 * functools.reduce(np.multiply.outer, shares)
    noise = [_beyond_columns(rng.normal(size=sizes), guess) for _ in range(4000)]
    assert np.mean([one.square for one in noise]) == pytest.approx(noise[0].cells, rel=0.05)
    chance = [_beyond_columns(rng.poisson(guess) - guess, guess) for _ in range(4000)]
    assert np.mean([one.square for one in chance]) == pytest.approx(500 * chance[0].chance, rel=0.05)


def test_where_hardly_anything_goes_together_single_columns_have_the_budget() -> None:
    """Noise of a column is sqrt(2) * 10 cells * scale / events in all: .14 of them."""
    few = scales(1.0, range(1, 11))
    for apart, number in ((0.05, 1), (0.27, 1), (0.3, 8), (1.0, 8)):
        shown = np.array([8.0, apart**2 / 100, apart**2 / 100])
        assert WIDE.number(few, 1000.0, shown, whole=True) == number
        assert WIDE.number(few, 1000.0, shown, whole=False) >= 8
    assert WIDE.number(few, 1e5, np.zeros(3), whole=True) >= 8  # nothing was shown before the first epoch


def test_one_long_column_does_not_decide_that_nothing_goes_together() -> None:
    ahead = Ahead(workload=Workload.all_up_to(2, sizes=(*(10,) * 5, 3000)))
    cells = float(np.sqrt(np.mean(ahead.workload.lengths[ahead.workload.order == 2] ** 2.0)))
    noise = {k: np.full(ahead.workload.order.size, float(k)) for k in range(1, 16)}
    assert ahead.number(noise, 7e4, np.array([8.0, *[0.2**2 / cells] * 2]), whole=True) > 1


def test_a_half_that_noise_puts_near_nothing_does_not_hide_the_other() -> None:
    few = scales(1.0, (8, 12, 16, 24, 32))
    told = [WIDE.number(few, 2e4, np.array([20.0, 4e-3, lower]), whole=False) for lower in (1e-4, 1e-5, 1e-7)]
    assert told[0] == told[1] == told[2] > 8
