"""What an observer reads off a counter's releases, and many runs of it at once.

A reading is a fixed linear combination of one cell's released sums: without noise it is the number of events at one
tick. Runs are cells of one vector: a counter treats cells alike and draws for each of them afresh.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthstream.kernel.counters import Counter, Kary, Restarted, Simple
from synthstream.kernel.gate import Gate
from synthstream.papers.counters.nodes import NodeCounter, Span
from synthstream.workload import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What to look at.

    Args:
        event: tick of the event, 0-based: one at which the claim is tight.
        weights: of the released sums, shape ``(readings, ticks)``.
        shares: part of the claimed epsilon of each reading (Laplace noise), or of the claimed mu (Gaussian noise, a
            single reading), shape ``(readings,)``. Their sum says how much of the claim can be seen at most.
    """

    event: int
    weights: FloatArray
    shares: FloatArray


def readings(counter: Counter, ticks: int) -> Readings:
    """The best readings of a counter's first ``ticks`` releases.

    Laplace noise: one reading for each noise that hides the event, each with no other noise in it. Gaussian noise: the
    combination with the smallest variance, which is all that the releases say about the event. Raises ``TypeError`` if
    how to read this kind of counter is not known.
    """
    if counter.noise == "gaussian":
        return _least_squares(counter, ticks)
    if isinstance(counter, Restarted):
        return readings(counter.inner(0), min(ticks, counter.length(0)))
    if isinstance(counter, Simple):
        return Readings(event=0, weights=np.eye(1, ticks), shares=np.ones(1))
    if isinstance(counter, NodeCounter):
        return _nodes(counter, ticks)
    if isinstance(counter, Kary):
        # The prefix of k^l ticks is a single node of level l.
        ends = [counter.arity**level - 1 for level in range(counter.levels)]
        weights = np.eye(ticks)[[end for end in ends if end < ticks]]
        return Readings(event=0, weights=weights, shares=np.full(len(weights), 1 / counter.levels))
    raise TypeError(f"no way is known to read a {type(counter).__name__}")


def _least_squares(counter: Counter, ticks: int) -> Readings:
    cov = np.zeros((ticks, ticks))
    for t in range(ticks):
        for s in range(t + 1):
            cov[s, t] = cov[t, s] = counter.covariance(s, t, multiplier=1.0)
    weights = np.linalg.solve(cov, np.ones(ticks))
    precision = float(weights.sum())
    return Readings(
        event=0,
        weights=np.asarray(weights[None] / precision, dtype=np.float64),
        shares=np.array([min(np.sqrt(precision), 1.0)]),
    )


def _nodes(counter: NodeCounter, ticks: int) -> Readings:
    """Each release adds one new node to nodes that were released before: take these away, and the node is left."""
    rows: dict[Span, FloatArray] = {}
    for n in range(1, ticks + 1):
        *before, new = counter.cover(n)
        rows[new] = np.eye(1, ticks, n - 1)[0] - sum(rows[span] for span in before)
    cost = [sum(1 / span.factor for span in rows if span.start <= i <= span.end) for i in range(1, ticks + 1)]
    event = int(np.argmax(cost))
    held = [span for span in rows if span.start <= event + 1 <= span.end]
    return Readings(
        event=event,
        weights=np.array([rows[span] for span in held]),
        shares=np.array([1 / span.factor for span in held]),
    )


def trials(
    counter: Counter, look: Readings, gate: Gate, *, multipliers: FloatArray, events: IntArray, runs: int
) -> FloatArray:
    """Readings of independent runs of some cells, in which nothing comes but some events at one tick.

    Args:
        multipliers: noise of each cell per unit of sensitivity, shape ``(cells,)``.
        events: how many come in each cell, shape ``(cells,)``.

    Returns:
        float64, shape ``(runs, cells, readings)``, in events.
    """
    cells = multipliers.size * runs
    state, multiplier = counter.init(cells), np.tile(multipliers, runs)
    come, none = np.tile(events, runs).astype(np.int64), np.zeros(cells, dtype=np.int64)
    found = np.zeros((look.weights.shape[0], cells))
    for tick in range(look.weights.shape[1]):
        counts = come if tick == look.event else none
        state, released = counter.step(state, counts, gate, multiplier=multiplier)
        found += look.weights[:, tick, None] * released
    return np.moveaxis(found.reshape(-1, runs, multipliers.size), 0, 2)
