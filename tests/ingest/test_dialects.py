"""Files as the world writes them: dialects of CSV, packed files, lines of JSON. Each cell is read by itself."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import tracemalloc
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream import Stream, StreamConfig
from synthstream.config.sources import Dialect
from synthstream.errors import ConfigError, FileDamaged, FilesLeftOut, SchemaError, SourceError
from synthstream.ingest import lines as lines_module
from synthstream.ingest.counting import encode, files_of
from synthstream.ingest.files import FileSource
from synthstream.kinds import FileKind
from synthstream.schema.dialects import times_as
from tests.support.aligned import files
from tests.support.configs import SINK, number, stream_toml
from tests.support.gates import ExactGate

_COLUMNS = """
[[columns]]
name = "Straße"
type = "category"
values = ["Südstraße", "Am Markt"]
[[columns]]
name = "Uhrzeit"
type = "datetime"
part = "hour"
"""
WARD = '[[columns]]\nname = "ward"\ntype = "category"\nvalues = ["A"]\n'
COLUMNS = _COLUMNS + number("Gebühr", "bins = 4", high=2000)
GERMAN = """[source]
kind = "csv"
path = "export-*"
delimiter = ";"
decimal = ","
thousands = "."
encoding = "windows-1252"
datetime_format = { when = ["%d.%m.%Y", "%d.%m.%Y %H:%M"], Uhrzeit = "%H:%M" }
"""
EXPORT = """when;Straße;Uhrzeit;Gebühr
01.01.2026;Südstraße;07:05;1.250,00
02.01.2026 14:30;"Am Markt";14:30;12,5
2026-01-03;Südstraße;25:00;12.5
3.1.2026;Nordstraße;Mittag;1.5
"""
PLAIN = """when,Straße,Uhrzeit,Gebühr
2026-01-01,Südstraße,1970-01-01T07:05,1250
2026-01-02T14:30,Am Markt,1970-01-01T14:30,12.5
,Südstraße,,
2026-01-03,Nordstraße,,
"""


def packed(name: str, content: bytes) -> bytes:
    """Content as a file of this name holds it."""
    pack: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
    }
    return pack.get(Path(name).suffix.lower(), bytes)(content)


def run(folder: Path, source: str, name: str, content: bytes) -> dict[str, bytes]:
    """Every published byte of a stream of one file."""
    folder.mkdir()
    (folder / name).write_bytes(packed(name, content))
    config = StreamConfig.from_toml(stream_toml(COLUMNS, source, SINK), base=folder)
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        assert sum(1 for _ in stream.run()) == 5
        assert stream.findings == {}
    return files(folder / "releases")


@pytest.mark.parametrize("name", ["export-1.csv", "export-1.CSV.GZ", "export-1.csv.zst"])
def test_a_german_export_counts_as_its_conversion(tmp_path: Path, name: str) -> None:
    plain = run(tmp_path / "plain", '[source]\nkind = "csv"\npath = "x.csv"\n', "x.csv", PLAIN.encode())
    assert run(tmp_path / "german", GERMAN, name, EXPORT.encode("cp1252")) == plain


def test_each_cell_of_it_has_its_place(tmp_path: Path) -> None:
    (tmp_path / "export-1.csv").write_bytes(EXPORT.encode("cp1252"))
    config = StreamConfig.from_toml(stream_toml(COLUMNS, GERMAN), base=tmp_path)
    source = files_of(config)
    assert source is not None
    (frame,) = source.read(tmp_path / "export-1.csv")
    rows = encode(config, frame)
    assert rows.ticks.tolist() == [0, 1, -1, 2]
    assert rows.codes.tolist() == [[0, 7, 2], [1, 14, 0], [0, 24, 4], [2, 24, 4]]


@pytest.mark.parametrize(
    ("form", "unit"), [("seconds", 1), ("%s", 1), ("%s.%f", 1), ("milliseconds", 10**3), ("microseconds", 10**6)]
)
def test_numbers_since_1970_are_moments_on_the_wall_of_the_clock(tmp_path: Path, form: str, unit: int) -> None:
    midnight = int(datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()) * unit
    cells = [
        midnight - 1,
        f"{midnight - 1}.75",
        midnight,
        f" {midnight}.75 ",
        float(midnight),
        -5,
        "1e400",
        "9" * 40,
        "nan",
        "-inf",
        "x",
        "",
    ]
    (tmp_path / "x.csv").write_text("when,ward\n" + "".join(f"{cell},A\n" for cell in cells))
    source = f'[source]\nkind = "csv"\npath = "x.csv"\ndatetime_format = "{form}"\n'
    text = stream_toml(WARD, source).replace("[clock]\n", '[clock]\ntimezone = "Europe/Berlin"\n')
    files = files_of(config := StreamConfig.from_toml(text, base=tmp_path))
    assert files is not None
    (frame,) = files.read(tmp_path / "x.csv")
    assert encode(config, frame).ticks.tolist() == [0, 0, 1, 1, 1, 0] + [-1] * 6


def test_a_fraction_may_be_said_as_python_says_it() -> None:
    source = '[source]\nkind = "csv"\npath = "x.csv"\ndatetime_format = "%Y-%m-%d %H:%M:%S.%f"\n'
    files = files_of(StreamConfig.from_toml(stream_toml(WARD, source)))
    assert files is not None
    found = files.meant(pl.Series("when", ["2026-01-02 00:30:00.5", "2026-01-02 00:30:00"]))
    assert found.dt.microsecond().to_list() == [500_000, 0]


def test_an_offset_may_leave_out_its_minutes() -> None:
    texts = pl.Series(
        ["2026-01-02 00:30:00+01", "2026-01-02 00:30:00.5+0100", "2026-01-02 00:30:00+01:00", "2026-01-02"]
    )
    found = times_as(texts, ["%Y-%m-%d %H:%M:%S%.f%#z"])
    assert found.dt.to_string("%d %H:%M").to_list() == ["01 23:30"] * 3 + [None]


def test_lines_of_json_keep_every_cell_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    lines = [
        '{"a": 1e400, "b": "x"}',
        '{"b": [1], "c": 3}',
        "[1]",
        "",
        '{"a": true',
        '{"a": "01", "b": ""}',
        '{"a": null}',
    ]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    found = pl.concat(FileSource(kind="jsonl", path=path, columns=("a", "b")).read(path))
    assert found.rows() == [("1e400", "x"), (None, None), (None, None), (None, None), ("01", ""), (None, None)]


# -- coupling --------------------------------------------------------------------------------------------------------

_CELLS = st.sampled_from(
    ["", "1", "1,5", "1.250,00", "1.5", "x", "01.02.2010", "2010-02-01", "07:05", '"', "ü", "\x00", "1e9"]
)
_LINES = st.lists(st.lists(_CELLS, max_size=4), max_size=8)


def read(kind: FileKind, lines: list[str]) -> list[tuple[object, ...]]:
    """Rows of a file of these lines, where all dialects are at work."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes("\n".join(["n;t;c", *lines] if kind == "csv" else lines).encode("cp1252"))
        source = FileSource(
            kind=kind,
            path=path,
            columns=("n", "t", "c"),
            dialect=Dialect(delimiter=";", decimal=",", thousands=".", encoding="cp1252"),
            numbers=frozenset("n"),
            formats={"t": ("%d.%m.%Y", "%H:%M")},
        )
        return pl.concat(source.read(path)).rows()


