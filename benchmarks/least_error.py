"""How far errors are above the least that unbiased linear mechanisms have, one JSON line each (theorem `least-error`).

    python -m benchmarks.least_error

Counters: exact, from their variances. Points in one dimension: 100,000 in 200 ticks, add-remove, epsilon = 1; the root
mean square, over all ticks and the 64 borders of equal intervals, of (published - true) number of points up to the
border. NOT PRIVATE.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

import numpy as np

from benchmarks import online
from benchmarks.clouds import Cloud, points
from benchmarks.environment import environment
from synthstream.accounting.gaussian import largest_rho
from synthstream.kernel.counters import Blt, Counter, Kary, Restarted, Simple, Toeplitz
from synthstream.kernel.counters.dense import Dense
from synthstream.papers.counters import Binary, Block, Hybrid

TICKS = (10, 100, 1_000)
DENSE = 100  # the longest horizon that is written down quickly
CLOUDS: tuple[Cloud, ...] = ("uniform", "clustered", "drift")
POINTS, STEPS, BORDERS, SEEDS = 100_000, 200, 64, 3


def least(ticks: int) -> float:
    """g(T): the least root mean square of running sums over T ticks, in standard errors of one release."""
    odd = 2 * np.arange(1, ticks + 1) - 1
    return float(np.mean(1 / (2 * np.sin(odd * math.pi / (4 * ticks + 2)))))


def above(made: Counter, ticks: int) -> float:
    """Root mean square of a counter's standard error over so many ticks, divided by the least."""
    mean = np.mean([made.variance(t, multiplier=100.0) for t in range(ticks)])
    return math.sqrt(mean / made.noise_variance(100.0)) / least(ticks)


def counters(ticks: int) -> list[Counter]:
    """Every counter, bounded ones for so many ticks."""
    found: list[Counter] = [Simple(horizon=ticks, noise="laplace"), Block(horizon=ticks), Binary(horizon=ticks)]
    found += [Hybrid(), Kary(horizon=ticks), Restarted(noise="laplace")]
    found += [Toeplitz(horizon=ticks), Blt(horizon=ticks), Restarted(noise="gaussian")]
    return [*found, Dense(weights=(1.0,) * ticks, horizon=ticks)] if ticks <= DENSE else found


def squares(data: Cloud, *, delta: float, seed: int) -> float:
    """Mean square, over ticks and borders, of the error of the number of points up to the border."""
    cloud = points(data, POINTS, 1, seed)
    ends = np.linspace(0, POINTS, STEPS + 1).astype(int)[1:]
    spans = [slice(end - POINTS // STEPS, end) for end in ends]
    released = online.scheduled(
        cloud, 1.0, delta, seed, spans=spans, moments=ends.tolist(), neighbours="add-remove", each=True
    )
    found = []
    for end, (made, _, _) in zip(ends, released, strict=True):
        held = np.repeat(made.held, max(1, BORDERS // made.held.size)) / max(1, BORDERS // made.held.size)
        truth = np.histogram(cloud[:end, 0], bins=BORDERS, range=(0, 1))[0]
        found.append(np.mean((held.reshape(BORDERS, -1).sum(axis=1) - truth).cumsum() ** 2))
    return float(np.mean(found))


def main() -> None:
    """Print all lines."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    lines: list[dict[str, Any]] = []
    for ticks in TICKS:
        for made in counters(ticks):
            bounded = made.horizon is not None
            what = {"counter": type(made).__name__, "noise": made.noise, "bounded": bounded, "ticks": ticks}
            lines.append({**what, "beside_least": round(above(made, ticks), 3)})
    for delta in (0.0, 1e-9):
        once = math.sqrt(2 if delta == 0 else 1 / (2 * largest_rho(1.0, delta=delta, unit=1e6)))
        for data in CLOUDS:
            rms = math.sqrt(np.mean([squares(data, delta=delta, seed=seed) for seed in range(SEEDS)]))
            bound = once * least(STEPS) * least(BORDERS)
            what = {"points": data, "delta": delta, "ticks": STEPS, "borders": BORDERS, "seeds": SEEDS}
            lines.append(
                {**what, "rms": round(rms, 1), "least": round(bound, 1), "beside_least": round(rms / bound, 2)}
            )
    for line in lines:
        print(json.dumps({"bench": "least_error", **line, **environment()}), flush=True)


if __name__ == "__main__":
    main()
