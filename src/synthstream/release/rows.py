"""What rows are made of; which of them are drawn, and for how many events each stands."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.errors import RowsRepeat
from synthstream.schema.schema import Schema
from synthstream.workload import IntArray, Workload


class Model(Protocol):
    """What was fitted to measurements."""

    @property
    def number(self) -> int:
        """Number of published rows."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that makes it, for the store."""

    def moved_from(self, before: Any) -> float:
        """Share of the rows of the model before, of the same kind, that are no longer there; 0 if there were none."""


class RowModel(Model, Protocol):
    """A model that is integer rows over the schema's columns."""

    @property
    def codes(self) -> NDArray[Any]:
        """Codes of the rows, shape ``(rows, columns)``."""

    @property
    def weights(self) -> IntArray | None:
        """For how many events each row stands, shape ``(rows,)``; ``None``: each for one."""

    def counts(self, workload: Workload) -> IntArray:
        """Events over all cells of a workload, shape ``(cells,)``."""


def weight_name(schema: Schema) -> str:
    """The column that says for how many events a published row stands."""
    return "weight" if "weight" not in schema.published else "weight of the row"


def randomness(seed: np.random.Generator | int) -> np.random.Generator:
    """Public randomness. Raises ``TypeError`` or ``ValueError`` for what is no seed of it."""
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed: must be a whole number, or a numpy.random.Generator, not {type(seed).__name__}")
    if seed < 0:
        raise ValueError(f"seed: must be at least 0, not {seed}")
    return np.random.default_rng(int(seed))


def drawn(rows: pl.DataFrame, n: int, rng: np.random.Generator, *, where: str | None) -> pl.DataFrame:
    """Some rows, up to their number without repetition; warns if those that satisfy a condition have to repeat."""
    if where is not None and n > rows.height > 0:
        warnings.warn(
            f"{rows.height:,} rows satisfy the condition, fewer than the {n:,} asked for: they repeat",
            RowsRepeat,
            stacklevel=3,
        )
    return rows[rng.choice(rows.height, size=n, replace=n > rows.height)] if n and rows.height else rows.clear()
