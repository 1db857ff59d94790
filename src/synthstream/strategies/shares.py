"""How a budget is divided among tables. The kernel makes noise of the parts, and adds up what that noise costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from synthstream.kinds import Split
from synthstream.workload import FloatArray, Workload

# At every tick: parts of a by-order budget for the total, marginals of one column, and larger ones.
_BY_ORDER = (0.02, 0.58, 0.40)
# At every tick, where all tables have the same, the total has no more than this: their sums tell it, too.
_TOTAL = 0.1
# At refreshes: the total and tables of one column at every tick; tables of one column and larger ones at refreshes.
_REFRESHED = (0.02, 0.11, 0.22, 0.65)
# With few tables the first two have more, up to this, and tables of one column as much less at refreshes. In between,
# the total has what it would have, were all tables measured alike; tables of one column have so much of that.
_FEW, _ALIKE = (0.04, 0.18), 0.8
# Tables of one column get shares of a part in proportion to their cells to the one power at every tick, and to the
# other at refreshes.
_POWERS = (0.0, 0.6)
# Larger tables of more cells than their mean get shares in proportion to this power of them. The sum of absolute errors
# of a table, noise alone, would be least with 2/3; the mean error of a cell with 0. Shares of the others fall to
# 1 / (1 + _MOST) of what they were at least, so that no table has more than 2.5 % more noise.
_LARGE, _MOST = 1 / 3, 0.05
# In epochs: the total, tables of one column, the choice of larger ones, and these.
_EPOCHS = (0.05, 0.50, 0.06, 0.39)
# Tables of one column that get noise together leave so much of their part to larger ones.
_SAVED = 0.3
# An epoch measures as many larger tables as gain the most, of these numbers.
_NUMBERS = tuple(round(2 ** (step / 3)) for step in range(36))  # 1, 2, 3, 4, 5, 6, 8, 10, 13, ..., 3251
# What to expect where nothing tells how many will be.
USUAL = 10
# Tables that get noise together have at most so many cells (synthstream.kernel.joint).
_TOGETHER = 256
# Of points: the number of events, if it is private; an epoch.
_POINTS = (0.04, 0.96)


def of_points(*, number_is_public: bool) -> tuple[float, float]:
    """Shares of the number of events, and of an epoch; they add up to 1."""
    parts = np.array(_POINTS) * [not number_is_public, 1]
    number, epoch = (parts / parts.sum()).tolist()
    return number, epoch


def _all(workload: Workload, weights: Sequence[float] | None) -> FloatArray:
    return np.ones(workload.order.size) if weights is None else np.array(weights)


def at_every_tick(workload: Workload, split: Split, *, pure: bool, weights: Sequence[float] | None) -> FloatArray:
    """Share of the budget of each marginal, shape ``(marginals,)``; they add up to 1.

    Args:
        split, weights: see ``Marginals``.
        pure: whether noise is Laplace.
    """
    each, order = _all(workload, weights), workload.order
    roots = np.sqrt(workload.lengths) * each
    if split == "equal":
        key = each
    elif split == "sqrt-cells":
        key = roots
    elif split == "auto" and not pure:
        most = _TOTAL / (1 - _TOTAL) * each[order > 0].sum()
        key = np.where(order > 0, each, np.minimum(each, most or 1.0))
    else:
        within = np.where(order == 2, each, roots)
        key = np.array([_BY_ORDER[k] for k in order]) * within / np.bincount(order, within)[order]
    return np.asarray(key / key.sum())


def at_refreshes(workload: Workload, *, weights: Sequence[float] | None) -> tuple[FloatArray, FloatArray]:
    """Shares of each table at every tick, and at refreshes, shape ``(marginals,)`` each; together they add up to 1.

    Args:
        weights: of each table within its part; left out: all the same, and of larger ones :func:`by_size`.
    """
    order, known = workload.order, _all(workload, weights)
    cells = [np.where(order == 1, known * workload.cells_to(power), 0.0) for power in _POWERS]
    often, singles = (each / (each.sum() or 1.0) for each in cells)
    if weights is None:
        known = by_size(workload)
    larger = np.where(order == 2, known / known[order == 2].sum(), 0.0)
    parts = np.array(_REFRESHED)
    # Grids of a place have weights of their own, and need refreshes: one tick tells too little of their many cells.
    if np.unique(known[order == 1]).size == 1:
        more = np.clip([1 / order.size, _ALIKE * np.mean(order == 1)], parts[:2], _FEW) - parts[:2]
        parts[:3] += *more, -more.sum()
    ticks = np.where(order == 0, parts[0], parts[1] * often)
    refreshes = parts[2] * singles + parts[3] * larger
    whole = ticks.sum() + refreshes.sum()
    return ticks / whole, refreshes / whole


def by_size(workload: Workload) -> FloatArray:
    """How many times the share of a small table each gets at refreshes for its cells, shape ``(marginals,)``; 1 for the
    total and tables of one column.

    Example:
        >>> by_size(Workload.all_up_to(2, sizes=(2, 2, 40))).tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.075, 1.075]
    """
    larger = workload.order == 2
    if not np.any(larger):  # it is refused where it would be measured at refreshes
        return np.ones(larger.size)
    more = np.maximum(workload.lengths / workload.lengths[larger].mean(), 1.0) ** _LARGE - 1
    more *= min(1.0, _MOST / max(float(more[larger].mean()), _MOST))
    return np.where(larger, np.round(1 + more, 6), 1.0)  # rounded: see Workload.cells_to


class EpochShares(NamedTuple):
    """Shares of what is measured in epochs.

    Args:
        running: of each count at every tick.
        choices: of all choices of an epoch together.
        tables: of each table in an epoch, if it is measured, shape ``(marginals,)``; 0 for the total. Tables that get
            noise together have one share: each is given as all of it.
    """

    running: float
    choices: float
    tables: FloatArray


def together(workload: Workload, weights: Sequence[float] | None = None) -> tuple[list[tuple[int, ...]], FloatArray]:
    """Which tables of one column get noise together, by their positions, and the part of each: of one, its own.

    A cell of a table of n cells beside D of all that get noise together is as noisy as with Laplace noise of
    sqrt((D + 1) (D + 2) / ((n + 1) (n + 2))) times the scale. Of all ways to cut the tables, in the order of their
    cells, the one that leaves least noise: it sums to the square of the sum over groups of the root of what each would
    have with the whole budget. So parts are in proportion to these roots, and alone to the root of the cells.

    Args:
        weights: see :func:`in_epochs`.

    Returns:
        Groups, and the part of the group of each table, shape ``(marginals,)``, 0 for other tables.

    Example:
        >>> together(Workload.all_up_to(1, sizes=(3, 40, 2)))[0]
        [(1, 3), (2,)]
    """
    cells, weighed = workload.lengths.astype(np.float64), _all(workload, weights)
    singles = sorted(np.flatnonzero(workload.order == 1).tolist(), key=lambda q: (workload.lengths[q], q))
    own = (cells * weighed**2)[singles]
    spread, held = own / np.sqrt((cells + 1) * (cells + 2))[singles], cells[singles]
    least, begins = [0.0], list[int]()
    for end in range(1, len(singles) + 1):
        found = [(least[end - 1] + math.sqrt(own[end - 1]), end - 1)]  # alone, however many cells it has
        whole, noise = held[end - 1], spread[end - 1]
        for begin in reversed(range(end - 1)):
            whole, noise = whole + held[begin], noise + spread[begin]
            if whole > _TOGETHER:
                break
            found.append((least[begin] + math.sqrt(noise * math.sqrt((whole + 1) * (whole + 2))), begin))
        best, begin = min(found)
        least.append(best)
        begins.append(begin)
    groups, parts, end = list[tuple[int, ...]](), np.zeros(cells.size), len(singles)
    while end:
        begin = begins[end - 1]
        group = tuple(sorted(singles[begin:end]))
        groups.append(group)
        parts[list(group)] = least[end] - least[begin]
        end = begin
    return sorted(groups), parts


def in_epochs(
    workload: Workload, *, running: int, picks: int | None, weights: Sequence[float] | None = None
) -> dict[int, EpochShares]:
    """Shares by the number of larger tables in an epoch, which increases; all that is drawn adds up to 1.

    It is one number, at most, if ``picks`` says it.

    Args:
        running: counts at every tick.
        picks: larger tables in an epoch; ``None`` if that is left open.
        weights: of tables of one column, beside the root of their cells; left out: all the same.
    """
    larger = int(np.sum(workload.order == 2))
    numbers = sorted({min(number, larger) for number in ((picks,) if picks else _NUMBERS)})
    groups, singles = together(workload, weights)
    singles /= max(sum(float(singles[group[0]]) for group in groups), 1e-300)
    parts, saved = np.array(_EPOCHS), _SAVED * sum(float(singles[group[0]]) for group in groups if len(group) > 1)
    parts[1:] = parts[1] * (1 - saved), *(parts[2:] * (1 + parts[1] * saved / parts[2:].sum()))
    return {number: _in_an_epoch(workload, running, number, parts, singles, several=not picks) for number in numbers}


def _in_an_epoch(
    workload: Workload, running: int, larger: int, parts: FloatArray, singles: FloatArray, *, several: bool
) -> EpochShares:
    """Shares for so many larger tables. They are chosen unless they are all.

    Where there may be several numbers, fewer tables than usual have less for all of them together, but more for each,
    and tables of one column have what that leaves; if all are measured, the larger tables have what choices would cost.
    """
    order, parts = workload.order, parts.copy()
    choices = larger < np.sum(order == 2)
    parts[0] *= running
    if not np.any(order == 1):
        parts[1] = 0.0
    if not np.any(order == 2):
        parts[2:] = 0.0
    elif several:
        less = 1 - min(1.0, math.sqrt(larger / min(USUAL, np.sum(order == 2)))) if parts[1] else 0.0
        parts[1:] = parts[1] + less * parts[2:].sum(), *((1 - less) * parts[2:])
    if not choices:
        parts[2:] = 0.0, parts[3] + (parts[2] if several else 0.0)
    parts /= parts.sum()
    tables = np.where(order == 2, parts[3] / max(larger, 1), parts[1] * singles)
    return EpochShares(float(parts[0]) / running, float(parts[2]), tables)
