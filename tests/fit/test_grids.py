"""How many events lie in each cell of nested grids: what finer ones add is drawn to what neighbours say."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from synthstream.constraints import Grids, Group
from synthstream.fit.grids import smoothed, with_grids
from synthstream.fit.joints import estimate
from synthstream.fit.targets import simplex
from synthstream.partition import Partition
from synthstream.workload import FloatArray, Workload

LEVELS = (2, 4, 6, 8)
GRIDS = Grids((0, 1, 2, 3), LEVELS, 2)


def town(level: int = 8, dimension: int = 2, rows: float = 20_000) -> FloatArray:
    """Events around a town, by cell."""
    partition = Partition(dimension=dimension, depth=level)
    at = partition.codes(np.arange(2**level)) / 2 ** np.array(partition.bits)
    mass = np.exp(-np.sum((at - 0.4) ** 2, axis=1) / 0.02)
    return np.asarray(mass * (rows / mass.sum()))


def coarser(cells: FloatArray, levels: tuple[int, ...], aside: tuple[float, float] = (0.0, 0.0)) -> list[FloatArray]:
    return [np.append(cells.reshape(2**level, -1).sum(axis=1), aside) for level in levels]


def noisy(true: list[FloatArray], error: float, seed: int) -> list[FloatArray]:
    rng = np.random.default_rng(seed)
    return [counts + rng.normal(0, error, counts.size) for counts in true]


@pytest.mark.parametrize(("levels", "coordinates"), [(LEVELS, 2), ((4, 8), 2), ((2, 4, 6), 1), ((1, 3), 1)])
def test_grids_add_up_and_exact_counts_are_kept(levels: tuple[int, ...], coordinates: int) -> None:
    grids = Grids(tuple(range(len(levels))), levels, coordinates)
    true = coarser(town(levels[-1], coordinates), levels, (300.0, 20.0))
    for error in (1e-3, 50.0):
        found = smoothed(grids, noisy(true, error, 1), [error**2] * len(levels), 20_320)
        assert all(counts.min() >= 0 and counts.sum() == pytest.approx(20_320) for counts in found)
        for coarse, fine in pairwise(found):
            assert coarse[:-2] == pytest.approx(fine[:-2].reshape(coarse.size - 2, -1).sum(axis=1))
        assert error > 1 or all(a == pytest.approx(b, abs=0.1) for a, b in zip(found, true, strict=True))


def test_finer_grids_say_more_of_coarser_ones() -> None:
    true, errors = coarser(town(), LEVELS), [100.0, 100.0, 1.0, 1.0]
    counts = [t + np.random.default_rng(2).normal(0, e, t.size) for t, e in zip(true, errors, strict=True)]
    found = smoothed(GRIDS, counts, [e**2 for e in errors], 20_000)
    assert np.abs(found[0] - true[0]).max() < 10 < np.abs(counts[0] - true[0]).max()


def test_a_town_is_nearer_than_its_nearest_possible_counts() -> None:
    true, error = coarser(town(), LEVELS), 50.0
    ours, nearest = 0.0, 0.0
    for seed in range(5):
        counts = noisy(true, error, seed)
        found = smoothed(GRIDS, counts, [error**2] * 4, 20_000)
        ours += float(np.abs(found[3] - true[3]).sum())
        nearest += float(np.abs(simplex(counts[3], 20_000.0) - true[3]).sum())
    assert ours < 0.55 * nearest


def test_where_neighbours_know_nothing_cells_do_not_lean_to_them() -> None:
    rng, error = np.random.default_rng(3), 5.0
    cells = np.zeros(256)
    cells[rng.choice(256, 30, replace=False)] = 600.0
    true = coarser(cells, LEVELS)
    found = smoothed(GRIDS, noisy(true, error, 4), [error**2] * 4, 18_000)
    assert float(np.abs(found[3] - true[3]).sum()) < 0.02 * 18_000


def test_a_grid_that_no_table_holds_leans() -> None:
    true = coarser(town(), LEVELS)
    counts = [*true[:3], np.full(258, 20_000 / 258)]
    found = smoothed(GRIDS, counts, [1.0, 1.0, 1.0, 0.0], 20_000)
    even = np.repeat(true[2][:-2] / 4, 4)
    assert np.abs(found[3][:-2] - true[3][:-2]).sum() < 0.5 * np.abs(even - true[3][:-2]).sum()


def test_an_empty_place_and_rows_that_lie_outside() -> None:
    none = [np.zeros(2**level + 2) for level in LEVELS]
    assert all(not counts.any() for counts in smoothed(GRIDS, none, [1.0] * 4, 0))
    outside = [np.append(np.zeros(2**level), (500.0, 600.0)) for level in LEVELS]
    found = smoothed(GRIDS, outside, [1.0] * 4, 1000)
    assert all(counts[-2:] == pytest.approx([500 / 1.1, 600 / 1.1]) for counts in found)


@pytest.mark.parametrize("rows", [1, 7, 13, 1209])
def test_a_box_of_which_rounding_leaves_a_last_bit_holds_no_more_than_that(rows: int) -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        counts = [np.append(rng.normal(0, 30, 2**level), rng.uniform(rows, 3 * rows, 2)) for level in LEVELS]
        found = smoothed(GRIDS, counts, [900.0] * 4, rows)
        assert all(one.min() >= 0 and one.sum() == pytest.approx(rows) for one in found)
        assert all(one[:-2].sum() == pytest.approx(0, abs=1e-9) for one in found)


def digest() -> str:
    """Of estimates to the last bit: noise in whole numbers, which every processor draws alike."""
    rng, levels = np.random.default_rng(6), (2, 8, 14)
    counts = [np.append(rng.integers(-50, 60, 2**level), (3, 4)).astype(np.float64) for level in levels]
    found = smoothed(Grids((0, 1, 2), levels, 2), counts, [900.0] * 3, 5000)
    return hashlib.sha256(np.concatenate(found).tobytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="names of x86 processors")
@pytest.mark.parametrize("told", [{"OPENBLAS_CORETYPE": "Prescott"}, {"OPENBLAS_NUM_THREADS": "2"}])
def test_estimates_do_not_depend_on_processor_and_threads(told: dict[str, str]) -> None:
    code = "from tests.fit.test_grids import digest; print(digest())"
    command, home = [sys.executable, "-c", code], Path(__file__).parents[2]
    found = [
        subprocess.run(command, env=os.environ | one, cwd=home, capture_output=True, text=True, check=True).stdout  # noqa: S603
        for one in ({"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}, told)
    ]
    assert found[0] == found[1]


def test_joint_counts_of_a_place_are_those_of_its_grids_and_follow_districts_that_are_known() -> None:
    cells, error = town(4, rows=5000.0), 40.0
    workload = Workload(sizes=(4, 16, 2), marginals=((0,), (1,), (2,)))
    fine = np.arange(16)
    combinations = np.stack([fine // 4, fine, fine // 8], axis=1)
    grids = Grids((0, 1), (2, 4), 2)
    true = [cells.reshape(4, 4).sum(axis=1), cells, cells.reshape(2, 8).sum(axis=1)]
    counts = [*noisy(true[:2], error, 5), true[2]]
    variances = [error**2, error**2, 1.0]
    for group in (
        Group.of((0, 1), combinations[:, :2], nests=[grids]),
        Group.of((0, 1, 2), combinations, nests=[grids]),
    ):
        told = with_grids([group], counts, variances, 5000, summed=True)
        joint = estimate(group, workload, np.concatenate(counts), np.array(variances), told, variances, 5000)
        found = joint.table((1,), (16,))
        if len(group.columns) == 2:
            assert found == pytest.approx(told[1], rel=1e-3, abs=0.01)
        else:  # what is known exactly of the districts holds
            assert joint.table((2,), (2,)) == pytest.approx(true[2], abs=5)
