"""From measurements of epochs to one estimate of every running table. Post-processing of released values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthstream.constraints import Group
from synthstream.fit.carried import Running, running_tables
from synthstream.fit.drift import parts_of, smooth
from synthstream.kinds import NEWEST, Edition
from synthstream.measured import Measured
from synthstream.workload import FloatArray, Workload

# Change between epochs counts as real only beyond this number of standard deviations of the noise.
_CAUTION = 1.0


class _Span(NamedTuple):
    """One table in one epoch: noisy number of events, noisy counts, variance of a count."""

    events: float
    values: FloatArray
    variance: float


def pooled(
    history: Sequence[Measured],
    *,
    signed: bool = False,
    edition: Edition = NEWEST,
    covariance: FloatArray | None = None,
    groups: Sequence[Group] = (),
) -> Measured:
    """Estimated running counts of every table that was ever measured, with their variances.

    From edition 2 on: see :mod:`synthstream.fit.drift` for tables of single columns, :mod:`synthstream.fit.carried` for
    others.

    Edition 1: a cell's share of the events is pooled over epochs, weighted by inverse variance, and spread over all
    events. Where epochs differ by more than noise explains, what they counted is kept as far as it stands out
    (empirical Bayes, one factor per table; see Morris 1983 for the method).

    Args:
        history: measurements of all ticks at which epochs ended, and of the newest tick, in order. Each holds the
            running total ``()``.
        signed: whether rows may take events away. An epoch's net number of events then says little about how many rows
            moved its counts: what stands out of its noise is judged by that epoch alone.
        edition: of the estimate.
        covariance: of the noise of the running totals at these ticks; left out: their variances alone. Edition 1 has no
            use for it.
        groups: public constraints.
    """
    if edition == 1:
        return _first(history, signed)
    return _drifting(history, covariance, groups if edition > 14 else (), edition)


def _drifting(
    history: Sequence[Measured], covariance: FloatArray | None, groups: Sequence[Group], edition: Edition
) -> Measured:
    """From edition 2 on."""
    now = history[-1]
    parts = parts_of(history, now.workload.sizes, covariance, steady=edition > 13)
    found = smooth(parts)
    tables: list[Running] = [
        Running((), np.array([max(parts.events.sum(), 0.0)]), float(now.variance[now.workload.place[()]]))
    ]
    for column, known in enumerate(parts.known):
        if known:
            own = found.running[parts.column == column]
            tables.append(Running((column,), own, float(found.variance[column])))
    tables += running_tables(parts, found, history, groups, moves=edition > 14)
    return Measured(
        tick=now.tick,
        workload=Workload(sizes=now.workload.sizes, marginals=tuple(marginal for marginal, *_ in tables)),
        values=np.concatenate([values for _, values, _ in tables]),
        variance=np.array([variance for *_, variance in tables]),
    )


def _first(history: Sequence[Measured], signed: bool) -> Measured:
    """Edition 1."""
    now = history[-1]
    totals = {m.tick: float(m.values[m.workload.slice_of(())][0]) for m in history}
    spans: dict[tuple[int, ...], list[_Span]] = {}
    for measured in history:
        for q, marginal in enumerate(measured.workload.marginals):
            if marginal:
                before = totals[int(measured.since[q]) - 1] if measured.since[q] else 0.0
                events = totals[measured.tick] - before
                events = events if signed and events < -1 else max(events, 1.0)
                values = measured.workload.table(measured.values, q).reshape(-1)
                span = _Span(events, values, max(float(measured.variance[q]), 1e-6))
                spans.setdefault(marginal, []).append(span)
    total = max(totals[now.tick], 0.0)
    marginals = sorted(spans, key=lambda marginal: (len(marginal), marginal))
    tables = [_running(spans[marginal], total, signed) for marginal in marginals]
    return Measured(
        tick=now.tick,
        workload=Workload(sizes=now.workload.sizes, marginals=((), *marginals)),
        values=np.concatenate([now.values[now.workload.slice_of(())], *(values for values, _ in tables)]),
        variance=np.array([now.variance[now.workload.place[()]], *(variance for _, variance in tables)]),
    )


def _running(spans: Sequence[_Span], total: float, signed: bool) -> tuple[FloatArray, float]:
    """Estimate of one table over ``total`` events, and its variance."""
    events = np.array([span.events for span in spans])
    values = np.array([span.values for span in spans])
    noise = np.array([span.variance for span in spans])
    precision = float(np.sum(events**2 / noise))
    share = (events / noise) @ values / precision
    away = values - events[:, None] * share
    # The pooled share was fitted to these epochs: each deviation lacks a part of its noise, its share of precision.
    left = 1 - events**2 / (noise * precision)
    kept = _kept_alone(away, noise, left) if signed else _kept(events, away, noise, left)
    # The part of an epoch's own count that is kept replaces the same part of the pooled count.
    estimate = total * share + kept @ away
    variance = float((total - kept @ events) ** 2 / precision + np.sum(kept**2 * noise))
    return np.asarray(estimate), variance


def _kept(events: FloatArray, away: FloatArray, noise: FloatArray, left: FloatArray) -> FloatArray:
    """Share of each epoch's deviation that is taken to be real, shape ``(epochs,)``.

    The variance of a cell's share between epochs is estimated by moments, each epoch weighted by its information.
    """
    cells = away.shape[1]
    weight = (events / noise) ** 2
    scale = cells * float(np.sum(weight * events**2))
    excess = float(np.sum(weight * (np.sum(away**2, axis=1) - cells * noise * left)))
    spread = np.sqrt(2 * cells * float(np.sum((weight * noise) ** 2)))
    drift = max(0.0, (excess - _CAUTION * spread) / scale)
    return np.asarray(events**2 * drift / (events**2 * drift + noise))


def _kept_alone(away: FloatArray, noise: FloatArray, left: FloatArray) -> FloatArray:
    """The same if the net number of events says little: from each epoch's own mean square, shape ``(epochs,)``."""
    explained = noise * left * (1 + _CAUTION * np.sqrt(2 / away.shape[1]))
    real = np.maximum(np.mean(away**2, axis=1) - explained, 0.0)
    return np.asarray(real / (real + noise))
