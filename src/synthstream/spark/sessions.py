"""The Spark session, and which streams can be counted in it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from synthstream.config.config import StreamConfig
from synthstream.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# How often Spark tells of a look that found nothing, in milliseconds. Of one that found rows it tells at once, and what
# it tells closes ticks: otherwise the moment of a release would tell whether rows came.
INTERVAL = "spark.sql.streaming.noDataProgressEventInterval"


def session(name: str = "synthstream") -> SparkSession:
    """The active Spark session, or a new one.

    What a new one takes from Spark's own configuration it keeps (master, memory, packages); only its user interface,
    which shows how many rows there are to everybody on the network, is off, and so is its bar of progress on the
    terminal, which shows how many parts files have.

    Raises:
        EngineError: Spark is not installed, or does not start.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise EngineError("Spark is not installed here. Say: pip install 'synthstream[spark]'") from None
    found = SparkSession.getActiveSession()
    if found is not None:
        return found
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for shown in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(shown, "false")
    builder = builder.config(INTERVAL, "0")
    try:
        made = builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise EngineError("Spark does not start. It needs Java 17 or newer: set JAVA_HOME, or install it.") from error
    made.sparkContext.setLogLevel("ERROR")
    return made


def refuse_persons(config: StreamConfig) -> None:
    """Raise ``ConfigError`` for streams whose rows cannot be counted apart from their state."""
    if config.privacy.unit.of_persons:
        raise ConfigError(
            "the rows of a stream that protects persons are not counted by executors: which of them count depends on "
            "all that came before, which stands in the state alone. Use synthstream.spark.attach, which lets executors "
            "encode rows and the state choose; or `synthstream run` without --engine."
        )


def refuse(config: StreamConfig) -> None:
    """Raise ``ConfigError`` for streams in which it matters when a row arrives."""
    kind = config.synthesizer.kind
    if config.synthesizer.points and config.privacy.neighbours == "replace-one":
        raise ConfigError(
            f'kind = "{kind}" under neighbours = "replace-one" publishes exactly how many events arrive by each tick; '
            "on Spark that would be a matter of scheduling. Use `synthstream run` without --engine, or neighbours = "
            '"add-remove" with kind = "points".'
        )
