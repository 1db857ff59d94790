"""A Delta table as a source: its rows count once each, whatever stands in them; its log is followed by version."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from synthstream import Stream, StreamConfig
from synthstream.config.sources import DeltaConfig
from synthstream.environment import Env
from synthstream.errors import SchemaError, SourceError
from synthstream.ingest.counting import encode
from synthstream.ingest.delta import DeltaSource
from tests.services.feeds import TOML, Reader, commit, counted
from tests.services.objects import Store
from tests.support.environments import Interrupting, When
from tests.support.gates import ExactGate

KEPT = {"delta.appendOnly": "true"}


def put(place: Path, values: Sequence[Any], configuration: Mapping[str, str] | None = KEPT, **more: Any) -> None:
    rows = pa.table({"n": values, "seen": [datetime.now(UTC)] * len(values), "secret": ["CANARY"] * len(values)})
    deltalake.write_deltalake(str(place), rows, mode="append", configuration=configuration, **more)


def of(place: Path, *columns: str) -> DeltaSource:
    return DeltaSource(DeltaConfig(kind="delta", path=place), columns or ("n",))


def test_versions_are_read_on_and_what_lays_rows_out_anew_adds_nothing(tmp_path: Path) -> None:
    put(lake := tmp_path / "lake", [1, 2])
    reader = Reader(of(lake))
    put(lake, [3, 3])
    assert sorted(reader.more()) == [1, 2, 3, 3]
    assert reader.more() == []
    put(lake, [4])
    deltalake.DeltaTable(lake).optimize.compact()
    put(lake, [5, 6])
    assert reader.more() == [4, 5, 6]
    assert sorted(Reader(of(lake)).more()) == [1, 2, 3, 3, 4, 5, 6]  # from the laid out files


def test_a_log_that_begins_with_a_checkpoint_is_read_from_there(tmp_path: Path) -> None:
    put(lake := tmp_path / "lake", [1, 2, 2], partition_by=["n"])
    put(lake, [3])
    table = deltalake.DeltaTable(lake)
    table.create_checkpoint()
    commit(lake, 0).unlink()
    reader = Reader(of(lake))
    put(lake, [4])
    assert sorted(reader.more()) == ["1", "2", "2", "3", "4"]
    put(lake, [5])
    put(lake, [6])
    commit(lake, 3).unlink()
    with pytest.raises(SourceError, match=r"its version 3 is no longer kept, .*succeed --read-again"):
        reader.more()


# What cells of a partition may hold: the log has them as text, and names of folders in their own way.
ODD = ["a b", "a/b", "a%20b", "\u00e4=\u2028", "50%", "..", "'\"\\", ":", "a\tb", "#?&;"]


def test_values_of_partitions_are_read_whatever_they_are(tmp_path: Path) -> None:
    values = [*ODD, None, "", "plain"]
    put(lake := tmp_path / "lake", values, partition_by=["n"])
    first, reader = Reader(of(lake)), Reader(of(lake))
    whole = Counter(value or None for value in values)
    assert Counter(first.more()) == whole
    deltalake.DeltaTable(lake).create_checkpoint()
    assert Counter(reader.more()) == whole
    put(lake, values)
    assert Counter(reader.more()) == whole


def test_a_partition_of_text_that_is_no_text_is_replaced(tmp_path: Path) -> None:
    """A writer may put any bytes into its log: no cell keeps a version from being read."""
    put(lake := tmp_path / "lake", ["x", "y"], partition_by=["n"])
    for spoiled in (b"\\ud800", b"\xff"):
        log = commit(lake, 0)
        log.write_bytes(log.read_bytes().replace(b'{"n":"x"}', b'{"n":"' + spoiled + b'"}'))
        found = Reader(of(lake)).more()
        assert len(found) == 2
        assert "y" in found
        log.write_bytes(log.read_bytes().replace(b'{"n":"' + spoiled + b'"}', b'{"n":"x"}'))


@pytest.mark.parametrize("kind", ["text that is not UTF-8", "a time beyond all times", "a number that is none"])
def test_no_cell_keeps_another_row_from_being_read(tmp_path: Path, kind: str) -> None:
    """The same table in two worlds: with one hostile cell, and with a plain one."""
    cells: dict[str, tuple[pa.Array, pa.Array]] = {
        "text that is not UTF-8": tuple(
            pa.array([b"1", b"2", odd], pa.binary()).view(pa.string()) for odd in (b"3", b"\xff\xfe")
        ),
        "a time beyond all times": tuple(
            pa.array([1, 2, odd], pa.int64()).view(pa.timestamp("us", "UTC")) for odd in (3, 2**63 - 1)
        ),
        "a number that is none": tuple(pa.array([1.0, 2.0, odd]) for odd in (3.0, float("nan"))),
    }
    found = []
    for world, column in enumerate(cells[kind]):
        lake = tmp_path / str(world)
        deltalake.write_deltalake(str(lake), pa.table({"n": column, "who": ["a", "b", "c"]}), configuration=KEPT)
        put_rows = pa.table({"n": column, "who": ["d", "e", "f"]})
        reader = Reader(of(lake, "who", "n"))
        reader.more()
        deltalake.write_deltalake(str(lake), put_rows, mode="append")
        found.append(reader.more())
    assert found == [["d", "e", "f"]] * 2


def configured(folder: Path, unit: str = '"event"', *, start: str | None = None, more: str = "") -> StreamConfig:
    text = TOML.format(unit=unit, most=9, horizon=30, source='kind = "delta"\npath = "lake"')
    start = start or (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
    return StreamConfig.from_toml(text.replace("start = 2026-01-01", f"start = {start}\n{more}"), base=folder)


def test_partitions_and_cells_count_alike(tmp_path: Path) -> None:
    tables = []
    for partitioned in ([], ["n"], ["n", "seen"]):
        folder = tmp_path / str(len(partitioned))
        folder.mkdir()
        put(folder / "lake", [1, 2, 2, None, 7], partition_by=partitioned or None)
        tables.append(counted(configured(folder)))
    assert tables[0] == {"1": 1, "2": 2, "7": 1, "missing": 1}
    assert tables == [tables[0]] * 3


def test_a_file_of_which_only_partitions_are_read_comes_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synthstream.ingest.delta.CHUNK_ROWS", 2)
    put(lake := tmp_path / "lake", [7] * 5, partition_by=["n"])
    source = of(lake)
    found = [(frame.to_series().to_list(), after) for frame, after in source.read(None)]
    assert [cells for cells, _ in found] == [["7", "7"], ["7", "7"], ["7"], []]
    assert [frame.height for frame, _ in source.read(found[1][1])] == [1, 0]


@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_of_a_partition_are_what_the_table_says_they_are(tmp_path: Path, zone: str | None) -> None:
    """An instant is in UTC wherever the clock is; a time without a zone is on the clock's own wall."""
    days = []
    for partitioned in (None, ["seen"]):
        (folder := tmp_path / ("whole" if partitioned is None else "parts")).mkdir()
        times = pa.array([datetime(2026, 1, 3, 4, 30), datetime(2026, 1, 5, 23, 30, 0, 5)], pa.timestamp("us", zone))
        rows = pa.table({"n": [1, 2], "seen": times})
        deltalake.write_deltalake(str(folder / "lake"), rows, partition_by=partitioned, configuration=KEPT)
        config = configured(folder, start="2026-01-01", more='timezone = "America/Los_Angeles"')
        frames = (frame for frame, _ in of(folder / "lake", "seen", "n").read(None) if frame.height)
        days.append(sorted(day for frame in frames for day in encode(config, frame).ticks.tolist()))
    assert days == [[1, 4] if zone else [2, 4]] * 2


