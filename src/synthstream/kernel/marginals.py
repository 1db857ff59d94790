"""The default mechanism for tables: a private running count of every cell of every marginal in the workload."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from synthstream.kernel.counters import Counter, State, counter
from synthstream.kernel.counters.base import too_wide
from synthstream.kernel.gate import Gate
from synthstream.kinds import Split
from synthstream.measured import Measured, fingerprint_of
from synthstream.privacy import EVENT, WIDER, Budget, Claim, Neighbours, Unit, l1_sensitivity, squared_l2_sensitivity
from synthstream.workload import FloatArray, IntArray, Workload

# Parts of a by-order budget for the total, marginals of one column, and larger ones.
_PARTS = (0.02, 0.58, 0.40)

# Released values are rounded to a power of two at most this share of their smallest standard error.
_RESOLUTION = 1 / 32


@dataclass(frozen=True, kw_only=True)
class Marginals:
    """All marginals of a workload, one counter over all their cells, the budget split by a public key.

    Privacy:
        Unit        one event; neighbours: add-remove (one cell of each marginal changes by one, in one tick) or
                    replace-one (two cells of each marginal change by one, in one tick; if events are signed, also
                    one cell by two)
        Cost        the whole budget, once: sum over marginals of epsilon_q or rho_q
        Theorem     marginals, and that of the counter
        Trusts      the workload, the split and the clock are public
    Accuracy:       variance(t) of the counter, for each marginal at its share of the budget
    Time, memory:   those of the counter over all cells

    Args:
        workload: the marginals and their cells.
        budget: what all releases together may cost.
        horizon: number of ticks; ``None`` for no end.
        split: ``equal``, every marginal the same share; ``sqrt-cells``, in proportion to the square root of the cells;
            ``by-order``, 2 % for the total, 58 % for marginals of one column by the square root of their cells, 40 %
            for larger ones, each the same; ``auto``, equal for zCDP and by-order for pure DP.
        kind: which counter; ``auto`` takes the most accurate.
        weights: of each marginal beside others of its order, before the split; left out: all the same.

    Raises:
        ValueError: the counter does not serve the horizon or the kind of budget, or the budget is too small.

    Example:
        >>> workload = Workload.all_up_to(1, sizes=(2, 3))
        >>> mechanism = Marginals(workload=workload, budget=Budget(epsilon=1.0, delta=1e-9), horizon=100)
        >>> mechanism.claim().rho <= mechanism.budget.rho
        True
        >>> round(math.sqrt(mechanism.variance(99)[0]))
        26
    """

    workload: Workload
    budget: Budget
    horizon: int | None
    unit: Unit = EVENT
    neighbours: Neighbours = "add-remove"
    split: Split = "auto"
    kind: str = "auto"
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not self.counter.draws(float(self.multipliers.max())):
            raise too_wide(self.budget.epsilon, len(self.workload.marginals))

    @cached_property
    def counter(self) -> Counter:
        """The counter over all cells."""
        return counter(self.kind, horizon=self.horizon, noise="laplace" if self.budget.pure else "gaussian")

    @cached_property
    def shares(self) -> FloatArray:
        """Share of the budget of each marginal, shape ``(marginals,)``; they add up to 1."""
        split = self.split
        if split == "auto":
            split = "by-order" if self.budget.pure else "equal"
        weights = np.ones(len(self.workload.marginals)) if self.weights is None else np.array(self.weights)
        roots = np.sqrt(self.workload.lengths) * weights
        if split == "equal":
            key = weights
        elif split == "sqrt-cells":
            key = roots
        else:
            order = self.workload.order
            within = np.where(order == 2, weights, roots)
            key = np.array([_PARTS[k] for k in order]) * within / np.bincount(order, within)[order]
        return np.asarray(key / key.sum())

    @cached_property
    def multipliers(self) -> FloatArray:
        """Noise per unit of sensitivity for each marginal, shape ``(marginals,)``, rounded up to fit the budget."""
        if self.budget.pure:
            epsilon = self.budget.epsilon * self.shares
            exact = l1_sensitivity(self.neighbours) / epsilon
        else:
            squared = squared_l2_sensitivity(self.neighbours, signed=self.unit.signed)
            unit = self.counter.least(float(np.sqrt(squared / (2 * self.shares.max()))))
            rho = float(self.budget.spendable(unit)) * self.shares
            exact = np.sqrt(squared / (2 * rho))
        return np.asarray(exact * WIDER)

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        exact = [Fraction(float(m)) for m in self.multipliers]
        pure: Fraction | None = None
        if self.counter.noise == "laplace":
            pure = sum((l1_sensitivity(self.neighbours) / m for m in exact), Fraction(0))
            rho = pure * pure / 2
        else:
            squared = squared_l2_sensitivity(self.neighbours, signed=self.unit.signed)
            rho = sum((squared / (2 * m * m) for m in exact), Fraction(0))
        return Claim(
            unit=self.unit,
            neighbours=self.neighbours,
            rho=rho,
            pure=pure,
            least=self.counter.least(float(self.multipliers.min())),
            horizon=self.horizon,
            theorems=("marginals", self.counter.theorem),
            trusts=("schema, workload, clock and budget split are public",),
        )

    def variance(self, t: int) -> FloatArray:
        """Noise variance of each cell of each marginal after tick ``t``, shape ``(marginals,)``. Public."""
        unique, inverse = np.unique(self.multipliers, return_inverse=True)
        each = np.array([self.counter.variance(t, multiplier=float(m)) for m in unique])
        return np.asarray(each[inverse] + self.resolution**2 / 12)

    def covariance(self, s: int, t: int) -> FloatArray:
        """Covariance of the noise in a cell's values after ticks ``s`` and ``t``, shape ``(marginals,)``. Public.

        So the count of what came after tick s, up to tick t, has the variance of both less twice this. Rounding to the
        resolution is taken to be independent between ticks.
        """
        if s == t:
            return self.variance(t)
        unique, inverse = np.unique(self.multipliers, return_inverse=True)
        return np.array([self.counter.covariance(s, t, multiplier=float(m)) for m in unique])[inverse]

    @cached_property
    def resolution(self) -> float:
        """Released values are whole multiples of this power of two."""
        return resolution_for(self.counter.variance(0, multiplier=float(self.multipliers.min())))

    def fingerprint(self) -> str:
        """Hash of every number that decides how values are encoded and how much noise they get: SHA-256, hexadecimal.

        A stream may only go on with the numbers it began with: the proofs hold for one fixed encoder.
        """
        facts = [self.multipliers.tolist(), self.counter.facts(), self.resolution, self.workload.marginals]
        facts += ["signed"] if self.unit.signed else []
        return fingerprint_of(facts)

    def init(self) -> State:
        """The state before the first tick."""
        return self.counter.init(self.workload.cells)

    def step(self, state: State, counts: IntArray, gate: Gate) -> tuple[State, Measured]:
        """Close one tick.

        Args:
            state: what the last step returned; it is not changed.
            counts: the tick's exact counts, int64, shape ``(cells,)``.
            gate: the source of noise.

        Raises:
            HorizonExhausted: all ticks have been released.
        """
        tick = int(state["t"])
        multiplier = np.repeat(self.multipliers, self.workload.lengths)
        after, estimate = self.counter.step(state, counts, gate, multiplier=multiplier)
        return after, self.measured(tick, np.rint(estimate / self.resolution).astype(np.int64))

    def measured(self, tick: int, released: IntArray) -> Measured:
        """What was measured at a tick, from released values in units of the resolution."""
        return Measured(
            tick=tick,
            workload=self.workload,
            values=np.asarray(released * self.resolution, dtype=np.float64),
            variance=self.variance(tick),
        )


def resolution_for(smallest: float) -> float:
    """The power of two that values are rounded to, if this is the smallest variance of a cell."""
    # At an enormous epsilon the variance may vanish; counts are then kept to a millionth.
    return float(2.0 ** math.floor(math.log2(max(math.sqrt(smallest) * _RESOLUTION, 1e-6))))
