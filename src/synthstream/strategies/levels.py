"""How the budget of an epoch is divided among the levels of a partition. From public facts; it spends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from synthstream.partition import DEEPEST, LEAST, WHOLE, sums
from synthstream.workload import FloatArray, IntArray

# With an adaptive schedule no level is measured more often than this in an epoch.
_MOST_STEPS = 64
# A level is measured so often that what its nodes miss between two readings is about this share of their noise.
_KAPPA = 0.5
# The number of nodes above the noise depends on the noise, and the noise on that number: in this number of rounds both
# settle.
_ROUNDS = 4


# Epochs while the number of events doubles.
_EPOCHS = 2
# A node is worth a reading if those of its halves that have events hold this many times its noise.
_WORTH = 1.0
# The same of the parts of a node in a reading of several levels, each of which is counted with so much noise.
_WORTH_JOINT = 2.0
# Nodes of a level are not all alike: so much of what keeps them from being halved evenly is taken to hold for each.
_ALIKE = 0.7
# An epoch with fewer events, in units of its noise, is read level by level: too few levels are worth a reading to take
# them by twos.
_FEW = 600.0

# Shares of an epoch's budget for readings while it is open: the least, if the newest epochs look alike, and the most.
_CALM, _MOVING = 0.15, 0.45
# Levels that are read while an epoch is open, at most: those below move points by little.
_UPPER = 16
# On average a quarter of an epoch's move counts: half of the move, for half of the time. So the move is compared with
# four times the noise.
_FAR = 4.0


class Shape(NamedTuple):
    """What the newest release says of the events to come. Public.

    Args:
        masses: over the nodes of one level, in any unit, at least 0, float64, shape ``(2**level,)``.
        moving: how far mass has moved between the two newest epochs, in widths of the cube.
    """

    masses: FloatArray
    moving: float


# Before the first release: events may be anywhere, and mass is taken to move a little.
ANYWHERE = Shape(np.ones(1), 0.1)
# Nothing is known of how evenly nodes are halved.
EVEN = np.zeros(0)


class EpochPlan(NamedTuple):
    """What is measured while an epoch is open, and what is known for the plan of its end.

    Args:
        units: parts of the budget by level, int64, shape ``(levels,)``.
        steps: parts of an epoch after which a level is measured, int64, shape ``(levels,)``; 1: only at the end.
        even: for the plan of the end: how evenly nodes of each level are halved, the root first; see
            :func:`evenness`. Levels below count as 1.
    """

    units: IntArray
    steps: IntArray
    even: FloatArray = EVEN


def joint_levels(*, pure: bool, bounded: bool) -> int:
    """How many levels of a tree are read together where noise is Laplace, if points may be in all of the box.

    Counts of all 2^k parts of a node cost what one difference does, since an event is in one part. Read with the
    budget of k levels, a count has 1 / k of the noise of one level; so has the difference on the first of these levels
    2^k / k^2 times the variance that it would have alone, and each one below half of that above it. Noise of several
    levels is needed for parts that hold nothing, too, so that few levels are best. For Gaussian noise nothing is won:
    there k levels have 1 / k of the variance.
    """
    return 2 if pure and not bounded else 1


def first_levels(*, public: bool, bounded: bool) -> int:
    """How many levels are read together at a root, if the number of events may be public, or points be in a region.

    What the parts of a root add up to is the number of events of the epoch. Without it that is known by the counter
    alone, whose noise is that of many ticks, and what the number is off by is put where the epoch has nothing. With
    Laplace noise the parts cost nothing more; with Gaussian noise the root's difference has twice the variance.
    """
    return 1 if public or bounded else 2


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Parts of a budget by level, from public facts. It spends nothing: the kernel checks each plan.

    Its properties are constants: the kernel asks for them again at each tick.

    ``adaptive`` keeps the expected misplaced mass, times its distance, small: a level with A nodes above the noise,
    each w wide, gets a part in proportion to sqrt(A w). The end of an epoch is planned node by node: see :meth:`nodes`;
    upper levels alone are read while it is open, 2, 4, ... or 64 times. ``fixed`` is the schedule of theorem
    ``points-accuracy``: parts fall by a = 2^((1 - 1/d) / 2) from a level to that above it.

    Args:
        dimension: number of coordinates.
        joint: levels that are read together at the end of an epoch that is planned by node, at most: see
            :func:`joint_levels`.
        first: the same, from the root on, in epochs of few events too: see :func:`first_levels`.
    """

    dimension: int
    kind: Literal["adaptive", "fixed"] = "adaptive"
    joint: int = 1
    first: int = 1

    def __post_init__(self) -> None:
        if min(self.joint, self.first) < 1:
            raise ValueError(f"joint, first: at least one level is read at a time, not {self.joint}, {self.first}")

    @property
    def by_node(self) -> bool:
        """Whether the end of an epoch is planned node by node, each level from the readings of those above it.

        Then levels side by side that are measured equally often in an open epoch share a counter, too, and few
        different numbers are planned.
        """
        return self.kind == "adaptive"

    @property
    def epochs(self) -> int:
        """Number of epochs while the number of events doubles."""
        return _EPOCHS if self.by_node else 1

    @property
    def upper(self) -> int:
        """Levels of a release that the plan of an open epoch looks at, at most."""
        return _UPPER if self.by_node else DEEPEST

    @property
    def words(self) -> str:
        """How it divides, as the end of a sentence."""
        return {"adaptive": "by what was released before", "fixed": "as in the accuracy theorem"}[self.kind]

    def possible_steps(self, depth: int) -> list[int]:
        """How often a level of a partition of some depth may be measured in an epoch, where it is more than once."""
        if self.kind == "fixed":
            return [2**i for i in range(1, depth + 1)]
        return [2**i for i in range(1, _MOST_STEPS.bit_length())]

    def facts(self) -> list[Any]:
        """Every number that decides the schedule."""
        # 0.08: a share that nothing uses any more. Fingerprints of streams that run hold it.
        new = [[_EPOCHS, _WORTH, _CALM], [_UPPER, _ALIKE]] if self.by_node else []
        new += [[self.joint, _WORTH_JOINT, _FEW]] if self.joint > 1 and self.by_node else []
        new += [[self.first]] if self.first > 1 and self.by_node else []
        return [self.kind, [_MOST_STEPS, _KAPPA, _ROUNDS, 0.08, _MOVING, _FAR], *new]

    def end(self, depth: int, left: int) -> IntArray:
        """Parts of levels at the end of an epoch that is not planned by node, int64, shape ``(depth,)``.

        All are at least ``LEAST``, and at most ``left`` together: the parts that are left.
        """
        return _units(self._falling(depth), left)

    def within(self, shape: Shape, events: float, depth: int, scale: float) -> EpochPlan:
        """Parts and steps while an epoch is open, of levels down to the deepest that is measured; and, for the plan of
        its end, how evenly nodes of the newest release are halved.

        Of an epoch's budget they get between a tenth, where the newest epochs look alike, and nearly a half, where the
        shape moves farther in an epoch than the noise of these readings.

        Args:
            shape: the newest release.
            events: number of events of the epoch.
            depth: number of levels.
            scale: noise of a level that gets the whole budget.
        """
        if self.kind == "fixed":
            steps = 2 ** np.arange(depth, 0, -1, dtype=np.int64)
            return EpochPlan(_units(self._falling(depth), WHOLE // 3), steps)
        levels = min(depth, self.upper)
        steps, masses = np.zeros(0, dtype=np.int64), levels_of(shape.masses, events, levels)
        share, part, even = np.zeros(0), _CALM, evenness(masses)
        while levels:
            share, nodes = self._fair(masses[: max(levels, 1)], levels, scale / _MOVING)
            noise = float(np.sum(nodes * self._width(levels) * scale / share)) / _MOVING / max(events, 1.0)
            part = _CALM + (_MOVING - _CALM) * shape.moving / (shape.moving + _FAR * noise)
            missed = nodes * scale / part / share
            steps = np.clip(_KAPPA * events / missed, 1, _MOST_STEPS).astype(np.int64)
            often = np.flatnonzero(steps > 1)
            deepest = int(often[-1]) + 1 if often.size else 0
            if deepest == levels:
                break
            levels = deepest
        if not levels:
            return EpochPlan(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), even)
        steps = np.int64(1) << np.rint(np.log2(steps)).astype(np.int64)
        return EpochPlan(_units(share, int(part * WHOLE)), steps, even)

    def at_once(self, events: float, scale: float) -> tuple[int, int]:
        """Levels that are read together at the end of an epoch, at most, from the root on and further down.

        The parts of a node are counted then. Those of the root say how many events the epoch has, too.

        Args:
            events: number of events of the epoch, as it was released.
            scale: noise of a reading that gets the whole budget.
        """
        below = self.joint if events > _FEW * scale else 1
        return max(self.first, below), below

    def nodes(
        self, mass: FloatArray, left: IntArray, even: FloatArray, depth: int, scale: float, joint: int, below: int
    ) -> IntArray:
        """Parts for nodes of a level at the end of an epoch, int64, shape ``(n,)``.

        0: it is not measured; -1: nor is any node below it, none of which will be asked for.

        The events of a node lie in 2^e of its 2^k parts k levels below, where e is the sum of how evenly these levels
        are halved. It bears one reading more than those that leave each part above their noise. What is left of
        the budget is divided among them, in proportion to the square root of how the sum of the widths of parts that
        have events grows. So where events are spread, later readings get more; where they lie at a few addresses,
        there are more of them, and the first get more.

        Args:
            mass: of each node, by the readings above it, shape ``(n,)``.
            left: parts that no node above has spent, int64, shape ``(n,)``.
            even: of levels from this one on: see :class:`EpochPlan`.
            depth: number of levels from this one on, at most.
            scale: noise of a reading that gets the whole budget.
            joint: how many levels, from this one on, a reading is about.
            below: how many levels each reading further down is about.
        """
        ends = np.minimum(np.arange(below, depth + below, below), depth)
        halved = np.ones(depth)
        halved[: even.size] = even[:depth]
        spread, number = np.append(0.0, np.cumsum(halved)[ends - 1]), np.arange(ends.size)
        # The least mass, in units of its noise, that is worth so many readings: it never falls with their number.
        least = np.maximum(number, 1) * 2.0 ** spread[1:]
        least[0] /= below  # a first reading tells of the levels between, too
        worth = mass * left / (WHOLE * (_WORTH if below == 1 else _WORTH_JOINT) * scale)
        readings = np.searchsorted(least, worth)
        bears = np.flatnonzero(readings)
        readings = readings[bears]
        sums = np.cumsum(2.0 ** ((spread[:-1] - number * below / self.dimension) / 2))
        own = np.minimum(max(joint // below, 1), readings)  # what this reading is about would take so many of them
        # Few different numbers: three binary digits each.
        units, found = _rounded(left[bears] * (sums[own - 1] / sums[readings - 1])), np.full(mass.size, -1)
        found[bears] = np.where(units >= LEAST, units, 0)  # parts of others hold no more: they are worth less still
        return found

    def _falling(self, depth: int) -> FloatArray:
        return np.asarray(2.0 ** ((1 - 1 / max(self.dimension, 2)) / 2 * (np.arange(depth) - depth)))

    def _width(self, depth: int) -> FloatArray:
        return np.asarray(2.0 ** -(np.arange(depth) // self.dimension))

    def _fair(self, masses: Sequence[FloatArray], depth: int, scale: float) -> tuple[FloatArray, FloatArray]:
        """Parts of the budget, adding up to 1, and how many nodes of each level stand out of the noise."""
        share = np.full(depth, 1 / max(depth, 1))
        nodes = np.zeros(depth)
        for _ in range(_ROUNDS):
            nodes = standing_out(masses, scale / share)
            share = np.sqrt(nodes * self._width(depth))
            share = np.maximum(share / max(share.sum(), 1e-300), 2.0**-12)
            share /= share.sum()
        return share, nodes


def levels_of(shape: FloatArray, events: float, levels: int) -> list[FloatArray]:
    """Masses over the nodes of every level that is known, the root's first; not of more than ``levels``.

    Args:
        shape: masses over the nodes of the deepest level that is known.
        events: the masses' sum after scaling.
    """
    total = float(shape.sum())
    mass = shape * (max(events, 1.0) / total) if total > 0 else np.full(shape.size, max(events, 1.0) / shape.size)
    return sums(mass)[: max(levels, 1)]


def evenness(masses: Sequence[FloatArray]) -> FloatArray:
    """How evenly the nodes of each level but the last are halved, shape ``(levels - 1,)``.

    1: each half has as much. Less, as far as that is to be expected of each node, if all lies in fewer than two halves:
    in so many as one over the sum of the squares of their shares (Hill 1973, of order 2). Nodes count by their mass.

    Args:
        masses: by level, at least 0: see :func:`levels_of`.
    """
    shares = []
    for nodes, halves in pairwise(masses):
        squares = halves[0::2] ** 2 + halves[1::2] ** 2
        shares.append(float(np.sum(squares / np.maximum(nodes, 1e-300))) / float(nodes.sum()))
    # Rounded, so that the last bits of sums and logarithms, which depend on the processor, hardly ever decide.
    return np.asarray(np.round(1 - _ALIKE * (1 - np.clip(-np.log2(shares), 0.0, 1.0)), 3))


def standing_out(masses: Sequence[FloatArray], noise: FloatArray) -> FloatArray:
    """Sum over the nodes of each level of m / (m + noise), shape ``(levels,)``: about the number above the noise.

    Args:
        masses: by level: see :func:`levels_of`; below the last one they are halved.
        noise: of each level.
    """
    out, known = np.empty(noise.size), len(masses) - 1
    for level in range(noise.size):
        mass = masses[min(level, known)] * 2.0 ** min(known - level, 0)
        out[level] = 2.0 ** max(level - known, 0) * np.sum(mass / (mass + noise[level]))
    return out


def _units(share: FloatArray, whole: int) -> IntArray:
    """Shares as whole parts, each at least ``LEAST``, at most ``whole`` together."""
    if share.size == 0:
        return np.zeros(0, dtype=np.int64)
    units = np.floor(share / share.sum() * (whole - LEAST * share.size)) + LEAST
    return np.asarray(units.astype(np.int64))


def _rounded(parts: FloatArray) -> IntArray:
    """Whole numbers of at most three binary digits that count, so that there are few different ones; not above."""
    mantissa, exponent = np.frexp(parts)
    return np.asarray(np.floor(np.ldexp(np.floor(mantissa * 8) / 8, exponent)).astype(np.int64))
