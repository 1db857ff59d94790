"""The default mechanism for points: a box is halved again and again, and its halves are measured epoch by epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np

from synthstream import partition as tree
from synthstream.counts import Counts
from synthstream.kernel.counters import Counter, State, counter
from synthstream.kernel.counters.base import clip, inner, outer, refuse_beyond
from synthstream.kernel.gate import Gate
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.kernel.spending import Mechanism
from synthstream.measured import Block, TreeMeasured, fingerprint_of
from synthstream.partition import LEAST, WHOLE, Partition
from synthstream.privacy import WIDER, Claim, least_of
from synthstream.strategies.levels import Schedule, Shape
from synthstream.strategies.shares import of_points
from synthstream.strategies.times import NumberTimes
from synthstream.strategies.variances import variance_of
from synthstream.workload import FloatArray, IntArray

# Where each node is planned by itself, so many more levels may be measured: mass that lies close together bears them.
_DEEPER = 2

# The count of one of n cells or nodes is kept within this size over n, so that their sum stays within 64 bits.
_LARGEST_SUM = 2**62


@dataclass(frozen=True, kw_only=True)
class Points(Mechanism):
    """The number of events at every tick; left minus right in the nodes of a partition, afresh in every epoch.

    An epoch ends when the number of events, as released, has grown by a public factor: with one epoch a doubling, when
    it reaches ``2**e / epsilon`` for the next whole e. The last one ends with the horizon, if there is one. Either all
    levels are measured then, or, if the planner plans by node, the nodes that it finds worth it, each level planned
    from what was just read above it. Upper levels are also measured while the epoch is open, one or several by a
    counter, whenever the released number has grown by another part of what it should in this epoch. Levels may be read
    together: then the parts of a node are counted.

    Privacy:
        Unit        one event; neighbours: add-remove (one cell changes by one in one tick) or replace-one (one event
                    moves to another cell; the number of events of each tick is then public, unless events are signed)
        Cost        the whole budget, once: the number's counter, and in one epoch all counters and the last readings on
                    the way to the event's cell
        Theorem     points, and those of the counters
        Trusts      the box, its partition and the clock are public; under replace-one the number of events too
    Accuracy:       E W1 <= C (epsilon t)^(-1/d) for d >= 2 with a fixed schedule, a public number of events, one
                    event per tick and depth >= log2(epsilon t) (theorem ``points-accuracy``)
    Time, memory:   O(cells) for a tick; state O(cells)

    Args:
        partition: of the unit cube; its depth bounds memory.
        budget: what all releases together may cost.
        horizon: number of ticks; ``None`` for no end.
        schedule: divides the budget of an epoch.

    Raises:
        ValueError: the budget is too small.

    Example:
        >>> from synthstream.privacy import Budget
        >>> from synthstream.strategies.levels import Schedule
        >>> box, budget = Partition(dimension=2, depth=12), Budget(epsilon=1.0, delta=0.0)
        >>> mechanism = Points(partition=box, budget=budget, horizon=100, schedule=Schedule(dimension=2))
        >>> 0.999999 < float(mechanism.claim().pure) <= 1
        True
        >>> [mechanism.times.epoch_of(total) for total in (0, 3, 4, 1000)]
        [0, 3, 4, 19]
    """

    theorem: ClassVar[str] = "points"

    partition: Partition
    schedule: Schedule

    def __post_init__(self) -> None:
        # Every draw must be possible, or no stream begins: a failure within a tick would reveal earlier draws.
        last = self.scale(self.parts[1], LEAST)  # of a level that gets the least
        each = [self.scale(self.parts[0]) if how is self.total else last for how in self._counters]
        fits = last < LARGEST_SCALE and all(how.draws(m) for how, m in zip(self._counters, each, strict=True))
        self.refuse_unless(fits, "points")

    # -- public facts -------------------------------------------------------------------------------------------

    @property
    def squared(self) -> int:
        """See :class:`Mechanism`: a replaced event may move one number by two."""
        return self.changed**2

    @property
    def number_is_public(self) -> bool:
        """Whether neighbours have the same number of events in every tick."""
        return self.neighbours == "replace-one" and not self.unit.signed

    @cached_property
    def parts(self) -> tuple[float, float]:
        """Cost of the number of events, and of an epoch: in epsilon (pure) or rho, rounded down."""
        number, epoch = of_points(number_is_public=self.number_is_public)
        whole = self.whole(self._least(number, epoch))
        return number * whole * (1 - 1e-9), epoch * whole * (1 - 1e-9)

    def _least(self, number: float, epoch: float) -> Fraction | None:
        """Least variance of any draw, if the number of events and an epoch cost so much; ``None`` for Laplace noise.

        A reading at the end of an epoch is of whole counts; counters have finer grids, so wider draws on them.
        """
        if self.budget.pure:
            return None
        found = [how.least(self.scale(epoch)) for how in self._levels.values()]
        found += [] if self.total is None else [self.total.least(self.scale(number))]
        return least_of([Fraction(self.scale(epoch)) ** 2, *found])

    def scale(self, cost: float, units: int = WHOLE) -> float:
        """Scale or sigma, per unit of sensitivity, of what may cost ``cost * units / WHOLE``; rounded up."""
        moved = WHOLE / units / cost if self.budget.pure else math.sqrt(WHOLE / units / cost / 2)
        return self.changed * moved * WIDER

    @cached_property
    def total(self) -> Counter | None:
        """The counter of the number of events; ``None`` if that is public."""
        return None if self.number_is_public else self.counted()

    @cached_property
    def times(self) -> NumberTimes:
        """When epochs begin."""
        return NumberTimes(self.budget.epsilon, self.schedule.epochs)

    def depth_of(self, total: float) -> int:
        """Number of levels that are measured, at most, when ``total`` events have come."""
        epoch, more = self.times.epoch_of(total), _DEEPER if self.schedule.by_node else 0
        return min(epoch // self.schedule.epochs + (more if epoch else 0), self.partition.depth)

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        number = [] if self.total is None else [self.scale(self.parts[0])]
        cost, theorems = Fraction(self.parts[1]) + self.cost_of(number), {how.theorem for how in self._counters}
        public = "the number of events of every tick, " if self.number_is_public else ""
        facts = f"{public}box, partition, clock and budget split"
        return self.claimed(cost, sorted(theorems), public=facts, least=self._least(*self.parts))

    @cached_property
    def _counters(self) -> list[Counter]:
        """Every counter that there may be: of the number of events, and of levels in an open epoch."""
        return [*([] if self.total is None else [self.total]), *self._levels.values()]

    @cached_property
    def _levels(self) -> dict[int, Counter]:
        """By how often a level may be measured in an epoch, where it is more than once, the counter of such a level."""
        often = self.schedule.possible_steps(self.partition.depth)  # the last step is the epoch's end
        return {steps: counter("auto", horizon=steps - 1, noise=self.noise) for steps in often}

    def variance(self, units: int) -> float:
        """Noise variance of a reading at the end of an epoch that may cost ``units`` parts of its budget. Public."""
        return variance_of(self.noise, self.scale(self.parts[1], units))

    def fingerprint(self) -> str:
        """Hash of every number that decides what is drawn and with how much noise."""
        facts = [self.parts, self.partition.dimension, self.partition.depth, self.noise, self.budget.epsilon, WHOLE]
        facts += [*self.schedule.facts(), self.neighbours, self.unit.signed]
        facts += [*([_DEEPER] if self.schedule.by_node else []), *self.partition.facts, self.horizon]
        return fingerprint_of([*facts, LEAST, [how.facts() for how in self._counters]])

    # -- drawing ------------------------------------------------------------------------------------------------

    def init(self) -> State:
        """The state before the first tick."""
        state = {} if self.total is None else outer(self.total.init(1), "total.")
        state |= {"t": np.array(0), "total": np.array(0.0), "begun": np.array(0.0), "planned": np.array(False)}
        cells = np.zeros(self.partition.cells_number, dtype=np.int64)
        return state | {"cells": cells, "ends": np.zeros(0, dtype=np.int64)}

    def step(self, state: State, counts: Counts, gate: Gate, shape: Shape) -> tuple[State, TreeMeasured]:
        """Close one tick.

        Args:
            state: what the last step returned; it is used up, and must not be used again.
            counts: the tick's exact counts of cells.
            gate: the source of noise.
            shape: of the newest release; public. It decides how the budget of an epoch is divided, never how much it
                is.

        Raises:
            HorizonExhausted: all ticks have been released.
        """
        tick, begun = int(state["t"]), float(state["begun"])
        refuse_beyond(self.horizon, tick)
        after = self.planned(state, shape)
        number, total, variance = self._number(state, counts, gate)
        counts, cells = Counts(counts.cells, clip(counts.numbers)), state["cells"]  # in place: there may be a million
        counts.add_to(cells, limit=_LARGEST_SUM // cells.size)
        after |= number | {"t": np.array(tick + 1), "total": np.array(total), "cells": cells}
        closing = self.times.epoch_of(total) > self.times.epoch_of(begun) or tick + 1 == self.horizon
        # Beside this tick's blocks an estimate needs those of these ticks; -1 stands for levels that were not yet read.
        needs = tuple(sorted({*after["ends"].tolist(), *after["plan.ticks"].tolist()} - {-1}))
        if closing:
            left = WHOLE - sum(after["plan.units"].tolist())
            even = after["plan.even"] if self.schedule.by_node else np.zeros(0)
            blocks = self._end(cells, total, total - begun, left, even, gate)
            after = {name: array for name, array in after.items() if not name.startswith(("level", "plan."))}
            cells.fill(0)
            after |= {"begun": np.array(total), "planned": np.array(False), "ends": np.append(state["ends"], tick)}
        else:
            blocks = self._open(after, counts, total - begun, gate)
        return after, TreeMeasured(
            tick=tick, begun=begun, total=total, variance=variance, blocks=blocks, closing=closing, needs=needs
        )

    def _number(self, state: State, counts: Counts, gate: Gate) -> tuple[State, float, float]:
        """Number of events: the state of its counter, the estimate, and its variance."""
        here = np.array([counts.numbers.sum()])
        if self.total is None:
            return {}, float(state["total"]) + float(here[0]), 0.0
        multiplier = np.array([self.scale(self.parts[0])])
        after, estimate = self.total.step(inner(state, "total."), here, gate, multiplier=multiplier)
        variance = self.total.variance(int(state["t"]), multiplier=float(multiplier[0]))
        return outer(after, "total."), float(estimate[0]), variance

    def planned(self, state: State, shape: Shape) -> State:
        """The state with a plan for the open epoch: how often each level is measured. Draws nothing.

        Raises:
            ValueError: the plan is none, or spends more than there is.
        """
        if bool(state["planned"]):
            return dict(state)
        begun = float(state["begun"])
        events, depth = self.times.length(begun), self.depth_of(2 * begun)
        plan = self.schedule.within(shape, events, depth, self.scale(self.parts[1]))
        often = np.array(plan.steps)
        known = often.dtype == np.int64 and often.ndim == 1 and {1, *self._levels}.issuperset(often.tolist())
        if not known or often.size > self.partition.depth:
            raise ValueError("a plan measures other levels, or measures them more often, than the claim knows of")
        units = checked_parts(plan.units, often.size, WHOLE)
        after = state | {"planned": np.array(True), "plan.units": units, "plan.steps": often, "plan.done": 0 * often}
        after["plan.even"] = np.array(plan.even, dtype=np.float64)  # goes back to the planner, and decides nothing else
        after |= {"plan.ticks": np.full_like(often, -1), "plan.nodes": np.zeros(2**often.size, dtype=np.int64)}
        for first, end in self._counted(often):
            fresh = self._levels[int(often[first])].init(2**end - 2**first)
            after |= outer(fresh | {"seen": np.zeros(2**end - 2**first, dtype=np.int64)}, f"level{first}.")
        return after

    def _counted(self, often: IntArray) -> list[tuple[int, int]]:
        """First level of each counter of an open epoch, and the one after its last."""
        apart = np.flatnonzero((np.diff(often) != 0) | (not self.schedule.by_node)) + 1
        return [(a, b) for a, b in pairwise([0, *apart.tolist(), often.size]) if a < b and often[a] > 1]

    def _open(self, after: State, counts: Counts, events: float, gate: Gate) -> tuple[Block, ...]:
        """Readings that are due in an open epoch; changes ``after``."""
        units, often, upper = (after[f"plan.{name}"] for name in ("units", "steps", "nodes"))
        # These sums are not clipped: otherwise an event could be counted at one reading and taken out at another. If
        # they leave 64 bits they wrap around, and their differences are right all the same.
        counts.add_to(upper, finer=self.partition.depth - often.size)
        length = self.times.length(float(after["begun"]))
        due = np.minimum(np.floor(max(events, 0.0) / length * often), often - 1).astype(np.int64)
        read = [(first, end) for first, end in self._counted(often) if due[first] > after["plan.done"][first]]
        if not read:
            return ()
        exact = tree.differences(tree.counted(upper, read[-1][1]))
        done, ticks, blocks = after["plan.done"].copy(), after["plan.ticks"].copy(), list[Block]()
        for first, end in read:
            prefix, how, now = f"level{first}.", self._levels[int(often[first])], exact[2**first : 2**end]
            own = inner(after, prefix)
            seen, step = own.pop("seen"), int(own["t"])
            each = [self.scale(self.parts[1], part) for part in units[first:end].tolist()]
            multiplier = np.repeat(each, 2 ** np.arange(first, end))
            own, values = how.step(own, now - seen, gate, multiplier=multiplier)
            after |= outer(own | {"seen": now}, prefix)
            done[first:end], ticks[first:end] = due[first:end], int(after["t"]) - 1
            for level, one in zip(range(first, end), each, strict=True):
                nodes = values[2**level - 2**first :][: 2**level]
                blocks += tree.blocks_of(level, nodes[:, None], np.array([how.variance(step, multiplier=one)]))
        after |= {"plan.done": done, "plan.ticks": ticks}
        return tuple(blocks)

    def _end(
        self, cells: IntArray, total: float, events: float, left: int, even: FloatArray, gate: Gate
    ) -> tuple[Block, ...]:
        """Readings of all levels at the end of an epoch."""
        depth = self.depth_of(total)
        if self.schedule.by_node:
            return self._end_by_node(cells, depth, events, left, even, gate)
        units, blocks = checked_parts(self.schedule.end(depth, left), depth, left).tolist(), list[Block]()
        for level, exact in enumerate(tree.by_level(tree.differences(tree.counted(cells, depth)))):
            noisy = gate.noisy(exact, noise=self.noise, scale=self.scale(self.parts[1], units[level]))
            blocks += tree.blocks_of(level, noisy[:, None], np.array([self.variance(units[level])]))
        return tuple(blocks)

    def _end_by_node(
        self, cells: IntArray, depth: int, events: float, left: int, even: FloatArray, gate: Gate
    ) -> tuple[Block, ...]:
        """Readings at the end of an epoch, level by level: each is planned from those above it.

        Nodes of which a region leaves one half empty are divided without a reading.
        """
        nodes, room, mass = np.zeros(1, dtype=np.int64), np.array([left]), np.array([max(events, 0.0)])
        blocks, whole, counts, level = list[Block](), self.scale(self.parts[1]), tree.counted(cells, depth), 0
        at_once, summed = self.schedule.at_once(events, whole), self.total is not None
        while level < depth:
            joint, lean = self.partition.most(at_once[level > 0], depth - level), self.partition.leaning(level, nodes)
            asked, units = np.flatnonzero(np.abs(lean) < 1), np.zeros(nodes.size, dtype=np.int64)
            ahead = even[level:], depth - level, whole, joint, at_once[1]
            units[asked] = checked_nodes(self.schedule.nodes(mass[asked], room[asked], *ahead), room[asked])
            if not np.any(units > 0) and asked.size == nodes.size:
                break
            on, told = units >= 0, [np.zeros(0)] * joint
            at = np.flatnonzero(units[on])
            if at.size:
                parts, kind = np.unique(units[on][at], return_inverse=True)
                laws = [(self.scale(self.parts[1], part), self.variance(part)) for part in parts.tolist()]
                scale, variance = np.array(laws)[kind].T
                exact = tree.parts_of(counts, level, nodes[on][at], joint)
                wide, about = np.repeat(scale, exact.shape[1]), np.array([level, *nodes[on][at]]).tobytes()
                noisy = gate.noisy(exact.reshape(-1), noise=self.noise, scale=wide, about=about).reshape(exact.shape)
                found = tree.blocks_of(level, noisy, variance, nodes[on][at], summed=summed)
                blocks, told = [*blocks, *found], [block.values for block in found[:joint]]
            nodes, mass, room = tree.descended(nodes[on], mass[on], lean[on], (room - units)[on], at, told)
            level += joint
        return tuple(blocks)


def checked_parts(units: IntArray, levels: int, left: int) -> IntArray:
    """A copy of the parts of a budget that a planner gives to each level: it may use its array again.

    Raises ``ValueError`` unless they are whole numbers, one for each level, each at least ``LEAST``, that add up to at
    most ``left``.
    """
    kept = np.array(units)
    whole = kept.dtype == np.int64 and kept.shape == (levels,) and all(part >= LEAST for part in kept.tolist())
    if not whole or sum(kept.tolist()) > left:
        raise ValueError(f"a plan has no parts for each of {levels} levels, or they add up to more than is left")
    return kept


def checked_nodes(units: IntArray, left: IntArray) -> IntArray:
    """A copy of the parts of a budget that a planner gives to each node of a level: it may use its array again.

    Raises ``ValueError`` unless they are whole numbers, one for each node, each 0, -1 or at least ``LEAST``, and none
    above what is left below its ancestors.
    """
    kept = np.array(units)
    if kept.dtype != np.int64 or kept.shape != left.shape or np.any((kept < LEAST) & (kept != 0) & (kept != -1)):
        raise ValueError(f"a plan has no parts for each of {left.size} nodes")
    if np.any(kept > left):
        raise ValueError("a plan's parts add up to more than is left on the way to a node")
    return kept
