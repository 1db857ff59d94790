"""What rows should aim at, from noisy counts. :mod:`synthstream.fit.targets` has what it is made of.

A table is first moved so that its margins are the pooled ones, which removes the noise of its main effects. What is
left, the association between its columns, is shrunk towards independence by as much as its noise explains (empirical
Bayes). Codes that probably never occur are not raised above 0. What all pairs have in common is looked for in what the
shrinkage of each leaves. Associations may make a cell fall below 0: rows are the nearest thing that can be, and to push
each table there on its own would favour rare cells. Tables of an earlier tick are carried to this one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from synthstream.constraints import Group
from synthstream.fit.beyond import Found, Tables, beyond_noise, explained, freedom, prior, with_slopes
from synthstream.fit.changes import lately, standing_out, towards
from synthstream.fit.empty import emptied
from synthstream.fit.grids import with_grids
from synthstream.fit.joints import (
    Joint,
    came,
    estimate,
    evened_margins,
    lowered,
    nearer,
    use_margins,
    use_tables,
    with_joint_margins,
    with_news,
)
from synthstream.fit.nested import grids_of, nests_of, of_nests
from synthstream.fit.rare import possible_margins, within
from synthstream.fit.strengths import doubted
from synthstream.fit.targets import (
    LEFT,
    MEMORY,
    SMALLEST,
    Remembered,
    blend,
    drawn,
    independent_counts,
    independent_tables,
    lines,
    margins_of,
    of_columns,
    past_of,
    rescaled,
    total_of,
    usual,
    with_margins,
)
from synthstream.measured import Measured
from synthstream.workload import CodeArray, FloatArray, IntArray

# New events are taken to differ from those before by this share of them at most: tuned on streams that drift.
_CHANGE = 1 / 3


class Targets(NamedTuple):
    """What rows should aim at.

    Args:
        rows: number of rows.
        margins: for each column the expected number of rows per code, non-negative, summing to ``rows``.
        cells: expected counts over all cells of the workload, shape ``(cells,)``.
        errors: variance of the noise left in a cell of each marginal, shape ``(marginals,)``.
        joints: expected counts of the allowed combinations of each group of columns.
        events: number of rows, before it is rounded.
        alone: of each column, how little is known of what goes with it, from 0 to 1, shape ``(columns,)``.
        doubts: how far each marginal may be off, as a share of the variance of its noise, shape ``(marginals,)``.
        allowed: codes that rows may have in some columns, whatever they have in others.
    """

    rows: int
    margins: tuple[FloatArray, ...]
    cells: FloatArray
    errors: FloatArray
    joints: tuple[Joint, ...]
    events: float
    alone: FloatArray
    doubts: FloatArray
    allowed: Mapping[int, CodeArray] = MappingProxyType({})


class Earlier(NamedTuple):
    """What was measured at an earlier tick, and tables of several columns were last measured.

    Args:
        measured: all tables.
        shared: covariance of the noise of a cell then and now, shape ``(marginals,)``; of tables of several columns not
            needed.
        signed: whether rows may take events away.
        before: what was measured when larger tables were measured before that; ``None`` if never, or not looked at.
        window: whether these are not running counts, but those of a window, and of the ticks around it that larger
            tables count: of some codes there may be none now.
        groups: public constraints as they were then; ``None`` if they are the same.
        expected: of some columns, which shares codes are expected to have among the rows since, or in the window, shape
            ``(codes,)``.
    """

    measured: Measured
    shared: FloatArray
    signed: bool = False
    before: Measured | None = None
    window: bool = False
    groups: tuple[Group, ...] | None = None
    expected: Mapping[int, FloatArray] = MappingProxyType({})

    def of_rows(self, each: int) -> Earlier:
        """The same in rows, of which each stands for some number of events."""
        before = None if self.before is None else of_rows(self.before, each)
        return self._replace(measured=of_rows(self.measured, each), shared=self.shared / each**2, before=before)


def of_rows(measured: Measured, each: int) -> Measured:
    """What was measured, counted in rows, of which each stands for some number of events."""
    return replace(measured, values=measured.values / each, variance=measured.variance / each**2)


class _Known(NamedTuple):
    """What one measurement says.

    Args:
        total: number of events.
        counts: of each column's codes, noisy.
        variances: of each of these, by column: the noise that is left in it, and all that measurements since have.
        left: the same with as much of the noise since as was followed.
        margins: the same counts, as rows can have them.
        news: by position of a table, its association and the variance of that.
        joints: counts of the combinations of each group of constrained columns.
        alone, doubts: see :class:`Targets`.
    """

    total: float
    counts: list[FloatArray]
    variances: list[float]
    left: list[float]
    margins: list[FloatArray]
    news: dict[int, tuple[FloatArray, FloatArray]]
    joints: list[Joint]
    alone: FloatArray
    doubts: FloatArray


class _How(NamedTuple):
    """How tables are looked at: see :func:`aims`; ``left``: see :func:`synthstream.fit.ordered.shrunk`. Groups of one
    column stand for themselves in ``single``.
    """

    left: float
    groups: tuple[Group, ...]
    single: tuple[Group, ...]
    settled: bool
    taken: float

    @classmethod
    def of(cls, groups: Sequence[Group], left: float, settled: bool, taken: float) -> _How:
        one, several = (tuple(g for g in groups if (len(g.columns) == 1) is single) for single in (True, False))
        return cls(left, several, one, settled, taken)

    @property
    def allowed(self) -> dict[int, CodeArray]:
        """Codes that rows may have in some columns, whatever they have in others."""
        return {group.columns[0]: group.combinations[:, 0] for group in self.single}

    @property
    def pooled(self) -> bool:
        """Whether tables are those of epochs, of which each was shrunk by itself before."""
        return self.taken != 1.0


# What was measured, how it was looked at, and what is known of it.
_KEPT: list[tuple[Measured, _How, _Known]] = []


def aims(
    measured: Measured,
    *,
    start: CodeArray | None = None,
    counts: IntArray | None = None,
    memory: float = MEMORY,
    then: Earlier | None = None,
    groups: Sequence[Group] = (),
    settled: bool = True,
    taken: float = 1.0,
) -> Targets:
    """Estimate total, margins and tables; cells of tables may be below 0.

    Args:
        measured: noisy tables of any order.
        start: codes of the rows of the release before, shape ``(rows, columns)``.
        memory: share of past ticks that the rows remember, where nothing has changed.
        counts: of the rows of ``start``, over all cells of the workload; left out: they are counted.
        then: see :func:`synthstream.fit.population.fit`.
        groups: public constraints. Their columns' margins, and the tables within them, are those of their joint counts.
        settled: whether larger tables stay as they are for some ticks, so that rows leave cells that are more likely
            empty than not (:mod:`synthstream.fit.empty`). Where all are measured at every tick, each tick's noise would
            take other cells for empty.
        taken: variances of ``measured`` are so many times those of its errors: tables are shrunk less.
    """
    workload, left = measured.workload, LEFT if start is not None and len(start) else 1.0
    how = _How.of(groups, left, settled, taken)
    seen, look = (measured, how) if then is None else (then.measured, how)
    if then is not None and then.groups is not None:
        look = _How.of(then.groups, left, settled, taken)
    ever = None
    if start is not None and len(start) and math.isinf(memory):  # of a window
        ever = past_of(seen, start, max(0, round(total_of(seen))), memory, counts)
    known = _known(seen, look, ever, towards_it=then is None)
    if then is not None:
        known = _carried(known, measured, then, how)
    rows, shares, past = max(0, round(known.total)), known.margins, None
    if start is not None and len(start) and rows:
        past = past_of(measured, start, rows, memory, counts)
        single = {m[0] for m in workload.marginals if len(m) == 1}
        known, shares = _drawn(known, past, start, rows, single)
    cells, errors = np.empty(workload.cells), np.zeros(len(workload.marginals))
    for q in np.flatnonzero(workload.order < 2).tolist():
        marginal = workload.marginals[q]
        cells[workload.slice_at(q)] = shares[marginal[0]] if marginal else float(rows)
        errors[q] = known.variances[marginal[0]] if marginal else 0.0
    for alike in workload.alike(np.flatnonzero(workload.order == 2).tolist()):
        cells[workload.cells_of(alike)] = independent_counts(of_columns(shares, workload, alike), rows)
    for alike in workload.alike(known.news):
        at = workload.cells_of(alike).reshape(len(alike), -1)
        found, error = map(lines, zip(*(known.news[q] for q in alike), strict=True))
        errors[list(alike)] = error.mean(axis=1)
        if past is not None:
            before = lines(independent_counts(of_columns(past.margins, workload, alike), rows))
            found = blend(past.cells[at] - before, found, error, past.pull, freedom(workload.shapes[alike[0]]))
        cells[at] += found
    for joint in known.joints:
        use_tables(joint, workload, cells, rows)
    told = known.total, known.alone, known.doubts
    return Targets(rows, tuple(shares), cells, errors, tuple(known.joints), *told, how.allowed)


def _drawn(
    known: _Known, past: Remembered, start: CodeArray, rows: int, single: set[int]
) -> tuple[_Known, list[FloatArray]]:
    """Margins and joint counts, drawn to those of the rows before; ``single``: columns with a table of their own."""
    shares = drawn(past, known.margins, known.variances, rows)
    joints = [with_joint_margins(nearer(j, start, rows, past.pull), shares, single) for j in known.joints]
    use_margins(joints, shares)
    return known._replace(joints=joints), shares


def _known(measured: Measured, how: _How, ever: Remembered | None, *, towards_it: bool) -> _Known:
    """What tables say that were all measured at one tick.

    The newest answer is kept: until larger tables are measured again, each tick asks the same.

    Args:
        ever: rows of all events, if these are a window's: what goes together is as there, but for what stands out.
        towards_it: whether that is asked of margins, too, as far as noise explains what differs.
    """
    for then, same, found in _KEPT:
        known = np.array_equal(then.values, measured.values) and np.array_equal(then.variance, measured.variance)
        if ever is None and known and then.workload == measured.workload and same == how:
            return found
    variance = np.maximum(measured.variance, SMALLEST)
    total = total_of(measured)
    rows = max(0, round(total))
    counts, variances = margins_of(measured, total)
    calm, errors = evened_margins((*how.groups, *how.single), counts, [error / how.taken for error in variances])
    noises = [error * how.taken for error in errors]
    margins = within(how.allowed, possible_margins(calm, noises, rows), rows)
    told = with_grids(how.groups, calm, errors, rows, summed=not how.pooled)
    looked = measured.workload, measured.values, variance, told, noises, rows, how.taken
    joints = [estimate(group, *looked) for group in how.groups]
    if rows:
        # That no combination is below 0 raises each of those that hold little, and all of them together a whole margin.
        said = {m[0]: (told[m[0]], errors[m[0]]) for m in measured.workload.marginals if len(m) == 1}
        # Where epochs are pooled one factor for all cells is nearer (decision 48).
        joints = [with_news(joint, said, math.inf, rows, by_cell=not how.pooled) for joint in joints]
        joints = lowered(joints, calm, noises, margins, rows)
    use_margins(joints, calm, margins)
    none = Found(), np.zeros(len(margins)), np.ones(len(measured.workload.marginals))
    at = drawn(ever, margins, noises, rows) if ever is not None and towards_it else margins
    news, alone, doubts = _associations(measured, variance, at, rows, how, ever) if rows else none
    found = _Known(total, calm, noises, noises, margins, news, joints, alone, doubts)
    if ever is None:
        _KEPT[:] = [(measured, how, found)]
    return found


def _carried(known: _Known, measured: Measured, then: Earlier, how: _How) -> _Known:
    """What was known of all tables, moved by what the total and the tables of one column have changed since.

    All tables together knew more of a column, P, than its own table, E. Now its table says E'. With c the covariance of
    E and E', E' + c / var(E) (P - E) has the least variance. So it is with the total, of which each of these tables has
    the sum. What they say is drawn towards what was known, grown in proportion to the ticks, or to the total, as far as
    noise explains the difference (James and Stein 1961). The total of a window is drawn to nothing.
    """
    workload, before = measured.workload, then.measured
    pull = then.shared / np.maximum(before.variance, SMALLEST)
    noises = np.maximum(measured.variance - pull**2 * before.variance, SMALLEST)
    now, past = (np.add.reduceat(m.values, workload.offsets[:-1]) for m in (measured, before))
    weight = (workload.order < 2) / (noises * workload.lengths)
    steady = known.total * (measured.tick + 1) / (before.tick + 1)
    found = float(np.sum(weight * (now + pull * (known.total - past))) / np.sum(weight))
    total = found if then.window else steady + standing_out(np.array([found - steady]), 1 / float(np.sum(weight)))[0]
    rows, counts, variances, said = max(0, round(total)), list(known.counts), list(known.variances), {}
    new, left = total - known.total, list(known.left)
    # Where rows only come, no count has changed by more than have come, and hardly by more than a part of them.
    most = math.inf if then.signed or then.window else (_CHANGE * new) ** 2
    coming = [] if then.before is None else lately(known.total, known.counts, known.variances, then.before)
    for q, marginal in enumerate(workload.marginals):
        if len(marginal) != 1:
            continue
        part, (c,), noise = workload.slice_of(marginal), marginal, float(noises[q])
        news = measured.values[part] + pull[q] * (counts[c] - before.values[part])
        grown = counts[c] * (max(total, 1.0) / max(known.total, 1.0))
        like = then.expected.get(c, coming[c] if coming else None)
        if like is not None and then.window:
            news, grown = measured.values[part], total * like
        elif like is not None and new > 0:
            grown = towards(news, grown, counts[c] + new * like, noise)
        gap = news - grown
        followed = standing_out(gap, noise, most, grown)
        moved = grown + followed
        counts[c] = moved + (total - moved.sum()) / moved.size
        variances[c] += noise
        # Noise of what is not followed is not in the counts either.
        left[c] += noise * float(np.mean(followed / np.where(gap == 0, 1.0, gap)))
        said[c] = news, noise
    margins, carried = within(how.allowed, possible_margins(counts, left, rows), rows), {}
    joints = [came(j, g, new, then.expected) for j, g in zip(known.joints, how.groups, strict=True)]
    none = [j._replace(counts=np.zeros(j.group.number)) for j in joints]
    joints = [with_news(joint, said, most, rows, by_cell=True) for joint in joints] if rows else none
    use_margins(joints, counts, margins)
    base = dict(independent_tables(workload, known.news, known.margins, max(0, round(known.total))))
    # A window may have many more events than its larger tables count.
    more = max(rows / max(known.total, 1.0), 1.0) if then.window else 1.0
    for q, now in independent_tables(workload, known.news, margins, rows):
        factor = rescaled(np.full_like(now, more), more * base[q], now, 0.0 if then.window else 0.5)
        association, error = known.news[q]
        carried[q] = association * factor, error * factor**2
    return _Known(total, counts, variances, left, margins, carried, joints, known.alone, known.doubts)


def _associations(
    measured: Measured,
    variance: FloatArray,
    margins: Sequence[FloatArray],
    rows: int,
    how: _How,
    ever: Remembered | None,
) -> tuple[Found, FloatArray, FloatArray]:
    """What tables hold beyond independent columns, and the variance of its noise, by position; for each column the
    share of that which noise explains, in standard deviations; and how far each marginal may be off.

    Slopes that many tables have in common are taken out first where all is known better for it. Tables of nested grids
    say it together. Of a window, all this is asked of how it differs from what has been ever, of grids table by table.
    """
    workload, whole = measured.workload, dict[int, FloatArray]()
    larger = np.flatnonzero(workload.order == 2).tolist()
    for alike in workload.alike(larger):
        own, cells = of_columns(margins, workload, alike), measured.values[workload.cells_of(alike)]
        whole |= zip(alike, with_margins(cells, own) - independent_counts(own, rows), strict=True)
    noises = {q: float(variance[q]) * freedom(workload.shapes[q]) / whole[q].size for q in larger}
    priors = [prior(margin / rows) for margin in margins]
    tables = Tables(workload, variance, noises, margins, priors, rows, how.left, not how.pooled)
    grids = grids_of(how.groups)
    # With a column of one code nothing goes together.
    free = {q: whole[q] for q in larger if noises[q] > 0}
    as_ever = {} if ever is None else dict(usual(ever, workload, free, margins, rows))
    free |= {q: free[q] - one for q, one in as_ever.items()}
    plain = {q: a for q, a in free.items() if grids.isdisjoint(workload.marginals[q])}
    best, doubts = beyond_noise(plain, tables), np.ones(len(workload.marginals))
    if not how.pooled:
        joined = [set(group.columns) for group in how.groups]
        looked = {q: a for q, a in plain.items() if not any(one.issuperset(workload.marginals[q]) for one in joined)}
        best = with_slopes(looked, plain, tables, best)
        if not grids:
            for q, doubt in doubted({q: best.doubts[q] for q in looked}).items():
                doubts[q] = doubt
    found = best.found
    if grids:
        crossed = {q: a for q, a in free.items() if q not in plain}
        found |= beyond_noise(crossed, tables._replace(together=False)).found
    nests = nests_of(workload, how.groups) if ever is None else []
    for q, mean, error in of_nests(nests, whole, tables):
        found[q] = mean, error
    found |= {q: (found[q][0] + one, found[q][1]) for q, one in as_ever.items()}
    alone = explained(found, workload, how.taken)
    alone[[c for q in best.shared.means for c in workload.marginals[q]]] = 0.0
    if how.settled:
        for q, independent in independent_tables(workload, plain, margins, rows):
            mean, error = found[q]
            found[q] = emptied(mean, whole[q], independent, noises[q] / how.taken), error
    return found, alone, doubts
