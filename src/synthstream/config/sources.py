"""Where events come from, [source]: files, or a log. Passwords never stand there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr
from typing_extensions import override

from synthstream.config.keys import Name, Place, Section, Service
from synthstream.config.objects import ObjectPath, place_of
from synthstream.kinds import FileKind


def _normal(path: str) -> str:
    return os.path.normpath(os.path.expanduser(path))


def _files(path: object) -> object:
    return place_of(path, os.path.expanduser) if isinstance(path, str) else path


class Files(Section):
    """Files to count.

    Args:
        path: a file or a pattern; of this machine, or of an object store (``s3://...``).
        moved: the folder of the files, or the one file, as the state knows it from before it was moved.
    """

    kind: FileKind
    path: Annotated[Place, BeforeValidator(_files)]
    moved: Annotated[Name, AfterValidator(_normal)] | None = None
    _root: Path | None = PrivateAttr(default=None)

    @override
    def model_post_init(self, context: Path | None, /) -> None:
        self._root = None if self.path.is_absolute() or isinstance(self.path, ObjectPath) else context

    @override
    def within(self, base: Path) -> Self:
        return self if isinstance(self.path, ObjectPath) else super().within(base)

    @property
    def root(self) -> Path | None:
        """The folder that names of files start from, if the path was configured relative to it: that of
        ``stream.toml``. ``None``: names are absolute.
        """
        return self._root


class ParquetFiles(Files):
    """Parquet files to count."""

    kind: Literal["parquet"]
    multiline: ClassVar[bool] = False


class CsvFiles(Files):
    """CSV files to count.

    Args:
        multiline: whether a cell in quotation marks may hold line ends.
    """

    kind: Literal["csv"]
    multiline: bool = False


class PostgresConfig(Section):
    """A table of PostgreSQL that rows are inserted into.

    Args:
        table: its name as SQL writes it, such as ``public.visits``.
        sequence: the column that numbers the rows: an identity, or its default is the next value of a sequence.
        service: in the operator's ``pg_service.conf``; left out: the environment (``PGHOST``, ``PGPASSWORD``, ...).
        moved: what the table was called in the stream's checkpoint before it was moved with all its numbers.
    """

    kind: Literal["postgres"]
    table: Name
    sequence: Name
    service: Service | None = None
    moved: Name | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"postgres {self.table}"

    of_changes: ClassVar[bool] = False


class KafkaConfig(Section):
    """A topic of Kafka whose messages are JSON objects.

    Args:
        format: ``json``: a message is a row; ``debezium``: it is a change of a table, of one row or of two.
        config_file: lines such as ``sasl.password=...`` for librdkafka; ``KAFKA_BOOTSTRAP_SERVERS`` adds the servers.
    """

    kind: Literal["kafka"]
    topic: str = Field(pattern=r"^[\w.-]+$")
    format: Literal["json", "debezium"] = "json"
    config_file: Place | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"kafka {self.topic}"

    @property
    def of_changes(self) -> bool:
        """Whether messages are changes, which add rows and take them away."""
        return self.format == "debezium"


FilesConfig = ParquetFiles | CsvFiles
LogConfig = PostgresConfig | KafkaConfig
SourceConfig = Annotated[FilesConfig | LogConfig, Field(discriminator="kind")]
