"""Names of the kinds of parts that a configuration may choose, and of lengths of time.

What each kind does is written where it is made.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import PurePath
from typing import Literal, NamedTuple

_PAPERS = "synthstream.papers.counters"
# Counters, and the module that has each where it is loaded when one is asked for. Who registers another one, by
# synthstream.kernel.counters.register, adds its name.
COUNTERS: dict[str, str | None] = {
    "auto": None,
    "simple": None,
    "block": _PAPERS,
    "binary": _PAPERS,
    "hybrid": _PAPERS,
    "kary": None,
    "toeplitz": None,
    "blt": None,
}


def load_counter(name: str) -> None:
    """Import the module that has a counter, if it is not where all are made."""
    if home := COUNTERS.get(name):
        import_module(home)


class SynthesizerKind(NamedTuple):
    """What a configuration must know of a kind of synthesizer; how one is made is registered in ``synthesizers``.

    Args:
        keys: of ``[synthesizer]`` that have an effect.
        points: whether its columns are coordinates of points; otherwise it counts tables.
        paper: whether it is a published method, here for comparison.
    """

    keys: tuple[str, ...]
    points: bool = False
    paper: bool = False


_TABLES = ("order", "near", "marginals", "picks")
_ROUNDS = (*_TABLES, "events_per_tick", "fit", "queries", "score")
SYNTHESIZERS: dict[str, SynthesizerKind] = {
    "table": SynthesizerKind((*_TABLES, "counter", "shares", "measure", "growth", "population", "focus")),
    "selective": SynthesizerKind((*_ROUNDS, "counter"), paper=True),
    "stream-mwem": SynthesizerKind(_ROUNDS, paper=True),
    "points": SynthesizerKind(("depth", "schedule", "region", "events_per_tick"), points=True),
    "hypercube": SynthesizerKind(("depth",), points=True, paper=True),
}

# The edition of all defaults, draws and fits. A stream says the one that it began with, and a program that has another
# refuses it, so that nothing changes under it. Those before were never part of a version.
EDITION = 15

# Above these a promise is called weak; above the last, next to nothing.
WEAK_EPSILON, WEAK_DELTA, NO_EPSILON = 4.0, 1e-6, 10.0

# How a budget is divided among tables: synthstream.kernel.tables.
Split = Literal["auto", "equal", "sqrt-cells", "by-order"]
Noise = Literal["gaussian", "laplace"]

# What the methods of paper 2 select, by which score, and what they fit: synthstream.papers.rounds.
Queries = Literal["workloads", "single"]
Score = Literal["corrected", "paper"]
FitKind = Literal["pgm", "mw"]

# Files of events.
FileKind = Literal["parquet", "csv", "jsonl"]

# Ends of the names of text files that are packed.
COMPRESSED = (".gz", ".zst")
_ENDINGS: dict[str, FileKind] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}


_LONGEST_NAME = 255  # characters of a part of a path


def kind_of(name: PurePath) -> FileKind | None:
    """The kind of file that a name or a pattern says, packed or not, in any case; ``None`` if it says none.

    Example:
        >>> kind_of(PurePath("A.CSV.GZ")), kind_of(PurePath("rows-*.ndjson")), kind_of(PurePath("a"))
        ('csv', 'jsonl', None)
    """
    endings = [ending for ending in map(str.lower, name.suffixes) if ending not in COMPRESSED]
    return _ENDINGS.get(endings[-1] if endings else "")


def is_text(name: str) -> bool:
    """Whether it can hardly be the name of a file, and may be rows: no message repeats it."""
    too_long = max(map(len, name.split("/"))) > _LONGEST_NAME
    return too_long or "\0" in name or name.splitlines() != [name] or name.lstrip()[:1] in "{[<"


# What a mirror gets of each release.
Content = Literal["rows", "tables"]


# Lengths of ticks and periods, as they are configured.
_UNITS = {"m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "q": "quarter", "y": "year"}


def spelled(length: str) -> str:
    """A length with its number.

    Example:
        >>> spelled("1mo"), spelled("30d")
        ('1 month', '30 days')
    """
    number, unit = re.fullmatch(r"(\d+)(\w+)", length).groups()  # type: ignore[union-attr]
    return f"{number} {_UNITS[unit]}{'' if number == '1' else 's'}"


def span(length: str) -> str:
    """The same; of one, its unit alone.

    Example:
        >>> span("1w"), span("15m")
        ('week', '15 minutes')
    """
    return spelled(length).removeprefix("1 ")
