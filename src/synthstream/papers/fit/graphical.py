"""Graphical models over coded columns: marginals, workloads and rows of a junction tree.

Marginal-based inference is due to McKenna, Sheldon and Miklau 2019 (Private-PGM).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.papers.fit.belief_propagation import Calibrated
from synthstream.papers.fit.junction import Clique, Junction, cells_of, junction
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Graphical:
    """A distribution over all combinations of codes, proportional to the exponential of a sum of potentials.

    Args:
        total: number of rows that the model stands for; 0 makes all tables zero.
        cliques: columns of each potential, strictly increasing, none twice. Columns in none are uniform.
        potentials: one for each clique, in the shape of its columns' sizes.

    Example:
        >>> Graphical.uniform((2, 3), 12.0).table((1,)).tolist()
        [4.0, 4.0, 4.0]
    """

    sizes: tuple[int, ...]
    total: float
    cliques: tuple[Clique, ...]
    potentials: tuple[FloatArray, ...]

    @classmethod
    def uniform(cls, sizes: Sequence[int], total: float) -> Graphical:
        """All combinations of codes alike, ``total`` rows."""
        return cls(sizes=tuple(sizes), total=max(float(total), 0.0), cliques=(), potentials=())

    def scaled(self, total: float) -> Graphical:
        """The same distribution with another number of rows; below 0 counts as 0."""
        model = replace(self, total=max(float(total), 0.0))
        # What has been computed holds for any total.
        model.__dict__.update({key: self.__dict__[key] for key in ("_tables",) if key in self.__dict__})
        return model

    def table(self, columns: Sequence[int]) -> FloatArray:
        """Expected counts of any marginal, in the shape of its columns' sizes."""
        wanted = tuple(sorted(columns))
        table = self._tables.marginal(wanted, {}) * self.total
        return np.array(np.transpose(table, [wanted.index(c) for c in columns]), order="C")

    def answers(self, workload: Workload) -> FloatArray:
        """Expected counts over all cells of a workload, shape ``(workload.cells,)``.

        What marginals have in common is computed once: some milliseconds for all pairs of 14 columns.
        """
        memory: dict[Any, FloatArray] = {}
        parts = [self._tables.marginal(marginal, memory).reshape(-1) for marginal in workload.marginals]
        return np.concatenate([*parts, np.zeros(0)]) * self.total

    def rows(self, n: int, rng: np.random.Generator) -> CodeArray:
        """Integer rows: int32 codes, shape ``(n, columns)``; no rows if the total is 0.

        Rows are assigned table by table down the junction tree. Among the rows that agree on what a table shares with
        its parent, each combination of its other columns gets its expected number, rounded down or up: the remainder
        is drawn systematically (Madow 1949), so that the mean of each count is the expected one.
        """
        return draw(self._tables, n if self.total > 0 else 0, rng)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What ``from_arrays`` needs, for ``numpy.savez``: potentials and columns flat, with the lengths of parts."""
        return {
            "total": np.array(self.total),
            "columns": np.array([c for clique in self.cliques for c in clique], dtype=np.int64),
            "lengths": np.array([len(clique) for clique in self.cliques], dtype=np.int64),
            "potentials": np.concatenate([np.zeros(0), *(p.reshape(-1) for p in self.potentials)]),
        }

    @classmethod
    def from_arrays(cls, sizes: Sequence[int], arrays: Mapping[str, NDArray[Any]]) -> Graphical:
        """The model whose ``arrays()`` these are."""
        sizes = tuple(sizes)
        columns = np.split(arrays["columns"], np.cumsum(arrays["lengths"]))[:-1]
        cliques = tuple(tuple(part.tolist()) for part in columns)
        flat = np.asarray(arrays["potentials"], dtype=np.float64)
        parts = np.split(flat, np.cumsum([cells_of(sizes, clique) for clique in cliques], dtype=np.int64))[:-1]
        shaped = (part.reshape([sizes[c] for c in clique]) for part, clique in zip(parts, cliques, strict=True))
        return cls(sizes=sizes, total=float(arrays["total"]), cliques=cliques, potentials=tuple(shaped))

    @cached_property
    def _tables(self) -> TreeTables:
        """Calibrated tables of the junction tree."""
        tree = junction(self.sizes, self.cliques)
        calibrated = Calibrated(tree, tree.attach(self.cliques))
        calibrated.evaluate(np.concatenate([np.zeros(0), *(p.reshape(-1) for p in self.potentials)]))
        return TreeTables(tree, calibrated.given, calibrated.joint)


class TreeTables:
    """Probabilities of a calibrated junction tree's tables, which is asked for any marginal.

    Args:
        given: probabilities given the separator towards the parent, flat.
        joint: probabilities, flat.
    """

    def __init__(self, tree: Junction, given: FloatArray, joint: FloatArray) -> None:
        self.tree = tree
        shapes = [tuple(tree.sizes[c] for c in clique) for clique in tree.cliques]
        cuts = tree.layout.cells[1:-1]
        self.given = [part.reshape(shape) for part, shape in zip(np.split(given, cuts), shapes, strict=True)]
        self.joint = [part.reshape(shape) for part, shape in zip(np.split(joint, cuts), shapes, strict=True)]

    def marginal(self, columns: Clique, memory: dict[Any, FloatArray]) -> FloatArray:
        """Probabilities of some columns, increasing. ``memory`` holds parts that other marginals may share."""
        top, wanted = 0, set(columns)
        while not wanted <= set(self.tree.cliques[top]):
            lower = [k for k in self.tree.children[top] if wanted <= self.tree.below[k]]
            if not lower:
                break
            top = lower[0]
        return self._part(top, columns, True, memory)

    def _part(self, c: int, wanted: Clique, joint: bool, memory: dict[Any, FloatArray]) -> FloatArray:
        """Probabilities of columns at or below table ``c``, joint, or given its separator whose columns come with them.

        ``wanted`` holds no column of the separator unless they are joint. The result's columns are increasing.
        """
        key = (c, wanted, joint)
        if key in memory:
            return memory[key]
        tree = self.tree
        out = set(wanted) if joint else {*wanted, *tree.separators[c]}
        missing = [column for column in wanted if column not in tree.cliques[c]]
        needed = [k for k in tree.children[c] if any(column in tree.below[k] for column in missing)]
        if not needed:
            table = _sum(self.joint[c] if joint else self.given[c], tree.cliques[c], tuple(sorted(out)))
        else:
            # One child after the other, the last one taken off the problem that is left: parts are shared that way.
            last = needed[-1]
            theirs = tuple(column for column in missing if column in tree.below[last])
            separator = tree.separators[last]
            rest = tuple(sorted((out - set(theirs)) | set(separator)))
            ours = rest if joint else tuple(column for column in rest if column not in tree.separators[c])
            left = self._part(c, ours, joint, memory)
            right = self._part(last, theirs, False, memory)
            table = _product(left, rest, right, tuple(sorted({*separator, *theirs})), tuple(sorted(out)))
        memory[key] = table
        return table


def _sum(table: FloatArray, columns: Clique, wanted: Clique) -> FloatArray:
    if columns == wanted:
        return table
    return np.asarray(table.sum(axis=tuple(a for a, column in enumerate(columns) if column not in wanted)))


def _product(left: FloatArray, ours: Clique, right: FloatArray, theirs: Clique, out: Clique) -> FloatArray:
    """The product of two tables, summed over what they share and ``out`` does not hold."""
    both = [c for c in ours if c in theirs]
    batch, inner = [c for c in both if c in out], [c for c in both if c not in out]
    first, second = [c for c in ours if c not in theirs], [c for c in theirs if c not in ours]
    a = left.transpose([ours.index(c) for c in (*batch, *first, *inner)])
    b = right.transpose([theirs.index(c) for c in (*batch, *inner, *second)])
    outer, middle = a.shape[: len(batch) + len(first)], b.shape[len(batch) + len(inner) :]
    n = int(np.prod(b.shape[len(batch) : len(batch) + len(inner)], dtype=np.int64))
    groups = int(np.prod(outer[: len(batch)], dtype=np.int64))
    product = a.reshape(groups, -1, n) @ b.reshape(groups, n, -1)
    order = [*batch, *first, *second]
    return np.ascontiguousarray(product.reshape(*outer, *middle).transpose([order.index(c) for c in out]))


def draw(tables: TreeTables, n: int, rng: np.random.Generator) -> CodeArray:
    """Rows down the tree, counts rounded among rows that agree on the separator; int32, shape ``(n, columns)``."""
    tree, codes = tables.tree, np.zeros((n, len(tables.tree.sizes)), dtype=np.int32)
    for given, clique, separator in zip(tables.given, tree.cliques, tree.separators, strict=True):
        new = tuple(column for column in clique if column not in separator)
        if n == 0 or not new:
            continue
        table = given.transpose([clique.index(column) for column in (*separator, *new)])
        shape = tuple(tree.sizes[column] for column in new)
        table = np.ascontiguousarray(table.reshape(-1, int(np.prod(shape, dtype=np.int64))))
        group = _index(codes, separator, tree.sizes)
        order = rng.permutation(n)
        order = order[np.argsort(group[order], kind="stable")]
        values = _assign(table, np.bincount(group, minlength=len(table)), rng.random(len(table)))
        for column, code in zip(new, np.unravel_index(values, shape), strict=True):
            codes[order, column] = code
    return codes


def _index(codes: CodeArray, columns: Sequence[int], sizes: tuple[int, ...]) -> IntArray:
    """Cell of each row in the table of some columns."""
    out = np.zeros(len(codes), dtype=np.int64)
    for column in columns:
        out = out * sizes[column] + codes[:, column]
    return out


@numba.njit(cache=True, nogil=True)
def _assign(table, counts, starts):  # type: ignore[no-untyped-def]
    """For each line of ``table`` as many cells as ``counts`` says, by systematic sampling; line after line."""
    out = np.empty(counts.sum(), dtype=np.int64)
    at = 0
    for line in range(table.shape[0]):
        if counts[line] == 0:
            continue
        end, reached, last = at + counts[line], 0.0, 0
        first = at
        for cell in range(table.shape[1]):
            if table[line, cell] > 0:
                last = cell
                reached += table[line, cell] * counts[line]
                until = min(end, first + np.int64(np.floor(reached + starts[line])))
                while at < until:
                    out[at] = cell
                    at += 1
        while at < end:
            out[at] = last
            at += 1
    return out
