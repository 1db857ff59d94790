"""Bad rows whose cells are Python objects: as pandas and polars keep them in columns of objects."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl

from tests.rows.places import HIGH, LOW, NOTHING, UNREADABLE, Place, at, known, when

FIVE = when(dt.datetime(2026, 1, 2, 5))


class Odd(NamedTuple):
    """An object and its place. The maker is given the canary, a whole number of ten digits."""

    name: str
    make: Callable[[int], Any]
    place: Place = UNREADABLE


class Raises:
    """Has no text."""

    def __init__(self, canary: int) -> None:
        self.canary = canary

    def __str__(self) -> str:
        raise ValueError(self.canary)

    __repr__ = __str__


class RaisesWhateverIsAsked(Raises):
    """Has no text, no length, no truth and no equal."""

    def __bool__(self) -> bool:
        raise OverflowError(self.canary)

    __len__ = __bool__

    def __eq__(self, other: object) -> bool:
        raise KeyError(self.canary)

    def __hash__(self) -> int:
        raise TypeError(self.canary)


class RunsForEver(Raises):
    """Asks for its text to give its text."""

    def __str__(self) -> str:
        return str(self) + str(self.canary)


class NoText(Raises):
    """Its text is a number."""

    def __str__(self) -> str:
        return self.canary  # type: ignore[return-value]


def nameless(canary: int) -> Any:
    """An object whose class has no name. The class stays in here: tools that look through modules ask for it."""

    class Nameless(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise LookupError(canary)

    class NoName(metaclass=Nameless):
        def __str__(self) -> str:
            return f"canary {canary}"

    return NoName()


class NoClass(Raises):
    """Does not say what it is."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError(self.canary)

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class LyingText(str):
    """A text that becomes a number when it is encoded."""

    def encode(self, *_: Any, **__: Any) -> Any:
        return self

    def decode(self, *_: Any, **__: Any) -> Any:
        return 7


class Shows(Raises):
    """Its text is of a class of its own."""

    def __str__(self) -> str:
        return LyingText(f"canary {self.canary}")


class LyingBytes(bytes):
    """Bytes that decode to a number."""

    def decode(self, *_: Any, **__: Any) -> Any:
        return 7


class OddFloat(float):
    """A number that cannot be compared."""

    def __ne__(self, other: object) -> bool:
        raise ValueError(float(self))

    def __eq__(self, other: object) -> bool:
        raise ValueError(float(self))

    __hash__ = float.__hash__


class OddInt(int):
    """A whole number that does not say which."""

    def __str__(self) -> str:
        raise ValueError(int(self))

    __repr__ = __str__


class Shade(enum.IntEnum):
    """Whole numbers with names."""

    RED = 1


def _zero_dimensional(n: int) -> Any:
    return np.array(n)


def _loop(n: int) -> Any:
    found: list[Any] = [n]
    found.append(found)
    return found


