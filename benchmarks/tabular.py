"""Accuracy, stability and cost of tabular streams, as one JSON line.

    python -m benchmarks.tabular --data adult --order random --batch 200 --epsilon 1 --delta 1e-9 --method marginals

Metrics over all pairs of columns (synthstream.evaluate.metrics), mean over the last ten ticks. The horizon is declared
to be the number of ticks; the figures of the same run with an unbounded horizon stand under ``unbounded``. Totals are
private.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.data import adult
from benchmarks.environment import environment, peak_mb
from synthstream.evaluate.metrics import table_errors
from synthstream.fit.population import Population, changed_share, fit
from synthstream.kernel.marginals import Marginals
from synthstream.privacy import Budget
from synthstream.testing.gates import SeededGate
from synthstream.workload import CodeArray, Workload

_LAST = 10


def measure(codes: CodeArray, sizes: tuple[int, ...], mechanism: Marginals, *, batch: int, seed: int) -> dict[str, Any]:
    """Run a whole stream; figures of the last ten ticks, and medians of the time over all."""
    workload = mechanism.workload
    pairs = Workload(sizes=sizes, marginals=tuple(m for m in workload.marginals if len(m) == 2))
    state = mechanism.init()
    model: Population | None = None
    true = np.zeros(pairs.cells, dtype=np.int64)
    ticks = -(-len(codes) // batch)
    errors, changed, fit_seconds, seconds = [], [], [], []
    for tick in range(ticks):
        rows = codes[tick * batch : (tick + 1) * batch]
        true += pairs.count(rows)
        begin = time.perf_counter()
        state, measured = mechanism.step(state, workload.count(rows), SeededGate(f"{seed}/{tick}"))
        middle = time.perf_counter()
        before, model = model, fit(measured, start=model, seed=seed * 1_000_003 + tick)
        seconds.append(time.perf_counter() - begin)
        fit_seconds.append(time.perf_counter() - middle)
        if tick >= ticks - _LAST:
            synthetic = pairs.count(model.codes.astype(np.int32))
            events = min(len(codes), (tick + 1) * batch)
            errors.append(asdict(table_errors(pairs, true=true, synthetic=synthetic, events=events)))
            changed.append(0.0 if before is None else changed_share(before.codes, model.codes))
        if sys.stderr.isatty():
            print(f"\r{tick + 1}/{ticks}", end="", file=sys.stderr)
    means = {key: round(float(np.mean([e[key] for e in errors])), 6) for key in errors[0]}
    return {
        **means,
        "changed_rows": round(float(np.mean(changed)), 4),
        "seconds_per_release": round(float(np.median(seconds)), 4),
        "fit_seconds": round(float(np.median(fit_seconds[-50:])), 4),
    }


def main() -> None:
    """Parse, measure, print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["adult"], default="adult")
    parser.add_argument("--order", choices=["random", "sorted"], default="random")
    parser.add_argument("--batch", type=int, default=200, help="events per tick")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--method", choices=["marginals"], default="marginals")
    parser.add_argument("--seed", type=int, default=0, help="of the order and of the simulated noise")
    parser.add_argument("--no-unbounded", action="store_true", help="leave out the second run")
    args = parser.parse_args()
    codes, sizes = adult(args.order, args.seed)
    ticks = -(-len(codes) // args.batch)
    budget = Budget(epsilon=args.epsilon, delta=args.delta)
    workload = Workload.all_up_to(2, sizes=sizes)

    def figures(horizon: int | None) -> dict[str, Any]:
        mechanism = Marginals(workload=workload, budget=budget, horizon=horizon)
        return measure(codes, sizes, mechanism, batch=args.batch, seed=args.seed)

    line = {
        "bench": "tabular",
        "data": args.data,
        "order": args.order,
        "batch": args.batch,
        "epsilon": args.epsilon,
        "delta": args.delta,
        "method": args.method,
        "neighbours": "add-remove",
        "unit": "event",
        "ticks": ticks,
        **figures(ticks),
    }
    line["peak_mb"] = round(peak_mb(), 1)
    if not args.no_unbounded:
        line["unbounded"] = figures(None)
    print(json.dumps({**line, "seed": args.seed, **environment()}))


if __name__ == "__main__":
    main()
