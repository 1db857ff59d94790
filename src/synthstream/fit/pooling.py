"""From measurements of epochs to one estimate of every running table: associations are carried from epoch to epoch,
never shares.

A larger table is measured in some epochs alone. What its columns would give if they were independent in each part is
known for all of them (:mod:`synthstream.fit.drift`); what is measured beyond that, in relation to it, is the
association. It is one for all epochs, unless they differ by more than noise explains: then it takes a random walk.
Post-processing of released values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from synthstream.constraints import Group
from synthstream.fit.changes import as_often
from synthstream.fit.drift import Parts, Seen, Smooth, likelihoods, parts_of, smooth, smoothed
from synthstream.fit.joints import possible
from synthstream.fit.targets import simplex, sums_of
from synthstream.measured import Measured
from synthstream.workload import FloatArray, Workload

# The prior variance of a relative association is phi times a cell's share to this power, and never above what
# chi-square allows.
_POWER = -1.5
_PHIS = np.concatenate([[0.0], np.geomspace(1e-6, 1e-1, 16)])
# A target for a table that was never measured tells nothing if it is so near to independent columns, in relation to
# what an association may be.
_NEAR = 0.02
_SMALLEST = 1e-6
# Log likelihood that an association must gain over none, and one that moves over one that stays: Laplace noise has
# longer tails than normal noise.
_GAIN = 3.0
# Where an association moves, its prior variance is one of these, by that of one that stays, and that of a step from
# epoch to epoch one of these parts of it.
_WIDER, _STEPS = np.array([1.0, 4.0]), np.array([0.0, 0.03, 0.1, 0.3, 1.0])
# The weight of a table that seems known exactly is that of its own noise, divided by this, at most; and that of one
# that was never measured is what its prior says, times this.
_CERTAIN, _NEVER = 16.0, 4.0
# A running table whose margins are so many standard errors from the tables of single columns is off by that.
_CLEAR = 3.0
# What constraints leave of independent columns is brought to their margins so many times.
_SWEEPS = 3
# How often codes come again, and how many events each part would have if all came as often, are found by so many turns.
_TURNS = 10


class Looks(NamedTuple):
    """One larger table over all epochs; the last may be open.

    Args:
        alone: independent columns in each epoch, shape ``(epochs, cells)``.
        values: noisy counts, shape ``(ended, cells)``.
        variance: of these, shape ``(ended,)``; infinite where the table was not measured.
        weight: square of the share of all rows that each epoch holds in which it was, by its variance.
    """

    alone: FloatArray
    values: FloatArray
    variance: FloatArray
    weight: FloatArray


class Association(NamedTuple):
    """A running table, from the association of its columns: count = (1 + it) times what independent columns give.

    Args:
        counts: posterior mean, shape ``(cells,)``.
        variance: posterior variance, the same shape.
        phi: factor of the prior variance of the association.
        moves: whether it differs from epoch to epoch.
    """

    counts: FloatArray
    variance: FloatArray
    phi: float
    moves: bool = False


def prior(alone: FloatArray, shape: Sequence[int], phi: FloatArray | float) -> FloatArray:
    """Prior variance of the relative association of cells that hold ``alone`` events if columns are independent."""
    share = np.maximum(alone, 0.0) / max(float(alone.sum()), _SMALLEST) + _SMALLEST
    return np.asarray(np.minimum(phi * share**_POWER, (min(shape) - 1) / (alone.size * share)))


def association(looks: Looks, alone: FloatArray, shape: Sequence[int]) -> Association:
    """What was measured, less independent columns, is that many times these: one association for all epochs, or one for
    each, where that explains more.

    No count falls below 0 by it, nor rises above the number of events; of less than one event nothing is known.

    Args:
        alone: independent columns over all events, shape ``(cells,)``.
        shape: of the table.
    """
    if alone.sum() < 1:
        return Association(alone, np.zeros(alone.size), 0.0)
    ended, noise = looks.alone[: len(looks.values)], looks.variance[:, None]
    precision = np.sum(ended**2 / noise, axis=0)
    slope = np.sum(ended * (looks.values - ended) / noise, axis=0) / np.maximum(precision, 1e-300)
    before = prior(alone, shape, _PHIS[:, None])
    around = 1 + before * precision
    gain = (slope**2 * precision * (1 - 1 / around) - np.log(around)).sum(axis=1) / 2
    best = int(np.argmax(gain)) if gain.max() >= _GAIN else 0
    most = float(alone.sum()) / np.maximum(alone, _SMALLEST) - 1
    found = _moving(looks, before[best]) if best else None
    if found is not None:
        counts = np.sum(looks.alone * (1 + np.clip(found[0], -1, most)), axis=0)
        return Association(counts, found[1], float(_PHIS[best]), moves=True)
    values = np.clip(slope * (1 - 1 / around[best]), -1, most)
    return Association(alone * (1 + values), alone**2 * (before[best] / around[best]), float(_PHIS[best]))


def _moving(looks: Looks, before: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Association in each epoch, shape ``(epochs, cells)``, and the variance of the running counts, shape ``(cells,)``;
    ``None`` if one that stays, of prior variance ``before``, explains what was measured.
    """
    size = np.where(np.abs(looks.alone) < _SMALLEST, _SMALLEST, looks.alone)
    beyond = looks.values - looks.alone[: len(looks.values)]
    seen = Seen(size, beyond, np.broadcast_to(looks.variance[:, None], beyond.shape))
    spreads = np.repeat(_WIDER, _STEPS.size)[:, None] * before
    steps = np.tile(_STEPS, _WIDER.size)[:, None] * spreads
    start = np.zeros(before.size)
    gain = likelihoods(seen, start, spreads, steps).sum(axis=1)
    best = int(np.argmax(gain))
    if not steps[best].any() or gain[best] - gain[0] < _GAIN:
        return None
    return smoothed(seen, start, spreads[best], steps[best])


