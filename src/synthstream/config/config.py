"""stream.toml -> validated objects. Every problem is reported at once, with its line, the value found, and the fix."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from synthstream.config.after import AfterSection, changed_for_ever
from synthstream.config.assembling import check_sound_sections, objects
from synthstream.config.constraints import NOTHING, Known
from synthstream.config.differing import differences
from synthstream.config.keys import keys_by_section
from synthstream.config.keywords import KeywordProblems, sections_of
from synthstream.config.problems import Problems, hint_of
from synthstream.config.secrecy import EncryptionConfig
from synthstream.config.sections import File, PrivacyConfig
from synthstream.config.settings import SETTINGS, settings_text, toml_of, written
from synthstream.config.sinks import AnyMirror, PublicationConfig, SinkConfig, StatusConfig
from synthstream.config.sources import DeltaConfig, FilesConfig, LogConfig
from synthstream.config.synthesis import SynthesizerConfig
from synthstream.errors import ConfigError, secretive
from synthstream.kinds import EDITION, is_text, kind_of
from synthstream.schema.clock import Clock
from synthstream.schema.columns import Column
from synthstream.schema.dates import Dates
from synthstream.schema.mapping import SchemaMapping, mapping_of
from synthstream.schema.schema import Schema
from synthstream.workload import Workload


@dataclass(frozen=True, kw_only=True)
class After:
    """The stream that a successor goes on from.

    Args:
        config: its configuration.
        schema: the successor's columns.
        values, fill: see :func:`synthstream.schema.mapping.mapping_of`.
        tick: the cut: the successor's first tick; ``None`` before there is one.
    """

    config: StreamConfig
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


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """Everything about a stream, all of it public.

    Args:
        op: the column that says whether a row adds an event or takes one away (-1); left out: all rows add.
        source: files to count.
        log: a table or topic to count, in place of files.
        constraints: which combinations of values are possible.
        after: the stream that it goes on from.
        events: a public guess of how many there will be in all, if a place has one.
        settings: the public part as TOML, for readers of the releases.

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
    status: StatusConfig = field(default_factory=StatusConfig)
    constraints: Known = NOTHING
    after: After | None = None
    events: int | None = None
    settings: str = field(default="", repr=False, compare=False)

    @classmethod
    def from_toml(cls, text: str, *, base: str | Path | None = None, origin: str = "configuration") -> Self:
        """Read a configuration.

        Args:
            text: TOML.
            base: folder that relative paths start from; left out: the current one.
            origin: what to call the text in messages.

        Raises:
            ConfigError: all that is wrong with it.
        """
        if not isinstance(text, str):
            told = "Of a file: from_toml(path.read_text(), base=path.parent)"
            raise TypeError(f"from_toml takes the text of a stream.toml, not {type(text).__name__}. {told}")
        problems = Problems(origin, text, keys_by_section(File))
        problems.find_unfilled()
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            problems.raise_if_any()  # a place that is still open is no valid TOML either
            raise ConfigError(f"{origin}: not valid TOML: {error}{hint_of(text, str(error))}") from None
        return cls._read(data, base, problems)

    @classmethod
    def _read(cls, data: dict[str, Any], base: str | Path | None, problems: Problems) -> Self:
        folder = Path(base or Path.cwd()).absolute()
        file = None
        try:
            file = File.model_validate(data, context=folder)
        except ValidationError as error:
            problems.add_validation(error)
            check_sound_sections(data, {detail["loc"] for detail in error.errors()}, problems)
        if file is None:  # not above, or pydantic's error, which shows what it found, would go along
            raise problems.error()
        made = cls(**objects(file, folder, problems, _predecessor))
        before = None
        if made.after is not None:
            for key, why in changed_for_ever(made.after.config.kept, made.kept):
                problems.add(tuple(key.split(".")), why)
            problems.attempt("after", lambda: made.after and made.after.mapping)
            problems.raise_if_any()
            before = made.after.config.settings
        return replace(made, settings=settings_text(data, folder, made.schema, before=before))

    @classmethod
    @secretive
    def of(
        cls,
        *,
        frame: Any = None,
        columns: Sequence[Mapping[str, Any] | Column] | Mapping[str, Mapping[str, Any]] = (),
        base: str | Path | None = None,
        **sections: Any,
    ) -> Self:
        """A configuration from keywords: the keys and sections of ``stream.toml``, as Python has them.

        Args:
            frame: its columns are those of the stream: a polars, pandas or pyarrow frame, or a polars schema. Types and
                the categories of an ``Enum`` are looked at; no value of any row.
            columns: a dict of keys for each column, or a ``Category`` and the like; in a list, or by name. With a
                frame, what its types do not declare.
            base: see :meth:`from_toml`.
            sections: ``name``, ``state``, ``privacy``, ``clock``, and so on. Dates may be ISO text, durations
                ``timedelta``, numbers numpy's; ``after["config"]`` may be a configuration. A key that is ``None``
                counts as left out.

        Raises:
            ConfigError: all that is wrong with it.
            SchemaError: a column of the frame is a category whose list occurred, or declares no values.

        Example:
            >>> import polars as pl
            >>> from datetime import date
            >>> StreamConfig.of(
            ...     name="visits", state="state", privacy={"epsilon": 1.0, "delta": 0.0, "unit": "event"},
            ...     clock={"start": date(2026, 1, 1), "every": "1d", "horizon": 365},
            ...     frame=pl.Schema({"ward": pl.Enum(["A", "B"]), "age": pl.Int64}),
            ...     columns={"age": {"min": 0, "max": 99, "bins": 10}},
            ... ).workload.cells
            60
        """
        problems = KeywordProblems(columns, keys_by_section(File))
        return cls._read(sections_of(sections, columns, frame, problems), base, problems)

    def public_json(self) -> str:
        """Canonical JSON of all that defines the releases: privacy, clock without ``until``, columns, synthesizer."""
        budget, clock = self.privacy.budget, self.clock
        # A running stream is refused if this says anything that it did not say when the stream began. So what a new key
        # brings stands here only where the key is said: see `op`, and SynthesizerConfig.public.
        public = {
            "name": self.name,
            "privacy.epsilon": budget.epsilon,
            "privacy.delta": budget.delta,
            "privacy.unit": self.privacy.unit.kind,
            **({} if self.privacy.person is None else {"privacy.unit.person": self.privacy.person}),
            **{f"privacy.unit.{key}": value for key, value in self.privacy.unit.limits.items()},
            "privacy.neighbours": self.privacy.neighbours,
            "clock.start": clock.start.isoformat(),
            **{f"clock.{key}": getattr(clock, key) for key in ("column", "every", "timezone", "horizon")},
            **{f"synthesizer.{key}": value for key, value in self.synthesizer.public().items()},
            **({} if self.schema.region is None else {"synthesizer.region": self.schema.region.name}),
            "synthesizer.marginals": None if self.workload is None else self.workload.marginals,
            "columns (names or their order)": list(self.schema.names),
            **{f"columns.{column.name}": column.to_dict() for column in self.schema.columns},
            **({} if self.op is None else {"op": self.op}),
            # It says what a row is, and the claim depends on it.
            **({"source.multiline": True} if self.source is not None and self.source.dialect.multiline else {}),
            **({"source.format": self.log.format} if self.log is not None and self.log.of_changes else {}),
            "edition": EDITION,
            **({"synthesizer.growth": self._growth} if self.measures == "refresh" else {}),
            **self.constraints.public(self.schema),
            **({} if self.after is None else {"after": self.after.public()}),
        }
        return json.dumps(public, sort_keys=True, ensure_ascii=False)

    @property
    def dates(self) -> Dates | None:
        """Columns in which no row can lie in the future. One that takes another away may count before its time."""
        return Dates.of(self.clock, self.schema.columns) if self.op is None else None

    @property
    def keeps_times(self) -> bool:
        """Whether rows that are read again have the time that they had: else nobody can tell which have counted.

        Rows that an update put into a Delta table had that of their version, and then have their own.
        """
        return self.clock.column is not None and not (isinstance(self.log, DeltaConfig) and self.log.of_changes)

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
            {"tick": life.after.tick, "schema": life.after.config.schema.hash, "edition": EDITION}
            for life in self.lives
            if life.after is not None and life.after.tick is not None
        ]

    @property
    def kept(self) -> dict[str, Any]:
        """What a successor keeps."""
        unit: dict[str, Any] = {"person": self.privacy.person, **self.privacy.unit.limits}
        said = {key: value for key, value in unit.items() if value is not None}
        return {
            "name": self.name,
            "state": self.state.absolute(),
            "sink": None if self.sink is None else self.sink.path.absolute(),
            "privacy.unit": written(said or "event"),
            "privacy.neighbours": self.privacy.neighbours,
            "op": self.op,
            **{f"clock.{key}": getattr(self.clock, key) for key in ("start", "every", "timezone", "column")},
            "synthesizer.kind": self.synthesizer.kind,
            "columns": self.schema.hash if self.workload is None else None,
            "synthesizer.region": None if self.schema.region is None else self.schema.region.name,
        }

    def at(self, tick: int) -> StreamConfig:
        """The configuration that a tick was, or will be, drawn with."""
        after = self.after
        return self if after is None or after.tick is None or tick >= after.tick else after.config.at(tick)

    @property
    def since(self) -> int:
        """First tick that is drawn with these settings: that of the cut, if there is one."""
        return 0 if self.after is None else self.after.tick or 0

    @property
    def own_clock(self) -> Clock:
        """The clock of its own ticks: those since the cut, if there is one."""
        clock, since = self.clock, self.since
        left = None if clock.horizon is None else clock.horizon - since
        return replace(clock, start=clock.boundary(since), horizon=left, until=None) if since else clock

    @property
    def measures(self) -> str:
        """How tables are measured: always, at refreshes, once in an epoch, or, in other kinds of stream, otherwise."""
        settings, privacy = self.synthesizer, self.privacy
        if settings.kind != "table":
            return settings.kind
        return settings.measures(privacy.budget, self.workload, privacy.unit, self.own_clock.horizon)

    @property
    def _growth(self) -> float:
        return self.synthesizer.refresh_growth(self.workload, self.own_clock.horizon)

    def begun_as(self, facts: Mapping[str, Any]) -> Self:
        """The same with the cuts of a stream that runs, as its public settings or one of its manifests name them.

        Raises:
            ConfigError: the stream, or a life of it before this one, began with another edition.
        """
        cuts = list(facts.get("cuts", ()))
        if others := [one for life in (facts, *cuts) if (one := life.get("edition", 1)) != EDITION]:
            raise ConfigError(
                f"{self.name}: this stream began with edition {others[0]} of defaults and fits, and this version has "
                f"{EDITION}. Go on with the version that began it, so that nothing changes under it; or end it, and "
                "begin a new stream with a budget of its own"
            )
        if self.after is None:
            return self
        lives_before = len(self.lives) - 1
        if len(cuts) < lives_before:  # it has not begun
            return replace(self, after=replace(self.after, config=self.after.config.begun_as(facts)))
        *earlier, cut = cuts[:lives_before]
        before = self.after.config.begun_as({"edition": EDITION, "cuts": earlier})
        return replace(self, after=replace(self.after, config=before, tick=int(cut["tick"])))

    def refuse_succeeded(self, facts: Mapping[str, Any]) -> None:
        """Raise ``ConfigError`` if public settings, or a manifest, tell of a successor of this configuration."""
        cuts = facts.get("cuts", ())
        if len(cuts) >= len(self.lives):
            cut = cuts[len(self.lives) - 1]["tick"]
            raise ConfigError(
                f"{self.name}: this stream went on with other settings at tick {cut}. Use its successor's stream.toml, "
                "the one whose [after] names this one."
            )

    def differences(self, stored: str) -> list[str]:
        """What differs from the :meth:`public_json` of a stream that runs, each with the old and the new value."""
        return differences(json.loads(stored), json.loads(self.public_json()))


