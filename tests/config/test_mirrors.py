"""[[mirror]] kind = "postgres" in a configuration: what is read, and what is refused before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from synthstream import StreamConfig
from synthstream.config.tablenames import TableName
from synthstream.errors import ConfigError
from synthstream.publish.outlets import simulated
from tests.support.streams import configured, text_of

SOURCE = 'kind = "parquet"\npath = "rows-*.parquet"'


def mirror(table: str, more: str = "") -> str:
    return f"[[mirror]]\nkind = \"postgres\"\ntable = '{table}'\n{more}\n"


def read(folder: Path, more: str, kind: str = "always", source: str = SOURCE) -> StreamConfig:
    return StreamConfig.from_toml(text_of(kind).replace(SOURCE, source) + more, base=folder)


@pytest.mark.parametrize(
    ("text", "schema", "table", "written"),
    [
        ("evictions", None, "evictions", "evictions"),
        ("Open.Evictions_2", "open", "evictions_2", "open.evictions_2"),
        ('"Open"."a ""b"". c"', "Open", 'a "b". c', '"Open"."a ""b"". c"'),
        ('"plain"', None, "plain", "plain"),
        ("a$", None, "a$", '"a$"'),
        ('é."x"', None, None, None),
        ('"é"."x"', "é", "x", '"é".x'),
        ("a.b.c", None, None, None),
        ("a b", None, None, None),
        ("1a", None, None, None),
        ('""', None, None, None),
        ("a;DROP TABLE b", None, None, None),
        ("a\n", None, None, None),
        ('"a"b"', None, None, None),
    ],
)
def test_names_of_tables_are_read_as_sql_reads_them(
    text: str, schema: str | None, table: str | None, written: str | None
) -> None:
    if table is None:
        with pytest.raises(ConfigError, match="is not the name of a table"):
            TableName.read(text)
        return
    name = TableName.read(text)
    assert (name, str(name)) == ((schema, table), written)
    assert TableName.read(str(name)) == name


def test_a_table_is_read_and_where_noise_is_simulated_nothing_is_copied(tmp_path: Path) -> None:
    found = read(tmp_path, mirror("Open.Rows", 'service = "publishing"') + mirror('open."t t"', 'content = "tables"'))
    assert [one.model_dump(exclude={"kind"}) for one in found.mirrors] == [
        {"table": "open.rows", "service": "publishing", "content": "rows"},
        {"table": 'open."t t"', "service": None, "content": "tables"},
    ]
    assert simulated(found).mirrors == ()
    assert found.public_json() == configured(tmp_path, "always").public_json(), "no release depends on it"
    assert read(tmp_path, mirror("x" * 54)).mirrors


REFUSED = [
    (mirror("a b"), "is not the name of a table"),
    (mirror("x" * 55), "is too long"),
    (mirror("é" * 30), "is not the name of a table"),
    (mirror('"' + "é" * 30 + '"'), "is too long"),
    (mirror("a", 'path = "b"'), 'path: has no effect with kind = "postgres"'),
    ('[[mirror]]\nkind = "postgres"', 'mirror.table: this key is required for kind = "postgres"'),
    ('[[mirror]]\nkind = "delta"', 'mirror.path: this key is required for kind = "delta"'),
    (
        '[[mirror]]\nkind = "files"\npath = "copy"',
        "mirror.path = 'copy': use an address .*; a folder takes kind = \"delta\"",
    ),
    ('[[mirror]]\nkind = "delta"\npath = "a"\nservice = "b"', "service: has no effect"),
    (mirror("a", 'service = "host=x password=y"'), "service"),
    (mirror("a", 'user = "me"'), r"there is no such key here\..* Allowed: kind, table, service, content$"),
    (mirror("s.a") + mirror("S.A"), "is another place"),
    (mirror("a") + mirror("public.a"), "is another place"),
    (mirror("s.a") + mirror("s.a_manifest"), "is another place"),
]


@pytest.mark.parametrize(("more", "says"), REFUSED, ids=[more.replace("\n", " ")[26:80] for more, _ in REFUSED])
def test_tables_that_cannot_be_are_refused(tmp_path: Path, more: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(tmp_path, more)


def test_tables_of_other_schemas_or_services_are_others(tmp_path: Path) -> None:
    more = mirror("s.a") + mirror("r.a") + mirror("s.a", 'service = "mine"')
    assert len(read(tmp_path, more).mirrors) == 3


@pytest.mark.parametrize("table", ["public.events", "events", "PUBLIC.Events"])
@pytest.mark.parametrize("end", ["", "_manifest"])
def test_the_table_of_the_source_is_refused(tmp_path: Path, table: str, end: str) -> None:
    source = f'kind = "postgres"\ntable = "public.events{end}"\nsequence = "id"'
    with pytest.raises(ConfigError, match=r"is the table of \[source\], or may be"):
        read(tmp_path, mirror(table), source=source)
    assert read(tmp_path, mirror("open.events"), source=source).mirrors


def test_columns_that_postgresql_cannot_have_are_refused(tmp_path: Path) -> None:
    for name, says in (("xmin", "a column of its own"), ("é" * 32, "too long for PostgreSQL")):
        text = text_of("always").replace('name = "ward"', f'name = "{name}"')
        with pytest.raises(ConfigError, match=says):
            StreamConfig.from_toml(text + mirror("a"), base=tmp_path)
        assert StreamConfig.from_toml(text + mirror("a", 'content = "tables"'), base=tmp_path).mirrors
    text = text_of("points").replace('name = "x"', f'name = "{"x" * 60}"')
    assert StreamConfig.from_toml(text + mirror("a"), base=tmp_path).mirrors
    with pytest.raises(ConfigError, match="too long for PostgreSQL"):
        StreamConfig.from_toml(text + mirror("a", 'content = "tables"'), base=tmp_path)


@pytest.mark.parametrize("address", ["file://{}/state/copy", "FILE://localhost{}/st%61te", "file://{}/releases/copy"])
def test_an_address_of_a_folder_lies_apart_as_the_folder_does(tmp_path: Path, address: str) -> None:
    more = f'[[mirror]]\nkind = "delta"\npath = "{address.format(tmp_path)}"\n'
    with pytest.raises(ConfigError, match="neither may lie in the other"):
        read(tmp_path, more)
