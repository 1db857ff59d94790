"""What is measured, and how rows are made of it: a mechanism joined with its fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from synthstream.constraints import Group
from synthstream.counts import Counts
from synthstream.fit.pooling import pooled
from synthstream.fit.population import Population, fit
from synthstream.kernel.counters import State
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate
from synthstream.kernel.marginals import Marginals
from synthstream.kernel.refreshed import Refreshed
from synthstream.kinds import NEWEST, Edition
from synthstream.measured import Measured, pack_tables, unpack_tables
from synthstream.release.release import TableRelease
from synthstream.schema.schema import Schema
from synthstream.synthesizers import audit_targets, bounds, windowing
from synthstream.synthesizers.contract import (
    AuditTargets,
    History,
    Models,
    Past,
    Piece,
    Synthesizer,
    TableMechanism,
    Windowed,
)
from synthstream.synthesizers.simulation import simulate
from synthstream.synthesizers.windowing import Fitting
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload


@dataclass(frozen=True, kw_only=True)
class OfTables(Synthesizer[Measured, Population]):
    """What synthesizers of tables have in common.

    Args:
        groups: public constraints, which published rows satisfy; what is measured does not depend on them.
    """

    mechanism: TableMechanism
    edition: Edition = NEWEST
    groups: tuple[Group, ...] = ()

    @property
    def cells(self) -> int:
        return self.mechanism.workload.cells

    @property
    def tables(self) -> TableMechanism:
        return self.mechanism

    def count(self, codes: CodeArray, weights: IntArray | None) -> Counts:
        return Counts.of(self.mechanism.workload.count(codes, weights))

    def model(self, arrays: Models) -> Population:
        return Population(workload=self.mechanism.workload, codes=arrays["codes"])

    def release(self, **facts: Any) -> TableRelease:
        return TableRelease(workload=self.mechanism.workload, **facts)

    def _dense(self, counts: Counts) -> IntArray:
        return counts.dense(self.mechanism.workload.cells)


@dataclass(frozen=True, kw_only=True)
class Continual(OfTables):
    """All tables at every tick, and a living population fitted to them."""

    mechanism: Marginals

    @override
    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        return *self.mechanism.step(state, self._dense(counts), gate), {}

    @override
    def fit(
        self, tick: int, history: History[Measured], last: Population | None, models: Models, *, seed: int
    ) -> Population:
        return fit(history(tick), start=last, seed=seed, edition=self.edition, groups=self.groups)

    every_tick = True

    def pack(self, measured: Measured) -> IntArray:
        """See :class:`Synthesizer`: in units of the resolution."""
        return np.rint(measured.values / self.mechanism.resolution).astype(np.int64)

    def unpack(self, tick: int, released: IntArray) -> Measured:
        return self.mechanism.measured(tick, released)

    def error_bound(self, tick: int, *, beta: float) -> float:
        """See :class:`Synthesizer`: of every running count after that tick."""
        return bounds.of_running_counts(self.mechanism, tick, beta=beta)

    bound_covers = "before the fit"

    @property
    def caveat(self) -> str:
        return "Errors are those of the measured tables; the rows are fitted to all of them and are usually closer."

    def expected_variance(self, tick: int) -> FloatArray:
        return self.mechanism.variance(tick)

    def describe(self) -> str:
        return f"every table at every tick, by the counter {type(self.mechanism.counter).__name__.lower()}"

    def audit_targets(self) -> AuditTargets:
        return audit_targets.of_marginals(self.mechanism)

    @override
    def window(self, past: Past, first: int, last: int, *, newest: int, seed: int) -> Windowed:
        """See :class:`Synthesizer`: differences of running counts."""
        how = Fitting(self.edition, self.groups)
        return windowing.of_running_counts(past, first, last, seed=seed, how=how)

    def simulations(
        self, schema: Schema, *, ticks: Sequence[int], events_per_tick: float, careful: bool
    ) -> list[Piece]:
        return simulate.every_tick(self.mechanism, schema, ticks, events_per_tick, careful=careful)

    def seconds(self, schema: Schema, *, ticks: int, events_per_tick: float) -> float:
        return simulate.seconds_of_tables(self.mechanism, schema, ticks, events_per_tick)


@dataclass(frozen=True, kw_only=True)
class AtRefreshes(OfTables):
    """Small tables at every tick, larger ones when the stream has grown, and a living population fitted to both."""

    mechanism: Refreshed

    @override
    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        return *self.mechanism.step(state, self._dense(counts), gate), {}

    def pack(self, measured: Measured) -> IntArray:
        return pack_tables(self.mechanism.workload, measured, resolution=self.mechanism.resolution)

    def unpack(self, tick: int, released: IntArray) -> Measured:
        return self.mechanism.measured(tick, *unpack_tables(released, resolution=self.mechanism.resolution))

    @override
    def whole(self, tick: int, history: History[Measured]) -> Measured:
        """See :class:`Synthesizer`: larger tables as they were measured at the last refresh."""
        now, last = history(tick), self.mechanism.refreshed(tick)
        known = now if last == tick else history(last)
        values, at = known.values.copy(), np.full(len(known.workload.marginals), last)
        for q, marginal in enumerate(known.workload.marginals):
            if marginal in now.workload.marginals:
                values[known.workload.slice_of(marginal)] = now.values[now.workload.slice_of(marginal)]
                at[q] = tick
        variance = self.mechanism.variance(tick)
        return Measured(tick=tick, workload=known.workload, values=values, variance=variance, measured_at=at)

    @override
    def fit(
        self, tick: int, history: History[Measured], last: Population | None, models: Models, *, seed: int
    ) -> Population:
        known, then = self.whole(tick, history), history(self.mechanism.refreshed(tick))
        fresh = self.mechanism.refreshes(tick)
        return fit(
            carried(known, then),
            start=last,
            seed=seed,
            memory=0.0,
            edition=self.edition,
            fresh=fresh,
            groups=self.groups,
        )

    def error_bound(self, tick: int, *, beta: float) -> float:
        """See :class:`Synthesizer`: of every count as it is known after that tick."""
        return bounds.of_refreshed(self.mechanism, tick, beta=beta)

    bound_covers = "before the fit, and apart from what larger tables have not counted since the last refresh"

    @property
    def caveat(self) -> str:
        return (
            "Errors are those of the measured tables, of larger ones at the last refresh; the rows are fitted to all "
            "of them and are usually closer."
        )

    def expected_variance(self, tick: int) -> FloatArray:
        return self.mechanism.variance(tick)

    def describe(self) -> str:
        return (
            "the total and every table of one column at every tick; larger ones whenever the stream is "
            f"{self.mechanism.growth:g} times as old"
        )

    def audit_targets(self) -> AuditTargets:
        return audit_targets.of_refreshed(self.mechanism)

    @override
    def window(self, past: Past, first: int, last: int, *, newest: int, seed: int) -> Windowed:
        """See :class:`Synthesizer`: differences of counts, of larger tables between the nearest refreshes."""
        how = Fitting(self.edition, self.groups)
        return windowing.between_refreshes(self.mechanism, past, first, last, newest=newest, seed=seed, how=how)

    def simulations(
        self, schema: Schema, *, ticks: Sequence[int], events_per_tick: float, careful: bool
    ) -> list[Piece]:
        return simulate.at_refreshes(self.mechanism, schema, ticks, events_per_tick, careful=careful)

    def seconds(self, schema: Schema, *, ticks: int, events_per_tick: float) -> float:
        return simulate.seconds_of_tables(self.mechanism, schema, ticks, events_per_tick)


def carried(now: Measured, then: Measured) -> Measured:
    """Tables of an earlier tick in proportion to the number of events now."""
    place = now.workload.slice_of(())
    before, after = float(then.values[then.workload.slice_of(())][0]), float(now.values[place][0])
    stale = np.asarray(now.measured_at) < now.tick
    scale = np.where(stale, max(after, 1.0) / max(before, 1.0), 1.0)
    values = now.values * np.repeat(scale, now.workload.lengths)
    return replace(now, values=values, variance=now.variance * scale**2)


@dataclass(frozen=True, kw_only=True)
class InEpochs(OfTables):
    """The total at every tick, other tables once an epoch, and a living population fitted to all epochs together."""

    mechanism: Epochs

    def pack(self, measured: Measured) -> IntArray:
        return pack_tables(self.mechanism.workload, measured)

    def unpack(self, tick: int, released: IntArray) -> Measured:
        return self.mechanism.measured(tick, *unpack_tables(released))

    @property
    def caveat(self) -> str:
        chosen = " Larger tables are chosen: one that is seldom chosen is far less exact."
        return (
            "Measured counts are forecast as all epochs together tell them, for events that come evenly and whose "
            f"shares do not change.{chosen if self.mechanism.chooses else ''} The rows are fitted to all of them and "
            "are usually closer."
        )

    def expected_variance(self, tick: int) -> FloatArray:
        """See :class:`Synthesizer`: of the pooled estimate, for events that come evenly and whose shares do not change.

        Of larger tables some are chosen in each epoch: each is taken to be measured in its share of the epochs.
        """
        measures = self.mechanism
        ends, end = list[int](), measures.begin(tick + 1)
        while end > 0:
            ends, end = [end, *ends], measures.begin(end - 1)
        weight = float(np.sum(np.diff([0, *ends]) ** 2)) / (tick + 1) ** 2
        larger = int(np.sum(measures.order == 2))
        chosen = np.where(measures.order == 2, measures.measured_larger / max(larger, 1), 1.0)
        variance = measures.variance(tick)
        return np.where(measures.order == 0, variance, variance / (weight * chosen))

    def describe(self) -> str:
        measures = self.mechanism
        larger = f"{measures.measured_larger} of {int(np.sum(measures.order == 2))} larger ones, chosen privately"
        return (
            "the total at every tick; every table of one column"
            f"{' and ' + larger if measures.chooses else ', and larger'} "
            f"once an epoch, when the stream is {measures.growth:g} times as old"
        )

    @override
    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        workload = self.mechanism.workload
        guess = partial(guessed, workload, last)
        return *self.mechanism.step(state, self._dense(counts), gate, guess), {}

    @override
    def fit(
        self, tick: int, history: History[Measured], last: Population | None, models: Models, *, seed: int
    ) -> Population:
        ends = [t for t in self._ends(tick) if t != tick]
        # Epochs bring news, ticks between them none: there is no fresh noise to average out.
        known = pooled([*(history(t) for t in ends), history(tick)], signed=self.mechanism.unit.signed)
        return fit(known, start=last, seed=seed, memory=0.0, groups=self.groups)

    def error_bound(self, tick: int, *, beta: float) -> float:
        """See :class:`Synthesizer`: of the running total, and of the tables of the one epoch that ends."""
        return bounds.of_an_epoch(self.mechanism, tick, beta=beta)

    bound_covers = (
        "before the fit, and apart from what has not been measured yet. A table that is measured once an epoch counts "
        "the rows of that epoch alone"
    )

    def audit_targets(self) -> AuditTargets:
        return audit_targets.of_epochs(self.mechanism)

    def window(self, past: Past, first: int, last: int, *, newest: int, seed: int) -> Windowed:
        """See :class:`Synthesizer`: whole epochs of one segment."""
        how = Fitting(groups=self.groups)
        return windowing.of_epochs(self.mechanism, past, first, last, newest=newest, seed=seed, how=how)

    def simulations(
        self, schema: Schema, *, ticks: Sequence[int], events_per_tick: float, careful: bool
    ) -> list[Piece]:
        return simulate.in_epochs(self, schema, ticks, events_per_tick, careful=careful)

    def seconds(self, schema: Schema, *, ticks: int, events_per_tick: float) -> float:
        return simulate.seconds_of_tables(self.mechanism, schema, ticks, events_per_tick)

    def _ends(self, tick: int) -> Sequence[int]:
        """Ticks up to this one at which an epoch ended."""
        ends, begin = [], self.mechanism.begin(tick + 1)
        while begin > 0:
            ends.append(begin - 1)
            begin = self.mechanism.begin(begin - 1)
        return ends[::-1]


def guessed(workload: Workload, rows: Population | None, events: float) -> FloatArray:
    """Tables of the rows over all cells, scaled to a number of events; uniform if there are no rows."""
    if rows is None or len(rows.codes) == 0:
        return np.asarray(np.repeat(events / workload.lengths, workload.lengths))
    return np.asarray(workload.count(rows.codes.astype(np.int32)) * (events / len(rows.codes)))
