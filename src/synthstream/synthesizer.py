"""What is measured, and how rows are made of it: a mechanism joined with its fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from synthstream.counts import Counts
from synthstream.fit.cloud import Cloud
from synthstream.fit.consistency import consistent
from synthstream.fit.pooling import pooled
from synthstream.fit.population import Population, fit, without
from synthstream.fit.rounds import Kind, Mixture, Rounds
from synthstream.fit.tree import NodeReading, Span, masses
from synthstream.kernel.batchwise import Batchwise
from synthstream.kernel.counters import State
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate
from synthstream.kernel.hypercube import Hypercube
from synthstream.kernel.marginals import Marginals
from synthstream.kernel.points import Points
from synthstream.kernel.schedule import Shape
from synthstream.kernel.selective import Selective
from synthstream.partition import Partition
from synthstream.points import PointRelease
from synthstream.privacy import Claim
from synthstream.release import FloatArray, Measured, Model, Release, TableRelease
from synthstream.tree import NodeCounts, TreeMeasured
from synthstream.workload import CodeArray, IntArray, Workload

# Looks up what was measured at a tick: a ``Measured`` or ``TreeMeasured``, as the mechanism gives it.
History = Callable[[int], Any]

# What was fitted while a tick was drawn, as it is stored; empty for those who draw first and fit then. Public.
Models = Mapping[str, NDArray[Any]]


class Mechanism(Protocol):
    """What synthesizers' mechanisms have in common; everything here follows from the configuration alone."""

    def claim(self) -> Claim:
        """What it promises for its whole life."""

    def describe(self) -> str:
        """How it measures, in a few plain words."""

    def fingerprint(self) -> str:
        """Hash of every number that decides what is drawn and with how much noise."""

    def init(self) -> State:
        """The private state before the first tick."""

    def pack(self, measured: Any) -> IntArray:
        """What passed the gate at one tick as integers."""

    def unpack(self, tick: int, released: IntArray) -> Any:
        """The measurement that ``pack`` was given."""


class TableMechanism(Mechanism, Protocol):
    """A mechanism that measures tables."""

    @property
    def workload(self) -> Workload:
        """The tables that it may measure."""

    @property
    def caveat(self) -> str:
        """What its expected variance is the error of, in a sentence."""

    def expected_variance(self, tick: int) -> FloatArray:
        """Variance of the best estimate of a cell of each running table after a tick, shape ``(marginals,)``.

        NaN for tables that are never measured.
        """


class Synthesizer(Protocol):
    """Counts rows, measures ticks and makes rows."""

    @property
    def mechanism(self) -> Mechanism:
        """What is measured, and what it costs."""

    @property
    def journaled(self) -> bool:
        """Whether what is drawn in a tick, or whether it is, depends on what was drawn before in the same tick.

        Each answer is then committed before the next is drawn: if a tick could be tried again with fresh draws, a
        failure that depends on them would tell more than the claim covers.
        """

    def count(self, codes: CodeArray, weights: IntArray | None) -> Counts:
        """Exact counts of rows. Linear: counts of parts add up."""

    def step(self, state: State, counts: Counts, gate: Gate, last: Any, models: Models) -> tuple[State, Any, Models]:
        """Close one tick: see ``step`` of the mechanisms.

        Args:
            last: the model of the newest release, ``None`` before the first.
            models: what was fitted while the tick before was drawn.

        Returns:
            The next state, what was measured, and what was fitted meanwhile.
        """

    def fit(self, tick: int, history: History, last: Any, models: Models, *, seed: int) -> Any:
        """The model for a tick: a pure function of measurements, models, the model before, and the seed."""

    def model(self, arrays: Models) -> Model:
        """The model whose ``arrays()`` these are."""

    def release(self, **facts: Any) -> Release:
        """A release with these facts: those of :class:`synthstream.release.Release`."""


