"""Releases of a bounded population: weights in the file, events everywhere else."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.publish.describing import rows_fields
from synthstream.publish.published import Releases
from synthstream.release.rows import weight_name
from synthstream.release.tables import TableRelease
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.configs import AGE, SINK, WARD, stream_toml

TEXT = stream_toml(WARD, AGE, "[synthesizer]\npopulation = 1000\n", SINK, column=None, until=None)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> StreamConfig:
    config = StreamConfig.from_toml(TEXT, base=tmp_path_factory.mktemp("bounded"))
    rng = np.random.default_rng(0)
    with Stream(config, gates=lambda tick: SeededGate(tick)) as running:
        for number in (600, 5_000):
            running.update(pl.DataFrame({"ward": rng.choice(["A", "B"], number), "age": rng.uniform(0, 100, number)}))
            running.release()
    return config


def test_a_file_holds_each_row_once_with_its_weight(stream: StreamConfig) -> None:
    first, last = Releases(stream)
    files = [pl.read_parquet(stream.base / "releases" / f"{tick:06d}" / "rows.parquet") for tick in (0, 1)]
    assert files[0].columns == ["ward", "age"]
    assert files[1].height <= 1000
    assert files[1]["weight"].sum() == last.manifest()["rows"] == last.model.number
    assert last.manifest()["population"] == files[1].height
    assert "population" not in first.manifest()
    assert [f.name for f in rows_fields(stream, last.manifest())] == ["ward", "age", "weight"]


def test_answers_are_in_events(stream: StreamConfig) -> None:
    last = Releases(stream).last
    assert isinstance(last, TableRelease)
    number = last.model.number
    assert last.rows().height == number
    assert last.rows().columns == ["ward", "age"]
    assert last.table("ward")["count"].sum() == number
    young = last.count("age < 25")["count"]
    assert young == last.rows(where="age < 25").height
    assert last.rows(300, where="age < 25").height == 300
    assert last.rows(2 * number).height == 2 * number
    assert last.tables.filter(pl.col("column_1").is_null())["count"][0] == number


def test_a_release_is_built_again_from_what_was_measured(stream: StreamConfig) -> None:
    with Stream(stream, gates=lambda tick: SeededGate(tick)) as again:
        assert again.last is not None
        published = Releases(stream).last
        assert again.last.rows().equals(published.rows())
        assert again.last.published.equals(published.published)


def test_a_column_of_that_name_keeps_it() -> None:
    config = StreamConfig.from_toml(TEXT.replace('"ward"', '"weight"'))
    assert weight_name(config.schema) == "weight of the row"
