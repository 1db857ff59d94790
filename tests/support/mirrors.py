"""Streams with mirrors, whose noise is simulated."""

from __future__ import annotations

from pathlib import Path

from synthstream import Stream, StreamConfig
from synthstream.environment import Env
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.environments import Recording
from tests.support.streams import rows, text_of


def prepared(folder: Path, mirrors: str, kind: str = "always") -> StreamConfig:
    """A stream of 300 rows with these sections."""
    folder.mkdir(exist_ok=True)
    rows(300, 1).write_parquet(folder / "rows-1.parquet")
    return StreamConfig.from_toml(text_of(kind) + mirrors, base=folder)


def opened(config: StreamConfig, env: Env | None = None, *, unchecked: bool = False) -> Stream:
    gates = lambda tick: SeededGate(f"5/{tick}")  # noqa: E731
    return Stream(config, gates=gates, seed=5, env=env or Recording(), unchecked=unchecked)