class Running(NamedTuple):
    """Estimate of a running table: its columns, counts of its cells, and the mean variance of their errors."""

    marginal: tuple[int, ...]
    values: FloatArray
    variance: float


def pooled(
    history: Sequence[Measured],
    *,
    covariance: FloatArray | None = None,
    groups: Sequence[Group] = (),
    expected: Callable[[int, int], Mapping[tuple[int, ...], FloatArray]] | None = None,
    again: Collection[int] = (),
) -> Measured:
    """Estimated running counts of every table that was ever measured, with their variances.

    See :mod:`synthstream.fit.drift` for tables of single columns.

    Args:
        history: measurements of all ticks at which epochs ended, and of the newest tick, in order. Each holds the
            running total ``()``.
        covariance: of the noise of the running totals at these ticks; left out: their variances alone.
        groups: public constraints.
        expected: of some tables of one column, the shares that cells are expected to have among the rows of ticks
            ``first..last``, flat: those are smoothed, from part to part, by which they differ from it. Of some tables
            of two, how these columns go together in each part, in place of independence.
        again: of these, columns whose codes come again and again, such as weekdays: how often rows have a code in so
            much of its time is seen in all parts, and expected of each, also in columns that a constraint ties to them.
    """
    now = history[-1]
    parts = parts_of(history, now.workload.sizes, covariance)
    ends = [*parts.ends.tolist(), *([now.tick] if parts.events.size > parts.ends.size else [])]
    spans = [] if expected is None else [expected(before + 1, end) for before, end in pairwise([-1, *ends])]
    told = {marginal: np.array([one[marginal] for one in spans]) for marginal in (spans[0] if spans else ())}
    found = _beside(parts, {m[0]: t for m, t in told.items() if len(m) == 1}, groups, again) if told else smooth(parts)
    tables: list[Running] = [
        Running((), np.array([max(parts.events.sum(), 0.0)]), float(now.variance[now.workload.place[()]]))
    ]
    for column, known in enumerate(parts.known):
        if known:
            own = found.running[parts.column == column]
            tables.append(Running((column,), own, float(found.variance[column])))
    tables += _larger_tables(parts, Independent(parts, found, groups, told), found, history)
    return Measured(
        tick=now.tick,
        workload=Workload(sizes=now.workload.sizes, marginals=tuple(marginal for marginal, *_ in tables)),
        values=np.concatenate([values for _, values, _ in tables]),
        variance=np.array([variance for *_, variance in tables]),
    )


def _beside(parts: Parts, time: Mapping[int, FloatArray], groups: Sequence[Group], again: Collection[int]) -> Smooth:
    """Smooth shares, of which some are expected to change from part to part: what they differ by is smoothed.

    Of the rows only so many are expected to lie there as did in all parts that were measured.
    """
    events, counted = parts.events, parts.ends.size
    known = _as_often(parts, time, groups, again)
    apart = np.zeros((events.size, parts.column.size))
    for column, there in known.items():
        here = parts.column == column
        seen = np.isfinite(parts.variance[:, here].max(axis=1))
        whole = float(events[:counted][seen].sum())
        lie = float(np.sum(parts.values[:, here][seen], where=there[:counted][seen] > 0))
        apart[:, here] = (there - 1 / there.shape[1]) * (min(max(lie / whole, 0.0), 1.0) if whole > 0 else 1.0)
    found = smooth(replace(parts, values=parts.values - (events[:, None] * apart)[:counted]))
    shares, steps = found.shares + apart, found.steps.copy()
    for column in known:
        here, steps[column] = parts.column == column, max(steps[column], _SMALLEST)
        shares[:, here] = simplex(shares[:, here], np.ones(len(shares)))
    return found._replace(shares=shares, steps=steps, running=events @ shares)


