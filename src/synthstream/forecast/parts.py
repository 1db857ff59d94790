"""What a successor's forecast leaves out: what was counted, and drawn, before the cut."""

from __future__ import annotations

import math
from itertools import count

import numpy as np

from synthstream.config.config import StreamConfig
from synthstream.forecast.warnings import Errors
from synthstream.synthesizers.assembly import synthesizer_of
from synthstream.synthesizers.succession import noise_before, waits_as_other
from synthstream.workload import FloatArray

_NO_CUT = (
    "The cut is not known here, so all ticks up to the horizon are taken for ticks after it. With fewer, errors are "
    "others, and tables may be measured at other times: `plan` with --after, and the file that [after] names, counts "
    "those that are left."
)


def of_the_cut(config: StreamConfig, ticks: int, stderr: Errors) -> tuple[str, ...]:
    """What a successor's forecast is the forecast of; nothing for other streams.

    Args:
        ticks, stderr: the last number of ticks since the cut that is forecast, and errors after it.
    """
    if config.after is None:
        return ()
    before = noise_before(config)
    known = [] if before is None else [_of_all_parts(config, before, ticks, stderr), _of_larger_tables(config, before)]
    when = "the cut" if config.after.tick is None else f"the cut at tick {config.after.tick}"
    if config.after.tick is None and config.clock.horizon is not None:
        known.insert(0, _NO_CUT)
    return (
        f"All errors are those of what is counted from {when} on. Running tables go on, and variances of both parts "
        "add up; tables with a new column begin at the cut.",
        *filter(None, [*known, waits_as_other(config)]),
    )


def _of_all_parts(config: StreamConfig, before: FloatArray, ticks: int, stderr: Errors) -> str:
    """How far running counts are off with the noise of the parts before a cut; empty if none goes on.

    Where tables are measured in epochs the number of events alone is a running count.
    """
    workload = config.workload
    if workload is None:
        return ""
    order = int(all(synthesizer_of(life).exact_forecast for life in config.lives))
    goes_on = before[(workload.order == order) & (before > 0)]
    if not goes_on.size:
        return ""
    what = ("the number of all events", "in a table of one column that goes on, a cell")[order]
    carried, own = math.sqrt(float(goes_on.mean())), stderr[order]
    return (
        f"Running counts keep the noise of before: {what} is off by {carried:,.3g} at the cut already (standard "
        f"error), and by {math.hypot(carried, own):,.3g} after {ticks:,} ticks more, of which {own:,.3g} are new. Each "
        "successor adds such a part."
    )


def _of_larger_tables(config: StreamConfig, before: FloatArray) -> str:
    """Whether larger tables begin anew at a cut, and when they would not; empty if they go on."""
    after = config.after
    if config.workload is None or after is None or after.tick is None:
        return ""
    begun = after.config.since
    made, last = synthesizer_of(after.config), after.tick - begun - 1
    if (at := made.refreshed(last)) == last or not np.any(before[config.workload.order > 1] > 0):
        return ""
    later = next(tick for tick in count(last + 1) if made.refreshed(tick) == tick)
    return (
        f"Larger tables were measured last with tick {begun + at:,}, and tick {begun + last:,} is the last before the "
        f"cut: measured counts of them begin anew there. They would go on from a cut after tick {begun + later:,}, at "
        "which they are measured again, or after one that brings a burst."
    )
