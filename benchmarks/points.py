"""Accuracy, speed and memory of synthetic points: one JSON line.

    python -m benchmarks.points --dim 2 --points 100000 --epsilon 1 --delta 0 --data drift --method offline-pmm --seed 0

Data: benchmarks.clouds. Methods: offline-pmm and offline-haar see all points at once, uniform sees none
(benchmarks.offline).

w1 is the distance of the synthetic measure to the true one after the last point. NOT PRIVATE. In one dimension it is
exact; in two, exact between masses on a grid of 128 x 128 cells (256 x 256 from a million points) in the maximum norm;
in three, the mean over 64 directions, the same for all runs. w1_scaled is w1 (epsilon points)^(1/dim). Speed is that
of taking points in; releasing comes on top. Memory is that of the process before w1 is computed, points included.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from benchmarks import offline
from benchmarks.clouds import Cloud, points
from benchmarks.distances import histogram, w1_sliced
from benchmarks.environment import environment, peak_mb
from benchmarks.online import scheduled, sparse
from synthstream.evaluate.wasserstein import w1_grid
from synthstream.partition import Partition

FloatArray = NDArray[np.float64]
DIRECTIONS = 64
LARGE = 1_000_000
# Points of a first, short run, which compiles what there is to compile.
_WARM = 64


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run: everything that its result depends on."""

    dim: int
    points: int
    epsilon: float
    delta: float
    data: Cloud
    method: str
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a method makes of a cloud.

    Args:
        masses: over the cells of ``Partition(dimension=d, depth=depth)``, at least 0, in any unit.
        depth: of the partition.
        seconds_ingest: time to take in all points.
        seconds_release: time of the last release.
    """

    masses: FloatArray
    depth: int
    seconds_ingest: float
    seconds_release: float


# Points in the unit cube in their order, epsilon, delta, seed.
Method = Callable[[FloatArray, float, float, int], Outcome]


def _offline(cloud: FloatArray, epsilon: float, seed: int, mechanism: Callable[..., FloatArray]) -> Outcome:
    begin = time.perf_counter()
    partition = offline.partition_for(cloud, epsilon)
    counts = offline.count(cloud, partition)
    counted = time.perf_counter()
    masses = mechanism(counts, partition, epsilon=epsilon, rng=np.random.default_rng([seed, 1]))
    end = time.perf_counter()
    return Outcome(masses=masses, depth=partition.depth, seconds_ingest=counted - begin, seconds_release=end - counted)


def _pmm(cloud: FloatArray, epsilon: float, delta: float, seed: int) -> Outcome:
    return _offline(cloud, epsilon, seed, offline.pmm)


def _haar(cloud: FloatArray, epsilon: float, delta: float, seed: int) -> Outcome:
    return _offline(cloud, epsilon, seed, offline.haar)


def _uniform(cloud: FloatArray, epsilon: float, delta: float, seed: int) -> Outcome:
    partition = offline.partition_for(cloud, epsilon)
    begin = time.perf_counter()
    masses = offline.uniform(partition, len(cloud))
    seconds = time.perf_counter() - begin
    return Outcome(masses=masses, depth=partition.depth, seconds_ingest=0.0, seconds_release=seconds)


def _points(cloud: FloatArray, epsilon: float, delta: float, seed: int) -> Outcome:
    found, ingest, release = scheduled(cloud, epsilon, delta, seed)
    return Outcome(masses=found.masses, depth=found.level, seconds_ingest=ingest, seconds_release=release)


def _hypercube(cloud: FloatArray, epsilon: float, delta: float, seed: int) -> Outcome:
    found, ingest, release = sparse(cloud, epsilon, seed)
    return Outcome(masses=found.masses, depth=found.level, seconds_ingest=ingest, seconds_release=release)


METHODS: dict[str, Method] = {
    "points": _points,
    "hypercube": _hypercube,
    "offline-pmm": _pmm,
    "offline-haar": _haar,
    "uniform": _uniform,
}


def run(setting: Setting) -> dict[str, Any]:
    """The facts of one run."""
    cloud = points(setting.data, setting.points, setting.dim, setting.seed)
    method = METHODS[setting.method]
    method(cloud[:_WARM], setting.epsilon, setting.delta, setting.seed)
    found = method(cloud, setting.epsilon, setting.delta, setting.seed)
    memory = peak_mb()
    w1 = distance(cloud, found.masses, Partition(dimension=setting.dim, depth=found.depth))
    speed = round(setting.points / found.seconds_ingest) if found.seconds_ingest else None
    return {
        **asdict(setting),
        "w1": float(f"{w1:.5g}"),
        "w1_scaled": float(f"{w1 * (setting.epsilon * setting.points) ** (1 / setting.dim):.5g}"),
        "points_per_second": speed,
        "release_seconds": float(f"{found.seconds_release:.3g}"),
        "peak_mb": round(memory, 1),
    }


def distance(cloud: FloatArray, masses: FloatArray, partition: Partition) -> float:
    """W1 of masses over cells to points, by the metric for their dimension."""
    if partition.dimension == 2:
        bins = 256 if len(cloud) >= LARGE else 128
        return w1_grid(histogram(cloud, bins), offline.on_grid(masses, partition, bins))
    full = masses > 0
    places, weights = offline.centres(partition)[full], masses[full]
    if partition.dimension == 1:
        return float(wasserstein_distance(cloud[:, 0], places[:, 0], v_weights=weights))
    return w1_sliced(cloud, places, directions=DIRECTIONS, rng=np.random.default_rng(0), weights_b=weights)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, choices=[1, 2, 3], default=2)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=0.0)
    parser.add_argument("--data", choices=get_args(Cloud), default="uniform")
    parser.add_argument("--method", choices=sorted(METHODS), default="offline-pmm")
    parser.add_argument("--seed", type=int, default=0, help="of data and simulated noise")
    setting = Setting(**vars(parser.parse_args()))
    print(json.dumps({"bench": Path(__file__).stem, **run(setting), **environment()}), flush=True)


if __name__ == "__main__":
    main()
