"""What is put in place of what was lost: by one process at a time, as it was, and on disk."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from synthstream import Stream, StreamConfig
from synthstream.errors import RecoveryRefused, StateError, StateLocked
from synthstream.state.store import Store
from synthstream.stream.backups import backup
from synthstream.stream.recovery import adopt, republish
from synthstream.stream.verification import verify
from tests.support.environments import Interrupting, failing
from tests.support.halves import HALF, half_run
from tests.support.streams import configured, published, rows


@pytest.fixture
def lost(tmp_path: Path) -> StreamConfig:
    """A stream whose state is lost."""
    config = half_run(tmp_path, "always")
    shutil.rmtree(config.state)
    return config


@pytest.fixture
def lost_with_its_folder(lost: StreamConfig) -> StreamConfig:
    """The same, of which the folder that the state lay in is lost, too."""
    text = (lost.base / "stream.toml").read_text().replace('state = "state"', 'state = "disk/visits"')
    return StreamConfig.from_toml(text, base=lost.base)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("which", ["lost", "lost_with_its_folder"])
def test_of_two_recoveries_at_once_one_is_refused_and_nothing_that_was_counted_is_lost(
    which: str, request: pytest.FixtureRequest
) -> None:
    """The second would put aside what the first has made, with what was pushed to it meanwhile."""
    lost: StreamConfig = request.getfixturevalue(which)
    said: list[str] = []

    def other() -> None:
        try:
            adopt(lost)
            with Stream(lost) as stream:
                stream.update(rows(20, 2), batch_id="meanwhile")
        except StateLocked as error:
            said.append(str(error))

    adopt(lost, env=Interrupting(other, at="commit adoption"))
    assert said == [
        f"{lost.state.parent}: another process recovers a stream there. Wait for it to end, and say this again. "
        "Nothing was changed."
    ]
    with pytest.raises(RecoveryRefused, match="Nothing to recover"):
        other()
    with Stream(lost) as stream:
        assert stream.batches() == []
    assert names(lost.base) == {"stream.toml", "rows-1.parquet", "releases", lost.state.relative_to(lost.base).parts[0]}
    assert "visits.adopting" not in names(lost.state.parent)


def test_releases_that_the_state_knows_and_that_are_gone_are_in_the_way(tmp_path: Path) -> None:
    """Going on from those that are there, their ticks would be drawn a second time."""
    config = half_run(tmp_path, "always")
    backup(config, tmp_path / "backup")
    shutil.rmtree(config.state)
    (tmp_path / "backup/private").rename(config.state)
    shutil.rmtree(tmp_path / "releases" / f"{HALF - 1:06}")
    with pytest.raises(RecoveryRefused, match="would draw noise twice for ticks that were published"):
        adopt(config)


def test_who_may_not_list_the_folder_recovers_all_the_same(lost: StreamConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = os.open

    def unlisted(path: str | Path, flags: int, *more: int) -> int:
        if path == lost.state.parent and flags & os.O_DIRECTORY:
            raise PermissionError(errno.EACCES, "no")
        return usual(path, flags, *more)

    monkeypatch.setattr("synthstream.state.folder.os.open", unlisted)
    assert adopt(lost) == (HALF, True, None)


def test_a_disk_of_its_own_is_refused_before_anything_is_written_and_a_folder_in_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a volume of a container is: it cannot be renamed."""
    old = half_run(tmp_path, "always")
    shutil.copytree(old.state, tmp_path / "copy")
    with Stream(configured(tmp_path, "always", until="2026-01-06")) as stream:
        list(stream.run())
    shutil.rmtree(old.state)
    (tmp_path / "copy").rename(old.state)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == old.state)
    before = published(tmp_path / "releases")
    with pytest.raises(RecoveryRefused, match="is a disk, or a volume, of its own"):
        adopt(old)
    assert names(tmp_path) == {"stream.toml", "rows-1.parquet", "releases", "state"}
    text = (tmp_path / "stream.toml").read_text().replace('state = "state"', 'state = "state/visits"')
    config = StreamConfig.from_toml(text, base=tmp_path)
    config.state.mkdir(mode=0o700)
    for path in [path for path in old.state.iterdir() if path.is_file()]:
        path.rename(config.state / path.name)
    assert adopt(config).segment
    with Stream(config) as stream:
        list(stream.run())
    assert verify(config).findings == []
    assert before.items() <= published(tmp_path / "releases").items()


@pytest.mark.parametrize("at", ["put old state aside", "put new state in place", "sync state's name"])
def test_a_rename_that_fails_is_told_in_words_and_said_again_it_goes_through(tmp_path: Path, at: str) -> None:
    config = half_run(tmp_path, "always")
    (config.state / "store.db").write_bytes(b"damaged")
    number = 3 if at == "sync state's name" else 1  # after those of the old state and of the new one
    with pytest.raises(StateError, match=r"state folder .*: Device or resource busy\. What was committed is there"):
        adopt(config, env=failing(errno.EBUSY, at=at, number=number))
    if at == "sync state's name":  # it was put there
        with pytest.raises(RecoveryRefused, match="Nothing to recover"):
            adopt(config)
    else:
        assert adopt(config).segment
    with Stream(config) as stream:
        list(stream.run())
    assert verify(config).findings == []


def test_what_is_made_again_has_no_rows_that_were_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for a moment, either: a process may end just then, and nothing would be missing any more."""
    put, usual = dict[str, bool](), Path.rename

    def rename(place: Path, target: Path) -> Path:
        put[target.name] = (place / "rows.parquet").exists()
        return usual(place, target)

    configured(tmp_path, "always")
    rows(60, 1).write_parquet(tmp_path / "rows-1.parquet")
    text = (tmp_path / "stream.toml").read_text().replace('path = "releases"\n', 'path = "releases"\nkeep = 2\n')
    config = StreamConfig.from_toml(text, base=tmp_path)
    with Stream(config) as stream:
        list(stream.run())
    before = published(tmp_path / "releases")
    monkeypatch.setattr(Path, "rename", rename)
    for lost in (["000003"], ["000005", "000006"], ["000007"]):
        for name in lost:
            shutil.rmtree(tmp_path / "releases" / name)
        assert republish(config) == len(lost)
        assert published(tmp_path / "releases") == before
    assert put == {"000003": False, "000005": False, "000006": True, "000007": True}


def test_a_backup_is_on_disk_with_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, synced = half_run(tmp_path, "always"), list[Path]()
    for room in ("environment", "stream.backups"):
        monkeypatch.setattr(f"synthstream.{room}.sync", synced.append)
    folder = tmp_path / "away" / "backup"
    backup(config, folder)
    assert {tmp_path, tmp_path / "away", folder, *folder.rglob("*")} <= set(synced)


@pytest.mark.parametrize(
    ("where", "raised", "why"),
    [
        (Store, StateError("There is no space left."), "There is no space left."),
        (Path, OSError(errno.ENOSPC, "as the system says it"), "No space left on device."),
    ],
)
def test_a_backup_that_fails_is_said_to_be_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: type, raised: Exception, why: str
) -> None:
    """Whoever says the same again is told that a folder is there, and may take it for a whole one."""

    def fails(*_: object) -> None:
        raise raised

    config, folder = half_run(tmp_path, "always"), tmp_path / "backup"
    monkeypatch.setattr(where, "copy_to" if where is Store else "write_bytes", fails)
    with pytest.raises(StateError) as caught:
        backup(config, folder)
    assert str(caught.value) == f"backup {folder}: {why} The backup there is incomplete: delete it."