@dataclass(frozen=True, kw_only=True)
class _OfTables:
    """What synthesizers of tables have in common."""

    mechanism: TableMechanism

    def count(self, codes: CodeArray, weights: IntArray | None) -> Counts:
        """See :class:`Synthesizer`."""
        return Counts.of(self.mechanism.workload.count(codes, weights))

    def model(self, arrays: Models) -> Population:
        """See :class:`Synthesizer`."""
        return Population(workload=self.mechanism.workload, codes=arrays["codes"])

    def release(self, **facts: Any) -> TableRelease:
        """See :class:`Synthesizer`."""
        return TableRelease(workload=self.mechanism.workload, **facts)

    def _dense(self, counts: Counts) -> IntArray:
        return counts.dense(self.mechanism.workload.cells)


@dataclass(frozen=True, kw_only=True)
class Continual(_OfTables):
    """All tables at every tick, and a living population fitted to them."""

    mechanism: Marginals

    journaled = False

    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        """See :class:`Synthesizer`."""
        return *self.mechanism.step(state, self._dense(counts), gate), {}

    def fit(self, tick: int, history: History, last: Population | None, models: Models, *, seed: int) -> Population:
        """See :class:`Synthesizer`."""
        return fit(history(tick), start=last, seed=seed)


@dataclass(frozen=True, kw_only=True)
class InEpochs(_OfTables):
    """The total at every tick, other tables once an epoch, and a living population fitted to all epochs together."""

    mechanism: Epochs

    @property
    def journaled(self) -> bool:
        """See :class:`Synthesizer`: tables are chosen before they are measured."""
        return self.mechanism.chooses

    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        """See :class:`Synthesizer`."""
        workload = self.mechanism.workload
        guess = partial(guessed, workload, last)
        return *self.mechanism.step(state, self._dense(counts), gate, guess), {}

    def fit(self, tick: int, history: History, last: Population | None, models: Models, *, seed: int) -> Population:
        """See :class:`Synthesizer`."""
        ends = [t for t in self._ends(tick) if t != tick]
        # Epochs bring news, ticks between them none: there is no fresh noise to average out.
        known = pooled([*(history(t) for t in ends), history(tick)], signed=self.mechanism.unit.signed)
        return fit(known, start=last, seed=seed, memory=0.0)

    def _ends(self, tick: int) -> Sequence[int]:
        """Ticks up to this one at which an epoch ended."""
        ends, begin = [], self.mechanism.begin(tick + 1)
        while begin > 0:
            ends.append(begin - 1)
            begin = self.mechanism.begin(begin - 1)
        return ends[::-1]


@dataclass(frozen=True, kw_only=True)
class FromSelection(_OfTables):
    """Paper 2, main: a few selected tables at every tick, and rows drawn from the models fitted to them."""

    mechanism: Selective
    kind: Kind

    journaled = True

    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        """See :class:`Synthesizer`. The models of a tick begin with those of the tick before."""
        workload = self.mechanism.workload
        rounds = Rounds(workload, self.kind, Mixture.from_arrays(workload.sizes, models) if models else None)
        return *self.mechanism.step(state, self._dense(counts), gate, rounds), rounds.result().arrays()

    def fit(self, tick: int, history: History, last: Population | None, models: Models, *, seed: int) -> Population:
        """See :class:`Synthesizer`. As many rows as the noisy total, drawn afresh."""
        workload = self.mechanism.workload
        number = round(float(history(tick).marginal(())[0]))
        rows = Mixture.from_arrays(workload.sizes, models).rows(max(number, 0), np.random.default_rng(seed))
        return Population.of(workload, rows)


@dataclass(frozen=True, kw_only=True)
class FromBatches(_OfTables):
    """Paper 2, baseline: each tick's rows are fitted on their own, and added to those before."""

    mechanism: Batchwise
    kind: Kind

    journaled = True

    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        """See :class:`Synthesizer`."""
        rounds = Rounds(self.mechanism.workload, self.kind)
        return *self.mechanism.step(state, self._dense(counts), gate, rounds), rounds.result().arrays()

    def fit(self, tick: int, history: History, last: Population | None, models: Models, *, seed: int) -> Population:
        """See :class:`Synthesizer`. Of a batch with fewer than no rows, rows like those drawn are taken away."""
        workload, rng = self.mechanism.workload, np.random.default_rng(seed)
        number = round(float(history(tick).marginal(())[0]))
        rows = Mixture.from_arrays(workload.sizes, models).rows(abs(number), rng)
        before = np.zeros((0, len(workload.sizes)), dtype=np.int32) if last is None else last.codes.astype(np.int32)
        return Population.of(workload, without(before, rows, rng) if number < 0 else np.concatenate([before, rows]))


