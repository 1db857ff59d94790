"""Bugs of budgets, claims and the ledger."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from synthstream import Stream, privacy
from synthstream.accounting import gaussian, zcdp
from synthstream.kernel.tables import Marginals
from synthstream.privacy import Budget
from synthstream.state.store import Store
from synthstream.workload import FloatArray
from tests.audit.broken import Patch, seen_by


@seen_by("accounting")
def a_ledger_that_never_refuses(patch: Patch) -> None:
    """Charges are written down, and that is all."""
    patch.setattr(Budget, "charge", lambda *_: None)


@seen_by("accounting")
def charged_at_every_tick(patch: Patch) -> None:
    """A continual mechanism is charged again whenever it releases."""
    honest = Stream._publish

    def broken(self: Stream, *arguments: Any) -> None:
        honest(self, *arguments)
        with self._store.transaction("charge"):
            self._store.append_ledger(self._builder.claim)

    patch.setattr(Stream, "_publish", broken)
    patch.setattr(Store, "ledger", _first_of(Store.ledger))


def _first_of(honest: Any) -> Any:
    """The check at opening is fooled by a ledger that repeats itself; what is shown is not."""

    def shown(self: Store) -> Any:
        claims = honest(self)
        return claims[:1] if self.population() is None or len(claims) == self.population()[0] + 1 else claims  # type: ignore[index]

    return shown


@seen_by("accounting")
def a_table_left_out_of_the_split(patch: Patch) -> None:
    """Shares of the budget add up to more than all of it."""
    honest = Marginals.shares.func  # type: ignore[attr-defined]

    def broken(self: Marginals) -> FloatArray:
        shares = honest(self)
        return np.asarray(shares / shares[:-1].sum())

    patch.setattr(Marginals, "shares", property(broken))


@seen_by("conversion")
def a_conversion_that_is_too_optimistic(patch: Patch) -> None:
    """rho = epsilon^2 / (2 ln(1/delta)): off by a factor of two."""

    def broken(epsilon: float, *, delta: float, coarsely: bool = False) -> float:
        return epsilon**2 / (2 * math.log(1 / delta))

    patch.setattr(privacy, "rho_for", broken)


@seen_by("conversion")
def delta_without_its_last_terms(patch: Patch) -> None:
    """The bound on delta for one order of Renyi divergence, with terms in it that belong to another bound."""
    honest = zcdp._least
    patch.setattr(zcdp, "_least", lambda bound, rho, epsilon: honest(bound, rho, epsilon) - math.log(100))


@seen_by("conversion")
def integers_taken_for_reals(patch: Patch) -> None:
    """Noise on integers is charged as if it were real: nothing for what the two laws differ by."""
    patch.setattr(gaussian, "slack", lambda rho, least, *, delta: (0.0, 2 * rho, 0.0))


@seen_by("conversion")
def a_shift_of_half_its_square(patch: Patch) -> None:
    """mu = sqrt(rho), where rho = mu^2 / 2."""
    honest = gaussian.delta_of_gaussian
    patch.setattr(gaussian, "delta_of_gaussian", lambda mu, *, epsilon: honest(mu / math.sqrt(2), epsilon=epsilon))


@seen_by("conversion")
def epsilon_squared_as_rho(patch: Patch) -> None:
    """rho = epsilon^2 / 2 also where delta is above 0: this is what pure DP implies, not what implies it."""
    patch.setattr(Budget, "rho", property(lambda self: Fraction(self.epsilon) ** 2 / 2))
