"""A stream that is lost when half of it is released."""

from __future__ import annotations

from pathlib import Path

from synthstream import Stream, StreamConfig
from synthstream.kernel.gate import Gate
from synthstream.stream.opening import system_gate
from tests.support.gates import ExactGate
from tests.support.streams import configured, rows

HALF = 4


def exact(tick: int) -> Gate:
    return ExactGate()


def half_run(folder: Path, kind: str, *, number: int = 400, gates: bool = False) -> StreamConfig:
    """A stream of 8 ticks that has released 4."""
    config = configured(folder, kind, until="2026-01-05")
    rows(number, 1).write_parquet(folder / "rows-1.parquet")
    with Stream(config, gates=exact if gates else system_gate) as stream:
        assert len(list(stream.run())) == HALF
    return configured(folder, kind)
