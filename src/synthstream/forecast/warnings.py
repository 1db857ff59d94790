"""What to think about before a stream is opened: from its configuration and its forecast alone.

What shows in releases, once there are some, says :mod:`synthstream.forecast.noticing`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from synthstream.config.config import StreamConfig
from synthstream.config.places import words_of
from synthstream.forecast.rates import Rate
from synthstream.forecast.values import of_values
from synthstream.kinds import NO_EPSILON, WEAK_DELTA, WEAK_EPSILON
from synthstream.privacy import EVENT, WIDER, Claim, Unit, stated
from synthstream.publish.readme import falling
from synthstream.schema.columns import Boolean, Category
from synthstream.schema.naming import clash, names_a_person
from synthstream.schema.polygons import BEYOND
from synthstream.synthesizers.assembly import group_factor, synthesizer_of, very_many

# Columns with fewer values are never too large.
_FEW_VALUES = 16
# So many of the columns that are too large are named.
_NAMED = 3
_DAY, _MONTHS = 86_400, range(1, 13)
# Events of a tick beside the standard error of one count: below this a release shows nothing of its own tick.
_LOST = 0.5
# What an unbounded horizon may cost without a word.
_DEARER = 1.05
# Orders of tables, as :attr:`synthstream.workload.Workload.order` tells them.
_TABLES = {1: "in tables of one column", 2: "in larger ones"}


# Order of a table (number of its columns) -> standard error of one measured cell.
Errors = Mapping[int, float]


class Caution(NamedTuple):
    """A warning.

    Args:
        about: key of the configuration.
        words: what is wrong, and what to do, in plain sentences.
        chance: with what probability, at most, noise alone shows what is said; ``None`` if nothing noisy is.
    """

    about: str
    words: str
    chance: float | None = None


def cautions_of(
    config: StreamConfig, claim: Claim, stderr: Mapping[int, Errors], rate: Rate, *, assumed: bool
) -> tuple[Caution, ...]:
    """All warnings.

    Args:
        stderr: number of ticks, increasing -> what is foreseen.
    """
    ticks = [*stderr]
    return (
        *weak_budget(config),
        *_clash(config),
        *_person_columns(config),
        *_dear_persons(config, ticks[-1], rate),
        *_more_than_ticks_let_in(config),
        *_halves_of_corrections(config.privacy.unit, config.op),
        *_unused_delta(config, claim),
        *_commas(config),
        *_dots(config),
        *(Caution(*found) for found in of_values(config)),
        *_short_hours(config),
        *([] if assumed else _short_ticks(config, ticks[0], stderr[ticks[0]], rate)),
        *_large_columns(config, ticks[-1], stderr[ticks[-1]], rate),
        *_no_end(config, ticks[-1]),
    )


def weak_budget(config: StreamConfig) -> Iterator[Caution]:
    """Warnings of a budget that protects little, whatever is measured."""
    budget = config.privacy.budget
    if budget.epsilon > WEAK_EPSILON:
        what = "next to nothing" if budget.epsilon > NO_EPSILON else "little"
        one, spent = "one person" if config.privacy.unit.of_persons else "one row", stated(budget.epsilon)
        yield Caution(
            "privacy.epsilon",
            f"epsilon = {spent} promises {what}: {one} may make a conclusion e^{spent} times as likely. At 1 that is "
            "2.72 times; above 4 think twice.",
        )
    if budget.delta > WEAK_DELTA:
        many = math.floor(WIDER / budget.delta)
        yield Caution(
            "privacy.delta",
            f"delta = {stated(budget.delta)} allows the promise to fail altogether with a chance of one in {many:,}. "
            "It should be far below one in the number of people; 1e-9 is common.",
        )


def _clash(config: StreamConfig) -> Iterator[Caution]:
    if config.workload is not None and (why := clash(config.schema.names)):
        yield Caution("columns", f"{why.removeprefix('columns: ')}. A new stream does not begin so.")


def _person_columns(config: StreamConfig) -> Iterator[Caution]:
    if config.privacy.unit.of_persons:
        return
    # A key has many values: flags and short lists say what sort of person it is.
    listed = (Category, Boolean)
    many = [column for column in config.schema.columns if not isinstance(column, listed) or column.size >= _FEW_VALUES]
    for name in [column.name for column in many if names_a_person(column.name)]:
        yield Caution(
            "privacy.unit",
            f'The column {name!r} sounds like a person or another key. unit = "event" protects single rows: somebody '
            f"with many rows is protected less. To protect people, take it out of [[columns]] and say "
            f'unit = {{ person = "{name}", max_events = 20 }}.',
        )


def _dear_persons(config: StreamConfig, ticks: int, rate: Rate) -> Iterator[Caution]:
    if config.privacy.unit.of_persons and (factor := group_factor(config)) != 1:
        events = replace(config, privacy=replace(config.privacy, unit=EVENT, person=None))
        times = f"about {float(factor):.3g} times as large"
        if events.measures != config.measures:  # at other times, so that noise is shared out otherwise
            own, theirs = (_noise(c, ticks, rate) for c in (config, events))
            each = [f"{own[k] / theirs[k]:.3g} times as large {words}" for k, words in _TABLES.items() if k in own]
            times = f"after tick {ticks:,} about {' and '.join(each)}"
        yield Caution(
            "privacy.unit.max_events",
            f'Protecting persons makes errors {times} as with unit = "event". A smaller max_events makes them smaller, '
            "and leaves out more rows of people with many.",
        )
        unit = config.privacy.unit
        # Of a period whose ticks let in fewer than max_events, it is max_per_tick that makes errors smaller.
        if unit.in_a_tick < unit.events == unit.max_events <= factor:
            yield Caution(
                "privacy.unit.max_per_tick",
                f"max_per_tick = {unit.max_per_tick} makes no error smaller here, and leaves rows out. It does where "
                "all tables are measured at every tick, and delta is above 0.",
            )
        if unit.period is not None and unit.period >= (config.clock.horizon or math.inf):
            words = f"per = {unit.per!r} holds all ticks, so errors are no smaller. Without it the promise is for life."
            yield Caution("privacy.unit.per", words)


def _more_than_ticks_let_in(config: StreamConfig) -> Iterator[Caution]:
    """A limit for a period, or for life, above what the limits of its ticks let in."""
    unit, horizon = config.privacy.unit, config.own_clock.horizon
    what_ends = "the stream" if config.after is None else "what is left of the stream"
    spans = [(n, what) for n, what in ((unit.period, "a period"), (horizon, what_ends)) if n is not None]
    number, what = min(spans, default=(unit.max_events, ""))
    if (most := unit.events_in(horizon)) < unit.max_events:
        ticks = "is one tick" if number == 1 else f"has {number:,} ticks"
        # A successor keeps its unit.
        advice = f" Say max_events = {most}: claims then name it." if config.after is None else ""
        yield Caution(
            "privacy.unit.max_events",
            f"max_events = {unit.max_events} has no effect above {most}: {what} {ticks}, and in a tick at most "
            f"{unit.in_a_tick} of a person can count.{advice}",
        )


def _noise(config: StreamConfig, ticks: int, rate: Rate) -> dict[int, float]:
    """Order of a table -> standard error of one measured cell, root mean square: of one column, and of more."""
    made = synthesizer_of(config)
    if made.tables is None:
        return {}
    variance = made.expected_variance(ticks - 1, rate.per_tick(config.own_clock))
    order = made.tables.workload.order
    return {k: math.sqrt(float(np.nanmean(variance[order == k]))) for k in _TABLES if np.any(order == k)}


def _halves_of_corrections(unit: Unit, op: str | None) -> Iterator[Caution]:
    """Limits with room for one row of a person, where a correction is two: one takes away, the other adds."""
    if op is None or not unit.of_persons or unit.in_a_tick > 1:
        return
    if unit.max_events == 1:
        key, where = "max_events", "" if unit.per is None else " in a period"
        then = "what has counted is not taken away"
    else:
        key, where = "max_per_tick", " in a tick"
        then = "of a correction one half counts, and chance says which"
    yield Caution(
        f"privacy.unit.{key}",
        "With op, a row that takes an event away is one of its person's rows, and a correction is two. Of each person "
        f"one row counts{where}, so {then}. Say {key} = 2 or more.",
    )


def _unused_delta(config: StreamConfig, claim: Claim) -> Iterator[Caution]:
    budget = config.privacy.budget
    if not budget.pure and claim.pure is not None:
        other = "choose another measure or kind in [synthesizer]"
        if config.synthesizer.points:
            many = f"{very_many(config):,.0f}"
            other = f"events_per_tick in [synthesizer] if {many} or more may come: then Gaussian noise tells more"
        yield Caution(
            "privacy.delta",
            f"delta = {budget.delta:g} has no effect here: the promise is pure epsilon-DP. Say delta = 0, or {other}.",
        )


def _commas(config: StreamConfig) -> Iterator[Caution]:
    """A comma between cells and within numbers: right where all numbers stand in quotation marks."""
    dialect = None if config.source is None else config.source.dialect
    if dialect is not None and dialect.delimiter in (dialect.decimal, dialect.thousands):
        yield Caution(
            "source.delimiter",
            f"delimiter = {dialect.delimiter!r} stands in numbers, too: one without quotation marks is read as two "
            'cells. Files with decimal commas mostly have delimiter = ";".',
        )


def _dots(config: StreamConfig) -> Iterator[Caution]:
    """Names with a dot, where rows are objects of JSON: who writes them means a key of an object in the object."""
    source = config.source or config.log
    if source is None or source.kind not in ("jsonl", "kafka"):
        return
    own = (config.clock.column, config.privacy.person, config.op)
    names = [name for name in dict.fromkeys([*config.schema.read_from, *own]) if name is not None and "." in name]
    if names:
        yield Caution(
            "columns",
            f"{', '.join(map(repr, names))}: keys of an object within an object are not followed. This is read from a "
            "key of the whole name, dot included; where rows have none, it is missing in all of them, for ever. "
            "Make such rows flat first, as with jq.",
        )


def _short_hours(config: StreamConfig) -> Iterator[Caution]:
    """Ticks of hours or minutes on a wall clock that is put forward and back."""
    clock, zone = config.clock, ZoneInfo(config.clock.timezone)
    if clock.seconds < _DAY and len({zone.utcoffset(datetime(clock.start.year, month, 1)) for month in _MONTHS}) > 1:
        yield Caution(
            "clock.timezone",
            f"Ticks of {clock.every} follow the wall clock of {clock.timezone}. When it is put forward, those of an "
            "hour that does not exist hold less, or nothing; when it is put back, those of an hour that comes twice "
            'hold the events of both. With timezone = "UTC" all are equally long.',
        )


def _short_ticks(config: StreamConfig, ticks: int, stderr: Errors, rate: Rate) -> Iterator[Caution]:
    """A tick in which fewer events come than one count is off by."""
    orders = [k for k in stderr if k]
    events = rate.per_tick(config.clock)
    if orders and events < _LOST * stderr[min(orders)]:
        yield Caution(
            "clock.every",
            f"A tick of {config.clock.every} brings about {events:,.3g} events, and a single count is off by "
            f"{stderr[min(orders)]:,.3g} after tick {ticks:,}: one release differs from the next mostly by noise. "
            "Longer ticks cost nothing and make errors a little smaller.",
        )


def off_by(config: StreamConfig, ticks: int, events: float) -> float:
    """Standard error of the count of one value after some ticks, in the best known column; 0 where none is measured.

    Args:
        events: of all these ticks.
    """
    made = synthesizer_of(config)
    if made.tables is None:
        return 0.0
    variance = made.expected_variance(ticks - 1, events / ticks)[made.tables.workload.order == 1]
    return math.sqrt(min(variance[~np.isnan(variance)], default=0.0))


def _large_columns(config: StreamConfig, ticks: int, errors: Errors, rate: Rate) -> Iterator[Caution]:
    """Columns whose largest table has cells that are lost in noise at the last forecast."""
    workload, schema, events = config.workload, config.schema, ticks * rate.per_tick(config.own_clock)
    if workload is None:
        return
    grids = {c for views in schema.places.values() for c in views}  # whose cells are known together with coarser ones
    large = [c for c, size in enumerate(schema.sizes) if size >= _FEW_VALUES and c not in grids]
    lengths, held = workload.lengths.tolist(), [q for q, m in enumerate(workload.marginals) if not grids & {*m}]
    own = ([q for q in held if c in workload.marginals[q]] for c in large)
    tables = {max(holders, key=lengths.__getitem__) for holders in own if holders}
    lost = []
    for q in sorted(tables, key=lambda q: -lengths[q]):
        stderr = errors.get(len(workload.marginals[q]), math.inf)
        if events / lengths[q] < stderr < math.inf:
            lost.append((q, stderr))
    for q, stderr in lost[:_NAMED]:
        named = sorted(workload.marginals[q], key=lambda c: -schema.sizes[c])
        cells = lengths[q]
        sizes = [f"{schema.names[c]!r} ({schema.sizes[c]} values)" for c in named]
        yield Caution(
            f"columns.{schema.names[named[0]]}",
            f"{' by '.join(sizes)} is a table of {cells:,} cells. After tick {ticks:,} a cell holds "
            f"{events / cells:,.2g} events on average, and is off by {stderr:,.3g}: most cells are lost in "
            "noise. Fewer values or wider bins keep more.",
        )
    told = {c for q, _ in lost[:_NAMED] for c in workload.marginals[q]}
    rest = dict.fromkeys(c for q, _ in lost[_NAMED:] for c in workload.marginals[q] if c in large and c not in told)
    if rest:
        yield Caution("columns", f"The same holds for {', '.join(repr(schema.names[c]) for c in rest)}.")


def _no_end(config: StreamConfig, ticks: int) -> Iterator[Caution]:
    """What an unbounded horizon costs, compared with one that leaves ``ticks`` ticks to these settings."""
    if config.clock.horizon is not None or config.workload is None:
        return
    horizon = config.since + ticks
    endless = synthesizer_of(config)
    ending = synthesizer_of(replace(config, clock=replace(config.clock, horizon=horizon, until=None)))
    if not (endless.exact_forecast and ending.exact_forecast):
        return
    ratio = math.sqrt(float(endless.expected_variance(ticks - 1)[-1] / ending.expected_variance(ticks - 1)[-1]))
    if ratio >= _DEARER:
        yield Caution(
            "clock.horizon",
            f"An unbounded horizon costs accuracy: after {ticks:,} ticks, errors are {ratio:.2f} times those of a "
            f"stream with horizon = {horizon}, which would end there.",
        )


def limited(unit: Unit) -> str:
    """What the limit of persons does to counts over time; empty for events."""
    if not unit.of_persons:
        return ""
    fewer = falling(unit)
    return f"Counts hold the events within each person's limit{f': {fewer}' if fewer else ' in each tick'}."


def deviation(tables: Mapping[int, int]) -> str:
    """How far real errors of published rows may be from those on the assumed shape, in a sentence.

    Tables whose association is lost in noise are off by as much as their columns depend on each other: in the assumed
    shape less than in most real data (ratios: benchmarks/results/forecast.md).

    Args:
        tables: order of a table -> number of tables.
    """
    more = (
        "; those of tables of two columns or more by up to three times, where columns depend on each other and noise "
        "hides it, as it often does with delta = 0"
    )
    larger = more if any(order > 1 for order in tables) else ""
    return f"Real errors may be smaller, or larger by up to about half{larger}."


def notes_of(config: StreamConfig, at_ticks: Sequence[int] | None = None) -> Iterator[str]:
    """What else is good to know.

    Args:
        at_ticks: numbers of ticks that were asked for.
    """
    horizon = config.own_clock.horizon
    if later := [f"tick {ticks:,}" for ticks in sorted(set(at_ticks or ())) if horizon is not None and ticks > horizon]:
        beyond = f"In place of later ones ({', '.join(later)}) stands the last one, the horizon."
        yield f"The budget covers {horizon:,} ticks. {beyond}"
    if config.clock.wait is not None:
        yield (
            f"Each tick is closed {config.clock.wait} after its end. Rows that come until then count in their own "
            "tick, later ones in the tick that is open when they come."
        )
    if config.clock.until is None and config.source is not None:
        yield (
            "No until in [clock]: run releases every tick that is over by the machine's clock, with events or without. "
            "Where the data end earlier, say when."
        )
    if config.op is not None and config.synthesizer.points:
        yield (
            "The forecast assumes that one row in three takes an event away. Noise grows with the number of all rows: "
            "if more events are taken away, the error is larger for the same number of events left."
        )
    elif config.op is not None:
        yield (
            "All events that are expected are taken to stay. Where rows take many away, as discharges do from a count "
            "of beds in use, what is left is less, and an error is a larger part of it than is said here."
        )
    if config.privacy.unit.of_persons:
        yield (
            f"{limited(config.privacy.unit)} All events that are expected are taken to count: where people have more "
            "than their limit, expect only those within it, or errors in per cent are told too small."
        )
    if config.schema.region is not None:
        yield (
            f"Region: {100 * config.schema.region.share:.3g} % of the box lies in the polygons, and all published "
            "points. Events outside count in the nearest cell inside."
        )
        if config.schema.region.beyond > BEYOND:
            share = f"{100 * config.schema.region.beyond:.2g} % of the polygons' area"
            yield f"Region: {share} lies outside of the box. Events there count in the nearest cell inside."
    if config.schema.places and not config.synthesizer.listed:
        yield f"Places: {words_of(config.schema)} Grids get a part of the budget of their own."
    if allowed := config.constraints.words(config.schema):
        yield (
            f"Constraints: {allowed} Published rows hold no other one. Private rows are counted as they are, and the "
            "forecast takes no account of constraints."
        )
    yield "Budgets of streams about the same people add up: two such streams would cost twice the epsilon."
