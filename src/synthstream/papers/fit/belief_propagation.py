"""Belief propagation: from log-potentials to a junction tree's probabilities.

Messages go to the root in logarithms, the largest taken out for each cell of the separator, so that no potential is too
large or too small. What is left in a table then are probabilities given its separator; the pass down only multiplies.
"""

from __future__ import annotations

import numba
import numpy as np

from synthstream.papers.fit.junction import Hosted, Junction
from synthstream.workload import FloatArray

# Sums may be reordered, which lets them be vectorised; nothing else about floating point is relaxed.
_FAST = {"reassoc", "contract"}


@numba.njit(cache=True, inline="always")
def _part(flat, starts, table):  # type: ignore[no-untyped-def]
    """What belongs to one table."""
    return flat[starts[table] : starts[table + 1]]


@numba.njit(cache=True, inline="always")
def _advance(digits, shape, steps, at):  # type: ignore[no-untyped-def]
    """Next combination of all columns but the last: where it lies in the smaller table."""
    for a in range(digits.size - 1, -1, -1):
        digits[a] += 1
        at += steps[a]
        if digits[a] < shape[a]:
            break
        at -= steps[a] * shape[a]
        digits[a] = 0
    return at


@numba.njit(cache=True, nogil=True)
def _add(table, shape, steps, small):  # type: ignore[no-untyped-def]
    """Add a smaller table to each cell of a larger one."""
    width, step = shape[-1], steps[-1]
    digits = np.zeros(shape.size - 1, dtype=np.int64)
    at = 0
    for start in range(0, table.size, width):
        for j in range(width):
            table[start + j] += small[at + j * step]
        at = _advance(digits, shape, steps, at)


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _sum(table, shape, steps, small):  # type: ignore[no-untyped-def]
    """Sums of a larger table's cells for each cell of a smaller one."""
    small[:] = 0.0
    width, step = shape[-1], steps[-1]
    digits = np.zeros(shape.size - 1, dtype=np.int64)
    at = 0
    for start in range(0, table.size, width):
        if step == 0:
            value = 0.0
            for j in range(width):
                value += table[start + j]
            small[at] += value
        else:
            for j in range(width):
                small[at + j] += table[start + j]
        at = _advance(digits, shape, steps, at)


@numba.njit(cache=True, nogil=True)
def _largest(table, shape, steps, small):  # type: ignore[no-untyped-def]
    """The largest of a larger table's cells for each cell of a smaller one."""
    small[:] = -np.inf
    width, step = shape[-1], steps[-1]
    digits = np.zeros(shape.size - 1, dtype=np.int64)
    at = 0
    for start in range(0, table.size, width):
        for j in range(width):
            small[at + j * step] = max(small[at + j * step], table[start + j])
        at = _advance(digits, shape, steps, at)


@numba.njit(cache=True, nogil=True)
def _scale(table, shape, steps, small):  # type: ignore[no-untyped-def]
    """Multiply each cell of a larger table by that of a smaller one."""
    width, step = shape[-1], steps[-1]
    digits = np.zeros(shape.size - 1, dtype=np.int64)
    at = 0
    for start in range(0, table.size, width):
        for j in range(width):
            table[start + j] *= small[at + j * step]
        at = _advance(digits, shape, steps, at)


@numba.njit(cache=True)
def _host(layout, attached, tables, q):  # type: ignore[no-untyped-def]
    """The table of the tree that holds a smaller one, its shape, and steps in the smaller one."""
    c = attached.host[q]
    steps = _part(attached.steps, attached.maps, q)
    return _part(tables, layout.cells, c), _part(layout.shape, layout.axes, c), steps


@numba.njit(cache=True)
def _above(layout, tables, c):  # type: ignore[no-untyped-def]
    """The parent of a table, its shape, and steps in the separator between them."""
    parent = layout.parent[c]
    return (
        _part(tables, layout.cells, parent),
        _part(layout.shape, layout.axes, parent),
        _part(layout.up, layout.ups, c),
    )