class _OfPoints(ABC):
    """What synthesizers of points have in common."""

    # Whether an epoch or a segment ends, and so how much is drawn, depends on what was drawn before.
    journaled = True

    @property
    @abstractmethod
    def partition(self) -> Partition:
        """Of the box."""

    def count(self, codes: CodeArray, weights: IntArray | None) -> Counts:
        """See :class:`Synthesizer`."""
        return Counts.at(self.partition.cells(codes), weights)

    def model(self, arrays: Models) -> Cloud:
        """See :class:`Synthesizer`."""
        return Cloud.from_arrays(self.partition, arrays)

    def release(self, **facts: Any) -> PointRelease:
        """See :class:`Synthesizer`."""
        return PointRelease(**facts)


@dataclass(frozen=True, kw_only=True)
class FromNodes(_OfPoints):
    """Points: differences in nodes of a partition, and masses of its cells fitted to all epochs together."""

    mechanism: Points

    @property
    def partition(self) -> Partition:
        """Of the box."""
        return self.mechanism.partition

    def step(
        self, state: State, counts: Counts, gate: Gate, last: Cloud | None, models: Models
    ) -> tuple[State, TreeMeasured, Models]:
        """See :class:`Synthesizer`."""
        shape = Shape(np.ones(1), 0.1) if last is None else Shape(last.masses, last.moving)
        return *self.mechanism.step(state, counts, gate, shape), {}

    def fit(self, tick: int, history: History, last: Cloud | None, models: Models, *, seed: int) -> Cloud:
        """See :class:`Synthesizer`."""
        now: TreeMeasured = history(tick)
        return cloud([*(history(t) for t in now.needs), now], self.mechanism)


@dataclass(frozen=True, kw_only=True)
class FromSparseCounts(_OfPoints):
    """Paper 1: counts of nodes, made consistent. All points of a tick arrive at its first step; it has one for each."""

    mechanism: Hypercube

    @property
    def partition(self) -> Partition:
        """Of the box."""
        return Partition(dimension=self.mechanism.dimension, depth=self.mechanism.depth)

    def step(
        self, state: State, counts: Counts, gate: Gate, last: Cloud | None, models: Models
    ) -> tuple[State, NodeCounts, Models]:
        """See :class:`Synthesizer`."""
        cells = np.repeat(counts.cells, counts.numbers)
        return *self.mechanism.step(state, cells, np.zeros_like(cells), gate), {}

    def fit(self, tick: int, history: History, last: Cloud | None, models: Models, *, seed: int) -> Cloud:
        """See :class:`Synthesizer`."""
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
    depth = max([mechanism.depth_of(now.total), *(max(r, default=-1) + 1 for r in epochs.values())])
    spans = [Span(events=max(after - before, 0.0), readings=epochs[before]) for before, after in pairwise(begins)]
    dimension = mechanism.partition.dimension
    plain = masses(spans, depth=depth, dimension=dimension, shrink=False)
    fitted = masses(spans, depth=depth, dimension=dimension) if mechanism.schedule == "adaptive" else plain
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


def forecast(made: FromNodes, events: int) -> float:
    """Expected Wasserstein distance W1 when so many events have come, spread evenly, in widths of the box."""
    mechanism = made.mechanism
    depth = mechanism.depth_of(events)
    noise = mechanism.expected_variance(events)
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


def guessed(workload: Workload, rows: Population | None, events: float) -> FloatArray:
    """Tables of the rows over all cells, scaled to a number of events; uniform if there are no rows."""
    if rows is None or len(rows.codes) == 0:
        return np.asarray(np.repeat(events / workload.lengths, workload.lengths))
    return np.asarray(workload.count(rows.codes.astype(np.int32)) * (events / len(rows.codes)))
