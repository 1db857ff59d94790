"""Continual mechanisms for :mod:`benchmarks.points`: points arrive in order."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthstream.counts import Counts
from synthstream.fit.cloud import Cloud
from synthstream.kernel.points import Points
from synthstream.papers.hypercube import Hypercube
from synthstream.partition import Partition
from synthstream.privacy import Budget, Neighbours
from synthstream.strategies.levels import Schedule, first_levels, joint_levels
from synthstream.synthesizers.papers import counted_cloud
from synthstream.synthesizers.points import FromNodes
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray

# Clock ticks in an epoch: no level is read more often in it.
_TICKS = 64
# Points that the literal mechanism takes in at once.
_BLOCK = 2**16


def ticks(number: int, epsilon: float) -> Iterator[slice]:
    """Arrivals of one clock tick after another."""
    start = 0
    while start < number:
        epoch = max(0, math.floor(math.log2(max(epsilon * start, 1))))
        length = max(1, round(2.0**epoch / epsilon / _TICKS))
        end = min(start + length, number, max(start + 1, math.ceil(2.0 ** (epoch + 1) / epsilon)))
        yield slice(start, end)
        start = end


def coded(cloud: FloatArray, partition: Partition) -> NDArray[np.int32]:
    """Codes of points in the unit cube."""
    scale = 2.0 ** np.array(partition.bits)
    return np.minimum(cloud * scale, scale - 1).astype(np.int32)


def batches(number: int, every: int) -> Iterator[slice]:
    """The first tenth in one tick, then so many at each."""
    ends = [-(-number // 10), *range(-(-number // 10) + every, number + every, every)]
    for start, end in pairwise([0, *ends]):
        yield slice(start, min(end, number))


def scheduled(
    cloud: FloatArray,
    epsilon: float,
    delta: float,
    seed: int,
    *,
    spans: Iterable[slice],
    moments: Sequence[int],
    neighbours: Neighbours = "replace-one",
    each: bool = False,
    horizon: int | None = None,
    **settings: Any,
) -> Iterator[tuple[Cloud, float, float]]:
    """Ours, ``kind = "points"``: releases, and the seconds of taking in all points so far, and of releasing.

    Args:
        cloud, epsilon, delta, seed: as of a method of :mod:`benchmarks.points`.
        spans: points of each tick.
        moments: numbers of points after which a release is looked at.
        neighbours: of the claim.
        each: whether there is a release at each tick, as in a stream, from which the next plan is made; otherwise only
            at the ends of epochs, of what a plan needs, which is faster.
        horizon: number of ticks, if it is known before the first one.
        settings: of :class:`Schedule`.
    """
    number, dimension = cloud.shape
    depth = min(max(math.ceil(math.log2(max(epsilon * number, 2))), dimension), 22)
    partition = Partition(dimension=dimension, depth=depth)
    delta = 0.0 if dimension > 1 else delta  # as in streams
    budget = Budget(epsilon=epsilon, delta=delta, exact=True)
    joint, public = joint_levels(pure=delta == 0, bounded=False), neighbours == "replace-one"
    settings = {"joint": joint, "first": first_levels(public=public, bounded=False), **settings}
    how = Schedule(dimension=dimension, **settings)
    common: dict[str, Any] = {"horizon": horizon, "neighbours": neighbours}
    mechanism = Points(partition=partition, budget=budget, schedule=how, **common)
    made, history = FromNodes(mechanism=mechanism), dict[int, Any]()
    gate, state, last = SeededGate(seed), mechanism.init(), None
    due, taken = list(moments), 0.0
    for tick, span in enumerate(spans):
        begin = time.perf_counter()
        cells = partition.cells(coded(cloud[span], partition))
        state, measured, _ = made.step(state, Counts.at(cells), gate, last, {})
        history[tick] = measured
        if each:
            last = made.fit(tick, history.__getitem__, last, {}, seed=seed)
        elif measured.closing:
            last = made.ahead(tick, history.__getitem__)
        history = {t: history[t] for t in (*measured.needs, tick)}
        taken += time.perf_counter() - begin
        while due and span.stop >= due[0]:
            begin = time.perf_counter()
            found = made.fit(tick, history.__getitem__, last, {}, seed=seed)
            yield found, taken, time.perf_counter() - begin
            due.pop(0)


def sparse(cloud: FloatArray, epsilon: float, seed: int) -> tuple[Cloud, float, float]:
    """Paper 1, ``kind = "hypercube"``: points arrive one by one. The same as of :func:`scheduled`."""
    number, dimension = cloud.shape
    depth = min(max(math.floor(math.log2(max(epsilon * number, 2))), dimension), 24)
    partition = Partition(dimension=dimension, depth=depth)
    mechanism = Hypercube(dimension=dimension, depth=depth, budget=Budget(epsilon=epsilon, delta=0.0))
    gate, state = SeededGate(seed), mechanism.init()
    begin = time.perf_counter()
    for start in range(0, number, _BLOCK):
        cells = partition.cells(coded(cloud[start : start + _BLOCK], partition))
        state, counts = mechanism.step(state, cells, np.arange(cells.size), gate)
    taken = time.perf_counter()
    found = counted_cloud(counts, partition)
    return found, taken - begin, time.perf_counter() - taken
