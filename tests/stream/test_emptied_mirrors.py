"""A mirror that holds nothing, although it was copied to, has not answered."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import deltalake
import pytest

from synthstream import Stream
from synthstream.errors import MirrorError, StateRolledBack
from synthstream.stream.backups import backup
from synthstream.stream.recovery import adopt
from tests.support.witnesses import drawn, kept, manifests, no_noise, prepared, run


@pytest.mark.parametrize("mount", ["empty", "gone"])
def test_a_mirror_that_is_not_mounted_when_a_snapshot_is_put_back_has_not_answered(tmp_path: Path, mount: str) -> None:
    config = prepared(tmp_path / "s")
    lake, away = tmp_path / "s/lake", tmp_path / "away"
    run(config, 1)
    restore = kept(config, tmp_path)
    run(config, 2)
    restore()
    lake.rename(away)
    if mount == "empty":
        lake.mkdir()
    with no_noise(), pytest.raises(MirrorError, match=r"holds nothing, although.*Bring it back.*say --unchecked"):
        run(config, 2)
    assert (drawn(config), manifests(config), lake.exists()) == ((1, 0), [None], mount == "empty")
    assert mount == "gone" or not list(lake.iterdir()), "nothing is made anew in the mount point"
    shutil.rmtree(lake, ignore_errors=True)
    away.rename(lake)
    with no_noise(), pytest.raises(StateRolledBack, match="tick 1 that is not known here"):
        run(config, 2)


def test_a_mirror_that_was_emptied_on_purpose_is_made_anew_and_marked_for_good(tmp_path: Path) -> None:
    config = prepared(tmp_path / "s")
    lake = tmp_path / "s/lake"
    run(config, 1)
    for ticks in (2, 3):
        shutil.rmtree(lake)
        with no_noise(), pytest.raises(MirrorError, match="holds nothing"):
            run(config, ticks)
        run(config, ticks, unchecked=True)
        assert deltalake.DeltaTable(lake).version() == ticks - 1, "all of it is there again"
    run(config, 4)
    assert manifests(config) == [None, ["delta 1"], ["delta 1"], None]


def test_a_mirror_is_known_by_its_address(tmp_path: Path) -> None:
    config = prepared(tmp_path / "s")
    (lake,) = config.mirrors
    run(config, 1)
    (tmp_path / "s/lake").rename(tmp_path / "away")
    fresh = lake.model_copy(update={"path": str(tmp_path / "fresh")})
    with no_noise(), pytest.raises(MirrorError, match="lake holds nothing"):
        run(replace(config, mirrors=(fresh, lake)), 2)
    run(replace(config, mirrors=(fresh,)), 2)
    assert manifests(config) == [None, None]


def test_a_mirror_that_goes_while_a_stream_is_open_is_not_made_anew(tmp_path: Path) -> None:
    config = prepared(tmp_path / "s")
    lake, away = tmp_path / "s/lake", tmp_path / "away"
    with Stream(config) as stream:
        stream.ingest()
        stream.release()
        lake.rename(away)
        lake.mkdir()
        with pytest.raises(MirrorError, match="holds nothing"):
            stream.release()
        assert (stream.closed, stream.status()["unchecked"], list(lake.iterdir())) == (2, ["delta 1"], [])
        lake.rmdir()
        away.rename(lake)
        stream.release()
    assert manifests(config) == [None, ["delta 1"], None]


def test_a_state_that_remembers_no_mirror_learns_of_it_when_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = prepared(tmp_path / "s")
    with monkeypatch.context() as older:
        older.setattr("synthstream.stream.opening.hold", lambda *_: None)
        run(config, 1)
    run(config, 1)
    shutil.rmtree(tmp_path / "s/lake")
    with no_noise(), pytest.raises(MirrorError, match="holds nothing"):
        run(config, 2)


@pytest.mark.parametrize("state", ["lost", "old", "new"])
def test_adopting_remembers_mirrors(tmp_path: Path, state: str) -> None:
    config = prepared(tmp_path / "s")
    lake, away = tmp_path / "s/lake", tmp_path / "away"
    run(config, 1)
    if state == "old":
        backup(config, tmp_path / "backup")
    run(config, 2)
    if state == "new":
        backup(config, tmp_path / "backup")
    shutil.rmtree(config.state)
    if state != "lost":
        shutil.copytree(tmp_path / "backup/private", config.state)
        lake.rename(away)
        with pytest.raises(MirrorError, match="holds nothing"):
            adopt(config)
        if state == "new":
            away.rename(lake)
    assert adopt(config, unchecked=state == "old").segment == (state != "new")
    shutil.rmtree(lake, ignore_errors=True)
    with no_noise(), pytest.raises(MirrorError, match="holds nothing"):
        run(config, 3)
