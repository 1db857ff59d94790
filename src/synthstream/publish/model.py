"""Rows that were published, as codes again: what questions about a release are asked of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.fit.population import Population
from synthstream.release.rows import weight_name
from synthstream.schema.binned import Datetime
from synthstream.schema.columns import Column
from synthstream.schema.schema import Schema
from synthstream.workload import CodeArray, IntArray, Workload


class PublishedRows:
    """Published rows as a :class:`synthstream.release.rows.RowModel`, read and encoded when they are needed."""

    def __init__(self, read: Callable[[], pl.DataFrame], schema: Schema, workload: Workload, number: int) -> None:
        self._read, self._schema, self._workload, self.number = read, schema, workload, number

    def __repr__(self) -> str:
        return f"Rows({self.number:,})"

    @cached_property
    def _population(self) -> Population:
        rows, name = self._read(), weight_name(self._schema)
        weights = rows[name].to_numpy() if name in rows.columns else None
        return replace(Population.of(self._workload, codes_of(self._schema, rows)), weights=weights)

    @property
    def codes(self) -> NDArray[Any]:
        return self._population.codes

    @property
    def weights(self) -> IntArray | None:
        return self._population.weights

    def counts(self, workload: Workload) -> IntArray:
        return self._population.counts(workload)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._population.arrays()

    def moved_from(self, before: Any) -> float:
        return self._population.moved_from(before)


def codes_of(schema: Schema, rows: pl.DataFrame) -> CodeArray:
    """Codes of published rows, int32, shape ``(rows, columns)``: the way back from :meth:`Schema.decode`."""
    if rows.is_empty():
        return np.zeros((0, len(schema.columns)), dtype=np.int32)
    return np.stack([_codes(column, rows[column.name]) for column in schema.columns], axis=1)


def _codes(column: Column, published: pl.Series) -> CodeArray:
    if not isinstance(column, Datetime) or column.part is None:
        return column.encode(published)
    # Parts of a time are published as whole numbers, but are read from times.
    first, missing = int(column.edges[0]), column.size - 1
    return (published - first).fill_null(missing).to_numpy().astype(np.int32)
