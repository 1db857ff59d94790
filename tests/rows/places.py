"""Where each kind of cell belongs in each kind of column: the declared places, written down without the encoder."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from synthstream.schema.binned import Datetime, Integer, Number
from synthstream.schema.clock import Clock
from synthstream.schema.columns import Boolean, Category, Column
from synthstream.schema.coordinates import Coordinate

START = datetime(2026, 1, 1)
HORIZON = 8
COLUMNS: dict[str, Column] = {
    "c": Category(name="c", values=("red", "blue")),
    "b": Boolean(name="b"),
    "i": Integer(name="i", min=0, max=9),
    "n": Number(name="n", min=-100, max=100, bins=4),
    "h": Datetime(name="h", part="hour"),
    "m": Datetime(name="m", min=START, max=START + timedelta(days=4), bins=4),
    "p": Coordinate(name="p", min=-100, max=100, missing=0, bits=2),
}
CLOCK = Clock(start=START, every="1d", column="t", horizon=HORIZON)
NAMES = (*COLUMNS, "t", "op")


@dataclass(frozen=True, kw_only=True)
class Place:
    """What one cell counts as in a column of each kind.

    Args:
        category, boolean: the value, or ``other`` or ``missing``.
        integer, number, hour, moment: the bin, from 0; ``None`` for missing.
        point: the quarter of the range; what is missing is folded into 0, which is in quarter 2.
        tick: of the row's time; the horizon for all ticks beyond it; -1 for the tick that is open when it comes.
        op: what the row adds.
    """

    category: str = "other"
    boolean: str = "missing"
    integer: int | None = None
    number: int | None = None
    hour: int | None = None
    moment: int | None = None
    point: int = 2
    tick: int = -1
    op: int = 1

    def codes(self) -> list[int]:
        """Code in each column, then the tick and the weight, in the order of ``NAMES``."""
        return [
            ["red", "blue", "other", "missing"].index(self.category),
            ["false", "true", "missing"].index(self.boolean),
            10 if self.integer is None else self.integer,
            4 if self.number is None else self.number,
            24 if self.hour is None else self.hour,
            4 if self.moment is None else self.moment,
            self.point,
            self.tick,
            self.op,
        ]

    def twin(self) -> dict[str, Any]:
        """Cells of a plain row that belongs in the same places."""
        bins = {"red": "red", "blue": "blue", "other": "green", "missing": None}
        return {
            "c": bins[self.category],
            "b": {"false": False, "true": True, "missing": None}[self.boolean],
            "i": self.integer,
            "n": None if self.number is None else -75.0 + 50 * self.number,
            "h": None if self.hour is None else START + timedelta(hours=self.hour),
            "m": None if self.moment is None else START + timedelta(days=self.moment, hours=12),
            "p": -75.0 + 50 * self.point,
            "t": None if self.tick < 0 else START + timedelta(days=self.tick, hours=12),
            "op": self.op,
        }


TWIN_TYPES: dict[str, Any] = {
    "c": pl.String, "b": pl.Boolean, "i": pl.Int64, "n": pl.Float64, "h": pl.Datetime("us"), "m": pl.Datetime("us"),
    "p": pl.Float64, "t": pl.Datetime("us"), "op": pl.Int64,
}  # fmt: skip

UNREADABLE = Place()  # there is something, and it is nothing that is known
NOTHING = Place(category="missing")


def at(number: float, *, written: str | None = None) -> Place:
    """Place of a number. Out of range it is clamped to the edge; its text is in no list of values."""
    quarter = int(min(max((number + 100) // 50, 0), 3)) if math.isfinite(number) else 3 * (number > 0)
    whole = math.floor(min(max(number, 0.0), 9.0))
    boolean = {"0": "false", "1": "true"}.get(written if written is not None else f"{number:g}", "missing")
    return Place(boolean=boolean, integer=whole, number=quarter, point=quarter, op=-1 if number == -1 else 1)


def when(moment: datetime) -> Place:
    """Place of a time. Before the start or after the end it is clamped."""
    day = (moment - START).days
    return Place(hour=moment.hour, moment=min(max(day, 0), 3), tick=min(max(day, 0), HORIZON))


def known(value: str, place: Place = UNREADABLE) -> Place:
    """Place of a cell whose text is a value of the category."""
    return replace(place, category=value)


HIGH, LOW = at(math.inf), at(-math.inf)
FIRST, LAST = when(datetime(1, 1, 1)), when(datetime(9999, 12, 30))
