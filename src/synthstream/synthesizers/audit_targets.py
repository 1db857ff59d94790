"""What can be audited of each mechanism: its counters, and one tick of what has no counter.

Here it is only described; :mod:`synthstream.evaluate.audit` draws and measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from synthstream.counts import Counts
from synthstream.fit.ahead import Ahead
from synthstream.kernel.counters import Counter
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate, Question
from synthstream.kernel.points import Points
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.measured import Measured
from synthstream.partition import Partition
from synthstream.strategies.levels import ANYWHERE
from synthstream.synthesizers.contract import POWER, AuditTargets, CounterTarget, DrawTarget
from synthstream.workload import FloatArray, IntArray, Workload

if TYPE_CHECKING:
    from synthstream.papers.batchwise import Batchwise
    from synthstream.papers.hypercube import Hypercube
    from synthstream.papers.rounds import InRounds
    from synthstream.papers.selective import Selective

# Halvings of a simulated partition: finer ones cost time and are measured alike.
_DEPTH = 10
_EPOCH = 9


def of_marginals(mechanism: Marginals) -> AuditTargets:
    """Of tables that are all measured at every tick."""
    multipliers, moved = _moved(mechanism, _used(mechanism), mechanism.workload.lengths)
    claim = mechanism.claim()
    whole = CounterTarget(
        name=f"all {len(mechanism.multipliers)} tables",
        counter=mechanism.counter,
        multipliers=multipliers,
        moved=moved,
        claimed=math.sqrt(2 * claim.rho) if claim.pure is None else float(claim.pure),
    )
    single = _one_cell("one cell of a table", mechanism.counter, float(mechanism.multipliers.min()))
    return AuditTargets([single], [whole], "")


def of_refreshed(mechanism: Refreshed) -> AuditTargets:
    """Of tables of which larger ones are measured at refreshes."""
    gate = _Scales()
    mechanism.step(mechanism.init(), np.zeros(mechanism.workload.cells, dtype=np.int64), gate)  # a refresh is the first
    order, lengths = mechanism.order, mechanism.workload.lengths
    counters = (mechanism.counter, mechanism.singles, mechanism.larger)
    names = ("small tables at every tick", "tables of one column at refreshes", "larger tables at refreshes")
    parts: list[CounterTarget | DrawTarget] = []
    for name, how, asked, held in zip(names, counters, gate.asked, (order < 2, order == 1, order == 2), strict=True):
        # Of small tables the total comes first at the gate.
        sizes = np.concatenate([lengths[held & (order == k)] for k in (0, 1, 2)])
        used = asked[np.cumsum([0, *sizes[:-1]])] / (how.sensitivity(0) * 2.0**how.grid_bits)
        multipliers, moved = _moved(mechanism, used, sizes)
        parts.append(CounterTarget(name=name, counter=how, multipliers=multipliers, moved=moved))
    single = _one_cell("one cell of a larger table", mechanism.larger, float(mechanism.at_refreshes[order == 2].min()))
    return AuditTargets([single], parts, "")


def of_epochs(mechanism: Epochs) -> AuditTargets:
    """Of tables that are measured once an epoch."""
    total = _one_cell("the number of events", mechanism.counter, mechanism.total_multiplier)
    other = f" An epoch with {mechanism.nearest()} larger tables was audited; with another number the noise is another."
    caveat = (
        f"Choices of tables were not audited, and count as nothing seen.{other if len(mechanism.open_to) > 1 else ''}"
        if "choose" in mechanism.claim().theorems
        else ""
    )
    workload, scales = mechanism.workload, mechanism.scales[mechanism.nearest()]
    alone = [[workload.marginals[q] for q in group] for group in mechanism.groups]
    larger = scales[mechanism.order == 2].tolist()[: mechanism.nearest()]
    asked = np.array([float(scales[group[0]]) for group in mechanism.groups] + larger)

    class AsUsual(Ahead):
        """Measures as many larger tables in every epoch, so that all runs of an audit have the same noise."""

        @override
        def number(self, scales: Mapping[int, FloatArray], events: float, shown: FloatArray, *, whole: bool) -> int:
            return mechanism.nearest()

    def measured(counts: IntArray, gate: Gate) -> Measured:
        rows = [np.abs(counts[workload.slice_of(())])] if mechanism.counts_rows else []
        return mechanism.step(mechanism.init(), np.concatenate([counts, *rows]), gate, AsUsual(workload=workload))[1]

    def read(found: Measured, without: IntArray, change: IntArray) -> FloatArray:
        """How much nearer each question's answer is to the counts with the events, by the norm that its noise falls
        with: from 0 to the change.
        """
        groups = [*alone, *([m] for m in found.workload.marginals if len(m) > 1)]
        each = np.full(asked.size, np.nan)
        for place, group in enumerate(groups):
            moved = [change[workload.slice_of(m)] for m in group]
            off = [found.marginal(m)[0].ravel() - without[workload.slice_of(m)] for m in group]
            first, then, most = (
                max(float(np.abs(table).sum()) for table in tables)
                for tables in (off, [a - b for a, b in zip(off, moved, strict=True)], moved)
            )
            each[place] = (first - then + most) / 2
        return each

    number = sum(map(len, alone)) + len(larger)
    tables = _tables(mechanism, asked, measured, gaussian=False, number=number, read=read)
    rows = [_one_cell("the rows of either sign", mechanism.counter, float(m)) for m in mechanism.running[1:]]
    return AuditTargets([], [total, *rows, tables], caveat)


def of_rounds(mechanism: Selective | Batchwise) -> AuditTargets:
    """Of the methods of paper 2."""
    own = _one_cell("the number of events", mechanism.counters[0], mechanism.total_multiplier)
    single = _one_cell("one cell of a table", mechanism.counter, mechanism.multiplier)

    def measured(counts: IntArray, gate: Gate) -> Measured:
        return mechanism.step(mechanism.init(), counts, gate, _Unfitted(mechanism.workload))[1]

    scales = np.full(mechanism.picks, mechanism.multiplier)
    tables = _tables(mechanism, scales, measured, gaussian=not mechanism.budget.pure)
    caveat = "Weaker: choices of tables were not audited, and of measured ones the first tick alone."
    return AuditTargets([single], [own, tables], caveat)


def of_points(mechanism: Points) -> AuditTargets:
    """Of points measured epoch by epoch."""
    known = mechanism.total
    scale = mechanism.scale(mechanism.parts[0]) if known is not None else 1.0
    first = [] if known is None else [_one_cell("the number of events", known, scale)]
    caveat = "Weaker: of the nodes, the end of one epoch was audited; what it keeps back for its course was not."
    return AuditTargets([], [*first, _nodes(mechanism)], caveat)


def of_hypercube(mechanism: Hypercube) -> AuditTargets:
    """Of the algorithm of paper 1."""
    caveat = "Much weaker: one canary cell was audited. Comparisons with a noisy threshold hardly show."
    return AuditTargets([], [_canary(mechanism)], caveat)


def _one_cell(name: str, counter: Counter, multiplier: float) -> CounterTarget:
    kind, one = type(counter).__name__.lower(), np.ones(1)
    return CounterTarget(
        name=f"{name}, by the counter {kind}", counter=counter, multipliers=multiplier * one, moved=one
    )


class _Scales(Gate):
    """A gate that adds nothing, and notes all scales that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[FloatArray] = []

    def answer(self, question: Question) -> IntArray:
        self.asked.append(np.broadcast_to(np.asarray(question.scale, dtype=np.float64), question.size))
        return question.noiseless()


