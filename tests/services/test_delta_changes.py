"""Change data of a Delta table: running tables are those of the table, whatever stands in its cells."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthstream import Stream, StreamConfig
from synthstream.config.sources import DeltaConfig
from synthstream.environment import Env
from synthstream.errors import ConfigError, RecoveryRefused, SourceError, StateRolledBack
from synthstream.evaluate.look import look
from synthstream.ingest.changes import Changes
from synthstream.ingest.delta import DeltaSource
from synthstream.stream.recovery import adopt
from synthstream.stream.succession import succeed
from tests.services.feeds import TOML, Later, commit, counted
from tests.support.environments import Interrupting, When
from tests.support.gates import ExactGate

TOLD = {"delta.enableChangeDataFeed": "true"}
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def put(lake: Path, cells: list[Any], seen: datetime | None = None, **more: Any) -> None:
    n = pa.array([None if cell is None else str(cell) for cell in cells], pa.string())
    rows = pa.table({"n": n, "seen": [seen or datetime.now(UTC)] * len(cells), "id": range(len(cells))})
    deltalake.write_deltalake(str(lake), rows, mode="append", configuration=TOLD, **more)


START = (datetime.now(UTC) - timedelta(days=1)).date().isoformat()
SOURCE = 'kind = "delta"\nformat = "changes"\npath = "lake"'
TEXT = 'op = "op"\n' + TOML.replace("start = 2026-01-01", f"start = {START}").format(
    unit='"event"', most=9, horizon=30, source=SOURCE
)


def configured(folder: Path, unit: str = '"event"') -> StreamConfig:
    return StreamConfig.from_toml(TEXT.replace('unit = "event"', f"unit = {unit}"), base=folder)


def read(lake: Path) -> DeltaSource:
    log = DeltaConfig(kind="delta", format="changes", path=lake)
    return DeltaSource(log, ("n", "seen", "op"), changes=Changes(op="op", time="seen"))


def changes_of(lake: Path, after: bytes | None = None) -> tuple[list[tuple[Any, ...]], bytes | None]:
    """Rows that come, without order: op, n, and whether they have a time of their own."""
    found: list[tuple[Any, ...]] = []
    source = read(lake)
    for frame, now in source.read(after):
        after = now
        own = frame["seen"].dtype != pl.String
        found += [(op, n, own) for n, op in frame.select("n", "op").iter_rows()]
    return sorted(found, key=str), after


def test_insertions_updates_and_deletions_are_rows_and_an_update_is_two(tmp_path: Path) -> None:
    put(lake := tmp_path / "lake", [1, 2, 3])
    found, after = changes_of(lake)
    assert found == [("1", "1", True), ("1", "2", True), ("1", "3", True)]
    put(lake, [4])
    deltalake.DeltaTable(lake).update({"n": "'5'"}, predicate="n = '2'")
    deltalake.DeltaTable(lake).delete("n = '3'")
    deltalake.DeltaTable(lake).optimize.compact()
    found, after = changes_of(lake, after)
    assert found == [("-1", "2", False), ("-1", "3", False), ("1", "4", True), ("1", "5", False)]
    deltalake.DeltaTable(lake).delete()  # all of them
    found, after = changes_of(lake, after)
    assert found == [("-1", n, False) for n in "145"]
    put(lake, [6])
    deltalake.write_deltalake(str(lake), pa.table({"n": ["7"], "seen": [LONG_AGO], "id": [0]}), mode="overwrite")
    assert changes_of(lake, after)[0] == [("-1", "6", False), ("1", "6", True), ("1", "7", False)]


def test_a_version_without_files_of_changes_is_read_from_those_that_it_took_away(tmp_path: Path) -> None:
    """As the protocol says; where a removal does not tell its partition, what added the file did."""
    put(lake := tmp_path / "lake", ["a b", "50%", None], partition_by=["n"])
    _, after = changes_of(lake)
    deltalake.DeltaTable(lake).delete("n = 'a b'")
    actions = [json.loads(line) for line in commit(lake, 1).read_text().splitlines()]
    kept = [action for action in actions if "cdc" not in action]
    (gone,) = (action["remove"] for action in kept if "remove" in action)
    assert gone.pop("partitionValues") == {"n": "a b"}
    for untold in ({}, {"partitionValues": None}):
        gone.update(untold)
        commit(lake, 1).write_text("\n".join(map(json.dumps, kept)))
        assert changes_of(lake, after)[0] == [("-1", "a b", False)]


def _whole(lake: Path, rows: pa.Table) -> None:
    deltalake.write_deltalake(str(lake), rows, mode="overwrite")
    assert b'"cdc"' not in commit(lake, 1).read_bytes()


def _part(lake: Path, rows: pa.Table) -> None:
    deltalake.write_deltalake(str(lake), rows, mode="overwrite", predicate="id < 9")
    assert b'"cdc"' in commit(lake, 1).read_bytes()


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("overwrite", [_whole, _part])
def test_a_table_that_is_written_anew_with_its_rows_counts_as_before(
    tmp_path: Path, overwrite: Callable[[Path, pa.Table], None], cut: bool
) -> None:
    """Rows that are put back are dated as those that were taken away, whatever their own time: also after a cut."""
    put(lake := tmp_path / "lake", [1, 2, 3], seen=LONG_AGO)
    config = configured(tmp_path)
    with Stream(config, gates=lambda tick: ExactGate(), env=Later()) as stream:
        stream.ingest()
        stream.release()  # of yesterday
    if cut:
        (tmp_path / "stream.toml").write_text(TEXT)
        text = TEXT.replace("epsilon = 1.0", "epsilon = 0.5") + '[after]\nconfig = "stream.toml"\n'
        config = succeed(
            config, StreamConfig.from_toml(text, base=tmp_path), gates=lambda tick: ExactGate(), env=Later()
        )
    ended = datetime.now(UTC) + timedelta(days=4000)  # beyond the horizon: by its own time it would never count
    cells = deltalake.DeltaTable(lake).to_pyarrow_table()
    seen = pa.array([LONG_AGO, LONG_AGO, ended], cells.schema.field("seen").type)
    overwrite(lake, cells.set_column(1, "seen", seen))
    assert counted(config) == {"1": 1, "2": 1, "3": 1}


ODD = ["insert", "update_preimage", "a b", "\u2028"]


@pytest.mark.parametrize("partitioned", [True, False])
def test_running_tables_are_those_of_the_table_after_random_changes(tmp_path: Path, partitioned: bool) -> None:
    lake, chance = tmp_path / "lake", random.Random(3)  # noqa: S311 - what changes, nothing more
    put(lake, [1, 2, 2, 3, *ODD], seen=LONG_AGO, partition_by=["n"] if partitioned else None)
    config = configured(tmp_path)
    for step in range(12):
        one, other = chance.randrange(10), chance.randrange(10)
        table = deltalake.DeltaTable(lake)
        if step % 3 == 0:
            put(lake, [one, other, chance.choice([None, "", "x y"])])
        elif step % 3 == 1:
            table.update({"n": f"'{other}'"}, predicate=f"n = '{one}' OR id = 2")
        else:
            table.delete(f"n = '{one}' OR id = 1")
        if step % 4 == 3:
            with Stream(config, gates=lambda tick: ExactGate(), env=Later()) as stream:
                stream.ingest()
    cells = deltalake.DeltaTable(lake).to_pyarrow_table()["n"].to_pylist()
    true = Counter(n if n is not None and n in "0123456789" and n else "missing" for n in cells)
    assert counted(config) == +true


def test_cells_that_are_no_text_keep_no_version_from_being_read(tmp_path: Path) -> None:
    """A hostile cell in a table, in a file of changes, in the kind of a change, and in a person's key."""
    odd = [b"1", b"\xff\xfe", b"3"]
    lake, hostile = tmp_path / "lake", pa.array(odd, pa.binary()).view(pa.string())
    rows = pa.table({"n": hostile, "seen": [datetime.now(UTC)] * 3, "who": hostile})
    deltalake.write_deltalake(str(lake), rows, configuration=TOLD)
    _, after = changes_of(lake)
    deltalake.write_deltalake(str(lake), rows, mode="append")
    kinds = [b"delete", b"update_postimage", b"insert", b"CANARY", b"\xff", None]
    told = pa.table(
        {
            "n": pa.array([*odd, *odd], pa.binary()).view(pa.string()),
            "seen": [datetime.now(UTC)] * 6,
            "who": pa.array([*odd, *odd], pa.binary()).view(pa.string()),
            "_change_type": pa.array(kinds, pa.binary()).view(pa.string()),
        }
    )
    (lake / "_change_data").mkdir()
    pq.write_table(told, lake / "_change_data" / "cdc-0.parquet")
    action = {"path": "_change_data/cdc-0.parquet", "partitionValues": {}, "size": 1, "dataChange": False}
    with commit(lake, 1).open("a") as log:
        log.write("\n" + json.dumps({"cdc": action}))
    found, _ = changes_of(lake, after)
    assert Counter((op, own) for op, _, own in found) == {("-1", False): 1, ("1", False): 1, ("1", True): 4}
    assert [n for op, n, own in found if op == "1" and own].count(None) == 3  # what is no change has no cells
    unit = '{ person = "who", max_events = 2 }'
    assert sum(counted(configured(tmp_path, unit)).values()) > 0


