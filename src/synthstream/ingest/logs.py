"""The source that reads a log, by what the configuration says of it; and whether a source answers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from synthstream.config.config import StreamConfig
from synthstream.config.sources import DeltaConfig, LogConfig, PostgresConfig
from synthstream.errors import ConfigError, SchemaError, SourceError
from synthstream.ingest.changes import Changes
from synthstream.ingest.counting import columns_of, files_of, forms_of
from synthstream.ingest.cursors import CursorSource
from synthstream.ingest.delta import DeltaSource


def opened(config: StreamConfig, log: LogConfig) -> CursorSource:
    """The source that reads the log of a stream; it connects when it is read.

    Raises:
        ConfigError: a library that it needs is not installed.
    """
    columns = columns_of(config)
    changes = Changes(op=config.op, time=config.clock.column) if config.op is not None and log.of_changes else None
    if isinstance(log, DeltaConfig):
        return DeltaSource(log, columns, changes=changes)
    try:
        if isinstance(log, PostgresConfig):
            from synthstream.ingest.postgres import PostgresSource

            return PostgresSource(log, columns, clock=config.clock.column, forms=forms_of(config))
        from synthstream.ingest.kafka import KafkaSource

        return KafkaSource(log, columns, changes=changes, forms=forms_of(config))
    except ImportError:
        raise ConfigError(
            f"source.kind = \"{log.kind}\" needs a library that is not installed: pip install 'synthstream[{log.kind}]'"
        ) from None


def files_in(config: StreamConfig) -> list[Path] | None:
    """Files of the source of a stream; ``None`` if it has a log, or none. Raises if it cannot be read now."""
    if config.log is not None:
        with closing(opened(config, config.log)) as log:
            log.look()
    source = files_of(config)
    return None if source is None else source.files()


def answers(config: StreamConfig) -> bool | None:
    """Whether the source of a stream can be read now; ``None`` if it has none. Looks at no row."""
    try:
        found = files_in(config)
    except (SourceError, SchemaError):
        return False
    return None if found is None and config.log is None else True
