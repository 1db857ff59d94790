"""Counting away from the stream: on other machines, before rows are sent to it."""

from __future__ import annotations

from pathlib import Path

from synthstream.config.config import StreamConfig, load
from synthstream.ingest.counting import BatchCounting
from synthstream.synthesizers.assembly import synthesizer_of


class Counting(BatchCounting):
    """Counts rows for a stream: on any machine, in any process, in as many parts as one likes. It needs no state.

    Raises:
        ConfigError: the stream protects persons: how many rows of each have counted must be known before they are
            counted, so rows go to the stream itself.

    Args:
        config: of the stream, or the path of its ``stream.toml``; with [after], as ``Stream(...).config`` or
            ``Releases(...).config`` has it, which know where its lives ended.

    Example:
        >>> import polars as pl
        >>> config = StreamConfig.from_toml('''
        ... name = "visits"
        ... state = "state"
        ... privacy = { epsilon = 1.0, delta = 1e-9, unit = "event" }
        ... clock = { column = "day", start = 2026-01-01, every = "1d", horizon = 365 }
        ... columns = [{ name = "ward", type = "category", values = ["A", "B"] }]
        ... ''')
        >>> counting = Counting(config)
        >>> one = counting.count(pl.DataFrame({"day": ["2026-01-01", "2026-01-02"], "ward": ["A", "B"]}))
        >>> two = counting.count(pl.DataFrame({"day": ["2026-01-02"], "ward": ["C"]}))
        >>> both = one.merge(two)
        >>> {tick: counts.dense(5).tolist() for tick, counts in both.ticks.items()}
        {0: [1, 1, 0, 0, 0], 1: [2, 0, 1, 1, 0]}
        >>> two.merge(one).to_bytes() == both.to_bytes()
        True
    """

    def __init__(self, config: StreamConfig | str | Path) -> None:
        config = load(config)
        made = synthesizer_of(config)
        super().__init__(config, count=made.count, cells=made.cells)
