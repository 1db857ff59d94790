"""Points: what it costs, counted at the gate; what it gives without noise; what it remembers."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from synthstream.config.config import After, StreamConfig
from synthstream.counts import Counts
from synthstream.errors import ConfigError, HorizonExhausted, StateCorrupt
from synthstream.fit.cloud import Cloud
from synthstream.fit.tree import Estimate, NodeReading, Span
from synthstream.kernel.counters import counter
from synthstream.kernel.gate import Gate
from synthstream.kernel.points import Points
from synthstream.kernel.turnstile import Turnstile
from synthstream.measured import NUMBER, Block, TreeMeasured, TurnstileMeasured
from synthstream.partition import LEAST, WHOLE, Partition, Region, by_level, counted, differences, halves
from synthstream.privacy import Budget, Neighbours, Unit
from synthstream.state.journal import JournalGate
from synthstream.state.store import Store
from synthstream.strategies import levels as planning
from synthstream.strategies.levels import (
    EVEN,
    EpochPlan,
    Schedule,
    Shape,
    evenness,
    first_levels,
    joint_levels,
    levels_of,
    standing_out,
)
from synthstream.synthesizers import clouds
from synthstream.synthesizers.assembly import claim_of, synthesizer_of
from synthstream.synthesizers.clouds import cloud
from synthstream.synthesizers.points import FromBothSides, FromNodes
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray, IntArray
from tests.support.gates import ExactGate, ReplayingGate, TracingGate, path_cost

SMALL = Partition(dimension=1, depth=3)
# Three of the eight cells: of the box only the left half, of its right quarter again only the left half.
THREE = Region(
    name="three",
    cut=(np.array([0]), np.array([0]), np.array([1]), np.array([], dtype=np.int64)),
    ratios=(np.array([1.0]), np.array([1 / 3]), np.array([1.0])),
)


Kind = Literal["adaptive", "first", "joint-2", "joint-3", "fixed"]


class Together(Schedule):
    """Levels are read together however few events an epoch has."""

    def at_once(self, events: float, scale: float) -> tuple[int, int]:
        return self.joint, self.joint


def scheduled(name: Kind, partition: Partition) -> Schedule:
    """``adaptive``: ends are planned by node; ``first``: the first two levels are read together; ``joint``: all of them
    are, by twos or threes.
    """
    if name == "first":
        return Schedule(dimension=partition.dimension, first=2)
    if name == "joint-2" or name == "joint-3":
        return Together(dimension=partition.dimension, joint=int(name[-1]))
    return Schedule(dimension=partition.dimension, kind=name)


def mechanism(
    epsilon: float = 1.0,
    delta: float = 0.0,
    partition: Partition = SMALL,
    horizon: int | None = 12,
    schedule: Kind = "adaptive",
    **more: Any,
) -> Points:
    how, budget = scheduled(schedule, partition), Budget(epsilon=epsilon, delta=delta)
    return Points(partition=partition, budget=budget, horizon=horizon, schedule=how, **more)


def drawn(points: Points, batches: list[list[tuple[int, int]]], gate: Any) -> list[TreeMeasured]:
    """Close a tick for each batch of (cell, sign), each with the shape of the release before, as a stream does."""
    made, state, last, history = FromNodes(mechanism=points), points.init(), None, []
    for batch in batches:
        cells, signs = (np.array(part, dtype=np.int64) for part in (zip(*batch, strict=True) if batch else ((), ())))
        state, measured, _ = made.step(state, Counts.at(cells, signs), gate, last, {})
        assert isinstance(measured, TreeMeasured)
        history.append(TreeMeasured.unpack(measured.tick, measured.pack()))
        last = made.fit(measured.tick, history.__getitem__, last, {}, seed=0)
    return history


def stream(seed: int, ticks: int = 12, cells: int = 8) -> list[list[tuple[int, int]]]:
    rng = np.random.default_rng(seed)
    return [[(int(c), 1) for c in rng.integers(0, cells, size=rng.integers(0, 6))] for _ in range(ticks)]


def traced_by(points: Points, batches: list[list[tuple[int, int]]], seed: int) -> TracingGate:
    traced = TracingGate(SeededGate(seed))
    drawn(points, batches, traced)
    return traced


def cost(points: Points, one: TracingGate | list[list[tuple[int, int]]], other: Any, seed: int) -> Fraction:
    """Of two streams, the first of which may have been traced already."""
    traced = one if isinstance(one, TracingGate) else traced_by(points, one, seed)
    replayed = ReplayingGate(traced.trace)
    drawn(points, other, replayed)
    rho, epsilon = path_cost(traced.trace, replayed.trace)
    assert (rho if points.budget.pure else epsilon) == 0
    return epsilon if points.budget.pure else rho


@pytest.mark.sparing(1, 11)
@pytest.mark.parametrize(
    ("schedule", "delta"),
    [
        ("adaptive", 0.0),
        ("adaptive", 1e-9),
        ("first", 0.0),
        ("first", 1e-9),
        ("joint-2", 0.0),
        ("joint-3", 0.0),
        ("joint-2", 1e-9),
        ("fixed", 0.0),
    ],
)
@pytest.mark.parametrize("region", [None, THREE])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_no_event_costs_more_than_the_claim(
    schedule: Any, delta: float, region: Region | None, signed: bool, neighbours: Neighbours
) -> None:
    more: dict[str, Any] = {"unit": Unit(signed=signed), "neighbours": neighbours, "schedule": schedule}
    # With less, no node is worth its Gaussian noise: such readings are not planned outside of tests.
    epsilon = 30.0 if schedule == "joint-2" and delta else 3.0
    points = mechanism(epsilon, delta, replace(SMALL, region=region), **more)
    claim = points.claim()
    assert claim.fits(points.budget)
    promised = claim.pure if points.budget.pure else claim.rho
    assert promised is not None
    worst = Fraction(0)
    plains = [(plain, traced_by(points, plain, seed)) for seed, plain in enumerate(map(stream, range(2)))]
    for (seed, (plain, traced)), tick in product(enumerate(plains), range(12)):
        for cell, new in ((0, 7), (3, 2), (7, 4)):
            if neighbours == "add-remove":
                batch = [*plain[tick], (cell, -1 if signed else 1)]
                found = cost(points, traced, [*plain[:tick], batch, *plain[tick + 1 :]], seed=seed)
            else:
                one, two = ([*plain[tick], (c, s)] for c, s in ((cell, 1), (new, -1 if signed else 1)))
                here, there = ([*plain[:tick], own, *plain[tick + 1 :]] for own in (one, two))
                found = cost(points, here, there, seed=seed)
            assert found <= promised
            worst = max(worst, found)
    # Pure DP nearly reaches its bound. For Gaussian noise, two nodes that move by 1 cost half of one that moves by 2.
    # An event that a region leaves no cell, which no stream counts, moves less: what is known to be empty is not read.
    assert worst > promised * (Fraction(2, 5) if region is None else Fraction(1, 5))


def test_parts_of_a_budget_never_add_up_to_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for kind, depth in product(("adaptive", "fixed"), (1, 2, 7, 20)):
        for masses in (np.ones(1), np.zeros(4), rng.random(8) ** 20, np.array([1e300, 0.0])):
            for events, moving in product((0.0, 1.0, 1e12), (0.0, 1e-9, 1.0)):
                schedule, shape = Schedule(dimension=2, kind=kind), Shape(masses, moving)  # type: ignore[arg-type]
                plan = schedule.within(shape, events, depth, 3.0)
                left = WHOLE - plan.units.sum()
                end = schedule.end(depth, int(left))
                assert plan.units.sum() <= WHOLE // 2
                assert end.sum() <= left
                assert min(end.min(), plan.units.min(initial=LEAST)) >= LEAST
    greedy = Schedule.end
    monkeypatch.setattr(Schedule, "end", lambda *a, **k: greedy(*a, **k) * 2)
    gate = TracingGate(ExactGate())
    with pytest.raises(ValueError, match="add up to more"):
        drawn(mechanism(schedule="fixed"), stream(1), gate)
    assert {call.value.size for call in gate.trace} == {1}  # nothing but numbers of events was drawn


class Hostile(Together):
    """Plans that no honest schedule makes: of an epoch (``opening``), or of its end (``closing``, ``wanted``)."""

    opening: EpochPlan | None = None
    closing: Any = None
    wanted: Any = None

    def within(self, shape: Shape, events: float, depth: int, scale: float) -> EpochPlan:
        return self.opening or super().within(shape, events, depth, scale)

    def end(self, depth: int, left: int) -> IntArray:
        return super().end(depth, left) if self.closing is None else self.closing

    def nodes(self, mass: FloatArray, left: IntArray, *ahead: Any) -> IntArray:
        return super().nodes(mass, left, *ahead) if self.wanted is None else self.wanted(left)


def planned(units: Any, steps: Any, kind: Any = np.int64) -> EpochPlan:
    return EpochPlan(np.array(units, dtype=kind), np.array(steps, dtype=np.int64))


@pytest.mark.parametrize(
    "opening",
    [
        planned([math.nan, 2.0**30], [1, 2], float),  # no comparison with it is true
        planned([2.0**8, 2.0**8], [1, 2], float),
        planned([2**8], [1, 2]),
        planned([2**8, 2**8, 2**8], [1, 2]),
        planned([LEAST - 1, 2**8], [1, 2]),
        planned([2**20, 2**8], [1, 2]),
        planned([-(2**40), 2**41], [1, 2]),
        planned([2**8, 2**8], [1, 0]),
        planned([2**8, 2**8], [1, 65]),
        planned([2**8] * 4, [2] * 4),  # deeper than the partition
        EpochPlan(np.array([2**8, 2**8]), np.array([1.0, 2.0])),
    ],
)
def test_a_plan_that_is_none_is_refused_before_any_draw(opening: EpochPlan) -> None:
    planner = Hostile(dimension=1)
    object.__setattr__(planner, "opening", opening)
    gate = TracingGate(ExactGate())
    with pytest.raises(ValueError, match="plan"):
        drawn(replace(mechanism(), schedule=planner), stream(1), gate)
    assert not gate.trace


def test_a_level_that_is_measured_once_is_measured_at_the_end() -> None:
    """Its part of the budget is kept from the end, and nothing is read of it before."""
    planner = Hostile(dimension=1)
    object.__setattr__(planner, "opening", planned([2**18, 2**8], [1, 2]))
    points = replace(mechanism(0.1, neighbours="replace-one"), schedule=planner)
    history = drawn(points, [[(k % 8, 1) for k in range(40)], *([(k % 8, 1)] for k in range(10))], ExactGate())
    assert [m.closing for m in history] == [True, *[False] * 10]
    assert {block.level for m in history[1:] for block in m.blocks} == {1}


def test_an_epoch_is_planned_for_twice_the_events_before_it() -> None:
    """A level for each doubling, and two more where nodes are planned by themselves."""
    asked = []

    class Noting(Schedule):
        def within(self, shape: Shape, events: float, depth: int, scale: float) -> EpochPlan:
            asked.append((events, depth))
            return super().within(shape, events, depth, scale)

    box = Partition(dimension=1, depth=20)
    points = replace(mechanism(partition=box), schedule=Noting(dimension=1))
    for begun, depth in ((0.0, 0), (1.0, 3), (1000.0, 12), (1024.0, 13), (1e9, 20)):
        points.planned(points.init() | {"begun": np.array(begun)}, Shape(np.ones(1), 0.0))
        assert asked[-1] == (points.times.length(begun), depth)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_the_claim_names_the_least_variance_of_any_draw(delta: float, neighbours: Neighbours) -> None:
    """That of a reading at an end that has all of an epoch's budget."""
    planner, gate = Hostile(dimension=1), TracingGate(ExactGate())
    object.__setattr__(planner, "wanted", lambda left: left if left[0] == WHOLE else 0 * left)
    points = replace(mechanism(delta=delta, neighbours=neighbours), schedule=planner)
    drawn(points, [[(c, 1) for c in range(8)] * 9], gate)
    least = min(Fraction(float(np.min(call.scale))) ** 2 for call in gate.trace)
    assert points.claim().least == (least if delta else None)


