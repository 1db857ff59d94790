"""The paper's mechanism: schedule, claim, the exact cost of its comparisons, blocks, and what it refuses."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.naive_hypercube import NaiveHypercube, Noise
from scipy.stats import chisquare

from synthstream.counts import Counts
from synthstream.errors import HorizonExhausted, StateCorrupt
from synthstream.kernel.counters.base import State
from synthstream.kernel.gate import Gate
from synthstream.measured import NodeCounts
from synthstream.papers.counters import sparse
from synthstream.papers.counters.sparse import Arrivals, Sparse
from synthstream.papers.hypercube import Hypercube
from synthstream.privacy import Budget
from synthstream.state.journal import JournalGate
from synthstream.state.store import Store
from synthstream.synthesizers.papers import FromSparseCounts
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray, IntArray
from tests.support.gates import ExactGate, ReplayingGate, TracingGate, path_cost


def cube(dimension: int = 2, depth: int = 3, epsilon: float = 1.0, **more: Any) -> Hypercube:
    return Hypercube(dimension=dimension, depth=depth, budget=Budget(epsilon=epsilon, delta=0.0), **more)


def run(m: Hypercube, cells: IntArray, gate: Gate, sizes: list[int] | None = None) -> list[NodeCounts]:
    """All releases of a stream in blocks of the given sizes, one point a step."""
    state, out, done = m.init(), [], 0
    for size in sizes or [cells.size]:
        state, nodes = m.step(state, cells[done : done + size], np.arange(size), gate)
        out.append(nodes)
        done += size
    return out


class Silent(Noise):
    """No noise."""

    def laplace(self, scale: float) -> int:
        return 0


# -- schedule and claim ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 2.5, 30.0])
def test_levels_of_time(epsilon: float) -> None:
    m = cube(epsilon=epsilon, most_points=3000)
    for time in range(1, 3001):
        level = m.level(time)
        assert m.start(level) <= time < m.start(level + 1)
        assert level < 0 or level in m.levels
    assert all(m.start(level) < m.start(level + 1) for level in m.levels)


@pytest.mark.parametrize(("dimension", "spent"), [(1, 0.3920), (2, 1.0), (3, 1.0), (10, 1.0)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_claim_is_the_sum_of_the_schedule(dimension: int, spent: float, epsilon: float) -> None:
    for depth in (1, 5, 20):
        m = cube(dimension, depth, epsilon)
        claim = m.claim()
        pure = max(2 * sum(m.share(j, r) for j in range(1, min(r, depth) + 1)) for r in m.levels)
        assert claim.pure is not None
        assert float(claim.pure) == pytest.approx(pure, rel=1e-10)
        assert claim.fits(Budget(epsilon=spent * epsilon * 1.0001, delta=0.0))
        assert claim.fits(m.budget)
        assert claim.neighbours == "replace-one"
    growth = 2 ** (-(1 - 1 / dimension) / 2)
    line = 6 / math.pi**2 * sum(1 / (j + 1) ** 2 for j in range(1, 21))
    assert pure == pytest.approx(epsilon * (line if dimension == 1 else 1 - growth**20), rel=1e-9)


def test_a_short_stream_claims_less() -> None:
    assert cube(most_points=1, epsilon=0.1).claim().pure == 0
    small, large = cube(depth=9, most_points=20).claim().pure, cube(depth=9).claim().pure
    assert small is not None
    assert large is not None
    assert 0 < small < large


# -- what comparisons cost, by exact probabilities of all patterns --------------------------------------------------


def patterns(steps: int, horizon: int) -> list[tuple[int, ...]]:
    """All ways in which segments can end: how many at each step, at most ``horizon`` together."""
    return [p for p in itertools.product(range(horizon + 1), repeat=steps) if sum(p) <= horizon]


def chance(pattern: tuple[int, ...], arrivals: tuple[int, ...], scale: float, threshold: int) -> float:
    """Exact probability of a pattern, up to noise beyond 60 scales: a sum over the noise of each threshold."""
    horizon, p = len(arrivals), math.exp(-1 / scale)
    reach = int(60 * scale)
    noise = np.arange(-reach, reach + 1)
    weight = (1 - p) / (1 + p) * p ** np.abs(noise)
    chances, count, ended, total = weight.copy(), 0, 0, 1.0
    for step, fires in enumerate(pattern):
        for _ in range(fires):
            total *= float(np.sum(chances * (1 - below(threshold + noise - count, p))))
            chances, count, ended = weight.copy(), 0, ended + 1
        if ended < horizon:
            chances = chances * below(threshold + noise - count, p)
        count += arrivals[step]
    return total * float(np.sum(chances))


def below(margin: IntArray, p: float) -> FloatArray:
    """P(noise <= margin)."""
    return np.asarray(
        np.where(margin >= 0, 1 - p ** (np.maximum(margin, 0) + 1) / (1 + p), p ** -np.minimum(margin, 0) / (1 + p))
    )


STREAMS = [(0, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0), (0, 3, 1)]


def worst_loss(scale: float, threshold: int) -> float:
    """Largest log-ratio of pattern probabilities over neighbours: one arrival more at one step."""
    worst = 0.0
    for arrivals in STREAMS:
        for step in range(3):
            more = tuple(x + (t == step) for t, x in enumerate(arrivals))
            for pattern in patterns(3, 3):
                ratio = chance(pattern, more, scale, threshold) / chance(pattern, arrivals, scale, threshold)
                worst = max(worst, abs(math.log(ratio)))
    return worst


def test_each_step_left_is_compared_once_with_what_came_before_it() -> None:
    """Nodes 0 and 2 of three, the first from step 1 on, the last from its second arrival on."""
    moments = [1, 1, 3, 2, 0, 4]
    arrivals = Arrivals(6, np.array([0, 3, 4, 6]), np.array(moments))
    active, reached, seen, room = np.array([0, 2]), np.array([1, 2]), np.array([0, 5]), np.array([10, 20])
    margins, repeats, starts = sparse._runs(arrivals, active, reached, seen, room)
    for i, rest in enumerate((moments[0:3], moments[5:6])):
        run = slice(starts[i], starts[i + 1])
        expected = [room[i] - sum(moment < step for moment in rest) for step in range(reached[i], 6)]
        assert np.repeat(margins[run], repeats[run]).tolist() == expected


def test_arrivals_are_dealt_to_the_nodes_above_their_cells() -> None:
    cells, moments = np.array([3, 0, 2, 3]), np.array([0, 1, 2, 3])
    deals: list[Any] = [sparse._by_node, sparse._by_node.py_func]  # the interpreter minds the ends of arrays
    for deal in deals:
        starts, dealt = deal(cells, moments, 2, 2)
        assert starts.tolist() == [0, 1, 4, 5, 5, 6, 8]
        assert dealt.tolist() == [1, 0, 2, 3, 1, 2, 0, 3]


def test_a_tree_of_segments_has_no_rows_before_one_has_ended() -> None:
    nodes = Sparse(horizon=4, scale=np.ones(3), threshold=np.array([5, 6, 7]))
    state = {name: array.copy() for name, array in nodes.init(ExactGate()).items()}
    assert state["room"].tolist() == [5, 6, 7]
    assert state["exact"].shape == state["noisy"].shape == (0, 3)
    for ended, rows in ((1, 1), (2, 2), (3, 2), (4, 3)):
        state["segment"][:] = 1
        nodes._end(state, np.arange(3), ExactGate())
        assert state["ended"].tolist() == [ended] * 3
        assert state["noisy"].shape == (rows, 3)
        assert state["noisy"].sum(axis=0).tolist() == [ended] * 3


def test_probabilities_of_patterns_add_up() -> None:
    for arrivals in STREAMS:
        assert math.fsum(chance(p, arrivals, 1.5, 1) for p in patterns(3, 3)) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("scale", "threshold"), [(1.0, 0), (2.0, 1), (0.5, 1), (3.0, -2)])
def test_when_segments_end_costs_the_larger_of_two_and_not_their_sum(scale: float, threshold: int) -> None:
    assert worst_loss(scale, threshold) <= 1 / scale + 1e-9


def test_half_of_the_cost_would_not_be_enough() -> None:
    assert worst_loss(1.0, 4) > 0.75


@pytest.mark.parametrize("arrivals", STREAMS)
def test_segments_end_with_the_exact_probabilities(arrivals: tuple[int, ...]) -> None:
    """Many nodes with the same arrivals at once, one step at a time: the patterns they show against their law."""
    n, scale, threshold = 20_000, 1.5, 1
    sparse = Sparse(horizon=3, scale=np.full(n, scale), threshold=np.full(n, threshold))
    gate = SeededGate(f"patterns {arrivals}")
    state = sparse.init(gate)
    seen = []
    for came in arrivals:
        starts = came * np.arange(n + 1)
        state = sparse.step(state, Arrivals(1, starts, np.zeros(starts[-1], dtype=np.int64)), gate)
        seen.append(state["ended"])
    ended = np.diff(np.array(seen), axis=0, prepend=0).T
    listed = patterns(3, 3)
    expected = n * np.array([chance(p, arrivals, scale, threshold) for p in listed])
    found = np.array([np.sum(np.all(ended == p, axis=1)) for p in listed])
    other = n * np.array([chance(p, arrivals, 1.3, threshold) for p in listed])
    bins = np.where(expected < 20, 0, np.arange(1, len(listed) + 1))  # all rare ones together
    _, bins = np.unique(bins, return_inverse=True)
    assert chisquare(np.bincount(bins, found), np.bincount(bins, expected)).pvalue > 1e-4
    assert chisquare(np.bincount(bins, found), np.bincount(bins, other)).pvalue < 1e-6


def busy(m: Hypercube) -> tuple[IntArray, TracingGate, list[NodeCounts]]:
    """A short stream that makes segments end, with its trace."""
    cells = np.random.default_rng(4).integers(0, 2**m.depth, size=12)
    gate = TracingGate(SeededGate("busy"))
    return cells, gate, run(m, cells, gate, [5, 4, 3])


@pytest.mark.parametrize("dimension", [1, 2])
def test_released_values_of_neighbours_cost_three_quarters_of_the_claim(dimension: int) -> None:
    """All replacements of one point, given the same answers; the last quarter pays for when segments end."""
    m = cube(dimension, 2, epsilon=3.0, threshold_factor=0.5, most_points=12)
    cells, first, released = busy(m)
    claim = m.claim().pure
    assert claim is not None
    worst = Fraction(0)
    for i, cell in itertools.product(range(12), range(4)):
        changed = cells.copy()
        changed[i] = cell
        second = ReplayingGate(first.trace)
        again = run(m, changed, second, [5, 4, 3])
        assert all(
            np.array_equal(a, b)
            for x, y in zip(released, again, strict=True)
            for a, b in zip(x.levels, y.levels, strict=True)
        )
        sums = [[call for call in trace if call.kind == "laplace"] for trace in (first.trace, second.trace)]
        worst = max(worst, path_cost(*sums)[1])
    assert claim / 3 < worst <= claim * Fraction(3, 4)


# -- the same as the naive one, and the same in any blocks ----------------------------------------------------------


@pytest.mark.sparing(8)
@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 7.0, 40.0])
@pytest.mark.parametrize("factor", [0.0, 0.3, 9.0])
def test_without_noise_it_is_the_naive_one_in_any_blocks(dimension: int, epsilon: float, factor: float) -> None:
    random = np.random.default_rng(3)
    cells = (8 * random.beta(0.4, 1.0, size=150)).astype(np.int64)
    m = cube(dimension, 3, epsilon, threshold_factor=factor)
    naive = NaiveHypercube(dimension, 3, epsilon, Silent(0), factor)
    expected = [naive.add(int(cell)) for cell in cells]
    for sizes in ([150], [1] * 150, [37, 1, 0, 62, 50], [2, 148]):
        ends = np.cumsum(sizes)
        for end, nodes in zip(ends, run(m, cells, ExactGate(), sizes), strict=True):
            assert nodes.time == end
            assert [level.tolist() for level in nodes.levels] == expected[end - 1]


def test_some_of_that_fires() -> None:
    """What the test above would compare if nothing ever ended is not all."""
    cells = np.zeros(150, dtype=np.int64)
    m = cube(2, 3, 40.0, threshold_factor=0.3)
    state, _ = m.step(m.init(), cells, np.arange(150), ExactGate())
    assert state["sparse.ended"].max() > 5
    assert len(state["sparse.exact"]) > 2


def test_new_nodes_on_a_line_start_with_a_closing_for_each_level_of_time_before() -> None:
    m = cube(1, 3)
    gate = TracingGate(ExactGate())
    run(m, np.zeros(8, dtype=np.int64), gate)
    for level in (2, 3):  # as many values as nodes are new: no other call has
        first = [call.value for call in gate.trace if call.value.size == 2**level and call.kind == "laplace"]
        assert [value[0] for value in first] == [m.start(level) - m.start(0), *[0] * (level - 1)]


def test_moments_decide_when_points_count() -> None:
    """All points of a block at its first moment, or one by one: the same counts at the end of a level of time."""
    m = cube(2, 2, threshold_factor=0.0)
    cells = np.array([0, 1, 2, 3, 3, 3, 3], dtype=np.int64)
    state, _ = m.step(m.init(), cells[:1], np.zeros(1, dtype=np.int64), ExactGate())
    early, _ = m.step(state, cells[1:3], np.zeros(2, dtype=np.int64), ExactGate())
    late, _ = m.step(state, cells[1:3], np.ones(2, dtype=np.int64), ExactGate())
    assert early["sparse.ended"].sum() == 2  # nodes 0 and 1 of level 1 are compared once more after their points came
    assert late["sparse.ended"].sum() == 0
    ends = [m.step(after, cells[3:4], np.zeros(1, dtype=np.int64), ExactGate())[1] for after in (early, late)]
    assert all(np.array_equal(a, b) for a, b in zip(ends[0].levels, ends[1].levels, strict=True))


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0])
def test_points_of_the_first_tick_count_although_they_come_at_once(dimension: int, epsilon: float) -> None:
    """Before the first level of time nothing is counted, and in level 0 there are no nodes."""
    m, state = cube(dimension, depth=4, epsilon=epsilon), cube(dimension, depth=4, epsilon=epsilon).init()
    moments, gate = list[int](), ExactGate()
    for number in (0, 1000, 1000):
        cells = np.arange(number, dtype=np.int64) % 16
        moments.append(m.moment(state, number))
        state, found = m.step(state, cells, np.full_like(cells, moments[-1]), gate)
        assert [int(level.sum()) for level in found.levels] == [found.time] * (4 * (number > 0))
    level = m.level(1000)
    assert moments[0] == 0
    assert moments[1] == m.start(level - 1) - 1
    assert moments[2] == 0, "none of its levels closes with this tick but the one that is open"
    few, _ = m.step(m.init(), np.arange(3, dtype=np.int64), np.zeros(3, dtype=np.int64), gate)
    assert m.moment(few, 1000) == m.start(m.level(1003) - 1) - 1 - 3, "few points before them make no difference"
    for number in (1, 2, 3):  # of so few, whatever nodes there are
        assert 0 <= m.moment(m.init(), number) < number


@pytest.mark.parametrize("dimension", [1, 2])
def test_moments_follow_from_numbers_alone(dimension: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The theorem takes them to be public: where points are may not move them, and neither may what is kept of them."""
    points, moved, usual = FromSparseCounts(mechanism=cube(dimension, depth=4)), list[list[Any]](), Hypercube.step

    def step(self: Hypercube, state: State, cells: IntArray, moments: IntArray, gate: Gate) -> Any:
        moved[-1].append(moments.tolist())
        return usual(self, state, cells, moments, gate)

    monkeypatch.setattr(Hypercube, "step", step)
    for cells in (np.zeros(900, dtype=np.int64), np.arange(900) % 16, 15 - np.arange(900) % 2):
        moved.append([])
        state = points.mechanism.init()
        for number in (3, 40, 5, 600, 8, 0, 900):
            state = points.step(state, Counts.at(np.sort(cells[:number])), ExactGate(), None, {})[0]
    assert moved[0] == moved[1] == moved[2]


