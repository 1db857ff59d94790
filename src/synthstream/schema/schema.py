"""The public description of a stream's rows: columns in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache

import numpy as np
import polars as pl

from synthstream.errors import SchemaError
from synthstream.schema.alike import agreeing
from synthstream.schema.binned import Binned, seconds_of
from synthstream.schema.coercion import Frame, polars_frame
from synthstream.schema.columns import Column, distinct
from synthstream.schema.conditions import unknown
from synthstream.schema.dates import Dates
from synthstream.schema.districts import Districts, OfPlace
from synthstream.schema.places import View
from synthstream.schema.region import Domain
from synthstream.workload import CodeArray, Workload


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Columns in order.

    Args:
        in_order: pairs of binned columns of which the first is never above the second, in rows that are decoded. No
            part of the hash: private rows never consult it.
        region: of two coordinates, the polygons that hold all points; no part of the hash.

    Raises:
        SchemaError: there is no column, or two have one name.

    Example:
        >>> from synthstream.schema.binned import Integer
        >>> from synthstream.schema.columns import Boolean
        >>> schema = Schema(columns=(Boolean(name="a"), Integer(name="b", min=0, max=2, missing=0)))
        >>> schema.sizes
        (3, 3)
        >>> schema.encode(pl.DataFrame({"b": [2], "a": [None], "c": ["ignored"]})).tolist()
        [[2, 2]]
    """

    columns: tuple[Column, ...]
    in_order: tuple[tuple[int, int], ...] = ()
    region: Domain | None = None

    def __post_init__(self) -> None:
        if not self.columns:
            raise SchemaError("a schema needs at least one column")
        distinct("columns", self.published)
        for name in self.names:
            if name == "*" or (name.startswith("^") and name.endswith("$")):
                raise SchemaError(f"columns: {name!r} is a pattern of names to the frames that rows are in; rename it")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def published(self) -> tuple[str, ...]:
        """Names of all columns of published rows: also of coordinates of places."""
        nothing = np.zeros(0, dtype=np.int32)
        return (*self.names, *(more.name for column in self.columns for more in column.further(nothing)))

    @cached_property
    def places(self) -> dict[str, tuple[int, ...]]:
        """Positions of the columns of each place, coarsest first."""
        found: dict[str, tuple[int, ...]] = {}
        for c, column in enumerate(self.columns):
            if isinstance(column, View):
                found[column.place] = (*found.get(column.place, ()), c)
        return found

    @cached_property
    def districts(self) -> dict[str, Districts]:
        """The districts of each place that has some."""
        return {column.place: column for column in self.columns if isinstance(column, Districts)}

    def of_one_place(self, columns: Collection[int]) -> bool:
        """Whether columns, by position, are grids or districts of one place alone."""
        found = [self.columns[c] for c in columns]
        places = [one.place for one in found if isinstance(one, OfPlace)]
        return len(places) == len(found) and len(set(places)) == 1

    def unknown(self, name: str) -> str:
        """That there is no such column, and what may be meant, in a sentence."""
        of = next((one.place for one in self.columns if isinstance(one, View) and name in one.coordinates), name)
        if of in self.places:
            views = [self.names[c] for c in self.places[of]]
            own = [self.districts[of].name] if of in self.districts else []
            what = "a place" if of == name else f"a coordinate of {of!r}"
            return f"{name!r} is {what}. Name one of its columns, {', '.join([*own, *views])}, or ask for a box of it."
        return unknown(name, self.names)

    @cached_property
    def read_from(self) -> tuple[str, ...]:
        """Columns of private rows that they are read from, each once."""
        return tuple(dict.fromkeys(name for column in self.columns for name in column.sources))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each column."""
        return tuple(column.size for column in self.columns)

    @cached_property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """One label per code of each column."""
        return tuple(column.labels for column in self.columns)

    @cached_property
    def texts(self) -> dict[str, tuple[str, ...]]:
        """Of each column of texts, all that published cells may hold."""
        return {column.name: column.texts for column in self.columns if column.texts}

    @cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Of columns of published rows that hold numbers or times: see :attr:`Column.ranges`."""
        return {name: ends for column in self.columns for name, ends in column.ranges.items()}

    def encode(self, frame: Frame) -> CodeArray:
        """Codes of private rows, int32, shape ``(rows, columns)``. Total: no row can raise.

        Raises:
            SchemaError: a column is missing.
        """
        rows = polars_frame(frame, self.read_from)
        if rows.height == 0:
            return np.zeros((0, len(self.columns)), dtype=np.int32)
        codes = np.stack([column.read(rows) for column in self.columns], axis=1)
        return codes if self.region is None else self.region.kept(codes)

    def decode(
        self,
        codes: CodeArray,
        rng: np.random.Generator | None,
        dates: Dates | None = None,
        end: datetime | None = None,
    ) -> pl.DataFrame:
        """Rows for codes.

        Args:
            codes: shape ``(rows, columns)``.
            dates, end: columns in which no cell lies at this moment of the clock, or after it.
            rng: public randomness; of points. ``None``: where in its bins a row lies depends on its number, and on how
                full bins are, so it mostly stays there while the row stays; for places see :meth:`View.further`.
        """
        own = [rng or np.random.default_rng(list(column.name.encode())) for column in self.columns]
        cells = [column.decode(codes[:, i], own[i]) for i, column in enumerate(self.columns)]
        ends: Mapping[int, float] = {}
        if dates is not None and end is not None:
            cells, ends = dates.in_time(end, cells), dict.fromkeys(dates.columns, seconds_of(end))
        cells = agreeing(self.columns, codes, cells, ends)
        cells = ordered(self.columns, codes, cells, self.in_order) if self.in_order else cells
        cells = cells if self.region is None else self.region.placed(codes, cells, own[0])
        return pl.DataFrame([*cells, *(more for i in range(len(self.columns)) for more in self._further(i, codes))])

    def _further(self, i: int, codes: CodeArray) -> list[pl.Series]:
        """See :meth:`Column.further`; where a place has districts, within the row's own."""
        column = self.columns[i]
        if not isinstance(column, View):
            return []
        nth = list(self.places).index(column.place)
        found = column.further(codes[:, i], nth)
        if not found or column.place not in self.districts:
            return found
        within = self.districts[column.place]
        return within.placed(codes[:, self.names.index(within.name)], codes[:, i], found, nth)

    def to_json(self) -> str:
        """Canonical JSON."""
        return json.dumps([column.to_dict() for column in self.columns], sort_keys=True, ensure_ascii=False)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON, hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def ordered(
    columns: Sequence[Column], codes: CodeArray, cells: Sequence[pl.Series], pairs: Sequence[tuple[int, int]]
) -> list[pl.Series]:
    """The cells, moved within their bins so that of each pair the first is never above the second.

    Two cells in the wrong order are exchanged if each lies in the other's bin. Elsewhere the first is lowered, or the
    second raised, as little as it takes. Rows with a missing cell have no order.

    Args:
        codes: of the rows, which have bins in which that order is possible; shape ``(rows, columns)``.
        cells: of each column.
        pairs: with (a, b) and (b, c) also (a, c).

    Example:
        >>> from synthstream.schema.binned import Integer
        >>> both = [Integer(name=name, min=0, max=9, bins=2) for name in "ab"]
        >>> rows = [pl.Series("a", [4, 8]), pl.Series("b", [1, 9])]
        >>> [cell.to_list() for cell in ordered(both, np.array([[0, 0], [1, 1]]), rows, [(0, 1)])]
        [[1, 8], [4, 9]]
    """
    found, used = list(cells), sorted({c for pair in pairs for c in pair})
    bottoms, tops = dict[int, pl.Series](), dict[int, pl.Series]()
    for c in used:
        column = columns[c]
        if not isinstance(column, Binned):
            raise TypeError(f"column {column.name!r} has no order")
        bottoms[c], tops[c] = column.at(codes[:, c], np.zeros(len(codes))), column.at(codes[:, c], np.ones(len(codes)))
    for a, b in pairs:
        low, high = found[a], found[b]
        swap = ((low > high) & (high >= bottoms[a]) & (low <= tops[b])).fill_null(value=False)
        found[a], found[b] = low.zip_with(~swap, high), high.zip_with(~swap, low)
    for c in used:
        found[c] = _nearest(found[c], [tops[b] for a, b in pairs if a == c], lowest=True)
    lowered = list(found)
    for c in used:
        found[c] = _nearest(found[c], [lowered[a] for a, b in pairs if b == c], lowest=False)
    return [cell.alias(column.name) for cell, column in zip(found, columns, strict=True)]


