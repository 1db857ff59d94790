"""What a plan of the budget of an epoch of points is: made of released values, and checked by the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from synthstream.workload import FloatArray, IntArray


class Shape(NamedTuple):
    """What the newest release says of the events to come. Public.

    Args:
        masses: over the nodes of one level, in any unit, at least 0, float64, shape ``(2**level,)``.
        moving: how far mass has moved between the two newest epochs, in widths of the cube.
    """

    masses: FloatArray
    moving: float


class EpochPlan(NamedTuple):
    """What is measured while an epoch is open.

    Args:
        units: parts of the budget by level, int64, shape ``(levels,)``.
        steps: parts of an epoch after which a level is measured, int64, shape ``(levels,)``; 1: only at the end.
    """

    units: IntArray
    steps: IntArray


class Planner(Protocol):
    """Divides the budget of an epoch among levels, from public facts. It spends nothing: each plan is checked.

    Its properties are constants: the kernel asks for them again at each tick.
    """

    @property
    def words(self) -> str:
        """How it divides, as the end of a sentence."""

    @property
    def epochs(self) -> int:
        """Number of epochs while the number of events doubles."""

    @property
    def by_node(self) -> bool:
        """Whether the end of an epoch is planned node by node, each level from the readings of those above it."""

    @property
    def upper(self) -> int:
        """Levels of a release that the plan of an open epoch looks at, at most."""

    @property
    def together(self) -> bool:
        """Whether levels side by side that are measured equally often in an open epoch share a counter."""

    def facts(self) -> list[Any]:
        """Every number that decides its plans."""

    def possible_steps(self, depth: int) -> Sequence[int]:
        """How often a level of a partition of some depth may be measured in an epoch, where it is more than once."""

    def within(self, shape: Shape, events: float, depth: int, scale: float) -> EpochPlan:
        """Parts and steps while an epoch is open; levels below the deepest that is measured are left out.

        Args:
            shape: the newest release.
            events: number of events of the epoch.
            depth: number of levels.
            scale: noise of a level that gets the whole budget.
        """

    def end(self, shape: Shape, events: float, depth: int, scale: float, left: int) -> IntArray:
        """Parts at the end of an epoch, int64, shape ``(depth,)``, at most ``left`` together."""

    def at_once(self, events: float, scale: float) -> int:
        """Levels that are read together at the end of an epoch, at most: the parts of a node are counted.

        Args:
            events: number of events of the epoch, as it was released.
            scale: noise of a reading that gets the whole budget.
        """

    def nodes(self, mass: FloatArray, left: IntArray, depth: int, scale: float, joint: int) -> IntArray:
        """Parts for nodes of a level at the end of an epoch, int64, shape ``(n,)``.

        0: it is not measured; -1: nor is any node below it, none of which will be asked for.

        Args:
            mass: of each node, by the readings above it, shape ``(n,)``.
            left: parts that no node above has spent, int64, shape ``(n,)``.
            depth: number of levels from this one on, at most.
            scale: noise of a reading that gets the whole budget.
            joint: how many levels, from this one on, a reading is about.
        """
