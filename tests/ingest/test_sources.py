"""Files: read in chunks, broken ones named, broken rows in their place."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import os
import tempfile
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthstream.config.sources import Dialect
from synthstream.errors import SchemaError, SourceError
from synthstream.ingest import lines as reading
from synthstream.ingest.files import FileSource
from synthstream.kinds import FileKind
from synthstream.schema.coercion import require


def source(path: Path, kind: FileKind = "csv") -> FileSource:
    return FileSource(kind=kind, path=path, columns=("a", "b"))


def rows(path: Path, kind: FileKind = "csv", chunk_rows: int = 100) -> list[tuple[str | None, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synthstream.ingest.files.CHUNK_ROWS", chunk_rows)
        return pl.concat(source(path, kind).read(path)).rows()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a,b\n1,2\n", [("1", "2")]),
        (b"b,x,a\n2,9,1\n", [("1", "2")]),
        (b"\xef\xbb\xbfa,b\r\n1,2\r\n", [("1", "2")]),
        (b'a,b\n"x,y","two\nlines"\n', [("x,y", "two"), ('lines"', None)]),
        (b'a,b\n"1,2\n3,4\n', [("1,2", None), ("3", "4")]),
        (b'a,b\r\n1,"2\r\n3,4\r\n', [("1", "2"), ("3", "4")]),
        (b'a,b\r1,"""2"\r3,4', [("1", '"2'), ("3", "4")]),
        (b'a,b,"c\n1,2,3\n', [("1", "2")]),
        (b"a,b\n1\n1,2,3\n,\n\n", [("1", None), ("1", "2"), (None, None)]),
        (b"a,b\n\xff\xfe,2\n", [("\ufffd\ufffd", "2")]),
        (b"a,b\n1,\x00\n", [("1", "\ufffd")]),
        (b"a,b\n", []),
    ],
)
def test_csv_rows_have_their_place(tmp_path: Path, text: bytes, expected: list[tuple[str | None, ...]]) -> None:
    (tmp_path / "x.csv").write_bytes(text)
    assert rows(tmp_path / "x.csv") == expected


def test_with_multiline_a_cell_in_quotation_marks_may_hold_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'a,b\n"x,y","two\nlines"\n1,"2\n3,4\n')
    found = replace(source(path), dialect=Dialect(multiline=True)).read(path)
    assert pl.concat(found).rows() == [("x,y", "two\nlines"), ("1", "2\n3,4\n")]


@given(st.lists(st.text(alphabet=",\"'ab \\\t\x1c\u2028é"), max_size=8), st.sampled_from(["\n", "\r\n", "\r"]))
def test_each_line_is_a_row_of_its_own(lines: list[str], end: str) -> None:
    """The definition: what the csv module makes of the one line. So no line changes how another is read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        path.write_bytes(end.join(["a,b", *lines]).encode())
        alone = [(*next(csv.reader([line])), "", "")[:2] for line in lines if line]
        assert rows(path, chunk_rows=3) == [(a or None, b or None) for a, b in alone]


@given(st.text(alphabet="ab\r\n", max_size=30))
def test_of_a_longer_line_than_is_looked_at_the_beginning_is_a_line(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_MOST", 4)
        found = [*reading.lines_of(io.TextIOWrapper(io.BytesIO(text.encode()), newline=""))]
    assert found == [line[:4] for line in io.StringIO(text, newline="")]


def test_a_packed_line_of_any_length_takes_no_more_memory_than_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before the header, too."""
    monkeypatch.setattr(reading, "_MOST", 2**20)
    with gzip.open(tmp_path / "x.csv.gz", "wb", 1) as file:
        for before, after in ((b"", b"\n\na,b\n1,2\n"), (b"3,", b"\n4,5\n")):
            for _ in range(64):
                file.write(before + b" " * 2**20)
            file.write(after)
    tracemalloc.start()
    late = replace(source(tmp_path / "x.csv.gz"), dialect=Dialect(header=3))
    found = pl.concat(late.read(tmp_path / "x.csv.gz")).rows()
    assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    tracemalloc.stop()
    assert [found[0], found[2]] == [("1", "2"), ("4", "5")]


