"""Configurations from keywords, and columns from what a frame declares."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from synthstream import StreamConfig
from synthstream.errors import ConfigError, SchemaError

KEYS: dict[str, Any] = {
    "name": "visits",
    "state": Path("state"),
    "privacy": {"epsilon": 1.0, "delta": 1e-9, "unit": "event"},
    "clock": {"column": "t", "start": date(2026, 1, 1), "every": "1d", "horizon": 365},
}
TOML = """
name = "visits"
state = "state"
privacy = { epsilon = 1.0, delta = 1e-9, unit = "event" }
clock = { column = "t", start = 2026-01-01, every = "1d", horizon = 365 }
columns = [
  { name = "ward", type = "category", values = ["A", "B"] },
  { name = "age", type = "integer", min = 0, max = 99, bins = 10 },
  { name = "fare", type = "number", min = 0, max = 9.5, bins = 4 },
  { name = "new", type = "boolean" },
  { name = "day", type = "datetime", part = "weekday" },
]
"""
KNOWN: dict[str, dict[str, Any]] = {
    "age": {"min": 0, "max": 99, "bins": 10},
    "fare": {"min": 0, "max": 9.5, "bins": 4},
    "day": {"part": "weekday"},
}


def frame() -> pl.DataFrame:
    return pl.DataFrame(
        {"ward": ["A"], "age": [3], "fare": [1.5], "new": [True], "day": [datetime(2026, 1, 1)]},
        schema_overrides={"ward": pl.Enum(["A", "B"])},
    )


def test_keywords_say_the_same_as_a_file() -> None:
    config = StreamConfig.from_toml(TOML)
    columns = [{"name": "age", "type": "integer", **KNOWN["age"]}]
    assert StreamConfig.of(**KEYS, columns=columns).schema.names == ("age",)
    assert StreamConfig.of(**KEYS, frame=frame(), columns=KNOWN).genesis == config.genesis
    assert StreamConfig.of(**KEYS, frame=frame().schema, columns=KNOWN).genesis == config.genesis


def test_other_frames_declare_types_and_no_list_of_values() -> None:
    config = StreamConfig.from_toml(TOML)
    ward = {**KNOWN, "ward": {"values": ["A", "B"]}}
    plain = frame().cast({"ward": pl.String})
    for one in (plain, plain.to_pandas(), plain.to_arrow()):
        assert StreamConfig.of(**KEYS, frame=one, columns=ward).genesis == config.genesis


@pytest.mark.parametrize(
    "occurred",
    [
        pl.DataFrame({"ward": pl.Series(["A", "B"], dtype=pl.Categorical)}),
        pd.DataFrame({"ward": pd.Categorical(["A", "B"])}),
        pa.table({"ward": pa.array(["A", "B"]).dictionary_encode()}),
    ],
    ids=["polars", "pandas", "pyarrow"],
)
def test_lists_of_what_occurred_are_refused_and_not_quoted(occurred: Any) -> None:
    with pytest.raises(SchemaError, match=r"'ward' is a .*: its categories are those that occurred") as told:
        StreamConfig.of(**KEYS, frame=occurred)
    assert "'A'" not in str(told.value)
    assert '"A"' not in str(told.value)
    again = StreamConfig.of(**KEYS, frame=occurred, columns={"ward": {"values": ["B", "C"]}})
    assert again.schema.columns[0].value_labels == ("B", "C")


def test_what_no_type_declares_is_asked_for() -> None:
    with pytest.raises(SchemaError, match="'ward' holds String: nothing declares its values"):
        StreamConfig.of(**KEYS, frame=pl.DataFrame({"ward": ["secret"]}))
    with pytest.raises(ConfigError, match="min"):
        StreamConfig.of(**KEYS, frame=pl.Schema({"age": pl.Int64}))
    with pytest.raises(SchemaError, match="'x' is no column"):
        StreamConfig.of(**KEYS, frame=frame(), columns={"x": {}})
    with pytest.raises(TypeError, match="none of the values of a stream"):
        StreamConfig.of(**KEYS, columns=[{"name": "x", "type": object()}])
    with pytest.raises(ConfigError, match=r"privacy\.delta: this key is required"):
        StreamConfig.of(**{**KEYS, "privacy": {"epsilon": -1}}, frame=frame(), columns=KNOWN)
