"""Codes that hardly ever occur: how many of the counts that noise explains are nothing but noise.

A count below 0 cannot be, so that the nearest possible counts of codes that never occur are above 0 on average. Where
there are many such codes, a good part of all rows would hold one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthstream.fit.targets import SMALLEST, in_parts, mixing, simplex
from synthstream.workload import CodeArray, FloatArray

# Counts above this many standard errors stand for themselves. True counts are taken to lie on a grid, in standard
# errors; observed ones are sorted into bins.
_CLEAR = 5.0
_GRID = np.arange(0.0, 8.01, 0.25)
_EDGES = np.arange(-6.0, 7.01, 0.1)
_CENTRES = (_EDGES[1:] + _EDGES[:-1]) / 2
# Steps of expectation and maximisation, and the share of codes that are taken never to occur before the first step.
_STEPS, _NEVER = 100, 0.1


def possible_margins(
    counts: Sequence[FloatArray],
    variances: Sequence[float],
    rows: int,
    *,
    nearest: Sequence[FloatArray] | None = None,
) -> list[FloatArray]:
    """Margins of no code below 0, each with the sum of the rows; codes that may be nothing but noise are lowered.

    What these lose belongs first to codes that stand for themselves, up to their counts. Of a long list more is left:
    it is spread over all codes, as far as there may be more of each (docs/decisions/0065-long-lists.md).

    Args:
        counts: of each column's codes, as they are known.
        variances: of the noise that is left in one, by column.
        nearest: the margins of no code below 0 that are lowered, by column; left out: the nearest to the counts.
    """
    found = []
    if nearest is None:
        nearest = [simplex(count, float(rows)) for count in counts]
    known = rare(counts, [math.sqrt(max(variance, SMALLEST)) for variance in variances])
    for count, near, (real, clear, slack) in zip(counts, nearest, known, strict=True):
        lowered = near * real
        room = np.where(clear, np.maximum(count - lowered, 0.0), 0.0)
        lowered += room * min(_missing(lowered, rows) / max(float(room.sum()), SMALLEST), 1.0)
        lowered += slack * (_missing(lowered, rows) / max(float(slack.sum()), SMALLEST))
        found.append(lowered * (rows / lowered.sum()) if lowered.sum() > 0 else near)
    return found


def _missing(counts: FloatArray, rows: int) -> float:
    return max(rows - float(counts.sum()), 0.0)


class Rare(NamedTuple):
    """What is known of a column's codes, given their noisy counts.

    Args:
        real: probability that each occurs at all: 1 less the local false discovery rate.
        clear: whether its count stands for itself.
        slack: how much more there may be of each, as parts of all that is missing: a standard error, but no more than
            what is expected of it.
    """

    real: FloatArray
    clear: NDArray[np.bool_]
    slack: FloatArray


def rare(counts: Sequence[FloatArray], errors: Sequence[float]) -> list[Rare]:
    """What is known of the codes of each column.

    The distribution of true counts is the one of greatest likelihood (Kiefer and Wolfowitz 1956), over the rare codes
    of all columns; see Efron 2010 for the method.

    Args:
        counts: noisy counts of each column's codes.
        errors: standard error of a count of each column, above 0.
    """
    scores = [np.clip(count / error, _EDGES[0], _EDGES[-1]) for count, error in zip(counts, errors, strict=True)]
    unclear = np.concatenate([score[score < _CLEAR] for score in scores])
    prior = _prior(unclear) if unclear.size else _GRID == _CLEAR
    found = []
    for score, error in zip(scores, errors, strict=True):
        joint = _density(score) * prior
        with np.errstate(invalid="ignore"):
            joint /= joint.sum(axis=1, keepdims=True)
        clear = score >= _CLEAR
        never, expected = (in_parts(each) for each in (joint[:, 0], joint @ _GRID))
        slack = error * np.where(clear, 1.0, np.minimum(expected, 1.0))
        found.append(Rare(np.where(clear, 1.0, 1 - never), clear, slack))
    return found


def _density(scores: FloatArray) -> FloatArray:
    """Likelihood of each true count of the grid, but for a factor, shape ``(scores, grid)``."""
    return np.asarray(np.exp(-((scores[:, None] - _GRID) ** 2) / 2))


def _prior(scores: FloatArray) -> FloatArray:
    """Distribution over the grid that makes observed scores likely."""
    number = np.histogram(scores, _EDGES)[0] / scores.size
    start = np.full(_GRID.size, (1 - _NEVER) / (_GRID.size - 1))
    start[0] = _NEVER
    return mixing(_density(_CENTRES), number, start, _STEPS)


def within(allowed: Mapping[int, CodeArray], margins: list[FloatArray], rows: int) -> list[FloatArray]:
    """Margins of so many rows, by column, of which some have no code but those that are allowed."""
    for column, codes in allowed.items():
        left = np.zeros_like(margins[column])
        left[codes] = margins[column][codes]
        margins[column] = left * (rows / max(float(left.sum()), SMALLEST))
    return margins
