"""Streams for the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from synthstream.workload import CodeArray

FOLDER = Path(__file__).parent.parent / "examples" / "data"
Order = Literal["random", "sorted"]


def adult(order: Order, seed: int = 0) -> tuple[CodeArray, tuple[int, ...]]:
    """Codes of UCI Census Income, shape (48813, 14), and the domain sizes; shuffled, or by its row number."""
    sizes = json.loads((FOLDER / "adult-domain.json").read_text())
    codes = pl.read_parquet(FOLDER / "adult.parquet").sort("uci_row").select(list(sizes)).to_numpy().astype(np.int32)
    if order == "random":
        codes = codes[np.random.default_rng(seed).permutation(len(codes))]
    return codes, tuple(sizes.values())
