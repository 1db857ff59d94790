"""Slopes that columns of grades have in common: seen where no table shows them, and left alone where there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from synthstream.constraints import Group
from synthstream.fit import aims as aims_module
from synthstream.fit.aims import Earlier, aims
from synthstream.fit.lowrank import _Blocks, common, slope
from synthstream.measured import Measured
from synthstream.workload import CodeArray, FloatArray, Workload

COLUMNS, GRADES, NOISE = 20, 5, 150.0
WORKLOAD = Workload.all_up_to(2, sizes=(GRADES,) * COLUMNS)
PAIRS = [q for q, marginal in enumerate(WORKLOAD.marginals) if len(marginal) == 2]


def answers(*, loading: float = 0.5, rows: int = 4000) -> CodeArray:
    """Answers in five grades, which all go along with one hidden variable."""
    rng = np.random.default_rng(0)
    found = loading * rng.normal(size=(rows, 1)) + rng.normal(size=(rows, COLUMNS))
    return np.clip(np.floor(found + 2.5), 0, GRADES - 1).astype(np.int32)


def noisy(codes: CodeArray, seed: int = 0) -> Measured:
    values = WORKLOAD.count(codes) + np.random.default_rng(seed).normal(0, NOISE, WORKLOAD.cells)
    return Measured(tick=0, workload=WORKLOAD, values=values, variance=np.full(len(WORKLOAD.marginals), NOISE**2))


def off_by(cells: FloatArray, codes: CodeArray) -> float:
    """Of the tables of two columns."""
    return float(np.abs(cells - WORKLOAD.count(codes))[int(WORKLOAD.offsets[PAIRS[0]]) :].sum())


def centred(table: FloatArray) -> FloatArray:
    return np.asarray(table - table.mean(0) - table.mean(1)[:, None] + table.mean())


def associations(codes: CodeArray) -> dict[int, FloatArray]:
    values = noisy(codes).values
    return {q: centred(values[WORKLOAD.slice_of(WORKLOAD.marginals[q])].reshape(GRADES, GRADES)) for q in PAIRS}


@pytest.fixture
def unsloped(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FloatArray]:
    """Cells that rows aim at where no slopes are looked for."""

    def cells(measured: Measured, **more: Any) -> FloatArray:
        with monkeypatch.context() as patch:
            patch.setattr(aims_module, "with_slopes", lambda looked, whole, tables, before: before)
            patch.setattr(aims_module, "_KEPT", [])
            return aims(measured, **more).cells

    return cells


def test_what_all_grades_have_in_common_is_known_better(unsloped: Callable[..., FloatArray]) -> None:
    codes = answers()
    without, with_slopes = unsloped(noisy(codes)), aims(noisy(codes))
    assert off_by(with_slopes.cells, codes) < 0.85 * off_by(without, codes)


def test_where_slopes_gain_little_nothing_is_taken_out_first(unsloped: Callable[..., FloatArray]) -> None:
    """A hidden variable goes round in a circle: a slope is a part of it, and all of it is seen without."""
    rng = np.random.default_rng(0)
    codes = ((rng.integers(0, GRADES, (4000, 1)) + rng.integers(0, 2, (4000, COLUMNS))) % GRADES).astype(np.int32)
    slopes = [slope(np.ones(GRADES))] * COLUMNS
    assert common(WORKLOAD, associations(codes), np.full(len(WORKLOAD.marginals), NOISE**2), along=slopes).means
    assert np.array_equal(unsloped(noisy(codes)), aims(noisy(codes)).cells)


def test_columns_that_say_nothing_of_each_other_stay_as_they_are(unsloped: Callable[..., FloatArray]) -> None:
    rng = np.random.default_rng(1)
    codes = np.stack([rng.permutation(column) for column in answers().T], axis=1)
    assert np.array_equal(unsloped(noisy(codes)), aims(noisy(codes)).cells)


def test_noise_alone_has_no_slopes() -> None:
    """At .5 in one look of twenty, so that 2 of 20 have at most in 92 % of such tests; at 2, as here, hardly ever."""
    rng, slopes = np.random.default_rng(0), [slope(np.ones(GRADES))] * COLUMNS
    variance = np.full(len(WORKLOAD.marginals), 9.0)
    looks = [
        common(WORKLOAD, {q: centred(rng.normal(0, 3, (GRADES, GRADES))) for q in PAIRS}, variance, along=slopes)
        for _ in range(20)
    ]
    assert not any(look.means for look in looks)


def test_a_common_slope_is_found_with_its_size_and_its_error() -> None:
    rng, direction = np.random.default_rng(0), slope(np.ones(GRADES))
    true = 6.0 * direction @ direction.T  # two standard deviations of the noise along the slope of each table
    seen = {q: true + centred(rng.normal(0, 3, (GRADES, GRADES))) for q in PAIRS}
    found = common(WORKLOAD, seen, np.full(len(WORKLOAD.marginals), 9.0), along=[direction] * COLUMNS)
    gaps = np.array([found.means[q] - true for q in PAIRS])
    assert np.sum(np.array(list(found.means.values())) * true) / len(PAIRS) == pytest.approx(np.sum(true**2), rel=0.1)
    assert np.mean(gaps**2) == pytest.approx(np.mean(list(found.errors.values())), rel=0.5)


@pytest.mark.parametrize("margin", [[3.0, 1.0, 0.0, 5.0], [1.0], [0.0, 0.0], [0.0, 7.0]])
def test_a_slope_has_length_one_unless_there_is_but_one_code(margin: list[float]) -> None:
    found = slope(np.array(margin))
    assert found.shape == (len(margin), 1)
    assert found.sum() == pytest.approx(0, abs=1e-5)
    assert np.sum(found**2) == pytest.approx(float(np.count_nonzero(margin) > 1), abs=1e-5)


@pytest.mark.parametrize("constrained", [False, True])
def test_a_strong_pair_beside_hides_no_slopes(constrained: bool, unsloped: Callable[..., FloatArray]) -> None:
    """Its tables say more without slopes, which are kept out of them; tables within a constraint decide nothing."""
    rng, grades = np.random.default_rng(5), answers()
    twins = np.repeat(rng.integers(0, 2, (len(grades), 1)), 2, axis=1)
    codes = np.concatenate([grades, twins], axis=1).astype(np.int32)
    workload = Workload.all_up_to(2, sizes=(GRADES,) * COLUMNS + (2, 2))
    values = workload.count(codes) + rng.normal(0, NOISE, workload.cells)
    measured = Measured(tick=0, workload=workload, values=values, variance=np.full(len(workload.marginals), NOISE**2))
    last = (COLUMNS, COLUMNS + 1)
    groups = (Group.of(last, np.array([[0, 0], [1, 1]])),) if constrained else ()
    errors = []
    for cells in (unsloped(measured, groups=groups), aims(measured, groups=groups).cells):
        gap = cells - workload.count(codes)
        graded = [workload.slice_of(m) for m in workload.marginals if len(m) == 2 and max(m) < COLUMNS]
        errors.append(sum(np.abs(gap[part]).sum() for part in graded))
    assert errors[1] < 0.9 * errors[0]


def test_what_a_refresh_says_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    then, now = noisy(answers()), noisy(answers(), seed=1)
    earlier = Earlier(measured=then, shared=np.zeros(len(WORKLOAD.marginals)), signed=False)
    looks = list[Measured]()

    def looked(measured: Measured, *rest: Any) -> Any:
        looks.append(measured)
        return associations_of(measured, *rest)

    associations_of = aims_module._associations
    monkeypatch.setattr(aims_module, "_associations", looked)
    aims_module._KEPT.clear()
    cells = [aims(replace(now, tick=tick), then=earlier).cells for tick in (1, 1, 2)]
    assert len(looks) == 1
    assert np.array_equal(cells[0], cells[1])
    for other in (replace(then, values=then.values + 1), replace(then, variance=then.variance * 2)):
        aims(now, then=earlier._replace(measured=other))
    aims(now, then=earlier)
    assert len(looks) == 4


@pytest.mark.parametrize("together", [1, 7, 512])
def test_blocks_are_the_matrix_that_they_stand_for(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs that are not known are filled in, whichever columns have their rows side by side."""
    monkeypatch.setattr("synthstream.fit.lowrank._SHORT", together)
    rng, sizes = np.random.default_rng(0), {0: 3, 2: 4, 3: 2, 7: 5}
    blocks = {(a, b): rng.normal(size=(sizes[a], sizes[b])) for a, b in ((0, 2), (0, 7), (3, 7))}
    matrix = _Blocks(blocks, sizes)
    dense, known = np.zeros((14, 14)), np.zeros((14, 14), dtype=np.bool_)
    for (a, b), block in blocks.items():
        at = matrix.place[a], matrix.place[b]
        dense[at], dense[at[::-1]], known[at], known[at[::-1]] = block, block.T, True, True
    values, found, vectors = rng.normal(size=3), rng.normal(size=(14, 3)), rng.normal(size=(14, 2))
    assert np.allclose(matrix.times(vectors), dense @ vectors)
    filled = np.where(known, dense, (found * values) @ found.T)
    assert np.allclose(matrix.filled(values, found)(vectors), filled @ vectors)
