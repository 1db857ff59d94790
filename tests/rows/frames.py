"""Frames of every kind that hold one odd cell in every column, and the plain rows that belong in the same places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from synthstream.errors import SchemaError
from synthstream.schema.coercion import refuse_no_times
from tests.rows.objects import OBJECTS
from tests.rows.places import NAMES, TWIN_TYPES, Place
from tests.rows.texts import TEXTS
from tests.rows.typed import TYPED


class Case(NamedTuple):
    """One bad row: a column that holds it, and its declared place. Only this row has this canary."""

    name: str
    column: Any
    place: Place
    canary: str


# Ways in which a frame may hold a column of texts.
FORMS: dict[str, Callable[[list[str]], Any]] = {
    "polars": lambda values: pl.Series(values, dtype=pl.String),
    "polars categorical": lambda values: pl.Series(values, dtype=pl.Categorical),
    "polars binary": lambda values: pl.Series([value.encode() for value in values]),
    "polars objects": lambda values: pl.Series(values, dtype=pl.Object),
    "arrow": lambda values: pa.array(values, pa.string()),
    "arrow large": lambda values: pa.array(values, pa.large_string()),
    "arrow view": lambda values: pa.array(values, pa.string_view()),
    "arrow dictionary": lambda values: pa.array(values, pa.string()).dictionary_encode(),
    "pandas": lambda values: pd.Series(values),
    "pandas objects": lambda values: pd.Series(values, dtype=object),
    "pandas category": lambda values: pd.Series(values, dtype="category"),
}


def canary(number: int) -> int:
    """Ten digits that stand nowhere else."""
    return 7_319_000_000 + 7_919 * number


def texts_with_canaries() -> list[tuple[str, str, Place, str]]:
    """Name, text, place and canary of each text."""
    marks = [str(canary(i)) for i in range(len(TEXTS))]
    return [
        (text.name, text.text.replace("@", mark), text.place, mark) for text, mark in zip(TEXTS, marks, strict=True)
    ]


def objects_of(values: Sequence[Any], form: str) -> Any:
    """A column of Python objects."""
    if form == "polars":
        return pl.Series(values, dtype=pl.Object)
    cells = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        cells[i] = value
    return pd.Series(cells, dtype=object)


def cases() -> Iterator[Case]:
    """All bad rows that a frame can hold."""
    forms = list(FORMS)
    for i, (name, text, place, mark) in enumerate(texts_with_canaries()):
        form = forms[i % len(forms)]
        yield Case(f"text: {name} ({form})", FORMS[form]([text]), place, mark)
    for i, typed in enumerate(TYPED, len(TEXTS)):
        yield Case(f"typed: {typed.name}", typed.make(canary(i)), typed.place, str(canary(i)))
    for i, odd in enumerate(OBJECTS, len(TEXTS) + len(TYPED)):
        # Polars itself asks what class an object is of.
        form = "pandas" if i % 2 or odd.name == "no class" else "polars"
        yield Case(f"object: {odd.name} ({form})", objects_of([odd.make(canary(i))], form), odd.place, str(canary(i)))


def frame_of(column: Any, mark: str, names: Sequence[str] = NAMES) -> Any:
    """A frame with the same column under several names, and beside it a column that nobody reads."""
    note = [f"note {mark}"] * len(column)
    if isinstance(column, pl.Series):
        return pl.DataFrame({**dict.fromkeys(names, column), "note": note})
    if isinstance(column, pd.Series):
        return pd.DataFrame({**dict.fromkeys(names, column), "note": note})
    return pa.table({**dict.fromkeys(names, column), "note": pa.array(note)})


def update_takes(frame: Any) -> Any:
    """The same frame; where its clock is of a type of numbers, which is refused, none of its rows has a time."""
    try:
        refuse_no_times(frame, "t")
    except SchemaError:
        if isinstance(frame, pl.DataFrame):
            return frame.with_columns(t=None)
        if isinstance(frame, pd.DataFrame):
            return frame.assign(t=None)
        return frame.set_column(frame.schema.names.index("t"), "t", pa.nulls(len(frame)))
    return frame


def twin_of(places: Sequence[Place]) -> pl.DataFrame:
    """Plain rows that belong in the same places."""
    return pl.DataFrame([place.twin() for place in places], schema=TWIN_TYPES)
