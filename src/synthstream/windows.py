"""Rows and tables of the events between two moments, from what was measured up to each: last month, not everything.

All of it is post-processing of what was published, and needs no state.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from synthstream.building import Builder
from synthstream.clock import Clock, written
from synthstream.config import StreamConfig
from synthstream.errors import NotReleased
from synthstream.fit.pooling import pooled
from synthstream.fit.population import Population, fit
from synthstream.fit.targets import targets
from synthstream.release import FloatArray, Measured, TableRelease, seed_of
from synthstream.segments import Continued, Resumed
from synthstream.synthesizer import Continual, FromBatches, InEpochs, Synthesizer
from synthstream.workload import Workload

Moment = str | date

# Rows of a window follow the shares of all events up to its end, except where what was measured in it stands out of its
# noise: they remember without end.
_ALL = np.inf
# So many dates are named where a window has to begin and end with epochs.
_NAMED = 12

_WHY_NOT = {
    "selective": "which tables were measured differs from tick to tick, so two ticks have no difference",
    "hypercube": "what it publishes are counts of nodes above a noisy threshold, whose error is not known",
    "points": "its readings begin anew whenever the number of events has doubled, so they have no difference",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Window(TableRelease):
    """Rows and tables of the events of some ticks alone. Never published; a pure function of what was.

    ``measured`` in its tables is the difference of two measurements, and ``stderr`` that difference's own, from the
    covariance of the counters. It has rows, tables, comparison and display as a release has.

    Args:
        first: its first tick; ``tick`` is its last one.
    """

    first: int

    @property
    def about(self) -> str:
        """See :attr:`Release.about`."""
        return f"events from {written(self.start)} to before {written(self.end)}, ticks {self.first} to {self.tick}"

    def manifest(self) -> dict[str, Any]:
        """See :meth:`Release.manifest`; ``since`` is the first tick."""
        return {**super().manifest(), "since": self.first}


def moment_of(moment: Moment, clock: Clock) -> datetime:
    """A moment with its zone: a date or time, or one in ISO 8601, by default on the clock's own wall.

    Raises:
        NotReleased: it is none.
    """
    try:
        found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        raise NotReleased(f"{moment!r} is no date; write it like 2026-01-31, or 2026-01-31T12:00:00.") from None
    if not isinstance(found, date):
        raise TypeError(f"a moment must be a date, not {type(found).__name__}")
    if not isinstance(found, datetime):
        found = datetime(found.year, found.month, found.day)
    return found if found.tzinfo else found.replace(tzinfo=ZoneInfo(clock.timezone))


def ticks_between(clock: Clock, start: Moment, end: Moment, *, newest: int) -> tuple[int, int]:
    """First and last of the whole ticks that hold all from ``start`` to before ``end``.

    Raises:
        NotReleased: there are none, or they have not all been released.
    """
    begin, until = moment_of(start, clock), moment_of(end, clock)
    first, ticks = clock.ended_before(begin), clock.ended_before(until)
    if clock.boundary(ticks) < until:
        ticks += 1
    over = clock.boundary(newest + 1)
    if begin >= until or ticks <= 0:
        raise NotReleased(
            f"between {start} and {end}: nothing lies there. Say the earlier moment first; the stream begins "
            f"{written(clock.boundary(0))}."
        )
    if ticks - 1 > newest:
        raise NotReleased(
            f"between {start} and {end}: releases hold events before {written(over)} only. Ask for a "
            "window that ends there, or wait."
        )
    return first, ticks - 1


def window(config: StreamConfig, builder: Builder, start: Moment, end: Moment, *, newest: int) -> Window:
    """Rows and tables of the events from ``start`` to before ``end``, widened to whole ticks.

    Args:
        config: of the stream.
        builder: knows what was measured.
        start, end: moments; see :func:`moment_of`.
        newest: the newest published tick.

    Raises:
        NotReleased: not all of it has been released, or streams of this kind have no windows, or not this one.
    """
    kind = config.synthesizer.kind
    if kind in _WHY_NOT:
        raise NotReleased(
            f'between: streams of kind = "{kind}" have no windows: {_WHY_NOT[kind]}. Take a release as a whole; a '
            'stream of kind = "table" has windows.'
        )
    first, last = ticks_between(config.clock, start, end, newest=newest)
    before, after = builder.previous(first), builder.previous(last + 1)
    head = hashlib.sha256(f"between {before} {after}".encode()).hexdigest()
    at, synthesizer = _own(builder, last)
    if isinstance(synthesizer, Continual):
        measured = _difference(builder, first, last)
        model = _rows(measured, _whole(builder, last) if first else None, seed=seed_of(head, "fit"))
    elif isinstance(synthesizer, InEpochs):
        _refuse_broken_epochs(config.clock, synthesizer, at, first, last, newest)
        measured, pool, all_of_it = _epochs(builder, synthesizer, at, first, last)
        model = _rows(pool, all_of_it, seed=seed_of(head, "fit"))
    elif isinstance(synthesizer, FromBatches):
        measured, model = _batches(builder, first, last)
    else:
        raise TypeError(f"a synthesizer without windows: {type(synthesizer).__name__}")
    return Window(
        name=config.name,
        schema=config.schema,
        workload=synthesizer.mechanism.workload,
        measured=measured,
        model=model,
        start=config.clock.boundary(first),
        end=config.clock.boundary(last + 1),
        facts={"claim": builder.claim_at(last), "chain": {"previous": before, "head": head}},
        secure=builder.secure,
        released=np.zeros(0, dtype=np.int64),
        covariance=builder.covariance,
        first=first,
    )


def _own(builder: Builder, tick: int) -> tuple[int, Synthesizer]:
    """First tick of the segment that holds a tick, and the stream's synthesizer."""
    found = builder.synthesizer(tick)
    return (found.segment.start, found.inner) if isinstance(found, Resumed) else (0, found)


