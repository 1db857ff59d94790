"""Tests stand in folders named like the rooms, and share nothing but ``tests/support`` and helpers of their suite."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOMS = {
    "accounting",
    "benchmarks",
    "cli",
    "config",
    "evaluate",
    "fit",
    "forecast",
    "ingest",
    "kernel",
    "papers",
    "publish",
    "release",
    "report",
    "schema",
    "state",
    "stream",
    "synthesizers",
    "vocabulary",
}
SUITES = {"audit", "browser", "crash", "docs", "mutation", "rows", "services", "spark"}  # across rooms


def test_every_test_stands_in_a_room() -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert folders <= ROOMS | SUITES


def test_no_test_module_imports_another() -> None:
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [
                    part for alias in node.names if alias.name.startswith("tests") for part in alias.name.split(".")
                ]
            else:
                continue
            assert not [name for name in names if name.startswith("test_")], f"{path}:{node.lineno}"
