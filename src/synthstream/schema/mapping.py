"""What becomes of a stream's old values where a successor has other columns: public, and found in no row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from synthstream.errors import ConfigError
from synthstream.schema.binned import Binned, Datetime
from synthstream.schema.columns import MISSING, OTHER, Boolean, Category, Column
from synthstream.schema.conditions import first
from synthstream.schema.districts import Districts
from synthstream.schema.places import View
from synthstream.schema.schema import Schema
from synthstream.workload import CodeArray, FloatArray

# Bins whose ends differ by less than this share of a bin have the same ends.
_SAME = 1e-9


@dataclass(frozen=True, kw_only=True)
class SchemaMapping:
    """Old codes onto new ones, column by column.

    Args:
        places: for each new column, the position of the old one of its name; ``None`` if there was none: until the
            cut it was not recorded.
        shares: for each new column that was there, shape ``(old size, new size)``: which share of a code's rows has
            which new code. Rows sum to 1. Where a bin was cut, its rows are taken to lie evenly in it.
        fills: for each new column, the code of rows from before it was recorded.

    Example:
        >>> old = Schema(columns=(Category(name="zone", values=("A", "B", "C")),))
        >>> new = Schema(columns=(Category(name="zone", values=("A", "D")), Boolean(name="paid")))
        >>> mapping = mapping_of(old, new, values={"zone": {"B": "D", "C": "D"}})
        >>> mapping.rows(np.array([[0], [2]], dtype=np.int32), np.random.default_rng(0)).tolist()
        [[0, 2], [1, 2]]
        >>> mapping.table((0,), np.array([5.0, 2.0, 3.0, 0.0, 1.0])).tolist(), mapping.before((0, 1))
        ([5.0, 5.0, 0.0, 1.0], None)
    """

    places: tuple[int | None, ...]
    shares: tuple[FloatArray | None, ...]
    fills: tuple[int, ...]

    @cached_property
    def exact(self) -> bool:
        """Whether each old code becomes one new code."""
        return all(share is None or bool(np.isin(share, (0.0, 1.0)).all()) for share in self.shares)

    def before(self, marginal: tuple[int, ...]) -> tuple[int, ...] | None:
        """The old columns of a new table, in order; ``None`` if one of its columns was not recorded."""
        found = [self.places[column] for column in marginal]
        return None if None in found else tuple(sorted(place for place in found if place is not None))

    def table(self, marginal: tuple[int, ...], values: FloatArray, *, power: int = 1) -> FloatArray:
        """The cells of a new table from those of the old table of the same columns, shape ``(cells,)``.

        Args:
            values: of the old cells.
            power: 2 for variances of independent cells.
        """
        old = self.before(marginal) or ()
        shares = {place: share for place, share in zip(self.places, self.shares, strict=True) if share is not None}
        found = values.reshape([len(shares[place]) for place in old])
        for axis, place in enumerate(old):
            found = np.moveaxis(np.tensordot(found, shares[place] ** power, axes=(axis, 0)), -1, axis)
        order = [old.index(place) for place in map(self.places.__getitem__, marginal) if place is not None]
        return np.ascontiguousarray(np.transpose(found, order)).reshape(-1)

    def rows(self, codes: CodeArray, rng: np.random.Generator) -> CodeArray:
        """New codes of old rows, int32, shape ``(rows, columns)``; ``rng`` decides where a bin was cut."""
        found = np.empty((len(codes), len(self.places)), dtype=np.int32)
        for column, (place, share, fill) in enumerate(zip(self.places, self.shares, self.fills, strict=True)):
            if place is None or share is None:
                found[:, column] = fill
                continue
            old = codes[:, place].astype(np.int64)
            found[:, column] = share.argmax(axis=1)[old]
            for code in np.flatnonzero(share.max(axis=1) < 1.0):
                here = np.flatnonzero(old == code)
                ends = np.cumsum(share[code])
                found[here, column] = np.minimum(
                    np.searchsorted(ends, rng.random(here.size), "right"), share.shape[1] - 1
                )
        return found


def mapping_of(
    old: Schema,
    new: Schema,
    *,
    values: Mapping[str, Mapping[str, str]] | None = None,
    fill: Mapping[str, str] | None = None,
) -> SchemaMapping:
    """The mapping between two schemas.

    Args:
        values: by column: new labels of old ones; an old value that is not named keeps its name.
        fill: by new column: the label of rows from before it was recorded; left out: missing.

    Raises:
        ConfigError: an old value has no place, or what is said fits no column.
    """
    values, fill = values or {}, fill or {}
    for key, said in {"values": values, "fill": fill}.items():
        known = [n for n in new.names if (n in old.names) == (key == "values")]
        for name in said:
            if name not in known:
                which = "a column that both streams have" if key == "values" else "a new column"
                raise ConfigError(f"after.{key}: {name!r} is not {which}; those are {', '.join(known) or 'none'}")
    places = tuple(old.names.index(name) if name in old.names else None for name in new.names)
    for name, views in new.places.items():
        if name in old.places and None in [places[view] for view in views]:
            raise ConfigError(
                f"columns.{name}: a place keeps all of its grids: say depth and views as before, or fewer. For "
                "a finer one, give it another name: it is then a new column, and the old one ends"
            )
    shares = tuple(
        None if place is None else _shares(old.columns[place], column, values.get(column.name, {}))
        for place, column in zip(places, new.columns, strict=True)
    )
    for column in new.columns:
        if (label := fill.get(column.name)) is not None and label not in column.labels:
            some = first(column.labels)
            raise ConfigError(f"after.fill: {label!r} is no value of {column.name!r}; say one of {some}")
    fills = [c.labels.index(fill[c.name]) if c.name in fill else _missing(c) for c in new.columns]
    return SchemaMapping(places=places, shares=shares, fills=tuple(fills))


def _missing(column: Column) -> int:
    return int(column.encode(pl.Series([None], dtype=pl.String))[0])


def _shares(old: Column, new: Column, said: Mapping[str, str]) -> FloatArray:
    if old.to_dict() == new.to_dict() and not said:
        return np.eye(old.size)
    if isinstance(old, Binned) and isinstance(new, Binned) and _scale(old) == _scale(new) and not said:
        return _overlaps(old, new)
    moved = False
    if isinstance(old, View) and isinstance(new, View):
        moved = old.depth != new.depth or _another_box(old, new)
    if isinstance(old, Districts) and isinstance(new, Districts):
        moved = old.text != new.text or _another_box(old.finest, new.finest)
    if type(old) is not type(new) or not isinstance(old, Category | Boolean) or moved:
        raise ConfigError(
            f"columns.{_key(old, new)}: this is another kind of column than before, and old values have no place in "
            "it. Give it another name: it is then a new column, and the old one ends"
        )
    unknown = [label for label in said if label not in old.labels]
    if unknown:
        raise ConfigError(f"after.values.{new.name}: {unknown[0]!r} was no value; those were {first(old.labels)}")
    found = np.zeros((old.size, new.size))
    for code, label in enumerate(old.labels):
        found[code, _new_code(old, new, code, said.get(label))] = 1.0
    return found


def _another_box(old: View, new: View) -> bool:
    """Whether a place has other bounds, or its coordinates in another order; other names for them are no other box."""
    turned = old.coordinates != new.coordinates and {*old.coordinates} == {*new.coordinates}
    return turned or old.bounds != new.bounds


def _new_code(old: Column, new: Column, code: int, said: str | None) -> int:
    label, own = old.labels[code], code >= len(old.value_labels)
    if said is None and own:
        fold = getattr(new, OTHER, None) or OTHER if label == OTHER else None
        return _missing(new) if fold is None else new.labels.index(fold)
    said = label if said is None else said
    if said not in new.labels:
        raise ConfigError(
            f"after.values.{new.name}: the old value {label!r} has no place: {said!r} is no new value. Say which one "
            f"its rows count as, one of {first(new.labels)}"
        )
    return new.labels.index(said)


def _scale(column: Binned) -> object:
    """What numbers its bins cut: numbers as such, a part of times, or times on the wall clock of a zone."""
    return (column.part or column.timezone, column.part is None) if isinstance(column, Datetime) else None


def _overlaps(old: Binned, new: Binned) -> FloatArray:
    """Shares of the new bins in each old one; what lies beyond the new range is clamped to its ends.

    Rows are taken to lie evenly in a bin, on a logarithmic scale if that is the old column's. Where they were published
    within it was a guess, and says nothing of what was counted.
    """
    a, b = np.array(old.edges), np.array(new.edges)
    if old.type == "number" and getattr(old, "scale", None) == "log":
        a, b = np.log(a), np.log(np.maximum(b, np.finfo(np.float64).tiny))
    b[0], b[-1] = -np.inf, np.inf
    low = np.maximum(a[:-1, None], b[None, :-1])
    share = np.clip(np.minimum(a[1:, None], b[None, 1:]) - low, 0.0, None) / np.diff(a)[:, None]
    share[share < _SAME] = 0.0
    found = np.zeros((old.size, new.size))
    found[: len(share), : share.shape[1]] = share / share.sum(axis=1, keepdims=True)
    if MISSING in old.own_cells:
        found[-1, _missing(new)] = 1.0
    return found


def _key(old: Column, new: Column) -> str:
    """What settings call a column that differs: columns of a place are made from one section."""
    if isinstance(old, Districts):
        same = isinstance(new, Districts) and old.text == new.text
        return old.place if same else f"{old.place}.regions"
    return old.place if isinstance(old, View) else new.name
