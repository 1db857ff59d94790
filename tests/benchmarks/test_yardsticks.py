"""The yardsticks: what they are for equal rows, for strangers, and in cases that are worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.yardsticks import distance, impossible, k_marginal, propensity, tables_of, tstr

from synthstream.workload import CodeArray

SIZES = (3, 4, 2)


def rows(number: int, seed: int) -> CodeArray:
    """The second column follows the first; the third, of two values, follows both."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 3, number)
    second = np.minimum(first + (rng.random(number) < 0.3), 3)
    third = (rng.random(number) < 0.1 + 0.2 * second).astype(np.int64)
    return np.stack([first, second, third], axis=1).astype(np.int32)


def independent(codes: CodeArray, seed: int) -> CodeArray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(column) for column in codes.T], axis=1)


def test_figures_of_the_page_are_those_of_the_results() -> None:
    root = Path(__file__).parents[2]
    found = [json.loads(line) for line in (root / "benchmarks/results/utility.jsonl").read_text().splitlines()]
    page = (root / "docs/accuracy.md").read_text()
    for line in found:
        two, three, ratio = line["k_marginal_2"], line["k_marginal_3"], line["pmse_ratio"]
        assert f"| {two:.0f} | {three:.0f} |" in page
        assert f" | {f'{ratio:.1f}' if ratio > 0.05 else 0} | " in page
        if auc := line.get("tstr_auc"):  # of rows that were held out there is none
            assert f"| {auc:.3f} |".replace("0.", ".") in page


def test_tables_are_all_or_some() -> None:
    assert tables_of(SIZES, 2, number=9).marginals == ((0, 1), (0, 2), (1, 2))
    assert len(tables_of((2,) * 10, 3, number=7).marginals) == 7


def test_equal_rows_score_best_and_strangers_worst() -> None:
    true, two = rows(400, 1), tables_of(SIZES, 2, number=9)
    assert (k_marginal(true, true, two), distance(true, true, two), impossible(true, true, SIZES)) == (1000, 0, 0)
    strangers = np.tile(np.array([[0, 3, 1]], dtype=np.int32), (10, 1))
    assert impossible(true, strangers, SIZES) == pytest.approx(1 / 3)  # of the pairs (0, 3) alone never occurs
    assert k_marginal(true, strangers, two) < 200


def test_by_hand() -> None:
    true, synthetic = np.array([[0, 0], [0, 1]], dtype=np.int32), np.array([[0, 0], [1, 1]], dtype=np.int32)
    two = tables_of((2, 2), 2, number=9)
    assert distance(true, synthetic, two) == 0.5  # one of two rows in another cell
    assert k_marginal(true, synthetic, two) == 500
    assert impossible(true, synthetic, (2, 2)) == 0.5


def test_propensity_tells_other_shares_and_not_equal_laws() -> None:
    score, ratio = propensity(rows(4000, 1), rows(4000, 2), SIZES)
    assert score < 0.002
    assert 0.1 < ratio < 3
    moved = rows(4000, 2)
    moved[:2000, 0] = 2
    assert propensity(rows(4000, 1), moved, SIZES)[1] > 20


def test_what_is_learnt_from_rows_is_tried_on_others() -> None:
    test = rows(3000, 3)
    real = tstr(rows(3000, 4), test, SIZES, 2)
    assert 0.6 < real < 0.8
    assert tstr(independent(rows(3000, 4), 5), test, SIZES, 2) == pytest.approx(0.5, abs=0.2)
    assert tstr(np.zeros((10, 3), dtype=np.int32), test, SIZES, 2) == 0.5
