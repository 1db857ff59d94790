"""Object stores over real HTTP, against moto's server: what is read and copied there is what it is on a disk."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import moto.settings
import polars as pl
import pytest

from synthstream import StreamConfig, releases
from synthstream.config import objects as objects_module
from synthstream.config.objects import ObjectPath
from synthstream.environment import Env
from synthstream.errors import ConfigError, FilesLeftOut, MirrorError, SinkError, SourceError
from synthstream.ingest.files import FileSource
from tests.services.objects import KEY, SECRET, Store
from tests.support.environments import Interrupting, When
from tests.support.mirrors import opened
from tests.support.streams import TICKS, published, rows, text_of


@pytest.fixture
def bucket(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectPath]:
    """A new bucket, and the environment of its reader."""
    for key, value in store.environment().items():
        monkeypatch.setenv(key, value)
    objects_module._store.cache_clear()
    yield store.bucket()
    objects_module._store.cache_clear()


def parquet(frame: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


def configured(folder: Path, *sections: str, path: str | None = None) -> StreamConfig:
    """A stream that reads files, here or from a store."""
    folder.mkdir(exist_ok=True)
    text = text_of("always")
    text = text if path is None else text.replace('path = "rows-*.parquet"', f'path = "{path}"')
    (folder / "stream.toml").write_text("".join([text, *sections]))
    return StreamConfig.from_toml("".join([text, *sections]), base=folder)


def mirror(place: object) -> str:
    return f'[[mirror]]\nkind = "files"\npath = "{place}"\n'


def ran(config: StreamConfig, env: Any = None) -> None:
    with opened(config, env) as stream:
        for _ in stream.run():
            pass


def below(place: ObjectPath) -> dict[str, bytes]:
    """Every object below a folder."""
    start = len(place.parts)
    found = {"/".join(path.parts[start:]): path for path in place.glob("**")}
    return {name: path.read_bytes() for name, path in found.items() if not path.is_dir()}


def test_a_stream_reads_a_store_as_it_reads_a_disk(bucket: ObjectPath, tmp_path: Path) -> None:
    local, config = configured(tmp_path / "local"), configured(tmp_path / "store", path=f"{bucket}/in/rows-*.parquet")
    for number in range(3):
        frame = rows(200, number)
        frame.write_parquet(local.base / f"rows-{number}.parquet")
        (bucket / "in" / f"rows-{number}.parquet").put(parquet(frame))
    (other := bucket / "in" / "other.parquet").put(b"not ours")
    assert abs(Env().appeared(other) - datetime.now(UTC)) < timedelta(minutes=1)
    ran(local)
    ran(config)
    assert published(config.base / "releases") == published(local.base / "releases")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_rows_of_an_object_are_those_of_a_file(bucket: ObjectPath, tmp_path: Path, kind: Any) -> None:
    frame = rows(5000, 1)
    file = tmp_path / f"rows.{kind}"
    frame.write_parquet(file) if kind == "parquet" else frame.write_csv(file)
    place = bucket / "deep" / file.name
    place.put(file.read_bytes())
    columns = tuple(frame.columns)
    here = FileSource(kind=kind, path=file, columns=columns)
    there = FileSource(kind=kind, path=ObjectPath(f"{bucket}/**/*.{kind}"), columns=columns)
    assert there.files() == [place]
    assert FileSource(kind=kind, path=ObjectPath(f"{bucket}/*"), columns=columns).files() == []  # deep/ is a folder
    assert str(there.files()[0]) == f"{bucket}/deep/rows.{kind}"
    assert pl.concat(there.read(place)).equals(pl.concat(here.read(file)))
    assert there.parts(place) == here.parts(file)


def test_an_object_counts_once_and_one_that_was_written_again_is_told(bucket: ObjectPath, tmp_path: Path) -> None:
    config = configured(tmp_path, path=f"{bucket}/rows-*.parquet")
    (bucket / "rows-1.parquet").put(parquet(rows(200, 1)))
    with opened(config) as stream:
        assert (stream.ingest(), stream.ingest()) == (1, 0)
        (bucket / "rows-2.parquet").put(b"damaged")
        (bucket / "rows-1.parquet").put(parquet(rows(201, 1)))
        with pytest.raises(FilesLeftOut) as left:
            list(stream.run())
        assert stream.closed == TICKS
    words = left.value.findings
    assert [str(path) for path in words] == [f"{bucket}/rows-{number}.parquet" for number in (1, 2)]
    assert "is not what it was when it was counted" in words[bucket / "rows-1.parquet"]
    assert "cannot be read as parquet: it may be truncated" in words[bucket / "rows-2.parquet"]


def test_files_that_moved_to_a_store_do_not_count_again(bucket: ObjectPath, tmp_path: Path) -> None:
    """Names say that they moved; the content is told by another fingerprint there, and nothing of it counts twice."""
    config = configured(tmp_path)
    rows(200, 1).write_parquet(tmp_path / "rows-1.parquet")
    with opened(config) as stream:
        stream.ingest()
    (bucket / "rows-1.parquet").put((tmp_path / "rows-1.parquet").read_bytes())
    config = configured(tmp_path, path=f"{bucket}/rows-*.parquet")
    with opened(config) as stream, pytest.raises(SourceError, match="If they were moved, say"):
        stream.ingest()


@pytest.mark.sparing(2, 3)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_run_that_ends_anywhere_counts_each_object_once(
    bucket: ObjectPath, tmp_path: Path, number: int, when: When
) -> None:
    """Ten ends, each at another commit."""
    config = configured(tmp_path, path=f"{bucket}/rows-*.parquet")
    for part in range(5):
        (bucket / f"rows-{part}.parquet").put(parquet(rows(50, part)))

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran(config, Interrupting(stop, at="commit counts", number=number, when=when))
    ran(config)
    local = configured(tmp_path / "local")
    for part in range(5):
        rows(50, part).write_parquet(local.base / f"rows-{part}.parquet")
    ran(local)
    assert published(config.base / "releases") == published(local.base / "releases")


def test_a_mirror_holds_what_the_sink_holds_and_readers_read_it(bucket: ObjectPath, tmp_path: Path) -> None:
    config = configured(tmp_path, mirror(bucket / "open"))
    rows(300, 1).write_parquet(tmp_path / "rows-1.parquet")
    ran(config)
    ours = {name: content for name, content in published(tmp_path / "releases").items() if "/" in name}
    assert below(bucket / "open") == ours
    here, there = releases(tmp_path / "stream.toml"), releases(tmp_path / "stream.toml", copy=str(bucket / "open"))
    assert len(there) == len(here) == TICKS
    assert there.last.rows(20).equals(here.last.rows(20))
    assert there.at(3).table(["ward"]).equals(here.at(3).table(["ward"]))
    assert (
        there.between("2026-01-02", "2026-01-05")
        .table(["ward"])
        .equals(here.between("2026-01-02", "2026-01-05").table(["ward"]))
    )


@pytest.mark.sparing(1, 3)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("at", "number"),
    [("put rows.parquet", 2), ("put tables.parquet", 1), ("put measured.parquet", 3), ("put manifest.json", 1),
     ("put manifest.json", 8)],
)  # fmt: skip
def test_a_copy_that_ends_anywhere_is_made_whole_and_none_is_seen_before(
    bucket: ObjectPath, tmp_path: Path, at: str, number: int, when: When
) -> None:
    config = configured(tmp_path, mirror(bucket / "open"))
    rows(300, 1).write_parquet(tmp_path / "rows-1.parquet")

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran(config, Interrupting(stop, at=at, number=number, when=when))
    whole = number - (at != "put manifest.json" or when == "before")
    seen = releases(tmp_path / "stream.toml", copy=str(bucket / "open"))
    assert len(seen) == whole
    assert all(release.rows(1).height for release in seen)
    ran(config)
    ours = {name: content for name, content in published(tmp_path / "releases").items() if "/" in name}
    assert below(bucket / "open") == ours


CHILD = """
import sys
from pathlib import Path
from synthstream import StreamConfig
from tests.support.environments import killed
from tests.support.mirrors import opened
folder, at, number, when = sys.argv[1:]
config = StreamConfig.from_toml(Path(folder, "stream.toml").read_text(), base=Path(folder))
with opened(config, killed(at=at, number=int(number), when=when)) as stream:
    for _ in stream.run():
        pass
