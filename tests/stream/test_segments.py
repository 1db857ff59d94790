"""A lost state: going on from what was published, counting nothing twice and drawing nothing again."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.config.config import load
from synthstream.config.sinks import DeltaMirror
from synthstream.errors import RecoveryRefused, StateError, StateLocked, StateMismatch, StateRolledBack
from synthstream.fit.cloud import Cloud
from synthstream.partition import Partition
from synthstream.publish.folder import ParquetSink
from synthstream.release.points import PointRelease
from synthstream.release.release import Release
from synthstream.release.tables import TableRelease
from synthstream.stream.backups import backup
from synthstream.stream.recovery import adopt, republish
from synthstream.stream.verification import verify
from tests.support.configs import SINK, WARD, number, stream_toml
from tests.support.halves import HALF, exact, half_run
from tests.support.streams import KINDS, TICKS, configured, published, rows


def total(release: Release) -> float:
    assert isinstance(release, TableRelease)
    return float(release.table([])["measured"][0])


@pytest.mark.sparing(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_state_goes_on_from_what_was_published(tmp_path: Path, kind: str) -> None:
    config = half_run(tmp_path, kind)
    before = published(tmp_path / "releases")
    shutil.rmtree(config.state)
    with pytest.raises(StateRolledBack, match=r"recover stream\.toml --adopt"):
        Stream(config)
    assert adopt(config) == (HALF, True, None)
    with Stream(config) as stream:
        list(stream.run())
        assert stream.closed == TICKS
    after = published(tmp_path / "releases")
    assert {name: after[name] for name in before} == before
    manifest = json.loads((tmp_path / "releases/000007/manifest.json").read_text())
    assert manifest["segments"] == [HALF]
    assert verify(config, rebuild=True) == (TICKS, TICKS, [], [])


@pytest.mark.sparing(3)
@pytest.mark.parametrize("kind", ["always", "epochs", "points", "points-signed"])
def test_every_row_counts_once_through_two_losses(tmp_path: Path, kind: str) -> None:
    """Counted exactly, without noise: what was published stays, what comes after is added, late rows are dropped."""
    frame = rows(400, 1)
    config = half_run(tmp_path, kind, gates=True)
    shutil.rmtree(config.state)
    adopt(config, gates=exact)
    late = frame.head(50).with_columns(when=pl.lit(datetime(2026, 1, 2)))
    undated = frame.head(50).with_columns(when=pl.lit(None, dtype=pl.Datetime))
    pl.concat([late, undated]).write_parquet(tmp_path / "rows-2.parquet")
    with Stream(configured(tmp_path, kind, until="2026-01-07"), gates=exact) as stream:
        list(stream.run())
    shutil.rmtree(config.state)
    adopt(config, gates=exact)
    with Stream(config, gates=exact) as stream:
        assert stream.closed == 6
        list(stream.run())
        release = stream.last
    assert isinstance(release, TableRelease | PointRelease)
    if isinstance(release, TableRelease):
        assert round(total(release)) == len(frame)
    there = int(frame["op"].sum()) if kind == "points-signed" else len(frame)
    # Of epochs the rows that came since the last one are drawn to the rate of before, as the gate's law has noise.
    assert release.model.number == pytest.approx(there, abs=10 if kind == "epochs" else 2)
    assert verify(config, rebuild=True).findings == []


def test_running_counts_go_on_and_their_errors_add_up(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always", gates=True)
    with Stream(config, gates=exact) as stream:
        assert isinstance(stream.last, TableRelease)
        base = stream.last.table(["ward"])
    shutil.rmtree(config.state)
    adopt(config, gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
        assert isinstance(stream.last, TableRelease)
        table = stream.last.table(["ward"])
    truth = rows(400, 1)["ward"].value_counts()
    expected = dict(zip(truth["ward"], truth["count"], strict=True))
    for ward, measured in zip(table["ward"], table["measured"], strict=True):
        assert measured == pytest.approx(expected.get(ward, 0), abs=0.2)
    assert table["since"].to_list() == [0] * len(table)
    assert float(table["stderr"][0]) > float(base["stderr"][0])
    with Stream(configured(tmp_path / "whole", "always"), gates=exact) as alone:
        alone.update(rows(400, 1))
        for _ in range(HALF):
            own = alone.release()
    assert isinstance(own, TableRelease)
    variance = float(base["stderr"][0]) ** 2 + float(own.table(["ward"])["stderr"][0]) ** 2
    assert float(table["stderr"][0]) ** 2 == pytest.approx(variance)


def test_an_older_copy_is_put_aside_and_a_tick_drawn_but_not_published_is_forgotten(tmp_path: Path) -> None:
    config = configured(tmp_path, "always", until="2026-01-03")
    rows(200, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        list(stream.run())
    shutil.copytree(config.state, tmp_path / "old")
    config = configured(tmp_path, "always", until="2026-01-06")
    with Stream(config) as stream:
        list(stream.run())
    newest = published(tmp_path / "releases")
    shutil.rmtree(config.state)
    shutil.move(tmp_path / "old", config.state)
    with pytest.raises(StateRolledBack, match="did not make"):
        Stream(config)
    assert adopt(config) == (5, True, tmp_path / "state.replaced-1")
    assert (tmp_path / "state.replaced-1/store.db").exists()
    with Stream(configured(tmp_path, "always")) as stream:
        list(stream.run())
    assert {name: published(tmp_path / "releases")[name] for name in newest} == newest


def test_a_backup_that_is_as_new_as_the_releases_goes_on_whole(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always", gates=True)
    backup(config, tmp_path / "backup")
    assert oct((tmp_path / "backup/private").stat().st_mode)[-3:] == "700"
    assert oct((tmp_path / "backup/private/store.db").stat().st_mode)[-3:] == "600"
    kept = pl.read_parquet(tmp_path / "backup/public/measurements.parquet")
    assert kept["tick"].to_list() == list(range(HALF))
    shutil.rmtree(config.state)
    shutil.move(tmp_path / "backup/private", config.state)
    with pytest.raises(StateRolledBack, match="is a backup"):
        Stream(config, gates=exact)
    assert adopt(config, gates=exact) == (HALF, False, None)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
        assert stream.last is not None
        assert round(total(stream.last)) == 400
    assert "segments" not in json.loads((tmp_path / "releases/000007/manifest.json").read_text())


def test_a_backup_that_was_not_begun_is_not_there_to_delete(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always")
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"file/backup: Not a directory\.$"):
        backup(config, tmp_path / "file/backup")


def test_a_backup_of_before_goes_on_in_a_new_segment(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always")
    backup(config, tmp_path / "backup")
    with Stream(configured(tmp_path, "always", until="2026-01-06")) as stream:
        list(stream.run())
    shutil.rmtree(config.state)
    shutil.move(tmp_path / "backup/private", config.state)
    assert adopt(config)[:2] == (5, True)
    with Stream(config) as stream:
        list(stream.run())
    assert verify(config).findings == []


def test_lost_releases_are_built_again_from_the_state(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always")
    before = published(tmp_path / "releases")
    shutil.rmtree(tmp_path / "releases/000003")
    shutil.rmtree(tmp_path / "releases/000001")
    with pytest.raises(StateRolledBack, match="--republish"):
        Stream(config)
    assert republish(config) == 2
    assert published(tmp_path / "releases") == before
    shutil.rmtree(tmp_path / "releases")
    assert CliRunner().invoke(app, ["recover", str(tmp_path / "stream.toml"), "--republish"]).exit_code == 0
    assert published(tmp_path / "releases") == before
    with pytest.raises(RecoveryRefused, match=r"has its folder where it should be\..* lacks a file, move its folder"):
        republish(config)


def test_what_cannot_be_recovered_is_refused(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always")
    with pytest.raises(RecoveryRefused, match="as new as the releases"):
        adopt(config)
    with Stream(config), pytest.raises(StateLocked):
        adopt(config)
    other = StreamConfig.from_toml(
        (tmp_path / "stream.toml").read_text().replace("bins = 4", "bins = 5"), base=tmp_path
    )
    with pytest.raises((RecoveryRefused, StateMismatch)):
        adopt(other)
    shutil.rmtree(config.state)
    content = bytearray((tmp_path / "releases/000001/measured.parquet").read_bytes())
    content[30] ^= 1
    (tmp_path / "releases/000001/measured.parquet").write_bytes(content)
    with pytest.raises(RecoveryRefused, match="not sound: 000001"):
        adopt(config)
    assert not config.state.exists()
    shutil.rmtree(tmp_path / "releases")
    with pytest.raises(RecoveryRefused, match="holds no release"):
        adopt(config)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('column = "when"', "", "have no time"),
        ('[sink]\nkind = "parquet"\npath = "releases"\n', "", "has no \\[sink\\]"),
    ],
)
def test_streams_that_cannot_tell_old_rows_from_new_are_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    configured(tmp_path, "always")
    text = (tmp_path / "stream.toml").read_text()
    assert old in text
    config = StreamConfig.from_toml(text.replace(old, new), base=tmp_path)
    with Stream(config) as stream:
        stream.update(rows(50, 1))
        stream.release()
    shutil.rmtree(config.state)
    with pytest.raises(StateError, match=message):
        adopt(config)


def test_persons_are_adopted_only_whole(tmp_path: Path) -> None:
    """Who has counted how often is private: if that is lost, nobody may count again."""
    configured(tmp_path, "always", until="2026-01-05")
    text = (tmp_path / "stream.toml").read_text()
    config = StreamConfig.from_toml(
        text.replace('unit = "event"', 'unit = { person = "ward", max_events = 3 }'), base=tmp_path
    )
    rows(60, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        list(stream.run())
    backup(config, tmp_path / "backup")
    shutil.rmtree(config.state)
    with pytest.raises(RecoveryRefused, match="how many events of each person have counted"):
        adopt(config)
    for call in (republish, Stream):  # neither advises what would be refused
        with pytest.raises(StateError, match=r"A backup that is as new as the releases can go on.* If there is none"):
            call(config)
    shutil.move(tmp_path / "backup/private", config.state)
    assert adopt(config) == (HALF, False, None)
    Stream(config).close()


def test_without_a_sink_a_backup_goes_on_if_it_is_as_new_as_the_anchor(tmp_path: Path) -> None:
    configured(tmp_path, "always")
    text = (tmp_path / "stream.toml").read_text().replace('[sink]\nkind = "parquet"\npath = "releases"\n', "")
    config = StreamConfig.from_toml(text, base=tmp_path)
    with Stream(config) as stream:
        stream.update(rows(50, 1))
        stream.release()
    for name, as_new in (("one", True), ("two", False)):
        backup(config, tmp_path / name)
        if not as_new:
            with Stream(config) as stream:
                stream.release()
        shutil.rmtree(config.state)
        shutil.move(tmp_path / name / "private", config.state)
        if as_new:
            assert adopt(config) == (1, False, None)
        else:
            with pytest.raises(RecoveryRefused, match=r"has no \[sink\]"):
                adopt(config)


def test_masses_of_two_clouds_add_up() -> None:
    partition = Partition(dimension=1, depth=3)

    def cloud(masses: list[float], error: float) -> Cloud:
        nodes = np.full(len(masses), error)
        return Cloud(
            partition=partition,
            masses=np.array(masses),
            plain=np.array(masses),
            errors=nodes,
            plain_errors=nodes,
            total_variance=1.0,
            moving=0.5,
        )

    both = cloud([4.0, 2.0], 1.0).plus(cloud([1.0, 0.0, 0.0, 3.0], 2.0))
    assert both.masses.tolist() == [3.0, 2.0, 1.0, 4.0]
    assert both.total_variance == 2.0
    # What the coarser one does not know, inside of its halves, counts as error.
    assert both.plain_errors.tolist() == pytest.approx([3.0, 3.0, 2 + 16 / 3, 2 + 4 / 3])


def test_a_backup_never_lies_where_it_is_published_or_lost(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always")
    config = replace(config, mirrors=(DeltaMirror(kind="delta", path=str(tmp_path / "open")),))
    (tmp_path / "site/latest").mkdir(parents=True)
    (tmp_path / "site/latest/manifest.json").touch()
    public = [(f"{place}/backup", "published") for place in ("releases", "releases/000001", "open", "site")]
    for place, why in (*public, ("state/backup", "lost with it"), ("releases", "already")):
        with pytest.raises(StateError, match=why):
            backup(config, tmp_path / place)
    assert verify(replace(config, mirrors=())).findings == []


def test_a_backup_does_not_make_up_what_was_published_after_it(tmp_path: Path) -> None:
    """State and releases are lost: built from a backup, later ticks would look as if nobody had seen them."""
    config = half_run(tmp_path, "always", gates=True)
    backup(config, tmp_path / "backup")
    with Stream(configured(tmp_path, "always", until="2026-01-06"), gates=exact) as stream:
        list(stream.run())
    shutil.rmtree(config.state)
    shutil.move(tmp_path / "backup/private", config.state)
    lost = [tmp_path / f"releases/{tick:06d}" for tick in range(HALF - 1, 5)]
    assert lost[0].exists()
    for place in lost:
        shutil.rmtree(place)
    command = ["recover", str(tmp_path / "stream.toml"), "--republish"]
    found = CliRunner().invoke(app, command)
    assert (found.exit_code, "would draw them a second time" in " ".join(found.output.split())) == (2, True)
    assert not lost[0].exists()
    shutil.rmtree(tmp_path / "releases")
    with pytest.raises(RecoveryRefused, match="copy them back first"):
        adopt(config, gates=exact)
    assert CliRunner().invoke(app, [*command, "--unchecked"]).output == f"{HALF} release(s) put back.\n"


def test_no_release_is_built_again_by_a_state_that_drew_others(tmp_path: Path) -> None:
    """An old copy of the state drew a tick anew elsewhere; now what others have seen is there, without that tick."""
    config = half_run(tmp_path, "always", gates=True)
    seen = tmp_path / "seen"
    shutil.move(tmp_path / "releases", seen)
    shutil.rmtree(config.state)
    with Stream(config) as stream:  # other noise, and so other draws of the same ticks
        list(stream.run())
    shutil.rmtree(tmp_path / "releases")
    shutil.copytree(seen, tmp_path / "releases")
    for tick in (HALF - 1, 1):
        shutil.rmtree(tmp_path / f"releases/{tick:06d}")
        with pytest.raises(RecoveryRefused, match="000000 was not made by the state"):
            republish(config)
    shutil.rmtree(tmp_path / "releases/000000")
    with pytest.raises(RecoveryRefused, match="000002 was not made by the state"):
        republish(config)


def test_releases_are_not_built_again_from_a_state_that_is_not_there(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always")
    shutil.rmtree(config.state)
    with pytest.raises(RecoveryRefused, match="There is no state"):
        republish(config)
    assert not config.state.exists()
    done = CliRunner().invoke(app, ["status", str(tmp_path / "stream.toml")])
    assert "no state in" in done.output
    assert "not started" not in done.output


def test_a_backup_one_folder_too_deep_is_named_and_not_put_aside(tmp_path: Path) -> None:
    config = half_run(tmp_path, "always")
    backup(config, tmp_path / "backup")
    shutil.rmtree(config.state)
    config.state.mkdir(mode=0o700)
    shutil.move(tmp_path / "backup/private", config.state)
    with pytest.raises(RecoveryRefused, match="Move it, so that"):
        adopt(config)
    assert (config.state / "private/store.db").exists()


def test_a_long_stream_is_adopted_without_reading_each_release_many_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = stream_toml(WARD, number("x", "bins = 4", high=10), SINK, horizon=40, until="2026-02-01")
    (tmp_path / "stream.toml").write_text(text)
    config = load(tmp_path / "stream.toml")
    with Stream(config, gates=exact) as stream:
        ticks = len(list(stream.run()))
    shutil.rmtree(config.state)
    read, measured = Counter[int](), ParquetSink.measured
    monkeypatch.setattr(ParquetSink, "measured", lambda sink, tick: (read.update([tick]), measured(sink, tick))[1])
    assert adopt(config, gates=exact).start == ticks == 31
    assert read.total() / ticks < 6
