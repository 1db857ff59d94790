"""What was spent: append-only, and refusing before any draw."""

from __future__ import annotations

from dataclasses import dataclass

from synthstream.errors import BudgetExceeded
from synthstream.privacy import Budget, Claim, compose


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Claims charged against one budget. A continual mechanism is charged once, for its whole life.

    Example:
        >>> Ledger(budget=Budget(epsilon=1.0, delta=0.0)).claims
        ()
    """

    budget: Budget
    claims: tuple[Claim, ...] = ()

    def charge(self, claim: Claim) -> Ledger:
        """A ledger with one more claim. There are no refunds.

        Raises:
            BudgetExceeded: all claims together would exceed the budget. Compared in exact arithmetic.
        """
        charged = (*self.claims, claim)
        if not self.budget.covers(*compose(charged)):
            raise BudgetExceeded(
                f"The ledger refuses this charge: the budget is epsilon = {self.budget.epsilon:g}, "
                f"delta = {self.budget.delta:g}, {len(self.claims)} charge(s) stand against it, and this one would "
                "exceed it. No noise was drawn."
            )
        return Ledger(budget=self.budget, claims=charged)