@pytest.mark.parametrize("dimension", [1, 2])
def test_an_answer_is_not_taken_for_other_moments(dimension: int, tmp_path: Path) -> None:
    """Points that it holds would count again: a program with another rule may not end a tick that was interrupted."""
    m, cells, store = cube(dimension), np.zeros(9, dtype=np.int64), Store(tmp_path / "state")
    for _ in range(2):
        m.step(m.init(), cells, np.zeros_like(cells), JournalGate(ExactGate(), store, 0))
    with pytest.raises(StateCorrupt, match="does not fit what is asked"):
        m.step(m.init(), cells, np.full_like(cells, 8), JournalGate(ExactGate(), store, 0))
    store.close()


def test_a_step_changes_nothing_that_it_was_given() -> None:
    m = cube(1, 3, 5.0, threshold_factor=0.1)
    state: State = m.init()
    for k in range(6):
        kept = {name: array.copy() for name, array in state.items()}
        after, _ = m.step(state, np.full(3, k, dtype=np.int64), np.arange(3), SeededGate(k))
        assert all(np.array_equal(state[name], kept[name]) for name in kept)
        assert all(isinstance(array, np.ndarray) for array in after.values())
        state = after


# -- what it refuses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dimension": 0}, "dimension"),
        ({"depth": 0}, "depth"),
        ({"depth": 31}, "depth"),
        ({"most_points": 0}, "most_points"),
        ({"most_points": 2**41}, "most_points"),
        ({"threshold_factor": -1.0}, "threshold_factor"),
        ({"threshold_factor": math.nan}, "threshold_factor"),
        ({"dimension": 1, "depth": 26, "epsilon": 1e-6}, "too small"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cube(**arguments)


@pytest.mark.parametrize(
    ("cells", "moments", "error"),
    [
        (np.array([0.0]), np.array([0]), TypeError),
        (np.array([0]), np.array([0.0]), TypeError),
        (np.array([8]), np.array([0]), ValueError),
        (np.array([-1]), np.array([0]), ValueError),
        (np.array([1, 2]), np.array([0, 2]), ValueError),
        (np.array([1, 2]), np.array([1, 0]), ValueError),
        (np.array([1, 2]), np.array([-1, 0]), ValueError),
        (np.array([1, 2]), np.array([0]), ValueError),
        (np.array([[1, 2]]), np.array([0, 1]), ValueError),
    ],
)
def test_bad_blocks(cells: IntArray, moments: IntArray, error: type[Exception]) -> None:
    m = cube()
    with pytest.raises(error):
        m.step(m.init(), cells, moments, ExactGate())


def test_no_points_beyond_the_horizon() -> None:
    m = cube(most_points=3)
    state, _ = m.step(m.init(), np.zeros(3, dtype=np.int64), np.arange(3), ExactGate())
    gate = TracingGate(ExactGate())
    with pytest.raises(HorizonExhausted):
        m.step(state, np.zeros(1, dtype=np.int64), np.arange(1), gate)
    assert not gate.trace
    assert m.step(state, np.zeros(0, dtype=np.int64), np.arange(0), gate)[1].time == 3