@pytest.mark.parametrize("closing", [np.array([]), np.full(9, math.nan), np.full(1, 2**40), np.full(9, 2.0**8)])
def test_an_end_that_is_none_is_refused_before_the_epoch_is_measured(closing: Any) -> None:
    planner = Hostile(dimension=1, kind="fixed")
    object.__setattr__(planner, "closing", closing)
    gate = TracingGate(ExactGate())
    with pytest.raises(ValueError, match="plan"):
        drawn(replace(mechanism(), schedule=planner), stream(1), gate)
    assert {call.value.size for call in gate.trace} == {1}


@pytest.mark.parametrize(
    "wanted",
    [
        lambda left: left + 1,
        lambda left: np.where(left == left[0], LEAST - 1, 0),
        lambda left: -left,
        lambda left: left[:0],
        lambda left: np.full(left.size, math.nan),
        lambda left: left.astype(float),
        lambda left: np.append(left, 0),
    ],
)
def test_parts_of_nodes_that_are_none_are_refused_before_a_node_is_measured(wanted: Any) -> None:
    planner = Hostile(dimension=1)
    object.__setattr__(planner, "wanted", wanted)
    gate = TracingGate(ExactGate())
    with pytest.raises(ValueError, match="plan"):
        drawn(replace(mechanism(), schedule=planner), stream(1), gate)
    assert {call.value.size for call in gate.trace} == {1}  # numbers of events alone


