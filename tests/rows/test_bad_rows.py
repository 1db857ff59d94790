"""The catalogue of bad rows: each counts in its declared place, and nothing that can be seen tells of it."""

from __future__ import annotations

import csv
import io
import json
import logging
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthstream import Stream, StreamConfig
from synthstream.errors import SchemaError
from synthstream.ingest.counting import PrivateRows
from synthstream.ingest.files import FileSource
from synthstream.ingest.intake import Intake
from synthstream.schema import coercion
from synthstream.schema.coercion import polars_frame, signs
from synthstream.schema.schema import Schema
from tests.rows.bad_rows import BROKEN, TOML
from tests.rows.frames import (
    FORMS,
    Case,
    canary,
    cases,
    frame_of,
    objects_of,
    texts_with_canaries,
    twin_of,
    update_takes,
)
from tests.rows.lines import HEADER, LINES, Line
from tests.rows.objects import OBJECTS, Odd
from tests.rows.observing import INPUT, Observed, observe
from tests.rows.places import CLOCK, COLUMNS, HORIZON, NAMES, NOTHING, Place
from tests.rows.texts import TEXTS
from tests.rows.typed import TYPED, Typed
from tests.support.gates import ExactGate

SCHEMA = Schema(columns=tuple(COLUMNS.values()))
TABLE = """
[[columns]]
name = "c"
type = "category"
values = ["red", "blue"]
[[columns]]
name = "b"
type = "boolean"
[[columns]]
name = "i"
type = "integer"
min = 0
max = 9
[[columns]]
name = "n"
type = "number"
min = -100
max = 100
bins = 4
[[columns]]
name = "h"
type = "datetime"
part = "hour"
[[columns]]
name = "m"
type = "datetime"
min = 2026-01-01
max = 2026-01-05
bins = 4
"""
POINTS = """
[synthesizer]
kind = "points"
depth = 4
[[columns]]
name = "p"
type = "number"
min = -100
max = 100
missing = 0
[[columns]]
name = "n"
type = "number"
min = -100
max = 100
missing = 99
"""
KINDS = {"table": TABLE, "points": POINTS}
TABLE_FIRST = ["table", pytest.param("points", marks=pytest.mark.slow)]


