"""Synthesizers of streams of points."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
from typing_extensions import override

from synthstream.counts import Counts
from synthstream.fit.cloud import Cloud
from synthstream.fit.tree import CAUTION, NodeReading, Span, masses
from synthstream.kernel.counters import State
from synthstream.kernel.gate import Gate
from synthstream.kernel.points import Points
from synthstream.kernel.turnstile import Turnstile
from synthstream.measured import NodeCounts, TreeMeasured, TurnstileMeasured
from synthstream.papers.consistency import consistent
from synthstream.papers.hypercube import Hypercube
from synthstream.partition import WHOLE, Partition, Shape
from synthstream.release.points import PointRelease
from synthstream.schema.schema import Schema
from synthstream.strategies.levels import Schedule
from synthstream.synthesizers import audit_targets
from synthstream.synthesizers.contract import AuditTargets, History, Models, Piece, R, Synthesizer
from synthstream.synthesizers.simulation import simulate
from synthstream.workload import CodeArray, FloatArray, IntArray

E = TypeVar("E", TreeMeasured, TurnstileMeasured)


class _OfPoints(Synthesizer[R, Cloud]):
    """What synthesizers of points have in common."""

    # Whether a simulation may leave out ticks: what is drawn at one depends on how many events have come, not on time.
    skips_ticks = False

    @property
    @abstractmethod
    def partition(self) -> Partition:
        """Of the box."""

    def count(self, codes: CodeArray, weights: IntArray | None) -> Counts:
        return self.counted(self.partition.cells(codes), weights)

    def counted(self, cells: IntArray, weights: IntArray | None) -> Counts:
        """Exact counts of events by cell."""
        return Counts.at(cells, weights)

    @property
    def cells(self) -> int:
        return self.partition.cells_number

    @override
    def state_bytes(self, horizon: int | None) -> int:
        """See :class:`Synthesizer`: the open epoch, its counters, the newest masses."""
        return 3 * 8 * self.cells

    @property
    def unforeseen(self) -> str:
        return simulate.unforeseen_of_points(self.partition)

    @override
    def simulations(
        self, schema: Schema, *, ticks: Sequence[int], events_per_tick: float, careful: bool
    ) -> list[Piece]:
        return simulate.of_points(self, ticks, events_per_tick, careful=careful)

    @override
    def seconds(self, schema: Schema, *, ticks: int, events_per_tick: float) -> float | None:
        return simulate.seconds_of_points(self, ticks, events_per_tick)

    def model(self, arrays: Models) -> Cloud:
        return Cloud.from_arrays(self.partition, arrays)

    def release(self, **facts: Any) -> PointRelease:
        return PointRelease(**facts)


class _OfEpochs(_OfPoints[E]):
    """What points that come, and points that also go, have in common."""

    mechanism: Points | Turnstile
    reading: type[E]
    skips_ticks = True
    no_window = "its readings begin anew in every epoch of the number of events, so they have no difference"

    @staticmethod
    def shape(last: Cloud | None) -> Shape:
        """What the newest release says of the events to come."""
        return Shape(np.ones(1), 0.1) if last is None else Shape(last.held, last.moving)

    def pack(self, measured: E) -> IntArray:
        return measured.pack()

    def unpack(self, tick: int, released: IntArray) -> E:
        return self.reading.unpack(tick, released)

    @override
    def step(
        self, state: State, counts: Counts, gate: Gate, last: Cloud | None, models: Models
    ) -> tuple[State, E, Models]:
        after, measured = self.mechanism.step(state, counts, gate, self.shape(last))
        return after, cast("E", measured), {}


@dataclass(frozen=True, kw_only=True)
class FromNodes(_OfEpochs[TreeMeasured]):
    """Points: differences in nodes of a partition, and masses of its cells fitted to all epochs together."""

    mechanism: Points
    reading = TreeMeasured

    def describe(self) -> str:
        return _described(self.mechanism)

    def audit_targets(self) -> AuditTargets:
        return audit_targets.of_points(self.mechanism)

    def expected_distance(self, events: int) -> float | None:
        return forecast(self.mechanism, events)

    @property
    def partition(self) -> Partition:
        return self.mechanism.partition

    @override
    def fit(self, tick: int, history: History[TreeMeasured], last: Cloud | None, models: Models, *, seed: int) -> Cloud:
        now = history(tick)
        return cloud([*(history(t) for t in now.needs), now], self.mechanism)


@dataclass(frozen=True, kw_only=True)
class FromBothSides(_OfEpochs[TurnstileMeasured]):
    """Points that are also taken away: the masses of both sides are fitted apart, and subtracted."""

    mechanism: Turnstile
    reading = TurnstileMeasured

    def describe(self) -> str:
        return f"rows that add and rows that take away apart, and of both: {_described(self.mechanism.side)}"

    def audit_targets(self) -> AuditTargets:
        side = audit_targets.of_points(self.mechanism.side)
        return side._replace(caveat=f"{side.caveat} Rows that add were; those that take away are measured alike.")

    @property
    def partition(self) -> Partition:
        return self.mechanism.side.partition

    @property
    def cells(self) -> int:
        return 2 * self.partition.cells_number

    def counted(self, cells: IntArray, weights: IntArray | None) -> Counts:
        """Exact counts of events by cell; what is taken away has cells of its own."""
        if weights is None:
            return Counts.at(cells)
        return Counts.at(np.where(weights < 0, cells + self.partition.cells_number, cells), np.abs(weights))

    @override
    def fit(
        self, tick: int, history: History[TurnstileMeasured], last: Cloud | None, models: Models, *, seed: int
    ) -> Cloud:
        now, side = history(tick), self.mechanism.side
        came = cloud([*(history(t).came for t in now.came.needs), now.came], side)
        return came.minus(cloud([*(history(t).gone for t in now.gone.needs), now.gone], side))


@dataclass(frozen=True, kw_only=True)
class FromSparseCounts(_OfPoints[NodeCounts]):
    """Paper 1: counts of nodes, made consistent. All points of a tick arrive at its first step; it has one for each."""

    mechanism: Hypercube

    no_window = "what it publishes are counts of nodes above a noisy threshold, whose error is not known"

    def pack(self, measured: NodeCounts) -> IntArray:
        return self.mechanism.pack(measured)

    def unpack(self, tick: int, released: IntArray) -> NodeCounts:
        return self.mechanism.unpack(tick, released)

    def describe(self) -> str:
        levels = self.mechanism.depth
        return f"the paper's sparse counts in the nodes of up to {levels} levels of halves; their number is public"

    def audit_targets(self) -> AuditTargets:
        return audit_targets.of_hypercube(self.mechanism)

    @property
    def partition(self) -> Partition:
        """Of the box."""
        return Partition(dimension=self.mechanism.dimension, depth=self.mechanism.depth)

    @override
    def step(
        self, state: State, counts: Counts, gate: Gate, last: Cloud | None, models: Models
    ) -> tuple[State, NodeCounts, Models]:
        cells = np.repeat(counts.cells, counts.numbers)
        return *self.mechanism.step(state, cells, np.zeros_like(cells), gate), {}

    @override
    def fit(self, tick: int, history: History[NodeCounts], last: Cloud | None, models: Models, *, seed: int) -> Cloud:
        now: NodeCounts = history(tick)
        return counted_cloud(now, self.partition)


def counted_cloud(counts: NodeCounts, partition: Partition) -> Cloud:
    """Whole masses, as many as there are points, by the paper's consistency step."""
    whole = consistent(counts.levels, counts.time)[-1].astype(np.float64)
    unknown = np.full(whole.size, np.nan)
    return Cloud(
        partition=partition,
        masses=whole,
        plain=unknown,
        errors=unknown,
        plain_errors=unknown,
        total_variance=0.0,
        moving=0.0,
    )


