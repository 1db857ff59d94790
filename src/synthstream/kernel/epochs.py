"""The default mechanism for tables under pure DP: each of ever longer epochs is measured once, when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from synthstream.kernel.counters import Counter, State, counter
from synthstream.kernel.counters.base import clip, inner, outer
from synthstream.kernel.gate import Gate
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.kernel.select import Guess, chosen, expected_distances, l1_scores
from synthstream.measured import Measured, fingerprint_of
from synthstream.privacy import CHEAPER, EVENT, WIDER, Budget, Claim, Neighbours, Unit, l1_sensitivity
from synthstream.workload import Candidates, FloatArray, IntArray, Workload

# Parts of the budget for the total, tables of one column, the choice of larger ones, and these.
_PARTS = (0.12, 0.40, 0.08, 0.40)


@dataclass(frozen=True, kw_only=True)
class Epochs:
    """A running total at every tick; all other tables once an epoch, from its rows alone, with fresh noise.

    An epoch ends when the stream is ``growth`` times as old as at the end of the one before. All tables of one column
    are measured then, and ``picks`` larger ones, chosen by how far the newest release is from the epoch's rows.

    Privacy:
        Unit        one event; neighbours: add-remove (one cell of each table changes by one, in one tick) or
                    replace-one (two cells of each table change by one, in one tick; if events are signed, also one
                    cell by two)
        Cost        the whole budget, once: the total's counter, and one epoch's measurements and choices
        Theorem     epochs, choose, and that of the total's counter
        Trusts      the workload, the budget's parts and the clock are public
    Accuracy:       variance(t) for the total, 2 (a / epsilon_q)^2 for each cell of a table measured in an epoch
    Time, memory:   O(cells) per tick

    Args:
        workload: the tables; the total ``()`` is one of them.
        budget: what all releases together may cost; its epsilon is spent, its delta is not.
        horizon: number of ticks; ``None`` for no end.
        picks: larger tables to measure in an epoch; from their number on all are measured, and none is chosen.
        growth: how much older the stream is at the end of an epoch than at its beginning; above 1.

    Raises:
        ValueError: an argument is out of range, or the budget is too small.

    Example:
        >>> workload = Workload.all_up_to(2, sizes=(2, 3, 4))
        >>> mechanism = Epochs(workload=workload, budget=Budget(epsilon=1.0, delta=0.0), horizon=100, picks=2)
        >>> [tick for tick in range(100) if mechanism.ends(tick)]
        [0, 1, 2, 4, 7, 11, 17, 26, 40, 61, 92]
        >>> float(mechanism.claim().pure) <= 1
        True
    """

    theorem: ClassVar[str] = "epochs"

    workload: Workload
    budget: Budget
    horizon: int | None
    unit: Unit = EVENT
    neighbours: Neighbours = "add-remove"
    picks: int
    growth: float = 1.5

    def __post_init__(self) -> None:
        if () not in self.workload.marginals:
            raise ValueError("workload: the total () must be measured")
        if not 1 < self.growth <= 100:
            raise ValueError(f"growth must be above 1 and at most 100, not {self.growth}")
        if self.picks < 1:
            raise ValueError(f"picks must be at least 1, not {self.picks}")
        if not max(self.scales.tolist()) < LARGEST_SCALE or not self.counter.draws(self.total_multiplier):
            raise ValueError(
                f"epsilon = {self.budget.epsilon:g} is too small for {len(self.workload.marginals)} tables: the noise "
                "would be wider than can be drawn. Measure fewer tables, or allow more."
            )

    # -- public facts -------------------------------------------------------------------------------------------

    @cached_property
    def counter(self) -> Counter:
        """The counter of the total."""
        return counter("auto", horizon=self.horizon, noise="laplace")

    @cached_property
    def order(self) -> IntArray:
        """0 for the total, 1 for tables of one column, 2 for larger ones; shape ``(marginals,)``."""
        return np.array([min(len(marginal), 2) for marginal in self.workload.marginals])

    @property
    def measured_larger(self) -> int:
        """Number of larger tables that are measured in an epoch."""
        return min(self.picks, int(np.sum(self.order == 2)))

    @property
    def chooses(self) -> bool:
        """Whether larger tables are chosen; otherwise all are measured."""
        return self.measured_larger < int(np.sum(self.order == 2))

    @cached_property
    def parts(self) -> FloatArray:
        """Parts of the budget: total, tables of one column, choice, larger tables; they add up to 1."""
        parts = np.array(_PARTS)
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
    def total_multiplier(self) -> float:
        """Noise per unit of sensitivity of the total."""
        return self.changed / (self.budget.epsilon * float(self.parts[0])) * WIDER

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
        begin, end = 0, 1
        while end <= tick:
            begin, end = end, max(end + 1, int(np.ceil(end * self.growth)))
        return begin

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        pure = self.changed / Fraction(self.total_multiplier)
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
        what two sums share is the epochs that have ended by the earlier tick.
        """
        ended = sum(self.ends(tick) for tick in range(min(s, t) + 1))
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
        ]
        return fingerprint_of(facts)

    # -- drawing ------------------------------------------------------------------------------------------------

    def init(self) -> State:
        """The state before the first tick."""
        nothing = {"open": np.zeros(self.workload.cells, dtype=np.int64), "closed_total": np.array(0.0)}
        return outer(self.counter.init(1), "total.") | {"t": np.array(0)} | nothing

    def step(self, state: State, counts: IntArray, gate: Gate, guess: Guess) -> tuple[State, Measured]:
        """Close one tick.

        Args:
            state: what the last step returned; it is not changed.
            counts: the tick's exact counts, int64, shape ``(cells,)``.
            gate: the source of noise.
            guess: the newest release's tables, for the choice of tables; public.

        Raises:
            HorizonExhausted: all ticks have been released.
        """
        tick = int(state["t"])
        place = self.workload.slice_of(())
        multiplier = np.array([self.total_multiplier])
        counter, total = self.counter.step(inner(state, "total."), counts[place], gate, multiplier=multiplier)
        positions, parts = [self.workload.marginals.index(())], [total]
        exact = state["open"] + clip(counts)
        after = state | outer(counter, "total.") | {"t": np.array(tick + 1), "open": exact}
        if self.ends(tick):
            events = float(total[0] - state["closed_total"])
            measured = sorted([*np.flatnonzero(self.order == 1), *self._larger(exact, events, gate, guess)])
            for q in measured:
                part = slice(int(self.workload.offsets[q]), int(self.workload.offsets[q + 1]))
                positions.append(int(q))
                parts.append(gate.laplace(exact[part], scale=float(self.scales[q])).astype(np.float64))
            after |= {"open": np.zeros_like(exact), "closed_total": total[0]}
        return after, self.measured(tick, positions, np.concatenate(parts))

    def _larger(self, exact: IntArray, events: float, gate: Gate, guess: Guess) -> IntArray:
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

    def measured(self, tick: int, positions: list[int], values: FloatArray) -> Measured:
        """What was measured at a tick: tables at these positions of the workload, and their values."""
        marginals = tuple(self.workload.marginals[q] for q in positions)
        running = self.order[positions] == 0
        return Measured(
            tick=tick,
            workload=Workload(sizes=self.workload.sizes, marginals=marginals),
            values=values,
            variance=self.variance(tick)[positions],
            since=np.where(running, 0, self.begin(tick)),
        )
