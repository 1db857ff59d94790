"""What has changed since a measurement, as far as noise lets it be told: decision 48."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synthstream.fit.targets import SMALLEST, margins_of, share_kept, simplex, total_of
from synthstream.measured import Measured
from synthstream.workload import FloatArray

# A cell that has moved by more than so many standard errors has changed, whatever all cells together say. Others are
# taken to change by a variance in proportion to their expected count to this power.
_SURE, _POWER = 4.0, 0.5


def standing_out(
    gap: FloatArray, noise: float, most: float = math.inf, expected: FloatArray | None = None
) -> FloatArray:
    """The part of a difference that noise of a variance does not explain; its own square sum is at most ``most``.

    Without ``expected`` all cells keep one share of it (James and Stein 1961). That follows what large counts say, and
    moves rare ones by their noise. Where counts are ``expected``, a cell is taken to change the less the fewer there
    are; and what noise cannot be is followed in any cell, whatever ``most`` is (Breiman's garrote, 1995).
    """
    largest = 1.0 if math.isinf(most) else most / (most + noise * gap.size)
    if expected is None:
        return np.asarray(gap * min(largest, max(0.0, 1 - noise * gap.size / max(float(np.sum(gap * gap)), SMALLEST))))
    kept = share_kept(gap, np.maximum(expected, 1.0) ** _POWER, max(noise, SMALLEST))
    sure = 1 - _SURE**2 * noise / np.maximum(gap * gap, SMALLEST)
    return np.asarray(gap * np.maximum(np.minimum(kept, largest), sure))


def as_often(counts: FloatArray, even: FloatArray, noise: float) -> FloatArray:
    """How many times as many of each code there are as if all came evenly, as far as noise of a variance lets it be
    told; 1 where less than one was to be.
    """
    more = standing_out(counts - even, noise, expected=even)
    return np.where(even >= 1, np.maximum(1 + more / np.maximum(even, 1.0), 0.0), 1.0)


def lately(
    total: float, counts: Sequence[FloatArray], variances: Sequence[float], before: Measured
) -> list[FloatArray]:
    """Shares of each column's codes among the events between two measurements, as far as noise lets them be told from
    the shares among all; nothing if none came.

    Args:
        total, counts, variances: what is known of the later one: its events, those of each code, and by column the
            variance of one count.
        before: the earlier one.
    """
    start = total_of(before)
    number = total - start
    if number < 1:
        return []
    found = []
    for now, then, *errors in zip(counts, *margins_of(before, start), variances, strict=True):
        even = np.maximum(now, 0.0) * (number / max(float(np.maximum(now, 0.0).sum()), SMALLEST))
        own = simplex(even + standing_out(now - then - even, sum(errors), expected=even), number)
        found.append(own / number)
    return found


def towards(news: FloatArray, grown: FloatArray, other: FloatArray, noise: float) -> FloatArray:
    """The counts on the line from ``grown`` to ``other`` that are nearest to ``news``: half-way where noise of that
    variance says nothing, and never beyond either end.
    """
    way = other - grown
    share = (float(np.sum((news - grown) * way)) + noise / 2) / max(float(np.sum(way * way)) + noise, SMALLEST)
    return np.asarray(grown + way * min(max(share, 0.0), 1.0))