def cloud(history: Sequence[TreeMeasured], mechanism: Points) -> Cloud:
    """Masses fitted to all that a tick's estimate needs, and the tick's own measurement, in order."""
    now = history[-1]
    epochs: dict[float, dict[int, NodeReading]] = {}
    for measured in history:
        readings = epochs.setdefault(measured.begun, {})
        for block in measured.blocks:
            events = measured.total - measured.begun
            readings[block.level] = NodeReading(block.values, block.variance, events)
    begins = [*epochs, now.total]
    by_node = mechanism.schedule.by_node
    deepest = max(max(r, default=-1) + 1 for r in epochs.values())
    depth = deepest if by_node else max(mechanism.depth_of(now.total), deepest)
    spans = [Span(events=max(after - before, 0.0), readings=epochs[before]) for before, after in pairwise(begins)]
    dimension = mechanism.partition.dimension
    plain = masses(spans, depth=depth, dimension=dimension, shrink=False)
    as_proved = isinstance(mechanism.schedule, Schedule) and mechanism.schedule.kind == "fixed"
    # Chance makes no structure out of nodes that are read only where mass stands out of the noise.
    caution = 0.0 if by_node else CAUTION
    fitted = plain if as_proved else masses(spans, depth=depth, dimension=dimension, caution=caution)
    total = float(fitted.masses.sum())
    scale = max(now.total, 0.0) / total if total > 0 else 0.0
    return Cloud(
        partition=mechanism.partition,
        masses=fitted.masses * scale,
        plain=plain.masses * scale,
        errors=fitted.errors * scale**2,
        plain_errors=plain.errors * scale**2,
        total_variance=now.variance,
        moving=fitted.moving,
    )


