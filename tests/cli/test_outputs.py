"""Where files are written, and what is said before anything is published."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest

from synthstream import releases
from synthstream.cli.common import check_writable
from synthstream.cli.reading import format_of, write
from synthstream.errors import ConfigError
from synthstream.forecast import warnings as cautions
from synthstream.publish.folder import DESCRIPTIONS, ParquetSink
from tests.support.at_rest import reached_by_others
from tests.support.command import synthstream
from tests.support.visits import TOML, visits


@pytest.mark.sparing(4)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sample", "--format", "csv", "-o", "stream.toml"], "one of the stream's own files"),
        (["sample", "-o", "visits-1.parquet"], "one of the stream's own files"),
        (["sample", "-o", "visits-2.parquet"], "would count as events"),
        (["sample", "--format", "csv", "-o", "state/store.db"], "the program's own"),
        (["sample", "-o", "releases/000000/rows.parquet"], "holds releases alone"),
        (["report", "-o", "stream.toml"], "one of the stream's own files"),
        (["report", "-o", "notes.html"], "is no page"),
        (["plan", "-o", "plan"], "ends in .html"),
        (["plan", "-o", "state/store.db"], "ends in .html"),
    ],
)
def test_no_output_is_written_over_what_matters(tmp_path: Path, words: list[str], says: str) -> None:
    (tmp_path / "stream.toml").write_text(TOML)
    visits([1, 2] * 50).write_parquet(tmp_path / "visits-1.parquet")
    (tmp_path / "notes.html").write_text("my notes")
    assert synthstream("run", "stream.toml", "--yes", cwd=tmp_path).returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = synthstream(words[0], "stream.toml", *words[1:], cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_full_disk_is_told_with_the_name_of_the_file(form: str) -> None:
    with pytest.raises(ConfigError, match=r"^-o /dev/full: could not be written whole\. Is there room\?"):
        write(pl.DataFrame({"a": [1]}), Path("/dev/full"), form, stamped=False)


def test_a_folder_in_which_nothing_can_be_written_is_named_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the folders of a system, such as /proc, it may say that whoever is root may write there."""
    there = tmp_path / "there.csv"
    there.touch()
    check_writable(tmp_path / "new.csv")
    assert [*tmp_path.iterdir()] == [there]
    monkeypatch.setattr(tempfile, "TemporaryFile", Mock(side_effect=FileNotFoundError))
    check_writable(there)
    for refused in (
        lambda: format_of(None, tmp_path / "new.csv", place="https://example.org/visits"),
        lambda: check_writable(there, aside=True),
    ):
        with pytest.raises(ConfigError, match=r"^-o /.*\.csv: cannot be written there\. Choose a folder that you may"):
            refused()
    with pytest.raises(ConfigError, match=r"there is no folder .*/away"):
        format_of(None, tmp_path / "away/new.csv", place="https://example.org/visits")


@pytest.mark.parametrize("simulated", [True, False])
def test_what_is_made_of_simulated_releases_is_for_its_owner_alone(tmp_path: Path, simulated: bool) -> None:
    """Who knows the seed, which is 0 where none is said, takes the noise away, or tries counts against a hash."""
    (tmp_path / "stream.toml").write_text(TOML)
    visits([1, 2] * 50).write_parquet(tmp_path / "visits-1.parquet")
    made, switch = tmp_path / "made", ["--simulate"] if simulated else ["--yes"]
    releases, switches = tmp_path / f"releases{'-simulated' * simulated}", switch[:simulated]
    made.mkdir()
    (made / "old.csv").write_text("what was there can be read by all " * 1000)
    before = os.umask(0o022)
    try:
        assert synthstream("run", "stream.toml", *switch, cwd=tmp_path).returncode == 0
        answers = ["sample -o made/a.csv", "sample -o made/old.csv", "sample -o made/a.jsonl"]
        answers += ["table ward -o made/t.parquet", "series ward -o made/s.csv"]
        for words in map(str.split, (*answers, "report -o made/r.html", "describe")):
            done = synthstream(words[0], "stream.toml", *words[1:], *switches, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
    finally:
        os.umask(before)
    names = {path.name for path in reached_by_others(releases, made)}
    there = {"a.csv", "old.csv", "a.jsonl", "t.parquet", "s.csv", "r.html", "datapackage.json", "manifest.json"}
    assert names >= there if not simulated else names == set()
    assert "read by all" not in (made / "old.csv").read_text()
    releases.chmod(0o755)  # as it may be from an earlier run
    found = {path.name for path in reached_by_others(releases)}
    assert found >= {*DESCRIPTIONS, "manifest.json"} if not simulated else found == set()


def test_a_weak_budget_is_said_before_anything_is_published(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text(TOML.replace("epsilon = 1.0", "epsilon = 50.0"))
    visits([1, 2]).write_parquet(tmp_path / "visits-1.parquet")
    assert "promises next to nothing" in synthstream("plan", "stream.toml", cwd=tmp_path).stdout
    first = synthstream("run", "stream.toml", "--yes", cwd=tmp_path).stdout
    assert first.index("promises next to nothing") < first.index("5 ticks are over") < first.index("new release(s)")
    assert "promises" not in synthstream("run", "stream.toml", "--yes", cwd=tmp_path).stdout


def test_the_tick_that_an_interrupted_run_drew_is_one_of_those_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stream.toml").write_text(TOML)
    visits([1, 2]).write_parquet(tmp_path / "visits-1.parquet")
    with monkeypatch.context() as patched:
        patched.setattr(ParquetSink, "publish", Mock(side_effect=KeyboardInterrupt))
        assert synthstream("run", "stream.toml", "--yes", cwd=tmp_path).returncode == 130
    again = synthstream("run", "stream.toml", "--yes", cwd=tmp_path).stdout
    assert ("5 ticks are over" in again, "5 new release(s)" in again) == (True, True)


def test_releases_of_a_run_that_was_stopped_can_be_read_without_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stream.toml").write_text(TOML)
    visits([1, 2]).write_parquet(tmp_path / "visits-1.parquet")
    publish, number = ParquetSink.publish, count()

    def stopped_at_the_third(sink: ParquetSink, *args: Any, **facts: Any) -> Any:
        if next(number) == 2:
            raise KeyboardInterrupt
        return publish(sink, *args, **facts)

    with monkeypatch.context() as patched:
        patched.setattr(ParquetSink, "publish", stopped_at_the_third)
        assert synthstream("run", "stream.toml", "--yes", cwd=tmp_path).returncode == 130
    shutil.copytree(tmp_path / "releases", tmp_path / "copy")
    assert len(releases(tmp_path / "copy")) == 2


def test_without_a_place_for_compiled_loops_commands_still_work(tmp_path: Path) -> None:
    """A service user of an installed package: neither its folder nor a home can be written."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(cautions.__file__).parents[1], tmp_path / "src/synthstream", ignore=ignored)
    (tmp_path / "home").mkdir()
    closed = [tmp_path / "home", *(p for p in (tmp_path / "src").rglob("*") if p.is_dir())]
    code = "import os, synthstream.kernel.sampling; print(os.environ['NUMBA_CACHE_DIR'])"
    command = [sys.executable, "-B", "-c", code]
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv") or pytest.skip("root cannot be bound here")
        command = [setpriv, "--bounding-set=-dac_override,-dac_read_search", *command]
    places = {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path / "src"), "TMPDIR": str(tmp_path)}
    known = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    for folder in closed:
        folder.chmod(0o555)
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=known | places, check=False)  # noqa: S603
    finally:
        for folder in closed:
            folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))
    assert not Path(done.stdout.strip()).exists(), "something is left behind"
