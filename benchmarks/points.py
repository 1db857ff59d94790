"""Accuracy, speed and memory of synthetic points: one JSON line.

    python -m benchmarks.points --dim 2 --points 100000 --epsilon 1 --delta 0 --data drift --method offline-pmm --seed 0

Data: benchmarks.clouds. Methods: offline-privtree, offline-pmm and offline-haar see all points so far at once, uniform
sees none (benchmarks.offline); points is ours with horizon = "unbounded", points-bounded where the horizon is the last
tick of all; adaptive-tree is the stream of Kumar, Strohmer and Vershynin 2024 (benchmarks.adaptive_tree). Side by side
with it, as in that paper:

    ... --points 50000 --data circles --neighbours add-remove --every 500 --at .1,.3,.6,1 --method adaptive-tree

w1 is the distance of the synthetic measure to the true one after the last point, w1_at at each moment. NOT PRIVATE.
In one dimension it is exact; in two, exact between masses on a grid of 128 x 128 cells (256 x 256 from a million
points) in the maximum norm; in three, the mean over 64 directions, the same for all runs. w1_scaled is
w1 (epsilon points)^(1/dim). Speed is that of taking points in; releasing comes on top. Memory is that of the process
before w1 is computed, points included.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from scipy.stats import wasserstein_distance

from benchmarks import offline, online
from benchmarks.adaptive_tree import AdaptiveTree
from benchmarks.clouds import Cloud, points
from benchmarks.distances import histogram, w1_sliced
from benchmarks.environment import environment, peak_mb
from synthstream.evaluate.wasserstein import w1_grid
from synthstream.partition import Partition
from synthstream.privacy import Neighbours
from synthstream.workload import FloatArray

DIRECTIONS = 64
LARGE = 1_000_000
# Points of a first, short run, which compiles what there is to compile.
_WARM = 64


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run: everything that its result depends on.

    Args:
        dim, points, epsilon, delta, data, method, seed: as said above.
        neighbours: of the claim.
        every: points in a tick, after a first one with a tenth of all; 0: 64 ticks whenever the number has doubled.
        at: moments at which W1 is measured, as parts of all points.
    """

    dim: int
    points: int
    epsilon: float
    delta: float
    data: Cloud
    method: str
    seed: int = 0
    neighbours: Neighbours = "replace-one"
    every: int = 0
    at: tuple[float, ...] = (1.0,)

    @property
    def moments(self) -> tuple[int, ...]:
        """Numbers of points after which W1 is measured: the first ticks that end there or later."""
        ends = [span.stop for span in self.spans]
        return tuple(next(end for end in ends if end >= round(part * self.points)) for part in self.at)

    @property
    def shown(self) -> str:
        """``at`` as an option says it."""
        return ",".join(map(str, self.at))

    @property
    def spans(self) -> list[slice]:
        """Points of each tick."""
        return list(online.batches(self.points, self.every) if self.every else online.ticks(self.points, self.epsilon))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a method makes of a cloud up to a moment.

    Args:
        masses: over the cells of ``Partition(dimension=d, depth=depth)``, at least 0, in any unit.
        depth: of the partition.
        seconds_ingest: time to take in all points so far.
        seconds_release: time of the last release.
    """

    masses: FloatArray
    depth: int
    seconds_ingest: float
    seconds_release: float


# From points in the unit cube, in their order, to what is known at each moment.
Method = Callable[[FloatArray, Setting], Iterable[Outcome]]


def _offline(mechanism: Callable[..., FloatArray]) -> Method:
    def at_moments(cloud: FloatArray, how: Setting) -> Iterator[Outcome]:
        if how.neighbours != "replace-one":
            raise SystemExit(f"--neighbours: {how.method} knows replace-one alone")
        for moment in how.moments:
            begin, rng = time.perf_counter(), np.random.default_rng([how.seed, 1])
            partition = offline.partition_for(cloud[:moment], how.epsilon)
            counts = offline.count(cloud[:moment], partition)
            counted = time.perf_counter()
            masses = mechanism(counts, partition, epsilon=how.epsilon, rng=rng)
            seconds = counted - begin, time.perf_counter() - counted
            yield Outcome(masses=masses, depth=partition.depth, seconds_ingest=seconds[0], seconds_release=seconds[1])

    return at_moments


def _uniform(cloud: FloatArray, how: Setting) -> Iterator[Outcome]:
    for moment in how.moments:
        partition = offline.partition_for(cloud[:moment], how.epsilon)
        begin = time.perf_counter()
        masses = offline.uniform(partition, moment)
        seconds = time.perf_counter() - begin
        yield Outcome(masses=masses, depth=partition.depth, seconds_ingest=0.0, seconds_release=seconds)


def _points(cloud: FloatArray, how: Setting) -> Iterator[Outcome]:
    bounded = how.method == "points-bounded"
    released = online.scheduled(
        cloud,
        how.epsilon,
        how.delta,
        how.seed,
        spans=how.spans,
        moments=how.moments,
        neighbours=how.neighbours,
        each=how.every > 0,
        horizon=len(how.spans) if bounded else None,
    )
    for found, ingest, release in released:
        yield Outcome(masses=found.held, depth=found.level, seconds_ingest=ingest, seconds_release=release)


def _hypercube(cloud: FloatArray, how: Setting) -> Iterator[Outcome]:
    if how.every or how.at != (1.0,) or how.neighbours != "replace-one":
        raise SystemExit("hypercube takes points one by one, is looked at once, and knows replace-one alone")
    found, ingest, release = online.sparse(cloud, how.epsilon, how.seed)
    yield Outcome(masses=found.masses, depth=found.level, seconds_ingest=ingest, seconds_release=release)


def _tree(how: Setting) -> AdaptiveTree:
    if how.delta:
        raise SystemExit(f"--delta: {how.method} is pure")
    return AdaptiveTree(dimension=how.dim, epsilon=how.epsilon, neighbours=how.neighbours, seed=how.seed)


def _taken(tree: AdaptiveTree, points: FloatArray) -> float:
    begin = time.perf_counter()
    tree.take(tree.partition.cells(online.coded(points, tree.partition)))
    return time.perf_counter() - begin


def _shown(tree: AdaptiveTree, seconds: float) -> Outcome:
    begin = time.perf_counter()
    masses = tree.masses()
    release = time.perf_counter() - begin
    return Outcome(masses=masses, depth=tree.partition.depth, seconds_ingest=seconds, seconds_release=release)


def _adaptive_tree(cloud: FloatArray, how: Setting) -> Iterator[Outcome]:
    tree, due, seconds = _tree(how), list(how.moments), 0.0
    for span in how.spans:
        seconds += _taken(tree, cloud[span])
        while due and span.stop >= due[0]:
            due.pop(0)
            yield _shown(tree, seconds)


def _privtree(cloud: FloatArray, how: Setting) -> Iterator[Outcome]:
    for moment in how.moments:
        tree = _tree(how)
        yield _shown(tree, _taken(tree, cloud[:moment]))


METHODS: dict[str, Method] = {
    "points": _points,
    "points-bounded": _points,
    "adaptive-tree": _adaptive_tree,
    "hypercube": _hypercube,
    "offline-privtree": _privtree,
    "offline-pmm": _offline(offline.pmm),
    "offline-haar": _offline(offline.haar),
    "uniform": _uniform,
}


def run(setting: Setting) -> dict[str, Any]:
    """The facts of one run; W1 at the last moment, and at all of them."""
    cloud = points(setting.data, setting.points, setting.dim, setting.seed)
    method = METHODS[setting.method]
    list(method(cloud[:_WARM], replace(setting, points=_WARM)))
    found = list(method(cloud, setting))
    memory = peak_mb()
    moments = zip(setting.moments, found, strict=True)
    all_w1 = [distance(cloud[:n], one.masses, Partition(dimension=setting.dim, depth=one.depth)) for n, one in moments]
    w1, last = all_w1[-1], found[-1]
    speed = round(setting.points / last.seconds_ingest) if last.seconds_ingest else None
    return {
        **asdict(setting),
        "w1": float(f"{w1:.5g}"),
        "w1_at": [float(f"{one:.5g}") for one in all_w1],
        "w1_scaled": float(f"{w1 * (setting.epsilon * setting.points) ** (1 / setting.dim):.5g}"),
        "points_per_second": speed,
        "release_seconds": float(f"{last.seconds_release:.3g}"),
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


def _moments(text: str) -> tuple[float, ...]:
    return tuple(sorted(float(part) for part in text.split(",")))


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
    parser.add_argument("--neighbours", choices=get_args(Neighbours), default="replace-one")
    parser.add_argument("--every", type=int, default=0, help="points in a tick after the first tenth")
    parser.add_argument("--at", type=_moments, default=(1.0,), help="parts of the stream, such as .1,.3,.6,1")
    setting = Setting(**vars(parser.parse_args()))
    print(json.dumps({"bench": Path(__file__).stem, **run(setting), **environment()}), flush=True)


if __name__ == "__main__":
    main()
