"""The release of a stream of tables: counts, their errors, and what has changed between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import polars as pl

from synthstream.errors import SchemaError
from synthstream.measured import Measured
from synthstream.release.answers import REPLICATES, answers, direct, moved, of_these, possible, satisfied
from synthstream.release.comparing import between_spans, ordered
from synthstream.release.places import Located
from synthstream.release.release import Release
from synthstream.release.rows import RowModel
from synthstream.schema.conditions import names_of
from synthstream.schema.dates import Dates
from synthstream.schema.schema import cells, grid
from synthstream.workload import FloatArray, IntArray, Workload


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TableRelease(Located, Release):
    """A release of a stream of tables.

    Args:
        workload: the tables that every release of this stream holds.
        measured: the noisy counts of this tick.
        model: the rows fitted to them.
        dates: columns in which no row lies after the end; ``None``: there are none, or rows are read from a file.
    """

    workload: Workload
    measured: Measured
    model: RowModel
    dates: Dates | None = None

    # Whether its tables count all events up to its tick; those of a window count what lies in it.
    running: ClassVar[bool] = True

    def _made(self, n: int | None, rng: np.random.Generator | None) -> pl.DataFrame:
        if n is None:
            return self.schema.decode(self.model.codes.astype(np.int32), rng, self.dates, self.end)
        rows, rng = self.listed[0], rng or self._rng()  # where they lie in their bins all rows say, and not a few
        return rows[rng.choice(rows.height, size=n, replace=n > rows.height)] if n and rows.height else rows[:0]

    @property
    def model_weights(self) -> IntArray | None:
        return self.model.weights

    def table(
        self, columns: Sequence[str] | str, *, where: str | None = None, model_error: bool = False
    ) -> pl.DataFrame:
        """Counts over all combinations of some columns, of the rows that satisfy a condition.

        Args:
            columns: names; one alone may stand without a list.
            where: a condition, as in :meth:`rows`.
            model_error: whether to say how far noise moves ``count``, as ``model_error``: the root mean square over 8
                refits, each to the counts of the rows and fresh noise of the known size. It holds no bias of the model,
                so it is no error bar. Takes some seconds, once for a release; null where it is not known.

        Returns:
            One row per cell that the condition does not exclude: the columns, as named, and the ends of places;
            ``count`` in the rows, and its ``share`` of all rows, whatever the condition (null if there are none);
            ``measured`` and ``stderr``, what passed the gate and its standard error; ``since`` and ``measured_at``, the
            first and last tick that ``measured`` counts. If a measured table holds these columns and those of the
            condition, they are sums of its cells; noise is independent between cells, so their variances add up. Null
            if none does, or the condition cuts a bin.

        Raises:
            SchemaError: a column does not exist or is named twice, or the condition cannot be read.

        Example: ``release.table(["zone", "hour"], where="age >= 60").sort("count", descending=True)``
        """
        names = names_of(columns, "table")
        workload = self.marginal_of(names)
        count = self._count(workload, where)
        whole = int(count.sum()) if where is None else int(self._count(self.marginal_of([]), None)[0])
        # Polars would multiply by 1 / whole, and all of them would be less than 1.
        share = pl.Series(count.to_numpy() / whole if whole else [None] * count.len(), dtype=pl.Float64)
        counts = {"count": count, "share": share, **answers(self.schema, self.measured, workload, where)}
        if model_error:
            counts |= {"model_error": moved(self.schema, workload, self._refitted, where, count, self._rng())}
        if not names:
            return pl.DataFrame(counts)
        found = grid(self.schema, workload.marginals[0]).select(*names, pl.exclude(names)).with_columns(**counts)
        return found if where is None else found.filter(pl.Series(possible(self.schema, workload.marginals[0], where)))

    def count(self, where: str | None = None) -> dict[str, Any]:
        """How many events satisfy a condition.

        ``count``, ``share``, ``measured``, ``stderr``, ``since`` and ``measured_at``: see :meth:`table`.

        Example: ``release.count("age >= 60 AND zone = 'A'")["measured"]``
        """
        return self.table([], where=where).row(0, named=True)

    @cached_property
    def _refitted(self) -> list[RowModel]:
        return [] if self.replicates is None else self.replicates(REPLICATES)

    def marginal_of(self, columns: Sequence[str] | str) -> Workload:
        """The table of some columns, alone. Raises ``SchemaError`` if one does not exist or is named twice."""
        names, columns = self.schema.names, [columns] if isinstance(columns, str) else columns
        for name in columns:
            if name not in names:
                raise SchemaError(f"table: {self.schema.unknown(name)}")
        if len(set(columns)) != len(columns):
            raise SchemaError(f"table: {', '.join(columns)}: each column can be named once")
        positions = tuple(sorted(names.index(name) for name in columns))
        return Workload(sizes=self.schema.sizes, marginals=(positions,))

    def _count(self, workload: Workload, where: str | None) -> pl.Series:
        """Counts of a workload of one table; as published, where it was."""
        if where is not None:
            return pl.Series(of_these(self.model, satisfied(self.listed[0], where), workload))
        if self.files is not None and workload.marginals[0] in self.workload.marginals:
            place = self.workload.slice_of(workload.marginals[0])
            return self.tables["count"][place]
        return pl.Series(self.model.counts(workload))

    def compare(self, earlier: Release, columns: Sequence[str] | str | None = None) -> pl.DataFrame:
        """What has changed since an earlier release of the stream.

        Args:
            earlier: a release of the same stream, or a window of it if this is a window.
            columns: of the table to compare; left out: all tables that are published.

        Returns:
            One row per cell: its columns (of all tables: as in :attr:`tables`); ``then`` and ``now``, counts in the
            published rows, and their ``difference``; ``measured``, the difference of what passed the gate, its
            ``stderr`` and ``z``, one divided by the other; ``beyond_noise``, whether z is beyond 3 either way. Largest
            z first. These four are null where the table was not measured both times as a running count, or not again
            in between; of windows, where refreshes widen one by more ticks than the other.

            Where refreshes measure tables, ``measured`` is of the ticks after ``measured_at_then`` up to
            ``measured_at``, maybe not those asked for. Windows begin with ``since_then`` and ``since``.

            Noise that both releases share is in neither's way: ``stderr`` comes from the covariance of the counters.

        Raises ``SchemaError``: they are not of one stream, or not in this order, or a column does not exist.

        Example: ``release.compare(releases.at("2015-01-01"), ["zone"])``
        """
        then = cast(TableRelease, self._comparable(earlier))
        if columns is None:
            workload, new, old = self.workload, self.tables, then.tables
        else:
            workload, new, old = self.marginal_of(columns), self.table(columns), then.table(columns)
        names = new.columns[: new.columns.index("count")]
        own, past = (direct(release.measured, workload)["measured"] for release in (self, then))
        frame = new.select(
            *names,
            then=old["count"],
            now=new["count"],
            difference=new["count"] - old["count"],
            measured=own - past,
            stderr=pl.Series(np.repeat(np.sqrt(_variances(self, then, workload)), workload.lengths)),
        )
        return ordered(frame.with_columns(**_told(self, then, workload)))

    @cached_property
    def tables(self) -> pl.DataFrame:
        """All tables of the stream's workload in one frame, a row per cell: see :func:`cells` and :meth:`table`."""
        if self.files is not None:
            return self.files("tables.parquet")
        counts = {"count": pl.Series(self.model.counts(self.workload)), **direct(self.measured, self.workload)}
        return cells(self.schema, self.workload).with_columns(**counts, **self._dates())


