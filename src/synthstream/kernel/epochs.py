"""The default mechanism for tables under pure DP: each of ever longer epochs is measured once, when it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from synthstream.kernel.choosing import GRID, l1_scores
from synthstream.kernel.counters import State
from synthstream.kernel.counters.base import clip, inner, outer
from synthstream.kernel.gate import Gate
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.kernel.tables import TableMechanism
from synthstream.kinds import Noise
from synthstream.measured import Measured, fingerprint_of
from synthstream.privacy import CHEAPER, Claim
from synthstream.strategies.shares import EpochShares, in_epochs
from synthstream.strategies.times import EpochPlanner, EpochTimes, refuse_growth
from synthstream.strategies.variances import of_difference
from synthstream.workload import Candidates, FloatArray, IntArray

# Larger tables to measure in an epoch.
_PICKS = 10
# An epoch has at most so many parts. Of signed events a part ends when there are a tenth more rows than at its begin,
# and so many more standard errors of their number.
_MOST_PARTS, _TENTH, _BEYOND = 4, 10, 3.0


@dataclass(frozen=True, kw_only=True)
class Epochs(TableMechanism):
    """A running total at every tick; all other tables once an epoch, from its rows alone, with fresh noise.

    An epoch ends when the stream is ``growth`` times as old as at the end of the one before. All tables of one column
    are measured then, and ``picks`` larger ones, chosen by how far the newest release is from the epoch's rows.

    From edition 2 on tables of one column may be measured in several parts of an epoch, each from its own rows alone.
    How many, an :class:`EpochPlanner` tells from what was released before the epoch began. Of signed events, which may
    come and go without a change in number, the rows of either sign are counted too, at every tick: a part also ends
    when, by this noisy count, a tenth more rows have come than at its begin. Such counts lie behind all cells of the
    workload.

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

    Raises:
        ValueError: an argument is out of range, or the budget is too small.

    Example:
        >>> from synthstream.privacy import Budget
        >>> from synthstream.workload import Workload
        >>> workload = Workload.all_up_to(2, sizes=(2, 3, 4))
        >>> mechanism = Epochs(workload=workload, budget=Budget(epsilon=1.0, delta=0.0), horizon=100, picks=2)
        >>> mechanism.times.ended(100)
        [1, 2, 3, 5, 8, 12, 18, 27, 41, 62, 93, 100]
        >>> float(mechanism.claim().pure) <= 1
        True
    """

    theorem: ClassVar[str] = "epochs"

    picks: int | None = None
    growth: float = 1.5

    def __post_init__(self) -> None:
        if () not in self.workload.marginals:
            raise ValueError("workload: the total () must be measured")
        if self.picks is not None and self.picks < 1:
            raise ValueError(f"picks must be at least 1, not {self.picks}")
        refuse_growth(self.growth)
        self.refuse_too_wide(bool(self.scales.max() < LARGEST_SCALE) and self.counter.draws(float(self.running.max())))

    # -- public facts -------------------------------------------------------------------------------------------

    @property
    def noise(self) -> Noise:
        """Law of the noise: a delta above 0 is not spent."""
        return "laplace"

    @cached_property
    def times(self) -> EpochTimes:
        """When epochs begin and end."""
        return EpochTimes(self.growth, self.horizon if self.edition > 9 else None)

    @property
    def counts_rows(self) -> bool:
        """Whether the rows of either sign are counted, in one more cell behind those of the workload."""
        return self.edition > 1 and self.unit.signed

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
    def shares(self) -> EpochShares:
        """Shares of the budget."""
        counts, larger = 1 + self.counts_rows, self.measured_larger
        return in_epochs(self.workload, running=counts, larger=larger, choices=self.chooses, edition=self.edition)

    @cached_property
    def running(self) -> FloatArray:
        """Noise per unit of sensitivity of what is counted at every tick: the total, and maybe rows of either sign."""
        return self.multipliers_of(np.full(1 + self.counts_rows, self.shares.running), self.whole())

    @property
    def total_multiplier(self) -> float:
        """Noise per unit of sensitivity of the total."""
        return float(self.running[0])

    @cached_property
    def scales(self) -> FloatArray:
        """Noise scale of a cell of each table in an epoch, shape ``(marginals,)``; 1 for the total, which has none."""
        shares = np.where(self.order == 0, self.changed / self.budget.epsilon, self.shares.tables)
        return self.multipliers_of(shares, self.whole())

    @property
    def choice_epsilon(self) -> float:
        """What one choice costs; 0 if there is none."""
        return self.budget.epsilon * self.shares.choices / self.measured_larger * CHEAPER if self.chooses else 0.0

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        singles = self.scales[self.order == 1].tolist()
        larger = sorted(self.scales[self.order == 2].tolist())[: self.measured_larger]  # those that cost the most
        cost = self.cost_of([*self.running.tolist(), *singles, *larger])
        cost += self.measured_larger * Fraction(self.choice_epsilon)
        theorems = [*(("choose",) if self.chooses else ()), self.counter.theorem]
        return self.claimed(cost, theorems, public="schema, workload, clock, epochs and budget split")

    def variance(self, tick: int) -> FloatArray:
        """Noise variance of each cell of each table, if it is measured at this tick, shape ``(marginals,)``. Public."""
        fresh = np.array([self.counter.noise_variance(scale) for scale in self.scales.tolist()])
        return np.where(self.order == 0, self.counter.variance(tick, multiplier=self.total_multiplier), fresh)

    def covariance(self, s: int, t: int) -> FloatArray:
        """Covariance of the noise in running sums up to ticks ``s`` and ``t``, shape ``(marginals,)``. Public.

        The running sum of a table other than the total is that over whole epochs, each of which has noise of its own:
        what two sums share is the epochs that have ended by the earlier tick. Each counts as one part here: with
        several of them sums of tables of one column share more.
        """
        ended = len(self.times.ended(min(s, t) + 1))
        total = self.counter.covariance(s, t, multiplier=self.total_multiplier)
        return np.where(self.order == 0, total, ended * self.variance(t))

    def fingerprint(self) -> str:
        """Hash of every number that decides what is drawn and with how much noise."""
        facts = [self.total_multiplier, self.scales.tolist(), self.choice_epsilon, self.measured_larger, self.growth]
        facts += [self.counter.facts(), self.workload.marginals, *(["signed"] if self.unit.signed else [])]
        facts += [self.edition, self.running.tolist(), _MOST_PARTS, _TENTH, _BEYOND] if self.edition > 1 else []
        return fingerprint_of(facts)

    # -- drawing ------------------------------------------------------------------------------------------------

    def init(self) -> State:
        """The state before the first tick."""
        state = {"t": np.array(0), "open": np.zeros(self.workload.cells, dtype=np.int64), "closed_total": np.array(0.0)}
        if self.edition > 1:
            state |= {"parts": np.array(1), "part": np.array(0), "rows": np.array(0.0)}
        return outer(self.counter.init(self.running.size), "total.") | state

    def step(self, state: State, counts: IntArray, gate: Gate, plan: EpochPlanner) -> tuple[State, Measured]:
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
        if self.edition > 1 and self.times.begin(tick) == tick:  # before this epoch's first row is looked at
            parts = {"parts": np.array(min(max(plan.parts(), 1), _MOST_PARTS))}
        at_every_tick = counts[[int(self.workload.offsets[place]), cells][: self.running.size]]
        counter, running = self.counter.step(inner(state, "total."), at_every_tick, gate, multiplier=self.running)
        exact = state["open"] + clip(counts[:cells])
        after = state | parts | outer(counter, "total.") | {"t": np.array(tick + 1), "open": exact}
        released, closes, ends = {place: running[:1]}, self._part_ends(after, tick, running), self.times.ends(tick)
        events, singles = float(running[0] - state["closed_total"]), np.flatnonzero(self.order == 1)
        if closes and self.edition > 1:
            released |= self._drawn(singles, exact, gate)
            after |= {"part": np.array(tick + 1), "rows": running[-1]}
            after["open"] = np.where(np.repeat(self.order == 1, self.workload.lengths), 0, exact)
        if ends:
            known = np.concatenate([np.zeros(0), *(released[q] for q in singles.tolist() if q in released)])
            tables = self._larger(exact, events, gate, partial(plan.guess, singles=known))
            tables = tables if self.edition > 1 else np.sort(np.concatenate([singles, tables]))
            released |= self._drawn(tables, exact, gate)
            after |= {"open": np.zeros_like(exact), "closed_total": running[0]}
        since = int(state.get("part", self.times.begin(tick)))
        rows = float(running[-1]) if self.counts_rows else None
        return after, self.described(tick, list(released), np.concatenate(list(released.values())), since, rows)

    def _part_ends(self, state: State, tick: int, running: FloatArray) -> bool:
        """Whether tables of one column are measured at this tick: from the state and from released values alone."""
        by_time = self.times.part_ends(tick, int(state.get("parts", 1)))
        if by_time or not self.counts_rows:
            return by_time
        noise = of_difference(self.counter, int(state["part"]) - 1, tick, multiplier=self.running[-1])
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
        candidates, guessed = Candidates.of_tables(self.workload, larger), guess(max(events, 1.0))
        noise = np.sqrt(self.variance(0)[larger] / 2)  # mean size of one draw of Laplace noise
        # By turns: by one of them alone, large tables are chosen never, or small ones too seldom.
        biases = [candidates.expected_distances(guessed, noise, shrunk=s) for s in sorted({False, self.edition > 5})]
        scores = [l1_scores(candidates, exact, guessed, bias=bias) for bias in biases]
        left, moved_by = list(range(larger.size)), self.changed * GRID
        for turn in range(self.measured_larger):
            del left[gate.choose(scores[turn % len(scores)][left], sensitivity=moved_by, epsilon=self.choice_epsilon)]
        return np.delete(larger, left)

    def described(
        self, tick: int, positions: list[int], values: FloatArray, since: int | None = None, rows: float | None = None
    ) -> Measured:
        """What was measured at a tick: tables at these positions of the workload, and their values.

        Args:
            since: first tick of the part that tables of one column count; left out: that of the epoch.
            rows: of either sign, up to this tick; ``None`` if they are not counted.
        """
        begin = self.times.begin(tick)
        first = np.choose(self.order[positions], [0, begin if since is None else since, begin])
        return self.measured(tick, positions, values, since=first, rows=rows)
