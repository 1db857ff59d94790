"""From frames to exact counts by tick. All of it is private; it needs no state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from synthstream.config import StreamConfig
from synthstream.counts import Counts
from synthstream.reading import Frame, polars_frame, signs
from synthstream.workload import CodeArray, IntArray

# Exact counts of rows, from their codes and weights.
Count = Callable[[CodeArray, IntArray | None], Counts]


class Rows(NamedTuple):
    """Rows in numbers.

    Args:
        codes: shape ``(rows, columns)``.
        ticks: tick of each row by its own time; -1 for the tick that is open when it is counted.
        weights: +1 or -1 for each row; ``None`` in a stream without an op column, where each row adds an event.
    """

    codes: CodeArray
    ticks: IntArray
    weights: IntArray | None = None

    def content(self) -> tuple[bytes, ...]:
        """All that decides what these rows count for, as bytes."""
        return tuple(part.tobytes() for part in self if part is not None)

    def since(self, tick: int) -> Rows:
        """Those of a tick or later by their own time."""
        kept = self.ticks >= tick
        return Rows(self.codes[kept], self.ticks[kept], None if self.weights is None else self.weights[kept])


def columns_of(config: StreamConfig) -> tuple[str, ...]:
    """Every column that a frame must have: those of the schema, the time, the op."""
    extra = [name for name in (config.clock.column, config.op) if name is not None]
    return tuple(dict.fromkeys([*config.schema.names, *extra]))


def encode(config: StreamConfig, frame: Frame) -> Rows:
    """Rows of a frame in numbers. Total: no row can raise.

    Raises:
        SchemaError: a column is missing.
    """
    codes, ticks = config.schema.encode(frame), config.clock.ticks_of(frame)
    weights = None if config.op is None else signs(polars_frame(frame, [config.op])[config.op])
    return Rows(codes, ticks, weights)


def counted(rows: Rows, *, count: Count, open_tick: int) -> Iterator[tuple[int, Counts]]:
    """Exact counts for each tick that some of the rows belong to. Rows of closed ticks belong to the open one."""
    if len(rows.codes) == 0:
        return
    ticks = np.maximum(rows.ticks, open_tick)
    order = np.argsort(ticks, kind="stable")
    present, starts = np.unique(ticks[order], return_index=True)
    for tick, here in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
        weights = None if rows.weights is None else rows.weights[here]
        yield tick, count(rows.codes[here], weights)
