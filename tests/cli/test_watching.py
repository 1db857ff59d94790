"""What an operator's machines watch: OpenMetrics, a check by exit status, a command after each release."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from synthstream import StreamConfig
from synthstream.cli import status
from synthstream.cli.run import Then, run_command
from synthstream.cli.runtime import Now
from synthstream.environment import Env
from synthstream.forecast.warnings import Caution
from tests.support.command import synthstream
from tests.support.configs import AGE, SINK, WARD, source, stream_toml
from tests.support.visits import visits

MIRROR = '[[mirror]]\nkind = "delta"\npath = "lake"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three releases, of which a mirror has one."""
    visits([1, 1, 2, 5] * 100).write_parquet(tmp_path / "visits-1.parquet")
    written(tmp_path, MIRROR)
    assert synthstream("run", "stream.toml", "--yes", "--until", "2026-01-02", cwd=tmp_path).returncode == 0
    written(tmp_path)
    assert synthstream("run", "stream.toml", "--until", "2026-01-04", cwd=tmp_path).returncode == 0
    return tmp_path


def written(folder: Path, *sections: str, path: str = "visits*.parquet", name: str = "visits") -> None:
    text = stream_toml(WARD, AGE, source(path), SINK, *sections)
    (folder / "stream.toml").write_text(text.replace('name = "visits"', f"name = {json.dumps(name)}"))


def read(text: str) -> list[Metric]:
    """What a monitor reads: by the parser of Prometheus's own client, which is strict."""
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def measured(folder: Path) -> dict[tuple[str, ...], float]:
    """Values by name and labels."""
    told = synthstream("status", "stream.toml", "--metrics", cwd=folder)
    assert told.returncode == 0, told.stderr
    found = {}
    for family in read(told.stdout):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key != "stream"}
            found[(sample.name.removeprefix("synthstream_"), *labels.values())] = float(sample.value)
    return found


def test_metrics_tell_what_is_public_and_no_more(folder: Path) -> None:
    written(folder, MIRROR, '[status]\nfree = "1 kB"\n')
    found = measured(folder)
    assert found.pop(("release_age_seconds",)) > 86_400
    assert found == {
        ("ticks_released",): 3,
        ("ticks_due",): 2,
        ("ticks_left",): 5,
        ("run_refused",): 0,
        ("mirror_answered", "delta 1"): 1,
        ("mirror_lag_ticks", "delta 1"): 2,
        ("source_answered",): 1,
        ("disk_low", "state"): 0,
        ("disk_low", "releases"): 0,
    }


def test_metrics_tell_what_does_not_answer(folder: Path) -> None:
    (folder / "lake").rename(folder / "away")
    (folder / "lake").write_text("no folder")
    written(folder, MIRROR, '[status]\nfree = "1000 PB"\n', path="elsewhere/visits*.parquet")
    found = measured(folder)
    assert found["mirror_answered", "delta 1"] == 0
    assert ("mirror_lag_ticks", "delta 1") not in found
    assert found["source_answered",] == 0
    assert found["disk_low", "state"] == 1
    shutil.rmtree(folder / "state")
    assert measured(folder)["run_refused",] == 1


def test_a_name_cannot_break_the_text(tmp_path: Path) -> None:
    written(tmp_path, name='a"b\\c')
    told = synthstream("status", "stream.toml", "--metrics", cwd=tmp_path).stdout
    labels = {s.labels["stream"] for family in read(told) for s in family.samples}
    assert labels == {'a"b\\c'}


def test_status_says_that_a_mirror_lags_until_it_is_copied_to(folder: Path) -> None:
    written(folder, MIRROR)
    assert "Mirror   delta 1 lags 2 release(s) behind" in synthstream("status", "stream.toml", cwd=folder).stdout
    assert synthstream("run", "stream.toml", "--until", "2026-01-04", cwd=folder).returncode == 0
    assert "Mirror" not in synthstream("status", "stream.toml", cwd=folder).stdout
    told = json.loads(synthstream("status", "stream.toml", "--json", cwd=folder).stdout)
    assert told["mirrors"] == [{"name": "delta 1", "tick": 2, "lag": 0}]
    (folder / "lake").rename(folder / "away")
    (folder / "lake").write_text("no folder")
    assert "Mirror   delta 1 does not answer" in synthstream("status", "stream.toml", cwd=folder).stdout


