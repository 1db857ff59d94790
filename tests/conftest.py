"""What all tests have in common: the examples that Hypothesis tries, and which cases of a large grid are quick.

Hypothesis tries the same examples in every run.

So a run fails by what was changed, never by chance: not by an example that nobody met before, nor by a slow machine.
To look for new ones: ``pytest --hypothesis-profile explore``.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow]
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("explore", deadline=None, suppress_health_check=_SLOW)
settings.load_profile("same")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``@pytest.mark.sparing(n)``: of the cases of a test, n run with the quick tests, and the others are slow.

    The n cases hold as many different values of the parameters as n cases can, each chosen for most that is new.
    """
    groups: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sparing") and hasattr(item, "callspec"):
            groups.setdefault(item.nodeid.split("[")[0], []).append(item)
    for group in groups.values():
        marker = group[0].get_closest_marker("sparing")
        number = int(marker.args[0]) if marker else len(group)
        quick = spread([set(item.callspec.indices.items()) for item in group], number)
        for i in set(range(len(group))) - set(quick):
            group[i].add_marker(pytest.mark.slow)


def spread(cases: list[set[tuple[str, int]]], number: int) -> list[int]:
    """Positions of as many cases, each with most values that no earlier one had."""
    seen: Counter[tuple[str, int]] = Counter()
    chosen: list[int] = []
    while len(chosen) < min(number, len(cases)):
        left = [i for i in range(len(cases)) if i not in chosen]
        best = min(left, key=lambda i: (sum(seen[value] for value in cases[i]), i))
        chosen.append(best)
        seen.update(cases[best])
    return chosen
