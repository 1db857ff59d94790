"""A mirror remembers what a snapshot has forgotten: no tick that it holds is ever drawn again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import deltalake
import pytest
from typer.testing import CliRunner

from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.errors import MirrorError, RecoveryRefused, SinkError, StateError, StateRolledBack
from synthstream.publish.mirrors import Copied, DeltaTable, refuse_fork
from synthstream.stream.backups import backup
from synthstream.stream.recovery import adopt
from synthstream.stream.verification import verify
from tests.support.streams import published
from tests.support.witnesses import EARLY, LATE, block, drawn, kept, manifests, no_noise, prepared, run


@pytest.mark.parametrize("kind", ["always", "epochs"])
def test_what_a_snapshot_forgot_is_not_drawn_again(tmp_path: Path, kind: str) -> None:
    config = prepared(tmp_path / "s", kind)
    run(config, EARLY)
    restore = kept(config, tmp_path)
    run(config, LATE)
    restore()
    before = published(tmp_path / "s/releases")
    with (
        no_noise(),
        pytest.raises(StateRolledBack, match=r"tick 3 that is not known here.*budget twice.*another mirror"),
    ):
        run(config, LATE)
    assert drawn(config) == (EARLY, 0)
    assert published(tmp_path / "s/releases") == before
    found = CliRunner().invoke(app, ["run", str(config.base / "stream.toml"), "--yes", "--unchecked"])
    assert (found.exit_code, drawn(config)) == (2, (EARLY, 0)), "a mirror that answers always stops"


def test_a_restored_backup_or_a_lost_state_is_not_adopted_beside_a_mirror_that_knows_more(tmp_path: Path) -> None:
    config = prepared(tmp_path / "s")
    run(config, EARLY)
    restore = kept(config, tmp_path)
    backup(config, tmp_path / "backup")
    run(config, LATE)
    restore()
    shutil.rmtree(config.state)
    for private in (False, True):
        if private:
            shutil.copytree(tmp_path / "backup/private", config.state)
        for unchecked in (False, True):
            with pytest.raises(RecoveryRefused, match="holds a release of tick 3"):
                adopt(config, unchecked=unchecked)
        assert config.state.exists() == private
    block(config)
    command = ["recover", str(config.base / "stream.toml"), "--adopt"]
    refused = CliRunner().invoke(app, command)
    assert (refused.exit_code, "with --unchecked" in refused.output) == (2, True)
    assert CliRunner().invoke(app, [*command, "--unchecked"]).exit_code == 0
    (tmp_path / "s/lake").unlink()
    (tmp_path / "s/away").rename(tmp_path / "s/lake")
    with no_noise(), pytest.raises(StateRolledBack, match="tick 3"):
        run(config, LATE)


def test_when_all_else_is_lost_the_mirror_still_knows(tmp_path: Path) -> None:
    config = prepared(tmp_path / "s")
    run(config, EARLY)
    for name in ("state", "releases"):
        shutil.rmtree(tmp_path / "s" / name)
    with no_noise(), pytest.raises(StateRolledBack, match="tick 1 that is not known here"):
        Stream(config)
    assert not config.state.exists(), "nothing was made, nothing was charged"


def test_another_draw_of_the_same_tick_is_noticed(tmp_path: Path) -> None:
    """The state that was put back had drawn the tick with other noise."""
    config = prepared(tmp_path / "s")
    run(config, EARLY)
    restore = kept(config, tmp_path)
    run(config, EARLY + 1)
    shutil.move(tmp_path / "s/lake", tmp_path / "lake")
    restore()
    run(config, EARLY + 1, unchecked=True)
    shutil.rmtree(tmp_path / "s/lake")
    shutil.move(tmp_path / "lake", tmp_path / "s/lake")
    with no_noise(), pytest.raises(StateRolledBack, match="tick 2 that is not known here"):
        run(config, LATE)
    assert drawn(config) == (EARLY + 1, 0)


def test_a_mirror_that_lags_or_is_empty_stops_nothing(tmp_path: Path) -> None:
    config = prepared(tmp_path / "s")
    run(replace(config, mirrors=()), EARLY)
    run(config, EARLY + 1)
    assert deltalake.DeltaTable(tmp_path / "s/lake").version() == EARLY
    run(replace(config, mirrors=()), LATE)
    run(config, LATE + 1)
    assert deltalake.DeltaTable(tmp_path / "s/lake").version() == LATE
    assert verify(config).findings == []


def test_a_mirror_that_cannot_be_asked_is_in_the_manifest_until_it_answers(tmp_path: Path) -> None:
    config = prepared(tmp_path / "s")
    run(config, 1)
    away = block(config)
    with no_noise(), pytest.raises(MirrorError, match=r"cannot be used.*with --unchecked"):
        run(config, 2)
    assert drawn(config) == (1, 0)
    with Stream(config, unchecked=True) as stream:
        assert stream.status()["unchecked"] == ["delta 1"]
        stream.ingest()
        for _ in range(2):
            with pytest.raises(MirrorError, match="will be copied when you run again"):
                stream.release()
        (tmp_path / "s/lake").unlink()
        away.rename(tmp_path / "s/lake")
        stream.release()
        assert stream.status()["unchecked"] == []
    assert manifests(config) == [None, ["delta 1"], ["delta 1"], None]
    assert verify(config, rebuild=True).findings == []
    shutil.rmtree(config.state)
    adopt(config)
    run(config, LATE + 1)
    assert verify(config, rebuild=True).findings == []
    path = tmp_path / "s/releases/000001/manifest.json"
    whole = path.read_text()
    for other in ("[]", '["delta 2"]', "7"):
        path.write_text(whole.replace('[\n    "delta 1"\n  ]', other))
        found = verify(config).findings
        assert "000001" in {finding.where for finding in found}, "it is chained"
    shutil.rmtree(config.state)
    path.write_text(whole.replace('[\n    "delta 1"\n  ]', "[]"))
    assert ("000001", "its head is not that of what was measured") in verify(config).findings


def test_a_mirror_that_fails_later_in_the_process_delays_nothing_and_is_in_the_manifest(tmp_path: Path) -> None:
    config = prepared(tmp_path / "s")
    with Stream(config) as stream:
        stream.ingest()
        stream.release()
        block(config)
        with pytest.raises(MirrorError, match="will be copied"):
            stream.release()
        assert stream.closed == 2
    assert manifests(config) == [None, ["delta 1"]]


def two_copies(folder: Path) -> tuple[StreamConfig, StreamConfig]:
    """A stream with one release, and a copy of it; both have the same mirror."""
    one = prepared(folder / "one", place=str(folder / "lake"))
    run(one, 1)
    shutil.copytree(folder / "one", folder / "two")
    two = prepared(folder / "two", place=str(folder / "lake"))
    two.state.chmod(0o700)
    return one, two


def test_a_copy_that_draws_while_the_mirror_is_silent_says_so(tmp_path: Path) -> None:
    """The mirror had answered both; what it learned of one of them since, the other cannot know."""
    one, two = two_copies(tmp_path)
    with Stream(two) as late:
        late.ingest()
        run(one, 3)
        (tmp_path / "lake").rename(tmp_path / "away")
        (tmp_path / "lake").write_text("in the way")
        for _ in range(2):
            with pytest.raises(MirrorError, match="will be copied"):
                late.release()
        assert late.status()["unchecked"] == ["delta 1"]
    assert manifests(two) == [None, ["delta 1"], ["delta 1"]]
    assert verify(two, rebuild=True).findings == []


def test_two_copies_that_run_at_once_meet_at_the_mirror_before_they_draw(tmp_path: Path) -> None:
    one, two = two_copies(tmp_path)
    with Stream(two) as late:
        run(one, 2)
        for there in (True, True, False):
            if not there:
                (tmp_path / "lake").rename(tmp_path / "gone")
            with pytest.raises(StateRolledBack, match="another copy of them goes on elsewhere"):
                late.release()
            assert late.closed == 1, "refused before a draw"
    assert drawn(two) == (1, 0)


def test_a_copy_that_draws_just_then_stops_after_it(tmp_path: Path) -> None:
    """Both were asked before either had published: the one that comes second learns it, and draws no more."""
    one, two = two_copies(tmp_path)

    with Stream(two) as late:
        asked = late._copies.ask

        def ask(heads: Callable[[int], str | None]) -> tuple[str, ...]:
            found = asked(heads)
            run(one, 2)
            late._copies.ask = asked  # type: ignore[method-assign]
            return found

        late._copies.ask = ask  # type: ignore[method-assign]
        with pytest.raises(StateRolledBack, match="spends the budget twice"):
            late.release()
        assert late.closed == 2
        shutil.rmtree(tmp_path / "lake")
        with pytest.raises(StateRolledBack, match="spends the budget twice"):
            late.release()
        assert late.closed == 2, "for good"


def test_who_reads_releases_asks_no_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = prepared(tmp_path / "s")
    run(config, 1)

    def asked(self: DeltaTable) -> None:
        raise StateError("asked")

    monkeypatch.setattr(DeltaTable, "newest", asked)
    path = str(config.base / "stream.toml")
    for command in (["sample", "-n", "1"], ["verify"], ["report", "-o", str(tmp_path / "r.html")]):
        done = CliRunner().invoke(app, [command[0], path, *command[1:]])
        assert done.exit_code == 0, done.output


def test_a_history_that_no_longer_tells_the_head_is_believed_as_far_as_it_goes(tmp_path: Path) -> None:
    mirror = DeltaTable(str(tmp_path), stream="x")
    with pytest.raises(StateRolledBack):
        refuse_fork(mirror, Copied(3, None), lambda _: None)
    with pytest.raises(SinkError, match=r"no longer tells.*the budget was spent twice"):
        refuse_fork(mirror, Copied(3, None), lambda _: "a")


def test_the_gate_of_these_tests_refuses(tmp_path: Path) -> None:
    with no_noise(), pytest.raises(AssertionError, match="was asked for noise"):
        run(prepared(tmp_path / "s"), 1)
