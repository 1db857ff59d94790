"""Names of the kinds of parts that a configuration may choose. What each kind does is written where it is made."""

from __future__ import annotations

from typing import Literal, get_args

# Counters: synthstream.kernel.counters and synthstream.papers.counters.
CounterKind = Literal["auto", "simple", "block", "binary", "hybrid", "kary", "toeplitz", "blt"]
COUNTERS: tuple[CounterKind, ...] = get_args(CounterKind)

# How a budget is divided among tables: synthstream.kernel.marginals.
Split = Literal["auto", "equal", "sqrt-cells", "by-order"]
SPLITS: tuple[Split, ...] = get_args(Split)

# What the methods of paper 2 select, by which score, and what they fit: synthstream.kernel.rounds.
Queries = Literal["workloads", "single"]
QUERIES: tuple[Queries, ...] = get_args(Queries)
Score = Literal["corrected", "paper"]
SCORES: tuple[Score, ...] = get_args(Score)
FitKind = Literal["pgm", "mw"]
FITS: tuple[FitKind, ...] = get_args(FitKind)

# Files of events.
FileKind = Literal["parquet", "csv"]
FILES: tuple[FileKind, ...] = get_args(FileKind)

# What a mirror gets of each release.
Content = Literal["rows", "tables"]
