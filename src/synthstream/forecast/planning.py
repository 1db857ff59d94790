"""A forecast from the configuration alone. It touches no data and spends no budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from synthstream.config.config import StreamConfig, load
from synthstream.errors import ConfigError
from synthstream.forecast.budgets import never_rising
from synthstream.forecast.parts import of_the_cut
from synthstream.forecast.rates import Rate, moments_of, until
from synthstream.forecast.several import in_periods
from synthstream.forecast.warnings import Caution, cautions_of, notes_of
from synthstream.forecast.wide import Proposal, proposed, too_large, too_long
from synthstream.privacy import Budget, Claim
from synthstream.release.display import framed
from synthstream.schema.clock import Clock
from synthstream.synthesizers.assembly import claim_of, synthesizer_of
from synthstream.synthesizers.bounds import BETA
from synthstream.synthesizers.contract import Expected, RowErrors, Synthesizer
from synthstream.synthesizers.simulation.tables import box_variance
from synthstream.synthesizers.succession import promise_of

# Budgets to compare with: parts of the configured epsilon.
NEIGHBOURS = (0.5, 2.0)
# Assumed where nothing is said; plan says so.
_ASSUMED = Rate(number=100, per="tick")
_OF = {0: "total", 1: "one column"}

# Hands out pieces of work one by one, and may show how far it is.
Track = Callable[[Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Expected error after a number of ticks, in events.

    ``stderr``, ``table_error``, ``box`` and ``largest`` are about measured counts. Where all tables are measured at
    every tick they follow from the law of the noise. ``rows`` is about the published rows, and a simulation.

    Args:
        ticks: how many ticks have been released.
        asked: what was asked for: ``day 30``, ``horizon`` or ``tick 10``; several if they are the same tick.
        until: when the last of these ticks ends; ``None`` after the year 9999.
        events: that should have come by then.
        stderr: order of a table (number of its columns) -> standard error of one measured cell: root mean square over
            the tables of that order.
        table_error: order -> expected sum of absolute errors over the cells of a table: mean over tables.
        box: standard error of the events in a box, as the sum of its measured cells: see
            :func:`synthstream.synthesizers.simulation.tables.box_variance`. ``None`` if boxes are no sums of measured
            cells.
        largest: what no cell of any table measured at that tick is off by, with a probability of 95 %; see
            :mod:`synthstream.synthesizers.bounds`. ``None`` if no bound is known.
        rows: expected errors of the published rows, by simulation; ``None`` if there is no forecast.
    """

    ticks: int
    asked: str
    until: datetime | None
    events: float
    stderr: dict[int, float]
    table_error: dict[int, float]
    box: float | None = None
    largest: float | None = None
    rows: RowErrors | None = None

    def facts(self) -> dict[str, Any]:
        """For JSON: errors in events, and those of tables and boxes in per cent of the events expected by then."""
        return {
            "ticks": self.ticks,
            "asked": self.asked,
            "until": self.until and self.until.isoformat(),
            "events": self.events,
            "measured": {
                "cell_stderr": _by_order(self.stderr),
                "table_error": _by_order(self.table_error),
                "box": self.box,
                "largest": self.largest,
            },
            "rows": None if self.rows is None else self.rows.facts(),
            "percent": {
                "measured": self._percent(self.table_error, self.box),
                "rows": None if self.rows is None else self._percent(self.rows.table_error, self.rows.box),
            },
        }

    def percent(self, value: float) -> str:
        """An error as a part of the events expected by then, in words."""
        share = 100 * value / max(self.events, 1.0)
        return f"{'>100' if share > 100 else f'{share:.0f}' if share >= 9.5 else f'{share:.1g}'}%"

    def _percent(self, table_error: dict[int, float], box: float | None) -> dict[str, Any]:
        part = 100 / max(self.events, 1.0)
        tables = {k: value * part for k, value in table_error.items()}
        return {"table_error": _by_order(tables), "box": None if box is None else box * part}


