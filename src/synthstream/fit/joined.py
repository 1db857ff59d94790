"""Joint counts of columns that public constraints join, or a place: moved to margins, to what has changed, to the rows
before. :mod:`synthstream.fit.joints` has where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from synthstream.fit.changes import standing_out
from synthstream.fit.joints import Joint, possible
from synthstream.fit.rare import possible_margins
from synthstream.fit.targets import SMALLEST, blend, simplex
from synthstream.workload import CodeArray, FloatArray, Workload

# Joint counts are moved to margins so many times.
_SWEEPS = 3


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
    for c in _SWEEPS * sorted(said.keys() & {*joint.group.columns}, key=lambda c: (said[c][0].size, c)):
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