def test_a_very_long_cell(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n" + "z" * 1_000_000 + ",2\n")
    assert len(str(rows(tmp_path / "x.csv")[0][0])) == 1_000_000


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_chunks_hold_all_rows_in_order(tmp_path: Path, kind: FileKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthstream.ingest.files.CHUNK_ROWS", 128)
    frame = pl.DataFrame({"a": [str(i) for i in range(1000)], "b": ["x"] * 1000, "c": [0] * 1000})
    path = tmp_path / f"x.{kind}"
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    chunks = list(source(path, kind).read(path))
    assert max(map(len, chunks)) <= 128
    assert pl.concat(chunks).equals(frame.select("a", "b"))


@pytest.mark.parametrize(
    ("name", "content", "kind", "says"),
    [
        ("x.csv", b"", "csv", r"not even a header\. Nothing of it was counted; replace it, or take it away\.$"),
        ("x.parquet", b"", "parquet", "truncated or of another kind"),
        ("x.parquet", b"PAR1SECRETPAR1", "parquet", "truncated or of another kind"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: bytes, kind: FileKind, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=says) as caught:
        rows(tmp_path / name, kind)
    assert name in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_one_bad_cell_of_a_dictionary_does_not_refuse_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is categories in pandas is a dictionary in Parquet; pyarrow makes one again, of good cells only."""
    text = pa.array([b"x", b"\xff", b"x", None], pa.binary()).view(pa.string())
    durations = pa.array([1, 2, None, 4], pa.duration("us"))
    for column in (text.dictionary_encode(), pa.ListArray.from_arrays([0, 1, 2, 3, 4], text.dictionary_encode())):
        pq.write_table(pa.table({"a": column, "b": durations}), tmp_path / "x.parquet", row_group_size=3)
        for chunk_rows in (1, 100):
            monkeypatch.setattr("synthstream.ingest.files.CHUNK_ROWS", chunk_rows)
            frame = pl.concat(source(tmp_path / "x.parquet", "parquet").read(tmp_path / "x.parquet"))
            assert frame["b"].to_list() == durations.to_pylist()
            if frame["a"].dtype == pl.String:
                assert frame["a"].to_list() == ["x", "\\xff", "x", None]
            assert len(frame) == 4


def test_one_list_of_another_length_does_not_refuse_a_file(tmp_path: Path) -> None:
    """Lists of a fixed size are made of lists of any size, by what a file says about Arrow."""
    lists = pa.array([[1, 2], [3], None, [4, 5]], pa.list_(pa.int64()))
    promised = pa.schema([("a", pa.list_(pa.int64(), 2)), ("b", pa.int64())]).serialize().to_pybytes()
    table = pa.table({"a": lists, "b": [1, 2, 3, 4]})
    path = tmp_path / "x.parquet"
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(promised).decode()})
    with pytest.raises(pa.ArrowException, match="size=2"):
        pq.read_table(path)
    found = pl.concat(source(path, "parquet").read(path))
    assert found["a"].is_null().to_list() == [False, False, True, False]
    assert found["b"].to_list() == [1, 2, 3, 4]


def nested(path: Path, lengths: Sequence[int | None], row_group_size: int = 10_000) -> list[bool]:
    """Writes a file whose column ``a`` has a list with one text of each length. Which of the lists are null."""
    lists = pa.array([None if n is None else ["x" * n] for n in lengths], pa.list_(pa.string()))
    table = pa.table({"a": lists, "b": range(len(lengths))})
    pq.write_table(table, path, compression="zstd", row_group_size=row_group_size)
    return [n is None for n in lengths]


@pytest.mark.soak  # two gigabytes; the halves, with a reader that refuses small batches, are tested below
def test_nested_cells_may_hold_more_than_31_bits_in_all(tmp_path: Path) -> None:
    """pyarrow makes no batch of them with offsets of 32 bits; one row would decide whether all others are read."""
    path = tmp_path / "x.parquet"
    missing = nested(path, [*[1_000_000] * 2147, 600_000, None])
    assert path.stat().st_size < 10_000
    found = pl.concat(source(path, "parquet").read(path))
    assert found["a"].is_null().to_list() == missing
    assert found["b"].to_list() == list(range(2149))


class Refusing(pq.ParquetFile):  # type: ignore[misc]
    """Refuses batches that hold more than 31 characters in all, and asks for nothing that a batch does not hold."""

    def iter_batches(self, **options: object) -> Iterator[pa.RecordBatch]:
        for batch in super().iter_batches(**options):
            if sum(len(cell[0]) for cell in batch.column("a").to_pylist() if cell) > 31:
                raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs")
            yield batch


@given(
    st.lists(st.none() | st.integers(0, 31), min_size=1, max_size=30),
    st.integers(1, 40),
    st.integers(1, 40),
)
def test_a_batch_that_is_refused_is_read_in_halves(lengths: list[int | None], group: int, chunk_rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        path = Path(folder) / "x.parquet"
        missing = nested(path, lengths, group)
        patched.setattr(pq, "ParquetFile", Refusing)
        patched.setattr("synthstream.ingest.files.CHUNK_ROWS", chunk_rows)
        found = pl.concat(source(path, "parquet").read(path))
        assert found["a"].is_null().to_list() == missing
        assert found["b"].to_list() == list(range(len(lengths)))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_chunks_are_bounded_by_bytes_too(tmp_path: Path, kind: FileKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthstream.ingest.files._CHUNK_BYTES", 1000)
    long = [f"{i:03}" * (100 if i % 3 else 1000) for i in range(200)]
    frame = pl.DataFrame({"a": long, "b": ["x"] * 200})
    path = tmp_path / f"x.{kind}"
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    chunks = list(source(path, kind).read(path))
    assert pl.concat(chunks).equals(frame)
    assert max(chunk["a"].str.len_bytes().sum() for chunk in chunks) < 1000 + 3000


def test_a_value_that_is_stored_once_does_not_fill_the_memory(tmp_path: Path) -> None:
    """Of 200 MB the file says 100 kB: what counts is what is made of it."""
    path = tmp_path / "x.parquet"
    pl.DataFrame({"a": ["x" * 20_000] * 10_000, "b": ["y"] * 10_000}).write_parquet(path)
    chunks = source(path, "parquet").read(path)
    sizes = [(len(chunk), chunk.estimated_size()) for chunk in chunks]
    assert sum(number for number, _ in sizes) == 10_000
    assert max(size for _, size in sizes) < 4096 * 20_100


@pytest.mark.parametrize("place", [4, 0.5, -20])
def test_damage_inside_a_file_is_told_without_its_content(tmp_path: Path, place: float) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"a": ["SECRET"] * 1000, "b": range(1000)}).write_parquet(path, row_group_size=100)
    content = bytearray(path.read_bytes())
    start = int(place * len(content)) if isinstance(place, float) else place % len(content)
    content[start : start + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"x\.parquet cannot be read as parquet: it may be truncated") as caught:
        rows(path, "parquet")
    assert "SECRET" not in str(caught.value)
    with pytest.raises(SourceError, match=r"of another kind \(names of texts end in \.csv or \.jsonl\)"):
        rows(path.rename(tmp_path / "x.toml"), "parquet")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_what_the_system_does_not_hand_out_is_no_damaged_file(tmp_path: Path, kind: FileKind) -> None:
    with pytest.raises(SourceError, match=r"cannot be read: Is a directory\. Nothing of it was counted\.$"):
        rows(tmp_path, kind)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_missing_column_is_told_before_any_row(tmp_path: Path, kind: FileKind) -> None:
    path = tmp_path / f"x.{kind}"
    frame = pl.DataFrame({"a": ["SECRET"], "bb": ["SECRET"]})
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    with pytest.raises(SchemaError, match=r"'b' is missing.*'bb'") as caught:
        next(source(path, kind).read(path))
    assert f"x.{kind}" in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_name_that_another_column_has_is_not_what_was_meant() -> None:
    with pytest.raises(SchemaError, match=r"'fare' is missing\. Nothing was counted"):
        require(["age", "fare"], ["age"])


def test_a_misspelt_name_of_a_column_that_is_read_twice() -> None:
    """As where a weekday and an hour are read from one time; but the second visit is not the first."""
    with pytest.raises(SchemaError, match=r"'startd_at' is missing\. Did you mean 'started_at'\?"):
        require(["startd_at", "started_at"], ["started_at", "ended_at"])
    with pytest.raises(SchemaError, match=r"'date_visit_2' is missing\. Nothing"):
        require(["date_visit_1", "date_visit_2"], ["date_visit_1"])


def test_each_missing_name_has_the_one_that_was_meant_and_else_the_others_are_listed() -> None:
    with pytest.raises(SchemaError, match=r"Did you mean 'station' for 'stations', 'Fare' for 'fare'\?"):
        require(["age", "stations", "fare"], ["age", "station", "Fare"])
    with pytest.raises(SchemaError, match=r"'district' is missing\. Other columns there: 'ward', 'x'\. Nothing"):
        require(["age", "district"], ["age", "ward", "x"])
    with pytest.raises(SchemaError, match=r"'p0', .* 'p5' and 94 more\. Nothing"):
        require(["age", "district"], ["age", *(f"p{i}" for i in range(100))])
    with pytest.raises(SchemaError, match=r"'age', 'fare' are missing\. Nothing") as caught:
        require(["age", "fare"], ["31", "SECRET"])
    assert "SECRET" not in str(caught.value)


def test_patterns(tmp_path: Path) -> None:
    for name in ("v2.csv", "v1.csv", "other.csv"):
        (tmp_path / name).write_text("a,b\n")
    assert [p.name for p in source(tmp_path / "v*.csv").files()] == ["v1.csv", "v2.csv"]
    assert source(tmp_path / "other.csv").files() == [tmp_path / "other.csv"]


def test_links_below_folders_are_followed_unless_they_lead_back(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "disk[1]"
    for folder in (inside / "a", outside / "b"):
        folder.mkdir(parents=True)
        (folder / "v.csv").write_text("a,b\n")
    (inside / "far").symlink_to(outside)
    (inside / "self").symlink_to("self")
    (inside / "now").symlink_to(".")
    found = [inside / "a" / "v.csv", inside / "far" / "b" / "v.csv"]
    assert source(inside / "**" / "*.csv").files() == found
    (inside / "new").symlink_to(".")  # two of them have as many ways as two to the power of forty
    (inside / "a" / "up").symlink_to("..")
    (outside / "b" / "back").symlink_to(inside)
    for pattern in ("**/*.csv", "**/v.csv", "**/**/*.csv", "**"):
        fit = [path for path in source(inside / pattern).files() if path.suffix]
        assert fit == found
    assert source(inside / "**" / "now" / "a" / "*.csv").files() == [inside / "now" / "a" / "v.csv"]
    assert source(tmp_path / "**" / "b" / "*.csv").files() == [outside / "b" / "v.csv", found[1]]


def test_a_folder_that_fits_a_pattern_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "v1.csv").write_text("a,b\n")
    assert source(tmp_path / "*").files() == [tmp_path / "v1.csv"]
    (tmp_path / "v2.csv").mkdir()  # as engines write them: it holds rows, and is not passed over in silence
    with pytest.raises(SourceError, match=r"v2\.csv: is no file, but a folder: name the files in it\. No tick was"):
        source(tmp_path / "*").files()
    with pytest.raises(SourceError, match="is a folder"):
        source(tmp_path / "archive").files()


def test_what_is_no_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Whoever opens a pipe waits until somebody writes to it, and a device has no end."""
    os.mkfifo(tmp_path / "v1.csv")
    (tmp_path / "w1.csv").symlink_to(os.devnull)
    (tmp_path / "x1.csv").symlink_to("nowhere")  # whoever reads that says that it is not there
    for pattern in ("v*.csv", "v1.csv", "w*.csv"):
        with pytest.raises(SourceError, match="no file"):
            source(tmp_path / pattern).files()
    assert source(tmp_path / "x*.csv").files() == [tmp_path / "x1.csv"]


def test_a_pattern_that_nothing_fits_is_an_empty_source_if_its_folder_is_there(tmp_path: Path) -> None:
    assert source(tmp_path / "w*.csv").files() == []
    assert source(tmp_path / "*" / "**" / "w.csv").files() == []
    for away in ("gone/w*.csv", "gone/*/w.csv", "gone/**/w.csv"):
        with pytest.raises(SourceError, match=r"the folder .*gone cannot be read: No such file"):
            source(tmp_path / away).files()
    with pytest.raises(SourceError, match="there is no such file"):
        source(tmp_path / "gone.csv").files()


def test_a_name_that_looks_like_a_pattern_is_still_a_name(tmp_path: Path) -> None:
    path = tmp_path / "v[1].csv"
    path.write_text("a,b\n")
    assert source(path).files() == [path]


def test_fingerprints_follow_the_content(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n")
    first = source(path).fingerprint(path)
    assert first == source(path).fingerprint(path)
    path.write_text("a,b\n1,2\n")
    assert first != source(path).fingerprint(path)
    with pytest.raises(SourceError, match="cannot be read"):
        source(path).fingerprint(tmp_path / "gone.csv")
