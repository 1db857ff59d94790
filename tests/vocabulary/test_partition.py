"""The binary partition against its definition, digit by digit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream.partition import Partition


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    dimension = draw(st.integers(1, 6))
    return Partition(dimension=dimension, depth=draw(st.integers(dimension, 30)))


@settings(deadline=None)
@given(partitions(), st.integers(0, 2**32))
def test_cells_and_codes_undo_each_other(partition: Partition, seed: int) -> None:
    cells = np.random.default_rng(seed).integers(0, partition.cells_number, size=20)
    codes = partition.codes(cells)
    assert np.all((codes >= 0) & (codes < 2 ** np.array(partition.bits)))
    assert np.array_equal(partition.cells(codes), cells)


@settings(deadline=None)
@given(partitions(), st.integers(0, 2**32))
def test_a_node_holds_the_points_between_its_walls(partition: Partition, seed: int) -> None:
    point = np.random.default_rng(seed).random(partition.dimension)
    codes = np.floor(point * 2.0 ** np.array(partition.bits)).astype(np.int32)
    cell = int(partition.cells(codes[None])[0])
    low, high = np.zeros(partition.dimension), np.ones(partition.dimension)
    for level in range(partition.depth):  # walk down, and never lose the point
        c = level % partition.dimension
        middle = (low[c] + high[c]) / 2
        if cell >> (partition.depth - 1 - level) & 1:
            low[c] = middle
        else:
            high[c] = middle
        assert np.all((low <= point) & (point < high))
        assert np.max(high - low) == partition.diameter(level + 1)


def test_a_depth_that_does_not_fit_is_refused() -> None:
    for dimension, depth in ((0, 3), (3, 2), (2, 31)):
        with pytest.raises(ValueError, match="needs a depth"):
            Partition(dimension=dimension, depth=depth)
