"""Mechanisms of epochs, and what their paths cost."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from synthstream.fit.ahead import Ahead
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate
from synthstream.measured import Measured
from synthstream.privacy import Budget, Neighbours
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray, IntArray, Workload
from tests.support.gates import ReplayingGate, TracingGate, path_cost

SIZES = (2, 2, 2)


WORKLOAD = Workload.all_up_to(2, sizes=SIZES)


PURE = Budget(epsilon=1.0, delta=0.0)


def mechanism(
    *,
    picks: int = 2,
    neighbours: Neighbours = "add-remove",
    horizon: int | None = 4,
    workload: Workload = WORKLOAD,
) -> Epochs:
    return Epochs(workload=workload, budget=PURE, horizon=horizon, neighbours=neighbours, picks=picks)


def uniform(workload: Workload, events: float) -> FloatArray:
    return np.repeat(events / workload.lengths, workload.lengths)


def run(m: Epochs, stream: list[IntArray], gate: Gate) -> list[Measured]:
    state, out = m.init(), []
    for codes in stream:
        counts = m.workload.count(codes.astype(np.int32))
        state, measured = m.step(state, counts, gate, Ahead(workload=m.workload))
        out.append(measured)
    return out


def worst_path_cost_on_exhaustive_neighbours(neighbours: Neighbours, picks: int) -> None:
    """Given the same answers, one event more (or another) never costs more than the claim, at worst nearly as much."""
    m = mechanism(neighbours=neighbours, picks=picks)  # four ticks: the total's counter is simple, and tight
    rows = [np.array(row) for row in itertools.product(*map(range, SIZES))]
    none = np.zeros((0, 3), dtype=np.int64)
    claim = m.claim().pure
    assert claim is not None
    worst = Fraction(0)
    for base in ([], [(0, 0, 0)], [(0, 1, 1), (1, 1, 0)]):
        for tick in range(4):  # the last tick begins an epoch that never ends
            batch = np.array(base).reshape(-1, 3)
            stream = [none, none, none, none]
            stream[tick] = batch
            tracing = TracingGate(SeededGate(1))
            releases = run(m, stream, tracing)
            others = [np.concatenate([batch, [row]]) for row in rows]
            if neighbours == "replace-one":
                others = [np.concatenate([batch[1:], [row]]) for row in rows] if len(batch) else []
            for other in others:
                replaying = ReplayingGate(tracing.trace)
                again = run(m, [other if t == tick else s for t, s in enumerate(stream)], replaying)
                assert all(np.array_equal(a.values, b.values) for a, b in zip(releases, again, strict=True))
                rho, cost = path_cost(tracing.trace, replaying.trace)
                assert rho == 0
                worst = max(worst, cost)
    total = m.changed / Fraction(m.total_multiplier)  # which does not change if an event is replaced
    assert worst <= claim * (1 + Fraction(1, 10**12))
    # Another event in place of one moves few distances by two: choices cost less than is charged for them.
    assert worst > (Fraction(98, 100) * claim if neighbours == "add-remove" else Fraction(9, 10) * (claim - total))
