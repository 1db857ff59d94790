"""Which public settings of two configurations differ, in the words of ``stream.toml``, with the old and new value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from synthstream.config.synthesis import STORED

_ORDER, _TABLES = "columns (names or their order)", "synthesizer.marginals"
# Of a place: its grids, and what they are counted with.
_GRIDS, _CROSSED = "events or depth", "with"
# What is decided by others where it is not said, by those before it here among them.
_FOLLOWING = (_GRIDS, _CROSSED, _ORDER, _TABLES, "constraints", "synthesizer.growth")
_HASH = re.compile("[0-9a-f]{64}")
_LONG = 100


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Settings that differ, each with its values, as in ``privacy.epsilon: was 1.0, is 2.0``; none if all are equal.

    What follows from another one that differs, such as the tables from the columns, is left out. A difference for which
    there are no such words is told by the name of the column, or of the setting, alone.

    Args:
        old, new: what :meth:`StreamConfig.public_json` says.
    """
    before, after = _flat(old), _flat(new)
    changed = [key for key in sorted(before.keys() | after.keys()) if _unlike(before.get(key), after.get(key))]
    ranks = {key: _rank(key, {*changed}) for key in changed}
    first = min(ranks.values(), default=0)
    columns = {f"columns.{name}" for public in (old, new) for name in public.get(_ORDER, ())}
    told = [
        f"{key}{_values(before.get(key), after.get(key), key, column=key in columns)}"
        for key in changed
        if ranks[key] == first
    ]
    return told or [key for key in sorted(old.keys() | new.keys()) if _unlike(old.get(key), new.get(key))]


def _unlike(old: Any, new: Any) -> bool:
    """Whether two values are written unlike, as 0.0 and -0.0 are: the chain begins with what is written."""
    return json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True)


def _rank(key: str, changed: set[str]) -> int:
    """0 for a setting that no other one decides, more for what those of lower ranks may have decided."""
    section, _, last = key.rpartition(".")
    if section in changed or (key.startswith("columns.") and "synthesizer.kind" in changed):
        return len(_FOLLOWING) + 1  # another kind of column, of unit or of stream has other settings
    name = last if section not in ("columns", "synthesizer") else key
    return _FOLLOWING.index(name) + 1 if name in _FOLLOWING else 0


def _flat(public: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the names that they have in sections; a column itself has its type."""
    names, found = dict(enumerate(public.get(_ORDER, []))), dict[str, Any]()
    called = {f"synthesizer.{stored}": f"synthesizer.{name}" for name, stored in STORED.items()}
    for key, value in public.items():
        if not key.startswith("columns."):
            found[called.get(key, key)] = value
            continue
        view = value.get("finest", value)  # columns of a place are made of one section
        name = key
        if "place" in view:
            name = f"columns.{view['place']}"
            name += " (place)" if name in public else ""
        settings = {k: v for k, v in value.items() if k not in ("name", "type")}
        if "edges" in settings:
            settings = {k: v for k, v in settings.items() if k not in ("bins", "min", "max")}
        if "place" in view:
            depths, crossed = (found.get(f"{name}.{k}", []) for k in (_GRIDS, _CROSSED))
            own = {"regions": value["regions"]} if "regions" in value else {_GRIDS: [*depths, view["depth"]]}
            settings = {k: view[k] for k in ("bounds", "coordinates")} | own
            settings[_CROSSED] = sorted({*crossed, *value["with"]})
        found |= {name: view["type"]} | {f"{name}.{k}": v for k, v in settings.items()}
    if found.get(_TABLES):
        found[_TABLES] = [[names.get(c, c) for c in marginal] for marginal in found[_TABLES]]
    return found


def _values(old: Any, new: Any, key: str, *, column: bool) -> str:
    """Both values; of long lists what only one of them holds; of what stands there by its hash, that it is another."""
    if column and None in (old, new):
        return ": is a new column" if old is None else ": is a column no more"
    both = [_said(value) for value in (old, new)]
    if any(map(_HASH.search, both)):
        other = ": the polygon file is another one" if key.endswith(("region", "regions")) else ""
        return ": is not set" if new is None else ": was not set" if old is None else other
    if isinstance(old, list) and isinstance(new, list) and max(map(len, both)) > _LONG:
        gone, come = ([x for x in one if x not in other] for one, other in ((old, new), (new, old)))
        if gone or come:
            return "".join(
                f": {word} {_said(part)[1:-1]}" for word, part in (("without", gone), ("with", come)) if part
            )
    return f": was {both[0]}, is {both[1]}"


def _said(value: Any) -> str:
    text = "not set" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 4 * _LONG else f"{text[: 4 * _LONG]}..."
