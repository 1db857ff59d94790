"""Hooks of the documentation site: files from outside of docs/, and links to them as they stand in the repository."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

# What the site holds besides docs/, at the same place as in the repository.
BESIDES = (
    "CHANGELOG.md",
    "LICENSE",
    "benchmarks/README.md",
    "benchmarks/results/*.*",
    "deploy/*",
    "examples/*/stream.toml",
    "examples/*/*.ipynb",
    "examples/data/README.md",
)
_LINK = re.compile(r"(?<=\]\()(?!\w+:|/|#)([^)#\s]+)")


def on_config(config: Any) -> Any:
    """Fill in the patterns of the navigation."""
    config.nav = _filled(config.nav)
    return config


def _filled(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: _filled(inside) for title, inside in entry.items()}
    if not isinstance(entry, list):
        return entry
    found: list[Any] = []
    for inside in entry:
        if isinstance(inside, str) and "*" in inside:
            base = DOCS if (DOCS / inside).parent.is_dir() else ROOT
            found += [path.relative_to(base).as_posix() for path in sorted(base.glob(inside))]
        else:
            found.append(_filled(inside))
    return found


def on_files(files: Files, *, config: Any) -> Files:
    """Add what lies outside of docs/."""
    for pattern in BESIDES:
        for path in sorted(ROOT.glob(pattern)):
            where = path.relative_to(ROOT).as_posix()
            if path.is_file():
                files.append(File.generated(config, where, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Point links at the site's places, and say what a theorem covers (its first lines are read as meta-data)."""
    here = Path(page.file.abs_src_path).parent

    def placed(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / link[1]))
        if target.is_dir() and (target / "README.md").exists():
            target /= "README.md"
        base = DOCS if target.is_relative_to(DOCS) else ROOT
        if not target.is_relative_to(ROOT):
            return link[1]
        return os.path.relpath(target.relative_to(base), Path(page.file.src_uri).parent)

    markdown = _LINK.sub(placed, markdown)
    covers = page.meta.get("covers")
    if covers:
        names = " ".join(covers) if isinstance(covers, list) else covers
        code = ", ".join(f"`{name.strip('` ')}`" for name in names.split(","))
        title, _, rest = markdown.lstrip().partition("\n")
        markdown = f"{title}\n\nTheorem `{Path(page.file.src_uri).stem}`. It covers {code}.\n{rest}"
    return markdown