def _as_often(
    parts: Parts, time: Mapping[int, FloatArray], groups: Sequence[Group], again: Collection[int]
) -> dict[int, FloatArray]:
    """Expected shares, by column, with codes that come again as often as in all parts, as far as noise lets it be told;
    without columns of which the same is expected in all parts.

    Args:
        time: shares if events came evenly, shape ``(times, codes)``.
    """
    often, found = dict[int, FloatArray](), dict[int, FloatArray]()
    for column in again:
        here, often[column] = parts.column == column, np.ones(parts.sizes[column])
        seen = np.flatnonzero(np.isfinite(parts.variance[:, here].max(axis=1)))
        counts, noise = (each[seen][:, here].sum(axis=0) for each in (parts.values, parts.variance))
        for _ in range(_TURNS if seen.size else 0):
            # How many events of each part there would be if all codes came as often.
            alike = parts.events[seen] / np.maximum(time[column][seen] @ often[column], _SMALLEST)
            often[column] = as_often(counts, alike @ time[column][seen], float(noise.mean()))
    for column, shares in time.items():
        group = next((group for group in groups if column in group.columns), None)
        factor = often.get(column, 1.0 if group is None else group.product(column, parts.sizes[column], often))
        each = shares * factor
        each = np.where(each.any(axis=1, keepdims=True), each, shares)  # where nothing ever came, the time is all
        each *= shares.sum(axis=1, keepdims=True) / np.maximum(each.sum(axis=1, keepdims=True), _SMALLEST)
        if column not in again or np.ptp(each, axis=0).max() > _SMALLEST:
            found[column] = each
    return found


def _larger_tables(parts: Parts, independent: Independent, found: Smooth, history: Sequence[Measured]) -> list[Running]:
    """Estimates of larger running tables. Columns of a constraint, such as grids of a place, are independent in no
    part.

    How far an association moves is told by few epochs. So where it does, the variance of a table's error lies between
    what was found of it and what is usual of such tables, in the middle of their logarithms.
    """
    out, phis, moving = list[Running](), list[float](), list[int]()
    measured = {m for known in history for m in known.workload.marginals if len(m) > 1}
    for marginal in sorted(measured, key=lambda m: (len(m), m)):
        each = independent.parts(marginal)
        looks, alone = _looks(parts, each, marginal, history), each.sum(axis=0)
        known = association(looks, alone, [parts.sizes[c] for c in marginal])
        cells = alone.size if independent.group(marginal) is None else max(1, int(np.count_nonzero(alone)))
        error = max(float(np.sum(known.variance)) / cells, 1 / float(np.sum(looks.weight)) / _CERTAIN)
        error += _off(parts, found, marginal, known.counts, error)
        moving += [len(out)] if known.moves else []
        out.append(Running(marginal, known.counts, error))
        phis.append(known.phi)
    usual = float(np.median([out[q].variance for q in moving] or [0.0]))
    for q in moving:
        out[q] = out[q]._replace(variance=math.sqrt(out[q].variance * usual))
    least = float(np.median([table.variance for table in out] or found.variance))
    return out + _never_measured(parts, found, independent, measured, float(np.median(phis or [0.0])), least)


def _off(parts: Parts, found: Smooth, marginal: tuple[int, ...], counts: FloatArray, error: float) -> float:
    """Variance to add to that of a running table whose margins are clearly off what single columns say.

    These know all that epochs said of them, larger tables included.
    """
    table, more = counts.reshape([parts.sizes[c] for c in marginal]), 0.0
    for axis, column in enumerate(marginal):
        gap = sums_of(table, axis) - found.running[parts.column == column]
        cells = table.size / gap.size
        square, noise = float(np.mean(gap**2)), float(found.variance[column]) + error * cells
        if square > _CLEAR**2 * noise:
            more = max(more, (square - noise) / cells)
    return more


def _looks(parts: Parts, each: FloatArray, marginal: tuple[int, ...], history: Sequence[Measured]) -> Looks:
    """A table in all epochs; ``each``: independent columns in each part."""
    alone, values, variance, weight, begin = [], [], [], [], 0
    for last, measured in enumerate(history[: parts.ends.size]):
        if not any(len(m) > 1 for m in measured.workload.marginals):
            continue  # a part in an open epoch
        part, begin, q = slice(begin, last + 1), last + 1, measured.workload.place.get(marginal)
        alone.append(each[part].sum(axis=0))
        values.append(alone[-1] if q is None else measured.workload.table(measured.values, q).reshape(-1))
        variance.append(np.inf if q is None else max(float(measured.variance[q]), _SMALLEST))
        if q is not None:
            share = float(parts.size[part].sum() / parts.size.sum())
            weight.append(share * share / variance[-1])  # as numpy squares; powers of floats are the platform's
    alone.append(each[begin:].sum(axis=0))
    return Looks(np.array(alone), np.array(values), np.array(variance), np.array(weight))


