"""The audit of a single cell of a counter."""

from __future__ import annotations

import numpy as np

from synthstream.evaluate.audit import Finding, of_counter
from synthstream.kernel.counters import Counter
from synthstream.kernel.gate import Gate, SystemGate
from synthstream.synthesizers.contract import CounterTarget


def audit_counter(
    counter: Counter,
    *,
    multiplier: float,
    runs: int,
    ticks: int = 64,
    confidence: float = 0.999,
    gate: Gate | None = None,
) -> Finding:
    """Lower bound for one cell of a counter, whose claim is epsilon, or mu, of 1 / ``multiplier``."""
    name = f"one cell of the counter {type(counter).__name__.lower()}"
    one = np.ones(1)
    target = CounterTarget(name=name, counter=counter, multipliers=one * multiplier, moved=one)
    return of_counter(
        target, gate or SystemGate(), ticks=ticks, runs=runs, alpha=1 - confidence, progress=lambda _: None
    )
