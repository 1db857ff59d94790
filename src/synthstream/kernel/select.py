"""Which tables to measure: scores in exact integers, and the choice of several of them one by one."""

from __future__ import annotations

import numpy as np

from synthstream.kernel.gate import Gate
from synthstream.workload import Candidates, FloatArray, IntArray

# Guesses are rounded to this fraction of an event, so that scores are exact integers.
GRID = 2**10


def distances(candidates: Candidates, exact: IntArray, guess: FloatArray) -> IntArray:
    """Sum of absolute differences over each candidate's cells, in units of 1 / ``GRID``; shape ``(candidates,)``.

    One cell that changes by one moves a distance by at most ``GRID``, whatever the guess: exact counts and rounded
    guesses are limited, which brings no two counts further apart, and a guess that is no number counts as 0.
    """
    limit = 2**59 // (GRID * int(candidates.lengths.max()))  # no sum of a candidate leaves 64 bits
    rounded = np.rint(np.clip(np.nan_to_num(guess, nan=0.0), -limit, limit) * GRID).astype(np.int64)
    gaps = np.abs(np.clip(exact, -limit, limit) * GRID - rounded)
    return candidates.sums(gaps)


def expected_distances(candidates: Candidates, guess: FloatArray, noise: FloatArray) -> FloatArray:
    """Distance that a candidate would have if the guess were right, plus that of its noise; events.

    A cell of mean n varies by about sqrt(2 n / pi), and never by more than 2 n, by chance. What measuring would add is
    the mean size ``noise`` of a draw in every cell (McKenna, Mullins, Sheldon, Miklau 2022, "AIM", section 3.2).

    Args:
        guess: expected counts over all cells of the workload.
        noise: shape ``(candidates,)``.
    """
    mean = np.maximum(guess, 0.0)
    chance = np.minimum(np.sqrt(2 / np.pi * mean), 2 * mean)
    return np.asarray(candidates.sums(chance) + noise * candidates.lengths)


def l1_scores(candidates: Candidates, exact: IntArray, guess: FloatArray, *, bias: FloatArray) -> IntArray:
    """How much measuring each candidate would tell: its distance from the guess, less ``bias``, the expected distance.

    In units of 1 / ``GRID``. Sensitivity: ``GRID`` times the sum over a candidate's cells of the change one unit makes.
    """
    units = np.rint(np.clip(np.nan_to_num(bias, nan=0.0), 0, 2.0**50 / GRID) * GRID).astype(np.int64)
    return np.asarray(distances(candidates, exact, guess) - units)


def chosen(
    scores: IntArray, candidates: Candidates, *, picks: int, gate: Gate, sensitivity: int, epsilon: float
) -> IntArray:
    """Tables of ``picks`` candidates, in order, chosen one by one without repetition.

    Args:
        scores: as :func:`l1_scores`.
        sensitivity: sum over a table's cells of the change that one unit makes.
        epsilon: what each choice costs.
    """
    left = list(range(len(candidates)))
    for _ in range(picks):
        del left[gate.choose(scores[left], sensitivity=sensitivity * GRID, epsilon=epsilon)]
    return np.delete(candidates.tables, left)
