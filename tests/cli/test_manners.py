"""How every command behaves: help, quiet and verbose, exit statuses, mistakes, Ctrl-C, pipes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pytest
import typer

from synthstream import Stream
from synthstream.cli import runtime as manners
from synthstream.cli.app import COMMANDS, app
from synthstream.cli.plan import plan_command
from synthstream.cli.run import run_command
from synthstream.config.config import load
from synthstream.publish.folder import DESCRIPTIONS
from tests.support.command import MAIN, synthstream
from tests.support.streams import configured, published, rows

# Not pydantic: typer itself reads switches with it.
HEAVY = {"numpy", "polars", "numba", "scipy", "pyarrow", "pandas", "sqlite3", "jinja2"}
GROUPS = {"schema": ("init",), "source": ("list", "accept", "retire")}
LINES = [f"{name} {word}".split() for name in COMMANDS for word in GROUPS.get(name, ("",))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    configured(tmp_path, "always", until="2026-01-05")
    for number in range(3):
        rows(100, number).write_parquet(tmp_path / f"rows-{number}.parquet")
    return tmp_path


def bound(folder: Path, code: str) -> Any:
    """What Python prints as JSON in a process of a user whom permissions bind: root, but for what makes it special."""
    command = [sys.executable, "-c", code]
    if os.getuid() == 0:
        setpriv = shutil.which("setpriv") or pytest.skip("root cannot be bound here")
        command = [setpriv, "--bounding-set=-dac_override,-dac_read_search", *command]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)  # noqa: S603
    return json.loads(done.stdout)


# -- help and completion ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def helped() -> dict[str, tuple[str, list[str]]]:
    """The help of every command, one after the other in a new process, and the heavy modules loaded by then."""
    code = f"""
