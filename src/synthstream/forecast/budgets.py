"""Forecasts for several budgets, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import isotonic_regression

from synthstream.synthesizers.contract import RowErrors
from synthstream.synthesizers.simulation.tables import runs_of


def never_rising(found: Sequence[dict[int, RowErrors]], epsilons: Sequence[float]) -> list[dict[int, RowErrors]]:
    """The same errors, so that none rises with the budget: the nearest ones, by squares and the number of runs.

    Few runs may say that a larger budget is worse, of points in bursts above all; and each budget knows something of
    the next (isotonic regression).

    Args:
        found: by budget, errors by number of ticks. The first budget was simulated with more care.
        epsilons: of the budgets, all different.
    """
    order = np.argsort(epsilons)
    runs = np.array([float(runs_of(careful=k == 0)) for k in range(len(found))])[order]
    evened = [dict(one) for one in found]
    for t in set.intersection(*map(set, found)):
        each = [one[t] for one in found]
        errors = np.array([[one.box, one.distance or 0.0, *one.table_error.values()] for one in each])[order]
        for column in errors.T:
            column[:] = isotonic_regression(column, weights=runs, increasing=False).x
        for k, (box, distance, *tables) in zip(order, errors.tolist(), strict=True):
            evened[k][t] = replace(
                each[k],
                box=box,
                distance=None if each[k].distance is None else distance,
                table_error=dict(zip(each[k].table_error, tables, strict=True)),
            )
    return evened
