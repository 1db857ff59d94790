"""Junction trees: triangulation, tree, and where every table's cells lie. Nothing here depends on values.

Tables have their columns in increasing order and their cells in C order. So the last column of a table, if a smaller
table has it at all, is the last of that too, and one step along it is one step or none there: all loops rest on that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.workload import IntArray

Clique = tuple[int, ...]
_BYTES = 8


class Layout(NamedTuple):
    """Where cells lie, for the loops; tables are numbered so that a parent comes before its children.

    Args:
        cells: where each table starts in one flat vector, shape ``(tables + 1,)``.
        axes: where each table's columns start in ``shape`` and ``own``, shape ``(tables + 1,)``.
        shape: sizes of all tables' columns.
        parent: the table next on the way to the root, -1 for the root, shape ``(tables,)``.
        seps: where each table's separator starts in one flat vector, shape ``(tables + 1,)``.
        own: how far a step along each column of a table moves in the separator towards its parent.
        ups: where each table's part of ``up`` starts, shape ``(tables + 1,)``.
        up: how far a step along each column of the parent moves in the separator.
    """

    cells: IntArray
    axes: IntArray
    shape: IntArray
    parent: IntArray
    seps: IntArray
    own: IntArray
    ups: IntArray
    up: IntArray


class Hosted(NamedTuple):
    """Smaller tables and the tables of the tree that hold them, for the loops.

    Args:
        host: the table that holds each, shape ``(smaller,)``.
        cells: where each starts in one flat vector, shape ``(smaller + 1,)``.
        maps: where each one's part of ``steps`` starts, shape ``(smaller + 1,)``.
        steps: how far a step along each column of the host moves in the smaller table.
    """

    host: IntArray
    cells: IntArray
    maps: IntArray
    steps: IntArray


@dataclass(frozen=True)
class Junction:
    """A junction tree over all columns. A column in no clique has a table of its own.

    Args:
        cliques: columns of each table; a parent comes before its children.
        parents: position of each table's parent, -1 for the root.
    """

    sizes: tuple[int, ...]
    cliques: tuple[Clique, ...]
    parents: tuple[int, ...]

    @cached_property
    def separators(self) -> tuple[Clique, ...]:
        """Columns that each table shares with its parent; none for the root."""
        return tuple(
            tuple(c for c in clique if parent >= 0 and c in self.cliques[parent])
            for clique, parent in zip(self.cliques, self.parents, strict=True)
        )

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Positions of each table's children."""
        return tuple(tuple(k for k, p in enumerate(self.parents) if p == c) for c in range(len(self.cliques)))

    @cached_property
    def layout(self) -> Layout:
        """The loops' view of the tree."""
        own, up = [], []
        for clique, parent, separator in zip(self.cliques, self.parents, self.separators, strict=True):
            own.append(steps_of(self.sizes, clique, separator))
            up.append(steps_of(self.sizes, self.cliques[parent], separator) if parent >= 0 else [])
        return Layout(
            cells=_starts(cells_of(self.sizes, clique) for clique in self.cliques),
            axes=_starts(len(clique) for clique in self.cliques),
            shape=np.array([self.sizes[c] for clique in self.cliques for c in clique], dtype=np.int64),
            parent=np.array(self.parents, dtype=np.int64),
            seps=_starts(cells_of(self.sizes, separator) for separator in self.separators),
            own=_flat(own),
            ups=_starts(len(steps) for steps in up),
            up=_flat(up),
        )

    @cached_property
    def below(self) -> tuple[frozenset[int], ...]:
        """Columns of each table and of all tables below it."""
        out = [set(clique) for clique in self.cliques]
        for c in range(len(out) - 1, 0, -1):
            out[self.parents[c]] |= out[c]
        return tuple(frozenset(columns) for columns in out)

    def attach(self, cliques: Sequence[Clique]) -> Hosted:
        """Find the smallest table that holds each of some smaller ones."""
        order = sorted(range(len(self.cliques)), key=lambda c: cells_of(self.sizes, self.cliques[c]))
        hosts = [next(c for c in order if {*clique} <= {*self.cliques[c]}) for clique in cliques]
        steps = [steps_of(self.sizes, self.cliques[h], clique) for h, clique in zip(hosts, cliques, strict=True)]
        return Hosted(
            host=np.array(hosts, dtype=np.int64),
            cells=_starts(cells_of(self.sizes, clique) for clique in cliques),
            maps=_starts(len(s) for s in steps),
            steps=_flat(steps),
        )


