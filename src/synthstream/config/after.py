"""The section [after]: which stream this one goes on from, and what becomes of its values. All of it is public."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from pydantic import Field

from synthstream.config.keys import Place, Section
from synthstream.schema.mapping import SchemaMapping, mapping_of
from synthstream.schema.schema import Schema


class AfterSection(Section):
    """Keys of [after]. In the settings for readers ``config`` is all of the old settings."""

    config: Place | dict[str, Any]
    values: dict[str, dict[str, str]] = Field(default_factory=dict)
    fill: dict[str, str] = Field(default_factory=dict)


class Before(Protocol):
    """A configuration that another one goes on from."""

    @property
    def schema(self) -> Schema: ...
    @property
    def own_hash(self) -> str: ...


C = TypeVar("C", bound=Before)


@dataclass(frozen=True, kw_only=True)
class After(Generic[C]):
    """The stream that a successor goes on from.

    Args:
        config: its configuration.
        schema: the successor's columns.
        values, fill: see :func:`synthstream.schema.mapping.mapping_of`.
        tick: the cut: the successor's first tick; ``None`` before there is one.
    """

    config: C
    schema: Schema
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    fill: dict[str, str] = field(default_factory=dict)
    tick: int | None = None

    @cached_property
    def mapping(self) -> SchemaMapping:
        """What becomes of old values. Raises ``ConfigError`` if one has no place."""
        return mapping_of(self.config.schema, self.schema, values=self.values, fill=self.fill)

    def public(self) -> dict[str, Any]:
        """What it adds to the public settings."""
        return {"settings": self.config.own_hash, "values": self.values, "fill": self.fill}


def changed_for_ever(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a successor cannot change and does: key, and why not. Takes what :attr:`StreamConfig.kept` says of both."""
    for key, why in _KEPT.items():
        if old[key] != new[key]:
            yield key, f"{key}: {_both(old[key], new[key])}{why}. Set it back"


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


def _both(old: object, new: object) -> str:
    """What a value was and is; nothing of one that is told by its hash."""
    if any(isinstance(value, str) and _HASH.fullmatch(value) for value in (old, new)):
        return ""
    return f"was {_said(old)} and is {_said(new)}; "


def _said(value: object) -> str:
    """A value as ``stream.toml`` writes it; a tuple is a unit, as :attr:`StreamConfig.kept` has it."""
    if not isinstance(value, tuple):
        return "not set" if value is None else str(value)
    kind, person, max_events, max_per_tick, per = value
    if person is None:
        return f'"{kind}"'
    keys = {"person": f'"{person}"', "max_events": max_events, "max_per_tick": max_per_tick}
    keys["per"] = None if per is None else f'"{per}"'
    return f"{{ {', '.join(f'{key} = {part}' for key, part in keys.items() if part is not None)} }}"
