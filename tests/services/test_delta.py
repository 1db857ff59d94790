"""A Delta table as a source: its rows count once each, and running tables are those of the table itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.environment import Env
from synthstream.errors import ConfigError, SchemaError, SourceError
from synthstream.ingest.delta import DeltaSource
from synthstream.testing.environments import Interrupting, When
from synthstream.testing.gates import ExactGate
from tests.services.feeds import TOML, Reader

KEPT = {"delta.enableChangeDataFeed": "true"}


class Later(Env):
    """Two days from now: whatever was written is over."""

    def now(self) -> datetime:
        """See :class:`Env`."""
        return datetime.now(UTC) + timedelta(days=2)


def put(place: Path, values: Sequence[int], **more: Any) -> None:
    rows = pl.DataFrame({"n": values, "seen": [datetime.now(UTC)] * len(values), "secret": "CANARY"})
    deltalake.write_deltalake(place, rows.to_arrow(), mode="append", **more)


def configured(folder: Path, *, changes: bool) -> StreamConfig:
    source = 'kind = "delta"\npath = "lake"' + "\nchanges = true" * changes
    text = 'op = "op"\n' * changes + TOML.format(unit='"event"', most=9, horizon=30, source=source)
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    return StreamConfig.from_toml(text.replace("2026-01-01", yesterday), base=folder)


def counted(config: StreamConfig) -> Counter[str]:
    """The running table, once all that is there was counted and every tick closed."""
    with Stream(config, gates=lambda tick: ExactGate(), env=Later()) as stream:
        stream.ingest()
        while stream.due():
            stream.release()
        table = stream.table(["n"])
    return Counter({str(n): int(m) for n, m in zip(table["n"], table["measured"], strict=True)})


def test_versions_are_read_on_and_compaction_adds_nothing(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    put(lake, [1, 2], partition_by=["n"])  # before it kept changes
    deltalake.DeltaTable(lake).alter.set_table_properties(KEPT)
    reader = Reader(DeltaSource(path=str(lake), name="delta lake", columns=["n"]))
    put(lake, [3, 3])
    assert sorted(reader.more()) == [1, 2, 3, 3]
    assert reader.more() == []
    put(lake, [4])
    deltalake.DeltaTable(lake).optimize.compact()
    put(lake, [5, 6])
    deltalake.DeltaTable(lake).delete("n = 5")
    assert sorted(reader.more()) == [4, 5, 6]
    assert reader.more() == []


def test_running_tables_are_those_of_the_table(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    put(lake, [1, 2, 2, 3], configuration=KEPT)
    config = configured(tmp_path, changes=True)
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        stream.ingest()
    put(lake, [5, 5, 6])
    deltalake.DeltaTable(lake).delete("n = 2")
    deltalake.DeltaTable(lake).update(updates={"n": "7"}, predicate="n = 5")
    assert +counted(config) == Counter({"1": 1, "3": 1, "6": 1, "7": 2})


@pytest.mark.sparing(3)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3, 5, 8])
def test_what_ends_anywhere_counts_each_change_once(tmp_path: Path, number: int, when: When) -> None:
    lake = tmp_path / "lake"
    put(lake, [1, 2], configuration=KEPT, partition_by=["n"])  # a file for each value
    put(lake, [3, 4])
    config = configured(tmp_path, changes=True)
    ending = Interrupting(_stop, at="commit counts", number=number, when=when)
    ends = [_ended(config, ending)]
    put(lake, [5])
    deltalake.DeltaTable(lake).delete("n = 1")
    ends.append(_ended(config, ending))
    assert sum(ends) == 1
    assert +counted(config) == Counter({"2": 1, "3": 1, "4": 1, "5": 1})


def _stop() -> None:
    raise KeyboardInterrupt


def _ended(config: StreamConfig, env: Env) -> bool:
    """Whether counting ended before all was counted."""
    with Stream(config, gates=lambda tick: ExactGate(), env=env) as stream:
        try:
            stream.ingest()
        except KeyboardInterrupt:
            return True
    return False


def test_what_cannot_be_read_on_is_told_without_a_cell(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    source = DeltaSource(path=str(lake), name="delta lake", columns=["n", "seen"])
    with pytest.raises(SourceError, match=r"delta lake: cannot be opened \(TableNotFoundError\)"):
        source.look()
    put(lake, [1])
    with pytest.raises(SourceError, match=r"keeps no change data.*enableChangeDataFeed"):
        source.look()
    deltalake.DeltaTable(lake).alter.set_table_properties(KEPT)
    ((_, after),) = source.read(None)
    put(lake, [2])
    put(lake, [3])
    with pytest.raises(SchemaError, match=r"delta lake: .*'other'"):
        DeltaSource(path=str(lake), name="delta lake", columns=["other"]).look()
    (lake / "_delta_log" / f"{2:020}.json").rename(tmp_path / "lost")
    with pytest.raises(SourceError) as error:
        list(source.read(after))
    assert "CANARY" not in str(error.value)
    put(other := tmp_path / "other", [1], configuration=KEPT)
    with pytest.raises(SourceError, match="is from another log"):
        list(DeltaSource(path=str(other), name="delta other", columns=["n"]).read(after))


def test_changes_need_an_op_column_and_cannot_come_later(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="changes of a table take rows away, too"):
        StreamConfig.from_toml(
            TOML.format(unit='"event"', most=9, horizon=30, source='kind = "delta"\npath = "x"\nchanges = true')
        )
    first, then = (configured(tmp_path, changes=changes) for changes in (True, False))
    assert json.loads(first.public_json())["source.changes"] is True
    assert "source.changes" not in json.loads(then.public_json())
