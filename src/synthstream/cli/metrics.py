"""``synthstream status --metrics``: public facts as OpenMetrics text, for a monitor that reads them now and then.

Nothing in it depends on a row: no unread messages, no sizes of the state, no durations of work.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from synthstream.config.config import StreamConfig
from synthstream.environment import REAL


class Gauge(NamedTuple):
    """One number, as it is now; of several with one name, the label tells which."""

    name: str
    help: str
    value: float
    label: tuple[str, str] | None = None


def openmetrics(config: StreamConfig, found: dict[str, Any]) -> str:
    """What is public of a stream, in the text format of OpenMetrics 1.0 (the draft of the IETF).

    Args:
        config: of the stream.
        found: what ``status --json`` prints.
    """
    lines, named = list[str](), set[str]()
    for gauge in sorted(_gauges(config, found), key=lambda gauge: gauge.name):  # what has one name stands together
        name = f"synthstream_{gauge.name}"
        if name not in named:
            named.add(name)
            lines += [f"# HELP {name} {gauge.help}", f"# TYPE {name} gauge"]
            lines += [f"# UNIT {name} seconds"] * name.endswith("_seconds")
        labels = [("stream", config.name), *([] if gauge.label is None else [gauge.label])]
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        lines.append(f"{name}{{{inside}}} {float(gauge.value):.15g}")
    return "\n".join([*lines, "# EOF", ""])


def _gauges(config: StreamConfig, found: dict[str, Any]) -> Iterator[Gauge]:
    from synthstream.ingest.logs import answers

    yield Gauge("ticks_released", "Ticks that have been released.", found["ticks"])
    yield Gauge("ticks_due", "Ticks that are over by the public clock and not released.", found["due"])
    if found["horizon"] is not None:
        yield Gauge("ticks_left", "Ticks that were paid for and not released.", found["horizon"] - found["ticks"])
    yield Gauge("run_refused", "1 if run would refuse: state or key lost, backup, other settings.", found["refused"])
    if found["last"] is not None:
        age = (REAL.now() - datetime.fromisoformat(found["last"]["end"])).total_seconds()
        yield Gauge("release_age_seconds", "Time since the newest released tick ended; not below 0.", round(age, 3))
    for mirror in found["mirrors"]:
        which = ("mirror", mirror["name"])
        yield Gauge("mirror_answered", "1 if the mirror says what it holds.", mirror["lag"] is not None, which)
        if mirror["lag"] is not None:
            yield Gauge("mirror_lag_ticks", "Releases that the mirror lacks.", mirror["lag"], which)
    answered = answers(config)
    if answered is not None:
        yield Gauge("source_answered", "1 if the source can be read.", answered)
    if config.status.free is not None:
        folders = {"state": config.state} | ({} if config.sink is None else {"releases": config.sink.path})
        for name, folder in folders.items():
            low = shutil.disk_usage(_there(folder)).free < config.status.free
            yield Gauge("disk_low", "1 if less is free than [status] free says.", low, ("folder", name))


def _there(folder: Path) -> Path:
    """A folder, or the nearest one above it that exists."""
    return next(place for place in (folder, *folder.absolute().parents) if place.is_dir())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
