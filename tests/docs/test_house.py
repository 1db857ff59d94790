"""Rules of the house: import walls, theorems, the public API, no asserts or pickles in the package."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import synthstream
from synthstream import StreamConfig
from synthstream.kernel.counters import Counter
from synthstream.kernel.spending import Mechanism
from synthstream.kernel.turnstile import Turnstile
from synthstream.papers.counters.sparse import Sparse
from synthstream.papers.hypercube import Hypercube
from synthstream.synthesizers.assembly import claim_of, synthesizer_of
from tests.support.house import FILES, ROOT, SOURCE, imports_of, nodes_of, touches
from tests.support.streams import KINDS, PERSONS, text_of

THEOREMS = ROOT / "docs" / "theorems"


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_pickle() -> None:
    for path in FILES:
        assert not touches(imports_of(path), "pickle"), path


@pytest.mark.parametrize("path", FILES, ids=lambda p: module_of(p))
def test_habits(path: Path) -> None:
    text = path.read_text()
    assert not [n for n in nodes_of(path) if isinstance(n, ast.Assert)], "errors are raised, not asserted"
    assert not re.search(r"np\.random\.(?!default_rng|Generator)", text), "no global randomness"
    assert not re.search(r"TO" + r"DO|FIX" + r"ME", text.replace("TODO-public", "")), "no unfinished business"
    assert len(text.splitlines()) <= 400, "a file fits in a head"
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = (node.end_lineno or 0) - node.lineno + 1
            docstring = len((ast.get_docstring(node) or "").splitlines())
            assert body - docstring <= 50, f"{node.name} is too long"


def test_what_is_public_is_listed_and_sorted() -> None:
    listed = synthstream.__all__
    assert listed == sorted(listed)
    for name in listed:
        assert getattr(synthstream, name).__doc__, f"{name} has no docstring"


def test_checkers_of_types_know_each_public_name_from_where_it_is_loaded() -> None:
    """One that they are not told of is ``Any`` to them, without a word; what has no ``as`` is not public to them."""
    told = {f"from synthstream.{home} import {name} as {name}" for name, home in synthstream._HOMES.items()}
    module = ast.parse((SOURCE / "__init__.py").read_text())
    (known,) = (node for node in module.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    assert {ast.unparse(node) for node in known.body} == told
    assigned = {ast.unparse(node).partition(" = ")[0] for node in module.body}
    assert "__all__" not in assigned, "they cannot read a computed list, and then `import *` gives them nothing"


def _concrete(*classes: type) -> Iterator[type]:
    """These and all that are kinds of them, but for those that are of no kind yet."""
    for one in classes:
        if hasattr(one, "theorem") and not inspect.isabstract(one):
            yield one
        yield from _concrete(*one.__subclasses__())


def mechanisms() -> dict[str, type]:
    """By full name: all counters, and all mechanisms, of the package."""
    for name in ("synthesizers.papers", "papers.counters"):  # what they have is loaded when it is asked for
        importlib.import_module(f"synthstream.{name}")
    found = [*_concrete(Counter, Mechanism, Hypercube, Turnstile), Sparse]
    return {f"{c.__module__}.{c.__name__}": c for c in found if c.__module__.startswith("synthstream.")}


@pytest.mark.parametrize("name", mechanisms())
def test_every_mechanism_names_a_theorem_that_covers_it(name: str) -> None:
    mechanism = mechanisms()[name]
    doc = mechanism.__doc__ or ""
    for word in ("Privacy:", "Unit", "Cost", "Theorem", "Trusts", "Accuracy:"):
        assert word in doc, f"{name}: no {word} in its docstring"
    theorem = re.search(r"Theorem\s+([a-z-]+)", doc)
    assert theorem
    assert theorem[1] == getattr(mechanism, "theorem", theorem[1])
    text = (THEOREMS / f"{theorem[1]}.md").read_text()
    assert f"id: {theorem[1]}" in text
    assert name in text.splitlines()[1]


def test_the_mechanisms_of_the_defaults_are_among_these() -> None:
    names = {name.rpartition(".")[2] for name in mechanisms()}
    assert {"Refreshed", "Epochs", "Points", "Turnstile", "Dense", "Toeplitz", "Blt", "Kary", "Block"} <= names


@pytest.mark.parametrize("kind", [*KINDS, PERSONS])
def test_every_theorem_of_a_claim_has_its_proof(kind: str) -> None:
    config = StreamConfig.from_toml(text_of(kind))
    for theorem in claim_of(config, synthesizer_of(config).mechanism).theorems:
        assert (THEOREMS / f"{theorem}.md").exists(), theorem


def test_every_theorem_covers_something_that_exists() -> None:
    for path in THEOREMS.glob("*.md"):
        if path.name == "README.md":
            continue
        lines = path.read_text().splitlines()
        assert lines[0] == f"id: {path.stem}"
        assert lines[1].startswith("covers: ")
        for name in lines[1].removeprefix("covers: ").split(", "):
            module, _, attribute = name.strip("` ").rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), f"{path.name} covers {name}, which is not there"


def test_readme_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code
    monkeypatch.chdir(tmp_path)
    exec(compile(code[1], "README.md", "exec"), {})  # noqa: S102 - our own README


def test_commands_of_the_readme_exist() -> None:
    from typer.testing import CliRunner

    from synthstream.cli.app import app

    commands = "schema init|plan|run|status|sample|verify|backup|recover|audit"
    for command in set(re.findall(rf"synthstream ({commands})\b", (ROOT / "README.md").read_text())):
        assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert importlib.metadata.version("synthstream") == project["version"]


def test_rows_of_tables_stand_below_their_headings() -> None:
    """A blank line before a row ends the table, and the row is shown as text."""
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        blocks = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL).split("\n\n")
        rows = [block for block in blocks if re.match(r"\| .* \|(\n|$)", block.lstrip("\n"))]
        assert not [block for block in rows if not re.search(r"\n\| ?:?--", block)], path
