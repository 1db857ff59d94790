"""Where releases go, from what the configuration says: the folder of releases, mirrors, and both in a simulated run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from synthstream.config.config import StreamConfig
from synthstream.config.mirrors import SIMULATED, aside
from synthstream.config.outside import AlsoConfig, SinkConfig
from synthstream.environment import REAL, Env
from synthstream.errors import ConfigError, SinkError
from synthstream.publish.delta import DeltaTable
from synthstream.publish.folder import Anchor, ParquetSink, Sink
from synthstream.publish.mirrors import Place


def refuse_other_releases(config: StreamConfig, sink: ParquetSink) -> None:
    """Raise ``ConfigError`` if the releases in a folder began with other settings: the chain begins with these."""
    if not sink.place(0).is_dir():  # somebody has a part of them only
        return
    if sink.manifest(0)["chain"].get("previous") != config.genesis:
        raise ConfigError(
            f"{sink.folder}: these releases were made with other settings. Use the stream.toml that they were made "
            "with; `synthstream status` says what differs where the state is."
        )


def sink_of(config: StreamConfig, env: Env = REAL) -> Sink:
    """Where releases go; without a sink, an anchor file beside the state."""
    if config.sink is None:
        return Anchor(config.state.with_name(config.state.name + ".anchor.json"), env=env)
    return parquet_sink(config.sink, env)


def parquet_sink(config: SinkConfig, env: Env = REAL) -> ParquetSink:
    """The folder that releases go to."""
    return ParquetSink(config.path, rows=config.rows, keep=config.keep, env=env)


def places_of(config: StreamConfig, env: Env = REAL) -> list[Place]:
    """Other places that get copies of what the sink publishes."""
    return [_place(also, config.genesis, env) for also in config.also]


def mark_of(also: AlsoConfig) -> str:
    """What a state knows a place by: its kind and address, as a hash, wherever in ``stream.toml`` it stands."""
    address = hashlib.sha256(json.dumps([also.place, also.service]).encode()).hexdigest()
    return f"copied to {also.kind} {address}"


def _place(also: AlsoConfig, stream: str, env: Env) -> Place:
    if also.kind == "delta":
        return DeltaTable(also.place, stream=stream, content=also.content, env=env)
    try:
        from synthstream.publish.postgres_table import PostgresTable
    except ImportError:
        raise SinkError("psycopg is not installed here. Say: pip install 'synthstream[postgres]'") from None
    return PostgresTable(also.place, stream=stream, service=also.service, content=also.content, env=env)


def simulated(config: StreamConfig) -> StreamConfig:
    """The same configuration with places of its own for a run with simulated noise."""
    state = config.state.with_name(config.state.name + SIMULATED)
    sink = config.sink and replace(config.sink, path=config.sink.path.with_name(config.sink.path.name + SIMULATED))
    return replace(config, state=state, sink=sink, also=tuple(aside(place) for place in config.also))
