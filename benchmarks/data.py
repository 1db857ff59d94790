"""Streams for the benchmarks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from synthstream.config.config import load
from synthstream.ingest.counting import encode
from synthstream.workload import CodeArray

EXAMPLES = Path(__file__).parent.parent / "examples"
FOLDER = EXAMPLES / "data"
Order = Literal["random", "sorted"]
Every = Literal["1w", "2w"]


@dataclass(frozen=True, kw_only=True)
class Batches:
    """A stream in numbers.

    Args:
        codes: all rows in the order of their ticks, shape ``(rows, columns)``.
        sizes: number of codes of each column.
        ends: rows up to the end of each tick, shape ``(ticks,)``.
        expected: events that a tick brings, a public guess.
    """

    codes: CodeArray
    sizes: tuple[int, ...]
    ends: list[int]
    expected: float


def adult(order: Order, seed: int = 0) -> tuple[CodeArray, tuple[int, ...]]:
    """Codes of UCI Census Income, shape (48813, 14), and the domain sizes; shuffled, or by its row number."""
    sizes = json.loads((FOLDER / "adult-domain.json").read_text())
    codes = pl.read_parquet(FOLDER / "adult.parquet").sort("uci_row").select(list(sizes)).to_numpy().astype(np.int32)
    if order == "random":
        codes = codes[np.random.default_rng(seed).permutation(len(codes))]
    return codes, tuple(sizes.values())


def adult_batches(order: Order, batch: int, seed: int = 0) -> Batches:
    """Census Income in batches of one size, which is public."""
    codes, sizes = adult(order, seed)
    ends = [min(end, len(codes)) for end in range(batch, len(codes) + batch, batch)]
    return Batches(codes=codes, sizes=sizes, ends=ends, expected=batch)


def evictions(every: Every) -> Batches:
    """Eviction notices 2011 to 2015 by week or fortnight, coded as in the example, whose lists are public knowledge.

    The expected number is a guess: some 1,800 notices a year.
    """
    config = load(EXAMPLES / "evictions" / "stream.toml")
    config = replace(config, clock=replace(config.clock, every=every, until=datetime(2016, 1, 2), horizon=None))
    rows = encode(config, pl.read_parquet(FOLDER / "sf_evictions_2011_2015.parquet"))
    order = np.argsort(rows.ticks, kind="stable")
    ends = np.cumsum(np.bincount(rows.ticks)).tolist()
    expected = 35.0 if every == "1w" else 70.0
    return Batches(codes=rows.codes[order], sizes=config.schema.sizes, ends=ends, expected=expected)
