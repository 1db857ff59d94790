"""How many rows have each allowed combination of a group's columns: one non-negative estimate from all noisy tables.

Least squares on the pooled margins and the tables that lie within the group, each weighted by its precision, and a
little Kullback-Leibler divergence to an even spread, over cells of a place as these are known, which decides where the
tables do not. Estimates are moved to margins, to what has changed, and to the rows before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numba
import numpy as np

from synthstream.constraints import Group
from synthstream.fit.changes import standing_out
from synthstream.fit.nested import grids_of
from synthstream.fit.ordered import evened
from synthstream.fit.rare import possible_margins
from synthstream.fit.targets import SMALLEST, blend, simplex
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

# The divergence weighs _PRIOR times the number of combinations, divided by that of rows.
_PRIOR = 0.005
# Coordinate descent ends when no combination moves by more than this share of a row, or after so many sweeps: fewer,
# but at least ten, where combinations are very many.
_STILL, _SWEEPS, _STEPS = 0.01, 100, 500_000
# Rows of a code, at least, where its combinations are moved in proportion.
_LEAST = 1e-6
# Joint counts are moved to what tables of one column say so many times.
_TURNS = 3
# What unusual combinations explain beyond usual ones must be so many times as much as noise would let them, by chance.
_UNUSUAL = 4.0


class Joint(NamedTuple):
    """An estimate.

    Args:
        group: the columns and combinations.
        counts: expected number of rows of each combination, non-negative, shape ``(combinations,)``.
        noise: about the variance of one of them.
    """

    group: Group
    counts: FloatArray
    noise: float

    def table(self, columns: Sequence[int], shape: Sequence[int]) -> FloatArray:
        """Expected counts over some of the group's columns, flat."""
        return _summed(self.group, self.counts, columns, shape)

    def moved(self, column: int, margin: FloatArray) -> Joint:
        """With another margin of a column, of the same sum: combinations that share a code move in proportion.

        Those of a code that had no rows have equal parts. A margin that no combination can have is not taken.
        """
        codes = self.group.combinations[:, self.group.columns.index(column)]
        now, even = self.table((column,), margin.shape)[codes], spread(self.group, column, np.ones(margin.size))
        parts = np.where(now > _LEAST, self.counts / np.maximum(now, _LEAST), even)
        counts = parts * margin[codes]
        if counts.sum() <= _LEAST:
            return self
        return self._replace(counts=counts * (self.counts.sum() / counts.sum()))

    def of_rows(self, codes: CodeArray) -> FloatArray:
        """How many rows have each combination; rows with none of these are left out."""
        places = self.group.places(codes)
        return np.bincount(places[places >= 0], minlength=self.group.number).astype(np.float64)


def estimate(
    group: Group,
    workload: Workload,
    values: FloatArray,
    variance: FloatArray,
    margins: Sequence[FloatArray],
    errors: Sequence[float],
    rows: int,
    taken: float = 1.0,
) -> Joint:
    """The joint counts of a group, summing to ``rows``: of its usual combinations alone, unless these clearly leave
    something that others explain.

    Args:
        values, variance: of the noisy tables.
        margins, errors: pooled counts of each column's codes, and the variance of one of them. Of grids see
            :mod:`synthstream.fit.grids`.
        taken: variances are so many times those of errors.
    """
    if rows == 0:
        return Joint(group.as_usual, np.zeros(group.as_usual.number), 1.0)
    tables = [_Table((c,), margins[c], float(errors[c])) for c in group.columns if errors[c] > 0]
    for q, marginal in enumerate(workload.marginals):
        if len(marginal) > 1 and set(marginal) <= set(group.columns):
            tables.append(_Table(marginal, values[workload.slice_of(marginal)], float(variance[q])))
    found, off = _nearest(group.as_usual, tables, workload.sizes, margins, rows)
    if group.usual is None:
        return found
    whole, less = _nearest(group, tables, workload.sizes, margins, rows)
    finest = int(np.argmax([workload.sizes[c] for c in group.columns]))
    free = sum(np.unique(each).size for each in np.delete(group.combinations, finest, axis=1).T)
    return whole if taken * (off - less) > _UNUSUAL * free else found


class _Table(NamedTuple):
    """Noisy counts over some columns of a group, flat, and the variance of one of them."""

    columns: tuple[int, ...]
    counts: FloatArray
    noise: float


def _nearest(
    group: Group, tables: Sequence[_Table], sizes: Sequence[int], margins: Sequence[FloatArray], rows: int
) -> tuple[Joint, float]:
    """Joint counts of all combinations alike; and the sum of squares that they leave of tables, in units of noise.

    Args:
        sizes: of all columns; ``margins``: see :func:`estimate`.
    """
    even = Joint(group, np.full(group.number, rows / group.number), 1.0)
    for grids in group.nests:
        even = even.moved(grids.columns[-1], margins[grids.columns[-1]])
    if not tables:
        return even, 0.0
    offsets = np.cumsum([0, *(table.counts.size for table in tables)])
    cells = np.stack([_cells(group, table.columns, [sizes[c] for c in table.columns]) for table in tables])
    cells += offsets[:-1, None]
    precision, wanted = np.array([1 / table.noise for table in tables]), np.concatenate([t.counts for t in tables])
    prior = _PRIOR * group.number / rows
    counts = _descend(cells, wanted, precision, np.maximum(even.counts, _LEAST), prior)
    inner = np.array([len(table.columns) > 1 for table in tables])
    within = precision[inner] if inner.any() else precision
    left = np.bincount(cells.ravel(), weights=np.tile(counts, len(tables)), minlength=wanted.size)
    off = float(np.repeat(precision, np.diff(offsets)) @ (left - wanted) ** 2)
    return Joint(group, np.asarray(counts * (rows / counts.sum())), float(1 / within.sum())), off


