"""Rounds of select, measure and fit, and how a budget is divided among them: what the two methods of paper 2 share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from synthstream.kernel.choosing import GRID, distances, l1_scores
from synthstream.kernel.counters import Counter, State
from synthstream.kernel.gate import Gate
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.kernel.tables import TableMechanism
from synthstream.kinds import Queries, Score
from synthstream.measured import Measured, fingerprint_of, pack_tables, unpack_tables
from synthstream.privacy import CHEAPER, WIDER, Claim
from synthstream.workload import Candidates, FloatArray, IntArray, Workload

# Part of the budget for the number of rows; choices and measurements have half of the rest each.
_TOTAL = 0.05

# Measured values are kept in units of this, so that they can be stored as integers.
RESOLUTION = 2.0**-10


class Fitting(Protocol):
    """Synthetic data that is fitted in rounds. It sees what has passed the gate, and nothing else."""

    def begin(self, total: float) -> None:
        """Start the rounds of a tick, from what the last tick left, with a number of rows."""

    def allows(self, tables: IntArray) -> NDArray[np.bool_]:
        """Which tables of the workload can be added without passing a limit on the model's size."""

    def add(self, table: int, first: int, values: FloatArray) -> FloatArray:
        """Fit once more, now also to measured cells of a table from ``first`` on; expected counts over all cells."""


