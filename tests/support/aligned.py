"""Neighbours whose noise is aligned, and files that can be compared."""

from __future__ import annotations

from pathlib import Path

from synthstream.kernel.gate import Gate
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.gates import Call, ReplayingGate, TracingGate
from tests.support.visits import TOML

PURE = TOML.replace("delta = 1e-9", "delta = 0")


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.*"))}


class Aligned:
    """The answers of a recorded run, tick by tick, so that a neighbour draws noise that hides the difference."""

    def __init__(self) -> None:
        self.traces: dict[int, list[Call]] = {}

    def record(self, tick: int) -> Gate:
        gate = TracingGate(SeededGate(tick))
        self.traces[tick] = gate.trace
        return gate

    def replay(self, tick: int) -> Gate:
        return ReplayingGate(self.traces.get(tick, []))
