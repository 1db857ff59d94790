"""Passwords that stand in a configuration, where none belongs, are in no message."""

from __future__ import annotations

import pytest

from synthstream.config.config import StreamConfig
from synthstream.errors import ConfigError
from tests.support.configs import GOOD, source

POSTGRES = '[source]\nkind = "postgres"\ntable = "t"\nsequence = "id"\n'


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (f'{POSTGRES}service = "host=h password=hunter2, x"\n', "service = 'host=h password=...': use letters"),
        (f'{POSTGRES}service = "postgresql://u:hunter2@x/@h/db"\n', "service = 'postgresql://...@h/db': use letters"),
        (f'{POSTGRES}service = {{ password = "hunter2" }}\n', "source.service = {'password': ...'}: "),
        (f'{POSTGRES}password = "hunter2"\n', "source.password: there is no such key here"),
        (source("s3://KEY:hunter2@bucket/*.parquet"), "'s3://...@bucket/*.parquet': name the place alone"),
        (source("s3://KEY:hunter2/x@bucket/*.parquet"), "'s3://...@bucket/*.parquet': name the place alone"),
        (source("postgresql://u:hunter2@h/db"), "source.path = 'postgresql://...@h/db': use a path"),
        ('[[mirror]]\nkind = "files"\npath = "s3://u:hunter2@h/x"\n', "'s3://...@h/x': name the place alone"),
        ('[[mirror]]\nkind = "delta"\npath = "s3://KEY:hunter2@h/x"\n', "'s3://...@h/x': name the place alone"),
        ('[[mirror]]\nkind = "delta"\npath = "abfss://c@a/x?sig=hunter2"\n', "'abfss://...@a/x?...': name the place"),
        ('[[mirror]]\nkind = "delta"\npath = "s3a://KEY:a/hunter2@h/x"\n', "'s3a://...@h/x': name the place alone"),
        (source("s3://b/*.parquet?se%3D1&sig=hunter2"), "'s3://b/*.parquet?...': name the place alone"),
        (source("s3://b/*.parquet?region=eu&secret_key=hunter2"), "'s3://b/*.parquet?...': name the place alone"),
        (source("https://b.s3.amazonaws.com/v?X-Amz-Signature=hunter2"), "amazonaws.com/v?...': use a path"),
        ('[encryption]\nkey_command = ["vault", "-t", "hunter2"]\n', "encryption.key_command = '...': input should"),
    ],
)
def test_a_password_is_not_repeated(section: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        StreamConfig.from_toml(GOOD + section)
    assert said in str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("path", ["s3://b/20?6/day=?/a@b.parquet", "gs://b/*/year=2026/*.parquet"])
def test_what_is_no_password_may_stand_in_an_address(path: str) -> None:
    config = StreamConfig.from_toml(GOOD + source(path))
    assert config.source is not None
    assert str(config.source.path) == path