def possible(group: Group, marginal: Sequence[int], shape: Sequence[int]) -> FloatArray:
    """1 in the cells of a table that the group allows, 0 in others, flat."""
    shared = [c for c in marginal if c in group.columns]
    sizes = [size for c, size in zip(marginal, shape, strict=True) if c in shared]
    mask = (_summed(group, np.ones(group.number), shared, sizes) > 0).astype(np.float64)
    view = [size if c in shared else 1 for c, size in zip(marginal, shape, strict=True)]
    return np.asarray(np.broadcast_to(mask.reshape(view), shape).reshape(-1))


def came(joint: Joint, group: Group, new: float, expected: Mapping[int, FloatArray]) -> Joint:
    """The same later, where a group may allow more, and so many rows have come: with codes as they are expected.

    Combinations of one code are equally likely. Of columns of which nothing is expected, what comes is as what was.

    Args:
        expected: shares of codes among the rows that came, by column.
    """
    group = group if joint.group.usual is not None else group.as_usual
    at, counts = group.among(joint.group.combinations), np.zeros(group.number)
    counts[at[at >= 0]] = joint.counts[at >= 0]
    if new > 0 and (told := expected.keys() & {*group.columns}):
        c = max(told, key=lambda c: (expected[c].size, -c))
        counts += new * spread(group, c, expected[c])
    return joint._replace(group=group, counts=counts)


def spread(group: Group, column: int, counts: FloatArray) -> FloatArray:
    """Counts of a column's codes, in equal parts for the usual combinations of each, shape ``(combinations,)``."""
    codes = group.combinations[:, group.columns.index(column)]
    usual = np.ones(group.number) if group.usual is None else group.usual.astype(np.float64)
    return usual * (counts / np.maximum(np.bincount(codes, weights=usual, minlength=counts.size), 1.0))[codes]


def evened_margins(
    groups: Sequence[Group], counts: Sequence[FloatArray], noises: Sequence[float]
) -> tuple[list[FloatArray], list[float]]:
    """Counts of each column's codes, evened among those that rows may have, and the variance that is left of one.

    Grids are left as they are, since coarser grids tell of their cells; and grids tell nothing of districts here.
    """
    of, grids = {c: group for group in groups for c in group.columns}, grids_of(groups)
    calm, left = list(counts), list(noises)
    for c in {*range(len(counts))} - grids:
        allowed = np.unique(of[c].combinations[:, of[c].columns.index(c)]) if c in of else None
        outline = outlined(of[c], c, counts) if c in of and not of[c].nests else None
        calm[c], left[c] = evened(counts[c], noises[c], allowed, outline)
    return calm, left


def outlined(group: Group, column: int, counts: Sequence[FloatArray]) -> FloatArray | None:
    """What those columns of a group that have fewer codes say of one: in equal parts, but for their counts, shape
    ``(codes,)``; ``None`` if there are none. Source: iterative proportional fitting (Deming and Stephan 1940).
    """
    size = counts[column].size
    coarser = sorted((c for c in group.columns if counts[c].size < size), key=lambda c: (counts[c].size, c))
    if not coarser:
        return None
    found = Joint(group, spread(group, column, np.ones(size)), 1.0)
    for c in _TURNS * coarser:
        found = found.moved(c, np.maximum(counts[c], 0.0))
    return found.table((column,), (size,))


def use_margins(joints: Sequence[Joint], *margins: list[FloatArray]) -> None:
    """Put the margins of joint counts in the place of others."""
    for joint in joints:
        for c in joint.group.columns:
            for found in margins:
                found[c] = joint.table((c,), found[c].shape)


def nearer(joint: Joint, start: CodeArray, rows: int, pull: float) -> Joint:
    """Joint counts moved to those of the rows before, as margins are."""
    before = joint.of_rows(start) * (rows / len(start))
    counts = blend(before, joint.counts, joint.noise, pull, joint.group.number - 1)
    return joint._replace(counts=simplex(counts, float(rows)))


