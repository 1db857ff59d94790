"""The sections [[columns]], and the columns of the schema that they describe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from synthstream.config.keys import Moment, Section, Words
from synthstream.errors import ConfigError
from synthstream.schema.clock import known_zone
from synthstream.schema.columns import Boolean, Category, Column, Datetime, Integer, Number, Part
from synthstream.schema.coordinates import Coordinate


class _Category(Section):
    type: Literal["category"]
    name: str
    values: Words
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


AnyColumn = Annotated[_Category | _Boolean | _Integer | _Number | _Datetime, Field(discriminator="type")]

_MADE: dict[str, type[Column]] = {made.type: made for made in (Category, Boolean, Integer, Number, Datetime)}


def column_of(section: AnyColumn, timezone: str) -> Column:
    """The column of a stream of tables; times are on the wall clock of a zone, unless the section names another.

    Raises:
        ConfigError, SchemaError: there is no such column.
    """
    settings = section.model_dump(exclude={"type"})
    if section.type == "number" and section.bins is None:
        raise ConfigError(
            'bins: is missing; say in how many equal bins the range is cut (or kind = "points" in [synthesizer], if '
            "all columns are numbers)"
        )
    if section.type == "datetime" and section.timezone is None:
        settings["timezone"] = timezone
    elif section.type == "datetime" and not known_zone(settings["timezone"]):
        raise ConfigError(f'timezone = {section.timezone!r}: not a known zone; use a name such as "UTC"')
    return _MADE[section.type](**settings)


def coordinate_of(section: AnyColumn, bits: int) -> Coordinate:
    """The column of a stream of points, in so many digits.

    Raises:
        ConfigError: it is no column of a points stream; SchemaError: its range cannot be.
    """
    if section.type != "number":
        raise ConfigError(
            f'type = "{section.type}": a stream of points takes numbers only. Leave this column out, or use '
            'kind = "table"'
        )
    if section.bins is not None:
        raise ConfigError("bins: has no effect in a stream of points, whose columns are cut as fine as the data allow")
    if section.missing is None:
        raise ConfigError("missing: say as which number missing cells count; points have no cell for them")
    return Coordinate(name=section.name, min=section.min, max=section.max, missing=section.missing, bits=bits)
