"""The paper's own mechanism: sparse counts in every node of a partition that grows deeper with time."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from synthstream.errors import HorizonExhausted
from synthstream.kernel.counters.base import State, inner, outer
from synthstream.kernel.gate import Gate, Question
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.measured import NodeCounts, fingerprint_of
from synthstream.papers.counters.sparse import Sparse, arrivals_at
from synthstream.partition import DEEPEST
from synthstream.privacy import EVENT, WIDER, Budget, Claim
from synthstream.workload import FloatArray, IntArray

# A stream without another limit ends here: noise scales grow with time, and there is a largest one that can be drawn.
LONGEST = 2**40


@dataclass(frozen=True, kw_only=True)
class Hypercube:
    """Counts of the nodes of levels 1 to r while time is in [t_r, t_{r+1}), t_r = ceil(2^r / epsilon).

    In each level of time a node is counted by :class:`Sparse` with half of its share of the budget, and closed at the
    end with the noise of the other half. Levels of time without a step draw nothing. Points before t_0 are never
    counted. In two dimensions or more, a node counts from the start of the level at which it comes into being; in one,
    it starts with what came from t_0 on, with the noise of all closings that it would have had.

    Privacy:
        Unit        one point; neighbours: replace-one
        Cost        twice the largest sum, over the levels of time, of the shares of one node at each level
        Theorem     hypercube, passes, nodes
        Trusts      the number of points and the moments at which they arrive are public; the state stays secret
    Accuracy:       Wasserstein distance in the maximum norm, up to constants: log(t) (epsilon t)^(-1/d) for d >= 2, and
                    log^4.5(t) / (epsilon t) for d = 1, if ``depth`` does not cut the partition short
    Time, memory:   O(points depth + nodes) per block; 40 bytes a node, 16 more for each doubling of segments ended
    Reference:      He, Vershynin, Zhu 2024, "Online Differentially Private Synthetic Data Generation", Algorithms 1-3

    Args:
        dimension: number of coordinates; decides the shares, by (4.1) from two on and by (5.1) for one.
        depth: deepest level of nodes, from 1 to 30; time goes on in levels beyond it.
        budget: what all releases together may cost; its epsilon is spent, its delta is not.
        horizon: number of ticks that the claim speaks of; ``None`` for no end.
        most_points: largest number of points; ``None`` for 2^40.
        threshold_factor: thresholds are this times ln(steps in the level) / epsilon; 9 in the paper.

    Raises:
        ValueError: an argument is out of range, or the budget is too small.

    Example:
        >>> cube = Hypercube(dimension=2, depth=4, budget=Budget(epsilon=1.0, delta=0.0))
        >>> [cube.start(level) for level in range(5)], cube.level(9)
        ([1, 2, 4, 8, 16], 3)
        >>> float(cube.claim().pure) <= 1
        True
    """

    theorem: ClassVar[str] = "hypercube"

    dimension: int
    depth: int
    budget: Budget
    horizon: int | None = None
    most_points: int | None = None
    threshold_factor: float = 9.0

    def __post_init__(self) -> None:
        if self.dimension < 1:
            raise ValueError(f"dimension must be at least 1, not {self.dimension}")
        if not 1 <= self.depth <= DEEPEST:
            raise ValueError(f"depth must be from 1 to {DEEPEST}, not {self.depth}")
        if self.most_points is not None and not 1 <= self.most_points <= LONGEST:
            raise ValueError(f"most_points must be from 1 to 2^40, not {self.most_points}")
        if not 0 <= self.threshold_factor < 2**20:
            raise ValueError(f"threshold_factor must be at least 0 and below 2^20, not {self.threshold_factor}")
        for level in filter(self.deepest, self.levels):
            widest = self.sparse(level, nodes=False)
            if not widest.tree_scale(widest.scale).max() < LARGEST_SCALE:
                raise ValueError(
                    f"epsilon = {self.budget.epsilon:g} is too small for {self.points} points: the noise would be "
                    "wider than can be drawn. Plan for fewer points or fewer levels, or allow more."
                )

    # -- public facts -------------------------------------------------------------------------------------------

    @property
    def points(self) -> int:
        """Largest number of points."""
        return LONGEST if self.most_points is None else self.most_points

    def start(self, level: int) -> int:
        """First time of a level, t_r: 1-based, as the number of the point that arrives then."""
        return math.ceil(Fraction(2) ** level / Fraction(self.budget.epsilon))

    def level(self, time: int) -> int:
        """Level of a time, floor(log2(epsilon time)); below 0 before t_0."""
        scaled = Fraction(self.budget.epsilon) * time
        level = scaled.numerator.bit_length() - scaled.denominator.bit_length()
        return level if Fraction(2) ** level <= scaled else level - 1

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Levels from 0 on that hold a time up to the last point."""
        found, time = [], 1
        while time <= self.points:
            found.append(self.level(time))
            time = self.start(found[-1] + 1)
        return tuple(level for level in found if level >= 0)

    def share(self, node_level: int, level: int) -> float:
        """Budget of a node in a level of time: (4.1) and (5.1) of the paper."""
        if self.dimension == 1:
            return 3 / math.pi**2 * self.budget.epsilon / (node_level + 1) ** 2
        growth = math.pow(2, (1 - 1 / self.dimension) / 2)
        return (1 - 1 / growth) / 2 * self.budget.epsilon * math.pow(growth, node_level - level)

    def closing_scales(self, level: int) -> FloatArray:
        """Scale of the noise that closes a level of time, for nodes of levels 1 on, shape ``(existing levels,)``."""
        shares = [self.share(j, level) for j in range(1, self.deepest(level) + 1)]
        return np.asarray(2 / np.array(shares) * WIDER)

    def deepest(self, level: int) -> int:
        """Deepest level of nodes that exist in a level of time; 0 if there are none."""
        return max(0, min(level, self.depth))

    def sparse(self, level: int, *, nodes: bool = True) -> Sparse:
        """Algorithm 2 in a level of time with half of each share: for all nodes, or for one of each of their levels."""
        steps = self.start(level + 1) - self.start(level)
        scale = 2 * self.closing_scales(level)
        threshold = np.floor(self.threshold_factor * math.log(steps) * scale / 2).astype(np.int64)
        if nodes:
            scale, threshold = _spread(scale), _spread(threshold)
        return Sparse(horizon=steps, scale=scale, threshold=threshold)

    def claim(self) -> Claim:
        """What this mechanism promises for its whole life, from its configuration alone, in exact arithmetic."""
        # A closing of scale c costs 1 / c, and the counts before it 2 / (2 c).
        scales = [self.closing_scales(level).tolist() for level in self.levels]
        pure = max((2 * sum((2 / Fraction(c) for c in level), Fraction(0)) for level in scales), default=Fraction(0))
        return Claim(
            unit=EVENT,
            neighbours="replace-one",
            rho=pure * pure / 2,
            pure=pure,
            horizon=self.horizon,
            theorems=(self.theorem, "passes", "nodes"),
            trusts=("the domain, its partition, the number of points and the moments of their arrival are public",),
        )

    def fingerprint(self) -> str:
        """Hash of every number that decides what is drawn and with how much noise: SHA-256, hexadecimal."""
        facts: list[Any] = [self.dimension, self.depth, self.budget.epsilon, self.most_points, self.threshold_factor]
        facts += [self.closing_scales(min(self.depth, self.levels[-1])).tolist() if self.levels else []]
        return fingerprint_of(facts)

    # -- drawing ------------------------------------------------------------------------------------------------

    def init(self) -> State:
        """The state before the first point."""
        none, past = np.zeros(0, dtype=np.int64), np.zeros(2**self.depth if self.dimension == 1 else 0, dtype=np.int64)
        state = {"t": np.array(0), "time": np.array(0), "level": np.array(-1)}
        return state | {"settled": none, "came": none, "past": past}

    def step(self, state: State, cells: IntArray, moments: IntArray, gate: Gate) -> tuple[State, NodeCounts]:
        """Take in a block of points, one time step for each.

        Args:
            state: what the last step returned; it is not changed.
            cells: int64, shape ``(points,)``: nodes of level ``depth``, in order of arrival.
            moments: int64, shape ``(points,)``, in ``range(points)``, not decreasing: the step of the block at which
                each point arrives. Public; ``arange(points)`` in the paper.

        Raises:
            HorizonExhausted: more points than were planned for. Depends on their number alone.
            ValueError, TypeError: cells or moments are not as above.
        """
        self._check(cells, moments)
        gate = _AtMoments(gate, moments)
        time, number = int(state["time"]), int(cells.size)
        if time + number > self.points:
            raise HorizonExhausted(
                f"All {self.points} points of this stream but {self.points - time} have been released. Its budget "
                "covers no more: open another stream with a budget of its own."
            )
        begin = 0
        while begin < number:
            level = self.level(time + 1 + begin)
            end = min(number, self.start(level + 1) - 1 - time)
            if level >= 0:
                if level > int(state["level"]):
                    state = self._open(state, level, gate)
                part = slice(*np.searchsorted(moments, [begin, end]).tolist())
                state = self._count(state, cells[part], moments[part] - begin, end - begin, gate)
            begin = end
        state = state | {"t": np.array(int(state["t"]) + 1), "time": np.array(time + number)}
        return state, self._nodes(state)

    def moment(self, state: State, number: int) -> int:
        """The step of a block at which all of its points arrive, if they come at once: its first one.

        But a level of time counts points by its own nodes, which are few in early levels, and none before the first or
        in level 0. So points that a later level would close arrive with that one, whose counts are told at once; or, if
        the block closes none that has nodes, with its newest. This follows from the number of points.
        """
        time = int(state["time"])
        newest = self.level(time + number)
        level = newest - 1 if newest > 1 else newest
        return 0 if level <= max(self.level(time + 1), -1) else self.start(level) - 1 - time

    def _check(self, cells: IntArray, moments: IntArray) -> None:
        for name, array, end in (("cells", cells, 2**self.depth), ("moments", moments, cells.size)):
            if array.dtype != np.int64:
                raise TypeError(f"{name}: must be int64, not {array.dtype}")
            if array.shape != (cells.size,):
                raise ValueError(f"{name}: must be a vector, one for each point, not of shape {array.shape}")
            if cells.size and not 0 <= array.min() <= array.max() < end:
                raise ValueError(f"{name}: must be at least 0 and below {end}")
        if np.any(moments[1:] < moments[:-1]):
            raise ValueError("moments: must not decrease")

    def _open(self, state: State, level: int, gate: Gate) -> State:
        """Close the level of time before, if there is one, and begin another."""
        settled, before = state["settled"], int(state["level"])
        if settled.size:
            settled = settled + gate.laplace(state["came"], scale=_spread(self.closing_scales(before)))
        settled = np.concatenate([settled, self._first(state, level, gate)])
        kept = {"t": state["t"], "time": state["time"], "level": np.array(level)}
        kept |= {"settled": settled, "came": np.zeros_like(settled)}
        done = self.deepest(level) == self.depth
        kept["past"] = np.zeros(0, dtype=np.int64) if done else state["past"]
        return kept | {f"sparse.{name}": array for name, array in self.sparse(level).init(gate).items()}

    def _first(self, state: State, level: int, gate: Gate) -> IntArray:
        """First counts of the nodes that come into being with a level of time."""
        old, new = self.deepest(int(state["level"])), self.deepest(level)
        first = np.zeros(2 ** (new + 1) - 2 ** (old + 1), dtype=np.int64)
        closings = sum(closed < level for closed in self.levels)
        if self.dimension > 1 or not first.size or not closings:
            return first
        exact = [state["past"].reshape(2**j, -1).sum(axis=1) for j in range(old + 1, new + 1)]
        scale = _spread(self.closing_scales(level))[-first.size :]
        counts = gate.laplace(np.concatenate(exact), scale=scale)
        for _ in range(closings - 1):
            counts = counts + gate.laplace(first, scale=scale)
        return counts

    def _count(self, state: State, cells: IntArray, moments: IntArray, steps: int, gate: Gate) -> State:
        """Go on by some steps of the open level of time."""
        level = int(state["level"])
        arrivals = arrivals_at(cells, moments, steps=steps, depth=self.depth, levels=self.deepest(level))
        after = state | outer(self.sparse(level).step(inner(state, "sparse."), arrivals, gate), "sparse.")
        after["came"] = state["came"] + np.diff(arrivals.starts)
        if state["past"].size:
            after["past"] = state["past"] + np.bincount(cells, minlength=state["past"].size)
        return after

    def _nodes(self, state: State) -> NodeCounts:
        """The noisy counts as they stand."""
        counts = state["settled"]
        if self.deepest(int(state["level"])):
            counts = counts + state["sparse.noisy"].sum(axis=0)
        return NodeCounts.unpack(int(state["t"]) - 1, np.append(state["time"], counts))


class _AtMoments(Gate):
    """Another gate, which is told with each question when the points of the block arrive.

    Of a tick that was interrupted, no answer is taken for other moments: a point that an answer holds would count again
    where it arrives later.
    """

    def __init__(self, gate: Gate, moments: IntArray) -> None:
        self._gate, self._about = gate, hashlib.sha256(moments.tobytes()).digest()

    def answer(self, question: Question) -> IntArray:
        return self._gate.answer(replace(question, about=self._about))


def _spread(values: NDArray[Any]) -> NDArray[Any]:
    """One value for each level of nodes, from 1 on, to one for each node."""
    return np.repeat(values, 2 ** np.arange(1, values.size + 1))