def test_what_is_put_in_the_place_of_a_row_is_dated_as_what_it_replaces(tmp_path: Path) -> None:
    """Both sides of an update are of the moment of the change: no cut in time comes between them."""
    put(lake := tmp_path / "lake", [1], seen=LONG_AGO)
    source = read(lake)
    *_, (_, after) = source.read(None)
    before = datetime.now(UTC) - timedelta(seconds=1)
    deltalake.DeltaTable(lake).update({"n": "'2'", "seen": "'2021-01-01T00:00:00Z'"})
    frames = [frame for frame, _ in source.read(after) if frame.height]
    (sides,) = frames
    assert sorted(sides["op"]) == ["-1", "1"]
    assert len(set(sides["seen"])) == 1
    assert before < datetime.fromisoformat(sides["seen"][0]) < datetime.now(UTC) + timedelta(seconds=1)


@pytest.mark.sparing(3)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 3, 4, 6, 8])
def test_what_ends_anywhere_counts_each_change_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, when: When
) -> None:
    monkeypatch.setattr("synthstream.ingest.files.CHUNK_ROWS", 2)
    put(lake := tmp_path / "lake", [1, 2, 2, 2, 3])
    config = configured(tmp_path)

    def stop() -> None:
        raise KeyboardInterrupt

    def ended(env: Env) -> bool:
        with Stream(config, gates=lambda tick: ExactGate(), env=env) as stream:
            try:
                stream.ingest()
            except KeyboardInterrupt:
                return True
        return False

    ending = Interrupting(stop, at="commit counts", number=number, when=when)
    ends = [ended(ending)]
    deltalake.DeltaTable(lake).update({"n": "'4'"}, predicate="n = '2'")
    deltalake.DeltaTable(lake).delete("n = '3'")
    ends.append(ended(ending))
    put(lake, [5, 5])
    assert sum(ends) == 1
    assert counted(config) == {"1": 1, "4": 3, "5": 2}


