"""Old names of sections and keys: they still work, and a notice says the new ones."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from synthstream.config.problems import Problems
from synthstream.errors import OldName

# Section (none for the file itself), old and new name in it, and how a person calls both.
_RENAMED = (
    ("", "also", "mirror", ("[[also]]", "[[mirror]]")),
    ("synthesizer", "budget", "shares", ("budget in [synthesizer]", "shares")),
)


def with_new_names(data: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """The tables of a ``stream.toml`` under their new names. Notes a problem where the old and the new one stand."""
    found = dict(data)
    for section, old, new, (before, now) in _RENAMED:
        keys = found.get(section) if section else found
        if not isinstance(keys, dict) or old not in keys:
            continue
        path = (section,) if section else ()
        if new in keys:
            problems.add((*path, old), f"{before} is called {now} now, and both are there. Say {now} alone")
        else:
            warnings.warn(f"{before} is called {now} now; the old name still works", OldName, stacklevel=1)
            problems.rename((*path, old), (*path, new))
        renamed = {new if key == old else key: value for key, value in keys.items() if key != old or new not in keys}
        found = found | {section: renamed} if section else renamed
    return found
