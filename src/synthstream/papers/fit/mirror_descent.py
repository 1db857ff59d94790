"""A few steps of mirror descent from a graphical model: for rounds, each of which begins where the last one ended.

Where a fit is only a stage, going all the way to the optimum (papers/fit/graphical.py) takes ten times as long for
figures that are the same in the third digit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from synthstream.papers.fit.descent import Calibrated, match
from synthstream.papers.fit.graphical import Graphical, assembled, carried
from synthstream.papers.fit.junction import Clique, junction
from synthstream.papers.fit.solving import Problem, held_fast
from synthstream.workload import FloatArray

# A step is as long as promises this share of what the gradient says (Armijo).
_SHARE, _HALVINGS = 0.25, 25

# Sweeps of proportional fitting over single columns, and the least share of a value.
_SWEEPS, _LEAST = 2, 1e-12


def towards(
    start: Graphical,
    cliques: Sequence[Sequence[int]],
    values: Sequence[FloatArray],
    total: float,
    *,
    steps: int,
    cap_mb: float,
) -> Graphical:
    """The model after some steps towards measured tables, all of one weight. Deterministic.

    Each step multiplies the distribution by exp(-length (table - measured)) of every measured table, which lessens the
    squared distance. All else about ``start`` stays: the potentials of tables that are not measured now are kept as far
    as ``cap_mb`` allows, the first ones first.

    Args:
        cliques: columns of each measured table, strictly increasing, none twice.
        values: noisy counts of each, in the shape of its columns' sizes; NaN for cells that were not measured.
        total: number of rows; 0 or less gives a model of zeros.
        steps: how many, 0 or more.
        cap_mb: largest size of the junction tree's tables in MB of float64.

    Raises:
        ModelTooLarge: the measured cliques alone need larger tables than ``cap_mb``.
        ValueError: shapes, columns or numbers that do not fit or are not finite.

    Source: McKenna, Sheldon, Miklau 2019, "Graphical-model based estimation and inference for differential privacy",
    algorithm 1; the kept part is ours.

    Example:
        >>> model = towards(Graphical.uniform((2, 3), 4.0), [(0,)], [np.array([3.0, 1.0])], 4.0, steps=50, cap_mb=1.0)
        >>> np.round(model.table((0,)), 2).tolist()
        [3.0, 1.0]
    """
    known = [np.isfinite(table) for table in values]
    filled = [np.where(here, table, 0.0) for table, here in zip(values, known, strict=True)]
    problem = Problem.of(start.sizes, cliques, filled, np.ones(len(cliques)), total)
    # Small tables first: of a large one a cell's noise hides most, and it takes the room of many.
    old = dict(sorted(zip(start.cliques, start.potentials, strict=True), key=lambda pair: pair[1].size))
    held, kept = carried(problem, old, True, cap_mb)
    potentials = held or [np.zeros(shape) for shape in problem.shapes]
    forgotten = [c for c in old if c not in kept and not any(set(c) <= set(new) for new in problem.cliques)]
    if forgotten:
        kept = _with_margins(start, problem, potentials, kept)
    if problem.total > 0 and problem.cliques:
        tree = junction(problem.sizes, (*problem.cliques, *kept))
        calibrated = Calibrated(tree, tree.attach(problem.cliques), held_fast(tree, kept))
        # Where all cells of a table are measured, what they add up to beside the total tells nothing.
        wanted = [
            table if np.all(here) else part / problem.total
            for table, part, here in zip(problem.values, filled, known, strict=True)
        ]
        potentials = _descended(calibrated, potentials, wanted, known, steps)
    return assembled(problem, potentials, kept)


def _with_margins(
    start: Graphical, problem: Problem, potentials: list[FloatArray], kept: dict[Clique, FloatArray]
) -> dict[Clique, FloatArray]:
    """Potentials to keep, and those of single columns that give each of them the margin that ``start`` has.

    By iterative proportional fitting: forgetting how two columns go together need not mean forgetting the columns.
    """
    singles = [(column,) for column in range(len(problem.sizes))]
    found = {**dict(zip(problem.cliques, potentials, strict=True)), **kept}
    tree = junction(problem.sizes, tuple(found))
    calibrated = Calibrated(tree, tree.attach(singles), held_fast(tree, found))
    one = start.scaled(1.0)
    targets = np.concatenate([np.maximum(one.table(single), _LEAST) for single in singles])
    fitted = match(calibrated, np.zeros_like(targets), targets, sweeps=_SWEEPS, tolerance=1e-6)
    parts = np.split(fitted, np.cumsum(problem.sizes)[:-1])
    margins = {single: kept.get(single, 0.0) + part for single, part in zip(singles, parts, strict=True)}
    return {**kept, **{single: part for single, part in margins.items() if single not in problem.cliques}}


def _descended(
    tree: Calibrated,
    potentials: list[FloatArray],
    wanted: list[FloatArray],
    known: list[NDArray[np.bool_]],
    steps: int,
) -> list[FloatArray]:
    """Potentials after some steps towards the cells of the wanted tables that are known."""
    weights = np.concatenate([here.reshape(-1) for here in known]).astype(np.float64)
    # No probability is further out than this; what is would only overflow.
    values = np.clip(np.concatenate([table.reshape(-1) for table in wanted]), -1e6, 1e6)
    now = np.concatenate([potential.reshape(-1) for potential in potentials])
    _, tables = tree.evaluate(now)
    length = 2.0
    for _ in range(steps):
        gradient = weights * (tables - values)
        loss = 0.5 * float((tables - values) @ gradient)
        for _ in range(_HALVINGS):
            after = now - length * gradient
            _, moved = tree.evaluate(after)
            if loss - 0.5 * float(weights @ (moved - values) ** 2) >= _SHARE * float(gradient @ (tables - moved)):
                break
            length *= 0.5
        else:
            break  # no step is short enough to gain anything that floats can show
        now, tables, length = after, moved, 2 * length
    parts = np.split(now, np.cumsum([potential.size for potential in potentials])[:-1])
    return [part.reshape(potential.shape) for part, potential in zip(parts, potentials, strict=True)]
