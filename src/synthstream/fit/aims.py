"""What rows of edition 2 should aim at: as :mod:`synthstream.fit.targets`, with four differences.

Codes that probably never occur are not raised above 0. What all pairs have in common is looked for in what the
shrinkage of each leaves. Associations may make a cell fall below 0: rows are the nearest thing that can be, and to push
each table there on its own would favour rare cells. Tables of an earlier tick are carried to this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthstream.fit.lowrank import common
from synthstream.fit.rare import real
from synthstream.fit.targets import (
    ALONE,
    CAUTION,
    LEFT,
    MEMORY,
    SMALLEST,
    TOGETHER,
    Targets,
    independent_counts,
    margins_of,
    past_of,
    simplex,
    total_of,
    with_margins,
)
from synthstream.measured import Measured
from synthstream.workload import CodeArray, FloatArray, Workload

# The prior variance of an association is taken to be in proportion to this power of its columns' shares.
_POWER = 0.75
# A column's shares among new events are taken to differ by so much from those before, if only an old table tells.
_DRIFT = 0.1


class _Now(NamedTuple):
    """All tables as of this tick.

    Args:
        values: noisy counts over all cells.
        variance: of a cell of each marginal, as far as associations go.
        of_margins: the same, as far as margins go.
        total: number of events.
    """

    values: FloatArray
    variance: FloatArray
    of_margins: FloatArray
    total: float


def aims(
    measured: Measured, *, start: CodeArray | None = None, memory: float = MEMORY, events: FloatArray | None = None
) -> Targets:
    """Estimate total, margins and tables; cells of tables may be below 0.

    Args:
        measured, start, memory: as of :func:`synthstream.fit.targets.targets`.
        events: see :func:`synthstream.fit.population.fit`.
    """
    workload, now = measured.workload, _carried(measured, events)
    rows = max(0, round(now.total))
    at_once = Measured(tick=measured.tick, workload=workload, values=now.values, variance=now.of_margins)
    counts, variances = margins_of(at_once, now.of_margins, now.total)
    fresh = _possible(counts, variances, rows)
    shares, past = fresh, None
    if start is not None and len(start) and rows:
        past = past_of(measured, start, rows, memory)
        blended = [
            _blend(old, new, noise, past.pull, new.size - 1)
            for old, new, noise in zip(past.margins, fresh, variances, strict=True)
        ]
        shares = [margin * (rows / margin.sum()) for margin in blended]
    left = 1.0 if past is None else LEFT
    news = _associations(workload, now, fresh, rows, left) if rows else {}
    cells = np.empty(workload.cells)
    for q, marginal in enumerate(workload.marginals):
        part = slice(workload.offsets[q], workload.offsets[q + 1])
        if len(marginal) < 2:
            cells[part] = shares[marginal[0]] if marginal else float(rows)
            continue
        table = independent_counts([shares[c] for c in marginal], rows)
        if q in news:
            found, error = news[q]
            if past is not None:
                before = past.cells[part].reshape(found.shape)
                before = before - independent_counts([past.margins[c] for c in marginal], rows)
                found = _blend(before, found, error, past.pull, _freedom(found.shape))
            table = table + found
        cells[part] = table.reshape(-1)
    return Targets(rows, tuple(shares), cells)


def _carried(measured: Measured, events: FloatArray | None) -> _Now:
    """Scale tables of earlier ticks to the events of this one."""
    workload, variance = measured.workload, np.maximum(measured.variance, SMALLEST)
    old = np.zeros(len(variance), dtype=np.bool_) if events is None else np.isfinite(events)
    if events is None or old.all() or not old.any():
        return _Now(measured.values, variance, variance, total_of(measured, variance))
    total = total_of(measured, np.where(old, np.inf, variance))
    then = np.maximum(np.where(old, events, total), 1.0)
    ratio = np.where(old, max(total, 1.0) / then, 1.0)
    arrived = np.abs(total - then) / workload.lengths
    scaled = variance * ratio**2
    values = measured.values * np.repeat(ratio, workload.lengths)
    return _Now(values, scaled, scaled + arrived + (_DRIFT * arrived) ** 2, total)


def _possible(counts: Sequence[FloatArray], variances: Sequence[float], rows: int) -> list[FloatArray]:
    """Margins of no code below 0, each with the sum of the rows; codes that may be nothing but noise are lowered."""
    errors = [math.sqrt(max(variance, SMALLEST)) for variance in variances]
    found = []
    for count, chance in zip(counts, real(counts, errors), strict=True):
        nearest = simplex(count, float(rows))
        lowered = nearest * chance
        found.append(lowered * (rows / lowered.sum()) if lowered.sum() > 0 else nearest)
    return found


def _associations(
    workload: Workload, now: _Now, margins: Sequence[FloatArray], rows: int, left: float
) -> dict[int, tuple[FloatArray, FloatArray]]:
    """What tables hold beyond independent columns, and the variance of its noise, by position.

    First what stands out of a table's own noise, then what is common to many tables in the rest of them all.
    """
    found, rest = {}, {}
    for q, (marginal, shape) in enumerate(zip(workload.marginals, workload.shapes, strict=True)):
        if len(marginal) > 1:
            own = [margins[c] for c in marginal]
            table = now.values[workload.offsets[q] : workload.offsets[q + 1]].reshape(shape)
            association = with_margins(table, own) - independent_counts(own, rows)
            found[q] = _shrunk(association, [margin / rows for margin in own], float(now.variance[q]), left)
            rest[q] = association - found[q][0]
    shared = common(workload, rest, now.variance)
    for q, mean in shared.means.items():
        found[q] = found[q][0] + mean, found[q][1] + shared.share * now.variance[q]
    return found


def _shrunk(
    association: FloatArray, chances: Sequence[FloatArray], variance: float, left: float
) -> tuple[FloatArray, FloatArray]:
    """Posterior mean of an association around 0, and the variance of its noise, cell by cell.

    The prior of a cell is that of a table whose margins are known: in a table of two by two all four cells have one
    variance. Its factor is estimated by moments, weighted by the prior (Morris 1983). ``left`` is the share of the
    noise that is still there once rows have been fitted.
    """
    prior = np.array(1.0)
    for chance in chances:
        power = chance**_POWER
        prior = np.multiply.outer(prior, power * (1 - power / max(power.sum(), SMALLEST)))
    noise = variance * _freedom(association.shape) / association.size
    spread = float(np.sum(prior**2))
    if spread == 0 or noise == 0:
        return np.zeros_like(association), np.zeros_like(association)
    excess = float(np.sum(prior * (association**2 - noise))) - CAUTION * noise * np.sqrt(2 * spread)
    signal = max(0.0, excess / spread) * prior
    kept = signal / (signal + left * noise)
    return association * kept, kept**2 * noise


def _freedom(shape: tuple[int, ...]) -> int:
    """How many cells of a table are free once all smaller tables are known."""
    return math.prod(size - 1 for size in shape)


def _blend(old: FloatArray, new: FloatArray, noise: FloatArray | float, pull: float, freedom: int) -> FloatArray:
    """As of edition 1, but a table of few degrees of freedom must stand out further: one cell is all that it is."""
    gap = new - old
    square = np.maximum(gap * gap, SMALLEST)
    beyond = TOGETHER + (ALONE**2 - TOGETHER) / max(freedom, 1)
    together = 1 - beyond * float(np.sum(np.broadcast_to(noise, gap.shape))) / float(square.sum())
    alone = 1 - ALONE**2 * noise / square
    return np.asarray(old + gap * np.maximum(max(pull, together), alone))
