"""What a stream and its successors promise together, and how what was measured before a cut goes on after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import compress, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthstream.config.config import StreamConfig
from synthstream.counts import Counts
from synthstream.measured import Measured, Reading
from synthstream.privacy import Budget, Claim, above, compose, stated
from synthstream.schema.conditions import first
from synthstream.schema.mapping import SchemaMapping
from synthstream.synthesizers.assembly import claim_facts, claim_of, synthesizer_of
from synthstream.synthesizers.contract import Models
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload


class Promise(NamedTuple):
    """What a stream promises: the claim, what it was charged to, and both as they are written down."""

    claim: Claim
    budget: Budget
    facts: dict[str, Any]


def promise_of(config: StreamConfig, *, resumed: bool = False) -> Promise:
    """What a stream promises for its whole life, also before any cut.

    Args:
        resumed: whether a lost state was resumed, so that the theorem of segments is part of it.
    """
    lives = config.lives
    parts = [(one.privacy.budget, claim_of(one, synthesizer_of(one).mechanism, resumed=resumed)) for one in lives]
    if len(parts) == 1:
        budget, claim = parts[0]
        return Promise(claim, budget, claim_facts(claim, budget))
    budget, claim = across(parts, horizon=config.clock.horizon)
    starts = [0, *(life.after.tick for life in lives if life.after is not None)]
    listed = [
        {"from": start, "epsilon": own.epsilon, "delta": own.delta, "rho": above(part.rho)}
        for start, (own, part) in zip(starts, parts, strict=True)
    ]
    facts = claim_facts(claim, budget)
    return Promise(claim, budget, facts | {"words": f"{facts['words']} {_across(claim, listed)}", "parts": listed})


def _across(claim: Claim, parts: list[dict[str, Any]]) -> str:
    """What the promise for the whole life is made of, in words."""
    each = ", ".join(
        f"({stated(part['epsilon'])}, {stated(part['delta'])}) from {'the cut' if part['from'] is None else 'tick'}"
        + ("" if part["from"] is None else f" {part['from']}")
        + " on"
        for part in parts
    )
    if claim.unit.of_persons:
        return f"It is the sum of its parts, {each}: a person may have events in all of them."
    return (
        f"It is the largest of its parts, {each}: an event counts in one of them alone. Who moves an event from one "
        "part to another changes two events."
    )


def across(parts: Sequence[tuple[Budget, Claim]], *, horizon: int | None) -> tuple[Budget, Claim]:
    """What a stream and its successors promise together. Theorem: succession.

    An event counts in one part alone, and has the largest of their promises; a person may be in all of them, and has
    the sum.

    Args:
        parts: budgets and claims of one unit and one relation of neighbours, in the order of time.
        horizon: of the newest part, in ticks of the stream.
    """
    budgets, claims = [budget for budget, _ in parts], [claim for _, claim in parts]
    newest, pure = claims[-1], [claim.pure for claim in claims]
    rho, together, least = compose(claims)
    if newest.unit.of_persons:
        budget = Budget(
            epsilon=above(sum((Fraction(b.epsilon) for b in budgets), Fraction(0))),
            delta=above(sum((Fraction(b.delta) for b in budgets), Fraction(0))),
        )
    else:
        rho, together = max(c.rho for c in claims), None if None in pure else max(p for p in pure if p is not None)
        budget = Budget(epsilon=max(b.epsilon for b in budgets), delta=max(b.delta for b in budgets))

    def all_of(what: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(fact for claim in claims for fact in getattr(claim, what)))

    theorems, trusts = (*all_of("theorems"), "succession"), (*all_of("trusts"), *_ACROSS)
    facts: dict[str, Any] = {"theorems": theorems, "trusts": trusts, "provided": all_of("provided")}
    return budget, replace(newest, rho=rho, pure=together, least=least, horizon=horizon, **facts)


_ACROSS = (
    "when a stream went on with other settings, and with which, depends on releases at most, on no private value",
    "a row that comes again is read with the time that it had before",
)

# -- what goes on ----------------------------------------------------------------------------------------------------


def carried_reading(config: StreamConfig, reading: Reading) -> Reading:
    """What was measured before the cut, over the tables of the successor of which all columns were recorded."""
    if config.after is None or config.workload is None or not isinstance(reading, Measured):
        return reading
    mapping, known = config.after.mapping, reading.workload.place
    pairs = [(m, mapping.before(m)) for m in config.workload.marginals]
    kept = [(m, known[old]) for m, old in pairs if old in known]
    values, cells = list[FloatArray](), list[FloatArray]()
    before = reading.cell_variance()
    for marginal, q in kept:
        values.append(mapping.table(marginal, reading.workload.table(reading.values, q).reshape(-1)))
        cells.append(mapping.table(marginal, reading.workload.table(before, q).reshape(-1), power=2))
    places = [q for _, q in kept]
    return Measured(
        tick=reading.tick,
        workload=Workload(sizes=config.workload.sizes, marginals=tuple(m for m, _ in kept)),
        values=np.concatenate([*values, np.zeros(0)]),
        variance=reading.variance[places] * [_factor(mapping, m) for m, _ in kept],
        since=reading.since[places],
        measured_at=None if reading.measured_at is None else reading.measured_at[places],
        by_cell=np.concatenate([*cells, np.zeros(0)]),
    )


def carried_covariance(config: StreamConfig, covariance: FloatArray) -> FloatArray:
    """Covariances of tables before the cut, for the successor's tables; 0 for those that were not recorded.

    Where values were merged it is that of the cell with the most of them.
    """
    tables = _tables(config)
    if tables is None:
        return covariance
    mapping, old, new = tables
    found = np.zeros(len(new.marginals))
    for q, marginal in enumerate(new.marginals):
        if (before := mapping.before(marginal)) in old.place:
            found[q] = covariance[old.place[before]] * _factor(mapping, marginal)
    return found


def noise_before(config: StreamConfig) -> FloatArray | None:
    """Variance of the noise that running tables of a successor have from before its cut, ``(marginals,)``.

    From settings alone: for a stream without bursts, whose state was never lost. 0 for tables that were not recorded.
    ``None`` if the cut is not known yet, or nothing is counted in tables.
    """
    found: FloatArray | None = None
    for before, life in pairwise(config.lives):
        made, cut = synthesizer_of(before), None if life.after is None else life.after.tick
        if made.tables is None or cut is None:
            return None
        ticks = cut - (0 if before.after is None else before.after.tick or 0)
        own = made.expected_variance(ticks - 1)
        found = carried_covariance(life, own if found is None else own + found)
    return found


def carried_cells(config: StreamConfig, what: str, values: FloatArray) -> FloatArray:
    """A column of the tables of a release before the cut, over the successor's cells.

    Args:
        what: ``count``, ``measured``, ``stderr`` or ``since``; all but counts are NaN where a column was not recorded.
    """
    tables = _tables(config)
    if tables is None:
        return values
    mapping, old, new = tables
    found = np.full(new.cells, np.nan)
    for marginal in new.marginals:
        recorded = tuple(column for column in marginal if mapping.places[column] is not None)
        source = _source(mapping, marginal)
        if source not in old.place or (what != "count" and recorded != marginal):
            continue
        here = values[old.slice_of(source)]
        if what == "since":
            cells = np.full(math.prod(new.sizes[column] for column in recorded), here[0])
        elif what == "stderr":
            cells = np.sqrt(mapping.table(recorded, here**2, power=2))
        else:
            cells = mapping.table(recorded, here)
        found[new.slice_of(marginal)] = _filled(mapping, new, marginal, recorded, cells)
    return found


def _filled(
    mapping: SchemaMapping, new: Workload, marginal: tuple[int, ...], recorded: tuple[int, ...], cells: NDArray[Any]
) -> NDArray[Any]:
    """The cells of a table whose rows have the fill of each column that was not recorded, from those of the others."""
    table = np.zeros([new.sizes[column] for column in marginal], dtype=cells.dtype)
    place = tuple(slice(None) if column in recorded else mapping.fills[column] for column in marginal)
    table[place] = cells.reshape([new.sizes[column] for column in recorded])
    return table.reshape(-1)


def _factor(mapping: SchemaMapping, marginal: tuple[int, ...]) -> float:
    """How many times as large the variance of a cell becomes at most."""
    shares = [share for column in marginal if (share := mapping.shares[column]) is not None]
    return float(np.prod([np.max((share**2).sum(axis=0), initial=0.0) for share in shares]))


def carried_model(config: StreamConfig, arrays: Models, *, seed: int) -> Models:
    """The model before the cut, over the columns of the successor; points go on as they are.

    Args:
        seed: public; it decides where rows of a bin that was cut lie.
    """
    if config.after is None or config.workload is None:
        return arrays
    rows = config.after.mapping.rows(arrays["codes"].astype(np.int32), np.random.default_rng(seed))
    return {**arrays, "codes": rows.astype(np.min_scalar_type(max(config.workload.sizes) - 1))}


def _tables(config: StreamConfig) -> tuple[SchemaMapping, Workload, Workload] | None:
    """The mapping at the cut, and the tables before and after it; ``None`` if nothing needs to be mapped."""
    after = config.after
    if after is None or config.workload is None or after.config.workload is None:
        return None
    return after.mapping, after.config.workload, config.workload


def known_since(config: StreamConfig, column: str) -> IntArray:
    """The first tick whose rows can have each value of a column, int64, shape ``(values,)``: 0, or a cut.

    At a cut it is a value that no value before it became.
    """
    place: int | None = (newest := config.schema.names.index(column))
    reached = np.eye(config.schema.columns[newest].size)
    found = np.zeros(len(reached), dtype=np.int64)
    for life in reversed(config.lives):
        if life.after is None or place is None:
            break
        share = life.after.mapping.shares[place]
        reached = np.zeros_like(reached) if share is None else share @ reached
        found = np.where((found == 0) & ~reached.any(axis=0), life.after.tick or 0, found)
        place = life.after.mapping.places[place]
    return found


def waits_as_other(config: StreamConfig) -> str:
    """What rows that wait over the cut do not say of values that are new; empty if no value is. From settings alone."""
    if config.after is None:
        return ""
    new = list[str]()
    for column, share in zip(config.schema.columns, config.after.mapping.shares, strict=True):
        labels = [] if share is None else compress(column.labels, (share.sum(axis=0) == 0).tolist())
        new += [f"{column.name} = {label}" for label in labels]
    if not new:
        return ""
    return (
        f"Rows that were read already and wait for a tick from the cut on know no value that is new ({first(new)}): "
        "for good they count as they were read, mostly as other. `succeed --read-again` counts them anew."
    )


def not_recorded(config: StreamConfig, codes: CodeArray) -> CodeArray:
    """Rows of a successor with the fill of each column that was not recorded before the cut."""
    found = codes.copy()
    if config.after is not None:
        for column, place in enumerate(config.after.mapping.places):
            found[:, column] = config.after.mapping.fills[column] if place is None else found[:, column]
    return found


def refuse_to_carry(config: StreamConfig) -> str:
    """Why rows that wait cannot count over the successor's tables; empty if they can. Looks at settings alone."""
    found = _tables(config)
    if found is None or config.after is None:
        return ""
    mapping, old, new = found
    if not mapping.exact:
        return "columns: a bin was cut, and of rows that were counted nobody knows on which side they lie"
    if config.privacy.unit.of_persons:
        return ""
    now, then = synthesizer_of(config), synthesizer_of(config.after.config)
    if then.cells - old.cells < now.cells - new.cells:
        return "privacy.delta: rows of either sign are counted from now on, and were not"
    lacking = [m for m in new.marginals if _source(mapping, m) not in old.marginals]
    if not lacking:
        return ""
    names = [config.schema.names[column] for column in lacking[0]]
    return f"synthesizer.marginals: the table of {', '.join(names)} was not counted before"


def _source(mapping: SchemaMapping, marginal: tuple[int, ...]) -> tuple[int, ...]:
    """The old columns among those of a new table."""
    return tuple(sorted(place for column in marginal if (place := mapping.places[column]) is not None))


def carried_counts(config: StreamConfig, counts: Counts) -> Counts:
    """Exact counts of rows that wait, over the successor's cells: rows have each new column's fill. Private.

    Linear, and each row counts once in each table, as if it had come with the new columns.
    """
    tables = _tables(config)
    if tables is None or config.after is None:
        return counts
    mapping, old, new = tables
    dense = counts.dense(synthesizer_of(config.after.config).cells)
    found = np.zeros(synthesizer_of(config).cells, dtype=np.int64)
    for marginal in new.marginals:
        recorded = tuple(column for column in marginal if mapping.places[column] is not None)
        values = mapping.table(recorded, dense[old.slice_of(_source(mapping, marginal))].astype(np.float64))
        cells = values.round().astype(np.int64)
        found[new.slice_of(marginal)] = _filled(mapping, new, marginal, recorded, cells)
    found[new.cells :] = dense[old.cells : old.cells + found.size - new.cells]
    return Counts.of(found)
