"""How much of a table is more than noise; and columns whose codes have an order that matters, such as ages.

There neighbours have like counts, and go with like values of other columns, so that each says something of the others.
Nobody has to say which columns these are: it is looked for in released values. Post-processing.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from synthstream.fit.targets import PARTS, SMALLEST, share_kept, simplex
from synthstream.workload import CodeArray, FloatArray

# How far neighbours resemble each other, in codes. Columns with fewer codes have little to gain, those with more take
# too long.
_LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_FEWEST, _MOST = 8, 512
# Neighbours must go together with other columns in ways this many standard deviations more alike than any two codes.
_CLEAR = 3.0
# Counts that resemble their neighbours' must be e to this power times as likely as counts that do not.
_LIKELIER = 10.0
# Counts without an order are drawn to their mean if true ones surely deviate from it by less than this part of it: a
# normal law has little room for counts below 0 then. Of ten codes two that never occur are as much.
_EVEN = 0.5
# Prior variances of a column's counts that are tried, in units of that of their noise.
_FACTORS = np.geomspace(0.1, 1e8, 46)
# Estimates are rounded to such parts of a standard error: the last bits of a matrix product depend on the threads.
_STEPS = 64


class Basis(NamedTuple):
    """Directions in which the prior of a column's part in an association is independent.

    Args:
        variances: prior variance along each, but for a factor, shape ``(size,)``.
        directions: orthonormal, one a column, shape ``(size, size)``, the first along the sum of all codes, which is
            known; ``None``: each code is one.
    """

    variances: FloatArray
    directions: FloatArray | None = None


class Shrunk(NamedTuple):
    """Posterior mean of an association around 0, the variance of its noise, and the covariance of each cell of the mean
    with its own measurement; and how far it may be off, as a share of the variance of the noise as measured.
    """

    mean: FloatArray
    error: FloatArray
    shared: FloatArray
    doubt: float


class Table(NamedTuple):
    """What a table holds.

    Args:
        columns: of it, in the order of the axes.
        association: beyond independent columns, as measured; all its sums are 0.
        independent: what independent columns would have.
        noise: variance of that of a cell of the association.
    """

    columns: tuple[int, ...]
    association: FloatArray
    independent: FloatArray
    noise: float


def nothing(shape: tuple[int, ...]) -> Shrunk:
    """What is left where there is no noise to tell anything from: as if columns were independent."""
    none = np.zeros(shape)
    return Shrunk(none, none, none, 1.0)


def shrunk(association: FloatArray, bases: Sequence[Basis], noise: float, left: float) -> Shrunk:
    """What is left of an association of which noise explains a part.

    Args:
        association: all its sums are 0.
        bases: of its columns.
        noise: variance of that of a cell.
        left: see :func:`share_kept`.
    """
    prior = functools.reduce(np.multiply.outer, [basis.variances for basis in bases])
    if noise == 0:
        return nothing(association.shape)
    turns = [basis.directions for basis in bases]
    turned = _turned(association, [None if turn is None else turn.T for turn in turns])
    # No noise is left in the sum of a column's codes: where that is a direction, the others have all of it.
    noise *= math.prod(len(turn) / (len(turn) - 1) for turn in turns if turn is not None)
    kept = share_kept(turned, prior, noise, left)
    mean, error, doubt = turned * kept, kept**2 * noise, float(np.mean(kept))
    if all(turn is None for turn in turns):
        return Shrunk(mean, error, kept * noise, doubt)
    squares = [None if turn is None else turn**2 for turn in turns]
    mean, error = _rounded(_turned(mean, turns), noise), _rounded(_turned(error, squares), noise**2)
    return Shrunk(mean, error, _turned(kept, squares) * noise, doubt)


def _turned(table: FloatArray, turns: Sequence[FloatArray | None]) -> FloatArray:
    """A table with each of its axes multiplied by a matrix."""
    for axis, turn in enumerate(turns):
        if turn is not None:
            table = np.moveaxis(np.tensordot(turn, table, axes=(1, axis)), 0, axis)
    return table


def _rounded(values: FloatArray, square: float) -> FloatArray:
    unit = math.sqrt(square) / _STEPS
    return np.asarray(np.round(values / unit) * unit)


def in_order(
    tables: Mapping[int, Table], bases: Sequence[Basis], scales: Sequence[FloatArray], left: float
) -> dict[int, Shrunk]:
    """What is left of the associations of columns with an order: each as if its columns had one or not, whichever has
    the least risk.

    Args:
        tables: by their position in the workload.
        bases: of each column, without an order.
        scales: of each column's codes, how the prior variance of an association would go with them if margins were not
            known.
        left: see :func:`shrunk`.

    Returns:
        By position; of the tables that hold a column with an order, and no others.
    """
    found: dict[int, Basis] = {}
    clear = {q: table for q, table in tables.items() if table.noise > 0}
    for c, scale in enumerate(scales):
        looked = clear.values() if _FEWEST <= np.count_nonzero(scale) <= scale.size <= _MOST else ()
        own = [(t.columns.index(c), t.association / math.sqrt(t.noise)) for t in looked if c in t.columns]
        if not own:
            continue
        profiles = np.hstack([np.moveaxis(table, axis, 0).reshape(scale.size, -1) for axis, table in own])
        sure, length = _alike(profiles)
        if sure >= _CLEAR:
            found[c] = _along(scale, length)
    best = {}
    for q, table in clear.items():
        if any(c in found for c in table.columns):
            ways = itertools.product(*([bases[c], found[c]] if c in found else [bases[c]] for c in table.columns))
            tried = [shrunk(table.association, way, table.noise, left) for way in ways]
            best[q] = min(tried, key=lambda one: _risk(one, table))
    return best


def _risk(one: Shrunk, table: Table) -> float:
    """How far the nearest possible table is from the truth: the unbiased estimate of the expected sum of squares, in
    units of noise, but for a constant. Source: Stein 1981.
    """
    nearest = simplex((table.independent + one.mean).ravel(), float(table.independent.sum()))
    gap = (table.independent + table.association).ravel() - nearest
    return float(gap @ gap + 2 * np.sum(one.shared.ravel() * (nearest > 0))) / table.noise


def _alike(profiles: FloatArray) -> tuple[float, float]:
    """How much more alike neighbours are than any two codes, in standard deviations, and the length where it is most.

    If codes had no order, every order of them would be as likely: the cosines of all pairs tell mean and variance of
    what a sum of those near each other is by chance (Mantel 1967).

    Args:
        profiles: of each code, what it goes together with, in units of noise, shape ``(size, cells)``.
    """
    products = profiles @ profiles.T
    norms = np.sqrt(np.maximum(np.diag(products), SMALLEST))
    upper = np.triu_indices(len(profiles), 1)
    cosines = (products / np.outer(norms, norms))[upper]
    cosines -= cosines.mean()
    most = []
    for length in _LENGTHS:
        near = _kernel(len(profiles), length)[upper]
        near = near - near.mean()
        chance = math.sqrt(float(near @ near) * float(np.mean(cosines**2)))
        most.append((float(near @ cosines) / max(chance, SMALLEST), length))
    return max(most)


def _along(scale: FloatArray, length: float) -> Basis:
    """Directions of the prior covariance of codes that resemble their neighbours, given that their sum is known."""
    root = np.sqrt(scale)
    covariance = root[:, None] * _kernel(scale.size, length) * root
    sums = covariance.sum(axis=1)
    values, vectors = np.linalg.eigh(covariance - np.outer(sums, sums) / max(float(sums.sum()), SMALLEST))
    return Basis(np.maximum(values, 0.0), vectors)


@functools.lru_cache(maxsize=128)  # of dates there are more from tick to tick
def _kernel(size: int, length: float) -> FloatArray:
    """Correlation of codes by their distance (Matérn 3/2), shape ``(size, size)``."""
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) / length
    return np.asarray((1 + apart) * np.exp(-apart))


@functools.lru_cache(maxsize=128)
def _spectrum(size: int, length: float) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors of :func:`_kernel`; of length 0: of codes that do not resemble each other."""
    values, vectors = np.linalg.eigh(_kernel(size, length)) if length else (np.ones(size), np.eye(size))
    return np.maximum(values, 0.0), vectors


