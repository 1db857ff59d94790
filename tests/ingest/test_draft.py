"""Drafts: of names, declared types and public codebooks; no row is read."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from synthstream import StreamConfig
from synthstream.errors import SchemaError, SourceError
from synthstream.ingest.draft import draft

HEADER = "Tag;Patient_ID;E-Mail;Abteilung;Alter;Größe\n"
BOOK: dict[str, Any] = {
    "fields": [
        {"name": "Tag", "type": "date", "format": "%d.%m.%Y"},
        {"name": "Patient_ID", "type": "string"},
        {"name": "Abteilung", "type": "string", "constraints": {"enum": ["A", 'the "B"']}},
        {"name": "Alter", "type": "integer", "constraints": {"minimum": 0, "maximum": 120}},
        {"name": "Größe", "type": "number", "decimalChar": ",", "constraints": {"minimum": "0.4"}},
        {"name": "Notiz", "type": "string"},
    ]
}


def filled(text: str) -> StreamConfig:
    """A draft with its open places filled in."""
    for key, value in {
        "epsilon": "1.0",
        "unit": '"event"',
        "start": "2026-01-01",
        "horizon": "10",
        "max": "3.0",
    }.items():
        text = text.replace(f"\n{key} = TODO-public", f"\n{key} = {value}")
    return StreamConfig.from_toml(text)


def test_a_header_alone_says_what_parts_it_and_who_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "SECRET,SECRET\n").encode("cp1252")))
    text = draft(path)
    assert 'delimiter = ";"\nencoding = "windows-1252"\n' in text
    assert [line for line in text.splitlines() if line.startswith("name =")] == [
        f'name = "{name}"' for name in ("visits", "Tag", "Abteilung", "Alter", "Größe")
    ]
    assert 'somebody: "Patient_ID"' in text
    assert 'somebody: "E-Mail"' in text
    assert '# unit = { person = "Patient_ID", max_events = TODO-public }' in text
    assert "SECRET" not in text
    assert "\n# datetime_format =" in text
    assert "\n# decimal =" in text
    assert all(f"\n# {key} =" in text for key in ("path", "timezone", "multiline"))


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("in/2026.01.CSV", "in/*.CSV"), ("a.csv.gz", "*.csv.gz"), ("x/visits.tsv", "x/*.tsv")],
)
def test_the_pattern_beside_a_file_ends_as_it_does(tmp_path: Path, name: str, pattern: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(gzip.compress(b"day,kind\n") if name.endswith(".gz") else b"day,kind\n")
    assert f'\n# path = "{tmp_path}/{pattern}" ' in draft(tmp_path / name)


def test_lines_of_json_are_told_what_to_draft_from(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"SECRET": 1}\n')
    with pytest.raises(SourceError, match="a CSV file that holds the names of the keys alone") as caught:
        draft(tmp_path / "log.jsonl")
    assert "SECRET" not in str(caught.value)


def test_a_latitude_and_a_longitude_are_a_place(tmp_path: Path) -> None:
    path = tmp_path / "trips.csv"
    path.write_text("day,kind,pickup_lat,pickup_lng,Latitude,Longitude,dropoff_lat,place\n")
    text = draft(path)
    assert '\nname = "pickup_place"\ntype = "place"\ncoordinates = ["pickup_lat", "pickup_lng"]\n' in text
    assert '\nname = "place2"\ntype = "place"\ncoordinates = ["Latitude", "Longitude"]\n' in text
    assert '\nname = "pickup_lat"\n' not in text
    assert '\nname = "dropoff_lat"\n' in text  # which has no longitude
    assert "bounds = [[TODO-public, TODO-public], [TODO-public, TODO-public]]" in text
    filled_in = text.replace("[[TODO-public, TODO-public], [TODO-public, TODO-public]]", "[[32, 37], [-122, -114]]")
    filled_in = filled_in.replace("\nunit = TODO-public", '\nunit = "event"')
    for line in ("column = TODO-public", "type = TODO-public", "start = TODO-public", "= TODO-public"):
        value = {"column = TODO-public": 'column = "day"', "start = TODO-public": "start = 2026-01-01"}
        filled_in = filled_in.replace(line, value.get(line, 'type = "boolean"' if "type" in line else "= 1"))
    config = StreamConfig.from_toml(filled_in)
    assert list(config.schema.places) == ["pickup_place", "place2"]


def test_what_sort_of_person_it_is_identifies_nobody(tmp_path: Path) -> None:
    (path := tmp_path / "trips.csv").write_text("day,user_type,member_casual,memberClass,user_type_id,rider\n")
    text = draft(path)
    left = [line.split(": ")[1] for line in text.splitlines() if line.startswith("# Left out")]
    assert left == ['"user_type_id"', '"rider"']


def test_what_cannot_be_printed_is_escaped_as_toml_does(tmp_path: Path) -> None:
    names = ["ward", "w\x1b", "w\u200b", "w\U000e0001"]
    (path := tmp_path / "visits.csv").write_text(",".join(names) + "\n")
    lines = [line for line in draft(path).splitlines() if line.startswith('name = "w')]
    assert lines[-1] == 'name = "w\\U000e0001"'
    assert [tomllib.loads(line)["name"] for line in lines] == names


def test_a_delta_table_is_drafted_from_one_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "lake" / "_delta_log").mkdir(parents=True)
    with pytest.raises(SourceError, match="Name one of its Parquet files"):
        draft(tmp_path / "lake")


@pytest.mark.parametrize("header", ["lat,lon", "lat,event_time,lon"])
def test_coordinates_alone_are_points(tmp_path: Path, header: str) -> None:
    path = tmp_path / "points.csv"
    path.write_text(header + "\n")
    text = draft(path).replace("\ncolumn = TODO-public", "\n# no clock").replace("\nmin = TODO-public", "\nmin = 0")
    config = filled(text.replace("missing = TODO-public", "missing = 1"))
    assert (config.synthesizer.kind, config.schema.names) == ("points", ("lat", "lon"))
    assert config.clock.column == ("event_time" if "time" in header else None)


def test_coordinates_beside_another_column_are_a_place(tmp_path: Path) -> None:
    (path := tmp_path / "trips.csv").write_text("lat,lon,kind\n")
    assert 'type = "place"' in draft(path)


def test_a_name_that_tables_of_counts_need_is_drafted_as_another(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ward,z\n")
    assert 'name = "my_z" ' in (text := draft(tmp_path / "a.csv"))
    assert '\nfrom = "z"\n' in text
    assert 'name = "ward"\n' in text


def test_a_file_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="this is a folder"):
        draft(tmp_path)
    with pytest.raises(SourceError, match="No such file"):
        draft(tmp_path / "visits.csv")
    with pytest.raises(SourceError, match="This is a pattern: name one of its files"):
        draft(tmp_path / "visits-*.csv")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("01.02.2026;01:05;Südbad;12,21;;P157\n".encode(), "its first line seems to be a row"),
        (b'{"day": "2026-01-31", "key": "P157"}\n', "its first line is JSON, no header"),
        (b"sep=;\nday;ward\n", "names the separator alone"),
        (b"7;2026-01-31;P157;7\n", "its first line seems to be a row"),
        (b"day;P157;day\n", "If it is a header, give each column a name of its own in the file"),
        (b"day;P157;day;age;age\n", r"there twice, or several are empty \(columns 1, 3, 4, 5\)\. If"),
        (b"day;P157;;\n", r"or several are empty \(columns 3, 4\)\. If"),
        (b"P157" + b";day" * 99, r"\(columns 2, 3, 4, 5, 6, 7 and 93 more\)"),
        ("day;ward\n".encode("utf-16"), "no text in UTF-8 or windows-1252"),
        (b"PK\x03\x04\x14\0\x08rows.csv", "no text in UTF-8 or windows-1252"),
    ],
)
def test_a_first_line_that_is_no_header_is_not_quoted(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(SourceError, match=says) as told:
        draft(tmp_path / "x.csv")
    assert not any(cell in str(told.value) for cell in ("Südbad", "P157"))


def test_a_codebook_fills_in_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_bytes(HEADER.encode())
    (tmp_path / "book.json").write_text(json.dumps(BOOK))
    config = filled(draft(tmp_path / "visits.csv", codebook=tmp_path / "book.json"))
    assert config.clock.column == "Tag"
    assert config.schema.names == ("Abteilung", "Alter", "Größe")
    assert config.schema.labels[0] == ("A", 'the "B"', "other", "missing")
    assert config.schema.sizes[1] == 122
    assert config.source is not None
    assert dict(config.source.formats) == {"Tag": ("%d.%m.%Y",)}
    assert (config.source.dialect.delimiter, config.source.dialect.decimal) == (";", ",")


def test_the_weekday_of_the_clock_is_offered(tmp_path: Path) -> None:
    """Behind signs of comments, which are all that has to go."""
    (tmp_path / "visits.csv").write_text("Tag,Abteilung\n")
    (tmp_path / "book.json").write_text(json.dumps(BOOK | {"fields": BOOK["fields"][:1] + BOOK["fields"][2:3]}))
    text = draft(tmp_path / "visits.csv", codebook=tmp_path / "book.json")
    begin = text.index("# [[columns]]")
    found = filled(text[:begin] + text[begin:].replace("\n# ", "\n").removeprefix("# "))
    (weekday,) = [column for column in found.schema.columns if column.name == "weekday"]
    assert (weekday.read_from, found.clock.column) == ("Tag", "Tag")


def test_a_package_says_which_of_its_files_it_means_and_lines_of_json_need_one(tmp_path: Path) -> None:
    path, book = tmp_path / "b.jsonl", tmp_path / "datapackage.json"
    path.write_text('{"Tag": "SECRET"}\n')
    with pytest.raises(SourceError, match="Name a --codebook"):
        draft(path)
    other = {"fields": [{"name": "wrong", "type": "string"}]}
    book.write_text(
        json.dumps({"resources": [{"path": "a.jsonl", "schema": other}, {"path": "data/b.jsonl", "schema": BOOK}]})
    )
    text = draft(path, codebook=book)
    assert 'name = "Notiz"' in text
    assert "wrong" not in text
    assert "SECRET" not in text
    with pytest.raises(SchemaError, match="'op' is missing"):
        draft(path, codebook=book, op="op")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"fields": [{}]}', '{"resources": []}', '{"resources": [{}, {}]}', "null"]
)
def test_what_is_no_codebook_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "visits.csv").write_bytes(HEADER.encode())
    (tmp_path / "book.json").write_text(text)
    with pytest.raises(SourceError, match="no Table Schema"):
        draft(tmp_path / "visits.csv", codebook=tmp_path / "book.json")
    with pytest.raises(SourceError, match="nowhere"):
        draft(tmp_path / "visits.csv", codebook=tmp_path / "nowhere.json")
