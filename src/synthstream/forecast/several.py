"""What a promise is for somebody whom it names several times."""

from __future__ import annotations

import math
from dataclasses import replace

from synthstream.config.config import StreamConfig
from synthstream.privacy import stated
from synthstream.synthesizers.succession import promise_of


def of_several(config: StreamConfig, what: str, many: int = 10) -> str:
    """What the promise is for somebody whom it names several times, rounded up (theorem ``group``)."""
    promise = promise_of(config)
    claim, budget = promise.claim, promise.budget
    number = "ten" if many == 10 else str(many)
    if budget.pure:
        return f"with {number} {what} by epsilon = {stated(many * budget.epsilon)}, not {stated(budget.epsilon)}."
    pure = None if claim.pure is None else many * claim.pure
    all_ = math.ceil(10 * replace(claim, rho=many**2 * claim.rho, pure=pure).epsilon(budget.delta)) / 10
    return f"with {number} {what} by epsilon = {stated(all_)} at the same delta, not {stated(budget.epsilon)}."


def in_periods(config: StreamConfig) -> str:
    """The same of a person in several periods, ten at most; empty where limits are for no period."""
    period, horizon = config.privacy.unit.period, config.clock.horizon
    if period is None:
        return ""
    periods = 10 if horizon is None else min(10, math.ceil(horizon / period))
    if periods == 1:
        return "This stream ends within the first period."
    return f"A person with events in many periods is protected less: {of_several(config, 'periods', periods)}"
