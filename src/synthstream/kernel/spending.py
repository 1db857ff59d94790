"""What is spent: the noise that a budget pays for, the claim, and the events of a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from synthstream.kernel.counters import Counter, counter
from synthstream.kinds import Noise
from synthstream.privacy import EVENT, WIDER, Budget, Claim, Neighbours, Unit, l1_sensitivity, squared_l2
from synthstream.workload import FloatArray


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What is measured under one budget, once and for all: noise per unit of sensitivity, and what it costs.

    Args:
        budget: what all releases together may cost.
        horizon: number of ticks; ``None`` for no end.
        unit, neighbours: who is protected, and what is changed.

    Attributes:
        theorem: id of the file in ``docs/theorems`` that proves the cost.
    """

    theorem: ClassVar[str]

    budget: Budget
    horizon: int | None
    unit: Unit = EVENT
    neighbours: Neighbours = "add-remove"

    @property
    def noise(self) -> Noise:
        """Law of the noise."""
        return "laplace" if self.budget.pure else "gaussian"

    @property
    def changed(self) -> int:
        """Sum over a table's cells of the change that one unit makes: 1 if a row comes or goes, 2 if it is replaced."""
        return l1_sensitivity(self.neighbours)

    @property
    def squared(self) -> int:
        """The most that the squares of these changes add up to."""
        return squared_l2(self.neighbours, signed=self.unit.signed)

    def counted(self, kind: str = "auto") -> Counter:
        """The counter of a kind over all ticks."""
        return counter(kind, horizon=self.horizon, noise=self.noise)

    def refuse_unless(self, fits: bool, what: str, advice: str = "") -> None:
        """Raise ``ValueError`` unless all noise of the stream's whole life can be drawn.

        This is checked before a stream begins: a draw refused in the middle would reveal how far the stream has come.
        """
        if not fits:
            wide = "the noise would be wider than can be drawn"
            raise ValueError(f"epsilon = {self.budget.epsilon:g} is too small for {what}: {wide}{advice}")

    def whole(self, least: Fraction | None = None) -> float:
        """What all may cost: an epsilon, or a rho, if no draw has less variance; see :meth:`Budget.spendable`."""
        return self.budget.epsilon if self.noise == "laplace" else float(self.budget.spendable(least))

    def multipliers_of(self, shares: FloatArray, whole: float) -> FloatArray:
        """Noise per unit of sensitivity that shares of a whole pay for, rounded up; 0 for a share of 0."""
        paid = np.where(shares > 0, whole * shares, np.inf)
        exact = self.changed / paid if self.noise == "laplace" else np.sqrt(self.squared / (2 * paid))
        return np.asarray(exact * WIDER)

    def cost_of(self, multipliers: Iterable[float]) -> Fraction:
        """What draws of so much noise per unit of sensitivity cost together: epsilon (Laplace) or rho, exact."""
        exact = [Fraction(multiplier) for multiplier in multipliers]
        if self.noise == "laplace":
            return sum((self.changed / m for m in exact), Fraction(0))
        return sum((self.squared / (2 * m * m) for m in exact), Fraction(0))

    def claimed(self, cost: Fraction, theorems: Sequence[str], public: str, least: Fraction | None = None) -> Claim:
        """The promise for a cost: an epsilon (Laplace) or a rho. ``public``: which facts it trusts to be public.

        ``least``: least variance of any draw, of Gaussian noise.
        """
        pure = cost if self.noise == "laplace" else None
        return Claim(
            unit=self.unit,
            neighbours=self.neighbours,
            rho=cost if pure is None else pure * pure / 2,
            pure=pure,
            least=least,
            horizon=self.horizon,
            theorems=tuple(dict.fromkeys([self.theorem, *theorems])),
            trusts=(f"{public} are public",),
        )


def participation_factor(how: Counter | None, unit: Unit, horizon: int | None = None) -> Fraction:
    """How much further all events of one unit move what passes the gate than one event does; exact, rounded up.

    Privacy:
        Unit        a person with at most ``unit.events_in(horizon)`` events, ``unit.in_a_tick`` in a tick; neighbours:
                    add-remove
        Cost        factor^2 times the rho of one event; the factor is the number of events if ``how`` says no better
        Theorem     participation
        Trusts      that no more events of a person are counted (``synthstream.ingest.bounding``)

    Args:
        how: the one counter that all values at the gate come from; ``None`` if there are several, or none.
        horizon: number of ticks, if ``how`` does not know it; ``None`` for no end.

    Example:
        >>> from synthstream.kernel.counters import counter
        >>> unit = Unit(kind="person", max_events=16, max_per_tick=1)
        >>> float(participation_factor(counter("simple", horizon=100, noise="gaussian"), unit))
        4.0
        >>> participation_factor(counter("kary", horizon=100, noise="laplace"), unit)
        Fraction(16, 1)
    """
    layers, events = unit.in_a_tick, unit.events_in(horizon if how is None else how.horizon)
    if how is None or how.noise != "gaussian":
        return Fraction(events)
    full, rest = divmod(events, layers)
    longer, shorter = (
        how.participation(n) if n and times else Fraction(0) for n, times in ((full + 1, rest), (full, layers))
    )
    if longer is None or shorter is None:
        return Fraction(events)
    # Events of one person, in order of time, are dealt out to as many layers as may lie in one tick.
    moved = rest * longer + (layers - rest) * shorter
    return max(Fraction(1), min(Fraction(events), moved / Fraction(how.sensitivity(0))))
