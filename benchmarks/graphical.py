"""Fits of graphical models to noisy pairs of Adult, as one JSON line: warm fits, and changing cliques against mbi 2.0.

    python -m benchmarks.graphical

Cliques are 13 pairs that join all 14 columns. Noise is normal, from a seed. ``warm``: a fit that starts at the one of
50 rows before, fresh noise; ``gap`` bounds how far its loss is above the optimum, as a share, by duality. ``changing``:
a run of 20 fits, each to other cliques; mbi gets as many iterations as it needs for our loss plus a share of 1e-4, in
blocks of 250 with warm starts, at most 20 blocks. It compiles for each set of cliques, which counts, as it would for
its user; so does our own loading of compiled code.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data import adult
from benchmarks.environment import environment, peak_mb
from synthstream.papers.fit.graphical import Graphical, fit_graphical
from synthstream.workload import CodeArray, FloatArray, Workload

_ROWS, _BATCH, _SETS, _WARM = 25_000, 50, 20, 20
_BLOCK, _BLOCKS, _CLOSE = 250, 20, 1e-4


class Task(NamedTuple):
    """Noisy tables of some cliques."""

    cliques: list[tuple[int, ...]]
    values: list[FloatArray]
    rows: int


def spanning_tree(rng: np.random.Generator, columns: int) -> list[tuple[int, ...]]:
    """Pairs in random order, each taken if it joins what is not joined yet."""
    pairs = list(combinations(range(columns), 2))
    rng.shuffle(pairs)
    group, out = list(range(columns)), list[tuple[int, ...]]()
    for a, b in pairs:
        if group[a] != group[b]:
            out.append((int(a), int(b)))
            group = [group[a] if g == group[b] else g for g in group]
    return out


def task(
    codes: CodeArray, sizes: tuple[int, ...], cliques: list[tuple[int, ...]], noise: float, rng: np.random.Generator
) -> Task:
    """Count pairs, add noise."""
    workload = Workload(sizes=sizes, marginals=tuple(cliques))
    noisy = workload.count(codes) + rng.normal(0, noise, workload.cells)
    parts = np.split(noisy, workload.offsets[1:-1])
    return Task(cliques, [p.reshape(s) for p, s in zip(parts, workload.shapes, strict=True)], len(codes))


def loss(model: Any, wanted: Task) -> float:
    """Sum of squared differences, of anything with a method ``table``."""
    return float(sum(np.sum((model.table(c) - v) ** 2) for c, v in zip(wanted.cliques, wanted.values, strict=True)))


def gap(model: Graphical, wanted: Task) -> float:
    """Upper bound on the loss above the optimum, for a tree of pairs: Frank and Wolfe's."""
    slopes = {c: 2 * (model.table(c) - v) for c, v in zip(wanted.cliques, wanted.values, strict=True)}
    here = sum(float(np.sum(slope * model.table(c))) for c, slope in slopes.items())
    lowest = [np.zeros(n) for n in model.sizes]
    while slopes:
        ends = [c for pair in slopes for c in pair]
        pair = next(p for p in slopes if ends.count(p[0]) == 1 or ends.count(p[1]) == 1)
        slope = slopes.pop(pair)
        leaf, other = pair if ends.count(pair[0]) == 1 else pair[::-1]
        slope = slope if leaf == pair[0] else slope.T
        lowest[other] = lowest[other] + (slope + lowest[leaf][:, None]).min(axis=0)
        last = other
    return here - model.total * float(lowest[last].min())


def our_fit(sizes: tuple[int, ...], wanted: Task, start: Graphical | None, **options: Any) -> Graphical:
    """All weights alike."""
    weights = np.ones(len(wanted.cliques))
    return fit_graphical(sizes, wanted.cliques, wanted.values, weights, wanted.rows, start=start, **options)


