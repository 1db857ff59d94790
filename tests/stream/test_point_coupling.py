"""Coupling of points, on streams that are long enough: what is measured, and when, follows from releases alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from synthstream.counts import Counts
from synthstream.kernel.gate import Gate
from synthstream.kernel.points import Points
from synthstream.measured import TreeMeasured
from synthstream.partition import Partition
from synthstream.privacy import Budget, Neighbours
from synthstream.strategies.levels import Schedule, Shape
from synthstream.synthesizers.points import FromNodes
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray
from tests.rows.aligned import Aligned
from tests.support.gates import ReplayingGate, TraceMismatch, TracingGate, path_cost

DEPTH, TICKS, EVENTS = 8, 60, 12_000

Stream = list[IntArray]  # cells of each tick's events


def moving_stream() -> Stream:
    """Events that drift from one side of the cube to the other."""
    rng = np.random.default_rng(4)
    ends = np.linspace(1, 12, TICKS)
    parts = [rng.beta(end, 13 - end, EVENTS // TICKS) for end in ends]
    return [np.minimum((part * 2**DEPTH).astype(np.int64), 2**DEPTH - 1) for part in parts]


def measured(points: Points, stream: Stream, gate: Gate) -> list[TreeMeasured]:
    """Every tick's measurement, each drawn with the shape of the release before, as a stream does."""
    made, state, last, history = FromNodes(mechanism=points), points.init(), None, list[TreeMeasured]()
    for cells in stream:
        state, found, _ = made.step(state, Counts.at(cells, np.ones_like(cells)), gate, last, {})
        assert isinstance(found, TreeMeasured)
        history.append(TreeMeasured.unpack(found.tick, found.pack()))
        last = made.fit(found.tick, history.__getitem__, last, {}, seed=0)
    return history


