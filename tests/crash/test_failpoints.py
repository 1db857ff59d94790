"""Every side effect of a stream has a name, and every name is reached: nothing is done behind its back."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.crash import world
from tests.support.environments import Recording

SOURCE = Path(__file__).parents[2] / "src" / "synthstream"
READERS = {"addresses.py"}  # keeps copies for a reader, who has no stream
FILES = [
    *sorted((SOURCE / "state").glob("*.py")),
    *sorted((SOURCE / "ingest").glob("*.py")),
    *sorted(path for path in (SOURCE / "publish").glob("*.py") if path.name not in READERS),
    SOURCE / "stream" / "stream.py",
    SOURCE / "report" / "site.py",
]

STATE = {
    "make state folder", "sync state's name", "lock state", "make store", "choose write-ahead log", "commit format",
    "commit settings", "commit names", "commit counts", "draw", "commit answer", "commit measurement", "wipe log",
    "commit publication", "close store",
}  # fmt: skip
FOLDER = {
    "make sink", "sync sink's name", "clear aside", "make aside", "write rows", "write tables", "write measured",
    "write manifest", "sync measured.parquet",
    "sync rows.parquet", "sync tables.parquet", "sync manifest.json", "sync aside", "rename release", "sync sink",
}  # fmt: skip
SERIES = {"write series", "sync series.parquet"}
KEEP = {"drop old rows"}
ANCHOR = {"write anchor", "sync anchor", "rename anchor", "sync anchor folder"}
REACHED = {
    "table": STATE | FOLDER | SERIES | KEEP,
    "epochs": STATE | FOLDER | SERIES,
    "places": STATE | FOLDER | SERIES,
    "points": STATE | FOLDER,
    "anchor": STATE | ANCHOR,
}

# What changes the world, by the name of the function or method; and statements that do.
EFFECTS = {
    "fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "makedirs", "remove", "link", "symlink", "truncate",
    "symlink_to", "hardlink_to", "write_text", "write_bytes", "touch", "chmod", "rmtree", "copyfile", "copy", "move",
    "flock", "write_table", "write_parquet", "write_csv", "sync", "sync_parent", "make_folder",
}  # fmt: skip
PURE = {"until.replace", "line.replace", "footer.replace"}
# Texts, moments, lists, frames and what lies in memory.
PURE |= {
    "both.rename",
    "at.replace",
    "found.replace",
    "found.filter(there).replace",
    "left.remove",
    "writer.write_table",
}
# In a transaction, whose commit is an effect of its own.
PURE |= {"connection.cursor().copy", "part.write_csv"}
STATEMENTS = ("COMMIT", "PRAGMA journal_mode = WAL")


@pytest.mark.parametrize("kind", world.KINDS)
def test_every_named_side_effect_is_reached_and_there_is_no_other(tmp_path: Path, kind: str) -> None:
    env = Recording()
    world.prepare(tmp_path, kind)
    for _ in range(2):
        world.drive(tmp_path, kind, exact=False, env=env, ticks=4)
    assert set(env.names) == REACHED[kind]


def test_there_are_enough_failpoints() -> None:
    assert 2 * len(REACHED["table"]) >= 20
    assert 2 * len(set.union(*REACHED.values())) == 74


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _effect(node: ast.AST, helpers: set[str]) -> bool:
    """Whether a reference or a call changes the world: a method of that name, a helper, a statement that commits."""
    if isinstance(node, ast.Call) and node.args and _text(node.args[0]).startswith(STATEMENTS):
        return True
    if isinstance(node, ast.Attribute):
        return node.attr in EFFECTS and ast.unparse(node) not in PURE
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return node.id in helpers | {"sync", "sync_parent", "make_folder", "rmtree"}
    return False


def _given_to_do(tree: ast.AST) -> set[ast.AST]:
    """All that stands inside of the arguments of a call of ``do`` or ``_do``."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in ("do", "_do"):
            inside |= {part for argument in node.args for part in ast.walk(argument)}
    return inside


def outside_of_do(text: str) -> list[str]:
    """Side effects of a file that no environment can interrupt.

    A function of the module that does one is a helper: it may do it, and must itself be given to ``do``.
    """
    tree = ast.parse(text)
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    given, helpers = _given_to_do(tree), set[str]()
    for _ in functions:  # helpers of helpers
        helpers |= {
            name for name, f in functions.items() if any(_effect(n, helpers) for n in ast.walk(f) if n not in given)
        }
    allowed = given | {part for name in helpers for part in ast.walk(functions[name])}
    return [
        f"{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if node not in allowed and _effect(node, helpers)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_side_effect_happens_outside_of_the_environment(path: Path) -> None:
    found = outside_of_do(path.read_text())
    if path.name == "disk.py":  # only helpers
        found = [line for line in found if "PRAGMA" in line]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n def f(self):\n  self.path.rename(1)",
        "class A:\n def f(self):\n  self.db.execute('COMMIT')",
        "class A:\n def f(self):\n  _put(1)\ndef _put(x):\n os.fsync(x)",
        "class A:\n def f(self):\n  _all()\ndef _put(x):\n x.unlink()\ndef _all():\n _put(1)",
        "class A:\n def f(self):\n  x = sync",
    ],
)
def test_the_rule_can_fail(text: str) -> None:
    assert outside_of_do(text)
    assert not outside_of_do("class A:\n def f(self):\n  do('a', lambda: _put(1))\ndef _put(x):\n os.fsync(x)")