@settings(max_examples=30)
@given(_LINES)
def test_no_line_changes_how_another_one_is_read(cells: list[list[str]]) -> None:
    """Of each kind of file: no type and no form is found by looking at other rows."""
    lines = [";".join(row) for row in cells]
    assert read("csv", lines) == [row for line in lines for row in read("csv", [line])]
    objects = [json.dumps(dict(zip("ntc", row, strict=False)))[: -1 if '"' in row else None] for row in cells]
    assert read("jsonl", objects) == [row for line in objects for row in read("jsonl", [line])]


_ROOM = 20, 32_000_000  # times the longest line, and bytes beside: as docs/theorems/availability.md says


@pytest.mark.sparing(3)
@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("jsonl", '{"n": "1", "t": [' + "[], " * 2**20 + "[]]}"),
        ("jsonl", '{"n": "1", ' + ", ".join(f'"{key:x}": {{}}' for key in range(2**17 - 2)) + "}"),
        ("jsonl", '{"n": "1", "t": "' + "\N{SNOWMAN}" * 2**20 + '\N{SNOWFLAKE}\U0001f328"}'),
        ("csv", "1;" + "ab;" * 2**19),
        ("csv", '"1";' + "ab;" * 2**19),
        ("csv", '1;"' + "ab" * 2**20 + '\U0001f328"'),
    ],
    ids=["lists", "keys", "wide", "cells", "quoted", "quoted-wide"],
)
def test_no_line_takes_much_more_memory_than_it_has_bytes(tmp_path: Path, kind: FileKind, line: str) -> None:
    """Where memory would not do, a row would decide whether there are releases."""
    path = tmp_path / "x"
    path.write_text("\n".join(["n;t", *[line] * 4] if kind == "csv" else [line] * 4))
    source = FileSource(kind=kind, path=path, columns=("n",), dialect=Dialect(delimiter=";"))
    tracemalloc.start()
    try:
        found = [cell for rows in source.read(path) for cell in rows["n"]]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [None if kind == "jsonl" and "[" in line else "1"] * 4
    assert peak < _ROOM[0] * len(line.encode()) + _ROOM[1]