@dataclass(frozen=True, kw_only=True)
class Budgeted:
    """Forecasts for one budget, at the delta of the configuration."""

    epsilon: float
    forecasts: tuple[Forecast, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a configuration promises, needs and will deliver.

    Args:
        claim, budget: the guarantee, and what it may cost; of a successor, of its own part.
        promise: the guarantee for the whole life, as it will stand in every manifest; ``words``: in precise sentences.
        meaning: what it means for the person in the data, in plain sentences.
        caveat: what the forecast errors are the errors of.
        exact: whether the errors of measured counts follow from the law of the noise alone, whatever the data.
        unforeseen: what cannot be forecast, and why; empty if all can be.
        tables: order of a table (number of its columns) -> number of tables.
        cells: of all tables, or of the box at its finest.
        state_bytes, tick_bytes: counter state, and what each tick adds on disk.
        release_seconds: to compute one release at the last forecast, measured on this machine on simulated rows;
            ``None`` if it was not measured.
        expected, assumed: the public guess of events, and whether nobody gave one.
        budgets: the forecasts of all budgets to compare, smallest epsilon first; ``forecasts`` are those of its own.
        largest_words: the forecasts' ``largest`` in a sentence; empty if no bound is known.
        cautions: what to change, or to think about.
        proposal: fewer pairs, for a wide table.
    """

    name: str
    kind: str
    claim: Claim
    budget: Budget
    promise: dict[str, Any]
    words: str
    meaning: str
    how: str
    caveat: str
    exact: bool
    unforeseen: str
    tables: dict[int, int]
    cells: int
    state_bytes: int
    tick_bytes: int
    release_seconds: float | None
    expected: Rate
    assumed: bool
    forecasts: tuple[Forecast, ...]
    budgets: tuple[Budgeted, ...]
    largest_words: str
    cautions: tuple[Caution, ...]
    notes: tuple[str, ...]
    proposal: Proposal | None = None

    @property
    def memory_bytes(self) -> int:
        """About what a process needs: the program, the state while it changes, and the newest release."""
        # Measured: evictions 324 MB with 0.6 MB of state, earthquakes 429 MB with 25 MB.
        return 300_000_000 + 5 * self.state_bytes

    def _repr_html_(self) -> str:
        """How a notebook shows it: the promise, the expected errors of one measured cell, and warnings."""
        return framed(self.name, "a plan: nothing is spent", self.words, body=self._shown(html=True))

    def __repr__(self) -> str:
        return f"{self.name}, a plan: {self.words}\n{self._shown(html=False)}"

    def _shown(self, *, html: bool) -> str:
        lines = [
            {"after": f.asked, "events": round(f.events)}
            | {f"stderr, {_OF.get(k, f'{k} columns')}": round(error, 1) for k, error in f.stderr.items()}
            for f in self.forecasts
        ]
        with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            table = pl.DataFrame(lines)._repr_html_() if html else str(pl.DataFrame(lines))
        told = (f"Warning: {caution.about}: {caution.words}" for caution in self.cautions)
        return table + "".join(f"<p>{escape(words)}</p>" if html else f"\n{words}" for words in told)

    def facts(self) -> dict[str, Any]:
        """All of it for JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "claim": self.promise,
            "meaning": self.meaning,
            "how": self.how,
            "tables": _by_order(self.tables),
            "cells": self.cells,
            "memory_bytes": self.memory_bytes,
            "state_bytes": self.state_bytes,
            "bytes_per_tick": self.tick_bytes,
            "seconds_per_release": self.release_seconds,
            "expected": {"events": self.expected.number, "per": self.expected.per, "assumed": self.assumed},
            "budgets": [
                {"epsilon": b.epsilon, "configured": b.forecasts is self.forecasts}
                | {"forecasts": [f.facts() for f in b.forecasts]}
                for b in self.budgets
            ],
            "largest": self.largest_words,
            "caveat": self.caveat,
            "unforeseen": self.unforeseen,
            "cautions": [{"about": c.about, "words": c.words} for c in self.cautions],
            "notes": list(self.notes),
            "proposal": self.proposal and self.proposal.facts(),
        }