def load(config: StreamConfig | str | Path) -> StreamConfig:
    """Read ``stream.toml``, or the ``settings.toml`` of a folder of releases. Touches no data file.

    A configuration is returned as it is.

    Raises:
        ConfigError: the file, or one that it goes on from, cannot be read, or is not a valid configuration.
    """
    if isinstance(config, StreamConfig):
        return config
    if not isinstance(config, str | Path):
        raise TypeError(f"the path of a stream.toml, or a StreamConfig, is asked for, not {type(config).__name__}")
    if is_text(str(config)) and not os.path.exists(config):
        raise ConfigError(
            "the path of a stream.toml is asked for, and this is text. Of a configuration: StreamConfig.from_toml(text)"
        )
    path = Path(config)
    if (path / SETTINGS).is_file():  # a folder of releases
        path = path / SETTINGS
    if kind_of(path) is not None and path.is_file():
        raise ConfigError(
            f"{path}: these are data, and here the configuration of a stream is asked for. "
            f"`synthstream schema init {path} > stream.toml` drafts one"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors put a mark before the first line
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8. Save it anew, with UTF-8 as its encoding") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}. Say where the stream's configuration is.") from None
    return StreamConfig.from_toml(text, base=path.absolute().parent, origin=str(path))


_ITSELF = "it goes on from itself"


def _predecessor(section: AfterSection, schema: Schema, base: Path) -> After:
    """The stream that a successor goes on from: a file, or, in settings for readers, what stands in them."""
    said = section.config
    try:
        if isinstance(said, dict):
            before = StreamConfig.from_toml(toml_of(said), base=base, origin="[after] config")
        else:
            before = load(base / said)
    except (RecursionError, ConfigError) as error:
        if isinstance(error, ConfigError) and _ITSELF not in str(error):
            raise
        raise ConfigError(f"config = {str(said)!r}: {_ITSELF}. Name the stream that came before") from None
    return After(config=before, schema=schema, values=section.values, fill=section.fill)
