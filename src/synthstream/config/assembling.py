"""From the sections of ``stream.toml`` to the parts of a configuration: checks that need more than one key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from synthstream.config.after import AfterSection
from synthstream.config.constraints import NOTHING, constraints_of
from synthstream.config.mirrors import check_mirror, lie_apart
from synthstream.config.places import PlaceSection, nested, views_of, weights_of
from synthstream.config.problems import Problems
from synthstream.config.sections import (
    AnyColumn,
    ClockSection,
    File,
    PrivacyConfig,
    PrivacySection,
    column_of,
    coordinate_of,
)
from synthstream.config.sources import DeltaConfig, Files, KafkaConfig, LogConfig
from synthstream.config.synthesis import SynthesizerConfig, partition_of, workload_of
from synthstream.errors import ConfigError
from synthstream.kinds import SYNTHESIZERS, kind_of
from synthstream.privacy import EVENT, Budget, Unit
from synthstream.schema.clock import Clock
from synthstream.schema.columns import Column
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.districts import OfPlace
from synthstream.schema.region import Domain
from synthstream.schema.schema import Schema

Before = Callable[[AfterSection, Schema, Path], Any]


def check_sound_sections(data: dict[str, Any], broken: set[tuple[str | int, ...]], problems: Problems) -> None:
    """Note what is impossible in the sections whose shape is right, beside others whose shape is wrong."""
    tops = {loc[0] for loc in broken}
    if "privacy" not in tops:
        privacy = PrivacySection.model_validate(data["privacy"])
        problems.attempt("privacy", privacy.budget)
        problems.attempt("privacy.unit", privacy.check_limits)
    clock = None if "clock" in tops else ClockSection.model_validate(data["clock"])
    if clock is not None:
        problems.attempt("clock", clock.clock)
    timezone = clock.timezone if clock else "UTC"
    synthesizer = None if "synthesizer" in tops else data.get("synthesizer", {})
    kind = None if synthesizer is None else synthesizer.get("kind", SynthesizerConfig().kind)
    for i, raw in enumerate([] if ("columns",) in broken else data["columns"]):
        if not any(loc[:2] == ("columns", i) for loc in broken):
            column = TypeAdapter[AnyColumn](AnyColumn).validate_python(raw)
            if kind in SYNTHESIZERS and SYNTHESIZERS[kind].points:
                problems.attempt(f"columns.{i}", partial(coordinate_of, column, 1))
            elif column.type != "place" and (kind is not None or column.type != "number"):  # a number needs its kind
                problems.attempt(f"columns.{i}", partial(column_of, column, timezone))


def objects(file: File, base: Path, problems: Problems, before: Before) -> dict[str, Any]:
    """Arguments of a ``StreamConfig``; raises ``ConfigError`` with all problems.

    Args:
        before: the stream that [after] names, from that section, the new columns and the base folder.
    """
    budget = problems.attempt("privacy", file.privacy.budget)
    clock = problems.attempt("clock", file.clock.clock)
    unit = problems.attempt("privacy.unit", lambda: _unit(file, clock))
    schema = schema_of(file, budget, problems, base)
    region = problems.attempt("synthesizer.region", partial(_region, file, schema, base))
    workload, constraints, after = None, NOTHING, None
    if schema is not None:
        if not file.synthesizer.points:
            workload = problems.attempt("synthesizer.marginals", partial(workload_of, file.synthesizer, schema))
        if workload is not None:
            problems.attempt("synthesizer.focus", partial(weights_of, schema, workload, file.synthesizer.focus or ()))
        constraints = constraints_of(
            file.constraints, file.synthesizer.kind, schema, base, problems, nested=nested(schema)
        )
        if file.after is not None:
            after = problems.attempt("after", partial(before, file.after, schema, base))
    problems.attempt("op", lambda: _of_its_own(file))
    if file.source is not None:
        problems.attempt("source", partial(_check_reading, file, file.source))
    if budget is not None:
        problems.attempt("synthesizer", partial(file.synthesizer.check, budget))
    _check_places(file, base, problems)
    problems.raise_if_any()
    if budget is None or clock is None or unit is None or schema is None:
        raise problems.error()
    places = [section for section in file.columns if isinstance(section, PlaceSection)]
    persons, source = file.privacy.persons, None if file.source is None else file.source.within(base)
    return {key: getattr(file, key) for key in ("name", "op", "synthesizer", "publication", "status")} | {
        "state": base / file.state,
        "base": base,
        "privacy": PrivacyConfig(
            budget=budget,
            unit=unit,
            person=None if persons is None else persons.person,
            neighbours=file.privacy.neighbours,
        ),
        "clock": clock,
        "schema": replace(schema, in_order=constraints.in_order, region=region),
        "workload": workload,
        "constraints": constraints,
        "source": source if isinstance(source, Files) else None,
        "log": None if isinstance(source, Files) else source,
        "sink": file.sink and file.sink.within(base),
        "mirrors": tuple(mirror.within(base) for mirror in file.mirror),
        "encryption": file.encryption and file.encryption.within(base),
        "after": after,
        "events": max((place.events for place in places if "events" in place.model_fields_set), default=None),
    }


def _check_places(file: File, base: Path, problems: Problems) -> None:
    if file.sink is not None:
        problems.attempt("sink.path", partial(lie_apart, base, file, file.sink.path))
    for i, mirror in enumerate(file.mirror):
        problems.attempt(f"mirror.{i}", partial(check_mirror, file, base, mirror))
    if file.encryption is not None:
        releases = None if file.sink is None else file.sink.path
        problems.attempt("encryption", partial(file.encryption.check, base, file.state, releases))


def schema_of(file: File, budget: Budget | None, problems: Problems, base: Path) -> Schema | None:
    """The columns; ``None``, and problems noted, if they cannot be. Those of places follow all others."""
    points, partition = file.synthesizer.points, None
    if points:
        partition = problems.attempt("synthesizer.depth", lambda: partition_of(file.synthesizer, len(file.columns)))
    columns, places, bad = list[Column](), list[int](), False
    for i, section in enumerate(file.columns):
        read: Callable[[], Column] = partial(column_of, section, file.clock.timezone)
        if points:
            read = partial(coordinate_of, section, 1 if partition is None else partition.bits[i])
        elif isinstance(section, PlaceSection):
            places.append(i)
            continue
        column = problems.attempt(f"columns.{i}", read)
        bad |= column is None
        columns += () if column is None else (column,)
    if bad:
        return None
    for i in places:
        views = problems.attempt(f"columns.{i}", partial(_views, file, i, columns, budget, base)) if budget else None
        bad |= views is None
        columns += views or ()
    return None if bad else problems.attempt("columns", lambda: Schema(columns=tuple(columns)))


def _region(file: File, schema: Schema | None, base: Path) -> Domain | None:
    """The part of the box that holds all points, if the stream is of points and names one."""
    if schema is None or file.synthesizer.region is None or file.synthesizer.kind != "points":
        return None
    columns = [column for column in schema.columns if isinstance(column, Coordinate)]
    return Domain.read(file.synthesizer.region, columns, base)


def _views(file: File, i: int, before: Sequence[Column], budget: Budget, base: Path) -> list[OfPlace]:
    """The columns of a place; ``before``: all others, and places before it. ``ConfigError`` if the stream has none.

    What ``with`` says of a place whose own mistake is told is not looked at.
    """
    section, persons = file.columns[i], file.privacy.persons
    if not isinstance(section, PlaceSection) or file.synthesizer.kind != "table":
        raise ConfigError('type = "place": belongs to kind = "table" in [synthesizer]')
    above = [one for one in file.columns[:i] if isinstance(one, PlaceSection)]
    earlier = [name for one in above for name in (one.name, *one.sources)]
    for name in (section.name, *section.sources):
        if name in earlier:
            raise ConfigError(f"{name!r} belongs to a place above, too. Give each its own name and coordinates")
    places = [column for column in before if isinstance(column, OfPlace)]
    if section.crossed is not None:
        broken = {one.name for one in above} - {column.place for column in places}
        section = section.model_copy(update={"crossed": tuple(n for n in section.crossed if n not in broken)})
    others = [column for column in before if not isinstance(column, OfPlace)]
    events = 1 if persons is None else persons.max_events
    later = [below.name for below in file.columns[i + 1 :] if isinstance(below, PlaceSection)]
    return views_of(section, others, budget, events, places=places, later=later, base=base)


def _of_its_own(file: File) -> None:
    """Raise unless the op column serves nothing else: the columns say what a row is, it says what happens to it."""
    if file.op is None and isinstance(file.source, KafkaConfig | DeltaConfig) and file.source.of_changes:
        raise ConfigError(
            'op: changes of a table take rows away, too. Say op = "op" at the top, or another name that is no column'
        )
    if file.op is not None and any(file.op in column.sources for column in file.columns):
        raise ConfigError(
            f"op = {file.op!r}: is one of the columns too. Remove it from [[columns]], or name another column as op"
        )
    if file.op is not None and file.op == file.clock.column:
        raise ConfigError(f"op = {file.op!r}: is the column of [clock] too. Name the column that holds 1 and -1")


def _check_reading(file: File, source: Files | LogConfig) -> None:
    """Raise unless signs differ, forms of times are of times, and what has a form of its own is read in one way."""
    own = {"time"} if source.formats else set()
    if isinstance(source, Files):
        source.dialect.check()
        if (kind := kind_of(source.path)) not in (None, source.kind):
            raise ConfigError(f'source.kind: by their names its files are {kind}. Say kind = "{kind}", or name others')
        own |= {"number"} if (source.dialect.decimal, source.dialect.thousands) != (".", "") else set()
    elif own and source.of_changes:
        raise ConfigError("datetime_format: times of changes are read as ISO 8601. Leave it out")
    persons = file.privacy.persons
    person = None if persons is None else persons.person
    ways: dict[str | None, set[str]] = {file.op: {"text"}, person: {"text"}, file.clock.column: {"time"}}
    for column in file.columns:
        way = {"datetime": "time", "integer": "number", "number": "number", "place": "number"}.get(column.type, "text")
        for source_column in column.sources:
            ways.setdefault(source_column, set()).add(way)
    for key in source.formats:
        if key != "*" and "time" not in ways.get(key, ()):
            raise ConfigError(
                f"datetime_format: {key!r} is neither the column of [clock] nor read by a column of type datetime. "
                "Name one"
            )
    for name, found in ways.items():
        if name is not None and len(found) > 1 and found & own:
            raise ConfigError(
                f"the column {name!r} is read as {' and as '.join(sorted(found))}, and [source] says how a "
                f"{min(found & own)} is written: read it in one way"
            )


def _unit(file: File, clock: Clock | None) -> Unit:
    file.privacy.check_limits()
    persons = file.privacy.persons
    if persons is None:
        return EVENT
    if file.synthesizer.kind == "hypercube":
        raise ConfigError(
            'kind = "hypercube" publishes the exact number of events, so it cannot protect persons, who may bring more '
            'events or fewer; use kind = "points", or unit = "event"'
        )
    for name, key in ((file.op, "op"), (file.clock.column, "the column of [clock]")):
        if persons.person == name:
            raise ConfigError(f"person = {name!r} is {key} too. Name the column that holds each person's key")
    period = None if persons.per is None or clock is None else clock.ticks_in(persons.per)
    return Unit(kind="person", period=period, **persons.model_dump(exclude={"person"}))
