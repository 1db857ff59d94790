"""The default mechanism for tables under pure DP: each of ever longer epochs is measured once, when it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar, Protocol

import numpy as np

from synthstream.kernel.counters import Counter, State, counter
from synthstream.kernel.counters.base import clip, inner, outer, too_wide
from synthstream.kernel.gate import Gate
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.kernel.select import chosen, expected_distances, l1_scores
from synthstream.kinds import NEWEST, Edition
from synthstream.measured import Measured, fingerprint_of
from synthstream.privacy import CHEAPER, EVENT, WIDER, Budget, Claim, Neighbours, Unit, l1_sensitivity
from synthstream.workload import Candidates, FloatArray, IntArray, Workload

# Parts of the budget for the total, tables of one column, the choice of larger ones, and these; by edition.
_PARTS = {1: (0.12, 0.40, 0.08, 0.40), 2: (0.05, 0.50, 0.06, 0.39)}  # 2: and later
# Larger tables to measure in an epoch.
_PICKS = 10
# An epoch has at most so many parts. Of signed events a part ends when there are a tenth more rows than at its begin,
# and so many more standard errors of their number.
_MOST_PARTS, _TENTH, _BEYOND = 4, 10, 3.0


class Plan(Protocol):
    """What released values say of an epoch. A function of these alone."""

    def parts(self) -> int:
        """In how many parts tables of one column are measured in the epoch that begins now."""

    def guess(self, events: float, singles: FloatArray) -> FloatArray:
        """Expected counts of the epoch that ends now over all cells of the workload.

        Args:
            events: of the epoch, by the noisy total.
            singles: what was released of its last part just now: all tables of one column, one after the other.
        """


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """A running total at every tick; all other tables once an epoch, from its rows alone, with fresh noise.

    An epoch ends when the stream is ``growth`` times as old as at the end of the one before. All tables of one column
    are measured then, and ``picks`` larger ones, chosen by how far the newest release is from the epoch's rows.

    From edition 2 on tables of one column may be measured in several parts of an epoch, each from its own rows alone.
    How many, a :class:`Plan` tells from what was released before the epoch began. Of signed events, which may come and
    go without a change in number, the rows of either sign are counted too, at every tick: a part also ends when, by
    this noisy count, a tenth more rows have come than at its begin. Such counts lie behind all cells of the workload.

    Privacy:
        Unit        one event; neighbours: add-remove (one cell of each table changes by one, in one tick) or
                    replace-one (two cells of each table change by one, in one tick; if events are signed, also one
                    cell by two)
        Cost        the whole budget, once: the counters of every tick, one epoch's choices and larger tables, and
                    the tables of one column of one of its parts
        Theorem     epochs, choose, and that of the total's counter
        Trusts      the workload, the budget's parts and the clock are public
    Accuracy:       variance(t) for the total, 2 (a / epsilon_q)^2 for each cell of a table measured in an epoch
    Time, memory:   O(cells) per tick

    Args:
        workload: the tables; the total ``()`` is one of them.
        budget: what all releases together may cost; its epsilon is spent, its delta is not.
        horizon: number of ticks; ``None`` for no end.
        picks: larger tables to measure in an epoch; from their number on all are measured, and none is chosen. Left
            out: 10, in edition 1 as many as there are columns.
        growth: how much older the stream is at the end of an epoch than at its beginning; above 1.
        edition: of all of this; 1 is that of streams which began with it.

    Raises:
        ValueError: an argument is out of range, or the budget is too small.

    Example:
        >>> workload = Workload.all_up_to(2, sizes=(2, 3, 4))
        >>> mechanism = Epochs(workload=workload, budget=Budget(epsilon=1.0, delta=0.0), horizon=100, picks=2)
        >>> mechanism.ended(100)
        [1, 2, 3, 5, 8, 12, 18, 27, 41, 62, 93]
        >>> float(mechanism.claim().pure) <= 1
        True
    """

    theorem: ClassVar[str] = "epochs"

    workload: Workload
    budget: Budget
    horizon: int | None
    unit: Unit = EVENT
    neighbours: Neighbours = "add-remove"
    picks: int | None = None
    growth: float = 1.5
    edition: Edition = NEWEST

    def __post_init__(self) -> None:
        if () not in self.workload.marginals:
            raise ValueError("workload: the total () must be measured")
        if not 1 < self.growth <= 100:
            raise ValueError(f"growth must be above 1 and at most 100, not {self.growth}")
        if self.picks is not None and self.picks < 1:
            raise ValueError(f"picks must be at least 1, not {self.picks}")
        if not max(self.scales.tolist()) < LARGEST_SCALE or not all(map(self.counter.draws, self.running.tolist())):
            raise too_wide(self.budget.epsilon, len(self.workload.marginals))

    # -- public facts -------------------------------------------------------------------------------------------

    @cached_property
    def counter(self) -> Counter:
        """The counter of the total, and of the rows of either sign."""
        return counter("auto", horizon=self.horizon, noise="laplace")

    @property
    def order(self) -> IntArray:
        """See :class:`Workload`."""
        return self.workload.order

    @property
    def counts_rows(self) -> bool:
        """Whether the rows of either sign are counted, in one more cell behind those of the workload."""
        return self.edition > 1 and self.unit.signed

    @property
    def running_cells(self) -> int:
        """Cells that are counted at every tick: the total, and maybe the rows of either sign."""
        return 2 if self.counts_rows else 1

    @property
    def measured_larger(self) -> int:
        """Number of larger tables that are measured in an epoch."""
        picks = self.picks or (_PICKS if self.edition > 1 else len(self.workload.sizes))
        return min(picks, int(np.sum(self.order == 2)))

    @property
    def chooses(self) -> bool:
        """Whether larger tables are chosen; otherwise all are measured."""
        return self.measured_larger < int(np.sum(self.order == 2))

    @cached_property
    def parts(self) -> FloatArray:
        """Parts of the budget: what is counted at every tick, tables of one column, choice, larger tables.

        They add up to 1.
        """
        parts = np.array(_PARTS[min(self.edition, 2)])
        parts[0] *= self.running_cells
        if not np.any(self.order == 1):
            parts[1] = 0.0
        if not np.any(self.order == 2):
            parts[2:] = 0.0
        elif not self.chooses:
            parts[2] = 0.0
        return np.asarray(parts / parts.sum())

    @property
    def changed(self) -> int:
        """Sum over a table's cells of the change that one unit makes: 1 if a row comes or goes, 2 if it is replaced."""
        return l1_sensitivity(self.neighbours)

    @cached_property
    def running(self) -> FloatArray:
        """Noise per unit of sensitivity of what is counted at every tick: the total, and maybe rows of either sign."""
        each = self.changed / (self.budget.epsilon * float(self.parts[0]) / self.running_cells) * WIDER
        return np.full(self.running_cells, each)

    @property
    def total_multiplier(self) -> float:
        """Noise per unit of sensitivity of the total."""
        return float(self.running[0])

    @cached_property
    def scales(self) -> FloatArray:
        """Noise scale of a cell of each table in an epoch, shape ``(marginals,)``; 1 for the total, which has none."""
        roots = np.where(self.order == 1, np.sqrt(self.workload.lengths), 0.0)
        share = np.where(self.order == 1, self.parts[1] * roots / max(roots.sum(), 1.0), 0.0)
        share = np.where(self.order == 2, self.parts[3] / max(self.measured_larger, 1), share)
        share = np.where(self.order == 0, self.changed / self.budget.epsilon, share)
        return np.asarray(self.changed / (self.budget.epsilon * share) * WIDER)

    @property
    def choice_epsilon(self) -> float:
        """What one choice costs; 0 if there is none."""
        return self.budget.epsilon * float(self.parts[2]) / self.measured_larger * CHEAPER if self.chooses else 0.0

    def ends(self, tick: int) -> bool:
        """Whether an epoch ends with this tick."""
        return self.begin(tick) != self.begin(tick + 1)

    def begin(self, tick: int) -> int:
        """First tick of the epoch that holds this one."""
        return self.epoch(tick)[0]

    def ended(self, ticks: int) -> list[int]:
        """Numbers of ticks, up to ``ticks``, after which an epoch ends."""
        ends, end = list[int](), self.begin(ticks)
        while end > 0:
            ends, end = [end, *ends], self.begin(end - 1)
        return ends

    def epoch(self, tick: int) -> tuple[int, int]:
        """First tick of the epoch that holds this one, and that of the next epoch."""
        begin, end = 0, 1
        while end <= tick:
            begin, end = end, max(end + 1, int(np.ceil(end * self.growth)))
        return begin, end

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        pure = sum((self.changed / Fraction(multiplier) for multiplier in self.running.tolist()), Fraction(0))
        singles = self.scales[self.order == 1].tolist()
        larger = self.scales[self.order == 2].tolist()[: self.measured_larger]  # all of them have the same scale
        pure += sum((self.changed / Fraction(scale) for scale in [*singles, *larger]), Fraction(0))
        pure += self.measured_larger * Fraction(self.choice_epsilon)
        return Claim(
            unit=self.unit,
            neighbours=self.neighbours,
            rho=pure * pure / 2,
            pure=pure,
            horizon=self.horizon,
            theorems=(self.theorem, *(("choose",) if self.chooses else ()), self.counter.theorem),
            trusts=("schema, workload, clock, epochs and budget split are public",),
        )

    def variance(self, tick: int) -> FloatArray:
        """Noise variance of each cell of each table, if it is measured at this tick, shape ``(marginals,)``. Public."""
        unique, inverse = np.unique(self.scales, return_inverse=True)
        fresh = np.array([self.counter.noise_variance(float(scale)) for scale in unique])[inverse]
        return np.where(self.order == 0, self.counter.variance(tick, multiplier=self.total_multiplier), fresh)

    def covariance(self, s: int, t: int) -> FloatArray:
        """Covariance of the noise in running sums up to ticks ``s`` and ``t``, shape ``(marginals,)``. Public.

        The running sum of a table other than the total is that over whole epochs, each of which has noise of its own:
        what two sums share is the epochs that have ended by the earlier tick. Each counts as one part here: with
        several of them sums of tables of one column share more.
        """
        ended = len(self.ended(min(s, t) + 1))
        total = self.counter.covariance(s, t, multiplier=self.total_multiplier)
        return np.where(self.order == 0, total, ended * self.variance(t))

    def fingerprint(self) -> str:
        """Hash of every number that decides what is drawn and with how much noise."""
        facts = [
            self.total_multiplier,
            self.scales.tolist(),
            self.choice_epsilon,
            self.measured_larger,
            self.growth,
            self.counter.facts(),
            self.workload.marginals,
            *(["signed"] if self.unit.signed else []),
            *([self.edition, self.running.tolist(), _MOST_PARTS, _TENTH, _BEYOND] if self.edition > 1 else []),
        ]
        return fingerprint_of(facts)

    # -- drawing ------------------------------------------------------------------------------------------------

    def init(self) -> State:
        """The state before the first tick."""
        state = {"t": np.array(0), "open": np.zeros(self.workload.cells, dtype=np.int64), "closed_total": np.array(0.0)}
        if self.edition > 1:
            state |= {"parts": np.array(1), "part": np.array(0), "rows": np.array(0.0)}
        return outer(self.counter.init(self.running_cells), "total.") | state

    def step(self, state: State, counts: IntArray, gate: Gate, plan: Plan) -> tuple[State, Measured]:
        """Close one tick.

        Args:
            state: what the last step returned; it is not changed.
            counts: the tick's exact counts, int64, shape ``(cells,)``; one more if rows of either sign are counted.
            gate: the source of noise.
            plan: what was released so far says; public.

        Raises:
            HorizonExhausted: all ticks have been released.
        """
        tick, cells = int(state["t"]), self.workload.cells
        place, parts = self.workload.marginals.index(()), {}
        if self.edition > 1 and self.begin(tick) == tick:  # before this epoch's first row is looked at
            parts = {"parts": np.array(min(max(plan.parts(), 1), _MOST_PARTS))}
        at_every_tick = counts[[int(self.workload.offsets[place]), cells][: self.running_cells]]
        counter, running = self.counter.step(inner(state, "total."), at_every_tick, gate, multiplier=self.running)
        exact = state["open"] + clip(counts[:cells])
        after = state | parts | outer(counter, "total.") | {"t": np.array(tick + 1), "open": exact}
        released, closes, ends = {place: running[:1]}, self._part_ends(after, tick, running), self.ends(tick)
        known, events = [np.zeros(0)], float(running[0] - state["closed_total"])
        singles = np.flatnonzero(self.order == 1)
        if closes and self.edition > 1:
            released |= self._drawn(singles, exact, gate)
            known += [released[int(q)] for q in singles]
            after |= {"part": np.array(tick + 1), "rows": running[-1]}
            after["open"] = np.where(np.repeat(self.order == 1, self.workload.lengths), 0, exact)
        if ends:
            tables = self._larger(exact, events, gate, partial(plan.guess, singles=np.concatenate(known)))
            tables = tables if self.edition > 1 else np.sort(np.concatenate([singles, tables]))
            released |= self._drawn(tables, exact, gate)
            after |= {"open": np.zeros_like(exact), "closed_total": running[0]}
        since = int(state.get("part", self.begin(tick)))
        rows = float(running[-1]) if self.counts_rows else None
        return after, self.measured(tick, list(released), np.concatenate(list(released.values())), since, rows)

    def _part_ends(self, state: State, tick: int, running: FloatArray) -> bool:
        """Whether tables of one column are measured at this tick: from the state and from released values alone."""
        begin, end = self.epoch(tick)
        parts, first = int(state.get("parts", 1)), int(state.get("part", begin))
        if (tick + 1 - begin) * parts // (end - begin) > (tick - begin) * parts // (end - begin):
            return True
        if not self.counts_rows:
            return False
        noise = self.counter.variance(tick, multiplier=self.running[-1])
        if first:
            noise += self.counter.variance(first - 1, multiplier=self.running[-1])
            noise -= 2 * self.counter.covariance(first - 1, tick, multiplier=self.running[-1])
        return bool(running[-1] - state["rows"] > max(state["rows"] / _TENTH, _BEYOND * np.sqrt(max(noise, 0.0))))

    def _drawn(self, tables: IntArray, exact: IntArray, gate: Gate) -> dict[int, FloatArray]:
        """Some tables with fresh noise, by their position."""
        parts = {int(q): slice(*self.workload.offsets[q : q + 2].tolist()) for q in tables}
        return {
            q: gate.laplace(exact[part], scale=float(self.scales[q])).astype(np.float64) for q, part in parts.items()
        }

    def _larger(self, exact: IntArray, events: float, gate: Gate, guess: Callable[[float], FloatArray]) -> IntArray:
        """Positions of the larger tables to measure in this epoch."""
        larger = np.flatnonzero(self.order == 2)
        if not self.chooses:
            return larger
        candidates = Candidates.of_tables(self.workload, larger)
        guessed = guess(max(events, 1.0))
        noise = np.sqrt(self.variance(0)[larger] / 2)  # mean size of one draw of Laplace noise
        bias = expected_distances(candidates, guessed, noise)
        scores = l1_scores(candidates, exact, guessed, bias=bias)
        return chosen(
            scores,
            candidates,
            picks=self.measured_larger,
            gate=gate,
            sensitivity=self.changed,
            epsilon=self.choice_epsilon,
        )

    def measured(
        self, tick: int, positions: list[int], values: FloatArray, since: int | None = None, rows: float | None = None
    ) -> Measured:
        """What was measured at a tick: tables at these positions of the workload, and their values.

        Args:
            since: first tick of the part that tables of one column count; left out: that of the epoch.
            rows: of either sign, up to this tick; ``None`` if they are not counted.
        """
        order, begin = self.order[positions], self.begin(tick)
        return Measured(
            tick=tick,
            workload=self.workload.only(positions),
            values=values,
            variance=self.variance(tick)[positions],
            since=np.choose(order, [0, begin if since is None else since, begin]),
            rows=rows,
        )
