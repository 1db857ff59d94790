"""What is not protected and what is not exact, for one stream: the parts of ``docs/limits.md`` that apply to it."""

from __future__ import annotations

from synthstream.config.config import StreamConfig
from synthstream.forecast.several import in_periods, of_several
from synthstream.kinds import spelled
from synthstream.privacy import Unit
from synthstream.publish.readme import left_out
from synthstream.workload import Workload


def limits_of(config: StreamConfig, *, impossible: int | None = None) -> dict[str, str]:
    """Short headings, and a sentence or two for each.

    Args:
        impossible: number of published rows that violate public constraints; ``None`` if that is not known.
    """
    found = _of_privacy(config) | _of_accuracy(config)
    if allowed := config.constraints.words(config.schema):
        rows = f" The newest release has {impossible:,} impossible rows." if impossible else ""
        rows = " No row of the newest release is impossible." if impossible == 0 else rows
        known = "An event that has another one, such as a mistyped value, is measured in its own cells, but has no row."
        found["Rows hold allowed combinations alone"] = f"{allowed}{rows} {known}"
    return found


def _of_privacy(config: StreamConfig) -> dict[str, str]:
    if config.privacy.unit.of_persons:
        found = _of_persons(config, config.privacy.unit)
    else:
        several = of_several(config, "rows")
        found = {"One event, not one person": f"Somebody with many rows is protected less: {several}"}
    if config.op is not None:
        found["Deleting undoes nothing that was released"] = (
            "Rows may take events away. Counts fall from then on; what was published before stays published."
        )
    if config.workload is None and config.privacy.neighbours != "add-remove":
        found["The number of events is exact"] = (
            "It is public under this promise. Who knows how many there should be can tell whether one is missing."
        )
    return found | {
        "Streams add up": "Two streams about the same people cost the sum of both budgets. This page describes one.",
        "Settings are public": "Columns, bounds, lists of values, the clock and the budget were set beforehand and are "
        "not protected.",
    }


def _of_persons(config: StreamConfig, unit: Unit) -> dict[str, str]:
    found = {
        "A person is a key": "Somebody who appears under two keys is protected as two people. Two who share a key are "
        "protected together, and each of them alone is not.",
        "People with many events are underrepresented": left_out(unit),
    }
    if unit.per is not None:
        found["A limit for a period protects a period"] = (
            f"The promise is for what of a person comes to be counted within one fixed period of {spelled(unit.per)}. "
            f"{in_periods(config)}"
        )
    return found


def _of_accuracy(config: StreamConfig) -> dict[str, str]:
    found = _of_points(config) if config.workload is None else _of_tables(config.workload)
    if config.measures == "refresh":
        found["Larger tables lag behind"] = (
            "Tables of two columns or more are measured whenever the stream has grown. Between these moments the rows "
            "keep what was known of them, and follow the total and the single columns."
        )
    if config.measures == "epochs":
        found["Tables lag behind the total"] = (
            "Larger tables are measured at the end of ever longer epochs, those of one column at the end of parts of "
            "them, too. What came since then shows in the total alone."
        )
    if config.synthesizer.of_paper and config.workload is not None:
        found["Most tables have no error bar"] = (
            "This published method measures selected tables. It is here for comparison."
        )
    if config.clock.column is not None:
        found["Late rows count late"] = (
            "A row that comes after its tick was closed counts in the tick that was open then."
        )
    return found


def _of_tables(workload: Workload) -> dict[str, str]:
    order = max((len(m) for m in workload.marginals), default=0)
    return {
        "Error bars show the noise alone": "They say nothing about values moved into the first or last bin, or filed "
        "under other. A rare value may be all noise: look at its error bar.",
        f"Relations among more than {order} column{'s' if order != 1 else ''} are not kept": "The rows follow the "
        "tables that were measured, and invent everything else.",
    }


def _of_points(config: StreamConfig) -> dict[str, str]:
    if config.synthesizer.of_paper:
        return {
            "The past is shown": "Counts of places are renewed when the number of events has doubled, and hardly ever "
            "in between: what came since lies where earlier events were, whether it came there or not.",
            "No error is known": "This published method has no error bars. It is here for comparison.",
        }
    return {
        "Detail lags behind": "Fine detail is measured less often than coarse. A new cluster shows in outline first. "
        "Where cells are lost in noise, points are spread evenly.",
        "Charts of points have no error bars": "The error of the count in any range can be computed from a release "
        "with the package: mass().",
    }
