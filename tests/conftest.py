"""What all tests share: where their files lie, which examples Hypothesis tries, which cases of a large grid are quick.

Temporary folders lie in memory, where the machine has enough of it: a stream waits for the disk at every commit, which
took half the time of all tests. Set ``TMPDIR`` for another place.

Hypothesis tries the same examples in every run. So a run fails by what was changed, never by chance: not by an example
that nobody met before, nor by a slow machine. To look for new ones: ``pytest --hypothesis-profile explore``.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_MEMORY = Path("/dev/shm")  # noqa: S108 - folders in it get names of their own, as in any place for temporary files
_ENOUGH = 2**31


def _in_memory() -> bool:
    """Whether temporary files can lie in memory: there is enough, and programs may be run from there."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return False
    found = os.statvfs(_MEMORY)
    return found.f_bavail * found.f_frsize >= _ENOUGH and not found.f_flag & os.ST_NOEXEC


if _in_memory():
    os.environ["TMPDIR"] = str(_MEMORY)  # for processes that tests start, too
    tempfile.tempdir = None  # asked anew

_SLOW = [HealthCheck.too_slow]
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("explore", deadline=None, suppress_health_check=_SLOW)
settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays: searches for garbage among it took a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what their module makes run in one process, one after the other.

    ``@pytest.mark.sparing(n)``: of the cases of a test, n run with the quick tests, and the others are slow;
    ``sparing(n, m)``: m of the others are slow, and the rest is for ``make soak``.

    The n cases hold as many different values of the parameters as n cases can, each chosen for most that is new; the m
    cases go on from there.
    """
    groups: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and _shares(item):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))
        if isinstance(item, pytest.Function) and item.get_closest_marker("sparing") and hasattr(item, "callspec"):
            groups.setdefault(item.nodeid.split("[")[0], []).append(item)
    for group in groups.values():
        marker = group[0].get_closest_marker("sparing")
        quick, *slow = map(int, marker.args) if marker else [len(group)]
        # Not by callspec.indices: from pytest 9.1 they number the cases of a grid, not the values of its parameters.
        cases = [{(name, repr(value)) for name, value in item.callspec.params.items()} for item in group]
        chosen = spread(cases, quick + sum(slow))
        for i, item in enumerate(group):
            if i not in chosen[:quick]:
                item.add_marker(pytest.mark.slow if not slow or i in chosen else pytest.mark.soak)


def _shares(item: pytest.Function) -> bool:
    """Whether a test uses what is made once for its module: made in one process, and not in each of those that test."""
    found = item._fixtureinfo.name2fixturedefs.values()
    return any(made[-1].scope == "module" and made[-1].func.__module__.startswith("tests.") for made in found)


def spread(cases: list[set[tuple[str, str]]], number: int) -> list[int]:
    """Positions of as many cases, each with most values that no earlier one had; of such, with most pairs of values."""
    pairs = [set(combinations(sorted(case), 2)) for case in cases]
    seen: Counter[Any] = Counter()
    chosen: list[int] = []
    left = list(range(len(cases)))
    while left and len(chosen) < number:
        best = min(left, key=lambda i: (sum(seen[v] for v in cases[i]), sum(seen[p] for p in pairs[i]), i))
        chosen.append(best)
        left.remove(best)
        seen.update(cases[best] | pairs[best])
    return chosen