def evened(
    counts: FloatArray, noise: float, allowed: CodeArray | None = None, outline: FloatArray | None = None
) -> tuple[FloatArray, float]:
    """Counts of a column's codes, drawn to their neighbours' where that makes them much more likely, else to their mean
    where they are alike; and the variance that is left of one.

    They are taken to be normal around their mean, and their variance and how far neighbours resemble each other to be
    what makes them most likely (empirical Bayes). Lists of few frequent codes and many rare ones are not normal.

    Args:
        counts: noisy, shape ``(size,)``.
        noise: variance of that of a count.
        allowed: codes that rows may have, increasing: the sum of all is theirs, and those at the beginning are evened.
        outline: in what proportion counts are expected, in place of one mean, shape ``(size,)``.
    """
    if allowed is not None:
        found, run = np.zeros_like(counts), slice(int(np.count_nonzero(allowed == np.arange(allowed.size))))
        found[allowed] = counts[allowed] + (counts.sum() - counts[allowed].sum()) / allowed.size
        found[run], noise = evened(found[run], noise, outline=None if outline is None else outline[run])
        return found, noise
    if not _FEWEST <= counts.size <= _MOST or noise <= SMALLEST:
        return counts, noise
    mean, around = counts.mean(), counts.mean() * np.ones(counts.size)
    if outline is not None and outline.sum() > 0:
        around = counts.sum() / outline.sum() * outline
    tried = []
    for length in (0.0, *_LENGTHS):
        values, vectors = _spectrum(counts.size, length)
        more = 1 + np.multiply.outer(_FACTORS, values)
        likely = -np.sum(np.log(more) + ((counts - around) @ vectors) ** 2 / (noise * more), axis=1) / 2
        tried.append((float(likely.max()), length, 1 - 1 / more[np.argmax(likely)]))
    alone, best = tried[0], max(tried, key=lambda one: one[0])
    if best[0] < alone[0] + _LIKELIER:
        # At most, with one standard error of an estimated variance.
        spread = float((counts - around).var(ddof=1)) * (1 + math.sqrt(2 / counts.size)) - noise
        if mean <= 0 or spread > (_EVEN * mean) ** 2:
            return counts, noise
        best = alone
    _, length, kept = best
    vectors = _spectrum(counts.size, length)[1]
    left = math.ceil(float(kept.mean()) * PARTS) / PARTS  # no less than there is
    return _rounded(around + vectors @ (kept * ((counts - around) @ vectors)), noise), noise * left