def _described(mechanism: Points) -> str:
    number = "the number of events is public" if mechanism.number_is_public else "the number of events at every tick"
    when, where = "has doubled", "in"
    if mechanism.schedule.by_node:
        when, where = f"has grown {2 ** (1 / mechanism.schedule.epochs):.2g} times", "where events are, in"
    return (
        f"{number}; left minus right {where} up to {mechanism.partition.depth} levels of halves whenever it {when}, "
        f"upper levels more often; the budget divided {mechanism.schedule.words}"
    )


def last_readings_variance(mechanism: Points, events: float) -> FloatArray:
    """By level, the variance of the sum of all last readings in one node, for events that are spread evenly.

    Shape ``(depth of the last epoch that ended,)``. What is not worth a reading is even but for chance.
    """
    found, whole = np.zeros(mechanism.depth_of(events)), mechanism.scale(mechanism.parts[1])
    begins = [0.0, *(mechanism.times.begin_of(epoch) for epoch in range(1, mechanism.times.epoch_of(events) + 1))]
    for before, total in pairwise(begins):
        depth, left, even = mechanism.depth_of(total), WHOLE * 3 // 4, Shape(np.ones(1), 0.0)
        if mechanism.schedule.by_node:
            units = _even_parts(mechanism, total - before, depth, left)
            found[units.size : depth] += (total - before) / 2.0 ** np.arange(units.size, depth)  # chance alone
        else:
            units = mechanism.schedule.end(even, total / 2, depth, whole, left)
        found[: units.size] += [mechanism.variance(int(u)) for u in units]
    return found


def _even_parts(mechanism: Points, events: float, depth: int, left: int) -> IntArray:
    """Parts of each level for events that are spread evenly, down to the last one that is worth it."""
    units, scale = list[int](), mechanism.scale(mechanism.parts[1])
    while len(units) < depth:
        # One node stands for all of its level.
        part = mechanism.schedule.nodes(events / 2 ** len(units), [], np.array([left]), depth - len(units), scale)
        if not part[0]:
            break
        units.append(int(part[0]))
        left -= units[-1]
    return np.array(units, dtype=np.int64)


def forecast(mechanism: Points, events: int) -> float:
    """Expected Wasserstein distance W1 after ``events`` events, spread evenly, in widths of the box."""
    depth = mechanism.depth_of(events)
    noise = last_readings_variance(mechanism, events)
    even, errors = (
        np.full(2**depth, events / 2**depth),
        np.concatenate([[0.0], np.repeat(noise, 2 ** np.arange(depth))]),
    )
    return Cloud(
        partition=mechanism.partition,
        masses=even,
        plain=even,
        errors=errors,
        plain_errors=errors,
        total_variance=0.0,
        moving=0.0,
    ).distance()
