"""Samples per second of the exact samplers, beside OpenDP's, as JSON lines.

    python -m benchmarks.sampling

One core, random bytes from the operating system included. Each line is the best of three runs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.environment import environment
from synthstream.kernel.sampling import discrete_gaussian, discrete_laplace

# OpenDP takes about fifty times as long; its samples are independent, so fewer of them give the same rate.
OUR_SAMPLES, OPENDP_SAMPLES, RUNS = 5_000_000, 100_000, 3
SCALES = {"laplace": (1.0, 2.0**10, 2.0**20), "gaussian": (1.0, 2.0**10, 2.0**27)}
SAMPLERS = {"laplace": discrete_laplace, "gaussian": discrete_gaussian}


def our_sampler(law: str, scale: float) -> Callable[[], Any]:
    """Draws ``OUR_SAMPLES`` of a law."""
    return lambda: SAMPLERS[law](scale, OUR_SAMPLES, entropy=os.urandom)


def opendp_sampler(law: str, scale: float) -> Callable[[], Any]:
    """Draws ``OPENDP_SAMPLES`` of the same law with OpenDP."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int), size=OPENDP_SAMPLES)
    if law == "laplace":
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=scale)
    else:
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=int), scale=scale)
    zeros = np.zeros(OPENDP_SAMPLES, dtype=np.int64).tolist()
    return lambda: measurement(zeros)


def rate(draw: Callable[[], Any], samples: int) -> float:
    """Samples per second, best of some runs after one to warm up."""
    draw()
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        draw()
        seconds.append(time.perf_counter() - start)
    return samples / min(seconds)


def main() -> None:
    """Print one JSON line per law, scale and implementation."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    facts = environment()
    facts["versions"] = {**facts["versions"], "opendp": version("opendp")}
    for law, scales in SCALES.items():
        for scale in scales:
            rates = {
                "synthstream": rate(our_sampler(law, scale), OUR_SAMPLES),
                "opendp": rate(opendp_sampler(law, scale), OPENDP_SAMPLES),
            }
            for implementation, measured in rates.items():
                line = {"bench": "sampling", "law": law, "scale": scale, "implementation": implementation}
                print(json.dumps({**line, "samples_per_second": round(measured), **facts}), flush=True)


if __name__ == "__main__":
    main()
