"""Random streams, and neighbours of them that differ in one row."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tests.rows.frames import canary, objects_of
from tests.rows.lines import LINES
from tests.rows.objects import OBJECTS
from tests.rows.observing import INPUT
from tests.rows.texts import TEXTS

Kind = Literal["table", "epochs", "selective", "stream-mwem", "points", "hypercube"]
KINDS: tuple[Kind, ...] = ("table", "epochs", "selective", "stream-mwem", "points", "hypercube")

Way = Literal["pandas", "polars", "arrow", "csv", "parquet"]
FRAMES: tuple[Way, ...] = ("pandas", "polars", "arrow")
FILES: tuple[Way, ...] = ("csv", "parquet")

# A row is its cells in the order of the stream's columns, or bytes that stand for a line of a CSV file.
Row = list[Any] | bytes
Batches = list[list[Row]]

_EVERY = {"1d": timedelta(days=1), "6h": timedelta(hours=6), "1w": timedelta(weeks=1), "1mo": timedelta(days=31)}
_COLUMNS = {
    "c": 'type = "category"\nvalues = ["red", "blue"]\n',
    "f": 'type = "category"\nvalues = ["red", "blue"]\nmissing = "red"\nother = "blue"\n',
    "b": 'type = "boolean"\n',
    "i": 'type = "integer"\nmin = 0\nmax = 5\n',
    "n": 'type = "number"\nmin = -100\nmax = 100\nbins = 3\n',
    "h": 'type = "datetime"\npart = "weekday"\n',
    "m": 'type = "datetime"\nmin = 2026-01-01\nmax = 2026-02-01\nbins = 3\n',
}
_POINT = 'type = "number"\nmin = -100\nmax = 100\nmissing = 3\n'


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two neighbouring streams under one configuration.

    Args:
        text: the configuration.
        way: how rows come: in frames, or in files by the command line.
        columns: names of the columns of the rows.
        one, two: rows of each batch; a tick is closed after each.
        moments: up to when ticks are closed after each batch.
        reopen: whether the stream is closed and opened again after each batch.
    """

    text: str
    way: Way
    columns: tuple[str, ...]
    one: Batches
    two: Batches
    moments: tuple[str, ...]
    reopen: bool


def random_pair(kind: Kind, rng: np.random.Generator, *, way: Way | None = None) -> Pair:
    """A stream and a neighbour of it."""
    way = (*FRAMES, *FILES)[rng.integers(5)] if way is None else way
    names = _names(kind, rng)
    every = str(rng.choice(list(_EVERY)))
    ticks = int(rng.integers(1, 4))
    timed = bool(rng.random() < 0.7)
    signed = kind in ("table", "epochs", "points") and rng.random() < 0.4
    replaced = kind == "hypercube" or bool(rng.random() < 0.3)
    columns = (*names, *(["t"] if timed else []), *(["op"] if signed else []))
    cells = _Cells(rng, way, _EVERY[every] * ticks)
    one: Batches = [[[cells.some(n) for n in columns] for _ in range(rng.integers(0, 12))] for _ in range(ticks)]
    if way == "csv" and kind != "hypercube":
        for batch in one:
            batch.extend(cells.line() for _ in range(rng.integers(0, 2)))
    two = _neighbour(one, columns, cells, replaced=replaced, timeless=replaced and kind in ("points", "hypercube"))
    if not replaced and rng.random() < 0.5:
        one, two = two, one
    text = _configuration(kind, names, rng, way=way, every=every, ticks=ticks, timed=timed, signed=signed, one=replaced)
    # Days of 31 make the end of a month's tick lie before each of these.
    ends = [datetime(2026, 1, 1) + _EVERY[every] * (i + 1) + timedelta(days=1) * (every == "1mo") for i in range(ticks)]
    moments = tuple(end.isoformat() for end in ends)
    return Pair(text=text, way=way, columns=columns, one=one, two=two, moments=moments, reopen=bool(rng.random() < 0.3))


def _names(kind: Kind, rng: np.random.Generator) -> list[str]:
    if kind in ("points", "hypercube"):
        return ["p", "q"][: rng.integers(1, 3)]
    return [str(name) for name in rng.choice(list(_COLUMNS), rng.integers(2, 4), replace=False)]


class _Cells:
    """Draws cells, about every third of them a bad one."""

    def __init__(self, rng: np.random.Generator, way: Way, span: timedelta) -> None:
        self._rng, self._objects, self._span = rng, way in ("pandas", "polars"), span
        self._count = 0

    def some(self, name: str, *, bad: float = 0.3) -> Any:
        self._count += 1
        mark = canary(self._count)
        if self._rng.random() >= bad:
            return self._plain(name)
        if self._objects and self._rng.random() < 0.5:
            odd = OBJECTS[self._rng.integers(len(OBJECTS))]
            return None if odd.name == "no class" else odd.make(mark)
        text = TEXTS[self._rng.integers(len(TEXTS))].text
        # A long text is as good as a very long one here, and a hundred times as fast.
        return text.replace("@", str(mark))[:500]

    def line(self) -> bytes:
        return LINES[self._rng.integers(len(LINES))].data.replace(b"@", b"%d" % self._rng.integers(10**9))[:500]

    def _plain(self, name: str) -> str:
        rng = self._rng
        if name in ("c", "f", "b"):
            return str(rng.choice(["red", "blue", "true", "no"]))
        if name == "op":
            return str(rng.choice(["-1", "1"]))
        if name in ("t", "h", "m"):
            return (datetime(2026, 1, 1) + self._span * float(rng.random())).isoformat(timespec="seconds")
        return f"{rng.uniform(-120, 120):.3f}"