def _told(now: TableRelease, then: TableRelease, workload: Workload) -> dict[str, pl.Series]:
    """First and last tick that each side of ``measured`` counts, where not all is measured at one tick."""
    if now.measured.measured_at is None and then.measured.measured_at is None:
        return {}
    found = dict[str, pl.Series]()
    for release, suffix in ((then, "_then"), (now, "")):
        spans = _extent(release, workload)[0]
        ends = {"measured_at": spans[:, 1]} if release.running else {"since": spans[:, 0], "measured_at": spans[:, 1]}
        for name, ticks in ends.items():
            each = pl.Series(np.repeat(ticks, workload.lengths), dtype=pl.Int64)
            found[name + suffix] = each.set(each < 0, None)
    return found


def _variances(now: TableRelease, then: TableRelease, workload: Workload) -> FloatArray:
    """Of the difference of what was measured, for each table; NaN where it is not known or means nothing."""
    places = [now.workload.place.get(m, -1) for m in workload.marginals]
    (new, own), (old, past) = (_extent(release, workload) for release in (now, then))
    shared, known = np.full(len(places), np.nan), (new[:, 0] >= 0) & (old[:, 0] >= 0)
    for spans in {(*a, *b) for a, b, measured in zip(new.tolist(), old.tolist(), known, strict=True) if measured}:
        here = (np.hstack([new, old]) == spans).all(axis=1)
        shared[here] = between_spans(now.covariance, spans[:2], spans[2:])[np.array(places)[here]]
    # Of releases, running counts alone have a difference that counts something. A table that is measured at refreshes
    # counts more ticks than its window has; two windows tell a change where both are widened alike.
    if now.running:
        alike = (new[:, 0] == 0) & (old[:, 0] == 0) & (new[:, 1] > old[:, 1])  # else both are one measurement
    else:
        begins = [int(getattr(release, "first", 0)) for release in (now, then)]
        alike = (new - old == (begins[0] - begins[1], now.tick - then.tick)).all(axis=1)
    return np.where(alike, np.maximum(own + past - 2 * shared, 0.0), np.nan)


def _extent(release: TableRelease, workload: Workload) -> tuple[IntArray, FloatArray]:
    """First and last tick that each table counts, and its variance; -1 and NaN if it was not measured."""
    measured = release.measured
    found = [measured.workload.place.get(marginal, -1) for marginal in workload.marginals]
    spans = np.array([(-1, -1) if q < 0 else (int(measured.since[q]), int(measured.until[q])) for q in found])
    return spans, np.array([np.nan if q < 0 else float(measured.variance[q]) for q in found])
