"""Synthesizers of streams of points."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from typing_extensions import override

from synthstream.counts import Counts
from synthstream.errors import NotReleased
from synthstream.fit.cloud import Cloud
from synthstream.kernel.counters import State
from synthstream.kernel.gate import Gate
from synthstream.kernel.points import Points
from synthstream.kernel.turnstile import Turnstile
from synthstream.measured import NodeCounts, TreeMeasured, TurnstileMeasured
from synthstream.partition import Partition
from synthstream.release.points import PointRelease
from synthstream.strategies.levels import ANYWHERE, Shape
from synthstream.synthesizers import audit_targets
from synthstream.synthesizers.clouds import cloud, cloud_between, upper_cloud
from synthstream.synthesizers.contract import (
    AuditTargets,
    Expected,
    History,
    Models,
    Piece,
    Synthesizer,
    WindowAsked,
    Windowed,
)
from synthstream.synthesizers.simulation import points as simulated
from synthstream.workload import CodeArray, IntArray

E = TypeVar("E", TreeMeasured, TurnstileMeasured, NodeCounts)


class OfPoints(Synthesizer[E, Cloud]):
    """What synthesizers of points have in common."""

    reading: type[E]
    # Whether a simulation may leave out ticks: what is drawn at one depends on how many events have come, not on time,
    # but at the last one.
    skips_ticks = False

    @property
    @abstractmethod
    def partition(self) -> Partition:
        """Of the box."""

    def pack(self, measured: E) -> IntArray:
        return measured.pack()

    def unpack(self, tick: int, released: IntArray) -> E:
        return self.reading.unpack(tick, released)

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
        """See :class:`Synthesizer`: the error of points in a box, where columns are too many."""
        if simulated.digits_of(self.partition.dimension):
            return ""
        return "The error of points in so many columns is not forecast: no grid over them is fine enough to compare on."

    def simulations(self, expected: Expected) -> list[Piece]:
        return [] if self.unforeseen else simulated.pieces(self, expected)

    def seconds(self, expected: Expected) -> float | None:
        return None if self.unforeseen else simulated.seconds_per_release(self, expected)

    def model(self, arrays: Models) -> Cloud:
        return Cloud.from_arrays(self.partition, arrays)

    def release(self, **facts: Any) -> PointRelease:
        return PointRelease(**facts)


class _OfEpochs(OfPoints[E]):
    """What points that come, and points that also go, have in common."""

    mechanism: Points | Turnstile
    skips_ticks = True

    @abstractmethod
    def between(self, before: int, tick: int, history: History[E]) -> Windowed[E, Cloud]:
        """What is known of the events after a tick, up to another one."""

    @abstractmethod
    def ahead(self, tick: int, history: History[E]) -> Cloud:
        """As :meth:`fit`, where nothing is released: for the plan of the next epoch alone."""

    @abstractmethod
    def number(self, measured: E) -> E:
        """The number of events up to a tick, without what was read of nodes."""

    @override
    def window(self, asked: WindowAsked) -> Windowed[E, Cloud]:
        """See :class:`Synthesizer`. Of one segment: readings of two have nothing in common."""
        start = asked.start
        first, last = asked.first - start, asked.last - start

        def history(tick: int) -> E:
            return cast("E", asked.own(start + tick))

        if first < 0:
            raise NotReleased(
                f"between: the stream began to measure anew at {asked.begins(start)}. Ask for windows on either side."
            )
        if first:
            found = self.between(first - 1, last, history)
        else:
            found = Windowed(self.number(history(last)), self.fit(last, history, None, {}, seed=asked.seed))
        return Windowed(replace(found.measured, tick=asked.last), found.model)

    @override
    def step(
        self, state: State, counts: Counts, gate: Gate, last: Cloud | None, models: Models
    ) -> tuple[State, E, Models]:
        # What the newest release says of the events to come.
        ahead = ANYWHERE if last is None else Shape(last.held, last.moving)
        after, measured = self.mechanism.step(state, counts, gate, ahead)
        return after, cast("E", measured), {}


@dataclass(frozen=True, kw_only=True)
class FromNodes(_OfEpochs[TreeMeasured]):
    """Points: differences in nodes of a partition, and masses of its cells fitted to all epochs together."""

    mechanism: Points
    reading = TreeMeasured

    def describe(self) -> str:
        points = self.mechanism
        number = "the number of events is public" if points.number_is_public else "the number of events at every tick"
        when, where = "has doubled", "in"
        if points.schedule.by_node:
            when, where = f"has grown {2 ** (1 / points.schedule.epochs):.2g} times", "where events are, in"
        end = " and with the last tick," if points.horizon else ""
        return (
            f"{number}; left minus right {where} up to {points.partition.depth} levels of halves whenever it {when},"
            f"{end} upper levels more often; the budget divided {points.schedule.words}"
        )

    def audit_targets(self) -> AuditTargets:
        return audit_targets.of_points(self.mechanism)

    @property
    def partition(self) -> Partition:
        return self.mechanism.partition

    @override
    def fit(self, tick: int, history: History[TreeMeasured], last: Cloud | None, models: Models, *, seed: int) -> Cloud:
        return cloud(_needed(tick, history), self.mechanism)

    def ahead(self, tick: int, history: History[TreeMeasured]) -> Cloud:
        return upper_cloud(_needed(tick, history), self.mechanism)

    def between(self, before: int, tick: int, history: History[TreeMeasured]) -> Windowed[TreeMeasured, Cloud]:
        then, now = _needed(before, history), _needed(tick, history)
        found, number = cloud_between(then, now, self.mechanism), self.number(now[-1])
        return Windowed(replace(number, total=number.total - then[-1].total, variance=found.total_variance), found)

    def number(self, measured: TreeMeasured) -> TreeMeasured:
        return replace(measured, begun=0.0, blocks=(), needs=())


@dataclass(frozen=True, kw_only=True)
class FromBothSides(_OfEpochs[TurnstileMeasured]):
    """Points that are also taken away: the masses of both sides are fitted apart, and subtracted."""

    mechanism: Turnstile
    reading = TurnstileMeasured

    @property
    def side(self) -> FromNodes:
        """Either side, as if it were a stream of its own."""
        return FromNodes(mechanism=self.mechanism.side)

    def describe(self) -> str:
        return f"rows that add and rows that take away apart, and of both: {self.side.describe()}"

    def audit_targets(self) -> AuditTargets:
        side = self.side.audit_targets()
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
        came, gone = (self.side.fit(tick, side, None, {}, seed=seed) for side in _both(history))
        return came.minus(gone)

    def ahead(self, tick: int, history: History[TurnstileMeasured]) -> Cloud:
        came, gone = (self.side.ahead(tick, side) for side in _both(history))
        return came.minus(gone)

    def between(
        self, before: int, tick: int, history: History[TurnstileMeasured]
    ) -> Windowed[TurnstileMeasured, Cloud]:
        came, gone = (self.side.between(before, tick, side) for side in _both(history))
        measured = TurnstileMeasured(tick=tick, came=came.measured, gone=gone.measured)
        return Windowed(measured, came.model.minus(gone.model))

    def number(self, measured: TurnstileMeasured) -> TurnstileMeasured:
        return replace(measured, came=self.side.number(measured.came), gone=self.side.number(measured.gone))


def _both(history: History[TurnstileMeasured]) -> tuple[History[TreeMeasured], History[TreeMeasured]]:
    """Both sides of what was measured: what came, and what was taken away."""
    return lambda tick: history(tick).came, lambda tick: history(tick).gone


def _needed(tick: int, history: History[TreeMeasured]) -> list[TreeMeasured]:
    """All that a tick's estimate needs, in order."""
    now = history(tick)
    return [*(history(t) for t in now.needs), now]
