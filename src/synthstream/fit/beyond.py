"""What stands out of the noise of tables' associations: of each table, and of what many of them have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from synthstream.fit.lowrank import NOTHING, Common, common, slope
from synthstream.fit.ordered import Basis, Table, in_order, shrunk
from synthstream.fit.strengths import Noisy, shrunk_together
from synthstream.fit.targets import SMALLEST, independent_counts, independent_tables, lines, of_columns
from synthstream.workload import FloatArray, Workload

# The prior variance of an association is taken to be in proportion to this power of its columns' shares.
_POWER = 0.75
# Common slopes must gain so many times as much, for rows even out the noise of single tables alone. As that decides,
# noise may pass for a slope in one look of twenty.
_MORE, _CAUTION = 1.1, 0.5
# Associations and the variance of their noise, by position in the workload.
Found = dict[int, tuple[FloatArray, FloatArray]]


class Tables(NamedTuple):
    """What is known beside associations.

    Args:
        variance: of a cell of each marginal, shape ``(marginals,)``.
        noises: of a cell of an association, by position of its table.
        margins, priors: counts of each column's codes, and the prior variances of its part in an association.
        left: the share of the noise that is still there once rows have been fitted.
        together: whether all tables together tell how strong associations are, and which columns' codes have an order.
    """

    workload: Workload
    variance: FloatArray
    noises: dict[int, float]
    margins: Sequence[FloatArray]
    priors: Sequence[FloatArray]
    rows: int
    left: float
    together: bool


class Beyond(NamedTuple):
    """What stands out of noise: see :func:`beyond_noise`.

    Args:
        gains: of each table, how much less squares of errors are expected to be than of independent columns, in those
            of the noise of a cell: Stein's estimate (1981); what is common was shrunk so that its own square is its
            gain.
        doubts: of each table, how far it may be off, as a share of the variance of its noise.
    """

    found: Found
    shared: Common
    gains: dict[int, float]
    doubts: dict[int, float]


def with_slopes(
    looked: Mapping[int, FloatArray], whole: Mapping[int, FloatArray], known: Tables, before: Beyond
) -> Beyond:
    """What stands out once slopes that the tables of ``looked`` have in common are taken out; ``before`` if that is
    no better. They are not taken out of tables that are clearly worse for it: those say more by themselves.
    """
    slopes = [slope(margin) for margin in known.margins]
    even = common(known.workload, dict(looked), known.variance, along=slopes, caution=_CAUTION)
    for last in (False, True):
        if not even.means:
            return before
        rest = {q: association - even.means.get(q, 0.0) for q, association in whole.items()}
        after = beyond_noise(rest, known, even)
        worse = {q for q in even.means if after.gains[q] < before.gains[q] - freedom(known.workload.shapes[q])}
        if last or not worse:
            break
        even = Common({q: mean for q, mean in even.means.items() if q not in worse}, even.errors)
    totals = [sum(part.gains[q] for q in even.means) for part in (before, after)]
    return after if totals[1] > _MORE * max(totals[0], 0.0) else before


def beyond_noise(whole: Mapping[int, FloatArray], known: Tables, before: Common = NOTHING) -> Beyond:
    """What stands out of the noise of associations, and what they have in common.

    First what stands out of a table's own noise, then what is common to many tables in the rest of them all; where
    there is nothing of the kind, an order of codes may tell more of a table. ``before``: what was taken out first.
    """
    workload, margins, rows = known.workload, known.margins, known.rows
    bases = [Basis(own) for own in known.priors]
    if known.together:
        each = shrunk_together({alike: _noisy(alike, whole, known) for alike in workload.alike(whole)}, known.left)
    else:
        each = {
            q: shrunk(association, [bases[c] for c in workload.marginals[q]], known.noises[q], known.left)
            for q, association in whole.items()
        }
    rest = {q: association - each[q].mean for q, association in whole.items()}
    shared = common(workload, rest, known.variance)
    if known.together and not shared.means:
        scales = [(margin / rows) ** _POWER for margin in margins]
        independent = dict(independent_tables(workload, whole, margins, rows))
        tables = {
            q: Table(workload.marginals[q], cells, independent[q] + before.means.get(q, 0.0), known.noises[q])
            for q, cells in whole.items()
        }
        each |= in_order(tables, bases, scales, known.left)
    found: Found = {q: each[q][:2] for q in whole}
    gains = dict[int, float]()
    for alike in workload.alike(whole):
        mean, both, cells = map(lines, zip(*((each[q].mean, each[q].shared, whole[q]) for q in alike), strict=True))
        own = 2 * np.sum(mean * cells - both, axis=1) - np.sum(mean**2, axis=1)
        gains |= zip(alike, own.tolist(), strict=True)
    doubts = {q: one.doubt for q, one in each.items()}
    for part in (shared, before):
        for q, mean in part.means.items():
            found[q] = found[q][0] + mean, found[q][1] + part.errors[q]
            doubts[q] += part.errors[q] / known.noises[q]
            gains[q] += float(np.sum(mean**2))
    return Beyond(found, shared, {q: gain / float(known.variance[q]) for q, gain in gains.items()}, doubts)


def _noisy(alike: tuple[int, ...], whole: Mapping[int, FloatArray], known: Tables) -> Noisy:
    cells = np.stack([whole[q] for q in alike])
    noises = np.expand_dims([known.noises[q] for q in alike], tuple(range(1, cells.ndim)))
    products = independent_counts(of_columns(known.priors, known.workload, alike), 1)
    return Noisy(cells, products, noises, freedom(cells.shape[1:]))


def prior(chance: FloatArray) -> FloatArray:
    """Prior variance of a column's part in an association, but for a factor, by code.

    That of a table whose margins are known: in a table of two by two all four cells have one variance.
    """
    power = chance**_POWER
    return np.asarray(power * (1 - power / max(power.sum(), SMALLEST)))


def freedom(shape: tuple[int, ...]) -> int:
    """How many cells of a table are free once all smaller tables are known."""
    return math.prod(size - 1 for size in shape)


def explained(found: Found, workload: Workload, taken: float) -> FloatArray:
    """Of each column the share of its associations that noise explains, in standard deviations, shape ``(columns,)``.

    Args:
        taken: variances are so many times those of the noise.
    """
    squares, told = np.zeros((2, len(workload.sizes))), dict[int, FloatArray]()
    for alike in workload.alike(found):
        mean, error = map(lines, zip(*(found[q] for q in alike), strict=True))
        told |= zip(alike, np.stack([np.sum(error, axis=1) / taken, np.sum(mean**2, axis=1)], axis=1), strict=True)
    for q in found:
        squares[:, list(workload.marginals[q])] += told[q][:, None]
    shares = np.sqrt(np.minimum(squares[0] / np.maximum(squares[1], SMALLEST), 1.0))
    shares[squares[1] == 0] = 1.0
    return np.asarray(shares)
