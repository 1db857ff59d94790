"""What a calibrated junction tree is asked for: any marginal, and integer rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from synthstream.papers.fit.junction import Clique, Junction
from synthstream.workload import CodeArray, FloatArray, IntArray


class TreeTables:
    """Probabilities of a junction tree's tables.

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
