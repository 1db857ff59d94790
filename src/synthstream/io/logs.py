"""The source that reads a log, by what the configuration says of it."""

from __future__ import annotations

from synthstream.errors import ConfigError
from synthstream.io.cursors import CursorSource
from synthstream.logs import LogConfig, PostgresConfig


def opened(log: LogConfig, columns: tuple[str, ...]) -> CursorSource:
    """The source that reads a log; it connects when it is read.

    Raises:
        ConfigError: a library that it needs is not installed.
    """
    extra = "postgres" if isinstance(log, PostgresConfig) else "kafka"
    try:
        if isinstance(log, PostgresConfig):
            from synthstream.io.postgres import PostgresSource

            return PostgresSource(
                table=log.table, sequence=log.sequence, columns=columns, service=log.service, moved=log.moved
            )
        from synthstream.io.kafka import KafkaSource

        return KafkaSource(topic=log.topic, columns=columns, config_file=log.config_file)
    except ImportError:
        raise ConfigError(
            f"source.kind = \"{extra}\" needs a library that is not installed: pip install 'synthstream[{extra}]'"
        ) from None