def cells_of(sizes: Sequence[int], clique: Clique) -> int:
    """Number of cells of a table."""
    return math.prod(sizes[column] for column in clique)


def steps_of(sizes: Sequence[int], columns: Clique, smaller: Clique) -> list[int]:
    """How far a step along each of ``columns`` moves in a table over ``smaller``; 0 if it has no such column."""
    steps, step = {}, 1
    for column in reversed(smaller):
        steps[column] = step
        step *= sizes[column]
    return [steps.get(column, 0) for column in columns]


def _starts(lengths: Iterable[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(list(lengths))]).astype(np.int64)


def _flat(lists: Sequence[Sequence[int]]) -> IntArray:
    return np.array([x for steps in lists for x in steps], dtype=np.int64)


def model_megabytes(sizes: tuple[int, ...], cliques: Sequence[Clique]) -> float:
    """Size of a model's junction-tree tables in MB of float64, with our own elimination order.

    Some tens of microseconds for ten or twenty columns: nothing is built.
    """
    _, cells = _triangulate(sizes, cliques)
    return cells * _BYTES / 1e6


@lru_cache(maxsize=64)
def junction(sizes: tuple[int, ...], cliques: tuple[Clique, ...]) -> Junction:
    """The junction tree of some cliques, deterministic."""
    members, _ = _triangulate(sizes, cliques)
    tables = [tuple(int(c) for c in np.flatnonzero(row)) for row in members]
    # A spanning tree of the largest separators is a junction tree (Jensen and Jensen 1994); grown from the largest
    # table on, it lists parents before children. Small tables first where separators have as many columns.
    order = [max(range(len(tables)), key=lambda k: (cells_of(sizes, tables[k]), -k))]
    shared = members.astype(np.int64) @ members.astype(np.int64).T
    best, link = shared[order[0]].copy(), np.full(len(tables), 0)
    best[order[0]] = -1
    parents = [-1]
    for position in range(1, len(tables)):
        new = int(np.argmax(best))
        order.append(new)
        parents.append(int(link[new]))
        better = (shared[new] > best) & (best >= 0)
        best = np.where(better, shared[new], best)
        link[better] = position
        best[new] = -1
    return Junction(sizes, tuple(tables[k] for k in order), tuple(parents))


def _triangulate(sizes: tuple[int, ...], cliques: Sequence[Clique]) -> tuple[NDArray[np.bool_], float]:
    """Columns of each maximal clique of a triangulation, shape ``(tables, columns)``, and their cells together.

    Greedy elimination by two rules, of smallest table and of fewest new edges; the better result is taken.
    """
    adjacent = np.eye(len(sizes), dtype=np.bool_)
    for clique in cliques:
        for a in clique:
            for b in clique:
                adjacent[a, b] = True
    logs = np.log(np.array(sizes, dtype=np.float64))
    results = [_eliminate(adjacent.copy(), logs, rule) for rule in (0, 1)]
    members, cells = min(results, key=lambda result: float(result[1]))
    return members, float(cells)


@numba.njit(cache=True)
def _eliminate(adjacent, logs, rule):  # type: ignore[no-untyped-def]
    """Eliminate columns greedily; the maximal ones among the cliques that this makes, and their cells together."""
    columns = logs.size
    gone = np.zeros(columns, dtype=np.bool_)
    found = np.zeros((columns, columns), dtype=np.bool_)
    count, cells = 0, 0.0
    for _ in range(columns):
        best, best_cost, best_log = -1, np.inf, np.inf
        for v in range(columns):
            if gone[v]:
                continue
            log, fill = 0.0, 0
            for a in range(columns):
                if adjacent[v, a] and not gone[a]:
                    log += logs[a]
                    for b in range(a):
                        fill += adjacent[v, b] and not gone[b] and not adjacent[a, b]
            cost = log if rule == 0 else np.float64(fill)
            if cost < best_cost or (cost == best_cost and log < best_log):
                best, best_cost, best_log = v, cost, log
        clique = adjacent[best] & ~gone
        for a in range(columns):
            if clique[a]:
                adjacent[a] |= clique
        gone[best] = True
        held = False
        for k in range(count):
            held = held or not np.any(clique & ~found[k])
        if not held:
            found[count] = clique
            count += 1
            cells += np.exp(best_log)
    return found[:count], cells
