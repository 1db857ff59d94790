"""A stream that was never opened: somebody must say that its budget may be spent."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from synthstream.cli.asking import ask_first
from synthstream.cli.common import console
from synthstream.cli.run import moment_of
from synthstream.errors import ConfigError, SourceError, TickNotOver
from tests.support.command import MAIN, synthstream
from tests.support.visits import TOML, visits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stream.toml").write_text(TOML)
    visits([1, 2] * 50).write_parquet(tmp_path / "visits-1.parquet")
    return tmp_path


def answered(folder: Path, answer: str) -> tuple[int, str]:
    """Status and words of a first run on a terminal, where somebody types this; or nothing, and then Ctrl-C."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", MAIN, "run", "stream.toml"]
    with subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs) as process:  # noqa: S603
        os.close(theirs)
        said = b""
        while b"Type yes: " not in said:
            said += os.read(ours, 4096)
        if answer:
            os.write(ours, f"{answer}\n".encode())
        else:
            time.sleep(0.5)  # it waits for a line
            process.send_signal(signal.SIGINT)
        late = threading.Timer(30, process.kill)
        late.start()
        while True:
            try:
                said += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
        late.cancel()
    os.close(ours)
    return process.returncode, " ".join(said.decode().split())


@pytest.mark.sparing(1)
@pytest.mark.parametrize("answer", ["yes", "no"])  # a process each, of some seconds: a terminal is what is asked for
def test_on_a_terminal_it_shows_what_opening_means_and_waits_for_yes(folder: Path, answer: str) -> None:
    status, said = answered(folder, answer)
    asked = said[: said.index("Type yes")]
    for part in ("satisfy (1, 1e-09)", "Whoever sees all releases", "5 ticks are over", "check stream.toml", "1 file"):
        assert part in asked, part
    if answer == "yes":
        assert (status, "5 new release(s)" in said) == (0, True)
        assert said.count("5 ticks are over") == 1
    else:
        assert (status, "nothing was spent" in said) == (2, True)
        assert not (folder / "state").exists()


def test_ctrl_c_is_an_answer(folder: Path) -> None:
    status, said = answered(folder, "")
    assert (status, "Type yes: Stopped. No new releases" in said) == (130, True)
    assert not (folder / "state").exists()


@pytest.mark.parametrize("more", [[], ["-q"], ["--follow"], ["--until", "2026-01-04"]])
def test_where_nobody_can_answer_it_is_refused_without_yes(folder: Path, more: list[str]) -> None:
    done = synthstream("run", "stream.toml", *more, cwd=folder)
    assert done.returncode == 2
    assert ("3 ticks are over" if more[-1:] == ["2026-01-04"] else "5 ticks are over") in done.stderr
    assert done.stderr.rstrip().endswith("run stream.toml --yes")
    assert sorted(path.name for path in folder.iterdir()) == ["stream.toml", "visits-1.parquet"]


def test_a_stream_that_was_opened_is_never_asked_about_again(folder: Path) -> None:
    assert synthstream("run", "stream.toml", "--until", "2026-01-03", "--yes", cwd=folder).returncode == 0
    assert "3 new release(s)" in synthstream("run", "stream.toml", cwd=folder).stdout


def test_a_simulation_asks_nothing(folder: Path) -> None:
    assert synthstream("run", "stream.toml", "--simulate", cwd=folder).returncode == 0


def test_a_lost_state_is_refused_as_such(folder: Path) -> None:
    synthstream("run", "stream.toml", "--yes", cwd=folder)
    (folder / "state").rename(folder / "elsewhere")
    assert "There is no state in" in synthstream("run", "stream.toml", cwd=folder).stderr


def test_a_forgotten_until_is_named_with_the_number_of_ticks_that_it_would_release(folder: Path) -> None:
    text = TOML.replace("until = 2026-01-06\n", "").replace("start = 2026-01-01", "start = 2018-01-01")
    assert text.count("until") == 0
    (folder / "stream.toml").write_text(text.replace("horizon = 8", "horizon = 2000"))
    said = synthstream("run", "stream.toml", cwd=folder).stderr
    assert "2,000 ticks are over, of which the first ended 2018-01-02 and the last 2023-06-24" in said
    assert "say so as until in [clock]" in said
    assert "all of the horizon" in said


def test_a_log_that_is_not_there_is_refused_before_there_is_a_state(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody is sent to look at what ``check`` does not read."""
    head, tail = TOML.split("[source]\n")
    rest = tail[tail.index("[") :]
    (folder / "stream.toml").write_text(f'{head}[source]\nkind = "delta"\npath = "lake"\n{rest}')
    with pytest.raises(SourceError, match="delta lake: there is no Delta table"):
        ask_first(console(), folder / "stream.toml", until=None, yes=True)
    assert not (folder / "state").exists()
    monkeypatch.setattr("synthstream.cli.asking._files", lambda _: None)  # as if it were there
    with pytest.raises(ConfigError, match=r"stream.toml FILE - it looks at files that you name, not at the log"):
        ask_first(console(), folder / "stream.toml", until=None, yes=False)


def test_before_the_first_tick_is_over_it_asks_too(folder: Path) -> None:
    (folder / "stream.toml").write_text(TOML.replace("2026-01-01", "2999-01-01").replace("until = 2026-01-06\n", ""))
    with pytest.raises(ConfigError, match="No tick is over; the first ends 2999-01-02"):
        ask_first(console(), folder / "stream.toml", until=None, yes=False)


@pytest.mark.parametrize("until", ["2025-06-01", "2026-01-01"])
@pytest.mark.parametrize("yes", [True, False])
def test_a_stream_is_not_opened_up_to_a_date_before_its_start(folder: Path, until: str, yes: bool) -> None:
    with pytest.raises(ConfigError, match=f"--until {until}: must lie after start, which is 2026-01-01.*nothing was"):
        ask_first(console(), folder / "stream.toml", until=moment_of(until), yes=yes)
    assert not ask_first(console(), folder / "stream.toml", until=moment_of("2026-01-01T12:00"), yes=True)
    synthstream("run", "stream.toml", "--yes", "--until", "2026-01-02", cwd=folder)
    assert not ask_first(console(), folder / "stream.toml", until=moment_of(until), yes=yes)  # opened: nothing is due


@pytest.mark.parametrize("yes", [True, False])
def test_a_stream_is_not_opened_for_a_date_that_is_refused_then(folder: Path, yes: bool) -> None:
    """Up to a date in the future it can be followed alone."""
    moment = moment_of("2999-01-01")
    with pytest.raises(TickNotOver, match="lies in the future"):
        ask_first(console(), folder / "stream.toml", until=moment, yes=yes)
    assert not ask_first(console(), folder / "stream.toml", until=moment, yes=True, follow=True)
    with pytest.raises(ConfigError, match="5 ticks are over"):  # until in [clock] comes first
        ask_first(console(), folder / "stream.toml", until=moment, yes=False, follow=True)


def test_who_follows_is_told_which_until_ends_it(folder: Path) -> None:
    more = ["run", "stream.toml", "--follow", "--until"]
    synthstream(*more, "2999-01-01", "--yes", cwd=folder)
    ended = "5 in all. Nothing more will be due. Nothing is closed that ends after until = 2026-01-06 in [clock]."
    assert ended in synthstream(*more, "2999-01-01", cwd=folder).stdout
    assert (
        "until = 2026-01-05 of --until lies before the end of the"
        in synthstream(*more, "2026-01-05", cwd=folder).stdout
    )
