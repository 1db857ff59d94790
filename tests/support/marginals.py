"""Mechanisms of tables, and how tests run one."""

from __future__ import annotations

import numpy as np

from synthstream.kernel.gate import Gate
from synthstream.kernel.tables import Marginals
from synthstream.kinds import Split
from synthstream.measured import Measured
from synthstream.privacy import EVENT, Budget, Neighbours, Unit
from synthstream.workload import IntArray, Workload

WORKLOAD = Workload.all_up_to(2, sizes=(2, 3))


def mechanism(
    budget: Budget,
    *,
    horizon: int | None = 4,
    split: Split = "auto",
    neighbours: Neighbours = "add-remove",
    unit: Unit = EVENT,
) -> Marginals:
    return Marginals(workload=WORKLOAD, budget=budget, horizon=horizon, split=split, neighbours=neighbours, unit=unit)


def run(m: Marginals, stream: list[IntArray], gate: Gate) -> list[Measured]:
    state, out = m.init(), []
    for codes in stream:
        state, measured = m.step(state, WORKLOAD.count(codes.astype(np.int32)), gate)
        out.append(measured)
    return out
