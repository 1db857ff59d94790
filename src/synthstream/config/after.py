"""The section [after]: which stream this one goes on from, and what becomes of its values. All of it is public."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field

from synthstream.config.keys import Earlier, Section


class AfterSection(Section):
    """Keys of [after]. In the settings for readers ``config`` is all of the old settings."""

    config: Earlier
    values: dict[str, dict[str, str]] = Field(default_factory=dict)
    fill: dict[str, str] = Field(default_factory=dict)


def changed_for_ever(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a successor cannot change and does: key, and why not. Takes what :attr:`StreamConfig.kept` says of both."""
    for key, why in _KEPT.items():
        if old[key] != new[key]:
            was, now = ("not set" if one[key] is None else str(one[key]) for one in (old, new))
            told = "" if _HASH.fullmatch(was) or _HASH.fullmatch(now) else f"was {was} and is {now}; "
            yield key, f"{key}: {told}{why}. Set it back"


def kept_for_ever(changed: Iterable[str]) -> list[str]:
    """Keys that no successor may change, of settings that differ, each as in ``clock.start: was ..., is ...``.

    Example:
        >>> kept_for_ever(["clock.timezone: was 'UTC', is 'Europe/Rome'", "columns.age.max: was 99, is 120"])
        ['clock.timezone']
    """
    keys = [text.partition(":")[0] for text in changed]
    return [key for key in keys if key in _KEPT or key.rpartition(".")[0] in ("privacy.unit", "synthesizer.region")]


_ONE_UNIT = "one promise for the whole life needs one unit"
_TICKS = "ticks go on under one clock, and a row keeps its tick"
_KEPT = {
    "name": "releases go on under one name",
    "state": "the state goes on in its folder",
    "sink": "releases go on in one folder",
    "privacy.unit": _ONE_UNIT,
    "privacy.neighbours": _ONE_UNIT,
    "op": _ONE_UNIT,
    "clock.start": _TICKS,
    "clock.every": _TICKS,
    "clock.timezone": _TICKS,
    "clock.column": _TICKS,
    "synthesizer.kind": "old rows and new ones must be of one kind",
    "columns": "a stream of points keeps its columns and its depth",
    "synthesizer.region": "points that were published may lie outside of other polygons",
}
# Kept values that are a hash of what was said.
_HASH = re.compile("[0-9a-f]{64}")
