"""Rows of a stream that began with an older edition aim at what they aimed at then, between refreshes too."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from synthstream.constraints import Group
from synthstream.fit.aims import Earlier, aims
from synthstream.fit.population import Population, fit
from synthstream.fit.targets import Targets
from synthstream.kinds import NEWEST, Edition
from synthstream.measured import Measured
from synthstream.workload import Workload

WORKLOAD = Workload.all_up_to(2, sizes=(12, 4, 3, 8))
GROUP = Group.of((1, 2), np.array([[0, 0], [1, 1], [2, 1], [3, 2]]))

# What each edition aims at, by whether columns are constrained; one that is not named as the one before. Never changed:
# `verify --rebuild` would make other rows than streams that run have published.
AIMS = {
    False: {
        2: (2008, 2630.50506, 22680.7597, 3029, 4873.68451, 33861.4465),
        7: (2008, 2624.97875, 22669.5996, 3029, 4874.14891, 33843.5676),
    },
    True: {
        2: (2003, 3513.55977, 22784.328, 2992, 6490.78278, 33687.0534),
        7: (2003, 3470.28076, 22651.6822, 2992, 6419.58725, 33552.4524),
    },
}


def aimed_at(edition: Edition, *, grouped: bool, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Sums over cells at a refresh, and between it and the next one; of a stream whose columns move."""
    rng, groups = np.random.default_rng(5), [GROUP] if grouped else []
    codes = rng.integers(0, WORKLOAD.sizes, (3000, 4))
    codes[:, 0] = np.minimum(codes[:, 0], rng.integers(0, 12, 3000))
    codes[2000:, 0] = np.maximum(codes[2000:, 0], 6)
    codes[:, 3] = np.clip(codes[:, 0] * 2 // 3 + rng.integers(-1, 2, 3000), 0, 7)
    if grouped:
        codes[:, 1:3] = GROUP.combinations[rng.integers(0, len(GROUP.combinations), 3000)]
    rows, found = codes.astype(np.int32), list[Targets]()

    def look(*args: Any, **how: Any) -> Targets:
        found.append(aims(*args, **how))
        return found[-1]

    def measured(tick: int, number: int, single: float) -> Measured:
        variance = np.where(WORKLOAD.order == 2, 400.0, single)
        noise = rng.normal(size=WORKLOAD.cells) * np.sqrt(np.repeat(variance, WORKLOAD.lengths))
        return Measured(tick=tick, workload=WORKLOAD, values=WORKLOAD.count(rows[:number]) + noise, variance=variance)

    monkeypatch.setattr("synthstream.fit.population.aims", look)
    start = Population.of(WORKLOAD, rows[:1500])
    at, now = measured(9, 2000, 100.0), measured(13, 3000, 900.0)
    fit(at, start=start, seed=0, memory=0.0, edition=edition, fresh=True, groups=groups)
    then = Earlier(at, np.full(len(WORKLOAD.marginals), 60.0))
    fit(now, start=start, seed=0, memory=0.0, edition=edition, fresh=False, then=then, groups=groups)
    weights = np.cos(np.arange(WORKLOAD.cells))
    return [float(x) for one in found for x in (one.rows, one.cells @ weights, np.abs(one.cells).sum())]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("edition", [e for e in get_args(Edition) if 1 < e < NEWEST])
def test_rows_of_an_edition_aim_at_what_they_aimed_at(
    edition: Edition, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = AIMS[grouped]
    expected = known[max(e for e in known if e <= edition)]
    assert aimed_at(edition, grouped=grouped, monkeypatch=monkeypatch) == pytest.approx(expected, rel=1e-6)
