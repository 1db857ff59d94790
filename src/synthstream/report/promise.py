"""How much a promise is worth, in plain words: a weak one is called weak."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from typing import Any

from synthstream.kinds import NO_EPSILON, WEAK_DELTA, WEAK_EPSILON, spelled
from synthstream.privacy import WIDER, stated
from synthstream.report.page import small
from synthstream.report.scales import bound, number


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What (epsilon, delta) is worth to whom it protects.

    Args:
        epsilon: above 0.
        delta: 0 for a pure promise.
        whom: what a conclusion is about.

    Example:
        >>> Promise(epsilon=1.0, delta=0.0, whom="an event").words
        'with ε = 1, no conclusion about an event becomes more than 2.72 times as likely'
        >>> Promise(epsilon=0.1, delta=0.0, whom="an event").words  # e^0.1 is 1.105
        'with ε = 0.1, no conclusion about an event becomes more than 1.11 times as likely'
        >>> Promise(epsilon=50.0, delta=0.0, whom="an event").warning
        'ε = 50 promises next to nothing.'
    """

    epsilon: float
    delta: float
    whom: str

    @property
    def is_empty(self) -> bool:
        """Whether it promises next to nothing."""
        return self.epsilon > NO_EPSILON

    @property
    def is_weak(self) -> bool:
        """Whether nobody should rely on it."""
        return self.epsilon > WEAK_EPSILON or self.delta > WEAK_DELTA

    @property
    def warning(self) -> str:
        """What a reader must know before anything else; empty if the promise is not weak."""
        if not self.is_weak:
            return ""
        parts = []
        if self.is_empty:
            parts.append(f"ε = {stated(self.epsilon)} promises next to nothing.")
        elif self.epsilon > WEAK_EPSILON:
            parts.append(f"The promise is weak: ε = {stated(self.epsilon)} is large.")
        if self.delta > WEAK_DELTA:
            start = "There is" if parts else "The promise is weak: there is"
            parts.append(f"{start} a chance of {self._chance} that it does not hold at all (δ = {small(self.delta)}).")
        return " ".join(parts)

    @property
    def words(self) -> str:
        """What epsilon and delta say, as a part of a sentence."""
        said = f"with ε = {stated(self.epsilon)}, "
        if self.is_empty:
            return f"{said}a conclusion about {self.whom} may become so much more likely that the promise means nothing"
        said += f"no conclusion about {self.whom} becomes more than {bound(math.exp(self.epsilon))} times as likely"
        if self.delta > WEAK_DELTA:
            return f"{said}, but for a chance of {self._chance} that it does not hold at all"
        if self.delta:
            return f"{said}, plus a probability of δ = {small(self.delta)}"
        return said

    @property
    def _chance(self) -> str:
        most = Context(prec=2, rounding=ROUND_FLOOR).create_decimal_from_float(WIDER / self.delta)
        return f"one in {number(float(most))}"


def promise_of(claim: Mapping[str, Any]) -> Promise:
    """What a claim is worth, as it stands in a manifest: where it is for one period alone, to a person in that.

    Example:
        >>> promise_of({"epsilon": 1.0, "delta": 0.0, "unit": "person", "per": "364d"}).whom
        'what a person does in one period of 364 days'
    """
    whom, per = "a person" if claim["unit"] == "person" else "an event", claim.get("per")
    whom = whom if per is None else f"what {whom} does in one period of {spelled(per)}"
    return Promise(epsilon=claim["epsilon"], delta=claim["delta"], whom=whom)