class _Along(Gate):
    """Notes what another gate answers; a mechanism goes on as if the answers had been those of a path, if there is one.

    So every draw of the path has the law that it has given the answers before it, and all are independent.
    """

    def __init__(self, gate: Gate, path: list[IntArray] | None) -> None:
        self._gate, self._path = gate, path
        self.noted: list[IntArray] = []

    def answer(self, question: Question) -> IntArray:
        self.noted.append(self._gate.answer(question))
        return self.noted[-1] if self._path is None else self._path[len(self.noted) - 1]


def _used(mechanism: Marginals) -> FloatArray:
    """Multipliers of the first cell of each table, as a step of the mechanism really uses them, shape ``(tables,)``."""
    counter, tables, single = mechanism.counter, _Scales(), _Scales()
    none = np.zeros(mechanism.workload.cells, dtype=np.int64)
    mechanism.step(mechanism.init(), none, tables)
    counter.step(counter.init(1), none[:1], single, multiplier=np.ones(1))
    return tables.asked[0][mechanism.workload.offsets[:-1]] / float(single.asked[0][0])


def _moved(mechanism: Marginals | Refreshed, multipliers: FloatArray, sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Multipliers of the cells that one unit changes, and by how much, from those of a cell of each table.

    A row that comes moves one cell of every table; one that is replaced moves two, or one by two with its sign.
    """
    moved = np.ones(multipliers.size)
    if mechanism.neighbours == "replace-one" and mechanism.unit.signed:
        return multipliers, 2 * moved
    if mechanism.neighbours == "replace-one":
        return np.repeat(multipliers[sizes > 1], 2), np.repeat(moved[sizes > 1], 2)
    return multipliers, moved


# -- the first tick of what has no counter ----------------------------------------------------------------------------


class _Unfitted:
    """Public synthetic data that are the same whatever was measured."""

    def __init__(self, workload: Workload) -> None:
        self._tables = np.repeat(1 / workload.lengths, workload.lengths)

    def begin(self, total: float) -> None:
        """Nothing to do."""

    def allows(self, tables: IntArray) -> NDArray[np.bool_]:
        return np.ones(len(tables), dtype=bool)

    def add(self, table: int, first: int, values: FloatArray) -> FloatArray:  # noqa: ARG002
        return self._tables


def _tables(
    mechanism: Epochs | InRounds,
    scales: FloatArray,
    step: Callable[[IntArray, Gate], Measured],
    *,
    gaussian: bool,
    number: int | None = None,
    read: Callable[[Measured, IntArray, IntArray], FloatArray] | None = None,
) -> DrawTarget:
    """The tables that are measured in the first tick; an epoch ends with it.

    Args:
        scales: of each question's noise.
        number: of tables; left out: one for each question.
        read: readings, one for each question, which move by what a unit changes; left out: two cells of each table.
    """
    loss = mechanism.changed / scales
    events = max(1, round(POWER / float(np.median(1 / scales))))
    without, present = _neighbours(mechanism, events)

    def draw(side: int, gate: Gate) -> FloatArray:
        measured = step(present if side else without, gate)
        if read is not None:
            return read(measured, without, present - without)
        return _changed_cells(mechanism.workload, measured, without, present - without, len(scales))

    moved = float(np.abs(present - without).max())
    shift = np.full(2 * len(scales), moved) if read is None else np.full(len(scales), float(mechanism.changed * events))
    return DrawTarget(
        name=f"{number or len(scales)} tables measured in one tick",
        measure="mu" if gaussian else "epsilon",
        claimed=float(np.sqrt(np.sum(loss**2)) if gaussian else loss.sum()),
        draw=draw,
        shift=shift,
        events=events,
        grid=(float(scales.min()), moved) if gaussian else None,
    )


def _neighbours(mechanism: Epochs | InRounds, events: int) -> tuple[IntArray, IntArray]:
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


def _nodes(mechanism: Points) -> DrawTarget:
    """Halves of a box with some fixed events, at the end of the first epoch, which its first tick ends.

    What is drawn next follows what was released, so losses add up along a path alone: it is that of the exact answers
    with the event, which are as likely with it, against without, as any answers can be.
    """
    partition = mechanism.partition
    depth = max(min(partition.depth, _DEPTH), partition.dimension)
    small = replace(mechanism, partition=Partition(dimension=partition.dimension, depth=depth))
    levels = small.depth_of(1.4 * 2**_EPOCH / mechanism.budget.epsilon)
    cost = mechanism.parts[1]
    claimed = cost if mechanism.budget.pure else math.sqrt(2 * cost)
    each = claimed / (levels if mechanism.budget.pure else math.sqrt(levels))
    events = max(1, round(POWER / each))
    without = np.zeros(2**depth, dtype=np.int64)
    without[0] = math.ceil(1.4 * 2**_EPOCH / mechanism.budget.epsilon) + events
    present = without.copy()
    if mechanism.neighbours == "replace-one":
        present[0] -= events
        present[-1] += events
    else:
        present[0] += events
    sides = Counts.of(without), Counts.of(present)

    def answers(side: int, gate: Gate, path: list[IntArray] | None) -> list[IntArray]:
        along = _Along(gate, path)
        small.step(small.init(), sides[side], along, ANYWHERE)
        return along.noted

    path, first = answers(1, _Scales(), None), int(mechanism.total is not None)  # the total is a target of its own
    before, after = (np.concatenate(answers(side, _Scales(), path)[first:]) for side in (0, 1))
    differ = np.flatnonzero(after - before)
    shift = (after - before)[differ]

    def draw(side: int, gate: Gate) -> FloatArray:
        values = np.concatenate(answers(side, gate, path)[first:]) - before
        return np.asarray(np.sign(shift) * values[differ], dtype=np.float64)

    scale = mechanism.scale(cost)  # of a level that has all of the epoch's budget; no level has less noise
    return DrawTarget(
        name=f"{levels} levels of halves at the end of an epoch",
        measure="epsilon" if mechanism.budget.pure else "mu",
        claimed=claimed,
        draw=draw,
        shift=np.abs(shift).astype(np.float64),
        events=events,
        grid=None if mechanism.budget.pure else (scale, float(events)),
    )


def _canary(mechanism: Hypercube) -> DrawTarget:
    """Points that move from one half of the box to the other."""
    budget = mechanism.budget
    number = min(math.ceil(128 / budget.epsilon), mechanism.points)
    events = max(1, number // 4)
    sides: list[NDArray[np.int64]] = [np.zeros(number, dtype=np.int64) for _ in range(2)]
    sides[1][:events] = 2**mechanism.depth - 1

    def draw(side: int, gate: Gate) -> FloatArray:
        _, counts = mechanism.step(mechanism.init(), sides[side], np.arange(number), gate)
        return np.array([float(counts.levels[0][1]) if counts.levels else np.nan])

    return DrawTarget(
        name="the noisy count of one half of the box",
        measure="epsilon",
        claimed=float(mechanism.claim().pure or 0),
        draw=draw,
        shift=np.array([float(events)]),
        events=events,
    )
