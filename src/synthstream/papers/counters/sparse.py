"""Counts of rare arrivals: a node's count is released when noise says that enough has come (Algorithm 2 of the paper).

All nodes that exist in one level of time are counted at once. Time is cut into segments: a segment ends before the
first step at which its count plus noise exceeds a noisy threshold. Ended segments are the ticks of a binary tree
counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from synthstream.kernel.counters.base import State, rounded_up
from synthstream.kernel.gate import Gate
from synthstream.papers.comparisons import Comparisons
from synthstream.workload import FloatArray, IntArray


class Arrivals(NamedTuple):
    """What comes to each node in some steps of time.

    Args:
        starts: int64, shape ``(nodes + 1,)``: node i has the moments from ``starts[i]`` up to ``starts[i + 1]``.
        moments: int64, the step at which each arrives, non-decreasing within a node.
    """

    steps: int
    starts: IntArray
    moments: IntArray

    def __repr__(self) -> str:
        return "Arrivals(private)"


@dataclass(frozen=True, kw_only=True)
class Sparse:
    """Running counts of many nodes over ``horizon`` steps, each renewed only when enough has come to its node.

    At a step, the node's comparison comes first, then its arrivals. When a comparison fails, the segment ends without
    the step's arrivals, and the new one is compared at the same step. At most ``horizon`` segments end, because the
    tree covers no more; after that the node's count no longer changes.

    Privacy:
        Unit        one arrival at one node; neighbours: add-remove
        Cost        2 / scale: 1 / scale for when segments end, 1 / scale for what they held
        Theorem     hypercube, nodes, passes
        Trusts      the steps are public, and the state stays secret
    Accuracy:       the open segment's count, about ``threshold`` at most, is missing; the rest has the binary counter's
                    noise over as many ticks as segments have ended
    Time, memory:   O(nodes + arrivals) per call and round of firing; the tree has rows for segments that ended only
    Reference:      Dwork, Naor, Reingold, Rothblum 2015, "Pure Differential Privacy for Rectangle Queries"; He,
                    Vershynin, Zhu 2024, Algorithm 2

    Args:
        horizon: number of steps, at least 1.
        scale: of the noise of thresholds and comparisons, and multiplier of the tree; float64, shape ``(nodes,)``.
        threshold: of a segment's count, before noise; int64, shape ``(nodes,)``.
    """

    horizon: int
    scale: FloatArray
    threshold: IntArray

    def init(self, gate: Gate) -> State:
        """The state before the first step: the noise of each first threshold is drawn here."""
        zeros = np.zeros(self.scale.size, dtype=np.int64)
        none = np.zeros((0, self.scale.size), dtype=np.int64)
        noise = gate.noise(zeros.size, scale=self.scale)
        return {"room": self.threshold + noise, "segment": zeros, "ended": zeros, "exact": none, "noisy": none}

    def step(self, before: State, arrivals: Arrivals, gate: Gate) -> State:
        """Go on by ``arrivals.steps`` steps, to another state.

        Noise is drawn afresh for each comparison, so nothing is kept of those that passed. Which nodes are looked at
        again, and how often, follows from the gate's answers.
        """
        state = before | {"segment": before["segment"].copy()}
        active = np.flatnonzero(state["ended"] < self.horizon)
        reached, seen = np.zeros_like(active), _at(arrivals.starts[:-1], active).copy()
        while active.size:
            room = _at(state["room"], active) - _at(state["segment"], active)
            margins, repeats, starts = _runs(arrivals, active, reached, seen, room)
            reached = reached + gate.answer(Comparisons(margins, _at(self.scale, active), repeats, starts))
            _add(state["segment"], arrivals, active, reached, seen)
            fired = np.flatnonzero(reached < arrivals.steps)
            if not fired.size:
                break
            if state["ended"] is before["ended"]:  # the rest is copied only if it changes, which is seldom
                state |= {name: array.copy() for name, array in before.items() if name != "segment"}
            active = active[fired]
            self._end(state, active, gate)
            going = np.flatnonzero(state["ended"][active] < self.horizon)
            active, reached, seen = active[going], reached[fired][going], seen[fired][going]
        return state

    def _end(self, state: State, nodes: IntArray, gate: Gate) -> None:
        """End the open segments of some nodes: feed the tree, and draw new thresholds. Changes the state."""
        state["ended"][nodes] += 1
        number = state["ended"][nodes]
        # The span that a tick completes has the length of the largest power of two that divides the tick's number.
        row = np.bitwise_count((number & -number) - 1).astype(np.int64)
        missing = int(row.max()) + 1 - len(state["exact"])
        if missing > 0:
            more = np.zeros((missing, self.scale.size), dtype=np.int64)
            state["exact"] = np.concatenate([state["exact"], more])
            state["noisy"] = np.concatenate([state["noisy"], more])
        exact = state["segment"][nodes]
        for shorter in range(int(row.max())):
            part = nodes[row > shorter]
            exact[row > shorter] += state["exact"][shorter, part]
            state["exact"][shorter, part] = 0
            state["noisy"][shorter, part] = 0
        state["exact"][row, nodes] = exact
        state["noisy"][row, nodes] = gate.laplace(exact, scale=self.tree_scale(self.scale[nodes]))
        state["segment"][nodes] = 0
        noise = gate.noise(nodes.size, scale=self.scale[nodes])
        state["room"][nodes] = self.threshold[nodes] + noise

    def tree_scale(self, scale: FloatArray) -> FloatArray:
        """Scale of the noise of a span of segments, for nodes of a scale: that of ``Binary`` over ``horizon`` ticks."""
        return rounded_up(self.horizon.bit_length() * scale)


def _at(array: NDArray[Any], nodes: IntArray) -> NDArray[Any]:
    """The values of some nodes; no copy if these are all, which they are in the first round."""
    return array if nodes.size == array.size else array[nodes]


def arrivals_at(cells: IntArray, moments: IntArray, *, steps: int, depth: int, levels: int) -> Arrivals:
    """Arrivals at the nodes of levels 1 to ``levels``, level by level, from the cells at level ``depth`` they come to.

    Example:
        >>> cells, moments = np.array([3, 0, 2]), np.array([0, 1, 2])
        >>> arrivals_at(cells, moments, steps=3, depth=2, levels=1).moments.tolist()
        [1, 0, 2]
    """
    return Arrivals(steps, *_by_node(cells, moments, depth, levels))


@numba.njit(cache=True, nogil=True)
def _by_node(cells, moments, depth, levels):  # type: ignore[no-untyped-def]
    starts = np.zeros(2 ** (levels + 1) - 1, dtype=np.int64)
    for level in range(1, levels + 1):
        for i in range(cells.size):
            starts[2**level - 1 + (cells[i] >> (depth - level))] += 1
    for node in range(1, starts.size):
        starts[node] += starts[node - 1]
    place = starts[:-1].copy()
    out = np.empty(cells.size * levels, dtype=np.int64)
    for level in range(1, levels + 1):
        for i in range(cells.size):
            node = 2**level - 2 + (cells[i] >> (depth - level))
            out[place[node]] = moments[i]
            place[node] += 1
    return starts, out


@numba.njit(cache=True, nogil=True)
def _runs(arrivals, active, reached, seen, room):  # type: ignore[no-untyped-def]
    """Paths of comparisons of some nodes, from step ``reached`` and arrival ``seen`` on."""
    starts = np.zeros(active.size + 1, dtype=np.int64)
    for i in range(active.size):
        starts[i + 1] = starts[i] + arrivals.starts[active[i] + 1] - seen[i] + 1
    margins = np.empty(starts[-1], dtype=np.int64)
    repeats = np.empty(starts[-1], dtype=np.int64)
    for i in range(active.size):
        margin, step, run = room[i], reached[i], starts[i]
        for k in range(seen[i], arrivals.starts[active[i] + 1]):
            margins[run] = margin
            repeats[run] = arrivals.moments[k] + 1 - step
            margin, step, run = margin - 1, arrivals.moments[k] + 1, run + 1
        margins[run] = margin
        repeats[run] = arrivals.steps - step
    return margins, repeats, starts


@numba.njit(cache=True, nogil=True)
def _add(segment, arrivals, active, reached, seen):  # type: ignore[no-untyped-def]
    """Count what came before the step that was reached; ``seen`` moves on."""
    for i in range(active.size):
        node = active[i]
        while seen[i] < arrivals.starts[node + 1] and arrivals.moments[seen[i]] < reached[i]:
            seen[i] += 1
            segment[node] += 1
