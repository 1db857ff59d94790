"""Empty cells: rows leave those that are more likely than not to be, and nothing changes elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from synthstream.fit import aims as aims_module
from synthstream.fit.aims import aims
from synthstream.fit.empty import emptied
from synthstream.fit.population import fit
from synthstream.measured import Measured
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

SIZES, NOISE = (24, 3, 4, 5), 60.0
WORKLOAD = Workload.all_up_to(2, sizes=SIZES)


def questions(*, decided: bool = True) -> CodeArray:
    """A question, two columns that it decides, or two that say nothing of it; and one that says nothing of others."""
    rng = np.random.default_rng(0)
    question, others = rng.integers(0, 24, 8_000), rng.integers(0, 24, (2, 8_000))
    kind, way = (question, question) if decided else others
    return np.stack([question, kind % 3, way // 6, rng.integers(0, 5, 8_000)], axis=1).astype(np.int32)


def noisy(codes: CodeArray, seed: int = 1) -> Measured:
    values = WORKLOAD.count(codes) + np.random.default_rng(seed).normal(0, NOISE, WORKLOAD.cells)
    return Measured(tick=0, workload=WORKLOAD, values=values, variance=np.full(len(WORKLOAD.marginals), NOISE**2))


@contextmanager
def unasked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No cell is asked whether it is empty."""
    with monkeypatch.context() as patch:
        patch.setattr(aims_module, "emptied", lambda mean, *_: mean)
        patch.setattr(aims_module, "_KEPT", [])
        yield


def rows(measured: Measured) -> IntArray:
    return fit(measured, seed=0, memory=0.0, fresh=True).counts(WORKLOAD)


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_leave_what_cannot_be(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    true = WORKLOAD.count(questions())
    measured = noisy(questions(), seed)
    now = rows(measured)
    with unasked(monkeypatch):
        before = rows(measured)
    tables = slice(int(WORKLOAD.offsets[5]), None)
    nobody = true[tables] == 0
    assert now[tables][nobody].sum() < 0.4 * before[tables][nobody].sum()
    assert np.abs(now - true)[tables].sum() < 0.75 * np.abs(before - true)[tables].sum()


def test_where_all_go_together_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = noisy(questions(decided=False))
    now = aims(measured).cells
    with unasked(monkeypatch):
        assert np.array_equal(now, aims(measured).cells)


def test_where_all_are_measured_at_every_tick_none_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = noisy(questions())
    now = fit(measured, seed=0).codes
    with unasked(monkeypatch):
        assert np.array_equal(now, fit(measured, seed=0).codes)


def test_epochs_are_asked_by_the_noise_that_their_tables_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are taken as they are, by variances of next to nothing."""
    measured = noisy(questions())
    taken = replace(measured, variance=1e-4 * measured.variance)
    table, true = WORKLOAD.slice_of((0, 1)), WORKLOAD.count(questions())
    away = [(aims(taken, taken=share).cells[table] < -NOISE)[true[table] == 0].mean() for share in (1e-4, 1.0)]
    assert away[0] == 1.0
    assert away[1] < 0.1, "as if there were hardly any noise"
    pooled = fit(taken, seed=0, memory=0.0, taken=1e-4).codes
    with unasked(monkeypatch):
        assert not np.array_equal(pooled, fit(taken, seed=0, memory=0.0, taken=1e-4).codes)


def block(shape: tuple[int, int], noise: float) -> tuple[FloatArray, FloatArray]:
    """What is measured of a table in which each value of one column goes with one of the other, and what independent
    columns would have.
    """
    true = np.zeros(shape)
    true[np.arange(shape[0]), np.arange(shape[0]) % shape[1]] = 200.0
    independent = np.outer(true.sum(1), true.sum(0)) / true.sum()
    return true - independent + np.random.default_rng(0).normal(0, noise, shape), independent


def test_empty_cells_lie_below_what_can_be_and_others_stay() -> None:
    found, independent = block((12, 4), 30.0)
    mean = 0.9 * found
    now = emptied(mean, found, independent, 900.0)
    left = now != mean
    assert np.all((independent + now)[left] < -59.99)
    empty = np.abs(np.arange(4) - np.arange(12)[:, None] % 4) > 0
    assert not left[~empty].any()
    assert left[empty].mean() > 0.9


def test_tables_of_few_cells_and_those_that_noise_hides_are_left_alone() -> None:
    # Of the third, empty cells tell more than margins do, but no more than a larger variance does.
    for shape, noise in (((2, 3), 30.0), ((12, 4), 3000.0), ((6, 3), 200.0)):
        found, independent = block(shape, noise)
        assert emptied(found, found, independent, noise**2) is found


@pytest.mark.parametrize("seed", range(5))
def test_noise_around_independent_columns_is_left_alone(seed: int) -> None:
    independent = np.outer(np.geomspace(1, 0.02, 12), np.geomspace(1, 0.1, 5)) * 2_000
    found = np.random.default_rng(seed).normal(0, 60.0, independent.shape)
    assert emptied(found, found, independent, 3600.0) is found


def test_exact_tables_are_kept() -> None:
    found, independent = block((12, 4), 0.0)
    assert emptied(found, found, independent, 1e-6) == pytest.approx(found, abs=0.01)
