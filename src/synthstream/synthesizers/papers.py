"""The methods of the papers as synthesizers. Of paper 2: a few selected tables at every tick, or each tick's rows on
their own. Of paper 1: sparse counts of nodes. Nothing here is loaded unless a stream asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from synthstream.config.config import StreamConfig
from synthstream.config.synthesis import MOST_ROWS, SynthesizerConfig
from synthstream.counts import Counts
from synthstream.fit.cloud import Cloud
from synthstream.fit.population import Population, without
from synthstream.kernel.counters import State
from synthstream.kernel.gate import Gate
from synthstream.kinds import FitKind
from synthstream.measured import Measured, NodeCounts
from synthstream.papers.batchwise import Batchwise
from synthstream.papers.consistency import consistent
from synthstream.papers.fit.rounds import Mixture, Rounds
from synthstream.papers.fit.weights import domain
from synthstream.papers.hypercube import Hypercube
from synthstream.papers.selective import Selective
from synthstream.partition import Partition
from synthstream.synthesizers import audit_targets, windowing
from synthstream.synthesizers.bounds import LONG, picks_rule
from synthstream.synthesizers.contract import AuditTargets, History, Models, WindowAsked, Windowed
from synthstream.synthesizers.points import OfPoints
from synthstream.synthesizers.tables import OfTables
from synthstream.workload import CodeArray, FloatArray, IntArray

# Whole tables that the paper's main algorithm chooses at a tick, at most: the rule of its theorem, which is about the
# baseline, asks for up to 13 on Adult, where three are better throughout (benchmarks/results/tables.md).
_MOST_PICKS = 3


@dataclass(frozen=True, kw_only=True)
class _OfSelected(OfTables):
    """What both have in common: tables are selected in rounds, and models of some kind are fitted meanwhile."""

    mechanism: Selective | Batchwise
    kind: FitKind

    # Whether the models of a tick begin with those of the tick before.
    goes_on = False

    unforeseen = (
        "Only the error of the total is known. That of a table depends on which tables are selected, and so on the "
        "data; how such streams did on public data stands in benchmarks/results/tables.md."
    )

    caveat = (
        "Errors are those of a table that is selected at every tick; any other one has the error of the synthetic "
        "rows, which depends on the data and cannot be foreseen."
    )

    @property
    def selected(self) -> str:
        """How many of how many candidates are selected, in words."""
        what = "cells" if self.mechanism.queries == "single" else "tables"
        return f"{self.mechanism.picks} of {len(self.mechanism.candidates)} {what}"

    def pack(self, measured: Measured) -> IntArray:
        return self.mechanism.pack(measured)

    def unpack(self, tick: int, released: IntArray) -> Measured:
        return self.mechanism.unpack(tick, released)

    @override
    def covariance(self, s: int, t: int, history: History[Measured]) -> FloatArray:
        return self.mechanism.covariance(s, t)

    @override
    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        rounds = self._rounds(models)
        return *self.mechanism.step(state, counts.dense(self.cells), gate, rounds), rounds.result().arrays()

    def audit_targets(self) -> AuditTargets:
        return audit_targets.of_rounds(self.mechanism)

    def replay(self, measured: Measured, models: Models) -> Models:
        rounds = self._rounds(models)
        self.mechanism.replay(measured, rounds)
        return rounds.result().arrays()

    def _rounds(self, models: Models) -> Rounds:
        workload = self.mechanism.workload
        start = Mixture.from_arrays(workload.sizes, models) if models and self.goes_on else None
        return Rounds(workload, self.kind, start)

    def _drawn(self, number: int, models: Models, rng: np.random.Generator) -> CodeArray:
        return Mixture.from_arrays(self.mechanism.workload.sizes, models).rows(number, rng)


@dataclass(frozen=True, kw_only=True)
class FromSelection(_OfSelected):
    """Paper 2, main: a few selected tables at every tick, and rows drawn from the models fitted to them."""

    mechanism: Selective

    goes_on = True
    no_window = "which tables were measured differs from tick to tick, so two ticks have no difference"

    def describe(self) -> str:
        by = f"by the counter {type(self.mechanism.counter).__name__.lower()}"
        return (
            f"at every tick the total and {self.selected}, selected privately, {by}; all others are taken "
            "from the synthetic rows"
        )

    @override
    def expected_variance(self, tick: int, events_per_tick: float | None = None) -> FloatArray:
        """See :class:`Synthesizer`: if it were selected at every tick."""
        always = self.mechanism.counter.variance(tick, multiplier=self.mechanism.multiplier)
        return np.where(self.mechanism.selectable, always, self.mechanism.variance(tick))

    @override
    def fit(
        self, tick: int, history: History[Measured], last: Population | None, models: Models, *, seed: int
    ) -> Population:
        """See :class:`Synthesizer`. As many rows as the noisy total, a million at most, drawn afresh."""
        number = max(round(float(history(tick).marginal(())[0])), 0)
        rows = self._drawn(min(number, MOST_ROWS), models, np.random.default_rng(seed))
        return Population.of(self.mechanism.workload, rows, events=number)


@dataclass(frozen=True, kw_only=True)
class FromBatches(_OfSelected):
    """Paper 2, baseline: each tick's rows are fitted on their own, and added to those before."""

    mechanism: Batchwise

    def describe(self) -> str:
        return (
            f"each tick's rows on their own: their number and {self.selected}, selected privately; "
            "synthetic rows of all ticks are added up"
        )

    @override
    def expected_variance(self, tick: int, events_per_tick: float | None = None) -> FloatArray:
        """See :class:`Synthesizer`: of the sum over all batches, if it is measured in each of them."""
        total = np.array([not marginal for marginal in self.mechanism.workload.marginals])
        each = self.mechanism.variance(tick) * (tick + 1)
        return np.where(self.mechanism.selectable | total, each, np.nan)

    @override
    def window(self, asked: WindowAsked) -> Windowed:
        """See :class:`Synthesizer`: the batches of its ticks together."""
        return windowing.of_batches(self, asked)

    def fit(
        self, tick: int, history: History[Measured], last: Population | None, models: Models, *, seed: int
    ) -> Population:
        """See :class:`Synthesizer`. Of a batch with fewer than no rows, rows like those drawn are taken away."""
        workload, rng = self.mechanism.workload, np.random.default_rng(seed)
        number = round(float(history(tick).marginal(())[0]))
        rows = self._drawn(abs(number), models, rng)
        before = np.zeros((0, len(workload.sizes)), dtype=np.int32) if last is None else last.codes.astype(np.int32)
        return Population.of(workload, without(before, rows, rng) if number < 0 else np.concatenate([before, rows]))


