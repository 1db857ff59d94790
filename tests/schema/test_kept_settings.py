"""What columns say of themselves stays as it was: the chain of every running stream began with a hash of it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from synthstream.schema.binned import Datetime, Integer, Number
from synthstream.schema.columns import Boolean, Category, Column
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.districts import Districts
from synthstream.schema.places import View

_VIEW = View(name="at_1", place="at", coordinates=("x", "y"), bounds=((0, 4), (0, 8)), depth=1)
_AT: dict[str, Any] = {"name": "at_1", "type": "place", "place": "at", "coordinates": ["x", "y"], "depth": 1}
_AT |= {"bounds": [[0, 4], [0, 8]], "with": [], "located": False}
_DAY = datetime(2026, 1, 1)

# Each kind of column with as few keys as it takes. Written down once; it never changes.
KEPT: list[tuple[Column, dict[str, Any]]] = [
    (Category(name="c", values=("a", "b")), {"name": "c", "type": "category", "values": ["a", "b"]}),
    (Boolean(name="b"), {"name": "b", "type": "boolean"}),
    (Number(name="n", min=0, max=9, bins=3), {"name": "n", "type": "number", "min": 0, "max": 9, "bins": 3}),
    (Integer(name="i", min=0, max=9), {"name": "i", "type": "integer", "min": 0, "max": 9}),
    (Datetime(name="t", part="hour"), {"name": "t", "type": "datetime", "part": "hour", "timezone": "UTC"}),
    (
        Datetime(name="t", min=_DAY, max=_DAY.replace(day=9), bins=8),
        {"name": "t", "type": "datetime", "min": "2026-01-01T00:00:00", "max": "2026-01-09T00:00:00", "bins": 8}
        | {"timezone": "UTC"},
    ),
    (
        Coordinate(name="x", min=0, max=4, missing=0, bits=2),
        {"name": "x", "type": "number", "min": 0, "max": 4, "missing": 0, "bits": 2},
    ),
    (_VIEW, _AT),
    (
        Districts(name="d", finest=_VIEW, text="{}", values=("a",)),
        {"name": "d", "type": "districts", "values": ["a"], "with": [], "finest": _AT}
        | {"regions": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
    ),
]


@pytest.mark.parametrize(("column", "kept"), KEPT, ids=lambda it: type(it).__name__)
def test_a_column_says_what_it_said(column: Column, kept: dict[str, Any]) -> None:
    said = json.loads(json.dumps(column.to_dict()))
    assert said == kept, (
        f"A {type(column).__name__} says something else of itself, so every running stream that has one is refused. "
        "Give a new key the default None, never False or another value: what is None is left out."
    )


def _kinds(of: type) -> Iterator[type]:
    kind: type
    for kind in of.__subclasses__():
        yield from _kinds(kind)
        if not inspect.isabstract(kind) and kind.__module__.startswith("synthstream."):
            yield kind


def test_every_kind_of_column_is_held() -> None:
    assert {type(column) for column, _ in KEPT} == {*_kinds(Column)}
