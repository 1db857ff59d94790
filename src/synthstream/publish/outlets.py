"""Where releases go, from what the configuration says: the folder of releases, also in a simulated run, and mirrors."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from synthstream.config.config import StreamConfig, load
from synthstream.config.settings import SETTINGS
from synthstream.config.sinks import SIMULATED, AnyMirror, DeltaMirror, FilesMirror, PostgresMirror, SinkConfig
from synthstream.environment import REAL, Env
from synthstream.errors import ConfigError, NotReleased, SinkError
from synthstream.publish.folder import Anchor, ParquetSink, Sink
from synthstream.publish.mirrors import DeltaTable, Mirror, ObjectFolder


def refuse_other_releases(config: StreamConfig, sink: ParquetSink) -> None:
    """Raise ``ConfigError`` if the releases in a folder began with other settings: the chain begins with these."""
    if config.after is not None and config.after.tick is None:
        ticks = sink.ticks()
        until = f" that ends {config.clock.begins(max(ticks) + 2)}" if ticks else ""
        raise ConfigError(
            f"{sink.folder}: [after]: this successor has no release yet. Its first one is of the tick{until}, once "
            "`synthstream succeed` was said. Until then, name the stream.toml that it goes on from."
        )
    if not sink.place(0).is_dir():  # somebody has a part of them only
        return
    if sink.manifest(0)["chain"].get("previous") != config.genesis:
        raise ConfigError(
            f"{sink.folder}: these releases were made with other settings. Use the stream.toml that they were made "
            "with; `synthstream status` says what differs where the state is."
        )


def as_begun(config: StreamConfig) -> StreamConfig:
    """A configuration with the cuts of the stream's releases, if there are any.

    Raises:
        ConfigError: the releases go on with other settings.
    """
    there = [] if config.sink is None else config.sink.path.glob("[0-9]*")
    # Of thousands of releases the newest is enough, as a rule. After 999999 names are longer; so are those of copies.
    numbered = (place for place in there if place.name.isdecimal())
    for place in sorted(numbered, key=lambda place: int(place.name), reverse=True):
        facts: Any = None
        with suppress(OSError, ValueError):  # who reads the releases says what is wrong with them
            facts = json.loads((place / "manifest.json").read_bytes())
        cuts = facts.get("cuts", []) if isinstance(facts, dict) else None
        if isinstance(cuts, list) and all(isinstance(cut, dict) and isinstance(cut.get("tick"), int) for cut in cuts):
            config.refuse_succeeded(facts)
            return config.begun_as(facts)
    return config


def as_published(config: StreamConfig) -> StreamConfig:
    """The settings that stand beside the stream's releases, whatever was changed since; its own where there are none.

    Raises:
        ConfigError: they cannot be read, or the releases go on with other settings.
    """
    there = config.sink is not None and (config.sink.path / SETTINGS).is_file()
    return as_begun(load(config.sink.path) if there and config.sink is not None else config)


def public_folders(config: StreamConfig) -> list[str]:
    """Folders of this machine that the configuration publishes in: that of releases, and of mirrors."""
    folders = [] if config.sink is None else [str(config.sink.path)]
    return folders + [mirror.folder for mirror in config.mirrors if isinstance(mirror, DeltaMirror) and mirror.folder]


def public_folder(config: StreamConfig, place: Path) -> Path | None:
    """The folder of releases, of a mirror, or of a site or a copy of releases, that a path lies in; ``None`` if none.

    Args:
        place: absolute, without links.
    """
    known = {Path(name).resolve() for name in public_folders(config)}
    for folder in (place, *place.parents):
        if folder in known or any((folder / name).exists() for name in ("manifest.json", "latest/manifest.json")):
            return folder
    return None


def sink_of(config: StreamConfig, env: Env = REAL) -> Sink:
    """Where releases go; without a sink, an anchor file beside the state."""
    if config.sink is None:
        return Anchor(config.state.with_name(config.state.name + ".anchor.json"), env=env)
    return parquet_sink(config.sink, env)


def parquet_sink(config: SinkConfig, env: Env = REAL) -> ParquetSink:
    """The folder that releases go to."""
    return ParquetSink(config.path, rows=config.rows, keep=config.keep, env=env)


def mark_of(mirror: AnyMirror) -> str:
    """What a state knows a mirror by: its kind and address, as a hash, wherever in ``stream.toml`` it stands."""
    place = (mirror.table, mirror.service) if isinstance(mirror, PostgresMirror) else (str(mirror.path), None)
    address = hashlib.sha256(json.dumps(place).encode()).hexdigest()
    return f"copied to {mirror.kind} {address}"


def mirror_of(mirror: AnyMirror, stream: str, env: Env) -> Mirror:
    """What gets copies of all that the sink publishes. ``stream``: the head of its chain before the first tick."""
    if isinstance(mirror, DeltaMirror):
        return DeltaTable(mirror.path, stream=stream, content=mirror.content, env=env)
    if isinstance(mirror, FilesMirror):
        return ObjectFolder(mirror.path, stream=stream, env=env)
    try:
        from synthstream.publish.postgres_table import PostgresTable
    except ImportError:
        raise SinkError("psycopg is not installed here. Say: pip install 'synthstream[postgres]'") from None
    return PostgresTable(mirror.table, stream=stream, service=mirror.service, content=mirror.content, env=env)


def configured(place: str | Path | StreamConfig, *, simulate: bool) -> StreamConfig:
    """A configuration, or the one in a file, with the folders of a simulation if it is one. Raises as :func:`load`."""
    config = load(place)
    return simulated(config) if simulate else config


def refuse_no_sink(config: StreamConfig) -> SinkConfig:
    """Where releases go. Raises ``NotReleased`` if they go nowhere."""
    if config.sink is None:
        raise NotReleased(
            "This configuration has no [sink]: its releases are in no folder. Its Stream has the newest one, by rows, "
            "table, between and last; a [sink] keeps earlier ones."
        )
    return config.sink


def simulated(config: StreamConfig) -> StreamConfig:
    """The same configuration for a run with simulated noise, with folders of its own.

    It has no mirrors: who knows the seed takes the noise away, and mirrors are open to others.
    """
    state, sink = config.state.with_name(config.state.name + SIMULATED), config.sink
    if sink is not None:
        sink = sink.model_copy(update={"path": sink.path.with_name(sink.path.name + SIMULATED)})
    return replace(config, state=state, sink=sink, mirrors=())
