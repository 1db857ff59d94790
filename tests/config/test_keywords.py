"""Configurations from keywords, and columns from what a frame declares."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from traceback import TracebackException
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import synthstream as ss
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
    with pytest.raises(SchemaError, match=r"'wart' is no column of the frame\. Did you mean 'ward'"):
        StreamConfig.of(**KEYS, frame=frame(), columns={"wart": {"values": ["A"]}})


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
    with pytest.raises(SchemaError, match=r"'ward' holds String: nothing declares its values.*leave it out"):
        StreamConfig.of(**KEYS, frame=pl.DataFrame({"ward": ["secret"]}))
    with pytest.raises(SchemaError, match=r"'ward' holds String.*\n'shift' holds String"):
        StreamConfig.of(**KEYS, frame=pl.Schema({"ward": pl.String, "shift": pl.String}))
    with pytest.raises(ConfigError, match="column 'age': min: this key is required"):
        StreamConfig.of(**KEYS, frame=pl.Schema({"age": pl.Int64}))
    with pytest.raises(SchemaError, match="'x' is no column"):
        StreamConfig.of(**KEYS, frame=frame(), columns={"x": {}})
    with pytest.raises(ConfigError, match=r"column 'x': type: must be a text, .*, not object"):
        StreamConfig.of(**KEYS, columns=[{"name": "x", "type": object()}])
    with pytest.raises(ConfigError, match=r"privacy\.delta: this key is required"):
        StreamConfig.of(**{**KEYS, "privacy": {"epsilon": -1}}, frame=frame(), columns=KNOWN)


def test_columns_that_have_another_use_are_none_of_the_stream_unless_they_are_named() -> None:
    kinds: dict[str, Any] = {"op": pl.Int64, "who": pl.Enum(["a", "b"]), "day": pl.Datetime(), "vip": pl.Boolean}
    types = pl.Schema(kinds)
    keys = {**KEYS, "op": "op", "privacy": {**KEYS["privacy"], "unit": {"person": "who", "max_events": 3}}}
    keys["clock"] = {**KEYS["clock"], "column": "day"}
    assert StreamConfig.of(**keys, frame=types).schema.names == ("vip",)
    named = {"day": {"part": "weekday"}, "hour": {"from": "day", "part": "hour"}}
    assert StreamConfig.of(**keys, frame=types, columns=named).schema.names == ("day", "vip", "hour")


def told(**keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        StreamConfig.of(**{**KEYS, "columns": [{"name": "new", "type": "boolean"}], **keys})
    return str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        ["secret", "secret"],
        ["secret", None],
        ["secret", "secret\n"],
        [737373.5, 737373.25],
        [737373, "secret"],
        np.array(["secret"]),
        pd.Series(["secret"]).unique(),
        pd.Categorical(["secret"]),
        pl.Series(["secret"]),
        {"secret"},
        b"secret",
        "secret",
    ],
    ids=lambda values: type(values).__name__,
)
def test_values_that_may_be_private_are_told_by_key_and_type(values: Any) -> None:
    listed = told(columns=[{"name": "p", "type": "category", "values": values}])
    number = told(columns=[{"name": "p", "type": "integer", "min": 0, "max": values, "bins": 2}])
    folded = told(columns=[{"name": "p", "type": "category", "values": ["A"], "missing": values}])
    for message in (listed, number, folded):
        assert message.startswith("keywords, column 'p': ")
        assert "secret" not in message
        assert "737373" not in message
    if isinstance(values, np.ndarray):
        assert listed.endswith(
            "values: must be a list of texts (str), not ndarray; what is listed there becomes public"
        )


def test_bounds_that_may_be_private_are_not_shown() -> None:
    top = pd.Series([737373]).max()
    point = {"name": "p", "type": "number", "min": top, "max": 0, "missing": 0}
    assert "737373" not in told(columns=[point], synthesizer={"kind": "points"})
    assert "737373" not in told(columns=[{**point, "min": 0, "max": 1, "missing": top}], synthesizer={"kind": "points"})
    assert "737373" not in told(columns=[{**point, "missing": None, "bins": 2}])
    assert "737,37" not in told(columns=[{"name": "p", "type": "integer", "min": 0, "max": top}])
    assert "737373" not in told(columns=[{"name": "p", "type": "place", "coordinates": ["a"], "bounds": [[top, 0]]}])


def test_what_other_sections_say_may_be_private_too() -> None:
    columns = [{"name": name, "type": "category", "values": ["A", "B"]} for name in ("p", "q")]
    unit = {"person": "who", "max_events": 737373, "max_per_tick": 737374}
    for said in (
        {"constraints": [{"columns": ["p", "q"], "allowed": [["A", "secret"]]}]},
        {"constraints": [{"column": "p", "function_of": "q", "lookup": {"A": "A", "B": "secret"}}]},
        {"constraints": [{"column": "p", "function_of": "q", "lookup": {"secret": "A", "A": "A"}}]},
        {"clock": {**KEYS["clock"], "until": datetime(2020, 1, 1, 7, 37, 37, 373737)}},
        {"clock": {**KEYS["clock"], "horizon": -737373}},
        {"privacy": {**KEYS["privacy"], "unit": unit}},
    ):
        message = told(columns=columns, **said)
        assert not [word for word in ("secret", "737373", "737374", "373737") if word in message], message
    assert "a value is not a value of 'q'" in told(
        columns=columns, constraints=[{"columns": ["p", "q"], "allowed": [["A", "secret"]]}]
    )


def test_a_misspelt_key_of_any_section_is_told_with_the_one_that_is_meant() -> None:
    said = told(clock={**KEYS["clock"], "strat": 1}, privacy={**KEYS["privacy"], "epsilonn": 1})
    assert "clock.strat: there is no such key here. Did you mean 'start'?" in said
    assert "privacy.epsilonn: there is no such key here. Did you mean 'epsilon'?" in said


def test_an_error_takes_nothing_along_in_its_variables() -> None:
    with pytest.raises(ConfigError) as found:
        StreamConfig.of(**KEYS, columns=[{"name": "p", "type": "number", "edges": [0, 737373.5, 5]}])
    assert found.value.__context__ is None
    known = "".join(TracebackException.from_exception(found.value, capture_locals=True).format())
    assert "737373" not in known.partition("config.py")[2]  # below the call of the test itself


def test_scalars_of_other_libraries_and_columns_say_the_same_as_a_file() -> None:
    config = StreamConfig.from_toml(TOML)
    said = {
        **KEYS,
        "privacy": {"epsilon": np.float64(1), "delta": np.float64(1e-9), "unit": np.str_("event")},
        "columns": [
            ss.Category(name="ward", values=("A", "B")),
            {"name": "age", "type": "integer", "min": np.int64(0), "max": np.array(99), "bins": np.int8(10)},
            ss.Number(name="fare", min=0, max=9.5, bins=4),
            {"name": "new", "type": "boolean", "missing": None},
            ss.Datetime(name="day", part="weekday"),
        ],
    }
    for start in ("2026-01-01", pd.Timestamp("2026-01-01"), np.datetime64("2026-01-01T00:00:00.000000000")):
        clock = {"column": "t", "start": start, "every": timedelta(days=1), "horizon": np.int64(365)}
        assert StreamConfig.of(**{**said, "clock": clock}).genesis == config.genesis
    assert StreamConfig.of(**KEYS, frame=frame(), columns=KNOWN).settings == config.settings
    assert StreamConfig.of(**KEYS, columns={"new": {"type": "boolean"}}).schema.names == ("new",)
    cut = ss.Integer(name="age", min=0, max=99, cuts=(0, 10, 100))
    assert StreamConfig.of(**KEYS, columns=[cut]).schema.columns[0].value_labels == cut.value_labels
    day = {"name": "day", "type": "datetime", "min": "2026-01-01", "max": "2026-02-01T12:00", "bins": 3}
    assert "2026-02-01T12:00" in StreamConfig.of(**KEYS, columns=[day]).public_json()


def test_words_of_a_column_are_public_in_python() -> None:
    column = ss.Category("zone", values=("A",), words=ss.Words(label="Zone", description="of the fare"))
    said = {"name": "zone", "type": "category", "values": ["A"], "label": "Zone", "description": "of the fare"}
    config = StreamConfig.of(**KEYS, columns=[column])
    assert config.schema.columns[0].words == StreamConfig.of(**KEYS, columns=[said]).schema.columns[0].words
    assert config.schema.columns[0].title == "Zone"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"clock": {**KEYS["clock"], "start": 1994}}, "clock.start: must be datetime.date(2026, 1, 31) or ISO text, "),
        ({"clock": {**KEYS["clock"], "start": "31.1.2026"}}, "or ISO text, YYYY-MM-DD, not another text"),
        ({"clock": {**KEYS["clock"], "start": pd.NaT}}, "clock.start: must be a text, a number"),
        ({"clock": {**KEYS["clock"], "every": timedelta(seconds=1)}}, "or a timedelta of whole minutes, not timedelta"),
        (
            {"clock": {**KEYS["clock"], "every": 7}},
            'clock.every: must be a text such as "1d", or a timedelta of whole minutes, not int',
        ),
        ({"clock": {**KEYS["clock"], "horizon": None}}, "clock.horizon: this key is required"),
        ({"privacy": {"epsilon": "1", "delta": 0, "unit": "event"}}, "privacy.epsilon: must be a number, not str"),
        ({"privacy": {"epsilon": 1, "delta": 0, "unit": "person"}}, 'unit = {"person": "column", "max_events": 20}'),
        ({"privacy": {**KEYS["privacy"], "horizon": 3}}, "It belongs in clock."),
        ({"privacy": {**KEYS["privacy"], "op": "x"}}, "It is a keyword of its own."),
        ({"privacy": {**KEYS["privacy"], "sink": "x"}}, "It is a keyword of its own. Allowed"),
        ({"privacy": 1}, "privacy: must be a dict, not int"),
        ({"sink": "out"}, 'sink: must be a dict, as in {"kind": "parquet", "path": "releases"}, not str'),
        ({"columns": []}, "columns: must be a list of dicts, one for each column, or a dict of them by name"),
        ({"columns": 1}, "columns: must be a list of dicts, one for each column, or a dict of them by name"),
        ({"columns": ["a"]}, "columns.0: must be a dict, not str"),
    ],
)
def test_what_is_wrong_with_keywords_is_said_in_words_of_python(keys: dict[str, Any], says: str) -> None:
    message = told(**keys)
    assert says in message
    assert not any(word in message for word in ("line ", "quotes", "[["))


def test_bounds_of_a_place_that_are_no_pairs() -> None:
    place = {"name": "at", "type": "place", "coordinates": ["lat", "lon"], "bounds": [52.4, 52.6, 13.2, 13.6]}
    assert "bounds: give each coordinate a list of its lower and upper end, as in [[32," in told(columns=[place])


@pytest.mark.parametrize("called", [ss.check, ss.describe, ss.plan, lambda given: ss.succeed(given, given)])
def test_functions_that_take_a_configuration_take_its_path(called: Any) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml: No such file"):
        called("no.toml")
