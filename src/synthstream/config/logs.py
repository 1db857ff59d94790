"""Logs that events are read from: what [source] says of one, and how it is opened. Passwords never stand there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from synthstream.config.synthesis import Section
from synthstream.errors import ConfigError
from synthstream.kinds import FileKind

Kind = Literal["parquet", "csv", "postgres", "kafka"]

# Keys of [source] beside its kind; the first ones are required.
_KEYS: dict[Kind, tuple[int, tuple[str, ...]]] = {
    "parquet": (1, ("path", "moved")),
    "csv": (1, ("path", "moved", "multiline")),
    "postgres": (2, ("table", "sequence", "service", "moved")),
    "kafka": (1, ("topic", "config_file")),
}


class SourceSection(Section):
    """Keys of [source]."""

    kind: Kind
    path: str | None = Field(default=None, min_length=1)
    multiline: bool | None = None
    table: str | None = Field(default=None, min_length=1)
    sequence: str | None = Field(default=None, min_length=1)
    service: str | None = Field(default=None, pattern=r"^[\w.-]+$")
    moved: str | None = Field(default=None, min_length=1)
    topic: str | None = Field(default=None, pattern=r"^[\w.-]+$")
    config_file: str | None = Field(default=None, min_length=1)

    def check(self) -> None:
        """Raise ``ConfigError`` unless the keys are those of the kind."""
        required, keys = _KEYS[self.kind]
        for name in type(self).model_fields:
            if name != "kind" and name not in keys and getattr(self, name) is not None:
                raise ConfigError(f'{name}: means nothing to kind = "{self.kind}", which knows {", ".join(keys)}')
        for name in keys[:required]:
            if getattr(self, name) is None:
                raise ConfigError(f'source.{name}: this key is required for kind = "{self.kind}"')

    def files(self) -> tuple[FileKind, str] | None:
        """Kind and path of files; ``None`` if it is a log."""
        if self.kind == "parquet" or self.kind == "csv":
            return self.kind, os.path.expanduser(self.path or "")
        return None

    def log(self, base: Path) -> LogConfig | None:
        """The log; ``None`` if it is files. Relative paths start from ``base``."""
        if self.kind == "postgres":
            return PostgresConfig(
                table=self.table or "", sequence=self.sequence or "", service=self.service, moved=self.moved
            )
        if self.kind == "kafka":
            file = None if self.config_file is None else base / os.path.expanduser(self.config_file)
            return KafkaConfig(topic=self.topic or "", config_file=file)
        return None


@dataclass(frozen=True, kw_only=True)
class PostgresConfig:
    """A table of PostgreSQL that rows are inserted into.

    Args:
        table: its name as SQL writes it, such as ``public.visits``.
        sequence: the column that numbers the rows: an identity, or its default is the next value of a sequence.
        service: in the operator's ``pg_service.conf``; left out: the environment (``PGHOST``, ``PGPASSWORD``, ...).
        moved: what the table was called in the stream's checkpoint before it was moved with all its numbers.
    """

    table: str
    sequence: str
    service: str | None = None
    moved: str | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"postgres {self.table}"


@dataclass(frozen=True, kw_only=True)
class KafkaConfig:
    """A topic of Kafka whose messages are JSON objects.

    Args:
        topic: its name.
        config_file: lines such as ``sasl.password=...`` for librdkafka; ``KAFKA_BOOTSTRAP_SERVERS`` adds the servers.
    """

    topic: str
    config_file: Path | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"kafka {self.topic}"


LogConfig = PostgresConfig | KafkaConfig