OBJECTS = [
    Odd("no text", Raises),
    Odd("raises whatever is asked", RaisesWhateverIsAsked),
    Odd("text without end", RunsForEver),
    Odd("a number for a text", NoText),
    Odd("class without a name", nameless, NOTHING),
    Odd("no class", NoClass, NOTHING),
    Odd("text of its own kind", Shows),
    Odd("text that lies", lambda n: LyingText(f"canary {n}")),
    Odd("bytes that lie", lambda n: LyingBytes(b"canary %d" % n)),
    Odd("float that cannot be compared", OddFloat, NOTHING),
    Odd("whole number without text", OddInt, HIGH),
    Odd("none", lambda n: None, NOTHING),
    Odd("pandas nothing", lambda n: pd.NA, NOTHING),
    Odd("no time", lambda n: pd.NaT, NOTHING),
    Odd("numpy's no time", lambda n: np.datetime64("NaT", "us"), NOTHING),
    Odd("numpy's no duration", lambda n: np.timedelta64("NaT", "s"), NOTHING),
    Odd("nan", lambda n: float("nan"), NOTHING),
    Odd("numpy nan", lambda n: np.float32("nan"), NOTHING),
    Odd("inf", lambda n: float("inf"), HIGH),
    Odd("minus inf", lambda n: float("-inf"), LOW),
    Odd("whole number", lambda n: n, HIGH),
    Odd("huge", lambda n: n * 10**300, HIGH),
    Odd("longer than Python writes", lambda n: -n * 10**6000, LOW),
    Odd("long float", lambda n: np.longdouble("1e400"), HIGH),
    Odd("half float", lambda n: np.float16(7), at(7.0)),
    Odd("numpy's largest", lambda n: np.uint64(2**64 - 1), HIGH),
    Odd("float", lambda n: n + 0.25, HIGH),
    Odd("minus nought", lambda n: -0.0, at(-0.0, written="0")),
    Odd("decimal", lambda n: Decimal(n), HIGH),
    Odd("decimal nan", lambda n: Decimal(f"NaN{n}")),
    Odd("decimal signalling nan", lambda n: Decimal("sNaN")),
    Odd("decimal infinity", lambda n: Decimal("-Infinity"), LOW),
    Odd("decimal beyond floats", lambda n: Decimal(f"{n}E+99999"), HIGH),
    Odd("complex", lambda n: complex(n, 1)),
    Odd("fraction", lambda n: Fraction(n, 7)),
    Odd("true", lambda n: True, Place(boolean="true", integer=1, number=2)),
    Odd("numpy false", lambda n: np.False_, Place(boolean="false", integer=0, number=2)),
    Odd("enumeration", lambda n: Shade.RED, at(1.0)),
    Odd("lone surrogate", lambda n: f"\ud800{n}"),
    Odd("two surrogates", lambda n: f"\udc00\ud800{n}\udfff"),
    Odd("bytes", lambda n: b"\xff\xfe%d" % n),
    Odd("bytes of a value", lambda n: b"red", known("red")),
    Odd("bytes cut in a character", lambda n: b"%d\xe2\x82" % n),
    Odd("bytearray", lambda n: bytearray(b"%d" % n), HIGH),
    Odd("memoryview", lambda n: memoryview(b"%d" % n), HIGH),
    Odd("empty text", lambda n: ""),
    Odd("numpy text", lambda n: np.str_(f"canary {n}")),
    Odd("numpy void", lambda n: np.void(b"%d" % n)),
    Odd("list", lambda n: [n]),
    Odd("tuple", lambda n: (n, n)),
    Odd("set", lambda n: {n}),
    Odd("dictionary", lambda n: {"red": n}),
    Odd("list that holds itself", _loop),
    Odd("array", lambda n: np.array([n, n])),
    Odd("array without dimension", _zero_dimensional, HIGH),
    Odd("series", lambda n: pd.Series([n, n])),
    Odd("frame", lambda n: pd.DataFrame({"red": [n]})),
    Odd("polars series", lambda n: pl.Series([n, n])),
    Odd("generator", lambda n: (i for i in range(n))),
    Odd("function", lambda n: lambda: n),
    Odd("class", lambda n: Raises),
    Odd("exception", lambda n: ValueError(f"canary {n}")),
    Odd("ellipsis", lambda n: ...),
    Odd("uuid", lambda n: uuid.UUID(int=n)),
    Odd("address", lambda n: ip_address(n)),
    Odd("path", lambda n: PurePosixPath(f"/canary/{n}")),
    Odd("time of day", lambda n: dt.time(5)),
    Odd("duration", lambda n: dt.timedelta(microseconds=n)),
    Odd("period", lambda n: pd.Period("2026-01", "M")),
    Odd("interval", lambda n: pd.Interval(0, n)),
    Odd("date", lambda n: dt.date(2026, 1, 2), when(dt.datetime(2026, 1, 2))),
    Odd("first date", lambda n: dt.date.min, when(dt.datetime(1, 1, 3))),
    Odd("last time", lambda n: dt.datetime.max, when(dt.datetime(9999, 12, 30, 0))),
    Odd(
        "time of a zone",
        lambda n: dt.datetime(2026, 1, 2, 5, tzinfo=ZoneInfo("Asia/Kathmandu")),
        when(dt.datetime(2026, 1, 1, 23)),
    ),
    Odd(
        "time that is shown twice",
        lambda n: dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        when(dt.datetime(2026, 10, 25, 1)),
    ),
    Odd("timestamp", lambda n: pd.Timestamp(2026, 1, 2, 5), FIVE),
    Odd(
        "offset of seconds",
        lambda n: dt.datetime(2026, 1, 2, 5, tzinfo=dt.timezone(dt.timedelta(seconds=1))),
        when(dt.datetime(2026, 1, 2, 4, 59, 59)),
    ),
]
