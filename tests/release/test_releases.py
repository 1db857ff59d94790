"""Releases read from what was published: equal to those that were made, checked, sampled, compared and shown."""

from __future__ import annotations

import gc
import pickle
import shutil
from collections.abc import Callable
from copy import copy, deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import polars as pl
import pytest

import synthstream
from synthstream import Releases, Stream, StreamConfig
from synthstream.errors import ConfigError, NotReleased, RowsRepeat, SchemaError, SinkError, StateError
from synthstream.kernel.gate import Gate
from synthstream.publish.model import codes_of
from synthstream.release.points import PointRelease
from synthstream.release.tables import TableRelease
from synthstream.schema.binned import Number
from synthstream.schema.schema import Schema
from synthstream.stream.recovery import adopt
from synthstream.stream.verification import verify
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.gates import ExactGate
from tests.support.streams import KINDS, TICKS, configured, rows, text_of


def exact(tick: int) -> Gate:
    return ExactGate()


def seeded(tick: int) -> Gate:
    return SeededGate(f"releases/{tick}")


def released(folder: Path, kind: str, *, number: int = 400, gates: object = exact, extra: str = "") -> Releases:
    config = configured(folder, kind)
    if extra:
        config = StreamConfig.from_toml(
            text_of(kind).replace('path = "releases"\n', f'path = "releases"\n{extra}\n'), base=folder
        )
    rows(number, 1).write_parquet(folder / "rows-1.parquet")
    with Stream(config, gates=gates) as stream:  # type: ignore[arg-type]
        list(stream.run())
    return Releases(config)


