"""Bugs of counters, tables and rows: one event weighs more than it costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from synthstream.ingest import counting
from synthstream.ingest import persons as contributions
from synthstream.ingest.bounding import arrivals
from synthstream.ingest.counting import PrivateRows
from synthstream.ingest.persons import Contributions
from synthstream.kernel.counters import Kary, Simple, State, Toeplitz
from synthstream.kernel.counters.matrix import Encoded, MatrixCounter
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate, Question
from synthstream.kernel.tables import Marginals
from synthstream.papers.counters import Binary
from synthstream.papers.counters.nodes import NodeCounter, Span
from synthstream.papers.counters.spans import dyadic
from synthstream.privacy import Unit
from synthstream.schema.coercion import numbers
from synthstream.schema.schema import Schema
from synthstream.state.store import Store
from synthstream.workload import FloatArray, IntArray
from tests.audit.broken import Patch, seen_by
from tests.support.gates import ExactGate, TracingGate


@seen_by("sensitivity of counters", "audit")
def a_forgotten_node(patch: Patch) -> None:
    """Every fourth node of a tree goes out without noise."""
    honest = NodeCounter.step

    def broken(
        self: NodeCounter, state: State, counts: IntArray, gate: Gate, *, multiplier: FloatArray
    ) -> tuple[State, FloatArray]:
        bare = int(state["t"]) % 4 == 3
        return honest(self, state, counts, ExactGate() if bare else gate, multiplier=multiplier)

    patch.setattr(NodeCounter, "step", broken)


@seen_by("sensitivity of counters", "audit")
def a_tick_pays_in_place_of_the_whole_life(patch: Patch) -> None:
    """Nodes of all levels have the noise of one: an event is paid for once and lies in log2(T) of them."""

    def broken(self: Binary, n: int) -> list[Span]:
        return dyadic(n, first=1, factor=1)

    patch.setattr(Binary, "cover", broken)


@seen_by("sensitivity of counters")
def rounding_forgotten_in_the_sensitivity(patch: Patch) -> None:
    """The norm of the coefficients before they are rounded to the grid, where their rounded ones are what is used."""

    def broken(self: Toeplitz, t: int = 0) -> float:
        j = np.arange(1, self.horizon, dtype=np.float64)
        column = np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])
        return math.sqrt(math.fsum(column**2))

    patch.setattr(Toeplitz, "sensitivity", broken)


@seen_by("sensitivity of counters", "audit")
def halved_sensitivity(patch: Patch) -> None:
    """A counter that thinks an event moves it by half: four times the rho."""
    honest = Toeplitz.sensitivity
    patch.setattr(Toeplitz, "sensitivity", lambda self, t=0: honest(self, t) / 2)


@seen_by("sensitivity of counters")
def noise_by_what_is_counted(patch: Patch) -> None:
    """Less noise for an empty tick, because there is nobody to protect: the scale tells that it is empty."""
    honest = MatrixCounter.step

    def broken(
        self: MatrixCounter, state: State, counts: IntArray, gate: Gate, *, multiplier: FloatArray
    ) -> tuple[State, FloatArray]:
        return honest(self, state, counts, gate, multiplier=multiplier * (1.0 if counts.any() else 0.5))

    patch.setattr(MatrixCounter, "step", broken)


@seen_by("sensitivity of counters")
def an_event_counted_at_two_ticks(patch: Patch) -> None:
    """The last tick's counts are counted again with the next ones."""

    def encode(self: Simple, state: State, counts: IntArray) -> Encoded:
        again = state.get("again", np.zeros_like(counts))
        return Encoded({**state, "again": counts}, counts + again)

    def decode(self: Simple, state: State, released: IntArray) -> tuple[State, FloatArray]:
        total: FloatArray = state["sum"] + released
        return {"sum": total, "again": state["again"]}, total

    patch.setattr(Simple, "encode", encode)
    patch.setattr(Simple, "decode", decode)


@seen_by("sensitivity of counters")
def kept_noise_drawn_again(patch: Patch) -> None:
    """The k-ary tree forgets the noise of its open nodes at every tick: fresh noise on the same sums."""
    honest = Kary.step

    def broken(
        self: Kary, state: State, counts: IntArray, gate: Gate, *, multiplier: FloatArray
    ) -> tuple[State, FloatArray]:
        after, released = honest(self, state, counts, gate, multiplier=multiplier)
        for name in ("left", "right"):
            after[name] = gate.laplace(after[name].reshape(-1) * 0, scale=float(multiplier[0])).reshape(
                after[name].shape
            )
        return after, released

    patch.setattr(Kary, "step", broken)


