"""A forecast from the configuration alone. It touches no data and spends no budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from synthstream.assembly import claim_of, group_factor, synthesizer_of
from synthstream.bounds import BETA, covered, largest_error
from synthstream.config import StreamConfig
from synthstream.point_synthesizers import FromNodes, FromSparseCounts, forecast
from synthstream.privacy import Budget, Claim
from synthstream.synthesizer import TableMechanism

_CAVEAT = "An upper forecast: points are often several times closer, above all where events cluster."
AT_TICKS = (1, 10, 100, 1000)
_AT_EVENTS = (1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Expected error after a number of ticks.

    Args:
        ticks: how many ticks have been released.
        stderr: order of a table (number of its columns) -> standard error of one measured cell, in events: root mean
            square over the tables of that order.
        table_error: order -> expected sum of absolute errors over the cells of a table, in events: mean over tables.
        largest: what no cell of any table measured at that tick is off by, with a probability of 95 %, in events; see
            :func:`synthstream.bounds.largest_error`. ``None`` if no bound is known.
    """

    ticks: int
    stderr: dict[int, float]
    table_error: dict[int, float]
    largest: float | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a configuration promises, needs and will deliver.

    Args:
        claim, words: the guarantee, exact and as a sentence.
        meaning: what that means for whom, and what protecting them costs, in plain sentences.
        how: how tables are measured.
        tables: order of a table (number of its columns) -> number of tables.
        cells: of all tables.
        state_bytes, tick_bytes: counter state, and what each tick adds on disk.
        forecasts: errors to expect, by number of ticks.
        largest_words: the forecasts' ``largest`` in a sentence; empty if no bound is known.
        distances: of a points stream, pairs of a number of events and the Wasserstein distance W1 to expect, in widths
            of the box.
    """

    claim: Claim
    words: str
    meaning: str
    how: str
    caveat: str
    tables: dict[int, int]
    cells: int
    state_bytes: int
    tick_bytes: int
    forecasts: tuple[Forecast, ...]
    largest_words: str
    distances: tuple[tuple[int, float], ...] = ()


def plan(config: StreamConfig, *, at_ticks: Sequence[int] = AT_TICKS) -> Plan:
    """Forecast a configuration. Ticks beyond the horizon are left out; the horizon itself is put in their place."""
    made = synthesizer_of(config)
    if isinstance(made, FromNodes | FromSparseCounts):
        return _of_points(config, made)
    mechanism = cast("TableMechanism", made.mechanism)
    workload = mechanism.workload
    claim = claim_of(config, mechanism)
    horizon = config.clock.horizon
    ticks = sorted({t if horizon is None else min(t, horizon) for t in at_ticks})
    orders = sorted({len(m) for m in workload.marginals})
    forecasts = tuple(_forecast(mechanism, t) for t in ticks)
    return Plan(
        claim=claim,
        words=claim.words(config.privacy.budget),
        meaning=claim.unit.meaning + _dearer(config),
        how=mechanism.describe(),
        caveat=mechanism.caveat + _unused(claim, config.privacy.budget),
        tables={k: sum(len(m) == k for m in workload.marginals) for k in orders},
        cells=workload.cells,
        state_bytes=_state_bytes(mechanism, horizon),
        tick_bytes=3 * workload.cells,  # measured: 2 to 3 bytes for each compressed noisy count
        forecasts=forecasts,
        largest_words=_largest_words(forecasts, covered(mechanism)),
    )


def _of_points(config: StreamConfig, made: FromNodes | FromSparseCounts) -> Plan:
    mechanism = made.mechanism
    claim, cells = claim_of(config, mechanism), 2**mechanism.depth
    return Plan(
        claim=claim,
        words=claim.words(config.privacy.budget),
        meaning=claim.unit.meaning + _dearer(config),
        how=mechanism.describe(),
        caveat=_CAVEAT if isinstance(made, FromNodes) else "No forecast of its error is known.",
        tables={},
        cells=cells,
        state_bytes=3 * 8 * cells,  # the open epoch, its counters, the newest masses
        tick_bytes=100,  # and 8 bytes for each node when an epoch ends
        forecasts=(),
        largest_words="",
        distances=tuple((n, forecast(made, n)) for n in _AT_EVENTS) if isinstance(made, FromNodes) else (),
    )


def _dearer(config: StreamConfig) -> str:
    """What protecting persons costs; empty if events are protected."""
    unit = config.privacy.unit
    if not unit.of_persons:
        return ""
    if group_factor(config) == 1:
        return ' Errors are those of unit = "event".'
    return (
        f" That makes errors about {float(group_factor(config)):.3g} times as large as with "
        'unit = "event"; a smaller max_events makes them smaller, and leaves out more rows of busy people.'
    )


def _unused(claim: Claim, budget: Budget) -> str:
    """A sentence if delta is allowed but not used; empty otherwise."""
    if budget.pure or claim.pure is None:
        return ""
    return (
        f" delta = {budget.delta:g} buys nothing here: what is promised is pure. Say delta = 0, or measure otherwise."
    )


def _forecast(mechanism: TableMechanism, ticks: int) -> Forecast:
    variance = mechanism.expected_variance(ticks - 1)
    lengths = mechanism.workload.lengths
    order = np.array([len(m) for m in mechanism.workload.marginals])
    foreseen = np.flatnonzero(~np.isnan(variance))
    variance, order, lengths = variance[foreseen], order[foreseen], lengths[foreseen]
    # Sums of a few heavy-tailed draws are close enough to normal for a mean absolute error.
    table_error = lengths * np.sqrt(2 / np.pi * variance)
    return Forecast(
        ticks=ticks,
        stderr={int(k): float(np.sqrt(variance[order == k].mean())) for k in np.unique(order)},
        table_error={int(k): float(table_error[order == k].mean()) for k in np.unique(order)},
        largest=largest_error(mechanism, tick=ticks - 1),
    )


def _largest_words(forecasts: Sequence[Forecast], what: str) -> str:
    """The forecasts' ``largest`` in a sentence."""
    known = [f"{f.largest:,.0f} (tick {f.ticks:,})" for f in forecasts if f.largest is not None]
    if not known:
        return ""
    return (
        f"With probability {1 - BETA:.0%}, no cell of any table of one release is off by more than {', '.join(known)} "
        f"events, {what}."
    )


def _state_bytes(mechanism: TableMechanism, horizon: int | None) -> int:
    """Bytes of counter state at the horizon (or in the first segment)."""
    cells = mechanism.workload.cells
    state = sum(array.nbytes for array in mechanism.init().values())
    if "counts" in mechanism.init():  # toeplitz remembers every tick
        state += 16 * cells * (horizon or 0)
    return state
