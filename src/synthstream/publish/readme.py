"""``README.md`` beside published files: what they are, which of them answers what, how to cite and to check them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synthstream.config.config import StreamConfig
from synthstream.kinds import spelled
from synthstream.privacy import Unit
from synthstream.publish.folder import SERIES
from synthstream.schema.clock import written

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
    start, end = config.clock.boundary(0), config.clock.boundary(manifest["tick"] + 1)
    covered = f"from {written(start)} to before {written(end)}"
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
    clock, about, tick = config.clock, config.publication, manifest["tick"]
    wall = f"on the wall clock of {clock.timezone}"
    parts = [
        f"{MARK}\n\n# {title_of(config, manifest)}",
        f"**{manifest['warning']}.**" if "warning" in manifest else "",
        about.description or "",
        f"The release of tick {tick} of the stream `{config.name}`: synthetic rows, and counts with noise, of all "
        f"events from {written(clock.boundary(0))} to before {written(clock.boundary(tick + 1))}, {wall}"
        f"{' that count' if config.privacy.unit.of_persons else ''}. A tick is {spelled(clock.every)}. An event is "
        f"one row of the data, with the columns {', '.join(config.schema.names)}; `datapackage.json` says what each "
        "means. No synthetic row stands for a real event.",
        "\n".join(
            f"| {a} | {b} |" for a, b in [("to know", "take"), ("---", "---"), *_answers(config, manifest, where)]
        ),
        _caution(config),
        left_out(config.privacy.unit),
        less(config),
        f"**What is promised.** {manifest['claim']['words']}",
        f"**To cite it.** {cited(config, manifest)}",
        f"**Licence.** {about.licence}" if about.licence else "",
        f"**Contact.** {about.contact}" if about.contact else "",
        _address(tick, where),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def within(unit: Unit) -> str:
    """Which events a count holds, where a limit of persons leaves some out; empty for events.

    Example:
        >>> within(Unit(kind="person", max_events=4, per="364d", period=52))
        'at most 4 of each person in a period of 364 days'
    """
    if not unit.of_persons:
        return ""
    return (
        f"at most {unit.max_events} of each person{'' if unit.per is None else f' in a period of {spelled(unit.per)}'}"
    )


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


def _caution(config: StreamConfig) -> str:
    found = "Rows are made from the noisy counts. No error is known for a `count` of rows"
    if config.workload is None:
        return f"{found}, and where in its finest cell a row lies is invented."
    bar = " An error bar is `measured` plus and minus two `stderr`." if has_history(config) else ""
    return (
        f"{found}, they relate at most two columns at a time, and where in its bin a row lies is invented: they are "
        f"for models and pictures of many events, not for counts of few.{bar}"
    )


def _answers(config: StreamConfig, manifest: Mapping[str, Any], where: str) -> list[tuple[str, str]]:
    """Questions, and the files that answer them."""
    tables, site = f"`{where}tables.parquet`", not where
    found = [
        (
            "how many, of one column or two",
            f"{tables}: `measured`, with its error `stderr`; it counts from tick `since` on"
            f"{', in `tables.csv` from the date `counted_from` to before `counted_before`' if site else ''}",
        )
    ]
    if config.workload is None:
        found = [("how many in a part of the box", f"{tables}: the nodes of a tree")]
    elif not has_history(config):
        found = [("how many", f"{tables}: `count` in the rows; which errors are known, `stderr` says")]
    if has_history(config) and site:
        found += [
            ("how many in one tick, month or year: a trend", f"`{HISTORY}`: all of them, `measured` with `stderr`")
        ]
    elif SERIES in manifest["files"]:
        found += [("how many in one tick: a trend", f"`{SERIES}` of each release, lines with `span` = `tick`")]
    found += [("models and pictures of rows", f"`{where}rows.parquet`")]
    if site:
        found += [
            ("charts and maps", "`explorer.html` and `index.html`, in a browser"),
            ("older releases", f"`{LISTED}`"),
        ]
    return [*found, ("hashes, and the promise in numbers", f"`{where}manifest.json`")]


def _address(tick: int, where: str) -> str:
    check = "`manifest.json` has the SHA-256 of each Parquet file, and a chain that binds it to all releases before."
    if where:
        return f"**Address.** Folders with numbers never change; `{where}` is the newest. **To check it.** {check}"
    return (
        "Each Parquet file but `measured.parquet` is there as CSV too. **Address.** This folder, `latest/`, keeps its "
        f"address and always has the newest release; this one stays in `../releases/{tick:06d}/`. **To check it.** "
        f"`sha256sum -c {SUMS}`; {check}"
    )
