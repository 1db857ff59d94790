"""When tables are measured that are not measured at every tick: from the number of the tick alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

from synthstream.workload import FloatArray


def grown(age: int, growth: float) -> int:
    """The age in ticks at which a stream is ``growth`` times as old, and at least a tick older."""
    return max(age + 1, math.ceil(age * growth))


class EpochPlanner(Protocol):
    """What released values say of an epoch. A function of these alone."""

    def parts(self) -> int:
        """In how many parts tables of one column are measured in the epoch that begins now."""

    def number(self, scales: Mapping[int, FloatArray], events: float, shown: FloatArray, *, whole: bool) -> int:
        """How many larger tables are measured in the epoch that ends now.

        Args:
            scales: of the noise in a cell of each table, by every number that there may be.
            events: of the epoch, by the noisy total.
            shown: what :meth:`shown` said at the end of the epoch before; zeros in the first one.
            whole: whether the epoch has one part: then fewer larger tables leave more for tables of one column.
        """

    def shown(self, found: Mapping[int, FloatArray], guessed: FloatArray, scales: FloatArray) -> FloatArray:
        """How far the larger tables of the epoch that ends now were from what was guessed, shape ``(3,)``.

        Args:
            found: what was measured of each, by its position in the workload.
            guessed: over all cells.
            scales: of the noise in a cell of each table of the workload.
        """

    def guess(self, events: float, singles: FloatArray) -> FloatArray:
        """Expected counts of the epoch that ends now over all cells of the workload.

        Args:
            events: of the epoch, by the noisy total.
            singles: what was released of its last part just now: all tables of one column, one after the other.
        """


@dataclass(frozen=True)
class EpochTimes:
    """Epochs that end when the stream is ``growth`` times as old as at the end of the one before.

    With a horizon the last one ends with it.

    Example:
        >>> EpochTimes(1.5).ended(100)
        [1, 2, 3, 5, 8, 12, 18, 27, 41, 62, 93]
        >>> EpochTimes(1.5, 100).ended(100)
        [1, 2, 3, 5, 8, 12, 18, 27, 41, 62, 93, 100]
    """

    growth: float
    horizon: int | None = None

    def span(self, tick: int) -> tuple[int, int]:
        """First tick of the epoch that holds this one, and that of the next epoch."""
        begin, end = 0, 1
        while end <= tick:
            begin, end = end, grown(end, self.growth)
            if self.horizon is not None and begin < self.horizon:
                end = min(end, self.horizon)
        return begin, end

    def begin(self, tick: int) -> int:
        """First tick of the epoch that holds this one."""
        return self.span(tick)[0]

    def ends(self, tick: int) -> bool:
        """Whether an epoch ends with this tick."""
        return self.span(tick)[1] == tick + 1

    def part_ends(self, tick: int, parts: int) -> bool:
        """Whether one of ``parts`` equal parts of an epoch ends with this tick."""
        begin, end = self.span(tick)
        return (tick + 1 - begin) * parts // (end - begin) > (tick - begin) * parts // (end - begin)

    def ended(self, ticks: int) -> list[int]:
        """Numbers of ticks, up to ``ticks``, after which an epoch ends."""
        ends, end = list[int](), self.begin(ticks)
        while end > 0:
            ends, end = [end, *ends], self.begin(end - 1)
        return ends


# The variance of a refresh counts in proportion to the ticks that it serves. That of larger tables also in proportion
# to their number so far, if this many tables or fewer are larger: the noise of many hides what they have in common, and
# late exactness cannot bring that back.
_FEW = 100
# A stream without end is served by so many refreshes, and begins anew with so many. The variance of the last of them
# would count so much beside the first one's: few streams live to see it.
_ENDLESS, _SELDOM = 96, 0.3
# A stream without end is taken to run for so many ticks, where its size is asked for.
_LONG = 10_000
# The variance of a refresh counts at least so large a part of that of the one that counts most: the horizon by the
# first number of ticks, but no less than the second number and no more than the third. Early refreshes of a long
# horizon serve few ticks, and little is lost later; yet its first tenth is as many releases as a whole short one.
_TICKS, _LEAST, _LEAST_OF_LONG = 25_000, 0.01, 0.06
# So the closing refresh counts, beside the one that counts most: what it tells stays. Others are 1 to 2 % less exact.
_CLOSING = 1.5
# How much a refresh that may come early counts, beside the last of the others, if it comes at all.
_EARLY = 0.2


class Refreshes(NamedTuple):
    """Refreshes as they came.

    Args:
        ticks: at whose ends tables were refreshed, increasing.
    """

    ticks: tuple[int, ...]

    def last(self, tick: int) -> tuple[int, int]:
        """The newest refresh up to a tick: its tick, and its number from 0 on."""
        number = bisect_right(self.ticks, tick) - 1
        return self.ticks[number], number


@dataclass(frozen=True)
class RefreshTimes:
    """Refreshes that come when the stream is ``growth`` times as old as at the one before, from the first tick on.

    With a horizon they are set backwards from it: of those, the last one is as near to it as to the next. One more
    comes at the end of the last tick: what is published then stays.

    Args:
        growth, horizon: see :class:`synthstream.kernel.tables.Refreshed`.
        early: so many refreshes, at most, may have come before their time.

    Example:
        >>> [tick for tick in range(20) if RefreshTimes(1.1, 20).comes(tick)]
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 18, 19]
    """

    growth: float
    horizon: int | None
    early: int = 0

    @cached_property
    def ages(self) -> tuple[int, ...]:
        """Ages in ticks at which tables are refreshed, up to the horizon."""
        age = float(round((self.horizon or 1) / math.sqrt(self.growth)))
        found = {1, self.horizon or 1}
        while age >= 1:
            found.add(round(age))
            age /= self.growth
        return tuple(sorted(found))

    @cached_property
    def spare(self) -> int:
        """Refreshes that there are room for beside those at their times; none where every tick has one."""
        return self.early if self.horizon is None else min(self.early, self.horizon - len(self.ages))

    @property
    def remembered(self) -> int:
        """Refreshes whose counts a state holds in the end; without a horizon, after ten thousand ticks."""
        if self.horizon is None:
            return min(len(self.up_to(_LONG - 1).ticks), _ENDLESS)
        return len(self.ages) + self.spare

    def comes(self, tick: int) -> bool:
        """Whether tables are refreshed at the end of this tick."""
        return self.last(tick)[0] == tick

    def last(self, tick: int) -> tuple[int, int]:
        """The newest refresh up to a tick: its tick, and its number from 0 on."""
        if self.horizon is None:
            return self.up_to(tick).last(tick)
        number = bisect_right(self.ages, tick + 1) - 1  # asked for at every pair of ticks: no list of all before
        return self.ages[number] - 1, number

    def up_to(self, tick: int) -> Refreshes:
        """Refreshes up to a tick, if none comes early."""
        if self.horizon is not None:
            return Refreshes(tuple(age - 1 for age in self.ages if age <= tick + 1))
        ages, age = list[int](), 1
        while age <= tick + 1:
            ages, age = [*ages, age], grown(age, self.growth)
        return Refreshes(tuple(age - 1 for age in ages))

    def after(self, tick: int, done: Refreshes, *, burst: bool) -> Refreshes:
        """Refreshes up to a tick, from those before it: there is one if it is due, or if a burst may bring it early.

        One that came early is not due again at its own time, unless it is the closing one.
        """
        due = self.last(tick)[1] + 1
        comes = len(done.ticks) < due + (self.spare if burst or tick + 1 == self.horizon else 0)
        return Refreshes((*done.ticks, tick)) if comes else done

    def weights(self, larger: int) -> tuple[float, ...]:
        """How much the variance of each refresh counts; without a horizon the less the later it comes.

        Args:
            larger: how many larger tables share the budget; 0 for tables of one column.
        """
        if self.horizon is None:
            return tuple(1 - (1 - _SELDOM) * number / _ENDLESS for number in range(_ENDLESS))
        late = min(1.0, _FEW / larger) if larger else 0.0
        ages = pairwise([*self.ages, self.horizon + 1])
        found = [(end - begin) * float(begin) ** late for begin, end in ages]
        found[-1] = _CLOSING * max(found)
        least = min(max(self.horizon / _TICKS, _LEAST), _LEAST_OF_LONG) * max(found)
        weights = tuple(max(weight, least) for weight in found)
        return weights + (_EARLY * weights[-1],) * self.spare


@dataclass(frozen=True)
class NumberTimes:
    """Epochs by the number of events: ``epochs`` of them, evenly by its logarithm, while it doubles.

    Args:
        epsilon: the first one ends near 1 / epsilon events.
        epochs: number of epochs in a doubling.

    Example:
        >>> [NumberTimes(1.0, 2).epoch_of(total) for total in (0, 3, 4, 1000)]
        [0, 3, 4, 19]
    """

    epsilon: float
    epochs: int

    def epoch_of(self, total: float) -> int:
        """The epoch in which a number of events lies: the largest e with ``begin_of(e)`` at most that, or 0."""
        mantissa, exponent = math.frexp(self.epsilon * max(total, 0.0))
        within = sum(2 * mantissa >= float(2.0 ** (part / self.epochs)) for part in range(1, self.epochs))
        return max(0, (int(exponent) - 1) * self.epochs + within)

    def begin_of(self, epoch: int) -> float:
        """Number of events at which an epoch begins; not the first one, which begins with none."""
        doublings, part = divmod(epoch, self.epochs)
        return float(2.0**doublings * 2.0 ** (part / self.epochs) / self.epsilon)

    def length(self, begun: float) -> float:
        """Number of events that the epoch should have of which ``begun`` is, the number before it."""
        # At least 1: if the next event ends the epoch, rounding could leave 0.
        return max(self.begin_of(self.epoch_of(begun) + 1) - max(begun, 0.0), 1.0)


def refuse_growth(growth: float) -> None:
    """Raise ``ValueError`` unless a factor by which ages grow is above 1, and not so large that nothing is measured."""
    if not 1 < growth <= 100:
        raise ValueError(f"growth must be above 1 and at most 100, not {growth}")
