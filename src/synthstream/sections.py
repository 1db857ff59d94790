"""The shape of stream.toml: which keys there are, and what type each has. Nothing here looks at two keys at once."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from synthstream.columns import Part
from synthstream.io.sources import Kind as SourceKind
from synthstream.privacy import Neighbours
from synthstream.secrecy import EncryptionSection
from synthstream.synthesis import Section, SynthesizerSection


def _moment(value: object) -> object:
    """A TOML date is the beginning of its day."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


Moment = Annotated[datetime, BeforeValidator(_moment)]


class PersonSection(Section):
    """A unit of persons: the column that holds their keys, and how many events of each count."""

    person: str = Field(min_length=1)
    max_events: int = Field(ge=1, le=1_000_000)
    max_per_tick: int | None = Field(default=None, ge=1)
    per: str | None = None


def _kind_of_unit(value: object) -> str:
    return "person" if isinstance(value, dict | PersonSection) else "event"


_Unit = Annotated[
    Annotated[Literal["event"], Tag("event")] | Annotated[PersonSection, Tag("person")], Discriminator(_kind_of_unit)
]


class PrivacySection(Section):
    """Keys of [privacy]."""

    epsilon: float
    delta: float
    unit: _Unit
    neighbours: Neighbours = "add-remove"


class ClockSection(Section):
    """Keys of [clock]."""

    column: str | None = None
    start: Moment
    every: str
    until: Moment | None = None
    timezone: str = "UTC"
    horizon: Literal["unbounded"] | int


class _Category(Section):
    type: Literal["category"]
    name: str
    values: list[str]
    missing: str | None = None
    other: str | None = None


class _Boolean(Section):
    type: Literal["boolean"]
    name: str
    missing: bool | None = None


class _Integer(Section):
    type: Literal["integer"]
    name: str
    min: int
    max: int
    bins: int | None = None
    missing: int | None = None


class _Number(Section):
    type: Literal["number"]
    name: str
    min: float
    max: float
    bins: int | None = None
    missing: float | None = None


class _Datetime(Section):
    type: Literal["datetime"]
    name: str
    part: Part | None = None
    min: Moment | None = None
    max: Moment | None = None
    bins: int | None = None
    missing: Moment | int | None = None
    timezone: str | None = None


Columns = Annotated[_Category | _Boolean | _Integer | _Number | _Datetime, Field(discriminator="type")]


class _Source(Section):
    kind: SourceKind
    path: str


class _Sink(Section):
    kind: Literal["parquet"]
    path: str
    rows: Literal["total"] | Annotated[int, Field(ge=0)] = "total"
    keep: int | None = Field(default=None, ge=1)


class File(Section):
    """A whole ``stream.toml``."""

    name: str = Field(min_length=1)
    state: str = Field(min_length=1)
    op: str | None = Field(default=None, min_length=1)
    privacy: PrivacySection
    clock: ClockSection
    columns: list[Columns] = Field(min_length=1)
    synthesizer: SynthesizerSection = SynthesizerSection()
    source: _Source | None = None
    sink: _Sink | None = None
    encryption: EncryptionSection | None = None


# Every table of the file by its name, columns by their type.
SECTIONS: dict[str, type[Section]] = {
    "": File,
    "privacy": PrivacySection,
    "unit": PersonSection,
    "clock": ClockSection,
    "synthesizer": SynthesizerSection,
    "source": _Source,
    "sink": _Sink,
    "encryption": EncryptionSection,
    "category": _Category,
    "boolean": _Boolean,
    "integer": _Integer,
    "number": _Number,
    "datetime": _Datetime,
}
