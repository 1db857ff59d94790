"""Old values onto new ones: all of each row goes somewhere, and tables and rows agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthstream.errors import ConfigError
from synthstream.schema.binned import Datetime, Integer, Number
from synthstream.schema.columns import Boolean, Category, Column
from synthstream.schema.districts import Districts
from synthstream.schema.mapping import SchemaMapping, mapping_of
from synthstream.schema.places import View
from synthstream.schema.schema import Schema
from synthstream.workload import FloatArray, Workload


def mapped(old: Column, new: Column, **said: str) -> FloatArray:
    mapping = mapping_of(Schema(columns=(old,)), Schema(columns=(new,)), values={old.name: said} if said else {})
    (share,) = mapping.shares
    assert share is not None
    assert share.shape == (old.size, new.size)
    assert np.allclose(share.sum(axis=1), 1.0)
    return share


def test_bins_are_divided_by_what_they_share_and_ends_are_clamped() -> None:
    age = Number(name="age", min=0, max=100, bins=4)
    assert mapped(age, Number(name="age", min=0, max=100, bins=2)).argmax(axis=1).tolist() == [0, 0, 1, 1, 2]
    thirds = mapped(age, Number(name="age", min=0, max=100, bins=3))
    assert thirds[1, :3].round(9).tolist() == [round(1 / 3, 9), round(2 / 3, 9), 0.0]
    longer = mapped(age, Number(name="age", min=50, max=150, bins=2))
    assert longer[:, 0].tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]
    folded = mapped(age, Number(name="age", min=0, max=100, bins=2, missing=0))
    assert folded[4].tolist() == [1.0, 0.0]
    pairs = mapped(Integer(name="n", min=1, max=3), Integer(name="n", min=1, max=4, bins=2))
    assert pairs[:3].argmax(axis=1).tolist() == [0, 0, 1]


def test_own_cells_keep_their_meaning() -> None:
    old = Category(name="z", values=("A", "B"))
    new = Category(name="z", values=("B", "C"), other="C")
    assert mapped(old, new, A="C").argmax(axis=1).tolist() == [1, 0, 1, 2]
    assert mapped(Boolean(name="b"), Boolean(name="b", missing=True)).argmax(axis=1).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Boolean(name="x"), Category(name="x", values=("true", "false"))),
        (Datetime(name="x", part="hour"), Datetime(name="x", part="month")),
        (Datetime(name="x", part="hour"), Integer(name="x", min=0, max=23)),
    ],
)
def test_another_kind_of_column_needs_another_name(old: Column, new: Column) -> None:
    with pytest.raises(ConfigError, match=r"columns\.x: this is another kind"):
        mapped(old, new)


def test_a_place_keeps_its_box_and_its_grids() -> None:
    def views(
        *depths: int, high: float = 8, crossed: tuple[str, ...] = (), coordinates: tuple[str, str] = ("x", "y")
    ) -> Schema:
        box: dict[str, Any] = {"coordinates": coordinates, "bounds": ((0, 8), (0, high)), "crossed": crossed}
        return Schema(columns=tuple(View(name=f"at_{n}", place="at", depth=n, **box) for n in depths))

    fewer = mapping_of(views(1, 2, 3), views(2, crossed=("kind",)))
    assert (fewer.places, fewer.exact) == ((1,), True)
    with pytest.raises(ConfigError, match="another kind of column than before"):
        mapping_of(views(1), views(1, high=9))
    assert mapping_of(views(1), views(1, coordinates=("lon", "lat"))).exact  # the same place, under other names
    with pytest.raises(ConfigError, match="another kind of column than before"):
        mapping_of(views(1), views(1, coordinates=("y", "x")))
    for finer in (views(1, 2, 3), views(3, 4)):
        with pytest.raises(ConfigError, match=r"columns\.at: a place keeps all of its grids"):
            mapping_of(views(1, 2), finer)


def test_districts_keep_their_box() -> None:
    def district(high: float) -> Schema:
        at = View(name="at_1", place="at", coordinates=("lon", "lat"), bounds=((0, 8), (0, high)), depth=1)
        ring = [[0, 0], [6, 0], [6, 6], [0, 0]]
        shape = {"type": "Feature", "properties": {"name": "a"}, "geometry": {"type": "Polygon", "coordinates": [ring]}}
        text = json.dumps({"type": "FeatureCollection", "features": [shape]})
        return Schema(columns=(Districts.read_file(text, "name", Path(), name="at_region", finest=at),))

    assert mapping_of(district(8), district(8)).exact
    with pytest.raises(ConfigError, match="another kind of column than before"):  # what lies above 8 was `other`
        mapping_of(district(8), district(9))


def test_rows_and_tables_of_rows_are_mapped_alike_whatever_the_order_of_columns() -> None:
    rng = np.random.default_rng(1)
    zone, age = Category(name="zone", values=("A", "B", "C")), Number(name="age", min=0, max=9, bins=3)
    old = Schema(columns=(zone, age, Boolean(name="gone")))
    new = Schema(columns=(age, Boolean(name="paid"), Category(name="zone", values=("D", "A"))))
    mapping = mapping_of(old, new, values={"zone": {"B": "D", "C": "D"}}, fill={"paid": "true"})
    assert mapping.exact
    codes = np.stack([rng.integers(size, size=500) for size in old.sizes], axis=1).astype(np.int32)
    rows = mapping.rows(codes, rng)
    before = Workload(sizes=old.sizes, marginals=((0, 1),)).count(codes).astype(np.float64)
    after = Workload(sizes=new.sizes, marginals=((0, 2),)).count(rows)
    assert mapping.before((0, 2)) == (0, 1)
    assert mapping.table((0, 2), before).tolist() == after.tolist()
    assert set(rows[:, 1].tolist()) == {1}
    assert isinstance(mapping, SchemaMapping)


def test_rows_of_a_bin_that_was_cut_lie_evenly() -> None:
    old, new = (Schema(columns=(Number(name="x", min=0, max=6, bins=bins),)) for bins in (2, 3))
    rows = mapping_of(old, new).rows(np.zeros((9000, 1), dtype=np.int32), np.random.default_rng(0))
    assert np.bincount(rows[:, 0], minlength=4) == pytest.approx([6000, 3000, 0, 0], abs=200)


def test_edges_and_logarithmic_bins_are_divided_on_their_own_scale() -> None:
    uneven = Number(name="x", min=0, max=100, bins=3, cuts=(0, 10, 50, 100))
    assert mapped(uneven, Number(name="x", min=0, max=100, bins=2))[:3].argmax(axis=1).tolist() == [0, 0, 1]
    ages, finer = (Integer(name="n", min=0, max=99, cuts=cuts) for cuts in ((0, 18, 65, 100), (0, 18, 30, 65, 100)))
    assert mapped(ages, finer)[1, :4] == pytest.approx([0, 12 / 47, 35 / 47, 0])
    decades = Number(name="m", min=1, max=10_000, bins=2, scale="log")
    halves = mapped(decades, Number(name="m", min=1, max=10_000, bins=4, scale="log"))
    assert halves[0, :4] == pytest.approx([0.5, 0.5, 0, 0])
    assert mapped(decades, Number(name="m", min=-5, max=20_000, bins=1))[:2, 0].tolist() == [1.0, 1.0]


def test_a_column_that_is_read_from_another_one_keeps_its_values() -> None:
    old, new = Category(name="d", values=("A", "B")), Category(name="d", values=("A", "B"), source="place")
    assert mapped(old, new).argmax(axis=1).tolist() == [0, 1, 2, 3]  # other and missing too