# -- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.sparing(4, 9)
@pytest.mark.parametrize("lost", [False, True], ids=["whole", "lost"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_release_is_read_as_it_was_made(tmp_path: Path, kind: str, lost: bool) -> None:
    config = configured(tmp_path, kind, until="2026-01-05" if lost else "2026-01-09")
    rows(100, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        list(stream.run())
    if lost:
        shutil.rmtree(config.state)
        adopt(config)
        config = configured(tmp_path, kind)
        with Stream(config) as stream:
            list(stream.run())
    with Stream(config) as stream:
        made = stream.last
        assert made is not None
        shutil.rmtree(config.state)  # nothing private is needed
        found = Releases(config)
        read = found.last
        assert (len(found), read.tick, read.head, read.secure) == (TICKS, made.tick, made.head, made.secure)
        assert read.rows().equals(made.rows())
        assert read.tables.equals(made.tables)
        assert {**read.manifest(), "changed_rows": 0} == {**made.manifest(), "changed_rows": 0}
        if isinstance(made, TableRelease) and isinstance(read, TableRelease):
            pair = ["ward", next(name for name in made.schema.names if name != "ward")]
            for columns in (pair, ["ward"], []):
                assert read.table(columns).equals(made.table(columns))
            np.testing.assert_array_equal(read.model.codes, made.model.codes)
        if isinstance(made, PointRelease) and isinstance(read, PointRelease):
            box = {"x": 3}, {made.schema.names[-1]: 7}
            np.testing.assert_equal(read.mass(*box), made.mass(*box))
    assert [release.tick for release in found] == list(range(TICKS))


def test_by_tick_and_by_date(tmp_path: Path) -> None:
    found = released(tmp_path, "always")
    assert found.at(3).tick == 3
    assert found.at("2026-01-05").tick == 3  # ended just then
    assert found.at("2026-01-05T23:00:00").tick == 3
    assert found.at(datetime(2026, 1, 6)).tick == 4
    assert found.at("2030-01-01").tick == found.at(np.int64(7)).tick == 7
    with pytest.raises(TypeError, match=r"a date, .* not NoneType"):
        found.at(None)  # type: ignore[arg-type]
    with pytest.raises(NotReleased, match="the first one holds events before 2026-01-02"):
        found.at("2026-01-01T12:00:00")
    with pytest.raises(NotReleased, match="up to tick 7, none of tick 8"):
        found.at(8)
    with pytest.raises(ConfigError, match="is no date"):
        found.at("soon")


def test_what_is_of_another_type_is_refused_by_name(tmp_path: Path) -> None:
    found: Any = released(tmp_path, "always")
    asked: dict[str, Callable[[], object]] = {
        'where: a condition is a text, as in "age >= 60", not int': lambda: found.last.count(3),
        "where: a condition is a text, .* not Expr": lambda: found.last.rows(where=pl.col("x") > 6),
        "where: a condition is a text, .* not list": lambda: found.last.table("ward", where=["x > 6"]),
        r"table: columns are named by texts, .* not \[1\]": lambda: found.last.table([1]),
        "table: columns are named by texts, .* not None": lambda: found.last.table(None),
        r"series: takes the name of one column, as in .zone., not \['ward'\]": lambda: found.series(["ward"]),
        "rows: n must be a whole number of rows, not True": lambda: found.last.rows(True),
        "seed: must be a whole number, or a numpy.random.Generator, not str": lambda: found.last.rows(2, seed="x"),
        "takes a StreamConfig, not str; use synthstream.releases": lambda: Releases("releases"),  # type: ignore[arg-type]
        r"takes a number or a range, not 'a'; of a date: releases.at": lambda: found["a"],
        'a date, as in "2026-01-31", not bool': lambda: found.at(True),
        'a date, as in "2026-01-31", not float': lambda: found.between(1.0, 3),
    }
    for says, ask in asked.items():
        with pytest.raises(TypeError, match=says):
            ask()


def test_nothing_to_read(tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    assert len(Releases(config)) == 0
    with pytest.raises(NotReleased, match="no release yet"):
        _ = Releases(config).last
    with pytest.raises(NotReleased, match="no \\[sink\\]"):
        Releases(StreamConfig.from_toml(text_of("always").split("[sink]")[0] + _columns(), base=tmp_path))
    with Stream(config, gates=exact) as stream, pytest.raises(NotReleased, match="Nothing has been released yet"):
        stream.rows()


def _columns() -> str:
    return "[[columns]]" + text_of("always").split("[[columns]]", 1)[1]


def test_only_public_names_are_listed() -> None:
    assert {name for name in dir(synthstream) if not name.startswith("__")} == set(synthstream.__all__)
    assert {"__all__", "__doc__"} <= set(dir(synthstream))


def test_the_public_name_reads_a_file(tmp_path: Path) -> None:
    released(tmp_path, "always")
    assert synthstream.releases(tmp_path / "stream.toml").last.tick == 7
    with pytest.raises(NotReleased, match=r"releases-simulated holds no release yet.*run --simulate` makes them"):
        _ = synthstream.releases(str(tmp_path / "stream.toml"), simulate=True).last
    with pytest.raises(ConfigError, match=r"simulate belongs to a stream\.toml"):
        synthstream.releases(tmp_path / "releases", simulate=True)


@pytest.mark.parametrize("name", ["rows.parquet", "tables.parquet", "measured.parquet"])
def test_a_changed_file_is_refused(tmp_path: Path, name: str) -> None:
    found = released(tmp_path, "always")
    release = found.last
    path = tmp_path / "releases" / "000007" / name
    reads: dict[str, Callable[[], object]] = {
        "rows": lambda: release.rows(),
        "tables": lambda: release.tables,
        "measured": lambda: found.last,
    }
    pl.read_parquet(path).reverse().write_parquet(path)
    with pytest.raises(SinkError, match=f"{name} is not what was published"):
        reads[path.stem]()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 2.0", "epsilon = 3.0"),
        ('name = "always"', 'name = "other"'),
        ("bins = 4", "bins = 5"),
        ('every = "1d"', 'every = "1w"'),
    ],
)
def test_releases_of_another_configuration_are_refused(tmp_path: Path, old: str, new: str) -> None:
    released(tmp_path, "always")
    other = StreamConfig.from_toml(text_of("always").replace(old, new), base=tmp_path)
    with pytest.raises((SinkError, ValueError)) as caught:
        _ = Releases(other).last
    assert "were made with other settings" in str(caught.value)


def test_a_release_without_its_rows_still_has_tables(tmp_path: Path) -> None:
    found = released(tmp_path, "always", extra="keep = 2")
    old = found.at(2)
    with pytest.raises(SinkError, match="The rows of tick 2 were dropped"):
        old.rows()
    assert "were dropped" in old._repr_html_()
    assert old.table(["ward"])["count"].sum() == old.model.number
    assert found.last.compare(old, ["ward"]).height == 5
    assert len(found.at(7).rows()) == 400


def test_verify_misses_the_rows_of_a_release_that_should_have_them_still(tmp_path: Path) -> None:
    config = released(tmp_path, "always", extra="keep = 2").config
    assert verify(config).findings == []
    (tmp_path / "releases" / "000006" / "rows.parquet").unlink()
    assert [tuple(fault) for fault in verify(config).findings] == [("000006", "rows.parquet is missing")]


def test_a_fixed_number_of_rows_is_what_is_read(tmp_path: Path) -> None:
    found = released(tmp_path, "always", extra="rows = 7")
    assert found.last.rows().equals(pl.read_parquet(tmp_path / "releases/000007/rows.parquet"))
    assert len(found.last.rows()) == 7
    assert found.last.table(["ward"])["count"].sum() == 400


def test_codes_of_every_kind_of_column_are_found_again(tmp_path: Path) -> None:
    columns = """
    [[columns]]
    name = "c"
    type = "category"
    values = ["1", "2"]
    [[columns]]
    name = "folded"
    type = "category"
    values = ["missing", "b"]
    missing = "missing"
    other = "b"
    [[columns]]
    name = "flag"
    type = "boolean"
    [[columns]]
    name = "i"
    type = "integer"
    min = -5
    max = 6
    bins = 5
    [[columns]]
    name = "number"
    type = "number"
    min = 0.1
    max = 0.7
    bins = 7
    [[columns]]
    name = "hour"
    type = "datetime"
    part = "hour"
    [[columns]]
    name = "weekday"
    type = "datetime"
    part = "weekday"
    missing = 3
    [[columns]]
    name = "at"
    type = "datetime"
    min = 2026-01-01
    max = 2026-03-01
    bins = 7
    timezone = "America/Los_Angeles"
    """
    text = text_of("always").split("[[columns]]")[0] + columns
    schema = StreamConfig.from_toml(text, base=tmp_path).schema
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, size, 5000) for size in schema.sizes], axis=1).astype(np.int32)
    np.testing.assert_array_equal(codes_of(schema, schema.decode(codes, rng)), codes)
    assert codes_of(schema, schema.decode(codes[:0], rng)).shape == (0, 8)


