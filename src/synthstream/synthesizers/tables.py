"""What is measured, and how rows are made of it: a mechanism joined with its fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from typing_extensions import override

from synthstream.counts import Counts
from synthstream.fit.aims import Earlier
from synthstream.fit.population import Population
from synthstream.kernel.counters import State
from synthstream.kernel.gate import Gate
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.measured import Measured, Reading, pack_tables, unpack_tables
from synthstream.release.rows import RowModel
from synthstream.release.tables import TableRelease
from synthstream.strategies.times import Refreshes
from synthstream.synthesizers import audit_targets, bounds, windowing
from synthstream.synthesizers.contract import (
    AuditTargets,
    Expected,
    History,
    Models,
    Piece,
    RowErrors,
    Synthesizer,
    TableMechanism,
    WindowAsked,
    Windowed,
)
from synthstream.synthesizers.fitting import PLAIN, RowFitting
from synthstream.synthesizers.simulation import tables
from synthstream.workload import CodeArray, FloatArray, IntArray

CLOSER = "The rows are fitted to all measured tables together, so they are usually closer to the truth."


@dataclass(frozen=True, kw_only=True)
class OfTables(Synthesizer[Measured, Population]):
    """What synthesizers of tables have in common.

    Args:
        how: rows are fitted.
    """

    mechanism: TableMechanism
    how: RowFitting = PLAIN

    @property
    def cells(self) -> int:
        return self.mechanism.workload.cells

    @property
    def tables(self) -> TableMechanism:
        return self.mechanism

    def count(self, codes: CodeArray, weights: IntArray | None) -> Counts:
        return Counts.of(self.mechanism.workload.count(codes, weights))

    def model(self, arrays: Models) -> Population:
        return Population(workload=self.mechanism.workload, **arrays)

    @override
    def from_tick(self, tick: int) -> Self:
        dates = self.how.dates
        return self if dates is None else replace(self, how=self.how._replace(dates=dates.since(tick)))

    def release(self, **facts: Any) -> TableRelease:
        return TableRelease(workload=self.mechanism.workload, dates=self.how.dates, **facts)


@dataclass(frozen=True, kw_only=True)
class Running(OfTables):
    """Running counts, measured at times that are known beforehand, without a look at what was fitted."""

    mechanism: Marginals | Refreshed

    exact_forecast = True
    simulated: ClassVar[Callable[..., RowErrors]]

    @override
    def covariance(self, s: int, t: int, history: History[Measured]) -> FloatArray:
        return self.mechanism.covariance(s, t)

    @override
    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        return *self.mechanism.step(state, counts.dense(self.cells), gate), {}

    def replicates(self, known: Reading, model: Any, *, number: int, seed: int) -> list[RowModel]:
        """See :class:`Synthesizer`: noise of the known variances, normal, is added to the counts of the rows."""
        measured, rng = cast(Measured, known), np.random.default_rng(seed)
        error = np.repeat(np.sqrt(measured.variance), measured.workload.lengths)
        exact = model.counts(measured.workload)
        noisy = (replace(measured, values=exact + error * rng.standard_normal(error.size)) for _ in range(number))
        how = self.how.at(measured.tick)
        return [how.fit(one, memory=0.0, seed=seed) for one in noisy]

    @override
    def expected_variance(self, tick: int, events_per_tick: float | None = None) -> FloatArray:
        return self.mechanism.variance(tick)

    def simulations(self, expected: Expected) -> list[Piece]:
        return tables.pieces_at(self.simulated, self.mechanism, expected)

    def seconds(self, expected: Expected) -> float:
        return tables.seconds_per_release(self.mechanism, expected)


@dataclass(frozen=True, kw_only=True)
class Continual(Running):
    """All tables at every tick, and a living population fitted to them."""

    mechanism: Marginals
    simulated = staticmethod(tables.at_every_tick)

    @override
    def fit(
        self, tick: int, history: History[Measured], last: Population | None, models: Models, *, seed: int
    ) -> Population:
        return self.how.at(tick).fit(history(tick), start=last, seed=seed)

    def pack(self, measured: Measured) -> IntArray:
        """See :class:`Synthesizer`: in units of the resolution."""
        return np.rint(measured.values / self.mechanism.resolution).astype(np.int64)

    def unpack(self, tick: int, released: IntArray) -> Measured:
        return self.mechanism.unpacked(tick, released)

    def error_bound(self, tick: int, *, beta: float) -> float:
        """See :class:`Synthesizer`: of every running count after that tick."""
        return bounds.of_running_counts(self.mechanism, tick, beta=beta)

    bound_covers = "before the fit"

    caveat = f"These are errors of measured counts. {CLOSER}"

    def describe(self) -> str:
        return f"every table at every tick, by the counter {type(self.mechanism.counter).__name__.lower()}"

    def audit_targets(self) -> AuditTargets:
        return audit_targets.of_marginals(self.mechanism)

    @override
    def window(self, asked: WindowAsked) -> Windowed:
        """See :class:`Synthesizer`: differences of running counts."""
        return windowing.of_running_counts(asked, self.how.at(asked.last - asked.start))


@dataclass(frozen=True, kw_only=True)
class AtRefreshes(Running):
    """Small tables at every tick, larger ones when the stream has grown, and a living population fitted to both."""

    mechanism: Refreshed
    simulated = staticmethod(tables.at_refreshes)

    def pack(self, measured: Measured) -> IntArray:
        """See :class:`Synthesizer`: where some refreshes may come early, first how many there were, and their ticks."""
        tables = pack_tables(self.mechanism.workload, measured, resolution=self.mechanism.resolution)
        came = measured.refreshed
        return tables if came is None else np.concatenate([[came.size], came, tables])

    def unpack(self, tick: int, released: IntArray) -> Measured:
        came, begin = self.mechanism.times.up_to(tick), 0
        if self.mechanism.early:
            begin = 1 + int(released[0])
            came = Refreshes(tuple(released[1:begin].tolist()))
        return self.mechanism.known(tick, *unpack_tables(released[begin:], resolution=self.mechanism.resolution), came)

    @override
    def state_bytes(self, horizon: int | None) -> int:
        """See :class:`Synthesizer`: the counts of all refreshes; without a horizon, of the first ten thousand ticks."""
        mechanism, small = self.mechanism, self.mechanism.order < 2
        often = int(mechanism.workload.lengths[small].sum()) if "ticks.counts" in mechanism.init() else 0
        counts = mechanism.times.remembered * (self.cells - 1) + often * (horizon or 0)
        return super().state_bytes(horizon) + 16 * counts

    @override
    def refreshed(self, tick: int) -> int:
        return self.mechanism.times.last(tick)[0]

    def came(self, measured: Measured) -> Refreshes:
        """Refreshes up to the tick at whose end something was measured."""
        known = measured.refreshed
        return self.mechanism.times.up_to(measured.tick) if known is None else Refreshes(tuple(known.tolist()))

    @override
    def covariance(self, s: int, t: int, history: History[Measured]) -> FloatArray:
        """See :class:`Synthesizer`: with refreshes as they came."""
        return self.mechanism.covariance(s, t, self.came(history(max(s, t))))

    @override
    def whole(self, tick: int, history: History[Measured]) -> Measured:
        """See :class:`Synthesizer`: larger tables as they were measured at the last refresh."""
        now = history(tick)
        came = self.came(now)
        last, _ = came.last(tick)
        known = now if last == tick else history(last)
        values, at = known.values.copy(), np.full(len(known.workload.marginals), last)
        for q, marginal in enumerate(known.workload.marginals):
            if marginal in now.workload.place:
                values[known.workload.slice_of(marginal)] = now.values[now.workload.slice_of(marginal)]
                at[q] = tick
        variance = self.mechanism.variance(tick, came)
        return Measured(tick=tick, workload=known.workload, values=values, variance=variance, measured_at=at)

    @override
    def fit(
        self, tick: int, history: History[Measured], last: Population | None, models: Models, *, seed: int
    ) -> Population:
        known, came, then = self.whole(tick, history), self.came(history(tick)), None
        at, number = came.last(tick)
        if not (fresh := at == tick):
            shared = self.mechanism.covariance(at, tick, came)
            before = history(came.ticks[number - 1]) if number else None
            then = Earlier(history(at), shared, self.mechanism.unit.signed, before)
            if self.how.dates is not None:
                expected = self.how.at(tick).expected(at + 1, tick, known, (0, tick))
                then = then._replace(groups=self.how.at(at).groups, expected=expected)
        return self.how.at(tick).fit(known, start=last, seed=seed, memory=0.0, fresh=fresh, then=then)

    def error_bound(self, tick: int, *, beta: float) -> float:
        """See :class:`Synthesizer`: of every count as it is known after that tick."""
        return bounds.of_refreshed(self.mechanism, tick, beta=beta)

    bound_covers = "before the fit, and for larger tables as of their last refresh"

    @property
    def caveat(self) -> str:
        burst = " The forecast is for a stream without bursts." if self.mechanism.early else ""
        return (
            "These are errors of measured counts. Larger tables are measured at refreshes: their errors are those of "
            f"the last one. {CLOSER}{burst}"
        )

    def describe(self) -> str:
        burst = ", or a tick brings a burst" if self.mechanism.early else ""
        end = ", and with the last tick" if self.mechanism.horizon else ""
        return (
            "the total and every table of one column at every tick; larger ones whenever the stream is "
            f"{self.mechanism.growth:g} times as old{burst}{end}"
        )

    def audit_targets(self) -> AuditTargets:
        return audit_targets.of_refreshed(self.mechanism)

    @override
    def window(self, asked: WindowAsked) -> Windowed:
        """See :class:`Synthesizer`: differences of counts, of larger tables between the nearest refreshes."""
        came = self.came(asked.own(asked.newest))
        return windowing.between_refreshes(self.mechanism, came, asked, self.how)
