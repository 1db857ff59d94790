"""What tests of house share."""

from __future__ import annotations

import ast
import io
import re
import tokenize
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


def own_lines(path: Path) -> int:
    """Lines of code: without docstrings, comments and blanks."""
    text = path.read_text()
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {n for token in tokens if token.type not in silent for n in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def named(text: str) -> list[str]:
    """Files in the first cells of the rows of tables of docs/trust.md."""
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return [file for row in rows for file in re.findall(r"`([\w/]+\.py)`", row.split(" | ")[0])]
