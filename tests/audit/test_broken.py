"""Every suite passes on the healthy package, and fails on each package that was broken on purpose."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from synthstream.accounting import gaussian, zcdp
from synthstream.kernel.counters import restarted
from tests.audit.broken import TABLE, Broken, accounts, counting, noise, running
from tests.audit.suites import SUITES

PLANTED = [(bug, suite) for bug in TABLE for suite in bug.suites]


@pytest.mark.sparing(9)
@pytest.mark.parametrize("name", SUITES)
def test_the_healthy_package_passes(name: str, tmp_path: Path) -> None:
    SUITES[name](tmp_path)


@pytest.mark.sparing(20)
@pytest.mark.parametrize(("bug", "suite"), PLANTED, ids=[f"{bug.name}: {suite}" for bug, suite in PLANTED])
def test_a_planted_bug_is_seen(bug: Broken, suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    bug.plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        SUITES[suite](tmp_path)
    monkeypatch.undo()
    forget()


def forget() -> None:
    """What is computed once for a process is computed anew, with what is broken or mended."""
    restarted._inner.cache_clear()
    zcdp.rho_for.cache_clear()
    gaussian.largest_rho.cache_clear()


def test_the_table_is_whole() -> None:
    assert len(TABLE) >= 20
    assert max(Counter(bug.name for bug in TABLE).values()) == 1
    assert {suite for bug in TABLE for suite in bug.suites} == set(SUITES), "each suite sees something, and is known"
    assert all(bug.breaks for bug in TABLE)
    modules = {bug.plant.__module__ for bug in TABLE}
    assert modules == {module.__name__ for module in (accounts, counting, noise, running)}
