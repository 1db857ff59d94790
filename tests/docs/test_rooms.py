"""The rooms of the house: what each may import, by way of others too; no circle, no import upward; a closed kernel."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from synthstream.kernel.spending import Mechanism
from synthstream.kernel.turnstile import Turnstile
from synthstream.kinds import SYNTHESIZERS
from synthstream.papers.hypercube import Hypercube
from synthstream.synthesizers.contract import Synthesizer
from tests.support.house import SOURCE, nodes_of, own_lines

VOCABULARY, ACCOUNTING = "vocabulary", "accounting"

# What each room may import, itself apart. The rooms that people and engines use may import all that is above them.
_BASE = {VOCABULARY, ACCOUNTING}  # numbers and names; all rooms may use them
_CORE = {*_BASE, "strategies", "schema", "config", "kernel", "state", "fit", "papers", "release", "synthesizers"}
_CORE |= {"ingest"}
_ALL = _CORE | {"publish", "stream", "forecast", "report"}
ROOMS: dict[str, set[str]] = {
    ACCOUNTING: set(),
    VOCABULARY: {ACCOUNTING},
    "schema": _BASE,
    "strategies": _BASE,
    "kernel": {*_BASE, "strategies"},
    "fit": _BASE,
    "release": {*_BASE, "schema"},
    "config": {*_BASE, "schema", "strategies"},
    "papers": {*_BASE, "strategies", "kernel"},
    "synthesizers": {*_BASE, "strategies", "schema", "config", "kernel", "fit", "release", "papers"},
    "state": {*_BASE, "kernel"},
    "ingest": {*_BASE, "strategies", "schema", "config", "state"},
    "publish": {*_BASE, "strategies", "schema", "config", "kernel", "fit", "papers", "release", "synthesizers"},
    "stream": _CORE | {"publish"},
    "forecast": (_CORE - {"state", "ingest"}) | {"publish"},
    "report": (_CORE - {"state", "ingest"}) | {"publish", "forecast"},
    "evaluate": _ALL,
    "spark": _CORE | {"publish", "stream"},
    "cli": _ALL | {"evaluate", "spark"},
}

# All that the kernel may load, beside the vocabulary and itself.
_KERNEL_MAY_LOAD = {"numpy", "scipy", "numba", "llvmlite"}
# Of the standard library: neither files nor clocks nor other processes are a business of the kernel's own code.
_KERNEL_MAY_IMPORT = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "decimal", "fractions", "functools", "hashlib",
    "itertools", "json", "math", "os", "typing",
}  # fmt: skip


def _modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


def imports_of(path: Path) -> set[str]:
    """The package's own modules that a file imports, wherever the import stands, also for types alone."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in MODULES else node.module)
    return {name for name in found if name in MODULES}


@cache
def graph() -> dict[str, set[str]]:
    """The package's own modules that each of them imports."""
    return {name: imports_of(path) - {name} for name, path in MODULES.items()}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (SOURCE / parts[1]).is_dir() else VOCABULARY


def reached(module: str) -> set[str]:
    """All modules that one imports, by way of others too."""
    edges = graph()
    found: set[str] = set()
    todo = [module]
    while todo:
        for name in edges[todo.pop()] - found:
            found.add(name)
            todo.append(name)
    return found


# The package's front door names all rooms, and `python -m synthstream` opens the command line.
_DOORS = {"synthstream", "synthstream.__main__"}


def test_there_is_no_room_without_a_rule() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and list(path.glob("*.py"))}
    assert rooms == set(ROOMS) - {VOCABULARY}
    for room in rooms:
        assert (ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text())) or "").count(".") >= 1


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_reaches_only_what_it_may(room: str) -> None:
    for module in MODULES:
        if room_of(module) == room and module not in _DOORS:
            for name in reached(module) - _DOORS:
                assert room_of(name) in ROOMS[room] | {room}, f"{module} reaches {name}"


def test_no_rule_allows_what_no_module_needs() -> None:
    for room, may in ROOMS.items():
        found = {room_of(name) for module in MODULES if room_of(module) == room for name in reached(module)}
        assert may - _BASE <= found, f"{room} may import {sorted(may - _BASE - found)}, and does not"


