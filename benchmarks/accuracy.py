"""NOT PRIVATE. (alpha, beta)-accuracy, estimated from the errors of repeated runs.

Paper 2 is Kumar, Strohmer, Vershynin, "Differentially Private Synthetic High-dimensional Tabular Stream"; the draft is
its earlier text, "DP-STabS".
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import binom

from benchmarks.metrics import Counts
from synthstream.workload import FloatArray


def snapshot_errors(true: Counts, synthetic: Counts) -> FloatArray:
    """Largest error of a cell of the running counts, after each tick: max over q of |q(g_t) - q(f_t)|.

    Args:
        true, synthetic: running counts in events, shape ``(..., ticks, cells)``; they are broadcast, so that one true
            stream serves many synthetic ones.

    Returns:
        float64, shape ``(..., ticks)``, in events.

    Source: paper 2, Definitions 3.6 and 3.7; the draft, Definition 2.6 (snapshot accuracy).
    """
    return np.asarray(np.abs(_gap(true, synthetic)).max(axis=-1))


def differential_errors(true: Counts, synthetic: Counts) -> FloatArray:
    """Largest error of a cell of what each tick added: max over q of |q(g_t - g_{t-1}) - q(f_t - f_{t-1})|.

    Arguments and result as for :func:`snapshot_errors`; before the first tick both streams are empty. Summed over ticks
    it is never less than the snapshot error (the draft, proof of Lemma 2.7).

    Example:
        >>> true, synthetic = np.array([[3], [5]]), np.array([[2], [6]])
        >>> snapshot_errors(true, synthetic).tolist(), differential_errors(true, synthetic).tolist()
        ([1.0, 1.0], [1.0, 2.0])

    Source: the draft, Definition 2.5 (differential accuracy).
    """
    return np.asarray(np.abs(np.diff(_gap(true, synthetic), axis=-2, prepend=0.0)).max(axis=-1))


def accuracy(errors: FloatArray, *, beta: float, confidence: float = 0.95) -> FloatArray:
    """The smallest alpha that repeated runs vouch for: P(error > alpha) <= beta.

    It is an order statistic. With n runs, the r-th smallest error is below the (1 - beta)-quantile of the errors' law
    with probability at most P(Binomial(n, 1 - beta) >= r), whatever the law; r is the smallest number for which this is
    at most 1 - ``confidence``. So alpha is an upper confidence limit, one for each tick, not for all ticks at once.

    This is the form of a counter's accuracy (Definition 3.11). Definitions 3.6 and 3.7 ask for
    P(error >= alpha) <= beta: any number above this alpha will do.

    Args:
        errors: errors of independent runs on the same data, shape ``(runs, ...)``: the largest of a dataset (Definition
            3.6), those of a stream after each tick (3.7), or those of a counter (3.11), in any unit.
        beta: how often alpha may be exceeded, between 0 and 1.
        confidence: how sure the limit is, between 0 and 1.

    Returns:
        float64, shape ``(...)``, in the unit of the errors.

    Raises:
        ValueError: too few runs to say, or a probability is out of range.

    Example:
        >>> float(accuracy(np.arange(1.0, 101.0), beta=0.05))
        99.0
    """
    rank = _rank(len(errors), beta, confidence)
    return np.asarray(np.sort(np.asarray(errors, dtype=np.float64), axis=0)[rank - 1])


def runs_needed(*, beta: float, confidence: float = 0.95) -> int:
    """Fewest runs from which :func:`accuracy` can say anything: the largest error of them is its alpha.

    Example:
        >>> runs_needed(beta=0.05)
        59
    """
    _check(beta, confidence)
    return math.ceil(math.log1p(-confidence) / math.log1p(-beta) - 1e-12)


def snapshot_from_differential(errors: FloatArray, *, beta: float, confidence: float = 0.95) -> FloatArray:
    """Snapshot accuracy that follows from differential accuracy: sum over ticks i <= t of alpha_i(beta / t).

    Args:
        errors: differential errors of independent runs, shape ``(runs, ticks)``.
        beta, confidence: as for :func:`accuracy`. Both are shared among the ticks of a sum, so that each sum is right
            with ``confidence``.

    Returns:
        float64, shape ``(ticks,)``, in events. Most often far above what the runs' own snapshot errors vouch for.

    Raises:
        ValueError: too few runs: t ticks take about t times as many as one.

    Source: the draft, Lemma 2.7.
    """
    ticks = errors.shape[1]
    sums = [
        accuracy(errors[:, :t], beta=beta / t, confidence=1 - (1 - confidence) / t).sum() for t in range(1, ticks + 1)
    ]
    return np.array(sums, dtype=np.float64)


def _gap(true: Counts, synthetic: Counts) -> FloatArray:
    return np.asarray(np.asarray(synthetic, dtype=np.float64) - true)


def _check(beta: float, confidence: float) -> None:
    if not (0 < beta < 1 and 0 < confidence < 1):
        raise ValueError(f"beta and confidence must be between 0 and 1, not {beta} and {confidence}")


def _rank(runs: int, beta: float, confidence: float) -> int:
    """The smallest r with P(Binomial(runs, 1 - beta) >= r) <= 1 - confidence."""
    _check(beta, confidence)
    ranks = np.arange(1, runs + 1)
    enough = np.flatnonzero(binom.sf(ranks - 1, runs, 1 - beta) <= (1 - confidence) * (1 + 1e-12))
    if enough.size == 0:
        needed = runs_needed(beta=beta, confidence=confidence)
        raise ValueError(
            f"{runs} runs are too few for beta = {beta:g}, confidence = {confidence:g}: {needed} are needed"
        )
    return int(ranks[enough[0]])
