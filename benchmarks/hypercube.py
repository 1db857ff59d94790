"""Seconds of the paper's mechanism, simulated lazily in vectors, beside its pseudo-code line by line, as JSON lines.

    python -m benchmarks.hypercube

Uniform points in two dimensions, epsilon = 1, as many levels of nodes as there are levels of time; one core; the
system's random bytes for ours, ordinary ones for the naive program. The naive seconds are estimated: in each level of
time, a few steps are timed and multiplied by the number of the level's steps.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from benchmarks.environment import environment
from benchmarks.naive_hypercube import NaiveHypercube, Noise
from synthstream.kernel.gate import SystemGate
from synthstream.papers.hypercube import Hypercube
from synthstream.privacy import Budget

AT, BLOCK, RUNS = (10_000, 100_000), 2**15, 3
# Node-steps that the naive program is timed for in a level of time, at least one step.
TIMED = 400_000


def naive_seconds(cube: Hypercube, points: int) -> float:
    """Estimated seconds of the naive program for so many points."""
    naive = NaiveHypercube(cube.dimension, cube.depth, cube.budget.epsilon, Noise(0))
    random, total = np.random.default_rng(0), 0.0
    for level in cube.levels:
        naive.time, number = cube.start(level), min(cube.start(level + 1) - 1, points) - cube.start(level) + 1
        begin = time.perf_counter()
        naive.enter(level)
        total += time.perf_counter() - begin
        steps = min(number, max(1, TIMED // 2 ** (cube.deepest(level) + 1)))
        cells = random.integers(0, 2**cube.depth, size=steps).tolist()
        begin = time.perf_counter()
        for cell in cells:
            naive.add(cell)
        total += (time.perf_counter() - begin) / steps * number
    return total


def our_seconds(cube: Hypercube, points: int) -> float:
    """Seconds for so many points in blocks; the best of some runs after one to warm up."""
    cells = np.random.default_rng(0).integers(0, 2**cube.depth, size=points)
    seconds = []
    for _ in range(1 + RUNS):
        state, begin = cube.init(), time.perf_counter()
        for first in range(0, points, BLOCK):
            block = cells[first : first + BLOCK]
            state, _ = cube.step(state, block, np.arange(block.size), SystemGate())
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


def main() -> None:
    """Print one JSON line per number of points."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for points in AT:
        budget = Budget(epsilon=1.0, delta=0.0)
        cube = Hypercube(dimension=2, depth=points.bit_length() - 1, budget=budget, most_points=points)
        ours, naive = our_seconds(cube, points), naive_seconds(cube, points)
        line = {
            "bench": "hypercube",
            "points": points,
            "depth": cube.depth,
            "seconds": round(ours, 4),
            "points_per_second": round(points / ours),
            "naive_seconds_estimated": round(naive, 1),
            "ratio": round(naive / ours),
        }
        print(json.dumps({**line, **environment()}), flush=True)


if __name__ == "__main__":
    main()
