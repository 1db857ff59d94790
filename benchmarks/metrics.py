"""NOT PRIVATE. Errors of synthetic tables against the true ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import polars as pl

from synthstream.workload import FloatArray, IntArray, Workload

Counts = IntArray | FloatArray

STAMP = "NOT PRIVATE: compared with the true data"


@dataclass(frozen=True, kw_only=True)
class TableErrors:
    """Errors over a set of marginals.

    The paper's ``AvgWE`` and ``MaxWE`` are ``avg_we`` and ``max_we``. Its text defines them on counts, its tables print
    them per event, as here. Its ``AvgRelWE`` and ``MaxRelWE`` are defined as ``avg_rel_we`` and ``max_rel_we``, which
    divide by zero in empty cells; its printed figures agree in size with ``avg_rel_l1`` and ``max_rel_l1``.

    Args:
        avg_we, max_we: mean and maximum over marginals of the mean absolute error of a cell (workload error), relative
            to the number of true events.
        avg_rel_l1, max_rel_l1: mean and maximum over marginals of the sum of absolute errors, relative to the number of
            true events; 2 at most if both sides have as many events.
        avg_rel_we, max_rel_we: mean and maximum over marginals of the mean relative error of a cell: its absolute error
            by its true count. An empty cell has no relative error; it is taken as if it held one event, so that it adds
            as many as were invented in it.

    Source: Kumar, Strohmer, Vershynin, section 7.3.
    """

    avg_we: float
    max_we: float
    avg_rel_l1: float
    max_rel_l1: float
    avg_rel_we: float
    max_rel_we: float


def table_errors(workload: Workload, *, true: Counts, synthetic: Counts, events: int) -> TableErrors:
    """Errors of all marginals of a workload.

    Args:
        true, synthetic: counts over all cells, in events, shape ``(cells,)``.
        events: number of true events; 0 is taken as 1, so that a stream that is still empty has errors too.

    Raises:
        ValueError: counts are not of the workload's shape, or the number of events is negative.

    Example:
        >>> workload = Workload(sizes=(2,), marginals=((0,),))
        >>> errors = table_errors(workload, true=np.array([3, 1]), synthetic=np.array([2, 2]), events=4)
        >>> errors.avg_we, errors.avg_rel_l1, round(errors.avg_rel_we, 3)
        (0.25, 0.5, 0.667)
    """
    distance = distances(workload, true=true, synthetic=synthetic)
    if events < 0:
        raise ValueError(f"events must be at least 0, not {events}")
    sums = np.add.reduceat(distance, workload.offsets[:-1]) / max(events, 1)
    means = sums / workload.lengths
    relative = np.add.reduceat(distance / np.maximum(np.abs(true), 1), workload.offsets[:-1]) / workload.lengths
    return TableErrors(
        avg_we=float(means.mean()),
        max_we=float(means.max()),
        avg_rel_l1=float(sums.mean()),
        max_rel_l1=float(sums.max()),
        avg_rel_we=float(relative.mean()),
        max_rel_we=float(relative.max()),
    )


def distances(workload: Workload, *, true: Counts, synthetic: Counts) -> FloatArray:
    """Absolute error of each cell, in events, shape ``(cells,)``.

    Raises ``ValueError`` if counts are not of the workload's shape.
    """
    for name, counts in (("true", true), ("synthetic", synthetic)):
        if np.shape(counts) != (workload.cells,):
            raise ValueError(f"{name}: counts of shape {np.shape(counts)}, not {(workload.cells,)}")
    return np.abs(np.asarray(true, dtype=np.float64) - synthetic)


class ErrorsOverTime:
    """Collects the errors of a stream tick by tick.

    Args:
        workload: the marginals to compare.

    Example:
        >>> errors = ErrorsOverTime(Workload(sizes=(2,), marginals=((0,),)))
        >>> errors.add(true=np.array([3, 1]), synthetic=np.array([2, 2]), events=4)
        >>> errors.add(true=np.array([3, 5]), synthetic=np.array([3, 5]), events=8)
        >>> errors.table().select("tick", "avg_rel_l1", "snapshot", "differential").rows()
        [(0, 0.5, 1.0, 1.0), (1, 0.0, 0.0, 1.0)]
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._rows: list[dict[str, float | int]] = []
        self._before = np.zeros(workload.cells)

    def add(self, *, true: Counts, synthetic: Counts, events: int) -> None:
        """Compare the running counts after one more tick. Arguments and errors as for :func:`table_errors`."""
        found = table_errors(self.workload, true=true, synthetic=synthetic, events=events)
        gap = np.asarray(synthetic, dtype=np.float64) - true
        self._rows.append(
            {
                "tick": len(self._rows),
                "events": events,
                **asdict(found),
                "snapshot": float(np.abs(gap).max()),
                "differential": float(np.abs(gap - self._before).max()),
            }
        )
        self._before = gap

    def table(self) -> pl.DataFrame:
        """One row for each tick, oldest first.

        Columns: ``tick`` (from 0), ``events`` so far, the fields of :class:`TableErrors`, ``snapshot``, the largest
        error of a cell of the running counts, and ``differential``, that of what the tick added, both in events
        (:mod:`benchmarks.accuracy`). The column ``stamp`` says that none of it is private.
        """
        fields = [*TableErrors.__dataclass_fields__, "snapshot", "differential"]
        schema = {"tick": pl.Int64, "events": pl.Int64, **dict.fromkeys(fields, pl.Float64)}
        return pl.DataFrame(self._rows, schema=schema).with_columns(stamp=pl.lit(STAMP))
