"""A stream that goes on after its private state was lost: a new segment, on top of what was published before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthstream.counts import Counts
from synthstream.fit.cloud import Cloud
from synthstream.fit.population import Population
from synthstream.kernel.counters import State
from synthstream.kernel.gate import Gate
from synthstream.measured import Measured, Reading
from synthstream.privacy import Claim
from synthstream.release.release import Release
from synthstream.release.rows import Model, RowModel
from synthstream.synthesizers.contract import History, Mechanism, Models, Synthesizer
from synthstream.workload import CodeArray, FloatArray, IntArray

# What the code cannot check; see the theorem.
_TRUSTS = (
    "when the private state was lost, the releases that were there were all that had ever been seen",
    "whether and when it was lost depends on releases at most, on no private value",
    "a row that comes again has the time that it had before",
)


class Segment(NamedTuple):
    """Where a stream was taken up again.

    Args:
        start: first tick of the segment, above 0.
        reading: what the release before it had measured, over the whole stream.
        model: the model of that release, as arrays.
    """

    start: int
    reading: Reading
    model: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Continued:
    """What passed the gate at a tick of a later segment: the events of that segment alone.

    Args:
        tick: of the stream.
        start: first tick of the segment.
        own: the reading; its ticks begin with the segment.
    """

    tick: int
    start: int
    own: Any

    def facts(self) -> dict[str, Any]:
        return {**self.own.facts(), "tick": self.tick, "segment": self.start}

    def numbers(self) -> tuple[FloatArray, FloatArray]:
        numbers: tuple[FloatArray, FloatArray] = self.own.numbers()
        return numbers


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The model before the segment, and that of the segment's own events.

    Args:
        start: first tick of the segment.
        base: of all events before it; it does not change any more.
        own: of those since.
    """

    start: int
    base: Model
    own: Model

    @property
    def whole(self) -> Model:
        """One model of all events."""
        return joined(self.base, self.own)

    @property
    def number(self) -> int:
        return self.whole.number

    def arrays(self) -> dict[str, NDArray[Any]]:
        """See :class:`synthstream.release.rows.Model`: of the segment's own."""
        return self.own.arrays()

    def moved_from(self, before: Any) -> float:
        return self.whole.moved_from(whole(before))


def in_segments(claim: Claim) -> Claim:
    """The claim of the first segment for all of them: each event counts in one alone (theorem ``segments``)."""
    return replace(claim, theorems=(*claim.theorems, "segments"), trusts=(*claim.trusts, *_TRUSTS))