def _never_measured(
    parts: Parts, found: Smooth, independent: Independent, known: set[tuple[int, ...]], phi: float, least: float
) -> list[Running]:
    """Pairs of columns that both drift depend on each other by their times alone, as far as is known."""
    out = []
    for marginal in combinations(np.flatnonzero(found.steps > 0).tolist(), 2):
        if marginal not in known and independent.group(marginal) is None:
            alone = independent.parts(marginal).sum(axis=0)
            shape = [parts.sizes[c] for c in marginal]
            unknown = float(np.mean(alone**2 * prior(alone, shape, phi)))
            told = float(np.mean((alone - independent.whole(marginal)) ** 2))
            if told > max(_NEAR * unknown, _SMALLEST):
                out.append(Running(marginal, alone, max(unknown * (1 + unknown / told) / _NEVER, least)))
    return out


class Independent:
    """What independent columns would give, part by part and over all.

    Args:
        parts, found: tables of single columns, and what is known of them.
        groups: public constraints; what they forbid is 0.
        told: of tables of one column and of two, which shares of the time of each part their cells have.
    """

    def __init__(
        self, parts: Parts, found: Smooth, groups: Sequence[Group], told: Mapping[tuple[int, ...], FloatArray]
    ) -> None:
        self._parts, self._found, self._groups, self._told = parts, found, groups, told
        self._codes = [parts.column == column for column in range(len(parts.sizes))]

    def group(self, marginal: Sequence[int]) -> Group | None:
        """The constraint that joins all of these columns."""
        return next((group for group in self._groups if {*marginal} <= {*group.columns}), None)

    def parts(self, marginal: Sequence[int]) -> FloatArray:
        """In each part, shape ``(times, cells)``; where rows may take away, by how much each part changed it."""
        shares, events = self._found.shares, self._parts.events
        if self._parts.rows is None:
            bounded = np.clip(shares, -1.0, 1.0)  # of a part with hardly any rows noise is far larger than they are
            return self._allowed(marginal, _product([bounded[:, self._codes[c]] for c in marginal], events))
        counts = np.maximum(np.cumsum(shares * self._parts.size[:, None], axis=0), 0.0)
        there = np.maximum(np.cumsum(events), 0.0)
        own = [_shares(counts[:, self._codes[c]]) for c in marginal]
        return np.diff(self._allowed(marginal, _product(own, there)), axis=0, prepend=0.0)

    def whole(self, marginal: Sequence[int]) -> FloatArray:
        """Over all events at once, shape ``(cells,)``."""
        own = [_shares(np.maximum(self._found.running[None, self._codes[c]], 0.0)) for c in marginal]
        return np.asarray(_product(own, np.maximum(self._parts.events.sum(keepdims=True), 0.0))[0])

    def _allowed(self, marginal: Sequence[int], tables: FloatArray) -> FloatArray:
        """What constraints, and the time of each part, leave of tables, shape ``(times, cells)``, with the same margins
        as far as can be. Source: iterative proportional fitting (Deming and Stephan 1940).
        """
        group, shape = self.group(marginal), [self._parts.sizes[c] for c in marginal]
        if group is not None:
            factor = possible(group, marginal, shape)
        elif tuple(marginal) in self._told:
            apart = _product([self._told[c,] for c in marginal], np.ones(len(tables)))
            factor = np.where(apart > 0, self._told[tuple(marginal)] / np.where(apart > 0, apart, 1.0), 1.0)
        else:
            return tables
        wanted = np.maximum(tables, 0.0).reshape(-1, *shape)
        left = wanted * factor.reshape(-1, *shape)
        for axis in [*range(1, left.ndim)] * _SWEEPS:
            others = tuple(a for a in range(1, left.ndim) if a != axis)
            sums = left.sum(axis=others, keepdims=True)
            left *= wanted.sum(axis=others, keepdims=True) / np.maximum(sums, _SMALLEST)
        return np.asarray(left.reshape(tables.shape))


def _shares(counts: FloatArray) -> FloatArray:
    """Counts by their sum, row by row."""
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), _SMALLEST))


def _product(shares: Sequence[FloatArray], events: FloatArray) -> FloatArray:
    """Tables of independent columns with these shares, shape ``(times, cells)``."""
    out = events[:, None]
    for share in shares:
        out = (out[:, :, None] * share[:, None, :]).reshape(len(events), -1)
    return out
