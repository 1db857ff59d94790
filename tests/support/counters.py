"""Every counter, and how tests run one."""

from __future__ import annotations

import numpy as np

from synthstream.kernel.counters import Blt, Counter, Kary, Restarted, Simple, Toeplitz
from synthstream.kernel.counters.dense import Dense
from synthstream.kernel.gate import Gate, Question
from synthstream.papers.counters import Binary, Block, Hybrid
from synthstream.strategies.matrices import nodes_of_prefix
from synthstream.workload import FloatArray, IntArray
from tests.support.gates import ExactGate

T = 40


COUNTERS: list[Counter] = [
    Simple(horizon=T, noise="laplace"),
    Simple(horizon=T, noise="gaussian"),
    Block(horizon=T),
    Block(horizon=None),
    Binary(horizon=T),
    Hybrid(),
    Kary(horizon=T),
    Toeplitz(horizon=T),
    Blt(horizon=T),
    Restarted(noise="laplace"),
    Restarted(noise="gaussian"),
    Dense(weights=tuple(range(1, T + 1)), horizon=T),
    Dense(weights=(1.0,) * 13, horizon=None),
]


def name(c: object) -> str:
    return f"{type(c).__name__}-{c.noise}-{c.horizon or 'unbounded'}" if isinstance(c, Counter) else str(c)


def run(c: Counter, stream: IntArray, gate: Gate, *, multiplier: float = 1.0) -> FloatArray:
    """All releases, shape of ``stream`` (ticks, cells)."""
    state, out = c.init(stream.shape[1]), []
    for counts in stream:
        state, released = c.step(state, counts, gate, multiplier=np.full(stream.shape[1], multiplier))
        out.append(released)
    return np.array(out)


class OneDraw(ExactGate):
    """No noise, except ``amount`` added to every cell of one call."""

    def __init__(self, call: int, amount: int = 1) -> None:
        self.calls, self._call, self._amount = 0, call, amount

    def answer(self, question: Question) -> IntArray:
        self.calls += 1
        return question.noiseless() + self._amount * (self.calls - 1 == self._call)


def responses(c: Counter, ticks: int = T, amount: int = 1) -> FloatArray:
    """What one unit of noise in each draw does to each release: shape (ticks, draws)."""
    zeros = np.zeros((ticks, 1), dtype=np.int64)
    probe = OneDraw(-1)
    run(c, zeros, probe)
    return np.array([run(c, zeros, OneDraw(k, amount))[:, 0] / amount for k in range(probe.calls)]).T


def kary_noise_is_a_factorisation_with_the_claimed_sensitivity(horizon: int) -> None:
    """L from the implementation, R from the geometry of the nodes: L R = A, and one event lies in at most h nodes."""
    c = Kary(horizon=horizon)
    left = responses(c, ticks=horizon)
    nodes: list[tuple[int, int]] = []
    for n in range(1, horizon + 1):
        nodes += sorted(nodes_of_prefix(c.digits(n), c.arity) - set(nodes), key=lambda node: (node[0], node[1]))
    right = np.array([[j * c.arity**q <= i < (j + 1) * c.arity**q for i in range(horizon)] for q, j in nodes])
    assert left.shape[1] == len(nodes)
    assert np.array_equal(left @ right, np.tril(np.ones((horizon, horizon))))
    assert right.sum(axis=0).max() <= c.sensitivity() == c.levels
