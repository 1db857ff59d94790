"""The synthesizer of tables that are measured once an epoch: the default under pure DP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from typing_extensions import override

from synthstream.counts import Counts
from synthstream.fit.ahead import Ahead
from synthstream.fit.drift import Parts, parts_of
from synthstream.fit.population import Population
from synthstream.kernel.counters import State
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate
from synthstream.measured import Measured, pack_tables, unpack_tables
from synthstream.release.series import small
from synthstream.strategies.variances import shared
from synthstream.synthesizers import audit_targets, bounds, windowing
from synthstream.synthesizers.contract import AuditTargets, Expected, History, Models, Piece, WindowAsked, Windowed
from synthstream.synthesizers.simulation import tables
from synthstream.synthesizers.tables import CLOSER, OfTables
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

# A fit shrinks tables by the size of their noise; those whose variances are scaled by this are taken as they are.
_TAKEN_AS_IT_IS = 1e-4
# Of a variance: with a budget of thousands none is left that floats can tell.
_LEAST = 1e-30


@dataclass(frozen=True, kw_only=True)
class InEpochs(OfTables):
    """The total at every tick, other tables once an epoch, and a living population fitted to all epochs together."""

    mechanism: Epochs

    @property
    def cells(self) -> int:
        return self.mechanism.workload.cells + self.mechanism.counts_rows

    def count(self, codes: CodeArray, weights: IntArray | None) -> Counts:
        """See :class:`Synthesizer`. With ``op`` one more cell, the last one, counts all rows, whatever their sign."""
        counts = self.mechanism.workload.count(codes, weights)
        if not self.mechanism.counts_rows:
            return Counts.of(counts)
        rows = len(codes) if weights is None else np.abs(weights).sum()  # equal rows of a person may come as one
        return Counts.of(np.append(counts, rows))

    def pack(self, measured: Measured) -> IntArray:
        """See :class:`Synthesizer`. The first tick of the part, and maybe the rows, come first."""
        packed = pack_tables(self.mechanism.workload, measured)
        since = [s for s, m in zip(measured.since, measured.workload.marginals, strict=True) if len(m) == 1]
        rows = [] if measured.rows is None else [round(measured.rows)]
        return np.concatenate([[*since, 0][:1], rows, packed]).astype(np.int64)

    def unpack(self, tick: int, released: IntArray) -> Measured:
        first = 1 + self.mechanism.counts_rows
        rows = float(released[1]) if self.mechanism.counts_rows else None
        return self.mechanism.described(tick, *unpack_tables(released[first:]), since=int(released[0]), rows=rows)

    @property
    def chooses(self) -> bool:
        """Whether larger tables are chosen; otherwise all are measured."""
        return self.mechanism.open_to[0] < int(np.sum(self.mechanism.order == 2))

    @property
    def caveat(self) -> str:
        chosen = "one that is seldom chosen is far less exact."
        chosen = f" Larger tables are chosen{', as many as gain most' if self._open else ''}: {chosen}"
        return (
            "Measured counts are forecast as all epochs and all tables together tell them (what one table tells alone "
            "is less exact, by up to two thirds), for events that come evenly and whose shares do not change."
            f"{chosen if self.chooses else ''} {CLOSER}"
        )

    @override
    def expected_variance(self, tick: int, events_per_tick: float | None = None) -> FloatArray:
        """See :class:`Synthesizer`: of the pooled estimate, for events that come evenly and whose shares do not change.

        Of larger tables some are chosen in each epoch: each is taken to be measured in its share of the epochs, and
        its sums say as much of its columns as so many cells do.
        """
        measures, order = self.mechanism, self.mechanism.order
        single, larger = order == 1, order == 2
        precision, parts = np.zeros(order.size), 0.0
        for begin, end in pairwise([0, *measures.times.ended(tick + 1)]):
            number = self._number(begin, end, events_per_tick)
            part, parts = ((end - begin) / (tick + 1)) ** 2, parts + ((end - begin) / (tick + 1)) ** 2
            of_parts = measures.variance(tick, measures.open_to[-1] if measures.counts_rows else number)
            variance = np.where(single, of_parts, measures.variance(tick, number))
            variance = np.maximum(variance, _LEAST)
            precision += part * np.where(larger, number / max(int(larger.sum()), 1), 1.0) / variance
        if measures.counts_rows:  # in parts that grow by a tenth, in the long run
            precision = np.where(single, precision * min(1.0, 0.1 / 2.1 / parts), precision)
        precision += _of_sums(measures.workload, np.where(larger, precision, 0.0))
        return np.where(order == 0, measures.variance(tick), 1 / precision)

    def _number(self, begin: int, end: int, events_per_tick: float | None) -> int:
        """Of larger tables in an epoch of these ticks, if the one before it has shown what is taken for granted."""
        measures = self.mechanism
        if not self._open or not events_per_tick:
            return measures.nearest()
        ahead = Ahead(workload=measures.workload)
        shown = ahead.usual if begin else np.zeros(3)
        return ahead.number(measures.spreads, max((end - begin) * events_per_tick, 1.0), shown, whole=True)

    @property
    def _open(self) -> bool:
        """Whether releases say how many larger tables an epoch measures."""
        return len(self.mechanism.open_to) > 1

    def describe(self) -> str:
        measures = self.mechanism
        least, most, all_of_them = measures.open_to[0], measures.open_to[-1], int(np.sum(measures.order == 2))
        some = f"{least}" if least == most else f"{least} to {most}, as many as gain most,"
        larger = f"{some} of {all_of_them} larger ones, chosen privately"
        more = "a tenth more rows have come or gone" if measures.counts_rows else "the number of events has doubled"
        more = f"; tables of one column more often where shares change, and when {more}"
        return (
            "the total at every tick; every table of one column"
            f"{' and ' + larger if self.chooses else ', and larger'} "
            f"once an epoch, when the stream is {measures.growth:g} times as old{more}"
        )

    @override
    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        if int(state["t"]) == 0:
            models = {}
        plan = self._plan(int(state["t"]), last, models)
        after, measured = self.mechanism.step(state, counts.dense(self.cells), gate, plan)
        return after, measured, self.replay(measured, models)

    @override
    def replay(self, measured: Measured, models: Models) -> Models:
        """See :class:`Synthesizer`: the tables of one column of all parts, by their last tick."""
        if len(measured.workload.marginals) == 1:
            return models
        return {**models, str(measured.tick): self.pack(small(measured))}

    def _plan(self, tick: int, last: Population | None, models: Models) -> Ahead:
        """What was released before this tick, as the mechanism asks for it."""
        measures = self.mechanism
        variance = np.full(len(measures.workload.sizes), np.inf)
        for marginal, known in zip(measures.workload.marginals, measures.variance(tick), strict=True):
            if len(marginal) == 1:
                variance[marginal[0]] = known
        begun = measures.times.begin(tick)
        return Ahead(
            workload=measures.workload,
            rows=last,
            known=partial(self._parts, models) if models and np.isfinite(variance).any() else None,
            begun=begun,
            before=measures.times.begin(begun - 1) if begun else 0,
            variance=variance,
        )

    def _parts(self, models: Models) -> Parts:
        """Tables of one column of all parts, from :meth:`replay`."""
        history = [self.unpack(t, models[str(t)]) for t in sorted(map(int, models))]
        return parts_of(history, self.mechanism.workload.sizes)

    @override
    def fit(
        self, tick: int, history: History[Measured], last: Population | None, models: Models, *, seed: int
    ) -> Population:
        # Epochs bring news, ticks between them none: there is no fresh noise to average out.
        known = self.known(tick, history, models)
        # It is shrunk as far as it should be: only the weights of tables are left to say.
        known = replace(known, variance=known.variance * _TAKEN_AS_IT_IS)
        # Tables that were seldom measured beside exact ones; only an epoch's end is worth moving rows twice for.
        ended = any(len(marginal) > 1 for marginal in history(tick).workload.marginals)
        return self.how.at(tick).fit(known, start=last, seed=seed, memory=0.0, taken=_TAKEN_AS_IT_IS, eased=ended)

    def known(self, tick: int, history: History[Measured], models: Models) -> Measured:
        """Estimate of all running tables after a tick, from all epochs together."""
        ends = [*(t for t in sorted(map(int, models)) if t != tick), tick]
        return self.how.at(tick).pooled([history(t) for t in ends], covariance=self._covariance(ends))

    @override
    def covariance(self, s: int, t: int, history: History[Measured]) -> FloatArray:
        """See :class:`Synthesizer`. The running sum of a table other than the total is that over whole epochs.

        Each has noise of its own: what two sums share is the epochs that have ended by the earlier tick. Each counts as
        one part here: with several of them sums of tables of one column share more.
        """
        mechanism, found = self.mechanism, np.zeros(len(self.mechanism.workload.marginals))
        for end in mechanism.times.ended(min(s, t) + 1):
            known = history(end - 1)
            found[[mechanism.workload.place[table] for table in known.workload.marginals]] += known.variance
        total = mechanism.counter.covariance(s, t, multiplier=mechanism.total_multiplier)
        return np.where(mechanism.order == 0, total, found)

    def _covariance(self, ticks: Sequence[int]) -> FloatArray:
        """Of the noise of the running totals after some ticks."""
        counter, multiplier = self.mechanism.counter, self.mechanism.total_multiplier
        return np.array([[shared(counter, s, t, multiplier=multiplier) for t in ticks] for s in ticks])

    def error_bound(self, tick: int, *, beta: float) -> float:
        """See :class:`Synthesizer`: of the running total, and of the tables of the one epoch that ends."""
        return bounds.of_an_epoch(self.mechanism, tick, beta=beta)

    @property
    def bound_covers(self) -> str:
        covers = (
            "before the fit, and apart from what has not been measured yet. A table that is measured once an epoch "
            "counts the rows of that epoch alone"
        )
        usual = f", if {self.mechanism.nearest()} larger ones are: their noise grows with their number"
        return covers + (usual if len(self.mechanism.open_to) > 1 else "")

    def audit_targets(self) -> AuditTargets:
        return audit_targets.of_epochs(self.mechanism)

    def window(self, asked: WindowAsked) -> Windowed:
        """See :class:`Synthesizer`: whole epochs of one segment."""
        return windowing.of_epochs(self.mechanism, asked, self.how.at(asked.last - asked.start))

    def simulations(self, expected: Expected) -> list[Piece]:
        return tables.pieces_in_epochs(self, expected)

    def seconds(self, expected: Expected) -> float:
        return tables.seconds_per_release(self.mechanism, expected)


def _of_sums(workload: Workload, precision: FloatArray) -> FloatArray:
    """Precision with which sums of larger tables, whose cells have a ``precision``, tell a cell of each table of one
    column, shape ``(marginals,)``.
    """
    found = np.zeros(len(workload.marginals))
    for q in np.flatnonzero(precision):
        for column in workload.marginals[q]:
            if (column,) in workload.place:
                found[workload.place[(column,)]] += precision[q] * workload.sizes[column] / workload.lengths[q]
    return found
