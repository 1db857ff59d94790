"""``README.md`` beside published files: what they are, which of them answers what, how to cite and to check them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synthstream.config.config import StreamConfig
from synthstream.config.texts import filled
from synthstream.kinds import spelled
from synthstream.privacy import Unit
from synthstream.publish.folder import SERIES

# Its first line: a file without it is somebody else's, and is not written over.
MARK = "<!-- Written by Synthstream, and again with each release. -->"
# What a site has beside what was published, in ``latest``.
HISTORY, LISTED, SUMS = "history.parquet", "releases.json", "SHA256SUMS"


def title_of(config: StreamConfig, manifest: Mapping[str, Any]) -> str:
    """What people call the published copy; of a simulation it says what that is."""
    title = config.publication.title or f"{config.name}: synthetic copy"
    return f"NOT PRIVATE, a simulation: {title}" if "warning" in manifest else title


def cited(config: StreamConfig, manifest: Mapping[str, Any]) -> str:
    """How to cite a release: it is named by its tick, and by the head of its chain."""
    about, head = config.publication, manifest["chain"]["head"][:16]
    release = f"{title_of(config, manifest)}, release of tick {manifest['tick']}"
    covered = f"from {config.clock.begins(0)} to before {config.clock.begins(manifest['tick'] + 1)}"
    if limit := within(config.privacy.unit):
        covered += f", {limit}"
    parts = (about.publisher, release, f"Events counted {covered}", "Synthetic data", f"Chain {head}")
    return ". ".join(part for part in (*parts, about.homepage) if part)


def has_history(config: StreamConfig) -> bool:
    """Whether what was counted in each tick is known with its error: of tables, but where some are chosen."""
    return config.measures in ("always", "refresh", "epochs")


def readme(config: StreamConfig, manifest: Mapping[str, Any], where: str) -> str:
    """The text: a pure function of the configuration and the manifest of the newest release.

    Args:
        where: what stands before names of its files, such as ``000007/``; empty in a site's ``latest``.
    """
    clock, tick = config.clock, manifest["tick"]
    return filled(
        "publish",
        "README.md.jinja",
        mark=MARK,
        title=title_of(config, manifest),
        config=config,
        about=config.publication,
        manifest=manifest,
        tick=tick,
        start=clock.begins(0),
        end=clock.begins(tick + 1),
        every=spelled(clock.every),
        where=where,
        site=not where,
        history=has_history(config),
        files={"history": HISTORY, "series": SERIES, "listed": LISTED, "sums": SUMS},
        limits=[left_out(config.privacy.unit), less(config)],
        cited=cited(config, manifest),
    )


def within(unit: Unit) -> str:
    """Which events a count holds, where a limit of persons leaves some out; empty for events.

    Example:
        >>> within(Unit(kind="person", max_events=4, per="364d", period=52))
        'at most 4 of each person in a period of 364 days'
    """
    if not unit.of_persons:
        return ""
    period = "" if unit.per is None else f" in a period of {spelled(unit.per)}"
    return f"at most {unit.max_events} of each person{period}"


def left_out(unit: Unit) -> str:
    """What the limit of persons takes from every count; empty for events.

    Example:
        >>> left_out(Unit(kind="person", max_events=4))[:65]
        'Of each person at most 4 events count; further ones are left out.'
    """
    if not unit.of_persons:
        return ""
    one = unit.max_events == 1
    tick = "" if unit.max_per_tick is None else f", {unit.in_a_tick} in a tick"
    period = "" if unit.per is None else f" in each period of {spelled(unit.per)}"
    return (
        f"Of each person at most {unit.max_events} event{' counts' if one else 's count'}{period}{tick}; "
        "further ones are left out. So counts of what happens often to the same people are too low: no number says by "
        "how much, and error bars do not show it."
    )


def less(config: StreamConfig) -> str:
    """What counts are in a stream whose rows may take events away; empty in others."""
    if config.op is None:
        return ""
    return (
        "Rows may take events away, and are subtracted: a count from the start says how many are left, one of a tick, "
        "a month or other dates how that number changed, so it may be below 0 in truth."
    )


def falling(unit: Unit) -> str:
    """How the limit of persons makes counts fall over time; empty where it does not.

    Example:
        >>> falling(Unit(kind="person", max_events=4, per="4w", period=4))
        'late in a period fewer can count, so that a series can fall though nothing changed'
        >>> falling(Unit(kind="person", max_events=4, max_per_tick=1, per="4w", period=4))
        ''
    """
    if not unit.of_persons or (unit.period is not None and unit.max_events >= unit.period * unit.in_a_tick):
        return ""
    fewer = "the longer a stream runs, the fewer can count" if unit.per is None else "late in a period fewer can count"
    return f"{fewer}, so that a series can fall though nothing changed"