@dataclass(frozen=True, kw_only=True)
class Resumed(Synthesizer):
    """A synthesizer that begins afresh, and adds what it finds to what was published before.

    Privacy:
        Unit        one event; neighbours as those of the mechanism
        Cost        that of the mechanism, once for all segments together
        Theorem     segments
        Trusts      the releases that were there were all that had ever been seen; when the state was lost depended on
                    no private value; a row that comes again has the time that it had
    Accuracy:       variances of the segments add up

    Args:
        inner: the stream's synthesizer.
        segment: where it was taken up again.
    """

    inner: Synthesizer
    segment: Segment

    @property
    def mechanism(self) -> Mechanism:
        return self.inner.mechanism

    def count(self, codes: CodeArray, weights: IntArray | None) -> Counts:
        return self.inner.count(codes, weights)

    def step(
        self, state: State, counts: Counts, gate: Gate, last: Model | None, models: Models
    ) -> tuple[State, Continued, Models]:
        tick = int(state["t"]) + self.segment.start
        after, measured, models = self.inner.step(state, counts, gate, self._own(last), models)
        return after, Continued(tick=tick, start=self.segment.start, own=measured), models

    def replay(self, measured: Continued, models: Models) -> Models:
        """See :class:`Synthesizer`. The first tick of a segment begins with nothing."""
        return self.inner.replay(measured.own, {} if measured.tick == self.segment.start else models)

    def fit(self, tick: int, history: History, last: Model | None, models: Models, *, seed: int) -> Joined:
        own = self._of_segment(history)
        return self._with_base(self.inner.fit(tick - self.segment.start, own, self._own(last), models, seed=seed))

    def model(self, arrays: Models) -> Joined:
        return self._with_base(self.inner.model(arrays))

    def release(self, **facts: Any) -> Release:
        return self.inner.release(**(facts | {"model": whole(facts["model"])}))

    def whole(self, tick: int, history: History) -> Reading:
        """See :class:`Synthesizer`: running counts of tables go on, all else begins afresh."""
        return added(self.segment, tick, self.inner.whole(tick - self.segment.start, self._of_segment(history)))

    def covariance(self, s: int, t: int, history: History) -> FloatArray:
        """See :class:`Synthesizer`: of the segment's own noise alone."""
        start = self.segment.start
        return self.inner.covariance(s - start, t - start, self._of_segment(history))

    def own(self, measured: Continued) -> Any:
        return measured.own

    def pack(self, measured: Continued) -> IntArray:
        return self.inner.pack(measured.own)

    def unpack(self, tick: int, released: IntArray) -> Continued:
        start = self.segment.start
        return Continued(tick=tick, start=start, own=self.inner.unpack(tick - start, released))

    def replicates(self, known: Reading, model: Any, *, number: int, seed: int) -> list[RowModel]:
        own = replace(known, tick=known.tick - self.segment.start)  # type: ignore[type-var]
        return self.inner.replicates(own, model, number=number, seed=seed)

    def describe(self) -> str:
        return self.inner.describe()

    @property
    def start(self) -> int:
        return self.segment.start

    @property
    def first(self) -> Synthesizer:
        return self.inner

    @property
    def cells(self) -> int:
        return self.inner.cells

    def _of_segment(self, history: History) -> History:
        return lambda tick: history(tick + self.segment.start).own

    def _own(self, last: Model | None) -> Model | None:
        return last.own if isinstance(last, Joined) and last.start == self.segment.start else None

    @property
    def base(self) -> Model:
        """The model of all events before the segment."""
        model: Model = self.inner.model(self.segment.model)
        return model

    def _with_base(self, own: Model) -> Joined:
        return Joined(start=self.segment.start, base=self.base, own=own)


def whole(model: Model) -> Model:
    """One model of all events, whatever the segments."""
    return model.whole if isinstance(model, Joined) else model


def joined(base: Model, own: Model) -> Model:
    """One model of the events of two."""
    if isinstance(base, Cloud) and isinstance(own, Cloud):
        return base.plus(own)
    if isinstance(base, Population) and isinstance(own, Population):
        codes = np.concatenate([base.codes.astype(np.int32), own.codes.astype(np.int32)])
        both = Population.of(own.workload, codes)
        if base.weights is None and own.weights is None:
            return both
        weights = [np.ones(len(p.codes), dtype=np.int64) if p.weights is None else p.weights for p in (base, own)]
        return replace(both, weights=np.concatenate(weights))
    raise TypeError(f"models of two kinds: {type(base).__name__} and {type(own).__name__}")


def added(segment: Segment, tick: int, own: Any) -> Reading:
    """What is published as measured at a tick: the segment's own measurement on top of that it began with."""
    base, start = segment.reading, segment.start
    if not isinstance(own, Measured) or not isinstance(base, Measured):
        reading: Reading = replace(own, tick=tick)
        return reading
    values, variance = own.values.copy(), own.variance.copy()
    own_cells, base_cells = own.cell_variance(), base.cell_variance()
    since = np.where(own.since == 0, start, own.since + start)
    measured_at = None if own.measured_at is None else own.measured_at + start
    for q, marginal in enumerate(own.workload.marginals):
        # A running count goes on only where all that came before was counted too.
        known = base.workload.place.get(marginal)
        if known is not None and own.since[q] == base.since[known] == 0 and base.until[known] == start - 1:
            here, there = own.workload.slice_of(marginal), base.workload.slice_of(marginal)
            values[here] += base.values[there]
            own_cells[here] += base_cells[there]
            variance[q] += base.variance[known]
            since[q] = 0
    by_cell = None if base.by_cell is None else own_cells
    found = replace(own, tick=tick, values=values, variance=variance, since=since, by_cell=by_cell)
    return replace(found, measured_at=measured_at)