@numba.njit(cache=True, nogil=True)
def _attach(layout, attached, small, tables):  # type: ignore[no-untyped-def]
    """Add smaller tables to the tables of the tree that hold them."""
    for q in range(attached.host.size):
        table, shape, steps = _host(layout, attached, tables, q)
        _add(table, shape, steps, _part(small, attached.cells, q))


@numba.njit(cache=True, nogil=True)
def _project(layout, attached, tables, small):  # type: ignore[no-untyped-def]
    """Sum the tables of the tree to smaller ones."""
    for q in range(attached.host.size):
        table, shape, steps = _host(layout, attached, tables, q)
        _sum(table, shape, steps, _part(small, attached.cells, q))


@numba.njit(cache=True, nogil=True)
def _condition(layout, tables, messages):  # type: ignore[no-untyped-def]
    """From log-potentials to probabilities given the separator, in place.

    ``messages`` is filled with log-messages, those of the separators towards the root.
    """
    buffer = np.empty_like(messages)
    for c in range(layout.parent.size - 1, -1, -1):
        table = _part(tables, layout.cells, c)
        shape, steps = _part(layout.shape, layout.axes, c), _part(layout.own, layout.axes, c)
        message = _part(messages, layout.seps, c)
        small = _part(buffer, layout.seps, c)
        _largest(table, shape, steps, message)
        for s in range(message.size):
            small[s] = -message[s]
        _add(table, shape, steps, small)
        for x in range(table.size):
            table[x] = np.exp(table[x])
        _sum(table, shape, steps, small)
        for s in range(message.size):
            message[s] += np.log(small[s])
            small[s] = 1.0 / small[s]
        _scale(table, shape, steps, small)
        if layout.parent[c] >= 0:
            host, axes, up = _above(layout, tables, c)
            _add(host, axes, up, message)


@numba.njit(cache=True, nogil=True)
def _marginals(layout, given, masses, tables):  # type: ignore[no-untyped-def]
    """Fill ``tables`` with probabilities and ``masses`` with those of the separators."""
    masses[0] = 1.0
    for c in range(layout.parent.size):
        mass = _part(masses, layout.seps, c)
        if layout.parent[c] >= 0:
            host, axes, up = _above(layout, tables, c)
            _sum(host, axes, up, mass)
        table = _part(tables, layout.cells, c)
        table[:] = _part(given, layout.cells, c)
        shape, steps = _part(layout.shape, layout.axes, c), _part(layout.own, layout.axes, c)
        _scale(table, shape, steps, mass)


class Calibrated:
    """The probabilities of one tree's tables at its current potentials.

    Args:
        attached: smaller tables, of which potentials and probabilities are given and asked for.
        base: log-potentials that stay as they are, over all cells of the tree; left out: none.
    """

    def __init__(self, tree: Junction, attached: Hosted, base: FloatArray | None = None) -> None:
        self.layout, self.attached, self.base = tree.layout, attached, base
        self.given = np.zeros(int(tree.layout.cells[-1]))
        self.joint = np.zeros_like(self.given)
        self._messages = np.zeros(int(tree.layout.seps[-1]))
        self._masses = np.zeros_like(self._messages)

    def spread(self, potentials: FloatArray) -> FloatArray:
        """The sum of all log-potentials over all cells of the tree, in ``given``."""
        self.given[:] = 0.0 if self.base is None else self.base
        _attach(self.layout, self.attached, potentials, self.given)
        return self.given

    def evaluate(self, potentials: FloatArray) -> FloatArray:
        """Probabilities of the smaller tables, flat; those of the tree are then in ``given`` and ``joint``."""
        _condition(self.layout, self.spread(potentials), self._messages)
        _marginals(self.layout, self.given, self._masses, self.joint)
        out = np.empty_like(potentials)
        _project(self.layout, self.attached, self.joint, out)
        return out
