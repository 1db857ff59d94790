"""The shape of stream.toml: which keys there are, and what type each has. Nothing here looks at two keys at once."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from synthstream.config.after import AfterSection
from synthstream.config.constraints import ConstraintSection
from synthstream.config.keys import ColumnSection, Listed, Name, Place, Section, Strictly, Texts, Time
from synthstream.config.places import PlaceSection
from synthstream.config.secrecy import EncryptionConfig
from synthstream.config.sinks import MirrorConfig, PublicationConfig, SinkConfig, StatusConfig
from synthstream.config.sources import SourceConfig
from synthstream.config.synthesis import SynthesizerConfig
from synthstream.errors import ConfigError
from synthstream.privacy import Budget, Neighbours, Unit
from synthstream.schema.binned import Datetime, Integer, Number, Part
from synthstream.schema.clock import Clock, known_zone, no_zone
from synthstream.schema.columns import Boolean, Category, Column, Words
from synthstream.schema.coordinates import Coordinate


class PersonSection(Section):
    """A unit of persons: the column that holds their keys, and how many events of each count."""

    person: Name
    max_events: int = Field(ge=1, le=1_000_000)
    max_per_tick: int | None = Field(default=None, ge=1)
    per: str | None = None


_Unit = Annotated[
    Annotated[Literal["event"], Tag("event")] | Annotated[PersonSection, Tag("person")],
    Discriminator(lambda value: "person" if isinstance(value, dict | PersonSection) else "event"),
]


class PrivacySection(Section):
    """Keys of [privacy]."""

    epsilon: float
    delta: float
    unit: _Unit
    neighbours: Neighbours = "add-remove"

    @property
    def persons(self) -> PersonSection | None:
        """Who is protected, unless it is single events."""
        return None if self.unit == "event" else self.unit

    def budget(self) -> Budget:
        """What the custodian allows. Raises ``ValueError`` if it cannot be."""
        return Budget(epsilon=self.epsilon, delta=self.delta)

    def check_limits(self) -> None:
        """Raise ``ConfigError`` unless the limits of a unit of persons go together."""
        if self.persons is None:
            return
        if self.neighbours != "add-remove":
            raise ConfigError(
                'neighbours = "replace-one" is not possible if persons are protected: a person who takes the place of '
                'another may bring another number of events, at other times. Leave neighbours out, or say "add-remove"'
            )
        per_tick, events = self.persons.max_per_tick, self.persons.max_events
        if per_tick is not None and per_tick > events:
            raise ConfigError(
                f"max_per_tick = {per_tick} has no effect above max_events = {events}; leave it out, or let fewer "
                "events count in a tick"
            )


@dataclass(frozen=True, kw_only=True)
class PrivacyConfig:
    """Budget, unit and neighbours.

    Args:
        person: the column that holds each person's key; ``None`` if the unit is an event.
    """

    budget: Budget
    unit: Unit
    person: str | None
    neighbours: Neighbours


class ClockSection(Section):
    """Keys of [clock]."""

    column: Name | None = None
    start: Time
    every: str
    until: Time | None = None
    timezone: str = "UTC"
    wait: str | None = None
    horizon: Literal["unbounded"] | int

    def clock(self) -> Clock:
        """The clock. Raises ``ConfigError`` if it cannot be, or its horizon ends before ``until``."""
        horizon = None if self.horizon == "unbounded" else self.horizon
        clock = Clock(**(self.model_dump() | {"horizon": horizon}))
        if self.until is not None and horizon is not None:
            ticks = replace(clock, horizon=None).ended_before(self.until)
            if ticks > horizon:
                minutes = ' (every: "m" is minutes; a month is "1mo")' if self.every[-1] == "m" else ""
                more = f"there are {ticks} ticks up to until{minutes}; pay for at least as many"
                raise ConfigError(f"horizon = {horizon}: {more}")
        return clock


class _Category(ColumnSection):
    type: Literal["category"]
    values: Texts
    missing: str | None = None
    other: str | None = None
    regions: Name | None = None
    region_key: Name | None = None

    @property
    def words(self) -> Words:
        return replace(super().words, regions=self.regions, region_key=self.region_key)


class _Boolean(ColumnSection):
    type: Literal["boolean"]
    missing: bool | None = None


class _Binned(ColumnSection):
    # How far the end of the last bin lies above max.
    _beyond: ClassVar[int] = 0

    @model_validator(mode="before")
    @classmethod
    def _from_edges(cls, keys: Any) -> Any:
        """Keys of a column with ``edges``, and the others that follow from them; what contradicts is found later."""
        if not isinstance(keys, dict) or "edges" not in keys:
            return keys
        edges, end = keys["edges"], [keys["max"]] if "max" in keys else []
        said = [*edges, *end] if isinstance(edges, list) else []
        if len(said) < 2 or not all(isinstance(one, int | float) for one in said):
            return {"min": 0, "max": 1, "bins": 1, **keys}  # for one error, that of edges
        cuts = [*edges, *(one + cls._beyond for one in end)]
        return {"min": cuts[0], "max": cuts[-1] - cls._beyond, "bins": len(cuts) - 1, **keys, "edges": cuts}


class _Integer(_Binned):
    _beyond = 1
    type: Literal["integer"]
    min: int
    max: int
    bins: int | None = None
    width: int | None = None
    scale: Literal["log"] | None = None
    cuts: Listed[Strictly[int]] | None = Field(default=None, alias="edges", min_length=2)
    missing: int | None = None


class _Number(_Binned):
    type: Literal["number"]
    min: float
    max: float
    bins: int | None = None
    scale: Literal["log"] | None = None
    cuts: Listed[Strictly[float]] | None = Field(default=None, alias="edges", min_length=2)
    missing: float | None = None
    decimals: int | None = None


class _Datetime(ColumnSection):
    type: Literal["datetime"]
    part: Part | None = None
    min: Time | None = None
    max: Time | None = None
    bins: int | None = None
    missing: Time | int | None = None
    timezone: str | None = None


AnyColumn = Annotated[_Category | _Boolean | _Integer | _Number | _Datetime | PlaceSection, Field(discriminator="type")]

MADE: dict[str, type[Column]] = {made.type: made for made in (Category, Boolean, Integer, Number, Datetime)}


class File(Section):
    """A whole ``stream.toml``."""

    name: Annotated[Name, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
    state: Place
    op: Name | None = None
    privacy: PrivacySection
    clock: ClockSection
    columns: list[AnyColumn] = Field(min_length=1)
    constraints: tuple[ConstraintSection, ...] = Field(default=(), strict=False)
    synthesizer: SynthesizerConfig = SynthesizerConfig()
    source: SourceConfig | None = None
    sink: SinkConfig | None = None
    mirror: tuple[MirrorConfig, ...] = Field(default=(), strict=False)
    encryption: EncryptionConfig | None = None
    publication: PublicationConfig = PublicationConfig()
    after: AfterSection | None = None
    status: StatusConfig = StatusConfig()


def column_of(section: AnyColumn, timezone: str) -> Column:
    """The column of a stream of tables; times are on the wall clock of a zone, unless the section names another.

    Raises:
        ConfigError, SchemaError: there is no such column.
    """
    settings = section.model_dump(exclude={"type", *(told.name for told in fields(Words))})
    if section.words.region_key is not None and section.words.regions is None:
        raise ConfigError("region_key: has no effect without regions; name the GeoJSON file, or leave it out")
    if section.type == "number" and section.bins is None:
        raise ConfigError(
            'bins: is missing; say in how many equal bins the range is cut (or kind = "points" in [synthesizer], if '
            "all columns are numbers)"
        )
    if section.type == "datetime" and section.timezone is None:
        settings["timezone"] = timezone
    elif section.type == "datetime" and not known_zone(settings["timezone"]):
        raise ConfigError(f"timezone = {section.timezone!r}: {no_zone(settings['timezone'])}")
    return MADE[section.type](words=section.words, **settings)


def coordinate_of(section: AnyColumn, bits: int) -> Coordinate:
    """The column of a stream of points, with ``bits`` binary digits.

    Raises:
        ConfigError: it is no column of a points stream; SchemaError: its range cannot be.
    """
    if section.type != "number":
        raise ConfigError(
            f'type = "{section.type}": a stream of points takes numbers only. Leave this column out, or use '
            'kind = "table"'
        )
    if section.bins is not None or section.scale is not None:
        key = "edges" if section.cuts is not None else "bins" if section.scale is None else "scale"
        raise ConfigError(
            f"{key}: has no effect in a stream of points, whose columns are cut as fine as the data allow; leave it out"
        )
    if section.missing is None:
        raise ConfigError("missing: say as which number missing cells count; points have no cell for them")
    said = section.model_dump(include={"name", "source", "min", "max", "missing"})
    return Coordinate(words=section.words, bits=bits, **said)
