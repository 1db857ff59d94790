"""The shape of stream.toml: which keys there are, and what type each has. Nothing here looks at two keys at once."""

from __future__ import annotations

import os
from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from synthstream.config.logs import SourceSection
from synthstream.config.secrecy import EncryptionSection
from synthstream.config.synthesis import Section, SynthesizerSection
from synthstream.errors import ConfigError
from synthstream.kinds import Content
from synthstream.privacy import Neighbours
from synthstream.schema.columns import Part


def _moment(value: object) -> object:
    """A TOML date is the beginning of its day."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


Moment = Annotated[datetime, BeforeValidator(_moment)]


_URL = r"^https?://\S+$"

# A path; ~ stands for a home folder, as in a shell. Variables of the environment are not replaced.
Place = Annotated[str, Field(min_length=1), AfterValidator(os.path.expanduser)]


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


class _Sink(Section):
    kind: Literal["parquet"]
    path: Place
    rows: Literal["total"] | Annotated[int, Field(ge=0)] = "total"
    keep: int | None = Field(default=None, ge=1)


class AlsoSection(Section):
    """Keys of [[also]]: another place that gets a copy of each release."""

    kind: Literal["delta", "postgres"]
    path: str | None = Field(default=None, min_length=1)
    table: str | None = Field(default=None, min_length=1)
    service: str | None = Field(default=None, pattern=r"^[\w.-]+$")
    content: Content = "rows"

    def check(self) -> None:
        """Raise ``ConfigError`` unless the keys are those of the kind."""
        required, others = ("path", ("table", "service")) if self.kind == "delta" else ("table", ("path",))
        for name in others:
            if getattr(self, name) is not None:
                raise ConfigError(f'{name}: means nothing to kind = "{self.kind}"')
        if getattr(self, required) is None:
            raise ConfigError(f'also.{required}: this key is required for kind = "{self.kind}"')


class PublicationSection(Section):
    """Keys of [publication]: what portals show beside the releases. All public, none needed."""

    title: str | None = Field(default=None, min_length=1)
    description: str | None = None
    publisher: str | None = Field(default=None, min_length=1)
    contact: str | None = Field(default=None, min_length=1)
    homepage: str | None = Field(default=None, pattern=_URL)
    licence: str | None = Field(default=None, pattern=rf"{_URL}|^[A-Za-z0-9][A-Za-z0-9.+-]*$")
    keywords: list[str] = Field(default_factory=list)


class File(Section):
    """A whole ``stream.toml``."""

    name: str = Field(min_length=1, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    state: Place
    op: str | None = Field(default=None, min_length=1)
    privacy: PrivacySection
    clock: ClockSection
    columns: list[Columns] = Field(min_length=1)
    synthesizer: SynthesizerSection = SynthesizerSection()
    source: SourceSection | None = None
    sink: _Sink | None = None
    also: tuple[AlsoSection, ...] = Field(default=(), strict=False)
    encryption: EncryptionSection | None = None
    publication: PublicationSection = PublicationSection()


# Every table of the file by its name, columns by their type.
SECTIONS: dict[str, type[Section]] = {
    "": File,
    "privacy": PrivacySection,
    "unit": PersonSection,
    "clock": ClockSection,
    "synthesizer": SynthesizerSection,
    "source": SourceSection,
    "sink": _Sink,
    "also": AlsoSection,
    "encryption": EncryptionSection,
    "publication": PublicationSection,
    "category": _Category,
    "boolean": _Boolean,
    "integer": _Integer,
    "number": _Number,
    "datetime": _Datetime,
}
