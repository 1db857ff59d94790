"""What stands out in releases, as somebody should look at: functions of what is public, which cost no privacy.

Each warning says with what probability noise alone would show it, and none is given that noise is likely to show: over
all questions together, once in a hundred looks at most. Nothing here is part of a release.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from synthstream.config.config import StreamConfig
from synthstream.errors import SynthstreamError
from synthstream.forecast.warnings import Caution
from synthstream.measured import Measured, Reading
from synthstream.publish.building import Builder, from_releases
from synthstream.publish.outlets import as_published, parquet_sink, refuse_other_releases
from synthstream.schema.columns import MISSING, OTHER, Boolean, Category, Column
from synthstream.schema.districts import Districts
from synthstream.schema.places import View
from synthstream.workload import FloatArray

# With this probability, at most, warnings of a kind are said by chance; there are four kinds.
_BY_CHANCE = 0.0025
# Smaller probabilities are not told apart.
_LEAST = 1e-9
# So many of the newest ticks are looked at, and each is compared with so many before it, at least and at most.
_NEWEST, _FEWEST, _BEFORE = 60, 3, 14
# A share of all events that is almost all of them, and one that is too much for what is on no list.
_ALMOST, _MUCH_OTHER = 0.9, 0.25
# A value is said not to occur if it cannot be told from 0, and would be if it had this part of an equal share.
_OF_FAIR, _ZERO = 0.01, 3.0
_NAMED = 3

# From standard deviations to a probability, at most: see :func:`chance`.
Law = Callable[[float], float]


class Tick(NamedTuple):
    """How many events a tick brought, and the standard error of that."""

    tick: int
    events: float
    stderr: float


def noticed(config: StreamConfig, *, new: int = _NEWEST, back: int = 0) -> tuple[Caution, ...]:
    """Warnings of the releases of a stream, from them alone; none if there are no releases, or they cannot be read.

    Args:
        config: with a [sink]; without one, nothing is looked at.
        new: number of ticks that nobody was told of yet. Beside them, a tick is told of while it is one of the few that
            the next one is compared with.
        back: as they were before so many of the newest releases.
    """
    if config.sink is None:
        return ()
    with suppress(SynthstreamError):  # who reads releases says what is wrong with them
        sink, config = parquet_sink(config.sink), as_published(config)
        refuse_other_releases(config, sink)
        last = sink.last()
        if last is not None and (tick := last.tick - back) >= 0:
            builder = from_releases(config, sink, sink.measured, tick=tick, secure=True).once()
            newest, law = builder.whole(tick), partial(chance, gaussian=_all_gaussian(builder.claim))
            ticks, events = increments(builder, tick), events_up_to(builder, tick)
            of_time = of_ticks(config, ticks, events, law, told=tick - max(new, _BEFORE))
            return (*of_time, *of_columns(config, newest, law))
    return ()


def _all_gaussian(claim: Mapping[str, Any]) -> bool:
    """Whether all noise of a stream was Gaussian, in all parts of its life."""
    return all(part.get("pure_epsilon") is None for part in (claim, *claim.get("parts", ())))


def chance(z: float, *, gaussian: bool = False) -> float:
    """An upper bound of the probability that noise is at least ``z`` of its standard deviations.

    A sum of independent Gaussian and Laplace variables has at most the moment generating function of one Laplace
    variable with their variance: prod 1 / (1 - x_i) <= 1 / (1 - sum x_i). Chernoff's bound with it is the minimum over
    s of exp(-s z) / (1 - s^2 / 2). Noise in whole numbers differs from that as far as it is narrow: by a factor below 2
    in all that is said, if its scale is 1 event or more.

    Args:
        gaussian: all of it is Gaussian, whose own probability is smaller.

    Example:
        >>> chance(0.0), f"{chance(5):.1e}", f"{chance(5, gaussian=True):.1e}"
        (1.0, '8.8e-03', '2.9e-07')
    """
    if z <= 0:
        return 1.0
    if gaussian or math.isinf(z):
        return math.erfc(z / math.sqrt(2)) / 2
    s = (math.sqrt(1 + 2 * z * z) - 1) / z
    return min(1.0, math.exp(-s * z) / (1 - s * s / 2))


def events_up_to(builder: Builder, tick: int) -> tuple[float, float] | None:
    """How many events there are up to a tick, over all segments, and the standard error; ``None`` if that is not
    measured. What is no table counts the events of its own segment alone.
    """
    found, start = builder.whole(tick).events(), builder.synthesizer(tick).start
    if found is None or start == 0 or builder.newest.first.tables is not None:
        return found
    before = events_up_to(builder, start - 1)
    return None if before is None else (before[0] + found[0], math.hypot(before[1], found[1]))


def increments(builder: Builder, last: int) -> list[Tick]:
    """What the first tick and the newest ones brought, oldest first; empty if the number of events is not measured."""
    first = max(0, last + 1 - _NEWEST)
    found, before = list[Tick](), None if first == 0 else builder.whole(first - 1).events()
    if first and (begun := builder.whole(0).events()) is not None:
        found.append(Tick(0, *begun))
    for tick in range(first, last + 1):
        now = builder.whole(tick).events()
        if now is None or (tick and before is None):
            return []
        anew = builder.newest.first.tables is None and tick == builder.synthesizer(tick).start
        past = (0.0, 0.0) if before is None or anew else before
        found.append(Tick(tick, now[0] - past[0], _of_difference(builder, tick, past[1], now[1], last)))
        before = now
    return found


def _of_difference(builder: Builder, tick: int, before: float, now: float, last: int) -> float:
    """Standard error of what a tick brought; where no covariance is known, an upper bound."""
    tables = builder.newest.first.tables
    if tick == 0 or tables is None:
        return before + now
    shared = builder.covariance(tick - 1, tick, at=last)[tables.workload.place[()]]
    exact = math.sqrt(max(before**2 + now**2 - 2 * shared, 0.0))
    return exact if math.isfinite(exact) else before + now


def of_ticks(
    config: StreamConfig, ticks: list[Tick], events: tuple[float, float] | None, law: Law, *, told: int
) -> Iterator[Caution]:
    """Almost all events in one tick; ticks that are nearly empty, or doubled, beside those before them.

    Args:
        ticks: see :func:`increments`.
        events: see :func:`events_up_to`.
        law: :func:`chance` of the stream's noise.
        told: the newest tick that was told of often enough.
    """
    # Of events that may be taken away only the net number is known: what came in a tick is not.
    if events is None or len(ticks) <= _FEWEST or config.op is not None or not events[0] > 0:
        return
    total, stderr = events
    most = max(ticks, key=lambda tick: tick.events)
    p = law(_z(most.events - total / 2, most.stderr + stderr / 2)) * len(ticks)
    who = "Without column in [clock] all rows" if config.clock.column is None else "Rows whose times cannot be read"
    if most.events >= _ALMOST * total and p <= _BY_CHANCE:
        share, begins = _percent(most.events, total), config.clock.begins(most.tick)
        words = f"{share} of all events fell into tick {most.tick} ({begins}), one of {ticks[-1].tick + 1:,}. "
        words += f"{who} count in the tick that is open."
        yield _seen("clock", words, p, "if only half of them fell into it")
    for word, what in (("empty", "less than half of"), ("doubled", "more than one and a half times")):
        found = [(tick, p) for tick, p in _unlike(ticks, word, law) if p <= _BY_CHANCE]
        if found and found[-1][0].tick > told:
            tick, p = found[-1]
            many = "" if len(found) == 1 else f" So did {len(found) - 1:,} more of the newest {len(ticks):,}."
            sure, why = (f", give or take {tick.stderr:,.0f}", "Noise") if tick.stderr else ("", "Chance")
            words = f"Tick {tick.tick} ({config.clock.begins(tick.tick)}) brought {round(tick.events):,} events{sure}: "
            words += f"{what} any of the ticks before it.{many} Did rows come late, twice, or not at all?"
            yield _seen(f"tick {tick.tick}", words, p, "if it were as large as that", why=why)


def _unlike(ticks: list[Tick], word: str, law: Law) -> Iterator[tuple[Tick, float]]:
    """Ticks, and with what probability noise alone would make them so unlike all of those before them.

    Events come by chance, too: as if each came independently of the others, which adds to the noise.
    """
    for i in range(_FEWEST, len(ticks)):
        before = [tick for tick in ticks[max(0, i - _BEFORE) : i] if tick.tick >= ticks[i].tick - _BEFORE]
        if len(before) < _FEWEST:
            continue
        if word == "empty":
            other, factor = min(before, key=lambda tick: tick.events), 0.5
        else:
            other, factor = max(before, key=lambda tick: tick.events), 1.5
        gap = factor * other.events - ticks[i].events
        noise, natural = ticks[i].stderr + factor * other.stderr, factor**2 * other.events + ticks[i].events
        z = _z(gap if word == "empty" else -gap, math.sqrt(noise**2 + max(natural, 0.0)))
        yield ticks[i], (law(z) if noise else chance(z, gaussian=True)) * 2 * len(ticks)


def of_columns(config: StreamConfig, newest: Reading, law: Law) -> Iterator[Caution]:
    """Columns that are almost all ``missing``, or to a large part ``other``; values that never occur."""
    if not isinstance(newest, Measured):
        return
    known = {m[0]: q for q, m in enumerate(newest.workload.marginals) if len(m) == 1}
    questions = sum(column.size for i, column in enumerate(config.schema.columns) if i in known)
    for i, column in enumerate(config.schema.columns):
        if isinstance(column, View) and config.schema.places[column.place][0] != i:
            continue  # the coarsest grid of a place says it best
        if i in known and math.isfinite(float(newest.variance[known[i]])):
            values, stderr = newest.marginal((i,))
            if np.isfinite(values).all() and values.sum() > 0:
                yield from _of_column(column, values, stderr, lambda z: law(z) * questions)


def _of_column(column: Column, values: FloatArray, stderr: float, law: Law) -> Iterator[Caution]:
    total, size = float(values.sum()), values.size
    name = f"columns.{column.place if isinstance(column, View) else column.name}"
    for label, most, half in ((MISSING, _ALMOST, 0.5), (OTHER, _MUCH_OTHER, _MUCH_OTHER / 2)):
        if label not in column.own_cells:
            continue
        part = float(values[column.labels.index(label)])
        # Noise of part minus a share of the total: cells are independent.
        error = stderr * math.sqrt((1 - half) ** 2 + half**2 * (size - 1))
        p = law(_z(part - half * total, error))
        if part >= most * total and p <= _BY_CHANCE:
            why = "Can its cells be read?" if label == MISSING else "Is the list of values the right one?"
            if isinstance(column, View) and label == OTHER:
                why = "Are bounds the right ones, and in the order of coordinates? Are these numbers?"
            if isinstance(column, Districts) and label == OTHER:
                why = "Are bounds the right ones, and do the polygons leave out no place?"
            words = f"{_percent(part, total)} of all events are {label!r}. {why}"
            yield _seen(name, words, p, f"if only {100 * half:g} % of them were")
    of_place = isinstance(column, View | Districts)  # whose parts are often empty
    if isinstance(column, Category | Boolean) and not of_place:
        fair = _OF_FAIR * total / size
        listed = zip(column.value_labels, values.tolist(), strict=False)
        odds = [(label, law(_z(fair - v, stderr))) for label, v in listed if v <= _ZERO * stderr]
        never = [(label, p) for label, p in odds if p <= _BY_CHANCE]
        if never:
            shown = ", ".join(repr(label) for label, _ in never[:_NAMED])
            more = "" if len(never) <= _NAMED else f" and {len(never) - _NAMED:,} more"
            words = f"No event seems to be {shown}{more}. Is it written so in the rows?"
            yield _seen(name, words, max(p for _, p in never), f"if {fair:,.0f} were")


def _z(gap: float, stderr: float) -> float:
    return gap / stderr if stderr > 0 else math.inf * np.sign(gap) if gap else 0.0


def _seen(about: str, words: str, p: float, otherwise: str, *, why: str = "Noise") -> Caution:
    shown = f"below {_LEAST:g}" if p < _LEAST else f"of at most {p:.1g}"
    words += f" {why} alone would show that with a probability {shown} {otherwise}."
    return Caution(about, words, max(p, _LEAST))


def _percent(part: float, total: float) -> str:
    return f"{100 * min(part / total, 1.0):.0f} %"
