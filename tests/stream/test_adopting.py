"""A new state in the place of the old one: one process at a time, and nothing half done where it cannot be."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from synthstream import Stream, StreamConfig
from synthstream.errors import RecoveryRefused, StateLocked
from synthstream.stream.recovery import adopt
from tests.support.environments import Interrupting
from tests.support.halves import HALF, half_run
from tests.support.streams import rows


@pytest.fixture
def lost(tmp_path: Path) -> StreamConfig:
    """A stream whose state is lost."""
    config = half_run(tmp_path, "always")
    shutil.rmtree(config.state)
    return config


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_of_two_recoveries_at_once_one_is_refused_and_nothing_that_was_counted_is_lost(lost: StreamConfig) -> None:
    """The second would put aside what the first has made, with what was pushed to it meanwhile."""
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
    assert names(lost.state.parent) == {"stream.toml", "rows-1.parquet", "releases", "state"}


def test_who_may_not_list_the_folder_recovers_all_the_same(lost: StreamConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = os.open

    def unlisted(path: str | Path, flags: int, *more: int) -> int:
        if path == lost.state.parent and flags & os.O_DIRECTORY:
            raise PermissionError(errno.EACCES, "no")
        return usual(path, flags, *more)

    monkeypatch.setattr("synthstream.state.folder.os.open", unlisted)
    assert adopt(lost) == (HALF, True, None)
