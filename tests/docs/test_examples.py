"""Every example of the README and of the documentation runs, page by page, and says what the page says it does.

A page runs in a folder of its own that holds the repository's ``examples``. In the order of the page:

- a block of ``python`` runs, in one namespace a page; with ``>>>`` what it answers is compared;
- a block of ``console`` runs its lines that begin with ``$ ``, and what follows each is compared with what is printed;
- a block of ``toml`` is read;
- a block with ``title="name"`` becomes that file.

``...`` stands for anything, as in doctest. A block that cannot run says why: ``<!-- not run: reason -->`` before it.
``<!-- before: command -->`` runs a command that the reader need not see.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import synthstream

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ("python", "console", "toml")
SHOWN = ("text", "csv", "json", "html", "toml")  # what is shown, not run
EXCUSES = 8  # how many blocks may say that they do not run

_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>not run|before): (?P<text>.*?) -->\n+)?"
    r"^(?P<indent> *)```(?P<kind>\w*) *(?:\{(?P<braced>[^}\n]*)\}|(?P<rest>[^\n]*))\n(?P<body>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"<!-- before: (.*?) -->")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    kind: str
    title: str | None
    body: str
    before: str | None
    excuse: str | None

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text, found = page.read_text(), []
    for match in _BLOCK.finditer(text):
        title = re.search(r'title="([^"]*)"', (match["rest"] or "") + (match["braced"] or ""))
        indent = len(match["indent"])
        body = "".join(line[indent:] if line.strip() else "\n" for line in match["body"].splitlines(keepends=True))
        found.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start("kind")) + 1,
                kind=match["kind"],
                title=title[1] if title else None,
                body=body,
                before=match["text"] if match["mark"] == "before" else None,
                excuse=match["text"] if match["mark"] == "not run" else None,
            )
        )
    return found


BY_PAGE = {page: blocks(page) for page in PAGES}
WITH_EXAMPLES = [page for page in PAGES if any(block.kind in RUN or block.title for block in BY_PAGE[page])]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a page runs: the examples, and ``synthstream`` and ``python`` on the path."""
    runs = shutil.ignore_patterns("state*", "releases*")
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=runs)
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    programs = tmp_path / ".programs"
    programs.mkdir()
    for name, code in (("synthstream", ' -c "from synthstream.cli.app import main; main()"'), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{code} "$@"\n')
        program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


# They publish a stream of real data: the tutorial all of its 261 releases, which its text speaks of.
LONG = {ROOT / "docs" / name for name in ("tutorial.md", "synthesizers/places.md", "guides/reader.md")}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page in LONG else []) for page in WITH_EXAMPLES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_examples_run(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in BY_PAGE[page]:
        if block.before is not None:
            for command in block.before.split(" && "):
                _command(command, block)
        if block.excuse is not None:
            continue
        if block.title is not None:
            _write(folder / block.title, block)
        if block.kind == "python":
            _python(block, names)
        elif block.kind == "console":
            for command, expected in _session(block.body):
                _command(command, block, expected)
        elif block.kind == "toml":
            tomllib.loads(block.body)


def _write(path: Path, block: Block) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.body)


def _python(block: Block, names: dict[str, Any]) -> None:
    if ">>>" not in block.body:
        padded = "\n" * block.line + block.body  # so that errors name the page's line
        exec(compile(padded, str(block.page), "exec"), names)  # noqa: S102 - our own pages
        return
    test = doctest.DocTestParser().get_doctest(block.body, names, block.where, str(block.page), block.line)
    problems: list[str] = []
    doctest.DocTestRunner(optionflags=_FLAGS).run(test, out=problems.append, clear_globs=False)
    names.update(test.globs)
    assert not problems, "".join(problems)


def _session(body: str) -> Iterator[tuple[str, str]]:
    """Commands of a console block, and what follows each. A backslash at the end goes on in the next line."""
    lines, k = body.splitlines(keepends=True), 0
    assert body.startswith("$ "), body
    while k < len(lines):
        command = lines[k].removeprefix("$ ")
        while command.endswith("\\\n"):
            k += 1
            command += lines[k]
        k, first = k + 1, k + 1
        while k < len(lines) and not lines[k].startswith("$ "):
            k += 1
        yield command, "".join(lines[first:k])


def _command(command: str, block: Block, expected: str | None = None) -> None:
    # Output and errors in one stream, as in a terminal. "# exit status N" at the end of a command says how it ends.
    status = re.search(r"# exit status (\d+)", command)
    words = _own(command)
    done = _in_shell(command) if words is None else synthstream(*words, cwd=Path.cwd(), together=True)
    assert done.returncode == (int(status[1]) if status else 0), f"{block.where}: {command}{done.stdout}"
    if expected:
        said = f"{block.where}: {command}\n-- the page --\n{expected}\n-- printed --\n{done.stdout}"
        assert agrees(expected, done.stdout), said


