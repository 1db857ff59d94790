"""Columns of which one decides the others change together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from synthstream.constraints import Group
from synthstream.fit import population
from synthstream.fit.aims import Targets
from synthstream.fit.moves import Effort, move
from synthstream.fit.population import Population, fit
from synthstream.fit.together import deciding
from synthstream.measured import Measured
from synthstream.workload import CodeArray, FloatArray, Workload

NUMBERS = np.arange(6_000)
# Some codes are ten times as frequent as others, and no column follows from another one's order.
VALUES = np.minimum(NUMBERS * NUMBERS % 601, NUMBERS * 7 % 601) % 60


def rows_of(*columns: NDArray[Any]) -> CodeArray:
    return np.stack(columns, axis=1).astype(np.int32)


def grown(rows: CodeArray, workload: Workload, groups: list[Group] | None = None) -> Population:
    """Fitted to exact tables of more and more rows, as at refreshes."""
    last = None
    for tick in range(6):
        values = workload.count(rows[: len(rows) * (tick + 1) // 6]).astype(np.float64)
        m = Measured(tick=tick, workload=workload, values=values, variance=np.zeros(len(workload.marginals)))
        last = fit(m, start=last, seed=tick, memory=0.0, fresh=True, groups=groups or ())
    assert last is not None
    assert last.known is not None
    assert np.array_equal(last.known, workload.count(last.codes.astype(np.int32)))
    return last


def off(model: Population, rows: CodeArray) -> float:
    """L1 distance of the tables of pairs, as a share of the rows."""
    workload, pairs = model.workload, [m for m in model.workload.marginals if len(m) == 2]
    gap = model.counts(workload) - workload.count(rows)
    return float(np.mean([np.abs(gap[workload.slice_of(m)]).sum() for m in pairs])) / len(rows)


def test_two_equal_columns_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """One column at a time leaves 3 % of the rows where there are none."""
    workload, rows = Workload.all_up_to(2, sizes=(60, 60)), rows_of(VALUES, VALUES)
    assert off(grown(rows, workload), rows) < 0.01
    monkeypatch.setattr(population, "_TOGETHER", math.inf)
    assert off(grown(rows, workload), rows) > 0.05


def test_functions_of_a_column_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    of = NUMBERS * NUMBERS % 601 % 24
    workload, rows = Workload.all_up_to(2, sizes=(4, 4, 3, 24)), rows_of(of // 6, of % 4, (of * 7 + 3) % 24 // 8, of)
    assert off(grown(rows, workload), rows) < 0.006
    monkeypatch.setattr(population, "_TOGETHER", math.inf)
    assert off(grown(rows, workload), rows) > 0.009


def test_each_set_of_columns_has_its_turn() -> None:
    """Those of the first column and of the third one: one draws on where the other has ended."""
    one, other = VALUES % 12, NUMBERS * 7 % 601 % 10
    workload, rows = Workload.all_up_to(2, sizes=(12, 12, 10, 10)), rows_of(one, one, other, other)
    assert deciding(workload.count(rows).astype(np.float64), workload) == [(0, 1), (2, 3)]
    assert off(grown(rows, workload), rows) < 0.02


def test_what_constraints_allow_moves_together() -> None:
    """The first two columns have few combinations; the third one is the second."""
    sizes, every = (6, 60, 60), np.arange(60)
    group = Group(columns=(0, 1), combinations=rows_of(every // 10, every))
    rows = rows_of(VALUES // 10, VALUES, VALUES)
    found = grown(rows, Workload.all_up_to(2, sizes=sizes), [group])
    assert np.array_equal(found.codes[:, 0], found.codes[:, 1] // 10)
    assert off(found, rows) < 0.01


def test_a_column_that_decides_others_is_told_with_them() -> None:
    workload = Workload.all_up_to(2, sizes=(4, 60, 2, 60, 5))
    # The third is rare and decides nothing; the fourth is the second, but for one row in ten.
    rows = rows_of(VALUES // 15, VALUES, NUMBERS % 100 == 0, np.where(NUMBERS % 10, VALUES, 7), NUMBERS % 5)
    cells = workload.count(rows).astype(np.float64)
    assert deciding(cells, workload) == [(0, 1, 3)]
    assert deciding(cells, workload, [(1, 4)]) == [(0, 1, 3, 4)]
    assert deciding(cells, workload, [(0, 1, 3)]) == []
    assert deciding(0 * cells, workload) == []


@pytest.mark.parametrize(("errors", "moved"), [(0.0, True), (400.0, False)])
def test_rows_stay_where_noise_explains_them(errors: float, moved: bool) -> None:
    """Between (0, 0) and (1, 1) lie cells that nothing should be in, and two rows are in one of them."""
    workload = Workload(sizes=(2, 2), marginals=((0, 1),))
    cells: FloatArray = np.array([200.0, -30.0, -30.0, 200.0])
    codes = np.repeat(np.array([[0, 0], [0, 1], [1, 1]], dtype=np.int32), [202, 2, 196], axis=0)
    margins, errors_of = (np.full(2, 200.0),) * 2, np.full(1, errors)
    aim = Targets(400, margins, cells, errors_of, (), 400.0, np.zeros(2), np.ones(1))
    effort = Effort(gain=math.inf, lean=0.0, still=1.0, blocks=1, together=2.0)
    found = move(codes, workload.count(codes), aim, np.ones(1), workload, effort=effort, state=7)
    assert np.array_equal(found, workload.count(codes))
    assert (found[1] == 0) == moved