class Recorded(NamedTuple):
    """A run, and all that a neighbour's run is compared with."""

    points: Points
    stream: Stream
    history: list[TreeMeasured]
    gate: TracingGate
    aligned: Aligned

    def changed(self, tick: int, neighbours: Neighbours) -> Stream:
        """A neighbour: one event more at a tick, or the tick's first event in another place."""
        cells = self.stream[tick]
        other = np.append(cells, 3) if neighbours == "add-remove" else np.append(cells[1:], (cells[0] + 101) % 2**DEPTH)
        return [*self.stream[:tick], other, *self.stream[tick + 1 :]]

    def other(self, neighbours: Neighbours) -> Stream:
        """Nearly nothing in common with the stream, but for what is public."""
        few = 1 if neighbours == "replace-one" else 3
        return [np.sort(2**DEPTH - 1 - cells // 2)[::few] for cells in self.stream]

    def replayed(self, stream: Stream) -> ReplayingGate:
        """A stream that gets the same answers asks the gate for the same, and measures the same: any stream does."""
        replaying = ReplayingGate(self.gate.trace)
        with self.aligned.kary("two"):
            again = measured(self.points, stream, replaying)
        assert len(replaying.trace) == len(self.gate.trace)
        for a, b in zip(self.history, again, strict=True):
            assert (a.begun, a.total, a.closing, a.needs) == (b.begun, b.total, b.closing, b.needs)
            assert np.array_equal(a.pack(), b.pack())
        return replaying

    def times(self) -> list[int]:
        """Ticks at which an event may come that are unlike one another: how an epoch begins, goes on and ends."""
        ends = [m.tick for m in self.history if m.closing]
        last = ends[-2]
        during = [m.tick for m in self.history if m.blocks and not m.closing and last < m.tick < ends[-1]]
        return [last, last + 1, during[0], during[-1], ends[-1], TICKS - 1]


def recorded(neighbours: Neighbours, delta: float, schedule: Any) -> Recorded:
    points = Points(
        partition=Partition(dimension=2, depth=DEPTH),
        budget=Budget(epsilon=2.0, delta=delta),
        horizon=None,
        neighbours=neighbours,
        schedule=Schedule(dimension=2, kind=schedule),
    )
    aligned, gate, stream = Aligned(0), TracingGate(SeededGate(7)), moving_stream()
    with aligned.kary("one"):
        history = measured(points, stream, gate)
    return Recorded(points, stream, history, gate, aligned)


@pytest.mark.sparing(2, 2)
@pytest.mark.parametrize(("schedule", "delta"), [("adaptive", 0.0), ("adaptive", 1e-9), ("fixed", 0.0)])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_what_is_measured_does_not_follow_exact_counts(neighbours: Neighbours, schedule: Any, delta: float) -> None:
    run = recorded(neighbours, delta, schedule)
    ends = [m for m in run.history if m.closing]
    readings = [m for m in run.history if m.blocks and not m.closing]
    # A stream in which nothing happens would tell nothing.
    assert len(ends) >= 6
    assert max(len(m.blocks) for m in ends) >= DEPTH - 1
    assert len(readings) >= 10
    assert len({len(m.blocks) for m in readings}) > 1
    assert sum(len(cells) for cells in run.stream) >= 10_000
    run.replayed(run.other(neighbours))
    claim, neighbouring = run.points.claim(), [run.changed(tick, neighbours) for tick in run.times()]
    costs = [path_cost(run.gate.trace, run.replayed(stream).trace) for stream in neighbouring]
    assert all(epsilon <= claim.pure if claim.pure is not None else rho <= claim.rho for rho, epsilon in costs)
    assert sum(rho + epsilon > 0 for rho, epsilon in costs) >= 4  # what comes at the very end is not read any more


def exact_shape(cells: IntArray, moving: float = 0.3) -> Shape:
    return Shape(np.bincount(cells, minlength=2**DEPTH).astype(np.float64), moving)


def plans_by_the_first_tick(patch: pytest.MonkeyPatch) -> None:
    """The plan of an epoch looks at the events with which it begins."""
    honest = Points.step

    def step(self: Points, state: Any, counts: Counts, gate: Gate, shape: Shape) -> Any:
        if not bool(state["planned"]):
            state = self.planned(state, exact_shape(np.repeat(counts.cells, counts.numbers)))
        return honest(self, state, counts, gate, shape)

    patch.setattr(Points, "step", step)


def ends_by_exact_cells(patch: pytest.MonkeyPatch) -> None:
    """What the end of an epoch may spend follows where its events truly are."""
    honest: Any = Points._end_by_node

    def end(self: Points, cells: IntArray, depth: int, events: float, left: int, *rest: Any) -> Any:
        return honest(self, cells, depth, events, left // (1 + int(cells @ np.arange(cells.size)) % 2), *rest)

    patch.setattr(Points, "_end_by_node", end)


def ends_by_the_exact_number(patch: pytest.MonkeyPatch) -> None:
    """The noise of an epoch's end follows the true number of its events."""
    honest: Any = Points._end

    def end(self: Points, cells: IntArray, total: float, events: float, *rest: Any) -> Any:
        return honest(self, cells, total, 8.0 ** (int(cells.sum()) % 5), *rest)

    patch.setattr(Points, "_end", end)


def reads_by_the_exact_number(patch: pytest.MonkeyPatch) -> None:
    """A level is read when true events say so."""
    honest = Points._open

    def opened(self: Points, after: Any, counts: Counts, events: float, gate: Gate) -> Any:
        return honest(self, after, counts, float(after["cells"].sum()), gate)

    patch.setattr(Points, "_open", opened)


def nodes_by_exact_cells(patch: pytest.MonkeyPatch) -> None:
    """Nodes are read at the end of an epoch if the number of its events is even."""
    honest, planned, seen = Points._end_by_node, Schedule.nodes, dict[str, IntArray]()

    def end(self: Points, cells: IntArray, *rest: Any) -> Any:
        seen["cells"] = cells
        return honest(self, cells, *rest)

    def nodes(self: Schedule, mass: Any, left: IntArray, *rest: Any) -> IntArray:
        even = seen["cells"].sum() % 2 == 0
        return np.where(even, planned(self, mass, left, *rest), 0)

    patch.setattr(Points, "_end_by_node", end)
    patch.setattr(Schedule, "nodes", nodes)


# A number of events decides whether a level is read; one event seldom does.
SEEN_BY_ONE_EVENT = [plans_by_the_first_tick, ends_by_exact_cells, ends_by_the_exact_number, nodes_by_exact_cells]
LEAKS = [*SEEN_BY_ONE_EVENT, reads_by_the_exact_number]


@pytest.mark.sparing(3)
@pytest.mark.parametrize("leak", LEAKS)
def test_a_schedule_that_follows_exact_counts_is_seen(leak: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leak(monkeypatch)
    run = recorded("add-remove", 0.0, "adaptive")
    with pytest.raises((AssertionError, TraceMismatch)):
        run.replayed(run.other("add-remove"))
    if leak in SEEN_BY_ONE_EVENT:
        with pytest.raises((AssertionError, TraceMismatch)):
            [run.replayed(run.changed(tick, "add-remove")) for tick in run.times()]
