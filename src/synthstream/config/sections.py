"""The shape of stream.toml: which keys there are, and what type each has. Nothing here looks at two keys at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from synthstream.config.columns import AnyColumn
from synthstream.config.keys import Moment, Name, Place, Section
from synthstream.config.secrecy import EncryptionConfig
from synthstream.config.sinks import MirrorConfig, PublicationConfig, SinkConfig
from synthstream.config.sources import SourceConfig
from synthstream.config.synthesis import SynthesizerConfig
from synthstream.errors import ConfigError
from synthstream.privacy import Budget, Neighbours
from synthstream.schema.clock import Clock


class PersonSection(Section):
    """A unit of persons: the column that holds their keys, and how many events of each count."""

    person: Name
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

    def budget(self) -> Budget:
        """What the custodian allows. Raises ``ValueError`` if it cannot be."""
        return Budget(epsilon=self.epsilon, delta=self.delta)

    def check_limits(self) -> None:
        """Raise ``ConfigError`` unless the limits of a unit of persons go together."""
        if self.unit == "event":
            return
        if self.neighbours != "add-remove":
            raise ConfigError(
                'a person is protected as one who is there or not; leave out neighbours, or say "add-remove". Who '
                "takes another's place may bring another number of events, at other times"
            )
        per_tick, events = self.unit.max_per_tick, self.unit.max_events
        if per_tick is not None and per_tick > events:
            raise ConfigError(
                f"max_per_tick = {per_tick} has no effect above max_events = {events}; leave it out, or let fewer "
                "events count in a tick"
            )


class ClockSection(Section):
    """Keys of [clock]."""

    column: str | None = None
    start: Moment
    every: str
    until: Moment | None = None
    timezone: str = "UTC"
    horizon: Literal["unbounded"] | int

    def clock(self) -> Clock:
        """The clock. Raises ``ConfigError`` if it cannot be, or its horizon ends before ``until``."""
        horizon = None if self.horizon == "unbounded" else self.horizon
        clock = Clock(**(self.model_dump() | {"horizon": horizon}))
        if self.until is not None and horizon is not None:
            ticks = replace(clock, horizon=None).ended_before(self.until)
            if ticks > horizon:
                raise ConfigError(f"horizon = {horizon}: there are {ticks} ticks up to until; pay for at least as many")
        return clock


class File(Section):
    """A whole ``stream.toml``."""

    name: str = Field(min_length=1, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    state: Place
    op: Name | None = None
    privacy: PrivacySection
    clock: ClockSection
    columns: list[AnyColumn] = Field(min_length=1)
    synthesizer: SynthesizerConfig = SynthesizerConfig()
    source: SourceConfig | None = None
    sink: SinkConfig | None = None
    mirror: tuple[MirrorConfig, ...] = Field(default=(), strict=False)
    encryption: EncryptionConfig | None = None
    publication: PublicationConfig = PublicationConfig()
