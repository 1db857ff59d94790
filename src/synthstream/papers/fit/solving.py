"""The fit of a graphical model: from noisy tables to consistent ones, and from these to potentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from synthstream.papers.fit.descent import Calibrated, descend, match
from synthstream.papers.fit.exact import MOST, MOST_CELLS, nearest
from synthstream.papers.fit.junction import Clique, Junction, junction
from synthstream.workload import FloatArray

# Share of independent columns that is mixed into the tables: cells that are 0 at the optimum keep finite potentials.
_MIXED = 1e-9
# Weight of tables that are not measured, against the lightest of those that are, or so much of the heaviest: they are
# only kept near where they were, and moved on until they stay.
_LOOSE, _LIGHTEST, _MOVES = 1e-2, 1e-5, 100
# The general method starts with potentials at most so far below the largest of their table.
_DEEPEST = 10.0


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Measured tables, each once, as probabilities.

    Args:
        cliques: columns of each table, increasing, no table empty or twice.
        values: probabilities plus noise, moved to sum to 1, in the shape of each clique.
        weights: the largest 1.
    """

    sizes: tuple[int, ...]
    total: float
    cliques: tuple[Clique, ...]
    values: tuple[FloatArray, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(
        cls,
        sizes: tuple[int, ...],
        cliques: Sequence[Sequence[int]],
        values: Sequence[FloatArray],
        weights: Sequence[float] | FloatArray,
        total: float,
    ) -> Problem:
        """Check, bring columns into order, pool what was measured more than once."""
        if not sizes or min(sizes) < 1:
            raise ValueError("sizes: at least one column, each with at least one code")
        if not len(cliques) == len(values) == len(weights):
            raise ValueError(f"{len(cliques)} cliques, {len(values)} values and {len(weights)} weights do not fit")
        if not np.isfinite(total):
            raise ValueError(f"total: {total} is not finite")
        sums: dict[Clique, FloatArray] = {}
        heft: dict[Clique, float] = {}
        scale = float(np.max(weights)) if len(weights) else 1.0
        for columns, table, weight in zip(cliques, values, weights, strict=True):
            clique, ordered = _ordered(sizes, columns, table)
            if not (np.isfinite(weight) and weight > 0):
                raise ValueError(f"weights: {weight} is not a positive number")
            if clique:
                sums[clique] = sums.get(clique, np.zeros(ordered.shape)) + ordered * (weight / scale)
                heft[clique] = heft.get(clique, 0.0) + weight / scale
        total = max(float(total), 0.0)
        centred = [_centred(table / heft[clique] / (total or 1.0)) for clique, table in sums.items()]
        return cls(sizes=sizes, total=total, cliques=tuple(sums), values=tuple(centred), weights=tuple(heft.values()))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Sizes of each clique's columns."""
        return tuple(tuple(self.sizes[c] for c in clique) for clique in self.cliques)


def _ordered(sizes: tuple[int, ...], columns: Sequence[int], table: FloatArray) -> tuple[Clique, FloatArray]:
    """A table with its columns increasing, checked."""
    clique = tuple(sorted(int(c) for c in columns))
    if len(set(clique)) != len(clique) or (clique and not 0 <= clique[0] <= clique[-1] < len(sizes)):
        raise ValueError(f"cliques: {tuple(columns)} are not different columns of {len(sizes)}")
    array = np.asarray(table, dtype=np.float64)
    if array.shape != tuple(sizes[c] for c in columns):
        raise ValueError(f"values: shape {array.shape} does not fit the columns {tuple(columns)}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"values: not all finite for the columns {tuple(columns)}")
    return clique, array.transpose(np.argsort([int(c) for c in columns], kind="stable"))


def _centred(table: FloatArray) -> FloatArray:
    """Moved to sum to 1. All tables that the fit compares do, so that this changes the loss by a constant only."""
    return np.asarray(table + (1.0 - table.sum()) / table.size)


def solve(
    problem: Problem,
    held: list[FloatArray] | None,
    kept: Mapping[Clique, FloatArray],
    *,
    iterations: int,
    tolerance: float,
) -> list[FloatArray]:
    """Potentials of the measured cliques.

    Args:
        kept: potentials of other cliques, which stay.
    """
    start = [np.zeros(shape) for shape in problem.shapes] if held is None else held
    if problem.total == 0 or not problem.cliques:
        return start
    tree = junction(problem.sizes, problem.cliques)
    aims = _aims(tree, problem, tolerance)
    if aims is not None and not kept and all(len(c) == 1 or c in problem.cliques for c in tree.cliques):
        return _closed(tree, problem, aims)
    whole = junction(problem.sizes, (*problem.cliques, *kept))
    calibrated = Calibrated(whole, whole.attach(problem.cliques), held_fast(whole, kept))
    flat = np.concatenate([potential.reshape(-1) for potential in start])
    if aims is not None:
        flat = match(calibrated, flat, np.concatenate(aims), sweeps=iterations, tolerance=tolerance)
    else:
        values = np.concatenate([table.reshape(-1) for table in problem.values])
        weights = np.repeat(problem.weights, [table.size for table in problem.values])
        # Cells that were next to impossible would take many steps to come back.
        flat = np.concatenate([np.maximum(p, p.max() - _DEEPEST).reshape(-1) for p in start])
        flat = descend(calibrated, flat, values, weights, iterations=iterations, tolerance=tolerance)
    parts = np.split(flat, calibrated.attached.cells[1:-1])
    return [part.reshape(shape) for part, shape in zip(parts, problem.shapes, strict=True)]


def held_fast(tree: Junction, kept: Mapping[Clique, FloatArray]) -> FloatArray | None:
    """Log-potentials that stay, over all cells of the tree."""
    if not kept:
        return None
    calibrated = Calibrated(tree, tree.attach(list(kept)))
    calibrated.spread(np.concatenate([potential.reshape(-1) for potential in kept.values()]))
    return calibrated.given


def _aims(tree: Junction, problem: Problem, tolerance: float) -> list[FloatArray] | None:
    """The measured cliques' tables at the optimum, flat, all cells positive; None if there are too many constraints."""
    whole = tree.with_tables(problem.cliques)
    layout = whole.layout
    if layout.seps[-1] > MOST or layout.cells[-1] > MOST_CELLS:
        return None
    measured = dict(zip(problem.cliques, zip(problem.values, problem.weights, strict=True), strict=True))
    lengths = np.diff(layout.cells)
    # Isolated columns have nothing to fit; what they are held near is what they get, and any weight does.
    values = np.concatenate(
        [
            measured[c][0].reshape(-1) if c in measured else np.full(n, 1 / n)
            for c, n in zip(whole.cliques, lengths, strict=True)
        ]
    )
    light = _LOOSE * max(min(problem.weights), _LIGHTEST)
    weights = np.repeat([measured[c][1] if c in measured else light for c in whole.cliques], lengths)
    loose = np.repeat(np.array([c not in measured and len(c) > 1 for c in whole.cliques]), lengths)
    tables = _settled(whole, values, weights, loose, tolerance)
    if tables is None:
        return None
    parts = dict(zip(whole.cliques, np.split(tables, layout.cells[1:-1]), strict=True))
    return [_mixed(problem, clique, parts, whole) for clique in problem.cliques]


def _settled(
    tree: Junction, values: FloatArray, weights: FloatArray, loose: NDArray[np.bool_], tolerance: float
) -> FloatArray | None:
    """Solve; move loose tables' values to where they were held, until measured ones stay (proximal point method)."""
    values = values.copy()
    found = nearest(tree, values, weights, np.zeros(int(tree.layout.seps[-1])))
    for _ in range(_MOVES if np.any(loose) else 0):
        if found is None:
            break
        before, multipliers = found
        values[loose] = before[loose]
        found = nearest(tree, values, weights, multipliers)
        if found is not None and float(np.abs(found[0] - before)[~loose].max(initial=0.0)) <= 0.01 * tolerance:
            break
    return None if found is None else found[0]


def _mixed(problem: Problem, clique: Clique, parts: Mapping[Clique, FloatArray], tree: Junction) -> FloatArray:
    """A clique's table with a small share of independent columns, which leaves all of them consistent; flat."""
    independent = np.ones(())
    for column in clique:
        # The same table gives a column's margin to all of its cliques.
        host = tree.cliques[tree.host((column,))]
        table = parts[host].reshape(tuple(problem.sizes[c] for c in host))
        margin = table.sum(axis=tuple(a for a, c in enumerate(host) if c != column))
        size = problem.sizes[column]
        independent = np.multiply.outer(independent, (1 - _MIXED) * margin + _MIXED / size)
    return np.asarray((1 - _MIXED) * parts[clique] + _MIXED * independent.reshape(-1))


def _closed(tree: Junction, problem: Problem, aims: list[FloatArray]) -> list[FloatArray]:
    """Potentials where every table of the tree is measured: its logarithm less that of its separator."""
    found = {}
    for clique, separator in zip(tree.cliques, tree.separators, strict=True):
        if clique in problem.cliques:
            q = problem.cliques.index(clique)
            table = aims[q].reshape(problem.shapes[q])
            sums = table.sum(axis=tuple(a for a, c in enumerate(clique) if c not in separator), keepdims=True)
            found[clique] = np.log(table) - np.log(sums)
    return [found.get(c, np.zeros(shape)) for c, shape in zip(problem.cliques, problem.shapes, strict=True)]
