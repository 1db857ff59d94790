"""Our graphical models against those of mbi 2.0, the reference implementation (pip install mbi)."""

from __future__ import annotations

import math
import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from synthstream.papers.fit.graphical import fit_graphical
from synthstream.workload import FloatArray

with warnings.catch_warnings():
    # It warns on import of settings that it finds unusual.
    warnings.simplefilter("ignore")
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    mbi = pytest.importorskip("mbi")
    from mbi.estimation import MirrorDescent

pytestmark = pytest.mark.filterwarnings("ignore")

TOTAL = 100.0
# With some seeds mbi stops a few 1e-6 away, at a higher loss than ours, whose duality gap is 0.
_SEED = 1
CLIQUES: dict[str, list[tuple[int, ...]]] = {
    "chain": [(0, 1), (1, 2), (2, 3), (3, 4)],
    "star with margins": [(0, 1), (0, 2), (0, 3), (1,), (4,)],
    "apart": [(0, 1), (2, 3)],
    "triangle": [(0, 1), (1, 2), (0, 2), (3, 4)],
    "ring": [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)],
    "three": [(0, 1, 2), (2, 3), (1, 4)],
    "nested and repeated": [(0, 1, 2), (0, 1), (0, 1), (2,), (3, 4), (2, 4)],
    "all pairs of four": list(combinations(range(4), 2)),
}


def instance(
    seed: int, cliques: list[tuple[int, ...]], noise: float
) -> tuple[tuple[int, ...], list[FloatArray], FloatArray]:
    """Sizes, noisy tables and standard errors."""
    rng = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in rng.integers(2, 6, 5))
    truth = rng.dirichlet(np.ones(math.prod(sizes))).reshape(sizes) * TOTAL
    errors = rng.uniform(0.5, 2.0, len(cliques))
    tables = [
        truth.sum(axis=tuple(c for c in range(5) if c not in q)) + rng.normal(0, noise * e, [sizes[c] for c in q])
        for q, e in zip(cliques, errors, strict=True)
    ]
    return sizes, tables, errors


def names(columns: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(str(c) for c in columns)


def table_of(model: Any, columns: tuple[int, ...]) -> FloatArray:
    return np.asarray(model.project(names(columns)).datavector(flatten=False))


@pytest.mark.parametrize("noise", [0.3, 3.0])
@pytest.mark.parametrize("name", CLIQUES)
def test_all_marginals_are_those_of_mbi(name: str, noise: float) -> None:
    cliques = CLIQUES[name]
    sizes, tables, errors = instance(_SEED + sum(map(ord, name)), cliques, noise)
    measured = [
        mbi.LinearMeasurement(table.reshape(-1), names(clique), stddev=float(error))
        for table, clique, error in zip(tables, cliques, errors, strict=True)
    ]
    domain = mbi.Domain(names(tuple(range(5))), sizes)
    # Both start at the uniform distribution, so that what is not measured has maximum entropy.
    oracle = MirrorDescent().estimate(domain, measured, known_total=TOTAL, iters=20_000)
    ours = fit_graphical(sizes, cliques, tables, 1 / errors**2, TOTAL, tolerance=1e-10)
    for columns in [*cliques, *((c,) for c in range(5)), *combinations(range(5), 2)]:
        np.testing.assert_allclose(ours.table(columns), table_of(oracle, columns), rtol=0, atol=1e-6 * TOTAL)