def warm(codes: CodeArray, sizes: tuple[int, ...], noise: float) -> dict[str, Any]:
    """Median and largest time of warm fits, their gap to the lowest loss, and times of what follows a fit."""
    rng = np.random.default_rng(0)
    pairs = Workload.all_up_to(2, sizes=sizes)
    times, gaps, answers, rows = [], [], [], []
    for _ in range(_WARM):
        cliques = spanning_tree(rng, len(sizes))
        start = our_fit(sizes, task(codes[: _ROWS - _BATCH], sizes, cliques, noise, rng), None)
        wanted = task(codes[:_ROWS], sizes, cliques, noise, rng)
        begin = time.perf_counter()
        model = our_fit(sizes, wanted, start)
        times.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        model.answers(pairs)
        answers.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        model.rows(_ROWS, rng)
        rows.append(time.perf_counter() - begin)
        gaps.append(gap(model, wanted) / loss(model, wanted))
    return {
        "noise": noise,
        # The first loads compiled code.
        "fit_ms": round(1e3 * float(np.median(times[1:])), 2),
        "largest_fit_ms": round(1e3 * max(times[1:]), 2),
        "largest_gap": float(f"{max(gaps):.1e}"),
        "answers_all_pairs_ms": round(1e3 * float(np.median(answers[1:])), 2),
        "rows_25000_ms": round(1e3 * float(np.median(rows[1:])), 2),
    }


def changing(codes: CodeArray, sizes: tuple[int, ...], noise: float) -> dict[str, Any]:
    """Seconds for a run over changing cliques, ours and those of mbi."""
    rng = np.random.default_rng(1)
    tasks = [task(codes[: _ROWS + k * _BATCH], sizes, spanning_tree(rng, len(sizes)), noise, rng) for k in range(_SETS)]
    begin, model = time.perf_counter(), None
    losses = []
    for wanted in tasks:
        model = our_fit(sizes, wanted, model)
        losses.append(loss(model, wanted))
    out: dict[str, Any] = {"noise": noise, "sets": _SETS, "seconds": round(time.perf_counter() - begin, 3)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _mbi(sizes, tasks, losses)
    except ImportError:
        return {**out, "mbi": "skipped: mbi is not installed (pip install mbi)"}
    return {**out, **found, "times_faster": round(found["mbi_seconds"] / out["seconds"], 1)}


def _mbi(sizes: tuple[int, ...], tasks: list[Task], losses: list[float]) -> dict[str, Any]:
    """The same run by mbi's mirror descent, the method that its authors recommend."""
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    from importlib.metadata import version

    import mbi
    from mbi.estimation import MirrorDescent

    domain = mbi.Domain([str(c) for c in range(len(sizes))], sizes)
    ratios, blocks, begin = [], 0, time.perf_counter()
    for wanted, aim in zip(tasks, losses, strict=True):
        names = [tuple(str(c) for c in clique) for clique in wanted.cliques]
        measured = [mbi.LinearMeasurement(v.reshape(-1), n) for v, n in zip(wanted.values, names, strict=True)]
        model, reached = None, np.inf
        for _ in range(_BLOCKS):
            model = MirrorDescent().estimate(domain, measured, known_total=wanted.rows, iters=_BLOCK, warm_start=model)
            blocks += 1
            tables = [np.asarray(model.project(n).datavector(flatten=False)) for n in names]
            reached = float(sum(np.sum((t - v) ** 2) for t, v in zip(tables, wanted.values, strict=True)))
            if reached <= aim * (1 + _CLOSE):
                break
        ratios.append(reached / aim)
    return {
        "mbi_seconds": round(time.perf_counter() - begin, 2),
        "mbi_iterations": blocks * _BLOCK,
        "mbi_sets_that_reached_our_loss": sum(r <= 1 + _CLOSE for r in ratios),
        "mbi_lowest_and_highest_gap": [float(f"{r - 1:.1e}") for r in (min(ratios), max(ratios))],
        "mbi_version": version("mbi"),
    }


def main() -> None:
    """Measure, print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--noise", type=float, nargs="+", default=[10.0, 50.0, 300.0], help="standard errors of a count"
    )
    args = parser.parse_args()
    codes, sizes = adult("random")
    line = {
        "bench": "graphical",
        "data": "adult",
        "cliques": len(sizes) - 1,
        # First, as loading compiled code is part of a user's first fit.
        "changing": [changing(codes, sizes, noise) for noise in args.noise],
        "warm": [warm(codes, sizes, noise) for noise in args.noise],
        "peak_mb": round(peak_mb(), 1),
    }
    print(json.dumps({**line, **environment()}))


if __name__ == "__main__":
    main()