def _in_shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own pages
        ["/bin/bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def _own(command: str) -> list[str] | None:
    """Arguments of a command of ours that needs no shell, and so no process of its own; otherwise nothing."""
    command = command.replace("\\\n", "")
    marks = shlex.shlex(command, punctuation_chars=True)  # "|", ">" and their like are words of their own, if unquoted
    shell = any(set(word) <= set("();<>|&") for word in marks) or re.search(r"[$*?`~]", command)
    words = shlex.split(command, comments=True)
    return words[1:] if words[0] == "synthstream" and not shell else None


def agrees(expected: str, printed: str) -> bool:
    """Whether what was printed is as expected; ``...`` stands for anything, white space for any white space."""
    pieces = [" ".join(piece.split()) for piece in expected.split("...")]
    left = " ".join(printed.split())
    if len(pieces) == 1:
        return left == pieces[0]
    first, *between, last = pieces
    if not left.startswith(first) or not left[len(first) :].endswith(last):
        return False
    left = left[len(first) : len(left) - len(last)]
    for piece in between:
        if piece not in left:
            return False
        left = left.partition(piece)[2]
    return True


# -- nothing escapes -------------------------------------------------------------------------------------------------


def test_every_block_runs_or_says_why_not() -> None:
    every = [block for page in PAGES for block in BY_PAGE[page]]
    assert len(every) == sum(page.read_text().count("```") for page in PAGES) / 2, "a fence that is not understood"
    for block in every:
        if block.kind not in RUN and block.excuse is None:
            assert block.kind in SHOWN, f"{block.where}: a block of {block.kind or 'no kind'} is never run"
            assert not re.search(r"^\$? ?synthstream ", block.body, re.MULTILINE), f"{block.where}: make it a console"
    excused = [block.where for block in every if block.excuse is not None]
    assert len(excused) <= EXCUSES, f"too many examples that do not run: {excused}"


def test_every_command_that_is_named_exists() -> None:
    """Also those in running text, and in blocks that do not run: the command, and each of its switches."""
    mentions = {
        (page, found[1])
        for page in PAGES
        for found in re.finditer(
            r"(?:^ {0,4}(?:\$ )?|`)synthstream ((?!\.\.\.)[a-z][^`\n#|>]*)", page.read_text(), re.MULTILINE
        )
    }
    assert len(mentions) > 30
    for page, words in mentions:
        assert not missing(words), f"{page.relative_to(ROOT)}: synthstream {words.strip()}: {missing(words)}"


def missing(words: str) -> str:
    """What a command line names that there is not; empty if there is all of it."""
    from typer.main import get_command

    from synthstream.cli.app import app

    command: Any = get_command(app)
    for word in re.split(r"[\s;&)]+", words.strip()):
        if hasattr(command, "commands"):
            if word not in command.commands:
                return word
            command = command.commands[word]
        elif re.match(r"-+[a-zA-Z]", word) and word.split("=")[0] not in {
            "--help",
            *(name for option in command.params for name in option.opts),
        }:
            return word
    return ""


def test_wrong_examples_are_seen(tmp_path: Path, folder: Path) -> None:
    page = ROOT / "README.md"
    block = Block(page=page, line=1, kind="console", title=None, body="", before=None, excuse=None)
    _command("echo one two", block, "one ...\n")
    assert _own("synthstream sample a.toml --where \"B = 'c > d'\" \\\n  -n 5  # exit status 2\n") == [
        *("sample", "a.toml", "--where", "B = 'c > d'", "-n", "5")
    ]
    assert [_own(f"synthstream plan a.toml{more}") for more in (" > b", "|cat", " *.toml", "; true")] == [None] * 4
    assert _own("ls a.toml") is None
    assert agrees("...\nb\n...\nd\n...", "b\nc d")
    assert not agrees("...\nd\n...\nb\n...", "b\nc d")
    assert not agrees("a\n...\na", "a")
    with pytest.raises(AssertionError, match="-- printed --"):
        _command("echo one two", block, "two\n")
    with pytest.raises(AssertionError):
        _command("false", block)
    with pytest.raises(AssertionError, match="Expected"):
        _python(Block(page, 1, "python", None, ">>> 1 + 1\n3\n", None, None), {})
    assert missing("plan stream.toml --json") == ""
    assert missing("plan stream.toml --no-such") == "--no-such"
    assert missing("plant stream.toml") == "plant"
    assert list(_session("$ a \\\n  b\nout\n$ c\n")) == [("a \\\n  b\n", "out\n"), ("c\n", "")]
