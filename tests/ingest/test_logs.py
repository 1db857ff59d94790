"""[source] of a table or topic: which keys go with which kind, and what a message says. No server is needed."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from synthstream.config import servers
from synthstream.config.config import StreamConfig
from synthstream.config.sources import KafkaConfig, PostgresConfig
from synthstream.errors import ConfigError, SourceError
from synthstream.ingest.counting import encode, file_of
from synthstream.ingest.cursors import cursor_of, place_in, short
from synthstream.ingest.logs import opened
from synthstream.stream import succession
from tests.support.streams import text_of

_FILES = 'kind = "parquet"\npath = "rows-*.parquet"'


def read(source: str, folder: Path) -> StreamConfig:
    assert _FILES in text_of("always")
    return StreamConfig.from_toml(text_of("always").replace(_FILES, source), base=folder)


def test_a_table(tmp_path: Path) -> None:
    config = read('kind = "postgres"\ntable = "public.visits"\nsequence = "id"\nservice = "city"', tmp_path)
    assert config.source is None
    assert config.log == PostgresConfig(kind="postgres", table="public.visits", sequence="id", service="city")
    assert config.log.name == "postgres public.visits"
    assert config.public_json() == read(_FILES, tmp_path).public_json()  # no release depends on where rows come from


def test_a_topic(tmp_path: Path) -> None:
    config = read('kind = "kafka"\ntopic = "visits"\nconfig_file = "kafka.properties"', tmp_path)
    assert config.source is None
    assert config.log == KafkaConfig(kind="kafka", topic="visits", config_file=tmp_path / "kafka.properties")
    assert config.log.name == "kafka visits"


@pytest.mark.parametrize(
    "log", ['kind = "postgres"\ntable = "visits"\nsequence = "id"', 'kind = "kafka"\ntopic = "visits"']
)
def test_how_a_log_writes_times_reaches_what_reads_it(tmp_path: Path, log: str) -> None:
    plain, config = read(log, tmp_path), read(f'{log}\ndatetime_format = "milliseconds"', tmp_path)
    assert config.log is not None
    assert config.clock.column is not None
    assert vars(opened(config, config.log))["_forms"] == {config.clock.column: ("milliseconds",)}
    assert file_of(config, tmp_path / "export.csv").formats == {config.clock.column: ("milliseconds",)}
    frame = pl.DataFrame({config.clock.column: ["1767484800000"], "ward": ["A"], "x": ["1"]})
    frame.write_csv(tmp_path / "export.csv")
    frame.with_columns(pl.col(config.clock.column).cast(pl.Int64)).write_parquet(tmp_path / "export.parquet")
    for name, tick in (("export.csv", 3), ("export.parquet", -1)):  # docs/guides/corrections.md says so
        (rows,) = file_of(config, tmp_path / name).read(tmp_path / name)
        assert encode(config, rows).ticks.tolist() == [tick]
    assert config.public_json() == plain.public_json()
    assert succession._reading(config) != succession._reading(plain)  # so --read-again is refused


def test_files_are_as_ever(tmp_path: Path) -> None:
    config = read(_FILES, tmp_path)
    assert config.log is None
    assert config.source is not None
    assert config.source.path == tmp_path / "rows-*.parquet"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('kind = "postgres"\ntable = "visits"', "source.sequence: this key is required"),
        ('kind = "postgres"\nsequence = "id"', "source.table: this key is required"),
        ('kind = "kafka"', "source.topic: this key is required"),
        ('kind = "parquet"', "source.path: this key is required"),
        (
            'kind = "kafka"\ntopic = "t"\npath = "x"',
            'path: has no effect with kind = "kafka", whose keys are datetime_format, topic, format, encoding',
        ),
        (
            'kind = "kafka"\ntopic = "t"\nformat = "debezium"\ndatetime_format = "milliseconds"',
            "datetime_format: times of changes are read as ISO 8601",
        ),
        ('kind = "kafka"\ntopic = "t"\ndatetime_format = { wann = "seconds" }', "'wann' is neither"),
        ('kind = "csv"\npath = "x"\ntable = "t"', 'table: has no effect with kind = "csv"'),
        ('kind = "kafka"\ntopic = "a b"', "source.topic"),
        ('kind = "postgres"\ntable = "t"\nsequence = "i"\nservice = "a b"', "source.service"),
        ('kind = "postgres"\ntable = "t"\nsequence = "i"\npassword = "p"', "there is no such key"),
        ('kind = "mysql"', "must be one of parquet, csv, jsonl, postgres, kafka"),
    ],
)
def test_keys_that_do_not_go_together_are_told(tmp_path: Path, source: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(source, tmp_path)
    assert says in str(caught.value)


def test_a_cursor_is_good_for_its_own_log_only() -> None:
    cursor = cursor_of("kafka a/b/c", {"0": 17})
    assert place_in(cursor, "kafka a/b/c", name="kafka b") == {"0": 17}
    assert place_in(None, "kafka a/b/c", name="kafka b") is None
    assert place_in(cursor, "kafka other", name="kafka b", moved=short("kafka a/b/c")) == {"0": 17}
    with pytest.raises(SourceError, match="from another log") as caught:
        place_in(cursor, "kafka other", name="kafka b")
    assert "17" not in str(caught.value).replace(short("kafka other"), "").replace(short("kafka a/b/c"), "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("server does not support SSL, but SSL was required", "Check PGSSLMODE"),
        ('root certificate file "/CANARY/root.crt" does not exist', "Check PGSSLMODE"),
        ("SSL error: certificate verify failed", "Check PGSSLMODE"),
        ('FATAL: no pg_hba.conf entry for host "CANARY", user "CANARY", database "CANARY", SSL off', "pg_hba.conf"),
        ('FATAL: database "CANARY too many" does not exist', "Set PGDATABASE"),
        ('FATAL: permission denied for database "CANARY"', "GRANT CONNECT"),
        ('invalid integer value "CANARY" for connection option "port"', "no number"),
        ('connection to server at "CANARY", port 1 failed: Connection refused', "no server answers there"),
    ],
)
def test_why_a_server_cannot_be_reached_is_told_in_our_words(text: str, says: str) -> None:
    why = servers._why(text, None)
    assert says in why
    assert "CANARY" not in why
