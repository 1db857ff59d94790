"""The public settings of a stream as a ``settings.toml`` that lies beside its releases: enough for readers of them.

It is a ``stream.toml`` without what is the custodian's own: state, source, mirrors, keys. The chain begins with a hash
of what it says.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from synthstream.config.constraints import inlined
from synthstream.schema.schema import Schema

# Its name among the releases.
SETTINGS = "settings.toml"

# What they call the state: every stream.toml names one, and nothing reads this one.
NO_STATE = "../no-state"

_HEAD = """# Public settings of the stream, for readers of these releases: a stream.toml without state and source.
# Made by synthstream; the hash chain of the releases begins with what stands here.
"""
_KEPT = ("name", "op", "privacy", "clock", "synthesizer", "publication")


def settings_text(data: Mapping[str, Any], base: Path, schema: Schema, *, before: str | None) -> str:
    """The public part of a ``stream.toml``.

    Args:
        data: all of it, as it was read.
        base: folder that relative paths start from: files of constraints are read, and written out.
        schema: its columns: polygons of a region and of districts are written out, too.
        before: the same of the stream that it goes on from, which is written out too.
    """
    kept = {key: data[key] for key in _KEPT if key in data}
    kept["clock"] = {key: value for key, value in data["clock"].items() if key != "until"}
    sink = {key: value for key, value in data.get("sink", {}).items() if key in ("rows", "keep")}
    kept |= {"state": NO_STATE, "sink": {"kind": "parquet", "path": ".", **sink}}
    if data.get("source", {}).get("multiline"):  # the claim says so
        kept["source"] = {"kind": "csv", "path": "../no-source.csv", "multiline": True}
    elif data.get("source", {}).get("format") == "debezium":  # the chain says so
        kept["source"] = {"kind": "kafka", "topic": "no-source", "format": "debezium"}
    elif data.get("source", {}).get("format") == "changes":
        kept["source"] = {"kind": "delta", "path": "../no-source", "format": "changes"}
    # Files of regions stay with the publisher, but for those that decide what is counted.
    kept["columns"] = [
        {k: v for k, v in one.items() if k not in ("regions", "region_key")}
        | ({"regions": schema.districts[one["name"]].text} if one["name"] in schema.districts else {})
        for one in data["columns"]
    ]
    if data.get("constraints"):
        kept["constraints"] = [inlined(section, base) for section in data["constraints"]]
    if schema.region is not None:
        kept["synthesizer"] = {**kept["synthesizer"], "region": schema.region.text}
    if before is not None:
        kept["after"] = {**data["after"], "config": tomllib.loads(before)}
    return _HEAD + toml_of(kept)


def toml_of(data: Mapping[str, Any]) -> str:
    """Sections as TOML. Raises ``TypeError`` for a value that TOML has no way to write."""
    return "".join(f"{key} = {written(value, top=True)}\n" for key, value in data.items())


def written(value: Any, *, top: bool = False) -> str:
    """A value as TOML writes it. Raises ``TypeError`` for one that it has no way to write."""
    if isinstance(value, Mapping):
        keys = ((key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else written(key), one) for key, one in value.items())
        return "{ " + ", ".join(f"{key} = {written(one)}" for key, one in keys) + " }"
    if isinstance(value, list | tuple):
        parts = [written(one) for one in value]
        return "[\n  " + ",\n  ".join(parts) + ",\n]" if top and parts else f"[{', '.join(parts)}]"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return repr(value)
    if not isinstance(value, str | int):
        raise TypeError(f"{type(value).__name__} is no type of a stream.toml")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
