"""Counts under a condition: what measured tables say of it, and when they cannot tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from synthstream import Releases, Stream, StreamConfig
from synthstream.errors import SchemaError
from synthstream.kernel.gate import Gate
from synthstream.measured import Measured
from synthstream.release.answers import answers, satisfied, sums, why_unmeasured
from synthstream.release.tables import TableRelease
from synthstream.schema.binned import Datetime, Integer, Number
from synthstream.schema.columns import Boolean, Category, Column
from synthstream.schema.comparisons import thresholds
from synthstream.schema.conditions import condition
from synthstream.schema.places import View
from synthstream.schema.schema import Schema
from synthstream.workload import CodeArray, Workload
from tests.support.gates import ExactGate
from tests.support.streams import configured, rows

SCHEMA = Schema(
    columns=(
        Category(name="zone", values=("A", "B", "C")),
        Integer(name="age", min=0, max=99, bins=10),
        Number(name="fare", min=-10.0, max=10.0, bins=4),
        Boolean(name="new"),
        Integer(name="year", min=2010, max=2015),
        Datetime(name="day", min=datetime(2026, 1, 1), max=datetime(2026, 2, 1), bins=31, timezone="UTC"),
        Datetime(name="hour", part="hour", timezone="UTC"),
    )
)
ORDER = 2


def exact(tick: int) -> Gate:
    return ExactGate()


def codes(number: int) -> CodeArray:
    rng = np.random.default_rng(5)
    return np.stack([rng.integers(0, size, number) for size in SCHEMA.sizes], axis=1).astype(np.int32)


def frame(number: int = 4000) -> pl.DataFrame:
    return SCHEMA.decode(codes(number), np.random.default_rng(6))


def test_the_number_of_all_events_is_that_of_the_best_table() -> None:
    workload = Workload(sizes=SCHEMA.sizes, marginals=((), (0,), (3,)))
    values = np.concatenate([[90.0], np.full(SCHEMA.sizes[0], 20.0), np.full(SCHEMA.sizes[3], 30.0)])
    known = Measured(tick=4, workload=workload, values=values, variance=np.array([400.0, 9.0, 100.0]))
    total = Workload(sizes=SCHEMA.sizes, marginals=((),))
    cells = SCHEMA.sizes[0]
    found = answers(SCHEMA, known, total, None)
    assert (found["measured"].item(), found["stderr"].item()) == (20.0 * cells, np.sqrt(9.0 * cells))
    late = replace(known, since=np.array([0, 3, 3]))  # the total alone counts all ticks
    assert answers(SCHEMA, late, total, None)["measured"].item() == 90.0


def test_a_boolean_is_true_or_false_alone() -> None:
    rows = frame()
    assert satisfied(rows, "new = 'true'", SCHEMA).sum() == satisfied(rows, "new", SCHEMA).sum() > 0
    for said in ("new = 'ja'", "'True' = new"):
        with pytest.raises(SchemaError, match=r"is none of the values of new.* Its values are false, true"):
            satisfied(rows, said, SCHEMA)


@pytest.mark.parametrize(
    ("columns", "where", "says"),
    [
        (["zone"], "fare > 0", "follow whole bins, as with >= the beginning of one. Those of fare are "),
        (["zone"], "fare >= 0", ""),
        (
            ["zone"],
            "age >= 60 AND new",
            "no table holds age, new, zone together; of some of them: age and zone, new and zone, age and new.",
        ),
        (["zone", "age", "new"], None, "no table holds age, new, zone together; of some of them: age and zone, "),
        (["zone"], "lat > 1", "no table tells lat by itself. Ask for a box, as in --box 'lat FROM TO'."),
        (["zone"], "day > TIMESTAMP '2026-01-15 01:00:00'", "Those of day are 2026-01-01T00:00:00, 2026-01-02T00:00"),
    ],
)
def test_why_nothing_measured_tells(columns: list[str], where: str | None, says: str) -> None:
    box: dict[str, Any] = {"coordinates": ("lat", "lon"), "bounds": ((0, 4), (0, 8)), "depth": 2}
    schema = Schema(columns=(*SCHEMA.columns, View(name="at_2", place="at", located=True, **box)))
    said = why_unmeasured(schema, Workload.all_up_to(ORDER, sizes=schema.sizes), columns, where)
    assert (says in said, bool(said)) == (True, bool(says))


def measured(found: pl.DataFrame) -> Measured:
    workload = Workload.all_up_to(ORDER, sizes=SCHEMA.sizes)
    values = workload.count(codes(found.height)).astype(np.float64)
    return Measured(tick=3, workload=workload, values=values, variance=np.linspace(1, 2, len(workload.marginals)))


@pytest.mark.parametrize(
    ("where", "cells"),
    [
        ("zone = 'A'", 1),
        ("zone IN ('A', 'C') AND new", 2),
        ("zone != 'A'", 3),  # and other; nothing is known of missing
        ("zone IS NULL", 1),
        ("age >= 60", 4),
        ("age < 20 OR age >= 90", 3),
        ("20 <= age AND NOT new", 8),
        ("age BETWEEN 30 AND 59", 3),
        ("age NOT BETWEEN 30 AND 59 AND zone LIKE 'A%'", 7),
        ("fare >= -5", 3),
        ("fare > -5.0 AND fare < -5.0", 0),
        ("year = 2012", 1),
        ("year IN (2012, 2014) AND zone = 'B'", 2),
        ("hour + 1 = 24", 1),
        ("day >= TIMESTAMP '2026-01-15 00:00:00'", 17),
        ("age IS NOT NULL", 10),
    ],
)
def test_sums_are_those_of_the_cells_that_lie_in_it(where: str, cells: int) -> None:
    found = frame()
    known = measured(found)
    answer = sums(SCHEMA, known, [], where)
    if "-5.0 AND" in where:
        assert answer is None  # two thresholds that are one: whether a single number lies there, nobody can tell
        return
    assert answer is not None
    assert answer.values.tolist() == [found.filter(condition(where, found.schema)).height]
    assert np.isclose(answer.variance / known.variance, cells).any()  # the error of so many cells of one table
    assert (answer.since, answer.measured_at) == (0, 3)


@pytest.mark.parametrize(
    "where",
    [
        "age >= 65",  # cuts a bin
        "age = 60",  # of a bin, one number
        "age BETWEEN 62 AND 63",
        "fare > 0.5 AND fare < 1",
        "fare * 2 > 0",
        "fare > age",
        "age >= 60 AND new AND zone = 'A'",  # three columns
        "day < TIMESTAMP '2026-01-15 12:00:00'",
    ],
)
def test_what_cuts_a_bin_or_no_table_holds_is_not_known(where: str) -> None:
    assert sums(SCHEMA, measured(frame(100)), [], where) is None


def test_no_condition_is_answered_wrongly() -> None:
    """Conditions made at random: every answer is the true count."""
    rng, found, answered = np.random.default_rng(3), frame(), 0
    known = measured(found)
    numbers: dict[str, list[float]] = {
        "age": [0, 10, 15, 60, 90, 99],
        "fare": [-10, -5, 0.25, 5],
        "year": [2010, 2012],
    }
    for _ in range(150):
        parts = []
        for name in rng.choice(list(numbers), rng.integers(1, 3)):
            a, b = rng.choice(np.array(numbers[name], dtype=object), 2)
            sign = rng.choice(["<", "<=", ">", ">=", "=", "!="])
            forms = [
                f"{name} {sign} {a}",
                f"{a} {sign} {name}",
                f"{name} BETWEEN {a} AND {b}",
                f"NOT {name} {sign} {b}",
                f"{name} IS NULL",
            ]
            parts.append(str(rng.choice(forms)))
        where = f" {rng.choice(['AND', 'OR'])} ".join(parts)
        try:
            answer = sums(SCHEMA, known, [0], where)
        except SchemaError:  # no row can satisfy it
            assert found.filter(condition(where, found.schema)).is_empty()
            continue
        if answer is not None:
            answered += 1
            inside = found.filter(condition(where, found.schema))
            assert answer.values.tolist() == np.bincount(SCHEMA.encode(inside)[:, 0], minlength=5).tolist(), where
    assert answered > 20


def test_thresholds_of_conditions() -> None:
    assert thresholds("age >= -5 AND zone = 'A'", ["age"]) == [-5]
    assert thresholds("age >= 60 AND NOT fare BETWEEN 5 AND 9.5", ["age", "fare"]) == [60, 5, 9.5]
    assert thresholds("age BETWEEN 1 AND fare", ["age", "fare"]) is None
    assert thresholds("age BETWEEN fare AND 1", ["age", "fare"]) is None
    assert thresholds("ABS(age) > 1", ["age"]) is None
    assert thresholds("age IN (1, 2)", ["age"]) is None
    assert thresholds("zone = 'A' AND year + 1 = 3", []) == [1, 3]


# -- releases -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> TableRelease:
    config: StreamConfig = configured(tmp_path_factory.mktemp("answers"), "always")
    rows(400, 1).write_parquet(config.base / "rows-1.parquet")
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    found = Releases(config).last
    assert isinstance(found, TableRelease)
    return found


def test_a_count_and_a_table_under_a_condition(release: TableRelease) -> None:
    true = rows(400, 1)
    count = release.count("ward = 'A' AND x < 5")
    assert count["measured"] == pytest.approx(true.filter(pl.col("ward") == "A", pl.col("x") < 5).height, abs=0.5)
    one = release.table(["ward", "x"])["stderr"][0]
    assert count["stderr"] == pytest.approx(one * np.sqrt(2))  # two of four bins
    assert count["share"] == pytest.approx(count["count"] / 400)
    table = release.table("ward", where="x < 5")
    expected = dict(true.filter(pl.col("x") < 5)["ward"].value_counts().iter_rows())
    for ward, rows_in, measured_in, stderr in table.select("ward", "count", "measured", "stderr").iter_rows():
        assert measured_in == pytest.approx(expected.get(ward, 0), abs=0.5)
        assert abs(rows_in - measured_in) < 30
        assert stderr == pytest.approx(one * np.sqrt(2))
    assert table["count"].sum() == release.rows(where="x < 5").height
    assert table["share"].sum() == pytest.approx(release.count("x < 5")["share"])  # of all rows, both of them


@pytest.mark.parametrize(
    ("columns", "where", "left"),
    [
        ("ward", "ward = 'A'", ["A"]),
        ("ward", "x < 5 AND ward IN ('A', 'B')", ["A", "B"]),
        ("ward", "x < 1 AND ward = 'A'", ["A", "B", "C", "other", "missing"]),  # within a bin nobody can tell
        (["x", "ward"], "ward = 'B' AND x < 5", ["B", "B"]),
        ("ward", "ward = 'A' AND ward = 'B'", []),
    ],
)
def test_cells_that_a_condition_excludes_are_left_out(
    release: TableRelease, columns: Any, where: str, left: list[str]
) -> None:
    table = release.table(columns, where=where)
    assert table["ward"].to_list() == left
    assert table["count"].sum() == release.rows(where=where).height
    assert not (table["stderr"] == 0).any()


def test_what_no_table_tells_has_a_count_alone(release: TableRelease) -> None:
    count = release.count("x < 1")
    assert count["count"] == release.rows(where="x < 1").height > 0
    assert (count["measured"], count["stderr"], count["since"]) == (None, None, None)


def test_a_lone_column_needs_no_list(release: TableRelease) -> None:
    assert release.table("ward").equals(release.table(["ward"]))
    with pytest.raises(SchemaError, match="Did you mean 'ward'"):
        release.table("wart")


def test_types_of_all_columns_are_covered() -> None:
    """A new type of column must say what a condition means for its cells."""
    assert {type(column) for column in SCHEMA.columns} == {Category, Boolean, Integer, Number, Datetime}
    assert all(isinstance(column, Column) for column in SCHEMA.columns)


# -- how noise moves rows -------------------------------------------------------------------------------------------


def test_model_error_is_how_far_refits_move_a_count(release: TableRelease) -> None:
    table = release.table(["ward", "x"], model_error=True)
    assert table.equals(release.table(["ward", "x"], model_error=True))  # always the same ones
    spread, noise = table["model_error"].to_numpy(), float(table["stderr"][0])
    assert (spread > 0).mean() > 0.5
    assert spread.max() < 5 * noise
    some = release.table("ward", where="x < 1", model_error=True)
    assert some["stderr"].null_count() == 5
    assert some["model_error"].null_count() == 0
    assert "model_error" not in release.table("ward").columns


@pytest.mark.parametrize("kind", ["epochs", "stream-mwem"])
def test_where_refits_are_not_known_the_model_error_is_null(tmp_path: Path, kind: str) -> None:
    config = configured(tmp_path, kind, until="2026-01-03")
    rows(100, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    assert Releases(config).last.table("ward", model_error=True)["model_error"].null_count() == 5
