"""stream.toml -> validated objects. Every problem is reported at once, with its line, the value found, and the fix."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from synthstream.config.logs import LogConfig, SourceSection
from synthstream.config.mirrors import also_of, lie_apart
from synthstream.config.outside import AlsoConfig, PublicationConfig, SinkConfig, SourceConfig
from synthstream.config.problems import Problems
from synthstream.config.secrecy import EncryptionConfig, apart
from synthstream.config.sections import (
    SECTIONS,
    ClockSection,
    Columns,
    File,
    PersonSection,
    PrivacySection,
    PublicationSection,
)
from synthstream.config.synthesis import SynthesizerConfig, SynthesizerSection, partition_of, settings_of, workload_of
from synthstream.errors import ConfigError
from synthstream.kinds import SYNTHESIZERS
from synthstream.privacy import EVENT, Budget, Neighbours, Unit
from synthstream.schema.clock import Clock, known_zone
from synthstream.schema.columns import Boolean, Category, Column, Datetime, Integer, Number
from synthstream.schema.coordinates import coordinate_of
from synthstream.schema.schema import Schema
from synthstream.workload import Workload


@dataclass(frozen=True, kw_only=True)
class PrivacyConfig:
    """Budget, unit and neighbours.

    Args:
        person: the column that holds each person's key; ``None`` if the unit is an event.
    """

    budget: Budget
    unit: Unit = EVENT
    person: str | None = None
    neighbours: Neighbours = "add-remove"


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """Everything about a stream, all of it public.

    Args:
        op: the column that says whether a row adds an event or takes one away (-1); left out: all rows add.
        source: files to count.
        log: a table or topic to count, in place of files.

    Example:
        >>> text = '''
        ... name = "visits"
        ... state = "state"
        ... [privacy]
        ... epsilon = 1.0
        ... delta = 0.0
        ... unit = "event"
        ... [clock]
        ... start = 2026-01-01
        ... every = "1d"
        ... horizon = 365
        ... [[columns]]
        ... name = "ward"
        ... type = "category"
        ... values = ["A", "B"]
        ... '''
        >>> StreamConfig.from_toml(text).workload.cells
        5
    """

    name: str
    state: Path
    base: Path
    privacy: PrivacyConfig
    clock: Clock
    schema: Schema
    workload: Workload | None
    op: str | None = None
    synthesizer: SynthesizerConfig = field(default_factory=SynthesizerConfig)
    source: SourceConfig | None = None
    log: LogConfig | None = None
    sink: SinkConfig | None = None
    also: tuple[AlsoConfig, ...] = ()
    encryption: EncryptionConfig | None = None
    publication: PublicationConfig = field(default_factory=PublicationConfig)

    @classmethod
    def from_toml(cls, text: str, *, base: Path | None = None, origin: str = "configuration") -> Self:
        """Read a configuration.

        Args:
            text: TOML.
            base: folder that relative paths start from; left out: the current one.
            origin: what to call the text in messages.

        Raises:
            ConfigError: all that is wrong with it.
        """
        problems = Problems(origin, text, {name: tuple(section.model_fields) for name, section in SECTIONS.items()})
        problems.find_unfilled()
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            problems.raise_if_any()  # a place that is still open is no valid TOML either
            raise ConfigError(
                f"{origin}: not valid TOML: {error}. Dates are written as 2026-01-31, texts in quotes"
            ) from None
        try:
            file = File.model_validate(data)
        except ValidationError as error:
            problems.add_validation(error)
            _check_sound_sections(data, {detail["loc"] for detail in error.errors()}, problems)
            raise problems.error() from None
        return cls(**_objects(file, (base or Path.cwd()).absolute(), problems))

    def public_json(self) -> str:
        """Canonical JSON of all that defines the releases: privacy, clock without ``until``, columns, synthesizer."""
        budget, clock = self.privacy.budget, self.clock
        public = {
            "name": self.name,
            "privacy.epsilon": budget.epsilon,
            "privacy.delta": budget.delta,
            "privacy.unit": self.privacy.unit.kind,
            **self._public_unit(),
            "privacy.neighbours": self.privacy.neighbours,
            "clock.column": clock.column,
            "clock.start": clock.start.isoformat(),
            "clock.every": clock.every,
            "clock.timezone": clock.timezone,
            "clock.horizon": clock.horizon,
            **{f"synthesizer.{key}": value for key, value in asdict(self.synthesizer).items()},
            "synthesizer.marginals": None if self.workload is None else self.workload.marginals,
            "columns (names or their order)": list(self.schema.names),
            **{f"columns.{column.name}": column.to_dict() for column in self.schema.columns},
            **({} if self.op is None else {"op": self.op}),
            # It says what a row is, and the claim depends on it.
            **({"source.multiline": True} if self.source is not None and self.source.multiline else {}),
        }
        return json.dumps(public, sort_keys=True, ensure_ascii=False)

    @cached_property
    def genesis(self) -> str:
        """The chain head before the first tick: SHA-256 of the stream's name and its public settings, hexadecimal."""
        return hashlib.sha256(json.dumps([self.name, self.public_json()]).encode()).hexdigest()

    def _public_unit(self) -> dict[str, Any]:
        """The limits of a unit of persons."""
        unit = self.privacy.unit
        if not unit.of_persons:
            return {}
        limits = {"person": self.privacy.person, "max_events": unit.max_events}
        limits |= {"max_per_tick": unit.max_per_tick, "per": unit.per}
        return {f"privacy.unit.{key}": value for key, value in limits.items()}

    def differences(self, stored: str) -> list[str]:
        """Keys whose value differs between this configuration and the :meth:`public_json` of another."""
        ours, theirs = json.loads(self.public_json()), json.loads(stored)
        return sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))


