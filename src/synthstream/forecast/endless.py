"""What a stream without a horizon pays for that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from synthstream.config.config import StreamConfig
from synthstream.forecast.warnings import Caution
from synthstream.synthesizers.assembly import synthesizer_of

# What an unbounded horizon may cost without a word.
_DEARER = 1.05


def no_end(config: StreamConfig, ticks: int) -> Iterator[Caution]:
    """What an unbounded horizon costs, compared with one that leaves ``ticks`` ticks to these settings."""
    if config.clock.horizon is not None or config.workload is None:
        return
    horizon = config.since + ticks
    endless = synthesizer_of(config)
    ending = synthesizer_of(replace(config, clock=replace(config.clock, horizon=horizon, until=None)))
    if not (endless.exact_forecast and ending.exact_forecast):
        return
    ratio = math.sqrt(float(endless.expected_variance(ticks - 1)[-1] / ending.expected_variance(ticks - 1)[-1]))
    if ratio >= _DEARER:
        yield Caution(
            "clock.horizon",
            f"An unbounded horizon costs accuracy: after {ticks:,} ticks, errors are {ratio:.2f} times those of a "
            f"stream with horizon = {horizon}, which would end there.",
        )