def test_cells_beyond_what_is_looked_at_are_surplus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "_PARTS", 2)  # commas; those within quotation marks count, too
    text = 'a,b,c\nd,e,f,g\nh,"i,",j,k\nl,m,n,\n"o,p",q\n'
    header, rows = lines_module.rows_of(io.StringIO(text), Dialect())
    assert [header, *rows] == [["a", "b", "c"], ["d", "e", "f"], ["h", "i,"], ["l", "m", "n"], ["o,p", "q"]]


@pytest.mark.parametrize("row", ['x,y,,,,,"z\nx,y\n",,,,', '",,,,\n,,,,,",y', 'x,",,,,,,"'])
def test_a_row_of_several_lines_is_not_cut_so_that_it_takes_others(monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    monkeypatch.setattr(lines_module, "_PARTS", 2)
    text = f"a,b\n1,2\n{row}\n3,4\n"
    _, rows = lines_module.rows_of(io.StringIO(text), Dialect(multiline=True))
    first, _, last = rows
    assert (first, last) == (["1", "2"], ["3", "4"])


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "advice"),
    [
        ('delimiter = ";"\n', "", 'Its header has all columns with delimiter = ";" in [source], for all files.'),
        ('delimiter = ";"\n', "", "for all files. If others are not so, write this one anew as they are."),
        ('encoding = "windows-1252"\n', "", 'columns with encoding = "windows-1252" in [source], for all files.'),
        ("when", "wann", "is missing"),
        (
            'kind = "csv"\n',
            'kind = "csv"\nheader = 2\n',
            "If its first line is a row, write the names above it; or, if no file has them, say them in [source]: "
            "header = [...]. If in all files they stand further down, say in which line: header = 3.",
        ),
    ],
)
def test_a_wrong_dialect_is_refused_by_the_first_header_before_anything_is_counted(
    tmp_path: Path, old: str, new: str, advice: str
) -> None:
    text = stream_toml(COLUMNS, GERMAN, SINK).replace(old, new)
    (tmp_path / "export-1.csv").write_bytes(EXPORT.encode("cp1252"))
    (tmp_path / "export-2.csv").write_bytes(EXPORT.encode("cp1252").replace(b";", b","))
    config = StreamConfig.from_toml(text, base=tmp_path)
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        with pytest.raises(SchemaError, match="It is the first file of the source") as caught:
            list(stream.run())
        assert advice in str(caught.value)
        assert not any(cell in str(caught.value) for cell in ("Markt", "2026", "1.250"))
        assert stream.closed == 0
    assert not (tmp_path / "releases").exists()