def plan(
    config: StreamConfig | str | Path,
    *,
    expect: str | Rate | None = None,
    at_ticks: Sequence[int] | None = None,
    rows: bool | None = None,
    track: Track = iter,
) -> Plan:
    """Forecast a configuration, or that of a ``stream.toml``. Reads no data, spends nothing, and repeats itself.

    Args:
        expect: a public guess of the rate of events, such as ``"500/day"``; left out: what the
            configuration guesses (``events`` of a place over the horizon, ``events_per_tick``), or 100 a tick.
        at_ticks: after how many ticks, as in ``[10, 100]``, at most the horizon; left out: days 1, 30, 365 and 3650.
        rows: whether to simulate the published rows too; left out: where that takes less than about half a minute.
        track: hands out the pieces of that work, so that a progress bar can follow.

    Raises:
        ConfigError: the rate cannot be read, a tick is below 1, or the configuration's parts do not fit together.

    Example:
        >>> from synthstream import StreamConfig, plan
        >>> config = StreamConfig.from_toml('''
        ... name = "visits"
        ... state = "state"
        ... privacy = { epsilon = 1.0, delta = 1e-9, unit = "event" }
        ... clock = { start = 2026-01-01, every = "1d", horizon = 365 }
        ... columns = [{ name = "ward", type = "category", values = ["A", "B", "C"] }]
        ... ''')
        >>> found = plan(config, expect="500/day")
        >>> round(found.forecasts[-1].stderr[1], 1)
        17.2
    """
    config = load(config)
    rate = _rate_of(config, expect)
    made, clock = synthesizer_of(config), config.own_clock
    moments, per_tick = moments_of(clock, at_ticks), rate.per_tick(clock)
    long = too_long(made.tables, len(moments), epochs=config.measures == "epochs") if rows is None else ""
    rows = rows is not False and not long
    large = too_large(made.tables, state := made.state_bytes(clock.horizon))
    budgets = _of_budgets(config, moments, per_tick, track if rows else None)
    forecasts, claim, promise = budgets[0].forecasts, claim_of(config, made.mechanism), promise_of(config).facts
    middle = forecasts[max(len(forecasts) - 2, 0)]  # not the end: most of the releases come before
    stderr, last = {f.ticks: f.stderr for f in forecasts}, forecasts[-1]
    of_cut = of_the_cut(config, last.ticks, last.stderr)
    return Plan(
        name=config.name,
        kind=config.synthesizer.kind,
        claim=claim,
        budget=config.privacy.budget,
        promise=promise,
        words=promise["words"],
        meaning=claim.unit.meaning,
        how=made.describe(),
        caveat=made.caveat,
        exact=made.exact_forecast,
        unforeseen=made.unforeseen,
        tables={} if made.tables is None else dict(sorted(Counter(map(len, made.tables.workload.marginals)).items())),
        cells=made.cells,
        state_bytes=state,
        tick_bytes=100 if made.tables is None else 3 * made.cells,  # measured: 2 to 3 bytes for each compressed count
        release_seconds=made.seconds(Expected(config.schema, [*moments], per_tick)) if rows else None,
        expected=rate,
        assumed=rate is _ASSUMED,
        forecasts=forecasts,
        budgets=tuple(sorted(budgets, key=lambda budgeted: budgeted.epsilon)),
        largest_words=_largest_words(forecasts, made.bound_covers),
        cautions=cautions_of(config, claim, stderr, rate, assumed=rate is _ASSUMED),
        notes=(*filter(None, (in_periods(config), long, large)), *notes_of(config, at_ticks), *of_cut),
        proposal=proposed(config, ticks=middle.ticks, events=middle.events, asked=middle.asked),
    )


def _of_budgets(
    config: StreamConfig, moments: Mapping[int, str], per_tick: float, track: Track | None
) -> list[Budgeted]:
    """Forecasts at the configured budget, the first, and at others; without ``track`` of measured counts alone."""
    configs = [config, *filter(None, (_with_part(config, part) for part in NEIGHBOURS))]
    made = [synthesizer_of(c) for c in configs]
    found = [[_forecast(m, config.own_clock, ticks, asked, per_tick) for ticks, asked in moments.items()] for m in made]
    if track is not None:
        found = _simulated(configs, made, found, per_tick, track)
    return [
        Budgeted(epsilon=c.privacy.budget.epsilon, forecasts=tuple(forecasts))
        for c, forecasts in zip(configs, found, strict=True)
    ]