import contextlib, io, json, sys
from synthstream.cli.app import main
found = {{}}
for line in {[[], *LINES]}:
    sys.argv = ["synthstream", *line, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            main()
        except SystemExit as end:
            assert not end.code
    found[" ".join(line)] = shown.getvalue(), sorted({HEAVY} & set(sys.modules))
print(json.dumps(found))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stderr == ""
    found: dict[str, tuple[str, list[str]]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("line", [[], *LINES], ids=" ".join)
def test_help_answers_without_heavy_modules_and_shows_examples(
    helped: dict[str, tuple[str, list[str]]], line: list[str]
) -> None:
    text, heavy = helped[" ".join(line)]
    assert heavy == []
    assert f"synthstream {' '.join([*line, ''])}" in text
    if line:
        assert "Example" in text
        assert f"synthstream {' '.join(line)} " in text.split("Example", 1)[1]


def described(command: Any, line: str = "") -> dict[str, tuple[str, list[str]]]:
    """Of a command and all below it: what its help is made of, its own text and those of its parameters."""
    found = {line: (command.help or "", [getattr(p, "help", None) or "" for p in command.params])}
    for name, below in getattr(command, "commands", {}).items():
        found |= described(below, f"{line} {name}".strip())
    return found


def test_help_shows_every_word_of_its_source_also_brackets_and_breaks_lines_at_its_end(
    helped: dict[str, tuple[str, list[str]]],
) -> None:
    everything = described(typer.main.get_command(app))
    assert set(helped) <= set(everything)
    assert any("mirror]]" in text for _, texts in everything.values() for text in texts)
    for line, (own, texts) in everything.items():
        shown = helped[line][0] if line in helped else synthstream(*line.split(), "--help", cwd=Path.cwd()).stdout
        prose = [part for part in own.replace("\\[", "[").split("\n\n") if not part.startswith("Example")]
        assert [row for part in prose for row in textwrap.wrap(part, 78) if f" {row} " not in shown] == []
        brackets = [found for text in texts for found in re.findall(r"\[+\w+\]+", text.replace("\\[", "["))]
        assert [found for found in brackets if found not in shown] == []


def test_the_top_of_the_help_shows_the_usual_order_and_every_exit_status(tmp_path: Path) -> None:
    text = synthstream("--help", cwd=tmp_path).stdout
    places = [text.index(f"synthstream {name}") for name in ("schema init", "plan", "run", "status", "sample")]
    assert places == sorted(places)
    for status in (manners.DONE, manners.FOUND, manners.REFUSED, manners.UNEXPECTED, manners.STOPPED):
        assert f"\n   {status} " in text


def test_completion_prints_a_script_and_suggests_without_heavy_modules(tmp_path: Path) -> None:
    shell = f"{sys.executable} -c '{MAIN}' --show-completion; true"
    script = subprocess.run(["/bin/bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True)  # noqa: S603
    assert "_SYNTHSTREAM_COMPLETE=complete_bash" in script.stdout
    code = f"""
import sys
from synthstream.cli.app import main
try:
    main()
finally:
    print(sorted({HEAVY} & set(sys.modules)), file=sys.stderr)
"""
    asked = {"_SYNTHSTREAM_COMPLETE": "complete_bash", "COMP_WORDS": "synthstream s", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | asked)  # noqa: S603
    assert result.stdout.split() == ["schema", "status", "sample", "series", "succeed", "source"]
    assert result.stderr == "[]\n"


# -- quiet, verbose, JSON --------------------------------------------------------------------------------------------


def test_quiet_prints_nothing_and_verbose_says_what_is_being_done(folder: Path) -> None:
    run = synthstream("run", "-q", "stream.toml", "--yes", cwd=folder)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    for line in (["run", "--yes"], ["verify"], ["describe"], ["status"], ["backup", "-o", "copy"]):
        result = synthstream(line[0], "stream.toml", *line[1:], "--quiet", cwd=folder)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert json.loads(synthstream("status", "-q", "--json", "stream.toml", cwd=folder).stdout)["ticks"] == 4
    verify = synthstream("verify", "-v", "stream.toml", cwd=folder)
    assert verify.stderr.splitlines() == [f"checking release {tick}" for tick in range(4)]
    assert "all as it should be" in verify.stdout
    both = synthstream("verify", "-v", "-q", "stream.toml", cwd=folder)
    assert both.returncode == 2


def test_what_verbose_says_depends_on_no_row(tmp_path: Path) -> None:
    said = []
    for number in (0, 5000):
        folder = tmp_path / "same"
        shutil.rmtree(folder, ignore_errors=True)
        configured(folder, "always", until="2026-01-05")
        rows(number, 1).write_parquet(folder / "rows-1.parquet")
        result = synthstream("run", "-v", "stream.toml", "--yes", cwd=folder)
        said.append((result.returncode, result.stdout, result.stderr))
    assert said[0] == said[1]
    assert f"reading {tmp_path / 'same'}/rows-1.parquet" in said[0][2]
    assert "closing tick 3" in said[0][2]


@pytest.mark.parametrize(("command", "timed"), [(partial(run_command, yes=True), False), (plan_command, True)])
def test_the_bar_of_progress_tells_no_time_where_rows_are_at_work(
    folder: Path,
    command: Callable[[Path], None],
    timed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan_command(folder / "stream.toml")  # imports what would otherwise keep the streams of this test
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("COLUMNS", "100")
    command(folder / "stream.toml")
    shown = capsys.readouterr().err
    assert re.search(r"\d/\d", shown)
    assert bool(re.search(r"\d:\d\d|-:--", shown)) is timed


@pytest.mark.parametrize("switch", ["-q", "-v"])
def test_a_quiet_audit_shows_no_bar(folder: Path, switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    done = synthstream("audit", "stream.toml", "--runs", "10", "--ticks", "1", switch, cwd=folder)
    assert done.returncode in (0, 1)
    assert ("simulating neighbours" in done.stderr) is (switch == "-v")


def test_status_in_json_has_all_its_keys_at_every_stage(folder: Path) -> None:
    def status(*switches: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(synthstream("status", "stream.toml", "--json", *switches, cwd=folder).stdout)
        return found

    before = status()
    assert (before["started"], before["ticks"], before["due"], before["spent"]) == (False, 0, 4, [])
    assert before["claim"]["epsilon"] == 2.0
    synthstream("run", "-q", "stream.toml", "--yes", cwd=folder)
    after = status()
    assert list(before) == list(after) == list(status("--simulate"))
    assert after["spent"] == [after["claim"]]
    manifest = json.loads((Path(after["last"]["folder"]) / "manifest.json").read_text())
    assert after["claim"] == manifest["claim"]
    assert (after["last"]["head"], after["last"]["end"]) == (manifest["chain"]["head"], manifest["end"])
    end = "2026-01-06T00:00:00+00:00"
    assert after["next"] == {"tick": 4, "end": end, "closes": end}
    assert [after[key] for key in ("backup", "lost", "complete", "changed")] == [False, False, False, []]
    synthstream("backup", "stream.toml", "-o", "copy", cwd=folder)
    newest = Path(after["last"]["folder"])
    newest.rename(folder / "away")
    assert (status()["missing"], status()["refused"]) == (True, True)
    said = synthstream("status", "stream.toml", "--check", cwd=folder)
    assert (said.returncode, "stream.toml --republish` makes it again" in said.stdout) == (1, True)
    (folder / "visits.toml").symlink_to("stream.toml")
    for name in ("stream.toml", "visits.toml"):
        found = synthstream("verify", name, cwd=folder).stdout
        assert f"1 of the newest are missing; `synthstream recover {name} --republish` puts them back" in found
    assert "4 measured tick(s), 3 release(s)" in found
    (folder / "away").rename(newest)
    shutil.move(folder / "releases/000001", folder / "away")
    assert "4 measured tick(s), 3 release(s)" in synthstream("verify", "stream.toml", cwd=folder).stdout
    shutil.move(folder / "away", folder / "releases/000001")
    shutil.rmtree(folder / "state")
    assert status()["lost"]
    shutil.copytree(folder / "copy/private", folder / "state")
    assert status()["backup"]
    assert "releases holds releases alone" in synthstream("status", "releases", cwd=folder).stdout.replace("\n", " ")
    for line in ("run releases --yes", "recover releases --adopt", "recover releases --republish"):
        told = synthstream(*line.split(), cwd=folder)
        assert (told.returncode, "releases holds releases alone" in told.stderr) == (2, True)
    assert "is a backup; `run` will refuse" in synthstream("status", "stream.toml", cwd=folder).stdout
    newest.rename(folder / "away")
    words = synthstream("status", "stream.toml", cwd=folder).stdout.replace("\n", " ")
    assert "Copy the releases back" in words
    assert "republish" not in words  # it refuses too
    page = (Path(__file__).parents[2] / "docs/command-line.md").read_text()
    for key in after:
        assert f"| `{key}` |" in page


def test_status_says_when_a_stream_is_complete(tmp_path: Path) -> None:
    configured(tmp_path, "always", until="2026-01-13")
    rows(100, 1).write_parquet(tmp_path / "rows-1.parquet")
    assert synthstream("run", "stream.toml", "--yes", cwd=tmp_path).returncode == 0
    found = json.loads(synthstream("status", "stream.toml", "--json", cwd=tmp_path).stdout)
    assert (found["complete"], found["next"], found["due"], found["ticks"]) == (True, None, 0, 12)


def test_no_colour_where_none_is_wanted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for coloured in (True, False):
        result = synthstream("run", "stream.toml", "--simulate", cwd=folder)
        assert "NOT PRIVATE" in result.stdout
        assert ("\x1b[1;31m" in result.stdout) == coloured
        monkeypatch.setenv("NO_COLOR", "1")


# -- exit statuses and mistakes --------------------------------------------------------------------------------------


def test_verify_tells_a_finding_from_nothing_to_check(folder: Path) -> None:
    nothing = synthstream("verify", "stream.toml", cwd=folder)
    assert (nothing.returncode, "nothing to verify" in nothing.stderr) == (2, True)
    synthstream("run", "stream.toml", "--yes", cwd=folder)
    assert synthstream("run", "stream.toml", "--yes", cwd=folder).returncode == 0  # nothing was due
    shutil.rmtree(folder / "state")
    alone = synthstream("verify", "stream.toml", "--json", cwd=folder)
    assert alone.returncode == 0
    assert json.loads(alone.stdout) == {"ticks": 0, "releases": 4, "findings": [], "unchecked": [], "state": False}
    assert "only releases were checked" in synthstream("verify", "stream.toml", cwd=folder).stdout
    (folder / "releases/000001/tables.parquet").write_bytes(b"changed")
    found = synthstream("verify", "stream.toml", "-q", cwd=folder)
    assert (found.returncode, found.stdout) == (1, "000001: tables.parquet is not what was published\n")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("rnu stream.toml", "Did you mean 'run'?"),
        ("run stream.toml --untill 2026-01-02", "--until"),
        ("run", "Missing argument"),
        ("init rows-1.parquet", "No such command 'init'. Did you mean 'schema init'? Help: synthstream --help"),
        ("fit stream.toml", "No such command 'fit'. Did you mean 'run stream.toml'? Help: synthstream --help"),
        ("version", "Did you mean '--version'?"),
        ("run stream.toml --dry-run", "No such option: --dry-run. Did you mean 'run --simulate'?"),
        ("series releases --where x", "No such option: --where. It is one of sample, table. Help: synthstream series"),
        ("series releases --feture x", "No such option: --feture (Possible options: --feature). Help: synthstream"),
        ("sample stream.toml -n many", "found 'many'. Input should be a valid integer"),
        (
            "sample stream.toml --between 2026-01-01",
            "--between: say two dates with a blank between, as in --between 20",
        ),
        ("sample stream.toml --between 2026-01-01 -q", "--between 2026-01-01: say two dates with a blank between"),
        ("compare stream.toml --then 2026-01-01..2026-01-03 --now 2026-01-03..2026-01-05", "3: say two dates with a"),
        ("run nowhere.toml", "No such file"),
        ("status .", "Is a directory"),
        ("plan rows-1.parquet", "these are data"),
        ("check stream.toml nope.csv", "nope.csv: there is no such file. Check the path."),
        ("check stream.toml folder.csv", "folder.csv: is a folder. Name the files in it."),
        ("plan notes.txt", "not valid TOML"),
        ("schema init notes.txt", "only files that end in"),
        ("schema init .", "this is a folder. Name one of the files in it"),
        ("schema init folder.csv", "Is a directory"),
        ("schema init rows-1.parquet -o nowhere/stream.toml", "there is no folder nowhere"),
        ("schema init rows-1.parquet -o stream.toml", "is there already"),
        ("verify stream.toml", "nothing to verify"),
        ("verify https://example.org/releases", "fetch the releases first"),
        ("backup stream.toml -o copy", "There is no state"),
        ("recover stream.toml", "say --adopt or --republish"),
        ("run stream.toml --simulate --then true", "--then is for real releases"),
        ("recover stream.toml --republish", "There is no state"),
        ("recover it's.toml --republish", "`synthstream recover 'it'\"'\"'s.toml' --adopt` goes on"),
        ("describe stream.toml", "no release yet"),
        ("publish stream.toml site", "no release yet"),
        ("publish stream.toml .", "neither may lie in the other"),
        ("audit stream.toml --confidence 2", "between 0 and 1"),
    ],
)
def test_every_mistake_gets_one_line_and_status_2(folder: Path, line: str, says: str) -> None:
    (folder / "notes.txt").write_text("these are notes\n")
    (folder / "folder.csv").mkdir()
    (folder / "it's.toml").symlink_to("stream.toml")
    result = synthstream(*line.split(), cwd=folder)
    assert result.returncode == 2
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("Error: ")


def test_without_permission(folder: Path) -> None:
    code = """
import json, shutil
from pathlib import Path
from tests.support.command import synthstream
here = Path.cwd()
def run(*words):
    done = synthstream(*words, "stream.toml", cwd=here)
    return done.returncode, done.stderr
Path("stream.toml").chmod(0o000)
unread = run("plan")
Path("stream.toml").chmod(0o600)
Path("rows-1.parquet").chmod(0o000)
uncounted = run("run", "--yes")
shutil.rmtree("state")
here.chmod(0o500)
unwritten = run("run", "--yes")
here.chmod(0o700)
print(json.dumps([unread, uncounted, unwritten]))
"""
    for (status, errors), name in zip(bound(folder, code), ("stream.toml", "rows-1.parquet", "state"), strict=True):
        assert (status, len(errors.splitlines())) == (2, 1)
        assert name in errors
        assert "Permission denied" in errors or "is not readable" in errors


def test_what_nobody_foresaw_is_told_without_what_it_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of an exception may quote a row."""

    def broken(path: Path, *, simulate: bool) -> None:
        raise ValueError("XCANARYX")

    monkeypatch.setattr("synthstream.publish.outlets.configured", broken)
    result = synthstream("status", "stream.toml", cwd=folder)
    assert result.returncode == manners.UNEXPECTED
    assert "XCANARYX" not in result.stdout + result.stderr
    assert "Error: ValueError at cli/status.py:" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    monkeypatch.setenv(manners.DEBUG, "1")
    shown = synthstream("status", "stream.toml", cwd=folder)
    assert "XCANARYX" in shown.stderr
    assert shown.returncode == manners.UNEXPECTED


def test_no_name_of_a_file_or_word_of_a_server_writes_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert manners.fail("a\x1b]0;title\x07\x9b2J: é, 字\n  and\ta line") == manners.REFUSED
    assert capsys.readouterr().err == "Error: a\\x1b]0;title\\x07\\x9b2J: é, 字\n  and\ta line\n"


def test_a_description_that_cannot_be_written_loses_no_release(folder: Path) -> None:
    (folder / "releases/datapackage.json").mkdir(parents=True)
    result = synthstream("run", "stream.toml", "--yes", cwd=folder)
    assert result.returncode == 2
    assert "Releases are published" in result.stderr
    assert len(list((folder / "releases").glob("0*"))) == 4
    (folder / "releases/datapackage.json").rmdir()
    assert synthstream("run", "stream.toml", "--yes", cwd=folder).returncode == 0
    assert (folder / "releases/croissant.json").exists()


@pytest.mark.parametrize(
    "command",
    [
        "sample stream.toml -n 200000",
        pytest.param("status stream.toml", marks=pytest.mark.slow),
        pytest.param("status stream.toml --json", marks=pytest.mark.slow),
    ],
)
def test_whoever_reads_a_little_and_leaves_sees_no_traceback(folder: Path, command: str) -> None:
    synthstream("run", "stream.toml", "--yes", cwd=folder)
    line = f"set -o pipefail; {sys.executable} -c '{MAIN}' {command} | true"
    result = subprocess.run(["/bin/bash", "-c", line], cwd=folder, capture_output=True, text=True)  # noqa: S603
    assert result.stderr == ""
    assert result.returncode in (0, manners.UNREAD)


# -- paths and drafts ------------------------------------------------------------------------------------------------


def test_a_tilde_is_the_home_folder_and_variables_stay_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    path, text = folder / "stream.toml", (folder / "stream.toml").read_text()
    for old in ('state = "state"', 'path = "rows-*.parquet"', 'path = "releases"'):
        text = text.replace(old, old.replace('= "', '= "~/'))
    path.write_text(f'{text}\n[encryption]\nkey_file = "~/key"\n')
    config = load(path)
    assert config.source
    assert config.sink
    assert config.encryption
    places = [config.state, config.source.path, config.sink.path, config.encryption.key_file]
    assert places == [folder / "home" / name for name in ("state", "rows-*.parquet", "releases", "key")]
    path.write_text(text.replace("~/", "$HOME/"))
    assert load(path).state == folder / "$HOME/state"


def test_a_draft_goes_into_a_new_file_and_finds_its_data_from_there(folder: Path) -> None:
    (folder / "config").mkdir()
    line = ("schema", "init", "rows-1.parquet", "-o", "config/stream.toml")
    assert synthstream(*line, cwd=folder).returncode == 0
    text = (folder / "config/stream.toml").read_text()
    assert 'path = "../rows-1.parquet"' in text
    assert 'kind = "points"' not in text  # ward is a text
    assert synthstream("plan", "config/stream.toml", cwd=folder).stderr.count("TODO-public") >= 3
    assert synthstream(*line, cwd=folder).returncode == 2
    assert (folder / "config/stream.toml").read_text() == text
    rows(5, 1).select("when", "x", "y").write_parquet(folder / "numbers.parquet")
    assert '# kind = "points"' in synthstream("schema", "init", "numbers.parquet", cwd=folder).stdout
    pl.DataFrame({"when": ["2026-01-01"], "x": ["1"]}).write_csv(folder / "texts.csv")
    assert "which column holds a row's time?" in synthstream("schema", "init", "texts.csv", cwd=folder).stdout


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------

# Long enough to be interrupted at many moments.
WAITING = """
import sys, time
import synthstream.{module} as module
def slowly(function):
    def slow(*arguments, **settings):
        print("here", flush=True)
        time.sleep(4)  # a thread that counts sleeps on
        return function(*arguments, **settings)
    return slow
module.{owner} = slowly(module.{owner})
"""
MOMENTS = {
    "opening": ("stream.opening", "begin", 0),
    "counting": ("ingest.intake", "encode", 0),
    "committing": ("state.store", "Store.put_ingested", 0),
    "drawing": ("kernel.tables", "Marginals.step", 0),
    "publishing": ("publish.folder", "ParquetSink._put", 0),
    "published": ("state.store", "Store.put_published", 1),
    "describing": ("publish.catalogue", "descriptions", 1),
}
COMMANDS_STOPPED = [
    ("verify stream.toml --rebuild", "publish.folder", "ParquetSink._put", "Nothing was changed."),
    ("backup stream.toml -o copy", "state.store", "Store.copy_to", "copy is an incomplete backup: delete it."),
    ("recover stream.toml --republish", "publish.folder", "ParquetSink._put", "Run the same command again to go on."),
    ("recover stream.toml --adopt", "stream.recovery", "begin", "Run the same command again to go on."),
    ("sample stream.toml", "publish.folder", "ParquetSink.read", "Nothing was changed."),
    ("status stream.toml", "state.store", "Store.ledger", "Nothing was changed."),
    ("plan stream.toml", "forecast.planning", "plan", "Nothing was changed."),
    ("audit stream.toml --runs 100", "config.config", "load", "Nothing was changed."),
]


def stopped(
    module: str, owner: str, *arguments: str, cwd: Path, real: bool, number: int = signal.SIGINT
) -> tuple[int, str]:
    """Exit status and errors of a command that is stopped in a function.

    By a real signal, in a process of its own, when it says that it is there; or by the exception that Python makes of
    it.
    """
    if not real:
        with mock.patch(f"synthstream.{module}.{owner}", side_effect=KeyboardInterrupt):
            done = synthstream(*arguments, cwd=cwd)
        return done.returncode, done.stderr
    command = [sys.executable, "-c", WAITING.format(module=module, owner=owner) + MAIN, *arguments]
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        if process.stdout is None or process.stderr is None:
            raise RuntimeError("no pipes")
        for line in process.stdout:
            if line == "here\n":
                break
        process.send_signal(number)
        errors = process.stderr.read()
        return process.wait(), errors


REAL = [False, pytest.param(True, marks=pytest.mark.slow)]


@pytest.mark.sparing(3, 6)
@pytest.mark.parametrize("real", REAL)
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_stops_a_run_anywhere_and_the_same_command_goes_on(tmp_path: Path, moment: str, real: bool) -> None:
    module, owner, new = MOMENTS[moment]
    for name in ("whole", "stopped"):
        configured(tmp_path / name, "always", until="2026-01-05")
        for number in range(3):
            rows(100, number).write_parquet(tmp_path / name / f"rows-{number}.parquet")
    line = ("run", "stream.toml", "--simulate", "--seed", "5")
    status, errors = stopped(module, owner, *line, cwd=tmp_path / "stopped", real=real)
    assert status == manners.STOPPED
    assert len(errors.splitlines()) == 1
    said = "1 new release is" if new == 1 else f"{new or 'No'} new releases are"
    assert errors.startswith(f"Stopped. {said} published. Run the same command again")
    for name in ("whole", "stopped"):
        assert synthstream(*line, cwd=tmp_path / name).returncode == 0
    whole, after = (published(tmp_path / name / "releases-simulated") for name in ("whole", "stopped"))
    assert len(whole) == 4 * 5 + len(DESCRIPTIONS)
    assert whole == after


@pytest.mark.sparing(4, 6)
@pytest.mark.parametrize(
    ("line", "module", "owner", "says", "real"),
    [
        # One by a real signal with the quick tests.
        pytest.param(*how, real, marks=[pytest.mark.slow] if real and "backup" not in how[0] else [])
        for how in COMMANDS_STOPPED
        for real in (False, True)
    ],
)
def test_ctrl_c_stops_every_command_with_a_word_on_how_things_stand(
    folder: Path, line: str, module: str, owner: str, says: str, real: bool
) -> None:
    synthstream("run", "stream.toml", "--yes", cwd=folder)
    if "republish" in line:
        shutil.rmtree(folder / "releases/000003")
    if "adopt" in line:
        shutil.rmtree(folder / "state")
    before = published(folder / "releases")
    status, errors = stopped(module, owner, *line.split(), cwd=folder, real=real)
    assert status == manners.STOPPED
    assert errors.startswith("Stopped. ")
    assert errors.splitlines()[0].endswith(says)
    assert len(errors.splitlines()) == 1
    after = published(folder / "releases")
    assert {name: after.get(name) for name in before} == before
    shutil.rmtree(folder / "copy", ignore_errors=True)
    assert synthstream(*line.split(), cwd=folder).returncode == 0
    with Stream(load(folder / "stream.toml")) as stream:
        assert stream.closed == 4


@pytest.mark.slow
def test_ctrl_c_that_compiled_code_swallows_takes_effect_at_the_next_step(folder: Path) -> None:
    """A callback of compiled code cannot raise: Python prints the exception, and goes on."""
    code = """
import ctypes, os, signal
import synthstream.kernel.tables as module
step = module.Marginals.step
@ctypes.CFUNCTYPE(None)
def compiled():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass
def stopped(*arguments, **settings):
    compiled()
    return step(*arguments, **settings)
module.Marginals.step = stopped
"""
    command = [sys.executable, "-c", code + MAIN, "run", "stream.toml", "--yes"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)  # noqa: S603
    assert result.returncode == manners.STOPPED
    assert (
        result.stderr
        == "Stopped. 1 new release is published. Run the same command again to go on; nothing counts twice.\n"
    )


def test_sigterm_stops_any_command_as_ctrl_c_does_with_its_own_status(folder: Path) -> None:
    synthstream("run", "stream.toml", "--yes", cwd=folder)
    line, module, owner, says = COMMANDS_STOPPED[1]
    status, errors = stopped(module, owner, *line.split(), cwd=folder, real=True, number=signal.SIGTERM)
    assert (status, errors) == (143, f"Stopped. {says}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_python_runs_a_text_ends_with_its_status(folder: Path, number: int) -> None:
    """As while dataclasses are loaded. ``python -m`` would then end by SIGINT, whatever signal came."""
    code = """
import synthstream.config.config as module
def load(path):
    exec("import time; print('here', flush=True); time.sleep(30)")
module.load = load
"""
    (folder / "program.py").write_text(code + MAIN)
    command = [sys.executable, "-m", "program", "status", "stream.toml"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        if process.stdout is None or process.stderr is None:
            raise RuntimeError("no pipes")
        assert process.stdout.readline() == "here\n"
        process.send_signal(number)
        assert process.stderr.read() == "Stopped. Nothing was changed.\n"
        assert process.wait(timeout=60) == 128 + number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once_what_does_not_listen_to_the_first(folder: Path, number: int) -> None:
    code = """
import time
import synthstream.config.config as module
def load(path):
    while True:
        try:
            print("here", flush=True)
            time.sleep(30)
        except KeyboardInterrupt:
            pass
module.load = load
"""
    command = [sys.executable, "-c", code + MAIN, "status", "stream.toml"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        if process.stdout is None:
            raise RuntimeError("no pipe")
        for _ in range(2):
            assert process.stdout.readline() == "here\n"
            process.send_signal(number)
        assert process.wait(timeout=60) == -number  # 130 or 143 in a shell


_OF_COMPILED_CODE = re.compile(
    r"Traceback \(most recent call last\):\n  File \S+/cli/runtime\.py\", line \d+, in asked\n"
    r"    raise Asked\nsynthstream\.cli\.runtime\.Asked\n"
    # Polars, while it is loaded, up to our own words.
    r"|thread '[^']*' (\(\d+\) )?panicked at crates/polars-python/src/on_startup\.rs.*(?=Stopped\.)",
    re.DOTALL,
)


@pytest.mark.slow
def test_ctrl_c_at_any_moment_of_a_run(tmp_path: Path) -> None:
    """At moments that nobody chose, also while modules are loaded."""
    for name in ("whole", "stopped"):
        configured(tmp_path / name, "points", until="2026-01-09")
        rows(400, 1).write_parquet(tmp_path / name / "rows-1.parquet")
    line = ("run", "stream.toml", "--simulate", "--seed", "5")
    start = time.monotonic()
    assert synthstream(*line, cwd=tmp_path / "whole").returncode == 0
    long, stopped = time.monotonic() - start, 0
    for tenth in range(1, 15):
        command = [sys.executable, "-c", f"print('here', flush=True); {MAIN}", *line]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, cwd=tmp_path / "stopped", **pipes) as process:  # noqa: S603
            if process.stdout is None or process.stderr is None:
                raise RuntimeError("no pipes")
            process.stdout.readline()
            time.sleep(0.3 + long * (tenth % 10) / 10)
            process.send_signal(signal.SIGINT)
            errors = process.stderr.read().decode()
            status = process.wait()
        # A run that is over, and says nothing more, can still be hit while the interpreter takes itself down.
        assert status in (0, manners.STOPPED) or (status, errors) == (-signal.SIGINT, ""), errors
        # Compiled code that calls Python prints what interrupts it before we hear of it: one line of ours, no other.
        assert "Traceback" not in _OF_COMPILED_CODE.sub("", errors), errors
        stopped += status == manners.STOPPED
    assert stopped >= 3
    assert synthstream(*line, cwd=tmp_path / "stopped").returncode == 0
    assert published(tmp_path / "whole/releases-simulated") == published(tmp_path / "stopped/releases-simulated")


_THREADS = """
import os, sys, synthstream.__main__ as program
assert "numpy" not in sys.modules
sys.argv = ["synthstream", "--version"]
try:
    program.main()
finally:
    print(os.environ["OPENBLAS_NUM_THREADS"])
"""


@pytest.mark.parametrize("said", [None, "2"])  # a process each: the library reads this when NumPy is loaded
def test_the_library_of_matrices_has_one_thread_unless_told_otherwise(said: str | None) -> None:
    """Its threads wait for each other: beside another busy process a release took thirty times as long."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {} if said is None else {"OPENBLAS_NUM_THREADS": said}
    out = subprocess.check_output([sys.executable, "-c", _THREADS], env=environment, text=True)  # noqa: S603
    assert out.splitlines()[-1] == (said or "1")
