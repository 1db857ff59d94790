"""Files are known by their path as configured: what was moved, remounted or turned does not count again unasked."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream import Counting, Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.config.config import load
from synthstream.errors import SourceError, StateError
from synthstream.ingest import filenames, intake, logs
from synthstream.ingest.filenames import FileNames, item_of
from synthstream.ingest.intake import Elsewhere
from synthstream.schema.coercion import Frame
from synthstream.state.store import Store
from tests.support.environments import failing
from tests.support.streams import rows, text_of
from tests.support.visits import exact, total


def stream_in(folder: Path, path: str, *, moved: str | None = None, until: str = "2026-01-03") -> StreamConfig:
    """The configuration of a stream that reads a path; written to its folder."""
    more = "" if moved is None else f'\nmoved = "{moved}"'
    text = text_of("always").replace('path = "rows-*.parquet"', f'path = "{path}"{more}')
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "stream.toml").write_text(text.replace("until = 2026-01-09", f"until = {until}"))
    return load(folder / "stream.toml")


def written(*paths: Path, number: int = 50) -> None:
    for seed, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        rows(number, seed).write_parquet(path)


def run(folder: Path, *options: str) -> str:
    """What the program says; its status must be 0."""
    done = CliRunner().invoke(app, ["run", str(folder / "stream.toml"), "--yes", *options])
    assert done.exit_code == 0, done.output
    return done.output


def refused(folder: Path) -> str:
    """What the program says when it stops; nothing may have been released by that."""
    before = sorted((folder / "releases").glob("0*"))
    done = CliRunner().invoke(app, ["run", str(folder / "stream.toml"), "--yes"])
    assert done.exit_code == 2, done.output
    assert sorted((folder / "releases").glob("0*")) == before
    with Stream(load(folder / "stream.toml")) as stream:
        assert stream.closed == len(before)
    return done.output


def names_in(config: StreamConfig) -> list[str]:
    """What the state calls its files. Opening it checks the sum of its rows."""
    store = Store(config.state)
    try:
        return [item.removeprefix("file ") for item in store.items("file ")]
    finally:
        store.close()


@pytest.mark.parametrize("path", ["data/rows-*.parquet", "../data/rows-*.parquet"])
def test_a_folder_that_is_moved_whole_goes_on(tmp_path: Path, path: str) -> None:
    stream_in(tmp_path / "one" / "stream", path)
    written(*(tmp_path / "one" / "stream" / Path(path).parent / f"rows-{i}.parquet" for i in range(2)))
    assert "2 new file(s) counted, 2 new release(s)" in run(tmp_path / "one" / "stream")
    shutil.copytree(tmp_path / "one", tmp_path / "elsewhere" / "two")
    for there in ("one", "elsewhere/two"):  # the first one is there still, or gone
        stream_in(tmp_path / there / "stream", path, until="2026-01-09")
        assert "0 new file(s) counted, 6 new release(s)" in run(tmp_path / there / "stream")
        shutil.rmtree(tmp_path / there)


MOVES = {
    "relative": ("stream/old", "stream/new", "old/rows-*.parquet", "new/rows-*.parquet", "old"),
    "outside": ("old", "stream/new", "../old/rows-*.parquet", "new/rows-*.parquet", "../old"),
    "deeper": ("stream", "stream/data", "rows-*.parquet", "data/rows-*.parquet", "."),
    "up": ("stream/data", "stream", "data/rows-*.parquet", "rows-*.parquet", "data"),
    "another mount point": (
        "mnt/old",
        "srv",
        "{tmp}/mnt/old/rows-*.parquet",
        "{tmp}/srv/rows-*.parquet",
        "{tmp}/mnt/old",
    ),
    "a mount into the stream's folder": (
        "mnt",
        "stream/in",
        "{tmp}/mnt/rows-*.parquet",
        "in/rows-*.parquet",
        "{tmp}/mnt",
    ),
    "one file": ("mnt", "srv", "{tmp}/mnt/rows-0.parquet", "{tmp}/srv/rows-0.parquet", "{tmp}/mnt"),
    "any depth": ("mnt", "srv", "{tmp}/mnt/**/*.parquet", "{tmp}/srv/**/*.parquet", "{tmp}/mnt"),
}


@pytest.mark.sparing(4)
@pytest.mark.parametrize("case", MOVES)
def test_a_source_that_is_moved_alone_stops_until_it_is_said_what_it_is(tmp_path: Path, case: str) -> None:
    old, new, path, then, moved = (text.format(tmp=tmp_path) for text in MOVES[case])
    folder, several = tmp_path / "stream", case != "one file"
    stream_in(folder, path)
    written(*(tmp_path / old / f"rows-{i}.parquet" for i in range(1 + several)))
    run(folder)
    (tmp_path / new).mkdir(exist_ok=True)
    for file in sorted((tmp_path / old).glob("*.parquet")):
        file.rename(tmp_path / new / file.name)
    stream_in(folder, then, until="2026-01-04")
    said = refused(folder)
    assert f"{1 + several} file(s) that were counted are gone" in said
    assert f'moved = "{moved}"' in said
    assert "`synthstream run --new-files`" in said
    if several:
        written(tmp_path / new / "rows-2.parquet")
    for number, until in enumerate(("2026-01-05", "2026-01-06")):  # it may stand there for ever
        stream_in(folder, then, moved=moved, until=until)
        assert f"{int(several and not number)} new file(s) counted" in run(folder)
    config = stream_in(folder, then, until="2026-01-07")  # or be removed
    assert "0 new file(s) counted, 1 new release(s)" in run(folder)
    names = FileNames(source=config.source, base=config.base) if config.source else None
    assert names is not None
    assert names_in(config) == sorted(names.of(file) for file in sorted((tmp_path / new).glob("*.parquet")))


@pytest.mark.parametrize("new", [False, True])
def test_a_source_of_one_file_that_is_another_one_now_is_asked_about(tmp_path: Path, new: bool) -> None:
    """A copy under another name would count every event again; what the files hold has no part in it."""
    stream_in(tmp_path, "rows.parquet")
    written(tmp_path / "rows.parquet")
    run(tmp_path)
    written(tmp_path / "rows (1).parquet")
    stream_in(tmp_path, "rows (1).parquet", until="2026-01-05")
    assert "under another name, such as rows (1).parquet" in " ".join((said := refused(tmp_path)).split())
    assert 'moved = "rows.parquet"' in said
    if new:
        assert "1 new file(s) counted" in run(tmp_path, "--new-files")
    else:
        stream_in(tmp_path, "rows (1).parquet", moved="rows.parquet", until="2026-01-05")
        assert "0 new file(s) counted, 2 new release(s)" in run(tmp_path)
    assert "0 new file(s) counted, 0 new release(s)" in run(tmp_path)


@pytest.mark.parametrize("moved", [None, "nowhere", "new"])
def test_new_files_count_if_the_operator_says_so_of_each_name_that_came_before(
    tmp_path: Path, moved: str | None
) -> None:
    folder = tmp_path / "stream"
    stream_in(folder, "old/rows-*.parquet")
    written(*(folder / "old" / f"rows-{i}.parquet" for i in range(2)))
    run(folder)
    written(folder / "new" / "rows-0.parquet", number=70)  # what was there before is there still: it was copied
    stream_in(folder, "new/rows-*.parquet", moved=moved, until="2026-01-04")
    said = refused(folder)
    assert (moved is not None) == ("does not say what these were called" in said)
    assert "1 new file(s) counted" in run(folder, "--new-files")
    config = stream_in(folder, "new/rows-*.parquet", until="2026-01-05")
    written(folder / "new" / "rows-1.parquet")
    refused(folder)  # it may be the one that was counted: the answer was about another
    assert "1 new file(s) counted" in run(folder, "--new-files")
    assert names_in(config) == ["new/rows-0.parquet", "new/rows-1.parquet", "old/rows-0.parquet", "old/rows-1.parquet"]
    (folder / "newer").mkdir()
    (folder / "new" / "rows-0.parquet").rename(folder / "newer" / "rows-0.parquet")
    stream_in(folder, "newer/rows-*.parquet", until="2026-01-06")
    assert 'moved = "new"' in refused(folder)


def test_an_answer_does_not_cover_what_is_moved_later(tmp_path: Path) -> None:
    stream_in(tmp_path, "archive/*.parquet")
    written(tmp_path / "archive" / "x.parquet")
    run(tmp_path)
    written(tmp_path / "data" / "y.parquet")
    stream_in(tmp_path, "data/*.parquet", until="2026-01-04")
    refused(tmp_path)
    assert "1 new file(s) counted" in run(tmp_path, "--new-files")
    written(tmp_path / "data" / "z.parquet")
    stream_in(tmp_path, "data/*.parquet", until="2026-01-05")
    assert "1 new file(s) counted" in run(tmp_path)
    (tmp_path / "archive" / "x.parquet").rename(tmp_path / "data" / "x.parquet")
    stream_in(tmp_path, "data/*.parquet", until="2026-01-06")
    assert 'moved = "archive"' in refused(tmp_path)


def test_from_python_and_with_another_engine(tmp_path: Path) -> None:
    stream_in(tmp_path, "old/rows-*.parquet")
    written(tmp_path / "old" / "rows-0.parquet")
    with Stream(load(tmp_path / "stream.toml"), gates=exact) as stream:
        first = total(list(stream.run())[-1])
    (tmp_path / "old").rename(tmp_path / "new")
    config = stream_in(tmp_path, "new/rows-*.parquet", until="2026-01-09")
    counting = Counting(config)

    def elsewhere(paths: object) -> object:
        raise AssertionError("counted, though it was not said what the files are")

    with Stream(config, gates=exact) as stream:
        for call in (stream.ingest, lambda: stream.ingest(elsewhere=Elsewhere(elsewhere)), lambda: list(stream.run())):  # type: ignore[arg-type]
            with pytest.raises(SourceError, match=r'moved = "old"'):
                call()
        assert stream.closed == 2
        found = stream.ingest(elsewhere=Elsewhere(lambda paths: counting.count_all(frames(paths))), new_files=True)
        assert (found, stream.ingest()) == (1, 0)
        last = list(stream.run())[-1]
    assert round(total(last)) == 100
    assert 0 < first < 50


def frames(paths: object) -> list[Frame]:
    import polars as pl

    return [pl.read_parquet(path) for path in paths]  # type: ignore[attr-defined]


def test_a_link_that_is_turned_to_another_disk(tmp_path: Path) -> None:
    folder = tmp_path / "stream"
    stream_in(folder, "data/rows-*.parquet")
    written(*(tmp_path / "disk1" / f"rows-{i}.parquet" for i in range(2)))
    (folder / "data").symlink_to(tmp_path / "disk1")
    run(folder)
    shutil.copytree(tmp_path / "disk1", tmp_path / "disk2")
    shutil.rmtree(tmp_path / "disk1")
    (folder / "data").unlink()
    (folder / "data").symlink_to(tmp_path / "disk2")
    written(tmp_path / "disk2" / "rows-2.parquet", number=20)
    stream_in(folder, "data/rows-*.parquet", until="2026-01-04")
    assert "1 new file(s) counted, 1 new release(s)" in run(folder)
    written(tmp_path / "disk2" / "rows-0.parquet", number=60)
    with Stream(load(folder / "stream.toml")) as stream:
        assert stream.ingest() == 0
        assert "is not what it was" in stream.findings[folder / "data" / "rows-0.parquet"]


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("in/*.parquet", ["2026-01-01", "2026-01-02"], ["2026-01-03", "2026-01-04"]),
        ("in/*/*.parquet", ["01/rows", "02/rows"], ["03/rows", "04/rows"]),
        ("in/**/*.parquet", ["01/a/rows", "02/a/rows"], ["02/b/rows", "03/a/rows"]),
        ("{tmp}/in/day=*/*.parquet", ["day=1/part-0", "day=1/part-1"], ["day=2/part-0", "day=2/part-1"]),
    ],
)
def test_files_that_come_and_go_are_not_asked_about(tmp_path: Path, path: str, old: list[str], new: list[str]) -> None:
    stream_in(tmp_path, path.format(tmp=tmp_path))
    written(*(tmp_path / "in" / f"{name}.parquet" for name in old))
    assert "2 new file(s) counted" in run(tmp_path)
    shutil.rmtree(tmp_path / "in")
    written(*(tmp_path / "in" / f"{name}.parquet" for name in new))
    stream_in(tmp_path, path.format(tmp=tmp_path), until="2026-01-04")
    assert "2 new file(s) counted" in run(tmp_path)


@pytest.mark.parametrize(
    ("path", "then", "old", "new"),
    [
        ("in/**/*.parquet", "in/**/*.parquet", "in/rows", "in/archive/rows"),
        ("in/**/*.parquet", "in/**/*.parquet", "in/archive/rows", "in/rows"),
        ("data/2026/*.parquet", "mnt/**/*.parquet", "data/2026/rows", "mnt/disk/2026/rows"),
        ("data/*/*.parquet", "mnt/2026/*.parquet", "data/2026/rows", "mnt/2026/rows"),
        ("data/*.parquet", "mnt/*.parquet", "data/rows", "mnt/renamed"),
    ],
)
def test_whether_it_is_asked_is_a_matter_of_names_alone(
    tmp_path: Path, path: str, then: str, old: str, new: str
) -> None:
    said = []
    for seed in (0, 1):  # the same rows, or others
        folder = tmp_path / str(seed)
        stream_in(folder, path)
        written(folder / f"{old}.parquet")
        run(folder)
        (folder / f"{old}.parquet").unlink()
        (folder / new).parent.mkdir(parents=True, exist_ok=True)
        rows(50, seed).write_parquet(folder / f"{new}.parquet")
        stream_in(folder, then, until="2026-01-04")
        said.append(refused(folder).replace(str(folder), ""))
    assert said[0] == said[1]


def test_moved_takes_one_file_that_got_another_name_too(tmp_path: Path) -> None:
    stream_in(tmp_path, "old/rows.parquet")
    written(tmp_path / "old" / "rows.parquet")
    run(tmp_path)
    (tmp_path / "new").mkdir()
    (tmp_path / "old" / "rows.parquet").rename(tmp_path / "new" / "visits.parquet")
    stream_in(tmp_path, "new/visits.parquet", until="2026-01-04")
    refused(tmp_path)
    config = stream_in(tmp_path, "new/visits.parquet", moved="old/rows.parquet", until="2026-01-04")
    assert "0 new file(s) counted, 1 new release(s)" in run(tmp_path)
    assert names_in(config) == ["new/visits.parquet"]


def test_moved_loses_no_count(tmp_path: Path) -> None:
    """What was counted under both names stays known under both."""
    stream_in(tmp_path, "*/rows-*.parquet")
    written(
        tmp_path / "old" / "rows-0.parquet", tmp_path / "new" / "rows-0.parquet", tmp_path / "old" / "rows-1.parquet"
    )
    run(tmp_path)
    shutil.rmtree(tmp_path / "old")
    config = stream_in(tmp_path, "new/rows-*.parquet", moved="old", until="2026-01-04")
    assert "0 new file(s) counted" in run(tmp_path)
    assert names_in(config) == ["new/rows-0.parquet", "new/rows-1.parquet", "old/rows-0.parquet"]


def old_name(path: Path, base: Path) -> str:
    """What version 0.1 called a file."""
    real, root = path.resolve(), base.resolve()
    return str(real.relative_to(root)) if real.is_relative_to(root) else str(real)


@pytest.mark.parametrize(
    "path",
    ["../data/rows-*.parquet", "{tmp}/data/rows-*.parquet", "link/rows-*.parquet", "{tmp}/stream/in/rows-*.parquet"],
)
def test_a_state_that_knows_files_by_where_links_lead_goes_on(tmp_path: Path, path: str) -> None:
    path, folder = path.format(tmp=tmp_path), tmp_path / "stream"
    config = stream_in(folder, path)
    (tmp_path / "data").mkdir()
    (folder / "link").symlink_to(tmp_path / "data")
    data = folder / Path(path).parent
    written(*(data / f"rows-{i}.parquet" for i in range(3)))
    run(folder)
    store = Store(config.state)
    with store.transaction("names"):  # as they were stored before
        for file in data.glob("*.parquet"):
            assert config.source is not None
            new = FileNames(source=config.source, base=config.base).of(file)
            store.rename_ingested(f"file {new}", f"file {old_name(file, folder)}")
    store.close()
    kept = names_in(config)
    (data / "rows-0.parquet").unlink()  # one that was rotated away keeps its name: nobody can ask for it
    written(data / "rows-3.parquet")
    stream_in(folder, path, until="2026-01-04")
    assert "1 new file(s) counted, 1 new release(s)" in run(folder)
    now = names_in(config)
    assert kept[0] in now
    assert {os.path.normpath(Path(path).parent / f"rows-{i}.parquet") for i in (1, 2, 3)} <= set(now)
    assert len(now) == 4


def test_writing_a_path_in_another_way_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "stream"
    written(tmp_path / "data" / "rows-0.parquet")
    ways = ["../data/rows-*.parquet", f"{tmp_path}/data/rows-*.parquet", "../data/../data/rows-0.parquet", "../data/*"]
    for day, path in enumerate(ways):
        stream_in(folder, path, until=f"2026-01-0{day + 3}")
        assert f"{int(day == 0)} new file(s) counted" in run(folder)


def test_of_a_file_and_links_to_it_one_counts(tmp_path: Path) -> None:
    written(tmp_path / "rows-2.parquet", tmp_path / "rows-3.parquet")
    (tmp_path / "rows-1.parquet").symlink_to("rows-2.parquet")  # such as the newest one, under a name of its own
    config = stream_in(tmp_path, "rows-*.parquet")
    assert "2 new file(s) counted" in run(tmp_path)
    assert names_in(config) == ["rows-2.parquet", "rows-3.parquet"]
    (tmp_path / "rows-1.parquet").unlink()
    (tmp_path / "rows-1.parquet").symlink_to("rows-3.parquet")
    assert "0 new file(s) counted" in run(tmp_path)


@pytest.mark.parametrize("name", [b"rows-\xff.parquet", b"rows-\x1b[2J\nError: all is lost.parquet"])
def test_a_name_that_cannot_be_kept_or_printed_is_refused(tmp_path: Path, name: bytes) -> None:
    stream_in(tmp_path, "rows-*.parquet")
    written(tmp_path / "rows-1.parquet")
    shutil.copy(tmp_path / "rows-1.parquet", os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    told = refused(tmp_path)
    assert "Rename it" in told
    assert "\x1b" not in told
    assert "\nError: all" not in told


def test_such_a_name_that_counted_in_an_earlier_version_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = stream_in(tmp_path, "rows-*.parquet")
    written(tmp_path / "rows-\x1b1.parquet")
    with monkeypatch.context() as earlier:
        earlier.setattr(filenames, "_UNPRINTABLE", re.compile("(?!)"))
        run(tmp_path)
    written(tmp_path / "rows-2.parquet")
    assert "1 new file(s) counted" in run(tmp_path)
    assert names_in(config) == ["rows-\x1b1.parquet", "rows-2.parquet"]


@pytest.mark.parametrize(("target", "why"), [("rows-2.parquet", errno.ELOOP), ("x" * 300, errno.ENAMETOOLONG)])
def test_a_link_that_leads_nowhere_is_told(tmp_path: Path, target: str, why: int) -> None:
    stream_in(tmp_path, "rows-*.parquet")
    written(tmp_path / "rows-1.parquet")
    run(tmp_path)
    (tmp_path / "rows-2.parquet").symlink_to(target)
    told = refused(tmp_path)
    assert f"{tmp_path}/rows-2.parquet cannot be read" in told
    assert os.strerror(why) in told


@pytest.mark.parametrize("when", ["before", "after"])
def test_new_names_are_taken_all_or_none(tmp_path: Path, when: Literal["before", "after"]) -> None:
    stream_in(tmp_path, "old/rows-*.parquet")
    written(*(tmp_path / "old" / f"rows-{i}.parquet" for i in range(2)))
    run(tmp_path)
    (tmp_path / "old").rename(tmp_path / "new")
    config = stream_in(tmp_path, "new/rows-*.parquet", moved="old", until="2026-01-04")
    env = failing(errno.ENOSPC, at="commit names", when=when)
    with Stream(config, env=env) as stream, pytest.raises(StateError):
        stream.ingest()
    assert [Path(name).parent.name for name in names_in(config)] == ["new" if when == "after" else "old"] * 2
    assert "0 new file(s) counted, 1 new release(s)" in run(tmp_path)


def test_following_takes_the_answer_for_what_is_there_when_it_begins(tmp_path: Path) -> None:
    stream_in(tmp_path, "old/rows-*.parquet")
    written(tmp_path / "old" / "rows-0.parquet")
    run(tmp_path)
    (tmp_path / "old").rename(tmp_path / "new")
    config = stream_in(tmp_path, "new/rows-*.parquet", until="2026-01-04")
    assert "1 new release(s), 3 in all" in run(tmp_path, "--follow", "--new-files")
    assert names_in(config) == ["new/rows-0.parquet", "old/rows-0.parquet"]


class Log:
    """A log of some rows, each of which is read once."""

    name, waits = "kafka visits", False

    def __init__(self, number: int) -> None:
        self._number = number

    def look(self) -> None: ...

    def read(self, after: bytes | None) -> Iterator[tuple[pl.DataFrame, bytes]]:
        if after is None and self._number:
            yield rows(self._number, 1), b"end"

    def close(self) -> None: ...


def log_in(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> tuple[str, str]:
    """Settings of a stream of files and of a log that holds so many rows."""
    for module in (intake, logs):
        monkeypatch.setattr(module, "opened", lambda config, log: Log(number))
    stream_in(folder, "rows-*.parquet")
    files = (folder / "stream.toml").read_text()
    return files, files.replace('kind = "parquet"\npath = "rows-*.parquet"', 'kind = "kafka"\ntopic = "visits"')


@pytest.mark.parametrize("number", [0, 50])
def test_another_kind_of_source_is_asked_about_once_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    files, log = log_in(tmp_path, monkeypatch, number)
    written(tmp_path / "rows-1.parquet")
    run(tmp_path)
    for text, until in ((log, "2026-01-04"), (files, "2026-01-05"), (log, "2026-01-06")):
        (tmp_path / "stream.toml").write_text(text.replace("until = 2026-01-03", f"until = {until}"))
        for _ in range(2):  # that it was asked is no answer
            assert "all events here are new ones, say `synthstream run --new-files`" in " ".join(
                refused(tmp_path).split()
            )
        run(tmp_path, "--new-files")
        run(tmp_path)


@pytest.mark.parametrize("number", [0, 50])
def test_files_after_a_log_are_asked_about_whatever_it_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    files, log = log_in(tmp_path, monkeypatch, number)
    (tmp_path / "stream.toml").write_text(log)
    run(tmp_path)
    run(tmp_path)
    (tmp_path / "stream.toml").write_text(files)
    assert "has counted events from a table or topic" in " ".join(refused(tmp_path).split())


@pytest.mark.parametrize("kind", ["files", "log"])
@pytest.mark.parametrize("number", [0, 50])
def test_sources_are_asked_about_where_ticks_were_closed_without_one_whatever_was_pushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, number: int
) -> None:
    text = log_in(tmp_path, monkeypatch, 50)[kind == "log"]
    with Stream(replace(load(tmp_path / "stream.toml"), source=None)) as stream:
        stream.update(rows(number, 1))
        stream.release()
    written(tmp_path / "rows-1.parquet")
    (tmp_path / "stream.toml").write_text(text.replace("until = 2026-01-03", "until = 2026-01-04"))
    for _ in range(2):
        assert "has counted events from elsewhere, or none at all, until now" in " ".join(refused(tmp_path).split())
    run(tmp_path, "--new-files")
    run(tmp_path)


def test_the_state_can_be_asked_for_a_name_that_is_not_utf_8() -> None:
    assert item_of("in/b\udcff.csv").encode().endswith(b"b\\udcff.csv")
    assert item_of("in/ä.csv").endswith("in/ä.csv")
