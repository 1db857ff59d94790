"""How keys of ``stream.toml`` are read: strictly, and frozen. What is read is the configuration itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError, PydanticKnownError

from synthstream.config.objects import ObjectPath
from synthstream.schema.columns import Words

T = TypeVar("T")


class Section(BaseModel):
    """A part of ``stream.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def within(self, base: Path) -> Self:
        """The same, with paths that start from a folder; what lies in an object store stays there."""
        here = {name: value for name, value in self if isinstance(value, Path) and not isinstance(value, ObjectPath)}
        return self.model_copy(update={name: base / value for name, value in here.items()})


@cache
def keys_by_section(section: type[Section], name: str = "") -> Mapping[str, tuple[str, ...]]:
    """Keys of a section and of all in it; alternative sections are named by their kind, as in ``mirror.delta``."""
    found = {name: tuple(field.alias or key for key, field in section.model_fields.items())}
    for key, field in section.model_fields.items():
        inside = _sections_in(field.annotation)
        for one in inside:
            tag = one.model_fields.get("type", one.model_fields.get("kind")) if len(inside) > 1 else None
            parts = (name, key, *(get_args(tag.annotation) if tag else ()))
            found |= keys_by_section(one, ".".join(filter(None, parts)))
    return found


def _sections_in(annotation: object) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections_in(part)]


def _path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    if "://" in value:
        raise PydanticCustomError("address", "use a path of this machine; [[mirror]] copies releases to an address")
    return Path(os.path.expanduser(_said(value)))


def _said(value: str) -> str:
    if not value.strip():
        raise PydanticKnownError("string_too_short", {"min_length": 1})
    return value


def _moment(value: object) -> object:
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


# A path; ~ stands for a home folder, as in a shell. Variables of the environment are not replaced.
Place = Annotated[Path, BeforeValidator(_path)]
# Such a path, or what stands in the file.
Earlier = Annotated[Path | dict[str, Any], BeforeValidator(lambda it: it if isinstance(it, dict) else _path(it))]

# A TOML date is the beginning of its day.
Time = Annotated[datetime, BeforeValidator(_moment)]

# A list of TOML is a tuple here; what is in it may be taken strictly, as everything else is.
Listed = Annotated[tuple[T, ...], Field(strict=False)]
Strictly = Annotated[T, Strict()]
Texts = Listed[str]

# What a file of the operator's calls a server of PostgreSQL: pg_service.conf.
Service = Annotated[str, Field(pattern=r"^[\w.-]+$")]

# A text that is not blank.
Name = Annotated[str, AfterValidator(_said)]


class ColumnSection(Section):
    """Keys of any column."""

    name: Name
    source: Name | None = Field(default=None, alias="from")
    label: Name | None = None
    description: Name | None = None
    unit: Name | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns of private rows that it is read from."""
        return (self.name if self.source is None else self.source,)

    @property
    def words(self) -> Words:
        """What people are told of it."""
        return Words(label=self.label, description=self.description, unit=self.unit)