def _neighbour(one: Batches, columns: Sequence[str], cells: _Cells, *, replaced: bool, timeless: bool) -> Batches:
    """The same rows and one more, or with another in the place of one, or with one cell changed.

    A timeless row keeps its time: where points may only be replaced, the number of events at each tick is public.
    """
    rng = cells._rng
    two = [list(batch) for batch in one]
    row: Row = [cells.some(name, bad=0.7) for name in columns]
    places = [(b, i) for b, batch in enumerate(one) for i, old in enumerate(batch) if not isinstance(old, bytes)]
    if not replaced:
        batch = two[rng.integers(len(two))]
        batch.insert(int(rng.integers(len(batch) + 1)), row)
    elif places:
        b, i = places[rng.integers(len(places))]
        old = list(one[b][i])
        kept = [bool(rng.random() < 0.5)] * len(columns)
        kept[rng.integers(len(kept))] = False
        two[b][i] = [
            was if keep or (timeless and name == "t") else now
            for was, now, keep, name in zip(old, row, kept, columns, strict=True)
        ]
    return two


def _configuration(
    kind: Kind, names: Sequence[str], rng: np.random.Generator, *, way: Way, every: str, ticks: int, timed: bool,
    signed: bool, one: bool,
) -> str:  # fmt: skip
    delta = {"table": "1e-9", "points": rng.choice(["0", "1e-9"]), "selective": rng.choice(["0", "1e-9"])}.get(
        kind, "0"
    )
    zone = rng.choice(["UTC", "Europe/Berlin", "Asia/Kathmandu"])
    horizon = rng.choice([str(ticks), str(ticks + 3), '"unbounded"'])
    lines = ['name = "random"', 'state = "state"', *(['op = "op"'] if signed else [])]
    lines += ["[privacy]", f"epsilon = {rng.choice([0.3, 1, 8])}", f"delta = {delta}", 'unit = "event"']
    lines += ['neighbours = "replace-one"'] if one else []
    lines += ["[clock]", "start = 2026-01-01", f'every = "{every}"', f'timezone = "{zone}"', f"horizon = {horizon}"]
    lines += ['column = "t"'] if timed else []
    lines += _synthesizer(kind, rng)
    for name in names:
        lines += ["[[columns]]", f'name = "{name}"', _COLUMNS.get(name, _POINT)]
    if way in FILES:
        lines += ["[source]", f'kind = "{way}"', 'path = "input/*"']
        lines += ["multiline = true"] if way == "csv" and len(names) % 2 else []
    if rng.random() < 0.8:
        lines += ["[sink]", 'kind = "parquet"', 'path = "releases"', *(["rows = 9"] if rng.random() < 0.2 else [])]
        lines += ["keep = 1"] if rng.random() < 0.2 else []
    return "\n".join(lines)


def _synthesizer(kind: Kind, rng: np.random.Generator) -> list[str]:
    if kind == "table":
        return ["[synthesizer]", f"order = {rng.integers(1, 3)}"]
    if kind == "epochs":
        picks = rng.integers(3)  # 0: as many larger tables as gain most
        return ["[synthesizer]", 'measure = "epochs"', *([f"picks = {picks}"] if picks else [])]
    if kind in ("points", "hypercube"):
        return ["[synthesizer]", f'kind = "{kind}"', f"depth = {rng.integers(2, 8)}"]
    return ["[synthesizer]", f'kind = "{kind}"', f'fit = "{rng.choice(["mw", "pgm"])}"', "picks = 1"]


def frame_of_rows(rows: Sequence[Row], columns: Sequence[str], way: Way) -> Any:
    """Rows as a frame."""
    cells: dict[str, list[Any]] = {name: [row[i] for row in rows] for i, name in enumerate(columns)}
    if way == "arrow":
        return pa.table({name: pa.array(column, pa.string()) for name, column in cells.items()})
    if way == "polars":
        return pl.DataFrame({name: objects_of(column, "polars") for name, column in cells.items()})
    import pandas as pd

    return pd.DataFrame({name: objects_of(column, "pandas") for name, column in cells.items()})


def write_file(folder: Path, number: int, rows: Sequence[Row], columns: Sequence[str], way: Way) -> None:
    """Rows as a file."""
    path = folder / INPUT / f"{number:03d}.{way}"
    if way == "parquet":
        pq.write_table(frame_of_rows(rows, columns, "arrow"), path)
        return
    with path.open("wb") as file:
        for row in ([*columns], *rows):
            if isinstance(row, bytes):
                file.write(row)
            else:
                text = io.StringIO(newline="")
                csv.writer(text).writerow(row)
                file.write(text.getvalue().encode())
