"""Codes that hardly ever occur: how many of the counts that noise explains are nothing but noise.

A count below 0 cannot be, so that the nearest possible counts of codes that never occur are above 0 on average. Where
there are many such codes, a good part of all rows would hold one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthstream.workload import FloatArray

# Counts above this many standard errors stand for themselves. True counts are taken to lie on a grid, in standard
# errors; observed ones are sorted into bins.
_CLEAR = 5.0
_GRID = np.arange(0.0, 8.01, 0.25)
_EDGES = np.arange(-6.0, 7.01, 0.1)
_CENTRES = (_EDGES[1:] + _EDGES[:-1]) / 2
# Steps of expectation and maximisation, and the share of codes that are taken never to occur before the first step.
_STEPS, _NEVER = 100, 0.1


def real(counts: Sequence[FloatArray], errors: Sequence[float]) -> list[FloatArray]:
    """Probability that each code occurs at all, given its noisy count: 1 less the local false discovery rate.

    The distribution of true counts is the one of greatest likelihood (Kiefer and Wolfowitz 1956), over the rare codes
    of all columns; see Efron 2010 for the method.

    Args:
        counts: noisy counts of each column's codes.
        errors: standard error of a count of each column, above 0.
    """
    scores = [np.clip(count / error, _EDGES[0], _EDGES[-1]) for count, error in zip(counts, errors, strict=True)]
    rare = np.concatenate([score[score < _CLEAR] for score in scores])
    prior = _prior(rare) if rare.size else _GRID == _CLEAR
    found = []
    for score in scores:
        joint = _density(score) * prior
        with np.errstate(invalid="ignore"):
            never = joint[:, 0] / joint.sum(axis=1)
        found.append(np.where(score < _CLEAR, 1 - never, 1.0))
    return found


def _density(scores: FloatArray) -> FloatArray:
    """Likelihood of each true count of the grid, but for a factor, shape ``(scores, grid)``."""
    return np.asarray(np.exp(-((scores[:, None] - _GRID) ** 2) / 2))


def _prior(scores: FloatArray) -> FloatArray:
    """Distribution over the grid that makes observed scores likely."""
    number = np.histogram(scores, _EDGES)[0] / scores.size
    density = _density(_CENTRES)
    prior = np.full(_GRID.size, (1 - _NEVER) / (_GRID.size - 1))
    prior[0] = _NEVER
    for _ in range(_STEPS):
        prior = prior * ((number / (density @ prior)) @ density)
    return np.asarray(prior)
