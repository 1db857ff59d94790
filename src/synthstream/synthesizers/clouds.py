"""Masses of points from what was measured: up to a tick, and between two ticks. Post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from synthstream.fit.cloud import Cloud
from synthstream.fit.tree import Estimate, NodeReading, Span, masses
from synthstream.fit.walk import CAUTION
from synthstream.kernel.points import Points
from synthstream.measured import NUMBER, TreeMeasured

# Levels from which on two fits side by side are worth a thread.
_WORTH = 16
# Fewer events are none: with an epsilon of hundreds an epoch's number is off by 1e-150 or less, and masses of so few,
# made to add up to what the counter says, have errors beyond all floats.
_SOME = 1e-100


def cloud(history: Sequence[TreeMeasured], mechanism: Points) -> Cloud:
    """Masses fitted to all that a tick's estimate needs, and the tick's own measurement, in order."""
    now = history[-1]
    spans, unread = [*_spans(history, mechanism).values()], _unread(history, mechanism)
    return _fitted(spans, mechanism, now.total, now.total, now.variance, unread=unread)


def upper_cloud(history: Sequence[TreeMeasured], mechanism: Points) -> Cloud:
    """As :func:`cloud`, but only what the plan of the next epoch looks at: upper levels, without error bars."""
    now, upper = history[-1], mechanism.schedule.upper
    spans = [
        Span(events=span.events, readings={level: known for level, known in span.readings.items() if level < upper})
        for span in _spans(history, mechanism).values()
    ]
    return _fitted(spans, mechanism, now.total, now.total, now.variance, barred=False)


def cloud_between(before: Sequence[TreeMeasured], now: Sequence[TreeMeasured], mechanism: Points) -> Cloud:
    """Masses of the events between two ticks.

    Epochs that ended before inform the fit alone. The one that was open is divided: what came since is the difference
    of two readings, where both were taken, and their variances add up. If it has ended since, it informs the fit as a
    whole: of that more is known than of its part before.

    Args:
        before, now: what the estimates of both ticks need, and the ticks' own measurement, in order.
    """
    old, new = _spans(before, mechanism), _spans(now, mechanism)
    then, end = before[-1], now[-1]
    own = [span for begun, span in new.items() if begun > then.begun]
    if not then.closing:
        own = [_rest(old[then.begun], new[then.begun]), *own]
        if end.closing or end.begun > then.begun:
            old[then.begun] = new[then.begun]
    if own and sum(span.events for span in own) <= 0 < end.total - then.total:  # all of it below 0 by noise
        own[-1] = Span(events=end.total - then.total, readings=own[-1].readings)
    variance = then.variance + end.variance
    variance -= 2 * _covariance(then.tick, end.tick, mechanism)
    spans = [*old.values(), *own]
    unread = _unread(before, mechanism) + _unread(now, mechanism)
    return _fitted(
        spans, mechanism, end.total - then.total, end.total, max(variance, 0.0), since=len(old), unread=unread
    )


def _rest(before: Span, now: Span) -> Span:
    """What came in an epoch after it was looked at before."""
    events, readings = max(now.events - before.events, 0.0), dict[int, NodeReading]()
    for level, reading in now.readings.items():
        # An epoch that is open is read in all nodes of a level or in none.
        past = before.readings.get(level, NodeReading(np.zeros(2**level), 0.0, 0.0))
        if past.events == reading.events and np.array_equal(past.differences, reading.differences):
            continue  # nothing was read since
        missed = abs(now.events - reading.events) + abs(before.events - past.events)
        nodes = slice(None) if reading.nodes is None else reading.nodes
        known = reading.differences - past.differences[nodes]
        readings[level] = NodeReading(known, reading.variance + past.variance, events - missed, reading.nodes)
    return Span(events=events, readings=readings)


def _spans(history: Sequence[TreeMeasured], mechanism: Points) -> dict[float, Span]:
    """Epochs by the number of events before them, as it was when they began."""
    spans, ends, before, ended = dict[float, Span](), _ends(history), 0.0, None
    for measured in history:
        readings, counted = dict[int, NodeReading](), any(block.level == NUMBER for block in measured.blocks)
        # The last epoch may end with next to no events, of which nothing is read, as if it were open.
        if measured.closing and counted:
            events = ends[measured.tick] - before
        else:
            events = measured.total - before
            if ended is not None and measured.begun != before:
                events -= _shared(ended, measured, mechanism) * (measured.begun - before)
        if measured.closing:
            before, ended = ends[measured.tick], measured
        events = max(events, 0.0)
        if measured.begun in spans:
            readings |= spans[measured.begun].readings
        for block in measured.blocks:
            if block.level != NUMBER:
                readings[block.level] = NodeReading(block.values, block.variance, events, block.nodes)
        spans[measured.begun] = Span(events=events, readings=readings)
    return spans


def _unread(history: Sequence[TreeMeasured], mechanism: Points) -> float:
    """Variance of the number of events in the open epoch."""
    now = history[-1]
    if now.closing:
        return 0.0
    ended = next((measured for measured in reversed(history) if measured.closing), None)
    return now.variance - (0.0 if ended is None else _shared(ended, now, mechanism) ** 2 * ended.variance)


def _shared(ended: TreeMeasured, now: TreeMeasured, mechanism: Points) -> float:
    """How much of the counter's noise at an epoch's end is still there at a later tick."""
    return _covariance(ended.tick, now.tick, mechanism) / ended.variance if ended.variance else 0.0


def _covariance(s: int, t: int, mechanism: Points) -> float:
    """Of the noise of the numbers of events up to two ticks; 0 if they are public."""
    if mechanism.total is None:
        return 0.0
    return mechanism.total.covariance(s, t, multiplier=mechanism.scale(mechanism.parts[0]))


def _ends(history: Sequence[TreeMeasured]) -> dict[int, float]:
    """The number of events up to the tick at which each epoch ended, by what its counter said of it.

    Where an epoch's own number was read it is added to what was known before, and weighed against the counter: its
    noise is that of one epoch, and the counter's that of many ticks. Both are taken to be independent, though the
    counter's noise at several ends is not: the weights are not quite the best, and nothing is biased.
    """
    found, best, variance = dict[int, float](), 0.0, 0.0
    for measured in history:
        if not measured.closing:
            continue
        total, its = measured.total, measured.variance
        for block in measured.blocks:
            if block.level == NUMBER:
                best, variance = best + float(block.values[0]), variance + float(block.variance)
                share = variance / (variance + its) if variance else 0.0
                total, its = best + share * (total - best), variance * (1 - share)
        found[measured.tick], best, variance = total, total, its
    return found


def _fitted(
    spans: Sequence[Span],
    mechanism: Points,
    events: float,
    total: float,
    variance: float,
    *,
    since: int = 0,
    barred: bool = True,
    unread: float = 0.0,
) -> Cloud:
    """Masses that add up to a number of events, of epochs from ``since`` on.

    Args:
        total: number of events up to the last epoch, which says how deep the tree is.
        variance: of the noise of ``events``.
        barred: whether there are error bars, and the masses that they are about.
        unread: see :class:`Cloud`, ``open_variance``.
    """
    by_node = mechanism.schedule.by_node
    deepest = max(max(span.readings, default=-1) + 1 for span in spans)
    depth = deepest if by_node else max(mechanism.depth_of(total), deepest)
    partition = mechanism.partition
    where: dict[str, Any] = {"dimension": partition.dimension, "region": partition.region}
    own = spans[since:]
    unbounded = partial(masses, own, depth=depth, **where, shrink=False, bounded=False)
    # Chance makes no structure out of nodes that are read only where mass stands out of the noise.
    caution = 0.0 if by_node else CAUTION
    if mechanism.schedule.kind == "fixed":  # as it was proved
        fit = partial(masses, own, depth=depth, **where, shrink=False)
    else:
        fit = partial(masses, spans, depth=depth, **where, caution=caution, since=since)
    if not barred:
        fitted, unknown = fit(), np.full(2**depth, np.nan)
        plain = Estimate(unknown, unknown, 0.0)
    elif depth < _WORTH:
        plain, fitted = unbounded(), fit()
    else:
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(unbounded)
            fitted, plain = fit(), beside.result()
    _scale(fitted, plain, events, evenly=partition.region is None)
    return Cloud(
        partition=partition,
        masses=fitted.masses,
        plain=plain.masses,
        errors=(plain if since else fitted).errors,
        plain_errors=plain.errors,
        total_variance=variance,
        moving=fitted.moving,
        open_variance=unread,
        uneven=plain.uneven,
    )


def _scale(fitted: Estimate, plain: Estimate, events: float, *, evenly: bool) -> None:
    """Make masses add up to a number of events; in place: there may be millions.

    Args:
        plain: without shrinkage.
        evenly: whether what is missing of ``plain`` is spread over the box. Epochs are known better than the counter,
            whose noise is even over the box, as that of an epoch's own number is.
    """
    found = float(fitted.masses.sum())
    scale = max(events, 0.0) / found if found > _SOME else 0.0
    for estimate in (fitted,) if evenly else (plain, fitted):
        np.multiply(estimate.masses, scale, out=estimate.masses)
        np.multiply(estimate.errors, scale**2, out=estimate.errors)
    if evenly:
        np.add(plain.masses, (events - float(plain.masses.sum())) / plain.masses.size, out=plain.masses)
