"""What was measured of the events of some ticks alone, and rows for it: for each way of measuring tables.

All of it is post-processing of what was published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthstream.constraints import Group
from synthstream.errors import NotReleased
from synthstream.fit.aims import Earlier
from synthstream.fit.changes import standing_out
from synthstream.fit.population import Population
from synthstream.fit.targets import total_of
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.tables import Refreshed
from synthstream.measured import Measured
from synthstream.release.comparing import between_spans
from synthstream.release.rows import RowModel
from synthstream.release.series import only
from synthstream.schema.dates import Dates
from synthstream.strategies.times import Refreshes
from synthstream.synthesizers.contract import Synthesizer, WindowAsked, Windowed
from synthstream.synthesizers.fitting import RowFitting
from synthstream.workload import CodeArray, FloatArray, Workload

# Rows of a window keep the shares of all events up to its end, except where the window's own measurement stands out of
# its noise. So they remember past ticks without end.
_ALL = np.inf
# Events are taken to have come in time unless more than so many standard errors of them are late.
_SURE = 2.0
# Weekdays that a bin has by itself must have so large a part of its share of a window.
_WITHIN = 0.5
# So many dates are named where a window has to begin and end with epochs.
_NAMED = 12


def of_running_counts(asked: WindowAsked, how: RowFitting) -> Windowed[Measured, RowModel]:
    """Of tables that are all measured at every tick: the difference of running counts."""
    if asked.first < asked.cut:
        return _across_a_cut(asked, how)
    now: Measured = asked.whole(asked.last)
    own = _counted(asked, now)
    return Windowed(own, _rows(asked, how, own, now if asked.first else None))


def _counted(asked: WindowAsked, now: Measured) -> Measured:
    """The part of running counts, over columns that stayed the same, that came from the first tick on."""
    if asked.first == 0:
        return now
    before, values = asked.whole(asked.first - 1), now.values.copy()
    for marginal in before.workload.marginals:  # at a cut some are not recorded before
        values[now.workload.slice_of(marginal)] -= before.values[before.workload.slice_of(marginal)]
    since = np.full(len(now.workload.marginals), asked.first, dtype=np.int64)
    return replace(now, values=values, variance=asked.variance(), since=since, by_cell=None)


def _across_a_cut(asked: WindowAsked, how: RowFitting) -> Windowed[Measured, RowModel]:
    """The same where columns changed within the window: of the tables that were measured before it and at its end."""
    now = _running(asked.whole(asked.last), None)
    before = None if asked.first == 0 else _running(asked.whole(asked.first - 1), now.workload.marginals)
    tables = now.workload if before is None else before.workload
    places = [now.workload.place[m] for m in tables.marginals]
    own = only(now, places).values
    found = Measured(
        tick=asked.last,
        workload=tables,
        values=own if before is None else own - before.values,
        variance=asked.variance()[[asked.tables.index(m) for m in tables.marginals]],
        since=np.full(len(places), asked.first, dtype=np.int64),
    )
    return Windowed(found, _rows(asked, how, found, now if asked.first else None))


def _running(measured: Measured, among: tuple[tuple[int, ...], ...] | None) -> Measured:
    """Those of its tables that count all events up to its tick; of these, some."""
    whole = (measured.since == 0) & (measured.until == measured.tick)
    kept = [q for q, m in enumerate(measured.workload.marginals) if whole[q] and (among is None or m in among)]
    return only(measured, kept)


def between_refreshes(
    mechanism: Refreshed, came: Refreshes, asked: WindowAsked, ever: RowFitting
) -> Windowed[Measured, RowModel]:
    """Of tables of which larger ones are measured at refreshes: these are counted between the nearest ones.

    They are widened to whole spans between refreshes of the last segment, except that a window after the newest one
    ends with it.

    Args:
        came: refreshes of the last segment up to the newest release.
        ever: how rows are fitted, at any tick.
    """
    first, last = asked.first, asked.last
    how = ever.at(last - asked.start)
    if first < asked.cut:
        return _across_a_cut(asked, how)
    at, workload, ends = asked.start, mechanism.workload, came.ticks
    until = next((end for end in ends if at + end >= last), ends[-1])
    after = max((end for end in ends if at + end < first and end < until), default=-1)
    values, variance = asked.own(at + until).values, mechanism.variance(until, came)
    if after >= 0:
        values = values - asked.own(at + after).values
        variance = variance + mechanism.variance(after, came) - 2 * mechanism.covariance(after, until, came)
    variance = np.maximum(variance, 0.0)
    small = _counted(asked, asked.whole(last))
    place, single = workload.slice_of(()), mechanism.order < 2
    # Rows take the larger tables in proportion to the events of the window itself.
    ratio = float(max(small.values[place][0], 1.0) / max(values[place][0], 1.0))
    per_cell = np.repeat(single, workload.lengths)
    known = Measured(
        tick=last,
        workload=workload,
        values=np.where(per_cell, small.values, values),
        variance=np.where(single, small.variance, variance),
        since=np.where(single, first, at + after + 1),
        measured_at=np.where(single, last, at + until),
    )
    own = replace(
        known,
        values=np.where(per_cell, small.values, values * ratio),
        variance=np.where(single, known.variance, known.variance * ratio**2),
    )
    # Larger tables may count other ticks than the window: what goes together is carried to what its own tables say.
    shared = between_spans(partial(mechanism.covariance, came=came), (first - at, last - at), (after + 1, until))
    known_then = Measured(tick=last, workload=workload, values=values, variance=variance)
    then = Earlier(known_then, shared, window=True, groups=ever.at(until).groups)
    whole = [end for end in ends if at + end <= last]
    all_of_it = asked.whole(at + whole[-1]) if first and whole else None
    return Windowed(known, _rows(asked, how, own, all_of_it, then, at + whole[-1] if whole else None))


def of_epochs(mechanism: Epochs, asked: WindowAsked, how: RowFitting) -> Windowed[Measured, RowModel]:
    """Of tables that are measured once an epoch: exact sums of whole epochs, and rows for their pooled estimate.

    Raises:
        NotReleased: the ticks are not whole epochs of one segment.
    """
    _refuse_broken_epochs(mechanism, asked)
    begun = asked.first - asked.start
    history = _parts(asked)
    inside = [known for known in history if known.tick >= begun]
    base: Measured | None = asked.own(asked.first - 1) if begun else None
    variance = dict(zip(mechanism.workload.marginals, asked.variance().tolist(), strict=True))
    ends = [known for known in inside if mechanism.times.ends(known.tick)]
    shared = (m for m in mechanism.workload.marginals if all(m in known.workload.marginals for known in ends))
    marginals = sorted(shared, key=len)
    values = []
    for marginal in filter(None, marginals):
        found = [known.marginal(marginal) for known in inside if marginal in known.workload.marginals]
        values.append(sum(counts.reshape(-1) for counts, _ in found))
        variance[marginal] = sum(error**2 for _, error in found)
    total = float(inside[-1].marginal(())[0]) - (float(base.marginal(())[0]) if base else 0.0)
    exact = Measured(
        tick=asked.last,
        workload=Workload(sizes=mechanism.workload.sizes, marginals=tuple(marginals)),
        values=np.concatenate([[total], *values]),
        variance=np.array([variance[m] for m in marginals]),
        since=np.full(len(marginals), asked.first, dtype=np.int64),
    )
    own = how if how.dates is None else how._replace(dates=how.dates.since(begun))
    pool = own.pooled([_from(known, begun, base, variance[()]) for known in inside])
    all_of_it = how.pooled(history) if begun else None
    return Windowed(exact, _rows(asked, how, replace(pool, tick=asked.last), all_of_it))


def of_batches(made: Synthesizer, asked: WindowAsked) -> Windowed[Measured, RowModel]:
    """Of ticks whose rows are fitted apart: their number in all, and the rows that were fitted to each of them."""
    if asked.first < asked.cut:
        raise NotReleased(
            f"between: the columns changed at {asked.begins(asked.cut)}, and each tick's rows were fitted apart. Ask "
            "for windows on both sides of it."
        )
    rows: Any = None
    totals: list[float] = []
    for tick in range(asked.first, asked.last + 1):
        known = asked.own(tick)
        models = made.replay(known, {})
        rows = made.fit(known.tick, lambda _, known=known: known, rows, models, seed=asked.seed_at(tick))  # type: ignore[misc]
        totals.append(float(known.marginal(())[0]))
    found: Population = rows
    measured = Measured(
        tick=asked.last,
        workload=Workload(sizes=found.workload.sizes, marginals=((),)),
        values=np.array([sum(totals)]),
        variance=asked.variance()[[found.workload.place[()]]],
        since=np.array([asked.first]),
    )
    return Windowed(measured, found)


def _rows(
    asked: WindowAsked,
    how: RowFitting,
    own: Measured,
    all_of_it: Measured | None,
    then: Earlier | None = None,
    until: int | None = None,
) -> Population:
    """Rows for a window's measurement, near the shares of all events up to its end.

    Noise is as large for a month as for years, and would drown it. So rows begin as those of all events, and move where
    the window's own measurement stands out of its noise (the same empirical Bayes step as between releases).

    Args:
        all_of_it: what was measured of all events up to the window's end; ``None`` if they are the window's own.
        then: what was measured of the ticks that larger tables count, if these are not those of the window: rows go
            from all events to theirs, and from theirs to the window's.
        until: the tick of ``all_of_it``; ``None`` if that is the window's last one.
    """
    fitted = partial(how.fit, seed=asked.seed)
    if all_of_it is None or (rows := fitted(all_of_it, memory=0.0)).number == 0:
        # As a release is at a refresh.
        return fitted(own, memory=0.0, then=then, fresh=None if then is None else True)
    start = rows
    if then is not None:
        beside = fitted(then.measured, start=rows, memory=_ALL)
        start = beside if beside.number else rows
    start, dated = _dated(start, rows, all_of_it, own, how, asked, until)
    if then is not None:
        then = then._replace(expected=dated)
    return fitted(own, start=start, memory=_ALL, then=then)


def _dated(
    start: Population,
    rows: Population,
    known: Measured,
    own: Measured,
    how: RowFitting,
    asked: WindowAsked,
    until: int | None,
) -> tuple[Population, dict[int, FloatArray]]:
    """Rows of which most are dated within the window: all but a share that is late by what was measured of the window,
    as far as noise does not explain it. And the shares that codes have then, by column.

    Args:
        rows, known: of all events up to a tick, ``until``, or to the window's last one.
    """
    if (dates := how.dates) is None:
        return start, {}
    codes, rng, told = start.codes, np.random.default_rng([asked.seed, 1]), list[int]()
    tied = {c: group for group in how.groups for c in group.columns}
    in_window = _in_window(dates, how, rows, known, asked, asked.last if until is None else until)
    # Of columns that a constraint ties, bins come before parts of the calendar, and fine ones before coarse ones.
    for c in sorted(in_window, key=lambda c: (c in dates.parts, -in_window[c][0].size)):
        (shares, held), group = in_window[c], tied.get(c, Group.of([c], np.arange(in_window[c][0].size)))
        if (c,) not in own.workload.place or not shares.any():
            continue
        told.append(c)
        if not {*told[:-1]}.isdisjoint(group.columns):
            continue  # it follows
        late = np.flatnonzero(~held[codes[:, c]])
        in_time = len(codes) - min(late.size, round(len(codes) * _late(own, c, held)))
        made = [codes[rng.choice(late, size=len(codes) - in_time, replace=False)]]
        fits = _in_time(group, in_window)
        there_too = fits[group.places(codes)]
        for code, number in enumerate(rng.multinomial(in_time, shares / shares.sum()).tolist()):
            there = rng.permutation(np.flatnonzero((codes[:, c] == code) & there_too))[:number]
            more = codes[rng.integers(len(codes), size=number - there.size)]
            like = codes[rng.permutation(there)][:, list(group.columns)] if there.size else _like(group, c, code, fits)
            if len(like):
                more[:, list(group.columns)] = like[np.arange(len(more)) % len(like)]
            made.append(np.concatenate([codes[there], more]))
            if number and (likely := _beyond(group, c, code, fits, in_window)) is not None:
                drawn = rng.choice(group.number, size=number, p=likely)
                made[-1][:, list(group.columns)] = group.combinations[drawn]
        codes = np.concatenate(made)
    counts = {c: np.bincount(codes[:, c], minlength=in_window[c][0].size) for c in told}
    return Population(workload=start.workload, codes=codes), {c: n / max(len(codes), 1) for c, n in counts.items()}


def _in_time(group: Group, in_window: Mapping[int, tuple[FloatArray, NDArray[np.bool_]]]) -> NDArray[np.bool_]:
    """Combinations of a group of which each code may be that of a row that came in time, shape ``(combinations,)``."""
    held = [
        in_window[c][1][codes] for c, codes in zip(group.columns, group.combinations.T, strict=True) if c in in_window
    ]
    return np.asarray(np.all(held, axis=0), dtype=np.bool_)


def _like(group: Group, column: int, code: int, fits: NDArray[np.bool_]) -> CodeArray:
    """Combinations with a code: of those that fit the usual ones, if there are any."""
    here = group.combinations[:, group.columns.index(column)] == code
    usual = np.ones_like(here) if group.usual is None else group.usual
    kept = next((some for some in (here & fits & usual, here & fits) if some.any()), here & usual)
    return np.asarray(group.combinations[kept], dtype=np.int32)


def _beyond(
    group: Group, column: int, code: int, fits: NDArray[np.bool_], in_window: Mapping[int, tuple[FloatArray, Any]]
) -> FloatArray | None:
    """How likely combinations with a code are if it is of a bin that holds more of the window than lies within it, and
    so goes with any weekday, shape ``(combinations,)``; ``None`` if it is not.
    """
    if group.usual is None or not {*group.columns} <= in_window.keys():
        return None
    here = fits & (group.combinations[:, group.columns.index(column)] == code)
    each = [in_window[c][0][k] for c, k in zip(group.columns, group.combinations.T, strict=True) if c != column]
    shares, likely = in_window[column][0], here * np.prod(each, axis=0)
    within = np.min(each, axis=0)[here & group.usual].sum()  # of a day that begins a month it is the month's share
    if within > _WITHIN * shares[code] / shares.sum() or not likely.any():
        return None
    return np.asarray(likely / likely.sum())


def _in_window(
    dates: Dates, how: RowFitting, rows: Population, known: Measured, asked: WindowAsked, until: int
) -> dict[int, tuple[FloatArray, NDArray[np.bool_]]]:
    """Of each column of dates, in what proportion rows of a window that come in time have its codes, and which may be.

    Bins until the end of what ``rows`` are of have as many as these say, as far as noise does not explain it.
    """
    first, last = asked.first - asked.start, asked.last - asked.start
    found = how.expected(first, last, known, (-asked.start, until - asked.start))
    told = dates.shares(first, until - asked.start) if until >= asked.first else {}
    each = total_of(known) / max(rows.number, 1)  # events that a row stands for
    for c in dates.columns:
        counted = told[c] > 0 if told else np.zeros(found[c].size, dtype=np.bool_)
        there = np.bincount(rows.codes[:, c], minlength=counted.size)[counted] * each
        if there.any() and found[c][counted].any() and (c,) in known.workload.place:
            even = there.sum() * found[c][counted] / found[c][counted].sum()
            now = np.maximum(even + standing_out(there - even, known.marginal((c,))[1] ** 2, expected=even), 0.0)
            found[c][counted] = found[c][counted].sum() * now / now.sum()
    return {
        c: (shares, time > 0)
        for (c, shares), time in zip(found.items(), dates.expected(first, last).values(), strict=True)
    }


def _late(own: Measured, column: int, held: NDArray[np.bool_]) -> float:
    """What share of the events lies in other codes than those of a column that are held, beyond noise."""
    (counts, error), (number, of_it) = own.marginal((column,)), own.marginal(())
    late = np.array([float(number) - float(np.sum(counts, where=held))])
    beyond = standing_out(late, _SURE**2 * (of_it**2 + error**2 * np.count_nonzero(held)))
    return min(max(float(beyond[0]) / max(float(number), 1.0), 0.0), 1.0)


def _refuse_broken_epochs(mechanism: Epochs, asked: WindowAsked) -> None:
    """Raise unless ticks are whole epochs of one segment: all tables but the total were measured over epochs alone."""
    at, times = asked.start, mechanism.times
    begun = asked.first - at
    if begun >= 0 and times.begin(begun) == begun and times.ends(asked.last - at):
        return
    begins = [at + t for t in range(asked.newest - at + 2) if times.begin(t) == t]
    dates = ", ".join(asked.begins(tick) for tick in begins[-_NAMED:])
    raise NotReleased(
        "between: this stream measures its tables once an epoch, so a window must begin and end with one. Choose two "
        f'of: {dates}. (Streams with measure = "always" have all windows, and so have those with "refresh".)'
    )


def _parts(asked: WindowAsked) -> list[Measured]:
    """What was measured at the end of each part of each epoch of the segment, up to the last tick, which ends one."""
    found, end = list[Measured](), asked.last
    while end >= asked.start:
        found.append(asked.own(end))
        end = asked.start + int(found[-1].since.max()) - 1
    return found[::-1]


def _from(known: Measured, begun: int, base: Measured | None, variance: float) -> Measured:
    """A measurement as it would be if the stream had begun after ``base``."""
    if base is None:
        return known
    place = known.workload.place[()]
    values, variances = known.values.copy(), known.variance.copy()
    values[known.workload.slice_of(())] -= base.marginal(())[0].reshape(-1)
    variances[place] = variance
    since = np.where(np.arange(known.since.size) == place, 0, known.since - begun)
    rows = None if known.rows is None or base.rows is None else known.rows - base.rows
    return replace(known, tick=known.tick - begun, values=values, variance=variances, since=since, rows=rows)
