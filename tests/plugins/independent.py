"""A synthesizer that the package does not know: columns are measured one by one, and rows drawn column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from synthstream.config.config import StreamConfig
from synthstream.fit.population import Population
from synthstream.kernel.tables import Marginals
from synthstream.measured import Measured
from synthstream.privacy import Budget, Unit
from synthstream.synthesizers.assembly import register
from synthstream.synthesizers.contract import History, Models, Synthesizer
from synthstream.synthesizers.tables import Continual
from synthstream.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Independent(Continual):
    """Running counts of single columns, and rows whose columns are drawn apart."""

    def describe(self) -> str:
        """See :class:`Synthesizer`."""
        return "every column on its own"

    def fit(self, tick: int, history: History, last: Any, models: Models, *, seed: int) -> Population:
        """See :class:`Synthesizer`."""
        measured: Measured = history(tick)
        rng = np.random.default_rng(seed)
        number = max(round(float(measured.marginal(())[0])), 0)
        codes = np.empty((number, len(measured.workload.sizes)), dtype=np.int32)
        for column in range(codes.shape[1]):
            shares = np.maximum(measured.marginal((column,))[0], 1e-9)
            codes[:, column] = rng.choice(shares.size, size=number, p=shares / shares.sum())
        return Population.of(measured.workload, codes)


def make(config: StreamConfig, budget: Budget) -> Synthesizer:
    """The synthesizer of a configuration."""
    workload = Workload.all_up_to(1, sizes=config.schema.sizes)
    mechanism = Marginals(
        workload=workload,
        budget=budget,
        horizon=config.clock.horizon,
        unit=Unit(signed=config.op is not None),
        neighbours=config.privacy.neighbours,
        kind=config.synthesizer.counter,
    )
    return Independent(mechanism=mechanism)


register("independent", make, keys=("order", "counter"))