def _measured(builder: Builder, tick: int) -> Measured:
    """What passed the gate at a tick: of its own segment."""
    found: Any = builder.measured(tick)
    own: Measured = found.own if isinstance(found, Continued) else found
    return own


def _variance(builder: Builder, first: int, last: int) -> FloatArray:
    """Variance of what was measured of ticks ``first..last``, for each table of the workload."""
    variance = builder.covariance(last, last)
    if first:
        variance = variance - 2 * builder.covariance(first - 1, last) + builder.covariance(first - 1, first - 1)
    return np.maximum(variance, 0.0)


def _whole(builder: Builder, tick: int) -> Measured:
    """What was measured of all events up to a tick, over all segments."""
    found = builder.whole(tick)
    if not isinstance(found, Measured):
        raise TypeError(f"no tables were measured: {type(found).__name__}")
    return found


def _difference(builder: Builder, first: int, last: int) -> Measured:
    """Of running counts of all tables."""
    now = _whole(builder, last)
    if first == 0:
        return now
    before = _whole(builder, first - 1)
    since = np.full(len(now.workload.marginals), first, dtype=np.int64)
    variance = _variance(builder, first, last)
    return replace(now, values=now.values - before.values, variance=variance, since=since)


def _rows(own: Measured, all_of_it: Measured | None, *, seed: int) -> Population:
    """Rows for a window's measurement, near the shares of all events up to its end.

    Noise is as large for a month as for years, and would drown it. So rows begin as those of all events, and move where
    the window's own measurement stands out of its noise (the same empirical Bayes step as between releases).

    Args:
        all_of_it: what was measured of all events up to the window's end; ``None`` if they are the window's own.
    """
    if all_of_it is None:
        return fit(own, seed=seed, memory=0.0)
    rows, number = fit(all_of_it, seed=seed, memory=0.0), targets(own).rows
    if rows.number == 0:
        return fit(own, seed=seed, memory=0.0)
    drawn = np.random.default_rng(seed).choice(rows.number, size=number, replace=number > rows.number)
    start = Population(workload=rows.workload, codes=rows.codes[drawn])
    return fit(own, start=start, seed=seed, memory=_ALL)


