"""stream.toml -> validated objects. Every problem is reported at once, with its line, the value found, and the fix."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import TypeAdapter, ValidationError

from synthstream.config.after import After, changed_for_ever
from synthstream.config.constraints import NOTHING, Known, constraints_of
from synthstream.config.keys import keys_by_section
from synthstream.config.mirrors import check_mirror, lie_apart
from synthstream.config.problems import Problems
from synthstream.config.renamed import use_new_names
from synthstream.config.secrecy import EncryptionConfig
from synthstream.config.sections import (
    AnyColumn,
    ClockSection,
    File,
    PrivacyConfig,
    PrivacySection,
    column_of,
    coordinate_of,
)
from synthstream.config.sinks import AnyMirror, PublicationConfig, SinkConfig
from synthstream.config.sources import Files, FilesConfig, LogConfig
from synthstream.config.synthesis import STORED, SynthesizerConfig, partition_of, workload_of
from synthstream.errors import ConfigError
from synthstream.kinds import NEWEST, SYNTHESIZERS, Edition
from synthstream.privacy import EVENT, Unit
from synthstream.schema.clock import Clock
from synthstream.schema.columns import Column
from synthstream.schema.schema import Schema
from synthstream.workload import Workload


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """Everything about a stream, all of it public.

    Args:
        op: the column that says whether a row adds an event or takes one away (-1); left out: all rows add.
        source: files to count.
        log: a table or topic to count, in place of files.
        constraints: which combinations of values are possible.
        after: the stream that it goes on from.

    Example:
        >>> text = '''
        ... name = "visits"
        ... state = "state"
        ... privacy = { epsilon = 1.0, delta = 0.0, unit = "event" }
        ... clock = { start = 2026-01-01, every = "1d", horizon = 365 }
        ... columns = [{ name = "ward", type = "category", values = ["A", "B"] }]
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
    source: FilesConfig | None = None
    log: LogConfig | None = None
    sink: SinkConfig | None = None
    mirrors: tuple[AnyMirror, ...] = ()
    encryption: EncryptionConfig | None = None
    publication: PublicationConfig = field(default_factory=PublicationConfig)
    edition: Edition = NEWEST
    constraints: Known = NOTHING
    after: After[StreamConfig] | None = None

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
        problems = Problems(origin, text, keys_by_section(File))
        problems.find_unfilled()
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            problems.raise_if_any()  # a place that is still open is no valid TOML either
            raise ConfigError(
                f"{origin}: not valid TOML: {error}. Dates are written as 2026-01-31, texts in quotes"
            ) from None
        use_new_names(data, problems)
        folder = (base or Path.cwd()).absolute()
        try:
            file = File.model_validate(data, context=folder)
        except ValidationError as error:
            problems.add_validation(error)
            _check_sound_sections(data, {detail["loc"] for detail in error.errors()}, problems)
            raise problems.error() from None
        made = cls(**_objects(file, folder, problems))
        if made.after is not None:
            for key, why in changed_for_ever(made.after.config.kept, made.kept):
                problems.add(tuple(key.split(".")), why)
            problems.attempt("after", partial(getattr, made.after, "mapping"))
            problems.raise_if_any()
        return made

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
            "clock.start": clock.start.isoformat(),
            **{f"clock.{key}": getattr(clock, key) for key in ("column", "every", "timezone", "horizon")},
            **{f"synthesizer.{key}": value for key, value in self.synthesizer.public().items()},
            "synthesizer.marginals": None if self.workload is None else self.workload.marginals,
            "columns (names or their order)": list(self.schema.names),
            **{f"columns.{column.name}": column.to_dict() for column in self.schema.columns},
            **({} if self.op is None else {"op": self.op}),
            # It says what a row is, and the claim depends on it.
            **({"source.multiline": True} if self.source is not None and self.source.multiline else {}),
            **self._of_edition(),
            **self.constraints.public(self.schema),
            **({} if self.after is None else {"after": self.after.public()}),
        }
        return json.dumps(public, sort_keys=True, ensure_ascii=False)

    @cached_property
    def own_hash(self) -> str:
        """SHA-256 of the stream's name and its public settings, hexadecimal."""
        return hashlib.sha256(json.dumps([self.name, self.public_json()]).encode()).hexdigest()

    @property
    def genesis(self) -> str:
        """The chain head before the first tick: :attr:`own_hash` of the stream that all began with."""
        return self.lives[0].own_hash

    @property
    def lives(self) -> list[StreamConfig]:
        """The configurations that the stream has had, this one last."""
        return [*([] if self.after is None else self.after.config.lives), self]

    @property
    def cuts(self) -> list[dict[str, Any]]:
        """Where it went on with other settings: the tick, and columns and edition before it."""
        return [
            {"tick": life.after.tick, "schema": life.after.config.schema.hash, "edition": life.after.config.edition}
            for life in self.lives
            if life.after is not None and life.after.tick is not None
        ]

    @property
    def kept(self) -> dict[str, Any]:
        """What a successor keeps."""
        unit = self.privacy.unit
        return {
            "name": self.name,
            "state": self.state.absolute(),
            "sink": None if self.sink is None else self.sink.path.absolute(),
            "privacy.unit": (unit.kind, self.privacy.person, unit.max_events, unit.max_per_tick, unit.per),
            "privacy.neighbours": self.privacy.neighbours,
            "op": self.op,
            **{f"clock.{key}": getattr(self.clock, key) for key in ("start", "every", "timezone", "column")},
            "synthesizer.kind": self.synthesizer.kind,
            "columns": self.schema.hash if self.workload is None else None,
        }

    def at(self, tick: int) -> StreamConfig:
        """The configuration that a tick was, or will be, drawn with."""
        after = self.after
        return self if after is None or after.tick is None or tick >= after.tick else after.config.at(tick)

    @property
    def own_clock(self) -> Clock:
        """The clock of its own ticks: those since the cut, if there is one."""
        clock, since = self.clock, 0 if self.after is None else self.after.tick or 0
        left = None if clock.horizon is None else clock.horizon - since
        return replace(clock, start=clock.boundary(since), horizon=left, until=None) if since else clock

    def _public_unit(self) -> dict[str, Any]:
        """The limits of a unit of persons."""
        unit = self.privacy.unit
        if not unit.of_persons:
            return {}
        limits = {"person": self.privacy.person, "max_events": unit.max_events}
        limits |= {"max_per_tick": unit.max_per_tick, "per": unit.per}
        return {f"privacy.unit.{key}": value for key, value in limits.items()}

    @property
    def measures(self) -> str:
        """How tables are measured: always, at refreshes, once in an epoch, or, in other kinds of stream, otherwise."""
        settings, privacy = self.synthesizer, self.privacy
        if settings.kind != "table":
            return settings.kind
        return settings.measures(privacy.budget, self.workload, self.edition, privacy.unit)

    def _of_edition(self) -> dict[str, Any]:
        """What editions after the first add."""
        if self.edition == 1:
            return {}
        growth = {"synthesizer.growth": self.synthesizer.refresh_growth} if self.measures == "refresh" else {}
        return {"edition": self.edition, **growth}

    def begun_as(self, facts: Mapping[str, Any]) -> Self:
        """The same in the edition of a stream that runs, as its public settings or one of its manifests name it."""
        edition, cuts = facts.get("edition", 1), list(facts.get("cuts", ()))
        if edition not in get_args(Edition):
            raise ConfigError(f"{self.name}: a later version began this stream (edition {edition}). Use that version.")
        if self.after is None:
            return replace(self, edition=edition)
        if len(cuts) < len(self.lives) - 1:  # it has not begun
            return replace(self, after=replace(self.after, config=self.after.config.begun_as(facts)))
        cut = cuts[len(self.lives) - 2]
        before = self.after.config.begun_as({"edition": cut["edition"], "cuts": cuts[: len(self.lives) - 2]})
        return replace(self, edition=edition, after=replace(self.after, config=before, tick=int(cut["tick"])))

    def refuse_succeeded(self, facts: Mapping[str, Any]) -> None:
        """Raise ``ConfigError`` if public settings, or a manifest, tell of a successor of this configuration."""
        cuts = facts.get("cuts", ())
        if len(cuts) >= len(self.lives):
            cut = cuts[len(self.lives) - 1]["tick"]
            raise ConfigError(
                f"{self.name}: this stream went on with other settings at tick {cut}. Use its successor's stream.toml."
            )

    def differences(self, stored: str) -> list[str]:
        """Keys whose value differs between this configuration and the :meth:`public_json` of another."""
        ours, theirs = json.loads(self.public_json()), json.loads(stored)
        now = {f"synthesizer.{stored}": f"synthesizer.{name}" for name, stored in STORED.items()}
        changed = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
        if "synthesizer.measure" in changed:  # which decides how fast a stream grows from one measurement to the next
            changed -= {"synthesizer.growth"}
        return sorted(now.get(key, key) for key in changed)


def load(path: Path) -> StreamConfig:
    """Read ``stream.toml``. Touches no data file.

    Raises:
        ConfigError: the file, or one that it goes on from, cannot be read, or is not a valid configuration.
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
            elif kind is not None or column.type != "number":  # without its kind, nobody knows what a number needs
                problems.attempt(f"columns.{i}", partial(column_of, column, timezone))


def _objects(file: File, base: Path, problems: Problems) -> dict[str, Any]:
    """Arguments of a ``StreamConfig``; raises ``ConfigError`` with all problems."""
    budget = problems.attempt("privacy", file.privacy.budget)
    clock = problems.attempt("clock", file.clock.clock)
    unit = problems.attempt("privacy.unit", lambda: _unit(file, clock))
    schema, kind = _schema(file, problems), file.synthesizer.kind
    workload = None
    if schema is not None and not file.synthesizer.points:
        workload = problems.attempt("synthesizer.marginals", lambda: workload_of(file.synthesizer, schema))
    constraints = NOTHING if schema is None else constraints_of(file.constraints, kind, schema, base, problems)
    problems.attempt("op", lambda: _of_its_own(file))
    after = None if file.after is None else problems.attempt("after", partial(_predecessor, file, base))
    if budget is not None:
        problems.attempt("synthesizer", partial(file.synthesizer.check, budget))
    if file.sink is not None:
        problems.attempt("sink.path", partial(lie_apart, base, file.state, file.sink.path))
    for i, mirror in enumerate(file.mirror):
        problems.attempt(f"mirror.{i}", partial(check_mirror, file, base, mirror))
    if file.encryption is not None:
        releases = None if file.sink is None else file.sink.path
        problems.attempt("encryption", partial(file.encryption.check, base, file.state, releases))
    problems.raise_if_any()
    if budget is None or clock is None or unit is None or schema is None:
        raise problems.error()
    person, source = file.privacy.unit, None if file.source is None else file.source.within(base)
    return {
        "name": file.name,
        "state": base / file.state,
        "base": base,
        "privacy": PrivacyConfig(
            budget=budget,
            unit=unit,
            person=None if person == "event" else person.person,
            neighbours=file.privacy.neighbours,
        ),
        "clock": clock,
        "op": file.op,
        "schema": replace(schema, in_order=constraints.in_order),
        "workload": workload,
        "constraints": constraints,
        "synthesizer": file.synthesizer,
        "source": source if isinstance(source, Files) else None,
        "log": None if isinstance(source, Files) else source,
        "sink": file.sink and file.sink.within(base),
        "mirrors": tuple(mirror.within(base) for mirror in file.mirror),
        "encryption": file.encryption and file.encryption.within(base),
        "publication": file.publication,
        "after": None
        if file.after is None or after is None
        else After(config=after, schema=schema, values=file.after.values, fill=file.after.fill),
    }


def _predecessor(file: File, base: Path) -> StreamConfig:
    """The configuration that a successor goes on from."""
    path = base / file.after.config  # type: ignore[union-attr]  # there is one
    try:
        return load(path)
    except RecursionError:
        raise ConfigError(f"config = {str(path)!r}: it goes on from itself. Name the stream that came before") from None


def _schema(file: File, problems: Problems) -> Schema | None:
    """The columns; ``None``, and problems noted, if they cannot be."""
    points, partition = file.synthesizer.points, None
    if points:
        partition = problems.attempt("synthesizer.depth", lambda: partition_of(file.synthesizer, len(file.columns)))
    columns: list[Column] = []
    for i, section in enumerate(file.columns):
        read: Callable[[], Column] = partial(column_of, section, file.clock.timezone)
        if points:
            read = partial(coordinate_of, section, 1 if partition is None else partition.bits[i])
        if (column := problems.attempt(f"columns.{i}", read)) is not None:
            columns.append(column)
    if len(columns) < len(file.columns):
        return None
    return problems.attempt("columns", lambda: Schema(columns=tuple(columns)))


def _of_its_own(file: File) -> None:
    """Raise unless the op column serves nothing else: the columns say what a row is, it says what happens to it."""
    if file.op is not None and file.op in [column.name for column in file.columns]:
        raise ConfigError(
            f"op = {file.op!r}: is one of the columns too. Remove it from [[columns]], or name another column as op"
        )
    if file.op is not None and file.op == file.clock.column:
        raise ConfigError(f"op = {file.op!r}: is the column of [clock] too. Name the column that holds 1 and -1")


def _unit(file: File, clock: Clock | None) -> Unit:
    """Who is protected."""
    file.privacy.check_limits()
    person = file.privacy.unit
    if person == "event":
        return EVENT
    if file.synthesizer.kind == "hypercube":
        raise ConfigError(
            'kind = "hypercube" publishes the exact number of events, so it cannot protect persons, who may bring more '
            'events or fewer; use kind = "points", or unit = "event"'
        )
    for name, key in ((file.op, "op"), (file.clock.column, "the column of [clock]")):
        if person.person == name:
            raise ConfigError(f"person = {name!r} is {key} too. Name the column that holds each person's key")
    period = None if person.per is None or clock is None else clock.ticks_in(person.per)
    return Unit(kind="person", period=period, **person.model_dump(exclude={"person"}))
