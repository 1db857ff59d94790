"""What is kept of each tick in public, by a state and by a sink: what passed the gate, and the chain head after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from synthstream.measured import Committed


def heads_of(committed: Callable[[int], Committed | None]) -> Callable[[int], str | None]:
    """Chain heads by tick, from what looks up all that was committed; ``None`` where nothing was."""

    def head(tick: int) -> str | None:
        found = committed(tick)
        return None if found is None else found.head

    return head


def as_published(tick: int, measured: pl.DataFrame, manifest: Mapping[str, Any]) -> Committed:
    """What was committed for a tick, as its release tells it."""
    released = measured["released"].to_numpy().astype(np.int64)
    return Committed(tick, released, str(manifest["chain"]["head"]), tuple(manifest.get("unchecked", ())))
