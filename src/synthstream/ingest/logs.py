"""The source that reads a log, by what the configuration says of it."""

from __future__ import annotations

from synthstream.config.sources import LogConfig, PostgresConfig
from synthstream.errors import ConfigError
from synthstream.ingest.cursors import CursorSource


def opened(log: LogConfig, columns: tuple[str, ...]) -> CursorSource:
    """The source that reads a log; it connects when it is read.

    Raises:
        ConfigError: a library that it needs is not installed.
    """
    extra = "postgres" if isinstance(log, PostgresConfig) else "kafka"
    try:
        if isinstance(log, PostgresConfig):
            from synthstream.ingest.postgres import PostgresSource

            return PostgresSource(
                table=log.table, sequence=log.sequence, columns=columns, service=log.service, moved=log.moved
            )
        from synthstream.ingest.kafka import KafkaSource

        return KafkaSource(topic=log.topic, columns=columns, config_file=log.config_file)
    except ImportError:
        raise ConfigError(
            f"source.kind = \"{extra}\" needs a library that is not installed: pip install 'synthstream[{extra}]'"
        ) from None
