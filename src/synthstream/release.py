"""What has passed the gate: the only types that leave the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from synthstream.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Noisy counts of all marginals at one tick, with their known error. Public.

    Args:
        tick: 0-based number of the tick whose end this describes; counts cover ticks ``0..tick``.
        workload: which marginals, and how ``values`` is laid out.
        values: noisy running counts, float64, shape ``(cells,)``; may be negative, need not be consistent.
        variance: noise variance of each cell of each marginal, shape ``(marginals,)``, from public facts alone.
            Noise is independent between cells.
    """

    tick: int
    workload: Workload
    values: FloatArray
    variance: FloatArray

    def marginal(self, columns: Sequence[int]) -> tuple[FloatArray, float]:
        """Noisy counts of one marginal in the shape of its columns, and the standard error of each cell."""
        q = self.workload.marginals.index(tuple(columns))
        values = self.values[self.workload.offsets[q] : self.workload.offsets[q + 1]]
        return values.reshape(self.workload.shapes[q]), float(np.sqrt(self.variance[q]))
