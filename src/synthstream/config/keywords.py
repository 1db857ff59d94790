"""Configurations from keywords: what Python has becomes what TOML has, and what is wrong is said in words for Python.

A value of a column may have been taken from private rows, as ``df.age.max()`` is. It is told by its key and its type,
and never shown.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from synthstream.config.declared import columns_of
from synthstream.config.problems import Path as Where
from synthstream.config.problems import Problems
from synthstream.config.sections import MADE
from synthstream.schema.clock import length_of

# What is asked for, by what pydantic says, and by key.
_WANTED = {
    "string_type": "a text (str)",
    "int_type": "a whole number (int)",
    "int_from_float": "a whole number (int)",
    "float_type": "a number",
    "bool_type": "True or False",
    "datetime_type": "datetime.date(2026, 1, 31) or ISO text, YYYY-MM-DD",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a dict",
    "model_type": "a dict",
    "model_attributes_type": "a dict",
}
_BY_KEY = {"values": "a list of texts (str)", "every": 'a text such as "1d", or a timedelta of whole minutes'}
_BY_KEY["sink"] = 'a dict, as in {"kind": "parquet", "path": "releases"}'
# Sections whose values may have been taken from rows, as a list of pairs, or the last time.
_SILENT = (("clock",), ("privacy",), ("constraints",), ("after",))
_PUBLIC = {"values": "; what is listed there becomes public"}
_ANY = "a text, a number, True or False, a date, a list or a dict"

# Of a column's keys, told as in ``stream.toml``.
_OF_BOTH = ("missing", "literal_error", "union_tag_invalid", "union_tag_not_found")

# How messages call what keywords write otherwise.
_IN_PYTHON = (
    (r"\{ person = \"column\", max_events = 20 \}", '{"person": "column", "max_events": 20}'),
    ("It stands at the top of the file, before the first section", "It is a keyword of its own"),
    (r"It is a section of its own\. Begin it with \w+", "It is a keyword of its own"),
)
# Keys that hold times, in [clock] and in columns of type datetime.
_TIMES = ("start", "until", "min", "max", "missing")


class KeywordProblems(Problems):
    """What is wrong with keywords. There are no lines, and no value of a column is shown.

    Args:
        columns: what is said of columns; their sections, when they are known. Their ``names`` may then stand in any
            message.
        sections: keys by section.
    """

    def __init__(self, columns: Any, sections: Mapping[str, Sequence[str]]) -> None:
        super().__init__("keywords", "", sections)
        self.columns, self.names = columns, set[str]()

    def add(self, path: Where, message: str) -> None:
        names = "|".join({name.partition(".")[0] for name in self._sections if name})
        message = re.sub(rf"\[\[?({names})\]\]?", r"\1", message)
        for before, now in _IN_PYTHON:
            message = re.sub(before, now, message)
        if path[:1] in _SILENT:
            message = re.sub(r"^([\w.]+) = .*?: ", r"\1: ", message)
            known = self.names.union(*self._sections.values())  # keys are public
            message = re.sub(r"'([^']*)'", lambda quoted: quoted[0] if quoted[1] in known else "a value", message)
            message = re.sub(r"(\w) = [\d.+-]+(?=[ ;])", r"\1", message)
        if (0, message) not in self._found:  # one sentence for all that a list holds
            super().add(path, message)

    def refuse(self, path: Where, value: object) -> None:
        """Note a value of a type that no key takes."""
        self.add(path, self._refused(path, value, _ANY))

    def _refused(self, path: Where, value: object, wanted: str) -> str:
        found = "None" if value is None else type(value).__name__
        found = "another text" if isinstance(value, str) and "ISO" in wanted else found
        while len(path) > 2 and isinstance(path[-1], int):  # a list is told of as a whole
            path, found = path[:-1], found if "list with" in found else f"a list with {found}"
        last = str(path[-1])
        return f"{self._key(path, '')}: must be {_BY_KEY.get(last, wanted)}, not {found}{_PUBLIC.get(last, '')}"

    def _name_of(self, column: int) -> str | None:
        with suppress(KeyError, TypeError, IndexError):
            return str(self.columns[column]["name"])
        return None

    def _worded(self, detail: Any, path: Where, key: str) -> str:
        kind, last, of_column = detail["type"], path[-1:], path[:1] == ("columns",)
        if path == ("columns",) and kind != "missing":
            return "columns: must be a list of dicts, one for each column, or a dict of them by name"
        if kind == "missing" and len(path) == 1:
            return f"{key}: this key is required"
        if kind in _WANTED and last not in (("unit",), ("bounds",)):
            return self._refused(path, detail["input"], _WANTED[kind])
        if of_column and last != ("bounds",) and kind not in _OF_BOTH:
            said = detail["msg"].removeprefix("Value error, ")
            return f"{key}: {said[:1].lower()}{said[1:]}"
        return super()._worded(detail, path, key)


def sections_of(said: Mapping[str, Any], columns: Any, frame: Any, problems: KeywordProblems) -> dict[str, Any]:
    """Keywords as ``tomllib`` would have read them.

    Raises:
        ConfigError: a value is of a type that no key takes; SchemaError: as :func:`columns_of`.
    """
    after = said.get("after")
    if isinstance(after, Mapping) and hasattr(after.get("config"), "settings"):
        said = {**said, "after": {**after, "config": _settings_of(after["config"])}}
    data: dict[str, Any] = _plain({**said, "columns": columns}, (), problems)
    problems.raise_if_any()
    columns = data.get("columns")
    if isinstance(columns, list) and frame is not None:
        columns = {one.get("name", ""): one for one in columns if isinstance(one, dict)}
    if isinstance(columns, dict) and frame is not None:
        # They have a use of their own: a person's key, a row's time, whether it adds or takes away.
        clock, privacy = (found if isinstance(found := data.get(key), dict) else {} for key in ("clock", "privacy"))
        unit = found if isinstance(found := privacy.get("unit"), dict) else {}
        columns = columns_of(frame, columns, elsewhere=[data.get("op"), clock.get("column"), unit.get("person")])
    elif isinstance(columns, dict):
        columns = [{"name": name, **one} if isinstance(one, dict) else one for name, one in columns.items()]
    data["columns"] = problems.columns = columns  # of another shape it is told
    listed = columns if isinstance(columns, list) else []
    problems.names = {str(one["name"]) for one in listed if isinstance(one, dict) and "name" in one}
    times = [one for one in listed if isinstance(one, dict) and one.get("type") == "datetime"]
    for section in (data.get("clock"), *times):
        for key in _TIMES:
            if isinstance(section, dict) and isinstance(section.get(key), str):
                section[key] = _time(section[key])
    return data


def _plain(value: Any, path: Where, problems: KeywordProblems) -> Any:
    """What TOML has in place of a Python value. Keys that are None are left out; what has no place is noted."""
    if type(value) in MADE.values():
        said = value.settings()
        if said.get("edges") is not None:  # all else follows
            said |= dict.fromkeys(("min", "max", "bins"))
        value = {"type": value.type, **said, **asdict(value.words)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one, (*path, str(key)), problems) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_plain(one, (*path, i), problems) for i, one in enumerate(value)]
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]")
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a scalar of numpy, or of its like
        value = value.item()
    if isinstance(value, timedelta):
        length = length_of(value)
        return problems.refuse(path, value) if length is None else length
    if isinstance(value, datetime) and value == value:  # not a missing one of pandas
        return datetime.fromisoformat(value.isoformat())
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return value if kind is bool else kind.__str__(value) if kind is str else kind(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    return str(value) if isinstance(value, Path) else problems.refuse(path, value)


def _settings_of(config: Any) -> dict[str, Any]:
    """The settings of a configuration for readers, with the folders of its own, which a successor keeps."""
    said = tomllib.loads(config.settings) | {"state": config.state.absolute()}
    sink = said.pop("sink")
    said |= {} if config.sink is None else {"sink": {**sink, "path": config.sink.path.absolute()}}
    if config.after is not None:
        said["after"]["config"] = _settings_of(config.after.config)
    return said


def _time(text: str) -> str | date:
    for kind in (date, datetime):
        with suppress(ValueError):
            return kind.fromisoformat(text)
    return text
