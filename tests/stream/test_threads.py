"""A stream lets one thread in at a time; files can be read in parts, and counted elsewhere."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy, deepcopy
from pathlib import Path
from threading import Event

import numpy as np
import polars as pl
import pytest

from synthstream import Counting, CountsByTick, Stream
from synthstream.errors import CountsMismatch, SourceError, StateError, StateLocked
from synthstream.ingest.files import FileSource
from synthstream.ingest.intake import Elsewhere
from synthstream.state.turns import turn
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray
from tests.support.children import noise_of_a_child
from tests.support.streams import PERSONS, TICKS, configured, published, rows


def opened(folder: Path) -> Stream:
    return Stream(configured(folder, "always"), gates=lambda tick: SeededGate(f"5/{tick}"), seed=5)


def test_threads_take_turns_and_no_tick_is_drawn_twice(tmp_path: Path) -> None:
    frames = [rows(40, seed) for seed in range(12)]
    with opened(tmp_path / "one") as stream:
        stream.update(pl.concat(frames))
        assert [stream.release().tick for _ in range(TICKS)] == list(range(TICKS))
    with opened(tmp_path / "many") as stream, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: stream.update(frames[i], batch_id=str(i)), range(12)))
        ticks = [release.tick for release in pool.map(lambda _: stream.release(), range(TICKS))]
        assert sorted(ticks) == list(range(TICKS))
        assert stream.batches("1") == ["1", "10", "11"]
        assert len(stream.batches()) == 12
    assert published(tmp_path / "many" / "releases") == published(tmp_path / "one" / "releases")


def test_a_stream_is_shared_and_not_copied(tmp_path: Path) -> None:
    with opened(tmp_path) as stream:
        copies: list[Callable[[object], object]] = [copy, deepcopy, pickle.dumps]
        for copied in copies:
            with pytest.raises(TypeError, match="a Stream cannot be copied; threads may share it"):
                copied(stream)


def test_a_stream_without_a_name_lets_go_of_its_state(tmp_path: Path) -> None:
    opened(tmp_path).update(rows(10, 1), batch_id="a")
    again = opened(tmp_path)
    assert again.batches() == ["a"]
    with again, pytest.raises(StateLocked, match=r"this process \(\d+\): a Stream has it open. Close that one, or use"):
        opened(tmp_path)


def test_a_child_of_fork_is_told_to_open_its_own(tmp_path: Path) -> None:
    stream = opened(tmp_path)
    held, done = Event(), Event()

    def hold() -> None:
        with turn(stream):
            held.set()
            done.wait()

    def child() -> IntArray:  # a thread that it does not have is in
        signal.alarm(20)
        uses: list[Callable[[], object]] = [stream.release, stream.status, stream.close, stream.corrections.listed]
        for use in uses:
            with pytest.raises(StateError, match="opened in another process"):
                use()
        with stream:
            pass
        return np.array([len(list(stream._store.folder.iterdir()))])

    with stream, ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        held.wait()
        try:
            assert noise_of_a_child(child) == np.array([4]).tobytes()  # with the log: nothing was closed
        finally:
            done.set()
        with pytest.raises(StateLocked):
            opened(tmp_path)
        assert stream.release().tick == 0


def test_files_that_are_counted_elsewhere_count_once_and_all_or_none(tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    for number in range(3):
        rows(50, number).write_parquet(tmp_path / f"rows-{number}.parquet")
    counting, asked = Counting(config), list[int]()

    def elsewhere(paths: Sequence[Path]) -> CountsByTick:
        asked.append(len(paths))
        if len(asked) == 1:
            raise SourceError("down")
        return counting.count_all(pl.read_parquet(path) for path in paths)

    with opened(tmp_path) as stream:
        with pytest.raises(SourceError, match="down"):
            stream.ingest(elsewhere=Elsewhere(elsewhere))
        assert [stream.ingest(elsewhere=Elsewhere(elsewhere)) for _ in range(2)] == [3, 0]
        assert (asked, stream.ingest()) == ([3, 3], 0)
    people = configured(tmp_path / "who", PERSONS)
    rows(5, 1).write_parquet(tmp_path / "who" / "rows-1.parquet")
    with Stream(people) as stream, pytest.raises(CountsMismatch, match="takes rows only"):
        stream.ingest(elsewhere=Elsewhere(elsewhere))


def test_a_file_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    path, frame = tmp_path / "x.parquet", rows(100, 1)
    frame.write_parquet(path, row_group_size=30)
    source = FileSource(kind="parquet", path=path, columns=("ward", "x"))
    assert source.parts(path) == 4
    parts = [part for k in range(4) for part in source.read(path, part=k)]
    assert pl.concat(parts).equals(pl.concat(source.read(path)))
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match="cannot be read as parquet"):
        source.parts(path)
    assert FileSource(kind="csv", path=path, columns=("x",)).parts(path) == 1