def test_a_source_that_is_away_keeps_no_mirror_waiting(folder: Path) -> None:
    written(folder, MIRROR, path="elsewhere/visits*.parquet")
    done = synthstream("run", "stream.toml", "--follow", "--until", "2026-01-05", cwd=folder)
    assert done.returncode == 2
    assert "elsewhere cannot be read" in " ".join(done.stderr.split())
    assert measured(folder)["mirror_lag_ticks", "delta 1"] == 0


def test_a_check_ends_with_status_1_where_a_hand_is_needed(folder: Path) -> None:
    assert synthstream("status", "stream.toml", "--check", cwd=folder).returncode == 1  # two ticks are due
    assert synthstream("run", "stream.toml", "--until", "2026-01-05", cwd=folder).returncode == 0
    assert synthstream("status", "stream.toml", "--check", cwd=folder).returncode == 0  # one: its run may be at it
    text = (folder / "stream.toml").read_text()
    for wrong in (text.replace("horizon = 8", "horizon = 9"), text + '[encryption]\nkey_file = "lost"\n'):
        (folder / "stream.toml").write_text(wrong)
        assert synthstream("status", "stream.toml", "--check", cwd=folder).returncode == 1
    told = json.loads(synthstream("status", "stream.toml", "--json", cwd=folder).stdout)
    assert [told[key] for key in ("keyless", "refused", "changed", "ahead")] == [True, True, [], False]


@pytest.mark.parametrize("published", [True, False])
def test_an_old_copy_of_the_state_is_told(tmp_path: Path, published: bool) -> None:
    """By the releases; without any, by the file beside the state."""
    visits([1, 1, 2]).write_parquet(tmp_path / "visits-1.parquet")
    (tmp_path / "stream.toml").write_text(stream_toml(WARD, AGE, source("visits*.parquet"), *[SINK] * published))

    def status() -> tuple[bool, bool]:
        told = json.loads(synthstream("status", "stream.toml", "--json", cwd=tmp_path).stdout)
        return told["old"], told["refused"]

    assert synthstream("run", "stream.toml", "--yes", "--until", "2026-01-03", cwd=tmp_path).returncode == 0
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    assert synthstream("run", "stream.toml", "--until", "2026-01-04", cwd=tmp_path).returncode == 0
    assert status() == (False, False)
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy").rename(tmp_path / "state")
    assert status() == (True, True)
    shown = synthstream("status", "stream.toml", "--check", cwd=tmp_path)
    assert (shown.returncode, "it is an old copy" in shown.stdout.replace("\n", " ")) == (1, True)
    assert "it is an old copy" in synthstream("run", "stream.toml", cwd=tmp_path).stderr.replace("\n", " ")