def with_news(
    joint: Joint, said: Mapping[int, tuple[FloatArray, float]], most: float, rows: int, *, by_cell: bool
) -> Joint:
    """Joint counts of so many rows, moved by what tables of one column say, as far as noise does not explain it.

    Columns of few codes come first: a fine grid need only say what coarser ones have not. Each sweep moves what the one
    before has moved away again (iterative proportional fitting; Deming and Stephan 1940).

    Args:
        said: by column its counts, and the variance of one of them.
        most: see :func:`standing_out`.
        by_cell: whether a combination is taken to change the less the fewer there are.
    """
    whole, number = float(joint.counts.sum()), joint.group.number
    joint = joint._replace(counts=joint.counts * (rows / whole) if whole >= 1 else np.full(number, rows / number))
    for c in _TURNS * sorted(said.keys() & {*joint.group.columns}, key=lambda c: (said[c][0].size, c)):
        news, noise = said[c]
        now = joint.table((c,), news.shape)
        gap = news + (rows - news.sum()) / news.size - now
        joint = joint.moved(c, simplex(now + standing_out(gap, noise, most, now if by_cell else None), float(rows)))
    return joint


def lowered(
    joints: list[Joint], counts: Sequence[FloatArray], noises: Sequence[float], margins: Sequence[FloatArray], rows: int
) -> list[Joint]:
    """Joint counts that hold no more of codes that may be nothing but noise than columns without a constraint would.

    Grids of a place are left alone: what their cells hold is told by coarser ones.

    Args:
        counts, noises: see :func:`synthstream.fit.rare.possible_margins`.
        margins: of all columns, as rows can have them.
    """
    plain = [joint for joint in joints if not joint.group.nests]
    if not plain:
        return joints
    nearest = list(margins)
    use_margins(plain, nearest)
    left = possible_margins(counts, noises, rows, nearest=nearest)
    return [j if j.group.nests else with_joint_margins(j, left, {*j.group.columns}) for j in joints]


def with_joint_margins(joint: Joint, margins: Sequence[FloatArray], columns: set[int]) -> Joint:
    """Joint counts with given margins of some columns; that of fewest codes is last, and exact.

    Drawn to the rows before combination by combination, what moves a whole margin drowns in the noise of these. Margins
    of many codes are drawn to the rows before most of all, so each sweep leaves out those of one column more.
    """
    order = sorted(columns & {*joint.group.columns}, key=lambda c: (-margins[c].size, c))
    for c in (c for k in range(len(order)) for c in order[min(k, len(order) - 2) :]):
        joint = joint.moved(c, margins[c] * (float(joint.counts.sum()) / max(float(margins[c].sum()), SMALLEST)))
    return joint


def use_tables(joint: Joint, workload: Workload, cells: FloatArray, rows: int) -> None:
    """Tables within a group are those of its joint counts; others that hold two of its columns are 0 where it is."""
    for marginal, shape in zip(workload.marginals, workload.shapes, strict=True):
        part, shared = workload.slice_of(marginal), set(marginal) & set(joint.group.columns)
        if len(shared) > 1 and len(shared) == len(marginal):
            cells[part] = joint.table(marginal, shape)
        elif len(shared) > 1:
            left = np.maximum(cells[part], 0.0) * possible(joint.group, marginal, shape)
            cells[part] = left * (rows / max(left.sum(), SMALLEST))


def _cells(group: Group, columns: Sequence[int], shape: Sequence[int]) -> IntArray:
    """In which cell of a table of some of its columns each combination lies."""
    codes = [group.combinations[:, group.columns.index(c)].astype(np.int64) for c in columns]
    return np.asarray(np.ravel_multi_index(tuple(codes), tuple(shape)), dtype=np.int64)


def _summed(group: Group, counts: FloatArray, columns: Sequence[int], shape: Sequence[int]) -> FloatArray:
    found = np.bincount(_cells(group, columns, shape), weights=counts, minlength=int(np.prod(shape)))
    return np.asarray(found, dtype=np.float64)


@numba.njit(cache=True, nogil=True)
def _descend(cells, wanted, precision, start, prior):  # type: ignore[no-untyped-def]
    """Coordinate descent from counts to start with, combination by combination, each exactly."""
    tables, number = cells.shape
    counts = start.copy()
    gap = -wanted
    for t in range(tables):
        for k in range(number):
            gap[cells[t, k]] += start[k]
    total = precision.sum()
    pull = prior / total
    for _ in range(max(10, min(_SWEEPS, _STEPS // number))):
        largest = 0.0
        for k in range(number):
            slope = 0.0
            for t in range(tables):
                slope += precision[t] * gap[cells[t, k]]
            new = _balance(counts[k] - slope / total, pull, start[k])
            step = new - counts[k]
            if step != 0.0:
                counts[k] = new
                largest = max(largest, abs(step))
                for t in range(tables):
                    gap[cells[t, k]] += step
        if largest < _STILL:
            break
    return counts


@numba.njit(cache=True, inline="always")
def _balance(free, pull, start):  # type: ignore[no-untyped-def]
    """The x above 0 with x + pull log(x / start) = free, by Newton's method in the logarithm from above."""
    log = np.log(free / start) if free > start else min(0.0, free / pull)
    for _ in range(30):
        if log < -60.0:
            break
        grown = start * np.exp(log)
        step = (grown + pull * log - free) / (grown + pull)
        log -= step
        if step < 1e-6:
            break
    return start * np.exp(max(log, -60.0))