def test_the_state_knows_the_gate_and_no_mechanism() -> None:
    known = {name for module in MODULES if room_of(module) == "state" for name in reached(module)}
    assert {name for name in known if room_of(name) == "kernel"} - {"synthstream.kernel"} == {
        f"synthstream.kernel.{name}" for name in ("gate", "choosing", "joint", "sampling")
    }


def test_no_rule_allows_a_circle() -> None:
    left = {room: set(may) for room, may in ROOMS.items()}
    while left:
        ground = [room for room, may in left.items() if not may & set(left)]
        assert ground, f"these rooms may import each other: {sorted(left)}"
        for room in ground:
            del left[room]


def test_no_module_imports_itself_by_way_of_others() -> None:
    for module in MODULES:
        if module not in _DOORS:
            assert module not in reached(module), f"{module} is in a circle"


def test_the_papers_are_imported_by_synthesizers_and_audits_alone() -> None:
    for module, imported in graph().items():
        if room_of(module) not in ("papers", "synthesizers", "evaluate"):
            assert not [name for name in imported if room_of(name) == "papers"], module


def test_papers_and_statistics_are_loaded_by_those_who_ask_for_them_alone() -> None:
    code = "\n".join(
        [
            "import sys",
            "from synthstream.synthesizers.assembly import synthesizer_of",
            "from tests.support.streams import StreamConfig, text_of",
            "for kind in ('refresh', 'epochs', 'points', 'points-signed', 'hypercube'):",
            "    made = synthesizer_of(StreamConfig.from_toml(text_of(kind)))",
            "    made.audit_targets()",
            "    print(kind, any(name.startswith('synthstream.papers') for name in sys.modules))",
            "print('scipy.stats', 'scipy.stats' in sys.modules)",  # a third of a second, at each command
        ]
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own
    assert run.stdout.split()[1::2] == ["False"] * 4 + ["True", "False"]


def test_few_modules_stand_at_the_root() -> None:
    assert len(list(SOURCE.glob("*.py"))) <= 12


def test_the_kernel_is_closed() -> None:
    for module, path in MODULES.items():
        if room_of(module) == "kernel":
            for node in nodes_of(path):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    top = name.split(".")[0]
                    assert top in _KERNEL_MAY_IMPORT | _KERNEL_MAY_LOAD | {"synthstream"}, f"{module} imports {name}"
                    assert not name.startswith("numpy.random"), f"{module} imports {name}"


def test_the_kernel_loads_nothing_else() -> None:
    """In a process of its own: what is loaded when all of the kernel is, but by numba, which takes up what it finds."""
    kernel = [name for name in MODULES if room_of(name) == "kernel"]
    loading = f"[importlib.import_module(m) for m in {kernel!r}]"
    code = f"import sys, importlib, numba; before = set(sys.modules); {loading}; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own
    shown = run.stdout.split()
    loaded = {name for name in shown if name.startswith("synthstream")}
    assert not {name for name in loaded if room_of(name) not in {*_BASE, "kernel", "strategies"}}
    for outside in ("polars", "pyarrow", "pydantic", "typer", "sqlite3"):
        assert outside not in shown


def _below(*classes: type) -> set[str]:
    """Names of all classes that are kinds of these."""
    found: set[str] = set()
    for one in classes:
        found |= {one.__name__} | _below(*one.__subclasses__())
    return found


def test_only_synthesizers_ask_which_kind_they_have() -> None:
    """Not by its class; and by its name the configuration alone does, which says what belongs to which."""
    for name in ("assembly", "papers", "segments"):
        import_module(f"synthstream.synthesizers.{name}")
    kinds = _below(Synthesizer, Mechanism, Turnstile, Hypercube) - {"Synthesizer", "Mechanism"}
    assert {"AtRefreshes", "FromNodes", "Refreshed", "Selective"} <= kinds
    for module, path in MODULES.items():
        if room_of(module) == "synthesizers":
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                assert not asked & kinds, f"{module}:{node.lineno} asks for {asked & kinds}"
            if isinstance(node, ast.Compare) and room_of(module) != "config":
                words = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                of_kind = getattr(node.left, "attr", getattr(node.left, "id", "")) == "kind"
                assert not (of_kind and words & set(SYNTHESIZERS)), f"{module}:{node.lineno} asks for {words}"


def test_the_kernel_is_read_in_one_sitting() -> None:
    assert sum(own_lines(path) for module, path in MODULES.items() if room_of(module) == "kernel") <= 1660