# -- rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["always", "points"])
def test_rows_that_satisfy_a_condition(tmp_path: Path, kind: str) -> None:
    found = released(tmp_path, kind)
    with Stream(found.config, gates=exact) as stream:
        all_of_them = stream.rows(where="x > 2.5")
        made = stream.rows(30, where="x > 2.5", seed=np.random.default_rng(3))
    release = found.last
    assert release.rows(where="x > 2.5").equals(all_of_them)
    assert release.rows(30, where="x > 2.5", seed=np.random.default_rng(3)).equals(made)
    assert 0 < len(all_of_them) < 400
    assert all_of_them["x"].min() > 2.5  # type: ignore[operator]
    assert len(made) == made.unique().height == 30  # without repetition as far as there are enough
    assert made.join(all_of_them, on=made.columns, how="anti").is_empty()
    with pytest.warns(RowsRepeat, match=f"{len(all_of_them)} rows satisfy the condition, fewer than the 1,000"):
        many = release.rows(1000, where="x > 2.5")
    assert len(many) == 1000
    with pytest.warns(RowsRepeat):
        assert many.equals(release.rows(1000, where="x > 2.5"))
    none = release.rows(10, where="x > 2.5 AND x < 2.5")
    assert (none.height, none.columns) == (0, all_of_them.columns)
    with pytest.raises(ValueError, match="seed: must be at least 0, not -1"):
        release.rows(1, seed=-1)
    with pytest.raises(ValueError, match="n must be at least 0"):
        release.rows(-1)
    with pytest.raises(SchemaError, match="is not a column"):
        release.rows(10, where="z > 1")
    with pytest.raises(SchemaError, match="x > 100: no row can satisfy it"):
        release.rows(10, where="x > 100")


# -- tables and what has changed ----------------------------------------------------------------------------------


def test_tables_have_shares(tmp_path: Path) -> None:
    found = released(tmp_path, "always")
    table = found.last.table(["x", "ward"])
    assert table.columns == ["x", "ward", "count", "share", "measured", "stderr", "since", "measured_at"]
    assert table["share"].sum() == pytest.approx(1)
    assert (table["share"] * 400).to_list() == pytest.approx(table["count"].to_list())
    with pytest.raises(SchemaError, match="Did you mean 'ward'"):
        found.last.table(["Ward"])
    with pytest.raises(SchemaError, match=r"^table: 'wart' is not a column\. Did you mean 'ward'\? Columns are"):
        found.last.table(["wart"])


def test_the_share_of_all_rows_is_one(tmp_path: Path) -> None:
    answer = released(tmp_path, "always", number=49).last.table([]).row(0, named=True)
    assert (answer["count"], answer["share"]) == (49, 1.0)  # 49 * (1 / 49) is less