def _refuse_broken_epochs(clock: Clock, synthesizer: InEpochs, at: int, first: int, last: int, newest: int) -> None:
    """Raise unless ticks are whole epochs of one segment: all tables but the total were measured over epochs alone."""
    mechanism = synthesizer.mechanism
    if first >= at and mechanism.begin(first - at) == first - at and mechanism.ends(last - at):
        return
    begins = [at + t for t in range(newest - at + 2) if mechanism.begin(t) == t]
    dates = ", ".join(written(clock.boundary(tick)) for tick in begins[-_NAMED:])
    raise NotReleased(
        "between: with delta = 0 this stream measures its tables once an epoch, so a window must begin and end with "
        f'one. Choose two of: {dates}. (A stream with delta above 0, or measure = "always", has all windows.)'
    )


def _epochs(
    builder: Builder, synthesizer: InEpochs, at: int, first: int, last: int
) -> tuple[Measured, Measured, Measured | None]:
    """Sums of whole epochs, exactly; the pooled estimate of the window; and that of all epochs, if there are others."""
    mechanism, begun = synthesizer.mechanism, first - at
    history = [_measured(builder, at + tick) for tick in range(last - at + 1) if mechanism.ends(tick)]
    inside = [known for known in history if known.tick >= begun]
    base = float(_measured(builder, first - 1).marginal(())[0]) if begun else 0.0
    variance = dict(zip(mechanism.workload.marginals, _variance(builder, first, last).tolist(), strict=True))
    marginals = [m for m in mechanism.workload.marginals if all(m in known.workload.marginals for known in inside)]
    values = [sum(known.marginal(m)[0].reshape(-1) for known in inside) for m in marginals if m]
    total = float(inside[-1].marginal(())[0]) - base
    exact = Measured(
        tick=last,
        workload=Workload(sizes=mechanism.workload.sizes, marginals=tuple(sorted(marginals, key=len))),
        values=np.concatenate([[total], *values]),
        variance=np.array([variance[m] for m in sorted(marginals, key=len)]),
        since=np.full(len(marginals), first, dtype=np.int64),
    )
    signed = mechanism.unit.signed
    pool = pooled([_from(known, begun, base, variance[()]) for known in inside], signed=signed)
    return exact, replace(pool, tick=last), pooled(history, signed=signed) if begun else None


def _from(known: Measured, begun: int, base: float, variance: float) -> Measured:
    """A measurement as it would be if the stream had begun with a later tick."""
    place = known.workload.marginals.index(())
    values, variances = known.values.copy(), known.variance.copy()
    values[known.workload.slice_of(())] -= base
    variances[place] = variance
    since = np.where(np.arange(known.since.size) == place, 0, known.since - begun)
    return replace(known, tick=known.tick - begun, values=values, variance=variances, since=since)


def _batches(builder: Builder, first: int, last: int) -> tuple[Measured, Population]:
    """The number of events in all batches together, and the rows that were fitted to each of them."""
    rows: Any = None
    totals: list[float] = []
    for tick in range(first, last + 1):
        (_, synthesizer), known = _own(builder, tick), _measured(builder, tick)
        models, seed = synthesizer.replay(known, {}), seed_of(builder.previous(tick + 1), "fit")
        rows = synthesizer.fit(known.tick, lambda _, known=known: known, rows, models, seed=seed)  # type: ignore[misc]
        totals.append(float(known.marginal(())[0]))
    found: Population = rows
    measured = Measured(
        tick=last,
        workload=Workload(sizes=found.workload.sizes, marginals=((),)),
        values=np.array([sum(totals)]),
        variance=_variance(builder, first, last)[[found.workload.marginals.index(())]],
        since=np.array([first]),
    )
    return measured, found
