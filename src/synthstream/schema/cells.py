"""Names of the cells of tables, as frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import polars as pl

from synthstream.schema.schema import Schema
from synthstream.workload import Workload


def grid(schema: Schema, positions: Sequence[int]) -> pl.DataFrame:
    """One row per cell of the table of some columns, one at least: their names, and the labels of their codes.

    Of a place also where its cells begin and end, as ``lat from`` and ``lat to``; null for those without a place.
    """
    shape = tuple(schema.sizes[p] for p in positions)
    codes = np.indices(shape).reshape(len(shape), -1)
    frame = pl.DataFrame(
        {schema.names[p]: np.array(schema.labels[p])[code] for p, code in zip(positions, codes, strict=True)}
    )
    for p, code in zip(positions, codes, strict=True):
        frame = frame.with_columns(
            *(one for one in schema.columns[p].ends(code.astype(np.int32)) if one.name not in frame.columns)
        )
    return frame


@lru_cache(maxsize=8)
def cells(schema: Schema, workload: Workload) -> pl.DataFrame:
    """One row per cell of the workload: the names and labels of its columns, null where it has fewer columns.

    Columns: ``column_1, value_1, column_2, value_2, ...`` up to the largest number of columns in a marginal.
    """
    order = max(len(marginal) for marginal in workload.marginals)
    parts: list[pl.DataFrame] = []
    for marginal, shape in zip(workload.marginals, workload.shapes, strict=True):
        length = int(np.prod(shape, dtype=np.int64))
        codes = np.indices(shape).reshape(len(shape), length)
        data: dict[str, pl.Series] = {}
        for k in range(order):
            if k < len(marginal):
                c = marginal[k]
                column = pl.Series([schema.names[c]]).new_from_index(0, length)
                value = pl.Series(schema.labels[c], dtype=pl.String).gather(codes[k])
            else:
                column = value = pl.Series([None], dtype=pl.String).new_from_index(0, length)
            data |= {f"column_{k + 1}": column, f"value_{k + 1}": value}
        parts.append(pl.DataFrame(data))
    return pl.concat(parts)
