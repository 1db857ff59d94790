"""Requests to take rows away that come without times, or seem to: none is taken for one unless it surely is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.errors import SchemaError
from tests.support.environments import At
from tests.support.visits import TOML, exact, finish, total, visits

OP = TOML.replace("[privacy]", 'op = "op"\n[privacy]')


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    config = StreamConfig.from_toml(OP, base=tmp_path)
    return Stream(config, gates=exact, env=At(datetime(2026, 1, 9, tzinfo=UTC)))


def indexed(name: Any) -> pd.DataFrame:
    frame: pd.DataFrame = visits([5, 6]).to_pandas().set_index("when").rename_axis(name)
    return frame


WITHOUT = visits([5, 6]).drop("when")
SPELLINGS: dict[str, tuple[Callable[[], Any], str]] = {
    "misspelt": (lambda: visits([5, 6]).rename({"when": "wen"}), "of the stream: 'wen'.* call them 'when'; if"),
    "another name": (lambda: visits([5, 6]).rename({"when": "time"}).to_arrow(), "no columns of the stream: 'time'"),
    "two unknown": (lambda: WITHOUT.with_columns(a=1, b=2).to_pandas(), "no columns of the stream: 'a', 'b'"),
    "index": (lambda: indexed(None), r"frame has an index.*'when' after .reset_index\(\).*drop=True"),
    "named index": (lambda: indexed("time"), r"'time'.*'when' after .reset_index\(\)"),
    "levels": (lambda: visits([5, 6]).to_pandas().set_index(["when"], append=True).rename_axis([None, "t"]), "'t'"),
    "levels without names": (
        lambda: visits([5, 6]).to_pandas().set_index(["when"], append=True).rename_axis([None, None]),
        "has an index",
    ),
    "periods": (lambda: WITHOUT.to_pandas().set_index(pd.period_range("2026-01-05", periods=2)), "has an index"),
    "texts": (lambda: WITHOUT.to_pandas().set_index(pd.Index(["2026-01-05", "2026-01-06"])), "has an index"),
    "numbers with a name": (lambda: WITHOUT.to_pandas().rename_axis("n"), "'n'"),
    "zones": (lambda: WITHOUT.to_pandas().set_index(pd.date_range("2026-01-05", periods=2, tz="UTC")), "has an index"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_times_under_another_name_are_not_taken_for_none(stream: Stream, spelling: str) -> None:
    make, words = SPELLINGS[spelling]
    with stream:
        with pytest.raises(SchemaError, match=rf"^column 'when' is missing, and .*{words}"):
            stream.corrections.forget(make(), request="R1")
        stream.corrections.forget(visits([5]), request="R1")  # the id is free
        assert round(total(finish(stream))) == -1


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_with_times_under_another_name_are_refused(stream: Stream, tmp_path: Path, ending: str) -> None:
    path, frame = tmp_path / f"request.{ending}", visits([5]).rename({"when": "wen"})
    with stream:
        getattr(frame, f"write_{ending}")(path)
        with pytest.raises(SchemaError, match="no columns of the stream: 'wen'"):
            stream.corrections.forget(path, request="R1")
        indexed(None).to_parquet(tmp_path / "frame.parquet")
        with pytest.raises(SchemaError, match="no columns of the stream: '__index_level_0__'"):
            stream.corrections.forget(tmp_path / "frame.parquet", request="R1")
        (tmp_path / "rows.csv").write_text("2026-01-05,somebody,30\n2026-01-05,A,30\n")  # no header at all
        with pytest.raises(SchemaError, match="'ward', 'age' are missing") as refused:
            stream.corrections.forget(tmp_path / "rows.csv", request="R1")
        assert "somebody" not in str(refused.value)
        assert round(total(finish(stream))) == 0


@pytest.mark.parametrize(
    "rows",
    [
        WITHOUT,
        WITHOUT.with_columns(op=1),  # which the stream knows
        WITHOUT.to_pandas(),
        pl.concat([WITHOUT, WITHOUT]).to_pandas().iloc[[1, 3]],  # as a filter leaves it
        WITHOUT.to_arrow(),
    ],
    ids=["polars", "op", "pandas", "filtered", "arrow"],
)
def test_what_has_no_times_at_all_is_taken(stream: Stream, rows: Any) -> None:
    with stream:
        stream.corrections.forget(rows, request="R1")
        assert round(total(finish(stream))) == -2
