"""The nearest consistent tables where every table of the junction tree is measured: a quadratic programme.

Tables are non-negative and agree on what neighbours share. Given a multiplier for each shared cell, the nearest such
tables have a closed form; what is left is concave in the multipliers, piecewise quadratic, and solved by semismooth
Newton steps (Qi and Sun 1993). They end exactly, after about ten, where steps on potentials only creep towards cells
that are zero at the optimum.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import splu

from synthstream.papers.fit.junction import Junction, steps_of
from synthstream.workload import FloatArray, IntArray

# More multipliers than this would make the systems slower than the general method; more cells of tables would
# take a multiple of the tables' memory for constraints.
MOST, MOST_CELLS = 2000, 2_000_000
_NEWTON, _HALVINGS, _ENOUGH = 200, 40, 1e-13


@lru_cache(maxsize=8)
def _constraints(tree: Junction) -> tuple[csr_array, csr_array]:
    """Sums of each table's cells over its separator less those of its parent's; of the root's: all cells.

    Shape ``(cells of separators, cells of tables)``; also transposed.
    """
    layout, rows, columns, signs = tree.layout, [], [], []
    for c, (clique, parent, separator) in enumerate(zip(tree.cliques, tree.parents, tree.separators, strict=True)):
        for table, columns_of, sign in ((c, clique, 1.0), (parent, tree.cliques[parent], -1.0)):
            if table >= 0:
                rows.append(layout.seps[c] + _places(tree.sizes, columns_of, separator))
                columns.append(np.arange(layout.cells[table], layout.cells[table + 1]))
                signs.append(np.full(columns[-1].size, sign))
    shape = (int(layout.seps[-1]), int(layout.cells[-1]))
    matrix = csr_array((np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))), shape=shape)
    return matrix, matrix.T.tocsr()


def _places(sizes: tuple[int, ...], columns: tuple[int, ...], smaller: tuple[int, ...]) -> IntArray:
    """Where each cell of a table lies in a smaller one."""
    out = np.zeros(1, dtype=np.int64)
    for column, step in zip(columns, steps_of(sizes, columns, smaller), strict=True):
        out = np.add.outer(out, np.arange(sizes[column]) * step).reshape(-1)
    return out


def nearest(
    tree: Junction, values: FloatArray, weights: FloatArray, multipliers: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Tables of probabilities ``p``, consistent, with the least ``sum(weights * (p - values)**2)``; all cells, flat.

    Args:
        tree: every table is measured.
        values: what was measured, over all cells of the tree.
        weights: positive, shape as ``values``.
        multipliers: of the shared cells, where to start, shape ``(cells of separators,)``.

    Returns:
        The tables and their multipliers; None if Newton's method did not get there, which only values far
        outside of all proportion make happen.
    """
    constraints, transposed = _constraints(tree)
    aim = np.zeros(constraints.shape[0])
    aim[0] = 1.0
    tables = np.maximum(values - (transposed @ multipliers) / weights, 0.0)
    excess = constraints @ tables - aim
    for _ in range(_NEWTON):
        if np.abs(excess).max() <= _ENOUGH:
            return tables, multipliers
        system = (constraints * (np.where(tables > 0, 1.0, 0.0) / weights)) @ transposed
        top = float(system.diagonal().max())
        system = system + eye_array(aim.size) * (1e-11 * top if top > 0 else 1.0)
        # Symmetric and positive: no pivoting. Not by LAPACK, whose threads take long where cores are shared.
        factors = splu(
            system.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
        step = factors.solve(excess)
        slope, share = float(step @ excess), 1.0
        for _ in range(_HALVINGS):
            tables = np.maximum(values - (transposed @ (multipliers + share * step)) / weights, 0.0)
            excess = constraints @ tables - aim
            # Concave along the step: still rising, or not falling faster than it rose, is far enough and not too far.
            if float(step @ excess) >= -0.5 * slope:
                break
            share *= 0.5
        multipliers = multipliers + share * step
    return (tables, multipliers) if np.abs(excess).max() <= 1e-9 else None