def _feed(lake: Path, value: str) -> None:
    deltalake.DeltaTable(lake).alter.set_table_properties({"delta.enableChangeDataFeed": value})


def _off_and_on(lake: Path) -> None:
    _feed(lake, "false")
    _feed(lake, "true")


def _forget(lake: Path) -> None:
    put(lake, [3])
    commit(lake, 1).unlink()


LOST: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "not told": (lambda lake: _feed(lake, "false"), "do not write down which rows they change"),
    "not told for a while": (_off_and_on, "from its version 2 on its writers do not write down"),
    "files of changes are gone": (
        lambda lake: shutil.rmtree(lake / "_change_data"),
        "a file of its version 1 cannot be read",
    ),
    "its log is gone": (_forget, "its version 1 is no longer kept, .*or open another stream"),
}


@pytest.mark.parametrize("case", LOST)
def test_what_can_no_longer_be_told_is_refused(tmp_path: Path, case: str) -> None:
    change, words = LOST[case]
    put(lake := tmp_path / "lake", [1, 2])
    _, after = changes_of(lake)
    deltalake.DeltaTable(lake).delete("n = '2'")
    change(lake)
    with pytest.raises(SourceError, match=words) as error:
        changes_of(lake, after)
    assert ".parquet" not in str(error.value)


def test_nothing_reads_changes_from_the_beginning_again(tmp_path: Path) -> None:
    """A row that an update put there counted with the time of the update. From its own time it could count again."""
    put(tmp_path / "lake", [1])
    config = configured(tmp_path)
    counted(config)
    text = TEXT.replace("epsilon = 1.0", "epsilon = 0.5") + '[after]\nconfig = "stream.toml"\n'
    (tmp_path / "stream.toml").write_text(TEXT)
    new = StreamConfig.from_toml(text, base=tmp_path)
    with pytest.raises(ConfigError, match="leave --read-again out"):
        succeed(config, new, read_again=True, gates=lambda tick: ExactGate(), env=Later())
    shutil.rmtree(config.state)
    with pytest.raises(StateRolledBack, match="A backup that is as new as the releases can go on"):
        Stream(config)
    with pytest.raises(RecoveryRefused, match="delta lake: rows that were changed counted with the time of the change"):
        adopt(config, gates=lambda tick: ExactGate(), env=Later())


def test_files_of_a_table_of_changes_are_looked_at_as_rows(tmp_path: Path) -> None:
    put(lake := tmp_path / "lake", [1, 2])
    looked = look(configured(tmp_path), list(lake.glob("*.parquet")))
    assert (looked.rows.count, looked.refused) == (2, {})


def test_changes_need_an_op_column_and_stand_in_the_settings_for_readers(tmp_path: Path) -> None:
    text = TEXT.replace('op = "op"\n', "")
    with pytest.raises(ConfigError, match="op: changes of a table take rows away"):
        StreamConfig.from_toml(text, base=tmp_path)
    config = configured(tmp_path)
    assert 'format = "changes"' in config.settings
    assert "lake" not in config.settings
    assert StreamConfig.from_toml(config.settings, base=tmp_path).own_hash == config.own_hash
    rows = StreamConfig.from_toml('op = "op"\n' + text.replace('format = "changes"\n', ""), base=tmp_path)
    assert rows.own_hash != config.own_hash
