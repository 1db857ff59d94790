"""What is measured, and how rows are made of it: a mechanism joined with its fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from synthstream.counts import Counts
from synthstream.fit.pooling import pooled
from synthstream.fit.population import Population, fit, without
from synthstream.fit.rounds import Kind, Mixture, Rounds
from synthstream.kernel.batchwise import Batchwise
from synthstream.kernel.counters import State
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate
from synthstream.kernel.marginals import Marginals
from synthstream.kernel.selective import Selective
from synthstream.privacy import Claim
from synthstream.release import FloatArray, Measured, Model, Release, TableRelease
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

    def covariance(self, s: int, t: int) -> FloatArray:
        """Covariance of the noise in sums of all that was measured up to ticks ``s`` and ``t``, ``(marginals,)``.

        What was measured over the ticks after s, up to t, therefore has variance C(t, t) - 2 C(s, t) + C(s, s). NaN
        where it is not known.
        """

    def expected_variance(self, tick: int) -> FloatArray:
        """Variance of the best estimate of a cell of each running table after a tick, shape ``(marginals,)``.

        NaN for tables that are never measured.
        """


class Synthesizer(Protocol):
    """Counts rows, measures ticks and makes rows."""

    @property
    def mechanism(self) -> Mechanism:
        """What is measured, and what it costs."""

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

    def replay(self, measured: Any, models: Models) -> Models:
        """What ``step`` fitted meanwhile: a pure function of what was measured, and of what the tick before fitted."""

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

    def replay(self, measured: Measured, models: Models) -> Models:
        """See :class:`Synthesizer`."""
        return {}

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

    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        """See :class:`Synthesizer`. The models of a tick begin with those of the tick before."""
        rounds = self._rounds(models)
        return *self.mechanism.step(state, self._dense(counts), gate, rounds), rounds.result().arrays()

    def replay(self, measured: Measured, models: Models) -> Models:
        """See :class:`Synthesizer`."""
        rounds = self._rounds(models)
        self.mechanism.replay(measured, rounds)
        return rounds.result().arrays()

    def _rounds(self, models: Models) -> Rounds:
        workload = self.mechanism.workload
        return Rounds(workload, self.kind, Mixture.from_arrays(workload.sizes, models) if models else None)

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

    def step(
        self, state: State, counts: Counts, gate: Gate, last: Population | None, models: Models
    ) -> tuple[State, Measured, Models]:
        """See :class:`Synthesizer`."""
        rounds = Rounds(self.mechanism.workload, self.kind)
        return *self.mechanism.step(state, self._dense(counts), gate, rounds), rounds.result().arrays()

    def replay(self, measured: Measured, models: Models) -> Models:
        """See :class:`Synthesizer`."""
        rounds = Rounds(self.mechanism.workload, self.kind)
        self.mechanism.replay(measured, rounds)
        return rounds.result().arrays()

    def fit(self, tick: int, history: History, last: Population | None, models: Models, *, seed: int) -> Population:
        """See :class:`Synthesizer`. Of a batch with fewer than no rows, rows like those drawn are taken away."""
        workload, rng = self.mechanism.workload, np.random.default_rng(seed)
        number = round(float(history(tick).marginal(())[0]))
        rows = Mixture.from_arrays(workload.sizes, models).rows(abs(number), rng)
        before = np.zeros((0, len(workload.sizes)), dtype=np.int32) if last is None else last.codes.astype(np.int32)
        return Population.of(workload, without(before, rows, rng) if number < 0 else np.concatenate([before, rows]))


def guessed(workload: Workload, rows: Population | None, events: float) -> FloatArray:
    """Tables of the rows over all cells, scaled to a number of events; uniform if there are no rows."""
    if rows is None or len(rows.codes) == 0:
        return np.asarray(np.repeat(events / workload.lengths, workload.lengths))
    return np.asarray(workload.count(rows.codes.astype(np.int32)) * (events / len(rows.codes)))
