"""Errors of tables, over time, and (alpha, beta)-accuracy."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from benchmarks.accuracy import (
    accuracy,
    differential_errors,
    runs_needed,
    snapshot_errors,
    snapshot_from_differential,
)
from benchmarks.metrics import ErrorsOverTime, table_errors

from synthstream.kernel.counters import counter
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import Workload

WORKLOAD = Workload(sizes=(2, 3), marginals=((0,), (1,), (0, 1)))


def counts(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    rng = np.random.default_rng(seed)
    return WORKLOAD.count(rng.integers(0, (2, 3), size=(20, 2)).astype(np.int32))


def test_metrics_are_those_of_the_paper() -> None:
    true, synthetic = counts(0), counts(1)
    true[-1] = 0
    found = table_errors(WORKLOAD, true=true, synthetic=synthetic, events=20)
    we, l1, rel = [], [], []
    for q in range(3):
        cells = range(WORKLOAD.offsets[q], WORKLOAD.offsets[q + 1])
        gaps = [abs(int(true[c]) - int(synthetic[c])) for c in cells]
        we.append(sum(gaps) / len(gaps) / 20)
        l1.append(sum(gaps) / 20)
        rel.append(sum(gap / (true[c] or 1) for gap, c in zip(gaps, cells, strict=True)) / len(gaps))
    expected = {
        "avg_we": np.mean(we),
        "max_we": max(we),
        "avg_rel_l1": np.mean(l1),
        "max_rel_l1": max(l1),
        "avg_rel_we": np.mean(rel),
        "max_rel_we": max(rel),
    }
    assert asdict(found) == pytest.approx(expected)


def test_equal_tables_have_no_error_and_an_empty_stream_is_served() -> None:
    none = np.zeros(WORKLOAD.cells, dtype=np.int64)
    assert set(asdict(table_errors(WORKLOAD, true=none, synthetic=none, events=0)).values()) == {0.0}
    assert table_errors(WORKLOAD, true=none, synthetic=none + 3, events=0).avg_rel_we == 3.0


def test_wrong_shapes_are_refused() -> None:
    none = np.zeros(WORKLOAD.cells, dtype=np.int64)
    with pytest.raises(ValueError, match="synthetic: counts of shape"):
        table_errors(WORKLOAD, true=none, synthetic=none[:-1], events=1)
    with pytest.raises(ValueError, match="events"):
        table_errors(WORKLOAD, true=none, synthetic=none, events=-1)


def test_errors_over_time_are_one_row_a_tick() -> None:
    true = np.cumsum([counts(seed) for seed in range(4)], axis=0)
    synthetic = np.cumsum([counts(seed) for seed in range(10, 14)], axis=0)
    collected = ErrorsOverTime(WORKLOAD)
    assert collected.table().height == 0
    for tick in range(4):
        collected.add(true=true[tick], synthetic=synthetic[tick], events=20 * (tick + 1))
    table = collected.table()
    assert table["tick"].to_list() == [0, 1, 2, 3]
    assert table["snapshot"].to_list() == snapshot_errors(true, synthetic).tolist()
    assert table["differential"].to_list() == differential_errors(true, synthetic).tolist()
    last = table_errors(WORKLOAD, true=true[3], synthetic=synthetic[3], events=80)
    assert table.row(3, named=True) | asdict(last) == table.row(3, named=True)
    assert set(table["stamp"]) == {table["stamp"][0]}
    assert "not private" in table["stamp"][0].lower()


@pytest.mark.parametrize("beta", [0.05, 0.2])
def test_alpha_is_an_upper_confidence_limit(beta: float) -> None:
    """It lies below the true quantile in at most 5 % of experiments, and not far above it."""
    rng = np.random.default_rng(0)
    alphas = accuracy(rng.exponential(size=(200, 4000)), beta=beta)
    quantile = -np.log(beta)
    assert np.mean(alphas < quantile) < 0.05 + 3 * np.sqrt(0.05 / 4000)
    assert np.median(alphas) < 1.35 * quantile


def test_alpha_holds_for_integers_as_well() -> None:
    """Ties: P(error > alpha) <= beta must hold for the law itself."""
    rng = np.random.default_rng(1)
    alphas = accuracy(rng.integers(0, 5, size=(200, 4000)).astype(float), beta=0.3)
    assert np.mean(alphas < 3) < 0.05  # P(error > 3) = 0.2, P(error > 2) = 0.4


def test_too_few_runs_are_refused_with_the_number_needed() -> None:
    needed = runs_needed(beta=0.05)
    errors = np.arange(float(needed))
    assert accuracy(errors, beta=0.05) == needed - 1
    with pytest.raises(ValueError, match=f"{needed - 1} runs are too few.* {needed} are needed"):
        accuracy(errors[1:], beta=0.05)
    with pytest.raises(ValueError, match="between 0 and 1"):
        accuracy(errors, beta=0.0)


@pytest.mark.parametrize("seed", range(5))
def test_differential_accuracy_implies_snapshot_accuracy(seed: int) -> None:
    """Lemma 2.7 of the draft, for each run and for the alphas."""
    rng = np.random.default_rng(seed)
    true = rng.poisson(5, size=(6, 4)).cumsum(axis=0)
    synthetic = true + rng.laplace(scale=rng.uniform(1, 9, 6)[:, None], size=(2000, 6, 4)).cumsum(axis=1)
    differential, snapshot = differential_errors(true, synthetic), snapshot_errors(true, synthetic)
    assert np.all(differential.cumsum(axis=1) >= snapshot * (1 - 1e-12))
    implied = snapshot_from_differential(differential, beta=0.1)
    assert np.all(implied >= accuracy(snapshot, beta=0.1))
    assert implied[0] == accuracy(snapshot, beta=0.1)[0]


def test_accuracy_of_a_counter() -> None:
    """Definition 3.11: a simple counter's error after t ticks grows as the square root of t."""
    simple = counter("simple", horizon=64, noise="laplace")
    cells = 400  # independent runs
    state = simple.init(cells)
    errors: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []
    gate = SeededGate(3)
    for _ in range(64):
        state, released = simple.step(state, np.ones(cells, dtype=np.int64), gate, multiplier=np.full(cells, 4.0))
        errors.append(np.abs(released - len(errors) - 1))
    alphas = accuracy(np.array(errors).T, beta=0.1)
    deviation = np.sqrt([simple.variance(t, multiplier=4.0) for t in range(64)])
    assert np.all(alphas[8:] / deviation[8:] > 1.4)
    assert np.all(alphas[8:] / deviation[8:] < 2.3)
