"""The harness of synthetic points: clouds, one-shot methods, runs and the document made of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from benchmarks.adaptive_tree import DEPTH, AdaptiveTree
from benchmarks.clouds import EARTHQUAKES, Cloud, points
from benchmarks.points import METHODS, Outcome, Setting, distance, run
from benchmarks.points_report import NUMBERS, done, key, settings, write

from benchmarks import offline
from synthstream.evaluate.wasserstein import w1_grid
from synthstream.partition import Partition
from synthstream.workload import FloatArray, IntArray

FIRST = Setting(dim=1, points=2000, epsilon=1.0, delta=0.0, data="clustered", method="offline-pmm")


@pytest.mark.parametrize("cloud", get_args(Cloud))
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_clouds_lie_in_the_cube_and_follow_their_seed(cloud: Cloud, dimension: int) -> None:
    found = points(cloud, 500, dimension, 0)
    assert found.shape == (500, dimension)
    assert found.min() >= 0
    assert found.max() <= 1
    np.testing.assert_array_equal(found, points(cloud, 500, dimension, 0))
    assert np.array_equal(found, points(cloud, 500, dimension, 1)) == (cloud == "earthquakes")


def test_clouds_are_those_of_the_table() -> None:
    clustered = points("clustered", 20_000, 2, 0)
    assert np.abs(clustered - (0.2, 0.3)).max(axis=1).__lt__(0.04).mean() == pytest.approx(0.35, abs=0.02)
    assert clustered.mean(axis=0) == pytest.approx([0.4725, 0.46], abs=0.01)
    drift = points("drift", 20_000, 2, 0)
    assert drift[:2000].mean(axis=0) == pytest.approx([0.23, 0.588], abs=0.01)
    assert drift[-2000:].mean(axis=0) == pytest.approx([0.77, 0.5 + 0.3 * np.sin(5.7)], abs=0.01)
    assert points("drift", 20_000, 3, 0)[:, 2].std() == pytest.approx(0.03, rel=0.05)
    assert np.array_equal(points("drift", 100, 1, 0)[:, 0], points("drift", 100, 2, 0)[:, 0])


def test_earthquakes_end() -> None:
    assert points("earthquakes", EARTHQUAKES, 3, 0).shape == (EARTHQUAKES, 3)
    with pytest.raises(ValueError, match="there are 136547"):
        points("earthquakes", EARTHQUAKES + 1, 2, 0)
    with pytest.raises(ValueError, match="dimensions"):
        points("uniform", 10, 4, 0)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_counting(dimension: int) -> None:
    partition = Partition(dimension=dimension, depth=7)
    cloud = np.vstack([points("clustered", 300, dimension, 0), np.ones((1, dimension))])
    counts = offline.count(cloud, partition)
    inside = np.abs(cloud[:, None] - offline.centres(partition)) <= 0.5 / 2.0 ** np.array(partition.bits)
    np.testing.assert_array_equal(counts, inside.all(axis=2).sum(axis=0))


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("mechanism", [offline.pmm, offline.haar])
def test_without_noise_the_counts_come_back(dimension: int, mechanism: Callable[..., FloatArray]) -> None:
    partition = Partition(dimension=dimension, depth=8)
    counts = offline.count(points("clustered", 1000, dimension, 0), partition)
    found = mechanism(counts, partition, epsilon=1e6, rng=np.random.default_rng(0))
    np.testing.assert_allclose(found, counts, atol=1e-9)
    noisy = mechanism(counts, partition, epsilon=0.5, rng=np.random.default_rng(0))
    assert noisy.min() >= 0
    assert noisy.sum() == pytest.approx(1000)
    assert not np.allclose(noisy, counts)


@pytest.mark.parametrize("mechanism", [offline.pmm, offline.haar])
def test_what_a_replaced_point_costs(monkeypatch: pytest.MonkeyPatch, mechanism: Callable[..., FloatArray]) -> None:
    """Changes of the noisy values by a replaced point, over their scales, add up to epsilon at most, and reach it."""
    partition = Partition(dimension=2, depth=6)
    rng = np.random.default_rng(0)
    scales: list[tuple[int, float]] = []

    def noted(size: int, scale: float, rng: np.random.Generator) -> IntArray:
        scales.append((size, scale))
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(offline, "_laplace", noted)
    mechanism(np.ones(64, dtype=np.int64), partition, epsilon=0.7, rng=rng)
    costs = []
    for old, new in rng.integers(0, 64, size=(300, 2)):
        change = np.zeros(64)
        change[old] -= 1
        change[new] += 1
        total = 0.0
        for level, (size, scale) in enumerate(scales, start=1):
            nodes = change.reshape(2**level, -1).sum(axis=1)
            values = nodes if mechanism is offline.pmm else nodes[::2] - nodes[1::2]
            assert values.size == size
            total += float(np.abs(values).sum()) / scale
        costs.append(total)
    assert max(costs) == pytest.approx(0.7)


def test_budgets_are_the_best_for_their_sum() -> None:
    partition = Partition(dimension=2, depth=9)
    weights = np.array([2.0**j * partition.diameter(j - 1) for j in range(1, 10)])
    best = offline.shares(partition)
    others = best * np.random.default_rng(0).uniform(0.8, 1.2, size=(100, 9))
    assert best.sum() == pytest.approx(1)
    assert np.all(weights @ (1 / best) < (weights / (others / others.sum(axis=1, keepdims=True))).sum(axis=1))


def test_noise_has_its_variance() -> None:
    noise = offline._laplace(200_000, 3.0, np.random.default_rng(0))
    p = np.exp(-1 / 3)
    assert noise.var() == pytest.approx(2 * p / (1 - p) ** 2, rel=0.03)
    assert abs(noise.mean()) < 0.05


@pytest.mark.parametrize("depth", [3, 6, 9])
def test_masses_on_a_grid(depth: int) -> None:
    """Smaller cells add up, larger ones are spread: the mean mass a unit of area is kept."""
    partition = Partition(dimension=2, depth=depth)
    masses = np.random.default_rng(0).random(partition.cells_number)
    grid = offline.on_grid(masses, partition, 8)
    fine = Partition(dimension=2, depth=12)
    parents = np.arange(fine.cells_number) >> (12 - depth)
    split = masses[parents] / 2 ** (12 - depth)
    expected = np.zeros((8, 8))
    np.add.at(expected, tuple((offline.centres(fine) * 8).astype(int).T), split)
    np.testing.assert_allclose(grid, expected)


def test_depth_follows_the_points() -> None:
    assert offline.depth_for(100_000, 2, 1.0) == 16
    assert offline.depth_for(100_000, 2, 0.5) == 15
    assert offline.depth_for(1, 3, 0.1) == 3
    assert offline.depth_for(10**12, 1, 1.0) == 30


@pytest.mark.sparing(1, 8)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dim", [1, 3])
def test_a_run_is_what_its_settings_say(method: str, dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.points.DIRECTIONS", 4)  # of shadows in three dimensions, of millions of cells
    setting = replace(FIRST, dim=dim, method=method)
    line = run(setting)
    assert {name: line[name] for name in asdict(setting)} == asdict(setting)
    assert line["w1_scaled"] == pytest.approx(line["w1"] * 2000 ** (1 / dim), rel=1e-4)
    again = run(setting)
    assert line["w1"] == again["w1"]
    assert (line["points_per_second"] is None) == (method == "uniform")
    assert run(replace(setting, epsilon=100.0))["w1"] < line["w1"] or method == "uniform"


def test_distance_in_two_dimensions_is_that_of_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = []

    def noted(a: FloatArray, b: FloatArray) -> float:
        sides.append(len(a))
        return w1_grid(a, b) if len(a) < 128 else 0.0

    monkeypatch.setattr("benchmarks.points.w1_grid", noted)
    partition = Partition(dimension=2, depth=4)
    distance(points("uniform", 1000, 2, 0), np.ones(16), partition)
    monkeypatch.setattr("benchmarks.points.LARGE", 1000)
    distance(points("uniform", 1000, 2, 0), np.ones(16), partition)
    assert sides == [128, 256]


def test_another_method_only_needs_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def halves(cloud: FloatArray, how: Setting) -> list[Outcome]:
        return [Outcome(masses=np.array([1.0, 0.0]), depth=1, seconds_ingest=2.0, seconds_release=0.5)]

    monkeypatch.setitem(METHODS, "halves", halves)
    line = run(replace(FIRST, data="uniform", method="halves"))
    assert line["w1"] == pytest.approx(0.3125, abs=0.02)  # all of it at a quarter, where it should be even
    assert line["points_per_second"] == 1000
    assert line["release_seconds"] == 0.5


@pytest.mark.slow
def test_all_moments_of_a_stream_are_looked_at() -> None:
    """The first tenth in one tick, then equal ticks; each method is asked about the points so far."""
    how = Setting(
        dim=2, points=500, epsilon=1.0, delta=0.0, data="circles", method="points", every=60, at=(0.1, 0.5, 1.0)
    )
    assert [(s.start, s.stop) for s in how.spans][:3] == [(0, 50), (50, 110), (110, 170)]
    assert how.spans[-1].stop == 500
    cloud = points("circles", 500, 2, 0)
    for method in ("points", "adaptive-tree", "offline-privtree"):
        setting = replace(how, method=method, neighbours="add-remove", epsilon=1e4)
        found = list(METHODS[method](cloud, setting))
        for n, one in zip((50, 290, 500), found, strict=True):
            assert one.masses.sum() == pytest.approx(n, rel=0.05)
        true = offline.count(cloud, Partition(dimension=2, depth=6))
        assert np.abs(found[-1].masses.reshape(64, -1).sum(axis=1) - true).sum() < 30


def test_a_node_that_is_split_hands_on_what_it_counted() -> None:
    tree = AdaptiveTree(dimension=1, epsilon=1e3)
    side = 2**DEPTH // 4
    for _ in range(3):
        tree.take(np.full(400, side // 2))
        tree.take(np.full(100, 3 * side + 5))
    assert tree.masses().reshape(4, -1).sum(axis=1) == pytest.approx([1200, 0, 0, 300], abs=1)
    twice = [AdaptiveTree(dimension=1, epsilon=1.0, seed=3) for _ in range(2)]
    for one in twice:
        one.take(np.arange(1000) * 7)
    assert np.array_equal(twice[0].masses(), twice[1].masses())


def test_runs_of_the_document() -> None:
    runs = list(settings(3, 1))
    assert len({key(asdict(r)) for r in runs}) == len(runs)
    large = [r for r in runs if r.points == NUMBERS[-1]]
    assert {r.seed for r in large if r.dim == 2} == {0}
    assert {r.seed for r in large if r.dim == 1} == {0, 1, 2}
    assert max(r.points for r in runs if r.data == "earthquakes") == EARTHQUAKES
    assert not list(settings(0, 1))


@pytest.mark.slow
def test_the_document_holds_all_methods(tmp_path: Path) -> None:
    lines = []
    for setting in settings(2, 1):
        size = 0.5 if setting.method == "offline-haar" else 1.0
        w1 = size * setting.points ** (-1 / setting.dim) * (1 + setting.seed / 5)
        speed = None if setting.method == "uniform" else 1_000_000 + setting.points
        facts = {"w1": w1, "points_per_second": speed, "release_seconds": 0.01, "peak_mb": 200.0}
        lines.append({**asdict(setting), **facts, "w1_at": [w1] * len(setting.at)})
    lines += [{**line, "method": "other"} for line in lines if line["method"] == "uniform"]
    write(lines, tmp_path)
    text = (tmp_path / "points.md").read_text()
    assert "| offline-pmm | offline-haar | uniform | other | points, points-bounded by the best offline |" in text
    assert "| circles | 50,000 | 2 | offline-privtree | 0.0049 (1.00) |" in text
    assert " | 0.000110 ±0.000010 | 0.000055 ±0.000005 (0.50) |" in text
    assert "| 2 | 1,000,000 | offline-haar | 2,000,000 | 0.01 | 200 |" in text
    for name in ("points-1d.png", "points-2d.png", "points-speed.png"):
        assert (tmp_path / name).stat().st_size > 10_000
    path = tmp_path / "points.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(done(path)) == len(lines)


def test_the_document_is_written_of_what_there_is(tmp_path: Path) -> None:
    facts = {"w1": 0.1, "points_per_second": 1000, "release_seconds": 0.01, "peak_mb": 200.0}
    write([{**asdict(replace(FIRST, dim=3, method="other")), **facts}], tmp_path)
    text = (tmp_path / "points.md").read_text()
    assert "## Three dimensions" in text
    assert "| clustered | 2,000 | 1 | 0.100 |  |" in text
