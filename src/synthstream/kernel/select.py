"""Which tables to measure: scores in exact integers, and the choice of several of them one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from synthstream.kernel.gate import Gate
from synthstream.kernel.sampling import FloatArray, IntArray
from synthstream.workload import Workload

# What was released so far, scaled to a number of events: expected counts over all cells of the workload.
Guess = Callable[[float], FloatArray]

# Guesses are rounded to this fraction of an event, so that scores are exact integers.
GRID = 2**10


def distances(workload: Workload, exact: IntArray, guess: FloatArray) -> IntArray:
    """Sum of absolute differences over the cells of each table, in units of 1 / ``GRID``; shape ``(marginals,)``.

    One cell that changes by one moves a distance by at most ``GRID``: exact counts and rounded guesses are limited so
    that no sum leaves 64 bits, which brings no two counts further apart.
    """
    limit = 2**59 // (GRID * int(workload.lengths.max()))
    rounded = np.rint(np.clip(guess, -limit, limit) * GRID).astype(np.int64)
    gaps = np.abs(np.clip(exact, -limit, limit) * GRID - rounded)
    return np.asarray(np.add.reduceat(gaps, workload.offsets[:-1]))


def expected_distances(workload: Workload, guess: FloatArray, noise: FloatArray) -> FloatArray:
    """Distance that a table would have if the guess were right, plus that of its noise; events, shape ``(marginals,)``.

    A cell of mean n varies by about sqrt(2 n / pi), and never by more than 2 n, by chance. What measuring would add is
    the mean size ``noise`` of a draw in every cell (McKenna, Mullins, Sheldon, Miklau 2022, "AIM", section 3.2).
    """
    mean = np.maximum(guess, 0.0)
    chance = np.minimum(np.sqrt(2 / np.pi * mean), 2 * mean)
    return np.asarray(np.add.reduceat(chance, workload.offsets[:-1]) + noise * workload.lengths)


def l1_scores(workload: Workload, exact: IntArray, guess: FloatArray, *, noise: FloatArray) -> IntArray:
    """How much measuring each table would tell: its distance from the guess, less what is expected in any case.

    In units of 1 / ``GRID``. Sensitivity: ``GRID`` times the sum over a table's cells of the change one unit makes.
    """
    bias = np.clip(expected_distances(workload, guess, noise), 0, 2.0**50 / GRID)
    return distances(workload, exact, guess) - np.rint(bias * GRID).astype(np.int64)


def chosen(
    scores: IntArray, candidates: IntArray, *, picks: int, gate: Gate, sensitivity: int, epsilon: float
) -> IntArray:
    """Positions of ``picks`` candidates, in order, chosen one by one without repetition.

    Args:
        scores: as :func:`l1_scores`, one for each table of the workload.
        candidates: positions of the tables that may be chosen.
        sensitivity: sum over a table's cells of the change that one unit makes.
        epsilon: what each choice costs.
    """
    left = candidates.tolist()
    for _ in range(picks):
        best = gate.choose(scores[left], sensitivity=sensitivity * GRID, epsilon=epsilon)
        del left[best]
    return np.array(sorted(set(candidates.tolist()) - set(left)), dtype=np.int64)
