"""Nodes that nobody read lean towards their fuller neighbours, as far as those that were read say so."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from synthstream.fit.tree import NodeReading, Span, masses
from synthstream.leaning import along, leant, steepness
from synthstream.partition import Partition, sums
from synthstream.workload import FloatArray, IntArray

# Of a test without readings that tell: all that the neighbours say.
SURE = 1.0


def expected(cells: FloatArray, read: list[IntArray], dimension: int, factor: float) -> FloatArray:
    """The same with places in place of digits, for one factor on all levels."""
    depth = cells.size.bit_length() - 1
    old = sums(cells)
    new = old[0]
    for level in range(depth):
        ratio = (old[level + 1][0::2] - old[level + 1][1::2]) / old[level]
        if level >= dimension:
            partition = Partition(dimension=dimension, depth=level)
            codes, axis = partition.codes(np.arange(2**level)), level % dimension
            for node in np.setdiff1d(np.arange(2**level), read[level]):
                beside = []
                for step in (-1, 1):
                    place = codes[[node]] + step * (np.arange(dimension) == axis)
                    inside = 0 <= place[0, axis] < 2 ** partition.bits[axis]
                    beside.append(new[partition.cells(place.astype(np.int32))[0]] if inside else new[node])
                lean = factor * (beside[0] - beside[1]) / (beside[0] + 2 * new[node] + beside[1])
                ratio[node] = np.tanh(np.arctanh(ratio[node]) + np.arctanh(lean))
        new = np.stack([new * (1 + ratio) / 2, new * (1 - ratio) / 2], axis=1).reshape(-1)
    return new


@pytest.mark.parametrize(("dimension", "depth"), [(1, 6), (2, 7), (3, 8)])
def test_neighbours_are_those_along_the_coordinate_that_is_cut(dimension: int, depth: int) -> None:
    cells = np.random.default_rng(dimension).gamma(0.5, size=2**depth) + 0.01
    read = [np.arange(2**level if level < dimension else 0) for level in range(depth)]
    found = leant(cells, read, dimension)
    assert found == pytest.approx(expected(cells, read, dimension, SURE))
    assert found != pytest.approx(cells)
    assert found.sum() == pytest.approx(cells.sum())


def test_a_node_beside_a_full_one_leans_to_it_and_beyond_the_box_nothing_is_known() -> None:
    cells = np.array([4.0, 4.0, 1.0, 1.0, 1.0, 1.0, 4.0, 4.0])
    inner, outer = 1 + (8 - 2) / (8 + 2 * 2 + 2), 4 * (1 + (8 - 2) / (8 + 2 * 8 + 2))
    half = [outer, 8 - outer, inner, 2 - inner]
    assert leant(cells, [np.array([0]), np.array([0, 1])], 1) == pytest.approx([*half, *half[::-1]])


def test_what_was_read_is_kept_and_where_it_says_otherwise_nothing_leans() -> None:
    # Nodes that were read have their events on the side that is away from the fuller neighbour.
    cells = np.array([0.0, 9.0, 8.0, 0.0, 0.0, 3.0, 2.0, 2.0])
    level = [np.array([0]), np.array([0, 1]), np.array([0, 1, 2])]
    assert leant(cells, level, 1) == pytest.approx(np.array([0.0, 9.0, 8.0, 0.0, 0.0, 3.0, 2.0, 2.0]), abs=0.5)
    away = np.array([9.0, 0.0, 0.0, 8.0, 0.0, 3.0, 2.0, 2.0])
    assert leant(away, level, 1).tolist() == away.tolist()
    assert leant(away, [*level[:2], np.arange(4)], 1).tolist() == away.tolist()


def test_empty_nodes_stay_empty_and_none_is_below_nothing() -> None:
    cells = np.array([0.0, 0.0, 50.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    found = leant(cells, [np.array([0])], 1)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(51)
    assert found[[0, 1, 3, 5, 6, 7]].tolist() == [0.0] * 6
    assert leant(np.zeros(8), [np.array([0])], 1).tolist() == [0.0] * 8
    assert leant(np.array([3.0]), [], 2).tolist() == [3.0]


def read_where_events_are(counts: FloatArray, depth: int, least: float) -> Span:
    """Readings without noise of the nodes that hold so many events."""
    readings = {}
    for level, (nodes, halves) in enumerate(pairwise(sums(counts)[: depth + 1])):
        own = np.flatnonzero(nodes >= least)
        differences = (halves[0::2] - halves[1::2])[own]
        readings[level] = NodeReading(differences, np.full(own.size, 1.0), float(counts.sum()), own)
    return Span(events=float(counts.sum()), readings=readings)


def test_the_edge_of_a_town_is_nearer_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    depth, rng = 12, np.random.default_rng(0)
    partition = Partition(dimension=2, depth=depth)
    places = np.clip(0.4 + 0.06 * rng.standard_normal((20_000, 2)), 0, 1 - 1e-9)
    counts = np.bincount(partition.cells((places * 64).astype(np.int32)), minlength=2**depth).astype(np.float64)
    off = []
    for leaning in (True, False):
        if not leaning:
            monkeypatch.setattr("synthstream.fit.tree.leant", lambda cells, *_: cells)
        spans = [read_where_events_are(counts, depth, 400.0)]
        off.append(float(np.abs(masses(spans, depth=depth, dimension=2, caution=0.0).masses - counts).sum()))
    assert off[0] < 0.9 * off[1]


@pytest.mark.parametrize("width", [5e-324, 1e-305, 1e-300, 1.0, 1e300, 2e307])
def test_how_steep_a_bin_is_does_not_depend_on_the_unit(width: float) -> None:
    held = np.array([799, 399, 199, 9, 0])
    assert steepness(held, np.full(5, width)) == pytest.approx(steepness(held, np.ones(5)), rel=1e-6)


def test_a_row_more_for_each_bin_keeps_few_from_telling_much() -> None:
    """They lie evenly over all, so a bin that is twice as wide has two of them."""
    assert steepness(np.array([1, 0, 0]), np.ones(3)) == pytest.approx([-np.log(2), 0, 0], abs=1e-9)
    assert steepness(np.array([0, 0, 0]), np.array([1.0, 2.0, 50.0])) == pytest.approx([0, 0, 0], abs=1e-9)
    assert steepness(np.array([10**9, 0]), np.ones(2)) == pytest.approx([-4, -4])


@pytest.mark.parametrize("held", [[5000, 20_000, 3], [9, 0, 70], [400, 200, 100]])
@pytest.mark.parametrize("widths", [[100.0, 0.01, 7.0], [1.0, 2.0, 5.0]])
def test_what_bins_tell_is_the_same_from_either_side(held: list[int], widths: list[float]) -> None:
    found, back = (steepness(np.array(held[::turn]), np.array(widths[::turn])) for turn in (1, -1))
    assert back[::-1] == pytest.approx(-found, abs=1e-9)
    assert (found[0] == 0) == (widths[0] == 100)  # a bin of one value beside it tells nothing


@pytest.mark.parametrize("widths", [[1e-300, 1e300, 1e-300], [1e300, 1e-300, 1e300], [5e-324, 1.0, 1e308]])
@pytest.mark.parametrize("held", [[0, 0, 0], [10**18, 0, 10**18], [0, 5, 0]])
def test_bins_of_any_widths_have_a_bounded_steepness(widths: list[float], held: list[int]) -> None:
    assert np.all(np.abs(steepness(np.array(held), np.array(widths))) <= 20)


def test_where_rows_lie_does_not_depend_on_how_many_follow() -> None:
    """Draws are made some at once: a row has its own, by its number."""
    rng = np.random.default_rng(0)
    codes, steep = rng.integers(0, 3, 2**17 + 5).astype(np.int32), np.array([-3.0, 0.0, 2.0])
    found = along(codes, steep, np.random.default_rng(1))
    for number in (0, 1, 2**16, 2**16 + 1, 2**17):
        assert np.array_equal(along(codes[:number], steep, np.random.default_rng(1)), found[:number])
    moved = along(codes, steep + np.array([0.0, 0.0, 0.1]), np.random.default_rng(1)) != found
    assert not moved[codes < 2].any()
    # A digit moves if its draw lies between the two shares of its half.
    upper = [1 / (1 + np.exp(-(2.0 + more) / 2.0 ** np.arange(1, 9))) for more in (0.0, 0.1)]
    draws = np.random.default_rng(1).random((codes.size, 9))[:, :8]
    between = ((draws < upper[1]) != (draws < upper[0])).any(axis=1)
    assert np.array_equal(moved, between & (codes == 2))