def codes_of(frame: Any) -> list[list[int]]:
    """Codes, tick and weight of each row, and nothing else: no warning, no print. Beyond the horizon ticks are one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = signs(polars_frame(frame, ["op"])["op"])
        found = zip(SCHEMA.encode(frame).tolist(), CLOCK.ticks_of(frame).tolist(), weights.tolist(), strict=True)
        return [[*codes, min(tick, HORIZON), weight] for codes, tick, weight in found]


# -- one by one -------------------------------------------------------------------------------------------------


def test_the_catalogue_is_large_and_every_row_has_a_canary_of_its_own() -> None:
    found = list(cases())
    assert len(found) + len(LINES) >= 300
    assert len({case.canary for case in found}) == len(found)
    for kind in (TEXTS, TYPED, OBJECTS, LINES):
        assert len({case.name for case in kind}) >= 0.8 * len(kind)


# Alone, each text comes in one form with the quick tests, in another one with the slow. Together they come in all.
WHEN: dict[int, list[pytest.MarkDecorator]] = {0: [], 1: [pytest.mark.slow]}
ALONE = [
    pytest.param(
        form,
        *text[1:],
        id=f"{text[0]}-{form}",
        marks=WHEN.get((j - i) % len(FORMS), [pytest.mark.soak]),
    )
    for i, text in enumerate(texts_with_canaries())
    for j, form in enumerate(FORMS)
]


@pytest.mark.sparing(60)
@pytest.mark.parametrize(("form", "text", "place", "mark"), ALONE)
def test_a_text_has_its_place_in_every_column(
    form: str, text: str, place: Place, mark: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert codes_of(frame_of(FORMS[form]([text]), mark)) == [place.codes()]
    assert capfd.readouterr() == ("", "")


@pytest.mark.sparing(80)
@pytest.mark.parametrize("case", TYPED, ids=[f"{i}-{case.name}" for i, case in enumerate(TYPED)])
def test_a_type_has_its_place_in_every_column(case: Typed, capfd: pytest.CaptureFixture[str]) -> None:
    mark = canary(0)
    assert codes_of(frame_of(case.make(mark), str(mark))) == [case.place.codes()]
    assert capfd.readouterr() == ("", "")


@pytest.mark.sparing(40)
@pytest.mark.parametrize("case", OBJECTS, ids=[case.name for case in OBJECTS])
def test_an_object_has_its_place_in_every_column(case: Odd, capfd: pytest.CaptureFixture[str]) -> None:
    mark = canary(0)
    for form in ("pandas",) if case.name == "no class" else ("pandas", "polars"):
        assert codes_of(frame_of(objects_of([case.make(mark)], form), str(mark))) == [case.place.codes()], form
    assert capfd.readouterr() == ("", "")


def test_objects_share_a_column_without_changing_each_other() -> None:
    column = objects_of([case.make(canary(i)) for i, case in enumerate(OBJECTS)], "pandas")
    assert codes_of(frame_of(column, "")) == [case.place.codes() for case in OBJECTS]


@pytest.mark.parametrize("form", FORMS)
def test_texts_share_a_column_without_changing_each_other(form: str) -> None:
    found = texts_with_canaries()
    column = FORMS[form]([text for _, text, _, _ in found])
    assert codes_of(frame_of(column, "")) == [place.codes() for _, _, place, _ in found]


def test_plain_rows_stand_for_the_places() -> None:
    """Otherwise the comparisons of whole streams would compare with the wrong rows."""
    places = [case.place for case in cases()]
    assert codes_of(twin_of(places)) == [place.codes() for place in places]


@pytest.mark.parametrize("line", LINES, ids=[line.name for line in LINES])
def test_a_broken_line_counts_as_the_rows_that_it_is(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, columns = tmp_path / "x.csv", (COLUMNS["c"], COLUMNS["n"])
    path.write_bytes(HEADER + line.data.replace(b"@", b"%d" % canary(0)))
    for chunk_rows in (1, 100):
        monkeypatch.setattr("synthstream.ingest.files.CHUNK_ROWS", chunk_rows)
        source = FileSource(kind="csv", path=path, columns=("c", "n", "t"))
        found = pl.concat(source.read(path))
        plain = plain_lines([line])
        assert Schema(columns=columns).encode(found).tolist() == Schema(columns=columns).encode(plain).tolist()
        assert CLOCK.ticks_of(found).tolist() == CLOCK.ticks_of(plain).tolist()


def plain_lines(lines: list[Line]) -> pl.DataFrame:
    """The rows that broken lines count as."""
    types: dict[str, Any] = {"c": pl.String, "n": pl.Float64, "t": pl.Datetime("us")}
    return pl.DataFrame([row for line in lines for row in line.rows], schema=types, orient="row")


# -- in whole streams -------------------------------------------------------------------------------------------

Feed = Callable[[Stream, Path], None]


def watched(folder: Path, text: str, feed: Feed, capfd: pytest.CaptureFixture[str]) -> Observed:
    """What can be seen of a stream without noise: half of it is counted before three ticks close, half after."""
    (folder / INPUT).mkdir(parents=True)
    config = StreamConfig.from_toml(text, base=folder)

    def run() -> None:
        with Stream(config, gates=lambda _: ExactGate()) as stream:
            feed(stream, folder)
            while stream.due():
                stream.release()
            print(stream.status(), stream.rows(20), stream.last)
        with Stream(config, gates=lambda _: ExactGate()) as again:
            print(again.last)

    seen = observe(folder, run, capfd)
    assert seen.ending == "returned None"
    files = 4 if config.workload is None else 5
    assert len(seen.files) == 1 + 8 * (1 + files)  # a folder, and for each tick a folder with its files
    return seen


def assert_same(bad: Observed, plain: Observed, marks: list[str]) -> None:
    assert bad.out == plain.out
    assert bad._replace(files={}) == plain._replace(files={})
    assert [name for name in bad.files if bad.files[name] != plain.files[name]] == []
    assert list(bad.files) == list(plain.files)
    everything = "\n".join(bad.texts())
    assert [mark for mark in marks if mark in everything] == []
    assert len(json.loads(bad.files["releases/000007/manifest.json"][1] or b"")["files"]) >= 3


def in_two_halves(frames: list[Any]) -> Feed:
    def feed(stream: Stream, folder: Path) -> None:
        for number, frame in enumerate(frames):
            if number == len(frames) // 2:
                for _ in range(3):
                    stream.release()
            stream.update(frame, batch_id=f"batch {number}")
            if number % 10 == 0:
                stream.update(frame, batch_id=f"batch {number}")  # delivered twice, counted once

    return feed


@pytest.mark.parametrize("kind", TABLE_FIRST)
@pytest.mark.parametrize("step", [pytest.param(1, id="all", marks=pytest.mark.slow), pytest.param(4, id="a quarter")])
def test_bad_rows_in_frames_look_like_plain_rows(
    tmp_path: Path, kind: str, step: int, capfd: pytest.CaptureFixture[str]
) -> None:
    found = list(cases())[::step]
    bad = [update_takes(frame_of(case.column, case.canary)) for case in found]
    plain = [twin_of([case.place]) for case in found]
    text = TOML + KINDS[kind]
    seen = watched(tmp_path / "x", text, in_two_halves(bad), capfd)
    assert_same(seen, watched(tmp_path / "x", text, in_two_halves(plain), capfd), [case.canary for case in found])


def parquet_cases() -> Iterator[tuple[Case, pa.Table]]:
    """Bad rows that a Parquet file can hold, as they come back from one."""
    for case in cases():
        frame = frame_of(case.column, case.canary)
        try:
            if isinstance(frame, pl.DataFrame) and pl.Object not in frame.dtypes:
                frame = frame.to_arrow()
            if isinstance(frame, pa.Table):
                pq.write_table(frame, io.BytesIO())
                yield case, frame
        except (pa.ArrowException, OSError):  # no file can hold it
            continue


@pytest.mark.sparing(0, 1)  # what files hold is read as what frames hold (above), and coupled in pairs (test_coupling)
@pytest.mark.parametrize("kind", TABLE_FIRST)
def test_bad_rows_in_parquet_files_look_like_plain_rows(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found = list(parquet_cases())
    assert len(found) > 120

    def bad(stream: Stream, folder: Path) -> None:
        for number, (_, table) in enumerate(found):
            pq.write_table(table, folder / INPUT / f"{number:03d}.parquet")
        print(stream.ingest())

    def plain(stream: Stream, folder: Path) -> None:
        for number, (case, _) in enumerate(found):
            frame = twin_of([case.place]).with_columns(note=pl.lit(number))
            frame.write_parquet(folder / INPUT / f"{number:03d}.parquet")
        print(stream.ingest())

    seen = watched(tmp_path / "x", TOML + KINDS[kind], bad, capfd)
    marks = [case.canary for case, _ in found]
    assert_same(seen, watched(tmp_path / "x", TOML + KINDS[kind], plain, capfd), marks)


@pytest.mark.sparing(0, 1)  # what files hold is read as what frames hold (above), and coupled in pairs (test_coupling)
@pytest.mark.parametrize("kind", TABLE_FIRST)
def test_bad_rows_in_csv_files_look_like_plain_rows(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found = texts_with_canaries()
    many = 'kind = "csv"\nmultiline = true'  # some of the texts have two lines
    text = TOML.replace('kind = "parquet"', many, 1) + KINDS[kind]

    def bad(stream: Stream, folder: Path) -> None:
        for number, (_, cell, _, mark) in enumerate(found):
            with (folder / INPUT / f"{number:03d}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([[*NAMES, "note"], [*[cell] * len(NAMES), mark]])
        print(stream.ingest())

    def plain(stream: Stream, folder: Path) -> None:
        for number, (_, cell, place, _) in enumerate(found):
            frame = twin_of([NOTHING if cell == "" else place]).with_columns(note=pl.lit(number))
            frame.write_csv(folder / INPUT / f"{number:03d}.csv")
        print(stream.ingest())

    seen = watched(tmp_path / "x", text, bad, capfd)
    assert_same(seen, watched(tmp_path / "x", text, plain, capfd), [mark for *_, mark in found])


def test_broken_lines_look_like_plain_rows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = TOML.replace("parquet", "csv", 1).replace('op = "op"\n', "") + BROKEN

    def bad(stream: Stream, folder: Path) -> None:
        for number, line in enumerate(LINES):
            data = HEADER + line.data.replace(b"@", b"%d" % canary(number))
            (folder / INPUT / f"{number:03d}.csv").write_bytes(data)
        print(stream.ingest())

    def plain(stream: Stream, folder: Path) -> None:
        for number, line in enumerate(LINES):
            plain_lines([line]).with_columns(note=pl.lit(number)).write_csv(folder / INPUT / f"{number:03d}.csv")
        print(stream.ingest())

    seen = watched(tmp_path / "x", text, bad, capfd)
    marks = [str(canary(number)) for number in range(len(LINES))]
    assert_same(seen, watched(tmp_path / "x", text, plain, capfd), marks)


# -- rows that are odd together ---------------------------------------------------------------------------------


def encodings_of(values: pa.Array) -> list[pa.Array]:
    """Columns of Arrow that say each of some values once for many rows."""
    ends = pa.array([2, 5], pa.int16())
    return [
        values.dictionary_encode().take(pa.array([0, 0, 1, 1, 1])),
        pa.RunEndEncodedArray.from_arrays(ends, values),
        pa.RunEndEncodedArray.from_arrays(ends, values.dictionary_encode()),
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
@pytest.mark.parametrize("way", range(3))
def test_a_text_that_many_rows_share_has_room_for_all_of_them(kind: pa.DataType, way: int) -> None:
    """Decoded, all texts of a push may have more than 2^31 bytes: one row must not decide whether it counts."""
    column = encodings_of(pa.array(["red", "blue"], kind))[way]
    for part in (column, column.slice(1, 3), pa.chunked_array([column.slice(4), column])):
        found = coercion._laid_out(part)
        assert found.type in (pa.large_string(), pa.large_binary())
        assert [str(cell) for cell in found.to_pylist()] == [str(cell) for cell in part.to_pylist()]


@pytest.mark.soak
@pytest.mark.parametrize("way", range(3))
def test_more_text_than_32_bits_count_is_read(way: int) -> None:
    ends, rows = pa.array([1, 2200], pa.int32()), pa.array([0] + [1] * 2199, pa.int32())
    values = pa.array(["red", "x" * 2**20])
    column = [
        lambda: pa.DictionaryArray.from_arrays(rows, values),
        lambda: pa.RunEndEncodedArray.from_arrays(ends, values),
        lambda: pa.RunEndEncodedArray.from_arrays(ends, values.dictionary_encode()),
    ][way]()
    found = polars_frame(pa.table({"c": column}), ["c"])["c"]
    assert (found == "red").sum() == 1
    assert len(found) == 2200


def falling() -> pa.Array:
    """Text whose offsets fall."""
    offsets = pa.py_buffer(struct.pack("<3i", 0, 5, 2))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"7319secret")])


@pytest.mark.parametrize(
    "make",
    [
        falling,
        lambda: pa.chunked_array([falling()]),
        lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1]), falling()),
        lambda: pa.DictionaryArray.from_arrays(pa.array([0, 9]), pa.array(["red"]), safe=False),
    ],
)
def test_arrow_data_whose_places_lie_outside_are_refused_by_name(make: Callable[[], Any]) -> None:
    with pytest.raises(SchemaError, match="column 'c' of the frame is no valid Arrow data") as found:
        polars_frame(pa.table({"c": make()}), ["c"])
    assert "7319" not in str(found.value)


def test_a_huge_batch_counts_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = [case.place for case in cases()]
    frame = twin_of(found)
    at_once = watched(tmp_path / "x", TOML + TABLE, lambda stream, _: stream.update(frame), capfd)
    monkeypatch.setattr("synthstream.ingest.files.CHUNK_ROWS", 97)

    def in_chunks(stream: Stream, folder: Path) -> None:
        frame.write_parquet(folder / INPUT / "x.parquet")
        stream.update(folder / INPUT / "x.parquet")

    assert_same(watched(tmp_path / "x", TOML + TABLE, in_chunks, capfd), at_once, [])


def test_files_with_the_same_rows_are_not_told_apart(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two days without events have the same file. One event in one of them must not be told."""

    def feed(rows: int) -> Feed:
        def run(stream: Stream, folder: Path) -> None:
            for name, number in (("a", rows), ("b", 0)):
                twin_of([NOTHING] * number).write_parquet(folder / INPUT / f"{name}.parquet")
            print(stream.ingest())

        return run

    one, none = (watched(tmp_path / "x", TOML + TABLE, feed(rows), capfd) for rows in (1, 0))
    assert one.files != none.files  # without noise the row is seen, in the releases
    assert one.out.splitlines()[0] == none.out.splitlines()[0] == "2"