@pytest.mark.parametrize("n", ["5", "x > 2.5", 5.0])
def test_rows_takes_a_number_of_them(tmp_path: Path, n: Any) -> None:
    found = released(tmp_path, "always")
    with pytest.raises(TypeError, match=r"n must be a whole number of rows, not .*; a condition goes to where="):
        found.last.rows(n)
    assert found.last.rows(np.int64(5)).height == 5  # type: ignore[arg-type]


def test_shares_of_nothing_are_null(tmp_path: Path) -> None:
    table = released(tmp_path, "always", number=0).last.table(["ward"])
    assert table["share"].to_list() == [None] * 5
    assert table["count"].sum() == 0


def test_a_row_that_stays_is_published_as_it_was(tmp_path: Path) -> None:
    """Where in its bins it lies is not drawn anew: readers of changes see those of rows alone, and of few numbers that
    moved within their bins, as these became fuller or emptier."""
    (tmp_path / "x").mkdir()
    new = released(tmp_path / "x", "always", gates=seeded)
    one, other = (new[tick].rows() for tick in (-2, -1))
    schema, least = new.config.schema, min(one.height, other.height)
    stays = (schema.encode(one)[:least] == schema.encode(other)[:least]).all(axis=1)
    assert stays.mean() > 0.5
    before, after = one[:least].filter(stays), other[:least].filter(stays)
    assert before["ward"].equals(after["ward"])
    assert (
        0.9 < np.mean(before["x"].eq_missing(after["x"]).to_numpy()) < 1
    )  # of few rows; of many some in a thousand move
    assert one["x"].n_unique() > 100  # they fill their bins
    both = Schema(columns=(Number("a", min=0, max=1, bins=1), Number("b", min=0, max=1, bins=1)))
    places = both.decode(np.zeros((4000, 2), dtype=np.int32), None)
    assert abs(float(np.corrcoef(places["a"], places["b"])[0, 1])) < 0.06  # each column in its own way


def test_what_has_changed(tmp_path: Path) -> None:
    found = released(tmp_path, "always", gates=seeded)
    with Stream(found.config, gates=seeded) as stream:
        mechanism = stream.mechanism
    now, then = found.last, found.at(3)
    frame = now.compare(then, ["ward"])
    assert frame.columns == ["ward", "then", "now", "difference", "measured", "stderr", "z", "beyond_noise"]
    before, after = (dict(r.table(["ward"]).select("ward", "count").iter_rows()) for r in (then, now))
    for ward, old, new, difference in frame.select("ward", "then", "now", "difference").iter_rows():
        assert (old, new, difference) == (before[ward], after[ward], after[ward] - before[ward])
    place = mechanism.workload.marginals.index((0,))
    variance = mechanism.variance(7) + mechanism.variance(3) - 2 * mechanism.covariance(3, 7)
    assert frame["stderr"].to_list() == pytest.approx([np.sqrt(variance[place])] * 5)
    assert frame["z"].to_list() == pytest.approx((frame["measured"] / frame["stderr"]).to_list())
    assert frame["z"].abs().is_sorted(descending=True)
    everything = now.compare(then)
    assert everything.height == now.tables.height
    assert everything.columns[:4] == ["column_1", "value_1", "column_2", "value_2"]
    assert everything["z"].abs().is_sorted(descending=True)
    assert everything["beyond_noise"].to_list() == (everything["z"].abs() > 3).to_list()


def test_a_real_change_stands_out_and_none_does_not(tmp_path: Path) -> None:
    """About 200 events are added; noise of standard error 5 or so cannot hide them."""
    config = StreamConfig.from_toml(text_of("always").replace("epsilon = 2.0", "epsilon = 20.0"), base=tmp_path)
    only_a = rows(400, 1).with_columns(ward=pl.lit("A"))
    only_a.write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config, gates=seeded) as stream:
        list(stream.run())
    found = Releases(config)
    changed = dict(found.last.compare(found.at(3), ["ward"]).select("ward", "beyond_noise").iter_rows())
    assert changed == {"A": True, "B": False, "C": False, "other": False, "missing": False}