def test_a_later_file_with_another_header_is_told_after_due_ticks(tmp_path: Path) -> None:
    (tmp_path / "export-1.csv").write_bytes(EXPORT.encode("cp1252"))
    (tmp_path / "export-2.csv").write_bytes(EXPORT.encode("cp1252").replace(b";", b","))
    config = StreamConfig.from_toml(stream_toml(COLUMNS, GERMAN, SINK), base=tmp_path)
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        with pytest.raises(FilesLeftOut, match=r'export-2\.csv.*with delimiter = ","'):
            list(stream.run())
        assert stream.closed == 5


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"a,b\n1,2\n"), "This is gzip: name it d.csv.gz"),
        (bytes(pa.compress(b"a,b\n1,2\n", "zstd", asbytes=True)), "This is zstd: name it d.csv.zst"),
        (b"PK\x03\x04\x14\x00", "This is a zip archive"),
        (b"PAR1\x15\x04PAR1", "This is Parquet"),
        (b'{"a": 1}\n', 'This is JSON: say kind = "jsonl", if each line is an object.'),
        (b'[{"a": 1}]\n', "This is JSON: write each object on a line of its own"),
        ("a,b\n1,2\n".encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        ("ä,ö\n1,2\n".encode("cp1252"), "The line of its header is no text in utf-8."),
        (b"sep=,\na,b\n1,2\n", "say header = 2 in [source]"),
        (b"A ,b\n1,2\n", "Did you mean 'A '?"),
        (b" A\n1\n", "Did you mean ' A'?"),
    ],
    ids=["gzip", "zstd", "zip", "parquet", "objects", "list", "utf-16", "windows", "sep", "blank", "blank-alone"],
)
def test_what_no_header_could_mend_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    """Its first bytes, and its names but for blanks and capitals, are public: nobody is sent after a header."""
    path = tmp_path / "d.csv"
    path.write_bytes(content)
    with pytest.raises(SchemaError) as caught:
        list(FileSource(kind="csv", path=path, columns=("a",)).read(path))
    assert said in str(caught.value)
    assert "header = [" not in str(caught.value)


@pytest.mark.parametrize("header", [3, ["a", "b"]])
def test_a_header_may_stand_lower_or_in_the_configuration(tmp_path: Path, header: object) -> None:
    path, above = tmp_path / "x.csv", "made by\n;;\na,b\n" if header == 3 else ""
    path.write_text(f"{above}1,2\n")
    source = FileSource(kind="csv", path=path, columns=("b",), dialect=Dialect.model_validate({"header": header}))
    assert pl.concat(source.read(path)).rows() == [("2",)]
    path.write_text("")
    if header == 3:
        with pytest.raises(FileDamaged, match="not even a header"):
            source.names(path)


@pytest.mark.parametrize("end", [".gz", ".zst"])
def test_a_packed_file_that_ends_early_counts_nothing(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"x.csv{end}"
    whole = packed(path.name, b"a,b\n" + b"".join(b"%d,SECRET\n" % i for i in range(99_999)))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match="truncated") as caught:
        list(FileSource(kind="csv", path=path, columns=("a",)).read(path))
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('kind = "parquet"\n', 'by their names its files are csv. Say kind = "csv"'),
        ('delimiter = ";;"', "source.delimiter"),
        ('delimiter = "\\n"', "source.delimiter"),
        ('delimiter = ";"\nquote = ";"', "quote: is delimiter too"),
        ('decimal = ","\nthousands = ","', "thousands: is decimal too"),
        ('decimal = "x"', "source.decimal"),
        ('encoding = "utf-16"', "a byte for each character"),
        ('encoding = "unicode_escape"', "a byte for each character"),
        ('encoding = "shift_jis"', "a byte for each character"),
        ('encoding = "iso-2022-jp"', "a byte for each character"),
        ('encoding = "cp037"', "a byte for each character"),
        ('encoding = "latin-17"', "a byte for each character"),
        ("header = 0", "in which line"),
        ('header = ["a", 1]', "in which line"),
        ('datetime_format = "DD.MM.YYYY"', "no form of a date"),
        ('datetime_format = "%H:%M %p"', "%p goes with %I, not with %H"),
        ('datetime_format = "%H"', "a number of hours alone is an integer"),
        ('datetime_format = { when = ["%d.%m.%Y", "%d.%m.%Y %H:%M%z"] }', "have none"),
        ('datetime_format = { when = ["%d.%m.%Y", "milliseconds"] }', "have none"),
        ('datetime_format = { wann = "%d.%m.%Y" }', "'wann' is neither"),
        ('datetime_format = { ward = "%d.%m.%Y" }', "'ward' is neither"),
        ("datetime_format = 3", "say a form"),
    ],
)
def test_what_is_no_dialect_is_told(line: str, says: str) -> None:
    kind = "" if "kind" in line else 'kind = "csv"\n'
    with pytest.raises(ConfigError) as caught:
        StreamConfig.from_toml(stream_toml(WARD, f'[source]\n{kind}path = "x.csv"\n{line}\n'))
    assert says in str(caught.value)


def test_how_a_file_is_read_is_no_setting_of_the_stream() -> None:
    plain = StreamConfig.from_toml(stream_toml(COLUMNS, '[source]\nkind = "csv"\npath = "x.csv"\n'))
    assert StreamConfig.from_toml(stream_toml(COLUMNS, GERMAN)).public_json() == plain.public_json()