def test_what_a_node_spends_is_gone_on_every_way_through_it() -> None:
    """A planner that takes all that it is shown: what is left goes down with the tree, and ends."""
    shown = []

    def wanted(left: IntArray) -> IntArray:
        shown.append(left.copy())
        taken = np.where(np.arange(left.size) % 2, left // 2, left)
        left[:] = WHOLE  # the planner's own copy
        return taken if taken.max() >= LEAST else np.zeros_like(taken)

    planner = Hostile(dimension=1)
    object.__setattr__(planner, "wanted", wanted)
    drawn(replace(mechanism(), schedule=planner), [[(c, 1) for c in range(8)] * 9], SeededGate(0))
    assert [left.tolist() for left in shown] == [[WHOLE], [0, 0]]


def test_a_node_that_is_given_up_is_not_asked_for_again() -> None:
    shown = []

    def wanted(left: IntArray) -> IntArray:
        shown.append(left.tolist())
        return np.where(np.arange(left.size) % 2, -1, LEAST)

    planner = Hostile(dimension=1)
    object.__setattr__(planner, "wanted", wanted)
    points = replace(mechanism(), schedule=planner)
    (measured,) = drawn(points, [[(c, 1) for c in range(8)] * 9], SeededGate(0))
    assert shown == [[WHOLE - k * LEAST] * min(k + 1, 2) for k in range(len(shown))]
    assert [None if block.nodes is None else block.nodes.tolist() for block in measured.blocks] == [[0]] * len(shown)
    again = TreeMeasured.unpack(0, measured.pack())
    assert [block.nodes.tolist() for block in again.blocks if block.nodes is not None] == [[0]] * len(shown)
    assert all(np.array_equal(a, b) for a, b in zip(again.numbers(), measured.numbers(), strict=True))


@pytest.mark.parametrize(
    ("at_once", "expected"), [((2, 1), [(3, 2, 1), (1, 1, 1)]), ((1, 2), [(3, 1, 2), (2, 2, 2)]), ((3, 1), [(3, 3, 1)])]
)
def test_a_planner_is_told_how_many_levels_are_read_together_here_and_below(
    at_once: tuple[int, int], expected: list[tuple[int, int, int]]
) -> None:
    asked = []

    class First(Hostile):
        def within(self, shape: Shape, events: float, depth: int, scale: float) -> EpochPlan:
            return super().within(shape, events, depth, scale)._replace(even=np.array([0.9, 0.8, 0.7]))

        def at_once(self, events: float, scale: float) -> tuple[int, int]:
            return at_once

        def nodes(self, mass: FloatArray, left: IntArray, *ahead: Any) -> IntArray:
            even, depth, _, joint, below = ahead
            asked.append((depth, joint, below))
            assert even.tolist() == [0.9, 0.8, 0.7][3 - depth :]  # of levels from this one on
            return np.full(left.size, LEAST)

    points = replace(mechanism(), schedule=First(dimension=1))
    (measured,) = drawn(points, [[(c, 1) for c in range(8)] * 9], ExactGate())
    assert asked == expected
    assert [block.level for block in measured.blocks if block.level != NUMBER] == [0, 1, 2]


def test_an_answer_about_one_node_is_not_taken_for_another(tmp_path: Path) -> None:
    """Equal in size and noise: a program that plans otherwise may not go on with a tick that was interrupted."""

    def end(number: int, gate: Gate) -> None:
        def wanted(left: IntArray) -> IntArray:
            return np.where(np.arange(left.size) == (number if left.size == 2 else 0), LEAST, 0)

        planner = Hostile(dimension=1)
        object.__setattr__(planner, "wanted", wanted)
        drawn(replace(mechanism(), schedule=planner), [[(c, 1) for c in range(8)] * 9], gate)

    store = Store(tmp_path / "state")
    try:
        end(0, JournalGate(ExactGate(), store, 0))
        end(0, JournalGate(ExactGate(), store, 0))
        with pytest.raises(StateCorrupt, match="does not fit what is asked"):
            end(1, JournalGate(ExactGate(), store, 0))
    finally:
        store.close()


def test_an_end_follows_the_mass() -> None:
    """Nodes without mass are not read; where there is mass, all that is left is spent on the way down."""
    partition = Partition(dimension=2, depth=10)
    points = mechanism(1.0, partition=partition, neighbours="replace-one")
    (measured,) = drawn(points, [[(5, 1)] * 4000 + [(1000, 1)] * 3000], ExactGate())
    assert measured.closing
    spent, level = np.zeros(1), 0
    for level, block in enumerate(measured.blocks):
        assert block.nodes is not None
        assert set(block.nodes.tolist()) <= {5 >> 10 - level, 1000 >> 10 - level}
        parts = np.zeros(2**level)
        parts[block.nodes] = np.sqrt(2 * points.scale(points.parts[1]) ** 2 / block.variance)
        spent = np.repeat(spent + parts, 2)
    assert level == 9
    assert 0.9 < spent.max() < 1.001
    assert np.isnan(measured.readings()[5][0]).sum() == 30


def test_levels_that_are_read_together_cost_one_reading_and_are_told_apart() -> None:
    """Each node of the first of them is counted in 4 parts; its difference has twice the variance of those below it."""
    kinds: tuple[Kind, ...] = ("adaptive", "joint-2")
    batch, found = [(cell, 1) for cell in (5, 5, 6, 300, 1000)] * 700, {}
    exact = by_level(differences(counted(np.bincount([cell for cell, _ in batch], minlength=1024), 10)))
    for schedule in kinds:
        gate = TracingGate(ExactGate())
        (measured,) = drawn(mechanism(partition=Partition(dimension=2, depth=10), schedule=schedule), [batch], gate)
        found[schedule] = len(gate.trace), [block for block in measured.blocks if block.level != NUMBER]
        for block in found[schedule][1]:
            assert block.values.tolist() == exact[block.level][block.nodes].tolist()
        numbers = [(block.values.tolist(), block.variance) for block in measured.blocks if block.level == NUMBER]
        assert numbers == ([] if schedule == "adaptive" else [([3500.0], found[schedule][1][0].variance)])
    (many, each), (few, joint) = found.values()
    assert few < 0.7 * many
    assert [block.level for block in joint] == list(range(len(joint)))
    for above, below in zip(joint[0::2], joint[1::2], strict=True):
        assert above.nodes is not None
        assert below.nodes is not None
        assert below.nodes.tolist() == halves(above.nodes).tolist()
        assert np.repeat(above.variance, 2) / 2 == pytest.approx(below.variance)
    assert np.mean(joint[1].variance) < 0.7 * np.mean(each[1].variance)


@pytest.mark.slow
def test_the_number_of_an_epoch_is_known_better_than_its_counter_tells() -> None:
    """By the counts of the root's parts."""
    rng, missed = np.random.default_rng(1), {False: 0.0, True: 0.0}
    batches = [[(int(c), 1) for c in rng.integers(0, 64, size=400)] for _ in range(40)]
    points = mechanism(0.5, horizon=40, partition=Partition(dimension=2, depth=6))
    points = replace(points, schedule=Together(dimension=2, joint=2))
    for seed, told in product(range(6), missed):
        history = drawn(points, batches, SeededGate(seed))
        if not told:
            history = [replace(m, blocks=tuple(b for b in m.blocks if b.level != NUMBER)) for m in history]
        for last in (history[-1], history[-2]):
            kept = [history[t] for t in (*last.needs, last.tick)]
            ends = [-1, *(m.tick for m in kept if m.closing), *([] if last.closing else [last.tick])]
            found = [span.events for span in clouds._spans(kept, points).values()]
            missed[told] += float(np.sum((np.array(found) - 400 * np.diff(ends)) ** 2))
    assert missed[True] < 0.25 * missed[False]


@pytest.mark.slow
def test_errors_of_a_box_hold_where_all_events_are() -> None:
    """What the counter of the open epoch is off by lies in the box, and not evenly: by seeds where it is much."""
    inside, z = np.zeros(8), list[float]()
    inside[0] = 1
    for seed in (8, 10, 12, 15):
        points = mechanism(horizon=70, partition=Partition(dimension=2, depth=8))
        points = replace(points, schedule=Schedule(dimension=2, joint=2))
        rng = np.random.default_rng(seed)
        batches = [[(int(c), 1) for c in rng.integers(0, 2**5, size=200)] for _ in range(70)]
        history = drawn(points, batches, SeededGate(seed))
        for last in history[20::2]:
            mass, error = cloud([*(history[t] for t in last.needs), last], points).mass(inside)
            z.append((mass - 200 * (last.tick + 1)) / error)
    assert np.max(np.abs(z)) < 4
    assert np.mean(np.abs(z) > 2) < 0.1


def test_an_epochs_number_is_weighed_against_the_counter() -> None:
    def end(tick: int, total: float, variance: float, number: float | None) -> TreeMeasured:
        blocks = () if number is None else (Block(level=NUMBER, values=np.array([number]), variance=100.0),)
        return TreeMeasured(
            tick=tick, begun=0.0, total=total, variance=variance, blocks=blocks, closing=True, needs=tuple(range(tick))
        )

    history = [end(0, 1000.0, 300.0, 900.0), end(1, 2000.0, 300.0, None), end(2, 3000.0, 300.0, 1040.0)]
    first, second = 900.0 + 0.25 * 100.0, 2000.0  # 100 against 300; nothing but the counter
    third = second + 1040.0 - 40.0 * 400.0 / 700.0
    assert clouds._ends(history) == {0: first, 1: second, 2: pytest.approx(third)}


POINTS = """
name = "dots"
state = "dots-state"
op = {op}
privacy = {{ epsilon = 1.0, delta = {delta}, unit = "event", neighbours = "{neighbours}" }}
clock = {{ start = 2026-01-01, every = "1d", horizon = 9 }}
synthesizer = {{ kind = "points"{more} }}
columns = [{{ name = "x", type = "number", min = 0, max = 1, missing = 0 }}]
"""


@pytest.mark.parametrize(
    ("neighbours", "op", "first"), [("add-remove", "", 2), ("replace-one", "", 1), ("replace-one", "sign", 2)]
)
@pytest.mark.parametrize(("delta", "joint"), [(0.0, 2), (1e-9, 1)])
def test_a_new_stream_reads_two_levels_at_the_root_where_the_number_is_private(
    neighbours: str, op: str, first: int, delta: float, joint: int
) -> None:
    more = ", events_per_tick = 1e9" if delta else ""
    text = POINTS.format(neighbours=neighbours, op=repr(op), delta=delta, more=more)
    made: Any = synthesizer_of(StreamConfig.from_toml(text if op else text.replace("op = ''\n", "")))
    schedule = (made.mechanism.side if op else made.mechanism).schedule
    assert (schedule.first, schedule.joint) == (first, joint)


def noise_of(config: StreamConfig) -> str:
    """Of a stream's mechanism; its claim must fit the budget."""
    made: Any = synthesizer_of(config).mechanism
    claim = claim_of(config, made)
    assert claim.fits(config.privacy.budget)
    assert (claim.pure is None) == (made.noise == "gaussian")
    return str(made.noise)


LINE = POINTS.format(neighbours="add-remove", op="''", delta=1e-9, more="").replace("op = ''\n", "")
SQUARE = LINE.replace("}]", '}, { name = "y", type = "number", min = 0, max = 1, missing = 0 }]')


@pytest.mark.parametrize("op", ["", "sign"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_claim_is_about_the_neighbours_of_the_configuration(neighbours: Neighbours, op: str) -> None:
    text = POINTS.format(neighbours=neighbours, op=f"'{op}'", delta=0.0, more="")
    config = StreamConfig.from_toml(text if op else text.replace("op = ''\n", ""))
    claim = claim_of(config, synthesizer_of(config).mechanism)
    assert (claim.neighbours, claim.unit.signed) == (neighbours, bool(op))


def test_points_have_laplace_noise_with_delta_above_0() -> None:
    config = StreamConfig.from_toml(SQUARE)
    assert noise_of(config) == "laplace"
    pure = StreamConfig.from_toml(SQUARE.replace("1e-09", "0"))
    many = StreamConfig.from_toml(SQUARE.replace('"points"', '"points", events_per_tick = 1e9'))
    assert noise_of(many) == "gaussian"
    for before in (config, many, pure):  # costs of both kinds together cannot be told in one number
        assert noise_of(replace(config, after=After(config=before, schema=config.schema, tick=3))) == noise_of(before)
    persons = StreamConfig.from_toml(SQUARE.replace('unit = "event"', 'unit = { person = "who", max_events = 4 }'))
    assert noise_of(persons) == "laplace"
    tiny = LINE.replace("epsilon = 1.0", "epsilon = 1e-6").replace('"points"', '"points", events_per_tick = 1e12')
    with pytest.raises(ConfigError, match="too small for points"):
        synthesizer_of(StreamConfig.from_toml(tiny))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize(("part", "noise"), [(0.999, "laplace"), (1.001, "gaussian")])
@pytest.mark.parametrize(("text", "many"), [(LINE, 3e5), (SQUARE, 1e6)], ids=["line", "square"])
def test_very_many_events_have_gaussian_noise(text: str, many: float, epsilon: float, part: float, noise: str) -> None:
    """So many by epsilon, over the nine ticks."""
    said = text.replace('"points"', f'"points", events_per_tick = {part * many / epsilon / 9}')
    assert noise_of(StreamConfig.from_toml(said.replace("epsilon = 1.0", f"epsilon = {epsilon}"))) == noise


def test_events_per_tick_that_decides_nothing_is_refused() -> None:
    text = SQUARE.replace("1e-09", "0").replace('"points"', '"points", events_per_tick = 10')
    with pytest.raises(ConfigError, match="events_per_tick: has no effect with delta = 0"):
        synthesizer_of(StreamConfig.from_toml(text))


@pytest.mark.parametrize(("delta", "above"), [(0.0, 1.0), (1e-9, 2.0)])
def test_the_first_two_levels_cost_what_they_cost_one_by_one(delta: float, above: float) -> None:
    """One question in place of two. The first difference has the noise of four counts, each below it that of two."""
    kinds: tuple[Kind, ...] = ("adaptive", "first")
    batch, found = [(cell, 1) for cell in (5, 300, 700, 1000)] * 500, []
    for schedule in kinds:
        gate, box = TracingGate(ExactGate()), Partition(dimension=2, depth=10)
        (measured,) = drawn(mechanism(1.0, delta, box, schedule=schedule), [batch], gate)
        levels = {block.level: float(np.mean(block.variance)) for block in measured.blocks}
        assert (NUMBER in levels) == (schedule == "first")
        found.append((len(gate.trace), levels))
    (many, each), (few, both) = found
    assert few == many - 1
    assert both[NUMBER] == both[0]
    for level, ratio in [(0, above), (1, above / 2), (2, 1.0), (3, 1.0)]:
        assert both[level] / each[level] == pytest.approx(ratio, rel=0.35)  # parts are rounded to three digits


def test_only_laplace_noise_and_whole_boxes_are_read_together() -> None:
    assert joint_levels(pure=True, bounded=False) == 2
    assert joint_levels(pure=False, bounded=False) == joint_levels(pure=True, bounded=True) == 1
    # Nor is an epoch of few events, beside its noise.
    assert [Schedule(dimension=2, joint=2).at_once(events, 1.5) for events in (899, 901)] == [(1, 1), (2, 2)]
    assert Schedule(dimension=2).at_once(1e6, 1.5) == (1, 1)


def test_how_evenly_nodes_are_halved_is_told_level_by_level() -> None:
    """What stands out for a whole level is believed to seven tenths."""
    assert evenness(levels_of(np.ones(8), 100, 5)).tolist() == [1, 1, 1]
    assert evenness(levels_of(np.array([0.0, 0, 0, 5]), 100, 5)).tolist() == pytest.approx([0.3, 0.3])
    third = evenness(levels_of(np.array([2.0, 1, 0, 0]), 100, 5))  # 5/9 is the sum of squares of 2/3 and 1/3
    assert third.tolist() == pytest.approx([0.3, 1 - 0.7 * (1 - math.log2(9 / 5))], abs=1e-3)
    # A node counts by its mass.
    assert evenness(levels_of(np.array([1.0, 1, 98, 0]), 100, 5))[1] < 0.33
    assert evenness(levels_of(np.ones(1), 100, 5)).size == 0
    # A plan tells it, also one that reads nothing before the end.
    plan = Schedule(dimension=2).within(Shape(np.array([0.0, 0, 0, 5]), 0.0), 1.0, 5, 1e6)
    assert (plan.units.size, plan.even.tolist()) == (0, pytest.approx([0.3, 0.3]))


@pytest.mark.parametrize(("joint", "dimension"), [(1, 1), (1, 2), (2, 2), (2, 3)])
def test_few_addresses_bear_more_readings_than_events_that_are_spread(joint: int, dimension: int) -> None:
    """And the first get more: at equal depth later ones have no more parts to tell apart."""
    how, read = Schedule(dimension=dimension, joint=joint), {}
    for name, even in (("spread", EVEN), ("addresses", np.full(20, 0.0))):
        left, taken = np.array([WHOLE]), list[int]()
        while left[0]:  # all of a node's events stay together
            units = how.nodes(np.array([40.0]), left, even, 20 - joint * len(taken), 1.0, joint, joint)
            assert LEAST <= units[0] <= left[0] or units[0] in (0, -1)
            if units[0] <= 0:
                break
            taken.append(int(units[0]))
            left = left - units
        read[name] = taken
    assert len(read["addresses"]) > len(read["spread"])
    assert sum(read["addresses"]) <= WHOLE


def test_points_at_few_addresses_are_read_more_finely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a release tells how its nodes are halved. Takes a second: a whole stream, twice."""
    box, rng = Partition(dimension=2, depth=12), np.random.default_rng(1)
    cells = rng.integers(0, 2**12, 30)[rng.integers(0, 30, 6_000)]
    batches = [[(int(cell), 1) for cell in part] for part in np.split(cells, 20)]
    true = np.bincount(cells, minlength=2**12)

    def off() -> float:
        points = mechanism(1.0, partition=box, horizon=20)
        history = drawn(points, batches, SeededGate(0))
        last = FromNodes(mechanism=points).fit(19, history.__getitem__, None, {}, seed=0)
        held = np.repeat(last.held, 2**12 // last.held.size) / (2**12 // last.held.size)
        return float(np.abs(held - true).sum()) / 2 / 6_000

    now = off()
    monkeypatch.setattr(planning, "evenness", lambda masses: EVEN)
    assert now < 0.8 * off()


def test_the_first_levels_of_every_epoch_tell_its_number() -> None:
    assert first_levels(public=False, bounded=False) == 2
    assert first_levels(public=True, bounded=False) == first_levels(public=False, bounded=True) == 1
    assert [Schedule(dimension=2, joint=2, first=2).at_once(events, 1.5) for events in (899, 901)] == [(2, 1), (2, 2)]


@pytest.mark.parametrize("schedule", ["adaptive", "fixed"])
def test_what_is_known_to_be_empty_is_not_read_and_holds_nothing(schedule: Any) -> None:
    """What is not spent there is left for the nodes below; whatever is read elsewhere, nothing lies outside."""
    partition, cells = replace(SMALL, region=THREE), np.repeat([0, 1, 2], [40, 300, 160])
    made = FromNodes(mechanism=mechanism(20.0, partition=partition, schedule=schedule))
    plain = mechanism(20.0, schedule=schedule)
    state, last, first = made.mechanism.init(), None, None
    history: dict[int, TreeMeasured] = {}
    for tick in range(6):
        state, history[tick], _ = made.step(state, Counts.at(cells), SeededGate(f"{tick}"), last, {})
        last = made.fit(tick, history.__getitem__, last, {}, seed=0)
        first = first or (history[tick] if history[tick].closing else None)
        size = last.masses.size
        assert not last.masses[~THREE.live(last.level)].any()
        assert not last.plain[~THREE.live(last.level)].any()
        assert last.masses.sum() == pytest.approx(history[tick].total)
        assert size == 1 or last.mass(np.where(np.arange(size) >= size / 2, 1.0, 0.0)) == (0, 0)
    assert last is not None
    assert last.masses / 6 == pytest.approx([40, 300, 160, 0, 0, 0, 0, 0], abs=8)
    assert first is not None
    if schedule == "adaptive":
        assert [block.level for block in first.blocks] == [1, 2]  # the halves of the root, and of the right quarter
        assert np.asarray(first.blocks[1].nodes).tolist() == [0]
        _, usual, _ = FromNodes(mechanism=plain).step(plain.init(), Counts.at(cells), SeededGate("0"), None, {})
        assert np.min(first.blocks[0].variance) < np.min(usual.blocks[1].variance)


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_levels_that_share_a_counter_are_read_as_if_each_had_its_own(
    delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same plan: the same ticks, levels and variances, at the same cost, with fewer questions to the gate."""
    found = []
    for alone in (True, False):
        if alone:
            monkeypatch.setattr(Points, "_counted", lambda _, often: [(k, k + 1) for k in np.flatnonzero(often > 1)])
        else:
            monkeypatch.undo()
        planner = Hostile(dimension=1)
        object.__setattr__(planner, "opening", planned([2**17, 2**18, 2**16], [4, 4, 2]))
        points = replace(mechanism(0.1, delta, neighbours="replace-one", horizon=None), schedule=planner)
        batches = [[(k % 8, 1)] for k in range(12)]  # the first epoch ends with 14
        # From one half to another, and within one: nodes of other levels change, by other amounts.
        others = [[*batches[:3], [(new, 1)], *batches[4:]] for new in (7, 1)]
        traced = TracingGate(SeededGate(0))
        history = drawn(points, batches, traced)
        assert not any(measured.closing for measured in history)
        read = [[(b.level, b.values.shape, b.variance) for b in measured.blocks] for measured in history]
        found.append((read, [cost(points, batches, other, seed=0) for other in others], len(traced.trace)))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Points, "scale", lambda *_: 1e-3)  # noise that is nearly always 0
            exact = drawn(points, batches, SeededGate(0))[-1]
        for block in exact.blocks:
            nodes = by_level(differences(counted(np.bincount([c for b in batches for c, _ in b], minlength=8), 3)))[
                block.level
            ]
            assert block.values == pytest.approx(nodes, abs=0.2)
    (one, dear, many), (two, same, fewer) = found
    assert one == two
    assert dear == same
    assert fewer < many
    assert [level for level, _, _ in max(one, key=len)] == [0, 1, 2]


@pytest.mark.sparing(2)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_no_event_costs_more_whatever_is_planned_of_open_epochs(delta: float, neighbours: Neighbours) -> None:
    """Random parts, and levels that are read as often as others or not, at budgets that keep epochs open for long.

    At their ends one, two or three levels are read together.
    """
    rng, worst, shared = np.random.default_rng(0), Fraction(0), 0
    for trial in range(30):
        levels = int(rng.integers(1, 4))
        often = [2 ** int(k) for k in rng.integers(1, 4, levels)] if trial % 2 else [4] * levels
        parts, whole = rng.random(levels) + 0.05, WHOLE if trial % 3 else WHOLE // 2
        units = np.floor(parts / parts.sum() * (whole - LEAST * levels)).astype(np.int64) + LEAST
        planner = Hostile(dimension=1, joint=trial % 3 + 1, first=trial % 2 + 1)
        object.__setattr__(planner, "opening", planned(units.tolist(), often))
        points = mechanism(float(rng.choice([0.05, 0.3, 3.0])), delta, neighbours=neighbours)
        points, plain = replace(points, schedule=planner), stream(trial)
        tick, cell, new = int(rng.integers(0, 12)), *(int(c) for c in rng.integers(0, 8, 2))
        one, two = ([*plain[:tick], [*plain[tick], (c, 1)], *plain[tick + 1 :]] for c in (cell, new))
        claim = points.claim()
        promised = claim.pure if points.budget.pure else claim.rho
        assert promised is not None
        found = cost(points, plain if neighbours == "add-remove" else one, two, seed=trial)
        assert found <= promised
        worst = max(worst, found / promised)
        shared += len(points._counted(np.array(often))) < levels
    assert float(worst) > (0.9 if delta == 0 else 0.6)  # Gaussian: no seed has one node that pays for all
    assert shared > 10


def test_an_event_is_new_to_an_open_epoch_once() -> None:
    """The first event of an epoch that stays open, of which each level is read again and again."""
    planner = Hostile(dimension=1)
    object.__setattr__(planner, "opening", planned([WHOLE // 4] * 3, [4] * 3))
    points = replace(mechanism(0.1, neighbours="replace-one", horizon=None), schedule=planner)
    later = [[(c % 8, 1)] for c in range(1, 12)]
    found, promised = cost(points, [[(0, 1)], *later], [[(7, 1)], *later], seed=0), points.claim().pure
    assert promised is not None
    assert 0.6 * promised < found <= promised


def test_a_planner_reads_a_level_at_a_time_or_more() -> None:
    with pytest.raises(ValueError, match="joint"):
        Schedule(dimension=1, joint=0)


def test_plans_of_open_epochs_look_at_upper_levels_alone() -> None:
    shape, rng = Shape(np.random.default_rng(0).random(2**18) ** 9, 0.1), np.random.default_rng(1)
    new = Schedule(dimension=2)
    plan = new.within(shape, 1e8, 18, 1.0)
    assert plan.steps.size == 16
    assert set(plan.steps.tolist()) <= {1, *new.possible_steps(18)} == {2**i for i in range(7)}
    # What was released further down changes nothing.
    upper = levels_of(shape.masses, shape.masses.sum(), 17)[16]
    parts = rng.random(upper.size)
    finer = np.stack([upper * parts, upper * (1 - parts)], axis=1).reshape(-1)
    assert new.within(Shape(finer, 0.1), 1e8, 18, 1.0).steps.tolist() == plan.steps.tolist()


def test_what_is_fitted_ahead_is_what_a_release_says_of_upper_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthstream.strategies.levels._UPPER", 4)
    partition, rng = Partition(dimension=2, depth=8), np.random.default_rng(4)
    batches = [[(int(c), 1) for c in rng.integers(0, 256, 300) ** 2 // 256] for _ in range(9)]
    plain = mechanism(2.0, partition=partition, horizon=None, unit=Unit(signed=True))
    one = drawn(plain, batches, SeededGate(3))
    made = FromNodes(mechanism=plain)
    whole, ahead = made.fit(8, one.__getitem__, None, {}, seed=0), made.ahead(8, one.__getitem__)
    upper = whole.levels()[4]
    assert whole.level > 4
    assert ahead.masses == pytest.approx(upper, rel=1e-9)
    assert np.isnan(ahead.plain).all()
    both = FromBothSides(mechanism=Turnstile(side=plain))
    gone = [replace(measured, blocks=(), total=0.0, begun=0.0, needs=()) for measured in one]
    sides = [TurnstileMeasured(tick=m.tick, came=m, gone=g) for m, g in zip(one, gone, strict=True)]
    assert both.ahead(8, sides.__getitem__).masses == pytest.approx(upper, rel=1e-9)


def test_a_planner_may_use_its_arrays_again() -> None:
    plan = planned([2**10, 2**10], [2, 2])
    planner = Hostile(dimension=1)
    object.__setattr__(planner, "opening", plan)
    points = replace(mechanism(), schedule=planner)
    state = points.planned(points.init(), Shape(np.ones(1), 0.0))
    plan.units[:], plan.steps[:] = WHOLE, 64
    assert state["plan.units"].tolist() == [2**10, 2**10]
    assert state["plan.steps"].tolist() == [2, 2]


@pytest.mark.parametrize("schedule", ["adaptive", "first", "joint-2", "joint-3"])
def test_without_noise_the_cells_come_back(schedule: Kind) -> None:
    points = mechanism(1e6, neighbours="replace-one", schedule=schedule)
    batches = stream(3)
    history = drawn(points, batches, ExactGate())
    counts = np.bincount([cell for batch in batches for cell, _ in batch], minlength=8)
    assert history[-1].total == counts.sum()
    # From the first event on every tick ends an epoch, as the number of events is known to be large beside the noise.
    found = cloud([*(history[t] for t in history[-1].needs), history[-1]], points)
    assert found.masses.sum() == pytest.approx(counts.sum())
    open_events = history[-1].total - history[-1].begun
    assert np.abs(found.masses - counts).sum() <= 2 * open_events + 1e-6


def test_differences_are_left_minus_right() -> None:
    cells = np.arange(8)
    found = differences(counted(cells, 3))
    assert [d.tolist() for d in by_level(found)] == [[6 - 22], [1 - 5, 9 - 13], [-1, -1, -1, -1]]
    assert differences(counted(cells, 2)).tolist()[1:] == [6 - 22, 1 - 5, 9 - 13]
    assert differences(counted(cells, 0)).size == 1


def test_nodes_that_stand_out() -> None:
    noise = np.array([1.0, 1.0, 1.0])
    even = standing_out(levels_of(np.ones(1), 8.0, 3), noise)
    assert even.tolist() == pytest.approx([8 / 9, 2 * 4 / 5, 4 * 2 / 3])
    assert np.allclose(standing_out(levels_of(np.ones(8), 8.0, 3), noise), even)
    assert standing_out(levels_of(np.array([1.0, 0.0]), 8.0, 3), noise)[1] == pytest.approx(8 / 9)


@pytest.mark.sparing(3)
@pytest.mark.parametrize(
    ("schedule", "delta"),
    [
        ("adaptive", 0.0),
        ("adaptive", 1e-6),
        ("first", 1e-6),
        ("joint-2", 0.0),
        ("joint-3", 0.0),
        ("fixed", 0.0),
    ],
)
def test_measurements_survive_packing_and_noise_has_its_variance(delta: float, schedule: Any) -> None:
    """Every block against the exact differences, in units of the error that it states."""
    rng, z = np.random.default_rng(5), []
    partition = Partition(dimension=2, depth=8)
    points = mechanism(2.0, delta, partition, horizon=None, schedule=schedule)
    cells = rng.integers(0, 256, size=(40, 60))
    history = drawn(points, [[(int(c), 1) for c in batch] for batch in cells], SeededGate(11))
    start = 0
    for measured in history:
        exact = by_level(differences(counted(np.bincount(cells[start : measured.tick + 1].ravel(), minlength=256), 8)))
        for block in measured.blocks:
            nodes = slice(None) if block.nodes is None else block.nodes
            true = np.array([60 * (measured.tick + 1 - start)]) if block.level == NUMBER else exact[block.level][nodes]
            z.append((block.values - true) / np.sqrt(block.variance))
        if measured.closing:
            start = measured.tick + 1
    found = np.concatenate(z)
    assert found.size > (100 if schedule in ("adaptive", "first") else 500)  # of nodes without mass nothing is read
    assert np.sqrt(np.mean(found**2)) == pytest.approx(1.0, abs=0.12 if found.size > 500 else 0.2)


def test_the_number_of_events_is_exact_where_it_is_public() -> None:
    history = drawn(mechanism(neighbours="replace-one"), stream(2), SeededGate(0))
    sizes = np.cumsum([len(batch) for batch in stream(2)])
    assert [m.total for m in history] == sizes.tolist()
    assert all(m.variance == 0 for m in history)
    assert "the number of events of every tick" in mechanism(neighbours="replace-one").claim().trusts[0]
    signed = mechanism(neighbours="replace-one", unit=Unit(signed=True))
    assert any(m.variance > 0 for m in drawn(signed, stream(2), SeededGate(0)))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="too small for points"):
        mechanism(1e-6, delta=1e-9)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_horizon_ends_the_stream_before_anything_is_drawn(neighbours: Neighbours) -> None:
    gate = TracingGate(SeededGate(0))
    with pytest.raises(HorizonExhausted):
        drawn(mechanism(horizon=3, neighbours=neighbours), stream(0), gate)
    short = TracingGate(SeededGate(0))
    drawn(mechanism(horizon=3, neighbours=neighbours), stream(0)[:3], short)
    assert len(gate.trace) == len(short.trace)


@pytest.mark.parametrize("schedule", ["adaptive", "first", "joint-2", "fixed"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_last_epoch_ends_with_the_horizon(schedule: Any, neighbours: Neighbours) -> None:
    """What is drawn before the last tick is the same without one."""
    rng, short, read = np.random.default_rng(0), 0, 0
    batches = [[(int(cell), 1) for cell in rng.integers(0, 8, 20)] for _ in range(9)]
    for seed in range(4):
        newest = mechanism(2.0 + seed, horizon=9, neighbours=neighbours, schedule=schedule)
        longer = replace(newest, horizon=99)
        vars(longer)["total"] = newest.total  # the same counter, which is made for a horizon
        each = (newest, longer)
        (*now, last), (*before, then) = (drawn(points, batches, SeededGate(seed)) for points in each)
        assert [m.pack().tolist() for m in now] == [m.pack().tolist() for m in before]
        assert (last.total, last.begun, last.needs) == (then.total, then.begun, then.needs)
        assert last.closing
        assert then.closing == (newest.times.epoch_of(then.total) > newest.times.epoch_of(then.begun))
        short += not then.closing
        read += not then.closing and len(last.blocks) > 0
    assert short
    assert read
    endless = mechanism(horizon=None, neighbours="replace-one", schedule=schedule)
    assert not drawn(endless, [[], []], SeededGate(0))[-1].closing


@pytest.mark.parametrize("schedule", ["adaptive", "by-level", "fixed"])
def test_what_an_epoch_counted_is_forgotten_when_it_ends_and_its_readings_are_needed(schedule: Any) -> None:
    """Also at the last tick. Of an open epoch the newest reading of each level is needed."""
    points, rng, gate = mechanism(8.0, schedule=schedule), np.random.default_rng(0), SeededGate(0)
    state, ends, read, opened = points.init(), list[int](), dict[int, int](), 0
    fresh = {name for name in state if not name.startswith("total.")}
    for tick in range(12):
        state, found = points.step(state, Counts.at(rng.integers(0, 8, 5)), gate, Shape(np.ones(1), 0.5))
        assert set(found.needs) == {*ends, *read.values()}
        if found.closing:
            ends, read = [*ends, tick], {}
            assert {name for name in state if not name.startswith("total.")} == fresh
            assert not state["cells"].any()
            assert (state["ends"].tolist(), float(state["begun"])) == (ends, found.total)
        else:
            read |= {block.level: tick for block in found.blocks}
            opened += len(found.blocks)
    assert len(ends) > 2
    assert ends[-1] == 11
    assert opened


def test_the_last_tick_costs_what_any_end_of_an_epoch_does() -> None:
    """Of an epoch that would go on, whose levels were read on the way: all of its events are in it, and in no other."""
    planner, promised = Hostile(dimension=1), mechanism(0.1, neighbours="replace-one").claim().pure
    object.__setattr__(planner, "opening", planned([2**17, 2**18, 2**16], [4, 4, 2]))
    points = replace(mechanism(0.1, neighbours="replace-one"), schedule=planner)
    assert promised is not None
    # The first tick ends an epoch; the next one would have 17 events.
    batches, costs = [[(k % 8, 1) for k in range(40)], *([(k % 8, 1)] for k in range(11))], list[Fraction]()
    object.__setattr__(planner, "wanted", lambda left: np.where(left >= LEAST, np.maximum(left // 2, LEAST), 0))
    for tick in range(12):
        other = [*batches[:tick], [*batches[tick][1:], ((tick + 4) % 8, 1)], *batches[tick + 1 :]]
        costs.append(cost(points, batches, other, seed=tick))
        assert costs[-1] <= promised
        assert (costs[-1] > cost(replace(points, horizon=13), batches, other, seed=tick)) == (tick > 0)
    assert min(costs[1:5]) > max(costs[-2:]) > 0.4 * promised  # events of the last ticks are read at the end alone
    assert [m.closing for m in drawn(points, batches, SeededGate(0))] == [True, *[False] * 10, True]


@pytest.mark.parametrize("schedule", ["adaptive", "first", "joint-2", "fixed"])
@pytest.mark.parametrize("horizon", [1, 3])
def test_a_stream_without_events_ends(schedule: Any, horizon: int) -> None:
    each: tuple[Neighbours, ...] = ("add-remove", "replace-one")
    for neighbours, seed in product(each, range(4)):
        points = mechanism(horizon=horizon, neighbours=neighbours, schedule=schedule)
        last = (history := drawn(points, [[]] * horizon, SeededGate(seed)))[-1]
        assert last.closing
        found = cloud([*(history[t] for t in last.needs), last], points)
        # By the number of an epoch there may be none, where the counter says that there are some.
        assert found.masses.sum() in (0.0, pytest.approx(max(last.total, 0.0)))
        assert np.isfinite(found.errors).all()
        assert np.isfinite(found.plain).all()


@pytest.mark.parametrize("variance", [1e-290, 1e-312], ids=["squares leave all numbers", "shares do"])
def test_an_epoch_of_no_events_by_its_number_has_none_whatever_the_counter_says(variance: float) -> None:
    """Of an epsilon of hundreds: that number is weighed against the counter, and so is next to nothing."""
    points, half = mechanism(), Block(level=0, values=np.array([0.0]), variance=variance)
    blocks = (Block(level=NUMBER, values=np.array([0.0]), variance=variance), half)
    ended = TreeMeasured(tick=0, begun=0.0, total=0.4, variance=0.03, blocks=blocks, closing=True, needs=())
    found = cloud([ended], points)
    assert found.number == 0
    assert np.isfinite(found.errors).all()


def test_the_number_of_a_last_epoch_of_which_nothing_is_read_is_that_of_an_open_one() -> None:
    """What the counter was off by when it began is taken out again. Its end may say as many events as its beginning."""
    points, blocks = mechanism(), (Block(level=NUMBER, values=np.array([900.0]), variance=0.5),)
    variance = clouds._covariance(0, 0, points)
    ended = TreeMeasured(tick=0, begun=0.0, total=1000.0, variance=variance, blocks=blocks, closing=True, needs=())
    for total in (1000.0, 1004.0):
        last = replace(ended, tick=11, begun=1000.0, total=total, blocks=(), needs=(0,))
        one, other = (clouds._spans([ended, replace(last, closing=closing)], points) for closing in (True, False))
        assert one == other
        first, number = (span.events for span in one.values())
        assert first == pytest.approx(900 + 100 * 0.5 / (variance + 0.5))
        assert number == pytest.approx(total - 1000)  # this counter keeps its noise


def test_an_epoch_below_0_by_its_counter_has_missed_nothing() -> None:
    points, inside = mechanism(), np.array([1.0, 0.0])
    variance, half = clouds._covariance(0, 0, points), (Block(level=0, values=np.array([30.0]), variance=9.0),)
    number = (Block(level=NUMBER, values=np.array([1000.0]), variance=9.0), *half)
    ended = TreeMeasured(tick=0, begun=0.0, total=1000.0, variance=variance, blocks=number, closing=True, needs=())
    now = replace(ended, tick=4, begun=1000.0, total=960.0, blocks=half, closing=False, needs=(0,))
    first, last = clouds._spans([ended, now], points).values()
    assert first.events == first.readings[0].events == pytest.approx(1000)
    assert last.events == last.readings[0].events == 0
    found, error = cloud([ended, now], points).mass(inside)
    assert found == pytest.approx(480, abs=50)
    assert error < 2 * np.sqrt(variance)


def test_the_last_release_tells_what_moved_in_the_last_epoch() -> None:
    """It has begun with the 2,048th event; from the 2,200th on events are in the other half of the box."""
    off = {28: 0.0, 29: 0.0}
    for horizon, seed in product(off, range(4)):
        rng, box = np.random.default_rng(seed), Partition(dimension=2, depth=8)
        cells = [(tick >= 22) * 128 + rng.integers(0, 128, 100) ** 2 // 128 for tick in range(28)]
        points = mechanism(1.0, horizon=horizon, partition=box, neighbours="replace-one")
        batches = [[(int(cell), 1) for cell in batch] for batch in cells]
        last = (history := drawn(points, batches, SeededGate(seed)))[-1]
        assert last.closing == (horizon == 28)
        masses = cloud([*(history[t] for t in last.needs), last], points).levels()[5]
        true = np.bincount(np.concatenate(cells) >> 3, minlength=32)
        off[horizon] += float(np.abs(masses - true).sum())
    assert off[28] < 0.9 * off[29]


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_no_scale_that_a_plan_can_ask_for_is_too_wide(delta: float, neighbours: Neighbours) -> None:
    """From the smallest budget that is not refused: every level with the fewest units, by every counter."""
    low, high = 1e-12, 1.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        try:
            points = mechanism(middle, delta, neighbours=neighbours, horizon=None)
            high = middle
        except ValueError:
            low = middle
    points = mechanism(high, delta, neighbours=neighbours, horizon=None)
    multiplier = np.full(1, points.scale(points.parts[1], LEAST))
    for steps in points.schedule.possible_steps(3):
        how = points._levels[steps]
        state = how.init(1)
        for _ in range(min(3, steps - 1)):
            state, _ = how.step(state, np.ones(1, dtype=np.int64), SeededGate(0), multiplier=multiplier)


def test_any_counts_are_taken() -> None:
    """Private counts of any size pass without an error, and nothing overflows."""
    points = mechanism(1.0)
    huge = Counts(np.array([0, 7]), np.array([2**62, -(2**62)]))
    state = points.init()
    for _ in range(12):
        state, measured = points.step(state, huge, SeededGate(1), Shape(np.ones(1), 0.0))
        assert all(np.isfinite(b.values).all() for b in measured.blocks)
        assert np.abs(state["cells"]).max() <= 2**62 // 8


def test_no_event_enters_at_one_reading_and_leaves_at_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells reach their limit in both streams; what a counter reads of an epoch is not limited with them."""
    monkeypatch.setattr("synthstream.kernel.points._LARGEST_SUM", 2**6)
    partition = Partition(dimension=1, depth=4)
    points = mechanism(0.3, partition=partition, horizon=None, neighbours="replace-one", schedule="fixed")
    full = [[(0, 1)] * 4 + [(9, 1)]] * 24
    for tick in (0, 1, 5, 20):
        other = [*full[:tick], [*full[tick][:4], (15, 1)], *full[tick + 1 :]]
        assert cost(points, full, other, seed=tick) <= (points.claim().pure or 0)


def test_an_epoch_that_begins_at_its_end_goes_on() -> None:
    """Rounding may leave no event between a number and the next end of an epoch."""
    for schedule in ("adaptive", "fixed"):
        points = mechanism(1 / 161, neighbours="replace-one", schedule=schedule)
        batches: list[list[tuple[int, int]]] = [[(k % 8, 1) for k in range(644)], [], [], [(3, 1)], []]
        history = drawn(points, batches, SeededGate(0))
        assert [m.total for m in history] == [644, 644, 644, 645, 645]


def test_fingerprints_tell_settings_apart() -> None:
    plain = mechanism()
    others = [
        mechanism(2.0),
        mechanism(delta=1e-9),
        mechanism(neighbours="replace-one"),
        mechanism(schedule="fixed"),
        mechanism(partition=Partition(dimension=3, depth=3)),
        mechanism(unit=Unit(signed=True)),
        mechanism(horizon=13),
    ]
    assert len({m.fingerprint() for m in [plain, *others]}) == 8
    own = plain.fingerprint()
    for name, value in (("LEAST", 2**8), ("counter", lambda *a, **k: counter("simple", **k))):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(f"synthstream.kernel.points.{name}", value)
            assert mechanism().fingerprint() != own
    assert mechanism().fingerprint() == plain.fingerprint()


def box(level: int = 4, seed: int = 0) -> Cloud:
    masses = np.random.default_rng(seed).random(2**level)
    return Cloud(
        partition=Partition(dimension=2, depth=8),
        masses=masses,
        plain=masses,
        errors=np.ones(2**level),
        plain_errors=np.ones(2**level),
        total_variance=4.0,
        moving=0.0,
    )


def test_whole_numbers_of_points_follow_the_masses() -> None:
    made = box()
    for n in (0, 1, 7, 1000):
        counts = made.counts(n, np.random.default_rng(n))
        assert counts.sum() == n
        assert counts.min() >= 0
        for level in range(5):
            off = counts.reshape(2**level, -1).sum(1) - made.levels()[level] * n / made.masses.sum()
            assert np.abs(off).max() < 1 + 1e-9
    nodes = made.partition.cells(made.points(1000, np.random.default_rng(0))) >> 4
    assert np.array_equal(np.bincount(nodes, minlength=16), made.counts(1000, np.random.default_rng(0)))


def test_the_error_of_a_region_is_that_of_its_sum() -> None:
    """Against the plain estimate of every node, written out for random noise."""
    made, rng = box(3), np.random.default_rng(1)
    inside = rng.random(8)
    noise = rng.standard_normal((200_000, 7))
    error = np.zeros((200_000, 1)) + 2 * rng.standard_normal((200_000, 1))
    for level, start in enumerate((0, 1, 3)):
        part = noise[:, start : start + 2**level]
        error = np.stack([(error + part) / 2, (error - part) / 2], axis=2).reshape(200_000, -1)
    inside = np.round(inside)
    found = made.mass(inside)
    assert found[0] == pytest.approx(float(made.masses @ inside))
    assert found[1] == pytest.approx(float((error @ inside).std()), rel=0.02)
    for above in ([1.0], [1.0, 0.0], [0.0, 1.0, 1.0, 0.0]):
        whole = np.repeat(above, 8 // len(above))
        assert made.mass(np.array(above)) == pytest.approx(made.mass(whole))


def test_the_error_of_a_region_covers_what_was_moved_and_cut_and_not_read() -> None:
    """Each by itself: how far shrinkage moved the mass, cells in part, and events of which no reading tells where."""
    made, rng = box(3), np.random.default_rng(2)
    made = replace(made, plain_errors=np.zeros(8), total_variance=0.0)
    left, cut = np.repeat([1.0, 0.0], 4), np.array([1.0, 0.4, 0.5, 0.0, 0.0, 0.0, 0.9, 1.0])
    assert made.mass(left) == pytest.approx((float(made.masses[:4].sum()), 0.0))
    plain = made.masses + rng.standard_normal(8)
    moved = abs(float((plain - made.masses) @ left))
    assert replace(made, plain=plain).mass(left)[1] == pytest.approx(moved)
    assert made.mass(cut)[1] ** 2 == pytest.approx(float((made.masses + made.masses**2 / 3) @ (cut * (1 - cut))))
    finer = replace(made, uneven=0.8).plus(box(4))
    assert finer.plain_errors[8:] == pytest.approx(0.8 * made.masses**2 + box(4).plain_errors[8:])
    assert finer.uneven == 0.8
    heavy = replace(made, masses=np.arange(8.0), plain=np.arange(8.0), open_variance=9.0)
    assert heavy.mass(1 - left)[1] == pytest.approx(3 * (22 / 28 - 1 / 2))
    assert heavy.mass(left)[1] == 0
    known = heavy.known(4)
    assert [stderr.tolist() for _, stderr in known[:2]] == [[0.0], pytest.approx([0.0, 3 * (22 / 28 - 1 / 2)])]
    assert known[3][1] == pytest.approx(3 * np.maximum(np.arange(8) / 28 - 1 / 8, 0))
    errors, many = np.array([0.0, 16.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0]), 1e6 * np.ones(8)
    noisy = replace(made, masses=many, plain_errors=errors, total_variance=64.0)
    each = np.concatenate([stderr**2 for _, stderr in noisy.known(4)])  # half of a node, and of left minus right
    assert each == pytest.approx([64, *[20] * 2, *[5] * 4, *[2.25] * 2, *[1.25] * 6])


def test_nodes_that_a_region_cuts_err_alike_where_it_lies_in_such_nodes() -> None:
    """A strip is all border, and may lie along the events; the border of a large box errs node by node."""
    many = np.full(256, 100.0)
    even = replace(box(8), masses=many, plain=many, plain_errors=np.zeros(256), total_variance=0.0)
    for uneven in (1 / 3, 1.0):  # 1: all of each may lie in one half
        found = replace(even, uneven=uneven)
        apart, alike = (100 + uneven * 100**2) / 4, uneven * 100**2 / 4
        strip = np.repeat([0.5, 0.0], [64, 192])
        assert found.mass(strip)[1] ** 2 == pytest.approx(64**2 * alike)
        large = np.repeat([1.0, 0.5, 0.0], [112, 32, 112])  # an eighth of it lies in nodes that it cuts
        assert found.mass(large)[1] ** 2 == pytest.approx(32 * apart + (32**2 * alike - 32 * apart) / 8**0.5)
        assert found.mass(large * (1 - 1e-12))[1] == pytest.approx(found.mass(large)[1])  # as areas of polygons
        assert found.mass(np.repeat([0.5, 0.0], [1, 255]))[1] ** 2 == pytest.approx(apart)
    assert even.mass(np.repeat([1.0, 0.0], [128, 128]))[1] == 0


def test_where_noise_leaves_no_number_all_that_it_is_off_by_may_lie_anywhere() -> None:
    made, left = box(3), np.repeat([1.0, 0.0], 4)
    none = replace(made, masses=np.zeros(8), plain=np.full(8, -2.0), plain_errors=np.zeros(8), total_variance=64.0)
    assert none.mass(left)[1] == pytest.approx((64 / 4 + 8**2 + 64 / 4) ** 0.5)  # -8 were raised to 0
    assert none.mass(np.ones(8))[1] == pytest.approx((64 + 16**2) ** 0.5)
    assert none.mass(np.zeros(8)) == (0.0, 0.0)
    assert [stderr[0] for _, stderr in none.known(2)] == pytest.approx([8.0, (64 / 4 + 64 / 4) ** 0.5])
    some = replace(none, masses=np.ones(8), plain=np.ones(8))
    assert some.mass(left)[1] == pytest.approx((64 / 4 + 64 * 0.5**2 / 4) ** 0.5)
    assert replace(none, total_variance=0.0).mass(left)[1] == 8


def test_of_what_came_between_two_ticks_the_noise_that_both_share_is_out() -> None:
    points, ticks = mechanism(), (2, 9)
    history = drawn(points, stream(5), SeededGate(5))
    before, now = ([*(history[t] for t in history[end].needs), history[end]] for end in ticks)
    assert points.total is not None
    multiplier = points.scale(points.parts[0])
    (a, shared), (_, b) = ([points.total.covariance(s, t, multiplier=multiplier) for t in ticks] for s in (2, 9))
    found = clouds.cloud_between(before, now, points)
    assert found.total_variance == pytest.approx(a + b - 2 * shared)
    assert shared > 0


def test_an_epoch_that_a_window_cuts_informs_it_as_a_whole_once_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    points, fitted = mechanism(), list[tuple[list[Span], int]]()
    history = drawn(points, stream(9), SeededGate(9))
    monkeypatch.setattr(clouds, "_fitted", lambda spans, *_, since, **__: fitted.append((spans, since)))
    within = {"ended": 0, "open": 0}
    for first, last in combinations(range(len(history)), 2):
        before, now = ([*(history[t] for t in history[end].needs), history[end]] for end in (first, last))
        if history[first].closing:
            continue
        clouds.cloud_between(before, now, points)
        spans, since = fitted.pop()
        ended = history[last].closing or history[last].begun > history[first].begun
        same = clouds._spans(now if ended else before, points)[history[first].begun]
        assert spans[since - 1].events == same.events
        assert spans[since - 1].readings.keys() == same.readings.keys()
        within["ended" if ended else "open"] += 1
    assert min(within.values()) > 0


def test_the_rest_of_an_open_epoch_has_the_noise_of_both_readings() -> None:
    before = Span(events=100.0, readings={0: NodeReading(np.array([10.0]), 4.0, 90.0)})
    now = Span(
        events=150.0, readings={0: NodeReading(np.array([25.0]), 9.0, 145.0), 1: NodeReading(np.ones(2), 3.0, 150.0)}
    )
    rest = clouds._rest(before, now)
    assert rest.events == 50
    root, halves_of = rest.readings[0], rest.readings[1]
    assert (root.differences.tolist(), root.variance, root.events) == ([15.0], 13.0, 50 - 5 - 10)
    assert (halves_of.differences.tolist(), halves_of.variance) == ([1.0, 1.0], 3.0)


@pytest.mark.parametrize("evenly", [False, True])
def test_errors_grow_with_the_masses_that_are_made_to_add_up(evenly: bool) -> None:
    fitted, plain = (Estimate(np.array(masses), np.array([0.0, 5.0]), 0.0) for masses in ([1.0, 3.0], [2.0, 3.0]))
    clouds._scale(fitted, plain, 12.0, evenly=evenly)
    assert (fitted.masses.tolist(), fitted.errors.tolist()) == ([3.0, 9.0], [0.0, 45.0])
    assert (plain.masses.tolist(), plain.errors[1]) == (([5.5, 6.5], 5.0) if evenly else ([6.0, 9.0], 45.0))


def test_moved_from_compares_levels() -> None:
    made = box()
    assert made.moved_from(made) == 0
    finer = Cloud(
        partition=made.partition,
        masses=np.repeat(made.masses, 4) / 4,
        plain=np.repeat(made.masses, 4) / 4,
        errors=np.ones(64),
        plain_errors=np.ones(64),
        total_variance=0.0,
        moving=0.0,
    )
    assert finer.moved_from(made) == pytest.approx(0)
    assert made.moved_from(finer) == pytest.approx(0)
    none = replace(made, masses=made.masses * 0)
    assert none.moved_from(made) == pytest.approx(1)
    assert made.moved_from(none) == 0


@pytest.mark.parametrize("highest", [0, 1, 2047, 2048, 2**22, 2**62])
def test_cells_are_counted_in_order(highest: int) -> None:
    rng = np.random.default_rng(highest)
    for size in (0, 1, 500):
        cells = rng.integers(0, highest, size, endpoint=True)
        kept, (expected, numbers) = cells.copy(), np.unique(cells, return_counts=True)
        found = Counts.at(cells)
        assert found.cells.tolist() == expected.tolist()
        assert found.numbers.tolist() == numbers.tolist()
        assert np.array_equal(cells, kept)
