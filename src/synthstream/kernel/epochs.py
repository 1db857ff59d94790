"""The default mechanism for tables under pure DP: each of ever longer epochs is measured once, when it ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from synthstream.kernel.choosing import GRID, l1_scores
from synthstream.kernel.counters import State
from synthstream.kernel.counters.base import clip, inner, outer
from synthstream.kernel.gate import Gate
from synthstream.kernel.joint import LEAST_SCALE, MOST_CELLS
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.kernel.tables import TableMechanism
from synthstream.kinds import EDITION, Noise
from synthstream.measured import Measured, fingerprint_of
from synthstream.privacy import CHEAPER, Claim
from synthstream.strategies.shares import USUAL, EpochShares, in_epochs, together
from synthstream.strategies.times import EpochPlanner, EpochTimes, refuse_growth
from synthstream.strategies.variances import joint_variance, of_difference
from synthstream.workload import Candidates, FloatArray, IntArray

# An epoch has at most so many parts by time. A part also ends when one row has come for each _PER that there were at
# its begin, and rows of _BEYOND standard errors of their number: of signed events (True), and of others.
_MOST_PARTS = 4
_PER, _BEYOND = {True: 10, False: 1}, {True: 3.0, False: 6.0}


@dataclass(frozen=True, kw_only=True)
class Epochs(TableMechanism):
    """A running total at every tick; all other tables once an epoch, from its rows alone, with fresh noise.

    An epoch ends when the stream is ``growth`` times as old as at the end of the one before. All tables of one column
    are measured then, and some larger ones, chosen by how far the newest release is from the epoch's rows.

    An :class:`EpochPlanner` tells how many, from what was released so far, unless ``picks`` does.

    Tables of one column may be measured in several parts of an epoch, each from its own rows alone. How many, an
    :class:`EpochPlanner` tells from what was released before the epoch began. A part also ends when, by the released
    total, there are twice as many events as at its begin. Of signed events, which may come and go without a change in
    number, the rows of either sign are counted too, at every tick: a part also ends when, by this noisy count, a tenth
    more rows have come than at its begin. Such counts lie behind all cells of the workload.

    Privacy:
        Unit        one event; neighbours: add-remove (one cell of each table changes by one, in one tick) or
                    replace-one (two cells of each table change by one, in one tick; if events are signed, also one
                    cell by two)
        Cost        the whole budget, once: the counters of every tick, one epoch's choices and larger tables, and
                    the tables of one column of one of its parts
        Theorem     epochs, choose, and that of the total's counter
        Trusts      the workload, the budget's parts and the clock are public
    Accuracy:       variance(t) for the total, and for each cell of a table measured in an epoch
    Time, memory:   O(cells) per tick

    Args:
        workload: the tables; the total ``()`` is one of them.
        budget: what all releases together may cost; its epsilon is spent, its delta is not.
        horizon: number of ticks; ``None`` for no end.
        picks: larger tables to measure in an epoch; from their number on all are measured, and none is chosen. Left
            out: as many as gain the most.
        growth: how much older the stream is at the end of an epoch than at its beginning; above 1.
        weights: see :func:`synthstream.strategies.shares.in_epochs`.

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
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if () not in self.workload.marginals:
            raise ValueError("workload: the total () must be measured")
        if self.picks is not None and self.picks < 1:
            raise ValueError(f"picks must be at least 1, not {self.picks}")
        refuse_growth(self.growth)
        if any(self.workload.lengths[list(group)].sum() > MOST_CELLS for group in self.groups if len(group) > 1):
            raise ValueError(f"more than {MOST_CELLS} cells would get noise together")
        widest = max(float(scales.max()) for scales in self.scales.values())
        self.refuse_too_wide(widest < LARGEST_SCALE and self.counter.draws(float(self.running.max())))

    # -- public facts -------------------------------------------------------------------------------------------

    @property
    def noise(self) -> Noise:
        """Law of the noise: a delta above 0 is not spent."""
        return "laplace"

    @cached_property
    def times(self) -> EpochTimes:
        """When epochs begin and end."""
        return EpochTimes(self.growth, self.horizon)

    @property
    def counts_rows(self) -> bool:
        """Whether the rows of either sign are counted, in one more cell behind those of the workload."""
        return self.unit.signed

    @cached_property
    def shares(self) -> dict[int, EpochShares]:
        """Shares of the budget, by the number of larger tables in an epoch."""
        return in_epochs(self.workload, running=1 + self.counts_rows, picks=self.picks, weights=self.weights)

    @cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """Which tables of one column get noise together, by their positions."""
        return together(self.workload, self.weights)[0]

    @property
    def open_to(self) -> tuple[int, ...]:
        """How many larger tables an epoch may measure, increasing."""
        return tuple(self.shares)

    def nearest(self, number: int = USUAL) -> int:
        """The number of larger tables that is nearest to one that is wanted; left out: to what is usual."""
        return min(self.open_to, key=lambda some: abs(some - number))

    @cached_property
    def running(self) -> FloatArray:
        """Noise per unit of sensitivity of what is counted at every tick: the total, and maybe rows of either sign."""
        return self.multipliers_of(np.full(1 + self.counts_rows, self.shares[self.open_to[0]].running), self.whole())

    @property
    def total_multiplier(self) -> float:
        """Noise per unit of sensitivity of the total."""
        return float(self.running[0])

    @cached_property
    def scales(self) -> dict[int, FloatArray]:
        """Noise scale of each table in an epoch, ``(marginals,)`` each, by the number of larger ones in it.

        1 for the total, which has none. Tables that get noise together have one scale.
        """
        total, whole = np.where(self.order == 0, self.changed / self.budget.epsilon, 0.0), self.whole()
        found = {number: self.multipliers_of(total + shares.tables, whole) for number, shares in self.shares.items()}
        return {number: np.maximum(scales, LEAST_SCALE) for number, scales in found.items()}

    @cached_property
    def spreads(self) -> dict[int, FloatArray]:
        """As :attr:`scales`: of Laplace noise that is as wide as a cell's noise is."""
        grouped = np.zeros(self.order.size, dtype=np.bool_)
        grouped[[q for group in self.groups if len(group) > 1 for q in group]] = True
        return {k: np.where(grouped, np.sqrt(self.variance(0, k) / 2), scales) for k, scales in self.scales.items()}

    def choice_epsilon(self, number: int) -> float:
        """What one choice of so many costs; 0 if there is none."""
        return self.budget.epsilon * self.shares[number].choices / max(number, 1) * CHEAPER

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        larger = {k: sorted(each[self.order == 2].tolist())[:k] for k, each in self.scales.items()}  # the dearest
        singles = {k: self.cost_of([float(each[group[0]]) for group in self.groups]) for k, each in self.scales.items()}
        most = singles[self.open_to[-1]]  # of a part that is no whole epoch
        costs = [
            max(singles[k], most) + self.cost_of(b) + k * Fraction(self.choice_epsilon(k)) for k, b in larger.items()
        ]
        cost = self.cost_of(self.running.tolist()) + max(costs)
        theorems = [*(("joint-laplace",) if any(len(group) > 1 for group in self.groups) else ())]
        theorems += [*(("choose",) if any(map(self.choice_epsilon, self.open_to)) else ()), self.counter.theorem]
        return self.claimed(cost, theorems, public="schema, workload, clock, epochs and budget split")

    def variance(self, tick: int, number: int | None = None) -> FloatArray:
        """Noise variance of each cell of each table, if it is measured at this tick, shape ``(marginals,)``. Public.

        Args:
            number: of larger tables in the epoch; left out: see :meth:`nearest`.
        """
        scales = self.scales[number or self.nearest()]
        fresh = np.array([self.counter.noise_variance(b) for b in scales.tolist()])
        for group in self.groups:
            if len(group) > 1:
                fresh[list(group)] = joint_variance(self.workload.lengths[list(group)], scales[group[0]])
        return np.where(self.order == 0, self.counter.variance(tick, multiplier=self.total_multiplier), fresh)

    def fingerprint(self) -> str:
        """Hash of every number that decides what is drawn and with how much noise."""
        each = [[scales.tolist(), self.choice_epsilon(number), number] for number, scales in self.scales.items()]
        facts = [self.total_multiplier, *(each[0] if len(each) == 1 else each), self.growth]
        facts += [self.counter.facts(), self.workload.marginals, *(["signed"] if self.unit.signed else [])]
        facts += [self.groups, EDITION, self.running.tolist(), _MOST_PARTS]
        facts += [_PER[self.unit.signed], _BEYOND[self.unit.signed]]
        return fingerprint_of(facts)

    # -- drawing ------------------------------------------------------------------------------------------------

    def init(self) -> State:
        """The state before the first tick."""
        state = {"t": np.array(0), "open": np.zeros(self.workload.cells, dtype=np.int64), "closed_total": np.array(0.0)}
        state |= {"parts": np.array(1), "part": np.array(0), "rows": np.array(0.0)}
        state |= {"shown": np.zeros(3)} if len(self.open_to) > 1 else {}
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
        tick, cells, place = int(state["t"]), self.workload.cells, self.workload.marginals.index(())
        begin = self.times.begin(tick)  # the number of parts is asked for before this epoch's first row is looked at
        parts = {"parts": np.array(np.clip(plan.parts(), 1, _MOST_PARTS))} if begin == tick else {}
        at_every_tick = counts[[int(self.workload.offsets[place]), cells][: self.running.size]]
        counter, running = self.counter.step(inner(state, "total."), at_every_tick, gate, multiplier=self.running)
        exact = state["open"] + clip(counts[:cells])
        after = state | parts | outer(counter, "total.") | {"t": np.array(tick + 1), "open": exact}
        released, closes, ends = {place: running[:1]}, self._part_ends(after, tick, running), self.times.ends(tick)
        events, singles = float(running[0] - state["closed_total"]), np.flatnonzero(self.order == 1)
        number, since = self.nearest(), int(state["part"])
        if ends and "shown" in state:
            number = self.nearest(plan.number(self.spreads, max(events, 1.0), state["shown"], whole=since == begin))
        if closes:
            released |= self._drawn(self.groups, exact, gate, number if ends and since == begin else self.open_to[-1])
            after |= {"part": np.array(tick + 1), "rows": running[-1]}
            after["open"] = np.where(np.repeat(self.order == 1, self.workload.lengths), 0, exact)
        if ends:
            known = np.concatenate([np.zeros(0), *(released[q] for q in singles.tolist() if q in released)])
            guessed = plan.guess(max(events, 1.0), known)
            tables = self._larger(exact, guessed, gate, number)
            drawn = self._drawn([(q,) for q in tables.tolist()], exact, gate, number)
            released |= drawn
            after |= {"open": np.zeros_like(exact), "closed_total": running[0]}
            after |= {"shown": plan.shown(drawn, guessed, self.spreads[number])} if "shown" in state else {}
        rows = float(running[-1]) if self.counts_rows else None
        return after, self.described(tick, list(released), np.concatenate(list(released.values())), since, rows)

    def _part_ends(self, state: State, tick: int, running: FloatArray) -> bool:
        """Whether tables of one column are measured at this tick: from the state and from released values alone."""
        if self.times.part_ends(tick, int(state["parts"])):
            return True
        more = running[-1] - state["rows"]
        if not more > state["rows"] / _PER[self.unit.signed]:
            return False
        noise = of_difference(self.counter, int(state["part"]) - 1, tick, multiplier=self.running[-1])
        return bool(more > _BEYOND[self.unit.signed] * np.sqrt(max(noise, 0.0)))

    def _drawn(
        self, groups: Iterable[tuple[int, ...]], exact: IntArray, gate: Gate, number: int
    ) -> dict[int, FloatArray]:
        """Tables with fresh noise, by their position: those of a group get it together, in one question."""
        found = dict[int, FloatArray]()
        for group in groups:
            cells, scale = self.workload.lengths[list(group)].tolist(), float(self.scales[number][group[0]])
            values = np.concatenate([exact[self.workload.slice_at(q)] for q in group])
            drawn = (
                gate.joint(values, cells=cells, scale=scale) if len(group) > 1 else gate.laplace(values, scale=scale)
            )
            found |= dict(zip(group, np.split(drawn.astype(np.float64), np.cumsum(cells)[:-1]), strict=True))
        return dict(sorted(found.items()))

    def _larger(self, exact: IntArray, guessed: FloatArray, gate: Gate, number: int) -> IntArray:
        """Positions of so many larger tables to measure in this epoch."""
        larger = np.flatnonzero(self.order == 2)
        if number == larger.size:
            return larger
        candidates = Candidates.of_tables(self.workload, larger)
        noise = np.sqrt(self.variance(0, number)[larger] / 2)  # mean size of one draw of Laplace noise
        # By turns: by one of them alone, large tables are chosen never, or small ones too seldom.
        biases = [candidates.expected_distances(guessed, noise, shrunk=s) for s in (False, True)]
        scores = [l1_scores(candidates, exact, guessed, bias=bias) for bias in biases]
        left, moved_by, epsilon = list(range(larger.size)), self.changed * GRID, self.choice_epsilon(number)
        for turn in range(number):
            del left[gate.choose(scores[turn % len(scores)][left], sensitivity=moved_by, epsilon=epsilon)]
        return np.delete(larger, left)

    def described(
        self, tick: int, positions: list[int], values: FloatArray, since: int | None = None, rows: float | None = None
    ) -> Measured:
        """What was measured at a tick: tables at these positions of the workload, and their values.

        Args:
            since: first tick of the part that tables of one column count; left out: that of the epoch.
            rows: of either sign, up to this tick; ``None`` if they are not counted.
        """
        begin, order = self.times.begin(tick), self.order[positions]
        first = np.choose(order, [0, begin if since is None else since, begin])
        number, whole = int(np.sum(order == 2)), since in (None, begin)
        several = self.variance(tick, number if whole and number else self.open_to[-1])[positions]
        variance = np.where(order == 1, several, self.variance(tick, number)[positions])
        return self.measured(tick, positions, values, variance=variance, since=first, rows=rows)
