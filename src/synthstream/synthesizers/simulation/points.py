"""Errors of published points, by running the mechanism on simulated ones."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from synthstream.accounting.zcdp import delta_for
from synthstream.kernel.points import Points
from synthstream.kernel.turnstile import Turnstile
from synthstream.measured import NodeCounts, TreeMeasured, TurnstileMeasured
from synthstream.partition import Partition
from synthstream.privacy import LARGEST_EPSILON, Budget
from synthstream.synthesizers.contract import Expected, Piece, RowErrors
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.synthesizers.simulation.shapes import Clusters
from synthstream.synthesizers.simulation.tables import groups_of, runs_of
from synthstream.synthesizers.simulation.transport import w1
from synthstream.workload import FloatArray, IntArray

# More events than this are simulated in proportion: fewer events, with less noise by the same factor.
_MOST_EVENTS, _MOST_COUNTED = 200_000, 30_000
# If rows may take events away, this share of them do; every event that is there is as likely to go.
_AWAY = 1 / 3
# Nodes below this level move points by less than a grid can tell.
_DEEPEST = 16
# Steps of the mechanism while the number of events doubles.
_STEPS = 8
# Cells of the grid that distances and boxes are taken on, at most; a side is a power of two.
_GRID = 4096
_BOXES = 200
# A distance of more cells than this needs no finer grid.
_MANY_CELLS = 3.0


def pieces(made: Any, expected: Expected) -> list[Piece]:
    """Of points: a piece for each group of ticks."""
    # The error of a box depends on where clusters lie: as a mean of fewer runs it rose with epsilon at times.
    runs, rate = 2 * runs_of(expected.careful), expected.events_per_tick
    return [partial(_mean_of_runs, made, some, rate, runs) for some in groups_of(expected.ticks, rate)]


def _mean_of_runs(made: Any, ticks: Sequence[int], events_per_tick: float, runs: int) -> dict[int, RowErrors]:
    """Over runs whose rates lie within one doubling around the guess: geometric means of distances, which lie around
    one size, and root mean squares of errors of boxes, which are that of the rare bursts.

    Points are measured afresh when their number has grown by a factor, and the error falls then. No guess is so good
    that it tells when, so all times within a doubling count alike.
    """
    each = []
    for k in range(runs):
        rate = events_per_tick * 2 ** ((k + 0.5) / runs - 0.5)
        each.append(Run(made, ticks=ticks, events_per_tick=rate, seed=k).errors())
    return {
        t: RowErrors(
            table_error={},
            box=math.sqrt(float(np.mean([one[t].box ** 2 for one in each]))),
            distance=math.exp(float(np.mean(np.log([max(one[t].distance or 0.0, 1e-12) for one in each])))),
        )
        for t in ticks
    }


def seconds_per_release(made: Any, expected: Expected) -> float:
    """Seconds of the release after the last of the ticks, of points, on this machine."""
    run = Run(made, ticks=expected.ticks[-1:], events_per_tick=expected.events_per_tick)
    run.errors()
    return run.seconds


def errors_of(true: FloatArray, estimated: FloatArray) -> RowErrors:
    """Errors of masses on a grid over the box, both in events, shape ``(side,) * dimension``.

    Boxes have half of each side; they lie anywhere.

    Example:
        >>> found = errors_of(np.ones((4, 4)), np.full((4, 4), 1.5))
        >>> round(found.distance, 6), found.box
        (0.0, 2.0)
    """
    rng, gap, side = np.random.default_rng(0), estimated - true, true.shape[0]
    boxes = rng.integers(0, side // 2 + 1, size=(_BOXES, true.ndim))
    squares = [float(gap[tuple(slice(b, b + max(side // 2, 1)) for b in begins)].sum()) ** 2 for begins in boxes]
    distance, box = _distance(true, np.maximum(estimated, 0.0)), float(np.sqrt(np.mean(squares)))
    return RowErrors(table_error={}, box=box, distance=distance)


def _distance(a: FloatArray, b: FloatArray) -> float:
    """W1; on a coarser grid, in a fraction of the time, if it is many cells."""
    if a.shape[0] % 2 == 0 and a.ndim > 1:
        coarse = w1(_halved(a), _halved(b))
        if coarse * a.shape[0] > _MANY_CELLS:
            return coarse
    return w1(a, b)


def _halved(grid: FloatArray) -> FloatArray:
    """A grid of half as many cells along each side."""
    for axis in range(grid.ndim):
        grid = np.add.reduceat(grid, np.arange(0, grid.shape[axis], 2), axis=axis)
    return grid


def grid_of(masses: FloatArray, dimension: int, *, cells: int = _GRID) -> FloatArray:
    """Masses of the nodes of one level of a partition on a grid, shape ``(side,) * dimension``.

    Finer nodes are added up, coarser ones spread evenly. ``cells``: of the grid, at most.

    Example:
        >>> grid_of(np.array([1.0, 3.0]), 2)[[0, -1], 0].tolist()
        [0.00048828125, 0.00146484375]
    """
    digits = digits_of(dimension, cells)
    level = digits * dimension
    if masses.size >= 2**level:
        masses = masses.reshape(2**level, -1).sum(axis=1)
    else:
        masses = np.repeat(masses, 2**level // masses.size) * (masses.size / 2**level)
    grid = np.zeros((2**digits,) * dimension)
    codes = Partition(dimension=dimension, depth=level).codes(np.arange(2**level))
    grid[tuple(codes.T)] = masses
    return grid


def digits_of(dimension: int, cells: int = _GRID) -> int:
    """Binary digits of each coordinate of the grid; 0 if there are too many coordinates for a grid."""
    return (cells.bit_length() - 1) // dimension


class Run:
    """One run of a mechanism on simulated points, that answers after each of some ticks.

    Args:
        made: the synthesizer.
        ticks: numbers of ticks to look at, increasing.
        events_per_tick: a public guess.

    Attributes:
        seconds: of the newest release: noise and fit.
    """

    def __init__(self, made: Any, *, ticks: Sequence[int], events_per_tick: float, seed: int = 0) -> None:
        most = _MOST_EVENTS if made.skips_ticks else _MOST_COUNTED
        self._scale = max(1.0, ticks[-1] * events_per_tick / most)
        self._ticks, self._rate, self._seed = list(ticks), events_per_tick, seed
        self._made = self._simulated(made)
        self._partition = self._made.partition
        self.seconds = 0.0

    def _simulated(self, made: Any) -> Any:
        """The synthesizer for events that stand for ``scale`` events each: noise is smaller by as much."""
        budget = _louder(made.mechanism.budget, made.mechanism.claim().rho, self._scale)
        if not made.skips_ticks:
            return replace(made, mechanism=replace(made.mechanism, budget=budget))
        whole = made.partition
        partition = replace(whole, depth=min(whole.depth, max(_DEEPEST, whole.dimension)))
        if isinstance(made.mechanism, Points):
            return replace(made, mechanism=replace(made.mechanism, budget=budget, partition=partition))
        return replace(made, mechanism=Turnstile(side=replace(made.mechanism.side, budget=budget, partition=partition)))

    def errors(self) -> dict[int, RowErrors]:
        """By number of ticks."""
        made, dimension = self._made, self._partition.dimension
        rng, gate = np.random.default_rng(self._seed), SeededGate(f"forecast {self._seed}")
        shape, state, last = Clusters(dimension, rng), made.mechanism.init(), None
        true = np.zeros(self._partition.cells_number, dtype=np.int64)
        history, found = dict[int, Any](), dict[int, RowErrors]()
        for before, tick in pairwise([0, *self._stops()]):
            shape.wander(float(np.log2(tick / before)) if before else 1.0)
            cells, weights = self._rows(shape, self._number(tick) - self._number(before), true, rng)
            np.add.at(true, cells, 1 if weights is None else weights)
            counts = made.counted(cells, weights)
            begin = time.perf_counter()
            state = state | ({"t": np.array(tick - 1)} if made.skips_ticks else {})
            state, measured, _ = made.step(state, counts, gate, last, {})
            history[tick - 1] = measured
            if tick in self._ticks:
                last = made.fit(tick - 1, history.__getitem__, last, {}, seed=0)
            elif getattr(measured, "closing", False):
                last = made.ahead(tick - 1, history.__getitem__)
            self.seconds = time.perf_counter() - begin
            if tick in self._ticks and last is not None:
                steps = int(np.asarray(state.get("total.t", state.get("came.total.t", tick))))
                masses = last.held * self._lacking(measured, steps, rng)
                gap = errors_of(grid_of(true.astype(np.float64), dimension), grid_of(masses, dimension))
                found[tick] = replace(gap, box=gap.box * self._scale)
            if not isinstance(measured, NodeCounts):
                history = {t: history[t] for t in (*measured.needs, tick - 1)}
        return found

    def _number(self, tick: int) -> int:
        """Simulated events up to a tick."""
        return round(tick * self._rate / self._scale)

    def _stops(self) -> list[int]:
        """Ticks at which the mechanism is stepped: those to look at, and more and more rarely between."""
        last, stops = self._ticks[-1], {*self._ticks}
        # Before there are this many events, nothing is known.
        tick = max(1.0, 1 / (self._rate * self._made.mechanism.budget.epsilon / self._scale))
        while tick < last:
            stops.add(int(tick))
            tick = max(tick + 1, tick * 2 ** (1 / _STEPS))
        return sorted(stops)

    def _rows(
        self, shape: Clusters, number: int, true: IntArray, rng: np.random.Generator
    ) -> tuple[IntArray, IntArray | None]:
        """Cells of ``number`` rows, and what each row adds."""
        away = round(number * _AWAY) if isinstance(self._made.mechanism, Turnstile) else 0
        sides = 2.0 ** np.array(self._partition.bits)
        codes = np.floor(shape.points(number - away) * sides).astype(np.int32)
        cells = self._partition.cells(codes)
        if self._partition.region is not None:
            cells = self._partition.region.folded(cells, self._partition.depth)
        if not isinstance(self._made.mechanism, Turnstile):
            return cells, None
        gone = np.repeat(np.arange(true.size), rng.binomial(true, min(away / max(true.sum(), 1), 1.0)))
        return np.concatenate([cells, gone]), np.repeat([1, -1], [cells.size, gone.size])

    def _lacking(
        self, measured: TreeMeasured | TurnstileMeasured | NodeCounts, steps: int, rng: np.random.Generator
    ) -> float:
        """Factor for masses whose total has the noise of its tick: its counter was stepped fewer times."""
        mechanism, counters = self._made.mechanism, 1
        if isinstance(mechanism, Turnstile):
            mechanism, counters = mechanism.side, 2
        if not isinstance(mechanism, Points) or mechanism.total is None or isinstance(measured, NodeCounts):
            return 1.0
        multiplier = mechanism.scale(mechanism.parts[0])
        lacking = measured.variance - counters * mechanism.total.variance(steps - 1, multiplier=multiplier)
        wrong = rng.normal() * np.sqrt(max(lacking, 0.0))
        return float(max(1 + wrong / max(measured.total, 1.0), 0.0))


def _louder(budget: Budget, rho: Fraction, factor: float) -> Budget:
    """A budget with ``factor`` times the epsilon, by which noise that costs rho is smaller by the same factor; or by
    as much as a budget can have, with which hardly any is left.

    For Gaussian noise, delta is what goes with the right rho: epsilon alone decides when epochs end.
    """
    factor = min(factor, LARGEST_EPSILON / budget.epsilon)
    epsilon = min(budget.epsilon * factor, LARGEST_EPSILON)
    if budget.pure or factor == 1:
        return replace(budget, epsilon=epsilon)
    delta = delta_for(float(rho) * factor**2, epsilon=epsilon)
    return Budget(epsilon=epsilon, delta=min(max(delta, 1e-100), 0.49))
