"""In which edition a text is read: the newest, unless it names a grid of a place which only the former rule gives."""

from __future__ import annotations

import re
from pathlib import Path

from synthstream.config.assembling import schema_of
from synthstream.config.places import PlaceSection
from synthstream.config.problems import Problems
from synthstream.config.sections import File
from synthstream.errors import ConfigError
from synthstream.kinds import NEWEST, Edition

# The last edition whose rule may give a place other grids than the newest.
BEFORE: Edition = 7


def older_grids(file: File, base: Path) -> tuple[str, ...]:
    """Names of grids that the settings speak of, and that edition :data:`BEFORE` gives, but the newest does not.

    A stream that runs may name some; its edition is found after its text is read.
    """
    named = _named(file)
    places = "|".join(re.escape(section.name) for section in file.columns if isinstance(section, PlaceSection))
    grids = sorted(name for name in named if re.fullmatch(rf"(?:{places})_\d+", name)) if places else []
    if not grids:
        return ()
    before, now = _columns(file, base, BEFORE), _columns(file, base, NEWEST)
    return tuple(name for name in grids if name in before and name not in now)


def _named(file: File) -> set[str]:
    """All that may be the name of a column outside [[columns]]."""
    tables, after = file.synthesizer.marginals, file.after
    found = {name for table in tables if not isinstance(table, str) for name in table} if tables else set[str]()
    for one in file.constraints:
        found |= {*(one.columns or ()), *(one.less_or_equal or ()), *filter(None, (one.column, one.function_of))}
    return found | (set() if after is None else {*after.values, *after.fill})


def _columns(file: File, base: Path, edition: Edition) -> tuple[str, ...]:
    """Names of all columns in an edition; none where they cannot be read, of which the reading itself tells."""
    try:
        schema = schema_of(file, file.privacy.budget(), Problems("", "", {}), base, edition)
    except ConfigError:
        return ()
    return () if schema is None else schema.names
