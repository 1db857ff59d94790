"""What can be audited of each mechanism: its counters, and one tick of what has no counter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthstream.counts import Counts
from synthstream.evaluate.audit import _POWER, Measure, OfCounter, OfDraws, Target, spanned
from synthstream.evaluate.lower import lattice
from synthstream.kernel.batchwise import Batchwise
from synthstream.kernel.counters import Counter
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate
from synthstream.kernel.hypercube import Hypercube
from synthstream.kernel.marginals import Marginals
from synthstream.kernel.points import Points
from synthstream.kernel.schedule import Shape, differences
from synthstream.kernel.selective import Selective
from synthstream.kernel.turnstile import Turnstile
from synthstream.partition import Partition
from synthstream.release import Measured
from synthstream.testing.gates import ExactGate, TracingGate
from synthstream.workload import IntArray, Workload

FloatArray = NDArray[np.float64]

# Halvings of a simulated partition: finer ones cost time and are measured alike.
_DEPTH = 10
_EPOCH = 9


class Subjects(NamedTuple):
    """Single counters, parts of the whole, and what was left out."""

    counters: list[Target]
    parts: list[Target]
    caveat: str


def subjects(mechanism: Any, ticks: int) -> Subjects:
    """What to audit of a mechanism. Raises ``TypeError`` for an unknown one."""
    if isinstance(mechanism, Marginals):
        return _of_marginals(mechanism, ticks)
    if isinstance(mechanism, Epochs):
        total = _one_cell("the number of events", mechanism.counter, mechanism.total_multiplier, ticks)
        caveat = "Choices of tables were not audited, and count as nothing seen." if mechanism.chooses else ""
        return Subjects([], [total, *_tables(mechanism)], caveat)
    if isinstance(mechanism, Selective | Batchwise):
        own = mechanism.total_counter if isinstance(mechanism, Selective) else mechanism.counter
        total = _one_cell("the number of events", own, mechanism.total_multiplier, ticks)
        single = _one_cell("one cell of a table", mechanism.counter, mechanism.multiplier, ticks)
        caveat = "Weaker: choices of tables were not audited, and of measured ones the first tick alone."
        return Subjects([single], [total, *_tables(mechanism)], caveat)
    if isinstance(mechanism, Turnstile):
        side = subjects(mechanism.side, ticks)
        return side._replace(caveat=f"{side.caveat} Rows that add were; those that take away are measured alike.")
    if isinstance(mechanism, Points):
        known = mechanism.total
        scale = mechanism.scale(mechanism.parts[0]) if known is not None else 1.0
        first = [] if known is None else [_one_cell("the number of events", known, scale, ticks)]
        caveat = "Weaker: of the nodes, the end of one epoch was audited; what it keeps back for its course was not."
        return Subjects([], [*first, _nodes(mechanism)], caveat)
    if isinstance(mechanism, Hypercube):
        caveat = "Much weaker: one canary cell was audited. Comparisons with a noisy threshold hardly show."
        return Subjects([], [_canary(mechanism)], caveat)
    raise TypeError(f"no way is known to audit a {type(mechanism).__name__}")


def _one_cell(name: str, counter: Counter, multiplier: float, ticks: int) -> OfCounter:
    one = np.ones(1)
    kind = type(counter).__name__.lower()
    return OfCounter(
        name=f"{name}, by the counter {kind}",
        counter=counter,
        multipliers=multiplier * one,
        moved=one,
        ticks=spanned(counter, ticks),
    )


def _of_marginals(mechanism: Marginals, ticks: int) -> Subjects:
    """A row that comes moves one cell of every table; one that is replaced moves two, or one by two with its sign."""
    multipliers = _used(mechanism)
    moved = np.ones(multipliers.size)
    if mechanism.neighbours == "replace-one" and mechanism.unit.signed:
        moved *= 2
    elif mechanism.neighbours == "replace-one":
        several = mechanism.workload.lengths > 1
        multipliers, moved = np.repeat(multipliers[several], 2), np.repeat(moved[several], 2)
    claim = mechanism.claim()
    whole = OfCounter(
        name=f"all {len(mechanism.multipliers)} tables",
        counter=mechanism.counter,
        multipliers=multipliers,
        moved=moved,
        ticks=spanned(mechanism.counter, ticks),
        claimed=math.sqrt(2 * claim.rho) if claim.pure is None else float(claim.pure),
    )
    single = _one_cell("one cell of a table", mechanism.counter, float(mechanism.multipliers.min()), ticks)
    return Subjects([single], [whole], "")


def _used(mechanism: Marginals) -> FloatArray:
    """Multipliers of the first cell of each table, as a step of the mechanism really uses them, shape ``(tables,)``."""

    def asked(draw: Callable[[Gate], object]) -> FloatArray:
        tracing = TracingGate(ExactGate())
        draw(tracing)
        return np.asarray(tracing.trace[0].scale, dtype=np.float64)

    counter, cells = mechanism.counter, mechanism.workload.cells
    none = np.zeros(cells, dtype=np.int64)
    scales = asked(lambda gate: mechanism.step(mechanism.init(), none, gate))
    unit = asked(lambda gate: counter.step(counter.init(1), none[:1], gate, multiplier=np.ones(1)))
    return np.broadcast_to(scales, cells)[mechanism.workload.offsets[:-1]] / float(unit.reshape(-1)[0])


# -- the first tick of what has no counter ----------------------------------------------------------------------------


class _Unfitted:
    """Public synthetic data that are the same whatever was measured."""

    def __init__(self, workload: Workload) -> None:
        self._tables = np.repeat(1 / workload.lengths, workload.lengths)

    def begin(self, total: float) -> None:
        """Nothing to do."""

    def allows(self, tables: IntArray) -> NDArray[np.bool_]:
        """All."""
        return np.ones(len(tables), dtype=bool)

    def add(self, table: int, first: int, values: FloatArray) -> FloatArray:
        """The same tables again."""
        return self._tables


def _tables(mechanism: Epochs | Selective | Batchwise) -> list[Target]:
    """The tables that are measured in the first tick; an epoch ends with it."""
    if isinstance(mechanism, Epochs):
        singles = mechanism.scales[mechanism.order == 1].tolist()
        larger = mechanism.scales[mechanism.order == 2].tolist()[: mechanism.measured_larger]
        scales, gaussian = np.array(singles + larger), False
    else:
        scales, gaussian = np.full(mechanism.picks, mechanism.multiplier), not mechanism.budget.pure
    loss = mechanism.changed / scales
    events = max(1, round(_POWER / float(np.median(1 / scales))))
    without, present = _neighbours(mechanism, events)
    measure: Measure = "mu" if gaussian else "epsilon"

    def draw(side: int, gate: Gate) -> FloatArray:
        measured = _step(mechanism, present if side else without, gate)
        return _changed_cells(mechanism.workload, measured, without, present - without, len(scales))

    moved = float(np.abs(present - without).max())
    return [
        OfDraws(
            name=f"{len(scales)} tables measured in one tick",
            measure=measure,
            claimed=float(np.sqrt(np.sum(loss**2)) if gaussian else loss.sum()),
            draw=draw,
            shift=np.full(2 * len(scales), moved),
            events=events,
            room=lattice(float(scales.min()), moved) if gaussian else 1.0,
        )
    ]


def _step(mechanism: Epochs | Selective | Batchwise, counts: IntArray, gate: Gate) -> Measured:
    """What is measured in the first tick."""
    workload = mechanism.workload
    if isinstance(mechanism, Epochs):

        def guess(events: float) -> FloatArray:
            return np.asarray(np.repeat(events / workload.lengths, workload.lengths))

        return mechanism.step(mechanism.init(), counts, gate, guess)[1]
    return mechanism.step(mechanism.init(), counts, gate, _Unfitted(workload))[1]


def _neighbours(mechanism: Epochs | Selective | Batchwise, events: int) -> tuple[IntArray, IntArray]:
    """Counts of no rows and of some equal ones; or of these, and of as many others in their place."""
    workload = mechanism.workload
    row = workload.count(np.zeros((1, len(workload.sizes)), dtype=np.int32)) * events
    if mechanism.neighbours == "add-remove":
        return np.zeros_like(row), row
    if mechanism.unit.signed:
        return -row, row
    other = workload.count(np.array([workload.sizes], dtype=np.int32) - 1) * events
    return row, other


def _changed_cells(
    workload: Workload, measured: Measured, without: IntArray, change: IntArray, tables: int
) -> FloatArray:
    """Values of the cells that differ, turned so that the change is upwards, two for each table but the total."""
    out, place = np.full(2 * tables, np.nan), 0
    for marginal in measured.workload.marginals:
        if not marginal or place == 2 * tables:
            continue
        cells = workload.slice_of(marginal)
        differ = np.flatnonzero(change[cells])[:2]
        values = measured.values[measured.workload.slice_of(marginal)][differ] - without[cells][differ]
        out[place : place + differ.size] = np.sign(change[cells][differ]) * values
        place += 2
    return out


def _nodes(mechanism: Points) -> Target:
    """Halves of a box with some fixed events, at the end of the first epoch, which its first tick ends."""
    partition = mechanism.partition
    depth = max(min(partition.depth, _DEPTH), partition.dimension)
    small = replace(mechanism, partition=Partition(dimension=partition.dimension, depth=depth))
    levels = small.depth_of(1.4 * 2**_EPOCH / mechanism.budget.epsilon)
    cost = mechanism.parts[1]
    claimed = cost if mechanism.budget.pure else math.sqrt(2 * cost)
    each = claimed / (levels if mechanism.budget.pure else math.sqrt(levels))
    events = max(1, round(_POWER / each))
    without = np.zeros(2**depth, dtype=np.int64)
    without[0] = math.ceil(1.4 * 2**_EPOCH / mechanism.budget.epsilon) + events
    present = without.copy()
    if mechanism.neighbours == "replace-one":
        present[0] -= events
        present[-1] += events
    else:
        present[0] += events
    before, after = (np.concatenate(differences(cells, levels)) for cells in (without, present))
    differ = np.flatnonzero(after - before)
    shift = (after - before)[differ]

    def draw(side: int, gate: Gate) -> FloatArray:
        here = Counts.of(present if side else without)
        _, measured = small.step(small.init(), here, gate, Shape(np.ones(1), 0.1))
        values = np.full(before.size, np.nan)
        for block in measured.blocks:
            if block.level < levels:
                values[2**block.level - 1 : 2 ** (block.level + 1) - 1] = block.values
        return np.asarray(np.sign(shift) * (values - before)[differ])

    scale = mechanism.scale(cost)  # of a level that has all of the epoch's budget; no level has less noise
    return OfDraws(
        name=f"{levels} levels of halves at the end of an epoch",
        measure="epsilon" if mechanism.budget.pure else "mu",
        claimed=claimed,
        draw=draw,
        shift=np.abs(shift).astype(np.float64),
        events=events,
        room=1.0 if mechanism.budget.pure else lattice(scale, float(events)),
    )


def _canary(mechanism: Hypercube) -> Target:
    """Points that move from one half of the box to the other."""
    budget = mechanism.budget
    number = min(math.ceil(128 / budget.epsilon), mechanism.points)
    events = max(1, number // 4)
    sides: list[NDArray[np.int64]] = [np.zeros(number, dtype=np.int64) for _ in range(2)]
    sides[1][:events] = 2**mechanism.depth - 1

    def draw(side: int, gate: Gate) -> FloatArray:
        _, counts = mechanism.step(mechanism.init(), sides[side], np.arange(number), gate)
        return np.array([float(counts.levels[0][1]) if counts.levels else np.nan])

    return OfDraws(
        name="the noisy count of one half of the box",
        measure="epsilon",
        claimed=float(mechanism.claim().pure or 0),
        draw=draw,
        shift=np.array([float(events)]),
        events=events,
    )