def _nearest(cells: pl.Series, bounds: Sequence[pl.Series], *, lowest: bool) -> pl.Series:
    """The lowest or highest of the cells and some bounds, where a cell is known."""
    for bound in bounds:
        beyond = ((cells > bound) if lowest else (cells < bound)).fill_null(value=False)
        cells = cells.zip_with(~beyond, bound)
    return cells


def grid(schema: Schema, positions: Sequence[int]) -> pl.DataFrame:
    """One row per cell of the table of some columns, one at least: their names, and the labels of their codes.

    Of a place also where its cells begin and end, as ``lat from`` and ``lat to``; null for those without a place.
    """
    shape = tuple(schema.sizes[p] for p in positions)
    codes = np.indices(shape).reshape(len(shape), -1)
    frame = pl.DataFrame(
        {schema.names[p]: np.array(schema.labels[p])[code] for p, code in zip(positions, codes, strict=True)}
    )
    for p, code in zip(positions, codes, strict=True):
        frame = frame.with_columns(
            *(one for one in schema.columns[p].ends(code.astype(np.int32)) if one.name not in frame.columns)
        )
    return frame


@lru_cache(maxsize=8)
def cells(schema: Schema, workload: Workload) -> pl.DataFrame:
    """One row per cell of the workload: the names and labels of its columns, null where it has fewer columns.

    Columns: ``column_1, value_1, column_2, value_2, ...`` up to the largest number of columns in a marginal.
    """
    parts: list[pl.DataFrame] = []
    for marginal, shape in zip(workload.marginals, workload.shapes, strict=True):
        length = int(np.prod(shape, dtype=np.int64))
        codes = np.indices(shape).reshape(len(shape), length)
        data = {"column_1": pl.Series([None], dtype=pl.String), "value_1": pl.Series([None], dtype=pl.String)}
        for k, c in enumerate(marginal):
            data[f"column_{k + 1}"] = pl.Series([schema.names[c]]).new_from_index(0, length)
            data[f"value_{k + 1}"] = pl.Series(schema.labels[c], dtype=pl.String).gather(codes[k])
        parts.append(pl.DataFrame(data))
    return pl.concat(parts, how="diagonal")