@dataclass(frozen=True, kw_only=True)
class InRounds(TableMechanism, ABC):
    """A mechanism that measures a private total and ``picks`` chosen candidates at every tick, fitting in between.

    Args:
        workload: the tables; the total ``()`` is one of them. Candidates are the tables that no other one contains.
        budget: what all releases together may cost.
        horizon: number of ticks; ``None`` for no end.
        picks: candidates to select at a tick; k in the paper.
        queries: ``workloads``, candidates are whole tables; ``single``, every cell of them is a candidate.
        score: ``corrected``, the distance minus the distance that chance and noise alone would make; ``paper``, the
            mean distance of a cell minus the number of cells, two numbers of different units.

    Raises:
        ValueError: an argument is out of range, or the budget is too small.
    """

    # Whether a measurement counts the events of its own tick; otherwise those of all ticks so far.
    afresh: ClassVar[bool] = False

    picks: int
    queries: Queries = "workloads"
    score: Score = "corrected"

    def __post_init__(self) -> None:
        if () not in self.workload.marginals or len(self.workload.marginals) == 1:
            raise ValueError("workload: the total () must be measured, and at least one table")
        if not 1 <= self.picks <= len(self.candidates):
            what = "cells" if self.queries == "single" else "tables that no other one contains"
            most = len(self.candidates)
            raise ValueError(f"picks = {self.picks} must be between 1 and {most}: there are so many {what} to select")
        widest = max(self.total_multiplier, self.multiplier)
        fits = widest < LARGEST_SCALE and all(counter.draws(widest) for counter in self.counters)
        self.refuse_unless(fits, f"{self.picks} picks", ". Pick fewer, or allow more.")

    # -- public facts -------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def counters(self) -> tuple[Counter, ...]:
        """Counters that are used, that of the total first."""

    @cached_property
    def candidates(self) -> Candidates:
        """What may be selected."""
        sets = [set(marginal) for marginal in self.workload.marginals]
        largest = [q for q, columns in enumerate(sets) if not any(columns < other for other in sets)]
        build = Candidates.of_cells if self.queries == "single" else Candidates.of_tables
        return build(self.workload, largest)

    @property
    def squared(self) -> int:
        """See :class:`Mechanism`: a changed row moves one cell by at most two, or two by one; this covers both."""
        return self.changed**2

    @cached_property
    def choice_epsilon(self) -> float:
        """What one choice costs."""
        half = (1 - _TOTAL) / 2
        if self.budget.pure:
            return self.budget.epsilon * half / self.picks * CHEAPER
        return float(np.sqrt(2 * float(self.budget.rho) * half / self.picks)) * CHEAPER

    def _multiplier(self, part: float) -> float:
        """Noise per unit of sensitivity that a part of the budget pays for."""
        if self.budget.pure:
            return self.changed / (self.budget.epsilon * part) * WIDER
        return float(self.changed / np.sqrt(2 * float(self.budget.rho) * part)) * WIDER

    @cached_property
    def total_multiplier(self) -> float:
        """Noise per unit of sensitivity of the total."""
        return self._multiplier(_TOTAL)

    @cached_property
    def multiplier(self) -> float:
        """Noise per unit of sensitivity of a measured candidate."""
        return self._multiplier((1 - _TOTAL) / 2 / self.picks)

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        choice = Fraction(self.choice_epsilon)
        each = self.cost_of([self.multiplier]) + (choice if self.budget.pure else choice * choice / 2)
        cost = self.cost_of([self.total_multiplier]) + self.picks * each
        theorems = ["choose", *(c.theorem for c in self.counters)]
        return self.claimed(cost, theorems, public="schema, workload, clock, number of picks and budget split")

    def fingerprint(self) -> str:
        """Hash of every number that decides what is drawn and with how much noise: SHA-256, hexadecimal."""
        facts = [
            self.theorem,
            self.total_multiplier,
            self.multiplier,
            self.choice_epsilon,
            self.picks,
            self.queries,
            self.score,
            [counter.facts() for counter in self.counters],
            self.workload.marginals,
        ]
        return fingerprint_of(facts)

    @cached_property
    def selectable(self) -> NDArray[np.bool_]:
        """Which tables of the workload hold candidates, shape ``(marginals,)``."""
        return np.isin(np.arange(len(self.workload.marginals)), self.candidates.tables)

    # -- drawing ------------------------------------------------------------------------------------------------

    def _rounds(
        self,
        counts: IntArray,
        first: tuple[FloatArray, FloatArray],
        noise: FloatArray,
        gate: Gate,
        fitting: Fitting,
        measure: Callable[[int], FloatArray],
    ) -> tuple[dict[int, FloatArray], FloatArray]:
        """Select, measure and fit, ``picks`` times.

        Args:
            first: the fitted tables before the first round, and the part of them that is not of this tick.
            noise: mean size of the noise that measuring would add to a cell, shape ``(candidates,)``.
            measure: draws the values of a candidate.

        Returns:
            Values of each selected candidate, in the order of selection, and the mean of all fitted tables.
        """
        tables, before = first
        bias = self.candidates.expected_distances(tables - before, noise)
        measured: dict[int, FloatArray] = {}
        fitted = np.zeros(self.workload.cells)
        while len(measured) < self.picks:
            left = np.setdiff1d(np.arange(len(self.candidates)), list(measured))
            left = left[fitting.allows(self.candidates.tables[left])]
            if len(left) == 0:  # a public fact: sizes of tables that were chosen
                break
            scores = self._scores(counts, tables - before, bias)
            chosen = gate.choose(scores[left], sensitivity=self.score_sensitivity, epsilon=self.choice_epsilon)
            position = int(left[chosen])
            measured[position] = np.rint(measure(position) / RESOLUTION) * RESOLUTION
            tables = fitting.add(*self._place(position), measured[position])
            fitted += tables
        return measured, fitted / len(measured) if measured else tables

    def _place(self, position: int) -> tuple[int, int]:
        """The table of a candidate, and where in it its cells begin."""
        table = int(self.candidates.tables[position])
        return table, int(self.candidates.starts[position] - self.workload.offsets[table])

    def _scores(self, counts: IntArray, guess: FloatArray, bias: FloatArray) -> IntArray:
        if self.score == "corrected":
            return l1_scores(self.candidates, counts, guess, bias=bias)
        lengths = self.candidates.lengths
        return np.asarray(distances(self.candidates, counts, guess) // lengths - GRID * lengths)

    @cached_property
    def score_sensitivity(self) -> int:
        """One unit changes no score by more than this."""
        # What one event changes, times the events that one unit is: rounded up for each of them, not together.
        one = GRID if self.score == "corrected" else -(-GRID // int(self.candidates.lengths.min()))
        return self.changed * one

    def _measured(self, tick: int, values: dict[int, FloatArray], total: float) -> Measured:
        """What passed the gate: the total and the selected candidates; NaN in cells of their tables that were not."""
        tables = {self.workload.place[()]: np.array([total])}
        for position, part in values.items():
            table, first = self._place(position)
            whole = tables.setdefault(table, np.full(self.workload.lengths[table], np.nan))
            whole[first : first + len(part)] = part
        found = self._unpacked(tick, list(tables), np.concatenate(list(tables.values())))
        return replace(found, order=np.array(list(values), dtype=np.int64)) if self.queries == "single" else found

    def replay(self, measured: Measured, fitting: Fitting) -> None:
        """Hand a fit what it was handed while a tick was drawn, in the same order."""
        total = float(measured.values[measured.workload.slice_of(())][0])
        sign = self._sign(total)
        fitting.begin(sign * total)
        for position in self._selected(measured):
            table, first = self._place(position)
            start = measured.workload.slice_of(self.workload.marginals[table]).start + first
            fitting.add(table, first, sign * measured.values[start : start + int(self.candidates.lengths[position])])

    def _selected(self, measured: Measured) -> list[int]:
        """Candidates in the order of their selection."""
        if measured.order is not None:
            return [int(position) for position in measured.order]
        tables = self.candidates.tables.tolist()
        chosen = [self.workload.place[marginal] for marginal in measured.workload.marginals if marginal]
        return [tables.index(table) for table in chosen]

    def _sign(self, total: float) -> int:
        """-1 if what is fitted is the opposite of what was measured."""
        return -1 if self.afresh and total < 0 else 1

    def _unpacked(self, tick: int, positions: list[int], values: FloatArray) -> Measured:
        since = np.full(len(positions), tick if self.afresh else 0, dtype=np.int64)
        return self.measured(tick, positions, values, since=since)

    def pack(self, measured: Measured) -> IntArray:
        """What passed the gate at one tick as integers, for the store."""
        packed = pack_tables(self.workload, measured, resolution=RESOLUTION)
        return packed if measured.order is None else np.concatenate([[len(measured.order)], measured.order, packed])

    def unpack(self, tick: int, released: IntArray) -> Measured:
        """The measurement that :meth:`pack` was given."""
        order = None
        if self.queries == "single":
            number = 1 + int(released[0])
            order, released = released[1:number], released[number:]
        positions, values = unpack_tables(released, resolution=RESOLUTION)
        return replace(self._unpacked(tick, positions, values), order=order)

    @abstractmethod
    def init(self) -> State:
        """The state before the first tick."""

    @abstractmethod
    def step(self, state: State, counts: IntArray, gate: Gate, fitting: Fitting) -> tuple[State, Measured]:
        """Close one tick.

        Args:
            state: what the last step returned; it is not changed.
            counts: the tick's exact counts, int64, shape ``(cells,)``.

        Raises:
            HorizonExhausted: all ticks have been released.
        """


def shares(tables: FloatArray, workload: Workload) -> FloatArray:
    """Fitted tables as shares of their total; uniform if there are no rows."""
    total = float(tables[workload.slice_of(())][0])
    return tables / total if total > 0 else np.asarray(np.repeat(1 / workload.lengths, workload.lengths))
