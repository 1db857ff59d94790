"""Theorem 5.1 of paper 2 against the errors that StreamingMWEM makes, and the bound of its appendix B: one JSON file.

    python -m benchmarks.theorem51

A small domain, batches of one public size, single counts of all pairs of columns as queries. Each tick runs MWEM on its
batch alone (paper 2, Algorithm 2): k times choose the worst query, measure it, update the weights; the mean of the k
weights is added to the stream. A choice and a measurement cost epsilon / 2k each. Errors are those of repeated runs
(benchmarks.accuracy): the alpha that 95 % of runs keep, at 95 % confidence. About two minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import accuracy, runs_needed
from benchmarks.data import adult
from benchmarks.environment import environment
from synthstream.config.config import load
from synthstream.papers.fit.weights import Weights, fit_weights
from synthstream.synthesizers.bounds import picks_rule, theorem_5_1
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray, IntArray, Workload

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "theorem51.json"

SIZES = (2, 2, 3, 4)
EPSILON, BETA, TICKS = 1.0, 0.05, 4
BATCHES = (50, 1_000, 20_000, 400_000)
PICKS = (1, 2, 4, 8, 16, 32, 44)
GRID = 2**10  # scores are exact integers in units of 1 / GRID
REFITS = 100

QUERIES = Workload(sizes=SIZES, marginals=tuple((i, j) for i in range(4) for j in range(i + 1, 4)))
# Of each query its marginal, and its cell within it.
PLACES = [(m, c) for m, cells in zip(QUERIES.marginals, QUERIES.lengths, strict=True) for c in range(int(cells))]


def baseline_bound(
    sizes: tuple[int, ...], *, picks: float, queries: int, events: float, ticks: int, epsilon: float, beta: float = BETA
) -> float:
    """The bound of Theorem 5.1, in events. Above ``events * ticks`` it says nothing: no count is ever off by more."""
    near, far = theorem_5_1(sizes, queries, events, ticks, epsilon, beta)
    return near / math.sqrt(picks) + far * picks


def batch_of(exact: IntArray, gate: SeededGate, *, picks: int, events: float) -> tuple[FloatArray, FloatArray]:
    """MWEM on one batch: answers of the mean weights, and of weights refitted to all that was measured."""
    weights = Weights.uniform(SIZES, events)
    left, chosen, values = list(range(QUERIES.cells)), [], []
    mean = np.zeros(QUERIES.cells)
    for _ in range(picks):
        gaps = np.rint(np.abs(exact - weights.answers(QUERIES)) * GRID).astype(np.int64)
        best = left.pop(gate.choose(gaps[left], sensitivity=GRID, epsilon=EPSILON / (2 * picks)))
        noisy = float(gate.laplace(exact[best : best + 1], scale=2 * picks / EPSILON)[0])
        chosen.append(best)
        values.append(noisy)
        marginal, cell = PLACES[best]
        weights = fit_weights(SIZES, [marginal], [noisy], events, start=weights, iterations=1, cells=[cell])
        mean += weights.answers(QUERIES) / picks
    refitted = fit_weights(
        SIZES,
        [PLACES[q][0] for q in chosen],
        values,
        events,
        start=weights,
        iterations=REFITS,
        cells=[PLACES[q][1] for q in chosen],
    )
    return mean, refitted.answers(QUERIES)


def errors_of(run: int, truth: FloatArray, *, picks: int, batch: int) -> FloatArray:
    """Largest query error after each tick, in events, shape ``(2, TICKS)``: mean weights, refitted weights."""
    rng, gate = np.random.default_rng([batch, picks, run]), SeededGate(f"{batch}/{picks}/{run}")
    gap, out = np.zeros((2, QUERIES.cells)), []
    domain = np.array(np.unravel_index(np.arange(truth.size), SIZES), dtype=np.int32).T
    for _ in range(TICKS):
        exact = QUERIES.count(domain, rng.multinomial(batch, truth).astype(np.int64))
        gap = gap + np.array(batch_of(exact, gate, picks=picks, events=batch)) - exact
        out.append(np.abs(gap).max(axis=1))
    return np.array(out).T


def experiment(runs: int) -> list[dict[str, Any]]:
    """One row for each batch size and number of picks; errors relative to all events, at the last tick."""
    truth = np.random.default_rng(0).dirichlet(np.full(math.prod(SIZES), 0.3))
    uniform = np.abs(Weights.uniform(SIZES, 1.0).answers(QUERIES) - _tables(truth)).max()
    rows = []
    for batch in BATCHES:
        facts = {"queries": QUERIES.cells, "events": float(batch), "ticks": TICKS, "epsilon": EPSILON, "beta": BETA}
        best = picks_rule(SIZES, **facts)  # type: ignore[arg-type]
        for picks in PICKS:
            errors = np.array([errors_of(run, truth, picks=picks, batch=batch) for run in range(runs)])
            alphas = accuracy(errors, beta=BETA) / (batch * np.arange(1, TICKS + 1))
            bound = baseline_bound(SIZES, picks=picks, **facts) / (batch * TICKS)  # type: ignore[arg-type]
            rows.append(
                {
                    "batch": batch,
                    "picks": picks,
                    "rule": best,
                    "bound": round(bound, 4),
                    "mean_weights": round(float(alphas[0, -1]), 4),
                    "refitted": round(float(alphas[1, -1]), 4),
                    "refitted_first_tick": round(float(alphas[1, 0]), 4),
                    "uniform": round(float(uniform), 4),
                }
            )
            if sys.stderr.isatty():
                print(f"\r{len(rows)}/{len(BATCHES) * len(PICKS)}", end="", file=sys.stderr)
    return rows


def _tables(truth: FloatArray) -> FloatArray:
    return Weights(sizes=SIZES, total=1.0, shares=truth).answers(QUERIES)


def appendix_b(
    sizes: Sequence[int], *, queries: int, batch: float, ticks: int, epsilon: float, picks: int, beta: float = BETA
) -> float:
    """log10 of the bound of appendix B, in events, in the most favourable reading: its unknown constant c is 0.

    sum over t of 3^(T - t) (2 |f_t| sqrt(ln |X| / k) + (4 k / epsilon) ln(2 k T |Q| / beta)), |f_t| = batch t.

    Example:
        >>> round(appendix_b((2,) * 4, queries=24, batch=50, ticks=1, epsilon=1.0, picks=4), 1)
        2.3
    """
    start = 2 * batch * math.sqrt(sum(map(math.log, sizes)) / picks)
    noise = 4 * picks / epsilon * math.log(2 * picks * ticks * queries / beta)
    shrunk = math.fsum(3.0**-t * (start * t + noise) for t in range(1, min(ticks, 600) + 1))
    return ticks * math.log10(3) + math.log10(shrunk)


def vacuous() -> list[dict[str, Any]]:
    """Both bounds at the paper's own streams, epsilon = 1, k the best for the bound; a count is never above |f|."""
    census = adult("by-row-number")[1]
    evictions = load(ROOT / "examples" / "evictions" / "stream.toml").schema.sizes
    rows = []
    for name, sizes, batch, ticks in (
        ("adult, 50 a tick", census, 50.0, 977),
        ("adult, 200 a tick", census, 200.0, 245),
        ("evictions, weekly", evictions, 32.0, 1409),
    ):
        queries = math.comb(len(sizes), 2)
        ks = range(1, queries + 1)
        facts = {"queries": queries, "ticks": ticks, "epsilon": 1.0}
        rows.append(
            {
                "stream": name,
                "events": round(batch * ticks),
                "ln_domain": round(sum(map(math.log, sizes)), 1),
                "queries": queries,
                "first_tick": round(
                    min(10 ** appendix_b(sizes, batch=batch, picks=k, **facts | {"ticks": 1}) for k in ks)  # type: ignore[arg-type]
                ),
                "first_tick_events": round(batch),
                "last_tick_log10": round(
                    min(appendix_b(sizes, batch=batch, picks=k, **facts) for k in ks),  # type: ignore[arg-type]
                ),
                "theorem_5_1": round(
                    min(baseline_bound(sizes, picks=k, events=batch, **facts) for k in ks)  # type: ignore[arg-type]
                ),
            }
        )
    return rows


def main() -> None:
    """Measure, write the file, print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=runs_needed(beta=BETA), help="repetitions of each experiment")
    args = parser.parse_args()
    line = {
        "bench": "theorem51",
        "sizes": SIZES,
        "queries": QUERIES.cells,
        "ticks": TICKS,
        "epsilon": EPSILON,
        "beta": BETA,
        "runs": args.runs,
        "unit": "event",
        "neighbours": "add-remove",
        "experiment": experiment(args.runs),
        "vacuous": vacuous(),
        **environment(),
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(line, indent=1) + "\n")
    print(json.dumps(line))


if __name__ == "__main__":
    main()