def test_days_of_a_partition_are_times(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2, 3], "seen": [date.today()] * 3})
    deltalake.write_deltalake(str(tmp_path / "lake"), rows, partition_by=["seen"], configuration=KEPT)
    assert counted(configured(tmp_path)) == {"1": 1, "2": 1, "3": 1}


def test_a_person_whose_key_is_not_text_is_a_person(tmp_path: Path) -> None:
    keys = pa.array([b"p", b"p", b"\xff", b"\xfe"], pa.binary()).view(pa.string())
    rows = pa.table({"n": [1, 1, 2, 3], "seen": [datetime.now(UTC)] * 4, "who": keys})
    deltalake.write_deltalake(str(tmp_path / "lake"), rows, configuration=KEPT)
    unit = '{ person = "who", max_events = 1 }'
    assert sum(counted(configured(tmp_path, unit)).values()) >= 2


@pytest.mark.parametrize("partitioned", [True, False])
def test_one_odd_cell_moves_one_count(tmp_path: Path, partitioned: bool) -> None:
    """The whole program in neighbouring worlds: what an event's cell holds decides about no other event."""
    plain = ["1", "2", "2", "7"]
    found = []
    for world, odd in enumerate([None, "", " 3", "a/b c", "9" * 5000, "\u2028\x01", "NaN", "1e999"]):
        folder = tmp_path / str(world)
        folder.mkdir()
        if partitioned and odd is not None and len(odd) > 200:
            continue  # no writer can name such a folder
        put(folder / "lake", [*plain, odd], partition_by=["n"] if partitioned else None)
        put(folder / "lake", [*plain, odd], partition_by=["n"] if partitioned else None)
        found.append(counted(configured(folder)))
    for counts in found:
        assert sum(counts.values()) == 10
        assert counts - Counter({"1": 2, "2": 4, "7": 2}) in ({"missing": 2}, {"3": 2}, {"9": 2})