"""


@pytest.mark.slow
def test_six_kills_lose_nothing_and_double_nothing(bucket: ObjectPath, store: Store, tmp_path: Path) -> None:
    """Six processes, of three seconds each, killed while they read a store or copy to it; then one that is not."""
    config = configured(tmp_path / "store", mirror(bucket / "open"), path=f"{bucket}/in/rows-*.parquet")
    local = configured(tmp_path / "local")
    for part in range(7):
        rows(50, part).write_parquet(local.base / f"rows-{part}.parquet")
        (bucket / "in" / f"rows-{part}.parquet").put(parquet(rows(50, part)))
    ends = [("commit counts", 1 + n % 2, "before" if n % 2 else "after") for n in range(2)]
    names = ("rows.parquet", "tables.parquet", "manifest.json", "manifest.json")
    ends += [(f"put {name}", 1, "after" if n % 2 else "before") for n, name in enumerate(names)]
    root = Path(__file__).parents[2]
    environment = os.environ | store.environment() | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    for at, number, when in ends:
        line = [sys.executable, "-c", CHILD, str(config.base), at, str(number), when]
        assert subprocess.run(line, env=environment, capture_output=True).returncode == -signal.SIGKILL  # noqa: S603
        seen = ObjectPath(str(bucket / "open"))
        if list(seen.glob("*/manifest.json")):
            assert all(release.rows(1).height for release in releases(config.base / "stream.toml", copy=str(seen)))
    ran(config)
    ran(local)
    assert published(config.base / "releases") == published(local.base / "releases")
    ours = {name: content for name, content in published(config.base / "releases").items() if "/" in name}
    assert below(bucket / "open") == ours


def test_a_place_of_another_stream_and_an_emptied_one_are_refused(bucket: ObjectPath, tmp_path: Path) -> None:
    for name in ("one", "two"):
        config = configured(tmp_path / name, mirror(bucket / "open"))
        rows(300, 1).write_parquet(config.base / "rows-1.parquet")
        if name == "one":
            ran(config)
            continue
        text = (config.base / "stream.toml").read_text().replace('name = "always"', 'name = "another"')
        with pytest.raises(MirrorError, match="another stream's releases"):
            opened(StreamConfig.from_toml(text, base=config.base))
    (bucket / "open").store.delete_dir_contents((bucket / "open").key)
    with pytest.raises(MirrorError, match="holds nothing, although"):
        opened(configured(tmp_path / "one", mirror(bucket / "open")))


def test_what_fails_is_told_in_words_of_our_own(
    bucket: ObjectPath, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(place: object) -> str:
        objects_module._store.cache_clear()
        said = []
        source = FileSource(kind="csv", path=ObjectPath(f"{place}/in/*.csv"), columns=("x",))
        with pytest.raises(SourceError) as refused:
            source.files()
        said.append(str(refused.value))
        with pytest.raises(SinkError) as failed:
            opened(configured(tmp_path / "m", mirror(f"{place}/out")))
        said.append(str(failed.value))
        for words in said:
            assert KEY not in words
            assert SECRET not in words
            assert not re.search(r"AWS Error|Request ID|curl", words)
        return said[0]

    assert "there is no such bucket" in told("s3://missing")
    monkeypatch.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
    assert "refused this user, or knows none" in told(bucket)  # a listing is asked for the bucket first, without words
    monkeypatch.undo()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "the store does not answer" in told(bucket)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "ftp://127.0.0.1:9")
    assert "no store that can be used" in told(bucket)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("INVALID_ACCESS_KEY_ID", "does not know the access key"),
        ("SIGNATURE_DOES_NOT_MATCH", "refused the secret key"),
        ("REQUEST_TIME_TOO_SKEWED", "the clock of this machine"),
        ("ACCESS_DENIED", "refused this user"),
        ("SLOW_DOWN", "the store failed"),
    ],
)
def test_codes_of_stores_have_words(code: str, says: str) -> None:
    """The stand-in checks neither signatures nor clocks, so these are its words, as pyarrow gives them."""
    text = f"When listing objects under key 'in/' in bucket 'b': AWS Error {code} during ListObjectsV2 operation: {KEY}"
    assert says in objects_module._why(text)
    assert KEY not in objects_module._why(text)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (mirror("s3://bucket"), "is a bucket whole"),
        (mirror("ftp://bucket/open"), "use a path, or a bucket of s3://, gs://, az://"),
        (mirror("releases/copy"), "use an address of an object store"),
        (mirror("s3://b/open") + mirror("s3://b/open/more"), "is another place too"),
        (mirror("s3://b/in/open"), "is another place too"),
    ],
)
def test_places_that_cannot_be_are_refused(tmp_path: Path, section: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        configured(tmp_path, section, path="s3://b/in/rows-*.parquet")