# -- the tests can fail -----------------------------------------------------------------------------------------


def test_a_row_in_another_place_is_seen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    places = [case.place for case in cases()][:30]
    seen = watched(tmp_path / "x", TOML + TABLE, in_two_halves([twin_of(places)]), capfd)
    other = watched(tmp_path / "x", TOML + TABLE, in_two_halves([twin_of([*places[:-1], NOTHING])]), capfd)
    with pytest.raises(AssertionError):
        assert_same(other, seen, [])


@pytest.mark.parametrize("channel", ["print", "log", "warning", "error"])
def test_a_canary_in_any_channel_is_seen(
    channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    honest, mark = Intake._add, str(canary(5))

    def tells(self: Intake, rows: PrivateRows, open_tick: int) -> None:
        honest(self, rows, open_tick)
        if channel == "error":
            raise ValueError(mark)
        ways: dict[str, Callable[[str], object]] = {
            "print": print,
            "log": logging.getLogger("synthstream").debug,
            "warning": warnings.warn,
        }
        ways[channel](mark)

    monkeypatch.setattr(Intake, "_add", tells)
    (tmp_path / "x").mkdir()

    def run() -> None:
        with Stream(StreamConfig.from_toml(TOML + TABLE, base=tmp_path / "x")) as stream:
            stream.update(twin_of([NOTHING]))

    assert mark in "\n".join(observe(tmp_path / "x", run, capfd).texts())
