"""The page for reviewers names every file that may see a private value, or that decides whether noise is drawn."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.house import FILES, ROOT, SOURCE, imports_of, named, touches

PAGE = ROOT / "docs" / "trust.md"

# What hands out private values, or takes them: whoever imports one of these may hold some.
PRIVATE = [
    "kernel.gate",
    "counts",
    "ingest.counting",
    "schema.coercion",
    "ingest.intake",
    "stream.stream",
    "state.journal",
    "ingest.bounding",
    "state.store",
    "state.looking",
]
PRIVATE += ["ingest.files", "ingest.lines", "ingest.cursors", "ingest.persons", "ingest.kafka", "ingest.postgres"]
PRIVATE += ["ingest.changes", "ingest.delta"]

# They import one of these all the same, and hold none.
PUBLIC = {
    "__init__.py": "names what the package offers",
    "evaluate/audit.py": "simulated events",
    "synthesizers/audit_targets.py": "simulated events",
}

# They import none of these, and a private value, or the decision to draw, depends on them.
DECLARED = {
    "accounting/powers.py": "how much noise",
    "config/sections.py": "how much noise",
    "config/after.py": "what a cut may change",
    "config/differing.py": "what a running stream may not change",
    "kinds.py": "which mechanism",
    "measured.py": "whether a stream is what it was",
    "publish/copies.py": "whether a tick was drawn before",
    "publish/outlets.py": "where that is looked up",
    "accounting/gaussian.py": "what a claim costs",
    "accounting/zcdp.py": "what a claim costs",
    "synthesizers/assembly.py": "how much noise",
    "schema/cells.py": "cells to texts",
    "schema/dialects.py": "cells to values",
    "cli/common.py": "core dumps, progress",
    "cli/runtime.py": "what an exception shows",
    "config/config.py": "how much noise",
    "config/keywords.py": "what an error shows",
    "config/assembling.py": "how much noise",
    "environment.py": "the clock, and whose code runs",
    "errors.py": "what an error shows",
    "cli/check.py": "private rows",
    "evaluate/custodian_page.py": "true counts",
    "evaluate/wasserstein.py": "true points",
    "state/blobs.py": "counts as bytes",
    "state/database.py": "commits",
    "state/folder.py": "who can read the state",
    "schema/mapping.py": "codes of rows that wait",
    "schema/region.py": "points to cells",
    "schema/districts.py": "coordinates to codes",
    "publish/mirrors.py": "what is published elsewhere",
    "publish/postgres_table.py": "what is published elsewhere",
    "config/objects.py": "what an error of a store shows",
    "state/sums.py": "rows of the state",
    "state/sealing.py": "the key",
    "publish/building.py": "the chain",
    "stream/following.py": "when a tick closes",
    "publish/folder.py": "what is published",
    "config/servers.py": "what an error of a server shows",
    "partition.py": "codes to cells",
    "privacy.py": "what a claim costs",
    "release/release.py": "the chain",
    "config/secrecy.py": "the key",
    "spark/sessions.py": "what Spark shows",
    "config/synthesis.py": "what is counted",
    "state/turns.py": "two draws at once",
    "workload.py": "codes to cells",
}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def _does(path: Path) -> bool:
    """Whether a file holds more than a docstring."""
    return len(ast.parse(path.read_text()).body) > 1


def needed() -> set[str]:
    """Files that the page must name: by what they import, and by declaration."""
    modules = [f"synthstream.{module}" for module in PRIVATE]
    found = {name_of(p) for p in FILES if any(touches(imports_of(p), module) for module in modules)}
    listed = {
        name_of(p) for p in FILES if name_of(p).startswith(("kernel/", "strategies/", "papers/counters/")) and _does(p)
    }
    sources = {f"{module.replace('.', '/')}.py" for module in PRIVATE}
    return (found - PUBLIC.keys()) | sources | listed | DECLARED.keys()


def test_every_file_of_the_trusted_set_is_named_once() -> None:
    text = PAGE.read_text()
    found = named(text)
    assert sorted(found) == sorted(set(found))
    assert set(found) == needed(), "docs/trust.md names other files than those that see what is private"
    for row in re.findall(r"^\| `.*", text, re.MULTILINE):
        assert row.rstrip(" |").endswith("."), f"no sentence: {row}"


def test_all_that_is_named_or_declared_exists() -> None:
    there = {name_of(path) for path in FILES}
    assert set(named(PAGE.read_text())) | PUBLIC.keys() | DECLARED.keys() <= there


def test_what_is_declared_is_not_found_by_itself() -> None:
    modules = [f"synthstream.{module}" for module in PRIVATE]
    for name in PUBLIC | DECLARED:
        sees = any(touches(imports_of(SOURCE / name), module) for module in modules)
        assert sees == (name in PUBLIC), f"{name} is declared without need"


@pytest.mark.parametrize("name", ["kernel/fresh.py", "report/fresh.py"])
def test_a_new_file_would_be_missed(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh = tmp_path / name
    fresh.parent.mkdir()
    fresh.write_text("from synthstream.counts import Counts\n")
    monkeypatch.setattr("tests.docs.test_trust.FILES", [*FILES, fresh])
    monkeypatch.setattr("tests.docs.test_trust.name_of", lambda path: name if path == fresh else path.name)
    assert name in needed()
