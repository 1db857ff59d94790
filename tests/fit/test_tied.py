"""Columns of which one follows from the other, as weekdays from days: coarse ones tell of fine ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from synthstream.constraints import Group, joined
from synthstream.fit.aims import Earlier, aims
from synthstream.fit.drift import parts_of
from synthstream.fit.joints import Joint, came, estimate, evened_margins, outlined, spread, with_news
from synthstream.fit.ordered import evened
from synthstream.fit.pooling import _as_often, pooled
from synthstream.measured import Measured
from synthstream.workload import FloatArray, Workload

# Ten weeks of seven days. The first day and the last hold what lies beyond, too.
DAYS, WEEK = 70, 7
PLAIN = [(day, day % WEEK) for day in range(DAYS)]
BEYOND = [(day, weekday) for day in (0, DAYS - 1) for weekday in range(WEEK) if weekday != day % WEEK]
GROUP = Group.of([0, 1], np.array(PLAIN + BEYOND), usual=np.arange(len(PLAIN) + len(BEYOND)) < DAYS)
TIED = Group.of([0, 1], np.array(PLAIN))
WORKLOAD = Workload.all_up_to(2, sizes=(DAYS, WEEK))
WEEKENDS = np.where(np.arange(DAYS) % WEEK >= 5, 50.0, 100.0)


def table(days: FloatArray = WEEKENDS, beyond: float = 0.0) -> FloatArray:
    """Events by day and weekday; so many more on the last day, of all weekdays."""
    found = np.zeros((DAYS, WEEK))
    found[np.arange(DAYS), np.arange(DAYS) % WEEK] = days
    found[-1] += beyond
    return found


def measured(exact: FloatArray, sigma: float, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    values = np.concatenate([[exact.sum()], exact.sum(1), exact.sum(0), exact.ravel()])
    return values + rng.normal(0, sigma, values.size), np.full(4, sigma**2)


@pytest.mark.parametrize(("beyond", "unusual"), [(0.0, False), (80.0, True)])
def test_unusual_combinations_have_rows_only_where_counts_clearly_say_so(beyond: float, unusual: bool) -> None:
    """Else noise of weekdays would find its way to the one day that may have any of them."""
    exact = table(beyond=beyond)
    values, variance = measured(exact, 10.0)
    margins = [values[1 : 1 + DAYS], values[1 + DAYS : 1 + DAYS + WEEK]]
    found = estimate(GROUP, WORKLOAD, values, variance, margins, [100.0, 100.0], round(exact.sum()))
    assert found.group == (GROUP if unusual else TIED)
    assert GROUP.usual is not None
    if unusual:
        assert found.counts[~GROUP.usual].sum() == pytest.approx(beyond * (WEEK - 1), abs=120)
    nobody = Joint(GROUP, np.where(GROUP.combinations[:, 0] == 0, 0.0, 1.0), 1.0)
    days = np.ones(DAYS)
    moved = nobody.moved(0, days)  # of a day without rows combinations have equal parts, but for unusual ones
    assert moved.counts[(GROUP.combinations[:, 0] == 0) & ~GROUP.usual].sum() == 0
    assert moved.table((0,), (DAYS,))[0] > 0


def test_what_is_unusual_is_so_beside_other_constraints() -> None:
    other = Group.of([1, 2], np.array([[weekday, int(weekday >= 5)] for weekday in range(WEEK)]))
    early = Group.of([0], np.arange(3)[:, None])
    (found,) = joined([GROUP, other, early])
    assert found.usual is not None
    assert found.as_usual.combinations.tolist() == [[day, day, 0] for day in range(3)]
    assert found.number == 3 + WEEK - 1
    assert found.as_usual.as_usual is found.as_usual
    (turned,) = joined([early, other, GROUP])
    assert turned.as_usual.combinations.tolist() == found.as_usual.combinations.tolist()


@pytest.mark.parametrize(("taken", "unusual"), [(1.0, False), (16.0, True)])
def test_unusual_combinations_are_held_against_errors_as_they_are(taken: float, unusual: bool) -> None:
    """Variances that are said to be so many times those of errors hide nothing."""
    exact = table(beyond=80.0)
    values, variance = measured(exact, 10.0)
    margins = [values[1 : 1 + DAYS], values[1 + DAYS : 1 + DAYS + WEEK]]
    wide = 64 * variance
    found = estimate(GROUP, WORKLOAD, values, wide, margins, [6400.0] * 2, round(exact.sum()), taken)
    assert (found.group == GROUP) == unusual


def test_the_finest_column_says_what_comes() -> None:
    """Weekdays come first here."""
    turned = Group.of([0, 1], np.array(PLAIN)[:, ::-1])
    days = np.arange(DAYS) == 8
    grown = came(Joint(turned, np.zeros(DAYS), 1.0), turned, 40.0, {0: np.ones(WEEK) / WEEK, 1: days * 1.0})
    assert grown.table((1,), (DAYS,)).tolist() == (40.0 * days).tolist()


def test_all_coarser_columns_are_heeded() -> None:
    """Weekdays, and halves of the time that have not as many of each: what one says takes nothing from the other."""
    group = Group.of([0, 1, 2], np.array([(day, day % WEEK, int(day >= 31)) for day in range(DAYS)]))
    true = WEEKENDS * np.where(np.arange(DAYS) >= 31, 9.0, 1.0) * np.where(np.arange(DAYS) % WEEK == 3, 0.01, 1.0)
    counts = [true, np.bincount(np.arange(DAYS) % WEEK, weights=true), np.array([true[:31].sum(), true[31:].sum()])]
    found = outlined(group, 0, counts)
    assert found is not None
    assert found * (true.sum() / found.sum()) == pytest.approx(true, rel=1e-4)


def test_days_are_alike_beside_what_weekdays_say() -> None:
    """Weekends with a twentieth of the events make days differ by more than half of their mean."""
    rng, outline = np.random.default_rng(0), np.where(np.arange(DAYS) % WEEK >= 4, 5.0, 100.0)
    noisy = outline + rng.normal(0, 10, DAYS)
    found, left = evened(noisy, 100.0, outline=outline)
    assert np.abs(found - outline).mean() < 0.5 * np.abs(noisy - outline).mean()
    assert left < 100.0
    assert evened(noisy, 100.0)[0].tolist() == noisy.tolist()


def test_a_group_of_unusual_combinations_alone_keeps_these() -> None:
    """Somebody forbade all others: rows need some combination."""
    (found,) = joined([GROUP, Group.of([0, 1], np.array(BEYOND))])
    assert found.as_usual is found
    assert found.number == len(BEYOND)


def test_where_nothing_was_measured_yet_unusual_combinations_have_no_rows() -> None:
    """Rows that come before the next look have equal parts of the others."""
    none = estimate(GROUP, WORKLOAD, np.zeros(WORKLOAD.cells), np.ones(4), [np.zeros(DAYS), np.zeros(WEEK)], [1, 1], 0)
    grown = with_news(came(none, GROUP, 70.0, {}), {}, math.inf, 70, by_cell=True)
    assert grown.group == TIED
    assert grown.counts.tolist() == [1.0] * DAYS


def test_factors_of_tied_codes() -> None:
    weekdays = np.where(np.arange(WEEK) >= 5, 0.5, 1.0)
    for group in (TIED, GROUP):
        assert group.product(0, DAYS, {1: weekdays, 7: np.zeros(2)}).tolist() == (WEEKENDS / 100).tolist()
    early = Group.of([0, 1], np.array(PLAIN[:5]))
    assert early.product(1, WEEK, {0: 2 * np.ones(DAYS)}).tolist() == [2.0] * 5 + [1.0] * 2


def test_days_are_evened_around_what_weekdays_say() -> None:
    """Of alike days the mean is taken else, and weekends would be as full as other days."""
    values, _ = measured(table(), 40.0)
    days, weekdays = values[1 : 1 + DAYS], values[1 + DAYS : 1 + DAYS + WEEK]
    (alone, _), _ = evened_margins([], [days, weekdays], [1600.0, 1600.0])
    (found, left), noises = evened_margins([TIED], [days, weekdays], [1600.0, 1600.0])
    errors = [float(np.abs(one - WEEKENDS).mean()) for one in (days, alone, found)]
    assert errors[2] < 0.6 * min(errors[:2])
    assert noises[0] < 400
    assert left.tolist() == weekdays.tolist()  # too few to be evened
    assert outlined(TIED, 1, [days, weekdays]) is None
    empty = outlined(TIED, 0, [days, -np.ones(WEEK)])  # no weekday has rows: nothing is told
    assert empty is not None
    assert np.ptp(empty) == 0


def test_rows_that_came_have_the_days_since() -> None:
    """Two weeks were known, and three days have passed since."""
    early = Group.of([0, 1], np.array(PLAIN[:14]))
    late = Group.of([0, 1], np.array(PLAIN[:17]))
    known = Joint(early, WEEKENDS[:14].copy(), 1.0)
    expected = np.zeros(DAYS)
    expected[14:17] = [0.5, 0.25, 0.25]
    grown = came(known, late, 40.0, {0: expected, 3: np.ones(2)})
    assert grown.counts.tolist() == [*WEEKENDS[:14], 20.0, 10.0, 10.0]
    assert came(known, late, 40.0, {3: np.ones(2)}).counts.tolist() == [*WEEKENDS[:14], 0, 0, 0]
    assert grown.group == late
    ends = spread(GROUP, 0, np.ones(DAYS))
    assert GROUP.usual is not None
    assert ends.tolist() == GROUP.usual.astype(float).tolist()


def test_of_days_to_come_it_is_known_how_often_they_have_rows() -> None:
    """Seven parts of three days each; the newest five days, with a weekend, were not measured."""
    sizes, rng, history = (DAYS, WEEK), np.random.default_rng(0), list[Measured]()
    singles, alone = (Workload(sizes=sizes, marginals=m) for m in (((), (0,), (1,)), ((),)))
    for end in range(2, 21, 3):
        some = np.where(np.isin(np.arange(DAYS), range(end - 2, end + 1)), WEEKENDS, 0)
        week = np.bincount(np.arange(DAYS) % WEEK, weights=some)
        values = np.concatenate([[WEEKENDS[: end + 1].sum()], some, week])
        values += rng.normal(0, 1, values.size)
        since = np.array([0, end - 2, end - 2])
        history.append(Measured(tick=end, workload=singles, values=values, variance=np.ones(3), since=since))
    total = np.array([WEEKENDS[:28].sum()])
    history.append(Measured(tick=27, workload=alone, values=total, variance=np.ones(1), since=np.zeros(1, dtype=int)))

    def expected(first: int, last: int) -> dict[tuple[int, ...], FloatArray]:
        ticks = np.arange(first, last + 1)
        return {(c,): np.bincount(ticks % (DAYS, WEEK)[c], minlength=sizes[c]) / ticks.size for c in (0, 1)}

    found = pooled(history, groups=[TIED], expected=expected, again=[1])
    assert found.marginal((0,))[0][:28] == pytest.approx(WEEKENDS[:28], abs=8)
    assert found.marginal((1,))[0] == pytest.approx(np.bincount(np.arange(28) % WEEK, weights=WEEKENDS[:28]), abs=12)
    even = pooled(history, groups=[TIED], expected=lambda *ticks: {(0,): expected(*ticks)[0,]})
    assert even.marginal((0,))[0][26:28].min() > 65
    plain = pooled(history)
    same = pooled(history, expected=lambda *_: {(1,): np.ones(WEEK) / WEEK}, again=[1])  # says nothing of any part
    assert same.values.tolist() == plain.values.tolist()


def test_two_parts_of_the_calendar_go_together_as_the_time_does() -> None:
    """The first half and the second of a month, and weekdays: in an epoch with the change of halves no pair is free."""
    sizes, history = (2, WEEK), list[Measured]()
    singles, alone = (Workload(sizes=sizes, marginals=m) for m in (((), (0,), (1,)), ((),)))

    def expected(first: int, last: int) -> dict[tuple[int, ...], FloatArray]:
        ticks = np.arange(first, last + 1)
        cells = np.bincount(WEEK * (ticks >= 14) + ticks % WEEK, minlength=2 * WEEK) / ticks.size
        return {(0,): cells.reshape(sizes).sum(axis=1), (1,): cells.reshape(sizes).sum(axis=0), (0, 1): cells}

    for first, last in ((0, 4), (5, 10)):
        counts = [100 * (last + 1 - first) * expected(first, last)[c,] for c in (0, 1)]
        values, since = np.concatenate([[100.0 * (last + 1)], *counts]), np.array([0, first, first])
        history.append(Measured(tick=last, workload=singles, values=values, variance=np.ones(3), since=since))
    total = np.array([1600.0])
    history.append(Measured(tick=15, workload=alone, values=total, variance=np.ones(1), since=np.zeros(1, dtype=int)))
    found = pooled(history, expected=expected, again=[0, 1]).marginal((0, 1))[0]
    assert found.ravel() == pytest.approx(1600 * expected(0, 15)[0, 1], abs=25)
    apart = pooled(history, expected=lambda *t: {k: v for k, v in expected(*t).items() if len(k) == 1}, again=[0, 1])
    assert apart.marginal((0, 1))[0][1, 4:].min() > 15  # of the second half only its first two days have passed


def test_of_a_part_in_which_nothing_ever_came_the_time_is_known() -> None:
    """Four weeks of workdays, and a part of one Sunday that was not measured."""
    parts = parts_of(_workdays(), (DAYS, WEEK), None)
    time = {0: np.zeros((5, DAYS)), 1: np.full((5, WEEK), 1 / 7)}
    for k in range(4):
        time[0][k, 7 * k : 7 * k + 7] = 1 / 7
    time[0][4, 34] = 1.0
    time[1][4] = np.arange(WEEK) == 6
    found = _as_often(parts, time, [TIED], [1])
    assert found[1][4].tolist() == time[1][4].tolist()
    assert found[0][4].tolist() == time[0][4].tolist()
    assert found[0][0, :7] == pytest.approx([1 / 6] * 6 + [0.0])


def _workdays() -> list[Measured]:
    """Noise says that Sundays have fewer events than none."""
    singles, alone = (Workload(sizes=(DAYS, WEEK), marginals=m) for m in (((), (0,), (1,)), ((),)))
    history, week = list[Measured](), np.array([900.0] * 6 + [-20.0])
    for k in range(4):
        days = np.zeros(DAYS)
        days[7 * k : 7 * k + 7] = week
        values, since = np.concatenate([[5400.0 * (k + 1)], days, week]), np.array([0, 7 * k, 7 * k])
        history.append(Measured(tick=7 * k + 6, workload=singles, values=values, variance=np.ones(3), since=since))
    last = Measured(tick=34, workload=alone, values=np.array([21_640.0]), variance=np.ones(1), since=np.zeros(1, int))
    return [*history, last]


def test_rows_of_a_window_say_which_of_its_combinations_there_are() -> None:
    """Larger tables count the first two weeks, the window the third one, of which its own tables tell little."""
    exact = table(np.where(np.arange(DAYS) < 14, WEEKENDS, 0.0))
    values, _ = measured(exact, 0.1)
    before = Measured(tick=20, workload=WORKLOAD, values=values, variance=np.full(4, 0.01))
    days = np.repeat(np.arange(14, 21), 100)
    start = np.column_stack([days, days % WEEK]).astype(np.int32)
    shares = np.isin(np.arange(DAYS), days) / WEEK
    own = Measured(tick=20, workload=WORKLOAD, values=values * 0.5, variance=np.full(4, 1e6))
    then = Earlier(before, np.zeros(4), window=True, expected={0: shares}, groups=(TIED,))
    found = aims(own, start=start, memory=np.inf, then=then, groups=[TIED])
    assert found.margins[0][14:21].sum() > 0.95 * found.rows