def _rate_of(config: StreamConfig, expect: str | Rate | None) -> Rate:
    """The rate that is expected, and what to assume where nothing is said."""
    if expect is not None:
        if not isinstance(expect, str | Rate):
            raise TypeError(f'expect: must be a text such as "500/day", not {expect!r}')
        return Rate.parse(expect) if isinstance(expect, str) else expect
    guess, horizon = config.synthesizer.events_per_tick, config.clock.horizon
    if guess is None and config.events is not None and horizon is not None:
        guess = config.events / horizon
    return _ASSUMED if guess is None else Rate(number=guess, per="tick")


def _with_part(config: StreamConfig, part: float) -> StreamConfig | None:
    """The same stream with a part of its epsilon; ``None`` if that is no budget for it."""
    with suppress(ConfigError, ValueError):
        budget = replace(config.privacy.budget, epsilon=config.privacy.budget.epsilon * part)
        found = replace(config, privacy=replace(config.privacy, budget=budget))
        synthesizer_of(found)
        return found
    return None


def _forecast(made: Synthesizer, clock: Clock, ticks: int, asked: str, per_tick: float) -> Forecast:
    """What follows from the law of the noise alone."""
    when = Forecast(
        ticks=ticks, asked=asked, until=until(clock, ticks), events=ticks * per_tick, stderr={}, table_error={}
    )
    mechanism = made.tables
    if mechanism is None:
        return when
    workload, variance = mechanism.workload, made.expected_variance(ticks - 1, per_tick)
    order = np.array([len(m) for m in workload.marginals])
    box = box_variance(workload, variance)
    seen = np.flatnonzero(~np.isnan(variance))
    # Sums of a few heavy-tailed draws are close enough to normal for a mean absolute error.
    table_error = workload.lengths[seen] * np.sqrt(2 / np.pi * variance[seen])
    return replace(
        when,
        stderr={int(k): float(np.sqrt(variance[seen][order[seen] == k].mean())) for k in np.unique(order[seen])},
        table_error={int(k): float(table_error[order[seen] == k].mean()) for k in np.unique(order[seen])},
        box=None if math.isnan(box) else math.sqrt(box),
        largest=made.error_bound(ticks - 1, beta=BETA),
    )


def _simulated(
    configs: Sequence[StreamConfig],
    budgets: Sequence[Synthesizer],
    exact: Sequence[Sequence[Forecast]],
    per_tick: float,
    track: Track,
) -> list[list[Forecast]]:
    """The forecasts with errors of the rows, for each budget; the first is the configured one, and gets more draws."""
    ticks = [f.ticks for f in exact[0]]
    work: list[tuple[int, Callable[[], dict[int, RowErrors]]]] = []
    for k, made in enumerate(budgets):
        pieces = made.simulations(Expected(configs[0].schema, ticks, per_tick, careful=k == 0))
        work += [(k, piece) for piece in pieces]
    found: list[dict[int, RowErrors]] = [{} for _ in budgets]
    for k, piece in track(work):
        found[k] |= piece()
    found = never_rising(found, [c.privacy.budget.epsilon for c in configs])
    return [
        [replace(f, rows=rows.get(f.ticks)) for f in forecasts] for forecasts, rows in zip(exact, found, strict=True)
    ]


def _largest_words(forecasts: Sequence[Forecast], what: str) -> str:
    known = [f"{f.largest:,.0f} (tick {f.ticks:,})" for f in forecasts if f.largest is not None]
    if not known:
        return ""
    return (
        f"With probability {1 - BETA:.0%}, no cell of any table of one release is off by more than {', '.join(known)} "
        f"events, {what}."
    )


def _by_order(values: dict[int, Any]) -> dict[str, Any]:
    return {str(k): value for k, value in values.items()}
