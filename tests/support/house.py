"""What tests of house share."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "synthstream"
FILES = sorted(SOURCE.rglob("*.py"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All that stands in a file, which begins with its module; each file is parsed once."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Full names of all modules and names that a file imports, wherever the import stands."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def touches(imports: frozenset[str], prefix: str) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for name in imports)
