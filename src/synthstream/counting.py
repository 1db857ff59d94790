"""From frames to exact counts by tick. All of it is private; it needs no state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from synthstream.config import StreamConfig
from synthstream.counts import Counts
from synthstream.reading import Frame, polars_frame, signs, texts
from synthstream.workload import CodeArray, IntArray

# Exact counts of rows, from their codes and weights.
Count = Callable[[CodeArray, IntArray | None], Counts]


class Rows(NamedTuple):
    """Rows in numbers.

    Args:
        codes: shape ``(rows, columns)``.
        ticks: tick of each row by its own time; -1 for the tick that is open when it is counted.
        weights: +1 or -1 for each row; ``None`` in a stream without an op column, where each row adds an event.
        people: key of each row's person as text; ``None`` in a stream that protects events.
    """

    codes: CodeArray
    ticks: IntArray
    weights: IntArray | None = None
    people: pl.Series | None = None

    def content(self) -> tuple[bytes, ...]:
        """All that decides what these rows count for, as bytes."""
        numbers = tuple(part.tobytes() for part in (self.codes, self.ticks, self.weights) if part is not None)
        if self.people is None:
            return numbers
        keys = [key.encode() for key in self.people.to_list()]
        return (*numbers, np.array([len(key) for key in keys], dtype=np.int64).tobytes(), b"".join(keys))

    def since(self, tick: int) -> Rows:
        """Those of a tick or later by their own time."""
        kept = self.ticks >= tick
        weights = None if self.weights is None else self.weights[kept]
        people = None if self.people is None else self.people.filter(pl.Series(kept))
        return Rows(self.codes[kept], self.ticks[kept], weights, people)


def columns_of(config: StreamConfig) -> tuple[str, ...]:
    """Every column that a frame must have: those of the schema, the time, the op, the person."""
    extra = [name for name in (config.clock.column, config.op, config.privacy.person) if name is not None]
    return tuple(dict.fromkeys([*config.schema.names, *extra]))


def encode(config: StreamConfig, frame: Frame) -> Rows:
    """Rows of a frame in numbers. Total: no row can raise.

    Where persons are protected, rows without a person are left out: null, NaN, empty text, and cells that are no text
    and no number. That looks at each row alone.

    Raises:
        SchemaError: a column is missing.
    """
    codes, ticks = config.schema.encode(frame), config.clock.ticks_of(frame)
    weights = None if config.op is None else signs(polars_frame(frame, [config.op])[config.op])
    if config.privacy.person is None:
        return Rows(codes, ticks, weights)
    keys, missing = texts(polars_frame(frame, [config.privacy.person])[config.privacy.person])
    known = (~missing & keys.is_not_null() & (keys != "").fill_null(value=False)).to_numpy()
    signed = None if weights is None else weights[known]
    return Rows(codes[known], ticks[known], signed, keys.filter(pl.Series(known)))


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