class _Half(TracingGate):
    """The noise of half the scale."""

    def answer(self, question: Question) -> IntArray:
        return super().answer(replace(question, scale=question.scale / 2))


@seen_by("audit of streams")
def tables_with_half_of_their_noise(patch: Patch) -> None:
    """Every table is measured with half of the noise that the claim is about."""
    honest = Marginals.step
    patch.setattr(Marginals, "step", lambda self, state, counts, gate: honest(self, state, counts, _Half(gate)))


@seen_by("audit of streams")
def epochs_with_half_of_their_noise(patch: Patch) -> None:
    """The tables of an epoch are measured with half of the noise that the claim is about."""
    honest = Epochs.step
    patch.setattr(
        Epochs, "step", lambda self, state, counts, gate, guess: honest(self, state, counts, _Half(gate), guess)
    )


@seen_by("sensitivity of tables")
def a_replaced_row_counted_as_one(patch: Patch) -> None:
    """A row in the place of another moves two cells; the noise is made for one."""
    honest = Marginals.multipliers.func  # type: ignore[attr-defined]

    def broken(self: Marginals) -> FloatArray:
        return np.asarray(honest(self) / (2 if self.neighbours == "replace-one" else 1))

    claim = Marginals.claim

    def claimed(self: Marginals) -> Any:
        with Patch.context() as honestly:
            honestly.setattr(Marginals, "multipliers", property(honest))
            return claim(self)

    patch.setattr(Marginals, "multipliers", property(broken))
    patch.setattr(Marginals, "claim", claimed)


@seen_by("sensitivity of tables")
def counts_kept_beyond_their_epoch(patch: Patch) -> None:
    """Counts of an epoch are measured again in the next: an event costs an epoch's budget each time."""
    honest = Epochs.step

    def broken(self: Epochs, state: State, counts: IntArray, gate: Gate, guess: Any) -> Any:
        after, measured = honest(self, state, counts, gate, guess)
        return {**after, "open": state["open"] + counts}, measured

    patch.setattr(Epochs, "step", broken)


@seen_by("sensitivity of streams")
def an_op_read_as_any_number(patch: Patch) -> None:
    """A weight of 1000 in a row counts a thousand times."""

    def broken(series: pl.Series) -> IntArray:
        return np.asarray(np.nan_to_num(numbers(series), nan=1.0), dtype=np.int64)

    patch.setattr(counting, "signs", broken)


@seen_by("sensitivity of streams")
def a_domain_taken_from_the_data(patch: Patch) -> None:
    """Bins reach from the smallest to the largest value that came: one row moves all others to other bins."""
    honest = Schema.encode

    def broken(self: Schema, frame: Any) -> Any:
        age = pl.col("age").fill_null(0.0)
        spread = (age - age.min()) / (age.max() - age.min() + 1e-9) * 100
        return honest(self, frame.with_columns(spread.alias("age")))

    patch.setattr(Schema, "encode", broken)


@seen_by("limits of persons")
def more_of_a_person_than_is_charged(patch: Patch) -> None:
    """The budget is divided for three events of a person, and thirty may count."""
    honest = Contributions.__init__

    def broken(self: Contributions, store: Store, unit: Unit, *, cuts: int) -> None:
        honest(self, store, replace(unit, max_events=10 * unit.max_events), cuts=cuts)

    patch.setattr(Contributions, "__init__", broken)


@seen_by("limits of persons")
def who_has_counted_is_forgotten(patch: Patch) -> None:
    """The limit for life begins anew with every tick."""
    patch.setattr(contributions, "_USE", "SELECT ?, ?")


@seen_by("limits of persons")
def one_limit_for_all_persons(patch: Patch) -> None:
    """All rows belong to one person: whoever comes first leaves no room for others."""
    honest = arrivals

    def broken(rows: PrivateRows, **more: Any) -> pl.DataFrame:
        return honest(replace(rows, people=pl.Series(["one"] * len(rows.codes))), **more)

    patch.setattr(contributions, "arrivals", broken)
