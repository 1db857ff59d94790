"""Bugs planted on purpose: each breaks the real package for the length of a test, and names who sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

Patch = pytest.MonkeyPatch


class Broken(NamedTuple):
    """A planted bug.

    Args:
        name: of the bug.
        breaks: what goes wrong, in a sentence.
        suites: which suites see it (``tests/audit/suites.py``).
        plant: breaks the package until the patch is undone.
    """

    name: str
    breaks: str
    suites: tuple[str, ...]
    plant: Callable[[Patch], None]


TABLE: list[Broken] = []


def seen_by(*suites: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Put a bug into the table: its name is the function's, what it breaks is its docstring."""

    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        TABLE.append(Broken(plant.__name__.replace("_", " "), plant.__doc__ or "", suites, plant))
        return plant

    return register