def load(path: Path) -> StreamConfig:
    """Read ``stream.toml``. Touches no data file.

    Raises:
        ConfigError: the file cannot be read, or is not a valid configuration.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}. Say where the stream's configuration is.") from None
    return StreamConfig.from_toml(text, base=path.absolute().parent, origin=str(path))


# -- checks that need more than one key ------------------------------------------------------------------------------


def _check_sound_sections(data: dict[str, Any], broken: set[tuple[str | int, ...]], problems: Problems) -> None:
    """Note what is impossible in the sections whose shape is right, beside others whose shape is wrong."""
    tops = {loc[0] for loc in broken}
    if "privacy" not in tops:
        privacy = PrivacySection.model_validate(data["privacy"])
        problems.attempt("privacy", lambda: Budget(epsilon=privacy.epsilon, delta=privacy.delta))
        problems.attempt("privacy.unit", lambda: _limits(privacy))
    clock = None if "clock" in tops else ClockSection.model_validate(data["clock"])
    if clock is not None:
        problems.attempt("clock", lambda: _clock(clock))
    timezone = clock.timezone if clock else "UTC"
    synthesizer = None if "synthesizer" in tops else data.get("synthesizer", {})
    kind = None if synthesizer is None else synthesizer.get("kind", SynthesizerSection().kind)
    for i, raw in enumerate([] if ("columns",) in broken else data["columns"]):
        if not any(loc[:2] == ("columns", i) for loc in broken):
            column = TypeAdapter(Columns).validate_python(raw)
            if kind in SYNTHESIZERS and SYNTHESIZERS[kind].points:
                problems.attempt(f"columns.{i}", partial(coordinate_of, column, 1))
            elif kind is not None or column.type != "number":  # without its kind, nobody knows what a number needs
                problems.attempt(f"columns.{i}", partial(_column, column, timezone))


def _objects(file: File, base: Path, problems: Problems) -> dict[str, Any]:
    """Arguments of a ``StreamConfig``; raises ``ConfigError`` with all problems."""
    privacy = problems.attempt("privacy", lambda: Budget(epsilon=file.privacy.epsilon, delta=file.privacy.delta))
    clock = problems.attempt("clock", lambda: _clock(file.clock))
    unit = problems.attempt("privacy.unit", lambda: _unit(file, clock))
    partition = None
    if file.synthesizer.points:
        partition = problems.attempt("synthesizer.depth", lambda: partition_of(file.synthesizer, len(file.columns)))
    columns: list[Column | None] = []
    for i, section in enumerate(file.columns):
        read: Callable[[], Column] = partial(_column, section, file.clock.timezone)
        if file.synthesizer.points:
            read = partial(coordinate_of, section, 1 if partition is None else partition.bits[i])
        columns.append(problems.attempt(f"columns.{i}", read))
    sound = tuple(column for column in columns if column is not None)
    schema = None
    if len(sound) == len(columns):
        schema = problems.attempt("columns", lambda: Schema(columns=sound))
    workload = None
    if schema is not None and not file.synthesizer.points:
        workload = problems.attempt("synthesizer.marginals", lambda: workload_of(file.synthesizer, schema))
    problems.attempt("op", lambda: _of_its_own(file))
    if file.source is not None:
        problems.attempt("source", file.source.check)
    settings = privacy and problems.attempt("synthesizer", lambda: settings_of(file.synthesizer, privacy))
    if file.sink is not None:
        problems.attempt("sink.path", partial(lie_apart, base, file.state, file.sink.path))
    also = [problems.attempt(f"also.{i}", partial(also_of, file, base, section)) for i, section in enumerate(file.also)]
    encryption = file.encryption and problems.attempt("encryption", partial(_encryption, file, base))
    problems.raise_if_any()
    if privacy is None or clock is None or unit is None or schema is None or settings is None:
        raise problems.error()
    return {
        "name": file.name,
        "state": base / file.state,
        "base": base,
        "privacy": PrivacyConfig(
            budget=privacy, unit=unit, person=_person(file.privacy), neighbours=file.privacy.neighbours
        ),
        "clock": clock,
        "op": file.op,
        "schema": schema,
        "workload": workload,
        "synthesizer": settings,
        "source": file.source and _files(file.source, base),
        "log": file.source and file.source.log(base),
        "sink": file.sink and SinkConfig(path=base / file.sink.path, rows=file.sink.rows, keep=file.sink.keep),
        "also": tuple(also),
        "encryption": encryption,
        "publication": _publication(file.publication),
    }


def _publication(section: PublicationSection) -> PublicationConfig:
    return PublicationConfig(**section.model_dump() | {"keywords": tuple(section.keywords)})


def _files(section: SourceSection, base: Path) -> SourceConfig | None:
    found = section.files()
    if found is None:
        return None
    kind, path = found
    return SourceConfig(
        kind=kind,
        path=base / path,
        root=None if os.path.isabs(path) else base,
        moved=None if section.moved is None else os.path.normpath(os.path.expanduser(section.moved)),
        multiline=bool(section.multiline),
    )


def _of_its_own(file: File) -> None:
    """Raise unless the op column serves nothing else: the columns say what a row is, it says what happens to it."""
    if file.op is not None and file.op in [column.name for column in file.columns]:
        raise ConfigError(
            f"op = {file.op!r}: is one of the columns too. Remove it from [[columns]], or name another column as op"
        )
    if file.op is not None and file.op == file.clock.column:
        raise ConfigError(f"op = {file.op!r}: is the column of [clock] too. Name the column that holds 1 and -1")


def _encryption(file: File, base: Path) -> EncryptionConfig | None:
    section = file.encryption
    if section is None:
        return None
    if section.key_file is not None and file.sink is not None:
        apart(base, os.path.expanduser(section.key_file), file.sink.path, which="key")
    return section.config(base, file.state)


def _person(section: PrivacySection) -> str | None:
    return section.unit.person if isinstance(section.unit, PersonSection) else None


def _limits(section: PrivacySection) -> None:
    """Raise unless the limits of a unit of persons go together."""
    unit = section.unit
    if not isinstance(unit, PersonSection):
        return
    if section.neighbours != "add-remove":
        raise ConfigError(
            'a person is protected as one who is there or not; leave out neighbours, or say "add-remove". Who '
            "takes another's place may bring another number of events, at other times"
        )
    if unit.max_per_tick is not None and unit.max_per_tick > unit.max_events:
        raise ConfigError(
            f"max_per_tick = {unit.max_per_tick} has no effect above max_events = {unit.max_events}; leave it "
            "out, or let fewer events count in a tick"
        )


def _unit(file: File, clock: Clock | None) -> Unit:
    """Who is protected."""
    section = file.privacy.unit
    _limits(file.privacy)
    if not isinstance(section, PersonSection):
        return EVENT
    if file.synthesizer.kind == "hypercube":
        raise ConfigError(
            'kind = "hypercube" tells how many events there are, and so protects no person who may bring one '
            'more; use kind = "points", or unit = "event"'
        )
    for name, key in ((file.op, "op"), (file.clock.column, "the column of [clock]")):
        if section.person == name:
            raise ConfigError(f"person = {name!r} is {key} too. Name the column that holds each person's key")
    return Unit(
        kind="person",
        max_events=section.max_events,
        max_per_tick=section.max_per_tick,
        per=section.per,
        period=None if section.per is None or clock is None else clock.ticks_in(section.per),
    )


def _clock(section: ClockSection) -> Clock:
    horizon = None if section.horizon == "unbounded" else section.horizon
    clock = Clock(**(section.model_dump() | {"horizon": horizon}))
    if section.until is not None and horizon is not None:
        ticks = replace(clock, horizon=None).ended_before(section.until)
        if ticks > horizon:
            raise ConfigError(f"horizon = {horizon}: there are {ticks} ticks up to until; pay for at least as many")
    return clock


def _column(section: Any, timezone: str) -> Column:
    if section.type == "number" and section.bins is None:
        raise ConfigError(
            'bins: is missing; say in how many equal bins the range is cut (or kind = "points" in [synthesizer], if '
            "all columns are numbers)"
        )
    kinds = {"category": Category, "boolean": Boolean, "integer": Integer, "number": Number, "datetime": Datetime}
    settings = section.model_dump(exclude={"type"}, exclude_none=True)
    if section.type == "category":
        settings["values"] = tuple(settings["values"])
    if section.type == "datetime":
        settings.setdefault("timezone", timezone)
        if section.timezone is not None and not known_zone(section.timezone):
            raise ConfigError(f'timezone = {section.timezone!r}: not a known zone; use a name such as "UTC"')
    column: Column = kinds[section.type](**settings)
    return column
