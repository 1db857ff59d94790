"""Which pairs of columns go together, from published tables; and which of that could be noise and chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm
from scipy.stats.contingency import association

from synthstream.fit.joints import possible
from synthstream.fit.targets import simplex
from synthstream.publish.history import Cells, History
from synthstream.workload import FloatArray, Workload

# Of all pairs that are called more than noise and chance, this part at most is expected to be independent.
FALSE = 0.05
# More columns make a picture that nobody can read.
MOST_COLUMNS = 40
# Excess kurtosis of Laplace noise; a sum of several has less.
_OF_LAPLACE = 3.0
# Of a standard error of whole counts: with a budget of thousands none is left that floats can tell.
_LEAST = 1e-6


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two columns.

    Args:
        strength: Cramér's V in the synthetic rows, from 0 to 1; ``None`` if a column has one value alone there.
        chance: how likely the measured table of independent events is as far from independence; ``None`` if that is
            not known.
        is_noise: whether independent columns could look like this, for all that is known: see :func:`seen`. Never
            where a public constraint joins both.
    """

    columns: tuple[int, int]
    strength: float | None
    chance: float | None
    is_noise: bool


def cramers_v(table: FloatArray) -> float | None:
    """Cramér's V of a table of counts: 0 if the columns are independent, 1 if one follows from the other.

    Rows and columns without events are left out; ``None`` if fewer than two of either are left.

    Example:
        >>> cramers_v(np.array([[10.0, 0.0], [0.0, 10.0]])), cramers_v(np.array([[5.0, 5.0], [5.0, 5.0]]))
        (1.0, 0.0)
    """
    table = np.maximum(table, 0)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape) < 2:
        return None
    return min(float(association(table.astype(np.int64), method="cramer")), 1.0)


def chance_of(
    measured: FloatArray, *, stderr: float, rows: FloatArray, columns: FloatArray, kurtosis: float = 0.0
) -> float:
    """How likely the measured table of independent events is as far from independence as this one is, or farther.

    With p and q the shares of rows and columns, r_ij = m_ij - p_i m_.j - q_j m_i. + p_i q_j m_.. is what the table
    holds beyond its margins. If the columns are independent it is noise, and chance in which of n events came, but for
    products of the errors of p and q. The distance is the sum of p_i q_j r_ij^2, so that common values weigh more. A
    cell varies by the noise, and by n p_i q_j as a Poisson count does; what the margins say beforehand r takes away,
    as in the chi-squared test. That makes the distance a quadratic form, of known mean, variance and skewness; its law
    is taken to be the chi-squared one with the same three.

    Args:
        measured: counts, shape ``(rows, columns)``.
        stderr: standard error of each.
        rows, columns: estimated counts of either column, not negative, with a sum above 0: n is that of ``rows``.
        kurtosis: excess kurtosis of the noise: 0 for Gaussian noise, 3 for Laplace noise. It widens the law.

    Source: Imhof 1961 for the three moments.
    """
    stderr = max(stderr, _LEAST)
    p, q = rows / rows.sum(), columns / columns.sum()
    left, right = np.eye(p.size) - np.outer(p, np.ones(p.size)), np.eye(q.size) - np.outer(q, np.ones(q.size))
    rest = left @ measured @ right.T / stderr
    distance = float((np.outer(p, q) * rest**2).sum())
    first, second = left.T @ (p[:, None] * left), right.T @ (q[:, None] * right)
    events = float(rows.sum()) / stderr**2  # n in the noise's variances

    def trace(noise: int, chance: int) -> float:
        """Of a product of so many forms of the noise, and of the events."""
        forms = [[form] * noise + [form * shares] * chance for form, shares in ((first, p), (second, q))]
        return math.prod(float(np.trace(reduce(np.matmul, form))) for form in forms) * events**chance

    mean = trace(1, 0) + trace(0, 1)
    half = trace(2, 0) + 2 * trace(1, 1) + trace(0, 2)
    third = trace(3, 0) + 3 * trace(2, 1) + 3 * trace(1, 2) + trace(0, 3)
    if mean <= 1e-12 or third <= 0:  # of one value alone
        return 1.0
    degrees = half**3 / third**2
    half += kurtosis / 2 * float((np.diag(first) ** 2).sum() * (np.diag(second) ** 2).sum())
    return float(chi2.sf(max(degrees + (distance - mean) * math.sqrt(degrees / half), 0.0), degrees))


