"""Counts under a condition: which cells of a measured table lie in it, and what their sum is known to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.measured import Measured
from synthstream.release.rows import RowModel
from synthstream.release.series import only
from synthstream.schema.binned import Binned
from synthstream.schema.columns import Column
from synthstream.schema.comparisons import check_values, thresholds
from synthstream.schema.conditions import condition, first, is_column, tokenised, unquoted
from synthstream.schema.schema import Schema
from synthstream.workload import FloatArray, IntArray, Workload

# How often rows are fitted again, to tell how noise moves them.
REPLICATES = 8
# Cells of a table, times values that are tried in each, that are looked at; beyond, nothing is said of the measured.
_MOST_TRIED = 2**20


def answers(schema: Schema, measured: Measured, workload: Workload, where: str | None) -> dict[str, pl.Series]:
    """``measured``, ``stderr``, ``since``, ``measured_at`` over the cells of one table; null where nothing is known.

    A table that was measured is as it was; the number of all events, as that under a condition, is of the best one: see
    :func:`sums`.
    """
    marginal, measured = workload.marginals[0], replace(measured, measured_at=measured.until)
    if where is None and marginal and marginal in measured.workload.place:
        return direct(measured, workload)
    found, cells = sums(schema, measured, marginal, where), workload.cells
    if found is None:
        return direct(only(measured, []), workload)
    ticks = {"since": found.since, "measured_at": found.measured_at}
    values = {"measured": pl.Series(found.values), "stderr": pl.Series(np.sqrt(found.variance))}
    return values | {name: pl.Series([tick] * cells, dtype=pl.Int64) for name, tick in ticks.items()}


def direct(measured: Measured, workload: Workload) -> dict[str, pl.Series]:
    """``measured``, ``stderr``, ``since`` over the cells of a workload; null where nothing is known.

    ``measured_at`` too, where not all is measured at one tick.
    """
    values, stderr, since, at = np.full((4, workload.cells), np.nan)
    until, variance = measured.until, measured.cell_variance()
    for marginal in workload.marginals:
        if (q := measured.workload.place.get(marginal)) is not None:
            here, source = workload.slice_of(marginal), measured.workload.slice_at(q)
            values[here], stderr[here] = measured.values[source], np.sqrt(variance[source])
            since[here], at[here] = measured.since[q], until[q]
    stderr[np.isnan(values)] = since[np.isnan(values)] = at[np.isnan(values)] = np.nan  # single cells, of a table
    ticks = {"since": since} | ({} if measured.measured_at is None else {"measured_at": at})
    filled = {name: pl.Series(array).fill_nan(None) for name, array in {"measured": values, "stderr": stderr}.items()}
    return filled | {name: pl.Series(array).fill_nan(None).cast(pl.Int64) for name, array in ticks.items()}


def moved(
    schema: Schema,
    workload: Workload,
    refitted: Sequence[RowModel],
    where: str | None,
    count: pl.Series,
    rng: np.random.Generator,
) -> pl.Series:
    """How far counts of one table move when rows are fitted again: root mean square; null if they were not.

    Args:
        refitted: the rows of each fit.
        count: in the rows that were published, shape ``(cells,)``.
    """
    if not refitted:
        return pl.Series([None] * workload.cells, dtype=pl.Float64)
    kept = [
        None if where is None else satisfied(schema.decode(rows.codes.astype(np.int32), rng), where)
        for rows in refitted
    ]
    off = np.array([of_these(*pair, workload) for pair in zip(refitted, kept, strict=True)]) - count.to_numpy()
    return pl.Series(np.sqrt(np.mean(off**2, axis=0)))


def of_these(rows: RowModel, kept: NDArray[np.bool_] | None, workload: Workload) -> IntArray:
    """Events of some rows over all cells of a workload; ``None``: of all rows."""
    if kept is None:
        return rows.counts(workload)
    return workload.count(rows.codes.astype(np.int32)[kept], None if rows.weights is None else rows.weights[kept])


def satisfied(rows: pl.DataFrame, where: str, schema: Schema | None = None) -> NDArray[np.bool_]:
    """Which rows satisfy a condition, shape ``(rows,)``; what is unknown does not.

    Args:
        schema: refuses what its columns cannot hold; left out: nobody asks.
    """
    found: NDArray[np.bool_] = rows.select(condition(where, rows.schema).fill_null(False)).to_series().to_numpy()
    if schema is not None:
        check_values(where, schema.texts, schema.ranges)
    return found


class MeasuredSums(NamedTuple):
    """Sums of cells of one measured table, for each cell of the table that was asked for.

    Args:
        values, variance: shape ``(cells,)``.
        since, measured_at: first and last tick that the table counts.
    """

    values: FloatArray
    variance: FloatArray
    since: int
    measured_at: int

    @property
    def ticks(self) -> tuple[int, int]:
        """First and last tick that the table counts."""
        return self.since, self.measured_at


def sums(schema: Schema, measured: Measured, columns: Sequence[int], where: str | None) -> MeasuredSums | None:
    """What the best measured table says of some columns under a condition; ``None`` if none can tell.

    A table can tell if it holds all columns, also those of the condition, and no cell of it lies in the condition in
    part. Of several the one whose ticks are nearest to those of the release, or window, is taken, the last tick first;
    and of these the one with the least error.

    Args:
        columns: positions, in the order of the answer's cells.
        where: see :func:`synthstream.schema.conditions.condition`.
    """
    asked = _asked(schema, where)
    if asked is None:
        return None
    holding = [
        (q, marginal)
        for q, marginal in enumerate(measured.workload.marginals)
        if {*columns, *asked} <= set(marginal)
        and np.isfinite(measured.marginal(marginal)[0].sum() + measured.variance[q])
    ]
    at, place, best = measured.until, measured.workload.place, cast(MeasuredSums | None, None)
    first = int(measured.since[place[()]]) if () in place else 0
    for q, marginal in sorted(
        holding, key=lambda found: (abs(int(at[found[0]]) - measured.tick), abs(int(measured.since[found[0]]) - first))
    ):
        if best is not None and (int(at[q]), int(measured.since[q])) != (best.measured_at, best.since):
            break
        inside = np.ones(measured.workload.shapes[q], dtype=np.bool_)
        if where is not None and (within := _inside(schema, asked, where)) is not None:
            order = [asked.index(c) for c in marginal if c in asked]
            shape = [schema.sizes[c] if c in asked else 1 for c in marginal]
            inside = inside & within.transpose(order).reshape(shape)
        elif where is not None:
            return None
        values = np.where(inside, measured.marginal(marginal)[0], 0.0)
        rest = tuple(i for i, c in enumerate(marginal) if c not in columns)
        kept = [c for c in marginal if c in columns]
        turned = [kept.index(c) for c in columns]
        total = values.sum(axis=rest).transpose(turned).reshape(-1)
        number = inside.sum(axis=rest).transpose(turned).reshape(-1)
        variance = number * float(measured.variance[q])
        if measured.by_cell is not None:
            each = measured.workload.table(measured.by_cell, q)
            variance = np.where(inside, each, 0.0).sum(axis=rest).transpose(turned).reshape(-1)
        found = MeasuredSums(total, variance, int(measured.since[q]), int(at[q]))
        if best is None or found.variance.max() < best.variance.max():
            best = found
    return best


def possible(schema: Schema, columns: Sequence[int], where: str) -> NDArray[np.bool_]:
    """Which cells of the table of some columns may hold rows that satisfy a condition; all, if nobody can tell.

    Args:
        columns: positions, in order.
    """
    asked, sizes = _asked(schema, where), [schema.sizes[c] for c in columns]
    within = _inside(schema, asked, where) if asked else None
    if asked is None or within is None:
        return np.ones(int(np.prod(sizes)), dtype=np.bool_)
    inside = within.any(axis=tuple(i for i, c in enumerate(asked) if c not in columns))
    shape = [n if c in asked else 1 for c, n in zip(columns, sizes, strict=True)]
    return np.broadcast_to(inside.reshape(shape), sizes).ravel()


def why_unmeasured(schema: Schema, workload: Workload, columns: Sequence[str], where: str | None) -> str:
    """Why no measured table tells what was asked, and what to ask instead, in sentences; empty if that is not known."""
    tokens = tokenised(where) if where is not None else []
    named = {unquoted(token) for token in tokens if is_column(token, schema.published)}
    if coordinates := sorted(named - {*schema.names}):
        return f"no table tells {coordinates[0]} by itself. Ask for a box, as in --box '{coordinates[0]} FROM TO'."
    together = {*columns, *named}
    if not any(together <= {schema.names[c] for c in marginal} for marginal in workload.marginals):
        held = [{schema.names[c] for c in marginal} for marginal in workload.marginals]
        some = [sorted(table) for table in held if len(table) > 1 and table <= together]
        found = [" and ".join(table) for table in some if len(table) == max(map(len, some))]
        most = f"; of some of them: {first(found)}" if found else ""
        return f"no table holds {', '.join(sorted(together))} together{most}."
    wide = [column for column in schema.columns if column.name in named and isinstance(column, Binned)]
    wide = [column for column in wide if _widest(column) > 1]
    asked = _asked(schema, where)
    if where is None or not wide or not asked or _inside(schema, asked, where) is not None:
        return ""
    name, bins = wide[0].name, first(wide[0].value_labels)
    return f"a condition must follow whole bins, as with >= the beginning of one. Those of {name} are {bins}."


def _asked(schema: Schema, where: str | None) -> list[int] | None:
    """Positions of the columns that a condition names; ``None`` if some are coordinates of a place, which are none."""
    if where is None:
        return []
    nothing = schema.decode(np.zeros((0, len(schema.columns)), dtype=np.int32), np.random.default_rng(0))
    names = condition(where, nothing.schema).meta.root_names()
    check_values(where, schema.texts, schema.ranges)
    if not set(names) <= set(schema.names):
        return None
    return sorted({schema.names.index(name) for name in names})


def _inside(schema: Schema, asked: Sequence[int], where: str) -> NDArray[np.bool_] | None:
    """Which cells of the table of some columns lie in a condition; ``None`` if one does in part, or nobody can tell."""
    columns = [schema.columns[c] for c in asked]
    wide = [column.name for column in columns if isinstance(column, Binned) and _widest(column) > 1]
    at = thresholds(where, wide)
    if at is None or np.isnan(at).any() or len(set(at)) < len(at):  # one number is not between two
        return None
    tried = [_tried(column, at if column.name in wide else []) for column in columns]
    if int(np.prod([len(codes) for codes, _ in tried], dtype=np.float64)) > _MOST_TRIED:
        return None
    places = np.array(list(product(*(range(len(codes)) for codes, _ in tried))))
    rows = pl.DataFrame([values.gather(places[:, k]) for k, (_, values) in enumerate(tried)])
    true = satisfied(rows, where)
    shape = [column.size for column in columns]
    cells = np.ravel_multi_index([codes[places[:, k]] for k, (codes, _) in enumerate(tried)], shape)
    number, inside = (np.bincount(cells, weights=w, minlength=int(np.prod(shape))) for w in (None, true))
    if ((inside > 0) & (inside < number)).any():
        return None
    return np.asarray(inside > 0).reshape(shape)


def _widest(column: Binned) -> float:
    """How many whole numbers the widest bin holds; of other numbers, and of times, many."""
    return float(np.diff(column.edges).max()) if column.whole else np.inf


def _tried(column: Column, at: Sequence[float]) -> tuple[NDArray[np.int32], pl.Series]:
    """Codes, and values of each between which a condition cannot change: both ends, and between thresholds."""
    codes = np.arange(column.size, dtype=np.int32)
    if not isinstance(column, Binned):
        return codes, column.decode(codes, np.random.default_rng(0))
    edges, more, shares = np.asarray(column.edges), [codes, codes], [np.zeros(codes.size), np.ones(codes.size)]
    for place, (low, high) in enumerate(pairwise(edges)):
        ends = np.concatenate([[low], np.unique([v for v in at if low < v < high]), [high]])
        if ends.size > 2:
            middles = (ends[1:] + ends[:-1]) / 2
            more.append(np.full(middles.size, place, dtype=np.int32))
            shares.append((middles - low) / (high - low))
    codes = np.concatenate(more)
    return codes, column.at(codes, np.concatenate(shares))
