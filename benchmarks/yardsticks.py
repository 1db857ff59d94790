"""NOT PRIVATE. Yardsticks that officials and papers use, of synthetic rows beside the true ones.

Rows are codes, int32, shape ``(rows, columns)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit
from scipy.stats import rankdata

from synthstream.workload import CodeArray, FloatArray, Workload

# A little of the squared norm of the coefficients, so that what occurs once has a finite one.
_RIDGE = 1.0


def tables_of(sizes: Sequence[int], k: int, *, number: int, seed: int = 0) -> Workload:
    """Tables of k columns: all of them, or ``number`` chosen at random."""
    columns = len(sizes)
    listed = list(combinations(range(columns), k))
    if comb(columns, k) > number:
        places = np.random.default_rng(seed).choice(len(listed), number, replace=False)
        listed = [listed[i] for i in sorted(places)]
    return Workload(sizes=tuple(sizes), marginals=tuple(listed))


def distance(true: CodeArray, rows: CodeArray, tables: Workload) -> float:
    """Mean over tables of the total variation distance between shares of cells; 0 if equal, 1 if nothing is shared."""
    off = [np.zeros(0)]
    for marginal in tables.marginals:
        one = Workload(sizes=tables.sizes, marginals=(marginal,))
        shares = [one.count(codes) / max(len(codes), 1) for codes in (true, rows)]
        off.append(np.array([np.abs(shares[0] - shares[1]).sum() / 2]))
    return float(np.concatenate(off).mean())


def k_marginal(true: CodeArray, rows: CodeArray, tables: Workload) -> float:
    """NIST's k-marginal score: 1000 if all these tables agree, 0 if none shares anything (Task et al. 2023).

    Example:
        >>> rows = np.array([[0, 0], [1, 1]], dtype=np.int32)
        >>> k_marginal(rows, rows, tables_of((2, 2), 2, number=9))
        1000.0
        >>> k_marginal(rows, 1 - rows[:, ::-1] * [[1, 0]], tables_of((2, 2), 2, number=9))
        500.0
    """
    return 1000 * (1 - distance(true, np.asarray(rows, dtype=np.int32), tables))


def impossible(true: CodeArray, rows: CodeArray, sizes: Sequence[int]) -> float:
    """Mean over pairs of columns of the share of rows whose combination of values no true row has."""
    shares = []
    for marginal in combinations(range(len(sizes)), 2):
        one = Workload(sizes=tuple(sizes), marginals=(marginal,))
        there, found = one.count(true) > 0, one.count(rows)
        shares.append(found[~there].sum() / max(found.sum(), 1))
    return float(np.mean(shares))


def propensity(true: CodeArray, rows: CodeArray, sizes: Sequence[int]) -> tuple[float, float]:
    """pMSE of a logistic regression that tells synthetic rows from true ones, and its ratio to what chance leaves.

    The ratio is relative to the expected pMSE of rows drawn from a model that was fitted to the true ones (Snoke, Raab,
    Nowok, Dibben, and Slavkovic 2018): about 1 for these, 1 / (1 - share) for two independent samples of one law, which
    is 2 for as many rows; less where values are rare. 0 for the true rows themselves. Main effects alone; degrees of
    freedom are those of values that true rows have.
    """
    both, share = np.concatenate([true, rows]), len(rows) / (len(true) + len(rows))
    features = one_hot(both, sizes)
    label = np.repeat([0.0, 1.0], [len(true), len(rows)])
    score = float(np.mean((probabilities(features, fitted(features, label)) - share) ** 2))
    freedom = sum(len(np.unique(column)) - 1 for column in true.T)
    expected = freedom * (1 - share) ** 2 * share / len(both)
    return score, score / expected


def tstr(rows: CodeArray, test: CodeArray, sizes: Sequence[int], target: int) -> float:
    """Train on synthetic, test on real: area under the ROC curve of a logistic regression for a target of two values.

    0.5 if only one of them occurs.
    """
    columns = [c for c in range(len(sizes)) if c != target]
    kept = [sizes[c] for c in columns]
    label, truth = rows[:, target].astype(np.float64), test[:, target] > 0
    if len(np.unique(label)) < 2:
        return 0.5
    score = probabilities(one_hot(test[:, columns], kept), fitted(one_hot(rows[:, columns], kept), label))
    ranks, positive = rankdata(score), int(truth.sum())
    return float((ranks[truth].sum() - positive * (positive + 1) / 2) / (positive * (len(truth) - positive)))


def one_hot(codes: CodeArray, sizes: Sequence[int]) -> csr_array:
    """A column for each value, and one of ones."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    width = len(sizes) + 1
    places = np.concatenate([codes + starts[:-1], np.full((len(codes), 1), starts[-1])], axis=1)
    ends = np.arange(0, len(codes) * width + 1, width)
    return csr_array((np.ones(places.size), places.reshape(-1), ends), shape=(len(codes), int(starts[-1]) + 1))


def fitted(features: csr_array, label: FloatArray) -> FloatArray:
    """Coefficients of a logistic regression with a small ridge."""

    def loss(beta: FloatArray) -> tuple[float, FloatArray]:
        margin = features @ beta
        value = np.logaddexp(0, margin).sum() - label @ margin + _RIDGE * beta @ beta / 2
        return float(value), features.T @ (expit(margin) - label) + _RIDGE * beta

    found = minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(found.x)


def probabilities(features: csr_array, beta: FloatArray) -> FloatArray:
    """Of label 1, for each row."""
    return np.asarray(expit(features @ beta))
