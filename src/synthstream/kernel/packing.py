"""Measurements of some tables of a workload as integers, for the store: which tables, then their values."""

from __future__ import annotations

import numpy as np

from synthstream.measured import Measured
from synthstream.workload import FloatArray, IntArray, Workload

# Stands for a cell that was not measured, although its table is listed.
_NOT_MEASURED = np.iinfo(np.int64).min


def pack(workload: Workload, measured: Measured, *, resolution: float = 1.0) -> IntArray:
    """Number of tables, their positions in the workload, and the values in units of ``resolution``; int64."""
    positions = [workload.marginals.index(marginal) for marginal in measured.workload.marginals]
    missing = np.isnan(measured.values)
    values = np.rint(np.where(missing, 0.0, measured.values) / resolution).astype(np.int64)
    values[missing] = _NOT_MEASURED
    return np.concatenate([[len(positions)], positions, values]).astype(np.int64)


def unpack(released: IntArray, *, resolution: float = 1.0) -> tuple[list[int], FloatArray]:
    """Positions of the tables, and their values, float64."""
    number = int(released[0])
    values = released[number + 1 :]
    return released[1 : number + 1].tolist(), np.where(values == _NOT_MEASURED, np.nan, values * resolution)