@dataclass(frozen=True, kw_only=True)
class FromSparseCounts(OfPoints[NodeCounts]):
    """Paper 1: counts of nodes, made consistent. A tick has one step for each of its points, which arrive at one of
    them: see :meth:`Hypercube.moment`.
    """

    mechanism: Hypercube
    reading = NodeCounts

    no_window = "what it publishes are counts of nodes above a noisy threshold, whose error is not known"

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
        moments = np.full_like(cells, self.mechanism.moment(state, cells.size))
        return *self.mechanism.step(state, cells, moments, gate), {}

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


def of_rounds(settings: SynthesizerConfig, common: dict[str, Any]) -> FromSelection | FromBatches:
    """A method of paper 2. Raises ``ValueError`` if settings do not fit together.

    Args:
        common: arguments of either mechanism that do not stand in ``[synthesizer]``.
    """
    workload = common["workload"]
    if settings.fit == "mw":
        domain(workload.sizes)  # refuses what is too large
    common = common | {"queries": settings.queries, "score": settings.score}
    picks = settings.picks or picks_rule(
        workload.sizes,
        queries=len(Selective(**common, picks=1).candidates),
        events=settings.events_per_tick or 1.0,
        ticks=common["horizon"] or LONG,
        epsilon=common["budget"].epsilon,
    )
    if settings.kind == "stream-mwem":
        batches = Batchwise(**common, picks=picks)
        if batches.total_multiplier > MOST_ROWS:
            raise ValueError(
                f"epsilon = {batches.budget.epsilon:g} is too small for stream-mwem: noise would make about "
                f"{batches.total_multiplier:,.0f} rows of every tick, or take them away. Allow more."
            )
        return FromBatches(mechanism=batches, kind=settings.fit)
    if settings.queries == "workloads" and not settings.picks:
        picks = min(picks, _MOST_PICKS)
    return FromSelection(mechanism=Selective(**common, picks=picks, kind=settings.counter), kind=settings.fit)


def of_hypercube(config: StreamConfig, partition: Partition) -> FromSparseCounts:
    """The method of paper 1. Raises ``ValueError`` if settings do not fit together."""
    privacy = config.privacy
    if privacy.neighbours != "replace-one" or config.op is not None:
        raise ValueError(
            'kind = "hypercube" publishes the exact number of events. Say neighbours = "replace-one" in [privacy], '
            'without op; or use kind = "points", which keeps that number private'
        )
    if not privacy.budget.pure:
        raise ValueError('kind = "hypercube" has no use for delta; say delta = 0, or use kind = "points"')
    cube = Hypercube(
        dimension=partition.dimension, depth=partition.depth, budget=privacy.budget, horizon=config.own_clock.horizon
    )
    return FromSparseCounts(mechanism=cube)