def test_a_newest_release_that_ends_in_the_future_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever set the clock back: by the clock of today nothing is due, and nothing else would be seen."""

    def told(now: datetime, command: Callable[..., None], **asked: bool) -> bool:
        monkeypatch.setattr(Env, "now", lambda _: now)
        command(folder / "stream.toml", **asked)
        return "ends 2026-01-04, and that is not over" in " ".join("".join(capsys.readouterr()).split())

    early, late = datetime(2026, 1, 3, 23, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC)
    with pytest.raises(SystemExit) as ended:
        told(early, status.status_command, check=True)
    assert ended.value.code == 1
    assert (told(early, status.status_command), told(early, run_command)) == (True, True)
    monkeypatch.setattr(Now, "quiet", True)
    assert told(early, run_command)
    monkeypatch.setattr(Now, "quiet", False)
    assert (told(late, status.status_command, check=True), told(late, run_command)) == (False, False)


def test_warnings_are_made_only_where_they_are_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[StreamConfig]()

    def noticed(config: StreamConfig, *, new: int) -> tuple[Caution, ...]:
        asked.append(config)
        return ()

    monkeypatch.setattr("synthstream.forecast.noticing.noticed", noticed)
    for words, times in (("--metrics", 0), ("--check -q", 0), ("--json -q", 1), ("--check", 1)):
        asked.clear()
        assert synthstream("status", "stream.toml", *words.split(), cwd=folder).stderr == ""
        assert len(asked) == times, words


def test_a_run_says_in_full_what_is_new_and_names_what_earlier_releases_showed(tmp_path: Path) -> None:
    visits([1, 2, 3] * 400, ward="nowhere").write_parquet(tmp_path / "visits-1.parquet")
    written(tmp_path)
    again = "As in earlier releases: columns.ward."
    for day, told in (("2", "Warning: columns.ward:"), ("4", again), ("4", again)):
        out = synthstream("run", "stream.toml", "--simulate", "--until", f"2026-01-0{day}", cwd=tmp_path).stdout
        assert [line for line in out.splitlines() if "columns.ward" in line and line.startswith(told)]
        assert out.count("columns.ward") == 1
    assert "Warning: columns.ward:" in synthstream("status", "stream.toml", "--simulate", cwd=tmp_path).stdout


NOTE = """
import os, pathlib, sys
place = pathlib.Path(os.environ["SYNTHSTREAM_RELEASE"])
with open("noted", "a") as file:
    print(os.environ["SYNTHSTREAM_TICK"], place.name, (place / "manifest.json").exists(), os.environ["SYNTHSTREAM_END"],
          (place.parent / "datapackage.json").exists(), file=file)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("follow", [False, True])
def test_a_command_runs_after_each_release_and_delays_none(folder: Path, status: int, follow: bool) -> None:
    (folder / "note.py").write_text(NOTE)
    command = f"{sys.executable} note.py {status}"
    ended = synthstream("run", "stream.toml", "--then", command, *["--follow"] * follow, cwd=folder)
    assert (folder / "noted").read_text().splitlines() == [
        "3 000003 True 2026-01-05T00:00:00+00:00 True",
        "4 000004 True 2026-01-06T00:00:00+00:00 True",
    ]
    assert ended.returncode == (2 if status else 0)
    assert ended.stderr.count("status 3. The release is published") == (2 if status else 0)


def test_a_catalogue_that_cannot_be_written_keeps_no_release_waiting(folder: Path) -> None:
    place = folder / "releases" / "datapackage.json"
    place.unlink(missing_ok=True)
    place.mkdir()
    ended = synthstream("run", "stream.toml", "--follow", cwd=folder)
    assert len(list((folder / "releases").glob("0*"))) == 5
    assert ended.stderr.count("their catalogue is not up to date") == 2


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("", "name a command"),
        ("echo 'a", "is not closed"),
        ("no-such-program", "No such file"),
        ("true && true", "no shell reads it, so && does nothing: name a script that says it."),
    ],
)
def test_a_command_that_cannot_be_is_told(folder: Path, command: str, says: str) -> None:
    ended = synthstream("run", "stream.toml", "--then", command, cwd=folder)
    assert ended.returncode == 2
    assert says in ended.stderr


def test_a_file_left_out_does_not_keep_the_command_from_running(folder: Path) -> None:
    (folder / "visits-2.parquet").write_bytes(b"damaged")
    ended = synthstream("run", "stream.toml", "--then", "touch ran", cwd=folder)
    assert ended.returncode == 1
    assert (folder / "ran").exists()


@pytest.mark.parametrize("text", ["sort -t '|' -k 2", "sh -c 'a > b'", "rsync -a >x", "find . -exec touch {} ;"])
def test_a_sign_that_a_command_itself_may_take_is_handed_to_it(text: str) -> None:
    assert Then(text, simulate=False)
