"""A few steps of mirror descent: they gain, they keep what is not measured, and they end at the least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from synthstream.papers.fit.graphical import Graphical
from synthstream.papers.fit.junction import model_megabytes
from synthstream.papers.fit.mirror_descent import towards
from synthstream.workload import FloatArray

SIZES = (2, 3, 4, 2, 5)
CLIQUES = [(0, 1), (1, 2), (0, 2), (3,)]


def tables(seed: int) -> list[FloatArray]:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, s, 500) * rng.integers(0, 2, 500) for s in SIZES], axis=1)
    found = []
    for clique in CLIQUES:
        table = np.zeros([SIZES[c] for c in clique])
        np.add.at(table, tuple(rows[:, c] for c in clique), 1)
        found.append(table + rng.laplace(0, 20, table.shape))
    return found


def loss(model: Graphical, values: list[FloatArray]) -> float:
    return sum(float(np.sum((model.table(c) - v) ** 2)) for c, v in zip(CLIQUES, values, strict=True))


def least(values: list[FloatArray]) -> float:
    """The least loss of any distribution, by non-negative least squares over all combinations of codes."""
    cells = int(np.prod(SIZES))
    units = np.eye(cells).reshape(cells, *SIZES)
    margins = [units.sum(axis=tuple(c + 1 for c in range(5) if c not in clique)) for clique in CLIQUES]
    rows = np.concatenate([margin.reshape(cells, -1).T for margin in margins])
    aims = np.concatenate([v.ravel() for v in values])
    # The total is a very heavy row.
    found, _ = nnls(np.vstack([rows, 1e4 * np.ones(cells)]), np.append(aims, 1e4 * 500))
    return float(np.sum((rows @ found - aims) ** 2))


@pytest.mark.parametrize("seed", range(4))
def test_steps_gain_and_end_at_the_least_squares(seed: int) -> None:
    values = tables(seed)
    values = [v + (500 - v.sum()) / v.size for v in values]
    begin = Graphical.uniform(SIZES, 500.0)
    losses = [loss(towards(begin, CLIQUES, values, 500.0, steps=n, cap_mb=1.0), values) for n in (0, 1, 4, 16, 4000)]
    assert losses == sorted(losses, reverse=True)
    best = least(values)
    assert losses[2] - best < 0.5 * (losses[0] - best)
    assert losses[-1] == pytest.approx(best, rel=2e-3)


def test_what_is_not_measured_now_is_remembered() -> None:
    values = tables(1)
    first = towards(Graphical.uniform(SIZES, 500.0), CLIQUES[:2], values[:2], 500.0, steps=200, cap_mb=1.0)
    after = towards(first, [(3,)], [np.array([400.0, 100.0])], 500.0, steps=200, cap_mb=1.0)
    assert after.table((3,)) == pytest.approx([400, 100], abs=0.5)
    for clique in CLIQUES[:2]:
        assert after.table(clique) == pytest.approx(first.table(clique), abs=1e-6)


def test_old_potentials_give_way_where_there_is_no_room() -> None:
    values = tables(2)
    first = towards(Graphical.uniform(SIZES, 500.0), CLIQUES[:2], values[:2], 500.0, steps=5, cap_mb=1.0)
    room = model_megabytes(SIZES, [(0, 2)]) * 1.01
    after = towards(first, [(0, 2)], [values[2]], 500.0, steps=5, cap_mb=room)
    assert after.cliques[0] == (0, 2)
    assert model_megabytes(SIZES, after.cliques) <= room
    with pytest.raises(ValueError, match=r"0\.0 MB, more than the cap"):
        towards(first, CLIQUES, values, 500.0, steps=5, cap_mb=room / 2)


def test_single_cells_are_met_and_say_nothing_of_others() -> None:
    values = [np.full((2, 3), np.nan), np.array([np.nan, 350.0])]
    values[0][1, 2] = 300.0
    model = towards(Graphical.uniform(SIZES, 500.0), [(0, 1), (3,)], values, 500.0, steps=500, cap_mb=1.0)
    assert model.table((0, 1))[1, 2] == pytest.approx(300, abs=0.5)
    assert model.table((3,)) == pytest.approx([150, 350], abs=0.5)
    assert np.ptp(np.delete(model.table((0, 1)).ravel(), 5)) < 1e-6


@pytest.mark.parametrize("total", [0.0, -40.0])
def test_no_rows(total: float) -> None:
    model = towards(Graphical.uniform(SIZES, total), CLIQUES, tables(3), total, steps=5, cap_mb=1.0)
    assert all(np.all(model.table(c) == 0) for c in CLIQUES)
    again = towards(model, CLIQUES, tables(3), 500.0, steps=5, cap_mb=1.0)
    assert again.table((0,)).sum() == pytest.approx(500)


def test_wild_values_stay_finite() -> None:
    wild = [np.full(v.shape, 1e300) * (-1) ** i for i, v in enumerate(tables(0))]
    wild[0] = np.array([[1e300, -1e300, 0], [0, 0, 0]])
    model = towards(Graphical.uniform(SIZES, 5.0), CLIQUES, wild, 5.0, steps=50, cap_mb=1.0)
    assert all(np.isfinite(model.table(c)).all() for c in CLIQUES)