@pytest.mark.parametrize("kind", ["epochs", "selective", "stream-mwem"])
def test_tables_that_are_no_running_counts_have_no_error(tmp_path: Path, kind: str) -> None:
    found = released(tmp_path, kind, number=100)
    frame = found.last.compare(found.at(3), ["ward"])
    assert frame["z"].null_count() == frame.height
    assert frame["now"].sum() > frame["then"].sum()
    total = found.last.compare(found.at(3), [])
    assert (total["z"].null_count() == 0) == (kind != "stream-mwem")


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    found = released(tmp_path, "always")
    points = released(tmp_path / "points", "points")
    other = released(tmp_path / "other", "epochs")
    with pytest.raises(SchemaError, match="tick 7 is not earlier than tick 3"):
        found.at(3).compare(found.last)
    with pytest.raises(SchemaError, match="not releases of one stream"):
        found.last.compare(other.at(0))
    with pytest.raises(SchemaError, match="is compared with another one of its stream, not with a PointRelease"):
        found.last.compare(points.at(0))
    literal = released(tmp_path / "hypercube", "hypercube")
    with pytest.raises(SchemaError, match="ask each for the events in a box: mass"):
        literal.last.compare(literal.at(0))
    with pytest.raises(SchemaError, match="Did you mean 'ward'"):
        found.last.compare(found.at(0), ["wart"])
    with pytest.raises(TypeError, match=r"an earlier release, as of releases.at\(\.\.\.\), not int"):
        found.last.compare(3)  # type: ignore[arg-type]


# -- how it shows itself ------------------------------------------------------------------------------------------


@pytest.mark.sparing(3)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_printed_is_short(tmp_path: Path, kind: str) -> None:
    found = released(tmp_path, kind, number=60)
    with Stream(found.config, gates=exact) as stream:
        made = stream.last
        told = [stream.status()["spent"][0], *(() if made is None else (made.facts["claim"], made.manifest()["claim"]))]
    assert made is not None
    assert [claim["words"].count("NOT PRIVATE") for claim in told] == [1, 1, 1]
    for shown in (found, found.last, made, made.model, made.measured, found.last.model):
        assert len(repr(shown)) < 400
    assert "tick 7, events before 2026-01-09" in repr(made)
    assert "NOT PRIVATE" in repr(made)


def test_a_card_in_a_notebook(tmp_path: Path) -> None:
    found = released(tmp_path, "always")
    card = found.last._repr_html_()
    for words in (
        "always",
        "events before 2026-01-09",
        "400 synthetic rows",
        "With real noise: ",
        "<table",
        "NOT PRIVATE",
    ):
        assert words in card
    real = configured(tmp_path / "real", "always", until="2026-01-02")
    with Stream(real) as stream:
        assert "NOT PRIVATE" not in stream.release()._repr_html_()
        assert "1 releases of 12, events before 2026-01-02<" in stream._repr_html_()
    assert "closed" in stream._repr_html_()
    shown = synthstream.plan(real, rows=False)._repr_html_()
    assert ("a plan: nothing is spent" in shown, "stderr, one column" in shown) == (True, True)
    window = found.between("2026-01-03", "2026-01-05")
    assert "events from 2026-01-03 to before 2026-01-05" in window._repr_html_()


def test_a_card_runs_nothing(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    text = text_of("always").replace('"A", "B"', f'"{evil}", "B"').replace('name = "ward"', f'name = "{evil}"')
    text = text.replace('name = "always"', 'name = "<b>x"')
    config = StreamConfig.from_toml(text, base=tmp_path)
    frame = rows(50, 1).rename({"ward": evil}).with_columns(pl.lit(evil).alias(evil))
    frame.write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    card = Releases(config).last._repr_html_()
    assert "&lt;script&gt;" in card
    assert "<script>" not in card
    assert "<b>x" not in card


@pytest.mark.parametrize("kind", ["epochs", "points"])
def test_a_release_holds_what_is_public_alone(tmp_path: Path, kind: str) -> None:
    stream = Stream(configured(tmp_path, kind), gates=lambda _: ExactGate())
    stream.update(rows(200, 1))
    first, release = stream.release(), stream.release()
    assert release in [first, release]
    assert len({first, release, release}) == 2
    assert copy(release) is deepcopy(release) is release
    sent = pickle.loads(pickle.dumps(release))  # noqa: S301 - our own
    assert sent.rows().equals(release.rows())
    assert sent.tables.equals(release.tables)
    assert sent.manifest() == release.manifest()
    with pytest.raises(NotReleased, match="came from another process"):
        sent.compare(first)
    assert release.compare(first).height
    read = Releases(stream.config)
    assert read.last.rows().equals(release.rows())
    assert pickle.loads(pickle.dumps(read)).last.compare(first).equals(release.compare(first))  # noqa: S301 - our own
    state = ref(stream._store)
    del stream
    gc.collect()
    assert state() is None  # so no release leads to it
    if kind == "points":  # what came in between rests on other ticks
        with pytest.raises(StateError, match="was closed"):
            release.compare(first)
