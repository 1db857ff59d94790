"""What a stream publishes is not what it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from synthstream.config.config import StreamConfig
from synthstream.config.sources import may_fit
from synthstream.errors import ConfigError
from tests.support.configs import GOOD, source

DELTA = '[[mirror]]\nkind = "delta"\npath = "lake"\n'


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("/a/*.csv", "/a/x.csv", True),
        ("/a/*.csv", "/a/b/../x.csv", True),
        ("/a/*.csv", "/a/b/x.csv", False),
        ("/a/**/*.csv", "/a/x.csv", True),
        ("/a/**/*.csv", "/a/b/c/x.csv", True),
        ("/a/**/*.csv", "/b/x.csv", False),
        ("/a/**", "/a/b/c/x.csv", True),
        ("/a/x.csv", "/a/x.csv", True),
        ("/a/x.csv", "/a/y.csv", False),
    ],
)
def test_what_may_fit(pattern: str, path: str, fits: bool) -> None:
    assert may_fit(Path(pattern), Path(path)) is fits


def test_a_link_leads_there_too(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    assert may_fit(tmp_path / "in/*.csv", tmp_path / "link/x.csv")
    assert may_fit(tmp_path / "link/*.csv", tmp_path / "in/x.csv")


@pytest.mark.parametrize(
    ("path", "mirror", "place"),
    [("**/*.parquet", "", "releases"), ("*/*/rows*", "", "releases"), ("*/*.parquet", DELTA, "lake")],
)
def test_releases_do_not_count_as_events(tmp_path: Path, path: str, mirror: str, place: str) -> None:
    StreamConfig.from_toml(GOOD + source("in/**/*.parquet") + mirror, base=tmp_path)
    with pytest.raises(ConfigError, match=f"what is published in '{place}' fits the path of .source.*would count as"):
        StreamConfig.from_toml(GOOD + source(path) + mirror, base=tmp_path)
