"""Synthetic rows: which of them, and for how many events each stands."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from synthstream.errors import RowsRepeat

if TYPE_CHECKING:
    from synthstream.schema.schema import Schema


def weight_name(schema: Schema) -> str:
    """The column that says for how many events a published row stands."""
    return "weight" if "weight" not in schema.published else "weight of the row"


def drawn(rows: pl.DataFrame, n: int, rng: np.random.Generator, *, where: str | None) -> pl.DataFrame:
    """Some rows, up to their number without repetition; warns if those that satisfy a condition have to repeat."""
    if where is not None and n > rows.height > 0:
        warnings.warn(
            f"{rows.height:,} rows satisfy the condition, fewer than the {n:,} asked for: they repeat",
            RowsRepeat,
            stacklevel=3,
        )
    return rows[rng.choice(rows.height, size=n, replace=n > rows.height)] if n and rows.height else rows.clear()
