"""Cells of binned columns in an order that is publicly known, such as a start that is never after its end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from synthstream.schema.binned import Binned
from synthstream.schema.columns import Column
from synthstream.workload import CodeArray


def ordered(
    columns: Sequence[Column], codes: CodeArray, cells: Sequence[pl.Series], pairs: Sequence[tuple[int, int]]
) -> list[pl.Series]:
    """The cells, moved within their bins so that of each pair the first is never above the second.

    Two cells in the wrong order are exchanged if each lies in the other's bin. Elsewhere the first is lowered, or the
    second raised, as little as it takes. Rows with a missing cell have no order.

    Args:
        codes: of the rows, which have bins in which that order is possible; shape ``(rows, columns)``.
        cells: of each column.
        pairs: with (a, b) and (b, c) also (a, c).

    Example:
        >>> from synthstream.schema.binned import Integer
        >>> both = [Integer(name=name, min=0, max=9, bins=2) for name in "ab"]
        >>> rows = [pl.Series("a", [4, 8]), pl.Series("b", [1, 9])]
        >>> [cell.to_list() for cell in ordered(both, np.array([[0, 0], [1, 1]]), rows, [(0, 1)])]
        [[1, 8], [4, 9]]
    """
    found, used = list(cells), sorted({c for pair in pairs for c in pair})
    bottoms, tops = dict[int, pl.Series](), dict[int, pl.Series]()
    for c in used:
        column = columns[c]
        if not isinstance(column, Binned):
            raise TypeError(f"column {column.name!r} has no order")
        bottoms[c], tops[c] = column.at(codes[:, c], np.zeros(len(codes))), column.at(codes[:, c], np.ones(len(codes)))
    for a, b in pairs:
        low, high = found[a], found[b]
        swap = ((low > high) & (high >= bottoms[a]) & (low <= tops[b])).fill_null(value=False)
        found[a], found[b] = low.zip_with(~swap, high), high.zip_with(~swap, low)
    for c in used:
        found[c] = _nearest(found[c], [tops[b] for a, b in pairs if a == c], lowest=True)
    lowered = list(found)
    for c in used:
        found[c] = _nearest(found[c], [lowered[a] for a, b in pairs if b == c], lowest=False)
    return [cell.alias(column.name) for cell, column in zip(found, columns, strict=True)]


def _nearest(cells: pl.Series, bounds: Sequence[pl.Series], *, lowest: bool) -> pl.Series:
    """The lowest or highest of the cells and some bounds, where a cell is known."""
    for bound in bounds:
        beyond = ((cells > bound) if lowest else (cells < bound)).fill_null(value=False)
        cells = cells.zip_with(~beyond, bound)
    return cells
