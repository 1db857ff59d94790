"""The paper's mechanism beside the naive one that follows its pseudo-code: the laws of all that is released.

The two share no code and no noise. Each test also shows that it rejects a law that is slightly wrong. A right mechanism
fails one of these tests with probability below 1e-5.
"""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.naive_hypercube import NaiveHypercube, Noise, SparseCounting
from scipy.stats import chi2_contingency

from synthstream.papers.counters.sparse import Arrivals, Sparse
from synthstream.papers.hypercube import Hypercube
from synthstream.privacy import Budget
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray

pytestmark = pytest.mark.slow
RIGHT, WRONG = 1e-7, 1e-9


def p_value(ours: IntArray, theirs: IntArray, bins: int = 12) -> float:
    """Two samples of one law? Chi-square over bins of about equal weight."""
    both = np.concatenate([ours, theirs])
    edges = np.unique(np.quantile(both, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    table = np.array([np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1) for x in (ours, theirs)])
    table = table[:, table.sum(axis=0) > 0]
    return float(chi2_contingency(table).pvalue) if table.shape[1] > 1 else 1.0


# -- one node -------------------------------------------------------------------------------------------------------

STEPS, EPSILON, FACTOR, RUNS = 40, 1.0, 0.5, 5000
CAME = np.random.default_rng(8).integers(0, 2, size=STEPS)


def naive_node(epsilon: float) -> tuple[IntArray, IntArray, IntArray]:
    """Step of the first firing (``STEPS`` if none), number of firings, last output."""
    out = []
    for seed in range(RUNS):
        counting = SparseCounting(STEPS, epsilon, Noise(seed), FACTOR)
        for came in CAME.tolist():
            counting.add(came)
        out.append([counting.fired[0] if counting.fired else STEPS, len(counting.fired), counting.output])
    return tuple(np.array(out).T)


@pytest.fixture(scope="module")
def naive() -> tuple[IntArray, IntArray, IntArray]:
    return naive_node(EPSILON)


@pytest.fixture(scope="module")
def wrong() -> tuple[IntArray, IntArray, IntArray]:
    return naive_node(EPSILON * 0.7)


def our_node(blocks: list[int], seed: str) -> tuple[IntArray, IntArray, IntArray]:
    """The same of as many nodes at once; the first firing is known up to its block."""
    threshold = int(FACTOR * np.log(STEPS) / EPSILON)
    sparse = Sparse(horizon=STEPS, scale=np.full(RUNS, 2 / EPSILON), threshold=np.full(RUNS, threshold))
    gate = SeededGate(seed)
    state = sparse.init(gate)
    first, done = np.full(RUNS, STEPS), 0
    for steps in blocks:
        moments = np.repeat(np.arange(steps), CAME[done : done + steps])
        state = sparse.step(state, Arrivals(steps, moments.size * np.arange(RUNS + 1), np.tile(moments, RUNS)), gate)
        first = np.where((state["ended"] > 0) & (first == STEPS), done, first)
        done += steps
    return first, state["ended"], state["noisy"].sum(axis=0)


@pytest.mark.parametrize("blocks", [[1] * STEPS, [STEPS], [7, 1, 20, 12]], ids=["steps", "one", "blocks"])
def test_firing_times_and_counts_of_a_node(
    blocks: list[int], naive: tuple[IntArray, ...], wrong: tuple[IntArray, ...]
) -> None:
    first, ended, value = our_node(blocks, f"node {blocks}")
    begins = np.cumsum([0, *blocks])
    block = np.searchsorted(begins, naive[0], side="right") - 1
    assert np.mean(ended > 0) > 0.2
    assert p_value(first, begins[block]) > RIGHT
    assert p_value(ended, naive[1]) > RIGHT
    assert p_value(value, naive[2]) > RIGHT
    assert p_value(ended, wrong[1]) < WRONG
    assert p_value(value, wrong[2]) < WRONG


# -- the whole ------------------------------------------------------------------------------------------------------


def naive_counts(dimension: int, epsilon: float, cells: IntArray, factor: float, runs: int) -> IntArray:
    """Counts of all nodes at the end, and how often each fired in the last level of time; shape ``(2 nodes, runs)``."""
    out = []
    for seed in range(runs):
        naive = NaiveHypercube(dimension, 2, epsilon, Noise(10**6 + seed), factor)
        counts = [naive.add(int(cell)) for cell in cells][-1]
        fired = [len(naive.counters[j, theta].fired) for j in (1, 2) for theta in range(2**j)]
        out.append([*counts[0], *counts[1], *fired])
    return np.array(out).T


def our_counts(
    dimension: int, epsilon: float, cells: IntArray, factor: float, runs: int, sizes: tuple[int, ...]
) -> IntArray:
    """The same."""
    cube = Hypercube(
        dimension=dimension,
        depth=2,
        budget=Budget(epsilon=epsilon, delta=0.0),
        threshold_factor=factor,
        most_points=100,
    )
    out = []
    for seed in range(runs):
        gate, state, done = SeededGate(f"whole {dimension} {sizes} {seed}"), cube.init(), 0
        for size in sizes:
            state, nodes = cube.step(state, cells[done : done + size], np.arange(size), gate)
            done += size
        out.append(np.concatenate([*nodes.levels, state["sparse.ended"]]))
    return np.array(out).T


CELLS = np.array([0, 0, 2, 2, 0, 2, 0, 0, 2, 0, 0])
Setting = tuple[int, float, float, IntArray, IntArray]


@pytest.fixture(scope="module", params=[(1, 8.0, 0.5), (2, 20.0, 0.7), (3, 3.0, 0.1)], ids=lambda p: f"{p[0]}-{p[1]}")
def setting(request: pytest.FixtureRequest) -> Setting:
    """Dimension, epsilon and factor, and naive counts: with this epsilon, and with another one."""
    dimension, epsilon, factor = request.param
    right, wrong = (naive_counts(dimension, e, CELLS, factor, 2000) for e in (epsilon, epsilon * 0.8))
    return dimension, epsilon, factor, right, wrong


@pytest.mark.sparing(0, 2)  # of either number of blocks, and of the second dimension, one
@pytest.mark.parametrize("sizes", [(11,), (2, 6, 3)], ids=["one", "blocks"])
def test_released_counts_have_the_law_of_the_naive_mechanism(setting: Setting, sizes: tuple[int, ...]) -> None:
    """1,000 runs beside 2,000. Of the wrong law some count has a p-value below 1e-15, in all six cases."""
    dimension, epsilon, factor, theirs, wrong = setting
    ours = our_counts(dimension, epsilon, CELLS, factor, 1000, sizes)
    assert np.mean(ours[6:]) > 0.3
    assert min(p_value(a, b) for a, b in zip(ours, theirs, strict=True)) > RIGHT
    assert min(p_value(a, b) for a, b in zip(ours, wrong, strict=True)) < WRONG
