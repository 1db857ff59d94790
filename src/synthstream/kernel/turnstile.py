"""The default mechanism for points with deletions: points added and points taken away are measured separately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from synthstream.counts import Counts
from synthstream.kernel.counters.base import State, inner, outer
from synthstream.kernel.gate import Gate
from synthstream.kernel.points import Points
from synthstream.measured import TurnstileMeasured, fingerprint_of
from synthstream.privacy import Budget, Claim
from synthstream.strategies.levels import Shape

_SIDES = ("came", "gone")


@dataclass(frozen=True, kw_only=True)
class Turnstile:
    """Two :class:`Points` side by side: one counts the events that are added, one those that are taken away.

    The points that are left are the difference of the two. Neither count ever falls, so the epochs of both follow the
    rows that arrive. A mechanism that counted the net number would begin no new epoch, and measure nothing, while as
    many events go as come.

    Privacy:
        Unit        one event, adding or taking away; neighbours: add-remove (one cell of one side changes by one in one
                    tick) or replace-one (two cells change by one, on one side or one on each)
        Cost        that of one side, for both together: an event is on one side, and one that is replaced by an event
                    of the other side costs each of them half
        Theorem     points
        Trusts      the box, its partition and the clock are public
    Accuracy:       variances of both sides add up: noise grows with what came and went, not with what is there
    Time, memory:   twice that of one side

    Args:
        side: how each side measures; of signed events.

    Raises:
        ValueError: the events of ``side`` are not signed.
    """

    theorem: ClassVar[str] = "points"

    side: Points

    def __post_init__(self) -> None:
        # Which side a row counts on is private, and with it the number of events of each.
        if not self.side.unit.signed:
            raise ValueError("the events of a turnstile are signed")

    @property
    def budget(self) -> Budget:
        """What all releases together may cost."""
        return self.side.budget

    def claim(self) -> Claim:
        """What both sides promise together: what one of them promises."""
        return self.side.claim()

    def fingerprint(self) -> str:
        """Hash of every number that decides what is drawn and with how much noise."""
        return fingerprint_of([_SIDES, self.side.fingerprint()])

    def init(self) -> State:
        """The state before the first tick."""
        fresh = self.side.init()
        sides = {f"{name}.{key}": array.copy() for name in _SIDES for key, array in fresh.items() if key != "t"}
        return {"t": fresh["t"], **sides}

    def step(self, state: State, counts: Counts, gate: Gate, shape: Shape) -> tuple[State, TurnstileMeasured]:
        """Close one tick: see :meth:`Points.step`.

        Args:
            state: what the last step returned; it is used up, and must not be used again.
            counts: the tick's exact counts, as :meth:`count` gives them.
            gate: the source of noise.
            shape: of what is there by the newest release: of both sides a fair guess.

        Raises:
            HorizonExhausted: all ticks have been released.
        """
        tick, parts = state["t"], counts.split(self.side.partition.cells_number)
        after, found = {"t": np.array(int(tick) + 1)}, []
        # Both sides are planned before either draws: a plan that is refused is refused before any draw.
        sides = [self.side.planned(inner(state, f"{name}.") | {"t": tick}, shape) for name in _SIDES]
        for name, side, part in zip(_SIDES, sides, parts, strict=True):
            own, measured = self.side.step(side, part, gate, shape)
            del own["t"]
            after |= outer(own, f"{name}.")
            found.append(measured)
        return after, TurnstileMeasured(tick=int(tick), came=found[0], gone=found[1])
