"""Old names of sections and keys: they still work, and a notice says the new ones."""

from __future__ import annotations

import warnings
from typing import Any

from synthstream.config.problems import Problems
from synthstream.errors import OldName

# The path of an old name, the new one in its place, and how a person calls both.
_RENAMED = (
    (("also",), "mirror", "[[also]]", "[[mirror]]"),
    (("synthesizer", "budget"), "shares", "budget in [synthesizer]", "shares"),
)


def use_new_names(data: dict[str, Any], problems: Problems) -> None:
    """Give the tables of a ``stream.toml`` their new names. Notes a problem where the old and the new one stand."""
    for path, new, before, now in _RENAMED:
        keys = data if len(path) == 1 else data.get(path[0])
        if not isinstance(keys, dict) or path[-1] not in keys:
            continue
        value = keys.pop(path[-1])
        if new in keys:
            problems.add(path, f"{before} is called {now} now, and both are there. Say {now} alone")
        else:
            keys[new] = value
            warnings.warn(f"{before} is called {now} now; the old name still works", OldName, stacklevel=1)
            problems.rename(path, (*path[:-1], new))