@pytest.mark.sparing(3)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3, 5, 8])
def test_what_ends_anywhere_counts_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, when: When
) -> None:
    monkeypatch.setattr("synthstream.ingest.delta.CHUNK_ROWS", 2)
    monkeypatch.setattr("synthstream.ingest.files.CHUNK_ROWS", 2)
    put(lake := tmp_path / "lake", [1, 2, 2, 2, 2, 2], partition_by=["n"])
    put(lake, [3, 4])
    config = configured(tmp_path)
    ending = Interrupting(_stop, at="commit counts", number=number, when=when)
    ends = [_ended(config, ending)]
    put(lake, [5])
    deltalake.DeltaTable(lake).optimize.compact()
    put(lake, [6, 6])
    ends.append(_ended(config, ending))
    assert sum(ends) == 1
    assert counted(config) == Counter({"1": 1, "2": 5, "3": 1, "4": 1, "5": 1, "6": 2})


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


def test_a_column_that_came_later_has_no_value_before(tmp_path: Path) -> None:
    put(lake := tmp_path / "lake", [1, 2])
    with pytest.raises(SchemaError, match=r"delta lake: .*'more'"):
        of(lake, "more").look()
    rows = pa.table({"n": [3], "seen": [datetime.now(UTC)], "secret": [""], "more": ["x"]})
    deltalake.write_deltalake(str(lake), rows, mode="append", schema_mode="merge")
    assert sorted(Reader(of(lake, "more")).more(), key=str) == [None, None, "x"]


def _edited(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Changes actions of the first version."""

    def edit(lake: Path) -> None:
        actions = [json.loads(line) for line in commit(lake, 0).read_text().splitlines()]
        for action in actions:
            change(action)
        commit(lake, 0).write_text("\n".join(map(json.dumps, actions)))

    return edit


def _change(kind: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda action: action[kind].update(values) if kind in action else None


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no table": (lambda lake: shutil.rmtree(lake), "there is no Delta table"),
    "rows may go": (_edited(_change("metaData", configuration={})), r"'delta\.appendOnly' = 'true'"),
    "names of columns": (_edited(_change("protocol", minReaderVersion=2)), "not read here: columnMapping"),
    "features": (_edited(_change("protocol", minReaderVersion=3, readerFeatures=["deletionVectors"])), "deletionVec"),
    "a later protocol": (_edited(_change("protocol", minReaderVersion=4)), "of a later version"),
    "rows of a file are gone": (_edited(_change("add", deletionVector={"storageType": "u"})), "shallow clone"),
    "files of another table": (_edited(_change("add", path="s3://CANARY/x.parquet")), "shallow clone"),
    "no columns": (_edited(_change("metaData", schemaString="CANARY")), "does not say what columns it has"),
    "a torn log": (lambda lake: commit(lake, 0).write_text('{"add": '), "version 0 of its log cannot be read"),
    "a lost file": (lambda lake: next(lake.glob("*.parquet")).unlink(), "a file of its version 0 cannot be read"),
    "a damaged file": (lambda lake: next(lake.glob("*.parquet")).write_bytes(b"CANARY"), "may have counted already"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_told_without_a_cell(tmp_path: Path, case: str) -> None:
    change, words = REFUSED[case]
    put(lake := tmp_path / "lake", [1])
    change(lake)
    with pytest.raises(SourceError, match=words) as error:
        list(of(lake).read(None))
    assert "CANARY" not in str(error.value)
    assert ".parquet" not in str(error.value)


def test_a_table_that_was_set_back_or_written_anew_is_refused(tmp_path: Path) -> None:
    put(lake := tmp_path / "lake", [1])
    put(lake, [2])
    reader = Reader(of(lake))
    reader.more()
    kept = commit(lake, 1).read_bytes()
    commit(lake, 1).unlink()
    with pytest.raises(SourceError, match="its version 1 was counted, and now there is none, or another"):
        reader.more()
    put(lake, [3])  # another version 1
    with pytest.raises(SourceError, match="its version 1 was counted"):
        reader.more()
    commit(lake, 1).write_bytes(kept)
    assert reader.more() == []
    put(other := tmp_path / "other", [1])
    with pytest.raises(SourceError, match="is from another log"):
        list(of(other).read(reader.after))


def test_a_version_that_takes_rows_away_all_the_same_is_refused(tmp_path: Path) -> None:
    put(lake := tmp_path / "lake", [1], configuration=None)
    table = deltalake.DeltaTable(lake)
    reader = Reader(of(lake))
    with pytest.raises(SourceError, match="appendOnly"):
        reader.more()
    table.alter.set_table_properties(KEPT)
    assert reader.more() == [1]
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    deltalake.DeltaTable(lake).delete("n = 1")
    deltalake.DeltaTable(lake).alter.set_table_properties(KEPT)
    with pytest.raises(SourceError, match="its version 3 takes rows away"):
        reader.more()


def test_a_table_in_an_object_store_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value)
    place = store.bucket() / "lake"
    options = {**store.environment(), "AWS_ALLOW_HTTP": "true", "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    rows = pa.table({"n": ["a b", "50%", "c"], "who": ["x", "y", "z"]})
    deltalake.write_deltalake(str(place), rows, partition_by=["n"], configuration=KEPT, storage_options=options)
    assert sorted(Reader(of(place)).more()) == ["50%", "a b", "c"]
