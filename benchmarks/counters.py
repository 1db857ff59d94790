"""Errors of the counters, one JSON line each.

    python -m benchmarks.counters

Every counter's standard error of one cell after t ticks, from its own ``variance`` (tests hold that against noise);
and the sparse counter's measured mean absolute error after T steps, against the number of ones among them (Lemma 3.2
of paper 1: of the order of log T + log^1.5 n, in units of 1 / epsilon). Unit one event, add-remove; epsilon = 1,
delta = 0, or delta = 1e-9 for Gaussian counters.
"""

from __future__ import annotations

import argparse
import json
import math

import numpy as np

from benchmarks.environment import environment
from synthstream.kernel.counters import Toeplitz, counter
from synthstream.kinds import Noise
from synthstream.papers.counters.sparse import Arrivals, Sparse
from synthstream.privacy import Budget
from synthstream.synthesizers.simulation.seeded import SeededGate

AT = (10, 100, 1_000, 10_000, 100_000)
# Counters, whether they know the horizon, and their noise.
KINDS: tuple[tuple[str, bool, Noise], ...] = (
    ("simple", False, "laplace"),
    ("block", True, "laplace"),
    ("block", False, "laplace"),
    ("binary", True, "laplace"),
    ("hybrid", False, "laplace"),
    ("kary", True, "laplace"),
    ("kary", False, "laplace"),
    ("simple", False, "gaussian"),
    ("toeplitz", True, "gaussian"),
    ("blt", True, "gaussian"),
    ("blt", False, "gaussian"),
)
STEPS, ONES, NODES = 10_000, (0, 10, 100, 1_000, 10_000), 500


def errors(kind: str, bounded: bool, noise: Noise) -> dict[str, float]:
    """Standard error after t ticks, by t; for bounded counters t is the horizon."""
    budget = Budget(epsilon=1.0, delta=0.0 if noise == "laplace" else 1e-9)
    multiplier = 1.0 if noise == "laplace" else 1 / math.sqrt(2 * float(budget.rho))
    found = {}
    for t in AT:
        if kind == "toeplitz" and t > Toeplitz.longest:
            continue
        made = counter(kind, horizon=t if bounded else None, noise=noise)
        # At the very end of a tree a few nodes are enough: the mean over the last half says more.
        ticks = np.unique(np.linspace(t // 2, t - 1, 50).astype(int))
        mean = np.mean([made.variance(int(s), multiplier=multiplier) for s in ticks])
        found[str(t)] = float(f"{math.sqrt(mean):.4g}")
    return found


def sparse(ones: int) -> float:
    """Mean absolute error of Algorithm 2 after ``STEPS`` steps with so many ones at random, epsilon = 1."""
    rng = np.random.default_rng(ones)
    moments = np.concatenate([np.sort(rng.choice(STEPS, size=ones, replace=False)) for _ in range(NODES)])
    scale = np.full(NODES, 2.0)
    threshold = np.full(NODES, math.floor(9 * math.log(STEPS)), dtype=np.int64)
    made, gate = Sparse(horizon=STEPS, scale=scale, threshold=threshold), SeededGate(ones)
    arrivals = Arrivals(STEPS, np.arange(NODES + 1) * ones, moments.astype(np.int64))
    state = made.step(made.init(gate), arrivals, gate)
    return float(np.mean(np.abs(state["noisy"].sum(axis=0) - ones)))


def main() -> None:
    """Print them."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for kind, bounded, noise in KINDS:
        line = {"bench": "counters", "counter": kind, "horizon": "t" if bounded else "unbounded", "noise": noise}
        print(json.dumps({**line, "stderr": errors(kind, bounded, noise)}), flush=True)
    for ones in ONES:
        facts = {"steps": STEPS, "ones": ones, "mean_error": round(sparse(ones), 1)}
        print(json.dumps({"bench": "counters", "counter": "sparse", **facts, **environment()}), flush=True)


if __name__ == "__main__":
    main()
