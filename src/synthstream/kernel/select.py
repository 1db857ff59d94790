"""Which tables to measure: scores in exact integers, and the choice of several of them one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from synthstream.kernel.gate import Gate
from synthstream.kernel.sampling import FloatArray, IntArray
from synthstream.workload import Workload

# What was released so far, scaled to a number of events: expected counts over all cells of the workload.
Guess = Callable[[float], FloatArray]

# Guesses are rounded to this fraction of an event, so that scores are exact integers.
GRID = 2**10

Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """What may be chosen: runs of cells, each within one table.

    Args:
        tables: position in the workload of the table of each candidate, shape ``(candidates,)``.
        starts, lengths: its cells, shape ``(candidates,)``.
    """

    tables: IntArray
    starts: IntArray
    lengths: IntArray

    @classmethod
    def of_tables(cls, workload: Workload, positions: Sequence[int] | IntArray) -> Candidates:
        """Whole tables."""
        tables = np.asarray(positions, dtype=np.int64)
        return cls(tables=tables, starts=workload.offsets[tables], lengths=workload.lengths[tables])

    @classmethod
    def of_cells(cls, workload: Workload, positions: Sequence[int] | IntArray) -> Candidates:
        """Every cell of some tables on its own: single queries."""
        tables = np.asarray(positions, dtype=np.int64)
        starts = np.concatenate([np.arange(workload.offsets[q], workload.offsets[q + 1]) for q in tables])
        return cls(tables=np.repeat(tables, workload.lengths[tables]), starts=starts, lengths=np.ones_like(starts))

    def __len__(self) -> int:
        return len(self.tables)

    def cells(self, position: int) -> slice:
        """Where the cells of one candidate lie."""
        return slice(int(self.starts[position]), int(self.starts[position] + self.lengths[position]))

    def sums(self, values: NDArray[Number]) -> NDArray[Number]:
        """Sum of each candidate's cells, shape ``(candidates,)``."""
        # Differences of running sums: integers may wrap around at 64 bits; their differences are right all the same.
        running = np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values)])
        sums: NDArray[Number] = running[self.starts + self.lengths] - running[self.starts]
        return sums

    @cached_property
    def limit(self) -> int:
        """Counts and guesses are limited to this size, so that no sum of a candidate leaves 64 bits."""
        return int(2**59 // (GRID * int(self.lengths.max())))


def distances(candidates: Candidates, exact: IntArray, guess: FloatArray) -> IntArray:
    """Sum of absolute differences over each candidate's cells, in units of 1 / ``GRID``; shape ``(candidates,)``.

    One cell that changes by one moves a distance by at most ``GRID``, whatever the guess: exact counts and rounded
    guesses are limited, which brings no two counts further apart, and a guess that is no number counts as 0.
    """
    limit = candidates.limit
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