def seen(chances: Sequence[float | None]) -> list[bool]:
    """Which of several tests tell more than chance, such that 5 % of those at most are expected to be chance.

    Source: Benjamini and Hochberg 1995.

    Example:
        >>> seen([0.004, None, 0.9, 0.03, 0.2])  # each alone would be called so at 0.05
        [True, False, False, False, False]
    """
    known = sorted(chance for chance in chances if chance is not None)
    passed = [chance for k, chance in enumerate(known, 1) if chance <= FALSE * k / len(known)]
    return [chance is not None and chance <= max(passed, default=-1.0) for chance in chances]


def beyond_noise(now: Cells) -> NDArray[np.bool_]:
    """Cells that noise alone would hardly fill, as measured and as rows: :func:`seen`. All of unknown error."""
    known = zip(np.minimum(now.measured, now.count), now.stderr, strict=True)
    return np.array(seen([float(norm.sf(m / max(s, _LEAST))) if np.isfinite(s) else 0.0 for m, s in known]))


def pairs(found: History, newest: Cells) -> list[Pair]:
    """All pairs of columns whose table is part of the stream's workload, of the first 40 columns."""
    workload = found.workload
    known = _measurements(found, newest)
    kurtosis = _OF_LAPLACE if found.newest.manifest["claim"].get("pure_epsilon") is not None else 0.0
    held = [pair for pair in combinations(range(min(len(workload.sizes), MOST_COLUMNS)), 2) if pair in workload.place]
    chances, listed = [_chance(workload, pair, known, kurtosis) for pair in held], list[Pair]()
    for pair, chance, beyond in zip(held, chances, seen(chances), strict=True):
        strength = cramers_v(workload.table(newest.count, workload.place[pair]))
        joined = any(group.restricts(pair) for group in found.config.constraints.groups)
        listed.append(Pair(columns=pair, strength=strength, chance=chance, is_noise=not (beyond or joined)))
    return listed


def impossible(found: History) -> list[tuple[int, str]]:
    """Of tables of two columns, by their place among all, which cells public constraints forbid: a bit for each."""
    return [
        (place, np.packbits(possible(group, pair, found.workload.shapes[place]) == 0).tobytes().hex())
        for place, pair in enumerate(found.workload.marginals)
        for group in found.config.constraints.groups
        if len(pair) == 2 and group.restricts(pair)
    ]


def _measurements(found: History, newest: Cells) -> list[Cells]:
    """Releases that measured tables, newest first: the newest one, those at the ends of epochs, the last refresh."""
    by_tick: dict[int, Cells] = {}
    for order in (1, 2):
        marginal = next((m for m in found.workload.marginals if len(m) == order), None)
        by_tick |= {} if marginal is None else {tick.tick: cells for tick, cells in found.measured_chain(marginal)}
    return [newest, *(by_tick[tick] for tick in sorted(by_tick, reverse=True) if tick != found.newest.tick)]


def _chance(workload: Workload, pair: tuple[int, int], known: list[Cells], kurtosis: float) -> float | None:
    """See :class:`Pair`; from the newest release that measured the pair."""
    for cells in known:
        own = cells.at(workload.slice_of(pair))
        if not own.known.all():
            continue
        rows, columns = (_margin(workload, c, cells, since=float(own.since[0])) for c in pair)
        if rows is None or columns is None:
            continue
        if not (rows.any() and columns.any()):  # nothing is left beside the noise
            return 1.0
        measured = own.measured.reshape(rows.size, columns.size)
        return chance_of(measured, stderr=float(own.stderr[0]), rows=rows, columns=columns, kurtosis=kurtosis)
    return None


def _margin(workload: Workload, column: int, cells: Cells, *, since: float) -> FloatArray | None:
    """Counts of one column over the ticks that a table counts; ``None`` if not known.

    The rows of a release are fitted to all its tables at once, so their counts are closer than one measured table.
    Where a table counts some ticks alone, the measured counts of these ticks are made consistent.
    """
    if (column,) not in workload.marginals:
        return None
    own = cells.at(workload.slice_of((column,)))
    if since == 0:
        return np.maximum(own.count, 0)
    if np.isfinite(own.measured).all() and own.since[0] == since:
        return simplex(own.measured, max(float(own.measured.sum()), 0.0))
    return None
